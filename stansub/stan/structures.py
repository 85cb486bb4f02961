"""Kinds of likelihoods that are not sums over observations, with the code that recognises each.

In many of them, later observations depend on earlier ones through values of the previous iteration of a loop.

Everything here comes from the text. A structure is named only if the text leaves little doubt, because a wrong name is
worse than none. If there are data, the numerical proof decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import NamedTuple

from stansub.stan.reading.dependence import Steps
from stansub.stan.reading.remarks import Remark
from stansub.stan.reading.sizes import SUMMARIES, data_along, main_size, observations_in, outcome_sizes
from stansub.stan.syntax import (
    Assign,
    Call,
    Declaration,
    Density,
    Expression,
    For,
    Literal,
    Loop,
    Name,
    Node,
    Program,
    Slice,
    Statement,
    Subscript,
    Target,
    Tilde,
    calls,
    density_of,
    find,
    name_of,
    names,
    placed,
    read_by,
    summands,
    walk,
    writes,
)

_MULTIVARIATE = ("multi_normal", "multi_student_t")
_SOLVERS = ("ode_", "integrate_ode", "dae")
_COVARIANCES = ("gp_", "cov_exp_quad")
# Densities whose last argument is a scale.
_SCALED = frozenset({"cauchy", "double_exponential", "logistic", "lognormal", "normal", "student_t"})


class Recursion(NamedTuple):
    """A variable that depends on its own value in the previous iteration."""

    variable: str
    statement: Assign
    """The last statement that changes it."""
    loop: For


def recursions(loop: For) -> list[Recursion]:
    """Return the recursions of a loop; sums that it only adds to do not count.

    Each variable is followed through one iteration: what it depends on from earlier iterations. It is a recursion if
    that leads back to itself.
    """
    before, added = _before(loop), dict[str, set[str]]()
    while added != before:
        added = before
        before = {name: read.union(*(before.get(one, ()) for one in read)) for name, read in before.items()}
    statements = {name: one for one in walk(loop.body) if isinstance(one, Assign) for name in one.variables}
    return [Recursion(name, one, loop) for name, one in statements.items() if name in before[name]]


def _before(loop: For) -> dict[str, set[str]]:
    """Return, for each variable that the loop changes, those whose values in earlier iterations it depends on."""
    own = {one.name for one in walk(loop.body) if isinstance(one, Declaration)}
    places: dict[str, set[str]] = {}
    for assigned in walk(loop.body):
        if isinstance(assigned, Assign):
            for name, place in islice(_uses(loop.variable, assigned.place), 1):
                places.setdefault(name, set()).add(place)
    depends: dict[str, set[str]] = {}
    for one in walk(loop.body):
        if not isinstance(one, Assign | Declaration):
            continue
        found: set[str] = set()
        for name, place in _uses(loop.variable, *one.computes):
            is_earlier = name in places and name not in own and place not in places[name] - {""}
            found |= {name} if is_earlier and (place or name not in depends) else depends.get(name, set())
        for name in sorted(writes(one)):
            is_sum = isinstance(one, Assign) and one.operator != "=" and name not in own and "" in places[name]
            others = (each for each in walk(loop.body) if name not in writes(each))
            if is_sum and name not in depends and any(name in read_by(each) for each in others):
                found = found | {name}
            depends[name] = depends.get(name, set()) | found
    return depends


def _uses(variable: str, *nodes: Node) -> Iterator[tuple[str, str]]:
    """Yield variables that nodes read, each with its index by a loop's variable."""
    for node in nodes:
        parts = node.parts
        match node:
            case Name(name):
                yield name, ""
            case Subscript(Name(name), indices):
                yield name, next((str(index) for index in indices if variable in names(index)), "")
                parts = indices
        yield from _uses(variable, *parts)


class Structure(NamedTuple):
    """A kind of likelihood that is not a sum over observations."""

    name: str
    why: str
    """Why it is not such a sum, in half a sentence."""
    find: Callable[[Reading], Iterator[str]]
    """Yields the statements that show it, as text."""


class NamedStructure(NamedTuple):
    """A structure that was found, with the statement that shows it."""

    structure: Structure
    evidence: str

    @property
    def remark(self) -> Remark:
        """Return the remark about the statement for the user."""
        return Remark(self.evidence, f"makes it {self.structure.name}: {self.structure.why}")


def named(program: Program, size: str = "") -> NamedStructure | None:
    """Return the structure of a program, if it is a known one that is not a sum.

    ``size`` counts the observations; if it is not given and several may, all must show one.
    """
    found = [_named(program, one) for one in ([size] if size else outcome_sizes(program) or [main_size(program)])]
    return found[0] if found and all(found) else None


