// Functions compiled several times, of which one is chosen when the module is loaded.
#pragma once

// Eight or four numbers at once where the processor can, two otherwise. No variant fuses products and sums, so all give
// the same numbers.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define STANSUB_VARIANTS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define STANSUB_VARIANTS
#endif
