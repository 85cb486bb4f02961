// The population of a decision, all or some of the blocks, and the random order in which they are drawn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "random.hpp"
#include "surrogate.hpp"
#include "table.hpp"

namespace stansub {

// A subset of the blocks, with the looks of its decisions. An empty subset has no looks.
class Subset {
 public:
  Subset(std::vector<std::int32_t> which, Table table) : which_(std::move(which)), table_(std::move(table)) {
    if (static_cast<std::size_t>(table_.n.back()) != which_.size())
      throw std::invalid_argument("the last look must be at all blocks of the subset");
  }
  Subset() : table_({1}, {0}, {0}) {}

  const std::vector<std::int32_t>& which() const { return which_; }
  const Table& table() const { return table_; }

 private:
  std::vector<std::int32_t> which_;
  Table table_;
};

// State of the population between decisions.
struct Population {
  std::vector<std::int32_t> which;   // in the order of sums over them
  std::int64_t n_observations = 0;
  std::vector<Surrogate::Sum> sums;  // of the surrogate's rows
  Urn urn;

  // All blocks.
  Population(const std::vector<std::int64_t>& block_sizes, const Surrogate* surrogate)
      : Population(first(block_sizes.size()), block_sizes) {
    if (surrogate) sums = surrogate->sums();
  }

  // A subset of the blocks.
  Population(std::vector<std::int32_t> blocks, const std::vector<std::int64_t>& block_sizes, const Surrogate* surrogate)
      : Population(std::move(blocks), block_sizes) {
    if (surrogate) sums = surrogate->sums(which);
  }

  std::int32_t size() const { return static_cast<std::int32_t>(which.size()); }

 private:
  Population(std::vector<std::int32_t> blocks, const std::vector<std::int64_t>& block_sizes)
      : which(std::move(blocks)), urn(which) {
    std::vector<bool> seen(block_sizes.size());
    for (const std::int32_t b : which) {
      if (b < 0 || static_cast<std::size_t>(b) >= seen.size() || seen[b])
        throw std::invalid_argument("block " + std::to_string(b) + " does not exist or is given twice");
      seen[b] = true;
      n_observations += block_sizes[b];
    }
  }

  static std::vector<std::int32_t> first(std::size_t n) {
    std::vector<std::int32_t> blocks(n);
    std::iota(blocks.begin(), blocks.end(), 0);
    return blocks;
  }
};

}  // namespace stansub
