"""Trial decisions: test whether means of subsets of blocks are as normal as the t-tests assume.

The t-tests assume that t = (m - mu) / (s / sqrt(n) * sqrt(1 - (n - 1) / (M - 1))) of a subset of n of the M blocks
follows Student's distribution (Korattikara et al. 2014, eq. 4). Differences with heavy tails or few values violate
that: a subset without the extreme blocks has too small an s and a biased mean (Bardenet et al. 2014, figure 4). If the
differences of all blocks are known, subsets can be drawn at will and t compared with its distribution (Chen et al.
2016, section 3.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from stansub.acceptance.looks import Table
from stansub.acceptance.stopping import StoppingRule
from stansub.types import FloatArray, IntArray

# Tolerated ratio of the tail probability of |t| to that of Student's t; the tests' levels are no more exact than this.
TOLERATED = 2.0
# Levels at which the tail is tested besides the one in use.
LEVELS = (0.05, 0.01, 0.001)
_CONFIDENCE = 0.95
# The sd of the errors of single pairs over their mean. An error depends on the sd of a pair's remainders; their
# largest variation, that of cubed normal distances in one dimension, is 2.2 times the mean.
_VARIATION = 3.0
# Values shuffled at once, so that they stay in the processor's cache.
_CHUNK = 1_000_000
# Looks at up to one in this many blocks are tried before the others.
_EARLY = 16
# Values shuffled for the trial decisions of one pair.
DECISION_WORK = 4_000_000
# Longer decisions are cut to this many medians.
_LONG = 20
# Quantiles that summarise a distribution.
_N_QUANTILES = 121


class Pair(NamedTuple):
    """Differences between a state and a proposal, as a decision uses them."""

    differences: FloatArray
    """Shape (M,): log likelihood of each block at the proposal less that at the state."""
    rest: float
    """Log acceptance ratio without the likelihood."""


class Share(NamedTuple):
    """Share with its 95 % interval."""

    value: float
    low: float
    high: float


class Tail(NamedTuple):
    """Frequency with which |t| exceeds a critical value."""

    blocks: int
    """Size of the subsets."""
    in_use: bool
    """Whether this is the test's own critical value."""
    critical: float
    nominal: float
    """The critical value, and the two-sided tail probability of Student's t with ``blocks - 1`` degrees of freedom."""
    observed: Share
    """Share of the subsets whose |t| is beyond it. Subsets of equal differences count as not beyond, because they
    decide nothing.
    """
    undefined: float
    """Share of the subsets whose differences are all equal."""
    n_subsets: int
    """Subsets of all pairs."""

    @property
    def fails(self) -> bool:
        """Return whether even the lower limit of the share exceeds the tolerated ratio."""
        return self.observed.low > TOLERATED * self.nominal


