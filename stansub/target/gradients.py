"""The log density and its derivatives from some or all blocks of a population, in several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from types import TracebackType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from stansub.progress import Progress
from stansub.target.factors import Evaluator, Population
from stansub.types import FloatArray

T = TypeVar("T")
R = TypeVar("R")

# Observations per task: enough to amortise its overhead, few enough for autodiff to need little memory. Sums are cut at
# the same places for any number of threads, so that they round alike.
_TASK = 1 << 13

# Step of gradient differences as a share of a standard deviation. The relative error is of the order of its square
# times the error of a quadratic within an sd; rounding is far smaller.
STEP = 0.01


class Team:
    """Threads that evaluate one population, each with its evaluator; a context manager.

    Parameters
    ----------
    progress : Progress, optional
        Checked before each task; records the progress of Hessians.

    Attributes
    ----------
    observations : int
        Observations whose gradients have been evaluated so far.
    """

    def __init__(self, population: Population, *, threads: int = 1, progress: Progress | None = None) -> None:
        self.population = population
        self.threads = max(1, threads)
        self.progress = progress or Progress()
        self.observations = 0
        self._pool = ThreadPoolExecutor(max_workers=self.threads)
        self._evaluators: SimpleQueue[Evaluator] = SimpleQueue()
        for _ in range(self.threads):
            self._evaluators.put(population.evaluator())

    def __enter__(self) -> Team:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)

    def map(
        self,
        work: Callable[[Evaluator, T], R],
        items: Iterable[T],
        *,
        watch: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[R]:
        """Return ``work(evaluator, item)`` for each item, in the order of the items.

        ``watch`` is called in this thread with the numbers of finished tasks and of all tasks.
        """

        def one(item: T) -> R:
            self.progress.check()
            evaluator = self._evaluators.get()
            try:
                return work(evaluator, item)
            finally:
                self._evaluators.put(evaluator)

        tasks = list(items)
        # Two tasks (one of which is mostly the global part) are faster here than in threads.
        results = map(one, tasks) if len(tasks) <= 2 else self._pool.map(one, tasks)
        made: list[R] = []
        for result in results:
            made.append(result)
            watch(len(made), len(tasks))
        return made

    def chunks(self, which: NDArray[np.int32]) -> list[NDArray[np.int32]]:
        """Return the blocks ``which`` in parts of about equal size, one per task."""
        n_tasks = -(-len(which) * self.population.blocks.size // _TASK)
        return np.array_split(which, min(n_tasks, len(which)))


class ParallelEvaluator:
    """All blocks evaluated by a team, with an evaluator's interface and values."""

    def __init__(self, team: Team) -> None:
        self.team = team
        n_blocks = len(team.population.blocks)
        self._parts = np.array_split(np.arange(n_blocks, dtype=np.int32), max(1, min(4 * team.threads, n_blocks)))

    def global_log_density(self, theta: FloatArray) -> float:
        """Return the log density less the likelihood; -inf where undefined."""
        return self.team.map(lambda evaluator, at: evaluator.global_log_density(at), [theta])[0]

    def block_log_lik(self, theta: FloatArray) -> FloatArray:
        """Return log likelihoods of all blocks; -inf where undefined."""
        return np.concatenate(self.team.map(lambda evaluator, part: evaluator.block_log_lik(theta, part), self._parts))


