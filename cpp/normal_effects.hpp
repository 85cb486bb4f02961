// Gibbs sampling of effects that are normal given their scales, and of these scales.
#pragma once

#include <numpy/random/bitgen.h>
#include <numpy/random/distributions.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "combination.hpp"
#include "prior_means.hpp"
#include "repeated_cholesky.hpp"
#include "soft_minima.hpp"
#include "vectors.hpp"

namespace stansub {

// A draw that leaves a density of one number invariant, from 0, by stepping out and shrinkage (Neal 2003, section 4,
// figures 3 and 5). It is reversible.
template <class LogDensity>
double slice_sample(LogDensity log_density, double width, bitgen_t* bits) {
  constexpr int kMost = 32;
  const auto uniform = [&] { return bits->next_double(bits->state); };
  const double level = log_density(0.0) + std::log1p(-uniform());
  double low = -width * uniform(), high = low + width;
  int below = static_cast<int>(kMost * uniform()), above = kMost - 1 - below;
  for (; below > 0 && log_density(low) >= level; --below) low -= width;
  for (; above > 0 && log_density(high) >= level; --above) high += width;
  for (;;) {
    const double found = low + (high - low) * uniform();
    if (log_density(found) >= level || found == 0) return found;
    (found < 0 ? low : high) = found;
  }
}

// Functions of one number each, on one grid: cubic polynomials between its nodes, and lines outside.
struct Tables {
  double low, step;
  std::size_t n;
  std::vector<double> values, slopes;

  double operator()(std::size_t which, double s) const {
    const double *const v = values.data() + which * n, *const d = slopes.data() + which * n;
    const double t = (s - low) / step, last = static_cast<double>(n - 1);
    if (!(t > 0)) return v[0] + d[0] * (s - low);
    if (t >= last) return v[n - 1] + d[n - 1] * step * (t - last);
    const auto i = static_cast<std::size_t>(t);
    const double w = t - static_cast<double>(i), rest = 1 - w;
    return rest * rest * ((1 + 2 * w) * v[i] + w * step * d[i]) + w * w * ((3 - 2 * w) * v[i + 1] - rest * step * d[i + 1]);
  }
};

// A density of parameters theta: scales s with densities h_k(s_k), blocks of effects with u = S z and z ~ N(0, I), where S
// is a function of the scales as in coordinates.hpp, other coefficients, and a likelihood that is normal in u and these
// coefficients, exp(b.v - v.M v / 2) with v = A u. theta has u, plus a mean that other coefficients determine, or z of a
// block. Given the scales, coefficients are drawn as v, whose precision is sparse where that of u is not: of the steps u of a
// random walk, each is read by all later observations. They are drawn all at once, or in parts given the rest, where the
// factor of the whole precision would have many elements: crossed effects of thousands of users and films.
class NormalEffects {
 public:
  struct Blocks {
    std::vector<std::int32_t> sizes, places;  // places among u
    std::vector<std::uint8_t> has_effects;    // whether theta has u plus its mean, not z
  };
  // Lines through the scales, by rows. Along a line, u or z is fixed.
  struct Moves {
    std::vector<std::int32_t> starts, columns;
    std::vector<double> coefficients, widths;
    std::vector<std::uint8_t> fixes_effects;
  };
  struct Normal {
    std::vector<std::int32_t> starts, columns;
    std::vector<double> values, linear;  // M by rows, and b
  };

  // The parts in which coefficients are drawn: their sizes, and by part the pattern of the factor and the coefficient at each
  // place of it. A coefficient may be in several parts; those of a block are together.
  struct Parts {
    std::vector<std::int32_t> sizes, starts, rows, members;
  };

  // Student's t distribution from which scales are proposed: its centre and root, by rows; or empty for none.
  struct Proposal {
    std::vector<double> centre, root;
  };

