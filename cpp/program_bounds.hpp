// Bounds on the errors of expansions of a program, by interval arithmetic.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "kinks.hpp"
#include "program.hpp"
#include "unary.hpp"

namespace stansub {

// What absolute values add to the errors of a program's expansions.
//
// The log likelihood f differs from that with pieces in their place, which is expanded. One absolute value is replaced after the
// other: each time f changes by a mean derivative with respect to the absolute value, times |u| less its piece. The derivative is
// enclosed on the box by reverse accumulation, with the slope of an absolute value between -1 and 1 where its kink is in the box.
class ProgramKinks {
 public:
  ProgramKinks(const Program& program, double floor)
      : program_(program), floor_(floor), q_(program.n_arguments()), monomials_(static_cast<int>(q_), 1) {}

  // The pieces of an observation at the centre, by instruction; null if it has no absolute values.
  const Piece* pieces(const double* own, const double* centre, const double* lengths) {
    const auto& variant = program_.of(own);
    const auto is_kink = [](const Program::Instruction& one) { return one.kind == Program::absolute; };
    if (std::none_of(variant.begin(), variant.end(), is_kink)) return nullptr;
    const std::vector<double> nothing(q_, 0.0);
    program_.expand(monomials_, own, centre, lengths, nothing.data(), nothing.data(), centre_);
    pieces_.assign(variant.size(), Piece{});
    for (std::size_t i = 0; i < variant.size(); ++i)
      if (is_kink(variant[i])) pieces_[i] = Piece::at(operand(variant[i]), own[variant[i].b]);
    return pieces_.data();
  }

  // How far the operand of an absolute value moves, at the centre: the sum of its derivatives times lengths.
  double length(const Program::Instruction& one) const {
    double sum = 0;
    for (std::size_t k = 0; k < q_; ++k) sum += std::abs(centre_.all[jet(one.a) + 1 + k]);
    return sum;
  }

  // The bound as a multiple of floor + t^3, where arguments differ from the centre by lengths * t, t <= radius, after `pieces`.
  double largest(const double* own, const double* centre, const double* lengths, double radius) {
    const auto& variant = program_.of(own);
    const std::vector<double> nothing(q_, 0.0), width(q_, radius);
    program_.expand(monomials_, own, centre, lengths, nothing.data(), width.data(), box_, nullptr, pieces_.data());
    double total = 0;
    bool has_slopes = false;
    for (std::size_t i = 0; i < variant.size(); ++i) {
      const auto& one = variant[i];
      if (one.kind != Program::absolute) continue;
      double moves = 0;
      for (std::size_t k = 0; k < q_; ++k) moves += box_.all[jet(one.a) + 1 + k].largest() * (1 + 1e-15);
      const KinkError error(operand(one), pieces_[i], moves, radius, floor_);
      if (error.is_none()) continue;
      if (!has_slopes) set_slopes(variant, own, centre, lengths, radius);
      has_slopes = true;
      const Interval slope = slopes_[i];
      const double middle = std::abs(0.5 * slope.lo + 0.5 * slope.hi), rest = 0.5 * slope.hi - 0.5 * slope.lo;
      if (!std::isfinite(middle + rest)) return Interval::infinity;
      if (middle > 0) total += middle * error.largest(error.start());
      if (rest > 0) total += rest * (1 + 1e-12) * error.largest(0);
    }
    return total * (1 + 1e-12);
  }

 private:
  std::size_t jet(std::int32_t instruction) const { return static_cast<std::size_t>(instruction * monomials_.size()); }
  double operand(const Program::Instruction& one) const { return centre_.all[jet(one.a)]; }

