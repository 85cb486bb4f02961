"""The likelihood of one observation, followed through the text of a program with its data; nothing is compiled.

Statements run on the values of variables (`stansub.stan.observations.containers`). Known values are computed, a loop
over the observations runs once for all of them, and branches on data are masks. What an observation adds is its log
likelihood. If a value cannot be followed, the reason is kept, which matters only if a likelihood reads it. The result
is proved numerically (`stansub.stan.observations.predictors`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stansub.stan.observations import cases, containers
from stansub.stan.observations.branches import UNDECIDED, Sign, joined
from stansub.stan.observations.builtins import FUNCTIONS, SIZED, SIZES, Density, call, density, truncation
from stansub.stan.observations.containers import Rows, Total, Value, chosen, empty, is_known, simplest, total
from stansub.stan.observations.elementary import by_value
from stansub.stan.observations.frames import UNSUPPORTED, Frame, Reason, either
from stansub.stan.observations.indexing import Index, elements, is_own, length, part, replaced, subscripted
from stansub.stan.observations.operators import Count, counts, decided, infix, literal, prefix, stacked
from stansub.stan.observations.parameters import unconstrained
from stansub.stan.observations.rowwise import Expression, NestedError, NotFollowedError, Number, data, select
from stansub.stan.passes.rewrite import in_one_slice
from stansub.stan.reading.sizes import has_terms
from stansub.stan.reading.typing import MATRIX, types_anywhere
from stansub.stan.syntax import (
    Assign,
    Braces,
    Call,
    Choice,
    Declaration,
    Empty,
    For,
    ForEach,
    Group,
    If,
    Infix,
    Jump,
    Literal,
    Loop,
    Name,
    Perform,
    Prefix,
    Profile,
    Program,
    Return,
    Slice,
    Statement,
    Subscript,
    Target,
    Tilde,
    Transpose,
    While,
    find,
    flat,
    name_of,
    names,
    normalised,
    shortened,
    writes,
)
from stansub.stan.syntax import Expression as Node
from stansub.types import Check

# Maximum number of statements that run one after the other; elements of a container that take as long to copy as one;
# iterations of a loop after which the others are taken to add no term of the observations either.
_MOST_STATEMENTS, _COPIED, _TRIED = 3_000_000, 1000, 100


class ObservationTerm(NamedTuple):
    """The likelihood of one observation."""

    term: Expression
    """Its logarithm, up to terms that do not depend on parameters."""
    density: Density | None
    """Its density, if it is a single one."""
    shapes: tuple[NDArray[np.int64], ...]
    """For each parameter, the unconstrained places of its elements, if it has one for each."""


def follow(
    program: Program, values: Mapping[str, Any], n: int, *, sparse: bool = False, check: Check = lambda: None
) -> ObservationTerm:
    """Return the likelihood of one observation.

    Raises `NotFollowedError` if the text cannot be followed; the message says where.

    Parameters
    ----------
    values : mapping
        The data, and transformed data as far as known.
    sparse : bool
        Whether slopes are sparse even for few observations.
    check : callable
        Called before each statement; raises an error if it is time to stop.
    """
    program = in_one_slice(program)
    walk = _Walk(program, n, check)
    given = {name: np.asarray(value) if np.ndim(value) else value for name, value in values.items()}
    frame = Frame(dict(given))
    declared = {one.name for one in program.transformed_data.declarations}
    own = [one for one in program.transformed_data.statements if not set() < writes(one) & declared <= given.keys()]
    walk.run(own, frame)
    frame.values |= given | counts(program, given, n)
    walk.is_counting = True
    parameters = program.parameters.declarations
    places = unconstrained(parameters, frame.values, partial(walk.of, frame=frame), n, sparse=sparse, check=check)
    walk.run(program.transformed_parameters.statements, frame)
    before = list(walk.skipped)
    walk.run(program.model.statements, frame)
    if walk.lost or not isinstance(walk.term, Expression):
        of_the_model = walk.skipped[len(before) :]
        new = [reason for reason in of_the_model if reason not in before]
        otherwise = "no statement adds a term for each observation"
        raise NotFollowedError([*walk.lost, *new, *of_the_model, *walk.retried, otherwise][0])
    _, density = walk.densities.get(id(walk.term), (walk.term, None))
    return ObservationTerm(walk.term, density, places)


class _Walk:
    """A walk through statements."""

    def __init__(self, program: Program, n: int, check: Check) -> None:
        self.types, self.n, self.check = types_anywhere(program), n, check
        self.term: Number = 0.0
        self.skipped: list[str] = []
        # Reasons for skipped terms of the observations, and why loops ran observation by observation.
        self.lost: list[str] = []
        self.retried: list[str] = []
        # By the ids of their values for an observation, which are kept so that no id is reused.
        self.densities: dict[int, tuple[Number, Density]] = {}
        self.functions: dict[tuple[str, int], Any] = {
            (one.name, len(one.arguments)): one for one in program.functions if one.body is not None
        }
        self.outer_products = {id(one) for one in find(Infix, [program]) if self.types.is_outer(one)}
        self.left, self.is_counting = _MOST_STATEMENTS, False
        self.own = data(np.arange(1, n + 1))

    # --- statements ---

    def run(self, statements: Sequence[Statement], frame: Frame) -> None:
        """Run statements; record what cannot be followed."""
        for k, one in enumerate(statements):
            if frame.is_over:
                return
            self._count()
            try:
                self._run(one, frame)
            except NestedError:
                raise
            except NotFollowedError as error:
                if cases.is_divisible(error, frame):
                    cases.each_case(error, partial(self.run, statements[k:], frame), frame, self.n)
                    return
                self._give_up(one, str(error), frame)
            except UNSUPPORTED:
                self._give_up(one, f"`{shortened(one)}` is not supported", frame)

    def _count(self) -> None:
        self.check()
        self.left -= 1
        if self.left < 0:
            raise NotFollowedError("its loops are too long")

    def _give_up(self, one: Statement, reason: str, frame: Frame) -> None:
        if any(find(Return, [one])) or (any(find(Jump, [one])) and not isinstance(one, Loop)):
            raise NotFollowedError(reason)  # statements after it may not run
        self.skipped.append(reason)
        if has_terms(one) and (frame.in_rows or frame.reads_observations(names(one), self.n)):
            self.lost.append(reason)
        for name in writes(one):
            frame.values[name] = Reason(reason)

    def _run(self, one: Statement, frame: Frame) -> None:
        match one:
            case Declaration():
                is_set = one.value is not None
                dims = () if is_set else tuple(int(self._scalar(dim, frame)) for dim in one.all_dims)
                value = self.of(one.value, frame) if one.value is not None else empty(dims, one.base == "int")
                frame.declare(one.name, value, is_set=is_set)
            case Assign():
                self._assign(one, frame)
            case Target(expression):
                self._add(self.of(expression, frame), frame)
            case Tilde():
                self._add(cases.by_cases(lambda: self._tilde(one, frame), frame), frame)
            case If(condition, then, orelse):
                self._branch(self.of(condition, frame), then, orelse, frame)
            case For():
                self._loop(one, frame)
            case While(condition, body):
                self._repeat(condition, body, frame)
            case ForEach(container=container):
                by_number = self.types.of(container) == MATRIX
                self._turns(one, *elements(self.of(container, frame), by_number, self.n), frame)
            case Braces() | Profile():
                self.run(one.bodies[0], frame)
            case Return(value) if value is not None:
                frame.returned.append((frame.live, self.of(value, frame)))
                if frame.live is not None:
                    frame.live = np.zeros_like(frame.live)
            case Empty() | Perform(Call("print" | "reject" | "fatal_error")):
                pass
            case Jump(word):
                frame.jump(word, self.n)
            case Perform(Call(name, arguments)):
                self._perform(name, [self.of(each, frame) for each in arguments], frame)
            case _:
                raise NotFollowedError(f"`{shortened(one)}` is not supported")

    def _perform(self, name: str, arguments: Sequence[Value], frame: Frame) -> None:
        """Run a user's function that returns nothing, for the observations for which it is called."""
        function = self.functions[name, len(arguments)]
        given = {one.name: value for one, value in zip(function.arguments, arguments, strict=True)}
        self.run(function.body, Frame(given, live=frame.live, in_rows=frame.in_rows, known=frame.known))

    def _assign(self, one: Assign, frame: Frame) -> None:
        name = name_of(one.place)
        base, indices = flat(one.place)
        if not isinstance(base, Name) or len(one.variables) != 1:
            raise NotFollowedError(f"`{shortened(one)}` is not supported")
        before = frame.values[name]
        if isinstance(before, Reason):
            raise NotFollowedError(before.text)
        given = [self._index(index, frame, before, k) for k, index in enumerate(indices)]
        if frame.in_rows and name in frame.outside and not any(is_own(index, self.n) for index in given):
            if one.increment is None or given:
                raise NotFollowedError(f"`{shortened(one)}` carries a value from one observation to the next")
            value = self.of(one.increment, frame)
            each = value if frame.live is None else select(frame.live, value, 0.0)
            frame.values[name] = Total(each) + before
            return
        value = self.of(one.expression, frame)
        if not frame.in_rows:
            frame.unset.pop(name, None)
            self.left -= np.size(before) // _COPIED
        if one.operator != "=":
            value = infix(one.operator[:-1], part(before, given, self.n), value, self.n)
        frame.values[name] = replaced(before, given, value, frame.live, self.n)

    def _add(self, value: Value, frame: Frame) -> None:
        value = total(value, self.n) if not isinstance(value, Total) else value
        if frame.in_rows:
            if isinstance(value, Total):
                raise NotFollowedError("a sum over observations is added once per observation")
            each = value
        else:
            if not isinstance(value, Total):
                if isinstance(value, Expression) and not value.is_single:
                    raise NotFollowedError("the term of one observation is added outside a loop over observations")
                return
            each = value.each
        self.term = self.term + (each if frame.live is None else select(frame.live, each, 0.0))

    def _tilde(self, one: Tilde, frame: Frame) -> Value:
        arguments = [self.of(node, frame) for node in (one.left, *one.distribution.arguments)]
        name = one.distribution.name
        value = self._density(name, arguments)
        for bounds in one.truncation:
            low, high = (None if isinstance(item, Slice) else self.of(item, frame) for item in bounds.items)
            value = value - truncation(name, arguments, low, high, self._call)
        return value

    def _branch(self, condition: Value, then: Sequence[Statement], orelse: Sequence[Statement], frame: Frame) -> None:
        if isinstance(condition, Sign):
            self._join(condition, then, orelse, frame)
            return
        if np.ndim(holds := decided(condition)) == 0:
            self.run(then if holds else orelse, frame)
            return
        mask = np.asarray(holds, bool)
        frame.split((mask, ~mask), lambda k: self.run((then, orelse)[k], frame), self.n)

    def _join(self, condition: Sign, then: Sequence[Statement], orelse: Sequence[Statement], frame: Frame) -> None:
        """Run both sides of a branch on parameters, and join what they assign, add and return."""
        if any(find(Jump, [*then, *orelse])):
            raise NotFollowedError(UNDECIDED)
        before, term, returned, live = dict(frame.values), self.term, frame.returned, frame.live
        sides = []
        try:
            for body in (then, orelse):
                frame.values, frame.returned, frame.live, self.term = dict(before), [], live, 0.0
                self.run(body, frame)
                sides.append((frame.values, frame.returned, self.term))
        finally:
            frame.live, frame.returned, self.term = live, returned, term
        (first, own, a), (other, own_other, b) = sides
        self.term = term + joined(condition, a, b)
        if own and not own_other and live is None:
            frame.values = other
            returned.append((condition, own[-1][1]))
            return
        if len(own) != len(own_other) or any(one[0] is not live for one in (*own, *own_other)):
            raise NotFollowedError("a branch on parameters returns on one side alone")
        changed = [name for name in before if first[name] is not other[name]]
        frame.values = {name: other[name] for name in before}
        frame.values |= {name: either(condition, first[name], other[name], self.n) for name in changed}
        for (_, value), (_, instead) in zip(own, own_other, strict=True):
            returned.append((live, either(condition, value, instead, self.n)))
            frame.live = None if live is None else np.zeros_like(live)

    def _loop(self, one: For, frame: Frame) -> None:
        ends = [self.of(node, frame) for node in (one.lower, one.upper)]
        low, high = (decided(end, "the length of a loop depends on parameters") for end in ends)
        if np.ndim(low) or np.ndim(high):
            with frame.looping():
                for k, runs in cases.iterations(*np.broadcast_arrays(low, high)):
                    frame.values[one.variable] = k
                    self._branch(data(runs), one.body, (), frame)
                    frame.rejoin("continue")
            return
        self._turns(one, self.own if (low, high) == (1, self.n) else None, range(int(low), int(high) + 1), frame)

    def _turns(self, one: For | ForEach, own: Value | None, values: Iterable[Value] | None, frame: Frame) -> None:
        """Run a loop for each value of its variable, or for all observations at once if these have ``own`` values."""
        if own is not None and not frame.in_rows and self.n > 1 and self._in_rows(one, own, frame):
            return
        if values is None:
            raise NotFollowedError(f"`{shortened(one)}` runs over values of other observations")
        own_names = {each.name for each in find(Declaration, [one])}
        lasting = (writes(one) - own_names) & frame.values.keys()
        leaves = any(find(Jump, [one])) or any(find(Return, [one]))
        adds_alone, before = has_terms(one) and not lasting and not leaves, self.term
        with frame.looping():
            for k, value in enumerate(values):
                if (adds_alone and k == _TRIED and self.term is before) or frame.is_over:
                    break  # no term depends on the observations, or all of them have left
                frame.values[one.variable] = value
                try:
                    self.run(one.body, frame)
                except NestedError as error:  # each iteration depends on the one before
                    raise NotFollowedError(str(error)) from error
                frame.rejoin("continue")

    def _repeat(self, condition: Node, body: Sequence[Statement], frame: Frame) -> None:
        """Run a loop while a condition holds, for the observations for which it holds."""
        with frame.looping():
            while not frame.is_over:
                self._count()
                frame.jump("break", self.n, ~np.asarray(decided(self.of(condition, frame)), bool))
                self.run(body, frame)
                frame.rejoin("continue")

    def _in_rows(self, one: For | ForEach, each: Value, frame: Frame) -> bool:
        """Run a loop over the observations for all of them at once; return False if iterations depend on each other."""
        before, term, noted, outside = dict(frame.values), self.term, len(self.skipped), frame.outside
        lasting = writes(one) & before.keys()
        own = frame.begin_rows(lasting)
        frame.values[one.variable] = each
        try:
            with frame.looping():
                self.run(one.body, frame)
                if "break" in frame.jumped:
                    raise NotFollowedError("`break;` leaves the loop over the observations")
            wrong = [name for name in lasting if isinstance(frame.values.get(name), Reason)]
        finally:
            frame.end_rows(own, outside)
        frame.values.pop(one.variable, None)
        if not wrong or has_terms(one) or not all(is_known(before[name]) for name in lasting):
            return True
        # If it depends on data alone, it can run observation by observation.
        frame.values, self.term = before, term
        self.retried += self.skipped[noted:]
        del self.skipped[noted:]
        self.lost.clear()
        return False

    def of(self, node: Node, frame: Frame) -> Value:
        """Return the value of an expression."""
        try:
            match node := subscripted(node):
                case Literal(text):
                    return literal(text)
                case Name(name):
                    if name not in frame.values:
                        raise NotFollowedError(f"the value of {name} is unknown")
                    value = frame.values[name]
                    if isinstance(value, Reason):
                        raise NotFollowedError(value.text)
                    return value
                case Subscript():
                    base, indices = flat(node)
                    value = self.of(base, frame)
                    return part(value, [self._index(index, frame, value, k) for k, index in enumerate(indices)], self.n)
                case Group("[" | "{", items):
                    return simplest(stacked([self.of(one, frame) for one in items]))
                case Prefix(operator, operand):
                    return prefix(operator, self.of(operand, frame), self.n)
                case Transpose(operand):
                    return FUNCTIONS["transpose"]([self.of(operand, frame)], self.n)
                case Infix("&&" | "||" as operator, left, right):
                    first = self.of(left, frame)
                    if not isinstance(first, Expression | Sign) and bool(first) == (operator == "||"):
                        return int(bool(first))
                    return infix(operator, first, self.of(right, frame), self.n)
                case Infix("*", left, right) if id(node) in self.outer_products:
                    return containers.product(self._as_matrix(left, frame), self._as_matrix(right, frame), self.n)
                case Infix(operator, left, right):
                    return infix(operator, self.of(left, frame), self.of(right, frame), self.n)
                case Choice(condition, then, orelse):
                    return self._choice(condition, then, orelse, frame)
                case Call("to_matrix", (operand,)):
                    return self._as_matrix(operand, frame)
                case Call("rep_matrix", (operand, size)):
                    return containers.repeated(
                        self.of(operand, frame), self.types.of(operand), self._scalar(size, frame)
                    )
                case Call(name, arguments):
                    of = self._settled if name in SIZED else self.of
                    return cases.by_cases(lambda: self._call(name, [of(one, frame) for one in arguments]), frame)
        except NotFollowedError:
            raise
        except UNSUPPORTED:  # the innermost expression says most
            pass
        raise NotFollowedError(f"`{shortened(str(node))}` is not supported")

    def _as_matrix(self, node: Node, frame: Frame) -> Value:
        return containers.as_matrix(self.of(node, frame), self.types.of(node))

    def _settled(self, node: Node, frame: Frame) -> Value:
        """Return a value that, if it is a single integer, is the same for all observations."""
        value = frame.known.get(node, self.of(node, frame))
        if cases.differs(value):
            raise cases.VaryingError(node, np.asarray(value.values))
        return value

    def _scalar(self, node: Node, frame: Frame) -> Any:
        value = self._settled(node, frame)
        if isinstance(value, Expression | Rows | Total) or np.ndim(value):
            raise NotFollowedError(f"`{node}` is not a single known number")
        return value

    def _index(self, index: Node, frame: Frame, base: Value, k: int) -> Index:
        """Return index k of a container."""
        if isinstance(index, Slice):
            if index.is_whole:
                return None
            if index.lower is not None and index.upper is not None:
                low, high = (frame.known.get(end, self.of(end, frame)) for end in (index.lower, index.upper))
                if cases.differs(low) and cases.differs(high):
                    return cases.places(index, low, high, frame)
            low = 1 if index.lower is None else self._scalar(index.lower, frame)
            high = length(base, k, self.n) if index.upper is None else self._scalar(index.upper, frame)
            return np.arange(low, high + 1)
        return self.of(index, frame)

    def _choice(self, condition: Node, then: Node, orelse: Node, frame: Frame) -> Value:
        value = self.of(condition, frame)
        if isinstance(value, Sign):
            return either(value, self.of(then, frame), self.of(orelse, frame), self.n)
        if np.ndim(holds := decided(value)) == 0:
            return self.of(then if holds else orelse, frame)
        return chosen(np.asarray(holds, bool), self.of(then, frame), self.of(orelse, frame), self.n)

    def _call(self, name: str, arguments: Sequence[Value]) -> Value:
        name = normalised(name)
        if (function := self.functions.get((name, len(arguments)))) is not None:
            return self._inlined(function, arguments)
        if name in FUNCTIONS:
            found = call(name, arguments, self.n)
            return Count(found) if self.is_counting and name in SIZES and found == self.n else found
        if name.endswith(("_lpdf", "_lpmf")):
            return self._density(name[:-5], arguments)
        raise NotFollowedError(f"the function {name} is not supported")

    def _density(self, name: str, arguments: Sequence[Value]) -> Value:
        for end in ("_lpdf", "_lpmf"):
            if (function := self.functions.get((name + end, len(arguments)))) is not None:
                return self._inlined(function, arguments)
        value, of = density(name, arguments, self.n)
        each = value.each if isinstance(value, Total) else value
        self.densities[id(each)] = each, of
        return value

    def _inlined(self, function: Any, arguments: Sequence[Value]) -> Value:
        """Return the result of a user's function, if needed separately for each value of an integer of the data."""
        noted = list(self.skipped)
        try:
            return self._returned(function, arguments)
        except (NotFollowedError, RecursionError):
            if (k := next(cases.varying(arguments), None)) is None:
                raise
        self.skipped[:] = noted
        before, one, after = arguments[:k], arguments[k], arguments[k + 1 :]
        return by_value(lambda value: self._inlined(function, [*before, value, *after]), one)

    def _returned(self, function: Any, arguments: Sequence[Value]) -> Value:
        inner = Frame({one.name: value for one, value in zip(function.arguments, arguments, strict=True)})
        noted = len(self.skipped)
        self.run(function.body, inner)
        if not inner.is_over:
            reason = self.skipped[noted] if len(self.skipped) > noted else f"{function.name} returns nothing"
            raise NotFollowedError(reason)
        return inner.result(self.n)
