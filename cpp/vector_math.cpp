#include "vector_math.hpp"

#include <cstdint>
#include <cstring>
#include <limits>

#include "variants.hpp"

namespace stansub::vector_math {
namespace {

// A number k of small size added to it has the lowest bits k.
constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52

inline std::uint64_t bits_of(double x) {
  std::uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

inline double power_of_two(double k) {
  const std::uint64_t bits = (bits_of(k + kShift) + 1023) << 52;
  double found;
  std::memcpy(&found, &bits, sizeof found);
  return found;
}

// e^x = 2^k e^r, |r| <= log(2) / 2, with a polynomial for (e^r - 1 - r) / r^2 whose relative error is below 1e-16. The
// power is taken in two steps, for results that overflow or have few digits.
inline double exponential(double x) {
  x = x < -746 ? -746 : x;
  x = x > 710 ? 710 : x;
  const double k = (x * 1.4426950408889634 + kShift) - kShift;
  const double r = (x - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10;
  double q = 2.51003854955103191e-8;
  q = q * r + 2.76200884454097482e-7;
  q = q * r + 2.75572684599970648e-6;
  q = q * r + 0.0000248015212959543751;
  q = q * r + 0.000198412698630536169;
  q = q * r + 0.00138888889172137169;
  q = q * r + 0.00833333333333006183;
  q = q * r + 0.0416666666666241279;
  q = q * r + 0.166666666666666675;
  q = q * r + 0.5;
  const double half = (0.5 * k + kShift) - kShift;
  return ((1 + (r + r * r * q)) * power_of_two(half)) * power_of_two(k - half);
}

// log((1 + s) / (1 - s)), |s| <= 1 / 3, as twice the inverse hyperbolic tangent of s, s (1 + z q(z)) with z = s^2.
inline double log_of_ratio(double s) {
  const double z = s * s;
  double q = 0.0781528890046142522;
  q = q * z + 0.0374607189777538365;
  q = q * z + 0.0542258919744000741;
  q = q * z + 0.0586713953065159873;
  q = q * z + 0.0666758931572462792;
  q = q * z + 0.0769227198243027464;
  q = q * z + 0.0909090994898135719;
  q = q * z + 0.111111110991183853;
  q = q * z + 0.142857142858000496;
  q = q * z + 0.199999999999997613;
  q = q * z + 0.333333333333333334;
  return 2 * (s + s * (z * q));
}

// log(1 + u), 0 <= u <= 1.
inline double log_of_one_plus(double u) { return log_of_ratio(u / (2 + u)); }

// log(x) = k log(2) + log(m), sqrt(1/2) <= m <= sqrt(2). Numbers with few digits are scaled first.
inline double logarithm(double x) {
  constexpr double least = std::numeric_limits<double>::min(), most = std::numeric_limits<double>::max();
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const double scaled = x < least ? x * 18014398509481984.0 : x;  // 2^54
  const std::uint64_t bits = bits_of(scaled), mantissa = (bits & 0x000fffffffffffff) | bits_of(1.0);
  // 2^52 with the exponent as its lowest bits.
  const std::uint64_t exponent = (bits >> 52) | bits_of(4503599627370496.0);
  double m, k;
  std::memcpy(&m, &mantissa, sizeof m);
  std::memcpy(&k, &exponent, sizeof k);
  const bool halves = m > 1.4142135623730951;
  m = halves ? 0.5 * m : m;
  k = k - (4503599627370496.0 + 1023) + (halves ? 1.0 : 0.0) - (x < least ? 54.0 : 0.0);
  const double found = k * 0.693147180369123816490 + (k * 1.90821492927058770002e-10 + log_of_ratio((m - 1) / (m + 1)));
  const double beyond = x > most ? inf : found;
  return x > 0 ? beyond : (x == 0 ? -inf : nan);
}

// log(1 + e^x), with e^-|x|.
inline double softplus_of(double x, double small) { return (x < 0 ? 0 : x) + log_of_one_plus(small); }

inline void store(double* to, const Eight& numbers) { std::memcpy(to, &numbers, sizeof numbers); }

// The products of d_j and d_l, l <= j, in whole vectors; returns how many numbers these have.
inline std::size_t multiply_row(const double* d, std::size_t j, double* out) {
  std::size_t l = 0;
  for (; l <= j; l += lanes) store(out + l, d[j] * load<Eight>(d + l));
  return l;
}

// Adds a multiple of a vector to sums, and its product with another one to that one's.
inline void add_and_multiply(const double* a, double factor, double* sums, const double* b, Eight& product) {
  const Eight numbers = load<Eight>(a);
  store(sums, load<Eight>(sums) + factor * numbers);
  product += numbers * load<Eight>(b);
}

// Adds the product of a panel's columns and a vector; returns the next column.
inline const double* add_columns(const double* panel, const double* x, std::size_t n, Eight& sums) {
  for (std::size_t j = 0; j < n; ++j, panel += panel_rows) sums += load<Eight>(panel) * x[j];
  return panel;
}

}  // namespace

STANSUB_VARIANTS void exp(const double* x, std::size_t n, double* value) {
  for (std::size_t i = 0; i < n; ++i) value[i] = exponential(x[i]);
}

STANSUB_VARIANTS void softplus(const double* x, std::size_t n, double* value) {
  for (std::size_t i = 0; i < n; ++i) value[i] = softplus_of(x[i], exponential(x[i] < 0 ? x[i] : -x[i]));
}

STANSUB_VARIANTS void softplus(const double* x, std::size_t n, double* value, double* slope) {
  for (std::size_t i = 0; i < n; ++i) {
    const double at = x[i], small = exponential(at < 0 ? at : -at);
    value[i] = softplus_of(at, small);
    slope[i] = (at < 0 ? small : 1.0) / (1 + small);
  }
}

STANSUB_VARIANTS void softplus(const double* x, std::size_t n, double* value, double* slope, double* curve) {
  for (std::size_t i = 0; i < n; ++i) {
    const double at = x[i], small = exponential(at < 0 ? at : -at), both = 1 + small;
    value[i] = softplus_of(at, small);
    slope[i] = (at < 0 ? small : 1.0) / both;
    curve[i] = small / (both * both);
  }
}

STANSUB_VARIANTS void inv_logit(const double* x, std::size_t n, double* value) {
  for (std::size_t i = 0; i < n; ++i) {
    const double small = exponential(x[i] < 0 ? x[i] : -x[i]);
    value[i] = (x[i] < 0 ? small : 1.0) / (1 + small);
  }
}

STANSUB_VARIANTS void inv_logit(const double* x, std::size_t n, double* value, double* complement) {
  for (std::size_t i = 0; i < n; ++i) {
    const double small = exponential(x[i] < 0 ? x[i] : -x[i]), large_share = 1 / (1 + small), small_share = small * large_share;
    value[i] = x[i] < 0 ? small_share : large_share;
    complement[i] = x[i] < 0 ? large_share : small_share;
  }
}

STANSUB_VARIANTS void log(const double* x, std::size_t n, double* value) {
  for (std::size_t i = 0; i < n; ++i) value[i] = logarithm(x[i]);
}

STANSUB_VARIANTS std::int32_t dot(const std::int16_t* a, const std::int16_t* b, std::size_t n) {
  std::int32_t sum = 0;
  for (std::size_t k = 0; k < n; ++k) sum += std::int32_t{a[k]} * std::int32_t{b[k]};
  return sum;
}

STANSUB_VARIANTS void triangle_times(const double* panels, const double* x, std::size_t n, double* out) {
  for (std::size_t first = 0; first < n; first += panel_rows) {
    const std::size_t rows = n - first < panel_rows ? n - first : panel_rows;
    Eight sums{};
    panels = add_columns(panels, x, first + rows, sums);
    for (std::size_t row = 0; row < rows; ++row) out[first + row] = sums[row];
  }
}

STANSUB_VARIANTS void triangle_solve(const double* panels, const double* inverse, std::size_t n, double* x) {
  for (std::size_t first = 0; first < n; first += panel_rows) {
    const std::size_t rows = n - first < panel_rows ? n - first : panel_rows;
    Eight sums{};
    panels = add_columns(panels, x, first, sums);
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t j = first + row;
      x[j] = (x[j] - sums[row]) * inverse[j];
      panels = add_columns(panels, x + j, 1, sums);
    }
  }
}

STANSUB_VARIANTS double cubic_form(const double* t, const double* d, std::size_t n, double* scratch) {
  double sum = 0;
  for (std::size_t j = 0, size = 0; j < n; ++j) {
    size += multiply_row(d, j, scratch + size);
    Eight some{}, more{};
    std::size_t k = 0;
    for (; k + 2 * lanes <= size; k += 2 * lanes) {
      some += load<Eight>(t + k) * load<Eight>(scratch + k);
      more += load<Eight>(t + k + lanes) * load<Eight>(scratch + k + lanes);
    }
    if (k < size) some += load<Eight>(t + k) * load<Eight>(scratch + k);
    sum += d[j] * total(some + more);
    t += size;
  }
  return sum;
}

STANSUB_VARIANTS void cubic_gradient(const double* t, const double* d, std::size_t n, double* scratch, double* gradient) {
  const std::size_t all = row_numbers(n), width = padded(n);
  double *products = scratch, *sums = products + all, *own = sums + all, *others = own + width;
  for (std::size_t k = 0; k < width; k += lanes) {
    store(own + k, Eight{});
    store(others + k, Eight{});
  }
  for (std::size_t k = 0; k < all; k += lanes) store(sums + k, Eight{});
  for (std::size_t j = 0, size = 0; j < n; ++j) {
    size += multiply_row(d, j, products + size);
    Eight some{}, more{};
    std::size_t k = 0;
    for (; k + 2 * lanes <= size; k += 2 * lanes) {
      add_and_multiply(t + k, d[j], sums + k, products + k, some);
      add_and_multiply(t + k + lanes, d[j], sums + k + lanes, products + k + lanes, more);
    }
    if (k < size) add_and_multiply(t + k, d[j], sums + k, products + k, some);
    own[j] = total(some + more);
    t += size;
  }
  for (std::size_t k = 0; k < n; ++k) {
    Eight row{};
    for (std::size_t l = 0; l <= k; l += lanes, sums += lanes) add_and_multiply(sums, d[k], others + l, d + l, row);
    own[k] += total(row);
  }
  for (std::size_t k = 0; k < width; k += lanes) store(gradient + k, load<Eight>(own + k) + load<Eight>(others + k));
}

}  // namespace stansub::vector_math
