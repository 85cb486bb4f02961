"""Proposals: (rng, position) -> (proposed position, log density ratio).

Anything with this signature is a proposal. Built-in proposals also have the attributes of `BuiltIn`, such as how C++
draws them: random walks, affine Gaussian proposals, trajectories and mixtures of these run in C++.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from stansub import _loop
from stansub.codec import GIVEN
from stansub.errors import InputError
from stansub.kernels.base import Records
from stansub.selection import Chosen
from stansub.types import FloatArray


class Proposal(Protocol):
    """Function that draws the next candidate of a Metropolis-Hastings step; several chains may call it at once."""

    def __call__(self, rng: np.random.Generator, position: FloatArray) -> tuple[FloatArray, float]:
        """Propose a move.

        Parameters
        ----------
        position : ndarray, shape (dim,)
            Unconstrained parameters.

        Returns
        -------
        proposed : ndarray, shape (dim,)
        log_ratio : float
            log q(position | proposed) - log q(proposed | position); 0 for symmetric proposals.
        """


class BuiltIn(ABC):
    """Base of this package's proposals."""

    is_walk: ClassVar[bool] = False
    """Whether the proposal is a Gaussian random walk with the same steps everywhere."""

    @abstractmethod
    def __call__(self, rng: np.random.Generator, position: FloatArray) -> tuple[FloatArray, float]:
        """Propose a move (see `Proposal`)."""

    @property
    def name(self) -> str:
        """Return the name for the record."""
        return type(self).__name__

    @property
    def smooth(self) -> bool:
        """Return whether the proposal moves on one smooth density of the whole space, and not on a manifold."""
        return True

    @property
    def cost(self) -> float:
        """Return what a move costs besides that of any proposal, in evaluations of an observation."""
        return 0.0

    def single(self) -> _loop.Proposal | None:
        """Return the proposal for C++ if it is a single one there; else None."""
        return None

    def compiled(self) -> _loop.Proposals | None:
        """Return the proposal for the C++ decision loop; None if each step calls Python."""
        single = self.single()
        return _loop.Proposals([single], [1.0]) if single is not None else None

    def adapter(self, dim: int) -> Adapter:
        """Return an adapter for warmup, which keeps the proposal unless a subclass adapts it.

        Raises
        ------
        InputError
            If the proposal is for another number of parameters.
        """
        return NoAdapter(self)

    def choices(self) -> tuple[Chosen, ...]:
        """Return the choices that were made in it for the user."""
        return ()


class Adaptive(Proposal, Protocol):
    """Custom proposal that adapts in warmup, or has a state in each chain.

    `stansub.sample` creates one adapter per chain, which returns the proposal that the chain calls. This proposal
    belongs to one chain, so it may change from step to step, and it is saved in checkpoints with the chain. Adapters
    and their proposals must therefore be dataclasses whose fields hold numbers, text, arrays, generators, containers of
    these or other such dataclasses. A step may depend on the past through them only if that leaves the posterior
    invariant (a cycle of directions does; anything learned after warmup in general does not).
    """

    def adapter(self, dim: int) -> Adapter:
        """Return a new adapter for this number of parameters."""


class Adapter(Protocol):
    """Adapts a proposal to the draws of warmup; one per chain.

    The chain requests a proposal at the start, after each batch of 25 warmup steps that the adapter has seen, and at
    the end of warmup for sampling.

    Attributes
    ----------
    n_evaluated : int
        Observations that its proposals have evaluated so far, without decisions.
    """

    @property
    def n_evaluated(self) -> int: ...

    def learn(self, records: Records) -> None:
        """Adapt to a batch of steps."""

    def proposal(self) -> Proposal:
        """Return the proposal for the next batch."""

    def final(self) -> Proposal:
        """Return the proposal for sampling."""


@dataclass(eq=False)
class NoAdapter:
    """Adapter that keeps the proposal unchanged."""

    _proposal: Proposal = field(metadata=GIVEN)
    n_evaluated: ClassVar[int] = 0

    def learn(self, records: Records) -> None:
        pass

    def proposal(self) -> Proposal:
        return self._proposal

    def final(self) -> Proposal:
        return self._proposal


class Compiled(BuiltIn):
    """Base of proposals that are a single one in C++."""

    @abstractmethod
    def single(self) -> _loop.Proposal: ...

    def __call__(self, rng: np.random.Generator, position: FloatArray) -> tuple[FloatArray, float]:
        return _loop.Proposals([self.single()], [1.0]).draw(rng.bit_generator.capsule, position)


