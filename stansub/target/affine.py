"""Posteriors whose likelihood reads an affine function of some coordinates: log p(x) = G(x) + L(J x + c).

In inner coordinates with full weights, effects are the likelihood's arguments themselves, so G alone depends on their
scales. The likelihood's rows are then rows of x, and its evaluation needs no map from parameters to arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.coordinates import Coordinates
from stansub.target.inner_density import InnerDensity
from stansub.target.separated import Separated
from stansub.target.sparse import SparsePredictors, SparseRows
from stansub.target.split import Slices, Split
from stansub.target.symmetries import Symmetry
from stansub.types import FloatArray


@dataclass(frozen=True)
class AffinePosterior:
    """A posterior in coordinates of which the likelihood reads an affine function."""

    prior: InnerDensity
    """G, and the map to the parameters."""
    phi: AffineMap
    """The likelihood's arguments."""
    predictors: SparsePredictors
    """L as a function of the coordinates."""
    slices: Callable[[Sequence[Symmetry]], Slices]
    """Makes a sampler of G along moves."""

    @classmethod
    def of(cls, split: Split, coordinates: Coordinates) -> AffinePosterior:
        """Return the posterior in these coordinates; `AffineMap.error` shows whether the map is affine."""
        own = split.prior()
        prior = InnerDensity(own.model, coordinates)
        phi = AffineMap.of(lambda x: own.phi(prior.outward(x)), coordinates.dim)
        return cls(prior, phi, composed(split.predictors, phi), partial(own.slices, coordinates))


@dataclass(frozen=True)
class AffineMap:
    """J x + c."""

    function: Callable[[FloatArray], FloatArray]
    jacobian: sp.csc_array
    """Shape (m, dim)."""
    constant: FloatArray
    """Shape (m,)."""

    @classmethod
    def of(cls, function: Callable[[FloatArray], FloatArray], dim: int) -> AffineMap:
        """Return the map that equals a function at 0 and at the unit vectors."""
        origin, steps = np.zeros(dim), np.ones(dim)
        return cls(function, Separated.of(function, origin, steps).changes(function, origin, steps), function(origin))

    def error(self, x: FloatArray) -> float:
        """Return the largest relative difference from the function at a point."""
        value = self.function(x)
        return float(np.abs((self.jacobian @ x + self.constant - value) / (1 + np.abs(value))).max())


def composed(predictors: SparsePredictors, phi: AffineMap) -> SparsePredictors:
    """Return the likelihood as a function of the coordinates.

    Coordinates that observations read beside those of their own levels become common ones: those of common arguments,
    and those that several arguments read, such as a mean of effects.
    """
    places = np.unique(np.concatenate([row.places for row in predictors.rows]))
    common = np.diff(sp.csc_array(phi.jacobian[places]).indptr) > 0
    common |= np.diff(phi.jacobian.indptr) > 1
    return replace(predictors, rows=tuple(_composed(row, phi, common) for row in predictors.rows), latest=[])


def _composed(row: SparseRows, phi: AffineMap, common: NDArray[np.bool_]) -> SparseRows:
    places = np.flatnonzero(common)
    shared = sp.csr_array(phi.jacobian[:, places])
    dense = np.asarray(row.matrix @ shared[row.places].toarray())
    beside = sp.csr_array(row.gathered @ shared)
    if beside.nnz:
        dense = dense + beside.toarray()
    gathered = sp.csr_array(row.gathered @ phi.jacobian @ sp.diags_array((~common).astype(float)))
    gathered.eliminate_zeros()
    gathered.sort_indices()
    return SparseRows.of(dense, places, gathered, row(phi.constant) + row.offset)
