"""Sentences about what a run records; findings and choices describe themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stansub.findings import Audit, ErrorLevel
from stansub.wording import percent

if TYPE_CHECKING:
    from stansub.output.record import RunRecord

# Names of transitions of a posterior split into prior and likelihood, by the name of their proposal.
TRANSITIONS = {"surrogate": "surrogate transitions", "gibbs": "Metropolis within Gibbs"}

# Why transitions need no mode, by the name of their proposal.
WITHOUT_MODE = {
    "surrogate": "surrogate transitions expand the likelihood around the posterior, not at its mode",
    "gibbs": "Metropolis within Gibbs moves levels of groupings, not around a mode",
}


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


def modes_at_start(surrogate: Mapping[str, Any]) -> str:
    """Return the result of the search for modes in set-up, from the record of a surrogate; empty without one."""
    n_modes = surrogate.get("n_modes", 1)
    if n_seen := surrogate.get("n_seen"):
        arrived = "trajectories from random starts before sampling arrived at"
        if n_seen == 1:
            return f"{arrived} one mode"
        most = "one that holds" if n_modes == 1 else f"{n_modes} that hold"
        chosen = "each" if n_modes == n_seen else f"the {most} most of the posterior"
        return f"{arrived} {n_seen} modes; chains started at {chosen}"
    if not surrogate.get("n_starts"):
        return ""
    found = "one mode" if n_modes == 1 else f"{n_modes} modes, and chains started at each"
    text = f"{surrogate['n_starts']} climbs of the likelihood from random starts before sampling found {found}"
    if (n_reached := surrogate.get("n_reached")) is None:
        return text
    return f"{text}; {n_reached or 'none of them'} reached the highest maximum"


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
    """Return the result of a run's audit, in a few words: of estimates, unless decisions beside these were wrong."""
    if record.audit is not None and (record.audit.n_wrong or record.estimates is None):
        return f"{record.audit.n_wrong:,} of {record.audit.n_audited:,} audited decisions wrong"
    if record.estimates is not None:
        return f"audited estimates off by {math.sqrt(record.estimates.mean_square):.2f} standard errors"
    if record.acceptances is not None:
        return f"audited acceptance probabilities off by {percent(record.acceptances.mean)}"
    return "none audited"


def one_step_bias(limit: float) -> str:
    """Return a limit on the bias of one step, in a sentence."""
    if not limit:
        return "none: exact decisions leave the posterior unchanged; only convergence and Monte Carlo error remain."
    return (
        f"one step with exact decisions would change the distribution of the draws by at most {percent(limit)} in "
        "total variation (95 % confidence, from the audit). The distance to the posterior may be larger, by a factor "
        "that depends on the mixing of such steps and cannot be measured."
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
