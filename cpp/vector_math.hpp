// Functions of many numbers at once, which compilers turn into vector instructions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stansub::vector_math {

// e^x, within two units in the last place.
void exp(const double* x, std::size_t n, double* value);

// log(1 + e^x), and its derivatives.
void softplus(const double* x, std::size_t n, double* value);
void softplus(const double* x, std::size_t n, double* value, double* slope);
void softplus(const double* x, std::size_t n, double* value, double* slope, double* curve);

// 1 / (1 + e^-x); and one minus it, without cancellation.
void inv_logit(const double* x, std::size_t n, double* value);
void inv_logit(const double* x, std::size_t n, double* value, double* complement);

// log(x), within two units in the last place.
void log(const double* x, std::size_t n, double* value);

// The dot product of two vectors.
std::int32_t dot(const std::int16_t* a, const std::int16_t* b, std::size_t n);

// Products with a lower triangular matrix of n rows, given in panels of so many rows, column by column up to the diagonal of the
// last row: out := L x; and x := L^-1 x, given one over the diagonal. An element is summed in the order of the columns.
constexpr std::size_t panel_rows = 8;
void triangle_times(const double* panels, const double* x, std::size_t n, double* out);
void triangle_solve(const double* panels, const double* inverse, std::size_t n, double* x);

// Rows of whole vectors: numbers in one of n numbers, in those of all k <= n, and the first aligned place of some memory.
constexpr std::size_t lanes = 8;
constexpr std::size_t padded(std::size_t n) { return (n + lanes - 1) / lanes * lanes; }
constexpr std::size_t row_numbers(std::size_t n) {
  std::size_t sum = 0;
  for (std::size_t k = 1; k <= n; ++k) sum += padded(k);
  return sum;
}
inline double* aligned(double* memory) {
  constexpr std::uintptr_t size = lanes * sizeof(double);
  return reinterpret_cast<double*>((reinterpret_cast<std::uintptr_t>(memory) + size - 1) / size * size);
}

// The sum over j, k <= j and l <= k of t_jkl d_j d_k d_l, and its gradient. Numbers are in such rows, with 0 at their ends: d and the
// gradient in one, and t in one for each j and k. Scratch memory is for row_numbers(n) numbers; for the gradient, for twice as many
// and two more rows.
double cubic_form(const double* t, const double* d, std::size_t n, double* scratch);
void cubic_gradient(const double* t, const double* d, std::size_t n, double* scratch, double* gradient);

}  // namespace stansub::vector_math
