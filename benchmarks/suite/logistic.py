"""Logistic regression for the samplers that are written for it: data, mode, and chains in threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from suite.base import Run, Task, Unavailable

FloatArray = NDArray[np.float64]

# Of every coefficient, in the workloads' programs.
_PRIOR_SD = 2.5
# Rows from which Newton's method starts, and rows that are worked on at once.
_FEW, _CHUNK = 20_000, 8192
_MAX_NEWTON = 50
# Squared distance to the mode in posterior sds, and rise of the negative log density that may be rounding: relative to
# the latter.
_CLOSE, _ROUNDING = 1e-16, 1e-10
_BATCHES = 40
# Of the time, for trial runs.
_TUNING = 0.3


@dataclass(frozen=True)
class Regression:
    """A posterior.

    Attributes
    ----------
    rows : ndarray, shape (n, d)
        (2 y - 1) (1, x), so that the log likelihood of a row z is -log(1 + exp(-z theta)).
    prior : ndarray, shape (d,)
        Prior precisions; the prior means are zero.
    """

    rows: FloatArray
    prior: FloatArray

    def scaled(self, scales: FloatArray) -> Regression:
        """The posterior of theta / scales."""
        return Regression(self.rows * scales, self.prior * scales**2)

    def derivatives(self, theta: FloatArray, pool: ThreadPoolExecutor) -> tuple[float, FloatArray, FloatArray]:
        """Negative log density, its gradient and its Hessian."""

        def part(first: int) -> tuple[float, FloatArray, FloatArray]:
            rows = self.rows[first : first + _CHUNK]
            eta = rows @ theta
            p = 0.5 - 0.5 * np.tanh(0.5 * eta)
            return float(np.logaddexp(0, -eta).sum()), -(p @ rows), (rows * (p * (1 - p))[:, None]).T @ rows

        # The parts have the cores: threads of the products as well would be in each other's way.
        with threadpool_limits(1, "blas"):
            values, gradients, hessians = zip(*pool.map(part, range(0, len(self.rows), _CHUNK)), strict=True)
        value = sum(values) + 0.5 * float(self.prior @ theta**2)
        return value, sum(gradients) + self.prior * theta, sum(hessians) + np.diag(self.prior)


@dataclass(frozen=True)
class Normal:
    """Normal approximation at the mode.

    Attributes
    ----------
    mode, gradient : ndarray, shape (d,)
        The mode, and what is left of the negative log density's gradient there.
    covariance : ndarray, shape (d, d)
    passes : float
        Evaluations of all the data that it took; gradient and Hessian count one each.
    """

    mode: FloatArray
    gradient: FloatArray
    covariance: FloatArray
    passes: float


def unavailable(task: Task) -> str:
    """Why the samplers cannot run, or nothing."""
    if task.workload.family != "logistic":
        return "written for logistic regression with fixed effects"
    return "" if find_spec("numba") else "numba is not installed (pip install numba)"


def prepare(task: Task) -> bool:
    """Compile the loops, unless they are in the cache or cannot be used."""
    return not unavailable(task) and bool(_kernels(task).compile_all())


def _kernels(task: Task) -> ModuleType:
    from numba import config

    # Where compiled loops are kept; read when they are defined.
    config.CACHE_DIR = config.CACHE_DIR or str(task.cache / "numba")
    from suite import kernels

    return kernels


def read(task: Task) -> Regression:
    """The regression of a workload's data."""
    from stansub.stan.data.formats import read_json

    data = read_json(task.data)
    signs = 2.0 * np.asarray(data["late" if "late" in data else "y"]) - 1.0
    return from_data(np.asarray(data["x"]), signs)


def from_data(x: FloatArray, signs: FloatArray) -> Regression:
    """A regression on covariates, shape (n, d - 1), of outcomes 1 and -1."""
    rows = np.column_stack([np.ones(len(x)), x]) * signs[:, None]
    return Regression(rows, np.full(rows.shape[1], _PRIOR_SD**-2))


