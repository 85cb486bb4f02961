"""Arguments and options that commands share; those of `sample` are made from its configuration."""

from __future__ import annotations

import functools
import inspect
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from stansub.cli.flags import FlagConsole, as_flags, flag_of
from stansub.run import config, limits
from stansub.run.option import DATA, OUTPUT

if TYPE_CHECKING:
    from stansub.progress import Progress
    from stansub.stan.data.sources import DataSources

Model = Annotated[Path, typer.Argument(metavar="MODEL.stan", help="Stan program.")]
Draws = Annotated[Path, typer.Argument(metavar="DRAWS.nc", help="File written by `stansub sample`.")]
Data = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA",
        help="Data: JSON, R dump, Parquet, Arrow, CSV, npy, npz or Zarr files, NAME=VALUE.",
        show_default=False,
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=COLUMNS",
        help="Columns of a data variable: y=late, x=\\[a,b,c] or x=x_*. Repeatable.",
        rich_help_panel=DATA,
    ),
]


def moving(panel: str) -> Any:
    """Return the option for data files that have moved since sampling, in a panel of the help."""
    text = "Data, if the files have moved since sampling. Repeatable."
    return typer.Option(metavar="DATA", help=text, rich_help_panel=panel)


def forcing(text: str, panel: str | None = None) -> Any:
    """Return the option ``--force``, with what it overwrites."""
    return typer.Option("--force", help=text, rich_help_panel=panel)


def into(text: str, shown: str = "that of the draws", panel: str | None = None) -> Any:
    """Return the option for the folder of what a command writes, with the words for the default."""
    return typer.Option("--output-dir", "-o", metavar="FOLDER", help=text, show_default=shown, rich_help_panel=panel)


def to_file(text: str, metavar: str, shown: str, panel: str | None = None) -> Any:
    """Return the option for the file that a command writes, with the words for the default."""
    return typer.Option("--output", "-o", metavar=metavar, help=text, show_default=shown, rich_help_panel=panel)


Moved = Annotated[list[str] | None, moving(DATA)]
SubsetSize = Annotated[
    int,
    typer.Option("--observations", metavar="M", help="Size of the random subset; all observations if there are fewer."),
]
SubsetSeed = Annotated[int, typer.Option("--seed", help="Seed of the subset.")]
PartitionExecutor = Annotated[
    str | None,
    typer.Option(
        "--executor",
        metavar="NAME",
        help="Who opens data in partitions: threads, or the workers of dask or dask:ADDRESS.",
        rich_help_panel=DATA,
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Show the whole summary. It adds audits, speed, times and the choices of the sampler.",
        rich_help_panel=OUTPUT,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print all figures as JSON.", rich_help_panel=OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress.", rich_help_panel=OUTPUT)]

_Command = Callable[..., None]
# In a context: that all of the help is asked for.
_ALL = "stansub.help_all"


def sources_of(data: list[str], columns: list[str] | None) -> DataSources:
    """Return what data are made of, from the words of a command line."""
    from stansub.stan.data.sources import DataSources

    return DataSources.from_words(data, columns or ())


@contextmanager
def stages(*, quiet: bool) -> Iterator[Progress]:
    """Display the stages of the block on standard error."""
    from stansub.run.progress import Display, stage_progress

    with stage_progress(Display.of(not quiet, FlagConsole(stderr=True))) as log:
        yield log


def words_of(data: list[str], columns: list[str] | None) -> str:
    """Return the same as words of a command line, for a command that is suggested."""
    return shlex.join([*data, *(word for one in columns or () for word in ("--columns", one))])


def shared(name: str, *value: Any, **changes: Any) -> inspect.Parameter:
    """Return an option of `sample` as a parameter of a command that has ``--help-all``, if it is not a common one.

    Parameters
    ----------
    value
        Its default, where this is another than that of `sample`.
    changes
        What else is declared otherwise (see `stansub.run.option.Option`).
    """
    option = replace(config.declared(name), **({"default": ""} if value else {}) | changes)
    kind: Any = config.TYPES[name]
    default = value[0] if value else config.DEFAULTS[name]
    if isinstance(option.bounds, limits.Named) and option.bounds.only:
        make: Any = StrEnum
        kind = make(name, {one: one for one in option.bounds.names})
        default = default if default is None else kind(default)
    only_flag = [flag_of(name)] if option.flag or default is False else []
    info = typer.Option(
        *only_flag,
        help=as_flags(option.text),
        metavar=option.metavar,
        show_default=as_flags(option.default) or True,
        rich_help_panel=option.group or None,
        hidden=not option.common,
    )
    wanted: Any = kind if default is not None else kind | None
    annotation = Annotated[wanted, info]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


