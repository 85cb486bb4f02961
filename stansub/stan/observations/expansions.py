"""Stan's densities and functions in terms of the operations of a program of one observation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from stansub.stan.observations.elementary import (
    exp,
    inv,
    known_only,
    lbeta,
    lchoose,
    lgamma,
    log,
    log1m,
    log1p_exp,
    log_diff_exp,
    log_mix,
    log_phi,
    log_sum_exp,
    logit,
    power,
    square,
    weibull_exponent,
)
from stansub.stan.observations.operations import FUNCTIONS
from stansub.stan.observations.rowwise import (
    NotFollowedError,
    Number,
    apply,
    combine,
    is_kind,
    known,
    log_inv_logit_diff,
    pick,
)
from stansub.stan.observations.tails import CUMULATIVE, TAILS, exp_mod_normal_tails, gamma_above, gamma_below

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def _standard_normal(z: Number) -> Number:
    return -0.5 * square(z) - _HALF_LOG_TWO_PI


def _normal(y: Number, mu: Number, sigma: Number) -> Number:
    return _standard_normal((y - mu) * inv(sigma)) - log(sigma)


def _student_t(y: Number, nu: Number, mu: Number, sigma: Number) -> Number:
    z = square((y - mu) * inv(sigma)) * inv(nu)
    half = 0.5 * (nu + 1.0)
    constant = lgamma(half) - lgamma(0.5 * nu) - 0.5 * log(nu) - 0.5 * math.log(math.pi)
    return constant - log(sigma) - half * apply("log1p", z)


def _double_exponential(y: Number, mu: Number, sigma: Number) -> Number:
    return -math.log(2) - log(sigma) - apply("abs", y - mu) * inv(sigma)


def _skew_double_exponential(y: Number, mu: Number, sigma: Number, tau: Number) -> Number:
    loss = apply("abs", y - mu) + (2.0 * tau - 1.0) * (y - mu)
    return math.log(2) + log(tau) + log1m(tau) - log(sigma) - loss * inv(sigma)


def _logistic(y: Number, mu: Number, sigma: Number) -> Number:
    z = (y - mu) * inv(sigma)
    return -z - log(sigma) - 2.0 * log1p_exp(-z)


def _gumbel(y: Number, mu: Number, beta: Number) -> Number:
    z = (y - mu) * inv(beta)
    return -z - exp(-z) - log(beta)


def _weibull(y: Number, alpha: Number, sigma: Number) -> Number:
    exponent = weibull_exponent(y, alpha, sigma)
    return log(alpha) - log(y) + exponent - exp(exponent)


def _frechet(y: Number, alpha: Number, sigma: Number) -> Number:
    exponent = -weibull_exponent(y, alpha, sigma)
    return log(alpha) - log(y) + exponent - exp(exponent)


def _gamma(y: Number, alpha: Number, beta: Number) -> Number:
    return alpha * (log(beta) + log(y)) - lgamma(alpha) - log(y) - beta * y


def _beta(y: Number, a: Number, b: Number) -> Number:
    return (a - 1.0) * log(y) + (b - 1.0) * log1m(y) - lbeta(a, b)


def _neg_binomial_2_log(y: Number, eta: Number, phi: Number) -> Number:
    log_phi_ = log(phi)
    change = eta - log_phi_
    return lgamma(y + phi) - lgamma(phi) - lgamma(y + 1.0) + y * change - (y + phi) * log1p_exp(change)


def _bernoulli_logit(y: Number, eta: Number) -> Number:
    return y * eta - log1p_exp(eta)


def _binomial_logit(y: Number, n: Number, eta: Number) -> Number:
    return lchoose(n, y) + y * eta - n * log1p_exp(eta)


def _binomial(y: Number, n: Number, p: Number) -> Number:
    if is_kind(p, "inv_logit"):
        return _binomial_logit(y, n, p.parts[0])
    return lchoose(n, y) + y * log(p) + (n - y) * log1m(p)


def _bernoulli(y: Number, p: Number) -> Number:
    if is_kind(p, "inv_logit"):
        return _bernoulli_logit(y, p.parts[0])
    return y * log(p) + (1.0 - y) * log1m(p)


def _exp_mod_normal(y: Number, mu: Number, sigma: Number, rate: Number) -> Number:
    return log(rate) + exp_mod_normal_tails(y, mu, sigma, rate)[1]


def _skew_normal(y: Number, xi: Number, omega: Number, alpha: Number) -> Number:
    z = (y - xi) * inv(omega)
    return math.log(2) - log(omega) + _standard_normal(z) + log_phi(alpha * z)


def _log_bessel_i0(x: Number) -> Number:
    return apply("log_bessel_i0_root", square(x))


def _von_mises(y: Number, mu: Number, kappa: Number) -> Number:
    if (value := known(kappa)) is None:
        return kappa * apply("cos", y - mu) - math.log(2 * math.pi) - _log_bessel_i0(kappa)
    return value * apply("cos", y - mu) - np.log(2 * np.pi * scipy.special.i0e(value)) - value


def _inv_gamma(y: Number, alpha: Number, beta: Number) -> Number:
    return alpha * log(beta) - lgamma(alpha) - (alpha + 1.0) * log(y) - beta * inv(y)


def _loglogistic(y: Number, alpha: Number, beta: Number) -> Number:
    z = beta * (log(y) - log(alpha))
    return log(beta) - log(y) + z - 2.0 * log1p_exp(z)


def _uniform(y: NDArray[Any], a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    return np.where((a <= y) & (y <= b), -np.log(b - a), -np.inf)


# By name, without suffix: the outcome, then the arguments.
DENSITIES: dict[str, Callable[..., Number]] = {
    "normal": _normal,
    "std_normal": _standard_normal,
    "lognormal": lambda y, mu, sigma: _normal(log(y), mu, sigma) - log(y),
    "student_t": _student_t,
    "cauchy": lambda y, mu, sigma: _student_t(y, 1.0, mu, sigma),
    "logistic": _logistic,
    "double_exponential": _double_exponential,
    "skew_double_exponential": _skew_double_exponential,
    "gumbel": _gumbel,
    "exponential": lambda y, beta: log(beta) - beta * y,
    "gamma": _gamma,
    "inv_gamma": _inv_gamma,
    "chi_square": lambda y, nu: _gamma(y, 0.5 * nu, 0.5),
    "inv_chi_square": lambda y, nu: _inv_gamma(y, 0.5 * nu, 0.5),
    "scaled_inv_chi_square": lambda y, nu, s: _inv_gamma(y, 0.5 * nu, 0.5 * nu * square(s)),
    "rayleigh": lambda y, sigma: log(y) - 2.0 * log(sigma) - 0.5 * square(y * inv(sigma)),
    "loglogistic": _loglogistic,
    "pareto_type_2": lambda y, mu, s, a: log(a) - log(s) - (a + 1.0) * apply("log1p", (y - mu) * inv(s)),
    "uniform": known_only(_uniform),
    "weibull": _weibull,
    "frechet": _frechet,
    "beta": _beta,
    "beta_proportion": lambda y, mu, kappa: _beta(y, mu * kappa, (1.0 - mu) * kappa),
    "von_mises": _von_mises,
    "pareto": lambda y, y_min, alpha: log(alpha) + alpha * (log(y_min) - log(y)) - log(y),
    "exp_mod_normal": _exp_mod_normal,
    "skew_normal": _skew_normal,
    "poisson": lambda y, rate: y * log(rate) - rate - lgamma(y + 1.0),
    "poisson_log": lambda y, eta: y * eta - exp(eta) - lgamma(y + 1.0),
    "neg_binomial_2": lambda y, mu, phi: _neg_binomial_2_log(y, log(mu), phi),
    "neg_binomial_2_log": _neg_binomial_2_log,
    "neg_binomial": lambda y, alpha, beta: _neg_binomial_2_log(y, log(alpha) - log(beta), alpha),
    "bernoulli": _bernoulli,
    "bernoulli_logit": _bernoulli_logit,
    "binomial": _binomial,
    "binomial_logit": _binomial_logit,
    "beta_binomial": lambda y, n, a, b: lchoose(n, y) + lbeta(y + a, n - y + b) - lbeta(a, b),
}


def _sin(x: Number) -> Number:
    return apply("cos", x - math.pi / 2)


def _largest(x: Number, y: Number) -> Number:
    return 0.5 * (x + y + apply("abs", x - y))


def _smallest(x: Number, y: Number) -> Number:
    return 0.5 * (x + y - apply("abs", x - y))


def _or_known(of_known: Callable[..., Any], function: Callable[..., Number]) -> Callable[..., Number]:
    """Return a function that keeps integers."""
    exact = known_only(of_known)
    return lambda *numbers: exact(*numbers) if all(known(one) is not None for one in numbers) else function(*numbers)


def _asin(x: Number) -> Number:
    return apply("atan", x * inv(apply("sqrt", 1.0 - square(x))))


def _log_bessel(order: Number, x: Number) -> Number:
    if not np.all(known(order) == 0):
        raise NotFollowedError("modified Bessel functions of an order above 0 are not supported")
    return _log_bessel_i0(x)


# Functions of numbers.
ELEMENTARY: dict[str, Callable[..., Number]] = {
    **{name: partial(apply, name) for name in FUNCTIONS},
    **{f"{name}_cdf": (lambda *given, lower=lower: exp(lower(*given))) for name, (lower, _) in CUMULATIVE.items()},
    **TAILS,
    "sin": _sin,
    **dict.fromkeys(("abs", "fabs"), _or_known(np.abs, partial(apply, "abs"))),
    "fmax": _or_known(np.maximum, _largest),
    "fmin": _or_known(np.minimum, _smallest),
    "step": _or_known(lambda x: np.where(x < 0, 0.0, 1.0), lambda x: combine("unless_negative", x, 1.0)),
    "int_step": _or_known(lambda x: np.where(x > 0, 1, 0), lambda x: combine("if_negative", -x, 1.0)),
    "fdim": _or_known(lambda x, y: np.maximum(x - y, 0), lambda x, y: _largest(x - y, 0.0)),
    "tan": lambda x: _sin(x) * inv(apply("cos", x)),
    "log1m": log1m,
    "logit": logit,
    "log_inv_logit": lambda x: -log1p_exp(-x),
    "log1m_inv_logit": lambda x: -log1p_exp(x),
    "log_diff_exp": log_diff_exp,
    "log_mix": log_mix,
    "expm1": lambda x: exp(x) - 1.0,
    "pow": power,
    "inv_sqrt": lambda x: inv(apply("sqrt", x)),
    "inv_square": lambda x: inv(square(x)),
    "inv_cloglog": lambda x: 1.0 - exp(-exp(x)),
    "Phi": lambda x: exp(log_phi(x)),
    "Phi_approx": lambda x: apply("inv_logit", x * (1.5976 + 0.07056 * square(x))),
    "erf": lambda x: 2.0 * exp(log_phi(math.sqrt(2) * x)) - 1.0,
    "erfc": lambda x: 2.0 * exp(log_phi(-math.sqrt(2) * x)),
    "tgamma": lambda x: exp(lgamma(x)),
    "tanh": lambda x: 2.0 * apply("inv_logit", 2.0 * x) - 1.0,
    "cosh": lambda x: 0.5 * (exp(x) + exp(-x)),
    "sinh": lambda x: 0.5 * (exp(x) - exp(-x)),
    "lbeta": lbeta,
    "lchoose": lchoose,
    "multiply_log": lambda x, y: x * log(y),
    "lmultiply": lambda x, y: x * log(y),
    "fma": lambda x, y, z: x * y + z,
    "log10": lambda x: log(x) / math.log(10),
    "exp2": lambda x: exp(math.log(2) * x),
    "atanh": lambda x: 0.5 * (apply("log1p", x) - log1m(x)),
    "hypot": lambda x, y: apply("sqrt", square(x) + square(y)),
    "gamma_p": lambda a, x: exp(gamma_below(a, x)),
    "gamma_q": lambda a, x: exp(gamma_above(a, x)),
    "beta": lambda x, y: exp(lbeta(x, y)),
    "log_inv_logit_diff": log_inv_logit_diff,
    "log_rising_factorial": lambda x, n: lgamma(x + n) - lgamma(x),
    "log_falling_factorial": lambda x, n: lgamma(x + 1.0) - lgamma(x - n + 1.0),
    "asin": _or_known(np.arcsin, _asin),
    "acos": _or_known(np.arccos, lambda x: 0.5 * math.pi - _asin(x)),
    # The half angle; not where x < 0 = y, where it jumps.
    "atan2": _or_known(np.arctan2, lambda y, x: 2.0 * apply("atan", y * inv(x + apply("sqrt", square(x) + square(y))))),
    "asinh": known_only(np.arcsinh),
    "acosh": _or_known(np.arccosh, lambda x: log(x + apply("sqrt", square(x) - 1.0))),
    **dict.fromkeys(
        ("inv_Phi", "std_normal_qf"),
        _or_known(lambda p: scipy.special.ndtri(p), lambda p: apply("std_normal_log_qf", log(p))),
    ),
    "log_modified_bessel_first_kind": _log_bessel,
    "trigamma": known_only(lambda x: scipy.special.polygamma(1, x)),
    **{name: known_only(getattr(np, name)) for name in ("cbrt", "trunc", "floor", "ceil", "round")},
    "to_int": known_only(lambda x: np.trunc(x).astype(np.int64)),
    "is_inf": known_only(np.isinf),
    "is_nan": known_only(np.isnan),
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "elt_multiply": lambda x, y: x * y,
    "elt_divide": lambda x, y: x * inv(y),
}


def categorical_logit(y: Number, logits: Sequence[Number]) -> Number:
    """Return the log probability of a category."""
    return _picked(logits, y) - log_sum_exp(*logits)


def categorical(y: Number, probabilities: Sequence[Number]) -> Number:
    return _picked([log(one) for one in probabilities], y)


def ordered(
    y: Number,
    eta: Number,
    cutpoints: Sequence[Number],
    below: Callable[[Number], Number],
    above: Callable[[Number], Number],
) -> Number:
    """Return the log probability of an ordered category, from logs of a distribution function and its complement."""
    changes = [cut - eta for cut in cutpoints]
    each = [below(changes[0])]
    each += [log_diff_exp(below(b), below(a)) for a, b in pairwise(changes)]
    return _picked([*each, above(changes[-1])], y)


def cholesky(matrix: NDArray[Any]) -> NDArray[Any]:
    """Return the Cholesky factor of a small matrix of expressions."""
    found = np.zeros(matrix.shape, dtype=object)
    for i in range(len(matrix)):
        for j in range(i + 1):
            rest: Number = matrix[i, j]
            for k in range(j):
                rest = rest - found[i, k] * found[j, k]
            found[i, j] = apply("sqrt", rest) if i == j else rest * inv(found[j, j])
    return found


def inverse(matrix: NDArray[Any]) -> tuple[NDArray[Any], Number]:
    """Return the inverse of a small matrix of expressions, and the log of its determinant.

    By elimination without exchanges of rows, for which a factor and a positive definite matrix have no need.
    """
    rest, found, log_determinant = matrix.astype(object), np.eye(len(matrix)).astype(object), 0.0
    for k in range(len(matrix)):
        log_determinant = log_determinant + log(rest[k, k])
        scale = inv(rest[k, k])
        rest[k], found[k] = ([one * scale for one in row] for row in (rest[k], found[k]))
        for i in range(len(matrix)):
            if i != k:
                factor = rest[i, k]
                rest[i], found[i] = (
                    [one - factor * other for one, other in zip(row, pivot, strict=True)]
                    for row, pivot in ((rest[i], rest[k]), (found[i], found[k]))
                )
    return found, log_determinant


def forward(factor: NDArray[Any], y: Sequence[Number]) -> list[Number]:
    """Return the solution of a lower triangular system."""
    found: list[Number] = []
    for i, row in enumerate(factor):
        rest: Number = y[i]
        for j in range(i):
            rest = rest - row[j] * found[j]
        found.append(rest * inv(row[i]))
    return found


def _distance(y: Sequence[Number], mu: Sequence[Number], factor: NDArray[Any]) -> tuple[Number, Number]:
    """Return a vector's squared Mahalanobis distance, and the log of the determinant of the Cholesky factor."""
    errors = forward(factor, [one - its_mean for one, its_mean in zip(y, mu, strict=True)])
    return sum(square(one) for one in errors), sum(log(row[i]) for i, row in enumerate(factor))


