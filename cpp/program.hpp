// The log likelihood of one observation as a straight-line program, over numbers, over jets of derivatives, and over
// jets of intervals, which enclose the derivatives on a box of arguments.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "branches.hpp"
#include "gamma_tails.hpp"
#include "kinks.hpp"
#include "normal_means.hpp"
#include "pool.hpp"
#include "unary.hpp"

namespace stansub {

// Monomials of q variables up to a degree, ordered by degree, and their products.
class Monomials {
 public:
  Monomials(int q, int degree) : q_(q), degree_(degree) {
    std::vector<std::vector<int>> exponents{std::vector<int>(static_cast<std::size_t>(q), 0)};
    for (int d = 0; d <= degree; ++d) {
      starts_.push_back(static_cast<int>(exponents_.size()));
      exponents_.insert(exponents_.end(), exponents.begin(), exponents.end());
      std::vector<std::vector<int>> next;
      for (const auto& one : exponents) {
        int last = q - 1;
        while (last > 0 && one[static_cast<std::size_t>(last)] == 0) --last;
        for (int j = d ? last : 0; j < q; ++j) {
          next.push_back(one);
          ++next.back()[static_cast<std::size_t>(j)];
        }
      }
      exponents = std::move(next);
    }
    starts_.push_back(static_cast<int>(exponents_.size()));
    const int n = size();
    std::map<std::vector<int>, int> places;
    for (int i = 0; i < n; ++i) places[exponents_[static_cast<std::size_t>(i)]] = i;
    products_.assign(static_cast<std::size_t>(n) * static_cast<std::size_t>(n), -1);
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < until(degree - degree_of(i)); ++j) {
        auto sum = exponents_[static_cast<std::size_t>(i)];
        for (int k = 0; k < q; ++k) sum[static_cast<std::size_t>(k)] += exponent(j, k);
        products_[static_cast<std::size_t>(i * n + j)] = places.at(sum);
      }
  }

  int q() const { return q_; }
  int degree() const { return degree_; }
  int size() const { return starts_.back(); }
  int first(int degree) const { return starts_[static_cast<std::size_t>(degree)]; }
  int until(int degree) const { return starts_[static_cast<std::size_t>(degree + 1)]; }
  int exponent(int i, int k) const { return exponents_[static_cast<std::size_t>(i)][static_cast<std::size_t>(k)]; }
  int product(int i, int j) const { return products_[static_cast<std::size_t>(i * size() + j)]; }
  int variable(int k) const { return 1 + k; }
  int degree_of(int i) const {
    int d = 0;
    while (until(d) <= i) ++d;
    return d;
  }

 private:
  int q_, degree_;
  std::vector<std::vector<int>> exponents_;
  std::vector<int> starts_, products_;
};

class ProgramColumns;

// Variants of a program; an observation's first number of data selects one. Later instructions refer to an instruction's result
// by its index; the last result is the log likelihood. An absolute value has, besides its operand, a number of data: the width
// within which expansions and gradients are of a parabola in its place (`Piece`). A branch on parameters is the sum of its sides,
// of which that not taken is 0 (`Side`). `same` is its first operand, which equals the second one, and is enclosed by both.
class Program {
 public:
  // Kinds of instructions before the functions of one variable.
  enum Kind { constant, data, argument, sum, difference, product, log_sum_exp, gamma_above, gamma_below, mean_normal, if_negative, unless_negative, if_nonpositive, unless_nonpositive, same, absolute, n_kinds };
  struct Instruction {
    std::int32_t kind, a, b;
    double value;
  };
  static constexpr std::size_t most_instructions = 8192;

