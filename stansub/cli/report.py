"""`stansub report`: a page about draws for a colleague."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stansub.cli.flags import FlagConsole, as_code, as_flags
from stansub.cli.options import Columns, Draws, Moved, Quiet, forcing, sources_of, stages, to_file
from stansub.run import config

if TYPE_CHECKING:
    from stansub.output.inference_data import InferenceData
    from stansub.stan.data.sources import DataSources

# Options that change draws although a resumed run may have others.
_ENDING = ("max_time", "until", "save", "drop", "generated_quantities", "observation_level")


def report(
    draws: Draws,
    output: Annotated[Path | None, to_file("Page to write.", "FILE.html", "DRAWS_report.html beside the draws")] = None,
    force: Annotated[bool, forcing("Overwrite the page.")] = False,
    data: Moved = None,
    columns: Columns = None,
    quiet: Quiet = False,
) -> None:
    """Write one HTML page about draws, for a colleague.

    The page has the posterior table, traces, ranks, pairs, warnings, cost, and how to reproduce the draws. If the
    program has generated quantities such as y_rep for the data y, it also has a posterior predictive check.
    """
    from stansub.output import files, inference_data
    from stansub.report import run_page
    from stansub.run.reading import read_draws

    target = output or draws.parent / f"{draws.stem}_report.html"
    files.check_target(target, overwrite=force)
    with stages(quiet=quiet) as log:
        log("Reading draws")
        found = read_draws(draws)
    predicted, note = _predicted(found, sources_of(data, columns) if data else None, quiet=quiet)
    with stages(quiet=quiet) as log:
        log("Writing the page")
        command = _command(inference_data.attrs(found))
        page = run_page.html(found, predicted=predicted, command=command, note=note, spell=as_code)
        files.write(target, page.encode(), overwrite=force)
    typer.echo(target)


def _predicted(draws: InferenceData, data: DataSources | None, *, quiet: bool) -> tuple[InferenceData | None, str]:
    """Return replicated data, or a sentence on why there are none."""
    from stansub.diagnostics.ppc import ppc
    from stansub.errors import StansubError
    from stansub.output.inference_data import attrs

    if not re.search(r"\w_(rep|hat)\b", str(attrs(draws).get("model_code", ""))):
        return None, ""
    try:
        console = FlagConsole(stderr=True)
        return ppc(draws, data=data, show_progress=not quiet, console=console), ""
    except StansubError as error:
        return None, f"This page has no posterior predictive check: {error}."


def _command(facts: Mapping[str, Any]) -> str:
    """Return the command that makes the same draws; empty if `stansub sample` did not make them from files."""
    from stansub.stan.data.sources import DataSources

    asked, sources = facts.get("asked"), DataSources.restored(str(facts.get("data_file") or ""))
    if not asked or sources is None or asked.get("kernel"):
        return ""
    given = asked | {"seed": facts.get("settings", {}).get("seed", asked.get("seed"))}
    flags = [
        as_flags(f"`{name}={shlex.quote(str(value))}`")
        for name, value in given.items()
        if name in config.names()
        and (config.declared(name).resume != "any" or name in _ENDING)
        and value not in (None, config.DEFAULTS[name])
    ]
    files = [shlex.quote(file.name) for file in sources.files]
    return " ".join(["stansub sample", shlex.quote(f"{facts['model']}.stan"), *files, *flags])
