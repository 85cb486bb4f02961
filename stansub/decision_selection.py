"""Choices of tests, first looks, blocks and audits with reasons, as values like those of `stansub.selection`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from stansub.selection import Chosen
from stansub.wording import rounded

# The test and its first look


@dataclass(frozen=True)
class LookTrial:
    """Trial decisions with a first look."""

    observed: float
    nominal: float
    """Share of the trial subsets whose |t| exceeded its critical value, and its expectation."""
    n_subsets: int
    wrong: float
    """Share of the trial decisions that were wrong."""
    n_decisions: int

    @property
    def clause(self) -> str:
        """Return it in a clause."""
        return (
            f"|t| beyond its critical value in {self.observed:.2g} of {self.n_subsets:,} trial subsets "
            f"({self.nominal:.2g} expected), {self.wrong:.2g} of {self.n_decisions:,} trial decisions wrong"
        )


class FirstLookFits(Chosen):
    """The first look (in blocks) with the shortest decisions, ``drawn`` blocks, at which means are nearly normal."""

    about = "first look"
    text = "{first} blocks, of {drawn:rounded} in a typical decision: {trial.clause}"
    first: int
    drawn: float
    trial: LookTrial


class FirstLookNotNormal(Chosen):
    """The first look with fewest wrong decisions, if means of remainders are not normal at any."""

    about = "first look"
    text = "{first} blocks, though means of remainders are not normal: {trial.clause}"
    first: int
    trial: LookTrial


class FirstLookUntried(Chosen):
    """The latest first look, because no trial was possible."""

    about = "first look"
    text = "as late as possible: no trial was possible"
    first: int


class FirstLookOfNoise(Chosen):
    """First look of a test that accounts for noise, with the error of ``n_estimates`` in standard errors, if any."""

    about = "first look"
    first: int
    n_estimates: int
    off: float | None

    def describe(self) -> str:
        if self.off is None:
            return f"{self.first} blocks: no trial was possible"
        return (
            f"{self.first} blocks: {self.n_estimates:,} trial estimates off by {self.off:.2f} standard errors (root "
            "mean square; 1 expected)"
        )


class TestTaken(Chosen):
    """A test that replaces another, because it gives ``gain`` times the effective draws per observation."""

    __test__ = False
    about = "test"
    text = "{test}, {gain:rounded} times the effective draws per observation of {instead_of}"
    test: str
    instead_of: str
    gain: float


class TestStays(Chosen):
    """A test that is kept, because another gains less than ``wanted``."""

    __test__ = False
    about = "test"
    text = (
        "{test}; {other}, which assumes more about subset means, would make {gain:rounded} times the effective draws "
        "per observation; stansub switches at {wanted:g} times"
    )
    test: str
    other: str
    gain: float
    wanted: float


class ExactTaken(Chosen):
    """Exact decisions, because bounds are proved and cost less than another test's minimum."""

    about = "test"
    text = (
        "{exact}, which is exact: bounds are known, and another test would draw at least {least:,} observations a "
        "decision"
    )
    exact: str
    least: int


class ExactOfFew(Chosen):
    """Exact decisions from all blocks, because there are few."""

    about = "test"
    n_blocks: int

    def describe(self) -> str:
        blocks = "one block" if self.n_blocks == 1 else f"{self.n_blocks} blocks"
        return f"exact: with {blocks} of observations, a test on some of them would save little"


class ExactOfSmall(Chosen):
    """Exact decisions from all observations, because there are few."""

    about = "test"
    text = "exact, from all {n_observations:,} observations, which are few: a test on some would save little"
    n_observations: int


class ExactByAll(Chosen):
    """Exact decisions from all observations, because an approximate test would save little."""

    about = "test"
    text = (
        "exact, from all observations: {instead_of}, which is approximate, would make only {gain:rounded} times the "
        "effective draws per observation"
    )
    instead_of: str
    gain: float
    """Ratio of the test's effective draws per observation to those of exact decisions."""


class ExactOfTransitions(Chosen):
    """Exact decisions of transitions from all observations."""

    about = "test"
    text = "exact, from all observations: {reason}"
    reason: str


class ExactAlong(Chosen):
    """Trajectories need no decisions besides their own, from all observations."""

    about = "test"
    text = "exact, from all observations: trajectories on the posterior itself take gradients of all of them"


class ExactWithoutVariates(Chosen):
    """Exact decisions from all observations, because there are no control variates."""

    about = "test"
    text = "exact, from all observations: without control variates, {instead_of} would read most of them"
    instead_of: str


