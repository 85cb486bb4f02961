"""The table of the suite, as JSON, Markdown and a picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from suite.engines import ENGINES
from suite.measure import ESS_WANTED, FIGURES, MEAN_LIMIT_SD, R_HAT_LIMIT, SD_RATIO_LIMITS
from suite.workloads import WORKLOADS

Row = Mapping[str, Any]

_KEYS = (
    *("workload", "engine", "status", "n", *FIGURES, "agrees"),
    *("limit_s", "compile_s", "memory_gb", "reference", "versions"),
)


def row(workload: str, engine: str, figures: Row) -> dict[str, Any]:
    """A row with every key, None where nothing was measured or the figure is not finite."""
    found: dict[str, Any] = {**figures, "workload": workload, "engine": engine}
    return {key: _plain(found.get(key)) for key in _KEYS} | {"notes": list(figures.get("notes", ()))}


def with_ratios(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The rows with how many times better than the fastest NUTS of the same workload they are.

    ``times_nuts_ess`` compares bulk ESS per second, ``times_nuts_time`` the time to ESS 400.
    """
    rows = list(rows)
    done = []
    for one in rows:
        nuts = [r for r in rows if r["workload"] == one["workload"] and r["engine"].startswith("nuts-")]
        rates = [r["ess_bulk_min_per_s"] for r in nuts if r["ess_bulk_min_per_s"]]
        times = [r["time_to_ess400_s"] for r in nuts if r["time_to_ess400_s"]]
        rate, seconds = one["ess_bulk_min_per_s"], one["time_to_ess400_s"]
        done.append(
            {
                **one,
                "times_nuts_ess": rate / max(rates) if rate and rates else None,
                "times_nuts_time": min(times) / seconds if seconds and times else None,
            }
        )
    return done


def ordered(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The rows in the order of the suite, with ratios."""
    workloads, engines = list(WORKLOADS), list(ENGINES)
    return sorted(with_ratios(rows), key=lambda one: (workloads.index(one["workload"]), engines.index(one["engine"])))


def line(one: Row) -> str:
    """What a row says, in a line."""
    if one["status"] != "ok":
        return f"{one['status']}: {'; '.join(one['notes'])}"
    return (
        f"{_number(one['ess_bulk_min_per_s'])} ESS a second, {_number(one['time_to_ess400_s'])} s to ESS {ESS_WANTED}, "
        f"mean differences up to {one['mean_diff_sd_max']:.3f} sd, agrees: {one['agrees']}"
    )


def markdown(result: Mapping[str, Any]) -> str:
    """The report: how it was measured, a table for each workload, and what the columns mean."""
    machine, options = result["machine"], result["options"]
    rows = result["rows"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    lines = [
        "# Benchmarks",
        "",
        f"Measured on {machine['date']} by `{result['command']}`: {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gb']} GB of memory, load before the start {machine['load_before']}; {versions}. "
        f"Seed {options['seed']}, {options['chains']} chains, all at once.",
        "",
        "A second is one of wall time, of the whole machine. ESS is that of the worst parameter. Time to ESS "
        f"{ESS_WANTED} counts from the start of the process, programs compiled before, until every parameter has it in "
        "bulk and tail, extrapolated from the run's rate. A pass is one evaluation of all the data, of the likelihood "
        "(Metropolis, Laplace draws) or its gradient (NUTS), warmup included. Audits are decisions taken again on all "
        f"the data to tell how many were wrong; ESS per second leaves their time out, time to ESS {ESS_WANTED} does "
        "not. Differences are to NUTS draws of another seed,"
        " in posterior sds, of the worst parameter, +- Monte Carlo standard errors. `agrees` asks for mean "
        f"differences below {MEAN_LIMIT_SD} sd, sd ratios from {SD_RATIO_LIMITS[0]} to {SD_RATIO_LIMITS[1]} and a "
        f"pooled R-hat below {R_HAT_LIMIT}: `no` where the run is off by three standard errors more than that, "
        "`unclear` where it has too few draws to tell.",
        "",
    ]
    lines += beside_nuts(rows)
    for workload in dict.fromkeys(one["workload"] for one in rows):
        own = [one for one in rows if one["workload"] == workload]
        parts = (_head(own), _table(own), _notes(own))
        lines += [f"## {workload}", "", *(line for part in parts if part for line in (*part, ""))]
    names = {one["engine"] for one in rows}
    lines += ["## Engines", "", *(f"- `{name}`: {one.about}" for name, one in ENGINES.items() if name in names), ""]
    return "\n".join(lines)


def beside_nuts(rows: Sequence[Row]) -> list[str]:
    """The table of stansub's default and the faster NUTS, a line a workload; nothing where there are no such rows."""
    lines = []
    for own, nuts in _pairs(rows):
        cells = [
            f"{own['workload']}, {own['n']:,} x {own['dim']}",
            *(_number(one["ess_bulk_min_per_s"]) for one in (own, nuts)),
            _number(own["times_nuts_ess"]),
            *(_number(one["time_to_ess400_s"]) for one in (own, nuts)),
            _number(own["times_nuts_time"]),
            f"{own['mean_diff_sd_max']:.3f} +- {own['mean_diff_mcse']:.3f}",
            f"{own['sd_ratio_min']:.3f} to {own['sd_ratio_max']:.3f} +- {own['sd_ratio_mcse']:.3f}",
            f"{own['r_hat_pooled_max']:.3f}",
            own["agrees"],
        ]
        lines.append("| " + " | ".join(cells) + " |")
    if not lines:
        return []
    head = (
        *("workload, N x parameters", "ESS/s stansub", "NUTS", "ratio", f"s to ESS {ESS_WANTED} stansub", "NUTS"),
        *("ratio", "mean diff", "sd ratio", "R-hat pooled", "agrees"),
    )
    return [
        *("## stansub's default beside NUTS", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)),
        *(*lines, ""),
    ]


