"""Dependence of observations on the parameters, followed through the text of a program with its data, and proved.

The density of an observation gives the family if it is known and each of its arguments is affine in the unconstrained
parameters under its link. Otherwise the log likelihood becomes a program of such arguments. Nothing is compiled. The
result is accepted only if the log likelihoods of all blocks change like those of the user's program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stansub.errors import InputError
from stansub.stan.data.data import Data
from stansub.stan.observations.builtins import of_one
from stansub.stan.observations.densities import SPECS, Rows, Spec
from stansub.stan.observations.design import CollectedRows, Cut, Part
from stansub.stan.observations.observation import ObservationTerm, follow
from stansub.stan.observations.row_program import Argument, in_program, in_sequence, tail_rounding
from stansub.stan.observations.rowwise import Number, is_affine, is_kind, known
from stansub.stan.observations.slopes import dense, is_changing, none_like
from stansub.stan.syntax import Program
from stansub.target.blocks import Blocks
from stansub.target.remainders import Family, LinearPredictors, NoPredictorsError
from stansub.target.rows import DataColumn, compact, shortest
from stansub.target.threads import THREADS
from stansub.types import Check, FloatArray

# Relative rounding of log likelihoods; numbers of all rows of a design.
_SAME, _MOST_NUMBERS = 1e-8, 1 << 30
# Designs of more observations and numbers than this are computed on request; observations that are then followed at
# once, and at first.
_ROWS, _COMPUTED, _FOLLOWED, _FIRST = 1 << 15, 1 << 23, 1 << 16, 61


class Text(NamedTuple):
    """Text that is followed, with its data."""

    program: Program
    values: Data
    """Its data, and transformed data as far as known."""

    def follow(self, n: int, check: Check) -> ObservationTerm:
        """Return the likelihood of one of n observations."""
        return follow(self.program, self.values.values, n, check=check)


def proved_predictors(
    texts: Sequence[Text],
    blocks: Blocks,
    *,
    sizes: Sequence[str] = (),
    order: Any,
    points: Sequence[FloatArray],
    terms: Sequence[FloatArray],
    of_family: bool = False,
    computed: bool = False,
    check: Check = lambda: None,
) -> LinearPredictors:
    """Return how observations depend on the parameters, proved.

    Raises `NoPredictorsError` if the text cannot be followed, or the result is wrong; the message says where.

    Parameters
    ----------
    texts : sequence of Text
        The text of each sum.
    blocks, sizes, order, points
        Of the `stansub.stan.posterior.Posterior`.
    terms : sequence of ndarray, shape (n_blocks,)
        Log likelihoods of the blocks at the first of the points.
    of_family : bool
        Whether only a known family is acceptable.
    computed : bool
        Whether a design of columns of the data is computed from these however small it is.
    check : callable
        Called often; raises an error if it is time to stop.
    """
    n = blocks.n_observations
    with reading():
        by_columns = partial(_by_columns, texts, n, sizes, 0 if computed else _COMPUTED, check)
        for find in (by_columns, partial(predictors_of, texts, blocks.counts, of_family=of_family, check=check)):
            if (found := find()) is None:
                continue
            found = replace(found, order=order)
            compared = compare(found, blocks, points, terms, rounding=tail_rounding(found.family))
            if compared.holds:
                return replace(found, constant=compared.constant)
    raise NoPredictorsError("the likelihood read from the text differs from that of the compiled program")


@contextmanager
def reading(what: str = "") -> Iterator[None]:
    """Raise NoPredictorsError for errors while a text is followed; ``what`` begins the messages that say where."""
    try:
        yield
    except NoPredictorsError:
        raise
    except InputError as error:
        raise NoPredictorsError(f"{what}{error}") from error
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise NoPredictorsError("stansub cannot read its text") from error  # which can say anything


def predictors_of(
    texts: Sequence[Text],
    counts: Sequence[int],
    *,
    of_family: bool = False,
    check: Check = lambda: None,
) -> LinearPredictors:
    """Return how the observations of each sum depend on the parameters, from its text; not yet proved.

    Raises `InputError` if a text cannot be followed; the message says where.
    """
    followed = [text.follow(n, check) for text, n in zip(texts, counts, strict=True)]
    return _dense(*arguments_of(followed, counts, of_family=of_family, check=check))


def arguments_of(
    followed: Sequence[ObservationTerm], counts: Sequence[int], *, of_family: bool = False, check: Check = lambda: None
) -> tuple[Family, list[Argument]]:
    """Return the family of the observations' log likelihoods, or a program of them, with its arguments; not yet proved.

    The observations of several sums have one program, one sum after the other. Raises `NoPredictorsError` if it has too
    many arguments, or a single sum is of no known family and ``of_family`` is set.
    """
    if len(followed) == 1:
        try:
            return _in_family(followed[0], counts[0])
        except NoPredictorsError:
            if of_family:
                raise
    return in_sequence([in_program(one.term, n, check=check) for one, n in zip(followed, counts, strict=True)])


class Affine(NamedTuple):
    """A density of a known family with affine arguments."""

    spec: Spec
    given: list[FloatArray]
    """Each of shape (n,): observations and known arguments."""
    arguments: list[Argument]
    """The other arguments, after their links."""


def _in_family(followed: ObservationTerm, n: int) -> tuple[Family, list[Argument]]:
    spec, given, rows = affine_density(followed, n)
    constant = [None if is_changing(row.slopes) else np.broadcast_to(row.offset, n) for row in rows]
    family, kept = spec.choose(Rows(given[0], given[1:], constant))
    return family, [rows[k] for k in kept]


def affine_density(followed: ObservationTerm, n: int) -> Affine:
    """Return the density of an observation, with its affine arguments.

    Raises `NoPredictorsError` if there is not exactly one, it is of no known family, or an argument is not affine under
    its link.
    """
    if followed.density is None:
        raise NoPredictorsError("there is not exactly one density of data")
    density = followed.density
    name = density.name
    if name not in SPECS:
        raise NoPredictorsError(f"the density {name} is not one of {', '.join(SPECS)}")
    y, *arguments = (of_one(one, n) for one in density.arguments)
    given, found = [_data(y, n, "what its density is of depends on parameters")], list[Number]()
    for k, (link, argument) in enumerate(zip(SPECS[name].links, arguments, strict=True)):
        if link.is_known:
            wrong = f"argument {k + 1} of {name} depends on parameters, but must be data"
            given.append(_data(argument, n, wrong))
            continue
        values = link.of(argument if link.is_vector else [argument])
        if not all(map(is_affine, values)):
            what = link.words.format(f"argument {k + 1} of {name}")
            raise NoPredictorsError(f"{what} is not affine in the unconstrained parameters")
        found += values
    some = next((one.slopes for one in found if is_kind(one, "affine")), None)
    if some is None:
        raise NoPredictorsError("the likelihood does not depend on parameters")
    none = none_like(some)
    rows = [Argument(one.slopes if is_kind(one, "affine") else none, _offset(one)) for one in found]
    return Affine(SPECS[name], given, rows)


def collected(
    parts: Iterable[tuple[slice, Affine, Sequence[Part]]], n: int, cut: Cut, columns: Sequence[DataColumn] | None = None
) -> tuple[Family, list[CollectedRows]]:
    """Return the family and the rows of its arguments for n observations, parts of which are followed in turn.

    Raises `NoPredictorsError` if the parts differ in their density; see `CollectedRows` for ``columns``.
    """
    specs, given, rows = list[Spec](), list[list[NDArray[Any]]](), list[CollectedRows]()
    for where, found, own in parts:
        specs.append(found.spec)
        given.append([compact(one) for one in found.given])
        rows = rows or [CollectedRows(n, found.arguments[0].slopes.shape[1], cut, columns) for _ in own]
        if found.spec != specs[0] or len(own) != len(rows):
            raise NoPredictorsError("its density differs between parts of the data")
        for one, part in zip(rows, own, strict=True):
            one.add(where, part)
    constant = [None if one.is_changing else one.offset() for one in rows]
    y, *others = (np.concatenate(one, dtype=np.float64) for one in zip(*given, strict=True))
    family, kept = specs[0].choose(Rows(y, others, constant))
    return family.compacted(), [rows[k] for k in kept]


def _by_columns(
    texts: Sequence[Text], n: int, sizes: Sequence[str], computed_from: int, check: Check
) -> LinearPredictors | None:
    """Return predictors whose designs are columns of the data, if designs would have more numbers than the last.

    The text is followed with parts of the data; None if that fails for any reason, or if there are several sums. The
    result needs a proof, because what the program computes from all its data, such as means, differs between parts.
    """
    text, *others = texts
    if others or n <= min(_ROWS, computed_from) or not sizes or not set(sizes) <= set(text.values.values):
        return None
    # The first few rows show most of what is no column of the data.
    ends = sorted({min(_FIRST, n), *np.linspace(0, n, -(-n // _FOLLOWED) + 1).astype(int).tolist()})

    def affine(rows: slice) -> tuple[slice, Affine, list[Part]]:
        k = rows.stop - rows.start
        found = affine_density(follow(text.program, cut.part(rows), k, check=check), k)
        if n * sum(one.slopes.shape[1] for one in found.arguments) <= computed_from:
            raise NoPredictorsError("its design has few numbers")
        return rows, found, [_nonzero(one, k) for one in found.arguments]

    try:
        cut = Cut.of(text.values, *sizes)
        family, kept = collected(map(affine, map(slice, ends, ends[1:])), n, cut, cut.columns)
    except InputError:
        return None
    first_offset, *rest = (one.offset() for one in kept)
    return LinearPredictors(tuple(one.design() for one in kept), (first_offset, *map(shortest, rest)), family)


def _nonzero(argument: Argument, n: int) -> Part:
    """Return the slopes of n observations that are not all 0."""
    slopes = dense(argument.slopes)
    some = np.flatnonzero(slopes.any(axis=0))
    return Part(n, {0: (some, slopes[:, some])}, {}, argument.offset)


def _data(x: Number, n: int, otherwise: str) -> FloatArray:
    """Return known values of all observations."""
    if (value := known(x)) is None:
        raise NoPredictorsError(otherwise)
    if isinstance(value, list) or np.shape(value) not in ((), (1,), (n,)):
        raise NoPredictorsError("the density is not of one number for each observation")
    return np.array(np.broadcast_to(value, n), np.float64)


def _offset(x: Number) -> FloatArray:
    values = x.values if is_kind(x, "affine") else known(x)
    return shortest(np.atleast_1d(np.asarray(values, np.float64)))


def _dense(family: Family, arguments: Sequence[Argument]) -> LinearPredictors:
    if sum(np.prod(one.slopes.shape, dtype=float) for one in arguments) > _MOST_NUMBERS:
        raise NoPredictorsError("the rows of the linear predictors take too much memory")
    first, *offsets = (one.offset for one in arguments)
    design = tuple(shortest(dense(one.slopes)) for one in arguments)
    return LinearPredictors(design, (np.broadcast_to(first, len(family.data[0])), *offsets), family)


class Compared(NamedTuple):
    """Log likelihoods of predictors beside those of the program."""

    holds: bool
    """Whether changes of all blocks' log likelihoods match."""
    constant: float | None = None
    """What the sum of all log likelihoods of the predictors lacks to the program's; None if rounding hides it."""


