"""Soft minima of affine functions, f = -1/2 log sum_m exp(-2 a_m).

If e^a_m are scales, their precisions e^(-2 a_m) add up to that of e^f: a regularised horseshoe has the scale of a plain
one, bounded by that of a slab. With one a, f is a itself. Formulas: ``cpp/soft_minima.hpp``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.types import FloatArray


@dataclass(frozen=True)
class SoftMinima:
    """Functions of parameters."""

    counts: NDArray[np.int64]
    """Shape (n_functions,): how many rows each is the minimum of."""
    rows: sp.csr_array
    """Shape (n_rows, dim)."""
    constants: FloatArray
    """Shape (n_rows,)."""

    @classmethod
    def none(cls, dim: int) -> SoftMinima:
        """Return no functions."""
        return cls.affine(sp.csr_array((0, dim)), np.empty(0))

    @classmethod
    def affine(cls, rows: sp.csr_array, constants: FloatArray) -> SoftMinima:
        """Return functions of one row each."""
        return cls(np.ones(len(constants), np.int64), rows, constants)

    @classmethod
    def of(cls, *functions: SoftMinima) -> SoftMinima:
        """Return soft minima, each of the functions with its number."""
        counts = np.sum([one.counts for one in functions], axis=0)
        whole, n = functions[0], len(counts)
        for one in functions[1:]:
            whole = whole.joined(one)
        ordered = whole[np.arange(len(whole)).reshape(-1, n).T.ravel()]
        return cls(counts, ordered.rows, ordered.constants)

    def __len__(self) -> int:
        return len(self.counts)

    def __call__(self, theta: FloatArray) -> FloatArray:
        """Return the functions' values, shape (n_functions,)."""
        return self._values(self.rows @ theta + self.constants)

    def __getitem__(self, which: NDArray[np.bool_] | NDArray[np.int64]) -> SoftMinima:
        """Return some of the functions."""
        counts = self.counts[which]
        firsts = np.repeat(self._firsts[which] - np.cumsum(counts) + counts, counts)
        rows = firsts + np.arange(len(firsts))
        return SoftMinima(counts, sp.csr_array(self.rows[rows]), self.constants[rows])

    def joined(self, other: SoftMinima) -> SoftMinima:
        """Return the functions of both."""
        return SoftMinima(
            np.concatenate([self.counts, other.counts]),
            sp.csr_array(sp.vstack([self.rows, other.rows])),
            np.concatenate([self.constants, other.constants]),
        )

    def replaced(self, which: NDArray[np.int64], others: SoftMinima) -> SoftMinima:
        """Return the functions with others in the places of some."""
        order = np.arange(len(self))
        order[which] = len(self) + np.arange(len(others))
        return self.joined(others)[order]

    def scaled(self, factors: FloatArray) -> SoftMinima:
        """Return soft minima of rows times the factor of their function, shape (n_functions,)."""
        by_row = np.repeat(factors, self.counts)
        return SoftMinima(self.counts, sp.csr_array(sp.diags_array(by_row) @ self.rows), self.constants * by_row)

    def jacobian(self, theta: FloatArray) -> sp.csr_array:
        """Return the derivatives, shape (n_functions, dim)."""
        affine = self.rows @ theta + self.constants
        weights = np.exp(2 * (np.repeat(self._values(affine), self.counts) - affine))
        ends = np.concatenate([self._firsts, [len(affine)]])
        sums = sp.csr_array((weights, np.arange(len(affine)), ends), shape=(len(self), len(affine)))
        return sp.csr_array(sums @ self.rows)

    @property
    def _firsts(self) -> NDArray[np.int64]:
        return np.asarray(np.cumsum(self.counts) - self.counts)

    def _values(self, affine: FloatArray) -> FloatArray:
        least = np.minimum.reduceat(affine, self._firsts)
        sums = np.add.reduceat(np.exp(2 * (np.repeat(least, self.counts) - affine)), self._firsts)
        return np.asarray(least - 0.5 * np.log(sums))
