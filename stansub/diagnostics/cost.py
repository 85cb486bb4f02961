"""Cost of both samplers in full: seconds, evaluations, and each per effective draw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stansub.diagnostics.statistics import Side
from stansub.output.record import n_decisions, of_decisions
from stansub.output.statistics import still

if TYPE_CHECKING:
    import pandas as pd

ESS_WANTED = 400

# name: (label, which direction is better)
_FIGURES = {
    "compile_time": ("compiling, s", "lower"),
    "setup_time": ("reading data and setting up, s", "lower"),
    "warmup_time": ("warmup, s", "lower"),
    "sampling_time": ("sampling, s", "lower"),
    "other_time": ("starting, waiting and writing, s", "lower"),
    "total_time": ("total, s", "lower"),
    "step_time": ("a step of sampling, microseconds", "lower"),
    "share_of_data": ("data used per decision, %", "lower"),
    "wrong_decisions": ("audited decisions that were wrong, %", ""),
    "likelihood_evaluations": ("log likelihoods of observations evaluated", ""),
    "gradient_evaluations": ("gradients of the posterior evaluated", ""),
    "passes_warmup": ("passes over the data in warmup", "lower"),
    "passes_sampling": ("passes over the data in sampling", "lower"),
    "passes_total": ("passes over the data", "lower"),
    "ess_bulk_min": ("smallest bulk ESS", "higher"),
    "ess_tail_min": ("smallest tail ESS", "higher"),
    "ess_per_second": ("bulk ESS per second of sampling", "higher"),
    "ess_per_second_total": ("bulk ESS per second of the total", "higher"),
    "ess_per_pass": ("bulk ESS per pass in sampling", "higher"),
    "ess_per_pass_total": ("bulk ESS per pass, warmup included", "higher"),
    "time_to_ess": (f"time to ESS {ESS_WANTED} in every parameter, s", "lower"),
    "time_to_ess_compiled": (f"time to ESS {ESS_WANTED} without compilation, s", "lower"),
}


# Facts from which the other figures are computed.
_RECORDED = {
    "compile_time": "the time of compiling",
    "setup_time": "the time of setting up",
    "warmup_time": "the time of warmup",
    "sampling_time": "the time of sampling",
    "other_time": "the wall time",
    "passes_total": "evaluations",
}


class Ess(NamedTuple):
    """Smallest ESS over the parameters that both sides have."""

    bulk: float
    tail: float

    @classmethod
    def smallest(cls, side: Side) -> Ess:
        """Return the smallest ESS of quantities whose draws are finite and vary."""
        usable = np.isfinite(side.values).all(axis=(0, 1)) & ~still(side.values)
        return cls(*(float(ess[usable].min()) if usable.any() else np.nan for ess in (side.ess_bulk, side.ess_tail)))


def cost(draws: dict[str, Any], reference: dict[str, Any], ess: Ess, reference_ess: Ess) -> pd.DataFrame:
    """Return the cost of both samplers side by side.

    Parameters
    ----------
    draws, reference
        Facts from `inference_data.attrs`; figures that are not recorded are NaN.

    Returns
    -------
    pandas.DataFrame
        Indexed by figure, with columns draws, reference, ratio (how many times better the draws are; NaN if neither
        direction is better), better ("lower", "higher" or empty) and label. `attrs["notes"]` explains figures and lists
        what is not recorded.
    """
    import pandas as pd

    frame = pd.DataFrame(
        {"draws": _figures(draws, ess), "reference": _figures(reference, reference_ess)}, index=list(_FIGURES)
    ).astype(float)
    frame["better"] = [better for _, better in _FIGURES.values()]
    frame["label"] = [label for label, _ in _FIGURES.values()]
    with np.errstate(all="ignore"):
        more = frame["draws"] / frame["reference"]
        ratio = more.where(frame["better"] == "higher", 1 / more).where(frame["better"] != "")
    frame.insert(2, "ratio", ratio.where(np.isfinite(ratio)))
    frame.index.name = "figure"
    frame.attrs["notes"] = list(_notes(frame, draws, reference))
    return frame


def _figures(facts: dict[str, Any], ess: Ess) -> dict[str, float]:
    parallel = facts.get("settings", {}).get("parallel_chains") or np.nan
    warmup, sampling = _total(facts, "warmup_time") / parallel, _total(facts, "sampling_time") / parallel
    compiling, setup = _number(facts, "compile_time"), _number(facts, "setup_time")
    wall = _number(facts, "wall_time")
    other = float(np.fmax(wall - warmup - sampling, 0.0)) if np.isfinite(wall) else np.nan
    total = warmup + sampling + float(np.nansum([compiling, setup, other]))
    n = _number(facts, "n_observations")
    values, warm_values = _total(facts, "n_obs_evaluated"), _total(facts, "warmup_n_obs_evaluated")
    gradients, warm_gradients = _total(facts, "n_gradients"), _total(facts, "warmup_n_gradients")
    passes = gradients if np.isfinite(gradients) else values / n
    warm_passes = warm_gradients if np.isfinite(gradients) else warm_values / n
    rate = min(ess.bulk, ess.tail) / sampling
    to_ess = total - sampling + ESS_WANTED / rate
    steps, decisions = _total(facts, "n_steps"), n_decisions(facts)
    audited, wrong = (of_decisions(facts, name) for name in ("n_audited", "n_audit_wrong"))
    return {
        "compile_time": compiling,
        "setup_time": setup,
        "warmup_time": warmup,
        "sampling_time": sampling,
        "other_time": other,
        "total_time": total,
        "step_time": 1e6 * _total(facts, "sampling_time") / steps,
        "share_of_data": 100 * _total(facts, "n_obs_used") / ((decisions or np.nan) * n),
        "wrong_decisions": 100 * (wrong or 0.0) / (audited or np.nan),
        "likelihood_evaluations": values + warm_values,
        "gradient_evaluations": gradients + warm_gradients,
        "passes_warmup": warm_passes,
        "passes_sampling": passes,
        "passes_total": warm_passes + passes,
        "ess_bulk_min": ess.bulk,
        "ess_tail_min": ess.tail,
        "ess_per_second": ess.bulk / sampling,
        "ess_per_second_total": ess.bulk / total,
        "ess_per_pass": ess.bulk / (passes or np.nan),
        "ess_per_pass_total": ess.bulk / (warm_passes + passes or np.nan),
        "time_to_ess": to_ess,
        "time_to_ess_compiled": to_ess - float(np.nan_to_num(compiling)),
    }


def _notes(frame: pd.DataFrame, draws: dict[str, Any], reference: dict[str, Any]) -> Iterator[str]:
    yield (
        "seconds are wall time: the sum over chains divided by the number of parallel chains; a program in the cache "
        "takes almost no time to compile"
    )
    if np.isfinite(_value(frame, "gradient_evaluations", "reference")):
        yield (
            "one gradient counts as one pass over the data, like one evaluation of all observations' likelihoods, "
            "which costs about a third as much"
        )
    if "gradient" in str(reference.get("time_split", "")):
        yield "the reference's time is split between warmup and sampling in proportion to gradient evaluations"
    for side, facts, whose in (("draws", draws, "the draws do"), ("reference", reference, "the reference does")):
        unknown = [what for name, what in _RECORDED.items() if np.isnan(_value(frame, name, side))]
        if unknown:
            yield f"{whose} not record {', '.join(unknown)}"
        if facts.get("stopped"):
            yield f"the {side} stopped early ({facts['stopped']}); the figures cover the finished part"


def _value(frame: pd.DataFrame, name: str, side: str) -> float:
    return float(frame[side].to_numpy()[frame.index.get_loc(name)])


def _number(facts: dict[str, Any], name: str) -> float:
    return float(facts[name]) if name in facts else np.nan


def _total(facts: dict[str, Any], name: str) -> float:
    return float(np.sum(facts[name])) if name in facts else np.nan
