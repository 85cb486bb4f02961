"""Setup of Metropolis within Gibbs: groupings, curvatures of the log likelihood, and widths of slices.

Curvatures are means over the last draws of short runs, which begin at the mode of the likelihood with a weak ridge,
moved along everything that changes no log likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stansub import memory
from stansub.kernels.within_gibbs import MetropolisWithinGibbs, WithinGibbs, conditional_precision
from stansub.progress import Progress
from stansub.selection import LevelsSettled
from stansub.target.affine import AffinePosterior
from stansub.target.inner_density import InnerDensity
from stansub.target.invariants import Invariants
from stansub.target.levels import Grouping, groupings
from stansub.target.remainders import NoPredictorsError
from stansub.target.split import Split
from stansub.target.symmetries import Symmetry, symmetries
from stansub.tuning.effects.coordinates import find_effects
from stansub.tuning.surrogates.normal import NormalApproximation, of_draws
from stansub.tuning.surrogates.ridge import ridge_mode
from stansub.tuning.surrogates.sampler_runs import spread
from stansub.tuning.surrogates.signs import Mirror, proved
from stansub.tuning.surrogates.starting import find_start
from stansub.types import FloatArray

# Rounds, sweeps of each, and draws over which curvatures are averaged, far apart in the second half of a round. With 5
# draws in a row, the moves of the worst of 200 items were accepted in 20 % of the steps; with 10, in 60 %.
_ROUNDS, _SWEEPS, _POINTS = 3, 40, 10
# Slices before the first round, and their first width.
_SLICES, _WIDTH = 30, 0.5
# Points at which conditional distributions are proved to be normal, and the relative rounding of gradients.
_PROVED, _SAME = 2, 1e-8
# How far from a saddle the search for a mode begins again.
_ASIDE = 0.1
# Smallest curvature in any direction, as a share of the diagonal's.
_LEAST = 1e-3


@dataclass(frozen=True)
class TunedWithinGibbs:
    """Setup of Metropolis within Gibbs."""

    transition: MetropolisWithinGibbs
    draws: FloatArray
    """Shape (n, dim): last draws of the set-up, from which chains start."""
    n_levels: tuple[int, ...]
    """Levels of each grouping."""
    accepted: tuple[float, ...]
    """Share of the moves of its levels that were accepted at the end."""
    n_passes: int
    mirrored: FloatArray
    """Shape (n, dim) or (0, dim): the draws with signs changed together so that the posterior stays unchanged, if there
    are such signs: chains at the draws would not show this mode.
    """

    def choice(self, *, asked: bool, hardly_moves: bool) -> LevelsSettled:
        """Return the choice for the record."""
        n_slices = len(self.transition.slices)
        return LevelsSettled(asked, self.n_levels, self.accepted, n_slices, self.n_passes, hardly_moves)

    def normal(self, split: Split) -> NormalApproximation:
        """Return a normal approximation of the posterior."""
        return of_draws(split, self.draws)

    def starts(self, n: int) -> tuple[FloatArray, ...]:
        """Return draws, far apart in their order; every second one with changed signs, if there are any."""
        found = spread(self.draws, n)
        if len(self.mirrored):
            found[1::2] = spread(self.mirrored, n)[1::2]
        return tuple(found)


def tune(split: Split, dim: int, rng: np.random.Generator, progress: Progress) -> TunedWithinGibbs:
    """Find groupings and what their moves need.

    Raises
    ------
    NoPredictorsError
        If the likelihood is not affine in effects that are normal and independent given the rest.
    RunError
        If the posterior is undefined at the start.
    """
    progress("Finding groupings of effects")
    prior = split.prior()
    start = find_start(prior.model, dim, rng)
    coordinates = find_effects(prior.phi, start, rng.spawn(1)[0], progress.check).full
    posterior = AffinePosterior.of(split, coordinates)
    start = coordinates.inward(start)
    levels = groupings(posterior.predictors)
    _prove(posterior, levels, start, rng)
    progress("Finding the mode of the likelihood")
    mode, n_passes = ridge_mode(posterior.predictors, progress)
    if any((mode.point[one.places] == 0).all(axis=0).any() for one in levels):
        # A saddle where the slope is 0, such as that where all discriminations and abilities are 0.
        mode, more = ridge_mode(posterior.predictors, progress, _ASIDE * rng.spawn(1)[0].standard_normal(dim))
        n_passes += more
    read = _read(levels, dim)
    progress("Finding moves that change no log likelihood")
    slices = (*_of_coordinates(~read), *symmetries(posterior.predictors, rng))
    setup = MetropolisWithinGibbs(coordinates, (), (), (), slices, np.full(len(slices), _WIDTH))
    x = _loosened(WithinGibbs(posterior, setup), rng, np.where(read, mode.point, start))
    setup = replace(_with_curvatures(setup, posterior, levels, [x]), order=tuple(range(len(levels))))
    progress("Tuning moves of effects")
    for k in range(_ROUNDS):
        progress.advance(k, _ROUNDS)
        made = _round(posterior, levels, setup, x, rng, progress)
        x, setup, n_passes = made.draws[-1], made.setup, n_passes + made.n_passes
    memory.give_back()
    draws, mirrored = (
        np.array([posterior.prior.outward(x) for x in own]).reshape(-1, dim)
        for own in (made.draws, _mirrored(posterior, levels, np.array(made.draws)))
    )
    n_levels = tuple(len(one.places) for one in levels)
    return TunedWithinGibbs(setup, draws, n_levels, tuple(made.accepted), n_passes, mirrored)


def begun(
    split: Split,
    transition: MetropolisWithinGibbs,
    given: Sequence[FloatArray],
    rng: np.random.Generator,
    progress: Progress,
) -> tuple[tuple[FloatArray, ...], tuple[int, ...]]:
    """Return where chains begin that should start at given values, and the indices of those that begin elsewhere.

    All begin at the maximum of the likelihood to which a climb leads: elsewhere, levels would reject moves that suit a
    posterior.
    """
    coordinates = transition.coordinates
    posterior = AffinePosterior.of(split, coordinates)
    read = _read(groupings(posterior.predictors), len(given[0]))
    starts, kernel = [], WithinGibbs(posterior, transition)
    for theta in given:
        progress("Approaching the posterior from the inits")
        x = coordinates.inward(theta)
        mode, _ = ridge_mode(posterior.predictors, progress, x)
        x = _loosened(kernel, rng, np.where(read, mode.point, x))
        starts.append(posterior.prior.outward(x))
    return tuple(starts), tuple(range(len(starts)))


def _loosened(kernel: WithinGibbs, rng: np.random.Generator, x: FloatArray) -> FloatArray:
    """Return a point after moves along everything that changes no log likelihood."""
    for _ in range(_SLICES):
        x, _ = kernel.without_data(rng, x)
    return x


def _mirrored(posterior: AffinePosterior, levels: Sequence[Grouping], draws: FloatArray) -> FloatArray:
    """Return draws with signs changed that leave the posterior unchanged; none if there are no such signs.

    Two or three coefficients of levels change their signs together, such as discriminations and abilities, or these and
    difficulties. Log likelihoods of all observations show that it is so.
    """

    def log_liks(x: FloatArray) -> FloatArray:
        return np.concatenate(posterior.predictors.each(lambda part, _: part.family.log_lik(part.at(x))))

    single = [Mirror((), places) for one in levels if not one.is_common for places in one.places.T]
    together = (Mirror.of(some) for k in (2, 3) for some in combinations(single, k))
    mirrors = proved(together, (posterior.prior.log_density, log_liks), draws[:_PROVED])
    return Mirror.of(mirrors)(draws) if mirrors else draws[:0]


def _read(levels: Sequence[Grouping], dim: int) -> NDArray[np.bool_]:
    """Return which coordinates the likelihood reads."""
    read = np.zeros(dim, bool)
    for one in levels:
        read[one.places] = True
    return read


def _prove(posterior: AffinePosterior, levels: Sequence[Grouping], start: FloatArray, rng: np.random.Generator) -> None:
    """Raise NoPredictorsError unless arguments are affine and effects normal and independent, at random points."""
    for _ in range(_PROVED):
        x = start + rng.uniform(-0.5, 0.5, len(start))
        if not posterior.phi.error(x) <= _SAME:
            raise NoPredictorsError("arguments of the likelihood are not affine in effects or other coefficients")
        for one in levels:
            if not one.is_common and not _is_normal(posterior.prior, one, x, rng):
                raise NoPredictorsError("effects are not normal, or not independent, given the other parameters")


def _is_normal(density: InnerDensity, grouping: Grouping, x: FloatArray, rng: np.random.Generator) -> bool:
    """Return whether the gradient changes along a random direction as the precisions of the levels say."""
    step, moved = rng.standard_normal(grouping.places.shape), x.copy()
    moved[grouping.places] += step
    here, there = (density.log_density_gradient(at)[1] for at in (x, moved))
    expected = (conditional_precision(density, grouping, x, here) @ step[:, :, np.newaxis])[:, :, 0]
    error = np.abs((here - there)[grouping.places] - expected).max()
    return bool(error <= _SAME * (1 + np.abs(expected).max()))


def _of_coordinates(which: NDArray[np.bool_]) -> list[Symmetry]:
    """Return moves of single coordinates."""
    none = np.empty(0, np.int64)
    return [Symmetry((np.arange(len(which)) == place).astype(float), none) for place in np.flatnonzero(which)]


class _Round(NamedTuple):
    """Setup after a round, its last draws, and the share of the moves of each grouping's levels accepted."""

    setup: MetropolisWithinGibbs
    draws: list[FloatArray]
    accepted: FloatArray
    n_passes: int


