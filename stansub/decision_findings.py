"""Findings about decisions and their cost, as values like those of `stansub.findings`."""

from __future__ import annotations

from dataclasses import dataclass

from stansub.findings import Acceptances, Audit, ErrorLevel, Estimates, Finding, Severity, Words
from stansub.wording import percent


class NoAudit(Finding):
    """No decision was audited, requested or not."""

    asked_for: bool

    def describe(self) -> Words:
        return Words(
            "No decision was audited, so the share of wrong decisions is unknown.",
            "Raise `audit` or `iter_sampling`."
            if self.asked_for
            else "Run with `audit=0.01`, which repeats one decision in a hundred on all the data.",
        )


class TooFewAudits(Finding):
    """Too few audits to exclude an error larger than tolerated."""

    n_audited: int
    level: ErrorLevel
    limit: float
    """Upper limit of the error of a decision, with 95 % confidence."""

    def describe(self) -> Words:
        level = self.level
        wanted = "how many are wrong"
        if level.value is not None:
            wanted = f"whether their error is below {level.option} = {level.value:g}"
        return Words(
            f"Too few decisions were audited ({self.n_audited:,}) to tell {wanted}: the error may be as large as "
            f"{percent(self.limit)}.",
            "Raise `audit` or `iter_sampling`.",
        )


class WrongDecisions(Finding):
    """More audited decisions were wrong than the test allows."""

    audit: Audit
    level: ErrorLevel
    """Its value is 0 for an exact test."""
    test: str
    own_test: bool
    """Whether the test is custom."""
    bound: bool
    """Whether it is a concentration bound."""
    per_look: bool
    """Whether the level is that of a single look."""

    def describe(self) -> Words:
        audit, level = self.audit, self.level
        return Words(
            f"{audit.n_wrong:,} of {audit.n_audited:,} audited decisions were wrong: {percent(audit.rate)} "
            f"({percent(audit.low)} to {percent(audit.high)} with 95 % confidence), {self._allowed()}.",
            "Please report this as a bug in stansub." if level.value == 0 else self._fewer_wrong(),
        )

    def _allowed(self) -> str:
        """Return how the observed error compares with the level of the test, in a clause."""
        option, value = self.level.option, self.level.value
        if value is None:
            return f"and the test {self.test} declares no error level"
        if value == 0:
            return "and an exact test makes none"
        if self.per_look:
            return f"more than {option} = {value:g}, the level of a single look"
        return f"more than {option} = {value:g} allows"

    def _fewer_wrong(self) -> str:
        remedy = f"Lower `{self.level.option}`, or use `test='exact'`. These draws may be biased."
        if self.own_test:
            remedy = "Make the test stricter, or use `test='exact'`. These draws may be biased."
        elif self.bound:
            remedy = (
                "Check the range constants of the program (`range_source='scan'` needs none), or use `test='exact'`."
            )
        return (
            remedy
            if self.level.value is not None
            else f"Declare the accepted error as the attribute epsilon of the test. {remedy}"
        )


class NoiseUnderestimated(Finding):
    """Estimated log ratios are further off than the noise that the test accounts for."""

    text = (
        "{estimates.clause}: the {test} test underestimates the noise, because means of so few blocks are not normal."
    )
    remedy = "Raise `first_look`, or use `test='pocock'` or `test='exact'`. These draws may be biased."
    estimates: Estimates
    test: str


class NoiseTooLarge(Finding):
    """The noise of this share of the decisions was too large for the test."""

    text = (
        "The noise of {share:percent} of the decisions was too large for the {test} test: pocock took these decisions."
    )
    remedy = "Use `test='pocock'`, or reduce the noise with control variates (`control_variates=2`)."
    share: float
    test: str


@dataclass(frozen=True)
class HeavyTail:
    """|t| of random subsets exceeds its critical value more often than Student's t."""

    blocks: int
    """Size of the subsets."""
    observed: float
    low: float
    high: float
    nominal: float
    """Share of the subsets with its 95 % interval, and that of Student's t."""
    undefined: float
    """Share of the subsets whose differences are all equal."""

    @property
    def clause(self) -> str:
        text = (
            f"|t| is beyond its critical value in {percent(self.observed)} of random subsets of "
            f"{self.blocks:,} blocks ({percent(self.low)} to {percent(self.high)} with 95 % confidence); "
            f"normal means give {percent(self.nominal)}"
        )
        if self.undefined:
            text += f"; in {percent(self.undefined)} of them all blocks are equal, so that no decision is possible"
        return text


@dataclass(frozen=True)
class LevelAudit:
    """Audited decisions of a part of a run in which the error level decreased from ``first`` to ``last``."""

    first: float
    last: float
    n_audited: int
    n_wrong: int
    expected: float
    """Maximum expected number of wrong decisions: the sum of the levels of the audited ones."""


