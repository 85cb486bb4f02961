"""The no-U-turn sampler on a table of states, where all that it does can be enumerated."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from stansub._loop import table_transitions

N, LIMIT, DEPTH = 32, 2.5, 3
ENERGIES = np.random.default_rng(3).gamma(1.0, 1.0, N)
TURNS = np.random.default_rng(4).random((N, N)) < 0.25

Stops = Callable[[int, int, int], bool]


def states(left: int, right: int) -> NDArray[np.int64]:
    """Of the tree between two ends, on the circle."""
    return (left + np.arange((right - left) % N + 1)) % N


def by_the_tree(left: int, right: int, start: int) -> bool:
    """What depends on the tree alone: a turn by its ends, and divergence by its largest less its smallest energy."""
    energies = ENERGIES[states(left, right)]
    return bool(TURNS[left, right] or np.ptp(energies) > LIMIT)


def by_the_start(left: int, right: int, start: int) -> bool:
    """Divergence by the distance to the energy of the start."""
    return bool(TURNS[left, right] or ENERGIES[states(left, right)].max() - ENERGIES[start] > LIMIT)


def of_whole_trees(left: int, right: int, start: int) -> bool:
    """No check of the halves, which do not hold the start."""
    return start in states(left, right) and by_the_tree(left, right, start)


def imbalance(stops: Stops) -> float:
    """Largest difference between the flow from one state to another and the flow back."""
    moves = np.array(
        [
            table_transitions(ENERGIES, start, lambda left, right, at=start: stops(left, right, at), DEPTH)
            for start in range(N)
        ]
    )
    np.testing.assert_allclose(moves.sum(1), 1, atol=1e-12)
    flow = (np.exp(-ENERGIES) / np.exp(-ENERGIES).sum())[:, np.newaxis] * moves
    return float(np.abs(flow - flow.T).max())


def test_detailed_balance_is_exact() -> None:
    assert imbalance(by_the_tree) < 1e-16


@pytest.mark.parametrize("stops", [by_the_start, of_whole_trees])
def test_broken_samplers_are_seen(stops: Stops) -> None:
    assert imbalance(stops) > 1e-4


def test_it_moves() -> None:
    found = table_transitions(np.zeros(N), 0, lambda left, right: False, DEPTH)
    assert np.count_nonzero(found) == 2 ** (DEPTH + 1) - 2
    assert max(found) < 0.2


def test_no_state_outside_the_table() -> None:
    with pytest.raises(IndexError):
        table_transitions(ENERGIES, N, lambda left, right: False, DEPTH)
