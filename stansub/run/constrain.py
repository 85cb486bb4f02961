"""Constrained values of draws: parameters, transformed parameters and generated quantities."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stansub import clock, memory, streams
from stansub.errors import InputError
from stansub.output.layout import Layout
from stansub.progress import Progress
from stansub.run.config import SampleConfig
from stansub.stan.posterior import Posterior
from stansub.stan.syntax import Program
from stansub.types import FloatArray


@dataclass(frozen=True)
class SavedQuantities:
    """Variables and draws of a run that go into the output."""

    generated_quantities: bool = True
    """Whether to keep transformed parameters and generated quantities."""
    observation_level: bool = False
    """Whether to keep those of them that have a value per observation."""
    save_warmup: bool = False
    """Whether to keep the draws of warmup."""
    saved: frozenset[str] = frozenset()
    """The only variables to keep; all if empty."""
    dropped: frozenset[str] = frozenset()
    """Variables to leave out."""

    @classmethod
    def of(cls, config: SampleConfig) -> SavedQuantities:
        """Return what the options request."""
        saved, dropped = (frozenset(str(names).split(",") if names else ()) for names in (config.save, config.drop))
        return cls(config.generated_quantities, config.observation_level, config.save_warmup, saved, dropped)

    @staticmethod
    def known(program: Program) -> list[str]:
        """Return the variables of a program that may be kept."""
        blocks = (program.parameters, program.transformed_parameters, program.generated_quantities)
        return [one.name for block in blocks for one in block.declarations]

    def check(self, known: Sequence[str]) -> None:
        """Raise InputError if a name is not that of a known variable."""
        if unknown := sorted((self.saved | self.dropped) - set(known)):
            option = "save" if unknown[0] in self.saved else "drop"
            raise InputError(f"`{option}={unknown[0]}`: no such variable; the program has {', '.join(known)}")

    @property
    def log_likelihood(self) -> bool:
        """Return whether ``log_lik`` has its own group."""
        return self.observation_level or LOG_LIK in self.saved

    def unsaved(self, posterior: Posterior) -> list[str]:
        """Return variables with a value per observation that are left out because nobody requested them."""
        if self.observation_level or not self.generated_quantities or self.saved:
            return []
        return [one for one in _tall(posterior) if one not in self.dropped]

    def left_out(self, posterior: Posterior) -> set[str]:
        """Return names of the variables that are not kept.

        Raises
        ------
        InputError
            If a name matches no variable, or nothing would be kept.
        """
        known = self.known(posterior.program)
        known = known or list(Layout.from_names(posterior.full.param_names()).names)  # a posterior of functions
        self.check(known)
        out = set(self.unsaved(posterior)) | self.dropped | (set(known) - self.saved if self.saved else set())
        if self.saved | self.dropped and not set(known) - out - {LOG_LIK}:
            raise InputError("`save` and `drop` leave no variable: keep at least one in addition to log_lik")
        return out


PARAMETERS = SavedQuantities(generated_quantities=False)

# The variable with which ArviZ compares models.
LOG_LIK = "log_lik"


# Dimensions of every group of draws in ArviZ's schema, which no variable may have as a name.
DIMENSIONS = ("chain", "draw")


# Bytes per step of statistics, and bytes for the summary and for writing small files.
_STATISTICS, _SUMMARY = 25, 50 * 10**6
# How much more the suggested thinning saves than is needed, for what does not depend on the number of draws.
_MARGIN = 1.1
# Numbers of a variable from which leaving it out is suggested.
_LARGE = 1_000
# Parts of a chain after each of which progress is recorded.
_PARTS = 100


def check_draws(
    posterior: Posterior, *, chains: int, draws: int, warmup: int, kept: SavedQuantities, folder: Path | None = None
) -> None:
    """Raise InputError for draws that will not fit, before they are made.

    Parameters
    ----------
    folder : Path, optional
        Folder of the files that receive the draws, if they need not all be in memory.

    Raises
    ------
    InputError
        If the draws need more memory or disk than there is, or a variable has the name of a dimension.
    """
    plan = _Values.of(posterior, kept)
    for name in plan.layout.names:
        if name in DIMENSIONS:
            raise InputError(
                f"{posterior.name}: the variable {name!r} has the same name as a dimension in ArviZ's schema; rename it"
            )
    if folder is not None:
        # Checkpoint and output each hold every draw.
        row = 2 * (8 * posterior.dim + _STATISTICS) + written_bytes(posterior, kept)
        needed, free = chains * draws * row, shutil.disk_usage(folder).free
        if needed > free:
            raise InputError(
                f"the draws would take about {memory.amount(needed)} on disk, but {memory.amount(free)} are free in "
                f"{folder}; {_remedy(plan.layout, kept, times=needed / free)}"
            )
        return
    needed, room = memory_needed(posterior, chains=chains, draws=draws, warmup=warmup, kept=kept), memory.room()
    if needed > room.size:
        raise InputError(
            f"the draws would take about {memory.amount(needed)} of memory, but {room}; "
            f"{_remedy(plan.layout, kept, times=needed / room.size)}"
        )


def _remedy(layout: Layout, kept: SavedQuantities, *, times: float) -> str:
    """Return what reduces the draws, which are so many times too large."""
    sizes = {name: math.prod(shape) for name, shape in layout.shapes.items()}
    largest, total = max(sizes, key=sizes.__getitem__), sum(sizes.values())
    found = [f"keep fewer with `thin={math.ceil(times * _MARGIN)}`"]
    if sizes[largest] >= max(_LARGE, total / 2) and len(sizes) > 1:
        found.append(
            f"leave out {largest} with `drop={largest}` ({sizes[largest]:,} of the {total:,} numbers of a draw)"
        )
    if kept.observation_level:
        found.append("leave out `observation_level`")
    return ", or ".join(found)


def memory_needed(posterior: Posterior, *, chains: int, draws: int, warmup: int, kept: SavedQuantities) -> int:
    """Return an upper bound of the bytes for draws, up to the written file, besides libraries and data.

    ``draws`` and ``warmup`` are the steps kept of each chain; those of warmup count if they are kept.
    """
    plan, states = _Values.of(posterior, kept), chains * (draws + (warmup if kept.save_warmup else 0))
    column = 8 * chains * draws
    values = column * plan.columns.size
    # Each chain holds positions and statistics, and the merged arrays hold them again.
    together = states * (8 * posterior.dim + _STATISTICS)
    # The file is made in memory. Numbers without a pattern hardly compress, and one variable at a time is copied to be
    # compressed.
    largest = column * max(map(math.prod, plan.layout.shapes.values()), default=0)
    return 2 * values + 3 * together + largest + _SUMMARY


def written_bytes(posterior: Posterior, kept: SavedQuantities) -> int:
    """Return the bytes of a draw's constrained values that are kept."""
    return 8 * _Values.of(posterior, kept).columns.size


