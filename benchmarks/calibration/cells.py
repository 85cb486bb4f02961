"""The ways of sampling that are tried on every model, and three that are wrong on purpose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from workloads import Simulate, Values

from stansub.acceptance.names import TEST_NAMES
from stansub.tuning.proposal_names import PROPOSALS

Array = NDArray[np.float64]

# Two chains in one thread: workers share the cores among them.
_ALWAYS: Values = {"chains": 2, "parallel_chains": 1, "generated_quantities": False}
_MOVES: Values = {"iter_warmup": 500, "iter_sampling": 2000}
_WALKS: Values = {"iter_warmup": 1000, "iter_sampling": 5000}
# Programs without functions that bound their observations: the range is that of all remainders, which is evaluated.
_BOUND: Values = {"range_source": "scan", "control_variates": 2}
_LOOSE: Values = {"test": "austerity", "epsilon": 0.3, "first_look": 5, "control_variates": 0}


CONTROLS = {
    "loose austerity": "an error of 0.3 at each look, the first after 5 blocks, without control variates",
    "wrong ratio": "a random walk that drifts, with a density ratio of 1",
    "data fourfold": "the sampler gets every observation four times, as where an estimate is scaled up once too often",
}


@dataclass(frozen=True)
class Cell:
    """A way of sampling.

    Attributes
    ----------
    name : str
    kind : {"test", "proposal", "control"}
    options : mapping
        Of `stansub.sample`.
    copies : int
        How often the sampler gets every observation.
    """

    name: str
    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    copies: int = 1

    def sampler_of(self, simulate: Simulate) -> Simulate:
        """The simulation as the sampler gets to see it."""

        def seen(rng: np.random.Generator) -> tuple[Values, Values]:
            values, data = simulate(rng)
            return values, copied(data, self.copies)

        return seen


@dataclass(frozen=True)
class SkewedWalk:
    """A random walk that drifts and does not say so: its log density ratio should be that of the two directions."""

    scale: float = 0.05
    drift: float = 1.0

    def __call__(self, rng: np.random.Generator, position: Array) -> tuple[Array, float]:
        return position + self.scale * (self.drift + rng.standard_normal(position.size)), 0.0


def copied(data: Values, copies: int) -> Values:
    """Data in which every observation stands so many times."""
    n = data["N"]
    repeated = {
        name: np.concatenate([value] * copies) for name, value in data.items() if np.ndim(value) and len(value) == n
    }
    return {**data, **repeated, "N": copies * n}


def _cells() -> Iterator[Cell]:
    for name in TEST_NAMES:
        needs = _BOUND if name in ("hoeffding", "bernstein", "bernstein-serfling") else {}
        yield Cell(name, "test", {**_ALWAYS, **_MOVES, **needs, "test": name})
    for name, proposal in PROPOSALS.items():
        if name != "auto":  # that of the tests
            length = _WALKS if name in ("adaptive-metropolis", "random-walk") else _MOVES
            test = {} if proposal.splits else {"test": "pocock"}
            yield Cell(name, "proposal", {**_ALWAYS, **length, **test, "proposal": name})
    walk = {**_ALWAYS, **_WALKS, "proposal": "adaptive-metropolis"}
    yield Cell("loose austerity", "control", {**walk, **_LOOSE})
    yield Cell("wrong ratio", "control", {**_ALWAYS, **_MOVES, "test": "pocock", "proposal": SkewedWalk()})
    yield Cell("data fourfold", "control", {**_ALWAYS, **_MOVES, "test": "pocock"}, copies=4)


CELLS = {cell.name: cell for cell in _cells()}
SMALL = ("pocock", "exact", "adaptive-metropolis", *(cell.name for cell in CELLS.values() if cell.kind == "control"))
