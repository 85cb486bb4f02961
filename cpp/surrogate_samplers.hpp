// Samplers of a surrogate posterior, a program without the data of the likelihood.
#pragma once

#include <numpy/random/bitgen.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "evaluators.hpp"
#include "normal_effects.hpp"
#include "surrogate_system.hpp"

namespace stansub {

struct Transition {
  double acceptance = 0;
  std::int32_t n_steps = 0, depth = 0;
  bool diverged = false;
};

// A trajectory, accepted or rejected by the energy at its end; one of `n` transitions.
template <class System>
void follow(System& system, bitgen_t* bits, typename System::State& state, double step_size, std::int32_t n_steps,
            std::int32_t n, Transition& found) {
  system.set_step_size(step_size);
  auto end = state;
  bool is_defined = true;
  for (std::int32_t k = 0; k < n_steps && is_defined; ++k, ++found.n_steps) is_defined = system.step(end, 1);
  const double log_ratio = is_defined ? system.energy(state) - system.energy(end)
                                      : -std::numeric_limits<double>::infinity();
  found.acceptance += std::exp(std::min(log_ratio, 0.0)) / n;
  found.diverged |= !(log_ratio >= -System::kLargestRange);
  if (std::log1p(-bits->next_double(bits->state)) < log_ratio) state = std::move(end);
}

// The step size of a trajectory is drawn from an interval, so that no period of the surrogate is a multiple of all
// trajectories.
inline double jittered(double step_size, bitgen_t* bits) {
  constexpr double kJitter = 0.15;
  return step_size * (1 + kJitter * (2 * bits->next_double(bits->state) - 1));
}

inline constexpr const char* kUndefined = "the surrogate is not defined at the start";

// Hamiltonian Monte Carlo on a surrogate. `n` transitions lead from theta, which becomes their end; statistics are those
// of the worst transition.
class SurrogateHamiltonian {
 public:
  explicit SurrogateHamiltonian(WhitenedDensity density) : system_(std::move(density)) {}

  Transition nuts(bitgen_t* bits, double* theta, double step_size, std::int32_t max_depth, std::int32_t n) {
    RandomCoins coins{bits};
    system_.set_step_size(step_size);
    return transitions(bits, theta, n, [&](State& state, Transition& found) {
      auto made = Nuts<System, RandomCoins>(system_, coins, max_depth)(state);
      state = std::move(made.state);
      found.acceptance += made.acceptance / n;
      found.n_steps += made.n_steps;
      found.depth = std::max(found.depth, made.depth);
      found.diverged |= made.diverged;
    });
  }

  // Trajectories of `n_steps`.
  Transition hmc(bitgen_t* bits, double* theta, double step_size, std::int32_t n_steps, std::int32_t n) {
    return transitions(bits, theta, n, [&](State& state, Transition& found) {
      follow(system_, bits, state, jittered(step_size, bits), n_steps, n, found);
    });
  }

  // The same with trajectories of a random length, uniform up to that of `n_steps`, in as few steps as the step size allows.
  Transition random_length_hmc(bitgen_t* bits, double* theta, double step_size, std::int32_t n_steps, std::int32_t n) {
    return transitions(bits, theta, n, [&](State& state, Transition& found) {
      const double length = n_steps * (1 - bits->next_double(bits->state)), steps = std::ceil(length);
      follow(system_, bits, state, step_size * length / steps, static_cast<std::int32_t>(steps), n, found);
    });
  }

  std::size_t dim() const { return system_.density().dim(); }

  double log_ratio(const double* theta) {
    const State there = system_.place(theta);
    if (!there) throw std::invalid_argument(kUndefined);
    return system_.density().log_ratio(there->z, there->log_density);
  }

 private:
  using System = CircularSystem<WhitenedDensity>;
  using State = System::State;

  template <class Move>
  Transition transitions(bitgen_t* bits, double* theta, std::int32_t n, Move move) {
    Transition found;
    const State start = system_.place(theta);
    if (!start) throw std::invalid_argument(kUndefined);
    State state = start;
    for (std::int32_t k = 0; k < n; ++k) {
      system_.refresh(state, bits);
      move(state, found);
    }
    // A chain that did not move has the same numbers as before, without the rounding of its coordinates.
    if (state->z != start->z) system_.theta(state, theta);
    return found;
  }

  System system_;
};

// A program's log density of the standardised coefficients of normal effects, with the scales fixed.
class DensityGivenScales {
 public:
  DensityGivenScales(const void* model, BridgeStan api, std::shared_ptr<NormalEffects> effects)
      : model_(model), api_(api), effects_(std::move(effects)), theta_(effects_->dim()), slope_(effects_->dim()) {}

  std::size_t dim() const { return effects_->dim(); }
  NormalEffects& effects() { return *effects_; }