@dataclass(frozen=True)
class _Values:
    """The values written by the program that are kept.

    ``columns`` are their indices among all values written; ``layout`` gives their shapes in the same order.
    """

    include_tp: bool
    include_gq: bool
    n_written: int
    layout: Layout
    columns: NDArray[np.int64]

    @classmethod
    def of(cls, posterior: Posterior, kept: SavedQuantities) -> _Values:
        program, model = posterior.program, posterior.full
        out = kept.left_out(posterior)
        # A block is written only if some of it is kept: quantities of size N cost a pass over the data per draw.
        include_tp, include_gq = (
            kept.generated_quantities and any(one.name not in out for one in block.declarations)
            for block in (program.transformed_parameters, program.generated_quantities)
        )
        names = model.param_names(include_tp=include_tp, include_gq=include_gq)
        layout = Layout.from_names(names)
        layout = layout.select(name for name in layout.names if name.partition(":")[0] not in out)
        return cls(include_tp, include_gq, len(names), layout, layout.places)


class Quantities:
    """Computes constrained values of draws in order; generated quantities continue their random stream.

    Attributes
    ----------
    seconds : float
        Seconds that this took so far.
    """

    def __init__(self, posterior: Posterior, n_chains: int, *, kept: SavedQuantities, seed: int, threads: int) -> None:
        self._model, self._plan, self._threads = posterior.full, _Values.of(posterior, kept), threads
        self._errors: list[str] = []
        self.seconds = 0.0
        # Each chain has its own generator, so that generated quantities do not depend on threads.
        streamed = [streams.sequence(seed, streams.Chain.QUANTITIES, chain=chain) for chain in range(n_chains)]
        self._rngs = [self._model.rng(int(one.generate_state(1)[0])) for one in streamed]
        self._writers = [
            self._model.writer(
                include_tp=self._plan.include_tp,
                include_gq=self._plan.include_gq,
                rng=rng,
                n_written=self._plan.n_written,
                columns=self._plan.columns,
            )
            for rng in self._rngs
        ]

    @property
    def trouble(self) -> str:
        """Return a description of the errors, if any."""
        errors = self._errors
        return f"generated quantities of {len(errors):,} draws failed and are NaN ({errors[0]})" if errors else ""

    def of(self, theta: FloatArray, progress: Progress | None = None) -> dict[str, FloatArray]:
        """Return values of the next draws, shape (chain, draw, dim), by variable: each (chain, draw, *shape).

        They are NaN for draws at which the program raised an error. ``progress`` receives the count of the draws.
        """
        plan, began, progress = self._plan, clock.now(), progress or Progress()
        (n_chains, n_draws), done = theta.shape[:2], [0] * len(theta)
        values, stop = np.full((n_chains, n_draws, plan.columns.size), np.nan), np.zeros(1, np.int32)

        def fill(chain: int) -> None:
            for end in self._fill(chain, theta[chain], values[chain], stop):
                done[chain] = end
                progress.advance(sum(done), n_chains * n_draws)

        with ThreadPoolExecutor(max_workers=self._threads) as pool:
            try:
                list(pool.map(fill, range(n_chains)))
            except BaseException:
                stop[0] = 1
                raise
        self.seconds += clock.now() - began
        variables, first = {}, 0
        for name, shape in plan.layout.shapes.items():
            size = math.prod(shape)
            variables[name] = values[:, :, first : first + size].reshape(*theta.shape[:2], *shape)
            first += size
        return variables

    def _fill(self, chain: int, theta: FloatArray, values: FloatArray, stop: NDArray[np.int32]) -> Iterator[int]:
        """Fill in the values of a chain, and yield how many of its draws are done."""
        model, plan, draw, size = self._model, self._plan, 0, math.ceil(len(theta) / _PARTS)
        while draw < len(theta) and not stop[0]:
            part = slice(draw, draw + size)
            done, message = self._writers[chain].write(theta[part], values[part], stop)
            draw += done
            if message:
                self._errors.append(" ".join(message.decode(errors="replace").split()))
                written, parameters = np.full(plan.n_written, np.nan), model.param_constrain(theta[draw])
                written[: parameters.size] = parameters
                values[draw] = written[plan.columns]
                draw += 1
            yield draw


def constrain(
    posterior: Posterior, theta: FloatArray, *, kept: SavedQuantities, seed: int, threads: int
) -> tuple[dict[str, FloatArray], str]:
    """Return constrained values of draws of shape (chain, draw, dim).

    Returns
    -------
    values : dict
        By variable, each (chain, draw, *shape); NaN for draws at which the program raised an error.
    trouble : str
        Description of the errors, if any.
    """
    quantities = Quantities(posterior, len(theta), kept=kept, seed=seed, threads=threads)
    return quantities.of(theta), quantities.trouble


def _tall(posterior: Posterior) -> Iterator[str]:
    """Yield names of transformed parameters and generated quantities with a value per observation."""
    program, sizes = posterior.program, {*posterior.counts, str(posterior.blocks.n_observations)}
    for block in (program.transformed_parameters, program.generated_quantities):
        for declaration in block.declarations:
            if posterior.analysis.is_per_observation(declaration, sizes):
                yield declaration.name
