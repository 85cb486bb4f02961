"""Block log likelihoods from many small instances of a compiled program: the user's own, or one that has it in parts.

The log density of a block is that of the program with the block's observations as its whole data. Less the global part,
it is the block's log likelihood. The global part is the program without observations or, if the program does not accept
that, the log density of one observation plus that of another less that of both. The parts of a program in parts
(`stansub.stan.parts`) are evaluated separately.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from stansub import _loop, memory
from stansub.errors import InputError
from stansub.stan.data.data import Data
from stansub.stan.toolchain.arrays import Arrays
from stansub.stan.toolchain.library import Library, Model, addresses
from stansub.target.blocks import Blocks
from stansub.types import FloatArray, Places

# Memory of instances that are always kept, the share of free memory for those that are evaluated often, and bytes of an
# instance besides its data.
_ALWAYS, _SHARE, _EACH = 32 * 10**6, 4, 4000
# Observations of a block above which making its instance takes no longer than evaluating it a few times.
_LARGE = 256

# Observations per instance when all are evaluated: enough to amortise a call, few enough for autodiff to need little
# memory.
_BULK = 1 << 13


@dataclass(frozen=True)
class Slicer:
    """Makes instances of the program with some of the observations."""

    library: Library
    """The compiled program."""
    data: Data
    """All observations, in the user's order."""
    sizes: tuple[str, ...]
    """Size variables, each of which counts the observations."""
    order: Places | None = None
    """Row of the data at each place; None for the user's order."""
    seed: int = 0

    @cached_property
    def _axes(self) -> dict[str, int]:
        return self.data.axes(self.sizes)

    @cached_property
    def _arrays(self) -> Arrays | None:
        return self.data.arrays(self._axes, self.sizes) if self.library.takes_arrays else None

    @property
    def row_bytes(self) -> int:
        """Return the bytes of the data that belong to one observation."""
        cut = (self.data.values[name] for name in self._axes)
        return int(sum(value.nbytes for value in cut)) // max(1, self.data.integer(self.sizes[0]))

    @property
    def repeated(self) -> int:
        """Return the bytes of the data that every instance holds completely."""
        fixed = (value for name, value in self.data.values.items() if name not in self._axes)
        return sum(value.nbytes for value in fixed if isinstance(value, np.ndarray))

    def model(self, start: int, stop: int) -> Model:
        """Return an instance with the observations at the places ``start`` to ``stop - 1``.

        Raises `InputError` if the data cannot be cut or the program rejects them.
        """
        if self._arrays is not None:
            places = np.arange(start, stop) if self.order is None else self.order[start:stop]
            return self.library.model_of(self._arrays, places, seed=self.seed)
        rows = slice(start, stop) if self.order is None else self.order[start:stop]
        return self.data.rows(self._axes, self.sizes, rows).model(self.library, seed=self.seed)


class BlockModels:
    """Models of blocks, created on request by any thread.

    Parameters
    ----------
    slicers : tuple of Slicer
        Makers of the instances of each sum's blocks, in the order of the sums.
    dim : int
        Number of unconstrained parameters that each must have.
    """

    def __init__(self, slicers: tuple[Slicer, ...], blocks: Blocks, dim: int) -> None:
        self._slicers, self._blocks, self._dim = slicers, blocks, dim
        self._starts, self._stops = blocks.starts, blocks.stops
        self._bytes = _EACH + blocks.size * max(one.row_bytes for one in slicers) + max(s.repeated for s in slicers)
        self._kept: dict[int, Model] = {}
        self._lock = threading.Lock()

    def get(self, block: int, room: int) -> tuple[Model, bool]:
        """Return the model of a block, and whether it is kept; models are kept up to a memory limit.

        Raises `InputError` if the program rejects the data of the block.
        """
        if (known := self._kept.get(block)) is not None:
            return known, True
        made = _model(self._slicers, self._blocks, int(self._starts[block]), int(self._stops[block]))
        if made.dim != self._dim:
            raise InputError(
                "the number of parameters changes with the number of observations (one parameter per observation), "
                "so blocks of observations do not share the same parameters"
            )
        with self._lock:
            if (len(self._kept) + 1) * self._bytes > room:
                return made, False
            return self._kept.setdefault(block, made), True


