// Functions of many numbers at once, which compilers turn into vector instructions.
#pragma once

#include <cstddef>

namespace stansub::vector_math {

// e^x, within two units in the last place.
void exp(const double* x, std::size_t n, double* value);

// log(1 + e^x), and its derivative.
void softplus(const double* x, std::size_t n, double* value);
void softplus(const double* x, std::size_t n, double* value, double* slope);

}  // namespace stansub::vector_math
