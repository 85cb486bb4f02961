"""Risk against time: error of posterior means after a given time, for several error levels.

After Korattikara, Chen and Welling (2014, section 3 and figures 2, 3 and 5): looser tests take more steps in the same
time, which lowers the variance of a mean, and change the stationary distribution, which biases it.
"""

from __future__ import annotations

import json
import math
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stansub import clock
from stansub.acceptance.decide import make_decider
from stansub.acceptance.rules import Exact, StoppingRule
from stansub.diagnostics.risk_config import REFERENCES, RiskConfig
from stansub.diagnostics.risk_curves import MIN_REPEATS
from stansub.diagnostics.risk_functions import Functions
from stansub.diagnostics.risk_result import Risk, curves, label, losses, settings
from stansub.diagnostics.risk_runs import Key, Run, RunQueue, Trajectory
from stansub.diagnostics.risk_truth import MAX_R_HAT, Truth, check_same, make_truth
from stansub.errors import DrawsWarning, InputError, InterruptError, RunError, StansubError
from stansub.memory import reason
from stansub.output import files, inference_data
from stansub.output.inference_data import InferenceData
from stansub.run import executors, inits
from stansub.run.facts import facts as facts_of
from stansub.run.inits import Inits
from stansub.run.option import taking
from stansub.run.posteriors import make_posterior
from stansub.run.progress import Display, stage_progress
from stansub.run.sample import sample
from stansub.stan.compilation import CompiledModel
from stansub.stan.data.sources import DataLike
from stansub.stan.posterior import Posterior
from stansub.stan.proof import Near
from stansub.types import FloatArray
from stansub.wording import duration, percent

# Share of the truth's error in the lowest risk from which a note is added.
_LARGE_FLOOR = 0.3
# Exact chains that replace NUTS as the truth: number of chains, steps of each, draws kept of each.
_EXACT_CHAINS, _EXACT_STEPS, _EXACT_KEPT = 4, (5_000, 400_000), 10_000


@taking(RiskConfig)
def risk(model: str | Path | CompiledModel | Posterior, data: DataLike | None, config: RiskConfig) -> Risk:
    """Run each error level several times and estimate the risk of the posterior means along the runs.

    All settings run under equal conditions: one random walk with the covariance of the reference draws, one order of
    the data, and in every repeat the same start and seed. Nothing is adapted while time is measured.

    Parameters
    ----------
    model, data
        As in `stansub.sample`.
    {options}

    Returns
    -------
    Risk
        Data frames and facts.

    Raises
    ------
    InputError
        If the program, the data, the reference or an option cannot be used.
    RunError
        If too few runs finish.
    """
    reference = config.reference
    given = reference if reference is None or isinstance(reference, str | Path) else "given draws"
    stored = _stored(reference)
    looser = next((rule for rule in config.rules.values() if not rule.exact), Exact())
    with stage_progress(config.display) as log:
        posterior, _ = make_posterior(
            model,
            data,
            block_size=config.block_size
            or (lambda _, n, instances: looser.block_size(n, instances=instances, variates=False)),
            seed=config.root_seed,
            observations=config.observations,
            near=_near(config, stored, str(given)),
            log=log,
        )
        about = _about(posterior, looser)
        functions = Functions(posterior, config.quantities)
        if stored is not None:
            check_same(stored, about, str(given))
    if stored is None:
        stored, given = _made(str(given or "nuts"), posterior, config)
    return _run(config, posterior, functions, (stored, str(given)), about)


def _run(
    config: RiskConfig,
    posterior: Posterior,
    functions: Functions,
    reference: tuple[InferenceData, str],
    about: Mapping[str, Any],
) -> Risk:
    """Run the experiment with this reference (draws and their source); ``about`` are facts about the posterior."""
    stored, source = reference
    rules, display = config.rules, config.display
    with stage_progress(display) as log:
        log("Computing the truth from the reference draws")
        truth = make_truth(stored, posterior, functions, source=source, seed=config.streams())
        starts = _starts(posterior, truth, config)
    if display.show:
        display.line(_announced(config))
    courses, failures, stopped = _run_all(config, posterior, truth, functions, starts)
    kept = _kept(courses, failures, stopped, rules)
    left_out = [epsilon for epsilon in rules if epsilon not in kept]
    notes = tuple(_notes(truth, failures, stopped, left_out))
    facts = {**about, **config.facts(), "stopped": stopped}
    return _found(kept, rules, truth, posterior.blocks.n_observations, facts, notes)


def _kept(
    courses: Mapping[Key, Trajectory], failures: Mapping[Key, Exception], stopped: str, levels: Iterable[float]
) -> dict[float, dict[int, Trajectory]]:
    """Return the records of each level by repeat, for levels with enough of them.

    Raises
    ------
    RunError
        If every level has too few; InterruptError if the user stopped them.
    """
    kept = {
        epsilon: {key[1]: course for key, course in sorted(courses.items()) if key[0] == place}
        for place, epsilon in enumerate(levels)
    }
    kept = {epsilon: runs for epsilon, runs in kept.items() if len(runs) >= MIN_REPEATS}
    if not kept:
        reason = _too_few(failures, stopped, len(courses))
        raise InterruptError(reason) if stopped and not failures else RunError(reason)
    return kept


