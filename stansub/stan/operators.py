"""Stan's operators on the values of variables (`stansub.stan.containers`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stansub.stan.branches import KINK, Sign
from stansub.stan.containers import Rows, Total, Value, elementwise, is_known, product
from stansub.stan.elementary import power
from stansub.stan.rowwise import Expression, NotFollowedError, Number, apply, data, known
from stansub.stan.syntax import Program, names


class Count(int):
    """A multiple of the number of observations; its product with a non-integer is a sum over the observations."""


def counts(program: Program, values: Mapping[str, Any], n: int) -> dict[str, Count]:
    """Return integers that are sizes of data and count the observations."""
    sizes = {name for one in program.data_declarations for dim in one.all_dims for name in names(dim)}
    return {name: Count(n) for name in sizes if isinstance(values.get(name), int | np.integer) and values[name] == n}


def infix(operator: str, left: Value, right: Value, n: int) -> Value:
    """Apply an operator to two values."""
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
        return elementwise(lambda x: compared(lambda a: np.logical_not(a).astype(int), x), [value], n)
    return Count(-value) if isinstance(value, Count) else elementwise(lambda x: -x, [value], n)


def stacked(items: Sequence[Value]) -> Value:
    """Return an array, or a row vector, of the items."""
    if any(isinstance(one, Rows | Total) for one in items):
        raise NotFollowedError("an array of containers of observations is not supported")
    if all(not isinstance(one, Expression | np.ndarray) for one in items):
        return np.array(items)
    if any(isinstance(one, np.ndarray) for one in items):
        return np.array([np.asarray(one, dtype=object) for one in items], dtype=object)
    found = np.empty(len(items), dtype=object)
    found[:] = items
    return found


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
    """Return a function of known values; a branch on parameters is refused."""
    found = [known(one) for one in values]
    if any(one is None for one in found):
        raise NotFollowedError(KINK)
    result = function(*found)
    return data(result) if np.ndim(result) else result


def _comparison(function: Callable[[Any, Any], Any]) -> Callable[[Number, Number], Number]:
    return lambda a, b: compared(lambda x, y: np.asarray(function(x, y)).astype(int)[()], a, b)


def _order(function: Callable[[Any, Any], Any], sign: float) -> Callable[[Number, Number], Number | Sign]:
    """Return a comparison that, of parameters, is a condition on the sign of a difference."""
    of_known = _comparison(function)

    def of(a: Number, b: Number) -> Number | Sign:
        if all(known(one) is not None for one in (a, b)):
            return of_known(a, b)
        change = sign * (a - b)
        return Sign(change) if isinstance(change, Expression) else of_known(change, 0)

    return of


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
    "==": _comparison(np.equal),
    "!=": _comparison(np.not_equal),
    "<": _order(np.less, 1.0),
    "<=": _order(np.less_equal, 1.0),
    ">": _order(np.greater, -1.0),
    ">=": _order(np.greater_equal, -1.0),
    "&&": _comparison(np.logical_and),
    "||": _comparison(np.logical_or),
}


def decided(value: Value, reason: str = KINK) -> Any:
    """Return the known value that decides which statements run."""
    found = known(value) if isinstance(value, Expression) else value
    if found is None or isinstance(found, Sign):
        raise NotFollowedError(reason)
    return found
