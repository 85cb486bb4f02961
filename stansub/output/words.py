"""Words for findings, with what to do about them, and for what was chosen, with the reasons.

Options are named as in Python, between backticks: `max_error`, `iter_sampling=2000`. The command line shows
them as flags.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import TYPE_CHECKING, Any, NamedTuple

from stansub import findings, memory, selection
from stansub.findings import (
    Acceptances,
    Audit,
    ErrorLevel,
    Estimates,
    Finding,
    HeavyTail,
    Quantities,
    TrialDecisionsWrong,
)
from stansub.selection import BlockReason, Chosen, LookTrial, RaceOutcome

if TYPE_CHECKING:
    from stansub.output.record import RunRecord

# Parameters that are named.
_MOST_NAMED = 4


class Words(NamedTuple):
    """A finding in words, and what to do about it."""

    text: str
    remedy: str

    @property
    def line(self) -> str:
        """Both in one line."""
        return f"{self.text} {self.remedy}"


@singledispatch
def words(finding: Finding) -> Words:
    """Return text and remedy of a finding.

    Raises
    ------
    NotImplementedError
        For a kind that has no words yet.
    """
    raise NotImplementedError(f"no words for {type(finding).__name__}")


# Modes


@words.register
def _(found: findings.MissedMode) -> Words:
    above = f"; its log density is {found.above:,.1f} above that of the highest visited mode" if found.above > 0 else ""
    places = [
        f"{name} is {there:.3g} (draws: {low:.3g} to {high:.3g})" for name, (there, low, high) in found.values.items()
    ]
    return Words(
        f"Chains missed a mode: no chain visited about {percent(found.share)} of the posterior{above}. "
        f"At that mode {', '.join(places) or 'no parameter is outside the range of the draws'}.",
        "Do not use these draws. Run again with another `seed`, or with `inits` near that mode. If the modes differ "
        "only by their labels, order the parameters in the program.",
    )


@words.register
def _(found: findings.ModesUnchecked) -> Words:
    return Words(
        f"stansub could not check whether the chains missed a mode: {found.reason}.",
        "Compare with a second run that has another `seed` and other `inits`.",
    )


@words.register
def _(found: findings.LabelsSwitch) -> Words:
    return Words(
        f"Labels switch: exchanging the elements of {', '.join(found.names)} does not change the posterior, so their "
        "individual means and sds are meaningless.",
        "Declare one of these parameters as ordered, or give its elements different priors.",
    )


# The run


@words.register
def _(found: findings.Stopped) -> Words:
    reason = {"interrupted": "it was interrupted", "max_time": "`max_time` was reached"}.get(found.reason, found.reason)
    return Words(
        f"The run stopped before its last iteration: {reason}.",
        "Resume the run from its checkpoint (`resume`), or use these draws if they pass the other checks.",
    )


@words.register
def _(found: findings.NotPreciseEnough) -> Words:
    r_hat = f" and an R-hat of {found.r_hat:.3f}" if found.r_hat is not None else ""
    what = f"{found.quantity} has an ESS of {found.ess:.0f}{r_hat}" if found.quantity else "no parameter has moved"
    return Words(
        f"The run reached its last iteration before the requested precision (`until={found.asked}`): {what}.",
        "Resume the run from its checkpoint (`resume`) with more `iter_sampling`.",
    )


def last_check(check: Mapping[str, Any], asked: str) -> str:
    """Return the result of the last check of a run with early stopping, in words."""
    draws = f"{check['n_draws']:,} draws a chain"
    if not check["reached"]:
        return f"requested precision ({asked}) not reached at the last check, after {draws}"
    r_hat = f", R-hat at most {check['r_hat']:.3f}" if check.get("r_hat") is not None else ""
    return (
        f"requested precision ({asked}) reached at check {check['n_checks']}, after {draws}: ESS at least "
        f"{check['ess']:.0f} ({check['quantity']}){r_hat}"
    )


@words.register
def _(found: findings.LeftOut) -> Words:
    return Words(
        f"The {found.what}.", "Check those blocks of the Stan program. The draws of the parameters are complete."
    )


@words.register
def _(found: findings.StuckChain) -> Words:
    text = f"Chain {found.chain} never moved."
    if found.n_accepted is not None and found.n_steps is not None:
        text = f"Chain {found.chain} is stuck: it accepted {found.n_accepted:,} of {found.n_steps:,} proposals."
    other = "another `seed`" if found.of_nuts else "other `inits`"
    return Words(
        text,
        f"Discard these draws. Run again with a longer `iter_warmup`, or with {other} if the chain started far from "
        "the others.",
    )


@words.register
def _(found: findings.Divergences) -> Words:
    return Words(
        f"{found.n:,} iterations of NUTS diverged: NUTS may have missed a part of the posterior.",
        f"Raise `adapt_delta` above {found.adapt_delta:g}. If that does not help, reparameterise the program "
        "(`reference_model`).",
    )


@words.register
def _(found: findings.TreesCutShort) -> Words:
    depth = found.max_treedepth
    return Words(
        f"{found.n:,} iterations of NUTS reached the maximum tree depth {depth}: the chains move slowly.",
        f"Raise `max_treedepth` above {depth}, or bring the predictors to a similar scale.",
    )


# Convergence and precision


@words.register
def _(found: findings.OneChain) -> Words:
    return Words(
        "The run has one chain: R-hat needs at least two, and one chain cannot show which regions it missed.",
        "Run `chains=4`.",
    )


@words.register
def _(found: findings.HighRHat) -> Words:
    effects = "If parameters are group effects or smooths, use `proposal='surrogate'`. " if found.many else ""
    return Words(
        f"R-hat is above {found.limit} for {_worst(found.quantities, '{:.2f}')}: the chains have not converged.",
        f"{effects}Double `iter_warmup` and `iter_sampling`. If that does not help, inspect the traces "
        "(`stansub plot`): the posterior may have several modes, or directions that the data hardly inform.",
    )


@words.register
def _(found: findings.NotFinite) -> Words:
    return Words(
        f"{found.n:,} quantities have draws that are not finite: {', '.join(found.names)}.",
        "Check how the Stan program computes them. Their accuracy is unknown.",
    )


@words.register
def _(found: findings.TooFewDraws) -> Words:
    return Words(
        f"There are too few draws ({found.n_draws} a chain) for R-hat and ESS.", "Raise `iter_sampling` to 1000."
    )


@words.register
def _(found: findings.LowEss) -> Words:
    return Words(
        f"ESS (bulk or tail) is below {found.wanted} ({found.per_chain} per chain) for "
        f"{_worst(found.quantities, '{:.0f}')}: their estimates are imprecise.",
        "Make the chains converge first: until then the required number of iterations cannot be estimated."
        if found.iterations is None
        else f"At this rate `iter_sampling={found.iterations}` is enough.",
    )


# Decisions


@words.register
def _(found: findings.NoAudit) -> Words:
    return Words(
        "No decision was audited, so the share of wrong decisions is unknown.",
        "Raise `audit` or `iter_sampling`."
        if found.asked_for
        else "Run with `audit=0.01`, which repeats one decision in a hundred on all the data.",
    )


@words.register
def _(found: findings.TooFewAudits) -> Words:
    level = found.level
    wanted = "how many are wrong"
    if level.value is not None:
        wanted = f"whether their error is below {level.option} = {level.value:g}"
    return Words(
        f"Too few decisions were audited ({found.n_audited:,}) to tell {wanted}: the error may be as large as "
        f"{percent(found.limit)}.",
        "Raise `audit` or `iter_sampling`.",
    )


@words.register
def _(found: findings.WrongDecisions) -> Words:
    audit, level = found.audit, found.level
    return Words(
        f"{audit.n_wrong:,} of {audit.n_audited:,} audited decisions were wrong: {percent(audit.rate)} "
        f"({percent(audit.low)} to {percent(audit.high)} with 95 % confidence), {_allowed(found)}.",
        "Please report this as a bug in stansub." if level.value == 0 else _fewer_wrong(found),
    )


@words.register
def _(found: findings.WrongAtTheirLevel) -> Words:
    parts = (
        f"{one.n_wrong:,} of {one.n_audited:,} while the level fell from {one.first:.2g} to {one.last:.2g} "
        f"(at most {one.expected:.1f} expected)"
        for one in found.parts
    )
    return Words(
        f"More audited decisions were wrong than their level allows: {'; '.join(parts)}.",
        "Begin and end with a lower level (`epsilon`, `final_epsilon`), or use `test='exact'`. These draws may be "
        "biased.",
    )


def _allowed(found: findings.WrongDecisions) -> str:
    """Return how the observed error compares with the level of the test, in a clause."""
    option, value = found.level.option, found.level.value
    if value is None:
        return f"and the test {found.test} declares no error level"
    if value == 0:
        return "and an exact test makes none"
    if found.per_look:
        return f"more than {option} = {value:g}, the level of a single look"
    return f"more than {option} = {value:g} allows"


def _fewer_wrong(found: findings.WrongDecisions) -> str:
    remedy = f"Lower `{found.level.option}`, or use `test='exact'`. These draws may be biased."
    if found.own_test:
        remedy = "Make the test stricter, or use `test='exact'`. These draws may be biased."
    elif found.bound:
        remedy = "Check the range constants of the program (`range_source='scan'` needs none), or use `test='exact'`."
    return (
        remedy
        if found.level.value is not None
        else f"Declare the accepted error as the attribute epsilon of the test. {remedy}"
    )


@words.register
def _(found: findings.NoiseUnderestimated) -> Words:
    return Words(
        f"{audited_estimates(found.estimates)}: the {found.test} test underestimates the noise, because means of so "
        "few blocks are not normal.",
        "Raise `first_look`, or use `test='pocock'` or `test='exact'`. These draws may be biased.",
    )


@words.register
def _(found: findings.NoiseTooLarge) -> Words:
    return Words(
        f"The noise of {percent(found.share)} of the decisions was too large for the {found.test} test: pocock "
        "took these decisions.",
        "Use `test='pocock'`, or reduce the noise with control variates (`control_variates=2`).",
    )


@words.register
def _(found: findings.NormalityFails) -> Words:
    return Words(
        f"The t-test cannot be trusted on these data: {'; and '.join(map(clause, found.reasons))}.",
        "Run `stansub diagnose` on the same program and data to find larger blocks or a later first look that work. "
        "`test='bernstein-serfling'` and `test='exact'` do not assume normal means.",
    )


@words.register
def _(found: findings.VoidGuarantee) -> Words:
    return Words(
        f"The bound's guarantee is void ({found.reason or 'no reason recorded'}).",
        "Add a function log_lik_third_derivative_i, log_lik_lipschitz_i or log_lik_range to the program, or compute "
        "the range by a full scan (`range_source='scan'`).",
    )


@words.register
def _(found: findings.RangeViolated) -> Words:
    return Words(
        f"In {found.n:,} of {found.n_steps:,} decisions the observations differed by more "
        "than their declared range: the bound does not hold there.",
        "Correct the range constants of the program: they must hold for every observation.",
    )


@words.register
def _(found: findings.BoundsTooSmall) -> Words:
    acceptances = found.acceptances
    return Words(
        f"The learned bounds may be too small: {audited_acceptances(acceptances)}, more than the "
        f"{percent(found.accepted)} accepted (`max_error`); {found.n_violated:,} decisions used a block beyond its "
        "bound.",
        "Use `test='pocock'` or `test='exact'`. These draws may be biased."
        if acceptances.mean > found.accepted
        else "Raise `audit` or `iter_sampling` to audit more decisions, or use `test='pocock'`.",
    )


# Efficiency


@words.register
def _(found: findings.ShortSteps) -> Words:
    return Words(
        f"{percent(found.acceptance_rate)} of the proposals were accepted: the steps are too short to explore well.",
        "Raise `iter_warmup`, so that the proposal scale can adapt.",
    )


@words.register
def _(found: findings.NonfiniteProposals) -> Words:
    return Words(
        f"{percent(found.share)} of the proposals were rejected because the log density was not a number.",
        "Check the constraints declared in the program: parameters may leave the support.",
    )


@words.register
def _(found: findings.NothingSaved) -> Words:
    return Words(
        f"A decision used {percent(found.share_of_data)} of the data on average: subsampling saved next to nothing.",
        "Use `test='exact'`, which costs the same and makes no decision error.",
    )


# Comparisons, and checks that failed


@words.register
def _(found: findings.Unrecorded) -> Words:
    return Words(
        f"It is unknown whether both sides sample the same posterior: {'; '.join(found.reasons)}.",
        "Check it yourself, or make the reference with `stansub reference`.",
    )


@words.register
def _(found: findings.NotChecked) -> Words:
    return Words(f"These draws were not checked ({found.reason}).", "Run `stansub summary`.")


# Parts of sentences


@singledispatch
def clause(reason: HeavyTail | TrialDecisionsWrong) -> str:
    """Return in a clause why a t-test cannot be trusted."""
    raise NotImplementedError(f"no words for {type(reason).__name__}")


@clause.register
def _(reason: HeavyTail) -> str:
    text = (
        f"|t| is beyond its critical value in {percent(reason.observed)} of random subsets of "
        f"{reason.blocks:,} blocks ({percent(reason.low)} to {percent(reason.high)} with 95 % confidence); "
        f"normal means give {percent(reason.nominal)}"
    )
    if reason.undefined:
        text += f"; in {percent(reason.undefined)} of them all blocks are equal, so that no decision is possible"
    return text


@clause.register
def _(reason: TrialDecisionsWrong) -> str:
    return (
        f"{percent(reason.wrong)} of simulated decisions go the wrong way ({percent(reason.low)} to "
        f"{percent(reason.high)} with 95 % confidence); the test promises at most {percent(reason.promised)}"
    )


def audited_estimates(estimates: Estimates) -> str:
    """Return the result of the audit of estimates, in a clause."""
    off, n = math.sqrt(estimates.mean_square), estimates.n_audited
    return f"{n:,} audited estimates were off by {off:.2f} standard errors (root mean square; 1 expected)"


def audited_acceptances(acceptances: Acceptances) -> str:
    """Return the result of the audit of acceptance probabilities, in a clause."""
    return (
        f"they raise the acceptance probability by {percent(acceptances.mean)} on average over "
        f"{acceptances.n_audited:,} audited decisions, by at most {percent(acceptances.limit)} with 95 % confidence"
    )


def audited_decisions(audit: Audit, which: str = "audited") -> str:
    """Return the result of the audit of decisions, in a sentence."""
    error = (
        f"between {percent(audit.low)} and {percent(audit.high)}" if audit.n_wrong else f"at most {percent(audit.high)}"
    )
    return (
        f"{audit.n_wrong:,} of {audit.n_audited:,} {which} decisions were wrong: decision error {error} "
        "with 95 % confidence. This is the error of single decisions, not of the posterior."
    )


def short_audit(record: RunRecord) -> str:
    """Return the result of a run's audit, in a few words."""
    if record.audit is not None:
        return f"{record.audit.n_wrong:,} of {record.audit.n_audited:,} audited decisions wrong"
    if record.estimates is not None:
        return f"audited estimates off by {math.sqrt(record.estimates.mean_square):.2f} standard errors"
    if record.acceptances is not None:
        return f"audited acceptance probabilities off by {percent(record.acceptances.mean)}"
    return "none audited"


