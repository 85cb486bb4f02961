#include "programs.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "program.hpp"
#include "program_bounds.hpp"
#include "program_columns.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace stansub {
namespace {

using Matrix = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Codes = nb::ndarray<const std::int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Starts = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::shared_ptr<Program> to_program(const Starts& starts, const Codes& codes, const Numbers& values, std::size_t n_arguments,
                                    std::size_t n_data) {
  if (codes.shape(1) != 3 || values.shape(0) != codes.shape(0)) throw std::invalid_argument("an instruction has three codes and a value");
  std::vector<std::vector<Program::Instruction>> variants;
  for (std::size_t v = 0; v + 1 < starts.shape(0); ++v) {
    auto& variant = variants.emplace_back();
    for (auto at = static_cast<std::size_t>(starts(v)); at < std::min<std::size_t>(static_cast<std::size_t>(starts(v + 1)), codes.shape(0)); ++at)
      variant.push_back({codes(at, 0), codes(at, 1), codes(at, 2), values(at)});
  }
  return std::make_shared<Program>(std::move(variants), n_arguments, n_data);
}

// The numbers of observations, in contiguous columns.
class Columns {
 public:
  Columns(const Program& program, const Matrix& data, const Matrix& centre) : data_(data), centre_(centre) {
    if (data.shape(0) != program.n_data() || centre.shape(0) != program.n_arguments() || data.shape(1) != centre.shape(1))
      throw std::invalid_argument("data and arguments must have a row for each number and a column for each observation");
    for (std::size_t i = 0; i < n(); ++i) {
      const double variant = program.n_data() ? data(0, i) : -1;
      if (!(variant >= 0 && variant < static_cast<double>(program.variants().size())))
        throw std::invalid_argument("the first number of data must be that of a variant");
    }
    own_.resize(data.shape(0));
    at_.resize(centre.shape(0));
  }
  std::size_t n() const { return data_.shape(1); }
  void move_to(std::size_t i) {
    for (std::size_t k = 0; k < own_.size(); ++k) own_[k] = data_(k, i);
    for (std::size_t k = 0; k < at_.size(); ++k) at_[k] = centre_(k, i);
  }
  const double* own() const { return own_.data(); }
  const double* at() const { return at_.data(); }

