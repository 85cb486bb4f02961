"""Allowed values of options."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from stansub.errors import InputError

# Upper bounds of counts: larger values could not run, and sums would overflow.
MOST_COUNT = 10**12
MOST = {"chains": 10_000, "parallel_chains": 10_000, "repeats": 10_000, "seed": 2**63 - 1}


class Bounds(Protocol):
    """Allowed values of an option."""

    def check(self, name: str, value: Any) -> None:
        """Raise InputError if a value is not allowed."""


@dataclass(frozen=True)
class Count:
    """Integers within bounds, including numpy's."""

    at_least: int = 1
    at_most: int = MOST_COUNT

    def check(self, name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < self.at_least:
            raise InputError(f"`{name}={value!r}` must be an integer of at least {self.at_least}")
        if int(value) > self.at_most:
            shown = f"={value}" if int(value) < 10**30 else ""
            raise InputError(f"`{name}{shown}` must be an integer of at most {self.at_most:,}")


@dataclass(frozen=True)
class Interval:
    """Numbers from ``low`` to ``high`` (None: unbounded), with or without the ends; ``must`` says so in words."""

    must: str
    low: float = 0.0
    high: float | None = 1.0
    closed: bool = False

    def check(self, name: str, value: Any) -> None:
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not is_number:
            raise InputError(f"`{name}={value!r}` must be {self.must}")
        above = value >= self.low if self.closed else value > self.low
        below = self.high is None or (value <= self.high if self.closed else value < self.high)
        if not (above and below):
            raise InputError(f"`{name}={value}` must be {self.must}")


@dataclass(frozen=True)
class Named:
    """Names to choose from, possibly besides other values; the code that uses them checks them."""

    names: tuple[str, ...]
    # Whether the command line allows no other values.
    only: ClassVar[bool] = True

    def check(self, name: str, value: Any) -> None:
        pass


@dataclass(frozen=True)
class Suggested(Named):
    """Names to choose from besides other texts, on the command line too."""

    only = False


@dataclass(frozen=True)
class CountOr(Suggested):
    """Integers of at least ``at_least``, or names."""

    at_least: int = 1

    def check(self, name: str, value: Any) -> None:
        if value in self.names:
            return
        if isinstance(value, str):
            listed = " or ".join(repr(one) for one in self.names)
            raise InputError(f"`{name}={value}` must be an integer of at least {self.at_least}, or {listed}")
        Count(self.at_least).check(name, value)


@dataclass(frozen=True)
class OneOf(Named):
    """Names to choose from, and nothing else."""

    def check(self, name: str, value: Any) -> None:
        if value not in self.names:
            raise InputError(f"unknown {name} {value!r}; choose from {', '.join(self.names)}")


# Bounds of options that are checked in several places.
FIRST_LOOK = Count(1)
MAX_ERROR = Interval("between 0 and 1; the exact test makes no errors")
RANGES = OneOf(("auto", "lipschitz", "function", "derivative", "predictors", "scan", "estimate"))


def check(bounds: Mapping[str, Bounds], **values: Any) -> None:
    """Raise InputError if a value is out of the bounds of its name; None is always allowed."""
    for name, value in values.items():
        if value is not None:
            bounds[name].check(name, value)