def one_step_bias(limit: float) -> str:
    """Return a limit on the bias of one step, in a sentence."""
    if not limit:
        return "none: exact decisions leave the posterior unchanged; Monte Carlo error and convergence remain."
    return (
        f"a step with exact decisions would move the distribution of the draws by at most {percent(limit)} in total "
        "variation (95 % confidence, from the audit). The posterior may be further away, by a factor that depends on "
        "how fast such steps mix and that no run can show."
    )


def with_level(test: str, level: ErrorLevel) -> str:
    """Return the test and its error level, if it has one."""
    return f"{test} with {level.option} = {level.value:g}" if level.value else test


def normality_trial(figures: Mapping[str, Any]) -> str:
    """Return the result of a normality trial (`stansub.acceptance.normality.figures`), in a sentence."""
    return (
        f"|t| beyond its critical value in {percent(figures['observed'])} of {figures['n_subsets']:,} trial subsets of "
        f"{figures['blocks']:,} blocks, {percent(figures['nominal'])} expected; {percent(figures['wrong'])} of "
        f"{figures['n_decisions']:,} trial decisions wrong, at most {percent(figures['promised'])} promised"
    )


def _worst(quantities: Quantities, form: str) -> str:
    named = ", ".join(f"{name} ({form.format(value)})" for name, value in quantities.worst)
    return f"{quantities.n_failing:,} of {quantities.n_checked:,} quantities, worst {named}"


