"""`stansub check`: the likelihood and global part of a program, and whether it can be subsampled."""

from __future__ import annotations

import math
import timeit
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.text import Text

from stansub import clock
from stansub.acceptance.ranges import DERIVATIVES
from stansub.errors import InputError
from stansub.output import files
from stansub.output.layout import Layout
from stansub.progress import Progress
from stansub.run.config import STEPS, SampleConfig
from stansub.run.decisions import choose_test
from stansub.run.inits import Inits, near_inits
from stansub.run.prepare import mode_request, with_seed
from stansub.run.progress import Display, stage_progress
from stansub.run.transitions import MANY
from stansub.stan import source as source_module
from stansub.stan.analysis import Analysis, Hints
from stansub.stan.data.sources import DataLike
from stansub.stan.effects import with_prior
from stansub.stan.instances import Instances
from stansub.stan.passes.series.rows import N_ROWS
from stansub.stan.plan import plan, plan_transitions
from stansub.stan.posterior import Posterior
from stansub.stan.ranges import LIPSCHITZ
from stansub.stan.reading.remarks import find_line
from stansub.stan.reading.sizes import adds, observations_in, outcome_sizes
from stansub.stan.source import Source
from stansub.stan.sparse import follow_likelihood
from stansub.stan.syntax import Program, Statement, walk
from stansub.stan.toolchain import stanc
from stansub.stan.verdict import Examination, examine
from stansub.target.levels import multiplies
from stansub.target.remainders import NoPredictorsError
from stansub.target.sparse import SparsePredictors
from stansub.tuning.mode_tuner import few_evaluations, foreseen_at_mode
from stansub.tuning.modes.climbing import NoModeError
from stansub.wording import percent

_LABEL = 14
# The observations, if they are not rows.
_CELLS = "cells of a table"

# A global part is reported if it takes this many seconds, and as long as this many blocks or, if each block evaluates
# it again, this share of a block.
_SLOW, _MANY_BLOCKS, _LARGE_SHARE = 50e-6, 10, 0.5
# Maximum number of stanc's warnings that are shown.
_MOST_WARNINGS = 10


class _Costs(NamedTuple):
    """Seconds of the global part and of one block, and whether every block evaluates the global part again."""

    shared: float
    block: float
    repeated: bool


def report(
    stan_file: Path,
    data: DataLike | None,
    *,
    observations: str | None,
    inits: Inits | None = None,
    console: Console,
    progress: Console | None = None,
    write: Path | None = None,
    overwrite: bool = False,
    verbose: bool = False,
) -> int:
    """Print a verdict and what was recognised; with data, prove the cut numerically near the inits.

    The exit code that is returned is 0 if the program qualifies or was written, `errors.MAY_QUALIFY`, or that of an
    `InputError`.

    Parameters
    ----------
    console, progress : Console
        For the report, and for progress, if it is to be shown.
    write : Path, optional
        File for the program in current syntax, if it has arrays, comments or assignments in old syntax.
    verbose : bool
        Whether to say which programs are compiled.

    Raises
    ------
    InputError
        If program or data cannot be read, or the file cannot be written.
    """
    try:
        read = source_module.read(stan_file)
    except source_module.OldSyntaxError as error:
        if write is None:
            raise
        files.write(write, error.code.encode(), overwrite=overwrite)
        console.print(Text(f"Written: {write}, in current syntax. Check this file next."), soft_wrap=True)
        return 0
    about = near_inits(inits, 1)
    with stage_progress(Display(progress or console, progress is not None and data is not None)) as log:
        found = examine(read, data, observations=observations, block_size=_block_size, near=about, progress=log)
        surrogate = _surrogate(read.analysis, observations or "", found.posterior, log)
        exact = list(_exact(found.posterior, surrogate, log)) if found.posterior is not None else []
    verdict = found.verdict()
    console.print(Text(str(verdict), style="bold"), soft_wrap=True)
    costs = _measure(found.posterior) if found.posterior is not None else None
    lines = [*_refusal(found), *_origins(found), *_lines(read, found, observations, costs, exact)]
    for label, text in (
        *lines,
        *(() if verdict.code == InputError.exit_code else _proposals(surrogate, found.posterior)),
        *(_inside(read, observations, surrogate.hints) if verbose else ()),
        *_of_stanc(Path(stan_file), read, _likelihood(read.analysis, observations, found.posterior)[0]),
    ):
        console.print(Text(f"{label:<{_LABEL}}{text}"), soft_wrap=True)
    for warning in _warnings(found, costs):
        console.print(Text(f"Warning: {warning}", style="yellow"), soft_wrap=True)
    if write is not None:
        console.print(Text("Nothing written: the program is in current syntax."), soft_wrap=True)
    if data is None and read.analysis.has_likelihood:
        told = f"For a numerical proof, add data: stansub check {stan_file} DATA.json"
        console.print(Text(told), soft_wrap=True)
    return verdict.code