class CheckedCommand(TyperCommand):
    """A command that refuses one of its options as the value of another, which Typer would take."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse words of a command line."""
        options = [one for one in self.get_params(ctx) if one.param_type_name == "option"]
        names = {name for one in options for name in (*one.opts, *one.secondary_opts)}
        with_value = {name for one in options if not getattr(one, "is_flag", False) for name in one.opts}
        for word, following in pairwise(args):
            if word in with_value and following in names:
                ctx.fail(f"Option '{word}' requires an argument, and '{following}' is an option.")
        return super().parse_args(ctx, args)


class TwoHelps(CheckedCommand):
    """A command whose `--help` has the common options, each in the first sentence of its text, in one panel.

    Of what defaults stand for, it has numbers. `--help-all` has all options, whole texts, all defaults, and groups.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        for parameter in self.params:
            if ctx.meta.get(_ALL):
                vars(parameter)["hidden"] = False
            elif isinstance(parameter, TyperOption):
                parameter.help = first_sentence(parameter.help or "")
                parameter.show_default = _number(parameter.show_default)
                parameter.rich_help_panel = None
        super().format_help(ctx, formatter)


def paragraphs(text: str) -> str:
    """Return the paragraphs of a docstring, each in one line for the width of the terminal to break."""
    return "\n\n".join(" ".join(one.split()) for one in inspect.cleandoc(text).split("\n\n"))


def first_sentence(text: str) -> str:
    """Return the first sentence of a text."""
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0]


def _number(default: bool | str | None) -> bool | str:
    """Return the part of a default that the short help shows: a value, or the first clause if it is a number."""
    if isinstance(default, str):
        return default.partition(";")[0] if default[:1].isdigit() else False
    return bool(default)


def show_all(context: typer.Context, value: bool) -> None:
    """Print the whole help of a command, and end."""
    if value:
        context.meta[_ALL] = True
        typer.echo(context.get_help())
        raise typer.Exit


# Options that commands have but do not read: the application acts on them.
_HELP_ALL = "help_all", typer.Option("--help-all", help="Show all options and exit.", is_eager=True, callback=show_all)
_DEBUG = "debug", typer.Option("--debug", help="Show the traceback of an error.")


def declared(name: str, kind: Any, default: Any, **info: Any) -> inspect.Parameter:
    """Return an option as a parameter of a command; ``info`` is what `typer.Option` takes."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, typer.Option(**info)]
    )


def taking(*options: inspect.Parameter | str) -> Callable[[_Command], _Command]:
    """Have a command take options as ``**options``, ahead of its own, with values as Python has them.

    Options are names of those of `sample`, or what `shared` and `declared` make.
    """
    added = [shared(one) if isinstance(one, str) else one for one in options]

    def decorate(command: _Command) -> _Command:
        own = inspect.signature(command, eval_str=True).parameters.values()
        arguments = [one for one in own if one.default is one.empty and one.kind is not one.VAR_KEYWORD]
        named = [one.replace(kind=one.KEYWORD_ONLY) for one in own if one.default is not one.empty]

        @functools.wraps(command)
        def wrapped(**given: Any) -> None:
            plain = {one.name: _plain(one.name, given[one.name]) for one in added}
            command(**given | plain)

        _sign(wrapped, [*arguments, *added, *named])
        return wrapped

    return decorate


def for_application(command: _Command) -> Callable[..., None]:
    """Return a command with the options that all commands have, and ``--help-all`` if some options are hidden."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    both = any(one.annotation.__metadata__[0].hidden for one in own)
    unread = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, info])
        for name, info in ((_HELP_ALL, _DEBUG) if both else (_DEBUG,))
    ]

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        command(**{one.name: given[one.name] for one in own})

    _sign(wrapped, [*own, *unread])
    return wrapped


def _sign(function: _Command, parameters: Sequence[inspect.Parameter]) -> None:
    """Give a function these parameters, which Typer reads."""
    vars(function)["__signature__"] = inspect.Signature(parameters)
    function.__annotations__ = {one.name: one.annotation for one in parameters}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    if name == "inits" and value is not None:
        from stansub.run.inits import parse

        return parse(value)
    return value
