"""What docs/explanation/approximation.md lets a user quote, for runs whose bias and alpha are known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

import stansub
from stansub.output.inference_data import attrs
from stansub.output.record import record_of, step_bias
from stansub.planning import theory

Array = NDArray[np.float64]
N, DF = 60, 4.0
DATA = np.random.default_rng(1).lognormal(0.0, 0.5, N)
DATA = (DATA - DATA.mean()) / DATA.std()


def independent(scale: float, *, forgets_ratio: bool = False) -> Callable[..., tuple[Array, float]]:
    """Student's t proposals, `scale` posterior sds wide."""
    width = scale / math.sqrt(N)

    def log_density(x: float) -> float:
        return -0.5 * (DF + 1) * math.log1p((x / width) ** 2 / DF)

    def propose(rng: np.random.Generator, position: Array) -> tuple[Array, float]:
        proposed = width * rng.standard_t(DF)
        log_ratio = log_density(position[0]) - log_density(proposed)
        return np.array([proposed]), 0.0 if forgets_ratio else log_ratio

    return propose


def walk(proposal: Callable[..., tuple[Array, float]], epsilon: float) -> Any:
    """A run on the mean of the data, whose posterior is N(0, 1 / N)."""
    means = stansub.FunctionFactors(["mu"], N, lambda theta, which: -0.5 * (DATA[which] - theta[0]) ** 2)
    return stansub.sample(
        means, proposal=proposal, control_variates=0, test="pocock", epsilon=epsilon, first_look=4, audit=0.5, seed=2,
        chains=2, parallel_chains=1, iter_warmup=50, iter_sampling=1500, show_progress=False,
    )  # fmt: skip


def binned_distance(idata: Any) -> float:
    """Total variation between draws and posterior on ten intervals, which is at most that of the distributions."""
    draws = np.asarray(idata["posterior"]["mu"]).ravel() * math.sqrt(N)
    counts = np.bincount(np.searchsorted(norm.ppf(np.arange(1, 10) / 10), draws), minlength=10)
    return float(np.abs(counts / len(draws) - 0.1).sum() / 2)


def largest_ratio(scale: float) -> float:
    """The supremum of the posterior over the proposal, both normalised, in posterior sds."""
    x = np.linspace(0, 40, 400_001)
    return float(np.exp((norm.logpdf(x) - t.logpdf(x, DF, scale=scale)).max()))


def quoted(idata: Any, scale: float) -> float:
    """Audited error over alpha."""
    error = step_bias(record_of(idata), attrs(idata))
    assert error is not None
    return float(theory.stationary_bound(error, theory.independence_alpha(largest_ratio(scale))))


def test_bias_is_below_the_audited_error_over_alpha() -> None:
    idata = walk(independent(1.0), 0.4)
    found, bound = binned_distance(idata), quoted(idata, 1.0)
    assert found < bound < 0.5
    # There is something to bound: chance alone puts the ten intervals of 2 x 1500 draws 0.02 off.
    assert found > 0.03


def test_an_audit_does_not_see_a_proposal_that_is_wrong() -> None:
    # Control: decisions keep to the log ratio that the proposal gives, and the bound is one on their errors alone.
    idata = walk(independent(0.5, forgets_ratio=True), 0.05)
    assert binned_distance(idata) > quoted(idata, 0.5)
