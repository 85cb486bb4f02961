"""Facts that draws record of their run: cost, audit and accepted error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import scipy

from stansub.findings import Acceptances, Audit, ErrorLevel, Estimates
from stansub.mode_findings import MissedMode, VisitedModes
from stansub.output.inference_data import InferenceData, attrs, group

# Guarantees of tests that are not of this package, and of thinning tests with learned bounds.
UNKNOWN, LEARNED = "unknown", "approximate: bounds learned"
# Guarantees of decisions that are those of an exact kernel.
EXACT = ("exact", "exact by proved bounds")
# Tests that decide by thinning, and by concentration bounds.
THINNED = ("factorised", "poisson")
BOUNDS = ("hoeffding", "bernstein", "bernstein-serfling")


@dataclass(frozen=True)
class RunRecord:
    """Cost of a run and result of its audit; None for figures that the draws do not record."""

    n_chains: int
    n_draws: int
    """Chains, and draws kept of each."""
    share_of_data: float | None
    """Mean share of the observations that a decision drew."""
    passes_per_step: float | None
    """Observations evaluated per step over the number of observations: both ends of a decision, audits and range scans,
    without values known from earlier decisions.
    """
    observations_per_second: float | None
    steps_per_second: float | None
    """Observations evaluated and steps taken per second of one chain's sampling time."""
    acceptance_rate: float | None
    undecided_share: float | None
    """Shares of the decisions that accepted, and whose test used all observations."""
    audit: Audit | None
    """None if no decision was audited."""
    estimates: Estimates | None
    """None if no estimate of a test that accounts for noise was audited."""
    fallback_share: float | None
    """Share of the decisions whose noise was too large, so that the fallback test decided; None for other tests."""
    acceptances: Acceptances | None
    """None if no acceptance probability with learned bounds was audited."""


def record_of(idata: InferenceData) -> RunRecord:
    """Return the cost of a run and what its audit showed.

    Notes
    -----
    The audit's interval treats audited decisions as independent. It is about single decisions: the error of the
    posterior also depends on the mixing of the chain (Korattikara et al. 2014, theorem 1).
    """
    facts = attrs(idata)
    posterior = group(idata, "posterior")
    steps, seconds = total(facts, "n_steps"), total(facts, "sampling_time")
    used, evaluated = total(facts, "n_obs_used"), total(facts, "n_obs_evaluated")
    n_observations, decisions = facts.get("n_observations"), n_decisions(facts)
    audited, wrong = of_decisions(facts, "n_audited"), of_decisions(facts, "n_audit_wrong")
    return RunRecord(
        n_chains=posterior.sizes["chain"],
        n_draws=posterior.sizes["draw"],
        share_of_data=ratio(used, decisions and n_observations and decisions * n_observations),
        passes_per_step=ratio(evaluated, steps and n_observations and steps * n_observations),
        observations_per_second=ratio(evaluated, seconds + (total(facts, "audit_time") or 0) if seconds else None),
        steps_per_second=ratio(steps, seconds),
        acceptance_rate=ratio(of_decisions(facts, "n_accepted"), decisions),
        undecided_share=ratio(of_decisions(facts, "n_undecided"), decisions),
        audit=audit_of(int(audited), int(wrong)) if audited and wrong is not None else None,
        estimates=estimates_of(int(total(facts, "n_audited_estimates") or 0), total(facts, "audit_squares") or 0.0),
        fallback_share=ratio(total(facts, "n_fallback"), decisions) if counts_noise(facts) else None,
        acceptances=acceptances_of(
            int(total(facts, "n_audited_acceptances") or 0), total(facts, "acceptance_error") or 0.0
        ),
    )


def total(facts: Mapping[str, Any], name: str) -> float | None:
    """Return the sum over the chains; None if it is not recorded."""
    return sum(facts[name]) if name in facts else None


def n_decisions(facts: Mapping[str, Any]) -> float | None:
    """Return the decisions of all chains: one per step, except for kernels made of several."""
    return total(facts, "n_decisions" if "n_decisions" in facts else "n_steps")


def of_decisions(facts: Mapping[str, Any], name: str) -> float | None:
    """Return the sum over all decisions of a count that combined kernels have only through their parts."""
    if "n_decisions" not in facts:
        return total(facts, name)
    parts = [one for one in facts if one.endswith(f".{name}") and f"{one.removesuffix(name)}n_decisions" not in facts]
    return sum(sum(facts[one]) for one in parts)


