// Random numbers from the caller's numpy BitGenerator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include <numpy/random/bitgen.h>

namespace stansub {

// An integer uniform on 0, ..., bound - 1: multiply and shift, with the few numbers rejected that would
// make some results likelier than others (Lemire 2019, algorithm 5).
inline std::uint32_t uniform_below(bitgen_t* bits, std::uint32_t bound) {
  std::uint64_t product = std::uint64_t{bits->next_uint32(bits->state)} * bound;
  if (static_cast<std::uint32_t>(product) < bound) {
    const std::uint32_t threshold = -bound % bound;
    while (static_cast<std::uint32_t>(product) < threshold)
      product = std::uint64_t{bits->next_uint32(bits->state)} * bound;
  }
  return static_cast<std::uint32_t>(product >> 32);
}

// Samples without replacement, drawn in stages. The permutation is kept from sample to sample:
// whatever order it is in, a partial Fisher-Yates shuffle of it gives a uniform sample.
class Urn {
 public:
  explicit Urn(std::vector<std::int32_t> units) : order_(std::move(units)) {}

  // Extends a sample of `from` to one of `to`; returns where the `to - from` new units stand.
  const std::int32_t* extend(bitgen_t* bits, std::int32_t from, std::int32_t to) {
    const auto size = static_cast<std::uint32_t>(order_.size());
    for (std::uint32_t i = from; i < static_cast<std::uint32_t>(to); ++i)
      std::swap(order_[i], order_[i + uniform_below(bits, size - i)]);
    return order_.data() + from;
  }

  // Everything that a later sample depends on, except the generator.
  const std::vector<std::int32_t>& order() const { return order_; }

  void restore(std::vector<std::int32_t> order) {
    std::vector<std::int32_t> own = order_, other = order;
    std::sort(own.begin(), own.end());
    std::sort(other.begin(), other.end());
    if (own != other) throw std::invalid_argument("the state is of a decider with other blocks");
    order_ = std::move(order);
  }

 private:
  std::vector<std::int32_t> order_;
};

}  // namespace stansub
