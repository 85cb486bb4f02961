// Where the range (largest less smallest) of what a decision averages comes from: the blocks' log likelihood
// differences or, with a surrogate, their remainders.
#pragma once

#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "factorised.hpp"
#include "surrogate.hpp"

namespace stansub {

// Inputs from which a range is computed.
struct Move {
  const std::vector<double>& theta;
  const std::vector<double>& theta_new;
  const Surrogate* surrogate;                // null where there is none
  const std::vector<Surrogate::Sum>& sums;   // of the surrogate's rows over the population
  double drawn;                              // range of the blocks drawn so far
  const std::function<double()>& evaluated;  // evaluates all blocks of the population: their range
};

class Range {
 public:
  virtual ~Range() = default;
  virtual double of(const Move& move) const = 0;
  // Whether it is declared for all blocks, so that drawn blocks that violate it are counted.
  virtual bool promised() const { return false; }
  // Whether it is the range of the drawn blocks, which changes at each look.
  virtual bool from_drawn() const { return false; }
  virtual bool needs_surrogate() const { return false; }
};

inline double nonnegative(double constant) {
  if (!(constant >= 0)) throw std::invalid_argument("the constant of a range must not be negative");
  return constant;
}

// 2 L |theta_new - theta|.
class LipschitzRange final : public Range {
 public:
  explicit LipschitzRange(double constant) : constant_(nonnegative(constant)) {}
  bool promised() const override { return true; }
  double of(const Move& move) const override {
    double squares = 0;
    for (std::size_t i = 0; i < move.theta.size(); ++i) {
      const double step = move.theta_new[i] - move.theta[i];
      squares += step * step;
    }
    return 2 * constant_ * std::sqrt(squares);
  }

 private:
  double constant_;
};

// A multiple of the result of a function of another library; infinite if it returns nothing.
class FunctionRange final : public Range {
 public:
  using Function = int (*)(void* self, const double* theta, const double* theta_new, double* range);

  FunctionRange(Function function, void* self, double factor)
      : function_(function), self_(self), factor_(nonnegative(factor)) {}
  bool promised() const override { return true; }
  double of(const Move& move) const override {
    double range = 0;
    const int status = function_(self_, move.theta.data(), move.theta_new.data(), &range);
    return status == 0 && range >= 0 ? factor_ * range : std::numeric_limits<double>::infinity();
  }

 private:
  Function function_;
  void* self_;
  double factor_;
};

// Twice the largest remainder, from a bound on a derivative of the blocks' log likelihoods.
class DerivativeRange final : public Range {
 public:
  explicit DerivativeRange(double constant) : constant_(nonnegative(constant)) {}
  bool promised() const override { return true; }
  bool needs_surrogate() const override { return true; }
  double of(const Move& move) const override {
    return 2 * move.surrogate->largest_remainder(move.theta.data(), move.theta_new.data(), constant_, move.sums);
  }

 private:
  double constant_;
};

// Twice the largest remainder, from bounds on each block's.
class RemainderRange final : public Range {
 public:
  explicit RemainderRange(std::shared_ptr<const RemainderBounds> bounds) : bounds_(std::move(bounds)) {}
  bool promised() const override { return true; }
  bool needs_surrogate() const override { return true; }
  double of(const Move& move) const override {
    return 2 * bounds_->largest(move.theta.data(), move.theta_new.data(), move.surrogate->rounding(move.sums));
  }

 private:
  std::shared_ptr<const RemainderBounds> bounds_;
};

// The range itself, from an evaluation of all blocks.
class ScannedRange final : public Range {
 public:
  double of(const Move& move) const override { return move.evaluated(); }
};

// The range of the blocks drawn so far.
class EstimatedRange final : public Range {
 public:
  bool from_drawn() const override { return true; }
  double of(const Move& move) const override { return move.drawn; }
};

}  // namespace stansub
