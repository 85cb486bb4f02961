"""NUTS by nutpie, with a library compiled by stansub's toolchain."""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from stansub import clock
from stansub.errors import InputError, RunError
from stansub.nuts.base import Missing, Program, Run, Settings
from stansub.nuts.progress import line_progress
from stansub.output import files, inference_data
from stansub.output.layout import Layout, by_variable
from stansub.run.progress import Display, redrawn, stage_progress
from stansub.stan.data.data import Data
from stansub.stan.passes.rewrite import silenced
from stansub.stan.toolchain import build
from stansub.stan.toolchain.bridgestan_home import find_home
from stansub.stan.toolchain.library import Library, Model

# nutpie's names of statistics, with ArviZ's.
_STATISTICS = {
    "diverging": "diverging",
    "n_steps": "n_steps",
    "depth": "tree_depth",
    "maxdepth_reached": "reached_max_treedepth",
    "step_size": "step_size",
    "mean_tree_accept": "acceptance_rate",
    "energy": "energy",
    "logp": "lp",
}
# Elements of complex vectors, matrices and arrays: Stan alternates real and imaginary parts, but nutpie reads all real
# parts followed by all imaginary parts.
_COMPLEX_ELEMENT = re.compile(r"\.\d+\.real$")


def unavailable() -> Missing | None:
    """Return why nutpie cannot be used; None if it can."""
    return None if find_spec("nutpie") else Missing("nutpie is not installed", "`pip install nutpie` installs it")


def run(
    program: Program, data: Data, settings: Settings, *, console: Console, show: bool, low_rank: bool = False
) -> Run:
    """Run NUTS. The engine displays its own progress, unless only lines can be written.

    With ``low_rank``, the mass matrix is a diagonal and a matrix of low rank that learns correlations.

    Raises
    ------
    InputError
        If the program rejects the data.
    RunError
        If the program cannot be compiled, or sampling fails.
    """
    inference_data.arviz_module()  # nutpie imports it too, less quietly
    import nutpie

    began, display = clock.now(), Display(console, show)
    with stage_progress(display) as log:
        code = silenced(program.syntax).code
        path = build.compile_library(code, name=program.name, goal="for NUTS", progress=log)
        library = Library(path)  # loading it here silences the program's print statements
        compiled_at = clock.now()
        log(f"Loading {data.source}")
        try:
            model = _with_data(path, program, data, seed=settings.seed)
        except (RuntimeError, ValueError) as error:
            raise InputError(f"{data.source}: {_first_lines(error)}") from error
    own = data.model(library) if "complex" in program.code else None
    if own is not None and not any(map(_COMPLEX_ELEMENT.search, own.param_names(include_tp=True, include_gq=True))):
        own = None
    ready_at = clock.now()
    sampler = nutpie.sample(
        model,
        draws=settings.iter_sampling,
        tune=settings.iter_warmup,
        chains=settings.chains,
        cores=settings.parallel_chains,
        seed=settings.seed,
        target_accept=settings.adapt_delta,
        maxdepth=settings.max_treedepth,
        low_rank_modified_mass_matrix=low_rank,
        save_warmup=True,
        store_unconstrained=own is not None,
        progress_bar=show and redrawn(console),
        blocking=False,
    )
    with line_progress(display):
        drawn = _wait(sampler, program.name)
    wall_time = clock.now() - ready_at
    posterior = inference_data.group(drawn, "posterior").data_vars
    arrays = {str(name): np.asarray(values.values) for name, values in posterior.items()}
    with files.rescuing(lambda: files.keep_arrays(arrays)):
        warmup = inference_data.group(drawn, "warmup_sample_stats")["n_steps"].values.sum(axis=1)
        stats = inference_data.group(drawn, "sample_stats")
        sampling = stats["n_steps"].values.sum(axis=1)
        per_gradient = wall_time / max(1, _makespan([int(n) for n in warmup + sampling], settings.parallel_chains))
        return Run(
            posterior=by_variable(arrays)
            if own is None
            else _constrained(own, stats["unconstrained_draw"].values, settings.seed),
            sample_stats={new: stats[old].values for old, new in _STATISTICS.items() if old in stats},
            warmup_time=[per_gradient * int(n) for n in warmup],
            sampling_time=[per_gradient * int(n) for n in sampling],
            warmup_n_gradients=[int(n) for n in warmup],
            n_gradients=[int(n) for n in sampling],
            time_split="by gradient evaluations",
            compile_time=compiled_at - began,
            setup_time=ready_at - compiled_at,
            wall_time=wall_time,
            version=metadata.version("nutpie"),
        )


def _wait(sampler: Any, name: str) -> Any:
    """Return the draws in nutpie's form, once it has finished."""
    try:
        return sampler.wait()
    except KeyboardInterrupt:
        sampler.cancel()
        raise
    except (RuntimeError, ValueError) as error:
        raise RunError(f"nutpie could not sample {name}: {_first_lines(error)}") from error


def _constrained(model: Model, theta: NDArray[np.float64], seed: int) -> dict[str, NDArray[np.float64]]:
    """Return all values that the program writes, by variable, for unconstrained draws of shape (chain, draw, dim)."""
    names = model.param_names(include_tp=True, include_gq=True)
    values = np.empty((*theta.shape[:2], len(names)))
    for chain, points in enumerate(theta):
        rng = model.rng(int(np.random.SeedSequence(seed, spawn_key=(chain,)).generate_state(1)[0]))
        for draw, point in enumerate(points):
            model.param_constrain(point, include_tp=True, include_gq=True, rng=rng, out=values[chain, draw])
    return Layout.from_names(names).split(values)


def _with_data(path: Path, program: Program, data: Data, *, seed: int) -> Any:
    """Return the model with data.

    nutpie's public interface compiles the program at every call and converts data to JSON number by number. Its own
    classes take a library and a text. If they no longer exist, the public interface is used.
    """
    try:
        from nutpie import _lib
        from nutpie.compile_stan import CompiledStanModel

        model = _lib.StanModel(_lib.StanLibrary(path), {}, {}, {}, seed, data.json().decode(), None)
        return CompiledStanModel(
            code=program.code, library=None, dims={}, _coords={}, model_name=program.name, model=model, data=None
        )
    except (ImportError, AttributeError, TypeError):
        import bridgestan
        import nutpie

        bridgestan.set_bridgestan_path(str(find_home().path))
        name = build.stem_of(program.name)
        return nutpie.compile_stan_model(code=program.code, model_name=name).with_data(**data.values)


def _makespan(work: Sequence[int], workers: int) -> int:
    """Return when the last of several jobs ends if each free worker takes the next one."""
    free = [0] * workers
    for amount in work:
        heapq.heapreplace(free, free[0] + amount)
    return max(free)


def _first_lines(error: BaseException) -> str:
    """Return nutpie's message in one line, without the addresses that may follow it."""
    text = str(error).partition("Stack backtrace")[0]
    return " ".join(text.split()) or type(error).__name__
