"""Numbers of one observation as expressions of its data and of what is affine in the unconstrained parameters.

All observations are processed at once: data are arrays with an entry for each, and an affine expression has a row of
coefficients for each or one for all. Known values are computed. The rest is recorded as the operations of
`stansub._loop.Program`, in the form with the least cancellation: logarithms of products are sums, 1 - inv_logit(x) is
inv_logit(-x).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.errors import InputError
from stansub.stan.observations.operations import BINARY, FUNCTIONS, common_limit, is_all
from stansub.stan.observations.slopes import Slopes, none_like, rows_in_stack, scaled, stacked, sum_of
from stansub.target.programs import SIDES
from stansub.types import FloatArray


class NotFollowedError(InputError):
    """The text of a likelihood cannot be followed; the message says where."""


class NestedError(NotFollowedError):
    """A value is the result of too many operations in a row, as in a recursion over observations."""


# Maximum number of operations in a row. Programs of observations have fewer (`stansub.stan.observations.row_program`).
MOST_NESTED = 2000

Number = Any  # a number, or an expression
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Expression:
    """A number of each observation."""

    kind: str
    """``data``, ``affine``, ``select`` (the first of two where a mask holds), or an operation."""
    parts: tuple[Number, ...] = ()
    """Operands of an operation: expressions and numbers."""
    values: NDArray[Any] | None = None
    """Shape (n,): values of data, the mask of a selection, or the constant of an affine expression, which may have one
    entry.
    """
    slopes: Slopes | None = None
    """Shape (n, dim) or (1, dim): slopes of an affine expression."""
    is_single: bool = field(init=False)
    """Whether it is the same for all observations."""
    depth: int = field(init=False)
    """Operations in a row, its own included."""
    has_sides: bool = field(init=False)
    """Whether it is a side of a branch, or a sum or product that has one in its terms or factors."""

    def __post_init__(self) -> None:
        parts = [one for one in self.parts if isinstance(one, Expression)]
        depth = 1 + max((one.depth for one in parts), default=0)
        if depth > MOST_NESTED:
            raise NestedError(f"a value is the result of more than {MOST_NESTED} operations in a row")
        object.__setattr__(self, "depth", depth)
        single = self.kind not in ("data", "select") and all(one.is_single for one in parts)
        if self.slopes is not None and self.values is not None:
            single = self.slopes.shape[0] == len(self.values) == 1
        object.__setattr__(self, "is_single", single)
        sides = self.kind in ("sum", "difference", "product") and any(one.has_sides for one in parts)
        object.__setattr__(self, "has_sides", sides or self.kind in SIDES)

    @cached_property  # kept, because a recursion over parts that are shared has exponentially many paths
    def is_positive(self) -> bool:
        """Whether it is certainly positive for all observations."""
        if self.kind == "data":
            return bool(np.all(self.values > 0))  # type: ignore[operator]
        if self.kind in ("exp", "inv_logit", "log1p_exp"):
            return True
        return self.kind in ("product", "sum", "inv", "sqrt", "square") and all(map(is_positive, self.parts))

    @cached_property
    def complement(self) -> Number | None:
        """1 less the number, in a form in which numbers near 1 do not cancel; None if there is none."""
        if self.kind == "inv_logit":
            return apply("inv_logit", -self.parts[0])
        if self.kind == "difference" and is_all(known(self.parts[0]), 1):
            return self.parts[1]
        for lower, rest in (self.parts, self.parts[::-1]) if self.kind == "sum" else ():
            above = _complement(lower) if is_kind(rest, "product") else None  # once for both factors
            for width, share in (rest.parts, rest.parts[::-1]) if is_kind(rest, "product") else ():
                outside = 0.0 if above is not None and is_same(above, width) else _above(lower, width)
                if outside is not None and (left := _complement(share)) is not None:
                    return outside + width * left
        return None

    def __add__(self, other: Number) -> Number:
        return self._combined("sum", other)

    def __radd__(self, other: Number) -> Number:
        return combine("sum", other, self)

    def __sub__(self, other: Number) -> Number:
        return self._combined("difference", other)

    def __rsub__(self, other: Number) -> Number:
        return combine("difference", other, self)

    def __mul__(self, other: Number) -> Number:
        return self._combined("product", other)

    def __rmul__(self, other: Number) -> Number:
        return combine("product", other, self)

    def __truediv__(self, other: Number) -> Number:
        return combine("product", self, apply("inv", other))

    def __rtruediv__(self, other: Number) -> Number:
        return combine("product", other, apply("inv", self))

    def _combined(self, kind: str, other: Number) -> Number:
        """Return the combination with a number; other types, such as sums over observations, define their own."""
        is_one = isinstance(other, Expression | float | int | np.generic)
        return combine(kind, self, other) if is_one else NotImplemented

    def __neg__(self) -> Number:
        return combine("product", -1, self)


def data(values: NDArray[Any]) -> Expression:
    """Return data with an entry for each observation."""
    return Expression("data", values=values)


def affine(slopes: Slopes, values: FloatArray) -> Expression:
    """Return an expression that is affine in the unconstrained parameters."""
    if isinstance(slopes, sp.csr_array):
        slopes.sort_indices()  # scipy sorts them in place when it needs to, also those that matrices share
    return Expression("affine", values=values, slopes=slopes)


def known(x: Number) -> Any:
    """Return a known value: a number, or an array with an entry for each observation; None for anything else."""
    if not isinstance(x, Expression):
        return x
    return x.values if x.kind == "data" else None


def wrapped(x: Any) -> Number:
    """Return numbers as an expression: an array is data of each observation."""
    return data(x) if isinstance(x, np.ndarray) and x.ndim == 1 else x


def is_kind(x: Number, kind: str) -> bool:
    """Return whether a value is an expression of this kind."""
    return isinstance(x, Expression) and x.kind == kind


def is_same(a: Number, b: Number, same: set[tuple[int, int]] | None = None) -> bool:
    """Return whether two numbers are the same operations of the same data and affine expressions."""
    same = set() if same is None else same  # pairs of parts that are the same, so that each is compared once
    if a is b or (id(a), id(b)) in same:
        return True
    if not isinstance(a, Expression) or not isinstance(b, Expression):
        return not isinstance(a, Expression) and not isinstance(b, Expression) and bool(a == b)
    if a.kind != b.kind or len(a.parts) != len(b.parts) or (a.slopes is None) != (b.slopes is None):
        return False
    if a.values is not None and (b.values is None or not np.array_equal(a.values, b.values)):
        return False
    slopes, others = a.slopes, b.slopes
    if slopes is not None and others is not None and (slopes.shape != others.shape or abs(slopes - others).max() > 0):
        return False
    if all(is_same(x, y, same) for x, y in zip(a.parts, b.parts, strict=True)):
        same.add((id(a), id(b)))
    return (id(a), id(b)) in same


def is_positive(x: Number) -> bool:
    """Return whether a value is certainly positive."""
    return x.is_positive if isinstance(x, Expression) else bool(np.all(x > 0))


def select(mask: Mask, first: Number, other: Number) -> Number:
    """Return the first of two values where a mask holds, the second elsewhere."""
    if first is other or mask.all():
        return first
    if not mask.any():
        return other
    a, b = known(first), known(other)
    if a is not None and b is not None:
        return data(np.where(mask, a, b))
    if is_affine(first) and is_affine(other):
        return pick((other, first), mask.astype(np.int64))
    return Expression("select", (first, other), values=mask)


def combine(kind: str, a: Number, b: Number) -> Number:
    """Return an operation on two numbers, or a shorter form of it."""
    x, y = known(a), known(b)
    with np.errstate(all="ignore"):
        if x is not None and y is not None:
            return wrapped(BINARY[kind](x, y))
        if kind == "product":
            return _product(a, b, x, y)
        if kind == "log_sum_exp":
            return _log_sum_exp(a, b)
        if kind == "same" and x is not None and not np.isfinite(x).any():
            return b
        if kind in ("log_gamma_above", "log_gamma_below", "log_mean_normal", "same"):
            return Expression(kind, (a, b))
        if kind in SIDES:
            return _side(kind, a, b)
        if is_all(y, 0):
            return a
        if is_all(x, 0):
            return b if kind == "sum" else -b
        for limit, sign in ((limit_of(a), 1.0), (limit_of(b), 1.0 if kind == "sum" else -1.0)):
            if limit is not None:
                return sign * limit
        if is_affine(a) and is_affine(b):
            sign = 1.0 if kind == "sum" else -1.0
            return affine(_sum(a, b, sign), np.atleast_1d(_constant(a) + sign * _constant(b)))
        if kind == "difference" and (rest := without_common(a, b)) is not None:
            return rest
        if kind == "difference" and is_all(x, 1) and (rest := _complement(b)) is not None:
            return rest
        if (negated := _negated(b)) is not None:
            return combine("difference" if kind == "sum" else "sum", a, negated)
        if kind == "sum" and (negated := _negated(a)) is not None:
            return combine("difference", b, negated)
    return Expression(kind, (a, b))


def without_common(a: Number, b: Number) -> Number | None:
    """Return a difference of sums with the same affine term, without that; None if they have none."""
    (first, rest), (other, less) = _affine_term(a), _affine_term(b)
    if not (is_kind(first, "affine") and is_kind(other, "affine")) or abs(_sum(first, other, -1.0)).max() > 0:
        return None
    constant = np.atleast_1d(first.values - other.values)
    return (wrapped(constant) if len(constant) > 1 else constant[0]) + (rest - less)


def _affine_term(x: Number) -> tuple[Number, Number]:
    """Return two numbers whose sum is a number, the first of them affine."""
    if is_affine(x):
        return x, 0.0
    if x.kind in ("sum", "difference"):
        first, other = x.parts
        if is_affine(first):
            return first, other if x.kind == "sum" else -other
        if is_affine(other):
            return other if x.kind == "sum" else -other, first
    return 0.0, x


def _product(a: Number, b: Number, x: Any, y: Any) -> Number:
    if y is not None:
        a, b, x = b, a, y
    if x is not None:  # only the first is known
        if is_all(x, 0):
            return 0.0
        if is_all(x, 1):
            return b
        if (limit := limit_of(a)) is not None and is_positive(b):
            return limit
        if b.kind == "affine":
            return affine(scaled(b.slopes, x), np.atleast_1d(x * b.values))
        if b.kind == "product" and (inner := known(b.parts[0])) is not None:
            return combine("product", wrapped(x * inner), b.parts[1])
        if b.kind == "difference" and is_all(x, -1):
            return combine("difference", b.parts[1], b.parts[0])
    elif is_kind(a, "exp") and is_kind(b, "exp"):
        return apply("exp", a.parts[0] + b.parts[0])
    elif a is b:
        return apply("square", a)
    elif is_kind(b, "product") and known(b.parts[0]) is not None:
        return combine("product", b.parts[0], combine("product", a, b.parts[1]))
    elif is_kind(a, "product") and known(a.parts[0]) is not None:
        return combine("product", a.parts[0], combine("product", a.parts[1], b))
    return Expression("product", (a, b))


def _side(kind: str, u: Number, value: Number) -> Number:
    """Return a value where u fulfils a condition, or does not, and 0 elsewhere."""
    if (decides := known(u)) is not None:
        return select(np.asarray(BINARY[kind](decides, 1.0), bool), value, 0.0)
    return 0.0 if is_all(known(value), 0) else Expression(kind, (u, value))


def _log_sum_exp(a: Number, b: Number) -> Number:
    """Return the log of a sum: if the terms' logs are affine, from one of them, as their difference is affine, too."""
    for one, other in ((a, b), (b, a)):
        if limit_of(one) == -np.inf:
            return other
    if is_affine(a) and is_affine(b):
        return a + apply("log1p_exp", b - a)
    return Expression("log_sum_exp", (a, b))


