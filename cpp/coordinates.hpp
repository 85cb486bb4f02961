// Coordinates that avoid the narrow curved ridge of effects and their unknown scales.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

namespace stansub {

// Some of the parameters theta are in blocks. A block z is replaced by u = S z, where S is lower triangular and
// depends on parameters of no block: row i of S has norm e^f_ii and the partial correlations tanh f_ij, j < i, and each f
// is affine in those parameters. This is a bijection for any f, with log determinant
//   sum_i f_ii + sum_{j < i} log sech f_ij
// Unsuitable numbers therefore make a sampler slow, but never wrong.
class Coordinates {
 public:
  // For each block its size; for all blocks, concatenated, the positions of the effects, and the functions by rows of
  // lower triangles: constants, and coefficients in compressed rows.
  struct Functions {
    std::vector<std::int32_t> sizes, places, starts, columns;
    std::vector<double> coefficients, constants;
  };

  Coordinates() = default;

  Coordinates(Functions functions, std::size_t dim) : own_(std::move(functions)), dim_(dim) {
    std::size_t n_places = 0, n_functions = 0;
    for (const std::int32_t k : own_.sizes) {
      if (k < 1) throw std::invalid_argument("a block has no effects");
      n_places += k;
      n_functions += static_cast<std::size_t>(k) * (k + 1) / 2;
    }
    if (own_.places.size() != n_places || own_.constants.size() != n_functions ||
        own_.starts.size() != n_functions + 1 || own_.starts[0] != 0 ||
        own_.starts.back() != static_cast<std::int32_t>(own_.columns.size()) ||
        own_.columns.size() != own_.coefficients.size())
      throw std::invalid_argument("the parts of coordinates do not fit together");
    std::vector<bool> in_block(dim);
    for (const std::int32_t at : own_.places) {
      if (at < 0 || at >= static_cast<std::int32_t>(dim) || in_block[at])
        throw std::invalid_argument("blocks of effects overlap, or are of no parameters");
      in_block[at] = true;
    }
    for (std::size_t f = 0; f < n_functions; ++f)
      if (own_.starts[f] > own_.starts[f + 1]) throw std::invalid_argument("rows of coefficients are out of order");
    for (const std::int32_t at : own_.columns)
      if (at < 0 || at >= static_cast<std::int32_t>(dim) || in_block[at])
        throw std::invalid_argument("a function of coordinates depends on effects, or on no parameters");
    rests_.resize(n_functions);
    tanhs_.resize(n_functions);
    share(n_functions);
  }

  std::size_t dim() const { return dim_; }

  void inward(const double* theta, double* inner) {
    std::copy(theta, theta + dim_, inner);
    set(theta);
    blocks([&](const std::int32_t* at, std::size_t first, std::int32_t k) {
      for (std::int32_t i = 0; i < k; ++i) {
        inner[at[i]] = 0;
        for (std::int32_t j = 0; j <= i; ++j) inner[at[i]] += entry(first, i, j) * theta[at[j]];
      }
    });
  }

  void outward(const double* inner, double* theta) {
    std::copy(inner, inner + dim_, theta);
    set(inner);
    blocks([&](const std::int32_t* at, std::size_t first, std::int32_t k) {
      for (std::int32_t i = 0; i < k; ++i) {
        for (std::int32_t j = 0; j < i; ++j) theta[at[i]] -= entry(first, i, j) * theta[at[j]];
        theta[at[i]] /= entry(first, i, i);
      }
    });
  }

  // Transforms a log density and its gradient at a point to these coordinates. The point is the latest one that was
  // converted to or from inner coordinates.
  void pull(const double* inner, const double* theta, double& log_density, double* gradient) {
    blocks([&](const std::int32_t* at, std::size_t first, std::int32_t k) {
      for (std::int32_t i = k; i-- > 0;) {  // S'^-1 of the gradient
        for (std::int32_t m = i + 1; m < k; ++m) gradient[at[i]] -= entry(first, m, i) * gradient[at[m]];
        gradient[at[i]] /= entry(first, i, i);
      }
      for (std::int32_t i = 0; i < k; ++i) {
        const std::size_t row = first + index(i, 0);
        const double slope = gradient[at[i]];
        log_density -= std::log(rests_[row + i]);
        add(row + i, -slope * inner[at[i]] - 1);
        double after = rests_[row + i] * theta[at[i]];  // the sum of S_im z_m, m > j
        for (std::int32_t j = i; j-- > 0;) {
          const double rest = rests_[row + j], next = rests_[row + j + 1], tanh = tanhs_[row + j];
          add(row + j, tanh - slope * (next * (next / rest) * theta[at[j]] - tanh * after));
          after += rest * tanh * theta[at[j]];
        }
      }
    });
    distribute(gradient);
  }

