"""Types of variables as they are declared, and of parts of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stansub.stan.syntax import Declaration

_VECTORS = {"vector", "ordered", "positive_ordered", "simplex", "unit_vector", "sum_to_zero_vector"}


@dataclass(frozen=True)
class Shape:
    """A type without its constraint.

    Attributes
    ----------
    array : tuple of str
        Sizes of the array, as Stan expressions.
    base : str
        ``int``, ``real``, ``vector``, ``row_vector`` or ``matrix``.
    inner : tuple of str
        Sizes within one element of the array.
    """

    array: tuple[str, ...]
    base: str
    inner: tuple[str, ...]

    @classmethod
    def of(cls, declaration: Declaration) -> Shape | None:
        """That of a variable; None for complex numbers and tuples."""
        base = declaration.base
        if base == "tuple" or base.startswith("complex"):
            return None
        n = len(declaration.array_dims)
        inner = declaration.all_dims[n:]
        if base not in ("int", "real", "row_vector"):
            base = "vector" if base in _VECTORS else "matrix"
        return cls(declaration.array_dims, base, inner)

    @property
    def sizes(self) -> tuple[str, ...]:
        """All sizes, those of the array first."""
        return self.array + self.inner

    def at(self, lengths: Sequence[str | None]) -> Shape:
        """The part that indices pick.

        Parameters
        ----------
        lengths : sequence of (str or None)
            For each index from the first on how many elements it picks; None where it is a single one and not a slice.
        """
        kept = [*lengths, *self.sizes[len(lengths) :]]
        n = len(self.array)
        array = tuple(size for size in kept[:n] if size is not None)
        inner = tuple(size for size in kept[n:] if size is not None)
        if len(inner) == len(self.inner):
            return Shape(array, self.base, inner)
        if self.base == "matrix" and inner:
            return Shape(array, "row_vector" if kept[n] is None else "vector", inner)
        return Shape(array, "real", ())

    def rows(self, n: str, *more: str) -> Shape:
        """``n`` of them, a row each, or ``n`` times ``more``; in a vector or matrix where one can hold them."""
        if not self.array and self.base == "real" and len(more) < 2:
            return Shape((), "matrix" if more else "vector", (n, *more))
        if not self.array and self.base == "row_vector" and not more:
            return Shape((), "matrix", (n, *self.inner))
        return Shape((n, *more, *self.array), self.base, self.inner)

    def declared(self, name: str) -> str:
        """A declaration of a variable, without semicolon."""
        array = f"array[{', '.join(self.array)}] " if self.array else ""
        inner = f"[{', '.join(self.inner)}]" if self.inner else ""
        return f"{array}{self.base}{inner} {name}"

    @property
    def zero(self) -> str:
        """A value of zeros."""
        element = f"rep_{self.base}(0, {', '.join(self.inner)})" if self.inner else "0"
        if self.base == "real":
            element = "0.0"
        return f"rep_array({element}, {', '.join(self.array)})" if self.array else element
