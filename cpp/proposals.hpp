// Gaussian proposals whose mean is affine in the state: random walks, Laplace pCN, Langevin moves on a
// quadratic surrogate, and mixtures of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include <numpy/random/distributions.h>

namespace stansub {

// Row i of a lower triangular matrix times a vector, up to but excluding the entry `end`.
inline double row_times(const double* row, const double* x, std::size_t end) {
  double sum = 0;
  for (std::size_t j = 0; j < end; ++j) sum += row[j] * x[j];
  return sum;
}

// theta' = A theta + c + L z, with log q(theta | theta') - log q(theta' | theta) =
// (|z|^2 - |L^-1 (theta - A theta' - c)|^2) / 2.
class Affine {
 public:
  Affine(std::size_t dim, const double* matrix, const double* offset, const double* cholesky)
      : dim_(dim),
        matrix_(matrix, matrix + dim * dim),
        offset_(offset, offset + dim),
        cholesky_(cholesky, cholesky + dim * dim),
        diagonal_(true),
        symmetric_(true) {
    for (std::size_t i = 0; i < dim; ++i) {
      for (std::size_t j = 0; j < dim; ++j) {
        diagonal_ = diagonal_ && (i == j || matrix_[i * dim + j] == 0);
        if (j > i && cholesky_[i * dim + j] != 0) throw std::invalid_argument("cholesky must be lower triangular");
      }
      symmetric_ = symmetric_ && matrix_[i * dim + i] == 1 && offset_[i] == 0;
    }
    symmetric_ = symmetric_ && diagonal_;
    for (const auto* numbers : {&matrix_, &offset_, &cholesky_})
      if (!std::all_of(numbers->begin(), numbers->end(), [](double x) { return std::isfinite(x); }))
        throw std::invalid_argument("matrix, offset and cholesky must be finite");
    for (std::size_t i = 0; i < dim && !symmetric_; ++i) {
      if (cholesky_[i * dim + i] == 0)
        throw std::invalid_argument("cholesky must be invertible where the proposal is not symmetric");
      inverse_.push_back(1 / cholesky_[i * dim + i]);
    }
  }

  // Writes theta' and returns the log ratio; z (dim numbers) is overwritten.
  double propose(const double* theta, double* z, double* proposed) const {
    for (std::size_t i = 0; i < dim_; ++i)
      proposed[i] = mean(theta, i) + row_times(&cholesky_[i * dim_], z, i + 1);
    if (symmetric_) return 0;
    double forward = 0, back = 0;
    for (std::size_t i = 0; i < dim_; ++i) {
      forward += z[i] * z[i];
      z[i] = (theta[i] - mean(proposed, i) - row_times(&cholesky_[i * dim_], z, i)) * inverse_[i];
      back += z[i] * z[i];
    }
    return 0.5 * (forward - back);
  }

 private:
  double mean(const double* theta, std::size_t i) const {
    if (symmetric_) return theta[i];
    const double* row = &matrix_[i * dim_];
    return (diagonal_ ? row[i] * theta[i] : row_times(row, theta, dim_)) + offset_[i];
  }

  std::size_t dim_;
  std::vector<double> matrix_, offset_, cholesky_, inverse_;  // of the diagonal
  bool diagonal_, symmetric_;
};

// One of several proposals, chosen with fixed probabilities, independent of the state: each step is
// one of a Metropolis-Hastings kernel of its own (Tierney 1994, section 2.4). Draws from the generator a uniform
// if there is a choice, then dim normals.
class Proposals {
 public:
  // k concatenated matrices, offsets and factors, and k probabilities.
  Proposals(std::size_t dim, std::size_t k, const double* matrix, const double* offset, const double* cholesky,
            const double* weight)
      : dim_(dim) {
    if (dim < 1 || k < 1) throw std::invalid_argument("there must be a proposal, of a parameter at least");
    double sum = 0;
    for (std::size_t i = 0; i < k; ++i) {
      if (!(weight[i] > 0)) throw std::invalid_argument("weights must be positive");
      components_.emplace_back(dim, matrix + i * dim * dim, offset + i * dim, cholesky + i * dim * dim);
      bounds_.push_back(sum += weight[i]);
    }
    if (!(std::abs(sum - 1) < 1e-9)) throw std::invalid_argument("weights must sum to 1");
    bounds_.pop_back();  // the last component has what is left
  }

  std::size_t dim() const { return dim_; }

  // Writes theta' and returns the log ratio; `normals` is scratch memory, so that chains may share proposals.
  double draw(bitgen_t* bits, const double* theta, std::vector<double>& normals, double* proposed) const {
    const Affine& component = components_[choose(bits)];
    normals.resize(dim_);
    random_standard_normal_fill(bits, static_cast<npy_intp>(dim_), normals.data());
    return component.propose(theta, normals.data(), proposed);
  }

 private:
  std::size_t choose(bitgen_t* bits) const {
    if (bounds_.empty()) return 0;
    const double u = bits->next_double(bits->state);
    return std::upper_bound(bounds_.begin(), bounds_.end(), u) - bounds_.begin();
  }

  std::size_t dim_;
  std::vector<Affine> components_;
  std::vector<double> bounds_;
};

}  // namespace stansub
