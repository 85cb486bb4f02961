"""The likelihood in its own arguments: log p(theta) = G(theta) + L(phi(theta)).

phi are the quantities that the likelihood's statements read and that do not belong to one observation: parameters,
transformed parameters and variables of the model block. Positive ones are read by their logarithm and probabilities by
their logit, so `exp` or `inv_logit` of a linear predictor becomes that predictor again. Two programs are derived from
the user's. The likelihood's program has phi as parameters and only the likelihood in its model. The likelihood is often
affine in phi where it is not in theta, as with effects that are a scale times a standard normal. The other program has
everything else, the map to phi, and a function of phi with data as coefficients instead of the likelihood. Stan then
differentiates the map, and a surrogate of the posterior needs no data.

The text only suggests the split; that the two together are the user's log density is proved numerically.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass

from stansub.stan.approximation import ADDED, CALL, DATA, FUNCTION, PHI, SIZE
from stansub.stan.observations.densities import SPECS
from stansub.stan.passes.rewrite import silenced
from stansub.stan.passes.rewriting import checked
from stansub.stan.reading.dependence import Step, Steps, needed, text_of
from stansub.stan.reading.sizes import of_observations, size_candidates
from stansub.stan.scales import FIXED, without_scales
from stansub.stan.syntax import (
    Assign,
    Bound,
    Call,
    Declaration,
    Expression,
    Infix,
    Literal,
    Name,
    Prefix,
    Program,
    SizedType,
    Statement,
    Transpose,
    density_of,
    factors_of,
    find,
    name_of,
    names,
    summands,
    writes,
)
from stansub.target.remainders import NoPredictorsError

_ORDERED = "ordered"
_LOWER, _UPPER = Bound("lower", Literal("0")), Bound("upper", Literal("1"))
_NUMBERS = (Literal, Prefix, Name)
# Functions whose values have these bounds.
_RANGES = {
    **dict.fromkeys(("exp", "inv_square", "square", "inv_sqrt", "sqrt", "log1p_exp"), (_LOWER,)),
    "inv_logit": (_LOWER, _UPPER),
}


@dataclass(frozen=True)
class LikelihoodSplit:
    """A program in two parts."""

    arguments: tuple[Declaration, ...]
    """phi, in order, as parameters of the likelihood's program: positive ones by their logarithm, probabilities by
    their logit, ordered ones by the first and the logarithms of differences.
    """
    likelihood: Program
    """Only the likelihood."""
    surrogate: str
    """Code of the program with an approximation of the likelihood; phi is its generated quantity."""
    declarations: tuple[Declaration, ...]
    """The user's data that it needs."""


def split_likelihood(program: Program, *sizes: str) -> LikelihoodSplit:
    """Return the program in two parts, given integers that count the observations.

    If the likelihood reads a local variable with another size, this is assumed to count them, too: brms's models with
    several outcomes have a size for each.

    Raises `NoPredictorsError` if the text shows no such split.
    """
    program = silenced(program)
    steps = Steps.of(program)
    reading = _Reading.of(program, steps, sizes)
    inside = [step for step in steps.evaluated if reading.of_observations(step)]
    adding = [step for step in steps.model if step.has_effects and reading.of_observations(step)]
    if not adding:
        raise NoPredictorsError("no statement of the model adds a term that depends on observations")
    kept = needed([step for step in steps.evaluated if reading.in_likelihood(step)], adding)
    written = frozenset().union(*(step.writes for step in kept))
    free = frozenset().union(*(step.reads for step in kept)) - written
    more = reading.other_sizes(written)
    if more := more & size_candidates(program).keys() - program.sizes_of_parameters - set(sizes):
        return split_likelihood(program, *sizes, *sorted(more))
    linear = frozenset[str]().union(*(_linear(step.statement, steps.sources.keys()) for step in kept))
    arguments = tuple(reading.argument(key, linear) for key in reading.in_order(free))
    if not arguments:
        raise NoPredictorsError("the likelihood reads no parameters")
    likelihood = checked(_likelihood(program, arguments, kept), "likelihood")
    if likelihood is None:
        raise NoPredictorsError("the likelihood alone is not a valid program")
    rest = [step for step in steps.evaluated if step not in inside]
    declarations, transformed = _data_of(program, steps, rest)
    phi = _phi(arguments, without_scales([step.statement for step in kept], arguments))
    surrogate = _surrogate(program, arguments, phi, declarations, transformed, rest)
    return LikelihoodSplit(arguments, likelihood, surrogate, declarations)


