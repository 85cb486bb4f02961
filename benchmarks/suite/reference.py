"""Draws, mostly of NUTS, against which all engines are judged, made once and kept."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite import laplace
from suite.base import Task
from suite.workloads import SHARED, Workload

# No engine runs with this seed: a reference is never judged by itself.
SEED = 20_260_417
_CHAINS, _WARMUP = 4, 500
# Of weighted draws: their effective share.
_LEAST_SHARE = 0.9


@dataclass(frozen=True)
class Reference:
    """Draws by name, shape (chain, draw, ...), and who made them."""

    draws: dict[str, NDArray[Any]]
    about: str


def load(workload: Workload, data: Path, folder: Path, *, say: Callable[[str], None]) -> Reference:
    """The workload's reference, made now if there is none for this program and these data."""
    if workload.shared:
        facts = json.loads((SHARED / f"{workload.shared}.json").read_text())
        return Reference(_read(SHARED / f"{workload.shared}.npz"), f"{facts['engine']} (shared)")
    with data.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    way = "importance" if workload.importance else str(workload.reference_draws)
    digest.update(workload.program.read_bytes() + way.encode())
    stem = folder / f"{workload.name}-{digest.hexdigest()[:16]}"
    draws, about = stem.with_suffix(".npz"), stem.with_suffix(".json")
    if not about.exists():
        how = "weighted draws from the Laplace approximation" if workload.importance else "NUTS"
        say(f"Making the reference of {workload.name} with {how} (once; kept in {draws})")
        draws.parent.mkdir(parents=True, exist_ok=True)
        (_by_importance if workload.importance else _by_nuts)(workload, data, draws, about)
    return Reference(_read(draws), json.loads(about.read_text())["engine"])


def _by_importance(workload: Workload, data: Path, draws: Path, about: Path) -> None:
    task = Task(workload, data, SEED, _CHAINS, math.inf, draws.parent)
    run = laplace.run(task)
    size = sum(values.shape[0] * values.shape[1] for values in list(run.draws.values())[:1])
    if run.ess is None or run.ess < _LEAST_SHARE * size:
        raise RuntimeError(f"the reference of {workload.name} is not to be trusted: {'; '.join(run.notes)}")
    np.savez(draws, **run.draws)
    about.write_text(json.dumps({"engine": f"Laplace approximation, {run.notes[0]}"}, indent=1))


def _by_nuts(workload: Workload, data: Path, draws: Path, about: Path) -> None:
    from stansub.nuts.reference import reference, reservations
    from stansub.output.inference_data import attrs, group

    idata = reference(
        workload.program,
        data,
        chains=_CHAINS,
        iter_warmup=_WARMUP,
        iter_sampling=workload.reference_draws,
        seed=SEED,
        show_progress=False,
    )
    facts = attrs(idata)
    if bad := reservations(facts):
        raise RuntimeError(f"the reference of {workload.name} is not to be trusted: {'; '.join(bad)}")
    arrays: dict[str, Any] = {str(name): values.values for name, values in group(idata, "posterior").data_vars.items()}
    np.savez(draws, **arrays)
    kept = ("r_hat_max", "ess_bulk_min", "ess_tail_min", "wall_time")
    engine = f"{facts['engine']} {facts['engine_version']}, {_CHAINS} x {workload.reference_draws} draws"
    about.write_text(json.dumps({"engine": engine, **{name: facts[name] for name in kept}}, indent=1))


def _read(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path) as arrays:
        return dict(arrays)
