"""Precision at which a run stops: a minimum effective sample size, a maximum R-hat, or both."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from stansub.errors import InputError

EXAMPLE = "ess=400,rhat=1.01"


@dataclass(frozen=True)
class Precision:
    """Precision that every parameter must reach.

    Raises
    ------
    InputError
        If neither is given, or a value is one that no draws or all draws satisfy.
    """

    ess: float | None = None
    """Minimum bulk and tail ESS (Vehtari et al. 2021) of all chains together."""
    rhat: float | None = None
    """Maximum R-hat."""

    def __post_init__(self) -> None:
        if self.ess is None and self.rhat is None:
            raise InputError(f"`until`: give a minimum ESS, a maximum R-hat, or both, such as {EXAMPLE}")
        for name, value, least in (("ess", self.ess, 0), ("rhat", self.rhat, 1)):
            if value is not None and not least < value < math.inf:
                raise InputError(f"`until`: {name} {value:g} must be a finite number above {least}")

    @classmethod
    def of(cls, given: str | Mapping[str, float]) -> Precision:
        """Return the precision from text (``"ess=400,rhat=1.01"``) or a mapping.

        Raises
        ------
        InputError
            If it is neither.
        """
        if isinstance(given, str):
            return cls(**_numbers(_words(given)))
        if isinstance(given, Mapping):
            return cls(**_numbers(given.items()))
        raise InputError(f"`until`: {given!r} must have the form {EXAMPLE}, or a mapping such as {{'ess': 400}}")

    def __str__(self) -> str:
        named = {one.name: getattr(self, one.name) for one in fields(self)}
        return ",".join(f"{name}={value:.12g}" for name, value in named.items() if value is not None)

    def reached(self, ess: float, r_hat: float) -> bool:
        """Return whether this ESS (the smaller of bulk and tail) and R-hat reach the precision; NaN never does."""
        return (self.ess is None or ess >= self.ess) and (self.rhat is None or r_hat <= self.rhat)


def _words(text: str) -> Iterable[tuple[str, str]]:
    for part in text.split(","):
        name, equals, value = (one.strip() for one in part.partition("="))
        if not (name and equals and value):
            raise InputError(f"`until`: {text!r} must have the form {EXAMPLE}")
        yield name, value


def _numbers(named: Iterable[tuple[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {}
    known = [one.name for one in fields(Precision)]
    for name, value in named:
        if name not in known:
            raise InputError(f"`until`: unknown {name!r}; choose from {', '.join(known)}, such as {EXAMPLE}")
        if name in found:
            raise InputError(f"`until`: {name} is given twice")
        try:
            found[name] = float(value)
        except (TypeError, ValueError):
            raise InputError(f"`until`: {name} {value!r} must be a number, such as {EXAMPLE}") from None
    return found
