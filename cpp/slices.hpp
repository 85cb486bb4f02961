// Slice sampling of a density along moves of its coordinates by one number each.
#pragma once

#include <numpy/random/bitgen.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "coordinates.hpp"
#include "evaluators.hpp"
#include "random.hpp"

namespace stansub {

// A draw that leaves a density of one number invariant, from 0, where its logarithm is `value`; `value` becomes that of the draw.
// By stepping out and shrinkage (Neal 2003, figures 3 and 5), or half of the time by reflection at the middle of the slice, whose
// ends are bisected (figure 10). Bisections depend on the interval alone, so the interval leads back from the reflected point.
template <class LogDensity>
double slice_sample(LogDensity log_density, double& value, double width, bitgen_t* bits) {
  constexpr std::uint32_t most = 32;  // steps by which a slice is extended
  constexpr int bisections = 3;
  const auto uniform = [&] { return bits->next_double(bits->state); };
  const bool reflects = uniform() < 0.5;
  const double level = value + std::log1p(-uniform());
  double low = -width * uniform(), high = low + width;
  std::uint32_t below = uniform_below(bits, most), above = most - 1 - below;
  for (; below > 0 && log_density(low) >= level; --below) low -= width;
  for (; above > 0 && log_density(high) >= level; --above) high += width;
  if (reflects && high - low > 1.5 * width) {
    const auto end = [&](double outside, double inside) {
      for (int k = 0; k < bisections; ++k) {
        const double middle = 0.5 * (outside + inside);
        (log_density(middle) >= level ? inside : outside) = middle;
      }
      return 0.5 * (outside + inside);
    };
    const double found = end(low, low + width) + end(high, high - width), there = log_density(found);
    if (!(found > low && found < high && there >= level)) return 0;
    value = there;
    return found;
  }
  while (true) {
    const double found = low + (high - low) * uniform();
    value = log_density(found);
    if (value >= level) return found;
    (found < 0 ? low : high) = found;
  }
}

// A compiled program's density in inner coordinates, and groups of moves by numbers c: x + c v, and then factors e^c of some
// coordinates.
class Slices {
 public:
  struct Move {
    std::vector<double> direction;
    std::vector<std::int32_t> scaled;

    void operator()(double c, std::vector<double>& x) const {
      for (std::size_t k = 0; k < x.size(); ++k) x[k] += c * direction[k];
      for (const std::int32_t k : scaled) x[k] *= std::exp(c);
    }
  };

  Slices(const void* model, BridgeStan api, Coordinates coordinates, std::vector<Move> moves)
      : model_(model), api_(api), coordinates_(std::move(coordinates)), moves_(std::move(moves)),
        theta_(coordinates_.dim()), gradient_(coordinates_.dim()) {
    for (const Move& one : moves_) {
      if (one.direction.size() != dim()) throw std::invalid_argument("a direction has another length");
      for (const std::int32_t k : one.scaled)
        if (k < 0 || k >= static_cast<std::int32_t>(dim())) throw std::invalid_argument("no such coordinate");
    }
  }

  std::size_t dim() const { return theta_.size(); }
  std::size_t size() const { return moves_.size(); }

  // Moves x along a slice of each move, and with it the shift and the scale of x = scale y + shift. `lengths` become the numbers c.
  void operator()(bitgen_t* bits, double* x, double* scale, double* shift, const double* widths, double* lengths) {
    std::vector<double> here(x, x + dim()), moved, shifts(shift, shift + dim());
    double value = log_density(here);
    for (std::size_t m = 0; m < moves_.size(); ++m) {
      const Move& one = moves_[m];
      const auto jacobian = static_cast<double>(one.scaled.size());
      const double c = lengths[m] = slice_sample(
          [&](double at) {
            moved = here;
            one(at, moved);
            return log_density(moved) + at * jacobian;
          },
          value, widths[m], bits);
      value -= c * jacobian;
      one(c, here);
      one(c, shifts);
      for (const std::int32_t k : one.scaled) scale[k] *= std::exp(c);
    }
    std::copy(here.begin(), here.end(), x);
    std::copy(shifts.begin(), shifts.end(), shift);
  }

 private:
  // Minus infinity where the program raises an error.
  double log_density(const std::vector<double>& x) {
    coordinates_.outward(x.data(), theta_.data());
    double value = 0;
    if (api_.value(model_, true, theta_.data(), &value) != 0) return -kInfinity;
    std::fill(gradient_.begin(), gradient_.end(), 0.0);
    coordinates_.pull(value, gradient_.data());
    return std::isnan(value) ? -kInfinity : value;
  }

  const void* model_;
  BridgeStan api_;
  Coordinates coordinates_;
  std::vector<Move> moves_;
  std::vector<double> theta_, gradient_;
};

}  // namespace stansub
