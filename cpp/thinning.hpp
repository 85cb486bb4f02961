// Exact decisions from the few factors of a likelihood that a Poisson process selects.
//
// Between two points the log likelihood of factor i, an observation or a block of them, changes by the change of its
// expansion plus a remainder r_i, with |r_i| <= b_i. The two rules below use candidates from a process that selects factor
// i at rate `times` b_i; they do not depend on the source of candidates or on how a remainder is evaluated.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <numpy/random/distributions.h>

#include "decision.hpp"

namespace stansub {

// A selected factor.
struct Candidate {
  std::int64_t i = 0;
  double bound = 0;   // b_i
  double height = 0;  // uniform between 0 and b_i
};

// r_i, and its possible rounding error.
struct Remainder {
  double value, rounding;
};

// Sums over all factors.
struct RemainderSums {
  double all = 0;   // of r_i
  double lost = 0;  // of max(0, -r_i)

  void add(double r) {
    all += r;
    lost += std::max(0.0, -r);
  }
};

// Remainders of the factors' expansions between two points. If the points are exchanged, the remainders change their signs and the
// bounds stay.
class Remainders {
 public:
  virtual ~Remainders() = default;

  // Name of a factor in messages.
  virtual const char* unit() const = 0;

  // Whether the bounds are proved.
  virtual bool proved() const { return true; }

  // Sets the move between two points, and returns the change of the sum of all expansions.
  virtual double set_move(const double* theta, const double* theta_new) = 0;

  // Factors without a bound, whose remainders that change includes: it is of their log likelihoods themselves.
  virtual std::size_t n_unbounded() const { return 0; }

  // For that move: the sum of the bounds by which `draw` selects factors; infinite if no bound is known.
  virtual double rate() = 0;

  // The same, or an upper limit of it that takes less time.
  virtual double rate_limit() { return rate(); }

  // Whether this number of candidates costs more than evaluating all factors.
  virtual bool too_many(double n) const = 0;

  // Selects a factor in proportion to these bounds. False if a tighter bound rejects it, which needs no likelihood;
  // those that remain are selected in proportion to b_i.
  virtual bool draw(bitgen_t* bits, Candidate& candidate, Decision& decision, Counters& counters) = 0;

  // The remainder of the latest candidate.
  virtual Remainder evaluate(const Candidate& candidate, Decision& decision, Counters& counters) = 0;

  // Numbers that a decision reads to find bounds before it selects factors.
  virtual std::size_t n_screened() const { return 0; }

  // The remainders of all factors that have bounds.
  virtual RemainderSums evaluate_all(Decision& decision, Counters& counters) = 0;

  // Random numbers drawn in advance for later candidates: part of a chain's state.
  virtual std::vector<double> ahead() const { return {}; }
  virtual void restore(const std::vector<double>& ahead) {
    if (!ahead.empty()) throw std::invalid_argument("the state is of a decider of other data");
  }
};

// Source of remainders, shared by all chains.
class RemainderSource {
 public:
  virtual ~RemainderSource() = default;

  virtual std::size_t dim() const = 0;
  virtual std::size_t size() const = 0;  // observations

  // The remainders of one chain. The source must outlive them.
  virtual std::unique_ptr<Remainders> remainders() const = 0;
};

// A remainder exceeds a bound that is declared as proved.
struct BoundExceeded : std::runtime_error {
  BoundExceeded(const char* unit, std::int64_t number, double remainder, double bound)
      : std::runtime_error(worded(unit, number, remainder, bound)) {}

 private:
  static std::string worded(const char* unit, std::int64_t number, double remainder, double bound) {
    char text[256];
    std::snprintf(text, sizeof text,
                  "the remainder of %s %lld is %.6g, and was proved to be at most %.6g: correct the function that gives "
                  "the bound, where the program has one, or choose another test",
                  unit, static_cast<long long>(number + 1), remainder, bound);
    return text;
  }
};

// The factors without a bound have been evaluated.
inline void count_unbounded(const Remainders& remainders, Decision& decision, Counters& counters) {
  const auto n = static_cast<std::int64_t>(remainders.n_unbounded());
  decision.n_obs_used += n;
  counters.evaluated += 2 * n;
}

// Whether bounds are so wide that a decision evaluates all factors; the same for the move back.
inline bool needs_all(Remainders& remainders, double times) {
  return remainders.too_many(times * remainders.rate_limit()) && remainders.too_many(times * remainders.rate());
}

// Metropolis-Hastings from all factors: adds their remainders to S.
inline void settle_by_all(Remainders& remainders, double log_u, Decision& decision, Counters& counters) {
  decision.log_ratio += remainders.evaluate_all(decision, counters).all;
  finish_nonfinite(decision, decision.log_ratio, log_u, counters);
}

// All observations were evaluated.
inline void count_all(Decision& decision, std::int64_t n_observations) {
  ++decision.n_looks;
  decision.undecided = true;
  decision.n_obs_used = n_observations;
}

// The next candidate's remainder, compared with its bound; nothing if a tighter bound rejects the candidate.
inline std::optional<double> next_remainder(Remainders& remainders, bitgen_t* bits, Candidate& candidate,
                                            Decision& decision, Counters& counters) {
  ++counters.candidates;
  if (!remainders.draw(bits, candidate, decision, counters)) return std::nullopt;
  const Remainder r = remainders.evaluate(candidate, decision, counters);
  ++decision.n_looks;
  if (!std::isfinite(r.value)) return r.value;
  const double size = std::max(0.0, std::abs(r.value) - r.rounding);
  counters.tightness = std::max(counters.tightness, size / candidate.bound);
  if (!remainders.proved())
    decision.bound_violated |= size > candidate.bound;
  else if (size > candidate.bound * (1 + 1e-9))
    throw BoundExceeded(remainders.unit(), candidate.i, r.value, candidate.bound);
  return r.value;
}

// Both rules begin with a decision whose log ratio is S, with expansions instead of likelihoods. Where bounds are too wide, both
// are Metropolis-Hastings from all factors; both directions of a move agree on that, so either way detailed balance holds.

// Accepts with probability min(1, e^S) prod_i exp(-max(0, -r_i)) (Cornish et al. 2019, section 3): S changes its sign
// for the move back, and so does each r_i, so that the ratio of the two probabilities is e^S prod_i e^r_i, the exact
// one. The product is the probability that a Poisson process of rate b_i on each factor has no point below
// max(0, -r_i).
class FactorisedRule {
 public:
  static void settle(Remainders& remainders, double log_u, bitgen_t* bits, Decision& decision, Counters& counters) {
    if (!std::isfinite(decision.log_ratio)) {
      finish_nonfinite(decision, decision.log_ratio, log_u, counters);
      return;
    }
    if (needs_all(remainders, 1)) {
      settle_by_all(remainders, log_u, decision, counters);
      return;
    }
    if (!(decision.log_ratio > log_u)) return;
    const std::int64_t n = random_poisson(bits, remainders.rate());
    Candidate candidate;
    decision.accepted = true;
    for (std::int64_t k = 0; k < n && decision.accepted; ++k) {
      const auto r = next_remainder(remainders, bits, candidate, decision, counters);
      if (!r) continue;
      if (!std::isfinite(*r)) {
        finish_nonfinite(decision, *r, log_u, counters);
        return;
      }
      decision.accepted = candidate.height >= -*r;
    }
  }

