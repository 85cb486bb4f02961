"""Differences of two samplers' marginal distributions, in Monte Carlo standard errors and in posterior sds.

Monte Carlo standard errors and ESS are those of `stansub.output.convergence`; the two sides' errors add in quadrature.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import special, stats

from stansub.output import convergence
from stansub.output.statistics import still
from stansub.types import FloatArray

if TYPE_CHECKING:
    import pandas as pd


PROBABILITIES = (0.05, 0.5, 0.95)
TESTS = ("mean", "sd", "q5", "q50", "q95", "ks")
KINDS = (*TESTS, "correlation")  # the last kind is of pairs, see `covariance`
RESOLVED = 0.1  # standard error of a log sd above which its normal approximation is not trusted
POWER = 0.9  # power for a detectable difference
_RESIDUAL = 0.05  # autocorrelation allowed after thinning
_TINY = 1e-300


class Side(NamedTuple):
    """One sampler's draws, (chain, draw, quantity), with statistics, (quantity,) or (probability, quantity)."""

    values: FloatArray
    mean: FloatArray
    sd: FloatArray
    fourth: FloatArray
    mcse_mean: FloatArray
    mcse_sd: FloatArray
    quantiles: FloatArray
    ess_quantiles: FloatArray
    ess_bulk: FloatArray
    ess_tail: FloatArray
    r_hat: FloatArray

    @property
    def ess(self) -> FloatArray:
        """Return the smaller of bulk and tail ESS."""
        return np.minimum(self.ess_bulk, self.ess_tail)

    @property
    def ess_squares(self) -> FloatArray:
        """Return the ESS of the squared deviations, from the Monte Carlo error of the sd."""
        with np.errstate(all="ignore"):
            return np.asarray((self.fourth - self.sd**4) / (2 * self.sd * self.mcse_sd) ** 2)


def side(values: FloatArray) -> Side:
    """Return statistics of draws of shape (chain, draw, quantity); NaN for quantities with non-finite draws."""
    with np.errstate(all="ignore"):
        mean = values.mean(axis=(0, 1))
        ess_quantiles = np.stack(
            [_of_finite(partial(convergence.ess_quantile, probability=p), values) for p in PROBABILITIES]
        )
        return Side(
            values=values,
            mean=mean,
            sd=np.where(still(values), 0.0, values.std(axis=(0, 1), ddof=1)),
            fourth=((values - mean) ** 4).mean(axis=(0, 1)),
            mcse_mean=_of_finite(convergence.mcse_mean, values),
            mcse_sd=_of_finite(convergence.mcse_sd, values),
            quantiles=np.quantile(values, PROBABILITIES, axis=(0, 1)),
            ess_quantiles=ess_quantiles,
            ess_bulk=_of_finite(convergence.ess_bulk, values),
            ess_tail=np.minimum(ess_quantiles[0], ess_quantiles[-1]),
            r_hat=_of_finite(convergence.r_hat, values),
        )


def share(level: float, n: int) -> float:
    """Return the level of one of n tests of a kind; all kinds, and all tests of a kind, share `level` equally.

    By Bonferroni, the probability that any test is significant if nothing differs is then at most `level`, for any
    dependence between the tests.
    """
    return level / (len(KINDS) * n)


def critical(level: float, n: int, df: FloatArray | float = np.inf) -> FloatArray:
    """Return the standard errors, on `df` degrees of freedom, at which one of n tests of a kind becomes significant."""
    return np.asarray(stats.t.isf(share(level, n) / 2, df), dtype=float)


def detectable(level: float, n: int, df: FloatArray | float = np.inf) -> FloatArray:
    """Return the difference in standard errors that one of n tests of a kind detects with probability `POWER`."""
    return critical(level, n, df) + float(stats.norm.ppf(POWER))


