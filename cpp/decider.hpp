// Metropolis-Hastings decisions from as few blocks as a boundary allows.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "evaluator.hpp"
#include "noise.hpp"
#include "random.hpp"
#include "surrogate.hpp"

namespace stansub {

// Look k is taken at n[k] blocks and decides when the distance between the mean of the drawn
// differences and the threshold exceeds scale[k] * sd + offset[k] * range; the last look has all blocks.
struct Table {
  std::vector<std::int32_t> n;
  std::vector<double> scale, offset;
};

// Where the range (largest less smallest) of what is averaged comes from: the blocks' log likelihood
// differences or, with a surrogate, their remainders.
struct RangeSource {
  enum class Kind { none, lipschitz, callback, derivative, scan, estimate };
  using Function = int (*)(void* self, const double* theta, const double* theta_new, double* range);

  Kind kind = Kind::none;
  double constant = 0;  // Lipschitz constant, factor of the function's value, or bound on a derivative
  void* self = nullptr;
  Function function = nullptr;
};

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
};

// Mean, squared deviations and extremes of numbers that come in batches: two passes over a batch, then
// merged with what came before (Chan, Golub and LeVeque 1983), stable whatever the numbers' offset.
struct Moments {
  std::int64_t n = 0;
  double mean = 0, squares = 0;
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(const std::vector<double>& x) {
    double sum = 0;
    for (const double v : x) {
      sum += v;
      low = std::min(low, v);
      high = std::max(high, v);
    }
    const double batch = static_cast<double>(x.size());
    const double batch_mean = sum / batch;
    double batch_squares = 0;
    for (const double v : x) batch_squares += (v - batch_mean) * (v - batch_mean);
    const double before = static_cast<double>(n), both = before + batch;
    const double shift = batch_mean - mean;
    mean += shift * (batch / both);
    squares += batch_squares + shift * shift * (before * batch / both);
    n += static_cast<std::int64_t>(x.size());
  }

  double sd() const { return n > 1 ? std::sqrt(squares / static_cast<double>(n - 1)) : 0.0; }
  double spread() const { return high - low; }
};

// The log density at one parameter value, as far as it is known: forgetting it is a change of stamp.
struct Point {
  struct Known {
    double value = 0;
    std::uint64_t stamp = 0;
  };

  std::vector<double> theta;
  double global = 0;
  std::uint64_t stamp = 0;
  std::vector<Known> blocks;

  Point(std::int32_t dim, std::int32_t n_blocks) : theta(dim), blocks(n_blocks) {}
  bool knows(std::int32_t b) const { return blocks[b].stamp == stamp; }
};

// All that later decisions of a chain depend on, beside its generators: restored into another decider of the same
// model and looks, it continues with the very same decisions and counters.
struct DeciderState {
  std::vector<double> theta;
  double global = 0;
  std::vector<std::int32_t> known;  // blocks whose log likelihood at theta is known
  std::vector<double> values;       // of these
  std::vector<std::int32_t> order;  // of the urn; empty where there is but one look
  Counters counters;
};

class Decider {
 public:
  Decider(const Evaluator* evaluator, std::vector<std::int32_t> block_sizes, Table table, RangeSource range,
          std::optional<Surrogate> surrogate, std::optional<NoiseRule> noise = std::nullopt)
      : evaluator_(evaluator),
        n_blocks_(evaluator->n_blocks),
        block_sizes_(std::move(block_sizes)),
        n_observations_(std::accumulate(block_sizes_.begin(), block_sizes_.end(), std::int64_t{0})),
        table_(std::move(table)),
        range_source_(range),
        surrogate_(std::move(surrogate)),
        noise_(std::move(noise)),
        current_(evaluator->dim, n_blocks_),
        proposed_(evaluator->dim, n_blocks_),
        urn_(table_.n.size() > 1 ? n_blocks_ : 0) {
    if (block_sizes_.size() != static_cast<std::size_t>(n_blocks_))
      throw std::invalid_argument("block_sizes must have one entry per block");
    const auto& n = table_.n;
    if (n.empty() || table_.scale.size() != n.size() || table_.offset.size() != n.size())
      throw std::invalid_argument("n, scale and offset must have the same length, at least 1");
    if (n.front() < 1 || std::adjacent_find(n.begin(), n.end(), std::greater_equal<>()) != n.end())
      throw std::invalid_argument("n must be positive and strictly increasing");
    if (n.back() != n_blocks_) throw std::invalid_argument("the last look must be at all blocks");
    const bool needs_range = std::any_of(table_.offset.begin(), table_.offset.end() - 1,
                                         [](double offset) { return offset != 0; });
    if (needs_range && range_source_.kind == RangeSource::Kind::none)
      throw std::invalid_argument("this boundary needs a source of the range of differences");
    if (range_source_.kind == RangeSource::Kind::derivative && !surrogate_)
      throw std::invalid_argument("a bound on derivatives is one on remainders: it needs control variates");
  }

