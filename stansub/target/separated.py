"""Changes of a function along each parameter, from few evaluations where most parameters change few of its values.

Parameters that change different values are moved together (Curtis, Powell and Reid 1974). Their values are found by
halving groups of parameters: what a half changes, its group changes, too. Halves of groups that change different values
are moved together, so a few parameters that change many values, and thousands that change few, take some dozens of
evaluations.

Gradients have elements that most parameters change, such as that of a common scale. By symmetry, these follow from what
the scale changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.errors import EndedError, RunError
from stansub.types import FloatArray

Function = Callable[[FloatArray], FloatArray]
Places = NDArray[np.int64]

# Parameters up to which each is moved alone, and the share of their number that halving may take in evaluations.
_FEW, _SHARE = 256, 0.25
# Operations that show which groups overlap, above which most do.
_OPERATIONS = 1e9
# Groups of which more than half must change an element of a gradient for it to be shared.
_MANY = 32


@dataclass(frozen=True)
class Separated:
    """Groups of parameters that change different values of a function."""

    groups: Sequence[Places]
    values: Sequence[Places]
    """For each parameter, the values that it changes; unused for one that is a group alone."""
    shared: NDArray[np.bool_]
    """Shape (m,): values that most parameters change. A group of several parameters lacks them."""

    @classmethod
    def of(cls, function: Function, at: FloatArray, steps: FloatArray, *, symmetric: bool = False) -> Separated:
        """Return groups for steps near a point; each parameter alone if they are few, or not separate.

        Parameters
        ----------
        function : callable
            From parameters, shape (dim,), to values, shape (m,).
        steps : ndarray, shape (dim,)
            Groups are moved by random shares of these, so that changes do not cancel.
        symmetric : bool
            Whether the function is a gradient, so that some values may be shared.
        """
        found = None
        if len(at) > _FEW:
            try:
                found = _halved(function, at, steps * np.random.default_rng(0).uniform(0.5, 1, len(at)), symmetric)
            except EndedError:
                raise
            except RunError:  # the function is not defined where many are moved
                pass
        return found or cls(list(np.arange(len(at))[:, np.newaxis]), (), np.zeros(len(at), bool))

    def changes(self, function: Function, at: FloatArray, steps: FloatArray) -> sp.csc_array:
        """Return function(at + steps_k e_k) - function(at) as column k, shape (m, dim).

        Where a group changes other values than its parameters should, or half of it those of the others, its parameters
        are moved alone.
        """
        base, rng = function(at), np.random.default_rng(0)
        entries = [_Entries(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]  # there may be no others
        for group in self.groups:
            together = self._together(function, at, steps, base, rng.permutation(group)) if len(group) > 1 else None
            if together is not None:
                entries.append(together)
                continue
            for k in group:
                change = _moved(function, at, steps, group[group == k]) - base
                rows = np.flatnonzero(change)
                entries.append(_Entries(rows, np.full(len(rows), k), change[rows]))
        rows, columns, values = (np.concatenate(each) for each in zip(*entries, strict=True))
        return sp.csc_array(sp.coo_array((values, (rows, columns)), shape=(len(base), len(at))))

    def _together(
        self, function: Function, at: FloatArray, steps: FloatArray, base: FloatArray, group: Places
    ) -> _Entries | None:
        """Return the changes along the parameters of a group; None if they do not change different values."""
        half = group[: len(group) // 2]
        try:
            change, by_half = (_moved(function, at, steps, own) - base for own in (group, half))
        except EndedError:
            raise
        except RunError:
            return None
        owners = np.full(len(base), -1)
        for k in group:
            owners[self.values[k]] = k
        rows, rows_of_half = (np.flatnonzero((own != 0) & ~self.shared) for own in (change, by_half))
        if (owners[rows] < 0).any() or not np.isin(owners[rows_of_half], half).all():
            return None
        return _Entries(rows, owners[rows], change[rows])


class _Entries(NamedTuple):
    """Entries of a matrix of changes."""

    rows: Places
    columns: Places
    values: FloatArray


def _moved(function: Function, at: FloatArray, steps: FloatArray, group: Places) -> FloatArray:
    moved = at.copy()
    moved[group] += steps[group]
    return function(moved)


def _halved(function: Function, at: FloatArray, steps: FloatArray, symmetric: bool) -> Separated | None:
    """Return groups found by halving; None if they take too many evaluations."""
    base, dim, n_left = function(at), len(at), _SHARE * len(at)
    shared = np.zeros(len(base), bool)
    groups, values = [np.arange(dim)], [np.arange(len(base))]
    while any(len(group) > 1 for group in groups):
        halves = [half for group in groups for half in np.array_split(group, min(len(group), 2))]
        within = [own for group, own in zip(groups, values, strict=True) for _ in range(min(len(group), 2))]
        together = _disjoint(within, len(base), int(n_left))
        if together is None:
            return None
        n_left -= len(together)
        for some in together:
            changed = _moved(function, at, steps, np.concatenate([halves[k] for k in some])) != base
            for k in some:
                within[k] = within[k][changed[within[k]]]
        if symmetric and len(halves) >= _MANY:
            shared |= np.bincount(np.concatenate(within), minlength=len(base)) > len(halves) / 2
            within = [own[~shared[own]] for own in within]
        changing = [k for k, own in enumerate(within) if own.size]
        groups, values = [halves[k] for k in changing], [within[k] for k in changing]
    if symmetric:
        others = [k for k, group in enumerate(groups) if not shared[group[0]]]
        groups, values = [groups[k] for k in others], [values[k] for k in others]
    each = [np.empty(0, np.int64)] * dim
    for group, own in zip(groups, values, strict=True):
        each[group[0]] = own
    together = _disjoint(values, len(base), int(n_left))
    if together is None:
        return None
    own = np.concatenate([*groups, np.empty(0, np.int64)])
    alone = np.flatnonzero(shared)[:, np.newaxis] if symmetric else ()
    return Separated([*(own[some] for some in together), *alone], each, shared)


def _disjoint(values: Sequence[Places], m: int, most: int) -> list[Places] | None:
    """Return groups of sets of values that have none in common; None if they are too many, or most sets overlap."""
    starts = np.cumsum([0, *map(len, values)])
    places = np.concatenate([*values, np.empty(0, np.int64)])
    if (np.bincount(places, minlength=m).astype(float) ** 2).sum() > _OPERATIONS:
        return None
    sets = sp.csr_array((np.ones(len(places), np.int32), places, starts), shape=(len(values), m))
    return coloured(sp.csr_array(sets @ sets.T), most)


def coloured(near: sp.csr_array, most: int) -> list[Places] | None:
    """Return groups of columns that are not near each other; None if there are more than ``most``."""
    n = near.shape[0]
    colours = np.full(n, -1)
    for k, (first, end) in enumerate(pairwise(near.indptr.tolist())):
        taken = set(colours[near.indices[first:end]].tolist())
        colours[k] = next(colour for colour in range(n) if colour not in taken)
        if colours[k] >= most:
            return None
    return [np.flatnonzero(colours == colour) for colour in range(colours.max(initial=-1) + 1)]
