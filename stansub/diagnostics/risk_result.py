"""Results of risk runs: data frames, and which settings differ from exact decisions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit

from stansub.acceptance.rules import StoppingRule
from stansub.diagnostics.risk_curves import MIN_REPEATS, grid, split
from stansub.diagnostics.risk_functions import MEANS, VARIANCES
from stansub.diagnostics.risk_runs import Trajectory
from stansub.diagnostics.risk_truth import Truth
from stansub.output.plain import plain
from stansub.output.record import audit_of
from stansub.run.state import Totals
from stansub.types import FloatArray

if TYPE_CHECKING:
    import pandas as pd

AXES = ("seconds", "passes", "steps")

# Finished runs of each epsilon, by repeat.
Runs = Mapping[float, Mapping[int, Trajectory]]

_POINTS = 40
# Level of the tests of settings, shared among the comparisons.
_LEVEL = 0.05
# What a test says that finds no difference.
_ALIKE = "no detectable difference"


@dataclass(frozen=True)
class Risk:
    """Risk of posterior means, in squared posterior sds, averaged over the test functions.

    Attributes
    ----------
    curves : pandas.DataFrame
        Columns ``what`` ("means" and "variances" of the parameters, or a quantity, for its means), ``axis``
        ("seconds" and "passes" of one run, "steps"), ``epsilon``, ``at``, then ``mse``, ``bias2``, ``variance`` with
        their standard errors ``mse_se``, ... and ``repeats``. The truth's own error is subtracted from ``mse`` and
        ``bias2``, which may be negative therefore.
    settings : pandas.DataFrame
        A row an epsilon: ``test``, ``repeats``, and over all their steps ``steps`` and ``seconds`` a run,
        ``acceptance``, ``share`` (of the data a decision), ``passes`` (evaluated a step), ``audited``, ``wrong``,
        ``error``, ``error_low`` and ``error_high`` (Clopper-Pearson, 95 %).
    losses : pandas.DataFrame
        Columns ``what``, ``epsilon``, ``repeat``, ``loss``: mean squared error of each run at the end of the budget,
        the truth's error not subtracted.
    facts : dict
        Model and data with their hashes, the truth's own error (``floor``, by group), budget, seed, versions.
    notes : tuple of str
        Caveats, if any.
    """

    curves: pd.DataFrame
    settings: pd.DataFrame
    losses: pd.DataFrame
    facts: dict[str, Any]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        levels = ", ".join(f"{epsilon:g}" for epsilon in self.settings.index)
        return f"<Risk of {self.facts.get('model', 'model')}: epsilon {levels}>"

    @property
    def final(self) -> pd.DataFrame:
        """Return the curves' last points, at the end of the budget, indexed by ``what`` and ``epsilon``."""
        curves = self.curves[self.curves["axis"] == self.facts["budget_axis"]]
        last: pd.DataFrame = curves.groupby(["what", "epsilon"], sort=False).last()
        return last

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON, NaN as None."""
        frames = {"settings": self.settings.reset_index(), "curves": self.curves, "losses": self.losses}
        rows = {name: frame.to_dict("records") for name, frame in frames.items()}
        return dict(plain({**self.facts, "notes": self.notes, "headlines": headlines(self), **rows}))


def headlines(found: Risk) -> list[str]:
    """Return, for each group of test functions, which settings differ from exact decisions at the end of the budget.

    Losses of a repeat are paired, because its runs share start and seed. The test compares their logarithms, because
    the spread of losses grows with their size. It is Student's t with Bonferroni's level.
    """
    budget = f"{found.facts['max_time']:g} s" if found.facts["max_time"] else f"{found.facts['max_steps']:,} steps"
    lines = []
    for what, losses in found.losses.groupby("what", sort=False):
        mse: dict[float, float] = found.final["mse"].xs(what).to_dict()  # type: ignore[assignment]
        best = min(mse, key=lambda epsilon: mse[epsilon])
        line = f"{label(str(what))}: after {budget}, the risk is lowest with {_named(best)} ({_sized(mse[best])})"
        paired = losses.pivot(index="repeat", columns="epsilon", values="loss")
        others = [epsilon for epsilon in mse if epsilon]
        if 0.0 in mse and others:
            groups: dict[str, list[str]] = {"better": [], _ALIKE: [], "worse": []}
            for epsilon in others:
                groups[_compared(np.log((paired[epsilon] / paired[0.0]).to_numpy()), len(others))].append(
                    f"{epsilon:g}"
                )
            against = ", ".join(f"{word} with epsilon {', '.join(those)}" for word, those in groups.items() if those)
            exact = f"compared with exact decisions ({_sized(mse[0.0])}), " if best else ""
            line += f"; {exact}{against}"
        lines.append(line)
    return lines


def label(what: str) -> str:
    """Return a group of test functions in words."""
    return f"{what} of the parameters" if what in (MEANS, VARIANCES) else f"means of {what}"


def _compared(log_ratios: FloatArray, comparisons: int) -> str:
    ratios = log_ratios[~np.isnan(log_ratios)]
    n = len(ratios)
    if n < MIN_REPEATS:
        return _ALIKE
    error = ratios.std(ddof=1) / math.sqrt(n)
    if abs(ratios.mean()) <= stdtrit(n - 1, 1 - _LEVEL / 2 / comparisons) * error:
        return _ALIKE
    return "better" if ratios.mean() < 0 else "worse"


def _sized(mse: float) -> str:
    return f"{mse:.2g} sd²" if mse > 0 else "below the error of the truth"


def _named(epsilon: float) -> str:
    return f"epsilon {epsilon:g}" if epsilon else "exact decisions"


def curves(kept: Runs, truth: Truth) -> pd.DataFrame:
    """Return the risk along the runs, on grids of seconds, passes and steps common to all settings."""
    import pandas as pd

    everything = [course for runs in kept.values() for course in runs.values()]
    frames = []
    for axis in AXES:
        first = max(course.axes[axis][0] for course in everything)
        shared = grid(first, max(course.axes[axis][-1] for course in everything), _POINTS)
        for epsilon, runs in kept.items():
            last = min(course.axes[axis][-1] for course in runs.values())
            points = np.append(shared[shared < last], last)
            for what, target in truth.targets.items():
                errors = np.stack([target.errors(course.at(axis, points, what)) for course in runs.values()])
                columns = {"what": what, "axis": axis, "epsilon": epsilon, "at": points}
                found = split(errors, target.floor, target.shared)._asdict()
                frames.append(pd.DataFrame({**columns, **found, "repeats": len(runs)}))
    together = pd.concat(frames, ignore_index=True)
    return together.sort_values("what", key=lambda names: names.map(list(truth.targets).index), kind="stable")


def losses(kept: Runs, truth: Truth, axis: str) -> pd.DataFrame:
    """Return the loss of each run at the end of the budget."""
    import pandas as pd

    rows = []
    for what, target in truth.targets.items():
        for epsilon, runs in kept.items():
            end = np.array([min(course.axes[axis][-1] for course in runs.values())])
            for repeat, course in runs.items():
                loss = float((target.errors(course.at(axis, end, what)) ** 2).mean())
                rows.append({"what": what, "epsilon": epsilon, "repeat": repeat, "loss": loss})
    return pd.DataFrame(rows)


def settings(kept: Runs, rules: Mapping[float, StoppingRule], n_observations: int) -> pd.DataFrame:
    """Return statistics of each setting's steps over all repeats."""
    import pandas as pd

    rows = {}
    for epsilon, runs in kept.items():
        total = _summed([course.totals for course in runs.values()])
        checked = _summed([course.audit for course in runs.values()])
        audit = audit_of(checked["n_audited"], checked["n_audit_wrong"]) if checked["n_audited"] else None
        rows[epsilon] = {
            "test": rules[epsilon].name,
            "repeats": len(runs),
            "steps": total["n_steps"] / len(runs),
            "seconds": total["seconds"] / len(runs),
            "acceptance": total["n_accepted"] / total["n_steps"],
            "share": total["n_obs_used"] / total["n_steps"] / n_observations,
            "passes": total["n_obs_evaluated"] / total["n_steps"] / n_observations,
            "audited": checked["n_audited"],
            "wrong": checked["n_audit_wrong"],
            "error": audit.rate if audit else math.nan,
            "error_low": audit.low if audit else math.nan,
            "error_high": audit.high if audit else math.nan,
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("epsilon")


def _summed(several: Sequence[Totals]) -> Totals:
    total = Totals()
    for one in several:
        total.add(one)
    return total
