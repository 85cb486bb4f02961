"""The suite's own code of other samplers for tall data: right on a small posterior, wrong when something is wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

pytest.importorskip("numba", reason='numba is not installed (pip install ".[bench]")')

from suite import kernels, logistic, scalable_mh, zigzag  # noqa: E402
from suite.base import Task, Unavailable  # noqa: E402
from suite.engines import ENGINES  # noqa: E402
from suite.workloads import WORKLOADS, data_files  # noqa: E402

PEERS = ("scalable-mh", "scalable-mh-l2", "zigzag-cv", "zigzag-cv-scaled")
CHAINS = 2
# Of six z-scores of a right sampler the largest is above this once in 2,600 runs.
LIMIT = 4.0


class Small(NamedTuple):
    """A regression of few observations, few of them positive, so that the posterior is skewed; its moments."""

    regression: logistic.Regression
    normal: logistic.Normal
    mean: np.ndarray
    sd: np.ndarray


@pytest.fixture(scope="module")
def small() -> Small:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((500, 2)) * np.array([1.0, 3.0])
    signs = np.where(rng.random(500) < 1 / (1 + np.exp(3.0 - x @ np.array([0.7, -0.3]))), 1.0, -1.0)
    regression = logistic.from_data(x, signs)
    with ThreadPoolExecutor(1) as pool:
        normal = logistic.find_normal(regression, pool)
    # Gauss-Hermite quadrature about the mode.
    nodes, weights = np.polynomial.hermite_e.hermegauss(25)
    z = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 3)
    theta = normal.mode + z @ np.linalg.cholesky(normal.covariance).T
    density = -np.logaddexp(0, -theta @ regression.rows.T).sum(axis=1) - 0.5 * (regression.prior * theta**2).sum(axis=1)
    w = np.prod(np.stack(np.meshgrid(weights, weights, weights, indexing="ij"), axis=-1).reshape(-1, 3), axis=1)
    w = w * np.exp(density - density.max() + 0.5 * (z**2).sum(axis=1))
    w /= w.sum()
    mean = w @ theta
    return Small(regression, normal, mean, np.sqrt(w @ (theta - mean) ** 2))


def generators() -> list[np.random.Generator]:
    return [np.random.default_rng([5, number]) for number in range(CHAINS)]


def peer(name: str, small: Small) -> Any:
    return {
        "scalable-mh": lambda: scalable_mh.build(kernels, *small[:2], generators(), euclidean=False),
        "scalable-mh-l2": lambda: scalable_mh.build(kernels, *small[:2], generators(), euclidean=True),
        "zigzag-cv": lambda: zigzag.build(kernels, *small[:2], generators(), scaled=False),
        "zigzag-cv-scaled": lambda: zigzag.build(kernels, *small[:2], generators(), scaled=True),
    }[name]()


def sample(sampler: Any, draws: int) -> tuple[np.ndarray, list[Any]]:
    with ThreadPoolExecutor(CHAINS) as pool:
        offsets, counts, _ = logistic.Chains(pool, CHAINS).draws(sampler, (draws, 3), stretch=1000)
    return sampler.theta(offsets), counts


def z_scores(theta: np.ndarray, small: Small) -> np.ndarray:
    """Differences of means and sds from the truth in Monte Carlo standard errors."""
    from stansub.output import inference_data
    from stansub.output.statistics import table

    built = inference_data.build(posterior={"theta": theta}, sample_stats={}, attrs={})
    own = table(built, percentiles=())
    means = (own["mean"] - small.mean) / own["mcse_mean"]
    return np.concatenate([means, (own["sd"] - small.sd) / own["mcse_sd"]])


def skewed_the_other_way(rows: np.ndarray) -> None:
    """Remainders of the wrong sign: the third derivative is odd in the predictor, the second even."""
    rows[:, 3] *= -1


def test_the_normal_approximation_itself_would_fail(small):
    theta = small.normal.mode + np.random.default_rng(1).standard_normal((CHAINS, 40_000, 3)) @ (
        np.linalg.cholesky(small.normal.covariance).T
    )
    assert np.abs(z_scores(theta, small)).max() > 10


@pytest.mark.parametrize("name", PEERS)
def test_draws_are_of_the_posterior(small, name):
    sampler = peer(name, small)
    theta, counts = sample(sampler, 40_000)
    assert sum(one.violations for one in counts) == 0
    assert np.abs(z_scores(theta, small)).max() < LIMIT


@pytest.mark.parametrize("keep", [0.5, 0.9])
def test_proposals_that_keep_some_of_the_offset(small, keep):
    sampler = peer("scalable-mh", small)
    sampler.keep = keep
    theta, _ = sample(sampler, 80_000)
    assert np.abs(z_scores(theta, small)).max() < LIMIT


def test_where_bounds_are_wide_all_observations_decide(small):
    rows = scalable_mh.table(small.regression, small.normal.mode, euclidean=True)
    rows[:, -1] *= 1e4
    theta, counts = sample(scalable_mh.ScalableMH(kernels, rows, small.normal, generators(), euclidean=True), 20_000)
    assert sum(one.evaluated for one in counts) > 0.9 * 2 * 500 * CHAINS * 20_000
    assert np.abs(z_scores(theta, small)).max() < LIMIT


@pytest.mark.parametrize("euclidean", [False, True])
@pytest.mark.parametrize(
    ("change", "violated"),
    [(lambda rows: np.multiply(rows[:, -1], 1e-3, out=rows[:, -1]), True), (skewed_the_other_way, False)],
    ids=["bound too small", "remainders of the wrong sign"],
)
def test_scalable_mh_with_a_fault_is_told(small, euclidean, change: Callable[[np.ndarray], Any], violated):
    rows = scalable_mh.table(small.regression, small.normal.mode, euclidean=euclidean)
    change(rows)
    sampler = scalable_mh.ScalableMH(kernels, rows, small.normal, generators(), euclidean=euclidean)
    theta, counts = sample(sampler, 40_000)
    assert (sum(one.violations for one in counts) > 0) == violated
    assert np.abs(z_scores(theta, small)).max() > 2 * LIMIT


@pytest.mark.parametrize(
    ("change", "violated"),
    [(lambda rates: np.multiply(rates.lipschitz, 0.03, out=rates.lipschitz), True), (None, False)],
    ids=["bound too small", "remainders of the wrong sign"],
)
def test_zigzag_with_a_fault_is_told(small, change, violated):
    regression, normal = small[:2]
    rows = zigzag.table(regression, normal.mode)
    if change is None:
        skewed_the_other_way(rows)
        rows[:, 4] = 1 - rows[:, 4]
    rates = kernels.Rates(rows, normal.gradient, regression.prior, zigzag.lipschitz(regression))
    if change is not None:
        change(rates)
    theta, counts = sample(zigzag.ZigZag(kernels, rates, normal, generators(), np.ones(3)), 40_000)
    assert (sum(one.violations for one in counts) > 0) == violated
    assert np.abs(z_scores(theta, small)).max() > 2 * LIMIT


@pytest.mark.parametrize(("method", "prob", "tolerance"), [("bulk", None, 0.02), ("tail", (0.05, 0.95), 0.05)])
def test_a_grid_twice_as_fine_tells_no_more_of_the_worst_coordinate(small, method, prob, tolerance):
    import arviz

    sampler = peer("zigzag-cv", small)
    with ThreadPoolExecutor(CHAINS) as pool:
        sampler.tune(logistic.Chains(pool, CHAINS), np.inf)
    sampler.spacing /= 2
    theta, _ = sample(sampler, 40_000)
    fine, tuned, coarse = (
        min(float(arviz.ess(theta[:, ::step, k], method=method, prob=prob)) for k in range(3)) for step in (1, 2, 64)
    )
    assert tuned == pytest.approx(fine, rel=tolerance)
    assert coarse < (1 - 2 * tolerance) * fine


def test_alias_table_has_the_weights():
    weights = np.random.default_rng(2).gamma(0.3, size=1000)
    share, other = kernels.alias_table(weights.copy())
    found = share.copy()
    np.add.at(found, other, 1 - share)
    assert found / 1000 == pytest.approx(weights / weights.sum(), abs=1e-12)


@pytest.fixture(scope="module")
def task(tmp_path_factory) -> Task:
    folder = tmp_path_factory.mktemp("data")
    data, _ = data_files(WORKLOADS["logistic-500"], folder)
    return Task(WORKLOADS["logistic-500"], data, 1, CHAINS, 1.0, folder)


@pytest.mark.parametrize("name", PEERS)
def test_engines_give_draws_by_the_programs_names(task, name):
    done = ENGINES[name].run(task)
    chains, draws = done.draws["alpha"].shape
    assert chains == CHAINS
    assert done.draws["beta"].shape == (CHAINS, draws, 10)
    assert done.warmup_s + done.sampling_s < task.seconds + 5
    assert done.sampling_passes > 0
    assert not ENGINES[name].prepare(task)  # they are compiled by now


@pytest.mark.parametrize("name", PEERS)
def test_other_workloads_are_refused(task, name):
    poisson = Task(WORKLOADS["poisson-1e5"], task.data, 1, CHAINS, 1.0, task.cache)
    with pytest.raises(Unavailable, match="logistic regression"):
        ENGINES[name].run(poisson)
    assert not ENGINES[name].prepare(poisson)


def test_without_numba_there_is_a_reason(task, monkeypatch):
    monkeypatch.setattr(logistic, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="pip install numba"):
        ENGINES["zigzag-cv"].run(task)
