// External function of the programs that stansub.stan.likelihood writes for surrogates: what stands in the likelihood's
// place, an approximation of it (stansub.target.approximation).
//
// Compiled as the user header of the program, as stansub_blocks.hpp is. Value and gradient are computed in doubles, and
// the whole is one node of Stan's autodiff. Places count from 0. Nothing is kept from call to call, so threads may call
// at once.
#pragma once

#include <stan/model/model_header.hpp>

#include <cmath>
#include <cstddef>
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

// Functions r s (a r + b s + c r^2 + d r s + e s^2) of pairs of coefficients.
struct StansubPairs {
  const StansubPlaces &first, &second;  // which profiles
  const Eigen::Ref<const Eigen::MatrixXd>& mixed;

  // Adds their derivatives to `slopes`, and returns their sum.
  double operator()(const Eigen::ArrayXd& all, Eigen::ArrayXd& slopes) const {
    double sum = 0;
    for (std::size_t k = 0; k < first.size(); ++k) {
      const double r = all[first[k]], s = all[second[k]];
      const double a = mixed(k, 0), b = mixed(k, 1), c = mixed(k, 2), d = mixed(k, 3), e = mixed(k, 4);
      sum += r * s * (r * (a + c * r + d * s) + s * (b + e * s));
      slopes[first[k]] += s * (r * (2 * a + 3 * c * r + 2 * d * s) + s * (b + e * s));
      slopes[second[k]] += r * (r * (a + c * r + 2 * d * s) + s * (2 * b + 3 * e * s));
    }
    return sum;
  }
};

// The same for the sum of s^3 (a + b s + c s^2) over coefficients, and for pairs of these, with t = (x_j - mean) / size and
// s = t / sqrt(1 + (t / limit)^2). `profiles` has 1 / size, a, b and c in its columns. Means are weighted ones of x;
// those of mean m have profiles from `profiles_starts[m]` and weights from `weights_starts[m]` to the next.
inline double stansub_profiles(const Eigen::VectorXd& x, const StansubPlaces& places,
                               const Eigen::Ref<const Eigen::MatrixXd>& profiles, const StansubPlaces& profiles_starts,
                               const StansubVector& weights, const StansubPlaces& weighed,
                               const StansubPlaces& weights_starts, const StansubPairs& pairs, double limit,
                               Eigen::VectorXd& slope) {
  const Eigen::Index n_means = weights_starts.size() - 1;
  const auto profiles_of = [&](auto& all, Eigen::Index m) {
    return all.segment(profiles_starts[m], profiles_starts[m + 1] - profiles_starts[m]);
  };
  const auto weights_of = [&](auto& all, Eigen::Index m) {
    return all.segment(weights_starts[m], weights_starts[m + 1] - weights_starts[m]);
  };
  const auto scales = profiles.col(0).array(), a = profiles.col(1).array(), b = profiles.col(2).array(),
             c = profiles.col(3).array();
  Eigen::ArrayXd t = x(places), weighted = x(weighed);
  weighted *= weights.array();
  for (Eigen::Index m = 0; m < n_means; ++m) profiles_of(t, m) -= weights_of(weighted, m).sum();
  t *= scales;
  const Eigen::ArrayXd root = (1.0 + (t / limit).square()).sqrt().inverse(), s = t * root;
  Eigen::ArrayXd slopes = s.square() * (3.0 * a + s * (4.0 * b + 5.0 * s * c));
  const double of_pairs = pairs(s, slopes);
  slopes *= root.cube() * scales;
  slope(places).array() += slopes;
  for (Eigen::Index m = 0; m < n_means; ++m)
    weights_of(weighted, m) = weights_of(weights, m) * profiles_of(slopes, m).sum();
  slope(weighed).array() -= weighted;
  return (s.cube() * (a + s * (b + s * c))).sum() + of_pairs;
}

// Sum of b F_1(x) + b^2 F_2(x) over coefficients that are an argument of all observations (stansub.target.interpolation),
// with t = scale x_j, b = t (1 + (t / limit)^8)^(-1/8), and quadratic functions F that do not depend on x_j. Each has a
// constant, a gradient, a diagonal and values in the pattern of the precision: two adjacent columns.
struct StansubInterpolations {
  using Matrix = Eigen::Ref<const Eigen::MatrixXd>;

  const StansubPlaces& places;
  const StansubVector& scales;
  const Matrix &constants, &gradients, &diagonals, &values;
  const StansubPlaces &columns, &starts, &heads;

  // Adds the gradient to `slope`, and returns the value.
  double operator()(const Eigen::VectorXd& x, double limit, Eigen::VectorXd& slope) const {
    double sum = 0;
    for (std::size_t j = 0; j < places.size(); ++j) {
      const double t = scales[j] * x[places[j]], root = std::pow(1 + std::pow(t / limit, 8), -0.125), b = t * root;
      Eigen::VectorXd slopes[2];
      double terms[2];
      for (int k = 0; k < 2; ++k) {
        const Eigen::Index at = 2 * j + k;
        slopes[k] = gradients.col(at);
        terms[k] = constants(k, j) + slopes[k].dot(x);
        terms[k] += stansub_quadratic(x, diagonals.col(at), values.col(at), columns, starts, heads, slopes[k]);
      }
      sum += b * (terms[0] + b * terms[1]);
      slope += b * (slopes[0] + b * slopes[1]);
      slope[places[j]] += scales[j] * std::pow(root, 9) * (terms[0] + 2 * b * terms[1]);
    }
    return sum;
  }
};

}  // namespace

// What the program calls. Stan passes the stream of its print statements last.
template <typename Phi>
inline stan::scalar_type_t<Phi> stansub_approximation(
    const Phi& phi, const StansubVector& point, const StansubVector& gradient, const StansubVector& diagonal,
    const StansubVector& values, const StansubPlaces& columns, const StansubPlaces& starts, const StansubPlaces& heads,
    const StansubPlaces& places, const Eigen::Ref<const Eigen::MatrixXd>& profiles,
    const StansubPlaces& profiles_starts, const StansubVector& weights, const StansubPlaces& weighed,
    const StansubPlaces& weights_starts, const StansubPlaces& first, const StansubPlaces& second,
    const Eigen::Ref<const Eigen::MatrixXd>& mixed, const StansubPlaces& common, const StansubVector& common_scales,
    const Eigen::Ref<const Eigen::MatrixXd>& common_constants,
    const Eigen::Ref<const Eigen::MatrixXd>& common_gradients,
    const Eigen::Ref<const Eigen::MatrixXd>& common_diagonals, const Eigen::Ref<const Eigen::MatrixXd>& common_values,
    double limit, std::ostream*) {
  using Scalar = stan::scalar_type_t<Phi>;
  if constexpr (stan::is_fvar<Scalar>::value) {
    throw std::logic_error("a surrogate has no second derivatives");
  } else {
    const Eigen::VectorXd x = stan::math::value_of(phi) - point;
    Eigen::VectorXd slope = gradient;
    double value = gradient.dot(x);
    value += stansub_quadratic(x, diagonal, values, columns, starts, heads, slope);
    value += stansub_profiles(x, places, profiles, profiles_starts, weights, weighed, weights_starts,
                              {first, second, mixed}, limit, slope);
    value += StansubInterpolations{common, common_scales, common_constants, common_gradients, common_diagonals,
                                   common_values, columns, starts, heads}(x, limit, slope);
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