  std::int32_t dim() const { return evaluator_->dim; }
  const std::vector<double>& theta() const { return current_.theta; }
  double global_log_density() const { return current_.global; }
  const Counters& counters() const { return counters_; }

  // Moves to theta; nothing but the global part is evaluated.
  void reset(const double* theta) {
    start(current_, theta);
    started_ = true;
  }

  DeciderState state() const {
    require_start();
    DeciderState state{current_.theta, current_.global, {}, {}, urn_.order(), counters_};
    for (std::int32_t b = 0; b < n_blocks_; ++b) {
      if (!current_.knows(b)) continue;
      state.known.push_back(b);
      state.values.push_back(current_.blocks[b].value);
    }
    return state;
  }

  // Nothing is evaluated.
  void restore(const DeciderState& state) {
    if (state.theta.size() != current_.theta.size() || state.known.size() != state.values.size())
      throw std::invalid_argument("the state is of a decider of another model");
    for (const std::int32_t b : state.known)
      if (b < 0 || b >= n_blocks_) throw std::invalid_argument("the state is of a decider of another model");
    urn_.restore(state.order);
    current_.theta = state.theta;
    current_.global = state.global;
    current_.stamp = ++last_stamp_;
    for (std::size_t k = 0; k < state.known.size(); ++k)
      current_.blocks[state.known[k]] = {state.values[k], current_.stamp};
    counters_ = state.counters;
    started_ = true;
  }

  // The whole log density at the current state.
  double log_density() {
    require_start();
    learn_all(current_, counters_.evaluated_extra);
    double sum = 0;
    for (const auto& block : current_.blocks) sum += block.value;
    return current_.global + sum;
  }

  // Accepts or rejects theta_new, given log u and log q(theta | theta_new) - log q(theta_new | theta).
  // Random numbers are drawn for blocks and then, by Barker's noise rule, one more.
  Decision decide(const double* theta_new, double log_u, double log_q_ratio, bitgen_t* bits, bool audit) {
    require_start();
    start(proposed_, theta_new);
    const double rest = proposed_.global - current_.global + log_q_ratio;
    const double threshold = noise_ ? noise_->threshold(log_u) : log_u;
    Decision decision = settle(rest, threshold, bits);
    if (audit) {
      const auto began = std::chrono::steady_clock::now();
      check(decision, rest, threshold);
      counters_.audit_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    }
    ++counters_.decisions;
    counters_.accepted += decision.accepted;
    counters_.obs_used += decision.n_obs_used;
    counters_.bound_violated += decision.bound_violated;
    if (decision.accepted) std::swap(current_, proposed_);
    return decision;
  }

 private:
  void require_start() const {
    if (!started_) throw std::logic_error("reset(theta) must come before the first decision");
  }

  void start(Point& point, const double* theta) {
    std::copy_n(theta, evaluator_->dim, point.theta.begin());
    point.stamp = ++last_stamp_;
    const int status = evaluator_->global(evaluator_->self, theta, &point.global);
    point.global = status == 0 ? checked(point.global) : -infinity;
  }

  // No density is infinite: what says so is as undefined as NaN.
  static double checked(double value) {
    return value == infinity ? std::numeric_limits<double>::quiet_NaN() : value;
  }

  // Evaluates those of the blocks that are not known yet.
  void learn(Point& point, const std::int32_t* which, std::int32_t n, std::int64_t& evaluated) {
    missing_.clear();
    for (std::int32_t k = 0; k < n; ++k)
      if (!point.knows(which[k])) missing_.push_back(which[k]);
    evaluate_missing(point, evaluated);
  }

  void learn_all(Point& point, std::int64_t& evaluated) {
    missing_.clear();
    for (std::int32_t b = 0; b < n_blocks_; ++b)
      if (!point.knows(b)) missing_.push_back(b);
    evaluate_missing(point, evaluated);
  }

  void evaluate_missing(Point& point, std::int64_t& evaluated) {
    if (missing_.empty()) return;
    values_.resize(missing_.size());
    const int status = evaluator_->blocks(evaluator_->self, point.theta.data(), point.global, missing_.data(),
                                          static_cast<std::int32_t>(missing_.size()), values_.data());
    if (status != 0) std::fill(values_.begin(), values_.end(), -infinity);
    for (std::size_t k = 0; k < missing_.size(); ++k) {
      point.blocks[missing_[k]] = {checked(values_[k]), point.stamp};
      evaluated += block_sizes_[missing_[k]];
    }
  }

