#include "screen.hpp"

#include <cstring>
#include <numeric>

#include "variants.hpp"

namespace stansub {
namespace {

// Rows of a panel, in two parts of two vectors each; and panels at a time.
constexpr std::size_t kLanes = 16, kPanel = 4 * kLanes, kPanels = 16;
using Shorts [[gnu::vector_size(2 * kLanes)]] = std::int16_t;
using EightSingle [[gnu::vector_size(32)]] = float;

inline Eight doubles(const float* from) { return __builtin_convertvector(load<EightSingle>(from), Eight); }

// Two numbers of 8 bits in one of 16.
inline std::int16_t packed(Screen::Number high, Screen::Number low) {
  return static_cast<std::int16_t>(high * 256 + static_cast<std::uint8_t>(low));
}
inline Shorts high(Shorts pairs) { return pairs >> 8; }
inline Shorts low(Shorts pairs) { return (pairs << 8) >> 8; }

// Products of all rows with x, in panels.
STANSUB_VARIANTS void products(const std::int16_t* panels, std::size_t n_panels, std::size_t dim, const std::int16_t* x,
                               std::int16_t* out) {
  for (std::size_t panel = 0; panel < n_panels; ++panel) {
    Shorts sums[4] = {};
    for (std::size_t j = 0; j < dim; ++j, panels += kPanel / 2) {
      const auto first = load<Shorts>(panels), second = load<Shorts>(panels + kLanes);
      sums[0] += high(first) * x[j];
      sums[1] += low(first) * x[j];
      sums[2] += high(second) * x[j];
      sums[3] += low(second) * x[j];
    }
    for (const Shorts& sum : sums) {
      std::memcpy(out, &sum, sizeof sum);
      out += kLanes;
    }
  }
}

// Upper bounds t on the heights of products, each as floor + t^3 or floor + t^4.
struct Heights {
  float scale, slack, least, most, floor;
  bool fourth;
};

STANSUB_VARIANTS void powers_of(const std::int16_t* products, std::size_t n, const Heights& of, float* out) {
  for (std::size_t i = 0; i < n; ++i) {
    const float product = products[i], height = (product < 0 ? -product : product) * of.scale + of.slack;
    const float below = height < of.most ? height : of.most, t = below > of.least ? below : of.least;
    out[i] = of.floor + t * t * t * (of.fourth ? t : 1);
  }
}

// factor c_i (a_i + b_i) of runs of observations, and their sums.
STANSUB_VARIANTS void bounds_of(const double* constants, const float* a, const float* b, std::size_t n_runs, double factor,
                                double* out, double* run_sums) {
  for (std::size_t run = 0; run < n_runs; ++run) {
    Eight sums{};
    for (std::size_t k = 0; k < ScreenedBounds::run; k += 8, constants += 8, a += 8, b += 8, out += 8) {
      const Eight bounds = factor * load<Eight>(constants) * (doubles(a) + doubles(b));
      std::memcpy(out, &bounds, sizeof bounds);
      sums += bounds;
    }
    run_sums[run] = total(sums);
  }
}

// What rounding to single precision may take away from a bound is less than this share of it.
constexpr double kSingle = 1 + 1e-5;

}  // namespace

Screen::Screen(const Number* rows, std::size_t n, std::size_t dim) : n_(n), dim_(dim) {
  static_assert(kPanel % ScreenedBounds::run == 0, "powers of whole panels are those of whole runs");
  if (dim > most_dim) throw std::invalid_argument("a screen is for at most 1000 parameters");
  const auto number = [&](std::size_t i, std::size_t j) { return i < n ? rows[i * dim + j] : Number{0}; };
  for (std::size_t panel = 0; panel < n; panel += kPanel)
    for (std::size_t j = 0; j < dim; ++j)
      for (std::size_t part = panel; part < panel + kPanel; part += 2 * kLanes)
        for (std::size_t i = part; i < part + kLanes; ++i) panels_.push_back(packed(number(i, j), number(i + kLanes, j)));
}

void Screen::find_powers(const std::vector<double>& w, double length, double least, int power, double floor,
                         std::vector<float>& powers) const {
  std::int16_t x[most_dim], found[kPanels * kPanel];
  const double times = length > 0 ? point_unit / length : 0;
  for (std::size_t j = 0; j < dim_; ++j) x[j] = static_cast<std::int16_t>(std::lrint(w[j] * times));
  // Both roundings are off by half a unit in each number.
  const double half = std::sqrt(static_cast<double>(dim_)) / 2, row = half / unit, point = half / point_unit;
  const auto upper = [](double number) { return static_cast<float>(number * kSingle); };
  const Heights heights{upper(length / (unit * point_unit)), upper(length * (row + point + row * point)), upper(least), upper(length),
                        upper(floor), power == 4};
  const std::size_t n_panels = (n_ + kPanel - 1) / kPanel;
  powers.resize(n_panels * kPanel);
  for (std::size_t first = 0; first < n_panels; first += kPanels) {
    const std::size_t n = std::min(n_panels - first, kPanels);
    products(&panels_[first * kPanel / 2 * dim_], n, dim_, x, found);
    powers_of(found, n * kPanel, heights, &powers[first * kPanel]);
  }
}

ScreenedBounds::ScreenedBounds(std::size_t n) : bounds_((n + run - 1) / run * run), sums_(bounds_.size() / run) {}

double ScreenedBounds::set(const std::vector<double>& constants, const std::vector<float>& a, const std::vector<float>& b,
                           double factor) {
  bounds_of(constants.data(), a.data(), b.data(), sums_.size(), factor * kSingle, bounds_.data(), sums_.data());
  return total_ = std::accumulate(sums_.begin(), sums_.end(), 0.0);
}

std::vector<double> ScreenedBounds::padded(std::vector<double> constants) {
  constants.resize((constants.size() + run - 1) / run * run);
  return constants;
}

}  // namespace stansub
