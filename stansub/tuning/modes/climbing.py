"""Optimisation from one point to a maximum: L-BFGS, then Newton steps, on some or all of the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from stansub.errors import RunError
from stansub.target.gradients import Objective, default_steps, scaled_steps
from stansub.types import FloatArray

# Distance to the maximum, in sds of the Laplace approximation, at which it counts as reached: on all data and on a
# share of them.
TOLERANCE, SHARE_TOLERANCE = 1e-6, 1e-2

# Points closer than this many sds are one maximum.
_SAME = 0.1

# Distance from a start, in units of 1 + its distance from 0, that counts as divergence.
_FAR = 15.0

_MAX_LBFGS, _MAX_LBFGS_SHARE = 1000, 200
_MAX_NEWTON = 60
# Gradients from which a Hessian costs so many that L-BFGS goes on before the next one.
MANY_PASSES = 40
_MAX_HALVINGS = 60
# Points with a finite log density that all line searches of a climb try. If it is smooth, a step tries one or two; at
# jumps or kinks, every step tries all its halvings. Points beyond an edge do not count: the climb must reach it.
_MAX_TRIED = 4 * _MAX_NEWTON

# A smaller curvature, relative to those of the single parameters, is lost in the differences of gradients.
SINGULAR = 1e-10


class NoModeError(RunError):
    """There is no mode at which control variates can be anchored; the message says why and gives a remedy.

    Attributes
    ----------
    reason : {"undefined", "unbounded", "boundary", "singular", "saddle", "rough", "iterations"}
    parameters : tuple of str
        The unconstrained parameters responsible, if known.
    """

    def __init__(self, message: str, reason: str, parameters: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.parameters = tuple(parameters)


@dataclass
class Ascent:
    """Optimisation from one start to a maximum.

    ``hessian`` is that of a share of the data at some point on the way, and ``distance`` is measured by it. ``off`` is
    the distance to that point, in sds, if the Hessian is that of the latest objective, and infinite otherwise.
    ``joined`` is an earlier ascent that reached the same place.
    """

    start: FloatArray
    position: FloatArray
    kind: str = "given"
    value: float = float("nan")
    distance: float = float("inf")
    hessian: FloatArray | None = None
    off: float = float("inf")
    n_iterations: int = 0
    failure: NoModeError | None = None
    joined: Ascent | None = None

    @property
    def end(self) -> Ascent:
        """Return the ascent that was followed to the end in its place."""
        return self if self.joined is None else self.joined.end


def climb(
    objective: Objective,
    ascent: Ascent,
    tolerance: float,
    arrived: Sequence[Ascent],
    names: Sequence[str],
    hopeless: Callable[[Ascent], bool] = lambda ascent: False,
) -> None:
    """Move an ascent by Newton steps, preceded by L-BFGS at first or if they fail; L-BFGS may end at another ascent.

    The result is stored in ``ascent``: its position and curvature, the ascent it joined, or why it failed. An ascent
    that is ``hopeless`` after L-BFGS stops there, without curvature.
    """
    ascent.failure = None
    value, _ = objective(ascent.position)
    if not value >= (at_start := objective.value(ascent.start)) - _rounding(at_start):
        ascent.position, ascent.hessian = ascent.start, None
    if not np.isfinite(max(value, at_start)):
        ascent.failure = NoModeError(
            "no mode: the log density or its gradient is not finite at the starting values; give inits nearer to "
            "plausible values",
            "undefined",
        )
        return
    if ascent.hessian is not None and newton(objective, ascent, tolerance):
        ascent.joined = same(ascent, arrived)
        return
    most, least_gain = (_MAX_LBFGS, 1e-13) if tolerance == TOLERANCE else (_MAX_LBFGS_SHARE, 1e-10)
    ascent.position, n_iterations = lbfgs(objective, ascent.position, max_iterations=most, tolerance=least_gain)
    ascent.n_iterations += n_iterations
    ascent.value = objective(ascent.position)[0]
    ascent.joined = same(ascent, arrived)
    if ascent.joined is not None or hopeless(ascent):
        return
    steps = default_steps(ascent.position)
    ascent.hessian = objective.hessian(ascent.position, steps)
    # If the scales differ much, those steps are too long or too short for some of them.
    better = scaled_steps(ascent.position, ascent.hessian)
    if not ((steps < 10 * better) & (steps > better / 1000)).all():
        ascent.hessian = objective.hessian(ascent.position, better)
    if not newton(objective, ascent, tolerance, ascent.position):
        ascent.failure = ascent.failure or _not_converged(ascent, names)
    ascent.joined = same(ascent, arrived)


def lbfgs(
    objective: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    *,
    max_iterations: int = _MAX_LBFGS,
    tolerance: float = 1e-10,
) -> tuple[FloatArray, int]:
    """Return the end of L-BFGS from a start, and its iterations; it stops when it gains less than the tolerance."""
    lowest = 0.0

    def negative(theta: FloatArray) -> tuple[float, FloatArray]:
        nonlocal lowest
        value, gradient = objective(theta)
        if not np.isfinite(value):
            # A line search interpolates: it needs a number that is worse than all others, but not by orders of
            # magnitude.
            return 2 * abs(lowest) + 1 - min(lowest, 0), np.zeros_like(theta)
        lowest = min(lowest, value)
        return -value, -gradient

    with np.errstate(over="ignore", invalid="ignore"):
        found = scipy.optimize.minimize(
            negative,
            start,
            jac=True,
            method="L-BFGS-B",
            options={
                "maxiter": max_iterations,
                "maxfun": 2 * max_iterations,
                "maxcor": 20,
                "ftol": tolerance,
                "gtol": 0.0,
            },
        )
    defined = bool(np.isfinite(found.x).all()) and np.isfinite(objective(found.x)[0])
    return (found.x if defined else start), int(found.nit)


def newton(objective: Objective, ascent: Ascent, tolerance: float, at: FloatArray | None = None) -> bool:
    """Take Newton steps, recomputing the curvature if that is cheaper; return whether they converged.

    ``at`` is the point where the curvature is that of this objective, if anywhere.
    """
    assert ascent.hessian is not None
    position, hessian, fresh = ascent.position, ascent.hessian, False
    value, gradient = objective(position)
    arrived, tried = False, 0
    for _ in range(_MAX_NEWTON):
        if tried >= _MAX_TRIED or not np.isfinite(hessian).all():
            break
        direction, distance, definite = _ascent(hessian, gradient)
        ascent.distance = distance
        arrived = distance < tolerance and (definite or fresh)
        if arrived:
            break
        step, n_tried = _line_search(objective, position, value, gradient, direction)
        tried += n_tried
        if step is None and fresh:
            # Rounding of the log density may hide the remaining gain.
            arrived = distance < 1e-3
            break
        if step is not None:
            position, value, gradient = step
            ascent.n_iterations += 1
            left = _ascent(hessian, gradient)[1]
            fresh = False
        if step is None or not definite or _steps_left(left, distance, tolerance) > objective.hessian_passes:
            if objective.hessian_passes >= MANY_PASSES:
                position, n_iterations = _whitened(objective, position, hessian)
                value, gradient = objective(position)
                ascent.n_iterations += n_iterations
            hessian, fresh, at = objective.hessian(position, scaled_steps(position, hessian)), True, position
    ascent.off = _apart(position, at, hessian) if at is not None else float("inf")
    ascent.position, ascent.hessian, ascent.value = position, hessian, value
    return arrived


def _whitened(objective: Objective, position: FloatArray, hessian: FloatArray) -> tuple[FloatArray, int]:
    """Return the end of L-BFGS in coordinates where a Hessian is the identity, and its iterations.

    It takes as many gradients as a Hessian or fewer. On a curved ridge, it gets further than a Newton step.
    """
    scales, values, vectors = spectrum(hessian)
    inverse = scales[:, np.newaxis] * vectors / np.sqrt(_turned(values))

    def along(u: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = objective(position + inverse @ u)
        return value, inverse.T @ gradient

    most = round(objective.hessian_passes / 2)  # L-BFGS takes up to two gradients an iteration
    end, n_iterations = lbfgs(along, np.zeros(len(position)), max_iterations=most, tolerance=0.0)
    return position + inverse @ end, n_iterations


def same(ascent: Ascent, arrived: Sequence[Ascent]) -> Ascent | None:
    """Return the arrived ascent at the same place."""
    return next((other for other in arrived if ascent.failure is None and _gap(ascent, other) < _SAME), None)


def spectrum(hessian: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return conditional sds, and eigenvalues (increasing) and eigenvectors of the negative Hessian in their units."""
    curvature = np.abs(np.diag(hessian))
    scales = 1 / np.sqrt(np.where(curvature > 0, curvature, 1.0))
    values, vectors = np.linalg.eigh(-scales[:, np.newaxis] * hessian * scales)
    return scales, values, vectors


