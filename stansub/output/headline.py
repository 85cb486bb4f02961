"""One sentence about draws: convergence, exactness of decisions and cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stansub import findings, mode_findings
from stansub.findings import Finding
from stansub.output.record import EXACT, RunRecord, error_level, n_decisions, total
from stansub.output.words import short_audit, with_level
from stansub.wording import duration, percent

if TYPE_CHECKING:
    import pandas as pd

_APART = (mode_findings.MissedMode, findings.StuckChain, findings.StuckChains, findings.HighRHat)
_FEW = (findings.TooFewDraws, findings.LowEss)


def headline(statistics: pd.DataFrame, record: RunRecord, facts: Mapping[str, Any], found: Sequence[Finding]) -> str:
    """Return convergence, exactness and cost of a run in one sentence.

    Parameters
    ----------
    statistics : DataFrame
        A row for each quantity, as `stansub.output.statistics.table` returns it.
    found : sequence of Finding
        Findings of the checks, which decide whether the sentence says "Converged".
    """
    return "; ".join([_converged(statistics, found), *_decisions(record, facts), *_cost(record, facts)]) + "."


def _converged(statistics: pd.DataFrame, found: Sequence[Finding]) -> str:
    kinds = tuple(map(type, found))
    figures = []
    r_hat, ess = float(statistics["r_hat"].max()), float(statistics[["ess_bulk", "ess_tail"]].min().min())
    if math.isfinite(r_hat):
        figures.append(f"R-hat {r_hat:.3f}")
    if math.isfinite(ess):
        figures.append(f"ESS {ess:,.0f}")
    if not figures:
        return "Convergence not checked"
    if any(kind in _APART for kind in kinds):
        verdict = "Not converged"
    elif findings.OneChain in kinds:
        verdict = "One chain, convergence not checked"
    else:
        verdict = "Too few effective draws" if any(kind in _FEW for kind in kinds) else "Converged"
    return f"{verdict} ({', '.join(figures)})"


def _decisions(record: RunRecord, facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield how far single decisions can be trusted; nothing if the draws do not record it."""
    if "n_gradients" in facts:
        yield f"NUTS with {total(facts, 'n_divergences') or 0:,.0f} divergences"
    elif "test" in facts and n_decisions(facts) == 0:
        yield "no accept/reject decisions"
    elif "test" in facts:
        guarantee, audit = str(facts.get("guarantee", "")), short_audit(record)
        if guarantee in EXACT and not (record.audit and record.audit.n_wrong):
            yield "exact"
        else:
            kind = "error bounded" if guarantee == "bound" else "approximate"
            yield f"{kind} ({with_level(str(facts['test']), error_level(facts))}, {audit})"


def _cost(record: RunRecord, facts: Mapping[str, Any]) -> Iterator[str]:
    parts = []
    if record.share_of_data is not None:
        used = observations(record.share_of_data, facts["n_observations"])
        unit = "of the data" if "%" in used else "observation" if used == "1" else "observations"
        parts.append(f"{used} {unit} a decision" if record.share_of_data else "decisions need no data")
    elif record.passes_per_step is not None:
        passes = f"{record.passes_per_step:.2g}"
        parts.append(f"{passes} pass{'es' * (passes != '1')} over the data a step")
    elif "n_gradients" in facts:
        gradients = sum(total(facts, name) or 0 for name in ("n_gradients", "warmup_n_gradients"))
        parts.append(f"{gradients:,.0f} gradient evaluations")
    if "wall_time" in facts:
        times = ("compile_time", "setup_time", "wall_time", "quantities_time")
        parts.append(duration(sum(facts.get(name, 0.0) for name in times)))
    yield from parts


def observations(share: float, n_observations: int) -> str:
    """Return the mean number of observations of a decision, or their share if there are many."""
    used = share * n_observations  # exact decisions by bounds usually use no data
    return f"{used:.2g}" if used < 10 else percent(share)
