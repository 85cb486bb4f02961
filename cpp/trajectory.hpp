// Hamiltonian trajectories on a cubic approximation of the log density.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "dense_cubic.hpp"
#include "dense_triangle.hpp"
#include "proposals.hpp"

namespace stansub {

// With theta = m + L w, the approximation is -|w|^2 / 2 + C(w), where C is a cubic form. Momenta p are standard normal. Under
// -|w|^2 / 2 alone, (w, p) turns by an angle; under C alone, p changes by its gradient. The two alternate, in steps that keep
// volume and that the opposite momentum takes back, so log q(theta | theta') - log q(theta' | theta) = (|p|^2 - |p'|^2) / 2, whatever
// the density for which the move is accepted (Neal 2011, sections 5.3 and 5.5.1).
class Trajectory final : public Proposal {
 public:
  // The coefficients of w_j w_k w_l in C, for j, then k <= j, then l <= k.
  Trajectory(std::size_t dim, const double* centre, const double* cholesky, const std::vector<double>& cubic, double angle,
             int n_steps)
      : Proposal(dim),
        centre_(centre, centre + dim),
        cholesky_(cholesky, dim),
        cubic_(cubic, dim),
        n_steps_(n_steps),
        half_(angle / (2 * n_steps)) {
    if (n_steps < 1) throw std::invalid_argument("a trajectory has at least one step");
  }

  std::size_t scratch() const override { return 2 * cubic_.width() + cubic_.scratch(); }

  double propose(const double* theta, double* p, double* scratch, double* proposed) const override {
    double *w = scratch, *gradient = w + cubic_.width(), *rest = gradient + cubic_.width();
    for (std::size_t j = 0; j < dim_; ++j) w[j] = theta[j] - centre_[j];
    std::fill(w + dim_, gradient, 0.0);
    cholesky_.solve(w);
    const double before = dot(p, p, dim_);
    for (int step = 0; step < n_steps_; ++step) {
      turn(step ? 2 * half_ : half_, w, p);
      cubic_.gradient(w, rest, gradient);
      for (std::size_t j = 0; j < dim_; ++j) p[j] += 2 * half_ * gradient[j];
    }
    turn(half_, w, p);
    cholesky_.times(w, proposed);
    for (std::size_t j = 0; j < dim_; ++j) proposed[j] += centre_[j];
    const double ratio = 0.5 * (before - dot(p, p, dim_));
    if (std::isfinite(ratio)) return ratio;
    // So far from the centre, the cubic leads to infinity.
    std::copy_n(theta, dim_, proposed);
    return -std::numeric_limits<double>::infinity();
  }

 private:
  void turn(double angle, double* w, double* p) const {
    const double c = std::cos(angle), s = std::sin(angle);
    for (std::size_t j = 0; j < dim_; ++j) {
      const double at = w[j];
      w[j] = c * at + s * p[j];
      p[j] = c * p[j] - s * at;
    }
  }

  std::vector<double> centre_;
  DenseTriangle cholesky_;
  DenseCubic cubic_;
  int n_steps_;
  double half_;  // of the angle of a step
};

}  // namespace stansub