def runs_off(name: str, direction: float, reason: str, because: str) -> NoModeError:
    """Return the error of an ascent that diverges along a parameter."""
    sign = "+" if direction > 0 else "-"
    return NoModeError(
        f"no mode: {name} runs to {sign}infinity on the unconstrained scale, where {because}; give {name} a proper "
        "prior that excludes this, or sample with `control_variates=0`",
        reason,
        [name],
    )


def edge(ascent: Ascent, names: Sequence[str]) -> NoModeError:
    """Return the error of an ascent to the edge of the log density's support."""
    assert ascent.hessian is not None
    bad = np.flatnonzero(~np.isfinite(np.diag(ascent.hessian)))
    name = names[int(bad[0]) if bad.size else 0]
    return NoModeError(
        f"no mode: the log density or its gradient is not defined near the highest point found, as {name} changes; "
        f"declare the bounds of {name}, or sample with `control_variates=0`",
        "undefined",
        [name],
    )


def _not_converged(ascent: Ascent, names: Sequence[str]) -> NoModeError:
    """Return why an ascent did not converge."""
    assert ascent.hessian is not None
    moved = (ascent.position - ascent.start) / (1 + np.abs(ascent.start))
    far = int(np.argmax(np.abs(moved)))
    if abs(moved[far]) > _FAR:
        return runs_off(names[far], float(moved[far]), "unbounded", "the log density keeps rising")
    if not np.isfinite(ascent.hessian).all():
        return edge(ascent, names)
    return NoModeError(
        f"no mode: the search did not converge (still {ascent.distance:.1g} sd away, log density {ascent.value:,.2f}); "
        "the log density may have kinks or jumps, or data and priors may not distinguish some parameters; give more "
        "informative priors, or sample with `control_variates=0`",
        "iterations",
    )