def _pairs(rows: Sequence[Row]) -> Iterable[tuple[Row, Row]]:
    for own in rows:
        if own["engine"] != "stansub-auto" or own["status"] != "ok":
            continue
        others = [one for one in rows if one["workload"] == own["workload"] and one["engine"].startswith("nuts-")]
        if done := [one for one in others if one["status"] == "ok"]:
            yield own, max(done, key=lambda one: one["ess_bulk_min_per_s"])


def _head(rows: Sequence[Row]) -> list[str]:
    facts = [
        f"N = {one['n']:,}, {one['dim']} parameters; reference: {one['reference']}." for one in rows if one["reference"]
    ]
    return facts[:1]


_COLUMNS = (
    "engine",
    "load s",
    "set-up s",
    "warmup s",
    "audits s",
    "bulk ESS/s",
    "tail ESS/s",
    "times NUTS",
    "s to ESS 400",
    "times NUTS",
    "passes",
    "ESS/pass",
    "mean diff",
    "sd ratio",
    "R-hat pooled",
    "agrees",
)


def _table(rows: Sequence[Row]) -> list[str]:
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    for one in rows:
        if one["status"] != "ok":
            cells = [one["engine"], *["" for _ in _COLUMNS[2:]], one["status"]]
        else:
            cells = [
                one["engine"],
                *(_number(one[key]) for key in ("load_s", "setup_s", "warmup_s", "audit_s")),
                *(_number(one[key]) for key in ("ess_bulk_min_per_s", "ess_tail_min_per_s", "times_nuts_ess")),
                *(_number(one[key]) for key in ("time_to_ess400_s", "times_nuts_time", "passes", "ess_per_pass")),
                f"{one['mean_diff_sd_max']:.3f} +- {one['mean_diff_mcse']:.3f}",
                f"{one['sd_ratio_min']:.3f} to {one['sd_ratio_max']:.3f} +- {one['sd_ratio_mcse']:.3f}",
                f"{one['r_hat_pooled_max']:.3f}",
                one["agrees"],
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _notes(rows: Sequence[Row]) -> list[str]:
    return [f"- {one['engine']}: {'; '.join(one['notes'])}" for one in rows if one["notes"]]


def picture(rows: Sequence[Row], path: Path) -> None:
    """ESS per second and time to ESS 400 of each engine on each workload; hollow where it does not agree."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from stansub.output import style

    rows = [one for one in rows if one["status"] == "ok"]
    workloads = list(dict.fromkeys(one["workload"] for one in rows))
    engines = [name for name in ENGINES if any(one["engine"] == name for one in rows)]
    colours = [*style.CHAIN_COLOURS, "#F0E442", "#000000", style.ERROR_COLOUR]
    markers = "osD^vP*Xd<>"
    with mpl.rc_context(style.STYLE):
        figure = Figure(figsize=(10, 1.6 + 0.45 * len(workloads)), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True)
        panels = (
            ("ess_bulk_min_per_s", "smallest bulk ESS per second (right is better)"),
            ("time_to_ess400_s", f"seconds to ESS {ESS_WANTED}, load and set-up included (left is better)"),
        )
        for ax, (key, title) in zip(axes, panels, strict=True):
            for i, engine in enumerate(engines):
                # A little apart from each other, so that equal figures are both seen.
                shift = 0.5 * ((i + 0.5) / len(engines) - 0.5)
                own = [one for one in rows if one["engine"] == engine and one[key]]
                for agrees in (True, False):
                    some = [one for one in own if (one["agrees"] != "no") == agrees]
                    ax.plot(
                        [one[key] for one in some],
                        [workloads.index(one["workload"]) + shift for one in some],
                        linestyle="none",
                        marker=markers[list(ENGINES).index(engine) % len(markers)],
                        color=colours[list(ENGINES).index(engine) % len(colours)],
                        markerfacecolor=None if agrees else "white",
                        label=engine if agrees else None,
                        markersize=6,
                    )
            ax.set_xscale("log")
            ax.set_title(title)
        axes[0].set_yticks(range(len(workloads)), workloads)
        axes[0].set_ylim(len(workloads) - 0.5, -0.5)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=min(5, max(1, len(labels))),
            title="hollow: draws that differ from the reference's",
        )
        figure.savefig(path, dpi=style.DPI)


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: float | None) -> str:
    """Three digits, no exponent."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{round(value, 2 - math.floor(math.log10(abs(value)))):,.{digits}f}"
