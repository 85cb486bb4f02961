// Logs of incomplete gamma functions as functions of both arguments, with Taylor coefficients at points and on boxes.
//
// With t = x e^v, the upper function is x^a times the integral of e^(a v - x e^v) over v > 0, and the lower one that of
// e^(-a v - x e^-v). Derivatives of the log of such an integral follow from its moments E[v^k e^(m v)], or E[v^k e^(-m v)], of
// which derivative k by a and m by x is one up to its sign. On boxes, moments are monotone in both arguments.
#pragma once

#include <algorithm>
#include <cmath>

#include "moment_series.hpp"

namespace stansub {

class GammaTail {
 public:
  // `sign` is 1 for the upper function, -1 for the lower one.
  explicit GammaTail(int sign) : sign_(sign) {}

  double value(double a, double x) const { return moments(a, x, 0).log_integral; }

  // Taylor coefficients up to a total degree.
  void taylor(double a, double x, int degree, DoubleSeries<double>& out) const {
    const Moments found = moments(a, x, degree);
    DoubleSeries<double> series{};
    for (int k = 0; k <= degree; ++k)
      for (int m = 0; k + m <= degree; ++m) series[k][m] = coefficient(k, m) * found.mean[k][m];
    log_of(series, degree, out);
    out[0][0] = found.log_integral;
  }

  void taylor(const Interval& a, const Interval& x, int degree, DoubleSeries<Interval>& out) const {
    if (!(a.lo > 0 && x.lo > 0 && std::isfinite(a.hi) && std::isfinite(x.hi))) {
      for (auto& row : out) row.fill(Interval::whole());
      return;
    }
    // For the upper function, v^k e^(m v) and the density of v move to the right with a, and to the left with x. For the lower
    // one, E_a[v^k e^(-m v)] = E_(a + m)[v^k] E_a[e^(-m v)], whose first factor is least where the second one is largest.
    const Moments first = moments(a.lo, x.hi, degree), last = moments(a.hi, x.lo, degree);
    DoubleSeries<Interval> series{};
    for (int k = 0; k <= degree; ++k)
      for (int m = 0; k + m <= degree; ++m) {
        Interval mean = around(first.mean[k][m], last.mean[k][m]);
        if (sign_ < 0) {
          const double share = first.mean[0][m], other = last.mean[0][m];
          mean = multiply(around(first.mean[k][m] / share, last.mean[k][m] / other), around(share, other));
        }
        const double factor = coefficient(k, m);
        series[k][m] = multiply(Interval{factor, factor}, mean);
      }
    log_of(series, degree, out);
    const double low = sign_ > 0 ? first.log_integral : value(a.hi, x.hi), high = sign_ > 0 ? last.log_integral : value(a.lo, x.lo);
    const double off = accuracy * (1 + std::abs(low) + std::abs(high));
    out[0][0] = Interval::outward(low - off, high + off);
  }

 private:
  static constexpr double accuracy = 1e-12;  // relative, of integrals
  static constexpr double negligible = 45;   // log of what is left out
  static constexpr int panels = 10;

  struct Moments {
    double log_integral = 0;
    DoubleSeries<double> mean{};
  };

  double coefficient(int k, int m) const {
    const bool is_negative = (m % 2 == 1) != (sign_ < 0 && k % 2 == 1);
    return (is_negative ? -1 : 1) / (unary::factorials[k] * unary::factorials[m]);
  }
  static Interval around(double lo, double hi) {
    return Interval::outward(std::min(lo, hi) * (1 - accuracy), std::max(lo, hi) * (1 + accuracy));
  }

  double exponent(double a, double x, double v) const { return sign_ * a * v - x * std::exp(sign_ * v); }

  // How far from the mode, in one direction, the integrand is negligible.
  double reach(double a, double x, double mode, double direction, double limit) const {
    const double floor = exponent(a, x, mode) - negligible;
    double near = 0, far = std::min(limit, 1 / std::sqrt(a + x));
    while (far < limit && exponent(a, x, mode + direction * far) > floor) near = far, far = std::min(limit, 2 * far);
    for (int k = 0; k < 6 && far < limit; ++k) {
      const double middle = 0.5 * (near + far);
      (exponent(a, x, mode + direction * middle) > floor ? near : far) = middle;
    }
    return far;
  }

  Moments moments(double a, double x, int degree) const {
    Moments found;
    const double mode = std::max(0.0, sign_ * std::log(a / x)), top = exponent(a, x, mode);
    const double right = reach(a, x, mode, 1, Interval::infinity), left = mode > 0 ? reach(a, x, mode, -1, mode) : 0;
    DoubleSeries<double>& sums = found.mean;
    const auto& rule = gauss_legendre();
    for (const double side : {-left, right}) {
      if (side == 0) continue;
      // Panels grow with the distance from the mode, so that the first ones resolve powers of e^v.
      const double growth = std::pow(1 + std::abs(side), 1.0 / panels);
      double from = 0;
      for (int p = 0; p < panels; ++p) {
        const double to = p + 1 < panels ? growth * (1 + from) - 1 : std::abs(side), width = to - from;
        for (int i = 0; i < gauss_points; ++i) {
          const double move = from + width * rule.at[i], v = std::max(0.0, mode + (side < 0 ? -move : move));
          const double power = std::exp(sign_ * v);
          double own = width * rule.weight[i] * std::exp(sign_ * a * v - x * power - top);
          for (int k = 0; k <= degree; ++k, own *= v) {
            double each = own;
            for (int m = 0; k + m <= degree; ++m, each *= power) sums[k][m] += each;
          }
        }
        from = to;
      }
    }
    const double total = sums[0][0];
    found.log_integral = top + std::log(total);
    for (auto& row : sums)
      for (double& one : row) one /= total;
    return found;
  }

  int sign_;
};

}  // namespace stansub
