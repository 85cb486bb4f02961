"""Metrics of Hamiltonian Monte Carlo: the precision of a density, or one that is close and of which products are cheap.

The factor of a sparse precision is mostly sparse, too. That of crossed effects, such as those of users and films, has
an element for nearly each two films. But at a diagonal of ones such a precision is close to the identity, except along
few directions: the effects of all users may increase if those of all films decrease. The Lanczos method finds these
from products with the precision itself (Lehoucq, Sorensen and Yang 1998, ARPACK Users' Guide).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from threadpoolctl import threadpool_limits

from stansub.target.cholesky import Factor, cholesky, pattern_of, scale_of
from stansub.types import FloatArray, IntArray

# Most parameters of a metric all of whose eigenvalues are computed, and the smallest of these with a diagonal of ones.
_DENSE, _LEAST = 500, 1e-4
# Directions found at first, and if these are too few; eigenvalues that are close to 1, and their relative error.
_FOUND, _CLOSE, _ERROR = (12, 48), (0.7, 1.4), 1e-2


class Metric(NamedTuple):
    """A precision A with P A P' = L (I + sum_k (1 / sds_k^2 - 1) q_k q_k') L' (see `cpp/metric.hpp`)."""

    factor: Factor
    """P and L."""
    directions: FloatArray
    """q, shape (n, dim): orthonormal, in the order of the factor."""
    sds: FloatArray
    """Shape (n,)."""

    @classmethod
    def of_factor(cls, factor: Factor) -> Metric:
        """Return the metric of a factor alone."""
        return cls(factor, np.empty((0, len(factor.order))), np.empty(0))

    @classmethod
    def of(cls, precision: sp.csc_array) -> Metric:
        """Return the metric of a mean Hessian, with absolute values of its eigenvalues.

        A direction of negative curvature then has the scale on which the density changes along it, as in the SoftAbs
        metric (Betancourt 2013, A general metric for Riemannian manifold Hamiltonian Monte Carlo). Eigenvalues are
        those at a diagonal of ones. Factors of large matrices stay sparse: their diagonal is increased as in
        `cholesky`.
        """
        if not np.isfinite(precision.data).all():
            return cls.of_factor(cholesky(precision))
        if precision.shape[0] <= _DENSE:
            return cls.of_factor(cholesky(_with_absolute_values(precision)))
        few = None
        if has_directions(precision):
            few = cls.along_directions(precision.diagonal(), sp.csr_array(precision).__matmul__)
        return few or cls.of_factor(cholesky(precision))

    @classmethod
    def along_directions(cls, diagonal: FloatArray, product: Callable[[FloatArray], FloatArray]) -> Metric | None:
        """Return the metric of the diagonal and of a few directions; None if eigenvalues differ along many.

        Parameters
        ----------
        diagonal : ndarray, shape (dim,)
            Diagonal of a mean Hessian.
        product : callable
            Function from a vector to its product with this.
        """
        scale = scale_of(diagonal)
        shape = len(scale), len(scale)
        scaled = LinearOperator(shape, lambda vector: product(vector / scale) / scale, dtype=np.float64)
        start = np.random.default_rng(0).standard_normal(len(scale))
        for n in _FOUND:
            try:
                with threadpool_limits(limits=1, user_api="blas"):  # rounding depends on the number of threads
                    values, vectors = eigsh(scaled, k=n, which="BE", v0=start, tol=_ERROR)
            except ArpackError:
                return None
            if not np.isfinite(values).all():
                return None
            # Half of them are from each end.
            close = (_CLOSE[0] <= values) & (values <= _CLOSE[1])
            if close[n // 2 - 1 : n // 2 + 1].all():
                places = np.arange(len(scale), dtype=np.int32)
                factor = Factor(np.arange(len(scale) + 1, dtype=np.int32), places, scale, places)
                sds = 1 / np.sqrt(np.maximum(np.abs(values[~close]), _LEAST))
                return cls(factor, np.ascontiguousarray(vectors[:, ~close].T), sds)
        return None

    @property
    def dim(self) -> int:
        """Return the number of parameters."""
        return len(self.factor.order)

    @property
    def compiled(self) -> tuple[IntArray, IntArray, FloatArray, IntArray, FloatArray, FloatArray]:
        """Return the arguments of the C++ samplers."""
        return *self.factor, self.directions, self.sds

    @property
    def n_elements(self) -> int:
        """Return the number of elements, each of which a product reads."""
        return len(self.factor.values) + self.directions.size

    @property
    def log_determinant(self) -> float:
        """Return log |A|."""
        return self.factor.log_determinant - 2 * float(np.log(self.sds).sum())

    def matrix(self) -> FloatArray:
        """Return the precision itself, shape (dim, dim)."""
        lower, order = self.factor.lower.toarray(), self.factor.order
        more = lower @ self.directions.T
        found = np.empty_like(lower)
        found[np.ix_(order, order)] = lower @ lower.T + (more * (self.sds**-2 - 1)) @ more.T
        return found


def has_directions(pattern: sp.csc_array) -> bool:
    """Return whether metrics of this pattern have few directions instead of a factor, if these suffice."""
    return pattern.shape[0] > _DENSE and pattern_of(pattern).is_dear


def _with_absolute_values(precision: sp.csc_array) -> sp.csc_array:
    """Return the matrix with absolute values of its eigenvalues at a diagonal of ones; itself if all are positive."""
    scale = scale_of(precision.diagonal())
    values, vectors = np.linalg.eigh(precision.toarray() / np.outer(scale, scale))
    if values[0] > 0:
        return precision
    scaled = (vectors * np.maximum(np.abs(values), _LEAST)) @ vectors.T
    return sp.csc_array(scaled * np.outer(scale, scale))