def _ascent(hessian: FloatArray, gradient: FloatArray) -> tuple[FloatArray, float, bool]:
    """Return the Newton direction, its length in sds, and whether the Hessian is negative definite.

    If it is not, the signs of its eigenvalues are changed, so that the direction is one of ascent.
    """
    scales, values, vectors = spectrum(hessian)
    turned = _turned(values)
    along = vectors.T @ (scales * gradient)
    direction = scales * (vectors @ (along / turned))
    return direction, float(np.sqrt(np.sum(along**2 / turned))), bool(values[0] > 0)


def _turned(values: FloatArray) -> FloatArray:
    """Return the sizes of eigenvalues, those that are lost in rounding as the smallest that are not."""
    sizes = np.abs(values)
    return np.asarray(np.maximum(sizes, SINGULAR * (sizes.max() or 1.0)))


def _line_search(
    objective: Objective, position: FloatArray, value: float, gradient: FloatArray, direction: FloatArray
) -> tuple[tuple[FloatArray, float, FloatArray] | None, int]:
    """Halve the step until the log density rises enough (Armijo).

    Return the point, its log density and gradient, or None if it never rises enough; and the number of points tried at
    which it is finite.
    """
    slope, length, tried = float(gradient @ direction), 1.0, 0
    for _ in range(_MAX_HALVINGS):
        there = position + length * direction
        reached, its_gradient = objective(there)
        tried += bool(np.isfinite(reached))
        if np.isfinite(reached) and reached >= value + 1e-4 * length * slope - _rounding(value):
            return (there, reached, its_gradient), tried
        length /= 2
    return None, tried


def _steps_left(now: float, before: float, tolerance: float) -> float:
    """Return the remaining steps at the rate of the last one."""
    if now <= tolerance:
        return 0.0
    return float(np.log(now / tolerance) / np.log(before / now)) if now < before else float("inf")


def _gap(one: Ascent, other: Ascent) -> float:
    """Return the distance between two points in sds, by the curvature at the second."""
    assert other.hessian is not None
    return _apart(one.position, other.position, other.hessian)


def _apart(one: FloatArray, other: FloatArray, hessian: FloatArray) -> float:
    """Return the distance between two points in sds, by a curvature."""
    if not np.isfinite(hessian).all():
        return float("inf")
    scales, values, vectors = spectrum(hessian)
    with np.errstate(over="ignore", invalid="ignore"):  # climbs may run to infinity
        along = vectors.T @ ((one - other) / scales)
        return float(np.sqrt(np.sum(np.abs(values) * along**2)))


def _rounding(value: float) -> float:
    """Return the size of differences between log densities that are rounding."""
    return 1e-12 * max(1.0, abs(value))
