// The two evaluators of a model: bare callbacks, and one BridgeStan model per block.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "evaluator.hpp"

namespace stansub {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Python passes functions and objects of other libraries as plain addresses.
template <class Pointer>
Pointer from_address(std::uintptr_t address, const char* what) {
  if (address == 0) throw std::invalid_argument(std::string(what) + " must not be a null address");
  return reinterpret_cast<Pointer>(address);
}

class EvaluatorObject {
 public:
  virtual ~EvaluatorObject() = default;
  EvaluatorObject(const EvaluatorObject&) = delete;
  EvaluatorObject& operator=(const EvaluatorObject&) = delete;

  const Evaluator& functions() const { return functions_; }
  // The object that owns these `functions`.
  static const EvaluatorObject& of(const Evaluator& functions) {
    return *static_cast<const Functions&>(functions).object;
  }

  // Value and gradient (dim numbers) of the global part plus the log likelihoods of n blocks. The return
  // value is 0, or non-zero if they are not defined. The loop itself needs no gradients.
  virtual int gradient(const double* theta, const std::int32_t* which, std::int32_t n, double* value,
                       double* out) = 0;

  // Gradient of one block's log likelihood alone, given that of the global part.
  virtual int block_gradient(const double* theta, const double* global, std::int32_t block, double* out) {
    double value = 0;
    const int status = gradient(theta, &block, 1, &value, out);
    for (std::int32_t i = 0; i < functions_.dim; ++i) out[i] -= global[i];
    return status;
  }

 protected:
  explicit EvaluatorObject(Evaluator functions) : functions_{functions, this} {
    if (functions.dim < 1) throw std::invalid_argument("an evaluator needs at least one parameter");
    if (functions.n_blocks < 1) throw std::invalid_argument("an evaluator needs at least one block");
  }

  // The C functions of a class that has members `global` and `blocks` of the same signatures.
  template <class Derived>
  static Evaluator members_of(Derived* self, std::int32_t dim, std::size_t n_blocks) {
    return {self, dim, static_cast<std::int32_t>(n_blocks),
            [](void* p, const double* theta, double* value) {
              return static_cast<Derived*>(p)->global(theta, value);
            },
            [](void* p, const double* theta, double global_value, const std::int32_t* which,
               std::int32_t n, double* out) {
              return static_cast<Derived*>(p)->blocks(theta, global_value, which, n, out);
            }};
  }

 private:
  struct Functions : Evaluator {
    const EvaluatorObject* object;
  };

  Functions functions_;
};

inline void require_gradient(bool given) {
  if (!given) throw std::logic_error("this evaluator was made without a function for gradients");
}

class CallbackEvaluator final : public EvaluatorObject {
 public:
  using Gradient = int (*)(void* self, const double* theta, const std::int32_t* which, std::int32_t n,
                           double* value, double* out);

  CallbackEvaluator(std::int32_t dim, std::int32_t n_blocks, std::uintptr_t self, std::uintptr_t global,
                    std::uintptr_t blocks, std::uintptr_t gradient)
      : EvaluatorObject({reinterpret_cast<void*>(self), dim, n_blocks,
                         from_address<decltype(Evaluator::global)>(global, "global_address"),
                         from_address<decltype(Evaluator::blocks)>(blocks, "blocks_address")}),
        gradient_(reinterpret_cast<Gradient>(gradient)) {}

  int gradient(const double* theta, const std::int32_t* which, std::int32_t n, double* value,
               double* out) override {
    require_gradient(gradient_ != nullptr);
    return gradient_(functions().self, theta, which, n, value, out);
  }

 private:
  Gradient gradient_;
};

// The functions of BridgeStan's C API that are used here.
struct BridgeStan {
  using LogDensity = int (*)(const void* model, bool propto, bool jacobian, const double* theta_unc,
                             double* value, char** error);
  using ParamConstrain = int (*)(const void* model, bool include_tp, bool include_gq,
                                 const double* theta_unc, double* theta, void* rng, char** error);
  using FreeError = void (*)(char* error);
  using LogDensityGradient = int (*)(const void* model, bool propto, bool jacobian, const double* theta_unc,
                                     double* value, double* gradient, char** error);

  LogDensity log_density;
  FreeError free_error;
  LogDensityGradient log_density_gradient;  // may be null where no gradients are asked for

