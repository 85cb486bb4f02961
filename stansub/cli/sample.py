"""`stansub sample`."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stansub.cli.draws import in_full
from stansub.cli.flags import FlagConsole
from stansub.cli.options import (
    Columns,
    Data,
    Model,
    Quiet,
    Verbose,
    forcing,
    shared,
    sources_of,
    stages,
    taking,
    to_file,
)
from stansub.errors import MISSED_MODE, InputError, InterruptError, NotMixingError, RunError
from stansub.run import config
from stansub.run.option import CHAINS, DATA, DECISIONS, OUTPUT

if TYPE_CHECKING:
    import xarray

    from stansub.stan.data.sources import DataSources


_OPTIONS = config.names(CHAINS, DECISIONS, DATA, OUTPUT)


class OutputFormat(StrEnum):
    """Formats in which `sample` writes draws."""

    netcdf = "netcdf"
    cmdstan_csv = "cmdstan-csv"


class Fallback(StrEnum):
    """Samplers that can replace chains that would hardly move."""

    NUTS = "nuts"


_Output = Annotated[Path | None, to_file("NetCDF file to write.", "FILE.nc", "MODEL.nc in this folder", OUTPUT)]
_OutputFormat = Annotated[
    OutputFormat,
    typer.Option(
        help="netcdf, or cmdstan-csv to write one CSV file per chain too (see `stansub export`).",
        rich_help_panel=OUTPUT,
        hidden=True,
    ),
]
_Force = Annotated[bool, forcing("Overwrite the output file.", OUTPUT)]
_Budget = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Total time, such as 10m. This includes planning. stansub chooses test, error level and lengths for it "
        "(see `stansub plan`).",
        show_default="none",
        rich_help_panel=CHAINS,
    ),
]
_Fallback = Annotated[
    Fallback | None,
    typer.Option(
        help="Sampler to use instead if the chains would hardly move, which stansub detects before sampling.",
        show_default="none",
        rich_help_panel=CHAINS,
        hidden=True,
    ),
]


@taking(*map(shared, _OPTIONS))
def sample(
    model: Model,
    data: Data,
    output: _Output = None,
    output_format: _OutputFormat = OutputFormat.netcdf,
    force: _Force = False,
    budget: _Budget = None,
    fallback: _Fallback = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    columns: Columns = None,
    **options: Any,
) -> None:
    """Sample the posterior of a Stan program by subsampled Metropolis-Hastings.

    `--help` shows the common options, `--help-all` all of them. Ctrl-C, SIGTERM and SIGHUP stop the run and save the
    draws.

    Exit codes: 0 done, 1 failed at run time, 2 wrong usage or input, 3 interrupted (draws saved), 4 a mode was missed,
    130 interrupted (no draws).
    """
    from stansub.output import export, files
    from stansub.run import sample as run
    from stansub.stan.toolchain import stanc

    target = output or Path(f"{model.stem}.nc")
    files.check_netcdf(target)
    # Draws of the run that is resumed may be replaced by more of them.
    replacing = force or (options["resume"] is not None and files.is_hdf5(target))
    files.check_target(target, overwrite=replacing)
    exporting = (target.parent, target.stem, export.CMDSTAN_CSV) if output_format is OutputFormat.cmdstan_csv else None
    if exporting is not None:
        called = export.names(target.stem, export.CMDSTAN_CSV, options["chains"])
        files.check_folder(target.parent, called, overwrite=replacing)
    options["checkpoint"] = options["checkpoint"] or options["resume"] or target.with_suffix(".checkpoint")
    if files.locate(options["checkpoint"])[0] == files.locate(target)[0]:
        raise InputError(f"{target} cannot be both the output and the checkpoint: choose another --output")
    sources = sources_of(data, columns)
    console = FlagConsole(stderr=True)
    settings = config.SampleConfig(**options, show_progress=not quiet, console=console)
    if budget is not None:
        settings = _planned(model, sources, settings, budget, console)
    try:
        result = run.draw(
            model,
            sources,
            settings,
            overwrite=force,
            only_if_mixing=fallback is not None,
            target=files.locate(target)[0] if exporting is None else None,
        )
    except NotMixingError as error:
        if fallback is None:
            raise
        console.print(f"Using NUTS instead, because the chains would hardly move. {error}", soft_wrap=True)
        _by_nuts(model, sources, settings, str(error), target, overwrite=replacing, verbose=verbose)
        return
    if not quiet and (n := len(stanc.warnings_of(model, pedantic=False))):
        said = f"stanc has {n} warning{'s' * (n > 1)} about {model}: see stansub check {shlex.quote(str(model))}"
        console.print(said, soft_wrap=True)
    _finish(result, target, exporting, options["checkpoint"], overwrite=replacing, verbose=verbose, quiet=quiet)


def _finish(
    result: xarray.DataTree,
    target: Path,
    exporting: tuple[Path, str, str] | None,
    checkpoint: Path | str,
    *,
    overwrite: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    """Check, write and show the draws of a run, then exit with the code of its end."""
    from stansub.output import export, inference_data, summary
    from stansub.output.record import missed_modes
    from stansub.run import sample as run
    from stansub.run.executors import BROKEN

    console = FlagConsole(stderr=True)
    written: Path | None = target
    trouble = ""
    with stages(quiet=quiet) as log:
        log("Summarising the draws")
        found = run.check(result)
        if "every" not in result.attrs:
            log("Writing the draws")
            written, trouble = inference_data.write_anywhere(result, target, overwrite=overwrite)
    try:
        if exporting is not None:
            paths = export.write(result, *exporting, overwrite=overwrite)
            console.print(f"CmdStan CSV: {', '.join(map(str, paths))}", soft_wrap=True)
        summary.render(result, FlagConsole(), summary=found, verbose=verbose, full=in_full(written))
    except KeyboardInterrupt:
        raise InterruptError(trouble or "interrupted; the draws are saved", written=True) from None
    finally:  # whether or not the summary could be printed
        console.print(f"Draws: {written}{_next_commands(written, verbose=verbose)}", soft_wrap=True)
    stopped = str(result.attrs["stopped"])
    failures = [stopped] if " failed (" in stopped else []
    if stopped.startswith(BROKEN) and Path(checkpoint).is_file():
        failures.append(f"resume the run with `resume={checkpoint}`")
    if failures or trouble:
        raise RunError("; ".join([*failures, *([trouble] if trouble else [])]))
    if stopped.startswith("interrupted"):
        raise typer.Exit(InterruptError.WRITTEN)
    if missed_modes(inference_data.attrs(result)):
        raise typer.Exit(MISSED_MODE)


def _next_commands(written: Path | None, *, verbose: bool) -> str:
    """Return the commands for draws in a file; none for arrays, which are written if NetCDF fails."""
    if written is None or written.suffix != ".nc":
        return ""
    file = shlex.quote(str(written))
    return f". Next: stansub report {file}" + ("" if verbose else f"\nDetails: stansub summary {file} --verbose")


def _by_nuts(
    model: Path,
    data: DataSources,
    settings: config.SampleConfig,
    reason: str,
    target: Path,
    *,
    overwrite: bool,
    verbose: bool,
) -> None:
    """Write and show draws of NUTS, with the reason for using it."""
    from stansub.nuts.reference import describe, reference
    from stansub.output import inference_data, summary

    lengths: dict[str, Any] = {name: getattr(settings, name) for name in ("iter_warmup", "iter_sampling")}
    draws = reference(
        model,
        data,
        chains=settings.chains,
        parallel_chains=settings.parallel_chains,
        seed=settings.seed,
        show_progress=settings.show_progress,
        console=settings.console,
        **{name: n for name, n in lengths.items() if n is not None},
    )
    draws.attrs["fallback"] = f"NUTS instead of stansub's own sampler. {reason}"
    written, trouble = inference_data.write_anywhere(draws, target, overwrite=overwrite)
    FlagConsole(stderr=True).print(f"Draws: {written}. {describe(inference_data.attrs(draws))}", soft_wrap=True)
    summary.render(draws, FlagConsole(), verbose=verbose, full=in_full(written))
    if trouble:
        raise RunError(trouble)


def _planned(
    model: Path, data: DataSources, settings: config.SampleConfig, budget: str, console: FlagConsole
) -> config.SampleConfig:
    """Return the options, with the choices of a plan for the budget."""
    from stansub.output.words import TRANSITIONS
    from stansub.planning.plan import follow
    from stansub.run.progress import Display, stage_progress

    with stage_progress(Display.of(settings.show_progress, console)) as progress:
        chosen, found = follow(model, data, budget=budget, config=settings, progress=progress)
    other = f" ({found.best.label} is predicted to be better)" if found.best is found.nuts else ""
    level = "" if chosen.epsilon is None else f" with epsilon {chosen.epsilon:g}"
    level += "" if chosen.final_epsilon is None else f" decreasing to {chosen.final_epsilon:g}"
    way = TRANSITIONS.get(str(chosen.proposal), chosen.test)
    line = f"Plan: {way}{level}, {chosen.iter_sampling:,} steps per chain{other}"
    console.print(line, soft_wrap=True)
    return chosen
