// Absolute values in the log likelihood of an observation: smooth functions that take their place in expansions, and bounds
// on the difference.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "unary.hpp"

namespace stansub {

// The quadratic constant + slope u + curve u^2.
struct Piece {
  double constant = 0, slope = 0, curve = 0;

  // What takes the place of |u| around a point: a line, or, less than `width` from the kink, the parabola that continues both
  // lines with their slopes.
  static Piece at(double u, double width) {
    if (std::abs(u) < width) return {width / 2, 0, 0.5 / width};
    return {0, u < 0 ? -1.0 : 1.0, 0};
  }

  double operator()(double u) const { return constant + u * (slope + curve * u); }
  Piece mirrored() const { return {constant, -slope, curve}; }

  // Taylor coefficients up to a degree, at a point and on an interval.
  void taylor(double u, int degree, double* out) const {
    const double all[] = {(*this)(u), slope + 2 * curve * u, curve};
    for (int k = 0; k <= degree; ++k) out[k] = k < 3 ? all[k] : 0;
  }
  void taylor(const Interval& u, int degree, Interval* out) const {
    const Interval own{slope, slope}, bend{curve, curve};
    const double low = u.lo > 0 ? u.lo : u.hi < 0 ? -u.hi : 0, high = u.largest();
    const Interval squares = Interval::outward(low * low, high * high);
    const Interval all[] = {add(Interval{constant, constant}, add(multiply(own, u), multiply(bend, squares))),
                            add(own, multiply(Interval{2 * curve, 2 * curve}, u)), bend};
    for (int k = 0; k <= degree; ++k) out[k] = k < 3 ? all[k] : Interval{};
  }
};

inline Interval hull(const Interval& a, const Interval& b) { return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)}; }
inline Interval absolute(const Interval& u) {
  if (u.lo >= 0) return u;
  if (u.hi <= 0) return {-u.hi, -u.lo};
  return {0, u.largest()};
}
// The derivative of |u| on an interval.
inline Interval sign(const Interval& u) { return {u.lo > 0 ? 1.0 : -1.0, u.hi < 0 ? -1.0 : 1.0}; }

// Bounds on |u| less its piece, where u may differ from its value at the centre by d <= `length` * `radius`.
class KinkError {
 public:
  // Relative to what the bounds may be too large.
  static constexpr double loose = 0.002;

  KinkError(double u, const Piece& piece, double length, double radius, double floor)
      : centre_(std::abs(u)), length_(length), reach_(length * radius * (1 + 1e-12)), floor_(floor) {
    const Piece own = u < 0 ? piece.mirrored() : piece;
    right_ = {-own.constant, 1 - own.slope, -own.curve};
    left_ = {-own.constant, -1 - own.slope, -own.curve};
  }

  bool is_none() const { return length_ == 0 || (right_.slope == 0 && right_.curve == 0 && right_.constant == 0 && reach_ <= centre_); }

  // The value at the centre.
  double start() const { return right_(centre_); }

  // The largest |difference - shift| / (floor + (d / length)^3), or a little more: by branch and bound.
  double largest(double shift) const {
    if (is_none()) return 0;
    if (!(floor_ > 0) || !std::isfinite(reach_) || !std::isfinite(centre_)) return std::numeric_limits<double>::infinity();
    std::vector<Range> open;
    double best = 0;
    const double ends[] = {centre_ - reach_, std::min(0.0, centre_), centre_, centre_ + reach_};
    for (int k = 0; k < 3; ++k) {
      const double from = std::max(ends[k], ends[0]), to = ends[k + 1];
      if (from < to) open.push_back(range(k == 0 ? left_ : right_, from, to, shift, best));
    }
    double left = 0;
    for (int splits = 0; !open.empty();) {
      const Range one = open.back();
      open.pop_back();
      if (one.most <= best * (1 + loose)) continue;
      if (++splits > most_splits) {
        left = std::max(left, one.most);
        continue;
      }
      const double middle = 0.5 * (one.from + one.to);
      open.push_back(range(*one.piece, one.from, middle, shift, best));
      open.push_back(range(*one.piece, middle, one.to, shift, best));
    }
    return std::max(best * (1 + loose), left);
  }

 private:
  static constexpr int most_splits = 2000;

  struct Range {
    const Piece* piece;
    double from, to, most;
  };

  double growth(double u) const {
    const double t = std::abs(u - centre_) / length_;
    return floor_ + t * t * t;
  }

  Range range(const Piece& piece, double from, double to, double shift, double& best) const {
    const double first = std::abs(piece(from) - shift), last = std::abs(piece(to) - shift);
    best = std::max({best, first / growth(from), last / growth(to)});
    double most = std::max(first, last);
    const double turn = piece.curve == 0 ? from : -0.5 * piece.slope / piece.curve;
    if (from < turn && turn < to) most = std::max(most, std::abs(piece(turn) - shift));
    return {&piece, from, to, most / growth(from >= centre_ ? from : to)};
  }

  double centre_, length_, reach_, floor_;
  Piece left_, right_;  // the difference on either side of the kink, with the centre on the right
};

}  // namespace stansub
