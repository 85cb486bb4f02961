"""Reference draws stored in files: reused if they fit, refused otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stansub.errors import InputError
from stansub.nuts.base import Program
from stansub.nuts.reference import reference
from stansub.output import files, inference_data
from stansub.output.inference_data import InferenceData
from stansub.stan.data import data as data_module
from stansub.stan.data.sources import DataLike

# Options that do not change the draws, or are checked in another way.
_NOT_COMPARED = ("parallel_chains", "engine", "reference_model", "install_cmdstan", "show_progress", "console")


class Stored(NamedTuple):
    """A reference, its file, and whether it is new."""

    draws: InferenceData
    path: Path
    made: bool


def default_path(name: str, folder: str | Path = "") -> Path:
    """Return the path of the reference for the model of this name."""
    return Path(folder) / f"{name}_reference.nc"


def find(
    path: str | Path,
    *,
    model_hash: str,
    data_hash: str,
    reference_hash: str | None = None,
    engine: str = "auto",
    settings: Mapping[str, Any] | None = None,
) -> InferenceData | None:
    """Return the reference in a file; None if there is no file.

    Parameters
    ----------
    model_hash, data_hash : str
        Hashes of the program and the data of the draws.
    reference_hash : str, optional
        Hash of the program that must have run, if another formulation was requested.
    engine : {"auto", "cmdstan", "nutpie", "exact"}
        Engine that must have made it; ``auto``: any.
    settings : mapping, optional
        Settings that the run must have had; others may have any value.

    Raises
    ------
    InputError
        If the file is something else, or a reference that does not fit; the message says what differs.
    """
    if not Path(path).exists():
        return None
    remedy = "use `force=True` to replace it, or choose another name"
    try:
        draws = inference_data.read(path)
    except InputError as error:
        raise InputError(f"{error}; {remedy}") from error
    facts = inference_data.attrs(draws)
    if "reference_for" not in facts:
        raise InputError(f"{path} already exists and is not a reference; {remedy}")
    had = {**facts.get("settings", {}), "engine": facts.get("engine")}
    asked = {**(settings or {}), **({} if engine == "auto" else {"engine": engine})}
    differing = [
        *(["a different model"] if facts["reference_for"] != model_hash else []),
        *(["different data"] if facts.get("data_hash") != data_hash else []),
        *(["a different `reference_model`"] if reference_hash not in (None, facts.get("model_hash")) else []),
        *(f"{name} {had.get(name)}, not {value}" for name, value in asked.items() if had.get(name) != value),
    ]
    if differing:
        raise InputError(f"{path} contains a reference with {', '.join(differing)}; {remedy}")
    return draws


def obtain(
    model: str | Path | Program,
    data: DataLike,
    *,
    path: str | Path,
    force: bool = False,
    **options: Any,
) -> Stored:
    """Return the stored reference if it fits, else a new one, which is stored.

    Parameters
    ----------
    model, data
        As `reference` takes them.
    force : bool
        Whether to always make a new one and overwrite the file.
    options
        Options of `reference`; None for those not set.

    Raises
    ------
    InputError
        If the name does not end in .nc, the stored file does not fit (see `find`), or the program, the data or an
        option cannot be used.
    RunError
        If the engine fails or the file cannot be written.
    """
    path = Path(path)
    files.check_netcdf(path)
    files.check_regular(path, files.locate(path)[1])
    asked = {name: value for name, value in options.items() if value is not None}
    if path.exists() and not force:
        program = model if isinstance(model, Program) else Program.read(model)
        other = asked.get("reference_model")
        if other is not None and not isinstance(other, Program):
            other = Program.read(other)
        found = find(
            path,
            model_hash=program.hash,
            data_hash=data_module.read(data, program.syntax.data.declarations).digest(),
            reference_hash=other.hash if other else None,
            engine="cmdstan" if asked.get("install_cmdstan") else asked.get("engine", "auto"),
            settings={name: value for name, value in asked.items() if name not in _NOT_COMPARED},
        )
        if found is not None:
            return Stored(found, path, made=False)
    files.check_target(path, overwrite=force)
    draws = reference(model, data, **asked)
    store(draws, path, overwrite=force)
    return Stored(draws, path, made=True)


def store(draws: InferenceData, path: Path, *, overwrite: bool) -> None:
    """Write a new reference to its file.

    Raises
    ------
    RunError
        If the file cannot be written; the message says where the draws are instead.
    """
    with files.rescuing(lambda: inference_data.keep(draws, path.name)):
        inference_data.write(draws, path, overwrite=overwrite)
