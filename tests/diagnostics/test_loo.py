"""PSIS-LOO of draws beside ArviZ's on all the data, of Stan programs and of functions; what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import unconstrained
from sampled import SHORT
from simulated import PROGRAMS, ROOT, Compiled, simulated
from test_cli import run

import stansub
from stansub import FunctionFactors, InputError, RunError
from stansub.nuts.base import Program
from stansub.output import inference_data, psis
from stansub.run.functions import posterior_of
from stansub.stan import syntax
from stansub.stan.data import data as data_module

N = 300
X = np.random.default_rng(1).standard_normal((N, 2))
Y = X @ [0.5, -0.3] + np.random.default_rng(2).standard_t(4, N)


def regression(columns: int = 2) -> FunctionFactors:
    """A regression on the first columns with unit errors."""
    x = X[:, :columns]

    def log_lik(theta: Any, which: Any) -> Any:
        return -0.5 * (Y[which] - x[which] @ theta) ** 2 - 0.5 * np.log(2 * np.pi)

    def slopes(theta: Any, which: Any) -> Any:
        return (Y[which] - x[which] @ theta)[:, np.newaxis] * x[which]

    return FunctionFactors(
        [f"beta.{k}" for k in range(1, columns + 1)], N, log_lik, log_lik_gradient=slopes, name="regression"
    )


@pytest.fixture(scope="module")
def drawn() -> Any:
    return stansub.sample(regression(), **SHORT)


def by_arviz(draws: Any, log_lik: Any) -> Any:
    """ArviZ's own result, as elpd, se, p and Pareto k; its se from the sample variance, as from ArviZ 1.0 on."""
    groups = {name: inference_data.group(draws, name) for name in ("posterior", "sample_stats")}
    values = {name: {str(key): one.values for key, one in group.data_vars.items()} for name, group in groups.items()}
    tree = inference_data.build(**values, log_likelihood={"log_lik": log_lik}, attrs={})
    with np.errstate(all="ignore"):
        found = inference_data.arviz_module().loo(inference_data.container(tree), pointwise=True)
    if hasattr(found, "elpd"):
        return [found["elpd"], found["se"], found["p"], found["pareto_k"].values]
    n = log_lik.shape[2]
    return [found["elpd_loo"], found["se"] * np.sqrt(n / (n - 1)), found["p_loo"], found["pareto_k"].values]


def by_hand(draws: Any) -> Any:
    """Log likelihoods of the regression, shape (chain, draw, N)."""
    beta = inference_data.group(draws, "posterior")["beta"].values
    return -0.5 * (Y - beta @ X.T) ** 2 - 0.5 * np.log(2 * np.pi)


def test_draws_of_another_type_are_refused() -> None:
    for given in ({"a": 1}, np.zeros(3), None):
        with pytest.raises(InputError, match=r"^draws must be a file, or what `stansub\.sample` returns, not of type "):
            stansub.loo(given)  # type: ignore[arg-type]


def test_all_observations_give_what_arviz_gives(drawn: Any) -> None:
    found = stansub.loo(drawn, model=regression())
    elpd, se, p, pareto_k = by_arviz(drawn, by_hand(drawn))
    np.testing.assert_allclose([found.elpd, found.se, found.p], [elpd, se, p], rtol=1e-8)
    np.testing.assert_allclose(found.pareto_k, pareto_k, rtol=1e-8)
    assert (found.n_data_points, found.subsample_size, found.subsampling_se) == (N, N, 0.0)


def test_subsets_agree_with_all_observations(drawn: Any) -> None:
    full = stansub.loo(drawn, model=regression())
    parts = [stansub.loo(drawn, model=regression(), observations=60, seed=seed) for seed in range(20)]
    errors = np.array([(one.elpd - full.elpd) / one.subsampling_se for one in parts])
    assert np.abs(errors).max() < 3.5
    assert 0.5 < errors.std() < 1.5
    assert max(one.subsampling_se for one in parts) < 0.1 * full.se
    assert len({tuple(one.rows) for one in parts}) == 20


def test_surrogates_stand_in_the_order_of_the_data(drawn: Any) -> None:
    mean = inference_data.group(drawn, "posterior")["beta"].values.mean(axis=(0, 1))
    found = stansub.loo(drawn, model=regression(), observations=10)
    np.testing.assert_allclose(found.surrogate, -0.5 * (Y - X @ mean) ** 2 - 0.5 * np.log(2 * np.pi), rtol=1e-12)
    np.testing.assert_allclose(found.elpd_i, found.surrogate[found.rows], atol=0.2)


