// Metrics of Hamiltonian Monte Carlo.
#pragma once

#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include "cholesky.hpp"
#include "vectors.hpp"

namespace stansub {

// A precision A with P A P' = L (I + sum_k (1 / sds_k^2 - 1) q_k q_k') L'. Its white coordinates are z, of which L'^-1 z has
// sd sds_k along q_k and 1 in directions orthogonal to all q_k.
struct Metric {
  SparseCholesky cholesky;
  std::vector<double> directions;  // q_k, orthonormal, one after another
  std::vector<double> sds;

  std::size_t dim() const { return cholesky.dim(); }

  void check() const {
    cholesky.check();
    if (directions.size() != sds.size() * dim()) throw std::invalid_argument("a direction and the metric differ in length");
    for (const double sd : sds)
      if (!(sd > 0) || !std::isfinite(sd)) throw std::invalid_argument("an sd of the metric is not positive");
  }

  // White coordinates of a vector whose elements are in the order of the factor.
  void inward(std::vector<double>& x) const {
    cholesky.times_transpose(x);
    for (std::size_t k = 0; k < sds.size(); ++k) stretch(x, k, 1 / sds[k]);
  }

  void outward(std::vector<double>& z) const {
    stretch(z);
    cholesky.backward(z);
  }

  // A gradient in white coordinates.
  void pull(std::vector<double>& gradient) const {
    cholesky.forward(gradient);
    stretch(gradient);
  }

 private:
  void stretch(std::vector<double>& x) const {
    for (std::size_t k = 0; k < sds.size(); ++k) stretch(x, k, sds[k]);
  }

  void stretch(std::vector<double>& x, std::size_t k, double by) const {
    const double* const q = directions.data() + k * dim();
    const double more = (by - 1) * dot(q, x);
    for (std::size_t j = 0; j < dim(); ++j) x[j] += more * q[j];
  }
};

}  // namespace stansub
