"""Cross-chain adaptation in warmup: an anchor that is off is left, and the draws stay true to the posterior."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import toy_targets
from clocks import Clock
from drawn import share_used, unconstrained
from numpy.typing import NDArray
from scipy.special import digamma, polygamma
from toys import with_own_rows

import stansub
from stansub import CompiledModel, RandomWalk
from stansub.output import inference_data
from stansub.output.inference_data import attrs as facts
from stansub.output.summary import table
from stansub.progress import Progress
from stansub.run import chains as chains_module
from stansub.run import cross_chain, prepare
from stansub.run.executors import Outcome
from stansub.run.moments import stickiness
from stansub.tuning import mode_setup, mode_tuner
from stansub.tuning.modes import mode_search
from stansub.tuning.modes.mode import find_modes

MAX_Z = 4.0
SHORT: dict[str, Any] = {"chains": 3, "iter_warmup": 400, "iter_sampling": 500, "seed": 5}

Array = NDArray[np.float64]


def largest_z(idata: Any, mean: Array, sd: Array) -> float:
    """Of all errors of posterior means and sds, in Monte Carlo standard errors."""
    seen = table(idata)
    errors = [(seen["mean"] - mean) / seen["mcse_mean"], (seen["sd"] - sd) / seen["mcse_sd"]]
    return float(np.abs(errors).max())


@pytest.fixture(scope="module")
def rare_data() -> dict[str, Any]:
    """One success in 4,000: the posterior of the intercept is skewed."""
    return {
        "N": 4000,
        "K": 1,
        "y": np.eye(1, 4000, dtype=int)[0],
        "x": np.random.default_rng(1).standard_normal((4000, 1)),
    }


@pytest.fixture(scope="module")
def rare_truth(rare_data: dict[str, Any]) -> tuple[Array, Array]:
    """By the sum over a grid."""
    grid = np.meshgrid(np.linspace(-14, -4.5, 200), np.linspace(-4, 4, 201), indexing="ij")
    alpha, beta = (one.ravel() for one in grid)
    log_density = -(alpha**2 + beta**2) / 2 / 2.5**2
    for x, y in zip(rare_data["x"][:, 0], rare_data["y"], strict=True):
        eta = alpha + beta * x
        log_density += y * eta - np.logaddexp(0, eta)
    weight = np.exp(log_density - log_density.max())
    points = np.column_stack([alpha, beta])
    mean = weight @ points / weight.sum()
    return mean, np.sqrt(weight @ (points - mean) ** 2 / weight.sum())


@pytest.fixture
def displaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode is taken to be four sds from where it is, in one direction, and too narrow."""

    def elsewhere(*args: Any, **options: Any) -> Any:
        modes = find_modes(*args, **options)
        mode = modes.best
        wrong = replace(
            mode,
            position=mode.position + 4 * mode.cholesky[:, 0],
            cholesky=0.6 * mode.cholesky,
            hessian=mode.hessian / 0.36,
        )
        return replace(modes, found=(wrong,))

    monkeypatch.setattr(mode_search, "find_modes", elsewhere)


