// Metropolis-Hastings decisions from as few blocks as the boundary allows.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "decision.hpp"
#include "evaluator.hpp"
#include "factorised.hpp"
#include "noise.hpp"
#include "population.hpp"
#include "quadratic.hpp"
#include "ranges.hpp"
#include "surrogate.hpp"
#include "table.hpp"
#include "thinning.hpp"

namespace stansub {

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

// The known parts of the log density at one parameter value; changing the stamp forgets them.
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

// Everything that later decisions of a chain depend on, except its generators. Restored into another decider of the same
// model and looks, it continues with the same decisions and counters.
struct DeciderState {
  std::vector<double> theta;
  double global = 0;
  std::vector<std::int32_t> known;   // blocks whose log likelihood at theta is known
  std::vector<double> values;        // of these
  std::vector<std::int32_t> order;   // in which blocks will be drawn
  std::vector<std::int32_t> subset;  // that the last decision among some of the blocks was about, if there was one
  std::vector<std::int32_t> subset_order;
  std::vector<double> ahead;  // places in the alias table of candidates to come
  Counters counters;
};

class Decider {
 public:
  Decider(const Evaluator* evaluator, std::vector<std::int64_t> block_sizes, Table table,
          std::shared_ptr<const Range> range, std::shared_ptr<const NoiseRule> noise,
          std::optional<Surrogate> surrogate, std::shared_ptr<const RemainderBounds> bounds = nullptr,
          std::shared_ptr<const RemainderSource> source = nullptr, std::optional<GlobalQuadratic> quadratic = {},
          std::optional<double> kappa = {})
      : evaluator_(evaluator),
        n_blocks_(evaluator->n_blocks),
        block_sizes_(std::move(block_sizes)),
        table_(std::move(table)),
        range_(std::move(range)),
        surrogate_(std::move(surrogate)),
        noise_(std::move(noise)),
        bounds_(std::move(bounds)),
        source_(std::move(source)),
        joint_(kappa ? std::optional<JointRule>(*kappa) : std::nullopt),
        quadratic_(std::move(quadratic)),
        current_(evaluator->dim, n_blocks_),
        proposed_(evaluator->dim, n_blocks_),
        all_(block_sizes_, surrogate_ ? &*surrogate_ : nullptr),
        some_({}, block_sizes_, nullptr) {
    if (block_sizes_.size() != static_cast<std::size_t>(n_blocks_))
      throw std::invalid_argument("block_sizes must have one entry per block");
    if (range_ && range_->needs_surrogate() && !surrogate_)
      throw std::invalid_argument("a bound on derivatives is one on remainders: it needs control variates");
    if (bounds_ && (!surrogate_ || surrogate_->n_anchors() != 1 || surrogate_->order() != bounds_->order()))
      throw std::invalid_argument("bounds on remainders need control variates of their order, about one anchor");
    if (bounds_ && bounds_->n_blocks() != static_cast<std::size_t>(n_blocks_))
      throw std::invalid_argument("there must be a bound for every block");
    if (source_ && (bounds_ || source_->dim() != static_cast<std::size_t>(dim()) ||
                    static_cast<std::int64_t>(source_->size()) != all_.n_observations))
      throw std::invalid_argument("single observations take the place of blocks, and must be as many in as many parameters");
    if (quadratic_ && quadratic_->dim() != static_cast<std::size_t>(dim()))
      throw std::invalid_argument("the quadratic must be in as many parameters");
    if (source_)
      thinned_ = source_->remainders();
    else if (bounds_)
      thinned_ = std::make_unique<BlockRemainders>(*this);
    if (joint_ && !thinned_) throw std::invalid_argument("joint decisions need bounds on remainders");
    set_table(table_);
  }

  // Sets other looks for later decisions.
  void set_table(Table table) {
    if (table.n.back() != n_blocks_) throw std::invalid_argument("the last look must be at all blocks");
    require_range(table);
    table_ = std::move(table);
  }

  const Evaluator& evaluator() const { return *evaluator_; }
  std::int32_t dim() const { return evaluator_->dim; }
  const std::vector<double>& theta() const { return current_.theta; }
  double global_log_density() const { return current_.global; }
  const Counters& counters() const { return counters_; }
  std::size_t n_screened() const { return thinned_ ? thinned_->n_screened() : 0; }

  // Moves to theta; evaluates only the global part.
  void reset(const double* theta) {
    start(current_, theta);
    started_ = true;
  }

