"""stansub's own samplers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from suite.base import Run, Task, compile_program, elapsed

# What makes a run plain Metropolis-Hastings with a subsampled decision, as in the papers.
PLAIN: dict[str, Any] = {"proposal": "adaptive-metropolis", "control_variates": 0}


def sample(task: Task, program: Path | None = None, **options: Any) -> Run:
    """A run with the given options and nothing else that changes the draws but seed and chains.

    As the command does it: without ArviZ, which takes seconds to import where nobody has imported it before.
    """
    from stansub import SampleConfig
    from stansub.output.inference_data import attrs, group
    from stansub.run.sample import draw

    config = SampleConfig(chains=task.chains, seed=task.seed, max_time=task.seconds, show_progress=False, **options)
    idata = draw(program or task.workload.program, task.data, config)
    facts = attrs(idata)
    n, parallel = facts["n_observations"], facts["settings"]["parallel_chains"]
    sampling, audits = (elapsed(facts[f"{what}_time"], parallel) for what in ("sampling", "audit"))
    notes = [f"test {facts['test']}, {np.mean(group(idata, 'sample_stats')['n_obs_used']) / n:.2%} of the data a step"]
    if audited := sum(facts["n_audited"]):
        notes.append(f"{sum(facts['n_audit_wrong'])} of {audited:,} audited decisions wrong")
    if str(facts["guarantee"]).startswith("void"):
        notes.append(str(facts["guarantee"]))
    if facts["stopped"]:
        notes.append(f"stopped by {facts['stopped']}")
    return Run(
        draws={str(name): values.values for name, values in group(idata, "posterior").data_vars.items()},
        # With the program in the cache the time for compiling is that of reading program and data.
        load_s=facts["compile_time"],
        setup_s=facts["setup_time"],
        warmup_s=facts["wall_time"] - sampling - audits,
        sampling_s=sampling,
        audit_s=audits,
        warmup_passes=sum(facts["warmup_n_obs_evaluated"]) / n,
        sampling_passes=sum(facts["n_obs_evaluated"]) / n,
        notes=notes,
    )


def bernstein(task: Task) -> Run:
    """The bound's range is the workload's Lipschitz function where there is one, else an estimate."""
    program = task.workload.lipschitz_program
    source = "lipschitz" if program else "estimate"
    return sample(task, program, test="bernstein", range_source=source, **PLAIN)


def prepare_bernstein(task: Task) -> bool:
    """Compile the program with the Lipschitz function where there is one."""
    program = task.workload.lipschitz_program
    return compile_program(task, program, lipschitz=program is not None)
