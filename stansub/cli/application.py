"""The application: its commands, and the line and exit code of a failure."""

from __future__ import annotations

import inspect
import os
import re
import sys
import traceback
import warnings
from typing import Annotated, Any

import typer

from stansub import memory
from stansub.cli import other_tools, streams
from stansub.cli.check import check, doctor
from stansub.cli.compare import compare
from stansub.cli.diagnose import diagnose
from stansub.cli.draws import plot, summary
from stansub.cli.export import export
from stansub.cli.flags import in_one_line
from stansub.cli.loo import loo
from stansub.cli.new import new
from stansub.cli.options import CheckedCommand, TwoHelps, for_application, paragraphs
from stansub.cli.plan import plan
from stansub.cli.ppc import ppc
from stansub.cli.reference import reference
from stansub.cli.report import report
from stansub.cli.risk import risk
from stansub.cli.sample import sample
from stansub.errors import DrawsWarning, InputError, InterruptError, RunError, StansubError

_READER_GONE = 141  # as a shell says of a program that SIGPIPE has ended
# Words of pydantic, which some versions of Typer use.
_NOT_A_NUMBER = re.compile(r"Input should be a valid (\w+), unable to parse string as an? \w+")

app = typer.Typer(
    name="stansub",
    help="Sample the posterior of Stan models with tall data by subsampled Metropolis-Hastings.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (
    new,
    sample,
    summary,
    plot,
    report,
    export,
    compare,
    loo,
    ppc,
    reference,
    diagnose,
    risk,
    plan,
    check,
    doctor,
):
    _whole = for_application(_command)
    _two = "help_all" in inspect.signature(_whole).parameters
    app.command(cls=TwoHelps if _two else CheckedCommand, help=paragraphs(_command.__doc__ or ""))(_whole)


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
    try:
        os.getcwd()
    except FileNotFoundError:
        raise InputError("the current folder has been deleted; change to another one") from None


def run(arguments: list[str]) -> int:
    """Run a command whose output may not find a reader, and return its exit code."""
    with streams.guarded():
        try:
            code = _invoke(arguments)
            if not code:  # otherwise the failure has been printed
                sys.stdout.flush()
        except streams.ReaderGoneError:
            code = _READER_GONE
        except RunError as error:
            code = _fail(str(error), error.exit_code)
    return code


def _invoke(arguments: list[str]) -> int:
    """Run a command; the exit code, once a failure has been printed as one line."""
    command: Any = typer.main.get_command(app)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DrawsWarning)  # the summary has them
            code = command.main(args=arguments, prog_name="stansub", standalone_mode=False)
        if code == InterruptError.NOTHING:  # Typer turns Ctrl-C into this code without a word
            _fail("interrupted", code)
    except StansubError as error:
        code = _fail(str(error), error.exit_code)
        _trace(arguments)
    except (KeyboardInterrupt, typer.Abort):
        code = _fail("interrupted", InterruptError.NOTHING)
    except streams.ReaderGoneError:
        raise
    except Exception as error:
        # Typer brings its own copy of click's exceptions in some versions: known by what they can do.
        if isinstance(error, SystemExit | typer.Exit):
            raise
        if hasattr(error, "format_message"):
            code = _usage(error, " ".join(["stansub", *(one for one in arguments[:1] if one in command.commands)]))
        else:
            internal = f"internal error: {type(error).__name__}: {error}; --debug shows where"
            code = _fail(memory.shortage(error) or internal, 1)
            _trace(arguments)
    return code if isinstance(code, int) else 0


def _usage(error: Any, begun: str) -> int:
    """One line for a wrong use of a command, which begins like this; an error of an option's value has no context."""
    context = getattr(error, "ctx", None)
    name = context.command_path if context is not None else begun
    if context is not None and (flag := getattr(error, "option_name", None)):
        options = {one.name for one in context.command.params}
        if instead := other_tools.hint(flag, options):
            return _fail(f"no such option: {flag}; {instead} (see `{name} --help`)", 2)
    message = _NOT_A_NUMBER.sub(r"must be a valid \1", error.format_message().rstrip(".").replace("Value error, ", ""))
    return _fail(f"{message} (see `{name} --help`)", 2)


def _fail(message: str, code: int) -> int:
    typer.echo(f"stansub: error: {in_one_line(message)}", err=True)
    return code


def _trace(arguments: list[str]) -> None:
    if "--debug" in arguments:
        traceback.print_exc()
