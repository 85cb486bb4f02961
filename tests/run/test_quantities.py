"""Constrained values of draws: transformed parameters and generated quantities."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot
import numpy as np
import pytest
from clocks import Clock, set_clock
from drawn import unconstrained

import stansub
from stansub import CompiledModel
from stansub.findings import LeftOut
from stansub.output import inference_data
from stansub.output.checks import findings_of
from stansub.progress import Progress
from stansub.run import constrain, prepare

SHORT: dict[str, Any] = {"chains": 3, "iter_warmup": 100, "iter_sampling": 60, "seed": 4, "test": "exact"}


@pytest.fixture(scope="module")
def default(quantities: CompiledModel, sample_data: dict[str, Any]) -> Any:
    return stansub.sample(quantities, sample_data, **SHORT)


@pytest.fixture(scope="module")
def full(quantities: CompiledModel, sample_data: dict[str, Any]) -> Any:
    return stansub.sample(quantities, sample_data, observation_level=True, **SHORT)


def test_values_per_observation_are_left_out_by_default(default: Any) -> None:
    posterior = inference_data.group(default, "posterior")
    assert list(posterior.data_vars) == ["mu", "sigma", "precision", "table"]
    assert "log_likelihood" not in inference_data.groups(default)
    assert posterior["table"].shape == (3, 60, 2, 3)
    assert inference_data.attrs(default)["unsaved"] == "residual, log_lik, y_rep"


def test_values_are_those_that_the_program_computes(default: Any) -> None:
    posterior = inference_data.group(default, "posterior")
    theta = unconstrained(default)
    np.testing.assert_array_equal(posterior["mu"].values, theta[:, :, 0])
    np.testing.assert_allclose(posterior["sigma"].values, np.exp(theta[:, :, 1]), rtol=1e-14)
    np.testing.assert_allclose(posterior["precision"].values, np.exp(-2 * theta[:, :, 1]), rtol=1e-12)
    expected = 10.0 * np.arange(1, 3)[:, None] + np.arange(1, 4)
    np.testing.assert_allclose(posterior["table"].values.mean(axis=(0, 1)), expected, atol=0.05)


def test_values_per_observation_are_there_on_request(full: Any, sample_data: dict[str, Any]) -> None:
    posterior = inference_data.group(full, "posterior")
    assert list(posterior.data_vars) == ["mu", "sigma", "precision", "residual", "y_rep", "table"]
    mu, sigma = (posterior[name].values[:, :, None] for name in ("mu", "sigma"))
    residual = (sample_data["y"] - mu) / sigma
    np.testing.assert_allclose(posterior["residual"].values, residual, rtol=1e-10)
    (name,) = inference_data.group(full, "log_likelihood").data_vars
    assert name == "log_lik"
    log_lik = inference_data.group(full, "log_likelihood")["log_lik"].values
    np.testing.assert_allclose(log_lik, -0.5 * (residual**2 + np.log(2 * np.pi)) - np.log(sigma), rtol=1e-10)


class _Slow:
    """A writer of quantities for each of whose draws a second passes."""

    def __init__(self, writer: Any, clock: Clock) -> None:
        self._writer, self._clock = writer, clock

    def write(self, theta: Any, *rest: Any) -> Any:
        self._clock.advance(len(theta))
        return self._writer.write(theta, *rest)


def test_quantities_are_counted_and_timed(quantities: CompiledModel, sample_data: dict[str, Any]) -> None:
    """They took most of a run's time, and nobody saw how far they were."""
    posterior = quantities.with_data(sample_data)
    theta = np.random.default_rng(1).standard_normal((2, 250, posterior.dim))
    made = constrain.Quantities(posterior, 2, kept=constrain.SavedQuantities(), seed=1, threads=1)
    whole = constrain.Quantities(posterior, 2, kept=constrain.SavedQuantities(), seed=1, threads=2).of(theta)
    with set_clock() as clock:
        made._writers = [_Slow(one, clock) for one in made._writers]
        progress, lefts = Progress(), list[float | None]()
        progress("Computing")
        advance = progress.advance

        def recorded(done: int, total: int) -> None:
            advance(done, total)
            assert progress.stage is not None
            lefts.append(progress.stage.seconds_left)

        progress.advance = recorded  # type: ignore[method-assign]
        found = made.of(theta, progress)
    assert made.seconds == 500
    assert len(lefts) > 100
    np.testing.assert_allclose(np.array(lefts[1:], float), 500 - np.linspace(6, 500, len(lefts) - 1), atol=4)
    for name, values in whole.items():
        np.testing.assert_array_equal(found[name], values)


