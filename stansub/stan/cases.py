"""Integers that differ among observations where the text needs one number: each value is followed on its own.

Examples are the end of a slice, ``y[m, 1 : n_visits[m]]``, and the size of a variable, ``vector[K - least[m]] lp``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from stansub.stan.containers import Rows, Total, Value
from stansub.stan.elementary import MOST_VALUES
from stansub.stan.frames import Frame
from stansub.stan.operators import is_integer
from stansub.stan.rowwise import Mask, NotFollowedError, Number, data, is_kind, pick
from stansub.stan.syntax import Expression as Node

# Values of a loop's variable, in iterations of the longest loop, from which each observation has its own.
_SPREAD = 4


class VaryingError(NotFollowedError):
    """An integer of the data has a value for each observation.

    Attributes
    ----------
    values : ndarray of int, shape (n,)
    """

    def __init__(self, node: Node, values: NDArray[Any]) -> None:
        super().__init__(f"`{node}` is not a single known number")
        self.node, self.values = node, values


def by_cases(evaluate: Callable[[], Value], known: dict[Node, int]) -> Value:
    """Return a value for each observation, if needed evaluated for each value of an integer of the data.

    Raises `VaryingError`, too, if the value is a container, whose size may differ: what reads it is then evaluated for
    each value.

    Parameters
    ----------
    evaluate : callable
        Raises `VaryingError` where ``known`` does not have the integer's value.
    """
    try:
        return evaluate()
    except VaryingError as error:
        found, places = np.unique(error.values, return_inverse=True)
        if error.node in known or len(found) > MOST_VALUES:
            raise
        cases = []
        try:
            for value in found:
                known[error.node] = int(value)
                cases.append(by_cases(evaluate, known))
        finally:
            del known[error.node]
        if any(isinstance(one, Total | Rows | np.ndarray) for one in cases):
            raise
        return pick(cases, places)


def each_case(error: VaryingError, run: Callable[[], None], frame: Frame, n: int) -> None:
    """Run statements for each value of an integer, for the observations that have it; see `is_divisible`."""
    values = np.unique(error.values)

    def of_value(k: int) -> None:
        frame.known[error.node] = int(values[k])
        run()

    try:
        frame.split((error.values == value for value in values), of_value, n)
    finally:
        frame.known.pop(error.node, None)


def is_divisible(error: NotFollowedError, frame: Frame) -> TypeGuard[VaryingError]:
    """Return whether statements can run for each value of an integer of the data, with which a single run failed."""
    return (
        isinstance(error, VaryingError)
        and error.node not in frame.known
        and len(np.unique(error.values)) <= MOST_VALUES
    )


def iterations(low: NDArray[np.int64], high: NDArray[np.int64]) -> Iterator[tuple[Number, Mask]]:
    """Yield the values of the variable of a loop whose ends differ among observations, and which of these run it.

    Values are the same for all observations, unless many more than the longest loop has iterations, as if observations
    read consecutive parts of one array.
    """
    first, last, longest = int(np.min(low)), int(np.max(high)), int(np.max(high - low)) + 1
    if last - first < _SPREAD * longest:
        yield from ((k, (low <= k) & (k <= high)) for k in range(first, last + 1))
        return
    for k in range(longest):
        runs = low + k <= high
        yield data(np.where(runs, low + k, (low + k)[runs][0])), runs


def varying(arguments: Sequence[Value]) -> Iterator[int]:
    """Yield the places of integers of the data with few values among arguments."""
    for k, one in enumerate(arguments):
        if is_kind(one, "data") and is_integer(one) and 1 < len(np.unique(one.values)) <= MOST_VALUES:
            yield k
