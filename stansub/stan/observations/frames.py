"""Variables of a scope while the text of a program is followed (`stansub.stan.observations.observation`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stansub.stan.observations.branches import Sign, joined
from stansub.stan.observations.containers import Across, Rows, Total, Value, chosen, elementwise, is_known, is_of_data
from stansub.stan.observations.rowwise import Mask, NotFollowedError
from stansub.stan.syntax import Expression as Node

# Errors of values of other kinds than a function or an operator has rules for.
UNSUPPORTED = (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError)


@dataclass(frozen=True)
class Reason:
    """Reason why a variable's value could not be followed."""

    text: str


def either(condition: Sign, first: Any, other: Any, n: int) -> Any:
    """Return the first of two values of a variable where a condition on parameters holds, and the other elsewhere."""
    if isinstance(first, Reason) or isinstance(other, Reason):
        return first if isinstance(first, Reason) else other
    if isinstance(first, Total) or isinstance(other, Total):
        if not condition.of.is_single:
            raise NotFollowedError("a branch on parameters that differs between observations sums over them")
        a, b = (one if isinstance(one, Total) else Total(0.0, one) for one in (first, other))
        return Total(joined(condition, a.each, b.each), joined(condition, a.rest, b.rest))
    return elementwise(lambda a, b: joined(condition, a, b), [first, other], n)


@dataclass
class Frame:
    """Variables of a scope, and the observations for which its statements run."""

    values: dict[str, Any]
    live: Mask | None = None
    """None for all."""
    returned: list[tuple[Mask | Sign | None, Value]] = field(default_factory=list)
    """Values returned, with the masks of their observations, or the condition on parameters."""
    outside: frozenset[str] = frozenset()
    """Variables declared outside the loop over observations."""
    in_rows: bool = False
    """Whether this is an iteration of the loop over observations."""
    known: dict[Node, int] = field(default_factory=dict)
    """Integers that differ among observations, while one value is followed (`stansub.stan.observations.cases`)."""
    unset: dict[str, Value] = field(default_factory=dict)
    """Variables that nothing but loops over observations has assigned, with their values before."""

    jumped: dict[str, Mask] = field(default_factory=dict)
    """Observations that left the innermost loop (``break``), or an iteration of it (``continue``)."""

    def jump(self, word: str, n: int, where: Mask | bool = True) -> None:
        """Leave the innermost loop, or an iteration of it, for those observations of a mask that run."""
        live = np.ones(n, bool) if self.live is None else self.live
        left = live & where
        if left.any():
            self.jumped[word] = left | self.jumped.get(word, False)
            self.live = live & ~left

    @contextmanager
    def looping(self) -> Iterator[None]:
        """Run a loop, after which statements run again for the observations that left it."""
        outer, self.jumped = self.jumped, {}
        try:
            yield
            self.rejoin("continue")
            self.rejoin("break")
        finally:
            self.jumped = outer

    def rejoin(self, word: str) -> None:
        """Let the statements that follow run for the observations that jumped."""
        jumped = self.jumped.pop(word, None)
        if jumped is not None and self.live is not None:
            live = self.live | jumped
            self.live = None if live.all() else live

    def declare(self, name: str, value: Value, *, is_set: bool) -> None:
        """Declare a variable with its value, or with what it has before it is set."""
        self.values[name] = value
        self.outside -= {name}
        self.unset.pop(name, None)
        if not is_set:
            self.unset[name] = value

    def begin_rows(self, written: Set[str]) -> Set[str]:
        """Begin the loop over observations; return the variables that each observation sets for itself.

        Each of them would have to set what it reads; the proof of what is followed finds those that do not.
        """
        own = written & self.unset.keys()
        self.values |= {name: self.unset[name] for name in own}
        self.outside, self.in_rows = frozenset(self.values) - own, True
        return own

    def end_rows(self, own: Set[str], outside: frozenset[str]) -> None:
        """End it: what is left of the last observation cannot be read."""
        self.outside, self.in_rows = outside, False
        for name in own:
            if isinstance(self.values[name], Rows | Across) or is_known(self.values[name]):
                del self.unset[name]
            elif not isinstance(self.values[name], Reason):
                self.values[name] = Reason(f"`{name}` is read after the loop over the observations that sets it")

    def split(self, masks: Iterable[Mask], run: Callable[[int], None], n: int) -> None:
        """Run statements for the observations of each mask in turn, given its number; those that they leave go on."""
        live = left = np.ones(n, bool) if self.live is None else self.live
        try:
            for k, mask in enumerate(masks):
                self.live = live & mask
                if self.live.any():
                    run(k)
                left = left & (~mask | (True if self.live is None else self.live))
        finally:
            self.live = None if left.all() else left

    @property
    def is_over(self) -> bool:
        """Return whether no observation is left."""
        has_left = self.live is not None and not self.live.any()
        return (bool(self.returned) and self.returned[-1][0] is None) or has_left

    def result(self, n: int) -> Value:
        """Return the value returned for each of ``n`` observations."""
        found = self.returned[-1][1]
        for mask, value in reversed(self.returned[:-1]):
            if isinstance(mask, Sign):
                found = either(mask, value, found, n)
            elif mask is not None:
                found = chosen(mask, value, found, n)
        return found

    def reads_observations(self, names: Set[str], n: int) -> bool:
        """Return whether variables include values of ``n`` observations, and others that depend on parameters."""
        values = [self.values[name] for name in names & self.values.keys()]
        has_rows = any(isinstance(each, Rows | Across) or (np.ndim(each) > 0 and len(each) == n) for each in values)
        return has_rows and not all(not isinstance(each, Reason | Total) and is_of_data(each) for each in values)
