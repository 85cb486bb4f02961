"""Logarithms of probabilities that a likelihood adds up, declared as variables.

In a model with latent classes, ``lp[c] += bernoulli_lpmf(y[n, i] | p[c, i])``, each observation reads the probabilities
of all classes and items, and its log likelihood is affine in none of them. If ``log(p)`` and ``log1m(p)`` are declared
as variables, the sum for a class is affine in these, so that there is one argument for each class.

A probability of a single outcome, such as that of a zero, keeps its logit, which is one argument instead of two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from stansub.stan.passes.rewriting import Symbols
from stansub.stan.passes.variables import Replacements, Variables, declaring
from stansub.stan.reading.dependence import Steps, together
from stansub.stan.reading.typing import INT, REAL, UNKNOWN
from stansub.stan.syntax import (
    PRODUCTS,
    Assign,
    Call,
    Declaration,
    Density,
    Expression,
    For,
    ForEach,
    Infix,
    Literal,
    Name,
    Node,
    Program,
    Span,
    Statement,
    Subscript,
    changed,
    density_of,
    find,
    flat,
    name_of,
    names,
    outermost,
    parse_expression,
    substituted,
    walk,
    writes,
)

_SIMPLEX = "simplex"
_MIXTURES = frozenset({"log_sum_exp", "log_mix"})
# The logarithms of a probability and of its complement, as functions of the probability and of its logit.
_OF_PROBABILITY, _OF_LOGIT = ("log", "log1m"), ("log_inv_logit", "log1m_inv_logit")
_FUNCTIONS = frozenset((*_OF_PROBABILITY, *_OF_LOGIT))


def added_up(program: Program, *sizes: str) -> tuple[str, ...]:
    """Return the names of parameters that are probabilities of outcomes, whose logarithms a likelihood adds up.

    Parameters
    ----------
    program : Program
        As `with_log_probabilities` returns it.
    """
    reading, sources = _Reading.of(program, *sizes), Steps.of(program).sources
    found = together(sources, filter(reading.meets_data, reading.logarithms()))
    return tuple(one.name for one in program.parameters.declarations if one.name in found)


class _Use(NamedTuple):
    """A use of probabilities by their logarithms."""

    probability: Expression
    value: Expression
    """What is computed from them, with `_FUNCTIONS` of the probabilities and nothing else of them."""
    span: Span
    """Its place."""
    statement: Statement
    """The block's own statement that contains it."""

    @property
    def name(self) -> str:
        """The variable that has the probabilities."""
        return name_of(self.probability)

    @property
    def logarithms(self) -> dict[str, Call]:
        """The functions of the probabilities in the value, by name."""
        return {call.name: call for call in find(Call, [self.value]) if call.arguments == (self.probability,)}


@declaring("logarithms of probabilities")
def with_log_probabilities(program: Program, *sizes: str) -> Replacements:
    """Declare the logarithms of probabilities that the likelihood adds up."""
    reading, unused = _Reading.of(program, *sizes), Symbols.of(program)
    uses = list(reading.uses())
    # Variables that the likelihood also reads otherwise would be arguments besides their logarithms.
    others = Counter(one.name for one in find(Name, reading.own)) - Counter(one.name for one in uses)
    replacements, symbols = list[tuple[Span, str]](), dict[tuple[str, str], Name]()
    taken = {one.name: set[str]().union(*(use.logarithms for use in uses if use.name == one.name)) for one in uses}
    for one in uses:
        # Of probabilities, the complements keep climbs where these are at most 1.
        is_whole = len(taken[one.name]) > 1 or reading.is_simplex(one.name)
        if one.name in others or not is_whole or not reading.is_ready({one.name}, one.statement):
            continue
        functions = one.logarithms
        for function in functions:
            if (one.name, function) not in symbols:
                own = symbols[one.name, function] = Name(unused.fresh("stansub_log"))
                line = f"{reading.declared[one.name].type.plain} {own} = {function}({one.name});\n"
                replacements.append((one.statement.span.before, line))
        given: dict[Node, Node] = {
            call: substituted(one.probability, {one.name: symbols[one.name, name]}) for name, call in functions.items()
        }
        replacements.append((one.span, f"({changed(one.value, given.get)})"))
    return replacements


def _bernoulli(density: Density, several: bool, probabilities: bool, *, logs: tuple[str, str]) -> str:
    """Return the text of a log mass of one or several outcomes; empty where one outcome has several probabilities.

    ``logs`` are functions of the argument: the logarithms of the probability and of its complement.
    """
    y, p = density.left, density.arguments[0]
    yes, no = (f"{name}({p})" for name in logs)
    if several and probabilities:
        return f"dot_product(to_vector({y}), to_vector({yes})) + dot_product(1 - to_vector({y}), to_vector({no}))"
    if several:
        return f"sum({y}) * {yes} + (num_elements({y}) - sum({y})) * {no}"
    return "" if probabilities else f"({y}) * {yes} + (1 - ({y})) * {no}"


