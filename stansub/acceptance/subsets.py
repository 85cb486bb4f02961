"""Decisions about some of the factors, exactly as if there were no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub import _loop
from stansub.acceptance.stopping import StoppingRule


def loop_table(rule: StoppingRule, n_units: int, level: float | None = None) -> _loop.Table:
    """The looks of a rule as the decision loop takes them."""
    table = rule.table(n_units) if level is None else rule.table(n_units, level)
    return _loop.Table(table.n, table.scale, table.offset)


def subset(which: NDArray[np.integer[Any]], table: Callable[[int], _loop.Table]) -> _loop.Subset:
    """Some of the factors, with the looks for a population of so many.

    The decision sums over these factors only, draws from them only, and with control variates takes the change of
    their expansions only. None of them is a set too: then the global part alone decides, and no data are used.

    Parameters
    ----------
    which : ndarray of int, shape (n,)
        The factors, none of them twice.
    table : callable
        From the number of factors to the looks, by the decider's rule: `loop_table`.
    """
    places = np.ascontiguousarray(which, np.int32)
    return _loop.Subset(places, table(places.size) if places.size else None)
