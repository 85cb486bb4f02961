"""The mode of the log density on the unconstrained space, and the Laplace approximation there.

Tall data let nearly all of the way be walked on a share of them: L-BFGS on a random percent of the blocks, then Newton
steps on a tenth and on all of them, whose curvature comes from the share before (Newton steps with the Hessian of a
random subset converge linearly, by a factor of about sqrt(dim / observations in the subset) a step: Roosta-Khorasani
and Mahoney 2019, Mathematical Programming 174). The Hessian of all the data is taken once, at the mode.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import optimize

from stansub.errors import RunError
from stansub.model.gradients import Objective, Team, default_steps, scaled_steps
from stansub.model.posterior import Population
from stansub.program.library import FloatArray, Model

Progress = Callable[[str], None]

# Distance to the mode, in sds of the Laplace approximation, at which it counts as found: on all data and on a share.
TOLERANCE = 1e-6
_SHARE_TOLERANCE = 1e-2

# Points nearer to each other than this many sds are one mode.
_SAME = 0.1

# Shares of the data, and observations that the first of them must have: in all and a parameter.
_SHARES = (0.01, 0.1)
_LEAST, _LEAST_EACH = 2000, 100

# Movement from a start, in units of 1 + its distance from 0, that is taken for running off.
_FAR = 15.0

_MAX_TRIES = 100
_MAX_LBFGS = 1000
_MAX_NEWTON = 60
_MAX_HALVINGS = 60

# A curvature below this, relative to those of the single parameters, is lost in the differences of gradients.
_SINGULAR = 1e-10
_SADDLE = 1e-6
# One sd from the mode along an axis of the Laplace approximation the log density should be lower by 1/2: both ways
# together it must fall by no less and no more than this, and wide axes (in units of 1 + the distance from 0) on either
# side by more than hardly.
_FALL = (0.1, 10.0)
_WIDE, _FLAT = 5.0, 0.02


class NoModeError(RunError):
    """There is no mode at which control variates could be anchored; the message says why and what to do.

    Attributes
    ----------
    reason : {"undefined", "unbounded", "boundary", "singular", "saddle", "rough", "iterations"}
    parameters : tuple of str
        The unconstrained parameters at fault, as far as known.
    """

    def __init__(self, message: str, reason: str, parameters: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.parameters = tuple(parameters)


class Target(Protocol):
    """What is needed of a `stansub.model.posterior.Posterior`."""

    @property
    def full(self) -> Model: ...

    @property
    def population(self) -> Population: ...


@dataclass(frozen=True)
class Start:
    """What came of one start.

    Attributes
    ----------
    position : ndarray, shape (dim,)
        Where it began.
    log_density : float
        What it reached on all the data; nan where it failed.
    n_iterations : int
        Of L-BFGS and Newton, on shares and on all of the data.
    outcome : str
        "mode 1" (the highest), "mode 2", ..., or why it failed.
    """

    position: FloatArray
    log_density: float
    n_iterations: int
    outcome: str


@dataclass(frozen=True)
class Mode:
    """A maximum of the log density, Jacobian terms included, and the normal approximation there.

    Attributes
    ----------
    position : ndarray, shape (dim,)
        On the unconstrained space.
    log_density : float
    gradient_norm : float
        Euclidean norm of the gradient.
    distance : float
        Newton decrement sqrt(g' (-H)^-1 g): distance to the maximum in sds of the Laplace approximation.
    hessian : ndarray, shape (dim, dim)
        Of the log density, global part included.
    cholesky : ndarray, shape (dim, dim)
        Lower triangular, of the covariance (-hessian)^-1.
    history : tuple of Start
        One a start.
    others : tuple of (ndarray, float)
        Positions and log densities of lower maxima at which other starts ended, the highest first.
    n_passes : float
        Gradient evaluations, in passes over all the data.
    seconds : float
    """

    position: FloatArray
    log_density: float
    gradient_norm: float
    distance: float
    hessian: FloatArray
    cholesky: FloatArray
    history: tuple[Start, ...]
    others: tuple[tuple[FloatArray, float], ...]
    n_passes: float
    seconds: float

    @property
    def dim(self) -> int:
        """Number of unconstrained parameters."""
        return len(self.position)

    @property
    def covariance(self) -> FloatArray:
        """Of the Laplace approximation, shape (dim, dim)."""
        covariance: FloatArray = self.cholesky @ self.cholesky.T
        return covariance

    @property
    def steps(self) -> FloatArray:
        """Steps at which gradients differenced at the mode lose least, shape (dim,)."""
        return scaled_steps(self.position, self.hessian)

    def summary(self) -> str:
        """One line: what was found, and what it took."""
        found = sum(one.outcome == "mode 1" for one in self.history)
        text = f"mode with log density {self.log_density:,.2f}, reached by {found} of {len(self.history)} starts"
        if self.others:
            lower = ", ".join(f"{self.log_density - value:.1f}" for _, value in self.others)
            text += f" ({len(self.others)} more, lower by {lower})"
        return f"{text}; {self.n_passes:.1f} passes over the data in {self.seconds:.1f} s"


@dataclass
class _Walk:
    """A start on its way to a mode.

    ``hessian`` is that of some share at some point on the way, ``distance`` is measured by it; ``joined`` is the walk
    that got to the same place.
    """

    start: FloatArray
    position: FloatArray
    value: float = float("nan")
    distance: float = float("inf")
    hessian: FloatArray | None = None
    n_iterations: int = 0
    failure: NoModeError | None = None
    joined: _Walk | None = None

    @property
    def end(self) -> _Walk:
        """The walk that was followed to the end in its place."""
        return self if self.joined is None else self.joined.end


def find_mode(
    posterior: Target,
    rng: np.random.Generator,
    *,
    starts: int = 3,
    inits: float | Sequence[FloatArray] = 2.0,
    threads: int = 1,
    progress: Progress | None = None,
) -> Mode:
    """Find the mode of a posterior from several starts.

    Parameters
    ----------
    posterior : Posterior
    rng : Generator
        Draws starts and shares of the data.
    starts : int
        Number of random starts.
    inits : float or sequence of ndarray, shape (dim,)
        Radius of the uniform distribution of the starts on the unconstrained space, or the starts themselves.
    threads : int
    progress : callable, optional
        Called with a line of text before something slow is done.

    Raises
    ------
    NoModeError
        Where the log density is undefined, no start converges, or what was reached is no maximum with a normal
        approximation.
    """
    with Team(posterior.population, threads=threads) as team:
        search = _Search(posterior, team, rng, progress or (lambda message: None))
        walks = search.walk(search.starts(starts, inits))
        return search.finish(walks)


class _Search:
    def __init__(self, posterior: Target, team: Team, rng: np.random.Generator, say: Progress) -> None:
        self.began = time.perf_counter()
        self.team = team
        self.rng = rng
        self.say = say
        self.names = [_indexed(name) for name in posterior.full.param_unc_names()]
        blocks = posterior.population.blocks
        order = rng.permutation(len(blocks)).astype(np.int32)
        least = -(-max(_LEAST, _LEAST_EACH * posterior.population.dim) // blocks.size)
        sizes = sorted({max(round(share * len(blocks)), least) for share in _SHARES})
        # Blocks are evaluated in the order in which they lie in memory; a share of nearly all would save nothing.
        self.shares = [Objective(team, np.sort(order[:size])) for size in sizes if 3 * size < len(blocks)]
        self.whole = Objective(team)

    def starts(self, n: int, inits: float | Sequence[FloatArray]) -> list[FloatArray]:
        """The points given, or random ones with a finite log density."""
        if not isinstance(inits, int | float):
            return [np.array(point, dtype=float) for point in inits]
        first = [*self.shares, self.whole][0]
        points: list[FloatArray] = []
        for attempt in range(_MAX_TRIES * n):
            # The box shrinks while nothing is found.
            theta = self.rng.uniform(-inits, inits, first.dim) * 0.5 ** (attempt // (20 * n))
            if np.isfinite(first(theta)[0]):
                points.append(theta)
            if len(points) == n:
                break
        if not points:
            raise NoModeError(
                "no mode: the log density or its gradient is not finite at any starting value tried; give inits "
                "nearer to plausible values",
                "undefined",
            )
        return points

    def walk(self, points: list[FloatArray]) -> list[_Walk]:
        """Climb from each point on growing shares of the data; those that meet go on together."""
        walks = [_Walk(point, point) for point in points]
        for objective in [*self.shares, self.whole]:
            whole = objective is self.whole
            going = [walk for walk in walks if walk.joined is None]
            share = "all the data" if whole else f"{100 / objective.weight:.2g} % of the data"
            self.say(f"Looking for the mode on {share} from {len(going)} {'point' if len(going) == 1 else 'points'}")
            arrived: list[_Walk] = []
            for walk in going:
                # What fails on a share of the data may go well on all.
                walk.failure = None
                self._climb(objective, walk, TOLERANCE if whole else _SHARE_TOLERANCE, arrived)
                walk.joined = _same(walk, arrived)
                if walk.failure is None and walk.joined is None:
                    arrived.append(walk)
        return walks

    def finish(self, walks: list[_Walk]) -> Mode:
        """The highest of the points reached, if it is a maximum with a normal approximation."""
        modes = sorted(
            (walk for walk in walks if walk.joined is None and walk.failure is None), key=lambda one: -one.value
        )
        if not modes:
            raise next(walk.failure for walk in walks if walk.failure is not None)
        best = modes[0]
        self.say(f"Curvature at the mode: {2 * self.whole.dim} gradients of all the data")
        assert best.hessian is not None
        best.hessian = self.whole.hessian(best.position, scaled_steps(best.position, best.hessian))
        self._check_curvature(best)
        # With the curvature of all the data at hand another step is nearly free, and lands within rounding.
        self._newton(self.whole, best, TOLERANCE)
        self._check_axes(best)
        _, gradient = self.whole(best.position)
        scales, values, vectors = _spectrum(best.hessian)
        cholesky = scales[:, np.newaxis] * np.linalg.cholesky((vectors / values) @ vectors.T)
        places = {id(walk): f"mode {k}" for k, walk in enumerate(modes, start=1)}
        history = tuple(
            Start(walk.start, float("nan"), walk.n_iterations, str(walk.end.failure))
            if walk.end.failure
            else Start(walk.start, walk.end.value, walk.n_iterations, places[id(walk.end)])
            for walk in walks
        )
        return Mode(
            position=best.position,
            log_density=best.value,
            gradient_norm=float(np.linalg.norm(gradient)),
            distance=best.distance,
            hessian=best.hessian,
            cholesky=cholesky,
            history=history,
            others=tuple((walk.position, walk.value) for walk in modes[1:]),
            n_passes=self.team.passes,
            seconds=time.perf_counter() - self.began,
        )

    def _climb(self, objective: Objective, walk: _Walk, tolerance: float, arrived: list[_Walk]) -> None:
        """Newton steps and, at first or where they fail, L-BFGS before them, which may end where another walk is."""
        value, _ = objective(walk.position)
        if not value >= (at_start := objective(walk.start)[0]) - _rounding(at_start):
            walk.position, walk.hessian = walk.start, None
        if not np.isfinite(max(value, at_start)):
            walk.failure = NoModeError(
                "no mode: the log density or its gradient is not finite where the search began; give inits nearer to "
                "plausible values",
                "undefined",
            )
            return
        if walk.hessian is not None and self._newton(objective, walk, tolerance):
            return
        self._lbfgs(objective, walk)
        if _same(walk, arrived):
            return
        steps = default_steps(walk.position)
        walk.hessian = objective.hessian(walk.position, steps)
        # Where the scales differ much, those steps are too long or too short for some of them.
        better = scaled_steps(walk.position, walk.hessian)
        if not ((steps < 10 * better) & (steps > better / 1000)).all():
            walk.hessian = objective.hessian(walk.position, better)
        if not self._newton(objective, walk, tolerance):
            walk.failure = walk.failure or self._astray(walk)

    def _lbfgs(self, objective: Objective, walk: _Walk) -> None:
        lowest = 0.0

        def negative(theta: FloatArray) -> tuple[float, FloatArray]:
            nonlocal lowest
            value, gradient = objective(theta)
            if not np.isfinite(value):
                # A line search interpolates: it needs a number, worse than all it knows, and not worse by orders.
                return 2 * abs(lowest) + 1 - min(lowest, 0), np.zeros_like(theta)
            lowest = min(lowest, value)
            return -value, -gradient

        with np.errstate(over="ignore", invalid="ignore"):
            found = optimize.minimize(
                negative,
                walk.position,
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": _MAX_LBFGS, "maxfun": 2 * _MAX_LBFGS, "maxcor": 20, "ftol": 1e-13, "gtol": 0.0},
            )
        walk.n_iterations += found.nit
        if np.isfinite(found.x).all() and np.isfinite(objective(found.x)[0]):
            walk.position = found.x

    def _newton(self, objective: Objective, walk: _Walk, tolerance: float) -> bool:
        """Newton steps with the curvature at hand, renewed where that is cheaper than going on; whether they arrive."""
        assert walk.hessian is not None
        position, hessian, fresh = walk.position, walk.hessian, False
        value, gradient = objective(position)
        arrived = False
        for _ in range(_MAX_NEWTON):
            if not np.isfinite(hessian).all():
                break
            direction, distance, definite = _ascent(hessian, gradient)
            walk.distance = distance
            arrived = distance < tolerance and (definite or fresh)
            if arrived:
                break
            step = _line_search(objective, position, value, gradient, direction)
            if step is None and fresh:
                # Rounding of the log density may hide what is left to gain.
                arrived = distance < 1e-3
                break
            if step is not None:
                position, value, gradient = step
                walk.n_iterations += 1
                left = _ascent(hessian, gradient)[1]
                fresh = False
            if step is None or not definite or _steps_left(left, distance, tolerance) > 2 * objective.dim:
                hessian, fresh = objective.hessian(position, scaled_steps(position, hessian)), True
        walk.position, walk.hessian, walk.value = position, hessian, value
        return arrived

    def _astray(self, walk: _Walk) -> NoModeError:
        """Why a walk that did not arrive went on and on."""
        assert walk.hessian is not None
        moved = (walk.position - walk.start) / (1 + np.abs(walk.start))
        far = int(np.argmax(np.abs(moved)))
        if abs(moved[far]) > _FAR:
            return self._runs_off(far, float(moved[far]), "unbounded", "the log density goes on rising")
        if not np.isfinite(walk.hessian).all():
            return self._edge(walk)
        return NoModeError(
            f"no mode: the search came to no end (still {walk.distance:.1g} sd away, log density {walk.value:,.2f}); "
            "the log density may have kinks or jumps, or several parameters may be told apart by nothing; give priors "
            "that tell them apart, or sample with --control-variates 0",
            "iterations",
        )

    def _runs_off(self, parameter: int, direction: float, reason: str, because: str) -> NoModeError:
        name = self.names[parameter]
        sign = "+" if direction > 0 else "-"
        return NoModeError(
            f"no mode: {name} runs to {sign}infinity on the unconstrained scale, where {because}; give {name} a prior "
            "that keeps it away from there, or sample with --control-variates 0",
            reason,
            [name],
        )

    def _edge(self, walk: _Walk) -> NoModeError:
        assert walk.hessian is not None
        bad = np.flatnonzero(~np.isfinite(np.diag(walk.hessian)))
        name = self.names[int(bad[0]) if bad.size else 0]
        return NoModeError(
            f"no mode: the log density or its gradient is not defined near the highest point found, as {name} changes; "
            f"declare the bounds of {name}, or sample with --control-variates 0",
            "undefined",
            [name],
        )

    def _check_curvature(self, walk: _Walk) -> None:
        hessian = walk.hessian
        assert hessian is not None
        if not np.isfinite(hessian).all():
            raise self._edge(walk)
        _, values, vectors = _spectrum(hessian)
        if values[0] > _SINGULAR:
            return
        text, names = self._told(vectors[:, values <= max(_SINGULAR, values[0])])
        if values[0] < -_SADDLE:
            raise NoModeError(
                f"no mode: the highest point found is no maximum, the log density rises from there as {text} "
                "changes; give other inits, or sample with --control-variates 0",
                "saddle",
                names,
            )
        raise NoModeError(
            f"no mode: data and priors do not determine {text} (the curvature at the highest point is singular); give "
            "proper priors or leave out what is redundant, or sample with --control-variates 0",
            "singular",
            names,
        )

    def _check_axes(self, walk: _Walk) -> None:
        """The log density must fall along the axes of the approximation about as that of a normal does.

        A share of the data shows whether it does (its slope at the mode, which is not that of all the data, cancels in
        the sum over both sides); all of the data are asked about the axes that stand out.
        """
        assert walk.hessian is not None
        scales, values, vectors = _spectrum(walk.hessian)
        axes = (scales[:, np.newaxis] * vectors / np.sqrt(values)).T
        units = 1 + np.abs(walk.position)
        for share in [*self.shares[:1], self.whole]:
            middle, _ = share(walk.position)
            falls = [middle - share.many(walk.position + np.stack([axis, -axis]))[0] for axis in axes]
            odd = [self._is_odd(axis, fall, units) for axis, fall in zip(axes, falls, strict=True)]
            axes = axes[odd]
        for axis, fall in zip(axes, itertools.compress(falls, odd), strict=True):
            if (np.abs(axis) > _WIDE * units).any():
                moved = np.where(np.abs(axis) > _WIDE, (walk.position - walk.start) / (1 + np.abs(walk.start)), 0.0)
                far = int(np.argmax(np.abs(moved)))
                raise self._runs_off(far, float(moved[far]), "boundary", "the log density hardly falls any more")
            text, names = self._told((axis / scales)[:, np.newaxis])
            raise NoModeError(
                "no mode: the highest point is not that of a near normal density, which within an sd falls by 0.5 "
                f"where this falls by {fall.mean():.2g} as {text} changes (a kink, an edge, or a peak on a plateau); "
                "take smooth priors and likelihoods, or sample with --control-variates 0",
                "rough",
                names,
            )

    def _is_odd(self, axis: FloatArray, fall: FloatArray, units: FloatArray) -> bool:
        wide = bool((np.abs(axis) > _WIDE * units).any())
        return not _FALL[0] < fall.sum() < _FALL[1] or (wide and bool(fall.min() < _FLAT))

    def _told(self, vectors: FloatArray) -> tuple[str, list[str]]:
        """The parameters, at most three, that have most weight in vectors, shape (dim, k)."""
        weights = np.linalg.norm(vectors, axis=1)
        names = [self.names[i] for i in np.argsort(-weights, kind="stable")[:3] if weights[i] > weights.max() / 2]
        return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])), names


def _spectrum(hessian: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Conditional sds, and eigenvalues (rising) and eigenvectors of the negative Hessian in units of these."""
    curvature = np.abs(np.diag(hessian))
    scales = 1 / np.sqrt(np.where(curvature > 0, curvature, 1.0))
    values, vectors = np.linalg.eigh(-scales[:, np.newaxis] * hessian * scales)
    return scales, values, vectors


def _ascent(hessian: FloatArray, gradient: FloatArray) -> tuple[FloatArray, float, bool]:
    """Newton direction, its length in sds, and whether the Hessian is negative definite.

    Where it is not, the signs of its eigenvalues are changed, so that the direction is one of ascent.
    """
    scales, values, vectors = _spectrum(hessian)
    turned = np.maximum(np.abs(values), _SINGULAR * (np.abs(values).max() or 1.0))
    along = vectors.T @ (scales * gradient)
    direction = scales * (vectors @ (along / turned))
    return direction, float(np.sqrt(np.sum(along**2 / turned))), bool(values[0] > 0)


def _line_search(
    objective: Objective, position: FloatArray, value: float, gradient: FloatArray, direction: FloatArray
) -> tuple[FloatArray, float, FloatArray] | None:
    """Halve the step until the log density rises enough (Armijo); None where it never does."""
    slope, length = float(gradient @ direction), 1.0
    for _ in range(_MAX_HALVINGS):
        there = position + length * direction
        reached, its_gradient = objective(there)
        if np.isfinite(reached) and reached >= value + 1e-4 * length * slope - _rounding(value):
            return there, reached, its_gradient
        length /= 2
    return None


def _steps_left(now: float, before: float, tolerance: float) -> float:
    """Steps still to go at the rate of the last one."""
    if now <= tolerance:
        return 0.0
    return float(np.log(now / tolerance) / np.log(before / now)) if now < before else float("inf")


def _same(walk: _Walk, arrived: Sequence[_Walk]) -> _Walk | None:
    """The one of those arrived that is at the same place."""
    return next((other for other in arrived if walk.failure is None and _gap(walk, other) < _SAME), None)


def _gap(one: _Walk, other: _Walk) -> float:
    """Distance between two points in sds, by the curvature at the second."""
    assert other.hessian is not None
    scales, values, vectors = _spectrum(other.hessian)
    along = vectors.T @ ((one.position - other.position) / scales)
    return float(np.sqrt(np.sum(np.abs(values) * along**2)))


def _rounding(value: float) -> float:
    """Differences between log densities that are not told from none."""
    return 1e-12 * max(1.0, abs(value))


def _indexed(name: str) -> str:
    """``beta.1.2`` as ``beta[1,2]``."""
    stem, *indices = re.split(r"[.:]", name)
    return f"{stem}[{','.join(indices)}]" if indices else stem
