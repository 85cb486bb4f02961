"""Surrogate transitions where a predictor is a product of parameters: item response with discriminations."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from stansub.progress import Progress
from stansub.stan.source import read
from stansub.stan.sparse import sparse_predictors
from stansub.target.sparse import SparsePredictors
from stansub.tuning import surrogate as tuning

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "multilevel" / "programs" / "item_response.stan"
N, ITEMS, PERSONS = 2_000, 10, 40


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    rng = np.random.default_rng(8)
    item, person = np.arange(N) % ITEMS, np.arange(N) // ITEMS % PERSONS
    a, b, theta = np.exp(0.4 * rng.standard_normal(ITEMS)), rng.standard_normal(ITEMS), rng.standard_normal(PERSONS)
    y = rng.random(N) < expit(a[item] * (theta[person] - b[item]))
    sizes = {"N": N, "I": ITEMS, "P": PERSONS}
    return {**sizes, "y": y.astype(int), "item": item + 1, "person": person + 1}


@pytest.fixture(scope="module")
def predictors(data: dict[str, Any]) -> SparsePredictors:
    own = read(PROGRAM).analysis.likelihood_split()
    return sparse_predictors(own, data, N)


def test_an_answer_reads_three_elements(predictors: SparsePredictors, data: dict[str, Any]) -> None:
    assert sorted(one.gathered.nnz for one in predictors.rows) == [N, 2 * N]
    rng = np.random.default_rng(1)
    b, theta, log_a = rng.standard_normal(ITEMS), rng.standard_normal(PERSONS), rng.standard_normal(ITEMS)
    item, person = data["item"] - 1, data["person"] - 1
    eta = np.exp(log_a[item]) * (theta[person] - b[item])
    expected = np.sum(np.log(expit(np.where(data["y"] == 1, eta, -eta))))
    assert predictors.log_lik(np.concatenate([b, theta, log_a])) == pytest.approx(expected, rel=1e-10)


def test_the_search_for_a_point_of_expansion_leaves_a_saddle(predictors: SparsePredictors) -> None:
    """All predictors are 0 where phi is, and the likelihood is not concave there."""
    start = predictors.expansion(np.zeros(predictors.dim))
    assert np.linalg.eigvalsh(start.precision.toarray()).min() < -10
    found, _ = tuning._ridge_mode(predictors, Progress())
    ridge = tuning._RIDGE * np.eye(predictors.dim)
    whole = found.precision.toarray() + ridge
    assert np.linalg.eigvalsh(whole).min() > 0
    slope = found.gradient - tuning._RIDGE * found.point
    assert slope @ np.linalg.solve(whole, slope) < tuning._DECREMENT
    assert found.value > start.value + 100
