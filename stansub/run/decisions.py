"""How decisions are taken, as options ask for it: test, schedule of looks, source of the range."""

from __future__ import annotations

from stansub.acceptance.rules import Fixed, StoppingRule, as_rule, make_test
from stansub.errors import InputError
from stansub.run.limits import FIRST_LOOK, MAX_ERROR, RANGES

# Measured against exact Metropolis-Hastings: see the section on the plain path in the README.
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
    """The test asked for by name, the default, or the one given.

    With ``max_error`` its epsilon or delta is that; `StoppingRule.of_a_decision` does the rest when the number of
    blocks is known.

    Raises
    ------
    InputError
        For an unknown name, an epsilon, delta or max_error that the test does not take or that is out of range.
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
                "a test given as an object sets epsilon, delta, max_error, looks, first_look, bounds and kappa "
                "itself: leave them out"
            )
        return as_rule(test)
    made = make_test(test, epsilon=epsilon, delta=delta, bounds=bounds, kappa=kappa)
    if max_error is not None:
        made = made.with_error(max_error)
    return with_looks(made, looks, first_look)


def with_looks(test: StoppingRule, looks: str | None, first_look: int | None) -> StoppingRule:
    """The test with the schedule asked for; what is not said stays the test's own.

    Raises
    ------
    InputError
        For an unknown schedule, a first look of no blocks, or a test that does not look.
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
    """Raise InputError for an unknown source of the range, or one for a test that needs none."""
    RANGES.check("range", kind)
    if not test.needs_range and kind != "auto":
        raise InputError(f"the {test.name} test does not use a range: leave out `range_source='{kind}'`")
