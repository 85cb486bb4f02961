"""Looks: the numbers of units at which a sequential test may stop, and its threshold at each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from stansub.errors import InputError
from stansub.types import FloatArray, IntArray


@dataclass(frozen=True)
class Table:
    """Looks of a test and its thresholds."""

    n: IntArray
    """Shape (K,): units at each look, increasing; the last is the size of the population."""
    scale: FloatArray
    """Shape (K,): factor of the standard deviation."""
    offset: FloatArray
    """Shape (K,): factor of the range."""


class Schedule(Protocol):
    """Schedule of looks."""

    @property
    def first(self) -> int:
        """Return the units at the first look in a large population."""

    def starting_at(self, first: int) -> Schedule:
        """Return the same schedule with another first look."""

    def looks(self, n_units: int) -> IntArray:
        """Return the units at each look; the last is ``n_units``."""


@dataclass(frozen=True, kw_only=True)
class Geometric:
    """Looks at first, growth * first, growth^2 * first, ... units (Bardenet et al. 2014, figure 3).

    Raises
    ------
    InputError
        If ``first`` is not positive or ``growth`` does not exceed 1.
    """

    first: int
    growth: float = 2.0

    def __post_init__(self) -> None:
        if self.first < 1:
            raise InputError(f"the first look must have at least 1 block, not {self.first}")
        if not 1 < self.growth < np.inf:
            raise InputError(f"the growth of the looks must be above 1, not {self.growth}")

    def looks(self, n_units: int) -> IntArray:
        looks = [min(self.first, n_units)]
        while looks[-1] < n_units:
            looks.append(min(int(np.ceil(self.growth * looks[-1])), n_units))
        return np.array(looks, np.int32)

    def starting_at(self, first: int) -> Geometric:
        return replace(self, first=first)


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """Looks after every ``size`` units (Korattikara et al. 2014, algorithm 1).

    Raises
    ------
    InputError
        If ``size`` is not positive.
    """

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"a look must add at least 1 block, not {self.size}")

    def looks(self, n_units: int) -> IntArray:
        return np.append(np.arange(self.size, n_units, self.size), n_units).astype(np.int32)

    @property
    def first(self) -> int:
        return self.size

    def starting_at(self, first: int) -> Fixed:
        return Fixed(size=first)


def looks_at(schedule: Schedule, n_units: int, *, at_least: int = 1) -> IntArray:
    """Return the units at each look of the schedule.

    Raises
    ------
    InputError
        If there are no units, or the first look has fewer than ``at_least`` units although the population has more.
    """
    check_units(n_units)
    n = schedule.looks(n_units)
    if n[0] < min(at_least, n_units):
        raise InputError(f"the first look must have at least {at_least} blocks for a standard deviation, not {n[0]}")
    return n


def check_units(n_units: int) -> None:
    """Raise InputError if the population is empty."""
    if n_units < 1:
        raise InputError("there are no observations: a decision needs at least one")
