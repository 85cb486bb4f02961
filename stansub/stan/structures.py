"""Likelihoods that are no sum over observations, by name: what in a program shows that it is one of them.

Everything here is read off the text. A structure is only named where the text leaves little doubt, since naming a wrong
one is worse than silence; where there are data, the numerical proof decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from stansub.stan.recursions import Recursion, recursions
from stansub.stan.remarks import Remark
from stansub.stan.sizes import changing_names, data_declarations, declarations, main_size, outcome_sizes
from stansub.stan.syntax import (
    Assign,
    Call,
    Declaration,
    For,
    ForEach,
    Program,
    Statement,
    Target,
    Tilde,
    While,
    calls,
    children,
    expression_of,
    matching,
    names,
    tokenize,
    walk,
)

_MULTIVARIATE = ("multi_normal", "multi_student_t")
_PROCESSES = ("multi_gp",)
_SOLVERS = ("ode_", "integrate_ode", "dae")
_COVARIANCES = ("gp_", "cov_exp_quad")


class Structure(NamedTuple):
    """A kind of likelihood that is no sum over observations.

    Attributes
    ----------
    name : str
    why : str
        Why it is no such sum, in half a sentence.
    find : callable
        The statement that shows it, as text, or nothing.
    """

    name: str
    why: str
    find: Callable[[Reading], str]


class Named(NamedTuple):
    """A structure that was found, and the statement that shows it."""

    structure: Structure
    evidence: str

    @property
    def remark(self) -> Remark:
        """What to tell a user about the statement."""
        return Remark(self.evidence, f"makes it {self.structure.name}: {self.structure.why}")


def named(program: Program, size: str = "") -> Named | None:
    """The structure that a program has, if it is one of those known that are no sum.

    Parameters
    ----------
    program : Program
        The parsed canonical text.
    size : str
        The integer that counts the observations; where it is not given and several may, all must show one.
    """
    found = [_named(program, one) for one in ([size] if size else outcome_sizes(program) or [main_size(program)])]
    return found[0] if found and all(found) else None


def _named(program: Program, size: str) -> Named | None:
    reading = Reading(program, size)
    for structure in STRUCTURES if size else ():
        if evidence := structure.find(reading):
            return Named(structure, " ".join(evidence.split()))
    return None


@dataclass(frozen=True)
class Reading:
    """A program and what in it has a value for each observation.

    Attributes
    ----------
    program : Program
    size : str
        The integer that counts the observations.
    """

    program: Program
    size: str

    @cached_property
    def observed(self) -> set[str]:
        """Data with a value for each observation."""
        return {one.name for one in data_declarations(self.program) if self._sized(one)}

    @cached_property
    def latent(self) -> dict[str, Declaration]:
        """Parameters with a value for each observation."""
        return {one.name: one for one in self.program.parameters.declarations if self._sized(one)}

    @cached_property
    def computed(self) -> dict[str, Declaration]:
        """What is computed from parameters and has a value for each observation."""
        changing = changing_names(self.program) - set(self.latent)
        return {one.name: one for one in declarations(self.program) if one.name in changing and self._sized(one)}

    @property
    def over(self) -> set[str]:
        """Names whose length, or value, is the number of observations."""
        return {self.size} | self.observed | set(self.latent) | set(self.computed)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """What is evaluated again and again."""
        return (*self.program.transformed_parameters.statements, *self.program.model.statements)

    @cached_property
    def scopes(self) -> list[Scope]:
        """The program, and the bodies of functions that are called once for all observations."""
        found = [Scope(self.statements, self.over)]
        seen: set[str] = set()
        for scope in found:
            for statement, call in scope.calls(self.program):
                for function in self.program.functions:
                    if function.name != call.name or function.body is None or function.name in seen:
                        continue
                    seen.add(function.name)
                    passed = zip(function.arguments, call.arguments, strict=False)
                    over = {one.name for one, text in passed if names(text) & scope.over}
                    found.append(Scope(function.body, over, self.text(statement)))
        return found

    @cached_property
    def recursions(self) -> list[tuple[Scope, Recursion]]:
        """Values computed from those before them and from parameters, in loops over all observations."""
        parameters = {one.name for one in self.program.parameters.declarations}
        return [
            (scope, one)
            for scope in self.scopes
            for loop in scope.loops
            for one in recursions(loop)
            if names(f"{loop.lower} {loop.upper}") & scope.lengths
            and (scope.caller or _reached(self, one.variable, sources=True) & parameters)
        ]

    def text(self, statement: Statement) -> str:
        """The text of a statement."""
        return self.program.text(statement.span)

    def _sized(self, one: Declaration) -> bool:
        return any(self.size in names(dim) for dim in one.all_dims)


@dataclass(frozen=True)
class Scope:
    """Statements that run once for all observations.

    Attributes
    ----------
    statements : sequence of Statement
    over : set of str
        Names whose length, or value, is the number of observations.
    caller : str
        The program's statement that calls the function that this is the body of, if it is one.
    """

    statements: Sequence[Statement]
    over: set[str]
    caller: str = ""

    @cached_property
    def lengths(self) -> set[str]:
        """Names that say in a loop's bounds that it is over all observations."""
        found = set(self.over)
        for one in walk(self.statements):
            if isinstance(one, Declaration) and one.base == "int" and names(one.value or "") & found:
                found.add(one.name)
        return found

    @property
    def outside(self) -> Iterator[Statement]:
        """Statements outside loops, and the loops."""
        return _outside(self.statements)

    @property
    def loops(self) -> Iterator[For]:
        """Loops that are in no other."""
        return (one for one in self.outside if isinstance(one, For))

    def calls(self, program: Program) -> Iterator[tuple[Statement, Call]]:
        """Calls outside loops that are passed something of all observations."""
        for statement in self.outside:
            if isinstance(statement, For | ForEach | While) or children(statement):
                continue
            for call in _calls_of(program, statement):
                if any(names(argument) & self.over for argument in call.arguments):
                    yield statement, call


