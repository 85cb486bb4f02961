"""Surrogate transitions where a predictor is a product of parameters: item response with discriminations."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import z_scores
from scipy.special import expit

import stansub
from stansub.output.inference_data import attrs
from stansub.output.record import record_of
from stansub.progress import Progress
from stansub.run import transitions
from stansub.stan.analysis import Analysis
from stansub.stan.source import read
from stansub.stan.sparse import sparse_predictors
from stansub.stan.syntax import parse
from stansub.target.approximation import approximation
from stansub.target.levels import groupings
from stansub.target.sparse import SparsePredictors
from stansub.target.symmetries import symmetries
from stansub.tuning.surrogates import ridge as tuning

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "multilevel" / "programs" / "item_response.stan"
N, ITEMS, PERSONS = 2_000, 10, 40


def answers(n: int, items: int, persons: int) -> dict[str, Any]:
    rng = np.random.default_rng(8)
    item, person = np.arange(n) % items, np.arange(n) // items % persons
    a, b, theta = np.exp(0.4 * rng.standard_normal(items)), rng.standard_normal(items), rng.standard_normal(persons)
    y = rng.random(n) < expit(a[item] * (theta[person] - b[item]))
    sizes = {"N": n, "I": items, "P": persons}
    return {**sizes, "y": y.astype(int), "item": item + 1, "person": person + 1}


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    return answers(N, ITEMS, PERSONS)


@pytest.fixture(scope="module")
def predictors(data: dict[str, Any]) -> SparsePredictors:
    own = read(PROGRAM).analysis.likelihood_split()
    return sparse_predictors(own, data, N)


def test_a_level_has_a_function_of_its_two_coefficients(predictors: SparsePredictors) -> None:
    """Of a discrimination and a difficulty; a shift of difficulties is one of abilities."""
    point, _ = tuning.ridge_mode(predictors, Progress())
    rng = np.random.default_rng(5)
    places = [point.point + 0.1 * one for one in rng.standard_normal((20, predictors.dim))]
    found, _ = approximation(predictors, places)
    first, second = found.profiles.places[found.profiles.pairs]
    np.testing.assert_array_equal(np.sort(np.abs(first - second)), np.full(ITEMS, ITEMS + PERSONS))
    shift = 0.2 * (np.arange(predictors.dim) < ITEMS + PERSONS)
    phi = found.point + 0.1
    assert predictors.log_lik(phi + shift) == pytest.approx(predictors.log_lik(phi), abs=1e-8)
    corrections = [
        found.correction(found.point + change) - found.slope @ change for change in (0.1 + shift, 0.1 + 0 * shift)
    ]
    assert corrections[0] == pytest.approx(corrections[1], abs=1e-8)


def test_an_answer_reads_three_elements(predictors: SparsePredictors, data: dict[str, Any]) -> None:
    assert sorted(one.gathered.nnz for one in predictors.rows) == [N, 2 * N]
    rng = np.random.default_rng(1)
    b, theta, log_a = rng.standard_normal(ITEMS), rng.standard_normal(PERSONS), rng.standard_normal(ITEMS)
    item, person = data["item"] - 1, data["person"] - 1
    eta = np.exp(log_a[item]) * (theta[person] - b[item])
    expected = np.sum(np.log(expit(np.where(data["y"] == 1, eta, -eta))))
    assert predictors.log_lik(np.concatenate([b, theta, log_a])) == pytest.approx(expected, rel=1e-10)


def test_gradients_of_an_answer(predictors: SparsePredictors) -> None:
    eta = predictors.at(np.random.default_rng(1).standard_normal(predictors.dim))
    for one, other in zip(predictors.family.gradients(eta), predictors.family.derivatives((0, 1), eta), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


def test_items_and_persons_are_levels_with_a_shift_and_a_scale(predictors: SparsePredictors) -> None:
    items, persons = groupings(predictors)
    assert (items.places.shape, persons.places.shape) == ((ITEMS, 2), (PERSONS, 1))
    shift, scale = symmetries(predictors, np.random.default_rng(2))
    assert (np.count_nonzero(shift.direction), len(shift.scaled)) == (ITEMS + PERSONS, 0)
    assert (np.count_nonzero(scale.direction), len(scale.scaled)) == (ITEMS, ITEMS + PERSONS)


@pytest.mark.slow
def test_by_name(data: dict[str, Any], tmp_path: Path) -> None:
    """Metropolis within Gibbs; a run that ended early goes on to the same draws."""
    options: dict[str, Any] = {"seed": 3, "chains": 2, "show_progress": False, "proposal": "gibbs"}
    idata = stansub.sample(PROGRAM, data, **options, iter_sampling=150)
    assert float(idata.sample_stats["levels_accepted"].mean()) > 0.7
    assert "10 levels" in str(idata.attrs["choices"])
    assert "exact, from all observations: each pass over them decides about all levels" in str(idata.attrs["choices"])
    assert idata.attrs["guarantee"] == "exact"
    assert (idata.sample_stats["n_obs_used"] == N).all()
    record = record_of(idata)
    assert record.acceptance_rate == pytest.approx(float(idata.sample_stats["levels_accepted"].mean()))
    file = tmp_path / "run.checkpoint"
    stansub.sample(PROGRAM, data, **options, iter_sampling=70, checkpoint=file)
    resumed = stansub.sample(PROGRAM, data, **options, iter_sampling=150, resume=file)
    np.testing.assert_array_equal(resumed.posterior["theta"], idata.posterior["theta"])


KNOWN_SCALES = """
data { int N; int I; int P; array[N] int<lower=0, upper=1> y; array[N] int item; array[N] int person; }
parameters { vector<lower=0>[I] a; vector[I] b; vector[P] theta; }
model {
  theta ~ std_normal(); a ~ lognormal(0, 0.5); b ~ normal(0, 2);
  for (n in 1:N) y[n] ~ bernoulli_logit(a[item[n]] * (theta[person[n]] - b[item[n]]));
}
"""


def proposal_of(program: Any, data: dict[str, Any]) -> tuple[str, str]:
    """The proposal of a short run with no proposal given, and its reason."""
    options: dict[str, Any] = {"seed": 3, "chains": 1, "show_progress": False, "iter_warmup": 10, "iter_sampling": 10}
    facts = attrs(stansub.sample(program, data, **options))
    return facts["settings"]["proposal"], str(facts["choices"]["proposal"])


@pytest.mark.slow
def test_by_default(data: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Metropolis within Gibbs, unless its trial moves are hardly ever accepted."""
    proposal, why = proposal_of(PROGRAM, data)
    assert proposal == "gibbs"
    assert "multiplies coefficients of two groupings" in why
    monkeypatch.setattr(transitions, "LEAST_ACCEPTED", 1.0)
    assert proposal_of(PROGRAM, data)[0] == "surrogate"


