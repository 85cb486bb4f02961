"""How many draws, and what safety factor, do learned bounds need? Generalised linear models of numpy, blocks of 32.

python benchmarks/learned_bounds.py

Bounds c_b are learned from remainders at some draws of the normal approximation, by a multiple of the largest of each
block, with or without the median over the blocks as the least (see `stansub.tuning.bound_learning`). For moves
between other draws it prints the blocks that a factorised decision picks, and by how much bounds that are exceeded
raise the acceptance probability, on average.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[np.float64]
SIZE, TRIALS = 32, 160
# Draws, factor, and whether the median over the blocks is the least.
SETTINGS = [(8, 3.0, False), (8, 3.0, True), (32, 1.0, True), (32, 3.0, False), (32, 3.0, True), (64, 2.0, True)]


def remainders(
    z: Array, y: Array, log_lik: Callable[[Array, Array], Array], mean: Callable[[Array], Array], rate: float
) -> Callable[[Array], Array]:
    """How far the second-order expansions of all blocks at the mode are off, for points as columns.

    ``rate`` is 1 where the variance is the mean (Poisson), and 0 where it is p (1 - p).
    """
    mode, prior = np.zeros(z.shape[1]), 0.1 * np.eye(z.shape[1])

    def weights(eta: Array) -> Array:
        return np.asarray(mean(eta) * (1 - (1 - rate) * mean(eta)))

    for _ in range(50):
        eta = np.clip(z @ mode, -20, 20)
        step = np.linalg.solve(z.T @ (weights(eta)[:, None] * z) + prior, z.T @ (y - mean(eta)) - 0.1 * mode)
        mode += step * min(1.0, 1.0 / np.abs(step).max())
    eta = z @ mode
    curvature = weights(eta)[:, None]
    cholesky = np.linalg.cholesky(np.linalg.inv(z.T @ (curvature * z) + prior))
    along, at = z @ cholesky, log_lik(eta[:, None], y[:, None])

    def off(w: Array) -> Array:
        parts = []
        for column in np.array_split(w, max(1, w.shape[1] // 16), axis=1):
            change = along @ column
            expansion = (y - mean(eta))[:, None] * change - 0.5 * curvature * change**2
            rest = log_lik(eta[:, None] + change, y[:, None]) - at - expansion
            parts.append(np.add.reduceat(rest, np.arange(0, len(y), SIZE)))
        return np.concatenate(parts, axis=1)

    return off


def posteriors(rng: np.random.Generator) -> dict[str, tuple[Callable[[Array], Array], int]]:
    """Remainders and dimension by name."""

    def design(n: int, dim: int, tails: float = np.inf) -> Array:
        x = rng.standard_normal((n, dim - 1)) if tails == np.inf else rng.standard_t(tails, (n, dim - 1))
        return np.column_stack([np.ones(n), x])

    def logistic(z: Array, intercept: float = 0.0) -> Callable[[Array], Array]:
        slopes = np.r_[intercept, rng.standard_normal(z.shape[1] - 1) / np.sqrt(z.shape[1])]
        y = (rng.random(len(z)) < expit(z @ slopes)).astype(float)
        return remainders(z, y, lambda eta, y: y * eta - np.logaddexp(0, eta), expit, 0.0)

    def poisson(z: Array) -> Callable[[Array], Array]:
        y = rng.poisson(np.exp(z @ rng.standard_normal(z.shape[1]) * 0.3)).astype(float)
        return remainders(z, y, lambda eta, y: y * eta - np.exp(eta), np.exp, 1.0)

    return {
        "logistic, N = 1e4, d = 11": (logistic(design(10_000, 11)), 11),
        "logistic, N = 1e5, d = 11": (logistic(design(100_000, 11)), 11),
        "logistic, t(3) covariates": (logistic(design(50_000, 11, 3.0)), 11),
        "logistic, 1 in 150": (logistic(design(50_000, 11), -5.0), 11),
        "logistic, N = 2e4, d = 51": (logistic(design(20_000, 51)), 51),
        "Poisson, N = 5e4, d = 8": (poisson(design(50_000, 8)), 8),
    }


def main() -> None:
    rng = np.random.default_rng(1)
    print(f"| posterior | acceptance | {' | '.join(_head(*one) for one in SETTINGS)} |")
    print("|---" * (2 + len(SETTINGS)) + "|")
    for name, (off, dim) in posteriors(rng).items():
        w, v = rng.standard_normal((dim, 64)), rng.standard_normal((dim, 2 * TRIALS))
        ratios = np.abs(off(w)) / np.linalg.norm(w, axis=0) ** 3
        cubes = np.linalg.norm(v, axis=0) ** 3
        r, factor = np.diff(off(v).reshape(-1, TRIALS, 2))[..., 0], cubes.reshape(TRIALS, 2).sum(1)
        lost = np.maximum(0, -r)
        exact, cells = np.exp(-lost.sum(0)), []
        for n, times, pooled in SETTINGS:
            largest = ratios[:, :n].max(1)
            bounds = times * np.maximum(largest, np.median(largest) if pooled else 0)[:, None] * factor
            error = np.mean(np.exp(-np.minimum(lost, bounds).sum(0)) - exact)
            cells.append(f"{bounds.sum(0).mean():.2g}, {error:.1g}")
        print(f"| {name} | {exact.mean():.3f} | {' | '.join(cells)} |")


def _head(n: int, times: float, pooled: bool) -> str:
    return f"{n} draws, x {times:g}{'' if pooled else ', no median'}"


if __name__ == "__main__":
    main()
