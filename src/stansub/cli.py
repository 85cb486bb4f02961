"""The command line: `stansub sample`, `check`, `summary`, `plot` and `doctor`."""

from __future__ import annotations

import sys
import tempfile
import traceback
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from stansub.errors import RunError, StansubError

app = typer.Typer(
    name="stansub",
    help="Posterior draws from Stan models with tall data, by subsampled Metropolis-Hastings.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Model = Annotated[Path, typer.Argument(metavar="MODEL.stan", help="Stan program.")]
Draws = Annotated[Path, typer.Argument(metavar="DRAWS.nc", help="File written by `stansub sample`.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

_INTERRUPTED = 130
_CHAINS, _DECISIONS, _DATA, _OUTPUT = "Chains", "Decisions", "Data", "Output"


class TestName(StrEnum):
    """Sequential tests."""

    austerity = "austerity"
    pocock = "pocock"
    hoeffding = "hoeffding"
    bernstein = "bernstein"
    bernstein_serfling = "bernstein-serfling"
    exact = "exact"


class ProposalName(StrEnum):
    """Proposals."""

    adaptive_metropolis = "adaptive-metropolis"
    random_walk = "random-walk"


class RangeName(StrEnum):
    """Sources of the range constant of the bounds."""

    auto = "auto"
    lipschitz = "lipschitz"
    function = "function"
    scan = "scan"
    estimate = "estimate"


class EvaluatorName(StrEnum):
    """How block log likelihoods are evaluated."""

    auto = "auto"
    rewritten = "rewritten"
    instances = "instances"


class LookName(StrEnum):
    """Schedules of looks."""

    geometric = "geometric"
    fixed = "fixed"


@app.command()
def sample(
    model: Model,
    data: Annotated[Path, typer.Argument(metavar="DATA.json", help="Data in CmdStan's JSON format.")],
    chains: Annotated[int, typer.Option(help="Number of chains.", rich_help_panel=_CHAINS)] = 4,
    parallel_chains: Annotated[
        int | None, typer.Option(help="Chains run at once.", show_default="one a core", rich_help_panel=_CHAINS)
    ] = None,
    iter_warmup: Annotated[
        int, typer.Option(help="Warmup steps, in which the proposal is learned.", rich_help_panel=_CHAINS)
    ] = 2000,
    iter_sampling: Annotated[
        int, typer.Option(help="Steps after warmup, per chain.", rich_help_panel=_CHAINS)
    ] = 10_000,
    thin: Annotated[int, typer.Option(help="Keep every THIN-th step.", rich_help_panel=_CHAINS)] = 1,
    seed: Annotated[
        int | None,
        typer.Option(help="Random seed.", show_default="drawn, and written to the output", rich_help_panel=_CHAINS),
    ] = None,
    inits: Annotated[
        str,
        typer.Option(
            metavar="RADIUS|FILE[,FILE...]",
            help="Radius of random inits on the unconstrained space, or JSON files: one, or one a chain.",
            rich_help_panel=_CHAINS,
        ),
    ] = "2",
    proposal: Annotated[
        ProposalName, typer.Option(help="Proposal; both learn their scale in warmup.", rich_help_panel=_CHAINS)
    ] = ProposalName.adaptive_metropolis,
    max_time: Annotated[
        float | None,
        typer.Option(help="Stop sampling after this many seconds and keep what there is.", rich_help_panel=_CHAINS),
    ] = None,
    test: Annotated[
        TestName | None,
        typer.Option(help="Sequential test of each decision.", show_default="pocock", rich_help_panel=_DECISIONS),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Error of the t-tests: per look (austerity), of a whole decision (pocock).", rich_help_panel=_DECISIONS
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="Error of a whole decision under the concentration bounds.", rich_help_panel=_DECISIONS),
    ] = None,
    range_source: Annotated[
        RangeName,
        typer.Option("--range", help="Where the bounds' range constant comes from.", rich_help_panel=_DECISIONS),
    ] = RangeName.auto,
    looks: Annotated[
        LookName | None,
        typer.Option(
            help="Whether the subset grows by a factor or by a fixed number of blocks.", rich_help_panel=_DECISIONS
        ),
    ] = None,
    first_look: Annotated[
        int | None, typer.Option(help="Blocks at the first look.", rich_help_panel=_DECISIONS)
    ] = None,
    audit: Annotated[
        float,
        typer.Option(help="Share of decisions decided again on all the data.", rich_help_panel=_DECISIONS),
    ] = 0.01,
    block_size: Annotated[
        int | None,
        typer.Option(help="Observations a block.", show_default="chosen for the test", rich_help_panel=_DATA),
    ] = None,
    observations: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Integer data variable that counts the observations.", rich_help_panel=_DATA),
    ] = None,
    evaluator: Annotated[
        EvaluatorName, typer.Option(help="How blocks are evaluated.", rich_help_panel=_DATA)
    ] = EvaluatorName.auto,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.nc",
            help="NetCDF file to write.",
            show_default="MODEL.nc in this folder",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output file.", rich_help_panel=_OUTPUT)] = False,
    save_warmup: Annotated[
        bool, typer.Option("--save-warmup", help="Keep the warmup draws too.", rich_help_panel=_OUTPUT)
    ] = False,
    generated_quantities: Annotated[
        bool,
        typer.Option(
            help="Compute transformed parameters and generated quantities of the draws.", rich_help_panel=_OUTPUT
        ),
    ] = True,
    observation_level: Annotated[
        bool,
        typer.Option(
            "--observation-level",
            help="Keep those with a value per observation too; log_lik goes to the group log_likelihood.",
            rich_help_panel=_OUTPUT,
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.", rich_help_panel=_OUTPUT)] = False,
    debug: Debug = False,
) -> None:
    """Sample the posterior of a Stan program, each decision taken from a random subset of the data.

    Ctrl-C stops after the current step and writes what there is.
    """
    from stansub.output import inference_data, summary
    from stansub.sampling import run
    from stansub.sampling.inits import parse

    target = output or Path(f"{model.stem}.nc")
    inference_data.check_target(target, overwrite=force)
    console = Console(stderr=True)
    result = run.sample(
        model,
        data,
        chains=chains,
        parallel_chains=parallel_chains,
        iter_warmup=iter_warmup,
        iter_sampling=iter_sampling,
        thin=thin,
        seed=seed,
        inits=parse(inits),
        proposal=proposal.value,
        max_time=max_time,
        test=test.value if test else None,
        epsilon=epsilon,
        delta=delta,
        range_source=range_source.value,
        looks=looks.value if looks else None,
        first_look=first_look,
        audit=audit,
        block_size=block_size,
        observations=observations,
        evaluator=evaluator.value,
        save_warmup=save_warmup,
        generated_quantities=generated_quantities,
        observation_level=observation_level,
        show_progress=False if quiet else None,
        console=console,
    )
    written, trouble = _write(result, target, overwrite=force)
    console.print(f"Draws: {written}", highlight=False, soft_wrap=True)
    summary.render(result, Console())
    stopped = str(result.attrs["stopped"])
    failures = [stopped] if " failed (" in stopped else []
    if failures or trouble:
        raise RunError("; ".join([*failures, *([trouble] if trouble else [])]))


def _write(result: Any, target: Path, *, overwrite: bool) -> tuple[Path, str]:
    """Write draws where they are wanted or, if that fails, in a temporary folder; the place, and what failed."""
    from stansub.output import inference_data

    try:
        inference_data.write(result, target, overwrite=overwrite)
    except StansubError as error:
        elsewhere = Path(tempfile.mkdtemp(prefix="stansub-")) / target.name
        inference_data.write(result, elsewhere, overwrite=False)
        return elsewhere, f"{error}; the draws were written to {elsewhere} instead"
    return target, ""


@app.command()
def check(
    model: Model,
    data: Annotated[Path | None, typer.Argument(metavar="[DATA.json]", help="Data, for a numerical proof.")] = None,
    observations: Annotated[
        str | None, typer.Option(metavar="NAME", help="Integer data variable that counts the observations.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Say what is taken as likelihood and as global part, and whether the program can be subsampled."""
    from stansub import checking

    checking.report(model, data, observations=observations, console=Console(), progress=Console(stderr=True))


@app.command()
def summary(
    draws: Draws,
    everything: Annotated[bool, typer.Option("--all", help="Show all rows of the table.")] = False,
    debug: Debug = False,
) -> None:
    """Print the table, the share of the data used, the audit and the warnings again."""
    from stansub.output import inference_data
    from stansub.output import summary as summary_module

    summary_module.render(inference_data.read(draws), Console(), max_rows=None if everything else 50)


@app.command()
def plot(
    draws: Draws,
    output: Annotated[
        Path | None,
        typer.Option(metavar="STEM", help="Start of the pictures' names.", show_default="that of the draws"),
    ] = None,
    var_names: Annotated[
        list[str] | None, typer.Option("--var-name", help="Variable to show; may be given several times.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the pictures.")] = False,
    debug: Debug = False,
) -> None:
    """Draw trace and rank pictures, and the share of the data used."""
    from stansub.output import inference_data, plots

    stem = output or draws.with_suffix("")
    pictures = [stem.with_name(f"{stem.name}_{kind}.png") for kind in ("trace", "data")]
    for picture in pictures:
        inference_data.check_target(picture, overwrite=force)
    result = inference_data.read(draws)
    plots.trace(result, pictures[0], var_names=var_names)
    plots.share_of_data(result, pictures[1])
    for picture in pictures:
        typer.echo(picture)


@app.command()
def doctor(debug: Debug = False) -> None:
    """Show compiler, stanc, BridgeStan home, versions and cache, and what to do about what is missing."""
    from stansub.program import toolchain

    findings = toolchain.diagnose()
    console = Console()
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        mark = "[green]ok[/]" if finding.ok else "[red]--[/]"
        console.print(f"{mark}  {finding.name:<{width}}  {finding.value}", highlight=False, soft_wrap=True)
        if not finding.ok and finding.remedy:
            console.print(f"    {'':<{width}}  {finding.remedy}", style="yellow", highlight=False, soft_wrap=True)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def _version(value: bool) -> None:
    if value:
        from stansub._version import __version__

        typer.echo(f"stansub {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exit code 2 for bad input, 1 for failures at run time, 130 for an interrupt."""
    arguments = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    command: Any = typer.main.get_command(app)
    try:
        code = command.main(args=arguments, prog_name="stansub", standalone_mode=False)
        if code == _INTERRUPTED:  # Typer turns Ctrl-C into this code without a word
            _fail("interrupted", code)
    except StansubError as error:
        code = _fail(str(error), error.exit_code)
        _trace(arguments)
    except (KeyboardInterrupt, typer.Abort):
        code = _fail("interrupted", _INTERRUPTED)
    except Exception as error:
        # Typer brings its own copy of click's exceptions in some versions: known by what they can do.
        if isinstance(error, SystemExit | typer.Exit):
            raise
        if hasattr(error, "format_message"):
            code = _usage(error)
        else:
            code = _fail(f"internal error: {type(error).__name__}: {error}; --debug shows where", 1)
            _trace(arguments)
    sys.exit(code if isinstance(code, int) else 0)


def _usage(error: Any) -> int:
    """One line for a wrong use of the command line."""
    context = getattr(error, "ctx", None)
    name = context.command_path if context is not None else "stansub"
    return _fail(f"{error.format_message().rstrip('.')} (see `{name} --help`)", 2)


def _fail(message: str, code: int) -> int:
    typer.echo(f"stansub: error: {message}", err=True)
    return code


def _trace(arguments: list[str]) -> None:
    if "--debug" in arguments:
        traceback.print_exc()


if __name__ == "__main__":
    main()
