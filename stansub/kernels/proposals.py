"""Proposals: (rng, position) -> (proposed position, log density ratio).

Random walks, affine Gaussian proposals and mixtures of them are drawn in C++, here as in stretches of steps; anything
else with this signature is a proposal as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from scipy.special import logsumexp

from stansub._loop import Proposals
from stansub.errors import InputError
from stansub.types import FloatArray


class Proposal(Protocol):
    """Draws the next candidate of a Metropolis-Hastings step; several chains may ask it at once."""

    def __call__(self, rng: np.random.Generator, position: FloatArray) -> tuple[FloatArray, float]:
        """Propose a move.

        Parameters
        ----------
        rng : Generator
            The chain's own generator.
        position : ndarray, shape (dim,)
            Unconstrained parameters.

        Returns
        -------
        proposed : ndarray, shape (dim,)
        log_ratio : float
            log q(position | proposed) - log q(proposed | position); 0 for symmetric proposals.
        """
        ...


@dataclass(frozen=True)
class RandomWalk:
    """Gaussian random walk theta' = theta + L z; the decision loop runs whole stretches of it in C++.

    Attributes
    ----------
    cholesky : ndarray, shape (dim, dim)
        Lower triangular L; L L' is the covariance of a step.

    Raises
    ------
    InputError
        When L is not a square, finite, lower triangular matrix.
    """

    cholesky: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "cholesky", _lower(self.cholesky, "a random walk"))

    def __call__(self, rng: np.random.Generator, position: FloatArray) -> tuple[FloatArray, float]:
        return _draw(self, rng, position)


@dataclass(frozen=True)
class Affine:
    """Gaussian proposal with a mean that is affine in the state: theta' = A theta + c + L z.

    The log ratio is (|z|^2 - |L^-1 (theta - A theta' - c)|^2) / 2. The decision loop runs whole stretches in C++.

    Attributes
    ----------
    matrix : ndarray, shape (dim, dim)
        A.
    offset : ndarray, shape (dim,)
        c.
    cholesky : ndarray, shape (dim, dim)
        Lower triangular L, invertible; L L' is the covariance of the proposal.

    Raises
    ------
    InputError
        When the shapes do not fit each other, a number is not finite, or L is not lower triangular and invertible.
    """

    matrix: FloatArray
    offset: FloatArray
    cholesky: FloatArray

    def __post_init__(self) -> None:
        cholesky = _lower(self.cholesky, "an affine proposal")
        if not np.diag(cholesky).all():
            raise InputError("the factor of an affine proposal must be invertible: there is a 0 on its diagonal")
        dim = len(cholesky)
        matrix, offset = (np.ascontiguousarray(given, dtype=np.float64) for given in (self.matrix, self.offset))
        if matrix.shape != (dim, dim) or offset.shape != (dim,):
            raise InputError(
                f"an affine proposal with a factor of shape {cholesky.shape} needs a matrix of the same shape and an "
                f"offset of shape {(dim,)}, not {matrix.shape} and {offset.shape}"
            )
        if not (np.isfinite(matrix).all() and np.isfinite(offset).all()):
            raise InputError("matrix and offset of an affine proposal must be finite")
        for name, value in (("matrix", matrix), ("offset", offset), ("cholesky", cholesky)):
            object.__setattr__(self, name, value)

    def __call__(self, rng: np.random.Generator, position: FloatArray) -> tuple[FloatArray, float]:
        return _draw(self, rng, position)


@dataclass(frozen=True)
class Mixture:
    """Each step is of one of several proposals, chosen with fixed probabilities, without regard to the state.

    Every component leaves the posterior as it is, and so does the mixture (Tierney 1994, section 2.4): the log ratio is
    that of the component that was chosen. Where there is a choice it takes one uniform number, before all others.

    Attributes
    ----------
    proposals : sequence of Proposal
    weights : ndarray, shape (len(proposals),)
        Probabilities, scaled to sum to 1.

    Raises
    ------
    InputError
        When there is no proposal, or not a positive, finite weight for each.
    """

    proposals: Sequence[Proposal]
    weights: FloatArray

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights, dtype=np.float64)
        if not self.proposals or weights.shape != (len(self.proposals),):
            raise InputError(
                f"a mixture needs a weight for each of its proposals, not {weights.size} for {len(self.proposals)}"
            )
        if not (np.isfinite(weights).all() and (weights > 0).all()):
            raise InputError("the weights of a mixture must be positive and finite")
        object.__setattr__(self, "proposals", tuple(self.proposals))
        object.__setattr__(self, "weights", weights / weights.sum())

    def __call__(self, rng: np.random.Generator, position: FloatArray) -> tuple[FloatArray, float]:
        if len(self.proposals) == 1:
            return self.proposals[0](rng, position)
        chosen = int(np.searchsorted(np.cumsum(self.weights[:-1]), rng.random(), side="right"))
        return self.proposals[chosen](rng, position)


@dataclass(frozen=True)
class LaplaceMixture:
    """Independent draws from a mixture of normal approximations at several modes, so that chains change modes.

    Attributes
    ----------
    means : ndarray, shape (k, dim)
    choleskys : ndarray, shape (k, dim, dim)
        Lower triangular factors of the covariances.
    weights : ndarray, shape (k,)
        Probabilities.
    """

    means: FloatArray
    choleskys: FloatArray
    weights: FloatArray

    def __call__(self, rng: np.random.Generator, position: FloatArray) -> tuple[FloatArray, float]:
        chosen = int(np.searchsorted(np.cumsum(self.weights[:-1]), rng.random(), side="right"))
        proposed = self.means[chosen] + self.choleskys[chosen] @ rng.standard_normal(position.size)
        return proposed, self.log_density(position) - self.log_density(proposed)

    def log_density(self, position: FloatArray) -> float:
        """Of the mixture, less a constant."""
        squares = _squares(self.inverses, position - self.means)
        return float(logsumexp(np.log(self.weights) + self._log_scales - 0.5 * squares))

    @cached_property
    def inverses(self) -> FloatArray:
        """Of the factors, shape (k, dim, dim)."""
        return np.asarray(np.linalg.inv(self.choleskys))

    @cached_property
    def _log_scales(self) -> FloatArray:
        return np.asarray(-np.log(np.diagonal(self.choleskys, axis1=1, axis2=2)).sum(axis=1))


@dataclass(frozen=True)
class NearestWalk:
    """Random walk with the covariance of the nearest of several modes, which need not be the same on the way back.

    Attributes
    ----------
    mixture : LaplaceMixture
        Means and covariances of the modes.
    scale : float
        Of a step, in sds of the mode.
    """

    mixture: LaplaceMixture
    scale: float

    def __call__(self, rng: np.random.Generator, position: FloatArray) -> tuple[FloatArray, float]:
        here = self._nearest(position)
        z = rng.standard_normal(position.size)
        proposed = position + self.scale * self.mixture.choleskys[here] @ z
        there = self._nearest(proposed)
        if there == here:
            return proposed, 0.0
        inverses, log_scales = self.mixture.inverses, self.mixture._log_scales
        back = inverses[there] @ (position - proposed) / self.scale
        return proposed, float(log_scales[there] - log_scales[here] + 0.5 * (z @ z - back @ back))

    def _nearest(self, position: FloatArray) -> int:
        return int(np.argmin(_squares(self.mixture.inverses, position - self.mixture.means)))


def _squares(inverses: FloatArray, away: FloatArray) -> FloatArray:
    """Squared distances in sds, shape (k,)."""
    return np.asarray(np.sum(np.einsum("kij,kj->ki", inverses, away) ** 2, axis=1))


@dataclass(frozen=True)
class Checked:
    """A proposal of the user's own, whose answers are looked at before they are used.

    Both positions are copies, so that a function may write into the one it gets and return one array again and again.

    Attributes
    ----------
    proposal : Proposal

    Raises
    ------
    InputError
        When called, if what the proposal returns is no position with a log ratio.
    """

    proposal: Proposal

    def __call__(self, rng: np.random.Generator, position: FloatArray) -> tuple[FloatArray, float]:
        returned: Any = self.proposal(rng, position.copy())
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            many = f"{len(returned)} values" if isinstance(returned, tuple | list) else "one value"
            raise _malformed(f"{many} ({type(returned).__name__})", position.size)
        proposed, log_ratio = map(_numbers, returned)
        if proposed is None or proposed.shape != position.shape:
            what = "no numbers" if proposed is None else f"an array of shape {proposed.shape}"
            raise _malformed(f"{what} as the position", position.size)
        if not np.isfinite(proposed).all():
            return proposed, -np.inf  # rejected, whatever the log ratio is there
        # -inf is for moves that have no way back.
        if log_ratio is None or log_ratio.ndim or not log_ratio < np.inf:
            raise _malformed(f"{returned[1]!r} as the log ratio", position.size)
        return proposed, float(log_ratio)


def checked(proposal: Proposal) -> Proposal:
    """The proposal, with its answers looked at unless it is one of those above."""
    own = RandomWalk | Affine | Mixture | LaplaceMixture | NearestWalk
    return proposal if isinstance(proposal, own) else Checked(proposal)


def _numbers(given: object) -> FloatArray | None:
    """A copy as an array of numbers; None of what is none."""
    try:
        array = np.asarray(given)
    except ValueError:
        return None
    return array.astype(np.float64) if array.dtype.kind in "iuf" else None


def _malformed(returned: str, dim: int) -> InputError:
    return InputError(
        f"the proposal must return (proposed, log_ratio), an array of {dim} numbers and the number "
        f"log q(position | proposed) - log q(proposed | position); it returned {returned}"
    )


def laplace_pcn(mode: FloatArray, cholesky: FloatArray, rho: float) -> Affine:
    """Preconditioned Crank-Nicolson move about a Laplace approximation N(m, L L').

    theta' = m + rho (theta - m) + sqrt(1 - rho^2) L z is reversible for N(m, L L') (Cotter, Roberts, Stuart and White
    2013, section 4.2), so that a posterior of that form accepts every move; rho = 0 is the independence sampler.

    With rho = cos t it is Hamiltonian Monte Carlo on the surrogate with an exact integrator: under the Hamiltonian of
    N(m, L L') with mass matrix (L L')^-1 and momentum L^-T z, theta is at theta' after time t (Neal 2011, section
    5.5.1; Shahbaba, Lan, Johnson and Neal 2014), and the remainders decide. rho = 0 is a quarter turn.

    Parameters
    ----------
    mode : ndarray, shape (dim,)
        m.
    cholesky : ndarray, shape (dim, dim)
        L.
    rho : float
        Between -1 and 1, both excluded; below 0 moves go to the other side of m.

    Raises
    ------
    InputError
        When ``rho`` is not in this range or the arrays do not fit.
    """
    if not -1 < rho < 1:
        raise InputError(f"rho of a pCN move must be between -1 and 1, not {rho}")
    mode = np.asarray(mode, dtype=np.float64)
    return Affine(rho * np.eye(mode.size), (1 - rho) * mode, np.sqrt(1 - rho**2) * np.asarray(cholesky))


def langevin(
    anchor: FloatArray, gradient: FloatArray, hessian: FloatArray, cholesky: FloatArray, step: float
) -> Affine:
    """Langevin move on the quadratic surrogate of the log density about an anchor.

    theta' = theta + (step / 2) L L' (g + H (theta - m)) + sqrt(step) L z: MALA preconditioned by L L' (Roberts and
    Stramer 2002, section 2), with a gradient that touches no data.

    Parameters
    ----------
    anchor, gradient : ndarray, shape (dim,)
        m, and the gradient g of the log density there (0 at a mode).
    hessian : ndarray, shape (dim, dim)
        H of the log density at m.
    cholesky : ndarray, shape (dim, dim)
        L, such as the factor of the Laplace covariance.
    step : float
        Variance of a step in units of L L'.

    Raises
    ------
    InputError
        When ``step`` is not positive or the arrays do not fit.
    """
    if not 0 < step < np.inf:
        raise InputError(f"the step of a Langevin move must be positive, not {step}")
    cholesky = _lower(cholesky, "a Langevin move")
    pull = 0.5 * step * cholesky @ cholesky.T
    offset = pull @ (np.asarray(gradient) - np.asarray(hessian) @ np.asarray(anchor))
    return Affine(np.eye(len(cholesky)) + pull @ hessian, offset, np.sqrt(step) * cholesky)


def compiled(proposal: Proposal) -> Proposals | None:
    """The proposal as the decision loop draws it in C++; None where it does not know it."""
    mixture = proposal if isinstance(proposal, Mixture) else Mixture([proposal], np.ones(1))
    parts = [_affine(part) for part in mixture.proposals if isinstance(part, RandomWalk | Affine)]
    if len(parts) < len(mixture.proposals):
        return None
    if len({len(offset) for _, offset, _ in parts}) > 1:
        raise InputError("the proposals of a mixture must have the same number of parameters")
    matrix, offset, cholesky = (np.array(arrays) for arrays in zip(*parts, strict=True))
    return Proposals(matrix, offset, cholesky, mixture.weights)


def _affine(proposal: RandomWalk | Affine) -> tuple[FloatArray, FloatArray, FloatArray]:
    if isinstance(proposal, Affine):
        return proposal.matrix, proposal.offset, proposal.cholesky
    dim = len(proposal.cholesky)
    return np.eye(dim), np.zeros(dim), proposal.cholesky


def _draw(proposal: RandomWalk | Affine, rng: np.random.Generator, position: FloatArray) -> tuple[FloatArray, float]:
    matrix, offset, cholesky = (array[np.newaxis] for array in _affine(proposal))
    return Proposals(matrix, offset, cholesky, np.ones(1)).draw(rng.bit_generator.capsule, position)


def _lower(cholesky: FloatArray, what: str) -> FloatArray:
    cholesky = np.ascontiguousarray(cholesky, dtype=np.float64)
    if cholesky.ndim != 2 or cholesky.shape[0] != cholesky.shape[1]:
        raise InputError(f"the factor of {what} must be a square matrix, not of shape {cholesky.shape}")
    if not np.isfinite(cholesky).all() or np.any(np.triu(cholesky, 1)):
        raise InputError(f"the factor of {what} must be finite and lower triangular")
    return cholesky