  NormalEffects(std::vector<std::int32_t> coefficients, std::vector<std::int32_t> scales, Tables tables, Blocks blocks,
                SoftMinima::Rows rows, Normal normal, const Parts& parts, Moves moves, double share, Proposal proposal,
                PriorMeans means, Combination combination)
      : coefficient_places_(std::move(coefficients)), scale_places_(std::move(scales)), tables_(std::move(tables)),
        functions_(std::move(rows)), normal_(std::move(normal)), share_(share), proposal_(std::move(proposal)),
        means_(std::move(means)), combination_(std::move(combination)) {
    const std::size_t d = coefficient_places_.size();
    if (normal_.linear.size() != d || normal_.starts.size() != d + 1 ||
        combination_.is_identity() || tables_.values.size() != scale_places_.size() * tables_.n ||
        tables_.slopes.size() != tables_.values.size() ||
        (!proposal_.centre.empty() && proposal_.centre.size() != scale_places_.size()) ||
        proposal_.root.size() != proposal_.centre.size() * proposal_.centre.size() ||
        (proposes() && parts.sizes.size() != 1))
      throw std::invalid_argument("the parts of normal effects do not fit together");
    set_blocks(std::move(blocks));
    set_parts(parts);
    set_diagonal();
    for (std::size_t m = 0; m + 1 < moves.starts.size(); ++m) add_move(moves, m);
    now_ = {std::vector<double>(scale_places_.size()), functions_.values(), std::vector<double>(d),
            std::vector<double>(d), std::vector<double>(d)};
    change_.assign(d, 0.0);
    combined_change_.assign(d, 0.0);
  }

  NormalEffects(const NormalEffects&) = delete;  // blocks point into the object
  NormalEffects& operator=(const NormalEffects&) = delete;

  std::size_t dim() const { return n_coefficients() + scale_places_.size(); }
  std::size_t n_coefficients() const { return coefficient_places_.size(); }

  // What changes from draw to draw: scales, the functions of blocks, u, z, and b - M v.
  struct State {
    std::vector<double> scales, functions, effects, standard, slope;
  };
  const State& state() const { return now_; }
  void restore(const State& state) { now_ = state; }

  void place(const double* theta) {
    for (std::size_t k = 0; k < scale_places_.size(); ++k) now_.scales[k] = theta[scale_places_[k]];
    set_functions();
    by_parameter_.assign(theta, theta + dim());
    means_.remove(by_parameter_.data());
    for (std::size_t i = 0; i < coefficient_places_.size(); ++i) now_.effects[i] = by_parameter_[coefficient_places_[i]];
    for (const Block& block : blocks_) {
      if (!block.has_effects)
        for (std::int32_t i = 0; i < block.size; ++i) now_.standard[block.places[i]] = now_.effects[block.places[i]];
      fill(block, now_.functions.data() + block.first);
      if (block.has_effects) {
        standardise(block);
      } else {
        scale(block, now_.effects.data());
      }
    }
    set_slope();
  }

  void theta(double* out) const {
    for (std::size_t k = 0; k < scale_places_.size(); ++k) out[scale_places_[k]] = now_.scales[k];
    for (std::size_t i = 0; i < coefficient_places_.size(); ++i) out[coefficient_places_[i]] = now_.effects[i];
    for (const Block& block : blocks_)
      if (!block.has_effects)
        for (std::int32_t i = 0; i < block.size; ++i)
          out[coefficient_places_[block.places[i]]] = now_.standard[block.places[i]];
    means_.add(out);
  }

  // Log density of theta, up to a constant.
  double log_density() {
    combination_.combine(now_.effects.data(), combined_);
    double sum = 0.5 * (dot(combined_.data(), normal_.linear) + dot(combined_.data(), now_.slope));
    for (std::size_t k = 0; k < now_.scales.size(); ++k) sum += tables_(k, now_.scales[k]);
    for (const Block& block : blocks_)
      for (std::int32_t i = 0; i < block.size; ++i) {
        const double z = now_.standard[block.places[i]];
        sum -= 0.5 * z * z;
        if (block.has_effects) sum -= log_diagonal(block, now_.functions.data() + block.first, i);
      }
    return sum;
  }

  // Whether all scales are proposed at once.
  bool proposes() const { return !proposal_.centre.empty(); }

  // Moves the scales, with the factor, to an independent proposal, or to one near them; false if there is none. Effects stay
  // as they are.
  bool propose(bitgen_t* bits) {
    keep();
    now_.scales = proposal_.centre;
    return shift(bits, std::sqrt(kFreedom / random_chisquare(bits, kFreedom)));
  }
  bool propose_nearby(bitgen_t* bits) {
    keep();
    return shift(bits, kNearby / std::sqrt(static_cast<double>(now_.scales.size())));
  }

  // Moves the scales, with the factor, to where they were before the last proposal.
  void take_back() { std::tie(now_.scales, now_.functions, whole().cholesky.values(), x_) = kept_; }

  // Log density of the proposal at the scales, up to a constant.
  double log_proposal() {
    const std::size_t n = now_.scales.size();
    noise_.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      const double* const row = proposal_.root.data() + i * n;
      noise_[i] = (now_.scales[i] - proposal_.centre[i] - dot(row, noise_.data(), i)) / row[i];
    }
    const double squares = dot(noise_.data(), noise_.data(), n);
    return -0.5 * (kFreedom + static_cast<double>(n)) * std::log1p(squares / kFreedom);
  }

