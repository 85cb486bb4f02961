// Reader of numeric arrays from JSON, without an object for each number.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>


namespace stansub {

// One number, of the type of its array.
union JsonNumber {
  std::int64_t integer;
  double real;
};

struct FreeMemory {
  void operator()(void* memory) const noexcept { std::free(memory); }
};
using JsonNumbers = std::unique_ptr<JsonNumber[], FreeMemory>;

// Uninitialised memory.
inline JsonNumbers allocate_numbers(std::size_t n) {
  void* memory = std::malloc(std::max<std::size_t>(n, 1) * sizeof(JsonNumber));
  if (memory == nullptr) throw std::bad_alloc();
  return JsonNumbers(static_cast<JsonNumber*>(memory));
}

// Integers if every number was written as an integer; rows are contiguous.
struct JsonArray {
  JsonNumbers numbers;
  bool is_integer;
  std::vector<std::size_t> shape;  // empty for a number by itself
};

// Elements of one array, starting after a comma or the opening bracket. The text ends with a character
// that no number contains (0 after the last one), so that numbers can be read without checking for the end.
class JsonElements {
 public:
  JsonElements(const char* begin, const char* end, JsonNumber* out) : at_(begin), end_(end), first_(out), out_(out) {}

  static void skip_space(const char*& at) {
    while (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t') ++at;
  }

  // All elements up to the end, separated by commas. The first array of each depth
  // defines the length of all, the first number the depth of numbers; `shape()[0]` counts the elements.
  bool read_all() {
    shape_.assign(1, 0);
    do {
      if (!read_value(1)) return false;
      ++shape_[0];
    } while (take(','));
    return at_ == end_;
  }

  // A number that is not an element, or an array.
  bool read_one() { return read_value(0); }

  const char* at() const { return at_; }
  bool is_integer() const { return is_integer_; }
  std::size_t size() const { return static_cast<std::size_t>(out_ - first_); }
  const std::vector<std::size_t>& shape() const { return shape_; }

  void make_real() {
    if (is_integer_)
      for (JsonNumber* number = first_; number != out_; ++number) number->real = static_cast<double>(number->integer);
    is_integer_ = false;
  }

 private:
  static constexpr std::size_t kMaxDims = 16;
  static constexpr std::size_t kUnknown = static_cast<std::size_t>(-1);
  // Digits of a decimal number that fit into 64 bits, those that a double represents exactly, and its exact powers of 10.
  static constexpr std::ptrdiff_t kExactDigits = 20, kExactPowers = 23;
  static constexpr std::uint64_t kExactMantissa = std::uint64_t{1} << 53;
  static constexpr double kPowers[kExactPowers] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  static constexpr std::uint64_t kWholePowers[9] = {1,      10,      100,      1000,     10000,
                                                     100000, 1000000, 10000000, 100000000};

  bool take(char wanted) {
    skip_space(at_);
    if (*at_ != wanted || at_ >= end_) return false;
    ++at_;
    return true;
  }

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

  // Appends the digits from `at` on to the mantissa.
  static bool digits(const char*& at, std::uint64_t& mantissa) {
    const char* first = at;
    while ('0' <= *at && *at <= '9') mantissa = 10 * mantissa + static_cast<std::uint64_t>(*at++ - '0');
    return at != first;
  }

  // The same, eight at a time: each byte of a word contains a digit; pairs, fours and eights are summed.
  bool decimals(const char*& at, std::uint64_t& mantissa) const {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const char* first = at;
    for (int n = 8; n == 8 && end_ - at >= 8; at += n) {
      std::uint64_t word;
      std::memcpy(&word, at, 8);
      // Digits are 0x30 to 0x39: their upper half is 3, and stays 3 after adding 6.
      const std::uint64_t other = ((word & (word + 0x0606060606060606)) ^ 0x3030303030303030) & 0xF0F0F0F0F0F0F0F0;
      n = other == 0 ? 8 : __builtin_ctzll(other) / 8;
      if (n == 0) return at != first;
      word = (word - 0x3030303030303030) << (64 - 8 * n);
      word = word * 10 + (word >> 8);
      word = (word & 0x000000FF000000FF) * 0x000F424000000064 + ((word >> 16) & 0x000000FF000000FF) * 0x0000271000000001;
      mantissa = mantissa * kWholePowers[n] + (word >> 32);
      if (n < 8) {
        at += n;
        return true;
      }
    }
#endif
    return digits(at, mantissa) || at != first;
  }

  bool read_number() {
    const char* const first = at_;
    const char* at = first + (*first == '-');
    const char* const lead = at;
    std::uint64_t mantissa = 0, exponent = 0;
    if (!digits(at, mantissa) || (*lead == '0' && at - lead > 1)) return false;
    const char* const point = at;
    if (*at == '.') {
      ++at;
      if (!decimals(at, mantissa)) return false;
    }
    const char* const last = at;
    if (*at == 'e' || *at == 'E') {
      ++at;
      if (*at == '+' || *at == '-') ++at;
      if (!digits(at, exponent)) return false;
    }
    at_ = at;
    if (at == point) return add_integer(first);
    if (is_integer_) make_real();
    const auto places = last - point - 1;
    // Both are exact, so the quotient is the correctly rounded decimal number.
    if (at == last && last - lead < kExactDigits && mantissa <= kExactMantissa && places < kExactPowers) {
      const double size = static_cast<double>(mantissa) / kPowers[places];
      std::uint64_t bits;
      std::memcpy(&bits, &size, 8);
      bits ^= static_cast<std::uint64_t>(lead - first) << 63;  // no branch: signs are hard to foresee
      std::memcpy(&(out_++)->real, &bits, 8);
      return true;
    }
    return add_real(first);
  }

  // The number between `first` and here; false if it is out of range.
  bool add_integer(const char* first) {
    std::int64_t value = 0;
    if (std::from_chars(first, at_, value).ec != std::errc()) return false;
    if (is_integer_)
      (out_++)->integer = value;
    else
      (out_++)->real = static_cast<double>(value);
    return true;
  }

  bool add_real(const char* first) {
#ifdef __cpp_lib_to_chars
    return std::from_chars(first, at_, (out_++)->real).ec == std::errc();
#else
    return first == nullptr;  // a standard library that cannot read them
#endif
  }

  const char* at_;
  const char* end_;
  JsonNumber* first_;
  JsonNumber* out_;
  bool is_integer_ = true;
  std::vector<std::size_t> shape_;
  std::size_t leaf_ = kUnknown;
};

// Accepts an object {"name": number or nested arrays of numbers, ...} whose arrays are not ragged. Everything
// else is left to a complete reader, which also reports errors.
//
// Several threads read the elements of a long array. The cuts do not affect the result: each piece
// must consist of whole elements separated by commas, and so does the whole.
class JsonReader {
 public:
  using Object = std::vector<std::pair<std::string, JsonArray>>;

