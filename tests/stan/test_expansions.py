"""Stan's densities written out: values against scipy's, derivatives and bounds on these against mpmath's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from inspect import signature
from itertools import combinations_with_replacement, permutations, product
from typing import Any, NamedTuple

import mpmath
import numpy as np
import pytest
from mpmath import log, loggamma
from scipy import special, stats
from test_row_program import suprema

from stansub.stan.observations.expansions import DENSITIES, ELEMENTARY, VECTORS
from stansub.stan.observations.row_program import in_program
from stansub.stan.observations.rowwise import NotFollowedError, affine, apply, data
from stansub.stan.observations.tails import TAILS
from stansub.target.programs import ProgramFamily
from stansub.types import FloatArray

SCALAR: dict[str, Callable[..., float]] = {
    "gumbel": lambda y, mu, beta: stats.gumbel_r.logpdf(y, mu, beta),
    "inv_gamma": lambda y, alpha, beta: stats.invgamma.logpdf(y, alpha, scale=beta),
    "chi_square": lambda y, nu: stats.chi2.logpdf(y, nu),
    "inv_chi_square": lambda y, nu: stats.invgamma.logpdf(y, nu / 2, scale=0.5),
    "scaled_inv_chi_square": lambda y, nu, s: stats.invgamma.logpdf(y, nu / 2, scale=nu * s**2 / 2),
    "rayleigh": lambda y, sigma: stats.rayleigh.logpdf(y, scale=sigma),
    "loglogistic": lambda y, alpha, beta: stats.fisk.logpdf(y, beta, scale=alpha),
    "pareto_type_2": lambda y, mu, scale, alpha: stats.lomax.logpdf(y, alpha, mu, scale),
    "pareto": lambda y, y_min, alpha: stats.pareto.logpdf(y, alpha, scale=y_min),
    "frechet": lambda y, alpha, sigma: stats.invweibull.logpdf(y, alpha, scale=sigma),
    "skew_normal": lambda y, xi, omega, alpha: stats.skewnorm.logpdf(y, alpha, xi, omega),
    "exp_mod_normal": lambda y, mu, sigma, rate: stats.exponnorm.logpdf(y, 1 / (sigma * rate), mu, sigma),
    "von_mises": lambda y, mu, kappa: stats.vonmises.logpdf(y, kappa, mu),
}


@pytest.mark.parametrize("name", SCALAR)
def test_scalar_densities_are_those_of_scipy(name: str) -> None:
    rng = np.random.default_rng(3)
    count = len(signature(SCALAR[name]).parameters) - 1
    for _ in range(200):
        # Above every lower end of a support, which the arguments give.
        y, given = rng.uniform(1, 4), rng.uniform(0.2, 1, count)
        assert DENSITIES[name](y, *given) == pytest.approx(SCALAR[name](y, *given), rel=1e-9, abs=1e-9)


# Distributions, whose distribution functions are held against scipy's.
DISTRIBUTIONS: dict[str, Callable[..., Any]] = {
    "rayleigh": lambda sigma: stats.rayleigh(scale=sigma),
    "loglogistic": lambda alpha, beta: stats.fisk(beta, scale=alpha),
    "pareto_type_2": lambda mu, scale, alpha: stats.lomax(alpha, mu, scale),
    "pareto": lambda y_min, alpha: stats.pareto(alpha, scale=y_min),
    "frechet": lambda alpha, sigma: stats.invweibull(alpha, scale=sigma),
    "gumbel": lambda mu, beta: stats.gumbel_r(mu, beta),
    "cauchy": lambda mu, sigma: stats.cauchy(mu, sigma),
    "gamma": lambda alpha, beta: stats.gamma(alpha, scale=1 / beta),
    "inv_gamma": lambda alpha, beta: stats.invgamma(alpha, scale=beta),
    "chi_square": lambda nu: stats.chi2(nu),
    "inv_chi_square": lambda nu: stats.invgamma(nu / 2, scale=0.5),
    "scaled_inv_chi_square": lambda nu, s: stats.invgamma(nu / 2, scale=nu * s**2 / 2),
    "exp_mod_normal": lambda mu, sigma, rate: stats.exponnorm(1 / (sigma * rate), mu, sigma),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distribution_functions_are_those_of_scipy(name: str) -> None:
    rng = np.random.default_rng(6)
    count = len(signature(DISTRIBUTIONS[name]).parameters)
    for _ in range(200):
        y, given = rng.uniform(1, 4), rng.uniform(0.2, 1, count)
        found = DISTRIBUTIONS[name](*given)
        assert TAILS[f"{name}_lcdf"](y, *given) == pytest.approx(found.logcdf(y), rel=1e-9, abs=1e-11)
        assert TAILS[f"{name}_lccdf"](y, *given) == pytest.approx(found.logsf(y), rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("name", ["gamma_lcdf", "gamma_lccdf"])
def test_incomplete_gamma_functions_are_those_of_scipy_for_parameters_of_any_size(name: str) -> None:
    """Also where one of them is nearly 1, and for shapes near 0."""
    shape, rate = (apply("exp", affine(np.eye(2)[k : k + 1], np.zeros(1))) for k in (0, 1))
    family, rows = in_program(TAILS[name](1.0, shape, rate), 1)
    for a in (1e-3, 0.3, 1.0, 7.0, 300.0):
        for x in (1e-3, 0.5, 1.0, 9.0, 310.0):
            with mpmath.workdps(60):
                ends = (0, x) if name == "gamma_lcdf" else (x, mpmath.inf)
                truth = float(log(mpmath.gammainc(a, *ends, regularized=True)))
            theta = np.log([a, x])
            eta = np.stack([row.slopes @ theta + row.offset for row in rows])
            assert family.log_lik(eta) == pytest.approx(truth, rel=1e-10, abs=1e-11)
            assert family.gradients(eta)[0] == pytest.approx(truth, rel=1e-10, abs=1e-11)


def test_modified_bessel_functions_are_those_of_scipy() -> None:
    function = ELEMENTARY["log_modified_bessel_first_kind"]
    for x in (0.0, 1e-6, 0.5, 19.9, 20.1, 700.0, 1e5):
        family, _ = in_program(function(0, affine(np.ones((1, 1)), np.zeros(1))), 1)
        truth = np.log(special.i0e(x)) + x
        assert family.log_lik(np.array([[x]])) == pytest.approx(truth, rel=1e-12, abs=1e-15)
        assert function(0, x) == pytest.approx(truth, rel=1e-12, abs=1e-15)
    with pytest.raises(NotFollowedError, match="order above 0"):
        function(1, affine(np.ones((1, 1)), np.zeros(1)))


def test_normal_quantiles_are_precise_in_both_tails() -> None:
    """From the log of the probability, also where the probability rounds to one."""
    family, _ = in_program(ELEMENTARY["inv_Phi"](apply("exp", affine(np.ones((1, 1)), np.zeros(1)))), 1)
    for z in (-30.0, -5.0, -0.1, 0.0, 0.1, 3.0, 8.0, 20.0):
        assert family.log_lik(np.array([[stats.norm.logcdf(z)]])) == pytest.approx(z, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize(("y", "at"), [(0.0, -3.0), (0.0, 4.0), (1.0, -3.0), (1.0, 4.0)])
def test_a_complementary_log_log_link_is_followed_where_the_probability_rounds_to_one(y: float, at: float) -> None:
    eta = affine(np.ones((1, 1)), np.zeros(1))
    family, _ = in_program(DENSITIES["bernoulli"](y, ELEMENTARY["inv_cloglog"](eta)), 1)
    expected = np.log(-np.expm1(-np.exp(at))) if y else -np.exp(at)
    assert family.log_lik(np.array([[at]])) == pytest.approx(expected, rel=1e-12)


def test_vectors_of_shares_and_counts_are_those_of_scipy() -> None:
    rng = np.random.default_rng(4)
    for _ in range(100):
        shares, alpha = rng.dirichlet([2, 1, 3]), rng.uniform(0.2, 9, 3)
        assert VECTORS["dirichlet"](list(shares), list(alpha)) == pytest.approx(
            stats.dirichlet.logpdf(shares, alpha), rel=1e-9, abs=1e-9
        )
        counts = rng.multinomial(12, shares).astype(float)
        value = stats.multinomial.logpmf(counts, 12, shares)
        logits = np.log(shares) + rng.standard_normal()
        assert VECTORS["multinomial"](list(counts), list(shares)) == pytest.approx(value, rel=1e-9, abs=1e-9)
        assert VECTORS["multinomial_logit"](list(counts), list(logits)) == pytest.approx(value, rel=1e-9, abs=1e-9)
        value = stats.dirichlet_multinomial.logpmf(counts.astype(int), alpha, 12)
        assert VECTORS["dirichlet_multinomial"](list(counts), list(alpha)) == pytest.approx(value, rel=1e-9, abs=1e-9)


def test_vectors_of_numbers_are_those_of_scipy() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        y, mu, nu, root = rng.normal(size=3), rng.normal(size=3), rng.uniform(1, 9), rng.normal(size=(3, 3))
        sigma = root @ root.T + np.eye(3)
        for name, given in (("_cholesky", np.linalg.cholesky(sigma)), ("", sigma)):
            value = _near(stats.multivariate_normal.logpdf(y, mu, sigma))
            assert VECTORS["multi_normal" + name](list(y), list(mu), given) == value
            value = _near(stats.multivariate_t.logpdf(y, mu, sigma, nu))
            assert VECTORS["multi_student_t" + name](list(y), nu, list(mu), given) == value


def test_a_uniform_density_has_bounds_that_are_data() -> None:
    y = data(np.array([0.5, 1.5, 3.0]))
    np.testing.assert_array_equal(DENSITIES["uniform"](y, 1.0, 3.0).values, [-np.inf, -np.log(2), -np.log(2)])
    with pytest.raises(NotFollowedError):
        DENSITIES["uniform"](y, 1.0, affine(np.ones((1, 1)), np.zeros(1)))


# Functions of numbers between 0 and 1, and whether they may be of parameters.
NUMBERS: dict[str, tuple[bool, Callable[..., Any]]] = {
    "log10": (True, mpmath.log10),
    "exp2": (True, lambda x: 2**x),
    "atanh": (True, mpmath.atanh),
    "hypot": (True, mpmath.hypot),
    "beta": (True, mpmath.beta),
    "gamma_p": (True, lambda a, x: mpmath.gammainc(a, 0, x, regularized=True)),
    "gamma_q": (True, lambda a, x: mpmath.gammainc(a, x, regularized=True)),
    "log_inv_logit_diff": (True, lambda x, y: log(1 / (1 + mpmath.exp(-x)) - 1 / (1 + mpmath.exp(-y)))),
    "log_rising_factorial": (True, lambda x, n: loggamma(x + n) - loggamma(x)),
    "log_falling_factorial": (True, lambda x, n: loggamma(x + 1) - loggamma(x - n + 1)),
    "asin": (True, mpmath.asin),
    "acos": (True, mpmath.acos),
    "atan2": (True, mpmath.atan2),
    "asinh": (False, mpmath.asinh),
    "acosh": (True, mpmath.acosh),
    "cbrt": (False, mpmath.cbrt),
    "inv_Phi": (True, lambda p: mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1)),
    "trigamma": (False, lambda x: mpmath.psi(1, x)),
    "trunc": (False, lambda x: mpmath.mpf(int(x))),
}


OF_TWO = {
    "hypot",
    "beta",
    "gamma_p",
    "gamma_q",
    "atan2",
    *(name for name in NUMBERS if name.startswith(("log_inv", "log_ris", "log_fal"))),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_functions_of_numbers_are_those_of_mpmath(name: str) -> None:
    of_parameters, function = NUMBERS[name]
    values = [0.8, 0.3][: 2 if name in OF_TWO else 1]
    at = [one + (2 if name == "acosh" else 0) for one in values]
    expected = _near(float(function(*map(mpmath.mpf, at))))
    assert ELEMENTARY[name](*map(np.array, at)) == expected
    given = [affine(np.eye(len(at))[k : k + 1], np.zeros(1)) for k in range(len(at))]
    if not of_parameters:
        with pytest.raises(NotFollowedError):
            ELEMENTARY[name](*given)
        return
    family, rows = in_program(ELEMENTARY[name](*given), 1)
    eta = np.stack([row.slopes @ at + row.offset for row in rows])
    assert family.log_lik(eta) == expected


def _skew_normal(y: Any, xi: Any, omega: Any, alpha: Any) -> Any:
    z = (y - xi) / omega
    return log(2 * mpmath.npdf(z) / omega) + log(mpmath.ncdf(alpha * z))


def _exp_mod_normal(y: Any, mu: Any, sigma: Any, rate: Any) -> Any:
    tail = mpmath.erfc((mu + rate * sigma**2 - y) / (mpmath.sqrt(2) * sigma))
    return log(rate / 2) + rate / 2 * (2 * mu + rate * sigma**2 - 2 * y) + log(tail)


def _mixed(y: Any, mu: Any, sigma: Any, rate: Any) -> Any:
    z = (y - mu) / sigma
    return mpmath.exp((rate * sigma) ** 2 / 2 - rate * (y - mu)) * mpmath.ncdf(z - rate * sigma)


# How each argument depends on an unconstrained parameter: as it is, as its exponential, or not at all; and the density.
FORMULAS: dict[str, tuple[str, Callable[..., Any]]] = {
    "gumbel": ("as_is exp", lambda y, mu, b: -log(b) - (y - mu) / b - mpmath.exp(-(y - mu) / b)),
    "inv_gamma": ("exp exp", lambda y, a, b: a * log(b) - loggamma(a) - (a + 1) * log(y) - b / y),
    "chi_square": ("exp", lambda y, nu: -nu / 2 * log(2) - loggamma(nu / 2) + (nu / 2 - 1) * log(y) - y / 2),
    "inv_chi_square": (
        "exp",
        lambda y, nu: -nu / 2 * log(2) - loggamma(nu / 2) - (nu / 2 + 1) * log(y) - 1 / (2 * y),
    ),
    "scaled_inv_chi_square": (
        "exp exp",
        lambda y, nu, s: (
            nu / 2 * log(nu / 2) - loggamma(nu / 2) + nu * log(s) - (nu / 2 + 1) * log(y) - nu * s**2 / (2 * y)
        ),
    ),
    "rayleigh": ("exp", lambda y, s: log(y) - 2 * log(s) - (y / s) ** 2 / 2),
    "loglogistic": ("exp exp", lambda y, a, b: log(b / a) + (b - 1) * log(y / a) - 2 * log(1 + (y / a) ** b)),
    "pareto_type_2": ("as_is exp exp", lambda y, mu, s, a: log(a / s) - (a + 1) * log(1 + (y - mu) / s)),
    "pareto": ("known exp", lambda y, y_min, a: log(a) + a * log(y_min) - (a + 1) * log(y)),
    "frechet": ("exp exp", lambda y, a, s: log(a / s) - (1 + a) * log(y / s) - (y / s) ** -a),
    "skew_normal": ("as_is exp as_is", _skew_normal),
    "exp_mod_normal": ("as_is exp exp", _exp_mod_normal),
    "von_mises": ("as_is exp", lambda y, mu, k: k * mpmath.cos(y - mu) - log(2 * mpmath.pi * mpmath.besseli(0, k))),
    "rayleigh_lcdf": ("exp", lambda y, s: log(1 - mpmath.exp(-((y / s) ** 2) / 2))),
    "loglogistic_lccdf": ("exp exp", lambda y, a, b: -log(1 + (y / a) ** b)),
    "pareto_type_2_lcdf": ("as_is exp exp", lambda y, mu, s, a: log(1 - (1 + (y - mu) / s) ** -a)),
    "cauchy_lccdf": ("as_is exp", lambda y, mu, s: log(0.5 - mpmath.atan((y - mu) / s) / mpmath.pi)),
    "gamma_lcdf": ("exp exp", lambda y, a, b: log(mpmath.gammainc(a, 0, b * y, regularized=True))),
    "gamma_lccdf": ("exp exp", lambda y, a, b: log(mpmath.gammainc(a, b * y, regularized=True))),
    "inv_gamma_lcdf": ("exp exp", lambda y, a, b: log(mpmath.gammainc(a, b / y, regularized=True))),
    "chi_square_lccdf": ("exp", lambda y, nu: log(mpmath.gammainc(nu / 2, y / 2, regularized=True))),
    "exp_mod_normal_lcdf": (
        "as_is exp exp",
        lambda *given: log(mpmath.ncdf((given[0] - given[1]) / given[2]) - _mixed(*given)),
    ),
    "exp_mod_normal_lccdf": (
        "as_is exp exp",
        lambda *given: log(mpmath.ncdf((given[1] - given[0]) / given[2]) + _mixed(*given)),
    ),
}
Y, GIVEN = np.array([1.3, 2.1]), (0.4, 0.8, 0.6)


class Held(NamedTuple):
    """A program of a density beside the density.

    Attributes
    ----------
    family : ProgramFamily
    centre : ndarray, shape (q, n)
        Values of its arguments.
    densities : list of callable
        Of each observation, as functions of these.
    """

    family: ProgramFamily
    centre: FloatArray
    densities: list[Callable[..., Any]]


def _held(name: str) -> Held:
    links, formula = FORMULAS[name][0].split(), FORMULAS[name][1]
    free = [k for k, link in enumerate(links) if link != "known"]
    values: list[Any] = list(GIVEN[: len(links)])
    for place, k in enumerate(free):
        one = affine(np.eye(len(free))[place : place + 1], np.zeros(1))
        values[k] = apply("exp", one) if links[k] == "exp" else one
    family, rows = in_program((DENSITIES | TAILS)[name](data(Y), *values), len(Y))
    theta = np.array([np.log(GIVEN[k]) if links[k] == "exp" else GIVEN[k] for k in free])
    slopes, offsets = np.stack([row.slopes[0] for row in rows]), np.stack([row.offset + 0 * Y for row in rows])
    back = np.linalg.inv(slopes)

    def density(i: int, *eta: Any) -> Any:
        own: list[Any] = [mpmath.mpf(one) for one in GIVEN[: len(links)]]
        for place, k in enumerate(free):
            x = sum(back[place, j] * (eta[j] - offsets[j, i]) for j in range(len(eta)))
            own[k] = mpmath.exp(x) if links[k] == "exp" else x
        return formula(mpmath.mpf(Y[i]), *own)

    return Held(family, slopes @ theta[:, np.newaxis] + offsets, [partial(density, i) for i in range(len(Y))])


def _partials(of: Callable[..., Any], at: FloatArray, order: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """All partial derivatives of an order, by the variables that they are taken with respect to."""
    for places in combinations_with_replacement(range(len(at)), order):
        counts = tuple(places.count(k) for k in range(len(at)))
        with mpmath.workdps(25):
            point = tuple(mpmath.mpf(x) for x in at)
            found = mpmath.diff(of, point, counts) if len(at) > 1 else mpmath.diff(of, point[0], order)
            yield places, float(found)


def _near(value: float) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("name", FORMULAS)
def test_derivatives_of_densities_are_those_of_mpmath(name: str) -> None:
    family, centre, densities = _held(name)
    start, gradient, hessian = family.derivatives((0, 1, 2), centre)
    change = family.log_lik(centre + 0.1) - start
    for i, of in enumerate(densities):
        at = centre[:, i]
        assert change[i] == _near(float(of(*(at + 0.1)) - of(*at)))
        for (j,), value in _partials(of, at, 1):
            assert gradient[j, i] == _near(value)
        for (j, k), value in _partials(of, at, 2):
            assert hessian[j, k, i] == _near(value)


@pytest.mark.parametrize("length", [2e-4, 0.1])
@pytest.mark.parametrize("name", FORMULAS)
def test_bounds_of_densities_hold(name: str, length: float) -> None:
    """Third derivatives at the corners of boxes are below their bounds, and by less than 1 % where the box is small."""
    family, centre, densities = _held(name)
    q, radius = len(centre), 2.0
    bound = suprema(family.density, 3, family.data, centre, np.full(centre.shape, length), radius)
    for i, of in enumerate(densities):
        found = 0.0
        for corner in product((-1, 1), repeat=q):
            partials = _partials(of, centre[:, i] + radius * length * np.array(corner), 3)
            found = max(found, sum(abs(value) * _orders(places) for places, value in partials) * length**3)
        assert found <= bound[i]
        assert length > 0.01 or found > 0.99 * bound[i]


def _orders(places: tuple[int, ...]) -> int:
    """In how many orders derivatives are taken with respect to some variables."""
    return len(set(permutations(places)))


@pytest.mark.parametrize("log_rate", [-8.0, -2.0, 4.0, 16.0, 28.0, 40.0])
def test_an_exponentially_modified_normal_density_is_precise_where_it_is_nearly_normal(log_rate: float) -> None:
    """Half the square of rate * sigma, up to 1e34 here, cancels: its rounding is no log likelihood."""
    y = data(np.array([-1.3, 0.2, 2.4]))
    rate = apply("exp", affine(np.ones((1, 1)), np.zeros(1)))
    family, _ = in_program(DENSITIES["exp_mod_normal"](y, 0.1, 0.7, rate), 3)
    found = family.log_lik(np.full((1, 3), log_rate))
    with mpmath.workdps(80):
        given = (mpmath.mpf(0.1), mpmath.mpf(0.7), mpmath.exp(log_rate))
        exact = [float(_exp_mod_normal(mpmath.mpf(one), *given)) for one in (-1.3, 0.2, 2.4)]
    assert found == pytest.approx(exact, rel=1e-12)
