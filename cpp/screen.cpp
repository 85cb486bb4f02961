#include "screen.hpp"

#include <cstdlib>
#include <cstring>
#include <numeric>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define STANSUB_INTRINSICS
#endif

#include "variants.hpp"

namespace stansub {
namespace {

// Rows of a panel, and panels at a time; what is added to numbers, so that they are positive.
constexpr std::size_t kPanel = 64, kPanels = 16;
constexpr int kAdded = 64;
using EightSingle [[gnu::vector_size(32)]] = float;

inline Eight doubles(const EightSingle& numbers) { return __builtin_convertvector(numbers, Eight); }

// Products of all rows with x, modulo 2^16, in panels: for two columns at a time, two numbers of each row.
using Products = void (*)(const std::uint8_t* panels, std::size_t n_panels, std::size_t n_pairs, const std::int8_t* x,
                          std::uint16_t* out);

void products(const std::uint8_t* panels, std::size_t n_panels, std::size_t n_pairs, const std::int8_t* x, std::uint16_t* out) {
  for (std::size_t panel = 0; panel < n_panels; ++panel, out += kPanel) {
    std::uint16_t sums[kPanel] = {};
    for (std::size_t pair = 0; pair < n_pairs; ++pair, panels += 2 * kPanel)
      for (std::size_t row = 0; row < kPanel; ++row)
        sums[row] = static_cast<std::uint16_t>(sums[row] + panels[2 * row] * x[2 * pair] + panels[2 * row + 1] * x[2 * pair + 1]);
    std::copy_n(sums, kPanel, out);
  }
}

#ifdef STANSUB_INTRINSICS
// The same with an instruction that adds products of a number of 7 bits and one of 8 bits in pairs, which fit into 16 bits.
[[gnu::target("avx2")]] void products_256(const std::uint8_t* panels, std::size_t n_panels, std::size_t n_pairs,
                                          const std::int8_t* x, std::uint16_t* out) {
  constexpr std::size_t parts = 2 * kPanel / sizeof(__m256i);
  for (std::size_t panel = 0; panel < n_panels; ++panel, out += kPanel) {
    __m256i sums[parts] = {};
    for (std::size_t pair = 0; pair < n_pairs; ++pair, panels += 2 * kPanel) {
      const __m256i two = _mm256_set1_epi16(load<std::int16_t>(x + 2 * pair));
      for (std::size_t k = 0; k < parts; ++k) {
        const __m256i numbers = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(panels) + k);
        sums[k] = _mm256_add_epi16(sums[k], _mm256_maddubs_epi16(numbers, two));
      }
    }
    std::memcpy(out, sums, sizeof sums);
  }
}

[[gnu::target("avx512bw")]] void products_512(const std::uint8_t* panels, std::size_t n_panels, std::size_t n_pairs,
                                              const std::int8_t* x, std::uint16_t* out) {
  constexpr std::size_t parts = 2 * kPanel / sizeof(__m512i);
  for (std::size_t panel = 0; panel < n_panels; ++panel, out += kPanel) {
    __m512i sums[parts] = {};
    for (std::size_t pair = 0; pair < n_pairs; ++pair, panels += 2 * kPanel) {
      const __m512i two = _mm512_set1_epi16(load<std::int16_t>(x + 2 * pair));
      for (std::size_t k = 0; k < parts; ++k) {
        const __m512i numbers = _mm512_loadu_si512(reinterpret_cast<const __m512i*>(panels) + k);
        sums[k] = _mm512_add_epi16(sums[k], _mm512_maddubs_epi16(numbers, two));
      }
    }
    std::memcpy(out, sums, sizeof sums);
  }
}

Products chosen_products() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512bw")) return products_512;
  return __builtin_cpu_supports("avx2") ? products_256 : products;
}
#else
Products chosen_products() { return products; }
#endif

const Products all_products = chosen_products();

// Upper bounds t on the heights of products, each as floor + t^3 or floor + t^4.
struct Heights {
  float scale, slack, least, most, floor;
  bool fourth;
};

STANSUB_VARIANTS void powers_of(const std::uint16_t* products, std::size_t n, std::uint16_t added, const Heights& of, float* out) {
  for (std::size_t i = 0; i < n; ++i) {
    const float product = static_cast<std::int16_t>(products[i] - added), height = (product < 0 ? -product : product) * of.scale + of.slack;
    const float below = height < of.most ? height : of.most, t = below > of.least ? below : of.least;
    out[i] = of.floor + t * t * t * (of.fourth ? t : 1);
  }
}

