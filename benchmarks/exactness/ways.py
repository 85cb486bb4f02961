"""The ways of sampling that are held against the references: exact ones, and approximate tests at their defaults."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from posteriors import Posterior

import stansub
from stansub.errors import DrawsWarning

Array = NDArray[np.float64]

# Every second step is kept: more would tell next to nothing.
_CHAINS, _THIN = 4, 2
_ALWAYS: dict[str, Any] = {"chains": _CHAINS, "thin": _THIN, "audit": 0.0, "show_progress": False}


class Sampled(NamedTuple):
    """Draws of shape (chain, draw, parameter), and the observations evaluated for a decision where they are counted."""

    draws: Array
    evaluated: float | None = None


@dataclass(frozen=True)
class Way:
    """A way of sampling.

    Attributes
    ----------
    name, about : str
    exact : bool
        Whether its draws are to be from the posterior itself.
    share : float
        Of the steps of the factorised sampler.
    options : mapping
        Of `stansub.sample`.
    """

    name: str
    about: str
    exact: bool = False
    share: float = 0.25
    options: Mapping[str, Any] = field(default_factory=dict)

    def sample(self, posterior: Posterior, effective: float, seed: int) -> Sampled:
        """About so many effective draws times the share."""
        steps = int(self.share * posterior.steps * effective / _CHAINS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DrawsWarning)
            idata = stansub.sample(
                compiled(posterior.program), posterior.data, iter_sampling=steps, seed=seed, **_ALWAYS, **self.options
            )
        return Sampled(draws_of(idata), float(idata["sample_stats"]["n_obs_used"].mean()))


@cache
def compiled(program: Path) -> stansub.CompiledModel:
    """A compiled program, once."""
    return stansub.compile_model(program)


def nuts(posterior: Posterior, draws: int, seed: int) -> Sampled:
    """Draws of NUTS."""
    size = {"chains": _CHAINS, "iter_sampling": draws // _CHAINS}
    idata = stansub.reference(
        posterior.program, posterior.data, engine="nutpie", seed=seed, show_progress=False, **size
    )
    return Sampled(draws_of(idata))


def draws_of(idata: Any) -> Array:
    """All parameters behind one another."""
    parts = [idata["posterior"][name].values for name in ("alpha", "beta")]
    return np.concatenate([one.reshape(*one.shape[:2], -1) for one in parts], axis=2)


_PLAIN = {"control_variates": 0, "proposal": "adaptive-metropolis"}

WAYS = {
    way.name: way
    for way in (
        Way("factorised", "proved bounds", True, 1.0, {"test": "factorised"}),
        Way("exact", "all the data", True, 0.5, {"test": "exact"}),
        Way("pocock", "its default, epsilon = 0.005", options={"test": "pocock"}),
        Way("austerity", "epsilon = 0.05", options={"test": "austerity", "epsilon": 0.05}),
        Way(
            "austerity, plain",
            "epsilon = 0.05, random walk without control variates",
            options={"test": "austerity", "epsilon": 0.05, **_PLAIN},
        ),
        Way("penalty", "its default", options={"test": "penalty"}),
        Way("barker", "its default", options={"test": "barker"}),
    )
}
