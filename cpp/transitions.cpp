// Python's view of transitions on a surrogate posterior.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "surrogate_nuts.hpp"
#include "transitions.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace stansub {
namespace {

template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
std::vector<T> to_vector(const Vector<T>& array) {
  return {array.data(), array.data() + array.shape(0)};
}

struct Transition {
  double acceptance = 0;
  std::int32_t n_steps = 0, depth = 0;
  bool diverged = false;
};

class SurrogateNuts {
 public:
  SurrogateNuts(const void* model, BridgeStan api, std::vector<double> centre, SparseCholesky cholesky)
      : system_(model, api, std::move(centre), std::move(cholesky)) {}

  // `n` transitions from theta, which becomes where they end; figures are those of the worst.
  Transition operator()(bitgen_t* bits, double* theta, double step_size, std::int32_t max_depth, std::int32_t n) {
    Transition found;
    RandomCoins coins{bits};
    system_.set_step_size(step_size);
    if (!system_.place(theta, state_)) throw std::invalid_argument("the surrogate is not defined at the start");
    for (std::int32_t k = 0; k < n; ++k) {
      system_.refresh(state_, bits);
      auto made = Nuts<SurrogateSystem, RandomCoins>(system_, coins, max_depth)(state_);
      state_ = std::move(made.state);
      found.acceptance += made.acceptance / n;
      found.n_steps += made.n_steps;
      found.depth = std::max(found.depth, made.depth);
      found.diverged |= made.diverged;
    }
    system_.theta(state_, theta);
    return found;
  }

  std::size_t dim() const { return system_.dim(); }

 private:
  SurrogateSystem system_;
  SurrogateSystem::State state_;
};

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

}  // namespace

void bind_transitions(nb::module_& m) {
  nb::class_<Transition>(m, "Transition")
      .def_ro("acceptance_rate", &Transition::acceptance)
      .def_ro("n_steps", &Transition::n_steps)
      .def_ro("tree_depth", &Transition::depth)
      .def_ro("diverging", &Transition::diverged);

  nb::class_<SurrogateNuts>(m, "SurrogateNuts")
      .def(
          "__init__",
          [](SurrogateNuts* self, std::uintptr_t model, std::uintptr_t log_density_gradient,
             std::uintptr_t free_error, const Vector<double>& centre, const Vector<std::int32_t>& starts,
             const Vector<std::int32_t>& rows, const Vector<double>& values, const Vector<std::int32_t>& order,
             const nb::object&) {
            const BridgeStan api{
                nullptr, from_address<BridgeStan::FreeError>(free_error, "free_error_address"),
                from_address<BridgeStan::LogDensityGradient>(log_density_gradient, "log_density_gradient_address")};
            new (self) SurrogateNuts(
                from_address<const void*>(model, "model"), api, to_vector(centre),
                SparseCholesky{to_vector(starts), to_vector(rows), to_vector(order), to_vector(values)});
          },
          "model"_a, "log_density_gradient_address"_a, "free_error_address"_a, "centre"_a, "starts"_a, "rows"_a,
          "values"_a, "order"_a, "owner"_a, nb::keep_alive<1, 10>())
      .def_prop_ro("dim", &SurrogateNuts::dim)
      .def(
          "__call__",
          [](SurrogateNuts& self, const nb::object& bits, const Output& theta, double step_size,
             std::int32_t max_depth, std::int32_t n) {
            auto* generator = static_cast<bitgen_t*>(PyCapsule_GetPointer(bits.ptr(), "BitGenerator"));
            if (generator == nullptr) throw nb::python_error();
            if (theta.shape(0) != self.dim()) throw std::invalid_argument("theta has another length");
            nb::gil_scoped_release release;
            return self(generator, theta.data(), step_size, max_depth, n);
          },
          "bits"_a, "theta"_a.noconvert(), nb::kw_only(), "step_size"_a, "max_tree_depth"_a, "n"_a = 1);

  m.def("table_transitions", &table_transitions, "energies"_a, "start"_a, "stops"_a, "max_tree_depth"_a);
}

}  // namespace stansub
