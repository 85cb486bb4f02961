"""A program written anew with each observation's log likelihood in a function of its own, ``log_lik_i``.

Everything that has a value for each observation and changes between evaluations becomes a local variable of that
function, computed for one observation; all else stays as it is. What is written here is read off the text: whoever
offers it proves that it has the same log density.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stansub.errors import InputError
from stansub.stan.densities import PRODUCTS
from stansub.stan.elementwise.elements import Elements, NotSeparableError, Shape, shape_of
from stansub.stan.elementwise.expressions import Apply, Choice, Expression, Group, Infix, Prefix, parse_expression
from stansub.stan.recursions import recursions
from stansub.stan.sizes import changing_names, declarations, observations_in, outcome_sizes, size_candidates
from stansub.stan.syntax import (
    Assign,
    Braces,
    Declaration,
    For,
    ForEach,
    If,
    Other,
    Profile,
    Program,
    Span,
    Statement,
    Target,
    Tilde,
    While,
    calls,
    children,
    names,
    tokenize,
    walk,
)

LOG_LIK = "log_lik_i"
_DISCRETE = frozenset(
    word
    for line in (
        "bernoulli bernoulli_logit bernoulli_logit_glm binomial binomial_logit binomial_logit_glm beta_binomial",
        "neg_binomial neg_binomial_2 neg_binomial_2_log neg_binomial_2_log_glm beta_neg_binomial poisson poisson_log",
        "poisson_log_glm categorical categorical_logit categorical_logit_glm ordered_logistic ordered_logistic_glm",
        "ordered_probit hypergeometric discrete_range multinomial multinomial_logit dirichlet_multinomial",
    )
    for word in line.split()
)
_SUFFIXES = ("_lpdf", "_lpmf", "_lupdf", "_lupmf", "_lcdf", "_lccdf")
_ADD = "target += "


def separations(program: Program, size: str = "") -> Iterator[str | NotSeparableError]:
    """The program with its likelihood as a loop over ``log_lik_i``, the likeliest first.

    Parameters
    ----------
    program : Program
        The parsed canonical text.
    size : str
        The integer that counts the observations; each that may in turn, when not given.

    Yields
    ------
    str or NotSeparableError
        The program, which stanc has not seen yet, or why there is none with this integer.
    """
    sizes = [size] if size else [*outcome_sizes(program), *(one.name for one in size_candidates(program))]
    for one in dict.fromkeys(sizes):
        try:
            yield _Separation(program, one).separated()
        except NotSeparableError as error:
            yield error
        except InputError as error:  # tuples, which are not read here
            yield NotSeparableError(str(error))


@dataclass
class _Text:
    """A part of the program: what of it is computed for one observation, and what stays where it was."""

    inside: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def __iadd__(self, other: _Text) -> _Text:
        self.inside += other.inside
        self.kept += other.kept
        return self

    @property
    def adds(self) -> bool:
        """Whether what stays adds to the target."""
        return any(_ADD in line or "~" in line or "jacobian" in line for line in self.kept)


class _Separation:
    """One program, and one variable that counts its observations."""

    def __init__(self, program: Program, size: str) -> None:
        self.program, self.size = program, size
        self.likelihood = {statement.span for statement in observations_in(program, size)}
        self.changing = changing_names(program)
        every = declarations(program)
        self.shapes = {one.name: shape_of(one, size) for one in every}
        loops = [one for one in walk(program.model.statements) if isinstance(one, For) and self._over_all(one)]
        in_loops = {one.name for loop in loops for one in walk(loop.body) if isinstance(one, Declaration)}
        self.local = frozenset(
            one.name for one in every if one.name in self.changing and self.shapes[one.name].axis is not None
        ) - frozenset(in_loops)
        self._refuse(every)
        self.index, self.total = self._names(loops)
        self.elements = Elements(size, self.index, self.shapes, self.local)
        self.ranges: dict[tuple[str, str], None] = {}
        self.own: set[str] = set()

    def _names(self, loops: Sequence[For]) -> tuple[str, str]:
        """What to call the number of an observation, and its log likelihood."""
        others = {
            one.variable
            for block in (self.program.transformed_parameters, self.program.model)
            for one in walk(block.statements)
            if isinstance(one, For | ForEach) and one not in loops
        }
        taken = {token.text for token in tokenize(self.program.code) if token.kind == "name"}
        free = [loop.variable for loop in loops if loop.variable not in others]
        free += [name for name in ("i", "n", *(f"obs_{k}" for k in range(len(taken) + 1))) if name not in taken]
        total = next(name for name in ("log_lik", "log_lik_one", "log_lik_of_one") if name not in taken)
        return free[0], total

    def _refuse(self, every: Sequence[Declaration]) -> None:
        """What there is no such program for."""
        if not self.likelihood:
            raise NotSeparableError(f"no statement adds up over `{self.size}`")
        if any(function.name == LOG_LIK for function in self.program.functions):
            raise NotSeparableError(f"the program has a function {LOG_LIK} already")
        for one in self.program.parameters.declarations:
            if any(self.size in names(dim) for dim in one.all_dims):
                raise NotSeparableError(f"`{self._quoted(one)}` has a value for each observation")
        for one in every:
            sized = one.name in self.changing and any(self.size in names(dim) for dim in one.all_dims)
            if sized and self.shapes[one.name].axis is None:
                raise NotSeparableError(f"`{self._quoted(one)}` relates observations to each other")
        blocks = (self.program.transformed_parameters, self.program.model)
        words = [call.name for block in blocks for call in calls(self.program.code, block.inside)]
        if any(name == "target" or name.endswith("_lp") for name in words):
            raise NotSeparableError("it calls target() or a function *_lp")

    def separated(self) -> str:
        before = self._statements(self.program.transformed_parameters.statements, nested=False)
        model = self._scope(self.program.model.statements, before.inside)
        if len(self.ranges) != 1:
            raise NotSeparableError("its likelihood statements run over different observations")
        function, call = self._function(model.inside)
        loop = f"for ({self.index} in {' : '.join(next(iter(self.ranges)))}) {_ADD}{call};"
        kept = "\n".join(line if line != _HERE else loop for line in model.kept)
        read = names(kept) | names("\n".join(before.kept))
        if left := sorted(read & self.local):
            raise NotSeparableError(f"`{left[0]}` of all observations is used outside the likelihood")
        return self._program("\n".join(before.kept), kept, function)

    def _program(self, parameters: str, model: str, function: str) -> str:
        program = self.program
        moved = "\n".join(
            program.text(span)
            for span in dict.fromkeys(
                one.span for one in program.transformed_parameters.statements if _writes(one) & self.local
            )
        )
        blocks = {
            "functions": program.text(program.functions_block.inside) + function,
            "data": program.text(program.data.inside),
            "transformed data": program.text(program.transformed_data.inside),
            "parameters": program.text(program.parameters.inside),
            "transformed parameters": parameters,
            "model": model,
            "generated quantities": moved + program.text(program.generated_quantities.inside),
        }
        return "\n".join(f"{name} {{\n{text}\n}}" for name, text in blocks.items() if text.strip())

    def _function(self, inside: list[str]) -> tuple[str, str]:
        text = "\n".join(inside)
        used = names(text) - self.own - self.local
        arguments = [one for one in declarations(self.program) if one.name in used]
        arguments = list({one.name: one for one in arguments}.values())
        declared = ", ".join([f"int {self.index}", *(f"{unsized(one)} {one.name}" for one in arguments)])
        last = inside[-1]
        if text.count(_ADD) == 1 and last.startswith(_ADD):
            body = [*inside[:-1], f"return {last.removeprefix(_ADD)}"]
        else:
            body = [f"real {self.total} = 0;", text.replace(_ADD, f"{self.total} += "), f"return {self.total};"]
        lines = "\n".join(body)
        function = f"\nreal {LOG_LIK}({declared}) {{\n{_with_constants(lines)}\n}}\n"
        return function, f"{LOG_LIK}({', '.join([self.index, *(one.name for one in arguments)])})"

    def _scope(self, statements: Sequence[Statement], inside: list[str]) -> _Text:
        """The statements that hold the likelihood; the loop over observations goes where its last one was."""
        holding = [one for one in statements if self._holds(one)]
        only = holding[0] if len(holding) == 1 else None
        found = _Text(list(inside))
        for statement in self._once(statements):
            if statement is only and isinstance(statement, Braces | Profile | If):
                held = [inner for inner in children(statement) if any(self._holds(one) for one in inner)]
                if len(held) == 1:
                    found += self._descended(statement, held[0])
                    continue
            found += self._statement(statement, nested=False)
            if holding and statement is holding[-1]:
                found.kept.append(_HERE)
        return found

    def _descended(self, statement: Braces | Profile | If, held: tuple[Statement, ...]) -> _Text:
        within = self._scope(held, [])
        if isinstance(statement, If):
            self._plain(statement.condition)
            branches = [
                within.kept if inner is held else [self.program.text(span) for span in _spans(inner)]
                for inner in (statement.then, statement.orelse)
            ]
            header = [f"if ({statement.condition}) {{", *branches[0], "} else {", *branches[1], "}"]
            return _Text(within.inside, header if statement.orelse else [*header[: len(branches[0]) + 1], "}"])
        return _Text(within.inside, ["{", *within.kept, "}"])

    def _once(self, statements: Sequence[Statement]) -> Iterator[Statement]:
        """Statements in turn; a declaration of several variables once, unless they are computed for one observation."""
        seen: set[Span] = set()
        for one in statements:
            if isinstance(one, Declaration) and one.name not in self.local:
                if any(other.span == one.span and _writes(other) & self.local for other in statements):
                    raise NotSeparableError(f"`{self._quoted(one)}` declares several variables")
                if one.span in seen:
                    continue
                seen.add(one.span)
            yield one

    def _statements(self, statements: Sequence[Statement], *, nested: bool) -> _Text:
        found = _Text()
        for statement in self._once(statements):
            found += self._statement(statement, nested=nested)
        return found

    def _statement(self, statement: Statement, *, nested: bool) -> _Text:
        text = self.program.text(statement.span)
        match statement:
            case Declaration() | Assign():
                return self._assigned(statement, text, nested=nested)
            case Tilde():
                return self._sampled(statement, text)
            case Target():
                return self._added(statement)
            case For() if self._over_all(statement) and (self._holds(statement) or _writes(statement) & self.local):
                return self._loop(statement)
            case For() | If() | Braces() | Profile() if self._holds(statement) or names(text) & self.local:
                return self._nested(statement)
        self._plain(text)
        return _Text([], [text])

    def _assigned(self, statement: Declaration | Assign, text: str, *, nested: bool) -> _Text:
        written = _writes(statement)
        if not written & self.local:
            self._plain(text)
            if nested:
                self.own |= {statement.name} if isinstance(statement, Declaration) else set()
            return _Text([text] if nested else [], [text])
        if isinstance(statement, Declaration):
            value = "" if statement.value is None else f" = {self.elements.text(statement.value)}"
            return _Text([f"{_declared(statement, self.shapes[statement.name])} {statement.name}{value};"])
        if len(written) > 1:
            raise NotSeparableError(f"`{text}` assigns several variables")
        operator = statement.operator.removeprefix(".")
        taken = self.elements.take(parse_expression(statement.place))
        if taken.whole.axis is None:
            raise NotSeparableError(f"`{text}` changes a single observation")
        if not taken.whole.element.is_scalar:
            operator = statement.operator
        return _Text([f"{taken.expression} {operator} {self.elements.text(statement.expression)};"])

    def _sampled(self, statement: Tilde, text: str) -> _Text:
        left = self.elements.take(parse_expression(statement.left))
        if not left.varies:
            self._plain(text)
            return _Text([], [text])
        self.ranges["1", self.size] = None
        return _Text([f"{_ADD}{self._density(statement, self.elements)};"])

    def _added(self, statement: Target) -> _Text:
        found = _Text()
        for sign, term in _summands(parse_expression(statement.expression)):
            if self._varies(term):
                self.ranges["1", self.size] = None
                found.inside.append(f"{_ADD}{sign}{self._term(term)};")
            else:
                found.kept.append(f"{_ADD}{sign}{term};")
        return found

    def _varies(self, term: Expression) -> bool:
        """Whether a term of the log density is of observations, and not a prior that reads them."""
        if isinstance(term, Apply) and term.name.endswith(_SUFFIXES):
            return self.elements.take(term.arguments[0]).varies
        return any(self.shapes[name].axis is not None for name in names(str(term)) & set(self.shapes))

    def _term(self, term: Expression) -> Expression:
        """One observation's share of a term of the log density."""
        match term:
            case Apply(name, arguments, _) if name.endswith(_SUFFIXES):
                return parse_expression(self._call(name, [str(one) for one in arguments], self.elements))
            case Apply("sum", (inner,), _):
                taken = self.elements.take(inner)
                if taken.varies:
                    whole = taken.whole.element.is_scalar
                    return Group("(", (taken.expression,)) if whole else Apply("sum", (taken.expression,), False)
            case Apply("dot_product", (left, right), _):
                one, two = self.elements.take(left), self.elements.take(right)
                if one.varies and two.varies:
                    return Infix("*", Group("(", (one.expression,)), Group("(", (two.expression,)))
            case Infix("*", left, right) if not self.elements.take(left).varies:
                return Infix("*", left, self._term(right))
            case Group("(", (inner,)):
                return Group("(", (self._term(inner),))
        raise NotSeparableError(f"`{term}` takes observations together")

    def _loop(self, loop: For) -> _Text:
        """A loop over observations: its body, for one of them."""
        adds = self._holds(loop)
        over_all = self.elements.is_size(parse_expression(loop.upper))
        if adds:
            self.ranges[loop.lower, self.size if over_all else loop.upper] = None
        elif loop.lower != "1" or not over_all:
            raise NotSeparableError(f"`for ({loop.variable} in {loop.lower} : {loop.upper})` leaves observations out")
        self._plain(f"{loop.lower} {loop.upper}")
        scratch = self._scratch(loop)
        lines = [self.program.text(one.span) for one in scratch]
        lines += self._body(loop.body, self.elements.within(loop.variable), {one.name for one in scratch})
        return _Text(lines if len(self.likelihood) == 1 or not _declares(loop) else ["{", *lines, "}"])

    def _scratch(self, loop: For) -> list[Declaration]:
        """Variables declared before a loop that only it uses, anew for each observation."""
        statements = self.program.model.statements
        declared = [one for one in walk(statements) if isinstance(one, Declaration) and one.name not in self.local]
        recursive = {one.variable for one in recursions(loop)}
        inside = set(walk(loop.body))
        found = []
        for one in declared:
            elsewhere = [other for other in walk(statements) if other not in inside and not children(other)]
            used = set().union(*(names(self.program.text(other.span)) for other in elsewhere if other.span != one.span))
            added = any(isinstance(s, Assign) and s.place == one.name and s.operator != "=" for s in inside)
            if one not in inside and one.name in _writes(loop) - used - recursive and not added:
                found.append(one)
                self.own.add(one.name)
        return found

    def _body(self, statements: Sequence[Statement], at: Elements, own: set[str]) -> Iterator[str]:
        own = own | {one.name for one in statements if isinstance(one, Declaration)}
        for statement in statements:
            match statement:
                case Declaration():
                    self.own.add(statement.name)
                    value = "" if statement.value is None else f" = {at.text(statement.value)}"
                    yield f"{_declared(statement, Shape(0, 'real'))} {statement.name}{value};"
                case Assign():
                    if carried := set(statement.variables) - own - self.local:
                        raise NotSeparableError(f"`{min(carried)}` goes from one observation to the next")
                    yield f"{at.text(statement.place)} {statement.operator} {at.text(statement.expression)};"
                case Tilde():
                    yield f"{_ADD}{self._density(statement, at)};"
                case Target():
                    yield f"{_ADD}{at.text(statement.expression)};"
                case Other():
                    yield from self._other(statement, at)
                case _:
                    yield from self._inner(statement, at, own)

    def _inner(self, statement: Statement, at: Elements, own: set[str]) -> Iterator[str]:
        """A statement with others in it, in a loop over observations."""
        if isinstance(statement, For):
            header = f"for ({statement.variable} in {at.text(statement.lower)} : {at.text(statement.upper)})"
        elif isinstance(statement, ForEach):
            header = f"for ({statement.variable} in {at.text(statement.container)})"
        elif isinstance(statement, While):
            header = f"while ({at.text(statement.condition)})"
        elif isinstance(statement, If):
            header = f"if ({at.text(statement.condition)})"
        else:
            header = ""
        first, *rest = children(statement)
        yield f"{header} {{"
        yield from self._body(first, at, own)
        if rest and rest[0]:
            yield "} else {"
            yield from self._body(rest[0], at, own)
        yield "}"

    def _other(self, statement: Other, at: Elements) -> Iterator[str]:
        if statement.text.startswith("reject"):
            yield f"{at.text(statement.text)};"
        elif not statement.text.startswith("print"):
            raise NotSeparableError(f"`{statement.text}` in a loop over observations")

    def _nested(self, statement: For | If | Braces | Profile) -> _Text:
        """A statement with others in it that is about all observations: once for one of them, once for the rest."""
        if isinstance(statement, For):
            header = f"for ({statement.variable} in {statement.lower} : {statement.upper})"
            self._plain(f"{statement.lower} {statement.upper}")
        elif isinstance(statement, If):
            header = f"if ({statement.condition})"
            self._plain(statement.condition)
        else:
            header = ""
        first, *rest = (self._statements(inner, nested=True) for inner in children(statement))
        found = _Text([f"{header} {{", *first.inside, "}"])
        orelse = rest[0] if rest else _Text()
        if orelse.inside:
            found.inside += ["else {", *orelse.inside, "}"]
        if first.adds or orelse.adds:
            found.kept += [f"{header} {{", *first.kept, "}"]
            found.kept += ["else {", *orelse.kept, "}"] if orelse.kept else []
        return found

    def _density(self, statement: Tilde, at: Elements) -> str:
        """A sampling statement as a density with all its constants."""
        call = calls(statement.distribution)[0]
        suffix = "lpmf" if self._is_discrete(call.name) else "lpdf"
        density = self._call(f"{call.name}_{suffix}", [statement.left, *call.arguments], at)
        bounds = statement.distribution[call.span.end :].strip()
        if not bounds:
            return density
        if suffix == "lpmf":
            raise NotSeparableError(f"`{statement.distribution}` is discrete and truncated")
        lower, upper = (one.strip() for one in bounds[bounds.index("[") + 1 : bounds.rindex("]")].split(","))
        above, below = (
            self._call(f"{call.name}_{kind}", [bound, *call.arguments], at) if bound else ""
            for kind, bound in (("lccdf" if not upper else "lcdf", lower), ("lcdf", upper))
        )
        return f"{density} - {f'log_diff_exp({below}, {above})' if above and below else above or below}"

    def _call(self, name: str, arguments: Sequence[str], at: Elements) -> str:
        density, _, suffix = name.rpartition("_")
        taken = [at.text(one) for one in arguments]
        product = PRODUCTS.get(density)
        if product and not at.loop and len(taken) > product.place + product.n_arguments:
            first = 1 + product.place
            x, *rest = (str(_operand(one)) for one in taken[first : first + product.n_arguments])
            density = product.density
            if len(rest) == 1:
                predictor = f"{x} * {rest[0]}"
            else:
                row = f"({x} * {rest[1]})'" if density == "categorical_logit" else f"{x} * {rest[1]}"
                predictor = f"{rest[0]} + {row}"
            taken[first : first + product.n_arguments] = [predictor]
        return f"{density}_{suffix}({taken[0]} | {', '.join(taken[1:])})"

    def _is_discrete(self, name: str) -> bool:
        return name in _DISCRETE or any(function.name == f"{name}_lpmf" for function in self.program.functions)

    def _plain(self, text: str) -> None:
        """Refuse what stays and reads a variable that is computed for one observation."""
        if found := sorted(names(text) & self.local):
            raise NotSeparableError(f"`{found[0]}` of all observations is used in `{' '.join(text.split())}`")

    def _holds(self, statement: Statement) -> bool:
        return any(one.span in self.likelihood for one in walk([statement]))

    def _over_all(self, loop: For) -> bool:
        """Whether a loop runs over observations."""
        at = Elements(self.size, "", self.shapes, frozenset())
        return self.size in names(loop.upper) or at.is_size(parse_expression(loop.upper))

    def _quoted(self, statement: Statement) -> str:
        return " ".join(self.program.text(statement.span).split())