def percent(share: float) -> str:
    """Return a share in percent, to two digits."""
    return f"{100 * share:.0f} %" if share == 0 or share >= 0.1 else f"{100 * share:.2g} %"


# What was chosen


@singledispatch
def sentence(choice: Chosen) -> str:
    """Return a choice and its reason in words.

    Raises
    ------
    NotImplementedError
        For a kind that has no words yet.
    """
    raise NotImplementedError(f"no words for {type(choice).__name__}")


@sentence.register
def _(choice: selection.ModesFound) -> str:
    text = f"log density {choice.log_density:,.2f} ({choice.n_reached} of {choice.n_starts} starts)"
    if len(choice.shares) > 1:
        shares = ", ".join(f"{share:.2g}" for share in choice.shares)
        text += f"; {len(choice.shares)} modes with shares {shares} of the evidence"
    if choice.interchangeable:
        text += f"; the labels of {_and(choice.interchangeable)} switch"
    if choice.below:
        below = ", ".join(f"{difference:,.1f}" for difference in choice.below[:3])
        more = ", ..." if len(choice.below) > 3 else ""
        text += f"; {len(choice.below)} with negligible evidence, lower by {below}{more}"
    return f"{text}; {choice.n_passes:.1f} passes over the data in {choice.seconds:.1f} s"


