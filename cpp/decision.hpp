// Result of a decision, and counters of decisions.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace stansub {

struct Decision {
  bool accepted = false;
  double log_ratio = 0;
  std::int64_t n_obs_used = 0;
  std::int32_t n_looks = 0;
  bool undecided = false;
  bool audited = false;
  bool wrong = false;
  bool bound_violated = false;
  double standard_error = 0;  // of the log ratio, if it was settled with its noise
  double audit_z = std::numeric_limits<double>::quiet_NaN();
};

struct Counters {
  std::int64_t decisions = 0;
  std::int64_t accepted = 0;
  std::int64_t obs_used = 0;
  std::int64_t evaluated = 0;        // observations, in decisions
  std::int64_t evaluated_extra = 0;  // observations, in audits and full log densities
  std::int64_t nonfinite = 0;
  std::int64_t bound_violated = 0;
  std::int64_t fallback = 0;  // decisions whose noise was too large for the noise rule
  std::int64_t audited_estimates = 0;
  double audit_squares = 0;  // of the standardised errors of these
  double audit_seconds = 0;
  std::int64_t candidates = 0;  // of decisions by thinning
  double tightness = 0;         // largest remainder of these, as a share of its bound
  std::int64_t audited_acceptances = 0;
  double acceptance_error = 0;  // sum over these of what exceeded bounds do to the acceptance probability
  std::int64_t waits = 0;       // for batches of candidates
  double wait_seconds = 0;
};

// An infinite log ratio is final, and NaN means rejection: blocks that were not evaluated cannot
// change either of them.
inline void finish_nonfinite(Decision& decision, double log_ratio, double threshold, Counters& counters) {
  decision.log_ratio = log_ratio;
  decision.accepted = log_ratio > threshold;
  counters.nonfinite += std::isnan(log_ratio);
}

}  // namespace stansub
