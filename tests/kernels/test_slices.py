"""Slice sampling along moves of coordinates, with reflections."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from slicing import sampler

from stansub.target.coordinates import Coordinates
from stansub.target.symmetries import Equivalence, Symmetry

Array = NDArray[np.float64]


def slices(x: Array, log_density: Callable[[Array], float], moves: Sequence[Symmetry], seed: int) -> tuple[Array, ...]:
    """Ends of slices, the equivalence that they record, and their lengths."""
    n, lengths = len(x), np.empty(len(moves))
    made, same = sampler(log_density, Coordinates.plain(n), moves), Equivalence.none(n)
    found = x.copy()
    bits = np.random.default_rng(seed).bit_generator
    made(bits.capsule, found, same.scale, same.shift, np.full(len(moves), 0.7), lengths)
    return found, same.scale, same.shift, lengths


def test_a_slice_leaves_the_density() -> None:
    """A factor of gamma variables, whose Jacobian counts, and a shift of another one."""
    moves = [Symmetry(np.zeros(2), np.array([0])), Symmetry(np.array([0.0, 2.0]), np.empty(0, np.int64))]

    def log_density(x: Array) -> float:
        return float(2 * np.log(x).sum() - x.sum()) if x.min() > 0 else -np.inf

    before = np.random.default_rng(1).gamma(3, size=(4000, 2))
    after = np.array([slices(x, log_density, moves, seed)[0] for seed, x in enumerate(before)])
    assert np.abs(after - before).mean(axis=0).min() > 0.5
    for k in range(2):
        assert stats.kstest(after[:, k], stats.gamma(3).cdf).pvalue > 1e-4


def test_half_of_the_slices_are_reflections() -> None:
    """Draws of a normal distribution in a row are negatively correlated."""
    move = Symmetry(np.ones(1), np.empty(0, np.int64))
    before = np.random.default_rng(2).standard_normal((3000, 1))
    after = np.array([slices(x, lambda at: float(-0.5 * at @ at), [move], seed)[0] for seed, x in enumerate(before)])
    assert -0.6 < float(np.corrcoef(before[:, 0], after[:, 0])[0, 1]) < -0.25
    assert stats.kstest(after[:, 0], stats.norm.cdf).pvalue > 1e-4


def test_slices_record_their_moves() -> None:
    """As the moves in Python, one after the other."""
    rng = np.random.default_rng(3)
    moves = [Symmetry(np.array([1.0, 0, 0, -0.5]), np.array([1, 2])), Symmetry(np.array([0, 0.3, 0, 0]), np.array([3]))]
    x = rng.standard_normal(4)
    found, scale, shift, lengths = slices(x, lambda at: float(-0.5 * at @ at), moves, 5)
    moved = x
    for one, c in zip(moves, lengths, strict=True):
        moved = one(moved, c)
    np.testing.assert_allclose(found, moved, rtol=1e-14)
    np.testing.assert_allclose(scale * x + shift, found, rtol=1e-13)
    np.testing.assert_allclose(Equivalence(scale, shift).back(found, np.arange(4)), x, rtol=1e-13)


def test_slices_need_coordinates_that_exist() -> None:
    cases: tuple[tuple[int, list[int], str], ...] = ((2, [], "another length"), (3, [3], "no such coordinate"))
    for n, scaled, message in cases:
        direction = np.zeros(n)
        with pytest.raises(ValueError, match=message):
            sampler(lambda at: 0.0, Coordinates.plain(3), [Symmetry(direction, np.array(scaled, np.int64))])