@dataclass(frozen=True)
class RandomWalk(Compiled):
    """Gaussian random walk theta' = theta + L z, run in C++.

    Attributes
    ----------
    cholesky : ndarray, shape (dim, dim)
        Lower triangular L; L L' is the covariance of a step.

    Raises
    ------
    InputError
        If L is not a square, finite, lower triangular matrix.
    """

    cholesky: FloatArray
    is_walk: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "cholesky", lower_triangular(self.cholesky, "a random walk"))

    def single(self) -> _loop.Proposal:
        dim = len(self.cholesky)
        return _loop.Affine(np.eye(dim), np.zeros(dim), self.cholesky)

    def adapter(self, dim: int) -> Adapter:
        if len(self.cholesky) != dim:
            raise InputError(
                f"the random walk has {len(self.cholesky)} dimensions, but the program has {dim} unconstrained "
                "parameters"
            )
        return super().adapter(dim)


@dataclass(frozen=True)
class Affine(Compiled):
    """Gaussian proposal with a mean that is affine in the state: theta' = A theta + c + L z.

    The log ratio is (|z|^2 - |L^-1 (theta - A theta' - c)|^2) / 2. The decision loop runs the proposal in C++.

    Raises
    ------
    InputError
        If the shapes do not match, a number is not finite, or L is not lower triangular and invertible.
    """

    matrix: FloatArray
    """Shape (dim, dim): A."""
    offset: FloatArray
    """Shape (dim,): c."""
    cholesky: FloatArray
    """Shape (dim, dim): lower triangular L, invertible; L L' is the covariance of the proposal."""

    def __post_init__(self) -> None:
        cholesky = lower_triangular(self.cholesky, "an affine proposal", invertible=True)
        dim = len(cholesky)
        matrix, offset = (np.ascontiguousarray(given, dtype=np.float64) for given in (self.matrix, self.offset))
        if matrix.shape != (dim, dim) or offset.shape != (dim,):
            raise InputError(
                f"an affine proposal with a factor of shape {cholesky.shape} needs a matrix of the same shape and an "
                f"offset of shape {(dim,)}, not {matrix.shape} and {offset.shape}"
            )
        if not (np.isfinite(matrix).all() and np.isfinite(offset).all()):
            raise InputError("the matrix and offset of an affine proposal must be finite")
        for name, value in (("matrix", matrix), ("offset", offset), ("cholesky", cholesky)):
            object.__setattr__(self, name, value)

    def single(self) -> _loop.Proposal:
        return _loop.Affine(self.matrix, self.offset, self.cholesky)


