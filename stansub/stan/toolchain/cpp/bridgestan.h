/* The C API of BridgeStan (https://roualdes.us/bridgestan/), version 2.9: declarations.
 *
 * Functions that can fail return 0 on success; on failure they return another value and, when
 * error_msg is not null, store there a message that the caller frees with bs_free_error_msg.
 * Parameter arrays hold bs_param_unc_num (unconstrained) or bs_param_num (constrained) doubles.
 * A model may be evaluated from several threads at once when it was compiled with STAN_THREADS.
 */
#ifndef BRIDGESTAN_H
#define BRIDGESTAN_H

#ifdef __cplusplus
#include <cstdint>
#else
#include <stdbool.h>
#include <stdint.h>
#endif

#if defined(_WIN32)
#define BS_PUBLIC __declspec(dllexport)
#else
#define BS_PUBLIC __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bs_model bs_model;
typedef struct bs_rng bs_rng;

/* Version of the API, not of Stan. */
BS_PUBLIC extern const int bs_major_version;
BS_PUBLIC extern const int bs_minor_version;
BS_PUBLIC extern const int bs_patch_version;

/* Instantiates the compiled model. data is JSON text, the path of a file ending in ".json", or
 * null or "" for no data; seed serves random numbers in transformed data. Null on failure. */
BS_PUBLIC bs_model* bs_model_construct(const char* data, unsigned int seed, char** error_msg);

/* A variable of the data block in memory; a complex number is a pair of doubles. */
typedef struct stansub_variable {
  const char* name;
  const void* values;   /* int64_t or double, the last index fastest */
  const int64_t* dims;
  int rank;             /* number of dimensions, 0 for a number by itself */
  int is_integer;
  int axis;             /* dimension that has an element a row, or -1 for none */
  int counts_rows;      /* whether the value is the number of rows */
} stansub_variable;

/* Not in BridgeStan: instantiates the compiled model with variables in memory, which are not referred
 * to any more when it returns. Where rows is not null, those n_rows rows alone are its data. */
BS_PUBLIC bs_model* stansub_model_construct(const stansub_variable* variables, int n_variables,
                                            const int64_t* rows, int64_t n_rows,
                                            unsigned int seed, char** error_msg);
BS_PUBLIC void bs_model_destruct(bs_model* m);
BS_PUBLIC void bs_free_error_msg(char* error_msg);

/* Strings returned below belong to the model and live as long as it does. */
BS_PUBLIC const char* bs_name(const bs_model* m);
BS_PUBLIC const char* bs_model_info(const bs_model* m);

/* Names are separated by commas, indexes by dots ("beta.2.1"), in column-major order. */
BS_PUBLIC const char* bs_param_names(const bs_model* m, bool include_tp, bool include_gq);
BS_PUBLIC const char* bs_param_unc_names(const bs_model* m);
BS_PUBLIC int bs_param_num(const bs_model* m, bool include_tp, bool include_gq);
BS_PUBLIC int bs_param_unc_num(const bs_model* m);

/* Unconstrained to constrained parameters; rng may be null unless include_gq is true. */
BS_PUBLIC int bs_param_constrain(const bs_model* m, bool include_tp, bool include_gq,
                                 const double* theta_unc, double* theta, bs_rng* rng,
                                 char** error_msg);
BS_PUBLIC int bs_param_unconstrain(const bs_model* m, const double* theta, double* theta_unc,
                                   char** error_msg);
BS_PUBLIC int bs_param_unconstrain_json(const bs_model* m, const char* json, double* theta_unc,
                                        char** error_msg);

/* A starting point of finite log density: what json (text, file or null) does not give is drawn
 * uniformly from (-init_radius, init_radius) on the unconstrained scale, at most max_tries times. */
BS_PUBLIC int bs_param_initialize(const bs_model* m, const char* json, bs_rng* rng,
                                  double init_radius, int max_tries, bool jacobian,
                                  double* theta_unc, char** error_msg);

/* Log density; propto drops constant terms, jacobian adds the change-of-variables terms. */
BS_PUBLIC int bs_log_density(const bs_model* m, bool propto, bool jacobian,
                             const double* theta_unc, double* lp, char** error_msg);
BS_PUBLIC int bs_log_density_gradient(const bs_model* m, bool propto, bool jacobian,
                                      const double* theta_unc, double* val, double* grad,
                                      char** error_msg);

/* Second derivatives: exact (nested autodiff) when compiled with BRIDGESTAN_AD_HESSIAN, otherwise
 * central differences of exact gradients. Their error is about 1e-10 relative to the size of the
 * derivatives where the log density varies on the scale max(1, |theta|) of its arguments, and
 * grows with the square of the steps where it varies faster. */
BS_PUBLIC int bs_log_density_hessian(const bs_model* m, bool propto, bool jacobian,
                                     const double* theta_unc, double* val, double* grad,
                                     double* hessian, char** error_msg);
BS_PUBLIC int bs_log_density_hessian_vector_product(const bs_model* m, bool propto, bool jacobian,
                                                    const double* theta_unc, const double* vector,
                                                    double* val, double* hvp, char** error_msg);

/* Random numbers for generated quantities and initial values; one rng per thread. */
BS_PUBLIC bs_rng* bs_rng_construct(unsigned int seed, char** error_msg);
BS_PUBLIC void bs_rng_destruct(bs_rng* rng);

/* Where the text of Stan's print statements goes, for every model of this library; null is
 * standard output. The callback must be safe to call from every thread that evaluates. */
typedef void (*STREAM_CALLBACK)(const char* data, int size);
BS_PUBLIC int bs_set_print_callback(STREAM_CALLBACK callback, char** error_msg);

#ifdef __cplusplus
}
#endif
#endif