def _calls_of(program: Program, statement: Statement) -> list[Call]:
    """Calls in a statement; ``y ~ f(x)`` counts as one of ``f_lpdf`` and ``f_lpmf``."""
    found = calls(program.code, statement.span)
    if isinstance(statement, Tilde):
        first = calls(statement.distribution)[0]
        whole = (statement.left, *first.arguments)
        found += [first._replace(name=f"{first.name}_{kind}", arguments=whole) for kind in ("lpdf", "lpmf")]
    return found


def _outside(statements: Sequence[Statement]) -> Iterator[Statement]:
    for statement in statements:
        yield statement
        if not isinstance(statement, For | ForEach | While):
            for inner in children(statement):
                yield from _outside(inner)


def _density(statement: Statement) -> tuple[str, str, tuple[str, ...]] | None:
    """The name of the density that a statement adds, what it is of, and its arguments; None for other statements."""
    if isinstance(statement, Tilde):
        call = calls(statement.distribution)[0]
        return call.name, statement.left, call.arguments
    found = calls(statement.expression)[:1] if isinstance(statement, Target) else []
    if found and found[0].name.endswith(("_lpdf", "_lpmf", "_lupdf", "_lupmf")) and found[0].arguments:
        return found[0].name.rpartition("_")[0], found[0].arguments[0], found[0].arguments[1:]
    return None


def _gaussian_process(reading: Reading) -> str:
    for scope in reading.scopes:
        for statement, call in scope.calls(reading.program):
            if call.name.startswith(_COVARIANCES) and call.name.endswith(("_cov", "_quad")):
                return scope.caller or reading.text(statement)
    for one in reading.computed.values():
        if one.all_dims.count(reading.size) > 1:
            return reading.text(one)
    return _one_density(reading, _PROCESSES)


def _one_covariance(reading: Reading) -> str:
    return _one_density(reading, _MULTIVARIATE)


def _one_density(reading: Reading, names_of: tuple[str, ...]) -> str:
    """A statement that takes all observations together in a density of which the name begins so."""
    for statement in walk(reading.statements):
        density = _density(statement)
        if density and density[0].startswith(names_of) and _is_one_vector(reading, density[1]):
            return reading.text(statement)
    return ""


def _is_one_vector(reading: Reading, left: str) -> bool:
    """Whether it is one vector of all observations."""
    return any(
        one.name == left and one.base in ("vector", "row_vector") and not one.array_dims
        for one in declarations(reading.program)
        if one.dims == (reading.size,)
    )


def _trajectory(reading: Reading) -> str:
    for scope in reading.scopes:
        for statement, call in scope.calls(reading.program):
            if call.name.startswith(_SOLVERS):
                return scope.caller or reading.text(statement)
    return ""


def _hidden_markov(reading: Reading) -> str:
    for scope in reading.scopes:
        for statement, call in scope.calls(reading.program):
            if call.name == "hmm_marginal":
                return scope.caller or reading.text(statement)
    for scope, one in reading.recursions:
        if any(call.name == "log_sum_exp" for call in calls(reading.text(one.loop))):
            return scope.caller or reading.text(one.statement)
    return ""


def _garch(reading: Reading) -> str:
    for scope, one in reading.recursions:
        if not scope.caller and _reached(reading, one.variable) & _places(reading)[1]:
            return reading.text(one.statement)
    return ""


def _arma(reading: Reading) -> str:
    for scope, one in reading.recursions:
        used = names(reading.text(one.loop))
        if not scope.caller and used & reading.observed and _reached(reading, one.variable) & _places(reading)[0]:
            return reading.text(one.statement)
    return ""


def _places(reading: Reading) -> tuple[set[str], set[str]]:
    """Names in what densities of observations are of or centre on, and those in their scales alone."""
    centres: set[str] = set()
    scales: set[str] = set()
    for statement in walk(reading.statements):
        if density := _density(statement):
            _, left, arguments = density
            centres |= names(left).union(*map(names, arguments[:-1]))
            scales |= names(arguments[-1]) if arguments else set()
    return centres, scales - centres


