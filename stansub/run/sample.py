"""`stansub.sample`: prepare a run, run its chains and collect the draws as InferenceData."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from stansub import clock, memory
from stansub.errors import DrawsWarning, InputError, NotMixingError
from stansub.findings import NotChecked
from stansub.kernels.proposals import BuiltIn
from stansub.memory import reason
from stansub.output import files
from stansub.output.appending import DrawsFile
from stansub.output.inference_data import arviz_module, container, keeps_trees, load
from stansub.output.summary import Summary, summarise
from stansub.progress import Progress
from stansub.run import chains as chains_module
from stansub.run import checkpoint, remote, resume, stages, store
from stansub.run.chain import Chain
from stansub.run.chain_factory import make_chains
from stansub.run.checkpoint import Checkpoint
from stansub.run.collect import Finished, collect, keep_unconstrained, worst_r_hat
from stansub.run.config import SampleConfig
from stansub.run.constrain import PARAMETERS, constrain
from stansub.run.early_stopping import Until
from stansub.run.executors import Outcome
from stansub.run.option import taking
from stansub.run.partitions import opened
from stansub.run.posteriors import Data, Model
from stansub.run.prepare import Prepared, Setup, prepare, request_of
from stansub.run.progress import View, chain_progress, default_console, leaving_lines, stage_progress, wanted
from stansub.selection import TransitionsLeft, TransitionsTaken, updated
from stansub.stan.compilation import compile_model
from stansub.stan.data import Data as Values
from stansub.types import FloatArray

if TYPE_CHECKING:
    import xarray

    from stansub.output.inference_data import InferenceData

# Seconds between two computations of R-hat for the display.
_R_HAT_EVERY = 2.0


@taking(SampleConfig)
def sample(model: Model, data: Data, config: SampleConfig) -> InferenceData:
    """Sample the posterior of a Stan program by Metropolis-Hastings with subsampled decisions.

    Parameters
    ----------
    model : path, CompiledModel, Posterior or FunctionFactors
        The ``.stan`` file, a compiled program from `compile_model`, a posterior from `CompiledModel.with_data`, or a
        posterior of numpy functions.
    data : path, mapping, table, DataSources or sequence, optional
        A file (JSON as CmdStan reads it, R's dump format, Parquet, Arrow, CSV, npy, npz or Zarr), values by name, a
        table with the Arrow C stream interface (pandas, polars, pyarrow), or several of these. `stansub.DataSources`
        also says which columns a variable is read from. A `Posterior` or `FunctionFactors` already has its data: do
        not pass `data`, `block_size`, `observations` or `evaluator` with them. If you did not set their block size,
        `sample` chooses it as for a program.
    {options}

    Returns
    -------
    InferenceData
        ``arviz.InferenceData`` under ArviZ 0.2x, ``xarray.DataTree`` under 1.x. Groups are ``posterior``,
        ``sample_stats``, ``unconstrained_posterior``, ``observed_data`` and those that options request. The attribute
        ``warnings`` lists the reasons to distrust the draws, one a line.

    Warns
    -----
    DrawsWarning
        For each reason to distrust the draws, with a remedy.

    Raises
    ------
    InputError
        If the program, the data or an option cannot be used.
    RunError
        If the run fails. Draws made before the failure are saved to a file, which the message names. Its subclasses
        `InterruptError` and `TimeLimitError` are raised if the run stops before there is a draw to return.

    Notes
    -----
    Ctrl-C stops the run as `max_time` does; a second Ctrl-C raises KeyboardInterrupt. SIGTERM does the same if its
    handler is ``signal.default_int_handler``.

    A custom proposal is any function of (generator, unconstrained position) that returns the proposed position and log
    q(position | proposed) - log q(proposed | position), such as ``stansub.RandomWalk(cholesky)``. Several threads call
    the function at once.
    """
    tree = draw(model, data, config, wrapped=True)
    check(tree)
    for line in tree.attrs["warnings"].splitlines():
        warnings.warn(line, DrawsWarning, stacklevel=3)
    return container(tree)


def draw(
    model: Model,
    data: Data,
    config: SampleConfig,
    *,
    overwrite: bool = False,
    wrapped: bool = False,
    only_if_mixing: bool = False,
    target: Path | None = None,
) -> xarray.DataTree:
    """Like `sample`, but return an ``xarray.DataTree`` under any version of ArviZ and skip `check`.

    Parameters
    ----------
    overwrite : bool
        Whether the checkpoint may overwrite that of an unfinished run.
    wrapped : bool
        Whether the caller will convert the tree to the installed ArviZ's container (`container`).
    only_if_mixing : bool
        Whether to raise `NotMixingError` instead of warning if the chains will hardly move.
    target : Path, optional
        A file to which large draws are written in pieces, already checked. The returned tree is then thinned, and its
        attribute ``every`` gives the thinning interval. If the draws are few, no file is written.
    """
    with contextlib.ExitStack() as partitions:
        return _draw(model, data, config, overwrite, wrapped, only_if_mixing, target, partitions)


def _draw(
    model: Model,
    data: Data,
    config: SampleConfig,
    overwrite: bool,
    wrapped: bool,
    only_if_mixing: bool,
    target: Path | None,
    partitions: contextlib.ExitStack,
) -> xarray.DataTree:
    console = config.console or default_console()
    show = wanted(config.show_progress, console)
    stop = np.zeros(1, dtype=np.int32)
    memory.check_start()
    if config.checkpoint is not None and not _goes_on_there(config):
        checkpoint.check_target(Path(config.checkpoint), overwrite=overwrite)
    found = _found(config, console)
    # Imports overlap with reading data and compiling, not with the chains. A daemon thread that still imports when an
    # error ends the program would crash the interpreter.
    threading.Thread(target=_import_ahead, args=(wrapped and not keeps_trees(),)).start()
    meeting = Progress(stop=stop, on_end=leaving_lines(console) if show else None)
    with stage_progress(console, show=show, max_time=config.max_time) as progress:
        data = partitions.enter_context(opened(model, data, config, progress))
        ready = _ready(model, data, config, found, stop, meeting, progress, target)
    if trouble := _hardly_moves(ready.prepared.setup):
        if only_if_mixing:
            raise NotMixingError(trouble)
        remedy = "use NUTS for such posteriors: `fallback=nuts`, or `stansub reference`"
        console.print(f"Warning: the chains will hardly move. {trouble}. {remedy}", highlight=False, soft_wrap=True)
    prepared, keeper = ready.prepared, _keeper(ready, stop, console)

    def keep() -> Path | None:
        return keep_unconstrained(ready.chains, keeper.path if keeper is not None and not keeper.failure else None)

    values = prepared.posterior.values
    values.report_to(meeting)
    with files.rescuing(keep, failures=(Exception,), called="unconstrained draws"), values.unchanged():
        finished = run_chains(ready, keeper, stop, meeting, max_time=progress.left(), console=console, show=show)
    with (
        files.rescuing(keep, called="unconstrained draws"),
        values.unchanged(),
        DrawsFile(target) if target is not None else contextlib.nullcontext() as file,
    ):
        tree = collect(prepared, finished, progress, console=console, show=show, file=file)
        if file is not None and file.is_begun:
            values.check_files()
            check(tree)
            file.note(warnings=tree.attrs["warnings"])
            file.commit()
        return tree


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
    found, console = checkpoint.read(Path(path)), default_console()
    if not any(one.sampling for one in found.chains.values()):
        raise InputError(f"{path} contains no draws after warmup yet")
    config = replace(found.config(), resume=path, console=console)
    program, given = found.program(config)
    show, stop = wanted(show_progress, console), np.ones(1, np.int32)
    with contextlib.ExitStack() as partitions:
        with stage_progress(console, show=show) as progress:
            data = partitions.enter_context(opened(program, given, config, progress))
            compiled = compile_model(program, progress=progress)
            ready = _resumed(compiled, data, config, found, stop, Progress(), progress)
        setup = ready.prepared.setup
        if ready.meetings is not None:
            setup = replace(setup, found=ready.meetings.found, rule=ready.meetings.test)
        outcome = Outcome("" if found.finished else "this is its last checkpoint")
        finished = Finished(ready.chains, outcome, setup, clock.now(), found.seconds)
        with ready.prepared.posterior.values.unchanged():
            idata = collect(ready.prepared, finished, progress, console=console, show=show)
    check(idata)
    return container(idata)


def read_draws(path: str | Path, *, most: int | None = None) -> InferenceData:
    """Return draws read from a draws file or from the checkpoint of a run.

    Parameters
    ----------
    path : path
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


def _hardly_moves(setup: Setup) -> str:
    """Return why the chains will hardly move, as far as is known before they start; empty if nothing suggests so."""
    notes = [one for one in setup.notes.values() if isinstance(one, TransitionsTaken | TransitionsLeft)]
    return "; ".join(one.describe().capitalize() for one in notes if one.hardly_moves)


class _Ready(NamedTuple):
    """Chains ready to start or resume."""

    prepared: Prepared
    chains: Sequence[Chain]
    meetings: stages.Meetings | None
    found: Checkpoint | None


def _found(config: SampleConfig, console: Console) -> Checkpoint | None:
    """Return the checkpoint to resume from; None if there is none yet."""
    if config.resume is None:
        return None
    if files.locate(config.resume)[1] is not None:
        return checkpoint.read(Path(config.resume))
    # A job that may be restarted names its checkpoint every time.
    line = f"{config.resume} does not exist: starting a new run, which is stored there"
    console.print(line, highlight=False, soft_wrap=True)
    return None


def _ready(
    model: Model,
    data: Data,
    config: SampleConfig,
    found: Checkpoint | None,
    stop: NDArray[np.int32],
    meeting: Progress,
    progress: Progress,
    target: Path | None,
) -> _Ready:
    """Return chains at their starting values or, if a run is resumed, at their saved states."""
    if found is not None:
        return _resumed(model, data, config, found, stop, meeting, progress)
    kept = config.checkpoint or config.resume
    folder = files.locate(kept)[0].parent if target is not None and kept is not None else None
    prepared = prepare(model, data, config, progress, folder)
    with prepared.posterior.values.unchanged():
        chains = make_chains(prepared, stop, progress)
    return _Ready(prepared, chains, _meetings(prepared, meeting), None)


def _resumed(
    model: Model,
    data: Data,
    config: SampleConfig,
    found: Checkpoint,
    stop: NDArray[np.int32],
    meeting: Progress,
    progress: Progress,
) -> _Ready:
    """Return chains at the states saved in a checkpoint."""
    prepared = resume.prepare(model, data, config, found, progress)
    meetings = _meetings(prepared, meeting)
    with prepared.posterior.values.unchanged():
        chains = resume.chains_of(prepared, found, meetings, stop, progress)
    return _Ready(prepared, chains, meetings, found)


def run_chains(
    ready: _Ready,
    keeper: checkpoint.Keeper | None,
    stop: NDArray[np.int32],
    meeting: Progress,
    *,
    max_time: float | None,
    console: Console,
    show: bool,
) -> Finished:
    """Run the chains until they finish, an interrupt or the time limit.

    Parameters
    ----------
    keeper : Keeper, optional
        Writes checkpoints.
    stop : ndarray of int32, shape (1,)
        Set to 1 to stop all chains.
    max_time : float, optional
        Seconds.
    """
    prepared, chains, meetings, found = ready
    began, setup = clock.now(), prepared.setup
    proposal = chains[0].proposal
    if isinstance(proposal, BuiltIn):
        setup = replace(setup, notes=updated(setup.notes, *proposal.choices()))
    until = _until(prepared)
    with (
        remote.going(setup.config.executor, prepared, setup.threads) as away,
        chain_progress(len(chains), meeting, show=show, console=console) as view,
    ):
        outcome = chains_module.run(
            chains,
            meetings,
            parallel=setup.threads,
            stop=stop,
            elsewhere=away,
            keeper=keeper,
            until=until,
            max_time=max_time,
            watch=_Watch(chains, view, prepared.posterior.values),
            on_interrupt=lambda: console.print(
                "Stopping. Draws so far will be saved; press Ctrl-C again to discard them."
            ),
        )
    if keeper is not None and keeper.failure and not all(chain.done for chain in chains):
        outcome.stopped = outcome.stopped or f"the checkpoint failed ({keeper.failure})"
    if meetings is not None:
        setup = replace(setup, found=meetings.found, rule=meetings.test)
    check = until.last if until is not None else None
    return Finished(chains, outcome, setup, began, found.seconds if found is not None else 0.0, check)


def _keeper(ready: _Ready, stop: NDArray[np.int32], console: Console) -> checkpoint.Keeper | None:
    """Return the writer of this run's checkpoints. If the draws need a checkpoint and writing fails, the run stops."""
    prepared, chains, meetings, found = ready
    config = prepared.setup.config
    path = config.checkpoint or config.resume
    if path is None:
        return None

    def failed(reason: str) -> None:
        if sum(chain.sampling.bytes_ahead for chain in chains) > memory.room().size // 2:
            stop[0] = 1
        what = "Sampling stops" if stop[0] else "Sampling continues"
        console.print(f"Warning: checkpointing disabled ({reason}). {what}.", soft_wrap=True)

    seconds = found.seconds if found is not None else 0.0
    return checkpoint.Keeper(
        files.locate(path)[0], config.checkpoint_every, prepared, chains, meetings, seconds=seconds, on_failure=failed
    )


def _until(prepared: Prepared) -> Until | None:
    """Return the precision check that ends this run early; None if early stopping is off."""
    setup, posterior = prepared.setup, prepared.posterior
    config = setup.config
    if config.precision is None:
        return None

    def constrained(theta: FloatArray) -> dict[str, FloatArray]:
        return constrain(posterior, theta, kept=PARAMETERS, seed=setup.seed, threads=setup.threads)[0]

    return Until(config.precision, constrained, most=config.iter_sampling, thin=config.thin)


def _goes_on_there(config: SampleConfig) -> bool:
    """Return whether a resumed run keeps writing to the file from which it resumes."""
    if config.resume is None:
        return False
    return config.checkpoint is None or files.locate(config.checkpoint)[0] == files.locate(config.resume)[0]


def _meetings(prepared: Prepared, progress: Progress) -> stages.Meetings | None:
    """Return the meetings of the chains in warmup; None unless a single mode was found."""
    setup = prepared.setup
    config, found = setup.config, setup.found
    if found is None or len(found.modes.found) > 1 or config.kernel is not None:
        return None
    asked = stages.Asked(
        test=setup.asked_rule,
        request=request_of(config, prepared.ranges.source),
        iter_warmup=config.iter_warmup,
        iter_sampling=config.iter_foreseen,
    )
    return stages.Meetings(prepared.posterior, found, setup.rule, asked, progress)


def check(idata: InferenceData) -> Summary | None:
    """Summarise the draws and store the warnings in them, so that the warnings stay with the draws in a file.

    If the summary fails, the draws are kept and the failure is stored as a warning.
    """
    summary = None
    try:
        summary = summarise(idata)
        lines = [finding.describe().line for finding in summary.findings]
    except (Exception, KeyboardInterrupt) as error:
        lines = [NotChecked(reason(error)).describe().line]
    idata.attrs["warnings"] = "\n".join(lines)
    return summary


def _import_ahead(arviz: bool) -> None:
    """Import what every run needs by its end (one second; three more with ArviZ)."""
    with contextlib.suppress(Exception):  # # the same error is raised where the module is used
        for name in ("scipy.special", "scipy.optimize", "xarray", "h5netcdf"):
            import_module(name)
        if arviz:
            arviz_module()


class _Watch:
    """Watch a run: check that the data are unchanged, display progress and, now and then, R-hat."""

    def __init__(self, chains: Sequence[Chain], view: View | None, values: Values) -> None:
        self._chains, self._view, self._values = chains, view, values
        self._r_hat: float | None = None
        self._next = clock.now() + _R_HAT_EVERY

    def __call__(self) -> None:
        self._values.check_files()
        if self._view is None:
            return
        if clock.now() > self._next:
            self._r_hat = worst_r_hat([chain.sampling.kept.sketch() for chain in self._chains])
            self._next = clock.now() + _R_HAT_EVERY
        self._view.show([chain.status for chain in self._chains], self._r_hat)
