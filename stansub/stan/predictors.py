"""Linear predictors of recognised likelihoods, from a program that hands them out; what is read off the text is proved.

The statement's density is read off its text. That each of its arguments is affine in the unconstrained parameters under
its link or does not depend on them, and that these are the log likelihoods of the observations, is checked numerically:
at several random points, for all observations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from stansub.errors import InputError, RunError
from stansub.stan import rewrite, toolchain
from stansub.stan.data import Data
from stansub.stan.densities import PRODUCTS, SPECS, Link, Rows, Spec
from stansub.stan.design import DataColumn, fill, guessed, telling_rows
from stansub.stan.library import Library
from stansub.stan.linearity import Shape, shape_at
from stansub.stan.recognise import Form, normalised, partial_sums, recognise
from stansub.stan.series.lags import with_lags
from stansub.stan.series.rows import N_ROWS
from stansub.stan.sizes import changing_names, data_declarations, declarations, main_size, observations_in
from stansub.stan.syntax import (
    Assign,
    Call,
    Declaration,
    For,
    Function,
    Other,
    Program,
    Span,
    Statement,
    Target,
    Tilde,
    calls,
    expression_of,
    names,
    walk,
)
from stansub.target.blocks import Blocks
from stansub.target.gradients import THREADS
from stansub.target.remainders import LinearPredictors, NoPredictorsError
from stansub.types import FloatArray

T = TypeVar("T")
R = TypeVar("R")

# Observations that are compared at once, and that a part of the program's data has.
_PART, _ROWS = 1 << 14, 1 << 15
# Points at which predictors are compared before there are any of the posterior.
_N_POINTS = 3
_AFFINE, _SAME = 1e-9, 1e-8
# Values that an observation may have of one argument.
_WIDEST = 64
_CHANGING = "what its density is of depends on parameters"
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
    columns : tuple of str
        Stan expressions: the observations, and the arguments in Stan's order.
    """

    name: str
    columns: tuple[str, ...]

    @classmethod
    def of(cls, name: str, left: str, arguments: Sequence[str]) -> Density:
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
            given[there] = [product.predictor.format(*given[there])]
        if len(given) != len(SPECS[density].links):
            raise wrong
        return cls(density, (left, *given))

    @property
    def vectors(self) -> tuple[bool, ...]:
        """For each column, whether an observation has several values of it."""
        return (False, *(link.is_vector for link in SPECS[self.name].links))

    @classmethod
    def of_statement(cls, statement: Statement) -> Density | None:
        """That of ``y ~ f(...)`` or ``target += f_lpdf(y | ...)``; None for others."""
        if isinstance(statement, Tilde):
            call = _whole(statement.distribution)
            return cls.of(call.name, statement.left, call.arguments) if call else None
        return cls.of_call(statement.expression) if isinstance(statement, Target) else None

    @classmethod
    def of_call(cls, expression: str) -> Density | None:
        """That of ``f_lpdf(y | ...)``, with or without constants; None for other expressions."""
        call = _whole(expression)
        name = normalised(call.name) if call else ""
        if call is None or not name.endswith(("_lpdf", "_lpmf")) or not call.arguments:
            return None
        return cls.of(name[:-5], call.arguments[0], call.arguments[1:])


def _whole(expression: str) -> Call | None:
    """The call that an expression is, if it is one."""
    outer = calls(expression)[:1]
    return outer[0] if outer and outer[0].span == Span(0, len(expression)) else None


class _Parts(NamedTuple):
    """Parts of the program that hands predictors out.

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
    arguments : tuple of str
        The columns after the first where the density stands in the model block itself.
    place : Span or None
        Of the statement that it stands in.
    """

    density: str
    functions: str
    span: Span
    text: str
    widths: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    place: Span | None = None


def _parts(program: Program, form: Form, size: str) -> _Parts:
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
    loop = next((one for one in walk(program.model.statements) if _holds(one, statement)), None)
    if isinstance(loop, For):
        return _of_loop(program, loop)
    density = Density.of_statement(statement)
    if density is None:
        raise NoPredictorsError(f"`{program.text(statement.span)}` is not the density of data")
    _check_known(program, density)
    widths = _widths(program, density, statement.span)
    lines = [
        f"stansub_{k} = {_columns('stansub_n', column, width)};"
        for k, (column, width) in enumerate(zip(density.columns, widths, strict=True))
    ]
    return _Parts(density.name, "", statement.span, "\n".join(lines), widths, density.columns[1:], statement.span)


