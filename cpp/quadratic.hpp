// The log density without the likelihood, if it is a sum of quadratics of one parameter each.
#pragma once

#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <utility>
#include <vector>

namespace stansub {

// value + sum_j (slope_j d_j + curvature_j d_j^2 / 2), d = theta - centre, valid if each |d_j| is at most
// reach_j: normal and flat priors, evaluated without calling the program.
class GlobalQuadratic {
 public:
  GlobalQuadratic(std::vector<double> centre, std::vector<double> reach, double value, std::vector<double> slope,
                  std::vector<double> curvature)
      : centre_(std::move(centre)),
        reach_(std::move(reach)),
        value_(value),
        slope_(std::move(slope)),
        curvature_(std::move(curvature)) {
    for (const auto* numbers : {&reach_, &slope_, &curvature_})
      if (numbers->size() != dim()) throw std::invalid_argument("there must be a number for each parameter");
  }

  std::size_t dim() const { return centre_.size(); }

  bool covers(const double* theta) const {
    for (std::size_t j = 0; j < dim(); ++j)
      if (!(std::abs(theta[j] - centre_[j]) <= reach_[j])) return false;
    return true;
  }

  double operator()(const double* theta) const {
    double sum = 0;
    for (std::size_t j = 0; j < dim(); ++j) {
      const double d = theta[j] - centre_[j];
      sum += d * (slope_[j] + 0.5 * curvature_[j] * d);
    }
    return value_ + sum;
  }

 private:
  std::vector<double> centre_, reach_;
  double value_;
  std::vector<double> slope_, curvature_;
};

}  // namespace stansub
