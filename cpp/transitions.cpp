// Python's view of transitions on a surrogate posterior.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "cholesky.hpp"
#include "full_data.hpp"
#include "grouped.hpp"
#include "minimum_degree.hpp"
#include "normal_effects.hpp"
#include "numbers.hpp"
#include "surrogate_samplers.hpp"
#include "surrogate_system.hpp"
#include "transitions.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace stansub {
namespace {

using Output = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// What the program of a surrogate calls in place of an approximation (stansub.stan.approximation).
double full_data_gradient(const void* self, const double* phi, double* gradient) noexcept {
  return static_cast<const FullData*>(self)->gradient(phi, gradient);
}

// A trajectory of states with given energies, of which the first follows the last; Python says what ends a tree.
class TableSystem {
 public:
  static constexpr double kLargestRange = std::numeric_limits<double>::infinity();
  using State = std::int32_t;
  struct Sum {};

  TableSystem(std::vector<double> energies, nb::callable stops)
      : energies_(std::move(energies)), stops_(std::move(stops)) {}

  bool step(State& state, int direction) const {
    const auto n = static_cast<std::int32_t>(energies_.size());
    state = (state + direction + n) % n;
    return true;
  }
  double energy(State state) const { return energies_[state]; }
  Sum total(State) const { return {}; }
  void add(Sum&, Sum) const {}
  bool stops(State left, State right, Sum, double, double) const {
    return nb::cast<bool>(stops_(left, right));
  }

 private:
  std::vector<double> energies_;
  nb::callable stops_;
};

std::vector<double> table_transitions(const Vector<double>& energies, std::int32_t start, nb::callable stops,
                                      std::int32_t max_depth) {
  TableSystem system(to_vector(energies), std::move(stops));
  std::vector<double> found(energies.shape(0), 0.0);
  if (start < 0 || start >= static_cast<std::int32_t>(found.size())) throw std::out_of_range("no such state");
  EnumeratedCoins coins;
  do {
    const auto result = Nuts<TableSystem, EnumeratedCoins>(system, coins, max_depth)(start);
    found[result.state] += coins.weight();
  } while (coins.next());
  return found;
}

using Column = NumbersArray;
using Columns = nb::ndarray<const double, nb::ndim<2>, nb::device::cpu>;

// Numbers of all observations, where a matrix with one row is the row of all.
std::vector<Run> to_runs(const std::vector<Columns>& rows, std::size_t n) {
  std::vector<Run> runs;
  for (const Columns& run : rows) {
    if (run.shape(0) != 1) require_length(run.shape(0), n, "columns");
    runs.push_back({run.data(), run.shape(0) == 1 ? 0 : run.stride(0), run.stride(1), run.shape(1)});
  }
  return runs;
}

// Columns, of which `gathered_of` says to which argument each belongs.
std::vector<Argument> to_arguments(const std::vector<std::vector<Columns>>& rows, const std::vector<Vector<std::int32_t>>& places,
                                   const std::vector<NumbersArray>& offsets, const std::vector<std::int32_t>& gathered_of,
                                   const std::vector<Vector<std::int32_t>>& gathered_places,
                                   const std::vector<NumbersArray>& gathered_factors, std::size_t n) {
  const std::size_t q = rows.size();
  if (places.size() != q || offsets.size() != q || gathered_places.size() != gathered_of.size() ||
      gathered_factors.size() != gathered_of.size())
    throw std::invalid_argument("there must be places and offsets for each argument, and factors for each column");
  std::vector<Argument> arguments;
  for (std::size_t k = 0; k < q; ++k)
    arguments.push_back({to_runs(rows[k], n), to_vector(places[k]), {}, to_numbers(offsets[k], n)});
  for (std::size_t j = 0; j < gathered_of.size(); ++j) {
    if (gathered_of[j] < 0 || gathered_of[j] >= static_cast<std::int32_t>(q)) throw std::invalid_argument("no such argument");
    require_length(gathered_places[j].shape(0), n, "places of a column");
    arguments[gathered_of[j]].columns.push_back({gathered_places[j].data(), to_numbers(gathered_factors[j], n)});
  }
  return arguments;
}

std::vector<Numbers> to_columns(const std::vector<NumbersArray>& data, std::size_t n) {
  std::vector<Numbers> columns;
  for (const NumbersArray& one : data) columns.push_back(to_numbers(one, n));
  return columns;
}

// Joint decisions of one chain about the remainders of a surrogate. Moves with large bounds use a smaller kappa, so
// that the expected number of candidates stays below a limit while kappa is above 1: the bounds, and so kappa, are equal for the
// reverse move.
class SurrogateDecider {
 public:
  SurrogateDecider(const GroupedObservations& all, double kappa, double most)
      : remainders_(all), kappa_(kappa), most_(most), dim_(all.dim()) {
    if (!(kappa >= 1) || !(most > 0)) throw std::invalid_argument("kappa must be at least 1, and some candidates allowed");
  }

