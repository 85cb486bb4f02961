"""One observation's element of an expression that has a value for each of them.

Expressions over all observations (``alpha[group] + X * beta``) become what they are for observation i
(``alpha[group[i]] + X[i] * beta``). Whatever takes observations together has no such element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
    Slice,
    Subscript,
    Transpose,
    flat,
)

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
_REPEATED = {"rep_vector": "vector", "rep_row_vector": "row_vector", "rep_array": "array"}
_CONSTANT = {"zeros_vector": "0", "ones_vector": "1", "zeros_row_vector": "0", "ones_row_vector": "1"}
_RESHAPED = {"to_vector": "vector", "to_row_vector": "row_vector", "to_array_1d": "array"}
_ROWWISE = {"rows_dot_product": ("dot_product", 0), "columns_dot_product": ("dot_product", 1)}
_APPENDED = {"append_col": 0, "append_row": 1}
_LENGTHS = frozenset({"size", "num_elements", "rows", "cols"})


class NotSeparableError(Exception):
    """Why a statement has no part that is one observation's."""


class Shape(NamedTuple):
    """Type of a value, and which of its dimensions counts the observations.

    Attributes
    ----------
    depth : int
        Dimensions of the array.
    base : str
        ``real``, ``vector``, ``row_vector`` or ``matrix``; integers count as ``real``.
    axis : int or None
        Among array dimensions, then inner ones.
    """

    depth: int
    base: str
    axis: int | None = None

    @property
    def is_scalar(self) -> bool:
        """Whether it is a single number."""
        return self.depth == 0 and self.base == "real"

    @property
    def n_axes(self) -> int:
        """Dimensions of the array and inner ones."""
        return self.depth + _INNER.get(self.base, 0)

    @property
    def element(self) -> Shape:
        """What it is for one observation."""
        if self.axis is None:
            return self
        return self.kept([k != self.axis for k in range(self.n_axes)])

    def kept(self, which: Sequence[bool]) -> Shape:
        """What is left of it with some of its dimensions."""
        inner = list(which[self.depth :])
        if self.base == "matrix":
            base = {(True, True): "matrix", (True, False): "vector", (False, True): "row_vector"}.get(
                (inner[0], inner[1]), "real"
            )
        else:
            base = self.base if any(inner) else "real"
        return Shape(sum(which[: self.depth]), base)


def shape_of(declaration: Declaration, size: str = "") -> Shape:
    """Return the shape of a variable; its axis is the dimension that is ``size``, where exactly one is."""
    kind = declaration.type.unsized
    base = kind.base.removeprefix("complex_")
    axes = [k for k, dim in enumerate(declaration.sizes) if dim == size]
    return Shape(kind.depth, base if base in _INNER else "real", axes[0] if len(axes) == 1 else None)


class Taken(NamedTuple):
    """An expression for one observation, and the shape that it has for all of them."""

    expression: Expression
    whole: Shape

    @property
    def varies(self) -> bool:
        """Whether it has a value for each observation."""
        return self.whole.axis is not None


