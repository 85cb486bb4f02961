"""Metropolis within Gibbs for effects of groupings: all levels of a grouping move at once, each accepted on its own.

Given everything else, the levels of a grouping (`stansub.target.levels`) are independent if the rest of the log
density, G, has no terms of two of them. If they are also normal under G, its gradients at both ends of a move determine
how much each level changes G. With P the precision of a level under G and H the curvature of its log likelihood, fixed
at set-up, its coefficients x (in the coordinates of `stansub.target.invariants`) move to

    x' ~ N(x + h M g(x), c M),    M = (H + P)^-1,

where g is the gradient of the whole log density in x. The move is accepted with its own Metropolis-Hastings ratio,

    log p(x') - log p(x) - h (e . (g(x) + g(x')) - h (g(x) . M g(x) - g(x') . M g(x')) / 2) / c,    e = x' - x.

M depends on other coordinates but not on x. If the level is normal given the rest with precision H + P and mean m, x'
has the mean m - (h - 1) (x - m): with h = 1 it is independent of x, with h > 1 on the other side of m. c is larger than
h (2 - h), which would leave the normal distribution invariant without rejections, so that levels do not stick in tails.
The likelihood is evaluated once for each grouping, with gradients in its arguments, at the new values of all levels.
The values and gradients at the next state are those at one of the two ends, by level.

Coordinates that the likelihood does not read, and moves that change no log likelihood (`stansub.target.symmetries`),
take a slice each under G alone (for groups of transformations see Liu and Sabatti 2000). ``docs/decisions/21`` has the
proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stansub.errors import RunError
from stansub.kernels.base import Info, Kernel, Stat, State
from stansub.kernels.direct import DIRECT_STATS, MOVED, DirectKernel
from stansub.kernels.metropolis import DECISIONS
from stansub.kernels.recipes import Context, NotAdapted
from stansub.target.affine import AffinePosterior
from stansub.target.coordinates import Coordinates
from stansub.target.inner_density import InnerDensity
from stansub.target.invariants import Invariants
from stansub.target.levels import Grouping, LevelPasses, groupings
from stansub.target.split import Split
from stansub.target.symmetries import Equivalence, Symmetry
from stansub.types import FloatArray

LEVELS_ACCEPTED = Stat("levels_accepted", float, "Share of the levels whose moves were accepted.", "n_accepted")

# c is larger than h (2 - h), with which normal levels would always move, by a factor of 1 and this over the root of a
# level's size. For levels that a step visits twice, h = 1. In plain coordinates, the smallest ESS per step for 60,000
# answers to 200 items was 0.004 with c = 1, because the moves of one item were hardly ever accepted, 0.34 with 1.3 and
# 0.50 with 1.6. Levels visited once move past their mean, so draws are negatively correlated.
_PAST, _WIDER, _PLAIN = 1.3, 0.4, 0.85
# Relative difference up to which G must change by the sum over levels.
_SAME = 1e-7


def conditional_precision(density: InnerDensity, grouping: Grouping, x: FloatArray, gradient: FloatArray) -> FloatArray:
    """Return minus the Hessian of G in the coefficients of each level, shape (n_levels, size, size).

    Besides the gradient of G at ``x``, one more for each coefficient of a level determines it if levels are independent
    under G. Gradients of normal densities are linear, so the step of the differences may be long.
    """
    own = gradient[grouping.places]
    columns = []
    for places in grouping.places.T:
        moved = x.copy()
        moved[places] += 1
        columns.append(own - density.log_density_gradient(moved)[1][grouping.places])
    return np.stack(columns, axis=-1)


@dataclass(frozen=True)
class GradientMove:
    """Moves x' ~ N(x + h M g(x), c M) of levels."""

    metric: FloatArray
    """Shape (n_levels, size, size): M of each level."""
    length: float
    """h."""
    spread: float
    """c."""

    @classmethod
    def of(cls, metric: FloatArray, *, once: bool, wider: float = _WIDER) -> GradientMove:
        """Return the moves of levels that a step visits once or twice."""
        length = _PAST if once else 1.0
        return cls(metric, length, float(length * (2 - length) * (1 + wider / np.sqrt(metric.shape[1]))))

    def steps(self, slopes: FloatArray, noise: FloatArray) -> FloatArray:
        """Return x' - x from gradients and standard normals, shape (n_levels, size) each."""
        root = np.asarray(np.linalg.cholesky(self.metric), np.float64)
        return self.length * _times(self.metric, slopes) + float(np.sqrt(self.spread)) * _times(root, noise)

    def log_ratio(
        self, change: FloatArray, steps: FloatArray, slopes: FloatArray, new_slopes: FloatArray
    ) -> FloatArray:
        """Return log Metropolis-Hastings ratios from the changes of the log density, shape (n_levels,)."""
        squares = np.sum(slopes * _times(self.metric, slopes) - new_slopes * _times(self.metric, new_slopes), axis=1)
        forward = np.sum(steps * (slopes + new_slopes), axis=1)
        return np.asarray(change - (forward - 0.5 * self.length * squares) * (self.length / self.spread))


