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

// Some of the parameters theta are in blocks, less means that are linear functions of other parameters. A block z is
// replaced by u = S z, or a block u by z, where S is lower triangular and depends on parameters of no block: row i of S has
// norm e^f_ii and the partial correlations tanh f_ij, j < i, and each f is a soft minimum of affine functions of those
// parameters. This is a bijection for any f; log |S| is
//   sum_i f_ii + sum_{j < i} log sech f_ij
// The inner coordinates may be constant combinations v = A u of the result, whose log determinant is left out. Unsuitable
// numbers therefore make a sampler slow, but never wrong.
class Coordinates {
 public:
  // For each block its size, and whether parameters are u rather than z; for all blocks, concatenated, the positions of the
  // effects.
  struct Blocks {
    std::vector<std::int32_t> sizes, places;
    std::vector<std::uint8_t> divided;
  };

  Coordinates() = default;

  // Functions are block by block and by rows of lower triangles.
  Coordinates(Blocks blocks, SoftMinima::Rows rows, PriorMeans means, Combination combination, std::size_t dim)
      : own_(std::move(blocks)), functions_(std::move(rows)), means_(std::move(means)), combination_(std::move(combination)),
        dim_(dim), theta_(dim), inner_(dim) {
    std::size_t n_places = 0, n_functions = 0;
    for (const std::int32_t k : own_.sizes) {
      if (k < 1) throw std::invalid_argument("a block has no effects");
      n_places += k;
      n_functions += static_cast<std::size_t>(k) * (k + 1) / 2;
    }
    if (own_.places.size() != n_places || own_.divided.size() != own_.sizes.size() || functions_.size() != n_functions)
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
    std::copy(theta, theta + dim_, theta_.begin());
    means_.remove(theta_.data());
    inner_ = theta_;
    set(theta);
    blocks([&](const Block& block) { block.is_divided ? divide(block, inner_) : multiply(block, inner_); });
    if (combination_.is_identity()) {
      std::copy(inner_.begin(), inner_.end(), inner);
    } else {
      combination_.combine(inner_.data(), combined_);
      std::copy(combined_.begin(), combined_.end(), inner);
    }
  }

  void outward(const double* inner, double* theta) {
    if (combination_.is_identity()) {
      std::copy(inner, inner + dim_, inner_.begin());
    } else {
      combination_.separate(inner, inner_.data());
    }
    theta_ = inner_;
    set(inner_.data());
    blocks([&](const Block& block) { block.is_divided ? multiply(block, theta_) : divide(block, theta_); });
    std::copy(theta_.begin(), theta_.end(), theta);
    means_.add(theta);
  }

  // Transforms a log density and its gradient to these coordinates, at the latest point that was converted to or from
  // inner coordinates.
  void pull(double& log_density, double* gradient) {
    means_.pull(gradient);
    blocks([&](const Block& block) {
      if (!block.is_divided) divide_slopes(block, gradient);
      const double sign = block.is_divided ? 1 : -1;
      const std::vector<double>&z = block.is_divided ? inner_ : theta_, &u = block.is_divided ? theta_ : inner_;
      for (std::int32_t i = 0; i < block.size; ++i) {
        const std::size_t row = block.first + index(i, 0);
        const double slope = gradient[block.places[i]];  // by u
        log_density += sign * std::log(rests_[row + i]);
        functions_.add(row + i, sign * (slope * u[block.places[i]] + 1));
        double after = rests_[row + i] * z[block.places[i]];  // the sum of S_im z_m, m > j
        for (std::int32_t j = i; j-- > 0;) {
          const double rest = rests_[row + j], next = rests_[row + j + 1], tanh = tanhs_[row + j], own = z[block.places[j]];
          functions_.add(row + j, sign * (slope * (next * (next / rest) * own - tanh * after) - tanh));
          after += rest * tanh * own;
        }
      }
      if (block.is_divided) multiply_slopes(block, gradient);
    });
    functions_.distribute(gradient);
    if (combination_.is_identity()) return;
    combination_.pull(gradient, combined_);
    std::copy(combined_.begin(), combined_.end(), gradient);
  }

 private:
  struct Block {
    const std::int32_t* places;
    std::size_t first;  // function
    std::int32_t size;
    bool is_divided;
  };

  static std::size_t index(std::int32_t i, std::int32_t j) { return static_cast<std::size_t>(i) * (i + 1) / 2 + j; }

  double entry(const Block& block, std::int32_t i, std::int32_t j) const {
    const std::size_t f = block.first + index(i, j);
    return j < i ? rests_[f] * tanhs_[f] : rests_[f];
  }

  // S x and S^-1 x, in place.
  void multiply(const Block& block, std::vector<double>& x) const {
    for (std::int32_t i = block.size; i-- > 0;) {
      double sum = 0;
      for (std::int32_t j = 0; j <= i; ++j) sum += entry(block, i, j) * x[block.places[j]];
      x[block.places[i]] = sum;
    }
  }
  void divide(const Block& block, std::vector<double>& x) const {
    for (std::int32_t i = 0; i < block.size; ++i) {
      for (std::int32_t j = 0; j < i; ++j) x[block.places[i]] -= entry(block, i, j) * x[block.places[j]];
      x[block.places[i]] /= entry(block, i, i);
    }
  }

  // S'g and S'^-1 g, in place.
  void multiply_slopes(const Block& block, double* g) const {
    for (std::int32_t j = 0; j < block.size; ++j) {
      g[block.places[j]] *= entry(block, j, j);
      for (std::int32_t i = j + 1; i < block.size; ++i) g[block.places[j]] += entry(block, i, j) * g[block.places[i]];
    }
  }
  void divide_slopes(const Block& block, double* g) const {
    for (std::int32_t i = block.size; i-- > 0;) {
      for (std::int32_t m = i + 1; m < block.size; ++m) g[block.places[i]] -= entry(block, m, i) * g[block.places[m]];
      g[block.places[i]] /= entry(block, i, i);
    }
  }

  template <class Work>
  void blocks(Work work) const {
    std::size_t at = 0, first = 0;
    for (std::size_t b = 0; b < own_.sizes.size(); ++b) {
      work(Block{own_.places.data() + at, first, own_.sizes[b], own_.divided[b] != 0});
      at += own_.sizes[b];
      first += index(own_.sizes[b], 0);
    }
  }

  // Remaining norm of a row before each entry: e^f_ii, then times sech f_i0, and so on.
  void set(const double* theta) {
    functions_.set(theta);
    blocks([&](const Block& block) {
      for (std::int32_t i = 0; i < block.size; ++i) {
        const std::size_t row = block.first + index(i, 0);
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
  std::vector<double> theta_, inner_, combined_;  // at the latest point: less means, and before combinations
};

}  // namespace stansub
