"""The crossed logistic regression beside an exact Gibbs sampler with Pólya-Gamma variables.

python benchmarks/multilevel/gibbs.py --size full --seconds 300 --json gibbs.json

Given omega_i ~ PG(1, eta_i) for each observation (Polson, Scott and Windle 2013), intercept, coefficients and effects
are normal together, and are drawn by one Cholesky factor; given the effects, the logarithm of each scale is drawn by
slice sampling (Neal 2003). Of either side, core-seconds are all processor time, set-up and warmup included, and ESS is
the bulk ESS of the slowest parameter.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from polyagamma import random_polyagamma

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent))

from rows import ROWS, SIZES  # noqa: E402
from run import Side, differences, machine, ours, summarised  # noqa: E402
from suite.figures import Draws, parameters  # noqa: E402

Array = NDArray[np.float64]
NAMES = ("alpha", "beta", "tau", "omega", "u", "v_raw")
CHAINS, WARMUP = 4, 50
# Precisions of the normal priors of the intercept and of coefficients.
_ALPHA, _BETA = 1 / 4, 1.0


class Crossed:
    """Conditional distributions of the crossed logistic regression."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.x = np.column_stack([np.ones(data["N"]), data["x"]])
        self.g, self.h = data["g"] - 1, data["h"] - 1
        self.p, self.j, self.m = self.x.shape[1], data["J"], data["M"]
        self.pair = self.g * self.m + self.h
        self.linear = self._sums(data["y"] - 0.5)

    @property
    def dim(self) -> int:
        """Coefficients and effects."""
        return self.p + self.j + self.m

    def eta(self, b: Array) -> Array:
        """Linear predictors."""
        u, v = b[self.p : self.p + self.j], b[self.p + self.j :]
        return np.asarray(self.x @ b[: self.p] + u[self.g] + v[self.h])

    def _sums(self, weights: Array) -> Array:
        """Weighted sums of the columns of the whole design."""
        groups = (np.bincount(one, weights, minlength=n) for one, n in ((self.g, self.j), (self.h, self.m)))
        return np.concatenate([weights @ self.x, *groups])

    def precision(self, weights: Array) -> Array:
        """The likelihood's precision, given the Pólya-Gamma variables."""
        p, own = self.p, slice(self.p, self.p + self.j)
        other = slice(self.p + self.j, None)
        found = np.zeros((self.dim, self.dim))
        for k in range(p):
            found[k] = found[:, k] = self._sums(weights * self.x[:, k])
        diagonal = self._sums(weights)[p:]
        found[np.arange(p, self.dim), np.arange(p, self.dim)] = diagonal
        both = np.bincount(self.pair, weights, minlength=self.j * self.m).reshape(self.j, self.m)
        found[own, other], found[other, own] = both, both.T
        return found

    def draw(self, rng: np.random.Generator, b: Array, tau: float, omega: float) -> tuple[Array, float, float]:
        """One step of all."""
        precision = self.precision(random_polyagamma(z=self.eta(b), random_state=rng))
        prior = [_ALPHA, *[_BETA] * (self.p - 1), *[tau**-2] * self.j, *[omega**-2] * self.m]
        precision[np.diag_indices(self.dim)] += prior
        root = np.linalg.cholesky(precision)
        mean = scipy.linalg.cho_solve((root, True), self.linear)
        b = mean + scipy.linalg.solve_triangular(root, rng.standard_normal(self.dim), lower=True, trans="T")
        u, v = b[self.p : self.p + self.j], b[self.p + self.j :]
        return b, scale(rng, u, tau), scale(rng, v, omega)


def scale(rng: np.random.Generator, effects: Array, now: float) -> float:
    """Draw the scale of effects, with a half-normal prior, by slices of the density of its logarithm."""
    n, squares = len(effects), float(effects @ effects)

    def log_density(t: float) -> float:
        return -(n - 1) * t - 0.5 * squares * np.exp(-2 * t) - 0.5 * np.exp(2 * t)

    return float(np.exp(slice_draw(rng, log_density, np.log(now), 3 / np.sqrt(n))))


def slice_draw(rng: np.random.Generator, log_density: Callable[[float], float], here: float, width: float) -> float:
    """Move by slice sampling with steps out and shrinking (Neal 2003, figures 3 and 5)."""
    level = log_density(here) - rng.exponential()
    low = here - width * rng.random()
    high = low + width
    while log_density(low) > level:
        low -= width
    while log_density(high) > level:
        high += width
    while log_density(there := rng.uniform(low, high)) <= level:
        low, high = (there, high) if there < here else (low, there)
    return there


def gibbs(data: dict[str, Any], seconds: float, seed: int) -> Side:
    """Chains of equal length that take this many seconds of wall time together."""
    model, began, spent = Crossed(data), time.perf_counter(), time.process_time()
    rngs = np.random.default_rng(seed).spawn(CHAINS)
    states = [(0.1 * rng.standard_normal(model.dim), 0.5, 0.5) for rng in rngs]
    kept: list[list[tuple[Array, float, float]]] = []
    while time.perf_counter() - began < seconds or len(kept) < WARMUP + 10:
        states = [model.draw(rng, *state) for rng, state in zip(rngs, states, strict=True)]
        kept.append(states)
    cores = time.process_time() - spent
    draws = named(model, kept[WARMUP:])
    note = f"{len(kept) - WARMUP} draws a chain after {WARMUP}"
    return summarised(draws, seconds=time.perf_counter() - began, set_up=0.0, cores=cores, note=note)


def named(model: Crossed, kept: Sequence[Sequence[tuple[Array, float, float]]]) -> Draws:
    """Draws by the program's parameters."""
    b, tau, omega = (np.array([[state[k] for state in states] for states in kept]).swapaxes(0, 1) for k in range(3))
    ends = (1, model.p, model.p + model.j)
    alpha, beta, u, v = np.split(b, ends, axis=2)
    values = alpha[:, :, 0], beta, tau, omega, u, v / omega[:, :, np.newaxis]
    return parameters(dict(zip(NAMES, values, strict=True)), NAMES)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--size", choices=SIZES, default="reduced")
    parser.add_argument("--seconds", type=float, default=120.0, help="of the Gibbs sampler; 120 by default")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    row = ROWS["crossed"]
    data = row.data(options.size)
    with tempfile.TemporaryDirectory() as folder:
        file = row.stored(data, folder)
        sides = {"stansub": ours(row, file, NAMES, 3600.0), "gibbs": gibbs(data, options.seconds, seed=1)}
    for name, one in sides.items():
        figures = f"smallest ESS {one.ess:.0f} ({one.slowest}), R-hat {one.r_hat:.3f}, {one.per_core:.3g} a core-s"
        print(f"{name}: {one.note}; {one.cores:.0f} core-s, {figures}")
    found = differences(sides["stansub"], sides["gibbs"])
    gaps = f"means {found['mean']:.3f} sd (z {found['mean_z']:.1f}), log sds {found['sd']:.3f} (z {found['sd_z']:.1f})"
    print(f"ratio {sides['stansub'].per_core / sides['gibbs'].per_core:.3g}; largest differences: {gaps}")
    if options.json:
        record = {"machine": machine(), "size": options.size, "differences": found}
        options.json.write_text(json.dumps(record | {name: side.record() for name, side in sides.items()}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
