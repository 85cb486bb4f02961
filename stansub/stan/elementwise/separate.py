"""Rewriting of a program with each observation's log likelihood in a separate function, ``log_lik_i``.

Everything that has a value for each observation and changes between evaluations becomes a local variable of that
function, computed for one observation; the rest stays in place. The rewriting uses only the text; its callers prove
that the log density is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from stansub.stan.densities import PRODUCTS
from stansub.stan.elementwise.elements import Elements, NotSeparableError, Shape, shape_of
from stansub.stan.recognise import normalised, terms
from stansub.stan.recursions import recursions
from stansub.stan.signatures import of_library
from stansub.stan.sizes import (
    DENSITIES,
    changing_names,
    declarations,
    observations_in,
    outcome_sizes,
    size_candidates,
)
from stansub.stan.syntax import (
    Argument,
    Assign,
    Block,
    Braces,
    Call,
    Declaration,
    Empty,
    Expression,
    For,
    ForEach,
    Function,
    Group,
    If,
    Infix,
    Jacobian,
    Literal,
    Name,
    Node,
    Perform,
    Prefix,
    Profile,
    Program,
    Return,
    SizedType,
    Slice,
    Statement,
    Target,
    Tilde,
    Transpose,
    UnsizedType,
    While,
    bare,
    calls,
    changed,
    find,
    names,
    symbols,
    walk,
    writes,
)
from stansub.stan.typing import INT, Types

LOG_LIK = "log_lik_i"
_FIRST = Literal("1")
# Place of the loop over observations.
_HERE = Empty()


def separations(program: Program, size: str = "") -> Iterator[str | NotSeparableError]:
    """Yield the program with its likelihood as a loop over ``log_lik_i``, the likeliest first.

    Parameters
    ----------
    program : Program
        The parsed canonical text.
    size : str
        The integer that counts the observations; if not given, each candidate in turn.

    Yields
    ------
    str or NotSeparableError
        The program, not yet checked by stanc, or why there is none with this integer.
    """
    sizes = [size] if size else [*outcome_sizes(program), *(one.name for one in size_candidates(program))]
    for one in dict.fromkeys(sizes):
        try:
            yield str(_Separation(program, one).separated())
        except NotSeparableError as error:
            yield error


@dataclass
class _Halves:
    """A part of the program, split into the computation for one observation and the rest, which stays in place."""

    inside: list[Statement] = field(default_factory=list)
    kept: list[Statement] = field(default_factory=list)

    def __iadd__(self, other: _Halves) -> _Halves:
        self.inside += other.inside
        self.kept += other.kept
        return self

    @property
    def adds(self) -> bool:
        """Whether the rest adds to the target."""
        return any(isinstance(one, Target | Tilde | Jacobian) for one in walk(self.kept))


class _Separation:
    """Separation of a program with a given variable that counts its observations."""

    def __init__(self, program: Program, size: str) -> None:
        self.program, self.size = program, size
        self.likelihood = {statement.span for statement in observations_in(program, size)}
        self.changing = changing_names(program)
        every = declarations(program)
        self.shapes = {one.variable: Shape(INT) for one in find(For, program.evaluated)}
        self.shapes |= {one.name: shape_of(one, size) for one in every}
        self.types = Types(program)
        loops = [one for one in walk(program.model.statements) if isinstance(one, For) and self._over_all(one)]
        in_loops = {one.name for one in find(Declaration, loops)}
        self.local = frozenset(
            one.name for one in every if one.name in self.changing and self.shapes[one.name].axis is not None
        ) - frozenset(in_loops)
        self._refuse(every)
        self.index, self.total = self._names(loops)
        self.elements = Elements(size, self.index, self.shapes, self.local, types=self.types)
        self.ranges: set[tuple[Expression, Expression]] = set()
        self.own: set[str] = set()

    def _names(self, loops: Sequence[For]) -> tuple[str, str]:
        """Return names for the index of an observation and for its log likelihood."""
        program = self.program
        blocks = (program.transformed_parameters, program.model)
        others = {
            one.variable for one in find(Statement, blocks) if isinstance(one, For | ForEach) and one not in loops
        }
        taken = symbols(program)
        free = [loop.variable for loop in loops if loop.variable not in others]
        free += [name for name in ("i", "n", *(f"obs_{k}" for k in range(len(taken) + 1))) if name not in taken]
        total = next(name for name in ("log_lik", "log_lik_one", "log_lik_of_one") if name not in taken)
        return free[0], total

    def _refuse(self, every: Sequence[Declaration]) -> None:
        """Raise NotSeparableError if the program cannot be separated."""
        if not self.likelihood:
            raise NotSeparableError(f"no statement is a sum over `{self.size}`")
        if any(function.name == LOG_LIK for function in self.program.functions):
            raise NotSeparableError(f"the program already has a function {LOG_LIK}")
        for one in self.program.parameters.declarations:
            if self.size in names(*one.all_dims):
                raise NotSeparableError(f"`{self._quoted(one)}` has a value for each observation")
        for one in every:
            sized = one.name in self.changing and self.size in names(*one.all_dims)
            if sized and self.shapes[one.name].axis is None:
                raise NotSeparableError(f"`{self._quoted(one)}` couples observations")
        called = {call.name for call in calls(self.program.transformed_parameters, self.program.model)}
        if any(name == "target" or name.endswith("_lp") for name in called):
            raise NotSeparableError("it calls target() or a *_lp function")

    def separated(self) -> Program:
        """Return the program with a function for one observation."""
        program = self.program
        before = self._statements(program.transformed_parameters.statements, nested=False)
        model = self._scope(program.model.statements, before.inside)
        if len(self.ranges) != 1:
            raise NotSeparableError("its likelihood statements cover different observations")
        if left := sorted(names(*before.kept, *model.kept) & self.local):
            raise NotSeparableError(
                f"`{left[0]}`, which has a value for each observation, is used outside the likelihood"
            )
        function, call = self._function(model.inside)
        loop = For(self.index, *self.ranges.pop(), (Target(call),))
        # Values that are no longer computed for all observations at every evaluation are still output.
        moved = [one for one in program.transformed_parameters.statements if writes(one) & self.local]
        return replace(
            program,
            functions=(*program.functions, function),
            transformed_parameters=Block(tuple(before.kept)),
            model=changed(Block(tuple(model.kept)), lambda one: loop if one is _HERE else None),
            generated_quantities=Block((*moved, *program.generated_quantities.statements)),
        )

    def _function(self, inside: Sequence[Statement]) -> tuple[Function, Call]:
        """Return the function for one observation, and its call."""
        used = names(*inside) - self.own - self.local
        given = list({one.name: one for one in declarations(self.program) if one.name in used}.values())
        arguments = [
            Argument(self.index, UnsizedType("int")),
            *(Argument(one.name, one.type.unsized) for one in given),
        ]
        *others, last = inside
        if isinstance(last, Target) and len(list(find(Target, inside))) == 1:
            body: list[Statement] = [*others, Return(last.expression)]
        else:
            total = Name(self.total)

            def summed(node: Node) -> Node | None:
                return Assign(total, "+=", node.expression) if isinstance(node, Target) else None

            begin = Declaration(SizedType((), "real"), self.total, Literal("0"))
            body = [begin, *(changed(one, summed) for one in inside), Return(total)]
        function = Function(LOG_LIK, UnsizedType("real"), tuple(arguments), tuple(body))
        return changed(function, _with_constants), Call(LOG_LIK, tuple(Name(one.name) for one in arguments))

    def _scope(self, statements: Sequence[Statement], inside: Iterable[Statement]) -> _Halves:
        """Return the statements with the likelihood; the loop over observations replaces the last of them."""
        holding = [one for one in statements if self._holds(one)]
        only = holding[0] if len(holding) == 1 else None
        found = _Halves(list(inside))
        for statement in statements:
            if statement is only and isinstance(statement, Braces | Profile | If):
                held = [body for body in statement.bodies if any(map(self._holds, body))]
                if len(held) == 1:
                    found += self._descended(statement, held[0])
                    continue
            found += self._statement(statement, nested=False)
            if holding and statement is holding[-1]:
                found.kept.append(_HERE)
        return found

    def _descended(self, statement: Braces | Profile | If, held: tuple[Statement, ...]) -> _Halves:
        within = self._scope(held, [])
        if isinstance(statement, If):
            self._plain(statement.condition)
        bodies = [within.kept if body is held else body for body in statement.bodies]
        return _Halves(within.inside, [_with_bodies(statement, bodies)])

    def _statements(self, statements: Sequence[Statement], *, nested: bool) -> _Halves:
        found = _Halves()
        for statement in statements:
            found += self._statement(statement, nested=nested)
        return found

    def _statement(self, statement: Statement, *, nested: bool) -> _Halves:
        match statement:
            case Declaration() | Assign() if writes(statement) & self.local:
                return _Halves([self._assigned(statement)])
            case Declaration() | Assign() if nested:
                self._plain(statement)
                if isinstance(statement, Declaration):
                    self.own.add(statement.name)
                return _Halves([statement], [statement])
            case Tilde() if self.elements.take(statement.left).varies:
                self.ranges.add((_FIRST, Name(self.size)))
                return _Halves([Target(self._density(statement, self.elements))])
            case Target():
                return self._added(statement)
            case For() if self._over_all(statement) and (self._holds(statement) or writes(statement) & self.local):
                return self._loop(statement)
            case For() | If() | Braces() | Profile() if self._holds(statement) or names(statement) & self.local:
                return self._nested(statement)
        self._plain(statement)
        return _Halves([], [statement])

    def _assigned(self, statement: Declaration | Assign) -> Statement:
        """Return the declaration or assignment of a variable with a value per observation, for one observation."""
        if isinstance(statement, Declaration):
            value = None if statement.value is None else self.elements.element(statement.value)
            return Declaration(_local_type(statement, self.shapes[statement.name]), statement.name, value)
        if len(set(statement.variables)) > 1:
            raise NotSeparableError(f"`{self._quoted(statement)}` assigns several variables")
        place = self.elements.take(statement.place)
        if place.whole.axis is None:
            raise NotSeparableError(f"`{self._quoted(statement)}` assigns to a single observation")
        is_scalar = place.whole.element.is_scalar
        operator = statement.operator.removeprefix(".") if is_scalar else statement.operator
        return Assign(place.expression, operator, self.elements.element(statement.expression))

    def _added(self, statement: Target) -> _Halves:
        found = _Halves()
        for sign, term in _summands(statement.expression):
            varies = self._varies(term)
            share = self._term(term) if varies else term
            added = Target(share if sign > 0 else Prefix("-", share))
            if varies:
                self.ranges.add((_FIRST, Name(self.size)))
                found.inside.append(added)
            else:
                found.kept.append(added)
        return found

    def _varies(self, term: Expression) -> bool:
        """Return whether a term of the log density belongs to observations rather than to a prior that reads them."""
        if isinstance(term, Call) and term.name.endswith(DENSITIES):
            return self.elements.take(term.arguments[0]).varies
        return any(self.shapes[name].axis is not None for name in names(term) & self.shapes.keys())

    def _term(self, term: Expression) -> Expression:
        """Return one observation's share of a term of the log density."""
        match term:
            case Call(name, arguments) if name.endswith(DENSITIES):
                return self._call(name, arguments, self.elements)
            case Call("sum", (inner,)):
                taken = self.elements.take(inner)
                if taken.varies:
                    is_scalar = taken.whole.element.is_scalar
                    return taken.expression if is_scalar else Call("sum", (taken.expression,))
            case Call("dot_product", (left, right)):
                one, two = self.elements.take(left), self.elements.take(right)
                if one.varies and two.varies:
                    return Infix("*", one.expression, two.expression)
            case Infix("*", left, right) if not self.elements.take(left).varies:
                return Infix("*", left, self._term(right))
            case Group("(", (inner,)):
                return self._term(inner)
        raise NotSeparableError(f"`{term}` combines observations")

    def _loop(self, loop: For) -> _Halves:
        """Return the body of a loop over observations, for one observation."""
        over_all = self.elements.is_size(loop.upper)
        if self._holds(loop):
            self.ranges.add((loop.lower, Name(self.size) if over_all else loop.upper))
        elif loop.lower != _FIRST or not over_all:
            raise NotSeparableError(f"`{loop.head}` does not run over all observations")
        self._plain(loop.lower, loop.upper)
        scratch = self._scratch(loop)
        at, own = self.elements.within(loop.variable), {one.name for one in scratch}
        body = [*scratch, *self._body(loop.body, at, own)]
        is_alone = len(self.likelihood) == 1 or not any(find(Declaration, loop.body))
        return _Halves(body if is_alone else [Braces(tuple(body))])

    def _scratch(self, loop: For) -> list[Declaration]:
        """Return variables that are declared before a loop and used only inside it, to declare them per observation."""
        outside = [one for one in walk(self.program.model.statements) if not loop.span.contains(one.span)]
        used = names(*(node for one in outside for node in one.own))
        carried = {one.variable for one in recursions(loop)} | {
            one.place.name for one in find(Assign, loop.body) if isinstance(one.place, Name) and one.operator != "="
        }
        free = writes(loop) - used - carried - self.local
        found = [one for one in outside if isinstance(one, Declaration) and one.name in free]
        self.own |= {one.name for one in found}
        return found

    def _body(self, statements: Sequence[Statement], at: Elements, own: set[str]) -> Iterator[Statement]:
        """Yield the statements of a loop over observations, for one observation."""
        own = own | {one.name for one in statements if isinstance(one, Declaration)}
        for statement in statements:
            match statement:
                case Declaration():
                    self.own.add(statement.name)
                    value = None if statement.value is None else at.element(statement.value)
                    yield Declaration(_local_type(statement), statement.name, value)
                case Assign():
                    if carried := set(statement.variables) - own - self.local:
                        raise NotSeparableError(f"`{min(carried)}` carries a value from one observation to the next")
                    yield _taken(statement, at)
                case Tilde():
                    yield Target(self._density(statement, at))
                case Target() | Perform(Call("reject")):
                    yield _taken(statement, at)
                case For() | ForEach() | While() | If() | Braces() | Profile():
                    yield _with_bodies(
                        _taken(statement, at), [list(self._body(body, at, own)) for body in statement.bodies]
                    )
                case Empty() | Perform(Call("print")):
                    pass
                case _:
                    raise NotSeparableError(f"`{str(statement).removesuffix(';')}` is inside a loop over observations")

    def _nested(self, statement: For | If | Braces | Profile) -> _Halves:
        """Split a nested statement about all observations: once for one observation, once for the rest."""
        self._plain(*statement.own)
        bodies = [self._statements(body, nested=True) for body in statement.bodies]
        inside, kept = (_with_bodies(statement, [getattr(one, half) for one in bodies]) for half in ("inside", "kept"))
        return _Halves([inside], [kept] if any(one.adds for one in bodies) else [])

    def _density(self, statement: Tilde, at: Elements) -> Expression:
        """Return a sampling statement as a density with all constants."""
        name, arguments = statement.distribution.name, statement.distribution.arguments
        suffix = "lpmf" if self._is_discrete(name) else "lpdf"
        density = self._call(f"{name}_{suffix}", (statement.left, *arguments), at)
        if not statement.truncation:
            return density
        if suffix == "lpmf":
            raise NotSeparableError(f"`{statement.right}` is a truncated discrete distribution")

        def tail(kind: str, bound: Expression) -> list[Expression]:
            return [] if isinstance(bound, Slice) else [self._call(f"{name}_{kind}", (bound, *arguments), at)]

        lower, upper = statement.truncation[0].items
        ends = [*tail("lcdf", upper), *tail("lccdf" if isinstance(upper, Slice) else "lcdf", lower)]
        if len(ends) == 2:
            ends = [Call("log_diff_exp", tuple(ends))]
        return Infix("-", density, *ends) if ends else density

    def _call(self, name: str, arguments: Iterable[Expression], at: Elements) -> Call:
        """Return a density of one observation, without a matrix of all observations."""
        density, _, suffix = name.rpartition("_")
        taken = [at.element(one) for one in arguments]
        product = PRODUCTS.get(density)
        if product and not at.loop and len(taken) > product.place + product.n_arguments:
            there = slice(1 + product.place, 1 + product.place + product.n_arguments)
            row, *intercept, coefficients = taken[there]
            density = product.density
            predictor: Expression = Infix("*", row, coefficients)
            if intercept:
                turned = Transpose(predictor) if density == "categorical_logit" else predictor
                predictor = Infix("+", intercept[0], turned)
            taken[there] = [predictor]
        return Call(f"{density}_{suffix}", tuple(taken), bar=True)

    def _is_discrete(self, name: str) -> bool:
        mass = f"{name}_lpmf"
        return bool(of_library(mass)) or any(function.name == mass for function in self.program.functions)

    def _plain(self, *nodes: Node) -> None:
        """Raise NotSeparableError if nodes of the rest read a variable that is computed for one observation."""
        if found := sorted(names(*nodes) & self.local):
            quoted = " ".join(" ".join(map(str, nodes)).split())
            raise NotSeparableError(f"`{quoted}` uses `{found[0]}`, which has a value for each observation")

    def _holds(self, statement: Statement) -> bool:
        return any(one.span in self.likelihood for one in walk([statement]))

    def _over_all(self, loop: For) -> bool:
        """Return whether a loop runs over observations."""
        at = Elements(self.size, "", self.shapes, frozenset())
        return self.size in names(loop.upper) or at.is_size(loop.upper)

    def _quoted(self, statement: Statement) -> str:
        return " ".join(self.program.text(statement.span).split())


