"""Parts of containers of an observation's numbers (`stansub.stan.observations.containers`), read and replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub.stan.observations.containers import (
    Across,
    Rows,
    Total,
    Value,
    by_row,
    chosen,
    dims_of,
    filled,
    is_known,
    plain,
    simplest,
)
from stansub.stan.observations.rowwise import Expression, Mask, NotFollowedError, is_kind, known, pick
from stansub.stan.syntax import Call, Infix, Literal, Slice, Subscript
from stansub.stan.syntax import Expression as Node

# An index: one place or several from 1, known or one for each observation; None for all.
Index = Any


# Maximum number of elements of a container of which each observation assigns to its own.
_MOST_PLACES = 32


def _run(first: Node, size: Node) -> Slice:
    """Return the slice of a number of places from the first one on."""
    one = Literal("1")
    return Slice(first, size if first == one else Infix("-", Infix("+", first, size), one))


_AS_INDICES: dict[tuple[str, int], Callable[..., tuple[Node, ...]]] = {
    ("segment", 2): lambda i, n: (_run(i, n),),
    ("row", 1): lambda i: (i,),
    ("col", 1): lambda j: (Slice(), j),
    ("block", 4): lambda i, j, m, k: (_run(i, m), _run(j, k)),
    ("sub_row", 3): lambda i, j, k: (i, _run(j, k)),
    ("sub_col", 3): lambda i, j, m: (_run(i, m), j),
}


def subscripted(node: Node) -> Node:
    """Return a subscript for a call of a function that reads a part of a container; other expressions as they are."""
    if isinstance(node, Call) and (indices := _AS_INDICES.get((node.name, len(node.arguments) - 1))) is not None:
        return Subscript(node.arguments[0], indices(*node.arguments[1:]))
    return node


def length(base: Value, k: int, n: int) -> int:
    """Return the length of dimension k of a container, given n observations."""
    dims = dims_of(base, n)
    if k >= len(dims):
        raise NotFollowedError("a variable has more indices than dimensions")
    return dims[k]


def part(base: Value, indices: Sequence[Index], n: int) -> Value:
    """Return a part of a container, given n observations."""
    if not indices:
        return base
    if isinstance(base, Rows):
        return _of_rows(base, indices, n)
    if isinstance(base, Across):
        return _of_rows(Rows(base.inner), _first(indices, base.axis), n)
    if not isinstance(base, np.ndarray):
        raise NotFollowedError("a scalar is indexed")
    if len(indices) > base.ndim:
        raise NotFollowedError("a variable has more indices than dimensions")
    for k, index in enumerate(indices):
        if isinstance(index, np.ndarray) and index.dtype == object and index.ndim == 1:
            return _listed(base, indices, k, n)
    moving = [k for k, index in enumerate(indices) if _moves(index)]
    # From the last dimension on, so that the other dimensions keep their positions.
    for k in range(len(indices) - 1, -1, -1):
        if k not in moving and indices[k] is not None:
            base = np.take(base, _places(indices[k], base.shape[k]), axis=k)
    if not moving:
        return plain(base)
    gone = [k for k, index in enumerate(indices) if index is not None and np.ndim(known(index)) == 0]
    axes = [k - sum(other < k for other in gone) for k in moving]
    if axes != list(range(len(axes))):
        base = np.moveaxis(base, axes, range(len(axes)))
    dims, places = base.shape[: len(moving)], [_row_places(indices[k]) for k in moving]
    if not all(dims):
        raise NotFollowedError("a container without elements is indexed")
    # Where a branch is not taken, indices may be anything.
    inside = np.ravel_multi_index(places, dims, mode="clip")
    return _picked(base.reshape(-1, *base.shape[len(moving) :]), inside)


def _listed(base: Value, indices: Sequence[Index], k: int, n: int) -> Value:
    """Return a part where index k lists places that differ among observations, such as a team's members."""
    each = [part(base, [*indices[:k], one, *indices[k + 1 :]], n) for one in indices[k]]
    kept = sum(index is None or np.ndim(index) > 0 for index in indices[:k])
    found = np.empty((len(each), *np.shape(each[0])) if each else (0,), dtype=object)
    for place, one in enumerate(each):
        found[place] = one
    return simplest(np.moveaxis(found, 0, kept))


def _moves(index: Index) -> bool:
    return isinstance(index, Expression)


def _row_places(index: Expression) -> NDArray[np.int64]:
    places = known(index)
    if places is None:
        raise NotFollowedError("an index depends on parameters")
    return np.asarray(places, np.int64) - 1


def _places(index: Index, size: int) -> Any:
    places = np.asarray(index)
    if places.dtype == object or ((places < 1) | (places > size)).any():
        raise NotFollowedError("an index is out of range, or depends on parameters")
    return places.astype(np.int64) - 1


def _together(places: Sequence[Any]) -> tuple[Any, ...]:
    """Return indices of all combinations of some places, single ones or lists."""
    lists = iter(np.ix_(*(one for one in places if np.ndim(one))))
    return tuple(next(lists) if np.ndim(one) else one for one in places)


def _picked(base: Value, places: NDArray[np.int64]) -> Value:
    """Return the entries along the first dimension that observations select."""
    if base.dtype != object:
        return by_row(base[places])
    if base.ndim == 1:
        return pick(list(base), places)
    return filled(lambda place: pick([row[place] for row in base], places), base.shape[1:])


