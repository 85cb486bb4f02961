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
from numpy.typing import NDArray
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
from stansub.stan.design import design_of, guessed, telling_rows
from stansub.stan.library import Library
from stansub.stan.recognise import Form
from stansub.stan.syntax import Program
from stansub.target.blocks import Blocks
from stansub.target.gradients import THREADS
from stansub.target.remainders import LinearPredictors, NoPredictorsError
from stansub.target.rows import Design, compact
from stansub.types import FloatArray

T = TypeVar("T")
R = TypeVar("R")

# Observations that are compared at once, and that a part of the program's data has.
_PART, _ROWS = 1 << 14, 1 << 15
# Points at which predictors are compared before there are any of the posterior.
_N_POINTS = 3
_AFFINE, _SAME = 1e-9, 1e-8
# Numbers of designs from which their rows are computed when they are needed, and what rounding makes of an offset of 0.
_COMPUTED, _NOISE = 1 << 23, 1e-14


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
        design = [design_of(one, values, axes, n) for one in known]
        in_memory = sum(z.shape[0] * z.shape[1] for z in design) <= _COMPUTED
        if in_memory:
            design = [z[:] for z in design]

        def part(first: int) -> _Affine:
            rows = slice(first, min(first + _ROWS, n))
            own, data = [z[rows if len(z) > 1 else slice(1)] for z in design], values.rows(axes, sizes, rows)
            found = _affine(source.density, source.columns(data, rows.stop - rows.start), own, points)
            return found if in_memory else _without_noise(found, own, points[0])

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
    given : list of ndarray, shape (n,)
        Observations and known arguments, in little memory.
    base : list of ndarray, shape (n,), or None
        The other arguments after their links, if they do not depend on parameters.
    offset : list of ndarray, shape (n,)
        The other arguments at a point, less the design's part in that.
    """

    given: list[NDArray[Any]]
    base: list[FloatArray | None]
    offset: list[NDArray[Any]]


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
    constant = [None if z.any() else row for row, z in zip(base, design, strict=True)]
    return _Affine([compact(row) for row in given], constant, list(offset))


def _without_noise(part: _Affine, design: Sequence[FloatArray], point: FloatArray) -> _Affine:
    """Return the same in less memory: offsets that are rounding alone are 0."""
    noise = [_NOISE * (1 + np.abs(o) + 2 * np.abs(z) @ np.abs(point)) for o, z in zip(part.offset, design, strict=True)]
    offset = [np.where(np.abs(o) <= most, 0.0, o) for o, most in zip(part.offset, noise, strict=True)]
    return part._replace(offset=[compact(row) for row in offset])


def _joined(spec: Spec, parts: Sequence[_Affine], design: Sequence[Design]) -> LinearPredictors:
    """The linear predictors of all observations from those of parts of them."""
    given = [_row(rows) for rows in zip(*(part.given for part in parts), strict=True)]
    bases = zip(*(part.base for part in parts), strict=True)
    constant = [None if any(row is None for row in rows) else _row(rows) for rows in bases]
    family, kept = spec.choose(Rows(given[0], given[1:], constant))
    offset = [[part.offset[row] for part in parts] for row in kept]
    first = np.broadcast_to(offset[0][0][0], len(given[0])) if _is_one_number(offset[0]) else _row(offset[0])
    offsets = [first, *(_shortest([_row(rows)])[0] for rows in offset[1:])]
    if not all(isinstance(z, np.ndarray) for z in design):
        family = family.compacted()
    return LinearPredictors(tuple(design[row] for row in kept), tuple(offsets), family)


def _row(parts: Sequence[NDArray[Any] | None]) -> FloatArray:
    """Return one row of all observations from those of parts of them."""
    return np.concatenate([part for part in parts if part is not None], dtype=np.float64)


def _is_one_number(parts: Sequence[NDArray[Any]]) -> bool:
    """Return whether all rows repeat the same number, which takes no memory."""
    return all(part.strides == (0,) and part[0] == parts[0][0] for part in parts)


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
    number = np.repeat(np.arange(len(blocks), dtype=np.int32), blocks.sizes)
    if predictors.order is not None:
        places, number = number, np.empty_like(number)
        number[predictors.order] = places

    def sums(part: LinearPredictors, rows: slice) -> FloatArray:
        """Of changes of log likelihoods, their sizes, and what is lost, from the first point to the others."""
        at_first, *others = (part.family.log_lik(part.at(theta)) for theta in points[: len(terms)])
        changes = [at_theta - at_first for at_theta in others]
        lost = [rounding(at_first) + rounding(at_theta) for at_theta in others]
        each = zip(changes, map(np.abs, changes), lost, strict=True)
        return np.array([[np.bincount(number[rows], one, len(blocks)) for one in values] for values in each])

    found = np.zeros((max(0, len(terms) - 1), 3, len(blocks)))
    for one in predictors.each(sums, threads=THREADS):
        found += one
    for term, (own, size, lost) in zip(terms[1:], found, strict=True):
        if not (np.abs(own - (term - terms[0])) <= _SAME * (1 + np.abs(terms[0]) + size) + lost).all():
            return False
    return len(terms) > 1