  // Enclosures of the derivatives of the log likelihood with respect to each instruction, for absolute values and their pieces.
  void set_slopes(const std::vector<Program::Instruction>& variant, const double* own, const double* centre, const double* lengths,
                  double radius) {
    values_.resize(variant.size());
    own_slopes_.resize(variant.size());
    other_slopes_.resize(variant.size());
    for (std::size_t i = 0; i < variant.size(); ++i) {
      const auto& one = variant[i];
      const auto a = static_cast<std::size_t>(one.a), b = static_cast<std::size_t>(one.b);
      switch (one.kind) {
        case Program::constant: values_[i] = {one.value, one.value}; break;
        case Program::data: values_[i] = {own[a], own[a]}; break;
        case Program::argument:
          values_[i] = add(Interval{centre[a], centre[a]}, Interval::outward(-lengths[a] * radius, lengths[a] * radius));
          break;
        case Program::sum: values_[i] = add(values_[a], values_[b]); break;
        case Program::difference: values_[i] = subtract(values_[a], values_[b]); break;
        case Program::product: values_[i] = multiply(values_[a], values_[b]); break;
        case Program::log_sum_exp: {
          Interval found[2];
          unary::taylor(unary::log1p_exp(), subtract(values_[b], values_[a]), 1, found);
          values_[i] = add(values_[a], found[0]);
          own_slopes_[i] = found[1];
          break;
        }
        case Program::gamma_above:
        case Program::gamma_below:
        case Program::mean_normal: {
          DoubleSeries<Interval> found;
          Program::taylor(one, values_[a], values_[b], 1, found);
          values_[i] = found[0][0];
          own_slopes_[i] = found[1][0];
          other_slopes_[i] = found[0][1];
          break;
        }
        case Program::same: values_[i] = values_[a]; break;
        case Program::if_negative:
        case Program::unless_negative:
        case Program::if_nonpositive:
        case Program::unless_nonpositive: Program::side(one).of(values_[a], &values_[b], 1, &values_[i]); break;
        case Program::absolute: {
          Interval piece[1];
          pieces_[i].taylor(values_[a], 0, piece);
          values_[i] = hull(stansub::absolute(values_[a]), piece[0]);
          own_slopes_[i] = sign(values_[a]);
          break;
        }
        default: {
          Interval found[2];
          unary::taylor(unary::functions()[static_cast<std::size_t>(one.kind - Program::n_kinds)], values_[a], 1, found);
          values_[i] = found[0];
          own_slopes_[i] = found[1];
        }
      }
    }
    slopes_.assign(variant.size(), Interval{});
    slopes_.back() = {1, 1};
    for (std::size_t i = variant.size(); i-- > 0;) {
      const auto& one = variant[i];
      if (one.kind <= Program::argument) continue;
      Interval& a = slopes_[static_cast<std::size_t>(one.a)];
      const Interval slope = slopes_[i];
      if (one.kind == Program::sum || one.kind == Program::difference) {
        a = add(a, slope);
        Interval& b = slopes_[static_cast<std::size_t>(one.b)];
        b = one.kind == Program::sum ? add(b, slope) : subtract(b, slope);
      } else if (one.kind == Program::product) {
        a = add(a, multiply(slope, values_[static_cast<std::size_t>(one.b)]));
        Interval& b = slopes_[static_cast<std::size_t>(one.b)];
        b = add(b, multiply(slope, values_[static_cast<std::size_t>(one.a)]));
      } else if (one.kind == Program::log_sum_exp) {
        a = add(a, multiply(slope, subtract(Interval{1, 1}, own_slopes_[i])));
        Interval& b = slopes_[static_cast<std::size_t>(one.b)];
        b = add(b, multiply(slope, own_slopes_[i]));
      } else if (Program::is_expanded(one)) {
        a = add(a, multiply(slope, own_slopes_[i]));
        Interval& b = slopes_[static_cast<std::size_t>(one.b)];
        b = add(b, multiply(slope, other_slopes_[i]));
      } else if (one.kind == Program::same) {
        a = add(a, slope);
      } else if (Program::is_side(one)) {
        const Taken taken = Program::side(one).taken(values_[static_cast<std::size_t>(one.a)]);
        Interval& b = slopes_[static_cast<std::size_t>(one.b)];
        if (taken != Taken::no) b = add(b, multiply(slope, taken == Taken::yes ? Interval{1, 1} : Interval{0, 1}));
        if (taken == Taken::unknown) a = Interval::whole();
      } else {
        a = add(a, multiply(slope, own_slopes_[i]));
      }
    }
  }

