// Second-order Taylor expansions of the blocks' log likelihoods: control variates of a decision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace stansub {

// Coefficients of a block: its gradient and, in the second order, the lower triangle of its Hessian.
inline std::size_t n_coefficients(std::size_t dim, int order) {
  return order == 1 ? dim : dim + dim * (dim + 1) / 2;
}

// Around the anchor m block b changes by about q_b = g_b.(d' - d) + (d'.H_b d' - d.H_b d) / 2 from theta =
// m + d to theta' = m + d' (Bardenet, Doucet and Holmes 2017, section 7). That is linear in what is stored:
// q_b = c_b.w with c_b = [g_b, H_b's lower triangle row by row] and the features w of the pair, which
// all blocks share. The sum over the blocks is C.w with C the sum of the very numbers that are stored, so
// their precision affects how small the remainders are, but not whether the decision is right.
class Surrogate {
 public:
  // `rows` (n_blocks rows of n_features numbers) stays the caller's.
  Surrogate(std::vector<double> anchor, const float* rows, std::int32_t n_blocks, std::size_t n_features)
      : anchor_(std::move(anchor)),
        n_features_(n_features),
        rows_(rows),
        total_(n_features, 0.0),
        features_(n_features) {
    const std::size_t dim = anchor_.size();
    if (n_features != n_coefficients(dim, 1) && n_features != n_coefficients(dim, 2))
      throw std::invalid_argument("a row of coefficients must have dim or dim + dim * (dim + 1) / 2 numbers");
    for (std::int32_t b = 0; b < n_blocks; ++b) {
      double squares = 0;
      for (std::size_t j = 0; j < n_features; ++j) {
        const double c = row(b)[j];
        total_[j] += c;
        squares += c * c;
      }
      longest_ = std::max(longest_, std::sqrt(squares));
    }
    for (const auto* numbers : {&anchor_, &total_})
      for (const double x : *numbers)
        if (!std::isfinite(x)) throw std::invalid_argument("anchor and coefficients must be finite");
  }

  // Turns to another pair of parameter values.
  void set_pair(const double* theta, const double* theta_new) {
    const std::size_t dim = anchor_.size();
    double* w = features_.data();
    for (std::size_t i = 0; i < dim; ++i) *w++ = theta_new[i] - theta[i];
    if (n_features_ == dim) return;
    for (std::size_t i = 0; i < dim; ++i) {
      const double d = theta[i] - anchor_[i], d_new = theta_new[i] - anchor_[i];
      for (std::size_t j = 0; j < i; ++j) *w++ = d_new * (theta_new[j] - anchor_[j]) - d * (theta[j] - anchor_[j]);
      *w++ = 0.5 * (d_new * d_new - d * d);
    }
  }

  // The change of a block's expansion between the two.
  double change(std::int32_t b) const { return dot(row(b)); }

  // The sum of all blocks' changes.
  double total_change() const { return dot(total_.data()); }

  // The largest remainder in absolute value of a block whose log likelihood has a derivative of the next order (third
  // to a second-order expansion) of operator norm at most `derivative`: by Taylor's theorem an expansion is off by
  // derivative / (p + 1)! |theta - m|^(p + 1) at either end (Bardenet, Doucet and Holmes 2017, section 7). The
  // coefficients are those of the expansion up to the rounding of what is stored and of differences of gradients.
  double largest_remainder(const double* theta, const double* theta_new, double derivative) const {
    const std::size_t dim = anchor_.size();
    double squares = 0, squares_new = 0;
    for (std::size_t i = 0; i < dim; ++i) {
      squares += (theta[i] - anchor_[i]) * (theta[i] - anchor_[i]);
      squares_new += (theta_new[i] - anchor_[i]) * (theta_new[i] - anchor_[i]);
    }
    const double rounding = kRounding * longest_ * std::sqrt(dot_self(features_));
    if (n_features_ == dim) return derivative / 2 * (squares + squares_new) + rounding;
    return derivative / 6 * (squares * std::sqrt(squares) + squares_new * std::sqrt(squares_new)) + rounding;
  }

  // Coefficients lie anywhere in memory: has them fetched while the blocks are evaluated. What
  // follows the first lines of a long row the processor fetches by itself.
  void prefetch(std::int32_t b) const {
    const auto* begin = reinterpret_cast<const char*>(row(b));
    const std::size_t bytes = std::min(n_features_ * sizeof(float), std::size_t{512});
    for (std::size_t at = 0; at < bytes; at += 64) __builtin_prefetch(begin + at);
  }

 private:
  // Four times the unit roundoff of a float.
  static constexpr double kRounding = 0x1p-22;

  static double dot_self(const std::vector<double>& x) {
    double sum = 0;
    for (const double v : x) sum += v * v;
    return sum;
  }

  const float* row(std::int32_t b) const { return rows_ + static_cast<std::size_t>(b) * n_features_; }

  // In double, as several sums, which the compiler makes vector instructions of.
  template <class Number>
  double dot(const Number* c) const {
    constexpr std::size_t lanes = 8;
    const double* w = features_.data();
    double sums[lanes] = {};
    std::size_t j = 0;
    for (; j + lanes <= n_features_; j += lanes)
      for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += static_cast<double>(c[j + lane]) * w[j + lane];
    double rest = 0;
    for (; j < n_features_; ++j) rest += static_cast<double>(c[j]) * w[j];
    return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7])) + rest;
  }

  std::vector<double> anchor_;
  std::size_t n_features_;
  const float* rows_;
  std::vector<double> total_, features_;
  double longest_ = 0;  // Euclidean norm of a row, at most
};

}  // namespace stansub
