// External function of the programs that stansub.stan.likelihood writes for surrogates: what stands in the likelihood's
// place, an approximation of it (stansub.target.approximation).
//
// Compiled as the user header of the program, as stansub_blocks.hpp is. Value and gradient are computed in doubles, and
// the whole is one node of Stan's autodiff. Places count from 0. Nothing is kept from call to call, so threads may call
// at once.
#pragma once

#include <stan/model/model_header.hpp>

#include <iosfwd>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace {

using StansubVector = Eigen::Ref<const Eigen::VectorXd>;
using StansubPlaces = std::vector<int>;

// Adds the gradient of -x'Px / 2 to `slope`, and returns its value. Of P there are the diagonal and, by rows, what is
// left of it; the first `heads[i]` elements of row i stand side by side.
inline double stansub_quadratic(const Eigen::VectorXd& x, const StansubVector& diagonal, const StansubVector& values,
                                const StansubPlaces& columns, const StansubPlaces& starts, const StansubPlaces& heads,
                                Eigen::VectorXd& slope) {
  Eigen::VectorXd product = diagonal.cwiseProduct(x);
  double value = -0.5 * x.dot(product);
  for (Eigen::Index i = 0; i < x.size(); ++i) {
    if (starts[i] == starts[i + 1]) continue;
    const auto head = values.segment(starts[i], heads[i]);
    const int first = columns[starts[i]];
    double left = head.dot(x.segment(first, heads[i]));
    product.segment(first, heads[i]) += x[i] * head;
    for (int k = starts[i] + heads[i]; k < starts[i + 1]; ++k) {
      left += values[k] * x[columns[k]];
      product[columns[k]] += values[k] * x[i];
    }
    value -= x[i] * left;
    product[i] += left;
  }
  slope -= product;
  return value;
}

// The same for the sum of s^3 (a + b s + c s^2) over coefficients, with t = (x_j - mean) / size and
// s = t / sqrt(1 + (t / limit)^2). `profiles` has sizes, a, b and c in its columns. Means are weighted ones of x, whose
// weights are given by rows.
inline double stansub_profiles(const Eigen::VectorXd& x, const StansubPlaces& places, const StansubPlaces& mean_of,
                               const Eigen::Ref<const Eigen::MatrixXd>& profiles, const StansubVector& weights,
                               const StansubPlaces& weighed, const StansubPlaces& starts, double limit,
                               Eigen::VectorXd& slope) {
  const Eigen::Index n = places.size(), n_means = starts.size() - 1;
  Eigen::VectorXd means = Eigen::VectorXd::Zero(n_means), from_means = means;
  for (Eigen::Index m = 0; m < n_means; ++m)
    for (int k = starts[m]; k < starts[m + 1]; ++k) means[m] += weights[k] * x[weighed[k]];
  Eigen::ArrayXd t(n);
  for (Eigen::Index i = 0; i < n; ++i) t[i] = x[places[i]] - means[mean_of[i]];
  const auto sizes = profiles.col(0).array(), a = profiles.col(1).array(), b = profiles.col(2).array(),
             c = profiles.col(3).array();
  t /= sizes;
  const Eigen::ArrayXd root = (1 + (t / limit).square()).rsqrt(), s = t * root;
  const Eigen::ArrayXd slopes = s.square() * (3 * a + s * (4 * b + 5 * s * c)) * root.cube() / sizes;
  for (Eigen::Index i = 0; i < n; ++i) {
    slope[places[i]] += slopes[i];
    from_means[mean_of[i]] += slopes[i];
  }
  for (Eigen::Index m = 0; m < n_means; ++m)
    for (int k = starts[m]; k < starts[m + 1]; ++k) slope[weighed[k]] -= from_means[m] * weights[k];
  return (s.cube() * (a + s * (b + s * c))).sum();
}

}  // namespace

// What the program calls. Stan passes the stream of its print statements last.
template <typename Phi>
inline stan::scalar_type_t<Phi> stansub_approximation(
    const Phi& phi, const StansubVector& point, const StansubVector& gradient, const StansubVector& diagonal,
    const StansubVector& values, const StansubPlaces& columns, const StansubPlaces& starts, const StansubPlaces& heads,
    const StansubPlaces& places, const StansubPlaces& mean_of, const Eigen::Ref<const Eigen::MatrixXd>& profiles,
    const StansubVector& weights, const StansubPlaces& weighed, const StansubPlaces& weights_starts, double limit,
    std::ostream*) {
  using Scalar = stan::scalar_type_t<Phi>;
  if constexpr (stan::is_fvar<Scalar>::value) {
    throw std::logic_error("a surrogate has no second derivatives");
  } else {
    const Eigen::VectorXd x = stan::math::value_of(phi) - point;
    Eigen::VectorXd slope = gradient;
    const double value = gradient.dot(x) + stansub_quadratic(x, diagonal, values, columns, starts, heads, slope) +
                         stansub_profiles(x, places, mean_of, profiles, weights, weighed, weights_starts, limit, slope);
    if constexpr (std::is_same_v<Scalar, double>) {
      return value;
    } else {
      return stan::math::make_callback_var(
          value, [phi = stan::math::to_arena(phi), slope = stan::math::to_arena(slope)](auto& node) mutable {
            phi.adj() += node.adj() * slope;
          });
    }
  }
}
