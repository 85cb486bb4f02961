"""Exact decisions where a function of the program bounds third derivatives: no family is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pytest
from numpy.typing import NDArray

import stansub
from stansub import CompiledModel, InputError, RunError
from stansub.output import inference_data
from stansub.stan.passes import rewrite
from stansub.stan.posterior import Posterior
from stansub.stan.syntax import parse
from stansub.target.remainders import NoPredictorsError

Array = NDArray[np.float64]
SECH = Path(__file__).parent / "programs" / "sech.stan"
N = 1500
SHORT: dict[str, Any] = {"chains": 2, "iter_warmup": 200, "iter_sampling": 3000, "seed": 6, "show_progress": False}
MAX_Z = 4.5


@pytest.fixture(scope="module")
def sech() -> CompiledModel:
    return stansub.compile_model(SECH)


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    rng = np.random.default_rng(30)
    x = rng.standard_normal(N)
    return {"N": N, "x": x, "y": 0.5 - 0.8 * x + np.log(np.tan(np.pi / 2 * rng.random(N)))}


@pytest.fixture(scope="module")
def posterior(sech: CompiledModel, data: dict[str, Any]) -> Posterior:
    return sech.with_data(data, block_size=4, seed=1)


def truth(data: dict[str, Any]) -> tuple[Array, Array]:
    """Means and sds by quadrature."""
    a, b = np.meshgrid(np.linspace(0.1, 0.9, 161), np.linspace(-1.2, -0.4, 161), indexing="ij")
    eta = a[..., np.newaxis] + b[..., np.newaxis] * data["x"]
    logs = -np.log(np.cosh(data["y"] - eta)).sum(-1) - (a**2 + b**2) / 18
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    assert max(weights[0].max(), weights[-1].max(), weights[:, 0].max(), weights[:, -1].max()) < 1e-8
    values = np.array([a, b])
    mean = (weights * values).sum((1, 2))
    return mean, np.sqrt((weights * (values - mean[:, np.newaxis, np.newaxis]) ** 2).sum((1, 2)))


@pytest.mark.slow
def test_the_posterior_itself(posterior: Posterior, data: dict[str, Any]) -> None:
    idata = stansub.sample(posterior, **SHORT)
    facts = inference_data.attrs(idata)
    assert facts["test"] == "factorised"
    assert facts["choice_values"]["control variates"]["function"] == "log_lik_third_derivative_i"
    assert "the bounds of log_lik_third_derivative_i" in facts["choices"]["control variates"]
    mean, sd = truth(data)
    for k, name in enumerate("ab"):
        draws = np.asarray(idata["posterior"][name])
        for centre, scale, at in ((mean[k], sd[k], draws), (sd[k] ** 2, sd[k] ** 2 * 2**0.5, (draws - mean[k]) ** 2)):
            assert abs(at.mean() - centre) < MAX_Z * scale / np.sqrt(az.ess(at))
    tightness = float(idata["chain_stats"]["bound_tightness"].max())
    assert 0.01 < tightness <= 1


@pytest.mark.slow
def test_bounds_in_a_metric_are_those_of_the_operator_norm_or_better(posterior: Posterior) -> None:
    rng = np.random.default_rng(1)
    cholesky, anchor = np.tril(rng.standard_normal((2, 2))) + 2 * np.eye(2), np.array([0.5, -0.8])
    bounds = posterior.remainder_bounds(anchor, cholesky, 2)
    z = np.column_stack([np.ones(N), posterior.values.values["x"]])[posterior.order]
    each = 4 / (3 * np.sqrt(3)) * np.linalg.norm(z @ cholesky, axis=1) ** 3 / 6
    np.testing.assert_allclose(bounds.constants[0], np.add.reduceat(each, posterior.blocks.starts))
    with pytest.raises(NoPredictorsError):
        posterior.remainder_bounds(anchor, cholesky, 1)


@pytest.mark.slow
def test_a_bound_that_is_too_small_is_an_error(posterior: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control."""
    right = Posterior.constants
    monkeypatch.setattr(Posterior, "constants", lambda *args, **options: right(*args, **options) / 50)
    with pytest.raises(RunError, match="remainder"):
        stansub.sample(posterior, test="factorised", **SHORT)


def test_a_metric_is_an_argument_where_it_is_no_variable() -> None:
    head = "functions { real f(int i, matrix metric) { return 1; } } data { int N; "
    tail = "} parameters { real a; } model { a ~ normal(0, 1); }"
    asked, own = parse(head + tail), parse(head + "matrix[2, 2] metric; " + tail)
    assert rewrite.takes_metric(asked, "f")
    assert not rewrite.takes_metric(own, "f")
    assert "f(stansub_i, stansub_metric)" in rewrite.constants_program(asked, "f", "N")
    assert "f(stansub_i, metric)" in rewrite.constants_program(own, "f", "N")
    with pytest.raises(InputError, match="no function g"):
        rewrite.constants_program(asked, "g", "N")


@pytest.mark.slow
def test_concentration_bounds_take_it_too(posterior: Posterior) -> None:
    idata = stansub.sample(posterior, test="bernstein", audit=0.5, **{**SHORT, "iter_sampling": 200})
    facts = inference_data.attrs(idata)
    assert (facts["guarantee"], facts["settings"]["range_source"]) == ("bound", "derivative")
    assert sum(facts["n_bound_violated"]) == 0
    assert sum(facts["n_audit_wrong"]) <= 0.01 * sum(facts["n_audited"])
