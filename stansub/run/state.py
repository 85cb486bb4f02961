"""What a run and its chains are beside target and kernels, as values: what a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub.acceptance.normality import Trial
from stansub.acceptance.schedule import Falling
from stansub.acceptance.stopping import StoppingRule
from stansub.kernels.base import State
from stansub.kernels.proposals import Adapter
from stansub.kernels.surrogate import SurrogateTransition
from stansub.run.moments import Moments
from stansub.selection import Chosen
from stansub.target.laplace import Mode
from stansub.tuning.mode_setup import ModeSetup
from stansub.types import FloatArray


@dataclass(frozen=True)
class Plan:
    """How long a chain runs and what it keeps.

    Attributes
    ----------
    iter_warmup, iter_sampling : int
        Steps.
    thin : int
        Every ``thin``-th step is kept.
    audit : float
        Share of the sampling decisions decided again on all the data.
    save_warmup : bool
        Whether warmup steps are kept.
    levels : Falling or None
        How the error level of decisions falls after warmup; None where it stays.
    """

    iter_warmup: int
    iter_sampling: int
    thin: int
    audit: float
    save_warmup: bool
    levels: Falling | None = None


class Totals(dict[str, Any]):
    """Sums over all steps of a phase, or largest values, thinned-away ones included; what was never counted is 0.

    Besides the totals that the kernel's statistics declare there are ``n_steps`` and ``seconds``, audits left out.
    """

    def __missing__(self, name: str) -> int:
        return 0

    def add(self, counted: Mapping[str, float], largest: Mapping[str, float] | None = None) -> None:
        """Add what was counted, and take what was larger than before."""
        for name, value in counted.items():
            self[name] += value
        for name, value in (largest or {}).items():
            self[name] = max(self[name], value)


@dataclass
class Counted:
    """How far a phase is: its totals, and the rows that are kept so far."""

    n_kept: int = 0
    totals: Totals = field(default_factory=Totals)


@dataclass
class ChainState:
    """All that the further draws of a chain depend on, and what it has counted; its kept records stand beside it.

    Attributes
    ----------
    state : State
        Of the kernel.
    proposal
        The kernel's params: a proposal, or those of its parts by name.
    adapter : Adapter
    rng, audit_rng : Generator
    counters, counted_in_warmup : ndarray of int64, shape (4,)
        Steps, accepted, observations used and evaluated, as a kernel counts them; at the end of warmup.
    pause : int
        Steps of warmup after which the chain waits for the others; until then it remembers its draws. 0 for none.
    rest : int
        Steps of sampling after which the chain waits for the others; 0 for none.
    ended : bool
        Whether its draws have been found to be enough.
    remembered, accepted : list
        Draws since then, and shares accepted.
    trial_rng : Generator or None
        For the trial at the end of warmup.
    trial : Trial or None
        What it came to.
    warmup, sampling : Counted
    kernel
        What the kernel remembers (`Kernel.save`); None for one that stands at ``state`` and remembers nothing.
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
    warmup: Counted = field(default_factory=Counted)
    sampling: Counted = field(default_factory=Counted)
    kernel: Any = None


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What was settled before the first step, and what the run is of.

    Attributes
    ----------
    seed : int
    asked_rule, rule, guarantee, range_kind, found, transition, plan, trial, notes
        As in `stansub.run.prepare.Setup`.
    block_size : int
    evaluator : str
    model_hash, data_hash : str
        Of the program and the data.
    name, code : str
        The program, in its canonical form; empty for a posterior of functions.
    data_file : str
        Where the data are; empty where they were given.
    data : dict or None
        The data themselves, where no file holds them.
    data_source : str
        What messages call them.
    """

    seed: int
    asked_rule: StoppingRule
    rule: StoppingRule
    guarantee: str
    range_kind: str
    found: ModeSetup | None
    transition: SurrogateTransition | None
    plan: Plan
    trial: bool
    notes: dict[str, Chosen]
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
class Met:
    """What came of the meetings of chains so far.

    Attributes
    ----------
    found : ModeSetup
        What the chains continue with.
    test : StoppingRule
        Their test.
    about : Mode or Moments
        The normal approximation that proposals are about.
    moved_at : tuple of int
        Steps of warmup after which the expansion point moved.
    last : int
        Steps after which the chains have met last.
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
        All of them, as `stansub.run.config.SampleConfig.record` has them.
    values : dict
        Those that a file can hold.
    """

    record: dict[str, Any]
    values: dict[str, Any]
