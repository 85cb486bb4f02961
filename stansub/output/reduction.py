"""Reduced reading of files with more draws than memory should hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from stansub.output.apportioning import apportioned

if TYPE_CHECKING:
    import xarray

# A file is reduced to the bytes that may be read over this number: statistics need several times as much.
_SPARSE = 4
# Draws of a chain that are kept at least, since R-hat and ESS of fewer are mostly noise, and quantities.
_KEPT, _LEAST = 1000, 256


class Reduction(NamedTuple):
    """How a large file is read."""

    every: int
    """Thinning interval."""
    limit: int
    """Number of quantities of a group."""
    n_quantities: int
    """Number of quantities in the file."""

    @classmethod
    def of(cls, source: Path, most: int) -> Self | None:
        """Return how to read a file with more bytes of draws than so many; None for others."""
        import h5py

        size = 0
        with h5py.File(source, "r") as file:
            for item in file.values():
                if isinstance(item, h5py.Group):
                    size += sum(one.size * one.dtype.itemsize for one in item.values() if len(one.shape) > 1)
            drawn = [one.shape for one in file.get("posterior", {}).values() if len(one.shape) > 1]
        if size <= most or not drawn:
            return None
        n_chains, n_draws = drawn[0][:2]
        every = min(math.ceil(_SPARSE * size / most), max(1, n_draws // _KEPT))
        limit = most // (_SPARSE * 8 * n_chains * max(1, n_draws // every))
        return cls(every, max(limit, _LEAST), sum(math.prod(shape[2:]) for shape in drawn))

    def read(self, opened: Callable[..., xarray.Dataset], name: str) -> xarray.Dataset:
        """Return every ``every``-th draw of a group, without the last elements of large variables."""
        # Labels would be read completely.
        with opened(group=name, drop_variables=["draw"]) as dataset:
            if "draw" not in dataset.sizes:
                return dataset.load()
            labels = np.arange(0, dataset.sizes["draw"], self.every)
            chosen = {"draw": slice(None, None, self.every), **self._first(dataset)}
            return dataset.isel(chosen).load().assign_coords(draw=labels)

    def _first(self, dataset: xarray.Dataset) -> dict[Any, slice]:
        """Return slices of the longest dimensions of variables that have more elements than their share."""
        variables = list(dataset.data_vars.values())
        sizes = [math.prod(one.shape[2:]) for one in variables]
        kept: dict[Any, int] = {}
        for one, size, share in zip(variables, sizes, apportioned(sizes, self.limit), strict=True):
            if share < size:
                longest = max(one.dims[2:], key=dataset.sizes.__getitem__)
                length = max(1, dataset.sizes[longest] * share // size)
                kept[longest] = max(length, kept.get(longest, 0))
        return {dim: slice(length) for dim, length in kept.items()}

    def n_left_out(self, posterior: xarray.Dataset) -> int:
        """Return the number of quantities that are not in this group."""
        return self.n_quantities - sum(math.prod(one.shape[2:]) for one in posterior.data_vars.values())
