// Bounds on the errors of expansions of a program, by interval arithmetic.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
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

  // Adds `times` c_k such that the bound is sum_k c_k (floor + |s_k|^3), where arguments differ from the centre by lengths s_k,
  // |s_k| <= radius; after `pieces`. An operand moves by sum_k L_k |s_k| at most, and with L = sum_k L_k its cube, divided by L^3, is
  // sum_k L_k / L |s_k|^3 at most.
  void add_to(double* out, const double* own, const double* centre, const double* lengths, double radius, double times) {
    const auto& variant = program_.of(own);
    const std::vector<double> nothing(q_, 0.0), width(q_, radius);
    program_.expand(monomials_, own, centre, lengths, nothing.data(), width.data(), box_, nullptr, pieces_.data());
    bool has_slopes = false;
    for (std::size_t i = 0; i < variant.size(); ++i) {
      const auto& one = variant[i];
      if (one.kind != Program::absolute) continue;
      const auto move = [&](std::size_t k) { return box_.all[jet(one.a) + 1 + k].largest() * (1 + 1e-15); };
      double moves = 0;
      for (std::size_t k = 0; k < q_; ++k) moves += move(k);
      const KinkError error(operand(one), pieces_[i], moves, radius, floor_);
      if (error.is_none()) continue;
      if (!has_slopes) set_slopes(variant, own, centre, lengths, radius);
      has_slopes = true;
      const Interval slope = slopes_[i];
      const double middle = std::abs(0.5 * slope.lo + 0.5 * slope.hi), rest = 0.5 * slope.hi - 0.5 * slope.lo;
      double found = std::isfinite(middle + rest) ? 0 : Interval::infinity;
      if (middle > 0) found += middle * error.largest(error.start());
      if (rest > 0) found += rest * (1 + 1e-12) * error.largest(0);
      if (found == 0) continue;
      for (std::size_t k = 0; k < q_; ++k) out[k] += std::isfinite(found) ? times * found * (move(k) / moves) * (1 + 1e-12) : found;
    }
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

// Bounds on the errors of a program's expansions of order p - 1, by argument: c_k such that the error is at most
// sum_k c_k (floor + |s_k|^p), where argument k differs from the centre by its length times s_k, |s_k| <= radius.
//
// With the Taylor coefficients C_a in s, the error is an integral over the ray from the centre to s,
//
//   sum_(|a| = p) s^a p int_0^1 (1 - u)^(p - 1) C_a(u s) du,
//
// most of which is from near the centre. So C_a are enclosed on several boxes, each half as wide as the one before, and each counts
// for the part of the ray that is in no smaller one. After the terms of order p at the centre, the same integral of the next order is
// left, and the smaller one of both bounds is taken. |s^a| is at most sum_k a_k / |a| |s_k|^|a|, by the inequality of the means.
class ProgramBounds {
 public:
  // Boxes are halved while the bound may become smaller by this share.
  static constexpr int most_boxes = 5;
  static constexpr double lost = 0.1;
  // The next order tightens an enclosure; with many arguments it has too many coefficients to pay off.
  static int degree_of(std::size_t q, int order) { return q <= 5 ? std::min(order + 1, unary::most) : order; }

  ProgramBounds(const Program& program, int order, double floor)
      : program_(program),
        kinks_(program, floor),
        p_(order),
        q_(program.n_arguments()),
        monomials_(static_cast<int>(q_), degree_of(q_, order)),
        nothing_(q_, 0.0) {
    for (int n = p_; n <= monomials_.degree(); ++n) integrals_.emplace_back(n, q_);
  }

  // Sets the observation. The numbers stay the caller's.
  void set(const double* own, const double* centre, const double* lengths) {
    own_ = own;
    centre_ = centre;
    lengths_ = lengths;
    pieces_ = kinks_.pieces(own, centre, lengths);
    const Interval* point =
        program_.expand(monomials_, own, centre, lengths, nothing_.data(), nothing_.data(), point_, nullptr, pieces_);
    at_centre_ = sums_of(point);
    boxes_.clear();
  }

  // Enclosures of C_a on a box, in the order of the monomials, of which those of order p and below are tightened by the next one.
  const Interval* enclose(double half) {
    const std::vector<double> width(q_, half);
    return program_.expand(monomials_, own_, centre_, lengths_, nothing_.data(), width.data(), box_, point_.all.data(), pieces_);
  }

  // Writes p! c_k of each argument for one radius after the other. Radii that are twice others share their boxes.
  void largest(const std::vector<double>& radii, double* out) {
    for (const double radius : radii) {
      const Integral& best = bound(radius);
      for (std::size_t k = 0; k < q_; ++k) out[k] = unary::factorials[p_] * best.bound[k] * (1 + 1e-12);
      if (pieces_) kinks_.add_to(out, own_, centre_, lengths_, radius, unary::factorials[p_]);
      out += q_;
    }
  }

  const Monomials& monomials() const { return monomials_; }

 private:
  // sum_(|a| = n) a_k / n sup |C_a| for n = p and, with few arguments, p + 1: a row each, by argument.
  using Sums = std::vector<std::vector<double>>;

  Sums sums_of(const Interval* jet) const {
    Sums found;
    for (int n = p_; n <= monomials_.degree(); ++n) {
      auto& row = found.emplace_back(q_, 0.0);
      for (int i = monomials_.first(n); i < monomials_.until(n); ++i)
        for (std::size_t k = 0; k < q_; ++k)
          if (const int power = monomials_.exponent(i, static_cast<int>(k))) row[k] += static_cast<double>(power) / n * jet[i].largest();
    }
    return found;
  }

  // The terms below an order n at the centre, and the integral of order n, as multiples of |s_k|^p.
  struct Integral {
    Integral(int order, std::size_t q) : n(order), outside(q), bound(q) {}

    // `outer` is the share of the rays that is in the box, of which no smaller one is known so far.
    void add(const std::vector<double>& of_box, const std::vector<double>& at_centre, double outer) {
      const double beyond = std::pow(1 - outer, n), beyond_half = std::pow(1 - outer / 2, n);
      total = excess = 0;
      for (std::size_t k = 0; k < bound.size(); ++k) {
        bound[k] = outside[k] + times * (1 - beyond) * of_box[k];
        if (std::isnan(bound[k])) bound[k] = Interval::infinity;
        outside[k] += times * (beyond_half - beyond) * of_box[k];
        total += bound[k];
        excess += times * (1 - beyond) * (of_box[k] - at_centre[k]);
      }
    }

    int n;
    double times = 1;  // the largest |s_k|^(n - p)
    std::vector<double> outside, bound;
    double total = 0, excess = 0;  // of the bound, and by how much smaller boxes may lower it
  };

  const Sums& of_box(double half) {
    for (const auto& [known, sums] : boxes_)
      if (known == half) return sums;
    return boxes_.emplace_back(half, sums_of(enclose(half))).second;
  }

  // The integral with the smaller bound.
  const Integral& bound(double radius) {
    for (std::size_t j = 0; j < integrals_.size(); ++j) {
      integrals_[j].times = j == 0 ? 1 : radius;
      integrals_[j].outside = j == 0 ? nothing_ : at_centre_[0];
    }
    const Integral* best = nullptr;
    double outer = 1;
    for (int k = 0; k < most_boxes; ++k, outer /= 2) {
      const Sums& box = of_box(radius * outer);
      for (std::size_t j = 0; j < integrals_.size(); ++j) integrals_[j].add(box[j], at_centre_[j], outer);
      best = &*std::min_element(integrals_.begin(), integrals_.end(), [](const auto& a, const auto& b) { return a.total < b.total; });
      if (!(best->excess > lost * best->total) || std::isinf(best->total)) break;
    }
    return *best;
  }

  const Program& program_;
  ProgramKinks kinks_;
  int p_;
  std::size_t q_;
  Monomials monomials_;
  std::vector<double> nothing_;
  std::vector<Integral> integrals_;
  const double *own_ = nullptr, *centre_ = nullptr, *lengths_ = nullptr;
  const Piece* pieces_ = nullptr;
  Sums at_centre_;
  std::vector<std::pair<double, Sums>> boxes_;  // half widths
  Program::Jets<Interval> point_, box_;
};

}  // namespace stansub
