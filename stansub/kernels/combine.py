"""Kernels made of kernels: in sequence, at random, or on some of the parameters.

Each leaves the posterior invariant if its parts do (Tierney 1994, section 2.4). Parts have names, which prefix their
statistics (``scales.accepted``); statistics without a prefix are of the whole step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub._loop import Decider, Subset
from stansub.kernels.base import Info, Kernel, Stat, State, step_by_step
from stansub.kernels.metropolis import COUNTS, DECISIONS, STATS, MetropolisHastings, counts_of
from stansub.types import FloatArray

_WHOLE = tuple(one for one in STATS if one.name != "log_ratio")
_COMPONENT = Stat("component", np.int32, "Which of the parts made the step, counted from 0.")


class _Combined(ABC):
    """Base of sequences and mixtures.

    Parameters
    ----------
    parts : mapping of str to Kernel
        At least one; params are a mapping with the same names.
    """

    def __init__(self, parts: Mapping[str, Kernel]) -> None:
        self.parts = dict(parts)
        self.deciders: tuple[Decider, ...] = tuple(
            {id(one): one for part in self.parts.values() for one in part.deciders}.values()
        )

    @property
    def _direct(self) -> list[Kernel]:
        """Return the parts without decisions, those of combined parts included."""
        within = [part._direct if isinstance(part, _Combined) else [part] for part in self.parts.values()]
        return [one for each in within for one in each if not one.deciders]

    @property
    def stats(self) -> tuple[Stat, ...]:
        """Return the statistics of the whole step, then of each part."""
        own = [one.of(name) for name, part in self.parts.items() for one in part.stats if one.per_step]
        return (*_WHOLE, DECISIONS, *COUNTS, *own)

    @property
    def dim(self) -> int:
        """Return the number of parameters."""
        return next(iter(self.parts.values())).dim

    @property
    def n_evaluated(self) -> int:
        """Return the observations evaluated so far."""
        deciding = sum(int(one.n_evaluated) for one in self.deciders)
        return deciding + sum(one.n_evaluated for one in self._direct)

    def init(self, position: FloatArray) -> State:
        """Move all parts to a position and return its state."""
        for part in self.parts.values():
            part.init(position)
        return State(np.array(position))

    def set_level(self, level: float) -> None:
        """Set the error level of all parts."""
        for part in self.parts.values():
            part.set_level(level)

    def counts(self) -> dict[str, float]:
        """Return the counts of statistics that have no value per step."""
        several = [*map(counts_of, self.deciders), *(one.counts() for one in self._direct)]
        return {
            count.name: max([0, *values]) if count.largest else sum(values)
            for count in COUNTS
            for values in [[one[count.name] for one in several]]
        }

    def save(self) -> Any:
        """Return what each part saves."""
        return {name: part.save() for name, part in self.parts.items()}

    def restore(self, state: State, saved: Any) -> None:
        """Restore the parts from what `save` returned."""
        for name, part in self.parts.items():
            part.restore(state, saved[name])

    @abstractmethod
    def step(
        self, rng: np.random.Generator, state: State, params: Mapping[str, Any], *, audit: bool = False
    ) -> tuple[State, Info]:
        """Return the next state and the statistics of all parts."""

    batch = step_by_step

    def _named(self, name: str, info: Info) -> dict[str, Any]:
        return {f"{name}.{key}": value for key, value in info.items()}


class SequenceKernel(_Combined):
    """Kernel that applies all parts one after the other."""

    def step(
        self, rng: np.random.Generator, state: State, params: Mapping[str, Any], *, audit: bool = False
    ) -> tuple[State, Info]:
        """Return the state after one step of each part, with statistics."""
        found: dict[str, Any] = {one.name: one.dtype(0) for one in (*_WHOLE, DECISIONS)}
        for name, part in self.parts.items():
            state, info = part.step(rng, state, params[name], audit=audit)
            found |= self._named(name, info)
            for one in _WHOLE:
                either = found[one.name] | info[one.name] if one.dtype is bool else found[one.name] + info[one.name]
                found[one.name] = either
            found[DECISIONS.name] += info.get(DECISIONS.name, 1)
        return state, found


class MixtureKernel(_Combined):
    """Kernel that applies one part, drawn at random at each step.

    Parameters
    ----------
    weights : ndarray, shape (k,)
        Probabilities.
    """

    def __init__(self, parts: Mapping[str, Kernel], weights: FloatArray) -> None:
        super().__init__(parts)
        self._edges = np.cumsum(weights)[:-1]
        self._nothing: dict[str, Any] = {one.name: one.dtype(0) for one in super().stats if one.per_step}

    @property
    def stats(self) -> tuple[Stat, ...]:
        """Return the number of the part drawn, then the statistics of a sequence; parts not drawn have zeros."""
        return (_COMPONENT, *super().stats)

    def step(
        self, rng: np.random.Generator, state: State, params: Mapping[str, Any], *, audit: bool = False
    ) -> tuple[State, Info]:
        """Return the state after one step of one part, with statistics."""
        number = int(np.searchsorted(self._edges, rng.random(), side="right"))
        name, part = list(self.parts.items())[number]
        state, info = part.step(rng, state, params[name], audit=audit)
        whole = {one.name: info[one.name] for one in _WHOLE} | {DECISIONS.name: info.get(DECISIONS.name, 1)}
        return state, self._nothing | whole | self._named(name, info) | {"component": number}


class ConditionalMetropolis(MetropolisHastings):
    """Metropolis-Hastings on some parameters with the others fixed; its params propose values of these alone.

    Factors that depend on none of these parameters cancel in the acceptance ratio. A decision therefore samples from
    the other factors, with their number for N, and evaluates nothing if there are none (Chen, Mansinghka, Ghahramani
    2014, section 3.1).

    Parameters
    ----------
    index : ndarray of int64
        Indices of the parameters that move.
    touched : callable
        From the position to the factors that depend on these parameters there; None for all. The result must not change
        with these parameters (T(rho, v) is empty in the paper's terms).
    """

    def __init__(
        self, decider: Decider, index: NDArray[np.int64], touched: Callable[[FloatArray], Subset | None]
    ) -> None:
        super().__init__(decider)
        self.index, self._touched = index, touched

    def step(self, rng: np.random.Generator, state: State, params: Any, *, audit: bool = False) -> tuple[State, Info]:
        """Propose values of some parameters and decide."""
        values, log_q_ratio = params(rng, state.position[self.index])
        proposed = state.position.copy()
        proposed[self.index] = values
        subset = self._touched(state.position)
        return self.decide(rng, state, proposed, log_q_ratio, audit=audit, subset=subset)

    batch = step_by_step
