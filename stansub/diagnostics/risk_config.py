"""The options of `risk` and values derived from them: error levels, budget and random streams."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from stansub import streams
from stansub.acceptance.rules import Exact, StoppingRule
from stansub.diagnostics.risk_curves import MIN_REPEATS
from stansub.diagnostics.risk_runs import Budget
from stansub.errors import InputError
from stansub.output.inference_data import InferenceData
from stansub.run import choices, decisions
from stansub.run.limits import MOST, Count, Named
from stansub.run.option import check, declared, documented, option
from stansub.run.options import DataOptions
from stansub.run.progress import Display

if TYPE_CHECKING:
    from stansub.run.inits import Inits

EPSILONS = (0.0, 0.01, 0.05, 0.1, 0.2)
TESTS = ("pocock", "austerity")
REFERENCES = ("nuts", "exact")
MAX_TIME = 10.0

# Key of the random streams of runs.
_STREAMS = 2
_ENDLESS = 2**62


@dataclass(frozen=True, kw_only=True)
class RiskOptions:
    """Options of the runs, their number and the reference."""

    epsilons: Sequence[float] = option(
        EPSILONS, "Error levels; 0 stands for exact decisions.", type_="sequence of float"
    )
    test: str = option("pocock", "Test of the decisions; the papers' is ``austerity``.", bounds=Named(TESTS))
    repeats: int = option(8, "Runs of each setting, at least 3.", bounds=Count(MIN_REPEATS, MOST["repeats"]))
    max_time: float | None = option(
        None,
        "Seconds of a run: processor time of its thread, which is the wall time if cores are free.",
        means="10 if `max_steps` is not given either",
    )
    max_steps: int | None = option(
        None, "Steps of a run. Unlike a time, they give the same result on every machine.", bounds=Count(100)
    )
    reference: InferenceData | str | Path | None = option(
        None,
        "Draws that serve as the truth, or the sampler that makes them. Exact chains start at `inits` and run twice as "
        "long as all repeats of one setting, within 5,000 to 400,000 steps.",
        type_='InferenceData, path, "nuts" or "exact"',
        means="NUTS",
    )
    quantities: Sequence[str] | None = option(
        None,
        "Transformed parameters or generated quantities whose means are tracked too, over about 250 to 500 positions "
        "of each run and at most 300 values each.",
        type_="sequence of str",
        means="``log_lik`` and ``y_rep``, if the program has them",
    )
    inits: Inits | None = option(
        None,
        "Starting values, as in `stansub.sample` (one file or mapping per repeat), so that the curves include burn-in.",
        type_="float, path, mapping, or a sequence of them",
        means="draws of the reference",
    )
    parallel_chains: int | None = option(
        None, "Number of runs at once.", bounds=Count(1, MOST["parallel_chains"]), means="one per core"
    )
    looks: str | None = option(None, "As in `stansub.sample`.")
    first_look: int | None = option(None, "As in `stansub.sample`.")
    audit: float = option(0.02, "Share of steps to audit after each run. Their time does not count.")
    seed: int | None = option(None, "Seed of the random numbers.", bounds=Count(0, MOST["seed"]), means="drawn")
    show_progress: bool | None = option(None, "As in `stansub.sample`.")
    console: Console | None = option(None, "As in `stansub.sample`.", type_="rich.console.Console")


@dataclass(frozen=True, kw_only=True)
class RiskConfig(DataOptions, RiskOptions):
    """Checked options of `risk`; all settings use the same blocks.

    Parameters
    ----------
    {options}

    Raises
    ------
    InputError
        If an option is out of range.
    """

    def __post_init__(self) -> None:
        options = declared(self)
        check(options, {name: getattr(self, name) for name in options})
        if not 0 <= self.audit <= 1:
            raise InputError(f"`audit={self.audit}` must be between 0 and 1")
        _ = self.rules, self.budget  # which check their own

    @cached_property
    def rules(self) -> dict[float, StoppingRule]:
        """Return the tests by error level."""
        if self.test not in TESTS:
            raise InputError(f"the test {self.test!r} has no epsilon to vary; choose from {', '.join(TESTS)}")
        levels = self.epsilons
        is_list = isinstance(levels, Iterable) and not isinstance(levels, str)
        if not is_list or not all(isinstance(one, numbers.Real) for one in levels):
            raise InputError(f"`epsilon`: give a list of error levels, such as [0, 0.05], not {levels!r}")
        if not self.epsilons:
            raise InputError("`epsilon`: give at least one error level")
        if len(set(self.epsilons)) < len(self.epsilons):
            raise InputError(f"`epsilon={','.join(f'{one:g}' for one in self.epsilons)}`: give each level once")
        make = partial(decisions.choose_test, self.test, delta=None, looks=self.looks, first_look=self.first_look)
        return {float(one): make(epsilon=one) if one else Exact() for one in sorted(self.epsilons)}

    @cached_property
    def budget(self) -> Budget:
        """Return the budget of a run."""
        seconds = self.max_time
        if seconds is not None and not 0 < seconds < math.inf:
            raise InputError(f"`max_time={seconds}` must be a number of seconds above 0")
        if seconds is None:
            seconds = MAX_TIME if self.max_steps is None else math.inf
        return Budget(seconds, self.max_steps or _ENDLESS)

    @property
    def parallel(self) -> int:
        """Return the number of runs at once."""
        return self.parallel_chains or choices.cores()

    @cached_property
    def root_seed(self) -> int:
        """Return the seed of everything random, drawn if none is given."""
        return streams.given_or_drawn(self.seed)

    @cached_property
    def display(self) -> Display:
        """Return where to show progress."""
        return Display.of(self.show_progress, self.console)

    def generator(self, repeat: int, stream: int) -> np.random.Generator:
        """Return one of the random streams of a repeat, the same for all error levels."""
        return np.random.default_rng(self.streams(repeat, stream))

    def streams(self, *place: int) -> np.random.SeedSequence:
        """Return seeds distinct from those of `sample`, whose draws may be the reference."""
        return np.random.SeedSequence(self.root_seed, spawn_key=(_STREAMS, *place))

    def facts(self) -> dict[str, Any]:
        """Return the facts that do not depend on the posterior."""
        return {
            "test": self.test,
            "max_steps": self.max_steps,
            "starts": "reference draws" if self.inits is None else "inits",
            "epsilons": list(self.rules),
            "repeats": self.repeats,
            "max_time": self.budget.seconds if self.budget.axis == "seconds" else None,
            "budget_axis": self.budget.axis,
            "audit": self.audit,
            "seed": self.root_seed,
        }


documented(RiskConfig)
