"""The application: its commands, and the one line and exit code that end it where something goes wrong."""

from __future__ import annotations

import sys
import traceback
import warnings
from typing import Annotated, Any

import typer

from stansub import memory
from stansub.cli.check import check, doctor
from stansub.cli.compare import compare
from stansub.cli.diagnose import diagnose
from stansub.cli.draws import plot, summary
from stansub.cli.reference import reference
from stansub.cli.risk import risk
from stansub.cli.sample import sample
from stansub.errors import DrawsWarning, StansubError

_INTERRUPTED = 130

app = typer.Typer(
    name="stansub",
    help="Posterior draws from Stan models with tall data, by subsampled Metropolis-Hastings.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (sample, summary, plot, compare, reference, diagnose, risk, check, doctor):
    app.command()(_command)


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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DrawsWarning)  # the summary has them
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
            internal = f"internal error: {type(error).__name__}: {error}; --debug shows where"
            code = _fail(memory.shortage(error) or internal, 1)
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
