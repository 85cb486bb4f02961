"""Effects that a likelihood multiplies by their scale, declared as variables.

In ``y ~ normal(a + tau * z[g], sigma)``, ``tau`` and ``z`` are separate arguments of the likelihood, and their product
is not affine in them. If it is declared, ``vector[J] u = z * tau``, the likelihood reads ``u[g]`` instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from stansub.stan.passes.inlining import inlined
from stansub.stan.passes.rewriting import Symbols
from stansub.stan.passes.variables import Replacements, Variables, declaring
from stansub.stan.reading.typing import VECTOR
from stansub.stan.syntax import (
    PRODUCTS,
    QUOTIENTS,
    Expression,
    Factor,
    Infix,
    Name,
    Node,
    Program,
    SizedType,
    Slice,
    Span,
    Statement,
    Subscript,
    Transpose,
    changed,
    factors_of,
    find,
    flat,
    name_of,
    names,
    outermost,
    summands,
)

# Precedence of what can be an operand of a product without parentheses.
_OPERAND = 8
_FREE = frozenset({"real", "vector", "row_vector", "matrix"})
# Ways of reading effects that are allowed for however few effects: by themselves and times a coefficient, such as those
# of persons in a joint model of measurements and events.
_WAYS = 2
# Different products for each observation up to which a variable of them has a use.
_SHARED = 0.5
# Stands in texts for a name; no text of a program has it.
_VARIABLE = "$"


def undeclared(program: Program, *sizes: str, values: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Return the effects that a likelihood multiplies by other parameters.

    For a program with declared products (`with_scaled_effects`): those that a declaration by the user would change. If
    ``values`` of data show that nearly each observation has a product of its own, as persons and items of an item
    response model have, no declaration would.
    """
    found: dict[str, None] = {}
    for one in (inlined(program), program):
        found |= dict.fromkeys(_Reading.of(one, *sizes).multiplied(values or {}))
    return tuple(found)


@declaring("scaled effects")
def with_scaled_effects(program: Program, *sizes: str) -> Replacements:
    """Declare the products of effects and scales in the likelihood, unless it reads effects in many ways.

    Factor models do.
    """
    reading = _Reading.of(program, *sizes)
    found = list(reading.products())
    counts = Counter(one.name for one in find(Name, reading.own)) if found else Counter[str]()
    unused, replacements = Symbols.of(program), list[tuple[Span, str]]()
    for products in _connected(found):
        first = {one.value: one for one in reversed(products)}
        parts = frozenset[str]().union(*(one.parts for one in products))
        read = sum((Counter(one.effects) for one in products), Counter[str]())
        ways = len(first) + any(read[name] < counts[name] for name in read)
        if ways > max(_WAYS, len(parts)) or not all(
            reading.is_ready(one.used, one.statement) for one in first.values()
        ):
            continue
        variables = {value: unused.fresh("stansub_scaled") for value in first}
        for value, one in first.items():
            replacements.append((one.statement.span.before, f"{one.type} {variables[value]} = {value};\n"))
        replacements += [(one.span, one.text.replace(_VARIABLE, variables[one.value])) for one in products]
    return replacements


def _connected(products: Sequence[_Product]) -> list[list[_Product]]:
    """Return products in groups that share no effects."""
    groups: list[list[_Product]] = []
    for one in products:
        sharing = [group for group in groups if any(not set(other.effects).isdisjoint(one.effects) for other in group)]
        groups = [group for group in groups if group not in sharing]
        groups.append([*(other for group in sharing for other in group), one])
    return groups


class _Part(NamedTuple):
    """The elements of a variable that observations read."""

    expression: Expression
    """These elements, such as ``z[ : , 2]`` if an observation reads ``z[g[n], 2]``; or a function of several."""
    type: SizedType
    """Its type."""
    picked: tuple[Expression, ...]
    """Indices of what an observation reads, ``g[n]``, or of a loop; ``:`` if it reads a whole dimension before these.
    """

    def pick(self, axis: int) -> Expression:
        """Return the index in one dimension."""
        return self.picked[axis] if axis < len(self.picked) else Slice()


class _Scale(NamedTuple):
    """Scales of effects."""

    expression: Expression
    """The scales."""
    text: str
    """Effects with these scales, with `_VARIABLE` for the effects."""


class _Product(NamedTuple):
    """A product of effects, their scales, and other factors."""

    span: Span
    """Its place."""
    statement: Statement
    """The block's own statement that contains it."""
    effects: tuple[str, ...]
    """Names of effects, as often as they are read."""
    parts: frozenset[str]
    """The elements of effects that observations read."""
    type: SizedType
    """Of the value."""
    value: str
    """Effects times their scales."""
    used: set[str]
    """Variables in the value."""
    text: str
    """The product, with `_VARIABLE` for a variable that has the value."""


