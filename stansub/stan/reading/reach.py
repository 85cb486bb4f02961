"""Reach of statements that add to the log density: how they depend on the observation's index, from the text.

If a term depends only on its own row, and on what its row picks by data, it is the same for any order and cut of the
data. Whatever the text leaves open counts as a dependence on other rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Flag, auto
from functools import reduce
from operator import or_
from typing import NamedTuple

from stansub.stan.reading.sizes import DENSITIES, JOINT
from stansub.stan.reading.typing import MATRIX, ROW_VECTOR, types_in_blocks
from stansub.stan.syntax import (
    REDUCE_SUM,
    Assign,
    Call,
    Choice,
    Declaration,
    Empty,
    Expression,
    For,
    If,
    Infix,
    Literal,
    Name,
    Perform,
    Prefix,
    Profile,
    Program,
    Slice,
    Statement,
    Subscript,
    Target,
    Tilde,
    Transpose,
    calls,
    flat,
    is_carried,
    name_of,
    names,
    placed,
    read_by,
    summands,
    walk,
    writes,
)
from stansub.stan.syntax import Braces as Scope


class Reach(Flag):
    """Which rows of the data an observation's term depends on.

    Attributes
    ----------
    OWN
        Its own row.
    GATHERED
        Elements of parameters or other data that its row picks: ``u[g[n]]``.
    OFFSET
        Adjacent rows, or its place among the others: ``y[n - 1]``.
    FIXED
        Rows of data at places that other data or the program give: ``y[1]``.
    SUMMARY
        All rows of data, such as their mean.
    TOTAL
        All rows, through variables that depend on parameters.
    """

    OWN = auto()
    GATHERED = auto()
    OFFSET = auto()
    FIXED = auto()
    SUMMARY = auto()
    TOTAL = auto()

    @property
    def is_alone(self) -> bool:
        """Return whether no other row affects the term."""
        return not self & (Reach.OFFSET | Reach.FIXED | Reach.SUMMARY | Reach.TOTAL)

    @property
    def words(self) -> str:
        """Return the description for users."""
        return ", ".join(_WORDS[one] for one in self) or "no observations"


_WORDS = {
    Reach.OWN: "the observation's own row",
    Reach.GATHERED: "elements that its row selects",
    Reach.OFFSET: "neighbouring rows or its position",
    Reach.FIXED: "rows at given places, such as `y[1]` or those of a loop over `start[j] : end[j]`",
    Reach.SUMMARY: "the data of all observations",
    Reach.TOTAL: "a value computed from all observations and parameters",
}

NONE = Reach(0)
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
# Operators of elements as operators of numbers.
BY_ELEMENT = {".*": "*", "./": "/", ".^": "^"}
# Functions of sizes and values, by the argument that is the size.
REPEATED = {"zeros_vector": 0, "ones_vector": 0}
REPEATED |= dict.fromkeys(("rep_vector", "rep_row_vector", "rep_array", "rep_matrix"), 1)
# Functions that keep elements and their order.
SAME_ELEMENTS = frozenset({"to_vector", "to_row_vector", "to_array_1d"})
# Comparisons that hold for any number of observations.
_NOT_EMPTY = ((">", "0"), (">=", "1"), ("!=", "0"))
_BY_ROW = frozenset({"rows_dot_product", "rows_dot_self"})
# The axis of a variable to which a loop adds a number of each observation.
_ADDED = -1


class Term(NamedTuple):
    """A statement, and which rows it depends on for an observation."""

    statement: Statement
    reach: Reach


class _Value(NamedTuple):
    """Reach of an expression."""

    reach: Reach = NONE
    """For a container with an element for each observation, the reach of an element."""
    axis: int | None = None
    """The dimension that counts the observations; -1 for a number that is a sum over them."""
    changing: bool = False
    """Whether it depends on parameters."""

    @property
    def together(self) -> _Value:
        """Return the reach of what depends on it for all observations."""
        if self.axis is None:
            return self
        return _Value(self.reach | (Reach.TOTAL if self.changing else Reach.SUMMARY), None, self.changing)


def terms(program: Program, size: str) -> tuple[Term, ...]:
    """Return the statements that add to the log density, in order, with their reach."""
    return tuple(Term(one, reach) for one, reach in _walked(program, size).found.items())


def entries(program: Program, size: str) -> tuple[Term, ...]:
    """Return the statements through which terms depend on other rows, in order, with their reach.

    They are the first to do so: all variables that they read depend on single rows. Parameters as many as the
    observations are among them. There are none if all terms depend on single rows.
    """
    walked = _walked(program, size)
    if all(reach.is_alone for reach in walked.found.values()):
        return ()
    return tuple(Term(one, reach) for one, reach in walked.entries.items())


def _walked(program: Program, size: str) -> _Walk:
    """Return the state after a walk through a program; transformed data are data, computed from all of them."""
    walked = _Walk(program, size)
    for one in program.data_declarations:
        walked.declare(one, changing=False)
    for one in program.parameters.declarations:
        walked.declare(one, changing=True)
        if (value := walked.values[one.name]).axis is not None:
            # Other rows would have other parameters.
            walked.values[one.name] = value._replace(reach=value.reach | Reach.OFFSET)
            walked.entries[one] = Reach.OFFSET
    walked.run(program.evaluated)
    return walked


@dataclass
class _Walk:
    """State of a walk through statements."""

    program: Program
    size: str
    values: dict[str, _Value] = field(default_factory=dict)
    """Reach of variables."""
    found: dict[Statement, Reach] = field(default_factory=dict)
    """Reach of the statements that add."""
    entries: dict[Statement, Reach] = field(default_factory=dict)
    """Reach of the statements through which other rows come in."""
    index: str = ""
    """The loop variable over observations; empty outside such a loop."""
    outside: frozenset[str] = frozenset()
    """Variables declared outside this loop."""
    guard: Reach = NONE
    """Reach of what decides whether a statement runs."""
    turns: bool = False
    """Whether statements may run repeatedly."""

    def __post_init__(self) -> None:
        self.types = types_in_blocks(self.program)
        self.data = self.program.data_names
        self.own = {_density_of(one.name) for one in self.program.functions} | {*REDUCE_SUM}

    def declare(self, one: Declaration, *, changing: bool) -> None:
        """Record a variable without a value."""
        axes = [k for k, dim in enumerate(one.all_dims) if self._is_all(dim)]
        odd = len(axes) > 1 or one.type.elements
        alone = Reach.OWN if axes else NONE
        self.values[one.name] = _Value(Reach.TOTAL if odd else alone, axes[0] if axes else None, changing)

    def run(self, statements: Sequence[Statement]) -> None:
        """Record what statements do."""
        for one in statements:
            match one:
                case Declaration():
                    self.declare(one, changing=False)
                    self.outside -= {one.name}
                    if one.value is not None:
                        self._assign(one, Name(one.name), "=", one.value)
                case Assign(place, operator, expression) if len(one.variables) == 1:
                    self._assign(one, place, operator, expression)
                case Target() | Tilde():
                    self._add(one)
                case For():
                    self._loop(one)
                case If(condition):
                    inside = replace(self, guard=self.guard | self.of(condition).together.reach)
                    for body in one.bodies:
                        inside.run(body)
                case Scope() | Profile():
                    self.run(one.bodies[0])
                case Empty() | Perform(Call("print" | "reject" | "fatal_error")):
                    pass
                case _:
                    self._leave_open(one)

    def of(self, expression: Expression) -> _Value:
        """Return the reach of an expression."""
        match expression:
            case Literal():
                return _Value()
            case Name(name):
                if name == self.size:
                    return _Value(Reach.SUMMARY)
                value = _Value(Reach.OFFSET) if name == self.index else self.values.get(name, _Value())
                return value.together if value.axis == _ADDED else value
            case Subscript():
                return self._part(expression)
            case Prefix(_, inside):
                return self.of(inside)
            case Transpose(inside):
                value = self.of(inside)
                if value.axis is not None and self.types.of(inside) == MATRIX:
                    return value._replace(axis=1 - value.axis)
                return value
            case Infix(operator, left, right):
                return self._infix(operator, left, right)
            case Choice(condition, then, orelse):
                return _joined([self.of(condition).together, self.of(then), self.of(orelse)])
            case Call(name, arguments):
                return self._call(name, arguments)
        return _joined([self.of(part).together for part in expression.parts if isinstance(part, Expression)])

    def _infix(self, operator: str, left: Expression, right: Expression) -> _Value:
        if (operator, str(right)) in _NOT_EMPTY and self._is_all(left):
            return _Value()
        values = self.of(left), self.of(right)
        if operator in ("*", "/", "\\") and not self._is_by_row(operator, left, right):
            return _joined([one.together for one in values])
        found = _joined(values)
        # The columns of a row vector times a matrix are its elements.
        is_row = operator == "*" and found.axis == 1 and self.types.of(left) == ROW_VECTOR
        return found._replace(axis=0) if is_row else found

    def _is_by_row(self, operator: str, left: Expression, right: Expression) -> bool:
        """Return whether each row, or column, of a product or quotient depends on that one alone."""
        rows = self.of(left).axis, self.of(right).axis
        if rows == (None, None) or self.types.is_number(right):
            return True
        if operator == "*":
            return rows in ((0, None), (None, 1)) or self.types.is_number(left)
        return False

    def _is_all(self, expression: Expression) -> bool:
        """Return whether an expression is the number of observations."""
        match expression:
            case Call("size" | "num_elements" | "rows", (Name(name),)):
                return self.values.get(name, _Value()).axis == 0
        return expression == Name(self.size)

    def _call(self, name: str, arguments: Sequence[Expression]) -> _Value:
        place = REPEATED.get(name)
        if place is not None and len(arguments) > place and self._is_all(arguments[place]):
            filled = _joined([self.of(one) for k, one in enumerate(arguments) if k != place])
            return _Value(filled.reach, 0, filled.changing)
        values = [self.of(one) for one in arguments]
        if name == "target" or name.endswith("_lp"):
            return _Value(Reach.TOTAL, None, True)
        by_row = name in _BY_ROW and all(one.axis in (None, 0) for one in values)
        return _joined(values if by_row or name in ELEMENTWISE | SAME_ELEMENTS else [one.together for one in values])

    def _part(self, expression: Subscript) -> _Value:
        """Return the reach of elements of a variable."""
        base, indices = flat(expression)
        whole = self.of(base)
        given = [one if isinstance(one, Slice) else self.of(one) for one in indices]
        picked = _joined([self._bounds(one) if isinstance(one, Slice) else one for one in given])
        if whole.axis is None:
            # A row picks by its data, or by its place, which differs in other data.
            far = Reach.OFFSET if Name(self.index) in indices else NONE
            gathered = Reach.GATHERED if picked.reach & (Reach.OWN | Reach.GATHERED) else NONE
            axis = 0 if picked.axis is not None else None
            return _Value(whole.reach | picked.reach | gathered | far, axis, whole.changing or picked.changing)
        at = indices[whole.axis] if whole.axis < len(indices) else Slice()
        others = [one for k, one in enumerate(given) if k != whole.axis and not isinstance(one, Slice)]
        found = _joined([whole._replace(axis=None), *(one.together for one in others)])
        # Single elements of earlier dimensions leave the dimension of the observations in place.
        before = sum(not isinstance(one, Slice) for one in indices[: whole.axis])
        match at:
            case Slice() if at.is_whole:
                return found._replace(axis=whole.axis - before)
            case Name(self.index) if self.index:
                return found
            case Slice():
                return found._replace(reach=found.reach | Reach.OFFSET, axis=whole.axis - before)
        place = self.of(at)
        if place.axis is not None or place.reach:
            return found._replace(reach=found.reach | place.reach | Reach.OFFSET, axis=place.axis and 0)
        return _joined([found, whole.together if whole.changing else _Value(Reach.FIXED)])

    def _bounds(self, index: Slice) -> _Value:
        return _joined([self.of(one).together for one in (index.lower, index.upper) if one is not None])

    def _assign(self, statement: Statement, place: Expression, operator: str, expression: Expression) -> None:
        """Record an assigned value."""
        name, value, whole = name_of(place), self.of(expression), operator == "="
        before, read = self.values.get(name, _Value()), self._read(statement)
        if self._is_added(place, operator, before):
            value = value.together
            reach = before.reach | value.reach | self.guard | Reach.OWN
            self.values[name] = _Value(reach, _ADDED, value.changing or before.changing)
            self._enter(statement, read, reach)
            return
        found = value if before.axis is None else value._replace(axis=before.axis)
        if self.index:
            value = found = value.together
        reach = found.reach | self.guard
        if isinstance(place, Name):
            if self.index and name in self.outside and (reach or not whole):
                reach |= Reach.TOTAL  # it carries over from one observation to the next
            is_new = whole and not self.turns and not self.guard
            kept = NONE if is_new else before.reach
        else:
            _, indices = flat(place)
            kept, axis = before.reach, before.axis
            at = indices[axis] if axis is not None and axis < len(indices) else Slice()
            own = at == Name(self.index) if self.index else isinstance(at, Slice) and at.is_whole
            if axis is not None and not own:
                reach |= Reach.OFFSET
            if axis is None and self.index and name in self.outside:
                reach |= Reach.TOTAL
        axis = before.axis if before.axis is not None else value.axis if not self.index else None
        self.values[name] = _Value(reach | kept, axis, value.changing or before.changing)
        self._enter(statement, read, reach)

    def _is_added(self, place: Expression, operator: str, before: _Value) -> bool:
        """Return whether a loop over observations only adds to a variable."""
        if not self.index or operator != "+=" or not isinstance(place, Name) or place.name not in self.outside:
            return False
        return before.axis == _ADDED or (before.axis is None and not before.reach)

    def _read(self, statement: Statement) -> Reach:
        """Return the reach of all variables in a statement that are not data."""
        read = (names(statement) & self.values.keys()) - self.data
        return reduce(or_, (self.values[name].reach for name in read), NONE)

    def _enter(self, statement: Statement, read: Reach, reach: Reach) -> None:
        """Record a statement if other rows come in through it; what functions of the program do is left open."""
        called = {_density_of(call.name) for call in calls(statement)}
        if read.is_alone and not reach.is_alone and not called & self.own:
            self.entries[statement] = reach

    def _add(self, one: Target | Tilde) -> None:
        """Record a statement that adds to the log density."""
        if isinstance(one, Tilde):
            name, first = one.distribution.name, (one.left, *one.distribution.arguments)
            values = [self._values(name, [*first, *(part for group in one.truncation for part in group.parts)])]
        else:
            values = [self._added(term) for _, term in summands(one.expression)]
        found = _joined(values)
        found = found.together if self.index else found
        reach = found.reach | self.guard | (Reach.OWN if self.index else NONE)
        self.found[one] = self.found.get(one, NONE) | reach
        self._enter(one, self._read(one), reach)

    def _added(self, term: Expression) -> _Value:
        """Return the reach of what is added for all observations: sums and densities add up those of each."""
        match term:
            case Call("sum" | "dot_product", arguments):
                return _joined([self.of(one) for one in arguments])
            case Infix("*", left, right) if self.of(left).axis is None:
                return _joined([self.of(left), self._added(right)])
            case Name(name) if name in self.values:
                return self.values[name] if self.values[name].axis == _ADDED else self.of(term).together
            case Call(name, arguments) if name.endswith(DENSITIES):
                return self._values(_density_of(name), arguments)
        return self.of(term).together

    def _values(self, density: str, arguments: Iterable[object]) -> _Value:
        each = [one for one in arguments if isinstance(one, Expression)]
        given = [self.of(one) for one in each]
        # A joint density of an array is one of each of its elements.
        of_array = bool(each) and self.types.of(each[0]).depth > 0
        of_elements = of_array and all(one.axis in (None, 0) for one in given)
        apart = density not in self.own and (of_elements or not density.startswith(JOINT))
        return _joined(given if apart else [one.together for one in given])

    def _loop(self, loop: For) -> None:
        over_all = not self.index and self._is_all(loop.upper)
        if over_all:
            guard = NONE if loop.lower == Literal("1") else Reach.OFFSET
            outside = frozenset(self.values) - self._renewed(loop)
            inside = replace(self, index=loop.variable, outside=outside, guard=self.guard | guard, turns=True)
        else:
            guard = self._bounds(Slice(loop.lower, loop.upper)).reach
            inside = replace(self, guard=self.guard | guard, turns=True)
            self.values[loop.variable] = _Value(guard)
        while True:  # one iteration may read what the previous one wrote
            before = dict(self.values)
            inside.run(loop.body)
            if self.values == before:
                return

    def _renewed(self, loop: For) -> set[str]:
        """Return variables that each run of a loop computes before it reads them, and that nothing else reads."""
        inside = {id(one) for one in walk([loop])}
        others = [one for one in walk(self.program.evaluated) if id(one) not in inside]
        elsewhere = set().union(*map(read_by, others))
        return {name for name in writes(*loop.body) - elsewhere if _is_renewed(name, loop.body)}

    def _leave_open(self, statement: Statement) -> None:
        """Record a statement that is not analysed."""
        for one in walk([statement]):
            for name in writes(one):
                self.values[name] = _Value(Reach.TOTAL, None, True)
            if isinstance(one, Target | Tilde | Perform):
                self.found[one] = Reach.TOTAL


def _density_of(function: str) -> str:
    """Return the name of a density without its suffix; of other functions their name."""
    return function.rpartition("_")[0] if function.endswith(DENSITIES) else function


def _is_renewed(variable: str, statements: Sequence[Statement]) -> bool:
    """Return whether statements compute a variable, in all branches that read it, before they read it."""
    involved = [one for one in statements if variable in names(one)]
    if len(involved) == 1 and isinstance(branch := involved[0], If) and variable not in names(branch.condition):
        inside = [body for body in branch.bodies if variable in names(*body)]
        return len(inside) == 1 and _is_renewed(variable, inside[0])
    certain = (
        one
        for one, around in placed(involved)
        if isinstance(one, Assign) and variable in one.variables and not any(isinstance(each, If) for each in around)
    )
    return any(certain) and not is_carried(involved, variable)


def _joined(values: Sequence[_Value]) -> _Value:
    """Return the reach of what depends on several values."""
    axis = next((one.axis for one in values if one.axis is not None), None)
    reach = reduce(or_, (one.reach for one in values), NONE)
    return _Value(reach, axis, any(one.changing for one in values))