@dataclass(frozen=True)
class Elements:
    """Takes expressions at one observation.

    Attributes
    ----------
    size : str
        The variable that counts the observations.
    index : str
        Name of the observation's number.
    shapes : mapping
        Of all variables; with an axis where they have a value for each observation.
    local : frozenset of str
        Those of them that are computed for this observation alone, in a variable of the same name.
    loop : str
        Variable of the loop over observations that the text stands in; nothing for text that is about all of them.
    """

    size: str
    index: str
    shapes: Mapping[str, Shape]
    local: frozenset[str]
    loop: str = ""

    def within(self, loop: str) -> Elements:
        """The same in a loop over observations."""
        return replace(self, loop=loop)

    def element(self, expression: Expression) -> Expression:
        """Return an expression for one observation, as `take` does."""
        return self.take(expression).expression

    def take(self, expression: Expression) -> Taken:
        """Return an expression for one observation.

        Raises
        ------
        NotSeparableError
            When it takes observations together.
        """
        match expression:
            case Name():
                return self._name(expression)
            case Literal():
                return Taken(expression, Shape(0, "real"))
            case Subscript():
                return self._subscript(expression)
            case Prefix(operator, operand):
                taken = self.take(operand)
                return Taken(Prefix(operator, taken.expression), taken.whole)
            case Transpose(operand):
                return self._transpose(self.take(operand))
            case Infix(operator, left, right):
                return self._infix(expression, operator, self.take(left), self.take(right))
            case Choice(condition, then, orelse):
                return self._choice(*map(self.take, (condition, then, orelse)))
            case Group(opening, items):
                return self._group(expression, opening, [self.take(item) for item in items])
            case Call():
                return self._call(expression)
            case Member():
                raise NotSeparableError(f"`{expression}` reads a part of a tuple")
        raise _together(expression)

    def is_size(self, expression: Expression) -> bool:
        """Whether an expression is the number of observations."""
        match expression:
            case Name(variable):
                return variable == self.size
            case Call(name, (Name(variable),)) if name in _LENGTHS and variable in self.shapes:
                shape = self.shapes[variable]
                return shape.axis == (shape.depth + 1 if name == "cols" and shape.base == "matrix" else 0)
        return False

    def _name(self, variable: Name) -> Taken:
        name, index = variable.name, Name(self.index)
        shape = self.shapes.get(name, Shape(0, "real"))
        if name == self.loop:
            return Taken(index, shape)
        if shape.axis is None:
            return Taken(variable, shape)
        if self.loop:
            if name in self.local:
                raise NotSeparableError(f"it uses all of `{name}` for a single observation")
            return Taken(variable, shape._replace(axis=None))
        if name in self.local:
            return Taken(variable, shape)
        return Taken(Subscript(variable, (*[Slice()] * shape.axis, index)), shape)

    def _subscript(self, expression: Subscript) -> Taken:
        base, indices = flat(expression)
        taken = [None if isinstance(one, Slice) else self.take(one) for one in indices]
        if isinstance(base, Name) and (shape := self.shapes.get(base.name)) and shape.axis is not None:
            if self.loop and base.name not in self.local:
                return Taken(Subscript(base, self._indices(indices, taken)), _indexed(shape, taken))
            return self._of_observations(base, shape, indices, taken)
        found = self.take(base)
        if found.varies:
            raise _together(expression)
        given = self._indices(indices, taken)
        return Taken(Subscript(found.expression, given), _indexed(found.whole, taken))

    def _indices(self, indices: Sequence[Expression], taken: Sequence[Taken | None]) -> tuple[Expression, ...]:
        """Indices for one observation, of something that has no value for each."""
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
    ) -> Taken:
        """Elements of a variable with a value for each observation."""
        axis = shape.axis
        assert axis is not None
        whole = Slice()
        padded = [*indices, *[whole] * (axis + 1 - len(indices))]
        found = [*taken, *[None] * (len(padded) - len(taken))]
        at, here = padded[axis], found[axis]
        is_local, own = base.name in self.local, at == (Name(self.loop) if self.loop else whole)
        kept = _indexed(shape, found)
        given: list[Expression] = [
            self._slice(one) if each is None else each.expression for one, each in zip(padded, found, strict=True)
        ]
        if own and is_local:
            del given[axis]
            while given and given[-1] == whole:
                given.pop()
            return Taken(Subscript(base, tuple(given)) if given else base, self._left(shape, found))
        if is_local:
            raise NotSeparableError(f"for one observation it reads `{Subscript(base, tuple(indices))}` of another")
        if own:
            given[axis] = Name(self.index)
            return Taken(Subscript(base, tuple(given)), self._left(shape, found))
        if here is None:
            raise _together(Subscript(base, tuple(indices)))
        return Taken(Subscript(base, tuple(given)), kept)

    def _left(self, shape: Shape, found: Sequence[Taken | None]) -> Shape:
        """A variable's shape after indices that take this observation."""
        assert shape.axis is not None
        single = _single(shape, found)
        single[shape.axis] = bool(self.loop)
        left = shape.kept([not one for one in single])
        return left if self.loop else left._replace(axis=shape.axis - sum(single[: shape.axis]))

    def _transpose(self, taken: Taken) -> Taken:
        is_number = taken.varies and taken.whole.element.is_scalar
        return Taken(taken.expression if is_number else Transpose(taken.expression), _turned(taken.whole))

    def _infix(self, expression: Expression, operator: str, left: Taken, right: Taken) -> Taken:
        whole = _product(expression, left, right) if operator == "*" else _alike(operator, left, right)
        if operator in (".*", "./", ".^") and (left.varies or right.varies) and whole.element.is_scalar:
            operator = operator[1:]
        return Taken(Infix(operator, left.expression, right.expression), whole)

    def _choice(self, condition: Taken, then: Taken, orelse: Taken) -> Taken:
        whole = then.whole if then.varies else orelse.whole
        return Taken(Choice(condition.expression, then.expression, orelse.expression), whole)

    def _group(self, expression: Expression, opening: str, items: list[Taken]) -> Taken:
        if opening == "(" and len(items) == 1:
            return Taken(Group("(", (items[0].expression,)), items[0].whole)
        if any(item.varies for item in items):
            raise _together(expression)
        shape = {"[": Shape(0, "row_vector"), "{": Shape(1, "real")}.get(opening, Shape(0, "real"))
        return Taken(Group(opening, tuple(item.expression for item in items)), shape)

    def _call(self, call: Call) -> Taken:
        if not self.loop and call.name in _CONSTANT and self.is_size(call.arguments[0]):
            base = "row_vector" if "row" in call.name else "vector"
            return Taken(Literal(_CONSTANT[call.name]), Shape(0, base, 0))
        if not self.loop and call.name in _REPEATED and len(call.arguments) == 2 and self.is_size(call.arguments[1]):
            value = self.take(call.arguments[0])
            return Taken(value.expression, _array_of(_REPEATED[call.name], value.whole))
        taken = [self.take(one) for one in call.arguments]
        plain = replace(call, arguments=tuple(one.expression for one in taken))
        varying = [one for one in taken if one.varies]
        if not varying:
            return Taken(plain, _returned(call.name, taken))
        first = varying[0].whole
        if call.name in _RESHAPED and len(taken) == 1 and first.element.is_scalar:
            return Taken(taken[0].expression, _array_of(_RESHAPED[call.name], Shape(0, "real")))
        if call.name in _ROWWISE and len(varying) == 2 and first.axis == _ROWWISE[call.name][1]:
            return Taken(replace(plain, name=_ROWWISE[call.name][0]), Shape(0, "vector", 0))
        if call.name in _APPENDED and all(one.whole.axis == _APPENDED[call.name] or not one.varies for one in taken):
            return Taken(plain, Shape(0, "matrix", _APPENDED[call.name]))
        if call.name == "elt_multiply" and first.element.is_scalar:
            return Taken(Infix("*", *plain.arguments), first)
        if call.name in ELEMENTWISE:
            return Taken(plain, first)
        raise _together(call)


