"""Decisions about some of the factors, exactly as if there were no others."""

from __future__ import annotations

import numpy as np

from stansub import _loop
from stansub.acceptance.stopping import StoppingRule
from stansub.types import IntArray


def loop_table(rule: StoppingRule, n_units: int, level: float | None = None) -> _loop.Table:
    """The looks of a rule as the decision loop takes them."""
    table = rule.table(n_units) if level is None else rule.table(n_units, level)
    return _loop.Table(table.n, table.scale, table.offset)


def subset(rule: StoppingRule, which: IntArray, *, level: float | None = None) -> _loop.Subset:
    """Some of the factors, with the looks of a rule for a population of so many.

    The decision sums over these factors only, draws from them only, and with control variates takes the change of
    their expansions only. None of them is a set too: then the global part alone decides, and no data are used.

    Parameters
    ----------
    rule : StoppingRule
        That of the decider.
    which : ndarray of int, shape (n,)
        The factors, none of them twice.
    level : float, optional
        Error level in place of the rule's own.
    """
    places = np.ascontiguousarray(which, np.int32)
    return _loop.Subset(places, loop_table(rule, places.size, level) if places.size else None)
