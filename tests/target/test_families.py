"""Suprema of derivatives on intervals: against fine maximisation and against interval arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import iv
from numpy.typing import NDArray

from stansub.target.families import (
    Binomial,
    Logistic,
    NegativeBinomial,
    Normal,
    Poisson,
    StudentT,
    softplus,
    softplus_derivative,
)
from stansub.target.remainders import Family

Array = NDArray[np.float64]
one = np.ones(1)
# Each family of one observation, with its log likelihood as mpmath has it.
FAMILIES: dict[str, tuple[Family, Callable[[Any], Any]]] = {
    "bernoulli": (Binomial(one, one), lambda x: x - mpmath.log(1 + mpmath.exp(x))),
    "binomial": (Binomial(3 * one, 7 * one), lambda x: 3 * x - 7 * mpmath.log(1 + mpmath.exp(x))),
    "poisson": (Poisson(4 * one, one), lambda x: 4 * x - mpmath.exp(x)),
    "poisson, exposed": (Poisson(4 * one, 0.3 * one), lambda x: 4 * x - mpmath.mpf("0.3") * mpmath.exp(x)),
    "negative binomial": (
        NegativeBinomial(5 * one, 1.7 * one),
        lambda x: 5 * x - mpmath.mpf("6.7") * mpmath.log(mpmath.exp(x) + mpmath.mpf("1.7")),
    ),
    "normal": (Normal(one, 0.4 * one), lambda x: -((1 - x) ** 2) / mpmath.mpf("0.32")),
    "student": (StudentT(0.3 * one, 4 * one, 0.8 * one), lambda x: -2.5 * mpmath.log(1 + ((x - 0.3) / 0.8) ** 2 / 4)),
    "cauchy": (StudentT(0.3 * one, one, 2 * one), lambda x: -mpmath.log(1 + ((x - 0.3) / 2) ** 2)),
    "logistic": (
        Logistic(-0.5 * one, 0.6 * one),
        lambda x: (x + 0.5) / 0.6 - 2 * mpmath.log(1 + mpmath.exp((x + 0.5) / 0.6)),
    ),
}
INTERVALS = [(-0.3, 0.4), (0.2, 0.7), (0.5, 3.0), (-6.0, -2.0), (-9.0, 9.0), (1.4, 1.5), (-1.2, 0.9)]
# Those whose supremum is on the whole line, not on the interval.
WHOLE_LINE = ("student", "cauchy")


def largest(log_lik: Callable[[Any], Any], order: int, low: float, high: float) -> float:
    """The largest absolute derivative on a fine grid."""
    return max(abs(float(mpmath.diff(log_lik, mpmath.mpf(x), order))) for x in np.linspace(low, high, 161))


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("name", FAMILIES)
def test_largest_derivative(name: str, order: int) -> None:
    """Never below the maximum, and no more than 1 % above it, so that a constant 1 % too small would fail."""
    family, log_lik = FAMILIES[name]
    intervals = [(-30.0, 30.0)] if name in WHOLE_LINE else INTERVALS
    for low, high in intervals:
        grid = (0.2, 1.5) if name in WHOLE_LINE else (low, high)  # where their maxima are
        grid = (0.3 - 1e-3, 0.3 + 1e-3) if name in WHOLE_LINE and order == 4 else grid
        seen = largest(log_lik, order, *grid)
        given = float(family.largest(order, np.full((1, 1), (low + high) / 2), np.ones((1, 1)), (high - low) / 2)[0])
        assert seen <= given * (1 + 1e-9) + 1e-9
        assert seen >= 0.99 * given, name


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("interval", INTERVALS)
def test_no_more_on_an_interval_by_interval_arithmetic(interval: tuple[float, float], order: int) -> None:
    edges = np.linspace(*interval, 2001)
    bound = float(softplus_derivative(order, np.array([interval[0]]), np.array([interval[1]]))[0])
    for low, high in pairwise(edges):
        p = 1 / (1 + iv.exp(-iv.mpf([low, high])))
        value = p * (1 - p) * {2: 1, 3: 1 - 2 * p, 4: 1 - 6 * p * (1 - p)}[order]
        assert max(abs(float(value.a)), abs(float(value.b))) <= bound * 1.02, "cells are as wide as 2 % of the bound"


def test_constants_on_the_whole_line() -> None:
    far = np.array([50.0])
    assert softplus_derivative(2, -far, far)[0] == pytest.approx(0.25)
    assert softplus_derivative(3, -far, far)[0] == pytest.approx(1 / (6 * np.sqrt(3)))
    assert softplus_derivative(4, -far, far)[0] == pytest.approx(1 / 8)
    assert softplus_derivative(4, np.array([2.0]), far)[0] == pytest.approx(1 / 24)


@pytest.mark.parametrize("name", FAMILIES)
def test_log_likelihoods(name: str) -> None:
    family, log_lik = FAMILIES[name]
    x = np.array([-1.3, 0.2, 2.1])
    own = [float(family.log_lik(np.array([[value]]))[0]) for value in x]
    expected = [float(log_lik(value)) for value in x]
    np.testing.assert_allclose(np.diff(own), np.diff(expected), rtol=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_several_orders_together(name: str) -> None:
    family, _ = FAMILIES[name]
    eta = np.array([[0.7]])
    alone = [family.derivatives((order,), eta)[0] for order in range(4)]
    for orders in ((0, 1, 2, 3), (2, 0), (3,)):
        for order, found in zip(orders, family.derivatives(orders, eta), strict=True):
            np.testing.assert_array_equal(found, alone[order])


def test_softplus_far_out() -> None:
    x = np.array([-np.inf, -800.0, -40.0, -1e-9, 0.0, 1e-9, 40.0, 800.0, np.inf])
    value, slope, second, third = softplus((0, 1, 2, 3), x)
    with mpmath.workdps(400):
        p = [1 / (1 + mpmath.exp(-mpmath.mpf(at))) for at in x[1:-1]]
        exact = [(-mpmath.log(1 - one), one, one * (1 - one), one * (1 - one) * (1 - 2 * one)) for one in p]
        expected = np.array([[float(value) for value in row] for row in exact]).T
    np.testing.assert_allclose([value[1:-1], slope[1:-1]], expected[:2], rtol=1e-14)
    np.testing.assert_allclose(second[1:-1], expected[2], rtol=1e-14)
    np.testing.assert_allclose(third[1:-1], expected[3], rtol=1e-14, atol=1e-16)
    assert (value[0], value[-1], slope[0], slope[-1]) == (0, np.inf, 0, 1)
    assert not second[[0, -1]].any()
    assert not third[[0, -1]].any()


@pytest.mark.parametrize("name", FAMILIES)
def test_derivatives(name: str) -> None:
    family, log_lik = FAMILIES[name]
    for x in (-1.3, 0.2, 2.1):
        eta = np.array([[x]])
        slope, curve, third = family.derivatives((1, 2, 3), eta)
        assert slope[0, 0] == pytest.approx(float(mpmath.diff(log_lik, x)), rel=1e-9)
        assert curve[0, 0, 0] == pytest.approx(float(mpmath.diff(log_lik, x, 2)), rel=1e-9)
        assert third[0] == pytest.approx(float(mpmath.diff(log_lik, x, 3)), rel=1e-8, abs=1e-12)