@dataclass(frozen=True)
class Instances:
    """A model for each block, and the one or three models of the global part."""

    kind: ClassVar[Literal["instances"]] = "instances"

    slicers: tuple[Slicer, ...]
    """Makers of the instances of each sum's blocks, in the order of the sums."""
    blocks: Blocks
    models: BlockModels
    global_models: tuple[Model, ...]
    alone: bool = False
    """Whether the log density of a block's model, without Jacobian, is its log likelihood alone."""
    room: int = _ALWAYS
    """Memory for models that are kept."""

    @property
    def dim(self) -> int:
        """Return the number of unconstrained parameters."""
        return self.global_models[0].dim

    @property
    def needs_no_rows(self) -> bool:
        """Return whether the global part is the program without observations."""
        return len(self.global_models) == 1

    def evaluator(self) -> _loop.InstanceEvaluator:
        """Return an evaluator for one chain; kept models are shared between chains."""
        latest: list[tuple[int, Model]] = []

        def model(block: int) -> tuple[int, bool]:
            if latest and latest[0][0] == block:
                return latest[0][1].pointer, False
            made, kept = self.models.get(block, self.room)
            latest[:] = [] if kept else [(block, made)]  # a model that is not kept lives until the next one
            return made.pointer, kept

        return self._evaluator(len(self.blocks), model)

    def single(self, places: NDArray[np.int64]) -> _loop.InstanceEvaluator:
        """Return an evaluator whose blocks are the observations at these places, one each."""
        models = [_model(self.slicers, self.blocks, place, place + 1) for place in places.tolist()]
        return self._evaluator(len(models), lambda k: (models[k].pointer, True))

    def in_passing(self) -> Instances:
        """Return instances for evaluating each block once or twice, keeping few if making them costs little."""
        return self if self.blocks.size < _LARGE else replace(self, room=min(self.room, _ALWAYS))

    def in_bulk(self) -> Instances:
        """Return few large instances, each of which evaluates the parameters once."""
        if self.blocks.n_observations < 2 * _BULK or 4 * self.blocks.size > _BULK:
            return self
        return made(self.slicers, replace(self.blocks, size=_BULK), self.global_models, alone=self.alone)

    def recut(self, size: int) -> Instances:
        """Return the same observations in blocks of another size, with new instances."""
        return made(self.slicers, replace(self.blocks, size=size), self.global_models, alone=self.alone)

    def _evaluator(self, n: int, model: Callable[[int], tuple[int, bool]]) -> _loop.InstanceEvaluator:
        library = self.slicers[0].library
        return _loop.InstanceEvaluator(
            self.dim,
            n,
            model,
            addresses(self.global_models),
            library.address("bs_log_density"),
            library.address("bs_free_error_msg"),
            owner=self,
            log_density_gradient_address=library.address("bs_log_density_gradient"),
            alone=self.alone,
        )


def build(slicer: Slicer, blocks: Blocks, points: Sequence[FloatArray]) -> Instances:
    """Return the instances of all blocks and of the global part, from the user's program.

    Its log density must be finite at the ``points``. Raises `InputError` if it rejects the data of the first block.
    """
    shared = _global_models(slicer, points, n_observations=blocks.n_observations)
    return made((slicer,), blocks, shared)


def made(slicers: tuple[Slicer, ...], blocks: Blocks, shared: tuple[Model, ...], *, alone: bool = False) -> Instances:
    """Return the instances of all blocks, given those of the global part; arguments are fields of `Instances`.

    Raises `InputError` if the program rejects the data of the first block, or memory does not hold instances.
    """
    _check_memory(slicers, blocks)
    models, room = BlockModels(slicers, blocks, shared[0].dim), max(_ALWAYS, memory.room().size // _SHARE)
    models.get(0, room)
    return Instances(slicers, blocks, models, shared, alone, room)


def _check_memory(slicers: Sequence[Slicer], blocks: Blocks) -> None:
    """Raise an error if each instance holds much uncut data, such as all data behind an index of observations."""
    each = max(slicer.repeated for slicer in slicers)
    free = memory.room()
    if each * len(blocks) > free.size:
        raise InputError(
            f"each of {len(blocks):,} blocks would hold {memory.amount(each)} of data that are not cut along the "
            f"observations, and {free}: use a larger `block_size`, or index the data by observation in the program"
        )


def _model(slicers: Sequence[Slicer], blocks: Blocks, start: int, stop: int) -> Model:
    """Return the instance with these observations, which are terms of one sum."""
    first = 0
    for slicer, n in zip(slicers, blocks.sums, strict=False):
        if start < first + n:
            return slicer.model(start - first, stop - first)
        first += n
    return slicers[0].model(start, stop)


def _global_models(slicer: Slicer, points: Sequence[FloatArray], *, n_observations: int) -> tuple[Model, ...]:
    """Return models of the global part: no observations or, failing that, rows 1, 2, and both.

    The program without observations must agree with the difference formula at ``points``. Data blocks with
    ``int<lower=1> N`` and likelihoods that are undefined without observations (``mean(y)``) do not.
    """
    # A single observation stands for both.
    two = np.array([0, min(1, n_observations - 1)])
    pair = replace(slicer, order=two if slicer.order is None else slicer.order[two])
    rows = tuple(pair.model(start, stop) for start, stop in ((0, 1), (1, 2), (0, 2)))
    try:
        empty = slicer.model(0, 0)
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
