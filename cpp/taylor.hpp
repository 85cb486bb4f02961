// Gradients of blocks, and their Taylor coefficients at a point.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "evaluators.hpp"
#include "surrogate.hpp"

namespace stansub {

inline bool all_finite(const double* x, std::size_t n) {
  return std::all_of(x, x + n, [](double v) { return std::isfinite(v); });
}

inline void global_gradient(EvaluatorObject& evaluator, const double* theta, double* out) {
  double value = 0;
  if (evaluator.gradient(theta, nullptr, 0, &value, out) != 0 || !all_finite(out, evaluator.functions().dim))
    throw std::domain_error("the gradient of the global part is not defined");
}

// Gradient of a block's log likelihood alone.
inline void block_gradient(EvaluatorObject& evaluator, const double* theta, const std::vector<double>& global,
                           std::int32_t block, double* out) {
  if (evaluator.block_gradient(theta, global.data(), block, out) != 0 || !all_finite(out, global.size()))
    throw std::domain_error("the gradient of block " + std::to_string(block) + " is not defined");
}

// Row k of out (dim numbers) is the gradient of the log likelihood of block which[k].
inline void block_gradients(EvaluatorObject& evaluator, const double* theta, const std::int32_t* which,
                            std::size_t n, double* out) {
  std::vector<double> global(evaluator.functions().dim);
  if (n == 0) return;
  global_gradient(evaluator, theta, global.data());
  for (std::size_t k = 0; k < n; ++k)
    block_gradient(evaluator, theta, global, which[k], out + k * global.size());
}

// Steps of central differences of a function that is exact to rounding: truncation (step squared) and
// rounding (1 / step) balance.
inline std::vector<double> default_steps(const double* theta, std::size_t dim) {
  std::vector<double> steps(dim);
  for (std::size_t i = 0; i < dim; ++i)
    steps[i] = std::cbrt(std::numeric_limits<double>::epsilon()) * std::max(1.0, std::abs(theta[i]));
  return steps;
}

// Row k of out holds the coefficients of block which[k] at theta: gradient, then the Hessian's lower
// triangle row by row. The Hessian is the central difference of gradients, made symmetric. All
// evaluations of a block follow each other, while its data are in the cache.
inline void block_taylor(EvaluatorObject& evaluator, const double* theta, const std::int32_t* which, std::size_t n,
                         int order, const std::vector<double>& steps, float* out) {
  const std::size_t dim = evaluator.functions().dim, n_points = order == 1 ? 1 : 2 * dim + 1;
  std::vector<std::vector<double>> points(n_points, std::vector<double>(theta, theta + dim));
  std::vector<std::vector<double>> globals(n_points, std::vector<double>(dim));
  for (std::size_t p = 1; p < n_points; ++p) {
    const std::size_t i = (p - 1) / 2;
    points[p][i] += p % 2 == 1 ? steps[i] : -steps[i];
  }
  if (n == 0) return;
  for (std::size_t p = 0; p < n_points; ++p) global_gradient(evaluator, points[p].data(), globals[p].data());

  std::vector<double> gradient(dim), above(dim), below(dim), hessian(n_points == 1 ? 0 : dim * dim);
  const std::size_t width = n_coefficients(dim, order);
  for (std::size_t k = 0; k < n; ++k) {
    block_gradient(evaluator, theta, globals[0], which[k], gradient.data());
    float* row = std::copy(gradient.begin(), gradient.end(), out + k * width);
    for (std::size_t i = 0; 2 * i + 1 < n_points; ++i) {
      const auto &up = points[2 * i + 1], &down = points[2 * i + 2];
      block_gradient(evaluator, up.data(), globals[2 * i + 1], which[k], above.data());
      block_gradient(evaluator, down.data(), globals[2 * i + 2], which[k], below.data());
      // the points actually reached differ from the intended ones by rounding
      const double reached = up[i] - down[i];
      for (std::size_t j = 0; j < dim; ++j) hessian[i * dim + j] = (above[j] - below[j]) / reached;
    }
    if (order == 2)
      for (std::size_t i = 0; i < dim; ++i)
        for (std::size_t j = 0; j <= i; ++j)
          *row++ = static_cast<float>((hessian[i * dim + j] + hessian[j * dim + i]) / 2);
    if (!std::all_of(out + k * width, out + (k + 1) * width, [](float v) { return std::isfinite(v); }))
      throw std::domain_error("the derivatives of block " + std::to_string(which[k]) + " are too large");
  }
}

}  // namespace stansub
