"""Trajectories on a posterior whose likelihood has no maximum about which it could be expanded, or none near it.

With few observations for each argument, such as thirty answers of a student, the likelihood alone may rise without end,
or end in as many places as there are starts. The posterior has a normal density of effects besides. The no-U-turn
sampler approaches it from random parameters with a diagonal metric, which adapts in windows (Carpenter et al. 2017,
Journal of Statistical Software 76, as in CmdStan). Where the density is highest, the mean curvature of the likelihood
over the draws, with that of the rest of the posterior, then gives the metric: the posterior's mean curvature over its
draws is positive, while that of single draws may be negative in some directions. The other starts take this metric.
Where the density is far lower, it need not suit: effects that begin at random values drive their scale towards 0, from
where only variances of its own logarithm lead back soon. Starts that it never suits are about another mode, which gets
a metric of its own and counts if it holds a share of the posterior.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from stansub.errors import EndedError, RunError
from stansub.kernels.surrogate import NoUTurn, SurrogateTransition
from stansub.progress import Progress
from stansub.selection import Along
from stansub.target.approximation import Approximation
from stansub.target.coordinates import Coordinates
from stansub.target.metric import Metric
from stansub.target.sparse import Quadratic
from stansub.target.split import Differentiable, Dynamics, Split
from stansub.target.threads import together
from stansub.tuning.surrogates.mode_shares import by_share, overlap
from stansub.tuning.surrogates.sampler_runs import adapted, spread
from stansub.tuning.surrogates.starting import find_start
from stansub.tuning.surrogates.surrogate import Exploration, TunedSurrogate
from stansub.types import FloatArray

# Transitions of the windows after which the diagonal metric is adapted, of every start and of those that go on with it;
# number of draws and variance towards which variances are shrunk, as in CmdStan.
_FIRST, _LATER, _PRIOR_DRAWS, _PRIOR_VARIANCE = (50, 25), (50, 100), 5, 1e-3
# Draws over which the curvature is averaged.
_AVERAGED = 16
# Random starts; times that one whose density is low goes on with the diagonal metric; transitions in a round of the
# others with the tuned metric; rounds until step sizes are this share of the tuned one, as long as they grow by this
# factor, and most of them. With a step size of elsewhere, chains would stick.
_STARTS, _CONTINUED, _APPROACH, _NEAR, _GROWS, _ROUNDS = 4, 2, 60, 0.5, 1.2, 8
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
    if split.posterior() is None:
        return None
    warmup, found = _Warmup(split, dim, rng, progress, along), list[TunedSurrogate]()
    starts = warmup.begun()
    while starts:
        try:
            tuned, starts = warmup.about_highest(starts)
        except EndedError:
            raise
        except RunError:
            if not found:
                raise
            break  # the starts that are left are about no mode
        if not any(overlap(tuned, other) for other in found):  # steps may be small in another part of a mode
            found.append(tuned)
    return replace(by_share(split, found, progress), n_seen=len(found))


@dataclass(frozen=True)
class _Warmup:
    """Approach to the modes of a posterior from random starts."""

    split: Split
    dim: int
    rng: np.random.Generator
    progress: Progress
    along: Along

    def begun(self) -> list[_Start]:
        """Return random starts after the first windows."""
        self.progress("Approaching the posterior")
        numbers, n_transitions = count(1), _STARTS * sum(_FIRST)

        def begun(own: np.random.Generator, check: Callable[[], None]) -> _Start:
            def advance() -> None:
                check()
                self.progress.advance(next(numbers), n_transitions)

            dynamics = _dynamics(self.split)
            return _Start.random(dynamics.model, self.dim, own).continued(dynamics, _FIRST, advance)

        return together(begun, self.rng.spawn(_STARTS), self.progress)

    def about_highest(self, starts: Sequence[_Start]) -> tuple[TunedSurrogate, list[_Start]]:
        """Return trajectories about the mode of the start whose density is the highest, and starts that stay elsewhere.

        Draws are of all starts that come near to it.
        """
        highest, *others = sorted(starts, key=lambda one: one.density, reverse=True)
        posterior, phi = _dynamics(self.split), self.split.prior().phi
        draws = highest.continued(posterior, _LATER, self.progress.check).draws
        some = self.split.predictors.expansions([phi(theta) for theta in spread(draws, _AVERAGED)])
        about = Approximation.plain(Quadratic.mean(some), is_mean=True)
        tuner = Exploration.of(self.split, about, self.dim, self.rng, self.progress)[0].tuner
        self.progress("Tuning trajectories on the posterior")
        points, metric_of = spread(draws, _AVERAGED), self.split.surrogate(about)
        tuned = tuner.finish_on_posterior(posterior, about.precision, draws, points, metric_of)
        inner = tuned.inner
        assert isinstance(inner, NoUTurn)
        levels = [posterior.model.log_density(theta) for theta in spread(tuned.draws, _AVERAGED)]
        lowest = min(levels)
        least = lowest - np.ptp(levels)
        self.progress("Approaching the posterior from other starts")
        numbers = count(1)

        def approached(start: _Start, check: Callable[[], None]) -> tuple[_Start, bool]:
            found = start.approached(_dynamics(self.split), inner, least, check)
            self.progress.advance(next(numbers), len(others))
            return found

        reached = together(approached, others, self.progress)
        near = [tuned.draws, *(one.draws for one, is_near in reached if is_near)]
        size = min(map(len, near))
        draws = np.vstack([one[-size:] for one in near])
        sds = np.std([phi(theta) for theta in tuned.draws], axis=0)
        transition = SurrogateTransition(about, inner, sds, None, 1, on_posterior=inner, share=1.0)
        found = TunedSurrogate(transition, draws, 0.0, tuned.diverging, len(some), tuner=tuner, along=self.along)
        return found, _elsewhere(reached, lowest)


def _elsewhere(reached: Iterable[tuple[_Start, bool]], level: float) -> list[_Start]:
    """Return the starts that may be about another mode: of those that did not come near, those that are not stuck.

    If the density is lower by more than 1 for each parameter, the mode would have to be e times as wide in every
    direction to hold as much of the posterior.
    """
    return [one for one, is_near in reached if not is_near and one.density >= level - len(one.precision)]


def _dynamics(split: Split) -> Dynamics:
    """Return a posterior of one thread, which this process can evaluate."""
    posterior = split.posterior()
    assert posterior is not None
    return posterior


class _Start(NamedTuple):
    """A start from random parameters, and how far it came."""

    draws: FloatArray
    """Shape (n, dim): the second half of the last window."""
    density: float
    """Log density at the last of them."""
    precision: FloatArray
    rng: np.random.Generator

    @classmethod
    def random(cls, model: Differentiable, dim: int, rng: np.random.Generator) -> _Start:
        """Return random parameters, and a metric of ones."""
        theta = find_start(model, dim, rng, radius=_RADIUS)
        return cls(theta[np.newaxis], model.log_density(theta), np.ones(dim), rng)

    def continued(self, posterior: Dynamics, windows: Sequence[int], check: Callable[[], None]) -> _Start:
        """Return the start after windows with a diagonal metric."""
        kept, precision, plain = self.draws, self.precision, Coordinates.plain(len(self.precision))
        for n in windows:
            system = posterior.hamiltonian(kept[-1], Metric.of(sp.csc_array(sp.diags_array(precision))), plain)
            kept = adapted(system, kept[-1], n, self.rng, check).draws[n // 2 :]
            weight = len(kept) / (len(kept) + _PRIOR_DRAWS)
            precision = 1 / (weight * kept.var(axis=0) + (1 - weight) * _PRIOR_VARIANCE)
        return _Start(kept, posterior.model.log_density(kept[-1]), precision, self.rng)

    def approached(
        self, posterior: Dynamics, inner: NoUTurn, least: float, check: Callable[[], None]
    ) -> tuple[_Start, bool]:
        """Return the start with draws by a tuned metric, and whether this suits: if not, they are about another mode.

        More windows come first as long as the density is below the least, though not for ever.
        """
        start = self
        for _ in range(_CONTINUED):
            if start.density >= least:
                break
            start = start.continued(posterior, _LATER, check)
        theta, system = start.draws[-1], posterior.hamiltonian(inner.centre, inner.metric, inner.coordinates)
        before = 0.0
        for _ in range(_ROUNDS):
            made = adapted(system, theta, _APPROACH, self.rng, check)
            theta, size = made.draws[-1], made.step_size
            if (is_near := size >= _NEAR * inner.step_size) or size <= _GROWS * before:
                break
            before = size
        draws = made.draws[_APPROACH // 2 :]
        return start._replace(draws=draws, density=posterior.model.log_density(theta)), is_near
