// Python's view of the decision loop.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <variant>
#include <vector>

#include "arrays.hpp"
#include "constrained.hpp"
#include "decider.hpp"
#include "densities.hpp"
#include "evaluators.hpp"
#include "functions.hpp"
#include "json.hpp"
#include "mapped.hpp"
#include "observations.hpp"
#include "programs.hpp"
#include "batch.hpp"
#include "taylor.hpp"
#include "trajectory.hpp"
#include "transitions.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace stansub;

namespace {

template <class T>
using Output = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Sketches = nb::ndarray<const Sketch::Number, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Screens = nb::ndarray<const Screen::Number, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Rows32 = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OutputMatrix = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OutputRows = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using NumpyVector = nb::ndarray<nb::numpy, double, nb::ndim<1>>;
using NumpyMatrix = nb::ndarray<nb::numpy, double, nb::ndim<2>>;

std::vector<const void*> to_pointers(const Vector<std::uint64_t>& addresses) {
  std::vector<const void*> pointers;
  for (std::size_t k = 0; k < addresses.shape(0); ++k)
    pointers.push_back(from_address<const void*>(addresses(k), "a model"));
  return pointers;
}

// A Python function that any thread may release.
std::shared_ptr<nb::callable> to_shared(nb::callable function) {
  return {new nb::callable(std::move(function)), [](nb::callable* held) {
            nb::gil_scoped_acquire lock;
            delete held;
          }};
}

// A Python function from a block to the address of its model, and whether the address is permanent. Each call takes the lock.
ModelSource to_source(nb::callable function) {
  return [shared = to_shared(std::move(function))](std::int32_t block) {
    nb::gil_scoped_acquire lock;
    const auto found = nb::cast<std::pair<std::uintptr_t, bool>>((*shared)(block));
    return std::pair<const void*, bool>(from_address<const void*>(found.first, "a model"), found.second);
  };
}

BridgeStan to_bridgestan(std::uintptr_t log_density, std::uintptr_t free_error, std::uintptr_t gradient) {
  return {from_address<BridgeStan::LogDensity>(log_density, "log_density_address"),
          from_address<BridgeStan::FreeError>(free_error, "free_error_address"),
          reinterpret_cast<BridgeStan::LogDensityGradient>(gradient)};
}

nb::object from_json(JsonArray array) {
  JsonNumber* numbers = array.numbers.release();
  nb::capsule owner(numbers, [](void* p) noexcept { FreeMemory()(p); });
  const std::size_t rank = array.shape.size(), *shape = array.shape.data();
  if (array.is_integer) return nb::cast(nb::ndarray<nb::numpy, std::int64_t>(&numbers->integer, rank, shape, owner));
  return nb::cast(nb::ndarray<nb::numpy, double>(&numbers->real, rank, shape, owner));
}

nb::object read_json_numbers(const nb::bytes& text, std::size_t threads, std::size_t piece) {
  std::optional<JsonReader::Object> read;
  {
    nb::gil_scoped_release release;
    read = JsonReader(text.c_str(), text.c_str() + text.size(), threads, piece).read();
  }
  if (!read) return nb::none();
  nb::dict object;
  for (auto& [name, array] : *read) object[nb::str(name.c_str(), name.size())] = from_json(std::move(array));
  if (nb::len(object) < read->size()) return nb::none();
  return object;
}

void require_rows(std::size_t length, std::int64_t n_steps, const char* what) {
  if (static_cast<std::int64_t>(length) < n_steps)
    throw std::invalid_argument(std::string(what) + " must have a row for each step");
}

double global_log_density(const EvaluatorObject& evaluator, const Vector<double>& theta) {
  const Evaluator& f = evaluator.functions();
  require_length(theta.shape(0), f.dim, "theta");
  nb::gil_scoped_release release;
  double value = 0;
  return f.global(f.self, theta.data(), &value) == 0 ? value : -kInfinity;
}

std::vector<std::int32_t> to_blocks(const Evaluator& f, const std::optional<Vector<std::int32_t>>& which) {
  std::vector<std::int32_t> blocks;
  if (which) {
    blocks = to_vector(*which);
    for (const std::int32_t b : blocks)
      if (b < 0 || b >= f.n_blocks) throw std::out_of_range("no block " + std::to_string(b));
  } else {
    blocks.resize(f.n_blocks);
    std::iota(blocks.begin(), blocks.end(), 0);
  }
  return blocks;
}

NumpyVector block_log_lik(const EvaluatorObject& evaluator, const Vector<double>& theta,
                          const std::optional<Vector<std::int32_t>>& which) {
  const Evaluator& f = evaluator.functions();
  require_length(theta.shape(0), f.dim, "theta");
  const std::vector<std::int32_t> blocks = to_blocks(f, which);
  std::vector<double> values(blocks.size());
  {
    nb::gil_scoped_release release;
    double global = 0;
    bool defined = f.global(f.self, theta.data(), &global) == 0;
    if (defined && !blocks.empty())
      defined = f.blocks(f.self, theta.data(), global, blocks.data(), static_cast<std::int32_t>(blocks.size()),
                         values.data()) == 0;
    if (!defined) std::fill(values.begin(), values.end(), -kInfinity);
  }
  return to_numpy(std::move(values));
}

NumpyVector python_global_gradient(EvaluatorObject& evaluator, const Vector<double>& theta) {
  require_length(theta.shape(0), evaluator.functions().dim, "theta");
  std::vector<double> gradient(theta.shape(0));
  {
    nb::gil_scoped_release release;
    global_gradient(evaluator, theta.data(), gradient.data());
  }
  return to_numpy(std::move(gradient));
}

NumpyMatrix python_block_gradients(EvaluatorObject& evaluator, const Vector<double>& theta,
                                   const std::optional<Vector<std::int32_t>>& which) {
  const std::size_t dim = evaluator.functions().dim;
  require_length(theta.shape(0), dim, "theta");
  const std::vector<std::int32_t> blocks = to_blocks(evaluator.functions(), which);
  std::vector<double> gradients(blocks.size() * dim);
  {
    nb::gil_scoped_release release;
    block_gradients(evaluator, theta.data(), blocks.data(), blocks.size(), gradients.data());
  }
  return to_numpy(std::move(gradients), blocks.size(), dim);
}

void python_block_taylor(EvaluatorObject& evaluator, const Vector<double>& theta, const Vector<std::int32_t>& which,
                         int order, const OutputRows& out, const std::optional<Vector<double>>& steps) {
  const std::size_t dim = evaluator.functions().dim;
  require_length(theta.shape(0), dim, "theta");
  if (order != 1 && order != 2) throw std::invalid_argument("order must be 1 or 2");
  const std::vector<std::int32_t> blocks = to_blocks(evaluator.functions(), which);
  require_length(out.shape(0), blocks.size(), "out");
  require_length(out.shape(1), n_coefficients(dim, order), "a row of out");
  const std::vector<double> widths = steps ? to_vector(*steps) : default_steps(theta.data(), dim);
  require_length(widths.size(), dim, "steps");
  if (!std::all_of(widths.begin(), widths.end(), [](double h) { return h > 0 && h < kInfinity; }))
    throw std::invalid_argument("steps must be positive and finite");
  nb::gil_scoped_release release;
  block_taylor(evaluator, theta.data(), blocks.data(), blocks.size(), order, widths, out.data());
}

nb::tuple subset_gradient(EvaluatorObject& evaluator, const Vector<double>& theta,
                          const std::optional<Vector<std::int32_t>>& which) {
  require_length(theta.shape(0), evaluator.functions().dim, "theta");
  const std::vector<std::int32_t> blocks = to_blocks(evaluator.functions(), which);
  std::vector<double> gradient(theta.shape(0));
  double value = 0;
  {
    nb::gil_scoped_release release;
    const int status = evaluator.gradient(theta.data(), blocks.data(), static_cast<std::int32_t>(blocks.size()),
                                          &value, gradient.data());
    if (status != 0) {
      value = -kInfinity;
      std::fill(gradient.begin(), gradient.end(), std::numeric_limits<double>::quiet_NaN());
    }
  }
  return nb::make_tuple(value, to_numpy(std::move(gradient)));
}

Surrogate to_surrogate(const std::vector<Vector<double>>& anchors, const std::vector<Rows32>& coefficients,
                       const std::vector<Vector<double>>& values, const std::vector<Matrix>& precisions) {
  if (anchors.empty()) throw std::invalid_argument("there must be an anchor");
  require_length(coefficients.size(), anchors.size(), "coefficients");
  if (anchors.size() > 1 || !values.empty()) {
    require_length(values.size(), anchors.size(), "values");
    require_length(precisions.size(), anchors.size(), "precisions");
  }
  const std::size_t dim = anchors[0].shape(0), n_blocks = coefficients[0].shape(0), width = coefficients[0].shape(1);
  std::vector<Surrogate::Expansion> expansions;
  for (std::size_t k = 0; k < anchors.size(); ++k) {
    require_length(anchors[k].shape(0), dim, "anchor");
    require_length(coefficients[k].shape(0), n_blocks, "coefficients");
    require_length(coefficients[k].shape(1), width, "a row of coefficients");
    expansions.push_back({to_vector(anchors[k]), coefficients[k].data(), nullptr, {}});
    if (values.empty()) continue;
    require_length(values[k].shape(0), n_blocks, "values");
    for (const std::size_t axis : {0, 1}) require_length(precisions[k].shape(axis), dim, "a side of a precision matrix");
    expansions[k].values = values[k].data();
    expansions[k].precision.assign(precisions[k].data(), precisions[k].data() + dim * dim);
  }
  return Surrogate(std::move(expansions), static_cast<std::int32_t>(n_blocks), width);
}

std::optional<Surrogate> checked_surrogate(const Evaluator& f, const Surrogate* surrogate) {
  if (!surrogate) return std::nullopt;
  require_length(surrogate->dim(), f.dim, "anchor");
  require_length(surrogate->n_blocks(), f.n_blocks, "coefficients");
  return *surrogate;
}

// The changes of all blocks' expansions between two points.
NumpyVector surrogate_changes(const Surrogate& surrogate, const Vector<double>& theta, const Vector<double>& theta_new) {
  for (const auto* point : {&theta, &theta_new}) require_length(point->shape(0), surrogate.dim(), "theta");
  std::vector<double> changes(surrogate.n_blocks());
  Surrogate own = surrogate;  // turning it to a pair is not for threads to share
  own.set_pair(theta.data(), theta_new.data());
  for (std::int32_t b = 0; b < surrogate.n_blocks(); ++b) changes[b] = own.change(b);
  return to_numpy(std::move(changes));
}

// Positions and a square matrix, whose sides they share.
void require_square(const Vector<double>& centre, const Matrix& matrix) {
  for (const std::size_t axis : {0, 1}) require_length(matrix.shape(axis), centre.shape(0), "a side of a matrix");
}

nb::tuple draw_proposal(const Proposals& proposals, const nb::handle& bitgen, const Vector<double>& theta) {
  require_length(theta.shape(0), proposals.dim(), "theta");
  std::vector<double> scratch, proposed(proposals.dim());
  const double log_q_ratio = proposals.draw(to_bitgen(bitgen), theta.data(), scratch, proposed.data());
  return nb::make_tuple(to_numpy(std::move(proposed)), log_q_ratio);
}

std::string to_string(const Decision& d) {
  const auto word = [](bool b) { return std::string(b ? "True" : "False"); };
  return "Decision(accepted=" + word(d.accepted) + ", log_ratio=" + std::to_string(d.log_ratio) +
         ", n_obs_used=" + std::to_string(d.n_obs_used) + ", n_looks=" + std::to_string(d.n_looks) +
         ", undecided=" + word(d.undecided) + ", audited=" + word(d.audited) + ", wrong=" + word(d.wrong) +
         ", bound_violated=" + word(d.bound_violated) + ")";
}

Decision decide(Decider& decider, const Vector<double>& theta, double log_u, double log_q_ratio,
                const nb::handle& bitgen, bool audit, const Subset* subset) {
  require_length(theta.shape(0), decider.dim(), "theta_new");
  bitgen_t* bits = to_bitgen(bitgen);
  nb::gil_scoped_release release;
  if (subset) return decider.decide(theta.data(), log_u, log_q_ratio, bits, audit, *subset);
  return decider.decide(theta.data(), log_u, log_q_ratio, bits, audit);
}

// Functions of a model may refer to the decider that calls them: Python's garbage collector sees the reference from the one
// to the other, and breaks the cycle if nothing else refers to them.
int traverse_functions(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self))
    for (const nb::handle function : nb::inst_ptr<FunctionEvaluator>(self)->held()) Py_VISIT(function.ptr());
  return 0;
}

