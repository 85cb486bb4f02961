"""How expressions depend on the unconstrained parameters, as far as the text shows.

What the text does not settle is `Shape.OPEN`, and left to a numerical check. Where the text shows how that check comes
out, it spares the compilation that the check takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto

from stansub.stan.syntax import (
    Assign,
    Braces,
    Call,
    Choice,
    Declaration,
    Expression,
    For,
    ForEach,
    Group,
    If,
    Infix,
    Literal,
    Name,
    Prefix,
    Profile,
    Program,
    Span,
    Statement,
    Subscript,
    Transpose,
    While,
    walk,
)


class Shape(Enum):
    """What an expression is in the unconstrained parameters.

    Attributes
    ----------
    KNOWN, AFFINE
    EXP, LOGIT
        The exponential and the inverse logit of what is affine.
    NONLINEAR
        None of these.
    OPEN
        Not settled by the text.
    """

    KNOWN = auto()
    AFFINE = auto()
    EXP = auto()
    LOGIT = auto()
    NONLINEAR = auto()
    OPEN = auto()


_KEEPING_EXP = ("sqrt", "square", "inv", "inv_sqrt", "inv_square", "cbrt")
_NEITHER = {Shape.AFFINE: Shape.NONLINEAR, Shape.EXP: Shape.NONLINEAR, Shape.LOGIT: Shape.NONLINEAR}
_MAPS = {
    "exp": {Shape.AFFINE: Shape.EXP},
    "log": {Shape.EXP: Shape.AFFINE},
    "inv_logit": {Shape.AFFINE: Shape.LOGIT},
    "logit": {Shape.LOGIT: Shape.AFFINE},
    **{name: {Shape.EXP: Shape.EXP} for name in _KEEPING_EXP},
    **dict.fromkeys(("Phi", "Phi_approx", "inv_cloglog"), _NEITHER),
    **{name: {Shape.AFFINE: Shape.AFFINE} for name in ("sum", "mean", "cumulative_sum")},
}
# No function that a program has undoes these.
_LOSING = frozenset({"tgamma", "lgamma", "digamma", "trigamma", "erf", "erfc", "sin", "cos"})
_PRODUCTS = frozenset(
    {"dot_product", "rows_dot_product", "columns_dot_product", "diag_pre_multiply", "diag_post_multiply"}
)
# Containers that hold the same elements; also those by which linear predictors are handed out.
RESHAPED = frozenset(
    (
        *("append_array", "append_col", "append_row", "block", "col", "diagonal", "head", "reverse", "row", "segment"),
        *("rep_array", "rep_matrix", "rep_row_vector", "rep_vector", "sub_col", "sub_row", "tail", "to_array_1d"),
        *("to_array_2d", "to_matrix", "to_row_vector", "to_vector", "stansub_rows", "stansub_spread"),
    )
)
_UNBOUNDED = frozenset({"real", "vector", "row_vector", "matrix"})


def shape_at(program: Program, place: Span, expression: Expression) -> Shape:
    """Return the shape of an expression where a statement of the model block stands.

    Parameters
    ----------
    program : Program
    place : Span
        Of the statement.
    expression : Expression
        In the variables that are known there.
    """
    shapes: dict[str, Shape] = {}
    for one in program.parameters.declarations:
        shapes[one.name] = _parameter(one, shapes)
    _run(program.transformed_parameters.statements, shapes, None)
    return _shape(expression, shapes) if _run(program.model.statements, shapes, place) else Shape.OPEN


def _parameter(declared: Declaration, shapes: Mapping[str, Shape]) -> Shape:
    if declared.base not in _UNBOUNDED:
        return Shape.OPEN
    bounds = {bound.kind: bound.value for bound in declared.type.bounds}
    if not bounds:
        return Shape.AFFINE
    if set(bounds) <= {"offset", "multiplier"}:
        offset, scale = (_shape(bounds.get(name, Literal("1")), shapes) for name in ("offset", "multiplier"))
        return _sum(offset, _product(scale, Shape.AFFINE))
    limits = [str(bounds.pop(name, "")) for name in ("lower", "upper")]
    if bounds or limits[0] not in ("0", "0.0"):
        return Shape.OPEN
    return {"": Shape.EXP, "1": Shape.LOGIT, "1.0": Shape.LOGIT}.get(limits[1], Shape.OPEN)


def _run(statements: Sequence[Statement], shapes: dict[str, Shape], place: Span | None) -> bool:
    """Note the shapes of variables that statements write, up to a place; whether it was reached.

    A loop is run once: its first round shows what there is, if anything.
    """
    for one in statements:
        if one.span == place:
            return True
        if isinstance(one, Declaration):
            shapes[one.name] = Shape.KNOWN if one.value is None else _shape(one.value, shapes)
        elif isinstance(one, Assign):
            _assign(one, shapes)
        elif isinstance(one, ForEach):
            shapes[one.variable] = _shape(one.container, shapes)
            if _run(one.body, shapes, place):
                return True
        elif isinstance(one, For | Profile | Braces):
            if _run(one.body, shapes, place):
                return True
        elif isinstance(one, If):
            if _branch(one, shapes, place):
                return True
        elif isinstance(one, While):
            _leave_open(one, shapes)
    return False


def _branch(one: If, shapes: dict[str, Shape], place: Span | None) -> bool:
    if _shape(one.condition, shapes) is not Shape.KNOWN:
        _leave_open(one, shapes)
        return False
    ends = []
    for branch in one.bodies:
        own = dict(shapes)
        if _run(branch, own, place):
            shapes.update(own)
            return True
        ends.append(own)
    for name in shapes:
        found = {end[name] for end in ends}
        shapes[name] = found.pop() if len(found) == 1 else Shape.OPEN
    return False


def _leave_open(statement: Statement, shapes: dict[str, Shape]) -> None:
    for one in walk([statement]):
        if isinstance(one, Assign):
            shapes.update(dict.fromkeys(one.variables, Shape.OPEN))


def _assign(one: Assign, shapes: dict[str, Shape]) -> None:
    value = _shape(one.expression, shapes)
    if len(one.variables) != 1:
        shapes.update(dict.fromkeys(one.variables, Shape.OPEN))
        return
    name = one.variables[0]
    before = shapes.get(name, Shape.KNOWN)
    if one.operator != "=":
        value = _infix(one.operator.removesuffix("="), before, value)
    is_whole = isinstance(one.place, Name)
    shapes[name] = value if is_whole or before in (Shape.KNOWN, value) or value is Shape.NONLINEAR else Shape.OPEN


def _shape(expression: Expression, shapes: Mapping[str, Shape]) -> Shape:
    match expression:
        case Name(name):
            return shapes.get(name, Shape.KNOWN)
        case Literal():
            return Shape.KNOWN
        case Group("(", (inside,)) | Transpose(inside):
            return _shape(inside, shapes)
        case Group(_, items):
            return _together([_shape(item, shapes) for item in items])
        case Prefix(operator, operand):
            found = _shape(operand, shapes)
            kept = (
                (Shape.KNOWN, Shape.AFFINE) if operator == "-" else tuple(Shape) if operator == "+" else (Shape.KNOWN,)
            )
            return found if found in kept else Shape.OPEN
        case Infix(operator, left, right):
            return _infix(operator, _shape(left, shapes), _shape(right, shapes))
        case Subscript(base, indices):
            places = _together([_shape(index, shapes) for index in indices])
            return _shape(base, shapes) if places is Shape.KNOWN else Shape.OPEN
        case Choice(condition, then, orelse):
            if _shape(condition, shapes) is not Shape.KNOWN:
                return Shape.OPEN
            then_shape, else_shape = _shape(then, shapes), _shape(orelse, shapes)
            return then_shape if then_shape is else_shape else Shape.OPEN
        case Call(name, arguments):
            return _call(name, [_shape(argument, shapes) for argument in arguments])
        case _:  # a slice
            return _together([_shape(part, shapes) for part in expression.parts if isinstance(part, Expression)])


def _call(name: str, arguments: Sequence[Shape]) -> Shape:
    if set(arguments) <= {Shape.KNOWN}:
        return Shape.KNOWN
    if name in _LOSING:
        return Shape.NONLINEAR
    if name in _MAPS:
        return _MAPS[name].get(arguments[0], Shape.OPEN)
    if name in _PRODUCTS:
        return _product(arguments[0], arguments[1])
    return _together(arguments) if name in RESHAPED else Shape.OPEN


def _together(shapes: Sequence[Shape]) -> Shape:
    """The shape of what has elements of several shapes."""
    found = set(shapes) - {Shape.KNOWN}
    return Shape.KNOWN if not found else found.pop() if len(found) == 1 else Shape.OPEN


def _infix(operator: str, left: Shape, right: Shape) -> Shape:
    if left is right is Shape.KNOWN:
        return Shape.KNOWN
    if operator in ("+", ".+"):
        return _sum(left, right)
    if operator in ("-", ".-"):
        return Shape.OPEN if left is right is Shape.NONLINEAR else _sum(left, right)
    if operator in ("*", ".*"):
        return _product(left, right)
    if operator in ("/", "./"):
        if right is Shape.NONLINEAR:
            return Shape.NONLINEAR if left in (Shape.KNOWN, Shape.AFFINE, Shape.EXP) else Shape.OPEN
        return (
            _product(left, right) if right in (Shape.KNOWN, Shape.EXP) and left is not Shape.NONLINEAR else Shape.OPEN
        )
    if operator in ("^", ".^") and right is Shape.KNOWN:
        return left if left is Shape.EXP else Shape.OPEN
    return Shape.OPEN


def _sum(left: Shape, right: Shape) -> Shape:
    found = {left, right} - {Shape.KNOWN}
    if not found:
        return Shape.KNOWN
    if found <= {Shape.AFFINE, Shape.NONLINEAR}:
        return Shape.NONLINEAR if Shape.NONLINEAR in found else Shape.AFFINE
    return Shape.OPEN


def _product(left: Shape, right: Shape) -> Shape:
    if Shape.KNOWN in (left, right):
        other = right if left is Shape.KNOWN else left
        return Shape.OPEN if other is Shape.LOGIT else other
    if left is right is Shape.EXP:
        return Shape.EXP
    if {left, right} <= {Shape.AFFINE, Shape.EXP, Shape.NONLINEAR} and not left is right is Shape.NONLINEAR:
        return Shape.NONLINEAR
    return Shape.OPEN
