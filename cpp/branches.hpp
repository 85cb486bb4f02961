// Branches on parameters in the log likelihood of an observation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "unary.hpp"

namespace stansub {

enum class Taken { no, yes, unknown };

// A side of a branch: its value where a condition, that a number is negative or that it is not, holds, and 0 elsewhere. On boxes
// that do not decide the condition it jumps, and nothing is known of its derivatives.
class Side {
 public:
  explicit Side(bool of_negative) : of_negative_(of_negative) {}

  Taken taken(double u) const { return taken(u, u); }
  Taken taken(const Interval& u) const { return taken(u.lo, u.hi); }

  double of(double u, double value) const {
    const Taken found = taken(u);
    return found == Taken::yes ? value : found == Taken::no ? 0 : std::numeric_limits<double>::quiet_NaN();
  }

  // The same for n Taylor coefficients.
  template <class S>
  void of(const S& u, const S* value, std::size_t n, S* out) const {
    const Taken found = taken(u);
    if (found == Taken::yes)
      std::copy_n(value, n, out);
    else if (found == Taken::no)
      std::fill_n(out, n, S{});
    else
      set_unknown(*value, n, out);
  }

 private:
  Taken taken(double low, double high) const {
    if (high < 0) return of_negative_ ? Taken::yes : Taken::no;
    if (low >= 0) return of_negative_ ? Taken::no : Taken::yes;
    return Taken::unknown;
  }

  static void set_unknown(double, std::size_t n, double* out) { std::fill_n(out, n, std::numeric_limits<double>::quiet_NaN()); }
  static void set_unknown(const Interval& value, std::size_t n, Interval* out) {
    std::fill_n(out, n, Interval::whole());
    out[0] = {std::min(value.lo, 0.0), std::max(value.hi, 0.0)};
  }

  bool of_negative_;
};

}  // namespace stansub
