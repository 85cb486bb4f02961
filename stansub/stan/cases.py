"""Integers that differ among observations where the text needs one number: each value is followed on its own.

An example is the end of a slice, ``y[m, 1 : n_visits[m]]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub.stan.containers import Total, Value
from stansub.stan.operators import is_integer
from stansub.stan.rowwise import NotFollowedError, is_kind, pick
from stansub.stan.syntax import Expression as Node

# Maximum number of values of an integer of the data that are followed separately.
_MOST_VALUES = 32


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

    Parameters
    ----------
    evaluate : callable
        Raises `VaryingError` where ``known`` does not have the integer's value.
    """
    try:
        return evaluate()
    except VaryingError as error:
        found, places = np.unique(error.values, return_inverse=True)
        if error.node in known or len(found) > _MOST_VALUES:
            raise
        cases = []
        try:
            for value in found:
                known[error.node] = int(value)
                cases.append(by_cases(evaluate, known))
        finally:
            del known[error.node]
        if any(isinstance(one, Total) for one in cases):
            raise
        return pick(cases, places)


def varying(arguments: Sequence[Value]) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
    """Yield integers of the data among arguments: their place, their values, and which of these an observation has."""
    for k, one in enumerate(arguments):
        if is_kind(one, "data") and is_integer(one):
            found, places = np.unique(one.values, return_inverse=True)
            if 1 < len(found) <= _MOST_VALUES:
                yield k, found, places
