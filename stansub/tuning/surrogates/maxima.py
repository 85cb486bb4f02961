"""Surrogates about all maxima of a likelihood.

A surrogate expands the likelihood about one point, and its chains do not find other modes. The log likelihoods of most
families have a single maximum in their own arguments. Others may have several, such as mixtures, or very many, such as
periodic functions of unknown frequency. Random parameters are therefore climbed from on a small random subset of the
observations, where a climb is cheap; the best ends are climbed from on a larger subset, and so on up to all
observations.

If K components can be exchanged, such as latent classes, the likelihood has K! equal maxima, and random starts lead to
some of them. An informative prior prefers one. If there are several maxima, a climb therefore starts at the mode of the
prior, too, and maxima are in the order of their likelihood times the prior where they are.

Each maximum leads to a surrogate of its own. What it holds of the posterior is estimated from its draws, so that maxima
that the priors exclude, or that lead to the same draws, do not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stansub.errors import EndedError, RunError
from stansub.mode_findings import ENOUGH_CLIMBS
from stansub.progress import Progress
from stansub.selection import Along
from stansub.target.cholesky import cholesky
from stansub.target.sparse import Quadratic, SparsePredictors
from stansub.target.split import Split, Surrogate
from stansub.tuning.surrogates import surrogate, warmup
from stansub.tuning.surrogates.mode_shares import by_share
from stansub.tuning.surrogates.ridge import Region, beyond, defined, is_maximum, ridge_mode
from stansub.tuning.surrogates.starting import find_start, highest, pinned
from stansub.tuning.surrogates.surrogate import FarError, TunedSurrogate
from stansub.types import FloatArray
from stansub.wording import percent

# Pairs of random starts of a round, at most and at least (with many arguments a climb takes longer), and their radius,
# as in CmdStan. The second of a pair has all signs changed: if labels of two components can be exchanged, one of the
# two leads to each order.
_PAIRS, _PAIRS_AT_LEAST, _MANY, _RADIUS = 32, 8, 150, 2.0
# Climbs after which no maximum is expected if none ended at one, and passes over the observations: where a likelihood
# rises without end, climbs take all their steps.
_TRIED, _PASSES = 8, 500
# Rounds until enough climbs reached the best end, at most.
_ROUNDS = 4
# Observations of the first subset, at least and for each argument in phi; those that read an argument, which hold for
# all but a quarter of the arguments: with fewer, climbs end at maxima of chance, each at its own; their growth, and the
# most of a subset, which is a copy.
_LEAST, _LEAST_EACH, _READING, _REST, _GROWTH, _LARGEST = 256, 4, 20, 0.25, 4, 1 << 19
# Ends from which the next subset is climbed, after the first one and at least.
_KEPT, _KEPT_AT_LEAST = 16, 4
# Distance in units of the curvature below which two ends are one maximum; climbs end within half a unit of it.
_SAME = 3.0
# Relative distance from the end of a climb at which the log likelihood must be as its expansion says, but for so much:
# of large numbers that cancel, such as lgamma(1e30), nothing but rounding errors remains, which may be positive and
# large.
_BESIDE, _SURE = 1e-8, 1.0
# Difference from the largest log evidence above which a maximum is not worth a surrogate, and most surrogates; and that
# up to which two maxima are of the same height, because climbs end near them.
_WORTH, _MOST, _EQUAL = 30.0, 3, 1.0
# Sd of the remainders above which a surrogate whose draws show that they are not about a mode does not count beside
# another.
_ASTRAY = 10.0
# Precision of a normal density about 0 with which the prior has a mode.
_WEAK = 0.01


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
    try:
        return _expanded(split, dim, rng, rng_of_starts, progress)
    except FarError:
        found = warmup.tune(split, dim, rng, progress, along=Along.FAR)
        if found is None:
            raise
        return found


def _expanded(
    split: Split, dim: int, rng: np.random.Generator, rng_of_starts: np.random.Generator, progress: Progress
) -> TunedSurrogate:
    """Return the same; FarError if no expansion leads to the posterior."""
    if split.predictors.family.is_known:
        return _about_single(split, dim, rng, progress)
    region = Region.of_split(split, dim, rng_of_starts)
    ends, n_starts = _search(split, dim, region, rng_of_starts, progress)
    if not ends:
        return warmup.tune(split, dim, rng, progress) or surrogate.tune(split, dim, rng, progress)
    found = list(filter(None, (about(split, dim, end.expansion, region, rng, progress) for end in ends[:_MOST])))
    if not found:
        raise FarError
    found = [one for one in found if one.noise < _ASTRAY] or [min(found, key=lambda one: one.noise)]
    return replace(by_share(split, found, rng, progress), n_starts=n_starts, n_reached=ends[0].n_climbs)


def _about_single(split: Split, dim: int, rng: np.random.Generator, progress: Progress) -> TunedSurrogate:
    """Return the surrogate about a single maximum, with a weaker ridge if the first one was too strong.

    Raises
    ------
    FarError
        If no expansion leads to the posterior.
    """
    try:
        return surrogate.tune(split, dim, rng, progress)
    except FarError as error:
        begin = error.begin and beyond(error.begin, split.predictors, progress)
        if begin is None:
            raise
    return surrogate.tune(split, dim, rng, progress, begin=begin)


def about(
    split: Split, dim: int, end: Quadratic, region: Region, rng: np.random.Generator, progress: Progress
) -> TunedSurrogate | None:
    """Return the surrogate about the end of a climb; None if it is undefined or does not lead to the posterior.

    Raises
    ------
    RunError
        If the user interrupts, or the time limit is reached.
    """
    try:
        return surrogate.tune(split, dim, rng, progress, begin=end, simplexes=region.simplexes)
    except EndedError:
        raise
    except RunError:
        return None


@dataclass(frozen=True)
class _End:
    """The end of climbs."""

    expansion: Quadratic
    log_evidence: float
    """Log of the integral of likelihood and ridge about it, up to a constant. In the spikes of a mixture about single
    observations the likelihood has no upper limit, and its integral is small.
    """
    n_climbs: int
    """Random starts from which climbs led there."""

    @classmethod
    def of(cls, expansion: Quadratic, region: Region, n_climbs: int) -> _End:
        """Return the end with the Laplace approximation of its integral."""
        value, (_, precision) = region.with_ridge(expansion.value, expansion.point), region.expansion(expansion)
        return cls(expansion, value - 0.5 * cholesky(precision).log_determinant, n_climbs)


def _search(
    split: Split, dim: int, region: Region, rng: np.random.Generator, progress: Progress
) -> tuple[list[_End], int]:
    """Return the maxima that are worth a surrogate, the best first, and the number of random starts.

    All observations are climbed from once more: from where the arguments are 0, or, if there are several maxima, from
    the mode of the prior. If no climb ends at a maximum, there are none.
    """
    predictors, prior, n_starts, ends = split.predictors, split.prior(), 0, list[_End]()
    parts = [*_subsets(predictors, rng), predictors]
    n_pairs = int(np.clip(_PAIRS * _MANY // predictors.dim, _PAIRS_AT_LEAST, _PAIRS))
    for _ in range(_ROUNDS):
        progress(_stage(parts[0], predictors))
        starts = [(phi, 1) for phi in _starts(prior, dim, n_pairs, rng)]
        n_starts += len(starts)
        ends = _climbed(parts[0], starts, region, progress, ends)
        if not ends or ends[0].n_climbs >= ENOUGH_CLIMBS:
            break
    kept = _KEPT
    for part in parts[1:]:
        progress(_stage(part, predictors))
        ends = _climbed(part, [(one.expansion.point, one.n_climbs) for one in ends[:kept]], region, progress)
        kept = max(kept // 2, _KEPT_AT_LEAST)
    if len(_worth(ends)) < 2:
        return _worth(_climbed(predictors, [(np.zeros(predictors.dim), 0)], region, progress, ends)), n_starts
    preferred = _Prior(split, find_start(prior.model, dim, rng))
    ends = _worth(_climbed(predictors, [(phi, 0) for phi in preferred.mode()], region, progress, ends))
    return preferred.weighed(ends), n_starts


def _worth(ends: Sequence[_End]) -> list[_End]:
    """Return the ends that are worth a surrogate, of some in order."""
    return [end for end in ends if end.log_evidence >= ends[0].log_evidence - _WORTH]


class _Prior(NamedTuple):
    """The prior, which may prefer one of several maxima."""

    split: Split
    start: FloatArray
    """Parameters where it is defined."""

    def mode(self) -> Iterator[FloatArray]:
        """Yield the likelihood's arguments at its mode, if they are defined."""
        prior = self.split.prior()
        if (phi := defined(prior, highest(prior.model, self.start, ridge=_WEAK))) is not None:
            yield phi

    def weighed(self, ends: Sequence[_End]) -> list[_End]:
        """Return the ends that are worth a surrogate with the prior density there, the best first.

        Climbs to maxima of the same height count for each of them.
        """
        found = list[_End]()
        for end in ends:
            equal = (other for other in ends if abs(other.log_evidence - end.log_evidence) < _EQUAL)
            n_climbs, log_evidence = sum(one.n_climbs for one in equal), end.log_evidence + self._at(end)
            found.append(replace(end, log_evidence=log_evidence, n_climbs=n_climbs))
        return _worth(sorted(found, key=lambda end: end.log_evidence, reverse=True))

    def _at(self, end: _End) -> float:
        """Return the log density of the prior at parameters that lead to the end of a climb, up to a constant."""
        density = pinned(self.split, end.expansion.point)
        return density.log_density_gradient(highest(density, self.start))[0]


