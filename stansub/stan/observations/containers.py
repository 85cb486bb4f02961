"""Containers of an observation's numbers (`stansub.stan.observations.rowwise`): the values of a program's variables.

A value is a number or an expression; a small array of these; a `Rows`, with one entry for each observation; or a
`Total`, a sum over the observations. A known value is a plain array of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.stan.observations.rowwise import (
    Expression,
    Mask,
    NotFollowedError,
    Number,
    affine,
    data,
    is_kind,
    known,
    pick,
    select,
)
from stansub.stan.observations.slopes import Slopes, stacked
from stansub.stan.reading.typing import ROW_VECTOR, VECTOR
from stansub.stan.syntax import UnsizedType

Value = Any


@dataclass(frozen=True, eq=False)
class Rows:
    """A container with an entry for each observation."""

    inner: Value
    """An observation's entry."""
    which: NDArray[np.int64] | None = None
    """The observations, from 0, if they are not all in order."""


@dataclass(frozen=True, eq=False)
class Across:
    """A container whose dimension of observations is not the first: ``array[3, N] real p``."""

    inner: Value
    """An observation's entry, without that dimension."""
    axis: int


@dataclass(frozen=True, eq=False)
class Total:
    """Sum over the observations."""

    each: Number
    """An observation's term."""
    rest: Number = 0.0
    """Term that is added once."""

    def __add__(self, other: Value) -> Total:
        if isinstance(other, Total):
            return Total(self.each + other.each, self.rest + other.rest)
        return Total(self.each, self.rest + _number(other))

    __radd__ = __add__

    def __neg__(self) -> Total:
        return self.__mul__(-1.0)

    def __sub__(self, other: Value) -> Total:
        return self.__add__(-other)

    def __rsub__(self, other: Value) -> Total:
        return self.__mul__(-1.0).__add__(other)

    def __mul__(self, other: Value) -> Total:
        factor = _number(other)
        if isinstance(factor, Expression) and not factor.is_single:
            raise NotFollowedError("a sum over observations is multiplied by a value that differs between them")
        return Total(self.each * factor, self.rest * factor)

    __rmul__ = __mul__

    def __truediv__(self, other: Value) -> Total:
        return self.__mul__(1.0 / _number(other))


def _number(x: Value) -> Number:
    if isinstance(x, np.ndarray | Rows | Total):
        raise NotFollowedError("a sum over observations is combined with a container")
    return x


def empty(dims: tuple[int, ...], is_integer: bool) -> Value:
    """Return the value of a variable before it is set."""
    return np.full(dims, 0 if is_integer else np.nan)[()]


def dims_of(x: Value, n: int) -> tuple[int, ...]:
    """Return the dimensions of a value, given n observations."""
    if isinstance(x, Rows):
        return n if x.which is None else len(x.which), *np.shape(x.inner)
    if isinstance(x, Across):
        return *np.shape(x.inner)[: x.axis], n, *np.shape(x.inner)[x.axis :]
    return np.shape(x)


def is_known(x: Value) -> bool:
    """Return whether a value is a number or an array of numbers."""
    return not isinstance(x, Expression | Rows | Across | Total) and np.asarray(x).dtype != object


def simplest(x: Value) -> Value:
    """Return an array of numbers for a container of numbers alone."""
    if isinstance(x, Rows) and x.which is None:
        if is_kind(x.inner, "data"):
            return x.inner.values
        if isinstance(x.inner, np.ndarray) and all(is_kind(one, "data") for one in x.inner.flat):
            flat = np.stack([one.values for one in x.inner.flat], axis=1)
            return flat.reshape(-1, *x.inner.shape)
    if isinstance(x, np.ndarray) and x.dtype == object and not any(isinstance(one, Expression) for one in x.flat):
        return x.astype(np.float64)
    return x


def by_row(x: Value) -> Value:
    """Return an observation's part of an array with an entry for each observation."""
    if x.dtype == object:
        if x.ndim == 1:
            return _by_entry(x)
        return filled(lambda place: _by_entry(x[(slice(None), *place)]), x.shape[1:])
    if x.ndim == 1:
        return data(x)
    return filled(lambda place: data(np.ascontiguousarray(x[(slice(None), *place)])), x.shape[1:])


def _by_entry(x: NDArray[Any]) -> Value:
    """Return an observation's part of an array of expressions, many of which may be equal."""
    ids = np.fromiter(map(id, x), np.int64, len(x))
    _, first, places = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return pick(list(x[first[order]]), np.argsort(order)[places])


def filled(of: Callable[[tuple[int, ...]], Value], dims: tuple[int, ...]) -> NDArray[Any]:
    """Return an array with a value for each place."""
    found = np.empty(dims, dtype=object)
    for place in np.ndindex(*dims):
        found[place] = of(place)
    return found


