// Log likelihoods of one observation as functions of its parameter-dependent arguments, up to constants.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "program.hpp"
#include "vector_math.hpp"

namespace stansub {

enum class Density {
  binomial,
  poisson,
  neg_binomial,
  normal,
  student_t,
  logistic,
  normal_scale,
  student_t_scale,
  logistic_scale,
  extreme_scale,
  neg_binomial_2,
  gamma,
  categorical,
  ordered
};

namespace densities {

inline double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

// Successes and trials, as a function of the logit.
inline double binomial(const double* y, const double* eta, std::size_t) { return y[0] * eta[0] - y[1] * softplus(eta[0]); }

// A count and its exposure, as a function of the log rate.
inline double poisson(const double* y, const double* eta, std::size_t) { return y[0] * eta[0] - y[1] * std::exp(eta[0]); }

// A count and its dispersion phi, by the log of its mean: y eta - (y + phi) log(1 + e^(eta - log phi)).
inline double neg_binomial(const double* y, const double* eta, std::size_t) {
  return y[0] * eta[0] - (y[0] + y[1]) * softplus(eta[0] - std::log(y[1]));
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

// In the following, the scale is unknown: the second argument is its log.
inline double standard(const double* y, const double* eta) { return (y[0] - eta[0]) * std::exp(-eta[1]); }

inline double normal_scale(const double* y, const double* eta, std::size_t) {
  const double x = standard(y, eta);
  return -0.5 * x * x - eta[1];
}

// An outcome and degrees of freedom.
inline double student_t_scale(const double* y, const double* eta, std::size_t) {
  const double x = standard(y, eta);
  return -0.5 * (y[1] + 1) * std::log1p(x * x / y[1]) - eta[1];
}

inline double logistic_scale(const double* y, const double* eta, std::size_t) {
  const double x = standard(y, eta);
  return -x - 2 * softplus(-x) - eta[1];
}

// The log of a Weibull variable.
inline double extreme_scale(const double* y, const double* eta, std::size_t) {
  const double x = standard(y, eta);
  return x - std::exp(x) - eta[1];
}

// Stirling's series has errors below 1e-12 above this value.
constexpr double kStirling = 10;
constexpr double kHalfLogTwoPi = 0.91893853320467274178;

inline double log_gamma(double x) {
  int sign;
  return ::lgamma_r(x, &sign);  // std::lgamma writes a global
}

// log Gamma(x) minus (x - 1/2) log x - x + log(2 pi) / 2.
inline double stirling(double x) {
  const double inverse = 1 / x, square = inverse * inverse;
  return inverse * (1.0 / 12 - square * (1.0 / 360 - square * (1.0 / 1260 - square / 1680)));
}

// A count, as a function of the logs of its mean and its dispersion phi. Differences of large numbers are rearranged by hand.
inline double neg_binomial_2(const double* y, const double* eta, std::size_t) {
  const double phi = std::exp(eta[1]), end = phi + y[0];
  const double rising = phi < kStirling
                            ? log_gamma(end) - log_gamma(phi) - y[0] * eta[1]
                            : (end - 0.5) * std::log1p(y[0] / phi) - y[0] + stirling(end) - stirling(phi);
  return rising + y[0] * eta[0] - end * softplus(eta[0] - eta[1]);
}

// A gamma variable, as a function of the logs of its shape and rate.
inline double gamma(const double* y, const double* eta, std::size_t) {
  const double shape = std::exp(eta[0]), log_scaled = eta[1] + std::log(y[0]);
  if (shape < kStirling) return shape * log_scaled - log_gamma(shape) - std::exp(log_scaled);
  const double w = log_scaled - eta[0];
  return -shape * (std::expm1(w) - w) + 0.5 * eta[0] - kHalfLogTwoPi - stirling(shape);
}

// A category from 0, as a function of the logs of all probabilities up to a constant.
inline double categorical(const double* y, const double* eta, std::size_t q) {
  const double most = *std::max_element(eta, eta + q);
  double sum = 0;
  for (std::size_t k = 0; k < q; ++k) sum += std::exp(eta[k] - most);
  return eta[static_cast<std::size_t>(y[0])] - most - std::log(sum);
}

// A category from 0, by the predictor, the first cutpoint and the logs of the cutpoints' differences.
inline double ordered(const double* y, const double* eta, std::size_t q) {
  const auto category = static_cast<std::size_t>(y[0]);
  double below = eta[1] - eta[0];
  for (std::size_t k = 2; k <= category; ++k) below += std::exp(eta[k]);
  if (category == 0) return -softplus(-below);
  if (category + 1 == q) return -softplus(below);
  const double gap = std::exp(eta[category + 1]);
  return -softplus(-below - gap) - softplus(below) + std::log(-std::expm1(-gap));
}

// Rows of numbers, a column for each observation, at a distance from each other.
struct Block {
  const double* first;
  std::size_t size, distance;
  const double* operator[](std::size_t k) const { return first + k * distance; }
  void copy(std::size_t i, double* column) const {
    for (std::size_t k = 0; k < size; ++k) column[k] = (*this)[k][i];
  }
};

// The sum over n observations of y_0 eta less y_1 times another number.
inline double less(const Block& y, const Block& eta, std::size_t n, const double* each) {
  double sums[4] = {};  // do not wait for each other
  for (std::size_t i = 0; i < n; ++i) sums[i % 4] += y[0][i] * eta[0][i] - y[1][i] * each[i];
  return sums[0] + sums[1] + sums[2] + sums[3];
}

// Sums of `binomial` and `poisson` over n observations; there are n numbers of scratch memory.
inline double binomial_sum(const Block& y, const Block& eta, std::size_t n, double* scratch) {
  vector_math::softplus(eta[0], n, scratch);
  return less(y, eta, n, scratch);
}

inline double poisson_sum(const Block& y, const Block& eta, std::size_t n, double* scratch) {
  vector_math::exp(eta[0], n, scratch);
  return less(y, eta, n, scratch);
}

}  // namespace densities

// Log likelihood by a known density or by a program; an observation has `n_data` numbers of data.
class LogLik {
 public:
  std::size_t n_data;

