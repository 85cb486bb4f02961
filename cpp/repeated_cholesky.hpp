// Cholesky factors of many precisions with one pattern.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cholesky.hpp"

namespace stansub {

// The values of the lower triangle of P A P' are replaced by those of L. The pattern must be that of L.
class RepeatedCholesky {
 public:
  explicit RepeatedCholesky(SparseCholesky pattern) : l_(std::move(pattern)), by_row_(l_.dim()), column_(l_.dim()) {
    l_.check();
    place_.resize(l_.dim());
    for (std::size_t k = 0; k < l_.dim(); ++k) place_[l_.order[k]] = static_cast<std::int32_t>(k);
    for (std::size_t j = 0; j < l_.dim(); ++j)
      for (std::int32_t at = l_.starts[j] + 1, end = l_.starts[j + 1]; at < end; ++at)
        by_row_[l_.rows[at]].push_back({at, end - at, l_.rows[end - 1] - l_.rows[at] == end - at - 1});
  }

  const SparseCholesky& factor() const { return l_; }
  std::vector<double>& values() { return l_.values; }

  // Index among the values of element (i, j) of A.
  std::int32_t index(std::int32_t i, std::int32_t j) const {
    const auto [column, row] = std::minmax(place_.at(i), place_.at(j));
    const auto begin = l_.rows.begin() + l_.starts[column], end = l_.rows.begin() + l_.starts[column + 1];
    const auto found = std::lower_bound(begin, end, row);
    if (found == end || *found != row) throw std::invalid_argument("the pattern of the factor lacks an element");
    return static_cast<std::int32_t>(found - l_.rows.begin());
  }

  // False if A is not positive definite.
  bool factorise() {
    for (std::size_t j = 0; j < l_.dim(); ++j) {
      const std::int32_t first = l_.starts[j], end = l_.starts[j + 1];
      for (std::int32_t at = first; at < end; ++at) column_[l_.rows[at]] = l_.values[at];
      subtract_earlier(j);
      const double pivot = std::sqrt(column_[j]);
      if (!(pivot > 0) || !std::isfinite(pivot)) return false;
      l_.values[first] = pivot;
      for (std::int32_t at = first + 1; at < end; ++at) l_.values[at] = column_[l_.rows[at]] / pivot;
    }
    return true;
  }

 private:
  // Element (j, k) of L, and the elements below it in its column; whether their rows are contiguous.
  struct Entry {
    std::int32_t at, n;
    bool is_run;
  };

  // Subtracts the products of earlier columns from column j, four columns at a time if their rows are the same run.
  void subtract_earlier(std::size_t j) {
    const std::vector<Entry>& entries = by_row_[j];
    for (std::size_t k = 0; k < entries.size();) {
      const Entry* e = &entries[k];
      if (k + 4 <= entries.size() && std::all_of(e, e + 4, [&](auto& one) { return one.is_run && one.n == e->n; })) {
        subtract_four(e, column_.data() + l_.rows[e->at]);
        k += 4;
        continue;
      }
      const double* const x = l_.values.data() + e->at;
      const std::int32_t* const rows = l_.rows.data() + e->at;
      for (std::int32_t i = 0; i < e->n; ++i) column_[rows[i]] -= x[0] * x[i];
      ++k;
    }
  }

  void subtract_four(const Entry* e, double* __restrict to) const {
    const double* const all = l_.values.data();
    const double *const a = all + e[0].at, *const b = all + e[1].at, *const c = all + e[2].at, *const d = all + e[3].at;
    for (std::int32_t i = 0; i < e->n; ++i) to[i] -= (a[0] * a[i] + b[0] * b[i]) + (c[0] * c[i] + d[0] * d[i]);
  }

  SparseCholesky l_;
  std::vector<std::vector<Entry>> by_row_;
  std::vector<std::int32_t> place_;
  std::vector<double> column_;
};

}  // namespace stansub