def _named(program: Program, size: str) -> NamedStructure | None:
    reading = Reading(program, size)
    for structure in STRUCTURES if size else ():
        for evidence in structure.find(reading):
            return NamedStructure(structure, " ".join(evidence.split()))
    return None


@dataclass(frozen=True)
class Reading:
    """A program and its variables with a value for each observation."""

    program: Program
    size: str

    @cached_property
    def observed(self) -> set[str]:
        """Return data with a value for each observation."""
        return set(data_along(self.program, self.size))

    @cached_property
    def latent(self) -> dict[str, Declaration]:
        """Return parameters with a value for each observation."""
        return {one.name: one for one in self.program.parameters.declarations if self._sized(one)}

    @cached_property
    def computed(self) -> dict[str, Declaration]:
        """Return variables computed from parameters with a value for each observation."""
        changing = self.program.changing_names - set(self.latent)
        return {one.name: one for one in self.program.declarations if one.name in changing and self._sized(one)}

    @property
    def over(self) -> set[str]:
        """Return names whose length, or value, is the number of observations."""
        return {self.size} | self.observed | set(self.latent) | set(self.computed)

    @cached_property
    def scopes(self) -> list[Scope]:
        """Return the program, and the bodies of functions that are called once for all observations."""
        found = [Scope(self.program.evaluated, self.over)]
        seen: set[str] = set()
        for scope in found:
            for statement, call in scope.calls():
                for function in self.program.functions:
                    if function.name != call.name or function.body is None or function.name in seen:
                        continue
                    seen.add(function.name)
                    passed = zip(function.arguments, call.arguments, strict=False)
                    over = {one.name for one, argument in passed if names(argument) & scope.over}
                    found.append(Scope(function.body, over, self.text(statement)))
        return found

    @cached_property
    def recursions(self) -> list[tuple[Scope, Recursion]]:
        """Return values computed from previous ones and from parameters, in loops over all observations."""
        parameters = {one.name for one in self.program.parameters.declarations}
        return [
            (scope, one)
            for scope in self.scopes
            for loop in scope.loops
            for one in recursions(loop)
            if names(loop.lower, loop.upper) & scope.lengths
            and (scope.caller or one.variable in self.steps.reached(parameters))
        ]

    @property
    def steps(self) -> Steps:
        """Return the simple statements of the program."""
        return Steps.of(self.program)

    @property
    def densities(self) -> Iterator[tuple[Statement, Density]]:
        """Yield the statements that add a density, with the first that each adds."""
        for one in walk(self.program.evaluated):
            if density := _density(one):
                yield one, density

    def text(self, statement: Statement) -> str:
        """Return the text of a statement."""
        return self.program.text(statement.span)

    def _sized(self, one: Declaration) -> bool:
        return self.size in names(*one.all_dims)


@dataclass(frozen=True)
class Scope:
    """Statements that run once for all observations."""

    statements: Sequence[Statement]
    over: set[str]
    """Names whose length, or value, is the number of observations."""
    caller: str = ""
    """The program's statement that calls the function with this body, if any."""

    @cached_property
    def lengths(self) -> set[str]:
        """Return names that mark, in a loop's bounds, a loop over all observations."""
        found = set(self.over)
        for one in walk(self.statements):
            if isinstance(one, Declaration) and one.base == "int" and names(*one.computes) & found:
                found.add(one.name)
        return found

    @property
    def outside(self) -> Iterator[Statement]:
        """Yield statements outside loops, and the loops."""
        return (one for one, around in placed(self.statements) if not any(isinstance(other, Loop) for other in around))

    @property
    def loops(self) -> Iterator[For]:
        """Yield loops that are in no other."""
        return (one for one in self.outside if isinstance(one, For))

    def calls(self) -> Iterator[tuple[Statement, Call]]:
        """Yield calls outside loops with an argument of all observations."""
        for statement in self.outside:
            if statement.bodies:
                continue
            for call in _calls_of(statement):
                if names(*call.arguments) & self.over:
                    yield statement, call


def _calls_of(statement: Statement) -> list[Call]:
    """Return the calls in a statement; ``y ~ f(x)`` counts as a call of ``f_lpdf`` and ``f_lpmf``."""
    found = calls(statement)
    if isinstance(statement, Tilde):
        first = statement.distribution
        whole = (statement.left, *first.arguments)
        found += [Call(f"{first.name}_{kind}", whole, True) for kind in ("lpdf", "lpmf")]
    return found


