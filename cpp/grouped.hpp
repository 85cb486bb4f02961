// Thinning over observations with sparse rows: candidates are drawn by group, without a pass over the data.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "factorised.hpp"
#include "records.hpp"
#include "thinning.hpp"

namespace stansub {

// An observation depends on phi through q arguments eta_k = a_k . phi + o_k, and its log likelihood is expanded to second
// order around a point. The expansion is off by at most c sum_k (g_k |delta_k|)^3, delta_k being the change of argument k, if no
// |delta_k| exceeds a radius times a length l_k. That change is a sum over terms: numbers that all observations have, whose part is
// at most m_i |w|, w = A d with A from the precision of their coefficients, and the one coefficient of each column. With shares s_j
// of the terms of an argument that the observation has, which add up to 1,
//
//   |delta_k|^3 <= sum_terms |change by the term|^3 / s_j^2
//
// since by Hoelder's inequality (x_1 + ... + x_n)^3 <= x_1^3 / s_1^2 + ... + x_n^3 / s_n^2: tightest if the shares are
// those of the terms, which are about those of their changes for an sd. If c is infinite, the observation has no bound,
// and every decision evaluates it. Each term is a source of candidates: the first kind has one table over observations,
// the second one over groups, in proportion to |d_g|^3 and a sum over the group, and a table within each. The bound from
// an observation's own row rejects most of them.
class GroupedObservations final : public RemainderSource {
 public:
  static constexpr std::size_t most_arguments = 64;

  // A for each argument, p by p.
  using Whitenings = std::vector<std::vector<double>>;

  // Records, n of `width` numbers, are those of `Records` with g_k in place of 1 / l_k, without the arguments at the point, which
  // are computed from the rows, and without `data`, which the density takes. Of the lengths, (q, n), only the furthest changes in
  // them are kept. Levels are by |delta_k| / l_k. Shares of terms are by `sds` of phi. Numbers stay the caller's.
  GroupedObservations(LogLik density, const Arguments& arguments, Whitenings whitenings, std::vector<double> sds, const double* records,
                      std::size_t width, const double* lengths, std::vector<Numbers> data, std::vector<double> point, std::vector<Level> levels,
                      double share)
      : kept_(std::move(density), arguments.size(), 2),
        arguments_(arguments),
        whitenings_(std::move(whitenings)),
        sds_(std::move(sds)),
        q_(arguments_.size()),
        records_(records),
        n_(arguments_.n()),
        width_(width),
        data_(std::move(data)),
        point_(std::move(point)),
        levels_(std::move(levels)),
        share_(share) {
    if (q_ > most_arguments) throw std::invalid_argument("there must be 1 to " + std::to_string(most_arguments) + " arguments");
    if (whitenings_.size() != q_ || point_.size() != arguments_.dim() || sds_.size() != arguments_.dim())
      throw std::invalid_argument("there must be a whitening for each argument, and a place and an sd for each coefficient");
    kept_.check_width(width_ + q_ + data_.size());
    if (levels_.empty()) throw std::invalid_argument("there must be a radius");
    for (std::size_t i = 0; i < n_; ++i)
      if (std::isinf(record(static_cast<std::int32_t>(i))[0])) unbounded_.push_back(static_cast<std::int32_t>(i));
    for (std::size_t k = 0; k < q_; ++k) add_terms(k, lengths + k * n_);
    first_.push_back(terms_.size());
    for (Term& term : terms_) add_tables(term);
  }

  std::size_t dim() const override { return point_.size(); }
  std::size_t size() const override { return n_; }
  std::unique_ptr<Remainders> remainders() const override;
  double share() const { return share_; }
  const std::vector<std::int32_t>& unbounded() const { return unbounded_; }
  bool is_bounded(std::int32_t i) const { return std::isfinite(record(i)[0]); }

  // A term of one argument: numbers of all observations, or a grouping.
  struct Term {
    std::size_t argument;
    std::vector<double> largest;             // |change| / l_k for |w| or |d_g| of 1: of all, or of each group
    std::vector<AliasTable> tables;          // over observations, or over those of each group
    std::vector<std::int32_t> places;        // of the groups in phi
    std::vector<std::vector<std::int32_t>> members;
    std::vector<double> reach;               // dense: g_k m_i of each observation
    double usual = 0;                        // dense: |w| of draws, about
    const Column* gathered = nullptr;        // a grouping
    double sum(std::size_t g) const { return tables[g].total(); }
  };