def _refusal(found: Examination) -> Iterator[tuple[str, str]]:
    """Yield why a program does not qualify, and what would."""
    if found.posterior is not None:
        return
    if found.structure is not None:
        line = find_line(found.source.text, found.structure.evidence)
        yield "Shown by", f"{f'line {line}: ' if line else ''}{found.structure.evidence}"
    if found.reason:
        yield "Reason", found.reason
    for remark in found.source.analysis.rewriting.refusals if found.structure or found.reason or found.doubts else ():
        yield "Not rewritten", remark.located(found.source.text)


def _origins(found: Examination) -> Iterator[tuple[str, str]]:
    """Yield the sources of data variables without a value."""
    if found.values is not None:
        yield from (("Data", f"{name}: {text}") for name, text in found.values.origins.texts.items())


def _block_size(n: int, instances: bool) -> int:
    test = choose_test(None, epsilon=None, delta=None, looks=None, first_look=None)
    return test.block_size(n, instances=instances, variates=False)


def _lines(
    read: Source,
    found: Examination,
    observations: str | None,
    costs: _Costs | None,
    exact: Sequence[tuple[str, str]],
) -> Iterator[tuple[str, str]]:
    program, source, posterior = read.program, read.text, found.posterior
    yield from (("Rewritten", name) for name in read.analysis.rewriting.passes)
    likelihood, size = _likelihood(read.analysis, observations, posterior)
    yield from _statements("Likelihood", program, likelihood, source)
    rest = [statement for statement in _terms(program) if statement not in likelihood]
    yield from _statements("Global part", program, rest, source)
    own = (LIPSCHITZ, "log_lik_range", *DERIVATIVES.values())
    bounds = [name for name in own if name in read.analysis.functions]
    if bounds:
        yield "Range", f"from {', '.join(bounds)}, for the concentration bounds"
    if posterior is None or costs is None:
        yield "Observations", (_CELLS if read.analysis.table else size) or "not found"
        for parameter in program.parameters.declarations:
            yield "Parameter", f"{parameter.type} {parameter.name}"
        return
    blocks = posterior.blocks
    yield "Observations", f"{blocks.n_observations:,} ({', '.join(posterior.counts) or _CELLS})"
    unconstrained = Layout.from_names(posterior.full.param_unc_names()).shapes
    constrained = Layout.from_names(posterior.full.param_names()).shapes
    for parameter in program.parameters.declarations:
        inner, outer = (math.prod(shapes.get(parameter.name, (0,))) for shapes in (constrained, unconstrained))
        sizes = _count(inner, "value") + ("" if inner == outer else f", {outer:,} unconstrained")
        yield "Parameter", f"{parameter.type} {parameter.name}: {sizes}"
    yield "", f"{_count(posterior.dim, 'unconstrained parameter')} in total"
    yield "Evaluator", _evaluator(posterior)
    order = "shuffled" if posterior.order is not None else "in their original order (the log density depends on it)"
    yield "Blocks", f"{len(blocks):,} of {_count(blocks.size, 'observation')}, {order}"
    again = ", including the global part, which every block evaluates again" if costs.repeated else ""
    yield "Cost", f"global part {_duration(costs.shared)}, a block {_duration(costs.block)}{again}"
    yield (
        "Proof",
        f"the sum of global part and blocks equals the program's log density at {posterior.proof.points} points "
        f"(relative difference {posterior.proof.error:.0e})",
    )
    yield from exact


class _Surrogate(NamedTuple):
    """What the text suggests about moves, what surrogate transitions need, or why there are none."""

    hints: Hints
    predictors: SparsePredictors | None = None
    refusal: NoPredictorsError | None = None

    @property
    def exact(self) -> str:
        """Return in words for which moves decisions are exact."""
        assert self.predictors is not None
        moves = "Metropolis within Gibbs" if self.hints.multiplies else "surrogate transitions"
        return f"yes, for {moves} ({_count(len(self.predictors.rows), 'argument')} per observation)"

    @property
    def exceptions(self) -> str:
        """Return in words for which posteriors with few parameters other moves are used."""
        if self.predictors is None:
            return "is nearly normal or has several modes"
        return "is nearly normal" if self.predictors.family.is_known else "has several modes"