def elementwise(function: Callable[..., Number], values: Sequence[Value], n: int) -> Value:
    """Apply a function of numbers to each entry of containers of the same size, of n observations or fewer."""
    values = [simplest(one) for one in values]
    if any(isinstance(one, Total) for one in values):
        try:
            return function(*values)
        except (NotFollowedError, TypeError):  # it is no sum over observations; that of data is a number: 1.0 * N
            return elementwise(function, [_summed(one, n) for one in values], n)
    shapes = [one.shape for one in values if isinstance(one, np.ndarray)]
    over = [one for one in values if isinstance(one, Rows)]
    if over or (any(shape[:1] == (n,) for shape in shapes) and not all(map(is_known, values))):
        which = next((one.which for one in over if one.which is not None), None)
        m = next((len(one.inner) for one in over if np.ndim(one.inner) == 1), 1)
        inner = [_aligned(_unflattened(one, m, n), which, n) for one in values]
        return simplest(Rows(elementwise(function, inner, -1), which))
    if not shapes:
        return function(*values)
    shape = np.broadcast_shapes(*shapes)
    if any(one != shape for one in shapes):
        raise NotFollowedError("containers of different sizes are combined")
    if all(map(is_known, values)) and (whole := _at_once(function, values, shape)) is not None:
        return whole
    entry = [one if isinstance(one, np.ndarray) else None for one in values]
    return simplest(
        filled(
            lambda place: function(*(v if a is None else plain(a[place]) for a, v in zip(entry, values, strict=True))),
            shape,
        )
    )


def _summed(x: Value, n: int) -> Value:
    """Return the sum of data over n observations; other values as they are."""
    if not isinstance(x, Total):
        return x
    each = known(x.each)
    if each is None or isinstance(x.rest, Expression):
        raise NotFollowedError("a function of a sum over observations is not supported")
    return (each.sum() if isinstance(each, np.ndarray) else n * each) + x.rest


def plain(x: Any) -> Any:
    """Return a number of numpy as one of Python; other values as they are."""
    return x.item() if isinstance(x, np.generic) else x


def _at_once(function: Callable[..., Number], values: Sequence[Value], shape: tuple[int, ...]) -> Value | None:
    """Return the result for known numbers, computed as if they were those of observations."""
    flat = [data(one.ravel()) if isinstance(one, np.ndarray) else one for one in values]
    found = known(function(*flat))
    return np.broadcast_to(found, int(np.prod(shape))).reshape(shape)


def _unflattened(x: Value, m: int, n: int) -> Value:
    """Return a vector as the matrix of n rows whose m columns it has one after another."""
    is_flat = m > 1 and isinstance(x, np.ndarray) and x.shape == (n * m,)
    return x.reshape((n, m), order="F") if is_flat else x


def _aligned(x: Value, which: NDArray[np.int64] | None, n: int) -> Value:
    """Return an observation's part of a value with entries for some of n observations."""
    if isinstance(x, Rows):
        if x.which is not which and (x.which is None or which is None or not np.array_equal(x.which, which)):
            raise NotFollowedError("containers of different observations are combined")
        return x.inner
    if not isinstance(x, np.ndarray):
        return x
    if which is None and len(x) == n:
        return by_row(x)
    if which is not None and len(x) == len(which) and x.dtype != object:
        full = np.ones((n, *x.shape[1:]), x.dtype)
        full[which] = x
        return by_row(full)
    raise NotFollowedError("containers of different sizes are combined")


def total(x: Value, n: int) -> Value:
    """Return the sum of all entries."""
    x = Rows(x.inner) if isinstance(x, Across) else simplest(x)
    if isinstance(x, Rows):
        each = total(x.inner, -1)
        if x.which is not None:
            mask = np.zeros(n, bool)
            mask[x.which] = True
            if mask.sum() != len(x.which):
                raise NotFollowedError("observations are added more than once")
            each = select(mask, each, 0.0)
        return Total(each)
    if isinstance(x, np.ndarray):
        return x.sum() if x.dtype != object else added(list(x.flat))
    return x


def added(terms: Sequence[Number]) -> Number:
    """Return the sum of numbers, in pairs, so that few operations follow each other."""
    while len(terms) > 1:
        terms = [sum(terms[k : k + 2]) for k in range(0, len(terms), 2)]
    return terms[0] if terms else 0.0


def product(a: Value, b: Value, n: int) -> Value:
    """Return a product of matrices and vectors."""
    a, b = simplest(a), simplest(b)
    if any(isinstance(one, Rows) for one in (a, b)) and all(_has_numbers(one, n) for one in (a, b)):
        return total(elementwise(mul, [a, b], n), n)
    if isinstance(a, Rows):
        if not isinstance(b, np.ndarray) or a.which is not None:
            raise NotFollowedError("a product of containers of observations is not supported")
        return simplest(Rows(product(a.inner, b, -1)))
    if isinstance(b, Rows) or not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
        raise NotFollowedError("a product over observations is not supported")
    if is_known(a) and is_known(b):
        return a @ b
    if a.ndim == 1 and b.ndim == 2:  # the columns of a design that is stored by columns are those of observations
        return product(b.T, a, n)
    if a.ndim == b.ndim == 2 and len(a) == n:
        columns = [product(a, column, n) for column in b.T]
        return Rows(
            np.array([by_row(one) if isinstance(one, np.ndarray) else one.inner for one in columns], dtype=object)
        )
    if b.ndim == 1 and (shared := _factored(b)) is not None:
        factor, rest = shared
        return elementwise(lambda x: factor * x, [product(a, rest, n)], n)
    if a.ndim == 2 and is_known(a) and b.ndim == 1:
        if (line := _line(a, b)) is not None:
            slopes, values = line
            if len(a) == n:
                return Rows(affine(slopes, values))
            return np.array([affine(slopes[k : k + 1], values[k : k + 1]) for k in range(len(a))], dtype=object)
        if len(a) == n:
            return Rows(dot(by_row(a), b))
    if a.ndim == b.ndim == 1:
        return dot(a, b) if len(a) == len(b) else _outer(a, b, n)
    if a.ndim == 2 and b.ndim == 1:
        return np.array([dot(row, b) for row in a], dtype=object)
    return np.array([[dot(row, column) for column in b.T] for row in a], dtype=object)


