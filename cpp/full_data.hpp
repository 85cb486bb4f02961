// The log likelihood of all observations and its gradient, from their arguments and the data of their density.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "arguments.hpp"
#include "densities.hpp"
#include "density_slopes.hpp"
#include "numbers.hpp"
#include "program_columns.hpp"

namespace stansub {

// The sum over all observations. Data are columns of n numbers, which stay the caller's, as arguments do. Threads may call at
// once.
class FullData {
 public:
  FullData(const Arguments& arguments, DensityOrProgram density, std::vector<Numbers> data, double constant)
      : arguments_(arguments), density_(std::move(density)), log_lik_(to_log_lik(density_)), data_(std::move(data)), constant_(constant) {
    if (data_.size() != log_lik_.n_data) throw std::invalid_argument("the density takes other data");
  }

  std::size_t dim() const { return arguments_.dim(); }

  double log_lik(const double* phi) const {
    Each each(density_, log_lik_, arguments_.size());
    std::vector<double> scratch(block);
    return sum(phi, [&](std::size_t, std::size_t count, const densities::Block& data, const densities::Block& eta) {
      return each.log_lik(data, eta, count, scratch.data());
    });
  }

  // Also writes the gradient. Absolute values in programs must have no kinks.
  double gradient(const double* phi, double* out) const {
    const std::size_t q = arguments_.size();
    std::vector<double> rows((q + 1) * block), sums(dim() + 1);
    Each each(density_, log_lik_, q);
    const double value = sum(phi, [&](std::size_t first, std::size_t count, const densities::Block& data, const densities::Block& eta) {
      const double found = each.gradients(data, eta, count, rows.data());
      for (std::size_t k = 0; k < q; ++k) arguments_[k].add_back(&rows[(k + 1) * block], first, count, sums.data() + 1);
      return found;
    });
    std::copy(sums.begin() + 1, sums.end(), out);
    return value;
  }

 private:
  static constexpr std::size_t block = ProgramColumns::block;

  // Log likelihoods of up to `block` observations.
  class Each {
   public:
    Each(const DensityOrProgram& density, const LogLik& log_lik, std::size_t q) : log_lik_(log_lik), at_(q), own_(q), data_(log_lik.n_data) {
      if (const auto* program = std::get_if<std::shared_ptr<Program>>(&density))
        program_ = (*program)->columns();
      else
        density_ = std::get<Density>(density);
    }

    // Their sum, with scratch memory for each.
    double log_lik(const densities::Block& data, const densities::Block& eta, std::size_t n, double* scratch) {
      if (!program_) return log_lik_.sum(data, eta, n, scratch);
      program_->derivatives(0, {data.first, block}, {eta.first, block}, n, {scratch, block});
      return std::accumulate(scratch, scratch + n, 0.0);
    }

    // Their sum, with slopes in rows after the first.
    double gradients(const densities::Block& data, const densities::Block& eta, std::size_t n, double* rows) {
      if (program_) {
        program_->derivatives(1, {data.first, block}, {eta.first, block}, n, {rows, block});
        return std::accumulate(rows, rows + n, 0.0);
      }
      if (density_ == Density::binomial) return slopes::binomial(data, eta, n, rows, rows + block);
      if (density_ == Density::poisson) return slopes::poisson(data, eta, n, rows, rows + block);
      const slopes::Function of = slopes::of(density_);
      double found = 0;
      for (std::size_t i = 0; i < n; ++i) {
        data.copy(i, data_.data());
        eta.copy(i, at_.data());
        found += log_lik_.log_lik(data_.data(), at_.data(), at_.size());
        of(data_.data(), at_.data(), at_.size(), own_.data());
        for (std::size_t k = 0; k < own_.size(); ++k) rows[(k + 1) * block + i] = own_[k];
      }
      return found;
    }

   private:
    const LogLik& log_lik_;
    Density density_{};
    std::shared_ptr<ProgramColumns> program_;
    std::vector<double> at_, own_, data_;
  };

  template <class Work>
  double sum(const double* phi, Work work) const {
    const std::size_t q = arguments_.size();
    std::vector<double> x(dim() + 1), eta(q * block), data(data_.size() * block);
    std::copy_n(phi, dim(), x.begin() + 1);
    double found = constant_;
    for (std::size_t first = 0; first < arguments_.n(); first += block) {
      const std::size_t count = std::min(block, arguments_.n() - first);
      for (std::size_t k = 0; k < q; ++k) arguments_[k].at(x.data() + 1, first, count, &eta[k * block]);
      for (std::size_t k = 0; k < data_.size(); ++k) data_[k].copy(first, count, &data[k * block]);
      found += work(first, count, {data.data(), data_.size(), block}, {eta.data(), q, block});
    }
    return found;
  }

  const Arguments& arguments_;
  DensityOrProgram density_;
  LogLik log_lik_;
  std::vector<Numbers> data_;
  double constant_;
};

}  // namespace stansub
