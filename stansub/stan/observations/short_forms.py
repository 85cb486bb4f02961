"""Shorter forms of the log likelihood of an observation, in which fewer numbers occur twice.

Intervals enclose a product with a sum more tightly than a sum of products, and the share e^b / (e^b + e^c) more tightly
as a function of b - c than as a quotient.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from stansub.stan.observations.rowwise import (
    Expression,
    Number,
    apply,
    combine,
    is_kind,
    known,
    with_parts,
    without_common,
    wrapped,
)
from stansub.stan.observations.slopes import is_changing, key_of


def shorter(one: Number) -> Number:
    """Return an expression in a shorter form."""
    return _Shortening().of(one)


@dataclass
class _Shortening:
    """The same operations on the same operands become one object."""

    _done: dict[int, Number] = field(default_factory=dict)
    _same: dict[Any, Number] = field(default_factory=dict)
    _kept: list[Number] = field(default_factory=list)

    def of(self, one: Number) -> Number:
        """Return a number in a shorter form."""
        if not isinstance(one, Expression):
            return one
        if id(one) not in self._done:
            self._kept.append(one)  # no other number has its id
            self._done[id(one)] = self._unique(self._whole(one))
        return self._done[id(one)]

    def _whole(self, one: Expression) -> Number:
        if not one.parts:
            return one
        parts = [self.of(part) for part in one.parts]
        if one.kind == "product":
            for first, other in (parts, parts[::-1]):
                if (found := self._share(first, other)) is not None:
                    return found
        if one.kind in ("sum", "difference"):
            return self._added(one.kind, *parts)
        return with_parts(one, parts)

    def _unique(self, one: Number) -> Number:
        if not isinstance(one, Expression):
            return one
        key = (one.kind, *(id(part) if isinstance(part, Expression) else part for part in one.parts))
        if one.values is not None:
            key += (one.values.dtype.str, one.values.tobytes(), b"" if one.slopes is None else key_of(one.slopes))
        return self._same.setdefault(key, one)

    def _added(self, kind: str, a: Number, b: Number) -> Number:
        """Return a sum or a difference; of products with a common factor, that factor is outside."""
        if kind == "difference" and (rest := _less(a, b)) is not None:
            return rest
        if kind == "difference" and (found := self._of_exps(a, b)) is not None:
            return found
        if kind == "difference" and is_kind(a, "difference") and is_kind(b, "difference"):
            if a.parts[1] is b.parts[1]:
                return combine("difference", a.parts[0], b.parts[0])
            if a.parts[0] is b.parts[0]:
                return combine("difference", b.parts[1], a.parts[1])
        for factor, rest in _factors(a) if is_kind(a, "product") and is_kind(b, "product") else ():
            for other, own in _factors(b):
                if factor is other:
                    return combine("product", factor, self._unique(self._added(kind, rest, own)))
        return _constant(combine(kind, a, b)) if kind == "difference" else combine(kind, a, b)

    def _of_exps(self, a: Number, b: Number) -> Number | None:
        """Return e^x - e^y as e^x (1 - e^(y - x)) if x and y share a term, which y - x lacks; None otherwise."""
        if not is_kind(a, "exp") or not is_kind(b, "exp"):
            return None
        rest = without_common(b.parts[0], a.parts[0])
        return None if rest is None else combine("product", a, combine("difference", 1.0, apply("exp", self.of(rest))))

    def _share(self, numerator: Number, inverse: Number) -> Number | None:
        """Return the product of a number and the inverse of e^b + e^c, if e^b or e^c is a factor of it."""
        total: Number = inverse.parts[0] if is_kind(inverse, "inv") else 0.0
        if not is_kind(total, "sum") or not all(is_kind(part, "exp") for part in total.parts):
            return None
        if is_kind(numerator, "product"):
            for factor, rest in (numerator.parts, numerator.parts[::-1]):
                if (found := self._share(rest, inverse)) is not None:
                    return combine("product", factor, found)
        if not is_kind(numerator, "exp"):
            return None
        b, c = (part.parts[0] for part in total.parts)
        for one, other in ((b, c), (c, b)):
            if (rest := _less(numerator.parts[0], one)) is not None:
                share = apply("inv_logit", self._added("difference", one, other))
                return combine("product", apply("exp", rest), share)
        return None


def _less(a: Number, b: Number) -> Number | None:
    """Return a - b if b is one of the terms of a."""
    if a is b and isinstance(a, Expression):
        return 0.0
    if is_kind(a, "sum"):
        for term, other in (a.parts, a.parts[::-1]):
            if (rest := _less(term, b)) is not None:
                return combine("sum", rest, other)
    if is_kind(a, "difference") and (rest := _less(a.parts[0], b)) is not None:
        return combine("difference", rest, a.parts[1])
    return None


def _factors(x: Number) -> Iterator[tuple[Number, Number]]:
    """Yield each factor that depends on parameters, and the product of the others."""
    if not is_kind(x, "product"):
        if known(x) is None:
            yield x, 1.0
        return
    for one, other in (x.parts, x.parts[::-1]):
        for factor, rest in _factors(one):
            yield factor, combine("product", rest, other)


def _constant(x: Number) -> Number:
    """Return a value that is affine in the parameters as known if its slopes are 0."""
    if not is_kind(x, "affine") or is_changing(x.slopes):
        return x
    return wrapped(x.values) if len(x.values) > 1 else float(x.values[0])
