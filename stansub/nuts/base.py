"""Interface of the NUTS engines: the program, the settings and the results."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray
from rich.console import Console

from stansub.stan import syntax
from stansub.stan.analysis import Analysis
from stansub.stan.data.data import Data
from stansub.stan.toolchain import stanc


@dataclass(frozen=True)
class Program:
    """A Stan program as text."""

    name: str
    """Name in messages and files."""
    code: str
    """The program in stanc's canonical form, as in the attribute ``model_code`` of draws."""

    @classmethod
    def read(cls, path: str | Path) -> Program:
        """Return the program of a ``.stan`` file, with includes resolved.

        Raises
        ------
        InputError
            If the file cannot be read or is not a valid Stan program.
        """
        return cls(Path(path).stem, stanc.canonical(Path(path)))

    @cached_property
    def syntax(self) -> syntax.Program:
        """Return the parsed program."""
        return syntax.parse(self.code)

    @property
    def hash(self) -> str:
        """Return the hash of the code, as in the attribute ``model_hash`` of draws."""
        return hashlib.sha256(self.code.encode()).hexdigest()[:16]

    def n_observations(self, data: Data) -> int | None:
        """Return the number of observations, as far as the text shows; None if nothing counts them."""
        analysis = Analysis.of(self.syntax)
        if analysis.table:
            return math.prod(map(data.integer, analysis.table))
        return data.integer(analysis.size) if analysis.size else None

    def observation_level(self, data: Data) -> dict[str, int]:
        """Return transformed parameters and generated quantities with a value per observation, with their lengths."""
        analysis, n = Analysis.of(self.syntax), self.n_observations(data)
        integers = {one.name for one in data.declarations if one.base == "int" and not one.all_dims}
        sizes = {name for name in integers if data.integer(name) == n} | {str(n)}
        blocks = (self.syntax.transformed_parameters, self.syntax.generated_quantities)
        tall = [one for block in blocks for one in block.declarations if analysis.is_per_observation(one, sizes)]

        def length(dim: str) -> int:
            return int(dim) if dim.isdigit() else data.integer(dim) if dim in integers else 1

        return {one.name: math.prod(map(length, one.sizes)) for one in tall}


@dataclass(frozen=True)
class Settings:
    """Settings of NUTS, named as in CmdStan."""

    chains: int
    parallel_chains: int
    iter_warmup: int
    iter_sampling: int
    seed: int
    adapt_delta: float
    max_treedepth: int


class Missing(NamedTuple):
    """Why an engine cannot be used, and the remedy."""

    what: str
    remedy: str


class Run(NamedTuple):
    """Results of an engine."""

    posterior: Mapping[str, NDArray[Any]]
    sample_stats: Mapping[str, NDArray[Any]]
    """Draws and statistics after warmup, shape (chain, draw, ...) by name; the statistics have ArviZ's names."""
    warmup_time: Sequence[float]
    sampling_time: Sequence[float]
    """Seconds of each chain."""
    warmup_n_gradients: Sequence[int]
    n_gradients: Sequence[int]
    """Leapfrog steps of each chain, each with one gradient of the log density; empty for samplers without."""
    time_split: str
    """How the seconds of warmup and sampling were separated: "measured", or "by gradient evaluations"."""
    compile_time: float
    setup_time: float
    wall_time: float
    """Seconds for compiling, for passing the data (if that can be separated), and for all chains together."""
    version: str
    """The engine's version."""
    method: str = "NUTS"
    """The algorithm, such as NUTS."""
    counts: Mapping[str, Sequence[int]] = MappingProxyType({})
    """Other counts of each chain, named as in `stansub.sample`: ``n_obs_evaluated`` and others."""
    facts: Mapping[str, str] = MappingProxyType({})
    """Other facts about the draws, named as in `stansub.sample`, such as the test."""


class Engine(Protocol):
    """Engine that makes reference draws: an object, or a module with these two functions."""

    def unavailable(self) -> Missing | None:
        """Return why the engine cannot be used; None if it can."""

    def run(self, program: Program, data: Data, settings: Settings, *, console: Console, show: bool) -> Run:
        """Return draws and statistics of all chains."""
