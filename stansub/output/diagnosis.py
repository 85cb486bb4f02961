"""What a run cost, and what speaks against its draws, each time with a remedy.

Nothing is claimed that the run did not show: decision errors come from its audit, with their interval.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import betaincinv, gammaincinv

from stansub.output.inference_data import attrs, group
from stansub.output.statistics import affordable, scalars, table

if TYPE_CHECKING:
    import pandas as pd

    from stansub.output.inference_data import InferenceData

R_HAT_MAX = 1.01
ESS_PER_CHAIN = 100
EXTRAPOLATE_BELOW = 1.1  # R-hat above which ESS says nothing of a longer run
STUCK_BELOW = 0.01
TIMID_ABOVE = 0.8
NONFINITE_ABOVE = 0.05
WASTED_ABOVE = 0.9
# A decision error that neither audits nor trial decisions exclude is warned of where it is more than twice the promise
# and more than this.
TOLERABLE = 0.02
SQUARE_ABOVE = 1.1  # mean square of errors that standard errors should account for
FALLBACK_ABOVE = 0.2
_WORST = 3  # quantities named in a warning
UNKNOWN = "unknown"  # what tests promise that are not of this package
_BOUNDS = ("hoeffding", "bernstein", "bernstein-serfling")
_RANDOM_WALKS = ("random-walk", "adaptive-metropolis")


@dataclass(frozen=True)
class Caution:
    """Something wrong with a run, and what to do about it."""

    text: str
    remedy: str


@dataclass(frozen=True)
class Audit:
    """Decisions taken again on all data.

    Attributes
    ----------
    n_audited, n_wrong
        Decisions audited, and those among them that all the data reverse.
    low, high
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


@dataclass(frozen=True)
class Estimates:
    """Log ratios that were decided upon with their noise, held against all data.

    Attributes
    ----------
    n_audited
        Estimates audited.
    mean_square
        Of their standardised errors; 1 is expected.
    low
        Lower 99 % confidence limit of it, normal errors taken for granted.
    """

    n_audited: int
    mean_square: float
    low: float

    @property
    def fails(self) -> bool:
        """Whether the errors are larger than their standard errors say, by more than is tolerated."""
        return self.low > SQUARE_ABOVE


@dataclass(frozen=True)
class Diagnosis:
    """Cost and trustworthiness of a run; None where the draws do not record it.

    Attributes
    ----------
    n_chains, n_draws
        Chains, and draws kept of each.
    share_of_data
        Mean share of the observations that a decision drew.
    passes_per_step
        Observations evaluated in a step over the number of observations: both ends of a decision, audits and
        range scans included, values known from earlier decisions not.
    observations_per_second, steps_per_second
        Observations evaluated and steps made per second of one chain's sampling time.
    acceptance_rate, undecided_share
        Shares of the steps that were accepted, and whose test ran to all observations.
    audit
        None if no decision was audited.
    estimates
        None if no estimate was audited that was decided upon with its noise.
    fallback_share
        Share of the steps whose noise was too large for such a decision; None of other tests.
    cautions
        Everything that speaks against these draws, the gravest first.
    """

    n_chains: int
    n_draws: int
    share_of_data: float | None
    passes_per_step: float | None
    observations_per_second: float | None
    steps_per_second: float | None
    acceptance_rate: float | None
    undecided_share: float | None
    audit: Audit | None
    estimates: Estimates | None
    fallback_share: float | None
    cautions: tuple[Caution, ...]


