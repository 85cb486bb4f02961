"""`stansub check`: what is taken as likelihood and as global part, and whether the program can be subsampled."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.text import Text

from stansub.acceptance.ranges import DERIVATIVES
from stansub.output.layout import Layout
from stansub.run.choices import choose_test
from stansub.run.progress import stage_progress
from stansub.stan import data as data_module
from stansub.stan import source as source_module
from stansub.stan.advice import obstacles
from stansub.stan.compiled import compile_model
from stansub.stan.instances import Instances
from stansub.stan.posterior import Posterior, draw_points
from stansub.stan.ranges import LIPSCHITZ
from stansub.stan.recognise import Form, find_line, observations_in, recognise
from stansub.stan.rewritten import Rewritten
from stansub.stan.sizes import main_size
from stansub.stan.syntax import Declaration, Other, Program, Statement, Target, Tilde, calls, walk

_FORMS = {
    "log_lik_i": "a loop over log_lik_i",
    "reduce_sum": "a reduce_sum call",
    "sum": "a likelihood that must be a sum over observations",
}
_LABEL = 14

# A global part is reported that takes so many seconds, and as long as so many blocks or, where each block evaluates it
# again, such a share of a block.
_SLOW, _MANY_BLOCKS, _LARGE_SHARE = 50e-6, 10, 0.5


class _Costs(NamedTuple):
    """Seconds that the global part takes, and one block; whether every block evaluates the global part again."""

    shared: float
    block: float
    repeated: bool


def report(
    stan_file: Path, data: Path | None, *, observations: str | None, console: Console, progress: Console
) -> None:
    """Print what was recognised and, given data, prove it numerically.

    Raises
    ------
    InputError
        When the program cannot be read or, with data, does not qualify.
    """
    read = source_module.read(stan_file)
    _, source, program = read
    form = recognise(program)
    posterior = None
    if data is not None:
        # Errors in the data come before the minute that a compilation takes.
        values = data_module.read(data, program.data.declarations)
        with stage_progress(progress, show=True) as log:
            posterior = compile_model(read, progress=log).with_data(
                values, block_size=_block_size, observations=observations, progress=log
            )
    costs = _measure(posterior) if posterior is not None else None
    for label, text in _lines(program, form, source, observations, posterior, costs):
        console.print(Text(f"{label:<{_LABEL}}{text}"), soft_wrap=True)
    for warning in _warnings(program, form, source, observations, costs):
        console.print(Text(f"Warning: {warning}", style="yellow"), soft_wrap=True)
    if posterior is None:
        command = f"stansub check {stan_file} DATA.json"
        console.print(Text(f"Give data too to have this proved numerically: {command}"), soft_wrap=True)


def _block_size(n: int, instances: bool) -> int:
    test = choose_test(None, epsilon=None, delta=None, looks=None, first_look=None)
    return test.block_size(n, instances=instances, variates=False)


def _lines(
    program: Program,
    form: Form,
    source: str,
    observations: str | None,
    posterior: Posterior | None,
    costs: _Costs | None,
) -> Iterator[tuple[str, str]]:
    yield "Program", f"read as {_FORMS[form.kind]}"
    likelihood, size = _likelihood(program, form, observations, posterior)
    yield from _statements("Likelihood", program, likelihood, source)
    rest = [statement for statement in _terms(program) if statement not in likelihood]
    yield from _statements("Global part", program, rest, source)
    functions = {function.name for function in program.functions}
    bounds = [name for name in (LIPSCHITZ, "log_lik_range", *DERIVATIVES.values()) if name in functions]
    if bounds:
        yield "Range", f"{', '.join(bounds)}: for the concentration bounds"
    if posterior is None or costs is None:
        yield "Observations", f"{form.n or size or 'not found'}"
        for parameter in program.parameters.declarations:
            yield "Parameter", _declared(parameter)
        return
    blocks = posterior.blocks
    yield "Observations", f"{blocks.n_observations:,} ({form.n or ', '.join(posterior.counts)})"
    unconstrained = Layout.from_names(posterior.full.param_unc_names()).shapes
    constrained = Layout.from_names(posterior.full.param_names()).shapes
    for parameter in program.parameters.declarations:
        inner, outer = (math.prod(shapes.get(parameter.name, (0,))) for shapes in (constrained, unconstrained))
        sizes = _count(inner, "value") + ("" if inner == outer else f", {outer:,} unconstrained")
        yield "Parameter", f"{_declared(parameter)}: {sizes}"
    yield "", f"{_count(posterior.dim, 'unconstrained parameter')} together"
    yield "Evaluator", _evaluator(posterior)
    order = "shuffled" if posterior.order is not None else "in their original order (the log density depends on it)"
    yield "Blocks", f"{len(blocks):,} of {_count(blocks.size, 'observation')}, {order}"
    again = ", in which the global part is evaluated again" if costs.repeated else ""
    yield "Cost", f"global part {_duration(costs.shared)}, a block {_duration(costs.block)}{again}"
    yield (
        "Proof",
        f"the program's own log density equals global part plus blocks at {posterior.proof.points} points, "
        f"relative difference {posterior.proof.error:.0e}",
    )


def _likelihood(
    program: Program, form: Form, observations: str | None, posterior: Posterior | None
) -> tuple[list[Statement], str]:
    """Statements of the likelihood, and the size variable it runs over where it is known by name."""
    if form.kind != "sum":
        inside = [
            statement
            for statement in walk(program.model.statements)
            if form.span.start <= statement.span.start and statement.span.end <= form.span.end
        ]
        return [statement for statement in inside if statement in _terms(program)] or inside, ""
    sizes = posterior.counts if posterior is not None else (observations or main_size(program),)
    found = [statement for size in sizes if size for statement in observations_in(program, size)]
    return sorted(dict.fromkeys(found), key=lambda statement: statement.span), sizes[0]


def _terms(program: Program) -> list[Statement]:
    """Statements of the model block that add to the target."""
    return [
        statement
        for statement in walk(program.model.statements)
        if isinstance(statement, Target | Tilde)
        or (isinstance(statement, Other) and any(call.name.endswith("_lp") for call in calls(statement.text)))
    ]


def _statements(label: str, program: Program, statements: list[Statement], source: str) -> Iterator[tuple[str, str]]:
    for statement in statements:
        text = program.text(statement.span)
        line = find_line(source, text)
        yield label, f"{f'line {line}: ' if line else ''}{' '.join(text.split())}"
    if not statements:
        yield label, "none"


def _warnings(
    program: Program, form: Form, source: str, observations: str | None, costs: _Costs | None
) -> Iterator[str]:
    remarks = list(form.warnings)
    if form.kind == "sum" and costs is None:
        remarks += obstacles(program, observations or main_size(program))
    for remark in dict.fromkeys(remarks):
        yield remark.located(source)
    if costs is None or costs.shared < _SLOW:
        return
    share = costs.shared / costs.block
    if costs.repeated and share > _LARGE_SHARE:
        yield (
            f"every block evaluates the global part again, which takes {min(share, 1):.0%} of its time: take larger "
            "blocks (`block_size`)"
        )
    elif not costs.repeated and share > _MANY_BLOCKS:
        yield (
            f"the global part takes as long as {share:,.0f} blocks, at every step: look for what it computes from all "
            "observations"
        )


def _measure(posterior: Posterior) -> _Costs:
    theta = draw_points(np.random.default_rng(0), posterior.full, n_points=1)[0]
    evaluator, some = posterior.population.evaluator(), np.arange(min(len(posterior.blocks), 50), dtype=np.int32)
    shared = _seconds(lambda: evaluator.global_log_density(theta))
    together = _seconds(lambda: evaluator.block_log_lik(theta, some))
    repeated = isinstance(posterior.population, Instances) and not posterior.population.alone
    return _Costs(shared, max((together - shared) / len(some), 1e-9), repeated)


def _seconds(action: Callable[[], object], tries: int = 5) -> float:
    best = math.inf
    for _ in range(tries):
        began = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - began)
    return best


def _duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def _declared(parameter: Declaration) -> str:
    outer = f"array[{', '.join(parameter.array_dims)}] " if parameter.array_dims else ""
    constraint = f"<{parameter.constraint}>" if parameter.constraint else ""
    inner = f"[{', '.join(parameter.dims)}]" if parameter.dims else ""
    return f"{outer}{parameter.base}{constraint}{inner} {parameter.name}"


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"


def _evaluator(posterior: Posterior) -> str:
    if isinstance(posterior.population, Rewritten):
        return "the program rewritten so that its likelihood runs over chosen blocks"
    if isinstance(posterior.population, Instances) and posterior.population.alone:
        return "one instance of the program's likelihood a block"
    return "one instance of the program a block"
