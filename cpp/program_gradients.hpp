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
      has_sides_.push_back(std::any_of(variant.begin(), variant.end(), Program::is_side));
      for (const auto& one : variant) {
        const bool reads = one.kind > Program::argument, two = Program::has_two(one);
        moves.push_back(one.kind == Program::argument ||
                        (reads && (moves[static_cast<std::size_t>(one.a)] || (two && moves[static_cast<std::size_t>(one.b)]))));
      }
    }
    values_.resize(longest * block);
    slopes_.resize(longest * block);
    other_slopes_.resize(longest * block);
    adjoints_.resize(longest * block);
    gradients_.resize(program.n_arguments() * block);
    has_gradient_.resize(program.n_arguments());
  }

  static constexpr std::size_t block = 128;

  // Rows of data, of arguments and of `out` have n numbers; those of `out` are log likelihoods and their derivatives.
  void operator()(const double* data, const double* eta, std::size_t n, double* out) {
    for (std::size_t first = 0; first < n; first += block)
      run({data + first, n}, {eta + first, n}, std::min(block, n - first), {out + first, n});
  }

  // Rows of numbers, at a distance from each other.
  template <class T>
  struct Rows {
    T* first;
    std::size_t distance;
    T* operator[](std::size_t k) const { return first + k * distance; }
  };

  // The same for up to `block` observations.
  void run(Rows<const double> data, Rows<const double> eta, std::size_t n, Rows<double> out) {
    std::size_t done = 0;
    for (std::size_t v = 0; v < moves_.size(); ++v, done += count_) {
      const auto variant = static_cast<double>(v);
      count_ = 0;
      for (std::size_t i = 0; i < n; ++i) count_ += data[0][i] == variant;
      is_run_ = count_ == n;
      for (std::size_t i = 0, j = 0; !is_run_ && j < count_; ++i) {
        which_[j] = i;
        j += data[0][i] == variant;
      }
      if (count_) run(v, data, eta, out);
    }
    if (done != n) throw std::invalid_argument("the first number of data must be that of a variant");
  }

 private:
  void run(std::size_t v, Rows<const double> data, Rows<const double> eta, Rows<double> out) {
    const auto& variant = program_.variants()[v];
    const std::size_t last = variant.size() - 1;
    for (std::size_t at = 0; at <= last; ++at) forward(variant[at], at, data, eta);
    scatter(at_[last], out[0]);
    std::fill_n(has_adjoint_, last, false);
    std::fill(has_gradient_.begin(), has_gradient_.end(), false);
    std::fill_n(row(adjoints_, last), count_, 1.0);
    has_adjoint_[last] = true;
    for (std::size_t at = variant.size(); at-- > 0;)
      if (moves_[v][at] && has_adjoint_[at])
        has_sides_[v] ? backward<true>(variant[at], at, moves_[v]) : backward<false>(variant[at], at, moves_[v]);
    for (std::size_t k = 0; k < program_.n_arguments(); ++k) {
      if (!has_gradient_[k]) std::fill_n(row(gradients_, k), count_, 0.0);
      scatter(row(gradients_, k), out[k + 1]);
    }
  }

  void forward(const Program::Instruction& one, std::size_t at, Rows<const double> data, Rows<const double> eta) {
    double* x = row(values_, at);
    const double *a = value(one.a), *b = value(one.b);
    at_[at] = x;
    switch (one.kind) {
      case Program::constant: std::fill_n(x, count_, one.value); break;
      case Program::data:
      case Program::argument: {
        const double* from = (one.kind == Program::data ? data : eta)[static_cast<std::size_t>(one.a)];
        if (is_run_)
          at_[at] = from;
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
      case Program::log_sum_exp: {
        // The slope is the share of the second one in the sum.
        double *change = row(adjoints_, at), *share = row(slopes_, at);
        for (std::size_t j = 0; j < count_; ++j) change[j] = b[j] - a[j];
        unary::slopes(unary::log1p_exp(), change, count_, x, share);
        for (std::size_t j = 0; j < count_; ++j)
          x[j] = change[j] > 0 ? b[j] + (x[j] - change[j]) : a[j] + x[j];
        break;
      }
      case Program::gamma_above:
      case Program::gamma_below:
      case Program::mean_normal: {
        DoubleSeries<double> found;
        for (std::size_t j = 0; j < count_; ++j) {
          Program::taylor(one, a[j], b[j], 1, found);
          x[j] = found[0][0];
          row(slopes_, at)[j] = found[1][0];
          row(other_slopes_, at)[j] = found[0][1];
        }
        break;
      }
      case Program::same: at_[at] = a; break;
      case Program::if_negative:
      case Program::unless_negative:
      case Program::if_nonpositive:
      case Program::unless_nonpositive: {
        const Side side = Program::side(one);
        for (std::size_t j = 0; j < count_; ++j) {
          x[j] = side.of(a[j], b[j]);
          row(slopes_, at)[j] = side.of(a[j], 1);
        }
        break;
      }
      case Program::absolute:
        for (std::size_t j = 0; j < count_; ++j) {
          const Piece piece = Piece::at(a[j], data[static_cast<std::size_t>(one.b)][is_run_ ? j : which_[j]]);
          x[j] = piece(a[j]);
          row(slopes_, at)[j] = piece.slope + 2 * piece.curve * a[j];
        }
        break;
      default:
        unary::slopes(unary::functions()[static_cast<std::size_t>(one.kind - Program::n_kinds)], a, count_, x, row(slopes_, at));
    }
  }

  // With `guarded`, what is not read has no derivative even where its own is undefined, as on the side of a branch that is not taken.
  template <bool guarded>
  void backward(const Program::Instruction& one, std::size_t at, const std::vector<bool>& moves) {
    const double *own = row(adjoints_, at), *x = value(one.a), *y = value(one.b);
    const auto times = [](double adjoint, double slope) { return guarded && adjoint == 0 ? 0 : adjoint * slope; };
    const auto add = [&](std::int32_t to, auto each) {
      const auto k = static_cast<std::size_t>(to);
      if (moves[k]) add_to(row(adjoints_, to), has_adjoint_[k], each);
    };
    switch (one.kind) {
      case Program::argument:
        add_to(row(gradients_, one.a), has_gradient_[static_cast<std::size_t>(one.a)], [&](std::size_t j) { return own[j]; });
        break;
      case Program::sum:
        add(one.a, [&](std::size_t j) { return own[j]; });
        add(one.b, [&](std::size_t j) { return own[j]; });
        break;
      case Program::difference:
        add(one.a, [&](std::size_t j) { return own[j]; });
        add(one.b, [&](std::size_t j) { return -own[j]; });
        break;
      case Program::product:
        add(one.a, [&](std::size_t j) { return times(own[j], y[j]); });
        add(one.b, [&](std::size_t j) { return times(own[j], x[j]); });
        break;
      case Program::log_sum_exp: {
        const double* share = row(slopes_, at);
        add(one.a, [&](std::size_t j) { return times(own[j], 1 - share[j]); });
        add(one.b, [&](std::size_t j) { return times(own[j], share[j]); });
        break;
      }
      case Program::gamma_above:
      case Program::gamma_below:
      case Program::mean_normal: {
        const double *slopes = row(slopes_, at), *others = row(other_slopes_, at);
        add(one.a, [&](std::size_t j) { return times(own[j], slopes[j]); });
        add(one.b, [&](std::size_t j) { return times(own[j], others[j]); });
        break;
      }
      case Program::same:
        add(one.a, [&](std::size_t j) { return own[j]; });
        break;
      case Program::if_negative:
      case Program::unless_negative:
      case Program::if_nonpositive:
      case Program::unless_nonpositive: {
        const double* slopes = row(slopes_, at);
        add(one.b, [&](std::size_t j) { return times(own[j], slopes[j]); });
        break;
      }
      default: {
        const double* slopes = row(slopes_, at);
        add(one.a, [&](std::size_t j) { return times(own[j], slopes[j]); });
      }
    }
  }

  // Adds numbers to a row; the first ones need no zeros there.
  template <class Each>
  void add_to(double* to, char& has_any, Each each) const {
    if (has_any)
      for (std::size_t j = 0; j < count_; ++j) to[j] += each(j);
    else
      for (std::size_t j = 0; j < count_; ++j) to[j] = each(j);
    has_any = true;
  }

  void scatter(const double* from, double* to) const {
    if (is_run_)
      std::copy_n(from, count_, to);
    else
      for (std::size_t j = 0; j < count_; ++j) to[which_[j]] = from[j];
  }

  // The numbers of an instruction; constants and arguments refer to others than instructions.
  template <class Index>
  double* row(std::vector<double>& all, Index at) {
    const auto k = static_cast<std::size_t>(at);
    return k < all.size() / block ? &all[k * block] : nullptr;
  }

  const double* value(std::int32_t at) const {
    const auto k = static_cast<std::size_t>(at);
    return k < Program::most_instructions ? at_[k] : nullptr;
  }

  const Program& program_;
  const double* at_[Program::most_instructions] = {};  // where the values of an instruction are
  std::vector<std::vector<bool>> moves_;  // whether an instruction depends on arguments
  std::vector<bool> has_sides_;           // whether a variant has a branch
  std::vector<double> values_, slopes_, other_slopes_, adjoints_, gradients_;
  std::vector<char> has_gradient_;
  char has_adjoint_[Program::most_instructions] = {};
  std::size_t which_[block], count_ = 0;  // observations of a variant in a block
  bool is_run_ = false;                   // whether they are all of the block; then `which_` is not set
};

}  // namespace stansub
