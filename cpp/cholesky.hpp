// Sparse Cholesky factors of precisions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>
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

// The elements of a factor by rows. Its pattern is known before its values.
class FactorRows {
 public:
  explicit FactorRows(const LowerTriangle& l) : FactorRows(l, l.dim()) {}

  // Only the first columns.
  FactorRows(const LowerTriangle& l, std::size_t n_columns) : rows_(l.dim()) {
    for (std::size_t j = 0; j < n_columns; ++j)
      for (std::int32_t at = l.starts[j] + 1, end = l.starts[j + 1]; at < end; ++at)
        rows_[l.rows[at]].push_back({at, end - at, l.rows[end - 1] - l.rows[at] == end - at - 1});
  }

  // Subtracts the products of earlier columns from column j, which is given by rows, four columns at a time if their rows
  // are the same run.
  void subtract_earlier(const LowerTriangle& l, std::size_t j, double* column) const {
    const std::vector<Entry>& entries = rows_[j];
    for (std::size_t k = 0; k < entries.size();) {
      const Entry* e = &entries[k];
      if (k + 4 <= entries.size() && std::all_of(e, e + 4, [&](auto& one) { return one.is_run && one.n == e->n; })) {
        subtract_four(l, e, column + l.rows[e->at]);
        k += 4;
        continue;
      }
      const double* const x = l.values.data() + e->at;
      const std::int32_t* const rows = l.rows.data() + e->at;
      for (std::int32_t i = 0; i < e->n; ++i) column[rows[i]] -= x[0] * x[i];
      ++k;
    }
  }

 private:
  // Element (j, k) of L, and the elements below it in its column; whether their rows are contiguous.
  struct Entry {
    std::int32_t at, n;
    bool is_run;
  };

  static void subtract_four(const LowerTriangle& l, const Entry* e, double* __restrict to) {
    const double* const all = l.values.data();
    const double *const a = all + e[0].at, *const b = all + e[1].at, *const c = all + e[2].at, *const d = all + e[3].at;
    for (std::int32_t i = 0; i < e->n; ++i) to[i] -= (a[0] * a[i] + b[0] * b[i]) + (c[0] * c[i] + d[0] * d[i]);
  }

  std::vector<std::vector<Entry>> rows_;
};

// The pattern of the Cholesky factor of a matrix: a column has the rows of the matrix, and those of each earlier column
// whose first row below its diagonal is that of the column. All columns after a full one are full.
inline LowerTriangle factor_pattern(const LowerTriangle& a) {
  LowerTriangle l{{0}, {}, {}};
  std::vector<std::vector<std::int32_t>> earlier(a.dim());
  std::vector<std::int32_t> met(a.dim(), -1), rows;
  const std::int32_t d = static_cast<std::int32_t>(a.dim());
  std::int32_t j = 0;
  for (bool is_full = false; j < d && !is_full; ++j) {
    rows.clear();
    met[j] = j;
    const auto add = [&](std::int32_t row) {
      if (met[row] == j) return;
      met[row] = j;
      rows.push_back(row);
    };
    for (std::int32_t k = a.starts[j]; k < a.starts[j + 1]; ++k) add(a.rows[k]);
    for (const std::int32_t one : earlier[j])
      for (std::int32_t k = l.starts[one] + 1; k < l.starts[one + 1]; ++k) add(l.rows[k]);
    std::sort(rows.begin(), rows.end());
    if (!rows.empty()) earlier[rows.front()].push_back(j);
    l.rows.push_back(j);
    l.rows.insert(l.rows.end(), rows.begin(), rows.end());
    l.starts.push_back(static_cast<std::int32_t>(l.rows.size()));
    is_full = l.rows.size() - l.starts[j] == static_cast<std::size_t>(d - j);
  }
  for (; j < d; ++j) {
    l.rows.resize(l.rows.size() + d - j);
    std::iota(l.rows.end() - (d - j), l.rows.end(), j);
    l.starts.push_back(static_cast<std::int32_t>(l.rows.size()));
  }
  l.values.resize(l.rows.size());
  return l;
}

// Number of the last columns that have all rows.
inline std::size_t n_full(const LowerTriangle& l) {
  std::int32_t n = 0;
  for (std::size_t j = l.dim(); j-- > 0 && l.starts[j + 1] - l.starts[j] == n + 1;) ++n;
  return n;
}

// Columns of a factor, and how many of the last ones are yet to be eliminated: these hold the lower triangle of what remains
// of the matrix after the elimination of the others, their Schur complement.
struct PartialFactor {
  LowerTriangle l;
  std::size_t n_left;
};

// Least square of a pivot of a matrix with a diagonal of 1.
constexpr double kLeastPivot = 1e-12;

// L with L L' = A + E, where E is diagonal and not negative: 0 if A is positive definite with a diagonal of 1, and just large
// enough that no element of L exceeds the maximum for such a matrix (Gill, Murray and Wright 1981, section
// 4.4.2.2, for a scaled matrix). If E is 0 up to the last columns, and at least so many of these are full, they are left. If
// it is not 0, elimination goes on, or these columns are left undefined.
inline PartialFactor modified_cholesky(const LowerTriangle& a, std::size_t least_left, bool increases) {
  a.check();
  const std::size_t d = a.dim();
  double largest = 0;
  for (std::size_t j = 0; j < d; ++j)
    for (std::int32_t k = a.starts[j] + 1; k < a.starts[j + 1]; ++k) largest = std::max(largest, std::abs(a.values[k]));
  // Square of the largest permitted element of L.
  const double most = std::max(1.0, largest / std::sqrt(std::max(1.0, static_cast<double>(d * d) - 1)));
  LowerTriangle l = factor_pattern(a);
  std::size_t n_left = n_full(l);
  if (n_left < least_left) n_left = 0;
  FactorRows by_row(l, d - n_left);
  std::vector<double> column(d, 0.0);
  for (std::size_t j = 0; j < d; ++j) {
    const std::int32_t first = l.starts[j], end = l.starts[j + 1];
    for (std::int32_t at = first; at < end; ++at) column[l.rows[at]] = 0;
    for (std::int32_t k = a.starts[j]; k < a.starts[j + 1]; ++k) column[a.rows[k]] += a.values[k];
    by_row.subtract_earlier(l, j, column.data());
    if (j >= d - n_left) {
      for (std::int32_t at = first; at < end; ++at) l.values[at] = column[l.rows[at]];
      continue;
    }
    double below = 0;
    for (std::int32_t at = first + 1; at < end; ++at) below = std::max(below, std::abs(column[l.rows[at]]));
    const double square = std::max({kLeastPivot, std::abs(column[j]), below * below / most}), pivot = std::sqrt(square);
    l.values[first] = pivot;
    for (std::int32_t at = first + 1; at < end; ++at) l.values[at] = column[l.rows[at]] / pivot;
    if (n_left > 0 && square != column[j]) {
      if (!increases) {
        std::fill(l.values.begin() + first, l.values.end(), std::numeric_limits<double>::quiet_NaN());
        break;
      }
      n_left = 0;
      by_row = FactorRows(l, d);
    }
  }
  return {std::move(l), n_left};
}

}  // namespace stansub
