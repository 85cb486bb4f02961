"""What was chosen for a run, and why, as values: one type for each kind of choice, with the figures it rests on.

`stansub.output.words` puts them into sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, ClassVar


@dataclass(frozen=True)
class Chosen:
    """Something that was chosen."""

    about: ClassVar[str]
    """What it is a choice of; the last choice of a thing stands."""

    def record(self) -> dict[str, Any]:
        """As it stands in the output: plain values, and the kind by name."""
        return {"kind": type(self).__name__, **asdict(self)}


Choices = Mapping[str, Chosen]
"""Choices by what they are about, in the order in which they were made."""


def updated(before: Choices, *chosen: Chosen) -> dict[str, Chosen]:
    """The choices made before, with these in the place of those about the same."""
    return {**before, **{one.about: one for one in chosen}}


# The mode


@dataclass(frozen=True)
class ModesFound(Chosen):
    """What the search for modes came to.

    Attributes
    ----------
    log_density : float
        At the mode with most evidence.
    n_reached, n_starts : int
        Starts that ended there, of all.
    shares : tuple of float
        Of the evidence, of the modes that may hold a share of the posterior.
    interchangeable : tuple of str
        Parameters whose labels switch between modes.
    below : tuple of float
        By how much the log densities of modes with negligible evidence are lower.
    n_passes, seconds : float
    """

    about = "mode"
    log_density: float
    n_reached: int
    n_starts: int
    shares: tuple[float, ...]
    interchangeable: tuple[str, ...]
    below: tuple[float, ...]
    n_passes: float
    seconds: float


@dataclass(frozen=True)
class SurrogateSettled(Chosen):
    """An expansion of the likelihood to sample from.

    Attributes
    ----------
    noise : float
        Standard deviation of what it leaves out.
    n_passes : int
        Evaluations of all observations to find it.
    """

    about = "surrogate"
    noise: float
    n_passes: int


@dataclass(frozen=True)
class TransitionsTaken(Chosen):
    """Surrogate transitions.

    Attributes
    ----------
    asked : bool
        Whether the user named them.
    effects : tuple of str
        Parameters that are effects with an unknown scale.
    n_parameters : int
    normal : float or None
        Share of normal moves that would be accepted on the surrogate; None where that was not tried.
    accepted : float
        Share of the transitions tried that were accepted.
    hardly_moves : bool
        Whether these are so few that the chains will not mix.
    """

    about = "proposal"
    asked: bool
    effects: tuple[str, ...]
    n_parameters: int
    normal: float | None
    accepted: float
    hardly_moves: bool


@dataclass(frozen=True)
class TransitionsLeft(Chosen):
    """No surrogate transitions, though there are effects with an unknown scale.

    Attributes
    ----------
    effects : tuple of str
        Their names.
    n_parameters : int
        About.
    hardly_moves : bool
        Whether other moves will not mix, for there are many parameters.
    reason : str
        Why there is no surrogate; empty where there is one.
    normal : float or None
        Share of normal moves that would be accepted on the surrogate, where that is why.
    accepted : float or None
        Share of the transitions tried that were accepted, where that is why.
    """

    about = "surrogate transitions"
    effects: tuple[str, ...]
    n_parameters: int
    hardly_moves: bool = False
    reason: str = ""
    normal: float | None = None
    accepted: float | None = None


# Control variates


@dataclass(frozen=True)
class TooLarge:
    """An order whose coefficients would take too much memory, in bytes."""

    order: int
    memory: int


@dataclass(frozen=True)
class VariatesByCost(Chosen):
    """The order of control variates with which set-up and decisions together cost least.

    Attributes
    ----------
    order : int
    blocks : tuple of float
        Blocks that a decision needs with none, with order 1 and with order 2.
    n_blocks : int
    memory : int
        Bytes; 0 with none.
    seconds : float
        That making them takes, about.
    far_from_quadratic : bool
        Whether no order helps, since the log likelihood is far from quadratic within the posterior.
    too_large : tuple of TooLarge
    memory_allowed : int
    """

    about = "control variates"
    order: int
    blocks: tuple[float, float, float]
    n_blocks: int
    memory: int
    seconds: float
    far_from_quadratic: bool
    too_large: tuple[TooLarge, ...]
    memory_allowed: int


@dataclass(frozen=True)
class VariatesAsAsked(Chosen):
    """The user named the order; or, with a function, a function of the program bounds what this order leaves."""

    about = "control variates"
    order: int
    function: str = ""


@dataclass(frozen=True)
class VariatesForBounds(Chosen):
    """The test needs bounds on what control variates of this order leave: proved ones, or learned from some draws.

    Attributes
    ----------
    order : int
    n_draws : int
        That bounds were learned from; 0 where they are proved.
    function : str
        Of the program, which gives the bounds; empty where they follow from linear predictors.
    """

    about = "control variates"
    order: int
    n_draws: int = 0
    function: str = ""


@dataclass(frozen=True)
class RangeByPredictors(Chosen):
    """The range of a concentration bound follows from proved bounds on what control variates leave.

    Attributes
    ----------
    asked : bool
        Whether the user named this source; otherwise no function of the program gives the range.
    """

    about = "range"
    asked: bool


@dataclass(frozen=True)
class VariatesOfObservations(Chosen):
    """Each observation has its own, with proved bounds on what they leave.

    Attributes
    ----------
    order : {2, 3}
    candidates : float
        Observations that a decision is expected to pick, of `n_observations`.
    """

    about = "control variates"
    order: int
    candidates: float
    n_observations: int


@dataclass(frozen=True)
class NoVariatesForTest(Chosen):
    """The test looks at the differences themselves."""

    about = "control variates"
    test: str


@dataclass(frozen=True)
class NoVariatesWithoutMode(Chosen):
    """There is no mode to expand about."""

    about = "control variates"
    reason: str


@dataclass(frozen=True)
class VariatesMoved(Chosen):
    """The order at a new expansion point, with the blocks that a decision needs there with none, order 1 and 2."""

    about = "control variates"
    order: int
    blocks: tuple[float, float, float]
    n_blocks: int


@dataclass(frozen=True)
class VariatesGivenUp(Chosen):
    """After so many steps of warmup decisions need fewer blocks without."""

    about = "control variates"
    n_steps: int
    blocks_with: float
    blocks_without: float
    n_blocks: int


# The expansion point of the control variates, which chains look at when they meet after `n_steps` of warmup


@dataclass(frozen=True)
class ExpansionPoint(Chosen):
    """What came of a meeting of the chains."""

    about = "expansion point"
    n_steps: int


@dataclass(frozen=True)
class KeptForFewDraws(ExpansionPoint):
    """Too few different draws to tell."""


@dataclass(frozen=True)
class KeptSinceNear(ExpansionPoint):
    """The mean of the chains is ``distance`` sds from it, and their sds are alike."""

    distance: float


@dataclass(frozen=True)
class KeptSinceApart(ExpansionPoint):
    """The chains are far apart with lower density between them."""


@dataclass(frozen=True)
class KeptSinceUndefined(ExpansionPoint):
    """Derivatives are not defined at the mean of the chains."""

    distance: float
    error: str


@dataclass(frozen=True)
class KeptForCost(ExpansionPoint):
    """Another point saves too little: blocks that a decision needs, and would need (None: with no order) there."""

    distance: float
    blocks: float
    blocks_there: float | None
    n_blocks: int


@dataclass(frozen=True)
class Moved(ExpansionPoint):
    """Moved to the mean of the chains, as after ``earlier`` steps: blocks that a decision needs, and needed."""

    distance: float
    earlier: tuple[int, ...]
    blocks: float
    blocks_before: float
    n_blocks: int


@dataclass(frozen=True)
class GivenUp(ExpansionPoint):
    """Control variates do not pay."""


# The proposal


@dataclass(frozen=True)
class Rival:
    """Another proposal in a race, and how many times its effective draws per observation the winner made."""

    name: str
    factor: float


@dataclass(frozen=True)
class RaceOutcome:
    """The winner of a race, the share of its moves that were accepted, and the rivals that it is compared with."""

    winner: str
    accepted: float
    rivals: tuple[Rival, ...]


@dataclass(frozen=True)
class RaceWon(Chosen):
    """The winner of a race, mixed with a random-walk step in so many."""

    about = "proposal"
    race: RaceOutcome
    walk_every: int


@dataclass(frozen=True)
class ProposalStays(Chosen):
    """The present proposal won against others about the pooled moments."""

    about = "proposal"
    race: RaceOutcome


@dataclass(frozen=True)
class WalkWon(Chosen):
    """A random walk won, whose scale is learned."""

    about = "proposal"
    race: RaceOutcome


@dataclass(frozen=True)
class WalkSinceFewAccepted(Chosen):
    """Adaptive Metropolis: too few independent draws from the Laplace approximation were accepted."""

    about = "proposal"
    accepted: float


@dataclass(frozen=True)
class BetweenModes(Chosen):
    """Independent draws from the Laplace approximations of several modes, and random-walk steps about each."""

    about = "proposal"
    n_modes: int


@dataclass(frozen=True)
class MiniBatchGradients(Chosen):
    """Langevin moves with gradients of some blocks a step, with control variates or without."""

    about = "proposal"
    n_drawn: int
    n_blocks: int
    control_variates: bool


# The test and its first look


@dataclass(frozen=True)
class LookTrial:
    """Trial decisions with a first look.

    Attributes
    ----------
    observed, nominal : float
        Share of the trial subsets whose |t| was beyond its critical value, and what is expected.
    n_subsets : int
    wrong : float
        Share of the trial decisions that were wrong.
    n_decisions : int
    """

    observed: float
    nominal: float
    n_subsets: int
    wrong: float
    n_decisions: int


@dataclass(frozen=True)
class FirstLookFits(Chosen):
    """The first look (in blocks) with the shortest decisions, of ``drawn`` blocks, at which means are near normal."""

    about = "first look"
    first: int
    drawn: float
    trial: LookTrial


@dataclass(frozen=True)
class FirstLookNotNormal(Chosen):
    """The first look with fewest wrong decisions, where means of remainders are not normal at any."""

    about = "first look"
    first: int
    trial: LookTrial


@dataclass(frozen=True)
class FirstLookUntried(Chosen):
    """The latest first look, since nothing could be tried."""

    about = "first look"
    first: int


@dataclass(frozen=True)
class FirstLookOfNoise(Chosen):
    """Of a test that counts noise in: how far ``n_estimates`` were off, in standard errors (None without any)."""

    about = "first look"
    first: int
    n_estimates: int
    off: float | None


@dataclass(frozen=True)
class TestTaken(Chosen):
    """A test taken in place of another, since it makes ``gain`` times the effective draws per observation."""

    __test__ = False
    about = "test"
    test: str
    instead_of: str
    gain: float


@dataclass(frozen=True)
class TestStays(Chosen):
    """A test that stays, since another gains less than ``wanted``."""

    __test__ = False
    about = "test"
    test: str
    other: str
    gain: float
    wanted: float


@dataclass(frozen=True)
class ExactTaken(Chosen):
    """Bounds are proved, and decisions with them cost less than those of another test, which draws so many observations
    at the least.

    Attributes
    ----------
    exact : str
        The test that takes them.
    least : int
    """

    about = "test"
    exact: str
    least: int


@dataclass(frozen=True)
class ExactWon(Chosen):
    """Bounds are proved, and decisions with them make more effective draws for the data they use than another test.

    Attributes
    ----------
    exact : str
        The test that takes them.
    instead_of : str
    gain : float or None
        How many times its effective draws they make; None where it made none.
    """

    about = "test"
    exact: str
    instead_of: str
    gain: float | None


@dataclass(frozen=True)
class ExactLost(Chosen):
    """Bounds are proved, and decisions with them make fewer effective draws for the data they use.

    Attributes
    ----------
    exact : str
        The test that takes them.
    test : str
        That is taken.
    gain : float or None
        How many times its effective draws they would make; None where that was not tried.
    candidates : float
        Observations that a decision would be expected to pick.
    """

    about = "bounds"
    exact: str
    test: str
    gain: float | None
    candidates: float


@dataclass(frozen=True)
class KappaTaken(Chosen):
    """The kappa of joint decisions that makes most effective draws for the data it uses.

    Attributes
    ----------
    kappa : float
    tried : tuple of float
        Of these.
    """

    about = "kappa"
    kappa: float
    tried: tuple[float, ...]


@dataclass(frozen=True)
class JointTaken(Chosen):
    """Joint decisions make ``gain`` times the effective draws of factorised ones for the data they use; None where
    these made none."""

    about = "joint decisions"
    gain: float | None


@dataclass(frozen=True)
class NoBounds(Chosen):
    """There are no proved bounds on what control variates leave, for such a reason."""

    about = "bounds"
    reason: str


# Blocks and audits


class BlockReason(StrEnum):
    """Why blocks have the size they have."""

    GIVEN = "given"
    EXACT = "exact"
    CONTROL_VARIATES = "control variates"
    RANGE = "range"
    SPEED = "speed"
    SINGLE = "single observations"


@dataclass(frozen=True)
class BlockSize(Chosen):
    """Observations a block."""

    about = "blocks"
    size: int
    reason: BlockReason


@dataclass(frozen=True, kw_only=True)
class ErrorAudited(Chosen):
    """The error that the user accepts, and the audits that tell whether it is kept.

    Attributes
    ----------
    max_error : float
    n_audits : int
    n_passes : int or None
        Passes over the data that they take at most, where they are more than usual.
    per_look : float or None
        Error level of each look, where the test has one.
    """

    about = "max error"
    max_error: float
    n_audits: int
    n_passes: int | None = None
    per_look: float | None = None


@dataclass(frozen=True, kw_only=True)
class ErrorNotAudited(Chosen):
    """An error that the audits cannot tell.

    Attributes
    ----------
    max_error : float
    n_needed : int
        Audits that it would take.
    n_audits : int or None
        Those that are made; None where there are fewer decisions than are needed.
    n_passes : int
        Passes over the data that it would take.
    share : float
        Of the decisions that would have to be audited.
    per_look : float or None
        Error level of each look, where the test has one.
    """

    about = "max error"
    max_error: float
    n_needed: int
    n_audits: int | None
    n_passes: int
    share: float
    per_look: float | None = None
