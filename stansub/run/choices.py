"""What is chosen for a user who does not say: block size, audits, and where the range constant comes from."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass

from stansub.acceptance import ranges as sources
from stansub.acceptance.ranges import DERIVATIVES
from stansub.acceptance.rules import StoppingRule
from stansub.errors import InputError
from stansub.run.decisions import check_range
from stansub.selection import BlockReason, BlockSize, Chosen, ErrorAudited, ErrorNotAudited, RangeByPredictors
from stansub.stan.analysis import Analysis
from stansub.stan.posterior import Posterior
from stansub.stan.ranges import LIPSCHITZ, largest_constant, range_function

# Share of the decisions that are audited, their number at most and at least, and what they may evaluate between.
_AUDIT_SHARE, _AUDITS, _FEWEST_AUDITS, _AUDITED_OBSERVATIONS = 0.01, 400, 30, 100_000_000

# Where the user accepts an error, audits that can tell whether it is kept may evaluate so many passes over the data or
# observations, whichever is more.
_PASSES_WITHIN, _OBSERVATIONS_WITHIN = 400, 1_000_000_000


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def block_size_chosen(size: int, *, given: bool, test: StoppingRule, variates: bool, single: bool) -> BlockSize:
    """The size of a block, and why; control variates may be those of single observations."""
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
    """Where the range constant comes from.

    Attributes
    ----------
    kind : str
        "none" for tests that need no range, else a name as `sample` takes it.
    source : Range or None
        For the chains' deciders.
    held : object
        What must live as long as they do.
    notes : tuple of Chosen
        Why it is this one.
    """

    kind: str
    source: sources.Range | None = None
    held: object = None
    notes: tuple[Chosen, ...] = ()


def choose_audit(audit: float | None, n_steps: int, n_observations: int) -> float:
    """The share of decisions to be audited: one in a hundred, of many cheap ones fewer.

    As many as tell an error of one in a hundred, and not so many that the evaluations of all the data take longer than
    some seconds.
    """
    if audit is not None:
        return audit
    affordable = min(_AUDITS, max(_FEWEST_AUDITS, _AUDITED_OBSERVATIONS // n_observations))
    return min(_AUDIT_SHARE, affordable / n_steps)


def audit_within(max_error: float, n_steps: int, n_observations: int) -> tuple[float, ErrorAudited | ErrorNotAudited]:
    """The share of decisions to be audited so that they can show the error to be within ``max_error``, and why.

    Where none of n audited decisions is wrong, the error is at most 1 - 0.025^(1 / n) with 95 % confidence (Clopper and
    Pearson 1934, two-sided). So many are made where what they evaluate, all the data at both ends, is within bounds;
    elsewhere as many as `choose_audit` says.
    """
    least = math.ceil(math.log(0.025) / math.log1p(-max_error))
    n = math.ceil(least + 2 * math.sqrt(least))  # which ones are audited is random, and so is their number
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
    """Order of the control variates whose remainders a function of the program bounds; 0 where there are none.

    Parameters
    ----------
    order : {"auto", "0", "1", "2"}
        Of the control variates, as asked for.
    kind : str
        Source of the range, as asked for.
    """
    if not test.needs_range or kind not in ("auto", "derivative"):
        return 0
    fitting = (one for one in (2, 1) if order in ("auto", str(one)) and DERIVATIVES[one] in analysis.functions)
    return next(fitting, 0)


def by_predictors(test: StoppingRule, analysis: Analysis, order: str, kind: str, *, known: bool = False) -> bool:
    """Whether the range is to come from proved bounds: where no function of the program gives one, and that is free.

    Parameters
    ----------
    order, kind : str
        Of the control variates and source of the range, as asked for.
    known : bool
        Whether the linear predictors were given, whatever the program's text shows.
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
    """Find the range constant of a test that needs one.

    Parameters
    ----------
    order : {"auto", "0", "1", "2"}
        Of the control variates, as asked for: with them the range is that of the remainders.

    Raises
    ------
    InputError
        When the program does not have the function that is asked for, or its range is not that of remainders.
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
        constant = largest_constant(posterior, DERIVATIVES[bounded], progress=progress)
        return Ranges(kind, sources.Derivative(constant, bounded))
    if kind == "lipschitz":
        if LIPSCHITZ not in functions:
            raise InputError(f"`range_source='lipschitz'` needs a function {LIPSCHITZ}(int i, ...) in the program")
        lipschitz = sources.Lipschitz(largest_constant(posterior, LIPSCHITZ, progress=progress))
        return Ranges(kind, lipschitz)
    if kind == "function":
        if "log_lik_range" not in functions:
            raise InputError("`range_source='function'` needs a function log_lik_range(...) in the program")
        function = range_function(posterior, progress=progress)
        source = sources.RangeFunction(function.address, factor=function.factor)
        return Ranges(kind, source, function)
    other = sources.Scan() if kind == "scan" else sources.Estimate()
    return Ranges(kind, other)
