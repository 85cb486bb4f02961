"""Branches on parameters: as absolute values if their sides join continuously, and as a sum of sides otherwise.

Let a branch take A where u < 0 and B elsewhere. If A = M u and B = K u, the result is (A + B - (M - K) |u|) / 2. If
A - B is any other multiple of u whose sign s never changes, it is (A + B - s |A - B|) / 2. Whether this holds is tried
where u changes its sign, for some observations and parameters. If it does not, the result is A if u < 0, or else 0,
plus B unless u < 0, or else 0: it may jump. The product of such a side and a number that is 0 where u changes its sign
does not jump; it becomes an absolute value, too. That the log likelihood is the program's is proved later
(`stansub.stan.observations.predictors`).

Two numbers are equal where the square of their difference is at most 0. In a condition, |u| < c is u^2 < c^2, which has
no kink.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stansub.stan.observations.operations import BINARY, FUNCTIONS
from stansub.stan.observations.rowwise import (
    Expression,
    NotFollowedError,
    Number,
    apply,
    combine,
    is_kind,
    is_positive,
    is_same,
    known,
    walk,
    with_parts,
    wrapped,
)
from stansub.stan.observations.slopes import dense, dots, none_like
from stansub.target.programs import SIDES
from stansub.types import FloatArray

UNDECIDED = "how often a loop runs, or a number taken as true or false, depends on parameters"
# Observations and lines of parameters along which a change of sign is looked for, how many must have one, and the
# largest difference of the two sides there, relative to that on either side.
_TRIED, _LINES, _LEAST, _SAME = 64, 8, 16, 1e-6
_ALONG = np.concatenate([-np.geomspace(100, 1e-3, 51), np.geomspace(1e-3, 100, 51)])
# Halvings until the line is near the change of sign, and until it ends there up to rounding.
_NEAR, _HALVINGS = 8, 50
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Sign:
    """A condition on parameters: that a number of each observation is negative, or at most 0."""

    of: Expression
    is_strict: bool = True
    is_negated: bool = False
    """Whether it holds otherwise."""

    def __bool__(self) -> bool:
        raise NotFollowedError(UNDECIDED)

    def __invert__(self) -> Sign:
        return replace(self, is_negated=not self.is_negated)

    @property
    def number(self) -> Number:
        """Return 1 where it holds and 0 elsewhere."""
        return self.side(1.0, if_holds=True)

    def side(self, value: Number, *, if_holds: bool) -> Number:
        """Return a value where it holds, or where it does not, and 0 elsewhere."""
        kind = "negative" if self.is_strict else "nonpositive"
        return combine(f"{'if' if if_holds != self.is_negated else 'unless'}_{kind}", _without_kink(self.of), value)


def _without_kink(u: Number) -> Number:
    """Return a number with the sign of |v| - c, or of c - |v|, c >= 0, that is smooth; others as they are."""
    for one, limit in (u.parts, u.parts[::-1]) if is_kind(u, "difference") else ():
        value = known(limit)
        if is_kind(one, "abs") and value is not None and np.all(value >= 0):
            change = combine("difference", apply("square", one.parts[0]), wrapped(np.square(value)))
            return change if one is u.parts[0] else -change
    return u


def joined(condition: Sign, first: Number, other: Number) -> Number:
    """Return the first of two numbers where a condition holds, and the other elsewhere."""
    if condition.is_negated:
        return joined(~condition, other, first)
    if is_same(first, other):
        return first
    for kind in ("sum", "difference"):
        sides = [one.parts if is_kind(one, kind) else (one, 0.0) for one in (first, other)]
        if any(is_kind(one, kind) for one in (first, other)) and is_same(sides[0][0], sides[1][0]):
            return combine(kind, sides[0][0], joined(condition, sides[0][1], sides[1][1]))
    first, other = _signed(first, condition.of, -1.0, {}), _signed(other, condition.of, 1.0, {})
    slope, other_slope = (_multiple(one, condition.of) for one in (first, other))
    if slope is not None and other_slope is not None:
        return 0.5 * (_combined("sum", first, other) - (slope - other_slope) * apply("abs", condition.of))
    difference = _combined("difference", first, other)
    sign = _sign(difference, condition.of)
    if sign is None:
        return condition.side(first, if_holds=True) + condition.side(other, if_holds=False)
    return 0.5 * (_combined("sum", first, other) - sign * apply("abs", difference))


def continuous(x: Number) -> Number:
    """Return a number with absolute values instead of products of a side of a branch and what is 0 where it jumps."""
    return _continuous(x, {})


def _continuous(x: Number, done: dict[int, Number]) -> Number:
    if not isinstance(x, Expression) or not x.parts:
        return x
    if id(x) not in done:
        found = with_parts(x, [_continuous(part, done) for part in x.parts])
        for factor, rest in (found.parts, found.parts[::-1]) if is_kind(found, "product") else ():
            if _has_sides(rest) and (product := _times(factor, rest)) is not None:
                found = product
                break
        done[id(x)] = found
    return done[id(x)]


def _has_sides(x: Number) -> bool:
    return isinstance(x, Expression) and x.has_sides


def _times(factor: Number, x: Number) -> Number | None:
    """Return the product of a factor and a number with sides of branches, if it does not jump."""
    if not _has_sides(x):
        return factor * x
    if x.kind == "product":
        rest, sides = x.parts if _has_sides(x.parts[1]) else x.parts[::-1]
        return _times(factor * rest, sides)
    if x.kind in SIDES:
        where, kind = x.kind.split("_")
        u, value = x.parts
        found = joined(Sign(u, kind == "negative", where == "unless"), factor * value, 0.0)
        return None if _has_sides(found) else found
    terms = [_times(factor, part) for part in x.parts]
    return None if any(one is None for one in terms) else combine(x.kind, *terms)


def _signed(x: Number, u: Expression, sign: float, done: dict[int, Number]) -> Number:
    """Return a number where u has a sign, without absolute values of multiples of u."""
    if not isinstance(x, Expression) or not x.parts:
        return x
    if id(x) not in done:
        found = with_parts(x, [_signed(part, u, sign, done) for part in x.parts])
        if is_kind(found, "abs") and (multiple := _multiple(u, found.parts[0])) is not None:
            ways = [way for way in (sign, -sign) if is_positive(way * sign * multiple)]
            found = ways[0] * found.parts[0] if ways else found
        done[id(x)] = found
    return done[id(x)]


def _multiple(x: Number, u: Expression) -> Number | None:
    """Return a number of which x is the product with u; None if there is none that is easily found."""
    if is_same(x, u):
        return 1.0
    if (value := known(x)) is not None:
        return None if np.any(value) else 0.0
    if x.kind == u.kind == "difference" and all(map(is_same, x.parts, reversed(u.parts))):
        return -1.0
    if x.kind == "affine" and u.kind == "affine":
        squares = np.maximum(dots(u.slopes, u.slopes), np.finfo(float).tiny)
        factor = dots(x.slopes, u.slopes) / squares
        factor = factor[0] if (factor == factor[0]).all() else factor
        rest = x - wrapped(factor) * u
        left, size = (max(abs(one.slopes).max(), np.abs(one.values).max()) for one in (rest, x))
        return wrapped(factor) if left <= _ROUNDING * size else None
    for one, rest in (x.parts, x.parts[::-1]) if x.kind == "product" else ():
        if (found := _multiple(one, u)) is not None:
            return found * rest
    return None


def _factored(x: Number) -> tuple[Any, Number]:
    """Return a number as a known factor and the rest."""
    if is_kind(x, "product") and (factor := known(x.parts[0])) is not None:
        return factor, x.parts[1]
    return 1.0, x


def _combined(kind: str, a: Number, b: Number) -> Number:
    """Return a sum or difference, of multiples of the same number as another multiple of it."""
    (first, rest), (other, same) = _factored(a), _factored(b)
    return wrapped(BINARY[kind](first, other)) * rest if rest is same else combine(kind, a, b)


def _sign(difference: Number, u: Expression) -> float | None:
    """Return the sign of a difference times u, if both change at the same places."""
    everything = walk([difference, u])
    leaves = [one for one in everything if one.slopes is not None]
    if not isinstance(difference, Expression) or not leaves:
        return None
    n = max(len(one.values) for one in everything if one.values is not None)
    dim = none_like(leaves[0].slopes).shape[1]
    rng, signs = np.random.default_rng(0), []
    for _ in range(_LINES):
        rows = rng.integers(0, n, _TRIED)
        start, direction = rng.standard_normal((2, dim))
        lines = _Lines(rows, {id(one): _line(one, rows, start, direction) for one in leaves})
        with np.errstate(all="ignore"):
            signs += lines.signs(difference, u)
    return float(signs[0]) if len(signs) >= _LEAST and len(set(signs)) == 1 and signs[0] else None


def _line(
    one: Expression, rows: np.ndarray[Any, Any], start: FloatArray, direction: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return value and slope of an affine expression along a line of parameters, for some observations."""
    assert one.slopes is not None
    assert one.values is not None
    slopes = dense(one.slopes[rows % one.slopes.shape[0]])
    return slopes @ start + np.asarray(one.values)[rows % len(one.values)], slopes @ direction


