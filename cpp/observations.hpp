// Thinning over single observations: what each of their log likelihoods is beyond its expansion, and bounds
// on that which take its row of the design alone.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dense_cubic.hpp"
#include "dense_triangle.hpp"
#include "factorised.hpp"
#include "records.hpp"
#include "screen.hpp"
#include "sketch.hpp"
#include "thinning.hpp"
#include "vector_math.hpp"
#include "vectors.hpp"

namespace stansub {

// An observation depends on theta through q arguments of its density, eta_k = z_k . theta + o_k. Its log likelihood is
// expanded to order p around an anchor m. With w = A (theta - m) and l_k = |A^-T z_k|, argument k changes by
// delta_k, at most l_k |w|, and the expansion is off by at most c t^(p + 1), t = max_k |delta_k| / l_k, which is
// c |w|^(p + 1) at most: by the latter observations are picked, by the former most of them are sent away again without a likelihood.
// With kinks, bounds are c (floor + t^(p + 1)): where a kink is near, an expansion is off by a multiple of t for small t.
// If c is infinite, the observation has no bound, and every decision evaluates it.
//
// The data of an observation other than its rows z_k form one of `Records`; levels of bounds are by |w|.
class Observations final : public RemainderSource {
 public:
  static constexpr std::size_t most_arguments = 64;

  // The rows of one argument: one for each observation, or one for all.
  struct Design {
    const double* rows;
    std::size_t n, dim;
    bool shared() const { return n == 1; }
  };

  // About which log likelihoods are expanded: A, lower triangular, dim by dim, and gradient, Hessian and, in the third order, third
  // derivatives of the sum of the expansions: for j, k <= j, l <= k, times the orders in which the three can stand.
  struct Expansion {
    std::vector<double> anchor, whitening, gradient, hessian, third;
    double floor = 0;
  };

  // Observations in classes, all of one class with the same constant, which is no less than their own: class k has the members
  // starts[k] to starts[k + 1] - 1, numbers of observations that stay the caller's; without members, observations are known by their
  // places among these. Records and rows of some observations, in their order, are asked for, a batch at a time, when they are
  // candidates; records[0] and shared rows are left out of account.
  struct Stream {
    using Source = std::function<void(const std::vector<std::int64_t>& which, std::vector<double>& records,
                                      std::vector<std::vector<double>>& designs)>;

    std::vector<double> constants;
    std::vector<std::int64_t> starts;
    const std::int32_t* members;  // or null
    Source source;
    std::size_t batch;
  };

  // Addresses of records and rows.
  struct Store {
    const double* records;
    std::vector<const double*> designs;
  };

  // The designs and the records (n of `width` numbers) stay the caller's. More candidates than a share of the observations cost more
  // than all of these do. A sketch or a screen is of the rows of the one argument that has a row for each observation.
  Observations(LogLik density, std::vector<Design> designs, const double* records, std::size_t n, std::size_t width,
               Expansion expansion, std::vector<Level> levels, double share, std::optional<Sketch> sketch = {},
               std::optional<Screen> screen = {})
      : Observations(std::move(density), std::move(designs), n, width, std::move(expansion), std::move(levels), share,
                     constants_of(records, n, width)) {
    sketch_ = std::move(sketch);
    screen_ = std::move(screen);
    const auto own = std::count_if(designs_.begin(), designs_.end(), [](const Design& one) { return !one.shared(); });
    if ((sketch_ || screen_) && (own != 1 || (sketch_ && sketch_->size() != n) || (screen_ && screen_->size() != n)))
      throw std::invalid_argument("a sketch or a screen is for one argument with a row for each observation, and has as many");
    if (screen_) screened_ = ScreenedBounds::padded(constants_of(records, n, width));
    store_.records = records;
    for (const auto& design : designs_) store_.designs.push_back(design.rows);
    for (std::size_t i = 0; i < n; ++i)
      if (!is_bounded(store_, i)) unbounded_.push_back(i);
  }

  // For a stream, whose designs have rows only if all observations share one.
  Observations(LogLik density, std::vector<Design> designs, Stream stream, std::size_t n, std::size_t width, Expansion expansion,
               std::vector<Level> levels, double share)
      : Observations(std::move(density), std::move(designs), n, width, std::move(expansion), std::move(levels), share,
                     weights_of(stream, n)) {
    stream_ = std::move(stream);
  }

