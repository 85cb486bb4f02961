"""Surrogates about all maxima of a likelihood.

A surrogate expands the likelihood about one point, and its chains do not find other modes. The log likelihoods of most
families have a single maximum in their own arguments. Others, such as mixtures, may have several: climbs from random
parameters end at these. Each leads to a surrogate of its own. What it holds of the posterior is estimated from its
draws, so that maxima that the priors exclude, or that lead to the same draws, do not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from stansub.errors import RunError
from stansub.progress import Progress
from stansub.target.programs import ProgramFamily
from stansub.target.sparse import Quadratic
from stansub.target.split import Split
from stansub.tuning import surrogate
from stansub.tuning.surrogate import TunedSurrogate
from stansub.tuning.surrogate_hmc import spread
from stansub.types import FloatArray

# Pairs of random starts, and their radius, as in CmdStan. The second of a pair has all signs changed: if labels of two
# components can be exchanged, one of the two leads to each order.
_PAIRS, _RADIUS = 4, 2.0
# Distance in units of the curvature below which two ends are one maximum; climbs end within half a unit of it.
_SAME = 3.0
# Difference from the highest log likelihood above which a maximum is not worth a surrogate, and most surrogates.
_WORTH, _MOST = 30.0, 3
# Draws from which what a surrogate holds of the posterior is estimated.
_WEIGHED = 40
# Distance in sds of both surrogates from which draws of two surrogates are about two modes.
_APART = 3.0
# Share of the posterior from which a mode counts.
_SHARE = 1e-3


def tune(
    split: Split, dim: int, rng: np.random.Generator, rng_of_starts: np.random.Generator, progress: Progress
) -> TunedSurrogate:
    """Return the surrogate that holds most of the posterior, with those about other modes.

    Only likelihoods of no known family are searched.

    Raises
    ------
    RunError
        If the likelihood or the surrogate is undefined at the start.
    """
    if not isinstance(split.predictors.family, ProgramFamily):
        return surrogate.tune(split, dim, rng, progress)
    progress("Looking for maxima of the likelihood")
    ends, n_starts = _ends(split, dim, rng_of_starts, progress)
    found = [surrogate.tune(split, dim, rng, progress, begin=ends[0])]
    found += filter(None, (about(split, dim, end, rng, progress) for end in ends[1:_MOST]))
    best, *others = _modes(split, found, progress) if len(found) > 1 else found
    return replace(best, others=tuple(others), n_starts=n_starts)


def about(
    split: Split, dim: int, end: Quadratic, rng: np.random.Generator, progress: Progress
) -> TunedSurrogate | None:
    """Return the surrogate about the end of a climb; None if it is undefined.

    Raises
    ------
    RunError
        If the user interrupts, or the time limit is reached.
    """
    try:
        return surrogate.tune(split, dim, rng, progress, begin=end)
    except RunError as error:
        if type(error) is not RunError:
            raise
        return None


def _modes(split: Split, found: Sequence[TunedSurrogate], progress: Progress) -> list[TunedSurrogate]:
    """Return the surrogates about different modes that hold a share of the posterior, the largest first."""
    weighed = [_Weighed.of(split, one, progress) for one in found]
    weighed.sort(key=lambda one: one.log_evidence, reverse=True)
    least, kept = weighed[0].log_evidence + np.log(_SHARE), list[TunedSurrogate]()
    for one in weighed:
        if one.log_evidence >= least and not any(overlap(one.tuned, other) for other in kept):
            kept.append(one.tuned)
    return kept


def _ends(split: Split, dim: int, rng: np.random.Generator, progress: Progress) -> tuple[list[Quadratic], int]:
    """Return the maxima that are worth a surrogate, the highest first, and the number of random starts."""
    first, _ = surrogate.ridge_mode(split.predictors, progress)
    ends, n_starts = [first] if first.is_finite else [], 0
    for start in _starts(split, dim, rng):
        n_starts += 1
        end, _ = surrogate.ridge_mode(split.predictors, progress, start)
        if end.is_finite and not any(is_same(end, other) for other in ends):
            ends.append(end)
    ends.sort(key=_height, reverse=True)
    return [end for end in ends if _height(end) >= _height(ends[0]) - _WORTH] or [first], n_starts


def _starts(split: Split, dim: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Yield the likelihood's arguments at random parameters where they are defined."""
    prior = split.prior()
    for _ in range(_PAIRS):
        theta = rng.uniform(-_RADIUS, _RADIUS, dim)
        for start in (theta, -theta):
            with suppress(RunError):
                phi = prior.phi(start)
                if np.isfinite(phi).all():
                    yield phi


def _height(end: Quadratic) -> float:
    return surrogate.with_ridge(end.value, end.point)


def is_same(one: Quadratic, other: Quadratic) -> bool:
    """Return whether two ends of climbs are one maximum."""
    between = one.point - other.point
    return bool(between @ (other.precision @ between) < _SAME**2)


def overlap(one: TunedSurrogate, other: TunedSurrogate) -> bool:
    """Return whether draws of two surrogates are about the same mode."""
    (mean, sd), (its_mean, its_sd) = ((each.draws.mean(axis=0), each.draws.std(axis=0)) for each in (one, other))
    return bool((np.abs(mean - its_mean) < _APART * (sd + its_sd)).all())


@dataclass(frozen=True)
class _Weighed:
    """A surrogate with the log of its share of the posterior, up to a constant."""

    tuned: TunedSurrogate
    log_evidence: float

    @classmethod
    def of(cls, split: Split, tuned: TunedSurrogate, progress: Progress) -> _Weighed:
        """Return a surrogate with the median of log posterior density less normal log density over its draws."""
        approximation, normal = tuned.transition.approximation, tuned.normal(split)
        density, draws = split.surrogate(approximation).model, spread(tuned.draws, _WEIGHED)
        weights = surrogate.remainders(split, approximation, draws, progress)
        weights += [density.log_density(theta) - normal.log_density(theta) for theta in draws]
        return cls(tuned, float(np.median(weights) - np.log(np.diag(normal.cholesky)).sum()))