  Decision decide(const double* phi, const double* phi_new, double log_u, bitgen_t* bits) {
    Decision decision;
    decision.log_ratio = remainders_.set_move(phi, phi_new);
    count_unbounded(remainders_, decision, counters_);
    const double rate = remainders_.rate();
    const double kappa = rate > 0 ? std::max(1.0, std::min(kappa_, most_ / rate - 0.5)) : kappa_;
    JointRule(kappa).settle(remainders_, log_u, bits, decision, counters_);
    return decision;
  }

  // The rate of candidates for kappa = 1/2, and the result of `GroupedRemainders::spread`.
  nb::tuple costs(const double* phi, const double* phi_new) {
    remainders_.set_move(phi, phi_new);
    const auto [bounds, squares] = remainders_.spread();
    return nb::make_tuple(remainders_.rate(), bounds, squares);
  }

  std::size_t dim() const { return dim_; }
  std::size_t n_unbounded() const { return remainders_.n_unbounded(); }
  const Counters& counters() const { return counters_; }

 private:
  GroupedRemainders remainders_;
  double kappa_, most_;
  std::size_t dim_;
  Counters counters_;
};

BridgeStan to_bridge_stan(std::uintptr_t log_density_gradient, std::uintptr_t free_error) {
  return {nullptr, from_address<BridgeStan::FreeError>(free_error, "free_error_address"),
          from_address<BridgeStan::LogDensityGradient>(log_density_gradient, "log_density_gradient_address")};
}

void require_dim(std::size_t length, std::size_t dim, const char* name = "phi") {
  if (length != dim) throw std::invalid_argument(std::string(name) + " has another length");
}

// Transitions of a sampler from theta, in place, without the interpreter's lock.
template <class Sampler, class Move>
Transition moved(const Sampler& sampler, const nb::object& bits, const Output& theta, Move move) {
  require_dim(theta.shape(0), sampler.dim(), "theta");
  auto* generator = to_bitgen(bits);
  nb::gil_scoped_release release;
  return move(generator, theta.data());
}

// Python's view of trajectories of either kind of length.
template <class Move>
auto trajectories(Move move) {
  return [move](SurrogateHamiltonian& self, const nb::object& bits, const Output& theta, std::int32_t n, double step_size,
                std::int32_t n_steps) {
    return moved(self, bits, theta, [&](auto... at) { return (self.*move)(at..., step_size, n_steps, n); });
  };
}

}  // namespace