def ratio(part: float | None, whole: float | bool | None) -> float | None:
    """Return the ratio; None if either is missing or the denominator is 0."""
    return part / whole if part is not None and whole else None


def audit_of(n_audited: int, n_wrong: int) -> Audit:
    """Return the counts of an audit with their Clopper-Pearson interval, from quantiles of the beta distribution."""
    low = scipy.special.betaincinv(n_wrong, n_audited - n_wrong + 1, 0.025) if n_wrong else 0.0
    high = scipy.special.betaincinv(n_wrong + 1, n_audited - n_wrong, 0.975) if n_wrong < n_audited else 1.0
    return Audit(n_audited, n_wrong, float(low), float(high))


def estimates_of(n_audited: int, squares: float) -> Estimates | None:
    """Return the mean squared standardised error with its chi-square limit; None without audited estimates."""
    if not n_audited:
        return None
    return Estimates(
        n_audited, squares / n_audited, squares / (2 * float(scipy.special.gammaincinv(n_audited / 2, 0.99)))
    )


def acceptances_of(n_audited: int, error: float) -> Acceptances | None:
    """Return the mean error of audited acceptance probabilities with a distribution-free limit; None without any.

    Each error lies between 0 and 1, so a mean of m or less has a probability of at most exp(-n kl(m, mu)) if the
    expectation is mu, where kl is the Kullback-Leibler divergence of Bernoulli distributions (Hoeffding 1963, theorem
    1). The limit is the mu at which this is 2.5 %; without any error it is that of Clopper and Pearson.
    """
    if not n_audited:
        return None
    mean = error / n_audited

    def excess(mu: float) -> float:
        return (
            float(scipy.special.rel_entr(mean, mu) + scipy.special.rel_entr(1 - mean, 1 - mu))
            + math.log(0.025) / n_audited
        )

    limit = float(scipy.optimize.brentq(excess, mean, 1 - 1e-12)) if excess(1 - 1e-12) > 0 else 1.0
    return Acceptances(n_audited, mean, limit)


def step_bias(record: RunRecord, facts: Mapping[str, Any]) -> float | None:
    """Return a limit on the total variation by which a step with exact decisions would move the draws' distribution.

    A step with exact decisions and one with the run's own, from the same state, proposal and uniform number, differ
    only if the decision is wrong. The distributions after them therefore differ by at most the mean share of wrong
    decisions over the states of the chain, for which the audit gives an upper limit: the epsilon of Johndrow et al.
    (2015), theorem 2.3, as far as its proof needs it. With learned bounds it is the mean error of the acceptance
    probability.

    Returns
    -------
    float or None
        0 if decisions are exact. None if nothing was audited, a step has more than one decision, or decisions are not
        meant to be those of an exact kernel.
    """
    if record.estimates is not None or counts_noise(facts) or "n_decisions" in facts:
        return None
    if facts.get("guarantee") in EXACT and not (record.audit and record.audit.n_wrong):
        return 0.0
    if record.acceptances is not None:
        return record.acceptances.limit
    return record.audit.high if record.audit is not None else None


def counts_noise(facts: Mapping[str, Any]) -> bool:
    """Return whether decisions account for the noise of their estimates."""
    return facts.get("test") in ("barker", "penalty")


def error_level(facts: Mapping[str, Any]) -> ErrorLevel:
    """Return the decision error that the user accepted."""
    if facts.get("test") == "exact" or (facts.get("test") in THINNED and facts.get("guarantee") != LEARNED):
        return ErrorLevel("epsilon", 0.0)
    accepted = facts.get("settings", {}).get("max_error")
    if accepted:
        return ErrorLevel("max_error", float(accepted))
    names = ("delta", "epsilon") if facts.get("test") in BOUNDS else ("epsilon", "delta")
    levels = ((name, float(facts[name])) for name in names if name in facts)
    known = (ErrorLevel(name, value) for name, value in levels if not math.isnan(value))
    return next(known, ErrorLevel(names[0], None))


def missed_modes(facts: Mapping[str, Any]) -> tuple[MissedMode, ...]:
    """Return modes that no chain visited, the most serious first."""
    return tuple(MissedMode(**mode) for mode in facts.get("mode_check", {}).get("missed", []))


def visited_modes(facts: Mapping[str, Any]) -> VisitedModes | None:
    """Return the modes from which the draws are; None if it is one, or unknown."""
    return VisitedModes.of_record(facts["visited_modes"]) if "visited_modes" in facts else None
