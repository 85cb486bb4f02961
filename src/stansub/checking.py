"""`stansub check`: what is taken as likelihood and as global part, and whether the program can be subsampled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from stansub.model.compiled import compile_model
from stansub.model.posterior import Posterior
from stansub.output.layout import Layout
from stansub.program import stanc
from stansub.program.recognise import Form, find_line, observations_in, recognise, size_candidates
from stansub.program.syntax import Declaration, Program, Statement, parse, walk
from stansub.sampling.choices import choose_block_size, choose_test

_FORMS = {
    "log_lik_i": "a loop over log_lik_i",
    "reduce_sum": "a reduce_sum call",
    "sum": "a model block whose likelihood is a sum over observations",
}
_LABEL = 14


def report(
    stan_file: Path, data: Path | None, *, observations: str | None, console: Console, progress: Console
) -> None:
    """Print what was recognised and, given data, prove it numerically.

    Raises
    ------
    InputError
        When the program cannot be read or, with data, does not qualify.
    """
    program = parse(stanc.canonical(stan_file))
    form, source = recognise(program), stan_file.read_text()
    posterior = None
    if data is not None:
        with progress.status("Compiling") as status:
            posterior = compile_model(stan_file, progress=status.update).with_data(
                data,
                block_size=lambda n, instances: choose_block_size(
                    choose_test(None, epsilon=None, delta=None, looks=None, first_look=None), n, instances=instances
                ),
                observations=observations,
                progress=status.update,
            )
    for label, text in _lines(program, form, source, observations, posterior):
        console.print(Text(f"{label:<{_LABEL}}{text}"), soft_wrap=True)
    for remark in form.warnings:
        console.print(Text(f"Warning: {remark.located(source)}", style="yellow"), soft_wrap=True)
    if posterior is None:
        console.print(
            Text("Give data too to have this proved numerically: stansub check MODEL.stan DATA.json"), soft_wrap=True
        )


def _lines(
    program: Program, form: Form, source: str, observations: str | None, posterior: Posterior | None
) -> Iterator[tuple[str, str]]:
    yield "Program", f"read as {_FORMS[form.kind]}"
    likelihood, size = _likelihood(program, form, observations, posterior)
    yield from _statements("Likelihood", program, likelihood, source)
    rest = [statement for statement in _leaves(program) if statement not in likelihood]
    yield from _statements("Global part", program, rest, source)
    if posterior is None:
        yield "Observations", f"{form.n or size or 'not found'}"
        for parameter in program.parameters.declarations:
            yield "Parameter", _declared(parameter)
        return
    blocks = posterior.blocks
    counted = form.n or ", ".join(posterior.sizes)
    yield "Observations", f"{blocks.n_observations:,} ({counted})"
    unconstrained = Layout.from_names(posterior.full.param_unc_names()).shapes
    constrained = Layout.from_names(posterior.full.param_names()).shapes
    for parameter in program.parameters.declarations:
        sizes = [_size(shapes.get(parameter.name, (0,))) for shapes in (constrained, unconstrained)]
        yield "Parameter", f"{_declared(parameter)}: {sizes[0]:,} values, {sizes[1]:,} unconstrained"
    yield "Evaluator", _evaluator(posterior)
    order = "shuffled" if posterior.order is not None else "in their original order, which the log density depends on"
    yield "Blocks", f"{len(blocks):,} of {blocks.size} observations, {order}"
    yield (
        "Proof",
        f"the program's own log density equals global part plus blocks at {posterior.proof.points} points, "
        f"relative difference {posterior.proof.error:.0e}",
    )


def _likelihood(
    program: Program, form: Form, observations: str | None, posterior: Posterior | None
) -> tuple[list[Statement], str]:
    """Leaf statements of the likelihood, and the size variable it runs over where that is told by name."""
    if form.kind != "sum":
        inside = [
            statement
            for statement in _leaves(program)
            if form.span.start <= statement.span.start and statement.span.end <= form.span.end
        ]
        return inside, ""
    candidates = [candidate.name for candidate in size_candidates(program)]
    size = posterior.sizes[0] if posterior is not None else observations or (candidates[0] if candidates else "")
    return (observations_in(program, size) if size else []), size


def _leaves(program: Program) -> list[Statement]:
    """Statements of the model block that hold no others, declarations left out."""
    return [
        statement
        for statement in walk(program.model.statements)
        if not hasattr(statement, "body") and not hasattr(statement, "then") and not isinstance(statement, Declaration)
    ]


def _statements(label: str, program: Program, statements: list[Statement], source: str) -> Iterator[tuple[str, str]]:
    for statement in statements:
        text = program.text(statement.span)
        line = find_line(source, text)
        yield label, f"{f'line {line}: ' if line else ''}{' '.join(text.split())}"
    if not statements:
        yield label, "none"


def _declared(parameter: Declaration) -> str:
    outer = f"array[{', '.join(parameter.array_dims)}] " if parameter.array_dims else ""
    constraint = f"<{parameter.constraint}>" if parameter.constraint else ""
    inner = f"[{', '.join(parameter.dims)}]" if parameter.dims else ""
    return f"{outer}{parameter.base}{constraint}{inner} {parameter.name}"


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def _evaluator(posterior: Posterior) -> str:
    if posterior.form.kind != "sum" and type(posterior.population).__name__ == "Rewritten":
        return "the program rewritten so that its likelihood runs over chosen blocks"
    return "one instance of the program a block"