void bind_transitions(nb::module_& m) {
  nb::class_<Transition>(m, "Transition")
      .def_ro("acceptance_rate", &Transition::acceptance)
      .def_ro("n_steps", &Transition::n_steps)
      .def_ro("tree_depth", &Transition::depth)
      .def_ro("diverging", &Transition::diverged);

  nb::class_<Coordinates>(m, "Coordinates")
      .def(
          "__init__",
          [](Coordinates* self, const Vector<std::int32_t>& sizes, const Vector<std::int32_t>& places,
             const Vector<std::uint8_t>& divided, const Vector<std::int32_t>& counts, const Vector<std::int32_t>& starts,
             const Vector<std::int32_t>& columns, const Vector<double>& coefficients,
             const Vector<double>& constants, const Vector<std::int32_t>& mean_places, const Vector<std::int32_t>& mean_starts,
             const Vector<std::int32_t>& mean_columns, const Vector<double>& means, const Vector<std::int32_t>& column_starts,
             const Vector<std::int32_t>& column_places, const Vector<double>& column_values, const Vector<std::int32_t>& row_starts,
             const Vector<std::int32_t>& row_places, const Vector<double>& row_values, std::size_t dim) {
            new (self) Coordinates({to_vector(sizes), to_vector(places), to_vector(divided)},
                                   {to_vector(counts), to_vector(starts), to_vector(columns), to_vector(coefficients),
                                    to_vector(constants)},
                                   {{to_vector(mean_places), to_vector(mean_starts), to_vector(mean_columns), to_vector(means)}, dim},
                                   {{to_vector(column_starts), to_vector(column_places), to_vector(column_values)},
                                    {to_vector(row_starts), to_vector(row_places), to_vector(row_values)},
                                    dim},
                                   dim);
          },
          "sizes"_a, "places"_a, "divided"_a, "counts"_a, "starts"_a, "columns"_a, "coefficients"_a, "constants"_a, "mean_places"_a,
          "mean_starts"_a, "mean_columns"_a, "means"_a, "column_starts"_a, "column_places"_a, "column_values"_a, "row_starts"_a,
          "row_places"_a, "row_values"_a, "dim"_a)
      .def_prop_ro("dim", &Coordinates::dim)
      .def(
          "inward",
          [](Coordinates& self, const Vector<double>& theta, const Output& inner) {
            require_dim(theta.shape(0), self.dim(), "theta");
            require_dim(inner.shape(0), self.dim(), "inner");
            self.inward(theta.data(), inner.data());
          },
          "theta"_a, "inner"_a.noconvert())
      .def(
          "outward",
          [](Coordinates& self, const Vector<double>& inner, const Output& theta) {
            require_dim(theta.shape(0), self.dim(), "theta");
            require_dim(inner.shape(0), self.dim(), "inner");
            self.outward(inner.data(), theta.data());
          },
          "inner"_a, "theta"_a.noconvert())
      .def(
          "pull",
          [](Coordinates& self, const Vector<double>& inner, double log_density, const Output& gradient) {
            require_dim(inner.shape(0), self.dim(), "inner");
            require_dim(gradient.shape(0), self.dim(), "gradient");
            std::vector<double> theta(self.dim());
            self.outward(inner.data(), theta.data());
            self.pull(log_density, gradient.data());
            return log_density;
          },
          "inner"_a, "log_density"_a, "gradient"_a.noconvert());

  nb::class_<SurrogateHamiltonian>(m, "SurrogateHamiltonian")
      .def(
          "__init__",
          [](SurrogateHamiltonian* self, std::uintptr_t model, std::uintptr_t log_density_gradient,
             std::uintptr_t free_error, const Vector<double>& centre, const Vector<std::int32_t>& starts,
             const Vector<std::int32_t>& rows, const Vector<double>& values, const Vector<std::int32_t>& order,
             const Matrix& directions, const Vector<double>& sds, const Coordinates& coordinates, const nb::object&,
             double power) {
            new (self) SurrogateHamiltonian(WhitenedDensity(
                from_address<const void*>(model, "model"), to_bridge_stan(log_density_gradient, free_error),
                to_vector(centre),
                Metric{{{to_vector(starts), to_vector(rows), to_vector(values)}, to_vector(order)},
                       {directions.data(), directions.data() + directions.size()},
                       to_vector(sds)},
                coordinates, power));
          },
          "model"_a, "log_density_gradient_address"_a, "free_error_address"_a, "centre"_a, "starts"_a, "rows"_a,
          "values"_a, "order"_a, "directions"_a, "sds"_a, "coordinates"_a, "owner"_a, "power"_a = 1.0,
          nb::keep_alive<1, 13>())
      .def_prop_ro("dim", &SurrogateHamiltonian::dim)
      .def(
          "log_ratio",
          [](SurrogateHamiltonian& self, const Vector<double>& theta) {
            require_dim(theta.shape(0), self.dim(), "theta");
            return self.log_ratio(theta.data());
          },
          "theta"_a)
      .def(
          "nuts",
          [](SurrogateHamiltonian& self, const nb::object& bits, const Output& theta, std::int32_t n,
             double step_size, std::int32_t max_depth) {
            return moved(self, bits, theta, [&](auto... at) { return self.nuts(at..., step_size, max_depth, n); });
          },
          "bits"_a, "theta"_a.noconvert(), "n"_a = 1, nb::kw_only(), "step_size"_a, "max_tree_depth"_a)
      .def("hmc", trajectories(&SurrogateHamiltonian::hmc), "bits"_a, "theta"_a.noconvert(), "n"_a = 1, nb::kw_only(),
           "step_size"_a, "n_steps"_a)
      .def("random_length_hmc", trajectories(&SurrogateHamiltonian::random_length_hmc), "bits"_a, "theta"_a.noconvert(),
           "n"_a = 1, nb::kw_only(), "step_size"_a, "n_steps"_a);

  nb::class_<NormalEffects>(m, "NormalEffects")
      .def(
          "__init__",
          [](NormalEffects* self, const Vector<std::int32_t>& coefficients, const Vector<std::int32_t>& scales,
             double low, double step, const Matrix& values, const Matrix& slopes, const Vector<std::int32_t>& sizes,
             const Vector<std::int32_t>& places, const Vector<std::int32_t>& counts, const Vector<std::int32_t>& starts,
             const Vector<std::int32_t>& columns, const Vector<double>& factors, const Vector<double>& constants,
             const Vector<std::uint8_t>& has_effects, const Vector<std::int32_t>& precision_starts,
             const Vector<std::int32_t>& precision_columns, const Vector<double>& precision,
             const Vector<double>& linear, const Vector<std::int32_t>& part_sizes, const Vector<std::int32_t>& pattern_starts,
             const Vector<std::int32_t>& pattern_rows, const Vector<std::int32_t>& order,
             const Vector<std::int32_t>& move_starts, const Vector<std::int32_t>& move_columns,
             const Vector<double>& directions, const Vector<double>& widths,
             const Vector<std::uint8_t>& fixes_effects, double share, const Vector<double>& centre,
             const Matrix& root, const Vector<std::int32_t>& mean_places, const Vector<std::int32_t>& mean_starts,
             const Vector<std::int32_t>& mean_columns, const Vector<double>& means, const Vector<std::int32_t>& column_starts,
             const Vector<std::int32_t>& column_places, const Vector<double>& column_values,
             const Vector<std::int32_t>& row_starts, const Vector<std::int32_t>& row_places, const Vector<double>& row_values) {
            const auto numbers = [](const Matrix& one) { return std::vector<double>(one.data(), one.data() + one.size()); };
            new (self) NormalEffects(
                to_vector(coefficients), to_vector(scales), Tables{low, step, values.shape(1), numbers(values), numbers(slopes)},
                {to_vector(sizes), to_vector(places), to_vector(has_effects)},
                {to_vector(counts), to_vector(starts), to_vector(columns), to_vector(factors), to_vector(constants)},
                {to_vector(precision_starts), to_vector(precision_columns), to_vector(precision), to_vector(linear)},
                {to_vector(part_sizes), to_vector(pattern_starts), to_vector(pattern_rows), to_vector(order)},
                {to_vector(move_starts), to_vector(move_columns), to_vector(directions), to_vector(widths),
                 to_vector(fixes_effects)},
                share, {to_vector(centre), numbers(root)},
                {{to_vector(mean_places), to_vector(mean_starts), to_vector(mean_columns), to_vector(means)},
                 coefficients.shape(0) + scales.shape(0)},
                {{to_vector(column_starts), to_vector(column_places), to_vector(column_values)},
                 {to_vector(row_starts), to_vector(row_places), to_vector(row_values)},
                 coefficients.shape(0)});
          },
          "coefficients"_a, "scales"_a, "low"_a, "step"_a, "values"_a, "slopes"_a, "sizes"_a, "places"_a, "counts"_a,
          "starts"_a, "columns"_a, "factors"_a, "constants"_a, "has_effects"_a, "precision_starts"_a, "precision_columns"_a,
          "precision"_a, "linear"_a, "part_sizes"_a, "pattern_starts"_a, "pattern_rows"_a, "order"_a, "move_starts"_a,
          "move_columns"_a, "directions"_a, "widths"_a, "fixes_effects"_a, "share"_a, "centre"_a, "root"_a,
          "mean_places"_a, "mean_starts"_a, "mean_columns"_a, "means"_a, "column_starts"_a, "column_places"_a, "column_values"_a,
          "row_starts"_a, "row_places"_a, "row_values"_a)
      .def_prop_ro("dim", &NormalEffects::dim)
      .def(
          "log_density",
          [](NormalEffects& self, const Vector<double>& theta) {
            require_dim(theta.shape(0), self.dim(), "theta");
            self.place(theta.data());
            return self.log_density();
          },
          "theta"_a)
      .def(
          "sweep",
          [](NormalEffects& self, const nb::object& bits, const Output& theta) {
            require_dim(theta.shape(0), self.dim(), "theta");
            auto* generator = to_bitgen(bits);
            self.place(theta.data());
            const bool found = self.sweep(generator);
            if (found) self.theta(theta.data());
            return found;
          },
          "bits"_a, "theta"_a.noconvert());

  nb::class_<SurrogateEffects>(m, "SurrogateEffects")
      .def(
          "__init__",
          [](SurrogateEffects* self, std::uintptr_t model, std::uintptr_t log_density_gradient,
             std::uintptr_t free_error, std::shared_ptr<NormalEffects> effects, const nb::object&) {
            new (self) SurrogateEffects(from_address<const void*>(model, "model"),
                                        to_bridge_stan(log_density_gradient, free_error), std::move(effects));
          },
          "model"_a, "log_density_gradient_address"_a, "free_error_address"_a, "effects"_a, "owner"_a,
          nb::keep_alive<1, 6>())
      .def_prop_ro("dim", &SurrogateEffects::dim)
      .def(
          "gibbs",
          [](SurrogateEffects& self, const nb::object& bits, const Output& theta, std::int32_t n) {
            return moved(self, bits, theta, [&](auto... at) { return self.gibbs(at..., n); });
          },
          "bits"_a, "theta"_a.noconvert(), "n"_a = 1)
      .def(
          "given_scales",
          [](SurrogateEffects& self, const nb::object& bits, const Output& theta, std::int32_t n, double step_size,
             std::int32_t n_steps) {
            return moved(self, bits, theta, [&](auto... at) { return self.given_scales(at..., n, step_size, n_steps); });
          },
          "bits"_a, "theta"_a.noconvert(), "n"_a = 1, nb::kw_only(), "step_size"_a, "n_steps"_a);

  nb::class_<Arguments>(m, "Arguments")
      .def(
          "__init__",
          [](Arguments* self, const std::vector<std::vector<Columns>>& rows, const std::vector<Vector<std::int32_t>>& places,
             const std::vector<NumbersArray>& offsets, const std::vector<std::int32_t>& gathered_of,
             const std::vector<Vector<std::int32_t>>& gathered_places, const std::vector<NumbersArray>& gathered_factors,
             std::size_t n, std::size_t dim) {
            new (self) Arguments(to_arguments(rows, places, offsets, gathered_of, gathered_places, gathered_factors, n), n, dim);
          },
          "rows"_a.noconvert(), "places"_a, "offsets"_a.noconvert(), "gathered_of"_a, "gathered_places"_a.noconvert(),
          "gathered_factors"_a.noconvert(), "n"_a, "dim"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 4>(),
          nb::keep_alive<1, 6>(), nb::keep_alive<1, 7>());

  nb::class_<FullData>(m, "FullData")
      .def(
          "__init__",
          [](FullData* self, const Arguments& arguments, const DensityOrProgram& density, const std::vector<NumbersArray>& data,
             double constant) { new (self) FullData(arguments, density, to_columns(data, arguments.n()), constant); },
          "arguments"_a, "density"_a, "data"_a.noconvert(), "constant"_a = 0.0, nb::keep_alive<1, 2>(), nb::keep_alive<1, 4>())
      .def_prop_ro("dim", &FullData::dim)
      .def(
          "log_lik",
          [](const FullData& self, const Vector<double>& phi) {
            require_dim(phi.shape(0), self.dim());
            nb::gil_scoped_release release;
            return self.log_lik(phi.data());
          },
          "phi"_a)
      .def(
          "gradient",
          [](const FullData& self, const Vector<double>& phi) {
            require_dim(phi.shape(0), self.dim());
            std::vector<double> found(self.dim());
            double value = 0;
            {
              nb::gil_scoped_release release;
              value = self.gradient(phi.data(), found.data());
            }
            return nb::make_tuple(value, to_numpy(std::move(found)));
          },
          "phi"_a)
      .def_prop_ro("address", [](const FullData& self) { return reinterpret_cast<std::uintptr_t>(&self); })
      .def_prop_ro_static("function_address", [](const nb::object&) { return reinterpret_cast<std::uintptr_t>(&full_data_gradient); });

  nb::class_<GroupedObservations, RemainderSource>(m, "GroupedObservations")
      .def(
          "__init__",
          [](GroupedObservations* self, const DensityOrProgram& density, const Arguments& arguments,
             const std::vector<Matrix>& whitenings, const Vector<double>& sds, const Matrix& records,
             const Matrix& lengths, const std::vector<NumbersArray>& data, const Vector<double>& point, const Vector<double>& radii,
             const Vector<double>& factors, double share) {
            require_length(records.shape(0), arguments.n(), "records");
            require_length(lengths.size(), arguments.n() * arguments.size(), "lengths");
            GroupedObservations::Whitenings own;
            for (const Matrix& one : whitenings) own.emplace_back(one.data(), one.data() + one.size());
            new (self) GroupedObservations(to_log_lik(density), arguments, std::move(own), to_vector(sds), records.data(), records.shape(1), lengths.data(),
                                           to_columns(data, arguments.n()), to_vector(point), to_levels(radii, factors), share);
          },
          "density"_a, "arguments"_a, "whitenings"_a, "sds"_a, "records"_a.noconvert(), "lengths"_a, "data"_a.noconvert(),
          "point"_a, "radii"_a, "factors"_a, "share"_a, nb::keep_alive<1, 3>(), nb::keep_alive<1, 6>(), nb::keep_alive<1, 8>());

  nb::class_<SurrogateDecider>(m, "SurrogateDecider")
      .def(nb::init<const GroupedObservations&, double, double>(), "observations"_a, "kappa"_a, "most"_a, nb::keep_alive<1, 2>())
      .def(
          "decide",
          [](SurrogateDecider& self, const Vector<double>& phi, const Vector<double>& phi_new, double log_u,
             const nb::object& bits) {
            require_dim(phi.shape(0), self.dim());
            require_dim(phi_new.shape(0), self.dim());
            auto* generator = to_bitgen(bits);
            nb::gil_scoped_release release;
            return self.decide(phi.data(), phi_new.data(), log_u, generator);
          },
          "phi"_a, "phi_new"_a, "log_u"_a, "bits"_a)
      .def(
          "costs",
          [](SurrogateDecider& self, const Vector<double>& phi, const Vector<double>& phi_new) {
            require_dim(phi.shape(0), self.dim());
            require_dim(phi_new.shape(0), self.dim());
            return self.costs(phi.data(), phi_new.data());
          },
          "phi"_a, "phi_new"_a)
      .def_prop_ro("n_unbounded", &SurrogateDecider::n_unbounded)
      .def_prop_ro("n_evaluated", [](const SurrogateDecider& self) { return self.counters().evaluated; })
      .def_prop_ro("n_candidates", [](const SurrogateDecider& self) { return self.counters().candidates; })
      .def_prop_ro("bound_tightness", [](const SurrogateDecider& self) { return self.counters().tightness; });

  m.def(
      "minimum_degree",
      [](const Vector<std::int32_t>& starts, const Vector<std::int32_t>& rows, std::size_t most_bits) {
        return to_numpy(MinimumDegree(to_vector(starts), to_vector(rows), most_bits).order());
      },
      "starts"_a, "rows"_a, "most_bits"_a = MinimumDegree::kMostBits);
  m.attr("LEAST_PIVOT") = kLeastPivot;
  m.def(
      "modified_cholesky",
      [](const Vector<std::int32_t>& starts, const Vector<std::int32_t>& rows, const Vector<double>& values,
         std::size_t least_left, bool increases) {
        auto [l, n_left] = modified_cholesky({to_vector(starts), to_vector(rows), to_vector(values)}, least_left, increases);
        return nb::make_tuple(to_numpy(std::move(l.starts)), to_numpy(std::move(l.rows)), to_numpy(std::move(l.values)),
                              n_left);
      },
      "starts"_a, "rows"_a, "values"_a, "least_left"_a, "increases"_a);
  m.def(
      "cholesky_pattern",
      [](const Vector<std::int32_t>& starts, const Vector<std::int32_t>& rows) {
        const LowerTriangle triangle{to_vector(starts), to_vector(rows), std::vector<double>(rows.shape(0))};
        triangle.check();
        LowerTriangle found = factor_pattern(triangle);
        return nb::make_tuple(to_numpy(std::move(found.starts)), to_numpy(std::move(found.rows)));
      },
      "starts"_a, "rows"_a);
  m.def(
      "cholesky_solve",
      [](const Vector<std::int32_t>& starts, const Vector<std::int32_t>& rows, const Vector<double>& values,
         const Vector<double>& right) {
        SparseCholesky factor{{to_vector(starts), to_vector(rows), to_vector(values)}, {}};
        factor.LowerTriangle::check();
        require_length(right.shape(0), factor.dim(), "the right side");
        std::vector<double> x = to_vector(right);
        factor.forward(x);
        factor.backward(x);
        return to_numpy(std::move(x));
      },
      "starts"_a, "rows"_a, "values"_a, "right"_a);
  m.def("table_transitions", &table_transitions, "energies"_a, "start"_a, "stops"_a, "max_tree_depth"_a);
}

}  // namespace stansub
