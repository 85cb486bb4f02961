"""Linear predictors of recognised likelihoods, from a program that hands them out; what is read off the text is proved.

That each argument of the density is affine in the unconstrained parameters under its link or does not depend on them,
and that these are the log likelihoods of the observations, is checked numerically: at several random points, for all
observations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from stansub.errors import InputError, RunError
from stansub.stan import toolchain
from stansub.stan.analysis import Analysis
from stansub.stan.arguments import (
    CHANGING,
    WIDEST,
    argument_program,
    library_name,
    not_affine,
    not_known,
)
from stansub.stan.data import Data
from stansub.stan.densities import SPECS, Link, Rows, Spec
from stansub.stan.design import DataColumn, fill, guessed, telling_rows
from stansub.stan.library import Library
from stansub.stan.recognise import Form
from stansub.stan.syntax import Program
from stansub.target.blocks import Blocks
from stansub.target.gradients import THREADS
from stansub.target.remainders import LinearPredictors, NoPredictorsError
from stansub.types import FloatArray

T = TypeVar("T")
R = TypeVar("R")

# Observations that are compared at once, and that a part of the program's data has.
_PART, _ROWS = 1 << 14, 1 << 15
# Points at which predictors are compared before there are any of the posterior.
_N_POINTS = 3
_AFFINE, _SAME = 1e-9, 1e-8


@dataclass(frozen=True)
class Columns:
    """The columns of the program that hands them out, at any point.

    Attributes
    ----------
    at : callable
        From unconstrained parameters to all values, shape (rows, n): a row for each column, or several.
    spec : Spec
    names : tuple of str
        Of the unconstrained parameters.
    """

    at: Callable[[FloatArray], FloatArray]
    spec: Spec
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, library: Library, values: Data, n: int, *, spec: Spec) -> Columns:
        """Those of the program with such data, n observations."""
        model, rng = values.model(library), library.rng(0)
        first = model.param_num()
        # the library makes a name for each value to count them
        n_values = model.param_num(include_gq=True) if any(spec.vectors) else first + n * len(spec.vectors)

        def at(theta: FloatArray) -> FloatArray:
            try:
                found = model.param_constrain(theta, include_gq=True, rng=rng, out=np.empty(n_values))
            except RunError as error:
                raise NoPredictorsError(f"its arguments cannot be computed at a random point ({error})") from error
            return found[first:].reshape(-1, n)

        return cls(at, spec, tuple(model.param_unc_names()))

    def __call__(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Observations and known arguments, and the other arguments after their links: a row each."""
        values = self.at(theta)
        vectors = self.spec.vectors
        wide = len(values) - vectors.count(False)
        rows, start = [], 0
        for is_vector in vectors:
            stop = start + (wide if is_vector else 1)
            rows.append(values[start:stop])
            start = stop
        rows = [row[~np.isnan(row).any(1)] if is_vector else row for row, is_vector in zip(rows, vectors, strict=True)]
        if min(map(len, rows)) == 0:
            raise NoPredictorsError(f"an argument has more than {WIDEST} values")
        known = [row for row, link in zip(rows[1:], self.spec.links, strict=True) if link.is_known]
        with np.errstate(divide="ignore", invalid="ignore"):
            others = [link.apply(row) for row, link in zip(rows[1:], self.spec.links, strict=True) if not link.is_known]
        return np.concatenate([rows[0], *known]), np.concatenate(others)

    def argument(self, row: int) -> tuple[int, Link]:
        """Which of Stan's arguments a row belongs to; a vector is the last."""
        others = [(k, link) for k, link in enumerate(self.spec.links) if not link.is_known]
        return others[min(row, len(others) - 1)]


@dataclass(frozen=True)
class HandedOut:
    """A program that hands out the columns of the density of another one.

    Attributes
    ----------
    density : str
        Its name.
    library : Library
    """

    density: str
    library: Library

    @classmethod
    def of(
        cls, program: Program, form: Form, size: str, name: str, progress: Callable[[str], None] | None = None
    ) -> HandedOut:
        """Compiled; NoPredictorsError where the text shows no density of a recognised family."""
        handing_out = argument_program(program, form, size)
        try:
            library = Library(toolchain.compile_library(handing_out.code, name=library_name(name), progress=progress))
        except RunError as error:
            raise NoPredictorsError(f"a program for its linear predictor does not compile ({error})") from error
        return cls(handing_out.density, library)

    def points(self, values: Data) -> list[FloatArray]:
        """Unconstrained parameters at which arguments can be compared: always the same."""
        return list(np.random.default_rng(0).uniform(-2, 2, (_N_POINTS, values.model(self.library).dim)))

    def columns(self, values: Data, n: int) -> Columns:
        """Of such data, n observations."""
        return Columns.of(self.library, values, n, spec=SPECS[self.density])


