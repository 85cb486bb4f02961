// Python's view of passes over all observations for moves of levels.
#include "levels.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "arrays.hpp"
#include "slices.hpp"
#include "transitions.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace stansub {
namespace {

using Places = Vector<std::int32_t>;
using Output = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutputMatrix = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

std::vector<LevelPasses::Grouping> to_groupings(const std::vector<Places>& levels, const std::vector<Places>& level_places,
                                                const std::vector<std::size_t>& n_levels, std::size_t n) {
  if (level_places.size() != levels.size() || n_levels.size() != levels.size())
    throw std::invalid_argument("there must be levels and their coefficients for each grouping");
  std::vector<LevelPasses::Grouping> groupings;
  for (std::size_t g = 0; g < levels.size(); ++g) {
    require_length(levels[g].shape(0), n, "levels");
    groupings.push_back({levels[g].data(), n_levels[g], to_vector(level_places[g])});
  }
  return groupings;
}

// Rows of numbers of the observations, as a view.
template <class T>
auto rows_of(LevelPasses& self, T* first) {
  return nb::ndarray<nb::numpy, T, nb::ndim<2>>(first, {self.n_rows(), self.n()}, nb::find(self));
}

}  // namespace

void bind_levels(nb::module_& m) {
  nb::class_<LevelPasses>(m, "LevelPasses")
      .def(
          "__init__",
          [](LevelPasses* self, const Arguments& arguments, const std::vector<Places>& levels,
             const std::vector<Places>& level_places, const std::vector<std::size_t>& n_levels,
             std::shared_ptr<Program> program, const std::optional<Matrix>& data) {
            if (program && (!data || data->shape(0) != program->n_data() || data->shape(0) < 1 || data->shape(1) != arguments.n()))
              throw std::invalid_argument("data must have a row for each number and a column for each observation");
            new (self) LevelPasses(arguments, to_groupings(levels, level_places, n_levels, arguments.n()), std::move(program),
                                   data ? data->data() : nullptr);
          },
          "arguments"_a, "levels"_a.noconvert(), "level_places"_a, "n_levels"_a, "program"_a.none(),
          "data"_a.noconvert().none(), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 7>())
      .def_prop_ro("proposed", [](LevelPasses& self) { return rows_of(self, self.proposed()); })
      .def_prop_ro("state", [](LevelPasses& self) { return rows_of(self, self.state()); })
      .def(
          "arguments",
          [](LevelPasses& self, const Vector<double>& x, const OutputMatrix& out) {
            require_length(x.shape(0), self.dim(), "x");
            if (out.shape(0) + 1 != self.n_rows() || out.shape(1) != self.n())
              throw std::invalid_argument("out must have a row for each argument");
            nb::gil_scoped_release release;
            self.arguments(x.data(), out.data());
          },
          "x"_a, "out"_a.noconvert())
      .def(
          "place",
          [](LevelPasses& self, const Vector<double>& x) {
            require_length(x.shape(0), self.dim(), "x");
            nb::gil_scoped_release release;
            self.place(x.data());
          },
          "x"_a)
      .def(
          "propose",
          [](LevelPasses& self, const Vector<double>& x, std::size_t which, const Output& change, const Output& slopes) {
            require_length(x.shape(0), self.dim(), "x");
            require_length(change.shape(0), self.n_levels(which) + 1, "change");
            require_length(slopes.shape(0), self.dim(), "slopes");
            nb::gil_scoped_release release;
            self.propose(x.data(), which, change.data(), slopes.data());
          },
          "x"_a, "which"_a, "change"_a.noconvert(), "slopes"_a.noconvert())
      .def(
          "settle",
          [](LevelPasses& self, std::size_t which, const Vector<bool>& accepted) {
            require_length(accepted.shape(0), self.n_levels(which), "accepted");
            self.settle(which, accepted.data());
          },
          "which"_a, "accepted"_a)
      .def("apply", &LevelPasses::apply, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "slopes",
          [](LevelPasses& self, std::size_t which, const Output& out) {
            require_length(out.shape(0), self.dim(), "out");
            nb::gil_scoped_release release;
            self.slopes(which, out.data());
          },
          "which"_a, "out"_a.noconvert());

  nb::class_<Slices>(m, "Slices")
      .def(
          "__init__",
          [](Slices* self, std::uintptr_t model, std::uintptr_t log_density, std::uintptr_t free_error,
             const Coordinates& coordinates, const std::vector<Vector<double>>& directions,
             const std::vector<Vector<std::int32_t>>& scaled, const nb::object&) {
            if (scaled.size() != directions.size()) throw std::invalid_argument("there must be scaled coordinates for each direction");
            std::vector<Slices::Move> moves;
            for (std::size_t k = 0; k < scaled.size(); ++k) moves.push_back({to_vector(directions[k]), to_vector(scaled[k])});
            const BridgeStan api{from_address<BridgeStan::LogDensity>(log_density, "log_density_address"),
                                 from_address<BridgeStan::FreeError>(free_error, "free_error_address"), nullptr};
            new (self) Slices(from_address<const void*>(model, "model"), api, coordinates, std::move(moves));
          },
          "model"_a, "log_density_address"_a, "free_error_address"_a, "coordinates"_a, "directions"_a, "scaled"_a, "owner"_a,
          nb::keep_alive<1, 8>())
      .def(
          "__call__",
          [](Slices& self, const nb::object& bits, const Output& x, const Output& scale, const Output& shift,
             const Vector<double>& widths, const Output& lengths) {
            for (const Output& one : {x, scale, shift}) require_length(one.shape(0), self.dim(), "coordinates");
            require_length(widths.shape(0), self.size(), "widths");
            require_length(lengths.shape(0), self.size(), "lengths");
            auto* generator = to_bitgen(bits);
            nb::gil_scoped_release release;
            self(generator, x.data(), scale.data(), shift.data(), widths.data(), lengths.data());
          },
          "bits"_a, "x"_a.noconvert(), "scale"_a.noconvert(), "shift"_a.noconvert(), "widths"_a, "lengths"_a.noconvert());
}

}  // namespace stansub
