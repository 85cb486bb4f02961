// Coordinates that avoid the narrow curved ridge of effects and their unknown scales.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "combination.hpp"
#include "prior_means.hpp"
#include "soft_minima.hpp"

namespace stansub {

// Some of the parameters theta are in blocks z, less means that are linear functions of other parameters. A block is
// replaced by u = S z, where S is lower triangular and depends on parameters of no block: row i of S has norm e^f_ii and the
// partial correlations tanh f_ij, j < i, and each f is a soft minimum of affine functions of those parameters. This is a
// bijection for any f, with log determinant
//   sum_i f_ii + sum_{j < i} log sech f_ij
// The inner coordinates may be constant combinations v = A u of the result, whose log determinant is left out. Unsuitable
// numbers therefore make a sampler slow, but never wrong.
class Coordinates {
 public:
  // For each block its size; for all blocks, concatenated, the positions of the effects.
  struct Blocks {
    std::vector<std::int32_t> sizes, places;
  };

  Coordinates() = default;

  // Functions are block by block and by rows of lower triangles.
  Coordinates(Blocks blocks, SoftMinima::Rows rows, PriorMeans means, Combination combination, std::size_t dim)
      : own_(std::move(blocks)), functions_(std::move(rows)), means_(std::move(means)), combination_(std::move(combination)),
        dim_(dim), z_(dim), u_(dim) {
    std::size_t n_places = 0, n_functions = 0;
    for (const std::int32_t k : own_.sizes) {
      if (k < 1) throw std::invalid_argument("a block has no effects");
      n_places += k;
      n_functions += static_cast<std::size_t>(k) * (k + 1) / 2;
    }
    if (own_.places.size() != n_places || functions_.size() != n_functions)
      throw std::invalid_argument("the parts of coordinates do not fit together");
    std::vector<bool> in_block(dim);
    for (const std::int32_t at : own_.places) {
      if (at < 0 || at >= static_cast<std::int32_t>(dim) || in_block[at])
        throw std::invalid_argument("blocks of effects overlap, or are of no parameters");
      in_block[at] = true;
    }
    for (const std::int32_t at : functions_.columns())
      if (at < 0 || at >= static_cast<std::int32_t>(dim) || in_block[at])
        throw std::invalid_argument("a function of coordinates depends on effects, or on no parameters");
    for (const std::int32_t at : means_.places())
      if (at >= static_cast<std::int32_t>(dim) || !in_block[at]) throw std::invalid_argument("a parameter of no block has a mean");
    rests_.resize(n_functions);
    tanhs_.resize(n_functions);
  }

  std::size_t dim() const { return dim_; }

  void inward(const double* theta, double* inner) {
    std::copy(theta, theta + dim_, z_.begin());
    means_.remove(z_.data());
    u_ = z_;
    set(theta);
    blocks([&](const std::int32_t* at, std::size_t first, std::int32_t k) {
      for (std::int32_t i = 0; i < k; ++i) {
        u_[at[i]] = 0;
        for (std::int32_t j = 0; j <= i; ++j) u_[at[i]] += entry(first, i, j) * z_[at[j]];
      }
    });
    if (combination_.is_identity()) {
      std::copy(u_.begin(), u_.end(), inner);
    } else {
      combination_.combine(u_.data(), combined_);
      std::copy(combined_.begin(), combined_.end(), inner);
    }
  }

  void outward(const double* inner, double* theta) {
    if (combination_.is_identity()) {
      std::copy(inner, inner + dim_, u_.begin());
    } else {
      combination_.separate(inner, u_.data());
    }
    z_ = u_;
    set(z_.data());
    blocks([&](const std::int32_t* at, std::size_t first, std::int32_t k) {
      for (std::int32_t i = 0; i < k; ++i) {
        for (std::int32_t j = 0; j < i; ++j) z_[at[i]] -= entry(first, i, j) * z_[at[j]];
        z_[at[i]] /= entry(first, i, i);
      }
    });
    std::copy(z_.begin(), z_.end(), theta);
    means_.add(theta);
  }

  // Transforms a log density and its gradient to these coordinates, at the latest point that was converted to or from
  // inner coordinates.
  void pull(double& log_density, double* gradient) {
    means_.pull(gradient);
    blocks([&](const std::int32_t* at, std::size_t first, std::int32_t k) {
      for (std::int32_t i = k; i-- > 0;) {  // S'^-1 of the gradient
        for (std::int32_t m = i + 1; m < k; ++m) gradient[at[i]] -= entry(first, m, i) * gradient[at[m]];
        gradient[at[i]] /= entry(first, i, i);
      }
      for (std::int32_t i = 0; i < k; ++i) {
        const std::size_t row = first + index(i, 0);
        const double slope = gradient[at[i]];
        log_density -= std::log(rests_[row + i]);
        functions_.add(row + i, -slope * u_[at[i]] - 1);
        double after = rests_[row + i] * z_[at[i]];  // the sum of S_im z_m, m > j
        for (std::int32_t j = i; j-- > 0;) {
          const double rest = rests_[row + j], next = rests_[row + j + 1], tanh = tanhs_[row + j];
          functions_.add(row + j, tanh - slope * (next * (next / rest) * z_[at[j]] - tanh * after));
          after += rest * tanh * z_[at[j]];
        }
      }
    });
    functions_.distribute(gradient);
    if (combination_.is_identity()) return;
    combination_.pull(gradient, combined_);
    std::copy(combined_.begin(), combined_.end(), gradient);
  }

 private:
  static std::size_t index(std::int32_t i, std::int32_t j) { return static_cast<std::size_t>(i) * (i + 1) / 2 + j; }

  // S_ij of the block that starts at this function.
  double entry(std::size_t first, std::int32_t i, std::int32_t j) const {
    const std::size_t f = first + index(i, j);
    return j < i ? rests_[f] * tanhs_[f] : rests_[f];
  }

  template <class Work>
  void blocks(Work work) const {
    const std::int32_t* at = own_.places.data();
    std::size_t first = 0;
    for (const std::int32_t k : own_.sizes) {
      work(at, first, k);
      at += k;
      first += index(k, 0);
    }
  }

  // Remaining norm of a row before each entry: e^f_ii, then times sech f_i0, and so on.
  void set(const double* theta) {
    functions_.set(theta);
    blocks([&](const std::int32_t*, std::size_t first, std::int32_t k) {
      for (std::int32_t i = 0; i < k; ++i) {
        const std::size_t row = first + index(i, 0);
        double rest = std::exp(functions_.value(row + i));
        for (std::int32_t j = 0; j < i; ++j) {
          const double f = functions_.value(row + j);
          rests_[row + j] = rest;
          tanhs_[row + j] = std::tanh(f);
          rest /= std::cosh(f);
        }
        rests_[row + i] = rest;
      }
    });
  }

  Blocks own_;
  SoftMinima functions_;
  PriorMeans means_;
  Combination combination_;
  std::size_t dim_ = 0;
  std::vector<double> rests_, tanhs_;
  std::vector<double> z_, u_, combined_;  // at the latest point
};

}  // namespace stansub
