// Cubic forms with all products of three numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "vector_math.hpp"

namespace stansub {

// Coefficients of x_j x_k x_l for j, then k <= j, then l <= k, in rows of whole vectors.
class DenseCubic {
 public:
  DenseCubic() = default;

  DenseCubic(const std::vector<double>& coefficients, std::size_t dim) : dim_(dim) {
    if (coefficients.size() != dim * (dim + 1) * (dim + 2) / 6)
      throw std::invalid_argument("there must be a coefficient for each product of three numbers");
    auto from = coefficients.begin();
    for (std::size_t j = 0; j < dim; ++j)
      for (std::size_t k = 0; k <= j; ++k)
        for (std::size_t first = 0; first <= k; first += vector_math::lanes) {
          Row& row = rows_.emplace_back();
          const auto next = from + static_cast<std::ptrdiff_t>(std::min(vector_math::lanes, k + 1 - first));
          std::copy(from, next, row.numbers);
          from = next;
        }
  }

  bool empty() const { return rows_.empty(); }

  // Numbers in x and in its gradient, and in the scratch memory of the latter.
  std::size_t width() const { return vector_math::padded(dim_); }
  std::size_t scratch() const { return 2 * (vector_math::row_numbers(dim_) + width()); }

  // The value at x.
  double operator()(const std::vector<double>& x, std::vector<double>& scratch) const {
    scratch.resize(width() + vector_math::row_numbers(dim_) + vector_math::lanes);
    double* row = vector_math::aligned(scratch.data());
    std::fill(std::copy(x.begin(), x.end(), row), row + width(), 0.0);
    return vector_math::cubic_form(rows_.front().numbers, row, dim_, row + width());
  }

  // The gradient at x, whose numbers beyond dim are 0; memory is aligned as vectors are.
  void gradient(const double* x, double* scratch, double* out) const {
    vector_math::cubic_gradient(rows_.front().numbers, x, dim_, scratch, out);
  }

 private:
  struct alignas(sizeof(double) * vector_math::lanes) Row {
    double numbers[vector_math::lanes] = {};
  };

  std::size_t dim_ = 0;
  std::vector<Row> rows_;
};

}  // namespace stansub
