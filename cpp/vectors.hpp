// Sums over vectors.
#pragma once

#include <cstddef>
#include <vector>

namespace stansub {

// The dot product of two vectors, as several sums, which the compiler can vectorise.
inline double dot(const double* a, const double* b, std::size_t n) {
  constexpr std::size_t lanes = 4;
  double sums[lanes] = {}, rest = 0;
  std::size_t k = 0;
  for (; k + lanes <= n; k += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += a[k + lane] * b[k + lane];
  for (; k < n; ++k) rest += a[k] * b[k];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest;
}

inline double dot(const double* a, const std::vector<double>& b) { return dot(a, b.data(), b.size()); }

}  // namespace stansub
