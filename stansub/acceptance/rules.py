"""The stopping rules by name."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module

from stansub.acceptance.bounds import Bernstein, BernsteinSerfling, Hoeffding
from stansub.acceptance.looks import Fixed, Geometric, Schedule, Table
from stansub.acceptance.names import RULE_HOMES, TEST_NAMES
from stansub.acceptance.noise import Barker, Penalty
from stansub.acceptance.stopping import ErrorLevel, Exact, Factorised, Guarantee, Poisson, StoppingRule, as_rule
from stansub.acceptance.student import Austerity, Pocock
from stansub.errors import InputError

__all__ = [
    "RULES",
    "TEST_NAMES",
    "Austerity",
    "Barker",
    "Bernstein",
    "BernsteinSerfling",
    "ErrorLevel",
    "Exact",
    "Factorised",
    "Fixed",
    "Geometric",
    "Guarantee",
    "Hoeffding",
    "Penalty",
    "Pocock",
    "Poisson",
    "Schedule",
    "StoppingRule",
    "Table",
    "as_rule",
    "make_test",
]


def _rule(home: str) -> type[StoppingRule]:
    module, _, name = home.partition(":")
    found: type[StoppingRule] = getattr(import_module(module), name)
    return found


RULES: dict[str, type[StoppingRule]] = {name: _rule(home) for name, home in RULE_HOMES.items()}


def make_test(
    name: str,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    looks: Schedule | None = None,
    bounds: str | None = None,
    kappa: float | None = None,
) -> StoppingRule:
    """Return a stopping rule from its name and settings, which are its fields; None means the rule's default.

    Raises
    ------
    InputError
        For an unknown name, a setting the test does not have, or a value out of range.
    """
    if name not in RULES:
        raise InputError(f"unknown test '{name}'; choose from {', '.join(TEST_NAMES)}")
    rule = RULES[name]
    given = {"epsilon": epsilon, "delta": delta, "looks": looks, "bounds": bounds, "kappa": kappa}
    settings = {key: value for key, value in given.items() if value is not None}
    known = {field.name for field in fields(rule)}  # type: ignore[arg-type]
    for key in settings:
        if key not in known:
            raise InputError(f"the {name} test does not use `{key}`: leave it out")
    return rule(**settings)
