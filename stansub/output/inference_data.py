"""Draws in ArviZ's InferenceData schema, in memory and as NetCDF; the only module that depends on ArviZ's version.

ArviZ 0.2x keeps groups in its own `InferenceData`, ArviZ 1.x in an `xarray.DataTree`. The file format is the same for
both. This module builds groups as a tree under any version and returns the installed ArviZ's container to users
(`container`). ArviZ 0.2x takes seconds to import, which a command that only writes a file and prints a summary avoids.
"""

import importlib.metadata
import io
import json
import math
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from stansub import interrupts
from stansub._version import __version__
from stansub.errors import InputError, InterruptError
from stansub.memory import reason
from stansub.output import files
from stansub.output.facts import JSON_ATTRS, misfits
from stansub.output.reduction import Reduction

if TYPE_CHECKING:
    import arviz
    import xarray

InferenceData: TypeAlias = "arviz.InferenceData | xarray.DataTree"
Variables: TypeAlias = Mapping[str, np.ndarray[Any, Any]]

LIBRARY = "stansub"
SCHEMA_ATTRS = (
    "created_at",
    "creation_library",
    "creation_library_version",
    "inference_library",
    "inference_library_version",
)
# Names of the attributes that are lists, as JSON: NetCDF does not distinguish a list of one value from the value.
LIST_ATTRS = "list_attrs"
# The group of counts over a whole chain.
CHAIN_STATS = "chain_stats"
# The groups in their order, with the first dimensions of their variables; chain_stats are counts and seconds of each
# chain over all its steps.
_LEADING: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("posterior", "sample_stats", "warmup_posterior", "warmup_sample_stats"), ("chain", "draw")),
    **dict.fromkeys(("unconstrained_posterior", "log_likelihood", "posterior_predictive"), ("chain", "draw")),
    CHAIN_STATS: ("chain",),
    "observed_data": (),
    "constant_data": (),
}
_FOREIGN_GROUPS = ("posterior", "sample_stats")
# Bytes of draws above which they are written in pieces and reduced on reading: statistics need several times as much.
LARGE = 1 << 28
_COMPRESS_FROM = 1024  # values; below this the compressed chunk's bookkeeping outweighs its gain


def build(
    *,
    attrs: Mapping[str, Any],
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Any] | None = None,
    descriptions: Mapping[str, Mapping[str, str]] | None = None,
    **groups: Variables,
) -> "xarray.DataTree":
    """Return arrays gathered into groups.

    Parameters
    ----------
    attrs
        Facts about the run: numbers, strings and lists as they are, mappings as JSON. All of them go to the root and to
        `sample_stats`, ArviZ's schema attributes to every group.
    dims
        Names of a variable's dimensions after those of its group (see `_LEADING`); by default `<variable>_dim_<k>`.
    coords
        Labels by dimension name; by default 0, 1, ..., and none for data.
    descriptions
        By group, a sentence for each variable, stored as its attribute ``description``.
    **groups
        Arrays by variable name, for groups of `_LEADING`. Empty groups are left out.

    Returns
    -------
    xarray.DataTree

    Raises
    ------
    ValueError
        If an array's shape does not fit its dimensions.
    """
    if unknown := groups.keys() - _LEADING.keys():
        raise TypeError(f"unknown groups: {', '.join(sorted(unknown))}")
    facts = _stored(_schema_attrs() | dict(attrs))
    schema = {name: facts[name] for name in SCHEMA_ATTRS}
    datasets = {
        name: _dataset(groups[name], lead, dims or {}, coords or {}, facts if name == "sample_stats" else schema)
        for name, lead in _LEADING.items()
        if groups.get(name)
    }
    for name, sentences in (descriptions or {}).items():
        for variable, values in (datasets[name].data_vars if name in datasets else {}).items():
            if variable in sentences:
                values.attrs["description"] = sentences[str(variable)]
    return _tree(datasets, facts)


def keeps_trees() -> bool:
    """Return whether the installed ArviZ uses trees and has no container of its own."""
    return int(importlib.metadata.version("arviz").split(".")[0]) >= 1


def container(tree: "xarray.DataTree") -> "InferenceData":
    """Return the groups in the installed ArviZ's container: ``arviz.InferenceData`` for 0.2x, the tree for 1.x."""
    if keeps_trees():
        return tree
    idata: arviz.InferenceData = arviz_module().InferenceData(
        dict(tree.attrs), **{name: group(tree, name) for name in groups(tree)}
    )
    return idata