def _density(statement: Statement) -> Density | None:
    """Return the first density that a statement adds; None for other statements."""
    first = calls(statement.expression)[:1] if isinstance(statement, Target) else [statement]
    return density_of(*first) if first else None


def _calling(reading: Reading, is_one: Callable[[Call], bool]) -> Iterator[str]:
    """Yield statements with such a call outside loops with an argument of all observations."""
    for scope in reading.scopes:
        yield from (scope.caller or reading.text(one) for one, call in scope.calls() if is_one(call))


def _recurring(reading: Reading, is_one: Callable[[Scope, Recursion], bool] = lambda *_: True) -> Iterator[str]:
    """Yield statements that compute such values from previous ones."""
    for scope, one in reading.recursions:
        if is_one(scope, one):
            yield scope.caller or reading.text(one.statement)


def _gaussian_process(reading: Reading) -> Iterator[str]:
    yield from _calling(
        reading, lambda call: call.name.startswith(_COVARIANCES) and call.name.endswith(("_cov", "_quad"))
    )
    yield from (reading.text(one) for one in reading.computed.values() if one.sizes.count(reading.size) > 1)


def _jointly(reading: Reading, names_of: tuple[str, ...]) -> Iterator[str]:
    """Yield statements that have a vector of all observations in one density whose name starts with one of these."""
    vectors = [
        Name(one.name)
        for one in reading.program.declarations
        if one.dims == (Name(reading.size),) and one.base in ("vector", "row_vector") and not one.array_dims
    ]
    for statement, density in reading.densities:
        if density.name.startswith(names_of) and density.left in vectors:
            yield reading.text(statement)


def _trajectory(reading: Reading) -> Iterator[str]:
    return _calling(reading, lambda call: call.name.startswith(_SOLVERS))


def _hidden_markov(reading: Reading) -> Iterator[str]:
    yield from _calling(reading, lambda call: call.name == "hmm_marginal")
    yield from _recurring(reading, lambda _, one: any(call.name == "log_sum_exp" for call in calls(one.loop)))


def _garch(reading: Reading) -> Iterator[str]:
    outcomes, scales, _ = _places(reading)
    follows = reading.steps.reached(outcomes & (reading.observed | reading.computed.keys()))

    def is_one(scope: Scope, one: Recursion) -> bool:
        of_outcomes = not scope.caller and one.variable in follows
        return of_outcomes and bool(reading.steps.reached({one.variable}) & scales)

    return _recurring(reading, is_one)


def _arma(reading: Reading) -> Iterator[str]:
    outcomes, _, locations = _places(reading)

    def is_one(scope: Scope, one: Recursion) -> bool:
        is_error = not scope.caller and _is_error(reading, one, outcomes)
        return is_error and bool(reading.steps.reached({one.variable}) & (outcomes | locations))

    return _recurring(reading, is_one)


def _is_error(reading: Reading, one: Recursion, outcomes: set[str]) -> bool:
    """Return whether a recursion computes an observation minus something, where either is an outcome of a density."""
    terms = list(summands(one.statement.expression))
    added = {name_of(term) for sign, term in terms if sign > 0} & reading.observed
    is_difference = one.statement.operator == "=" and any(sign < 0 for sign, _ in terms)
    return is_difference and bool(added and outcomes & (added | {one.variable}))


def _places(reading: Reading) -> tuple[set[str], set[str], set[str]]:
    """Return names in the outcomes of densities, in their scales alone, and in their other arguments."""
    outcomes, locations, scales = set[str](), set[str](), set[str]()
    for _, density in reading.densities:
        n_others = len(density.arguments) - (density.name in _SCALED)
        outcomes |= names(density.left)
        locations |= names(*density.arguments[:n_others])
        scales |= names(*density.arguments[n_others:])
    return outcomes, scales - outcomes - locations, locations


def _state_space(reading: Reading) -> Iterator[str]:
    latent = set(reading.latent)
    follows = reading.steps.reached(latent)
    yield from (reading.text(one.statement) for _, one in reading.recursions if one.variable in follows)
    for statement, density in reading.densities:
        if name_of(density.left) in latent & names(*density.arguments):
            yield reading.text(statement)
    for scope in reading.scopes:
        for statement, call in scope.calls():
            if call.name == "cumulative_sum" and names(*call.arguments[:1]) & latent:
                yield reading.text(statement)


def _spatial(reading: Reading) -> Iterator[str]:
    joint = list(_jointly(reading, ("multi_normal_prec",)))
    for statement in walk(reading.program.evaluated):
        if isinstance(statement, Target | Tilde) and names(statement) & reading.latent.keys():
            is_joint = reading.text(statement) in joint or any("car_" in call.name for call in _calls_of(statement))
            if is_joint or any(len(indices) > 1 for indices in _gathered(statement, reading).values()):
                yield reading.text(statement)