def _columns(n: str, column: str, width: str) -> str:
    """An expression for all observations as a vector, or as a matrix where its width is not 1."""
    if width == "1":
        return f"stansub_spread({n}, {column})"
    return f"stansub_padded({width}, stansub_rows({n}, {column}))"


def _check_known(program: Program, density: Density) -> None:
    """Spare the compilation where the text shows what the numerical check would find."""
    changing = changing_names(program)
    if names(density.columns[0]) & changing:
        raise NoPredictorsError(_CHANGING)
    for k, (column, link) in enumerate(zip(density.columns[1:], SPECS[density.name].links, strict=True)):
        if link.is_known and names(column) & changing:
            raise NoPredictorsError(_not_known(density.name, k))


def _not_known(density: str, k: int) -> str:
    return f"argument {k + 1} of {density} depends on parameters, and must be known"


def _widths(program: Program, density: Density, span: Span) -> tuple[str, ...]:
    """Of its columns; of vectors no less than the sizes of whatever they are computed from, and one more."""
    if not any(density.vectors):
        return ("1",) * len(density.columns)
    reached = names(program.text(span))
    steps = [
        one
        for one in walk([*program.transformed_parameters.statements, *program.model.statements])
        if isinstance(one, Declaration | Assign)
    ]
    while more := set().union(*(names(expression_of(one)) for one in steps if _written(one) & reached)) - reached:
        reached |= more
    known, changing = {one.name for one in data_declarations(program)}, changing_names(program)
    sizes = sorted(
        dim
        for dim in {dim for one in declarations(program) if one.name in reached & changing for dim in one.all_dims}
        if names(dim) <= known
    )
    wide = f"min({{{_WIDEST}, 1 + max({{{', '.join(sizes)}}})}})" if sizes else str(_WIDEST)
    return tuple(wide if is_vector else "1" for is_vector in density.vectors)


def _written(statement: Declaration | Assign) -> set[str]:
    return {statement.name} if isinstance(statement, Declaration) else set(statement.variables)


def _holds(loop: Statement, statement: Statement) -> bool:
    inside = loop.span.start <= statement.span.start and statement.span.end <= loop.span.end
    return inside and isinstance(loop, For)


def _of_loop(program: Program, loop: For) -> _Parts:
    """A loop over observations, with one density in it."""
    adding = [one for one in walk(loop.body) if isinstance(one, Target | Tilde)]
    density = Density.of_statement(adding[0]) if len(adding) == 1 else None
    if density is None:
        raise NoPredictorsError("the loop over observations has not exactly one density in it")
    _check_known(program, density)
    place, widths = f"({loop.variable}) - ({loop.lower}) + 1", _widths(program, density, loop.span)
    columns = [
        column if width == "1" else f"{_columns('1', column, width)}[1]"
        for column, width in zip(density.columns, widths, strict=True)
    ]
    lines = " ".join(f"stansub_{k}[{place}] = {column};" for k, column in enumerate(columns))
    text = rewrite.replaced(program, loop.span, [(adding[0].span, lines)])
    return _Parts(density.name, "", loop.span, text, widths, density.columns[1:], adding[0].span)


def _of_function(program: Program, loop: For) -> _Parts:
    """A loop over ``log_lik_i``."""
    assert isinstance(loop.body[0], Target)
    call = calls(loop.body[0].expression)[0]
    found = [one for one in program.functions if one.name == call.name and len(one.arguments) == len(call.arguments)]
    density, copies = _copied(program, found, "1", "real")
    place, arguments = f"({loop.variable}) - ({loop.lower}) + 1", ", ".join(call.arguments)
    widths = _widths(program, density, loop.span)
    lines = []
    for k, width in enumerate(widths):
        value = f"stansub_of_{k}({arguments})"
        padded = value if width == "1" else f"stansub_padded({width}, {value})[1]"
        lines.append(f"stansub_{k}[{place}] = {padded};")
    text = "\n".join([f"for ({loop.variable} in {loop.lower} : {loop.upper}) {{", *lines, "}"])
    return _Parts(density.name, copies, loop.span, text, widths)