int release_functions(PyObject* self) {
  nb::inst_ptr<FunctionEvaluator>(self)->release();
  return 0;
}

int traverse_decider(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const nb::object evaluator = nb::find(EvaluatorObject::of(nb::inst_ptr<Decider>(self)->evaluator()));
  Py_VISIT(evaluator.ptr());
  return 0;
}

PyType_Slot function_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_functions)},
                                {Py_tp_clear, reinterpret_cast<void*>(release_functions)},
                                {0, nullptr}};
PyType_Slot decider_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_decider)}, {0, nullptr}};

// For pickle: plain arrays and numbers.
nb::tuple to_tuple(const DeciderState& s) {
  const auto blocks = [](const std::vector<std::int32_t>& which) { return to_numpy(which); };
  const Counters& c = s.counters;
  return nb::make_tuple(to_numpy(s.theta), s.global, blocks(s.known), to_numpy(s.values), blocks(s.order),
                        blocks(s.subset), blocks(s.subset_order), to_numpy(s.ahead),
                        nb::make_tuple(c.decisions, c.accepted, c.obs_used, c.evaluated, c.evaluated_extra, c.nonfinite,
                                       c.bound_violated, c.fallback, c.audited_estimates, c.audit_squares,
                                       c.audit_seconds, c.candidates, c.tightness, c.audited_acceptances,
                                       c.acceptance_error, c.waits, c.wait_seconds));
}