def _surrogate(analysis: Analysis, size: str, posterior: Posterior | None, log: Progress) -> _Surrogate:
    hints = analysis.hints(size)
    if posterior is not None and posterior.dim <= MANY:
        hints = hints._replace(selected=())
    if not hints.suits_any(many=True):
        return _Surrogate(hints)
    try:
        analysis.likelihood_split(size)
        if posterior is None:
            return _Surrogate(hints)
        # A program that is not split over rows of data is split as it stands, with the user's data.
        values = posterior.values if analysis.over_rows is None else posterior.known
        if not values.values.keys() >= set(analysis.over_data(size)[1]):
            return _Surrogate(hints)
        alone = posterior.observations is not None
        _, found = follow_likelihood(analysis, values, size, alone=alone, progress=log)
        return _Surrogate(hints._replace(multiplies=multiplies(found)), found)
    except NoPredictorsError as error:
        return _Surrogate(Hints(hints.effects), refusal=error)


def _picked(posterior: Posterior, surrogate: _Surrogate, log: Progress) -> float | None:
    """Return about how many observations decisions by bounds on a program of one observation pick, if they are used.

    Bounds on known families are narrow enough.
    """
    if surrogate.hints.suits_any(many=True):
        return None
    try:
        if posterior.predictors(log).family.is_known:
            return None
        config = with_seed(SampleConfig().of_length(transitions=False), 0)
        return foreseen_at_mode(posterior, mode_request(config, None), log)
    except (NoPredictorsError, NoModeError):
        return None


def _exact(posterior: Posterior, surrogate: _Surrogate, log: Progress) -> Iterator[tuple[str, str]]:
    """Yield whether decisions can be exact, or why not and what follows."""
    if surrogate.predictors is not None and posterior.dim > MANY:
        yield "Exact", surrogate.exact
        return
    picked, n = _picked(posterior, surrogate, log), posterior.blocks.n_observations
    few = few_evaluations(SampleConfig().chains * sum(STEPS), n)
    try:
        predictors = posterior.predictors(log)
    except NoPredictorsError as error:
        if surrogate.predictors is not None:
            yield "Exact", surrogate.exact
        elif few:
            yield "Exact", f"yes, from all observations, which are few; with more, no: {error}"
        else:
            yield "Exact", f"no: {error}"
            yield "", "a test on some of the observations is approximate; `test=exact` uses all of them"
        return
    arguments = f"({_count(len(predictors.design), 'argument')} per observation)"
    if picked is None or picked <= n:
        yield "Exact", f"yes {arguments}"
        return
    wide = f"bounds on the likelihood {arguments} are so wide that a decision by them would evaluate all {n:,}"
    if few:
        yield "Exact", f"yes, from all observations, which are few; {wide}"
    else:
        approximate = "a test on some of them is approximate, and used if it makes more draws"
        yield "Exact", f"only from all observations: {wide}; {approximate}"


def _proposals(surrogate: _Surrogate, posterior: Posterior | None) -> Iterator[tuple[str, str]]:
    """Yield the proposals that `sample` uses if none is named."""
    hints, effects, others = surrogate.hints, surrogate.hints.effects, "around the mode, or an adaptive random walk"
    if hints.multiplies:
        if_many = f" with more than {MANY} parameters" if posterior is None else ""
        yield (
            "Proposals",
            f"Metropolis within Gibbs{if_many}, because the likelihood multiplies coefficients of two groupings; "
            "surrogate transitions if these are not normal given the other parameters",
        )
        return
    if not effects and hints.adds_logarithms:
        unless = "they hardly move, or there are few parameters and several modes"
        yield (
            "Proposals",
            f"surrogate transitions, because the likelihood adds up logarithms of probabilities, unless {unless}",
        )
        return
    if not effects and not hints.selected:
        yield "Proposals", others
        return
    if not effects:
        few_read = "surrogate transitions, because an observation reads few of the parameters, unless they hardly move"
        yield "Proposals", few_read if posterior else f"{others}; with more than {MANY} parameters, {few_read}"
        return
    are = f"{', '.join(effects)} {'is an effect' if len(effects) == 1 else 'are effects'} with an unknown scale"
    if surrogate.refusal is not None:
        yield "Proposals", f"{others}; {are}, but surrogate transitions are not possible: {surrogate.refusal}"
        return
    few = posterior is None or posterior.dim <= MANY
    if_few = f"there are at most {MANY} parameters and " if posterior is None else ""
    unless = f", unless {if_few}the posterior {surrogate.exceptions}" if few else ""
    yield "Proposals", f"surrogate transitions, because {are}{unless}"


