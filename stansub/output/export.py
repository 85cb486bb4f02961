"""Export of draws to files for other software: CmdStan's CSV, one CSV table, and Parquet."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stansub.output import files, inference_data
from stansub.output.inference_data import InferenceData
from stansub.output.statistics import scalar_names

if TYPE_CHECKING:
    import pyarrow as pa


CMDSTAN_CSV, CSV, PARQUET = ("cmdstan-csv", "csv", "parquet")

# Columns of the sampler in CmdStan's files: statistics that may hold them, and the value if none does. The summary of
# brms counts divergences, and a Metropolis-Hastings step has no trajectory that could diverge.
_SAMPLER_COLUMNS: dict[str, tuple[tuple[str, ...], float]] = {
    "lp__": (("lp",), math.nan),
    "accept_stat__": (("acceptance_rate", "accepted"), math.nan),
    "divergent__": (("diverging",), 0.0),
}


def names(stem: str, form: str, n_chains: int) -> list[str]:
    """Return the names of the files: one per chain in CmdStan's format."""
    if form == CMDSTAN_CSV:
        return [f"{stem}_{chain}.csv" for chain in range(1, n_chains + 1)]
    return [f"{stem}.{form}"]


def write(
    idata: InferenceData, folder: str | os.PathLike[str], stem: str, form: str, *, overwrite: bool = False
) -> list[Path]:
    """Write the posterior to files in a folder, which is created if needed, and return their paths.

    Parameters
    ----------
    stem : str
        Prefix of the files' names.
    form : {"cmdstan-csv", "csv", "parquet"}

    Raises
    ------
    InputError
        If the files may not be written (see `files.check_folder`).
    RunError
        If the disk fails.
    """
    n_chains = inference_data.group(idata, "posterior").sizes["chain"]
    called = names(stem, form, n_chains)
    files.check_folder(folder, called, overwrite=overwrite).mkdir(parents=True, exist_ok=True)
    paths = [files.expanded(folder) / name for name in called]
    for path, image in zip(paths, _images(idata, form), strict=True):
        files.write(path, image, overwrite=overwrite)
    return paths


def _images(idata: InferenceData, form: str) -> Iterator[memoryview]:
    """Yield the bytes of each file."""
    if form == CMDSTAN_CSV:
        for chain in range(inference_data.group(idata, "posterior").sizes["chain"]):
            yield _cmdstan_csv(idata, chain)
        return
    from pyarrow import csv, parquet

    image = io.BytesIO()
    if form == CSV:
        csv.write_csv(_table(idata), image)
    else:
        parquet.write_table(_table(idata), image)
    yield image.getbuffer()


def _table(idata: InferenceData) -> pa.Table:
    """Return a table of chain, draw (from 1), and a column for each value, named as in the summary."""
    import pyarrow as pa

    posterior = inference_data.group(idata, "posterior")
    n_chains, n_draws = posterior.sizes["chain"], posterior.sizes["draw"]
    columns: dict[str, NDArray[Any]] = {
        "chain": np.repeat(np.arange(1, n_chains + 1), n_draws),
        "draw": np.tile(np.arange(1, n_draws + 1), n_chains),
    }
    for name, values in posterior.data_vars.items():
        flat = values.values.reshape(n_chains * n_draws, -1)
        columns |= {one: flat[:, k] for k, one in enumerate(scalar_names(str(name), values))}
    return pa.table(columns)


def _cmdstan_csv(idata: InferenceData, chain: int) -> memoryview:
    """Return a chain in CmdStan's format: configuration, column names, draws, seconds."""
    import pyarrow as pa
    from pyarrow import csv

    posterior, facts = inference_data.group(idata, "posterior"), inference_data.attrs(idata)
    columns: dict[str, Any] = _sampler_columns(idata, chain)
    for name, values in posterior.data_vars.items():
        own = values.values[chain]
        # The first index runs fastest, as in CmdStan's files.
        flat = own.reshape(len(own), -1) if own.ndim < 3 else own.transpose(0, *range(own.ndim - 1, 0, -1))
        flat = flat.reshape(len(own), -1)
        names = _cmdstan_names(str(name), own.shape[1:])
        columns |= {one: np.ascontiguousarray(flat[:, k], dtype=np.float64) for k, one in enumerate(names)}
    image = io.BytesIO()
    for line in _configuration(facts, chain, posterior.sizes["draw"]):
        image.write(f"# {line}\n".encode())
    image.write(f"{','.join(columns)}\n".encode())
    table = pa.table([pa.array(one) for one in columns.values()], [*columns])
    csv.write_csv(table, image, csv.WriteOptions(include_header=False, quoting_style="none"))
    for line in _seconds(facts, chain):
        image.write(f"# {line}\n".encode())
    return image.getbuffer()