def linear_predictors(
    program: Program,
    form: Form,
    values: Data,
    blocks: Blocks,
    *,
    sizes: Sequence[str],
    order: Any,
    points: Sequence[FloatArray],
    terms: Sequence[FloatArray],
    name: str,
    guess: LinearPredictors | None = None,
    progress: Callable[[str], None] | None = None,
) -> LinearPredictors:
    """The linear predictors of a program's likelihood.

    Parameters
    ----------
    program, form, values, blocks, sizes, order, points, name
        Of a `stansub.stan.posterior.Posterior`.
    terms : sequence of ndarray, shape (n_blocks,)
        Log likelihoods of the blocks at the first of the points.
    guess : LinearPredictors, optional
        What they may be (see `guess_predictors`).
    progress : callable, optional

    Raises
    ------
    NoPredictorsError
        When its likelihood is of no recognised family, or not by a linear predictor; the text says why.
    """

    def proved(found: LinearPredictors) -> LinearPredictors | None:
        predictors = replace(found, order=order)
        return predictors if is_proved(predictors, blocks, points, terms) else None

    source = HandedOut.of(program, form, sizes[0] if sizes else "", name, progress)
    if guess is None:
        guess = _by_columns_of_data(source, values, sizes)
    if guess is not None and (predictors := proved(guess)):
        return predictors
    columns = source.columns(values, blocks.n_observations)
    design = _steps(columns, points[0])
    predictors = proved(_joined(columns.spec, [_affine(source.density, columns, design, points)], design))
    if predictors is None:
        raise NoPredictorsError("the log likelihoods of the blocks are not those of the density alone")
    return predictors


def guess_predictors(analysis: Analysis, values: Data, name: str) -> LinearPredictors | None:
    """What the linear predictors of a program may be, to be proved once its likelihood is cut into blocks.

    Where the program takes a few rows and these show a design of columns of the data, and nothing is to be compiled;
    None elsewhere.
    """
    size = analysis.size
    try:
        if not toolchain.is_compiled(analysis.arguments(size).code, name=library_name(name)):
            return None
        source = HandedOut.of(analysis.program, analysis.form, size, name)
        return _by_columns_of_data(source, values, [size])
    except InputError:
        return None


def _steps(columns: Columns, point: FloatArray) -> list[FloatArray]:
    """What each argument gains for a step of 1 of each parameter, each of shape (n, dim) or (1, dim)."""
    _, base = columns(point)

    def step(one: FloatArray) -> list[FloatArray]:
        with np.errstate(invalid="ignore"):  # of data that are not finite
            return _shortest(list(columns(point + one)[1] - base))

    steps = _at_once(step, np.eye(len(point)))
    return [np.stack(np.broadcast_arrays(*(step[row] for step in steps)), 1) for row in range(len(base))]


def _by_columns_of_data(source: HandedOut, values: Data, sizes: Sequence[str]) -> LinearPredictors | None:
    """The linear predictors where the program takes a few rows, and these show a design of columns of the data.

    All rows are then asked in parts; None where that does not succeed, for whatever reason. To be proved: what the
    program computes of all its data, such as means, differs from part to part. The points are always the same, so that
    another process finds the same to the last bit.
    """
    if not sizes or not set(sizes) <= set(values.values):
        return None
    try:
        axes, n = values.axes(sizes), values.integer(sizes[0])
        telling = telling_rows(values, axes, n)
        few = values.rows(axes, sizes, telling)
        columns = source.columns(few, len(telling))
        points = source.points(few)
        guesses = [
            guessed(np.broadcast_to(z, (len(telling), len(points[0]))).T, few, axes) for z in _steps(columns, points[0])
        ]
        known = [one for one in guesses if one is not None]
        if len(known) < len(guesses):
            return None
        design = [np.empty((n if any(isinstance(k, DataColumn) for k in one) else 1, len(one))) for one in known]

        def part(first: int) -> _Affine:
            rows = slice(first, min(first + _ROWS, n))
            own, data = [z if len(z) == 1 else z[rows] for z in design], values.rows(axes, sizes, rows)
            for z, one in zip(own, known, strict=True):
                fill(z, one, data, axes)
            return _affine(source.density, source.columns(data, rows.stop - rows.start), own, points)

        return _joined(columns.spec, _at_once(part, range(0, n, _ROWS)), design)
    except InputError:
        return None


