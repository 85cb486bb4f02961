"""Logs of Stan's distribution functions, and of 1 less these, in terms of the operations of a program."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from stansub.stan.observations.elementary import (
    by_value,
    exp,
    inv,
    lgamma,
    log,
    log1m,
    log1p_exp,
    log_diff_exp,
    log_mills,
    log_phi,
    log_sum_exp,
    logit,
    square,
    weibull_exponent,
)
from stansub.stan.observations.rowwise import NotFollowedError, Number, apply, combine

# Logs of a distribution function, and of 1 less this.
Tails: TypeAlias = tuple[Callable[..., Number], Callable[..., Number]]


def _cauchy_below(y: Number, mu: Number, sigma: Number) -> Number:
    return log(0.5 + apply("atan", (y - mu) * inv(sigma)) * (1 / math.pi))


def exp_mod_normal_tails(y: Number, mu: Number, sigma: Number, rate: Number) -> tuple[Number, Number]:
    """Return z, and the log of the difference between its normal distribution function and that of y.

    The text-book form, (rate sigma)^2 / 2 - rate (y - mu) + log Phi(z - rate sigma), cancels where y is nearly normal.
    """
    z = (y - mu) * inv(sigma)
    return z, -0.5 * square(z) - 0.5 * math.log(2 * math.pi) + log_mills(z - rate * sigma)


def _exp_mod_normal_below(*arguments: Number) -> Number:
    z, difference = exp_mod_normal_tails(*arguments)
    return log_diff_exp(log_phi(z), difference)


def _exp_mod_normal_above(*arguments: Number) -> Number:
    z, difference = exp_mod_normal_tails(*arguments)
    return log_sum_exp(log_phi(-z), difference)


def gamma_below(a: Number, x: Number) -> Number:
    """Return the log of the regularised lower incomplete gamma function."""
    return a * log(x) + combine("log_gamma_below", a, x) - lgamma(a)


def gamma_above(a: Number, x: Number) -> Number:
    """Return the log of the regularised upper incomplete gamma function."""
    return a * log(x) + combine("log_gamma_above", a, x) - lgamma(a)


def _given_below(below: Callable[..., Number]) -> Tails:
    return below, lambda *arguments: apply("log1m_exp", below(*arguments))


def _given_above(above: Callable[..., Number]) -> Tails:
    return lambda *arguments: apply("log1m_exp", above(*arguments)), above


def _symmetric(below: Callable[..., Number]) -> Tails:
    """Return the tails of a distribution that are exchanged where the outcome and its median are."""
    return below, lambda y, median, scale: below(median, y, scale)


CUMULATIVE: dict[str, Tails] = {
    "std_normal": (log_phi, lambda z: log_phi(-z)),
    "normal": _symmetric(lambda y, mu, s: log_phi((y - mu) * inv(s))),
    "lognormal": (lambda y, mu, s: log_phi((log(y) - mu) * inv(s)), lambda y, mu, s: log_phi((mu - log(y)) * inv(s))),
    "logistic": _symmetric(lambda y, mu, s: -log1p_exp((mu - y) * inv(s))),
    "exponential": _given_above(lambda y, beta: -(beta * y)),
    "weibull": _given_above(lambda y, a, s: -exp(weibull_exponent(y, a, s))),
    "frechet": _given_below(lambda y, a, s: -exp(-weibull_exponent(y, a, s))),
    "gumbel": _given_below(lambda y, mu, beta: -exp((mu - y) * inv(beta))),
    "pareto": _given_above(lambda y, y_min, a: a * (log(y_min) - log(y))),
    "pareto_type_2": _given_above(lambda y, mu, s, a: -(a * apply("log1p", (y - mu) * inv(s)))),
    "rayleigh": _given_above(lambda y, s: -0.5 * square(y * inv(s))),
    "loglogistic": _symmetric(lambda y, a, b: -log1p_exp(b * (log(a) - log(y)))),
    "cauchy": _symmetric(_cauchy_below),
    "gamma": (lambda y, a, b: gamma_below(a, b * y), lambda y, a, b: gamma_above(a, b * y)),
    "inv_gamma": (lambda y, a, b: gamma_above(a, b * inv(y)), lambda y, a, b: gamma_below(a, b * inv(y))),
    "chi_square": (lambda y, nu: gamma_below(0.5 * nu, 0.5 * y), lambda y, nu: gamma_above(0.5 * nu, 0.5 * y)),
    "inv_chi_square": (
        lambda y, nu: gamma_above(0.5 * nu, 0.5 * inv(y)),
        lambda y, nu: gamma_below(0.5 * nu, 0.5 * inv(y)),
    ),
    "scaled_inv_chi_square": (
        lambda y, nu, s: gamma_above(0.5 * nu, 0.5 * nu * square(s) * inv(y)),
        lambda y, nu, s: gamma_below(0.5 * nu, 0.5 * nu * square(s) * inv(y)),
    ),
    "exp_mod_normal": (_exp_mod_normal_below, _exp_mod_normal_above),
}
# Maximum number of probabilities of counts that are added.
_MOST_TERMS = 128


def _sum_of_ratios(y: Number, ratio: Callable[[int], Number]) -> Number:
    """Return the log of a sum of probabilities up to y, as multiples of the first, from consecutive ratios."""

    def of(last: int) -> Number:
        if last > _MOST_TERMS:
            raise NotFollowedError(f"a distribution function of counts above {_MOST_TERMS} is not supported")
        found: Number = 1.0
        for j in range(last, 0, -1):
            found = 1.0 + found * ratio(j)
        return log(found) if last >= 0 else -np.inf

    return by_value(of, y)


def _neg_binomial_2_below(y: Number, mu: Number, phi: Number) -> Number:
    change = log(mu) - log(phi)
    share = apply("inv_logit", change)
    return _sum_of_ratios(y, lambda j: share * (phi + (j - 1.0)) * (1 / j)) - phi * log1p_exp(change)


def _binomial_below(y: Number, n: Number, p: Number) -> Number:
    odds = exp(logit(p))
    return _sum_of_ratios(y, lambda j: odds * ((n - (j - 1.0)) * (1 / j))) + n * log1m(p)


_BELOW: dict[str, Callable[..., Number]] = {
    "poisson": lambda y, rate: _sum_of_ratios(y, lambda j: rate * (1 / j)) - rate,
    "neg_binomial_2": _neg_binomial_2_below,
    "neg_binomial": lambda y, alpha, beta: _neg_binomial_2_below(y, alpha * inv(beta), alpha),
    "binomial": _binomial_below,
}


CUMULATIVE |= {name: _given_below(below) for name, below in _BELOW.items()}
TAILS = {f"{name}_{end}": both[k] for name, both in CUMULATIVE.items() for k, end in enumerate(("lcdf", "lccdf"))}
