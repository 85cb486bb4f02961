"""Stopping rules: when is a decision clear enough to stop drawing blocks?

Every rule is a table of looks. At look k, with n_k of the M units drawn without replacement, mean m and standard
deviation s (divisor n - 1), a decision falls when ``|m - mu0| > scale_k * s + offset_k * R``, R being the range of the
units' differences; the last look has all M units and always decides. Two rules count the noise of the estimate in and
so decide without waiting for a distance; their table is what they fall back on where that noise is too large.

What other parts of the package want to know of a rule they ask the rule: whoever adds one need change nothing else.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, Self

import numpy as np

from stansub import _loop
from stansub.acceptance.looks import Schedule, Table, check_units
from stansub.acceptance.names import BOUNDS
from stansub.acceptance.ranges import Range
from stansub.codec import GIVEN
from stansub.errors import InputError
from stansub.target.blocks import PLAIN_BLOCK_SIZE, VARIATES_BLOCK_SIZE, fitting_size

# Observations a block of exact decisions. (The range of a block sum grows as its size, which a concentration bound pays
# for in full: there single observations are best.)
_BLOCK_EXACT = 1024

# Attributes of a rule that are numbers: errors that it allows, the noise that it lets pass, and what it multiplies
# bounds with. Of these are errors:
_PARAMETERS = ("epsilon", "delta", "noise", "kappa")
_ERRORS = ("epsilon", "delta")

# Of joint decisions where none is given, and those of which a race chooses.
_KAPPA, _KAPPAS = 1.0, (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


class Guarantee(StrEnum):
    """What a rule promises of its decisions."""

    EXACT = "exact"
    PROVED = "exact by proved bounds"
    LEARNED = "approximate: bounds learned"
    BOUND = "bound"
    ASYMPTOTIC = "asymptotic"
    VOID = "void: range estimated"
    UNKNOWN = "unknown"


class ErrorLevel(NamedTuple):
    """The error that a rule allows.

    Attributes
    ----------
    name : str
        Of the rule's attribute, ``epsilon`` or ``delta``.
    value : float
    """

    name: str
    value: float


class StoppingRule:
    """A sequential test of whether the mean of a finite population exceeds a threshold.

    A rule of one's own has the attributes ``name`` and ``needs_range`` and the method ``table(n_units)``, and may have
    ``epsilon``, the error of a decision that is accepted, which audits are held against. It may be derived from this
    class and override what else it knows better than the defaults; it need not (see `as_rule`).

    Attributes
    ----------
    name : str
        On the command line and in the output.
    needs_range : bool
        Whether the table multiplies the range by anything but 0.
    looks : Schedule or None
        When it looks, where that can be set.
    rests_on_t : bool
        Whether every decision rests on Student's t, that is on means that are near normal.
    counts_noise : bool
        Whether the noise of an estimate is part of a decision.
    fits_looks : bool
        Whether the first look may be chosen to fit control variates.
    level_of_a_look : bool
        Whether the error level is that of a single look, not of a whole decision.
    thins : bool
        Whether decisions are taken by thinning, which needs bounds on remainders; its looks are for populations of some
        of the blocks.
    """

    name: str
    needs_range: bool = False
    looks: Schedule | None = None
    rests_on_t = False
    counts_noise = False
    fits_looks = False
    level_of_a_look = False
    thins = False

    @property
    def learns_bounds(self) -> bool:
        """Whether the bounds of a test that thins are learned from trials, so that they need no proof."""
        return False

    @property
    def joint(self) -> float | None:
        """The kappa of joint decisions by thinning, as the decision loop takes it; None where decisions are others."""
        return None

    @property
    def variants(self) -> tuple[StoppingRule, ...]:
        """The same rule with values of a setting of which a race is to choose one; none where nothing is open."""
        return ()

    def table(self, n_units: int, level: float | None = None) -> Table:
        """The looks for a population of ``n_units`` units, with ``level`` in place of the rule's own error level."""
        raise NotImplementedError

    def noise_rule(self) -> _loop.NoiseRule | None:
        """How noise settles a decision, as the decision loop takes it; None where it does not."""
        return None

    def guarantee(self, source: Range | None) -> Guarantee:
        """What is promised, given where the range comes from."""
        return Guarantee.UNKNOWN

    @property
    def exact(self) -> bool:
        """Whether every decision is taken on all units."""
        return False

    @property
    def parameters(self) -> Mapping[str, float]:
        """Its finite numbers by name, for the record."""
        found = {name: getattr(self, name, None) for name in _PARAMETERS}
        return {
            name: float(value)
            for name, value in found.items()
            if isinstance(value, numbers.Real) and math.isfinite(value)
        }

    @property
    def error(self) -> ErrorLevel | None:
        """The error that it allows, if it says so."""
        found = (ErrorLevel(name, value) for name, value in self.parameters.items() if name in _ERRORS)
        return next(found, None)

    def with_error(self, level: float) -> Self:
        """The same rule with another error level; one without stays as it is."""
        return self if self.error is None else replace(self, **{self.error.name: level})  # type: ignore[type-var]

    def with_looks(self, looks: Schedule) -> Self:
        """The same rule with another schedule.

        Raises
        ------
        InputError
            When it has none to be set.
        """
        if self.looks is None:
            raise InputError(f"the {self.name} test has no looks: leave out `looks` and `first_look`")
        return replace(self, looks=looks)  # type: ignore[type-var]

    def of_a_decision(self, error: float, n_units: int) -> Self:
        """The rule whose whole decisions err with a probability of at most ``error``, if its level is of a look."""
        return self

    def promised_error(self, n_units: int) -> float:
        """The largest error of a decision that is promised for normal means.

        Raises
        ------
        TypeError
            When the rule does not rely on these.
        """
        raise TypeError(f"the {self.name} test does not rely on normal means")

    def block_size(self, n: int, *, instances: bool, variates: bool) -> int:
        """Observations a block that suit it, for ``n`` observations.

        ``instances`` says whether each block costs an instance of the program, ``variates`` whether decisions may have
        control variates.
        """
        if self.exact:
            return fitting_size(_BLOCK_EXACT, n, instances=instances, n_blocks=1)
        if self.needs_range and not variates:
            return fitting_size(1, n, instances=instances)
        return fitting_size(VARIATES_BLOCK_SIZE if variates else PLAIN_BLOCK_SIZE, n, instances=instances)


