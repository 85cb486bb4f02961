"""Parts of sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from string import Formatter
from typing import Any, dataclass_transform

# Remedies if chains hardly move.
_COMMANDS = "`fallback=nuts`, or `stansub reference`"
BY_NUTS = f"Use NUTS for such posteriors: {_COMMANDS}."


def declare(effects: Sequence[str]) -> str:
    """Return the advice to declare products of effects with other parameters, which a likelihood has."""
    return (
        f"The likelihood multiplies {listed(effects)} by other parameters: declare the product in transformed "
        "parameters (such as `vector[J] u = tau * z;`)."
    )


def declare_or_nuts(effects: Sequence[str]) -> str:
    """Return the remedy if chains hardly move, given the effects whose products are not declared."""
    return f"{declare(effects)} If that does not help, use NUTS: {_COMMANDS}." if effects else BY_NUTS


def percent(share: float) -> str:
    """Return a share in percent, to two digits."""
    return f"{100 * share:.0f} %" if share == 0 or share >= 0.1 else f"{without_exponent(100 * share, digits=2)} %"


def without_exponent(value: float, *, digits: int) -> str:
    """Return a number to so many significant digits, as people write it: 0.00001 rather than 1e-05."""
    return format(Decimal(f"{value:.{digits}g}"), ",f")


def rounded(value: float) -> str:
    """Return a number to two digits, such as 0.25 or 4,200."""
    return without_exponent(value, digits=2)


def duration(seconds: float) -> str:
    """Return seconds, minutes or hours in words, with about two digits."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 119.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class _Template(Formatter):
    """Formatter of templates whose fields are attributes of a value."""

    _words: Mapping[str, Callable[[Any], str]] = {
        "percent": percent,
        "rounded": rounded,
        "duration": duration,
        "joined": ", ".join,
    }

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return getattr(args[0], str(key))

    def format_field(self, value: Any, format_spec: str) -> str:
        in_words = self._words.get(format_spec)
        return format(value, format_spec) if in_words is None else in_words(value)


def filled(template: str, value: object) -> str:
    """Return a template with attributes of a value, such as ``{n:,}``, ``{share:percent}`` or ``{names:joined}``."""
    return _Template().vformat(template, (value,), {})


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class SelfDescribing:
    """A value that describes itself, by templates (see `filled`) or a method; each subclass is a frozen dataclass."""

    def __init_subclass__(cls, **options: bool) -> None:
        super().__init_subclass__()
        dataclass(frozen=True, **options)(cls)


def listed(names: Sequence[str]) -> str:
    """Return names in a list with "and" before the last."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def same_with_signs(groups: Sequence[Sequence[str]]) -> str:
    """Return in words that the signs of parameters can change together."""
    return f"the posterior is the same if {', or '.join(map(listed, groups))} change their signs"


def sentence(text: str) -> str:
    """Return a text with a capital and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
