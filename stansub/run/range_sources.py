"""Sources of the range for tests that need one, by name; the default is the first that the program has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple

from stansub.acceptance import ranges
from stansub.acceptance.ranges import DERIVATIVES
from stansub.acceptance.rules import StoppingRule
from stansub.errors import InputError
from stansub.run.decisions import check_range
from stansub.selection import Chosen
from stansub.stan.analysis import Analysis
from stansub.stan.posterior import Posterior
from stansub.stan.ranges import LIPSCHITZ, range_function
from stansub.variates_selection import RangeByPredictors

_RANGE = "log_lik_range"


@dataclass(frozen=True)
class Ranges:
    """Source of the range."""

    kind: str
    """A name that `sample` accepts, or "none" for tests that need no range."""
    source: ranges.Range | None = None
    """Source for the chains' deciders."""
    notes: tuple[Chosen, ...] = ()
    """Reasons for the choice."""


class RangeRequest(NamedTuple):
    """A program, and the requested control variates, whose remainders the range may be of."""

    analysis: Analysis
    order: str
    """Requested order of the control variates: "auto", "0", "1" or "2"."""
    known_predictors: bool = False
    """Whether the linear predictors are already known, whatever the program's text shows."""

    @property
    def bounded(self) -> int:
        """Return the order of control variates whose remainders a function of the program bounds; 0 if none does."""
        fitting = (k for k in (2, 1) if self.order in ("auto", str(k)) and DERIVATIVES[k] in self.analysis.functions)
        return next(fitting, 0)

    def check_differences(self, kind: str) -> None:
        """Raise InputError if the range must be that of remainders."""
        if self.order in ("1", "2"):
            raise InputError(
                f"`range_source='{kind}'` gives the range of log likelihood differences, but with control variates the "
                "test averages remainders: choose `control_variates=0` or `range_source='scan'`, or add "
                f"{DERIVATIVES[int(self.order)]}(int i, ...)"
            )


@dataclass(frozen=True)
class Source(ABC):
    """A source of the range."""

    name: str

    def of_remainders(self, request: RangeRequest) -> bool:
        """Return whether the range is that of remainders, of which blocks may be small."""
        return False

    def suggests_itself(self, request: RangeRequest) -> bool:
        """Return whether the source is a candidate for the default."""
        return False

    @abstractmethod
    def make(self, posterior: Posterior, request: RangeRequest, progress: Callable[[str], None] | None) -> ranges.Range:
        """Return the range; raise InputError if the program lacks what it needs."""

    def notes(self, *, given: bool) -> tuple[Chosen, ...]:
        """Return the reasons for the choice, which the user made if ``given``."""
        return ()


class _Derivative(Source):
    def of_remainders(self, request: RangeRequest) -> bool:
        return request.bounded > 0

    def suggests_itself(self, request: RangeRequest) -> bool:
        return request.bounded > 0

    def make(self, posterior: Posterior, request: RangeRequest, progress: Callable[[str], None] | None) -> ranges.Range:
        if not request.bounded:
            raise InputError(
                f"`range_source='derivative'` needs control variates and a function {DERIVATIVES[2]}(int i, ...) in "
                f"the program (with `control_variates=1` {DERIVATIVES[1]})"
            )
        function = DERIVATIVES[request.bounded]
        if request.analysis.takes_metric(function):
            return ranges.Predictors(request.bounded)
        return ranges.Derivative(float(posterior.constants(function, progress=progress).max()), request.bounded)


@dataclass(frozen=True)
class _OfDifferences(Source):
    """A function of the program that gives the range of log likelihood differences."""

    function: str
    arguments: str
    read: Callable[..., ranges.Range]

    def suggests_itself(self, request: RangeRequest) -> bool:
        return self.function in request.analysis.functions

    def make(self, posterior: Posterior, request: RangeRequest, progress: Callable[[str], None] | None) -> ranges.Range:
        request.check_differences(self.name)
        if self.function not in request.analysis.functions:
            raise InputError(
                f"`range_source='{self.name}'` needs a function {self.function}({self.arguments}) in the program"
            )
        return self.read(posterior, progress=progress)


