"""Proposals by name. To add one, write a class where it belongs and a line of `PROPOSALS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from stansub.errors import InputError
from stansub.kernels.proposals import Adapter, Proposal, checked
from stansub.kernels.sgld import MiniBatches
from stansub.tuning.adapt import CovarianceAdapter, ScaleAdapter, SgldAdapter
from stansub.tuning.race import Candidate, Normal, all_moves, langevin_moves, pcn_moves, trajectories
from stansub.types import FloatArray


class AdapterContext(NamedTuple):
    """What an adaptive proposal may use."""

    dim: int
    batches: Callable[[], MiniBatches] | None = None
    """Makes mini-batches for gradients."""
    cholesky: FloatArray | None = None
    """Shape (dim, dim): covariance factor of the Laplace approximation."""


@dataclass(frozen=True)
class NamedProposal:
    """Properties of a named proposal."""

    race: Callable[[Normal, str], Iterator[Candidate]] | None = None
    """Moves about a normal approximation of a kind ("Laplace", "pooled"), among which a race chooses."""
    learner: Callable[[AdapterContext], Adapter] | None = None
    """Makes the adapter of the proposal in warmup."""
    batches: bool = False
    """Whether it uses gradients of mini-batches, for which control variates of blocks are useful."""
    splits: bool = False
    """Whether it needs the posterior split into prior and likelihood, and is set up before chains begin."""
    expands: bool = False
    """Whether the race uses third derivatives."""
    fallback: str = ""
    """Name of the proposal that replaces it if there can be no race; empty if there is none."""

    @property
    def needs_mode(self) -> bool:
        """Return whether it requires a normal approximation."""
        return self.race is not None and not self.fallback

    @property
    def needs_third(self) -> bool:
        """Return whether it requires third derivatives at the mode."""
        return self.expands and not self.fallback


def _sgld(about: AdapterContext) -> Adapter:
    if about.batches is None:
        raise InputError(
            "the proposal sgld updates all parameters at once: choose another proposal for a subset of them"
        )
    return SgldAdapter(about.batches(), about.dim, cholesky=about.cholesky)


PROPOSALS = {
    "auto": NamedProposal(race=all_moves, expands=True, fallback="adaptive-metropolis"),
    "laplace-pcn": NamedProposal(race=pcn_moves),
    "trajectory": NamedProposal(race=lambda about, kind: trajectories(about), expands=True),
    "langevin": NamedProposal(race=langevin_moves),
    "adaptive-metropolis": NamedProposal(learner=lambda about: CovarianceAdapter(about.dim)),
    "random-walk": NamedProposal(learner=lambda about: ScaleAdapter(about.dim)),
    "sgld": NamedProposal(learner=_sgld, batches=True),
    "surrogate": NamedProposal(splits=True),
    "gibbs": NamedProposal(splits=True),
}


def named(proposal: str | Proposal) -> NamedProposal:
    """Return the properties of a name; defaults for a proposal that was passed."""
    return PROPOSALS.get(proposal, NamedProposal()) if isinstance(proposal, str) else NamedProposal()


def without_race(proposal: str) -> str:
    """Return the name of the proposal that is used without a race."""
    return named(proposal).fallback or proposal


def make_adapter(proposal: str | Proposal, about: AdapterContext) -> Adapter:
    """Return the adapter of a proposal: by its name, or from the proposal itself.

    Raises
    ------
    InputError
        If the name is of no adaptive proposal, ``sgld`` has no gradients, or a random walk has another dimension.
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
