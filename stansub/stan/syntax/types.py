"""Types in programs: with sizes and constraints in declarations, without in functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stansub.stan.syntax.expressions import BOUND, Expression, Literal
from stansub.stan.syntax.nodes import Node

_SQUARE = frozenset({"cholesky_factor_corr", "cholesky_factor_cov", "corr_matrix", "cov_matrix"})
# Functions of a variable that its sizes decide, and those that are 1 for a type.
SIZES = frozenset({"size", "num_elements", "rows", "cols"})
_SINGLE = (("row_vector", "rows"), ("vector", "cols"))
# Constrained types of vectors and matrices.
_VECTORS = frozenset({"ordered", "positive_ordered", "simplex", "unit_vector", "sum_to_zero_vector"})
_MATRICES = _SQUARE | {"sum_to_zero_matrix", "column_stochastic_matrix", "row_stochastic_matrix"}


@dataclass(frozen=True)
class Bound(Node):
    """A bound or transform such as ``lower=0``."""

    kind: str
    """``lower``, ``upper``, ``offset`` or ``multiplier``."""
    value: Expression

    def __str__(self) -> str:
        return f"{self.kind}={self.value.within(BOUND)}"


@dataclass(frozen=True)
class SizedType(Node):
    """The type of a declaration: ``array[J] vector<lower=0>[K]``."""

    array_dims: tuple[Expression, ...]
    base: str
    """Stan's type name, such as ``int``, ``real``, ``vector``, ``simplex``, ``cholesky_factor_corr`` or ``tuple``."""
    elements: tuple[SizedType, ...] = ()
    """Types of a tuple's elements."""
    bounds: tuple[Bound, ...] = ()
    dims: tuple[Expression, ...] = ()
    """Inner sizes: N and K of ``matrix[N, K]``."""

    @property
    def all_dims(self) -> tuple[Expression, ...]:
        """Array sizes, then inner sizes; types of square matrices are declared with one: ``cov_matrix[K]`` is K x K."""
        square = self.base in _SQUARE and len(self.dims) == 1
        return self.array_dims + self.dims * (2 if square else 1)

    @property
    def sized_by(self) -> tuple[Node, ...]:
        """All sizes; for a tuple also the types of its elements, which have sizes."""
        return (*self.all_dims, *self.elements)

    @property
    def plain(self) -> SizedType:
        """The type without its constraints."""
        base = "vector" if self.base in _VECTORS else "matrix" if self.base in _MATRICES else self.base
        elements = tuple(one.plain for one in self.elements)
        return SizedType(self.array_dims, base, elements, dims=self.all_dims[len(self.array_dims) :])

    @property
    def shape(self) -> SizedType | None:
        """The type without its constraints; None for complex numbers and tuples."""
        return None if self.base == "tuple" or self.base.startswith("complex") else self.plain

    def part(self, lengths: Sequence[Expression | None]) -> SizedType:
        """Return the type of the part of a variable that indices select.

        ``lengths`` are the numbers of elements that the first indices select; None for a single index.
        """
        kept = [*lengths, *self.all_dims[len(lengths) :]]
        n = len(self.array_dims)
        array = tuple(size for size in kept[:n] if size is not None)
        inner = tuple(size for size in kept[n:] if size is not None)
        if len(inner) == len(self.dims):
            return SizedType(array, self.base, dims=inner)
        if self.base == "matrix" and inner:
            return SizedType(array, "row_vector" if kept[n] is None else "vector", dims=inner)
        return SizedType(array, "real")

    def rows(self, *sizes: Expression) -> SizedType:
        """Return the type of rows of this type: a vector or matrix if possible, otherwise an array."""
        if not self.array_dims and self.base == "real" and len(sizes) < 3:
            return SizedType((), "matrix" if len(sizes) == 2 else "vector", dims=sizes)
        if not self.array_dims and self.base == "row_vector" and len(sizes) == 1:
            return SizedType((), "matrix", dims=(*sizes, *self.dims))
        return SizedType((*sizes, *self.array_dims), self.base, dims=self.dims)

    def size(self, function: str) -> Expression | None:
        """Return what a function of `SIZES` returns for a variable; None if that is none of the variable's sizes."""
        dims, base = self.all_dims, self.plain.base
        if (base, function) in _SINGLE:
            return Literal("1")
        if function == "cols" and base == "matrix":
            return dims[-1]
        is_first = len(dims) == 1 or function == "rows" or (function == "size" and self.array_dims)
        return dims[0] if is_first and dims else None

    @property
    def zero(self) -> str:
        """A value of zeros."""
        element = f"rep_{self.base}(0, {listed(self.dims)})" if self.dims else "0.0" if self.base == "real" else "0"
        return f"rep_array({element}, {listed(self.array_dims)})" if self.array_dims else element

    @property
    def is_checked(self) -> bool:
        """Whether its values are constrained."""
        return bool(self.bounds) or self.plain.base != self.base

    @property
    def unsized(self) -> UnsizedType:
        """The type of a function argument for such a variable."""
        return UnsizedType(self.plain.base, len(self.array_dims), tuple(one.unsized for one in self.elements))

    def __str__(self) -> str:
        array = f"array[{listed(self.array_dims)}] " if self.array_dims else ""
        elements = f"({listed(self.elements)})" if self.base == "tuple" else ""
        bounds = f"<{listed(self.bounds)}>" if self.bounds else ""
        dims = f"[{listed(self.dims)}]" if self.dims else ""
        return f"{array}{self.base}{elements}{bounds}{dims}"


@dataclass(frozen=True)
class UnsizedType:
    """The type of an argument or return value of a function: ``array[,] real``."""

    base: str
    """``void`` for a function without return value."""
    depth: int = 0
    elements: tuple[UnsizedType, ...] = ()
    """Types of a tuple's elements."""

    def __str__(self) -> str:
        array = f"array[{',' * (self.depth - 1)}] " if self.depth else ""
        return f"{array}{self.base}{f'({listed(self.elements)})' if self.base == 'tuple' else ''}"


def listed(items: Iterable[object]) -> str:
    """Return items as comma-separated text."""
    return ", ".join(map(str, items))