def apply(function: str, x: Number) -> Number:
    """Return a function of one number."""
    value = known(x)
    if value is not None:
        with np.errstate(all="ignore"):
            return wrapped(FUNCTIONS[function](np.asarray(value, np.float64)[()]))
    found = _RULES[function](x) if function in _RULES else None
    return Expression(function, (x,)) if found is None else found


def _negated(x: Number) -> Expression | None:
    """Return the expression of which a number is the negative; None if it is not known as that."""
    return x.parts[1] if is_kind(x, "product") and is_all(known(x.parts[0]), -1) else None


def _complement(x: Number) -> Number | None:
    """Return 1 - x in a form in which numbers near 1 do not cancel; None if there is none."""
    return x.complement if (value := known(x)) is None else wrapped(1.0 - value)


def _above(lower: Number, width: Number) -> Number | None:
    """Return 1 - upper for a width that is written as upper - lower; None if it is not."""
    return _complement(width.parts[0]) if is_kind(width, "difference") and is_same(width.parts[1], lower) else None


def logit_of_exp(x: Number) -> Number | None:
    """Return y if a number is the log of inv_logit(y); None if it is not known as that."""
    negated = _negated(x)
    return -negated.parts[0] if negated is not None and negated.kind == "log1p_exp" else None


def log_inv_logit_diff(x: Number, y: Number) -> Number:
    """Return the log of inv_logit(x) - inv_logit(y) in a form for narrow intervals."""
    return apply("log1m_exp", y - x) - apply("log1p_exp", -x) - apply("log1p_exp", y)