 private:
  // Relative difference up to which rows, which stem from finite differences, are multiples of each other.
  static constexpr double kSame = 1e-6;

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

  // Each row of coefficients a multiple of one that is computed once: hundreds of blocks may have one scale, itself a
  // function of hundreds of parameters.
  void share(std::size_t n_functions) {
    std::map<std::vector<std::int32_t>, std::vector<std::int32_t>> by_columns;
    for (std::size_t f = 0; f < n_functions; ++f) {
      const std::int32_t first = own_.starts[f], n = own_.starts[f + 1] - first;
      auto& candidates = by_columns[{own_.columns.begin() + first, own_.columns.begin() + first + n}];
      const auto same = std::find_if(candidates.begin(), candidates.end(), [&](std::int32_t r) {
        return is_multiple(own_.coefficients.data() + first, own_.coefficients.data() + own_.starts[rows_[r]], n);
      });
      if (same == candidates.end()) {
        candidates.push_back(static_cast<std::int32_t>(rows_.size()));
        row_of_.push_back(candidates.back());
        factors_.push_back(1);
        rows_.push_back(static_cast<std::int32_t>(f));
      } else {
        row_of_.push_back(*same);
        factors_.push_back(n > 0 ? own_.coefficients[first] / own_.coefficients[own_.starts[rows_[*same]]] : 1);
      }
    }
    sums_.resize(rows_.size());
    slopes_.resize(rows_.size());
  }

  static bool is_multiple(const double* one, const double* other, std::int32_t n) {
    if (n > 0 && other[0] == 0) return false;
    for (std::int32_t k = 1; k < n; ++k)
      if (!(std::abs(one[k] * other[0] - other[k] * one[0]) <= kSame * std::abs(one[k] * other[0]))) return false;
    return true;
  }

  void add_up(const double* theta) {
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      sums_[r] = 0;
      for (std::int32_t k = own_.starts[rows_[r]]; k < own_.starts[rows_[r] + 1]; ++k)
        sums_[r] += own_.coefficients[k] * theta[own_.columns[k]];
    }
  }

  double value(std::size_t f) const { return own_.constants[f] + factors_[f] * sums_[row_of_[f]]; }

  void add(std::size_t f, double slope) { slopes_[row_of_[f]] += slope * factors_[f]; }

  void distribute(double* gradient) {
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      for (std::int32_t k = own_.starts[rows_[r]]; k < own_.starts[rows_[r] + 1]; ++k)
        gradient[own_.columns[k]] += slopes_[r] * own_.coefficients[k];
      slopes_[r] = 0;
    }
  }

  // Remaining norm of a row before each entry: e^f_ii, then times sech f_i0, and so on.
  void set(const double* theta) {
    add_up(theta);
    blocks([&](const std::int32_t*, std::size_t first, std::int32_t k) {
      for (std::int32_t i = 0; i < k; ++i) {
        const std::size_t row = first + index(i, 0);
        double rest = std::exp(value(row + i));
        for (std::int32_t j = 0; j < i; ++j) {
          const double f = value(row + j);
          rests_[row + j] = rest;
          tanhs_[row + j] = std::tanh(f);
          rest /= std::cosh(f);
        }
        rests_[row + i] = rest;
      }
    });
  }

  Functions own_;
  std::size_t dim_ = 0;
  std::vector<double> rests_, tanhs_;
  std::vector<std::int32_t> rows_, row_of_;  // functions whose rows are computed; the row of each function
  std::vector<double> factors_, sums_, slopes_;
};

}  // namespace stansub
