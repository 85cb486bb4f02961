// Orders in which sparse matrices have little fill-in.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

namespace stansub {

// Multiple minimum external degree (Liu 1985, Modification of the minimum-degree algorithm by multiple elimination, ACM
// Transactions on Mathematical Software 11). Among nodes of equal degree, those are eliminated first that SuperLU chooses.
//
// An eliminated node becomes an element, which makes its nodes neighbours of each other. Nodes with the same neighbours are
// merged. Unlike in SuperLU, sets of bits hold all neighbours, so that degrees are cheap where neighbours are many.
class MinimumDegree {
 public:
  // Most bits of all sets per element of the pattern: with more, neighbours are few.
  static constexpr std::size_t kMostBits = 512;

  // The pattern of a matrix in compressed columns, to which that of its transpose is added.
  MinimumDegree(const std::vector<std::int32_t>& starts, const std::vector<std::int32_t>& rows,
                std::size_t most_bits = kMostBits)
      : near_(checked_dim(starts, rows)), members_(near_.size()), states_(near_.size(), State::listed),
        marks_(near_.size(), -1), seen_(near_.size(), -1), heads_(near_.size(), kNone), next_(heads_), previous_(heads_) {
    const auto d = static_cast<std::int32_t>(near_.size());
    std::vector<std::vector<std::int32_t>> mirrored(d);
    for (std::int32_t j = 0; j < d; ++j) {
      for (std::int32_t k = starts[j]; k < starts[j + 1]; ++k) {
        if (rows[k] == j) continue;
        near_[j].push_back(rows[k]);
        mirrored[rows[k]].push_back(j);
      }
    }
    for (std::int32_t j = 0; j < d; ++j) {
      auto& near = near_[j];
      std::sort(near.begin(), near.end());
      near.erase(std::unique(near.begin(), near.end()), near.end());
      // Neighbours that only the other half of the matrix has come last.
      const std::size_t n = near.size();
      for (const std::int32_t one : mirrored[j])
        if (!std::binary_search(near.begin(), near.begin() + n, one) && (near.empty() || near.back() != one))
          near.push_back(one);
    }
    if (near_.size() * near_.size() <= most_bits * rows.size()) {
      n_words_ = (near_.size() + 63) / 64;
      bits_.resize(near_.size() * n_words_);
      eliminated_.resize(n_words_);
    }
    for (std::int32_t j = 0; j < d; ++j) {
      members_[j] = {j};
      put(j, near_[j].size());
      if (n_words_ == 0) continue;
      set(bits(j), j);
      for (const std::int32_t one : near_[j]) set(bits(j), one);
    }
  }

  // Which node is eliminated at each place.
  std::vector<std::int32_t> order() {
    order_.reserve(near_.size());
    std::vector<std::int32_t> elements;
    if (std::all_of(near_.begin(), near_.end(), [](auto& near) { return near.empty(); })) {
      order_.resize(near_.size());
      std::iota(order_.begin(), order_.end(), 0);
    }
    while (order_.size() < near_.size()) {
      while (heads_[least_] == kNone) ++least_;
      elements.clear();
      while (heads_[least_] != kNone) {
        elements.push_back(heads_[least_]);
        take(elements.back());
        eliminate(elements.back());
      }
      ++least_;
      for (std::size_t k = elements.size(); k-- > 0;) update(elements[k]);
    }
    return std::move(order_);
  }

 private:
  // A node is listed by its degree, or waits for it, or is withheld until a neighbour is eliminated that goes first.
  enum class State : std::uint8_t { listed, waits, withheld, element, merged };
  static constexpr std::int32_t kNone = -1;

  static std::size_t checked_dim(const std::vector<std::int32_t>& starts, const std::vector<std::int32_t>& rows) {
    const bool is_whole = !starts.empty() && starts[0] == 0 && std::is_sorted(starts.begin(), starts.end()) &&
                          starts.back() == static_cast<std::int32_t>(rows.size());
    if (!is_whole) throw std::invalid_argument("the pattern's parts do not fit together");
    const auto d = static_cast<std::int32_t>(starts.size() - 1);
    if (std::any_of(rows.begin(), rows.end(), [d](std::int32_t row) { return row < 0 || row >= d; }))
      throw std::invalid_argument("a row of the pattern is out of range");
    return starts.size() - 1;
  }

  std::uint64_t* bits(std::int32_t node) { return bits_.data() + node * n_words_; }
  static void set(std::uint64_t* bits, std::int32_t at) { bits[at / 64] |= std::uint64_t{1} << (at % 64); }

  void put(std::int32_t node, std::size_t degree) {
    states_[node] = State::listed;
    previous_[node] = ~static_cast<std::int32_t>(degree);
    next_[node] = heads_[degree];
    if (next_[node] != kNone) previous_[next_[node]] = node;
    heads_[degree] = node;
    least_ = std::min(least_, degree);
  }

