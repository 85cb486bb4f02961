// Trajectories of Hamiltonian Monte Carlo on a surrogate posterior, a program without the data of the likelihood.
#pragma once

#include <numpy/random/bitgen.h>
#include <numpy/random/distributions.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "coordinates.hpp"
#include "evaluators.hpp"
#include "metric.hpp"
#include "nuts.hpp"
#include "vectors.hpp"

namespace stansub {

// Positions are z under whose density the precision is about the identity, and so is the metric. A step therefore splits the
// energy into that of a standard normal distribution, whose trajectories are circles, and the rest, a kick of the momentum
// (Shahbaba, Lan, Johnson and Neal 2014, section 3). It is exact for a normal distribution in any dimension, where the
// error of a leapfrog step grows with the dimension.
//
// Density has
//   std::size_t dim()
//   void inward(const double* theta, std::vector<double>& z), void outward(const std::vector<double>& z, double* theta)
//   bool evaluate(const std::vector<double>& z, double& log_density, std::vector<double>& gradient)
//            false where it is not defined
template <class Density>
class CircularSystem {
 public:
  static constexpr double kLargestRange = 1000;

  struct Point {
    std::vector<double> z, momentum, gradient;
    double log_density = 0, energy = 0;
  };
  // Trees keep each state several times.
  using State = std::shared_ptr<const Point>;
  using Sum = std::vector<double>;

  explicit CircularSystem(Density density) : density_(std::move(density)) {}

  Density& density() { return density_; }
  const Density& density() const { return density_; }
  void set_step_size(double step_size) { step_size_ = step_size; }

  // The state at a position, at rest; null if the log density is not defined.
  State place(const double* theta) {
    std::vector<double> z;
    density_.inward(theta, z);
    return place(std::move(z));
  }
  State place(std::vector<double> z) {
    auto found = std::make_shared<Point>();
    found->z = std::move(z);
    found->momentum.assign(found->z.size(), 0.0);
    return evaluate(*found) ? found : nullptr;
  }

  void theta(const State& state, double* out) { density_.outward(state->z, out); }

  void refresh(State& state, bitgen_t* bits) const {
    auto found = std::make_shared<Point>(*state);
    random_standard_normal_fill(bits, static_cast<npy_intp>(found->momentum.size()), found->momentum.data());
    set_energy(*found);
    state = std::move(found);
  }

  bool step(State& state, int direction) {
    const double step = direction * step_size_;
    const std::size_t n = state->z.size();
    auto next = std::make_shared<Point>();
    next->z.resize(n);
    next->momentum.resize(n);
    const double along = std::cos(step), across = std::sin(step);
    for (std::size_t k = 0; k < n; ++k) {
      const double z = state->z[k], p = state->momentum[k] + 0.5 * step * (state->gradient[k] + z);
      next->z[k] = along * z + across * p;
      next->momentum[k] = along * p - across * z;
    }
    if (!evaluate(*next)) return false;
    for (std::size_t k = 0; k < n; ++k) next->momentum[k] += 0.5 * step * (next->gradient[k] + next->z[k]);
    set_energy(*next);
    state = std::move(next);
    return std::isfinite(state->energy);
  }

  double energy(const State& state) const { return state->energy; }

  const Sum& total(const State& state) const { return state->momentum; }
  void add(Sum& sum, const Sum& more) const {
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += more[k];
  }

  bool stops(const State& left, const State& right, const Sum& sum, double low, double high) const {
    return !(high - low <= kLargestRange) || dot(left->momentum.data(), sum) <= 0 ||
           dot(right->momentum.data(), sum) <= 0;
  }

 private:
  static void set_energy(Point& point) {
    point.energy = 0.5 * dot(point.momentum.data(), point.momentum) - point.log_density;
  }

  bool evaluate(Point& point) {
    return density_.evaluate(point.z, point.log_density, point.gradient) && std::isfinite(point.log_density);
  }

  Density density_;
  double step_size_ = 1;
};

// A program's log density of the white coordinates of a metric, about a centre in inner coordinates of the parameters:
// log p, or t log p + (1 - t) log q, where q is the standard normal density of these coordinates, and t the power.
class WhitenedDensity {
 public:
  WhitenedDensity(const void* model, BridgeStan api, std::vector<double> centre, Metric metric, Coordinates coordinates,
                  double power)
      : model_(model), api_(api), centre_(std::move(centre)), metric_(std::move(metric)), order_(metric_.cholesky.order),
        coordinates_(std::move(coordinates)), power_(power), inner_(centre_.size()), theta_(centre_.size()),
        slope_(centre_.size()) {
    metric_.check();
    if (!(power > 0 && power <= 1)) throw std::invalid_argument("a power is not in (0, 1]");
    if (metric_.dim() != centre_.size() || coordinates_.dim() != centre_.size())
      throw std::invalid_argument("centre, metric and coordinates differ in length");
  }

  std::size_t dim() const { return centre_.size(); }

  void inward(const double* theta, std::vector<double>& z) {
    coordinates_.inward(theta, inner_.data());
    z.resize(dim());
    for (std::size_t k = 0; k < dim(); ++k) z[k] = inner_[order_[k]] - centre_[order_[k]];
    metric_.inward(z);
  }

  void outward(const std::vector<double>& z, double* theta) {
    x_ = z;
    metric_.outward(x_);
    for (std::size_t k = 0; k < dim(); ++k) inner_[order_[k]] = centre_[order_[k]] + x_[k];
    coordinates_.outward(inner_.data(), theta);
  }

  bool evaluate(const std::vector<double>& z, double& log_density, std::vector<double>& gradient) {
    outward(z, theta_.data());
    if (api_.gradient(model_, true, theta_.data(), &log_density, slope_.data()) != 0) return false;
    coordinates_.pull(log_density, slope_.data());
    gradient.resize(dim());
    for (std::size_t k = 0; k < dim(); ++k) gradient[k] = slope_[order_[k]];
    metric_.pull(gradient);
    if (power_ != 1) {
      log_density = power_ * log_density - 0.5 * (1 - power_) * dot(z.data(), z);
      for (std::size_t k = 0; k < dim(); ++k) gradient[k] = power_ * gradient[k] - (1 - power_) * z[k];
    }
    return true;
  }

  // log p - log q at a place where the log density above has this value, without the constant of q.
  double log_ratio(const std::vector<double>& z, double log_density) const {
    return (log_density + 0.5 * dot(z.data(), z)) / power_;
  }

 private:
  const void* model_;
  BridgeStan api_;
  std::vector<double> centre_;
  Metric metric_;
  std::vector<std::int32_t> order_;
  Coordinates coordinates_;
  double power_;
  std::vector<double> inner_, theta_, slope_, x_;
};

// Random booleans from a generator.
struct RandomCoins {
  bitgen_t* bits;
  bool operator()(double probability) const { return bits->next_double(bits->state) < probability; }
};

// All possible outcomes, path by path, with their probabilities.
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

  // Moves to the next path; false after the last.
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
