"""Stan's densities written out: values against scipy's at random points."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

import numpy as np
import pytest
from scipy import stats

from stansub.stan.expansions import DENSITIES, VECTORS

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
