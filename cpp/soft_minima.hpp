// Soft minima of affine functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

namespace stansub {

// f = -1/2 log sum_m e^(-2 a_m). If e^a_m are scales, their precisions e^(-2 a_m) add up to that of e^f. With one m, f is
// a_1. The weights e^(2 (f - a_m)), which replace a, are the derivatives of f by a_m.
inline double soft_minimum(double* a, std::size_t n) {
  if (n == 1) return std::exchange(a[0], 1.0);
  const double least = *std::min_element(a, a + n);
  double sum = 0;
  for (std::size_t m = 0; m < n; ++m) sum += a[m] = std::exp(-2 * (a[m] - least));
  for (std::size_t m = 0; m < n; ++m) a[m] /= sum;
  return least - 0.5 * std::log(sum);
}

// Functions of x, each the soft minimum of a number of rows, which are affine: constants, and coefficients in compressed
// rows.
class SoftMinima {
 public:
  struct Rows {
    std::vector<std::int32_t> counts, starts, columns;
    std::vector<double> coefficients, constants;
  };

  SoftMinima() = default;

  explicit SoftMinima(Rows rows) : own_(std::move(rows)), firsts_{0} {
    for (const std::int32_t n : own_.counts) {
      if (n < 1) throw std::invalid_argument("a function is the minimum of no rows");
      firsts_.push_back(firsts_.back() + n);
    }
    const std::size_t n = firsts_.back();
    if (own_.constants.size() != n || own_.starts.size() != n + 1 || own_.starts[0] != 0 ||
        own_.starts.back() != static_cast<std::int32_t>(own_.columns.size()) ||
        own_.columns.size() != own_.coefficients.size())
      throw std::invalid_argument("the rows of functions do not fit together");
    if (!std::is_sorted(own_.starts.begin(), own_.starts.end()))
      throw std::invalid_argument("rows of coefficients are out of order");
    values_.resize(own_.counts.size());
    weights_.resize(n);
    share();
  }

  std::size_t size() const { return own_.counts.size(); }
  const std::vector<std::int32_t>& columns() const { return own_.columns; }

  // Computes the functions at x.
  void set(const double* x) {
    for (std::size_t s = 0; s < shared_.size(); ++s) sums_[s] = row(shared_[s], x);
    for (std::size_t r = 0; r < weights_.size(); ++r) weights_[r] = own_.constants[r] + factors_[r] * sums_[shared_of_[r]];
    for (std::size_t f = 0; f < values_.size(); ++f) values_[f] = soft_minimum(weights_.data() + firsts_[f], count(f));
  }

  const std::vector<double>& values() const { return values_; }
  double value(std::size_t f) const { return values_[f]; }

  // Whether a function is affine; its value at x + t d; and its slope along d, or the largest size of those of its rows.
  bool is_affine(std::size_t f) const { return count(f) == 1; }

  double value(std::size_t f, const double* x, const double* d, double t) {
    const std::size_t n = count(f);
    along_.resize(std::max(along_.size(), n));
    for (std::size_t m = 0; m < n; ++m)
      along_[m] = own_.constants[firsts_[f] + m] + row(firsts_[f] + m, x) + t * row(firsts_[f] + m, d);
    return soft_minimum(along_.data(), n);
  }

  double slope(std::size_t f, const double* d) const {
    if (is_affine(f)) return row(firsts_[f], d);
    double largest = 0;
    for (std::size_t r = firsts_[f]; r < firsts_[f + 1]; ++r) largest = std::max(largest, std::abs(row(r, d)));
    return largest;
  }

  // Adds a slope by a function, then to a gradient what slopes by all functions are by x.
  void add(std::size_t f, double slope) {
    for (std::size_t r = firsts_[f]; r < firsts_[f + 1]; ++r) slopes_[shared_of_[r]] += slope * weights_[r] * factors_[r];
  }

  void distribute(double* gradient) {
    for (std::size_t s = 0; s < shared_.size(); ++s) {
      for (std::int32_t k = own_.starts[shared_[s]]; k < own_.starts[shared_[s] + 1]; ++k)
        gradient[own_.columns[k]] += slopes_[s] * own_.coefficients[k];
      slopes_[s] = 0;
    }
  }

 private:
  // Relative difference up to which rows, which stem from finite differences, are multiples of each other.
  static constexpr double kSame = 1e-6;

  std::size_t count(std::size_t f) const { return firsts_[f + 1] - firsts_[f]; }

  // A row without its constant.
  double row(std::size_t r, const double* x) const {
    double sum = 0;
    for (std::int32_t k = own_.starts[r]; k < own_.starts[r + 1]; ++k) sum += own_.coefficients[k] * x[own_.columns[k]];
    return sum;
  }

  // Each row a multiple of one that is computed once: hundreds of blocks may have one scale, itself a function of hundreds
  // of parameters.
  void share() {
    std::map<std::vector<std::int32_t>, std::vector<std::int32_t>> by_columns;
    for (std::size_t r = 0; r < weights_.size(); ++r) {
      const std::int32_t first = own_.starts[r], n = own_.starts[r + 1] - first;
      auto& candidates = by_columns[{own_.columns.begin() + first, own_.columns.begin() + first + n}];
      const auto same = std::find_if(candidates.begin(), candidates.end(), [&](std::int32_t s) {
        return is_multiple(own_.coefficients.data() + first, own_.coefficients.data() + own_.starts[shared_[s]], n);
      });
      if (same == candidates.end()) {
        candidates.push_back(static_cast<std::int32_t>(shared_.size()));
        shared_of_.push_back(candidates.back());
        factors_.push_back(1);
        shared_.push_back(static_cast<std::int32_t>(r));
      } else {
        shared_of_.push_back(*same);
        factors_.push_back(n > 0 ? own_.coefficients[first] / own_.coefficients[own_.starts[shared_[*same]]] : 1);
      }
    }
    sums_.resize(shared_.size());
    slopes_.resize(shared_.size());
  }

  static bool is_multiple(const double* one, const double* other, std::int32_t n) {
    if (n > 0 && other[0] == 0) return false;
    for (std::int32_t k = 1; k < n; ++k)
      if (!(std::abs(one[k] * other[0] - other[k] * one[0]) <= kSame * std::abs(one[k] * other[0]))) return false;
    return true;
  }

  Rows own_;
  std::vector<std::size_t> firsts_;             // row of each function
  std::vector<double> values_, weights_;        // of functions, and of rows in them
  std::vector<std::int32_t> shared_, shared_of_;  // rows that are computed; for each row its number among these
  std::vector<double> factors_, sums_, slopes_, along_;
};

}  // namespace stansub