  Program(std::vector<std::vector<Instruction>> variants, std::size_t n_arguments, std::size_t n_data)
      : variants_(std::move(variants)), q_(n_arguments), n_data_(n_data) {
    const auto n_all = static_cast<std::int32_t>(n_kinds + unary::functions().size());
    for (const auto& variant : variants_) {
      if (variant.empty() || variant.size() > most_instructions)
        throw std::invalid_argument("a variant must have 1 to " + std::to_string(most_instructions) + " instructions");
      for (std::size_t at = 0; at < variant.size(); ++at) {
        const auto& one = variant[at];
        const auto before = static_cast<std::int32_t>(at);
        const auto limit = one.kind == data ? static_cast<std::int32_t>(n_data_) : one.kind == argument ? static_cast<std::int32_t>(q_) : before;
        const bool reads = one.kind != constant, two = has_two(one);
        if (one.kind == absolute && (one.b < 0 || one.b >= static_cast<std::int32_t>(n_data_)))
          throw std::invalid_argument("the width of an absolute value is no number of data");
        if (one.kind < 0 || one.kind >= n_all || (reads && (one.a < 0 || one.a >= limit)) || (two && (one.b < 0 || one.b >= before)))
          throw std::invalid_argument("an instruction reads what is not there");
      }
    }
  }

  static bool has_two(const Instruction& one) { return one.kind >= sum && one.kind < absolute; }
  static bool is_side(const Instruction& one) { return one.kind >= if_negative && one.kind <= unless_nonpositive; }
  static Side side(const Instruction& one) { return Side(one.kind == if_negative || one.kind == unless_negative, one.kind == if_negative || one.kind == if_nonpositive); }
  // Whether its operation is a function of two numbers with an own expansion.
  static bool is_expanded(const Instruction& one) { return one.kind >= gamma_above && one.kind <= mean_normal; }
  static double value(const Instruction& one, double a, double b) {
    return one.kind == mean_normal ? NormalMean().value(a, b) : tail(one).value(a, b);
  }
  template <class S>
  static void taylor(const Instruction& one, const S& a, const S& b, int degree, DoubleSeries<S>& out) {
    one.kind == mean_normal ? NormalMean().taylor(a, b, degree, out) : tail(one).taylor(a, b, degree, out);
  }
  static GammaTail tail(const Instruction& one) { return GammaTail(one.kind == gamma_above ? 1 : -1); }

  std::size_t n_arguments() const { return q_; }
  std::size_t n_data() const { return n_data_; }
  const std::vector<std::vector<Instruction>>& variants() const { return variants_; }
  // Evaluates many observations, in scratch memory that is the caller's until the reference goes.
  std::shared_ptr<ProgramColumns> columns() const;
  const std::vector<Instruction>& of(const double* own) const { return variants_[static_cast<std::size_t>(own[0])]; }

  double log_lik(const double* own, const double* eta) const {
    double values[most_instructions];
    const auto& variant = of(own);
    unary::Derivatives found;
    double* out = values;
    for (const auto& one : variant) {
      switch (one.kind) {
        case constant: *out = one.value; break;
        case data: *out = own[one.a]; break;
        case argument: *out = eta[one.a]; break;
        case sum: *out = values[one.a] + values[one.b]; break;
        case difference: *out = values[one.a] - values[one.b]; break;
        case product: *out = values[one.a] * values[one.b]; break;
        case log_sum_exp:
          unary::log1p_exp().at(-std::abs(values[one.a] - values[one.b]), 0, found);
          *out = std::max(values[one.a], values[one.b]) + found.value[0];
          break;
        case gamma_above:
        case gamma_below:
        case mean_normal: *out = value(one, values[one.a], values[one.b]); break;
        case same: *out = values[one.a]; break;
        case if_negative:
        case unless_negative:
        case if_nonpositive:
        case unless_nonpositive: *out = side(one).of(values[one.a], values[one.b]); break;
        case absolute: *out = std::abs(values[one.a]); break;
        default:
          unary::functions()[static_cast<std::size_t>(one.kind - n_kinds)].at(values[one.a], 0, found);
          *out = found.value[0];
      }
      ++out;
    }
    return out[-1];
  }

  // Scratch memory of jets.
  template <class S>
  struct Jets {
    std::vector<S> all, product, change;
  };