def compare(
    predictors: LinearPredictors,
    blocks: Blocks,
    points: Sequence[FloatArray],
    terms: Sequence[FloatArray],
    *,
    rounding: Callable[[FloatArray], FloatArray] | None = None,
) -> Compared:
    """Compare changes of all blocks' log likelihoods, given at the first points, with the family's.

    ``rounding`` returns the program's rounding errors from log likelihoods of single observations, if these matter.
    """
    n_blocks, n_terms = len(blocks), len(terms)
    fits = predictors.n_observations == blocks.n_observations and predictors.design[0].shape[1] == len(points[0])
    if not fits or n_terms < 2:
        return Compared(False)
    number = np.repeat(np.arange(n_blocks, dtype=np.int32), blocks.sizes)
    if predictors.order is not None:
        places, number = number, np.empty_like(number)
        number[predictors.order] = places

    def sums(part: LinearPredictors, rows: slice) -> tuple[FloatArray, float]:
        """Return changes of log likelihoods, their sizes and rounding errors by block, and the sum at the first point.

        The changes are from the first point to each other one.
        """
        at_first, *others = (part.family.log_lik(part.at(theta)) for theta in points[:n_terms])
        changes = [at_theta - at_first for at_theta in others]
        each: list[Sequence[FloatArray]] = [changes, [np.abs(one) for one in changes]]
        if rounding is not None:
            each.append([rounding(at_first) + rounding(at_theta) for at_theta in others])
        by_block = [[np.bincount(number[rows], one, n_blocks) for one in values] for values in each]
        return np.array(by_block), float(at_first.sum())

    found, total = np.zeros((2 + (rounding is not None), n_terms - 1, n_blocks)), 0.0
    for one, at_first in predictors.each(sums, threads=THREADS):
        found += one
        total += at_first
    own, size, *lost = found
    changed = np.stack(terms[1:]) - terms[0]
    allowed = _SAME * (1 + np.abs(terms[0]) + size) + (lost[0] if lost else 0.0)
    holds = bool((np.abs(own - changed) <= allowed).all())
    return Compared(holds, float(np.sum(terms[0])) - total if rounding is None else None)
