// Intervals with outward rounding, and functions of one variable with their derivatives at points and on intervals.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "vector_math.hpp"

namespace stansub {

struct Interval {
  double lo = 0, hi = 0;

  static constexpr double infinity = std::numeric_limits<double>::infinity();
  static Interval whole() { return {-infinity, infinity}; }
  // Endpoints moved outward by more than the rounding of one operation; NaN encloses everything.
  static Interval outward(double lo, double hi) {
    constexpr double eps = 4.5e-16, tiny = std::numeric_limits<double>::min(), most = std::numeric_limits<double>::max();
    if (!(lo <= hi)) return whole();
    lo = std::min(lo, most);
    hi = std::max(hi, -most);
    return {lo == 0 ? 0 : lo - (std::abs(lo) * eps + tiny), hi == 0 ? 0 : hi + (std::abs(hi) * eps + tiny)};
  }
  double largest() const { return std::max(-lo, hi); }
};

inline double lower(double x) { return x; }
inline double upper(double x) { return x; }
inline double lower(const Interval& x) { return x.lo; }
inline double upper(const Interval& x) { return x.hi; }
inline bool is_zero(double x) { return x == 0; }
inline bool is_zero(const Interval& x) { return x.lo == 0 && x.hi == 0; }
inline double add(double a, double b) { return a + b; }
inline double subtract(double a, double b) { return a - b; }
inline double multiply(double a, double b) { return a * b; }
inline Interval add(const Interval& a, const Interval& b) {
  if (is_zero(a)) return b;
  if (is_zero(b)) return a;
  return Interval::outward(a.lo + b.lo, a.hi + b.hi);
}
inline Interval subtract(const Interval& a, const Interval& b) { return add(a, {-b.hi, -b.lo}); }
inline Interval multiply(const Interval& a, const Interval& b) {
  const double p = a.lo * b.lo, q = a.lo * b.hi, r = a.hi * b.lo, s = a.hi * b.hi;
  if (!std::isnan(p + q + r + s)) return Interval::outward(std::min(std::min(p, q), std::min(r, s)), std::max(std::max(p, q), std::max(r, s)));
  // An infinite end stands for numbers without bound, of which zero times any is zero.
  const auto product = [](double x, double y) { return x == 0 || y == 0 ? 0.0 : x * y; };
  const double ends[] = {product(a.lo, b.lo), product(a.lo, b.hi), product(a.hi, b.lo), product(a.hi, b.hi)};
  return Interval::outward(*std::min_element(ends, ends + 4), *std::max_element(ends, ends + 4));
}

// Functions of one variable: derivatives at a point, and their turning points.
namespace unary {

constexpr int most = 5;  // derivatives that are needed
constexpr double factorials[] = {1, 1, 2, 6, 24, 120, 720};

// Derivatives from order 0, with bounds on their rounding errors.
struct Derivatives {
  std::array<double, most + 2> value{}, error{};

