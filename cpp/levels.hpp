// Passes over all observations for moves of levels: log likelihoods, their gradients, and sums by level.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "program.hpp"
#include "program_columns.hpp"

namespace stansub {

// Observations depend on coefficients x through q arguments. Numbers of the observations stay the caller's. Memory
// beside them: q + 1 rows at the state and at a proposal, log likelihoods and gradients in the arguments.
class LevelPasses {
 public:
  // Level of each observation, n_levels for none.
  struct Grouping {
    const std::int32_t* of;
    std::size_t n_levels;
    std::vector<std::int32_t> places;  // its coefficients
  };

  // Without a program, the caller evaluates the log likelihoods.
  LevelPasses(const Arguments& arguments, std::vector<Grouping> groupings, std::shared_ptr<const Program> program, const double* data)
      : arguments_(arguments),
        groupings_(std::move(groupings)),
        program_(std::move(program)),
        data_(data),
        n_(arguments.n()),
        dim_(arguments.dim()),
        here_(n_rows() * n_),
        there_(n_rows() * n_),
        x_(dim_ + 1),
        sums_(dim_ + 1),
        eta_(arguments_.size() * block),
        takes_(block) {
    if (program_) {
      if (program_->n_arguments() != arguments_.size()) throw std::invalid_argument("the program has other arguments");
      columns_.emplace(*program_);
    }
    for (const Grouping& one : groupings_) {
      for (std::size_t i = 0; i < n_; ++i)
        if (one.of[i] < 0 || static_cast<std::size_t>(one.of[i]) > one.n_levels) throw std::invalid_argument("no such level");
      read_.push_back(read_by(one));
    }
  }

  std::size_t n() const { return n_; }
  std::size_t dim() const { return dim_; }
  std::size_t n_rows() const { return arguments_.size() + 1; }
  std::size_t n_levels(std::size_t which) const { return groupings_.at(which).n_levels; }
  double* proposed() { return there_.data(); }
  const double* state() const { return here_.data(); }

  // Arguments at x, a row each.
  void arguments(const double* x, double* out) {
    set(x);
    for_blocks([&](std::size_t first, std::size_t count) {
      arguments(first, count);
      for (std::size_t k = 0; k < arguments_.size(); ++k) std::copy_n(&eta_[k * block], count, out + k * n_ + first);
    });
  }

  // Evaluates the observations at x, which becomes the state.
  void place(const double* x) {
    pending_ = nullptr;
    set(x);
    for_blocks([&](std::size_t first, std::size_t count) { evaluate(first, count); });
    here_.swap(there_);
  }

  // Evaluates the observations at x. Writes the changes of the log likelihood by level (the last for no level), and the
  // gradient in the coefficients of a grouping; other elements of it are arbitrary.
  void propose(const double* x, std::size_t which, double* change, double* slopes) {
    apply();
    set(x);
    const Grouping& grouping = groupings_.at(which);
    std::fill_n(change, grouping.n_levels + 1, 0.0);
    sum(which, there_, slopes, [&](std::size_t first, std::size_t count) {
      evaluate(first, count);
      const double *here = &here_[first], *there = &there_[first];
      const std::int32_t* of = grouping.of + first;
      for (std::size_t j = 0; j < count; ++j) change[of[j]] += there[j] - here[j];
    });
  }

  // The proposal becomes the state of observations of accepted levels.
  void settle(std::size_t which, const bool* accepted) {
    pending_ = &groupings_.at(which);
    accepted_.assign(accepted, accepted + pending_->n_levels);
    accepted_.push_back(0);
  }

  // The gradient at the state in the coefficients of a grouping; other elements are arbitrary.
  void slopes(std::size_t which, double* out) {
    sum(which, here_, out, [&](std::size_t first, std::size_t count) { apply_to(first, count); });
    pending_ = nullptr;
  }

  // Moves all observations to what was decided last.
  void apply() {
    if (!pending_) return;
    for_blocks([&](std::size_t first, std::size_t count) { apply_to(first, count); });
    pending_ = nullptr;
  }

 private:
  static constexpr std::size_t block = ProgramColumns::block;

