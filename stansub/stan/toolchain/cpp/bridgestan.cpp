// BridgeStan's C API over the one model that is linked into this library, written against
// stan::model::model_base. It knows nothing of the model, so it is compiled once for all models.

#include "bridgestan.h"
#include "version.hpp"

#ifdef BRIDGESTAN_AD_HESSIAN
#include <stan/math/mix.hpp>
#endif
#include <stan/io/chained_var_context.hpp>
#include <stan/io/empty_var_context.hpp>
#include <stan/io/json/json_data.hpp>
#include <stan/io/random_var_context.hpp>
#include <stan/io/validate_dims.hpp>
#include <stan/math/rev/core.hpp>
#include <stan/model/model_base.hpp>
#include <stan/services/util/create_rng.hpp>
#include <stan/version.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

// Defined by the C++ that stanc generates.
stan::model::model_base& new_model(stan::io::var_context& data, unsigned int seed,
                                   std::ostream* messages);

const int bs_major_version = BRIDGESTAN_MAJOR;
const int bs_minor_version = BRIDGESTAN_MINOR;
const int bs_patch_version = BRIDGESTAN_PATCH;

namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;
using stan::math::var;
using MapIn = Eigen::Map<const VectorXd>;
using MapOut = Eigen::Map<VectorXd>;

std::atomic<STREAM_CALLBACK> print_callback{nullptr};

// Collects what a model prints during one call and hands it on when the call ends. The stream is
// kept from call to call because making one costs as much as evaluating a small model.
class Messages {
 public:
  Messages() = default;
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  ~Messages() {
    if (stream().tellp() <= 0) return;
    const std::string text = stream().str();
    stream().str("");
    stream().clear();
    if (STREAM_CALLBACK callback = print_callback.load()) {
      callback(text.data(), static_cast<int>(text.size()));
    } else {
      std::cout << text << std::flush;
    }
  }

  std::ostream* get() { return &stream(); }

 private:
  static std::ostringstream& stream() {
    static thread_local std::ostringstream text;
    return text;
  }
};

// With STAN_THREADS every thread that evaluates needs an autodiff tape of its own.
void ensure_tape() {
#ifdef STAN_THREADS
  static thread_local stan::math::ChainableStack tape;
#endif
}

void store_error(char** error_msg, const char* text) noexcept {
  if (error_msg == nullptr) return;
  const std::size_t size = std::strlen(text) + 1;
  *error_msg = static_cast<char*>(std::malloc(size));
  if (*error_msg != nullptr) std::memcpy(*error_msg, text, size);
}

// Runs the body of an API function; an exception becomes a message and the value of failure.
template <typename Body>
int guarded(char** error_msg, Body&& body) noexcept {
  try {
    ensure_tape();
    body();
    return 0;
  } catch (const std::exception& error) {
    store_error(error_msg, error.what());
  } catch (...) {
    store_error(error_msg, "the model threw something that is not a C++ exception");
  }
  return 1;
}

std::unique_ptr<stan::io::var_context> read_context(const char* json) {
  const std::string text = json == nullptr ? "" : json;
  const std::string suffix = ".json";
  if (text.empty()) return std::make_unique<stan::io::empty_var_context>();
  if (text.size() >= suffix.size()
      && text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0) {
    std::ifstream file(text);
    if (!file) throw std::invalid_argument("cannot open the file " + text);
    return std::make_unique<stan::json::json_data>(file);
  }
  std::istringstream stream(text);
  return std::make_unique<stan::json::json_data>(stream);
}

// Variables in memory, all of them or chosen rows of those that have an element a row.
class ArrayContext final : public stan::io::var_context {
 public:
  ArrayContext(const stansub_variable* variables, int n_variables, const std::int64_t* rows,
               std::int64_t n_rows)
      : begin_(variables), end_(variables + n_variables), rows_(rows), n_rows_(n_rows) {
    if (rows == nullptr) return;
    for (const stansub_variable* v = begin_; v != end_; ++v) {
      const auto outside = [&](std::int64_t row) { return row < 0 || row >= v->dims[v->axis]; };
      if (v->axis >= 0 && std::any_of(rows, rows + n_rows, outside)) {
        throw std::out_of_range(std::string("a row that is not in ") + v->name);
      }
    }
  }

  bool contains_r(const std::string& name) const override { return find(name) != nullptr; }

  bool contains_i(const std::string& name) const override {
    const stansub_variable* v = find(name);
    return v != nullptr && v->is_integer;
  }

