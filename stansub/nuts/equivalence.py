"""Numerical check that two Stan programs have the same posterior."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import orjson

from stansub.errors import InputError
from stansub.nuts.base import Program
from stansub.output.layout import Layout
from stansub.stan.data.data import Data
from stansub.stan.passes.rewrite import silenced
from stansub.stan.proof import draw_points
from stansub.stan.toolchain import build
from stansub.stan.toolchain.library import Library, Model
from stansub.types import FloatArray

_N_POINTS = 4
# Tolerance of the log density. Two ways of writing a likelihood agree to 1e-13; another prior is off by 0.1 or more.
TOLERANCE = 1e-8


def check(program: Program, data: Data, other: Program, other_data: Data, *, log: Callable[[str], None]) -> str:
    """Compare the log densities of two programs at some parameter values.

    Both are unnormalised: with the same posterior, they differ by the same constant everywhere. The result in words is
    that they agree, or that they could not be compared because their parameters differ.

    Raises
    ------
    InputError
        If the log densities differ by more than a constant.
    """
    declared = [
        {one.name: (one.base, one.all_dims) for one in p.syntax.parameters.declarations} for p in (program, other)
    ]
    goal = "to compare log densities"
    one, two = (
        values.model(Library(build.compile_library(silenced(p.syntax).code, name=p.name, goal=goal, progress=log)))
        for p, values in ((program, data), (other, other_data))
    )
    layouts = [Layout.from_names(model.param_names()) for model in (one, two)]
    if layouts[0].shapes != layouts[1].shapes or any(base == "tuple" for d in declared for base, _ in d.values()):
        return f"not checked: the parameters of {program.name} and {other.name} differ"
    points = draw_points(np.random.default_rng(0), one, n_points=_N_POINTS)
    if len(points) < 2:
        raise InputError(f"{program.name}: the log density is not finite at any of the parameter values tried")
    first = np.array([one.log_density(theta) for theta in points])
    second = np.array([_at(two, _values(one, layouts[0], theta)) for theta in points])
    difference = second - first
    spread = float(np.ptp(difference)) if np.isfinite(difference).all() else float("inf")
    if not spread <= TOLERANCE * max(1.0, float(np.abs(first).max())):
        listed = ", ".join(f"{value:.10g}" for value in difference)
        raise InputError(
            f"{other.name} does not have the posterior of {program.name}: at {len(points)} parameter values the log "
            f"densities differ by {listed}, not by a constant; correct it or leave out `reference_model`"
        )
    return f"checked: the log densities of {program.name} and {other.name} differ by a constant to {spread:.1e}"


def _values(model: Model, layout: Layout, theta: FloatArray) -> bytes:
    """Return constrained parameters as JSON."""
    flat = model.param_constrain(theta)
    values = {name: flat[places] for name, places in layout.columns.items()}
    return orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)


def _at(model: Model, values: bytes) -> float:
    """Return the log density at constrained parameters; minus infinity outside the support."""
    try:
        return model.log_density(model.param_unconstrain_json(values))
    except InputError:
        return float("-inf")