_HERE = "@"


def unsized(declaration: Declaration) -> str:
    """The type of a function's argument that takes a variable."""
    if declaration.base == "tuple":
        inner = f"tuple({', '.join(declaration.elements)})"
    elif declaration.base in ("int", "real", "complex", "row_vector", "complex_row_vector", "complex_vector"):
        inner = declaration.base
    elif "matrix" in declaration.base or declaration.base.startswith("cholesky"):
        inner = "complex_matrix" if declaration.base == "complex_matrix" else "matrix"
    else:
        inner = "vector"
    depth = len(declaration.array_dims)
    return f"array[{',' * (depth - 1)}] {inner}" if depth else inner


def _declared(declaration: Declaration, shape: Shape) -> str:
    """The type of a local variable: that of a declaration, for one observation."""
    array, inner, axis = list(declaration.array_dims), list(declaration.dims), shape.axis
    base = "real" if declaration.base == "real" else unsized(declaration).split()[-1]
    if axis is not None and axis < len(array):
        del array[axis]
    elif axis is not None:
        base = shape.element.base
        del inner[axis - len(array)]
    elif declaration.base == "int":
        base = "int"
    sizes = f"[{', '.join(inner)}]" if inner else ""
    return f"array[{', '.join(array)}] {base}{sizes}" if array else base + sizes


