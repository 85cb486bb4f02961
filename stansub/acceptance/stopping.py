"""Stopping rules: sequential tests that say when enough blocks are drawn to decide.

Every rule is a table of looks. At look k, with n_k of the M units drawn without replacement, mean m and standard
deviation s (divisor n - 1), the rule decides when ``|m - mu0| > scale_k * s + offset_k * R``, where R is the range of
the units' differences. The last look has all M units and always decides. Two rules account for the noise of the
estimate and decide without waiting for a distance; they fall back on their table if the noise is too large.

Other parts of the package query the rule's attributes and methods, so a new rule needs no change elsewhere.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
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

# Observations per block of exact decisions. (The range of block sums grows with the block size, and a concentration
# bound grows with the range, so blocks of single observations are best there.)
_BLOCK_EXACT = 1024

# Numeric attributes of a rule: errors that it allows, noise that it tolerates, and multiplier of the bounds. Of these,
# errors are:
_PARAMETERS = ("epsilon", "delta", "noise", "kappa")
_ERRORS = ("epsilon", "delta")

# Default of joint decisions, and the values among which a race chooses.
_KAPPA, _KAPPAS = 1.0, (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


class Guarantee(StrEnum):
    """What a rule guarantees for its decisions."""

    EXACT = "exact"
    PROVED = "exact by proved bounds"
    LEARNED = "approximate: bounds learned"
    BOUND = "bound"
    ASYMPTOTIC = "asymptotic"
    VOID = "void: range estimated"
    UNKNOWN = "unknown"


class ErrorLevel(NamedTuple):
    """Error level of a rule."""

    name: str
    """The rule's attribute: ``epsilon`` or ``delta``."""
    value: float


class StoppingRule(ABC):
    """A sequential test of whether the mean of a finite population exceeds a threshold.

    A custom rule has the attributes ``name`` and ``needs_range`` and the method ``table(n_units)``. It may have
    ``epsilon``, the accepted error of a decision, with which audits are compared. It may derive from this class and
    override the other defaults, but need not (see `as_rule`).

    Attributes
    ----------
    name : str
        Name on the command line and in the output.
    needs_range : bool
        Whether the table multiplies the range by a nonzero offset.
    looks : Schedule or None
        Schedule of looks, if it can be set.
    rests_on_t : bool
        Whether every decision relies on Student's t and therefore on nearly normal means.
    counts_noise : bool
        Whether decisions account for the noise of the estimate.
    fits_looks : bool
        Whether the first look may be adapted to control variates.
    level_of_a_look : bool
        Whether the error level is that of a look and not of a whole decision.
    thins : bool
        Whether decisions thin the data, which needs bounds on remainders; the looks are then for populations of some of
        the blocks.
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
        """Return whether a thinning test learns its bounds from trials, so that they need no proof."""
        return False

    @property
    def joint(self) -> float | None:
        """Return the kappa of joint decisions by thinning for the decision loop; None for other decisions."""
        return None

    @property
    def variants(self) -> tuple[StoppingRule, ...]:
        """Return copies of the rule with the settings among which a race chooses; empty if no setting is open."""
        return ()

    @abstractmethod
    def table(self, n_units: int, level: float | None = None) -> Table:
        """Return the looks for a population of ``n_units`` units; ``level`` replaces the rule's error level."""

    def noise_rule(self) -> _loop.NoiseRule | None:
        """Return how noise settles a decision, for the decision loop; None if it does not."""
        return None

    def guarantee(self, source: Range | None) -> Guarantee:
        """Return the guarantee, given the source of the range."""
        return Guarantee.UNKNOWN

    @property
    def exact(self) -> bool:
        """Return whether every decision uses all units."""
        return False

    @property
    def parameters(self) -> Mapping[str, float]:
        """Return the finite numeric attributes by name, for the record."""
        found = {name: getattr(self, name, None) for name in _PARAMETERS}
        return {
            name: float(value)
            for name, value in found.items()
            if isinstance(value, numbers.Real) and math.isfinite(value)
        }

    @property
    def error(self) -> ErrorLevel | None:
        """Return the rule's error level, if it has one."""
        found = (ErrorLevel(name, value) for name, value in self.parameters.items() if name in _ERRORS)
        return next(found, None)

    def with_error(self, level: float) -> Self:
        """Return the rule with another error level; a rule without a level is returned unchanged."""
        return self if self.error is None else replace(self, **{self.error.name: level})  # type: ignore[type-var]

    def with_looks(self, looks: Schedule) -> Self:
        """Return the rule with another schedule.

        Raises
        ------
        InputError
            If the rule has no schedule to set.
        """
        if self.looks is None:
            raise InputError(f"the {self.name} test has no looks: leave out `looks` and `first_look`")
        return replace(self, looks=looks)  # type: ignore[type-var]

    def of_a_decision(self, error: float, n_units: int) -> Self:
        """Return the rule with its level lowered so that whole decisions err with probability at most ``error``."""
        return self

    def promised_error(self, n_units: int) -> float:
        """Return the largest error of a decision that the rule promises for normal means.

        Raises
        ------
        TypeError
            If the rule does not rely on normal means.
        """
        raise TypeError(f"the {self.name} test does not assume normal means")

    def block_size(self, n: int, *, instances: bool, variates: bool) -> int:
        """Return the block size that suits the rule, for ``n`` observations.

        ``instances`` says whether each block costs an instance of the program, ``variates`` whether decisions may use
        control variates.
        """
        if self.exact:
            return fitting_size(_BLOCK_EXACT, n, instances=instances, n_blocks=1)
        if self.needs_range and not variates:
            return fitting_size(1, n, instances=instances)
        return fitting_size(VARIATES_BLOCK_SIZE if variates else PLAIN_BLOCK_SIZE, n, instances=instances)


