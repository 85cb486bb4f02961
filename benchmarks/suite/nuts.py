"""NUTS, by CmdStan and by nutpie."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.base import Run, StillInWarmup, Task, Unavailable, elapsed

_DRAWS = 1000
# Draws a chain below which there are no statistics.
_FEWEST = 4
# Seconds between two looks at the processor time.
_POLL = 0.5


def cmdstan(task: Task) -> Run:
    """CmdStan's defaults. It gives no draws before it has ended, so a limit that is too short loses them all."""
    from stansub.nuts import cmdstan as engine
    from stansub.nuts.reference import reference
    from stansub.output.inference_data import attrs, group

    if reason := engine.unavailable():
        raise Unavailable(reason)
    began = time.perf_counter()
    idata = reference(
        task.workload.program, task.data, engine="cmdstan", chains=task.chains, seed=task.seed, show_progress=False
    )
    took = time.perf_counter() - began
    facts = attrs(idata)
    sampling = elapsed(facts["sampling_time"], facts["settings"]["parallel_chains"])
    return Run(
        draws={str(name): values.values for name, values in group(idata, "posterior").data_vars.items()},
        load_s=max(0.0, took - facts["compile_time"] - facts["setup_time"] - facts["wall_time"]),
        setup_s=facts["setup_time"],
        warmup_s=facts["wall_time"] - sampling,
        sampling_s=sampling,
        warmup_passes=sum(facts["warmup_n_gradients"]),
        sampling_passes=sum(facts["n_gradients"]),
        compile_s=facts["compile_time"],
        notes=_trouble(sum(facts["n_divergences"]), sum(facts["n_gradients"]), task.chains * _DRAWS),
        versions={"cmdstan": str(facts["engine_version"])},
    )


def nutpie(task: Task) -> Run:
    """nutpie's defaults on stansub's compiled library; at the limit what there is is taken."""
    from stansub.nuts import nutpie as engine

    if reason := engine.unavailable():
        raise Unavailable(reason)
    import nutpie as package

    from stansub.nuts.base import Program
    from stansub.output.inference_data import group
    from stansub.stan.data import data as data_module
    from stansub.stan.passes import rewrite
    from stansub.stan.toolchain import build

    began = time.perf_counter()
    program = Program.read(task.workload.program)
    data = data_module.read(task.data, program.syntax.data.declarations)
    library = build.compile_library(rewrite.silenced(program.syntax).code, name=program.name)
    loaded = time.perf_counter()
    model = engine._with_data(library, program, data, seed=task.seed)
    ready = time.perf_counter()
    sampler = package.sample(
        model,
        draws=_DRAWS,
        chains=task.chains,
        cores=task.chains,
        seed=task.seed,
        save_warmup=True,
        progress_bar=False,
        blocking=False,
    )
    spent = time.process_time()
    drawn, stopped = _drawn(sampler, task.seconds, task.core_seconds)
    wall, spent = time.perf_counter() - ready, time.process_time() - spent
    stats: Any = group(drawn, "sample_stats")
    # Chains that were stopped differ in length and are filled up with NaN, or with 0 where there is no NaN.
    lengths = np.isfinite(stats["logp"].values).sum(axis=1)
    steps = stats["n_steps"].values.sum(axis=1).astype(float)
    warmup = group(drawn, "warmup_sample_stats")["n_steps"].values.sum(axis=1).astype(float)
    if not lengths.size or lengths.min() < _FEWEST:
        raise _in_warmup(group(drawn, "warmup_sample_stats")["n_steps"].values, wall, spent)
    diverging = int(stats["diverging"].values.sum())
    notes = _trouble(diverging, int(steps.sum()), int(lengths.sum()))
    # The engine tells no times: a gradient is taken to cost the same in warmup and in sampling.
    per_gradient = wall / (warmup + steps if stopped else (warmup + steps).max())
    gradient_core_s = spent / float(warmup.sum() + steps.sum())
    # Of chains of different length what is beyond the shortest is dropped, and its time with it.
    steps *= lengths.min() / lengths
    sampling = float((per_gradient * steps).max())
    return Run(
        draws={str(k): v.values[:, : lengths.min()] for k, v in group(drawn, "posterior").data_vars.items()},
        load_s=loaded - began,
        setup_s=ready - loaded,
        warmup_s=wall - sampling,
        sampling_s=sampling,
        warmup_passes=float(warmup.sum()),
        sampling_passes=float(steps.sum()),
        gradient_core_s=gradient_core_s,
        notes=[*notes, *(["stopped by the time limit"] if stopped else [])],
    )


def _drawn(sampler: Any, seconds: float, core_seconds: float) -> tuple[Any, bool]:
    """What the sampler has drawn when it ends or a limit does, and whether a limit did."""
    ends, spent = time.perf_counter() + seconds, time.process_time() + core_seconds
    while (left := ends - time.perf_counter()) > 0 and time.process_time() < spent:
        with suppress(TimeoutError):
            return sampler.wait(timeout=min(left, _POLL) if core_seconds < math.inf else left), False
    return sampler.abort(), True


def _in_warmup(n_steps: NDArray[Any], wall: float, cores: float) -> StillInWarmup:
    """Leapfrog steps, shape (chain, iteration), with 0 where a chain was ended before."""
    later = [steps[len(steps) // 2 :] for steps in (chain[chain > 0] for chain in n_steps)]
    total, leapfrog = float(n_steps.sum()), float(np.mean(np.concatenate(later)))
    text = f"still in warmup after {wall:.0f} s ({total:,.0f} gradients, at last {leapfrog:.0f} a draw)"
    return StillInWarmup(text, total, leapfrog, cores)


def _trouble(diverging: int, gradients: int, draws: int) -> list[str]:
    return [
        f"{gradients / draws:.1f} leapfrog steps a draw",
        *([f"{diverging:,} divergent iterations"] if diverging else []),
    ]
