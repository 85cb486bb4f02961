"""`sample`: from a program and data to InferenceData, in three parts: prepare, run the chains, collect."""

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

# Seconds between two R-hats.
_R_HAT_EVERY = 2.0


@taking(SampleConfig)
def sample(model: Model, data: Data, config: SampleConfig) -> InferenceData:
    """Sample the posterior of a Stan program by Metropolis-Hastings with subsampled decisions.

    Parameters
    ----------
    model : path, CompiledModel, Posterior or FunctionFactors
        The ``.stan`` file, what `compile_model` made of it, that with data (`CompiledModel.with_data`), or a posterior
        of numpy functions.
    data : path, mapping, table, DataSources or sequence, optional
        A file (JSON as CmdStan reads it, R's dump format, Parquet, Arrow, CSV, npy or npz), values by name, a table
        with the Arrow C stream interface (pandas, polars, pyarrow), or several of these; `stansub.DataSources` also
        says which columns a variable is read from. With the last two models there are none to give, nor
        `block_size`, `observations` or `evaluator`: they have them. A block size that nobody has named is chosen as
        without one.
    {options}

    Returns
    -------
    InferenceData
        ``arviz.InferenceData`` under ArviZ 0.2x, ``xarray.DataTree`` under 1.x; groups ``posterior``,
        ``sample_stats``, ``unconstrained_posterior``, ``observed_data`` and, where asked for, others. Whatever speaks
        against the draws is in the attribute ``warnings``, a line each.

    Warns
    -----
    DrawsWarning
        Of each such thing, with a remedy.

    Raises
    ------
    InputError
        When the program, the data or an option cannot be used.
    RunError
        When something fails at run time; draws that there are have been kept in a file, which the message names.
        `InterruptError` and `TimeLimitError`, kinds of it, when there is no draw yet to return.

    Notes
    -----
    Ctrl-C, and SIGTERM where ``signal.default_int_handler`` is its handler, stops the run as `max_time` does; a second
    one raises KeyboardInterrupt. Several threads call a proposal that is given: any function of (generator,
    unconstrained position) that returns the proposed position and log q(position | proposed) - log q(proposed |
    position), such as ``stansub.RandomWalk(cholesky)``.
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
    """Like `sample`, but without checks of the draws (see `check`), in a tree under any version of ArviZ.

    Parameters
    ----------
    overwrite : bool
        Whether the checkpoint may take the place of a run that has not come to its end.
    wrapped : bool
        Whether the tree is going to be put into what the installed ArviZ has (`container`).
    only_if_mixing : bool
        Whether to raise `NotMixingError` in place of a warning if the chains will hardly move.
    target : Path, optional
        A file that takes many draws, checked, in pieces. The tree has every so-many-th of them then, and the attribute
        ``every``. Of few draws no file is written.
    """
    console = config.console or default_console()
    show = wanted(config.show_progress, console)
    stop = np.zeros(1, dtype=np.int32)
    memory.check_start()
    if config.checkpoint is not None and not _goes_on_there(config):
        checkpoint.check_target(Path(config.checkpoint), overwrite=overwrite)
    found = _found(config, console)
    # While data are read and compilers run, not beside the chains. A daemon that still imports when an error ends the
    # program would crash the interpreter.
    threading.Thread(target=_import_ahead, args=(wrapped and not keeps_trees(),)).start()
    meeting = Progress(stop=stop, on_end=leaving_lines(console) if show else None)
    with stage_progress(console, show=show, max_time=config.max_time) as progress:
        ready = _ready(model, data, config, found, stop, meeting, progress, target)
    if trouble := _hardly_moves(ready.prepared.setup):
        if only_if_mixing:
            raise NotMixingError(trouble)
        remedy = "NUTS is for such posteriors: `fallback=nuts`, or `stansub reference`"
        console.print(f"Warning: the chains will hardly move. {trouble}. {remedy}", highlight=False, soft_wrap=True)
    prepared, keeper = ready.prepared, _keeper(ready, stop, console)

    def keep() -> Path | None:
        return keep_unconstrained(ready.chains, keeper.path if keeper is not None and not keeper.failure else None)

    values = prepared.posterior.values
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
    """The draws of a run that goes on, or was killed, up to its last checkpoint.

    Parameters
    ----------
    path : path
        The checkpoint, which is only read. The Stan program in it is compiled where the cache does not have it.
    show_progress : bool, optional

    Returns
    -------
    InferenceData
        As `sample` returns it; of the data file the same must still be there.

    Raises
    ------
    InputError
        When it is no checkpoint, or holds no draws after warmup yet.
    """
    found, console = checkpoint.read(Path(path)), default_console()
    if not any(one.sampling for one in found.chains.values()):
        raise InputError(f"{path} contains no draws after warmup yet")
    config = replace(found.config(), resume=path, console=console)
    program, data = found.program(config)
    show, stop = wanted(show_progress, console), np.ones(1, np.int32)
    with stage_progress(console, show=show) as progress:
        ready = _resumed(compile_model(program, progress=progress), data, config, found, stop, Progress(), progress)
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
    """Draws from their file or from the checkpoint of a run.

    Parameters
    ----------
    path : path
    most : int, optional
        Bytes of draws to read of a file, about (see `load`); all by default.

    Raises
    ------
    InputError
        As `load` and `read_checkpoint` do, and for a checkpoint that is called a NetCDF file: whoever opens one of
        these does not mean to compile and run the program of a checkpoint.
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
    """Why the chains will hardly move, as far as that is known before they begin; empty if nothing says so."""
    notes = [one for one in setup.notes.values() if isinstance(one, TransitionsTaken | TransitionsLeft)]
    return "; ".join(one.describe().capitalize() for one in notes if one.hardly_moves)


