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
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
from measure import Row, Subject
from numpy.typing import NDArray
from rich.console import Console
from suite.base import StillInWarmup, Task, Unavailable
from suite.figures import parameters, slowest
from suite.nuts import nutpie
from suite.workloads import Workload

import stansub
from stansub import clock
from stansub.errors import DrawsWarning, StansubError, one_line
from stansub.nuts.base import Program
from stansub.output import inference_data
from stansub.output.inference_data import attrs, group
from stansub.output.layout import by_variable
from stansub.output.record import record_of
from stansub.stan import source
from stansub.stan.data import data as data_module
from stansub.stan.passes import rewrite
from stansub.stan.toolchain import build
from stansub.stan.toolchain.library import Library

if TYPE_CHECKING:
    from stansub.output.inference_data import InferenceData

# Chains of NUTS: few, so that more of its time goes into draws than into warmup. Gradients that it needs until it has
# draws for a rate, more or less.
_CHAINS, _GRADIENTS = 2, 8000
# How many times longer it may take on smaller data.
_LONGER = 3
# An effective sample size below which a rate says little, and an R-hat above which it says nothing.
FEWEST, R_HAT = 100.0, 1.05
# Runs of stansub by key, with their options. Audits are no part of a decision: sampling without them is faster.
_RUNS: tuple[tuple[str, dict[str, Any]], ...] = (("default", {}), ("pocock", {"test": "pocock", "audit": 0.0}))


class Limits(NamedTuple):
    """Core-seconds at most of a run of stansub, set-up included, and of NUTS."""

    run: float
    nuts: float


def is_sound(side: Row) -> bool:
    """Return whether a sampler has draws whose effective sample size can be believed."""
    return bool(side.get("ess", 0.0) >= FEWEST and side["r_hat"] <= R_HAT)


def measured(subject: Subject, smaller: Subject, limits: Limits, seed: int) -> Iterator[Row]:
    """Yield what is found out about a program, part by part.

    If NUTS would not come to enough draws in its time, it runs on smaller data of the same program. Agreement is that
    on these, and the effective draws per gradient are taken from there, with the cost of a gradient on all the data.
    """
    with TemporaryDirectory() as folder, _processor_time():
        task = _Task.of(subject, Path(folder), limits, seed)
        yield {"program": subject.name, "about": subject.about, "load": round(os.getloadavg()[0], 1)}
        draws: InferenceData | None = None
        for key, options in _RUNS:
            row, found = task.run(**options)
            draws = draws or found
            yield {key: row}
        if draws is None:
            return
        cost = task.gradient(draws)
        row, reference = task.nuts() if cost * _GRADIENTS <= limits.nuts else ({}, None)
        if reference is not None and is_sound(row):
            yield {"agreement": _agreement(draws, reference, task.names)}
        else:
            longer = limits._replace(nuts=_LONGER * limits.nuts)
            yield {"smaller": _on_smaller(_Task.of(smaller, Path(folder), longer, seed))}
        yield {"nuts": row | {"gradient_core_s": cost}}


def _on_smaller(task: _Task) -> Row:
    """The default beside NUTS."""
    own, draws = task.run()
    row, reference = task.nuts()
    found = {"default": own, "nuts": row}
    if draws is None or reference is None:
        return found
    return found | {"agreement": _agreement(draws, reference, task.names)}


@contextlib.contextmanager
def _processor_time() -> Iterator[None]:
    """Let the package's clock count core-seconds."""
    before, clock.now = clock.now, time.process_time
    try:
        yield
    finally:
        clock.now = before