  // L with L L' the precision of all coefficients given the scales, and x = L^-1 b. False if it is not positive definite.
  bool factorise() { return factorise(whole()); }

  // Standard normal numbers e with v = m + P' L'^-1 e, where m is the mean of v given the scales and L L' its precision, as
  // factorised last.
  void standardise(double* e) {
    const Part& part = whole();
    combination_.combine(now_.effects.data(), combined_);
    noise_.resize(part.dim());
    for (std::size_t k = 0; k < part.dim(); ++k) noise_[k] = combined_[part.members[k]];
    part.cholesky.factor().times_transpose(noise_);
    for (std::size_t k = 0; k < part.dim(); ++k) e[k] = noise_[k] - x_[k];
  }

  // u and z from these numbers.
  void set_standardised(const double* e) {
    combined_.resize(n_coefficients());
    set_combined(whole(), e);
    separate();
  }

  // Logarithm of |d theta / d e| with the scales fixed, up to a constant.
  double log_volume() const {
    double sum = -log_determinant();
    for (const Block& block : blocks_)
      if (!block.has_effects)
        for (std::int32_t i = 0; i < block.size; ++i) sum -= log_diagonal(block, now_.functions.data() + block.first, i);
    return sum;
  }

  // The gradient with respect to e from that with respect to theta.
  void pull(const double* slope, std::vector<double>& found) {
    by_parameter_.assign(slope, slope + dim());
    means_.pull(by_parameter_.data());
    noise_.resize(coefficient_places_.size());
    for (std::size_t i = 0; i < noise_.size(); ++i) noise_[i] = by_parameter_[coefficient_places_[i]];
    for (const Block& block : blocks_) {
      if (block.has_effects) continue;
      fill(block, now_.functions.data() + block.first);
      for (std::int32_t i = block.size; i-- > 0;) {  // S'^-1
        double sum = noise_[block.places[i]];
        for (std::int32_t j = i + 1; j < block.size; ++j) sum -= lower_[j * block.size + i] * noise_[block.places[j]];
        noise_[block.places[i]] = sum / lower_[i * block.size + i];
      }
    }
    const Part& part = whole();
    combination_.pull(noise_.data(), combined_);
    found.resize(part.dim());
    for (std::size_t k = 0; k < part.dim(); ++k) found[k] = combined_[part.members[k]];
    part.cholesky.factor().forward(found);
  }

  // A draw of all scales and coefficients, in a share of the sweeps between moves of scales and these again in reverse.
  // False where the coefficients have no normal distribution.
  bool sweep(bitgen_t* bits) {
    const bool moves = share_ >= 1 || bits->next_double(bits->state) < share_;
    if (moves)
      for (const Move& one : moves_) move(one, bits);
    if (!draw(bits)) return false;
    if (moves)
      for (std::size_t m = moves_.size(); m-- > 0;) move(moves_[m], bits);
    return true;
  }

 private:
  static constexpr double kSame = 1e-6;
  // Proposals of all scales in a sweep, and their degrees of freedom.
  static constexpr int kTries = 3;
  static constexpr double kFreedom = 5;

  // Distance of proposals nearby, in sds, times the square root of the number of scales (Roberts, Gelman and Gilks 1997).
  static constexpr double kNearby = 2.38;

  struct Block {
    const std::int32_t* places;
    std::int32_t size;
    std::size_t first;  // function
    bool has_effects;
  };
  struct Element {
    std::int32_t at;
    double value;
  };
  // Coefficients that are drawn together, given the others and the scales, from the factor of their precision.
  struct Part {
    RepeatedCholesky cholesky;
    std::vector<std::int32_t> members, places;  // the coefficient at each place of the factor, and this place or -1
    std::vector<std::int32_t> blocks;
    std::vector<Element> elements;              // those of M in the factor
    std::vector<Element> block_elements;        // with the factor of an element of a block's precision
    std::vector<std::size_t> block_ends;        // after the last one of each such element
    std::vector<std::int32_t> readers;          // members that share elements of M with others