  std::vector<double> vals_r(const std::string& name) const override {
    const stansub_variable* v = find(name);
    if (v == nullptr) return {};
    return v->is_integer ? values<double, std::int64_t>(*v) : values<double, double>(*v);
  }

  std::vector<int> vals_i(const std::string& name) const override {
    return contains_i(name) ? values<int, std::int64_t>(*find(name)) : std::vector<int>();
  }

  // Pairs are the last dimension, which changes slowest: first all real parts, then the others.
  std::vector<std::complex<double>> vals_c(const std::string& name) const override {
    const std::vector<double> parts = vals_r(name);
    std::vector<std::complex<double>> pairs(parts.size() / 2);
    for (std::size_t i = 0; i < pairs.size(); ++i) pairs[i] = {parts[i], parts[i + pairs.size()]};
    return pairs;
  }

  std::vector<std::size_t> dims_r(const std::string& name) const override {
    const stansub_variable* v = find(name);
    return v == nullptr ? std::vector<std::size_t>() : dims(*v);
  }

  std::vector<std::size_t> dims_i(const std::string& name) const override {
    return contains_i(name) ? dims_r(name) : std::vector<std::size_t>();
  }

  void names_r(std::vector<std::string>& names) const override { list(names, false); }
  void names_i(std::vector<std::string>& names) const override { list(names, true); }

  // As for JSON, in which arrays without elements have no certain dimensions.
  void validate_dims(const std::string& stage, const std::string& name, const std::string& type,
                     const std::vector<std::size_t>& declared) const override {
    const std::vector<std::size_t> found = dims_r(name);
    if ((found.empty() || product(found) == 0) && product(declared) == 0) return;
    stan::io::validate_dims(*this, stage, name, type, declared);
  }

 private:
  static std::size_t product(const std::vector<std::size_t>& dims) {
    return std::accumulate(dims.begin(), dims.end(), std::size_t{1}, std::multiplies<>());
  }

  const stansub_variable* find(const std::string& name) const {
    const auto* found
        = std::find_if(begin_, end_, [&](const stansub_variable& v) { return name == v.name; });
    return found == end_ ? nullptr : found;
  }

  void list(std::vector<std::string>& names, bool integers) const {
    names.clear();
    for (const stansub_variable* v = begin_; v != end_; ++v) {
      if (static_cast<bool>(v->is_integer) == integers) names.emplace_back(v->name);
    }
  }

  bool chosen(const stansub_variable& v, int axis) const {
    return rows_ != nullptr && v.axis == axis;
  }

  std::vector<std::size_t> dims(const stansub_variable& v) const {
    std::vector<std::size_t> dims(v.dims, v.dims + v.rank);
    if (rows_ != nullptr && v.axis >= 0) dims[v.axis] = n_rows_;
    return dims;
  }

  // The elements in the order that Stan expects, the first index fastest.
  template <typename Out, typename In>
  std::vector<Out> values(const stansub_variable& v) const {
    const In* in = static_cast<const In*>(v.values);
    if (v.rank == 0) {
      return {static_cast<Out>(rows_ != nullptr && v.counts_rows ? n_rows_ : *in)};
    }
    const std::vector<std::size_t> dims = this->dims(v);
    std::vector<Out> out;
    out.reserve(product(dims));
    if (product(dims) == 0) return out;
    std::vector<std::size_t> strides(v.rank, 1), index(v.rank, 0);
    for (int axis = v.rank - 1; axis > 0; --axis) strides[axis - 1] = strides[axis] * v.dims[axis];
    const auto offset = [&](int axis, std::size_t i) {
      return strides[axis] * (chosen(v, axis) ? static_cast<std::size_t>(rows_[i]) : i);
    };
    for (int axis = 0; axis < v.rank;) {
      std::size_t start = 0;
      for (int a = 1; a < v.rank; ++a) start += offset(a, index[a]);
      for (std::size_t i = 0; i < dims[0]; ++i) {
        out.push_back(static_cast<Out>(in[start + offset(0, i)]));
      }
      for (axis = 1; axis < v.rank && ++index[axis] == dims[axis]; ++axis) index[axis] = 0;
    }
    return out;
  }

  const stansub_variable* begin_;
  const stansub_variable* end_;
  const std::int64_t* rows_;
  std::int64_t n_rows_;
};

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    if (!text.empty()) text += ',';
    text += name;
  }
  return text;
}