def _writes(statement: Statement) -> set[str]:
    """Variables that a statement declares or assigns."""
    written: set[str] = set()
    for one in walk([statement]):
        if isinstance(one, Declaration):
            written.add(one.name)
        elif isinstance(one, Assign):
            written.update(one.variables)
    return written


def _declares(statement: Statement) -> bool:
    return any(isinstance(one, Declaration) for one in walk([statement]))


def _spans(statements: Sequence[Statement]) -> list[Span]:
    return list(dict.fromkeys(one.span for one in statements))


def _operand(text: str) -> Expression:
    parsed = parse_expression(text)
    return Group("(", (parsed,)) if isinstance(parsed, Infix | Prefix) else parsed


def _summands(expression: Expression, sign: str = "") -> Iterator[tuple[str, Expression]]:
    """Terms of a sum with their signs."""
    match expression:
        case Infix(("+" | "-") as operator, left, right):
            yield from _summands(left, sign)
            turned = operator == "-"
            yield from _summands(right, ("" if sign else "-") if turned else sign)
        case Prefix("-", operand):
            yield from _summands(operand, "" if sign else "-")
        case Group("(", (inner,)):
            yield from _summands(inner, sign)
        case Choice():
            yield sign, Group("(", (expression,))
        case _:
            yield sign, expression


def _with_constants(text: str) -> str:
    """Densities under names that may be called in any function."""
    pieces, at = [], 0
    for token in tokenize(text):
        new = token.text
        for short in ("_lupdf", "_lupmf"):
            if new.endswith(short):
                new = new.removesuffix(short) + short.replace("u", "", 1)
        pieces += [text[at : token.span.start], new]
        at = token.span.end
    return "".join([*pieces, text[at:]])
