"""Are the predictions of `stansub plan` right? Predicted and real risk on three posteriors whose means are known.

Each posterior is planned for once. Then every method of stansub's own is run several times, from the start to the end,
with the options that were predicted to fill the budget, and the squared error of its means is held against the
predicted interval: a hit where that overlaps with the 95 % interval of the real risk, which is chi-squared, as errors
of means are normal (and those of different parameters taken for independent). Means
are exact (conjugate normal, and the exponential's rate on its logarithm) or by quadrature.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, expit, polygamma
from scipy.stats import chi2

import stansub
from stansub import FunctionFactors
from stansub.planning.plan import BudgetPlan, PredictedMethod, plan
from stansub.run.config import SampleConfig
from stansub.target.families import Binomial
from stansub.target.remainders import LinearPredictors

Array = NDArray[np.float64]
Places = NDArray[np.int32]


@dataclass(frozen=True)
class Case:
    """A posterior with its means and sds, each of shape (dim,)."""

    factors: FunctionFactors
    mean: Array
    sd: Array


def normal(n: int, rng: np.random.Generator) -> Case:
    """Two means of unit normals, flat prior."""
    y = rng.normal([0.3, -1.0], 1.0, (n, 2))

    def log_lik(theta: Array, which: Places) -> Array:
        return np.asarray(-0.5 * ((y[which] - theta) ** 2).sum(1))

    def slope(theta: Array, which: Places) -> Array:
        return np.asarray(y[which] - theta)

    factors = FunctionFactors(["a", "b"], n, log_lik, log_lik_gradient=slope, name="normal")
    return Case(factors, y.mean(0), np.full(2, 1 / math.sqrt(n)))


def exponential(n: int, rng: np.random.Generator) -> Case:
    """The logarithm of the rate of exponential waiting times, flat prior: that of a gamma variable."""
    y = rng.exponential(2.0, n)

    def log_lik(theta: Array, which: Places) -> Array:
        return np.asarray(theta[0] - np.exp(min(theta[0], 700.0)) * y[which])

    def slope(theta: Array, which: Places) -> Array:
        return np.asarray(1 - np.exp(min(theta[0], 700.0)) * y[which])[:, np.newaxis]

    factors = FunctionFactors(["log_rate"], n, log_lik, log_lik_gradient=slope, name="exponential")
    mean, sd = digamma(n) - math.log(y.sum()), math.sqrt(float(polygamma(1, n)))
    return Case(factors, np.array([mean]), np.array([sd]))


def logistic(n: int, rng: np.random.Generator) -> Case:
    """Logistic regression on one covariate, normal priors with sd 2; means by quadrature; with proved bounds."""
    z = np.column_stack([np.ones(n), rng.standard_normal(n)])
    y = (rng.random(n) < expit(z @ [0.3, 0.6])).astype(float)

    def log_lik(theta: Array, which: Places) -> Array:
        eta = z[which] @ theta
        return np.asarray(y[which] * eta - np.logaddexp(0, eta))

    def slope(theta: Array, which: Places) -> Array:
        return np.asarray((y[which] - expit(z[which] @ theta))[:, np.newaxis] * z[which])

    factors = FunctionFactors(
        ["alpha", "beta"],
        n,
        log_lik,
        log_density=lambda theta: -0.125 * float(theta @ theta),
        log_lik_gradient=slope,
        log_density_gradient=lambda theta: -0.25 * theta,
        predictors=LinearPredictors((z,), (np.zeros(n),), Binomial(y, np.ones(n))),
        name="logistic",
    )
    return Case(factors, *_by_quadrature(factors, z, y))


def _by_quadrature(factors: FunctionFactors, z: Array, y: Array) -> tuple[Array, Array]:
    """Means and sds of two parameters by Gauss and Hermite about the mode."""
    theta = np.zeros(2)
    for _ in range(20):
        p = expit(z @ theta)
        hessian = -(z * (p * (1 - p))[:, np.newaxis]).T @ z - 0.25 * np.eye(2)
        theta = theta - np.linalg.solve(hessian, z.T @ (y - p) - 0.25 * theta)
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    factor = np.linalg.cholesky(np.linalg.inv(-hessian))
    grid = np.array([(a, b) for a in nodes for b in nodes])
    points = theta + grid @ factor.T
    log_weights = np.log(np.outer(weights, weights).ravel()) + 0.5 * (grid**2).sum(1)
    log_weights += np.array([factors.log_density(one) for one in points])
    share = np.exp(log_weights - log_weights.max())
    share /= share.sum()
    mean = share @ points
    return mean, np.sqrt(share @ (points - mean) ** 2)


CASES = {"normal": normal, "exponential": exponential, "logistic": logistic}


def real(case: Case, method: PredictedMethod, budget: float, repeats: int, seed: int) -> tuple[Array, float]:
    """Squared errors of the means in posterior variances, a value a run, and the mean time of a run."""
    losses, seconds = [], []
    for repeat in range(repeats):
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            idata = stansub.sample(
                case.factors,
                **method.options(budget),
                seed=seed + 1 + repeat,
                audit=0.0,
                generated_quantities=False,
                show_progress=False,
            )
        seconds.append(time.perf_counter() - began)
        draws = np.asarray(idata["unconstrained_posterior"]["theta"])
        losses.append(float((((draws.mean((0, 1)) - case.mean) / case.sd) ** 2).mean()))
    return np.array(losses), float(np.mean(seconds))


def interval(losses: Array, dim: int) -> tuple[float, float]:
    """95 % interval of the risk from the losses of runs, each the mean over so many parameters."""
    freedom = len(losses) * dim
    low, high = losses.sum() * dim / chi2.ppf([0.975, 0.025], freedom)
    return float(low), float(high)


def rows(name: str, case: Case, found: BudgetPlan, repeats: int, seed: int) -> Iterator[dict[str, Any]]:
    """Predicted and real, for each method of stansub's own."""
    for method in found.methods:
        predicted = method.risk(found.budget)
        if not math.isfinite(predicted.value):
            continue
        losses, seconds = real(case, method, found.budget, repeats, seed)
        risk, (low, high) = float(losses.mean()), interval(losses, len(case.mean))
        yield {
            "posterior": name,
            "way": method.label,
            "low": predicted.low,
            "predicted": predicted.value,
            "high": predicted.high,
            "variance": method.variance(found.budget).value,
            "real": risk,
            "real_low": low,
            "real_high": high,
            "seconds": seconds,
            "hit": low <= predicted.high and high >= predicted.low,
            "best": method is found.own,
        }