def _inside(read: Source, observations: str | None, hints: Hints) -> Iterator[tuple[str, str]]:
    """Yield what each term depends on, and which programs are compiled."""
    for term in read.analysis.terms(observations or ""):
        line = find_line(read.text, read.program.text(term.statement.span))
        yield "Depends on", f"{f'line {line}: ' if line else ''}{term.reach.words}"
    size, transitions = observations or "", dict[str, str]()
    if hints.suits_any(many=True):
        with suppress(NoPredictorsError):
            transitions = plan_transitions(read.analysis, size).reasons
    for role, why in transitions.items():
        yield "Compiled", f"{role}: {why}"
    for role, why in plan(read.analysis).reasons.items():
        if role not in transitions:
            yield "Compiled", f"{role}: {why}{'; for other proposals' if transitions else ''}"


def _likelihood(
    analysis: Analysis, observations: str | None, posterior: Posterior | None
) -> tuple[list[Statement], str]:
    """Return the statements of the likelihood, and its size variable if known by name."""
    sizes = (posterior and posterior.counts) or _by_text(analysis, observations)
    # Rows may have a computed size, such as N_obs + N_mis, which data of their values have not.
    counting = (*sizes, analysis.size) if posterior and posterior.counts and N_ROWS in posterior.sizes else sizes
    found = [statement for size in counting if size for statement in observations_in(analysis.program, size)]
    return sorted(dict.fromkeys(found), key=lambda statement: statement.span), sizes[0]


def _by_text(analysis: Analysis, observations: str | None) -> tuple[str, ...]:
    """Return possible counts of observations: outcomes' sizes that size no parameters, the likeliest first."""
    if observations:
        return (observations,)
    program = analysis.program
    return tuple(dict.fromkeys([analysis.size, *sorted(set(outcome_sizes(program)) - program.sizes_of_parameters)]))


def _terms(program: Program) -> list[Statement]:
    """Return the statements of the model block that add to the target."""
    return [statement for statement in walk(program.model.statements) if adds(statement)]


def _statements(label: str, program: Program, statements: list[Statement], source: str) -> Iterator[tuple[str, str]]:
    for statement in statements:
        text = program.text(statement.span)
        line = find_line(source, text)
        yield label, f"{f'line {line}: ' if line else ''}{' '.join(text.split())}"
    if not statements:
        yield label, "none"


def _warnings(found: Examination, costs: _Costs | None) -> Iterator[str]:
    doubts = found.doubts if found.posterior is None else ()
    for remark in dict.fromkeys(doubts):
        yield remark.located(found.source.text)
    if found.posterior is not None and found.posterior.dim >= (n := found.posterior.blocks.n_observations):
        yield (
            f"{found.posterior.dim:,} parameters for {n:,} observations: subsets of so few save nothing; use NUTS "
            "(`stansub reference`)"
        )
    if costs is None or costs.shared < _SLOW:
        return
    share = costs.shared / costs.block
    if costs.repeated and share > _LARGE_SHARE:
        yield (
            f"every block evaluates the global part again, which takes {percent(min(share, 1))} of its time: use "
            "larger blocks (`block_size`)"
        )
    elif not costs.repeated and share > _MANY_BLOCKS:
        source, counts = found.source, found.posterior.counts if found.posterior is not None else ()
        left_out = [one.located(source.text) for one in source.analysis.left_out(counts)]
        yield (
            f"every step evaluates the global part, which takes as long as {share:,.0f} blocks: "
            f"{'; '.join(left_out) or 'check whether it computes something from all observations'}"
        )


def _of_stanc(stan_file: Path, read: Source, likelihood: list[Statement]) -> Iterator[tuple[str, str]]:
    """Yield stanc's warnings, which the compilation of a program does not show."""
    found = stanc.warnings_of(stan_file, pedantic=True, with_prior=with_prior(read.program, likelihood))
    yield from (("Stanc warns", text) for text in found[:_MOST_WARNINGS])
    if len(found) > _MOST_WARNINGS:
        yield "", f"{len(found) - _MOST_WARNINGS:,} more warnings"


def _measure(posterior: Posterior) -> _Costs:
    theta, evaluator = posterior.points[0], posterior.population.evaluator()
    some = np.arange(min(len(posterior.blocks), 50), dtype=np.int32)
    shared = _seconds(lambda: evaluator.global_log_density(theta))
    together = _seconds(lambda: evaluator.block_log_lik(theta, some))
    repeated = isinstance(posterior.population, Instances) and not posterior.population.alone
    return _Costs(shared, max((together - shared) / len(some), 1e-9), repeated)


def _seconds(action: Callable[[], object], tries: int = 5) -> float:
    return min(timeit.repeat(action, timer=clock.now, number=1, repeat=tries))


def _duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"


def _evaluator(posterior: Posterior) -> str:
    if isinstance(posterior.population, Instances) and posterior.population.alone:
        return "one instance of the program's likelihood per block"
    return "one instance of the program per block"
