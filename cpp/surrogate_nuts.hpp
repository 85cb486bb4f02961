// The no-U-turn sampler on a surrogate posterior, which is a program without the likelihood's data.
#pragma once

#include <numpy/random/bitgen.h>
#include <numpy/random/distributions.h>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cholesky.hpp"
#include "coordinates.hpp"
#include "evaluators.hpp"
#include "nuts.hpp"

namespace stansub {

// Positions are z with centre + P' L'^-1 z the parameters in their inner coordinates: the precision of z is the identity,
// and so is the metric.
class SurrogateSystem {
 public:
  static constexpr double kLargestRange = 1000;

  struct State {
    std::vector<double> z, momentum, gradient;
    double log_density;
  };
  using Sum = std::vector<double>;

  SurrogateSystem(const void* model, BridgeStan api, std::vector<double> centre, SparseCholesky cholesky,
                  Coordinates coordinates)
      : model_(model), api_(api), centre_(std::move(centre)), cholesky_(std::move(cholesky)),
        coordinates_(std::move(coordinates)), inner_(centre_.size()), theta_(centre_.size()), slope_(centre_.size()) {
    cholesky_.check();
    if (cholesky_.dim() != centre_.size() || coordinates_.dim() != centre_.size())
      throw std::invalid_argument("centre, Cholesky factor and coordinates differ in length");
  }

  std::size_t dim() const { return centre_.size(); }
  void set_step_size(double step_size) { step_size_ = step_size; }

  // The state at a position; false where the log density is not defined.
  bool place(const double* theta, State& state) {
    const std::size_t d = dim();
    coordinates_.inward(theta, inner_.data());
    state.z.resize(d);
    for (std::size_t k = 0; k < d; ++k) state.z[k] = inner_[cholesky_.order[k]] - centre_[cholesky_.order[k]];
    // z = L' x
    for (std::size_t j = 0; j < d; ++j) {
      double one = 0;
      for (std::int32_t k = cholesky_.starts[j]; k < cholesky_.starts[j + 1]; ++k)
        one += cholesky_.values[k] * state.z[cholesky_.rows[k]];
      state.z[j] = one;
    }
    state.momentum.assign(d, 0.0);
    return evaluate(theta, state);
  }

  void theta(const State& state, double* out) {
    x_ = state.z;
    cholesky_.backward(x_);
    for (std::size_t k = 0; k < dim(); ++k) inner_[cholesky_.order[k]] = centre_[cholesky_.order[k]] + x_[k];
    coordinates_.outward(inner_.data(), out);
  }

  void refresh(State& state, bitgen_t* bits) const {
    random_standard_normal_fill(bits, static_cast<npy_intp>(dim()), state.momentum.data());
  }

  bool step(State& state, int direction) {
    const double step = direction * step_size_;
    for (std::size_t k = 0; k < dim(); ++k) {
      state.momentum[k] += 0.5 * step * state.gradient[k];
      state.z[k] += step * state.momentum[k];
    }
    theta(state, theta_.data());
    if (!evaluate(theta_.data(), state)) return false;
    for (std::size_t k = 0; k < dim(); ++k) state.momentum[k] += 0.5 * step * state.gradient[k];
    return std::isfinite(energy(state));
  }

  double energy(const State& state) const {
    return 0.5 * dot(state.momentum, state.momentum) - state.log_density;
  }

  Sum total(const State& state) const { return state.momentum; }
  void add(Sum& sum, const Sum& more) const {
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += more[k];
  }

  bool stops(const State& left, const State& right, const Sum& sum, double low, double high) const {
    return !(high - low <= kLargestRange) || dot(left.momentum, sum) <= 0 || dot(right.momentum, sum) <= 0;
  }

 private:
  static double dot(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
    return sum;
  }

  // At parameters whose inner coordinates are at hand.
  bool evaluate(const double* theta, State& state) {
    if (api_.gradient(model_, true, theta, &state.log_density, slope_.data()) != 0) return false;
    coordinates_.pull(inner_.data(), theta, state.log_density, slope_.data());
    state.gradient.resize(dim());
    for (std::size_t k = 0; k < dim(); ++k) state.gradient[k] = slope_[cholesky_.order[k]];
    cholesky_.forward(state.gradient);
    return std::isfinite(state.log_density);
  }

  const void* model_;
  BridgeStan api_;
  std::vector<double> centre_;
  SparseCholesky cholesky_;
  Coordinates coordinates_;
  std::vector<double> inner_, theta_, slope_, x_;
  double step_size_ = 1;
};

// Answers of a random generator.
struct RandomCoins {
  bitgen_t* bits;
  bool operator()(double probability) const { return bits->next_double(bits->state) < probability; }
};

// All answers that there are, path by path, with the probability of each.
class EnumeratedCoins {
 public:
  bool operator()(double probability) {
    if (probability <= 0 || probability >= 1) return probability >= 1;
    if (at_ == path_.size()) path_.push_back({probability, true});
    const Toss& toss = path_[at_++];
    weight_ *= toss.answer ? toss.probability : 1 - toss.probability;
    return toss.answer;
  }

  double weight() const { return weight_; }

  // On to the next path; false after the last.
  bool next() {
    while (!path_.empty() && !path_.back().answer) path_.pop_back();
    if (path_.empty()) return false;
    path_.back().answer = false;
    at_ = 0;
    weight_ = 1;
    return true;
  }

 private:
  struct Toss {
    double probability;
    bool answer;
  };
  std::vector<Toss> path_;
  std::size_t at_ = 0;
  double weight_ = 1;
};

}  // namespace stansub
