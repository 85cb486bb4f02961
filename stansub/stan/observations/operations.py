"""Values of the operations of programs of observations (`stansub._loop.OPERATIONS`), in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from stansub.types import FloatArray


def _log1m_exp(x: FloatArray) -> FloatArray:
    return np.where(x > -np.log(2), np.log(-np.expm1(x)), np.log1p(-np.exp(x)))


def _log_mills(x: FloatArray) -> FloatArray:
    """Return log(Phi(x) / phi(x))."""
    left: FloatArray = np.log(scipy.special.erfcx(-np.minimum(x, 0.0) / np.sqrt(2))) + 0.5 * np.log(np.pi / 2)
    right: FloatArray = scipy.special.log_ndtr(x) + 0.5 * np.square(x) + 0.5 * np.log(2 * np.pi)
    return np.where(x < 0, left, right)


def _log_mean_normal(u: FloatArray, v: FloatArray) -> FloatArray:
    """Return the log of the mean of e^(-u s - v s^2) over s in (-1, 1)."""
    s, weights = np.polynomial.legendre.leggauss(64)
    exponents = -np.multiply.outer(np.asarray(u, np.float64), s) - np.multiply.outer(np.asarray(v, np.float64), s * s)
    return np.asarray(scipy.special.logsumexp(exponents, axis=-1, b=weights / 2))


# scipy's functions are imported when called, so that the command line starts fast.
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "log1p_exp": lambda x: np.logaddexp(0, x),
    "inv_logit": lambda x: scipy.special.expit(x),
    "log1m_exp": _log1m_exp,
    "square": np.square,
    "inv": lambda x: 1 / x,
    "sqrt": np.sqrt,
    "lgamma": lambda x: scipy.special.gammaln(x),
    "digamma": lambda x: scipy.special.digamma(x),
    "std_normal_lcdf": lambda x: scipy.special.log_ndtr(x),
    "cos": np.cos,
    "atan": np.arctan,
    "abs": np.abs,
    "std_normal_log_qf": lambda x: scipy.special.ndtri_exp(x),
    "log_bessel_i0_root": lambda x: np.log(scipy.special.i0e(np.sqrt(x))) + np.sqrt(x),
    "log_mills": _log_mills,
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "sum": np.add,
    "difference": np.subtract,
    "product": np.multiply,
    "log_sum_exp": np.logaddexp,
    # Logs of the incomplete gamma functions divided by x^a.
    "log_gamma_above": lambda a, x: np.log(scipy.special.gammaincc(a, x)) + scipy.special.gammaln(a) - a * np.log(x),
    "log_gamma_below": lambda a, x: np.log(scipy.special.gammainc(a, x)) + scipy.special.gammaln(a) - a * np.log(x),
    "log_mean_normal": lambda u, v: _log_mean_normal(u, v),
    # The first, which the second one equals.
    "same": lambda a, b: np.where(np.isfinite(a), a, b)[()],
    # The second where the first fulfils a condition, or does not, and 0 elsewhere.
    "if_negative": lambda u, x: np.where(u < 0, x, 0.0)[()],
    "unless_negative": lambda u, x: np.where(u < 0, 0.0, x)[()],
    "if_nonpositive": lambda u, x: np.where(u <= 0, x, 0.0)[()],
    "unless_nonpositive": lambda u, x: np.where(u <= 0, 0.0, x)[()],
}


def common_limit(values: NDArray[Any]) -> float | None:
    """Return infinity, or minus infinity, if all values are that."""
    return float(values[0]) if np.isinf(values[0]) and (values == values[0]).all() else None


def is_all(x: Any, value: float) -> bool:
    """Return whether a value is known, and this number for all observations."""
    return x is not None and bool(np.all(x == value))
