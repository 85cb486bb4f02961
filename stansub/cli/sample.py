"""`stansub sample`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from stansub.cli.flags import spelled
from stansub.cli.options import (
    DECISIONS,
    OUTPUT,
    BlockSize,
    Data,
    Debug,
    Evaluator,
    EvaluatorName,
    FirstLook,
    Looks,
    Model,
    Observations,
    OrderName,
    ProposalName,
    Quiet,
    RangeName,
    TestName,
    Verbose,
)
from stansub.errors import MISSED_MODE, InterruptError, RunError

_CHAINS = "Chains"


def sample(
    model: Model,
    data: Data,
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
        str | None,
        typer.Option(
            metavar="RADIUS|FILE[,FILE...]",
            help="Radius of random inits on the unconstrained space, or JSON files: one, or one a chain.",
            show_default="widely about the mode; 2 where there is none",
            rich_help_panel=_CHAINS,
        ),
    ] = None,
    proposal: Annotated[
        ProposalName,
        typer.Option(
            help="Moves about the mode (laplace-pcn, langevin), random walks that learn their scale in warmup, or "
            "Langevin moves with gradients of mini-batches (sgld); auto has a short race about the mode.",
            rich_help_panel=_CHAINS,
        ),
    ] = ProposalName.auto,
    max_time: Annotated[
        float | None,
        typer.Option(
            help="Stop after this many seconds, set-up included, and keep the draws there are.", rich_help_panel=_CHAINS
        ),
    ] = None,
    test: Annotated[
        TestName | None,
        typer.Option(
            help="How a decision is taken: by a sequential test or, barker and penalty, with the noise of the "
            "estimate counted in.",
            show_default="pocock",
            rich_help_panel=DECISIONS,
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Error of the t-tests: per look (austerity), of a whole decision (pocock, on which barker and penalty "
            "fall back).",
            rich_help_panel=DECISIONS,
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="Error of a whole decision under the concentration bounds.", rich_help_panel=DECISIONS),
    ] = None,
    max_error: Annotated[
        float | None,
        typer.Option(
            help="Error of a whole decision that is accepted, whatever the test, instead of --epsilon or --delta.",
            rich_help_panel=DECISIONS,
        ),
    ] = None,
    control_variates: Annotated[
        OrderName,
        typer.Option(
            help="Order of the expansions at the mode that decisions take from the log likelihoods.",
            rich_help_panel=DECISIONS,
        ),
    ] = OrderName.auto,
    range_source: Annotated[
        RangeName,
        typer.Option("--range", help="Where the bounds' range constant comes from.", rich_help_panel=DECISIONS),
    ] = RangeName.auto,
    looks: Looks = None,
    first_look: FirstLook = None,
    audit: Annotated[
        float | None,
        typer.Option(
            help="Share of decisions decided again on all the data.",
            show_default="0.01; of many cheap ones some hundreds; as --max-error asks",
            rich_help_panel=DECISIONS,
        ),
    ] = None,
    block_size: BlockSize = None,
    observations: Observations = None,
    evaluator: Evaluator = EvaluatorName.auto,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.nc",
            help="NetCDF file to write.",
            show_default="MODEL.nc in this folder",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output file.", rich_help_panel=OUTPUT)] = False,
    save_warmup: Annotated[
        bool, typer.Option("--save-warmup", help="Keep the warmup draws too.", rich_help_panel=OUTPUT)
    ] = False,
    generated_quantities: Annotated[
        bool,
        typer.Option(
            help="Compute transformed parameters and generated quantities of the draws.", rich_help_panel=OUTPUT
        ),
    ] = True,
    observation_level: Annotated[
        bool,
        typer.Option(
            "--observation-level",
            help="Keep those with a value per observation too; log_lik goes to the group log_likelihood.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Sample the posterior of a Stan program, each decision taken from a random subset of the data.

    Ctrl-C, SIGTERM and SIGHUP stop after the current step and write what there is; a second one gives it up.

    Exit codes: 0 done, 1 failure at run time, 2 wrong use or input, 3 interrupted and draws written, 4 a mode was found
    that no chain visited, 130 interrupted and nothing to write.
    """
    from stansub.output import files, inference_data, summary
    from stansub.output.record import missed_modes
    from stansub.run import sample as run
    from stansub.run.inits import parse

    target = output or Path(f"{model.stem}.nc")
    files.check_target(target, overwrite=force)
    console = Console(stderr=True)
    result = run.draw(
        model,
        data,
        chains=chains,
        parallel_chains=parallel_chains,
        iter_warmup=iter_warmup,
        iter_sampling=iter_sampling,
        thin=thin,
        seed=seed,
        inits=parse(inits) if inits is not None else None,
        proposal=proposal.value,
        control_variates=control_variates.value,
        max_time=max_time,
        test=test.value if test else None,
        epsilon=epsilon,
        delta=delta,
        max_error=max_error,
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
        show_progress=not quiet,
        console=console,
    )
    found = run.check(result)
    written, trouble = inference_data.write_anywhere(result, target, overwrite=force)
    try:
        lines = result.attrs["warnings"].splitlines()
        note = f" ({len(lines)} warning{'s' * (len(lines) > 1)} below the summary)" if lines else ""
        console.print(f"Draws: {written}{note}", highlight=False, soft_wrap=True)
        summary.render(result, Console(), summary=found, verbose=verbose, spelled=spelled)
    except KeyboardInterrupt:
        raise InterruptError(trouble or f"interrupted; the draws are in {written}", written=True) from None
    stopped = str(result.attrs["stopped"])
    failures = [stopped] if " failed (" in stopped else []
    if failures or trouble:
        raise RunError("; ".join([*failures, *([trouble] if trouble else [])]))
    if stopped.startswith("interrupted"):
        raise typer.Exit(InterruptError.WRITTEN)
    if missed_modes(inference_data.attrs(result)):
        raise typer.Exit(MISSED_MODE)