def _binomial(density: Density, several: bool, trials: bool, probabilities: bool, *, logs: tuple[str, str]) -> str:
    """Return the same of counts among trials; empty unless all or none are several."""
    y, (n, p) = density.left, density.arguments
    yes, no = (f"{name}({p})" for name in logs)
    if several and trials and probabilities:
        hits, misses = f"to_vector({y})", f"to_vector({n}) - to_vector({y})"
        terms = f"dot_product({hits}, to_vector({yes})) + dot_product({misses}, to_vector({no}))"
        return f"sum(lchoose({n}, {y})) + {terms}"
    if several or trials or probabilities:
        return ""
    return f"lchoose({n}, {y}) + ({y}) * {yes} + (({n}) - ({y})) * {no}"


def _categorical(density: Density, several: bool, _: bool) -> str:
    element = f"log({density.arguments[0]})[{density.left}]"
    return f"sum({element})" if several else element


def _multinomial(density: Density, *_: bool) -> str:
    y = f"to_vector({density.left})"
    return f"lgamma(1 + sum({y})) - sum(lgamma(1 + {y})) + dot_product({y}, log({density.arguments[0]}))"


_MASSES: Mapping[str, Callable[..., str]] = {
    "bernoulli": partial(_bernoulli, logs=_OF_PROBABILITY),
    "bernoulli_logit": partial(_bernoulli, logs=_OF_LOGIT),
    "binomial": partial(_binomial, logs=_OF_PROBABILITY),
    "binomial_logit": partial(_binomial, logs=_OF_LOGIT),
    "categorical": _categorical,
    "multinomial": _multinomial,
}


class _Reading(Variables):
    """Probabilities that a program's likelihood reads."""

    def uses(self) -> Iterator[_Use]:
        """Yield the uses of probabilities by their logarithms that are terms of a sum inside a mixture.

        Simplexes are also used by their logarithms in terms of the likelihood itself.
        """
        for one, statement in self.in_blocks():
            inside = [call.span for call in find(Call, [one]) if call.name in _MIXTURES]
            for use in outermost(partial(self._use, statement=statement), one):
                is_term = not isinstance(one, Declaration | Assign) and not any(
                    own.contains(use.span) for own in inside
                )
                if self.is_simplex(use.name) or not is_term:
                    yield use

    def logarithms(self) -> Iterator[str]:
        """Yield names of variables that are logarithms of probabilities, computed outside the likelihood."""
        own = {one.span for one in self.own}
        for one in walk(self.program.evaluated):
            value = one.computes[-1] if isinstance(one, Declaration | Assign) and one.computes else None
            if isinstance(value, Call) and self._is_logarithm(value) and one.span not in own:
                yield from writes(one)

    def meets_data(self, name: str) -> bool:
        """Return whether data of an observation select elements of a variable in the likelihood, or multiply them."""
        selecting = (indices for base, indices in map(flat, find(Subscript, self.own)) if base == Name(name))
        products: list[Node] = [one for one in find(Infix, self.own) if one.operator in PRODUCTS]
        products += [one for one in find(Call, self.own) if one.name == "dot_product"]
        multiplying = ([one] for one in products if name in names(one))
        return any(names(*nodes) & self.observed for nodes in (*selecting, *multiplying))

    def _use(self, node: Node, *, statement: Statement) -> _Use | None:
        match node:
            case Call("log", (Infix("-", Literal("1"), probability),)):
                value: Expression | None = Call("log1m", (probability,))
            case Call(name, (probability,)) if name in _FUNCTIONS:
                value = node
            case Call() if (density := density_of(node)) is not None and density.arguments:
                probability, value = density.arguments[-1], self._mass(density)
            case _:
                return None
        if value is None or not self._is_table(probability, statement):
            return None
        return _Use(probability, value, node.span, statement)

    def _is_table(self, probability: Expression, statement: Statement) -> bool:
        """Return whether a statement reads several elements of a variable of parameters for an observation."""
        base, indices = flat(probability)
        if not isinstance(base, Name) or base.name not in self.declared.keys() & self.changing - self.observed:
            return False
        if names(*indices) & self.changing:
            return False
        loops = {one.variable for one in walk([statement]) if isinstance(one, For | ForEach) and one != statement}
        is_number = self.types.is_number(probability)
        return not is_number or self.is_simplex(base.name) or bool(names(*indices) & (loops - self.observed))

    def _is_logarithm(self, call: Call) -> bool:
        return call.name in _FUNCTIONS and (call.name != "log" or self.is_simplex(name_of(call.arguments[0])))

    def is_simplex(self, name: str) -> bool:
        """Return whether a variable is declared as a simplex, or an array of simplexes."""
        return name in self.declared and self.declared[name].base == _SIMPLEX

    def _mass(self, density: Density) -> Expression | None:
        """Return a log probability mass as a function of logarithms of the probabilities; None for other densities."""
        given = [self.types.of(one) for one in (density.left, *density.arguments)]
        if UNKNOWN in given or density.name not in _MASSES:
            return None
        text = _MASSES[density.name](density, *(one not in (INT, REAL) for one in given))
        return parse_expression(text) if text else None