  double difference(std::int32_t b) const { return proposed_.blocks[b].value - current_.blocks[b].value; }

  // What the test looks at: the difference less what the surrogate knows of it.
  double remainder(std::int32_t b) const {
    return surrogate_ ? difference(b) - surrogate_->change(b) : difference(b);
  }

  // The sum of all differences, in the order of the blocks.
  double total_difference(std::int64_t& evaluated) {
    learn_all(proposed_, evaluated);
    learn_all(current_, evaluated);
    double sum = 0;
    for (std::int32_t b = 0; b < n_blocks_; ++b) sum += difference(b);
    return sum;
  }

  // Against all blocks. A decision that counts its noise in is not wrong for differing from theirs, but its estimate
  // can be off by more than it should.
  void check(Decision& decision, double rest, double threshold) {
    decision.audited = true;
    if (!std::isfinite(decision.log_ratio) || decision.n_obs_used >= n_observations_) return;
    const double exact = rest + total_difference(counters_.evaluated_extra);
    decision.audited = decision.standard_error == 0 || !std::isfinite(exact);
    if (decision.audited) {
      decision.wrong = (exact > threshold) != decision.accepted;
      return;
    }
    decision.audit_z =
        as_normal((decision.log_ratio - exact) / decision.standard_error, table_.n[decision.n_looks - 1] - 1.0);
    ++counters_.audited_estimates;
    counters_.audit_squares += decision.audit_z * decision.audit_z;
  }

  // A log ratio that is infinite is known for good, one that is NaN is a rejection: the blocks not
  // drawn cannot change either.
  void finish_nonfinite(Decision& decision, double log_ratio, double threshold) {
    decision.log_ratio = log_ratio;
    decision.accepted = log_ratio > threshold;
    counters_.nonfinite += std::isnan(log_ratio);
  }

  // `rest` is the log ratio without the likelihood; the proposal is accepted where the log ratio exceeds the threshold,
  // unless the noise rule counts its own noise in. Before the last look the log ratio is estimated by
  // M mean(r) + C.w + rest, r being the remainders of the drawn blocks and C.w the surrogate's change over all blocks
  // (Bardenet, Doucet and Holmes 2017, section 7.1); the last look needs no surrogate.
  Decision settle(double rest, double threshold, bitgen_t* bits) {
    Decision decision;
    if (!std::isfinite(rest)) {
      finish_nonfinite(decision, rest, threshold);
      return decision;
    }
    const double n_blocks = n_blocks_;
    const std::size_t last = table_.n.size() - 1;
    double known = rest;
    if (surrogate_ && last > 0) {
      surrogate_->set_pair(current_.theta.data(), proposed_.theta.data());
      known += surrogate_->total_change();
    }
    bool by_noise = noise_.has_value();
    Moments moments;
    double range = std::numeric_limits<double>::quiet_NaN();
    for (std::size_t k = 0; k < last; ++k) {
      const auto drawn = static_cast<std::int32_t>(moments.n);
      const std::int32_t n_new = table_.n[k] - drawn;
      const std::int32_t* which = urn_.extend(bits, drawn, table_.n[k]);
      ++decision.n_looks;
      if (surrogate_)
        for (std::int32_t i = 0; i < n_new; ++i) surrogate_->prefetch(which[i]);
      for (std::int32_t i = 0; i < n_new; ++i) decision.n_obs_used += block_sizes_[which[i]];

      learn(proposed_, which, n_new, counters_.evaluated);
      double sum = 0;
      for (std::int32_t i = 0; i < n_new; ++i) sum += proposed_.blocks[which[i]].value;
      if (!std::isfinite(sum)) {
        finish_nonfinite(decision, sum, threshold);
        return decision;
      }
      learn(current_, which, n_new, counters_.evaluated);
      remainders_.resize(n_new);
      for (std::int32_t i = 0; i < n_new; ++i) remainders_[i] = remainder(which[i]);
      moments.add(remainders_);
      if (!std::isfinite(moments.mean)) {
        finish_nonfinite(decision, moments.mean, threshold);
        return decision;
      }

      if (table_.offset[k] != 0 && (std::isnan(range) || range_source_.kind == RangeSource::Kind::estimate))
        range = find_range(moments);
      decision.log_ratio = n_blocks * moments.mean + known;
      if (by_noise) {
        const double n = table_.n[k], sd = moments.spread() > 0 ? moments.sd() : 0;
        const auto next = noise_->next(n, n_blocks, sd);
        if (next == NoiseRule::Next::look) continue;
        if (next == NoiseRule::Next::settle) {
          decision.standard_error = NoiseRule::standard_error(n, n_blocks, sd);
          decision.accepted =
              noise_->accepts(decision.log_ratio, decision.standard_error, n, threshold, bits);
          return decision;
        }
        by_noise = false;
        ++counters_.fallback;
      }
      if (crossed(k, (decision.log_ratio - threshold) / n_blocks, moments, range)) {
        decision.accepted = decision.log_ratio > threshold;
        decision.bound_violated = violated(moments.spread(), range);
        return decision;
      }
    }

    ++decision.n_looks;
    decision.n_obs_used = n_observations_;
    decision.undecided = last > 0;
    learn_all(proposed_, counters_.evaluated);
    double total = 0;
    for (const auto& block : proposed_.blocks) total += block.value;
    if (std::isfinite(total)) total = total_difference(counters_.evaluated);
    if (!std::isfinite(total)) {
      finish_nonfinite(decision, total, threshold);
      return decision;
    }
    decision.log_ratio = total + rest;
    decision.accepted = decision.log_ratio > threshold;
    decision.bound_violated = violated(std::isnan(range) ? 0 : total_spread(), range);
    return decision;
  }

