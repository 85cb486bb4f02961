"""A program with more data than one of its models should hold, evaluated in consecutive shares of the rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from stansub.errors import InputError
from stansub.stan.data.data import Data
from stansub.stan.instances import Slicer
from stansub.stan.proof import Whole
from stansub.stan.syntax import Block, Program, names
from stansub.stan.toolchain.library import Library, Model
from stansub.target.threads import THREADS
from stansub.types import FloatArray

R = TypeVar("R")

# Bytes of data above which a program gets them in shares, bytes of a share, and points with a cached log density.
_LEAST, _SHARE, _REMEMBERED = 64 * 10**6, 4 * 10**6, 16


def writes_rows(written: Sequence[Block], program: Program, data: Data, size: str) -> bool:
    """Return whether some blocks of a program may depend on the observations, as the text shows."""
    of_rows = {size, *data.axes([size]), *(one.name for one in program.transformed_data.declarations)}
    return any(names(*block.statements) & of_rows for block in written)


def _of_model(name: str) -> Any:
    """Return an attribute of one of the programs, which is the same in all: see `Model`."""
    return property(lambda density: getattr(density.model, name))


@dataclass(frozen=True)
class SumOfParts(ABC):
    """A whole log density of which each program has a part, with the parameters and the output of any of them.

    A pass over the data takes a while, so the latest values are remembered.
    """

    _latest: dict[bytes, tuple[float, str]] = field(default_factory=dict, repr=False, compare=False, kw_only=True)

    dim, info, rng, writer, param_names, param_unc_names, param_constrain, param_unconstrain_json = map(
        _of_model,
        ["dim", "info", "rng", "writer", "param_names", "param_unc_names", "param_constrain", "param_unconstrain_json"],
    )

    @property
    @abstractmethod
    def model(self) -> Whole:
        """Return one of the programs."""

    @abstractmethod
    def _evaluated(self, points: Sequence[FloatArray]) -> list[tuple[float, str]]:
        """Return log densities at some points, with messages for errors of the program, in one pass over the data."""

    def log_densities(self, points: Sequence[FloatArray]) -> list[tuple[float, str]]:
        """Return log densities at some points, with messages for errors of the program, in at most one pass."""
        given = {_key(theta): theta for theta in points}
        new = {key: theta for key, theta in given.items() if key not in self._latest}
        if new:
            self._latest.update(zip(new, self._evaluated(list(new.values())), strict=True))
        found = [self._latest[key] for key in map(_key, points)]
        for old in list(self._latest)[:-_REMEMBERED]:
            del self._latest[old]
        return found

    def log_density(self, theta: FloatArray) -> float:
        """Return the log density at ``theta``; nan if the program raises an error or rejects."""
        return self.log_density_or_message(theta)[0]

    def log_density_or_message(self, theta: FloatArray) -> tuple[float, str]:
        """Return the log density; if the program raises an error, nan and its message."""
        return self.log_densities([theta])[0]


@dataclass(frozen=True)
class Shares(SumOfParts):
    """The whole log density of a sum over rows: those of shares, less the repeated global parts.

    The cut into blocks, which are much smaller, proves that it is such a sum. The program with one observation returns
    what does not depend on the observations.
    """

    slicer: Slicer
    n: int
    few: tuple[Model, Model, Model]
    """Models with the first observation, the last, and both."""

    @classmethod
    def of(cls, library: Library, program: Program, data: Data, size: str, *, seed: int) -> Shares | None:
        """Return the program in shares; None if the data are few, or what is written depends on all of them."""
        if size not in data.values or not library.takes_arrays or data.nbytes < _LEAST:
            return None
        try:
            written = (program.parameters, program.transformed_parameters, program.generated_quantities)
            if writes_rows(written, program, data, size):
                return None
            found = cls._of(Slicer(library, data, (size,), seed=seed))
        except InputError:
            return None
        return found if len({model.dim for model in found.few}) == 1 else None

    @classmethod
    def _of(cls, slicer: Slicer) -> Shares:
        n = slicer.data.integer(slicer.sizes[0])
        ends = replace(slicer, order=np.array([0, n - 1]))
        return cls(slicer, n, (ends.model(0, 1), ends.model(1, 2), ends.model(0, 2)))

    def of_library(self, library: Library) -> Shares:
        """Return the shares of another program that writes the same."""
        return self._of(replace(self.slicer, library=library))

    @property
    def model(self) -> Model:
        """Return the program with the first observation."""
        return self.few[0]

    def undivided(self) -> Model:
        """Return the program with all the data."""
        return self.slicer.data.model(self.slicer.library, seed=self.slicer.seed)

    def _evaluated(self, points: Sequence[FloatArray]) -> list[tuple[float, str]]:
        shares = self._map(lambda model: [model.log_density_or_message(theta) for theta in points])
        return [joined(own, self._shared(theta)) for theta, own in zip(points, zip(*shares, strict=True), strict=True)]

    def _shared(self, theta: FloatArray) -> float:
        first, last, both = (model.log_density(theta) for model in self.few)
        return first + last - both

    def log_density_gradient(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """Return the log density and its gradient, shape (dim,); RunError if the program raises an error."""

        def of(model: Model) -> FloatArray:
            value, gradient = model.log_density_gradient(theta)
            return np.array([value, *gradient])

        shares = self._map(of)
        first, last, both = map(of, self.few)
        value, *gradient = np.sum(shares, axis=0) - (len(shares) - 1) * (first + last - both)
        return float(value), np.array(gradient)

    def _map(self, work: Callable[[Model], R]) -> list[R]:
        """Return what ``work`` finds of each share, using threads."""
        rows = max(1, _SHARE // max(1, self.slicer.row_bytes))
        with ThreadPoolExecutor(max_workers=THREADS) as pool:
            starts = range(0, self.n, rows)
            return list(pool.map(lambda start: work(self.slicer.model(start, min(start + rows, self.n))), starts))


def joined(parts: Sequence[tuple[float, str]], shared: float) -> tuple[float, str]:
    """Return the sum of log densities of parts, each with what all share, or the first error's message."""
    undefined = next((one for one in parts if not np.isfinite(one[0])), None)
    return undefined or (sum(value for value, _ in parts) - (len(parts) - 1) * shared, "")


def _key(theta: FloatArray) -> bytes:
    return np.ascontiguousarray(theta, np.float64).tobytes()