@dataclass(frozen=True)
class Trial:
    """Results of trial decisions."""

    n_units: int
    """Number of blocks, M."""
    blocks: IntArray
    """Shape (n_looks,): looks tried."""
    critical: FloatArray
    """Shape (n_looks,): critical values of |t| that the test uses there."""
    t: FloatArray
    """Shape (n_looks, n_pairs, n_subsets): the statistics; NaN where all differences of a subset are equal."""
    n_decisions: int
    """Whole sequential decisions simulated for each pair."""
    n_wrong: NDArray[np.int64]
    """Shape (n_pairs,): simulated decisions that contradict all the data."""
    typical_drawn: float
    """Mean blocks drawn in a decision, the few longest decisions cut."""
    quantiles: FloatArray
    """Shape (n_pairs, n_quantiles): of the differences, in sd about their mean, at the levels `spaced(n_units)`."""
    skewness: FloatArray
    kurtosis: FloatArray
    largest: FloatArray
    """Shape (n_pairs,): of the differences: 0 and 0 for a normal population, and the largest distance from their mean
    in sd.
    """

    @property
    def n_pairs(self) -> int:
        """Return the number of pairs of a state and a proposal."""
        return self.n_wrong.size

    @property
    def decision_error(self) -> Share:
        """Return the share of the simulated decisions that were wrong."""
        return share(self.n_wrong, self.n_decisions)

    @property
    def error_limit(self) -> float:
        """Return the upper limit of the error of a decision, with 97.5 % confidence, allowing for variation between
        pairs.

        Decisions on one pair share its differences. If few or no decisions are wrong, the counts do not show how much
        the errors of pairs vary. The errors are then assumed to follow a gamma distribution whose sd is `_VARIATION`
        times its mean, so that the number of wrong decisions is negative binomial. The limit is the mean error at which
        so few wrong decisions have a probability of 2.5 %. It is at least the upper limit of `decision_error`, which
        uses the observed variance.
        """
        shape, wrong = self.n_pairs / _VARIATION**2, float(self.n_wrong.sum())
        least = float(scipy.special.betaincinv(shape, wrong + 1, (1 - _CONFIDENCE) / 2))
        return min(1.0, max(self.decision_error.high, shape * (1 / least - 1) / (self.n_pairs * self.n_decisions)))

    def tails(self, levels: Sequence[float] = ()) -> list[Tail]:
        """Return the tails at the critical values in use, look by look, and at those of other two-sided levels."""
        found = []
        for blocks, critical, t in zip(self.blocks.tolist(), self.critical.tolist(), self.t, strict=True):
            asked = [
                (True, critical),
                *((False, float(-scipy.special.stdtrit(blocks - 1, level / 2))) for level in levels),
            ]
            for in_use, value in asked:
                beyond = np.count_nonzero(np.abs(t) > value, axis=1)
                found.append(
                    Tail(
                        blocks=blocks,
                        in_use=in_use,
                        critical=value,
                        nominal=float(2 * scipy.special.stdtr(blocks - 1, -value)),
                        observed=share(beyond, t.shape[1]),
                        undefined=float(np.isnan(t).mean()),
                        n_subsets=t.size,
                    )
                )
        return found

    def worst(self) -> Tail:
        """Return the failing tail furthest above its nominal probability; the tail of the first look if none fails."""
        return max(self.tails(), key=lambda tail: tail.observed.low / tail.nominal if tail.fails else 0.0)


