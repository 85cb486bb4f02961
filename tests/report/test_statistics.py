"""Figures of each quantity against closed forms and against ArviZ and scipy called on one quantity."""

from __future__ import annotations

import fakes
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from stansub.diagnostics.covariance import compare_covariances, worst_pair
from stansub.diagnostics.statistics import KINDS, compare_marginals, critical, side
from stansub.output.inference_data import arviz_module

FloatArray = NDArray[np.float64]
NAMES = ("a", "b", "c", "d")


def pair(seed: int, *, size: int = 4, draws: int = 1000, autocorrelation: float = 0.0) -> tuple[FloatArray, FloatArray]:
    """Draws of one posterior by a sampler of the given kind, and by one of nearly independent draws."""
    rng = np.random.default_rng(seed)
    own = fakes.normals(rng, size=size, draws=draws, autocorrelation=autocorrelation)
    return own, fakes.normals(rng, size=size)


def test_figures_are_those_of_arviz_and_scipy() -> None:
    x, y = pair(1, autocorrelation=0.7)
    y *= [1.0, 2.0, 3.0, 4.0]
    frame = compare_marginals(NAMES, side(x), side(y), level=0.01)
    az = arviz_module()
    assert sorted(frame.index) == list(NAMES)
    assert list(frame["worst"]) == sorted(frame["worst"], reverse=True)
    for k, name in enumerate(NAMES):
        own, other, row = x[:, :, k], y[:, :, k], frame.loc[name]
        sd = other.std(ddof=1)
        error = np.hypot(az.mcse(own, method="mean"), az.mcse(other, method="mean"))
        expected = {
            "mean": own.mean(),
            "sd_reference": sd,
            "mean_diff": own.mean() - other.mean(),
            "mean_diff_sd": (own.mean() - other.mean()) / sd,
            "mean_z": (own.mean() - other.mean()) / error,
            "sd_ratio": own.std(ddof=1) / sd,
            "q5_diff_sd": (np.quantile(own, 0.05) - np.quantile(other, 0.05)) / sd,
            "wasserstein_sd": stats.wasserstein_distance(own.ravel(), other.ravel()) / sd,
            "ess_bulk": az.ess(own, method="bulk"),
            "ess_tail_reference": az.ess(other, method="tail", prob=(0.05, 0.95)),
            "r_hat": az.rhat(own),
            "r_hat_pooled": az.rhat(np.concatenate([own, other])),
            "mcse_mean": az.mcse(own, method="mean"),
        }
        for figure, value in expected.items():
            assert row[figure] == pytest.approx(float(value), rel=1e-9), figure


def test_z_of_sds_is_near_that_of_monte_carlo_errors() -> None:
    x, y = pair(2)
    frame = compare_marginals(NAMES, side(x), side(y), level=0.01)
    az = arviz_module()
    for k, name in enumerate(NAMES):
        errors = [float(az.mcse(one, method="sd")) / one.std(ddof=1) for one in (x[:, :, k], y[:, :, k])]
        assert frame.loc[name, "sd_z"] == pytest.approx(
            np.log(frame.loc[name, "sd_ratio"]) / np.hypot(*errors), rel=0.1
        )


@pytest.mark.parametrize(
    "autocorrelation", [*(pytest.param(value, marks=pytest.mark.slow) for value in (0.0, 0.5)), 0.9]
)
def test_kolmogorov_smirnov_is_of_independent_draws(autocorrelation: float) -> None:
    p = []
    for seed in range(25):
        x, y = pair(100 + seed, autocorrelation=autocorrelation, size=2)
        p += list(compare_marginals(NAMES[:2], side(x), side(y), level=0.01)["ks_p"])
    # Uniform p-values: a share of 50 below 0.2, within the 99.9 % binomial limit.
    assert np.sum(np.array(p) < 0.2) <= stats.binom.isf(0.001, 50, 0.2)
    if autocorrelation == 0.9:  # what thinning is for
        unthinned = [
            stats.ks_2samp(a.ravel(), b.ravel()).pvalue for a, b in (pair(s, autocorrelation=0.9) for s in range(12))
        ]
        assert np.sum(np.array(unthinned) < 0.2) > stats.binom.isf(0.001, 12, 0.2)


def test_degrees_of_freedom_are_those_of_the_standard_errors() -> None:
    """The log Monte Carlo variance over runs has variance 2 / df or less, and more without the correlated part."""
    values = [fakes.normals(np.random.default_rng(seed), size=3, autocorrelation=0.9) for seed in range(50)]
    sides = [side(one) for one in values]
    variance = np.log([one.mcse_mean**2 for one in sides]).var(axis=0, ddof=1).mean()
    ess = np.mean([one.ess for one in sides])
    # 50 runs of three correlated quantities: the variance is known to about 17 %.
    assert variance < 1.4 * 16 / ess
    assert variance > 2 * 2 / ess  # as many degrees of freedom as effective draws would be too many


