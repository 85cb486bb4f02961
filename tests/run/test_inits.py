"""Starting values."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from drawn import unconstrained
from numpy.typing import NDArray
from rich.console import Console

import stansub
from stansub import CompiledModel, InputError, checking
from stansub.output import inference_data
from stansub.run.inits import Init, load, near_draws, parse, start
from stansub.stan import syntax
from stansub.stan.compilation import compile_model
from stansub.stan.posterior import Posterior
from stansub.stan.source import Source

Array = NDArray[np.float64]


@pytest.fixture(scope="module")
def posterior(quantities: CompiledModel, sample_data: dict[str, Any]) -> Posterior:
    return quantities.with_data(sample_data, block_size=10)


def starts(posterior: Posterior, inits: Any, chains: int = 2, seed: int = 1) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [start(posterior, init, rng, chain=chain) for chain, init in enumerate(load(inits, chains))]


def test_radius_zero_is_the_origin(posterior: Posterior) -> None:
    assert np.array_equal(starts(posterior, 0), np.zeros((2, 2)))


@pytest.mark.parametrize("radius", [0.5, 2.0])
def test_a_radius_bounds_random_inits(posterior: Posterior, radius: float) -> None:
    found = np.array(starts(posterior, radius, chains=200))
    assert np.abs(found).max() <= radius
    assert np.abs(found).max() > 0.95 * radius
    assert len(np.unique(found)) == 400
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=4 * radius / np.sqrt(3 * 200))


def test_values_are_constrained_ones(posterior: Posterior) -> None:
    for values in ({"mu": 0.5, "sigma": 2.0}, {"mu": np.float64(0.5), "sigma": np.array(2.0)}):
        np.testing.assert_allclose(starts(posterior, values), [[0.5, np.log(2.0)]] * 2)


def test_parameters_not_named_start_at_random(posterior: Posterior) -> None:
    found = np.array(starts(posterior, {"sigma": 2.0}, chains=5))
    np.testing.assert_allclose(found[:, 1], np.log(2.0))
    assert len(np.unique(found[:, 0])) == 5


def test_values_of_a_former_run_may_hold_later_blocks_too(posterior: Posterior) -> None:
    values = {"mu": 0.5, "sigma": 2.0, "precision": 0.25, "table": [[0.0] * 3] * 2}
    np.testing.assert_allclose(starts(posterior, values), [[0.5, np.log(2.0)]] * 2)


def test_files_one_for_all_and_one_a_chain(posterior: Posterior, tmp_path: Path) -> None:
    files = [tmp_path / f"inits{number}.json" for number in (1, 2)]
    for number, file in enumerate(files):
        file.write_text(json.dumps({"mu": float(number), "sigma": 1.0}))
    np.testing.assert_allclose(starts(posterior, str(files[1])), [[1, 0], [1, 0]])
    np.testing.assert_allclose(starts(posterior, parse(f"{files[0]},{files[1]}")), [[0, 0], [1, 0]])


def test_the_command_line_takes_a_radius_or_files() -> None:
    assert parse("0.5") == 0.5
    assert parse("a.json") == "a.json"
    assert parse("a.json,b.json") == ["a.json", "b.json"]


@pytest.mark.parametrize(
    ("inits", "message"),
    [
        (-1.0, "radius"),
        (float("nan"), "radius"),
        (1e308, "radius"),
        (True, "radius"),
        ("missing.json", "missing.json: no such file"),
        (["a.json"], "1 files for 2 chains"),
        (None, "give a radius"),
    ],
    ids=str,
)
def test_inits_that_cannot_be_read_are_refused(inits: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(inits, 2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mu": 0.0, "simga": 1.0}, "'simga' is not a parameter of the program; its parameters are mu, sigma"),
        ({"mu": [1.0, 2.0]}, "parameter 'mu': its size is 2, but must be one number"),
        ({"mu": "zero"}, "parameter 'mu'"),
        ({"mu": float("nan")}, "parameter 'mu': a value is missing or not finite"),
        ({"mu": None}, "parameter 'mu': a value is missing or not finite"),
        ({"mu": 1.0, "sigma": -1.0}, "parameter 'sigma': lb_free: Lower bounded variable is -1"),
        ({"mu": object()}, "must be numbers"),
    ],
    ids=["wrong name", "wrong size", "text", "not a number", "null", "constraint", "not JSON"],
)
def test_values_that_do_not_fit_are_refused(posterior: Posterior, values: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        starts(posterior, values)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_file_at_fault_is_named(posterior: Posterior, tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_text('{"sigma": -1}')
    with pytest.raises(InputError, match=r"bad\.json"):
        starts(posterior, file)


def test_an_impossible_start_names_the_observation(posterior: Posterior) -> None:
    # Residuals of 1e200 overflow for every observation; one of them is named.
    with pytest.raises(InputError) as caught:
        starts(posterior, {"mu": 1e200, "sigma": 1.0})
    text = str(caught.value)
    assert "chain 1: the log density is not finite" in text
    assert "change the values" in text


def test_an_impossible_observation_is_named(logistic: CompiledModel) -> None:
    y, x = np.array([0, 1, 0, 1, 1, 0]), np.ones((6, 1))
    x[4] = 1e308  # alpha + x * beta overflows wherever beta is not tiny
    posterior = logistic.with_data({"N": 6, "K": 1, "y": y, "x": x}, block_size=2)
    with pytest.raises(InputError, match=r"chain 1: .*observation 5 of the data"):
        start(posterior, Init(values={"alpha": 0.0, "beta": [-10.0]}), np.random.default_rng(1), chain=0)


def test_the_search_for_modes_starts_from_inits_too() -> None:
    """The highest mode is 500 from where the search draws starts; it finds a lower one at 0."""
    y = np.random.default_rng(1).normal(500, 1, 400)

    def parts(theta: Array, which: Array) -> tuple[Array, Array, Array]:
        near, away = -0.5 * (y[which] - theta[0]) ** 2, np.full(len(which), -0.5 * theta[0] ** 2 - 20)
        total = np.logaddexp(near, away)
        return total, np.exp(near - total) * (y[which] - theta[0]), -np.exp(away - total) * theta[0]

    target = stansub.FunctionFactors(
        ["mu"],
        len(y),
        lambda theta, which: parts(theta, which)[0],
        log_lik_gradient=lambda theta, which: sum(parts(theta, which)[1:])[:, np.newaxis],
    )
    short: dict[str, Any] = {"chains": 2, "iter_warmup": 50, "iter_sampling": 200, "seed": 3}
    draws = stansub.sample(target, inits={"mu": 490.0}, **short).posterior["mu"].values
    assert np.abs(draws - y.mean()).max() < 6 / np.sqrt(len(y))
    assert 0.5 < draws.std() * np.sqrt(len(y)) < 2
    without = stansub.sample(target, **short).posterior["mu"].values
    assert np.abs(without).max() < 1


RATES = """
data { int<lower=1> N; matrix[N, 4] x; array[N] int<lower=0> y; }
parameters { real alpha; vector[4] beta; }
model { alpha ~ normal(25, 5); beta ~ normal(0, 3); y ~ poisson(alpha + x * beta); }
generated quantities { array[N] int y_rep = poisson_rng(alpha + x * beta); }
"""
START = {"alpha": 25.0, "beta": [0.0, 0.0, 0.0, 0.0]}


def rates() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    x = rng.normal(0.0, 1.0, (2000, 4))
    return {"N": 2000, "x": x, "y": rng.poisson(25.0 + x @ [1.5, 0.0, 0.0, -1.0])}


@pytest.fixture(scope="module")
def counted() -> stansub.CompiledModel:
    return compile_model(Source("rates", RATES, syntax.parse(RATES)))


@pytest.mark.slow
def test_a_cut_that_is_finite_only_near_the_inits_is_proved_there(
    counted: stansub.CompiledModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, model = rates(), counted
    program, file, inits = tmp_path / "rates.stan", tmp_path / "rates.json", tmp_path / "inits.json"
    program.write_text(RATES, encoding="utf-8")
    file.write_bytes(orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY))
    inits.write_bytes(orjson.dumps(START))
    with pytest.raises(InputError, match=r"At the last of them, observation \d+ .*give plausible `inits`"):
        model.with_data(data)

    short: dict[str, Any] = {"chains": 2, "iter_warmup": 200, "seed": 1, "show_progress": False}
    saved = tmp_path / "rates.checkpoint"
    stansub.sample(model, data, inits=inits, iter_sampling=200, checkpoint=saved, **short)
    longer = stansub.sample(model, data, inits=inits, iter_sampling=400, resume=saved, **short)
    assert longer.posterior["alpha"].shape == (2, 400)
    np.testing.assert_allclose(float(longer.posterior["beta"][..., 0].mean()), 1.5, atol=0.5)

    assert checking.report(program, file, observations=None, inits=inits, console=Console()) == 0
    assert "qualifies" in capsys.readouterr().out


@pytest.mark.slow
def test_cuts_of_draws_are_proved_near_the_draws(counted: stansub.CompiledModel) -> None:
    data = rates()
    draws = stansub.sample(
        counted, data, inits=START, chains=2, iter_warmup=200, iter_sampling=400, seed=1, show_progress=False
    )
    assert stansub.loo(draws, data=data, observations=100, show_progress=False).n_data_points == 2000
    found = stansub.ppc(draws, data=data, observations=50, n_draws=20, show_progress=False)
    assert found.posterior_predictive["y"].shape[-1] == 50
    budget: dict[str, Any] = {"max_steps": 200, "repeats": 4, "epsilons": (0.0, 0.1), "show_progress": False}
    for inits in (None, START):
        assert len(stansub.risk(counted, data, reference=draws, inits=inits, seed=1, **budget).curves)
    # Draws without their unconstrained positions, such as those of NUTS.
    named = inference_data.build(
        posterior={name: draws.posterior[name].values for name in ("alpha", "beta")},
        sample_stats={},
        attrs=inference_data.attrs(draws),
    )
    near = near_draws(inference_data.container(named))
    posterior = counted.with_data(data, near=near)
    last = unconstrained(draws)[:, -1]
    np.testing.assert_allclose(near(posterior.full), last, rtol=1e-12)
    assert np.abs(np.array(posterior.points) - last[0]).max() < 25, "about the draws, not about 0"
    assert posterior.proof.holds
