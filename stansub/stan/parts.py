"""A program with all parts of a sum likelihood: the part without observations, and each sum over observations.

It is derived from the user's program. Transformed data become data, whose values come from all observations
(`stansub.stan.transformed_data`). Statements of the model block that add to the target are in groups, by the sizes of
the data that they depend on, each with what it needs and a switch. The text only suggests that groups over one size are
a sum over its rows and that all groups together are the user's log density; cutting the data proves this numerically.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from stansub.stan.passes.rewrite import in_one_slice, silenced, without_continue
from stansub.stan.passes.series.rows import N_ROWS
from stansub.stan.reading.dependence import Step, Steps, needed, plain_names, text_of, together
from stansub.stan.reading.sizes import of_observations
from stansub.stan.syntax import (
    Assign,
    Declaration,
    Expression,
    For,
    Jump,
    Name,
    Program,
    Subscript,
    calls,
    find,
    names,
    parse,
    walk,
)
from stansub.stan.transformed_data import exporting, is_copied

SWITCHES = "stansub_parts"


@dataclass(frozen=True)
class Parts:
    """The derived program."""

    program: Program
    code: str
    declarations: tuple[Declaration, ...]
    """Its data block without switches: the user's data and transformed data that it needs."""
    computed: tuple[Declaration, ...]
    """Those that are transformed data."""
    exporting: str
    """A program that returns these; empty if there are none."""
    sizes: tuple[str, ...]
    """Integers that may count observations: they size data that some group depends on, and no parameters."""
    groups: tuple[frozenset[str], ...]
    """For each switch, the members of ``sizes`` on which its statements depend."""

    @cached_property
    def with_all_data(self) -> Program:
        """Return the user's program with transformed data as data, and without generated quantities."""
        data = "\n".join(f"  {one.type.plain} {one.name};" for one in self.declarations)
        return parse(self.program.with_blocks(data=data, transformed_data=None, generated_quantities=None))


def divide(program: Program) -> Parts | None:
    """Return the program in parts; None if the text shows no way, or no gain.

    There is a gain if there are transformed data, several sums, or parameters of which an observation's term reads only
    some, so that priors cost more than a few observations. Otherwise the whole program suffices.
    """
    program = without_continue(in_one_slice(silenced(program)))
    taken = any(name.startswith(SWITCHES) for name in names(program))
    if taken or any(find(Jump, [program])) or any(call.name == "target" for call in calls(program)):
        return None
    ours, anew = {one.name for one in program.transformed_data.declarations}, _holding_places(program)
    of_rows = plain_names(key for step in anew for key in step.writes)
    declarations = _needed_data(program, plain_names(key for step in anew for key in step.reads))
    given = tuple(one for one in declarations if one.name not in of_rows)
    computed = tuple(one for one in given if one.name in ours)
    if not all(map(is_copied, computed)):
        return None
    sizes = _sizes(program, declarations)
    steps = Steps.of(program)
    depends = of_observations(program, *sizes)
    adding: dict[frozenset[str], list[Step]] = {frozenset(): []}
    for step in steps.model:
        if step.has_effects:
            if step.writes:
                return None
            adding.setdefault(together(depends, step.reads), []).append(step)
    staying = needed(steps.transformed, [step for step in steps.transformed if _stays(step)])
    known = set().union(*(step.writes for step in staying))
    free = [step for step in steps.evaluated if step not in staying]
    kept = {over: needed(free, wanted, known=known) for over, wanted in adding.items()}
    terms = [step for over, group in kept.items() if over for step in group if step in steps.model]
    if not terms or not (computed or _several(kept) or _has_priors(program, declarations, sizes, terms)):
        return None
    used = {step for group in kept.values() for step in group}
    for step in free:  # unneeded statements may still reject
        over = together(depends, step.uses)
        if step not in used and over in kept:
            kept[over] = needed(free, [*kept[over], step], known=known)
    code = _code(program, given, anew, staying, kept.values())
    counting = tuple(size for size in sizes if any(size in over for over in kept))
    handing_out = exporting(program, computed) if computed else ""
    return Parts(program, code, given, computed, handing_out, counting, tuple(kept))


