"""Surrogate posteriors: the program with an approximation of its likelihood, which needs no data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from stansub import memory
from stansub._loop import FullData, Slices, SurrogateEffects, SurrogateHamiltonian
from stansub.errors import EndedError, RunError
from stansub.progress import as_progress
from stansub.stan.approximation import COMPILED_WITH, as_data, full_data
from stansub.stan.data.data import Data
from stansub.stan.observations.row_program import tail_rounding
from stansub.stan.plan import PROPOSALS
from stansub.stan.proof import Whole
from stansub.stan.scales import FIXED
from stansub.stan.shares import Shares
from stansub.stan.sparse import Followed
from stansub.stan.toolchain import build
from stansub.stan.toolchain.library import Library, Model
from stansub.target.approximation import Approximation
from stansub.target.coordinates import Coordinates
from stansub.target.metric import Metric
from stansub.target.normal_effects import NormalEffects
from stansub.target.remainders import NoPredictorsError
from stansub.target.sparse import Quadratic, SparsePredictors
from stansub.target.symmetries import Symmetry
from stansub.types import Check, FloatArray

# Relative rounding by which surrogate and likelihood together may differ from the user's log density; and the same for
# the gradient.
_SAME, _SLOPE = 1e-9, 1e-6
# Relative difference of Stan's gradient up to which numerical differences decide, and their step.
_NEAR, _STEP = 1e-3, 1e-5
# Factor by which points are moved nearer to zero, and how often, so that Stan rounds no probability of an observation,
# and no bounded argument to a bound.
_NEARER, _MOST_MOVED = 0.75, 12


@dataclass(frozen=True)
class Dynamics:
    """Log density of a program on which Hamiltonian Monte Carlo moves."""

    model: Model
    likelihood: FullData | None = field(default=None, kw_only=True)
    """What the program calls, if it does."""

    def hamiltonian(
        self, centre: FloatArray, metric: Metric, coordinates: Coordinates, *, power: float = 1.0
    ) -> SurrogateHamiltonian:
        """Return Hamiltonian Monte Carlo in some coordinates, with a metric there."""
        arguments = *self._addresses, centre, *metric.compiled, coordinates.compiled()
        return SurrogateHamiltonian(*arguments, owner=(self.model, self.likelihood), power=power)

    @property
    def _addresses(self) -> tuple[int, int, int]:
        library = self.model.library
        functions = library.address("bs_log_density_gradient"), library.address("bs_free_error_msg")
        return self.model.pointer, *functions


@dataclass(frozen=True)
class Surrogate(Dynamics):
    """A surrogate posterior about a point.

    Attributes
    ----------
    model : Model
        Log density: everything but the likelihood, and the approximation. Its generated quantity is phi.
    """

    approximation: Approximation

    def of_effects(self, effects: NormalEffects) -> SurrogateEffects:
        """Return the samplers of effects and their scales."""
        return SurrogateEffects(*self._addresses, effects.compiled(), owner=self.model)

    def slices(self, coordinates: Coordinates, moves: Sequence[Symmetry]) -> Slices:
        """Return a sampler along moves of some coordinates."""
        library = self.model.library
        return Slices(
            self.model.pointer,
            library.address("bs_log_density"),
            library.address("bs_free_error_msg"),
            coordinates.compiled(),
            [one.direction for one in moves],
            [one.scaled.astype(np.int32) for one in moves],
            owner=self.model,
        )

    def phi(self, theta: FloatArray) -> FloatArray:
        """Return the likelihood's arguments, shape (m,)."""
        first = self.model.param_num()
        out = np.empty(first + len(self.approximation.point))
        return self.model.param_constrain(theta, include_gq=True, rng=self.model.rng(0), out=out)[first:]


@dataclass(frozen=True)
class Split:
    """A posterior split in two, proved: the part without data, and the likelihood in its own arguments."""

    library: Library
    values: Data
    """The data that this program needs."""
    predictors: SparsePredictors
    whole: Model | None = None
    """The program itself with all data, if this process holds them."""

    def surrogate(self, approximation: Approximation) -> Surrogate:
        """Return the surrogate with an approximation of the likelihood."""
        return self._with(approximation, fixed_scales=True)

    def _with(self, approximation: Approximation, *, fixed_scales: bool, added: bool = True) -> Surrogate:
        values = self.values.values | as_data(approximation, added=added) | {FIXED: int(fixed_scales)}
        return Surrogate(replace(self.values, values=values).model(self.library), approximation)

    def prior(self, *, fixed_scales: bool = False) -> Surrogate:
        """Return the surrogate without the likelihood."""
        m = self.predictors.dim
        nothing = Approximation.plain(Quadratic.of(np.zeros(m), 0.0, np.zeros(m), self.predictors.empty()))
        return self._with(nothing, fixed_scales=fixed_scales, added=False)

    def posterior(self) -> Dynamics | None:
        """Return the posterior itself; None if this process does not hold all data.

        Where possible, the likelihood is evaluated in its own arguments: gradients take no autodiff over the data.
        """
        likelihood = self.predictors.full_data
        if not self.predictors.family.floor:
            values = self.values.values | full_data(likelihood) | {FIXED: 1}
            return Dynamics(replace(self.values, values=values).model(self.library), likelihood=likelihood)
        return Dynamics(self.whole) if self.whole is not None else None