def _lipschitz(posterior: Posterior, *, progress: Callable[[str], None] | None) -> ranges.Range:
    return ranges.Lipschitz(float(posterior.constants(LIPSCHITZ, progress=progress).max()))


class _Predictors(Source):
    """Proved bounds, the default if no function of the program gives the range."""

    def of_remainders(self, request: RangeRequest) -> bool:
        return request.order != "0"

    def suggests_itself(self, request: RangeRequest) -> bool:
        given = {*DERIVATIVES.values(), LIPSCHITZ, _RANGE} & request.analysis.functions
        return request.order != "0" and not given and (request.known_predictors or request.analysis.has_family)

    def make(self, posterior: Posterior, request: RangeRequest, progress: Callable[[str], None] | None) -> ranges.Range:
        if request.order == "0":
            raise InputError(
                "`range_source='predictors'` gives the range of remainders of control variates: leave out "
                "`control_variates=0`"
            )
        return ranges.Predictors(2 if request.order == "auto" else int(request.order))

    def notes(self, *, given: bool) -> tuple[Chosen, ...]:
        return (RangeByPredictors(given),)


@dataclass(frozen=True)
class _WithoutFunction(Source):
    """A source that any program has, and that is used only if the user asks for it."""

    range: ranges.Range

    def make(self, posterior: Posterior, request: RangeRequest, progress: Callable[[str], None] | None) -> ranges.Range:
        return self.range


# In the order in which the default is chosen.
_SOURCES = (
    _Derivative("derivative"),
    _OfDifferences("lipschitz", LIPSCHITZ, "int i, ...", _lipschitz),
    _OfDifferences("function", _RANGE, "...", range_function),
    _Predictors("predictors"),
    _WithoutFunction("scan", ranges.Scan()),
    _WithoutFunction("estimate", ranges.Estimate()),
)


def source(kind: str, request: RangeRequest) -> Source | None:
    """Return the source of this name, the default for "auto"; None if the program has nothing for it."""
    suits = (one.suggests_itself(request) if kind == "auto" else one.name == kind for one in _SOURCES)
    return next(compress(_SOURCES, suits), None)


def bounds_remainders(test: StoppingRule, request: RangeRequest, kind: str) -> bool:
    """Return whether the range will be that of remainders, as far as the program's text tells."""
    found = source(kind, request) if test.needs_range else None
    return found is not None and found.of_remainders(request)


def choose_range(
    test: StoppingRule,
    posterior: Posterior,
    kind: str,
    *,
    order: str = "0",
    progress: Callable[[str], None] | None = None,
) -> Ranges:
    """Return the source of the range for a test that needs one.

    Parameters
    ----------
    kind : str
        Requested source, or "auto".
    order : {"auto", "0", "1", "2"}
        Requested order of the control variates. With control variates the range is that of the remainders.

    Raises
    ------
    InputError
        If the program lacks the requested function, or its range is not that of remainders.
    """
    check_range(test, kind)
    if not test.needs_range:
        return Ranges("none")
    request = RangeRequest(posterior.analysis, order, posterior.known_predictors is not None)
    found = source(kind, request)
    if found is None:
        raise InputError(_no_range(test, order))
    return Ranges(found.name, found.make(posterior, request, progress), found.notes(given=kind != "auto"))


def _no_range(test: StoppingRule, order: str) -> str:
    where = {"auto": "", "0": " without control variates"}.get(order, f" with control variates of order {order}")
    return (
        f"the test {test.name} needs the range of the values that it averages, but the program has no function that "
        f"gives it{where} and no recognised likelihood of linear predictors: add "
        f"{DERIVATIVES[1 if order == '1' else 2]} (with control variates) or {LIPSCHITZ} or {_RANGE} (without), or "
        "choose `range_source='scan'` (all data at every decision) or `range_source='estimate'` (no guarantee)"
    )