def groups(idata: "InferenceData") -> tuple[str, ...]:
    """Return names of the groups in `idata`."""
    return tuple(idata.children) if hasattr(idata, "children") else tuple(idata.groups())


def group(idata: "InferenceData", name: str) -> "xarray.Dataset":
    """Return the group `name` as a dataset, under any version of ArviZ.

    Raises
    ------
    KeyError
        If there is no such group.
    """
    if name not in groups(idata):
        raise KeyError(name)
    found: Any = idata[name]
    dataset: xarray.Dataset = found.to_dataset() if hasattr(found, "children") else found
    return dataset


def attrs(idata: "InferenceData") -> dict[str, Any]:
    """Return facts about the run as plain Python values.

    Facts in the group ``chain_stats`` (in files of earlier versions, among the attributes) are lists with a value per
    chain, even for one chain and if ArviZ read the file. ``settings`` and ``versions`` are dicts.
    """
    facts: dict[str, Any] = {str(name): _plain(value) for name, value in _restored(idata.attrs).items()}
    facts.pop(LIST_ATTRS, None)
    for name in JSON_ATTRS:
        if isinstance(facts.get(name), str):
            facts[name] = json.loads(facts[name])
    if CHAIN_STATS in groups(idata):
        facts |= {str(name): values.values.tolist() for name, values in group(idata, CHAIN_STATS).data_vars.items()}
    return facts