@sentence.register
def _(choice: selection.VariatesByCost) -> str:
    needed = [_blocks(blocks) for blocks in choice.blocks]
    text = (
        f"{_order(choice.order)}: a decision near the mode needs about {needed[choice.order]} of {choice.n_blocks:,} "
        f"blocks ({needed[2]} with order 2, {needed[1]} with order 1, {needed[0]} with none)"
    )
    if choice.order:
        text += f"; {memory.amount(choice.memory)}, about {choice.seconds:.1g} s to compute"
    elif choice.far_from_quadratic:
        text += "; the log likelihood is far from quadratic within the posterior (few data, skewed, or several modes)"
    for one in choice.too_large:
        allowed = memory.amount(choice.memory_allowed)
        text += f"; order {one.order} would take {memory.amount(one.memory)}, more than the {allowed} allowed"
    return text


@sentence.register
def _(choice: selection.VariatesAsAsked) -> str:
    reason = f"the program's {choice.function} bounds the remainders" if choice.function else "as requested"
    return f"{_order(choice.order)}: {reason}"


@sentence.register
def _(choice: selection.VariatesForBounds) -> str:
    bounds = f"bounds learned from {choice.n_draws} draws" if choice.n_draws else "proved bounds"
    if choice.function:
        bounds = f"the bounds of {choice.function}"
    return f"{_order(choice.order)}: their remainders have {bounds}, which the test needs"


