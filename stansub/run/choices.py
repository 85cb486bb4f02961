"""Defaults of the block size, audits and the source of the range."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass

from stansub.acceptance import ranges as sources
from stansub.acceptance.ranges import DERIVATIVES
from stansub.acceptance.rules import StoppingRule
from stansub.decision_selection import BlockReason, BlockSize, ErrorAudited, ErrorNotAudited
from stansub.errors import InputError
from stansub.run.decisions import check_range
from stansub.selection import Chosen
from stansub.stan.analysis import Analysis
from stansub.stan.posterior import Posterior
from stansub.stan.ranges import LIPSCHITZ, range_function
from stansub.variates_selection import RangeByPredictors

# Share of the decisions that are audited, their maximum and minimum number, and the limits of what they may evaluate.
_AUDIT_SHARE, _AUDITS, _FEWEST_AUDITS, _AUDITED_OBSERVATIONS = 0.01, 400, 30, 100_000_000

# If the user accepts an error, audits that can check it may evaluate this many passes over the data or this many
# observations, whichever is more.
_PASSES_WITHIN, _OBSERVATIONS_WITHIN = 400, 1_000_000_000


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def block_size_chosen(size: int, *, given: bool, test: StoppingRule, variates: bool, single: bool) -> BlockSize:
    """Return the block size and the reason for it; control variates may be those of single observations."""
    if given:
        return BlockSize(size, BlockReason.GIVEN)
    if single:
        return BlockSize(size, BlockReason.SINGLE)
    if test.exact:
        return BlockSize(size, BlockReason.EXACT)
    if variates:
        return BlockSize(size, BlockReason.CONTROL_VARIATES)
    return BlockSize(size, BlockReason.RANGE if test.needs_range else BlockReason.SPEED)


@dataclass(frozen=True)
class Ranges:
    """Source of the range."""

    kind: str
    """A name that `sample` accepts, or "none" for tests that need no range."""
    source: sources.Range | None = None
    """Source for the chains' deciders."""
    notes: tuple[Chosen, ...] = ()
    """Reasons for the choice."""


