"""Choice of the settings of joint decisions, by their effective draws in a time, or of decisions from all observations.

Times are rules of thumb, so that the same seed gives the same draws on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stansub import _loop
from stansub.target.foreseeing import SURELY, foreseeing
from stansub.target.group_candidates import RADIUS, Joint, furthest, shared
from stansub.target.remainders import SHARE, NoPredictorsError
from stansub.target.sparse import Quadratic, SparsePredictors
from stansub.types import Check, FloatArray

# Radii of the smallest boxes that are tried, as multiples of how far draws are at most.
_BEYOND = (1.2, 0.8)
# How far each argument is at least taken to move, in sds.
_LEAST = 0.5
# Microseconds of a candidate, at a random place in memory: of any, for each number that its arguments read, and for
# each nanosecond of its log likelihood. With 7 to 154 numbers, candidates took 0.1 to 1.3 microseconds. And the share
# of this that each observation takes if decisions that would draw too many candidates evaluate all of them in order.
_CANDIDATE, _NUMBER, _LOG_LIK, _IN_ORDER = 0.1, 0.0065, 0.0045, 0.5
# Correlation of a draw with the next proposal: trajectories end on the other side of the posterior.
_CORRELATION = -0.4
# Acceptance rate to which the noise of joint decisions may lower that of all observations, and the share of a lower one
# that they leave; values of kappa that are tried.
_ACCEPTED, _LEFT, _KAPPAS = 0.8, 0.95, 2.0 ** np.arange(0, 20, 0.5)


class Times(NamedTuple):
    """Microseconds by which settings are chosen."""

    all: float
    """Of a decision from all observations."""
    candidate: float
    transitions: float
    """Of transitions on the surrogate for each decision."""
    unbounded: float = 0.0
    """Of the observations without a bound, which each decision evaluates."""


class Choice(NamedTuple):
    """Settings of joint decisions, or why decisions use all observations."""

    joint: Joint | None
    reason: str = ""
    candidates: float = np.inf
    """Fewest observations that a test on some would draw, if there are no settings."""


def choose_joint(
    predictors: SparsePredictors,
    quadratic: Quadratic,
    sds: FloatArray,
    phis: Sequence[FloatArray],
    *,
    noise: float = 0.0,
    microseconds: float = 0.0,
    check: Check = lambda: None,
) -> Choice:
    """Return settings of joint decisions, if they make more effective draws in a time than all observations.

    Parameters
    ----------
    phis : sequence of ndarray, shape (m,)
        Arguments at draws of the surrogate, without shifts that cancel.
    noise : float
        Sd of what the surrogate omits.
    microseconds : float
        Time of the transitions on the surrogate for each decision.
    check : callable
        Called often; raises an error if it is time to stop.
    """
    n = predictors.n_observations
    few = predictors if predictors.family.is_known else foreseeing(predictors)
    if few is not predictors:
        choice = _chosen(few, n, quadratic, sds, phis, noise, microseconds, check)
        if choice.joint is None and choice.candidates > SURELY * n:
            return choice
    return _chosen(predictors, n, quadratic, sds, phis, noise, microseconds, check)


def _chosen(
    predictors: SparsePredictors,
    n: int,
    quadratic: Quadratic,
    sds: FloatArray,
    phis: Sequence[FloatArray],
    noise: float,
    microseconds: float,
    check: Check,
) -> Choice:
    """Return the choice for ``n`` observations, given those or some of them."""
    error: NoPredictorsError | None = None
    for radius in _radii(predictors, quadratic, sds, phis):
        try:
            observations, _ = shared(predictors, quadratic, sds, radius, check=check)
        except NoPredictorsError as failed:
            error = failed
            continue
        decider, share = _loop.SurrogateDecider(observations, 1.0, 1.0), n / predictors.n_observations
        costs = []
        for a, b in pairwise(phis):
            check()
            costs.append(share * np.array(decider.costs(a, b)))
        each = _candidate_time(predictors)
        times = Times(share * predictors.microseconds, each, microseconds, each * share * decider.n_unbounded)
        rates, _, squares = np.array(costs).T
        joint, candidates = _best(rates, squares, n, noise, times)
        if joint is not None:
            return Choice(joint._replace(radius=radius))
        return Choice(None, _too_many(candidates, n, times.candidate * n / times.all), candidates)
    return Choice(None, f"a test on some needs bounds on what the approximation omits, but {error}")


def _candidate_time(predictors: SparsePredictors) -> float:
    return _CANDIDATE + _NUMBER * predictors.n_read + _LOG_LIK * predictors.family.nanoseconds


def _radii(
    predictors: SparsePredictors, quadratic: Quadratic, sds: FloatArray, phis: Sequence[FloatArray]
) -> list[tuple[float, ...]]:
    """Return radii to try: beyond all draws or, if there are no bounds on such boxes, beyond most draws."""
    if predictors.family.bounded:
        return [(RADIUS,)]
    far = np.maximum(furthest(predictors, quadratic, sds, phis).max(axis=0), _LEAST)
    return [tuple((multiple * far).tolist()) for multiple in _BEYOND]


def _too_many(candidates: float, n: int, times: float) -> str:
    if not candidates < n:
        return "the bounds on what the approximation omits are so wide that a test on some would evaluate all of them"
    drawn = f"a test on some would draw about {candidates:,.0f} of the {n:,} at random"
    if candidates * times < n:
        return f"{drawn}, but the moves that it rejects in addition would cost more than the time it saves"
    return f"{drawn}, each of which takes about as long as {times:.0f} in order"


def _best(rates: FloatArray, squares: FloatArray, n: int, noise: float, times: Times) -> tuple[Joint | None, float]:
    """Return the settings with the most effective draws in a time, and the fewest candidates that noise allows.

    With kappa, the variance of the log ratio is sum_i r_i^2 / (kappa b_i).

    Parameters
    ----------
    rates, squares : ndarray
        sum_i b_i, and sum_i r_i^2 / b_i, for some moves.
    n : int
        Observations, all of which decisions evaluate if they would draw more than a share of them.
    """
    most = min(times.all / times.candidate, SHARE * n)
    kappas = np.minimum(_KAPPAS[:, np.newaxis], np.maximum(most / np.maximum(rates, 1e-200) - 0.5, 1.0))
    drawn = (kappas + 0.5) * rates
    candidates = np.where(drawn > SHARE * n, _IN_ORDER * n, drawn).mean(axis=1)
    by_all = _accepted(2 * noise**2)
    accepted = _accepted(2 * noise**2 + squares / kappas).mean(axis=1)
    draws = _effective(accepted) / (times.transitions + times.unbounded + times.candidate * candidates)
    least = min(_ACCEPTED, _LEFT * by_all)
    draws[accepted < least] = 0
    best = int(np.argmax(draws))
    joint = Joint(float(_KAPPAS[best]), float(most), float(candidates[best]))
    precise = _accepted(2 * noise**2 + squares / _KAPPAS[:, np.newaxis]).mean(axis=1) >= least
    needed = float((_KAPPAS[int(np.argmax(precise))] + 0.5) * np.median(rates)) if precise.any() else np.inf
    return (joint if draws[best] > _effective(by_all) / (times.transitions + times.all) else None), needed


def _accepted(variance: FloatArray | float) -> FloatArray:
    """Return the acceptance rate if the log ratio is normal with this variance (and minus half of it as its mean)."""
    from scipy.special import ndtr

    return np.asarray(2 * ndtr(-np.sqrt(variance) / 2))


def _effective(accepted: FloatArray) -> FloatArray:
    """Return the effective draws of a step, if draws are an autoregression whose proposals have a correlation."""
    moved = accepted * (1 - _CORRELATION)
    return np.asarray(moved / (2 - moved))
