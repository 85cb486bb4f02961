"""Tall data: effective draws a core-second of the default test, of `pocock` and of NUTS, and agreement with NUTS.

Core-seconds are processor time of this process, all threads together, because wall times depend on what else the
machine does. Compilers are processes of their own and left out. The package's clock is replaced by processor time, so
that limits and the times that a run records are in core-seconds too; chains run one after the other.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
from measure import Row, Subject
from rich.console import Console
from suite.base import StillInWarmup, Task, Unavailable
from suite.figures import parameters, slowest
from suite.nuts import nutpie
from suite.workloads import Workload

import stansub
from stansub import clock
from stansub.errors import DrawsWarning, StansubError, one_line
from stansub.output import inference_data
from stansub.output.inference_data import attrs, group
from stansub.output.layout import by_variable
from stansub.output.record import record_of
from stansub.stan import source

if TYPE_CHECKING:
    from stansub.output.inference_data import InferenceData

# Chains of NUTS: few, so that more of its time goes into draws than into warmup.
_CHAINS = 2
# Runs of stansub by key, with their options. Audits are no part of a decision: sampling without them is faster.
_RUNS: tuple[tuple[str, dict[str, Any]], ...] = (("default", {}), ("pocock", {"test": "pocock", "audit": 0.0}))


class Limits(NamedTuple):
    """Core-seconds at most of a run of stansub, set-up included, and of NUTS."""

    run: float
    nuts: float


def measured(subject: Subject, limits: Limits, seed: int) -> Iterator[Row]:
    """Yield what is found out about a program, part by part."""
    names = [one.name for one in source.read(subject.path).program.parameters.declarations]
    with TemporaryDirectory() as folder, _processor_time():
        data = Path(folder) / f"{subject.name}.json"
        data.write_bytes(orjson.dumps(subject.data, default=np.ndarray.tolist, option=orjson.OPT_SERIALIZE_NUMPY))
        yield {"program": subject.name, "about": subject.about, "load": round(os.getloadavg()[0], 1)}
        draws: InferenceData | None = None
        for key, options in _RUNS:
            row, found = _run(subject, data, names, seed, limits.run, **options)
            draws = draws or found
            yield {key: row}
        row, reference = _nuts(subject, data, names, seed + 1, limits.nuts)
        yield {"nuts": row}
        if draws is not None and reference is not None:
            yield {"agreement": _agreement(draws, reference, names)}


@contextlib.contextmanager
def _processor_time() -> Iterator[None]:
    """Let the package's clock count core-seconds."""
    before, clock.now = clock.now, time.process_time
    try:
        yield
    finally:
        clock.now = before


def _run(
    subject: Subject, data: Path, names: Sequence[str], seed: int, limit: float, **options: Any
) -> tuple[Row, InferenceData | None]:
    """A run of stansub with nothing chosen but its longest time and these options."""
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DrawsWarning)
            found = stansub.sample(
                subject.path,
                data,
                seed=seed,
                parallel_chains=1,
                max_time=limit,
                console=Console(quiet=True),
                **options,
            )
    except StansubError as error:
        return {"failure": one_line(error)}, None
    cores, facts, record = time.process_time() - began, attrs(found), record_of(found)
    ess, name, r_hat = slowest(parameters(group(found, "posterior"), names))
    return {
        "observations": facts["n_observations"],
        "parameters": int(next(iter(group(found, "unconstrained_posterior").values())).shape[-1]),
        "test": facts["test"],
        "guarantee": str(facts["guarantee"]),
        "proposal": str(facts["settings"]["proposal"]),
        "choices": facts["choices"],
        "share": record.share_of_data,
        "accepted": record.acceptance_rate,
        "steps": int(sum(facts["n_steps"])),
        "ess": ess,
        "slowest": name,
        "r_hat": r_hat,
        "sampling_core_s": float(sum(facts["sampling_time"])),
        "core_s": cores,
        "compiling_s": facts["compile_time"],
        "stopped": facts["stopped"],
        "warnings": facts["warnings"],
    }, found


def _nuts(
    subject: Subject, data: Path, names: Sequence[str], seed: int, limit: float
) -> tuple[Row, InferenceData | None]:
    """NUTS until it has its draws or its core-seconds are spent."""
    workload, began = Workload(subject.name, 0, subject.path, lambda path: None), time.process_time()
    task = Task(workload, data, seed, _CHAINS, float("inf"), data.parent, core_seconds=limit)
    try:
        run = nutpie(task)
    except StillInWarmup as error:
        return {"note": str(error), "at_most": error.gradients / (error.core_seconds * error.leapfrog)}, None
    except (Unavailable, RuntimeError) as error:
        return {"failure": one_line(error)}, None
    cores, draws = time.process_time() - began, by_variable(run.draws)
    ess, name, r_hat = slowest(parameters(draws, names))
    n_draws = next(iter(draws.values())).shape[1]
    assert run.gradient_core_s is not None
    sampling = run.gradient_core_s * run.sampling_passes
    return {
        "ess": ess,
        "slowest": name,
        "r_hat": r_hat,
        "sampling_core_s": sampling,
        "core_s": cores,
        "at_most": _CHAINS * n_draws / sampling,
        "note": f"{n_draws:,} draws a chain; {', '.join(run.notes)}",
    }, inference_data.container(inference_data.build(posterior=draws, sample_stats={}, attrs={}))


def _agreement(draws: InferenceData, reference: InferenceData, names: Sequence[str]) -> Row:
    """The verdict of `compare`."""
    found = stansub.compare(draws, reference, var_names=names, console=Console(quiet=True))
    return {
        "verdict": found.verdict.word,
        "headline": found.verdict.headline,
        "largest_z": float(found.parameters["mean_z"].abs().max()),
        "largest_difference_sd": float(found.parameters["mean_diff_sd"].abs().max()),
    }
