// Sparse Cholesky factors of precisions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "vectors.hpp"

namespace stansub {

// A lower triangle in compressed columns; each column starts with its diagonal element.
struct LowerTriangle {
  std::vector<std::int32_t> starts, rows;
  std::vector<double> values;

  std::size_t dim() const { return starts.size() - 1; }

  void check() const {
    if (starts.empty() || starts[0] != 0 || rows.size() != values.size() ||
        starts.back() != static_cast<std::int32_t>(rows.size()))
      throw std::invalid_argument("the triangle's parts do not fit together");
    for (std::size_t j = 0; j < dim(); ++j) {
      if (starts[j] >= starts[j + 1] || rows[starts[j]] != static_cast<std::int32_t>(j))
        throw std::invalid_argument("a column of the triangle does not begin with its diagonal");
      for (std::int32_t k = starts[j] + 1; k < starts[j + 1]; ++k)
        if (rows[k] <= static_cast<std::int32_t>(j) || rows[k] >= static_cast<std::int32_t>(dim()))
          throw std::invalid_argument("a row is not below its diagonal");
    }
  }
};

// A sparse Cholesky factor of a precision, P A P' = L L'.
struct SparseCholesky : LowerTriangle {
  std::vector<std::int32_t> order;  // order[k]: which parameter stands at place k

  void check() const {
    LowerTriangle::check();
    if (order.size() != dim()) throw std::invalid_argument("the Cholesky factor's parts do not fit together");
    for (std::size_t j = 0; j < dim(); ++j) {
      if (!(values[starts[j]] > 0)) throw std::invalid_argument("a pivot of the Cholesky factor is not positive");
      if (order[j] < 0 || order[j] >= static_cast<std::int32_t>(dim()))
        throw std::invalid_argument("the order of the Cholesky factor is no permutation");
    }
  }

  // x := L' x
  void times_transpose(std::vector<double>& x) const {
    for (std::size_t j = 0; j < dim(); ++j) x[j] = values[starts[j]] * x[j] + below(j, x.data());
  }

  // x := L^-1 x
  void forward(std::vector<double>& x) const {
    for (std::size_t j = 0; j < dim(); ++j) {
      const double one = x[j] /= values[starts[j]];
      const auto [n, at, factors] = column(j);
      if (is_run(n, at)) {
        double* const to = x.data() + *at;
        for (std::int32_t k = 0; k < n; ++k) to[k] -= factors[k] * one;
      } else {
        for (std::int32_t k = 0; k < n; ++k) x[at[k]] -= factors[k] * one;
      }
    }
  }

  // x := L'^-1 x
  void backward(std::vector<double>& x) const {
    for (std::size_t j = dim(); j-- > 0;) x[j] = (x[j] - below(j, x.data())) / values[starts[j]];
  }

 private:
  // Elements below the diagonal.
  struct Column {
    std::int32_t n;
    const std::int32_t* rows;
    const double* values;
  };

  Column column(std::size_t j) const {
    const std::int32_t first = starts[j] + 1;
    return {starts[j + 1] - first, rows.data() + first, values.data() + first};
  }

  // Whether the rows are contiguous, so that vector instructions apply.
  static bool is_run(std::int32_t n, const std::int32_t* at) { return n > 1 && at[n - 1] - at[0] == n - 1; }

  // Product of these elements and x.
  double below(std::size_t j, const double* x) const {
    const auto [n, at, factors] = column(j);
    if (is_run(n, at)) return dot(factors, x + *at, n);
    double sum = 0;
    for (std::int32_t k = 0; k < n; ++k) sum += factors[k] * x[at[k]];
    return sum;
  }
};

// L with L L' = A + E, where E is diagonal and not negative: 0 if A is positive definite with a diagonal of 1, and just large
// enough that no element of L exceeds the maximum for such a matrix (Gill, Murray and Wright 1981, section
// 4.4.2.2, for a scaled matrix).
inline LowerTriangle modified_cholesky(const LowerTriangle& a) {
  constexpr double kLeastPivot = 1e-12;
  a.check();
  const std::size_t d = a.dim();
  double largest = 0;
  for (std::size_t j = 0; j < d; ++j)
    for (std::int32_t k = a.starts[j] + 1; k < a.starts[j + 1]; ++k) largest = std::max(largest, std::abs(a.values[k]));
  // Square of the largest permitted element of L.
  const double most = std::max(1.0, largest / std::sqrt(std::max(1.0, static_cast<double>(d * d) - 1)));
  struct Entry {
    std::int32_t column, at;
  };
  std::vector<std::vector<Entry>> by_row(d);
  std::vector<double> column(d, 0.0);
  std::vector<std::int32_t> met(d, -1), rows;
  LowerTriangle l{{0}, {}, {}};
  for (std::size_t j = 0; j < d; ++j) {
    rows.clear();
    const auto add = [&](std::int32_t row, double value) {
      if (met[row] != static_cast<std::int32_t>(j)) {
        met[row] = static_cast<std::int32_t>(j);
        column[row] = 0;
        if (row != static_cast<std::int32_t>(j)) rows.push_back(row);
      }
      column[row] += value;
    };
    for (std::int32_t k = a.starts[j]; k < a.starts[j + 1]; ++k) add(a.rows[k], a.values[k]);
    for (const Entry& one : by_row[j])
      for (std::int32_t k = one.at; k < l.starts[one.column + 1]; ++k)
        add(l.rows[k], -l.values[one.at] * l.values[k]);
    std::sort(rows.begin(), rows.end());
    double below = 0;
    for (const std::int32_t row : rows) below = std::max(below, std::abs(column[row]));
    const double pivot = std::sqrt(std::max({kLeastPivot, std::abs(column[j]), below * below / most}));
    l.rows.push_back(static_cast<std::int32_t>(j));
    l.values.push_back(pivot);
    for (const std::int32_t row : rows) {
      by_row[row].push_back({static_cast<std::int32_t>(j), static_cast<std::int32_t>(l.rows.size())});
      l.rows.push_back(row);
      l.values.push_back(column[row] / pivot);
    }
    l.starts.push_back(static_cast<std::int32_t>(l.rows.size()));
  }
  return l;
}

}  // namespace stansub