  // `*end` is 0; pieces are of `piece` characters or more.
  JsonReader(const char* begin, const char* end, std::size_t threads, std::size_t piece)
      : at_(begin), end_(end), threads_(std::max<std::size_t>(threads, 1)), piece_(std::max<std::size_t>(piece, 1)) {}

  std::optional<Object> read() {
    Object object;
    if (!take('{')) return std::nullopt;
    if (!take('}')) {
      do {
        std::string name;
        JsonArray array;
        if (!read_name(name) || !take(':') || !read_variable(array)) return std::nullopt;
        object.emplace_back(std::move(name), std::move(array));
      } while (take(','));
      if (!take('}')) return std::nullopt;
    }
    JsonElements::skip_space(at_);
    if (at_ != end_) return std::nullopt;
    return object;
  }

 private:
  struct Piece {
    const char* begin;
    const char* end;
    std::size_t n_numbers = 0;  // at most
    std::optional<JsonElements> elements = std::nullopt;
    bool good = false;
  };

  bool take(char wanted) {
    JsonElements::skip_space(at_);
    if (*at_ != wanted) return false;
    ++at_;
    return true;
  }

  bool read_name(std::string& name) {
    if (!take('"')) return false;
    const char* first = at_;
    while (*at_ != '"') {
      if (*at_ < ' ' || *at_ > '~' || *at_ == '\\') return false;
      ++at_;
    }
    name.assign(first, at_);
    return take('"');
  }

