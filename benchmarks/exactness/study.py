"""What is sampled, row by row: references, exact ways, approximate ones, and a control of draws that are normal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import agreement
import importance
import numpy as np
from agreement import Estimates
from posteriors import Posterior
from ways import WAYS, Sampled, nuts

Row = dict[str, Any]

IMPORTANCE, NUTS, NORMAL = "importance sampling", "NUTS", "normal draws"
# Draws of NUTS for an effective draw of the factorised sampler.
_NUTS = 0.75


def rows(posterior: Posterior, effective: float, seed: int, ways: Sequence[str] = tuple(WAYS)) -> Iterator[Row]:
    """The references of a posterior, the control, and the ways named.

    Parameters
    ----------
    effective : float
        Effective draws of the weighted sample at least, and of the factorised sampler about.
    """
    # Not the stream of the samplers' seed.
    rng = np.random.default_rng([seed, 0])
    began = time.perf_counter()
    weighted = importance.sample(posterior, effective, rng)
    facts = {
        "weighted": len(weighted.weights),
        "weighted_effective": weighted.effective,
        "pareto_k": weighted.pareto_k,
        "skewness": weighted.skewness.tolist(),
    }
    estimates = agreement.of_weighted(weighted.points, weighted.weights)
    yield _row(posterior, IMPORTANCE, estimates, time.perf_counter() - began) | facts
    mean, covariance = weighted.moments()
    normal = rng.multivariate_normal(mean, covariance, (4, int(effective) // 4))
    yield _row(posterior, NORMAL, agreement.of_draws(normal), 0.0)
    yield _timed(posterior, NUTS, lambda: nuts(posterior, int(_NUTS * effective), seed))
    for name in ways:
        yield _timed(posterior, name, lambda name=name: WAYS[name].sample(posterior, effective, seed))


def _timed(posterior: Posterior, way: str, draw: Callable[[], Sampled]) -> Row:
    began = time.perf_counter()
    made = draw()
    seconds = time.perf_counter() - began
    return _row(posterior, way, agreement.of_draws(made.draws), seconds) | {"evaluated": made.evaluated}


def _row(posterior: Posterior, way: str, estimates: Estimates, seconds: float) -> Row:
    return {
        "posterior": posterior.name,
        "way": way,
        "effective": estimates.effective,
        "seconds": seconds,
        "parameters": posterior.names,
        "values": estimates.values.tolist(),
        "errors": estimates.errors.tolist(),
    }


def estimates_of(row: Row) -> Estimates:
    """The estimates of a row."""
    return Estimates(np.array(row["values"]), np.array(row["errors"]))
