"""Parts of sentences."""

from __future__ import annotations

from collections.abc import Sequence


def percent(share: float) -> str:
    """Return a share in percent, to two digits."""
    return f"{100 * share:.0f} %" if share == 0 or share >= 0.1 else f"{100 * share:.2g} %"


def listed(names: Sequence[str]) -> str:
    """Return names in a list with "and" before the last."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