  bool is_stream() const { return stream_.has_value(); }
  bool is_screened() const { return screen_.has_value(); }

 private:
  Observations(LogLik density, std::vector<Design> designs, std::size_t n, std::size_t width, Expansion expansion,
               std::vector<Level> levels, double share, std::vector<double> constants)
      : kept_(std::move(density), designs.size(), expansion.third.empty() ? 2 : 3),
        designs_(std::move(designs)),
        n_(n),
        q_(designs_.size()),
        width_(width),
        expansion_(std::move(expansion)),
        levels_(std::move(levels)),
        share_(share),
        constants_(std::move(constants)) {
    if (n < 1 || q_ < 1 || q_ > most_arguments)
      throw std::invalid_argument("there must be an observation, of 1 to " + std::to_string(most_arguments) + " arguments");
    for (const auto& design : designs_)
      if (design.dim != dim() || (design.n != n && !design.shared()))
        throw std::invalid_argument("a design must have a row for each observation or one for all, of dim numbers");
    kept_.check_width(width_);
    const std::size_t square = dim() * dim();
    if (expansion_.whitening.size() != square || expansion_.gradient.size() != dim() || expansion_.hessian.size() != square)
      throw std::invalid_argument("the expansion must have dim parameters throughout");
    if (!expansion_.third.empty()) {
      if (q_ != 1) throw std::invalid_argument("the third order is for one argument");
      cubic_ = {std::exchange(expansion_.third, {}), dim()};
    }
    if (!(expansion_.floor >= 0)) throw std::invalid_argument("the floor of bounds must not be negative");
    if (levels_.empty()) throw std::invalid_argument("there must be a radius");
    for (std::size_t k = 1; k < levels_.size(); ++k)
      if (!(levels_[k].radius > levels_[k - 1].radius)) throw std::invalid_argument("radii must increase");
    for (std::size_t j = 0; j < dim(); ++j) {
      for (std::size_t k = j + 1; k < dim(); ++k)
        if (expansion_.whitening[j * dim() + k] != 0) throw std::invalid_argument("the whitening must be lower triangular");
      expansion_.hessian[j * dim() + j] *= 0.5;  // of its two triangles only the lower one is read
    }
    whitening_ = {expansion_.whitening.data(), dim()};
    curvature_ = {expansion_.hessian.data(), dim()};
  }

 public:
  int order() const { return cubic_.empty() ? 2 : 3; }
  std::size_t dim() const override { return expansion_.anchor.size(); }
  std::size_t size() const override { return n_; }
  std::unique_ptr<Remainders> remainders() const override;
  double share() const { return share_; }
  const Store& store() const { return store_; }
  const std::vector<std::size_t>& unbounded() const { return unbounded_; }
  bool is_bounded(const Store& store, std::size_t i) const { return std::isfinite(record(store, i)[0]); }

  // Values at a parameter value that all observations share.
  struct Point {
    std::vector<double> d;         // theta - m
    std::vector<double> slope;     // of the sum of quadratic expansions between here and m
    std::vector<double> scratch;
    std::vector<double> shared;  // changes of shared arguments
    std::vector<double> w;
    Sketch::Point sketch;
    std::vector<float> powers;  // with a screen, once asked for: of the observations' t, as they are in bounds
    double t_shared = 0;        // the largest |delta_k| / l_k of shared arguments
    double length = 0;           // floor + |w|^(p + 1)
    double total = 0;            // of all expansions
  };

  // Two such values: scratch memory of a chain.
  struct Pair {
    Point from, to;
    double factor = 0;   // of bounds there; infinite beyond the last radius
    double lengths = 0;  // of both
    double rate = 0;     // sum of the bounds by which observations are picked
    std::vector<double> d;
  };

  // Changes of an observation's arguments from the anchor.
  struct Changes {
    double from[most_arguments], to[most_arguments];
  };

  // Usually the state of a chain is one of the two previous points.
  void set_pair(const double* theta, const double* theta_new, Pair& pair) const {
    set_change(theta, pair.d);
    if (pair.d == pair.to.d)
      std::swap(pair.from, pair.to);
    else if (pair.d != pair.from.d)
      set_point(pair.d, pair.from);
    set_change(theta_new, pair.d);
    set_point(pair.d, pair.to);
    pair.factor = factor_at(levels_, std::max(pair.from.length, pair.to.length), [&](double radius) { return power(radius); });
    pair.lengths = pair.from.length + pair.to.length;
    pair.rate = std::isinf(pair.factor) ? pair.factor : pair.factor * pair.lengths * constants_.total();
  }

