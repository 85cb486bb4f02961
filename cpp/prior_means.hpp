// Means of effects that are linear functions of other parameters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace stansub {

// x = theta - D theta, where row i of D gives the mean of effect i, and a mean may have a mean itself: those of classes are
// schools', and those of schools regions'. Rows stand after the rows of the parameters that they read, so that this is a
// bijection with determinant 1.
class PriorMeans {
 public:
  struct Rows {
    std::vector<std::int32_t> places, starts, columns;
    std::vector<double> values;
  };

  PriorMeans() = default;

  PriorMeans(Rows rows, std::size_t dim) : rows_(std::move(rows)) {
    const std::size_t n = rows_.places.size();
    if (rows_.starts.size() != n + 1 || rows_.starts[0] != 0 || rows_.columns.size() != rows_.values.size() ||
        static_cast<std::size_t>(rows_.starts[n]) != rows_.values.size() ||
        !std::is_sorted(rows_.starts.begin(), rows_.starts.end()))
      throw std::invalid_argument("the rows of means do not fit together");
    const auto is_outside = [&](std::int32_t at) { return at < 0 || at >= static_cast<std::int32_t>(dim); };
    std::vector<bool> comes(dim);
    for (const std::int32_t at : rows_.places) {
      if (is_outside(at) || comes[at]) throw std::invalid_argument("means are of no parameter, or twice of one");
      comes[at] = true;
    }
    for (std::size_t r = 0; r < n; ++r) {
      for (std::int32_t k = rows_.starts[r]; k < rows_.starts[r + 1]; ++k)
        if (is_outside(rows_.columns[k]) || comes[rows_.columns[k]])
          throw std::invalid_argument("a mean reads no parameter, or one whose mean comes later");
      comes[rows_.places[r]] = false;
    }
  }

  const std::vector<std::int32_t>& places() const { return rows_.places; }

  // theta to x, in place.
  void remove(double* theta) const {
    for (std::size_t r = rows_.places.size(); r-- > 0;) theta[rows_.places[r]] -= mean(r, theta);
  }

  // x to theta, in place.
  void add(double* x) const {
    for (std::size_t r = 0; r < rows_.places.size(); ++r) x[rows_.places[r]] += mean(r, x);
  }

  // The gradient by theta to that by x, in place.
  void pull(double* gradient) const {
    for (std::size_t r = rows_.places.size(); r-- > 0;)
      for (std::int32_t k = rows_.starts[r]; k < rows_.starts[r + 1]; ++k)
        gradient[rows_.columns[k]] += rows_.values[k] * gradient[rows_.places[r]];
  }

 private:
  double mean(std::size_t r, const double* theta) const {
    double sum = 0;
    for (std::int32_t k = rows_.starts[r]; k < rows_.starts[r + 1]; ++k) sum += rows_.values[k] * theta[rows_.columns[k]];
    return sum;
  }

  Rows rows_;
};

}  // namespace stansub