  DeciderState state() const {
    require_start();
    DeciderState state{current_.theta, current_.global, {}, {}, all_.urn.order(), some_.which, some_.urn.order(),
                       thinned_ ? thinned_->ahead() : std::vector<double>{}, counters_};
    for (std::int32_t b = 0; b < n_blocks_; ++b) {
      if (!current_.knows(b)) continue;
      state.known.push_back(b);
      state.values.push_back(current_.blocks[b].value);
    }
    return state;
  }

  // Evaluates nothing.
  void restore(const DeciderState& state) {
    if (state.theta.size() != current_.theta.size() || state.known.size() != state.values.size())
      throw std::invalid_argument("the state is of a decider of another model");
    for (const auto& blocks : {state.known, state.subset})
      for (const std::int32_t b : blocks)
        if (b < 0 || b >= n_blocks_) throw std::invalid_argument("the state is of a decider of another model");
    if (thinned_)
      thinned_->restore(state.ahead);
    else if (!state.ahead.empty())
      throw std::invalid_argument("the state is of a decider of other decisions");
    all_.urn.restore(state.order);
    turn_to(state.subset);
    some_.urn.restore(state.subset_order);
    current_.theta = state.theta;
    current_.global = state.global;
    current_.stamp = ++last_stamp_;
    for (std::size_t k = 0; k < state.known.size(); ++k)
      current_.blocks[state.known[k]] = {state.values[k], current_.stamp};
    counters_ = state.counters;
    started_ = true;
  }

  // Log density at the current state, with all blocks.
  double log_density() {
    require_start();
    learn_all(current_, all_, counters_.evaluated_extra);
    return current_.global + sum(current_, all_);
  }

  // Accepts or rejects theta_new, given log u and log q(theta | theta_new) - log q(theta_new | theta).
  // Draws random numbers for blocks and, with Barker's noise rule, one more.
  Decision decide(const double* theta_new, double log_u, double log_q_ratio, bitgen_t* bits, bool audit) {
    return decide(all_, table_, theta_new, log_u, log_q_ratio, bits, audit);
  }

  // The same if the sum in the log ratio is over some of the blocks.
  Decision decide(const double* theta_new, double log_u, double log_q_ratio, bitgen_t* bits, bool audit,
                  const Subset& subset) {
    require_range(subset.table());
    turn_to(subset.which());
    return decide(some_, subset.table(), theta_new, log_u, log_q_ratio, bits, audit);
  }

 private:
  Decision decide(Population& blocks, const Table& table, const double* theta_new, double log_u, double log_q_ratio,
                  bitgen_t* bits, bool audit) {
    require_start();
    start(proposed_, theta_new);
    const double rest = proposed_.global - current_.global + log_q_ratio;
    const double threshold = noise_ ? noise_->threshold(log_u) : log_u;
    Decision decision = is_thinned(blocks) ? settle_by_thinning(rest, log_u, bits)
                                           : settle(blocks, table, rest, threshold, bits);
    if (audit) {
      const auto began = std::chrono::steady_clock::now();
      check(decision, blocks, table, rest, threshold);
      counters_.audit_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    }
    ++counters_.decisions;
    counters_.accepted += decision.accepted;
    counters_.obs_used += decision.n_obs_used;
    counters_.bound_violated += decision.bound_violated;
    if (decision.accepted) std::swap(current_, proposed_);
    return decision;
  }

  bool is_thinned(const Population& blocks) const { return thinned_ && &blocks == &all_; }

  void require_range(const Table& table) const {
    if (table.needs_range() && !range_)
      throw std::invalid_argument("this table needs a source of the range of differences");
  }

  // The order of blocks is kept from decision to decision while these concern the same subset.
  void turn_to(const std::vector<std::int32_t>& which) {
    if (which != some_.which) some_ = Population(which, block_sizes_, surrogate_ ? &*surrogate_ : nullptr);
  }

  void require_start() const {
    if (!started_) throw std::logic_error("reset(theta) must come before the first decision");
  }

  void start(Point& point, const double* theta) {
    std::copy_n(theta, evaluator_->dim, point.theta.begin());
    point.stamp = ++last_stamp_;
    if (quadratic_ && quadratic_->covers(theta)) {
      point.global = (*quadratic_)(theta);
      return;
    }
    const int status = evaluator_->global(evaluator_->self, theta, &point.global);
    point.global = status == 0 ? checked(point.global) : -infinity;
  }

