"""Functions of Stan's library on containers of an observation's numbers (`stansub.stan.observations.containers`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add, mul
from typing import Any, NamedTuple

import numpy as np
import scipy

from stansub.stan.observations import expansions, tails
from stansub.stan.observations.branches import Sign
from stansub.stan.observations.containers import (
    Rows,
    Total,
    Value,
    by_row,
    dims_of,
    dot,
    elementwise,
    is_known,
    is_of_data,
    plain,
    product,
    real,
    simplest,
    total,
)
from stansub.stan.observations.densities import PRODUCTS
from stansub.stan.observations.elementary import OfDataError, exp, known_only, log_phi, log_sum_exp
from stansub.stan.observations.operators import is_integer
from stansub.stan.observations.rowwise import NotFollowedError, Number, apply, data, known

Builtin = Callable[[Sequence[Value], int], Value]


class Density(NamedTuple):
    """A density of observations."""

    name: str
    """Name of the density without the product of a matrix and coefficients."""
    arguments: tuple[Value, ...]
    """Outcome and arguments, for all observations."""


def density(name: str, arguments: Sequence[Value], n: int) -> tuple[Value, Density]:
    """Return the sum of the log densities of the outcomes, with the density."""
    arguments = _numbers(arguments)
    if (with_product := PRODUCTS.get(name)) is not None:
        arguments = _with_predictor(name, arguments, n)
        name = with_product.density
    try:
        if name in _CATEGORIES:
            found = _over_categories(_CATEGORIES[name], arguments, n)
        elif name in expansions.VECTORS:
            found = _over_vectors(expansions.VECTORS[name], arguments, n)
        elif name in expansions.DENSITIES:
            found = elementwise(expansions.DENSITIES[name], arguments, n)
        else:
            raise NotFollowedError(f"the density {name} is not supported")
    except OfDataError as error:
        raise OfDataError(f"the density {name}") from error
    return total(found, n), Density(name, tuple(arguments))


def truncation(
    name: str, arguments: Sequence[Value], low: Value | None, high: Value | None, of: Callable[..., Value]
) -> Value:
    """Return the log of the probability between two bounds, either of which may be None; ``of`` calls functions."""
    if isinstance(arguments[0], np.ndarray | Rows):
        raise NotFollowedError("the truncation of a container is not supported")

    def tail(end: str, at: Value) -> Value:
        return of(f"{name}_{end}", [at, *arguments[1:]])

    if low is None:
        return 0.0 if high is None else tail("lcdf", high)
    low = low - 1 if is_integer(arguments[0]) else low
    return tail("lccdf", low) if high is None else of("log_diff_exp", [tail("lcdf", high), tail("lcdf", low)])


def _numbers(arguments: Sequence[Value]) -> list[Value]:
    """Return arguments with 1 or 0 for conditions on parameters."""
    return [one.number if isinstance(one, Sign) else one for one in arguments]


def of_one(x: Value, n: int) -> Value:
    """Return an observation's part."""
    x = simplest(x)
    return x.inner if isinstance(x, Rows) else by_row(x) if isinstance(x, np.ndarray) and len(x) == n else x


def _with_predictor(name: str, arguments: Sequence[Value], n: int) -> list[Value]:
    """Return the arguments with a linear predictor instead of a matrix and coefficients."""
    place = 1 + PRODUCTS[name].place
    if name == "ordered_logistic_glm":
        x, beta, cuts = arguments[place:]
        return [*arguments[:place], _times(x, beta, n), cuts]
    if name == "categorical_logit_glm":
        x, alpha, beta = arguments[place:]
        inner = elementwise(add, [alpha, of_one(product(x, beta, n), n)], -1)
        return [*arguments[:place], Rows(inner)]
    x, alpha, beta, *rest = arguments[place:]
    return [*arguments[:place], elementwise(add, [alpha, _times(x, beta, n)], n), *rest]


def _times(x: Value, beta: Value, n: int) -> Value:
    return product(x, np.atleast_1d(beta), n)