    std::size_t dim() const { return members.size(); }
    std::int32_t index(std::int32_t i, std::int32_t j) const {
      if (places[i] < 0 || places[j] < 0) throw std::invalid_argument("a block of effects is in several parts");
      return cholesky.index(places[i], places[j]);
    }
  };
  struct Move {
    std::vector<std::int32_t> scales;
    std::vector<double> coefficients;
    std::vector<double> direction;     // the same by scale
    std::vector<std::int32_t> blocks;  // whose S changes
    std::vector<std::int32_t> reached; // elements of v that their effects change
    std::vector<double> slopes;        // of their functions
    bool is_uniform;                   // all S change by one factor, e^(rate delta)
    double rate;
    bool fixes_effects;
    double width;
  };

  static std::size_t n_functions(std::int32_t k) { return static_cast<std::size_t>(k) * (k + 1) / 2; }

  void set_blocks(Blocks blocks) {
    own_ = std::move(blocks);
    std::size_t at = 0, first = 0;
    for (std::size_t b = 0; b < own_.sizes.size(); ++b) {
      blocks_.push_back({own_.places.data() + at, own_.sizes[b], first, own_.has_effects.at(b) != 0});
      at += own_.sizes[b];
      first += n_functions(own_.sizes[b]);
      lower_.resize(std::max(lower_.size(), static_cast<std::size_t>(own_.sizes[b]) * own_.sizes[b]));
    }
    if (own_.places.size() != at || functions_.size() != first)
      throw std::invalid_argument("blocks of effects do not fit together");
    moved_.resize(first);
    for (const Block& block : blocks_) z_.resize(std::max(z_.size(), static_cast<std::size_t>(block.size)));
  }

  Part& whole() { return parts_.front(); }
  const Part& whole() const { return parts_.front(); }

  void set_parts(const Parts& parts) {
    if (parts.sizes.empty()) throw std::invalid_argument("the coefficients have no parts");
    auto start = parts.starts.begin();
    auto row = parts.rows.begin();
    auto member = parts.members.begin();
    for (const std::int32_t n : parts.sizes) {
      if (n < 1 || parts.starts.end() - start < n + 1 || parts.members.end() - member < n || start[n] < 0 ||
          parts.rows.end() - row < start[n] || std::any_of(member, member + n, [&](std::int32_t i) {
            return i < 0 || i >= static_cast<std::int32_t>(n_coefficients());
          }))
        throw std::invalid_argument("the parts of the coefficients do not fit together");
      std::vector<std::int32_t> order(n);
      std::iota(order.begin(), order.end(), 0);
      LowerTriangle pattern{{start, start + n + 1}, {row, row + start[n]}, std::vector<double>(start[n], 1.0)};
      parts_.push_back({RepeatedCholesky({std::move(pattern), std::move(order)}), {member, member + n},
                        std::vector<std::int32_t>(n_coefficients(), -1), {}, {}, {}, {}, {}});
      set_elements(parts_.back());
      row += start[n];
      start += n + 1;
      member += n;
    }
    for (std::size_t i = 0; i < n_coefficients(); ++i)
      if (std::none_of(parts_.begin(), parts_.end(), [&](const Part& one) { return one.places[i] >= 0; }))
        throw std::invalid_argument("a coefficient is in no part");
  }