def _has_numbers(x: Value, n: int) -> bool:
    """Return whether a value has one number for each observation."""
    return np.ndim(x.inner) == 0 and x.which is None if isinstance(x, Rows) else np.shape(x) == (n,)


def _outer(a: NDArray[Any], b: NDArray[Any], n: int) -> Value:
    """Return the products of the entries of a vector and a row vector, which Stan accepts with different sizes."""
    if len(a) != n:
        return np.multiply.outer(a.astype(object), b.astype(object))
    own = by_row(a)
    return simplest(Rows(np.array([own * one for one in b], dtype=object)))


def as_matrix(x: Value, kind: UnsizedType) -> Value:
    """Return a vector, of which only the type says whether it is a row or a column, as a matrix; others as they are."""
    if isinstance(x, Rows) and np.ndim(x.inner) == 0 and kind == VECTOR:
        return Rows(np.array([x.inner], dtype=object), x.which)
    if not isinstance(x, np.ndarray):
        return x
    x = real(x)
    if x.ndim > 1:
        return x
    if kind not in (VECTOR, ROW_VECTOR):
        raise NotFollowedError("a vector may be a row or a column")
    return x[:, np.newaxis] if kind == VECTOR else x[np.newaxis]


def repeated(x: Value, kind: UnsizedType, size: int) -> Value:
    """Return a matrix whose columns are a vector, or whose rows are a row vector, so many times."""
    x = as_matrix(x, kind)
    if isinstance(x, Rows) and kind == VECTOR:
        return Rows(np.repeat(x.inner, size), x.which)
    if not isinstance(x, np.ndarray):
        raise NotFollowedError("a matrix repeats what is no vector")
    return np.repeat(x, size, axis=1 if kind == VECTOR else 0)


def real(x: NDArray[Any]) -> NDArray[Any]:
    """Return an array whose integers are real numbers."""
    return x.astype(np.float64, copy=False) if x.dtype.kind in "ib" else x


def _factored(b: NDArray[Any]) -> tuple[Number, NDArray[Any]] | None:
    """Return a factor common to all entries, and the entries without it."""
    parts = [one.parts for one in b if is_kind(one, "product")]
    if not parts or len(parts) < len(b):
        return None
    for k in (0, 1):
        factor = parts[0][k]
        if isinstance(factor, Expression) and all(one[k] is factor for one in parts):
            return factor, np.array([one[1 - k] for one in parts], dtype=object)
    return None


def dot(a: NDArray[Any], b: NDArray[Any]) -> Number:
    """Return the sum of products of entries."""
    if len(a) != len(b):
        raise NotFollowedError("vectors of different sizes are multiplied")
    if a.dtype == object and b.dtype == object and len(a) and all(is_kind(one, "data") for one in a):
        line = _line(np.stack([one.values for one in a], axis=1), b)
        if line is not None:
            return affine(*line)
    return added([plain(x) * plain(y) for x, y in zip(a, b, strict=True)])


def _line(a: NDArray[Any], b: NDArray[Any]) -> tuple[Slopes, NDArray[Any]] | None:
    """Return slopes and constants of the product if b is affine and the same for all observations."""
    if not len(b) or not all(is_kind(one, "affine") and one.is_single for one in b):
        return None
    slopes = stacked([one.slopes for one in b])
    own = sp.csr_array(a, dtype=np.float64) if isinstance(slopes, sp.csr_array) else a
    return own @ slopes, a @ np.concatenate([one.values for one in b])


def chosen(mask: Mask, first: Value, other: Value, n: int) -> Value:
    """Return the first of two values where a mask over the observations holds, and the second elsewhere."""
    if isinstance(first, Total) or isinstance(other, Total):
        raise NotFollowedError("a sum over observations inside a branch is not supported")
    return elementwise(lambda a, b: select(mask, a, b), [first, other], n)


def is_of_data(x: Value) -> bool:
    """Return whether a value does not depend on parameters."""
    if isinstance(x, Rows | Across):
        return is_of_data(x.inner)
    if isinstance(x, np.ndarray) and x.dtype == object:
        return all(map(is_of_data, x.flat))
    return not isinstance(x, Expression) or is_kind(x, "data")