def _stage(part: SparsePredictors, predictors: SparsePredictors) -> str:
    share = part.n_observations / predictors.n_observations
    return f"Looking for maxima of the likelihood: {percent(share) if share < 1 else 'all'} of the data"


def _subsets(predictors: SparsePredictors, rng: np.random.Generator) -> Iterator[SparsePredictors]:
    """Yield the likelihoods of random subsets of growing size."""
    n = predictors.n_observations
    share = min(1.0, _READING / np.quantile(_readers(predictors), _REST))
    size = max(_LEAST, _LEAST_EACH * predictors.dim, int(share * n))
    while size * _GROWTH <= n and size <= _LARGEST:
        yield predictors.part(np.sort(rng.choice(n, size, replace=False, shuffle=False)))
        size *= _GROWTH


def _readers(predictors: SparsePredictors) -> NDArray[np.int64]:
    """Return how many observations read each argument in phi that any of them reads."""
    found = np.zeros(predictors.dim, np.int64)
    for row in predictors.rows:
        own = np.sum([np.zeros_like(found), *(column.counts(predictors.dim) for column in row.columns)], axis=0)
        own[row.places] = predictors.n_observations
        found = np.maximum(found, own)
    return found[found > 0]


def _climbed(
    predictors: SparsePredictors,
    starts: Sequence[tuple[FloatArray, int]],
    region: Region,
    progress: Progress,
    known: Sequence[_End] = (),
) -> list[_End]:
    """Return the different maxima at which climbs end, with known ones, by their evidence."""
    found, n_passes = list(known), 0
    for k, (phi, n_climbs) in enumerate(starts):
        progress.advance(k, len(starts))
        end, n_more = ridge_mode(predictors, progress, phi, region=region)
        n_passes += n_more
        if end.is_finite and is_maximum(end, region) and _is_sure(predictors, end):
            found.append(_End.of(end, region, n_climbs))
        elif not found and (k + 1 >= _TRIED or n_passes >= _PASSES):
            break
    return _joined(found, region)


