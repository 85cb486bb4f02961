"""`reference`: NUTS draws for the same program and data, with their provenance."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from stansub import clock, memory, streams
from stansub.errors import InputError
from stansub.nuts import cmdstan, equivalence, exact, nutpie
from stansub.nuts.base import Engine, Program, Run, Settings
from stansub.output import files, inference_data
from stansub.output.checks import R_HAT_MAX
from stansub.output.inference_data import InferenceData
from stansub.output.statistics import affordable, table
from stansub.run.choices import cores
from stansub.run.facts import versions
from stansub.run.limits import MOST, Bounds, Count, Interval, check
from stansub.run.progress import Display, stage_progress
from stansub.stan.data import data as data_module
from stansub.stan.data.data import Data
from stansub.stan.data.sources import DataLike, DataSources
from stansub.stan.toolchain.bridgestan_home import find_home

__all__ = ["ENGINES", "Program", "reference"]

_ENGINES: dict[str, Engine] = {"cmdstan": cmdstan, "nutpie": nutpie, "exact": exact}
ENGINES = ("auto", *_ENGINES)
_NAMES = {"cmdstan": "CmdStan", "nutpie": "nutpie", "exact": "exact decisions of stansub"}
# Bytes of generated quantities per observation that are still computed and then discarded.
_MAX_UNUSED = 5e8
_BOUNDS: dict[str, Bounds] = {
    "chains": Count(1, MOST["chains"]),
    "parallel_chains": Count(1, MOST["parallel_chains"]),
    # What the engines accept.
    "iter_warmup": Count(1, 2**31 - 1),
    "iter_sampling": Count(1, 2**31 - 1),
    "seed": Count(0, 2**32 - 1),
    "max_treedepth": Count(1, 30),
    "adapt_delta": Interval("between 0 and 1"),
}


def reference(
    model: str | Path | Program,
    data: DataLike,
    *,
    engine: str | Engine = "auto",
    reference_model: str | Path | Program | None = None,
    chains: int = 4,
    parallel_chains: int | None = None,
    iter_warmup: int = 1000,
    iter_sampling: int = 1000,
    seed: int | None = None,
    adapt_delta: float = 0.8,
    max_treedepth: int = 10,
    install_cmdstan: bool = False,
    show_progress: bool | None = None,
    console: Console | None = None,
) -> InferenceData:
    """Sample the posterior of a Stan program with NUTS, as a reference for subsampled draws.

    Parameters
    ----------
    model : path or Program
        The ``.stan`` file, or its text with a name.
    data : path, mapping, table or DataSources
        As `stansub.sample` takes them.
    engine : {"auto", "cmdstan", "nutpie", "exact"} or Engine
        Engine that runs NUTS. ``auto`` uses CmdStan if it is installed, otherwise nutpie with the BridgeStan home.
        ``exact`` is not NUTS but stansub's own sampler with every decision on all the data. A custom engine has the
        methods of `stansub.nuts.base.Engine`.
    reference_model : path or Program, optional
        A faster formulation of the same posterior, to run instead of the model. If its parameters have the same names
        and shapes, the two log densities are compared first.
    chains, parallel_chains, iter_warmup, iter_sampling : int
        Number of chains, chains at once (default: one per core), and iterations of each.
    seed : int, optional
        Random seed; by default drawn and written to the output.
    adapt_delta : float
        Target acceptance rate of warmup, between 0 and 1.
    max_treedepth : int
        Limit of the leapfrog steps per iteration, as a power of two.
    install_cmdstan : bool
        Whether to install CmdStan with cmdstanpy if it is missing.
    show_progress, console
        As in `stansub.sample`.

    Returns
    -------
    InferenceData
        Groups ``posterior`` and ``sample_stats`` (ArviZ's names). Attributes record what ran (``engine``,
        ``engine_version``, ``engine_reason``, ``settings``, ``versions``), for which model and data (``reference_for``,
        ``model_hash``, ``data_hash``) and its convergence (``r_hat_max``, ``ess_bulk_min``, ``ess_tail_min``). The
        group ``chain_stats`` has costs (``sampling_time``, ``n_gradients`` and others) and divergences
        (``n_divergences``). Quantities with a value per observation are left out; ``not_kept`` names them and what was
        left out with them.

    Raises
    ------
    InputError
        If the program, the data or an option cannot be used, or `reference_model` has another posterior.
    RunError
        If the engine is missing or fails.
    """
    display = Display.of(show_progress, console)
    settings = _settings(chains, parallel_chains, iter_warmup, iter_sampling, seed, adapt_delta, max_treedepth)
    engine = _asked_engine(engine, install_cmdstan=install_cmdstan)
    task = _Task.of(model, data)
    with stage_progress(display) as log:
        if install_cmdstan:
            cmdstan.install(log=log)
        chosen, reason = choose_engine(engine)
        making = _ENGINES[chosen] if isinstance(engine, str) else engine
        if reference_model is not None:
            task = task.by(_program(reference_model), data, log=log)
    lean, not_kept = _lean(task.ran, task.ran_values, settings)
    run = making.run(lean, task.ran_values, settings, console=display.console, show=display.show)
    with files.rescuing(lambda: files.keep_arrays(run.posterior)):
        facts = {**task.identity(data), "engine": chosen, "engine_reason": reason, "settings": asdict(settings)}
        return _recorded(run, task, facts, not_kept)


@dataclass(frozen=True)
class _Task:
    """Program and data to sample."""

    program: Program
    values: Data
    """The posterior."""
    ran: Program
    ran_values: Data
    """What runs instead."""
    parse_time: float
    read_time: float
    """Seconds."""
    equivalence: str = ""
    """Result of comparing the two."""

    @classmethod
    def of(cls, model: str | Path | Program, data: DataLike) -> _Task:
        """Return the task of a program and data."""
        began = clock.now()
        program = _program(model)
        parsed_at = clock.now()
        values = _read(program, data)
        return cls(program, values, program, values, parsed_at - began, clock.now() - parsed_at)

    def by(self, other: Program, data: DataLike, *, log: Callable[[str], None]) -> _Task:
        """Return the task with another program, after checking that it has the same posterior."""
        values = _read(other, data)
        found = equivalence.check(self.program, self.values, other, values, log=log)
        return replace(self, ran=other, ran_values=values, equivalence=found)

    def identity(self, data: DataLike) -> dict[str, Any]:
        """Return the program and data of a reference, and the program that was run."""
        return {
            "model": self.program.name,
            "model_code": self.ran.code,
            "model_hash": self.ran.hash,
            "reference_for": self.program.hash,
            "reference_model": self.ran.name,
            "data_hash": self.values.digest(),
            "data_file": DataSources.of(data).recorded,
            "n_observations": self.program.n_observations(self.values),
            "equivalence": self.equivalence,
        }


def _recorded(run: Run, task: _Task, facts: Mapping[str, Any], not_kept: Collection[str]) -> InferenceData:
    """Return the draws of a run without some variables, with the facts of the run."""
    posterior = {name: draws for name, draws in run.posterior.items() if name.partition(":")[0] not in not_kept}
    attrs = {
        **facts,
        "method": run.method,
        "engine_version": run.version,
        "versions": versions(find_home().stan_version),
        "not_kept": ", ".join(sorted(not_kept)),
        "time_split": run.time_split,
        **run.facts,
        "compile_time": run.compile_time + task.parse_time,
        "setup_time": run.setup_time + task.read_time,
        "wall_time": run.wall_time,
        **_quality(posterior, run.sample_stats),
    }
    chain_stats = _chain_stats(run)
    return inference_data.container(
        inference_data.build(posterior=posterior, sample_stats=run.sample_stats, chain_stats=chain_stats, attrs=attrs)
    )


def _asked_engine(engine: str | Engine, *, install_cmdstan: bool) -> str | Engine:
    """Return the requested engine, after installing it if requested."""
    if isinstance(engine, str) and engine not in ENGINES:
        raise InputError(f"unknown engine {engine!r}; choose from {', '.join(ENGINES)}")
    if install_cmdstan and engine == "nutpie":
        raise InputError("nutpie does not need CmdStan: leave out `install_cmdstan` or `engine='nutpie'`")
    return "cmdstan" if install_cmdstan else engine


def _program(model: str | Path | Program) -> Program:
    return model if isinstance(model, Program) else Program.read(model)


def _chain_stats(run: Run) -> dict[str, NDArray[Any]]:
    """Return the cost and diagnostics of each chain, each of shape (chain,)."""
    counted = {"n_divergences": "diverging", "n_max_treedepth": "reached_max_treedepth"}
    stats = {
        "warmup_time": run.warmup_time,
        "sampling_time": run.sampling_time,
        **({"warmup_n_gradients": run.warmup_n_gradients, "n_gradients": run.n_gradients} if run.n_gradients else {}),
        **run.counts,
        **{name: run.sample_stats[one].sum(axis=1) for name, one in counted.items() if one in run.sample_stats},
    }
    return {name: np.asarray(values) for name, values in stats.items()}


def choose_engine(engine: str | Engine) -> tuple[str, str]:
    """Return the name of the engine to run, and why.

    Raises
    ------
    InputError
        If the requested engine, or every engine, is missing.
    """
    if not isinstance(engine, str):
        if (lack := engine.unavailable()) is not None:
            raise InputError(f"{lack.what}; {lack.remedy}")
        return type(engine).__name__, "given"
    lacking = {name: one.unavailable() for name, one in _ENGINES.items()}
    if engine in lacking:
        lack = lacking[engine]
        if lack is None:
            return engine, "as requested"
        raise InputError(
            f"{lack.what}; {lack.remedy}, or use `engine='{'nutpie' if engine == 'cmdstan' else 'cmdstan'}'`"
        )
    if lacking["cmdstan"] is None:
        return "cmdstan", "CmdStan is installed"
    if lacking["nutpie"] is None:
        return "nutpie", lacking["cmdstan"].what
    raise InputError(
        f"{lacking['cmdstan'].what}, and {lacking['nutpie'].what}; {lacking['cmdstan'].remedy}, and "
        f"{lacking['nutpie'].remedy}"
    )


def describe(facts: Mapping[str, Any]) -> str:
    """Return which engine ran and why, in a sentence; ``facts`` are the attributes of a reference."""
    engine, reason = str(facts["engine"]), str(facts.get("engine_reason", ""))
    where = " through BridgeStan" if engine == "nutpie" else ""
    remedy = " (`stansub reference --install-cmdstan` installs it)" if reason.startswith("no CmdStan") else ""
    return f"Reference by {_NAMES.get(engine, engine)} {facts.get('engine_version', '')}{where}: {reason}{remedy}"


def reservations(facts: Mapping[str, Any]) -> list[str]:
    """Return reasons not to trust a reference, if any; ``facts`` are its attributes."""
    r_hat = facts.get("r_hat_max", math.nan)
    divergences, limits = sum(facts.get("n_divergences", [])), sum(facts.get("n_max_treedepth", []))
    return [
        *([f"R-hat reaches {r_hat:.3f}"] if r_hat > R_HAT_MAX else []),
        *([f"{divergences:,} divergent iterations"] if divergences else []),
        *([f"{limits:,} iterations were cut short by `max_treedepth`"] if limits else []),
    ]


def _settings(
    chains: int,
    parallel_chains: int | None,
    iter_warmup: int,
    iter_sampling: int,
    seed: int | None,
    adapt_delta: float,
    max_treedepth: int,
) -> Settings:
    given = chains, parallel_chains, iter_warmup, iter_sampling, seed, max_treedepth, adapt_delta
    check(_BOUNDS, **dict(zip(_BOUNDS, given, strict=True)))
    return Settings(
        chains=int(chains),
        parallel_chains=min(int(chains), int(parallel_chains or cores())),
        iter_warmup=int(iter_warmup),
        iter_sampling=int(iter_sampling),
        seed=streams.given_or_drawn(seed),
        adapt_delta=float(adapt_delta),
        max_treedepth=int(max_treedepth),
    )


def _read(program: Program, data: DataLike) -> Data:
    """Return the data, after checking that they fit and that there is something to sample."""
    if not program.syntax.parameters.declarations:
        raise InputError(f"{program.name}: the program has no parameters, so there is nothing to sample")
    return data_module.read(data, program.syntax.data.declarations)


def _lean(program: Program, values: Data, settings: Settings) -> tuple[Program, set[str]]:
    """Return the program, without generated quantities if they need much memory, and names of variables not to keep.

    Raises
    ------
    InputError
        If the transformed parameters alone, as kept by the engine and as draws, do not fit into memory.
    """
    tall = program.observation_level(values)
    rows = 8.0 * settings.chains * (settings.iter_warmup + settings.iter_sampling)
    blocks = program.syntax.transformed_parameters, program.syntax.generated_quantities
    transformed, generated = (rows * sum(tall.get(one.name, 0) for one in block.declarations) for block in blocks)
    room = memory.room()
    if 2 * transformed > room.size:
        names = ", ".join(one.name for one in blocks[0].declarations if one.name in tall)
        raise InputError(
            f"{program.name}: the transformed parameters with a value per observation ({names}) would take "
            f"{memory.amount(2 * transformed)} of memory, but {room}; declare them in the model block, or give such a "
            "program as `reference_model`"
        )
    if generated <= _MAX_UNUSED:
        return program, set(tall)
    start, end = blocks[1].span
    gone = {one.name for one in blocks[1].declarations}
    return Program(program.name, program.code[:start] + program.code[end:]), gone.union(tall)


def _quality(posterior: Mapping[str, NDArray[Any]], sample_stats: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    """Return R-hat and ESS of the worst quantity."""
    idata = inference_data.build(posterior=posterior, sample_stats=sample_stats, attrs={})
    statistics = table(idata, percentiles=(), max_rows=affordable(idata))
    return {
        "r_hat_max": statistics["r_hat"].max(),
        "ess_bulk_min": statistics["ess_bulk"].min(),
        "ess_tail_min": statistics["ess_tail"].min(),
    }
