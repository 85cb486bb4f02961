"""Blocks of effects, and the inner coordinates that suit a posterior.

Each block z has a weight w between 0 and 1, which multiplies the functions that S is made of: w = 0 is z, w = 1 is
u = S z. The weight is the share of the posterior precision of z that comes from the data (Papaspiliopoulos, Roberts and
Sköld 2007). If the parameters are u, because the scale is in their prior, they are divided by S with functions times
1 - w, less a share 1 - w of their mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.coordinates import Combination, Coordinates
from stansub.target.prior_means import PriorMeans
from stansub.tuning.effects.combinations import averaged, combined
from stansub.types import FloatArray

Places = NDArray[np.int64]

# Number of centred blocks with the same scales, and of their effects, up to which other coefficients are integrated out
# of their shares; the share above which a centred block stays as it is.
_FEW, _MOST, _INFORMED = 64, 512, 0.8
# Precision of coefficients that are not effects, relative to the largest.
_FLAT = 1e-8


@dataclass(frozen=True)
class Effects:
    """Blocks of effects z that a matrix S of other parameters maps to arguments of the likelihood, phi = S z + ...."""

    full: Coordinates
    """Coordinates with S z in their place."""
    images: sp.csc_array
    """Shape (m, n_effects): change of the arguments with each element of S z, ordered as `Coordinates.places`."""
    centred: NDArray[np.bool_]
    """Shape (n_blocks,): whether the parameters of a block are u rather than z."""
    means: PriorMeans
    """Of u, which are parameters with these means added."""

    @classmethod
    def none(cls, dim: int) -> Effects:
        """Return no blocks."""
        return cls(Coordinates.plain(dim), sp.csc_array((0, 0)), np.empty(0, bool), PriorMeans.none(dim))

    def joined(self, other: Effects) -> Effects:
        """Return these blocks and others."""
        if self.full.is_plain or other.full.is_plain:
            return other if self.full.is_plain else self
        one, two = self.full, other.full
        full = Coordinates.of(
            np.concatenate([one.sizes, two.sizes]),
            np.concatenate([one.places, two.places]),
            one.functions.joined(two.functions),
        )
        images = sp.csc_array(sp.hstack([self.images, other.images]))
        return Effects(full, images, np.concatenate([self.centred, other.centred]), self.means.joined(other.means))

    @property
    def n_blocks(self) -> int:
        """Return the number of blocks."""
        return len(self.full.sizes)

    @cached_property
    def few(self) -> NDArray[np.bool_]:
        """Return which centred blocks share their scales with few others, shape (n_blocks,)."""
        full, numbers = self.full, self.full.sizes * (self.full.sizes + 1) // 2
        starts = full.starts[np.cumsum([0, *full.counts])][np.cumsum([0, *numbers])]
        keys = [np.unique(full.columns[first:end]).tobytes() for first, end in pairwise(starts)]
        counts = Counter(keys)
        found = self.centred & np.array([counts[key] <= _FEW for key in keys], bool)
        return np.asarray(found & (full.sizes[found].sum() <= _MOST))

    @cached_property
    def combination(self) -> Combination:
        """Return combinations of the effects in which precisions are sparse."""
        columns, rows = combined(self.images, self.full.places.astype(np.int64), self.full.dim)
        return Combination.of(columns, rows) if columns.nnz > self.full.dim else Combination.none()

    def halfway(self) -> Coordinates:
        """Return coordinates in which all parameters interact that do so in any that match."""
        return self.weighted(np.full(self.n_blocks, 0.5))

    def weighted(self, weights: FloatArray) -> Coordinates:
        """Return coordinates with a weight for each block, shape (n_blocks,)."""
        full, factors = self.full, np.where(self.centred, 1 - weights, weights)
        moved, by_effect = factors != 0, np.repeat(factors, full.sizes)
        by_function = np.repeat(factors, full.sizes * (full.sizes + 1) // 2)
        own = by_function != 0
        shares = np.zeros(full.dim)  # of its mean that a centred effect is without
        shares[full.places] = np.where(np.repeat(self.centred, full.sizes), by_effect, 0)
        return Coordinates.of(
            full.sizes[moved],
            full.places[by_effect != 0],
            full.functions[own].scaled(by_function[own]),
            divided=self.centred[moved],
            means=self.means.scaled(shares),
            combination=self.combination,
        )

    def matching(self, precision: sp.csr_array, points: FloatArray) -> Coordinates:
        """Return coordinates that suit a precision of the likelihood in its arguments.

        Shares of the precision are averaged over points, shape (n, dim).
        """
        if self.full.is_plain:
            return self.full
        shares = self._alone(precision, points)
        if self.few.any():
            shares[self.few] = self._integrated(precision, points.mean(axis=0))
        shares[self.centred & (shares > _INFORMED)] = 1
        return self.weighted(averaged(shares, self.full.places[np.cumsum(self.full.sizes) - 1], self.combination))

    def _alone(self, precision: sp.csr_array, points: FloatArray) -> FloatArray:
        """Return the mean shares of each block, given all other coefficients."""
        sizes, n = self.full.sizes, self.images.shape[1]
        block, shares = np.repeat(np.arange(len(sizes)), sizes), np.zeros(len(sizes))
        for theta in points:
            for some, values in self._columns(theta):
                moved = self.images @ sp.csc_array((values, (np.arange(n), block)), shape=(n, len(sizes)))
                informed = np.clip((moved * (precision @ moved)).sum(axis=0)[some], 0.0, np.finfo(np.float64).max)
                shares[some] += informed / (1 + informed) / sizes[some]  # a share of 1 where this is infinite
        return np.asarray(shares / len(points))

    def _integrated(self, precision: sp.csr_array, theta: FloatArray) -> FloatArray:
        """Return the shares of `few` blocks, with all other coefficients integrated out.

        Other groupings may compensate effects that many observations read, such as those of departments, in which each
        student and lecturer has an effect, too.
        """
        sizes, n = self.full.sizes, self.images.shape[1]
        first, block = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(sizes)), sizes)
        matrix = sp.csc_array((n, n))
        for slot, (some, values) in enumerate(self._columns(theta)):
            has = np.flatnonzero(np.isin(block, some))
            matrix = matrix + sp.csc_array((values[has], (has, first[block[has]] + slot)), shape=(n, n))
        # Other coefficients stay as they are.
        others = np.diff(sp.csr_array(self.images).indptr) == 0
        scaled = sp.hstack([self.images @ matrix, sp.diags_array(others.astype(float), format="csc")[:, others]])
        own = np.full(scaled.shape[1], _FLAT * np.abs(precision.diagonal()).max())
        own[:n] = 1  # the prior precision of z
        whole = sp.csc_array(scaled.T @ precision @ scaled + sp.diags_array(own))
        places = np.flatnonzero(np.repeat(self.few, sizes))
        units = np.zeros((len(own), len(places)))
        units[places, np.arange(len(places))] = 1
        variances = sp.linalg.splu(whole).solve(units)[places, np.arange(len(places))]
        shares = np.bincount(block[places], np.clip(1 - variances, 0, 1), minlength=len(sizes)) / sizes
        return np.asarray(shares[self.few])

    def _columns(self, theta: FloatArray) -> Iterator[tuple[Places, FloatArray]]:
        """Yield the blocks with so many effects, and that column of their S, shape (n_effects,)."""
        sizes = self.full.sizes
        first = np.cumsum(sizes) - sizes
        for slot in range(sizes.max(initial=0)):
            some = np.flatnonzero(sizes > slot)
            unit = theta.copy()
            unit[self.full.places] = 0
            unit[self.full.places[first[some] + slot]] = 1
            yield some, self.full.inward(unit)[self.full.places]