def _is_sure(predictors: SparsePredictors, end: Quadratic) -> bool:
    """Return whether the log likelihood at the end of a climb is more than rounding errors."""
    beside = end.point * (1 + _BESIDE)
    return abs(predictors.log_lik(beside) - end(beside)) < _SURE


def _joined(ends: Sequence[_End], region: Region) -> list[_End]:
    """Return ends with those at the same maximum joined, by their evidence."""
    found = list[_End]()
    for one in sorted(ends, key=lambda end: end.log_evidence, reverse=True):
        place = next((k for k, other in enumerate(found) if is_same(one.expansion, other.expansion, region)), None)
        if place is None:
            found.append(one)
        else:
            found[place] = replace(found[place], n_climbs=found[place].n_climbs + one.n_climbs)
    return found


def _starts(prior: Surrogate, dim: int, n_pairs: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Yield the likelihood's arguments at random parameters where they are defined."""
    for _ in range(n_pairs):
        theta = rng.uniform(-_RADIUS, _RADIUS, dim)
        yield from (phi for start in (theta, -theta) if (phi := defined(prior, start)) is not None)


def is_same(one: Quadratic, other: Quadratic, region: Region) -> bool:
    """Return whether two ends of climbs are one maximum."""
    between = one.point - other.point
    return bool(between @ (region.curvature(other) @ between) < _SAME**2)
