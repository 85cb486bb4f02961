"""Checks that the highest points reached are modes: maxima, and nearly normal there."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stansub.target.gradients import Objective, scaled_steps
from stansub.target.laplace import Mode
from stansub.tuning.modes.climbing import (
    MANY_PASSES,
    SINGULAR,
    TOLERANCE,
    Ascent,
    NoModeError,
    edge,
    newton,
    runs_off,
    spectrum,
)
from stansub.types import FloatArray
from stansub.wording import listed

_SADDLE = 1e-6
# Distance in sds within which the curvature of all the data is not computed again, if it costs many gradients.
_NEAR = 0.1
# One sd from the mode along an axis of the Laplace approximation, the log density should be lower by 1/2. The total
# drop in both directions must lie between these limits. For wide axes (in units of 1 + the distance from 0), the drop
# on either side must exceed the last limit.
_FALL = (0.1, 10.0)
_WIDE, _FLAT = 5.0, 0.02


@dataclass(frozen=True)
class Completion:
    """Turns points that ascents reached on all the data into modes."""

    whole: Objective
    """Objective of all the data."""
    shares: Sequence[Objective]
    """Objectives of shares of the data, which show what to compute on all of it."""
    names: Sequence[str]

    def complete(self, ascent: Ascent) -> Mode:
        """Return the mode with the curvature of all the data.

        Raises
        ------
        NoModeError
            If it is not a maximum with a normal approximation.
        """
        assert ascent.hessian is not None
        known = self.whole.hessian_passes >= MANY_PASSES and ascent.off < _NEAR
        if not known:
            steps = scaled_steps(ascent.position, ascent.hessian)
            ascent.hessian = self.whole.hessian(ascent.position, steps)
        self._check_curvature(ascent)
        # With the curvature of all the data known, another step is nearly free and is exact up to rounding.
        newton(self.whole, ascent, TOLERANCE)
        self._check_axes(ascent)
        scales, values, vectors = spectrum(ascent.hessian)
        cholesky = scales[:, np.newaxis] * np.linalg.cholesky((vectors / values) @ vectors.T)
        return Mode(ascent.position, ascent.value, ascent.distance, ascent.hessian, cholesky)

    def _check_curvature(self, ascent: Ascent) -> None:
        hessian = ascent.hessian
        assert hessian is not None
        if not np.isfinite(hessian).all():
            raise edge(ascent, self.names)
        _, values, vectors = spectrum(hessian)
        if values[0] > SINGULAR:
            return
        text, names = self._heaviest(vectors[:, values <= max(SINGULAR, values[0])])
        if values[0] < -_SADDLE:
            changes = "changes" if len(names) == 1 else "change"
            raise NoModeError(
                f"no mode: the highest point found is not a maximum, because the log density rises as {text} {changes}"
                "; give other inits, or sample with `control_variates=0`",
                "saddle",
                names,
            )
        raise NoModeError(
            f"no mode: data and priors do not determine {text} (the curvature at the highest point is singular); give "
            "proper priors or remove redundant parameters, or sample with `control_variates=0`",
            "singular",
            names,
        )

    def _check_axes(self, ascent: Ascent) -> None:
        """Check that the log density falls along the axes of the approximation about as a normal does.

        A share of the data shows whether it does (its slope at the mode, which is not that of all the data, cancels in
        the sum over both sides). All of the data are evaluated along the axes that stand out.
        """
        assert ascent.hessian is not None
        scales, values, vectors = spectrum(ascent.hessian)
        axes = (scales[:, np.newaxis] * vectors / np.sqrt(values)).T
        units = 1 + np.abs(ascent.position)
        for share in [*self.shares, self.whole]:
            if not len(axes):
                return
            middle, _ = share(ascent.position)
            falls = [middle - share.many(ascent.position + np.stack([axis, -axis]))[0] for axis in axes]
            odd = [_is_odd(axis, fall, units) for axis, fall in zip(axes, falls, strict=True)]
            axes = axes[odd]
        for axis, fall in zip(axes, itertools.compress(falls, odd), strict=True):
            if (np.abs(axis) > _WIDE * units).any():
                moved = np.where(
                    np.abs(axis) > _WIDE, (ascent.position - ascent.start) / (1 + np.abs(ascent.start)), 0.0
                )
                far = int(np.argmax(np.abs(moved)))
                because = "the log density stops falling"
                raise runs_off(self.names[far], float(moved[far]), "boundary", because)
            text, names = self._heaviest((axis / scales)[:, np.newaxis])
            changes = "changes" if len(names) == 1 else "change"
            raise NoModeError(
                "no mode: the density is not nearly normal at the highest point found: as "
                f"{text} {changes} by an sd it falls by {fall.mean():.2g} instead of 0.5 (a kink, an edge, a plateau, "
                "a curved ridge, or effects whose scale is near 0). There may be a mode elsewhere: give inits near "
                "plausible values; otherwise use smooth priors and likelihoods, or sample with `control_variates=0`",
                "rough",
                names,
            )

    def _heaviest(self, vectors: FloatArray) -> tuple[str, list[str]]:
        """Return the parameters, at most three, with the largest weight in vectors, shape (dim, k)."""
        weights = np.linalg.norm(vectors, axis=1)
        names = [self.names[i] for i in np.argsort(-weights, kind="stable")[:3] if weights[i] > weights.max() / 2]
        return listed(names), names


def evidence(ascent: Ascent) -> float:
    """Return Laplace's log evidence up to a constant, by the known curvature; the log density if there is none."""
    assert ascent.hessian is not None
    scales, values, _ = spectrum(ascent.hessian)
    return ascent.value + float(np.log(scales).sum() - 0.5 * np.log(values).sum()) if values[0] > 0 else ascent.value


def is_maximum(ascent: Ascent) -> bool:
    """Return whether the known curvature is that of a maximum."""
    return ascent.hessian is not None and bool(spectrum(ascent.hessian)[1][0] > SINGULAR)


def _is_odd(axis: FloatArray, fall: FloatArray, units: FloatArray) -> bool:
    wide = bool((np.abs(axis) > _WIDE * units).any())
    return not _FALL[0] < fall.sum() < _FALL[1] or (wide and bool(fall.min() < _FLAT))