  const Program& program_;
  double floor_;
  std::size_t q_;
  Monomials monomials_;
  std::vector<Piece> pieces_;
  Program::Jets<double> centre_;
  Program::Jets<Interval> box_;
  std::vector<Interval> values_, own_slopes_, other_slopes_, slopes_;
};

// Bounds on the sum of a program's derivatives of an order, times lengths, on boxes. With absolute values, they are multiples of
// floor + t^order, as much as the error of the expansion takes.
class ProgramBounds {
 public:
  // Boxes of one argument are halved up to three times, of two up to two times, where they lose more than half: with more
  // arguments a cut along one of them gains little.
  static constexpr int cuts_of(std::size_t q) { return q == 1 ? 3 : q == 2 ? 2 : 0; }
  static constexpr double lost = 2;
  // The next order tightens an enclosure; with many arguments it has too many coefficients to pay off.
  static int degree_of(std::size_t q, int order) { return q <= 4 ? std::min(order + 1, unary::most) : order; }

  ProgramBounds(const Program& program, int order, double floor)
      : program_(program),
        kinks_(program, floor),
        order_(order),
        q_(program.n_arguments()),
        monomials_(static_cast<int>(q_), degree_of(q_, order)) {}

  double largest(const double* own, const double* centre, const double* lengths, double radius) {
    std::vector<double> at(q_, 0.0), width(q_, radius);
    double sure = 0;
    pieces_ = kinks_.pieces(own, centre, lengths);
    double found = on_box(own, centre, lengths, at, width, cuts_of(q_), sure);
    if (pieces_) found += kinks_.largest(own, centre, lengths, radius);
    return unary::factorials[order_] * found;
  }

 private:
  double on_box(const double* own, const double* centre, const double* lengths, std::vector<double>& at, std::vector<double>& width,
                int cuts, double& sure) {
    const std::vector<double> nothing(q_, 0.0);
    const Interval* point =
        program_.expand(monomials_, own, centre, lengths, at.data(), nothing.data(), point_, nullptr, pieces_);
    double there = 0;
    for (int i = monomials_.first(order_); i < monomials_.until(order_); ++i) there += std::max(std::max(point[i].lo, -point[i].hi), 0.0);
    sure = std::max(sure, there);
    const Interval* box = program_.expand(monomials_, own, centre, lengths, at.data(), width.data(), box_, point_.all.data(), pieces_);
    double found = 0;
    for (int i = monomials_.first(order_); i < monomials_.until(order_); ++i) found += box[i].largest();
    found *= 1 + 1e-13;
    if (std::isnan(found)) found = Interval::infinity;
    if (cuts == 0 || found <= lost * sure) return found;
    const std::size_t k = widest(box, lengths, width);
    const double half = width[k] / 2, middle = at[k];
    width[k] = half;
    double halves = 0;
    for (const double side : {-1.0, 1.0}) {
      at[k] = middle + side * half;
      halves = std::max(halves, on_box(own, centre, lengths, at, width, cuts - 1, sure));
    }
    at[k] = middle;
    width[k] = 2 * half;
    return std::min(found, halves);
  }

  // The argument along which derivatives change most.
  std::size_t widest(const Interval* box, const double* lengths, const std::vector<double>& width) const {
    std::size_t best = 0;
    double most = -1;
    for (std::size_t k = 0; k < q_; ++k) {
      double change = 0;
      for (int i = monomials_.first(order_); monomials_.degree() > order_ && i < monomials_.until(order_); ++i) {
        const double next = box[monomials_.product(i, monomials_.variable(static_cast<int>(k)))].largest();
        if (next > 0) change += next * width[k] * (monomials_.exponent(i, static_cast<int>(k)) + 1);
      }
      if (std::isinf(change)) change = std::numeric_limits<double>::max() * std::min(1.0, lengths[k] * width[k] / (1 + lengths[k] * width[k]));
      if (change > most) most = change, best = k;
    }
    return best;
  }

  const Program& program_;
  ProgramKinks kinks_;
  const Piece* pieces_ = nullptr;
  int order_;
  std::size_t q_;
  Monomials monomials_;
  Program::Jets<Interval> point_, box_;
};

}  // namespace stansub
