"""Posteriors of numpy functions as input of `sample`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stansub.errors import InputError
from stansub.output.layout import Layout
from stansub.stan.analysis import Analysis
from stansub.stan.data import Data
from stansub.stan.posterior import Posterior
from stansub.stan.proof import Proof, draw_points
from stansub.stan.recognise import Form
from stansub.stan.syntax import Program
from stansub.target.functions import FunctionFactors
from stansub.types import FloatArray


@dataclass(frozen=True)
class FunctionRecipe:
    """Recipe for a posterior whose functions can be pickled."""

    factors: FunctionFactors

    def make(self, progress: Callable[[str], None] | None = None) -> Posterior:
        """Return the posterior."""
        return posterior_of(self.factors)


def posterior_of(factors: FunctionFactors) -> Posterior:
    """Return the posterior of functions for sampling; it needs no proof, because its factors define it.

    Instead of code and data, log densities at a few points, to ten digits, identify it.
    """
    full = _Whole(factors)
    points = draw_points(np.random.default_rng(0), full)
    facts = {
        "names": factors.names,
        "n_observations": factors.blocks.n_observations,
        "log_density": [f"{full.log_density(theta):.9e}" for theta in points],
    }
    return Posterior(
        full=full,
        population=factors,
        order=None,
        proof=Proof(0, 0.0),
        name=factors.name,
        analysis=Analysis.of(Program("")),
        form=Form("functions"),
        values=Data(facts, (), factors.name),
        sizes=(),
        points=points,
        has_gradients=factors.has_gradients,
        known_predictors=factors.known_predictors,
    )


@dataclass(frozen=True)
class _Copier:
    """Writes parameters, which are the unconstrained ones."""

    columns: NDArray[np.int64]

    def write(self, theta: FloatArray, out: FloatArray, stop: NDArray[np.int32]) -> tuple[int, bytes]:
        out[:] = theta[:, self.columns]
        return len(theta), b""


class _Whole:
    """The whole log density, with the methods of a compiled program for reading and writing."""

    def __init__(self, factors: FunctionFactors) -> None:
        self._factors = factors
        self.dim = factors.dim

    def info(self) -> str:
        return ""

    def rng(self, seed: int) -> None:
        """Return None: there are no generated quantities."""

    def log_density(self, theta: FloatArray) -> float:
        return self._factors.log_density(theta)

    def log_densities(self, points: Sequence[FloatArray]) -> list[tuple[float, str]]:
        """Return log densities at some points, without messages."""
        return self._factors.log_densities(points)

    def log_density_or_message(self, theta: FloatArray) -> tuple[float, str]:
        return self.log_density(theta), ""

    def param_unc_names(self) -> list[str]:
        return self._factors.names

    def param_names(self, *, include_tp: bool = False, include_gq: bool = False) -> list[str]:
        return self._factors.names

    def param_constrain(
        self,
        theta: FloatArray,
        *,
        include_tp: bool = False,
        include_gq: bool = False,
        rng: Any = None,
        out: FloatArray | None = None,
    ) -> FloatArray:
        if out is None:
            return np.array(theta)
        out[:] = theta
        return out

    def writer(
        self, *, include_tp: bool, include_gq: bool, rng: Any, n_written: int, columns: NDArray[np.int64]
    ) -> _Copier:
        return _Copier(columns)

    def param_unconstrain_json(self, values: bytes) -> FloatArray:
        given, theta = orjson.loads(values), np.empty(self.dim)
        for name, places in Layout.from_names(self._factors.names).columns.items():
            try:
                theta[places] = np.asarray(given[name], np.float64).reshape(places.shape)
            except (TypeError, ValueError) as error:
                raise InputError(f"{name} must be {places.shape or 'a number'}, in numbers ({error})") from error
        return theta
