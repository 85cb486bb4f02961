// Batches of Metropolis-Hastings steps with Gaussian proposals.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "decider.hpp"
#include "proposals.hpp"

namespace stansub {

// One row per step, in memory of the caller.
struct Rows {
  double* theta;
  std::uint8_t* accepted;
  std::int64_t* n_obs_used;
  std::int32_t* n_looks;
  std::uint8_t* undecided;
  double* log_ratio;
  std::uint8_t* audited;
  std::uint8_t* wrong;
  std::uint8_t* bound_violated;

  void write(std::int64_t step, const Decider& decider, const Decision& decision) const {
    std::copy(decider.theta().begin(), decider.theta().end(), theta + step * decider.dim());
    accepted[step] = decision.accepted;
    n_obs_used[step] = decision.n_obs_used;
    n_looks[step] = decision.n_looks;
    undecided[step] = decision.undecided;
    log_ratio[step] = decision.log_ratio;
    audited[step] = decision.audited;
    wrong[step] = decision.wrong;
    bound_violated[step] = decision.bound_violated;
  }
};

// Access for another thread: request a stop, read the progress.
struct Signals {
  const std::int32_t* stop;
  std::int64_t* progress;  // steps, accepted, observations used, observations evaluated

  bool stopped() const { return __atomic_load_n(stop, __ATOMIC_RELAXED) != 0; }
  void add(int which, std::int64_t amount) const {
    __atomic_store_n(progress + which, progress[which] + amount, __ATOMIC_RELAXED);
  }
};

// Runs up to n_steps steps and returns how many were done. A step draws from the chain's generator what
// its proposal needs, log u and blocks, in that order, as numpy's Generator would; whether it is audited
// is drawn from a generator of its own, so that audits change nothing.
inline std::int64_t batch(Decider& decider, std::int64_t n_steps, const Proposals& proposals, bitgen_t* bits,
                            bitgen_t* audit_bits, double audit_probability, const Rows& rows,
                            const Signals& signals) {
  std::vector<double> scratch, proposed(decider.dim());
  for (std::int64_t step = 0; step < n_steps; ++step) {
    if (signals.stopped()) return step;
    const double log_q_ratio = proposals.draw(bits, decider.theta().data(), scratch, proposed.data());
    const double log_u = std::log1p(-bits->next_double(bits->state));
    const bool audit =
        audit_probability > 0 && audit_bits->next_double(audit_bits->state) < audit_probability;
    const std::int64_t evaluated = decider.counters().evaluated;
    const Decision decision = decider.decide(proposed.data(), log_u, log_q_ratio, bits, audit);
    rows.write(step, decider, decision);
    signals.add(0, 1);
    signals.add(1, decision.accepted);
    signals.add(2, decision.n_obs_used);
    signals.add(3, decider.counters().evaluated - evaluated);
  }
  return n_steps;
}

}  // namespace stansub
