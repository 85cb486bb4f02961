"""Effects that are normal given their scales, under a surrogate: what a Gibbs sampler of both needs.

The density is that of scales s, each with a function h_k(s_k) of its own, of blocks of effects u = S z, z ~ N(0, I),
where S is a function of the scales as in `stansub.target.coordinates`, and of other coefficients. It is multiplied by a
likelihood that is normal in u and these coefficients. Effects that are parameters may have a mean, which is added to u.
Formulas: ``cpp/normal_effects.hpp``; proof: ``docs/decisions/23``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from stansub import _loop
from stansub.types import FloatArray

Places = NDArray[np.int32]
Flags = NDArray[np.uint8]

# Proposals of all scales in a sweep (`cpp/normal_effects.hpp`).
TRIES = 3


@dataclass(frozen=True)
class NormalEffects:
    """Normal effects and their scales.

    Attributes
    ----------
    coefficients, scales : ndarray of int32
        Places of both among the parameters.
    low, step : float
        Grid of the functions h_k: its first node, and the distance of nodes.
    values, slopes : ndarray, shape (n_scales, n_nodes)
        h_k and its derivative at the nodes.
    sizes, places : ndarray of int32
        Sizes of the blocks, and where their effects stand among the coefficients.
    starts, columns, factors, constants : ndarray
        The functions that S is made of, as in `Coordinates`; columns count scales.
    has_effects : ndarray of uint8
        Whether the parameters of a block are u rather than z.
    precision_starts, precision_columns, precision, linear : ndarray
        M by rows, and b, of the likelihood exp(b . u - u . M u / 2).
    pattern_starts, pattern_rows, order : ndarray of int32
        Pattern and order of the Cholesky factor of the coefficients' precision.
    move_starts, move_columns, directions, widths : ndarray
        Lines through the scales, by rows, and first widths of slices along them.
    fixes_effects : ndarray of uint8
        Whether u rather than z is fixed along a line.
    share : float
        Share of the sweeps that have moves along lines, taken at random.
    centre : ndarray, shape (n_scales,) or (0,)
        Centre of Student's t distribution from which all scales are proposed at once, u and other coefficients
        integrated out; empty for no such proposals.
    root : ndarray, shape (n_scales, n_scales) or (0, 0)
        Its root, a lower triangle.
    mean_starts, mean_columns, means : ndarray
        What is added to each coefficient, by rows: a linear function of coefficients to which nothing is added.
    """

    coefficients: Places
    scales: Places
    low: float
    step: float
    values: FloatArray
    slopes: FloatArray
    sizes: Places
    places: Places
    starts: Places
    columns: Places
    factors: FloatArray
    constants: FloatArray
    has_effects: Flags
    precision_starts: Places
    precision_columns: Places
    precision: FloatArray
    linear: FloatArray
    pattern_starts: Places
    pattern_rows: Places
    order: Places
    move_starts: Places
    move_columns: Places
    directions: FloatArray
    widths: FloatArray
    fixes_effects: Flags
    share: float
    centre: FloatArray
    root: FloatArray
    mean_starts: Places
    mean_columns: Places
    means: FloatArray

    @property
    def dim(self) -> int:
        """Return the number of parameters."""
        return len(self.coefficients) + len(self.scales)

    def compiled(self) -> _loop.NormalEffects:
        """Return the density and its sampler, for one thread."""
        return _loop.NormalEffects(*(getattr(self, one.name) for one in fields(self)))
