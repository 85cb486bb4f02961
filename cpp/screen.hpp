// All rows of a design in 8 bits, from which bounds on all observations' remainders follow in one pass.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace stansub {

// With u_i = L' z_i / l_i, of length 1 or 0, an argument moves by |u_i . w| times l_i. u_i and w are rounded to multiples of
// 1 / unit and |w| / point_unit: a product of two rows then fits into 16 bits (by the Cauchy-Schwarz inequality).
class Screen {
 public:
  using Number = std::int8_t;
  static constexpr double unit = 63, point_unit = 127;
  static constexpr std::size_t most_dim = 1000;  // (63 + sqrt(1000) / 2) (127 + sqrt(1000) / 2) is below 2^15

  // Rows of dim numbers of at most `unit`, which are copied into panels of rows, two columns at a time.
  Screen(const Number* rows, std::size_t n, std::size_t dim);

  std::size_t size() const { return n_; }

  // Upper bounds on floor + t_i^power for all rows, power 3 or 4; t_i is |u_i . w|, at most |w|, or `least` if this is more.
  void find_powers(const std::vector<double>& w, double length, double least, int power, double floor,
                   std::vector<float>& powers) const;

 private:
  std::size_t n_, n_pairs_;            // of columns
  std::vector<std::uint8_t> panels_;  // numbers with the unit and 1 more added
};

// Bounds of all observations on a move, and their sums over runs of observations, with which one is drawn in proportion to them.
class ScreenedBounds {
 public:
  static constexpr std::size_t run = 64;

  explicit ScreenedBounds(std::size_t n);

  // Constants in single precision, which are no less, for whole runs: 0 beyond the observations.
  static std::vector<float> padded(const std::vector<double>& constants);

  // Sets the bounds to no less than factor c_i (a_i + b_i); returns their sum. All are for whole runs.
  double set(const std::vector<float>& constants, const std::vector<float>& a, const std::vector<float>& b, double factor);

  double operator[](std::size_t i) const { return bounds_[i]; }

  // The observation at this place between 0 and 1 of the sum.
  std::size_t at(double place) const {
    double left = place * total_;
    std::size_t k = 0;
    for (; k + 1 < sums_.size() && left >= sums_[k]; ++k) left -= sums_[k];
    std::size_t last = k * run;
    for (std::size_t i = last; i < (k + 1) * run; left -= bounds_[i++]) {
      if (bounds_[i] > 0) last = i;
      if (left < bounds_[i]) break;
    }
    return last;  // rounding may leave a little at the end
  }

 private:
  std::vector<float> bounds_;
  std::vector<double> sums_;
  double total_ = 0;
};

}  // namespace stansub