  // Where the elements of M and of the blocks' precisions stand in the factor of a part.
  void set_elements(Part& part) const {
    for (std::size_t k = 0; k < part.dim(); ++k) part.places[part.members[k]] = static_cast<std::int32_t>(k);
    for (const std::int32_t i : part.members) {
      bool reads = false;
      for (std::int32_t k = normal_.starts[i]; k < normal_.starts[i + 1]; ++k) {
        const std::int32_t j = normal_.columns[k];
        if (part.places[j] < 0) {
          reads = true;
        } else if (j <= i) {
          part.elements.push_back({part.index(i, j), normal_.values[k]});
        }
      }
      if (reads) part.readers.push_back(i);
    }
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      const Block& block = blocks_[b];
      if (part.places[combination_.rows().places.at(combination_.rows().starts[block.places[0]])] < 0) continue;
      part.blocks.push_back(static_cast<std::int32_t>(b));
      for (std::int32_t i = 0; i < block.size; ++i)
        for (std::int32_t j = 0; j <= i; ++j) {
          add_products(part, block.places[i], block.places[j]);
          part.block_ends.push_back(part.block_elements.size());
        }
    }
  }

  // Where r s' + s r', or r r', stands in the factor, with r and s rows of R: what an element of a block's precision adds.
  void add_products(Part& part, std::int32_t i, std::int32_t j) const {
    each_entry(combination_.rows(), i, [&](std::int32_t a, double r) {
      each_entry(combination_.rows(), j, [&](std::int32_t b, double s) {
        if (i == j && b > a) return;
        part.block_elements.push_back({part.index(a, b), i != j && a == b ? 2 * r * s : r * s});
      });
    });
  }

  // The diagonal of A'M A.
  void set_diagonal() {
    diagonal_.assign(normal_.linear.size(), 0.0);
    std::vector<double> column(diagonal_.size());
    for (std::size_t i = 0; i < diagonal_.size(); ++i) {
      const auto own = static_cast<std::int32_t>(i);
      each_entry(combination_.columns(), own, [&](std::int32_t at, double factor) { column[at] = factor; });
      each_entry(combination_.columns(), own, [&](std::int32_t at, double factor) {
        double row = 0;
        for (std::int32_t k = normal_.starts[at]; k < normal_.starts[at + 1]; ++k)
          row += normal_.values[k] * column[normal_.columns[k]];
        diagonal_[i] += factor * row;
      });
      each_entry(combination_.columns(), own, [&](std::int32_t at, double) { column[at] = 0; });
    }
  }

  template <class Work>
  static void each_entry(const Combination::Entries& entries, std::int32_t i, Work work) {
    for (std::int32_t k = entries.starts[i]; k < entries.starts[i + 1]; ++k) work(entries.places[k], entries.values[k]);
  }

  void add_move(const Moves& moves, std::size_t m) {
    const auto first = moves.starts[m], end = moves.starts[m + 1];
    Move one{{moves.columns.begin() + first, moves.columns.begin() + end},
             {moves.coefficients.begin() + first, moves.coefficients.begin() + end},
             std::vector<double>(scale_places_.size()), {}, {}, {}, true, 0, moves.fixes_effects.at(m) != 0, moves.widths.at(m)};
    for (std::size_t k = 0; k < one.scales.size(); ++k) one.direction.at(one.scales[k]) = one.coefficients[k];
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      const std::size_t n = n_functions(blocks_[b].size);
      std::vector<double> slopes(n);
      double largest = 0;
      bool is_affine = true;
      for (std::size_t f = 0; f < n; ++f) {
        slopes[f] = functions_.slope(blocks_[b].first + f, one.direction.data());
        largest = std::max(largest, std::abs(slopes[f]));
        is_affine &= functions_.is_affine(blocks_[b].first + f);
      }
      if (largest < kSame) continue;
      one.is_uniform &= is_affine;
      if (one.blocks.empty()) one.rate = slopes[0];
      for (std::int32_t i = 0; i < blocks_[b].size; ++i)
        for (std::int32_t j = 0; j <= i; ++j)
          one.is_uniform &= std::abs(slopes[n_functions(i) + j] - (i == j ? one.rate : 0)) < kSame;
      one.blocks.push_back(static_cast<std::int32_t>(b));
      one.slopes.insert(one.slopes.end(), slopes.begin(), slopes.end());
    }
    std::vector<bool> is_reached(coefficient_places_.size());
    each_effect(one, [&](std::int32_t i) {
      each_entry(combination_.columns(), i, [&](std::int32_t at, double) {
        if (!is_reached[at]) one.reached.push_back(at);
        is_reached[at] = true;
      });
    });
    moves_.push_back(std::move(one));
  }

  static double log_diagonal(const Block&, const double* f, std::int32_t i) {
    const double* const row = f + n_functions(i);
    double found = row[i];
    for (std::int32_t j = 0; j < i; ++j) found -= std::log(std::cosh(row[j]));
    return found;
  }

  // S of a block, from its functions.
  void fill(const Block& block, const double* f) {
    for (std::int32_t i = 0; i < block.size; ++i) {
      double rest = std::exp(f[i]);
      for (std::int32_t j = 0; j < i; ++j) {
        lower_[i * block.size + j] = rest * std::tanh(f[j]);
        rest /= std::cosh(f[j]);
      }
      lower_[i * block.size + i] = rest;
      f += i + 1;
    }
  }

  // u = S z, for the S that was filled in last.
  void scale(const Block& block, double* effects) const {
    for (std::int32_t i = 0; i < block.size; ++i) {
      double sum = 0;
      for (std::int32_t j = 0; j <= i; ++j) sum += lower_[i * block.size + j] * now_.standard[block.places[j]];
      effects[block.places[i]] = sum;
    }
  }

  // z = S^-1 u.
  void standardise(const Block& block) {
    for (std::int32_t i = 0; i < block.size; ++i) {
      double sum = now_.effects[block.places[i]];
      for (std::int32_t j = 0; j < i; ++j) sum -= lower_[i * block.size + j] * now_.standard[block.places[j]];
      now_.standard[block.places[i]] = sum / lower_[i * block.size + i];
    }
  }

  void set_functions() {
    functions_.set(now_.scales.data());
    now_.functions = functions_.values();
  }

  void set_slope() {
    combination_.combine(now_.effects.data(), combined_);
    for (std::size_t i = 0; i < normal_.linear.size(); ++i) {
      now_.slope[i] = normal_.linear[i];
      for (std::int32_t k = normal_.starts[i]; k < normal_.starts[i + 1]; ++k)
        now_.slope[i] -= normal_.values[k] * combined_[normal_.columns[k]];
    }
  }

  // Draws each part given the others, and again in reverse, so that a sweep is reversible.
  bool draw(bitgen_t* bits) {
    combination_.combine(now_.effects.data(), combined_);
    const std::size_t n = parts_.size();
    for (std::size_t k = 0; k < 2 * n - 1; ++k) {
      Part& part = parts_[std::min(k, 2 * n - 2 - k)];
      if (!factorise(part)) return false;
      draw_scales(bits);
      standard_.resize(part.dim());
      random_standard_normal_fill(bits, static_cast<npy_intp>(standard_.size()), standard_.data());
      set_combined(part, standard_.data());
    }
    separate();
    set_slope();
    return true;
  }

  // L with L L' the precision of a part's coefficients given the scales, and x = L^-1 c, where c is b less the products of M
  // with other coefficients. False if it is not positive definite.
  bool factorise(Part& part) {
    std::vector<double>& values = part.cholesky.values();
    std::fill(values.begin(), values.end(), 0.0);
    for (const auto& [at, value] : part.elements) values[at] = value;
    std::size_t element = 0;
    for (const std::int32_t b : part.blocks) {
      fill(blocks_[b], now_.functions.data() + blocks_[b].first);
      element = add_precision(part, blocks_[b], element);
    }
    if (!part.cholesky.factorise()) return false;
    x_.resize(part.dim());
    for (std::size_t k = 0; k < part.dim(); ++k) x_[k] = normal_.linear[part.members[k]];
    for (const std::int32_t i : part.readers)
      for (std::int32_t k = normal_.starts[i]; k < normal_.starts[i + 1]; ++k)
        if (part.places[normal_.columns[k]] < 0) x_[part.places[i]] -= normal_.values[k] * combined_[normal_.columns[k]];
    part.cholesky.factor().forward(x_);
    return true;
  }

  // v of a part from standard normal numbers, as factorised last.
  void set_combined(const Part& part, const double* e) {
    noise_.resize(part.dim());
    for (std::size_t k = 0; k < part.dim(); ++k) noise_[k] = x_[k] + e[k];
    part.cholesky.factor().backward(noise_);
    for (std::size_t k = 0; k < part.dim(); ++k) combined_[part.members[k]] = noise_[k];
  }

  // u and z from v.
  void separate() {
    combination_.separate(combined_.data(), now_.effects.data());
    for (const Block& block : blocks_) {
      fill(block, now_.functions.data() + block.first);
      standardise(block);
    }
  }

  void keep() { kept_ = {now_.scales, now_.functions, whole().cholesky.values(), x_}; }

  bool shift(bitgen_t* bits, double size) {
    const std::size_t n = now_.scales.size();
    noise_.resize(n);
    random_standard_normal_fill(bits, static_cast<npy_intp>(n), noise_.data());
    for (std::size_t i = 0; i < n; ++i)
      now_.scales[i] += size * dot(proposal_.root.data() + i * n, noise_.data(), i + 1);
    set_functions();
    return factorise();
  }

  // Draws all scales from their density with the coefficients integrated out. A draw of the coefficients must follow.
  void draw_scales(bitgen_t* bits) {
    if (!proposes()) return;
    double here = marginal() - log_proposal();
    for (int k = 0; k < kTries; ++k) {
      const double there = propose(bits) ? marginal() - log_proposal() : -std::numeric_limits<double>::infinity();
      if (std::log1p(-bits->next_double(bits->state)) < there - here) {
        here = there;
      } else {
        take_back();
      }
    }
  }

  // Log density of the scales with the coefficients integrated out, up to a constant, after `factorise`.
  double marginal() const {
    double sum = 0.5 * dot(x_.data(), x_.data(), x_.size());
    for (std::size_t k = 0; k < now_.scales.size(); ++k) sum += tables_(k, now_.scales[k]);
    for (const Block& block : blocks_)
      for (std::int32_t i = 0; i < block.size; ++i) sum -= log_diagonal(block, now_.functions.data() + block.first, i);
    return sum - log_determinant();
  }

  // Logarithm of the determinant of L.
  double log_determinant() const {
    const SparseCholesky& factor = whole().cholesky.factor();
    double sum = 0;
    for (std::size_t j = 0; j < factor.dim(); ++j) sum += std::log(factor.values[factor.starts[j]]);
    return sum;
  }

  // Adds (S S')^-1 of a block, whose S is filled in, to the matrix to factorise; elements of blocks are counted on.
  std::size_t add_precision(Part& part, const Block& block, std::size_t element) {
    const std::int32_t k = block.size;
    inverse_.assign(static_cast<std::size_t>(k) * k, 0.0);
    for (std::int32_t j = 0; j < k; ++j)
      for (std::int32_t i = j; i < k; ++i) {
        double sum = i == j;
        for (std::int32_t m = j; m < i; ++m) sum -= lower_[i * k + m] * inverse_[m * k + j];
        inverse_[i * k + j] = sum / lower_[i * k + i];
      }
    for (std::int32_t i = 0; i < k; ++i)
      for (std::int32_t j = 0; j <= i; ++j, ++element) {
        for (std::size_t at = element > 0 ? part.block_ends[element - 1] : 0; at < part.block_ends[element]; ++at)
          for (std::int32_t m = i; m < k; ++m)
            part.cholesky.values()[part.block_elements[at].at] +=
                part.block_elements[at].value * (inverse_[m * k + i] * inverse_[m * k + j]);
      }
    return element;
  }

  void move(const Move& one, bitgen_t* bits) {
    const double before = of_scales(one, 0);
    const auto along = [&](auto of_effects) {
      return slice_sample([&](double delta) { return of_scales(one, delta) - before + of_effects(delta); }, one.width, bits);
    };
    double delta;
    if (one.blocks.empty()) {
      delta = along([](double) { return 0.0; });
    } else if (one.is_uniform) {
      const auto [first, second] = one.fixes_effects ? prior_sums(one) : likelihood_sums(one);
      if (one.fixes_effects) {  // u is S z with S e^(rate delta)
        delta = along([&, a = first, b = second](double x) { return -a * one.rate * x - 0.5 * b * std::expm1(-2 * one.rate * x); });
      } else {
        delta = along([&, a = first, b = second](double x) {
          const double e = std::expm1(one.rate * x);
          return e * (a - 0.5 * b * e);
        });
      }
    } else if (one.fixes_effects) {
      const double start = of_prior(one, 0);
      delta = along([&](double x) { return of_prior(one, x) - start; });
    } else {
      delta = along([&](double x) { return of_likelihood(one, x); });
    }
    settle(one, delta);
  }

  double of_scales(const Move& one, double delta) const {
    double sum = 0;
    for (std::size_t k = 0; k < one.scales.size(); ++k)
      sum += tables_(one.scales[k], now_.scales[one.scales[k]] + delta * one.coefficients[k]);
    return sum;
  }

  // The number of effects of a move's blocks, and the sum of their z^2.
  std::pair<double, double> prior_sums(const Move& one) const {
    std::pair<double, double> sums{0, 0};
    for (const std::int32_t b : one.blocks)
      for (std::int32_t i = 0; i < blocks_[b].size; ++i) {
        const double z = now_.standard[blocks_[b].places[i]];
        sums.first += 1;
        sums.second += z * z;
      }
    return sums;
  }

  // With r the effects of a move's blocks, combined: r.(b - M v) and r.M r.
  std::pair<double, double> likelihood_sums(const Move& one) {
    const Block& first = blocks_[one.blocks[0]];
    if (one.blocks.size() == 1 && first.size == 1) {
      const double r = now_.effects[first.places[0]];
      double slope = 0;
      each_entry(combination_.columns(), first.places[0],
                 [&](std::int32_t at, double factor) { slope += factor * now_.slope[at]; });
      return {r * slope, r * r * diagonal_[first.places[0]]};
    }
    each_effect(one, [&](std::int32_t i) { change_[i] = now_.effects[i]; });
    return sums_of_change(one);
  }

  // The change of the log density of effects at a distance, with effects fixed; from an unknown constant.
  double of_prior(const Move& one, double delta) {
    double sum = 0;
    each_block(one, delta, [&](const Block& block, const double* f) {
      fill(block, f);
      for (std::int32_t i = 0; i < block.size; ++i) {
        double z = now_.effects[block.places[i]];
        for (std::int32_t j = 0; j < i; ++j) z -= lower_[i * block.size + j] * z_[j];
        z_[i] = z / lower_[i * block.size + i];
        sum -= 0.5 * z_[i] * z_[i] + log_diagonal(block, f, i);
      }
    });
    return sum;
  }

  // The change of the log likelihood at a distance, with z fixed.
  double of_likelihood(const Move& one, double delta) {
    set_change(one, delta);
    const auto [first, second] = sums_of_change(one);
    return first - 0.5 * second;
  }

  void set_change(const Move& one, double delta) {
    each_block(one, delta, [&](const Block& block, const double* f) {
      fill(block, f);
      scale(block, change_.data());
      for (std::int32_t i = 0; i < block.size; ++i) change_[block.places[i]] -= now_.effects[block.places[i]];
    });
  }

  // With c the change of a move's effects, combined: c.(b - M v) and c.M c; the change is 0 again afterwards.
  std::pair<double, double> sums_of_change(const Move& one) {
    std::pair<double, double> sums{0, 0};
    combine_change(one);
    for (const std::int32_t i : one.reached) {
      sums.first += combined_change_[i] * now_.slope[i];
      double row = 0;
      for (std::int32_t k = normal_.starts[i]; k < normal_.starts[i + 1]; ++k)
        row += normal_.values[k] * combined_change_[normal_.columns[k]];
      sums.second += combined_change_[i] * row;
    }
    for (const std::int32_t i : one.reached) combined_change_[i] = 0;
    return sums;
  }

  // The change of v with that of a move's effects, which is 0 afterwards.
  void combine_change(const Move& one) {
    each_effect(one, [&](std::int32_t i) {
      each_entry(combination_.columns(), i,
                 [&](std::int32_t at, double factor) { combined_change_[at] += factor * change_[i]; });
      change_[i] = 0;
    });
  }

  void settle(const Move& one, double delta) {
    if (!one.fixes_effects && !one.blocks.empty()) {
      if (one.is_uniform) {
        const double factor = std::expm1(one.rate * delta);
        each_effect(one, [&](std::int32_t i) { change_[i] = factor * now_.effects[i]; });
      } else {
        set_change(one, delta);
      }
      each_effect(one, [&](std::int32_t i) { now_.effects[i] += change_[i]; });
      combine_change(one);
      for (const std::int32_t i : one.reached) {
        for (std::int32_t k = normal_.starts[i]; k < normal_.starts[i + 1]; ++k)
          now_.slope[normal_.columns[k]] -= normal_.values[k] * combined_change_[i];
        combined_change_[i] = 0;
      }
    }
    each_block(one, delta, [&](const Block& block, const double* f) {
      std::copy(f, f + n_functions(block.size), now_.functions.begin() + block.first);
      if (one.fixes_effects) {
        fill(block, f);
        standardise(block);
      }
    });
    for (std::size_t k = 0; k < one.scales.size(); ++k) now_.scales[one.scales[k]] += delta * one.coefficients[k];
  }

  template <class Work>
  void each_effect(const Move& one, Work work) const {
    for (const std::int32_t b : one.blocks)
      for (std::int32_t i = 0; i < blocks_[b].size; ++i) work(blocks_[b].places[i]);
  }

  // A move's blocks with their functions at a distance.
  template <class Work>
  void each_block(const Move& one, double delta, Work work) {
    const double* slope = one.slopes.data();
    for (const std::int32_t b : one.blocks) {
      const std::size_t n = n_functions(blocks_[b].size);
      for (std::size_t f = 0; f < n; ++f, ++slope) {
        const std::size_t at = blocks_[b].first + f;
        moved_[f] = functions_.is_affine(at) ? now_.functions[at] + delta * *slope
                                             : functions_.value(at, now_.scales.data(), one.direction.data(), delta);
      }
      work(blocks_[b], moved_.data());
    }
  }

  std::vector<std::int32_t> coefficient_places_, scale_places_;
  Tables tables_;
  SoftMinima functions_;
  Normal normal_;
  double share_;  // of the sweeps that have moves
  Proposal proposal_;
  std::vector<Part> parts_;
  PriorMeans means_;
  Combination combination_;
  Blocks own_;
  std::vector<Block> blocks_;
  std::vector<Move> moves_;
  std::vector<double> diagonal_;
  State now_;
  std::vector<double> change_, combined_change_, combined_, moved_, lower_, inverse_, x_, noise_, standard_, z_, by_parameter_;
  // Scales, functions of blocks, factor and x before a proposal.
  using Numbers = std::vector<double>;
  std::tuple<Numbers, Numbers, Numbers, Numbers> kept_;
};

}  // namespace stansub
