// Decisions that account for the noise of an estimate, instead of sampling until it is negligible.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include <numpy/random/distributions.h>

namespace stansub {

// The normal deviate with about the same tail probability as t with this number of degrees of freedom (Wallace
// 1959).
inline double as_normal(double t, double degrees) {
  const double z = (8 * degrees + 1) / (8 * degrees + 3) * std::sqrt(degrees * std::log1p(t * t / degrees));
  return std::copysign(z, t);
}

// The estimate x of a log ratio from n of M blocks is assumed normal, with the standard error s of these blocks.
//
// Whether and when the noise is small enough depends on s alone: s is independent of x if the
// blocks are normal, and equal for the reverse move.
//
// The remaining error is that of s, which is about s / n: it grows if there are fewer blocks.
class NoiseRule {
 public:
  static constexpr double kMeasured = 20;

  enum class Next { settle, look, give_up };

  NoiseRule(double limit, double share) : limit_(limit), share_(share) {
    if (!(limit > 0)) throw std::invalid_argument("the limit of the noise must be positive");
    if (!(share >= 0 && share <= 1)) throw std::invalid_argument("the share of the blocks must be in [0, 1]");
  }
  virtual ~NoiseRule() = default;

  // Threshold of the exact log ratio.
  virtual double threshold(double log_u) const = 0;

  // Whether an estimate from n blocks with this standard error is accepted.
  virtual bool accepts(double estimate, double error, double n, double threshold, bitgen_t* bits) const = 0;

  static double standard_error(double n, double n_blocks, double sd) {
    return n_blocks * sd * std::sqrt((1 - (n - 1) / (n_blocks - 1)) / n);
  }

  // Called after a look at n blocks; gives up if reaching the limit takes more than the share of the blocks.
  Next next(double n, double n_blocks, double sd) const {
    if (sd == 0) return Next::look;
    if (standard_error(n, n_blocks, sd) <= limit_ * std::min(1.0, n / kMeasured)) return Next::settle;
    // s^2 is about this times (M - n) / n, and meets its limit where n / M is variance / (limit^2 + variance)
    const double variance = n_blocks * sd * sd;
    return variance > share_ * (limit_ * limit_ + variance) ? Next::give_up : Next::look;
  }

 protected:
  double limit_, share_;
};

// Accepts if x - penalty > log u (Ceperley and Dewing 1999).
class PenaltyRule final : public NoiseRule {
 public:
  using NoiseRule::NoiseRule;

  double threshold(double log_u) const override { return log_u; }

  bool accepts(double estimate, double error, double n, double threshold, bitgen_t*) const override {
    return estimate - penalty(error * error, n) > threshold;
  }

 private:
  // For a variance v estimated from n numbers: exp(-penalty) is unbiased for exp(-variance / 2). Three terms of the
  // series of -log 0F1(; (n - 1) / 2; -(n - 1) v / 4), which converges for v < n / 4.
  static double penalty(double v, double n) {
    return v / 2 + v * v / (4 * (n + 1)) + v * v * v / (3 * (n + 1) * (n + 3));
  }
};

// Accepts if x, a normal number of variance limit^2 - s^2 and a number from the correction distribution sum to more
// than 0 (Seita et al. 2017); the uniform number u of the decision gives the last.
class BarkerRule final : public NoiseRule {
 public:
  // The correction distribution has the mass between the bounds' logits at each of the points.
  BarkerRule(double limit, double share, std::vector<double> points, std::vector<double> bounds)
      : NoiseRule(limit, share), points_(std::move(points)), bounds_(std::move(bounds)) {
    if (points_.empty() || bounds_.size() + 1 != points_.size())
      throw std::invalid_argument("the points of a correction must be one more than its bounds");
  }

  // logit u, for Barker's acceptance probability.
  double threshold(double log_u) const override { return log_u - std::log(-std::expm1(log_u)); }

  // Draws a normal number.
  bool accepts(double estimate, double error, double, double threshold, bitgen_t* bits) const override {
    const auto chosen = std::upper_bound(bounds_.begin(), bounds_.end(), threshold) - bounds_.begin();
    const double filled = std::sqrt(limit_ * limit_ - error * error) * random_standard_normal(bits);
    return estimate + filled > points_[chosen];
  }

 private:
  std::vector<double> points_, bounds_;
};

}  // namespace stansub