@dataclass(frozen=True, kw_only=True)
class Exact(StoppingRule):
    """Plain Metropolis-Hastings: every decision uses all the data."""

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
    """Base of exact decisions from the few observations, or blocks, that a Poisson process picks.

    The decisions need the bounds of `stansub.target.remainders`. Decisions about a subset of the blocks evaluate all of
    them.
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
    """Exact decisions from a few observations: the acceptance probability has a factor for each.

    The factorisation is that of Cornish, Vanetti, Bouchard-Cote, Deligiannidis and Doucet (2019), on observations or
    blocks, in the metric of the posterior.

    Attributes
    ----------
    bounds : {"proved", "learned"}
        Source of the bounds: proved for likelihoods of linear predictors, or learned from trials for any likelihood
        (see `stansub.tuning.bound_learning`). With learned bounds the test is approximate.

    Raises
    ------
    InputError
        If ``bounds`` is anything else.
    """

    name = "factorised"


@dataclass(frozen=True, kw_only=True)
class Poisson(_Thinned):
    """Exact joint decisions from a few observations, in which remainders of opposite sign cancel.

    The test uses the auxiliary Poisson variables of Zhang and De Sa (2019) and of Zhang, Cooper and De Sa (2020), for
    remainders instead of log likelihoods. It accepts more than `Factorised` if remainders of many observations cancel,
    and picks kappa + 1/2 times as many observations.

    Attributes
    ----------
    bounds : {"proved", "learned"}
        As for `Factorised`.
    kappa : float, optional
        At least 1/2. A larger kappa picks more observations and accepts more. By default, warmup chooses it if a race
        chooses the proposal; otherwise it is 1.

    Raises
    ------
    InputError
        If ``bounds`` or ``kappa`` is anything else.
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
    """Adapter of a custom rule that defines only the required attributes."""

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
    """Return a custom value with ``name``, ``needs_range`` and ``table(n_units)`` as a stopping rule.

    Raises
    ------
    InputError
        If the value lacks one of them.
    """
    if isinstance(value, StoppingRule):
        return value
    if not all(hasattr(value, name) for name in ("name", "needs_range", "table")):
        raise InputError(
            f"{value!r} is not a test: give a name, or an object with `name`, `needs_range` and `table(n_units)`"
        )
    return GivenRule(value)


def check_kappa(value: float) -> None:
    """Raise InputError if a number cannot be the kappa of joint decisions."""
    if not 0.5 <= value < math.inf:
        raise InputError(f"`kappa` must be finite and at least 0.5, not {value}")


def check_level(what: str, value: float, *, zero: bool = False) -> None:
    """Raise InputError if a value cannot be an error level."""
    if not (0 < value < 1 or (zero and value == 0)):
        hint = " (0 is exact Metropolis-Hastings)" if zero else ""
        raise InputError(f"`{what}` must be between 0 and 1{hint}, not {value}")