def test_draws_go_into_arviz_as_they_are(full: Any) -> None:
    az = inference_data.arviz_module()
    log_lik = inference_data.group(full, "log_likelihood")["log_lik"].values
    of_the_sample = np.log(np.exp(log_lik).mean(axis=(0, 1))).sum()
    loo = az.loo(full)
    elpd = loo.elpd if hasattr(loo, "elpd") else loo.elpd_loo
    assert of_the_sample - 5 < elpd < of_the_sample  # two parameters
    assert list(az.compare({"one": full, "same": full}).index) == ["one", "same"]
    assert list(az.summary(full, var_names=["mu", "sigma"]).index) == ["mu", "sigma"]
    for plot in (az.plot_trace, az.plot_forest, az.plot_rank):
        assert plot(full, var_names=["mu", "sigma"]) is not None, plot.__name__
    matplotlib.pyplot.close("all")


@pytest.mark.parametrize(
    ("options", "kept", "log_lik"),
    [
        ({"save": "mu,residual"}, ["mu", "residual"], False),
        ({"save": ["sigma", "log_lik"]}, ["sigma"], True),
        ({"drop": "table, precision"}, ["mu", "sigma"], False),
        (
            {"observation_level": True, "drop": "y_rep,log_lik,mu"},
            ["sigma", "precision", "residual", "table"],
            False,
        ),
    ],
)
def test_variables_that_are_saved_or_dropped(
    full: Any, quantities: CompiledModel, sample_data: dict[str, Any], options: Any, kept: list[str], log_lik: bool
) -> None:
    found = stansub.sample(quantities, sample_data, **SHORT, **options)
    posterior, whole = (inference_data.group(one, "posterior") for one in (found, full))
    unsaved = "residual, log_lik, y_rep" if set(options) == {"drop"} else None
    assert inference_data.attrs(found).get("unsaved") == unsaved
    assert list(posterior.data_vars) == kept
    assert ("log_likelihood" in inference_data.groups(found)) == log_lik
    for name in {"mu", "sigma"} & set(kept):
        np.testing.assert_array_equal(posterior[name].values, whole[name].values)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"save": "nu"}, "`save=nu`: no such variable; the program has mu, sigma, precision"),
        ({"drop": ["mu", "nu"]}, "`drop=nu`: no such variable"),
        ({"save": "mu", "drop": "mu"}, "leave no variable"),
        ({"save": "log_lik"}, "leave no variable: keep at least one in addition to log_lik"),
    ],
)
def test_variables_that_cannot_be_saved_or_dropped(
    quantities: CompiledModel, sample_data: dict[str, Any], options: Any, message: str
) -> None:
    with pytest.raises(stansub.InputError, match=message):
        stansub.sample(quantities, sample_data, **SHORT, **options)


def test_unknown_variables_are_refused_before_compiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mean.stan"
    text = "data { int N; vector[N] y; } parameters { real mu; } model { y ~ normal(mu, 1); }"
    file.write_text(text)
    monkeypatch.setattr(prepare._Preparation, "prepared", lambda own: pytest.fail("nothing is prepared"))
    with pytest.raises(stansub.InputError, match="`drop=nu`: no such variable; the program has mu"):
        stansub.sample(str(file), {"N": 3, "y": [1.0, 2.0, 3.0]}, drop="nu", **SHORT)


