// Arrays of numbers read from JSON without an object for each number.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace stansub {

using Integers = std::vector<std::int64_t>;
using Reals = std::vector<double>;

// Integers where every number was written as one; rows lie one after the other.
struct JsonArray {
  std::variant<Integers, Reals> values;
  std::vector<std::size_t> shape;  // empty for a number by itself
};

// Takes an object {"name": number or nested arrays of numbers, ...} whose arrays are not ragged. Whatever
// else JSON allows, and all that is not JSON, is left to a complete reader, which also words what is wrong.
class JsonReader {
 public:
  using Object = std::vector<std::pair<std::string, JsonArray>>;

  JsonReader(const char* begin, const char* end) : at_(begin), end_(end) {}

  std::optional<Object> read() {
    Object object;
    if (!take('{')) return std::nullopt;
    if (!take('}')) {
      do {
        std::string name;
        if (!read_name(name) || !take(':') || !read_variable()) return std::nullopt;
        object.emplace_back(std::move(name), JsonArray{std::move(values_), shape_});
      } while (take(','));
      if (!take('}')) return std::nullopt;
    }
    skip_space();
    if (at_ != end_) return std::nullopt;
    return object;
  }

 private:
  static constexpr std::size_t kMaxDims = 16;
  static constexpr std::size_t kUnknown = static_cast<std::size_t>(-1);
  // Characters of a decimal number that fit into 64 bits, what a double holds exactly, and its exact powers of 10.
  static constexpr std::ptrdiff_t kExactDigits = 20, kExactPowers = 23;
  static constexpr std::uint64_t kExactMantissa = std::uint64_t{1} << 53;
  static constexpr double kPowers[kExactPowers] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

  void skip_space() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }

  bool take(char wanted) {
    skip_space();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }

  bool read_name(std::string& name) {
    if (!take('"')) return false;
    const char* first = at_;
    while (at_ != end_ && *at_ != '"') {
      if (*at_ < ' ' || *at_ > '~' || *at_ == '\\') return false;
      ++at_;
    }
    name.assign(first, at_);
    return take('"');
  }

  bool read_variable() {
    values_ = Integers();
    shape_.clear();
    leaf_ = kUnknown;
    return read_value(0);
  }

  // A number, or an array whose elements are `depth` + 1 dimensions down. The first array of each depth says
  // how long they all are, the first number how deep numbers are.
  bool read_value(std::size_t depth) {
    if (!take('[')) {
      if (leaf_ == kUnknown && depth == shape_.size()) leaf_ = depth;
      return leaf_ == depth && read_number();
    }
    if (depth == kMaxDims || depth >= leaf_) return false;
    if (shape_.size() <= depth) shape_.push_back(kUnknown);
    std::size_t length = 0;
    if (!take(']')) {
      do {
        if (!read_value(depth + 1)) return false;
        ++length;
      } while (take(','));
      if (!take(']')) return false;
    }
    if (shape_[depth] == kUnknown) shape_[depth] = length;
    return shape_[depth] == length;
  }

  // Digits from here on, which are appended to those of the mantissa.
  bool digits(std::uint64_t& mantissa) {
    const char* first = at_;
    while (at_ != end_ && '0' <= *at_ && *at_ <= '9') mantissa = 10 * mantissa + static_cast<std::uint64_t>(*at_++ - '0');
    return at_ != first;
  }

  bool read_number() {
    const char* first = at_;
    if (at_ != end_ && *at_ == '-') ++at_;
    const char* lead = at_;
    std::uint64_t mantissa = 0, exponent = 0;
    if (!digits(mantissa) || (*lead == '0' && at_ - lead > 1)) return false;
    const char* point = at_;
    if (at_ != end_ && *at_ == '.') {
      ++at_;
      if (!digits(mantissa)) return false;
    }
    const char* last = at_;
    if (at_ != end_ && (*at_ == 'e' || *at_ == 'E')) {
      ++at_;
      if (at_ != end_ && (*at_ == '+' || *at_ == '-')) ++at_;
      if (!digits(exponent)) return false;
    }
    if (at_ == point) return add_integer(first);
    const auto places = last - point - 1;
    // Both are exact, so that the quotient is what the decimal number rounds to.
    if (at_ == last && last - lead < kExactDigits && mantissa <= kExactMantissa && places < kExactPowers)
      return add_real((*first == '-' ? -1 : 1) * (static_cast<double>(mantissa) / kPowers[places]));
    return add_real(first);
  }

  // The number between `first` and here; false where it is out of range.
  bool add_integer(const char* first) {
    std::int64_t value = 0;
    if (std::from_chars(first, at_, value).ec != std::errc()) return false;
    if (auto* integers = std::get_if<Integers>(&values_))
      integers->push_back(value);
    else
      std::get<Reals>(values_).push_back(static_cast<double>(value));
    return true;
  }

  bool add_real(const char* first) {
#ifdef __cpp_lib_to_chars
    double value = 0;
    return std::from_chars(first, at_, value).ec == std::errc() && add_real(value);
#else
    return first == nullptr;  // a standard library that cannot read them
#endif
  }

  bool add_real(double value) {
    if (const auto* integers = std::get_if<Integers>(&values_))
      values_ = Reals(integers->begin(), integers->end());
    std::get<Reals>(values_).push_back(value);
    return true;
  }

  const char* at_;
  const char* end_;
  std::variant<Integers, Reals> values_;
  std::vector<std::size_t> shape_;
  std::size_t leaf_ = kUnknown;
};

}  // namespace stansub
