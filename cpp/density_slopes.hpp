// Slopes of the log likelihoods of `densities.hpp` by their arguments.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "densities.hpp"

namespace stansub::slopes {

inline double inv_logit(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

// Digamma less the logarithm, above `kStirling`; errors are below 1e-12.
inline double beyond_log(double x) {
  const double inverse = 1 / x, square = inverse * inverse;
  return -0.5 * inverse - square * (1.0 / 12 - square * (1.0 / 120 - square * (1.0 / 252 - square / 240)));
}

inline double digamma(double x) {
  double found = 0;
  for (; x < densities::kStirling; ++x) found -= 1 / x;
  return found + std::log(x) + beyond_log(x);
}

inline void neg_binomial(const double* y, const double* eta, std::size_t, double* out) {
  out[0] = y[0] - (y[0] + y[1]) * inv_logit(eta[0] - std::log(y[1]));
}

// Of log densities of standard errors.
inline double normal(double x) { return -x; }
inline double student_t(double x, double nu) { return -(nu + 1) * x / (nu + x * x); }
inline double logistic(double x) { return 2 * inv_logit(-x) - 1; }
inline double extreme(double x) { return 1 - std::exp(x); }

inline void normal(const double* y, const double* eta, std::size_t, double* out) {
  out[0] = -normal((y[0] - eta[0]) / y[1]) / y[1];
}

inline void student_t(const double* y, const double* eta, std::size_t, double* out) {
  out[0] = -student_t((y[0] - eta[0]) / y[2], y[1]) / y[2];
}

inline void logistic(const double* y, const double* eta, std::size_t, double* out) {
  out[0] = -logistic((y[0] - eta[0]) / y[1]) / y[1];
}

// With an unknown scale.
template <class Slope>
void scaled(const double* y, const double* eta, double* out, Slope of) {
  const double x = densities::standard(y, eta), slope = of(x);
  out[0] = -std::exp(-eta[1]) * slope;
  out[1] = -1 - x * slope;
}

inline void normal_scale(const double* y, const double* eta, std::size_t, double* out) {
  scaled(y, eta, out, [](double x) { return normal(x); });
}

inline void student_t_scale(const double* y, const double* eta, std::size_t, double* out) {
  scaled(y, eta, out, [&](double x) { return student_t(x, y[1]); });
}

inline void logistic_scale(const double* y, const double* eta, std::size_t, double* out) {
  scaled(y, eta, out, [](double x) { return logistic(x); });
}

inline void extreme_scale(const double* y, const double* eta, std::size_t, double* out) {
  scaled(y, eta, out, [](double x) { return extreme(x); });
}

inline void neg_binomial_2(const double* y, const double* eta, std::size_t, double* out) {
  const double phi = std::exp(eta[1]), end = phi + y[0], x = eta[0] - eta[1];
  const double rising = phi < densities::kStirling ? digamma(end) - digamma(phi)
                                                   : std::log1p(y[0] / phi) + beyond_log(end) - beyond_log(phi);
  out[0] = y[0] - end * inv_logit(x);
  out[1] = phi * (rising - densities::softplus(x)) - out[0];
}

inline void gamma(const double* y, const double* eta, std::size_t, double* out) {
  const double shape = std::exp(eta[0]), log_scaled = eta[1] + std::log(y[0]);
  const double beyond = shape < densities::kStirling ? digamma(shape) - eta[0] : beyond_log(shape);
  out[0] = shape * (log_scaled - eta[0] - beyond);
  out[1] = shape - std::exp(log_scaled);
}

inline void categorical(const double* y, const double* eta, std::size_t q, double* out) {
  const double most = *std::max_element(eta, eta + q);
  double sum = 0;
  for (std::size_t k = 0; k < q; ++k) sum += out[k] = std::exp(eta[k] - most);
  for (std::size_t k = 0; k < q; ++k) out[k] /= -sum;
  out[static_cast<std::size_t>(y[0])] += 1;
}

inline void ordered(const double* y, const double* eta, std::size_t q, double* out) {
  const auto category = static_cast<std::size_t>(y[0]);
  double below = eta[1] - eta[0];
  for (std::size_t k = 2; k <= category; ++k) below += out[k] = std::exp(eta[k]);
  std::fill(out + std::max<std::size_t>(category + 1, 2), out + q, 0.0);
  double slope = 0;
  if (category == 0) {
    slope = inv_logit(-below);
  } else if (category + 1 == q) {
    slope = -inv_logit(below);
  } else {
    const double gap = std::exp(eta[category + 1]), above = inv_logit(-below - gap);
    slope = above - inv_logit(below);
    out[category + 1] = gap * (above + 1 / std::expm1(gap));
  }
  for (std::size_t k = 2; k <= category; ++k) out[k] *= slope;
  out[0] = -slope;
  out[1] = slope;
}

// Sums of log likelihoods of n observations, with slopes; there are n numbers of scratch memory.
inline double binomial(const densities::Block& y, const densities::Block& eta, std::size_t n, double* scratch, double* out) {
  vector_math::softplus(eta[0], n, scratch, out);
  for (std::size_t i = 0; i < n; ++i) out[i] = y[0][i] - y[1][i] * out[i];
  return densities::less(y, eta, n, scratch);
}

inline double poisson(const densities::Block& y, const densities::Block& eta, std::size_t n, double* scratch, double* out) {
  vector_math::exp(eta[0], n, scratch);
  for (std::size_t i = 0; i < n; ++i) out[i] = y[0][i] - y[1][i] * scratch[i];
  return densities::less(y, eta, n, scratch);
}

using Function = void (*)(const double* y, const double* eta, std::size_t q, double* out);

// Of densities without a function of many observations.
inline Function of(Density density) {
  switch (density) {
    case Density::neg_binomial: return neg_binomial;
    case Density::normal: return normal;
    case Density::student_t: return student_t;
    case Density::logistic: return logistic;
    case Density::normal_scale: return normal_scale;
    case Density::student_t_scale: return student_t_scale;
    case Density::logistic_scale: return logistic_scale;
    case Density::extreme_scale: return extreme_scale;
    case Density::neg_binomial_2: return neg_binomial_2;
    case Density::gamma: return gamma;
    case Density::categorical: return categorical;
    case Density::ordered: return ordered;
    case Density::binomial:
    case Density::poisson: break;
  }
  return nullptr;
}

}  // namespace stansub::slopes