  // False if the coefficients have no normal distribution given the scales; otherwise, `inward` may follow.
  bool fix_scales(const double* theta) {
    effects_->place(theta);
    return effects_->factorise();
  }

  void inward(const double*, std::vector<double>& z) {
    z.resize(effects_->n_coefficients());
    effects_->standardise(z.data());
  }

  void outward(const std::vector<double>& z, double* theta) {
    effects_->set_standardised(z.data());
    effects_->theta(theta);
  }

  // At parameters themselves.
  bool evaluate(const double* theta, double& log_density) {
    return api_.gradient(model_, true, theta, &log_density, slope_.data()) == 0;
  }

  bool evaluate(const std::vector<double>& z, double& log_density, std::vector<double>& gradient) {
    outward(z, theta_.data());
    if (!evaluate(theta_.data(), log_density)) return false;
    log_density += effects_->log_volume();
    effects_->pull(slope_.data(), gradient);
    return true;
  }

 private:
  const void* model_;
  BridgeStan api_;
  std::shared_ptr<NormalEffects> effects_;
  std::vector<double> theta_, slope_;
};

// Samplers of a program with normal effects. Each is reversible for the program's density.
class SurrogateEffects {
 public:
  SurrogateEffects(const void* model, BridgeStan api, std::shared_ptr<NormalEffects> effects)
      : system_(DensityGivenScales(model, api, std::move(effects))), proposed_(dim()) {}

  // `n` sweeps from theta, which becomes their end. Each is reversible for the density of normal effects, and accepted or
  // rejected by what the program's differs from that.
  Transition gibbs(bitgen_t* bits, double* theta, std::int32_t n) {
    Transition found;
    NormalEffects& effects = system_.density().effects();
    effects.place(theta);
    double omitted = omitted_at(theta);
    if (!std::isfinite(omitted)) throw std::invalid_argument(kUndefined);
    for (std::int32_t k = 0; k < n; ++k) {
      const NormalEffects::State before = effects.state();
      double there = -std::numeric_limits<double>::infinity();
      if (effects.sweep(bits)) {
        effects.theta(proposed_.data());
        there = omitted_at(proposed_.data());
      }
      if (std::log1p(-bits->next_double(bits->state)) < there - omitted) {
        omitted = there;
        std::copy(proposed_.begin(), proposed_.end(), theta);
        found.acceptance += 1.0 / n;
      } else {
        effects.restore(before);
      }
      ++found.n_steps;
    }
    return found;
  }

  // `n` transitions from theta, which becomes their end; none where the coefficients have no normal distribution. Each is a
  // trajectory of the standardised coefficients with the scales fixed, between proposals of all scales with these
  // coefficients fixed, accepted or rejected by the program's density. It is the same in reverse.
  Transition given_scales(bitgen_t* bits, double* theta, std::int32_t n, double step_size, std::int32_t n_steps) {
    Transition found;
    if (!system_.density().effects().proposes()) throw std::invalid_argument("the effects have no proposals of scales");
    if (!system_.density().fix_scales(theta)) return found;
    State state = system_.place(theta);
    if (!state) throw std::invalid_argument(kUndefined);
    bool moved = false;
    for (std::int32_t k = 0; k < n; ++k) {
      for (const bool nearby : {false, true}) moved |= move_scales(bits, state, nearby);
      const State before = state;
      system_.refresh(state, bits);
      follow(system_, bits, state, jittered(step_size, bits), n_steps, n, found);
      moved |= state->z != before->z;
      for (const bool nearby : {true, false}) moved |= move_scales(bits, state, nearby);
    }
    if (moved) system_.theta(state, theta);
    return found;
  }

  std::size_t dim() const { return system_.density().dim(); }

 private:
  using System = CircularSystem<DensityGivenScales>;
  using State = System::State;

  // At the point where the effects are placed.
  double omitted_at(const double* theta) {
    double value;
    if (!system_.density().evaluate(theta, value)) return -std::numeric_limits<double>::infinity();
    return value - system_.density().effects().log_density();
  }

  // Whether a proposal of the scales was accepted.
  bool move_scales(bitgen_t* bits, State& state, bool nearby) {
    NormalEffects& effects = system_.density().effects();
    const auto log_density = [&](const State& at) { return at->log_density - (nearby ? 0 : effects.log_proposal()); };
    const double here = log_density(state);
    State proposed = (nearby ? effects.propose_nearby(bits) : effects.propose(bits)) ? system_.place(state->z) : nullptr;
    const double there = proposed ? log_density(proposed) : -std::numeric_limits<double>::infinity();
    if (std::log1p(-bits->next_double(bits->state)) < there - here) {
      state = std::move(proposed);
      return true;
    }
    effects.take_back();
    return false;
  }

  System system_;
  std::vector<double> proposed_;
};

}  // namespace stansub