def _of_partial_sum(program: Program, call: Call, span: Span) -> _Parts:
    """A ``reduce_sum``."""
    functions = partial_sums(program, call)
    _, start, end, *_ = (argument.name for argument in functions[0].arguments)
    density, copies = _copied(program, functions, f"{end} - {start} + 1", "vector")
    first, rest = call.arguments[1], call.arguments[3:]
    arguments = ", ".join([first, "1", f"size({first})", *rest])
    widths, lines = _widths(program, density, span), []
    for k, width in enumerate(widths):
        value = f"stansub_of_{k}({arguments})"
        lines.append(f"stansub_{k} = {value if width == '1' else f'stansub_padded({width}, {value})'};")
    return _Parts(density.name, copies, span, "\n".join(lines), widths)


def _copied(program: Program, functions: Sequence[Function], n: str, returned: str) -> tuple[Density, str]:
    """The density that the user's function returns, and copies of it that return its columns."""
    if len(functions) != 1 or not functions[0].body:
        raise NoPredictorsError("its function is overloaded or has no body")
    function = functions[0]
    assert function.body is not None
    returns = [one for one in walk(function.body) if isinstance(one, Other) and one.text.startswith("return")]
    result = returns[0].text.removeprefix("return").strip() if len(returns) == 1 else ""
    term = _only_term(function.body, result)
    density = Density.of_call(term.expression if term else result)
    if density is None or returns[0] != function.body[-1]:
        raise NoPredictorsError(f"{function.name} does not return the density of data, and nothing else")
    declared = ", ".join(f"{'data ' if one.data_only else ''}{one.type} {one.name}" for one in function.arguments)
    inside, copies = Span(function.body[0].span.start, function.body[-1].span.end), []
    for k, (column, is_vector) in enumerate(zip(density.columns, density.vectors, strict=True)):
        value = column if returned == "real" else f"stansub_spread({n}, {column})"
        value, kind = (f"stansub_rows({n}, {column})", "matrix") if is_vector else (value, returned)
        edits = [(returns[0].span, f"return {value};"), *([(term.span, "")] if term else [])]
        body = rewrite.replaced(program, inside, edits)
        copies.append(f"  {kind} stansub_of_{k}({declared}) {{\n{body}\n  }}")
    return density, "\n".join(copies)


def _only_term(body: Sequence[Statement], name: str) -> Assign | None:
    """What is added to a local sum that begins at 0 and has one term: ``real x = 0; x += term;``."""
    written = [one for one in walk(body) if isinstance(one, Declaration | Assign) and name in _written(one)]
    read = [one for one in walk(body) if name in names(expression_of(one))]
    if len(written) != 2 or len(read) != 1:  # it is returned
        return None
    declared, added = written
    if not isinstance(declared, Declaration) or not isinstance(added, Assign):
        return None
    begins = declared.value in ("0", "0.0")
    adds = added in body and (added.place, added.operator) == (name, "+=")
    return added if begins and adds else None


