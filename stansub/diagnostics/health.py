"""Checks of one side's draws by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stansub.diagnostics.statistics import Side
from stansub.findings import Finding
from stansub.output.checks import STUCK_BELOW, findings_of
from stansub.output.inference_data import InferenceData, attrs, group, groups
from stansub.output.record import error_level, missed_modes, record_of
from stansub.output.statistics import still


class Health(NamedTuple):
    """Health of one side's draws."""

    n_chains: int
    n_draws: int
    """Chains, and draws of each."""
    nonfinite: tuple[str, ...]
    still: tuple[str, ...]
    """Quantities with draws that are not finite, and quantities that never vary."""
    stuck: tuple[int, ...]
    """Chains, counted from 1, that never moved or accepted almost nothing."""
    n_divergences: int
    """Divergent transitions; 0 if none are recorded."""
    missed_share: float
    """Share of the posterior in modes that a search after sampling found and no chain visited."""
    wrong_decisions: bool
    """Whether audited decisions were wrong significantly more often than accepted, or estimates were further off than
    the noise that was accounted for.
    """
    findings: tuple[Finding, ...]
    """Reasons to distrust the side by itself."""


def examine(idata: InferenceData, names: Sequence[str], side: Side) -> Health:
    """Examine the draws of the compared quantities."""
    import pandas as pd

    finite: NDArray[np.bool_] = np.asarray(np.isfinite(side.values).all(axis=(0, 1)))
    moveless: NDArray[np.bool_] = still(side.values) & finite
    table = pd.DataFrame(
        {name: getattr(side, name) for name in ("mean", "r_hat", "ess_bulk", "ess_tail")}, index=pd.Index(names)
    )
    record = record_of(idata)
    audit, estimates = record.audit, record.estimates
    return Health(
        n_chains=side.values.shape[0],
        n_draws=side.values.shape[1],
        nonfinite=tuple(name for name, sound in zip(names, finite, strict=True) if not sound),
        still=tuple(name for name, found in zip(names, moveless, strict=True) if found),
        stuck=_stuck(idata, side, finite & ~moveless),
        n_divergences=_divergences(idata),
        missed_share=sum(mode.share for mode in missed_modes(attrs(idata))),
        wrong_decisions=(audit is not None and audit.low > (error_level(attrs(idata)).value or 0.0))
        or (estimates is not None and estimates.fails),
        findings=findings_of(idata, statistics=table, record=record),
    )


def _stuck(idata: InferenceData, side: Side, moving: NDArray[np.bool_]) -> tuple[int, ...]:
    facts = attrs(idata)
    steps, accepted = (facts.get(name, []) for name in ("n_steps", "n_accepted"))
    found = []
    for chain, values in enumerate(side.values[:, :, moving]):
        frozen = values.size > 0 and bool((values == values[0]).all())
        idle = len(steps) > chain < len(accepted) and steps[chain] and accepted[chain] / steps[chain] < STUCK_BELOW
        if frozen or idle:
            found.append(chain + 1)
    return tuple(found)


def _divergences(idata: InferenceData) -> int:
    facts = attrs(idata)
    if "n_divergences" in facts:
        return int(np.sum(facts["n_divergences"]))
    stats = group(idata, "sample_stats") if "sample_stats" in groups(idata) else {}
    return int(np.sum(stats["diverging"].values)) if "diverging" in stats else 0