  // All Taylor coefficients of the log likelihood where argument k is centre_k + length_k s_k, |s_k - at_k| <= width_k; those
  // of instructions are intersected with the enclosure from the centre's and the next ones, if given. Absolute values are replaced
  // by their pieces, which are those at this very place unless given, by instruction.
  template <class S>
  const S* expand(const Monomials& monomials, const double* own, const double* centre, const double* lengths, const double* at,
                  const double* width, Jets<S>& jets, const Interval* known = nullptr, const Piece* pieces = nullptr) const {
    const auto& variant = of(own);
    const auto n = static_cast<std::size_t>(monomials.size());
    jets.all.assign(variant.size() * n, S{});
    jets.product.resize(2 * n);
    jets.change.resize(n);
    for (std::size_t i = 0; i < variant.size(); ++i) {
      const auto& one = variant[i];
      S* out = &jets.all[i * n];
      const S *a = &jets.all[static_cast<std::size_t>(one.a) * n * (one.kind > argument)],
              *b = &jets.all[static_cast<std::size_t>(one.b) * n * has_two(one)];
      switch (one.kind) {
        case constant: set(out[0], one.value); break;
        case data: set(out[0], own[one.a]); break;
        case argument: set_argument(one.a, monomials, centre, lengths, at, width, out); break;
        case sum:
          for (std::size_t m = 0; m < n; ++m) out[m] = add(a[m], b[m]);
          break;
        case difference:
          for (std::size_t m = 0; m < n; ++m) out[m] = subtract(a[m], b[m]);
          break;
        case product: multiply_jets(monomials, a, b, false, monomials.degree(), out); break;
        case log_sum_exp: {
          // The larger one, which is not lost in rounding, plus a function of the change to the other.
          const bool swaps = lower(b[0]) > lower(a[0]);
          const S *from = swaps ? b : a, *to = swaps ? a : b;
          for (std::size_t m = 0; m < n; ++m) jets.change[m] = subtract(to[m], from[m]);
          S coefficients[unary::most + 1];
          unary::taylor(unary::log1p_exp(), jets.change[0], monomials.degree(), coefficients);
          compose(monomials, coefficients, jets.change.data(), out, jets.product.data());
          for (std::size_t m = 0; m < n; ++m) out[m] = add(from[m], out[m]);
          break;
        }
        case gamma_above:
        case gamma_below:
        case mean_normal: {
          DoubleSeries<S> coefficients;
          taylor(one, a[0], b[0], monomials.degree(), coefficients);
          compose(monomials, coefficients, a, b, out, jets);
          break;
        }
        case if_negative:
        case unless_negative:
        case if_nonpositive:
        case unless_nonpositive: side(one).of(a[0], b, n, out); break;
        case same:
          for (std::size_t m = 0; m < n; ++m) out[m] = both(a[m], b[m]);
          break;
        case absolute: {
          S coefficients[unary::most + 1];
          (pieces ? pieces[i] : Piece::at(lower(a[0]), own[one.b])).taylor(a[0], monomials.degree(), coefficients);
          compose(monomials, coefficients, a, out, jets.product.data());
          break;
        }
        default: {
          S coefficients[unary::most + 1];
          unary::taylor(unary::functions()[static_cast<std::size_t>(one.kind - n_kinds)], a[0], monomials.degree(), coefficients);
          compose(monomials, coefficients, a, out, jets.product.data());
        }
      }
      if (known) cut(monomials, known + i * n, width, out);
    }
    return &jets.all[(variant.size() - 1) * n];
  }

 private:
  // What two enclosures of the same number have in common.
  static double both(double a, double) { return a; }
  static Interval both(const Interval& a, const Interval& b) {
    const Interval found{std::max(a.lo, b.lo), std::min(a.hi, b.hi)};
    return found.lo <= found.hi ? found : a;
  }

  static void set(double& out, double x) { out = x; }
  static void set(Interval& out, double x) { out = {x, x}; }