def _of_rows(base: Rows, indices: Sequence[Index], n: int) -> Value:
    first, rest = indices[0], indices[1:]
    if is_own(first, n) and base.which is None:
        return part(base.inner, rest, n)
    if _moves(first):
        raise NotFollowedError("an observation reads the value of another")
    which = base.which
    if first is not None:
        places = np.asarray(first)
        if places.ndim == 0 or places.dtype == object:
            raise NotFollowedError("the value of one observation is read by others")
        places = places.astype(np.int64) - 1
        which = places if which is None else which[places]
        if len(which) == n and np.array_equal(which, np.arange(n)):
            which = None
    inner = part(base.inner, rest, n)
    return Rows(inner, which)


def _first(indices: Sequence[Index], axis: int) -> list[Index]:
    """Return the indices with that of the observations, in a dimension after others, before them."""
    before, own = indices[:axis], indices[axis] if len(indices) > axis else None
    if len(before) < axis or (own is None and any(one is None or np.ndim(one) for one in before)):
        raise NotFollowedError("elements of all observations are read together")
    return [own, *before, *indices[axis + 1 :]]


def is_own(index: Index, n: int) -> bool:
    """Return whether an index is each observation's own place."""
    if not is_kind(index, "data"):
        return False
    return bool(np.array_equal(index.values, np.arange(1, n + 1)))


def elements(base: Value, by_number: bool, n: int) -> tuple[Value | None, Iterable[Value] | None]:
    """Return an observation's element of a container with one for each of n observations, and all elements in order.

    None if there is no such element, or all elements are not known apart. Those of a matrix are numbers, column by
    column (``by_number``).
    """
    base = simplest(base)
    if isinstance(base, Rows):
        return None if by_number or base.which is not None else base.inner, None
    if by_number:
        base = base.T.ravel()
    return by_row(base) if len(base) == n else None, map(plain, base)


def replaced(base: Value, indices: Sequence[Index], value: Value, mask: Mask | None, n: int) -> Value:
    """Return a container with a part replaced, for the observations of a mask."""
    if not indices:
        return value if mask is None else chosen(mask, value, base, n)
    if isinstance(value, Total) or not isinstance(base, Rows | Across | np.ndarray):
        raise NotFollowedError("an element of a scalar is assigned")
    axis = next((k for k, index in enumerate(indices) if is_own(index, n)), 0)
    if axis or isinstance(base, Across):
        return _replaced_across(base, axis, indices, value, mask, n)
    first, rest = indices[0], indices[1:]
    if is_own(first, n):
        if isinstance(base, np.ndarray):
            if len(base) != n:
                raise NotFollowedError("a container of other observations is assigned")
            base = Rows(by_row(base))
        if base.which is not None:
            raise NotFollowedError("a container of some observations is assigned")
        return simplest(Rows(replaced(base.inner, rest, value, mask, n)))
    if any(map(_moves, indices)):
        return _replaced_by_row(base, indices, value, mask, n)
    if isinstance(base, Rows):
        if first is None and isinstance(value, Rows | np.ndarray) and base.which is None:
            inner = value.inner if isinstance(value, Rows) else by_row(value)
            return simplest(Rows(replaced(base.inner, rest, inner, mask, n)))
        raise NotFollowedError("only some observations are assigned")
    if isinstance(value, Rows):
        if first is None and len(base) == n:
            return replaced(Rows(by_row(base)), indices, value, mask, n)
        raise NotFollowedError("observations are assigned to elements of others")
    if mask is not None:
        value = chosen(mask, value, part(base, indices, n), n)
    where = _together(
        [
            np.arange(size) if index is None else _places(index, size)
            for index, size in zip(indices, base.shape, strict=False)
        ]
    )
    new = base.copy() if is_known(base) and is_known(value) else base.astype(object)
    if new.dtype != object and np.asarray(value).dtype.kind == "f":
        new = new.astype(np.float64, copy=False)
    new[where] = value
    return new


def _replaced_across(
    base: Value, axis: int, indices: Sequence[Index], value: Value, mask: Mask | None, n: int
) -> Value:
    """Return a container in which each observation replaces a part of its own entry in a dimension after the first."""
    if isinstance(base, np.ndarray) and base.ndim > axis and base.shape[axis] == n:
        base = Across(by_row(np.moveaxis(base, axis, 0)), axis)
    if not isinstance(base, Across) or base.axis != axis:
        raise NotFollowedError("an observation assigns to the element of another")
    found = replaced(Rows(base.inner), _first(indices, axis), value, mask, n)
    return Across(found.inner, axis) if isinstance(found, Rows) else np.moveaxis(found, 0, axis)


def _replaced_by_row(base: Value, indices: Sequence[Index], value: Value, mask: Mask | None, n: int) -> Value:
    """Return a container in which each observation replaces the element that its data name."""
    k = next(k for k, index in enumerate(indices) if _moves(index))
    places = _row_places(indices[k]) + 1
    if isinstance(base, Rows) or base.shape[k] > _MOST_PLACES:
        raise NotFollowedError("an observation assigns to the element of another")
    live = np.ones(n, bool) if mask is None else mask
    for place in np.unique(places[live]):
        base = replaced(base, [*indices[:k], int(place), *indices[k + 1 :]], value, live & (places == place), n)
    return base