@pytest.mark.slow
def test_by_default_with_known_scales(data: dict[str, Any], tmp_path: Path) -> None:
    """The text shows no effects with an unknown scale, for which alone there are surrogate transitions."""
    assert not Analysis.of(parse(KNOWN_SCALES)).hints().effects
    program = tmp_path / "known_scales.stan"
    program.write_text(KNOWN_SCALES)
    assert proposal_of(program, data)[0] == "gibbs"


def test_the_search_for_a_point_of_expansion_leaves_a_saddle(predictors: SparsePredictors) -> None:
    """All predictors are 0 where phi is, and the likelihood is not concave there."""
    start = predictors.expansion(np.zeros(predictors.dim))
    assert np.linalg.eigvalsh(start.precision.toarray()).min() < -10
    found, _ = tuning.ridge_mode(predictors, Progress())
    ridge = tuning._RIDGE * np.eye(predictors.dim)
    whole = found.precision.toarray() + ridge
    assert np.linalg.eigvalsh(whole).min() > 0
    slope = found.gradient - tuning._RIDGE * found.point
    assert slope @ np.linalg.solve(whole, slope) < tuning._DECREMENT
    assert found.value > start.value + 100


@pytest.mark.slow
@pytest.mark.parametrize("proposal", ["surrogate", "gibbs"])
def test_draws_agree_with_nuts(proposal: str) -> None:
    """Means and mean squares of all parameters; draws that are 10 % wider must not agree."""
    options: dict[str, Any] = {"seed": 4, "show_progress": False}
    idata = stansub.sample(PROGRAM, answers(6_000, 40, 60), **options, proposal=proposal, iter_sampling=3_000)
    assert float(idata.sample_stats["accepted"].mean()) > 0.3
    reference = stansub.reference(PROGRAM, answers(6_000, 40, 60), **options)
    names = ("log_a", "b", "theta", "sigma_a", "sigma_b")
    assert max(z_scores(idata, reference, names)) < 4.5
    assert max(z_scores(idata, reference, names, wider=1.1)) > 4.5
