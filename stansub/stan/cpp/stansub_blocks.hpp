// External functions of the programs that stansub.stan.rewrite writes: they name the blocks of observations over
// which the likelihood runs and take the blocks' log likelihoods.
//
// Compiled as the user header of the program (stanc --allow-undefined; make USER_HEADER=...), which puts it before the
// generated code. All arguments are int or double and the generated code calls without qualification, so the functions
// live in the global namespace and serve a program of any name. Nothing of Stan is needed here.
//
// The state belongs to the thread: set the blocks and evaluate in one and the same thread.
#pragma once

#include <iosfwd>

namespace {

struct StansubBlocks {
  const int* starts = nullptr;
  const int* ends = nullptr;
  int n = -1;             // -1: no subset is set, the likelihood runs over one block of all units
  double* out = nullptr;  // log likelihood of each block, or nowhere to put it
  int units = 0;          // how many units the program last announced
};

thread_local StansubBlocks stansub_blocks;

}  // namespace

extern "C" {

// Restrict the likelihood to `n` blocks: block k has the units starts[k] to ends[k], counted from 1, both included. The
// arrays are not copied. Evaluating generated quantities writes the log likelihood of block k to out[k] unless `out` is
// null; where an `if` of the program skips the likelihood nothing is written. n = 0 leaves the global part alone and
// n = -1 gives back the program as it was, all units and no output. Setting blocks forgets the number of units.
__attribute__((visibility("default"))) void stansub_set_blocks(const int* starts, const int* ends, int n,
                                                               double* out) {
  const int units = n < 0 ? stansub_blocks.units : 0;
  stansub_blocks = {starts, ends, n, out, units};
}

// Number of units of the likelihood that the program announced when this thread last evaluated it; 0 if it did not get
// there since blocks were set.
__attribute__((visibility("default"))) int stansub_n_units(void) { return stansub_blocks.units; }

}  // extern "C"

// What the program calls. Stan passes the stream of its print statements last.

static inline int stansub_n_blocks(const int& n, std::ostream*) {
  stansub_blocks.units = n > 0 ? n : 0;
  return stansub_blocks.n >= 0 ? stansub_blocks.n : n > 0;
}

static inline int stansub_start(const int& block, std::ostream*) {
  return stansub_blocks.n >= 0 ? stansub_blocks.starts[block - 1] : 1;
}

static inline int stansub_end(const int& block, const int& n, std::ostream*) {
  return stansub_blocks.n >= 0 ? stansub_blocks.ends[block - 1] : n;
}

static inline void stansub_put(const int& block, const double& log_lik, std::ostream*) {
  if (stansub_blocks.n >= 0 && stansub_blocks.out != nullptr) {
    stansub_blocks.out[block - 1] = log_lik;
  }
}
