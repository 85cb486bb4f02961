"""Proposals that users ask for by name; a new one is a class, wherever it belongs, and a line of `PROPOSALS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from stansub.errors import InputError
from stansub.kernels.proposals import Adapter, Proposal, checked
from stansub.kernels.sgld import MiniBatches
from stansub.tuning.adapt import CovarianceAdapter, ScaleAdapter, SgldAdapter
from stansub.tuning.race import Candidate, Normal, all_moves, langevin_moves, pcn_moves
from stansub.types import FloatArray


class Surroundings(NamedTuple):
    """What a proposal that learns may rest on.

    Attributes
    ----------
    dim : int
        Number of parameters that it moves.
    batches : callable, optional
        Makes mini-batches to take gradients from.
    cholesky : ndarray, shape (dim, dim), optional
        Of the Laplace approximation.
    """

    dim: int
    batches: Callable[[], MiniBatches] | None = None
    cholesky: FloatArray | None = None


@dataclass(frozen=True)
class NamedProposal:
    """What the name of a proposal stands for.

    Attributes
    ----------
    race : callable, optional
        Moves about a normal approximation of a kind ("Laplace", "pooled"), between which a race decides.
    learner : callable, optional
        Makes what learns the proposal in warmup.
    batches : bool
        Whether it takes gradients from mini-batches, which control variates of blocks are good for.
    surrogate : bool
        Whether it samples a surrogate posterior, which is settled before chains begin.
    fallback : str
        Name of the proposal that takes its place where a race cannot be had; empty where there is none.
    """

    race: Callable[[Normal, str], Iterator[Candidate]] | None = None
    learner: Callable[[Surroundings], Adapter] | None = None
    batches: bool = False
    surrogate: bool = False
    fallback: str = ""

    @property
    def needs_mode(self) -> bool:
        """Whether there is nothing to do without a normal approximation."""
        return self.race is not None and not self.fallback


def _sgld(about: Surroundings) -> Adapter:
    if about.batches is None:
        raise InputError(
            "the proposal sgld updates all parameters at once: choose another proposal for a subset of them"
        )
    return SgldAdapter(about.batches(), about.dim, cholesky=about.cholesky)


PROPOSALS = {
    "auto": NamedProposal(race=all_moves, fallback="adaptive-metropolis"),
    "laplace-pcn": NamedProposal(race=pcn_moves),
    "langevin": NamedProposal(race=langevin_moves),
    "adaptive-metropolis": NamedProposal(learner=lambda about: CovarianceAdapter(about.dim)),
    "random-walk": NamedProposal(learner=lambda about: ScaleAdapter(about.dim)),
    "sgld": NamedProposal(learner=_sgld, batches=True),
    "surrogate": NamedProposal(surrogate=True),
}


def named(proposal: str | Proposal) -> NamedProposal:
    """What a name stands for: nothing, for a proposal that was given."""
    return PROPOSALS.get(proposal, NamedProposal()) if isinstance(proposal, str) else NamedProposal()


def without_race(proposal: str) -> str:
    """Name of the proposal that is used where no race decides."""
    return named(proposal).fallback or proposal


def make_adapter(proposal: str | Proposal, about: Surroundings) -> Adapter:
    """What adapts a proposal: by its name, or as a proposal value has it.

    Raises
    ------
    InputError
        For a name of nothing that learns, ``sgld`` without gradients, or a random walk in another number of dimensions.
    """
    if not isinstance(proposal, str):
        return checked(proposal).adapter(about.dim)
    check_proposal(proposal)
    learner = PROPOSALS[proposal].learner
    if learner is None:
        able = [name for name, one in PROPOSALS.items() if one.learner is not None]
        raise InputError(f"proposal {proposal!r} cannot be used here; choose from {', '.join(able)}")
    return learner(about)


def check_proposal(proposal: str | Proposal) -> None:
    """Raise InputError unless ``proposal`` is a known name or can be called."""
    known = proposal in PROPOSALS if isinstance(proposal, str) else callable(proposal)
    if not known:
        raise InputError(
            f"unknown proposal {proposal!r}; choose from {', '.join(PROPOSALS)}, or give a function (rng, position) "
            "-> (proposed, log density ratio)"
        )
