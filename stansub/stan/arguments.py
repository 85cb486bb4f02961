"""The density of a likelihood, and a program that hands out its arguments for each observation.

What is read off the text here is to be proved: `stansub.stan.predictors` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stansub.errors import InputError
from stansub.stan import rewrite
from stansub.stan.densities import PRODUCTS, SPECS, Link, Spec
from stansub.stan.linearity import Shape, shape_at
from stansub.stan.passes import rewriting
from stansub.stan.recognise import Form, normalised, partial_sums, recognise
from stansub.stan.series.rows import N_ROWS
from stansub.stan.sizes import changing_names, data_declarations, declarations, main_size, observations_in
from stansub.stan.syntax import (
    NOWHERE,
    Assign,
    Call,
    Declaration,
    Expression,
    For,
    Function,
    Literal,
    Name,
    Node,
    Program,
    Return,
    Span,
    Statement,
    Target,
    Tilde,
    find,
    names,
    parse_expression,
    printed,
    walk,
    writes,
)
from stansub.target.remainders import NoPredictorsError

# Values that an observation may have of one argument.
WIDEST = 64
CHANGING = "what its density is of depends on parameters"
_HELPERS = """\
  vector stansub_spread(int n, real x) { return rep_vector(x, n); }
  vector stansub_spread(int n, vector x) { return x; }
  vector stansub_spread(int n, row_vector x) { return x'; }
  vector stansub_spread(int n, array[] int x) { return to_vector(x); }
  vector stansub_spread(int n, array[] real x) { return to_vector(x); }
  matrix stansub_rows(int n, vector x) { return rep_matrix(x', n); }
  matrix stansub_rows(int n, row_vector x) { return rep_matrix(x, n); }
  matrix stansub_rows(int n, matrix x) { return x; }
  matrix stansub_rows(int n, array[] vector x) {
    matrix[n, n > 0 ? size(x[1]) : 0] rows;
    for (i in 1 : n) rows[i] = x[i]';
    return rows;
  }
  matrix stansub_rows(int n, array[] row_vector x) {
    matrix[n, n > 0 ? size(x[1]) : 0] rows;
    for (i in 1 : n) rows[i] = x[i];
    return rows;
  }
  matrix stansub_padded(int width, matrix x) {
    matrix[rows(x), width] found = rep_matrix(not_a_number(), rows(x), width);
    if (cols(x) <= width) found[ , 1 : cols(x)] = x;
    return found;
  }"""


@dataclass(frozen=True)
class Density:
    """The density of a likelihood statement.

    Attributes
    ----------
    name : str
        Of `stansub.stan.densities.SPECS`.
    columns : tuple of Expression
        The observations, and the arguments in Stan's order.
    """

    name: str
    columns: tuple[Expression, ...]

    @classmethod
    def of(cls, name: str, left: Expression, arguments: Sequence[Expression]) -> Density:
        """From the name of a density, without a suffix, what it is of, and its arguments.

        Raises
        ------
        NoPredictorsError
            When it is of no family that is known.
        """
        product, given = PRODUCTS.get(name), list(arguments)
        density = product.density if product else name
        if density not in SPECS:
            raise NoPredictorsError(f"{name} is none of {', '.join([*SPECS, *PRODUCTS])}")
        wrong = NoPredictorsError(f"{name} has {len(arguments)} arguments")
        if product:
            there = slice(product.place, product.place + product.n_arguments)
            if len(given[there]) != product.n_arguments:
                raise wrong
            given[there] = [parse_expression(product.predictor.format(*given[there]))]
        if len(given) != len(SPECS[density].links):
            raise wrong
        return cls(density, (left, *given))

    @property
    def spec(self) -> Spec:
        """What is known of it."""
        return SPECS[self.name]

    @classmethod
    def of_statement(cls, statement: Statement) -> Density | None:
        """That of ``y ~ f(...)`` or ``target += f_lpdf(y | ...)``; None for others."""
        match statement:
            case Tilde(left, Call(name, arguments), ()):
                return cls.of(name, left, arguments)
            case Target(expression):
                return cls.of_call(expression)
        return None

    @classmethod
    def of_call(cls, expression: Expression | None) -> Density | None:
        """That of ``f_lpdf(y | ...)``, with or without constants; None for other expressions."""
        match expression:
            case Call(name, (left, *arguments)) if normalised(name).endswith(("_lpdf", "_lpmf")):
                return cls.of(normalised(name)[:-5], left, arguments)
        return None


class _ArgumentCode(NamedTuple):
    """What hands the arguments of a density out, in a program with its likelihood.

    Attributes
    ----------
    density : str
    functions : str
        Beside the user's.
    span : Span
        The likelihood statement.
    text : str
        In its place in generated quantities.
    widths : tuple of str
        For each column, how many values an observation has of it, or a Stan expression of no fewer.
    arguments : tuple of Expression
        The columns after the first where the density stands in the model block itself.
    place : Span
        Of the statement that it stands in.
    """

    density: str
    functions: str
    span: Span
    text: str
    widths: tuple[str, ...]
    arguments: tuple[Expression, ...] = ()
    place: Span = NOWHERE


def _argument_code(program: Program, form: Form, size: str) -> _ArgumentCode:
    """What hands the arguments of a program's density out, where ``size`` counts the observations."""
    if form.kind == "functions":
        raise NoPredictorsError("no linear predictors were given with the functions")
    if form.kind == "log_lik_i" and isinstance(form.likelihood, For):
        return _of_function(program, form.likelihood)
    if form.kind == "reduce_sum" and isinstance(form.likelihood, Call):
        return _of_partial_sum(program, form.likelihood, form.span)
    statements = observations_in(program, size) if size else []
    if form.kind != "sum" or len(statements) != 1:
        raise NoPredictorsError("there is not exactly one likelihood statement")
    statement = statements[0]
    loop = next((one for one in find(For, program.model.statements) if one.span.contains(statement.span)), None)
    if loop is not None:
        return _of_loop(program, loop)
    density = Density.of_statement(statement)
    if density is None:
        raise NoPredictorsError(f"`{program.text(statement.span)}` is not the density of data")
    _check_known(program, density)
    widths = _widths(program, density, statement)
    lines = [
        f"stansub_{k} = {_column('stansub_n', column, width)};"
        for k, (column, width) in enumerate(zip(density.columns, widths, strict=True))
    ]
    return _ArgumentCode(
        density.name, "", statement.span, "\n".join(lines), widths, density.columns[1:], statement.span
    )


class ArgumentProgram(NamedTuple):
    """A program that hands the arguments of a density out.

    Attributes
    ----------
    code : str
    density : str
        Of `stansub.stan.densities.SPECS`.
    """

    code: str
    density: str


def argument_program(program: Program, form: Form, size: str) -> ArgumentProgram:
    """Return a program that hands the arguments of a program's density out, where ``size`` counts the observations.

    Raises
    ------
    NoPredictorsError
        When the text shows no density of a recognised family.
    """
    rewrite.reserve_names(program)
    if size == N_ROWS:
        program = rewriting(program).program
        form = recognise(program)
    found = _argument_code(program, form, size)
    _check_shapes(program, found)
    functions = f"{_HELPERS}\n{found.functions}"
    code = rewrite.quantities_program(program, functions, form.n or size, found.span, found.text, found.widths)
    return ArgumentProgram(rewrite.silent(code), found.density)


def library_name(name: str) -> str:
    """Return what the library of a program that hands arguments out is called."""
    return f"{name}_predictors"


def recognised(program: Program) -> bool:
    """Whether the text of a program shows a likelihood of a family that is known; nothing is proved of it."""
    try:
        form, over_rows = recognise(program), rewriting(program).program
        if N_ROWS in names(over_rows):
            _argument_code(over_rows, recognise(over_rows), N_ROWS)
        else:
            _argument_code(program, form, form.n or main_size(program))
    except InputError:
        return False
    return True


def not_known(density: str, k: int) -> str:
    """Say that an argument would have to be data."""
    return f"argument {k + 1} of {density} depends on parameters, and must be known"


def not_affine(density: str, k: int, link: Link) -> str:
    """Say that an argument would have to be affine under its link."""
    return f"{link.words.format(f'argument {k + 1} of {density}')} is not affine in the unconstrained parameters"


def _check_shapes(program: Program, found: _ArgumentCode) -> None:
    """Spare the compilation where the text shows that an argument is not affine under its link."""
    for k, (argument, link) in enumerate(zip(found.arguments, SPECS[found.density].links, strict=False)):
        if link.shape and shape_at(program, found.place, argument) not in (link.shape, Shape.KNOWN, Shape.OPEN):
            raise NoPredictorsError(not_affine(found.density, k, link))


def _column(n: str, column: Expression, width: str) -> str:
    """An expression for all observations as a vector, or as a matrix where its width is not 1."""
    return f"stansub_spread({n}, {column})" if width == "1" else _padded(f"stansub_rows({n}, {column})", width)


def _padded(matrix: str, width: str) -> str:
    return matrix if width == "1" else f"stansub_padded({width}, {matrix})"


def _check_known(program: Program, density: Density) -> None:
    """Spare the compilation where the text shows what the numerical check would find."""
    changing = changing_names(program)
    if names(density.columns[0]) & changing:
        raise NoPredictorsError(CHANGING)
    for k, (column, link) in enumerate(zip(density.columns[1:], density.spec.links, strict=True)):
        if link.is_known and names(column) & changing:
            raise NoPredictorsError(not_known(density.name, k))


def _widths(program: Program, density: Density, likelihood: Node) -> tuple[str, ...]:
    """Of its columns; of vectors no less than the sizes of whatever they are computed from, and one more."""
    if not any(density.spec.vectors):
        return ("1",) * len(density.columns)
    reached = names(likelihood)
    steps = [one for one in find(Statement, (program.transformed_parameters, program.model)) if one.computes]
    while more := names(*(value for one in steps if writes(one) & reached for value in one.computes)) - reached:
        reached |= more
    known, changing = {one.name for one in data_declarations(program)}, changing_names(program)
    dims = {dim for one in declarations(program) if one.name in reached & changing for dim in one.all_dims}
    sizes = sorted(str(dim) for dim in dims if names(dim) <= known)
    wide = f"min({{{WIDEST}, 1 + max({{{', '.join(sizes)}}})}})" if sizes else str(WIDEST)
    return tuple(wide if is_vector else "1" for is_vector in density.spec.vectors)


def _of_loop(program: Program, loop: For) -> _ArgumentCode:
    """A loop over observations, with one density in it."""
    adding = [one for one in walk(loop.body) if isinstance(one, Target | Tilde)]
    density = Density.of_statement(adding[0]) if len(adding) == 1 else None
    if density is None:
        raise NoPredictorsError("the loop over observations has not exactly one density in it")
    _check_known(program, density)
    widths = _widths(program, density, loop)
    columns = [
        str(column) if width == "1" else f"{_column('1', column, width)}[1]"
        for column, width in zip(density.columns, widths, strict=True)
    ]
    lines = " ".join(f"stansub_{k}[{_place(loop)}] = {column};" for k, column in enumerate(columns))
    text = rewrite.replaced(program, loop.span, [(adding[0].span, lines)])
    return _ArgumentCode(density.name, "", loop.span, text, widths, density.columns[1:], adding[0].span)


def _of_function(program: Program, loop: For) -> _ArgumentCode:
    """A loop over ``log_lik_i``."""
    call = next(find(Call, loop.body))
    found = [one for one in program.functions if one.name == call.name and len(one.arguments) == len(call.arguments)]
    density, copies = _copied(program, found, "1", "real")
    widths, lines = _widths(program, density, loop), []
    for k, width in enumerate(widths):
        value = _padded(str(Call(f"stansub_of_{k}", call.arguments)), width)
        lines.append(f"stansub_{k}[{_place(loop)}] = {value if width == '1' else f'{value}[1]'};")
    return _ArgumentCode(density.name, copies, loop.span, "\n".join([f"{loop.head} {{", *lines, "}"]), widths)


def _place(loop: For) -> str:
    """Which observation a turn of a loop is about."""
    return f"({loop.variable}) - ({loop.lower}) + 1"


def _of_partial_sum(program: Program, call: Call, span: Span) -> _ArgumentCode:
    """A ``reduce_sum``."""
    functions = partial_sums(program, call)
    _, start, end, *_ = (argument.name for argument in functions[0].arguments)
    density, copies = _copied(program, functions, f"{end} - {start} + 1", "vector")
    _, first, _, *rest = call.arguments
    arguments = (first, Literal("1"), Call("size", (first,)), *rest)
    widths = _widths(program, density, call)
    lines = [
        f"stansub_{k} = {_padded(str(Call(f'stansub_of_{k}', arguments)), width)};" for k, width in enumerate(widths)
    ]
    return _ArgumentCode(density.name, copies, span, "\n".join(lines), widths)


def _copied(program: Program, functions: Sequence[Function], n: str, returned: str) -> tuple[Density, str]:
    """The density that the user's function returns, and copies of it that return its columns."""
    if len(functions) != 1 or not functions[0].body:
        raise NoPredictorsError("its function is overloaded or has no body")
    function = functions[0]
    body = function.body or ()
    returns = [one for one in walk(body) if isinstance(one, Return)]
    result = returns[0].value if len(returns) == 1 else None
    term = _only_term(body, result.name) if isinstance(result, Name) else None
    density = Density.of_call(term.expression if term else result)
    if density is None or returns[0] is not body[-1]:
        raise NoPredictorsError(f"{function.name} does not return the density of data, and nothing else")
    declared = ", ".join(map(str, function.arguments))
    before, copies = printed([one for one in body[:-1] if one is not term]), []
    for k, (column, is_vector) in enumerate(zip(density.columns, density.spec.vectors, strict=True)):
        value = str(column) if returned == "real" else f"stansub_spread({n}, {column})"
        value, kind = (f"stansub_rows({n}, {column})", "matrix") if is_vector else (value, returned)
        copies.append(f"  {kind} stansub_of_{k}({declared}) {{\n{before}\nreturn {value};\n  }}")
    return density, "\n".join(copies)


def _only_term(body: Sequence[Statement], name: str) -> Assign | None:
    """What is added to a local sum that begins at 0 and has one term: ``real x = 0; x += term;``."""
    written = [one for one in walk(body) if isinstance(one, Declaration | Assign) and name in writes(one)]
    read = [one for one in walk(body) if name in names(*one.computes)]
    match written:
        case [Declaration(value=Literal("0" | "0.0")), Assign(Name(), "+=") as added] if (
            len(read) == 1
        ):  # it is returned
            return added if added in body else None
    return None
