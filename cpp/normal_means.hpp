// The log of the mean of e^(-u s - v s^2) over s in (-1, 1) as a function of u and v, with Taylor coefficients at points and on
// boxes. A normal probability between m - h and m + h is 2 h e^(-m^2 / 2) / sqrt(2 pi) times that mean, with u = m h and
// v = h^2 / 2.
//
// Derivatives follow from the moments E[s^n] under the density in proportion to e^(-u s - v s^2). On boxes, odd ones decrease in u,
// and their size decreases in v; even ones increase in |u| and decrease in v, as the log does: extremes are at corners, or where u is 0.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "moment_series.hpp"
#include "vector_math.hpp"

namespace stansub {

class NormalMean {
 public:
  double value(double u, double v) const { return moments(u, v, 0).log_mean; }

  void taylor(double u, double v, int degree, DoubleSeries<double>& out) const {
    const Moments found = moments(u, v, degree);
    DoubleSeries<double> series{};
    for (int k = 0; k <= degree; ++k)
      for (int m = 0; k + m <= degree; ++m) series[k][m] = coefficient(k, m) * found.mean[k + 2 * m];
    log_of(series, degree, out);
    out[0][0] = found.log_mean;
  }

  void taylor(const Interval& u, const Interval& v, int degree, DoubleSeries<Interval>& out) const {
    if (!(std::isfinite(u.lo) && std::isfinite(u.hi) && std::isfinite(v.lo) && std::isfinite(v.hi))) {
      for (auto& row : out) row.fill(Interval::whole());
      return;
    }
    std::vector<Moments> corners;
    for (const double at : {u.lo, u.hi})
      for (const double of : {v.lo, v.hi}) corners.push_back(moments(at, of, degree));
    if (u.lo < 0 && u.hi > 0) corners.push_back(moments(0, v.hi, degree));
    const auto range = [&](auto number) {
      double lo = number(corners[0]), hi = lo;
      for (const Moments& one : corners) lo = std::min(lo, number(one)), hi = std::max(hi, number(one));
      return Interval::outward(lo - accuracy * (1e-3 + std::abs(lo)), hi + accuracy * (1e-3 + std::abs(hi)));
    };
    DoubleSeries<Interval> series{};
    for (int k = 0; k <= degree; ++k)
      for (int m = 0; k + m <= degree; ++m) {
        const double factor = coefficient(k, m);
        series[k][m] = multiply(Interval{factor, factor}, range([&](const Moments& one) { return one.mean[k + 2 * m]; }));
      }
    series[0][0] = {1, 1};
    log_of(series, degree, out);
    out[0][0] = range([](const Moments& one) { return one.log_mean; });
  }

 private:
  static constexpr double accuracy = 1e-12;  // of integrals
  static constexpr double negligible = 45;   // log of what is left out
  static constexpr double resolved = 8;      // change of the log of the integrand in a panel

  struct Moments {
    double log_mean = 0;
    std::array<double, 2 * unary::most + 1> mean{};
  };

  static double coefficient(int k, int m) { return ((k + m) % 2 == 1 ? -1 : 1) / (unary::factorials[k] * unary::factorials[m]); }

  static Moments moments(double u, double v, int degree) {
    const double a = std::abs(u);
    const auto exponent = [&](double s) { return s * (a - v * s); };  // of -s in place of s if u is positive
    const double mode = v > 0 ? std::min(1.0, 0.5 * a / v) : 1, top = exponent(mode), slope = mode < 1 ? 0 : a - 2 * v;
    const double left = 2 * negligible / (slope + std::sqrt(std::max(0.0, slope * slope + 4 * negligible * v)));
    const double from = std::max(-1.0, mode - left), to = v > 0 ? std::min(1.0, mode + std::sqrt(negligible / v)) : 1;
    const double change = 2 * top - exponent(from) - exponent(to);
    const int panels = 1 + static_cast<int>(std::min(100.0, std::max(0.0, change) / resolved));
    const double width = (to - from) / panels;
    Moments found;
    auto& sums = found.mean;
    const auto& rule = gauss_legendre();
    for (int p = 0; p < panels; ++p) {
      double s[gauss_points], logs[gauss_points], densities[gauss_points];
      for (int i = 0; i < gauss_points; ++i) {
        s[i] = from + width * (p + rule.at[i]);
        logs[i] = exponent(s[i]) - top;
      }
      vector_math::exp(logs, gauss_points, densities);
      for (int i = 0; i < gauss_points; ++i) {
        double own = rule.weight[i] * densities[i];
        for (int n = 0; n <= 2 * degree; ++n, own *= u > 0 ? -s[i] : s[i]) sums[n] += own;
      }
    }
    const double total = sums[0];
    found.log_mean = top + std::log(0.5 * width * total);
    for (double& one : sums) one /= total;
    return found;
  }
};

}  // namespace stansub
