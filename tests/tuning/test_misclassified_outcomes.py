"""Surrogates of a posterior on a bent ridge: draws of the first one are far from it, those of later ones are near."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import stansub
from stansub import Posterior
from stansub.progress import Progress
from stansub.target.approximation import Approximation
from stansub.target.sparse import Quadratic
from stansub.tuning.surrogates import surrogate
from stansub.tuning.surrogates.omissions import selected
from stansub.tuning.surrogates.surrogate import FarError, _between, _choice, tune

N, J, N_SEEDS = 10_000, 20, 3
# Sd of the remainder with which transitions are accepted, now and then at least.
FAIR = 2.0


def simulated() -> dict[str, Any]:
    """Outcomes with unknown sensitivity and specificity."""
    rng = np.random.default_rng(2)
    x, g, z = rng.normal(size=N), rng.integers(J, size=N), rng.normal(size=J)
    p = 1 / (1 + np.exp(0.5 - x - 0.5 * z[g]))
    y = rng.random(N) < 0.9 * p + 0.15 * (1 - p)
    return {"N": N, "J": J, "x": x, "g": g + 1, "y": y.astype(int)}


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    programs = Path(__file__).parents[1] / "run" / "programs"
    return stansub.compile_model(programs / "misclassified.stan").with_data(simulated())


def noises(posterior: Posterior) -> list[float]:
    """Return what the surrogates of several set-ups omit; infinite if they do not lead to the posterior."""

    def noise(seed: int) -> float:
        try:
            return tune(posterior.split(), posterior.dim, np.random.default_rng(seed), Progress()).noise
        except FarError:
            return np.inf

    return [noise(seed) for seed in range(N_SEEDS)]


@pytest.mark.slow
def test_draws_far_from_the_posterior_approach_it(posterior: Posterior) -> None:
    assert np.median(noises(posterior)) < FAIR


@pytest.mark.slow
def test_they_run_away_without_selection_means_and_damping(
    posterior: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surrogate, "selected", lambda remainders: np.arange(len(remainders)))
    monkeypatch.setattr(surrogate, "_AVERAGED", 1)
    monkeypatch.setattr(surrogate, "_between", lambda one, other: other)
    assert np.median(noises(posterior)) > FAIR


def test_the_mean_of_expansions_has_the_mean_gradient_and_precision() -> None:
    """And damped ones are no expansions, of which decisions about single observations would take the remainders."""
    points = np.array([[0.0, 1.0], [2.0, 5.0]])
    one, other = (Quadratic.of(point, 1.0, k * point, sp.csr_array(k * np.eye(2))) for k, point in enumerate(points, 1))
    found = _between(Approximation.plain(one), Approximation.plain(other))
    assert found.is_mean
    np.testing.assert_allclose(found.quadratic.point, [1, 3])
    np.testing.assert_allclose(found.quadratic.gradient, [2, 5.5])
    np.testing.assert_allclose(found.quadratic.precision.toarray(), 1.5 * np.eye(2))
    nothing: Any = None
    choice = _choice(nothing, found, np.ones(2), [points[0]], check=lambda: None)
    assert choice.joint is None
    assert "no bounds are known" in choice.reason


@pytest.mark.parametrize(("sd", "least", "most"), [(0.0, 30, 30), (0.5, 15, 29), (300.0, 7, 25)])
def test_selected_draws_are_of_the_posterior_or_at_least_a_few_of_the_best(sd: float, least: int, most: int) -> None:
    remainders = sd * np.random.default_rng(1).standard_normal(30)
    chosen = selected(remainders)
    assert len(chosen) == 30
    assert least <= len(set(chosen.tolist())) <= most
    if sd:
        assert remainders[chosen].mean() > remainders.mean() + 0.3 * sd
    weights = np.exp(remainders - remainders.max())
    if sd < 1:
        assert remainders[chosen].mean() == pytest.approx(np.average(remainders, weights=weights), abs=0.2 * sd)


def test_draws_without_likelihood_are_never_selected() -> None:
    assert set(selected(np.array([np.nan, -np.inf, 1.0, 1.0])).tolist()) == {2, 3}
    assert selected(np.full(3, np.nan)).tolist() == [0, 1, 2]
