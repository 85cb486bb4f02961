"""Functions of other parameters that the matrices S of effects u = S z are made of (`stansub.target.coordinates`).

Row i of a lower triangle S has the norm exp(f_ii) and the partial correlations tanh(f_ij), j < i. Functions are in the
order of the elements, by rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stansub.target.coordinates import Coordinates
from stansub.target.soft_minima import SoftMinima
from stansub.types import FloatArray

Places = NDArray[np.int64]


@dataclass(frozen=True)
class Functions:
    """Functions of blocks of effects."""

    sizes: Places
    places: Places
    """Places of the effects among the parameters, block by block."""
    minima: SoftMinima
    has_effects: NDArray[np.bool_]
    """Whether the parameters of a block are u rather than z."""

    @property
    def numbers(self) -> Places:
        """Return the number of functions of each block: the elements of a lower triangle."""
        return self.sizes * (self.sizes + 1) // 2

    @property
    def firsts(self) -> Places:
        """Return the place of each block's first function."""
        return np.cumsum(self.numbers) - self.numbers

    @classmethod
    def of(cls, full: Coordinates) -> Functions:
        """Return those of coordinates."""
        plain = np.zeros(len(full.sizes), bool)
        return cls(full.sizes.astype(np.int64), full.places.astype(np.int64), full.functions, plain)

    @classmethod
    def none(cls, dim: int) -> Functions:
        """Return those of no blocks."""
        return cls.of(Coordinates.plain(dim))

    def joined(self, other: Functions) -> Functions:
        """Return the functions of both."""
        return Functions(
            np.concatenate([self.sizes, other.sizes]),
            np.concatenate([self.places, other.places]),
            self.minima.joined(other.minima),
            np.concatenate([self.has_effects, other.has_effects]),
        )

    def by_size(self) -> list[tuple[Places, Places]]:
        """Return the places of effects, shape (n, k), and of functions, for the blocks with effects of each size k."""
        first, found = np.cumsum(self.sizes) - self.sizes, []
        for k in np.unique(self.sizes[self.has_effects]):
            own = np.flatnonzero(self.has_effects & (self.sizes == k))
            effects, numbers = np.arange(k), np.arange(k * (k + 1) // 2)
            found.append((self.places[first[own, np.newaxis] + effects], self.firsts[own, np.newaxis] + numbers))
        return found


def functions_of(lower: FloatArray) -> FloatArray:
    """Return the functions of lower triangles with a positive diagonal, shape (n, k, k)."""
    rests = np.sqrt(np.cumsum(lower[..., ::-1] ** 2, axis=-1)[..., ::-1])  # of each row from each entry on
    k = lower.shape[-1]
    rows, columns = np.tril_indices(k)
    with np.errstate(divide="ignore", invalid="ignore"):
        correlations = np.arctanh(lower / rests)
        return np.where(rows == columns, np.log(rests[..., rows, 0]), correlations[..., rows, columns])


def triangles_of(functions: FloatArray, k: int) -> FloatArray:
    """Return the lower triangles with these functions, shape (n, k (k + 1) / 2)."""
    rows, columns = np.tril_indices(k)
    own = np.zeros((*functions.shape[:-1], k, k))
    own[..., rows, columns] = functions
    below = np.tril(own, -1)
    left = np.cumprod(1 / np.cosh(below), axis=-1)  # of the norm, after each entry
    rests = np.exp(np.diagonal(own, axis1=-2, axis2=-1))[..., np.newaxis] * left
    before = np.concatenate([rests[..., :1] / left[..., :1], rests[..., :-1]], axis=-1)
    return np.tril(before * np.where(np.eye(k, dtype=bool), 1.0, np.tanh(below)))


def slopes_of_log_determinant(functions: FloatArray, k: int) -> FloatArray:
    """Return the derivatives of log |S| by its functions, shape (n, k (k + 1) / 2)."""
    rows, columns = np.tril_indices(k)
    return np.where(rows == columns, 1.0, -np.tanh(functions))
