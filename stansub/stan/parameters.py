"""Parameters of a program as expressions of the unconstrained ones, by the transforms of Stan's reference manual."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.stan.elementary import exp
from stansub.stan.rowwise import Expression, NotFollowedError, Number, affine, apply
from stansub.stan.syntax import Declaration
from stansub.stan.syntax import Expression as Node

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
) -> tuple[NDArray[np.int64], ...]:
    """Add each parameter's value to those of variables, and return the unconstrained places of their elements.

    The places have one dimension if a parameter does not have one for each element.

    Parameters
    ----------
    values : dict
        Values of variables by name, to which those of the parameters are added in order: bounds may read them.
    value : callable
        Evaluates an expression of sizes or bounds with these values.
    sparse : bool
        Whether slopes are sparse even for few observations.

    Raises
    ------
    NotFollowedError
        If there are too many, or a parameter has an unsupported type.
    """
    sizes = [_shape(one, value) for one in declarations]
    dim = sum(
        int(np.prod(outer)) * _n_free(one, inner) for one, (outer, inner) in zip(declarations, sizes, strict=True)
    )
    if dim > _MOST_PARAMETERS:
        raise NotFollowedError(f"{dim:,} unconstrained parameters are too many")
    units = iter(range(dim))

    def draw() -> Number:
        unit = sp.csr_array(([1.0], [next(units)], [0, 1]), shape=(1, dim))
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
        case "cov_matrix":
            return inner[0] * (inner[0] + 1) // 2
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
                found[place[::-1]] = _bounded(x, bounds)
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
        case "cholesky_factor_corr":
            _correlation(found, iter(free))
        case _:
            found[...] = np.nan  # an expression that reads it is no log likelihood, and the proof refuses it
    return found if inner else found.item()


def _bounded(x: Number, bounds: dict[str, Any]) -> Number:
    if not bounds:
        return x
    if any(isinstance(one, np.ndarray) for one in bounds.values()):
        raise NotFollowedError("the bounds of a parameter are not single numbers")
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