def _needed_data(program: Program, more: Collection[str] = ()) -> tuple[Declaration, ...]:
    """Return data and transformed data that parameters, transformed parameters and model read, and some more."""
    known = [*program.data.declarations, *program.transformed_data.declarations]
    read = set(more) | names(program.parameters, program.transformed_parameters, program.model)
    for one in reversed(known):  # sizes are declared before what they size
        if one.name in read:
            read |= names(*one.type.sized_by)
    return tuple(one for one in known if one.name in read)


def _holding_places(program: Program) -> list[Step]:
    """Return statements of transformed data that list rows (``which[n] = i;`` in a loop over i), to redo for some rows.

    The inverse of a list (``place[which[i]] = i;``) and the place of each row of data are excluded, because they have a
    value for each row.
    """
    arrays = {
        one.name
        for one in program.transformed_data.declarations
        if one.base == "int" and one.array_dims and not one.sizes[0].startswith(N_ROWS)
    }
    listing = {
        one.span
        for loop in walk(program.transformed_data.statements)
        if isinstance(loop, For)
        for one in walk(loop.body)
        if isinstance(one, Assign)
        and arrays.intersection(one.variables)
        and one.expression == Name(loop.variable)
        and not _is_inverse(one, loop)
    }
    steps = Steps.of(program).data
    return needed(steps, [step for step in steps if step.statement.span in listing])


def _is_inverse(one: Assign, loop: For) -> bool:
    """Return whether an assignment in a loop over i is to ``x[i]`` or ``x[list[i]]``, also with more such indices."""
    match one.place:
        case Subscript(Name(), indices):
            return all(_is_entry(index, Name(loop.variable)) for index in indices)
    return False


def _is_entry(index: Expression, i: Name) -> bool:
    """Return whether an index is i, or an entry i of a list."""
    return index == i or (isinstance(index, Subscript) and index.indices[-1:] == (i,))


def _sizes(program: Program, declarations: Sequence[Declaration]) -> tuple[str, ...]:
    """Return integers that are a dimension of data and of no parameters."""
    dims = {dim for one in declarations for dim in one.sizes}
    fixed = names(*(node for one in program.parameters.declarations for node in one.type.sized_by))
    integers = (one.name for one in declarations if one.base == "int" and not one.all_dims)
    return tuple(name for name in integers if name in dims - fixed)


def _several(groups: Collection[frozenset[str]]) -> bool:
    """Return whether there may be sums over different rows."""
    over = [group for group in groups if group]
    return any(not one & other for one in over for other in over)


def _has_priors(
    program: Program, declarations: Sequence[Declaration], sizes: Collection[str], terms: Sequence[Step]
) -> bool:
    """Return whether there are parameters of which the term of an observation reads only some.

    They have a dimension that no data of an observation have, and over which statements of its term do not run.
    """
    alike = {dim for one in declarations if set(one.sizes) & set(sizes) for dim in one.sizes}
    alike |= set().union(*(step.reads for step in terms))
    dims = (names(dim) for one in program.parameters.declarations for dim in one.all_dims)
    return any(dim and not dim & alike for dim in dims)


def _stays(step: Step) -> bool:
    """Return whether a statement stays in transformed parameters: it may reject, or checks its declaration."""
    one = step.statement
    return step.has_effects or (isinstance(one, Declaration) and one.type.is_checked)


def _code(
    program: Program,
    declarations: Sequence[Declaration],
    anew: Sequence[Step],
    staying: Sequence[Step],
    groups: Collection[Sequence[Step]],
) -> str:
    transformed, model = program.transformed_parameters.statements, program.model.statements
    data = [*(f"  {one.type.plain} {one.name};" for one in declarations), f"  array[{len(groups)}] int {SWITCHES};"]
    lines = list[str]()
    for k, group in enumerate(groups, start=1):
        inside = [text_of(block, group) for block in (transformed, model)]
        lines += [f"if ({SWITCHES}[{k}]) {{", *filter(None, inside), "}"]
    return program.with_blocks(
        data="\n".join(data),
        transformed_data=text_of(program.transformed_data.statements, anew) or None,
        transformed_parameters=text_of(transformed, staying) or None,
        model="\n".join(lines),
        generated_quantities=None,
    )