DeciderState to_decider_state(const nb::tuple& t) {
  const auto counters = nb::cast<nb::tuple>(t[8]);
  const auto count = [&](int k) { return nb::cast<std::int64_t>(counters[k]); };
  const auto numbers = [&](int k) { return to_vector(nb::cast<Vector<double>>(t[k])); };
  const auto blocks = [&](int k) { return to_vector(nb::cast<Vector<std::int32_t>>(t[k])); };
  return {numbers(0), nb::cast<double>(t[1]), blocks(2), numbers(3), blocks(4), blocks(5), blocks(6), numbers(7),
          {count(0), count(1), count(2), count(3), count(4), count(5), count(6), count(7), count(8),
           nb::cast<double>(counters[9]), nb::cast<double>(counters[10]), count(11), nb::cast<double>(counters[12]),
           count(13), nb::cast<double>(counters[14]), count(15), nb::cast<double>(counters[16])}};
}

// Tables, ranges, noise rules and subsets: the parts of a decider.
void define_parts(nb::module_& m) {
  nb::class_<Table>(m, "Table")
      .def(
          "__init__",
          [](Table* self, const Vector<std::int32_t>& n, const Vector<double>& scale, const Vector<double>& offset) {
            new (self) Table(to_vector(n), to_vector(scale), to_vector(offset));
          },
          "n"_a, "scale"_a, "offset"_a);

  nb::class_<Subset>(m, "Subset")
      .def(
          "__init__",
          [](Subset* self, const Vector<std::int32_t>& which, const Table* table) {
            if (table)
              new (self) Subset(to_vector(which), *table);
            else if (which.shape(0) == 0)
              new (self) Subset();
            else
              throw std::invalid_argument("only an empty subset needs no table");
          },
          "which"_a, "table"_a.none())
      .def_prop_ro("which",
                   [](const Subset& subset) { return to_numpy(subset.which()); });

  nb::class_<Range>(m, "Range");
  nb::class_<LipschitzRange, Range>(m, "LipschitzRange").def(nb::init<double>(), "constant"_a);
  nb::class_<FunctionRange, Range>(m, "FunctionRange")
      .def(
          "__init__",
          [](FunctionRange* self, std::uintptr_t function, std::uintptr_t first, double factor, const nb::object&) {
            new (self) FunctionRange(from_address<FunctionRange::Function>(function, "the function of a range"),
                                     reinterpret_cast<void*>(first), factor);
          },
          "address"_a, "self_address"_a = 0, "factor"_a = 1.0, "owner"_a = nb::none(), nb::keep_alive<1, 5>());
  nb::class_<DerivativeRange, Range>(m, "DerivativeRange").def(nb::init<double>(), "constant"_a);
  nb::class_<ScannedRange, Range>(m, "ScannedRange").def(nb::init<>());
  nb::class_<EstimatedRange, Range>(m, "EstimatedRange").def(nb::init<>());

  nb::class_<NoiseRule>(m, "NoiseRule");
  nb::class_<PenaltyRule, NoiseRule>(m, "PenaltyRule").def(nb::init<double, double>(), "limit"_a, "share"_a);
  nb::class_<BarkerRule, NoiseRule>(m, "BarkerRule")
      .def(
          "__init__",
          [](BarkerRule* self, double limit, double share, const Vector<double>& points, const Vector<double>& bounds) {
            new (self) BarkerRule(limit, share, to_vector(points), to_vector(bounds));
          },
          "limit"_a, "share"_a, "points"_a, "bounds"_a);
}