def _over_categories(of: Callable[..., Number], arguments: Sequence[Value], n: int) -> Value:
    """Return a density of categories, with a vector of arguments per observation."""
    y, *rest = (simplest(one) for one in arguments)
    if not isinstance(y, np.ndarray | Rows):
        return of(y, *(_vector(one) for one in rest))
    inner = [of_one(one, n) for one in rest]
    observed = of_one(y, n)
    if isinstance(y, np.ndarray) and len(y) != n:
        raise NotFollowedError("the categories do not have one value per observation")
    which = y.which if isinstance(y, Rows) else None
    return simplest(Rows(of(observed, *(_vector(one) for one in inner)), which))


def _over_vectors(of: Callable[..., Number], arguments: Sequence[Value], n: int) -> Value:
    """Return a density of a vector, one per observation or one for all."""
    y = simplest(arguments[0])
    if not isinstance(y, Rows) and np.ndim(y) < 2:
        return of(*(simplest(one) for one in arguments))
    inner = [of_one(one, n) for one in arguments]
    return simplest(Rows(of(*inner), y.which if isinstance(y, Rows) else None))


def _vector(x: Value) -> Value:
    return list(x) if isinstance(x, np.ndarray) else x


_CATEGORIES: dict[str, Callable[..., Number]] = {
    "categorical_logit": expansions.categorical_logit,
    "categorical": expansions.categorical,
    "ordered_logistic": lambda y, eta, cuts: expansions.ordered(
        y, eta, cuts, lambda z: -apply("log1p_exp", -z), lambda z: -apply("log1p_exp", z)
    ),
    "ordered_probit": lambda y, eta, cuts: expansions.ordered(y, eta, cuts, log_phi, lambda z: log_phi(-z)),
}


def _mapped(function: Callable[..., Number]) -> Builtin:
    return lambda arguments, n: elementwise(function, arguments, n)


def _summed(function: Callable[..., Number]) -> Builtin:
    """Return a distribution function whose logs are summed."""
    return lambda arguments, n: total(elementwise(function, arguments, n), n)


def _of_known(function: Callable[..., Any]) -> Builtin:
    def of(arguments: Sequence[Value], n: int) -> Value:
        if not all(map(is_known, arguments)):
            return _row_by_row(function, arguments, n)
        return plain(function(*arguments))

    return of


def _row_by_row(function: Callable[..., Any], arguments: Sequence[Value], n: int) -> Value:
    """Return a function of the data of each observation, which is a number."""
    if any(isinstance(one, Rows | Total) for one in arguments) or not all(map(is_of_data, arguments)):
        raise OfDataError
    rows = [np.stack([np.broadcast_to(known(one), n) for one in np.ravel(x)]) for x in arguments]
    shapes = [np.shape(x) for x in arguments]
    found = [
        function(*(row[:, k].reshape(shape)[()] for row, shape in zip(rows, shapes, strict=True))) for k in range(n)
    ]
    if np.ndim(found) > 1:
        raise NotFollowedError("a function of an observation's data is a container")
    return data(np.array(found))


def _of_entries(function: Callable[..., Any]) -> Builtin:
    """Return a function of small containers, of numbers and expressions."""

    def of(arguments: Sequence[Value], n: int) -> Value:
        if any(isinstance(one, Rows | Total) for one in arguments):
            raise NotFollowedError("a function of all observations is not supported")
        return simplest(plain(function(*arguments)))

    return of


def _extreme(of_entries: Callable[[Any], Any], of_two: Callable[[Any, Any], Any], of_parameters: str) -> Builtin:
    """Return the largest or smallest entry, or one of two integers."""
    single, double = _of_known(of_entries), _mapped(known_only(of_two))

    def of(arguments: Sequence[Value], n: int) -> Value:
        if len(arguments) > 1:
            return double(arguments, n)
        (x,) = arguments
        is_small = isinstance(x, np.ndarray) and not is_known(x)
        return reduce(expansions.ELEMENTARY[of_parameters], x.flat) if is_small else single(arguments, n)

    return of