// factor c_i (a_i + b_i) of runs of observations, and their sums.
STANSUB_VARIANTS void bounds_of(const float* constants, const float* a, const float* b, std::size_t n_runs, float factor,
                                float* out, double* run_sums) {
  for (std::size_t run = 0; run < n_runs; ++run) {
    Eight sums{};
    for (std::size_t k = 0; k < ScreenedBounds::run; k += 8, constants += 8, a += 8, b += 8, out += 8) {
      const EightSingle bounds =
          factor * load<EightSingle>(constants) * (load<EightSingle>(a) + load<EightSingle>(b));
      std::memcpy(out, &bounds, sizeof bounds);
      sums += doubles(bounds);
    }
    run_sums[run] = total(sums);
  }
}

// What rounding to single precision may take away from a bound is less than this share of it.
constexpr double kSingle = 1 + 1e-5;

}  // namespace

Screen::Screen(const Number* rows, std::size_t n, std::size_t dim) : n_(n), n_pairs_((dim + 1) / 2) {
  static_assert(kPanel % ScreenedBounds::run == 0, "powers of whole panels are those of whole runs");
  static_assert(kAdded > unit && kAdded + unit < 128, "numbers have 7 bits");
  if (dim > most_dim) throw std::invalid_argument("a screen is for at most 1000 parameters");
  for (std::size_t panel = 0; panel < n; panel += kPanel)
    for (std::size_t pair = 0; pair < n_pairs_; ++pair)
      for (std::size_t i = panel; i < panel + kPanel; ++i)
        for (std::size_t j = 2 * pair; j < 2 * pair + 2; ++j) {
          const int number = i < n && j < dim ? rows[i * dim + j] : 0;
          if (std::abs(number) > unit) throw std::invalid_argument("numbers of a screen are at most its unit");
          panels_.push_back(static_cast<std::uint8_t>(number + kAdded));
        }
}

void Screen::find_powers(const std::vector<double>& w, double length, double least, int power, double floor,
                         std::vector<float>& powers) const {
  std::int8_t x[most_dim + 1] = {};
  std::uint16_t found[kPanels * kPanel];
  int added = 0;
  const double times = length > 0 ? point_unit / length : 0;
  for (std::size_t j = 0; j < w.size(); ++j) {
    x[j] = static_cast<std::int8_t>(std::lrint(w[j] * times));
    added += kAdded * x[j];
  }
  // Both roundings are off by half a unit in each number.
  const double half = std::sqrt(static_cast<double>(w.size())) / 2, row = half / unit, point = half / point_unit;
  const auto upper = [](double number) { return static_cast<float>(number * kSingle); };
  const Heights heights{upper(length / (unit * point_unit)), upper(length * (row + point + row * point)), upper(least), upper(length),
                        upper(floor), power == 4};
  const std::size_t n_panels = (n_ + kPanel - 1) / kPanel;
  powers.resize(n_panels * kPanel);
  for (std::size_t first = 0; first < n_panels; first += kPanels) {
    const std::size_t n = std::min(n_panels - first, kPanels);
    all_products(&panels_[first * kPanel * 2 * n_pairs_], n, n_pairs_, x, found);
    powers_of(found, n * kPanel, static_cast<std::uint16_t>(added), heights, &powers[first * kPanel]);
  }
}

ScreenedBounds::ScreenedBounds(std::size_t n) : bounds_((n + run - 1) / run * run), sums_(bounds_.size() / run) {}

double ScreenedBounds::set(const std::vector<float>& constants, const std::vector<float>& a, const std::vector<float>& b,
                           double factor) {
  const auto upper = static_cast<float>(factor * kSingle);
  bounds_of(constants.data(), a.data(), b.data(), sums_.size(), upper, bounds_.data(), sums_.data());
  return total_ = std::accumulate(sums_.begin(), sums_.end(), 0.0);
}

std::vector<float> ScreenedBounds::padded(const std::vector<double>& constants) {
  std::vector<float> upper((constants.size() + run - 1) / run * run);
  std::transform(constants.begin(), constants.end(), upper.begin(), [](double c) { return static_cast<float>(c * kSingle); });
  return upper;
}

}  // namespace stansub