class WrongAtTheirLevel(Finding):
    """More audited decisions were wrong than their own error level allows, in parts of a run with decreasing level."""

    parts: tuple[LevelAudit, ...]

    def describe(self) -> Words:
        parts = (
            f"{one.n_wrong:,} of {one.n_audited:,} while the level fell from {one.first:.2g} to {one.last:.2g} "
            f"(at most {one.expected:.1f} expected)"
            for one in self.parts
        )
        return Words(
            f"More audited decisions were wrong than their level allows: {'; '.join(parts)}.",
            "Begin and end with a lower level (`epsilon`, `final_epsilon`), or use `test='exact'`. These draws may be "
            "biased.",
        )


@dataclass(frozen=True)
class TrialDecisionsWrong:
    """Simulated decisions are wrong more often than the test promises: share, its 95 % interval, promise."""

    wrong: float
    low: float
    high: float
    promised: float

    @property
    def clause(self) -> str:
        return (
            f"{percent(self.wrong)} of simulated decisions go the wrong way ({percent(self.low)} to "
            f"{percent(self.high)} with 95 % confidence); the test promises at most {percent(self.promised)}"
        )


class NormalityFails(Finding):
    """A t-test cannot be trusted on these data."""

    reasons: tuple[HeavyTail | TrialDecisionsWrong, ...]

    def describe(self) -> Words:
        return Words(
            f"The t-test cannot be trusted on these data: {'; and '.join(one.clause for one in self.reasons)}.",
            "Run `stansub diagnose` on the same program and data to find larger blocks or a later first look that "
            "work. `test='bernstein-serfling'` and `test='exact'` do not assume normal means.",
        )


class VoidGuarantee(Finding):
    """The guarantee of a bound is void, because the range of its differences is unknown."""

    reason: str

    def describe(self) -> Words:
        return Words(
            f"The bound's guarantee is void ({self.reason or 'no reason recorded'}).",
            "Add a function log_lik_third_derivative_i, log_lik_lipschitz_i or log_lik_range to the program, or "
            "compute the range by a full scan (`range_source='scan'`).",
        )


class RangeViolated(Finding):
    """Decisions in which observations differed by more than the given range."""

    text = (
        "In {n:,} of {n_steps:,} decisions the observations differed by more than their declared range: the bound does "
        "not hold there."
    )
    remedy = "Correct the range constants of the program: they must hold for every observation."
    n: int
    n_steps: int


class BoundsTooSmall(Finding):
    """Remainders beyond their learned bounds may change acceptance probabilities by more than tolerated."""

    acceptances: Acceptances
    accepted: float
    """Tolerated error."""
    n_violated: int
    """Decisions with such a remainder."""

    def describe(self) -> Words:
        acceptances = self.acceptances
        return Words(
            f"The learned bounds may be too small: {acceptances.clause}, more than the "
            f"{percent(self.accepted)} accepted (`max_error`); {self.n_violated:,} decisions used a block beyond its "
            "bound.",
            "Use `test='pocock'` or `test='exact'`. These draws may be biased."
            if acceptances.mean > self.accepted
            else "Raise `audit` or `iter_sampling` to audit more decisions, or use `test='pocock'`.",
        )


# Efficiency


class ShortSteps(Finding):
    """A random walk whose proposals are accepted too often."""

    severity = Severity.COST
    text = "{acceptance_rate:percent} of the proposals were accepted: the steps are too short to explore well."
    remedy = "Raise `iter_warmup`, so that the proposal scale can adapt."
    acceptance_rate: float


class NonfiniteProposals(Finding):
    """Share of the proposals with a log density of NaN."""

    text = "{share:percent} of the proposals were rejected because the log density was not a number."
    remedy = "Check the constraints declared in the program: parameters may leave the support."
    share: float


class LittleSaved(Finding):
    """Decisions used most of the data."""

    severity = Severity.COST
    share_of_data: float
    """Mean share that a decision used."""
    exact_instead: bool
    """Whether exact decisions would cost the same as those of the run, which are approximate."""
    of_functions: bool = False
    """Whether the posterior is one of functions, which NUTS cannot sample."""

    def describe(self) -> Words:
        nuts = "Use NUTS if it is faster (`stansub compare` measures both)"
        exact = ", or `test='exact'`, which costs the same as this test and makes no decision error"
        remedy = f"{nuts}{exact if self.exact_instead else ''}."
        return Words(
            f"A decision used {percent(self.share_of_data)} of the data on average: subsampling saved little.",
            "Use `test='exact'` if it is faster." if self.of_functions else remedy,
        )
