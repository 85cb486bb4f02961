"""Functions of numbers in terms of the operations of a program of one observation."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from stansub.stan.observations.rowwise import (
    NotFollowedError,
    Number,
    apply,
    combine,
    is_kind,
    known,
    log_inv_logit_diff,
    logit_of_exp,
    pick,
    wrapped,
)

# Maximum number of values of an integer that are followed separately.
MOST_VALUES = 32

exp, log, inv, square = (partial(apply, name) for name in ("exp", "log", "inv", "square"))
lgamma, log1p_exp = (partial(apply, name) for name in ("lgamma", "log1p_exp"))
log_phi, log_mills = (partial(apply, name) for name in ("std_normal_lcdf", "log_mills"))


class OfDataError(NotFollowedError):
    """A function that is supported for data alone has an argument that depends on parameters."""

    def __init__(self, name: str = "a function") -> None:
        super().__init__(f"{name} of parameters is not supported")


def known_only(function: Callable[..., Any]) -> Callable[..., Number]:
    """Return a function of known numbers."""

    def of(*numbers: Number) -> Number:
        values = [known(one) for one in numbers]
        if any(value is None for value in values):
            raise OfDataError
        return wrapped(function(*values)[()])

    return of


def log1m(x: Number) -> Number:
    return apply("log1p", -x)


def logit(p: Number) -> Number:
    return p.parts[0] if is_kind(p, "inv_logit") else log(p) - log1m(p)


def log_sum_exp(*terms: Number) -> Number:
    """Return the log of a sum, from the logs of its terms."""
    values = [known(one) for one in terms]
    some = [one for one, value in zip(terms, values, strict=True) if value is None or np.any(value != -np.inf)]
    found = some[0] if some else -np.inf
    for one in some[1:]:
        found = combine("log_sum_exp", found, one)
    return found


def log_diff_exp(a: Number, b: Number) -> Number:
    """Return the log of a difference, from logs; of distribution functions in forms for narrow intervals."""
    found = a + apply("log1m_exp", b - a)
    if is_kind(a, "std_normal_lcdf") and is_kind(b, "std_normal_lcdf"):
        return combine("same", _log_normal_mass(b.parts[0], a.parts[0]), found)
    x, y = logit_of_exp(a), logit_of_exp(b)
    return found if x is None or y is None else log_inv_logit_diff(x, y)


def _log_normal_mass(low: Number, high: Number) -> Number:
    """Return the log of a standard normal probability between two numbers, as `cpp/normal_means.hpp` has it."""
    middle, half = 0.5 * (high + low), 0.5 * (high - low)
    mean = combine("log_mean_normal", middle * half, 0.5 * square(half))
    return mean + log(half) - 0.5 * square(middle) + 0.5 * math.log(2 / math.pi)


def log_mix(theta: Number, a: Number, b: Number) -> Number:
    return log_sum_exp(log(theta) + a, log1m(theta) + b)


def power(x: Number, y: Number) -> Number:
    exponent = known(y)
    if exponent is not None and np.ndim(exponent) == 0:
        if exponent == 2:
            return square(x)
        if float(exponent).is_integer() and 0 < abs(exponent) <= 8:
            found = x
            for _ in range(int(abs(exponent)) - 1):
                found = found * x
            return found if exponent > 0 else inv(found)
        if exponent == 0.5:
            return apply("sqrt", x)
    base = known(x)
    if exponent is not None and base is not None:
        return wrapped(np.power(np.asarray(base, np.float64), exponent)[()])
    return exp(y * log(x))


def lbeta(a: Number, b: Number) -> Number:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


def lchoose(n: Number, k: Number) -> Number:
    return lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0)


def by_value(function: Callable[[int], Number], y: Number) -> Number:
    """Return a function of an integer of the data, for each of its values."""
    if (value := known(y)) is None:
        raise NotFollowedError("an integer that must be data depends on parameters")
    found, places = np.unique(value, return_inverse=True)
    if len(found) > MOST_VALUES:
        raise NotFollowedError(f"an integer data variable has more than {MOST_VALUES} values")
    cases = [function(int(one)) for one in found]
    return cases[0] if len(cases) == 1 else pick(cases, places)


def weibull_exponent(y: Number, alpha: Number, sigma: Number) -> Number:
    return alpha * (log(y) - log(sigma))