def try_pairs(
    pairs: Sequence[Pair],
    table: Table,
    *,
    n_subsets: int,
    rng: np.random.Generator,
    decision_work: int = DECISION_WORK,
) -> Trial:
    """Draw subsets of the differences of each pair and simulate whole decisions from them.

    Parameters
    ----------
    pairs : sequence of Pair
        At least one.
    table : Table
        Looks of a t-test, at least two.
    n_subsets : int
        Subsets per pair and look, and upper limit of the simulated decisions per pair.
    rng : Generator
        Draws the subsets and the thresholds of the decisions.
    decision_work : int
        Values to shuffle for the simulated decisions of a pair; large populations get fewer decisions.
    """
    n_units = int(table.n[-1])
    at = looks_tried(table)
    n_decisions = max(1, min(n_subsets, decision_work // n_units))
    t = np.empty((at.size, len(pairs), n_subsets))
    n_wrong = np.zeros(len(pairs), np.int64)
    drawn = []
    quantiles = np.zeros((len(pairs), _N_QUANTILES))
    skewness, kurtosis, largest = np.zeros((3, len(pairs)))
    for k, (differences, rest) in enumerate(pairs):
        mean, sd = differences.mean(), differences.std()
        if np.ptp(differences) == 0:
            t[:, k] = np.nan
            continue
        standard = (differences - mean) / sd
        for row, look in enumerate(at):
            t[row, k] = student(standard, int(table.n[look]), n_subsets, rng)
        thresholds = ((np.log1p(-rng.random(n_decisions)) - rest) / n_units - mean) / sd
        n_wrong[k], blocks = _try_decisions(standard, thresholds, table, rng)
        drawn.append(blocks)
        quantiles[k] = np.quantile(standard, spaced(n_units))
        skewness[k], kurtosis[k] = (standard**3).mean(), (standard**4).mean() - 3
        largest[k] = np.abs(standard).max()
    critical = critical_values(table)[at]
    typical = without_longest(np.concatenate(drawn)) if drawn else float(table.n[0])
    return Trial(
        n_units, table.n[at], critical, t, n_decisions, n_wrong, typical, quantiles, skewness, kurtosis, largest
    )


def pool(trials: Sequence[Trial]) -> Trial:
    """Return trials of the same test on the same blocks merged into one over all their pairs."""
    first = trials[0]
    return Trial(
        n_units=first.n_units,
        blocks=first.blocks,
        critical=first.critical,
        t=np.concatenate([trial.t for trial in trials], axis=1),
        n_decisions=first.n_decisions,
        n_wrong=np.concatenate([trial.n_wrong for trial in trials]),
        typical_drawn=float(np.average([trial.typical_drawn for trial in trials], weights=[t.n_pairs for t in trials])),
        quantiles=np.concatenate([trial.quantiles for trial in trials]),
        skewness=np.concatenate([trial.skewness for trial in trials]),
        kurtosis=np.concatenate([trial.kurtosis for trial in trials]),
        largest=np.concatenate([trial.largest for trial in trials]),
    )


def looks_tried(table: Table) -> NDArray[np.intp]:
    """Return the looks to try: the first, and those nearest to 2, 4 and 8 times as many blocks, up to half of them.

    At later looks the mean hardly differs from that of all blocks; errors of the test show in whole decisions.
    """
    n = table.n[:-1].astype(float)
    near = [int(np.abs(n - factor * n[0]).argmin()) for factor in (1, 2, 4, 8) if factor * n[0] <= table.n[-1] / 2]
    return np.unique([0, *near])


def critical_values(table: Table) -> FloatArray:
    """Return the critical values of |t| at the looks before the last, shape (K - 1,)."""
    n = table.n[:-1].astype(float)
    return np.asarray(table.scale[:-1] * np.sqrt(n) / _correction(n, float(table.n[-1])))


def figures(
    trial: Trial, test: StoppingRule, *, by_decisions: bool = False, max_error: float | None = None
) -> dict[str, Any]:
    """Return a summary of a trial in plain values that fit into an attribute.

    Parameters
    ----------
    by_decisions : bool
        Whether to accept a heavy tail if even the upper limit of wrong decisions is within the promised error. With
        control variates most decisions are clear by a margin far beyond any critical value.
    max_error : float, optional
        Largest promised error of a decision, if the test was set from one.

    Returns
    -------
    dict
        Of the look with the worst tail: ``blocks``, ``critical``, ``nominal``, ``observed``, ``low``, ``high``,
        ``undefined`` (see `Tail`), ``n_subsets``; of the simulated decisions: ``n_decisions``, ``wrong``,
        ``wrong_low``, ``wrong_high``, ``wrong_limit`` (see `Trial.error_limit`) and ``promised``, the largest share
        that the test promises; ``n_pairs``; and ``tail_fails`` and ``decisions_fail``: whether the lower limits exceed
        what is tolerated and promised.
    """
    tail, error = trial.worst(), trial.decision_error
    promised = test.promised_error(trial.n_units) if max_error is None else max_error
    return {
        "n_pairs": trial.n_pairs,
        "n_subsets": tail.n_subsets,
        "blocks": tail.blocks,
        "critical": tail.critical,
        "nominal": tail.nominal,
        "observed": tail.observed.value,
        "low": tail.observed.low,
        "high": tail.observed.high,
        "undefined": tail.undefined,
        "n_decisions": trial.n_decisions * trial.n_pairs,
        "wrong": error.value,
        "wrong_low": error.low,
        "wrong_high": error.high,
        "wrong_limit": trial.error_limit,
        "promised": promised,
        "tail_fails": tail.fails and not (by_decisions and error.high <= promised),
        "decisions_fail": error.low > promised,
    }


def coarsened(pair: Pair, factor: int) -> Pair:
    """Return the same pair on blocks ``factor`` times as large, merging adjacent blocks."""
    return Pair(np.add.reduceat(pair.differences, np.arange(0, pair.differences.size, factor)), pair.rest)


def student(differences: FloatArray, n: int, n_subsets: int, rng: np.random.Generator) -> FloatArray:
    """Return t statistics of random subsets of ``n`` differences about their mean; NaN if a subset's are all equal.

    A shuffle of all M differences gives M // n disjoint subsets, each a simple random sample.
    """
    n_units = differences.size
    mean, error = differences.mean(), _correction(np.float64(n), float(n_units)) / np.sqrt(n)
    found = np.empty(n_subsets)
    each = n_units // n
    rows = max(1, _CHUNK // n_units)
    for start in range(0, n_subsets, rows * each):
        left = n_subsets - start
        shuffled = _shuffled(differences, min(rows, -(-left // each)), rng)
        subsets = shuffled[:, : each * n].reshape(-1, n)[:left]
        sd = subsets.std(axis=1, ddof=1)
        sd[np.ptp(subsets, axis=1) == 0] = np.nan
        found[start : start + len(subsets)] = (subsets.mean(axis=1) - mean) / (sd * error)
    return found


def mean_square(pairs: Sequence[Pair], n: int, n_subsets: int, rng: np.random.Generator) -> float:
    """Return the mean square of the errors of means of ``n`` differences, in standard errors; 1 if they are normal.

    Each t statistic is mapped to the normal deviate of the same tail probability. The result is NaN if all differences
    are equal.
    """
    t = np.concatenate([student(pair.differences, n, n_subsets, rng) for pair in pairs])
    t = t[np.isfinite(t)]
    return float(np.mean(scipy.special.ndtri(scipy.special.stdtr(n - 1, -np.abs(t))) ** 2)) if t.size else np.nan


def decide_along(
    ordered: FloatArray, thresholds: FloatArray, table: Table
) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Return the decisions of the look loop for differences in the order in which they are drawn.

    Parameters
    ----------
    ordered : ndarray, shape (n_decisions, M)
        Centred near 0 and of order 1, because sums of squares are taken.
    thresholds : ndarray, shape (n_decisions,)
        mu0 of each decision.
    table : Table
        Of a t-test.

    Returns
    -------
    accepted, look : ndarray, shape (n_decisions,)
        Whether the mean was found to exceed the threshold, and at which look, from 0.
    """
    last = table.n.size - 1
    above, look = np.empty(len(ordered), bool), np.full(len(ordered), last)
    left = np.arange(len(ordered))
    # Most decisions stop early, so sums of later looks are computed only for the others.
    for n_looks in sorted({_early_looks(table), last} - {0}):
        means, crossed = _crossings(ordered[left, : table.n[n_looks - 1]], thresholds[left], table, n_looks)
        first = crossed.argmax(axis=1)
        decided = crossed[np.arange(left.size), first]
        above[left] = means[np.arange(left.size), first] > thresholds[left]
        look[left[decided]] = first[decided]
        left = left[~decided]
    above[left] = ordered[left].mean(axis=1) > thresholds[left]
    return above, look


def _early_looks(table: Table) -> int:
    """Return the number of looks at a small share of the units."""
    return int(np.searchsorted(table.n[:-1], table.n[-1] // _EARLY, side="right"))


def _crossings(
    drawn: FloatArray, thresholds: FloatArray, table: Table, n_looks: int
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return means at the first looks and whether the boundary decides there, both of shape (n_decisions, n_looks)."""
    n, scale = table.n[:n_looks], table.scale[:n_looks]
    starts = np.concatenate([[0], n[:-1]])
    sums = np.add.reduceat(drawn, starts, axis=1).cumsum(axis=1)
    squares = np.add.reduceat(drawn**2, starts, axis=1).cumsum(axis=1)
    low = np.minimum.accumulate(np.minimum.reduceat(drawn, starts, axis=1), axis=1)
    high = np.maximum.accumulate(np.maximum.reduceat(drawn, starts, axis=1), axis=1)
    means = sums / n
    sd = np.sqrt(np.maximum(squares - sums * means, 0) / (n - 1))
    return means, (np.abs(means - thresholds[:, None]) > scale * sd) & (high > low)


def spaced(n: int) -> FloatArray:
    """Return probabilities for the quantiles of ``n`` values, equally spaced in their logit from 1 / (2 n) on."""
    reach = np.log(2 * n - 1)
    return np.asarray(1 / (1 + np.exp(-np.linspace(-reach, reach, _N_QUANTILES))))


def share(counts: NDArray[np.integer], each: int) -> Share:
    """Return a share counted in clusters of ``each``, one per pair, with its interval (Korn and Graubard 1998).

    Subsets of one pair share a population. The Clopper-Pearson interval therefore uses an effective number of subsets:
    their number divided by the design effect (variance between clusters over binomial variance, if above 1), with
    Student's t for the number of clusters instead of the normal.
    """
    n_clusters, n = counts.size, float(counts.size * each)
    value = float(counts.sum()) / n
    effective = n
    if n_clusters > 1 and 0 < value < 1:
        between = float((counts / each).var(ddof=1)) / n_clusters
        effective = n / max(1.0, between * n / (value * (1 - value)))
    if n_clusters > 1:
        level = (1 + _CONFIDENCE) / 2
        effective *= float(scipy.special.ndtri(level) / scipy.special.stdtrit(n_clusters - 1, level)) ** 2
    hits, tail = value * effective, (1 - _CONFIDENCE) / 2
    low = float(scipy.special.betaincinv(hits, effective - hits + 1, tail)) if hits > 0 else 0.0
    high = float(scipy.special.betaincinv(hits + 1, effective - hits, 1 - tail)) if value < 1 else 1.0
    return Share(value, low, high)


def _try_decisions(
    standard: FloatArray, thresholds: FloatArray, table: Table, rng: np.random.Generator
) -> tuple[int, IntArray]:
    """Return how many decisions on random orders of the differences contradict all the data, and the blocks of each.

    An order is drawn to its end only if the early looks do not decide.
    """
    rows, wrong, drawn = max(1, _CHUNK // standard.size), 0, []
    for start in range(0, thresholds.size, rows):
        asked = thresholds[start : start + rows]
        accepted, look = _decide_at_random(standard, asked, table, rng)
        # A decision on all the data is right by definition; rounding of its mean does not count.
        wrong += int(np.count_nonzero((accepted != (asked < 0)) & (look < table.n.size - 1)))
        drawn.append(table.n[look])
    return wrong, np.concatenate(drawn)


def _decide_at_random(
    values: FloatArray, thresholds: FloatArray, table: Table, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Like `decide_along`, for values in random order, drawn only as far as needed."""
    n_looks = _early_looks(table)
    if not n_looks:
        return decide_along(_shuffled(values, thresholds.size, rng), thresholds, table)
    drawn = np.array([rng.choice(values.size, table.n[n_looks - 1], replace=False) for _ in thresholds])
    means, crossed = _crossings(values[drawn], thresholds, table, n_looks)
    rows, look = np.arange(thresholds.size), crossed.argmax(axis=1)
    accepted = means[rows, look] > thresholds
    left = rows[~crossed[rows, look]]
    if left.size:
        orders = [np.append(one, rng.permutation(np.delete(np.arange(values.size), one))) for one in drawn[left]]
        accepted[left], look[left] = decide_along(values[np.array(orders)], thresholds[left], table)
    return accepted, look


def without_longest(drawn: IntArray) -> float:
    """Return the mean with the few longest decisions cut, so that differences between looks show."""
    return float(np.minimum(drawn, _LONG * np.median(drawn)).mean())


def _shuffled(values: FloatArray, rows: int, rng: np.random.Generator) -> FloatArray:
    return rng.permuted(np.broadcast_to(values, (rows, values.size)), axis=1)


def _correction(n: FloatArray | np.float64, n_units: float) -> FloatArray:
    """Return the factor of a standard error for drawing n of n_units without replacement."""
    factor: FloatArray = np.sqrt(1 - (n - 1) / (n_units - 1))
    return factor
