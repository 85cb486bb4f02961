// Values of draws as the program writes them: constrained parameters, and quantities computed from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "evaluators.hpp"

namespace stansub {

// A program that writes its values for one draw, for use in one thread.
class Writer {
 public:
  // Keeps those of `n_written` values that are in `columns`.
  Writer(const void* model, void* rng, BridgeStan::ParamConstrain write, BridgeStan::FreeError free_error,
         bool include_tp, bool include_gq, std::size_t n_written, std::vector<std::int64_t> columns)
      : model_(model),
        rng_(rng),
        write_(write),
        free_error_(free_error),
        include_tp_(include_tp),
        include_gq_(include_gq),
        columns_(std::move(columns)),
        written_(n_written) {
    for (const std::int64_t column : columns_)
      if (column < 0 || static_cast<std::size_t>(column) >= n_written)
        throw std::invalid_argument("there is no such column");
  }

  std::size_t width() const { return columns_.size(); }

  // Writes n rows of kept values for n draws of dim numbers, and returns how many it came to before the program raised an
  // error, whose message is written, or somebody asked for a stop.
  std::int64_t write(const double* theta, std::size_t dim, std::int64_t n, double* out, const std::int32_t* stop,
                     std::string& message) {
    for (std::int64_t draw = 0; draw < n; ++draw, theta += dim, out += width()) {
      if (__atomic_load_n(stop, __ATOMIC_RELAXED) != 0) return draw;
      char* error = nullptr;
      const int status = write_(model_, include_tp_, include_gq_, theta, written_.data(), rng_, &error);
      if (status != 0) message = error != nullptr ? error : "unknown error";
      if (error != nullptr) free_error_(error);
      if (status != 0) return draw;
      for (std::size_t k = 0; k < width(); ++k) out[k] = written_[columns_[k]];
    }
    return n;
  }

 private:
  const void* model_;
  void* rng_;
  BridgeStan::ParamConstrain write_;
  BridgeStan::FreeError free_error_;
  bool include_tp_, include_gq_;
  std::vector<std::int64_t> columns_;
  std::vector<double> written_;
};

}  // namespace stansub
