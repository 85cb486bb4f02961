// Branches on parameters in the log likelihood of an observation.
#pragma once

#include <algorithm>
#include <cstddef>

#include "unary.hpp"

namespace stansub {

enum class Taken { no, yes, unknown };

// A side of a branch: its value where a condition holds, or where it does not, and 0 elsewhere. The condition is that a number is
// negative, or not positive; what is no number fulfils none, as in Stan. On boxes that do not decide the condition the side jumps,
// and nothing is known of its derivatives.
class Side {
 public:
  Side(bool is_strict, bool if_holds) : is_strict_(is_strict), if_holds_(if_holds) {}

  Taken taken(double u) const { return of_condition(is_strict_ ? u < 0 : u <= 0); }
  Taken taken(const Interval& u) const {
    if (is_strict_ ? u.hi < 0 : u.hi <= 0) return of_condition(true);
    return (is_strict_ ? u.lo >= 0 : u.lo > 0) ? of_condition(false) : Taken::unknown;
  }

  double of(double u, double value) const { return taken(u) == Taken::yes ? value : 0; }

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
  Taken of_condition(bool holds) const { return holds == if_holds_ ? Taken::yes : Taken::no; }

  static void set_unknown(double, std::size_t, double*) {}  // a number decides each condition
  static void set_unknown(const Interval& value, std::size_t n, Interval* out) {
    std::fill_n(out, n, Interval::whole());
    out[0] = {std::min(value.lo, 0.0), std::max(value.hi, 0.0)};
  }

  bool is_strict_, if_holds_;
};

}  // namespace stansub
