"""Test, schedule of looks and source of the range, from the options."""

from __future__ import annotations

from stansub.acceptance.rules import Fixed, StoppingRule, as_rule, make_test
from stansub.errors import InputError
from stansub.run.limits import FIRST_LOOK, MAX_ERROR, RANGES

# Measured against exact Metropolis-Hastings: see the section on the plain algorithm in docs/explanation/methods.md.
DEFAULT_TEST = "pocock"


def choose_test(
    test: StoppingRule | str | None,
    *,
    epsilon: float | None,
    delta: float | None,
    looks: str | None,
    first_look: int | None,
    max_error: float | None = None,
    bounds: str | None = None,
    kappa: float | None = None,
) -> StoppingRule:
    """Return the requested test, the default, or the test passed in.

    ``max_error`` sets the test's epsilon or delta; `StoppingRule.of_a_decision` completes it when the number of blocks
    is known.

    Raises
    ------
    InputError
        If the name is unknown, or the test does not accept epsilon, delta or max_error, or the value is out of range.
    """
    if first_look is not None:
        FIRST_LOOK.check("first_look", first_look)
    if max_error is not None:
        MAX_ERROR.check("max_error", max_error)
    if max_error is not None and (epsilon is not None or delta is not None):
        raise InputError("`max_error` sets `epsilon` or `delta` itself: give only one of the three")
    if test is None and delta is not None:
        raise InputError(
            "`delta` is the level of the concentration bounds; use it with test hoeffding, bernstein or "
            "bernstein-serfling"
        )
    if test is None:
        test = DEFAULT_TEST
    if not isinstance(test, str):
        if any(setting is not None for setting in (epsilon, delta, looks, first_look, max_error, bounds, kappa)):
            raise InputError(
                "a test given as an object has its own epsilon, delta, max_error, looks, first_look, bounds and kappa: "
                "leave these out"
            )
        return as_rule(test)
    made = make_test(test, epsilon=epsilon, delta=delta, bounds=bounds, kappa=kappa)
    if max_error is not None:
        made = made.with_error(max_error)
    return with_looks(made, looks, first_look)


def with_looks(test: StoppingRule, looks: str | None, first_look: int | None) -> StoppingRule:
    """Return the test with the requested schedule; settings not given stay the test's own.

    Raises
    ------
    InputError
        If the schedule is unknown, the first look has no blocks, or the test has no looks.
    """
    if looks is None and first_look is None:
        return test
    if looks not in (None, "geometric", "fixed"):
        raise InputError(f"unknown looks {looks!r}; choose from geometric, fixed")
    own = test.looks
    if own is None:
        raise InputError(f"the {test.name} test has no looks: leave out `looks` and `first_look`")
    if first_look is not None:
        FIRST_LOOK.check("first_look", first_look)
    first = first_look or own.first
    if first < 2 and not test.needs_range:
        raise InputError(
            f"the {test.name} test needs at least 2 blocks at the first look to estimate a standard deviation"
        )
    return test.with_looks(Fixed(size=first) if looks == "fixed" else own.starting_at(first))


def check_range(test: StoppingRule, kind: str) -> None:
    """Raise InputError if the source of the range is unknown, or the test needs no range."""
    RANGES.check("range", kind)
    if not test.needs_range and kind != "auto":
        raise InputError(f"the {test.name} test does not use a range: leave out `range_source='{kind}'`")
