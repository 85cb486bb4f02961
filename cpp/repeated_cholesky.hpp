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
  explicit RepeatedCholesky(SparseCholesky pattern)
      : l_(checked(std::move(pattern))), by_row_(l_), column_(l_.dim()) {
    place_.resize(l_.dim());
    for (std::size_t k = 0; k < l_.dim(); ++k) place_[l_.order[k]] = static_cast<std::int32_t>(k);
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
      by_row_.subtract_earlier(l_, j, column_.data());
      const double pivot = std::sqrt(column_[j]);
      if (!(pivot > 0) || !std::isfinite(pivot)) return false;
      l_.values[first] = pivot;
      for (std::int32_t at = first + 1; at < end; ++at) l_.values[at] = column_[l_.rows[at]] / pivot;
    }
    return true;
  }

 private:
  static SparseCholesky checked(SparseCholesky pattern) {
    pattern.check();
    return pattern;
  }

  SparseCholesky l_;
  FactorRows by_row_;
  std::vector<std::int32_t> place_;
  std::vector<double> column_;
};

}  // namespace stansub
