"""Bounds on the remainders of control variates, learned from trials.

For a likelihood of linear predictors, bounds are proved (`stansub.target.remainders`). For any other, each block's
remainder R_b is evaluated at draws theta = m + L z of the normal approximation, z ~ N(0, I), and

    c_b = factor * max(largest |R_b| / |z|^(p + 1) among the draws, median of these over all blocks)

is used as a bound: |R_b(theta)| <= c_b |w|^(p + 1) at every draw by a wide margin, and so |r_b| <= c_b (|w|^(p + 1) +
|w'|^(p + 1)) for a move between any two of them. The median keeps a block with small values at the draws from exceeding
its bound all the time. Such a bound is not a proof: stansub counts how often it is exceeded, and audits show the
effect.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stansub.errors import InputError
from stansub.progress import as_progress
from stansub.target.factors import Target
from stansub.target.gradients import ParallelEvaluator, Team
from stansub.target.remainders import RemainderBounds
from stansub.target.taylor import ControlVariates
from stansub.types import FloatArray

# Draws, the safety factor, and the share of the draws that must have finite log likelihoods; chosen with
# benchmarks/learned_bounds.py.
DRAWS, FACTOR, _DEFINED = 32, 3.0, 0.5
# Bounds are assumed to hold up to this multiple of the farthest draw's distance from the anchor.
_REACH = 1.5


def learn(
    posterior: Target,
    variates: ControlVariates,
    cholesky: FloatArray,
    *,
    rng: np.random.Generator,
    threads: int = 1,
    progress: Callable[[str], None] | None = None,
    factor: float = FACTOR,
) -> RemainderBounds:
    """Return bounds learned from remainders at draws of a normal approximation; each draw takes a pass over the data.

    Parameters
    ----------
    variates : ControlVariates
        About one anchor.
    cholesky : ndarray, shape (dim, dim)
        Factor of the covariance of the normal approximation.

    Raises
    ------
    InputError
        If the likelihood is not defined about the anchor.
    """
    log = as_progress(progress)
    log("Learning bounds on the remainders of control variates")
    anchor, power = variates.anchor, variates.order + 1
    largest, lengths = np.zeros(len(posterior.blocks)), []
    with Team(posterior.population, threads=threads, progress=log) as team:
        together = ParallelEvaluator(team)
        there = together.block_log_lik(anchor)
        for number, z in enumerate(rng.standard_normal((DRAWS, len(anchor))), start=1):
            theta, length = anchor + cholesky @ z, float(np.linalg.norm(z))
            with np.errstate(invalid="ignore"):
                remainders = together.block_log_lik(theta) - there - variates.changes(anchor, theta)
            if np.isfinite(remainders).all():
                np.maximum(largest, np.abs(remainders) / length**power, out=largest)
                lengths.append(length)
            log.advance(number, DRAWS)
    if len(lengths) < _DEFINED * DRAWS:
        raise InputError(
            f"cannot learn bounds: the log likelihood is not finite at {DRAWS - len(lengths)} of {DRAWS} draws "
            "around the expansion point; choose another test"
        )
    constants = factor * np.maximum(largest, np.median(largest))
    whitening = np.asarray(np.linalg.inv(cholesky), np.float64)
    radius = np.array([_REACH * max(lengths)])
    return RemainderBounds(anchor, whitening, variates.order, radius, constants[np.newaxis], proved=False)
