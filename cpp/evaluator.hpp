// The decision loop's interface to a model: a global log density and the log likelihoods of blocks.
#pragma once

#include <cstdint>

namespace stansub {

// Plain C function pointers, so that any code that can create them (compiled Stan code, ctypes, numba)
// can be a model. A non-zero return value means that the log density is not defined at theta,
// which the loop treats as minus infinity.
struct Evaluator {
  void* self;
  std::int32_t dim;
  std::int32_t n_blocks;
  // *value = log density without the likelihood, at theta (dim numbers)
  int (*global)(void* self, const double* theta, double* value);
  // out[k] = log likelihood of block which[k], for k < n; global_value is global's value at theta
  int (*blocks)(void* self, const double* theta, double global_value, const std::int32_t* which,
                std::int32_t n, double* out);
};

}  // namespace stansub