RemainderBounds to_bounds(const Vector<double>& anchor, const Matrix& whitening, int order, const Vector<double>& radii,
                          const Matrix& constants, double share, bool proved) {
  for (const std::size_t axis : {0, 1}) require_length(whitening.shape(axis), anchor.shape(0), "a side of the whitening");
  require_length(constants.shape(0), radii.shape(0), "constants");
  std::vector<RemainderBounds::Level> levels;
  for (std::size_t k = 0; k < radii.shape(0); ++k) {
    const double* row = constants.data() + k * constants.shape(1);
    levels.push_back({radii.data()[k], WeightedTable({row, row + constants.shape(1)})});
  }
  std::vector<double> matrix(whitening.data(), whitening.data() + whitening.size());
  return RemainderBounds(to_vector(anchor), std::move(matrix), order, std::move(levels), share, proved);
}

Observations::Expansion to_expansion(const Vector<double>& anchor, const Matrix& whitening, const Vector<double>& gradient,
                                     const Matrix& hessian, const Vector<double>& third, double floor) {
  const auto square = [](const Matrix& m) { return std::vector<double>(m.data(), m.data() + m.size()); };
  return {to_vector(anchor), square(whitening), to_vector(gradient), square(hessian), to_vector(third), floor};
}

Observations to_observations(const DensityOrProgram& density, const std::vector<Matrix>& designs,
                             const Matrix& records, const Vector<double>& anchor, const Matrix& whitening,
                             const Vector<double>& gradient, const Matrix& hessian, const Vector<double>& third,
                             const Vector<double>& radii, const Vector<double>& factors, double share,
                             const std::optional<Sketches>& sketch, const std::optional<Screens>& screen, double floor) {
  std::vector<Observations::Design> rows;
  for (const auto& design : designs) rows.push_back({design.data(), design.shape(0), design.shape(1)});
  std::optional<Sketch> rows_of_sketch;
  if (sketch) rows_of_sketch.emplace(sketch->data(), sketch->shape(0), sketch->shape(1), anchor.shape(0));
  std::optional<Screen> rows_of_screen;
  if (screen) {
    require_length(screen->shape(1), anchor.shape(0), "rows of the screen");
    rows_of_screen.emplace(screen->data(), screen->shape(0), screen->shape(1));
  }
  return Observations(to_log_lik(density), std::move(rows), records.data(), records.shape(0), records.shape(1),
                      to_expansion(anchor, whitening, gradient, hessian, third, floor), to_levels(radii, factors), share,
                      std::move(rows_of_sketch), std::move(rows_of_screen));
}

// A Python function from observations to their records and a design for each argument, of which shared ones are not read.
Observations::Stream::Source to_rows(nb::callable function) {
  return [shared = to_shared(std::move(function))](const std::vector<std::int64_t>& which, std::vector<double>& records,
                                                   std::vector<std::vector<double>>& designs) {
    nb::gil_scoped_acquire lock;
    const auto numbers = [](const Matrix& rows) { return std::vector<double>(rows.data(), rows.data() + rows.size()); };
    const auto found = nb::cast<std::pair<Matrix, std::vector<Matrix>>>((*shared)(to_numpy(which)));
    require_length(found.second.size(), designs.size(), "the designs of some rows");
    records = numbers(found.first);
    for (std::size_t k = 0; k < designs.size(); ++k) designs[k] = numbers(found.second[k]);
  };
}