def _gathered(statement: Statement, reading: Reading) -> dict[str, set[Expression]]:
    """Return, by parameter, the data that index it: ``phi[from]`` and ``phi[to]``."""
    found: dict[str, set[Expression]] = {}
    known = {one.name for one in reading.program.data_declarations if one.array_dims} - reading.observed
    for read in find(Subscript, [statement]):
        name = name_of(read.base)
        if name in reading.latent and name_of(read.indices[0]) in known:
            found.setdefault(name, set()).add(read.indices[0])
    return found


def _risk_sets(reading: Reading) -> Iterator[str]:
    def accumulates(call: Call) -> bool:
        inside = {one.name for one in calls(*call.arguments[:1])}
        return call.name == "cumulative_logsumexp" or (call.name == "cumulative_sum" and "exp" in inside)

    def is_running(_: Scope, one: Recursion) -> bool:
        sums = [call.arguments for call in calls(one.statement.expression) if call.name == "log_sum_exp"]
        return any(len(given) == 2 and Name(one.variable) in given for given in sums)

    yield from _calling(reading, accumulates)
    for loop in find(For, reading.program.evaluated):
        if reading.size in names(loop.upper):
            yield from (reading.text(one) for one in walk(loop.body) if _is_risk_set(reading, loop, one))
    yield from _recurring(reading, is_running)


def _is_risk_set(reading: Reading, loop: For, statement: Statement) -> bool:
    """Return whether a statement in a loop over observations adds up all that are at risk later, or were before."""
    i, n, first = Name(loop.variable), Name(reading.size), Literal("1")
    ends = (Slice(i, n), Slice(i, None), Slice(first, i), Slice(None, i))
    if isinstance(statement, For):
        summed = [one.expression for one in statement.body if isinstance(one, Assign)]
        return Slice(statement.lower, statement.upper) in ends and any(call.name == "exp" for call in calls(*summed))
    sums = [call for call in calls(statement) if call.name in ("log_sum_exp", "sum")] if not statement.bodies else []
    return any(one in ends for call in sums for one in find(Slice, call.arguments[:1]))


def _change_point(reading: Reading) -> Iterator[str]:
    """Yield the log sum over all observations of a variable to which a loop adds densities."""
    weighed = {
        name
        for one in find(Assign, [loop for loop in walk(reading.program.evaluated) if isinstance(loop, For)])
        if any(map(density_of, calls(one.expression)))
        for name in one.variables
    } & set(reading.computed)
    return _calling(
        reading,
        lambda call: call.name == "log_sum_exp" and len(call.arguments) == 1 and name_of(call.arguments[0]) in weighed,
    )


def _summary(reading: Reading) -> Iterator[str]:
    """Yield densities of summaries, if no other statement reads the observations."""
    found = observations_in(reading.program, reading.size)
    summarised = [
        density and any(call.name in SUMMARIES and names(call) & reading.observed for call in calls(density.left))
        for density in map(_density, found)
    ]
    return (reading.text(one) for one in found if all(summarised))


def _latent(reading: Reading) -> Iterator[str]:
    return (reading.text(one) for one in reading.latent.values())


STRUCTURES = (
    Structure("a model with risk sets (Cox partial likelihood)", "each term sums over everyone at risk", _risk_sets),
    Structure(
        "a spatial model (CAR)",
        "each observation has its own effect, which depends on its neighbours' effects",
        _spatial,
    ),
    Structure("a Gaussian process", "its covariance couples all observations", _gaussian_process),
    Structure(
        "a multivariate normal or t with a covariance of all observations",
        "each observation depends on all others",
        partial(_jointly, names_of=_MULTIVARIATE),
    ),
    Structure("a differential equation", "all observations belong to one trajectory", _trajectory),
    Structure("a hidden Markov model", "each state depends on the one before it", _hidden_markov),
    Structure("a state-space model", "each observation has a state, which depends on the one before it", _state_space),
    Structure("a GARCH model", "each variance is computed from the one before it", _garch),
    Structure("an ARMA model", "each error is computed from the one before it", _arma),
    Structure("a marginalised change point", "each possible change point involves all observations", _change_point),
    Structure("a density of a summary of the data", "the summary combines all observations", _summary),
    Structure("a recursion over all observations", "each value is computed from the one before it", _recurring),
    Structure(
        "a model with a parameter for each observation", "the parameters depend on which observations are used", _latent
    ),
)
