"""Exact decisions as an engine: the posterior, and costs counted in likelihoods."""

from __future__ import annotations

from pathlib import Path

import arviz as az
import numpy as np

from stansub.decision_findings import LittleSaved, NoAudit
from stansub.nuts.reference import choose_engine, describe, reference
from stansub.output import inference_data
from stansub.output.checks import findings_of

MODELS = Path(__file__).parents[2] / "stan_models"


def test_draws_are_of_the_posterior_and_their_cost_is_recorded() -> None:
    y = np.random.default_rng(5).normal(1, 2, 50)
    made = reference(
        MODELS / "normal_mean.stan", {"N": 50, "y": y, "sigma": 2.0}, engine="exact", chains=2, seed=1, iter_warmup=200
    )
    draws, facts = inference_data.group(made, "posterior")["mu"].values, inference_data.attrs(made)
    assert draws.shape == (2, 1000)
    precision = 50 / 4 + 1 / 100
    assert abs(draws.mean() - y.sum() / 4 / precision) < 4 * az.mcse(draws, method="mean")
    assert abs(draws.mean() - 1.1 * y.sum() / 4 / precision) > 4 * az.mcse(draws, method="mean")
    assert (facts["method"], facts["engine"]) == ("exact", "exact")
    assert "n_gradients" not in facts
    assert not {NoAudit, LittleSaved} & {type(one) for one in findings_of(made)}
    assert sum(facts["n_obs_evaluated"]) > 50 * 1000
    assert "exact decisions of stansub" in describe(facts)


def test_nobody_gets_it_unasked() -> None:
    assert choose_engine("exact") == ("exact", "as requested")
    assert choose_engine("auto")[0] != "exact"
