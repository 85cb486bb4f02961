"""Data of which nothing is held twice: the same posterior as from all of them in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import unconstrained

import stansub
from stansub.errors import InputError
from stansub.stan import instances, shares
from stansub.stan.compilation import CompiledModel, compile_model
from stansub.stan.observations import predictors
from stansub.stan.proved import Proved
from stansub.stan.shares import Shares
from stansub.stan.syntax import parse
from stansub.stan.toolchain.library import Library
from stansub.target import observations

N = 4000
PROGRAM = Path(__file__).parents[2] / "stan_models" / "logistic.stan"


@pytest.fixture(scope="module")
def compiled() -> CompiledModel:
    return compile_model(PROGRAM)


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((N, 3))
    return {"x": x, "y": (rng.random(N) < 1 / (1 + np.exp(0.3 - x @ [0.5, -0.5, 0.2]))).astype(int)}


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if these few rows were very many."""
    monkeypatch.setattr(shares, "_LEAST", 0)
    monkeypatch.setattr(shares, "_SHARE", 15_000)
    monkeypatch.setattr(instances, "_ALWAYS", 0)
    monkeypatch.setattr(instances, "_LARGE", 2)
    monkeypatch.setattr(predictors, "_COMPUTED", 0)
    monkeypatch.setattr(predictors, "_ROWS", 1500)
    monkeypatch.setattr(predictors, "_FOLLOWED", 1500)


def test_the_whole_log_density_in_shares(compiled: CompiledModel, data: dict[str, Any], little_memory: None) -> None:
    values = compiled.read_data(data)
    whole = values.model(compiled.original)
    found = Shares.of(compiled.original, compiled.program, values, "N", seed=0)
    assert found is not None
    for theta in np.random.default_rng(2).standard_normal((3, whole.dim)):
        assert found.log_density(theta) == pytest.approx(whole.log_density(theta), rel=1e-12)
        value, gradient = found.log_density_gradient(theta)
        assert value == pytest.approx(whole.log_density(theta), rel=1e-12)
        np.testing.assert_allclose(gradient, whole.log_density_gradient(theta)[1], rtol=1e-10, atol=1e-10)
        assert np.array_equal(found.param_constrain(theta), whole.param_constrain(theta))
    assert found.param_names() == whole.param_names()


def test_shares_of_another_library(compiled: CompiledModel, data: dict[str, Any], little_memory: None) -> None:
    """Such as that of the program without print."""
    found = Shares.of(compiled.original, compiled.program, compiled.read_data(data), "N", seed=0)
    assert found is not None
    library = Library(compiled.original.path)
    again = found.of_library(library)
    assert {id(model.library) for model in (again.undivided(), *again.few)} == {id(library)}
    at = np.array([0.1, 0.2, -0.1, 0.3])
    assert again.log_density(at) == found.log_density(at)


@pytest.mark.parametrize(
    "changed",
    [
        "generated quantities { vector[N] mu = x * beta; }",
        "generated quantities { real most = max(y); }",
        "generated quantities { int n = N; }",
    ],
)
def test_what_is_written_from_all_rows_needs_all_of_them(
    compiled: CompiledModel, data: dict[str, Any], little_memory: None, changed: str
) -> None:

    values = compiled.read_data(data)
    assert Shares.of(compiled.original, parse(PROGRAM.read_text() + changed), values, "N", seed=0) is None


def test_draws_do_not_depend_on_what_is_held(
    compiled: CompiledModel, data: dict[str, Any], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def draws() -> Any:
        idata = stansub.sample(compiled, data, seed=3, chains=2, iter_warmup=100, iter_sampling=2000)
        return unconstrained(idata)

    usual = draws()
    request.getfixturevalue("little_memory")
    streamed = draws()
    assert not np.array_equal(streamed, usual), "candidates come from a stream"
    sd = usual.std(axis=(0, 1))
    # as if only a quarter of the draws were effective
    np.testing.assert_array_less(np.abs(streamed.mean(axis=(0, 1)) - usual.mean(axis=(0, 1))), 5 * sd / np.sqrt(500))
    np.testing.assert_allclose(streamed.std(axis=(0, 1)), sd, rtol=0.15)
    monkeypatch.setattr(observations, "_MOST_STREAMED", -1.0)
    np.testing.assert_allclose(draws(), usual, rtol=1e-6)


def test_a_posterior_in_shares_holds_no_model_of_all_rows(
    compiled: CompiledModel, data: dict[str, Any], little_memory: None
) -> None:
    posterior = compiled.with_data(data, block_size=500)
    assert isinstance(posterior.full, Shares)
    assert posterior.proof.holds
    assert posterior.population.evaluator().block_log_lik(np.zeros(4)).sum() == pytest.approx(N * np.log(0.5))


def test_rows_that_were_proved_are_evaluated_as_before(
    compiled: CompiledModel, data: dict[str, Any], little_memory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    proved = compiled.with_data(data, block_size=500)
    known = Proved.of(proved)
    assert known is not None
    again, at = compiled.with_proof(proved.values, known), np.array([0.1, 0.2, -0.1, 0.3])
    assert isinstance(again.full, Shares)
    assert again.full.log_density(at) == proved.full.log_density(at)
    assert again.order is None
    # a program that was proved with all rows at once, because it is no sum over shares, is evaluated with all
    monkeypatch.setattr(shares, "_LEAST", 1 << 40)
    whole = Proved.of(compiled.with_data(data, block_size=500))
    monkeypatch.setattr(shares, "_LEAST", 0)
    assert whole is not None
    assert not isinstance(compiled.with_proof(proved.values, whole).full, Shares)


@pytest.mark.slow
def test_a_program_that_is_no_sum_of_shares_is_proved_on_all_rows(
    data: dict[str, Any], little_memory: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("centred") / "centred_shares.stan"
    path.write_text(PROGRAM.read_text().replace("glm(x, alpha", "glm(x - mean(x), alpha"))
    with pytest.raises(InputError, match="sum"):
        compile_model(path).with_data(data, block_size=500)
