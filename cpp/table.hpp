// The looks of a stopping rule and its thresholds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace stansub {

// Look k is taken at n[k] units and decides when the distance between the mean of the drawn differences and the
// threshold exceeds scale[k] * sd + offset[k] * range; the last look has all units.
struct Table {
  std::vector<std::int32_t> n;
  std::vector<double> scale, offset;

  Table(std::vector<std::int32_t> n_units, std::vector<double> of_sd, std::vector<double> of_range)
      : n(std::move(n_units)), scale(std::move(of_sd)), offset(std::move(of_range)) {
    if (n.empty() || scale.size() != n.size() || offset.size() != n.size())
      throw std::invalid_argument("n, scale and offset must have the same length, at least 1");
    if (n.front() < 1 || std::adjacent_find(n.begin(), n.end(), std::greater_equal<>()) != n.end())
      throw std::invalid_argument("n must be positive and strictly increasing");
  }

  std::size_t last() const { return n.size() - 1; }

  bool needs_range() const {
    return std::any_of(offset.begin(), offset.end() - 1, [](double factor) { return factor != 0; });
  }
};

}  // namespace stansub
