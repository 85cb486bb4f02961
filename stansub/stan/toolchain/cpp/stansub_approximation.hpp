// External function of the programs that stansub.stan.likelihood writes for surrogates: what stands in the likelihood's
// place, an approximation of it (stansub.target.approximation).
//
// Compiled as the user header of the program. Value and gradient are computed in doubles, and
// the whole is one node of Stan's autodiff. Places count from 0. Nothing is kept from call to call, so threads may call
// at once.
#pragma once

#include <stan/model/model_header.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace {

using StansubVector = Eigen::Map<const Eigen::VectorXd>;
using StansubMatrix = Eigen::Map<const Eigen::MatrixXd>;
using StansubPlaces = Eigen::Map<const Eigen::ArrayXi>;

// Reads arrays one after the other. The first integer is the number of their sizes, which come next: two of a matrix,
// one of others. Then come the elements of all arrays of integers. The numbers are those of all others, by columns.
class StansubReader {
 public:
  StansubReader(const int* integers, const double* numbers)
      : sizes_(integers + 1), integers_(integers + 1 + integers[0]), numbers_(numbers) {}

  StansubPlaces places() { return taken<StansubPlaces>(integers_, *sizes_++); }
  StansubVector vector() { return taken<StansubVector>(numbers_, *sizes_++); }
  StansubMatrix matrix() {
    const int rows = *sizes_++, columns = *sizes_++;
    const StansubMatrix found(numbers_, rows, columns);
    numbers_ += found.size();
    return found;
  }

 private:
  template <typename Array, typename Element>
  static Array taken(const Element*& at, int size) {
    at += size;
    return Array(at - size, size);
  }

  const int *sizes_, *integers_;
  const double* numbers_;
};

// Of P there are the diagonal and, by rows, what is left of it; the first `heads[i]` elements of row i stand side by side.
struct StansubQuadratic {
  const StansubVector diagonal, values;
  const StansubPlaces columns, starts, heads;

  // Adds the gradient of -x'Px / 2 to `slope`, and returns its value.
  double operator()(const Eigen::VectorXd& x, Eigen::VectorXd& slope) const {
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
};

// Functions r s (a r + b s + c r^2 + d r s + e s^2) of pairs of coefficients.
struct StansubPairs {
  const StansubPlaces first, second;  // which profiles
  const StansubMatrix mixed;

  // Adds their derivatives to `slopes`, and returns their sum.
  double operator()(const Eigen::ArrayXd& all, Eigen::ArrayXd& slopes) const {
    double sum = 0;
    for (Eigen::Index k = 0; k < first.size(); ++k) {
      const double r = all[first[k]], s = all[second[k]];
      const double a = mixed(k, 0), b = mixed(k, 1), c = mixed(k, 2), d = mixed(k, 3), e = mixed(k, 4);
      sum += r * s * (r * (a + c * r + d * s) + s * (b + e * s));
      slopes[first[k]] += s * (r * (2 * a + 3 * c * r + 2 * d * s) + s * (b + e * s));
      slopes[second[k]] += r * (r * (a + c * r + 2 * d * s) + s * (2 * b + 3 * e * s));
    }
    return sum;
  }
};

// Functions of coordinates, from tables: with t = y_j / size, cubic polynomials between nodes of t, and lines outside.
// Column k of `tables` has value and slope of function k at each node, the slope for a step between nodes. `pairs` are
// functions of s = t / sqrt(1 + (t / limit)^2).
struct StansubProfiles {
  const StansubPlaces places;
  const StansubVector sizes;
  const StansubMatrix tables;
  const StansubPairs pairs;
  double limit, low, step;

