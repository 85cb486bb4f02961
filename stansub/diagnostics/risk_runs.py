"""Measured runs: a random walk from a given start, with its running means recorded."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stansub import clock
from stansub._loop import Decider
from stansub.diagnostics.risk_functions import MEANS, VARIANCES, Functions
from stansub.kernels.base import BatchControl, Records, totals_of
from stansub.kernels.metropolis import MetropolisHastings
from stansub.kernels.proposals import RandomWalk
from stansub.run.state import Totals
from stansub.stan.toolchain.library import Rng
from stansub.types import FloatArray

# Index of the setting, and of the repeat.
Key = tuple[int, int]

# A batch between two records is this share of the steps before it, so records are even on a logarithmic axis.
_BATCH, _SHORTEST, _LONGEST = 0.02, 10, 5000

# Positions at which quantities are evaluated; when there are twice as many, every other one is dropped.
_POSITIONS = 250

# Quantities evaluated, and decisions audited, between two checks of the clock and of Ctrl-C.
_PIECE = 25


@dataclass(frozen=True)
class Budget:
    """Length of a run, which ends when either limit is reached."""

    seconds: float
    """Processor time of the steps."""
    steps: int

    @property
    def axis(self) -> str:
        """Return the unit of the budget."""
        return "seconds" if math.isfinite(self.seconds) else "steps"


@dataclass(frozen=True)
class Trajectory:
    """Record of a finished run."""

    axes: dict[str, FloatArray]
    """By "seconds", "passes" and "steps", the cost from the start to each record, shape (n_notes,)."""
    means: dict[str, FloatArray]
    """By group of test functions, running means at each record, shape (n_notes, n_functions)."""
    totals: Totals
    """Counts over the measured steps."""
    audit: Totals
    """Counts over the audited steps that follow."""

    def at(self, axis: str, points: FloatArray, what: str) -> FloatArray:
        """Return means at the last record not after each point, shape (n_points, n_functions)."""
        notes = np.searchsorted(self.axes[axis], points * (1 + 1e-12), side="right") - 1
        return self.means[what][np.maximum(notes, 0)]


class Run:
    """A run, advanced batch by batch: measured steps, then audited steps, then the quantities.

    Only the measured steps count in time and evaluations. Time is the thread's processor time, which equals wall time
    on a free core and excludes other processes.

    Parameters
    ----------
    decider : Decider
        The run's own, at the start.
    proposal : RandomWalk
        Fixed during the run.
    functions : Functions
        Functions whose means are recorded.
    centre : ndarray, shape (n_parameters,)
        True means, about which deviations are squared.
    audit : float
        Audited steps as a share of the measured ones.
    rng, audit_rng : Generator
        For the steps, and for choosing audits (unused, because all are audited).
    quantity_rng : Rng
        For generated quantities.
    n_observations : int
        Observations per pass.
    stop : ndarray of int32, shape (1,)
        Set to 1 to stop all runs after the current step.
    """

    def __init__(
        self,
        decider: Decider,
        proposal: RandomWalk,
        functions: Functions,
        centre: FloatArray,
        *,
        budget: Budget,
        audit: float,
        rng: np.random.Generator,
        audit_rng: np.random.Generator,
        quantity_rng: Rng,
        n_observations: int,
        stop: NDArray[np.int32],
    ) -> None:
        self._kernel, self._proposal, self._functions = MetropolisHastings(decider), proposal, functions
        self._budget, self._audit_share = budget, audit
        self._rng, self._audit_rng, self._quantity_rng = rng, audit_rng, quantity_rng
        self._n_observations, self._stop = n_observations, stop
        self._buffer = Records.allocate(_LONGEST, self._kernel.dim, self._kernel.stats)
        self._counters = np.zeros(4, dtype=np.int64)
        self._totals, self._audit = Totals(), Totals()
        self._centre = centre
        self._values = self._deviations(np.array(decider.theta))
        self._sums = np.zeros_like(self._values)
        self._notes: list[tuple[float, float, float]] = []
        self._means: list[FloatArray] = []
        self._positions = _Positions()
        self._evaluated: list[dict[str, FloatArray]] = []

    def advance(self) -> bool:
        """Do the next piece; return False if the run has finished or was stopped."""
        if self._stop[0]:
            return False
        if self._left > 0:
            self._measure()
        elif self._audit["n_steps"] < self._n_audited:
            self._steps(self._audit, min(_PIECE, self._n_audited - self._audit["n_steps"]), 1.0)
        elif self._n_evaluated < self._n_positions:
            rows = slice(self._n_evaluated, self._n_evaluated + _PIECE)
            self._evaluated.append(self._functions.of_quantities(self._positions.positions[rows], self._quantity_rng))
        return not self.done

    @property
    def done(self) -> bool:
        """Return whether the run has finished."""
        return self._left == 0 and self._audit["n_steps"] >= self._n_audited and self._n_evaluated >= self._n_positions

    @property
    def share_done(self) -> float:
        """Return the share of the budget used, for progress."""
        return float(max(self._totals["seconds"] / self._budget.seconds, self._totals["n_steps"] / self._budget.steps))

    def course(self) -> Trajectory:
        """Return the record of the finished run."""
        columns = np.array(self._notes).T
        deviations, squares = np.array(self._means).transpose(1, 0, 2)
        means = {MEANS: self._centre + deviations, VARIANCES: squares}
        for name in self._functions.quantities:
            values = np.concatenate([piece[name] for piece in self._evaluated])
            running = np.cumsum(values, axis=0) / np.arange(1, len(values) + 1)[:, None]
            means[name] = running[np.searchsorted(self._positions.steps, columns[2], side="right") - 1]
        axes = dict(zip(("seconds", "passes", "steps"), columns, strict=True))
        return Trajectory(axes, means, self._totals, self._audit)

    @property
    def _left(self) -> int:
        """Return the number of steps that may still be measured."""
        return 0 if self._totals["seconds"] >= self._budget.seconds else self._budget.steps - self._totals["n_steps"]

    @property
    def _n_audited(self) -> int:
        exact = self._totals["n_obs_used"] == self._totals["n_steps"] * self._n_observations
        return 0 if exact else int(np.ceil(self._audit_share * self._totals["n_steps"]))

    @property
    def _n_positions(self) -> int:
        return len(self._positions.steps) if self._functions.quantities else 0

    @property
    def _n_evaluated(self) -> int:
        return _PIECE * len(self._evaluated)

    def _measure(self) -> None:
        before = self._totals["n_steps"]
        wanted = int(np.clip(_BATCH * before, _SHORTEST, _LONGEST))
        n = self._steps(self._totals, min(wanted, self._left), 0.0)
        if n == 0:
            return
        # After a rejection the functions keep their values.
        moved = np.flatnonzero(self._buffer["accepted"][:n])
        stays = np.diff(moved, prepend=0, append=n)
        self._sums += stays[0] * self._values
        for step, stay in zip(moved, stays[1:], strict=True):
            self._values = self._deviations(self._buffer.theta[step])
            self._sums += stay * self._values
        if self._functions.quantities:
            self._positions.add(self._buffer.theta[:n])
        totals = self._totals
        self._notes.append((totals["seconds"], totals["n_obs_evaluated"] / self._n_observations, totals["n_steps"]))
        self._means.append(self._sums / totals["n_steps"])

    def _deviations(self, theta: FloatArray) -> FloatArray:
        """Return deviations from the centre and their squares, shape (2, n_parameters)."""
        deviations = self._functions.of_parameters(theta) - self._centre
        return np.stack([deviations, deviations**2])

    def _steps(self, totals: Totals, n_steps: int, audit: float) -> int:
        """Run steps, counted in ``totals``, and return their number."""
        kernel = self._kernel
        control = BatchControl(self._audit_rng, audit, self._stop, self._counters)
        evaluated, began = kernel.n_evaluated, clock.computed()
        _, n = kernel.batch(self._rng, kernel.current_state, self._proposal, self._buffer, n_steps, control)
        counted = {
            "seconds": clock.computed() - began,
            "n_obs_evaluated": kernel.n_evaluated - evaluated,
            "n_steps": n,
        }
        totals.add(counted | totals_of(kernel.stats, self._buffer.rows(slice(0, n))))
        return n


class _Positions:
    """Every k-th position of a run, from the first; k doubles as they accumulate."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self._kept: list[FloatArray] = []
        self._every, self._seen = 1, 0

    @property
    def positions(self) -> FloatArray:
        """Return the positions, shape (n, dim)."""
        return np.array(self._kept)

    def add(self, thetas: FloatArray) -> None:
        """Add the positions of the next steps, shape (n, dim)."""
        for row in range(-self._seen % self._every, len(thetas), self._every):
            self.steps.append(self._seen + row + 1)
            self._kept.append(thetas[row].copy())
        self._seen += len(thetas)
        while len(self.steps) >= 2 * _POSITIONS:
            self.steps, self._kept, self._every = self.steps[::2], self._kept[::2], 2 * self._every


class RunQueue:
    """Worker that takes runs from a shared queue and completes each before the next.

    Finished runs survive an interrupt, and a run that fails does not affect the others.

    Parameters
    ----------
    queue : deque of (key, callable)
        Runs in order, each created when its turn comes.
    courses, failures : dict
        Results by key.
    """

    def __init__(
        self,
        queue: deque[tuple[Key, Callable[[], Run]]],
        courses: dict[Key, Trajectory],
        failures: dict[Key, Exception],
    ) -> None:
        self._queue, self._courses, self._failures = queue, courses, failures
        self._key: Key = (0, 0)
        self.run: Run | None = None

    def advance(self) -> bool:
        """Do a piece of the current run, or start the next; return False if there is none or all were stopped."""
        try:
            if self.run is None:
                try:
                    self._key, make = self._queue.popleft()
                except IndexError:
                    return False
                self.run = make()
            if self.run.advance():
                return True
            if self.run.done:
                self._courses[self._key] = self.run.course()
                self.run = None
                return True
            return False
        except Exception as error:
            self._failures[self._key] = error
            self.run = None
            return True