def _found(
    kept: Mapping[float, Mapping[int, Trajectory]],
    rules: Mapping[float, StoppingRule],
    truth: Truth,
    n_observations: int,
    facts: Mapping[str, Any],
    notes: tuple[str, ...],
) -> Risk:
    """Return the frames of the kept runs, with the facts of the truth."""
    of_truth = {
        "truth": truth.source,
        "truth_r_hat": truth.r_hat,
        "truth_ess": truth.ess,
        "floor": {what: target.floor for what, target in truth.targets.items()},
    }
    found = Risk(
        curves=curves(kept, truth),
        settings=settings(kept, rules, n_observations),
        losses=losses(kept, truth, facts["budget_axis"]),
        facts={**facts, **of_truth},
        notes=notes,
    )
    return replace(found, notes=(*notes, *_unresolved(found)))


def write(found: Risk, path: str | Path) -> None:
    """Write all figures as JSON.

    Raises
    ------
    RunError
        If the file cannot be written; the figures are then in another file, which the message names.
    """
    content = json.dumps(found.to_dict(), indent=1).encode()
    try:
        files.write(path, content, overwrite=True)
    except StansubError as error:
        place = files.save_elsewhere(Path(path).name, lambda other: files.write(other, content))
        raise RunError(f"{error}; the figures were saved to {place} instead") from error


def parse_epsilons(text: str) -> tuple[float, ...]:
    """Return error levels as written on the command line, separated by commas.

    Raises
    ------
    InputError
        If one of them is not a number.
    """
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"`epsilon={text}`: give numbers separated by commas, such as 0,0.01,0.05") from error


def _stored(reference: InferenceData | str | Path | None) -> InferenceData | None:
    """Return the draws that were passed, or read from a file; None if they are to be made."""
    if reference is None or (isinstance(reference, str) and reference in REFERENCES):
        return None
    return inference_data.read(reference, foreign=True) if isinstance(reference, str | Path) else reference


def _near(config: RiskConfig, stored: InferenceData | None, source: str) -> Near | None:
    """Return where the log density should be finite: near the inits, or near the draws of a stored reference."""
    if (about := inits.near_inits(config.inits, config.repeats)) is not None or stored is None:
        return about
    return inits.near_draws(stored, source)


def _about(posterior: Posterior, rule: StoppingRule) -> dict[str, Any]:
    facts = facts_of(posterior, rule, "")
    names = ("model", "model_hash", "data_hash", "n_observations", "n_blocks", "block_size")
    return {**{name: facts[name] for name in names}, "versions": json.loads(facts["versions"])}