def split(
    followed: Followed,
    whole: Whole,
    points: Sequence[FloatArray],
    *,
    gradient: Callable[[FloatArray], FloatArray],
    name: str,
    progress: Callable[[str], None] | None = None,
) -> Split:
    """Split a posterior in two; takes a compilation.

    Raises `NoPredictorsError` if the likelihood is of no known family of predictors that are affine in its own
    arguments.

    Parameters
    ----------
    points : sequence of ndarray, shape (dim,)
        Points at which the two parts together are compared with it.
    """
    (sums, predictors), check = followed, as_progress(progress).check
    try:
        options = {"suffix": "_surrogate", "goal": PROPOSALS, **COMPILED_WITH}
        library = build.compile_library(sums.own.surrogate, name=name, progress=progress, **options)
    except EndedError:
        raise
    except RunError as error:
        raise NoPredictorsError(f"the program of the surrogate does not compile ({error})") from error
    held = whole if isinstance(whole, Model) else None
    found = Split(Library(library), sums.values.of(sums.own.declarations), predictors, held)
    try:
        return _proved(found, whole, points, gradient, check)
    except NoPredictorsError:
        if not (sums.is_cut or isinstance(whole, Shares)):
            raise
    # An observation may read rows of another part, or share.
    found = replace(found, predictors=sums.follow(as_whole=True, progress=progress))
    if not isinstance(whole, Shares):
        return _proved(found, whole, points, gradient, check)
    model = whole.undivided()
    return _proved(found, model, points, lambda at: model.log_density_gradient(at)[1], check)


def _proved(
    found: Split,
    whole: Whole,
    points: Sequence[FloatArray],
    gradient: Callable[[FloatArray], FloatArray],
    check: Check = lambda: None,
) -> Split:
    """Return the split with the likelihood's constant; NoPredictorsError unless it gives the user's log density.

    ``check`` is called before each pass over the data.
    """
    prior, constants, scales, rounded, infinite = found.prior(fixed_scales=True), [], [], [], []
    points = [_without_tails(found.predictors, prior, whole, theta, check) for theta in points]
    for theta in points:
        check()
        phi = prior.phi(theta)
        own, given = found.predictors.log_lik(phi), whole.log_density(theta)
        rest = prior.model.log_density(theta)
        constants.append(given - rest - own)
        scales.append(1 + abs(given) + abs(rest) + abs(own))
        rounded.append(2 * _rounding(found.predictors, phi, logits=True))
        infinite.append(not np.isfinite(phi).all())
    order = np.lexsort((scales, infinite))
    first = order[0]
    constant = constants[first]
    allowed = _SAME * (scales[first] + np.array(scales)) + rounded[first] + np.array(rounded)
    if not np.isfinite(constants).all() or (np.abs(np.array(constants) - constant) > allowed).any():
        raise NoPredictorsError(
            "the likelihood as a function of its own arguments, plus the rest, differs from the log density"
        )
    with ThreadPoolExecutor(max_workers=1) as pool:  # Stan's tape is as large as the data, and ends with its thread
        tamest = [pool.submit(_with_slope, gradient, points[k], check).result() for k in order[:2]]
    memory.give_back()
    for theta, given_slope in tamest:
        check()
        about = found.surrogate(Approximation.plain(found.predictors.expansion(prior.phi(theta))))
        _, slope = about.model.log_density_gradient(theta)
        if not _is_slope(whole.log_density, theta, slope, given_slope):
            raise NoPredictorsError(
                "the gradient of the likelihood as a function of its own arguments differs from that of the log density"
            )
    return replace(found, predictors=replace(found.predictors, constant=constant))


def _with_slope(
    gradient: Callable[[FloatArray], FloatArray], theta: FloatArray, check: Check
) -> tuple[FloatArray, FloatArray]:
    """Return the point, or one nearer to zero where Stan's gradient is finite, and the gradient there.

    A logistic curve `1 / (1 + exp(x))` has the gradient 0 * inf if exp(x) overflows.
    """
    for k in range(_MOST_MOVED + 1):
        check()
        nearer = _NEARER**k * theta
        slope = gradient(nearer)
        if np.isfinite(slope).all():
            break
    return nearer, slope


def _is_slope(
    log_density: Callable[[FloatArray], float], theta: FloatArray, slope: FloatArray, given: FloatArray
) -> bool:
    """Return whether a gradient is that of a log density: as Stan says, or as numerical differences do.

    Some of Stan's derivatives are approximate, such as that of `std_normal_lcdf`. The direction in which they differ
    from ours decides; in all others the two agree.
    """
    gap, size = slope - given, 1 + np.abs(given).max()
    if np.abs(gap).max() <= _SLOPE * size:
        return True
    if not np.abs(gap).max() <= _NEAR * size:
        return False
    direction = gap / np.linalg.norm(gap)
    above, below = (log_density(theta + step * direction) for step in (_STEP, -_STEP))
    return bool(abs(slope @ direction - (above - below) / (2 * _STEP)) <= _SLOPE * size)


def _without_tails(
    predictors: SparsePredictors, prior: Surrogate, whole: Whole, theta: FloatArray, check: Check
) -> FloatArray:
    """Return the point, or one nearer to zero where no probability or bounded argument is rounded to its bound."""
    for k in range(_MOST_MOVED + 1):
        check()
        nearer = _NEARER**k * theta
        phi = prior.phi(nearer)
        is_finite = np.isfinite(phi).all() and (k == 0 or np.isfinite(whole.log_density(nearer)))
        if is_finite and _rounding(predictors, phi) <= 0.1 * _SAME * (1 + abs(predictors.log_lik(phi))):
            return nearer
    return theta


def _rounding(predictors: SparsePredictors, phi: FloatArray, *, logits: bool = False) -> float:
    """Return the sum of the rounding errors of Stan's log likelihoods of observations, as `tail_rounding` does."""

    def of(part: SparsePredictors, _: slice) -> float:
        rounding = tail_rounding(part.family, logits=logits)
        return 0.0 if rounding is None else float(rounding(part.family.log_lik(part.at(phi))).sum())

    return 0.0 if tail_rounding(predictors.family, logits=logits) is None else sum(predictors.each(of))
