"""The page of all multilevel results: rates beside NUTS, core-seconds to an ESS of 400, agreement.

python benchmarks/multilevel/page.py     # from the JSON in reports/multilevel, to its README.md
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

HERE = Path(__file__).resolve().parent
REPORTS = HERE.parent.parent / "reports" / "multilevel"

Record = Mapping[str, Any]


def rate(record: Record) -> Sequence[str]:
    """The row of the first table."""
    one, other = record["stansub"], record["nuts"]
    figures = (
        ["", "", "", f"below {other['at_most']:.2g}", f"above {_rounded(one['per_core'] / other['at_most'])}"]
        if "at_most" in other
        else [*_run(other), _rounded(one["per_core"] / other["per_core"])]
    )
    times = f"{one['set_up']:.1f} + {one['seconds'] - one['set_up']:.1f}"
    return [
        record["row"], f"{record['n']:,}", one["note"], times, *_run(one), other["note"], *figures,
        f"{one['load']}, {other['load']}",
    ]  # fmt: skip


def _rounded(x: float) -> str:
    return f"{float(f'{x:.3g}'):,g}"


def _run(side: Record) -> list[str]:
    ess = f"{side['ess']:,.0f} (`{side['slowest']}`)"
    return [f"{side['cores']:,.0f}", ess, f"{side['r_hat']:.3f}", _rounded(side["per_core"])]


def enough(record: Record) -> Sequence[str]:
    """The row of the second."""
    one, other = record["stansub"]["enough"], record["nuts"]["enough"]
    above = "above " if "at_most" in record["nuts"] else ""
    return [record["row"], f"{record['n']:,}", f"{one:,.1f}", f"{above}{other:,.0f}", f"{above}{_rounded(other / one)}"]


def agreement(record: Record) -> Sequence[str]:
    """The row of the third."""
    mean, sd, long = record["mean"], record["sd"], record["reference"]
    return [
        record["row"], f"{record['n']:,}", f"{mean['n']:,}", record["by"], f"{long['ess']:,.0f} (`{long['slowest']}`)",
        f"{long['r_hat']:.3f}", f"{record['stansub']['ess']:,.0f}", f"{mean['size']:.3f} sd", f"{mean['z']:.1f}",
        f"{sd['size']:.3f}", f"{sd['z']:.1f}", f"{mean['expected']:.1f}", f"{mean['rms']:.2f}", f"{sd['rms']:.2f}",
    ]  # fmt: skip


def measured(machine: Record) -> str:
    """Say where and when."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return f"Measured on {machine['date']}: {machine['cpu']}, {machine['cores']} cores; {versions}."


def text(results: Record, agreed: Record | None) -> str:
    """The page of these results."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("page.md").render(
        results=results,
        rates=map(rate, results["records"]),
        enough=map(enough, results["records"]),
        agreement=[agreement(one) for one in agreed["records"]] if agreed else [],
        agreement_machine=agreed["machine"] if agreed else {},
        measured=measured,
    )


def main() -> None:
    """Write the page."""
    results, agreed = (
        json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        for path in (REPORTS / "results.json", REPORTS / "agreement.json")
    )
    (REPORTS / "README.md").write_text(text(results, agreed), encoding="utf-8")


if __name__ == "__main__":
    main()
