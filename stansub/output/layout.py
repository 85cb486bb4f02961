"""From the flat, indexed names of a Stan program's values to arrays by variable."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Layout:
    """Where each variable's values stand in a flat vector.

    Attributes
    ----------
    shapes : dict
        Shape of each variable, in the program's order.
    columns : dict
        For each variable, the positions of its values in C order, shape as in ``shapes``.
    """

    shapes: dict[str, tuple[int, ...]]
    columns: dict[str, NDArray[np.int64]]

    @property
    def names(self) -> tuple[str, ...]:
        """Variables in order."""
        return tuple(self.shapes)

    @classmethod
    def from_names(cls, names: Iterable[str]) -> Layout:
        """Read indexed names such as ``beta.1``, ``omega.2.3`` or ``z.1.real``.

        Real and imaginary parts of complex values become a last dimension of length 2; elements of tuples
        (``pair:1.2``) are variables of their own.
        """
        entries: dict[str, list[tuple[tuple[int, ...], int]]] = {}
        for column, name in enumerate(names):
            base, *indices = name.split(".")
            index: list[int] = []
            for part in indices:
                if part in ("real", "imag"):
                    index.append(0 if part == "real" else 1)
                elif ":" in part:
                    # An array of tuples: `t.2:1` is component 1 of element 2.
                    element, _, component = part.partition(":")
                    index.append(int(element) - 1)
                    base += f":{component}"
                else:
                    index.append(int(part) - 1)
            entries.setdefault(base, []).append((tuple(index), column))
        shapes, columns = {}, {}
        for base, found in entries.items():
            shape = (
                tuple(int(size) + 1 for size in np.max([index for index, _ in found], axis=0)) if found[0][0] else ()
            )
            places = np.empty(shape, dtype=np.int64)
            for place, column in found:
                places[place] = column
            shapes[base], columns[base] = shape, places
        return cls(shapes, columns)

    def select(self, keep: Iterable[str]) -> Layout:
        """The layout of some of the variables."""
        wanted = set(keep)
        kept = [name for name in self.names if name in wanted]
        return Layout({name: self.shapes[name] for name in kept}, {name: self.columns[name] for name in kept})

    def split(self, values: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Arrays by variable, shape (..., *shape), from values of shape (..., n)."""
        return {name: values[..., columns] for name, columns in self.columns.items()}
