"""Log likelihoods with branches on parameters that jump: what the text says, derivatives, and bounds on boxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats
from test_kinks import Point, of_text

from stansub import _loop
from stansub.target.programs import SIDES, Code, ProgramFamily
from stansub.target.remainders import LinearPredictors

Array = NDArray[np.float64]

VON_MISES = """
real circular_lpdf(real y, real mu, real kappa) {
  if (kappa < 2) {
    return von_mises_lpdf(y | mu, kappa);
  } else {
    return normal_lpdf(y | mu, sqrt(1 / kappa));
  }
}
real circular_vector_lpdf(vector y, vector mu, real kappa) {
  if (kappa < 2) {
    return von_mises_lpdf(y | mu, kappa);
  } else {
    return normal_lpdf(y | mu, sqrt(1 / kappa));
  }
}"""


def _circular(y: Array, mu: Array, kappa: Array) -> Array:
    von_mises = kappa * (np.cos(y - mu) - 1) - np.log(2 * np.pi * special.i0e(kappa))
    return np.where(kappa < 2, von_mises, stats.norm.logpdf(y, mu, np.sqrt(1 / kappa)))


# The model block, functions, the log likelihood of an observation, and the number whose sign decides.
MODELS: dict[str, tuple[str, str, Callable[[Point, dict[str, Any]], Array], Callable[[Point, dict[str, Any]], Array]]]
MODELS = {
    "of a function": (
        "for (n in 1:N) target += circular_lpdf(z[n] | a, exp(s * x[n] + b));",
        VON_MISES,
        lambda t, d: _circular(d["z"], t.a, np.exp(t.s * d["x"] + t.b)),
        lambda t, d: np.exp(t.s * d["x"] + t.b) - 2,
    ),
    "change point": (
        "for (n in 1:N) { real m = a; if (x[n] >= p) m += s; z[n] ~ normal(m, 1); }",
        "",
        lambda t, d: stats.norm.logpdf(d["z"], t.a + np.where(d["x"] >= t.p, t.s, 0), 1),
        lambda t, d: d["x"] - t.p,
    ),
    "choice": (
        "for (n in 1:N) { real eta = a + b * x[n]; target += normal_lpdf(z[n] | eta > 0 ? log1p(eta) : eta - p, s); }",
        "",
        lambda t, d: stats.norm.logpdf(
            d["z"],
            np.where(t.a + t.b * d["x"] > 0, np.log1p(np.maximum(t.a + t.b * d["x"], 0)), t.a + t.b * d["x"] - t.p),
            t.s,
        ),
        lambda t, d: t.a + t.b * d["x"],
    ),
    "step": (
        "for (n in 1:N) z[n] ~ normal(a + b * step(x[n] - p), s);",
        "",
        lambda t, d: stats.norm.logpdf(d["z"], t.a + t.b * (d["x"] >= t.p), t.s),
        lambda t, d: d["x"] - t.p,
    ),
    "an integer": (
        "for (n in 1:N) { int later = x[n] > p; z[n] ~ normal(a + b * later, s); }",
        "",
        lambda t, d: stats.norm.logpdf(d["z"], t.a + t.b * (d["x"] > t.p), t.s),
        lambda t, d: d["x"] - t.p,
    ),
    "either of two": (
        "for (n in 1:N) { if (x[n] < p - 1 || !(x[n] < p)) target += normal_lpdf(z[n] | a, s);"
        " else target += normal_lpdf(z[n] | b, s); }",
        "",
        lambda t, d: stats.norm.logpdf(d["z"], np.where((d["x"] < t.p - 1) | (d["x"] >= t.p), t.a, t.b), t.s),
        lambda t, d: (d["x"] - t.p) * (d["x"] - t.p + 1),
    ),
    "a window": (
        "for (n in 1:N) target += abs(x[n] - p) < 0.5 ? normal_lpdf(z[n] | a, s) : normal_lpdf(z[n] | b, s);",
        "",
        lambda t, d: stats.norm.logpdf(d["z"], np.where(np.abs(d["x"] - t.p) < 0.5, t.a, t.b), t.s),
        lambda t, d: np.abs(d["x"] - t.p) - 0.5,
    ),
    "outside a window": (
        "for (n in 1:N) { if (fabs(x[n] - p) >= 0.5) z[n] ~ normal(b, s); else z[n] ~ normal(a, s); }",
        "",
        lambda t, d: stats.norm.logpdf(d["z"], np.where(np.abs(d["x"] - t.p) < 0.5, t.a, t.b), t.s),
        lambda t, d: np.abs(d["x"] - t.p) - 0.5,
    ),
    "inside an absolute value": (
        "for (n in 1:N) target += -abs(z[n] - (x[n] < p ? a : b)) / s - log(s);",
        "",
        lambda t, d: -np.abs(d["z"] - np.where(d["x"] < t.p, t.a, t.b)) / t.s - np.log(t.s),
        lambda t, d: d["x"] - t.p,
    ),
}
VECTOR = (
    "target += circular_vector_lpdf(z | a + b * x, s);",
    VON_MISES,
    lambda t, d: _circular(d["z"], t.a + t.b * d["x"], t.s),
    lambda t, d: np.full(len(d["x"]), t.s - 2),
)
ALL = MODELS | {"of all observations": VECTOR}
POINTS = np.random.default_rng(4).standard_normal((6, 4)) + np.array([0, 0, 0.6, 0])
ANCHOR = np.array([0.3, 0.7, -0.1, -0.6])
RADIUS = 3.0


def at_anchor(name: str) -> tuple[LinearPredictors, ProgramFamily, Array, Array]:
    """The predictors of a model, their family with smooth kinks, arguments at a point, and how far they move."""
    found, _ = of_text(*ALL[name][:2])
    centre, lengths = found.at(ANCHOR), found.lengths(np.diag([0.05, 0.04, 0.03, 0.1]))
    family = found.smoothed(centre, lengths).family
    assert isinstance(family, ProgramFamily)
    return found, family, centre, lengths


@pytest.mark.parametrize("name", ALL)
def test_the_text_is_followed_to_the_side_that_is_taken(name: str) -> None:
    model, functions, truth, decides = ALL[name]
    found, values = of_text(model, functions)
    right = [truth(Point(theta, values), values) for theta in POINTS]
    sides = np.array([decides(Point(theta, values), values) > 0 for theta in POINTS])
    assert (sides != sides[0]).any()
    for theta, theirs in zip(POINTS, right, strict=True):
        np.testing.assert_allclose(found.log_lik(theta), theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_gradients_are_those_of_the_side_that_is_taken(name: str) -> None:
    """That of the other side is undefined for some observations, as of the logarithm of a negative number."""
    found, values = of_text(*ALL[name][:2])
    step = 1e-6
    for theta in POINTS:
        eta = found.at(theta)
        log_lik, slopes = found.family.gradients(eta)
        np.testing.assert_allclose(log_lik, found.log_lik(theta), rtol=1e-12, atol=1e-12)
        (own,) = found.family.derivatives((1,), eta)
        far = np.abs(ALL[name][3](Point(theta, values), values)) > 1e-3
        for k in range(len(eta)):
            move = step * (np.arange(len(eta)) == k)[:, np.newaxis]
            numeric = (found.family.log_lik(eta + move) - found.family.log_lik(eta - move)) / (2 * step)
            np.testing.assert_allclose(slopes[k][far], numeric[far], rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(own, slopes, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_a_bound_is_that_of_the_side_on_all_of_a_box_or_infinite(name: str) -> None:
    """On a box that the condition divides, the bound of the side at its centre is exceeded by jumps."""
    found, family, centre, lengths = at_anchor(name)
    values = of_text(*ALL[name][:2])[1]
    bound, of_side = (one.largest(3, centre, lengths, RADIUS) for one in (family, fixed(family, centre)))
    divided, near = np.zeros(centre.shape[1], bool), np.zeros(centre.shape[1], bool)
    here = ALL[name][3](Point(ANCHOR, values), values) > 0
    wrong, rng = 0, np.random.default_rng(5)
    (value,), (slope,), (curve,) = (family.derivatives((order,), centre) for order in range(3))
    for _ in range(2000):
        s = rng.uniform(-1, 1, 4) * [0.05, 0.04, 0.03, 0.1]
        s *= RADIUS * rng.uniform(0, 1) / max(np.linalg.norm(s / [0.05, 0.04, 0.03, 0.1]), 1e-9)
        theta = ANCHOR + s
        there = ALL[name][3](Point(theta, values), values) > 0
        divided |= there != here
        near |= (ALL[name][3](Point(ANCHOR + 4 * s, values), values) > 0) != here
        eta = found.at(theta)
        change = eta - centre
        expansion = value + (slope * change).sum(0) + 0.5 * np.einsum("abn,an,bn->n", curve, change, change)
        t = np.max(np.abs(change) / np.where(lengths > 0, lengths, np.inf), axis=0)
        error = np.abs(family.log_lik(eta) - expansion)
        growth = family.floor + t**3
        assert (error <= np.where(np.isinf(bound), np.inf, bound / 6 * growth * (1 + 1e-9)) + 1e-10).all()
        wrong += int((error > of_side / 6 * growth + 1e-3).sum())
    assert np.isinf(bound[divided]).all()
    assert np.isfinite(bound[~near]).all()
    np.testing.assert_array_equal(bound[np.isfinite(bound)], of_side[np.isfinite(bound)])
    if name != "of all observations":
        assert divided.any()
        assert wrong > 0
    assert (~near).any()


def fixed(family: ProgramFamily, centre: Array) -> ProgramFamily:
    """The family that takes the sides of a place everywhere; a wrong bound where the condition changes."""
    names = list(_loop.OPERATIONS)
    sides, leaves = [names.index(one) for one in SIDES], ("constant", "data", "argument")
    starts, codes, values, data = [0], [], [], family.data.copy()
    for i in range(centre.shape[1]):
        first, end = family.code.starts[int(family.data[0, i]) : int(family.data[0, i]) + 2]
        own = family.code.codes[first:end].copy()
        own[~np.isin(own[:, 0], [names.index(one) for one in leaves]), 1] += 2
        two = np.isin(own[:, 0], [names.index(one) for one in (*_binary(), *SIDES)])
        own[two, 2] += 2
        for at in np.flatnonzero(np.isin(own[:, 0], sides)):
            # The sign of the operand: that of the program that ends there.
            until = Code(
                np.array([0, own[at, 1] - 1], np.int32),
                family.code.codes[first:end][: own[at, 1] - 1],
                family.code.values[first:end][: own[at, 1] - 1],
            )
            one = ProgramFamily(until, family.n_arguments, np.concatenate([[[0.0]], family.data[1:, [i]]]))
            own[at, 1] = 0 if one.log_lik(centre[:, [i]])[0] < 0 else 1
        codes += [[names.index("constant"), 0, 0]] * 2 + own.tolist()
        values += [-1.0, 1.0, *family.code.values[first:end]]
        starts.append(len(codes))
        data[0, i] = i
    return ProgramFamily(
        Code(np.array(starts, np.int32), np.array(codes, np.int32), np.array(values)), family.n_arguments, data
    )


def _binary() -> tuple[str, ...]:
    return ("sum", "difference", "product", "log_sum_exp", "log_gamma_above", "log_gamma_below")


def test_where_a_number_is_zero_the_condition_is_that_of_the_text() -> None:
    for comparison, expected in {"<": 2, "<=": 1, ">": 2, ">=": 1}.items():
        found, _ = of_text(f"for (n in 1:N) target += (b * x[n] {comparison} 0 * z[n] ? 1 : 2) * a;")
        np.testing.assert_array_equal(found.log_lik(np.array([1.0, 0, 0, 0])), expected)
    found, _ = of_text("for (n in 1:N) target += a * step(b * x[n]) + s * int_step(b * x[n]);")
    np.testing.assert_array_equal(found.log_lik(np.array([1.0, 0, 0, 0])), 1)


def test_an_undefined_condition_does_not_hold() -> None:
    """As in Stan, whatever the comparison is; the side that is then taken has derivatives."""
    x = of_text("target += a * N;")[1]["x"]
    for comparison in ("< 0", "<= 0", "> -100", ">= -100", "< b && 0 < a"):
        found, _ = of_text(f"for (n in 1:N) target += log(x[n] * exp(b)) {comparison} ? 3 * a : s;")
        theta = np.array([2.0, 50.0 if "-" not in comparison else 0, 0, 0])
        theta[1] = {"< 0": -50.0, "<= 0": -50.0, "< b && 0 < a": 0.0}.get(comparison, 0.0)
        taken = (x > 0) & (np.log(np.abs(x)) < 0) if comparison == "< b && 0 < a" else x > 0
        eta = found.at(theta)
        log_lik, slopes = found.family.gradients(eta)
        np.testing.assert_allclose(log_lik, np.where(taken, 6.0, 1.0))
        np.testing.assert_array_equal(found.family.log_lik(eta), log_lik)
        np.testing.assert_array_equal(found.family.derivatives((1,), eta)[0], slopes)
        assert np.isfinite(slopes).all()
        bound = found.family.largest(3, eta, np.full_like(eta, 0.1), 1.0)
        assert np.isinf(bound[x < 0]).all()


def test_an_absolute_value_that_only_decides_has_no_kink() -> None:
    """Such log likelihoods were said to have kinks, which surrogate transitions do not support."""
    assert all(of_text(*MODELS[name][:2])[0].family.floor == 0 for name in ("a window", "outside a window"))


@pytest.mark.parametrize(
    ("comparison", "sides"), [("==", "log(w[n]) : (w[n]^a - 1) / a"), ("!=", "(w[n]^a - 1) / a : log(w[n])")]
)
def test_numbers_of_parameters_may_be_compared_for_equality(comparison: str, sides: str) -> None:
    """As in the transformation of Box and Cox, or in extreme value distributions, where a parameter may be 0."""
    found, values = of_text(f"for (n in 1:N) target += normal_lpdf(a {comparison} 0 ? {sides} | b, s);")
    log_w, family = np.log(values["w"]), found.family
    for a in (0.0, 0.4):
        theta = np.array([a, 0.2, 0.1, 0.0])
        y = np.expm1(a * log_w) / a if a else log_w
        np.testing.assert_allclose(found.log_lik(theta), stats.norm.logpdf(y, 0.2, np.exp(0.1)), rtol=1e-9)
        lengths = found.lengths(0.1 * np.eye(4))
        bounds = [family.largest(3, found.at(theta), lengths, radius) for radius in (3.0, 5.0)]
        assert np.isinf(bounds[1]).all()
        assert np.isfinite(bounds[0]).all() == bool(a)
