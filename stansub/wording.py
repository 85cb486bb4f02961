"""Parts of sentences."""

from __future__ import annotations

from collections.abc import Sequence


def percent(share: float) -> str:
    """Return a share in percent, to two digits."""
    return f"{100 * share:.0f} %" if share == 0 or share >= 0.1 else f"{100 * share:.2g} %"


def listed(names: Sequence[str]) -> str:
    """Return names in a list with "and" before the last."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
