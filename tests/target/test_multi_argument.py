"""Bounds on derivatives of log likelihoods of several arguments: against maximisation and interval arithmetic.

The derivatives that bounds are held against come from the log densities alone, by truncated Taylor series.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import jets
import mpmath
import numpy as np
import pytest
from jets import Density, Jet, absolute_sum, along, exp, lgamma, log, softplus
from mpmath import iv
from numpy.typing import NDArray
from scipy.optimize import minimize

from stansub.target.categories import Categorical, Ordered
from stansub.target.dispersion import Gamma, NegativeBinomial2, _rising
from stansub.target.intervals import Interval, extremes
from stansub.target.location_scale import (
    Errors,
    ExtremeErrors,
    LocationScale,
    LogisticErrors,
    NormalErrors,
    StudentErrors,
)
from stansub.target.remainders import Family

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """A family of one observation, and its log density up to constants."""

    family: Family
    density: Density

    @property
    def q(self) -> int:
        return self.family.n_arguments


def errors(law: Errors, log_density: Callable[[Jet], Jet], y: float = 1.3) -> Case:
    return Case(LocationScale(np.array([y]), law), lambda m, scale: log_density((y - m) * exp(-scale)) - scale)


def negative_binomial(y: float) -> Case:
    def density(eta: Jet, psi: Jet) -> Jet:
        phi = exp(psi)
        return lgamma(phi + y) - lgamma(phi) + (eta - psi) * y - softplus(eta - psi) * (phi + y)

    return Case(NegativeBinomial2(np.array([y])), density)


def gamma(y: float) -> Case:
    return Case(Gamma(np.array([y])), lambda a, b: exp(a) * (b + math.log(y)) - lgamma(exp(a)) - exp(b) * y)


def categorical(category: int, k: int) -> Case:
    def density(*eta: Jet) -> Jet:
        total = exp(eta[0])
        for one in eta[1:]:
            total = total + exp(one)
        return eta[category] - log(total)

    return Case(Categorical(np.array([category]), k), density)


def ordered(category: int, k: int) -> Case:
    def density(eta: Jet, *arguments: Jet) -> Jet:
        cutpoints = [arguments[0]]
        for gap in arguments[1:]:
            cutpoints.append(cutpoints[-1] + exp(gap))
        found = Jet(0)
        if category < k - 1:
            found = found - softplus(eta - cutpoints[category])
        if category > 0:
            found = found - softplus(cutpoints[category - 1] - eta)
        if 0 < category < k - 1:
            found = found + log(1 - exp(-exp(arguments[category])))
        return found

    return Case(Ordered(np.array([category]), k), density)


LAWS: dict[str, tuple[Errors, Callable[[Jet], Jet]]] = {
    "normal": (NormalErrors(), lambda x: -x * x * 0.5),
    "student": (StudentErrors(np.array([4.0])), lambda x: -log(1 + x * x * 0.25) * 2.5),
    "cauchy": (StudentErrors(np.array([1.0])), lambda x: -log(1 + x * x)),
    "logistic": (LogisticErrors(), lambda x: x - softplus(x) * 2),
    "extreme value": (ExtremeErrors(), lambda x: x - exp(x)),
}

CASES = {
    **{name: errors(*law) for name, law in LAWS.items()},
    "negative binomial": negative_binomial(5.0),
    "negative binomial, 0": negative_binomial(0.0),
    "negative binomial, many": negative_binomial(900.0),
    "gamma": gamma(1.7),
    "gamma, small": gamma(0.004),
    "categorical of 2": categorical(1, 2),
    "categorical of 3": categorical(1, 3),
    "categorical of 4": categorical(0, 4),
    "ordered, lowest": ordered(0, 4),
    "ordered, second": ordered(1, 4),
    "ordered, third": ordered(2, 4),
    "ordered, highest": ordered(3, 4),
    "ordered of 2": ordered(1, 2),
}
# Beyond these a naive difference of cutpoints or a power of the precision is lost in the derivatives held against.
LIMIT = 5.0
# Powers are cut where they would overflow; with a bound as large as this everything is evaluated anyway.
USELESS = 1e60
each_case = pytest.mark.parametrize("name", CASES)


def configurations(q: int) -> Iterator[tuple[Array, Array, float]]:
    """Centres, lengths and radii: ordinary and extreme ones, some arguments not moving at all."""
    rng = np.random.default_rng(5)
    for k in range(q):
        yield rng.normal(0, 1, (q, 1)), np.eye(q)[:, [k]], 0.02
    for spread, tall, radius in [
        (1.0, 0.5, 0.02),
        (1.0, 0.5, 0.3),
        (1.5, 1.0, 1.0),
        (LIMIT / 2, 2.0, 0.001),
        (LIMIT / 2, 2.0, 0.5),
        (0.5, 1.0, 3.0),
    ]:
        for _ in range(3 if q == 2 else 1):
            centre = np.clip(rng.normal(0, spread, (q, 1)), -LIMIT, LIMIT)
            lengths = np.exp(rng.normal(0, tall, (q, 1))) * (rng.random((q, 1)) < 0.8)
            lengths *= min(1.0, LIMIT / max(radius * lengths.max(), 1e-9))
            yield centre, lengths, radius


def maximum(case: Case, order: int, centre: Array, lengths: Array, radius: float) -> float:
    """The largest sum of absolute derivatives found on a box: corners, edges, inside, and the best of them polished."""
    rng = np.random.default_rng(8)
    at = rng.uniform(-1, 1, (case.q, 600))
    at[:, :200] = np.sign(at[:, :200])
    at[:, 200:400] = np.where(rng.random((case.q, 200)) < 0.5, np.sign(at[:, 200:400]), at[:, 200:400])

    def value(where: Array) -> Array:
        points = centre + radius * lengths * where.reshape(case.q, -1)
        return np.atleast_1d(absolute_sum(case.density, points, lengths[:, 0], order))

    values = value(at)
    best = at[:, int(values.argmax())]
    scale = values.max() or 1.0
    found = minimize(
        lambda where: -value(where)[0] / scale,
        best,
        bounds=[(-1, 1)] * case.q,
        method="L-BFGS-B",
        options={"maxiter": 6},
    )
    return float(max(values.max(), value(found.x)[0]))


def shares(case: Case, order: int) -> Array:
    """Maxima found as shares of the bounds, where there is anything to bound."""
    found = []
    for centre, lengths, radius in configurations(case.q):
        bound = float(case.family.largest(order, centre, lengths, radius)[0])
        assert np.isfinite(bound)
        if bound > USELESS:
            continue
        seen = maximum(case, order, centre, lengths, radius)
        assert seen <= bound * (1 + 1e-9) + 1e-11
        if bound > 1e-6:
            found.append(seen / bound)
    return np.array(found)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "ordered, second" else name for name in CASES]
)
def test_never_below_the_maximum(name: str, order: int) -> None:
    """And within 1 % of it somewhere, so that bounds 1 % smaller would fail."""
    found = shares(CASES[name], order)
    assert len(found) > 6
    assert found.max() > 0.99


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("name", [name for name in CASES if "ordered" not in name])
def test_exact_at_a_point(name: str, order: int) -> None:
    """What is lost on a box goes to 0 with its size."""
    case = CASES[name]
    for centre, lengths, _ in configurations(case.q):
        bound = float(case.family.largest(order, centre, lengths, 0.0)[0])
        seen = float(absolute_sum(case.density, centre, lengths[:, 0], order)[0])
        assert seen == pytest.approx(bound, rel=1e-6, abs=1e-9)


@each_case
def test_derivatives(name: str) -> None:
    case = CASES[name]
    unit = np.eye(case.q)
    for centre, _, _ in configurations(case.q):
        family, other = case.family, centre + 0.1
        value = float(case.density(*map(Jet, centre)).c[0][0])
        change = float(case.density(*map(Jet, other)).c[0][0]) - value
        scale = 1 + abs(value)
        assert family.log_lik(other)[0] - family.log_lik(centre)[0] == pytest.approx(change, abs=1e-9 * scale)
        slope = [along(case.density, centre, one, 1)[0] for one in unit]
        np.testing.assert_allclose(family.derivatives((1,), centre)[0][:, 0], slope, rtol=1e-7, atol=1e-9 * scale)
        hessian = [
            [(along(case.density, centre, a + b, 2) - along(case.density, centre, a - b, 2))[0] / 4 for b in unit]
            for a in unit
        ]
        np.testing.assert_allclose(family.derivatives((2,), centre)[0][..., 0], hessian, rtol=1e-7, atol=1e-8 * scale)


def largest_ratio(case: Case, bound: Array, centre: Array, lengths: Array, radius: float) -> float:
    """Return the largest error of an expansion at random places of a box, as a share of the sum over arguments."""
    rng, largest = np.random.default_rng(6), 0.0
    value, slopes, curves = case.family.derivatives((0, 1, 2), centre)
    for _ in range(400):
        s = radius * rng.choice([-1.0, -0.1, 0.1, 1.0], case.q) * rng.uniform(0.5, 1, case.q)
        change = lengths[:, 0] * s
        there = case.family.log_lik(centre + change[:, np.newaxis])
        error = there - value - slopes[:, 0] @ change - 0.5 * change @ curves[..., 0] @ change
        largest = max(largest, float((np.abs(error) - 1e-11)[0] / (bound @ np.abs(s) ** 3)))
    return largest


@each_case
def test_errors_are_within_the_bounds_of_their_arguments(name: str) -> None:
    """Also where one argument hardly changes."""
    case, rng, radius = CASES[name], np.random.default_rng(6), 0.2
    centre, lengths = rng.normal(0, 0.5, (case.q, 1)), rng.uniform(0.4, 1.0, (case.q, 1))
    bound = case.family.split(3, centre, lengths, (radius,))[0] / 6
    assert largest_ratio(case, bound[:, 0], centre, lengths, radius) <= 1 + 1e-9


def test_the_bound_of_one_argument_is_exceeded_by_the_other() -> None:
    case, centre, lengths, radius = CASES["normal"], np.array([[2.0], [0.0]]), np.array([[0.3], [1.0]]), 0.05
    bound = case.family.split(3, centre, lengths, (radius,))[0] / 6
    assert largest_ratio(case, bound[:, 0], centre, lengths, radius) <= 1
    assert largest_ratio(case, bound[::-1, 0], centre, lengths, radius) > 1


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name == "cauchy" else name
        for name in CASES
        if name != "categorical of 4"
    ],
)
def test_interval_arithmetic(name: str, order: int) -> None:
    """A proof for a box: cells are halved until the sum on each is seen to be at most 1.02 times the bound."""
    case = CASES[name]
    rng = np.random.default_rng(2)
    radius = 0.001 if case.q == 2 else 0.0003
    centre, lengths = rng.normal(0, 0.7, (case.q, 1)), rng.uniform(0.4, 1.0, (case.q, 1))
    bound = 1.02 * float(case.family.largest(order, centre, lengths, radius)[0])
    cells, n_cells = [((centre - radius * lengths)[:, 0], (centre + radius * lengths)[:, 0])], 0
    while cells:
        low, high = cells.pop()
        n_cells += 1
        assert n_cells < 1000
        sides = [iv.mpf([a, b]) for a, b in zip(low, high, strict=True)]
        if float(absolute_sum(case.density, sides, lengths[:, 0], order).b) > bound:
            longest = np.arange(case.q) == int((high - low).argmax())
            middle = (low + high) / 2
            cells += [(low, np.where(longest, middle, high)), (np.where(longest, middle, low), high)]


INTERVALS = [(-0.3, 0.4), (0.5, 3.0), (-6.0, -2.0), (-7.0, 5.0), (1.6, 1.8)]


def many_cells(name: str, n_scale: int, interval: tuple[float, float]) -> bool:
    return name in ("student", "cauchy") and interval in {2: INTERVALS[2:3], 3: INTERVALS[1:4]}.get(n_scale, [])


@pytest.mark.parametrize(
    ("name", "n_scale", "interval"),
    [
        pytest.param(*case, marks=pytest.mark.slow if many_cells(*case) else ())
        for case in product(LAWS, range(4), INTERVALS)
    ],
)
def test_errors_by_interval_arithmetic(name: str, n_scale: int, interval: tuple[float, float]) -> None:
    """Their third derivatives in location and log scale, on wide intervals: the supremum itself."""
    law, log_density = LAWS[name]

    def mixed(x: Any) -> Any:
        _, first, half, sixth = log_density(Jet(x, 1)).c
        second, third = 2 * half, 6 * sixth
        inner = first + x * (3 * second + x * third)
        return (third, 2 * second + x * third, inner, x * inner)[n_scale]

    over = Interval(*(np.array([end]) for end in interval))
    bound = float(np.max(extremes(lambda at: law.mixed(3, n_scale, at), over, law.critical(3, n_scale)).largest))
    seen = np.abs(np.broadcast_to(mixed(np.linspace(*interval, 20_001)), 20_001)).max()
    assert 0.9999 * bound <= seen <= bound * (1 + 1e-12) + 1e-15
    cells, n_cells = list(pairwise(np.linspace(*interval, 65))), 0
    while cells:
        low, high = cells.pop()
        n_cells += 1
        assert n_cells < 10_000
        value = iv.mpf(0) + mixed(iv.mpf([low, high]))
        if max(abs(float(value.a)), abs(float(value.b))) > 1.05 * bound + 1e-9:
            cells += [(low, (low + high) / 2), ((low + high) / 2, high)]


def test_extreme_arguments_do_not_overflow() -> None:
    for case in CASES.values():
        for at in (-800.0, -40.0, 40.0, 800.0):
            centre = np.full((case.q, 1), at)
            for radius in (0.0, 1.0, 50.0):
                for order in (2, 3):
                    with np.errstate(over="raise", invalid="raise", divide="raise"):
                        assert not np.isnan(case.family.largest(order, centre, np.ones((case.q, 1)), radius)).any()


@pytest.mark.parametrize("name", ["categorical of 2", "categorical of 3", "categorical of 4"])
def test_on_the_whole_space(name: str) -> None:
    """No radius: against the largest found among many probabilities."""
    case, lengths = CASES[name], np.linspace(0.5, 1.0, CASES[name].q)[:, np.newaxis]
    assert case.family.bounded
    points = np.random.default_rng(3).normal(0, 2, (case.q, 20_000))
    for order in (2, 3):
        bound = float(case.family.largest(order, np.zeros((case.q, 1)), lengths, math.inf)[0])
        seen = float(absolute_sum(case.density, points, lengths[:, 0], order).max())
        assert 0.5 * bound < seen <= bound * (1 + 1e-12)


@pytest.mark.parametrize("order", [2, 3])
def test_rising_factorials(order: int) -> None:
    """Where differences of polygamma functions would be lost to rounding too."""
    for y in (0.0, 1.0, 2.0, 7.0, 4000.0):
        for log_phi in np.linspace(-18, 28, 24):
            found = _rising(order, np.array([y, y]), np.array([log_phi, log_phi + 1]), np.zeros(2))
            with mpmath.workdps(50):
                expected = float(
                    mpmath.diff(
                        lambda a, y=y: mpmath.loggamma(mpmath.exp(a) + y) - mpmath.loggamma(mpmath.exp(a)),
                        mpmath.mpf(log_phi),
                        order,
                    )
                )
            rounding = 1e-10 * (1 + abs(expected)) + 1e-11 * y
            assert found.low[0] - rounding <= expected <= found.high[0] + rounding
            assert found.high[0] - found.low[0] <= 1e-3 * abs(expected) + 1e-9


def test_one_value_for_all_and_a_value_each_are_the_same() -> None:
    """Functions that are dear are taken once where they can be."""
    rng = np.random.default_rng(1)
    for make in (NegativeBinomial2, Gamma):
        y = rng.integers(1, 9, 50).astype(float)
        centre = np.array([rng.normal(0, 1, 50), np.full(50, 0.4)])
        lengths = np.full((2, 50), 0.3)
        if make is Gamma:
            centre = centre[::-1]
        together = make(y).largest(3, centre, lengths, 0.5)
        alone = [make(y[[i]]).largest(3, centre[:, [i]], lengths[:, [i]], 0.5)[0] for i in range(50)]
        np.testing.assert_allclose(together, alone, rtol=1e-12)


def test_jets() -> None:
    """What the bounds are held against, against differences in many digits."""
    third = float(along(lambda x: exp(log(x) * 2.5) / (1 + x), [np.array(1.7)], [1.0], 3))
    assert third == pytest.approx(float(mpmath.diff(lambda x: x**2.5 / (1 + x), 1.7, 3)), rel=1e-9)
    assert jets.of(2).c[0] == 2
