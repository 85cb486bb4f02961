// The log likelihood of all observations, from their arguments and the data of their density.
#pragma once

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include "arguments.hpp"
#include "densities.hpp"
#include "numbers.hpp"

namespace stansub {

// The sum over all observations. Data are columns of n numbers.
inline double full_data_log_lik(const Arguments& arguments, const LogLik& density, const std::vector<Numbers>& data, const double* phi) {
  constexpr std::size_t block = 512;
  if (data.size() != density.n_data) throw std::invalid_argument("the density takes other data");
  std::vector<double> x(arguments.dim() + 1), eta(arguments.size() * block), own(data.size() * block), scratch(block);
  std::copy_n(phi, arguments.dim(), x.begin() + 1);
  double sum = 0;
  for (std::size_t first = 0; first < arguments.n(); first += block) {
    const std::size_t count = std::min(block, arguments.n() - first);
    for (std::size_t k = 0; k < arguments.size(); ++k) arguments[k].at(x.data() + 1, first, count, &eta[k * block]);
    for (std::size_t k = 0; k < data.size(); ++k) data[k].copy(first, count, &own[k * block]);
    sum += density.sum({own.data(), data.size(), block}, {eta.data(), arguments.size(), block}, count, scratch.data());
  }
  return sum;
}

}  // namespace stansub
