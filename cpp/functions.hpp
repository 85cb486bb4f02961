// A model made of Python functions.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <utility>

#include "evaluators.hpp"

namespace stansub {

// The functions receive copies of numbers that numpy owns, and return None if a value is not defined; exceptions
// pass through the decision loop. Each call takes the interpreter's lock.
class FunctionEvaluator final : public EvaluatorObject {
 public:
  FunctionEvaluator(std::int32_t dim, std::int32_t n_blocks, nanobind::object global, nanobind::object blocks,
                    nanobind::object gradient)
      : EvaluatorObject(members_of(this, dim, n_blocks > 0 ? static_cast<std::size_t>(n_blocks) : 0)),
        global_(std::move(global)),
        blocks_(std::move(blocks)),
        gradient_(std::move(gradient)) {}

  int global(const double* theta, double* value) const {
    nanobind::gil_scoped_acquire lock;
    const nanobind::object found = global_(copy(theta, functions().dim));
    if (found.is_none()) return 1;
    *value = nanobind::cast<double>(found);
    return 0;
  }

  int blocks(const double* theta, double, const std::int32_t* which, std::int32_t n, double* out) const {
    nanobind::gil_scoped_acquire lock;
    const nanobind::object found = blocks_(copy(theta, functions().dim), copy(which, n));
    if (found.is_none()) return 1;
    read(found, n, out);
    return 0;
  }

  int gradient(const double* theta, const std::int32_t* which, std::int32_t n, double* value, double* out) override {
    nanobind::gil_scoped_acquire lock;
    require_gradient(!gradient_.is_none());
    const nanobind::object found = gradient_(copy(theta, functions().dim), copy(which, n));
    if (found.is_none()) return 1;
    const auto both = nanobind::cast<nanobind::tuple>(found);
    *value = nanobind::cast<double>(both[0]);
    read(both[1], functions().dim, out);
    return 0;
  }

  // For Python's garbage collector: visits the functions, and releases them.
  std::array<nanobind::handle, 3> held() const { return {global_, blocks_, gradient_}; }
  void release() { global_ = blocks_ = gradient_ = nanobind::none(); }

 private:
  template <class T>
  static nanobind::object copy(const T* values, std::int32_t n) {
    auto* own = new T[n];
    std::copy_n(values, n, own);
    const nanobind::capsule owner(own, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return nanobind::cast(nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>(
        own, {static_cast<std::size_t>(n)}, owner));
  }

  static void read(const nanobind::handle& found, std::int32_t n, double* out) {
    const auto values = nanobind::cast<nanobind::ndarray<const double, nanobind::ndim<1>, nanobind::c_contig>>(found);
    if (values.shape(0) != static_cast<std::size_t>(n))
      throw std::invalid_argument("a function of a model returned an array of another length than was asked for");
    std::copy_n(values.data(), n, out);
  }

  nanobind::object global_, blocks_, gradient_;
};

}  // namespace stansub
