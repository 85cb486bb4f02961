"""Decisions from a subset of the factors, as if there were no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub import _loop
from stansub.acceptance.stopping import StoppingRule


def loop_table(rule: StoppingRule, n_units: int, level: float | None = None) -> _loop.Table:
    """Return the looks of a rule for the decision loop."""
    table = rule.table(n_units) if level is None else rule.table(n_units, level)
    return _loop.Table(table.n, table.scale, table.offset)


def subset(which: NDArray[np.integer[Any]], table: Callable[[int], _loop.Table]) -> _loop.Subset:
    """Return a subset of the factors, with the looks for a population of its size.

    The decision sums over and draws from these factors only. With control variates it uses the change of their
    expansions only. The subset may be empty: the global part then decides alone, without data.

    Parameters
    ----------
    which : ndarray of int, shape (n,)
        The factors, each at most once.
    table : callable
        From the number of factors to the looks of the decider's rule: `loop_table`.
    """
    places = np.ascontiguousarray(which, np.int32)
    return _loop.Subset(places, table(places.size) if places.size else None)