def _of_log(x: Expression) -> Number | None:
    part = x.parts[0] if x.parts else None
    if x.kind == "exp":
        return part
    if x.kind == "inv_logit":
        return -apply("log1p_exp", -part)  # type: ignore[operator]
    if x.kind == "product" and all(map(is_positive, x.parts)):
        return apply("log", x.parts[0]) + apply("log", x.parts[1])
    if x.kind in ("inv", "sqrt", "square") and is_positive(part):
        return {"inv": -1.0, "sqrt": 0.5, "square": 2.0}[x.kind] * apply("log", part)
    if x.kind in ("sum", "difference") and is_all(known(part), 1) and is_kind(x.parts[1], "exp"):
        return apply("log1p_exp" if x.kind == "sum" else "log1m_exp", x.parts[1].parts[0])
    if x.kind == "difference" and is_kind(part, "inv_logit") and is_kind(x.parts[1], "inv_logit"):
        return log_inv_logit_diff(part.parts[0], x.parts[1].parts[0])  # type: ignore[union-attr]
    return None


def _of_log1p(x: Expression) -> Number | None:
    if x.kind == "exp":
        return apply("log1p_exp", x.parts[0])
    if (negated := _negated(x)) is not None:
        if negated.kind == "exp":
            return apply("log1m_exp", negated.parts[0])
        if (rest := _complement(negated)) is not None:
            return apply("log", rest)
    if x.kind == "difference" and is_all(known(x.parts[1]), 1):
        return apply("log", x.parts[0])
    return None