def _mean(x: Value) -> Value:
    return np.mean(x) if np.size(x) else np.nan  # rows of a sum may be left out


def _variance(x: Value) -> Value:
    return np.var(x, ddof=1) if np.size(x) > 1 else 0.0


def _inverse(x: Value) -> Value:
    return np.linalg.inv(x) if is_known(x) else expansions.inverse(x)[0]


def _log_determinant(x: Value) -> Value:
    return np.linalg.slogdet(x)[1] if is_known(x) else expansions.inverse(x)[1]


def _forward(factor: Value, y: Value) -> Value:
    found = np.empty(len(y), dtype=object)
    found[:] = expansions.forward(factor, list(y))
    return found


def _sum_of_squares(x: Value) -> Number:
    return dot(x, x)


def _diag_matrix(x: Value) -> Value:
    found = np.zeros((len(x), len(x)), x.dtype)
    found[np.diag_indices(len(x))] = x
    return found


def _repeated(arguments: Sequence[Value], n: int) -> Value:
    first, *sizes = arguments
    inner = np.asarray(first)
    return np.broadcast_to(inner, (*map(int, sizes), *inner.shape)).copy()


def _beside(arguments: Sequence[Value], n: int) -> Value:
    """Return columns beside each other: of all observations, or of a small matrix or row vector."""
    parts = [simplest(one) for one in arguments]
    if all((isinstance(one, Rows) and one.which is None) or np.shape(one)[:1] == (n,) for one in parts):
        if all(map(is_known, parts)):
            return np.column_stack(parts)
        inner = [np.atleast_1d(np.asarray(of_one(one, n), dtype=object)) for one in parts]
        return simplest(Rows(np.concatenate(inner)))
    dims = {np.ndim(one) for one in parts}
    if dims == {1}:
        raise NotFollowedError("vectors are combined that may be rows or columns")
    return simplest(np.column_stack(parts)) if 2 in dims else _joined(parts, n)


def _log_sum_exp(arguments: Sequence[Value], n: int) -> Value:
    if len(arguments) == 1:
        (terms,) = arguments
        if isinstance(terms, Rows):
            raise NotFollowedError("the log of a sum over observations is not supported")
        return log_sum_exp(*terms.ravel())
    return elementwise(log_sum_exp, arguments, n)


def _log_softmax(arguments: Sequence[Value], n: int) -> Value:
    (terms,) = arguments
    all_of_them = log_sum_exp(*terms.ravel())
    return elementwise(lambda x: x - all_of_them, [terms], -1)


def _dot(arguments: Sequence[Value], n: int) -> Value:
    a, b = arguments
    if isinstance(a, Rows) or isinstance(b, Rows):
        return total(elementwise(lambda x, y: x * y, [a, b], n), n)
    return dot(a, b)


def _rows_dot(arguments: Sequence[Value], n: int) -> Value:
    a, b = arguments
    if not all(isinstance(one, Rows) or (isinstance(one, np.ndarray) and len(one) == n) for one in (a, b)):
        raise NotFollowedError("a product of rows does not have one value per observation")
    inner = [one.inner if isinstance(one, Rows) else by_row(one) for one in (a, b)]
    return simplest(Rows(dot(*inner)))


def _same(arguments: Sequence[Value], n: int) -> Value:
    (x,) = arguments
    if isinstance(x, np.ndarray) and x.ndim == 2:
        return x.T.ravel()
    return x


def _real(arguments: Sequence[Value], n: int) -> Value:
    return elementwise(lambda x: 1.0 * x if is_integer(x) else x, [_same(arguments, n)], n)


def _in_columns(x: Any, m: Any, k: Any, by_columns: Any = 1) -> Value:
    """Return the elements in a matrix, filled by columns or rows."""
    flat = x if x.ndim == 1 else x.T.ravel()
    return real(flat).reshape((int(m), int(k)), order="F" if by_columns else "C")