class _Reading(Variables):
    """Effects and scales that a program's likelihood reads."""

    def products(self) -> Iterator[_Product]:
        """Yield the products of effects and scales in the likelihood."""
        for one, statement in self.in_blocks():
            yield from outermost(partial(self._product, statement=statement), one)

    def multiplied(self, values: Mapping[str, Any]) -> Iterator[str]:
        """Yield names of effects that a product in the likelihood has besides other parameters."""
        for one in find(Infix, self.own):
            factors = [factor.expression for factor in factors_of(one) if names(factor.expression) & self.changing]
            effects = [set(self._linear(factor)) for factor in factors]
            for k, own in enumerate(effects):
                others = names(*factors[:k], *factors[k + 1 :]) & self.changing
                if own and others - own and self._are_few(factors, values):
                    yield from sorted(own)

    def _are_few(self, factors: Sequence[Expression], values: Mapping[str, Any]) -> bool:
        """Return whether observations share the products of what data select, as far as the values are known."""
        parts = [flat(one) for one in find(Subscript, factors)]
        picks = {str(flat(index)[0]) for base, indices in parts if str(base) in self.changing for index in indices}
        columns = [values[name] for name in sorted(picks & values.keys()) if np.ndim(values[name]) == 1]
        if len({len(one) for one in columns}) != 1:
            return True
        return len(np.unique(np.stack(columns), axis=1).T) <= _SHARED * len(columns[0])

    def _linear(self, expression: Expression) -> Iterator[str]:
        """Yield names of effects in which an expression is linear."""
        if self._plain(expression) is not None:
            yield name_of(_upright(expression))
        elif isinstance(expression, Infix) and expression.operator in PRODUCTS:
            yield from self._linear(expression.left)
            yield from self._linear(expression.right)
        elif isinstance(expression, Infix) and expression.operator in ("+", "-"):
            terms = [term for _, term in summands(expression)]
            # A difference from data is a residual, whose scale is none of the effects.
            if all(names(term) & self.changing for term in terms):
                for term in terms:
                    yield from self._linear(term)

    def _product(self, infix: Node, statement: Statement) -> _Product | None:
        if not isinstance(infix, Infix) or infix.operator not in PRODUCTS:
            return None
        factors = [one for one in factors_of(infix) if names(one.expression) & self.changing]
        found = self._sole_effects([one for one in factors if not one.divides])
        if found is None:
            return None
        effect, part = found
        scales = [(one, scale) for one in factors if one is not effect and (scale := self._scale(one, part))]
        is_scaled = bool(scales) or isinstance(part.expression, Infix)
        commutes = all(self.types.is_number(one.expression) for one, _ in scales) or self._is_elementwise(infix)
        if not (is_scaled and commutes):
            return None
        kind, value = part.type, part.expression.within(_OPERAND)
        if kind.array_dims:
            kind, value = SizedType((), "vector", dims=kind.array_dims), f"to_vector({value})"
        for _, scale in scales:
            value = scale.text.replace(_VARIABLE, value)
        index = f"[{', '.join(map(str, part.picked))}]" if part.picked else ""
        turned = "'" if isinstance(effect.expression, Transpose) else ""
        texts = {id(one.expression): "" for one, _ in scales} | {id(effect.expression): f"{_VARIABLE}{index}{turned}"}
        used = names(part.expression, kind, *(scale.expression for _, scale in scales))
        own, parts = zip(*self._read(effect.expression), strict=True)
        elements = frozenset(str(one.expression) for one in parts)
        return _Product(infix.span, statement, own, elements, kind, value, used, _with(texts, infix))

    def _sole_effects(self, factors: Sequence[Factor]) -> tuple[Factor, _Part] | None:
        """Return the only factor of effects: of parameters, or of variables computed from them if there is none."""
        for of in (self._effects, self._free):
            found = [(one, part) for one in factors if (part := of(one.expression)) is not None]
            if found:
                return found[0] if len(found) == 1 else None
        return None

    def _read(self, factor: Expression) -> list[tuple[str, _Part]]:
        """Return the effects in a factor by name, as often as it reads them."""
        if (part := self._free(factor)) is not None:
            return [(name_of(_upright(factor)), part)]
        return [found for one in factor.parts if isinstance(one, Expression) for found in self._read(one)]

    def _effects(self, factor: Expression) -> _Part | None:
        """Return the effects of which a factor is one or several, or a sum of them; None for anything else."""
        if (part := self._plain(factor)) is not None:
            return part
        if not isinstance(factor, Infix) or factor.operator not in ("+", "-"):
            return None
        read = [self._read(term) for _, term in summands(factor)]
        parts = [part for one in read for _, part in one]
        if not all(read) or len(parts[0].picked) != 1 or any(one.picked != parts[0].picked for one in parts):
            return None
        whole = self._whole(factor, parts[0].picked)
        is_vector = parts[0].type.base == "vector" and self.types.of(whole) == VECTOR
        is_whole = is_vector and not names(whole) & self.outside
        return _Part(whole, parts[0].type, parts[0].picked) if is_whole else None

    def _plain(self, factor: Expression) -> _Part | None:
        """Return the effects of which a factor is one or several: parameters without bounds; None for anything else."""
        is_parameter = self.declared.get(name_of(_upright(factor))) in self.program.parameters.declarations
        return self._free(factor) if is_parameter else None

    def _free(self, factor: Expression) -> _Part | None:
        """Return the elements of a variable without bounds of which a factor is one or several."""
        part = self._part(factor)
        name = name_of(_upright(factor))
        if part is None or name not in self.changing:
            return None
        kind, is_free = part.type, not self.declared[name].type.is_checked
        is_list = not kind.array_dims if kind.base != "real" else len(kind.array_dims) == 1
        return part if is_free and is_list and kind.base in _FREE else None

    def _scale(self, factor: Factor, effects: _Part) -> _Scale | None:
        """Return the scales of all effects, of which a factor is one or several; None if it is no scale."""
        one, operator = factor.expression, "/" if factor.divides else "*"
        if self.types.is_number(one) and not names(one) & self.outside:
            return _Scale(one, f"{_VARIABLE} {operator} {one.within(_OPERAND)}")
        if effects.type.array_dims:
            return None
        part = self._part(one)
        if part is not None and effects.type.base == "matrix" and part.type.base in ("vector", "row_vector"):
            return _of_matrix(part, effects, divides=factor.divides)
        if part is not None and (part.type, part.picked) == (effects.type, effects.picked):
            whole = part.expression
        else:
            whole = self._whole(one, effects.picked)
            is_whole = not names(whole) & self.outside and len(effects.picked) < 2
            if not is_whole or self.types.of(whole) != effects.type.unsized:
                return None
        return _Scale(whole, f"{_VARIABLE} .{operator} {whole.within(_OPERAND)}")

    def _whole(self, factor: Expression, picked: Sequence[Expression]) -> Expression:
        """Return a factor with whole variables in place of their elements that an index picks."""

        def whole(node: Node) -> Node | None:
            part = self._part(node) if isinstance(node, Subscript) else None
            return part.expression if part is not None and part.picked == tuple(picked) else None

        return changed(factor, whole)

    def _part(self, factor: Expression) -> _Part | None:
        """Return the elements of which a factor is one or several; None if it is no part of a variable.

        Vectors may be transposed: the products in which they may are of elements.
        """
        base, indices = flat(_upright(factor))
        one = self.declared.get(base.name) if isinstance(base, Name) else None
        if one is None or one.name in self.observed or names(*indices) & self.changing:
            return None
        slices = [index for index in indices if isinstance(index, Slice)]
        if len(indices) > len(one.all_dims) or not all(index.is_whole for index in slices):
            return None
        picks = [index in slices or bool(names(index) & self.outside) for index in indices]
        whole = tuple(Slice() if picked else index for index, picked in zip(indices, picks, strict=True))
        lengths = [dim if picked else None for dim, picked in zip(one.all_dims, picks, strict=False)]
        own = tuple(index for index, picked in zip(indices, picks, strict=True) if picked)
        return _Part(base if all(picks) else Subscript(base, whole), one.type.plain.part(lengths), own)

    def _is_elementwise(self, expression: Expression) -> bool:
        """Return whether the order of the factors does not matter although there are containers among them."""
        if not isinstance(expression, Infix) or expression.operator not in PRODUCTS:
            return True
        sides = expression.left, expression.right
        with_number = expression.operator in (".*", "./") or any(map(self.types.is_number, sides))
        return with_number and all(map(self._is_elementwise, sides))