  static void set_argument(int k, const Monomials& monomials, const double* centre, const double* lengths, const double* at,
                           const double*, double* out) {
    out[0] = centre[k] + lengths[k] * at[k];
    if (monomials.degree() > 0) out[monomials.variable(k)] = lengths[k];
  }
  static void set_argument(int k, const Monomials& monomials, const double* centre, const double* lengths, const double* at,
                           const double* width, Interval* out) {
    const Interval place = Interval::outward(at[k] - width[k], at[k] + width[k]), length{lengths[k], lengths[k]};
    out[0] = add(Interval{centre[k], centre[k]}, multiply(length, place));
    out[monomials.variable(k)] = length;
  }

  // The product up to a degree; without the second one's constant where asked for.
  template <class S>
  static void multiply_jets(const Monomials& monomials, const S* a, const S* b, bool changes, int degree, S* out) {
    for (int d = 0; d <= degree; ++d)
      for (int i = monomials.first(d); i < monomials.until(d); ++i) {
        if (is_zero(a[i])) continue;
        for (int j = changes; j < monomials.until(degree - d); ++j)
          if (!is_zero(b[j])) {
            S& to = out[monomials.product(i, j)];
            to = add(to, multiply(a[i], b[j]));
          }
      }
  }

  // A function of x with these coefficients, by Horner's scheme in the change of x.
  template <class S>
  static void compose(const Monomials& monomials, const S* coefficients, const S* x, S* out, S* scratch) {
    const int degree = monomials.degree();
    out[0] = coefficients[degree];
    for (int k = degree - 1; k >= 0; --k) {
      const auto n = static_cast<std::size_t>(monomials.until(degree - k));
      std::fill(scratch, scratch + n, S{});
      multiply_jets(monomials, out, x, true, degree - k, scratch);
      std::copy(scratch, scratch + n, out);
      out[0] = coefficients[k];
    }
  }

  // The same for a function of two, in the change of the first one with coefficients in that of the second one.
  template <class S>
  static void compose(const Monomials& monomials, const DoubleSeries<S>& coefficients, const S* x, const S* y, S* out, Jets<S>& jets) {
    const int degree = monomials.degree();
    const auto n = static_cast<std::size_t>(monomials.size());
    S *inner = jets.change.data(), *scratch = jets.product.data();
    const auto times = [&](S* one, const S* other) {
      std::fill(scratch, scratch + n, S{});
      multiply_jets(monomials, one, other, true, degree, scratch);
      std::copy(scratch, scratch + n, one);
    };
    for (int k = degree; k >= 0; --k) {
      std::fill(inner, inner + n, S{});
      for (int m = degree - k; m >= 0; --m) {
        times(inner, y);
        inner[0] = coefficients[static_cast<std::size_t>(k)][static_cast<std::size_t>(m)];
      }
      times(out, x);
      for (std::size_t i = 0; i < n; ++i) out[i] = add(out[i], inner[i]);
    }
  }

  // A coefficient on a box is its value at the centre plus the contribution of the next ones.
  static void cut(const Monomials&, const Interval*, const double*, double*) {}
  static void cut(const Monomials& monomials, const Interval* centre, const double* width, Interval* box) {
    for (int d = monomials.degree() - 1; d >= 0; --d)
      for (int i = monomials.first(d); i < monomials.until(d); ++i) {
        Interval found = centre[i];
        for (int k = 0; k < monomials.q(); ++k) {
          const Interval& next = box[monomials.product(i, monomials.variable(k))];
          if (is_zero(next)) continue;
          const double most = next.largest() * (monomials.exponent(i, k) + 1) * width[k] * (1 + 1e-15);
          found = Interval::outward(found.lo - most, found.hi + most);
        }
        box[i] = {std::max(box[i].lo, found.lo), std::min(box[i].hi, found.hi)};
      }
  }

  std::vector<std::vector<Instruction>> variants_;
  std::size_t q_, n_data_;
  mutable Pool<ProgramColumns> columns_;
};

}  // namespace stansub
