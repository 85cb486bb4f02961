"""Trajectories on a posterior whose likelihood has no maximum about which it could be expanded, or none near it.

With few observations for each argument, such as thirty answers of a student, the likelihood alone may increase without
limit, or climbs may end in as many places as there are starts. The posterior also has a normal density of effects. The
no-U-turn sampler therefore approaches the posterior from random parameters. A diagonal metric adapts in windows
(Carpenter et al. 2017, Journal of Statistical Software 76, as in CmdStan).

The start with the highest density determines the metric of further trajectories. It is the mean curvature of the
likelihood over draws, plus that of the rest of the posterior, in rounds until step sizes no longer grow. Over draws,
the posterior's mean curvature is positive; at a single draw it may be negative in some directions.

Other starts use this metric, too. At a far lower density it may not suit: effects that begin at random values push
their scale towards 0, and only a metric with the variance of the scale's logarithm leads back soon. If steps with the
metric stay small, the start is near another mode. That mode gets its own metric, and is kept if it holds a share of the
posterior.
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
from stansub.tuning.surrogates.hmc import Tuned, Tuner
from stansub.tuning.surrogates.mode_shares import by_share, overlap
from stansub.tuning.surrogates.sampler_runs import adapted, spread
from stansub.tuning.surrogates.starting import find_start
from stansub.tuning.surrogates.surrogate import Exploration, TunedSurrogate
from stansub.types import FloatArray

# Transitions per window, after each of which the diagonal metric adapts: for all starts at first, and for a start that
# continues with this metric. Number of draws and variance towards which variances shrink, as in CmdStan.
_FIRST, _LATER, _PRIOR_DRAWS, _PRIOR_VARIANCE = (50, 25), (50, 100), 5, 1e-3
# Draws over which the curvature is averaged.
_AVERAGED = 16
# Maximum tree depth there: full trees lead nearer, but take longer than rounds that make up for it.
_DEPTH = 6
# Number of random starts. A start with a low density continues with the diagonal metric at most `_CONTINUED` times.
_STARTS, _CONTINUED = 4, 2
# Transitions per round with the tuned metric, and most rounds. Rounds end if step sizes reach the share `_NEAR` of the
# tuned one, or if they no longer grow by the factor `_GROWS`: with the tuned step size, the chain would be stuck. The
# metric itself is tuned in such rounds, too.
_APPROACH, _ROUNDS, _NEAR, _GROWS = 60, 8, 0.5, 1.2
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
    starts = warmup.begin()
    while starts:
        try:
            tuned, starts = warmup.tune_highest(starts)
        except EndedError:
            raise
        except RunError:
            if not found:
                raise
            break  # the remaining starts are near no mode
        if not any(overlap(tuned, other) for other in found):  # steps may be small in another part of the same mode
            found.append(tuned)
    return replace(by_share(split, found, rng, progress), n_seen=len(found))


@dataclass(frozen=True)
class _Warmup:
    """Approach to the modes of a posterior from random starts."""

    split: Split
    dim: int
    rng: np.random.Generator
    progress: Progress
    along: Along

    def begin(self) -> list[_Start]:
        """Return random starts after their first windows."""
        self.progress("Approaching the posterior")
        numbers, n_transitions = count(1), _STARTS * sum(_FIRST)

        def begin(own: np.random.Generator, check: Callable[[], None]) -> _Start:
            def advance() -> None:
                check()
                self.progress.advance(next(numbers), n_transitions)

            dynamics = _dynamics(self.split)
            return _Start.random(dynamics.model, self.dim, own).run_windows(dynamics, _FIRST, advance)

        return together(begin, self.rng.spawn(_STARTS), self.progress)

    def tune_highest(self, starts: Sequence[_Start]) -> tuple[TunedSurrogate, list[_Start]]:
        """Tune trajectories near the start with the highest density; return them and the starts near other modes.

        Their draws come from all starts that reach the same mode.
        """
        highest, *others = sorted(starts, key=lambda one: one.density, reverse=True)
        posterior, phi = _dynamics(self.split), self.split.prior().phi
        draws = highest.run_windows(posterior, _LATER, self.progress.check).draws
        tuned, about, tuner = self._tune_near(posterior, draws)
        inner = _no_u_turn(tuned)
        levels = [posterior.model.log_density(theta) for theta in spread(tuned.draws, _AVERAGED)]
        lowest = min(levels)
        least = lowest - np.ptp(levels)
        self.progress("Approaching the posterior from other starts")
        numbers = count(1)

        def approach(start: _Start, check: Callable[[], None]) -> tuple[_Start, bool]:
            found = start.approach(_dynamics(self.split), inner, least, check)
            self.progress.advance(next(numbers), len(others))
            return found

        reached = together(approach, others, self.progress)
        near = [tuned.draws, *(one.draws for one, is_near in reached if is_near)]
        size = min(map(len, near))
        draws = np.vstack([one[-size:] for one in near])
        sds = np.std([phi(theta) for theta in tuned.draws], axis=0)
        transition = SurrogateTransition(about, inner, sds, None, 1, on_posterior=inner, share=1.0)
        found = TunedSurrogate(transition, draws, 0.0, tuned.diverging, _AVERAGED, tuner=tuner, along=self.along)
        return found, _near_other_modes(reached, lowest)

    def _tune_near(self, posterior: Dynamics, draws: FloatArray) -> tuple[Tuned, Approximation, Tuner]:
        """Return tuned trajectories near some draws, with the approximation and the tuner of their metric.

        The metric at the first draws may not suit. A round with it leads nearer to the posterior, where it is better.
        """
        about = self._about(draws)
        tuner = Exploration.of(self.split, about, self.dim, self.rng, self.progress)[0].tuner
        self.progress("Tuning trajectories on the posterior")
        before = 0.0
        for _ in range(_ROUNDS):
            points, metric_of = spread(draws, _AVERAGED), self.split.surrogate(about)
            found = tuner.round(posterior, about.precision, draws, points, metric_of)
            draws, size = found.draws, _no_u_turn(found).step_size
            about = self._about(draws)
            if size <= _GROWS * before:
                break
            before = size
        points, metric_of = spread(draws, _AVERAGED), self.split.surrogate(about)
        return tuner.finish_on_posterior(posterior, about.precision, draws, points, metric_of), about, tuner

    def _about(self, draws: FloatArray) -> Approximation:
        """Return the mean of expansions at some draws."""
        phi = self.split.prior().phi
        some = self.split.predictors.expansions([phi(theta) for theta in spread(draws, _AVERAGED)])
        return Approximation.plain(Quadratic.mean(some), is_mean=True)


def _near_other_modes(reached: Iterable[tuple[_Start, bool]], level: float) -> list[_Start]:
    """Return the starts that may be near other modes: not those that reached this one, or that are stuck far below it.

    If the density is lower by more than 1 for each parameter, a mode would have to be e times as wide in every
    direction to hold as much of the posterior.
    """
    return [one for one, is_near in reached if not is_near and one.density >= level - len(one.precision)]


def _no_u_turn(tuned: Tuned) -> NoUTurn:
    """Return the sampler of trajectories on a posterior."""
    assert isinstance(tuned.inner, NoUTurn)
    return tuned.inner


def _dynamics(split: Split) -> Dynamics:
    """Return a posterior of one thread, which this process can evaluate."""
    posterior = split.posterior()
    assert posterior is not None
    return posterior


class _Start(NamedTuple):
    """A start from random parameters, with its last draws."""

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

    def run_windows(self, posterior: Dynamics, windows: Sequence[int], check: Callable[[], None]) -> _Start:
        """Sample in windows with a diagonal metric; return the start with the last draws."""
        kept, precision, plain = self.draws, self.precision, Coordinates.plain(len(self.precision))
        for n in windows:
            system = posterior.hamiltonian(kept[-1], Metric.of(sp.csc_array(sp.diags_array(precision))), plain)
            kept = adapted(system, kept[-1], n, self.rng, check, depth=_DEPTH).draws[n // 2 :]
            weight = len(kept) / (len(kept) + _PRIOR_DRAWS)
            precision = 1 / (weight * kept.var(axis=0) + (1 - weight) * _PRIOR_VARIANCE)
        return _Start(kept, posterior.model.log_density(kept[-1]), precision, self.rng)

    def approach(
        self, posterior: Dynamics, inner: NoUTurn, least: float, check: Callable[[], None]
    ) -> tuple[_Start, bool]:
        """Sample with a tuned metric; return the start with these draws, and whether the metric suits.

        If the density is below ``least``, windows with the diagonal metric come first, at most `_CONTINUED` times.
        """
        start = self
        for _ in range(_CONTINUED):
            if start.density >= least:
                break
            start = start.run_windows(posterior, _LATER, check)
        theta, system = start.draws[-1], inner.on(posterior)
        before = 0.0
        for _ in range(_ROUNDS):
            made = adapted(system, theta, _APPROACH, self.rng, check, depth=_DEPTH)
            theta, size = made.draws[-1], made.step_size
            if (is_near := size >= _NEAR * inner.step_size) or size <= _GROWS * before:
                break
            before = size
        draws = made.draws[_APPROACH // 2 :]
        return start._replace(draws=draws, density=posterior.model.log_density(theta)), is_near
