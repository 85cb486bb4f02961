"""Difference estimator of sums over all observations from a random subset, and PSIS-LOO results based on it.

The estimator is for a sum over N observations of costly values, known for m of them drawn without replacement. It is
the sum of cheap surrogates of all N plus N times the mean difference of the m (Magnusson, Vehtari, Jonasson and
Andersen 2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stansub.errors import InputError
from stansub.types import FloatArray
from stansub.wording import aligned

if TYPE_CHECKING:
    import pandas as pd

# Factors of the scales from the log scale, and ArviZ's names.
SCALES = {"log": (1, "elpd"), "negative_log": (-1, "-elpd"), "deviance": (-2, "deviance")}


class Estimate(NamedTuple):
    """Estimate of a sum over all observations from a subset."""

    value: float
    se: float
    """Standard error of the sum as a sample of N observations from a population, by their sample variance (divided by N
    - 1), as in R's loo and `arviz.loo` from ArviZ 1.0 on.
    """
    subsampling_se: float
    """Standard error due to the subset alone; 0 if it is all observations, NaN if it is a single one of several."""

    def times(self, factor: float) -> Estimate:
        """Return the estimate of a multiple of the sum."""
        return Estimate(factor * self.value, abs(factor) * self.se, abs(factor) * self.subsampling_se)


class Sums(NamedTuple):
    """Surrogates of observations in partitions, of which only sums are known."""

    n: int
    total: float
    squares: float
    """Sums over all of them."""
    chosen: FloatArray
    """Shape (m,): surrogates of the observations in the subset."""

    @classmethod
    def of(cls, surrogate: FloatArray, rows: NDArray[np.int64]) -> Sums:
        """Return the sums of surrogates that are known."""
        return cls(len(surrogate), float(surrogate.sum()), float(surrogate @ surrogate), surrogate[rows])

    def minus(self, other: Sums) -> Sums:
        """Return the sums of differences, the sum of whose squares is estimated from the subset."""
        chosen = self.chosen - other.chosen
        return Sums(self.n, self.total - other.total, self.n * float((chosen**2).mean()), chosen)


def estimate_sum(values: FloatArray, sums: Sums) -> Estimate:
    """Estimate the sum over all observations of values, shape (m,), that are known for a random subset.

    ``sums`` are those of the surrogates.
    """
    m, (n, total, squares, chosen) = len(values), sums
    difference = values - chosen
    correction = n * float(difference.mean())
    spread = float(difference.var(ddof=1)) if m > 1 else (0.0 if m == n else np.nan)
    variance = n**2 * (1 - m / n) * spread / m
    # Unbiased for the sum of the squares, and for the square of the sum.
    squares += n * float((values**2 - chosen**2).mean())
    square = (total + correction) ** 2 - variance
    population = max(squares - square / n, 0.0) * n / max(n - 1, 1)
    return Estimate(total + correction, float(np.sqrt(population)), float(np.sqrt(variance)))


@dataclass(frozen=True)
class Loo:
    """Leave-one-out cross-validation from a subset of the observations; names as in ArviZ's ``ELPDData``.

    Attributes
    ----------
    name : str
        Name of the program.
    n_samples : int
        Posterior draws.
    scale : {"log", "negative_log", "deviance"}
        Scale of ``elpd``, ``se`` and ``subsampling_se``.
    good_k : float
        Pareto k up to which the estimate for an observation is reliable.
    rows : ndarray of int, shape (m,)
        Observations in the subset, in the order of the data, counted from 0.
    elpd_i, p_i, pareto_k : ndarray, shape (m,)
        Their log predictive densities given all others, effective numbers of parameters and Pareto k, on the log scale.
    surrogate : ndarray, shape (N,), or Sums
        Log likelihoods of all observations at the posterior mean of the unconstrained parameters; their sums for data
        in partitions.
    columns : frozenset of str
        Digests of the data variables with a value per observation, which identify the data; empty for posteriors of
        functions.
    """

    name: str
    n_samples: int
    scale: str
    good_k: float
    rows: NDArray[np.int64]
    elpd_i: FloatArray
    p_i: FloatArray
    pareto_k: FloatArray
    surrogate: FloatArray | Sums
    columns: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        check_scale(self.scale)

    @property
    def sums(self) -> Sums:
        """Return the sums of the surrogates."""
        return self.surrogate if isinstance(self.surrogate, Sums) else Sums.of(self.surrogate, self.rows)

    @cached_property
    def log_elpd(self) -> Estimate:
        """Return the expected log predictive density on the log scale."""
        return estimate_sum(self.elpd_i, self.sums)

    @cached_property
    def parameters(self) -> Estimate:
        """Return the effective number of parameters."""
        return estimate_sum(self.p_i, Sums(self.n_data_points, 0.0, 0.0, np.zeros(len(self.rows))))

    @property
    def _scaled(self) -> Estimate:
        return self.log_elpd.times(SCALES[self.scale][0])

    @property
    def elpd(self) -> float:
        """Return the expected log predictive density of all observations, each given the others, on ``scale``."""
        return self._scaled.value

    @property
    def se(self) -> float:
        """Return the standard error of ``elpd``."""
        return self._scaled.se

    @property
    def subsampling_se(self) -> float:
        """Return the standard error of ``elpd`` due to the subset alone."""
        return self._scaled.subsampling_se

    @property
    def p(self) -> float:
        """Return the effective number of parameters."""
        return self.parameters.value

    @property
    def looic(self) -> float:
        """Return the LOO information criterion: ``elpd`` on the deviance scale."""
        return -2 * self.log_elpd.value

    @property
    def n_data_points(self) -> int:
        """Return the number of observations."""
        return self.surrogate.n if isinstance(self.surrogate, Sums) else len(self.surrogate)

    @property
    def subsample_size(self) -> int:
        """Return the number of observations in the subset."""
        return len(self.rows)

    @property
    def warning(self) -> bool:
        """Return whether the Pareto k of any observation exceeds ``good_k``."""
        return bool((self.pareto_k > self.good_k).any())

    def k_counts(self) -> tuple[int, int, int]:
        """Return how many observations of the subset have a good, a bad and a very bad Pareto k."""
        good, sure = int((self.pareto_k <= self.good_k).sum()), int((self.pareto_k <= 1).sum())
        return good, sure - good, self.subsample_size - sure

    def to_dict(self) -> dict[str, Any]:
        """Return the figures, without those of single observations."""
        names = ("elpd", "se", "subsampling_se", "p", "looic", "n_samples", "n_data_points", "subsample_size")
        figures = {name: getattr(self, name) for name in (*names, "scale", "warning", "good_k")}
        return {"model": self.name, **figures, "pareto_k_counts": list(self.k_counts())}

    def __str__(self) -> str:
        of = f"{self.n_data_points:,} observations"
        of = of if self.subsample_size == self.n_data_points else f"{self.subsample_size:,} of {of}"
        rows = {
            f"{SCALES[self.scale][1]}_loo": self._scaled,
            "p_loo": self.parameters,
            "looic": self.log_elpd.times(-2),
        }
        lines = [f"Computed from {self.n_samples:,} posterior draws and {of}.", ""]
        lines += aligned(
            [("", "Estimate", "SE", "subsampling SE"), *((name, *_cells(one)) for name, one in rows.items())]
        )
        counts = self.k_counts()
        ranges = (f"(-Inf, {self.good_k:.2f}] good", f"({self.good_k:.2f}, 1] bad", "(1, Inf) very bad")
        shares = [(f"{count:,}", f"{count / self.subsample_size:.1%}") for count in counts]
        lines += ["", "Pareto k diagnostic values:"]
        lines += aligned([("", "Count", "Pct."), *((name, *one) for name, one in zip(ranges, shares, strict=True))])
        if self.warning:
            lines += [
                "",
                f"Warning: the Pareto k of {counts[1] + counts[2]:,} observations is above {self.good_k:.2f}. "
                "PSIS-LOO is unreliable for them, and their log predictive density is often overestimated.",
            ]
        return "\n".join(lines)


def loo_compare(models: Mapping[str, Loo]) -> pd.DataFrame:
    """Compare models by leave-one-out cross-validation on the same subset of the same observations.

    Differences are estimated from the differences of single observations, so their standard errors are far smaller than
    those of the models.

    Parameters
    ----------
    models : mapping
        Results of `stansub.loo` by name, made with the same seed and number of observations.

    Returns
    -------
    pandas.DataFrame
        A row per model, the best first, with columns as in `arviz.compare`: rank, elpd, p, elpd_diff (difference from
        the best), se, dse (standard error of the difference), subsampling_se, subsampling_dse (the parts due to the
        subset), warning and scale.

    Raises
    ------
    InputError
        If there are fewer than two models, or their observations or scales differ.
    """
    import pandas as pd

    if len(models) < 2:
        raise InputError("a comparison needs at least two models")
    (first_name, first), *others = models.items()
    for name, other in others:
        if other.n_data_points != first.n_data_points:
            raise InputError(
                f"{first_name} has {first.n_data_points:,} observations and {name} {other.n_data_points:,}: models are "
                "compared on the same data"
            )
        if isinstance(first.surrogate, Sums) != isinstance(other.surrogate, Sums):
            raise InputError(
                f"{first_name} and {name}: the data of only one are in partitions, so nothing shows that both have the "
                "same; sample both in the same way"
            )
        if first.columns and other.columns and not first.columns & other.columns:
            raise InputError(
                f"{first_name} and {name} share no data variable with the same values: models are compared on the same "
                "observations in the same order"
            )
        if other.scale != first.scale or not np.array_equal(other.rows, first.rows):
            raise InputError(f"{first_name} and {name}: use the same `seed`, `observations` and `scale` for both")
    best = max(models.values(), key=lambda one: one.log_elpd.value)
    factor = SCALES[first.scale][0]
    ranked = sorted(models.items(), key=lambda item: -item[1].log_elpd.value)
    rows = [
        {
            "rank": rank,
            "elpd": one.elpd,
            "p": one.p,
            "elpd_diff": difference.value,
            "se": one.se,
            "dse": difference.se,
            "subsampling_se": one.subsampling_se,
            "subsampling_dse": difference.subsampling_se,
            "warning": one.warning,
            "scale": one.scale,
        }
        for rank, (_, one) in enumerate(ranked)
        for difference in [_difference(best, one).times(factor)]
    ]
    return pd.DataFrame(rows, index=pd.Index([name for name, _ in ranked]))


def _difference(first: Loo, second: Loo) -> Estimate:
    """Return how much larger the expected log predictive density of the first is."""
    values = first.elpd_i - second.elpd_i
    if isinstance(first.surrogate, Sums) or isinstance(second.surrogate, Sums):
        return estimate_sum(values, first.sums.minus(second.sums))
    return estimate_sum(values, Sums.of(first.surrogate - second.surrogate, first.rows))


def check_scale(scale: str) -> None:
    """Raise InputError if the scale is unknown."""
    if scale not in SCALES:
        raise InputError(f"`scale={scale}`: must be one of {', '.join(SCALES)}")


def _cells(one: Estimate) -> tuple[str, str, str]:
    return f"{one.value:.2f}", f"{one.se:.2f}", f"{one.subsampling_se:.2f}"
