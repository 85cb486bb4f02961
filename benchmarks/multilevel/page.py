"""The page of all multilevel results: rates beside NUTS, core-seconds to an ESS of 400, agreement.

python benchmarks/multilevel/page.py     # from the JSON in reports/multilevel, to its README.md
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from run import Bound, rounded, table

HERE = Path(__file__).resolve().parent
REPORTS = HERE.parent.parent / "reports" / "multilevel"

Record = Mapping[str, Any]
# Draws of all chains of NUTS.
_DRAWS = 4_000


def enough(record: Record) -> Sequence[str]:
    """The row of core-seconds to an ESS of 400."""
    one, other = record["stansub"]["enough"], record["nuts"]["enough"]
    above = "above " if "at_most" in record["nuts"] else ""
    return [record["row"], f"{record['n']:,}", f"{one:,.1f}", f"{above}{other:,.0f}", f"{above}{rounded(other / one)}"]


def agreement(record: Record) -> Sequence[str]:
    """The row of an agreement."""
    mean, sd, long = record["mean"], record["sd"], record["reference"]
    ess = f"{long['ess']:,.0f} (`{long['slowest']}`)"
    return [
        record["row"], f"{record['n']:,}", f"{mean['n']:,}", record["by"], f"{long['iterations']:,}", ess,
        f"{long['r_hat']:.3f}", f"{record['stansub']['ess']:,.0f}", f"{mean['size']:.3f} sd", f"{mean['z']:.1f}",
        f"{sd['size']:.3f}", f"{sd['z']:.1f}", f"{mean['expected']:.1f}", f"{mean['rms']:.2f}", f"{sd['rms']:.2f}",
    ]  # fmt: skip


def measured(machine: Record) -> str:
    """Say where and when."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return f"Measured on {machine['date']}: {machine['cpu']}, {machine['cores']} cores; {versions}."


def text(results: Record, agreed: Record) -> str:
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
        rates=table(results["records"]),
        enough=map(enough, results["records"]),
        agreement=map(agreement, agreed["records"]),
        agreement_machine=agreed["machine"],
        measured=measured,
    )


def at_most(reduced: Record) -> Record:
    """What NUTS can reach at most on the horseshoe, from a run on sufficient statistics (`nuts_rate.py`)."""
    run = reduced["nuts"]
    note = f"on sufficient statistics, as if every draw were effective: {run['note']}; R-hat {run['r_hat']:.2f}"
    leapfrog = run["cores"] / reduced["gradient"] / _DRAWS  # with those of warmup
    return Bound(reduced["gradient"], leapfrog, note).record() | {"load": round(reduced["load"], 1)}


def main() -> None:
    """Write the page."""
    results, agreed, reduced = (
        json.loads((REPORTS / name).read_text(encoding="utf-8"))
        for name in ("results.json", "agreement.json", "nuts_rate.json")
    )
    by_size = {one["size"]: one for one in reduced["records"]}
    for record in results["records"]:
        if record["row"] == "horseshoe" and record["size"] in by_size:
            record["nuts"] = at_most(by_size[record["size"]])
    (REPORTS / "README.md").write_text(text(results, agreed), encoding="utf-8")


if __name__ == "__main__":
    main()