  struct Point {
    std::vector<double> d;
    std::array<double, most_arguments> shared{};  // change of an argument that is the same for all
    std::vector<double> lengths;                  // |w| of each dense term, 0 for groupings
    double furthest = 0;                          // |delta_k| / l_k is no more
  };

  struct Move {
    Point from, to;
    double factor = 0, rate = 0;
    std::vector<double> rates;                 // of each term
    std::vector<std::vector<double>> sums;     // of each grouping, cumulated over its groups
  };

  // What decisions compute of an observation.
  struct Changes {
    double from[most_arguments], to[most_arguments];  // changes of its arguments
    std::vector<double> row;                          // its numbers of an argument
    std::vector<double> record;                       // its whole record
  };

  void set_move(const double* phi, const double* phi_new, Move& move) const {
    set_point(phi, move.from);
    set_point(phi_new, move.to);
    move.factor = factor_at(levels_, std::max(move.from.furthest, move.to.furthest), [](double radius) { return radius; });
    move.rates.assign(terms_.size(), 0.0);
    move.sums.resize(terms_.size());
    for (std::size_t j = 0; j < terms_.size(); ++j) {
      const Term& term = terms_[j];
      if (term.gathered == nullptr) {
        move.rates[j] = term.sum(0) * (cube(move.from.lengths[j]) + cube(move.to.lengths[j]));
        continue;
      }
      auto& sums = move.sums[j];
      sums.resize(term.places.size());
      double sum = 0;
      for (std::size_t g = 0; g < term.places.size(); ++g)
        sums[g] = sum += term.sum(g) * (cube(move.from.d[term.places[g]]) + cube(move.to.d[term.places[g]]));
      move.rates[j] = sum;
    }
    const double rate = std::accumulate(move.rates.begin(), move.rates.end(), 0.0);
    move.rate = std::isinf(move.factor) ? move.factor : move.factor * rate;
  }

  // Draws observations at the rate of `first_bound`. They are anywhere in memory: the data of each are prefetched while others
  // are drawn.
  template <std::size_t n>
  void draw(bitgen_t* bits, const Move& move, std::array<std::int32_t, n>& drawn) const {
    struct Place {
      const AliasTable* table;
      const std::int32_t* members;  // of the group; null where the table is over observations
      double at;
    };
    std::array<Place, n> places;
    for (Place& place : places) {
      const auto [term, g] = pick(bits, move);
      place.table = &term->tables[g];
      place.members = term->gathered == nullptr ? nullptr : term->members[g].data();
      place.at = place.table->place(bits);
      place.table->prefetch(place.at);
    }
    for (std::size_t k = 0; k < n; ++k) {
      drawn[k] = places[k].table->at(places[k].at);
      if (places[k].members != nullptr) __builtin_prefetch(places[k].members + drawn[k]);
    }
    for (std::size_t k = 0; k < n; ++k) {
      if (places[k].members != nullptr) drawn[k] = places[k].members[drawn[k]];
      prefetch(drawn[k]);
    }
  }

  // The rate at which an observation is drawn, over all terms.
  double first_bound(std::int32_t i, const Move& move) const {
    double sum = 0;
    for (std::size_t k = 0; k < q_; ++k) {
      const Shares shares = shares_of(i, k);
      for (std::size_t j = first_[k]; j < first_[k + 1]; ++j) {
        const Term& term = terms_[j];
        const Part part = part_of(i, term);
        if (part.change == 0) continue;
        const double from = part.place < 0 ? move.from.lengths[j] : move.from.d[part.place];
        const double to = part.place < 0 ? move.to.lengths[j] : move.to.d[part.place];
        sum += shares.weight(part) * (cube(from) + cube(to));
      }
    }
    return move.factor * record(i)[0] * sum;
  }

  // The bound from its own row.
  double second_bound(std::int32_t i, const Move& move, Changes& changes) const {
    const double* own = record(i);
    double sum = 0;
    for (std::size_t k = 0; k < q_; ++k) {
      const Argument& argument = arguments_[k];
      double from = move.from.shared[k], to = move.to.shared[k];
      if (!is_constant_[k])
        argument.each_run([&](const Run& run, const std::int32_t* places) {
          const double* row = run.at(i);
          for (std::size_t c = 0; c < run.width; ++c) {
            const double number = row[static_cast<std::ptrdiff_t>(c) * run.column];
            from += number * move.from.d[places[c]];
            to += number * move.to.d[places[c]];
          }
        });
      for (const Column& one : argument.columns)
        if (const std::int32_t place = one.places[i]; place >= 0) {
          const double factor = one.factors[i];
          from += factor * move.from.d[place];
          to += factor * move.to.d[place];
        }
      changes.from[k] = from;
      changes.to[k] = to;
      sum += cube(from * own[1 + k]) + cube(to * own[1 + k]);
    }
    return move.factor * own[0] * sum;
  }