def _local_type(declaration: Declaration, shape: Shape | None = None) -> SizedType:
    """Return the type of a declaration for one observation, as the type of a local variable."""
    array, inner = list(declaration.array_dims), list(declaration.dims)
    base, axis = declaration.type.unsized.base, shape.axis if shape else None
    if shape and axis is not None:
        if axis < len(array):
            del array[axis]
        else:
            base = shape.element.type.base
            del inner[axis - len(array)]
    return SizedType(tuple(array), base, declaration.type.elements, dims=tuple(inner))


def _taken(statement: Statement, at: Elements) -> Statement:
    """Return a statement with its own expressions reduced to one observation and its inner statements unchanged."""

    def taken(node: Node) -> Node | None:
        if isinstance(node, Expression):
            return at.element(node)
        return None if node is statement else node

    return changed(statement, taken)


def _with_bodies(statement: Statement, bodies: Sequence[Sequence[Statement]]) -> Statement:
    """Return a statement with other inner statements, in braces; profiling is removed."""
    first, *rest = map(tuple, bodies)
    match statement:
        case For() | ForEach() | While():
            return replace(statement, body=first, braced=True)
        case If():
            return replace(statement, then=first, orelse=rest[0], braced=True, else_braced=True)
    return Braces(first)


def _summands(expression: Expression, sign: int = 1) -> Iterator[tuple[int, Expression]]:
    """Yield the terms of a sum with their signs, including sums in parentheses."""
    for own, term in terms(expression, sign):
        if bare(term) is term:
            yield own, term
        else:
            yield from _summands(bare(term), own)


def _with_constants(node: Node) -> Node | None:
    """Return densities with names that any function may call."""
    if isinstance(node, Call | Name) and normalised(node.name) != node.name:
        return changed(replace(node, name=normalised(node.name)), _with_constants)
    return None
