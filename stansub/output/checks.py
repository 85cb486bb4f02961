"""Checks of draws, which return reasons to distrust them as findings.

Checks claim only what the run showed: decision errors come from its audit, with their interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy

from stansub import decision_findings, findings, mode_findings
from stansub.decision_findings import HeavyTail, TrialDecisionsWrong
from stansub.decision_selection import ExactAlong, ExactOfFew, ExactOfSmall
from stansub.findings import Audit, Finding, Quantities
from stansub.output.inference_data import InferenceData, attrs
from stansub.output.record import (
    BOUNDS,
    UNKNOWN,
    RunRecord,
    error_level,
    missed_modes,
    n_decisions,
    ratio,
    record_of,
    total,
    visited_modes,
)
from stansub.output.statistics import affordable, scalars, table
from stansub.output.words import WITHOUT_MODE

if TYPE_CHECKING:
    import pandas as pd


R_HAT_MAX = 1.01
ESS_PER_CHAIN = 100
# R-hat above which the ESS does not predict a longer run.
_EXTRAPOLATE_BELOW = 1.1
STUCK_BELOW = 0.01
# Acceptance rate of transitions below which nothing mixes.
LEAST_ACCEPTED = 0.05
# Seconds of transformed parameters and generated quantities, and their share of a run, from which it could be shorter.
_SLOW_SECONDS, _SLOW_SHARE = 30.0, 0.25
_TIMID_ABOVE = 0.8
_NONFINITE_ABOVE = 0.05
# Share of the data from which NUTS may be faster, and from which exact decisions cost the same.
_LITTLE_SAVED_ABOVE, _WASTED_ABOVE = 0.5, 0.9
# A possible decision error that neither audits nor trial decisions exclude gives a warning if it is more than twice the
# promise and more than this.
_TOLERABLE = 0.02
_FALLBACK_ABOVE = 0.2
# Parts of a run; with a decreasing error level, the decisions of each part are compared with their own levels.
_PARTS = 4
# Maximum number of quantities that a finding names.
_WORST = 3
_RANDOM_WALKS = ("random-walk", "adaptive-metropolis")


class _Run(NamedTuple):
    """Input of the checks: the draws, their statistics, what was recorded, and figures derived from that."""

    idata: InferenceData
    statistics: pd.DataFrame
    facts: Mapping[str, Any]
    record: RunRecord


def findings_of(
    idata: InferenceData, *, statistics: pd.DataFrame | None = None, record: RunRecord | None = None
) -> tuple[Finding, ...]:
    """Return all reasons to distrust these draws, the most serious first.

    Parameters
    ----------
    statistics : DataFrame, optional
        Result of `table`, if it exists already. By default it is computed for as many quantities as a few seconds
        allow.
    record : RunRecord, optional
        Result of `record_of`, if it exists already.
    """
    if statistics is None:
        statistics = table(idata, percentiles=(), max_rows=affordable(idata))
    run = _Run(idata, statistics, attrs(idata), record or record_of(idata))
    return tuple(found for check in _CHECKS for found in check(run))


def _modes(run: _Run) -> Iterable[Finding]:
    yield from missed_modes(run.facts)
    check = run.facts.get("mode_check", {})
    if check.get("failed"):
        yield mode_findings.ModesUnchecked(check["reason"])
    surrogate, enough = run.facts.get("choice_values", {}).get("surrogate", {}), mode_findings.ENOUGH_CLIMBS
    if surrogate.get("n_starts") and surrogate.get("n_reached", enough) < enough:
        yield mode_findings.FewClimbs(surrogate["n_reached"], surrogate["n_starts"])
    if (n_seen := surrogate.get("n_seen", 0)) > (n_modes := surrogate.get("n_modes", 1)):
        yield mode_findings.ModesLeft(n_seen, n_modes, surrogate.get("behind"))
    if copies := run.facts.get("choice_values", {}).get("labels"):
        yield mode_findings.OneOfCopies(tuple(copies.get("permuted", ())), dict(copies.get("becomes", {})))
    visited = visited_modes(run.facts)
    found = list(visited.findings()) if visited is not None else []
    known = any(isinstance(one, mode_findings.LabelsSwitch) for one in found)
    if (names := check.get("interchangeable")) and not known:
        yield mode_findings.LabelsSwitch(tuple(names))
    yield from found


def _ended_early(run: _Run) -> Iterable[Finding]:
    if reason := run.facts.get("stopped"):
        yield findings.Stopped(str(reason))
    elif (check := run.facts.get("last_check")) and not check["reached"]:
        asked = str(run.facts.get("settings", {}).get("until"))
        yield findings.NotPreciseEnough(asked, check["quantity"], check["ess"], check.get("r_hat"))
    if what := run.facts.get("left_out"):
        yield findings.LeftOut(str(what))


def _slow_quantities(run: _Run) -> Iterable[Finding]:
    seconds = run.facts.get("quantities_time", 0.0)
    share = seconds / max(seconds + run.facts.get("setup_time", 0.0) + run.facts.get("wall_time", 0.0), 1e-9)
    if seconds >= _SLOW_SECONDS and share >= _SLOW_SHARE:
        yield findings.SlowQuantities(seconds, share)


def _stuck_chains(run: _Run) -> Iterable[Finding]:
    stuck = list(_each_stuck_chain(run))
    for found in ([one for one in stuck if one.n_steps == n] for n in dict.fromkeys(one.n_steps for one in stuck)):
        yield found[0] if len(found) == 1 else findings.StuckChains(tuple(found))


def _each_stuck_chain(run: _Run) -> Iterable[findings.StuckChain]:
    facts, of_nuts, of_all = run.facts, "n_gradients" in run.facts, _hardly_moves(run.facts)
    n_modes = _modes_of_starts(facts)
    values = scalars(run.idata, limit=affordable(run.idata))[1]
    constant = (values == values[:1, :1]).all(axis=(0, 1))
    for chain in range(run.record.n_chains):
        moving = values[chain][:, ~constant]
        frozen = (moving == moving[0]).all() if moving.size else values.size > 0
        if len(facts.get("n_steps", [])) > chain and "n_accepted" in facts:
            steps, accepted = facts["n_steps"][chain], facts["n_accepted"][chain]
            if steps and accepted / steps < STUCK_BELOW:
                yield findings.StuckChain(chain + 1, int(accepted), int(steps), of_nuts, of_all, n_modes)
                continue
        if frozen and values.shape[1] > 1:
            yield findings.StuckChain(chain + 1, None, None, of_nuts, of_all, n_modes)


def _nuts_trouble(run: _Run) -> Iterable[Finding]:
    settings = run.facts.get("settings", {})
    if divergences := total(run.facts, "n_divergences"):
        yield findings.Divergences(int(divergences), settings.get("adapt_delta", 0.8))
    if limited := total(run.facts, "n_max_treedepth"):
        yield findings.TreesCutShort(int(limited), settings.get("max_treedepth", 10))


def _convergence(run: _Run) -> Iterable[Finding]:
    statistics = run.statistics
    if run.record.n_chains == 1:
        yield findings.OneChain()
    high = statistics["r_hat"][statistics["r_hat"] > R_HAT_MAX].sort_values(ascending=False)
    if len(high):
        choices = run.facts.get("choice_values", {})
        left, visited = choices.get("surrogate transitions", {}), visited_modes(run.facts)
        # Products do not matter to moves around the mode of a posterior that is nearly normal.
        products = choices.get("products", {}).get("effects", ()) if left.get("normal") is None else ()
        yield findings.HighRHat(
            R_HAT_MAX,
            _failing(high, len(statistics)),
            effects=tuple(products) if run.facts.get("settings", {}).get("proposal") != "gibbs" else (),
            no_mode=_no_mode(run.facts),
            hardly_moves=_hardly_moves(run.facts),
            signs=tuple(map(tuple, choices.get("signs", {}).get("names", ()))),
            n_modes=_modes_of_starts(run.facts),
            copies=visited.are_copies if visited is not None else None,
            no_surrogate=_no_surrogate(left),
            stopped=bool(run.facts.get("stopped")),
        )
    lost = statistics[~np.isfinite(statistics["mean"])]
    if len(lost):
        yield findings.NotFinite(len(lost), tuple(lost.index[:_WORST]))


def _no_surrogate(left: Mapping[str, Any]) -> str:
    """Return why surrogate transitions, which suit effects with an unknown scale, were not possible."""
    reason = left.get("reason", "") if left.get("effects") else ""
    return f"surrogate transitions are not possible ({reason})" if reason else ""


def _modes_of_starts(facts: Mapping[str, Any]) -> int:
    """Return the modes of the posterior at which chains of surrogate transitions started."""
    return int(facts.get("choice_values", {}).get("surrogate", {}).get("n_modes", 1))


def _hardly_moves(facts: Mapping[str, Any]) -> bool:
    """Return whether set-up showed that the chains would hardly move, or surrogate transitions hardly did."""
    choices = facts.get("choice_values", {})
    if any(one.get("hardly_moves") for one in choices.values()):
        return True
    steps, accepted = sum(facts.get("n_steps", ())), sum(facts.get("n_accepted", ()))
    return "diverging" in choices.get("proposal", {}) and accepted < LEAST_ACCEPTED * steps


def _no_mode(facts: Mapping[str, Any]) -> str:
    """Return why the search before sampling found no mode, without the remedy that the run itself took."""
    reason = str(facts.get("choices", {}).get("control variates", "")).removeprefix("none: ")
    return reason.removesuffix(", or sample with `control_variates=0`") if reason.startswith("no mode: ") else ""


def _wrong_at_their_level(run: _Run) -> Iterable[Finding]:
    """Yield findings of a run with decreasing error level: each quarter compared with its own levels.

    The number of wrong ones among many decisions with small error probabilities is nearly Poisson. Each part is tested
    at a level of 2.5 % divided by their number.
    """
    audits = run.facts.get("audit_by_level", [])
    parts = [part for part in np.array_split(np.arange(len(audits)), _PARTS) if part.size]
    wrong = []
    for part in parts:
        own = [audits[place] for place in part]
        n_wrong, expected = sum(one["n_wrong"] for one in own), sum(one["n_audited"] * one["level"] for one in own)
        if n_wrong and scipy.special.gammainc(n_wrong, expected) < 0.025 / len(parts):
            n = sum(one["n_audited"] for one in own)
            wrong.append(decision_findings.LevelAudit(own[0]["level"], own[-1]["level"], n, n_wrong, expected))
    if wrong:
        yield decision_findings.WrongAtTheirLevel(tuple(wrong))


def _wrong_decisions(run: _Run) -> Iterable[Finding]:
    if run.facts.get("audit_by_level"):
        yield from _wrong_at_their_level(run)
        return
    record, level = run.record, error_level(run.facts)
    audit, accepted, exact = record.audit, level.value or 0.0, level.value == 0
    if not n_decisions(run.facts) or (exact and audit is None):
        return
    if audit is None:
        if record.estimates is None and record.acceptances is None:
            yield decision_findings.NoAudit(asked_for=bool(run.facts.get("settings", {}).get("audit")))
    elif audit.low > accepted:
        test = str(run.facts.get("test"))
        yield decision_findings.WrongDecisions(
            audit,
            level,
            test,
            own_test=run.facts.get("guarantee") == UNKNOWN,
            bound=test in BOUNDS,
            per_look=test == "austerity" and level.option == "epsilon",
        )
    elif not exact:
        share = 1.0 if record.fallback_share is None else record.fallback_share
        limit = share * _error_limit(audit, run.facts)
        if limit > max(2 * accepted, _TOLERABLE):
            yield decision_findings.TooFewAudits(audit.n_audited, level, limit)


def _error_limit(audit: Audit, facts: Mapping[str, Any]) -> float:
    """Return an upper limit of the error of a decision, with 95 % confidence, as far as the run shows.

    The trial decisions of the warmup are compared with all the data, as audits are. Each upper limit fails in 2.5 % of
    the cases, so the smaller of the two fails in at most 5 %. A bound needs no evidence but that no drawn block
    violated its range.
    """
    if facts.get("guarantee") == "bound" and not total(facts, "n_bound_violated"):
        level = error_level(facts).value
        return audit.high if level is None else min(audit.high, level)
    trial = facts.get("normality", {})
    return float(min(audit.high, trial.get("wrong_limit", 1.0)))


def _noise(run: _Run) -> Iterable[Finding]:
    estimates, share, test = run.record.estimates, run.record.fallback_share, str(run.facts.get("test"))
    if estimates is not None and estimates.fails:
        yield decision_findings.NoiseUnderestimated(estimates, test)
    if share is not None and share > _FALLBACK_ABOVE:
        yield decision_findings.NoiseTooLarge(share, test)


def normality_fails(figures: Mapping[str, Any]) -> tuple[HeavyTail | TrialDecisionsWrong, ...]:
    """Return why a t-test cannot be trusted, from `stansub.acceptance.normality.figures`; empty if it can."""
    reasons: list[HeavyTail | TrialDecisionsWrong] = []
    if figures["tail_fails"]:
        reasons.append(
            HeavyTail(**{name: figures[name] for name in ("blocks", "observed", "low", "high", "nominal", "undefined")})
        )
    if figures["decisions_fail"]:
        values = (figures[name] for name in ("wrong", "wrong_low", "wrong_high", "promised"))
        reasons.append(TrialDecisionsWrong(*values))
    return tuple(reasons)


def _normality(run: _Run) -> Iterable[Finding]:
    if "normality" in run.facts and (reasons := normality_fails(run.facts["normality"])):
        yield decision_findings.NormalityFails(reasons)


def _bounds(run: _Run) -> Iterable[Finding]:
    kind, _, reason = str(run.facts.get("guarantee", "")).partition(":")
    acceptances, n_violated = run.record.acceptances, int(total(run.facts, "n_bound_violated") or 0)
    if acceptances is not None:
        accepted = error_level(run.facts).value or _TOLERABLE
        if acceptances.limit > accepted:
            yield decision_findings.BoundsTooSmall(acceptances, accepted, n_violated)
    elif kind == "void":
        yield decision_findings.VoidGuarantee(reason.strip())
    elif n_violated:
        yield decision_findings.RangeViolated(n_violated, int(total(run.facts, "n_steps") or 0))


def _precision(run: _Run) -> Iterable[Finding]:
    statistics, n_chains, n_draws = run.statistics, run.record.n_chains, run.record.n_draws
    wanted = ESS_PER_CHAIN * n_chains
    smallest = statistics[["ess_bulk", "ess_tail"]].min(axis=1)
    low = smallest[smallest < wanted].sort_values()
    if n_draws < 4:
        yield findings.TooFewDraws(n_draws)
    elif len(low):
        iterations = max(run.facts["n_steps"]) if "n_steps" in run.facts else n_draws
        needed = _round_up(int(iterations) * wanted / max(low.iloc[0], 1.0))
        converged = not (statistics["r_hat"] > _EXTRAPOLATE_BELOW).any()
        yield findings.LowEss(
            wanted, ESS_PER_CHAIN, _failing(low, len(statistics)), iterations=needed if converged else None
        )


def _moves(run: _Run) -> Iterable[Finding]:
    rate, facts = run.record.acceptance_rate, run.facts
    if rate is not None and rate > _TIMID_ABOVE and facts.get("settings", {}).get("proposal") in _RANDOM_WALKS:
        yield decision_findings.ShortSteps(rate)
    nonfinite = ratio(total(facts, "n_nonfinite"), n_decisions(facts))
    if nonfinite is not None and nonfinite > _NONFINITE_ABOVE:
        yield decision_findings.NonfiniteProposals(nonfinite)
    share, proposal = run.record.share_of_data, facts.get("settings", {}).get("proposal")
    # Surrogate transitions need few decisions; exact decisions from all data may be the user's choice, or the data few.
    # Trajectories on the posterior itself are NUTS already.
    chosen = facts.get("choice_values", {}).get("test", {}).get("kind")
    few = chosen in (one.__name__ for one in (ExactOfSmall, ExactOfFew, ExactAlong))
    asked = proposal in WITHOUT_MODE or facts.get("asked", {}).get("test") == "exact" or "engine" in facts
    # Moves between modes need many observations, and NUTS does not mix between them either.
    several = visited_modes(facts) is not None
    if share is not None and share > _LITTLE_SAVED_ABOVE and not (few or asked or several):
        exact_instead = share > _WASTED_ABOVE and error_level(facts).value != 0
        yield decision_findings.LittleSaved(share, exact_instead, facts.get("form") == "functions")


# The most serious first.
_CHECKS = (
    _modes,
    _ended_early,
    _stuck_chains,
    _nuts_trouble,
    _convergence,
    _wrong_decisions,
    _noise,
    _normality,
    _bounds,
    _precision,
    _moves,
    _slow_quantities,
)


def _failing(values: pd.Series[float], n_checked: int) -> Quantities:
    """Return quantities that fail a check, the worst first, from all their values in order."""
    worst = tuple((str(name), float(value)) for name, value in values.iloc[:_WORST].items())
    return Quantities(len(values), n_checked, worst)


def _round_up(number: float) -> int:
    """Return `number` rounded up to two digits."""
    unit: int = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return math.ceil(number / unit) * unit
