"""Declaration of a function's options as fields of a dataclass, from which its signature and docstring are made.

Imports are light so that the command line starts fast.
"""

from __future__ import annotations

import inspect
import numbers
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial, wraps
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, cast

from stansub.run.limits import Bounds, Named

_Documented = TypeVar("_Documented", bound=Callable[..., Any])
_Config = TypeVar("_Config")
_Model = TypeVar("_Model", contravariant=True)
_Data = TypeVar("_Data", contravariant=True)
_Result = TypeVar("_Result", covariant=True)
_Options = ParamSpec("_Options")


@dataclass(frozen=True)
class Option:
    """Declaration of an option, besides its name, type and default."""

    text: str
    """What the option does, in a sentence; names of other options in backticks."""
    bounds: Bounds | None = None
    default: str = ""
    """What None means, in words."""
    group: str = ""
    """Section of the command line's help; empty for options of Python alone."""
    type_: str = ""
    """Type in docstrings, if the annotation is too long."""
    flag: str = ""
    metavar: str | None = None
    """Spelling on the command line, if it does not follow from the name."""
    resume: Literal["same", "longer", "any"] = "same"
    """Constraint when a run resumes: the same value, the same or a larger one, or any value because no draw depends on
    it.
    """
    recorded: bool = True
    """Whether the option is written to the output."""
    common: bool = False
    """Whether the short help of `sample` shows it."""


def option(default: Any, text: str, bounds: Bounds | None = None, *, means: str = "", **more: Any) -> Any:
    """Return a dataclass field that declares an option; ``means`` is `Option.default`."""
    return field(default=default, metadata={"option": Option(text, bounds, means, **more)})


# Groups of the options of `sample` in the command line's help, and what declares an option of each.
CHAINS, DECISIONS, DATA, OUTPUT = "Chains", "Decisions", "Data", "Output"
of_chains, of_decisions, of_data, of_output = (partial(option, group=one) for one in (CHAINS, DECISIONS, DATA, OUTPUT))


def declared(config: Any) -> dict[str, Option]:
    """Return the declared options of a configuration by name."""
    return {one.name: one.metadata["option"] for one in fields(config)}


def check(option_of: Mapping[str, Option], values: Mapping[str, Any]) -> None:
    """Raise InputError if a value is out of its option's bounds; None is always allowed."""
    for name, value in values.items():
        bounds = option_of[name].bounds
        if bounds is not None and value is not None:
            bounds.check(name, value)


def record(config: Any) -> dict[str, Any]:
    """Return options by name as JSON values; a value without a JSON form is given by type and digest."""
    return {
        name: as_json(getattr(config, name), exact=option.resume != "any")
        for name, option in declared(config).items()
        if option.recorded
    }


def differs(option: Option, now: Any, before: Any) -> bool:
    """Return whether an option's change prevents resuming a run; both values are as `record` gives them."""
    if option.resume == "longer":
        return bool(now < (before or 0))
    return option.resume == "same" and bool(now != before)


def plain_type(annotation: str) -> type:
    """Return the type of values as they are written on the command line, from an annotation such as "int | None"."""
    return {"int": int, "float": float, "bool": bool}.get(annotation.removesuffix(" | None"), str)


def documented(what: _Documented, config: Any = None) -> _Documented:
    """Replace the line ``{options}`` of a docstring with a configuration's options (by default its own)."""
    text = what.__doc__ or ""
    line = next(line for line in text.splitlines() if line.strip() == "{options}")
    what.__doc__ = text.replace(line, textwrap.indent(_parameters(config or what), line.removesuffix("{options}")))
    return what


class Taking(Protocol[_Options, _Model, _Data, _Result]):
    """A function of a model, data and options."""

    def __call__(
        self, model: _Model, data: _Data | None = None, *args: _Options.args, **options: _Options.kwargs
    ) -> _Result:
        """Call it."""


def taking(
    config: Callable[_Options, _Config],
) -> Callable[[Callable[[_Model, _Data, _Config], _Result]], Taking[_Options, _Model, _Data, _Result]]:
    """Turn a function of a configuration into one of its options, with matching signature and docstring."""

    def decorate(
        function: Callable[[_Model, _Data, _Config], _Result],
    ) -> Taking[_Options, _Model, _Data, _Result]:
        own = inspect.signature(function)
        options = [*inspect.signature(config).parameters.values()]
        data = own.parameters["data"].replace(default=None)
        signature = own.replace(parameters=[own.parameters["model"], data, *options])

        @wraps(function)
        def taken(
            model: _Model, data: _Data | None = None, *args: _Options.args, **options: _Options.kwargs
        ) -> _Result:
            try:
                signature.bind(model, data, *args, **options)
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            return function(model, cast(_Data, data), config(*args, **options))

        vars(taken)["__signature__"] = signature
        taken.__annotations__ = {
            **{one.name: one.annotation for one in signature.parameters.values()},
            "return": own.return_annotation,
        }
        return cast(Taking[_Options, _Model, _Data, _Result], documented(taken, config))

    return decorate


def _parameters(config: Any) -> str:
    """Return the options as entries of a numpydoc section."""
    entries = []
    for one in fields(config):
        option: Option = one.metadata["option"]
        text = option.text + (f" By default {option.default}." if option.default else "")
        lines = textwrap.wrap(text, 112, initial_indent="    ", subsequent_indent="    ")
        optional = ", optional" if one.default is None else ""
        entries.append("\n".join([f"{one.name} : {_type_text(str(one.type), option)}{optional}", *lines]))
    return "\n".join(entries)


def _type_text(annotation: str, option: Option) -> str:
    chosen = ", ".join(f'"{one}"' for one in option.bounds.names) if isinstance(option.bounds, Named) else ""
    if option.type_ and not option.type_.startswith("or "):
        return option.type_
    if chosen:
        return f"{{{chosen}}} {option.type_}".rstrip()
    return plain_type(annotation).__name__


def as_json(value: Any, *, exact: bool) -> Any:
    """Return a value as JSON; a value without a JSON form is given by name and, if ``exact``, a digest."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if hasattr(value, "__fspath__"):
        return str(value)
    if isinstance(value, Sequence):
        return [as_json(one, exact=exact) for one in value]
    name = str(getattr(value, "__qualname__", type(value).__name__))
    if not exact:
        return name
    from stansub.run.identity import digest_of

    try:
        return f"{name} {digest_of(value)}"
    except Exception:  # values of any class may fail in any way
        return name
