"""Integer expressions of Stan as sums: ``(N - 1) + 1`` is ``N``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stansub.stan.syntax import Token, matching, split, tokenize

_LOOSE = ("?", ":", "||", "&&", "==", "!=", "<", ">", "<=", ">=")
_TIGHT = ("/", "%/%", "%", "^", "'", "!", "~")


@dataclass(frozen=True)
class Affine:
    """A sum of whole multiples of terms, and a constant.

    Attributes
    ----------
    terms : tuple of (str, int)
        Expressions that are no sums themselves, without white space, and their factors, which are not 0.
    constant : int
    """

    terms: tuple[tuple[str, int], ...]
    constant: int

    @classmethod
    def of(cls, text: str, known: Mapping[str, str] | None = None) -> Affine:
        """Read an expression.

        Parameters
        ----------
        text : str
            The expression.
        known : mapping, optional
            Terms that stand for other expressions: ``{"size(y)": "N"}``.
        """
        return _sum(tokenize(text), known or {})

    @classmethod
    def _collected(cls, terms: Mapping[str, int], constant: int) -> Affine:
        return cls(tuple(sorted((term, factor) for term, factor in terms.items() if factor)), constant)

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
        """A multiple of it."""
        return self._collected({term: one * factor for term, one in self.terms}, self.constant * factor)

    def factor(self, term: str) -> int:
        """How many times a term is in it."""
        return dict(self.terms).get(term, 0)

    def __str__(self) -> str:
        pieces = list[str]()
        # What is added comes first, so that nothing begins with a sign if that can be helped.
        for term, factor in sorted(self.terms, key=lambda one: one[1] < 0):
            size = term if abs(factor) == 1 else f"{abs(factor)} * {term}"
            pieces.append(f"- {size}" if factor < 0 else f"+ {size}" if pieces else size)
        if self.constant or not pieces:
            sign = "- " if self.constant < 0 else "+ " if pieces else ""
            pieces.append(f"{sign}{abs(self.constant)}")
        return " ".join(pieces)


def _sum(tokens: Sequence[Token], known: Mapping[str, str]) -> Affine:
    while tokens and tokens[0].text == "(" and matching(tokens, 0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    if not tokens or len(split(tokens, *_LOOSE)) > 1:
        return _opaque(tokens, known)
    total, sign, part = Affine((), 0), 1, list[Token]()
    depth = 0
    for token in tokens:
        if depth == 0 and token.text in ("+", "-") and (not part or part[-1].text not in ("*", *_TIGHT)):
            if part:
                total, sign, part = total + _product(part, known).times(sign), 1, []
            sign = -sign if token.text == "-" else sign
            continue
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        part.append(token)
    return total + _product(part, known).times(sign) if part else _opaque(tokens, known)


def _product(tokens: Sequence[Token], known: Mapping[str, str]) -> Affine:
    factors = split(tokens, "*")
    if len(split(tokens, *_TIGHT)) > 1 or not all(factors):
        return _opaque(tokens, known)
    if len(factors) == 1:
        if tokens[0].text == "(" and matching(tokens, 0) == len(tokens) - 1:
            return _sum(tokens, known)
        if len(tokens) == 1 and tokens[0].text.isdigit():
            return Affine((), int(tokens[0].text))
        return _opaque(tokens, known)
    values = [_sum(factor, known) for factor in factors]
    numbers = [value for value in values if not value.terms]
    if len(numbers) < len(values) - 1:
        return _opaque(tokens, known)
    product = next((value for value in values if value.terms), Affine((), 1))
    for number in numbers:
        product = product.times(number.constant)
    return product


def _opaque(tokens: Sequence[Token], known: Mapping[str, str]) -> Affine:
    text = "".join(token.text for token in tokens)
    if text in known:
        return Affine.of(known[text])
    whole = len(tokens) == 1 or (
        tokens and tokens[0].kind == "name" and tokens[1].text in ("(", "[") and matching(tokens, 1) == len(tokens) - 1
    )
    return Affine(((text if whole else f"({text})", 1),), 0)
