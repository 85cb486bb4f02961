// Taylor coefficients of logs of integrals in two arguments, from their moments.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "unary.hpp"

namespace stansub {

// Coefficients by order in the first argument, then in the second one.
template <class S>
using DoubleSeries = std::array<std::array<S, unary::most + 1>, unary::most + 1>;

inline double times(double factor, double x) { return factor * x; }
inline Interval times(double factor, const Interval& x) { return multiply(Interval{factor, factor}, x); }

// Coefficients of the log of a series with constant 1, from k M_k = sum i T_i M_(k - i) of either variable.
template <class S>
void log_of(const DoubleSeries<S>& series, int degree, DoubleSeries<S>& out) {
  for (auto& row : out) row.fill(S{});
  for (int d = 1; d <= degree; ++d)
    for (int k = 0; k <= d; ++k) {
      const int m = d - k;
      S rest = series[k][m];
      for (int i = 0; i <= k; ++i)
        for (int j = 0; j <= m; ++j) {
          const double factor = k > 0 ? static_cast<double>(i) / k : static_cast<double>(j) / m;
          if (factor == 0 || (i == k && j == m)) continue;
          rest = subtract(rest, times(factor, multiply(out[i][j], series[k - i][m - j])));
        }
      out[k][m] = rest;
    }
}

// Nodes and weights on (0, 1).
constexpr int gauss_points = 16;
struct Rule {
  std::array<double, gauss_points> at{}, weight{};
};
inline const Rule& gauss_legendre() {
  static const Rule found = [] {
    Rule rule;
    for (int i = 0; i < gauss_points; ++i) {
      double z = std::cos(3.14159265358979324 * (i + 0.75) / (gauss_points + 0.5)), slope = 1;
      for (int step = 0; step < 8; ++step) {
        double before = 0, value = 1;
        for (int k = 1; k <= gauss_points; ++k) {
          const double next = ((2 * k - 1) * z * value - (k - 1) * before) / k;
          before = value;
          value = next;
        }
        slope = gauss_points * (z * value - before) / (z * z - 1);
        z -= value / slope;
      }
      rule.at[static_cast<std::size_t>(i)] = 0.5 * (1 - z);
      rule.weight[static_cast<std::size_t>(i)] = 1 / ((1 - z * z) * slope * slope);
    }
    return rule;
  }();
  return found;
}

}  // namespace stansub
