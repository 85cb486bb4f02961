"""The report on posteriordb: a table of its programs with reference draws, and what it shows in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measure import Row
from page import cell, decisions, names, template

# Differences of means from the reference draws, in sds, beyond which draws without a warning are wrong.
LARGEST = 0.1


def sampled(rows: Sequence[Row]) -> list[Row]:
    """Return programs with draws."""
    return [row for row in rows if "largest_difference_sd" in row.get("draws", {})]


def wrong(rows: Sequence[Row]) -> list[Row]:
    """Return programs sampled without a warning whose means are not those of the reference draws."""
    return [
        row
        for row in sampled(rows)
        if not row["draws"]["warnings"] and not row["draws"]["largest_difference_sd"] <= LARGEST
    ]


def sentences(rows: Sequence[Row]) -> list[str]:
    """Return the results in sentences."""
    refused = [row for row in rows if row.get("qualifies") is False]
    drawn = sampled(rows)
    silent = [row for row in drawn if not row["draws"]["warnings"]]
    failed = [row for row in rows if "failure" in row or "failure" in row.get("draws", {})]
    return [
        f"{len(drawn)} of {len(rows)} programs were sampled; {len(refused)} are refused; failing: {names(failed)}",
        f"Without a warning: {len(silent)}; with a mean that differs from the reference by more than {LARGEST} sd: "
        f"{names(wrong(rows))}",
        f"Decisions are exact in {sum(row['draws']['guarantee'].startswith('exact') for row in drawn)}",
    ]


def write(result: Mapping[str, Any], folder: Path) -> Path:
    """Write the page."""
    rows = result["rows"]
    facts = {
        "command": result["command"],
        "machine": result["machine"],
        "sentences": sentences(rows),
        "rows": [_cells(row) for row in rows],
        "largest": LARGEST,
    }
    path = folder / "README.md"
    path.write_text(template("published_page.md").render(facts), encoding="utf-8")
    return path


def _cells(row: Row) -> list[str]:
    draws = row.get("draws", {})
    name = f"`{row['program']}`"
    failure = row.get("failure", draws.get("failure", row.get("reason", "")))
    if "largest_difference_sd" not in draws:
        said = "refused" if row.get("qualifies") is False else "**fails**"
        return [name, "", "", said, "", "", "", cell(failure)]
    return [
        name,
        f"{row['observations']:,}",
        f"{row['parameters']:,}",
        decisions(draws),
        f"{draws['seconds']:.0f}",
        f"{draws['largest_difference_sd']:.3f}",
        f"{draws['largest_z']:.1f}",
        cell("; ".join(draws["warnings"])) or draws["verdict"],
    ]