  // The change of its log likelihood minus that of its expansion.
  Remainder remainder(std::int32_t i, Changes& changes) const {
    const double* own = record(i);
    auto& all = changes.record;
    all.assign(own, own + 1 + q_);
    for (std::size_t k = 0; k < q_; ++k) all.push_back(at_point(i, k, changes.row));
    all.insert(all.end(), own + 1 + q_, own + width_);
    for (const Numbers& one : data_) all.push_back(one[i]);
    return kept_.remainder<most_arguments>(all.data(), changes.from, changes.to);
  }

 private:
  static double cube(double x) { return std::abs(x) * x * x; }

  // Argument k at the point.
  double at_point(std::int32_t i, std::size_t k, std::vector<double>& row) const {
    const Argument& argument = arguments_[k];
    row.resize(argument.p());
    argument.copy(i, row.data());
    double found = 0;
    for (std::size_t c = 0; c < row.size(); ++c) found += row[c] * point_[argument.places[c]];
    for (const Column& one : argument.columns)
      if (const std::int32_t place = one.places[i]; place >= 0) found += one.factors[i] * point_[place];
    return found + argument.offset[i];
  }

  // A term, and a group of it.
  std::pair<const Term*, std::size_t> pick(bitgen_t* bits, const Move& move) const {
    double u = bits->next_double(bits->state) * move.rate / move.factor;
    std::size_t j = 0;
    while (j + 1 < terms_.size() && u >= move.rates[j]) u -= move.rates[j++];
    const Term& term = terms_[j];
    if (term.gathered == nullptr) return {&term, 0};
    const auto& sums = move.sums[j];
    const double target = std::min(u, sums.back());
    auto g = static_cast<std::size_t>(std::upper_bound(sums.begin(), sums.end(), target) - sums.begin());
    g = std::min(g, sums.size() - 1);
    while (term.members[g].empty() || !(term.sum(g) > 0)) g = g == 0 ? sums.size() - 1 : g - 1;  // where rounding led to none
    return {&term, g};
  }

  // Prefetches the data that bounds and remainders read of an observation.
  void prefetch(std::int32_t i) const {
    __builtin_prefetch(record(i));
    for (const Term& term : terms_)
      if (term.gathered == nullptr) __builtin_prefetch(&term.reach[i]);
    for (const Argument& argument : arguments_) {
      for (const Run& run : argument.runs) run.prefetch(i);
      for (const Column& one : argument.columns) {
        __builtin_prefetch(one.places + i);
        one.factors.prefetch(i);
      }
    }
  }

  // What a term contributes to an observation's argument, times g_k: for |w| or d_g of 1, and usually.
  struct Part {
    double change = 0, usual = 0;
    std::int32_t place = -1;  // of d_g
  };
  Part part_of(std::int32_t i, const Term& term) const {
    if (term.gathered == nullptr) return {term.reach[i], term.reach[i] * term.usual, -1};
    const std::int32_t place = term.gathered->places[i];
    if (place < 0) return {};
    const double change = std::abs(static_cast<double>(term.gathered->factors[i])) * record(i)[1 + term.argument];
    return {change, change * sds_[place], place};
  }

  // Shares of the terms that an observation's argument has. None is too small, in case a term changes unusually.
  struct Shares {
    double total = 0, n = 0;
    void add(const Part& part) { total += part.usual, n += part.change != 0; }
    // |change|^3 / s^2 for |w| or d_g of 1.
    double weight(const Part& part) const {
      const double share = ((total > 0 ? part.usual / total : 0) + least) / ((total > 0) + n * least);
      return cube(part.change) / (share * share);
    }
    static constexpr double least = 1e-3;
  };
  Shares shares_of(std::int32_t i, std::size_t k) const {
    Shares found;
    for (std::size_t j = first_[k]; j < first_[k + 1]; ++j) found.add(part_of(i, terms_[j]));
    return found;
  }

