// Proposals of Metropolis-Hastings steps, mixtures of them, and those that are Gaussian with a mean affine in the state: random
// walks, Laplace pCN, Langevin moves on a quadratic surrogate.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <numpy/random/distributions.h>

#include "dense_triangle.hpp"
#include "vectors.hpp"

namespace stansub {

// theta' as a function of theta and of dim standard normal numbers; chains may share it.
class Proposal {
 public:
  explicit Proposal(std::size_t dim) : dim_(dim) {
    if (dim < 1) throw std::invalid_argument("a proposal must be of at least one parameter");
  }
  virtual ~Proposal() = default;

  std::size_t dim() const { return dim_; }

  // The numbers of scratch memory that a proposal needs, aligned as vectors are.
  virtual std::size_t scratch() const { return dim_; }

  // Writes theta' and returns log q(theta | theta') - log q(theta' | theta); the normal numbers z are overwritten.
  virtual double propose(const double* theta, double* z, double* scratch, double* proposed) const = 0;

 protected:
  std::size_t dim_;
};

// theta' = A theta + c + L z, with log q(theta | theta') - log q(theta' | theta) =
// (|z|^2 - |L^-1 (theta - A theta' - c)|^2) / 2.
class Affine final : public Proposal {
 public:
  Affine(std::size_t dim, const double* matrix, const double* offset, const double* cholesky)
      : Proposal(dim),
        matrix_(matrix, matrix + dim * dim),
        offset_(offset, offset + dim),
        cholesky_(cholesky, dim),
        diagonal_(true),
        symmetric_(true) {
    bool invertible = true, finite = true;
    for (std::size_t i = 0; i < dim; ++i) {
      for (std::size_t j = 0; j < dim; ++j) {
        diagonal_ = diagonal_ && (i == j || matrix_[i * dim + j] == 0);
        finite = finite && std::isfinite(matrix_[i * dim + j]) && std::isfinite(cholesky[i * dim + j]);
        if (j > i && cholesky[i * dim + j] != 0) throw std::invalid_argument("cholesky must be lower triangular");
      }
      symmetric_ = symmetric_ && matrix_[i * dim + i] == 1 && offset_[i] == 0;
      invertible = invertible && cholesky[i * dim + i] != 0;
      finite = finite && std::isfinite(offset_[i]);
    }
    symmetric_ = symmetric_ && diagonal_;
    if (!finite) throw std::invalid_argument("matrix, offset and cholesky must be finite");
    if (!symmetric_ && !invertible)
      throw std::invalid_argument("cholesky must be invertible where the proposal is not symmetric");
  }

  double propose(const double* theta, double* z, double* scratch, double* proposed) const override {
    cholesky_.times(z, scratch);
    set_mean(theta, proposed);
    for (std::size_t i = 0; i < dim_; ++i) proposed[i] += scratch[i];
    if (symmetric_) return 0;
    const double forward = dot(z, z, dim_);
    set_mean(proposed, z);
    for (std::size_t i = 0; i < dim_; ++i) z[i] = theta[i] - z[i];
    cholesky_.solve(z);
    return 0.5 * (forward - dot(z, z, dim_));
  }

 private:
  // A theta + c
  void set_mean(const double* theta, double* mean) const {
    for (std::size_t i = 0; i < dim_; ++i) {
      const double* row = &matrix_[i * dim_];
      mean[i] = (diagonal_ ? row[i] * theta[i] : dot(row, theta, dim_)) + offset_[i];
    }
  }

  std::vector<double> matrix_, offset_;
  DenseTriangle cholesky_;
  bool diagonal_, symmetric_;
};

// One of several proposals, chosen with fixed probabilities, independent of the state: each step is one of a
// Metropolis-Hastings kernel of its own (Tierney 1994, section 2.4). Draws from the generator a uniform if there is a
// choice, then dim normals.
class Proposals {
 public:
  Proposals(std::vector<std::shared_ptr<Proposal>> proposals, const std::vector<double>& weights)
      : proposals_(std::move(proposals)) {
    if (proposals_.empty() || weights.size() != proposals_.size())
      throw std::invalid_argument("there must be a proposal, and a weight for each");
    double sum = 0;
    for (std::size_t i = 0; i < proposals_.size(); ++i) {
      if (proposals_[i]->dim() != dim()) throw std::invalid_argument("proposals must be of the same number of parameters");
      if (!(weights[i] > 0)) throw std::invalid_argument("weights must be positive");
      bounds_.push_back(sum += weights[i]);
      scratch_ = std::max(scratch_, proposals_[i]->scratch());
    }
    if (!(std::abs(sum - 1) < 1e-9)) throw std::invalid_argument("weights must sum to 1");
    bounds_.pop_back();  // the last one has what is left
  }

  std::size_t dim() const { return proposals_.front()->dim(); }

  // Writes theta' and returns the log ratio; `scratch` is a chain's own memory, so that chains may share proposals.
  double draw(bitgen_t* bits, const double* theta, std::vector<double>& scratch, double* proposed) const {
    const Proposal& chosen = *proposals_[choose(bits)];
    const std::size_t width = vector_math::padded(dim());
    scratch.resize(width + scratch_ + vector_math::lanes);
    double* z = vector_math::aligned(scratch.data());
    random_standard_normal_fill(bits, static_cast<npy_intp>(dim()), z);
    return chosen.propose(theta, z, z + width, proposed);
  }

 private:
  std::size_t choose(bitgen_t* bits) const {
    if (bounds_.empty()) return 0;
    const double u = bits->next_double(bits->state);
    return std::upper_bound(bounds_.begin(), bounds_.end(), u) - bounds_.begin();
  }

  std::vector<std::shared_ptr<Proposal>> proposals_;
  std::vector<double> bounds_;
  std::size_t scratch_ = 0;
};

}  // namespace stansub