  // Adds the gradient of their sum to `slopes`, and returns the sum.
  double operator()(const Eigen::VectorXd& y, Eigen::VectorXd& slopes) const {
    double sum = 0;
    for (Eigen::Index k = 0; k < places.size(); ++k) {
      const double at = (y[places[k]] / sizes[k] - low) / step;
      const auto i = static_cast<Eigen::Index>(std::min(std::max(0.0, at), tables.rows() / 2 - 2.0));
      const double w = std::min(std::max(0.0, at - static_cast<double>(i)), 1.0), rest = 1 - w;
      const double* const node = tables.data() + k * tables.outerStride() + 2 * i;
      const double v0 = node[0], d0 = node[1], v1 = node[2], d1 = node[3];
      const double slope = 6 * w * rest * (v1 - v0) + rest * (1 - 3 * w) * d0 + w * (3 * w - 2) * d1;
      sum += rest * rest * ((1 + 2 * w) * v0 + w * d0) + w * w * ((3 - 2 * w) * v1 - rest * d1);
      sum += slope * (at - static_cast<double>(i) - w);
      slopes[places[k]] += slope / (step * sizes[k]);
    }
    return pairs.first.size() == 0 ? sum : sum + of_pairs(y, slopes);
  }

 private:
  double of_pairs(const Eigen::VectorXd& y, Eigen::VectorXd& slopes) const {
    const Eigen::ArrayXd t = y(places).array() / sizes.array();
    const Eigen::ArrayXd root = (1.0 + (t / limit).square()).sqrt().inverse(), s = t * root;
    Eigen::ArrayXd own = Eigen::ArrayXd::Zero(t.size());
    const double sum = pairs(s, own);
    slopes(places).array() += own * root.cube() / sizes.array();
    return sum;
  }
};

// Coordinates y of a change x (stansub.target.directions): without weighted means, of which coefficient i has number
// `mean_of[i]`; common coefficients become directions u, whose mean changes are subtracted from the others; then shares
// of others are added within levels (stansub.target.elimination).
struct StansubFrame {
  const StansubPlaces mean_of;
  const StansubVector weights;
  const StansubPlaces weighed, starts, common;
  const StansubMatrix inward, along;
  const StansubPlaces into, others;
  const StansubVector shares;

  Eigen::VectorXd operator()(const Eigen::VectorXd& x) const {
    Eigen::VectorXd means = Eigen::VectorXd::Zero(starts.size() - 1), y = x;
    each_weight([&](Eigen::Index m, Eigen::Index k) { means[m] += weights[k] * x[weighed[k]]; });
    y -= means(mean_of);
    const Eigen::VectorXd u = inward * y(common);
    y -= along * u;
    y(common) = u;
    add(y, others, into);
    return y;
  }

  // Adds to `slope` the gradient by x, from that by y.
  void back(Eigen::VectorXd& slopes, Eigen::VectorXd& slope) const {
    add(slopes, into, others);
    Eigen::VectorXd u = slopes(common), means = Eigen::VectorXd::Zero(starts.size() - 1);
    u -= along.transpose() * slopes;
    slopes(common) = inward.transpose() * u;
    slope += slopes;
    for (Eigen::Index i = 0; i < slopes.size(); ++i) means[mean_of[i]] += slopes[i];
    each_weight([&](Eigen::Index m, Eigen::Index k) { slope[weighed[k]] -= weights[k] * means[m]; });
  }

 private:
  template <typename F>
  void each_weight(F&& f) const {
    for (Eigen::Index m = 0; m + 1 < starts.size(); ++m)
      for (int k = starts[m]; k < starts[m + 1]; ++k) f(m, k);
  }

  // Adds shares of elements `from` to elements `to`.
  void add(Eigen::VectorXd& x, const StansubPlaces& from, const StansubPlaces& to) const {
    if (shares.size() == 0) return;
    const Eigen::VectorXd before = x;
    for (Eigen::Index k = 0; k < shares.size(); ++k) x[to[k]] += shares[k] * before[from[k]];
  }
};

// Of x (1 + (x / most)^8)^(-1/8), the ratio to x; its ninth power is the derivative.
inline Eigen::ArrayXd stansub_root(const Eigen::ArrayXd& x, double most) {
  return (1 + (x / most).square().square().square()).sqrt().sqrt().rsqrt();
}

// Sum over the first directions of b (y' A y / 2 - mean) + b^2 y' B y / 4, with b = u (1 + (u / reach)^8)^(-1/8). Columns of
// `diagonals` and `values` have an element of each A, then of each B; `values` are those left of the diagonal.
struct StansubTerms {
  const StansubVector means;
  const StansubMatrix diagonals, values;
  const StansubPlaces columns, starts;