  // The change of the sum of all expansions.
  double total_change(const Pair& pair) const { return pair.to.total - pair.from.total; }

  // With a screen, the bounds of all observations from their rows in 8 bits; returns the sum.
  double screen(Pair& pair, ScreenedBounds& bounds) const {
    for (Point* point : {&pair.from, &pair.to})
      if (point->powers.empty())
        screen_->find_powers(point->w, std::sqrt(dot(point->w.data(), point->w)), point->t_shared, order() + 1, expansion_.floor,
                             point->powers);
    return bounds.set(screened_, pair.from.powers, pair.to.powers, pair.factor);
  }

  // Draws an observation, or a class of them, in proportion to its bound.
  const AliasTable& constants() const { return constants_; }

  // Draws a member of a stream in proportion to its constant; returns its index.
  std::int64_t member(bitgen_t* bits) const {
    const auto k = static_cast<std::size_t>(constants_.draw(bits));
    const std::int64_t first = stream_->starts[k], count = stream_->starts[k + 1] - first;
    return first + std::min(static_cast<std::int64_t>(bits->next_double(bits->state) * static_cast<double>(count)), count - 1);
  }
  std::int64_t n_members() const { return stream_->starts.back(); }
  std::size_t batch() const { return stream_->batch; }

  // Of a stream, the observations that it knows; those of constant 0 have no remainder.
  std::size_t n_known() const { return stream_->members ? n_ : static_cast<std::size_t>(n_members()); }

  // Records and rows of some observations of a stream.
  struct Batch {
    std::vector<std::int64_t> which;
    std::vector<double> records;
    std::vector<std::vector<double>> designs;
    Store store;
  };
  void fetch(Batch& batch) const {
    batch.designs.resize(q_);
    stream_->source(batch.which, batch.records, batch.designs);
    bool fits = batch.records.size() == batch.which.size() * width_;
    for (std::size_t k = 0; k < q_; ++k) fits &= designs_[k].shared() || batch.designs[k].size() == batch.which.size() * dim();
    if (!fits) throw std::invalid_argument("a stream returned other rows than were asked for");
    batch.store.records = batch.records.data();
    batch.store.designs.clear();
    for (const auto& rows : batch.designs) batch.store.designs.push_back(rows.data());
  }
  void fetch_members(const std::vector<std::int64_t>& members, Batch& batch) const {
    batch.which.clear();
    for (const std::int64_t place : members)
      batch.which.push_back(stream_->members ? stream_->members[place] : place);
    fetch(batch);
    for (std::size_t i = 0; i < members.size(); ++i) {
      const auto next = std::upper_bound(stream_->starts.begin(), stream_->starts.end(), members[i]);
      batch.records[i * width_] = stream_->constants[static_cast<std::size_t>(next - stream_->starts.begin()) - 1];
    }
  }

  // Observations are anywhere in memory: prefetches the data of one.
  void prefetch(std::size_t i) const {
    if (sketch_) {
      sketch_->prefetch(i);
      return;
    }
    prefetch(record(store_, i), width_);
    for (std::size_t k = 0; k < q_; ++k)
      if (!designs_[k].shared()) prefetch(row(store_, k, i), dim());
  }

  // The bound on the remainder of observation i of a store by which it is drawn.
  double first_bound(const Store& store, std::size_t i, const Pair& pair) const {
    return pair.factor * pair.lengths * record(store, i)[0];
  }

  // Whether the bound from its arguments' changes is certainly below this share of it.
  bool is_below(double share, std::size_t i, const Pair& pair) const {
    if (!sketch_) return false;
    const auto t = [&](const Point& point) { return std::max(point.t_shared, sketch_->at_most(i, point.sketch)); };
    return share * pair.lengths > (1 + 1e-9) * (power(t(pair.from)) + power(t(pair.to)));
  }