def multi_normal_cholesky(y: Sequence[Number], mu: Sequence[Number], factor: NDArray[Any]) -> Number:
    """Return the log density of a vector, from the Cholesky factor of its covariance."""
    squared, log_scale = _distance(y, mu, factor)
    return -_HALF_LOG_TWO_PI * len(y) - 0.5 * squared - log_scale


def multi_normal_prec(y: Sequence[Number], mu: Sequence[Number], precision: NDArray[Any]) -> Number:
    factor = cholesky(precision)
    errors = [one - its_mean for one, its_mean in zip(y, mu, strict=True)]
    own = [sum(row[j] * errors[i] for i, row in enumerate(factor) if i >= j) for j in range(len(errors))]
    log_scale = sum(log(row[i]) for i, row in enumerate(factor))
    return log_scale - _HALF_LOG_TWO_PI * len(errors) - 0.5 * sum(square(one) for one in own)


def multi_student_t(y: Sequence[Number], nu: Number, mu: Sequence[Number], factor: NDArray[Any]) -> Number:
    squared, log_scale = _distance(y, mu, factor)
    half = 0.5 * (nu + len(y))
    constant = lgamma(half) - lgamma(0.5 * nu) - 0.5 * len(y) * (log(nu) + math.log(math.pi))
    return constant - log_scale - half * apply("log1p", squared * inv(nu))