def write(idata: "InferenceData", path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a NetCDF file, completely or not at all.

    Raises
    ------
    InputError
        If the file may not be written (see `files.check_target`).
    RunError
        If the disk fails (full, read-only).
    """
    files.write(path, _image(idata), overwrite=overwrite)


def write_anywhere(idata: "InferenceData", path: str | os.PathLike[str], *, overwrite: bool) -> tuple[Path | None, str]:
    """Write draws to a file or, if that fails, to another folder; return the path and the failure.

    If NetCDF cannot hold the draws, they are written as arrays by name (.npz). Interrupts wait until the end.

    Raises
    ------
    RunError
        If no folder accepts them.
    InterruptError
        If an interrupt came, after the draws are written.
    """
    waiting: list[bool] = []
    with interrupts.first(lambda: waiting.append(True)):
        place, trouble = _write_anywhere(idata, path, overwrite)
    if waiting:
        raise InterruptError(trouble or f"interrupted; the draws are in {place}", written=True)
    return place, trouble


def _write_anywhere(idata: "InferenceData", path: str | os.PathLike[str], overwrite: bool) -> tuple[Path | None, str]:
    try:
        write(idata, path, overwrite=overwrite)
        return Path(path), ""
    except Exception as error:
        because = reason(error)
    place = keep(idata, Path(path).name)
    return place, f"{because}; the draws were written to {place} instead"


def keep(idata: "InferenceData", name: str) -> Path | None:
    """Save draws to a folder that can be found, as NetCDF or, if that fails, the posterior as arrays."""
    try:
        return files.save_elsewhere(name, lambda path: write(idata, path))
    except Exception:
        posterior = group(idata, "posterior")
        return files.keep_arrays({str(variable): values.values for variable, values in posterior.data_vars.items()})


def read(path: str | os.PathLike[str], *, foreign: bool = False) -> "InferenceData":
    """Return draws written by `write`, read into memory.

    Parameters
    ----------
    foreign
        Whether to accept files that other programs wrote in ArviZ's schema; only their posterior and sample statistics
        are read.

    Raises
    ------
    InputError
        If the file is missing, is no NetCDF file, was not written by stansub, holds no posterior, or records facts that
        stansub does not write.
    """
    return container(load(path, foreign=foreign))


def load(path: str | os.PathLike[str], *, foreign: bool = False, most: int | None = None) -> "xarray.DataTree":
    """Like `read`, but return a tree under any version of ArviZ.

    Parameters
    ----------
    most
        Bytes of draws to read. A file with more is reduced to about a quarter of these bytes: thinned, and if too few
        draws were left, without some elements of large variables. The attributes ``every`` and ``elements_left_out`` of
        the tree are the thinning interval and the number of quantities left out.
    """
    import h5py
    import xarray

    source = files.expanded(path)
    if why := files.missing(source):
        raise InputError(f"{path}: {why}")
    # Files of other programs may have variables without dimensions; times are not sampled values.
    options: dict[str, Any] = {"engine": "h5netcdf", "phony_dims": "access", "decode_times": False}
    opened = partial(xarray.load_dataset, source, **options)
    try:
        with h5py.File(source, "r") as file:
            held = [name for name, item in file.items() if isinstance(item, h5py.Group)]
        root = _restored(opened().attrs)
        own = root.get("creation_library") == LIBRARY
        reduction = None if most is None else Reduction.of(source, most)
        taken = [name for name in held if own or name in _FOREIGN_GROUPS]
        lazily = partial(xarray.open_dataset, source, **options)
        datasets = {name: reduction.read(lazily, name) if reduction else opened(group=name) for name in taken}
        tree = _tree({name: one.assign_attrs(_restored(one.attrs)) for name, one in datasets.items()}, root)
        for name in datasets:
            group(tree, name)  # raises an error if dimensions have two sizes
    except PermissionError as err:
        raise InputError(f"{path}: cannot read the file: {err.strerror}") from err
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as err:
        raise InputError(f"{path}: not a NetCDF file, or damaged") from err
    if not own and not foreign:
        raise InputError(f"{path}: not written by stansub; give a file written by `stansub sample`")
    if "posterior" not in datasets:
        raise InputError(f"{path}: contains no posterior draws; give a file written by `stansub sample`")
    if not {"chain", "draw"} <= set(datasets["posterior"].dims):
        raise InputError(f"{path}: the posterior lacks the dimensions chain and draw of ArviZ's schema")
    if unusual := next(_unusual(tree), ""):
        raise InputError(f"{path}: damaged: {unusual}; sample again, or restore a copy of the file")
    if most is not None:
        left_out = reduction.n_left_out(datasets["posterior"]) if reduction else 0
        tree.attrs.update(every=reduction.every if reduction else 1, elements_left_out=left_out)
    return tree


def _unusual(tree: "xarray.DataTree") -> Iterator[str]:
    """Yield, in words, content that no run has written."""
    for name, values in group(tree, "posterior").data_vars.items():
        if values.dims[:2] != ("chain", "draw") or values.size == 0 < math.prod(values.shape[2:]):
            yield f"{name} is not an array of chains and draws"
    for name in JSON_ATTRS:
        try:
            json.loads(text) if isinstance(text := tree.attrs.get(name), str) else None
        except (ValueError, RecursionError):
            yield f"its attribute `{name}` is not JSON"
            return
    counts = group(tree, CHAIN_STATS) if CHAIN_STATS in groups(tree) else {}
    totals = {str(name): values.values.tolist() for name, values in counts.items()}
    facts = {name: value for name, value in attrs(tree).items() if name not in totals}
    yield from (f"`{name}` has an unexpected value" for name in misfits(facts, totals))


def arviz_module() -> Any:
    """Return ArviZ, imported late (it takes a second) and without its announcement of 1.0.

    Numba, which its statistics before 1.0 use if installed, is disabled: compiling takes longer than the statistics,
    and standard errors of sds fail with numpy 2.4.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            import arviz
        except FileNotFoundError:  # another process wrote the file that keeps the day of the announcement
            import arviz
    if hasattr(arviz, "Numba"):
        arviz.Numba.disable_numba()
    return arviz


def _schema_attrs() -> dict[str, str]:
    return {
        "created_at": datetime.now(UTC).isoformat(),
        "creation_library": LIBRARY,
        "creation_library_version": __version__,
        "inference_library": LIBRARY,
        "inference_library_version": __version__,
    }


def _dataset(
    variables: Variables,
    lead: tuple[str, ...],
    dims: Mapping[str, Sequence[str]],
    coords: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> "xarray.Dataset":
    import xarray

    arrays: dict[str, tuple[tuple[str, ...], np.ndarray[Any, Any]]] = {}
    labels: dict[str, Any] = {}
    for name, given in variables.items():
        values = np.asarray(given)
        rest = values.ndim - len(lead)
        own = tuple(dims[name]) if name in dims else tuple(f"{name}_dim_{k}" for k in range(rest))
        if len(own) != rest:
            raise ValueError(f"{name}: {values.ndim} dimensions, named {lead + own}")
        arrays[name] = (lead + own, values)
        for dim, size in zip(lead + own, values.shape, strict=True):
            if dim in coords or lead:  # the number of an observation is its position
                labels.setdefault(dim, np.asarray(coords[dim]) if dim in coords else np.arange(size))
    return xarray.Dataset(arrays, coords=labels, attrs=dict(facts))


def _tree(datasets: "Mapping[str, xarray.Dataset]", facts: Mapping[str, Any]) -> "xarray.DataTree":
    import xarray

    root = {"/": xarray.Dataset(attrs=dict(facts))}
    return xarray.DataTree.from_dict(root | {f"/{name}": ds for name, ds in datasets.items()})


def _image(idata: "InferenceData") -> memoryview:
    """Return the bytes of the NetCDF file, made in memory because HDF5 crashes the process when a disk is full."""
    image = io.BytesIO()
    write_groups(idata, image)
    return image.getbuffer()


def write_groups(
    idata: "InferenceData",
    file: io.IOBase,
    *,
    chunks: Mapping[tuple[str, str], tuple[int, ...]] | None = None,
    unlimited: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Write all groups into an empty file.

    Parameters
    ----------
    chunks
        Chunk shapes of variables, by group and name; HDF5 chooses the others.
    unlimited
        Dimensions that may grow, by group.
    """
    with _without_cluster():
        _write_groups(idata, file, chunks or {}, unlimited or {})


@contextmanager
def _without_cluster() -> Iterator[None]:
    """Keep xarray from asking a dask cluster that this process is connected to, and that may be busy, for a lock."""
    if "distributed" not in sys.modules:
        yield
        return
    import dask

    with dask.config.set(scheduler="threads"):
        yield


def _write_groups(
    idata: "InferenceData",
    file: io.IOBase,
    chunks: Mapping[tuple[str, str], tuple[int, ...]],
    unlimited: Mapping[str, Sequence[str]],
) -> None:
    import xarray

    xarray.Dataset(attrs=_stored(idata.attrs)).to_netcdf(file, mode="w", engine="h5netcdf")
    for name in groups(idata):
        dataset = group(idata, name)
        encoding: dict[Any, dict[str, Any]] = {}
        for variable, values in dataset.variables.items():
            shape = chunks.get((name, str(variable)))
            if values.dtype.kind in "biuf" and (shape or values.size >= _COMPRESS_FROM):
                encoding[variable] = {"zlib": True, "complevel": 1, "shuffle": True}
                encoding[variable] |= {"chunksizes": shape} if shape else {}
        grows = unlimited.get(name, ())
        dataset.to_netcdf(file, mode="a", group=name, engine="h5netcdf", encoding=encoding, unlimited_dims=grows)


def _stored(facts: Mapping[Any, Any]) -> dict[str, Any]:
    """Return `facts` in forms that NetCDF attributes can hold, and which of them are lists."""
    held = {name: _storable(value) for name, value in _restored(facts).items() if value is not None}
    return held | {LIST_ATTRS: json.dumps([name for name, value in held.items() if isinstance(value, np.ndarray)])}


def _restored(facts: Mapping[Any, Any]) -> dict[str, Any]:
    """Return `facts` with the lists that NetCDF stored as single values."""
    lists = json.loads(facts.get(LIST_ATTRS, "[]"))
    return {str(name): np.atleast_1d(value) if name in lists else value for name, value in facts.items()}


def _storable(value: Any) -> Any:
    """Return `value` in a form that NetCDF attributes can hold."""
    if isinstance(value, Mapping):
        return json.dumps(value, default=_plain)
    if isinstance(value, bool | np.bool_):
        return int(value)
    if isinstance(value, np.ndarray | list | tuple):
        values = np.asarray(value)
        if values.dtype.kind == "b":
            return values.astype(np.int8)
        return values if values.dtype.kind in "iuf" else json.dumps(_plain(value), default=_plain)
    if isinstance(value, int | float | np.number):
        return value
    # HDF5 cannot hold NUL, nor bytes of file names that are not UTF-8.
    return str(value).encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def _plain(value: Any) -> Any:
    """Return `value` without numpy types; values unknown to JSON become text."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value if isinstance(value, int | float | str | list | tuple | dict) else str(value)
