"""The trial at the end of warmup: it leaves the draws alone, is counted, and warns of heavy tails."""

from io import StringIO
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import stansub
from stansub import CompiledModel, Exact, Pocock, RandomWalk
from stansub.decision_findings import HeavyTail, NormalityFails
from stansub.output import inference_data, summary
from stansub.output.checks import findings_of
from stansub.output.inference_data import attrs as facts
from stansub.output.words import normality_trial
from stansub.run import context
from stansub.tuning.trial import N_PAIRS, N_SUBSETS, pairs_at

PLAIN: dict[str, Any] = {"control_variates": 0, "proposal": "adaptive-metropolis"}
SHORT: dict[str, Any] = PLAIN | {"chains": 2, "iter_warmup": 100, "iter_sampling": 50, "seed": 5, "audit": 0.0}


def warned(idata: Any) -> bool:
    return any(isinstance(finding, NormalityFails) for finding in findings_of(idata))


@pytest.fixture(scope="module")
def heavy_data() -> dict[str, Any]:
    """The data of Bardenet et al. 2014, figure 4(c)."""
    y = np.random.default_rng(6).lognormal(0, 2, 5000)
    return {"N": 5000, "y": y, "sigma": float(y.std())}


@pytest.fixture(scope="module")
def tried(normal_mean: CompiledModel, mean_data: dict[str, Any]) -> Any:
    return stansub.sample(normal_mean, mean_data, block_size=10, **SHORT)


def test_draws_are_the_same_with_and_without(
    tried: Any, normal_mean: CompiledModel, mean_data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "WarmupTrial", lambda *_: None)
    without = stansub.sample(normal_mean, mean_data, block_size=10, **SHORT)
    assert "normality" not in facts(without)
    for name in inference_data.groups(tried):
        one, other = inference_data.group(tried, name), inference_data.group(without, name)
        costly = "warmup_n_obs_evaluated"  # see below
        for variable in (each for each in one.data_vars if each != costly and not str(each).endswith("_time")):
            np.testing.assert_array_equal(one[variable].values, other[variable].values, err_msg=f"{name} {variable}")
    extra = np.subtract(facts(tried)["warmup_n_obs_evaluated"], facts(without)["warmup_n_obs_evaluated"])
    assert extra.tolist() == [(1 + N_PAIRS) * 5000] * 2
    for counts in ("n_obs_evaluated", "warmup_n_obs_used", "warmup_n_steps"):
        assert facts(tried)[counts] == facts(without)[counts]


def test_figures_are_written_and_put_into_words(tried: Any, tmp_path: Any) -> None:
    figures = facts(tried)["normality"]
    assert figures["n_pairs"] == 2 * N_PAIRS
    assert figures["n_subsets"] == 2 * N_PAIRS * N_SUBSETS
    assert figures["blocks"] == 50
    assert figures["promised"] == Pocock().epsilon
    assert not warned(tried)
    assert "4,000 trial subsets of 50 blocks" in normality_trial(figures)
    stansub.write_draws(tried, tmp_path / "draws.nc")
    assert facts(stansub.read_draws(tmp_path / "draws.nc"))["normality"] == figures


def test_figures_do_not_depend_on_the_number_of_threads(
    tried: Any, normal_mean: CompiledModel, mean_data: dict[str, Any]
) -> None:
    again = stansub.sample(normal_mean, mean_data, block_size=10, parallel_chains=1, **SHORT)
    assert facts(again)["normality"] == facts(tried)["normality"]


def test_the_summary_shows_them(tried: Any) -> None:
    console = Console(file=StringIO(), width=100)
    summary.render(tried, console, verbose=True)
    assert "\nNormality        |t| beyond its critical value in " in console.file.getvalue()


def test_heavy_tails_are_warned_of(normal_mean: CompiledModel, heavy_data: dict[str, Any]) -> None:
    idata = stansub.sample(normal_mean, heavy_data, block_size=1, **SHORT)
    assert warned(idata)
    (finding,) = (one for one in findings_of(idata) if isinstance(one, NormalityFails))
    assert {reason.blocks for reason in finding.reasons if isinstance(reason, HeavyTail)} == {50}
    text, remedy = finding.describe()
    assert "t-test cannot be trusted" in text
    assert "stansub diagnose" in remedy
    assert "50 blocks" in text


@pytest.mark.parametrize(
    "settings",
    [
        {"test": Exact()},
        {"test": "hoeffding", "range_source": "scan"},
        {"iter_warmup": 0},
        {"first_look": 500},
        {"epsilon": 0.0},
    ],
    ids=str,
)
def test_where_nothing_rests_on_normal_means_there_is_no_trial(
    normal_mean: CompiledModel, heavy_data: dict[str, Any], settings: dict[str, Any]
) -> None:
    idata = stansub.sample(normal_mean, heavy_data, block_size=10, **(SHORT | settings))
    assert "normality" not in facts(idata)
    assert not warned(idata)


def test_a_pair_is_what_a_decision_sees(normal_mean: CompiledModel, mean_data: dict[str, Any]) -> None:
    posterior = normal_mean.with_data(mean_data, block_size=10, seed=1)
    position, rng = np.array([0.9]), np.random.default_rng(7)
    pairs, n_passes = pairs_at(posterior.population.evaluator(), position, RandomWalk(np.eye(1) * 0.1), 3, rng)
    assert n_passes == 4
    again = np.random.default_rng(7)
    for differences, rest in pairs:
        proposed = position + 0.1 * again.standard_normal(1)
        log_ratio = posterior.full.log_density(proposed) - posterior.full.log_density(position)
        assert differences.sum() + rest == pytest.approx(log_ratio, rel=1e-9)
        assert len(differences) == 500


def test_proposals_that_cannot_be_are_left_out(normal_mean: CompiledModel, mean_data: dict[str, Any]) -> None:
    posterior = normal_mean.with_data(mean_data, block_size=10, seed=1)

    def far(rng: np.random.Generator, position: Any) -> tuple[Any, float]:
        return position + 1e200, 0.0

    pairs, _ = pairs_at(posterior.population.evaluator(), np.zeros(1), far, 3, np.random.default_rng(8))
    assert pairs == []