@dataclass(frozen=True)
class _Reading:
    """Dependences of statements."""

    observed: Set[str]
    changing: Set[str]
    """Variables that depend on observations, and on parameters."""
    declared: Mapping[str, Declaration]
    """Parameters, transformed parameters, and variables of the model block, by key."""
    local: Mapping[str, Declaration]
    """Variables declared inside branches and loops, likewise."""
    writers: Mapping[str, Collection[Statement]]
    """The statements that write a variable, by key."""
    numbers: frozenset[str]
    """Numbers in the data."""

    @classmethod
    def of(cls, program: Program, steps: Steps, sizes: Sequence[str]) -> _Reading:
        if found := set(sizes) & program.sizes_of_parameters:
            raise NoPredictorsError(f"the number of parameters grows with the observations ({min(found)})")
        declared, local = {one.name: one for one in program.parameters.declarations}, dict[str, Declaration]()
        blocks = (program.transformed_parameters, program.model)
        top = {(one.name, one.span) for block in blocks for one in block.declarations}
        for step in steps.evaluated:
            if isinstance(one := step.statement, Declaration):
                (declared if (one.name, one.span) in top else local).update(dict.fromkeys(step.writes, one))
        observed = of_observations(program, *sizes).keys()
        writers: dict[str, list[Statement]] = {}
        for step in steps.evaluated:
            for name in step.writes:
                writers.setdefault(name, []).append(step.statement)
        numbers = frozenset(one.name for one in program.data.declarations if not (one.all_dims or one.type.elements))
        return cls(observed, steps.changing, declared, local, writers, numbers)

    def of_observations(self, step: Step) -> bool:
        return bool(step.uses & self.observed)

    def in_likelihood(self, step: Step) -> bool:
        """Return whether a statement that the likelihood needs is computed with it: others write its arguments.

        Not only what depends on observations, but also constants such as ``real disc = 1``, and variables inside
        branches and loops, which cannot be read outside.
        """
        is_constant = not (step.has_effects or step.uses & self.changing)
        return self.of_observations(step) or is_constant or not step.writes.isdisjoint(self.local)

    def other_sizes(self, keys: Collection[str]) -> set[str]:
        """Return names in the sizes of local variables that depend on parameters, but not on observations."""
        found = (self.local[key] for key in keys if key in self.local and key in self.changing - self.observed)
        return names(*(dim for one in found for dim in one.all_dims))

    def in_order(self, keys: Collection[str]) -> list[str]:
        """Return the variables that depend on parameters, in the order of their declarations."""
        return [key for key in self.declared if key in keys and key in self.changing]

    def argument(self, key: str, linear: Collection[str]) -> Declaration:
        """Return a variable as a parameter of the likelihood's program; ``linear`` ones have no link.

        Variables with a literal as lower limit keep their link, because they are scales far more often than
        coefficients.
        """
        one, bounds = self.declared[key], self.declared[key].type.bounds
        plain = one.name in linear and ([bound.kind for bound in bounds] != ["lower"] or names(*bounds))
        free = one.type.plain
        if free.base not in ("real", "vector", "row_vector", "matrix"):
            raise NoPredictorsError(f"the likelihood reads {one.name}, whose type {one.type} is not supported")
        kept = bounds or self._range(key)
        kept = kept if _link(kept) is not None and names(*kept) <= self.numbers and not plain else ()
        base = one.base if one.base == _ORDERED else free.base
        return Declaration(SizedType(free.array_dims, base, (), kept, free.dims), one.name)

    def _range(self, key: str) -> tuple[Bound, ...]:
        """Return the bounds of everything written to a variable, if the text shows them."""
        ranges = {_range(one) for one in self.writers.get(key, ()) if not isinstance(one, Declaration) or one.computes}
        return ranges.pop() if len(ranges) == 1 else ()


def _link(bounds: tuple[Bound, ...]) -> str | None:
    """Return how an argument with these bounds is read; None if it is read without them."""
    match bounds:
        case ():
            return "{}"
        case (Bound("lower", Literal("0")),):
            return "log({})"
        case (Bound("lower", Literal(least) | Name(least)),):
            return f"log({{}} - {least})"
        case (Bound("lower", Literal("0")), Bound("upper", Literal("1"))):
            return "logit({})"
        case (Bound("lower", low), Bound("upper", high)) if isinstance(low, _NUMBERS) and isinstance(high, _NUMBERS):
            return f"logit(({{}} - ({low})) / ({high} - ({low})))"
    return None


def _range(statement: Statement) -> tuple[Bound, ...]:
    """Return the bounds of what a statement writes."""
    value = statement.computes[-1] if isinstance(statement, Declaration | Assign) else None
    replaces = not isinstance(statement, Assign) or statement.operator == "="
    return _RANGES.get(value.name, ()) if isinstance(value, Call) and replaces else ()


def _linear(statement: Statement, changing: Set[str]) -> set[str]:
    """Return variables that a statement uses as coefficients or predictors, for which a link would not be affine.

    They are added to terms that do not contain them (the share in ``z + (1 - z) * p`` is not a coefficient), or are an
    argument that a density uses unchanged. ``changing`` variables depend on parameters: a product of two of them, such
    as discrimination and ability, is not affine with or without a link.
    """
    sums = [[term for _, term in summands(one)] for one in find(Infix, [statement]) if one.operator in ("+", "-")]
    if isinstance(statement, Assign) and statement.operator in ("+=", "-="):
        sums.append([statement.place, statement.expression])
    found = set[str]()
    for terms in sums:
        for k, term in enumerate(terms):
            others = [names(one) for place, one in enumerate(terms) if place != k and names(one)]
            found |= {name for name in _factors(term, changing) if any(name not in one for one in others)}
    for density in filter(None, map(density_of, statement.inner())):
        if density.name.endswith("_glm"):
            found |= names(*density.arguments)
        elif density.name in SPECS:
            linked = zip(SPECS[density.name].links, density.arguments, strict=False)
            as_it_is = (one for link, one in linked if link.words == "{}" and not link.is_known)
            found = found.union(*(_factors(one, changing) for one in as_it_is))
    return found


