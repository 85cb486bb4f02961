"""Trial decisions at the end of warmup: test of the t-test's normality assumption."""

from __future__ import annotations

import numpy as np

from stansub.acceptance.normality import Pair, Trial, try_pairs
from stansub.acceptance.rules import Table
from stansub.kernels.proposals import Proposal
from stansub.target.factors import Evaluator
from stansub.target.gradients import ParallelEvaluator
from stansub.target.taylor import ControlVariates
from stansub.types import FloatArray

# At the end of a chain's warmup: a few passes over the data, and hundredths of a second for the subsets.
N_PAIRS, N_SUBSETS, DECISION_WORK = 8, 250, 1_000_000


class WarmupTrial:
    """Trial at the end of one chain's warmup; does not change the chain.

    Parameters
    ----------
    evaluator : Evaluator
        The chain's own.
    table : Table
        Looks of its t-test.
    variates : ControlVariates, optional
        Control variates of the chain's decisions: the test then uses remainders.

    """

    def __init__(
        self,
        evaluator: Evaluator,
        table: Table,
        rng: np.random.Generator,
        variates: ControlVariates | None = None,
    ) -> None:
        self._evaluator, self._table, self.rng, self._variates = evaluator, table, rng, variates

    def renewed(self, evaluator: Evaluator, table: Table, variates: ControlVariates | None) -> WarmupTrial | None:
        """Return the same trial for another decider, before it runs; None if its first look uses all blocks."""
        return WarmupTrial(evaluator, table, self.rng, variates) if table.n.size > 1 else None

    def __call__(self, position: FloatArray, proposal: Proposal) -> tuple[Trial | None, int]:
        """Return the trial (None if no proposal has a finite log density) and the evaluations of all the data."""
        pairs, n_passes = pairs_at(self._evaluator, position, proposal, N_PAIRS, self.rng, self._variates)
        if not pairs:
            return None, n_passes
        made = try_pairs(pairs, self._table, n_subsets=N_SUBSETS, rng=self.rng, decision_work=DECISION_WORK)
        return made, n_passes


def pairs_at(
    evaluator: Evaluator | ParallelEvaluator,
    position: FloatArray,
    proposal: Proposal,
    n: int,
    rng: np.random.Generator,
    variates: ControlVariates | None = None,
) -> tuple[list[Pair], int]:
    """Return pairs of a state and ``n`` proposals from it, and how often all blocks were evaluated.

    Proposals without a finite log density are left out, because they are always rejected.
    """
    shared, here = evaluator.global_log_density(position), evaluator.block_log_lik(position)
    pairs, n_passes = [], 1
    for _ in range(n):
        proposed, log_ratio = proposal(rng, position)
        rest = evaluator.global_log_density(proposed) - shared + log_ratio
        if not np.isfinite(rest):
            continue
        n_passes += 1
        differences = evaluator.block_log_lik(proposed) - here
        if variates is not None:
            changes = variates.changes(position, proposed)
            differences, rest = differences - changes, rest + float(changes.sum())
        if np.isfinite(differences).all():
            pairs.append(Pair(differences, float(rest)))
    return pairs, n_passes
