"""The kernel interface, (rng, state, params) -> (state, info), and the statistics that kernels declare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stansub._loop import Decider
from stansub.types import FloatArray

Info = Mapping[str, Any]


@dataclass(frozen=True)
class Stat:
    """Statistic of a kernel, which determines how it is recorded, summed, grouped and documented."""

    name: str
    """ArviZ's name, if it has one."""
    dtype: type
    """Type of a value: `bool`, `numpy.int32`, `numpy.int64` or `float`."""
    sentence: str
    """Description in a sentence."""
    total: str = ""
    """Name of its sum over all steps of a chain, including those thinned away; empty if the sum has no meaning."""
    per_step: bool = True
    """Whether there is a value per step; otherwise the kernel counts the statistic (see `Kernel.counts`)."""
    largest: bool = False
    """Whether the count is the largest value so far and not a sum."""

    def of(self, kernel: str) -> Stat:
        """Return the same statistic of one of several kernels, with the kernel's name as prefix."""
        total = f"{kernel}.{self.total}" if self.total else ""
        return replace(self, name=f"{kernel}.{self.name}", total=total)


class State(NamedTuple):
    """State of a chain."""

    position: FloatArray
    """Shape (dim,): unconstrained parameters."""


class Records:
    """Rows of steps: the position after each step and the kernel's statistics.

    Parameters
    ----------
    theta : ndarray, shape (n, dim)
    stats : dict of str to ndarray, shape (n,)
    """

    def __init__(self, theta: FloatArray, stats: dict[str, NDArray[Any]]) -> None:
        self.theta, self.stats = theta, stats

    @classmethod
    def allocate(cls, n: int, dim: int, stats: Iterable[Stat]) -> Records:
        """Return empty rows."""
        return cls(np.empty((n, dim)), {one.name: np.zeros(n, one.dtype) for one in stats if one.per_step})

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.stats[name]

    def __len__(self) -> int:
        return len(self.theta)

    def is_like(self, other: Records) -> bool:
        """Return whether the rows have the same columns, types and number of parameters as those of ``other``."""
        columns = [{name: (one.dtype, one.shape[1:]) for name, one in each.columns.items()} for each in (self, other)]
        return columns[0] == columns[1] and {len(one) for one in self.columns.values()} == {len(self)}

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Return all arrays: positions, and statistics by name."""
        return {"theta": self.theta, **{f"stat {name}": one for name, one in self.stats.items()}}

    @classmethod
    def of(cls, columns: Mapping[str, NDArray[Any]]) -> Records:
        """Return records from `columns`."""
        stats = {name.removeprefix("stat "): one for name, one in columns.items() if name != "theta"}
        return cls(columns["theta"], stats)

    @classmethod
    def together(cls, parts: Sequence[Records]) -> Records:
        """Return the concatenated rows of records with the same columns."""
        return cls.of({name: np.concatenate([one.columns[name] for one in parts]) for name in parts[0].columns})

    @property
    def row_bytes(self) -> int:
        """Return the bytes of a row."""
        return sum(one[:1].nbytes for one in self.columns.values())

    def rows(self, which: slice | NDArray[np.int64]) -> Records:
        """Return some of the rows; a slice gives a view."""
        return Records(self.theta[which], {name: values[which] for name, values in self.stats.items()})

    def put(self, start: int, other: Records) -> None:
        """Write the rows of ``other`` from row ``start`` on."""
        end = start + len(other)
        self.theta[start:end] = other.theta
        for name, values in self.stats.items():
            values[start:end] = other.stats[name]

    def write(self, row: int, state: State, info: Info) -> None:
        """Write one step into a row."""
        self.theta[row] = state.position
        for name, values in self.stats.items():
            values[row] = info[name]


class BatchControl(NamedTuple):
    """Control of a batch of steps: audits, a stop flag and progress counters."""

    audit_rng: np.random.Generator
    """Chooses the decisions to audit."""
    audit_probability: float
    """Share of the decisions to audit."""
    stop: NDArray[np.int32]
    """Shape (1,): read before every step; a nonzero value stops the batch."""
    counters: NDArray[np.int64]
    """Shape (4,): steps, accepted, observations used and observations evaluated so far."""

    @classmethod
    def none(cls) -> BatchControl:
        """Return a control without audits or a stop."""
        return cls(np.random.default_rng(0), 0.0, np.zeros(1, np.int32), np.zeros(4, np.int64))

    def audits(self) -> bool:
        """Draw whether the next decision is audited."""
        return self.audit_probability > 0 and self.audit_rng.random() < self.audit_probability


class Kernel(Protocol):
    """Transition that leaves a posterior invariant, exactly or nearly; bound to a target and to one thread.

    Attributes
    ----------
    deciders : tuple of Decider
        The deciders that take its decisions; kernels may share one.
    n_evaluated : int
        Observations evaluated by its decisions so far.
    """

    @property
    def stats(self) -> tuple[Stat, ...]: ...

    @property
    def dim(self) -> int: ...

    @property
    def deciders(self) -> tuple[Decider, ...]: ...

    @property
    def n_evaluated(self) -> int: ...

    def init(self, position: FloatArray) -> State:
        """Return the state at a position of shape (dim,)."""

    def step(self, rng: np.random.Generator, state: State, params: Any, *, audit: bool = False) -> tuple[State, Info]:
        """Return the next state and its statistics by name; ``params`` is what is adapted, such as a proposal."""

    def batch(
        self, rng: np.random.Generator, state: State, params: Any, out: Records, n_steps: int, control: BatchControl
    ) -> tuple[State, int]:
        """Fill the first rows of ``out`` with up to ``n_steps`` steps; return the number done, fewer if stopped."""

    def set_level(self, level: float) -> None:
        """Take decisions at another error level from now on, if the kernel supports it."""

    def counts(self) -> dict[str, float]:
        """Return the counts of statistics that have no value per step, by name."""

    def save(self) -> Any:
        """Return everything besides the position that the next step depends on, as values for a checkpoint.

        Allowed are None, numbers, text, bytes, numpy arrays and generators, and lists, tuples and dicts of these.
        """

    def restore(self, state: State, saved: Any) -> None:
        """Restore the kernel that returned ``saved`` at this state."""


def step_by_step(
    kernel: Kernel,
    rng: np.random.Generator,
    state: State,
    params: Any,
    out: Records,
    n_steps: int,
    control: BatchControl,
) -> tuple[State, int]:
    """Run a batch of steps one by one: `Kernel.batch` for kernels without a faster way."""
    for row in range(n_steps):
        if control.stop[0]:
            return state, row
        evaluated = kernel.n_evaluated
        state, info = kernel.step(rng, state, params, audit=control.audits())
        out.write(row, state, info)
        accepted, used = info.get("accepted", False), info.get("n_obs_used", 0)
        control.counters[:] += (1, accepted, used, kernel.n_evaluated - evaluated)
    return state, n_steps


def totals_of(stats: Sequence[Stat], records: Records) -> dict[str, float]:
    """Return the sums of the statistics that have a total, over all rows."""
    return {one.total: records[one.name].sum().item() for one in stats if one.per_step and one.total}