def multinomial(y: Sequence[Number], logs: Sequence[Number]) -> Number:
    """Return the log probability of counts, from logs proportional to those of category probabilities."""
    trials = sum(y)
    found: Number = lgamma(trials + 1.0) - trials * log_sum_exp(*logs)
    for count, one in zip(y, logs, strict=True):
        found = found + count * one - lgamma(count + 1.0)
    return found


def dirichlet(y: Sequence[Number], alpha: Sequence[Number]) -> Number:
    found = lgamma(sum(alpha))
    for share, one in zip(y, alpha, strict=True):
        found = found + (one - 1.0) * log(share) - lgamma(one)
    return found


def dirichlet_multinomial(y: Sequence[Number], alpha: Sequence[Number]) -> Number:
    trials, total = sum(y), sum(alpha)
    found = lgamma(total) + lgamma(trials + 1.0) - lgamma(trials + total)
    for count, one in zip(y, alpha, strict=True):
        found = found + lgamma(count + one) - lgamma(one) - lgamma(count + 1.0)
    return found


# Densities of vectors: the outcome, then the arguments.
VECTORS: dict[str, Callable[..., Number]] = {
    "multi_normal_cholesky": multi_normal_cholesky,
    "multi_normal": lambda y, mu, sigma: multi_normal_cholesky(y, mu, cholesky(sigma)),
    "multi_normal_prec": multi_normal_prec,
    "multi_student_t_cholesky": multi_student_t,
    "multi_student_t": lambda y, nu, mu, sigma: multi_student_t(y, nu, mu, cholesky(sigma)),
    "multinomial": lambda y, p: multinomial(y, [log(one) for one in p]),
    "multinomial_logit": multinomial,
    "dirichlet": dirichlet,
    "dirichlet_multinomial": dirichlet_multinomial,
}


def _picked(each: Sequence[Number], y: Number) -> Number:
    place = known(y)
    if place is None:
        raise NotFollowedError("the outcome depends on parameters")
    if np.ndim(place) == 0:
        return each[int(place) - 1]
    # Of observations for which other arguments hold, such as another number of categories, it may be anything.
    return pick(each, np.clip(np.asarray(place, np.int64) - 1, 0, len(each) - 1))
