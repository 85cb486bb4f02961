"""The same sampler with exact decisions: good ones agree with them, loose ones are caught, and costs stand beside."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stansub
from stansub import FunctionFactors, InputError, Metropolis, OnParameters, Sequence
from stansub.diagnostics.exact import compare_exact
from stansub.output import inference_data
from stansub.report.page import compose

Array = NDArray[np.float64]
N = 2000
RUN: dict[str, Any] = {"chains": 4, "iter_warmup": 300, "iter_sampling": 1000, "seed": 3, "control_variates": 0}


def normal_mean() -> FunctionFactors:
    n = 1000
    y = np.random.default_rng(1).normal(0.3, 1.0, (n, 2))

    def log_lik(theta: Array, which: NDArray[np.int32]) -> Array:
        return np.asarray(-0.5 * ((y[which] - theta) ** 2).sum(axis=1))

    return FunctionFactors(["mu", "nu"], n, log_lik, block_size=1)


def logistic() -> FunctionFactors:
    rng = np.random.default_rng(2)
    x = np.column_stack([np.ones(N), rng.standard_normal(N)])
    y = rng.random(N) < 1 / (1 + np.exp(-x @ [0.3, 0.8]))
    sign = np.where(y, 1.0, -1.0)

    def log_lik(theta: Array, which: NDArray[np.int32]) -> Array:
        return np.asarray(-np.logaddexp(0, -sign[which] * (x[which] @ theta)))

    def gradient(theta: Array, which: NDArray[np.int32]) -> Array:
        wrong = 1 / (1 + np.exp(sign[which] * (x[which] @ theta)))
        return np.asarray((sign[which] * wrong)[:, np.newaxis] * x[which])

    return FunctionFactors(["alpha", "beta"], N, log_lik, log_lik_gradient=gradient)


@pytest.fixture(scope="module")
def good() -> stansub.Comparison:
    return compare_exact(logistic(), chains=4, iter_warmup=300, iter_sampling=1000, seed=3, audit=0.2)


def test_good_decisions_agree_and_cost_less_data(good: stansub.Comparison) -> None:
    assert good.verdict.word == "agrees"
    share, wrong = (good.cost.loc[name] for name in ("share_of_data", "wrong_decisions"))
    assert share["reference"] == 100
    assert 0 <= wrong["draws"] < 2
    assert share["draws"] < share["reference"]
    assert (good.cost.loc[["step_time", "ess_per_second"], ["draws", "reference"]] > 0).all(axis=None)


def test_both_have_seeds_of_their_own(good: stansub.Comparison) -> None:
    own, other = (inference_data.attrs(one) for one in (good.draws, good.reference))
    assert (own["test"], other["test"]) == ("pocock", "exact")
    assert own["settings"]["seed"] == 3 != other["settings"]["seed"]
    page = compose(good)
    assert page.samplers == ("subsampled", "exact")


@pytest.mark.parametrize(
    "options",
    [
        {"test": "factorised", "bounds": "learned", "iter_sampling": 500},
        {"test": "pocock", "until": "ess=150", "iter_sampling": 3000},
    ],
)
def test_options_of_either_side(options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stansub.DrawsWarning)
        found = compare_exact(logistic(), chains=2, iter_warmup=200, seed=3, **options)
    own, other = (inference_data.attrs(one) for one in (found.draws, found.reference))
    assert other["test"] == "exact"
    assert own["test"] == options["test"]
    # Each side ends by itself.
    assert ("last_check" in own) == ("last_check" in other) == ("until" in options)


def test_loose_decisions_are_caught() -> None:
    kernel = Sequence(
        mu=OnParameters(Metropolis("random-walk"), ["mu"]),
        nu=OnParameters(Metropolis("random-walk", exact=True), ["nu"]),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stansub.DrawsWarning)
        found = compare_exact(normal_mean(), kernel=kernel, test="austerity", epsilon=0.4, first_look=50, **RUN)
    assert found.verdict.word != "agrees"
    assert found.parameters.loc["mu", "sd_z"] > 5
    assert abs(found.parameters.loc["nu", "sd_z"]) < 4.5
    assert found.cost.loc["wrong_decisions", "draws"] > 5


def test_what_cannot_be_compared_is_refused(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="already exact"):
        compare_exact(normal_mean(), test="exact")
    with pytest.raises(InputError, match="leave out `checkpoint`"):
        compare_exact(normal_mean(), checkpoint=tmp_path / "run.checkpoint")


def test_the_normality_trial_is_made_for_one_kernel_among_all_the_data() -> None:
    heavy = np.random.default_rng(1).lognormal(0, 2, N)

    def log_lik(theta: Array, which: NDArray[np.int32]) -> Array:
        return np.asarray(-0.5 * ((heavy[which] - theta[0]) / 20) ** 2)

    factors = FunctionFactors(["mu"], N, log_lik, block_size=1)
    whole, some = Metropolis("random-walk"), OnParameters(Metropolis("random-walk"), ["mu"])
    for kernel, tried in ((whole, True), (Metropolis("random-walk", exact=True), False), (Sequence(mu=some), False)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stansub.DrawsWarning)
            idata = stansub.sample(factors, kernel=kernel, **RUN | {"iter_sampling": 20, "iter_warmup": 100})
        found = inference_data.attrs(idata).get("normality")
        assert (found is not None) == tried
        assert not tried or found["tail_fails"]


def test_options_of_the_test_are_not_those_of_the_exact_run(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[dict[str, Any]] = []

    def sample(*_: Any, **options: Any) -> Any:
        runs.append(options)
        if options["test"] == "exact":
            raise KeyboardInterrupt

    monkeypatch.setattr("stansub.diagnostics.exact.sample", sample)
    with pytest.raises(KeyboardInterrupt):
        compare_exact(normal_mean(), test="poisson", bounds="learned", kappa=2.0, audit=0.1, control_variates=2)
    assert {*runs[0]} == {"test", "bounds", "kappa", "audit", "control_variates", "seed"}
    assert {*runs[1]} == {"test", "control_variates", "seed"}