def test_columns_of_a_level() -> None:
    assert critical(0.01, 10) == pytest.approx(stats.norm.isf(0.01 / len(KINDS) / 10 / 2))
    assert critical(0.01, 10, 20.0) > critical(0.01, 10)
    x, y = pair(3)
    strict, loose = (compare_marginals(NAMES, side(x), side(y), level=level) for level in (0.001, 0.1))
    for column in ("mean_limit_sd", "sd_limit", "mean_detectable_sd", "sd_detectable"):
        assert (strict[column] > loose[column]).all()
    row = strict.iloc[0]
    assert row["mean_limit_sd"] > abs(row["mean_diff_sd"])
    # 4,000 draws a side: standard errors sqrt(2 / 4000) of a mean and sqrt(1 / 4000) of a log sd.
    z = critical(0.1, 4) + stats.norm.ppf(0.9)
    assert loose["mean_detectable_sd"].mean() == pytest.approx(z * np.sqrt(2 / 4000), rel=0.1)
    assert loose["sd_detectable"].mean() == pytest.approx(np.expm1(z * np.sqrt(1 / 4000)), rel=0.1)


def test_pooled_r_hat_shows_bias() -> None:
    x, y = pair(4, draws=3000)
    x[:, :, 1] += 0.5
    frame = compare_marginals(NAMES, side(x), side(y), level=0.01)
    assert frame.loc["b", "r_hat_pooled"] > 1.02 > frame.loc["a", "r_hat_pooled"]
    assert frame.loc["b", "r_hat"] < 1.01
    assert frame.index[0] == "b"


def test_draws_that_are_not_finite_leave_the_others_alone() -> None:
    x, y = pair(5)
    sound = compare_marginals(NAMES, side(x), side(y), level=0.01)
    x[1, 3, 1], x[:, :, 2] = np.nan, 0.25
    frame = compare_marginals(NAMES, side(x), side(y), level=0.01)
    assert np.isnan(frame.loc["b", "mean_z"])
    assert set(frame.index[:2]) == {"b", "c"}
    for name in ("a", "d"):
        np.testing.assert_allclose(frame.loc[name].to_numpy(float), sound.loc[name].to_numpy(float))


def test_heavy_tails_leave_the_sd_untested() -> None:
    rng = np.random.default_rng(6)
    x, y = (rng.standard_cauchy((4, 1000, 1)) for _ in range(2))
    row = compare_marginals(["a"], side(x), side(y), level=0.01).iloc[0]
    assert np.isnan(row["sd_z"])
    assert np.isfinite([row["q5_z"], row["q95_z"], row["ks_p"]]).all()


def test_covariances() -> None:
    x, y = pair(7)
    y *= [100.0, 1.0, 1.0, 1.0]
    x *= [100.0, 1.0, 1.0, 1.0]
    found = compare_covariances(side(x), side(y))
    own, other = (np.cov(one.reshape(-1, 4), rowvar=False) for one in (x, y))
    assert found.relative == pytest.approx(np.linalg.norm(own - other) / np.linalg.norm(other))
    scale = np.outer(np.sqrt(np.diag(other)), np.sqrt(np.diag(other)))
    assert found.standardised == pytest.approx(
        np.linalg.norm((own - other) / scale) / np.linalg.norm(np.corrcoef(y.reshape(-1, 4), rowvar=False)), rel=1e-6
    )


def test_monte_carlo_error_of_covariances() -> None:
    found = [compare_covariances(*map(side, pair(seed, autocorrelation=0.5, size=3))) for seed in range(30)]
    observed = np.sqrt(np.mean([one.standardised**2 for one in found]))
    assert observed == pytest.approx(np.mean([one.expected for one in found]), rel=0.25)
    x, y = pair(8)
    apart = compare_covariances(side(1.2 * x), side(y))
    assert apart.standardised > 3 * apart.expected


def test_the_worst_pair() -> None:
    x, y = pair(9)
    independent = fakes.normals(np.random.default_rng(10))
    x[:, :, 3] = independent[:, :, 3]
    found = worst_pair(NAMES, side(x), side(y))
    assert found is not None
    assert found.names == ("c", "d")
    assert found.n_pairs == 6
    assert found.correlation == pytest.approx(0, abs=0.06)
    assert found.correlation_reference == pytest.approx(0.5, abs=0.06)
    assert found.p < 1e-20
    assert worst_pair(["a"], side(x[:, :, :1]), side(y[:, :, :1])) is None


@pytest.mark.slow
def test_the_worst_pair_of_draws_that_agree() -> None:
    p = [worst_pair(NAMES[:3], *map(side, pair(seed, autocorrelation=0.5, size=3))).p for seed in range(40)]  # type: ignore[union-attr]
    # Chosen among three: p-values below 0.2 / 3 in a fifth of the runs at most.
    assert np.sum(np.array(p) < 0.2 / 3) <= stats.binom.isf(0.001, 40, 0.2)
