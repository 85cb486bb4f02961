"""NUTS by CmdStan, through cmdstanpy."""

from __future__ import annotations

import hashlib
import logging
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from rich.console import Console

from stansub.errors import RunError
from stansub.model.data import Data
from stansub.nuts.base import Program, Run, Settings
from stansub.nuts.progress import file_progress
from stansub.output.layout import Layout
from stansub.program.cache import cache_dir, cache_errors
from stansub.sampling.progress import telling

# CmdStan's names of statistics, and ArviZ's with their types.
_STATISTICS = {
    "divergent__": ("diverging", bool),
    "n_leapfrog__": ("n_steps", np.int64),
    "treedepth__": ("tree_depth", np.int64),
    "stepsize__": ("step_size", np.float64),
    "accept_stat__": ("acceptance_rate", np.float64),
    "energy__": ("energy", np.float64),
    "lp__": ("lp", np.float64),
}
# Enough digits for parameters whose mean is many sds from zero; CmdStan's default has been six and eight.
_DIGITS = 12
_TROUBLE = re.compile(
    r"error|exception|rejecting|reject|fail|killed|no such file|not found|undefined|terminated|invalid", re.IGNORECASE
)
_NOISE = re.compile(r"^(\s*$|DEBUG|INFO|make:|Command and output files|Informational Message)")


def unavailable() -> str:
    """Why CmdStan cannot be used, or nothing."""
    if not find_spec("cmdstanpy"):
        return "cmdstanpy is not installed (pip install cmdstanpy)"
    with _quiet() as cmdstanpy:
        try:
            folder = Path(cmdstanpy.cmdstan_path())
        except ValueError as error:
            if "No CmdStan installation found" in str(error):
                return "no CmdStan is installed"
            return " ".join(str(error).split())
    return "" if (folder / "bin").is_dir() else f"the CmdStan in {folder} is not built"


def install(*, say: Callable[[str], None]) -> None:
    """Have cmdstanpy download and build CmdStan.

    Raises
    ------
    RunError
        When the download or the build fails.
    """
    say("Installing CmdStan (several minutes)")
    told = StringIO()
    with _quiet() as cmdstanpy, redirect_stdout(told):
        try:
            done = cmdstanpy.install_cmdstan()
        except Exception as error:  # urllib, tarfile, subprocess: whatever it is, it is no CmdStan
            told.write(f"\n{error}")
            done = False
    if not done or unavailable():
        raise RunError(
            f"CmdStan could not be installed: {_reason(told.getvalue())}; install it another way "
            "(https://mc-stan.org/docs/cmdstan-guide/installation.html) and set CMDSTAN to its folder, or use "
            "--engine nutpie"
        )


def run(program: Program, data: Data, settings: Settings, *, console: Console, show: bool) -> Run:
    """Run NUTS, its progress shown by the engine itself.

    Raises
    ------
    RunError
        When the program cannot be compiled, or CmdStan fails.
    """
    with _quiet() as cmdstanpy, _scratch() as scratch:
        began = time.perf_counter()
        with telling(console, show=show) as say:
            model = _compiled(cmdstanpy, program, say)
        compiled_at = time.perf_counter()
        file = Path(scratch) / "data.json"
        file.write_bytes(data.json())
        ready_at = time.perf_counter()
        try:
            with file_progress(Path(scratch), settings, console=console, show=show):
                fit = model.sample(
                    data=str(file),
                    chains=settings.chains,
                    parallel_chains=settings.parallel_chains,
                    iter_warmup=settings.iter_warmup,
                    iter_sampling=settings.iter_sampling,
                    save_warmup=True,
                    seed=settings.seed,
                    adapt_delta=settings.adapt_delta,
                    max_treedepth=settings.max_treedepth,
                    sig_figs=_DIGITS,
                    output_dir=scratch,
                    show_progress=False,
                )
        except (RuntimeError, ValueError) as error:
            text = f"{error}\n{_consoles(Path(scratch))}"
            raise RunError(f"CmdStan could not sample {program.name}: {_reason(text, last=True)}") from error
        wall_time = time.perf_counter() - ready_at
        draws = fit.draws(inc_warmup=True)
        return _collect(
            np.moveaxis(draws, 1, 0),
            fit.column_names,
            [dict(one) for one in fit.time],
            settings,
            version=".".join(map(str, cmdstanpy.cmdstan_version() or ())) or "unknown",
            compile_time=compiled_at - began,
            setup_time=ready_at - compiled_at,
            wall_time=wall_time,
        )


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
    """The run from draws of shape (chain, iteration, column), warmup first."""
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
    layout = Layout.from_names(map(_stan_name, quantities))
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


def _stan_name(name: str) -> str:
    """cmdstanpy's ``beta[1,2]`` or ``pair.1[2]`` as Stan writes it: ``beta.1.2``, ``pair:1.2``."""
    base, _, indices = name.partition("[")
    return ".".join([base.replace(".", ":"), *indices.rstrip("]").split(",")]) if indices else base.replace(".", ":")


def _compiled(cmdstanpy: Any, program: Program, say: Callable[[str], None]) -> Any:
    """The program's executable, kept in the cache under a name that changes with the program and with CmdStan."""
    home = cmdstanpy.cmdstan_path()
    key = hashlib.sha256(f"{home}\n{cmdstanpy.cmdstan_version()}\n{program.code}".encode()).hexdigest()[:20]
    folder = cache_dir() / "cmdstan" / key
    with cache_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"\W", "_", program.name, flags=re.ASCII)
    file = folder / f"{stem if stem[:1].isalpha() else f'program_{stem}'}.stan"
    with FileLock(folder / "lock"):
        with cache_errors(folder):
            if not file.exists():
                file.write_text(program.code, encoding="utf-8")
        if not file.with_suffix("").exists():
            say(f"Compiling {program.name} for CmdStan (about half a minute)")
        try:
            return cmdstanpy.CmdStanModel(stan_file=str(file))
        except (RuntimeError, ValueError, OSError) as error:
            raise RunError(f"CmdStan could not compile {program.name}: {_reason(str(error))}") from error


@contextmanager
def _quiet() -> Iterator[Any]:
    """cmdstanpy, with its log held back while the block runs."""
    import cmdstanpy

    logger = logging.getLogger("cmdstanpy")
    before = logger.disabled
    logger.disabled = True
    try:
        yield cmdstanpy
    except KeyboardInterrupt:
        before = True  # its threads go on talking
        raise
    finally:
        logger.disabled = before


def _scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder for CmdStan's files, removed afterwards even if an interrupted chain is still writing to it."""
    return tempfile.TemporaryDirectory(prefix="stansub-", ignore_cleanup_errors=True)


def _consoles(folder: Path) -> str:
    """What the chains wrote on their consoles."""
    return "\n".join(file.read_text(errors="replace") for file in sorted(folder.glob("*.txt")))


def _reason(text: str, *, last: bool = False) -> str:
    """The few lines that say what went wrong: the first of a compiler, the last of a run."""
    lines = [" ".join(line.split()) for line in text.splitlines() if not _NOISE.match(line)]
    relevant = [line for line in dict.fromkeys(lines) if _TROUBLE.search(line)] or lines[-3:]
    return " | ".join(relevant[-3:] if last else relevant[:3]) or "no message"
