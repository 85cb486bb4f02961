// Numbers of observations as memory holds them: of any type, at any distance from each other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stansub {

// A number of each observation, or one for all at a distance of 0. They stay the caller's.
class Numbers {
 public:
  enum class Kind { u1, i2, i4, i8, f4, f8 };

  Numbers(const void* first, std::ptrdiff_t bytes, Kind kind) : first_(static_cast<const char*>(first)), bytes_(bytes), kind_(kind) {}

  double operator[](std::size_t i) const {
    const void* at = address(i);
    switch (kind_) {
      case Kind::u1: return *static_cast<const std::uint8_t*>(at);
      case Kind::i2: return *static_cast<const std::int16_t*>(at);
      case Kind::i4: return *static_cast<const std::int32_t*>(at);
      case Kind::i8: return static_cast<double>(*static_cast<const std::int64_t*>(at));
      case Kind::f4: return *static_cast<const float*>(at);
      case Kind::f8: break;
    }
    return *static_cast<const double*>(at);
  }

  void copy(std::size_t first, std::size_t count, double* out) const {
    switch (kind_) {
      case Kind::u1: return copy<std::uint8_t>(first, count, out);
      case Kind::i2: return copy<std::int16_t>(first, count, out);
      case Kind::i4: return copy<std::int32_t>(first, count, out);
      case Kind::i8: return copy<std::int64_t>(first, count, out);
      case Kind::f4: return copy<float>(first, count, out);
      case Kind::f8: return copy<double>(first, count, out);
    }
  }

  bool is_constant() const { return bytes_ == 0; }

  void prefetch(std::size_t i) const { __builtin_prefetch(address(i)); }

 private:
  template <class T>
  void copy(std::size_t first, std::size_t count, double* out) const {
    const char* at = static_cast<const char*>(address(first));
    for (std::size_t j = 0; j < count; ++j, at += bytes_) out[j] = static_cast<double>(*reinterpret_cast<const T*>(at));
  }

  const void* address(std::size_t i) const { return first_ + static_cast<std::ptrdiff_t>(i) * bytes_; }

  const char* first_;
  std::ptrdiff_t bytes_;
  Kind kind_;
};

// Adjacent columns of a matrix, which stays the caller's.
struct Run {
  const double* first;
  std::ptrdiff_t row, column;  // distances between rows and columns; 0 between rows that are equal
  std::size_t width;

  const double* at(std::size_t i) const { return first + static_cast<std::ptrdiff_t>(i) * row; }

  void prefetch(std::size_t i) const {
    const double* own = at(i);
    for (std::size_t c = 0; c < width; c += column == 1 ? 8 : 1) __builtin_prefetch(own + static_cast<std::ptrdiff_t>(c) * column);
  }
};

}  // namespace stansub
