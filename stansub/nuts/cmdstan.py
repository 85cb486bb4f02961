"""NUTS by CmdStan, through cmdstanpy."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from rich.console import Console

from stansub import clock
from stansub.errors import InputError, RunError
from stansub.nuts.base import Missing, Program, Run, Settings
from stansub.nuts.progress import file_progress
from stansub.output import files
from stansub.output.layout import Layout
from stansub.run.progress import Display, stage_progress
from stansub.stan.data.data import Data
from stansub.stan.toolchain import build, processes
from stansub.stan.toolchain.cache import cache_dir, cache_errors, make_folder, require_private
from stansub.stan.toolchain.download import without_meter

# CmdStan's names of statistics, with ArviZ's and their types.
_STATISTICS = {
    "divergent__": ("diverging", bool),
    "n_leapfrog__": ("n_steps", np.int64),
    "treedepth__": ("tree_depth", np.int64),
    "stepsize__": ("step_size", np.float64),
    "accept_stat__": ("acceptance_rate", np.float64),
    "energy__": ("energy", np.float64),
    "lp__": ("lp", np.float64),
}
# Enough digits for parameters whose mean is many sds from zero; CmdStan's default has been six or eight.
_DIGITS = 12
_TROUBLE = re.compile(
    r"could not|error|exception|rejecting|reject|fail|killed|no such file|not found|undefined|terminated|invalid",
    re.IGNORECASE,
)
NOT_INSTALLED = Missing("no CmdStan is installed", "`stansub reference` with `install_cmdstan=True` installs it")
_NOISE = re.compile(r"^(\s*$|DEBUG|INFO|make:|Command and output files|Informational Message)")


def unavailable() -> Missing | None:
    """Return why CmdStan cannot be used; None if it can."""
    if not find_spec("cmdstanpy"):
        return Missing("cmdstanpy is not installed", "`pip install cmdstanpy` installs it")
    chosen = os.environ.get("CMDSTAN")  # cmdstanpy sets it to the path it finds
    with _quiet() as cmdstanpy:
        try:
            folder = Path(cmdstanpy.cmdstan_path())
        except ValueError as error:
            if chosen:
                what = "contains no CmdStan (no makefile)" if Path(chosen).is_dir() else "does not exist"
                return Missing(
                    f"CMDSTAN is set to {chosen}, which {what}", "set it to the folder of a CmdStan, or unset it"
                )
            if "No CmdStan installation found" in str(error):
                return NOT_INSTALLED
            return Missing(" ".join(str(error).split()), "set CMDSTAN to the folder of a CmdStan")
    if not (folder / "bin" / "stanc").is_file():
        return Missing(f"the CmdStan in {folder} is not built", f"run `make -C {folder} build`")
    return None


def install(*, log: Callable[[str], None]) -> None:
    """Install CmdStan with cmdstanpy if it is missing.

    Raises
    ------
    InputError
        If an existing CmdStan cannot be used.
    RunError
        If the download or the build fails.
    """
    lack = unavailable()
    if lack is None:
        return
    if lack != NOT_INSTALLED:
        raise InputError(f"{lack.what}; {lack.remedy}")
    log("Installing CmdStan (several minutes)")
    output = StringIO()
    with _quiet() as cmdstanpy, redirect_stdout(output):
        try:
            done = cmdstanpy.install_cmdstan()
        except Exception as error:  # urllib, tarfile or subprocess: any error means that there is no CmdStan
            output.write(f"\n{error}")
            done = False
    if not done or unavailable():
        raise RunError(
            f"CmdStan could not be installed: {_reason(output.getvalue())}; install it another way "
            "(https://mc-stan.org/docs/cmdstan-guide/installation.html) and set CMDSTAN to its folder, or use "
            "`engine='nutpie'`"
        )


def run(program: Program, data: Data, settings: Settings, *, console: Console, show: bool) -> Run:
    """Run NUTS; the engine displays its progress.

    Raises
    ------
    RunError
        If the program cannot be compiled, or CmdStan fails.
    """
    scratch_folder = tempfile.TemporaryDirectory(prefix="stansub-", ignore_cleanup_errors=True)
    with _quiet() as cmdstanpy, scratch_folder as place:
        scratch = Path(place)
        began, display = clock.now(), Display(console, show)
        with stage_progress(display) as log:
            executable = _compiled(cmdstanpy, program, log)
        compiled_at = clock.now()
        file = scratch / "data.json"
        file.write_bytes(data.json())
        ready_at = clock.now()
        outputs = [scratch / f"chain_{chain + 1}.csv" for chain in range(settings.chains)]
        with file_progress(outputs, settings, display):
            _sample(program.name, executable, file, outputs, settings)
        wall_time = clock.now() - ready_at
        with files.rescuing(lambda: files.keep_files(outputs)):
            fit = cmdstanpy.from_csv([str(output) for output in outputs], method="sample")
            return _collect(
                np.moveaxis(fit.draws(inc_warmup=True), 1, 0),
                _columns(outputs[0]),
                [dict(one) for one in fit.time],
                settings,
                version=".".join(map(str, cmdstanpy.cmdstan_version() or ())) or "unknown",
                compile_time=compiled_at - began,
                setup_time=ready_at - compiled_at,
                wall_time=wall_time,
            )


def _sample(name: str, executable: str, data: Path, outputs: Sequence[Path], settings: Settings) -> None:
    """Run the chains, each in its own process.

    Raises
    ------
    RunError
        If a chain fails; the files of the others are kept.
    """
    commands = [
        [
            *(executable, f"id={chain}", "random", f"seed={settings.seed}", "data", f"file={data}"),
            *("output", f"file={output}", f"sig_figs={_DIGITS}"),
            *("method=sample", f"num_samples={settings.iter_sampling}", f"num_warmup={settings.iter_warmup}"),
            *("save_warmup=1", "algorithm=hmc", "engine=nuts", f"max_depth={settings.max_treedepth}"),
            *("adapt", "engaged=1", f"delta={settings.adapt_delta}"),
        ]
        for chain, output in enumerate(outputs, start=1)
    ]
    try:
        done = _run_all(commands, data.parent, parallel=settings.parallel_chains)
    except OSError as error:
        raise RunError(f"CmdStan could not sample {name}: {error}") from error
    codes = [one.returncode for one in done]
    if not any(codes):
        return
    ended = [f"chain {k + 1} was ended by {signal.Signals(-code).name}" for k, code in enumerate(codes) if code < 0]
    reason = "; ".join(ended) or _reason("\n".join(one.stdout + one.stderr for one in done), last=True)
    whole = [output for output, code in zip(outputs, codes, strict=True) if code == 0]
    kept = f"; the draws of the other chains were saved in {files.keep_files(whole)}" if whole else ""
    raise RunError(f"CmdStan could not sample {name}: {reason}{kept}")


def _run_all(
    commands: Sequence[Sequence[str]], folder: Path, *, parallel: int
) -> list[subprocess.CompletedProcess[str]]:
    """Run commands, ``parallel`` at once; a failure does not stop the others, an interrupt stops all."""
    stop = threading.Event()

    def check() -> None:
        if stop.is_set():
            raise RunError("sampling was stopped")

    with ThreadPoolExecutor(parallel) as pool:
        try:
            return list(pool.map(lambda command: processes.run(command, cwd=folder, check=check), commands))
        except BaseException:
            stop.set()
            raise


def _columns(output: Path) -> tuple[str, ...]:
    """Return names of the columns as CmdStan writes them; cmdstanpy changes some."""
    with output.open(encoding="utf-8") as lines:
        return tuple(next(line for line in lines if not line.startswith("#")).strip().split(","))


def _collect(
    draws: NDArray[np.float64],
    columns: tuple[str, ...],
    times: list[dict[str, float]],
    settings: Settings,
    *,
    version: str,
    compile_time: float,
    setup_time: float,
    wall_time: float,
) -> Run:
    """Return the results from draws of shape (chain, iteration, column), warmup first."""
    warmup, kept = np.split(draws, [draws.shape[1] - settings.iter_sampling], axis=1)
    places = {name: k for k, name in enumerate(columns)}
    leapfrogs = places["n_leapfrog__"]
    stats = {
        new: np.ascontiguousarray(kept[:, :, places[old]]).astype(dtype)
        for old, (new, dtype) in _STATISTICS.items()
        if old in places
    }
    stats["reached_max_treedepth"] = stats["tree_depth"] >= settings.max_treedepth
    quantities = [name for name in columns if not name.endswith("__")]
    layout = Layout.from_names(quantities)
    values = kept[:, :, [places[name] for name in quantities]]
    return Run(
        posterior={name: values[:, :, columns] for name, columns in layout.columns.items()},
        sample_stats=stats,
        warmup_time=[float(one["warmup"]) for one in times],
        sampling_time=[float(one["sampling"]) for one in times],
        warmup_n_gradients=[int(n) for n in warmup[:, :, leapfrogs].sum(axis=1)],
        n_gradients=[int(n) for n in kept[:, :, leapfrogs].sum(axis=1)],
        time_split="measured",
        compile_time=compile_time,
        setup_time=setup_time,
        wall_time=wall_time,
        version=version,
    )


def _compiled(cmdstanpy: Any, program: Program, log: Callable[[str], None]) -> str:
    """Return the program's executable, cached under a name that depends on the program and on CmdStan."""
    home = cmdstanpy.cmdstan_path()
    key = hashlib.sha256(f"{home}\n{cmdstanpy.cmdstan_version()}\n{program.code}".encode()).hexdigest()[:20]
    folder = cache_dir() / "cmdstan" / key
    for place in (folder.parent, folder):
        require_private(place)
    with cache_errors(folder):
        make_folder(folder)
    file = folder / f"{build.stem_of(program.name)}.stan"
    with FileLock(folder / "lock"):
        with cache_errors(folder):
            if not file.exists():
                file.write_text(program.code, encoding="utf-8")
        if not file.with_suffix("").exists():
            log(f"Compiling {program.name} for CmdStan (once, about half a minute)")
        try:
            return str(cmdstanpy.CmdStanModel(stan_file=str(file)).exe_file)
        except (RuntimeError, ValueError, OSError) as error:
            raise RunError(f"CmdStan could not compile {program.name}: {_reason(str(error))}") from error


@contextmanager
def _quiet() -> Iterator[Any]:
    """Yield cmdstanpy with its log held back during the block."""
    import cmdstanpy

    logger = logging.getLogger("cmdstanpy")
    before = logger.disabled
    logger.disabled = True
    try:
        yield cmdstanpy
    finally:
        logger.disabled = before


def _reason(text: str, *, last: bool = False) -> str:
    """Return the lines that say what went wrong: the first of a compiler, the last of a run."""
    lines = [" ".join(line.split()) for line in without_meter(text).splitlines() if not _NOISE.match(line)]
    relevant = [line for line in dict.fromkeys(lines) if _TROUBLE.search(line)] or lines[-3:]
    return " | ".join(relevant[-3:] if last else relevant[:3]) or "no message"