def _of_log1m_exp(x: Expression) -> Number | None:
    """Return log(1 - e^x) where x is the log of a probability, or of a ratio of two, whose logits are known."""
    if (logit := logit_of_exp(x)) is not None:
        return -apply("log1p_exp", logit)
    if x.kind == "difference" and all(is_kind(one, "log1p_exp") for one in x.parts):
        u, v = (one.parts[0] for one in x.parts)
        return apply("log1m_exp", u - v) - apply("log1p_exp", -v)
    return None


def _of_inv(x: Expression) -> Number | None:
    if x.kind == "exp":
        return apply("exp", -x.parts[0])
    if x.kind == "inv":
        return x.parts[0]
    if x.kind == "inv_logit":
        return 1 + apply("exp", -x.parts[0])
    if x.kind == "product":
        return apply("inv", x.parts[0]) * apply("inv", x.parts[1])
    return None


def _of_exp(x: Expression) -> Number | None:
    if x.kind == "log":
        return x.parts[0]
    logit = logit_of_exp(x)
    return None if logit is None else apply("inv_logit", logit)


def _of_abs(x: Expression) -> Number | None:
    if x.kind in ("abs", "square") or is_positive(x):
        return x
    if x.kind != "product":
        return None
    # The rest changes its sign, and is more often affine.
    for factor, rest in (x.parts, x.parts[::-1]):
        if is_positive(factor):
            return factor * apply("abs", rest)
        if (value := known(factor)) is not None:
            return wrapped(np.abs(value)) * apply("abs", rest)
    return None


