"""Values that options may have."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from stansub.errors import InputError

# Upper bounds of what is counted: beyond them nothing could be run, and sums would overflow.
MOST_COUNT = 10**12
MOST = {"chains": 10_000, "parallel_chains": 10_000, "repeats": 10_000, "seed": 2**63 - 1}


class Bounds(Protocol):
    """Values that an option may have."""

    def check(self, name: str, value: Any) -> None:
        """Raise InputError for any other."""
        ...


@dataclass(frozen=True)
class Count:
    """Integers within bounds, numpy's included."""

    at_least: int = 1
    at_most: int = MOST_COUNT

    def check(self, name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < self.at_least:
            raise InputError(f"{name} {value!r} must be an integer of at least {self.at_least}")
        if int(value) > self.at_most:
            shown = f" {value}" if int(value) < 10**30 else ""
            raise InputError(f"{name}{shown} must be an integer of at most {self.at_most:,}")


@dataclass(frozen=True)
class Interval:
    """Numbers from ``low`` to ``high`` (None: without end), the ends themselves or not; ``must`` says it in words."""

    must: str
    low: float = 0.0
    high: float | None = 1.0
    closed: bool = False

    def check(self, name: str, value: Any) -> None:
        above = value >= self.low if self.closed else value > self.low
        below = self.high is None or (value <= self.high if self.closed else value < self.high)
        if not (above and below):
            raise InputError(f"{name} {value} must be {self.must}")


@dataclass(frozen=True)
class Named:
    """Names to choose from, beside other values or not; who uses them checks them."""

    names: tuple[str, ...]
    # On the command line: whether there are no values but these.
    only: ClassVar[bool] = True

    def check(self, name: str, value: Any) -> None:
        pass


@dataclass(frozen=True)
class Suggested(Named):
    """Names to choose from beside other texts, on the command line too."""

    only = False


@dataclass(frozen=True)
class OneOf(Named):
    """Names to choose from, and nothing else."""

    def check(self, name: str, value: Any) -> None:
        if value not in self.names:
            raise InputError(f"unknown {name} {value!r}; choose from {', '.join(self.names)}")


# Those of options that are checked in several places.
FIRST_LOOK = Count(1)
MAX_ERROR = Interval("between 0 and 1; the exact test makes no errors")
RANGES = OneOf(("auto", "lipschitz", "function", "derivative", "predictors", "scan", "estimate"))


def check_count(name: str, value: Any, *, at_least: int, at_most: int | None = None) -> None:
    """Raise InputError unless ``value`` is an integer (numpy's included) within bounds, those of `MOST` by default."""
    Count(at_least, MOST.get(name, MOST_COUNT) if at_most is None else at_most).check(name, value)
