"""Probabilities of intervals: the operation for narrow ones, held against mpmath, and bounds on large boxes."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special
from test_row_program import N, largest, made, points, program

from stansub.target.programs import ProgramFamily

Array = NDArray[np.float64]

MEAN = (("argument", 0, 0), ("argument", 1, 0), ("log_mean_normal", 0, 1))
PLACES = [(0.0, 0.3), (0.4, 0.004), (-1.3, 0.8), (3.0, 2.0), (-9.0, 0.5), (0.2, 30.0), (40.0, 25.0), (30.0, 4.0)]


def log_mean(u: Any, v: Any) -> Any:
    """The log of the mean of e^(-u s - v s^2) over s in (-1, 1)."""
    root = mpmath.sqrt(v)
    ends = mpmath.erf(root + u / (2 * root)) + mpmath.erf(root - u / (2 * root))
    return mpmath.log(ends * mpmath.sqrt(mpmath.pi) / (4 * root)) + u * u / (4 * v)


def truth(u: float, v: float, k: int, m: int) -> float:
    with mpmath.workdps(80):
        return float(mpmath.diff(log_mean, (mpmath.mpf(u), mpmath.mpf(v)), (k, m)))


@pytest.mark.parametrize("place", PLACES)
def test_values_and_derivatives_are_those_of_mpmath(place: tuple[float, float]) -> None:
    of, out = program(*MEAN, n_arguments=2), np.empty((15, 1))
    of.expand(4, np.zeros((1, 1)), np.array(place)[:, np.newaxis], out)
    row = 0
    for degree in range(5):
        for m in range(degree + 1):
            k = degree - m
            right = truth(*place, k, m) / float(mpmath.factorial(k) * mpmath.factorial(m))
            np.testing.assert_allclose(out[row, 0], right, rtol=1e-7, atol=1e-12)
            row += 1


@pytest.mark.parametrize("place", PLACES)
def test_bounds_are_the_suprema_of_derivatives(place: tuple[float, float]) -> None:
    """Never below those at places of a box, and on a small one so near that a bound 1 % smaller fails."""
    of, rng = program(*MEAN, n_arguments=2), np.random.default_rng(1)
    lengths = np.array([0.1 + 0.05 * abs(place[0]), min(0.5, 0.5 * place[1])])
    for radius, loose in ((1e-5, 1.01), (0.2, np.inf), (1.0, np.inf)):
        at = [(0.0, 0.0), (1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0), *rng.uniform(-1, 1, (4, 2)).tolist()]
        found = [
            sum(
                float(special.comb(3, m)) * abs(truth(*there, 3 - m, m)) * lengths[0] ** (3 - m) * lengths[1] ** m
                for m in range(4)
            )
            for there in (np.array(place) + radius * lengths * one for one in at)
        ]
        bound = largest(of, 3, list(place), lengths.tolist(), radius)
        assert bound >= max(found) * (1 - 1e-9)
        assert bound <= loose * max(found) + 1e-10


NARROW = "for (n in 1:N) target += log_diff_exp(normal_lcdf(z[n] + 0.01 * w[n] | a, s), normal_lcdf(z[n] | a, s));"


ENDS = "for (n in 1:N) { real low = normal_lcdf(z[n] | a, s); real high = normal_lcdf(z[n] + 0.01 * w[n] | a, s);"


def test_a_narrow_interval_has_bounds_on_large_boxes() -> None:
    """From the difference of both ends' logs, which may be 0 on such boxes, there are none."""
    (theta,), bounds = points(1), []
    for model in (NARROW, ENDS + " target += high + log1m_exp(low - high); }"):
        found, _ = made(model)
        centre = found.at(theta)
        bounds.append(found.family.largest(3, centre, np.full_like(centre, 0.1), 1.0))
    assert np.isfinite(bounds[0]).all()
    assert np.isinf(bounds[1]).any()


@pytest.mark.parametrize("scale", [0.01, 1.0, 8.0])
def test_remainders_of_intervals_are_within_their_bounds(scale: float) -> None:
    """On random boxes, with ends from near to far; a fifth of the bounds would be exceeded."""
    found, values = made(NARROW.replace("0.01", str(scale)))
    family, rng = found.family, np.random.default_rng(2)
    assert isinstance(family, ProgramFamily)
    tightest = 0.0
    for theta in points(6):
        centre, lengths = found.at(theta), rng.uniform(0.01, 0.3, (2, N))
        bound = family.largest(3, centre, lengths, 1.0)
        assert np.isfinite(bound).all()
        (value,), (slope,), (curve,) = (family.derivatives((order,), centre) for order in range(3))
        for _ in range(200):
            change = lengths * rng.uniform(-1, 1, (2, N))
            expansion = value + (slope * change).sum(0) + 0.5 * np.einsum("abn,an,bn->n", curve, change, change)
            error = np.abs(family.log_lik(centre + change) - expansion)
            most = bound / 6 * np.max(np.abs(change) / lengths, axis=0) ** 3
            assert (error <= most * (1 + 1e-9) + 1e-11).all()
            tightest = max(tightest, float((error / most)[most > 1e-9].max(initial=0.0)))
    assert tightest > 0.2
    theta = points(1)[0]
    low, high = ((values["z"] + more - theta[0]) / np.exp(theta[3]) for more in (0, scale * values["w"]))
    right = np.log(
        np.abs(np.where(low > 0, special.ndtr(-low) - special.ndtr(-high), special.ndtr(high) - special.ndtr(low)))
    )
    np.testing.assert_allclose(found.log_lik(theta), right, rtol=1e-9, atol=1e-9)