  // The bound from the changes of its arguments, which are written.
  double second_bound(const Store& store, std::size_t i, const Pair& pair, Changes& changes) const {
    const double* own = record(store, i);
    double t_from = 0, t_to = 0;
    for (std::size_t k = 0; k < q_; ++k) {
      if (designs_[k].shared()) {
        changes.from[k] = pair.from.shared[k];
        changes.to[k] = pair.to.shared[k];
      } else {
        const double* z = row(store, k, i);
        changes.from[k] = dot(z, pair.from.d);
        changes.to[k] = dot(z, pair.to.d);
      }
      t_from = std::max(t_from, std::abs(changes.from[k]) * own[1 + k]);
      t_to = std::max(t_to, std::abs(changes.to[k]) * own[1 + k]);
    }
    return pair.factor * own[0] * (power(t_from) + power(t_to));
  }

  // The change of its log likelihood minus that of its expansion.
  Remainder remainder(const Store& store, std::size_t i, const Changes& changes) const {
    return kept_.remainder<most_arguments>(record(store, i), changes.from, changes.to);
  }

 private:
  const double* record(const Store& store, std::size_t i) const { return store.records + i * width_; }
  const double* row(const Store& store, std::size_t k, std::size_t i) const { return store.designs[k] + i * dim(); }

  static void prefetch(const double* numbers, std::size_t n) {
    const auto* begin = reinterpret_cast<const char*>(numbers);
    for (std::size_t at = 0; at < std::min(n * sizeof(double), std::size_t{1024}); at += 64)
      __builtin_prefetch(begin + at);
  }

  // By which observations are drawn.
  static std::vector<double> constants_of(const double* records, std::size_t n, std::size_t width) {
    std::vector<double> constants(n);
    for (std::size_t i = 0; i < n; ++i) constants[i] = std::isinf(records[i * width]) ? 0 : records[i * width];
    return constants;
  }

  static std::vector<double> weights_of(const Stream& stream, std::size_t n) {
    const auto& starts = stream.starts;
    if (starts.size() != stream.constants.size() + 1 || starts.front() != 0 || starts.back() > static_cast<std::int64_t>(n))
      throw std::invalid_argument("a stream must have a constant for each class, and no more members than observations");
    std::vector<double> weights;
    for (std::size_t k = 0; k < stream.constants.size(); ++k) {
      if (starts[k + 1] <= starts[k]) throw std::invalid_argument("a class must have members");
      weights.push_back(stream.constants[k] * static_cast<double>(starts[k + 1] - starts[k]));
    }
    return weights;
  }

  double power(double t) const { return expansion_.floor + (order() == 3 ? t * t * t * t : t * t * t); }

  void set_change(const double* theta, std::vector<double>& d) const {
    d.resize(dim());
    for (std::size_t j = 0; j < dim(); ++j) d[j] = theta[j] - expansion_.anchor[j];
  }

  void set_point(const std::vector<double>& d, Point& point) const {
    point.d = d;
    point.shared.resize(q_);
    for (std::size_t k = 0; k < q_; ++k) point.shared[k] = designs_[k].shared() ? dot(designs_[k].rows, d) : 0;
    point.w.resize(dim());
    point.slope.resize(dim());
    whitening_.times(d.data(), point.w.data());
    curvature_.times(d.data(), point.slope.data());
    for (std::size_t j = 0; j < dim(); ++j) point.slope[j] += expansion_.gradient[j];
    const double length = std::sqrt(dot(point.w.data(), point.w)), total = dot(point.slope.data(), d);
    point.length = power(length);
    point.total = order() == 3 ? total + cubic_(d, point.scratch) / 6 : total;
    point.powers.clear();
    if (sketch_) sketch_->set_point(point.w, length, point.sketch);
    if (!sketch_ && !screen_) return;
    point.t_shared = 0;
    for (std::size_t k = 0; k < q_; ++k) point.t_shared = std::max(point.t_shared, std::abs(point.shared[k]) * record(store_, 0)[1 + k]);
  }

  Records kept_;
  std::vector<Design> designs_;
  std::size_t n_, q_, width_;
  Store store_{};
  Expansion expansion_;
  DenseTriangle whitening_, curvature_;
  DenseCubic cubic_;
  std::vector<Level> levels_;
  double share_;
  AliasTable constants_;
  std::vector<std::size_t> unbounded_;
  std::optional<Sketch> sketch_;
  std::optional<Screen> screen_;
  std::vector<float> screened_;  // constants of all observations, for the screen
  std::optional<Stream> stream_;
};

// The remainders of one chain, from any source of candidates.
class ObservationRemainders : public Remainders {
 public:
  explicit ObservationRemainders(const Observations& all) : all_(all) {}