class Objective:
    """Log density from the blocks ``which``: global part plus ``weight`` times their log likelihoods.

    Parameters
    ----------
    which : ndarray of int32, optional
        Blocks, without repetition; by default all, which gives the log density itself.
    """

    def __init__(self, team: Team, which: NDArray[np.int32] | None = None, *, weight: float | None = None) -> None:
        n_blocks = len(team.population.blocks)
        self.team = team
        self.dim = team.population.dim
        self.which = np.arange(n_blocks, dtype=np.int32) if which is None else which
        self.weight = n_blocks / len(self.which) if weight is None else weight
        self._chunks = team.chunks(self.which)
        self._n_obs = int(team.population.blocks.sizes[self.which].sum())

    def __call__(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """Return log density and gradient, shape (dim,); -inf and nan where undefined."""
        values, gradients = self.many(theta[np.newaxis])
        return float(values[0]), gradients[0]

    def many(
        self, points: FloatArray, *, watch: Callable[[int, int], None] = lambda done, total: None
    ) -> tuple[FloatArray, FloatArray]:
        """Return log densities, shape (k,), and gradients, shape (k, dim), at ``points``, shape (k, dim).

        ``watch`` is passed to `Team.map`.
        """
        # Every part includes the global part besides its blocks; the first has no blocks.
        subsets = [np.empty(0, np.int32), *self._chunks]
        tasks = [(theta, chunk) for theta in points for chunk in subsets]

        def evaluate(evaluator: Evaluator, task: tuple[FloatArray, NDArray[np.int32]]) -> tuple[float, FloatArray]:
            return evaluator.subset_log_density_gradient(*task)

        parts = self.team.map(evaluate, tasks, watch=watch)
        self.team.observations += len(points) * self._n_obs
        values = np.array([value for value, _ in parts]).reshape(len(points), -1)
        gradients = np.array([gradient for _, gradient in parts]).reshape(len(points), -1, self.dim)
        with np.errstate(over="ignore", invalid="ignore"):
            value = values[:, 0] + self.weight * (values[:, 1:] - values[:, :1]).sum(1)
            gradient = gradients[:, 0] + self.weight * (gradients[:, 1:] - gradients[:, :1]).sum(1)
        defined = np.isfinite(gradient).all(1) & ~np.isnan(value)
        return np.where(defined, value, -np.inf), np.where(defined[:, np.newaxis], gradient, np.nan)

    def value(self, theta: FloatArray) -> float:
        """Return the log density; -inf where undefined."""
        return self(theta)[0]

    @property
    def hessian_passes(self) -> float:
        """Return the cost of a Hessian in gradients."""
        return 2 * self.dim

    @property
    def curvature(self) -> str:
        """Return how Hessians are computed, in words."""
        return f"{2 * self.dim} gradients of all the data"

    def hessian(self, theta: FloatArray, steps: FloatArray) -> FloatArray:
        """Return central differences of gradients, shape (dim, dim), symmetrised; nan where gradients are undefined.

        The team's progress records how many of the 2 dim gradients are done.
        """
        up, down = theta + np.diag(steps), theta - np.diag(steps)
        rows = np.empty((self.dim, self.dim))
        group = 8 * self.team.threads
        for first in range(0, self.dim, group):
            part = slice(first, min(first + group, self.dim))
            points = np.concatenate([up[part], down[part]])

            def watch(done: int, tasks: int, before: int = 2 * first, n: int = len(points)) -> None:
                self.team.progress.advance(before + n * done // tasks, 2 * self.dim)

            _, gradients = self.many(points, watch=watch)
            above, below = np.split(gradients, 2)
            # The actual step, after rounding, is the divisor.
            with np.errstate(over="ignore", invalid="ignore"):
                rows[part] = (above - below) / np.diag(up - down)[part, np.newaxis]
        return np.asarray((rows + rows.T) / 2)


def differenced(gradient: Callable[[FloatArray], FloatArray], theta: FloatArray, steps: FloatArray) -> FloatArray:
    """Return the Hessian from central differences of gradients, shape (dim, dim), symmetrised.

    It is NaN where both gradients are infinite, and infinite where their quotients are too large.
    """
    up, down = theta + np.diag(steps), theta - np.diag(steps)
    # The actual step, after rounding, is the divisor.
    pairs = zip(up, down, np.diag(up - down), strict=True)
    with np.errstate(invalid="ignore", over="ignore"):  # the result says so
        rows = np.array([(gradient(above) - gradient(below)) / step for above, below, step in pairs])
    return np.asarray((rows + rows.T) / 2)


def default_steps(theta: FloatArray) -> FloatArray:
    """Return difference steps for unknown scales, shape (dim,)."""
    return np.asarray(np.cbrt(np.finfo(float).eps) * np.maximum(1.0, np.abs(theta)))


def scaled_steps(theta: FloatArray, hessian: FloatArray) -> FloatArray:
    """Return steps of a hundredth of the conditional standard deviations, if the curvature gives them; shape (dim,)."""
    curvature = -np.diag(hessian)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = STEP / np.sqrt(curvature)
    # Smaller steps would be lost in the rounding of the parameters; larger ones would leave the neighbourhood where the
    # log density is nearly flat.
    scaled = np.clip(scaled, 1e-10 * np.abs(theta), 0.05 * np.maximum(1.0, np.abs(theta)))
    return np.where((curvature > 0) & np.isfinite(scaled), scaled, default_steps(theta))
