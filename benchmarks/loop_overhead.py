"""What a step costs beside the evaluation of blocks: run ``python benchmarks/loop_overhead.py``.

The model is a small C library (needs a C compiler) whose block values cost next to nothing, so that the time per step
is the loop's own: proposal, random numbers, drawing blocks, test, bookkeeping. Asked, at 10 parameters: a step in a
batch takes at most 3 us, with control variates 5 us, and a decision called from Python 30 us.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from stansub._loop import CallbackEvaluator, Decider, Surrogate
from stansub.acceptance.decide import make_decider
from stansub.acceptance.rules import Geometric, make_test
from stansub.kernels.proposals import Proposal, RandomWalk, compiled, laplace_pcn

SOURCE = """
#include <stdint.h>
int shared(void *self, const double *theta, double *value) {
  (void)self;
  *value = -0.5 * theta[0] * theta[0];
  return 0;
}
int blocks(void *self, const double *theta, double shared, const int32_t *which, int32_t n, double *out) {
  const double *x = self;
  (void)shared;
  for (int32_t k = 0; k < n; ++k) out[k] = theta[1] * x[which[k]];
  return 0;
}
"""


def compile_model(folder: Path) -> ctypes.CDLL:
    source, library = folder / "model.c", folder / "model.so"
    source.write_text(SOURCE)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def best_of(repeats: int, run: Callable[[], None]) -> float:
    """Shortest time of several runs, seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def batch(decider: Decider, n_steps: int, proposal: Proposal, rng: np.random.Generator) -> None:
    dim = decider.theta.size
    capsule = rng.bit_generator.capsule
    flags = [np.zeros(n_steps, np.uint8) for _ in range(5)]
    decider.batch(
        n_steps,
        compiled(proposal),
        capsule,
        capsule,
        0.0,
        theta=np.zeros((n_steps, dim)),
        accepted=flags[0],
        n_obs_used=np.zeros(n_steps, np.int64),
        n_looks=np.zeros(n_steps, np.int32),
        undecided=flags[1],
        log_ratio=np.zeros(n_steps),
        audited=flags[2],
        wrong=flags[3],
        bound_violated=flags[4],
        stop=np.zeros(1, np.int32),
        progress=np.zeros(4, np.int64),
    )


def decide(decider: Decider, n_steps: int, proposal: Proposal, rng: np.random.Generator) -> None:
    capsule, theta, proposals = rng.bit_generator.capsule, decider.theta, compiled(proposal)
    for _ in range(n_steps):
        proposed, log_ratio = proposals.draw(capsule, theta)
        if decider.decide(proposed, np.log1p(-rng.random()), log_ratio, capsule).accepted:
            theta = proposed


def control_variates(x: np.ndarray, dim: int, order: int) -> np.ndarray:
    """Coefficients of blocks theta[1] * x, a little off so that remainders are not 0."""
    width = dim if order == 1 else dim + dim * (dim + 1) // 2
    rows = np.random.default_rng(3).normal(0.0, 1e-6, (len(x), width))
    rows[:, 1] += x
    return rows.astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dim", type=int, default=10)
    parser.add_argument("--blocks", type=int, default=15_625)
    parser.add_argument("--steps", type=int, default=100_000)
    options = parser.parse_args()

    x = np.random.default_rng(1).normal(1.0, 0.1, options.blocks)
    walk = RandomWalk(np.eye(options.dim))
    pcn = laplace_pcn(np.zeros(options.dim), np.eye(options.dim) / options.blocks, 0.5)
    cases: list[tuple[str, int, Proposal, int]] = [
        ("random walk, first look at 5 blocks", 5, walk, 0),
        ("random walk, first look at 50 blocks", 50, walk, 0),
        ("pCN, first look at 10 blocks", 10, pcn, 0),
        ("pCN, 10 blocks, first order", 10, pcn, 1),
        ("pCN, 10 blocks, second order", 10, pcn, 2),
    ]
    print(f"{options.blocks} blocks, {options.dim} parameters, microseconds a step")
    print(f"{'':38} {'blocks':>8} {'batch':>8} {'Python':>8}")
    with tempfile.TemporaryDirectory() as folder:
        library = compile_model(Path(folder))
        shared, blocks = (ctypes.cast(f, ctypes.c_void_p).value for f in (library.shared, library.blocks))
        evaluator = CallbackEvaluator(options.dim, options.blocks, x.ctypes.data, shared, blocks)
        for name, first, proposal, order in cases:
            test = make_test("austerity", looks=Geometric(first=first))
            extra = {}
            if order:
                rows = control_variates(x, options.dim, order)
                extra = {"surrogate": Surrogate([np.zeros(options.dim)], (rows,))}
            decider = make_decider(evaluator, np.ones(options.blocks, np.int32), test, **extra)
            rng = np.random.default_rng(2)
            decider.reset(np.zeros(options.dim))
            in_batch = best_of(5, partial(batch, decider, options.steps, proposal, rng))
            python = best_of(3, partial(decide, decider, options.steps // 10, proposal, rng)) * 10
            used = decider.n_obs_used / decider.n_decisions
            print(f"{name:38} {used:8.1f} {1e6 * in_batch / options.steps:8.2f} {1e6 * python / options.steps:8.2f}")


if __name__ == "__main__":
    main()