def _sampler_columns(idata: InferenceData, chain: int) -> dict[str, list[str]]:
    """Return CmdStan's columns of the sampler as text.

    R reads a column as real numbers only if one has a decimal point, and brms fails at integers.
    """
    stats: Mapping[Any, Any] = {}
    if "sample_stats" in inference_data.groups(idata):
        stats = inference_data.group(idata, "sample_stats").data_vars
    n_draws = inference_data.group(idata, "posterior").sizes["draw"]
    columns = {}
    for column, (among, otherwise) in _SAMPLER_COLUMNS.items():
        found = (stats[name].values[chain] for name in among if name in stats)
        columns[column] = [*map(repr, np.asarray(next(found, np.full(n_draws, otherwise)), np.float64).tolist())]
    return columns


def _cmdstan_names(name: str, shape: tuple[int, ...]) -> list[str]:
    """Return ``omega.1.1``, ``omega.2.1`` and so on."""
    places = (reversed(place) for place in np.ndindex(*shape[::-1]))
    return [".".join([name, *(str(index + 1) for index in place)]) for place in places]


def _configuration(facts: Mapping[str, Any], chain: int, n_draws: int) -> Iterator[str]:
    """Yield the configuration in CmdStan's format.

    The algorithm is ``Metropolis``, which rstan and brms know: cmdstanr reads no sampler columns of ``fixed_param``.
    """
    settings = facts.get("settings") or {}
    version = str((facts.get("versions") or {}).get("stan", "")).split(".")
    major, minor, patch = (part if part.isdigit() else "0" for part in [*version, "0", "0", "0"][:3])
    thin = settings.get("thin") or 1
    yield f"stan_version_major = {major}"
    yield f"stan_version_minor = {minor}"
    yield f"stan_version_patch = {patch}"
    yield f"model = {facts.get('model', 'model')}_model"
    yield f"start_datetime = {facts.get('created_at', '')}"
    yield "method = sample (Default)"
    yield "  sample"
    yield f"    num_samples = {n_draws * thin}"
    yield f"    num_warmup = {settings.get('iter_warmup') or 0}"
    yield "    save_warmup = 0"
    yield f"    thin = {thin}"
    yield "    adapt"
    yield "      engaged = 0"
    yield "    algorithm = Metropolis"
    yield "    num_chains = 1"
    yield f"id = {chain + 1}"
    yield "data"
    yield f"  file = {_in_one_line(facts.get('data_file', ''))}"
    yield f"init = {_in_one_line(settings.get('inits') or 2)}"
    yield "random"
    yield f"  seed = {settings.get('seed') or 0}"
    yield f"stansub_version = {facts.get('inference_library_version', '')}"
    yield f"stansub_test = {facts.get('test', facts.get('engine', ''))}"
    yield f"stansub_proposal = {_in_one_line(settings.get('proposal', ''))}"


def _in_one_line(value: Any) -> str:
    return " ".join(str(value).split())


def _seconds(facts: Mapping[str, Any], chain: int) -> Iterator[str]:
    """Yield the seconds of warmup and sampling, if recorded."""

    def of(name: str) -> float:
        values = facts.get(name)
        value = values[chain] if isinstance(values, list) and chain < len(values) else 0.0
        return float(value) if math.isfinite(value) else 0.0

    warmup, sampling = of("warmup_time"), of("sampling_time")
    yield ""
    yield f" Elapsed Time: {warmup:.3f} seconds (Warm-up)"
    yield f"               {sampling:.3f} seconds (Sampling)"
    yield f"               {warmup + sampling:.3f} seconds (Total)"
    yield ""