def _joined(arguments: Sequence[Value], n: int) -> Value:
    if any(isinstance(one, Rows | Total) for one in arguments):
        raise NotFollowedError("containers of observations are concatenated")
    parts = [one if isinstance(one, np.ndarray) else np.array([one]) for one in arguments]
    return simplest(np.concatenate(parts))


def _diagonal(arguments: Sequence[Value], n: int) -> Value:
    d, m = arguments
    if isinstance(d, Rows) or isinstance(m, Rows):
        return elementwise(mul, [d, m], n)
    return elementwise(mul, [np.broadcast_to(d[:, np.newaxis], m.shape), m], -1)


def _scaled_columns(arguments: Sequence[Value], n: int) -> Value:
    m, d = arguments
    if isinstance(m, Rows) or (is_known(m) and len(m) == n and not is_known(d)):
        inner = elementwise(mul, [of_one(m, n), d], -1)
        return simplest(Rows(inner, m.which if isinstance(m, Rows) else None))
    return elementwise(mul, [m, np.broadcast_to(d, m.shape)], -1)


def _thin_qr(part: int) -> Callable[[Any], Any]:
    """Return a factor of a matrix whose R has a positive diagonal."""

    def of(x: Any) -> Any:
        q, r = np.linalg.qr(x)
        signs = np.where(np.diag(r) < 0, -1.0, 1.0)
        return (q * signs, signs[:, np.newaxis] * r)[part]

    return of


# Functions whose sizes and places must be the same for all observations that are followed at once.
SIZED = frozenset(
    {
        *("head", "tail", "linspaced_vector", "linspaced_row_vector"),
        *("rep_vector", "rep_row_vector", "rep_array", "rep_matrix", "zeros_vector", "ones_vector"),
        "to_matrix",
    }
)
SIZES = frozenset({"size", "rows", "num_elements"})


def _constant(value: Any) -> Builtin:
    return lambda arguments, n: float(value)