def _factors(expression: Expression, changing: Set[str]) -> set[str]:
    """Return variables that are factors of an expression, unless it is a product of two changing ones."""
    found = [one.expression for one in factors_of(expression)]
    if sum(not names(one).isdisjoint(changing) for one in found) > 1:
        return set()
    match found:
        case [Prefix(_, inside) | Transpose(inside)]:
            return _factors(inside, changing)
        case [one]:
            return {name} if (name := name_of(one)) else set()
    return set[str]().union(*(_factors(one, changing) for one in found))


def _likelihood(program: Program, arguments: Sequence[Declaration], kept: Sequence[Step]) -> str:
    transformed, model = program.transformed_parameters.statements, program.model.statements
    return program.with_blocks(
        parameters="\n".join(f"  {one.type} {one.name};" for one in arguments),
        transformed_parameters=text_of(transformed, kept) or None,
        model=text_of(model, kept),
        generated_quantities=None,
    )


def _data_of(program: Program, steps: Steps, rest: Sequence[Step]) -> tuple[tuple[Declaration, ...], Sequence[Step]]:
    """Return the data that some statements need, and how transformed data among them are made."""
    read = names(program.parameters).union(*(step.reads for step in rest))
    # Declarations and their conditions read sizes, too.
    sizes = (*program.parameters.declarations, *program.transformed_parameters.declarations)
    read |= names(*(one.type for one in sizes))
    made = needed(steps.data, [step for step in steps.data if writes(step.statement) & read])
    read |= names(*(step.statement for step in made))
    declared = program.data.declarations
    for one in reversed(declared):  # sizes are declared before what they size
        if one.name in read:
            read |= names(one.type)
    return tuple(one for one in declared if one.name in read), made


def _surrogate(
    program: Program,
    arguments: Sequence[Declaration],
    phi: str,
    declarations: Sequence[Declaration],
    transformed_data: Sequence[Step],
    kept: Sequence[Step],
) -> str:
    locals_ = {one.name for one in program.model.declarations} & {one.name for one in arguments}
    switch = [f"  int {FIXED};"] if FIXED in phi else []
    data = [*(f"  {one.type} {one.name};" for one in declarations), DATA, *switch]
    model = [
        text_of(program.model.statements, kept),
        f"if ({ADDED}) {{\n{phi}",
        f"target += {CALL};",
        "}",
    ]
    quantities = [
        f"  vector[{SIZE}] {PHI}_now;",
        "  {",
        text_of(program.model.statements, [step for step in kept if not step.has_effects]) if locals_ else "",
        phi,
        f"{PHI}_now = {PHI};",
        "  }",
    ]
    return program.with_blocks(
        functions_block=f"{program.text(program.functions_block.inside)}\n{FUNCTION}",
        data="\n".join(data),
        transformed_data=text_of(program.transformed_data.statements, transformed_data) or None,
        transformed_parameters=text_of(program.transformed_parameters.statements, kept) or None,
        model="\n".join(model),
        generated_quantities="\n".join(quantities),
    )


def _unconstrained(one: Declaration, value: str) -> str:
    """Return Stan code of an element of phi as in the likelihood's program, without its constraint."""
    if one.base == _ORDERED:
        n = one.type.dims[0].within(6)
        return f"append_row({value}[1:1], log({value}[2 : {n}] - {value}[1 : {n} - 1]))"
    return str(_link(one.type.bounds)).format(value)


def _phi(arguments: Sequence[Declaration], written: Mapping[str, str]) -> str:
    """Return Stan code that declares phi; some arguments are written otherwise than by their links."""
    lines = [f"vector[{SIZE}] {PHI};", "{", "int stansub_at = 0;"]
    for one in arguments:
        depth = len(one.type.array_dims)
        index = [f"stansub_i{k}" for k in range(depth)]
        value = one.name + (f"[{', '.join(index)}]" if index else "")
        value = written.get(one.name) or _unconstrained(one, value)
        vector = f"rep_vector({value}, 1)" if one.type.base == "real" else f"to_vector({value})"
        body = [
            "{",
            f"vector[num_elements({vector})] stansub_value = {vector};",
            f"{PHI}[stansub_at + 1 : stansub_at + num_elements(stansub_value)] = stansub_value;",
            "stansub_at += num_elements(stansub_value);",
            "}",
        ]
        for k in reversed(range(depth)):
            body = [f"for ({index[k]} in 1 : {one.type.array_dims[k]}) {{", *body, "}"]
        lines += body
    return "\n".join([*lines, "}"])
