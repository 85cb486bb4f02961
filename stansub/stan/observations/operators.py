"""Stan's operators on the values of variables (`stansub.stan.observations.containers`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stansub.stan.observations.branches import UNDECIDED, Sign
from stansub.stan.observations.containers import Rows, Total, Value, elementwise, is_known, product
from stansub.stan.observations.elementary import power
from stansub.stan.observations.rowwise import Expression, NotFollowedError, Number, apply, data, known
from stansub.stan.syntax import Program, names


class Count(int):
    """A multiple of the number of observations; its product with a non-integer is a sum over the observations."""


def counts(program: Program, values: Mapping[str, Any], n: int) -> dict[str, Count]:
    """Return integers that are sizes of data and count the observations."""
    sizes = {name for one in program.data_declarations for dim in one.all_dims for name in names(dim)}
    return {name: Count(n) for name in sizes if isinstance(values.get(name), int | np.integer) and values[name] == n}


def literal(text: str) -> float:
    """Return the number that a literal stands for; an integer if it is one in Stan."""
    digits = text.replace("_", "")
    return int(digits) if digits.isdigit() else float(digits)


def infix(operator: str, left: Value, right: Value, n: int) -> Value:
    """Apply an operator to two values."""
    if operator not in ("&&", "||"):
        left, right = (one.number if isinstance(one, Sign) else one for one in (left, right))
    if operator == "*":
        for count, other in ((left, right), (right, left)):
            if isinstance(count, Count) and not is_container(other):
                if not is_integer(other):
                    return Total(count / n) * other
                if is_known(other):
                    return Count(count * other)
        if is_container(left) and is_container(right):
            return product(left, right, n)
    if operator == "/" and is_integer(left):
        if is_integer(right):
            operator = "%/%"
        elif isinstance(left, Count) and not is_container(right):
            return Total(left / n) / right
    if operator not in _INFIX:
        raise NotFollowedError(f"the operator {operator} is not supported")
    return elementwise(_INFIX[operator], [left, right], n)


def prefix(operator: str, value: Value, n: int) -> Value:
    """Apply a sign, or a negation."""
    if operator == "+":
        return value
    if operator == "!":
        return elementwise(_negated, [value], n)
    return Count(-value) if isinstance(value, Count) else elementwise(lambda x: -x, [value], n)


def stacked(items: Sequence[Value]) -> Value:
    """Return an array, or a row vector, of the items."""
    if any(isinstance(one, Rows | Total) for one in items):
        raise NotFollowedError("an array of containers of observations is not supported")
    if all(not isinstance(one, Expression | np.ndarray) for one in items):
        return np.array(items)
    if any(isinstance(one, np.ndarray) for one in items):
        return np.array([np.asarray(one, dtype=object) for one in items], dtype=object)
    return np.array(items, dtype=object)


def is_container(x: Value) -> bool:
    """Return whether a value has several entries."""
    return isinstance(x, Rows) or np.ndim(x) > 0


def is_integer(x: Value) -> bool:
    """Return whether a value is an integer, one for each observation, or an array of these."""
    value = known(x) if isinstance(x, Expression) else x
    return (
        value is not None
        and not isinstance(value, Rows | Total)
        and np.asarray(value).dtype.kind in "ib"
        and np.ndim(value) < 2
    )


def compared(function: Callable[..., Any], *values: Number) -> Number:
    """Return a function of known values; those that depend on parameters are refused."""
    found = [None if isinstance(one, Sign) else known(one) for one in values]
    if any(one is None for one in found):
        raise NotFollowedError(UNDECIDED)
    result = function(*found)
    return data(result) if np.ndim(result) else result


def _comparison(function: Callable[[Any, Any], Any]) -> Callable[[Number, Number], Number]:
    return lambda a, b: compared(lambda x, y: np.asarray(function(x, y)).astype(int)[()], a, b)


def _order(
    function: Callable[[Any, Any], Any], *, swaps: bool = False, is_strict: bool = True
) -> Callable[[Number, Number], Number | Sign]:
    """Return a comparison that, of parameters, is a condition on the sign of a - b, or of b - a."""
    of_known = _comparison(function)

    def of(a: Number, b: Number) -> Number | Sign:
        if all(known(one) is not None for one in (a, b)):
            return of_known(a, b)
        return _condition(b - a if swaps else a - b, is_strict=is_strict)

    return of


def _condition(change: Number, *, is_strict: bool = True) -> Number | Sign:
    """Return whether a number is negative, or at most 0; of parameters, a condition."""
    if known(change) is None:
        return Sign(change, is_strict)
    return _comparison(np.less if is_strict else np.less_equal)(change, 0)


def _equality(a: Number, b: Number) -> Number | Sign:
    """Return whether two numbers are equal; of parameters, a condition on the square of their difference."""
    if any(isinstance(one, Sign) for one in (a, b)) or all(known(one) is not None for one in (a, b)):
        return _comparison(np.equal)(a, b)
    return _condition(apply("square", a - b), is_strict=False)


def _both(a: Number, b: Number) -> Number | Sign:
    """Return whether two conditions hold."""
    if not isinstance(a, Sign) and not isinstance(b, Sign):
        return _comparison(np.logical_and)(a, b)
    holds = [one.number if isinstance(one, Sign) else _truth(one) for one in (a, b)]
    return _condition(0.5 - holds[0] * holds[1])


def _negated(a: Number) -> Number | Sign:
    return ~a if isinstance(a, Sign) else _comparison(lambda x, _: np.logical_not(x))(a, a)


def _truth(a: Number) -> Number:
    """Return 1 for known numbers other than 0."""
    return compared(lambda x: np.asarray(x != 0).astype(np.float64)[()], a)


_INFIX: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    ".*": lambda a, b: a * b,
    "/": lambda a, b: a * apply("inv", b) if not isinstance(a, Total) else a / b,
    "./": lambda a, b: a * apply("inv", b),
    "^": power,
    ".^": power,
    "%": _comparison(lambda a, b: np.fmod(a, b)),
    "%/%": _comparison(lambda a, b: np.trunc(a / b)),
    "==": _equality,
    "!=": lambda a, b: _negated(_equality(a, b)),
    "<": _order(np.less),
    "<=": _order(np.less_equal, is_strict=False),
    ">": _order(np.greater, swaps=True),
    ">=": _order(np.greater_equal, swaps=True, is_strict=False),
    "&&": _both,
    "||": lambda a, b: _negated(_both(_negated(a), _negated(b))),
}


def decided(value: Value, reason: str = UNDECIDED) -> Any:
    """Return the known value that decides which statements run."""
    found = known(value) if isinstance(value, Expression) else value
    if found is None or isinstance(found, Sign):
        raise NotFollowedError(reason)
    return found