  // A boundary without offset knows the remainders by their sd only, one with an estimated range by
  // their spread only: while all are equal it knows nothing.
  bool crossed(std::size_t k, double gap, const Moments& drawn, double range) const {
    const double scale = table_.scale[k], offset = table_.offset[k];
    const bool by_sd = scale != 0 && offset == 0;
    const bool by_spread = offset != 0 && range_source_.kind == RangeSource::Kind::estimate;
    if ((by_sd || by_spread) && drawn.spread() == 0) return false;
    const double slack = offset == 0 ? 0 : offset * range;
    return std::abs(gap) > scale * drawn.sd() + slack;
  }

  double find_range(const Moments& drawn) {
    switch (range_source_.kind) {
      case RangeSource::Kind::lipschitz: {
        double squares = 0;
        for (std::size_t i = 0; i < current_.theta.size(); ++i) {
          const double step = proposed_.theta[i] - current_.theta[i];
          squares += step * step;
        }
        return 2 * range_source_.constant * std::sqrt(squares);
      }
      case RangeSource::Kind::callback: {
        double range = 0;
        const int status = range_source_.function(range_source_.self, current_.theta.data(),
                                                  proposed_.theta.data(), &range);
        return status == 0 && range >= 0 ? range_source_.constant * range : infinity;
      }
      case RangeSource::Kind::derivative:
        return 2 * surrogate_->largest_remainder(current_.theta.data(), proposed_.theta.data(),
                                                 range_source_.constant);
      case RangeSource::Kind::scan:
        learn_all(proposed_, counters_.evaluated);
        learn_all(current_, counters_.evaluated);
        return total_spread();
      case RangeSource::Kind::estimate:
        return drawn.spread();
      case RangeSource::Kind::none:
        break;
    }
    return infinity;
  }

  double total_spread() const {
    double low = infinity, high = -infinity;
    for (std::int32_t b = 0; b < n_blocks_; ++b) {
      const double r = remainder(b);
      low = std::min(low, r);
      high = std::max(high, r);
    }
    return high - low;
  }

  // A promised range is broken by remainders that are seen to lie further apart, beyond rounding.
  bool violated(double spread, double range) const {
    const bool promised = range_source_.kind == RangeSource::Kind::lipschitz ||
                          range_source_.kind == RangeSource::Kind::callback ||
                          range_source_.kind == RangeSource::Kind::derivative;
    return promised && spread > range * (1 + 1e-9);
  }

  static constexpr double infinity = std::numeric_limits<double>::infinity();

  const Evaluator* evaluator_;
  std::int32_t n_blocks_;
  std::vector<std::int32_t> block_sizes_;
  std::int64_t n_observations_;
  Table table_;
  RangeSource range_source_;
  std::optional<Surrogate> surrogate_;
  std::optional<NoiseRule> noise_;
  Point current_, proposed_;
  std::uint64_t last_stamp_ = 0;
  bool started_ = false;
  Urn urn_;
  Counters counters_;
  // scratch
  std::vector<std::int32_t> missing_;
  std::vector<double> values_, remainders_;
};

}  // namespace stansub
