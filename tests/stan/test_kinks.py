"""Log likelihoods with kinks: what the text says, smooth derivatives, and bounds held against fine maximisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kinked import ASYM_LAPLACE
from numpy.typing import NDArray
from scipy import special

from stansub.stan.observations.observation import follow
from stansub.stan.observations.predictors import _dense
from stansub.stan.observations.row_program import in_program
from stansub.stan.observations.rowwise import NotFollowedError
from stansub.stan.syntax import parse
from stansub.target.programs import ProgramFamily
from stansub.target.remainders import LinearPredictors, NoPredictorsError

Array = NDArray[np.float64]

N = 300
PROGRAM = """
functions {{ {functions} }}
data {{ int<lower=0> N; vector[N] x; vector[N] z; vector[N] w; }}
parameters {{ real a; real b; real<lower=0> s; real<lower=0, upper=1> p; }}
model {{ a ~ normal(0, 1); {model} }}
"""
EARLY = """
real rho(real y, real q) {
  if (y > 0) return y * q;
  return y * (q - 1);
}"""


class Point:
    """Parameters at unconstrained ones, and the errors of the observations."""

    def __init__(self, theta: Array, values: dict[str, Any]) -> None:
        self.a, self.b, self.s, self.p = theta[0], theta[1], np.exp(theta[2]), 1 / (1 + np.exp(-theta[3]))
        self.error = values["z"] - self.a - self.b * values["x"]


def loss(error: Array, quantile: float) -> Array:
    return np.where(error < 0, (quantile - 1) * error, quantile * error)


# The model block, functions, and the log likelihood of an observation up to terms that no parameter is in.
MODELS: dict[str, tuple[str, str, Callable[[Point, dict[str, Any]], Array]]] = {
    "brms": (
        "vector[N] mu = rep_vector(0.0, N); mu += a + b * x;"
        " for (n in 1:N) target += asym_laplace_lpdf(z[n] | mu[n], s, 0.3);",
        ASYM_LAPLACE,
        lambda t, d: -np.log(t.s) - loss(t.error, 0.3) / t.s,
    ),
    "brms, any quantile": (
        "for (n in 1:N) target += asym_laplace_lpdf(z[n] | a + b * x[n], s, p);",
        ASYM_LAPLACE,
        lambda t, d: np.log(t.p * (1 - t.p)) - np.log(t.s) - loss(t.error, t.p) / t.s,
    ),
    "early return": (
        "for (n in 1:N) target += -log(s) - rho(z[n] - a - b * x[n], 0.3) / s;",
        EARLY,
        lambda t, d: -np.log(t.s) - loss(t.error, 0.3) / t.s,
    ),
    "double exponential": (
        "z ~ double_exponential(a + b * x, s);",
        "",
        lambda t, d: -np.log(t.s) - np.abs(t.error) / t.s,
    ),
    "skew": (
        "z ~ skew_double_exponential(a + b * x, s, p);",
        "",
        lambda t, d: np.log(t.p * (1 - t.p)) - np.log(t.s) - 2 * loss(t.error, t.p) / t.s,
    ),
    "known scale": ("z ~ double_exponential(a + b * x, 0.5);", "", lambda t, d: -2 * np.abs(t.error)),
    "weights": (
        "for (n in 1:N) target += w[n] * double_exponential_lpdf(z[n] | a + b * x[n], s);",
        "",
        lambda t, d: d["w"] * (-np.log(t.s) - np.abs(t.error) / t.s),
    ),
    "choice": (
        "for (n in 1:N) { real e = z[n] - a - b * x[n]; target += -(e >= 0 ? 0.2 * e : -e) / s - log(s); }",
        "",
        lambda t, d: -np.where(t.error >= 0, 0.2 * t.error, -t.error) / t.s - np.log(t.s),
    ),
    "a side as a number": (
        "for (n in 1:N) { real u = (z[n] - a - b * x[n]) / s; target += -u * (0.3 - (u < 0 ? 1 : 0)) - log(s); }",
        "",
        lambda t, d: -np.log(t.s) - loss(t.error, 0.3) / t.s,
    ),
    "a condition as a number": (
        "for (n in 1:N) target += -(z[n] - a) * (p - (z[n] < a)) / s;",
        "",
        lambda t, d: -loss(d["z"] - t.a, t.p) / t.s,
    ),
    "two sides": (
        "for (n in 1:N) { if (z[n] < a) target += a - z[n]; else target += s * (a - z[n]); }",
        "",
        lambda t, d: np.where(d["z"] < t.a, t.a - d["z"], t.s * (t.a - d["z"])),
    ),
    "a weight of the absolute value": (
        "for (n in 1:N) { real e = z[n] - a - b * x[n]; real k = e < 0 ? 1 - p : p;"
        " target += -abs(e) * k / s - log(s); }",
        "",
        lambda t, d: -np.log(t.s) - loss(t.error, t.p) / t.s,
    ),
    "absolute values on either side": (
        "for (n in 1:N) { real u = (z[n] - a) / s; target += z[n] > a ? -0.3 * abs(u) : -0.7 * abs(z[n] - a) / s; }",
        "",
        lambda t, d: -loss(d["z"] - t.a, 0.3) / t.s,
    ),
    "a step": (
        "for (n in 1:N) target += (a - z[n]) * s * (p - step(a - z[n]));",
        "",
        lambda t, d: -t.s * loss(d["z"] - t.a, t.p),
    ),
    "assigned": (
        "for (n in 1:N) { real e = z[n] - a; real k = 0;"
        " if (e > 0) { k = e * 3; } else { k = -e; } target += -k / s; }",
        "",
        lambda t, d: -np.where(d["z"] > t.a, 3 * (d["z"] - t.a), t.a - d["z"]) / t.s,
    ),
    "data on one side": (
        "for (n in 1:N) { real k = w[n]; if (z[n] > a) { k = w[n] + 2 * (z[n] - a); } target += -k / s; }",
        "",
        lambda t, d: -(d["w"] + 2 * np.maximum(d["z"] - t.a, 0)) / t.s,
    ),
    "slopes on either side": (
        "for (n in 1:N) { real m = a; if (x[n] < p) m = m + b * (x[n] - p); else m = m + s * (x[n] - p);"
        " target += -square(z[n] - m); }",
        "",
        lambda t, d: -((d["z"] - t.a - np.where(d["x"] < t.p, t.b, t.s) * (d["x"] - t.p)) ** 2),
    ),
    "break": (
        "for (n in 1:N) { real m = a; if (x[n] > p) m += b * (x[n] - p); target += -square(z[n] - m); }",
        "",
        lambda t, d: -((d["z"] - t.a - t.b * np.maximum(d["x"] - t.p, 0)) ** 2),
    ),
    "hinge": (
        "for (n in 1:N) z[n] ~ normal(b * fmax(x[n] - a, 0), s);",
        "",
        lambda t, d: -np.log(t.s) - 0.5 * ((d["z"] - t.b * np.maximum(d["x"] - t.a, 0)) / t.s) ** 2,
    ),
    "largest of three": (
        "for (n in 1:N) z[n] ~ normal(max([a, b * x[n], s]) + min({b, z[n]}), 1);",
        "",
        lambda t, d: -0.5 * (d["z"] - np.maximum(np.maximum(t.a, t.b * d["x"]), t.s) - np.minimum(t.b, d["z"])) ** 2,
    ),
    "Huber": (
        "for (n in 1:N) { real e = abs(z[n] - a - b * x[n]); real k = fmin(e, 0.7);"
        " target += -(square(k) / 2 + 0.7 * (e - k)) / s - log(s); }",
        "",
        lambda t, d: (
            -np.log(t.s) - np.where(np.abs(t.error) < 0.7, t.error**2 / 2, 0.7 * (np.abs(t.error) - 0.35)) / t.s
        ),
    ),
    "inside a logarithm": (
        "for (n in 1:N) target += -2 * log1p(abs(z[n] - a - b * x[n]) / s) - log(s);",
        "",
        lambda t, d: -2 * np.log1p(np.abs(t.error) / t.s) - np.log(t.s),
    ),
    "inside incomplete gamma functions": (
        "for (n in 1:N) target += gamma_lccdf(3 + abs(z[n] - a - b * x[n]) | s, w[n])"
        " + gamma_lcdf(w[n] | 2 + abs(z[n] - a), p);",
        "",
        lambda t, d: (
            np.log(special.gammaincc(t.s, d["w"] * (3 + np.abs(t.error))))
            + np.log(special.gammainc(2 + np.abs(d["z"] - t.a), t.p * d["w"]))
        ),
    ),
}
LOOSE = ("Huber", "inside a logarithm", "inside incomplete gamma functions")
REFUSED = {
    "for (n in 1:N) { while (z[n] < a) target += b; }": "how often a loop runs",
    "target += max(z - a);": "max of parameters is not supported",
}


def made(name: str) -> tuple[LinearPredictors, dict[str, Any]]:
    """The predictors of a model, and its data."""
    model, functions, _ = MODELS[name]
    return of_text(model, functions)


def of_text(model: str, functions: str = "") -> tuple[LinearPredictors, dict[str, Any]]:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(N)
    values = {"N": N, "x": x, "z": 0.3 + 0.7 * x + rng.standard_normal(N), "w": rng.uniform(0.5, 2, N)}
    program = parse(PROGRAM.format(model=model, functions=functions))
    return _dense(*in_program(follow(program, values, N).term, N)), values


POINTS = np.random.default_rng(4).standard_normal((4, 4))
ANCHOR = np.array([0.3, 0.7, -0.1, -0.6])


def smoothed(name: str, lengths: float = 0.1) -> tuple[ProgramFamily, Array, Array]:
    """The family with smooth kinks, its arguments at a place, and how far they move in an sd."""
    found, _ = made(name)
    centre = found.at(ANCHOR)
    moves = found.lengths(lengths * np.diag([1.0, 0.8, 0.5, 0.5]))
    family = found.smoothed(centre, moves).family
    assert isinstance(family, ProgramFamily)
    return family, centre, moves


@pytest.mark.parametrize("name", MODELS)
def test_the_text_is_followed_through_branches_on_parameters(name: str) -> None:
    found, values = made(name)
    assert found.family.floor > 0
    right = [MODELS[name][2](Point(theta, values), values) for theta in POINTS]
    own = [found.log_lik(theta) for theta in POINTS]
    for theirs, ours in zip(right[1:], own[1:], strict=True):
        np.testing.assert_allclose(ours - own[0], theirs - right[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.smoothed_at(ANCHOR, 0.1 * np.eye(4)).log_lik(POINTS[0]), own[0])


@pytest.mark.parametrize("model", REFUSED)
def test_what_cannot_be_followed_is_refused(model: str) -> None:
    with pytest.raises((NotFollowedError, NoPredictorsError), match=REFUSED[model]):
        of_text(model)


@pytest.mark.parametrize("name", MODELS)
def test_derivatives_are_those_of_a_smooth_function_near_the_kinks(name: str) -> None:
    family, centre, moves = smoothed(name)
    step = 1e-6
    rng = np.random.default_rng(2)
    at = centre + moves * rng.uniform(-0.5, 0.5, centre.shape)
    value, slopes, curves = family.derivatives((0, 1, 2), at)
    np.testing.assert_allclose(family.gradients(at)[0], value, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(family.gradients(at)[1], slopes, rtol=1e-9, atol=1e-9)
    for k in range(len(at)):
        move = step * (np.arange(len(at)) == k)[:, np.newaxis]
        (ahead, above), (behind, below) = (family.derivatives((0, 1), there) for there in (at + move, at - move))
        np.testing.assert_allclose((ahead - behind) / (2 * step), slopes[k], rtol=1e-5, atol=1e-4)
        # The curvature jumps where parabolas end.
        far = np.abs((above - below) / (2 * step) - curves[k]) > 1e-3 * (1 + np.abs(curves[k]))
        assert far.sum() <= 2


def errors(family: ProgramFamily, centre: Array, moves: Array) -> Callable[[Array], Array]:
    """Of the expansion about the centre, with arguments so many lengths from it."""
    slopes, curves = family.derivatives((1, 2), centre)
    value, slopes, curves = family.log_lik(centre), slopes * moves, curves * moves * moves[:, np.newaxis] / 2

    def at(s: Array) -> Array:
        expansion = ((slopes + (curves * s).sum(axis=1)) * s).sum(axis=0)
        return np.asarray(family.log_lik(centre + s * moves) - value - expansion)

    return at


def bounds(family: ProgramFamily, centre: Array, moves: Array, radius: float) -> Array:
    return np.asarray(family.largest(3, centre, moves, radius) / 6)


def test_bounds_of_straight_lines_are_the_largest_errors() -> None:
    """A bound that is one percent smaller is exceeded at every observation whose kink is within reach."""
    family, centre, moves = smoothed("known scale")
    radius = 6.0
    found = bounds(family, centre, moves, radius)
    reached = np.abs(centre[0]) < radius * moves[0]  # the only argument is the error
    assert 30 < reached.sum() < N - 30
    assert (found[~reached] == 0).all()
    ratio, error_at = np.zeros(N), errors(family, centre, moves)
    for s in np.linspace(-radius, radius, 4801):
        error = np.abs(error_at(np.full(centre.shape, s)))
        assert (error[~reached] < 1e-12).all()
        ratio[reached] = np.maximum(ratio[reached], error[reached] / (found[reached] * (family.floor + abs(s) ** 3)))
    # Kinks that are barely within reach add next to nothing.
    clear = reached & (found > 1e-3 * found.max())
    assert ratio[clear].max() <= 1 + 1e-9
    assert ratio[clear].min() > 0.99


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("length", "radius"), [(0.02, 4.0), (0.1, 6.0)])
def test_bounds_hold(name: str, length: float, radius: float) -> None:
    """For all pairs of points: the error's rise and its fall are each within its bounds at both."""
    family, centre, moves = smoothed(name, length)
    found = bounds(family, centre, moves, radius)
    # The line in place of |u| leaves the domain of the logarithm in a few wide boxes.
    assert np.isfinite(found).all() or (name == "inside a logarithm" and np.isfinite(found).mean() > 0.9)
    rng = np.random.default_rng(5)
    rise = fall = -family.floor * found
    sizes, error_at = np.zeros(N), errors(family, centre, moves)
    split = family.split(3, centre, moves, (radius,))[0] / 6
    for _ in range(1000):
        s = rng.uniform(-1, 1, centre.shape)
        t = radius * rng.uniform(0, 1, N) ** 2
        s *= t / np.abs(s).max(axis=0)
        error, bound = error_at(s), (split * (family.floor + np.abs(s) ** 3)).sum(0)
        rise, fall = np.maximum(rise, error - bound), np.maximum(fall, -error - bound)
        sizes = np.maximum(sizes, np.abs(error) / (family.floor + t**3))
    assert (rise + fall <= 1e-11).all()
    # Not far off either, unless kinks cancel or are inside of other functions.
    assert name in LOOSE or found.sum() < (3 if length < 0.1 else 20) * sizes.sum() + 1e-9


def test_a_kink_within_reach_has_no_bound_without_a_floor() -> None:
    family, centre, moves = smoothed("known scale")
    out = np.empty((1, N))
    family.density.largest(3, np.ascontiguousarray(family.data), centre, moves, [6.0], out)
    assert np.isinf(out).any()
    assert np.isfinite(bounds(family, centre, moves, 6.0)).all()


def test_a_wider_smoothing_than_that_of_the_expansion_exceeds_the_bound() -> None:
    """The bounds are those of the widths with which derivatives are taken."""
    family, centre, moves = smoothed("known scale")
    error_at = errors(family.smoothed(centre, 3 * moves), centre, moves)
    found, furthest = bounds(family, centre, moves, 6.0), 0.0
    for s in np.linspace(-6, 6, 2001):
        error = np.abs(error_at(np.full(centre.shape, s)))
        furthest = max(furthest, float((error - 1e-9 - found * (family.floor + abs(s) ** 3)).max()))
    assert furthest > 0.1 * found.max()
