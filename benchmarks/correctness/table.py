"""The table of the study: a row for each workload and way of sampling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Row = dict[str, Any]

_HEAD = (
    *("workload", "runs", "wrong", "wrong without a warning", "cause named", "failed", "crashed"),
    *("warned though right", "median s"),
)


def summarise(runs: Sequence[Row]) -> list[Row]:
    """Counts over the seeds.

    ``wrong`` counts imprecise runs too; ``silent`` those of them without a warning that speaks against the draws;
    ``cause_named`` those whose warnings name the cause. ``failed`` counts errors with a clear line, ``crashed`` all
    others.
    """
    return [_summary(key, [one for one in runs if _key(one) == key]) for key in dict.fromkeys(map(_key, runs))]


def _key(run: Row) -> tuple[str, str]:
    return run["way"], run["workload"]


def _summary(key: tuple[str, str], runs: Sequence[Row]) -> Row:
    way, workload = key
    wrong = [one for one in runs if one["state"] in ("wrong", "imprecise")]
    right = [one for one in runs if one["state"] == "right"]
    silent = [one for one in wrong if not one["warned"]]
    return {
        "workload": workload,
        "way": way,
        "runs": len(runs),
        "wrong": len(wrong),
        "imprecise": sum(one["state"] == "imprecise" for one in wrong),
        "silent": len(silent),
        "silent_seeds": sorted(one["seed"] for one in silent),
        "cause_named": sum(one["cause_named"] for one in wrong),
        "failed": sum(one["state"] == "failed" for one in runs),
        "crashed": sum(one["state"] == "crashed" for one in runs),
        "warned_though_right": sum(one["warned"] for one in right),
        "seconds": float(np.median([one["seconds"] for one in runs])),
    }


def markdown(runs: Sequence[Row]) -> str:
    """The table, a part for each way of sampling."""
    rows = summarise(runs)
    lines: list[str] = []
    for way in dict.fromkeys(row["way"] for row in rows):
        own = [row for row in rows if row["way"] == way]
        lines += [f"### {way}", "", *_table(own), ""]
    return "\n".join(lines)


def _table(rows: Sequence[Row]) -> Iterable[str]:
    yield "| " + " | ".join(_HEAD) + " |"
    yield "|" + "---|" * len(_HEAD)
    for row in rows:
        cells = [f"`{row['workload']}`", row["runs"], row["wrong"], row["silent"], row["cause_named"]]
        cells += [row["failed"], row["crashed"], row["warned_though_right"], f"{row['seconds']:.1f}"]
        yield "| " + " | ".join(map(str, cells)) + " |"


def line(run: Row) -> str:
    """A run in a line, for who waits."""
    text = f"{run['workload']} ({run['way']}), seed {run['seed']}: {run['state']}"
    if run["state"] in ("failed", "crashed"):
        return f"{text}: {run['message']}"
    gap = run["log_density_gap"]
    if run["state"] != "right":
        text += f" ({run['worst']}: {run['mean_diff_sd']:.1f} sd off, sd ratio {run['sd_ratio']:.2f}"
        text += f", log density lower by {gap:,.0f})" if gap is not None else ")"
    told = "warned" if run["warned"] else "no warning"
    return f"{text}, {told}{', cause named' if run['warned'] and run['cause_named'] else ''}, {run['seconds']:.1f} s"