def _made(how: str, posterior: Posterior, config: RiskConfig) -> tuple[InferenceData, str]:
    """Return reference draws and their source."""
    if how == "nuts":
        from stansub.nuts.reference import Program, reference

        program = Program(posterior.name, posterior.program.code)
        made = reference(
            program,
            posterior.values.values,
            parallel_chains=min(4, config.parallel),
            seed=config.root_seed,
            show_progress=config.show_progress,
            console=config.display.console,
        )
        engine = inference_data.attrs(made)
        return made, f"NUTS ({engine['engine']} {engine['engine_version']})"
    steps = _exact_steps(posterior, config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DrawsWarning)  # the truth's own R-hat and ESS are part of the result
        made = sample(
            posterior,
            chains=_EXACT_CHAINS,
            parallel_chains=min(_EXACT_CHAINS, config.parallel),
            test="exact",
            iter_sampling=steps,
            thin=max(1, steps // _EXACT_KEPT),
            audit=0.0,
            inits=_exact_inits(config),
            seed=config.root_seed,
            generated_quantities=False,
            show_progress=config.show_progress,
            console=config.display.console,
        )
    if str(made.attrs["stopped"]).startswith("interrupted"):
        raise InterruptError("the reference chains were interrupted: there are no results")
    return made, "exact Metropolis-Hastings"


def _exact_inits(config: RiskConfig) -> Inits | None:
    """Return the inits of the exact chains: those of the repeats in turn, if each has its own."""
    given = config.inits
    if given is None or isinstance(given, str | Path | Mapping | float | int):
        return given
    return [given[chain % len(given)] for chain in range(_EXACT_CHAINS)]


def _exact_steps(posterior: Posterior, config: RiskConfig) -> int:
    """Return the steps of each exact chain, such that all take about twice the time of one setting's repeats."""
    budget, steps = config.budget, config.budget.steps
    if math.isfinite(budget.seconds):
        evaluator, theta = posterior.population.evaluator(), np.zeros(posterior.dim)
        began = clock.computed()
        evaluator.block_log_lik(theta)
        steps = min(steps, int(budget.seconds / max(clock.computed() - began, 1e-9)))
    return int(np.clip(2 * config.repeats * steps // _EXACT_CHAINS, *_EXACT_STEPS))


def _starts(posterior: Posterior, truth: Truth, config: RiskConfig) -> list[FloatArray]:
    """Return the starting values of each repeat."""
    generators = [config.generator(repeat, 0) for repeat in range(config.repeats)]
    if config.inits is None:
        return [truth.draws[rng.integers(len(truth.draws))] for rng in generators]
    places = inits.load(config.inits, config.repeats)
    return [
        inits.start(posterior, init, rng, chain=repeat)
        for repeat, (init, rng) in enumerate(zip(places, generators, strict=True))
    ]


def _announced(config: RiskConfig) -> str:
    """Return a description of the planned work, with its time if known."""
    n, budget, parallel = len(config.rules) * config.repeats, config.budget, config.parallel
    if not math.isfinite(budget.seconds):
        return f"{n} runs of {budget.steps:,} steps, {min(parallel, n)} at once"
    total = duration(math.ceil(n / parallel) * budget.seconds)
    return f"{n} runs of {budget.seconds:g} s, {min(parallel, n)} at once: about {total}"


def _run_all(
    config: RiskConfig, posterior: Posterior, truth: Truth, functions: Functions, starts: Sequence[FloatArray]
) -> tuple[dict[Key, Trajectory], dict[Key, Exception], str]:
    """Return records and failures by (index of the setting, repeat), and why the runs ended early, if they did."""
    stop, rules, display = np.zeros(1, dtype=np.int32), list(config.rules.values()), config.display

    def make(place: int, repeat: int) -> Run:
        decider = make_decider(posterior.population.evaluator(), posterior.blocks.sizes, rules[place])
        decider.reset(np.ascontiguousarray(starts[repeat]))
        return Run(
            decider,
            truth.proposal,
            functions,
            truth.centre,
            budget=config.budget,
            audit=config.audit,
            rng=config.generator(repeat, 1),
            audit_rng=config.generator(repeat, 2),
            quantity_rng=functions.generator(config.streams(repeat, 3)),
            n_observations=posterior.blocks.n_observations,
            stop=stop,
        )

    # Repeats run one after the other over all settings, so that settings have similar numbers whenever the runs stop.
    keys = [(place, repeat) for repeat in range(len(starts)) for place in range(len(rules))]
    queue: deque[tuple[Key, Callable[[], Run]]] = deque((key, partial(make, *key)) for key in keys)
    courses: dict[Key, Trajectory] = {}
    failures: dict[Key, Exception] = {}
    lanes = [RunQueue(queue, courses, failures) for _ in range(min(config.parallel, len(keys)))]

    def done() -> float:
        running = [lane.run for lane in lanes]
        return len(courses) + len(failures) + sum(run.share_done for run in running if run is not None)

    with _progress(len(keys), done, display) as watch:
        outcome = executors.run(
            [executors.Local(lane) for lane in lanes],
            parallel=len(lanes),
            stop=stop,
            watch=watch,
            on_interrupt=lambda: display.console.print(
                "Stopping. Finished runs will be shown; press Ctrl-C again to discard them."
            ),
        )
    return courses, failures, outcome.stopped


@contextmanager
def _progress(n_runs: int, done: Callable[[], float], display: Display) -> Iterator[Callable[[], None]]:
    """Display a bar over all runs; yields a function to call periodically."""
    if not display.show:
        yield lambda: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=display.console, refresh_per_second=2) as bar:
        task = bar.add_task("", total=n_runs)

        def watch() -> None:
            now = done()
            bar.update(task, completed=now, description=f"{int(now)} of {n_runs} runs")

        yield watch


def _notes(truth: Truth, failures: Mapping[Key, Exception], stopped: str, left_out: Sequence[float]) -> Iterator[str]:
    if truth.r_hat > MAX_R_HAT:
        yield (f"the truth itself cannot be trusted: its largest R-hat is {truth.r_hat:.3f}; give a longer reference")
    if stopped:
        yield "interrupted: only finished runs are shown"
    if failures:
        yield f"{len(failures)} runs failed and are excluded ({reason(next(iter(failures.values())))})"
    if left_out:
        those = ", ".join(f"{epsilon:g}" for epsilon in left_out)
        yield f"epsilon {those} is excluded: fewer than {MIN_REPEATS} of its runs finished"


def _unresolved(found: Risk) -> Iterator[str]:
    for what, floor in found.facts["floor"].items():
        lowest = found.losses[found.losses["what"] == what].groupby("epsilon")["loss"].mean().min()
        if floor > _LARGE_FLOOR * lowest:
            yield (
                f"{label(what)}: the error of the truth is {percent(floor / lowest)} of the lowest risk, so the best "
                "settings cannot be distinguished; give a reference with more draws"
            )


def _too_few(failures: Mapping[Key, Exception], stopped: str, finished: int) -> str:
    if failures:
        return f"{len(failures)} runs failed ({reason(next(iter(failures.values())))})"
    return f"{stopped} after {finished} finished runs: no setting has {MIN_REPEATS} of them, so there are no results"