  // Adds the gradient to `slopes`, and returns the value.
  double operator()(const Eigen::VectorXd& y, const StansubPlaces& common, double reach, Eigen::VectorXd& slopes) const {
    const Eigen::Index r = means.size();
    if (!r) return 0;
    const Eigen::ArrayXi places = common.head(r);
    const Eigen::ArrayXd u = y(places), root = stansub_root(u, reach), b = u * root;
    Eigen::VectorXd factors(2 * r), products(values.cols());
    factors << b.matrix(), (0.5 * b.square()).matrix();
    const Eigen::VectorXd summed = values.transpose() * factors;
    slopes += (diagonals.transpose() * factors).cwiseProduct(y);
    for (Eigen::Index i = 0; i < y.size(); ++i)
      for (int k = starts[i]; k < starts[i + 1]; ++k) {
        const int j = columns[k];
        products[k] = 2 * y[i] * y[j];
        slopes[i] += summed[k] * y[j];
        slopes[j] += summed[k] * y[i];
      }
    const Eigen::VectorXd forms = diagonals * y.cwiseAbs2() + values * products;
    const Eigen::ArrayXd cubic = 0.5 * forms.head(r) - means, quartic = 0.25 * forms.tail(r);
    slopes(places).array() += root.pow(9) * (cubic + 2 * b * quartic);
    return (b * cubic + b.square() * quartic).sum();
  }
};

// The value of an approximation at phi; also writes its gradient.
double stansub_approximated(const Eigen::VectorXd& phi, StansubReader in, Eigen::VectorXd& slope) {
  const Eigen::VectorXd x = phi - in.vector();
  const StansubVector gradient = in.vector();
  slope = gradient;
  double value = gradient.dot(x);
  value += StansubQuadratic{in.vector(), in.vector(), in.places(), in.places(), in.places()}(x, slope);
  const StansubFrame frame{in.places(), in.vector(), in.places(), in.places(), in.places(),
                           in.matrix(), in.matrix(), in.places(), in.places(), in.vector()};
  const StansubVector constants = in.vector();
  const double middle = constants[0], most = constants[1], limit = constants[2], reach = constants[3],
               low = constants[4], step = constants[5];
  const Eigen::VectorXd y = frame(x);
  Eigen::VectorXd slopes = Eigen::VectorXd::Zero(y.size());
  Eigen::ArrayXd bent(1);
  const StansubTerms terms{in.vector(), in.matrix(), in.matrix(), in.places(), in.places()};
  bent[0] = terms(y, frame.common, reach, slopes);
  bent[0] -= middle;
  const double root = stansub_root(bent, most)[0];
  value += bent[0] * root;
  slopes *= std::pow(root, 9);
  const StansubProfiles profiles{in.places(), in.vector(), in.matrix(), {in.places(), in.places(), in.matrix()},
                                 limit,       low,         step};
  value += profiles(y, slopes);
  frame.back(slopes, slope);
  return value;
}

// The same by a function in this process: the numbers are its address and that of its first argument.
double stansub_evaluated(const Eigen::VectorXd& phi, const Eigen::Ref<const Eigen::VectorXd>& numbers,
                         Eigen::VectorXd& slope) {
  using Function = double (*)(const void*, const double*, double*);
  const auto address = [&](int k) { return static_cast<std::uintptr_t>(numbers[k]); };
  const auto function = reinterpret_cast<Function>(address(0));
  return function(reinterpret_cast<const void*>(address(1)), phi.data(), slope.data());
}

}  // namespace

// What the program calls. Stan passes the stream of its print statements last.
template <typename Phi>
inline stan::scalar_type_t<Phi> stansub_approximation(const Phi& phi, const std::vector<int>& integers,
                                                       const Eigen::Ref<const Eigen::VectorXd>& numbers, std::ostream*) {
  using Scalar = stan::scalar_type_t<Phi>;
  if constexpr (stan::is_fvar<Scalar>::value) {
    throw std::logic_error("a surrogate has no second derivatives");
  } else {
    const Eigen::VectorXd at = stan::math::value_of(phi);
    Eigen::VectorXd slope(at.size());
    const double value = integers[0] ? stansub_approximated(at, {integers.data(), numbers.data()}, slope)
                                     : stansub_evaluated(at, numbers, slope);
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