def test_asking_for_more_values_does_not_change_the_others(default: Any, full: Any) -> None:
    few, all_ = inference_data.group(default, "posterior"), inference_data.group(full, "posterior")
    for name in few.data_vars:
        np.testing.assert_array_equal(few[name].values, all_[name].values, err_msg=str(name))


@pytest.mark.parametrize("parallel_chains", [1, 3])
def test_random_quantities_are_reproducible_on_any_number_of_threads(
    default: Any, quantities: CompiledModel, sample_data: dict[str, Any], parallel_chains: int
) -> None:
    again = stansub.sample(quantities, sample_data, parallel_chains=parallel_chains, **SHORT)
    table, other = (inference_data.group(idata, "posterior")["table"].values for idata in (default, again))
    np.testing.assert_array_equal(table, other)
    assert len(np.unique(table)) == table.size, "no number is drawn twice, within a chain or between chains"


def test_random_quantities_of_another_seed_differ(
    default: Any, quantities: CompiledModel, sample_data: dict[str, Any]
) -> None:
    other = stansub.sample(quantities, sample_data, **(SHORT | {"seed": 5}))
    table, others = (inference_data.group(idata, "posterior")["table"].values for idata in (default, other))
    assert not np.isin(table, others).any()


def test_generated_quantities_can_be_left_out(quantities: CompiledModel, sample_data: dict[str, Any]) -> None:
    idata = stansub.sample(quantities, sample_data, generated_quantities=False, **SHORT)
    assert list(inference_data.group(idata, "posterior").data_vars) == ["mu", "sigma"]


def test_failing_quantities_leave_the_parameters(
    default: Any, quantities: CompiledModel, sample_data: dict[str, Any]
) -> None:
    mu = inference_data.group(default, "posterior")["mu"].values
    limit = float(np.quantile(mu, 0.8))
    idata = stansub.sample(quantities, sample_data | {"limit": limit}, **SHORT)
    posterior = inference_data.group(idata, "posterior")
    np.testing.assert_array_equal(posterior["mu"].values, mu)
    failed = np.isnan(posterior["table"].values).all(axis=(2, 3))
    np.testing.assert_array_equal(failed, mu > limit)
    reason = inference_data.attrs(idata)["left_out"]
    assert f"{int(failed.sum())} draws failed" in reason
    assert "mu is above the limit" in reason
    assert LeftOut(reason) in findings_of(idata)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_leaves_out_generated_quantities_but_not_the_draws(
    default: Any,
    quantities: CompiledModel,
    sample_data: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
) -> None:
    original = constrain._Values.of

    def of(posterior: Any, kept: Any) -> Any:
        plan = original(posterior, kept)
        if plan.include_gq:
            calls.append(plan)
            if len(calls) > 2:  # those before ask how much memory the draws take
                raise error
        return plan

    calls: list[Any] = []
    monkeypatch.setattr(constrain._Values, "of", of)
    idata = stansub.sample(quantities, sample_data, **SHORT)
    posterior = inference_data.group(idata, "posterior")
    assert list(posterior.data_vars) == ["mu", "sigma"]
    np.testing.assert_array_equal(posterior["mu"].values, inference_data.group(default, "posterior")["mu"].values)
    assert "are omitted" in inference_data.attrs(idata)["left_out"]


def test_draws_that_do_not_fit_into_memory_are_refused_before_sampling(
    quantities: CompiledModel, sample_data: dict[str, Any]
) -> None:
    settings = SHORT | {"iter_sampling": 2_000_000_000}
    with pytest.raises(stansub.InputError, match="leave out `observation_level`"):
        stansub.sample(quantities, sample_data, observation_level=True, **settings)


def test_variables_with_the_name_of_a_dimension_are_refused_before_sampling(
    quantities: CompiledModel, sample_data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constrain, "DIMENSIONS", ("chain", "sigma"))
    with pytest.raises(stansub.InputError, match="the variable 'sigma' has the same name as a dimension"):
        stansub.sample(quantities, sample_data, **SHORT)
