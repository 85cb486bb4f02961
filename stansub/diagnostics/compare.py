"""`compare`: comparison of draws with NUTS, which runs if there is no reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from stansub import streams
from stansub.diagnostics.alignment import check_comparable
from stansub.diagnostics.comparison import Comparison, compare_draws
from stansub.errors import InputError
from stansub.nuts import reference_cache
from stansub.nuts.base import Program
from stansub.nuts.reference import describe
from stansub.nuts.reference import reference as make_reference
from stansub.output import files, inference_data
from stansub.output.inference_data import InferenceData
from stansub.run.progress import Display, stage_progress
from stansub.run.provenance import data_of
from stansub.run.reading import draws_of
from stansub.stan.data.sources import DataLike


def compare(
    draws: str | Path | InferenceData,
    reference: str | Path | InferenceData | None = None,
    *,
    data: DataLike | None = None,
    engine: str = "auto",
    reference_model: str | Path | None = None,
    chains: int | None = None,
    parallel_chains: int | None = None,
    iter_warmup: int | None = None,
    iter_sampling: int | None = None,
    seed: int | None = None,
    adapt_delta: float | None = None,
    max_treedepth: int | None = None,
    var_names: Sequence[str] | None = None,
    level: float = 0.01,
    force: bool = False,
    show_progress: bool | None = None,
    console: Console | None = None,
) -> Comparison:
    """Compare draws with those of NUTS.

    Without `reference`, stansub uses the one stored beside the draws (`<model>_reference.nc`) if it fits. If there is
    none, it runs NUTS on the program in the draws file and stores its draws there.

    Parameters
    ----------
    draws : path or InferenceData
        Draws of `stansub.sample`, or the checkpoint of a run.
    reference : path or InferenceData, optional
        Draws to compare with: any NetCDF file in ArviZ's schema.
    data : path or mapping, optional
        The data, if their file has moved since the run.
    engine, reference_model, chains, parallel_chains, iter_warmup, iter_sampling, seed, adapt_delta, max_treedepth
        Settings that a stored reference must have and a new one gets (see `stansub.reference`); settings of a stored
        reference that you do not set may have any value. By default, the seed of a new one is derived from that of the
        draws, so that a comparison of the same draws has the same reference.
    var_names : sequence of str, optional
        Variables to compare; all by default.
    level : float
        Error probability of the verdict: the share of comparisons of agreeing samplers with another verdict.
    force : bool
        Whether to replace a stored reference that does not fit.
    show_progress : bool, optional
        Whether to show progress; by default on a terminal or in a notebook.
    console : rich.console.Console, optional
        Console for progress.

    Returns
    -------
    Comparison

    Raises
    ------
    InputError
        If a file cannot be read, the reference is of another model or data, the draws do not record their program,
        their data are missing, or nothing can be compared.
    RunError
        If NUTS fails.
    """
    display = Display.of(show_progress, console)
    own = draws_of(draws)
    safe: AbstractContextManager[None] = nullcontext()
    if reference is not None:
        other = inference_data.read(reference, foreign=True) if isinstance(reference, str | Path) else reference
    else:
        check_comparable(own, var_names)
        lengths = {"chains": chains, "iter_warmup": iter_warmup, "iter_sampling": iter_sampling, "seed": seed}
        given = {**lengths, "adapt_delta": adapt_delta, "max_treedepth": max_treedepth}
        settings = {name: value for name, value in given.items() if value is not None}
        program = Program.read(reference_model) if reference_model is not None else None
        wish = _ReferenceOptions(engine, program, settings, parallel_chains)
        folder = Path(draws).parent if isinstance(draws, str | Path) else None
        other = _obtain(inference_data.attrs(own), data, folder, wish, display, force=force)
        if folder is None:
            safe = files.rescuing(lambda: inference_data.keep(other, "reference.nc"))
    with safe, stage_progress(display) as log:
        log("Comparing the draws")
        return compare_draws(own, other, var_names=var_names, level=level)


class _ReferenceOptions(NamedTuple):
    """Settings that the reference must have; settings left open are missing."""

    engine: str
    program: Program | None
    settings: Mapping[str, Any]
    parallel_chains: int | None


def _obtain(
    facts: Mapping[str, Any],
    data: DataLike | None,
    folder: Path | None,
    wish: _ReferenceOptions,
    display: Display,
    *,
    force: bool,
) -> InferenceData:
    """Return the reference stored in `folder` if it fits, else a new one, stored there if there is a folder."""
    if not facts.get("model_code"):
        raise InputError(
            "the draws do not record their program: give a reference file, or sample again with this version"
        )
    program = Program(str(facts.get("model", "model")), str(facts["model_code"]))
    path = reference_cache.default_path(program.name, folder) if folder is not None else None
    if path is not None and (kept := _stored(path, program, facts, wish, force=force)) is not None:
        display.line(f"Reference: {path} (reused)")
        return kept
    with stage_progress(display) as log:
        log("Reading the data")
        source = data_of(facts, data, program.syntax.data.declarations)
    if path is not None:
        files.check_target(path, overwrite=force)
    made = make_reference(
        program,
        source,
        engine=wish.engine,
        reference_model=wish.program,
        parallel_chains=wish.parallel_chains,
        show_progress=display.show,
        console=display.console,
        **{**_seed(facts), **wish.settings},
    )
    display.line(describe(inference_data.attrs(made)))
    if path is not None:
        reference_cache.store(made, path, overwrite=force)
        display.line(f"Reference: {path}")
    return made


def _seed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a seed derived from that of the draws, as an option; another one, because NUTS may have made them."""
    seed = facts.get("settings", {}).get("seed")
    if seed is None:
        return {}
    return {"seed": int(streams.sequence(int(seed), streams.Run.REFERENCE).generate_state(1)[0])}


def _stored(
    path: Path, program: Program, facts: Mapping[str, Any], wish: _ReferenceOptions, *, force: bool
) -> InferenceData | None:
    """Return the stored reference; None if there is none, or one that does not fit and may be replaced."""
    try:
        return reference_cache.find(
            path,
            model_hash=program.hash,
            data_hash=str(facts.get("data_hash", "")),
            reference_hash=wish.program.hash if wish.program else None,
            engine=wish.engine,
            settings=wish.settings,
        )
    except InputError:
        if force:
            return None
        raise
