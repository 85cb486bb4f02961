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
    """Length of a chain and what it keeps.

    Attributes
    ----------
    thin : int
        Every ``thin``-th step is kept.
    audit : float
        Share of the sampling decisions that are repeated on all the data.
    save_warmup : bool
        Whether warmup steps are kept.
    levels : DecreasingLevel or None
        Decrease of the error level after warmup; None if it is constant.
    """

    iter_warmup: int
    iter_sampling: int
    thin: int
    audit: float
    save_warmup: bool
    levels: DecreasingLevel | None = None


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
    """Everything that a chain's further draws depend on, with its counts; the records kept are stored separately.

    Attributes
    ----------
    proposal
        The kernel's params: a proposal, or those of its parts by name.
    counters, counted_in_warmup : ndarray of int64, shape (4,)
        Steps, accepted, observations used and evaluated, as a kernel counts them; at the end of warmup.
    pause : int
        Steps of warmup after which the chain waits for the others, remembering its draws until then; 0 for none.
    rest : int
        Steps of sampling after which the chain waits for the others; 0 for none.
    ended : bool
        Whether its draws were found to suffice.
    remembered, accepted : list
        Draws since then, and acceptance rates.
    trial_rng : Generator or None
        Generator of the trial at the end of warmup.
    kernel
        Result of `Kernel.save`; None for a kernel at ``state`` without memory.
    """

    state: State
    proposal: Any
    adapter: Adapter
    rng: np.random.Generator
    audit_rng: np.random.Generator
    counters: NDArray[np.int64] = field(default_factory=lambda: np.zeros(4, np.int64))
    counted_in_warmup: NDArray[np.int64] = field(default_factory=lambda: np.zeros(4, np.int64))
    pause: int = 0
    rest: int = 0
    ended: bool = False
    remembered: list[FloatArray] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)
    trial_rng: np.random.Generator | None = None
    trial: Trial | None = None
    warmup: PhaseCounts = field(default_factory=PhaseCounts)
    sampling: PhaseCounts = field(default_factory=PhaseCounts)
    kernel: Any = None


@dataclass(frozen=True, kw_only=True)
class SetupState:
    """What was chosen before the first step.

    Attributes
    ----------
    asked_rule, rule : StoppingRule
        The test before its looks were fitted, and the test with which chains begin.
    found : ModeSetup or None
        The mode, with control variates and proposals there.
    transition : SurrogateTransition, MetropolisWithinGibbs or None
        Set if the posterior is split into prior and likelihood.
    plan : Plan
        Length of the chains, what they keep, and the share of decisions that is audited.
    trial : bool
        Whether to test the normality assumption of a t-test at the end of warmup.
    notes : mapping of str to Chosen
        Choices besides those about the mode, with reasons.
    """

    seed: int
    asked_rule: StoppingRule
    rule: StoppingRule
    guarantee: str
    range_kind: str
    found: ModeSetup | None
    transition: SurrogateTransition | MetropolisWithinGibbs | None
    plan: Plan
    trial: bool
    notes: Choices

    def chosen(self) -> dict[str, Any]:
        """Return these fields by name, without those of subclasses."""
        return {one.name: getattr(self, one.name) for one in fields(SetupState)}


@dataclass(frozen=True, kw_only=True)
class Facts(SetupState):
    """What was chosen before the first step, and the program and data of the run.

    Attributes
    ----------
    model_hash, data_hash : str
        Of the program and of the data.
    name, code : str
        The program, in its canonical form; empty for a posterior of functions.
    data_file : str
        Source of the data; empty if they were passed as values.
    data : dict or None
        The data themselves, if no file holds them.
    data_source : str
        Name of the data in messages.
    """

    block_size: int
    evaluator: str
    model_hash: str
    data_hash: str
    name: str
    code: str
    data_file: str
    data: dict[str, Any] | None
    data_source: str


@dataclass(frozen=True)
class AdaptationState:
    """Results of cross-chain adaptation so far.

    Attributes
    ----------
    about : Mode or Moments
        Normal approximation of the proposals.
    moved_at : tuple of int
        Steps of warmup after which the expansion point moved.
    last : int
        Steps after which the chains last pooled their draws.
    """

    found: ModeSetup
    test: StoppingRule
    about: Mode | Moments
    moved_at: tuple[int, ...]
    last: int


@dataclass(frozen=True)
class Options:
    """Options of a run.

    Attributes
    ----------
    record : dict
        All options, from `stansub.run.config.SampleConfig.record`.
    values : dict
        The options that a file can hold.
    """

    record: dict[str, Any]
    values: dict[str, Any]
