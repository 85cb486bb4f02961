// Log likelihoods of many observations with their gradients, by reverse accumulation over columns of numbers; absolute values are
// smooth (`Piece`).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include "program.hpp"
#include "unary.hpp"

namespace stansub {

// Scratch memory is of one thread.
class ProgramGradients {
 public:
  explicit ProgramGradients(const Program& program) : program_(program) {
    std::size_t longest = 0;
    for (const auto& variant : program.variants()) {
      longest = std::max(longest, variant.size());
      auto& moves = moves_.emplace_back();
      for (const auto& one : variant) {
        const bool reads = one.kind > Program::argument, two = one.kind >= Program::sum && one.kind <= Program::product;
        moves.push_back(one.kind == Program::argument ||
                        (reads && (moves[static_cast<std::size_t>(one.a)] || (two && moves[static_cast<std::size_t>(one.b)]))));
      }
    }
    values_.resize(longest * block);
    slopes_.resize(longest * block);
    adjoints_.resize(longest * block);
    gradients_.resize(program.n_arguments() * block);
  }

  // Rows of data, of arguments and of `out` have n numbers; those of `out` are log likelihoods and their derivatives.
  void operator()(const double* data, const double* eta, std::size_t n, double* out) {
    for (std::size_t first = 0; first < n; first += block) {
      const std::size_t end = std::min(first + block, n);
      std::size_t done = 0;
      for (std::size_t v = 0; v < moves_.size(); ++v, done += count_) {
        count_ = 0;
        for (std::size_t i = first; i < end; ++i)
          if (data[i] == static_cast<double>(v)) which_[count_++] = i;
        is_run_ = count_ == end - first;
        if (count_) run(v, data, eta, n, out);
      }
      if (done != end - first) throw std::invalid_argument("the first number of data must be that of a variant");
    }
  }

 private:
  static constexpr std::size_t block = 256;

  void run(std::size_t v, const double* data, const double* eta, std::size_t n, double* out) {
    const auto& variant = program_.variants()[v];
    for (std::size_t at = 0; at < variant.size(); ++at) forward(variant[at], at, data, eta, n);
    scatter(row(values_, variant.size() - 1), out);
    std::fill_n(gradients_.begin(), program_.n_arguments() * block, 0.0);
    std::fill(adjoints_.begin(), adjoints_.begin() + static_cast<std::ptrdiff_t>(variant.size() * block), 0.0);
    std::fill_n(row(adjoints_, variant.size() - 1), count_, 1.0);
    for (std::size_t at = variant.size(); at-- > 0;)
      if (moves_[v][at]) backward(variant[at], at);
    for (std::size_t k = 0; k < program_.n_arguments(); ++k) scatter(row(gradients_, k), out + (k + 1) * n);
  }

  void forward(const Program::Instruction& one, std::size_t at, const double* data, const double* eta, std::size_t n) {
    double* x = row(values_, at);
    const double *a = row(values_, one.a), *b = row(values_, one.b);
    switch (one.kind) {
      case Program::constant: std::fill_n(x, count_, one.value); break;
      case Program::data:
      case Program::argument: {
        const double* from = (one.kind == Program::data ? data : eta) + static_cast<std::size_t>(one.a) * n;
        if (is_run_)
          std::copy_n(from + which_[0], count_, x);
        else
          for (std::size_t j = 0; j < count_; ++j) x[j] = from[which_[j]];
        break;
      }
      case Program::sum:
        for (std::size_t j = 0; j < count_; ++j) x[j] = a[j] + b[j];
        break;
      case Program::difference:
        for (std::size_t j = 0; j < count_; ++j) x[j] = a[j] - b[j];
        break;
      case Program::product:
        for (std::size_t j = 0; j < count_; ++j) x[j] = a[j] * b[j];
        break;
      case Program::absolute:
        for (std::size_t j = 0; j < count_; ++j) {
          const Piece piece = Piece::at(a[j], data[static_cast<std::size_t>(one.b) * n + which_[j]]);
          x[j] = piece(a[j]);
          row(slopes_, at)[j] = piece.slope + 2 * piece.curve * a[j];
        }
        break;
      default:
        unary::slopes(unary::functions()[static_cast<std::size_t>(one.kind - Program::n_kinds)], a, count_, x, row(slopes_, at));
    }
  }

  void backward(const Program::Instruction& one, std::size_t at) {
    const double *own = row(adjoints_, at), *x = row(values_, one.a), *y = row(values_, one.b);
    double *a = row(adjoints_, one.a), *b = row(adjoints_, one.b);
    switch (one.kind) {
      case Program::argument:
        a = row(gradients_, one.a);
        for (std::size_t j = 0; j < count_; ++j) a[j] += own[j];
        break;
      case Program::sum:
        for (std::size_t j = 0; j < count_; ++j) a[j] += own[j];
        for (std::size_t j = 0; j < count_; ++j) b[j] += own[j];
        break;
      case Program::difference:
        for (std::size_t j = 0; j < count_; ++j) a[j] += own[j];
        for (std::size_t j = 0; j < count_; ++j) b[j] -= own[j];
        break;
      case Program::product:
        for (std::size_t j = 0; j < count_; ++j) a[j] += own[j] * y[j];
        for (std::size_t j = 0; j < count_; ++j) b[j] += own[j] * x[j];
        break;
      default: {
        const double* slopes = row(slopes_, at);
        for (std::size_t j = 0; j < count_; ++j) a[j] += own[j] * slopes[j];
      }
    }
  }

  void scatter(const double* from, double* to) const {
    if (is_run_)
      std::copy_n(from, count_, to + which_[0]);
    else
      for (std::size_t j = 0; j < count_; ++j) to[which_[j]] = from[j];
  }

  // The numbers of an instruction; constants and arguments refer to others than instructions.
  template <class Index>
  double* row(std::vector<double>& all, Index at) {
    const auto k = static_cast<std::size_t>(at);
    return k < all.size() / block ? &all[k * block] : nullptr;
  }

  const Program& program_;
  std::vector<std::vector<bool>> moves_;  // whether an instruction depends on arguments
  std::vector<double> values_, slopes_, adjoints_, gradients_;
  std::size_t which_[block], count_ = 0;  // observations of a variant in a block
  bool is_run_ = false;                   // whether they are all of the block
};

}  // namespace stansub
