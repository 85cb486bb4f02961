"""Integers that differ among observations where the text needs one number: each value is followed on its own.

Examples are the end of a slice, ``y[m, 1 : n_visits[m]]``, and the size of a variable, ``vector[K - least[m]] lp``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from stansub.stan.observations.containers import Rows, Total, Value
from stansub.stan.observations.elementary import MOST_VALUES
from stansub.stan.observations.frames import Frame
from stansub.stan.observations.operators import is_integer
from stansub.stan.observations.rowwise import Expression as Own
from stansub.stan.observations.rowwise import Mask, NotFollowedError, Number, data, is_kind, known, pick
from stansub.stan.syntax import Expression as Node
from stansub.stan.syntax import Slice

# Maximum number of values of an integer that are followed separately where data alone are computed from each.
_MOST_KNOWN = 1000

# Values of a loop's variable, in iterations of the longest loop, from which each observation has its own.
_SPREAD = 4


class VaryingError(NotFollowedError):
    """An integer of the data, or the length of a slice, has a value for each observation.

    Attributes
    ----------
    values : ndarray of int, shape (n,)
    """

    def __init__(self, node: Node, values: NDArray[Any]) -> None:
        what = f"the length of `{node}`" if isinstance(node, Slice) else f"`{node}`"
        count = len(np.unique(values))
        many = f" but has {count} values, more than {MOST_VALUES}" if count > MOST_VALUES else ""
        super().__init__(f"{what} is not a single known number{many}")
        self.node, self.values = node, values


def differs(value: Value) -> TypeGuard[Own]:
    """Return whether a value is an integer of the data with a value for each observation."""
    return is_kind(value, "data") and is_integer(value) and not value.is_single


def by_cases(evaluate: Callable[[], Value], frame: Frame) -> Value:
    """Return a value for each observation, if needed evaluated for each value of an integer of the data.

    Raises `VaryingError`, too, if the value is a container, whose size may differ: what reads it is then evaluated for
    each value. An integer with many values is followed only if all that is evaluated is data.

    Parameters
    ----------
    evaluate : callable
        Raises `VaryingError` where the frame does not know the integer's value. Meanwhile the frame's statements run
        for the observations with this value only, so that two integers have the pairs of values that occur.
    """
    try:
        return evaluate()
    except VaryingError as error:
        live, found, cases = frame.live, _values(error, frame), []
        if error.node in frame.known or len(found) > _MOST_KNOWN:
            raise
        is_many = len(found) > MOST_VALUES
        try:
            for value in found:
                frame.known[error.node] = int(value)
                has_value = error.values == value
                frame.live = has_value if live is None else live & has_value
                cases.append(by_cases(evaluate, frame))
                if is_many and (known(cases[-1]) is None or _is_container(cases[-1])):
                    raise
        finally:
            frame.live = live
            del frame.known[error.node]
        if any(map(_is_container, cases)):
            raise
        return pick(cases, np.minimum(np.searchsorted(found, error.values), len(found) - 1))


def _is_container(value: Value) -> bool:
    return isinstance(value, Total | Rows | np.ndarray)


def each_case(error: VaryingError, run: Callable[[], None], frame: Frame, n: int) -> None:
    """Run statements for each value of an integer, for the observations that have it; see `is_divisible`."""
    values = _values(error, frame)

    def of_value(k: int) -> None:
        frame.known[error.node] = int(values[k])
        run()

    try:
        frame.split((error.values == value for value in values), of_value, n)
    finally:
        frame.known.pop(error.node, None)


def is_divisible(error: NotFollowedError, frame: Frame) -> TypeGuard[VaryingError]:
    """Return whether what failed with an integer of the data can be followed for each of its values."""
    return (
        isinstance(error, VaryingError) and error.node not in frame.known and len(_values(error, frame)) <= MOST_VALUES
    )


def _values(error: VaryingError, frame: Frame) -> NDArray[Any]:
    """Return the values of an integer, in order, of the observations for which statements run."""
    return np.unique(error.values if frame.live is None else error.values[frame.live])


def places(index: Slice, low: Own, high: Own, frame: Frame) -> NDArray[Any]:
    """Return the places from ``low`` to ``high``, which differ among observations, one after another.

    Raises `VaryingError` if the frame does not know how many there are and that differs, too.
    """
    if (size := frame.known.get(index)) is None:
        sizes = np.asarray(high.values) - np.asarray(low.values) + 1
        live = sizes if frame.live is None else sizes[frame.live]
        if live.min() < live.max():
            raise VaryingError(index, sizes)
        size = int(live[0])
    found = np.empty(max(size, 0), dtype=object)
    found[:] = [low + k for k in range(size)]
    return found


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
