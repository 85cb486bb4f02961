"""Dimensions of data as functions of the number of observations: ``N``, ``has_x ? N : 0``, ``N + 1``."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from math import prod
from typing import Any

import numpy as np

from stansub.stan.syntax import (
    SIZES,
    Call,
    Choice,
    Declaration,
    Expression,
    Infix,
    Literal,
    Name,
    Prefix,
    SizedType,
    Subscript,
    names,
)


def _quotient(a: int, b: int) -> int:
    """Return the quotient rounded towards zero, as Stan does."""
    return abs(a) // abs(b) * (1 if a * b >= 0 else -1)


_INFIX: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "%/%": _quotient,
    "%": lambda a, b: a - b * _quotient(a, b),
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "&&": lambda a, b: bool(a) and bool(b),
    "||": lambda a, b: bool(a) or bool(b),
}
_PREFIX: dict[str, Callable[[int], int]] = {"+": operator.pos, "-": operator.neg, "!": operator.not_}


class Growth(Enum):
    """How a dimension changes with the number of observations."""

    FIXED = auto()
    ALONG = auto()
    OTHER = auto()


@dataclass(frozen=True)
class Dimensions:
    """Dimensions of data."""

    values: Mapping[str, Any]
    """Values of the data, of which integers decide dimensions."""
    types: Mapping[str, SizedType]
    """Declared types by variable."""

    @classmethod
    def of(cls, values: Mapping[str, Any], declarations: Iterable[Declaration]) -> Dimensions:
        """Return the dimensions of declared data."""
        return cls(values, {one.name: one.type for one in declarations})

    def growth(self, dim: Expression, sizes: Collection[str]) -> Growth:
        """Return how a dimension changes with ``sizes``, which count the observations."""
        read = names(dim)
        read |= names(*(one for name in read & self.types.keys() for one in self.types[name].all_dims))
        if read.isdisjoint(sizes):
            return Growth.FIXED
        n = max(int(self.values[size]) for size in sizes if size in self.values)
        numbers = (n, n + 1)
        found = tuple(Dimensions({**self.values, **dict.fromkeys(sizes, k)}, self.types).value(dim) for k in numbers)
        if found == numbers:
            return Growth.ALONG
        return Growth.FIXED if found[0] is not None and found[0] == found[1] else Growth.OTHER

    def value(self, dim: Expression) -> int | None:
        """Return the value of a dimension; None if it is not computed from integers of the data and sizes of data."""
        match dim:
            case Literal(text):
                return int(text.replace("_", "")) if text.replace("_", "").isdecimal() else None
            case Name(name):
                return _integer(self.values.get(name))
            case Subscript(Name(name), indices) if all(isinstance(one, Literal) for one in indices):
                return _integer(self.values.get(name), tuple(int(str(one)) - 1 for one in indices))
            case Prefix(sign, operand):
                return self._applied(_PREFIX[sign], operand)
            case Infix(sign, left, right) if sign in _INFIX:
                return self._applied(_INFIX[sign], left, right)
            case Choice(condition, then, orelse):
                holds = self.value(condition)
                return None if holds is None else self.value(then if holds else orelse)
            case Call("num_elements", (Name(variable),)) if variable in self.types:
                return self._applied(lambda *sizes: prod(sizes), *self.types[variable].all_dims)
            case Call(function, (Name(variable),)) if function in SIZES and variable in self.types:
                size = self.types[variable].size(function)
                return None if size is None else self.value(size)
        return None

    def _applied(self, function: Callable[..., int], *operands: Expression) -> int | None:
        """Return a function of known values; None if one is unknown or the function is not defined for them."""
        found = [self.value(one) for one in operands]
        try:
            return None if None in found else int(function(*found))
        except ZeroDivisionError:
            return None


def _integer(value: Any, index: tuple[int, ...] = ()) -> int | None:
    """Return a number or an element of an array as an integer; None if it is not, or if there is no such element."""
    array = np.asarray(value)
    is_there = array.ndim == len(index) and all(k < n for k, n in zip(index, array.shape, strict=False))
    return int(array[index]) if is_there and array.dtype.kind == "i" else None
