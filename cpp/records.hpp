// Records of observations with expanded log likelihoods: constants, arguments and derivatives.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "densities.hpp"
#include "thinning.hpp"

namespace stansub {

// If a move is at most as long as the radius, bounds are `factor` times the constants.
struct Level {
  double radius, factor;
};

// The factor for a length; infinite beyond the last radius.
template <class Power>
double factor_at(const std::vector<Level>& levels, double length, Power power) {
  double factor = std::numeric_limits<double>::infinity();
  for (auto level = levels.rbegin(); level != levels.rend() && length <= power(level->radius); ++level) factor = level->factor;
  return factor;
}

// A log likelihood of q arguments eta_k, expanded about a point. A record has, as numbers: c; then 1 / l_k, eta_k at the point
// and df / deta_k there (q each); the lower triangle of the second derivatives, row by row; in the third order,
// which is for one argument, the third one; and the data of the density.
class Records {
 public:
  Records(LogLik density, std::size_t q, int order) : density_(std::move(density)), q_(q), order_(order) {}

  void check_width(std::size_t width) const {
    if (width != at_data() + density_.n_data) throw std::invalid_argument("records are of another width");
  }

  // The change of a log likelihood less that of its expansion, where its arguments change so from the point. There is
  // room for `most` arguments.
  template <std::size_t most>
  Remainder remainder(const double* own, const double* from, const double* to) const {
    const double *centre = own + 1 + q_, *slope = centre + q_, *curve = slope + q_, *data = own + at_data();
    double eta[most], expansion = 0;
    for (std::size_t k = 0; k < q_; ++k) {
      const double a = from[k], b = to[k];
      expansion += slope[k] * (b - a);
      for (std::size_t l = 0; l < k; ++l) expansion += *curve++ * (b * to[l] - a * from[l]);
      expansion += 0.5 * *curve++ * (b - a) * (b + a);
    }
    if (order_ == 3) {
      const double a = from[0], b = to[0];
      expansion += *curve / 6 * (b - a) * (a * a + a * b + b * b);
    }
    for (std::size_t k = 0; k < q_; ++k) eta[k] = centre[k] + from[k];
    const double before = density_.log_lik(data, eta, q_);
    for (std::size_t k = 0; k < q_; ++k) eta[k] = centre[k] + to[k];
    const double after = density_.log_lik(data, eta, q_);
    return {after - before - expansion, kRounding * (1 + std::abs(before) + std::abs(after))};
  }

 private:
  static constexpr double kRounding = 1e-12;

  std::size_t at_data() const { return 1 + 3 * q_ + q_ * (q_ + 1) / 2 + (order_ == 3); }

  LogLik density_;
  std::size_t q_;
  int order_;
};

}  // namespace stansub