def wrong_total(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows shrink by a fifth of their mean after their total was taken: more is added than the blocks give up."""
    right = mode_setup.decider_with

    def wrong(posterior: Any, evaluator: Any, test: Any, variates: Any, spread: Any = None) -> Any:
        if variates is None:
            return right(posterior, evaluator, test, variates, spread)
        own = with_own_rows(variates)
        decider = right(posterior, evaluator, test, own, spread)
        rows = own.first.coefficients
        rows[:] -= 0.2 * rows.mean(axis=0, dtype=np.float64)
        return decider

    for module in (mode_setup, mode_tuner):
        monkeypatch.setattr(module, "decider_with", wrong)


@pytest.mark.slow
def test_a_skewed_posterior_is_true_and_a_wrong_total_is_not(
    logistic: CompiledModel,
    rare_data: dict[str, Any],
    rare_truth: tuple[Array, Array],
    displaced: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Misled at first, the chains agree on what the posterior is like, and sample it."""
    monkeypatch.setattr(mode_tuner, "_FEW_EVALUATIONS", 0.0)
    # Not trajectories on the posterior, which need no expansion point.
    monkeypatch.setattr(prepare, "or_along", lambda posterior, found, test, *_: (found, test))
    idata = stansub.sample(logistic, rare_data, seed=1, iter_sampling=4000, block_size=40)
    chosen = facts(idata)["choice_values"]
    assert chosen["expansion point"]["kind"] == "Moved", chosen
    assert facts(idata)["choices"]["expansion point"].startswith("moved to the mean of the chains after ")
    assert facts(idata)["settings"]["proposal"].startswith("pooled "), chosen
    assert list(chosen)[:2] == list(facts(idata)["choices"])[:2] == ["mode", "expansion point"]
    assert largest_z(idata, *rare_truth) < MAX_Z
    assert table(idata)["ess_bulk"].min() > 2000, "and the check is sharp"
    wrong_total(monkeypatch)
    wrong = stansub.sample(logistic, rare_data, seed=1, iter_sampling=16_000, block_size=40, control_variates=2)
    assert largest_z(wrong, *rare_truth) > 2 * MAX_Z


@pytest.mark.slow
def test_an_expansion_point_that_is_off_is_left(
    logistic: CompiledModel, logistic_data: dict[str, Any], displaced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = stansub.sample(logistic, logistic_data, control_variates=1, **SHORT)
    point = facts(moved)["choice_values"]["expansion point"]
    assert point["kind"] == "Moved"
    assert point["blocks"] < point["blocks_before"]
    monkeypatch.setattr(cross_chain, "_POOLED_AFTER", ())
    kept = stansub.sample(logistic, logistic_data, control_variates=1, **SHORT)
    assert "expansion point" not in facts(kept)["choices"]
    assert share_used(moved) < share_used(kept) / 2
    assert table(moved)["ess_bulk"].min() > 2 * table(kept)["ess_bulk"].min()
    assert sum(facts(moved)["warmup_n_obs_evaluated"]) > 2 * 2000, "what adaptation evaluates is warmup's"


@pytest.mark.parametrize("parallel_chains", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_the_same_seed_gives_the_same_draws_whatever_the_threads(
    logistic: CompiledModel, logistic_data: dict[str, Any], displaced: None, parallel_chains: int
) -> None:
    short = SHORT | {"iter_sampling": 200}
    one, other = (
        stansub.sample(logistic, logistic_data, control_variates=1, parallel_chains=parallel, save_warmup=True, **short)
        for parallel in (2, parallel_chains)
    )
    assert facts(one)["choice_values"]["expansion point"]["kind"] == "Moved"
    for name in ("unconstrained_posterior", "warmup_sample_stats"):
        left, right = inference_data.group(one, name), inference_data.group(other, name)
        for variable in left.data_vars:
            np.testing.assert_array_equal(left[variable].values, right[variable].values, err_msg=variable)
    assert facts(one)["warmup_n_obs_evaluated"] == facts(other)["warmup_n_obs_evaluated"]


def test_meetings_leave_chains_as_they_are_where_nothing_is_to_be_gained(
    logistic: CompiledModel, logistic_data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_ = stansub.sample(logistic, logistic_data, proposal="laplace-pcn", **SHORT)
    point = facts(with_)["choice_values"]["expansion point"]
    assert (point["kind"], point["n_steps"]) == ("KeptSinceNear", 300)
    assert point["distance"] < 1
    kept = facts(with_)["choices"]["expansion point"]
    assert kept.startswith("kept: the mean of the chains after 300 steps of warmup is 0.")
    monkeypatch.setattr(cross_chain, "_POOLED_AFTER", ())
    without = stansub.sample(logistic, logistic_data, proposal="laplace-pcn", **SHORT)
    np.testing.assert_array_equal(unconstrained(with_), unconstrained(without))
    assert facts(with_)["warmup_n_obs_evaluated"] == facts(without)["warmup_n_obs_evaluated"]


def test_what_the_user_gives_stays(logistic: CompiledModel, logistic_data: dict[str, Any], displaced: None) -> None:
    short = SHORT | {"iter_sampling": 100}
    walk = RandomWalk(0.05 * np.eye(3))
    for proposal, name in ((walk, "RandomWalk"), ("random-walk", "random-walk"), ("langevin", "pooled Langevin")):
        idata = stansub.sample(logistic, logistic_data, proposal=proposal, control_variates=1, first_look=30, **short)
        settings = facts(idata)["settings"]
        assert settings["proposal"].startswith(name)
        assert settings["control_variates"] == 1
        assert "first=30" in facts(idata)["test_settings"]
        assert facts(idata)["choice_values"]["expansion point"]["kind"] == "Moved"


@pytest.mark.parametrize("near", [True, False])
def test_moves_about_the_mode_race_again_after_a_walk(
    near: bool, logistic: CompiledModel, logistic_data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if chains were apart at two meetings, about one mode or about several: only about one do they go back."""
    monkeypatch.setattr(cross_chain, "_POOLED_AFTER", (0.25, 0.5))
    monkeypatch.setattr(cross_chain, "_NEAR", 0.0)
    monkeypatch.setattr(cross_chain, "r_hat", lambda draws: 9.0)
    monkeypatch.setattr(cross_chain, "chains_near_one_mode", lambda _, draws: list(range(len(draws) - (not near))))
    chosen = facts(stansub.sample(logistic, logistic_data, test="pocock", **SHORT))["choices"]["proposal"]
    assert chosen.startswith("Laplace pCN" if near else "pooled random walk")


@pytest.mark.parametrize(
    ("iter_warmup", "at"), [(0, ()), (99, ()), (100, (25, 50, 75)), (2000, (250, 500, 1000, 1500))]
)
def test_short_warmups_have_no_meetings(iter_warmup: int, at: tuple[int, ...]) -> None:
    asked: Any = SimpleNamespace(iter_warmup=iter_warmup)
    found: Any = SimpleNamespace(mode=None)
    posterior: Any = None
    assert cross_chain.CrossChainAdaptation(posterior, found, asked, asked).at == at


def two_modes(position: Array) -> float:
    """Log density of the normal modes at -5 and 5."""
    return float(np.logaddexp(-((position[0] - 5) ** 2) / 2, -((position[0] + 5) ** 2) / 2))


def one_mode(position: Array) -> float:
    return float(-(position @ position) / 200)


@pytest.mark.parametrize(("log_density", "group"), [(two_modes, [1, 2, 4]), (one_mode, [0, 1, 2, 3, 4])])
def test_chains_about_two_modes_are_seen(log_density: Any, group: list[int]) -> None:
    """The same draws are of slow chains where the density is highest between them."""
    posterior: Any = SimpleNamespace(full=SimpleNamespace(log_density=log_density))
    rng = np.random.default_rng(3)
    draws = [rng.normal(mean, 1, (200, 1)) for mean in (-5, 5, 5, -5, 5)]
    assert cross_chain.r_hat(draws) > 4
    assert cross_chain.chains_near_one_mode(posterior, draws) == group


def test_draws_are_pooled_and_their_effective_number_is_told() -> None:
    rng = np.random.default_rng(4)
    factor = np.array([[1.0, 0.0], [0.9, 0.1]])
    draws = [3 + rng.standard_normal((4000, 2)) @ factor.T for _ in range(40)]
    moments = cross_chain.pool(draws)
    assert moments is not None
    np.testing.assert_allclose(moments.position, 3, atol=0.02)
    np.testing.assert_allclose(moments.covariance, factor @ factor.T, rtol=0.03)
    np.testing.assert_allclose(moments.cholesky @ moments.cholesky.T, moments.covariance)
    np.testing.assert_allclose(moments.hessian @ moments.covariance, -np.eye(2), atol=1e-8)
    assert cross_chain.r_hat(draws) == pytest.approx(1, abs=1e-3)
    assert cross_chain.n_effective(draws) > 80_000
    # Every draw 100 times: 40 draws a chain.
    repeated = [np.repeat(one[:40], 100, axis=0) for one in draws]
    assert 800 < cross_chain.n_effective(repeated) < 3200
    assert cross_chain.pool([one[:5] for one in draws[:4]]) is None, "too few"
    assert cross_chain.pool([np.zeros((4000, 2))] * 4) is None


class FakeChain:
    """Takes one step an `advance`."""

    def __init__(self, *, fails_at: int = -1) -> None:
        self.steps, self.pause, self.fails_at = 0, 0, fails_at

    def pause_warmup_after(self, n_steps: int) -> None:
        self.pause = n_steps

    def pause_sampling_after(self, n_steps: int) -> None:
        assert n_steps == 0, "nothing is to end the run early"

    def advance(self) -> bool:
        if self.steps == self.fails_at:
            raise ValueError("no more")
        self.steps += 1
        return self.steps != (self.pause or 30)


class FakeAdaptation:
    """Remembers the numbers of chains and steps; may stop the run or fail."""

    at = (10, 20)
    last = 0

    def __init__(self, *, stops_at: int = -1, fails: bool = False, stops_within: bool = False) -> None:
        self.calls: list[tuple[int, int]] = []
        self._stops_at, self._fails, self._stops_within = stops_at, fails, stops_within
        self.progress = Progress()

    def adapt(self, chains: Any, n_steps: int) -> Any:
        assert {chain.steps for chain in chains} == {n_steps}
        self.calls.append((len(chains), n_steps))
        yield
        if self._fails:
            raise ArithmeticError("the adaptation failed")
        if n_steps == self._stops_at:
            self.progress.stop[0] = 1
        if self._stops_within:
            self.progress.advance(1, 2)
            raise AssertionError("it went on")
        yield


def run(chains: Any, **options: Any) -> tuple[Outcome, FakeAdaptation]:
    adaptation: Any = FakeAdaptation(**options)
    return chains_module.run(chains, adaptation, parallel=2, stop=adaptation.progress.stop), adaptation


def test_chains_meet_and_go_on_without_those_that_failed() -> None:
    chains = [FakeChain(), FakeChain(fails_at=14), FakeChain()]
    outcome, adaptation = run(chains)
    assert adaptation.calls == [(3, 10), (2, 20)]
    assert list(outcome.failures) == [1]
    assert [chain.steps for chain in chains] == [30, 14, 30]
    assert outcome.stopped == ""


def test_a_stop_ends_a_run_in_a_meeting() -> None:
    chains = [FakeChain(), FakeChain()]
    _, adaptation = run(chains, stops_at=10)
    assert adaptation.calls == [(2, 10)]
    assert [chain.steps for chain in chains] == [10, 10]


def test_a_stop_ends_what_a_meeting_is_doing() -> None:
    chains = [FakeChain(), FakeChain()]
    outcome, adaptation = run(chains, stops_at=10, stops_within=True)
    assert adaptation.calls == [(2, 10)]
    assert [chain.steps for chain in chains] == [10, 10]
    assert outcome.failures == {}


def test_a_meeting_that_fails_is_no_secret() -> None:
    with pytest.raises(ArithmeticError, match="the adaptation failed"):
        run([FakeChain()], fails=True)


class EndlessChain(FakeChain):
    """Has never done enough."""

    def __init__(self, stop: Any, clock: Clock) -> None:
        super().__init__()
        self._stop, self._clock = stop, clock

    def advance(self) -> bool:
        self._clock.advance(0.01)
        return not self._stop[0]


def test_the_time_limit_holds_in_a_stage(clock: Clock) -> None:
    adaptation: Any = FakeAdaptation()
    stop = adaptation.progress.stop
    chains: Any = [EndlessChain(stop, clock)]
    outcome = chains_module.run(chains, adaptation, parallel=1, stop=stop, max_time=0.2)
    assert outcome.stopped == "max_time"
    assert adaptation.calls == []


SHAPE = 0.25


def with_a_tail(n: int = 100) -> toy_targets.Target:
    """The log of a gamma variable, whose left tail is heavier than that of a normal distribution, and three normals."""

    def each(theta: Array) -> tuple[Array, Array]:
        slopes = np.concatenate([-np.exp(theta[:1]), -theta[1:]]) / n
        return np.full(n, slopes[0] - 0.5 * (theta[1:] ** 2).sum() / n), np.broadcast_to(slopes, (n, 4))

    names = [f"theta.{k}" for k in range(1, 5)]
    return toy_targets.Target(names, n, each, lambda theta: (SHAPE * theta[0], SHAPE * np.eye(4)[0]))


def test_moves_that_leave_heavy_tails_replace_those_that_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"iter_warmup": 2000, "iter_sampling": 3000, "seed": 1, "show_progress": False}
    found = stansub.sample(with_a_tail(), **options)
    assert facts(found)["choices"]["proposal"].endswith("; no pCN, because chains stayed in tails for long")
    mean, sd = np.zeros(4), np.ones(4)
    mean[0], sd[0] = digamma(SHAPE), polygamma(1, SHAPE) ** 0.5
    assert largest_z(found, mean, sd) < MAX_Z
    assert stickiness(list(unconstrained(found))) < 2
    monkeypatch.setattr("stansub.run.cross_chain._STICKY", np.inf)
    options["iter_sampling"] = 100  # choices are of warmup
    assert "no pCN" not in facts(stansub.sample(with_a_tail(), **options))["choices"]["proposal"]


def test_stickiness_is_relative_to_independent_rejections() -> None:
    rng = np.random.default_rng(2)
    independent = [np.cumsum(rng.random((1000, 1)) < 0.4, axis=0).astype(float) for _ in range(4)]
    assert 0.6 < stickiness(independent) < 2
    sticky = [one.copy() for one in independent]
    sticky[2][500:590] = sticky[2][500]
    assert stickiness(sticky) > 4
    assert stickiness([np.zeros((50, 2))]) == stickiness([np.arange(50.0)[:, np.newaxis]]) == 1
