// Taylor expansions of the blocks' log likelihoods: control variates of a decision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

namespace stansub {

// Coefficients of a block: its gradient and, in the second order, the lower triangle of its Hessian.
inline std::size_t n_coefficients(std::size_t dim, int order) {
  return order == 1 ? dim : dim + dim * (dim + 1) / 2;
}

// Around an anchor m the log likelihood of block b is about Q_b(theta) = v_b + g_b.d + d'.H_b d / 2 with d = theta - m
// (Bardenet, Doucet and Holmes 2017, section 7). Of several anchors, the modes of a posterior, each point takes the
// nearest, by the curvature there, so that from theta to theta' the block changes by about q_b = Q_b(theta') -
// Q_b(theta), also where the two belong to different anchors. Q_b is linear in what is stored: v_b + c_b.w with c_b =
// [g_b, H_b's lower triangle row by row] and the features w of the point, which all blocks share. The sum over the
// blocks is that of the very numbers that are stored, so their precision affects how small the remainders are, but not
// whether the decision is right.
class Surrogate {
 public:
  // An anchor, its rows (n_blocks of n_features numbers) and, where there are several, the blocks' log likelihoods
  // there, both of which stay the caller's, and the matrix (dim by dim) that measures how far points are from it.
  struct Expansion {
    std::vector<double> anchor;
    const float* rows;
    const double* values;
    std::vector<double> precision;
  };

  // An anchor's rows and values, summed over some blocks.
  struct Sum {
    std::vector<double> row;
    double value = 0;
    double longest = 0;  // Euclidean norm of a row, at most
  };

  Surrogate(std::vector<Expansion> expansions, std::int32_t n_blocks, std::size_t n_features)
      : n_features_(n_features), features_(n_features), features_new_(n_features) {
    if (expansions.empty()) throw std::invalid_argument("there must be an anchor");
    for (Expansion& expansion : expansions) {
      if (expansions.size() > 1 && (!expansion.values || expansion.precision.empty()))
        throw std::invalid_argument("several anchors need the blocks' log likelihoods and a precision matrix each");
      add(std::move(expansion), n_blocks);
    }
    std::vector<std::int32_t> which(n_blocks);
    std::iota(which.begin(), which.end(), 0);
    all_ = sums(which);
    for (const Sum& sum : all_)
      if (!std::isfinite(sum.longest) || !std::isfinite(sum.value))
        throw std::invalid_argument("coefficients and log likelihoods must be finite");
  }

  std::size_t dim() const { return expansions_.front().anchor.size(); }
  std::int32_t n_blocks() const { return n_blocks_; }
  std::size_t n_anchors() const { return expansions_.size(); }
  int order() const { return n_features_ == dim() ? 1 : 2; }

  // Sets the pair of parameter values.
  void set_pair(const double* theta, const double* theta_new) {
    from_ = nearest(theta);
    to_ = nearest(theta_new);
    if (from_ == to_) {
      set_change(from().anchor, theta, theta_new, features_.data());
      return;
    }
    set_change(from().anchor, from().anchor.data(), theta, features_.data());
    set_change(to().anchor, to().anchor.data(), theta_new, features_new_.data());
  }

  // The change of a block's expansion between the two.
  double change(std::int32_t b) const {
    if (from_ == to_) return dot(row(from(), b), features_);
    return to().values[b] - from().values[b] + dot(row(to(), b), features_new_) - dot(row(from(), b), features_);
  }

  // The sums over all blocks, an anchor each.
  const std::vector<Sum>& sums() const { return all_; }

  // The sums over some blocks.
  std::vector<Sum> sums(const std::vector<std::int32_t>& which) const {
    std::vector<Sum> found;
    for (const Expansion& expansion : expansions_) {
      Sum sum{std::vector<double>(n_features_), 0, 0};
      for (const std::int32_t b : which) {
        double squares = 0;
        for (std::size_t j = 0; j < n_features_; ++j) {
          const double c = row(expansion, b)[j];
          sum.row[j] += c;
          squares += c * c;
        }
        sum.longest = std::max(std::sqrt(squares), sum.longest);
        if (expansion.values) sum.value += expansion.values[b];
      }
      found.push_back(std::move(sum));
    }
    return found;
  }

  // The sum of these blocks' changes.
  double total_change(const std::vector<Sum>& sums) const {
    const Sum &a = sums[from_], &b = sums[to_];
    if (from_ == to_) return dot(a.row.data(), features_);
    return b.value - a.value + dot(b.row.data(), features_new_) - dot(a.row.data(), features_);
  }

  // The largest remainder in absolute value of a block, of those with these sums, whose log likelihood has a derivative of the next order (third
  // to a second-order expansion) of operator norm at most `derivative`: by Taylor's theorem an expansion is off by
  // derivative / (p + 1)! |theta - m|^(p + 1) at either end (Bardenet, Doucet and Holmes 2017, section 7). The
  // coefficients are those of the expansion up to the rounding of what is stored and of differences of gradients.
  double largest_remainder(const double* theta, const double* theta_new, double derivative,
                           const std::vector<Sum>& sums) const {
    const double r = distance(from(), theta), r_new = distance(to(), theta_new);
    if (order() == 1) return derivative / 2 * (r * r + r_new * r_new) + rounding(sums);
    return derivative / 6 * (r * r * r + r_new * r_new * r_new) + rounding(sums);
  }

