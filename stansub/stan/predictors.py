"""How observations depend on the parameters, followed through the text of a program with its data, and proved.

The density of an observation gives the family, where that is known and each of its arguments is affine in the
unconstrained parameters under its link; otherwise the log likelihood becomes a program of such arguments. Nothing is
compiled. The text is believed only if the log likelihoods of all blocks change as those of the user's program do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from stansub.errors import InputError
from stansub.stan.builtins import Density, of_one
from stansub.stan.densities import SPECS, Rows
from stansub.stan.family import CHANGING, not_known
from stansub.stan.observation import follow
from stansub.stan.row_program import program_predictors, tail_rounding
from stansub.stan.rowwise import Number, Slopes, dense, is_affine, is_kind, known, none_like
from stansub.stan.syntax import Program
from stansub.target.blocks import Blocks
from stansub.target.gradients import THREADS
from stansub.target.remainders import Family, LinearPredictors, NoPredictorsError
from stansub.types import FloatArray

# Relative rounding of log likelihoods; numbers of all rows of a design.
_SAME, _MOST_NUMBERS = 1e-8, 1 << 30


class Text(NamedTuple):
    """What is followed.

    Attributes
    ----------
    program : Program
    values : mapping
        Its data, and transformed data as far as they are known.
    """

    program: Program
    values: Mapping[str, Any]


class Argument(NamedTuple):
    """An argument of all observations, affine in the unconstrained parameters.

    Attributes
    ----------
    slopes : ndarray or csr_array, shape (n, dim) or (1, dim)
    offset : ndarray, shape (n,) or (1,)
    """

    slopes: Slopes
    offset: FloatArray


def proved_predictors(
    text: Text,
    blocks: Blocks,
    *,
    order: Any,
    points: Sequence[FloatArray],
    terms: Sequence[FloatArray],
    of_family: bool = False,
) -> LinearPredictors:
    """Return how observations depend on the parameters, proved.

    Parameters
    ----------
    text : Text
    blocks, order, points
        Of a `stansub.stan.posterior.Posterior`.
    terms : sequence of ndarray, shape (n_blocks,)
        Log likelihoods of the blocks at the first of the points.
    of_family : bool
        Whether only a family that is known will do.

    Raises
    ------
    NoPredictorsError
        When the text cannot be followed, or is followed wrongly; the message says where.
    """
    try:
        found = replace(predictors_of(text, blocks.n_observations, of_family=of_family), order=order)
    except NoPredictorsError:
        raise
    except InputError as error:
        raise NoPredictorsError(str(error)) from error
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        # A text can say anything; what is not followed has no bounds.
        raise NoPredictorsError(f"its text is not followed ({type(error).__name__})") from error
    if not is_proved(found, blocks, points, terms, rounding=tail_rounding(found.family)):
        raise NoPredictorsError("what its text shows is not the log likelihood of the blocks")
    return found


def predictors_of(text: Text, n: int, *, of_family: bool = False) -> LinearPredictors:
    """Return how n observations depend on the parameters, as the text says; to be proved.

    Raises
    ------
    InputError
        When the text cannot be followed; it says where.
    """
    followed = follow(text.program, text.values, n)
    try:
        if followed.density is None:
            raise NoPredictorsError("there is not exactly one density of data")
        return _dense(*in_family(followed.density, n))
    except NoPredictorsError:
        if of_family:
            raise
    return program_predictors(followed.term, n)


def in_family(density: Density, n: int) -> tuple[Family, list[Argument]]:
    """Return the family of a density, and its arguments.

    Raises
    ------
    NoPredictorsError
        When it is of no family that is known, or an argument is not affine under its link.
    """
    name = density.name
    if name not in SPECS:
        raise NoPredictorsError(f"{name} is none of {', '.join(SPECS)}")
    y, *arguments = (of_one(one, n) for one in density.arguments)
    given, found = [_data(y, n, CHANGING)], list[Number]()
    for k, (link, argument) in enumerate(zip(SPECS[name].links, arguments, strict=True)):
        if link.is_known:
            given.append(_data(argument, n, not_known(name, k)))
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
    constant = [None if _is_changing(row) else np.broadcast_to(row.offset, n) for row in rows]
    family, kept = SPECS[name].choose(Rows(given[0], given[1:], constant))
    return family, [rows[k] for k in kept]


def _data(x: Number, n: int, otherwise: str) -> FloatArray:
    """What is known, of all observations."""
    if (value := known(x)) is None:
        raise NoPredictorsError(otherwise)
    return np.array(np.broadcast_to(value, n), np.float64)


def _offset(x: Number) -> FloatArray:
    values = x.values if is_kind(x, "affine") else known(x)
    return _shortest(np.atleast_1d(np.asarray(values, np.float64)))


def _is_changing(argument: Argument) -> bool:
    slopes = argument.slopes
    return bool(slopes.count_nonzero() if isinstance(slopes, sp.csr_array) else slopes.any())


def _shortest(values: FloatArray) -> FloatArray:
    """One entry, or row, where all are the same."""
    return values[:1] if (values == values[0]).all() else values


def _dense(family: Family, arguments: Sequence[Argument]) -> LinearPredictors:
    if sum(np.prod(one.slopes.shape, dtype=float) for one in arguments) > _MOST_NUMBERS:
        raise NoPredictorsError("the rows of its arguments take too much memory")
    first, *offsets = (one.offset for one in arguments)
    design = tuple(_shortest(dense(one.slopes)) for one in arguments)
    return LinearPredictors(design, (np.broadcast_to(first, family.data.shape[1]), *offsets), family)


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