  const char* unit() const override { return "observation"; }

  double set_move(const double* theta, const double* theta_new) override {
    all_.set_pair(theta, theta_new, pair_);
    return all_.total_change(pair_);
  }

  double rate() override { return pair_.rate; }

  bool too_many(double n) const override { return !(n <= all_.share() * static_cast<double>(all_.size())); }

 protected:
  // Points below the bound from an observation's row form a process with that bound.
  bool stays(const Observations::Store& store, std::size_t i, double share, Candidate& candidate) {
    candidate.height = share * all_.first_bound(store, i, pair_);
    candidate.bound = all_.second_bound(store, i, pair_, changes_);
    return candidate.height < candidate.bound;
  }

  Remainder evaluated(const Observations::Store& store, std::size_t i) {
    all_.second_bound(store, i, pair_, changes_);
    return all_.remainder(store, i, changes_);
  }

  void add_all(const Observations::Store& store, std::size_t n, RemainderSums& sums) {
    for (std::size_t i = 0; i < n; ++i)
      if (all_.is_bounded(store, i)) sums.add(evaluated(store, i).value);
  }

  RemainderSums counted(const RemainderSums& sums, Decision& decision, Counters& counters) const {
    const auto n = static_cast<std::int64_t>(all_.size());
    counters.evaluated += 2 * n;
    count_all(decision, n);
    return sums;
  }

  const Observations& all_;
  Observations::Pair pair_;
  Observations::Changes changes_;
};

// Candidates whose records and rows are in memory.
class StoredRemainders : public ObservationRemainders {
 public:
  using ObservationRemainders::ObservationRemainders;

  double set_move(const double* theta, const double* theta_new) final {
    double change = ObservationRemainders::set_move(theta, theta_new);
    for (const std::size_t i : all_.unbounded()) change += evaluated(all_.store(), i).value;
    return change;
  }

  std::size_t n_unbounded() const final { return all_.unbounded().size(); }

  Remainder evaluate(const Candidate& candidate, Decision&, Counters& counters) final {
    counters.evaluated += 2;
    return all_.remainder(all_.store(), static_cast<std::size_t>(candidate.i), changes_);
  }

  RemainderSums evaluate_all(Decision& decision, Counters& counters) final {
    RemainderSums sums;
    add_all(all_.store(), all_.size(), sums);
    return counted(sums, decision, counters);
  }
};

// Candidates by the bounds that a screen gives.
class ScreenedRemainders final : public StoredRemainders {
 public:
  explicit ScreenedRemainders(const Observations& all) : StoredRemainders(all), bounds_(all.size()) {}

  double rate() override { return std::isinf(pair_.factor) ? pair_.factor : all_.screen(pair_, bounds_); }
  double rate_limit() override { return pair_.rate; }

  std::size_t n_screened() const override { return all_.size() * all_.dim(); }

  bool draw(bitgen_t* bits, Candidate& candidate, Decision& decision, Counters&) override {
    ++decision.n_obs_used;
    const std::size_t i = bounds_.at(bits->next_double(bits->state));
    candidate.i = static_cast<std::int64_t>(i);
    candidate.height = bits->next_double(bits->state) * bounds_[i];
    candidate.bound = all_.second_bound(all_.store(), i, pair_, changes_);
    return candidate.height < candidate.bound;
  }

 private:
  ScreenedBounds bounds_;
};

// Candidates by their constants, from a table.
class TableRemainders final : public StoredRemainders {
 public:
  using StoredRemainders::StoredRemainders;

  bool draw(bitgen_t* bits, Candidate& candidate, Decision& decision, Counters&) override {
    ++decision.n_obs_used;
    candidate.i = next(bits);
    const double share = bits->next_double(bits->state);
    return !all_.is_below(share, static_cast<std::size_t>(candidate.i), pair_) &&
           stays(all_.store(), static_cast<std::size_t>(candidate.i), share, candidate);
  }

  std::vector<double> ahead() const override {
    std::vector<double> places = ahead_;
    std::rotate(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(next_), places.end());
    return places;
  }