class WithinGibbs(DirectKernel):
    """Kernel of Metropolis within Gibbs for levels; nothing is adapted."""

    # A step counts as one decision, from all observations.
    stats = (*(one for one in DIRECT_STATS if one is not DECISIONS), LEVELS_ACCEPTED)

    def __init__(self, posterior: AffinePosterior, setup: MetropolisWithinGibbs) -> None:
        super().__init__(posterior.prior.dim)
        self._density, self._setup = posterior.prior, setup
        self._groupings = groupings(posterior.predictors)
        self._passes = LevelPasses(posterior.predictors, self._groupings)
        self._invariants = [Invariants.of(one, setup.slices) for one in self._groupings]
        self._coordinates, self._slices = setup.coordinates, posterior.slices(setup.slices)
        # Observations are evaluated at coordinates with the same log likelihood as those of `_position`.
        self._position, self._evaluated = np.empty(0), np.zeros(self.dim)
        self._equivalence = Equivalence.none(self.dim)
        self._halves = tuple(half for half in (setup.order, setup.order[-2::-1]) if half)

    def step(self, rng: np.random.Generator, state: State, params: Any, *, audit: bool = False) -> tuple[State, Info]:
        """Move the levels of all groupings, forth and back, and before each half along slices without data."""
        x = self._coordinates.inward(state.position)
        if not np.array_equal(state.position, self._position):
            self.place(x)
        accepted = proposed = 0
        for half in self._halves:
            x, _ = self.without_data(rng, x)
            for which in half:
                x, n = self.move(rng, which, x)
                accepted += n
                proposed += len(self._groupings[which].places)
        info: Info = {
            **MOVED,
            "n_obs_used": self._passes.n_observations,
            LEVELS_ACCEPTED.name: accepted / proposed,
        }
        self._position = self._density.outward(x)
        return State(self._position), info

    def save(self) -> Any:
        """Return the observations evaluated, and after a step the coordinates at which they were evaluated last."""
        kept = {"evaluated": self._evaluated.copy(), **vars(self._equivalence)} if self._position.size else None
        return {"n_evaluated": super().save(), "kept": kept}

    def restore(self, state: State, saved: Any) -> None:
        """Restore the count, and evaluate the observations again as they were."""
        if saved["kept"] is not None:
            kept = dict(saved["kept"])
            self.place(kept.pop("evaluated"))
            self._position, self._equivalence = state.position, Equivalence(**kept)
        super().restore(state, saved["n_evaluated"])

    def place(self, x: FloatArray) -> None:
        """Evaluate the observations at coordinates, from which levels then move."""
        self.n_evaluated += self._passes.n_observations
        self._passes.place(x)
        self._evaluated, self._equivalence = x.copy(), Equivalence.none(len(x))

    def without_data(self, rng: np.random.Generator, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return coordinates after a slice along each move that changes no log likelihood, and its lengths."""
        x, same, lengths = x.copy(), self._equivalence.copy(), np.empty(len(self._setup.slices))
        self._slices(rng.bit_generator.capsule, x, same.scale, same.shift, self._setup.widths, lengths)
        self._equivalence = same
        if same.is_far(x):
            self.place(x)
        return x, np.abs(lengths)

    def move(self, rng: np.random.Generator, which: int, x: FloatArray) -> tuple[FloatArray, int]:
        """Return the coordinates after moves of the levels of a grouping, and how many were accepted."""
        places, same, inner = self._groupings[which].places, self._equivalence, self._invariants[which]
        at, scale = x[places], same.scale[places]
        value, gradient = self._prior(x)
        own = gradient[places]
        made = self._moves(which, x, gradient)
        slopes = inner.slopes(at, own + self._passes.slopes(which) / scale)
        steps = made.steps(slopes, rng.standard_normal(slopes.shape))
        to = inner.outward(inner.inward(at) + steps)
        proposed, evaluated = x.copy(), self._evaluated.copy()
        proposed[places] = to
        evaluated[places] = same.back(proposed, places)
        self.n_evaluated += self._passes.n_observations
        change, new_slopes = self._passes.propose(evaluated, which)
        new_value, new_gradient = self._prior(proposed)
        new_own = new_gradient[places]
        with np.errstate(invalid="ignore"):
            new_slopes = inner.slopes(to, new_own + new_slopes / scale)
            change += _changes(own, new_own, to - at, new_value - value)
            change += inner.log_jacobian(to) - inner.log_jacobian(at)
            accepted = np.log1p(-rng.random(len(change))) < made.log_ratio(change, steps, slopes, new_slopes)
        self._passes.settle(which, accepted)
        moved, taken = x.copy(), places[accepted]
        moved[taken], self._evaluated[taken] = proposed[taken], evaluated[taken]
        return moved, int(accepted.sum())

    def _prior(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Return G, minus infinity where undefined, and its gradient, shape (dim,)."""
        try:
            return self._density.log_density_gradient(x)
        except RunError:
            return -np.inf, np.zeros(self.dim)

    def _moves(self, which: int, x: FloatArray, gradient: FloatArray) -> GradientMove:
        """Return moves with M of each level; that of common coefficients, whose prior need not be normal, is fixed."""
        grouping, inner, curvature = self._groupings[which], self._invariants[which], self._setup.curvatures[which]
        if not grouping.is_common:
            precision = conditional_precision(self._density, grouping, x, gradient)
            curvature = curvature + inner.precision(self._setup.centres[which], precision)
        once = which == self._setup.order[-1]
        plain = not once and not len(inner.scaled)
        return GradientMove.of(np.asarray(np.linalg.inv(curvature)), once=once, wider=_PLAIN if plain else _WIDER)


def _changes(own: FloatArray, new_own: FloatArray, steps: FloatArray, total: float) -> FloatArray:
    """Return the change of G for each level, from the gradients at both ends, which are exact if levels are normal.

    Raises
    ------
    RunError
        If the sum is not the change of G.
    """
    if len(steps) == 1:
        return np.array([total])
    each = np.asarray(0.5 * np.sum(steps * (own + new_own), axis=1), np.float64)
    if not abs(each.sum() - total) <= _SAME * (1 + np.abs(each).sum()):
        raise RunError(
            "effects are not normal and independent given the other parameters, although they were at set-up; use "
            "another proposal"
        )
    return each


def _times(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return the product of a matrix and a vector for each level."""
    return np.asarray(np.einsum("lij,lj->li", matrices, vectors), np.float64)


@dataclass(frozen=True)
class MetropolisWithinGibbs(NotAdapted):
    """Metropolis within Gibbs for levels as set up for a run."""

    name: ClassVar[str] = "gibbs"
    starts_from: ClassVar[str] = "draws of the set-up"

    coordinates: Coordinates
    """Coordinates in which the likelihood reads an affine function."""
    curvatures: tuple[FloatArray, ...]
    """Each of shape (n_levels, size, size): H of each grouping; of common coefficients with the prior's precision. In
    `Invariants`.
    """
    centres: tuple[FloatArray, ...]
    """Each of shape (n_levels, size): coefficients at which P is transformed to these coordinates."""
    order: tuple[int, ...]
    """Order in which a step visits the groupings, forth and back."""
    slices: tuple[Symmetry, ...]
    """Moves that change no log likelihood; each takes a slice."""
    widths: FloatArray
    """First widths of the slices."""

    def bind(self, context: Context) -> Kernel:
        """Return the kernel of one chain."""
        return self.kernel(context.split)

    def kernel(self, split: Split) -> Kernel:
        """Return the kernel of one chain on a posterior."""
        return WithinGibbs(AffinePosterior.of(split, self.coordinates), self)