  // Increase of the acceptance probability by clipped remainders.
  static double error(double log_ratio, const RemainderSums& exact, const RemainderSums& clipped) {
    return std::exp(std::min(0.0, log_ratio)) * (std::exp(-clipped.lost) - std::exp(-exact.lost));
  }
};

// With lambda_i = kappa b_i draws S_i ~ Poisson(lambda_i - r_i / 2) for all factors, and accepts with probability
// min(1, e^S prod_i [(lambda_i + r_i / 2) / (lambda_i - r_i / 2)]^S_i) (Zhang and De Sa
// 2019; with means that depend on both ends of the move: Zhang, Cooper and De Sa 2020). The same S_i have for the move back rates lambda_i + r_i / 2, and the ratio of the two probabilities of
// drawing them and accepting is e^S prod_i e^r_i. S_i is the number of candidates at rate (kappa + 1/2) b_i that are kept
// with probability (lambda_i - r_i / 2) / ((kappa + 1/2) b_i).
class JointRule {
 public:
  explicit JointRule(double kappa) : kappa_(kappa), most_(2 * std::atanh(0.5 / kappa)) {
    if (!(kappa >= 0.5) || !std::isfinite(kappa)) throw std::invalid_argument("kappa must be finite and at least 1/2");
  }

  // Factor of the bounds: an upper limit of lambda_i - r_i / 2.
  double times() const { return kappa_ + 0.5; }

  void settle(Remainders& remainders, double log_u, bitgen_t* bits, Decision& decision, Counters& counters) const {
    double& log_ratio = decision.log_ratio;
    if (!std::isfinite(log_ratio)) {
      finish_nonfinite(decision, log_ratio, log_u, counters);
      return;
    }
    if (needs_all(remainders, times())) {
      settle_by_all(remainders, log_u, decision, counters);
      return;
    }
    Candidate candidate;
    for (std::int64_t left = random_poisson(bits, times() * remainders.rate()); is_open(log_ratio, log_u, left); --left) {
      const auto r = next_remainder(remainders, bits, candidate, decision, counters);
      if (!r) continue;
      if (!std::isfinite(*r)) {
        finish_nonfinite(decision, *r, log_u, counters);
        return;
      }
      add(*r, candidate, log_ratio);
    }
    decision.accepted = log_ratio > log_u;
  }

  // Change of the Metropolis-Hastings acceptance probability by clipped remainders.
  static double error(double log_ratio, const RemainderSums& exact, const RemainderSums& clipped) {
    const auto accepted = [&](double all) { return std::exp(std::min(0.0, log_ratio + all)); };
    return std::abs(accepted(clipped.all) - accepted(exact.all));
  }

 private:
  // Whether this number of candidates can change the decision: each changes the log ratio by at most `most_`.
  bool is_open(double log_ratio, double log_u, std::int64_t left) const {
    if (left == 0) return false;
    const double most = most_ * static_cast<double>(left);
    return log_ratio + most > log_u && !(log_ratio - most > log_u);
  }

  // Adds a candidate, if it is kept. Rounding may raise a remainder above its bound, and a learned bound may be
  // too small: the remainder is then clipped to the bound, at both ends of the move.
  void add(double r, const Candidate& candidate, double& log_ratio) const {
    const double half = std::clamp(r, -candidate.bound, candidate.bound) / 2, middle = kappa_ * candidate.bound;
    if (candidate.height * times() < middle - half) log_ratio += std::log((middle + half) / (middle - half));
  }

  double kappa_, most_;
};

}  // namespace stansub