@dataclass(frozen=True)
class _Lines:
    """Some observations, with a line of parameters for all of them."""

    rows: np.ndarray[Any, Any]
    affine: dict[int, tuple[FloatArray, FloatArray]]

    def at(self, x: Number, t: FloatArray, done: dict[int, FloatArray]) -> FloatArray:
        """Return the values of a number at places along the line, shape (n,)."""
        if not isinstance(x, Expression):
            return np.broadcast_to(np.asarray(x, np.float64), self.rows.shape)
        if id(x) not in done:
            if x.kind == "affine":
                value, slope = self.affine[id(x)]
                found = value + t * slope
            elif x.values is not None:
                own = np.asarray(x.values)[self.rows % len(x.values)]
                found = own if x.kind == "data" else np.where(own, *(self.at(one, t, done) for one in x.parts))
            else:
                function = BINARY.get(x.kind) or FUNCTIONS[x.kind]
                found = function(*(self.at(one, t, done) for one in x.parts))
            done[id(x)] = np.asarray(found, np.float64)
        return done[id(x)]

    def signs(self, difference: Expression, u: Expression) -> list[float]:
        """Return the sign of the difference times u for each observation whose u changes its sign; 0 if it is none."""
        n = len(self.rows)
        values = np.array([self.at(u, np.full(n, t), {}) for t in _ALONG])
        changes = (values[:-1] * values[1:] < 0) & np.isfinite(values[:-1]) & np.isfinite(values[1:])
        some = changes.any(axis=0)
        place = changes.argmax(axis=0)
        low, high = self._halved(u, _ALONG[place], _ALONG[place + 1], _NEAR)
        ends = [np.array([self.at(one, t, {}) for t in (low, high)]) for one in (difference, u)]
        low, high = self._halved(u, low, high, _HALVINGS)
        there = np.abs(self.at(difference, low, {}))
        signs = np.sign(ends[0]) * np.sign(ends[1])
        some &= np.isfinite(signs).all(axis=0) & (ends[1] != 0).all(axis=0)
        holds = (signs[0] == signs[1]) & (there <= _SAME * np.abs(ends[0]).max(axis=0))
        return [float(one) for one in np.where(holds, signs[0], 0.0)[some]]

    def _halved(self, u: Expression, low: FloatArray, high: FloatArray, times: int) -> tuple[FloatArray, FloatArray]:
        """Return the ends of shorter parts of the line in which u changes its sign."""
        at_low = self.at(u, low, {})
        for _ in range(times):
            middle = 0.5 * (low + high)
            same = self.at(u, middle, {}) * at_low > 0
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        return low, high