@dataclass(frozen=True)
class Mixture(BuiltIn):
    """Mixture of proposals: each step uses one, drawn with fixed probabilities independent of the state.

    Every component leaves the posterior invariant, and so does the mixture (Tierney 1994, section 2.4). The log ratio
    is that of the chosen component. With several components, the choice draws one uniform number before any other.

    Attributes
    ----------
    proposals : sequence of Proposal
    weights : ndarray, shape (len(proposals),)
        Probabilities, scaled to sum to 1.

    Raises
    ------
    InputError
        If there is no proposal, or not a positive, finite weight for each.
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
        chosen = component(self.weights, rng)
        return self.proposals[chosen](rng, position)

    @property
    def cost(self) -> float:
        return float(sum(w * checked(one).cost for w, one in zip(self.weights, self.proposals, strict=True)))

    def compiled(self) -> _loop.Proposals | None:
        """Return the mixture for C++ if each part is a single proposal there; raise InputError if dimensions differ."""
        singles = [single for one in self.proposals if (single := checked(one).single()) is not None]
        if len(singles) < len(self.proposals):
            return None
        if len({single.dim for single in singles}) > 1:
            raise InputError("the proposals of a mixture must have the same number of parameters")
        return _loop.Proposals(singles, self.weights.tolist())


@dataclass(frozen=True)
class Checked(BuiltIn):
    """Custom proposal whose results are validated before use; it may adapt (`Adaptive`).

    Both positions are copies, so a function may modify its argument and may return the same array at every call.

    Raises
    ------
    InputError
        When called, if the proposal does not return a position and a log ratio.
    """

    proposal: Proposal

    @property
    def name(self) -> str:
        return type(self.proposal).__name__

    @property
    def smooth(self) -> bool:
        return bool(getattr(self.proposal, "smooth", True))

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
            return proposed, -np.inf  # rejected, whatever its log ratio
        # -inf marks moves without a reverse.
        if log_ratio is None or log_ratio.ndim or not log_ratio < np.inf:
            raise _malformed(f"{returned[1]!r} as the log ratio", position.size)
        return proposed, float(log_ratio)

    def adapter(self, dim: int) -> Adapter:
        make = getattr(self.proposal, "adapter", None)
        return NoAdapter(self) if make is None else CheckedAdapter(make(dim))


@dataclass(eq=False)
class CheckedAdapter:
    """Custom adapter whose proposals are validated."""

    _adapter: Adapter

    @property
    def n_evaluated(self) -> int:
        return self._adapter.n_evaluated

    def learn(self, records: Records) -> None:
        self._adapter.learn(records)

    def proposal(self) -> Proposal:
        return checked(self._adapter.proposal())

    def final(self) -> Proposal:
        return checked(self._adapter.final())


def checked(proposal: Proposal) -> BuiltIn:
    """Return the proposal, with its results validated unless it is built-in."""
    return proposal if isinstance(proposal, BuiltIn) else Checked(proposal)


def _numbers(given: object) -> FloatArray | None:
    """Return a copy as an array of numbers; None if it is not numeric."""
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
    """Return the preconditioned Crank-Nicolson proposal about a Laplace approximation N(m, L L').

    theta' = m + rho (theta - m) + sqrt(1 - rho^2) L z is reversible for N(m, L L') (Cotter, Roberts, Stuart and White
    2013, section 4.2), so if the posterior is this normal distribution, every move is accepted. rho = 0 is the
    independence sampler.

    With rho = cos t it is Hamiltonian Monte Carlo on the surrogate with an exact integrator: under the Hamiltonian of
    N(m, L L') with mass matrix (L L')^-1 and momentum L^-T z, theta is at theta' after time t (Neal 2011, section
    5.5.1; Shahbaba, Lan, Johnson and Neal 2014), and the decision uses the remainders. rho = 0 is a quarter turn.

    Parameters
    ----------
    mode : ndarray, shape (dim,)
        m.
    cholesky : ndarray, shape (dim, dim)
        L.
    rho : float
        Between -1 and 1, both excluded; below 0, moves go to the other side of m.

    Raises
    ------
    InputError
        If ``rho`` is not in this range or the shapes do not match.
    """
    if not -1 < rho < 1:
        raise InputError(f"rho of a pCN move must be between -1 and 1, not {rho}")
    mode = np.asarray(mode, dtype=np.float64)
    return Affine(rho * np.eye(mode.size), (1 - rho) * mode, np.sqrt(1 - rho**2) * np.asarray(cholesky))


def langevin(
    anchor: FloatArray, gradient: FloatArray, hessian: FloatArray, cholesky: FloatArray, step: float
) -> Affine:
    """Return the Langevin proposal on the quadratic surrogate of the log density about an anchor.

    theta' = theta + (step / 2) L L' (g + H (theta - m)) + sqrt(step) L z: MALA preconditioned by L L' (Roberts and
    Stramer 2002, section 2), with a gradient that needs no data.

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
        If ``step`` is not positive or the shapes do not match.
    """
    if not 0 < step < np.inf:
        raise InputError(f"the step of a Langevin move must be positive, not {step}")
    cholesky = lower_triangular(cholesky, "a Langevin move")
    pull = 0.5 * step * cholesky @ cholesky.T
    offset = pull @ (np.asarray(gradient) - np.asarray(hessian) @ np.asarray(anchor))
    return Affine(np.eye(len(cholesky)) + pull @ hessian, offset, np.sqrt(step) * cholesky)


def component(weights: FloatArray, rng: np.random.Generator) -> int:
    """Draw the number of a component with probabilities that sum to 1; takes one uniform number."""
    return int(np.searchsorted(np.cumsum(weights[:-1]), rng.random(), side="right"))


def optimal_scale(dim: int) -> float:
    """Return the optimal scale of a random walk on a normal posterior, in its sds (Roberts, Gelman and Gilks 1997)."""
    return float(2.38 / np.sqrt(dim))


def optimal_walk(cholesky: FloatArray) -> RandomWalk:
    """Return the random walk of optimal scale for a normal posterior with this covariance factor."""
    return RandomWalk(optimal_scale(len(cholesky)) * cholesky)


def compiled(proposal: Proposal) -> _loop.Proposals | None:
    """Return the proposal for the C++ decision loop; None if C++ does not support it."""
    return checked(proposal).compiled()


def lower_triangular(cholesky: FloatArray, what: str, *, invertible: bool = False) -> FloatArray:
    """Return a factor as an array; raise InputError if it is not square, finite, lower triangular (and invertible)."""
    cholesky = np.ascontiguousarray(cholesky, dtype=np.float64)
    if cholesky.ndim != 2 or cholesky.shape[0] != cholesky.shape[1]:
        raise InputError(f"the factor of {what} must be a square matrix, not of shape {cholesky.shape}")
    if not np.isfinite(cholesky).all() or np.any(np.triu(cholesky, 1)):
        raise InputError(f"the factor of {what} must be finite and lower triangular")
    if invertible and not np.diag(cholesky).all():
        raise InputError(f"the factor of {what} must be invertible, but its diagonal contains a 0")
    return cholesky