  double weight(std::int32_t i, const Term& term) const {
    const Part part = part_of(i, term);
    return is_bounded(i) && part.change != 0 ? record(i)[0] * shares_of(i, term.argument).weight(part) : 0;
  }
  const double* record(std::int32_t i) const { return records_ + static_cast<std::size_t>(i) * width_; }

  void add_terms(std::size_t k, const double* lengths) {
    const Argument& argument = arguments_[k];
    is_constant_.push_back(argument.is_constant());
    if (whitenings_[k].size() != argument.p() * argument.p()) throw std::invalid_argument("a whitening is p by p");
    first_.push_back(terms_.size());
    if (argument.p() > 0) add_dense(k, lengths);
    for (const Column& one : argument.columns) add_grouping(k, lengths, one);
  }

  // |z . d| = |(A'^-1 z) . (A d)| <= |A'^-1 z| |A d|, with A upper triangular.
  void add_dense(std::size_t k, const double* lengths) {
    const Argument& argument = arguments_[k];
    const std::size_t p = argument.p();
    const auto& whitening = whitenings_[k];
    Term term;
    term.argument = k;
    term.usual = std::sqrt(static_cast<double>(p));
    std::vector<double> row(p), solved(p);
    term.reach.resize(n_);
    double largest = 0, length = 0;
    for (std::size_t i = 0; i < n_; ++i) {
      if (i == 0 || !is_constant_[k]) {
        argument.copy(i, row.data());
        double squares = 0;
        for (std::size_t c = 0; c < p; ++c) {
          double one = row[c];
          for (std::size_t b = 0; b < c; ++b) one -= whitening[b * p + c] * solved[b];
          solved[c] = one / whitening[c * p + c];
          squares += solved[c] * solved[c];
        }
        length = std::sqrt(squares);
      }
      term.reach[i] = length * record(static_cast<std::int32_t>(i))[1 + k];
      largest = std::max(largest, length / lengths[i]);
    }
    term.largest = {largest};
    terms_.push_back(std::move(term));
  }

  void add_grouping(std::size_t k, const double* lengths, const Column& one) {
    Term term;
    term.argument = k;
    term.gathered = &one;
    std::vector<std::size_t> counts(dim());
    for (std::size_t i = 0; i < n_; ++i)
      if (one.places[i] >= 0) ++counts[one.places[i]];
    std::vector<std::vector<std::int32_t>> members(dim());
    for (std::size_t place = 0; place < dim(); ++place) members[place].reserve(counts[place]);
    for (std::size_t i = 0; i < n_; ++i)
      if (one.places[i] >= 0) members[one.places[i]].push_back(static_cast<std::int32_t>(i));
    for (std::size_t place = 0; place < dim(); ++place) {
      if (members[place].empty()) continue;
      double largest = 0;
      for (const std::int32_t i : members[place]) largest = std::max(largest, std::abs(static_cast<double>(one.factors[i])) / lengths[i]);
      term.places.push_back(static_cast<std::int32_t>(place));
      term.largest.push_back(largest);
      term.members.push_back(std::move(members[place]));
    }
    if (!term.places.empty()) terms_.push_back(std::move(term));
  }

  // Tables of the weights of terms, once all terms are known.
  void add_tables(Term& term) const {
    std::vector<double> weights;
    if (term.gathered == nullptr) {
      for (std::size_t i = 0; i < n_; ++i) weights.push_back(weight(static_cast<std::int32_t>(i), term));
      term.tables.emplace_back(weights);
    }
    for (const auto& group : term.members) {
      weights.clear();
      for (const std::int32_t i : group) weights.push_back(weight(i, term));
      term.tables.emplace_back(weights);
    }
  }

