// Functions compiled several times, of which one is chosen when the module is loaded, and vectors for them.
#pragma once

#include <cstring>

// Eight or four numbers at once where the processor can, two otherwise. No variant fuses products and sums, so all give
// the same numbers.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define STANSUB_VARIANTS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define STANSUB_VARIANTS
#endif

namespace stansub {

// Eight numbers: in one register or in several, with the same sums on every machine.
using Eight [[gnu::vector_size(64)]] = double;

// Always inlined, because how such vectors are returned depends on the variant.
template <class Vector, class Number>
[[gnu::always_inline]] inline Vector load(const Number* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

inline double total(const Eight& sums) {
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

}  // namespace stansub
