"""Concentration bounds whose range is that of proved bounds on remainders, from end to end on numpy functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_factorised_runs import posterior

import stansub
from stansub import InputError
from stansub.acceptance.decide import make_decider
from stansub.acceptance.ranges import Predictors
from stansub.acceptance.rules import make_test
from stansub.decision_findings import RangeViolated
from stansub.output.checks import findings_of
from stansub.stan.posterior import Posterior
from stansub.target.remainders import RemainderBounds
from stansub.target.taylor import build
from stansub.tuning import bound_learning
from stansub.tuning.modes.mode import find_modes

SHORT: dict[str, Any] = {"chains": 2, "iter_warmup": 300, "iter_sampling": 500, "seed": 5}


@pytest.mark.parametrize(
    "name", ["bernstein-serfling", *(pytest.param(one, marks=pytest.mark.slow) for one in ("bernstein", "hoeffding"))]
)
def test_the_guarantee_stands(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_factorised_runs.N", 10_000)
    idata = stansub.sample(posterior().recut(16), test=name, audit=0.5, **SHORT)
    assert idata.attrs["guarantee"] == "bound"
    totals = {key: float(idata["chain_stats"][key].sum()) for key in ("n_bound_violated", "n_audited", "n_audit_wrong")}
    assert totals["n_bound_violated"] == 0
    assert totals["n_audited"] > 300
    assert totals["n_audit_wrong"] <= 0.01 * totals["n_audited"]
    assert "the remainders of control variates have proved bounds" in str(idata.attrs["choices"])
    assert float(idata["sample_stats"]["undecided"].mean()) < 0.9


def test_bounds_that_are_too_small_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Posterior.remainder_bounds

    def shrunk(*given: Any, **options: Any) -> RemainderBounds:
        bounds = right(*given, **options)
        return replace(bounds, constants=bounds.constants / 300)

    monkeypatch.setattr(Posterior, "remainder_bounds", shrunk)
    with pytest.warns(stansub.DrawsWarning, match="differed by more than their declared range"):
        idata = stansub.sample(posterior(), test="bernstein", **SHORT)
    assert any(isinstance(finding, RangeViolated) for finding in findings_of(idata))


def test_the_range_is_twice_the_largest_bound_and_without_end_beyond_the_last_radius() -> None:
    factors = posterior()
    mode = find_modes(factors, np.random.default_rng(1)).best
    made = build(factors, mode.position, order=2, steps=mode.steps)
    bounds = factors.predictors().bounds(mode.position, mode.cholesky, factors.blocks, 2)
    far = replace(bounds, radii=bounds.radii[:1], constants=bounds.constants[:1])
    rng, evaluator = np.random.default_rng(3), factors.evaluator()
    test = make_test("bernstein")

    def undecided(bounds: Any, distance: float) -> bool:
        decider = make_decider(
            evaluator, factors.blocks.sizes, test, spread=Predictors(2), surrogate=made.surrogate, bounds=bounds
        )
        decider.reset(mode.position)
        proposed = mode.position + mode.cholesky @ np.array([distance, 0, 0])
        return bool(decider.decide(proposed, -1e6, 0.0, rng.bit_generator.capsule).undecided)

    inside = float(bounds.radii[0]) * 0.99
    assert not undecided(bounds, inside)
    assert not undecided(far, inside)
    assert not undecided(bounds, float(bounds.radii[0]) * 1.01)
    assert undecided(far, float(bounds.radii[0]) * 1.01)


def test_what_has_no_proved_bounds_is_refused() -> None:
    variates = build(posterior(), np.zeros(3), order=2)
    with pytest.raises(InputError, match="with proved bounds on their remainders"):
        Predictors(2).compiled(variates.surrogate, None)
    learnt = bound_learning.learn(posterior(), variates, np.eye(3) * 0.1, rng=np.random.default_rng(1))
    with pytest.raises(InputError, match="with proved bounds on their remainders"):
        Predictors(2).compiled(variates.surrogate, learnt)
    with pytest.raises(InputError, match="no recognised likelihood of linear predictors"):
        stansub.sample(posterior(bounded=False), test="bernstein", chains=1)
    with pytest.raises(InputError, match=r"bernstein test has no proved bounds here.*or another `range_source`"):
        stansub.sample(posterior(bounded=False), test="bernstein", range_source="predictors", chains=1)
    with pytest.raises(InputError, match="leave out `control_variates=0`"):
        stansub.sample(posterior(), test="bernstein", range_source="predictors", control_variates=0, chains=1)