Observations to_stream(const DensityOrProgram& density, const std::vector<Matrix>& designs, const Vector<double>& constants,
                       const Vector<std::int64_t>& starts, const std::optional<Vector<std::int32_t>>& members,
                       nb::callable source, std::size_t batch, std::size_t n, std::size_t width, const Vector<double>& anchor, const Matrix& whitening,
                       const Vector<double>& gradient, const Matrix& hessian, const Vector<double>& third,
                       const Vector<double>& radii, const Vector<double>& factors, double share, double floor) {
  std::vector<Observations::Design> rows;
  for (const auto& design : designs) {
    const bool own = design.shape(0) == 0;
    rows.push_back({own ? nullptr : design.data(), own ? n : design.shape(0), design.shape(1)});
  }
  Observations::Stream stream{to_vector(constants), to_vector(starts), members ? members->data() : nullptr,
                              to_rows(std::move(source)), batch};
  if (stream.starts.empty() || (members && stream.starts.back() != static_cast<std::int64_t>(members->shape(0))))
    throw std::invalid_argument("classes must have all members");
  if (batch < 1) throw std::invalid_argument("a batch must have candidates");
  return Observations(to_log_lik(density), std::move(rows), std::move(stream), n, width,
                      to_expansion(anchor, whitening, gradient, hessian, third, floor), to_levels(radii, factors), share);
}

void define_observations(nb::module_& m) {
  nb::enum_<Density>(m, "Density")
      .value("binomial", Density::binomial)
      .value("poisson", Density::poisson)
      .value("neg_binomial", Density::neg_binomial)
      .value("normal", Density::normal)
      .value("student_t", Density::student_t)
      .value("logistic", Density::logistic)
      .value("normal_scale", Density::normal_scale)
      .value("student_t_scale", Density::student_t_scale)
      .value("logistic_scale", Density::logistic_scale)
      .value("extreme_scale", Density::extreme_scale)
      .value("neg_binomial_2", Density::neg_binomial_2)
      .value("gamma", Density::gamma)
      .value("categorical", Density::categorical)
      .value("ordered", Density::ordered);
  m.def(
      "density_log_lik",
      [](const DensityOrProgram& density, const Vector<double>& data, const Vector<double>& eta) {
        const LogLik function = to_log_lik(density);
        require_length(data.shape(0), function.n_data, "data");
        return function.log_lik(data.data(), eta.data(), eta.shape(0));
      },
      "density"_a, "data"_a, "eta"_a);

  m.attr("SKETCH_UNIT") = Sketch::unit;
  m.attr("SCREEN_UNIT") = Screen::unit;
  m.attr("SCREEN_POINT_UNIT") = Screen::point_unit;
  m.attr("MOST_SCREENED") = Screen::most_dim;
  nb::class_<RemainderSource>(m, "RemainderSource");
  nb::class_<Observations, RemainderSource>(m, "Observations")
      .def(
          "__init__",
          [](Observations* self, const DensityOrProgram& density, const std::vector<Matrix>& designs,
             const Matrix& records, const Vector<double>& anchor, const Matrix& whitening, const Vector<double>& gradient,
             const Matrix& hessian, const Vector<double>& third, const Vector<double>& radii,
             const Vector<double>& factors, double share, const std::optional<Sketches>& sketch,
             const std::optional<Screens>& screen, double floor) {
            new (self) Observations(to_observations(density, designs, records, anchor, whitening, gradient, hessian, third,
                                                    radii, factors, share, sketch, screen, floor));
          },
          "density"_a, "designs"_a.noconvert(), "records"_a.noconvert(), "anchor"_a, "whitening"_a, "gradient"_a, "hessian"_a,
          "third"_a, "radii"_a, "factors"_a, "share"_a, "sketch"_a.noconvert() = nb::none(), "screen"_a.noconvert() = nb::none(),
          "floor"_a = 0.0, nb::keep_alive<1, 3>(),
          nb::keep_alive<1, 4>(), nb::keep_alive<1, 13>())
      .def(
          "__init__",
          [](Observations* self, const DensityOrProgram& density, const std::vector<Matrix>& designs,
             const Vector<double>& constants, const Vector<std::int64_t>& starts,
             const std::optional<Vector<std::int32_t>>& members, nb::callable source, std::size_t batch, std::size_t n, std::size_t width, const Vector<double>& anchor, const Matrix& whitening,
             const Vector<double>& gradient, const Matrix& hessian, const Vector<double>& third,
             const Vector<double>& radii, const Vector<double>& factors, double share, double floor) {
            new (self) Observations(to_stream(density, designs, constants, starts, members, std::move(source), batch, n, width,
                                              anchor, whitening, gradient, hessian, third, radii, factors, share, floor));
          },
          "density"_a, "designs"_a.noconvert(), nb::kw_only(), "constants"_a, "starts"_a, "members"_a.noconvert() = nb::none(), "source"_a,
          "batch"_a,
          "n"_a, "width"_a, "anchor"_a, "whitening"_a, "gradient"_a, "hessian"_a, "third"_a, "radii"_a, "factors"_a,
          "share"_a, "floor"_a = 0.0, nb::keep_alive<1, 3>(), nb::keep_alive<1, 6>());
}

// Number of draws written, and the message of the error that stopped it.
nb::tuple write_draws(Writer& writer, const Matrix& theta, const OutputMatrix& out, const Output<std::int32_t>& stop) {
  require_length(out.shape(0), theta.shape(0), "out");
  require_length(out.shape(1), writer.width(), "a row of out");
  require_length(stop.shape(0), 1, "stop");
  std::string message;
  std::int64_t n = 0;
  {
    nb::gil_scoped_release release;
    n = writer.write(theta.data(), theta.shape(1), theta.shape(0), out.data(), stop.data(), message);
  }
  return nb::make_tuple(n, nb::bytes(message.data(), message.size()));
}