  // No density is infinite: an infinite value is as undefined as NaN.
  static double checked(double value) {
    return value == infinity ? std::numeric_limits<double>::quiet_NaN() : value;
  }

  // Evaluates the blocks that are not known yet.
  void learn(Point& point, const std::int32_t* which, std::int32_t n, std::int64_t& evaluated) {
    missing_.clear();
    for (std::int32_t k = 0; k < n; ++k)
      if (!point.knows(which[k])) missing_.push_back(which[k]);
    evaluate_missing(point, evaluated);
  }

  void learn_all(Point& point, const Population& blocks, std::int64_t& evaluated) {
    learn(point, blocks.which.data(), blocks.size(), evaluated);
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

  // The value that the test averages: the difference minus that of the surrogate.
  double remainder(std::int32_t b) const {
    return surrogate_ ? difference(b) - surrogate_->change(b) : difference(b);
  }

  static double sum(const Point& point, const Population& blocks) {
    double total = 0;
    for (const std::int32_t b : blocks.which) total += point.blocks[b].value;
    return total;
  }

  // The sum of all differences, in the order of the blocks.
  double total_difference(const Population& blocks, std::int64_t& evaluated) {
    learn_all(proposed_, blocks, evaluated);
    learn_all(current_, blocks, evaluated);
    double total = 0;
    for (const std::int32_t b : blocks.which) total += difference(b);
    return total;
  }

  // Compares with all blocks. A decision that accounts for noise is not wrong if it differs from theirs, but its estimate
  // can be less accurate than it should be.
  void check(Decision& decision, const Population& blocks, const Table& table, double rest, double threshold) {
    if (is_thinned(blocks)) {  // such decisions are not those of a threshold
      if (bounds_ && !bounds_->proved()) check_acceptance(rest);
      return;
    }
    decision.audited = true;
    if (!std::isfinite(decision.log_ratio) || decision.n_obs_used >= blocks.n_observations) return;
    const double exact = rest + total_difference(blocks, counters_.evaluated_extra);
    decision.audited = decision.standard_error == 0 || !std::isfinite(exact);
    if (decision.audited) {
      decision.wrong = (exact > threshold) != decision.accepted;
      return;
    }
    decision.audit_z =
        as_normal((decision.log_ratio - exact) / decision.standard_error, table.n[decision.n_looks - 1] - 1.0);
    ++counters_.audited_estimates;
    counters_.audit_squares += decision.audit_z * decision.audit_z;
  }

  // `rest` is the log ratio without the likelihood; the proposal is accepted if the log ratio exceeds the threshold,
  // unless the noise rule accounts for its own noise. Before the last look the log ratio is estimated by
  // M mean(r) + C.w + rest, r being the remainders of the drawn blocks and C.w the surrogate's change over all blocks
  // (Bardenet, Doucet and Holmes 2017, section 7.1); the last look needs no surrogate.
  Decision settle(Population& blocks, const Table& table, double rest, double threshold, bitgen_t* bits) {
    Decision decision;
    if (!std::isfinite(rest)) {
      finish_nonfinite(decision, rest, threshold, counters_);
      return decision;
    }
    if (blocks.size() == 0) {
      decision.log_ratio = rest;
      decision.accepted = rest > threshold;
      return decision;
    }
    const double n_blocks = blocks.size();
    double known = rest;
    if (surrogate_ && table.last() > 0) {
      surrogate_->set_pair(current_.theta.data(), proposed_.theta.data());
      known += surrogate_->total_change(blocks.sums);
    }
    bool by_noise = noise_ != nullptr;
    Moments moments;
    double range = std::numeric_limits<double>::quiet_NaN();
    for (std::size_t k = 0; k < table.last(); ++k) {
      ++decision.n_looks;
      const double sum = draw(blocks, moments, table.n[k], decision, bits);
      if (!std::isfinite(sum)) {
        finish_nonfinite(decision, sum, threshold, counters_);
        return decision;
      }
      if (table.offset[k] != 0 && (std::isnan(range) || range_->from_drawn())) range = find_range(blocks, moments);
      decision.log_ratio = n_blocks * moments.mean + known;
      if (by_noise) {
        const double n = table.n[k], sd = moments.spread() > 0 ? moments.sd() : 0;
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
      if (crossed(table, k, (decision.log_ratio - threshold) / n_blocks, moments, range)) {
        decision.accepted = decision.log_ratio > threshold;
        decision.bound_violated = violated(moments.spread(), range);
        return decision;
      }
    }
    settle_by_all(decision, blocks, rest, threshold, range);
    decision.undecided = table.last() > 0;
    return decision;
  }

  // Initially the log ratio is S, with expansions instead of likelihoods.
  Decision settle_by_thinning(double rest, double log_u, bitgen_t* bits) {
    Decision decision;
    decision.log_ratio = rest + thinned_->set_move(current_.theta.data(), proposed_.theta.data());
    count_unbounded(*thinned_, decision, counters_);
    if (joint_)
      joint_->settle(*thinned_, log_u, bits, decision, counters_);
    else
      FactorisedRule::settle(*thinned_, log_u, bits, decision, counters_);
    return decision;
  }

  // Sum of the remainders of all blocks.
  class BlockRemainders final : public Remainders {
   public:
    explicit BlockRemainders(Decider& decider) : decider_(decider) {}

    const char* unit() const override { return "block"; }
    bool proved() const override { return bounds().proved(); }

    double set_move(const double* theta, const double* theta_new) override {
      decider_.surrogate_->set_pair(theta, theta_new);
      return decider_.surrogate_->total_change(decider_.all_.sums);
    }

    double rate() override {
      const Decider& d = decider_;
      rates_ = bounds().rates(d.current_.theta.data(), d.proposed_.theta.data(), d.surrogate_->rounding(d.all_.sums));
      return rates_.total;
    }

    bool too_many(double n) const override { return bounds().too_many(n); }

    bool draw(bitgen_t* bits, Candidate& candidate, Decision&, Counters&) override {
      const bool known = bits->next_double(bits->state) * rates_.total < rates_.by_constants;
      const auto n_blocks = static_cast<std::uint32_t>(decider_.n_blocks_);
      const std::int32_t b =
          known ? rates_.constants->draw(bits) : static_cast<std::int32_t>(uniform_below(bits, n_blocks));
      candidate.i = b;
      candidate.bound = rates_.bound(b);
      candidate.height = bits->next_double(bits->state) * candidate.bound;
      return true;
    }

    Remainder evaluate(const Candidate& candidate, Decision& decision, Counters& counters) override {
      const auto b = static_cast<std::int32_t>(candidate.i);
      decider_.surrogate_->prefetch(b);
      decision.n_obs_used += decider_.block_sizes_[b];
      decider_.learn(decider_.proposed_, &b, 1, counters.evaluated);
      if (!std::isfinite(decider_.proposed_.blocks[b].value)) return {decider_.proposed_.blocks[b].value, 0};
      decider_.learn(decider_.current_, &b, 1, counters.evaluated);
      return {decider_.remainder(b), 0};
    }

    RemainderSums evaluate_all(Decision& decision, Counters& counters) override {
      RemainderSums sums;
      learn_all(counters.evaluated);
      for (const std::int32_t b : decider_.all_.which) sums.add(decider_.remainder(b));
      count_all(decision, decider_.all_.n_observations);
      return sums;
    }

    // Of the move of the latest `rate`: sums of all remainders, and of what is taken for them where they exceed their bounds.
    std::pair<RemainderSums, RemainderSums> clipped(std::int64_t& evaluated) {
      RemainderSums exact, taken;
      learn_all(evaluated);
      for (const std::int32_t b : decider_.all_.which) {
        const double r = decider_.remainder(b), lowest = std::isnan(r) ? -infinity : r, bound = rates_.bound(b);
        exact.add(lowest);
        taken.add(std::clamp(lowest, -bound, bound));
      }
      return {exact, taken};
    }

   private:
    const RemainderBounds& bounds() const { return *decider_.bounds_; }

    void learn_all(std::int64_t& evaluated) {
      decider_.learn_all(decider_.proposed_, decider_.all_, evaluated);
      decider_.learn_all(decider_.current_, decider_.all_, evaluated);
    }

    Decider& decider_;
    RemainderBounds::Rates rates_{};
  };

  // For learned bounds: a remainder beyond its bound is clipped to it. Adds the effect on the acceptance
  // probability of this move.
  void check_acceptance(double rest) {
    ++counters_.audited_acceptances;
    auto& blocks = static_cast<BlockRemainders&>(*thinned_);
    const double log_ratio = rest + surrogate_->total_change(all_.sums), rate = blocks.rate();
    if (!(log_ratio > -infinity) || blocks.too_many(joint_ ? joint_->times() * rate : rate)) return;
    const auto [exact, clipped] = blocks.clipped(counters_.evaluated_extra);
    counters_.acceptance_error += joint_ ? JointRule::error(log_ratio, exact, clipped)
                                         : FactorisedRule::error(log_ratio, exact, clipped);
  }

  // Draws blocks up to `n` of them and adds their remainders to the moments. Returns what is not finite: the sum of
  // the proposal's log likelihoods, the mean of the remainders, or neither.
  double draw(Population& blocks, Moments& moments, std::int32_t n, Decision& decision, bitgen_t* bits) {
    const auto drawn = static_cast<std::int32_t>(moments.n);
    const std::int32_t n_new = n - drawn;
    const std::int32_t* which = blocks.urn.extend(bits, drawn, n);
    if (surrogate_)
      for (std::int32_t i = 0; i < n_new; ++i) surrogate_->prefetch(which[i]);
    for (std::int32_t i = 0; i < n_new; ++i) decision.n_obs_used += block_sizes_[which[i]];

    learn(proposed_, which, n_new, counters_.evaluated);
    double sum = 0;
    for (std::int32_t i = 0; i < n_new; ++i) sum += proposed_.blocks[which[i]].value;
    if (!std::isfinite(sum)) return sum;
    learn(current_, which, n_new, counters_.evaluated);
    remainders_.resize(n_new);
    for (std::int32_t i = 0; i < n_new; ++i) remainders_[i] = remainder(which[i]);
    moments.add(remainders_);
    return moments.mean;
  }

  void settle_by_all(Decision& decision, const Population& blocks, double rest, double threshold, double range) {
    ++decision.n_looks;
    decision.n_obs_used = blocks.n_observations;
    learn_all(proposed_, blocks, counters_.evaluated);
    double total = sum(proposed_, blocks);
    if (std::isfinite(total)) total = total_difference(blocks, counters_.evaluated);
    if (!std::isfinite(total)) {
      finish_nonfinite(decision, total, threshold, counters_);
      return;
    }
    decision.log_ratio = total + rest;
    decision.accepted = decision.log_ratio > threshold;
    decision.bound_violated = violated(std::isnan(range) ? 0 : total_spread(blocks), range);
  }

  // A boundary without offset knows the remainders only by their sd, one with an estimated range only by
  // their spread: while all are equal, neither can decide.
  bool crossed(const Table& table, std::size_t k, double gap, const Moments& drawn, double range) const {
    const double scale = table.scale[k], offset = table.offset[k];
    const bool by_sd = scale != 0 && offset == 0;
    const bool by_spread = offset != 0 && range_->from_drawn();
    if ((by_sd || by_spread) && drawn.spread() == 0) return false;
    const double slack = offset == 0 ? 0 : offset * range;
    return std::abs(gap) > scale * drawn.sd() + slack;
  }

  double find_range(const Population& blocks, const Moments& drawn) {
    const std::function<double()> evaluated = [&] {
      learn_all(proposed_, blocks, counters_.evaluated);
      learn_all(current_, blocks, counters_.evaluated);
      return total_spread(blocks);
    };
    return range_->of({current_.theta, proposed_.theta, surrogate_ ? &*surrogate_ : nullptr, blocks.sums,
                       drawn.spread(), evaluated});
  }

  double total_spread(const Population& blocks) const {
    double low = infinity, high = -infinity;
    for (const std::int32_t b : blocks.which) {
      const double r = remainder(b);
      low = std::min(low, r);
      high = std::max(high, r);
    }
    return high - low;
  }

  // A declared range is violated if remainders differ by more, beyond rounding.
  bool violated(double spread, double range) const {
    return range_ && range_->promised() && spread > range * (1 + 1e-9);
  }

  static constexpr double infinity = std::numeric_limits<double>::infinity();

  const Evaluator* evaluator_;
  std::int32_t n_blocks_;
  std::vector<std::int64_t> block_sizes_;
  Table table_;
  std::shared_ptr<const Range> range_;
  std::optional<Surrogate> surrogate_;
  std::shared_ptr<const NoiseRule> noise_;
  std::shared_ptr<const RemainderBounds> bounds_;
  std::shared_ptr<const RemainderSource> source_;
  std::optional<JointRule> joint_;
  std::optional<GlobalQuadratic> quadratic_;
  Point current_, proposed_;
  std::uint64_t last_stamp_ = 0;
  bool started_ = false;
  Population all_, some_;
  std::unique_ptr<Remainders> thinned_;
  Counters counters_;
  // scratch
  std::vector<std::int32_t> missing_;
  std::vector<double> values_, remainders_;
};

}  // namespace stansub