@sentence.register
def _(choice: selection.RangeByPredictors) -> str:
    why = "as requested" if choice.asked else "no function of the program gives another range"
    return f"the remainders of control variates have proved bounds, because predictors are linear; {why}"


@sentence.register
def _(choice: selection.VariatesOfObservations) -> str:
    return (
        f"{_order(choice.order)}, of single observations: a decision near the mode uses about "
        f"{choice.candidates:.2g} of {choice.n_observations:,} observations"
    )


@sentence.register
def _(choice: selection.NoVariatesForTest) -> str:
    return f"none: the {choice.test} test uses the differences themselves"


@sentence.register
def _(choice: selection.NoVariatesWithoutMode) -> str:
    return f"none: {choice.reason}"


@sentence.register
def _(choice: selection.SurrogateSettled) -> str:
    return (
        f"an approximation in the likelihood's own arguments, with an error of {choice.noise:.2g} in the "
        f"log density (standard deviation), computed in {choice.n_passes} passes over the data"
    )


@sentence.register
def _(choice: selection.TransitionsTaken) -> str:
    normal = f", and {percent(choice.normal)} of normal moves would be accepted" if choice.normal is not None else ""
    why = "requested" if choice.asked else f"{with_effects(choice.effects, choice.n_parameters)}{normal}"
    return f"surrogate transitions: {why}; {percent(choice.accepted)} of the trial transitions were accepted"


