"""The posteriors that are sampled: program, data, limits.

Every engine gets the same program, in the formulation that is fastest for NUTS as far as we know.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson

ROOT = Path(__file__).resolve().parent.parent.parent
MODELS = Path(__file__).resolve().parent / "models"
STAN_MODELS = ROOT / "stan_models"
# A folder with <name>.stan, draws in <name>.npz and make_data.py, which writes the data.
SHARED = Path(os.environ.get("STANSUB_REFERENCE", "no folder"))

_SMALL = 200
_DECIMALS = 4


@dataclass(frozen=True)
class Workload:
    """A posterior.

    Attributes
    ----------
    name : str
    n : int
        Observations.
    program : Path
    write_data : callable
        Writes the data JSON to a path.
    seconds : float
        Limit of warmup and sampling, unless another is asked for.
    family : str
        Likelihood, for the engines that have a program of their own.
    lipschitz_program : Path, optional
        The same posterior with a function ``log_lik_lipschitz_i``.
    shared : str
        Name among the shared reference posteriors; nothing for those whose reference the suite makes.
    reference_draws : int
        Draws a chain of the reference, of which there are four. With a thousand each an sd is known to one or two
        percent, which may leave the worst of many parameters unclear; where NUTS takes long there are no more.
    importance : bool
        Whether the reference is of weighted draws from the Laplace approximation instead, evaluated on all the data:
        for data so tall that the weights are nearly equal and NUTS takes hours.
    routine : bool
        Whether it runs without being named.
    memory : float
        Bytes without which it is not tried.
    """

    name: str
    n: int
    program: Path
    write_data: Callable[[Path], None]
    seconds: float = 120.0
    family: str = ""
    lipschitz_program: Path | None = None
    shared: str = ""
    reference_draws: int = 4000
    importance: bool = False
    routine: bool = True
    memory: float = 0.0

    def unavailable(self) -> str:
        """Why it cannot run here, or nothing."""
        if self.shared and not (SHARED / f"{self.shared}.stan").is_file():
            return f"STANSUB_REFERENCE names no folder with {self.shared}.stan"
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if self.memory > memory:
            return f"needs {self.memory / 1e9:.0f} GB of memory, of which there are {memory / 1e9:.0f}"
        return ""


def data_files(workload: Workload, folder: Path) -> tuple[Path, Path]:
    """The data JSON and one of its first rows, written unless they are there already."""
    whole, small = folder / f"{workload.name}.json", folder / f"{workload.name}.small.json"
    if not small.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = whole.with_suffix(".part")
        workload.write_data(part)
        data = orjson.loads(part.read_bytes())
        n = data["N"]
        few = {k: v[:_SMALL] if isinstance(v, list) and len(v) == n else v for k, v in data.items()}
        part.replace(whole)
        part.write_bytes(orjson.dumps({**few, "N": min(n, _SMALL)}))
        part.replace(small)
    return whole, small


def arrays(program: str, n: int, k: int) -> dict[str, Any]:
    """Data of one of the example programs, seed 1, real numbers with four decimals."""
    sys.path.insert(0, str(STAN_MODELS))
    from simulate import simulate

    data: dict[str, Any] = simulate(program, observations=n, covariates=k, seed=1)
    for name, values in data.items():
        if isinstance(values, np.ndarray) and values.dtype.kind == "f":
            data[name] = values.round(_DECIMALS)
    return data


def simulated(program: str, n: int, k: int, path: Path) -> None:
    """Write them as JSON."""
    path.write_bytes(orjson.dumps(arrays(program, n, k), option=orjson.OPT_SERIALIZE_NUMPY))


def _script(*command: str | Path) -> None:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"{command[0]} failed"])[-1])


def _flights(path: Path) -> None:
    _script(ROOT / "examples" / "flights.py", path)


def _shared_data(name: str, path: Path) -> None:
    _script(SHARED / "make_data.py", name, path)


def _simulated(name: str, program: Path, data: str, n: int, k: int = 10, **options: Any) -> Workload:
    return Workload(name, n, program, partial(simulated, data, n, k), **options)


def _logistic(name: str, n: int, k: int = 10, **options: Any) -> Workload:
    lipschitz = STAN_MODELS / "logistic_log_lik_i.stan"
    program = STAN_MODELS / "logistic.stan"
    return _simulated(name, program, "logistic", n, k, family="logistic", lipschitz_program=lipschitz, **options)


def _reference(name: str, n: int, shared: str, **options: Any) -> Workload:
    return Workload(name, n, SHARED / f"{shared}.stan", partial(_shared_data, shared), shared=shared, **options)


_ALL = (
    _logistic("logistic-500", 500, reference_draws=1000, routine=False),
    _logistic("logistic-1e4", 10_000),
    _logistic("logistic-1e5", 100_000),
    _logistic("logistic-1e6", 1_000_000, seconds=600.0, importance=True),
    _logistic("logistic-1e7", 10_000_000, seconds=6000.0, importance=True, routine=False, memory=16e9),
    _logistic("logistic-1e5-d50", 100_000, 50, seconds=300.0, reference_draws=1000),
    Workload(
        "flights",
        327_346,
        ROOT / "examples" / "flights.stan",
        _flights,
        family="logistic",
        reference_draws=1000,
    ),
    _reference("covtype", 400_000, "covtype10", seconds=480.0),
    _reference("mnist7v9", 12_214, "mnist7v9"),
    _simulated("poisson-1e5", MODELS / "poisson.stan", "poisson", 100_000, family="poisson"),
    _simulated("linear-1e5", STAN_MODELS / "linear.stan", "linear", 100_000, family="linear"),
    _simulated(
        "hierarchical-1e5",
        MODELS / "hierarchical_logistic.stan",
        "hierarchical_logistic",
        100_000,
        seconds=300.0,
        reference_draws=1000,
    ),
)
WORKLOADS = {workload.name: workload for workload in _ALL}
ROUTINE = tuple(workload.name for workload in _ALL if workload.routine)
