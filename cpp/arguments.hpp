// Arguments of observations' log likelihoods, affine in phi: numbers that all observations have, and a few coefficients of
// groupings, in columns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "numbers.hpp"

namespace stansub {

// One coefficient of each observation: its place in phi (-1 for none), and its factor.
struct Column {
  const std::int32_t* places;
  Numbers factors;

  // Calls `work` with the number within some observations, place and factor of each.
  template <class Work>
  void each(std::size_t first, std::size_t count, Work work) const {
    const std::int32_t* own = places + first;
    if (factors.is_constant()) {
      const double factor = factors[0];
      for (std::size_t j = 0; j < count; ++j) work(j, own[j], factor);
      return;
    }
    constexpr std::size_t block = 128;
    double some[block];
    for (std::size_t start = 0; start < count; start += block) {
      const std::size_t end = std::min(start + block, count);
      factors.copy(first + start, end - start, some);
      for (std::size_t j = start; j < end; ++j) work(j, own[j], some[j - start]);
    }
  }
};

// One argument of all observations: p numbers, in runs of adjacent columns, at common places of phi; columns; and an offset.
struct Argument {
  std::vector<Run> runs;
  std::vector<std::int32_t> places;
  std::vector<Column> columns;
  Numbers offset;

  std::size_t p() const { return places.size(); }

  // Whether the p numbers are the same for all observations.
  bool is_constant() const {
    return std::all_of(runs.begin(), runs.end(), [](const Run& run) { return run.row == 0; });
  }

  void copy(std::size_t i, double* row) const {
    for (const Run& run : runs) {
      const double* own = run.at(i);
      for (std::size_t c = 0; c < run.width; ++c) *row++ = own[static_cast<std::ptrdiff_t>(c) * run.column];
    }
  }

  // Calls `work` with each run and the places of its columns.
  template <class Work>
  void each_run(Work work) const {
    const std::int32_t* own = places.data();
    for (const Run& run : runs) {
      work(run, own);
      own += run.width;
    }
  }

  // The argument of `count` observations at x, which has a 0 at place -1.
  void at(const double* x, std::size_t first, std::size_t count, double* eta) const {
    std::fill_n(eta, count, 0.0);
    each_run([&](const Run& run, const std::int32_t* own) { add(run, own, x, first, count, eta); });
    for (const Column& column : columns)
      column.each(first, count, [&](std::size_t j, std::int32_t place, double factor) { eta[j] += factor * x[place]; });
    if (offset.is_constant()) {
      const double all = offset[0];
      for (std::size_t j = 0; j < count; ++j) eta[j] += all;
    } else {
      for (std::size_t j = 0; j < count; ++j) eta[j] += offset[first + j];
    }
  }

  // Adds to the gradient by x, which has an element at place -1, that of some observations.
  void add_back(const double* slopes, std::size_t first, std::size_t count, double* sums) const {
    for (const Column& column : columns)
      column.each(first, count, [&](std::size_t j, std::int32_t place, double factor) { sums[place] += factor * slopes[j]; });
    each_run([&](const Run& run, const std::int32_t* own) {
      for (std::size_t c = 0; c < run.width; ++c) {
        const double* from = run.at(first) + static_cast<std::ptrdiff_t>(c) * run.column;
        double sum = 0;
        for (std::size_t j = 0; j < count; ++j) sum += from[static_cast<std::ptrdiff_t>(j) * run.row] * slopes[j];
        sums[own[c]] += sum;
      }
    });
  }

 private:
  static void add(const Run& run, const std::int32_t* own, const double* x, std::size_t first, std::size_t count, double* eta) {
    if (run.column != 1 && run.row != 0) {
      for (std::size_t c = 0; c < run.width; ++c) {
        const double* from = run.at(first) + static_cast<std::ptrdiff_t>(c) * run.column;
        for (std::size_t j = 0; j < count; ++j) eta[j] += from[static_cast<std::ptrdiff_t>(j) * run.row] * x[own[c]];
      }
      return;
    }
    double sum = 0;
    for (std::size_t j = 0; j < count; ++j) {
      if (j == 0 || run.row != 0) {
        const double* row = run.at(first + j);
        sum = 0;
        for (std::size_t c = 0; c < run.width; ++c) sum += row[static_cast<std::ptrdiff_t>(c) * run.column] * x[own[c]];
      }
      eta[j] += sum;
    }
  }
};

// All q arguments of n observations, as functions of phi of dimension `dim`. Numbers stay the caller's.
class Arguments {
 public:
  Arguments(std::vector<Argument> all, std::size_t n, std::size_t dim) : all_(std::move(all)), n_(n), dim_(dim) {
    if (n_ < 1 || all_.empty()) throw std::invalid_argument("there must be observations, of at least one argument");
    for (const Argument& one : all_) {
      std::size_t width = 0;
      for (const Run& run : one.runs) width += run.width;
      if (width != one.p()) throw std::invalid_argument("each number of all observations has a place");
      for (const std::int32_t place : one.places) require_place(place, 0);
      for (const Column& column : one.columns)
        for (std::size_t i = 0; i < n_; ++i) require_place(column.places[i], -1);
    }
  }

  std::size_t size() const { return all_.size(); }
  std::size_t n() const { return n_; }
  std::size_t dim() const { return dim_; }
  const Argument& operator[](std::size_t k) const { return all_[k]; }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

  void require_place(std::int32_t place, std::int32_t least) const {
    if (place < least || place >= static_cast<std::int32_t>(dim_)) throw std::invalid_argument("no such place in phi");
  }

 private:
  std::vector<Argument> all_;
  std::size_t n_, dim_;
};

}  // namespace stansub