 private:
  const Matrix &data_, &centre_;
  std::vector<double> own_, at_;
};

// Taylor coefficients by degree, and by the first variable within one, a row each; log likelihoods are degree 0.
void expand(const Program& program, int degree, const Matrix& data, const Matrix& eta, const Output& out) {
  Columns columns(program, data, eta);
  if (degree < 0 || degree > unary::most) throw std::invalid_argument("the degree must be 0 to 5");
  const Monomials monomials(static_cast<int>(program.n_arguments()), degree);
  if (out.shape(0) != static_cast<std::size_t>(monomials.size()) || out.shape(1) != columns.n())
    throw std::invalid_argument("out must have a row for each coefficient");
  nb::gil_scoped_release release;
  const std::vector<double> ones(program.n_arguments(), 1.0), zeros(program.n_arguments(), 0.0);
  Program::Jets<double> jets;
  for (std::size_t i = 0; i < columns.n(); ++i) {
    columns.move_to(i);
    const double* found = program.expand(monomials, columns.own(), columns.at(), ones.data(), zeros.data(), zeros.data(), jets);
    for (std::size_t m = 0; m < out.shape(0); ++m) out(m, i) = found[m];
  }
}

// Log likelihoods, their derivatives by each argument and those by each two up to an order, a row each.
void derivatives(const Program& program, int order, const Matrix& data, const Matrix& eta, const Output& out) {
  const std::size_t n = data.shape(1), q = program.n_arguments();
  if (order < 0 || order > 2) throw std::invalid_argument("the order must be 0, 1 or 2");
  const std::size_t n_rows = order == 0 ? 1 : order == 1 ? 1 + q : 1 + q + q * q;
  if (program.n_data() < 1 || data.shape(0) != program.n_data() || eta.shape(0) != q || out.shape(0) != n_rows ||
      eta.shape(1) != n || out.shape(1) != n)
    throw std::invalid_argument("data, arguments and out must have a row for each number and a column for each observation");
  nb::gil_scoped_release release;
  const auto columns = program.columns();
  for (std::size_t first = 0; first < n; first += ProgramColumns::block)
    columns->derivatives(order, {data.data() + first, n}, {eta.data() + first, n}, std::min(ProgramColumns::block, n - first),
                         {out.data() + first, n});
}

void largest(const Program& program, int order, const Matrix& data, const Matrix& centre, const Matrix& lengths,
             const std::vector<double>& radii, const Output& out, double floor) {
  Columns columns(program, data, centre), moves(program, data, lengths);
  if (order < 1 || order > 4) throw std::invalid_argument("the order must be 1 to 4");
  if (out.shape(0) != radii.size() * program.n_arguments() || out.shape(1) != columns.n())
    throw std::invalid_argument("out must have a row for each radius and argument, and a column for each observation");
  nb::gil_scoped_release release;
  std::vector<double> found(out.shape(0));
  ProgramBounds bounds(program, order, floor);
  for (std::size_t i = 0; i < columns.n(); ++i) {
    columns.move_to(i);
    moves.move_to(i);
    bounds.set(columns.own(), columns.at(), moves.at());
    bounds.largest(radii, found.data());
    for (std::size_t k = 0; k < found.size(); ++k) out(k, i) = found[k];
  }
}

// The largest absolute values of Taylor coefficients of an order on boxes, as far as they are enclosed.
void enclose(const Program& program, int order, const Matrix& data, const Matrix& centre, const Matrix& lengths, double radius, const Output& out) {
  Columns columns(program, data, centre), moves(program, data, lengths);
  if (order < 1 || order > 4) throw std::invalid_argument("the order must be 1 to 4");
  ProgramBounds bounds(program, order, 0);
  const int first = bounds.monomials().first(order), n = bounds.monomials().until(order) - first;
  if (out.shape(0) != static_cast<std::size_t>(n) || out.shape(1) != columns.n())
    throw std::invalid_argument("out must have a row for each coefficient and a column for each observation");
  nb::gil_scoped_release release;
  for (std::size_t i = 0; i < columns.n(); ++i) {
    columns.move_to(i);
    moves.move_to(i);
    bounds.set(columns.own(), columns.at(), moves.at());
    const Interval* found = bounds.enclose(radius) + first;
    for (int m = 0; m < n; ++m) out(static_cast<std::size_t>(m), i) = found[m].largest();
  }
}

// Writes the widths of absolute values to their places among the data: a multiple of how far their operands move.
void set_widths(const Program& program, const Matrix& data, const Matrix& centre, const Matrix& lengths, double times, const Output& out) {
  Columns columns(program, data, centre), moves(program, data, lengths);
  if (out.shape(0) != data.shape(0) || out.shape(1) != columns.n()) throw std::invalid_argument("out must be of the shape of the data");
  nb::gil_scoped_release release;
  ProgramKinks kinks(program, 0);
  for (std::size_t i = 0; i < columns.n(); ++i) {
    columns.move_to(i);
    moves.move_to(i);
    if (!kinks.pieces(columns.own(), columns.at(), moves.at())) continue;
    for (const auto& one : program.of(columns.own()))
      if (one.kind == Program::absolute) out(static_cast<std::size_t>(one.b), i) = times * kinks.length(one);
  }
}

}  // namespace

void define_programs(nb::module_& m) {
  nb::class_<Program>(m, "Program")
      .def(nb::new_(&to_program), "starts"_a, "codes"_a, "values"_a, "n_arguments"_a, "n_data"_a)
      .def("expand", &expand, "degree"_a, "data"_a, "eta"_a, "out"_a.noconvert())
      .def("derivatives", &derivatives, "order"_a, "data"_a, "eta"_a, "out"_a.noconvert())
      .def("largest", &largest, "order"_a, "data"_a, "centre"_a, "lengths"_a, "radii"_a, "out"_a.noconvert(), "floor"_a = 0.0)
      .def("enclose", &enclose, "order"_a, "data"_a, "centre"_a, "lengths"_a, "radius"_a, "out"_a.noconvert())
      .def("set_widths", &set_widths, "data"_a, "centre"_a, "lengths"_a, "times"_a, "out"_a.noconvert());
  nb::list names;
  for (const char* name : {"constant", "data", "argument", "sum", "difference", "product", "log_sum_exp", "log_gamma_above", "log_gamma_below", "log_mean_normal", "if_negative", "unless_negative", "if_nonpositive", "unless_nonpositive", "same", "abs"}) names.append(name);
  for (const auto& function : unary::functions()) names.append(function.name);
  m.attr("OPERATIONS") = nb::tuple(names);
}

}  // namespace stansub