def _together(expression: Expression) -> NotSeparableError:
    return NotSeparableError(f"`{expression}` combines observations")


def _indexed(shape: Shape, taken: Sequence[Taken | None]) -> Shape:
    """A shape after indices; one that has a value for each observation brings the axis."""
    if len(taken) > shape.n_axes:
        return Shape(0, "real")
    single = _single(shape, taken)
    left = shape.kept([not one for one in single])
    axes = [k for k, one in enumerate(taken) if one is not None and one.varies]
    if not axes:
        return left
    return left._replace(axis=axes[0] - sum(single[: axes[0]]))


def _single(shape: Shape, taken: Sequence[Taken | None]) -> list[bool]:
    """For each dimension of a shape, whether an index takes a single element of it."""
    given = [one is not None and one.whole.is_scalar for one in taken[: shape.n_axes]]
    return given + [False] * (shape.n_axes - len(given))


def _turned(shape: Shape) -> Shape:
    base = {"vector": "row_vector", "row_vector": "vector"}.get(shape.base, shape.base)
    axis = shape.axis if shape.axis is None or shape.base != "matrix" else 1 - shape.axis
    return Shape(shape.depth, base, axis)


def _array_of(kind: str, value: Shape) -> Shape:
    """What n values one after the other are, observation by observation."""
    return Shape(value.depth + 1, value.base, 0) if kind == "array" else Shape(0, kind, 0)


def _alike(operator: str, left: Taken, right: Taken) -> Shape:
    """The shape of an operation on elements."""
    if left.varies:
        return left.whole
    if right.varies:
        return right.whole
    if operator in ("==", "!=", "<", ">", "<=", ">=", "&&", "||"):
        return Shape(0, "real")
    return right.whole if left.whole.is_scalar else left.whole


def _product(expression: Expression, left: Taken, right: Taken) -> Shape:
    """The shape of a matrix product, which must not sum over observations."""
    one, two = left.whole, right.whole
    if one.is_scalar:
        return two
    if two.is_scalar:
        return one
    if left.varies and right.varies:
        raise _together(expression)
    if left.varies:
        if one.base == "row_vector" or one.axis == 1:
            raise _together(expression)
        base = {"vector": "vector", "row_vector": "matrix"}.get(two.base, "matrix")
        return Shape(0, base, 0)
    if right.varies:
        if two.base == "vector" or two.axis == 0:
            raise _together(expression)
        return Shape(0, "row_vector", 0) if one.base == "row_vector" else Shape(0, "matrix", 1)
    if one.base == "row_vector" and two.base == "vector":
        return Shape(0, "real")
    base = {("matrix", "vector"): "vector", ("row_vector", "matrix"): "row_vector"}.get((one.base, two.base), "matrix")
    return Shape(0, base)


def _returned(name: str, taken: Sequence[Taken]) -> Shape:
    """A guess of what a function returns, for operators that mean something else for single numbers."""
    if name in _RESHAPED:
        return _array_of(_RESHAPED[name], Shape(0, "real"))._replace(axis=None)
    if name in _REPEATED:
        return _array_of(_REPEATED[name], Shape(0, "real"))._replace(axis=None)
    if name in ELEMENTWISE and taken:
        return next((one.whole for one in taken if not one.whole.is_scalar), taken[0].whole)
    guesses = {"row": "row_vector", "col": "vector", "softmax": "vector", "head": "vector", "tail": "vector"}
    guesses |= {"segment": "vector", "append_row": "vector", "append_col": "matrix"}
    guesses |= {"diag_pre_multiply": "matrix", "cholesky_decompose": "matrix", "multiply_lower_tri_self": "matrix"}
    return Shape(0, guesses.get(name, "real"))
