"""State of a run and its chains as values, without target and kernels: the content of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub.acceptance.decreasing_level import DecreasingLevel
from stansub.acceptance.normality import Trial
from stansub.acceptance.stopping import StoppingRule
from stansub.kernels.base import State
from stansub.kernels.proposals import Adapter
from stansub.kernels.surrogate import SurrogateTransition
from stansub.kernels.within_gibbs import MetropolisWithinGibbs
from stansub.run.moments import Moments
from stansub.selection import Choices
from stansub.target.laplace import Mode
from stansub.tuning.mode_setup import ModeSetup
from stansub.types import FloatArray


@dataclass(frozen=True)
class Plan:
    """Length of a chain and what it keeps."""

    iter_warmup: int
    iter_sampling: int
    thin: int
    """Every ``thin``-th step is kept."""
    audit: float
    """Share of the sampling decisions that are repeated on all the data."""
    save_warmup: bool
    """Whether warmup steps are kept."""
    levels: DecreasingLevel | None = None
    """Decrease of the error level after warmup; None if it is constant."""


class Totals(dict[str, Any]):
    """Sums (or maxima) over all steps of a phase, including those thinned away; 0 if never counted.

    Besides the totals that the kernel's statistics declare, they include ``n_steps`` and ``seconds``, without audits.
    """

    def __missing__(self, name: str) -> int:
        return 0

    def add(self, counted: Mapping[str, float], largest: Mapping[str, float] | None = None) -> None:
        """Add counts, and update maxima."""
        for name, value in counted.items():
            self[name] += value
        for name, value in (largest or {}).items():
            self[name] = max(self[name], value)


@dataclass
class PhaseCounts:
    """Progress of a phase: its totals and the number of rows kept."""

    n_kept: int = 0
    totals: Totals = field(default_factory=Totals)


@dataclass
class ChainState:
    """Everything that a chain's further draws depend on, with its counts; the records kept are stored separately."""

    state: State
    proposal: Any
    """The kernel's params: a proposal, or those of its parts by name."""
    adapter: Adapter
    rng: np.random.Generator
    audit_rng: np.random.Generator
    counters: NDArray[np.int64] = field(default_factory=lambda: np.zeros(4, np.int64))
    counted_in_warmup: NDArray[np.int64] = field(default_factory=lambda: np.zeros(4, np.int64))
    """Shape (4,): steps, accepted, observations used and evaluated, as a kernel counts them; at the end of warmup."""
    pause: int = 0
    """Steps of warmup after which the chain waits for the others, remembering its draws until then; 0 for none."""
    rest: int = 0
    """Steps of sampling after which the chain waits for the others; 0 for none."""
    ended: bool = False
    """Whether its draws were found to suffice."""
    remembered: list[FloatArray] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)
    """Draws since then, and acceptance rates."""
    trial_rng: np.random.Generator | None = None
    """Generator of the trial at the end of warmup."""
    trial: Trial | None = None
    warmup: PhaseCounts = field(default_factory=PhaseCounts)
    sampling: PhaseCounts = field(default_factory=PhaseCounts)
    kernel: Any = None
    """Result of `Kernel.save`; None for a kernel at ``state`` without memory."""


@dataclass(frozen=True, kw_only=True)
class SetupState:
    """What was chosen before the first step."""

    seed: int
    asked_rule: StoppingRule
    rule: StoppingRule
    """The test before its looks were fitted, and the test with which chains begin."""
    guarantee: str
    range_kind: str
    found: ModeSetup | None
    """The mode, with control variates and proposals there."""
    transition: SurrogateTransition | MetropolisWithinGibbs | None
    """Set if the posterior is split into prior and likelihood."""
    plan: Plan
    """Length of the chains, what they keep, and the share of decisions that is audited."""
    trial: bool
    """Whether to test the normality assumption of a t-test at the end of warmup."""
    notes: Choices
    """Choices besides those about the mode, with reasons."""

    def chosen(self) -> dict[str, Any]:
        """Return these fields by name, without those of subclasses."""
        return {one.name: getattr(self, one.name) for one in fields(SetupState)}


@dataclass(frozen=True, kw_only=True)
class Facts(SetupState):
    """What was chosen before the first step, and the program and data of the run."""

    block_size: int
    evaluator: str
    model_hash: str
    data_hash: str
    """Of the program and of the data."""
    name: str
    code: str
    """The program, in its canonical form; empty for a posterior of functions."""
    data_file: str
    """Source of the data; empty if they were passed as values."""
    data: dict[str, Any] | None
    """The data themselves, if no file holds them."""
    data_source: str
    """Name of the data in messages."""
    points: list[FloatArray] = field(default_factory=list)
    """Unconstrained parameters at which the cut was proved."""


@dataclass(frozen=True)
class AdaptationState:
    """Results of cross-chain adaptation so far."""

    found: ModeSetup
    test: StoppingRule
    about: Mode | Moments
    """Normal approximation of the proposals."""
    moved_at: tuple[int, ...]
    """Steps of warmup after which the expansion point moved."""
    last: int
    """Steps after which the chains last pooled their draws."""


@dataclass(frozen=True)
class Options:
    """Options of a run."""

    record: dict[str, Any]
    """All options, from `stansub.run.config.SampleConfig.record`."""
    values: dict[str, Any]
    """The options that a file can hold."""
