"""Summaries of data within the model, such as ``x - mean(x)``, computed once from all the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stansub.stan.rewrite import extended
from stansub.stan.rewriting import Added, Pass, Refused, Symbols
from stansub.stan.sizes import SUMMARIES, data_declarations, main_size, observations_in
from stansub.stan.syntax import Call, Expression, Node, Program, Span, names, parse, walk


@Pass.named("summaries of data in transformed data")
def with_summaries(program: Program) -> Added | Refused | None:
    """Compute summaries of data in ``transformed data`` instead of the model.

    Refused if nothing else is left of the observations.
    """
    found: dict[Call, str] = {}
    symbols = Symbols.of(program)
    replacements: list[tuple[Span, str]] = []
    known = {one.name: one.all_dims for one in data_declarations(program)}
    for block in (program.transformed_parameters, program.model):
        for call in _outermost(block, known):
            if call not in found:
                found[call] = symbols.fresh("stansub_summary")
            replacements.append((call.span, found[call]))
    if not found:
        return None
    added = Added([f"real {name} = {call};" for call, name in found.items()], replacements)
    written = parse(extended(program, *added))
    if observations_in(written, main_size(written)):
        return added
    # A likelihood of nothing but sums of the data is already a sum of these over parts.
    return Refused(f"reads the observations only through `{next(iter(found))}`", _adding(program, replacements))


def _outermost(node: Node, known: Mapping[str, Sequence[Expression]]) -> Iterator[Call]:
    """Yield summaries of nothing but data, none inside another."""
    if isinstance(node, Call) and node.name in SUMMARIES:
        used = names(node)
        if used <= set(known) and any(known[name] for name in used):
            yield node
            return
    for part in node.parts:
        yield from _outermost(part, known)


def _adding(program: Program, replacements: Sequence[tuple[Span, str]]) -> Span:
    """Return the statement that contains the first replacement."""
    first = replacements[0][0]
    return [one.span for one in walk(program.evaluated) if one.span.contains(first)][-1]