// Text made at the first request: thousands of instances of one model are kept in memory, and
// almost none of them is asked for its names.
struct Lazy {
  mutable std::once_flag once;
  mutable std::string text;
  mutable int count = 0;

  template <typename Make>
  const Lazy& get(Make&& make) const {
    std::call_once(once, [&] {
      std::vector<std::string> names;
      make(names);
      count = static_cast<int>(names.size());
      text = join(names);
    });
    return *this;
  }
};

std::string describe(const stan::model::model_base& model) {
#ifdef STAN_THREADS
  const char* threads = "true";
#else
  const char* threads = "false";
#endif
#ifdef STAN_NO_RANGE_CHECKS
  const char* no_range_checks = "true";
#else
  const char* no_range_checks = "false";
#endif
#ifdef BRIDGESTAN_AD_HESSIAN
  const char* ad_hessian = "true";
#else
  const char* ad_hessian = "false";
#endif
  std::ostringstream info;
  info << "BridgeStan version: " << bs_major_version << '.' << bs_minor_version << '.'
       << bs_patch_version << "\nStan version: " << stan::MAJOR_VERSION << '.'
       << stan::MINOR_VERSION << '.' << stan::PATCH_VERSION << "\nStan C++ Defines:"
       << "\n\tSTAN_THREADS=" << threads << "\n\tSTAN_MPI=false\n\tSTAN_OPENCL=false"
       << "\n\tSTAN_NO_RANGE_CHECKS=" << no_range_checks
       << "\n\tBRIDGESTAN_AD_HESSIAN=" << ad_hessian << "\nStan Compiler Details:\n";
  for (const std::string& line : model.model_compile_info()) info << '\t' << line << '\n';
  return info.str();
}

}  // namespace

struct bs_model {
  std::unique_ptr<stan::model::model_base> model;
  std::string name;
  int dimension;
  Lazy constrained[4];
  Lazy unconstrained;
  Lazy info;

  bs_model(stan::io::var_context& data, unsigned int seed) {
    Messages messages;
    model.reset(&new_model(data, seed, messages.get()));
    name = model->model_name();
    dimension = static_cast<int>(model->num_params_r());
  }

  const Lazy& names(bool include_tp, bool include_gq) const {
    return constrained[2 * include_tp + include_gq].get([&](std::vector<std::string>& out) {
      model->constrained_param_names(out, include_tp, include_gq);
    });
  }
};

struct bs_rng {
  stan::rng_t rng;
};

namespace {

template <typename T>
T log_prob(const bs_model& m, bool propto, bool jacobian, Eigen::Matrix<T, -1, 1>& theta,
           std::ostream* messages) {
  if (propto) {
    return jacobian ? m.model->log_prob_propto_jacobian(theta, messages)
                    : m.model->log_prob_propto(theta, messages);
  }
  return jacobian ? m.model->log_prob_jacobian(theta, messages)
                  : m.model->log_prob(theta, messages);
}

double value(const bs_model& m, bool propto, bool jacobian, VectorXd theta) {
  Messages messages;
  if (!propto) return log_prob(m, propto, jacobian, theta, messages.get());
  // Which terms are constant shows in their types, so dropping them takes autodiff variables.
  const stan::math::nested_rev_autodiff nested;
  Eigen::Matrix<var, -1, 1> theta_var(theta);
  return log_prob(m, propto, jacobian, theta_var, messages.get()).val();
}

double value_and_gradient(const bs_model& m, bool propto, bool jacobian, const VectorXd& theta,
                          MapOut gradient) {
  Messages messages;
  const stan::math::nested_rev_autodiff nested;
  Eigen::Matrix<var, -1, 1> theta_var(theta);
  var lp = log_prob(m, propto, jacobian, theta_var, messages.get());
  lp.grad();
  for (Eigen::Index i = 0; i < gradient.size(); ++i) gradient[i] = theta_var[i].adj();
  return lp.val();
}

#ifdef BRIDGESTAN_AD_HESSIAN

// The derivative of the gradient in a direction, by reverse mode over forward mode.
VectorXd gradient_change(const bs_model& m, bool propto, bool jacobian, const VectorXd& theta,
                         const VectorXd& direction) {
  Messages messages;
  const stan::math::nested_rev_autodiff nested;
  Eigen::Matrix<stan::math::fvar<var>, -1, 1> theta_fvar(theta.size());
  for (Eigen::Index i = 0; i < theta.size(); ++i) {
    theta_fvar[i] = stan::math::fvar<var>(theta[i], direction[i]);
  }
  stan::math::fvar<var> lp = log_prob(m, propto, jacobian, theta_fvar, messages.get());
  lp.d_.grad();
  VectorXd change(theta.size());
  for (Eigen::Index i = 0; i < theta.size(); ++i) change[i] = theta_fvar[i].val_.adj();
  return change;
}

#else

// The derivative of the gradient in a direction, by a central difference. The step balances the
// truncation error (step squared) and the rounding error (1 / step) of the difference.
VectorXd gradient_change(const bs_model& m, bool propto, bool jacobian, const VectorXd& theta,
                         const VectorXd& direction) {
  const double length = direction.lpNorm<Eigen::Infinity>();
  if (length == 0) return VectorXd::Zero(theta.size());
  // Steps are measured where the direction goes: a coordinate it leaves alone sets no scale.
  double scale = 1;
  for (Eigen::Index i = 0; i < theta.size(); ++i) {
    scale = std::max(scale, std::abs(theta[i] * direction[i]) / length);
  }
  const double step = std::cbrt(std::numeric_limits<double>::epsilon()) * scale / length;
  const VectorXd above = theta + step * direction;
  const VectorXd below = theta - step * direction;
  VectorXd high(theta.size()), low(theta.size());
  value_and_gradient(m, propto, jacobian, above, MapOut(high.data(), high.size()));
  value_and_gradient(m, propto, jacobian, below, MapOut(low.data(), low.size()));
  // The points actually reached differ from the intended ones by rounding.
  const double reached = (above - below).dot(direction) / direction.squaredNorm();
  return (high - low) / reached;
}

#endif

}  // namespace

