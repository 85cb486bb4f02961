// Log likelihoods of many observations over columns of numbers, with gradients by reverse accumulation and Hessians by its
// derivatives in each argument. For derivatives, absolute values are smooth (`Piece`).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <vector>

#include "program.hpp"
#include "unary.hpp"

namespace stansub {

// Scratch memory is of one thread.
class ProgramColumns {
 public:
  explicit ProgramColumns(const Program& program) : program_(program) {
    std::size_t longest = 0;
    for (const auto& variant : program.variants()) {
      longest = std::max(longest, variant.size());
      auto& moves = moves_.emplace_back();
      has_sides_.push_back(std::any_of(variant.begin(), variant.end(), Program::is_side));
      reads_.push_back(read_by(variant));
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

  // Rows of numbers, at a distance from each other.
  template <class T>
  struct Rows {
    T* first;
    std::size_t distance;
    T* operator[](std::size_t k) const { return first + k * distance; }
  };

  // Of up to `block` observations, log likelihoods in the first row, derivatives by each argument in the next ones if the order is at
  // least 1, and those by each two in further ones if it is 2.
  void derivatives(int order, Rows<const double> data, Rows<const double> eta, std::size_t n, Rows<double> out) {
    if (order == 2)
      for (auto* rows : {&curves_, &mixed_curves_, &other_curves_, &tangents_, &adjoint_tangents_}) rows->resize(values_.size());
    for_variants(data, n, [&](std::size_t v) {
      switch (order) {
        case 0: return forward<0>(v, data, eta, out[0]);
        case 1: forward<1>(v, data, eta, out[0]); break;
        default: forward<2>(v, data, eta, out[0]);
      }
      has_sides_[v] ? backward<true>(v, order, out) : backward<false>(v, order, out);
    });
  }

 private:
  // Whether each instruction has a part in the log likelihood; what only encloses the same number has none.
  static std::vector<bool> read_by(const std::vector<Program::Instruction>& variant) {
    std::vector<bool> reads(variant.size());
    if (!reads.empty()) reads.back() = true;
    for (std::size_t at = variant.size(); at-- > 0;) {
      const auto& one = variant[at];
      if (!reads[at] || one.kind <= Program::argument) continue;
      reads[static_cast<std::size_t>(one.a)] = true;
      if (Program::has_two(one) && one.kind != Program::same) reads[static_cast<std::size_t>(one.b)] = true;
    }
    return reads;
  }

  template <class Work>
  void for_variants(Rows<const double> data, std::size_t n, Work work) {
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
      if (count_) work(v);
    }
    if (done != n) throw std::invalid_argument("the first number of data must be that of a variant");
  }

  // Values, and derivatives of each instruction by its operands up to an order.
  template <int order>
  void forward(std::size_t v, Rows<const double> data, Rows<const double> eta, double* out) {
    const auto& variant = program_.variants()[v];
    for (std::size_t at = 0; at < variant.size(); ++at)
      if (reads_[v][at]) forward<order>(variant[at], at, data, eta);
    scatter(at_[variant.size() - 1], out);
  }

  // With `guarded`, what is not read has no derivative even where its own is undefined, as on the side of a branch that is not taken.
  template <bool guarded>
  static double times(double adjoint, double slope) { return guarded && adjoint == 0 ? 0 : adjoint * slope; }

  template <bool guarded>
  void backward(std::size_t v, int order, Rows<double> out) {
    gradient<guarded>(v, out);
    if (order == 2) hessian<guarded>(v, out);
  }

  template <bool guarded>
  void gradient(std::size_t v, Rows<double> out) {
    const auto& variant = program_.variants()[v];
    const std::size_t last = variant.size() - 1;
    std::fill_n(has_adjoint_, last, false);
    std::fill(has_gradient_.begin(), has_gradient_.end(), false);
    std::fill_n(row(adjoints_, last), count_, 1.0);
    has_adjoint_[last] = true;
    for (std::size_t at = variant.size(); at-- > 0;)
      if (moves_[v][at] && has_adjoint_[at]) backward<guarded>(variant[at], at, moves_[v]);
    for (std::size_t k = 0; k < program_.n_arguments(); ++k) {
      if (!has_gradient_[k]) std::fill_n(row(gradients_, k), count_, 0.0);
      scatter(row(gradients_, k), out[k + 1]);
    }
  }

  template <int order>
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
        for (std::size_t j = 0; j < count_; ++j) change[j] = -std::abs(b[j] - a[j]);
        evaluate<order>(unary::log1p_exp(), change, x, share, row(curves_, at));
        for (std::size_t j = 0; j < count_; ++j) {
          x[j] += std::max(a[j], b[j]);
          if (order > 0 && b[j] > a[j]) share[j] = 1 - share[j];
        }
        break;
      }
      case Program::gamma_above:
      case Program::gamma_below:
      case Program::mean_normal: {
        if constexpr (order == 0) {
          for (std::size_t j = 0; j < count_; ++j) x[j] = Program::value(one, a[j], b[j]);
          break;
        }
        DoubleSeries<double> found;
        for (std::size_t j = 0; j < count_; ++j) {
          Program::taylor(one, a[j], b[j], order, found);
          x[j] = found[0][0];
          row(slopes_, at)[j] = found[1][0];
          row(other_slopes_, at)[j] = found[0][1];
          if constexpr (order < 2) continue;
          row(curves_, at)[j] = 2 * found[2][0];
          row(mixed_curves_, at)[j] = found[1][1];
          row(other_curves_, at)[j] = 2 * found[0][2];
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
          if constexpr (order > 0) row(slopes_, at)[j] = side.of(a[j], 1);
        }
        break;
      }
      case Program::absolute:
        for (std::size_t j = 0; j < count_; ++j) {
          if constexpr (order == 0) {
            x[j] = std::abs(a[j]);
            continue;
          }
          const Piece piece = Piece::at(a[j], data[static_cast<std::size_t>(one.b)][is_run_ ? j : which_[j]]);
          x[j] = piece(a[j]);
          row(slopes_, at)[j] = piece.slope + 2 * piece.curve * a[j];
          if constexpr (order == 2) row(curves_, at)[j] = 2 * piece.curve;
        }
        break;
      default:
        evaluate<order>(unary::functions()[static_cast<std::size_t>(one.kind - Program::n_kinds)], a, x, row(slopes_, at),
                        row(curves_, at));
    }
  }

  template <int order>
  void evaluate(const unary::Function& function, const double* x, double* value, double* slope, double* curve) const {
    double* out[] = {value, slope, curve};
    unary::derivatives(function, x, count_, order, out);
  }

  // Passes numbers of an operation on to what it reads, to the gradient from an argument, and returns whether that is all: the
  // derivatives of such an operation do not change.
  template <bool guarded, class Add>
  bool passes_on(const Program::Instruction& one, const double* own, const double* slopes, Add add) {
    const auto as_they_are = [&](std::size_t j) { return own[j]; };
    switch (one.kind) {
      case Program::argument: add_to(row(gradients_, one.a), has_gradient_[static_cast<std::size_t>(one.a)], as_they_are); return true;
      case Program::same: add(one.a, as_they_are); return true;
      case Program::sum: add(one.a, as_they_are); add(one.b, as_they_are); return true;
      case Program::difference: add(one.a, as_they_are); add(one.b, [&](std::size_t j) { return -own[j]; }); return true;
      case Program::if_negative:
      case Program::unless_negative:
      case Program::if_nonpositive:
      case Program::unless_nonpositive: add(one.b, [&](std::size_t j) { return times<guarded>(own[j], slopes[j]); }); return true;
      default: return false;
    }
  }

  template <bool guarded>
  void backward(const Program::Instruction& one, std::size_t at, const std::vector<bool>& moves) {
    const double *own = row(adjoints_, at), *x = value(one.a), *y = value(one.b);
    const double *slopes = row(slopes_, at), *others = row(other_slopes_, at);
    const auto add = [&](std::int32_t to, auto each) {
      const auto k = static_cast<std::size_t>(to);
      if (moves[k]) add_to(row(adjoints_, to), has_adjoint_[k], each);
    };
    if (passes_on<guarded>(one, own, slopes, add)) return;
    switch (one.kind) {
      case Program::product:
        add(one.a, [&](std::size_t j) { return times<guarded>(own[j], y[j]); });
        add(one.b, [&](std::size_t j) { return times<guarded>(own[j], x[j]); });
        break;
      case Program::log_sum_exp:
        add(one.a, [&](std::size_t j) { return times<guarded>(own[j], 1 - slopes[j]); });
        add(one.b, [&](std::size_t j) { return times<guarded>(own[j], slopes[j]); });
        break;
      case Program::gamma_above:
      case Program::gamma_below:
      case Program::mean_normal:
        add(one.a, [&](std::size_t j) { return times<guarded>(own[j], slopes[j]); });
        add(one.b, [&](std::size_t j) { return times<guarded>(own[j], others[j]); });
        break;
      default: add(one.a, [&](std::size_t j) { return times<guarded>(own[j], slopes[j]); });
    }
  }

  template <bool guarded>
  void hessian(std::size_t v, Rows<double> out) {
    const std::size_t q = program_.n_arguments();
    for (std::size_t k = 0; k < q; ++k) {
      move_along(v, k);
      move_back<guarded>(v, k);
      for (std::size_t j = 0; j <= k; ++j) {
        scatter(row(gradients_, j), out[1 + q + k * q + j]);
        if (j < k) scatter(row(gradients_, j), out[1 + q + j * q + k]);
      }
    }
  }

  // Derivatives of values by argument k.
  void move_along(std::size_t v, std::size_t k) {
    const auto& variant = program_.variants()[v];
    for (std::size_t at = 0; at < variant.size(); ++at) {
      const auto& one = variant[at];
      const bool reads = one.kind > Program::argument, two = Program::has_two(one);
      depends_[at] = reads ? depends_[one.a] || (two && depends_[one.b])
                           : one.kind == Program::argument && static_cast<std::size_t>(one.a) == k;
      if (!depends_[at] || !reads_[v][at]) continue;
      double* out = row(tangents_, at);
      if (!reads) {
        std::fill_n(out, count_, 1.0);
        continue;
      }
      const double *a = tangent(one.a), *b = two ? tangent(one.b) : nullptr, *x = value(one.a), *y = value(one.b);
      const double *slopes = row(slopes_, at), *others = row(other_slopes_, at);
      switch (one.kind) {
        case Program::sum: set(out, [&](std::size_t j) { return a[j] + b[j]; }); break;
        case Program::difference: set(out, [&](std::size_t j) { return a[j] - b[j]; }); break;
        case Program::product: set(out, [&](std::size_t j) { return a[j] * y[j] + x[j] * b[j]; }); break;
        case Program::log_sum_exp: set(out, [&](std::size_t j) { return a[j] + slopes[j] * (b[j] - a[j]); }); break;
        case Program::same: set(out, [&](std::size_t j) { return a[j]; }); break;
        case Program::if_negative:
        case Program::unless_negative:
        case Program::if_nonpositive:
        case Program::unless_nonpositive: set(out, [&](std::size_t j) { return times<true>(slopes[j], b[j]); }); break;
        case Program::gamma_above:
        case Program::gamma_below:
        case Program::mean_normal: set(out, [&](std::size_t j) { return slopes[j] * a[j] + others[j] * b[j]; }); break;
        default: set(out, [&](std::size_t j) { return slopes[j] * a[j]; });
      }
    }
  }

  // Derivatives of adjoints, and so of the gradient, by the same argument.
  template <bool guarded>
  void move_back(std::size_t v, std::size_t k) {
    const auto& variant = program_.variants()[v];
    std::fill_n(has_adjoint_tangent_, variant.size(), false);
    std::fill(has_gradient_.begin(), has_gradient_.end(), false);
    for (std::size_t at = variant.size(); at-- > 0;) {
      const auto& one = variant[at];
      const bool reads = one.kind > Program::argument, two = Program::has_two(one);
      if (!moves_[v][at] || !has_adjoint_[at]) continue;
      if (has_adjoint_tangent_[at] || (reads && (depends_[one.a] || (two && depends_[one.b])))) move_back<guarded>(one, at, moves_[v]);
    }
    for (std::size_t j = 0; j <= k; ++j)
      if (!has_gradient_[j]) std::fill_n(row(gradients_, j), count_, 0.0);
  }

  template <bool guarded>
  void move_back(const Program::Instruction& one, std::size_t at, const std::vector<bool>& moves) {
    const double *adjoint = row(adjoints_, at), *own = has_adjoint_tangent_[at] ? row(adjoint_tangents_, at) : zeros_;
    const double *a = tangent(one.a), *b = Program::has_two(one) ? tangent(one.b) : zeros_, *x = value(one.a), *y = value(one.b);
    const double *slopes = row(slopes_, at), *others = row(other_slopes_, at), *curves = row(curves_, at);
    const auto add = [&](std::int32_t to, auto each) {
      const auto k = static_cast<std::size_t>(to);
      if (moves[k]) add_to(row(adjoint_tangents_, to), has_adjoint_tangent_[k], each);
    };
    if (passes_on<guarded>(one, own, slopes, add)) return;
    switch (one.kind) {
      case Program::product:
        add(one.a, [&](std::size_t j) { return times<guarded>(own[j], y[j]) + times<guarded>(adjoint[j], b[j]); });
        add(one.b, [&](std::size_t j) { return times<guarded>(own[j], x[j]) + times<guarded>(adjoint[j], a[j]); });
        break;
      case Program::log_sum_exp: {
        const auto change = [&](std::size_t j) { return times<guarded>(adjoint[j], curves[j] * (b[j] - a[j])); };
        add(one.a, [&](std::size_t j) { return times<guarded>(own[j], 1 - slopes[j]) - change(j); });
        add(one.b, [&](std::size_t j) { return times<guarded>(own[j], slopes[j]) + change(j); });
        break;
      }
      case Program::gamma_above:
      case Program::gamma_below:
      case Program::mean_normal: {
        const double *mixed = row(mixed_curves_, at), *other_curves = row(other_curves_, at);
        add(one.a, [&](std::size_t j) { return times<guarded>(own[j], slopes[j]) + times<guarded>(adjoint[j], curves[j] * a[j] + mixed[j] * b[j]); });
        add(one.b, [&](std::size_t j) { return times<guarded>(own[j], others[j]) + times<guarded>(adjoint[j], mixed[j] * a[j] + other_curves[j] * b[j]); });
        break;
      }
      default: add(one.a, [&](std::size_t j) { return times<guarded>(own[j], slopes[j]) + times<guarded>(adjoint[j], curves[j] * a[j]); });
    }
  }

  const double* tangent(std::int32_t at) { return depends_[at] ? row(tangents_, at) : zeros_; }

  template <class Each>
  void set(double* to, Each each) const {
    for (std::size_t j = 0; j < count_; ++j) to[j] = each(j);
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
  std::vector<std::vector<bool>> reads_;  // whether an instruction has a part in the result
  std::vector<double> values_, slopes_, other_slopes_, adjoints_, gradients_;
  std::vector<double> curves_, mixed_curves_, other_curves_, tangents_, adjoint_tangents_;  // for Hessians
  std::vector<char> has_gradient_;
  char has_adjoint_[Program::most_instructions] = {}, has_adjoint_tangent_[Program::most_instructions] = {};
  char depends_[Program::most_instructions] = {};  // whether an instruction depends on the argument in question
  double zeros_[block] = {};
  std::size_t which_[block], count_ = 0;  // observations of a variant in a block
  bool is_run_ = false;                   // whether they are all of the block; then `which_` is not set
};

inline std::shared_ptr<ProgramColumns> Program::columns() const {
  return columns_.take([this] { return std::make_shared<ProgramColumns>(*this); });
}

}  // namespace stansub