  void restore(const std::vector<double>& ahead) override {
    const auto fits = [&](double place) { return place >= 0 && place <= static_cast<double>(all_.size()); };
    if (ahead.size() > kRing || !std::all_of(ahead.begin(), ahead.end(), fits))
      throw std::invalid_argument("the state is of a decider of other data");
    ahead_ = ahead;
    next_ = 0;
  }

 private:
  // An observation in proportion to its bound. Whatever decisions come to, the next ones are independent draws: so they are
  // drawn ahead, and lie in the cache when they are asked for, the table's row first and then the record.
  std::int32_t next(bitgen_t* bits) {
    const AliasTable& constants = all_.constants();
    while (ahead_.size() < kRing) ahead_.push_back(constants.place(bits));
    double& place = ahead_[next_];
    const std::int32_t candidate = constants.at(place);
    place = constants.place(bits);
    constants.prefetch(place);
    next_ = (next_ + 1) % kRing;
    all_.prefetch(static_cast<std::size_t>(constants.at(ahead_[(next_ + kAhead - 1) % kRing])));
    return candidate;
  }

  static constexpr std::size_t kAhead = 4;  // candidates by which rows, and again records, are fetched early
  static constexpr std::size_t kRing = 2 * kAhead;

  std::vector<double> ahead_;  // places of candidates to come, in a ring
  std::size_t next_ = 0;
};

// Candidates from a stream: drawn ahead in batches, independent of the chain, whose records and rows are then computed together.
class StreamRemainders final : public ObservationRemainders {
 public:
  using ObservationRemainders::ObservationRemainders;

  bool draw(bitgen_t* bits, Candidate& candidate, Decision& decision, Counters& counters) override {
    ++decision.n_obs_used;
    if (next_ == members_.size()) {
      members_.resize(all_.batch());
      for (auto& member : members_) member = all_.member(bits);
      next_ = 0;
      fetched_ = false;
    }
    if (!fetched_) waiting(counters, [&] { all_.fetch_members(members_, batch_); });
    fetched_ = true;
    at_ = next_++;
    candidate.i = batch_.which[at_];
    return stays(batch_.store, at_, bits->next_double(bits->state), candidate);
  }

  Remainder evaluate(const Candidate&, Decision&, Counters& counters) override {
    counters.evaluated += 2;
    return all_.remainder(batch_.store, at_, changes_);
  }

  RemainderSums evaluate_all(Decision& decision, Counters& counters) override {
    RemainderSums sums;
    Observations::Batch part;
    for (std::size_t first = 0; first < all_.n_known(); first += kPart) {
      part.which.resize(std::min(kPart, all_.n_known() - first));
      std::iota(part.which.begin(), part.which.end(), static_cast<std::int64_t>(first));
      waiting(counters, [&] { all_.fetch(part); });
      add_all(part.store, part.which.size(), sums);
    }
    return counted(sums, decision, counters);
  }

  // Members that were drawn but not used yet.
  std::vector<double> ahead() const override {
    return {members_.begin() + static_cast<std::ptrdiff_t>(next_), members_.end()};
  }

  void restore(const std::vector<double>& ahead) override {
    const auto fits = [&](double place) { return place >= 0 && place < static_cast<double>(all_.n_members()); };
    if (ahead.size() > all_.batch() || !std::all_of(ahead.begin(), ahead.end(), fits))
      throw std::invalid_argument("the state is of a decider of other data");
    members_.assign(ahead.begin(), ahead.end());
    next_ = 0;
    fetched_ = false;
  }

 private:
  static constexpr std::size_t kPart = 16384;

  template <class Fetch>
  static void waiting(Counters& counters, const Fetch& fetch) {
    const auto began = std::chrono::steady_clock::now();
    fetch();
    ++counters.waits;
    counters.wait_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }

  std::vector<std::int64_t> members_;
  std::size_t next_ = 0, at_ = 0;
  bool fetched_ = false;
  Observations::Batch batch_;
};

inline std::unique_ptr<Remainders> Observations::remainders() const {
  if (is_stream()) return std::make_unique<StreamRemainders>(*this);
  if (is_screened()) return std::make_unique<ScreenedRemainders>(*this);
  return std::make_unique<TableRemainders>(*this);
}

}  // namespace stansub