def test_an_observation_without_influence_has_no_pareto_k(drawn: Any) -> None:
    """Such as one of weight 0: its log likelihood is the same in all draws."""
    x = X.copy()
    x[7] = 0
    log_lik = -0.5 * (Y - inference_data.group(drawn, "posterior")["beta"].values @ x.T) ** 2
    found = psis.psis_loo(log_lik, 0.8)
    assert found.pareto_k[7] == -np.inf
    assert found.elpd[7] == pytest.approx(-0.5 * Y[7] ** 2)
    assert found.p[7] == pytest.approx(0, abs=1e-12)


def test_models_are_compared(drawn: Any) -> None:
    small = stansub.sample(regression(1), **SHORT)
    models = {"both": (drawn, regression()), "one": (small, regression(1))}

    def compared(observations: int) -> Any:
        found = {
            name: stansub.loo(draws, model=model, observations=observations) for name, (draws, model) in models.items()
        }
        return stansub.loo_compare(found)

    full, part = compared(N), compared(100)
    assert list(full.index) == list(part.index) == ["both", "one"]
    assert full.subsampling_dse["one"] == 0
    assert abs(part.elpd_diff["one"] - full.elpd_diff["one"]) < 4 * part.subsampling_dse["one"]
    assert part.subsampling_dse["one"] < 0.3 * part.dse["one"]


def test_functions_that_were_not_sampled_are_refused(drawn: Any) -> None:
    with pytest.raises(InputError, match="these are not the program and data of the draws"):
        stansub.loo(drawn, model=regression(1))
    with pytest.raises(InputError, match="do not record their program: give the sampled model as `model`"):
        stansub.loo(drawn)


def test_a_log_likelihood_that_is_not_finite_is_named(drawn: Any) -> None:
    draws = unconstrained(drawn)
    limit = np.sort(draws[..., 0].ravel())[-5]
    good = regression()

    def log_lik(theta: Any, which: Any) -> Any:
        values = good._log_lik(theta, which)
        return np.where((which == 41) & (theta[0] > limit), -np.inf, values)

    odd = FunctionFactors(good.names, N, log_lik, name="regression")
    tree = inference_data.container(inference_data.build(**parts_of(drawn), attrs=facts_of(drawn, odd)))
    with pytest.raises(RunError, match="the log likelihood of observation 42 is not finite at some draws"):
        stansub.loo(tree, model=odd)


def parts_of(draws: Any) -> dict[str, Any]:
    return {
        name: {str(key): one.values for key, one in inference_data.group(draws, name).data_vars.items()}
        for name in ("posterior", "sample_stats", "unconstrained_posterior")
    }


def facts_of(draws: Any, model: FunctionFactors) -> dict[str, Any]:
    posterior = posterior_of(model)
    return inference_data.attrs(draws) | {"data_hash": posterior.values.digest()}


