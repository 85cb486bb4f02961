"""The density of a likelihood, as far as the text shows: whether there may be a family that is known.

Nothing is proved here; with data, `stansub.stan.predictors` follows the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stansub.errors import InputError
from stansub.stan.densities import PRODUCTS, SPECS
from stansub.stan.passes import rewriting
from stansub.stan.recognise import Form, normalised, partial_sums, recognise
from stansub.stan.series.rows import N_ROWS
from stansub.stan.sizes import changing_names, main_size, observations_in
from stansub.stan.syntax import (
    Assign,
    Call,
    Declaration,
    Expression,
    For,
    Function,
    Literal,
    Name,
    Program,
    Return,
    Statement,
    Target,
    Tilde,
    find,
    names,
    walk,
    writes,
)
from stansub.target.remainders import NoPredictorsError

CHANGING = "what its density is of depends on parameters"


@dataclass(frozen=True)
class Density:
    """The density of a likelihood statement.

    Attributes
    ----------
    name : str
        Of `stansub.stan.densities.SPECS`.
    left : Expression
        The observations.
    known : tuple of (int, Expression)
        Arguments that must be known, with their positions.
    """

    name: str
    left: Expression
    known: tuple[tuple[int, Expression], ...]

    @classmethod
    def of(cls, name: str, left: Expression, arguments: Sequence[Expression]) -> Density:
        """Return the density from its name without suffix, its outcome and its arguments.

        Raises
        ------
        NoPredictorsError
            If it is of no known family.
        """
        product, given = PRODUCTS.get(name), list(arguments)
        density = product.density if product else name
        if density not in SPECS:
            raise NoPredictorsError(f"the density {name} is not one of {', '.join([*SPECS, *PRODUCTS])}")
        if product:
            del given[product.place + 1 : product.place + product.n_arguments]
        links = SPECS[density].links
        if len(given) != len(links) or (product and len(arguments) - len(given) != product.n_arguments - 1):
            raise NoPredictorsError(f"{name} has {len(arguments)} arguments")
        known = ((k, one) for k, (one, link) in enumerate(zip(given, links, strict=True)) if link.is_known)
        return cls(density, left, tuple(known))

    @classmethod
    def of_statement(cls, statement: Statement) -> Density | None:
        """Return the density of ``y ~ f(...)`` or ``target += f_lpdf(y | ...)``; None for others."""
        match statement:
            case Tilde(left, Call(name, arguments), ()):
                return cls.of(name, left, arguments)
            case Target(expression):
                return cls.of_call(expression)
        return None

    @classmethod
    def of_call(cls, expression: Expression | None) -> Density | None:
        """Return the density of ``f_lpdf(y | ...)``, with or without constants; None for other expressions."""
        match expression:
            case Call(name, (left, *arguments)) if normalised(name).endswith(("_lpdf", "_lpmf")):
                return cls.of(normalised(name)[:-5], left, arguments)
        return None

    def checked(self, program: Program) -> Density:
        """Return the density, unless the text shows parameters where there must be data."""
        changing = changing_names(program)
        if names(self.left) & changing:
            raise NoPredictorsError(CHANGING)
        for k, one in self.known:
            if names(one) & changing:
                raise NoPredictorsError(not_known(self.name, k))
        return self


def not_known(density: str, k: int) -> str:
    """Return the message that an argument must be data."""
    return f"argument {k + 1} of {density} depends on parameters, but must be data"


def density_of(program: Program, form: Form, size: str) -> Density:
    """Return the density of a program's likelihood, given the integer that counts the observations.

    Raises
    ------
    NoPredictorsError
        If the text shows no density of a known family.
    """
    if form.kind == "functions":
        raise NoPredictorsError("no linear predictors were given with the functions")
    if form.kind == "log_lik_i" and isinstance(form.likelihood, For):
        call = next(find(Call, form.likelihood.body))
        same = [one for one in program.functions if one.name == call.name]
        return _returned([one for one in same if len(one.arguments) == len(call.arguments)])
    if form.kind == "reduce_sum" and isinstance(form.likelihood, Call):
        return _returned(partial_sums(program, form.likelihood))
    statements = observations_in(program, size) if size else []
    if form.kind != "sum" or len(statements) != 1:
        raise NoPredictorsError("there is not exactly one likelihood statement")
    statement = statements[0]
    loop = next((one for one in find(For, program.model.statements) if one.span.contains(statement.span)), None)
    adding = [one for one in walk(loop.body) if isinstance(one, Target | Tilde)] if loop else [statement]
    density = Density.of_statement(adding[0]) if len(adding) == 1 else None
    if density is None and loop:
        raise NoPredictorsError("the loop over observations does not contain exactly one density")
    if density is None:
        raise NoPredictorsError(f"`{program.text(statement.span)}` is not a density of data")
    return density.checked(program)


def recognised(program: Program) -> bool:
    """Return whether the text of a program shows a likelihood of a known family; nothing is proved."""
    try:
        form, over_rows = recognise(program), rewriting(program).program
        if N_ROWS in names(over_rows):
            density_of(over_rows, recognise(over_rows), N_ROWS)
        else:
            density_of(program, form, form.n or main_size(program))
    except InputError:
        return False
    return True


def _returned(functions: Sequence[Function]) -> Density:
    """Return the density that the user's function returns."""
    if len(functions) != 1 or not functions[0].body:
        raise NoPredictorsError("the function of the likelihood is overloaded or has no body")
    function = functions[0]
    body = function.body or ()
    returns = [one for one in walk(body) if isinstance(one, Return)]
    result = returns[0].value if len(returns) == 1 else None
    term = _only_term(body, result.name) if isinstance(result, Name) else None
    density = Density.of_call(term.expression if term else result)
    if density is None or returns[0] is not body[-1]:
        raise NoPredictorsError(f"{function.name} returns something other than a density of data")
    return density


def _only_term(body: Sequence[Statement], name: str) -> Assign | None:
    """Return what is added to a local sum that begins at 0 and has one term: ``real x = 0; x += term;``."""
    written = [one for one in walk(body) if isinstance(one, Declaration | Assign) and name in writes(one)]
    read = [one for one in walk(body) if name in names(*one.computes)]
    match written:
        case [Declaration(value=Literal("0" | "0.0")), Assign(Name(), "+=") as added] if (
            len(read) == 1
        ):  # it is returned
            return added if added in body else None
    return None