def _round(
    posterior: AffinePosterior,
    levels: Sequence[Grouping],
    setup: MetropolisWithinGibbs,
    x: FloatArray,
    rng: np.random.Generator,
    progress: Progress,
) -> _Round:
    kernel = WithinGibbs(posterior, setup)
    accepted, lengths, draws = np.zeros(len(levels)), np.zeros(len(setup.slices)), []
    kernel.place(x)
    for _ in range(_SWEEPS):
        progress.check()
        x, moved = kernel.without_data(rng, x)
        lengths += moved / _SWEEPS
        for which in setup.order:
            x, n = kernel.move(rng, which, x)
            accepted[which] += n / (_SWEEPS * len(levels[which].places))
        draws.append(x)
    setup = replace(
        _with_curvatures(setup, posterior, levels, list(spread(np.array(draws[_SWEEPS // 2 :]), _POINTS))),
        order=tuple(np.argsort(accepted, kind="stable").tolist()),
        widths=1.5 * lengths,
    )
    n_passes = kernel.n_evaluated // posterior.predictors.n_observations + _POINTS
    return _Round(setup, draws, accepted, n_passes)


def _with_curvatures(
    setup: MetropolisWithinGibbs, posterior: AffinePosterior, levels: Sequence[Grouping], points: Sequence[FloatArray]
) -> MetropolisWithinGibbs:
    """Return the setup with mean curvatures of the log likelihood, made definite; of common ones with the prior's."""
    precisions = [one.precision for one in posterior.predictors.expansions(points)]
    found, centres = [], []
    for one in levels:
        inner, blocks = Invariants.of(one, setup.slices), [one.blocks(precision) for precision in precisions]
        at = [x[one.places] for x in points]
        curvature = np.mean([inner.precision(*each) for each in zip(at, blocks, strict=True)], axis=0)
        if one.is_common:
            gradients = (posterior.prior.log_density_gradient(x)[1] for x in points)
            own = [conditional_precision(posterior.prior, one, *each) for each in zip(points, gradients, strict=True)]
            curvature += np.mean(own, axis=0)
        found.append(_definite(curvature))
        centres.append(np.mean(at, axis=0))
    return replace(setup, curvatures=tuple(found), centres=tuple(centres))


def _definite(matrices: FloatArray) -> FloatArray:
    """Return symmetric matrices with eigenvalues raised to the least share of their diagonals."""
    scales = np.sqrt(np.maximum(np.abs(np.diagonal(matrices, axis1=1, axis2=2)), np.finfo(float).tiny))
    outer = scales[:, :, np.newaxis] * scales[:, np.newaxis, :]
    values, vectors = np.linalg.eigh(matrices / outer)
    raised = np.maximum(values, _LEAST)[:, np.newaxis, :]
    return np.asarray((vectors * raised) @ np.swapaxes(vectors, 1, 2) * outer)