def _reached(reading: Reading, variable: str, *, sources: bool = False) -> set[str]:
    """A variable, and what is computed from it; or what it is computed from."""
    steps = [
        ({one.name} if isinstance(one, Declaration) else set(one.variables), names(expression_of(one)))
        for one in walk(reading.statements)
        if isinstance(one, Declaration | Assign)
    ]
    found = {variable}
    while True:
        pairs = ((read, written) if sources else (written, read) for written, read in steps)
        more = set().union(*(new for new, old in pairs if old & found)) - found
        if not more:
            return found
        found |= more


def _state_space(reading: Reading) -> str:
    latent = set(reading.latent)
    for _, one in reading.recursions:
        if _reached(reading, one.variable, sources=True) & latent:
            return reading.text(one.statement)
    for statement in walk(reading.statements):
        density = _density(statement)
        if density and (name := tokenize(density[1])[0].text) in latent and name in names(", ".join(density[2])):
            return reading.text(statement)
    for scope in reading.scopes:
        for statement, call in scope.calls(reading.program):
            if call.name == "cumulative_sum" and names(call.arguments[0]) & latent:
                return reading.text(statement)
    return ""


def _spatial(reading: Reading) -> str:
    for statement in walk(reading.statements):
        if not isinstance(statement, Target | Tilde):
            continue
        text = reading.text(statement)
        called = [call.name for call in _calls_of(reading.program, statement)]
        if not names(text) & set(reading.latent):
            continue
        if any(name.startswith("multi_normal_prec") or "car_" in name for name in called):
            return text
        if any(len(set(indices)) > 1 for indices in _gathered(text, reading).values()):
            return text
    return ""


def _gathered(text: str, reading: Reading) -> dict[str, list[str]]:
    """By parameter, the data by which its values are picked: ``phi[from]`` and ``phi[to]``."""
    tokens = tokenize(text)
    found: dict[str, list[str]] = {}
    known = {one.name for one in data_declarations(reading.program) if one.array_dims} - reading.observed
    for k, token in enumerate(tokens[:-1]):
        if token.text in reading.latent and tokens[k + 1].text == "[":
            index = tokens[k + 2 : matching(tokens, k + 1)]
            if index and index[0].text in known:
                found.setdefault(token.text, []).append("".join(one.text for one in index))
    return found


def _risk_sets(reading: Reading) -> str:
    for scope in reading.scopes:
        for statement, call in scope.calls(reading.program):
            inside = {one.name for one in calls(call.arguments[0])} if call.arguments else set()
            if call.name == "cumulative_logsumexp" or (call.name == "cumulative_sum" and "exp" in inside):
                return scope.caller or reading.text(statement)
    for loop in walk(reading.statements):
        if isinstance(loop, For) and reading.size in names(loop.upper) and (found := _risk_set(reading, loop)):
            return found
    for scope, one in reading.recursions:
        for call in calls(one.statement.expression):
            if call.name == "log_sum_exp" and len(call.arguments) == 2 and one.variable in call.arguments:
                return scope.caller or reading.text(one.statement)
    return ""


def _risk_set(reading: Reading, loop: For) -> str:
    """A sum over all that are at risk later, or were before, in a loop over observations."""
    ends = {f"{loop.variable} : {reading.size}", f"{loop.variable} :", f"1 : {loop.variable}", f": {loop.variable}"}
    for statement in walk(loop.body):
        if isinstance(statement, For):
            others = f"{statement.lower} : {statement.upper}" in ends
            summed = [expression_of(one) for one in statement.body if isinstance(one, Assign)]
            if others and any(call.name == "exp" for text in summed for call in calls(text)):
                return reading.text(statement)
        if children(statement):
            continue
        for call in calls(reading.text(statement)):
            if call.name in ("log_sum_exp", "sum") and any(f"[{end}]" in call.arguments[0] for end in ends):
                return reading.text(statement)
    return ""


def _recursion(reading: Reading) -> str:
    found = reading.recursions
    return (found[0][0].caller or reading.text(found[0][1].statement)) if found else ""


def _latent(reading: Reading) -> str:
    return next((reading.text(one) for one in reading.latent.values()), "")


STRUCTURES = (
    Structure("a model with risk sets (Cox partial likelihood)", "each term sums over all who are at risk", _risk_sets),
    Structure("a spatial model (CAR)", "each observation has an effect of its own, tied to its neighbours'", _spatial),
    Structure("a Gaussian process", "its covariance ties every observation to every other", _gaussian_process),
    Structure(
        "a multivariate normal or t with a covariance of all observations",
        "the term of each depends on all others",
        _one_covariance,
    ),
    Structure("a differential equation", "all observations are of one trajectory", _trajectory),
    Structure("a hidden Markov model", "each state depends on the one before it", _hidden_markov),
    Structure("a state-space model", "each observation has a state, tied to the one before it", _state_space),
    Structure("a GARCH model", "each variance is computed from the one before it", _garch),
    Structure("an ARMA model", "each error is computed from the one before it", _arma),
    Structure("a recursion over all observations", "each value is computed from the one before it", _recursion),
    Structure(
        "a model with a parameter for each observation", "a part of the data would have other parameters", _latent
    ),
)
