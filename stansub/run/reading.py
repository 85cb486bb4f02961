"""Draws of files and of checkpoints: `stansub.read_checkpoint`, and what the commands read."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from stansub import clock
from stansub.errors import InputError
from stansub.output import files
from stansub.output.inference_data import InferenceData, container, load
from stansub.progress import Progress
from stansub.run import checkpoint, store
from stansub.run.collect import Finished, collect
from stansub.run.executors import Outcome
from stansub.run.partitions import opened
from stansub.run.progress import Display, stage_progress
from stansub.run.sample import check, resumed
from stansub.stan.compilation import compile_model


def read_checkpoint(path: str | Path, *, show_progress: bool | None = None) -> InferenceData:
    """Return the draws of a running or killed run, up to its last checkpoint.

    Parameters
    ----------
    path : path
        The checkpoint, which is only read. If the cache lacks the compiled Stan program, it is compiled.
    show_progress : bool, optional

    Returns
    -------
    InferenceData
        As `sample` returns it. The data file must be unchanged.

    Raises
    ------
    InputError
        If the file is no checkpoint or holds no draws after warmup yet.
    """
    found, display = checkpoint.read(Path(path)), Display.of(show_progress)
    if not any(one.sampling for one in found.chains.values()):
        raise InputError(f"{path} contains no draws after warmup yet")
    config = replace(found.config(), resume=path, console=display.console)
    program, given = found.program(config)
    with contextlib.ExitStack() as partitions:
        with stage_progress(display) as progress:
            points = found.facts(config).points
            data = partitions.enter_context(opened(program, given, config, progress, points=points))
            compiled = compile_model(program, progress=progress)
            ready = resumed(compiled, data, config, found, Progress(), progress)
        setup = ready.prepared.setup.adapted(ready.adaptation)
        outcome = Outcome("" if found.finished else "this is its last checkpoint")
        finished = Finished(ready.chains, outcome, setup, clock.now(), found.seconds)
        with ready.prepared.posterior.values.unchanged():
            idata = collect(ready.prepared, finished, progress, display)
    check(idata)
    return container(idata)


def draws_of(draws: str | Path | InferenceData) -> InferenceData:
    """Return draws, read from their file if this is given.

    Raises
    ------
    InputError
        As `read_draws` does, and if they are neither draws nor a file.
    """
    if isinstance(draws, str | Path):
        return read_draws(draws)
    if not hasattr(draws, "groups"):
        raise InputError(f"draws must be a file, or what `stansub.sample` returns, not of type {type(draws).__name__}")
    return draws


def read_draws(path: str | Path, *, most: int | None = None) -> InferenceData:
    """Return draws read from a draws file or from the checkpoint of a run.

    Parameters
    ----------
    most : int, optional
        Approximate limit of the bytes of draws to read from a file (see `load`); all by default.

    Raises
    ------
    InputError
        As `load` and `read_checkpoint` do, and for a checkpoint whose name is that of a NetCDF file: opening a NetCDF
        file must not compile and run the program of a checkpoint.
    """
    place = files.expanded(path)
    if not (store.is_store(place) or store.is_database(place)):
        return load(path, most=most)
    if place.suffix == ".nc":
        raise InputError(
            f"{path} is a checkpoint or a database, not a NetCDF file; to open a checkpoint, give it a name that ends "
            "in .checkpoint"
        )
    return read_checkpoint(path, show_progress=False)