@dataclass(frozen=True, kw_only=True)
class Exact(StoppingRule):
    """Plain Metropolis-Hastings: one look, at everything."""

    name = "exact"

    def table(self, n_units: int, level: float | None = None) -> Table:
        check_units(n_units)
        if level:
            raise InputError(f"the exact test makes no errors: leave out the error level {level}")
        return Table(np.array([n_units], np.int32), np.zeros(1), np.zeros(1))

    @property
    def exact(self) -> bool:
        return True

    def guarantee(self, source: Range | None) -> Guarantee:
        return Guarantee.EXACT


@dataclass(frozen=True, kw_only=True)
class _Thinned(Exact):
    """Exact decisions from the few observations, or blocks, that a Poisson process picks.

    See `stansub.target.remainders` for the bounds, without which they cannot be taken. Decisions about some of the
    blocks evaluate all of these.
    """

    bounds: str = "proved"
    thins = True

    def __post_init__(self) -> None:
        if self.bounds not in BOUNDS:
            raise InputError(f"unknown bounds {self.bounds!r}; choose from {', '.join(BOUNDS)}")

    @property
    def learns_bounds(self) -> bool:
        return self.bounds == "learned"

    @property
    def exact(self) -> bool:
        return False

    def guarantee(self, source: Range | None) -> Guarantee:
        return Guarantee.LEARNED if self.learns_bounds else Guarantee.PROVED


@dataclass(frozen=True, kw_only=True)
class Factorised(_Thinned):
    """Exact decisions from a few observations: a factor of the acceptance probability for each.

    Cornish, Vanetti, Bouchard-Cote, Deligiannidis and Doucet (2019), on observations or blocks, in the metric of the
    posterior.

    Attributes
    ----------
    bounds : {"proved", "learned"}
        Where the bounds come from: proved for likelihoods of linear predictors, or learned from trials for any
        likelihood (see `stansub.tuning.bound_learning`), which makes the test an approximate one.

    Raises
    ------
    InputError
        For any other bounds.
    """

    name = "factorised"


@dataclass(frozen=True, kw_only=True)
class Poisson(_Thinned):
    """Exact decisions from a few observations: one for all of them together, which keeps the signs of remainders.

    The auxiliary Poisson variables of Zhang and De Sa (2019) and of Zhang, Cooper and De Sa (2020), for remainders in
    place of log likelihoods. It accepts more than `Factorised` where remainders of many observations cancel, and picks
    kappa + 1/2 times as many.

    Attributes
    ----------
    bounds : {"proved", "learned"}
        As for `Factorised`.
    kappa : float, optional
        At least 1/2: more picks more observations, and accepts more. By default it is chosen in warmup where a race
        chooses the proposal, and 1 elsewhere.

    Raises
    ------
    InputError
        For any other bounds, or another kappa.
    """

    kappa: float | None = None
    name = "poisson"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kappa is not None:
            check_kappa(self.kappa)

    @property
    def joint(self) -> float | None:
        return _KAPPA if self.kappa is None else self.kappa

    @property
    def variants(self) -> tuple[StoppingRule, ...]:
        return () if self.kappa is not None else tuple(replace(self, kappa=kappa) for kappa in _KAPPAS)


@dataclass(init=False, eq=False)
class GivenRule(StoppingRule):
    """A rule of somebody's own that has the least that a rule must have."""

    rule: Any = field(metadata=GIVEN)
    name: str
    needs_range: bool

    def __init__(self, rule: Any) -> None:
        self.rule = rule
        self.name, self.needs_range = rule.name, rule.needs_range

    def table(self, n_units: int, level: float | None = None) -> Table:
        if level is not None:
            raise InputError(
                f"the error level of the {self.name} test is fixed: derive the test from StoppingRule to make it "
                "adjustable"
            )
        table: Table = self.rule.table(n_units)
        return table

    def __getattr__(self, name: str) -> Any:
        if name in _PARAMETERS:
            return getattr(self.rule, name)
        raise AttributeError(name)

    def __repr__(self) -> str:
        return repr(self.rule)


def as_rule(value: Any) -> StoppingRule:
    """A value with ``name``, ``needs_range`` and ``table(n_units)`` as a stopping rule.

    Raises
    ------
    InputError
        When it lacks one of them.
    """
    if isinstance(value, StoppingRule):
        return value
    if not all(hasattr(value, name) for name in ("name", "needs_range", "table")):
        raise InputError(
            f"{value!r} is not a test: give a name, or an object with `name`, `needs_range` and `table(n_units)`"
        )
    return GivenRule(value)


def check_kappa(value: float) -> None:
    """Raise InputError unless a number can be the kappa of joint decisions."""
    if not 0.5 <= value < math.inf:
        raise InputError(f"kappa must be finite and at least 0.5, not {value}")


def check_level(what: str, value: float, *, zero: bool = False) -> None:
    """Raise InputError unless an error level is one."""
    if not (0 < value < 1 or (zero and value == 0)):
        hint = " (0 is exact Metropolis-Hastings)" if zero else ""
        raise InputError(f"{what} must be between 0 and 1{hint}, not {value}")
