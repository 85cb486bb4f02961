"""Correlations that are compared: those near 1 hold the level of the test, and those that differ are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fakes
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from stansub.diagnostics.comparison import compare_draws
from stansub.diagnostics.covariance import NEGLIGIBLE, Pair, worst_pair
from stansub.diagnostics.statistics import side

FloatArray = NDArray[np.float64]
NAMES = ("a", "b")


def chains(rng: np.random.Generator, correlation: float, *, draws: int = 250, held: int = 1) -> FloatArray:
    """Four chains of two correlated normals; each value is held for some draws, as where proposals are rejected."""
    a, noise = rng.standard_normal((2, 4, draws))
    values = np.stack([a, correlation * a + np.sqrt(1 - correlation**2) * noise], axis=2)
    return values if held == 1 else np.repeat(values, rng.geometric(1 / held, draws), axis=1)


def compared(rng: np.random.Generator, own: FloatArray, other: FloatArray) -> Pair:
    found = worst_pair(NAMES, side(own), side(other))
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.9, 0.99, 0.9999])
def test_level(correlation: float) -> None:
    """Few draws beside many that are held, which the error of 1 - r of normal scores depends on."""
    n, p = 100, []
    for seed in range(n):
        rng = np.random.default_rng(seed)
        p.append(compared(rng, chains(rng, correlation), chains(rng, correlation, draws=750, held=2)).p)
    assert np.sum(np.array(p) < 0.05) <= stats.binom.isf(0.001, n, 0.05)


def test_what_is_nearer_than_what_is_negligible_is_no_difference() -> None:
    rng = np.random.default_rng(1)
    near = compared(rng, chains(rng, 0.9999, draws=5000), chains(rng, 0.997, draws=5000))
    assert 0 < near.correlation - near.correlation_reference < NEGLIGIBLE
    assert (near.z, near.p) == (0.0, 1.0)


@pytest.mark.parametrize(("own", "other"), [(0.9999, 0.95), (0.95, 0.9999), (0.9, 0.75), (0.3, 0.0), (-0.99, 0.99)])
def test_correlations_that_differ_are_found(own: float, other: float) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        found = compared(rng, chains(rng, own, draws=500), chains(rng, other, draws=500))
        assert found.p < 1e-3
        assert np.sign(found.z) == np.sign(own - other)


def test_exact_functions_of_each_other_that_are_turned_round_are_found() -> None:
    rng = np.random.default_rng(2)
    a = rng.standard_normal((2, 4, 250))
    own, other = (np.stack([one, sign * np.exp(one)], axis=2) for one, sign in zip(a, (1, -1), strict=True))
    assert compared(rng, own, other).p == 0
    assert compared(rng, own, own + 0.0).p == 1


def test_a_pair_near_one_does_not_hide_another() -> None:
    rng = np.random.default_rng(3)
    own, other = (np.concatenate([chains(rng, 0.9999), chains(rng, r)], axis=2) for r in (0.5, 0.0))
    found = worst_pair(("a", "near a", "c", "d"), side(own), side(other))
    assert found is not None
    assert found.names == ("c", "d")


def test_an_intercept_and_what_it_is_without_centring_agree() -> None:
    """What programs hold that centre their predictors: two intercepts whose correlation is nearly 1, and a copy."""

    def run(made: Callable[..., Any], seed: int, draws: int) -> Any:
        values = fakes.normals(np.random.default_rng(seed), draws=draws, size=3)
        alpha, beta = values[:, :, 0], values[:, :, 1:]
        held = {"intercept": alpha - 0.01 * beta[:, :, 0], "same": alpha - 3.0}
        return made(np.random.default_rng(seed), values=values, more=held)

    for seed in range(10):
        found = compare_draws(run(fakes.draws, seed, 3000), run(fakes.reference, 100 + seed, 500))
        assert found.verdict.word == "agrees"
        assert found.alignment.copies == ("same (alpha)",)
        assert "same" not in found.parameters.index
