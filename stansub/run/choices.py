"""Defaults of the block size and of audits."""

from __future__ import annotations

import math
import os

from stansub.acceptance.rules import StoppingRule
from stansub.decision_selection import BlockReason, BlockSize, ErrorAudited, ErrorNotAudited

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