@dataclass(frozen=True)
class _Task:
    """A program with its data in a file, and the names of its parameters."""

    subject: Subject
    data: Path
    names: Sequence[str]
    limits: Limits
    seed: int

    @classmethod
    def of(cls, subject: Subject, folder: Path, limits: Limits, seed: int) -> _Task:
        names = [one.name for one in source.read(subject.path).program.parameters.declarations]
        data = folder / f"{subject.name}.json"
        data.write_bytes(orjson.dumps(subject.data, default=np.ndarray.tolist, option=orjson.OPT_SERIALIZE_NUMPY))
        return cls(subject, data, names, limits, seed)

    def run(self, **options: Any) -> tuple[Row, InferenceData | None]:
        """A run of stansub with nothing chosen but its longest time and these options."""
        began = time.process_time()
        options |= {"seed": self.seed, "max_time": self.limits.run, "parallel_chains": 1}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DrawsWarning)
                found = stansub.sample(self.subject.path, self.data, console=Console(quiet=True), **options)
        except StansubError as error:
            return {"failure": one_line(error)}, None
        cores, facts, record = time.process_time() - began, attrs(found), record_of(found)
        return {
            "observations": facts["n_observations"],
            "parameters": _unconstrained(found).shape[-1],
            "test": facts["test"],
            "guarantee": str(facts["guarantee"]),
            "proposal": str(facts["settings"]["proposal"]),
            "choices": facts["choices"],
            "share": record.share_of_data,
            "accepted": record.acceptance_rate,
            "steps": int(sum(facts["n_steps"])),
            **slowest(parameters(group(found, "posterior"), self.names))._asdict(),
            "sampling_core_s": float(sum(facts["sampling_time"])),
            "core_s": cores,
            "stopped": facts["stopped"],
            "warnings": facts["warnings"],
        }, found

    def gradient(self, draws: InferenceData) -> float:
        """Core-seconds of the program's gradient at draws."""
        program = Program.read(self.subject.path)
        library = Library(build.compile_library(rewrite.silenced(program.syntax).code, name=program.name))
        model = data_module.read(self.data, program.syntax.data.declarations).model(library)
        points, seconds = _unconstrained(draws)[0, :: -(-_unconstrained(draws).shape[1] // 5)], []
        for theta in points:
            began = time.process_time()
            model.log_density_gradient(np.ascontiguousarray(theta))
            seconds.append(time.process_time() - began)
        return float(np.median(seconds))

    def nuts(self) -> tuple[Row, InferenceData | None]:
        """NUTS until it has its draws or its core-seconds are spent."""
        workload, began = Workload(self.subject.name, 0, self.subject.path, lambda path: None), time.process_time()
        limit, folder = self.limits.nuts, self.data.parent
        try:
            run = nutpie(Task(workload, self.data, self.seed + 1, _CHAINS, float("inf"), folder, core_seconds=limit))
        except StillInWarmup as error:
            return {"note": str(error)}, None
        except (Unavailable, RuntimeError) as error:
            return {"failure": one_line(error)}, None
        cores, draws = time.process_time() - began, by_variable(run.draws)
        assert run.gradient_core_s is not None
        return {
            **slowest(parameters(draws, self.names))._asdict(),
            "gradients": run.sampling_passes,
            "warmup_gradients": run.warmup_passes,
            "sampling_core_s": run.gradient_core_s * run.sampling_passes,
            "core_s": cores,
            "note": f"{next(iter(draws.values())).shape[1]:,} draws a chain; {', '.join(run.notes)}",
        }, inference_data.container(inference_data.build(posterior=draws, sample_stats={}, attrs={}))


def _unconstrained(draws: InferenceData) -> NDArray[np.float64]:
    """Return draws of all chains on the unconstrained space, shape (chain, draw, dim)."""
    (values,) = group(draws, "unconstrained_posterior").values()
    return np.asarray(values)


def _agreement(draws: InferenceData, reference: InferenceData, names: Sequence[str]) -> Row:
    """The verdict of `compare`."""
    found = stansub.compare(draws, reference, var_names=names, console=Console(quiet=True))
    return {
        "verdict": found.verdict.word,
        "headline": found.verdict.headline,
        "largest_z": float(found.parameters["mean_z"].abs().max()),
        "largest_difference_sd": float(found.parameters["mean_diff_sd"].abs().max()),
    }
