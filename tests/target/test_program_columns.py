"""Programs over columns of observations, beside one observation at a time."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from stansub import _loop
from stansub.target.programs import SIDES, Code, ProgramFamily

Array = NDArray[np.float64]
N = 300  # two blocks and a half
SOURCES = ("constant", "data", "argument")


def family(*variants: list[tuple[str, int, int]], seed: int = 1) -> ProgramFamily:
    """Observations of the variants in any order, each with two numbers of data, of which one is a width."""
    starts = np.cumsum([0, *(len(one) for one in variants)]).astype(np.int32)
    lines = [line for one in variants for line in one]
    codes = np.array([(_loop.OPERATIONS.index(name), a, b) for name, a, b in lines], np.int32)
    rng = np.random.default_rng(seed)
    data = np.stack([rng.integers(len(variants), size=N), rng.uniform(0.5, 2, N), np.full(N, 0.1)])
    return ProgramFamily(Code(starts, codes, np.full(len(lines), 1.5)), 2, data)


def of_one(name: str) -> ProgramFamily:
    """A function of the first argument, in every other observation times a number of data."""
    second = 2 if name == "abs" else 1
    lines = [("argument", 0, 0), ("argument", 1, 0), (name, 0, second)]
    return family(lines, [*lines, ("data", 1, 0), ("product", 2, 3)])


def each(given: ProgramFamily, eta: Array) -> Array:
    return np.array(
        [
            _loop.density_log_lik(given.density, np.ascontiguousarray(own), np.ascontiguousarray(at))
            for own, at in zip(given.data.T, eta.T, strict=True)
        ]
    )


@pytest.mark.parametrize("name", [name for name in _loop.OPERATIONS if name not in SOURCES])
def test_columns_have_the_values_of_single_observations(name: str) -> None:
    given, rng = of_one(name), np.random.default_rng(2)
    eta = rng.uniform(0.1, 3, (2, N)) * (-1 if name in ("log1m_exp", "std_normal_log_qf") else 1)
    if name == "abs" or name in SIDES:
        eta[0, ::2] *= -1
    values = given.log_lik(eta)
    assert np.isfinite(values).all()
    np.testing.assert_allclose(values, each(given, eta), rtol=4e-15, atol=4e-15)


@pytest.mark.parametrize("name", [name for name in _loop.OPERATIONS if name not in SOURCES])
def test_derivatives_are_those_of_jets(name: str) -> None:
    """Of the square of the function, times the other argument in every other observation."""
    second = 2 if name == "abs" else 1
    lines = [("argument", 0, 0), ("argument", 1, 0), ("product", 0, 0), (name, 2, second)]
    if name in ("log1m_exp", "std_normal_log_qf"):
        lines[2:] = [("data", 2, 0), ("difference", 2, 2), ("square", 0, 0), ("difference", 3, 4), (name, 5, 0)]
    if name in SIDES:
        lines[-1] = (name, 1, 2)  # where the other argument is negative, or where it is not
    if name == "same":
        lines[-1] = (name, 2, 2)
    at = len(lines) - 1
    given = family([*lines, ("product", at, at)], [*lines, ("product", at, at), ("product", at + 1, 1)])
    eta = np.random.default_rng(3).uniform(0.3, 1.2, (2, N))
    if name in SIDES:
        eta[1, ::3] *= -1
    values, slopes, curves = given.derivatives((0, 1, 2), eta)
    jets = np.empty((6, N))
    given.density.expand(2, given.data, eta, jets)
    np.testing.assert_allclose(values, jets[0], rtol=1e-13)
    np.testing.assert_allclose(slopes, jets[1:3], rtol=1e-11, atol=1e-13)
    expected = np.array([[2 * jets[3], jets[4]], [jets[4], 2 * jets[5]]])
    np.testing.assert_allclose(curves, expected, rtol=1e-10, atol=1e-12)
    assert np.ptp(curves[0, 0]) > 0


def test_logarithms_are_precise_everywhere() -> None:
    given = family([("argument", 0, 0), ("log", 0, 0)])
    x = np.r_[np.exp(np.linspace(-744, 709, N - 12)), 1 + 1e-9 * np.arange(-3, 4), 0, -1, np.inf, np.nan, 5e-324]
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.log(x)
    np.testing.assert_allclose(given.log_lik(np.array([x, x])), expected, rtol=5e-16)


def test_tails_of_inverse_logits_keep_their_slopes() -> None:
    given = family([("argument", 0, 0), ("inv_logit", 0, 0)])
    x = np.linspace(-700, 700, N)
    value, slope, curve = (one.reshape(-1, N)[0] for one in given.derivatives((0, 1, 2), np.array([x, x])))
    p, rest = expit(x), expit(-x)
    for made, expected in ((value, p), (slope, p * rest), (curve, p * rest * (rest - p))):
        np.testing.assert_allclose(made, expected, rtol=2e-15, atol=1e-310)


def test_values_keep_kinks_that_gradients_smooth() -> None:
    given = family([("argument", 0, 0), ("abs", 0, 2)])
    eta = np.full((2, N), 0.01)
    assert given.log_lik(eta) == pytest.approx(0.01)
    values, slopes = given.gradients(eta)
    assert values == pytest.approx(0.01**2 / (2 * 0.1) + 0.1 / 2)
    assert slopes[0] == pytest.approx(0.01 / 0.1)


def test_time_is_that_of_the_operations_of_each_observation() -> None:
    cheap, dear = [("argument", 0, 0), ("square", 0, 0)], [("argument", 0, 0), ("lgamma", 0, 0), ("exp", 1, 0)]
    both = family(cheap, dear)
    share = both.data[0].mean()
    expected = (1 - share) * family(cheap).nanoseconds + share * family(dear).nanoseconds
    assert both.nanoseconds == pytest.approx(expected)
    assert family(dear).nanoseconds > family(cheap).nanoseconds


def test_another_variant_than_there_is() -> None:
    given = family([("argument", 0, 0)])
    given.data[0, 200] = 1
    with pytest.raises(ValueError, match="must be that of a variant"):
        given.log_lik(np.zeros((2, N)))
