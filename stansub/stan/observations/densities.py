"""Densities of observations in a family with bounds: their arguments, the affine parts of these, and the family.

Each argument of a density has a link, under which it must be affine in the unconstrained parameters. The link is the
log for a positive parameter and the logit for a probability.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stansub.stan.observations.elementary import log, logit
from stansub.stan.observations.rowwise import Number, apply, is_kind
from stansub.target.categories import Categorical, Ordered
from stansub.target.dispersion import Gamma, NegativeBinomial2
from stansub.target.families import Binomial, Logistic, NegativeBinomial, Normal, Poisson, StudentT
from stansub.target.location_scale import (
    Errors,
    ExtremeErrors,
    LocationScale,
    LogisticErrors,
    NormalErrors,
    StudentErrors,
)
from stansub.target.remainders import Family
from stansub.types import FloatArray


class Link(NamedTuple):
    """Function of an argument that must be affine."""

    of: Callable[[Sequence[Number]], Sequence[Number]]
    """From its values for an observation to what must be affine: one value, or several for a vector."""
    words: str
    is_vector: bool = False
    """Whether an observation has several values of it."""
    is_known: bool = False
    """Whether it must not depend on parameters at all."""


def _cutpoints(values: Sequence[Number]) -> Sequence[Number]:
    return [values[0], *(apply("log", _step(a, b)) for a, b in pairwise(values))]


def _step(a: Number, b: Number) -> Number:
    """Return the difference b - a: the term that was added, if b was built that way."""
    return b.parts[1] if is_kind(b, "sum") and b.parts[0] is a else b - a


def _each(function: Callable[[Number], Number]) -> Callable[[Sequence[Number]], Sequence[Number]]:
    return lambda values: [function(one) for one in values]


IDENTITY = Link(list, "{}")
LOG = Link(_each(log), "the log of {}")
MINUS_LOG = Link(_each(lambda x: -log(x)), "the log of {}")
LOGIT = Link(_each(logit), "the logit of {}")
VECTOR = Link(list, "{}", is_vector=True)
CUTPOINTS = Link(_cutpoints, "the first, or the log of a difference, of {}", is_vector=True)
KNOWN = Link(list, "{}", is_known=True)


class Chosen(NamedTuple):
    """A family, and the rows of arguments that it takes, in its order."""

    family: Family
    rows: tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """Input for the choice of a family."""

    y: FloatArray
    """Shape (n,): the observations."""
    known: Sequence[FloatArray]
    """Each of shape (n,): arguments that must be known."""
    constant: Sequence[FloatArray | None]
    """Each of shape (n,): the others after their links, row by row: their values, or None if they depend on parameters.
    """


class Spec(NamedTuple):
    """A density: the links of its arguments, in Stan's order, and the family."""

    links: tuple[Link, ...]
    choose: Callable[[Rows], Chosen]


def _located(single: Callable[..., Family], errors: Callable[..., Errors]) -> Callable[[Rows], Chosen]:
    """Return the choice for a location and the log of a scale."""

    def choose(rows: Rows) -> Chosen:
        log_scale = rows.constant[1]
        if log_scale is None:
            known = [one[:1] if (one == one[0]).all() else one for one in rows.known]
            return Chosen(LocationScale(rows.y, errors(*known)), (0, 1))
        return Chosen(single(rows.y, *rows.known, np.exp(log_scale)), (0,))

    return choose


def _negative_binomial(rows: Rows) -> Chosen:
    log_phi = rows.constant[1]
    if log_phi is None:
        return Chosen(NegativeBinomial2(rows.y), (0, 1))
    return Chosen(NegativeBinomial(rows.y, np.exp(log_phi)), (0,))


def _gamma(rows: Rows) -> Chosen:
    log_shape = rows.constant[0]
    return Chosen(Gamma(rows.y), (0, 1)) if log_shape is None else Chosen(Poisson(np.exp(log_shape), rows.y), (1,))


def _binomial(rows: Rows) -> Chosen:
    trials = rows.known[0] if rows.known else np.ones_like(rows.y)
    return Chosen(Binomial(rows.y, trials), (0,))


def _poisson(rows: Rows) -> Chosen:
    return Chosen(Poisson(rows.y, np.ones_like(rows.y)), (0,))


def _categories(family: Callable[..., Family]) -> Callable[[Rows], Chosen]:
    def choose(rows: Rows) -> Chosen:
        k = len(rows.constant)
        return Chosen(family(rows.y.astype(np.int64) - 1, k), tuple(range(k)))

    return choose


_NORMAL = _located(Normal, NormalErrors)
SPECS = {
    "bernoulli_logit": Spec((IDENTITY,), _binomial),
    "bernoulli": Spec((LOGIT,), _binomial),
    "binomial_logit": Spec((KNOWN, IDENTITY), _binomial),
    "binomial": Spec((KNOWN, LOGIT), _binomial),
    "poisson_log": Spec((IDENTITY,), _poisson),
    "poisson": Spec((LOG,), _poisson),
    "neg_binomial_2_log": Spec((IDENTITY, LOG), _negative_binomial),
    "neg_binomial_2": Spec((LOG, LOG), _negative_binomial),
    "normal": Spec((IDENTITY, LOG), _NORMAL),
    "lognormal": Spec((IDENTITY, LOG), lambda rows: _NORMAL(replace(rows, y=np.log(rows.y)))),
    "student_t": Spec((KNOWN, IDENTITY, LOG), _located(StudentT, StudentErrors)),
    "cauchy": Spec(
        (IDENTITY, LOG),
        _located(lambda y, scale: StudentT(y, np.ones_like(y), scale), lambda: StudentErrors(np.ones(1))),
    ),
    "logistic": Spec((IDENTITY, LOG), _located(Logistic, LogisticErrors)),
    "gamma": Spec((LOG, LOG), _gamma),
    "exponential": Spec((LOG,), lambda rows: Chosen(Poisson(np.ones_like(rows.y), rows.y), (0,))),
    "weibull": Spec((MINUS_LOG, LOG), lambda rows: Chosen(LocationScale(np.log(rows.y), ExtremeErrors()), (1, 0))),
    "categorical_logit": Spec((VECTOR,), _categories(Categorical)),
    "ordered_logistic": Spec((IDENTITY, CUTPOINTS), _categories(Ordered)),
}


class Product(NamedTuple):
    """A density that contains the product of a matrix and coefficients."""

    density: str
    """The density without the product."""
    place: int
    """Position of the matrix among its arguments."""
    n_arguments: int
    """Number of arguments, from the matrix on, that replace one."""


PRODUCTS = {
    "bernoulli_logit_glm": Product("bernoulli_logit", 0, 3),
    "binomial_logit_glm": Product("binomial_logit", 1, 3),
    "poisson_log_glm": Product("poisson_log", 0, 3),
    "neg_binomial_2_log_glm": Product("neg_binomial_2_log", 0, 3),
    "normal_id_glm": Product("normal", 0, 3),
    "categorical_logit_glm": Product("categorical_logit", 0, 3),
    "ordered_logistic_glm": Product("ordered_logistic", 0, 2),
}
