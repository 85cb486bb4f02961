// Constant linear maps of effects to combinations of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace stansub {

// v = A u and u = R v with R the inverse of A: u are the steps of a random walk, v its levels. A is given by columns and R by
// rows, so that both have the entries of one element of u side by side.
class Combination {
 public:
  struct Entries {
    std::vector<std::int32_t> starts, places;
    std::vector<double> values;
  };

  // v = u.
  Combination() = default;

  Combination(Entries columns, Entries rows, std::size_t dim) : columns_(std::move(columns)), rows_(std::move(rows)) {
    if (columns_.starts.empty() && rows_.starts.empty()) return;
    check(columns_, dim);
    check(rows_, dim);
  }

  bool is_identity() const { return columns_.starts.empty(); }
  const Entries& columns() const { return columns_; }
  const Entries& rows() const { return rows_; }

  // v = A u.
  void combine(const double* u, std::vector<double>& v) const { scatter(columns_, u, v); }

  // u = R v.
  void separate(const double* v, double* u) const {
    for (std::size_t i = 0; i + 1 < rows_.starts.size(); ++i) {
      double sum = 0;
      for (std::int32_t k = rows_.starts[i]; k < rows_.starts[i + 1]; ++k) sum += rows_.values[k] * v[rows_.places[k]];
      u[i] = sum;
    }
  }

  // The gradient by v from that by u.
  void pull(const double* slope, std::vector<double>& found) const { scatter(rows_, slope, found); }

 private:
  static void scatter(const Entries& entries, const double* x, std::vector<double>& found) {
    found.assign(entries.starts.size() - 1, 0.0);
    for (std::size_t i = 0; i < found.size(); ++i)
      for (std::int32_t k = entries.starts[i]; k < entries.starts[i + 1]; ++k)
        found[entries.places[k]] += entries.values[k] * x[i];
  }

  static void check(const Entries& entries, std::size_t dim) {
    const auto n = static_cast<std::int32_t>(entries.places.size());
    if (entries.starts.size() != dim + 1 || entries.starts[0] != 0 || entries.starts.back() != n ||
        entries.values.size() != entries.places.size() || !std::is_sorted(entries.starts.begin(), entries.starts.end()))
      throw std::invalid_argument("the entries of a combination of effects do not fit together");
    if (std::any_of(entries.places.begin(), entries.places.end(),
                    [&](std::int32_t at) { return at < 0 || at >= static_cast<std::int32_t>(dim); }))
      throw std::invalid_argument("a combination of effects has an entry outside the matrix");
  }

  Entries columns_, rows_;
};

}  // namespace stansub