def compare_marginals(names: Sequence[str], draws: Side, reference: Side, *, level: float) -> pd.DataFrame:
    """Compare each quantity's two marginal distributions.

    Returns
    -------
    pandas.DataFrame
        Indexed by name, the largest |z| (`worst`) first. `*_diff` are draws - reference, `*_sd` in sds of the
        reference, `*_z` in standard errors of the difference, `*_p` two-sided p-values of single tests.
        `mean_limit_sd` and `sd_limit` (a share of the sd) are simultaneous upper confidence limits of the differences
        at 1 - level; `mean_detectable_sd` and `sd_detectable` are the differences that the tests find with
        probability 0.9. NaN where a statistic does not exist.

    Notes
    -----
    Means and log sds: the difference over its Monte Carlo standard error. The squared error of a log sd is
    (k - 1) / (4 ESS of squares). The kurtosis k is estimated from both sides together, because a side that happens to
    lack the extremes has a small sd and underestimates its error. An sd with an error above 10 % is not tested.

    The z of these and of quantiles refer to Student's t, because the standard errors are estimates. Over runs of AR(1)
    and of independent chains, the log of the Monte Carlo variance has a variance of up to 16 / ESS (simulated), and
    the log variance of the draws itself adds 4 mcse_sd^2 / sd^2. A variance of 2 / v corresponds to v degrees of
    freedom. The degrees of the two sides are combined after Welch (1947).

    Quantiles: the test compares shares of draws at or below a common point (the two sides' quantiles averaged, weighted
    by ESS), which needs no density estimate there.

    Kolmogorov-Smirnov and Anderson-Darling: two-sample statistics of draws thinned to independence. The lag is the
    smallest at which an AR(1) chain of the same ESS has an autocorrelation of at most 0.05; the number of draws for the
    p-value accounts for the rest. The p-values of Anderson-Darling are limited to 0.001 to 0.25 and are not among the
    verdict's tests.
    """
    import pandas as pd

    with np.errstate(all="ignore"):
        columns = {
            "mean": draws.mean,
            "mean_reference": reference.mean,
            "sd": draws.sd,
            "sd_reference": reference.sd,
            **_of_means(draws, reference, level, len(names)),
            **_of_sds(draws, reference, level, len(names)),
            **_of_quantiles(draws, reference),
            **_distances(draws, reference),
            "ess_bulk": draws.ess_bulk,
            "ess_tail": draws.ess_tail,
            "ess_bulk_reference": reference.ess_bulk,
            "ess_tail_reference": reference.ess_tail,
            "r_hat": draws.r_hat,
            "r_hat_reference": reference.r_hat,
            "r_hat_pooled": _pooled_r_hat(draws.values, reference.values),
            "mcse_mean": draws.mcse_mean,
            "mcse_mean_reference": reference.mcse_mean,
        }
        frame = pd.DataFrame(columns, index=pd.Index(list(names), name="quantity"))
        z = frame[[f"{test}_z" for test in TESTS if test != "ks"]].abs()
        z["ks"] = stats.norm.isf(np.maximum(frame["ks_p"], _TINY) / 2)
        frame["worst"] = z.max(axis=1).where(~(still(draws.values) | still(reference.values)), np.inf).fillna(np.inf)
    return frame.sort_values("worst", ascending=False, kind="stable")


def _of_means(draws: Side, reference: Side, level: float, n: int) -> dict[str, FloatArray]:
    sd = reference.sd
    means = _Difference(
        draws.mean - reference.mean,
        (draws.mcse_mean, reference.mcse_mean),
        (_mean_df(draws), _mean_df(reference)),
    )
    return {
        "mean_diff": means.value,
        "mean_diff_sd": means.value / sd,
        "mean_z": means.z,
        "mean_p": means.p,
        "mean_limit_sd": (np.abs(means.value) + means.error * critical(level, n, means.df)) / sd,
        "mean_detectable_sd": means.error * detectable(level, n, means.df) / sd,
    }


def _of_sds(draws: Side, reference: Side, level: float, n: int) -> dict[str, FloatArray]:
    """Return the columns of log sds with known errors."""
    ratio = draws.sd / reference.sd
    logs = _Difference(np.log(ratio), _log_sd_errors(draws, reference), (draws.ess / 8, reference.ess / 8))
    limit = np.abs(logs.value) + logs.error * critical(level, n, logs.df)
    tests = {
        "sd_z": logs.z,
        "sd_p": logs.p,
        "sd_limit": np.expm1(limit),
        "sd_detectable": np.expm1(logs.error * detectable(level, n, logs.df)),
    }
    resolved = logs.error < RESOLVED
    return {"sd_ratio": ratio, **{name: np.where(resolved, values, np.nan) for name, values in tests.items()}}


def _of_quantiles(draws: Side, reference: Side) -> dict[str, FloatArray]:
    columns = dict[str, FloatArray]()
    for k, p in enumerate(PROBABILITIES):
        shares = _shares(draws, reference, k)
        columns |= {
            f"q{100 * p:g}_diff_sd": (draws.quantiles[k] - reference.quantiles[k]) / reference.sd,
            f"q{100 * p:g}_z": shares.z,
            f"q{100 * p:g}_p": shares.p,
        }
    return columns


class _Difference(NamedTuple):
    """A difference with the standard error and degrees of freedom of each side."""

    value: FloatArray
    errors: tuple[FloatArray, FloatArray]
    dfs: tuple[FloatArray, FloatArray]

    @property
    def error(self) -> FloatArray:
        return np.hypot(*self.errors)

    @property
    def df(self) -> FloatArray:
        """Return the degrees of freedom after Welch (1947)."""
        a, b = (error**2 for error in self.errors)
        return np.asarray(np.maximum((a + b) ** 2 / (a**2 / self.dfs[0] + b**2 / self.dfs[1]), 1))

    @property
    def z(self) -> FloatArray:
        return np.where(self.value == 0, 0.0, self.value / self.error)

    @property
    def p(self) -> FloatArray:
        return np.where(self.z == 0, 1.0, 2 * stats.t.sf(np.abs(self.z), self.df))


