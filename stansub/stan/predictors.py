"""Linear predictors of recognised likelihoods, from a program that hands them out; what is read off the text is proved.

The statement's family is read off its text. That its argument is affine in the unconstrained parameters, that nothing
else of it depends on them, and that these are the log likelihoods of the observations, is checked numerically: at
several random points, for all observations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stansub.errors import InputError, RunError
from stansub.stan import rewrite, toolchain
from stansub.stan.data import Data
from stansub.stan.library import Library
from stansub.stan.recognise import Form, normalised, partial_sums, recognise
from stansub.stan.sizes import changing_names, main_size, observations_in
from stansub.stan.syntax import Call, For, Function, Other, Program, Span, Statement, Target, Tilde, calls, names, walk
from stansub.target.factors import Population
from stansub.target.families import Binomial, Logistic, NegativeBinomial, Normal, Poisson, StudentT
from stansub.target.remainders import Family, LinearPredictors, NoPredictorsError
from stansub.types import FloatArray

_AFFINE, _SAME = 1e-9, 1e-8
_SEVERAL = "more than one argument of its density depends on parameters"


class _Spec(NamedTuple):
    """Where a density has its linear predictor among its arguments, and its family from y and the other ones."""

    place: int
    n_others: int
    make: Callable[..., Family]


_FAMILIES = {
    "bernoulli_logit": _Spec(0, 0, lambda y: Binomial(y, np.ones_like(y))),
    "binomial_logit": _Spec(1, 1, Binomial),
    "poisson_log": _Spec(0, 0, Poisson),
    "neg_binomial_2_log": _Spec(0, 1, NegativeBinomial),
    "normal": _Spec(0, 1, Normal),
    "student_t": _Spec(1, 2, StudentT),
    "cauchy": _Spec(0, 1, lambda y, scale: StudentT(y, np.ones_like(y), scale)),
    "logistic": _Spec(0, 1, Logistic),
}
# Densities with the product of a matrix and a vector in them, and the family of which they are one.
_PRODUCTS = {
    "bernoulli_logit_glm": "bernoulli_logit",
    "binomial_logit_glm": "binomial_logit",
    "poisson_log_glm": "poisson_log",
    "neg_binomial_2_log_glm": "neg_binomial_2_log",
    "normal_id_glm": "normal",
}
_SPREAD = """\
  vector stansub_spread(int n, real x) { return rep_vector(x, n); }
  vector stansub_spread(int n, vector x) { return x; }
  vector stansub_spread(int n, row_vector x) { return x'; }
  vector stansub_spread(int n, array[] int x) { return to_vector(x); }
  vector stansub_spread(int n, array[] real x) { return to_vector(x); }"""


@dataclass(frozen=True)
class Density:
    """The density of a likelihood statement.

    Attributes
    ----------
    family : str
    columns : tuple of str
        Stan expressions: the linear predictor, the observations, and the other arguments.
    """

    family: str
    columns: tuple[str, ...]

    @classmethod
    def of(cls, name: str, left: str, arguments: Sequence[str]) -> Density:
        """From the name of a density, without a suffix, what it is of, and its arguments.

        Raises
        ------
        NoPredictorsError
            When it is of no family that is known.
        """
        family = _PRODUCTS.get(name, name)
        if family not in _FAMILIES:
            raise NoPredictorsError(f"{name} is none of {', '.join([*_FAMILIES, *_PRODUCTS])}")
        spec, given = _FAMILIES[family], list(arguments)
        if family != name:
            x, alpha, beta = given[spec.place : spec.place + 3]
            given[spec.place : spec.place + 3] = [f"stansub_spread(rows({x}), {alpha}) + ({x}) * ({beta})"]
        if len(given) != 1 + spec.n_others:
            raise NoPredictorsError(f"{name} has {len(arguments)} arguments")
        return cls(family, (given.pop(spec.place), left, *given))

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
    family : str
    functions : str
        Beside the user's.
    span : Span
        The likelihood statement.
    text : str
        In its place in generated quantities.
    n_columns : int
    """

    family: str
    functions: str
    span: Span
    text: str
    n_columns: int


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
    _check_others(program, density)
    lines = [f"stansub_{k} = stansub_spread(stansub_n, {column});" for k, column in enumerate(density.columns)]
    return _Parts(density.family, "", statement.span, "\n".join(lines), len(lines))


def _check_others(program: Program, density: Density) -> None:
    """Spare the compilation where the text shows what the numerical check would find."""
    changing = changing_names(program)
    if any(names(column) & changing for column in density.columns[1:]):
        raise NoPredictorsError(_SEVERAL)


def _holds(loop: Statement, statement: Statement) -> bool:
    inside = loop.span.start <= statement.span.start and statement.span.end <= loop.span.end
    return inside and isinstance(loop, For)


def _of_loop(program: Program, loop: For) -> _Parts:
    """A loop over observations, with one density in it."""
    adding = [one for one in walk(loop.body) if isinstance(one, Target | Tilde)]
    density = Density.of_statement(adding[0]) if len(adding) == 1 else None
    if density is None:
        raise NoPredictorsError("the loop over observations has not exactly one density in it")
    _check_others(program, density)
    place = f"({loop.variable}) - ({loop.lower}) + 1"
    lines = " ".join(f"stansub_{k}[{place}] = {column};" for k, column in enumerate(density.columns))
    text = rewrite.replaced(program, loop.span, [(adding[0].span, lines)])
    return _Parts(density.family, "", loop.span, text, len(density.columns))


def _of_function(program: Program, loop: For) -> _Parts:
    """A loop over ``log_lik_i``."""
    assert isinstance(loop.body[0], Target)
    call = calls(loop.body[0].expression)[0]
    found = [one for one in program.functions if one.name == call.name and len(one.arguments) == len(call.arguments)]
    family, copies, n_columns = _copied(program, found, "real", lambda column: column)
    place, arguments = f"({loop.variable}) - ({loop.lower}) + 1", ", ".join(call.arguments)
    lines = "\n".join(f"stansub_{k}[{place}] = stansub_of_{k}({arguments});" for k in range(n_columns))
    text = f"for ({loop.variable} in {loop.lower} : {loop.upper}) {{\n{lines}\n}}"
    return _Parts(family, copies, loop.span, text, n_columns)


def _of_partial_sum(program: Program, call: Call, span: Span) -> _Parts:
    """A ``reduce_sum``."""
    functions = partial_sums(program, call)

    def spread(column: str) -> str:
        _, start, end, *_ = (argument.name for argument in functions[0].arguments)
        return f"stansub_spread({end} - {start} + 1, {column})"

    family, copies, n_columns = _copied(program, functions, "vector", spread)
    first, rest = call.arguments[1], call.arguments[3:]
    arguments = ", ".join([first, "1", f"size({first})", *rest])
    lines = [f"stansub_{k} = stansub_of_{k}({arguments});" for k in range(n_columns)]
    return _Parts(family, copies, span, "\n".join(lines), n_columns)


def _copied(
    program: Program, functions: Sequence[Function], returned: str, of: Callable[[str], str]
) -> tuple[str, str, int]:
    """Copies of the user's function that return the columns of its density; their family, text and number."""
    if len(functions) != 1 or not functions[0].body:
        raise NoPredictorsError("its function is overloaded or has no body")
    function = functions[0]
    assert function.body is not None
    returns = [one for one in walk(function.body) if isinstance(one, Other) and one.text.startswith("return")]
    density = Density.of_call(returns[0].text.removeprefix("return").strip()) if len(returns) == 1 else None
    if density is None or returns[0] != function.body[-1]:
        raise NoPredictorsError(f"{function.name} does not return the density of data, and nothing else")
    declared = ", ".join(f"{'data ' if one.data_only else ''}{one.type} {one.name}" for one in function.arguments)
    copies = []
    for k, column in enumerate(density.columns):
        inside = Span(function.body[0].span.start, function.body[-1].span.end)
        body = rewrite.replaced(program, inside, [(returns[0].span, f"return {of(column)};")])
        copies.append(f"  {returned} stansub_of_{k}({declared}) {{\n{body}\n  }}")
    return density.family, "\n".join(copies), len(copies)


def recognised(program: Program) -> bool:
    """Whether the text of a program shows a likelihood of a family that is known; nothing is proved of it."""
    try:
        form = recognise(program)
        _parts(program, form, form.n or main_size(program))
    except InputError:
        return False
    return True


def linear_predictors(
    program: Program,
    form: Form,
    values: Data,
    population: Population,
    *,
    sizes: Sequence[str],
    order: Any,
    points: Sequence[FloatArray],
    name: str,
    progress: Callable[[str], None] | None = None,
) -> LinearPredictors:
    """The linear predictors of a program's likelihood.

    Parameters
    ----------
    program, form, values, population, sizes, order, points, name
        Of a `stansub.stan.posterior.Posterior`.
    progress : callable, optional

    Raises
    ------
    NoPredictorsError
        When its likelihood is of no recognised family, or not by a linear predictor; the text says why.
    """
    parts = _parts(program, form, sizes[0] if sizes else "")
    n = population.blocks.n_observations
    code = rewrite.silent(
        rewrite.quantities_program(
            program, f"{_SPREAD}\n{parts.functions}", form.n or sizes[0], parts.span, parts.text, parts.n_columns
        )
    )
    try:
        library = Library(toolchain.compile_library(code, name=f"{name}_predictors", progress=progress))
    except RunError as error:
        raise NoPredictorsError(f"a program for its linear predictor does not compile ({error})") from error
    model = values.model(library)

    def columns(theta: FloatArray) -> FloatArray:
        found = model.param_constrain(theta, include_gq=True, rng=library.rng(0))
        return np.asarray(found[-parts.n_columns * n :].reshape(parts.n_columns, n))

    base = columns(points[0])
    design = np.empty((n, population.dim))
    for k in range(population.dim):
        design[:, k] = columns(points[0] + np.eye(population.dim)[k])[0] - base[0]
    if order is not None:
        base, design = base[:, order], design[order]
    offset = base[0] - design @ points[0]
    for theta in points[1:]:
        found = columns(theta)[:, slice(None) if order is None else order]
        scale = 1 + np.abs(found[0]) + np.abs(design) @ np.abs(theta)
        if not (np.abs(found[0] - offset - design @ theta) <= _AFFINE * scale).all():
            raise NoPredictorsError("the argument of its density is not affine in the unconstrained parameters")
        if not np.array_equal(found[1:], base[1:]):
            raise NoPredictorsError(_SEVERAL)
    predictors = LinearPredictors((design,), (offset,), _FAMILIES[parts.family].make(*base[1:]))
    _prove(predictors, population, points)
    return predictors


def _prove(predictors: LinearPredictors, population: Population, points: Sequence[FloatArray]) -> None:
    """Compare changes of all blocks' log likelihoods with those that the family gives."""
    evaluator, starts = population.evaluator(), population.blocks.starts
    first = points[0]
    for theta in points[1:3]:
        own = predictors.family.log_lik(predictors.at(theta)) - predictors.family.log_lik(predictors.at(first))
        given = evaluator.block_log_lik(theta) - evaluator.block_log_lik(first)
        scale = 1 + np.abs(evaluator.block_log_lik(first)) + np.add.reduceat(np.abs(own), starts)
        if not (np.abs(np.add.reduceat(own, starts) - given) <= _SAME * scale).all():
            raise NoPredictorsError("the log likelihoods of the blocks are not those of the density alone")
