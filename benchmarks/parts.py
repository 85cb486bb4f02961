"""What a block costs where it is an instance of the whole program, and in parts.

python benchmarks/parts.py
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from stansub.stan.compilation import CompiledModel, compile_model
from stansub.stan.proof import draw_points

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "programs"
SIZE, BLOCKS = 32, 200

Data = dict[str, Any]


def item_response(rng: np.random.Generator) -> Data:
    """300 persons, 200 items, 702 parameters."""
    person, item = (1 + grid.ravel() for grid in np.mgrid[:300, :200])
    y = rng.integers(0, 2, person.size)
    return {"I": 200, "J": 300, "N": person.size, "item": item, "person": person, "y": y}


def groups(rng: np.random.Generator) -> Data:
    """50,000 observations of 1,000 groups."""
    n, k, j = 50_000, 3, 1000
    x, y = rng.standard_normal((n, k)), rng.integers(0, 2, n)
    return {"N": n, "K": k, "J": j, "x": x, "y": y, "group": rng.integers(1, j + 1, n)}


def survival(rng: np.random.Generator) -> Data:
    """4,000 times to an event and as many that are censored."""
    data: Data = {"K": 2}
    for name, n in {"obs": 4000, "cen": 4000, "left": 9}.items():
        data |= {f"N_{name}": n, f"t_{name}": rng.weibull(1.5, n), f"x_{name}": rng.standard_normal((n, 2))}
    return data


WORKLOADS: dict[str, tuple[Path, Callable[[np.random.Generator], Data]]] = {
    "item response": (PROGRAMS / "item_response.stan", item_response),
    "groups": (ROOT / "stan_models" / "hierarchical_logistic.stan", groups),
    "survival": (PROGRAMS / "survival.stan", survival),
}


def microseconds(action: Callable[[], object], calls: int = 1, tries: int = 7) -> float:
    """The least time of some tries, a call."""
    best = math.inf
    for _ in range(tries):
        began = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - began)
    return best / calls / 1e-6


def row(model: CompiledModel, data: Data, *, what: str) -> str:
    """A line of the table."""
    posterior = model.with_data(data, block_size=SIZE)
    evaluator, n = posterior.population.evaluator(), len(posterior.blocks)
    theta = draw_points(np.random.default_rng(0), posterior.full, n_points=1)[0]
    some = np.unique(np.linspace(0, n - 1, BLOCKS).astype(np.int32))
    shared = microseconds(lambda: evaluator.global_log_density(theta))
    block = microseconds(lambda: evaluator.block_log_lik(theta, some), len(some)) - shared / len(some)
    slope = microseconds(lambda: evaluator.block_gradients(theta, some), len(some), tries=3)
    return f"| {what} | {n:,} | {shared:.1f} | {block:.1f} | {slope:.1f} |"


def main() -> None:
    """Print the table."""
    print(
        f"| blocks of {SIZE} | blocks | global part, us | block, us | gradient of a block, us |\n|---|---|---|---|---|"
    )
    for name, (file, simulate) in WORKLOADS.items():
        model, data = compile_model(file), simulate(np.random.default_rng(1))
        print(row(replace(model, divided=None), data, what=f"{name}, whole"), flush=True)
        print(row(model, data, what=f"{name}, in parts"), flush=True)


if __name__ == "__main__":
    main()
