// Log likelihoods of one observation as functions of those arguments that depend on parameters, up to constants.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>

namespace stansub {

enum class Density { binomial, poisson, neg_binomial, normal, student_t, logistic };

namespace densities {

inline double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

// Successes and trials, by the logit.
inline double binomial(const double* y, const double* eta, std::size_t) { return y[0] * eta[0] - y[1] * softplus(eta[0]); }

// A count, by the log of its mean.
inline double poisson(const double* y, const double* eta, std::size_t) { return y[0] * eta[0] - std::exp(eta[0]); }

// A count and its dispersion phi, by the log of its mean: y eta - (y + phi) log(e^eta + phi).
inline double neg_binomial(const double* y, const double* eta, std::size_t) {
  const double x = eta[0] - std::log(y[1]);
  return y[0] * x - (y[0] + y[1]) * softplus(x);
}

// An outcome and the scale of its error.
inline double normal(const double* y, const double* eta, std::size_t) {
  const double x = (y[0] - eta[0]) / y[1];
  return -0.5 * x * x;
}

// An outcome, degrees of freedom and scale.
inline double student_t(const double* y, const double* eta, std::size_t) {
  const double x = (y[0] - eta[0]) / y[2];
  return -0.5 * (y[1] + 1) * std::log1p(x * x / y[1]);
}

// An outcome and the scale of its error.
inline double logistic(const double* y, const double* eta, std::size_t) {
  const double x = (y[0] - eta[0]) / y[1];
  return -x - 2 * softplus(-x);
}

}  // namespace densities

// `log_lik` takes the observation's data, of which there are `n_data` numbers, and its q arguments.
struct LogLik {
  std::size_t n_data;
  double (*log_lik)(const double* data, const double* eta, std::size_t q);

  explicit LogLik(Density density) : LogLik(of(density)) {}

 private:
  LogLik(std::size_t n, double (*function)(const double*, const double*, std::size_t)) : n_data(n), log_lik(function) {}

  static LogLik of(Density density) {
    switch (density) {
      case Density::binomial: return {2, densities::binomial};
      case Density::poisson: return {1, densities::poisson};
      case Density::neg_binomial: return {2, densities::neg_binomial};
      case Density::normal: return {2, densities::normal};
      case Density::student_t: return {3, densities::student_t};
      case Density::logistic: return {2, densities::logistic};
    }
    throw std::invalid_argument("unknown density");
  }
};

}  // namespace stansub
