// Arguments from Python: numpy arrays and generators.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "numbers.hpp"
#include "records.hpp"

namespace stansub {

template <class T>
using Vector = nanobind::ndarray<const T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using Matrix = nanobind::ndarray<const double, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;

template <class T>
std::vector<T> to_vector(const Vector<T>& array) {
  return {array.data(), array.data() + array.shape(0)};
}

// Arrays of numpy that take over the values of a vector.
template <class T, class... Dims>
auto to_numpy(std::vector<T> values, Dims... shape) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  auto* data = owned->data();
  const std::size_t size = owned->size();
  nanobind::capsule owner(owned.release(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  if constexpr (sizeof...(Dims) == 0)
    return nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>(data, {size}, owner);
  else
    return nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<sizeof...(Dims)>>(data, {shape...}, owner);
}

inline bitgen_t* to_bitgen(const nanobind::handle& capsule) {
  auto* bits = static_cast<bitgen_t*>(PyCapsule_GetPointer(capsule.ptr(), "BitGenerator"));
  if (bits == nullptr) throw nanobind::python_error();
  return bits;
}

inline void require_length(std::size_t length, std::size_t wanted, const char* what) {
  if (length != wanted)
    throw std::invalid_argument(std::string(what) + " must have length " + std::to_string(wanted) + ", not " +
                                std::to_string(length));
}

// Numbers of observations, of any type and at any distance.
using NumbersArray = nanobind::ndarray<nanobind::ro, nanobind::ndim<1>, nanobind::device::cpu>;

inline Numbers to_numbers(const NumbersArray& array, std::size_t n) {
  namespace nb = nanobind;
  const std::pair<nb::dlpack::dtype, Numbers::Kind> kinds[] = {
      {nb::dtype<std::uint8_t>(), Numbers::Kind::u1}, {nb::dtype<std::int16_t>(), Numbers::Kind::i2},
      {nb::dtype<std::int32_t>(), Numbers::Kind::i4}, {nb::dtype<std::int64_t>(), Numbers::Kind::i8},
      {nb::dtype<float>(), Numbers::Kind::f4},        {nb::dtype<double>(), Numbers::Kind::f8}};
  require_length(array.shape(0), n, "numbers of observations");
  for (const auto& [type, kind] : kinds)
    if (array.dtype() == type) return {array.data(), array.stride(0) * static_cast<std::ptrdiff_t>(array.itemsize()), kind};
  throw std::invalid_argument("numbers of observations are of another type");
}

inline std::vector<Level> to_levels(const Vector<double>& radii, const Vector<double>& factors) {
  require_length(factors.shape(0), radii.shape(0), "factors");
  std::vector<Level> levels;
  for (std::size_t k = 0; k < radii.shape(0); ++k) levels.push_back({radii.data()[k], factors.data()[k]});
  return levels;
}

}  // namespace stansub