  // What a grouping reads of an argument.
  struct Read {
    std::size_t argument;
    bool dense;
    std::vector<const Column*> columns;
  };

  template <class Work>
  void for_blocks(Work work) const {
    for (std::size_t first = 0; first < n_; first += block) work(first, std::min(block, n_ - first));
  }

  std::vector<Read> read_by(const Grouping& grouping) const {
    std::vector<bool> own(dim_ + 1);
    for (const std::int32_t place : grouping.places) {
      arguments_.require_place(place, 0);
      own[place + 1] = true;
    }
    const auto any = [&](const std::int32_t* places, std::size_t n) {
      return std::any_of(places, places + n, [&](std::int32_t place) { return own[place + 1]; });
    };
    std::vector<Read> found;
    for (std::size_t k = 0; k < arguments_.size(); ++k) {
      const Argument& one = arguments_[k];
      Read read{k, any(one.places.data(), one.places.size()), {}};
      for (const Column& column : one.columns)
        if (any(column.places, n_)) read.columns.push_back(&column);
      if (read.dense || !read.columns.empty()) found.push_back(std::move(read));
    }
    return found;
  }

  void set(const double* x) { std::copy_n(x, dim_, x_.begin() + 1); }
  // Place -1 has the coefficient 0.
  const double* coefficients() const { return x_.data() + 1; }

  void evaluate(std::size_t first, std::size_t count) {
    if (!program_) return;
    arguments(first, count);
    columns_->derivatives(1, {data_ + first, n_}, {eta_.data(), block}, count, {&there_[first], n_});
  }

  void arguments(std::size_t first, std::size_t count) {
    for (std::size_t k = 0; k < arguments_.size(); ++k) arguments_[k].at(coefficients(), first, count, &eta_[k * block]);
  }

  void apply_to(std::size_t first, std::size_t count) {
    if (!pending_) return;
    const std::int32_t* of = pending_->of + first;
    for (std::size_t j = 0; j < count; ++j) takes_[j] = accepted_[of[j]];
    for (std::size_t row = 0; row < n_rows(); ++row) {
      // Each element is from one of two addresses: a branch would be mispredicted for every other run of a level.
      double* here = &here_[row * n_ + first];
      const double* from[] = {here, &there_[row * n_ + first]};
      for (std::size_t j = 0; j < count; ++j) here[j] = from[takes_[j]][j];
    }
  }

  // The gradient from rows of the observations', after some work on each block.
  template <class Work>
  void sum(std::size_t which, const std::vector<double>& rows, double* out, Work work) {
    std::fill(sums_.begin(), sums_.end(), 0.0);
    for_blocks([&](std::size_t first, std::size_t count) {
      work(first, count);
      for (const Read& read : read_.at(which)) add(read, &rows[(read.argument + 1) * n_ + first], first, count);
    });
    std::copy(sums_.begin() + 1, sums_.end(), out);
  }

  void add(const Read& read, const double* slopes, std::size_t first, std::size_t count) {
    double* sums = sums_.data() + 1;
    for (const Column* column : read.columns)
      column->each(first, count, [&](std::size_t j, std::int32_t place, double factor) { sums[place] += factor * slopes[j]; });
    if (!read.dense) return;
    arguments_[read.argument].each_run([&](const Run& run, const std::int32_t* places) {
      for (std::size_t j = 0; j < count; ++j) {
        const double* row = run.at(first + j);
        for (std::size_t c = 0; c < run.width; ++c) sums[places[c]] += row[static_cast<std::ptrdiff_t>(c) * run.column] * slopes[j];
      }
    });
  }

  const Arguments& arguments_;
  std::vector<Grouping> groupings_;
  std::shared_ptr<const Program> program_;
  std::optional<ProgramColumns> columns_;
  const double* data_;
  std::size_t n_, dim_;
  std::vector<double> here_, there_;     // rows of the state and of the proposal
  std::vector<double> x_, sums_, eta_;   // scratch memory
  std::vector<std::uint8_t> takes_, accepted_;
  std::vector<std::vector<Read>> read_;  // by grouping
  const Grouping* pending_ = nullptr;    // decided but not applied
};

}  // namespace stansub