  // Maximum effect of the rounding of coefficients on the change of a block's expansion between the pair.
  double rounding(const std::vector<Sum>& sums) const {
    const double own = kRounding * sums[from_].longest * std::sqrt(dot_self(features_));
    return from_ == to_ ? own : own + kRounding * sums[to_].longest * std::sqrt(dot_self(features_new_));
  }

  // Coefficients are anywhere in memory: prefetches them while the blocks are evaluated. The processor
  // itself prefetches the rest of a long row.
  void prefetch(std::int32_t b) const {
    const std::size_t bytes = std::min(n_features_ * sizeof(float), std::size_t{512});
    for (const Expansion* expansion : {&from(), &to()}) {
      const auto* begin = reinterpret_cast<const char*>(row(*expansion, b));
      for (std::size_t at = 0; at < bytes; at += 64) __builtin_prefetch(begin + at);
      if (from_ == to_) return;
    }
  }

 private:
  // Four times the unit roundoff of a float.
  static constexpr double kRounding = 0x1p-22;

  static double dot_self(const std::vector<double>& x) {
    double sum = 0;
    for (const double v : x) sum += v * v;
    return sum;
  }

  void add(Expansion expansion, std::int32_t n_blocks) {
    const std::size_t dim = expansion.anchor.size();
    if (n_features_ != n_coefficients(dim, 1) && n_features_ != n_coefficients(dim, 2))
      throw std::invalid_argument("a row of coefficients must have dim or dim + dim * (dim + 1) / 2 numbers");
    n_blocks_ = n_blocks;
    for (const auto* numbers : {&expansion.anchor, &expansion.precision})
      for (const double x : *numbers)
        if (!std::isfinite(x)) throw std::invalid_argument("anchors and precision matrices must be finite");
    expansions_.push_back(std::move(expansion));
  }

  const Expansion& from() const { return expansions_[from_]; }
  const Expansion& to() const { return expansions_[to_]; }

  std::size_t nearest(const double* theta) const {
    if (expansions_.size() == 1) return 0;
    const auto away = [&](const Expansion& expansion) {
      const std::size_t dim = expansion.anchor.size();
      double sum = 0;
      for (std::size_t i = 0; i < dim; ++i) {
        double along = 0;
        for (std::size_t j = 0; j < dim; ++j) along += expansion.precision[i * dim + j] * (theta[j] - expansion.anchor[j]);
        sum += (theta[i] - expansion.anchor[i]) * along;
      }
      return sum;
    };
    const auto closer = [&](const Expansion& a, const Expansion& b) { return away(a) < away(b); };
    return std::min_element(expansions_.begin(), expansions_.end(), closer) - expansions_.begin();
  }

  // Factors of the rows around an anchor for the move from theta to theta_new.
  void set_change(const std::vector<double>& anchor, const double* theta, const double* theta_new, double* w) const {
    const std::size_t dim = anchor.size();
    for (std::size_t i = 0; i < dim; ++i) *w++ = theta_new[i] - theta[i];
    if (n_features_ == dim) return;
    for (std::size_t i = 0; i < dim; ++i) {
      const double d = theta[i] - anchor[i], d_new = theta_new[i] - anchor[i];
      for (std::size_t j = 0; j < i; ++j) *w++ = d_new * (theta_new[j] - anchor[j]) - d * (theta[j] - anchor[j]);
      *w++ = 0.5 * (d_new * d_new - d * d);
    }
  }

  static double distance(const Expansion& expansion, const double* theta) {
    double squares = 0;
    for (std::size_t i = 0; i < expansion.anchor.size(); ++i)
      squares += (theta[i] - expansion.anchor[i]) * (theta[i] - expansion.anchor[i]);
    return std::sqrt(squares);
  }

  const float* row(const Expansion& expansion, std::int32_t b) const {
    return expansion.rows + static_cast<std::size_t>(b) * n_features_;
  }

  // In double, as several sums, which the compiler can vectorise.
  template <class Number>
  double dot(const Number* c, const std::vector<double>& features) const {
    constexpr std::size_t lanes = 8;
    const double* w = features.data();
    double sums[lanes] = {};
    std::size_t j = 0;
    for (; j + lanes <= n_features_; j += lanes)
      for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += static_cast<double>(c[j + lane]) * w[j + lane];
    double rest = 0;
    for (; j < n_features_; ++j) rest += static_cast<double>(c[j]) * w[j];
    return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7])) + rest;
  }

  std::size_t n_features_;
  std::int32_t n_blocks_ = 0;
  std::vector<Expansion> expansions_;
  std::vector<Sum> all_;
  std::vector<double> features_, features_new_;
  std::size_t from_ = 0, to_ = 0;  // the anchors of the pair
};

}  // namespace stansub
