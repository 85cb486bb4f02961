"""One run of the study: sample, hold against the truth, and see what the warnings say."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from correctness import truth, verdict
from correctness.truth import Truth
from correctness.workloads import WORKLOADS, Workload

if TYPE_CHECKING:
    from stansub.output.inference_data import InferenceData
    from stansub.stan.compilation import CompiledModel

# A tenth of the default's steps are enough to see chains in the wrong place, and leave time for many seeds.
LENGTH: dict[str, Any] = {"iter_warmup": 500, "iter_sampling": 1000}

WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "plain": {"control_variates": 0, "proposal": "adaptive-metropolis"},
}

Row = dict[str, Any]
Draw = Callable[[Workload, int, str], "InferenceData"]


@cache
def compiled(program: Path) -> CompiledModel:
    """A compiled program, once a process."""
    import stansub

    return stansub.compile_model(program)


def draw(workload: Workload, seed: int, way: str) -> InferenceData:
    """Draws as a user gets them, on one core; fewer than by default."""
    import stansub

    data, _ = workload.data()
    options = LENGTH | WAYS[way]
    return stansub.sample(compiled(workload.path), data, seed=seed, parallel_chains=1, show_progress=False, **options)


def run(name: str, seed: int, way: str, folder: Path, draw: Draw = draw) -> Row:
    """The row of one run.

    Parameters
    ----------
    name : str
        Of the workload.
    seed : int
        Of the sampler; the data stay the same.
    way : {"default", "plain"}
        Options of `stansub.sample`.
    folder : Path
        Where the truth is kept.
    draw : callable
        Makes the draws; another sampler may take its place.
    """
    from stansub.errors import StansubError
    from stansub.output.inference_data import attrs, group

    workload = WORKLOADS[name]
    answer = truth.load(workload, folder)
    compiled(workload.path)  # not part of the seconds
    row: Row = {"workload": name, "way": way, "seed": seed}
    began = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            idata = draw(workload, seed, way)
    except Exception as error:
        # A clear line is an answer; anything else is a defect.
        state, kind = ("failed", "") if isinstance(error, StansubError) else ("crashed", f"{type(error).__name__}: ")
        return row | {"state": state, "seconds": time.perf_counter() - began, "message": f"{kind}{error}"}
    seconds = time.perf_counter() - began
    posterior = {str(name): values.values for name, values in group(idata, "posterior").data_vars.items()}
    found = verdict.judge(workload.quantities(posterior), answer)
    facts = attrs(idata)
    lines = verdict.against(facts["warnings"])
    return row | {
        "state": found.state,
        "worst": found.worst,
        "mean_diff_sd": found.mean_diff,
        "sd_ratio": found.sd_ratio,
        "warned": bool(lines),
        "cause_named": verdict.names_cause(lines, workload.cause),
        "warnings": facts["warnings"].splitlines(),
        "mode": (facts.get("choices") or {}).get("mode", ""),
        "log_density_gap": _gap(workload, idata, answer),
        "seconds": seconds,
    }


def _gap(workload: Workload, idata: InferenceData, answer: Truth) -> float | None:
    """By how much the mean log density of the truth is above that of the best chain's last draw."""
    from stansub.output.inference_data import group

    if answer.log_density is None:
        return None
    values = group(idata, "unconstrained_posterior").data_vars.values()
    last = np.concatenate([one.values[:, -1].reshape(len(one.chain), -1) for one in values], axis=1)
    program = compiled(workload.path)
    model = program.read_data(workload.data()[0]).model(program.silent)
    return answer.log_density - max(model.log_density(theta) for theta in last)