  void set_point(const double* phi, Point& point) const {
    point.d.resize(dim());
    for (std::size_t j = 0; j < dim(); ++j) point.d[j] = phi[j] - point_[j];
    point.lengths.assign(terms_.size(), 0.0);
    std::array<double, most_arguments> furthest{};
    for (std::size_t j = 0; j < terms_.size(); ++j) {
      const Term& term = terms_[j];
      double most = 0;
      if (term.gathered == nullptr) {
        const Argument& argument = arguments_[term.argument];
        const auto& whitening = whitenings_[term.argument];
        const std::size_t p = argument.p();
        std::vector<double> row(is_constant_[term.argument] ? p : 0);
        if (!row.empty()) argument.copy(0, row.data());
        double squares = 0, shared = 0;
        for (std::size_t b = 0; b < p; ++b) {
          double along = 0;
          for (std::size_t c = b; c < p; ++c) along += whitening[b * p + c] * point.d[argument.places[c]];
          squares += along * along;
          if (!row.empty()) shared += row[b] * point.d[argument.places[b]];
        }
        point.shared[term.argument] = shared;
        point.lengths[j] = std::sqrt(squares);
        most = term.largest[0] * point.lengths[j];
      } else {
        for (std::size_t g = 0; g < term.places.size(); ++g)
          most = std::max(most, term.largest[g] * std::abs(point.d[term.places[g]]));
      }
      furthest[term.argument] += most;
    }
    point.furthest = *std::max_element(furthest.begin(), furthest.end());
  }

  Records kept_;
  const Arguments& arguments_;
  Whitenings whitenings_;
  std::vector<double> sds_;
  std::vector<char> is_constant_;  // whether an argument's dense numbers are the same for all
  std::size_t q_;
  const double* records_;
  std::size_t n_, width_;
  std::vector<Numbers> data_;
  std::vector<double> point_;
  std::vector<Level> levels_;
  double share_;
  std::vector<Term> terms_;
  std::vector<std::size_t> first_;  // term of each argument, and their number
  std::vector<std::int32_t> unbounded_;
};

// The remainders of one chain.
class GroupedRemainders final : public Remainders {
 public:
  explicit GroupedRemainders(const GroupedObservations& all) : all_(all) {}

  const char* unit() const override { return "observation"; }

  // The change of the expansions belongs to the surrogate and is not counted here.
  double set_move(const double* phi, const double* phi_new) override {
    all_.set_move(phi, phi_new, move_);
    next_ = drawn_.size();
    double sum = 0;
    for (const std::int32_t i : all_.unbounded()) sum += evaluated(i).value;
    return sum;
  }

  std::size_t n_unbounded() const override { return all_.unbounded().size(); }

  double rate() override { return move_.rate; }

  bool too_many(double n) const override { return !(n <= all_.share() * static_cast<double>(all_.size())); }

  bool draw(bitgen_t* bits, Candidate& candidate, Decision& decision, Counters&) override {
    ++decision.n_obs_used;
    if (next_ == drawn_.size()) {
      all_.draw(bits, move_, drawn_);
      next_ = 0;
    }
    const std::int32_t i = drawn_[next_++];
    candidate.i = i;
    candidate.height = bits->next_double(bits->state) * all_.first_bound(i, move_);
    candidate.bound = all_.second_bound(i, move_, changes_);
    return candidate.height < candidate.bound;
  }

  Remainder evaluate(const Candidate& candidate, Decision&, Counters& counters) override {
    counters.evaluated += 2;
    return all_.remainder(static_cast<std::int32_t>(candidate.i), changes_);
  }

  RemainderSums evaluate_all(Decision& decision, Counters& counters) override {
    RemainderSums sums;
    const auto n = static_cast<std::int32_t>(all_.size());
    for (std::int32_t i = 0; i < n; ++i)
      if (all_.is_bounded(i)) sums.add(evaluated(i).value);
    counters.evaluated += 2 * static_cast<std::int64_t>(n);
    count_all(decision, n);
    return sums;
  }

  // Determines how many candidates pay off: the sum of the bounds b_i from the observations' rows, and
  // sum_i r_i^2 / b_i, which is divided by kappa in the variance of the log ratio.
  std::pair<double, double> spread() {
    double bounds = 0, squares = 0;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(all_.size()); ++i) {
      if (!all_.is_bounded(i)) continue;
      const double bound = all_.second_bound(i, move_, changes_), r = all_.remainder(i, changes_).value;
      bounds += bound;
      if (bound > 0) squares += r * r / bound;
    }
    return {bounds, squares};
  }

 private:
  Remainder evaluated(std::int32_t i) {
    all_.second_bound(i, move_, changes_);
    return all_.remainder(i, changes_);
  }

  const GroupedObservations& all_;
  GroupedObservations::Move move_;
  std::array<std::int32_t, 16> drawn_;  // candidates of this move, and which is next
  std::size_t next_ = drawn_.size();
  GroupedObservations::Changes changes_;
};

inline std::unique_ptr<Remainders> GroupedObservations::remainders() const {
  return std::make_unique<GroupedRemainders>(*this);
}

}  // namespace stansub
