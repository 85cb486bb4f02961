"""Trajectories on the posterior itself, if gradients of all the data cost little more than those of a surrogate.

With thousands of parameters, a gradient of a surrogate and products with its metric take about as long as a pass over
the data. Corrections of its expansion then cost more in set-up than they save, and chains stay where they omit much.
The surrogate still leads to the posterior and has the metric.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stansub.kernels.surrogate import NoUTurn
from stansub.target.approximation import Approximation
from stansub.target.metric import Metric
from stansub.target.sparse import Quadratic, SparsePredictors
from stansub.target.split import Split
from stansub.tuning.surrogates.hmc import POINTS, Tuned, Tuner, step_cost
from stansub.tuning.surrogates.sampler_runs import UNSURE, n_transitions, spread
from stansub.types import FloatArray

# Rounds of trajectories on the posterior before they are tuned, each with a new expansion.
_ROUNDS = 2
# Cost of a gradient of the data, relative to that of a step on a surrogate, up to which it is little; parameters below
# which corrections take seconds.
_LITTLE, _MANY = 2.5, 500
# Autocorrelation time that steps may have: more transitions per step cost as much as more steps.
_LEFT = 5.0


def is_cheap(predictors: SparsePredictors, about: Quadratic, metric: Metric) -> bool:
    """Return whether gradients of all the data cost little more than a step on a surrogate.

    ``metric`` has the pattern of those of the surrogate.
    """
    if metric.dim < _MANY or predictors.family.floor:  # with kinks, the user's program is differentiated
        return False
    return 2 * predictors.microseconds <= _LITTLE * step_cost(about.precision, metric)


class OnPosterior(NamedTuple):
    """Trajectories on the posterior itself."""

    tuned: Tuned
    about: Approximation
    """The expansion whose surrogate has the metric."""
    sds: FloatArray
    """Shape (m,): approximate sds of the likelihood's arguments."""
    n_passes: int


def tuned_on_posterior(
    split: Split, tuner: Tuner, about: Approximation, draws: FloatArray, is_uncertain: Callable[[FloatArray], bool]
) -> OnPosterior | None:
    """Return the sampler; None if a scale is uncertain, or this process cannot evaluate the posterior at once.

    The first draws lead to the posterior, and the metric is that of the expansion about the next ones.

    Parameters
    ----------
    draws : ndarray, shape (n, dim)
        Draws of the surrogate with an approximation.
    is_uncertain : callable
        Whether a scale is uncertain, by draws.
    """
    posterior = split.posterior()
    if posterior is None:
        return None
    for _ in range(_ROUNDS):
        surrogate = split.surrogate(about)
        tuned = tuner.round(posterior, about.precision, draws, spread(draws, POINTS), surrogate)
        draws = tuned.draws
        phis = np.array([surrogate.phi(theta) for theta in draws])
        expansion = split.predictors.expansion(phis.mean(axis=0))
        about = Approximation.plain(expansion, simplexes=about.simplexes)
    if is_uncertain(draws):
        return None
    assert isinstance(tuned.inner, NoUTurn)
    surrogate = split.surrogate(about)
    precision = about.precision
    tuned = tuner.finish(posterior, precision, draws, tuned.inner, metric_of=surrogate, slow=UNSURE)
    if is_uncertain(tuned.draws):
        return None
    tuned = tuned._replace(n=n_transitions(tuned.time, left=_LEFT))
    sds = np.std([surrogate.phi(theta) for theta in tuned.draws], axis=0)
    return OnPosterior(tuned, about, sds, _ROUNDS)