class _Ready(NamedTuple):
    """Chains that can begin, or go on."""

    prepared: Prepared
    chains: Sequence[Chain]
    meetings: stages.Meetings | None
    found: Checkpoint | None


def _found(config: SampleConfig, console: Console) -> Checkpoint | None:
    """The run that is resumed; None where there is none yet."""
    if config.resume is None:
        return None
    if files.locate(config.resume)[1] is not None:
        return checkpoint.read(Path(config.resume))
    # A job that may be started again and again names its checkpoint every time.
    line = f"{config.resume} does not exist: this is a new run, stored there"
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
    """Chains at their starting values or, where a run is resumed, where they were."""
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
    """Chains where they were."""
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
    """Run the chains to their end, an interrupt or the time limit.

    Parameters
    ----------
    keeper : Keeper, optional
        Writes checkpoints.
    stop : ndarray of int32, shape (1,)
        Set to 1 to have all chains stop.
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
                "Stopping after the current step to save the draws; Ctrl-C again discards them"
            ),
        )
    if keeper is not None and keeper.failure and not all(chain.done for chain in chains):
        outcome.stopped = outcome.stopped or f"the checkpoint failed ({keeper.failure})"
    if meetings is not None:
        setup = replace(setup, found=meetings.found, rule=meetings.test)
    check = until.last if until is not None else None
    return Finished(chains, outcome, setup, began, found.seconds if found is not None else 0.0, check)


def _keeper(ready: _Ready, stop: NDArray[np.int32], console: Console) -> checkpoint.Keeper | None:
    """Who writes the checkpoints of this run; the run stops if its draws need them and they fail."""
    prepared, chains, meetings, found = ready
    config = prepared.setup.config
    path = config.checkpoint or config.resume
    if path is None:
        return None

    def failed(reason: str) -> None:
        if sum(chain.sampling.bytes_ahead for chain in chains) > memory.room().size // 2:
            stop[0] = 1
        what = "Sampling stops" if stop[0] else "Sampling continues"
        console.print(f"Warning: no more checkpoints are written ({reason}). {what}.", soft_wrap=True)

    seconds = found.seconds if found is not None else 0.0
    return checkpoint.Keeper(
        files.locate(path)[0], config.checkpoint_every, prepared, chains, meetings, seconds=seconds, on_failure=failed
    )


def _until(prepared: Prepared) -> Until | None:
    """What ends this run when its draws are precise enough; None where it is not to."""
    setup, posterior = prepared.setup, prepared.posterior
    config = setup.config
    if config.precision is None:
        return None

    def constrained(theta: FloatArray) -> dict[str, FloatArray]:
        return constrain(posterior, theta, kept=PARAMETERS, seed=setup.seed, threads=setup.threads)[0]

    return Until(config.precision, constrained, most=config.iter_sampling, thin=config.thin)


def _goes_on_there(config: SampleConfig) -> bool:
    """Whether a run that is resumed is kept in the file from which it goes on."""
    if config.resume is None:
        return False
    return config.checkpoint is None or files.locate(config.checkpoint)[0] == files.locate(config.resume)[0]


def _meetings(prepared: Prepared, progress: Progress) -> stages.Meetings | None:
    """Where chains meet in warmup: about one mode that was found."""
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
    """Summarise draws and write into them what speaks against them, so that it stays with them, whoever reads the file.

    No failure to do so keeps the draws back: that is then what is written.
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
    """Import what every run needs before its end, which takes a second, and with ArviZ three more."""
    with contextlib.suppress(Exception):  # the error comes up where it is needed
        for name in ("scipy.special", "scipy.optimize", "xarray", "h5netcdf"):
            import_module(name)
        if arviz:
            arviz_module()


class _Watch:
    """Checks that the data are what they were, shows how far chains are, and now and then how well they agree."""

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
