"""Constrained values of draws: parameters, transformed parameters and generated quantities."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stansub.errors import InputError, RunError
from stansub.model.posterior import Posterior
from stansub.output.layout import Layout
from stansub.program.library import FloatArray


@dataclass(frozen=True)
class Kept:
    """What of a run goes into the output.

    Attributes
    ----------
    generated_quantities : bool
        Transformed parameters and generated quantities.
    observation_level : bool
        Those of them that have a value per observation.
    save_warmup : bool
        The draws of warmup.
    """

    generated_quantities: bool = True
    observation_level: bool = False
    save_warmup: bool = False


PARAMETERS = Kept(generated_quantities=False)


# Dimensions of every group of draws in ArviZ's schema, so that no variable can be called so.
_DIMENSIONS = ("chain", "draw")


def check_draws(posterior: Posterior, *, chains: int, draws: int, kept: Kept) -> None:
    """Refuse draws that cannot be kept, before they are made.

    Raises
    ------
    InputError
        When the draws take more than half of the machine's memory, or a variable has the name of a dimension.
    """
    plan = _Values.of(posterior, kept)
    for name in plan.layout.names:
        if name in _DIMENSIONS:
            raise InputError(
                f"{posterior.name}: the variable {name!r} has the name of a dimension in ArviZ's schema; rename it"
            )
    needed = 8.0 * chains * draws * (plan.columns.size + 2 * posterior.dim)
    memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) if hasattr(os, "sysconf") else np.inf
    if needed > memory / 2:
        raise InputError(
            f"the draws would take {needed / 1e9:,.1f} GB of memory, of which there are {memory / 1e9:,.1f} GB; "
            f"keep fewer with --thin{', or leave out --observation-level' if kept.observation_level else ''}"
        )


@dataclass(frozen=True)
class _Values:
    """Which of the values that the program writes are kept.

    ``columns`` are their places among all those written, ``layout`` gives their shapes in the same order.
    """

    include_tp: bool
    include_gq: bool
    n_written: int
    layout: Layout
    columns: NDArray[np.int64]

    @classmethod
    def of(cls, posterior: Posterior, kept: Kept) -> _Values:
        program, model = posterior.program, posterior.full
        tall = set() if kept.observation_level else set(_tall(posterior))
        # A block is written only if something of it is wanted: N-sized quantities cost a pass over the data a draw.
        include_tp, include_gq = (
            kept.generated_quantities and any(one.name not in tall for one in block.declarations)
            for block in (program.transformed_parameters, program.generated_quantities)
        )
        names = model.param_names(include_tp=include_tp, include_gq=include_gq)
        layout = Layout.from_names(names)
        layout = layout.select(name for name in layout.names if name.partition(":")[0] not in tall)
        columns = np.concatenate([places.ravel() for places in layout.columns.values()])
        return cls(include_tp, include_gq, len(names), layout, columns)


def constrain(
    posterior: Posterior, theta: FloatArray, *, kept: Kept, seed: int, threads: int
) -> tuple[dict[str, FloatArray], str]:
    """Constrained values of draws of shape (chain, draw, dim).

    Returns
    -------
    values : dict
        By variable, each (chain, draw, *shape); NaN where the program raised an error.
    trouble : str
        What errors there were, if any.
    """
    model, plan = posterior.full, _Values.of(posterior, kept)
    values = np.full((*theta.shape[:2], plan.columns.size), np.nan)
    errors: list[str] = []
    cancelled = threading.Event()

    def one(chain: int) -> None:
        # Each chain has a generator of its own, so that generated quantities do not depend on threads.
        state = np.random.SeedSequence(seed, spawn_key=(1 + chain, 3)).generate_state(1)
        rng, out = model.library.rng(int(state[0])), np.empty(plan.n_written)
        for draw in range(theta.shape[1]):
            if cancelled.is_set():
                return
            try:
                model.param_constrain(
                    theta[chain, draw], include_tp=plan.include_tp, include_gq=plan.include_gq, rng=rng, out=out
                )
            except RunError as error:
                errors.append(" ".join(str(error).split()))
                out[:] = np.nan
                parameters = model.param_constrain(theta[chain, draw])
                out[: parameters.size] = parameters
            values[chain, draw] = out[plan.columns]

    with ThreadPoolExecutor(max_workers=threads) as pool:
        try:
            list(pool.map(one, range(theta.shape[0])))
        except BaseException:
            cancelled.set()
            raise
    variables, first = {}, 0
    for name, shape in plan.layout.shapes.items():
        size = math.prod(shape)
        variables[name] = values[:, :, first : first + size].reshape(*theta.shape[:2], *shape)
        first += size
    trouble = f"generated quantities of {len(errors):,} draws failed and are NaN ({errors[0]})" if errors else ""
    return variables, trouble


def _tall(posterior: Posterior) -> Iterator[str]:
    """Names of transformed parameters and generated quantities with a value per observation."""
    sizes, program = _tall_sizes(posterior), posterior.program
    for block in (program.transformed_parameters, program.generated_quantities):
        for declaration in block.declarations:
            if set(declaration.all_dims) & sizes:
                yield declaration.name


def _tall_sizes(posterior: Posterior) -> set[str]:
    """Expressions that give the number of observations as a dimension."""
    return {*posterior.sizes, str(posterior.blocks.n_observations)}