  bool read_variable(JsonArray& array) {
    JsonElements::skip_space(at_);
    // Arrays of numbers contain no quotation marks: they end before the next name.
    const void* quote = std::memchr(at_, '"', static_cast<std::size_t>(end_ - at_));
    const char* limit = quote == nullptr ? end_ : static_cast<const char*>(quote);
    const std::size_t n = std::min(threads_, static_cast<std::size_t>(limit - at_) / piece_);
    std::vector<Piece> pieces = n < 2 ? std::vector<Piece>() : cut(limit, n);
    return pieces.size() < 2 ? read_whole(limit, array) : read_pieces(pieces, array);
  }

  bool read_whole(const char* limit, JsonArray& array) {
    JsonNumbers numbers = allocate_numbers(1 + static_cast<std::size_t>(std::count(at_, limit, ',')));
    JsonElements elements(at_, limit, numbers.get());
    if (!elements.read_one()) return false;
    at_ = elements.at();
    array = {std::move(numbers), elements.is_integer(), elements.shape()};
    return true;
  }

  // The elements of the array that begins here, in at most n pieces; none if its end is not found.
  std::vector<Piece> cut(const char* limit, std::size_t n) const {
    std::size_t depth = 0;  // of numbers in an element
    const char* begin = at_;
    for (const char* at = at_; *at == '['; JsonElements::skip_space(at)) {
      if (depth++ == 0) begin = at + 1;
      ++at;
    }
    const char* end = limit;
    while (end != begin && *(end - 1) != ']') --end;
    if (depth-- == 0 || end == begin) return {};
    std::vector<Piece> pieces;
    for (std::size_t k = 1; k <= n; ++k) {
      const char* about = std::max(begin, at_ + (limit - at_) * static_cast<std::ptrdiff_t>(k) / static_cast<std::ptrdiff_t>(n));
      const char* comma = k == n ? end - 1 : next_comma(about, end - 1, depth);
      if (comma == end - 1 && k < n) continue;
      pieces.push_back({begin, comma});
      begin = comma + 1;
    }
    return pieces;
  }

  // The first comma from `at` on after this many closing brackets, ignoring white space.
  static const char* next_comma(const char* at, const char* end, std::size_t brackets) {
    std::size_t closed = 0;
    for (; at < end; ++at) {
      if (*at == ',' && closed >= brackets) return at;
      if (*at == ']')
        ++closed;
      else if (*at != ' ' && *at != '\n' && *at != '\r' && *at != '\t')
        closed = 0;
    }
    return end;
  }

  // Calls f for every piece, in separate threads as far as available.
  template <class F>
  static void each(std::vector<Piece>& pieces, F&& f) {
    std::vector<std::thread> threads;
    threads.reserve(pieces.size());
    std::size_t k = 1;
    try {
      for (; k < pieces.size(); ++k) threads.emplace_back(f, std::ref(pieces[k]));
    } catch (const std::system_error&) {  // no more threads: the rest is read here
    }
    f(pieces[0]);
    for (; k < pieces.size(); ++k) f(pieces[k]);
    for (std::thread& thread : threads) thread.join();
  }

  bool read_pieces(std::vector<Piece>& pieces, JsonArray& array) {
    each(pieces, [](Piece& one) { one.n_numbers = 1 + static_cast<std::size_t>(std::count(one.begin, one.end, ',')); });
    std::size_t n_numbers = 0;
    for (const Piece& one : pieces) n_numbers += one.n_numbers;
    array.numbers = allocate_numbers(n_numbers);
    JsonNumber* out = array.numbers.get();
    for (Piece& one : pieces) {
      one.elements.emplace(one.begin, one.end, out);
      out += one.n_numbers;
    }
    each(pieces, [](Piece& one) { one.good = one.elements->read_all(); });
    array.shape = pieces[0].elements->shape();
    array.shape[0] = 0;
    array.is_integer = true;
    for (const Piece& one : pieces) {
      const std::vector<std::size_t>& shape = one.elements->shape();
      // Pieces without a number for each comma leave gaps; arrays with elements have none.
      if (!one.good || one.elements->size() != one.n_numbers || shape.size() != array.shape.size() ||
          !std::equal(shape.begin() + 1, shape.end(), array.shape.begin() + 1))
        return false;
      array.shape[0] += shape[0];
      array.is_integer = array.is_integer && one.elements->is_integer();
    }
    if (!array.is_integer)
      for (Piece& one : pieces) one.elements->make_real();
    at_ = pieces.back().end + 1;
    return true;
  }

  const char* at_;
  const char* end_;
  const std::size_t threads_, piece_;
};

}  // namespace stansub