_RULES: dict[str, Callable[[Expression], Number | None]] = {
    "log": _of_log,
    "log1p": _of_log1p,
    "log1m_exp": _of_log1m_exp,
    "inv": _of_inv,
    "exp": _of_exp,
    "abs": _of_abs,
    "sqrt": lambda x: apply("exp", 0.5 * x.parts[0]) if x.kind == "exp" else None,
    "square": lambda x: apply("exp", 2 * x.parts[0]) if x.kind == "exp" else None,
}


def pick(choices: Sequence[Number], places: NDArray[np.int64], done: dict[Any, Number] | None = None) -> Number:
    """Return the one of several values that each observation's index selects, from 0.

    If they are the same function of different data and affine expressions, it is that function of what is selected.
    """
    done, key = {} if done is None else done, tuple(map(id, choices))
    if key not in done:
        done[key] = _picked(choices, places, done)
    return done[key]


def _picked(choices: Sequence[Number], places: NDArray[np.int64], done: dict[Any, Number]) -> Number:
    first = choices[0]
    if all(one is first for one in choices):
        return first
    values = [known(one) for one in choices]
    if all(value is not None for value in values):
        table = np.stack(np.broadcast_arrays(*values))
        return data(table[places] if table.ndim == 1 else table[places, np.arange(len(places))])
    if all(map(is_affine, choices)):
        none = none_like(next(one.slopes for one in choices if is_kind(one, "affine")))
        rows = [one.slopes if is_kind(one, "affine") else none for one in choices]
        values = [np.atleast_1d(_constant(one)) for one in choices]
        slopes = stacked(rows)[rows_in_stack([row.shape[0] for row in rows], places)]
        return affine(slopes, np.concatenate(values)[rows_in_stack([len(one) for one in values], places)])
    kinds = {(one.kind, len(one.parts)) if isinstance(one, Expression) else None for one in choices}
    if len(kinds) == 1 and first.kind not in ("select", "affine", "data"):
        parts = [pick([one.parts[k] for one in choices], places, done) for k in range(len(first.parts))]
        return with_parts(first, parts)
    found = choices[-1]
    for k in range(len(choices) - 2, -1, -1):
        found = select(places == k, choices[k], found)
    return found


def walk(terms: Sequence[Number]) -> list[Expression]:
    """Return some expressions and all parts of them, each once."""
    found: dict[int, Expression] = {}
    waiting = list(terms)
    while waiting:
        one = waiting.pop()
        if isinstance(one, Expression) and id(one) not in found:
            found[id(one)] = one
            waiting += one.parts
    return list(found.values())


def with_parts(one: Expression, parts: Sequence[Number]) -> Number:
    """Return the same operation on other operands."""
    if all(a is b for a, b in zip(parts, one.parts, strict=True)):
        return one
    if one.kind == "select" and one.values is not None:
        return select(one.values, *parts)
    return combine(one.kind, *parts) if len(parts) == 2 else apply(one.kind, parts[0])


def limit_of(x: Number) -> float | None:
    """Return infinity, or minus infinity, if a known or affine value is that for all observations."""
    values = x.values if is_kind(x, "affine") else known(x)
    return None if values is None else common_limit(np.atleast_1d(values))


def is_affine(x: Number) -> bool:
    """Return whether a value is affine in the unconstrained parameters, or known."""
    return not isinstance(x, Expression) or x.kind in ("affine", "data")


def _sum(a: Number, b: Number, sign: float) -> Slopes:
    """Return the slopes of a sum or a difference."""
    slopes: list[Slopes] = [one.slopes for one in (a, b) if is_kind(one, "affine")]
    if len(slopes) == 1:
        return slopes[0] if is_kind(a, "affine") else scaled(slopes[0], sign)
    return sum_of(slopes[0], slopes[1], sign)


def _constant(x: Number) -> Any:
    return x.values if isinstance(x, Expression) else np.float64(x)
