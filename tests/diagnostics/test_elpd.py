"""The difference estimator over every subset and many subsets, beside wrong ones; comparisons of models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from stansub import InputError, Loo, loo_compare
from stansub.diagnostics.elpd import Estimate, Sums, estimate_sum

Array = NDArray[np.float64]
Estimator = Callable[[Array, Array, Array], Estimate]


def estimate(values: Array, chosen: Array, surrogate: Array) -> Estimate:
    """The difference estimator, from the surrogates of all observations."""
    return estimate_sum(values, Sums(len(surrogate), surrogate.sum(), surrogate @ surrogate, chosen))


def of_differences(values: Array, chosen: Array, surrogate: Array) -> Estimate:
    """The same if only sums are known of two surrogates, whose difference this one is."""
    n, twice = len(surrogate), 2 * surrogate @ surrogate  # of one surrogate; that of the other does not matter
    first, second = Sums(n, 3 * surrogate.sum(), twice, 3 * chosen), Sums(n, 2 * surrogate.sum(), twice, 2 * chosen)
    return estimate_sum(values, first.minus(second))


def without_correction(values: Array, chosen: Array, surrogate: Array) -> Estimate:
    """The difference estimator without the finite population correction."""
    found, m, n = estimate(values, chosen, surrogate), len(values), len(surrogate)
    return found._replace(subsampling_se=found.subsampling_se / np.sqrt(1 - m / n))


def without_surrogates(values: Array, chosen: Array, surrogate: Array) -> Estimate:
    """The sum of the subset, scaled up, with the standard error of the difference estimator."""
    return estimate(values, chosen, surrogate)._replace(value=len(surrogate) * values.mean())


def without_total(values: Array, chosen: Array, surrogate: Array) -> Estimate:
    """The differences, scaled up, alone."""
    found = estimate(values, chosen, surrogate)
    return found._replace(value=found.value - surrogate.sum())


def with_biased_se(values: Array, chosen: Array, surrogate: Array) -> Estimate:
    """The square of the estimate in place of an unbiased estimate of the square."""
    found, n = estimate(values, chosen, surrogate), len(surrogate)
    return found._replace(se=np.sqrt(found.se**2 - found.subsampling_se**2 / (n - 1)))


WRONG = [without_correction, without_surrogates, without_total, with_biased_se]


def is_unbiased(estimator: Estimator) -> bool:
    """Whether value, variance of the value and variance of the sum are right on average over all subsets."""
    rng, n, m = np.random.default_rng(3), 9, 4
    values = rng.normal(-1.0, 0.4, n)
    surrogate = values + rng.normal(-0.1, 0.15, n)
    subsets = [list(one) for one in combinations(range(n), m)]
    found = np.array([estimator(values[one], surrogate[one], surrogate) for one in subsets])
    right = [values.sum(), n * values.var(ddof=1), found[:, 0].var()]
    return np.allclose([found[:, 0].mean(), (found[:, 1] ** 2).mean(), (found[:, 2] ** 2).mean()], right, rtol=1e-12)


def test_the_estimator_is_unbiased_over_all_subsets() -> None:
    assert is_unbiased(estimate)


def test_differences_of_sums_are_estimated_alike() -> None:
    """Only the sum of their squares is estimated from the subset, also without bias."""
    rng, n, m = np.random.default_rng(7), 9, 4
    surrogate = rng.normal(0.0, 0.4, n)
    values = surrogate + rng.normal(0.0, 0.15, n)
    squares = []
    for one in map(list, combinations(range(n), m)):
        found, expected = (by(values[one], surrogate[one], surrogate) for by in (of_differences, estimate))
        assert found.value == pytest.approx(expected.value, rel=1e-12)
        assert found.subsampling_se == pytest.approx(expected.subsampling_se, rel=1e-12)
        squares.append(found.se**2)
    assert min(squares) > 0  # none was negative and replaced by 0
    assert np.mean(squares) == pytest.approx(n * values.var(ddof=1), rel=1e-12)


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_estimators_are_biased(wrong: Estimator) -> None:
    assert not is_unbiased(wrong)


def coverage(estimator: Estimator, *, m: int) -> float:
    """Share of 4,000 subsets of logistic log likelihoods whose 95 % interval holds the sum."""
    rng, n = np.random.default_rng(4), 1000
    eta = rng.normal(0.5, 1.5, n)
    values = -np.logaddexp(0, -eta)
    surrogate = -np.logaddexp(0, -eta + rng.normal(0, 0.1, n))
    subsets = (rng.choice(n, m, replace=False) for _ in range(4000))
    found = np.array([estimator(values[one], surrogate[one], surrogate) for one in subsets])
    return float((np.abs(found[:, 0] - values.sum()) < 1.96 * found[:, 2]).mean())


def is_nominal(share: float) -> bool:
    """Within four standard errors, and half a percent for tails that are not normal."""
    return abs(share - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 4000) + 0.005


@pytest.mark.parametrize("m", [100, 500])
def test_intervals_cover(m: int) -> None:
    assert is_nominal(coverage(estimate, m=m))


@pytest.mark.parametrize("wrong", WRONG[:3])
def test_intervals_of_wrong_estimators_do_not(wrong: Estimator) -> None:
    assert not is_nominal(coverage(wrong, m=500))


def test_all_observations_give_the_sum() -> None:
    values = np.random.default_rng(5).normal(-1.0, 0.4, 50)
    found = estimate(values, np.zeros(50), np.zeros(50))
    np.testing.assert_allclose(found, [values.sum(), np.sqrt(50 * values.var(ddof=1)), 0.0], rtol=1e-12)


def test_one_observation_of_several_says_nothing_about_its_error() -> None:
    assert np.isnan(estimate(np.array([-1.0]), np.array([-1.1]), np.full(3, -1.1)).subsampling_se)


def made(name: str, *, better: float = 0.0, rows: int = 40, n: int = 400, scale: str = "log", seed: int = 6) -> Loo:
    rng = np.random.default_rng(seed)
    elpd = rng.normal(-1.0, 0.4, n) + better * rng.normal(1.0, 0.5, n)
    chosen = np.sort(rng.choice(n, rows, replace=False))
    surrogate = elpd + rng.normal(0.01, 0.01, n)
    return Loo(name, 4000, scale, 0.7, chosen, elpd[chosen], np.full(rows, 0.01), np.linspace(0, 1.2, rows), surrogate)


def test_pareto_k_is_counted_and_warned_of() -> None:
    found = made("a")
    assert found.k_counts() == (23, 10, 7)
    assert found.warning
    assert "the Pareto k of 17 observations is above 0.70" in str(found)
    assert "(0.70, 1] bad 10 25.0%" in " ".join(str(found).split())


@pytest.mark.parametrize(("scale", "factor"), [("log", 1), ("negative_log", -1), ("deviance", -2)])
def test_scales(scale: str, factor: int) -> None:
    log, other = made("a"), made("a", scale=scale)
    assert other.elpd == factor * log.elpd
    assert other.se == abs(factor) * log.se
    assert other.subsampling_se == abs(factor) * log.subsampling_se
    assert (other.p, other.looic) == (log.p, -2 * log.elpd)
    assert other.to_dict()["elpd"] == other.elpd


def test_models_are_compared_by_single_observations() -> None:
    first, second = made("first"), made("second", better=0.1)
    table = loo_compare({"first": first, "second": second})
    assert list(table.index) == ["second", "first"]
    assert table.elpd_diff["second"] == table.dse["second"] == 0
    surrogate = second.surrogate - first.surrogate
    expected = estimate(second.elpd_i - first.elpd_i, surrogate[first.rows], surrogate)
    row = table.loc["first"]
    np.testing.assert_allclose(row[["elpd_diff", "dse", "subsampling_dse"]].astype(float), expected, rtol=1e-12)
    assert row.elpd_diff == pytest.approx(second.elpd - first.elpd)
    assert row.dse < 0.3 * first.se


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ({"a": made("a")}, "needs at least two models"),
        ({"a": made("a"), "b": made("b", n=401)}, "a has 400 observations and b 401"),
        (
            {"a": replace(made("a"), columns=frozenset("xy")), "b": replace(made("b"), columns=frozenset("z"))},
            "a and b share no data variable with the same values",
        ),
        ({"a": made("a"), "b": made("b", seed=7)}, "a and b: use the same `seed`"),
        ({"a": made("a"), "b": made("b", rows=41)}, "a and b: use the same `seed`, `observations`"),
        ({"a": made("a"), "b": made("b", scale="deviance")}, "a and b: use the same"),
    ],
)
def test_models_of_other_subsets_are_not_compared(models: dict[str, Loo], message: str) -> None:
    with pytest.raises(InputError, match=message):
        loo_compare(models)


def test_an_unknown_scale_is_refused() -> None:
    with pytest.raises(InputError, match="`scale=bits`: must be one of log, negative_log, deviance"):
        made("a", scale="bits")