def find_normal(regression: Regression, pool: ThreadPoolExecutor) -> Normal:
    """The mode by Newton's method, first on some of the rows.

    Raises
    ------
    Unavailable
        When it does not converge.
    """
    n = len(regression.rows)
    every = max(1, n // _FEW)
    few = Regression(regression.rows[::every], regression.prior / every)
    theta, passes = np.zeros(regression.rows.shape[1]), 0.0
    for part in (few, regression) if every > 1 else (regression,):
        share = len(part.rows) / n
        value, gradient, hessian = part.derivatives(theta, pool)
        passes += 2 * share
        for _ in range(_MAX_NEWTON):
            step = np.linalg.solve(hessian, gradient)
            if step @ gradient < _CLOSE * max(value, 1.0):
                break
            new = part.derivatives(theta - step, pool)
            passes += 2 * share
            while new[0] > value * (1 + _ROUNDING):
                step = step / 2
                new = part.derivatives(theta - step, pool)
                passes += 2 * share
            theta = theta - step
            value, gradient, hessian = new
        else:
            raise Unavailable("the mode was not found")
    return Normal(theta, gradient, np.linalg.inv(hessian), passes)


class Sampler(Protocol):
    """Chains of a sampler, by numbers."""

    def advance(self, number: int, draws: FloatArray) -> Any:
        """Fill ``draws``, shape (draw, d), with what comes next in a chain; returns the kernels' counts."""
        ...

    def tune(self, chains: Chains, until: float) -> int:
        """Choose what is to be chosen, on trial runs that are thrown away; returns the observations evaluated."""
        ...

    def theta(self, draws: FloatArray) -> FloatArray:
        """Draws in the coordinates of the program."""
        ...

    def about(self) -> str:
        """What was chosen."""
        ...


class Chains:
    """Chains of a sampler side by side in threads; the compiled loops hold no lock."""

    def __init__(self, pool: ThreadPoolExecutor, count: int) -> None:
        self.pool, self.count = pool, count

    def draws(
        self, sampler: Sampler, shape: tuple[int, int], *, stretch: int, until: float = np.inf
    ) -> tuple[FloatArray, list[Any], float]:
        """Draws, shape (chain, draw, d), the counts of each stretch of them, and seconds.

        Parameters
        ----------
        shape : tuple
            Draws a chain and dimensions.
        stretch : int
            Draws between two looks at the clock.
        until : float
            When to stop, by `time.perf_counter`; every chain keeps as many draws as the shortest.
        """
        store = np.empty((self.count, *shape))

        def chain(number: int) -> list[Any]:
            found = []
            for first in range(0, shape[0], stretch):
                found.append(sampler.advance(number, store[number, first : first + stretch]))
                if time.perf_counter() > until:
                    break
            return found

        began = time.perf_counter()
        found = list(self.pool.map(chain, range(self.count)))
        seconds = time.perf_counter() - began
        made = min(shape[0], stretch * min(map(len, found)))
        return store[:, :made], [counts for one in found for counts in one], seconds


def effective_share(draws: FloatArray) -> float:
    """Effective draws over draws of the worst coordinate, shape (chain, draw, d), by batch means.

    Good enough for tuning; figures are made by the suite.
    """
    length = draws.shape[1] // _BATCHES
    batches = draws[:, : _BATCHES * length].reshape(len(draws), _BATCHES, length, -1).mean(axis=2)
    return float(np.min(draws.var(axis=(0, 1)) / np.maximum(length * batches.var(axis=(0, 1)), 1e-300)))


def run(
    task: Task,
    build: Callable[[ModuleType, Regression, Normal, list[np.random.Generator]], Sampler],
    *,
    draws: int,
    stretch: int,
) -> Run:
    """Data, mode and tables, tuning, and as many draws a chain as asked for or as the time allows.

    Raises
    ------
    Unavailable
        For other workloads than logistic regressions, and where numba is missing.
    """
    if reason := unavailable(task):
        raise Unavailable(reason)
    kernels = _kernels(task)
    compile_s = kernels.compile_all()
    times = [time.perf_counter()]
    regression = read(task)
    n, dim = regression.rows.shape
    times.append(time.perf_counter())
    with ThreadPoolExecutor(task.chains) as pool:
        normal = find_normal(regression, pool)
        rngs = [np.random.default_rng([task.seed, number]) for number in range(task.chains)]
        sampler = build(kernels, regression, normal, rngs)
        times.append(time.perf_counter())
        chains = Chains(pool, task.chains)
        tuned = sampler.tune(chains, times[2] + _TUNING * task.seconds)
        times.append(time.perf_counter())
        until = times[2] + task.seconds
        offsets, counts, sampling = chains.draws(sampler, (draws, dim), stretch=stretch, until=until)
    if violations := sum(one.violations for one in counts):
        raise RuntimeError(f"{violations} bounds did not hold")
    theta = sampler.theta(offsets)
    load, setup, warmup = np.diff(times).tolist()
    evaluated = sum(one.evaluated for one in counts)
    return Run(
        draws={"alpha": theta[..., 0], "beta": theta[..., 1:]},
        load_s=load,
        setup_s=setup,
        warmup_s=warmup,
        sampling_s=sampling,
        warmup_passes=normal.passes + tuned / n,
        sampling_passes=evaluated / n,
        compile_s=compile_s,
        notes=[f"{sampler.about()}; {evaluated / offsets[..., 0].size:,.1f} single observations evaluated a draw"],
        versions={"numba": version("numba")},
    )