bs_model* bs_model_construct(const char* data, unsigned int seed, char** error_msg) {
  bs_model* m = nullptr;
  guarded(error_msg, [&] { m = new bs_model(*read_context(data), seed); });
  return m;
}

bs_model* stansub_model_construct(const stansub_variable* variables, int n_variables,
                                  const int64_t* rows, int64_t n_rows, unsigned int seed,
                                  char** error_msg) {
  bs_model* m = nullptr;
  guarded(error_msg, [&] {
    ArrayContext data(variables, n_variables, rows, n_rows);
    m = new bs_model(data, seed);
  });
  return m;
}

void bs_model_destruct(bs_model* m) { delete m; }

void bs_free_error_msg(char* error_msg) { std::free(error_msg); }

const char* bs_name(const bs_model* m) { return m->name.c_str(); }

const char* bs_model_info(const bs_model* m) {
  return m->info.get([&](std::vector<std::string>& out) { out.push_back(describe(*m->model)); })
      .text.c_str();
}

const char* bs_param_names(const bs_model* m, bool include_tp, bool include_gq) {
  return m->names(include_tp, include_gq).text.c_str();
}

const char* bs_param_unc_names(const bs_model* m) {
  return m->unconstrained
      .get([&](std::vector<std::string>& out) { m->model->unconstrained_param_names(out, false, false); })
      .text.c_str();
}

int bs_param_num(const bs_model* m, bool include_tp, bool include_gq) {
  return m->names(include_tp, include_gq).count;
}

int bs_param_unc_num(const bs_model* m) { return m->dimension; }

int bs_param_constrain(const bs_model* m, bool include_tp, bool include_gq,
                       const double* theta_unc, double* theta, bs_rng* rng, char** error_msg) {
  return guarded(error_msg, [&] {
    if (include_gq && rng == nullptr) {
      throw std::invalid_argument("generated quantities need a random number generator");
    }
    static thread_local stan::rng_t unused = stan::services::util::create_rng(0, 0);
    VectorXd in = MapIn(theta_unc, m->dimension);
    VectorXd out;
    Messages messages;
    m->model->write_array(rng == nullptr ? unused : rng->rng, in, out, include_tp, include_gq,
                          messages.get());
    std::copy_n(out.data(), out.size(), theta);
  });
}

int bs_param_unconstrain(const bs_model* m, const double* theta, double* theta_unc,
                         char** error_msg) {
  return guarded(error_msg, [&] {
    const VectorXd in = MapIn(theta, bs_param_num(m, false, false));
    VectorXd out(m->dimension);
    Messages messages;
    m->model->unconstrain_array(in, out, messages.get());
    std::copy_n(out.data(), m->dimension, theta_unc);
  });
}