def cells(row: dict[str, Any]) -> list[str]:
    """A row of the table."""
    return [
        row["posterior"],
        f"{row['way']}{' *' if row['best'] else ''}",
        f"{row['predicted']:.2g}",
        f"{row['low']:.2g} to {row['high']:.2g}",
        f"{row['real']:.2g}",
        f"{row['real_low']:.2g} to {row['real_high']:.2g}",
        f"{row['seconds']:.1f}",
        "hit" if row["hit"] else "miss",
    ]


def conclusions(results: Sequence[dict[str, Any]], budget: float) -> Iterator[str]:
    """Hits and misses, and whether the recommended method was best."""
    hits = sum(row["hit"] for row in results)
    yield f"{hits} hits, {len(results) - hits} misses; budget {budget:g} s."
    late = [row["seconds"] / budget for row in results]
    yield f"Runs took {min(late):.2f} to {max(late):.2f} of the budget."
    for name in dict.fromkeys(row["posterior"] for row in results):
        group = [row for row in results if row["posterior"] == name]
        taken, lowest = next(row for row in group if row["best"]), min(group, key=lambda row: row["real"])
        apart = taken["real_low"] > lowest["real_high"]
        verdict = f"{lowest['way']} was better" if apart else "none was better by more than chance"
        yield f"{name}: {taken['way']} was recommended, and {verdict}."


def measure(
    names: Sequence[str], *, budget: float, pilot: float, repeats: int, observations: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Plan for the posteriors, run, and set side by side; `budget` and `pilot` in seconds."""
    for name in names:
        case = CASES[name](observations, np.random.default_rng(seed))
        found = plan(case.factors, budget=budget, pilot_seconds=pilot, config=SampleConfig(seed=seed))
        yield from rows(name, case, found, repeats, seed)
