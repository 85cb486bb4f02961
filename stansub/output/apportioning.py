"""Choice of quantities where there is room for some: all elements of small variables, the first ones of large ones."""

from __future__ import annotations

from collections.abc import Sequence

# Draws of which convergence is computed: at 2 to 3 us for each, a summary takes seconds.
_DRAWS = 5_000_000


def affordable(n_draws: int) -> int:
    """Return the number of quantities of which convergence can be computed in some seconds, given draws of each."""
    return max(1, _DRAWS // n_draws)


def apportioned(sizes: Sequence[int], limit: int | None) -> list[int]:
    """Return how many elements of each variable are among so many: large ones share what small ones leave."""
    found = list(sizes)
    left = sum(found) if limit is None else limit
    for rank, k in enumerate(sorted(range(len(found)), key=found.__getitem__)):
        found[k] = min(found[k], max(left // (len(found) - rank), min(left, 1)))
        left -= found[k]
    return found
