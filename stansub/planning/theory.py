"""Bounds on the error of Markov chains whose kernel is an approximation, as functions.

A kernel P with the posterior mu as its stationary distribution contracts total variation by 1 - alpha in a step,
whatever the two states (Doeblin's condition: Johndrow et al. 2015, assumption 2.1), and is replaced by P_eps, which is
within epsilon of it in total variation in every state (assumption 2.2). Total variation is half the sum of absolute
differences, between 0 and 1. Mean-square errors are those of functions whose values lie within an interval of length 2,
|f|_* = 1 in the paper: for other bounded functions multiply by the square of half the length.

What these assumptions are for a run, and which of them it can show, is in docs/explanation/approximation.md. Every
function takes numbers or arrays that broadcast against each other.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from stansub.errors import InputError
from stansub.types import FloatArray

Numbers: TypeAlias = float | FloatArray

# Of n alpha, below which series are more precise than differences of numbers near 1: they end with n^3 alpha^3.
_SMALL = 1e-3


def stationary_bound(epsilon: Numbers, alpha: Numbers) -> Numbers:
    """Return the total variation between the stationary distributions of the exact and the approximate kernel.

    Johndrow et al. (2015), theorem 2.3: epsilon / alpha. Their two-state chain attains it.

    Parameters
    ----------
    epsilon : float or ndarray
        Distance of the kernels, of assumption 2.2. Its mean over the stationary distribution of the approximate kernel
        suffices for the proof.
    alpha : float or ndarray
        Of assumption 2.1.

    Raises
    ------
    InputError
        If alpha is not in (0, 1], or epsilon not in [0, alpha].
    """
    _check(epsilon, alpha)
    return epsilon / alpha


def step_bound(n: Numbers, epsilon: Numbers, alpha: Numbers, *, start: Numbers = 1.0) -> Numbers:
    """Return the total variation between mu and the distribution of the n-th state.

    Johndrow et al. (2015), equation 3: (1 - alpha)^n |mu - nu| + epsilon (1 - (1 - alpha)^n) / alpha.

    Parameters
    ----------
    n : float or ndarray
        Steps, 1 or more.
    epsilon, alpha : float or ndarray
        See `stationary_bound`.
    start : float or ndarray
        Total variation between mu and the distribution nu of the first state; 1 is the worst.

    Raises
    ------
    InputError
        If n is below 1, alpha is not in (0, 1], epsilon not in [0, alpha], or start not in [0, 1].
    """
    _check(epsilon, alpha)
    _within(start, 0.0, 1.0, "start")
    states = n * (1 - alpha * _lag(n, alpha))
    return (1 - alpha) ** n * start + epsilon * states


def average_bound(n: Numbers, epsilon: Numbers, alpha: Numbers, *, start: Numbers = 1.0) -> Numbers:
    """Return the total variation between mu and the average distribution of the first n states.

    Johndrow et al. (2015), theorem 2.4, equation 2. With a = (1 - (1 - alpha)^n) / (n alpha), the mean of
    (1 - alpha)^k for k = 0, ..., n - 1, it is a |mu - nu| + (1 - a) epsilon / alpha. Their two-state chain attains it.

    Parameters
    ----------
    n : float or ndarray
        States, 1 or more.
    epsilon, alpha : float or ndarray
        See `stationary_bound`. The weaker bound a |mu - nu| + epsilon / alpha also holds with the mean of epsilon over
        the states of the chain instead of a supremum.
    start : float or ndarray
        Total variation between mu and the distribution nu of the first state; 1 is the worst.

    Raises
    ------
    InputError
        If n is below 1, alpha is not in (0, 1], epsilon not in [0, alpha], or start not in [0, 1].
    """
    _check(epsilon, alpha)
    _within(start, 0.0, 1.0, "start")
    lag = _lag(n, alpha)
    return (1 - alpha * lag) * start + epsilon * lag


def correlated_variance(n: Numbers, alpha: Numbers) -> Numbers:
    """Return S(n, alpha): the variance of the mean of n variables with variance 1 and correlations (1 - alpha)^|j - k|.

    Johndrow et al. (2015), theorem 2.5; 1 / n for alpha = 1, 1 for alpha = 0.

    Parameters
    ----------
    n : float or ndarray
        1 or more.
    alpha : float or ndarray
        In [0, 1].

    Raises
    ------
    InputError
        If n or alpha is out of its range.
    """
    _within(alpha, 0.0, 1.0, "alpha")
    return 1 / n + 2 * (1 - alpha) * _lag(n, alpha) / n


def mean_square_bound(n: Numbers, epsilon: Numbers, alpha: Numbers, *, mixing: Numbers | None = None) -> Numbers:
    """Return a bound on the mean-square error of the average of a function over n states, from stationarity.

    The start is the approximation's stationary distribution. Johndrow et al. (2015), theorem 2.5, equation 4:
    4 epsilon^2 / alpha^2 + 2 S(n, alpha_eps). `risk_bound` has a sharper bound.

    Parameters
    ----------
    n : float or ndarray
        States, 1 or more.
    epsilon, alpha : float or ndarray
        See `stationary_bound`.
    mixing : float or ndarray, optional
        alpha_eps, the constant of assumption 2.1 for the approximate kernel. The default is its minimum alpha - 2
        epsilon (remark 2.1), for which epsilon must be the largest distance; a mean does not suffice.

    Raises
    ------
    InputError
        If n is below 1, alpha is not in (0, 1], epsilon not in [0, alpha], mixing not in [0, 1], or not given with
        epsilon above alpha / 2.
    """
    _check(epsilon, alpha)
    return (2 * epsilon / alpha) ** 2 + 2 * correlated_variance(n, _mixing(epsilon, alpha, mixing))


def risk_bound(
    n: Numbers, epsilon: Numbers, alpha: Numbers, *, mixing: Numbers | None = None, start: Numbers = 1.0
) -> Numbers:
    """Return a bound on the mean-square error of the average of a function over n states, from any start.

    4 b^2 + S(n, alpha_eps), with b the bound of theorem 2.4 (`average_bound`). The bias is at most 2 b, for a function
    with values in [-1, 1]. For the variance, the covariance of f(X_j) and f(X_k), k = j + d, is that of f(X_j) and
    (P_eps^d f)(X_j). The standard deviation of a function is at most half the length of an interval that contains its
    values (Popoviciu). This is 1 for f, and (1 - alpha_eps)^d for P_eps^d f, because a kernel contracts that length as
    it contracts total variation. The covariance is therefore at most (1 - alpha_eps)^d for any start.

    The bound replaces theorem 2.6, which fails (docs/explanation/approximation.md has a two-state chain that violates
    it). At stationarity (``start = epsilon / alpha``) it sharpens theorem 2.5 to 4 epsilon^2 / alpha^2 +
    S(n, alpha_eps). With epsilon = 0 the paper's two-state chain attains it.

    Parameters
    ----------
    n, epsilon, alpha, mixing
        See `mean_square_bound`.
    start : float or ndarray
        Total variation between mu and the distribution of the first state; 1 is the worst.

    Raises
    ------
    InputError
        As for `mean_square_bound`, and if start is not in [0, 1].
    """
    bias = 2 * average_bound(n, epsilon, alpha, start=start)
    return bias**2 + correlated_variance(n, _mixing(epsilon, alpha, mixing))


def mixing_time(delta: Numbers, alpha: Numbers) -> Numbers:
    """Return the steps after which the exact chain is within delta of mu in total variation, from the worst start.

    Johndrow et al. (2015), below equation 8: log(delta) / log(1 - alpha); table 1 has rounded values. The next integer
    number of steps suffices.

    Raises
    ------
    InputError
        If delta or alpha is not in (0, 1).
    """
    _within(delta, 0.0, 1.0, "delta", open_ends=True)
    _within(alpha, 0.0, 1.0, "alpha", open_ends=True)
    return np.log(delta) / np.log1p(-alpha)


def austerity_bound(error: Numbers, contraction: Numbers) -> Numbers:
    """Return the total variation between the stationary distributions of exact and approximate Metropolis-Hastings.

    Korattikara, Chen and Welling (2014), theorem 1: Delta_max / (1 - eta).

    Parameters
    ----------
    error : float or ndarray
        Delta_max, the largest error of the acceptance probability over all moves.
    contraction : float or ndarray
        eta: a step of the exact chain contracts the distance to its stationary distribution by at least this factor. 1
        - alpha of Doeblin's condition qualifies.

    Raises
    ------
    InputError
        If the error is not in [0, 1], or the contraction not in [0, 1).
    """
    _within(error, 0.0, 1.0, "error")
    _within(contraction, 0.0, 1.0, "contraction")
    if np.any(np.asarray(contraction) == 1):
        raise InputError("contraction must be below 1: a chain that does not contract has no bound")
    return error / (1 - contraction)


def concentration_bound(delta: Numbers, rho: Numbers, *, m: int = 1, constant: Numbers = 1.0) -> Numbers:
    """Return the bound if each decision is wrong with probability at most delta, and m steps have a common part.

    Bardenet, Doucet and Holmes (2014), proposition 3.2, equation 17: A m delta / (1 - rho), where m steps of the exact
    chain have a common part of weight 1 - rho from every state, P^m >= (1 - rho) nu.

    Parameters
    ----------
    delta : float or ndarray
        Error probability of a decision under the concentration bound.
    constant : float or ndarray
        A of equation 15. 1 holds for any chain: two chains that take their common parts together have met after k steps
        with probability at least 1 - rho^floor(k / m). A smaller constant does not hold even if equation 15, which
        omits k = 0, holds with it.

    Raises
    ------
    InputError
        If delta is not in [0, 1], rho not in [0, 1), or m or the constant is below 1.
    """
    if m < 1 or np.any(np.asarray(constant) < 1):
        raise InputError("m and constant must be at least 1")
    return austerity_bound(delta, rho) * m * constant


def independence_alpha(largest_ratio: Numbers) -> Numbers:
    """Return Doeblin's constant of Metropolis-Hastings with independent proposals.

    1 / W, where W is the supremum of mu / q, the normalised densities of posterior and proposal. A proposal is accepted
    with probability min(1, w' / w), w = mu / q, which is at least w' / W, so that P(x, .) >= mu / W (Mengersen and
    Tweedie 1996, theorem 2.1). If the supremum is attained, this is alpha itself and not a bound.

    Parameters
    ----------
    largest_ratio : float or ndarray
        W, 1 or more; infinite if the posterior has heavier tails than the proposal, in which case the chain does not
        satisfy Doeblin's condition.

    Raises
    ------
    InputError
        If a ratio is below 1, which normalised densities cannot have.
    """
    _within(largest_ratio, 1.0, np.inf, "largest_ratio")
    return 1 / largest_ratio


def _lag(n: Numbers, alpha: Numbers) -> FloatArray:
    """Return (1 - a) / alpha, where a is the mean of (1 - alpha)^k for k = 0, ..., n - 1.

    A series is used if n alpha is small; for alpha = 0 the result is the mean of k. It is the number of steps by which
    the average lags.
    """
    _within(n, 1.0, np.inf, "n")
    n, alpha = np.broadcast_arrays(np.asarray(n, np.float64), np.asarray(alpha, np.float64))
    series, term = np.zeros(n.shape), (n - 1) / 2
    for k in range(3, 7):
        series = series + term
        term = -term * (n - k + 1) * alpha / k
    small = n * alpha < _SMALL
    safe = np.where(small, 1.0, alpha)
    with np.errstate(divide="ignore"):  # alpha = 1: nothing is left after a step
        left = np.expm1(n * np.log1p(-safe))
    return np.asarray(np.where(small, series, (1 + left / (n * safe)) / safe))[()]


def _mixing(epsilon: Numbers, alpha: Numbers, mixing: Numbers | None) -> Numbers:
    """Return alpha_eps as given, or its minimum (Johndrow et al. 2015, remark 2.1)."""
    if mixing is not None:
        _within(mixing, 0.0, 1.0, "mixing")
        return mixing
    least = alpha - 2 * epsilon
    if np.any(least < 0):
        raise InputError("epsilon must be at most alpha / 2 if the mixing of the approximate chain is not given")
    return least


def _check(epsilon: Numbers, alpha: Numbers) -> None:
    _within(alpha, 0.0, 1.0, "alpha")
    if np.any(np.asarray(alpha) == 0):
        raise InputError("alpha must be positive: the bounds need Doeblin's condition")
    if np.any((np.asarray(epsilon) < 0) | (np.asarray(epsilon) > alpha)) or np.any(np.isnan(epsilon)):
        raise InputError("epsilon must be in [0, alpha]: the bounds hold only there")


def _within(values: Numbers, low: float, high: float, name: str, *, open_ends: bool = False) -> None:
    """Raise InputError unless all values are in an interval; NaN is in none."""
    given = np.asarray(values)
    inside = (given > low) & (given < high) if open_ends else (given >= low) & (given <= high)
    if not np.all(inside):
        ends = f"({low:g}, {high:g})" if open_ends else f"[{low:g}, {high:g}]"
        raise InputError(f"{name} must be in {ends}, not {given[~inside].flat[0]:g}")
