"""Factorised sampling with bounds that were learned: right draws, and bounds that are too small are found out."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_factorised_runs import MAX_Z, N, _ess, assert_moments, moments, posterior

import stansub
from stansub import InputError
from stansub.decision_findings import BoundsTooSmall
from stansub.output.checks import findings_of
from stansub.run import cross_chain
from stansub.target.taylor import ControlVariates, build
from stansub.tuning import bound_learning, mode_variates
from stansub.tuning.modes.mode import find_modes

Array = NDArray[np.float64]
OPTIONS: dict[str, Any] = {"test": "factorised", "bounds": "learned", "seed": 2, "chains": 2, "iter_warmup": 300}


def sampled(*, kind: str = "plain", **more: Any) -> Any:
    return stansub.sample(posterior(kind, bounded=False), **OPTIONS | more)


def warnings_of(idata: Any) -> list[BoundsTooSmall]:
    return [one for one in findings_of(idata) if isinstance(one, BoundsTooSmall)]


def sum_of(idata: Any, name: str) -> float:
    return float(idata["chain_stats"][name].sum())


def _shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants a fiftieth of what they are, at the mode and where chains meet."""
    for module in (mode_variates, cross_chain):
        monkeypatch.setattr(module, "learn", partial(bound_learning.learn, factor=bound_learning.FACTOR / 50))


@pytest.mark.parametrize(
    "kind", ["leverage", *(pytest.param(one, marks=pytest.mark.slow) for one in ("plain", "heavy tails"))]
)
def test_the_posterior(kind: str) -> None:
    idata = sampled(kind=kind, iter_sampling=3000, audit=0.03)
    assert_moments(kind, idata)
    assert sum_of(idata, "n_obs_used") < 0.25 * 6000 * N
    assert sum_of(idata, "acceptance_error") / sum_of(idata, "n_audited_acceptances") < 1e-3


@pytest.mark.parametrize("test", ["factorised", "poisson"])
def test_it_is_called_approximate(test: str) -> None:
    idata = sampled(test=test, iter_sampling=200)
    assert idata.attrs["test"] == test
    assert idata.attrs["guarantee"] == "approximate: bounds learned"
    assert "bounds learned from 32 draws" in str(idata.attrs["choices"])


def test_bounds_that_are_too_small_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    options: dict[str, Any] = {"iter_sampling": 4000, "audit": 0.2, "max_error": 0.02}
    right = sampled(**options)
    assert not warnings_of(right)
    _shrink(monkeypatch)
    with pytest.warns(stansub.DrawsWarning, match="learned bounds may be too small"):
        wrong = sampled(**options)
    (found,) = warnings_of(wrong)
    assert found.acceptances.mean > found.accepted == 0.02
    assert found.n_violated == sum_of(wrong, "n_bound_violated") == float(wrong["sample_stats"]["bound_violated"].sum())
    assert found.n_violated > 10 * sum_of(right, "n_bound_violated")
    assert "may be biased" in found.describe().remedy
    accepted = [float(one["sample_stats"]["accepted"].mean()) for one in (right, wrong)]
    assert accepted[1] > accepted[0] + found.acceptances.mean / 2, "exceeded bounds accept too much"


def test_few_audits_are_said_to_tell_little() -> None:
    with pytest.warns(stansub.DrawsWarning, match="Raise `audit`"):
        sampled(iter_sampling=300, max_error=0.01, audit=0.05)


def test_a_run_that_is_extended_keeps_its_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _shrink(monkeypatch)
    options: dict[str, Any] = {**OPTIONS, "audit": 0.2}
    whole = stansub.sample(posterior(bounded=False), iter_sampling=400, **options)
    file = tmp_path / "run.checkpoint"
    stansub.sample(posterior(bounded=False), iter_sampling=150, checkpoint=file, **options)
    longer = stansub.sample(posterior(bounded=False), iter_sampling=400, resume=file, **options)
    for group in ("posterior", "sample_stats"):
        for name in whole[group].data_vars:
            np.testing.assert_array_equal(whole[group][name], longer[group][name])
    for name in ("n_bound_violated", "n_audited_acceptances", "acceptance_error", "bound_tightness", "n_candidates"):
        assert sum_of(whole, name) > 0
        np.testing.assert_allclose(whole["chain_stats"][name], longer["chain_stats"][name], rtol=1e-12)


def test_every_block_has_a_bound_that_holds_at_the_draws() -> None:
    factors = posterior(bounded=False)
    mode = find_modes(factors, np.random.default_rng(1)).best
    variates: ControlVariates = build(factors, mode.position, order=2, steps=mode.steps)
    bounds = bound_learning.learn(factors, variates, mode.cholesky, rng=np.random.default_rng(5))
    constants, evaluator = bounds.constants[0], factors.evaluator()
    assert constants.min() == np.median(constants) > 0 or constants.min() >= np.quantile(constants, 0.4)
    largest = 0.0
    for z in np.random.default_rng(5).standard_normal((bound_learning.DRAWS, 3)):
        theta = mode.position + mode.cholesky @ z
        change = evaluator.block_log_lik(theta) - evaluator.block_log_lik(mode.position)
        remainders = change - variates.changes(mode.position, theta)
        largest = max(largest, float(np.max(np.abs(remainders) / constants / np.linalg.norm(z) ** 3)))
        assert np.linalg.norm(z) < bounds.radii[0]
    assert largest == pytest.approx(1 / bound_learning.FACTOR)


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(InputError, match="`bounds='learned'`, which makes it approximate"):
        stansub.sample(posterior(bounded=False), test="factorised", chains=1)
    with pytest.raises(InputError, match="the pocock test does not use `bounds`"):
        stansub.sample(posterior(), test="pocock", bounds="learned")
    with pytest.raises(InputError, match="unknown bounds 'guessed'; choose from proved, learned"):
        stansub.sample(posterior(), test="factorised", bounds="guessed")
    with pytest.raises(InputError, match="a test given as an object has"):
        stansub.sample(posterior(), test=stansub.Factorised(), bounds="learned")


@pytest.mark.slow
def test_the_posterior_by_joint_decisions() -> None:
    factors = posterior(bounded=False)
    options: dict[str, Any] = {"bounds": "learned", "seed": 3, "chains": 2, "iter_warmup": 300, "iter_sampling": 2000}
    idata = stansub.sample(factors, test="poisson", audit=0.05, **options)
    assert (idata.attrs["test"], idata.attrs["guarantee"]) == ("poisson", "approximate: bounds learned")
    assert idata["chain_stats"]["n_audited_acceptances"].sum() > 50
    draws = np.asarray(idata["unconstrained_posterior"]["theta"])
    mean, sd, n_weighted = moments("plain", draws.reshape(-1, 3))
    error = np.sqrt(1 / np.array([_ess(draws[..., k]) for k in range(3)]) + 1 / n_weighted)
    assert np.abs((draws.mean((0, 1)) - mean) / sd / error).max() < MAX_Z