class ExactWon(Chosen):
    """Exact decisions, because bounds are proved and give more effective draws for the data than another test."""

    about = "test"
    exact: str
    instead_of: str
    gain: float | None
    """Ratio of their effective draws to those of the other test; None if that made none."""

    def describe(self) -> str:
        text = f"{self.exact}, which is exact: bounds are known, and "
        if self.gain is None:
            return f"{text}{self.instead_of} made no effective draws around the mode"
        other = f"{self.instead_of}, which is approximate" if self.gain < 1 else self.instead_of
        return f"{text}it makes {rounded(self.gain)} times the effective draws per observation of {other}"


class ExactLost(Chosen):
    """Bounds are proved, but exact decisions give fewer effective draws for the data."""

    about = "bounds"
    exact: str
    test: str
    """The test used instead."""
    gain: float | None
    """Ratio of their effective draws to those of the test; None if not tried."""
    candidates: float
    """Expected number of observations that a decision would pick."""

    def describe(self) -> str:
        text = (
            f"known, but wide: an exact decision (`test='{self.exact}'`) would use about {rounded(self.candidates)} "
            "observations"
        )
        if self.gain is None:
            return text
        return f"{text}, which makes {rounded(self.gain)} times the effective draws per observation of {self.test}"


class KappaTaken(Chosen):
    """The kappa of joint decisions with the most effective draws for the data."""

    about = "kappa"
    kappa: float
    tried: tuple[float, ...]
    """The values tried."""

    def describe(self) -> str:
        tried = ", ".join(f"{kappa:g}" for kappa in self.tried)
        return f"{self.kappa:g}, which makes the most effective draws per observation among {tried}"


class JointTaken(Chosen):
    """Joint decisions, with ``gain`` times the effective draws of factorised ones (None if those made none)."""

    about = "joint decisions"
    gain: float | None

    def describe(self) -> str:
        if self.gain is None:
            return "factorised decisions made no effective draws around the mode"
        return f"{rounded(self.gain)} times the effective draws per observation of factorised decisions"


class NoBounds(Chosen):
    """There are no proved bounds on the remainders of control variates, with the reason."""

    about = "bounds"
    text = "none for exact decisions: {reason}"
    reason: str


# Blocks and audits


class BlockReason(StrEnum):
    """Reason for the size of blocks."""

    GIVEN = "given"
    EXACT = "exact"
    CONTROL_VARIATES = "control variates"
    RANGE = "range"
    SPEED = "speed"
    SINGLE = "single observations"


_BLOCK_REASONS = {
    BlockReason.GIVEN: "as given",
    BlockReason.EXACT: "exact decisions use all blocks",
    BlockReason.CONTROL_VARIATES: "with control variates the blocks per decision hardly depend on their size",
    BlockReason.RANGE: "the range of a block's sum grows with its size",
    BlockReason.SINGLE: "for the proof and the search for modes; decisions use single observations",
    BlockReason.SPEED: "adjacent observations are read several times faster than single ones",
}


class BlockSize(Chosen):
    """Observations per block."""

    about = "blocks"
    size: int
    reason: BlockReason

    def describe(self) -> str:
        return f"{self.size:,} observation{'s' if self.size > 1 else ''} each: {_BLOCK_REASONS[self.reason]}"


class ErrorAudited(Chosen, kw_only=True):
    """The error that the user accepts, and audits that can check it."""

    about = "max error"
    max_error: float
    n_audits: int
    n_passes: int | None = None
    """Maximum passes over the data that the audits take, if more than usual."""
    per_look: float | None = None
    """Error level of each look, if the test has one."""

    def describe(self) -> str:
        passes = f", at most {self.n_passes:,} passes over the data," if self.n_passes is not None else ""
        text = f"{self.max_error:g}: {self.n_audits:,} audits{passes} can verify it with 95 % confidence"
        return text + _per_look(self.per_look)


class ErrorNotAudited(Chosen, kw_only=True):
    """An error that the audits cannot check."""

    about = "max error"
    max_error: float
    n_needed: int
    """Audits needed."""
    n_audits: int | None
    """Audits made; None if there are fewer decisions than needed."""
    n_passes: int
    """Passes over the data that the audits would take."""
    share: float
    """Share of the decisions that would have to be audited."""
    per_look: float | None = None
    """Error level of each look, if the test has one."""

    def describe(self) -> str:
        takes = f"verifying it with 95 % confidence takes {self.n_needed:,}"
        if self.n_audits is None:
            text = f"{self.max_error:g}: {takes} audits, more than there are decisions"
        else:
            text = (
                f"{self.max_error:g}: {self.n_audits:,} audits cannot verify it; {takes}, {self.n_passes:,} passes "
                f"over the data: `audit={self.share:.2g}`"
            )
        return text + _per_look(self.per_look)


def _per_look(epsilon: float | None) -> str:
    return f", with epsilon = {epsilon:.2g} at each look" if epsilon is not None else ""
