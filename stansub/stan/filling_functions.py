"""Functions of a program that assign values at listed places, written in place of their calls.

``merged = merge_missing(gone, x, guess);`` hides from `stansub.stan.scatter` that the function assigns ``guess`` at the
places that ``gone`` lists. In the program written here, the statements of the function assign to ``merged`` itself. The
log density is that of the user's program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from stansub.stan.rewriting import Edits, Pass, Symbols
from stansub.stan.syntax import (
    Assign,
    Call,
    Declaration,
    Expression,
    For,
    ForEach,
    Function,
    Literal,
    Name,
    Node,
    Program,
    Return,
    Statement,
    Subscript,
    changed,
    find,
    flat,
    names,
    printed,
    unlooped,
)

_SIZES = ("num_elements", "size", "rows")
# Functions that keep the number of elements of a vector.
_SAME_SIZE = ("to_vector", "to_row_vector", "to_array_1d")


@Pass.named("functions that assign at listed indices, in place")
def filled_in_place(program: Program) -> Edits | None:
    """Replace assigned calls of functions that assign values at listed places by their statements."""
    counts = Counter(one.name for one in program.functions)
    functions = {one.name: one for one in program.functions if counts[one.name] == 1}
    sizes, symbols, found = {one.name: one.all_dims for one in program.declarations}, Symbols.of(program), []
    for statement, _ in unlooped(program.evaluated):
        match statement:
            case Assign(Name(variable), "=", Call(name, arguments)) if name in functions:
                head = ""
            case Declaration(name=variable, value=Call(name, arguments)) if name in functions:
                head = str(replace(statement, value=None))
            case _:
                continue
        body = _statements(functions[name], arguments, Name(variable), sizes, symbols)
        if body and variable not in names(*arguments):
            found.append((statement.span, f"{head}\n{printed(body)}"))
    return Edits([], found) if found else None


def _statements(
    function: Function,
    arguments: tuple[Expression, ...],
    variable: Name,
    sizes: Mapping[str, tuple[Expression, ...]],
    symbols: Symbols,
) -> list[Statement]:
    """Return the statements of a function, which assign what it returns to a variable.

    Empty if it does anything else, or assigns at no listed place.
    """
    *body, last = function.body or (None,)
    if len(arguments) != len(function.arguments) or not isinstance(last, Return) or list(find(Return, body)):
        return []
    local = last.value.name if isinstance(last.value, Name) else ""
    if not any(isinstance(one, Declaration) and one.name == local for one in body):
        return []
    given: dict[str, Expression] = {one.name: value for one, value in zip(function.arguments, arguments, strict=True)}
    given[local] = variable
    loops = {one.variable: symbols.fresh(f"stansub_{one.variable}") for one in find(For, body)}

    def value(node: Node) -> Node | None:
        match node:
            case Call(name, (Expression() as of,)) if name in _SIZES and (size := _size(changed(of, value), sizes)):
                return size
            case Subscript(Call("dims", (Expression() as of,)), (Literal("1"),)):
                return _size(changed(of, value), sizes)
            case Name(name):
                return Name(loops[name]) if name in loops else given.get(name)
            case For(variable=own) if own in loops:
                return changed(replace(node, variable=loops[own]), value)
        return None

    found: list[Statement] = []
    for one in body:
        if not isinstance(one, Declaration):
            found.append(changed(one, value))
        elif one.name == local:
            found += [] if one.value is None else [Assign(variable, "=", changed(one.value, value))]
        elif one.value is not None and one.base == "int" and not one.all_dims:
            given[one.name] = changed(one.value, value)
        else:
            return []
    assigned = list(find(Assign, found))
    is_listing = any(isinstance(index, Subscript) for one in assigned for index in flat(one.place)[1])
    is_alone = {one.variables for one in assigned} == {(variable.name,)}
    return found if is_listing and is_alone and not [*find(Declaration, found), *find(ForEach, found)] else []


def _size(node: Expression, sizes: Mapping[str, tuple[Expression, ...]]) -> Expression | None:
    """Return the number of elements of a vector or an array as declared; None if it is not known."""
    match node:
        case Call(name, (Expression() as inner,)) if name in _SAME_SIZE:
            return _size(inner, sizes)
        case Name(name) if len(sizes.get(name, ())) == 1:
            return sizes[name][0]
    return None
