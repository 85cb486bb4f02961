// Functions of many numbers at once, which compilers turn into vector instructions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stansub::vector_math {

// e^x, within two units in the last place.
void exp(const double* x, std::size_t n, double* value);

// log(1 + e^x), and its derivative.
void softplus(const double* x, std::size_t n, double* value);
void softplus(const double* x, std::size_t n, double* value, double* slope);

// The dot product of two vectors.
std::int32_t dot(const std::int16_t* a, const std::int16_t* b, std::size_t n);

// Products with a lower triangular matrix of n rows, given in panels of so many rows, column by column up to the diagonal of the
// last row: out := L x; and x := L^-1 x, given one over the diagonal. An element is summed in the order of the columns.
constexpr std::size_t panel_rows = 8;
void triangle_times(const double* panels, const double* x, std::size_t n, double* out);
void triangle_solve(const double* panels, const double* inverse, std::size_t n, double* x);

// The sum over j, k <= j and l <= k of t_jkl d_j d_k d_l, of n numbers d and coefficients t in this order, with scratch memory
// for n (n + 1) / 2 products.
double cubic_form(const double* t, const double* d, std::size_t n, double* products);

}  // namespace stansub::vector_math
