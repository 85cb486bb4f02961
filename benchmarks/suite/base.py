"""What an engine is given and what it gives back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.workloads import Workload


class Unavailable(Exception):  # noqa: N818 - a reason, told in the table
    """An engine or a workload cannot run here; the text says why."""


class StillInWarmup(Unavailable):
    """NUTS whose time was up before it drew; with what a draw would have cost at least.

    Attributes
    ----------
    gradients : float
        Evaluations of the gradient, in all chains together.
    leapfrog : float
        Leapfrog steps of an iteration in the second half of what it did.
    core_seconds : float
        Of warmup.
    """

    def __init__(self, text: str, gradients: float, leapfrog: float, core_seconds: float) -> None:
        super().__init__(text)
        self.gradients, self.leapfrog, self.core_seconds = gradients, leapfrog, core_seconds


@dataclass(frozen=True)
class Task:
    """A workload for an engine.

    Attributes
    ----------
    workload : Workload
    data : Path
        The data JSON; for preparations a small one of the same form.
    seed : int
    chains : int
        Chains, all of which run at once.
    seconds : float
        Limit of warmup and sampling.
    cache : Path
        Folder for what an engine keeps between runs.
    core_seconds : float
        Limit of warmup and sampling in processor time of all threads, for engines of this process.
    """

    workload: Workload
    data: Path
    seed: int
    chains: int
    seconds: float
    cache: Path
    core_seconds: float = math.inf


@dataclass(frozen=True)
class Run:
    """Draws and what they cost. Seconds are wall time of the whole machine, all chains together.

    Attributes
    ----------
    draws : mapping
        Parameters by name, shape (chain, draw, ...).
    load_s, setup_s, warmup_s, sampling_s : float
        Reading the data; making the model ready; what comes before the first draw that counts; the draws that count.
    audit_s : float
        Decisions taken again on all the data, while sampling; not part of ``sampling_s``.
    warmup_passes, sampling_passes : float
        Evaluations of the whole data, of the likelihood or of its gradient, in all chains together.
    compile_s : float
        Part of the run that was compilation and would not be there with a filled cache.
    ess : float, optional
        Effective sample size of weighted draws, in place of that of chains.
    gradient_core_s : float, optional
        Core-seconds of an evaluation of the gradient, with all that an iteration does besides.
    notes : sequence of str
    """

    draws: Mapping[str, NDArray[Any]]
    load_s: float
    setup_s: float
    warmup_s: float
    sampling_s: float
    warmup_passes: float
    sampling_passes: float
    audit_s: float = 0.0
    compile_s: float = 0.0
    ess: float | None = None
    gradient_core_s: float | None = None
    notes: Sequence[str] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Engine:
    """A way to posterior draws.

    Attributes
    ----------
    about : str
        One line for the report.
    run : callable
    prepare : callable
        Compiles, with a few rows of data, what the cache keeps from then on; returns whether there was something to do.
    seconds : float
        Limit of warmup and sampling, where the workload's own is longer.
    """

    about: str
    run: Callable[[Task], Run]
    prepare: Callable[[Task], bool]
    seconds: float = math.inf


def compile_program(task: Task, program: Path | None = None, *, lipschitz: bool = False) -> bool:
    """Compile the workload's program, or another one, and with ``lipschitz`` its function ``log_lik_lipschitz_i``."""
    import stansub
    from stansub.stan.ranges import LIPSCHITZ

    told: list[str] = []
    compiled = stansub.compile_model(program or task.workload.program, progress=told.append)
    if lipschitz:
        compiled.with_data(task.data).constants(LIPSCHITZ, progress=told.append)
    return bool(told)


def nothing_to_compile(task: Task) -> bool:
    """For engines that need no program of the cache."""
    return False


def elapsed(seconds: Sequence[float], parallel: int) -> float:
    """Wall time of chains that take so many seconds each, ``parallel`` at a time (their sum if one at a time)."""
    return float(max(np.max(seconds), np.sum(seconds) / parallel))