  void take(std::int32_t node) {
    (previous_[node] >= 0 ? next_[previous_[node]] : heads_[~previous_[node]]) = next_[node];
    if (next_[node] != kNone) previous_[next_[node]] = previous_[node];
  }

  void merge(std::int32_t node, std::int32_t into) {
    members_[into].insert(members_[into].end(), members_[node].begin(), members_[node].end());
    members_[node].clear();
    states_[node] = State::merged;
  }

  void eliminate(std::int32_t node) {
    states_[node] = State::element;
    marks_[node] = ++mark_;
    std::vector<std::int32_t> reached, absorbed;
    for (const std::int32_t one : near_[node]) {
      if (states_[one] == State::merged) continue;
      marks_[one] = mark_;
      (states_[one] == State::element ? absorbed : reached).push_back(one);
    }
    for (std::size_t k = absorbed.size(); k-- > 0;) {
      for (const std::int32_t one : std::exchange(near_[absorbed[k]], {})) {
        if (marks_[one] == mark_ || states_[one] >= State::element) continue;
        marks_[one] = mark_;
        reached.push_back(one);
      }
    }
    for (const std::int32_t one : reached) {
      if (states_[one] == State::listed) take(one);
      auto& near = near_[one];
      const auto is_covered = [&](std::int32_t at) { return marks_[at] == mark_ || states_[at] == State::merged; };
      near.erase(std::remove_if(near.begin(), near.end(), is_covered), near.end());
      if (near.empty()) {
        merge(one, node);
        continue;
      }
      near.push_back(node);
      states_[one] = State::waits;
      for (std::size_t k = 0; k < n_words_; ++k) bits(one)[k] |= bits(node)[k];
    }
    near_[node] = std::move(reached);
    std::sort(members_[node].begin() + 1, members_[node].end());
    order_.insert(order_.end(), members_[node].begin(), members_[node].end());
    if (n_words_ > 0)
      for (const std::int32_t one : members_[node]) set(eliminated_.data(), one);
  }

  // Lists those nodes of a new element by their degrees that wait for it; first those in only one other element.
  void update(std::int32_t element) {
    ++mark_;
    std::vector<std::int32_t> pairs, others;
    for (const std::int32_t one : near_[element]) {
      if (states_[one] == State::merged) continue;
      marks_[one] = mark_;
      if (states_[one] == State::waits) (near_[one].size() == 2 ? pairs : others).push_back(one);
    }
    for (std::size_t k = pairs.size(); k-- > 0;) {
      const std::int32_t node = pairs[k];
      if (states_[node] != State::waits) continue;
      const std::int32_t other = near_[node][near_[node][0] == element ? 1 : 0];
      if (states_[other] == State::element) {
        // Nodes in both elements have all neighbours of this one.
        for (const std::int32_t one : near_[other]) {
          if (one == node || states_[one] != State::waits || marks_[one] != mark_) continue;
          if (near_[one].size() == 2)
            merge(one, node);
          else
            states_[one] = State::withheld;
        }
      }
      put(node, degree(node));
    }
    for (std::size_t k = others.size(); k-- > 0;)
      if (states_[others[k]] == State::waits) put(others[k], degree(others[k]));
  }

  // Number of neighbours apart from nodes that are merged with this one.
  std::size_t degree(std::int32_t node) {
    std::size_t n = 0;
    for (std::size_t k = 0; k < n_words_; ++k) n += std::bitset<64>(bits(node)[k] & ~eliminated_[k]).count();
    if (n_words_ == 0) {
      ++seen_mark_;
      const auto add = [&](std::int32_t one) {
        if (std::exchange(seen_[one], seen_mark_) != seen_mark_) n += members_[one].size();
      };
      for (const std::int32_t one : near_[node]) {
        if (states_[one] == State::element)
          std::for_each(near_[one].begin(), near_[one].end(), add);
        else
          add(one);
      }
    }
    return n - members_[node].size();
  }

  // Of a node, its neighbours that do not share an element with it, and its elements; of an element, its nodes.
  std::vector<std::vector<std::int32_t>> near_, members_;
  std::vector<State> states_;
  std::vector<std::int64_t> marks_, seen_;
  std::int64_t mark_ = 0, seen_mark_ = 0;
  // Lists of nodes by degree; before the first node of a list stands the complement of its degree.
  std::vector<std::int32_t> heads_, next_, previous_;
  std::size_t least_ = 0;
  // Of each node, itself and its neighbours, those that are eliminated included; none if neighbours are few.
  std::size_t n_words_ = 0;
  std::vector<std::uint64_t> bits_, eliminated_;
  std::vector<std::int32_t> order_;
};

}  // namespace stansub
