"""What a kernel is: (rng, state, params) -> (state, info), with the statistics that it makes declared beside it."""

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
    """A statistic of a kernel, from which recording, totals, groups and documentation follow.

    Attributes
    ----------
    name : str
        As ArviZ has it, where it has one.
    dtype : type
        Of a value: `bool`, `numpy.int32`, `numpy.int64` or `float`.
    sentence : str
        What it says.
    total : str
        Name of its sum over all steps of a chain, thinned-away ones included; empty where a sum says nothing.
    per_step : bool
        Whether there is a value a step; a statistic without is counted by the kernel (see `Kernel.counts`).
    largest : bool
        Whether what is counted is the largest value so far and not a sum.
    """

    name: str
    dtype: type
    sentence: str
    total: str = ""
    per_step: bool = True
    largest: bool = False

    def of(self, kernel: str) -> Stat:
        """The same statistic of one of several kernels, named after it."""
        total = f"{kernel}.{self.total}" if self.total else ""
        return replace(self, name=f"{kernel}.{self.name}", total=total)


class State(NamedTuple):
    """Where a chain is.

    Attributes
    ----------
    position : ndarray, shape (dim,)
        Unconstrained parameters.
    """

    position: FloatArray


class Records:
    """One row a step: the position after it, and the statistics of its kernel.

    Parameters
    ----------
    theta : ndarray, shape (n, dim)
    stats : dict of str to ndarray, shape (n,)
    """

    def __init__(self, theta: FloatArray, stats: dict[str, NDArray[Any]]) -> None:
        self.theta, self.stats = theta, stats

    @classmethod
    def allocate(cls, n: int, dim: int, stats: Iterable[Stat]) -> Records:
        """Rows to be filled."""
        return cls(np.empty((n, dim)), {one.name: np.zeros(n, one.dtype) for one in stats if one.per_step})

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.stats[name]

    def __len__(self) -> int:
        return len(self.theta)

    def is_like(self, other: Records) -> bool:
        """Whether rows have the same columns, of the same types, and as many parameters, as those of ``other``."""
        columns = [{name: (one.dtype, one.shape[1:]) for name, one in each.columns.items()} for each in (self, other)]
        return columns[0] == columns[1] and {len(one) for one in self.columns.values()} == {len(self)}

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """All arrays: positions, and statistics by name."""
        return {"theta": self.theta, **{f"stat {name}": one for name, one in self.stats.items()}}

    @classmethod
    def of(cls, columns: Mapping[str, NDArray[Any]]) -> Records:
        """From `columns`."""
        stats = {name.removeprefix("stat "): one for name, one in columns.items() if name != "theta"}
        return cls(columns["theta"], stats)

    @classmethod
    def together(cls, parts: Sequence[Records]) -> Records:
        """The rows of several, which have the same columns."""
        return cls.of({name: np.concatenate([one.columns[name] for one in parts]) for name in parts[0].columns})

    @property
    def row_bytes(self) -> int:
        """Bytes of a step."""
        return sum(one[:1].nbytes for one in self.columns.values())

    def rows(self, which: slice | NDArray[np.int64]) -> Records:
        """Some of the rows; a slice gives a view."""
        return Records(self.theta[which], {name: values[which] for name, values in self.stats.items()})

    def put(self, start: int, other: Records) -> None:
        """Write the rows of ``other`` from row ``start`` on."""
        end = start + len(other)
        self.theta[start:end] = other.theta
        for name, values in self.stats.items():
            values[start:end] = other.stats[name]

    def write(self, row: int, state: State, info: Info) -> None:
        """Write one step."""
        self.theta[row] = state.position
        for name, values in self.stats.items():
            values[row] = info[name]


class Oversight(NamedTuple):
    """What stands over a batch of steps: audits, a stop, and counts of how far it is.

    Attributes
    ----------
    audit_rng : Generator
        Chooses the decisions that are audited.
    audit_probability : float
        Share of the decisions that are audited.
    stop : int32, shape (1,)
        Read before every step; not 0 stops.
    counters : int64, shape (4,)
        Steps, accepted, observations used and observations evaluated so far.
    """

    audit_rng: np.random.Generator
    audit_probability: float
    stop: NDArray[np.int32]
    counters: NDArray[np.int64]

    @classmethod
    def none(cls) -> Oversight:
        """No audits, and nobody who stops it."""
        return cls(np.random.default_rng(0), 0.0, np.zeros(1, np.int32), np.zeros(4, np.int64))

    def audits(self) -> bool:
        """Whether the next decision is audited."""
        return self.audit_probability > 0 and self.audit_rng.random() < self.audit_probability


class Kernel(Protocol):
    """A transition that leaves a posterior as it is, or nearly; bound to a target, for one thread at a time.

    Attributes
    ----------
    stats : tuple of Stat
    dim : int
        Parameters of a state.
    deciders : tuple of Decider
        Those that its decisions are taken by; kernels may share one.
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
        """The state at a position, shape (dim,)."""
        ...

    def step(self, rng: np.random.Generator, state: State, params: Any, *, audit: bool = False) -> tuple[State, Info]:
        """One transition, with its statistics by name; ``params`` is what is adapted, such as a proposal."""
        ...

    def batch(
        self, rng: np.random.Generator, state: State, params: Any, out: Records, n_steps: int, oversight: Oversight
    ) -> tuple[State, int]:
        """Fill the first rows of ``out`` with up to ``n_steps`` steps; the steps done, fewer when stopped."""
        ...

    def set_level(self, level: float) -> None:
        """Take decisions at another error level from now on, where that can change."""
        ...

    def counts(self) -> dict[str, float]:
        """What it has counted so far that has no value a step, by name."""
        ...

    def save(self) -> Any:
        """All that its next step depends on besides the position, in values that a checkpoint can hold.

        They are None, numbers, text, bytes, numpy arrays and generators, and lists, tuples and dicts of these.
        """
        ...

    def restore(self, state: State, saved: Any) -> None:
        """Go on as the kernel would that gave ``saved`` at this state."""
        ...


def step_by_step(
    kernel: Kernel,
    rng: np.random.Generator,
    state: State,
    params: Any,
    out: Records,
    n_steps: int,
    oversight: Oversight,
) -> tuple[State, int]:
    """A batch of steps, one after the other: what `Kernel.batch` is for kernels that have nothing faster."""
    for row in range(n_steps):
        if oversight.stop[0]:
            return state, row
        evaluated = kernel.n_evaluated
        state, info = kernel.step(rng, state, params, audit=oversight.audits())
        out.write(row, state, info)
        accepted, used = info.get("accepted", False), info.get("n_obs_used", 0)
        oversight.counters[:] += (1, accepted, used, kernel.n_evaluated - evaluated)
    return state, n_steps


def totals_of(stats: Sequence[Stat], records: Records) -> dict[str, float]:
    """Sums of the statistics that have a total, over all rows."""
    return {one.total: records[one.name].sum().item() for one in stats if one.per_step and one.total}
