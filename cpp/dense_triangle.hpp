// Products with dense triangular matrices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "vector_math.hpp"

namespace stansub {

// A lower triangular matrix, in panels of rows.
class DenseTriangle {
 public:
  DenseTriangle() = default;

  // The lower triangle of a matrix of dim by dim numbers, row by row.
  DenseTriangle(const double* matrix, std::size_t dim) : dim_(dim) {
    constexpr std::size_t rows = vector_math::panel_rows;
    for (std::size_t first = 0; first < dim; first += rows)
      for (std::size_t j = 0; j < std::min(first + rows, dim); ++j)
        for (std::size_t i = first; i < first + rows; ++i) panels_.push_back(j <= i && i < dim ? matrix[i * dim + j] : 0);
    for (std::size_t i = 0; i < dim; ++i) inverse_.push_back(1 / matrix[i * dim + i]);
  }

  // out := L x
  void times(const double* x, double* out) const { vector_math::triangle_times(panels_.data(), x, dim_, out); }

  // x := L^-1 x
  void solve(double* x) const { vector_math::triangle_solve(panels_.data(), inverse_.data(), dim_, x); }

 private:
  std::size_t dim_ = 0;
  std::vector<double> panels_, inverse_;  // the latter of the diagonal
};

}  // namespace stansub