def choose_audit(audit: float | None, n_steps: int, n_observations: int) -> float:
    """Return the share of decisions to audit: one in a hundred, or fewer if there are many cheap decisions.

    Enough decisions are audited to detect an error of one in a hundred, but so few that their evaluations of all the
    data take at most some seconds.
    """
    if audit is not None:
        return audit
    affordable = min(_AUDITS, max(_FEWEST_AUDITS, _AUDITED_OBSERVATIONS // n_observations))
    return min(_AUDIT_SHARE, affordable / n_steps)


def audit_within(max_error: float, n_steps: int, n_observations: int) -> tuple[float, ErrorAudited | ErrorNotAudited]:
    """Return the share of decisions to audit to show that the error is within ``max_error``, and why.

    If none of n audited decisions is wrong, the error is at most 1 - 0.025^(1 / n) with 95 % confidence (Clopper and
    Pearson 1934, two-sided). That many are audited if their evaluations (all the data at both ends) are within bounds;
    otherwise as many as `choose_audit` chooses.
    """
    least = math.ceil(math.log(0.025) / math.log1p(-max_error))
    n = math.ceil(least + 2 * math.sqrt(least))  # both the choice of audits and their number are random
    usual, passes = choose_audit(None, n_steps, n_observations), 2 * n
    n_usual = round(usual * n_steps)
    if n <= usual * n_steps:
        return usual, ErrorAudited(max_error=max_error, n_audits=n_usual)
    affordable = passes <= _PASSES_WITHIN or passes * n_observations <= _OBSERVATIONS_WITHIN
    if n > n_steps or not affordable:
        made = None if n > n_steps else n_usual
        return usual, ErrorNotAudited(
            max_error=max_error, n_needed=n, n_audits=made, n_passes=passes, share=n / n_steps
        )
    return n / n_steps, ErrorAudited(max_error=max_error, n_audits=n, n_passes=passes)


def bounded_order(test: StoppingRule, analysis: Analysis, order: str, kind: str) -> int:
    """Return the order of control variates whose remainders a function of the program bounds; 0 if there is none.

    Parameters
    ----------
    order : {"auto", "0", "1", "2"}
        Requested order of the control variates.
    kind : str
        Requested source of the range.
    """
    if not test.needs_range or kind not in ("auto", "derivative"):
        return 0
    fitting = (one for one in (2, 1) if order in ("auto", str(one)) and DERIVATIVES[one] in analysis.functions)
    return next(fitting, 0)


def by_predictors(test: StoppingRule, analysis: Analysis, order: str, kind: str, *, known: bool = False) -> bool:
    """Return whether the range comes from proved bounds: if no function of the program gives one, and the user set
    none.

    Parameters
    ----------
    order, kind : str
        Requested order of the control variates and source of the range.
    known : bool
        Whether the linear predictors are already known, whatever the program's text shows.
    """
    if not test.needs_range or order == "0" or kind not in ("auto", "predictors"):
        return False
    given = {*DERIVATIVES.values(), LIPSCHITZ, "log_lik_range"} & analysis.functions
    return kind == "predictors" or (not given and (known or analysis.has_family))


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
    analysis = posterior.analysis
    functions, bounded = analysis.functions, bounded_order(test, analysis, order, kind)
    if by_predictors(test, analysis, order, kind, known=posterior.known_predictors is not None):
        predicted = sources.Predictors(2 if order == "auto" else int(order))
        return Ranges("predictors", predicted, notes=(RangeByPredictors(kind != "auto"),))
    if kind == "predictors":
        raise InputError(
            "`range_source='predictors'` gives the range of remainders of control variates: leave out "
            "`control_variates=0`"
        )
    if kind == "auto":
        own = {"derivative": bounded > 0, "lipschitz": LIPSCHITZ in functions, "function": "log_lik_range" in functions}
        kind = next((name for name, there in own.items() if there), kind)
    if kind == "auto":
        where = {"auto": "", "0": " without control variates"}.get(order, f" with control variates of order {order}")
        raise InputError(
            f"the test {test.name} needs the range of the values that it averages, but the program has no function "
            f"that gives it{where} and no recognised likelihood of linear predictors: add "
            f"{DERIVATIVES[1 if order == '1' else 2]} (with control variates) or {LIPSCHITZ} or log_lik_range "
            "(without), or choose `range_source='scan'` (all data at every decision) or `range_source='estimate'` "
            "(no guarantee)"
        )
    if kind in ("lipschitz", "function") and order in ("1", "2"):
        raise InputError(
            f"`range_source='{kind}'` gives the range of log likelihood differences, but with control variates the "
            "test averages remainders: choose `control_variates=0` or `range_source='scan'`, or add "
            f"{DERIVATIVES[int(order)]}(int i, ...)"
        )
    if kind == "derivative":
        if not bounded:
            raise InputError(
                f"`range_source='derivative'` needs control variates and a function {DERIVATIVES[2]}(int i, ...) in "
                f"the program (with `control_variates=1` {DERIVATIVES[1]})"
            )
        if analysis.takes_metric(DERIVATIVES[bounded]):
            return Ranges(kind, sources.Predictors(bounded))
        constants = posterior.constants(DERIVATIVES[bounded], progress=progress)
        return Ranges(kind, sources.Derivative(float(constants.max()), bounded))
    if kind == "lipschitz":
        if LIPSCHITZ not in functions:
            raise InputError(f"`range_source='lipschitz'` needs a function {LIPSCHITZ}(int i, ...) in the program")
        constants = posterior.constants(LIPSCHITZ, progress=progress)
        return Ranges(kind, sources.Lipschitz(float(constants.max())))
    if kind == "function":
        if "log_lik_range" not in functions:
            raise InputError("`range_source='function'` needs a function log_lik_range(...) in the program")
        return Ranges(kind, range_function(posterior, progress=progress))
    other = sources.Scan() if kind == "scan" else sources.Estimate()
    return Ranges(kind, other)
