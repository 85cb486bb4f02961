"""Conversion from the flat, indexed names of a Stan program's values to arrays by variable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Layout:
    """Positions of each variable's values in a flat vector."""

    shapes: dict[str, tuple[int, ...]]
    """Shape of each variable, in the program's order."""
    columns: dict[str, NDArray[np.int64]]
    """For each variable, the positions of its values in C order, with its shape."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the variables in order."""
        return tuple(self.shapes)

    @property
    def places(self) -> NDArray[np.int64]:
        """Return the positions of all values, those of each variable in C order."""
        return np.concatenate([places.ravel() for places in self.columns.values()])

    @classmethod
    def from_names(cls, names: Iterable[str]) -> Layout:
        """Return the layout of indexed names such as ``beta.1``, ``omega.2.3`` or ``z.1.real``.

        Real and imaginary parts of complex values become a last dimension of length 2. Elements of tuples
        (``pair:1.2``) become variables, merged over arrays of tuples (``t.2:1`` is element 2 of ``t:1``).

        Raises
        ------
        ValueError
            If an index is not a number, or names do not fill an array.
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
            if len({len(index) for index, _ in found}) > 1:
                raise ValueError(f"{base}: names with different numbers of indices")
            shape = tuple(max(sizes) + 1 for sizes in zip(*(index for index, _ in found), strict=True))
            places = np.full(shape, -1, dtype=np.int64)
            for place, column in found:
                places[place] = column
            if (places < 0).any() or places.size != len(found):
                raise ValueError(f"{base}: {len(found)} names do not fill an array of {places.size} values")
            shapes[base], columns[base] = shape, places
        return cls(shapes, columns)

    def select(self, keep: Iterable[str]) -> Layout:
        """Return the layout of some of the variables."""
        wanted = set(keep)
        kept = [name for name in self.names if name in wanted]
        return Layout({name: self.shapes[name] for name in kept}, {name: self.columns[name] for name in kept})

    def split(self, values: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Return arrays by variable, shape (..., *shape), from values of shape (..., n)."""
        return {name: values[..., columns] for name, columns in self.columns.items()}


def element_names(name: str, shape: Sequence[int]) -> list[str]:
    """Return names of a variable's elements in C order, such as ``omega[2,3]``, or the name of a scalar."""
    places = [",".join(str(index + 1) for index in at) for at in np.ndindex(*shape)]
    return [f"{name}[{place}]" if place else name for place in places]


def by_variable(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return draws under the names of a `Layout`, from the names of other samplers.

    Parameters
    ----------
    arrays
        Draws of shape (chain, draw, ...) by name. A complex value may be a complex number or two arrays ``z.real`` and
        ``z.imag``; each tuple of an array may have its own arrays (``t.2:1``). Arrays of real or imaginary parts of
        several values keep their names, because nutpie's names do not match their content.

    Raises
    ------
    ValueError
        If a name with a dot is not one of Stan's.
    """
    found: dict[str, list[tuple[str, NDArray[Any]]]] = {}
    for name, values in arrays.items():
        as_it_is = values.ndim > 2 and name.endswith((".real", ".imag"))
        found.setdefault(name if as_it_is else _base(name), []).append((name, values))
    return {base: _gathered(base, parts) for base, parts in found.items()}


def _base(name: str) -> str:
    """Return the variable: ``t:1`` of ``t.2:1``."""
    first, *parts = name.split(".")
    return ":".join([first, *(component for part in parts for component in part.split(":")[1:])])


def _gathered(base: str, parts: Sequence[tuple[str, NDArray[Any]]]) -> NDArray[Any]:
    if [name for name, _ in parts] == [base]:
        ((_, values),) = parts
        return np.stack([values.real, values.imag], axis=-1) if np.iscomplexobj(values) else values
    names = [
        ".".join([name, *(str(i + 1) for i in at)]) for name, values in parts for at in np.ndindex(values.shape[2:])
    ]
    (columns,) = Layout.from_names(names).columns.values()
    return np.concatenate([values.reshape(*values.shape[:2], -1) for _, values in parts], axis=2)[:, :, columns]
