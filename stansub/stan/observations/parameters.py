"""Parameters of a program as expressions of the unconstrained ones, by the transforms of Stan's reference manual."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from itertools import combinations, product
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.stan.observations.containers import Rows, Total, added
from stansub.stan.observations.containers import product as product_of
from stansub.stan.observations.elementary import exp
from stansub.stan.observations.rowwise import Expression, NotFollowedError, Number, affine, apply
from stansub.stan.syntax import Declaration
from stansub.stan.syntax import Expression as Node
from stansub.types import Check

Draw = Callable[[], Number]
_MOST_PARAMETERS = 1 << 17
# Numbers of the rows of one argument above which slopes are sparse: dense rows take up to twice as long so, and rows of
# groups a tenth or less.
_MOST_DENSE = 1 << 22


def unconstrained(
    declarations: Sequence[Declaration],
    values: dict[str, Any],
    value: Callable[[Node], Any],
    n: int,
    *,
    sparse: bool = False,
    check: Check = lambda: None,
) -> tuple[NDArray[np.int64], ...]:
    """Add each parameter's value to those of variables, and return the unconstrained places of their elements.

    The places have one dimension if a parameter does not have one for each element.

    Raises `NotFollowedError` if there are too many, or a parameter has an unsupported type.

    Parameters
    ----------
    values : dict
        Values of variables by name, to which those of the parameters are added in order: bounds may read them.
    value : callable
        Evaluates an expression of sizes or bounds with these values.
    sparse : bool
        Whether slopes are sparse even for few observations.
    check : callable
        Called for each unconstrained parameter; raises an error if it is time to stop.
    """
    sizes = [_shape(one, value) for one in declarations]
    dim = sum(
        int(np.prod(outer)) * _n_free(one, inner) for one, (outer, inner) in zip(declarations, sizes, strict=True)
    )
    if dim > _MOST_PARAMETERS:
        raise NotFollowedError(f"{dim:,} unconstrained parameters are too many")
    units, first_unit = iter(range(dim)), sp.csr_array(([1.0], [0], [0, 1]), shape=(1, dim))

    def draw() -> Number:
        check()
        unit = copy(first_unit)  # a new one would check its shape, which takes seven times as long
        unit.indices = np.array([next(units)], unit.indices.dtype)
        return affine(unit if sparse or n * dim > _MOST_DENSE else unit.toarray(), np.zeros(1))

    places, first = [], 0
    for one, (outer, inner) in zip(declarations, sizes, strict=True):
        array = np.empty((*outer, *inner), dtype=object)
        for place in product(*map(range, outer)):
            array[place] = _entry(one, inner, draw, value)
        values[one.name] = array if array.ndim else array.item()
        free = int(np.prod(outer)) * _n_free(one, inner)
        own = np.arange(first, first + free)
        first += free
        if free == array.size:  # matrices are stored column by column
            own = own.reshape((*outer, *inner[::-1]))
            own = np.moveaxis(own, range(len(outer), own.ndim), range(own.ndim - 1, len(outer) - 1, -1))
        places.append(own)
    return tuple(places)


def _shape(one: Declaration, value: Callable[[Node], Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    dims = tuple(int(value(dim)) for dim in one.all_dims)
    return dims[: len(one.array_dims)], dims[len(one.array_dims) :]


def _n_free(one: Declaration, inner: tuple[int, ...]) -> int:
    size = int(np.prod(inner))
    match one.base:
        case "simplex" | "sum_to_zero_vector":
            return size - 1
        case "cholesky_factor_corr" | "corr_matrix":
            return inner[0] * (inner[0] - 1) // 2
        case "cov_matrix" | "cholesky_factor_cov":
            rows, columns = inner
            return columns * (columns + 1) // 2 + (rows - columns) * columns
        case "real" | "vector" | "row_vector" | "matrix" | "ordered" | "positive_ordered" | "unit_vector":
            return size
    raise NotFollowedError(f"the parameter {one.name} has type {one.type}, which is not supported")


def _entry(one: Declaration, inner: tuple[int, ...], draw: Draw, value: Callable[[Node], Any]) -> Any:
    """Return an element of an array of parameters."""
    free = [draw() for _ in range(_n_free(one, inner))]
    found = np.empty(inner, dtype=object)
    match one.base:
        case "real" | "vector" | "row_vector" | "matrix":
            bounds = {bound.kind: value(bound.value) for bound in one.type.bounds}
            # Matrices are stored column by column.
            for place, x in zip(product(*map(range, inner[::-1])), free, strict=True):
                found[place[::-1]] = _bounded(x, {kind: _at(bound, place[::-1]) for kind, bound in bounds.items()})
        case "ordered" | "positive_ordered":
            for k, x in enumerate(free):
                step = x if k == 0 and one.base == "ordered" else exp(x)
                found[k] = step if k == 0 else found[k - 1] + step
        case "simplex":
            left: Number = 1.0
            for k, x in enumerate(free):
                share = apply("inv_logit", x - np.log(len(free) - k))
                found[k] = left * share
                left = left * (1.0 - share)
            found[len(free)] = left
        case "unit_vector":
            scale = apply("inv", apply("sqrt", added([apply("square", x) for x in free])))
            found[:] = [x * scale for x in free]
        case "sum_to_zero_vector":
            _sum_to_zero(found, free)
        case "cholesky_factor_corr":
            _correlation(found, iter(free))
        case "corr_matrix":
            rows = sorted(combinations(range(inner[0]), 2), key=lambda place: place[::-1])
            by_column = dict(zip(combinations(range(inner[0]), 2), free, strict=True))
            _correlation(found, (by_column[place] for place in rows))
            found = product_of(found, found.T, -1)
        case "cholesky_factor_cov" | "cov_matrix":
            _covariance(found, iter(free))
            found = found if one.base == "cholesky_factor_cov" else product_of(found, found.T, -1)
    return found if inner else found.item()


def _at(bound: Any, place: tuple[int, ...]) -> Number:
    """Return the bound of an element: its own, or that of all."""
    if isinstance(bound, Rows | Total):
        raise NotFollowedError("the bounds of a parameter are computed for each observation")
    return bound[place] if isinstance(bound, np.ndarray) else bound


def _bounded(x: Number, bounds: dict[str, Any]) -> Number:
    if not bounds:
        return x
    low, high = bounds.get("lower"), bounds.get("upper")
    low = None if low is not None and not isinstance(low, Expression) and low == -np.inf else low
    high = None if high is not None and not isinstance(high, Expression) and high == np.inf else high
    if low is not None and high is not None:
        return low + (high - low) * apply("inv_logit", x)
    if low is not None:
        return low + exp(x)
    if high is not None:
        return high - exp(x)
    return bounds.get("offset", 0.0) + bounds.get("multiplier", 1.0) * x


def _sum_to_zero(found: NDArray[Any], free: list[Number]) -> None:
    """Compute a vector whose sum is 0, from coordinates along orthogonal directions of length 1."""
    found[:] = 0.0
    for k, x in enumerate(free):
        step = x * (1 / np.sqrt((k + 1) * (k + 2)))
        found[: k + 1] += step
        found[k + 1] = (-(k + 1.0)) * step


def _covariance(found: NDArray[Any], free: Any) -> None:
    """Compute the Cholesky factor of a covariance, row by row, with the logs of the diagonal."""
    found[...] = 0.0
    for i, j in zip(*np.tril_indices(len(found), 0, found.shape[1]), strict=True):
        found[i, j] = exp(next(free)) if i == j else next(free)


def _correlation(found: NDArray[Any], free: Any) -> None:
    """Compute the Cholesky factor of a correlation matrix, row by row from partial correlations."""
    found[...] = 0.0
    found[0, 0] = 1.0
    for i in range(1, len(found)):
        left: Number = 1.0
        for j in range(i):
            z = 2.0 * apply("inv_logit", 2.0 * next(free)) - 1.0
            found[i, j] = z * apply("sqrt", left)
            left = left - apply("square", found[i, j])
        found[i, i] = apply("sqrt", left)