@dataclass(frozen=True)
class _Columns:
    """The columns of the program that hands them out, at any point.

    Attributes
    ----------
    at : callable
        From unconstrained parameters to all values, shape (rows, n): a row for each column, or several.
    spec : Spec
    vectors : tuple of bool
        Which columns have several values an observation.
    """

    at: Callable[[FloatArray], FloatArray]
    spec: Spec
    vectors: tuple[bool, ...]

    @classmethod
    def of(cls, library: Library, values: Data, n: int, *, spec: Spec, vectors: tuple[bool, ...]) -> _Columns:
        """Those of the program with such data, n observations."""
        model, rng = values.model(library), library.rng(0)
        first = model.param_num()
        # the library makes a name for each value to count them
        n_values = model.param_num(include_gq=True) if any(vectors) else first + n * len(vectors)

        def at(theta: FloatArray) -> FloatArray:
            try:
                found = model.param_constrain(theta, include_gq=True, rng=rng, out=np.empty(n_values))
            except RunError as error:
                raise NoPredictorsError(f"its arguments cannot be computed at a random point ({error})") from error
            return found[first:].reshape(-1, n)

        return cls(at, spec, vectors)

    def __call__(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Observations and known arguments, and the other arguments after their links: a row each."""
        values = self.at(theta)
        wide = len(values) - self.vectors.count(False)
        rows, start = [], 0
        for is_vector in self.vectors:
            stop = start + (wide if is_vector else 1)
            rows.append(values[start:stop])
            start = stop
        rows = [
            row[~np.isnan(row).any(1)] if is_vector else row for row, is_vector in zip(rows, self.vectors, strict=True)
        ]
        if min(map(len, rows)) == 0:
            raise NoPredictorsError(f"an argument has more than {_WIDEST} values")
        known = [row for row, link in zip(rows[1:], self.spec.links, strict=True) if link.is_known]
        with np.errstate(divide="ignore", invalid="ignore"):
            others = [link.apply(row) for row, link in zip(rows[1:], self.spec.links, strict=True) if not link.is_known]
        return np.concatenate([rows[0], *known]), np.concatenate(others)

    def argument(self, row: int) -> tuple[int, Link]:
        """Which of Stan's arguments a row belongs to; a vector is the last."""
        others = [(k, link) for k, link in enumerate(self.spec.links) if not link.is_known]
        return others[min(row, len(others) - 1)]


def recognised(program: Program) -> bool:
    """Whether the text of a program shows a likelihood of a family that is known; nothing is proved of it."""
    try:
        form, over_rows = recognise(program), with_lags(program)
        if over_rows:
            _parts(over_rows, recognise(over_rows), N_ROWS)
        else:
            _parts(program, form, form.n or main_size(program))
    except InputError:
        return False
    return True


@dataclass(frozen=True)
class _HandedOut:
    """A program that hands out the columns of the density of another one.

    Attributes
    ----------
    density : str
        Its name.
    library : Library
    vectors : tuple of bool
        Which columns have several values an observation.
    """

    density: str
    library: Library
    vectors: tuple[bool, ...]

    @classmethod
    def of(
        cls, program: Program, form: Form, size: str, name: str, progress: Callable[[str], None] | None = None
    ) -> _HandedOut:
        """Compiled; NoPredictorsError where the text shows no density of a recognised family."""
        parts, code = _program(program, form, size)
        try:
            library = Library(toolchain.compile_library(code, name=library_name(name), progress=progress))
        except RunError as error:
            raise NoPredictorsError(f"a program for its linear predictor does not compile ({error})") from error
        return cls(parts.density, library, tuple(width != "1" for width in parts.widths))

    def points(self, values: Data) -> list[FloatArray]:
        """Unconstrained parameters at which arguments can be compared: always the same."""
        return list(np.random.default_rng(0).uniform(-2, 2, (_N_POINTS, values.model(self.library).dim)))

    def columns(self, values: Data, n: int) -> _Columns:
        """Of such data, n observations."""
        return _Columns.of(self.library, values, n, spec=SPECS[self.density], vectors=self.vectors)


def linear_predictors(
    program: Program,
    form: Form,
    values: Data,
    blocks: Blocks,
    *,
    sizes: Sequence[str],
    order: Any,
    points: Sequence[FloatArray],
    terms: Sequence[FloatArray],
    name: str,
    guess: LinearPredictors | None = None,
    progress: Callable[[str], None] | None = None,
) -> LinearPredictors:
    """The linear predictors of a program's likelihood.

    Parameters
    ----------
    program, form, values, blocks, sizes, order, points, name
        Of a `stansub.stan.posterior.Posterior`.
    terms : sequence of ndarray, shape (n_blocks,)
        Log likelihoods of the blocks at the first of the points.
    guess : LinearPredictors, optional
        What they may be (see `guess_predictors`).
    progress : callable, optional

    Raises
    ------
    NoPredictorsError
        When its likelihood is of no recognised family, or not by a linear predictor; the text says why.
    """

    def proved(found: LinearPredictors) -> LinearPredictors | None:
        predictors = replace(found, order=order)
        return predictors if _is_proved(predictors, blocks, points, terms) else None

    source = _HandedOut.of(program, form, sizes[0] if sizes else "", name, progress)
    if guess is None:
        guess = _by_columns_of_data(source, values, sizes)
    if guess is not None and (predictors := proved(guess)):
        return predictors
    columns = source.columns(values, blocks.n_observations)
    design = _steps(columns, points[0])
    predictors = proved(_joined(columns.spec, [_affine(source.density, columns, design, points)], design))
    if predictors is None:
        raise NoPredictorsError("the log likelihoods of the blocks are not those of the density alone")
    return predictors


def guess_predictors(program: Program, form: Form, values: Data, name: str) -> LinearPredictors | None:
    """What the linear predictors of a program may be, to be proved once its likelihood is cut into blocks.

    Where the program takes a few rows and these show a design of columns of the data, and nothing is to be compiled;
    None elsewhere.
    """
    size = main_size(program)
    try:
        if not toolchain.is_compiled(handing_out(program, form, size), name=library_name(name)):
            return None
        source = _HandedOut.of(program, form, size, name)
        return _by_columns_of_data(source, values, [size])
    except InputError:
        return None


def library_name(name: str) -> str:
    """Of the library of the program that hands the predictors of a program out."""
    return f"{name}_predictors"


def handing_out(program: Program, form: Form, size: str) -> str:
    """A program that hands the arguments of a program's density out, where ``size`` counts the observations.

    Raises
    ------
    NoPredictorsError
        When the text shows no density of a recognised family.
    """
    return _program(program, form, size)[1]


def _program(program: Program, form: Form, size: str) -> tuple[_Parts, str]:
    rewrite.reserve_names(program)
    if size == N_ROWS and (over_rows := with_lags(program)):
        program, form = over_rows, recognise(over_rows)
    parts = _parts(program, form, size)
    _check_shapes(program, parts)
    functions = f"{_HELPERS}\n{parts.functions}"
    code = rewrite.quantities_program(program, functions, form.n or size, parts.span, parts.text, parts.widths)
    return parts, rewrite.silent(code)


def _check_shapes(program: Program, parts: _Parts) -> None:
    """Spare the compilation where the text shows that an argument is not affine under its link."""
    links = SPECS[parts.density].links
    for k, (argument, link) in enumerate(zip(parts.arguments, links, strict=False)):
        assert parts.place is not None
        if link.shape and shape_at(program, parts.place, argument) not in (link.shape, Shape.KNOWN, Shape.OPEN):
            raise _not_affine(parts.density, k, link)


def _not_affine(density: str, k: int, link: Link) -> NoPredictorsError:
    what = link.words.format(f"argument {k + 1} of {density}")
    return NoPredictorsError(f"{what} is not affine in the unconstrained parameters")


def _steps(columns: _Columns, point: FloatArray) -> list[FloatArray]:
    """What each argument gains for a step of 1 of each parameter, each of shape (n, dim) or (1, dim)."""
    _, base = columns(point)

    def step(one: FloatArray) -> list[FloatArray]:
        with np.errstate(invalid="ignore"):  # of data that are not finite
            return _shortest(list(columns(point + one)[1] - base))

    steps = _at_once(step, np.eye(len(point)))
    return [np.stack(np.broadcast_arrays(*(step[row] for step in steps)), 1) for row in range(len(base))]


def _by_columns_of_data(source: _HandedOut, values: Data, sizes: Sequence[str]) -> LinearPredictors | None:
    """The linear predictors where the program takes a few rows, and these show a design of columns of the data.

    All rows are then asked in parts; None where that does not succeed, for whatever reason. To be proved: what the
    program computes of all its data, such as means, differs from part to part. The points are always the same, so that
    another process finds the same to the last bit.
    """
    if not sizes or not set(sizes) <= set(values.values):
        return None
    try:
        axes, n = values.axes(sizes), values.integer(sizes[0])
        telling = telling_rows(values, axes, n)
        few = values.rows(axes, sizes, telling)
        columns = source.columns(few, len(telling))
        points = source.points(few)
        guesses = [
            guessed(np.broadcast_to(z, (len(telling), len(points[0]))).T, few, axes) for z in _steps(columns, points[0])
        ]
        known = [one for one in guesses if one is not None]
        if len(known) < len(guesses):
            return None
        design = [np.empty((n if any(isinstance(k, DataColumn) for k in one) else 1, len(one))) for one in known]

        def part(first: int) -> _Affine:
            rows = slice(first, min(first + _ROWS, n))
            own, data = [z if len(z) == 1 else z[rows] for z in design], values.rows(axes, sizes, rows)
            for z, one in zip(own, known, strict=True):
                fill(z, one, data, axes)
            return _affine(source.density, source.columns(data, rows.stop - rows.start), own, points)

        return _joined(columns.spec, _at_once(part, range(0, n, _ROWS)), design)
    except InputError:
        return None


def _at_once(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """What work makes of each, in threads."""
    # BLAS's own threads would wait for each other.
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(max_workers=THREADS) as pool:
        return list(pool.map(work, items))


class _Affine(NamedTuple):
    """Some observations, whose arguments are affine in the unconstrained parameters, a row for each argument.

    Attributes
    ----------
    given : ndarray, shape (rows, n)
        Observations and known arguments.
    base, offset : ndarray, shape (q, n)
        The other arguments after their links: at a point, and less the design's part in that.
    """

    given: FloatArray
    base: FloatArray
    offset: FloatArray


def _affine(density: str, columns: _Columns, design: Sequence[FloatArray], points: Sequence[FloatArray]) -> _Affine:
    """What the arguments are in the unconstrained parameters; NoPredictorsError when not affine with such a design."""
    given, base = columns(points[0])
    if len(base) != len(design):
        raise NoPredictorsError("a few observations have other arguments than all")
    offset = np.array([row - z @ points[0] for row, z in zip(base, design, strict=True)])
    for theta in points[1:]:
        known, found = columns(theta)
        _check_same(density, columns.spec, given, known)
        for row, (value, z, o) in enumerate(zip(found, design, offset, strict=True)):
            k, link = columns.argument(row)
            if not _is_affine(value, z, o, theta, link):
                raise _not_affine(density, k, link)
    return _Affine(given, base, offset)


def _joined(spec: Spec, parts: Sequence[_Affine], design: Sequence[FloatArray]) -> LinearPredictors:
    """The linear predictors of all observations from those of parts of them."""
    given, base, offset = (np.concatenate(rows, axis=1) for rows in zip(*parts, strict=True))
    constant = [None if z.any() else row for row, z in zip(base, design, strict=True)]
    family, kept = spec.choose(Rows(given[0], list(given[1:]), constant))
    offsets = [offset[kept[0]], *(_shortest([offset[row]])[0] for row in kept[1:])]
    return LinearPredictors(tuple(design[row] for row in kept), tuple(offsets), family)


def _is_affine(value: FloatArray, z: FloatArray, o: FloatArray, theta: FloatArray, link: Link) -> bool:
    """Whether all values are z . theta + o, as far as rounding lets one see; in parts that fit into a cache."""
    z, o = np.broadcast_to(z, (len(value), len(theta))), np.broadcast_to(o, len(value))
    for first in range(0, len(value), _PART):
        part = slice(first, first + _PART)
        scale = 1 + np.abs(value[part]) + np.abs(z[part]) @ np.abs(theta)
        if not (np.abs(value[part] - o[part] - z[part] @ theta) <= _AFFINE * scale + link.rounding(value[part])).all():
            return False
    return True


def _check_same(density: str, spec: Spec, given: FloatArray, again: FloatArray) -> None:
    """Observations and known arguments at two points."""
    if not np.array_equal(given[0], again[0]):
        raise NoPredictorsError(_CHANGING)
    places = [k for k, link in enumerate(spec.links) if link.is_known]
    for k, before, after in zip(places, given[1:], again[1:], strict=True):
        if not np.array_equal(before, after):
            raise NoPredictorsError(_not_known(density, k))


def _shortest(rows: Sequence[FloatArray]) -> list[FloatArray]:
    """Rows, with one entry where it is the same for all observations."""
    return [row[:1] if (row == row[0]).all() else row for row in rows]


def _is_proved(
    predictors: LinearPredictors, blocks: Blocks, points: Sequence[FloatArray], terms: Sequence[FloatArray]
) -> bool:
    """Whether changes of all blocks' log likelihoods, given at the first points, are those that the family gives."""
    if predictors.n_observations != blocks.n_observations or predictors.design[0].shape[1] != len(points[0]):
        return False
    at_first = predictors.log_lik(points[0], threads=THREADS)
    for theta, term in zip(points[1:], terms[1:], strict=False):
        own, given = predictors.log_lik(theta, threads=THREADS) - at_first, term - terms[0]
        scale = 1 + np.abs(terms[0]) + predictors.sums(np.abs(own), blocks)
        if not (np.abs(predictors.sums(own, blocks) - given) <= _SAME * scale).all():
            return False
    return len(terms) > 1
