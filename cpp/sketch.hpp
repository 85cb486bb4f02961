// Rows of a design in 16 bits, with which most candidates are rejected.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "vector_math.hpp"

namespace stansub {

// With u_i = L' z_i / l_i, of length 1 or 0, an argument moves by |u_i . w| times l_i. Rounded to 16 bits, in a quarter of
// the memory, u_i gives this up to a known error. Sums of products are sums of integers, equal on all machines.
class Sketch {
 public:
  using Number = std::int16_t;
  static constexpr double unit = 32000;  // stands for 1; products of two rows then fit into 32 bits

  // Rows of `width` numbers, of which the first `dim` count and the others are 0, stay the caller's.
  Sketch(const Number* rows, std::size_t n, std::size_t width, std::size_t dim)
      : rows_(rows), n_(n), width_(width), error_(std::sqrt(static_cast<double>(dim)) * 0.5 / unit) {
    if (width < dim || dim > 1000000) throw std::invalid_argument("a sketch must have rows of dim numbers at least");
  }

  std::size_t size() const { return n_; }

  // w, rounded in the same way.
  struct Point {
    std::vector<Number> w;
    double scale = 0, slack = 0;
  };

  void set_point(const std::vector<double>& w, double length, Point& point) const {
    point.w.assign(width_, 0);
    const double times = length > 0 ? unit / length : 0;
    for (std::size_t j = 0; j < w.size(); ++j) point.w[j] = static_cast<Number>(std::lrint(w[j] * times));
    point.scale = length / (unit * unit);
    // Both roundings, and the remaining rounding of doubles.
    point.slack = length * (error_ * (2 + error_) + 1e-6);
  }

  // An upper bound on |u_i . w|.
  double at_most(std::int32_t i, const Point& point) const {
    const std::int32_t sum = vector_math::dot(rows_ + static_cast<std::size_t>(i) * width_, point.w.data(), width_);
    return std::abs(static_cast<double>(sum)) * point.scale + point.slack;
  }

  void prefetch(std::int32_t i) const {
    const auto* begin = reinterpret_cast<const char*>(rows_ + static_cast<std::size_t>(i) * width_);
    for (std::size_t at = 0; at < width_ * sizeof(Number); at += 64) __builtin_prefetch(begin + at);
  }

 private:
  const Number* rows_;
  std::size_t n_, width_;
  double error_;
};

}  // namespace stansub
