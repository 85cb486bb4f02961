"""Comparison as a few lines of text for a terminal."""

import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.text import Text

from stansub.findings import Severity
from stansub.output.style import clipped
from stansub.report.page import Cell, Table, apart, compose, fixed, signed
from stansub.wording import aligned

if TYPE_CHECKING:
    from rich.console import Console

    from stansub.diagnostics.comparison import Comparison

_WIDTH = 100
_ROWS = 8
_REASONS = 6
_NAME = 32
_COSTS = ("ess_per_second", "ess_per_second_total", "passes_total", "time_to_ess")
_STYLES = {"agrees": "bold green", "differs": "bold yellow", "inconclusive": "bold yellow", "do not use": "bold red"}


def render(comparison: "Comparison", console: "Console") -> None:
    """Print the verdict and its reasons, the parameters that differ most, the cost, and what to do."""

    def write(text: str = "", style: str = "") -> None:
        console.print(Text(text, style=style), soft_wrap=True)

    def wrapped(text: str, lead: str = "", style: str = "") -> None:
        for line in textwrap.wrap(lead + text, _WIDTH, subsequent_indent=" " * len(lead)):
            write(line, style)

    page = compose(comparison)
    wrapped(page.headline, style=_STYLES[page.word])
    for reason in page.reasons[:_REASONS]:
        wrapped(reason, "- ")
    if len(page.reasons) > _REASONS:
        write(f"- {len(page.reasons) - _REASONS} more in the report")
    write()
    worst = _worst(comparison)
    _tabulate(worst, write)
    others = len(comparison.parameters) - len(worst.rows)
    if others > 0:
        write(f"the {len(worst.rows)} that differ most of {len(comparison.parameters):,} quantities", "dim")
    for label, names in apart(comparison, page.samplers, most=_ROWS):
        wrapped(f"{label}: {names}", "Not compared: ")
    write()
    costs = zip(comparison.cost.index, page.cost.rows, strict=True)
    _tabulate(page.cost._replace(rows=tuple(row for figure, row in costs if figure in _COSTS)), write)
    if page.warnings:
        write()
    found = (*comparison.findings, *comparison.reference_findings)
    for (sampler, warning), one in zip(page.warnings, found, strict=True):
        wrapped(warning.text, f"{one.lead} ({sampler}): ", "bold" if one.severity is Severity.NOTE else "bold yellow")
        wrapped(warning.remedy, "      -> ")


def _worst(comparison: "Comparison") -> Table:
    """Return the columns that fit a terminal."""
    shown = comparison.parameters.iloc[:_ROWS]
    rows = [
        tuple(
            map(
                Cell,
                (
                    clipped(str(name), _NAME),
                    signed(row["mean_diff_sd"]),
                    signed(row["mean_z"], 1),
                    fixed(row["sd_ratio"], 3),
                    signed(row["sd_z"], 1),
                    fixed(row["r_hat_pooled"], 3),
                ),
            )
        )
        for name, row in zip(shown.index, shown.to_dict("records"), strict=True)
    ]
    return Table((), ("", "mean diff / sd", "z", "sd ratio", "z", "pooled R-hat"), tuple(rows))


def _tabulate(table: Table, write: Callable[[str, str], None]) -> None:
    """Write the table's lines, with names left-aligned and figures right-aligned."""
    cells = [table.columns, *([cell.text for cell in row] for row in table.rows)]
    for number, line in enumerate(aligned(cells)):
        write(line, "" if number else "bold")