FUNCTIONS: dict[str, Builtin] = {
    **{name: _mapped(function) for name, function in expansions.ELEMENTARY.items()},
    **{name: _summed(function) for name, function in tails.TAILS.items()},
    "student_t_lccdf": _of_known(lambda y, nu, mu, sigma: scipy.stats.t.logsf(y, nu, mu, sigma)),
    "student_t_lcdf": _of_known(lambda y, nu, mu, sigma: scipy.stats.t.logcdf(y, nu, mu, sigma)),
    "sum": lambda arguments, n: total(arguments[0], n),
    "mean": _of_entries(_mean),
    "sd": _of_known(lambda x: np.sqrt(_variance(x))),
    "variance": _of_known(_variance),
    "max": _extreme(np.max, np.maximum, "fmax"),
    "min": _extreme(np.min, np.minimum, "fmin"),
    "prod": _of_entries(np.prod),
    "cumulative_sum": _of_entries(np.cumsum),
    "reverse": _of_entries(np.flip),
    "head": _of_entries(lambda x, k: x[: int(k)]),
    "tail": _of_entries(lambda x, k: x[len(x) - int(k) :]),
    "diagonal": _of_entries(np.diag),
    "diag_matrix": _of_entries(_diag_matrix),
    "add_diag": _of_entries(lambda m, d: m + _diag_matrix(np.broadcast_to(np.asarray(d, object), len(m)))),
    "crossprod": lambda arguments, n: product(arguments[0].T, arguments[0], n),
    "tcrossprod": lambda arguments, n: product(arguments[0], arguments[0].T, n),
    "identity_matrix": _of_entries(lambda k: np.eye(int(k))),
    "distance": _of_entries(lambda x, y: apply("sqrt", _sum_of_squares(x - y))),
    "squared_distance": _of_entries(lambda x, y: _sum_of_squares(x - y)),
    "norm1": _of_entries(lambda x: sum(apply("abs", one) for one in x)),
    "trace": _of_entries(np.trace),
    "norm2": _of_entries(lambda x: apply("sqrt", _sum_of_squares(x))),
    "dims": lambda arguments, n: np.array(dims_of(arguments[0], n), np.int64),
    "choose": _mapped(known_only(lambda n, k: np.round(scipy.special.comb(n, k)).astype(np.int64))),
    **dict.fromkeys(("inverse", "inverse_spd"), _of_entries(_inverse)),
    **dict.fromkeys(("log_determinant", "log_determinant_spd"), _of_entries(_log_determinant)),
    "mdivide_left_tri_low": _of_entries(_forward),
    "quad_form": lambda arguments, n: product(arguments[1].T, product(arguments[0], arguments[1], n), n),
    "qr_thin_Q": _of_known(_thin_qr(0)),
    "qr_thin_R": _of_known(_thin_qr(1)),
    "fmod": _mapped(known_only(np.fmod)),
    **dict.fromkeys(("rep_vector", "rep_row_vector", "rep_array", "rep_matrix"), _repeated),
    **dict.fromkeys(("zeros_vector", "zeros_row_vector", "zeros_array"), _of_known(lambda k: np.zeros(int(k)))),
    **dict.fromkeys(("ones_vector", "ones_row_vector", "ones_array"), _of_known(lambda k: np.ones(int(k)))),
    "zeros_int_array": _of_known(lambda k: np.zeros(int(k), np.int64)),
    "ones_int_array": _of_known(lambda k: np.ones(int(k), np.int64)),
    "linspaced_int_array": _of_known(lambda k, a, b: np.linspace(a, b, k).astype(np.int64)),
    **dict.fromkeys(
        ("linspaced_vector", "linspaced_row_vector", "linspaced_array"), _of_known(lambda k, a, b: np.linspace(a, b, k))
    ),
    **dict.fromkeys(("size", "rows"), lambda arguments, n: (*dims_of(arguments[0], n), 1)[0]),
    "cols": lambda arguments, n: dims_of(arguments[0], n)[-1],
    "num_elements": lambda arguments, n: math.prod(dims_of(arguments[0], n)),
    "to_array_1d": _same,
    **dict.fromkeys(("to_vector", "to_row_vector"), _real),
    "to_matrix": _of_entries(_in_columns),
    "transpose": lambda arguments, n: arguments[0].T if isinstance(arguments[0], np.ndarray) else arguments[0],
    **dict.fromkeys(("append_row", "append_array"), _joined),
    "append_col": _beside,
    "log_sum_exp": _log_sum_exp,
    "softmax": lambda arguments, n: elementwise(exp, [_log_softmax(arguments, n)], -1),
    "log_softmax": _log_softmax,
    "dot_product": _dot,
    "multiply": lambda arguments, n: product(arguments[0], arguments[1], n),
    "rows_dot_product": _rows_dot,
    "rows_dot_self": lambda arguments, n: _rows_dot([arguments[0], arguments[0]], n),
    "diag_pre_multiply": _diagonal,
    "diag_post_multiply": _scaled_columns,
    "quad_form_diag": lambda arguments, n: _diagonal([arguments[1], _diagonal([arguments[1], arguments[0]], n).T], n),
    "cholesky_decompose": _of_entries(expansions.cholesky),
    "multiply_lower_tri_self_transpose": lambda arguments, n: product(arguments[0], arguments[0].T, n),
    "dot_self": lambda arguments, n: _dot([arguments[0], arguments[0]], n),
    "pi": _constant(np.pi),
    "e": _constant(math.e),
    "sqrt2": _constant(np.sqrt(2)),
    "log2": lambda arguments, n: (
        float(np.log(2)) if not arguments else elementwise(lambda x: apply("log", x) / np.log(2), arguments, n)
    ),
    "negative_infinity": _constant(-np.inf),
    "positive_infinity": _constant(np.inf),
    "not_a_number": _constant(np.nan),
    "machine_precision": _constant(np.finfo(float).eps),
}


def call(name: str, arguments: Sequence[Value], n: int) -> Value:
    """Return the value of a function of Stan's library."""
    try:
        return FUNCTIONS[name](_numbers(arguments), n)
    except OfDataError as error:
        raise OfDataError(name) from error
