"""Integer expressions of Stan as affine sums: ``(N - 1) + 1`` is ``N``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stansub.stan.syntax import Expression, Infix, Literal, Prefix, names


@dataclass(frozen=True)
class Affine:
    """A sum of whole multiples of terms, and a constant."""

    terms: tuple[tuple[Expression, int], ...]
    """Expressions that are not sums, and their non-zero factors."""
    constant: int

    @classmethod
    def of(cls, expression: Expression, known: Mapping[Expression, Expression] | None = None) -> Affine:
        """Read an expression; ``known`` terms stand for others: ``N`` for ``size(y)``."""
        match expression:
            case Literal(text) if text.isdigit():
                return cls((), int(text))
            case Prefix("-" | "+" as sign, operand):
                return cls.of(operand, known).times(-1 if sign == "-" else 1)
            case Infix("+", left, right):
                return cls.of(left, known) + cls.of(right, known)
            case Infix("-", left, right):
                return cls.of(left, known) - cls.of(right, known)
            case Infix("*", left, right):
                one, other = cls.of(left, known), cls.of(right, known)
                if not one.terms:
                    return other.times(one.constant)
                if not other.terms:
                    return one.times(other.constant)
        return cls.of(known[expression]) if known and expression in known else cls(((expression, 1),), 0)

    @classmethod
    def _collected(cls, terms: Mapping[Expression, int], constant: int) -> Affine:
        kept = [(term, factor) for term, factor in terms.items() if factor]
        return cls(tuple(sorted(kept, key=lambda one: str(one[0]))), constant)

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.constant + other)
        terms = dict(self.terms)
        for term, factor in other.terms:
            terms[term] = terms.get(term, 0) + factor
        return self._collected(terms, self.constant + other.constant)

    def __sub__(self, other: Affine | int) -> Affine:
        return self + (-other if isinstance(other, int) else other.times(-1))

    def times(self, factor: int) -> Affine:
        """Return a multiple of the sum."""
        return self._collected({term: one * factor for term, one in self.terms}, self.constant * factor)

    def is_at_least(self, least: int) -> bool:
        """Return whether the sum is certainly at least a number."""
        return not self.terms and self.constant >= least

    def factor(self, term: Expression) -> int:
        """Return the factor of a term."""
        return dict(self.terms).get(term, 0)

    @property
    def names(self) -> set[str]:
        """Variables in the sum."""
        return names(*(term for term, _ in self.terms))

    @property
    def expression(self) -> Expression:
        """The sum as an expression."""
        # Positive terms come first, to avoid a leading sign if possible.
        pieces = [(_multiple(term, abs(n)), n) for term, n in sorted(self.terms, key=lambda one: one[1] < 0)]
        if self.constant or not pieces:
            pieces.append((Literal(str(abs(self.constant))), self.constant))
        (total, sign), *others = pieces
        if sign < 0:
            total = Prefix("-", total)
        for piece, n in others:
            total = Infix("-" if n < 0 else "+", total, piece)
        return total

    def __str__(self) -> str:
        return str(self.expression)


def _multiple(term: Expression, factor: int) -> Expression:
    return term if factor == 1 else Infix("*", Literal(str(factor)), term)