  void set(int k, double v, double e) {
    value[k] = v;
    error[k] = e;
  }
  void set(int k, double v) { set(k, v, 2e-15 * std::abs(v)); }
};

using At = void (*)(double x, int n, Derivatives& out);

// Derivative k of log(1 + e^x) as a polynomial of p, the inverse logit; that of -log(1 - e^x), of 1 / (e^-x - 1), has the
// same coefficients without signs.
constexpr double logistic[7][7] = {{},
                                   {0, 1},
                                   {0, 1, -1},
                                   {0, 1, -3, 2},
                                   {0, 1, -7, 12, -6},
                                   {0, 1, -15, 50, -60, 24},
                                   {0, 1, -31, 180, -390, 360, -120}};

inline double positive_part(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

// All derivatives but the first are even or odd in x, and small beyond 0 where p is.
inline void set_softplus(double x, int from, int n, int shift, Derivatives& out) {
  if (n < from) return;
  const double p = 1 / (1 + std::exp(std::abs(x)));
  for (int k = from; k <= n; ++k) {
    double value = 0, size = 0, power = 1;
    for (int i = 1; i <= k; ++i) {
      power *= p;
      value += logistic[k][i] * power;
      size += std::abs(logistic[k][i]) * power;
    }
    if (x > 0) value = k == 1 ? 1 / (1 + std::exp(-x)) : (k % 2 ? -value : value);
    out.set(k - shift, value, 3e-15 * std::max(size, std::abs(value)));
  }
}

inline void softplus(double x, int n, Derivatives& out) {
  out.set(0, positive_part(x));
  set_softplus(x, 1, n, 0, out);
}
inline void inv_logit(double x, int n, Derivatives& out) { set_softplus(x, 1, n + 1, 1, out); }

inline void log1m_exp(double x, int n, Derivatives& out) {
  out.set(0, x > -0.6931471805599453 ? std::log(-std::expm1(x)) : std::log1p(-std::exp(x)));
  if (n == 0) return;
  const double odds = 1 / std::expm1(-x);
  for (int k = 1; k <= n; ++k) {
    double value = 0, power = 1;
    for (int i = 1; i <= k; ++i) value += std::abs(logistic[k][i]) * (power *= odds);
    out.set(k, -value, 4e-15 * value);
  }
}

inline void exp(double x, int n, Derivatives& out) {
  for (int k = 0; k <= n; ++k) out.set(k, std::exp(x));
}

inline void powers_of(double x, double exponent, int from, int n, double factor, Derivatives& out) {
  double value = factor * (exponent == 0.5 ? std::sqrt(x) : 1 / x);
  for (int k = from; k <= n; ++k) {
    out.set(k, value);
    value *= (exponent - (k - from)) / x;
  }
}
inline void inv(double x, int n, Derivatives& out) { powers_of(x, -1, 0, n, 1, out); }
inline void sqrt(double x, int n, Derivatives& out) { powers_of(x, 0.5, 0, n, 1, out); }
inline void log(double x, int n, Derivatives& out) {
  out.set(0, std::log(x));
  powers_of(x, -1, 1, n, 1, out);
}
inline void log1p(double x, int n, Derivatives& out) {
  out.set(0, std::log1p(x));
  powers_of(1 + x, -1, 1, n, 1, out);
}
inline void square(double x, int n, Derivatives& out) {
  out.set(0, x * x);
  if (n >= 1) out.set(1, 2 * x);
  if (n >= 2) out.set(2, 2);
}
inline void cos(double x, int n, Derivatives& out) {
  const double c = std::cos(x), s = std::sin(x), cycle[] = {c, -s, -c, s};
  for (int k = 0; k <= n; ++k) out.set(k, cycle[k % 4], 3e-16);
}

// Derivative k is (k - 1)! cos^k(a) sin(k (a + pi / 2)) at a = atan(x).
inline void atan(double x, int n, Derivatives& out) {
  const double angle = std::atan(x), c = 1 / std::hypot(1.0, x);
  out.set(0, angle);
  double power = 1;
  for (int k = 1; k <= n; ++k) {
    power *= c * (k > 1 ? k - 1 : 1);
    // cos(a) is computed from x, because the angle itself loses precision for large x.
    out.set(k, power * std::sin(k * std::atan2(1.0, -x)), 2e-15 * k * power);
  }
}
// Its turning points are zeros of the next derivative.
inline std::vector<double> atan_turns(int k) {
  std::vector<double> found;
  for (int m = 1; m <= k; ++m) found.push_back(-1 / std::tan(m * 3.14159265358979324 / (k + 1)));
  return found;
}

// Derivatives from one order of digamma to another at positive x: by recurrence to where the asymptotic series holds.
inline void polygamma(double x, int from, int to, double* out) {
  constexpr double bernoulli[] = {1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6};
  double sums[most + 2] = {};  // of 1 / x^(m + 1)
  for (; x < 14; x += 1) {
    const double inverse = 1 / x;
    double power = inverse;
    for (int m = 0; m <= to; ++m, power *= inverse) sums[m] += power;
  }
  const double inverse = 1 / x, square = inverse * inverse;
  double leading = 1;  // x^-m
  for (int m = 0; m <= to; ++m, leading *= inverse) {
    if (m < from) continue;
    double rising = m == 0 ? 0.5 : factorials[m] * (m + 1) / 2;  // (2 k + m - 1)! / (2 k)!
    double tail = (m == 0 ? -std::log(x) : factorials[m - 1] * leading) + 0.5 * factorials[m] * leading * inverse;
    double power = leading * square;
    for (int k = 1; k <= 7; ++k, power *= square) {
      tail += bernoulli[k - 1] * rising * power;
      rising *= (2.0 * k + m) * (2.0 * k + m + 1) / ((2.0 * k + 1) * (2.0 * k + 2));
    }
    tail += factorials[m] * sums[m];
    out[m - from] = m % 2 == 0 ? -tail : tail;
  }
}
inline void lgamma(double x, int n, Derivatives& out) {
  int sign;
  const double value = ::lgamma_r(x, &sign);  // std::lgamma writes a global
  out.set(0, value, 4e-15 * (1 + std::abs(value)));
  double found[most + 2];
  if (n > 0) polygamma(x, 0, n - 1, found);
  for (int k = 1; k <= n; ++k) out.set(k, found[k - 1], 1e-14 * ((k == 1) + std::abs(found[k - 1])));
}
inline void digamma(double x, int n, Derivatives& out) {
  double found[most + 2];
  polygamma(x, 0, n, found);
  for (int k = 0; k <= n; ++k) out.set(k, found[k], 1e-14 * ((k == 0) + std::abs(found[k])));
}

// For very negative x, the continued fraction of Mills's ratio converges fast.
inline double log_phi_value(double x) {
  if (x > -6) return x > 6 ? std::log1p(-0.5 * std::erfc(x * 0.70710678118654752)) : std::log(0.5 * std::erfc(-x * 0.70710678118654752));
  double fraction = 0;
  for (int k = 60; k >= 1; --k) fraction = k / (-x + fraction);
  return -0.5 * x * x - 0.91893853320467274178 - std::log(-x + fraction);
}
// Derivatives of log Phi follow from h' = -h (x + h); to the left x + h cancels, and the fraction gives it as it is.
inline void log_phi(double x, int n, Derivatives& out) {
  const double value = log_phi_value(x);
  out.set(0, value);
  if (n == 0) return;
  double sum, h;
  if (x > -6) {
    h = std::exp(-0.5 * x * x - 0.91893853320467274178 - value);
    sum = x + h;
  } else {
    double fraction = 0;
    for (int k = 60; k >= 1; --k) fraction = k / (-x + fraction);
    h = -x + fraction;
    sum = fraction;
  }
  const double f1 = h, f2 = -h * sum, rest = 1 + f2;
  const double f3 = -f2 * sum - h * rest, f4 = -f3 * sum - 2 * f2 * rest - h * f3;
  const double f5 = -f4 * sum - 3 * f3 * rest - 3 * f2 * f3 - h * f4;
  const double all[] = {value, f1, f2, f3, f4, f5};
  // What cancels is of the size of the terms, which grows with |x|.
  const double size = 2e-14 * std::min(1.0, h) * (1 + x * x);
  for (int k = 1; k <= n; ++k) out.set(k, all[k], k == 1 ? 2e-14 * h : size * std::pow(2 + std::abs(x), k - 2) * factorials[k]);
}

// log(Phi / phi), the log of Mills's ratio at -x. To the left nothing cancels in it: a = -x, and a + r1 is h above.
inline void log_mills(double x, int n, Derivatives& out) {
  const double a = -x;
  if (a > 100) {
    constexpr double coefficients[] = {-1, 2.5, -37.0 / 3, 88.25};
    double found[most + 2] = {-std::log(a)};
    for (int k = 1; k <= n; ++k) found[k] = factorials[k - 1] * std::pow(a, -k);
    for (int j = 0; j < 4; ++j) {
      double term = coefficients[j] * std::pow(a, -2 * (j + 1));
      for (int k = 0; k <= n; ++k, term *= (2 * j + 1 + k) / a) found[k] += term;
    }
    for (int k = 0; k <= n; ++k) out.set(k, found[k], 4e-15 * std::abs(found[k]));
    return;
  }
  if (a < 6) {
    log_phi(x, n, out);
    out.set(0, out.value[0] + 0.5 * x * x + 0.91893853320467274178);
    if (n > 0) out.set(1, out.value[1] + x, out.error[1] + 2e-15 * std::abs(x));
    if (n > 1) out.set(2, out.value[2] + 1, out.error[2] + 2e-15);
    return;
  }
  double r[4] = {};  // r[k] = k / (a + r[k + 1])
  for (double fraction = 0, k = 60; k >= 1; --k) {
    fraction = k / (a + fraction);
    if (k < 4) r[static_cast<int>(k)] = fraction;
  }
  const double h = a + r[1], f2 = r[1] * (r[2] - r[1]), f3 = h * r[1] * r[1] * r[2] * (r[3] - r[2]);
  const double slope = f2 - 1, f4 = -f3 * r[1] - 2 * slope * f2 - h * f3;
  const double f5 = -f4 * r[1] - 3 * f3 * f2 - 3 * slope * f3 - h * f4;
  const double all[] = {-std::log(h), r[1], f2, f3, f4, f5};
  const double errors[] = {4e-15 * std::log(h), 1e-14 * r[1], 1e-14 * f2, 1e-13 * f3, 1e-14 * f2, 1e-13 * h * f2};
  for (int k = 0; k <= n; ++k) out.set(k, all[k], errors[k]);
}

// The quantile of the standard normal distribution at probability e^x, from either tail, and its derivatives: with m = Phi / phi
// there, that of order n is a polynomial of the quantile and m, and the next one m times its derivative.
inline void normal_quantile(double x, int n, Derivatives& out) {
  const bool is_left = x < -0.6931471805599453;
  const double tail = is_left ? x : std::log(-std::expm1(x)), t = std::sqrt(-2 * tail);
  double w = (2.30753 + 0.27061 * t) / (1 + t * (0.99229 + 0.04481 * t)) - t;  // Abramowitz and Stegun 26.2.22
  Derivatives phi;
  for (int k = 0; k < 4; ++k) {
    log_phi(w, 1, phi);
    w -= (phi.value[0] - tail) / phi.value[1];
  }
  log_phi(w, 1, phi);
  // The quantile is computed from the log of a probability, whose rounding moves it.
  const double off = 4e-16 * (1 - tail) / phi.value[1];
  if (!is_left) w = -w;
  out.set(0, w, 4e-16 * std::abs(w) + off);
  if (n == 0) return;
  if (!is_left) log_phi(w, 1, phi);
  const double m = 1 / phi.value[1];
  double terms[most + 2][most + 2] = {};  // coefficients of w^i m^j
  terms[0][1] = 1;
  for (int k = 1; k <= n; ++k) {
    double value = 0, size = 0, power = 1;
    for (int i = 0; i <= k; ++i, power *= w) {
      double product = power;
      for (int j = 0; j <= k; ++j, product *= m) {
        value += terms[i][j] * product;
        size += std::abs(terms[i][j] * product);
      }
    }
    out.set(k, value, (1e-13 + 20 * off * (1 + std::abs(w))) * size);
    double next[most + 2][most + 2] = {};
    for (int i = 0; i <= k && k < n; ++i)
      for (int j = 0; j <= k; ++j) {
        if (i > 0) next[i - 1][j + 1] += i * terms[i][j];
        if (j > 0) next[i][j] += j * terms[i][j], next[i + 1][j + 1] += j * terms[i][j];
      }
    std::copy(&next[0][0], &next[0][0] + (most + 2) * (most + 2), &terms[0][0]);
  }
}

// log I_0(sqrt(x)), a sum of log(1 + x / z^2) over the zeros of a Bessel function: each derivative is monotone.
inline void log_bessel(double x, int n, Derivatives& out) {
  constexpr double far = 400;
  constexpr int n_terms = 26;
  if (x > far) {
    // The logarithm of the asymptotic series of sqrt(2 pi z) e^-z I_0(z), in powers of 1 / z.
    static const auto coefficients = [] {
      std::array<double, n_terms> series{}, logs{};
      series[0] = 1;
      for (int k = 1; k < n_terms; ++k) {
        series[k] = series[k - 1] * (2 * k - 1) * (2 * k - 1) / (8.0 * k);
        logs[k] = k * series[k];
        for (int j = 1; j < k; ++j) logs[k] -= j * logs[j] * series[k - j];
        logs[k] /= k;
      }
      return logs;
    }();
    const double z = std::sqrt(x);
    double value[most + 2] = {z - 0.25 * std::log(x) - 0.91893853320467274178}, size[most + 2] = {value[0]};
    double falling = -0.25;
    for (int k = 1; k <= n; falling *= -k, ++k) value[k] = falling * std::pow(x, -k), size[k] = std::abs(value[k]);
    double power = z;  // z^-k, with 1 as coefficient of z itself
    for (int k = -1; k < n_terms; ++k, power /= z) {
      double term = k < 0 ? power : k == 0 ? 0 : coefficients[k] * power;
      for (int i = 0; i <= n; ++i) {
        if (i > 0 || k > 0) value[i] += term, size[i] += std::abs(term);
        term *= (-0.5 * k - i) / x;
      }
    }
    for (int k = 0; k <= n; ++k) out.set(k, value[k], 1e-14 * size[k]);
    return;
  }
  double sums[most + 2] = {}, term = 1;
  for (int k = 0; std::abs(term) > 1e-18 * std::abs(sums[0]) || k == 0; term *= x / (4.0 * (k + 1) * (k + 1)), ++k) {
    double own = term;
    for (int i = 0; i <= n; own /= 4.0 * (k + i + 1), ++i) sums[i] += own;
  }
  out.set(0, std::log(sums[0]), 1e-15 * (1 + std::abs(std::log(sums[0]))));
  for (int k = 1; k <= n; ++k) {
    double value = sums[k] / sums[0], error = 1e-14 * std::abs(value), choose = 1;
    for (int j = 1; j < k; choose *= static_cast<double>(k - j) / j, ++j) {
      const double factor = choose * sums[k - j] / sums[0];
      value -= factor * out.value[j];
      error += std::abs(factor) * (out.error[j] + 1e-14 * std::abs(out.value[j]));
    }
    out.set(k, value, error);
  }
}

// The functions of nearly all likelihoods at n points, in vectors: derivatives up to an order of at most 2, a row each.
namespace columns {

using Rows = double* const*;

inline void exp(const double* x, std::size_t n, int order, Rows out) {
  vector_math::exp(x, n, out[0]);
  for (int k = 1; k <= order; ++k) std::copy_n(out[0], n, out[k]);
}

inline void softplus(const double* x, std::size_t n, int order, Rows out) {
  if (order == 0) return vector_math::softplus(x, n, out[0]);
  if (order == 1) return vector_math::softplus(x, n, out[0], out[1]);
  vector_math::softplus(x, n, out[0], out[1], out[2]);
}

inline void inv_logit(const double* x, std::size_t n, int order, Rows out) {
  if (order == 0) return vector_math::inv_logit(x, n, out[0]);
  double *p = out[0], *complement = out[1];
  vector_math::inv_logit(x, n, p, complement);
  if (order == 2)
    for (std::size_t j = 0; j < n; ++j) out[2][j] = p[j] * complement[j] * (complement[j] - p[j]);
  for (std::size_t j = 0; j < n; ++j) complement[j] *= p[j];
}

// Derivatives after one of order `last`, that of a power of x.
inline void powers_of(const double* x, std::size_t n, double exponent, int last, int order, Rows out) {
  for (int k = last; k < order; ++k)
    for (std::size_t j = 0; j < n; ++j) out[k + 1][j] = out[k][j] * ((exponent - (k - last)) / x[j]);
}
inline void inv(const double* x, std::size_t n, int order, Rows out) {
  for (std::size_t j = 0; j < n; ++j) out[0][j] = 1 / x[j];
  powers_of(x, n, -1, 0, order, out);
}
inline void sqrt(const double* x, std::size_t n, int order, Rows out) {
  for (std::size_t j = 0; j < n; ++j) out[0][j] = std::sqrt(x[j]);
  powers_of(x, n, 0.5, 0, order, out);
}
inline void log(const double* x, std::size_t n, int order, Rows out) {
  vector_math::log(x, n, out[0]);
  if (order > 0) inv(x, n, order - 1, out + 1);
}
inline void square(const double* x, std::size_t n, int order, Rows out) {
  for (std::size_t j = 0; j < n; ++j) out[0][j] = x[j] * x[j];
  if (order > 0)
    for (std::size_t j = 0; j < n; ++j) out[1][j] = 2 * x[j];
  if (order > 1) std::fill_n(out[2], n, 2.0);
}

}  // namespace columns

// Turning points of each derivative, from order 0 on, and the open interval on which the function is defined.
struct Function {
  const char* name;
  At at;
  double from, to;
  std::vector<std::vector<double>> turns;
  void (*columns)(const double* x, std::size_t n, int order, columns::Rows out) = nullptr;
  double period = 0;  // turns are repeated so
};

inline const std::vector<Function>& functions() {
  constexpr double inf = Interval::infinity;
  static const std::vector<double> second{0}, third{-1.3169578969248166, 1.3169578969248166},
      fourth{-2.2924316695611777, 0, 2.2924316695611777},
      fifth{-3.1443184061549343, -0.8426329481294081, 0.8426329481294081, 3.1443184061549343},
      sixth{-3.9360983706, -1.5133518472, 0, 1.5133518472, 3.9360983706};
  static const std::vector<Function> all{
      {"exp", exp, -inf, inf, {}, columns::exp},
      {"log", log, 0, inf, {}, columns::log},
      {"log1p", log1p, -1, inf, {}},
      {"log1p_exp", softplus, -inf, inf, {{}, {}, second, third, fourth, fifth}, columns::softplus},
      {"inv_logit", inv_logit, -inf, inf, {{}, second, third, fourth, fifth, sixth}, columns::inv_logit},
      {"log1m_exp", log1m_exp, -inf, 0, {}},
      {"square", square, -inf, inf, {{0}}, columns::square},
      {"inv", inv, 0, inf, {}, columns::inv},
      {"sqrt", sqrt, 0, inf, {}, columns::sqrt},
      {"lgamma", lgamma, 0, inf, {{1.4616321449683623}}},
      {"digamma", digamma, 0, inf, {}},
      {"std_normal_lcdf",
       log_phi,
       -inf,
       inf,
       {{}, {}, {}, {1.0023693422683706}, {-0.0298336209260591, 2.0712889388088740},
        {-0.8711321749891587, 1.2313322903511885, 2.7456389097167838}}},
      {"cos", cos, -inf, inf, {{0}, {1.5707963267948966}, {0}, {1.5707963267948966}, {0}, {1.5707963267948966}}, nullptr, 3.14159265358979324},
      {"atan", atan, -inf, inf, {{}, atan_turns(1), atan_turns(2), atan_turns(3), atan_turns(4), atan_turns(5)}},
      {"std_normal_log_qf", normal_quantile, -inf, 0, {}},
      {"log_bessel_i0_root", log_bessel, -1, inf, {}},
      {"log_mills",
       log_mills,
       -inf,
       inf,
       {{}, {}, {}, {1.0023693422683706}, {-0.0298336209260591, 2.0712889388088740},
        {-0.8711321749891587, 1.2313322903511885, 2.7456389097167838}}}};
  return all;
}

inline const Function& log1p_exp() {
  static const Function& found = *std::find_if(functions().begin(), functions().end(), [](const auto& one) { return one.at == softplus; });
  return found;
}

// Whether n numbers are all the same, as functions of a parameter that observations share are: then one value is enough.
inline bool are_one(const double* x, std::size_t n) { return std::equal(x + 1, x + n, x); }

// Derivatives from order 0 at n >= 1 points, a row each.
inline void derivatives(const Function& g, const double* x, std::size_t n, int order, double* const* out) {
  const std::size_t distinct = are_one(x, n) ? 1 : n;
  if (g.columns) {
    g.columns(x, distinct, order, out);
  } else {
    Derivatives found;
    for (std::size_t j = 0; j < distinct; ++j) {
      g.at(x[j], order, found);
      for (int k = 0; k <= order; ++k) out[k][j] = found.value[k];
    }
  }
  for (int k = 0; k <= order; ++k) std::fill(out[k] + distinct, out[k] + n, out[k][0]);
}

// Taylor coefficients g^(k) / k! at a point.
inline void taylor(const Function& g, double x, int n, double* out) {
  Derivatives found;
  g.at(x, n, found);
  for (int k = 0; k <= n; ++k) out[k] = found.value[k] / factorials[k];
}

// Enclosures of these on an interval: derivatives are monotone between their turning points.
inline void taylor(const Function& g, Interval x, int n, Interval* out) {
  const bool mirrored = g.at == inv && x.hi < 0;  // 1 / x left of 0
  if (mirrored) x = {-x.hi, -x.lo};
  if (!(x.lo > g.from && x.hi < g.to && x.lo <= x.hi)) {
    std::fill(out, out + n + 1, Interval::whole());
    return;
  }
  double lo[most + 1], hi[most + 1];
  std::fill(lo, lo + n + 1, Interval::infinity);
  std::fill(hi, hi + n + 1, -Interval::infinity);
  Derivatives found;
  const auto take = [&](double point, int from, int to) {
    g.at(point, to, found);
    for (int k = from; k <= to; ++k) {
      lo[k] = std::min(lo[k], found.value[k] - found.error[k]);
      hi[k] = std::max(hi[k], found.value[k] + found.error[k]);
      if (std::isnan(found.value[k])) lo[k] = -Interval::infinity, hi[k] = Interval::infinity;
    }
  };
  take(x.lo, 0, n);
  if (x.hi > x.lo) take(x.hi, 0, n);
  for (int k = 0; k <= n && k < static_cast<int>(g.turns.size()); ++k)
    for (const double turn : g.turns[k]) {
      if (g.period == 0) {
        if (x.lo < turn && turn < x.hi) take(turn, k, k);
        continue;
      }
      double at = turn + g.period * std::ceil((x.lo - turn) / g.period);
      for (int m = 0; m < 2 && at < x.hi; ++m, at += g.period) take(at, k, k);
    }
  for (int k = 0; k <= n; ++k) {
    const bool turned = mirrored && k % 2 == 0;
    const double low = turned ? -hi[k] : lo[k], high = turned ? -lo[k] : hi[k];
    out[k] = Interval::outward(low / factorials[k], high / factorials[k]);
  }
}

}  // namespace unary

}  // namespace stansub