std::int64_t run_batch(Decider& decider, std::int64_t n_steps, const Proposals& proposals,
                         const nb::handle& bitgen, const nb::handle& audit_bitgen, double audit_probability,
                         const OutputMatrix& theta, const Output<std::uint8_t>& accepted,
                         const Output<std::int64_t>& n_obs_used, const Output<std::int32_t>& n_looks,
                         const Output<std::uint8_t>& undecided, const Output<double>& log_ratio,
                         const Output<std::uint8_t>& audited, const Output<std::uint8_t>& wrong,
                         const Output<std::uint8_t>& bound_violated, const Output<std::int32_t>& stop,
                         const Output<std::int64_t>& progress) {
  const std::size_t dim = decider.dim();
  require_length(proposals.dim(), dim, "a proposal");
  require_length(theta.shape(1), dim, "a row of theta");
  require_rows(theta.shape(0), n_steps, "theta");
  require_rows(accepted.shape(0), n_steps, "accepted");
  require_rows(n_obs_used.shape(0), n_steps, "n_obs_used");
  require_rows(n_looks.shape(0), n_steps, "n_looks");
  require_rows(undecided.shape(0), n_steps, "undecided");
  require_rows(log_ratio.shape(0), n_steps, "log_ratio");
  require_rows(audited.shape(0), n_steps, "audited");
  require_rows(wrong.shape(0), n_steps, "wrong");
  require_rows(bound_violated.shape(0), n_steps, "bound_violated");
  require_length(stop.shape(0), 1, "stop");
  require_length(progress.shape(0), 4, "progress");
  const Rows rows{theta.data(),     accepted.data(), n_obs_used.data(), n_looks.data(),       undecided.data(),
                  log_ratio.data(), audited.data(),  wrong.data(),      bound_violated.data()};
  const Signals signals{stop.data(), progress.data()};
  bitgen_t* bits = to_bitgen(bitgen);
  bitgen_t* audit_bits = to_bitgen(audit_bitgen);
  nb::gil_scoped_release release;
  return batch(decider, n_steps, proposals, bits, audit_bits, audit_probability, rows, signals);
}

}  // namespace

