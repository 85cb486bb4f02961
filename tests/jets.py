"""Derivatives by truncated Taylor series, of numbers, arrays or mpmath's intervals, from the log density alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import mpmath
import numpy as np
from mpmath import iv
from scipy.special import expit, gammaln, polygamma

# A log density of one observation, of its arguments.
Density = Callable[..., "Jet"]


class Jet:
    """c_0 + c_1 t + c_2 t^2 + c_3 t^3."""

    def __init__(self, *c: Any) -> None:
        self.c = list(c) + [0] * (4 - len(c))

    def __add__(self, other: Any) -> Jet:
        return Jet(*(a + b for a, b in zip(self.c, of(other).c, strict=True)))

    def __mul__(self, other: Any) -> Jet:
        a, b = self.c, of(other).c
        return Jet(*(sum(a[i] * b[k - i] for i in range(k + 1)) for k in range(4)))

    def __neg__(self) -> Jet:
        return self * -1

    def __sub__(self, other: Any) -> Jet:
        return self + -of(other)

    def __truediv__(self, other: Any) -> Jet:
        return self * chain(of(other), lambda x: (1 / x, -1 / x**2, 2 / x**3, -6 / x**4))

    __radd__, __rmul__ = __add__, __mul__

    def __rtruediv__(self, other: Any) -> Jet:
        return of(other) / self

    def __rsub__(self, other: Any) -> Jet:
        return -self + other


def of(value: Any) -> Jet:
    return value if isinstance(value, Jet) else Jet(value)


def chain(x: Jet, derivatives: Callable[[Any], Sequence[Any]]) -> Jet:
    """g(x) from g and its three derivatives."""
    g, g1, g2, g3 = derivatives(x.c[0])
    _, a, b, c = x.c
    return Jet(g, g1 * a, g1 * b + g2 * a**2 / 2, g1 * c + g2 * a * b + g3 * a**3 / 6)


def exp(x: Jet) -> Jet:
    return chain(x, lambda at: (_module(at).exp(at),) * 4)


def log(x: Jet) -> Jet:
    return chain(x, lambda at: (_module(at).log(at), 1 / at, -1 / at**2, 2 / at**3))


def softplus(x: Jet) -> Jet:
    """log(1 + e^x), without overflow."""

    def derivatives(at: Any) -> Sequence[Any]:
        p = expit(at) if _module(at) is np else 1 / (1 + iv.exp(-at))
        slope = p * (expit(-at) if _module(at) is np else 1 - p)
        return np.logaddexp(0, at) if _module(at) is np else iv.log(1 + iv.exp(at)), p, slope, slope * (1 - 2 * p)

    return chain(x, derivatives)


def lgamma(x: Jet) -> Jet:
    """With intervals by its ends, the derivatives being monotone; of itself only the derivatives."""

    def derivatives(at: Any) -> Sequence[Any]:
        if _module(at) is np:
            return gammaln(at), polygamma(0, at), polygamma(1, at), polygamma(2, at)
        ends = [[mpmath.psi(k, mpmath.mpf(end)) for end in (at.a, at.b)] for k in range(3)]
        return iv.mpf(0), *(iv.mpf([min(pair), max(pair)]) for pair in ends)

    return chain(x, derivatives)


def _module(at: Any) -> Any:
    return iv if hasattr(at, "delta") else np


def along(density: Density, at: Sequence[Any], direction: Sequence[float], order: int) -> Any:
    """The derivative of an order in a direction."""
    found = density(*(Jet(x, d) for x, d in zip(at, direction, strict=True)))
    return found.c[order] * (1, 1, 2, 6)[order]


def absolute_sum(density: Density, at: Sequence[Any], lengths: Sequence[float], order: int) -> Any:
    """The sum of |f_kl| l_k l_l, or |f_klm| l_k l_l l_m, by polarisation."""
    q = len(lengths)
    scaled = [_unit(k, q, length) for k, length in enumerate(lengths)]
    if order == 2:
        own = [along(density, at, a, 2) for a in scaled]
        total = sum(abs(one) for one in own)
        for a, b in combinations(scaled, 2):
            mixed = along(density, at, a + b, 2) - along(density, at, a - b, 2)
            total += 2 * abs(mixed) / 4
        return total
    own = [along(density, at, a, 3) for a in scaled]
    total = sum(abs(one) for one in own)
    for k, m in combinations(range(q), 2):
        plus, minus = (along(density, at, scaled[k] + sign * scaled[m], 3) for sign in (1, -1))
        total += 3 * abs((plus - minus) / 2 - own[m]) / 3 + 3 * abs((plus + minus) / 2 - own[k]) / 3
    for a, b, c in combinations(scaled, 3):
        mixed = sum(s * u * along(density, at, a + s * b + u * c, 3) for s in (1, -1) for u in (1, -1))
        total += 6 * abs(mixed) / 24
    return total


def _unit(k: int, q: int, length: float) -> Any:
    return length * np.eye(q)[k]
