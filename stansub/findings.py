"""Findings: reasons to distrust draws, as values with their figures and their text.

The checks in `stansub.output.checks` create them. Findings on decisions and their cost are in
`stansub.decision_findings`, those on modes in `stansub.mode_findings`. Texts name options as in Python, between
backticks: `max_error`, `iter_sampling=2000`. The command line shows them as flags.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, NamedTuple

from stansub.wording import (
    BY_NUTS,
    SelfDescribing,
    declare,
    declare_or_nuts,
    duration,
    filled,
    listed,
    percent,
    same_with_signs,
    sentence,
)


class Severity(IntEnum):
    """Severity of a finding."""

    NOTE = 0
    """The draws are right; the reader should know how to read them."""
    COST = 1
    """The draws are right, and could have been had for less."""
    DOUBT = 2
    """The draws may be wrong or imprecise."""
    REJECT = 3
    """The draws must not be used."""


class Words(NamedTuple):
    """Text of a finding and its remedy."""

    text: str
    remedy: str

    @property
    def line(self) -> str:
        """Return text and remedy in one line."""
        return f"{self.text} {self.remedy}"


class Finding(SelfDescribing):
    """A reason to distrust draws, or a note on how to read them.

    A subclass has templates of text and remedy (see `filled`), or describes itself.
    """

    severity: ClassVar[Severity] = Severity.DOUBT
    text: ClassVar[str]
    remedy: ClassVar[str]

    @property
    def lead(self) -> str:
        """Return the word with which its printed text begins."""
        return "Note" if self.severity is Severity.NOTE else "Warning"

    def describe(self) -> Words:
        """Return text and remedy."""
        return Words(filled(self.text, self), filled(self.remedy, self))


@dataclass(frozen=True)
class Audit:
    """Audit: decisions repeated on all data."""

    n_audited: int
    n_wrong: int
    """Decisions audited, and those of them that contradict all the data."""
    low: float
    high: float
    """Clopper-Pearson 95 % interval of the share of wrong decisions."""

    @property
    def rate(self) -> float:
        """Return the share of wrong decisions among the audited ones."""
        return self.n_wrong / self.n_audited


SQUARE_ABOVE = 1.1
"""Mean square from which standardised errors are larger than their standard errors account for."""


@dataclass(frozen=True)
class Estimates:
    """Estimated log ratios of a test that accounts for noise, compared with those of all data."""

    n_audited: int
    mean_square: float
    """Mean square of their standardised errors; 1 is expected."""
    low: float
    """Lower 99 % confidence limit of the mean square, for normal errors."""

    @property
    def fails(self) -> bool:
        """Return whether the errors exceed their standard errors by more than tolerated."""
        return self.low > SQUARE_ABOVE

    @property
    def clause(self) -> str:
        """Return the result of the audit of estimates, in a clause."""
        off, n = math.sqrt(self.mean_square), self.n_audited
        return f"{n:,} audited estimates were off by {off:.2f} standard errors (root mean square; 1 expected)"


@dataclass(frozen=True)
class Acceptances:
    """Acceptance probabilities with learned bounds, compared with those of all data."""

    n_audited: int
    mean: float
    """Mean amount by which they are too large."""
    limit: float
    """Upper limit of the mean with 95 % confidence, of a two-sided interval."""

    @property
    def clause(self) -> str:
        """Return the result of the audit of acceptance probabilities, in a clause."""
        return (
            f"they raise the acceptance probability by {percent(self.mean)} on average over "
            f"{self.n_audited:,} audited decisions, by at most {percent(self.limit)} with 95 % confidence"
        )


@dataclass(frozen=True)
class ErrorLevel:
    """The decision error that the user accepted."""

    option: str
    """Name of the option that sets it."""
    value: float | None
    """None if unknown."""


@dataclass(frozen=True)
class Quantities:
    """Quantities that fail a check."""

    n_failing: int
    n_checked: int
    worst: tuple[tuple[str, float], ...]
    """Name and value of the worst few quantities, the worst first."""

    def listed(self, form: str) -> str:
        named = ", ".join(f"{name} ({form.format(value)})" for name, value in self.worst)
        return f"{self.n_failing:,} of {self.n_checked:,} quantities, worst {named}"

    def above(self, limit: float) -> str:
        """Return the same with three decimals, or with more if one of the values would be rounded to a limit."""
        least = min(value for _, value in self.worst)
        return self.listed(f"{{:.{next((n for n in range(3, 8) if round(least, n) > limit), 8)}f}}")


# The run


class LongRun(Finding):
    """Sampling will take long, because steps cost gradients of all the data."""

    severity = Severity.NOTE
    seconds: float
    n_steps: int
    cost: str
    """Cost of a step."""
    at_most: bool
    """Whether the run may end earlier, at a precision."""
    share: float
    """Share of the steps for which there is time."""
    cores: int
    """Processors, if the chains do not use all of them."""

    def describe(self) -> Words:
        at_most = "at most " if self.at_most else ""
        text = f"Sampling will take {at_most}about {duration(self.seconds)}: {self.n_steps:,} steps of {self.cost}."
        if self.share < 1:
            text += f" `max_time` ends the run after about {percent(self.share)} of the steps."
        sooner = "lower `iter_sampling`"
        if not self.at_most:
            sooner += ", or stop at the precision that you need, with `until='ess=400'`"
        nuts = f" NUTS of CmdStan can use {self.cores} cores if the likelihood is a `reduce_sum`." if self.cores else ""
        return Words(text, f"To finish sooner, {sooner}; Ctrl-C keeps the draws so far.{nuts}")


class Stopped(Finding):
    """The run ended before its last iteration: "interrupted", "max_time", or what failed."""

    reason: str

    def describe(self) -> Words:
        known = {"interrupted": "it was interrupted", "max_time": "`max_time` was reached"}
        return Words(
            f"The run stopped before its last iteration: {known.get(self.reason, self.reason)}.",
            "Resume the run from its checkpoint (`resume`), or use these draws if they pass the other checks.",
        )


class NotPreciseEnough(Finding):
    """The run reached its last iteration before its draws had the requested precision."""

    asked: str
    """Requested precision, as in ``ess=400,rhat=1.01``."""
    quantity: str
    """A quantity below the precision; empty if nothing moved."""
    ess: float
    r_hat: float | None
    """None for one chain."""

    def describe(self) -> Words:
        r_hat = f" and an R-hat of {self.r_hat:.3f}" if self.r_hat is not None else ""
        what = f"{self.quantity} has an ESS of {self.ess:.0f}{r_hat}" if self.quantity else "no parameter has moved"
        return Words(
            f"The run reached its last iteration before the requested precision (`until={self.asked}`): {what}.",
            "Resume the run from its checkpoint (`resume`) with more `iter_sampling`.",
        )


class LeftOut(Finding):
    """Generated quantities could not be computed; with a clause that says which and why."""

    text = "The {what}."
    remedy = "The draws of the parameters are complete. If a block of the Stan program failed, check that block."
    what: str


class SlowQuantities(Finding):
    """Transformed parameters and generated quantities took much of the time of the run."""

    severity = Severity.COST
    text = (
        "Transformed parameters and generated quantities took {seconds:duration}, {share:percent} of the time of the "
        "run: the program computes them for each draw."
    )
    remedy = (
        "To finish sooner, keep fewer draws, with a lower `iter_sampling` or with `thin='auto'`, or leave them out "
        "with `generated_quantities=False`."
    )
    seconds: float
    share: float


class StuckChain(Finding):
    """A chain (counted from 1) that accepted almost nothing or never moved."""

    chain: int
    n_accepted: int | None
    n_steps: int | None
    """None if the draws do not record them."""
    of_nuts: bool
    """Whether NUTS made the draws."""
    of_all: bool = False
    """Whether set-up showed that all chains would hardly move."""
    n_modes: int = 1
    """Modes of the posterior at which chains of surrogate transitions started."""

    def describe(self) -> Words:
        text = f"Chain {self.chain} never moved."
        if self.n_accepted is not None and self.n_steps is not None:
            text = f"Chain {self.chain} is stuck: it accepted {self.n_accepted:,} of {self.n_steps:,} proposals."
        other = "another `seed`" if self.of_nuts else "other `inits`"
        again = f"Run again with a longer `iter_warmup`, or with {other} if it started far from the others."
        if self.n_modes > 1:
            again = f"Chains started at {self.n_modes} modes of the posterior, and may not leave theirs."
        return Words(text, f"Discard these draws. {BY_NUTS if self.of_all else again}")


class StuckChains(Finding):
    """Several stuck chains with the same number of steps."""

    chains: tuple[StuckChain, ...]

    def describe(self) -> Words:
        numbers, first = listed([str(one.chain) for one in self.chains]), self.chains[0]
        text = f"Chains {numbers} never moved."
        if first.n_steps is not None:
            accepted = listed([f"{one.n_accepted:,}" for one in self.chains])
            text = f"Chains {numbers} are stuck: they accepted {accepted} of {first.n_steps:,} proposals."
        return Words(text, first.describe().remedy.replace("if it", "if they"))


class Divergences(Finding):
    """Divergent iterations of NUTS (Betancourt 2017, section 6.2)."""

    text = "{n:,} iterations of NUTS diverged: NUTS may have missed a part of the posterior."
    remedy = (
        "Raise `adapt_delta` above {adapt_delta:g}. If that does not help, reparameterise the program "
        "(`reference_model`)."
    )
    n: int
    adapt_delta: float


class TreesCutShort(Finding):
    """Iterations of NUTS that reached the largest tree depth."""

    text = "{n:,} iterations of NUTS reached the maximum tree depth {max_treedepth}: the chains move slowly."
    remedy = "Raise `max_treedepth` above {max_treedepth}, or bring the predictors to a similar scale."
    n: int
    max_treedepth: int


# Convergence and precision

# R-hat below which longer chains are the only advice.
_NEARLY = 1.05


class OneChain(Finding):
    """There is no second chain to compare with."""

    text = "The run has one chain: R-hat needs at least two, and one chain cannot show which regions it missed."
    remedy = "Run `chains=4`."


class HighRHat(Finding):
    """R-hat is above ``limit``."""

    limit: float
    quantities: Quantities
    effects: tuple[str, ...] = ()
    """Effects that the likelihood multiplies by other parameters, with no variable for the product."""
    no_mode: str = ""
    """Why the search before sampling found no mode; empty if it found one, or there was none."""
    hardly_moves: bool = False
    """Whether set-up showed that the chains would hardly move."""
    signs: tuple[tuple[str, ...], ...] = ()
    """Parameters whose signs can change together without changing the posterior, the smallest first."""
    n_modes: int = 1
    """Modes of the posterior at which chains of surrogate transitions started."""
    copies: bool | None = None
    """Whether the modes that the draws are from are copies of each other; None if it is one mode, or unknown."""
    no_surrogate: str = ""
    """Why there is no surrogate, although there are effects with an unknown scale; empty otherwise."""
    stopped: bool = False
    """Whether the run ended before its last iteration."""

    def describe(self) -> Words:
        return Words(
            f"R-hat is above {self.limit} for {self.quantities.above(self.limit)}: the chains have not converged.",
            declare_or_nuts(self.effects) if self.hardly_moves else " ".join(self._remedies()),
        )

    def _remedies(self) -> Iterator[str]:
        """Yield what to do, in sentences."""
        if self.effects:
            yield declare(self.effects)
        if self.n_modes > 1:
            yield f"Chains started at {self.n_modes} modes of the posterior and stayed there."
        if self.signs:
            fixed = listed([names[0] for names in self.signs])
            yield f"Fix the sign of {fixed}, such as by `<lower=0>`: {same_with_signs(self.signs)}."
        elif self.copies:
            yield "Keep one copy of the mode, as above."
        elif self.n_modes > 1:
            priors, labels = "more informative priors may leave one mode", "order the parameters in the program"
            otherwise = f"if these differ only by labels, {labels}. Otherwise, {priors}"
            yield sentence(otherwise if self.copies is None else priors)
        elif self.no_surrogate and self.copies is None:
            yield f"Moves around a mode hardly suit effects with an unknown scale, and {self.no_surrogate}. {BY_NUTS}"
        elif self.no_mode:
            yield f"The search before sampling found {self.no_mode}."
        elif self.stopped:
            yield "Resume the run (`resume`), which stopped before its last iteration: R-hat may decrease."
        else:
            double = (
                f"{'If that does not help, double' if self.effects else 'Double'} `iter_warmup` and `iter_sampling`"
            )
            if self.copies is None and self.quantities.worst[0][1] < _NEARLY:
                yield f"{double}: the chains nearly agree."
                return
            modes = "may have several modes, or directions that the data hardly inform"
            yield (
                f"{double}, and inspect the traces (`stansub plot`): the posterior "
                f"{modes if self.copies is None else 'has several modes'}."
            )


class NotFinite(Finding):
    """Quantities with draws that are not finite; the first few names."""

    text = "Quantities with draws that are not finite ({n:,}): {names:joined}."
    remedy = "Check how the Stan program computes them. Their accuracy is unknown."
    n: int
    names: tuple[str, ...]


class TooFewDraws(Finding):
    """Too few draws per chain for R-hat and ESS."""

    text = "There are too few draws ({n_draws} a chain) for R-hat and ESS."
    remedy = "Raise `iter_sampling` to 1000."
    n_draws: int


class LowEss(Finding):
    """The smaller of bulk and tail ESS is below ``wanted``."""

    wanted: int
    per_chain: int
    """Effective draws over all chains, and per chain."""
    quantities: Quantities
    iterations: int | None
    """Iterations that would suffice at this rate; None while the chains disagree, because the rate is then unknown."""

    def describe(self) -> Words:
        return Words(
            f"ESS (bulk or tail) is below {self.wanted} ({self.per_chain} per chain) for "
            f"{self.quantities.listed('{:.0f}')}: their estimates are imprecise.",
            "Make the chains converge first: until then the required number of iterations cannot be estimated."
            if self.iterations is None
            else f"At this rate `iter_sampling={self.iterations}` is enough.",
        )


# Comparisons, and checks that failed


class Unrecorded(Finding):
    """It is not known whether two sets of draws are of one posterior, with the reasons."""

    reasons: tuple[str, ...]

    def describe(self) -> Words:
        return Words(
            f"It is unknown whether both sides sample the same posterior: {'; '.join(self.reasons)}.",
            "Check it yourself, or make the reference with `stansub reference`.",
        )


class NotChecked(Finding):
    """The draws could not be checked."""

    text = "These draws were not checked ({reason})."
    remedy = "Run `stansub summary`."
    reason: str
