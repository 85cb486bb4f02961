"""Block log likelihoods from one library whose likelihood runs over blocks chosen from outside."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from stansub import _loop
from stansub.stan.library import Model, Rng
from stansub.target.blocks import Blocks


@dataclass(frozen=True)
class LoopEvaluator:
    """The block program (`stansub.stan.rewrite.block_program`) with data."""

    kind: ClassVar[Literal["rewritten"]] = "rewritten"

    model: Model
    rng: Rng
    blocks: Blocks

    @property
    def dim(self) -> int:
        """Return the number of unconstrained parameters."""
        return self.model.dim

    def evaluator(self) -> _loop.LibraryEvaluator:
        """Return an evaluator for one chain, with its own scratch space; model and data are shared."""
        return self._evaluator(self.blocks.starts.astype(np.int32), self.blocks.stops.astype(np.int32))

    def single(self, places: NDArray[np.int64]) -> _loop.LibraryEvaluator:
        """Return an evaluator whose blocks are the observations at these places, one each."""
        starts = places.astype(np.int32)
        return self._evaluator(starts, starts + np.int32(1))

    def in_passing(self) -> LoopEvaluator:
        """Return itself."""
        return self

    def in_bulk(self) -> LoopEvaluator:
        """Return itself: one call evaluates many blocks."""
        return self

    def recut(self, size: int) -> LoopEvaluator:
        """Return the same observations in blocks of another size."""
        return replace(self, blocks=replace(self.blocks, size=size))

    def _evaluator(self, starts: NDArray[np.int32], stops: NDArray[np.int32]) -> _loop.LibraryEvaluator:
        address = self.model.library.address
        return _loop.LibraryEvaluator(
            self.dim,
            self.model.pointer,
            self.rng.pointer,
            self.model.param_num(include_gq=True),
            starts + np.int32(1),
            stops,
            address("bs_param_constrain"),
            address("bs_log_density"),
            address("bs_free_error_msg"),
            address("stansub_set_blocks"),
            owner=self,
            log_density_gradient_address=address("bs_log_density_gradient"),
        )


def count_units(model: Model, rng: Rng) -> int:
    """Return the number of observations (units of the sum) that the block program announces."""
    handle = model.library.handle
    announce = handle.stansub_n_units
    announce.restype = ctypes.c_int
    announce.argtypes = []
    set_blocks = handle.stansub_set_blocks
    set_blocks.restype = None
    set_blocks.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    # With an empty list, the program evaluates no likelihood and still announces the number of units.
    set_blocks(None, None, 0, None)
    try:
        model.log_density_or_message(np.zeros(model.dim))
        model.param_constrain(np.zeros(model.dim), include_gq=True, rng=rng)
    finally:
        set_blocks(None, None, -1, None)
    return int(announce())