  explicit LogLik(Density density) : LogLik(of(density)) {}
  explicit LogLik(std::shared_ptr<const Program> program) : n_data(program->n_data()), program_(std::move(program)) {}

  double log_lik(const double* data, const double* eta, std::size_t q) const {
    return program_ ? program_->log_lik(data, eta) : function_(data, eta, q);
  }

  // The sum of n log likelihoods; there are n numbers of scratch memory.
  double sum(const densities::Block& data, const densities::Block& eta, std::size_t n, double* scratch) const {
    if (sum_) return sum_(data, eta, n, scratch);
    std::vector<double> own(data.size), at(eta.size);
    double found = 0;
    for (std::size_t i = 0; i < n; ++i) {
      data.copy(i, own.data());
      eta.copy(i, at.data());
      found += log_lik(own.data(), at.data(), eta.size);
    }
    return found;
  }

 private:
  using Function = double (*)(const double* data, const double* eta, std::size_t q);
  using Sum = double (*)(const densities::Block& data, const densities::Block& eta, std::size_t n, double* scratch);

  LogLik(std::size_t n, Function function, Sum sum = nullptr) : n_data(n), function_(function), sum_(sum) {}

  static LogLik of(Density density) {
    switch (density) {
      case Density::binomial: return {2, densities::binomial, densities::binomial_sum};
      case Density::poisson: return {2, densities::poisson, densities::poisson_sum};
      case Density::neg_binomial: return {2, densities::neg_binomial};
      case Density::normal: return {2, densities::normal};
      case Density::student_t: return {3, densities::student_t};
      case Density::logistic: return {2, densities::logistic};
      case Density::normal_scale: return {1, densities::normal_scale};
      case Density::student_t_scale: return {2, densities::student_t_scale};
      case Density::logistic_scale: return {1, densities::logistic_scale};
      case Density::extreme_scale: return {1, densities::extreme_scale};
      case Density::neg_binomial_2: return {1, densities::neg_binomial_2};
      case Density::gamma: return {1, densities::gamma};
      case Density::categorical: return {1, densities::categorical};
      case Density::ordered: return {1, densities::ordered};
    }
    throw std::invalid_argument("unknown density");
  }

  Function function_ = nullptr;
  Sum sum_ = nullptr;
  std::shared_ptr<const Program> program_;
};

using DensityOrProgram = std::variant<Density, std::shared_ptr<Program>>;

inline LogLik to_log_lik(const DensityOrProgram& given) {
  if (const auto* density = std::get_if<Density>(&given)) return LogLik(*density);
  return LogLik(std::get<std::shared_ptr<Program>>(given));
}

}  // namespace stansub
