// Bounds on the remainders of block expansions, and random draws in proportion to bounds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include <numpy/random/bitgen.h>

namespace stansub {

// Draws an index in proportion to weights, in constant time (Walker 1977; filled as Vose 1991).
class AliasTable {
 public:
  explicit AliasTable(const std::vector<double>& weights) : rows_(weights.size()) {
    bool valid = true;
    for (const double w : weights) {
      valid &= w >= 0 && std::isfinite(w);
      total_ += w;
    }
    if (!valid) throw std::invalid_argument("weights must be finite and not negative");
    // Indices with shares below 1 are a stack that grows from the left, the others one that grows from the right. Which
    // it will be is hard to foresee, and a wrong guess costs more than to write both.
    const std::size_t n = weights.size();
    std::vector<std::int32_t> stacks(n);
    std::size_t small = 0, large = n;
    for (std::size_t i = 0; i < n; ++i) {
      const double share = total_ > 0 ? weights[i] / total_ * static_cast<double>(n) : 1;
      rows_[i] = {share, static_cast<std::int32_t>(i)};
      stacks[small] = stacks[large - 1] = static_cast<std::int32_t>(i);
      small += share < 1;
      large -= !(share < 1);
    }
    while (small > 0 && large < n) {
      const std::int32_t rich = stacks[large];
      Row& poor = rows_[stacks[--small]];
      poor.other = rich;
      const double left = rows_[rich].own - (1 - poor.own);
      rows_[rich].own = left;
      stacks[small] = rich;
      small += left < 1;
      large += left < 1;
    }
    // Entries left over by rounding.
    for (std::size_t k = 0; k < small; ++k) rows_[stacks[k]].own = 1;
    for (std::size_t k = large; k < n; ++k) rows_[stacks[k]].own = 1;
  }

  double total() const { return total_; }

  std::int32_t draw(bitgen_t* bits) const { return at(place(bits)); }

  // The same in two parts, between which the table's row can be prefetched: a random row, and the index drawn from it.
  double place(bitgen_t* bits) const { return bits->next_double(bits->state) * static_cast<double>(rows_.size()); }
  void prefetch(double place) const { __builtin_prefetch(&rows_[row_of(place)]); }
  std::int32_t at(double place) const {
    const std::size_t i = row_of(place);
    return place - static_cast<double>(i) < rows_[i].own ? static_cast<std::int32_t>(i) : rows_[i].other;
  }

 private:
#pragma pack(push, 4)  // 12 bytes in place of 16
  struct Row {
    double own;  // probability to stay
    std::int32_t other;
  };
#pragma pack(pop)

  std::size_t row_of(double place) const { return std::min(static_cast<std::size_t>(place), rows_.size() - 1); }

  std::vector<Row> rows_;
  double total_ = 0;
};

// The same with the weights.
class WeightedTable : public AliasTable {
 public:
  explicit WeightedTable(std::vector<double> weights) : AliasTable(weights), weights_(std::move(weights)) {
    for (const double w : weights_) largest_ = std::max(largest_, w);
  }

  std::size_t size() const { return weights_.size(); }
  double weight(std::int32_t i) const { return weights_[i]; }
  double largest() const { return largest_; }

 private:
  std::vector<double> weights_;
  double largest_ = 0;
};

// Bounds on the remainders of all blocks around an anchor: with w = A (theta - anchor), block b's expansion of order p is
// off by at most c_b |w|^(p + 1) if |w| is at most a radius. There may be several radii, each with its own c.
// Bounds that are not proved, but learned from trials, can be exceeded.
class RemainderBounds {
 public:
  struct Level {
    double radius;
    WeightedTable constants;
  };

  // Bounds of one move: block b is a candidate at rate `bound(b)`, all blocks together at rate `total`.
  struct Rates {
    const WeightedTable* constants;  // null beyond the last radius
    double factor, rounding, by_constants, total;

    double bound(std::int32_t b) const { return factor * constants->weight(b) + rounding; }
  };

  // `whitening` is A, dim by dim; candidates above `share` of the blocks cost more than evaluating all blocks.
  RemainderBounds(std::vector<double> anchor, std::vector<double> whitening, int order, std::vector<Level> levels,
                  double share, bool proved = true)
      : anchor_(std::move(anchor)),
        whitening_(std::move(whitening)),
        order_(order),
        levels_(std::move(levels)),
        share_(share),
        proved_(proved) {
    if (whitening_.size() != anchor_.size() * anchor_.size())
      throw std::invalid_argument("the whitening matrix must have dim rows and columns");
    if (order != 1 && order != 2) throw std::invalid_argument("the order of an expansion is 1 or 2");
    if (levels_.empty()) throw std::invalid_argument("there must be a radius");
    for (std::size_t k = 1; k < levels_.size(); ++k)
      if (!(levels_[k].radius > levels_[k - 1].radius) || levels_[k].constants.size() != n_blocks())
        throw std::invalid_argument("radii must increase, and each must have a constant for every block");
  }

  std::size_t dim() const { return anchor_.size(); }
  std::size_t n_blocks() const { return levels_.front().constants.size(); }
  int order() const { return order_; }
  bool proved() const { return proved_; }

  // Bounds of a move between two points, including the rounding error of each block's remainder.
  Rates rates(const double* theta, const double* theta_new, double rounding) const {
    const double from = length(theta), to = length(theta_new), by = factor(from, to);
    const WeightedTable* own = constants(from, to);
    const double by_constants = own ? by * own->total() : std::numeric_limits<double>::infinity();
    return {own, by, rounding, by_constants, by_constants + rounding * static_cast<double>(n_blocks())};
  }

  // The largest bound of a move over all blocks; infinite beyond the last radius.
  double largest(const double* theta, const double* theta_new, double rounding) const {
    const Rates move = rates(theta, theta_new, rounding);
    return move.constants ? move.factor * move.constants->largest() + rounding : std::numeric_limits<double>::infinity();
  }

  // Whether this number of candidates costs more than evaluating all blocks.
  bool too_many(double n) const { return !(n <= share_ * static_cast<double>(n_blocks())); }

 private:
  // |w| at a point.
  double length(const double* theta) const {
    double squares = 0;
    for (std::size_t i = 0; i < dim(); ++i) {
      double along = 0;
      for (std::size_t j = 0; j < dim(); ++j) along += whitening_[i * dim() + j] * (theta[j] - anchor_[j]);
      squares += along * along;
    }
    return std::sqrt(squares);
  }

  // Factor of a constant for a move between points of these lengths, for both remainders.
  double factor(double length, double length_new) const {
    const double a = length * length, b = length_new * length_new;
    return order_ == 1 ? a + b : a * length + b * length_new;
  }

  // The constants that are valid at both points; null beyond the last radius.
  const WeightedTable* constants(double length, double length_new) const {
    const double longest = std::max(length, length_new);
    for (const Level& level : levels_)
      if (longest <= level.radius) return &level.constants;
    return nullptr;
  }

  std::vector<double> anchor_, whitening_;
  int order_;
  std::vector<Level> levels_;
  double share_;
  bool proved_;
};

}  // namespace stansub
