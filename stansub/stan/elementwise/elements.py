"""Expressions over all observations, reduced to a single observation.

Expressions over all observations (``alpha[group] + X * beta``) become the expression for observation i
(``alpha[group[i]] + X[i] * beta``). An expression that combines observations cannot be reduced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from stansub.stan.syntax import (
    Call,
    Choice,
    Declaration,
    Expression,
    Group,
    Infix,
    Literal,
    Member,
    Name,
    Prefix,
    Program,
    Slice,
    Subscript,
    Transpose,
    UnsizedType,
    flat,
)
from stansub.stan.typing import INT, Typed, Types, indexed

# An expression for one observation, and the dimension of the original that counts the observations.
_Part = tuple[Expression, int | None]
_INNER = {"vector": 1, "row_vector": 1, "matrix": 2}
ELEMENTWISE = frozenset(
    word
    for line in (
        "exp exp2 expm1 log log2 log10 log1p log1m log1p_exp log1m_exp log_inv_logit log1m_inv_logit logit inv_logit",
        "sqrt inv_sqrt cbrt square inv inv_square pow abs fabs sin cos tan asin acos atan sinh cosh tanh asinh acosh",
        "atanh atan2 hypot erf erfc Phi Phi_approx inv_Phi inv_cloglog tgamma lgamma digamma lbeta beta lchoose",
        "log_diff_exp lmultiply multiply_log fmin fmax fdim fmod floor ceil round trunc step",
    )
    for word in line.split()
)
_REPEATED = frozenset({"rep_vector", "rep_row_vector", "rep_array"})
_CONSTANT = {"zeros_vector": "0", "ones_vector": "1", "zeros_row_vector": "0", "ones_row_vector": "1"}
_RESHAPED = frozenset({"to_vector", "to_row_vector", "to_array_1d"})
_ROWWISE = {"rows_dot_product": ("dot_product", 0), "columns_dot_product": ("dot_product", 1)}
_APPENDED = {"append_col": 0, "append_row": 1}
_LENGTHS = frozenset({"size", "num_elements", "rows", "cols"})


class NotSeparableError(Exception):
    """A statement cannot be reduced to one observation; the message says why."""


class Shape(NamedTuple):
    """Type of a value, and the dimension that counts the observations: array dimensions first, then inner ones."""

    type: UnsizedType
    axis: int | None = None

    @property
    def is_scalar(self) -> bool:
        """Whether it is a single number."""
        return self.n_axes == 0

    @property
    def n_axes(self) -> int:
        """Number of array and inner dimensions."""
        return self.type.depth + _INNER.get(self.type.base.removeprefix("complex_"), 0)

    @property
    def element(self) -> Shape:
        """Type for one observation."""
        if self.axis is None:
            return self
        return Shape(indexed(self.type, [k != self.axis for k in range(self.n_axes)]))


def shape_of(declaration: Declaration, size: str = "") -> Shape:
    """Return the shape of a variable; its axis is the dimension ``size`` if exactly one is."""
    axes = [k for k, dim in enumerate(declaration.sizes) if dim == size]
    return Shape(declaration.type.unsized, axes[0] if len(axes) == 1 else None)


class Taken(NamedTuple):
    """An expression for one observation, and its shape for all observations."""

    expression: Expression
    whole: Shape

    @property
    def varies(self) -> bool:
        """Whether the expression has a value for each observation."""
        return self.whole.axis is not None


@dataclass(frozen=True)
class Elements:
    """Reduction of expressions to one observation.

    Attributes
    ----------
    size : str
        The variable that counts the observations.
    index : str
        Name of the observation's index.
    shapes : mapping
        Shapes of all variables, with an axis if they have a value for each observation.
    local : frozenset of str
        Variables that are computed for this observation only, under the same name.
    loop : str
        Variable of the surrounding loop over observations; empty outside such a loop.
    types : Types
        Types of expressions.
    """

    size: str
    index: str
    shapes: Mapping[str, Shape]
    local: frozenset[str]
    loop: str = ""
    types: Types = field(default_factory=lambda: Types(Program("")))

    def within(self, loop: str) -> Elements:
        """Return the same reduction inside a loop over observations."""
        return replace(self, loop=loop)

    def element(self, expression: Expression) -> Expression:
        """Return an expression for one observation, as `take` does."""
        return self.take(expression).expression

    def take(self, expression: Expression) -> Taken:
        """Return an expression for one observation.

        Raises
        ------
        NotSeparableError
            If the expression combines observations.
        """
        found, axis = self._part(expression)
        return Taken(found, self._shape(expression, axis))

    @cached_property
    def _scope(self) -> dict[str, Typed]:
        return {self.loop: Typed(INT, True), **{name: Typed(one.type, True) for name, one in self.shapes.items()}}

    def _shape(self, expression: Expression, axis: int | None) -> Shape:
        return Shape(self.types.of(expression, self._scope).type, axis)

    def _part(self, expression: Expression) -> _Part:
        match expression:
            case Name():
                return self._name(expression)
            case Literal():
                return expression, None
            case Subscript():
                return self._subscript(expression)
            case Prefix(operator, operand):
                found, axis = self._part(operand)
                return Prefix(operator, found), axis
            case Transpose(operand):
                taken = self.take(operand)
                is_number, axis = taken.varies and taken.whole.element.is_scalar, taken.whole.axis
                turned = 1 - axis if axis is not None and taken.whole.type.base == "matrix" else axis
                return taken.expression if is_number else Transpose(taken.expression), turned
            case Infix():
                return self._infix(expression)
            case Choice(condition, then, orelse):
                (first, _), (one, axis), (two, other) = map(self._part, (condition, then, orelse))
                return Choice(first, one, two), other if axis is None else axis
            case Group("(", (inside,)):
                found, axis = self._part(inside)
                return Group("(", (found,)), axis
            case Group(opening, items):
                parts = [self._part(item) for item in items]
                if any(axis is not None for _, axis in parts):
                    raise _together(expression)
                return Group(opening, tuple(found for found, _ in parts)), None
            case Call():
                return self._call(expression)
            case Member():
                raise NotSeparableError(f"`{expression}` reads part of a tuple")
        raise _together(expression)

    def is_size(self, expression: Expression) -> bool:
        """Return whether an expression is the number of observations."""
        match expression:
            case Name(variable):
                return variable == self.size
            case Call(name, (Name(variable),)) if name in _LENGTHS and variable in self.shapes:
                shape = self.shapes[variable]
                kind = shape.type
                return shape.axis == (kind.depth + 1 if name == "cols" and kind.base == "matrix" else 0)
        return False

    def _name(self, variable: Name) -> _Part:
        name, index = variable.name, Name(self.index)
        axis = self.shapes[name].axis if name in self.shapes else None
        if name == self.loop:
            return index, axis
        if axis is None:
            return variable, None
        if self.loop:
            if name in self.local:
                raise NotSeparableError(f"it uses all of `{name}` for a single observation")
            return variable, None
        return variable if name in self.local else Subscript(variable, (*[Slice()] * axis, index)), axis

    def _subscript(self, expression: Subscript) -> _Part:
        base, indices = flat(expression)
        taken = [None if isinstance(one, Slice) else self.take(one) for one in indices]
        if isinstance(base, Name) and (shape := self.shapes.get(base.name)) and shape.axis is not None:
            if self.loop and base.name not in self.local:
                return Subscript(base, self._indices(indices, taken)), _axis(shape, taken)
            return self._of_observations(base, shape, indices, taken)
        found = self.take(base)
        if found.varies:
            raise _together(expression)
        return Subscript(found.expression, self._indices(indices, taken)), _axis(found.whole, taken)

    def _indices(self, indices: Sequence[Expression], taken: Sequence[Taken | None]) -> tuple[Expression, ...]:
        """Return indices for one observation, of a variable without a value for each."""
        pairs = zip(indices, taken, strict=True)
        return tuple(self._slice(one) if found is None else found.expression for one, found in pairs)

    def _slice(self, index: Expression) -> Expression:
        assert isinstance(index, Slice)
        ends = [None if end is None else self.take(end) for end in (index.lower, index.upper)]
        if any(end is not None and end.varies for end in ends):
            raise _together(index)
        lower, upper = (None if end is None else end.expression for end in ends)
        return Slice(lower, upper)

    def _of_observations(
        self, base: Name, shape: Shape, indices: Sequence[Expression], taken: Sequence[Taken | None]
    ) -> _Part:
        """Return elements of a variable with a value for each observation."""
        axis = shape.axis
        assert axis is not None
        whole = Slice()
        padded = [*indices, *[whole] * (axis + 1 - len(indices))]
        found = [*taken, *[None] * (len(padded) - len(taken))]
        at, here = padded[axis], found[axis]
        is_local, own = base.name in self.local, at == (Name(self.loop) if self.loop else whole)
        left = None if self.loop else axis - sum(_single(shape, found)[:axis])
        given: list[Expression] = [
            self._slice(one) if each is None else each.expression for one, each in zip(padded, found, strict=True)
        ]
        if own and is_local:
            del given[axis]
            while given and given[-1] == whole:
                given.pop()
            return Subscript(base, tuple(given)) if given else base, left
        if is_local:
            raise NotSeparableError(f"for one observation it reads `{Subscript(base, tuple(indices))}` of another")
        if own:
            given[axis] = Name(self.index)
            return Subscript(base, tuple(given)), left
        if here is None:
            raise _together(Subscript(base, tuple(indices)))
        return Subscript(base, tuple(given)), _axis(shape, found)

    def _infix(self, expression: Infix) -> _Part:
        operator, left, right = expression.operator, self.take(expression.left), self.take(expression.right)
        if operator == "*":
            axis = _axis_of_product(expression, left, right)
        else:
            axis = left.whole.axis if left.varies else right.whole.axis
        if operator in (".*", "./", ".^") and axis is not None and self._shape(expression, axis).element.is_scalar:
            operator = operator[1:]
        return Infix(operator, left.expression, right.expression), axis

    def _call(self, call: Call) -> _Part:
        if not self.loop and call.name in _CONSTANT and self.is_size(call.arguments[0]):
            return Literal(_CONSTANT[call.name]), 0
        if not self.loop and call.name in _REPEATED and len(call.arguments) == 2 and self.is_size(call.arguments[1]):
            return self.element(call.arguments[0]), 0
        taken = [self.take(one) for one in call.arguments]
        plain = replace(call, arguments=tuple(one.expression for one in taken))
        varying = [one for one in taken if one.varies]
        if not varying:
            return plain, None
        first = varying[0].whole
        if call.name in _RESHAPED and len(taken) == 1 and first.element.is_scalar:
            return taken[0].expression, 0
        if call.name in _ROWWISE and len(varying) == 2 and first.axis == _ROWWISE[call.name][1]:
            return replace(plain, name=_ROWWISE[call.name][0]), 0
        if call.name in _APPENDED and all(one.whole.axis == _APPENDED[call.name] or not one.varies for one in taken):
            return plain, _APPENDED[call.name]
        if call.name == "elt_multiply" and first.element.is_scalar:
            return Infix("*", *plain.arguments), first.axis
        if call.name in ELEMENTWISE:
            return plain, first.axis
        raise _together(call)


def _together(expression: Expression) -> NotSeparableError:
    return NotSeparableError(f"`{expression}` combines observations")


def _axis(shape: Shape, taken: Sequence[Taken | None]) -> int | None:
    """Return the axis after indexing, if an index has a value for each observation."""
    axes = [k for k, one in enumerate(taken) if one is not None and one.varies]
    if not axes or len(taken) > shape.n_axes:
        return None
    return axes[0] - sum(_single(shape, taken)[: axes[0]])


def _single(shape: Shape, taken: Sequence[Taken | None]) -> list[bool]:
    """Return for each dimension of a shape whether an index selects a single element."""
    given = [one is not None and one.whole.is_scalar for one in taken[: shape.n_axes]]
    return given + [False] * (shape.n_axes - len(given))


def _axis_of_product(expression: Expression, left: Taken, right: Taken) -> int | None:
    """Return the axis of a matrix product, which must not sum over observations."""
    one, two = left.whole, right.whole
    if one.is_scalar or two.is_scalar:
        return two.axis if one.is_scalar else one.axis
    summed_left = left.varies and (right.varies or one.type.base == "row_vector" or one.axis == 1)
    if summed_left or (right.varies and (two.type.base == "vector" or two.axis == 0)):
        raise _together(expression)
    return 0 if left.varies else None if not right.varies else int(one.type.base != "row_vector")