NB_MODULE(_loop, m) {
  // What an uncaught error's traceback still holds when the interpreter ends is not a leak to report to users.
  nb::set_leak_warnings(false);
  // As Python's OSError, and as the package's own error, which is one line for the user.
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::system_error& error) {
      PyErr_SetObject(PyExc_OSError, nb::make_tuple(error.code().value(), error.code().message()).ptr());
    } catch (const BoundExceeded& error) {
      PyErr_SetString(nb::module_::import_("stansub.errors").attr("RunError").ptr(), error.what());
    }
  });
  m.doc() = "Decisions of Metropolis-Hastings steps from blocks of data.";

  m.def("read_json_numbers", &read_json_numbers, "text"_a, "threads"_a = 1, "piece"_a = std::size_t{1} << 20);

  nb::class_<MappedFile>(m, "MappedFile")
      .def(nb::init<const char*>(), "path"_a)
      .def_prop_ro(
          "bytes",
          [](MappedFile& file) {
            return nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>(file.data(), {file.size()}, nb::find(&file));
          },
          nb::rv_policy::reference)
      .def_prop_ro("is_lost", &MappedFile::is_lost)
      .def("__enter__", &MappedFile::promise)
      .def("__exit__", [](MappedFile& file, const nb::args&) { file.release(); });

  nb::class_<EvaluatorObject>(m, "Evaluator")
      .def_prop_ro("dim", [](const EvaluatorObject& e) { return e.functions().dim; })
      .def_prop_ro("n_blocks", [](const EvaluatorObject& e) { return e.functions().n_blocks; })
      .def("global_log_density", &global_log_density, "theta"_a)
      .def("block_log_lik", &block_log_lik, "theta"_a, "which"_a = nb::none())
      .def("global_gradient", &python_global_gradient, "theta"_a)
      .def("block_gradients", &python_block_gradients, "theta"_a, "which"_a = nb::none())
      .def("block_taylor", &python_block_taylor, "theta"_a, "which"_a, "order"_a, "out"_a.noconvert(),
           "steps"_a = nb::none())
      .def("subset_log_density_gradient", &subset_gradient, "theta"_a, "which"_a = nb::none());

  nb::class_<CallbackEvaluator, EvaluatorObject>(m, "CallbackEvaluator")
      .def(nb::init<std::int32_t, std::int32_t, std::uintptr_t, std::uintptr_t, std::uintptr_t, std::uintptr_t>(),
           "dim"_a, "n_blocks"_a, "self_address"_a, "global_address"_a, "blocks_address"_a,
           "gradient_address"_a = 0);

  nb::class_<FunctionEvaluator, EvaluatorObject>(m, "FunctionEvaluator", nb::type_slots(function_slots))
      .def(nb::init<std::int32_t, std::int32_t, nb::object, nb::object, nb::object>(), "dim"_a, "n_blocks"_a,
           "global_log_density"_a, "block_log_lik"_a, "gradient"_a = nb::none());

  nb::class_<InstanceEvaluator, EvaluatorObject>(m, "InstanceEvaluator")
      .def(
          "__init__",
          [](InstanceEvaluator* self, std::int32_t dim, std::int32_t n_blocks, nb::callable block_model,
             const Vector<std::uint64_t>& global_models, std::uintptr_t log_density, std::uintptr_t free_error,
             const nb::object&, std::uintptr_t log_density_gradient, bool alone) {
            const BridgeStan api = to_bridgestan(log_density, free_error, log_density_gradient);
            if (n_blocks < 1) throw std::invalid_argument("an evaluator needs at least one block");
            new (self) InstanceEvaluator(dim, static_cast<std::size_t>(n_blocks), to_source(std::move(block_model)),
                                         to_pointers(global_models), api, alone);
          },
          "dim"_a, "n_blocks"_a, "block_model"_a, "global_models"_a, "log_density_address"_a, "free_error_address"_a,
          "owner"_a = nb::none(), nb::kw_only(), "log_density_gradient_address"_a = 0, "alone"_a = false,
          nb::keep_alive<1, 8>());

  nb::class_<Decision>(m, "Decision")
      .def_ro("accepted", &Decision::accepted)
      .def_ro("log_ratio", &Decision::log_ratio)
      .def_ro("n_obs_used", &Decision::n_obs_used)
      .def_ro("n_looks", &Decision::n_looks)
      .def_ro("undecided", &Decision::undecided)
      .def_ro("audited", &Decision::audited)
      .def_ro("wrong", &Decision::wrong)
      .def_ro("bound_violated", &Decision::bound_violated)
      .def_ro("standard_error", &Decision::standard_error)
      .def_ro("audit_z", &Decision::audit_z)
      .def("__repr__", &to_string);

  nb::class_<Proposal>(m, "Proposal").def_prop_ro("dim", &Proposal::dim);

  nb::class_<Affine, Proposal>(m, "Affine")
      .def(
          "__init__",
          [](Affine* self, const Matrix& matrix, const Vector<double>& offset, const Matrix& cholesky) {
            for (const auto* one : {&matrix, &cholesky}) require_square(offset, *one);
            new (self) Affine(offset.shape(0), matrix.data(), offset.data(), cholesky.data());
          },
          "matrix"_a, "offset"_a, "cholesky"_a);

  nb::class_<Trajectory, Proposal>(m, "Trajectory")
      .def(
          "__init__",
          [](Trajectory* self, const Vector<double>& centre, const Matrix& cholesky, const Vector<double>& cubic, double angle,
             int n_steps) {
            require_square(centre, cholesky);
            new (self) Trajectory(centre.shape(0), centre.data(), cholesky.data(), to_vector(cubic), angle, n_steps);
          },
          "centre"_a, "cholesky"_a, "cubic"_a, "angle"_a, "n_steps"_a);

  nb::class_<Proposals>(m, "Proposals")
      .def(nb::init<std::vector<std::shared_ptr<Proposal>>, const std::vector<double>&>(), "proposals"_a, "weights"_a)
      .def_prop_ro("dim", &Proposals::dim)
      .def("draw", &draw_proposal, "bitgen"_a, "theta"_a);

  nb::class_<Surrogate>(m, "Surrogate")
      .def(
          "__init__",
          [](Surrogate* self, const std::vector<Vector<double>>& anchors, const std::vector<Rows32>& coefficients,
             const std::vector<Vector<double>>& values, const std::vector<Matrix>& precisions) {
            new (self) Surrogate(to_surrogate(anchors, coefficients, values, precisions));
          },
          "anchors"_a, "coefficients"_a.noconvert(), "values"_a.noconvert() = nb::make_tuple(),
          "precisions"_a = nb::make_tuple(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>())
      .def_prop_ro("order", &Surrogate::order)
      .def("changes", &surrogate_changes, "theta"_a, "theta_new"_a);

  nb::class_<Writer>(m, "Writer")
      .def(
          "__init__",
          [](Writer* self, std::uintptr_t model, std::uintptr_t rng, std::uintptr_t param_constrain,
             std::uintptr_t free_error, bool include_tp, bool include_gq, std::size_t n_written,
             const Vector<std::int64_t>& columns) {
            new (self) Writer(from_address<const void*>(model, "model"), reinterpret_cast<void*>(rng),
                              from_address<BridgeStan::ParamConstrain>(param_constrain, "param_constrain_address"),
                              from_address<BridgeStan::FreeError>(free_error, "free_error_address"), include_tp,
                              include_gq, n_written, to_vector(columns));
          },
          "model"_a, "rng"_a, "param_constrain_address"_a, "free_error_address"_a, nb::kw_only(), "include_tp"_a,
          "include_gq"_a, "n_written"_a, "columns"_a)
      .def("write", &write_draws, "theta"_a, "out"_a.noconvert(), "stop"_a.noconvert());

  define_parts(m);
  define_programs(m);
  define_observations(m);

  nb::class_<RemainderBounds>(m, "RemainderBounds")
      .def(
          "__init__",
          [](RemainderBounds* self, const Vector<double>& anchor, const Matrix& whitening, int order,
             const Vector<double>& radii, const Matrix& constants, double share, bool proved) {
            new (self) RemainderBounds(to_bounds(anchor, whitening, order, radii, constants, share, proved));
          },
          "anchor"_a, "whitening"_a, "order"_a, "radii"_a, "constants"_a, "share"_a, "proved"_a = true);

  nb::class_<RemainderRange, Range>(m, "RemainderRange").def(nb::init<std::shared_ptr<RemainderBounds>>(), "bounds"_a);

  nb::class_<GlobalQuadratic>(m, "GlobalQuadratic")
      .def(
          "__init__",
          [](GlobalQuadratic* self, const Vector<double>& centre, const Vector<double>& reach, double value,
             const Vector<double>& slope, const Vector<double>& curvature) {
            new (self) GlobalQuadratic(to_vector(centre), to_vector(reach), value, to_vector(slope), to_vector(curvature));
          },
          "centre"_a, "reach"_a, "value"_a, "slope"_a, "curvature"_a)
      .def(
          "__call__",
          [](const GlobalQuadratic& quadratic, const Vector<double>& theta) {
            require_length(theta.shape(0), quadratic.dim(), "theta");
            return quadratic(theta.data());
          },
          "theta"_a);

  nb::class_<DeciderState>(m, "DeciderState")
      .def_prop_ro("theta", [](const DeciderState& state) { return to_numpy(state.theta); }, nb::rv_policy::automatic)
      .def("__getstate__", &to_tuple)
      .def("__setstate__", [](DeciderState& self, const nb::tuple& t) { new (&self) DeciderState(to_decider_state(t)); });

  nb::class_<Decider>(m, "Decider", nb::type_slots(decider_slots))
      .def(
          "__init__",
          [](Decider* self, const EvaluatorObject& evaluator, const Vector<std::int64_t>& block_sizes,
             const Table& table, std::shared_ptr<Range> range, std::shared_ptr<NoiseRule> noise,
             const Surrogate* surrogate, std::shared_ptr<RemainderBounds> bounds,
             std::shared_ptr<RemainderSource> observations, const GlobalQuadratic* quadratic,
             std::optional<double> kappa) {
            new (self) Decider(&evaluator.functions(), to_vector(block_sizes), table, std::move(range), std::move(noise),
                               checked_surrogate(evaluator.functions(), surrogate), std::move(bounds),
                               std::move(observations),
                               quadratic ? std::optional<GlobalQuadratic>(*quadratic) : std::nullopt, kappa);
          },
          "evaluator"_a, "block_sizes"_a, "table"_a, nb::kw_only(), "range"_a = nb::none(), "noise"_a = nb::none(),
          "surrogate"_a = nb::none(), "bounds"_a = nb::none(), "observations"_a = nb::none(), "quadratic"_a = nb::none(),
          "kappa"_a = nb::none(), nb::keep_alive<1, 2>(), nb::keep_alive<1, 7>())
      .def("set_table", &Decider::set_table, "table"_a)
      .def(
          "reset",
          [](Decider& decider, const Vector<double>& theta) {
            require_length(theta.shape(0), decider.dim(), "theta");
            nb::gil_scoped_release release;
            decider.reset(theta.data());
          },
          "theta"_a)
      .def_prop_rw("state", &Decider::state, &Decider::restore)
      .def_prop_ro("theta", [](const Decider& decider) { return to_numpy(decider.theta()); },
                   nb::rv_policy::automatic)
      .def_prop_ro("global_log_density", &Decider::global_log_density)
      .def("log_density", &Decider::log_density, nb::call_guard<nb::gil_scoped_release>())
      .def("decide", &decide, "theta_new"_a, "log_u"_a, "log_q_ratio"_a, "bitgen"_a, "audit"_a = false,
           "subset"_a = nb::none())
      .def("batch", &run_batch, "n_steps"_a, "proposals"_a, "bitgen"_a, "audit_bitgen"_a,
           "audit_probability"_a, "theta"_a.noconvert(), "accepted"_a.noconvert(), "n_obs_used"_a.noconvert(),
           "n_looks"_a.noconvert(), "undecided"_a.noconvert(), "log_ratio"_a.noconvert(),
           "audited"_a.noconvert(), "wrong"_a.noconvert(), "bound_violated"_a.noconvert(), "stop"_a.noconvert(),
           "progress"_a.noconvert())
      .def_prop_ro("n_decisions", [](const Decider& d) { return d.counters().decisions; })
      .def_prop_ro("n_accepted", [](const Decider& d) { return d.counters().accepted; })
      .def_prop_ro("n_obs_used", [](const Decider& d) { return d.counters().obs_used; })
      .def_prop_ro("n_evaluated", [](const Decider& d) { return d.counters().evaluated; })
      .def_prop_ro("n_evaluated_extra", [](const Decider& d) { return d.counters().evaluated_extra; })
      .def_prop_ro("audit_seconds", [](const Decider& d) { return d.counters().audit_seconds; })
      .def_prop_ro("n_nonfinite", [](const Decider& d) { return d.counters().nonfinite; })
      .def_prop_ro("n_bound_violated", [](const Decider& d) { return d.counters().bound_violated; })
      .def_prop_ro("n_screened", &Decider::n_screened)
      .def_prop_ro("n_waits", [](const Decider& d) { return d.counters().waits; })
      .def_prop_ro("wait_seconds", [](const Decider& d) { return d.counters().wait_seconds; })
      .def_prop_ro("n_candidates", [](const Decider& d) { return d.counters().candidates; })
      .def_prop_ro("bound_tightness", [](const Decider& d) { return d.counters().tightness; })
      .def_prop_ro("n_audited_acceptances", [](const Decider& d) { return d.counters().audited_acceptances; })
      .def_prop_ro("acceptance_error", [](const Decider& d) { return d.counters().acceptance_error; })
      .def_prop_ro("n_fallback", [](const Decider& d) { return d.counters().fallback; })
      .def_prop_ro("n_audited_estimates", [](const Decider& d) { return d.counters().audited_estimates; })
      .def_prop_ro("audit_squares", [](const Decider& d) { return d.counters().audit_squares; });

  bind_transitions(m);
  bind_levels(m);
}