def diagnose(idata: "InferenceData", *, statistics: "pd.DataFrame | None" = None) -> Diagnosis:
    """What the run cost, and what speaks against it.

    Parameters
    ----------
    statistics
        Result of `table` where it exists already. By default it is made here, for as many quantities as take
        a few seconds.

    Notes
    -----
    The audit's interval takes audited decisions as independent. It is about single decisions: how far the
    posterior is off depends on the mixing of the chain too (Korattikara et al. 2014, theorem 1).
    """
    facts = attrs(idata)
    posterior = group(idata, "posterior")
    n_chains, n_draws = posterior.sizes["chain"], posterior.sizes["draw"]
    steps, seconds = _total(facts, "n_steps"), _total(facts, "sampling_time")
    used, evaluated = _total(facts, "n_obs_used"), _total(facts, "n_obs_evaluated")
    one_pass_each = steps and "n_observations" in facts and steps * facts["n_observations"]
    audited, wrong = _total(facts, "n_audited"), _total(facts, "n_audit_wrong")
    diagnosis = Diagnosis(
        n_chains=n_chains,
        n_draws=n_draws,
        share_of_data=_ratio(used, one_pass_each),
        passes_per_step=_ratio(evaluated, one_pass_each),
        observations_per_second=_ratio(evaluated, seconds + (_total(facts, "audit_time") or 0) if seconds else None),
        steps_per_second=_ratio(steps, seconds),
        acceptance_rate=_ratio(_total(facts, "n_accepted"), steps),
        undecided_share=_ratio(_total(facts, "n_undecided"), steps),
        audit=audit_of(int(audited), int(wrong)) if audited and wrong is not None else None,
        estimates=estimates_of(int(_total(facts, "n_audited_estimates") or 0), _total(facts, "audit_squares") or 0.0),
        fallback_share=_ratio(_total(facts, "n_fallback"), steps) if counts_noise(facts) else None,
        cautions=(),
    )
    if statistics is None:
        statistics = table(idata, percentiles=(), max_rows=affordable(idata))
    cautions = (
        *_missed_modes(facts),
        *_stopped(facts),
        *_left_out(facts),
        *_stuck(idata, facts, n_chains),
        *_nuts_trouble(facts),
        *_unconverged(statistics, n_chains),
        *_wrong_decisions(diagnosis, facts),
        *_noisier(diagnosis, facts),
        *_not_normal(facts),
        *_void_guarantee(facts),
        *_imprecise(statistics, n_chains, n_draws, facts),
        *_poor_moves(diagnosis, facts),
        *_wasted(diagnosis, facts),
    )
    return replace(diagnosis, cautions=cautions)


def _total(facts: dict[str, Any], name: str) -> float | None:
    return sum(facts[name]) if name in facts else None


def _ratio(part: float | None, whole: float | bool | None) -> float | None:
    return part / whole if part is not None and whole else None


def audit_of(n_audited: int, n_wrong: int) -> Audit:
    """Counts of an audit with their Clopper-Pearson interval, through the quantiles of the beta distribution."""
    low = betaincinv(n_wrong, n_audited - n_wrong + 1, 0.025) if n_wrong else 0.0
    high = betaincinv(n_wrong + 1, n_audited - n_wrong, 0.975) if n_wrong < n_audited else 1.0
    return Audit(n_audited, n_wrong, float(low), float(high))


def estimates_of(n_audited: int, squares: float) -> Estimates | None:
    """Squared standardised errors with the limit that the chi-square distribution gives their mean; None of none."""
    if not n_audited:
        return None
    return Estimates(n_audited, squares / n_audited, squares / (2 * float(gammaincinv(n_audited / 2, 0.99))))


def counts_noise(facts: Mapping[str, Any]) -> bool:
    """Whether decisions count the noise of their estimates in."""
    return facts.get("test") in ("barker", "penalty")


def error_level(facts: dict[str, Any]) -> tuple[str, float | None]:
    """The decision error the user accepted: name and value of the option that sets it; None where none is known."""
    if facts.get("test") == "exact":
        return "epsilon", 0.0
    accepted = facts.get("settings", {}).get("max_error")
    if accepted:
        return "max-error", float(accepted)
    names = ("delta", "epsilon") if facts.get("test") in _BOUNDS else ("epsilon", "delta")
    levels = ((name, float(facts[name])) for name in names if name in facts)
    return next(((name, level) for name, level in levels if not math.isnan(level)), (names[0], None))


