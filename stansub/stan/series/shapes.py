"""Declared types of variables, and types of their parts."""

from __future__ import annotations

from collections.abc import Sequence

from stansub.stan.syntax import Declaration, Expression, SizedType


def shape_of(declaration: Declaration) -> SizedType | None:
    """Return the type of a variable without its conditions; None for complex numbers and tuples."""
    is_known = declaration.base != "tuple" and not declaration.base.startswith("complex")
    return declaration.type.plain if is_known else None


def part_of(shape: SizedType, lengths: Sequence[Expression | None]) -> SizedType:
    """Return the type of the part of a variable that indices select.

    Parameters
    ----------
    shape : SizedType
        Type of the variable.
    lengths : sequence of (Expression or None)
        Number of elements that each index selects, from the first on; None for a single index.
    """
    kept = [*lengths, *shape.all_dims[len(lengths) :]]
    n = len(shape.array_dims)
    array = tuple(size for size in kept[:n] if size is not None)
    inner = tuple(size for size in kept[n:] if size is not None)
    if len(inner) == len(shape.dims):
        return SizedType(array, shape.base, dims=inner)
    if shape.base == "matrix" and inner:
        return SizedType(array, "row_vector" if kept[n] is None else "vector", dims=inner)
    return SizedType(array, "real")


def rows_of(shape: SizedType, *sizes: Expression) -> SizedType:
    """Return the type of rows of a type: a vector or matrix if possible, otherwise an array."""
    if not shape.array_dims and shape.base == "real" and len(sizes) < 3:
        return SizedType((), "matrix" if len(sizes) == 2 else "vector", dims=sizes)
    if not shape.array_dims and shape.base == "row_vector" and len(sizes) == 1:
        return SizedType((), "matrix", dims=(*sizes, *shape.dims))
    return SizedType((*sizes, *shape.array_dims), shape.base, dims=shape.dims)


def zero_of(shape: SizedType) -> str:
    """Return a value of zeros."""
    dims, array = (", ".join(map(str, sizes)) for sizes in (shape.dims, shape.array_dims))
    element = f"rep_{shape.base}(0, {dims})" if dims else "0.0" if shape.base == "real" else "0"
    return f"rep_array({element}, {array})" if array else element