@sentence.register
def _(choice: selection.TransitionsLeft) -> str:
    there_are = f"not used, although there are {with_effects(choice.effects, choice.n_parameters)}"
    if choice.normal is not None:
        near = f"{percent(choice.normal)} of normal moves would be accepted"
        return f"{there_are}: the posterior is nearly normal ({near})"
    if choice.accepted is not None:
        return f"{there_are}: {percent(choice.accepted)} of the trial transitions were accepted"
    return f"{there_are}: {choice.reason}"


def with_effects(effects: Sequence[str], n_parameters: int) -> str:
    """Return in words which parameters are effects with an unknown scale."""
    named = _and(effects) if len(effects) < _MOST_NAMED else f"{', '.join(effects[: _MOST_NAMED - 1])} and others"
    return f"effects with an unknown scale ({named}) among {n_parameters:,} parameters"


@sentence.register
def _(choice: selection.VariatesMoved) -> str:
    none, first, second = map(_blocks, choice.blocks)
    needed = (none, first, second)[choice.order]
    return (
        f"{_order(choice.order)}: at this expansion point a decision needs about {needed} of {choice.n_blocks:,} "
        f"blocks ({second} with order 2, {first} with order 1, {none} with none)"
    )


@sentence.register
def _(choice: selection.VariatesGivenUp) -> str:
    return (
        f"none: after {choice.n_steps:,} steps of warmup a decision needs about {_blocks(choice.blocks_with)} of "
        f"{choice.n_blocks:,} blocks with control variates, {_blocks(choice.blocks_without)} without"
    )


@sentence.register
def _(choice: selection.KeptForFewDraws) -> str:
    return f"kept: too few different draws in the first {choice.n_steps:,} steps of warmup"


@sentence.register
def _(choice: selection.KeptSinceNear) -> str:
    return f"kept: {_mean_is(choice.n_steps, choice.distance)}, and their sds are similar"


@sentence.register
def _(choice: selection.KeptSinceApart) -> str:
    return f"kept: after {choice.n_steps:,} steps of warmup the chains are far apart with lower density between them"


@sentence.register
def _(choice: selection.KeptSinceUndefined) -> str:
    return f"kept: {_mean_is(choice.n_steps, choice.distance)}; there {choice.error}"


