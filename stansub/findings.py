"""What speaks against draws, as values: one type for each kind of finding, with the figures it rests on.

The checks that make them are in `stansub.output.checks`; `stansub.output.words` puts them into sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar


class Severity(IntEnum):
    """How much a finding weighs."""

    COST = 1
    """The draws are right, and could have been had for less."""
    DOUBT = 2
    """The draws may be wrong or imprecise."""
    REJECT = 3
    """The draws must not be used."""


@dataclass(frozen=True)
class Finding:
    """Something that speaks against draws."""

    severity: ClassVar[Severity] = Severity.DOUBT


@dataclass(frozen=True)
class Audit:
    """Decisions taken again on all data.

    Attributes
    ----------
    n_audited, n_wrong : int
        Decisions audited, and those among them that all the data reverse.
    low, high : float
        Clopper-Pearson 95 % interval of the share of wrong decisions.
    """

    n_audited: int
    n_wrong: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        """Share of wrong decisions among the audited ones."""
        return self.n_wrong / self.n_audited


SQUARE_ABOVE = 1.1
"""Mean square from which standardised errors are larger than their standard errors account for."""


@dataclass(frozen=True)
class Estimates:
    """Log ratios that were decided upon with their noise, compared with those of all data.

    Attributes
    ----------
    n_audited : int
        Estimates audited.
    mean_square : float
        Of their standardised errors; 1 is expected.
    low : float
        Lower 99 % confidence limit of it, for normal errors.
    """

    n_audited: int
    mean_square: float
    low: float

    @property
    def fails(self) -> bool:
        """Whether the errors are larger than their standard errors say, by more than is tolerated."""
        return self.low > SQUARE_ABOVE


@dataclass(frozen=True)
class Acceptances:
    """Acceptance probabilities by learned bounds, compared with those of all data.

    Attributes
    ----------
    n_audited : int
    mean : float
        By which they are too large, on average.
    limit : float
        Upper limit of this with 95 % confidence, of an interval with as much on either side.
    """

    n_audited: int
    mean: float
    limit: float


@dataclass(frozen=True)
class ErrorLevel:
    """The decision error that the user accepted.

    Attributes
    ----------
    option : str
        Name of the option that sets it.
    value : float or None
        None where none is known.
    """

    option: str
    value: float | None


@dataclass(frozen=True)
class Quantities:
    """Quantities that fail a check.

    Attributes
    ----------
    n_failing, n_checked : int
    worst : tuple of (str, float)
        Name and value of the worst few, the worst first.
    """

    n_failing: int
    n_checked: int
    worst: tuple[tuple[str, float], ...]


# Modes


@dataclass(frozen=True)
class MissedMode(Finding):
    """A mode that no chain visited.

    Attributes
    ----------
    share : float
        Of the evidence, by Laplace approximations.
    log_density : float
    above : float
        By how much that is higher than the highest mode that was visited; nan where none was.
    values : dict of str to list of float
        Of the parameters that differ most: the value there, and the smallest and largest of the draws.
    """

    severity = Severity.REJECT
    share: float
    log_density: float
    above: float
    values: Mapping[str, list[float]]


@dataclass(frozen=True)
class ModesUnchecked(Finding):
    """The search for modes after sampling failed."""

    reason: str


@dataclass(frozen=True)
class LabelsSwitch(Finding):
    """Elements of these parameters can change places without changing the posterior."""

    names: tuple[str, ...]


# The run


@dataclass(frozen=True)
class Stopped(Finding):
    """The run ended before its last iteration: "interrupted", "max_time", or what failed."""

    reason: str


@dataclass(frozen=True)
class NotPreciseEnough(Finding):
    """The run came to its last iteration before its draws were as precise as it was to make them.

    Attributes
    ----------
    asked : str
        As in ``ess=400,rhat=1.01``.
    quantity : str
        One that is not so precise; empty where nothing has moved.
    ess : float
    r_hat : float or None
        None for one chain.
    """

    asked: str
    quantity: str
    ess: float
    r_hat: float | None


@dataclass(frozen=True)
class LeftOut(Finding):
    """Generated quantities could not be computed; a clause says which and why."""

    what: str


@dataclass(frozen=True)
class StuckChain(Finding):
    """A chain (counted from 1) that accepted next to nothing or never moved.

    Attributes
    ----------
    n_accepted, n_steps : int or None
        None where the draws do not record them.
    of_nuts : bool
        Whether NUTS made the draws.
    """

    chain: int
    n_accepted: int | None
    n_steps: int | None
    of_nuts: bool


@dataclass(frozen=True)
class Divergences(Finding):
    """Divergent iterations of NUTS (Betancourt 2017, section 6.2)."""

    n: int
    adapt_delta: float


@dataclass(frozen=True)
class TreesCutShort(Finding):
    """Iterations of NUTS that reached the largest tree depth."""

    n: int
    max_treedepth: int


# Convergence and precision


@dataclass(frozen=True)
class OneChain(Finding):
    """There is no second chain to compare with."""


@dataclass(frozen=True)
class HighRHat(Finding):
    """R-hat is above ``limit``.

    Attributes
    ----------
    limit : float
    quantities : Quantities
    many : bool
        Whether there are so many parameters that they may be effects, which surrogate transitions are for.
    """

    limit: float
    quantities: Quantities
    many: bool = False


@dataclass(frozen=True)
class NotFinite(Finding):
    """Quantities with draws that are not finite; the first few names."""

    n: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class TooFewDraws(Finding):
    """Too few draws a chain for R-hat and ESS."""

    n_draws: int


@dataclass(frozen=True)
class LowEss(Finding):
    """The smaller of bulk and tail ESS is below ``wanted``.

    Attributes
    ----------
    wanted, per_chain : int
        Effective draws of all chains, and of each.
    quantities : Quantities
    iterations : int or None
        That would do at this rate; None while the chains do not agree, since nothing tells then.
    """

    wanted: int
    per_chain: int
    quantities: Quantities
    iterations: int | None


# Decisions


@dataclass(frozen=True)
class NoAudit(Finding):
    """No decision was audited, though that was asked for or not."""

    asked_for: bool


@dataclass(frozen=True)
class TooFewAudits(Finding):
    """Audits that leave a larger error possible than is tolerated.

    Attributes
    ----------
    n_audited : int
    level : ErrorLevel
    limit : float
        What the error of a decision is at most, with 95 % confidence.
    """

    n_audited: int
    level: ErrorLevel
    limit: float


@dataclass(frozen=True)
class WrongDecisions(Finding):
    """More audited decisions were wrong than the test allows.

    Attributes
    ----------
    audit : Audit
    level : ErrorLevel
        Its value is 0 for an exact test.
    test : str
    own_test : bool
        Whether the test is not of this package.
    bound : bool
        Whether it is a concentration bound.
    per_look : bool
        Whether the level is that of a single look.
    """

    audit: Audit
    level: ErrorLevel
    test: str
    own_test: bool
    bound: bool
    per_look: bool


@dataclass(frozen=True)
class NoiseUnderestimated(Finding):
    """Estimated log ratios are further off than the noise that the test counts in."""

    estimates: Estimates
    test: str


@dataclass(frozen=True)
class NoiseTooLarge(Finding):
    """The noise of this share of the decisions was too large for the test."""

    share: float
    test: str


@dataclass(frozen=True)
class HeavyTail:
    """|t| of random subsets is beyond its critical value more often than Student's t.

    Attributes
    ----------
    blocks : int
        Size of the subsets.
    observed, low, high, nominal : float
        Share of the subsets with its 95 % interval, and that of Student's t.
    undefined : float
        Share of the subsets whose differences are all equal.
    """

    blocks: int
    observed: float
    low: float
    high: float
    nominal: float
    undefined: float


@dataclass(frozen=True)
class LevelAudit:
    """Audited decisions of a part of a run in which the error level fell from ``first`` to ``last``.

    Attributes
    ----------
    first, last : float
    n_audited, n_wrong : int
    expected : float
        Wrong decisions to be expected at most: the sum of the levels of the audited ones.
    """

    first: float
    last: float
    n_audited: int
    n_wrong: int
    expected: float


@dataclass(frozen=True)
class WrongAtTheirLevel(Finding):
    """More audited decisions were wrong than their own error level allows, in some parts of a run where it fell."""

    parts: tuple[LevelAudit, ...]
    test: str


@dataclass(frozen=True)
class TrialDecisionsWrong:
    """Simulated decisions go the wrong way more often than the test promises: share, its 95 % interval, promise."""

    wrong: float
    low: float
    high: float
    promised: float


@dataclass(frozen=True)
class NormalityFails(Finding):
    """A t-test cannot be trusted on these data."""

    reasons: tuple[HeavyTail | TrialDecisionsWrong, ...]


@dataclass(frozen=True)
class VoidGuarantee(Finding):
    """The guarantee of a bound is void, since the range of what it averages is not known."""

    reason: str


@dataclass(frozen=True)
class RangeViolated(Finding):
    """Decisions in which observations differed by more than the range given for them."""

    n: int
    n_steps: int


@dataclass(frozen=True)
class BoundsTooSmall(Finding):
    """Remainders beyond their learned bounds may change acceptance probabilities by more than is tolerated.

    Attributes
    ----------
    acceptances : Acceptances
    accepted : float
        What is tolerated.
    n_violated : int
        Decisions that met such a remainder.
    """

    acceptances: Acceptances
    accepted: float
    n_violated: int


# Efficiency


@dataclass(frozen=True)
class ShortSteps(Finding):
    """A random walk whose proposals are accepted too often."""

    severity = Severity.COST
    acceptance_rate: float


@dataclass(frozen=True)
class NonfiniteProposals(Finding):
    """Share of the proposals whose log density was not a number."""

    share: float


@dataclass(frozen=True)
class NothingSaved(Finding):
    """Decisions used nearly all the data, of which this share on average."""

    severity = Severity.COST
    share_of_data: float


# Comparisons, and checks that failed


@dataclass(frozen=True)
class Unrecorded(Finding):
    """Whether two sets of draws are of one posterior is not known, for these reasons."""

    reasons: tuple[str, ...]


@dataclass(frozen=True)
class NotChecked(Finding):
    """The draws could not be checked."""

    reason: str
