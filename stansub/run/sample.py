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

from stansub import clock, memory
from stansub.errors import DrawsWarning, NotMixingError
from stansub.findings import NotChecked
from stansub.kernels.proposals import BuiltIn
from stansub.memory import reason
from stansub.output import files
from stansub.output.appending import DrawsFile
from stansub.output.inference_data import InferenceData, arviz_module, container, keeps_trees
from stansub.output.summary import Summary, summarise
from stansub.progress import Progress
from stansub.run import chains as chains_module
from stansub.run import checkpoint, cross_chain, remote, resume, transitions
from stansub.run.chain import Chain
from stansub.run.chain_factory import make_chains
from stansub.run.checkpoint import Checkpoint
from stansub.run.collect import Finished, collect, keep_unconstrained, worst_r_hat
from stansub.run.config import SampleConfig
from stansub.run.constrain import PARAMETERS, constrain
from stansub.run.early_stopping import EarlyStopping
from stansub.run.option import taking
from stansub.run.partitions import opened
from stansub.run.posteriors import Data, Model
from stansub.run.prepare import Prepared, Setup, mode_request, prepare
from stansub.run.progress import Display, View, chain_progress, leaving_lines, stage_progress
from stansub.selection import LevelsSettled, ProductsLeft, TransitionsLeft, TransitionsTaken, updated
from stansub.stan.data.data import Data as Values
from stansub.types import FloatArray
from stansub.wording import declare_or_nuts, sentence

if TYPE_CHECKING:
    import xarray


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
        not pass `data`, `block_size` or `observations` with them. If you did not set their block size, `sample`
        chooses it as for a program.
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
    display = Display.of(config.show_progress, config.console)
    memory.check_start()
    if config.checkpoint is not None and not _resumes_own_checkpoint(config):
        checkpoint.check_target(Path(config.checkpoint), overwrite=overwrite)
    found = _checkpoint_to_resume(config, display)
    # Imports overlap with reading data and compiling, not with the chains. A daemon thread that still imports when an
    # error ends the program would crash the interpreter.
    threading.Thread(target=_import_ahead, args=(wrapped and not keeps_trees(),)).start()
    pooling = Progress(on_end=leaving_lines(display.console) if display.show else None)
    with contextlib.ExitStack() as partitions:
        with stage_progress(display, max_time=config.max_time) as progress:
            progress.warn = display.line
            data = partitions.enter_context(opened(model, data, config, progress))
            ready = _make_ready(model, data, config, found, pooling, progress, target)
        _warn_of_mixing(ready.prepared.setup, display, fail=only_if_mixing)
        return _draw(ready, pooling, progress, display, target)


def _draw(
    ready: ReadyRun, pooling: Progress, progress: Progress, display: Display, target: Path | None
) -> xarray.DataTree:
    """Run the chains and collect their draws; if a step fails, save the draws so far."""
    prepared, writer = ready.prepared, _writer(ready, pooling.stop, display)

    def keep() -> Path | None:
        return keep_unconstrained(ready.chains, writer.path if writer is not None and not writer.failure else None)

    values = prepared.posterior.values
    values.report_to(pooling)
    with files.rescuing(keep, failures=(Exception,), called="unconstrained draws"), values.unchanged():
        finished = run_chains(ready, writer, pooling, display, max_time=progress.left())
    with (
        files.rescuing(keep, called="unconstrained draws"),
        values.unchanged(),
        DrawsFile(target) if target is not None else contextlib.nullcontext() as file,
    ):
        tree = collect(prepared, finished, progress, display, file=file)
        if file is not None and file.is_begun:
            values.check_files()
            check(tree)
            file.note(warnings=tree.attrs["warnings"])
            file.commit()
        return tree


def _warn_of_mixing(setup: Setup, display: Display, *, fail: bool) -> None:
    """Warn if the chains will hardly move, as far as is known before they start; raise `NotMixingError` if ``fail``."""
    notes = [one for one in setup.notes.values() if isinstance(one, TransitionsTaken | TransitionsLeft | LevelsSettled)]
    trouble = " ".join(sentence(one.trial) for one in notes if one.hardly_moves)
    if trouble and fail:
        raise NotMixingError(trouble)
    if trouble:
        effects = [name for one in setup.notes.values() if isinstance(one, ProductsLeft) for name in one.effects]
        display.line(f"Warning: the chains will hardly move. {trouble} {declare_or_nuts(effects)}")


class ReadyRun(NamedTuple):
    """Chains ready to start or resume."""

    prepared: Prepared
    chains: Sequence[Chain]
    adaptation: cross_chain.CrossChainAdaptation | None
    found: Checkpoint | None


def _checkpoint_to_resume(config: SampleConfig, display: Display) -> Checkpoint | None:
    """Return the checkpoint to resume from; None if there is none yet."""
    if config.resume is None:
        return None
    if files.locate(config.resume)[1] is not None:
        return checkpoint.read(Path(config.resume))
    # A job that may be restarted names its checkpoint every time.
    display.line(f"{config.resume} does not exist: starting a new run, which is stored there")
    return None