  int value(const void* model, bool jacobian, const double* theta, double* value) const {
    char* error = nullptr;
    const int status = log_density(model, false, jacobian, theta, value, &error);
    if (error != nullptr) free_error(error);
    return status;
  }

  int gradient(const void* model, bool jacobian, const double* theta, double* value, double* out) const {
    require_gradient(log_density_gradient != nullptr);
    char* error = nullptr;
    const int status = log_density_gradient(model, false, jacobian, theta, value, out, &error);
    if (error != nullptr) free_error(error);
    return status;
  }
};

// The model of a block, and whether its address is permanent; otherwise it is valid until the next request.
using ModelSource = std::function<std::pair<const void*, bool>(std::int32_t)>;

// Block b is a BridgeStan model of its own, which is made when it is first evaluated. Where blocks are `alone` its log density without Jacobian is
// the block's log likelihood. Otherwise it is the global part plus that; the global part is then a model
// without observations, or, where a program does not allow that, lp(row 1) + lp(row 2) - lp(rows 1 and 2).
class InstanceEvaluator final : public EvaluatorObject {
 public:
  InstanceEvaluator(std::int32_t dim, std::size_t n_blocks, ModelSource block_models,
                    std::vector<const void*> global_models, BridgeStan api, bool alone)
      : EvaluatorObject(members_of(this, dim, n_blocks)),
        make_(std::move(block_models)),
        block_models_(n_blocks, nullptr),
        global_models_(std::move(global_models)),
        api_(api),
        alone_(alone) {
    if (global_models_.size() != 1 && global_models_.size() != 3)
      throw std::invalid_argument("global_models must hold one model or three");
  }

  int global(const double* theta, double* value) const {
    double lp[3] = {0, 0, 0};
    for (std::size_t k = 0; k < global_models_.size(); ++k)
      if (int status = api_.value(global_models_[k], true, theta, &lp[k])) return status;
    *value = lp[0] + lp[1] - lp[2];
    return 0;
  }

  int blocks(const double* theta, double global_value, const std::int32_t* which, std::int32_t n,
             double* out) {
    const double surplus = alone_ ? 0 : global_value;
    for (std::int32_t k = 0; k < n; ++k) {
      double lp = 0;
      out[k] = api_.value(block_model(which[k]), !alone_, theta, &lp) == 0 ? lp - surplus : -kInfinity;
    }
    return 0;
  }

  // Each block that is not alone includes the global part: n blocks include it n - 1 times too often.
  int gradient(const double* theta, const std::int32_t* which, std::int32_t n, double* value,
               double* out) override {
    *value = 0;
    std::fill_n(out, functions().dim, 0.0);
    for (std::int32_t k = 0; k < n; ++k)
      if (int status = add_gradient(block_model(which[k]), !alone_, theta, 1, value, out)) return status;
    const double missing = alone_ ? 1 : 1 - n, sign[3] = {missing, missing, -missing};
    if (missing == 0) return 0;
    for (std::size_t k = 0; k < global_models_.size(); ++k)
      if (int status = add_gradient(global_models_[k], true, theta, sign[k], value, out)) return status;
    return 0;
  }

  int block_gradient(const double* theta, const double* global, std::int32_t block, double* out) override {
    if (!alone_) return EvaluatorObject::block_gradient(theta, global, block, out);
    double value = 0;
    return api_.gradient(block_model(block), false, theta, &value, out);
  }

 private:
  const void* block_model(std::int32_t block) {
    if (block_models_[block] != nullptr) return block_models_[block];
    const auto [model, stays] = make_(block);
    if (stays) block_models_[block] = model;
    return model;
  }

  int add_gradient(const void* model, bool jacobian, const double* theta, double factor, double* value,
                   double* out) const {
    const std::int32_t dim = functions().dim;
    std::vector<double> slope(dim);
    double lp = 0;
    if (int status = api_.gradient(model, jacobian, theta, &lp, slope.data())) return status;
    *value += factor * lp;
    for (std::int32_t i = 0; i < dim; ++i) out[i] += factor * slope[i];
    return 0;
  }

  ModelSource make_;
  std::vector<const void*> block_models_;  // those that stay, as far as they are made
  std::vector<const void*> global_models_;
  BridgeStan api_;
  bool alone_;
};

}  // namespace stansub