def _upright(factor: Expression) -> Expression:
    """Return a factor without its transposition."""
    return factor.operand if isinstance(factor, Transpose) else factor


def _of_matrix(scales: _Part, effects: _Part, *, divides: bool) -> _Scale | None:
    """Return scales of the rows or columns of a matrix of effects; None if they are of neither."""
    text = f"inv({scales.expression})" if divides else str(scales.expression)
    if scales.pick(0) == effects.pick(0):
        return _Scale(scales.expression, f"diag_pre_multiply({text}, {_VARIABLE})")
    if scales.pick(0) == effects.pick(1):
        return _Scale(scales.expression, f"diag_post_multiply({_VARIABLE}, {text})")
    return None


def _with(texts: Mapping[int, str], expression: Expression) -> str:
    """Return a product with the texts of some of its factors, by their ids; empty ones are left out.

    What was divided by or into one of these stays real, because quotients of integers are rounded.
    """
    if id(expression) in texts:
        return texts[id(expression)]
    if not isinstance(expression, Infix) or expression.operator not in PRODUCTS:
        return expression.within(_OPERAND)
    left, right = _with(texts, expression.left), _with(texts, expression.right)
    is_changed = any(texts.get(id(one.expression)) == "" for one in factors_of(expression))
    if right and expression.operator in QUOTIENTS and is_changed:
        left = f"1.0 * {left}" if left else "1.0"
    return f"({left} {expression.operator} {right})" if left and right else left or right
