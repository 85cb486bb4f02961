"""What is said of a run: speed, cost, and agreement with the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from suite.base import Run
from suite.reference import Reference

if TYPE_CHECKING:
    import pandas as pd

ESS_WANTED = 400
# What draws must keep to: posterior means, standard deviations, R-hat of draws and reference pooled.
MEAN_LIMIT_SD, SD_RATIO_LIMITS, R_HAT_LIMIT = 0.1, (0.95, 1.05), 1.01
_ERRORS = 3.0

FIGURES = (
    "ess_bulk_min_per_s",
    "ess_tail_min_per_s",
    "time_to_ess400_s",
    "ess_bulk_min",
    "ess_tail_min",
    "startup_s",
    "load_s",
    "setup_s",
    "warmup_s",
    "sampling_s",
    "audit_s",
    "other_s",
    "total_s",
    "passes",
    "ess_per_pass",
    "mean_diff_sd_max",
    "mean_diff_mcse",
    "mean_diff_z_max",
    "sd_ratio_min",
    "sd_ratio_max",
    "sd_ratio_mcse",
    "r_hat_max",
    "r_hat_pooled_max",
    "dim",
    "chains",
)


def measure(run: Run, reference: Reference, *, startup: float, total: float) -> dict[str, Any]:
    """Figures of a run over the parameters of the program.

    Parameters
    ----------
    startup, total : float
        Seconds from the start of the process to the start of the engine, and to its draws being there.

    Notes
    -----
    ``time_to_ess400_s`` is everything but sampling and compiling, and the time in which sampling, its audits included,
    makes 400 effective draws (bulk and tail) at its rate; where the run was shorter or longer this is an extrapolation.

    A mean difference and its Monte Carlo standard error are in sds of the reference, both of the worst parameter.
    """
    draws, pooled = _tables(run.draws, reference.draws)
    own, other = draws
    if run.ess is not None:
        own["ess_bulk"] = own["ess_tail"] = run.ess
        own["mcse_mean"], own["mcse_sd"] = own["sd"] / np.sqrt(run.ess), own["sd"] / np.sqrt(2 * run.ess)
    bulk, tail = float(own["ess_bulk"].min()), float(own["ess_tail"].min())
    difference = (own["mean"] - other["mean"]).abs() / other["sd"]
    error = np.hypot(own["mcse_mean"], other["mcse_mean"]) / other["sd"]
    ratio = own["sd"] / other["sd"]
    ratio_error = ratio * np.hypot(own["mcse_sd"] / own["sd"], other["mcse_sd"] / other["sd"])
    parts = {
        "startup_s": startup,
        "load_s": run.load_s,
        "setup_s": run.setup_s,
        "warmup_s": run.warmup_s,
        "sampling_s": run.sampling_s,
        "audit_s": run.audit_s,
    }
    low, high = SD_RATIO_LIMITS
    surely_off = (
        bool((difference - _ERRORS * error > MEAN_LIMIT_SD).any())
        or bool((ratio + _ERRORS * ratio_error < low).any())
        or bool((ratio - _ERRORS * ratio_error > high).any())
        or (pooled > R_HAT_LIMIT and min(bulk, tail) >= ESS_WANTED)
    )
    within = difference.max() < MEAN_LIMIT_SD and low < ratio.min() and ratio.max() < high and pooled < R_HAT_LIMIT
    seconds, audited = run.sampling_s, run.sampling_s + run.audit_s
    return {
        **parts,
        "other_s": total - sum(parts.values()) - run.compile_s,
        "total_s": total - run.compile_s,
        "ess_bulk_min": bulk,
        "ess_tail_min": tail,
        "ess_bulk_min_per_s": bulk / seconds,
        "ess_tail_min_per_s": tail / seconds,
        "time_to_ess400_s": total - run.compile_s - audited + ESS_WANTED * audited / min(bulk, tail),
        "passes": run.warmup_passes + run.sampling_passes,
        "ess_per_pass": min(bulk, tail) / run.sampling_passes,
        "mean_diff_sd_max": float(difference.max()),
        "mean_diff_mcse": float(error[difference.idxmax()]),
        "mean_diff_z_max": float((difference / error).max()),
        "sd_ratio_min": float(ratio.min()),
        "sd_ratio_max": float(ratio.max()),
        "sd_ratio_mcse": float(ratio_error.max()),
        "r_hat_max": float(own["r_hat"].max()) if run.ess is None else float("nan"),
        "r_hat_pooled_max": pooled,
        "agrees": "no" if surely_off else "yes" if within else "unclear",
        "reference": reference.about,
        "dim": len(own),
        "chains": len(next(iter(run.draws.values()))),
        "notes": [*run.notes, *_remarks(bulk, tail, own)],
    }


def _remarks(bulk: float, tail: float, own: pd.DataFrame) -> list[str]:
    few = min(bulk, tail)
    remarks = []
    if few < ESS_WANTED:
        remarks.append(f"smallest ESS {few:.0f}: the time to {ESS_WANTED} is extrapolated")
    if own["r_hat"].max() > R_HAT_LIMIT:
        remarks.append("R-hat of the run itself is too high: its ESS is not to be believed")
    return remarks


def _tables(
    draws: Mapping[str, NDArray[Any]], reference: Mapping[str, NDArray[Any]]
) -> tuple[tuple[pd.DataFrame, pd.DataFrame], float]:
    """Statistics of both sides, and the largest R-hat of both pooled, over what the reference has."""
    from stansub.output import inference_data
    from stansub.output.statistics import table

    own = {name: np.asarray(draws[name], dtype=float) for name in reference}
    pooled = {name: np.concatenate(_same_length(own[name], reference[name])) for name in reference}
    frames = [
        table(inference_data.build(posterior=one, sample_stats={}, attrs={}), percentiles=())
        for one in (own, reference, pooled)
    ]
    return (frames[0], frames[1]), float(frames[2]["r_hat"].max())


def _same_length(one: NDArray[Any], two: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Chains thinned evenly to the length of the shorter ones."""
    n = min(one.shape[1], two.shape[1])
    a, b = (values[:, np.linspace(0, values.shape[1] - 1, n).astype(int)] for values in (one, two))
    return a, b