def _iterations(facts: dict[str, Any], n_draws: int) -> int:
    return int(max(facts["n_steps"])) if "n_steps" in facts else n_draws


def _stopped(facts: dict[str, Any]) -> Iterable[Caution]:
    reason = facts.get("stopped")
    if reason:
        why = {"interrupted": "it was interrupted", "max_time": "--max-time was reached"}.get(reason, str(reason))
        yield Caution(
            f"The run stopped before its last iteration: {why}.",
            "Use these draws only if the checks below say so, or run again to the end.",
        )


def missed_modes(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Modes that no chain has visited (`stansub.tuning.missed.MissedMode`), the gravest first."""
    found: list[dict[str, Any]] = facts.get("mode_check", {}).get("missed", [])
    return found


def _missed_modes(facts: dict[str, Any]) -> Iterable[Caution]:
    """What no chain visited, and modes that are the same but for labels."""
    check = facts.get("mode_check", {})
    for mode in missed_modes(facts):
        above = mode["above"]
        height = f", and its log density is {above:,.1f} above the highest mode that they did" if above > 0 else ""
        places = [
            f"{name} is {there:.3g} (draws: {low:.3g} to {high:.3g})"
            for name, (there, low, high) in mode["values"].items()
        ]
        yield Caution(
            f"Chains missed a mode: about {percent(mode['share'])} of the posterior is where no chain has been"
            f"{height}. There {', '.join(places) or 'nothing lies outside of the draws'}.",
            "Do not use these draws. Run again with another --seed or with --inits near that mode; where modes differ "
            "by their labels, order the parameters in the program.",
        )
    if check.get("failed"):
        yield Caution(
            f"Whether the chains missed a mode could not be found out: {check['reason']}.",
            "Compare with another run: another --seed and other --inits.",
        )
    if names := check.get("interchangeable"):
        yield Caution(
            f"Labels switch: the elements of {', '.join(names)} can change places without changing the posterior, so "
            "that their single means and sds say nothing.",
            "Declare one of them as ordered, or give it priors that tell the elements apart.",
        )


def _left_out(facts: dict[str, Any]) -> Iterable[Caution]:
    if facts.get("left_out"):
        yield Caution(
            f"The {facts['left_out']}.",
            "Look at those blocks of the Stan program; the parameters are as they should be.",
        )


def _stuck(idata: "InferenceData", facts: dict[str, Any], n_chains: int) -> Iterable[Caution]:
    other = "another --seed" if "n_gradients" in facts else "other --inits"
    remedy = (
        f"Drop these draws; run again with a longer --iter-warmup, or {other} if the chain started far from the others."
    )
    values = scalars(idata, limit=affordable(idata))[1]
    constant = (values == values[:1, :1]).all(axis=(0, 1))
    for chain in range(n_chains):
        moving = values[chain][:, ~constant]
        frozen = (moving == moving[0]).all() if moving.size else values.size > 0
        if len(facts.get("n_steps", [])) > chain and "n_accepted" in facts:
            steps, accepted = facts["n_steps"][chain], facts["n_accepted"][chain]
            if steps and accepted / steps < STUCK_BELOW:
                yield Caution(f"Chain {chain + 1} is stuck: it accepted {accepted:,} of {steps:,} proposals.", remedy)
                continue
        if frozen and values.shape[1] > 1:
            yield Caution(f"Chain {chain + 1} never moved.", remedy)


def _nuts_trouble(facts: dict[str, Any]) -> Iterable[Caution]:
    """Divergences (Betancourt 2017, section 6.2) and trees that were cut short, where NUTS made the draws."""
    settings = facts.get("settings", {})
    divergences, limited = _total(facts, "n_divergences"), _total(facts, "n_max_treedepth")
    if divergences:
        yield Caution(
            f"{divergences:,} iterations of NUTS diverged: it may have missed a part of the posterior.",
            f"Raise --adapt-delta above {settings.get('adapt_delta', 0.8):g}; if that does not help, another "
            "parameterisation (--reference-model) may.",
        )
    if limited:
        depth = settings.get("max_treedepth", 10)
        yield Caution(
            f"{limited:,} iterations of NUTS were cut short at tree depth {depth}: the chains move slowly.",
            f"Raise --max-treedepth above {depth}; predictors brought to like scale need shorter trees.",
        )


def _unconverged(statistics: "pd.DataFrame", n_chains: int) -> Iterable[Caution]:
    if n_chains == 1:
        yield Caution(
            "There is one chain only: R-hat needs several, and nothing shows what a single one never visited.",
            "Run --chains 4.",
        )
    high = statistics["r_hat"][statistics["r_hat"] > R_HAT_MAX].sort_values(ascending=False)
    if len(high):
        yield Caution(
            f"R-hat is above {R_HAT_MAX} for {len(high):,} of {len(statistics):,} quantities, "
            f"{_named(high, '{:.2f}')}: the chains do not agree yet.",
            "Double --iter-warmup and --iter-sampling; if that does not help, look at `stansub plot`: "
            "the posterior may have several modes or directions that the data hardly inform.",
        )
    lost = statistics[~np.isfinite(statistics["mean"])]
    if len(lost):
        yield Caution(
            f"{len(lost):,} quantities have draws that are not finite: {', '.join(lost.index[:_WORST])}.",
            "Look at how the Stan program computes them; nothing is known of their accuracy.",
        )


def _imprecise(statistics: "pd.DataFrame", n_chains: int, n_draws: int, facts: dict[str, Any]) -> Iterable[Caution]:
    wanted = ESS_PER_CHAIN * n_chains
    smallest = statistics[["ess_bulk", "ess_tail"]].min(axis=1)
    low = smallest[smallest < wanted].sort_values()
    if n_draws < 4:
        yield Caution(
            f"There are too few draws ({n_draws} a chain) for R-hat and ESS.", "Raise --iter-sampling to 1000."
        )
    elif len(low):
        needed = _round_up(_iterations(facts, n_draws) * wanted / max(low.iloc[0], 1.0))
        converged = not (statistics["r_hat"] > EXTRAPOLATE_BELOW).any()
        yield Caution(
            f"ESS (bulk or tail) is below {wanted} ({ESS_PER_CHAIN} per chain) for {len(low):,} of "
            f"{len(statistics):,} quantities, {_named(low, '{:.0f}')}: their figures are imprecise.",
            f"At this rate --iter-sampling {needed} would do."
            if converged
            else "Make the chains agree first: until then nothing tells how many iterations would do.",
        )


def _wrong_decisions(diagnosis: Diagnosis, facts: dict[str, Any]) -> Iterable[Caution]:
    audit, (option, level) = diagnosis.audit, error_level(facts)
    share = 1.0 if diagnosis.fallback_share is None else diagnosis.fallback_share
    exact = level == 0
    if "n_steps" not in facts or (exact and audit is None):
        return
    if audit is None:
        if diagnosis.estimates is not None:
            return
        yield Caution(
            "No decision was audited: nothing is known about how many went the wrong way.",
            "Raise --audit or --iter-sampling."
            if facts.get("settings", {}).get("audit")
            else "Run with --audit 0.01, which takes one decision in a hundred again on all data.",
        )
    elif audit.low > (level or 0.0):
        yield _too_many_wrong(audit, facts)
    elif not exact and (limit := share * _limit(audit, facts)) > max(2 * (level or 0.0), TOLERABLE):
        wanted = "how many go the wrong way" if level is None else f"whether their error is below {option} = {level:g}"
        yield Caution(
            f"Too few decisions were audited ({audit.n_audited:,}) to tell {wanted}: it may be as large as "
            f"{percent(limit)}.",
            "Raise --audit or --iter-sampling.",
        )


def _too_many_wrong(audit: Audit, facts: dict[str, Any]) -> Caution:
    """More wrong decisions than were accepted, or any where nothing says what is."""
    option, level = error_level(facts)
    remedy = f"Lower --{option}, or use --test exact; the draws may be biased as they are."
    if facts.get("guarantee") == UNKNOWN:
        remedy = "Have the test ask for more, or use the exact test; the draws may be biased as they are."
    elif facts.get("test") in _BOUNDS:
        remedy = "Check the range constants of the program (--range scan needs none), or use --test exact."
    if level is None:
        allowed = f"and the test {facts.get('test')} states no error that it allows"
        remedy = f"State as its attribute epsilon what you accept. {remedy}"
    elif level == 0:
        allowed, remedy = "and an exact test makes none", "Please report this as a bug in stansub."
    elif facts.get("test") == "austerity" and option == "epsilon":
        allowed = f"more than {option} = {level:g}, the level of a single look"
    else:
        allowed = f"more than {option} = {level:g} allows"
    return Caution(
        f"{audit.n_wrong:,} of {audit.n_audited:,} audited decisions were wrong: {percent(audit.rate)} "
        f"({percent(audit.low)} to {percent(audit.high)} with 95 % confidence), {allowed}.",
        remedy,
    )


def _limit(audit: Audit, facts: dict[str, Any]) -> float:
    """What the error of a decision is at most, with 95 % confidence, as far as the run shows.

    The trial decisions of the warmup are decisions held against all the data as audits are; each upper limit fails in
    2.5 % of the cases, so that the smaller of the two fails in 5 % at most. A bound whose range no drawn block has
    broken needs no evidence but that.
    """
    if facts.get("guarantee") == "bound" and not _total(facts, "n_bound_violated"):
        level = error_level(facts)[1]
        return audit.high if level is None else min(audit.high, level)
    trial = facts.get("normality", {})
    return float(min(audit.high, trial.get("wrong_limit", 1.0)))


def _noisier(diagnosis: Diagnosis, facts: dict[str, Any]) -> Iterable[Caution]:
    estimates, share = diagnosis.estimates, diagnosis.fallback_share
    if estimates is not None and estimates.fails:
        yield Caution(
            f"{estimates_told(estimates)}: the {facts['test']} test counts too little noise in, for means of so few "
            "blocks are not normal.",
            "Raise --first-look, or use --test pocock or exact; the draws may be biased as they are.",
        )
    if share is not None and share > FALLBACK_ABOVE:
        yield Caution(
            f"The noise of {percent(share)} of the decisions was too large for the {facts['test']} test: they were "
            "left to pocock.",
            "Use --test pocock, or control variates (--control-variates 2), which make the noise smaller.",
        )


def estimates_told(estimates: Estimates) -> str:
    """What the audit of the estimates gave, in a clause."""
    off, n = math.sqrt(estimates.mean_square), estimates.n_audited
    return f"{n:,} audited estimates were off by {off:.2f} standard errors (root mean square; 1 expected)"


def normality_told(figures: Mapping[str, Any]) -> str:
    """What a normality trial gave (`stansub.acceptance.normality.figures`), in a sentence."""
    return (
        f"|t| beyond its critical value in {percent(figures['observed'])} of {figures['n_subsets']:,} trial subsets of "
        f"{figures['blocks']:,} blocks, {percent(figures['nominal'])} expected; {percent(figures['wrong'])} of "
        f"{figures['n_decisions']:,} trial decisions wrong, at most {percent(figures['promised'])} promised"
    )


def normality_reasons(figures: Mapping[str, Any]) -> Iterable[str]:
    """Why a t-test cannot be trusted, a clause each; none where it can."""

    def interval(low: str, high: str) -> str:
        return f"{percent(figures[low])} to {percent(figures[high])} with 95 % confidence"

    if figures["tail_fails"]:
        equal = figures["undefined"]
        yield (
            f"|t| is beyond its critical value in {percent(figures['observed'])} of random subsets of "
            f"{figures['blocks']:,} blocks ({interval('low', 'high')}), where normal means give "
            f"{percent(figures['nominal'])}"
            + (f"; in {percent(equal)} of them all blocks are equal, so that nothing can be decided" if equal else "")
        )
    if figures["decisions_fail"]:
        yield (
            f"{percent(figures['wrong'])} of simulated decisions go the wrong way "
            f"({interval('wrong_low', 'wrong_high')}), where the test promises at most {percent(figures['promised'])}"
        )


def _not_normal(facts: dict[str, Any]) -> Iterable[Caution]:
    reasons = tuple(normality_reasons(facts["normality"])) if "normality" in facts else ()
    if reasons:
        yield Caution(
            f"The t-test cannot be trusted on these data: {'; and '.join(reasons)}.",
            "Run `stansub diagnose` on the same program and data: it looks for larger blocks or a first look that "
            "would do. --test bernstein-serfling and --test exact do not rely on normal means.",
        )


def _void_guarantee(facts: dict[str, Any]) -> Iterable[Caution]:
    guarantee = str(facts.get("guarantee", ""))
    if guarantee.startswith("void"):
        yield Caution(
            f"The bound's guarantee is void ({guarantee.partition(':')[2].strip() or 'no reason recorded'}).",
            "Give the program a function log_lik_third_derivative_i, log_lik_lipschitz_i or log_lik_range, or have the "
            "range found by a full scan.",
        )
    violated = _total(facts, "n_bound_violated")
    if violated and not guarantee.startswith("void"):
        yield Caution(
            f"In {violated:,} of {_total(facts, 'n_steps') or 0:,} decisions the observations differed by more "
            "than the range given for them: the bound does not hold there.",
            "Correct the range constants of the program: they must hold for every observation.",
        )


def _poor_moves(diagnosis: Diagnosis, facts: dict[str, Any]) -> Iterable[Caution]:
    rate = diagnosis.acceptance_rate
    if rate is not None and rate > TIMID_ABOVE and facts.get("settings", {}).get("proposal") in _RANDOM_WALKS:
        yield Caution(
            f"{percent(rate)} of the proposals were accepted: the steps are too short to explore well.",
            "Raise --iter-warmup, so that the scale of the proposal can adapt.",
        )
    nonfinite = _ratio(_total(facts, "n_nonfinite"), _total(facts, "n_steps"))
    if nonfinite is not None and nonfinite > NONFINITE_ABOVE:
        yield Caution(
            f"{percent(nonfinite)} of the proposals were rejected because the log density was not a number.",
            "Check the constraints declared in the program: parameters may leave the support.",
        )


def _wasted(diagnosis: Diagnosis, facts: dict[str, Any]) -> Iterable[Caution]:
    share = diagnosis.share_of_data
    if share is not None and share > WASTED_ABOVE and error_level(facts)[1] != 0:
        yield Caution(
            f"A decision used {percent(share)} of the data on average: subsampling saved next to nothing.",
            "Use --test exact, which costs the same and makes no decision error.",
        )


def _named(worst: "pd.Series[float]", form: str) -> str:
    shown = worst.iloc[:_WORST]
    return "worst " + ", ".join(f"{name} ({form.format(value)})" for name, value in shown.items())


def percent(share: float) -> str:
    """A share in percent, to two digits."""
    return f"{100 * share:.0f} %" if share == 0 or share >= 0.1 else f"{100 * share:.2g} %"


def _round_up(number: float) -> int:
    """`number` rounded up to two digits."""
    unit: int = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return math.ceil(number / unit) * unit
