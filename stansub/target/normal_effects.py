"""Effects that are normal given their scales, under a surrogate: what a Gibbs sampler of both needs.

The density is that of scales s, each with a function h_k(s_k) of its own, of blocks of effects u = S z, z ~ N(0, I),
where S is a function of the scales as in `stansub.target.coordinates`, and of other coefficients. It is multiplied by a
likelihood that is normal in u and these coefficients, or in constant combinations of them. Effects that are parameters
may have a mean, which is added to u.
Formulas: ``cpp/normal_effects.hpp``; proof: ``docs/decisions/23``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from stansub import _loop
from stansub.target.coordinates import Combination
from stansub.target.prior_means import PriorMeans
from stansub.types import FloatArray

Places = NDArray[np.int32]
Flags = NDArray[np.uint8]

# Proposals of all scales in a sweep (`cpp/normal_effects.hpp`).
TRIES = 3


@dataclass(frozen=True)
class NormalEffects:
    """Normal effects and their scales."""

    coefficients: Places
    scales: Places
    """Places of both among the parameters."""
    low: float
    step: float
    """Grid of the functions h_k: its first node, and the distance of nodes."""
    values: FloatArray
    slopes: FloatArray
    """Shape (n_scales, n_nodes): h_k and its derivative at the nodes."""
    sizes: Places
    places: Places
    """Sizes of the blocks, and where their effects stand among the coefficients."""
    counts: Places
    starts: Places
    columns: Places
    factors: FloatArray
    constants: FloatArray
    """The functions that S is made of, as in `Coordinates`; columns count scales."""
    has_effects: Flags
    """Whether the parameters of a block are u rather than z."""
    precision_starts: Places
    precision_columns: Places
    precision: FloatArray
    linear: FloatArray
    """M by rows, and b, of the likelihood exp(b . v - v . M v / 2), where v are combinations of the coefficients."""
    part_sizes: Places
    """Number of combinations in each part that is drawn at once, given the others; one part has all of them."""
    pattern_starts: Places
    pattern_rows: Places
    order: Places
    """Pattern and order of the Cholesky factor of the combinations' precision, part by part."""
    move_starts: Places
    move_columns: Places
    directions: FloatArray
    widths: FloatArray
    """Lines through the scales, by rows, and first widths of slices along them."""
    fixes_effects: Flags
    """Whether u rather than z is fixed along a line."""
    share: float
    """Share of the sweeps that have moves along lines, taken at random."""
    centre: FloatArray
    """Shape (n_scales,) or (0,): centre of Student's t distribution from which all scales are proposed at once, u and
    other coefficients integrated out; empty for no such proposals.
    """
    root: FloatArray
    """Shape (n_scales, n_scales) or (0, 0): its root, a lower triangle."""
    means: PriorMeans
    """What is added to coefficients."""
    combination: Combination
    """Combinations of the coefficients, with entries for all of them."""

    @property
    def dim(self) -> int:
        """Return the number of parameters."""
        return len(self.coefficients) + len(self.scales)

    @property
    def factor_operations(self) -> FloatArray:
        """Return the operations of the Cholesky factor of each part, shape (n_parts,)."""
        ends = np.cumsum(self.part_sizes)
        lengths = np.delete(np.diff(self.pattern_starts), np.cumsum(self.part_sizes + 1)[:-1] - 1).astype(float)
        return np.add.reduceat(lengths**2, ends - self.part_sizes)

    def compiled(self) -> _loop.NormalEffects:
        """Return the density and its sampler, for one thread."""
        *parts, means, combination = (getattr(self, one.name) for one in fields(self))
        return _loop.NormalEffects(*parts, *means.arrays, *combination.columns, *combination.rows)