def test_log_likelihoods_that_do_not_sum_up_are_refused(drawn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    single = FunctionFactors.single

    def wrong(self: FunctionFactors, places: Any) -> Any:
        return single(self, np.maximum(places, 1))

    monkeypatch.setattr(FunctionFactors, "single", wrong)
    with pytest.raises(InputError, match="single observations cannot be left out"):
        stansub.loo(drawn, model=regression())


def test_a_program_gives_what_arviz_makes_of_its_log_lik(place: Path) -> None:
    draws = inference_data.read(place / "draws.nc")
    elpd, se, p, pareto_k = by_arviz(draws, inference_data.group(draws, "log_likelihood")["log_lik"].values)
    found = stansub.loo(place / "draws.nc")
    np.testing.assert_allclose([found.elpd, found.se, found.p], [elpd, se, p], rtol=1e-8)
    np.testing.assert_allclose(found.pareto_k, pareto_k, rtol=1e-6)


def test_models_of_other_data_are_told_apart(place: Path, tmp_path: Path) -> None:
    """Here of the same observations in another order."""
    data = json.loads((place / "data.json").read_text())
    (tmp_path / "data.json").write_text(json.dumps({**data, "y": data["y"][::-1]}))
    draws = inference_data.read(place / "draws.nc")
    other = inference_data.read(place / "draws.nc")
    program = syntax.parse(str(other.attrs["model_code"]))
    values = data_module.read(str(tmp_path / "data.json"), program.data.declarations)
    other.attrs |= {"data_file": str(tmp_path / "data.json"), "data_hash": values.digest()}
    found = {"one": stansub.loo(draws), "other": stansub.loo(other)}
    with pytest.raises(InputError, match="one and other share no data variable"):
        stansub.loo_compare(found)
    stansub.loo_compare({"one": found["one"], "again": stansub.loo(draws)})


def test_draws_of_nuts_do_too(place: Path) -> None:
    """They have no unconstrained positions."""
    draws = inference_data.read(place / "draws.nc")
    parts = parts_of(draws)
    del parts["unconstrained_posterior"]
    tree = inference_data.container(inference_data.build(**parts, attrs=inference_data.attrs(draws)))
    assert stansub.loo(tree).elpd == pytest.approx(stansub.loo(draws).elpd, rel=1e-10)


def test_a_likelihood_evaluated_over_blocks_named_from_outside(compiled: Compiled) -> None:
    data = {"N": 90, "y": np.random.default_rng(3).normal(1.0, 2.0, 90), "sigma": 2.0}
    posterior = compiled(ROOT / "stan_models" / "normal_mean.stan").with_data(data)
    draws = stansub.sample(posterior, **SHORT)
    mu = inference_data.group(draws, "posterior")["mu"].values[..., np.newaxis]
    log_lik = -0.5 * ((data["y"] - mu) / 2) ** 2 - 0.5 * np.log(2 * np.pi) - np.log(2)
    elpd, se, p, _ = by_arviz(draws, log_lik)
    found = stansub.loo(draws, model=posterior)
    np.testing.assert_allclose([found.elpd, found.se, found.p], [elpd, se, p], rtol=1e-8)


@pytest.mark.slow
def test_a_likelihood_that_is_no_sum_is_refused_with_the_reason(compiled: Compiled, tmp_path: Path) -> None:
    file = PROGRAMS / "dependent.stan"
    data = {name: np.asarray(value).tolist() for name, value in simulated(file).items()}
    (tmp_path / "data.json").write_text(json.dumps(data))
    program = Program.read(file)
    values = data_module.read(str(tmp_path / "data.json"), program.syntax.data.declarations)
    facts = {"model": "dependent", "model_code": program.code, "model_hash": program.hash}
    facts |= {"data_file": str(tmp_path / "data.json"), "data_hash": values.digest()}
    posterior = {name: np.full((2, 30), 0.5) for name in ("mu", "theta", "sigma")}
    tree = inference_data.container(inference_data.build(posterior=posterior, sample_stats={}, attrs=facts))
    compiled(file)
    with pytest.raises(InputError, match="residual"):
        stansub.loo(tree)


def test_the_command_prints_the_table(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(["loo", str(place / "draws.nc"), "--observations", "20", "-q"], capsys)
    found = stansub.loo(place / "draws.nc", observations=20)
    assert code == 0
    assert out == f"{found}\n"
    assert f"elpd_loo  {found.elpd:.2f}  {found.se:.2f}" in " ".join(out.split()).replace(" ", "  ")
    assert "600 posterior draws and 20 of 70 observations" in out


def test_the_command_compares(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = place / "other.nc"
    inference_data.write(inference_data.read(place / "draws.nc"), other, overwrite=True)
    code, out, _ = run(["loo", str(place / "draws.nc"), str(other), "-q", "--json"], capsys)
    figures = json.loads(out)
    assert code == 0
    assert set(figures["models"]) == set(figures["comparison"]) == {str(place / "draws.nc"), str(other)}
    assert [row["elpd_diff"] for row in figures["comparison"].values()] == [0, 0]
    code, out, _ = run(["loo", str(place / "draws.nc"), str(other), "-q"], capsys)
    assert code == 0
    assert "elpd_diff" in out


@pytest.fixture(scope="module")
def others(place: Path) -> Path:
    """Beside the draws: other data, and the same draws of a file that is gone."""
    (place / "others.json").write_text('{"N": 2, "y": [1, 2], "limit": 1}')
    draws = inference_data.read(place / "draws.nc")
    draws.attrs["data_file"] = str(place / "gone.json")
    inference_data.write(draws, place / "moved.nc")
    return place


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone.nc"], "gone.nc: no such file"),
        (["draws.nc", "draws.nc"], "the same file was given twice"),
        (["draws.nc", "--observations", "1"], "observations 1 must be an integer of at least 2"),
        (["draws.nc", "--data", "others.json"], "these are not the data of the draws"),
        (["moved.nc"], "the file from which the draws were made no longer exists; give --data"),
    ],
)
def test_wrong_use(
    arguments: list[str],
    message: str,
    others: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(others)
    code, out, err = run(["loo", *arguments, "-q"], capsys)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