int bs_param_unconstrain_json(const bs_model* m, const char* json, double* theta_unc,
                              char** error_msg) {
  return guarded(error_msg, [&] {
    const std::unique_ptr<stan::io::var_context> context = read_context(json);
    VectorXd out(m->dimension);
    Messages messages;
    m->model->transform_inits(*context, out, messages.get());
    std::copy_n(out.data(), m->dimension, theta_unc);
  });
}

int bs_param_initialize(const bs_model* m, const char* json, bs_rng* rng, double init_radius,
                        int max_tries, bool jacobian, double* theta_unc, char** error_msg) {
  return guarded(error_msg, [&] {
    if (!(init_radius >= 0) || std::isinf(init_radius)) {
      throw std::invalid_argument("init_radius must be finite and not negative");
    }
    const std::unique_ptr<stan::io::var_context> given = read_context(json);
    std::vector<std::string> names;
    m->model->get_param_names(names, false, false);
    const auto is_given = [&](const std::string& name) { return given->contains_r(name); };
    const bool nothing_random
        = init_radius == 0 || std::all_of(names.begin(), names.end(), is_given);
    const int tries = nothing_random ? 1 : max_tries;

    std::string reason = "max_tries is less than 1";
    for (int attempt = 0; attempt < tries; ++attempt) {
      try {
        const stan::io::random_var_context random(*m->model, rng->rng, init_radius,
                                                  init_radius == 0);
        const stan::io::chained_var_context context(*given, random);
        VectorXd theta(m->dimension);
        {
          Messages messages;
          m->model->transform_inits(context, theta, messages.get());
        }
        const double lp = value(*m, false, jacobian, theta);
        if (std::isfinite(lp)) {
          std::copy_n(theta.data(), m->dimension, theta_unc);
          return;
        }
        reason = "the log density is " + std::to_string(lp);
      } catch (const std::domain_error& error) {
        reason = error.what();
      }
    }
    throw std::runtime_error("no initial value of finite log density in " + std::to_string(tries)
                             + (tries == 1 ? " try: " : " tries; at the last one: ") + reason);
  });
}

int bs_log_density(const bs_model* m, bool propto, bool jacobian, const double* theta_unc,
                   double* lp, char** error_msg) {
  return guarded(error_msg, [&] {
    *lp = value(*m, propto, jacobian, MapIn(theta_unc, m->dimension));
  });
}

int bs_log_density_gradient(const bs_model* m, bool propto, bool jacobian,
                            const double* theta_unc, double* val, double* grad,
                            char** error_msg) {
  return guarded(error_msg, [&] {
    *val = value_and_gradient(*m, propto, jacobian, MapIn(theta_unc, m->dimension),
                              MapOut(grad, m->dimension));
  });
}

int bs_log_density_hessian(const bs_model* m, bool propto, bool jacobian, const double* theta_unc,
                           double* val, double* grad, double* hessian, char** error_msg) {
  return guarded(error_msg, [&] {
    const VectorXd theta = MapIn(theta_unc, m->dimension);
    *val = value_and_gradient(*m, propto, jacobian, theta, MapOut(grad, m->dimension));
    MatrixXd columns(m->dimension, m->dimension);
    for (int i = 0; i < m->dimension; ++i) {
      columns.col(i)
          = gradient_change(*m, propto, jacobian, theta, VectorXd::Unit(m->dimension, i));
    }
    Eigen::Map<MatrixXd>(hessian, m->dimension, m->dimension)
        = (columns + columns.transpose()) / 2;
  });
}

int bs_log_density_hessian_vector_product(const bs_model* m, bool propto, bool jacobian,
                                          const double* theta_unc, const double* vector,
                                          double* val, double* hvp, char** error_msg) {
  return guarded(error_msg, [&] {
    const VectorXd theta = MapIn(theta_unc, m->dimension);
    *val = value(*m, propto, jacobian, theta);
    MapOut(hvp, m->dimension)
        = gradient_change(*m, propto, jacobian, theta, MapIn(vector, m->dimension));
  });
}

bs_rng* bs_rng_construct(unsigned int seed, char** error_msg) {
  bs_rng* rng = nullptr;
  guarded(error_msg, [&] { rng = new bs_rng{stan::services::util::create_rng(seed, 0)}; });
  return rng;
}

void bs_rng_destruct(bs_rng* rng) { delete rng; }

int bs_set_print_callback(STREAM_CALLBACK callback, char**) {
  print_callback.store(callback);
  return 0;
}
