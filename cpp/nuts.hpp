// The no-U-turn sampler (Hoffman and Gelman 2014), with multinomial sampling from its trees (Betancourt 2017).
//
// It is reversible for its target if the criteria that end a tree depend on the tree only, not on its starting point:
// U-turns by the tree's ends and total momentum, and divergence by its largest minus its smallest energy. A half that
// ends in this way is never sampled from; a whole tree that does is sampled from, but not doubled again.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace stansub {

inline double log_sum(double a, double b) {
  const double high = std::max(a, b);
  return std::isinf(high) ? high : high + std::log1p(std::exp(std::min(a, b) - high));
}

// System has
//   State    a point of phase space
//   Sum      total momentum of states: `Sum total(const State&)`, `add(Sum&, const Sum&)`
//   bool step(State&, int direction)   one step along the trajectory; false where nothing is defined there
//   double energy(const State&)
//   bool stops(const State& left, const State& right, const Sum&, double low, double high)
//            whether a tree with such ends, total momentum and energies is not to be doubled
// Coins is called with a probability and returns a random boolean.
template <class System, class Coins>
class Nuts {
 public:
  using State = typename System::State;
  using Sum = typename System::Sum;

  struct Result {
    State state;
    std::int32_t depth = 0;
    std::int32_t n_steps = 0;
    double acceptance = 0;  // mean over the states of min(1, e^(energy at the start - energy))
    bool diverged = false;
  };

  Nuts(System& system, Coins& coins, std::int32_t max_depth)
      : system_(system), coins_(coins), max_depth_(max_depth) {}

  Result operator()(const State& start) {
    start_energy_ = system_.energy(start);
    Tree tree = leaf(start);
    tree.log_weight = 0;
    Result result{start};
    while (result.depth < max_depth_) {
      const int direction = coins_(0.5) ? 1 : -1;
      Tree more;
      if (!build(direction > 0 ? tree.right : tree.left, direction, result.depth, more)) break;
      ++result.depth;
      if (coins_(std::min(1.0, std::exp(more.log_weight - tree.log_weight)))) tree.draw = more.draw;
      if (!join(tree, std::move(more), direction)) break;
    }
    result.state = std::move(tree.draw);
    result.n_steps = n_steps_;
    result.acceptance = n_steps_ > 0 ? acceptance_ / n_steps_ : 0;
    result.diverged = diverged_;
    return result;
  }

 private:
  struct Tree {
    State left, right, draw;
    Sum sum;
    double log_weight = 0, low = 0, high = 0;
  };

  Tree leaf(const State& state) const {
    const double energy = system_.energy(state);
    return {state, state, state, system_.total(state), start_energy_ - energy, energy, energy};
  }

  // A tree with this number of doublings beyond an end; false if it, or a part of it, ends.
  bool build(const State& end, int direction, std::int32_t depth, Tree& tree) {
    if (depth == 0) {
      State state = end;
      ++n_steps_;
      if (!system_.step(state, direction)) {
        diverged_ = true;
        return false;
      }
      tree = leaf(state);
      acceptance_ += std::min(1.0, std::exp(tree.log_weight));
      return true;
    }
    Tree more;
    if (!build(end, direction, depth - 1, tree)) return false;
    if (!build(direction > 0 ? tree.right : tree.left, direction, depth - 1, more)) return false;
    const double both = log_sum(tree.log_weight, more.log_weight);
    if (coins_(std::exp(more.log_weight - both))) tree.draw = more.draw;
    return join(tree, std::move(more), direction);
  }

  // Joins two trees; false if the result must not be doubled. A trajectory may also turn between the two.
  bool join(Tree& tree, Tree&& more, int direction) {
    Tree &before = direction > 0 ? tree : more, &after = direction > 0 ? more : tree;
    const double low = std::min(tree.low, more.low), high = std::max(tree.high, more.high);
    Sum first = before.sum, second = after.sum;
    system_.add(first, system_.total(after.left));
    system_.add(second, system_.total(before.right));
    bool stops = system_.stops(before.left, after.left, first, low, high) ||
                 system_.stops(before.right, after.right, second, low, high);
    system_.add(tree.sum, more.sum);
    if (direction > 0) {
      tree.right = std::move(more.right);
    } else {
      tree.left = std::move(more.left);
    }
    tree.low = low;
    tree.high = high;
    tree.log_weight = log_sum(tree.log_weight, more.log_weight);
    stops = stops || system_.stops(tree.left, tree.right, tree.sum, low, high);
    if (high - low > System::kLargestRange) diverged_ = true;
    return !stops;
  }

  System& system_;
  Coins& coins_;
  std::int32_t max_depth_, n_steps_ = 0;
  double start_energy_ = 0, acceptance_ = 0;
  bool diverged_ = false;
};

}  // namespace stansub