def _mean_df(side: Side) -> FloatArray:
    return np.asarray(2 / (16 / side.ess + 4 * (side.mcse_sd / side.sd) ** 2))


def _log_sd_errors(draws: Side, reference: Side) -> tuple[FloatArray, FloatArray]:
    """Return standard errors of the two log sds, with the kurtosis from both together."""
    ess, other = draws.ess_squares, reference.ess_squares
    variance = (ess * draws.sd**2 + other * reference.sd**2) / (ess + other)
    kurtosis = (ess * draws.fourth + other * reference.fourth) / (ess + other) / variance**2
    return np.sqrt((kurtosis - 1) / (4 * ess)), np.sqrt((kurtosis - 1) / (4 * other))


def _shares(draws: Side, reference: Side, k: int) -> _Difference:
    """Return shares of the draws at or below a common point near quantile k, as reference - draws like a quantile."""
    ess, other = draws.ess_quantiles[k], reference.ess_quantiles[k]
    point = (ess * draws.quantiles[k] + other * reference.quantiles[k]) / (ess + other)
    own, others = ((one.values <= point).mean(axis=(0, 1)) for one in (draws, reference))
    together = (ess * own + other * others) / (ess + other)
    spread = np.sqrt(together * (1 - together))
    missing = np.isnan(draws.mean) | np.isnan(reference.mean)
    return _Difference(
        np.where(missing, np.nan, others - own),
        (spread / np.sqrt(ess), spread / np.sqrt(other)),
        (draws.ess / 8, reference.ess / 8),
    )


def _distances(draws: Side, reference: Side) -> dict[str, FloatArray]:
    """Return distances of whole marginal distributions; NaN for quantities that are not finite or constant."""
    n = draws.values.shape[2]
    found = {name: np.full(n, np.nan) for name in ("ks", "ks_p", "ad", "ad_p", "wasserstein_sd")}
    for k in range(n):
        x, y = draws.values[:, :, k], reference.values[:, :, k]
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            continue
        if reference.sd[k] > 0:
            found["wasserstein_sd"][k] = stats.wasserstein_distance(x.ravel(), y.ravel()) / reference.sd[k]
        (x, n_x), (y, n_y) = (_independent(side, k) for side in (draws, reference))
        found["ks"][k] = stats.ks_2samp(x, y, method="asymp").statistic
        found["ks_p"][k] = special.kolmogorov(np.sqrt(n_x * n_y / (n_x + n_y)) * found["ks"][k])
        if still(np.concatenate([x, y])[:, None])[0]:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the p-value is at the end of its table, and about future options
            result = stats.anderson_ksamp([x, y])
        found["ad"][k], found["ad_p"][k] = result.statistic, result.pvalue
    return found


def _independent(side: Side, k: int) -> tuple[FloatArray, float]:
    """Return draws of quantity k thinned to independence, and their effective number."""
    values = side.values[:, :, k]
    lag, left = independence_lag(values, side.ess[k])
    thinned = values[:, ::lag].ravel()
    return thinned, thinned.size * (1 - left) / (1 + left)


def independence_lag(values: FloatArray, ess: float) -> tuple[int, float]:
    """Return the smallest lag at which an AR(1) chain of this ESS correlates by at most 0.05, and by how much.

    ``values`` are draws of one quantity, of shape (chain, draw).
    """
    n_draws = values.shape[1]
    time = max(values.size / ess, 1.0) if ess > 0 else float(n_draws)
    correlation = (time - 1) / (time + 1)
    lag = max(1, int(np.ceil(np.log(_RESIDUAL) / np.log(correlation)))) if correlation > 0 else 1
    return min(lag, n_draws), float(correlation**lag)


def _pooled_r_hat(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return rank-normalised split R-hat over the chains of both samplers, thinned to equal numbers of draws."""
    n = min(x.shape[1], y.shape[1])
    return _of_finite(convergence.r_hat, np.concatenate([_thinned(x, n), _thinned(y, n)]))


def _thinned(values: FloatArray, n: int) -> FloatArray:
    return values[:, np.linspace(0, values.shape[1] - 1, n).round().astype(int)]


def _of_finite(statistic: Callable[[FloatArray], FloatArray], values: FloatArray) -> FloatArray:
    """Return a statistic of each quantity; NaN for those that are not finite."""
    finite = np.isfinite(values).all(axis=(0, 1))
    result = np.full(values.shape[2], np.nan)
    if finite.any():
        with np.errstate(all="ignore"):
            result[finite] = statistic(values[:, :, finite])
    return result