def _make_ready(
    model: Model,
    data: Data,
    config: SampleConfig,
    found: Checkpoint | None,
    pooling: Progress,
    progress: Progress,
    target: Path | None,
) -> ReadyRun:
    """Return chains at their starting values or, if a run is resumed, at their saved states."""
    if found is not None:
        return resumed(model, data, config, found, pooling, progress)
    kept = config.checkpoint or config.resume
    folder = files.locate(kept)[0].parent if target is not None and kept is not None else None
    if folder is not None and not folder.is_dir():  # no checkpoint can be written, so draws stay in memory
        folder = None
    prepared = prepare(model, data, config, progress, folder)
    with prepared.posterior.values.unchanged():
        chains = make_chains(prepared, pooling.stop, progress)
    return ReadyRun(prepared, chains, _adaptation(prepared, pooling), None)


def resumed(
    model: Model,
    data: Data,
    config: SampleConfig,
    found: Checkpoint,
    pooling: Progress,
    progress: Progress,
) -> ReadyRun:
    """Return chains at the states saved in a checkpoint."""
    prepared = resume.prepare(model, data, config, found, progress)
    adaptation = _adaptation(prepared, pooling)
    with prepared.posterior.values.unchanged():
        chains = resume.chains_of(prepared, found, adaptation, pooling.stop, progress)
    n_done = sum(chain.warmup.n_steps + chain.sampling.n_steps for chain in chains)
    transitions.forecast_from(prepared.setup.choices, prepared.setup.config, progress, n_done=n_done)
    return ReadyRun(prepared, chains, adaptation, found)


def run_chains(
    ready: ReadyRun,
    writer: checkpoint.CheckpointWriter | None,
    pooling: Progress,
    display: Display,
    *,
    max_time: float | None,
) -> Finished:
    """Run the chains until they finish, an interrupt or the time limit in seconds.

    ``pooling`` is the progress of their common work; its ``stop`` stops the chains too.
    """
    prepared, chains, adaptation, found = ready
    began, setup = clock.now(), prepared.setup
    proposal = chains[0].proposal
    if isinstance(proposal, BuiltIn):
        setup = replace(setup, notes=updated(setup.notes, *proposal.choices()))
    until = _until(prepared)
    with (
        remote.remote_chains(setup.config.executor, prepared, setup.threads) as remote_chains,
        chain_progress(len(chains), pooling, display) as view,
    ):
        outcome = chains_module.run(
            chains,
            adaptation,
            parallel=setup.threads,
            stop=pooling.stop,
            remote=remote_chains,
            writer=writer,
            until=until,
            max_time=max_time,
            watch=_Watch(chains, view, prepared.posterior.values),
            on_interrupt=lambda: display.console.print(
                "Stopping. Draws so far will be saved; press Ctrl-C again to discard them."
            ),
        )
    if writer is not None and writer.failure and not all(chain.done for chain in chains):
        outcome.stopped = outcome.stopped or f"the checkpoint failed ({writer.failure})"
    check = until.last if until is not None else None
    seconds = found.seconds if found is not None else 0.0
    return Finished(chains, outcome, setup.adapted(adaptation), began, seconds, check)


def _writer(ready: ReadyRun, stop: NDArray[np.int32], display: Display) -> checkpoint.CheckpointWriter | None:
    """Return the writer of this run's checkpoints. If the draws need a checkpoint and writing fails, the run stops."""
    prepared, chains, adaptation, found = ready
    config = prepared.setup.config
    path = config.checkpoint or config.resume
    if path is None:
        return None

    def failed(reason: str) -> None:
        if sum(chain.sampling.bytes_ahead for chain in chains) > memory.room().size // 2:
            stop[0] = 1
        what = "Sampling stops" if stop[0] else "Sampling continues"
        display.line(f"Warning: checkpointing disabled ({reason}). {what}.")

    seconds = found.seconds if found is not None else 0.0
    return checkpoint.CheckpointWriter(
        files.locate(path)[0], config.checkpoint_every, prepared, chains, adaptation, seconds=seconds, on_failure=failed
    )


def _until(prepared: Prepared) -> EarlyStopping | None:
    """Return the precision check that ends this run early; None if early stopping is off."""
    setup, posterior = prepared.setup, prepared.posterior
    config = setup.config
    if config.precision is None:
        return None

    def constrained(theta: FloatArray) -> dict[str, FloatArray]:
        return constrain(posterior, theta, kept=PARAMETERS, seed=setup.seed, threads=setup.threads)[0]

    return EarlyStopping(config.precision, constrained, most=config.iter_sampling, thin=config.stored_every)


def _resumes_own_checkpoint(config: SampleConfig) -> bool:
    """Return whether a resumed run keeps writing to the file from which it resumes."""
    if config.resume is None:
        return False
    return config.checkpoint is None or files.locate(config.checkpoint)[0] == files.locate(config.resume)[0]


def _adaptation(prepared: Prepared, progress: Progress) -> cross_chain.CrossChainAdaptation | None:
    """Return the adaptation of the chains to their pooled draws; None unless a single mode was found."""
    setup = prepared.setup
    config, found = setup.config, setup.found
    if found is None or found.trajectories or len(found.modes.found) > 1 or config.kernel is not None:
        return None
    asked = cross_chain.AdaptationOptions(
        test=setup.asked_rule,
        request=mode_request(config, prepared.ranges.source),
        iter_warmup=config.iter_warmup,
        iter_sampling=config.iter_foreseen,
    )
    return cross_chain.CrossChainAdaptation(prepared.posterior, found, setup.rule, asked, progress)


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
    """Import what every run needs by its end (1.6 s; two more with ArviZ)."""
    with contextlib.suppress(Exception):  # the same error is raised where the module is used
        for name in ("scipy.special", "scipy.optimize", "xarray", "h5netcdf", "arviz_stats.base"):
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