def _at_once(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """What work makes of each, in threads."""
    # BLAS's own threads would wait for each other.
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(max_workers=THREADS) as pool:
        return list(pool.map(work, items))


class _Affine(NamedTuple):
    """Some observations, whose arguments are affine in the unconstrained parameters, a row for each argument.

    Attributes
    ----------
    given : ndarray, shape (rows, n)
        Observations and known arguments.
    base, offset : ndarray, shape (q, n)
        The other arguments after their links: at a point, and less the design's part in that.
    """

    given: FloatArray
    base: FloatArray
    offset: FloatArray


def _affine(density: str, columns: Columns, design: Sequence[FloatArray], points: Sequence[FloatArray]) -> _Affine:
    """What the arguments are in the unconstrained parameters; NoPredictorsError when not affine with such a design."""
    given, base = columns(points[0])
    if len(base) != len(design):
        raise NoPredictorsError("a few observations have other arguments than all")
    offset = np.array([row - z @ points[0] for row, z in zip(base, design, strict=True)])
    for theta in points[1:]:
        known, found = columns(theta)
        _check_same(density, columns.spec, given, known)
        for row, (value, z, o) in enumerate(zip(found, design, offset, strict=True)):
            k, link = columns.argument(row)
            if not _is_affine(value, z, o, theta, link):
                raise NoPredictorsError(not_affine(density, k, link))
    return _Affine(given, base, offset)


def _joined(spec: Spec, parts: Sequence[_Affine], design: Sequence[FloatArray]) -> LinearPredictors:
    """The linear predictors of all observations from those of parts of them."""
    given, base, offset = (np.concatenate(rows, axis=1) for rows in zip(*parts, strict=True))
    constant = [None if z.any() else row for row, z in zip(base, design, strict=True)]
    family, kept = spec.choose(Rows(given[0], list(given[1:]), constant))
    offsets = [offset[kept[0]], *(_shortest([offset[row]])[0] for row in kept[1:])]
    return LinearPredictors(tuple(design[row] for row in kept), tuple(offsets), family)


def _is_affine(value: FloatArray, z: FloatArray, o: FloatArray, theta: FloatArray, link: Link) -> bool:
    """Whether all values are z . theta + o, as far as rounding lets one see; in parts that fit into a cache."""
    z, o = np.broadcast_to(z, (len(value), len(theta))), np.broadcast_to(o, len(value))
    for first in range(0, len(value), _PART):
        part = slice(first, first + _PART)
        scale = 1 + np.abs(value[part]) + np.abs(z[part]) @ np.abs(theta)
        if not (np.abs(value[part] - o[part] - z[part] @ theta) <= _AFFINE * scale + link.rounding(value[part])).all():
            return False
    return True


def _check_same(density: str, spec: Spec, given: FloatArray, again: FloatArray) -> None:
    """Observations and known arguments at two points."""
    if not np.array_equal(given[0], again[0]):
        raise NoPredictorsError(CHANGING)
    places = [k for k, link in enumerate(spec.links) if link.is_known]
    for k, before, after in zip(places, given[1:], again[1:], strict=True):
        if not np.array_equal(before, after):
            raise NoPredictorsError(not_known(density, k))


def _shortest(rows: Sequence[FloatArray]) -> list[FloatArray]:
    """Rows, with one entry where it is the same for all observations."""
    return [row[:1] if (row == row[0]).all() else row for row in rows]


def is_proved(
    predictors: LinearPredictors,
    blocks: Blocks,
    points: Sequence[FloatArray],
    terms: Sequence[FloatArray],
    *,
    rounding: Callable[[FloatArray], FloatArray] = np.zeros_like,
) -> bool:
    """Whether changes of all blocks' log likelihoods, given at the first points, are those that the family gives.

    ``rounding`` gives what the program itself loses of single observations, from their log likelihoods.
    """
    if predictors.n_observations != blocks.n_observations or predictors.design[0].shape[1] != len(points[0]):
        return False
    at_first = predictors.log_lik(points[0], threads=THREADS)
    for theta, term in zip(points[1:], terms[1:], strict=False):
        at_theta = predictors.log_lik(theta, threads=THREADS)
        own, given = at_theta - at_first, term - terms[0]
        scale = 1 + np.abs(terms[0]) + predictors.sums(np.abs(own), blocks)
        lost = predictors.sums(rounding(at_first) + rounding(at_theta), blocks)
        if not (np.abs(predictors.sums(own, blocks) - given) <= _SAME * scale + lost).all():
            return False
    return len(terms) > 1