@sentence.register
def _(choice: selection.KeptForCost) -> str:
    text = f"kept: {_mean_is(choice.n_steps, choice.distance)}; a decision needs about {_blocks(choice.blocks)} of "
    text += f"{choice.n_blocks:,} blocks"
    if choice.blocks_there is not None:
        text += f", {_blocks(choice.blocks_there)} with control variates computed there"
    return text


@sentence.register
def _(choice: selection.Moved) -> str:
    earlier = f", as after {_and([f'{n:,}' for n in choice.earlier])}" if choice.earlier else ""
    origin = "the one before" if choice.earlier else "the mode"
    return (
        f"moved to the mean of the chains after {choice.n_steps:,} steps of warmup{earlier}, {choice.distance:.1f} sds "
        f"from {origin}: a decision needs about {_blocks(choice.blocks)} of {choice.n_blocks:,} blocks, "
        f"{_blocks(choice.blocks_before)} before"
    )


@sentence.register
def _(choice: selection.GivenUp) -> str:
    return f"given up after {choice.n_steps:,} steps of warmup"


@sentence.register
def _(choice: selection.RaceWon) -> str:
    return f"{choice.race.winner} and one random-walk step in {choice.walk_every}: {_race(choice.race)}"


@sentence.register
def _(choice: selection.ProposalStays) -> str:
    return f"{choice.race.winner} as before: {_race(choice.race)}"


@sentence.register
def _(choice: selection.WalkWon) -> str:
    return f"{choice.race.winner} with an adapted scale: {_race(choice.race)}"


@sentence.register
def _(choice: selection.WalkSinceFewAccepted) -> str:
    return (
        f"adaptive Metropolis that starts from the Laplace approximation: {choice.accepted:.0%} of independent "
        "draws from it were accepted"
    )


@sentence.register
def _(choice: selection.BetweenModes) -> str:
    return (
        f"independent draws from the Laplace approximations of {choice.n_modes} modes, so that chains switch "
        "modes, and as many random-walk steps around each mode"
    )


@sentence.register
def _(choice: selection.MiniBatchGradients) -> str:
    text = f"Langevin moves with gradients from {choice.n_drawn:,} of {choice.n_blocks:,} blocks a step"
    if choice.control_variates:
        return f"{text}, of the remainders of the expansions"
    few = choice.n_drawn < choice.n_blocks
    return f"{text}; without control variates their noise keeps steps short" if few else text


@sentence.register
def _(choice: selection.FirstLookFits) -> str:
    return f"{choice.first} blocks, of {choice.drawn:.2g} in a typical decision: {_trial(choice.trial)}"


@sentence.register
def _(choice: selection.FirstLookNotNormal) -> str:
    return f"{choice.first} blocks, though means of remainders are not normal: {_trial(choice.trial)}"


@sentence.register
def _(choice: selection.FirstLookUntried) -> str:
    return "as late as possible: no trial was possible"


@sentence.register
def _(choice: selection.FirstLookOfNoise) -> str:
    if choice.off is None:
        return f"{choice.first} blocks: no trial was possible"
    return (
        f"{choice.first} blocks: {choice.n_estimates:,} trial estimates off by {choice.off:.2f} standard errors (root "
        "mean square; 1 expected)"
    )


@sentence.register
def _(choice: selection.TestTaken) -> str:
    return f"{choice.test}, {choice.gain:.2g} times the effective draws per observation of {choice.instead_of}"


@sentence.register
def _(choice: selection.TestStays) -> str:
    return (
        f"{choice.test}; {choice.other}, which assumes more about subset means, would make {choice.gain:.2g} times the "
        f"effective draws per observation; stansub switches at {choice.wanted:g} times"
    )


@sentence.register
def _(choice: selection.ExactTaken) -> str:
    return (
        f"{choice.exact}, which is exact: bounds are known, and another test would draw at least {choice.least:,} "
        "observations a decision"
    )


