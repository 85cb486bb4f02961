"""Trajectories on a posterior whose likelihood has no maximum about which it could be expanded, or none near it.

With few observations for each argument, such as thirty answers of a student, the likelihood alone may increase without
limit, or climbs may end in as many places as there are starts. The posterior also has a normal density of effects. The
no-U-turn sampler therefore approaches the posterior from random parameters.

It does so in rounds, each with a metric from draws of the round before: the mean curvature of the likelihood, plus that
of the rest of the posterior. Over draws of the posterior, the mean curvature is positive. Far from there it may be
negative in some directions, and its absolute value is the metric's. Where effects contradict the data, their scale is
near 0, and only a metric from there lets it increase.

The start with the highest density determines the metric of further trajectories. If steps of another start stay small
with this metric, the start is near another mode. That mode gets its own metric, and is kept if it holds a share of the
posterior.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
from stansub.tuning.surrogates.hmc import Tuner
from stansub.tuning.surrogates.mode_shares import by_share, overlap
from stansub.tuning.surrogates.sampler_runs import adapted, spread
from stansub.tuning.surrogates.starting import find_start
from stansub.tuning.surrogates.surrogate import Exploration, TunedSurrogate
from stansub.types import FloatArray

# Number of random starts, and radius of their parameters, as in CmdStan.
_STARTS, _RADIUS = 6, 2.0
# Transitions with a metric of ones, and those of a round; maximum depth of their trees, which take many small steps
# while the metric suits little; and maximum number of rounds.
_FIRST, _ROUND, _DEPTH, _MOST_ROUNDS = 25, 40, 6, 10
# Step size with which a metric suits: half the one where the posterior is normal.
_SUITS = 0.25
# Draws over which the curvature is averaged.
_AVERAGED = 16
# Transitions per round with the tuned metric, and maximum number of rounds. Rounds end if step sizes reach the share
# `_NEAR` of the tuned one, or if they no longer grow by the factor `_GROWS`: with the tuned step size, the chain would
# be stuck.
_WITH_TUNED, _MOST_WITH_TUNED, _NEAR, _GROWS = 60, 8, 0.5, 1.2


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
    search, found = _Search(split, dim, rng, progress, along), list[TunedSurrogate]()
    tuner, starts = search.begin()
    while starts:
        highest, *others = sorted(starts, key=lambda one: one.density, reverse=True)
        try:
            tuned, starts = search.tune_at(highest, others, tuner)
        except EndedError:
            raise
        except RunError:  # this start is near no mode
            if not found and not others:
                raise
            starts = others
            continue
        if not any(overlap(tuned, other) for other in found):  # steps may be small in another part of the same mode
            found.append(tuned)
    return replace(by_share(split, found, progress), n_seen=len(found))


@dataclass(frozen=True)
class _Search:
    """Search for the modes of a posterior from random starts."""

    split: Split
    dim: int
    rng: np.random.Generator
    progress: Progress
    along: Along

    def begin(self) -> tuple[Tuner, list[_Start]]:
        """Return the tuner of trajectories, and random starts after rounds with metrics of their own."""
        self.progress("Approaching the posterior")
        numbers = count(1)

        def begin(own: np.random.Generator, check: Callable[[], None]) -> _Start:
            dynamics = _dynamics(self.split)
            start = _Start.random(dynamics.model, self.dim, own).with_metric_of_ones(dynamics, check)
            self.progress.advance(next(numbers), 2 * _STARTS)
            return start

        def approach(start: _Start, check: Callable[[], None]) -> _Start:
            made = start.approach(self.split, replace(tuner, rng=start.rng, check=check))
            self.progress.advance(next(numbers), 2 * _STARTS)
            return made

        starts = together(begin, self.rng.spawn(_STARTS), self.progress)
        about = _mean_expansion(self.split, max(starts, key=lambda one: one.density).draws)
        tuner = Exploration.of(self.split, about, self.dim, self.rng, self.progress)[0].tuner
        return tuner, together(approach, starts, self.progress)

    def tune_at(self, highest: _Start, others: Iterable[_Start], tuner: Tuner) -> tuple[TunedSurrogate, list[_Start]]:
        """Tune trajectories near the start with the highest density; return them and the starts near other modes.

        Their draws come from all starts that reach the same mode.
        """
        self.progress("Tuning trajectories on the posterior")
        posterior, phi = _dynamics(self.split), self.split.prior().phi
        about, points = _mean_expansion(self.split, highest.draws), spread(highest.draws, _AVERAGED)
        metric_of = self.split.surrogate(about)
        tuned = tuner.finish_on_posterior(posterior, about.precision, highest.draws, points, metric_of)
        inner = tuned.inner
        assert isinstance(inner, NoUTurn)
        lowest = min(posterior.model.log_density(theta) for theta in spread(tuned.draws, _AVERAGED))
        others, numbers = _not_far_below(others, lowest), count(1)
        self.progress("Approaching the posterior from other starts")

        def approach(start: _Start, check: Callable[[], None]) -> tuple[_Start, bool]:
            found = start.approach_with(inner, _dynamics(self.split), check)
            self.progress.advance(next(numbers), len(others))
            return found

        reached = together(approach, others, self.progress)
        near = [tuned.draws, *(one.draws for one, is_near in reached if is_near)]
        size = min(map(len, near))
        draws = np.vstack([one[-size:] for one in near])
        sds = np.std([phi(theta) for theta in tuned.draws], axis=0)
        transition = SurrogateTransition(about, inner, sds, None, 1, on_posterior=inner, share=1.0)
        found = TunedSurrogate(transition, draws, 0.0, tuned.diverging, len(points), tuner=tuner, along=self.along)
        return found, [one for one, is_near in reached if not is_near]


def _not_far_below(starts: Iterable[_Start], level: float) -> list[_Start]:
    """Return the starts that may be near a mode of the posterior.

    If the density is lower by more than 1 for each parameter, a mode would have to be e times as wide in every
    direction to hold as much of the posterior.
    """
    return [one for one in starts if one.density >= level - one.dim]


def _dynamics(split: Split) -> Dynamics:
    """Return a posterior of one thread, which this process can evaluate."""
    posterior = split.posterior()
    assert posterior is not None
    return posterior


def _mean_expansion(split: Split, draws: FloatArray) -> Approximation:
    """Return the mean of expansions of the likelihood at draws."""
    phi = split.prior().phi
    some = split.predictors.expansions([phi(theta) for theta in spread(draws, _AVERAGED)])
    return Approximation.plain(Quadratic.mean(some), is_mean=True)


class _Start(NamedTuple):
    """A start from random parameters, with its last draws."""

    draws: FloatArray
    """Shape (n, dim): the second half of the last round."""
    density: float
    """Log density at the last of them."""
    rng: np.random.Generator

    @property
    def dim(self) -> int:
        """Return the number of parameters."""
        return int(self.draws.shape[1])

    @classmethod
    def random(cls, model: Differentiable, dim: int, rng: np.random.Generator) -> _Start:
        """Return random parameters."""
        theta = find_start(model, dim, rng, radius=_RADIUS)
        return cls(theta[np.newaxis], model.log_density(theta), rng)

    def with_metric_of_ones(self, posterior: Dynamics, check: Callable[[], None]) -> _Start:
        """Sample with a metric of ones; return the start with the last draws."""
        dim = self.draws.shape[1]
        system = posterior.hamiltonian(
            self.draws[-1], Metric.of(sp.csc_array(sp.eye_array(dim))), Coordinates.plain(dim)
        )
        draws = adapted(system, self.draws[-1], _FIRST, self.rng, check, max_tree_depth=_DEPTH).draws
        return self._moved_to(draws[_FIRST // 2 :], posterior)

    def approach(self, split: Split, tuner: Tuner) -> _Start:
        """Sample in rounds with metrics from its own draws; return the start with the last ones.

        Rounds end if the metric suits, or if the log density did not increase in two of them by more than its standard
        deviation where the posterior is normal, the root of half the dimension.
        """
        posterior, start, densities = _dynamics(split), self, [self.density]
        while len(densities) <= _MOST_ROUNDS:
            try:
                start, size = start._round(split, posterior, tuner)
            except EndedError:
                raise
            except RunError:  # the metric does not suit at all
                break
            densities.append(start.density)
            has_ended = len(densities) > 2 and densities[-1] < densities[-3] + np.sqrt(start.dim / 2)
            if size >= _SUITS or has_ended:
                break
        return start

    def _round(self, split: Split, posterior: Dynamics, tuner: Tuner) -> tuple[_Start, float]:
        """Sample with a metric from the draws; return the start with the new ones, and the step size."""
        about, points = _mean_expansion(split, self.draws), spread(self.draws, _AVERAGED)
        metric_of, n = split.surrogate(about), _ROUND
        made = tuner.round(posterior, about.precision, self.draws, points, metric_of, n, max_tree_depth=_DEPTH)
        assert isinstance(made.inner, NoUTurn)
        return self._moved_to(made.draws, posterior), made.inner.step_size

    def approach_with(self, inner: NoUTurn, posterior: Dynamics, check: Callable[[], None]) -> tuple[_Start, bool]:
        """Sample with a tuned metric; return the start with these draws, and whether the metric suits."""
        start, system, before = self, inner.on(posterior), 0.0
        for _ in range(_MOST_WITH_TUNED):
            made = adapted(system, start.draws[-1], _WITH_TUNED, self.rng, check, max_tree_depth=_DEPTH)
            start, size = start._moved_to(made.draws[_WITH_TUNED // 2 :], posterior), made.step_size
            if (is_near := size >= _NEAR * inner.step_size) or size <= _GROWS * before:
                break
            before = size
        return start, is_near

    def _moved_to(self, draws: FloatArray, posterior: Dynamics) -> _Start:
        return self._replace(draws=draws, density=posterior.model.log_density(draws[-1]))
