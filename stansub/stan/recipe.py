"""Recipes of posteriors as values, from which another process makes the same posterior."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from stansub.errors import RunError
from stansub.progress import as_progress
from stansub.stan.compilation import compile_model, compile_uncut
from stansub.stan.data.data import Data
from stansub.stan.posterior import Posterior
from stansub.stan.proof import NearPoints
from stansub.stan.source import Source
from stansub.types import FloatArray


@dataclass(frozen=True)
class PosteriorRecipe:
    """A posterior without its libraries and evaluators; it can be pickled."""

    source: Source
    values: Data
    """The data in the user's order."""
    block_size: int
    seed: int
    """Seed of the shuffle and of ``transformed data``."""
    observations: str | None
    """Name of the data variable that counts the observations, if given."""
    points: Sequence[FloatArray]
    """Unconstrained parameters at which the cut was proved."""
    evaluator: Literal["instances", "uncut"]

    @classmethod
    def of(cls, posterior: Posterior) -> PosteriorRecipe:
        """Return the recipe of a posterior."""
        kind = posterior.population.kind
        if kind == "functions" or kind == "partitions":
            raise RunError(f"{posterior.name}: a posterior of {kind} cannot be rebuilt from a program and data")
        return cls(
            Source(posterior.name, posterior.program.code, posterior.program),
            posterior.values,
            posterior.blocks.size,
            posterior.seed,
            posterior.observations,
            posterior.points,
            kind,
        )

    def make(self, progress: Callable[[str], None] | None = None) -> Posterior:
        """Return the posterior; its program need not be compiled if the user's cache is shared.

        Raises `RunError` if the posterior has another cut of the data.
        """
        near = NearPoints(self.points)
        if self.evaluator == "uncut":
            posterior, _ = compile_uncut(
                self.source,
                self.values,
                seed=self.seed,
                observations=self.observations,
                near=near,
                progress=as_progress(progress),
            )
            return posterior
        compiled = compile_model(self.source, progress=progress)
        posterior = compiled.with_data(
            self.values,
            block_size=self.block_size,
            seed=self.seed,
            observations=self.observations,
            near=near,
            progress=progress,
        )
        if posterior.blocks.size != self.block_size:
            raise RunError(
                f"{self.source.name}: after rebuilding, blocks have {posterior.blocks.size} observations, not "
                f"{self.block_size}"
            )
        return posterior