@sentence.register
def _(choice: selection.ExactWon) -> str:
    text = f"{choice.exact}, which is exact: bounds are known, and "
    if choice.gain is None:
        return f"{text}{choice.instead_of} made no effective draws around the mode"
    return f"{text}it makes {choice.gain:.2g} times the effective draws per observation of {choice.instead_of}"


@sentence.register
def _(choice: selection.ExactLost) -> str:
    text = (
        f"known, but wide: an exact decision (`test='{choice.exact}'`) would use about {choice.candidates:.2g} "
        "observations"
    )
    if choice.gain is None:
        return text
    return f"{text}, which makes {choice.gain:.2g} times the effective draws per observation of {choice.test}"


@sentence.register
def _(choice: selection.KappaTaken) -> str:
    tried = ", ".join(f"{kappa:g}" for kappa in choice.tried)
    return f"{choice.kappa:g}, which makes the most effective draws per observation among {tried}"


@sentence.register
def _(choice: selection.JointTaken) -> str:
    if choice.gain is None:
        return "factorised decisions made no effective draws around the mode"
    return f"{choice.gain:.2g} times the effective draws per observation of factorised decisions"


@sentence.register
def _(choice: selection.NoBounds) -> str:
    return f"none for exact decisions: {choice.reason}"


_BLOCK_REASONS = {
    BlockReason.GIVEN: "as given",
    BlockReason.EXACT: "exact decisions use all blocks",
    BlockReason.CONTROL_VARIATES: "with control variates the blocks per decision hardly depend on their size",
    BlockReason.RANGE: "the range of a block's sum grows with its size",
    BlockReason.SINGLE: "for the proof and the search for modes; decisions use single observations",
    BlockReason.SPEED: "adjacent observations are read several times faster than single ones",
}


@sentence.register
def _(choice: selection.BlockSize) -> str:
    return f"{choice.size:,} observation{'s' if choice.size > 1 else ''} each: {_BLOCK_REASONS[choice.reason]}"


@sentence.register
def _(choice: selection.ErrorAudited) -> str:
    passes = f", at most {choice.n_passes:,} passes over the data," if choice.n_passes is not None else ""
    text = f"{choice.max_error:g}: {choice.n_audits:,} audits{passes} can verify it with 95 % confidence"
    return text + _per_look(choice.per_look)


@sentence.register
def _(choice: selection.ErrorNotAudited) -> str:
    takes = f"verifying it with 95 % confidence takes {choice.n_needed:,}"
    if choice.n_audits is None:
        text = f"{choice.max_error:g}: {takes} audits, more than there are decisions"
    else:
        text = (
            f"{choice.max_error:g}: {choice.n_audits:,} audits cannot verify it; {takes}, {choice.n_passes:,} passes "
            f"over the data: `audit={choice.share:.2g}`"
        )
    return text + _per_look(choice.per_look)


def _order(order: int) -> str:
    return f"order {order}" if order else "none"


def _blocks(blocks: float) -> str:
    return f"{max(1, round(blocks)):,}"


def _mean_is(n_steps: int, distance: float) -> str:
    return f"the mean of the chains after {n_steps:,} steps of warmup is {distance:.1f} sds from it"


def _race(race: RaceOutcome) -> str:
    text = f"{race.accepted:.0%} accepted"
    for number, rival in enumerate(race.rivals):
        of = "that of" if number else "the effective draws per observation of"
        text += f"{' and' if number else ','} {rival.factor:.2g} times {of} {rival.name}"
    return text


def _trial(trial: LookTrial) -> str:
    return (
        f"|t| beyond its critical value in {trial.observed:.2g} of {trial.n_subsets:,} trial subsets "
        f"({trial.nominal:.2g} expected), {trial.wrong:.2g} of {trial.n_decisions:,} trial decisions wrong"
    )


def _per_look(epsilon: float | None) -> str:
    return f", with epsilon = {epsilon:.2g} at each look" if epsilon is not None else ""


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
