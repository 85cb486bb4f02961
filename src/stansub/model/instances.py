"""Block log likelihoods from many small instances of the user's own compiled program.

A block's log density is that of the program with the block's observations as its whole data; less the global part it
is the block's log likelihood. The global part is the program without observations or, where it does not take none,
the log density of one observation plus that of another less that of both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stansub import _loop
from stansub.errors import InputError
from stansub.model.blocks import Blocks
from stansub.model.data import Data
from stansub.program.library import FloatArray, Library, Model, addresses

# Instances a construction task makes before it looks at the progress callback again.
_CHUNK = 256


@dataclass(frozen=True)
class Slicer:
    """How data are cut: the size variables and, for each variable along them, the axis."""

    data: Data
    sizes: tuple[str, ...]
    axes: dict[str, int]

    def model(self, library: Library, start: int, stop: int) -> Model:
        """Instance of the program with the observations ``start`` to ``stop - 1``."""
        return library.model(self.data.cut(self.axes, self.sizes, start, stop))


@dataclass(frozen=True)
class Instances:
    """One model a block, and the one or three models of the global part."""

    library: Library
    slicer: Slicer
    blocks: Blocks
    models: tuple[Model, ...]
    global_models: tuple[Model, ...]

    @property
    def dim(self) -> int:
        """Number of unconstrained parameters."""
        return self.global_models[0].dim

    def evaluator(self) -> _loop.InstanceEvaluator:
        """An evaluator for one chain; the models are shared between chains."""
        return self._evaluator(self.models)

    def each(self, theta: FloatArray, places: NDArray[np.int64]) -> FloatArray:
        """Log likelihoods of single observations, shape (len(places),)."""
        models = [self.slicer.model(self.library, place, place + 1) for place in places.tolist()]
        return self._evaluator(models).block_log_lik(theta)

    def _evaluator(self, models: Sequence[Model]) -> _loop.InstanceEvaluator:
        return _loop.InstanceEvaluator(
            self.dim,
            addresses(models),
            addresses(self.global_models),
            self.library.address("bs_log_density"),
            self.library.address("bs_free_error_msg"),
        )


def global_models(
    library: Library, slicer: Slicer, points: Sequence[FloatArray], *, n_observations: int
) -> tuple[Model, ...]:
    """Models whose log densities give the global part: none observed or, failing that, rows 1, 2, and both.

    ``points`` are unconstrained parameters at which the program without observations must agree with the
    difference formula; data blocks with ``int<lower=1> N`` and likelihoods that are undefined without observations
    (``mean(y)``) do not.
    """
    # With a single observation it stands for both.
    pair = slicer.data.take(slicer.axes, np.array([0, min(1, n_observations - 1)]))
    few = Slicer(pair, slicer.sizes, slicer.axes)
    rows = tuple(few.model(library, start, stop) for start, stop in ((0, 1), (1, 2), (0, 2)))
    try:
        empty = slicer.model(library, 0, 0)
    except InputError:
        return rows
    if empty.dim != rows[0].dim:
        return rows
    for point in points:
        first, second, both = (model.log_density(point) for model in rows)
        alone, difference = empty.log_density(point), first + second - both
        if not np.isfinite(difference):
            continue
        if not abs(alone - difference) <= 1e-10 * (abs(first) + abs(second) + abs(both) + abs(alone)):
            return rows
    return (empty,)


def build(
    library: Library,
    slicer: Slicer,
    blocks: Blocks,
    global_part: tuple[Model, ...],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Instances:
    """Make the instances of all blocks.

    Raises
    ------
    InputError
        When the program rejects the data of some block.
    """
    starts, stops = blocks.starts.tolist(), blocks.stops.tolist()

    def chunk(first: int) -> list[Model]:
        last = min(first + _CHUNK, len(blocks))
        return [slicer.model(library, starts[block], stops[block]) for block in range(first, last)]

    models: list[Model] = []
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        for part in pool.map(chunk, range(0, len(blocks), _CHUNK)):
            models += part
            if progress is not None:
                progress(len(models), len(blocks))
    if any(model.dim != global_part[0].dim for model in models):
        raise InputError(
            "the number of parameters changes with the number of observations (one parameter per observation), "
            "so blocks of observations do not share one posterior"
        )
    return Instances(library, slicer, blocks, tuple(models), global_part)
