"""Trajectories on a posterior whose likelihood has no maximum about which it could be expanded, or none near it.

With few observations for each argument, such as thirty answers of a student, the likelihood alone may rise without end,
or end in as many places as there are starts. The posterior has a normal density of effects besides. The no-U-turn
sampler approaches it from random parameters with a diagonal metric, which adapts in windows (Carpenter et al. 2017,
Journal of Statistical Software 76, as in CmdStan). The mean curvature of the likelihood over these draws, with that of
the rest of the posterior, then gives the metric: the posterior's mean curvature over its draws is positive, while that
of single draws may be negative in some directions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sp

from stansub.kernels.surrogate import NoUTurn, SurrogateTransition
from stansub.progress import Progress
from stansub.selection import Along
from stansub.target.approximation import Approximation
from stansub.target.coordinates import Coordinates
from stansub.target.metric import Metric
from stansub.target.sparse import Quadratic
from stansub.target.split import Dynamics, Split
from stansub.target.threads import together
from stansub.tuning.surrogates.sampler_runs import adapted, spread
from stansub.tuning.surrogates.starting import find_start
from stansub.tuning.surrogates.surrogate import Exploration, TunedSurrogate
from stansub.types import FloatArray

# Transitions of the windows after which the diagonal metric is adapted: from the first start, and from others, for
# which there is another metric then; number of draws and variance towards which variances are shrunk, as in CmdStan.
_WINDOWS, _FIRST, _PRIOR_DRAWS, _PRIOR_VARIANCE = (50, 25, 50, 100), (50, 25), 5, 1e-3
# Draws over which the curvature is averaged.
_AVERAGED = 16
# Random starts; transitions in a round from each but the first, with the tuned metric; rounds until step sizes are this
# share of the tuned one, and most of them: chains with that one would stick where only smaller ones are accepted.
_STARTS, _APPROACH, _NEAR, _ROUNDS = 4, 60, 0.5, 8
# Radius of random parameters, as in CmdStan.
_RADIUS = 2.0


def tune(
    split: Split, dim: int, rng: np.random.Generator, progress: Progress, *, along: Along = Along.NO_MAXIMUM
) -> TunedSurrogate | None:
    """Return trajectories on the posterior, with draws from several random starts, so that chains may see other modes.

    Parameters
    ----------
    along : Along
        Why, for the record.

    Returns
    -------
    TunedSurrogate or None
        None if this process cannot evaluate the posterior at once.

    Raises
    ------
    RunError
        If the posterior is undefined at random parameters.
    """
    if (posterior := split.posterior()) is None:
        return None
    progress("Approaching the posterior")
    draws = _warmed(posterior, dim, _WINDOWS, rng, progress.check, progress.advance)
    phi = split.prior().phi
    some = split.predictors.expansions([phi(theta) for theta in spread(draws, _AVERAGED)])
    about = Approximation.plain(Quadratic.mean(some), is_mean=True)
    tuner = Exploration.of(split, about, dim, rng, progress)[0].tuner
    progress("Tuning trajectories on the posterior")
    points, metric_of = spread(draws, _AVERAGED), split.surrogate(about)
    tuned = tuner.finish_on_posterior(posterior, about.precision, draws, points, metric_of)
    inner = tuned.inner
    assert isinstance(inner, NoUTurn)
    progress("Approaching the posterior from other starts")

    def approached(own: np.random.Generator, check: Callable[[], None]) -> FloatArray:
        model = split.posterior()
        assert model is not None
        return _approached(model, inner, own, check)

    others = together(approached, rng.spawn(_STARTS - 1), progress)
    size = min(map(len, (tuned.draws, *others)))
    draws = np.vstack([one[-size:] for one in (tuned.draws, *others)])
    sds = np.std([phi(theta) for theta in tuned.draws], axis=0)
    transition = SurrogateTransition(about, inner, sds, None, 1, on_posterior=inner, share=1.0)
    return TunedSurrogate(transition, draws, 0.0, tuned.diverging, len(some), tuner=tuner, along=along)


def _warmed(
    posterior: Dynamics,
    dim: int,
    windows: Sequence[int],
    rng: np.random.Generator,
    check: Callable[[], None],
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> FloatArray:
    """Return draws after a warmup from random parameters, shape (n, dim)."""
    theta, done = find_start(posterior.model, dim, rng, radius=_RADIUS), 0
    precision, plain = np.ones(dim), Coordinates.plain(dim)
    for n in windows:
        system = posterior.hamiltonian(theta, Metric.of(sp.csc_array(sp.diags_array(precision))), plain)
        made = adapted(system, theta, n, rng, check)
        theta, kept, done = made.draws[-1], made.draws[n // 2 :], done + n
        advance(done, sum(windows))
        weight = len(kept) / (len(kept) + _PRIOR_DRAWS)
        precision = 1 / (weight * kept.var(axis=0) + (1 - weight) * _PRIOR_VARIANCE)
    return kept


def _approached(posterior: Dynamics, inner: NoUTurn, rng: np.random.Generator, check: Callable[[], None]) -> FloatArray:
    """Return draws from another start, the last ones with the tuned metric."""
    theta = _warmed(posterior, len(inner.centre), _FIRST, rng, check)[-1]
    system = posterior.hamiltonian(inner.centre, inner.metric, inner.coordinates)
    for _ in range(_ROUNDS):
        made = adapted(system, theta, _APPROACH, rng, check)
        theta = made.draws[-1]
        if made.step_size >= _NEAR * inner.step_size:
            break
    return made.draws[_APPROACH // 2 :]
