"""Planning: what the pilot measures, against posteriors where it is known, and what is made of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clocks import Clock, set_clock
from numpy.typing import NDArray
from scipy.special import expit
from typer.testing import CliRunner

import stansub
import stansub.cli.application
from stansub import FunctionFactors, InputError
from stansub.autocorrelation import autocorrelation_times
from stansub.cli.plan import lines
from stansub.planning import pilot
from stansub.planning import plan as working
from stansub.planning.nuts_cost import leapfrog_steps
from stansub.planning.pilot import Audits
from stansub.planning.plan import BudgetPlan, Estimate, best_of, follow, parse_seconds, plan
from stansub.progress import Progress
from stansub.report import plan_figure
from stansub.run import transitions
from stansub.run.config import SampleConfig
from stansub.run.prepare import Prepared, prepare
from stansub.target.families import Binomial
from stansub.target.remainders import LinearPredictors

Array = NDArray[np.float64]
N = 400


@pytest.fixture(autouse=True, scope="module")
def clock() -> Iterator[Clock]:
    """Time passes with looks at the clock, and with evaluations."""
    with set_clock() as made:
        made.tick = 1e-5
        yield made


def normal_means(clock: Clock) -> FunctionFactors:
    """Two means of normals with heavy-tailed observations, flat prior; no bounds."""
    y = np.random.default_rng(5).standard_t(4, (N, 2))

    def log_lik(theta: Array, which: NDArray[np.int32]) -> Array:
        clock.advance(1e-4 + 2e-7 * len(which))
        return np.asarray(-0.5 * ((y[which] - theta) ** 2).sum(1))

    def slope(theta: Array, which: NDArray[np.int32]) -> Array:
        return np.asarray(y[which] - theta)

    return FunctionFactors(["a", "b"], N, log_lik, log_lik_gradient=slope, block_size=4)


@pytest.fixture(scope="module")
def found(clock: Clock) -> BudgetPlan:
    return plan(normal_means(clock), budget="20s", pilot_seconds=1.0, config=SampleConfig(seed=3, parallel_chains=1))


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), (2.5, 2.5), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("0.5h", 1800)]
)
def test_times(text: str | float, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-5", "10x", "m", "1.2.3s", "nan", "inf", "10 m"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(InputError, match="not a time"):
        parse_seconds(text)


@pytest.mark.parametrize("r", [0.0, 0.6, 0.9])
def test_autocorrelation_times_of_autoregressions(r: float) -> None:
    rng = np.random.default_rng(1)
    draws = np.empty((2, 20_000, 3))
    draws[:, 0] = rng.standard_normal((2, 3))
    for step in range(1, draws.shape[1]):
        draws[:, step] = r * draws[:, step - 1] + math.sqrt(1 - r**2) * rng.standard_normal((2, 3))
    times, error = autocorrelation_times(draws)
    assert np.abs(times / ((1 + r) / (1 - r)) - 1).max() < 4 * error + 0.01
    assert error < 0.12


def test_chains_that_do_not_move_or_do_not_agree_have_long_times() -> None:
    still = np.zeros((2, 50, 1))
    assert autocorrelation_times(still)[0] == 50
    apart = np.random.default_rng(2).standard_normal((2, 500, 1)) + np.array([0.0, 20.0])[:, None, None]
    assert autocorrelation_times(apart)[0] > 100


def test_drift_has_its_sign_and_cancels() -> None:
    one = np.array([[1.0, 0.0]])
    drift, error = Audits(np.repeat(one, 8, 0), 100, np.ones(2)).drift
    np.testing.assert_allclose(drift, [0.08, 0.0])
    np.testing.assert_allclose(error, [0.03, 0.01])
    drift, _ = Audits(np.concatenate([np.repeat(one, 4, 0), np.repeat(-one, 4, 0)]), 100, np.ones(2)).drift
    np.testing.assert_allclose(drift, 0.0)
    none = Audits(np.empty((0, 2)), 0, np.ones(2)).drift
    assert np.isinf(none[1]).all()


def test_the_longest_axis_makes_trees_longer() -> None:
    assert leapfrog_steps(np.eye(30)) == 7
    assert leapfrog_steps(np.diag(np.geomspace(1e-3, 1e3, 30))) == 7
    narrow = np.linalg.cholesky(np.array([[1.0, 0.999], [0.999, 1.0]]))
    assert leapfrog_steps(narrow) > 60


def test_ways_and_their_figures(found: BudgetPlan) -> None:
    names = [one.label for one in found.methods]
    assert len(set(names)) == len(names)
    assert {"pocock 0.005", "pocock 0.02", "pocock 0.1", "exact"} <= set(names)
    assert [one.fixed for one in found.methods] == [True] * (len(names) - 1) + [False]
    for one in found.methods:
        low, value, high = one.risk(found.budget)
        assert 0 < low < value < high
        assert (one.bias2.high == 0) == one.exact
        assert one.risk(10 * found.budget).value <= value
        assert one.measurement.seconds > 0
        assert (one.measurement.tau >= 1).all()
    exact = next(one for one in found.methods if one.label == "exact")
    assert exact.measurement.share == 1
    assert all(one.measurement.share < 1 for one in found.methods if not one.exact)


def test_budgets_that_are_too_short(found: BudgetPlan) -> None:
    early = found.methods[0].set_up
    assert found.methods[0].steps(early) is None
    with pytest.raises(InputError, match="too short"):
        found.methods[0].options(early)
    with pytest.raises(InputError, match="no chain would start"):
        best_of(found.all, early / 2)


def test_a_budget_that_is_over_before_chains_begin(clock: Clock) -> None:
    with pytest.raises(InputError, match=r"`budget`: 0\.01 s is too short: no chain would start"):
        plan(normal_means(clock), budget=0.01, pilot_seconds=0.05, config=SampleConfig(seed=3, parallel_chains=1))


def test_an_exact_way_is_preferred_where_it_is_as_good(found: BudgetPlan) -> None:
    exact = next(one for one in found.methods if one.label == "exact")
    loose = next(one for one in found.methods if one.label == "pocock 0.1")
    clean = Audits(np.empty((0, 2)), 10**9, np.full(2, 1e-30))
    # Steps of a fixed length: with more draws than are kept, faster steps would gain nothing.
    exact = replace(exact, measurement=replace(exact.measurement, seconds=1e-3))
    same = replace(exact.measurement, method=loose.measurement.method, audits=clean)
    loose = replace(loose, set_up=exact.set_up)
    assert best_of([replace(loose, measurement=replace(same, seconds=0.95e-3)), exact], 20.0) is exact
    faster = replace(loose, measurement=replace(same, seconds=0.2e-3))
    assert best_of([faster, exact], 20.0) is faster


def test_draws_fill_the_budget_and_are_not_too_many(found: BudgetPlan) -> None:
    method = found.methods[0]
    for budget in (5.0, 50.0, 1e4, 1e6):
        steps = method.steps(budget)
        assert steps is not None
        seconds = method.set_up + method.chains * (steps.iter_warmup + steps.iter_sampling) * method.measurement.seconds
        assert seconds <= budget * 1.001
        assert steps.iter_sampling % steps.thin == 0
        assert method.chains * steps.iter_sampling // steps.thin <= 400_000
    risks = [method.variance(budget).value for budget in np.geomspace(5, 1e5, 200)]
    assert (np.diff(risks) <= 1e-12).all()


def test_a_test_that_errs_is_seen_to(clock: Clock) -> None:
    """Negative control: decisions from two skewed observations differ from those of all."""

    def skewed() -> FunctionFactors:
        y = np.random.default_rng(6).exponential(1.0, N) ** 2

        def log_lik(theta: Array, which: NDArray[np.int32]) -> Array:
            clock.advance(1e-4 + 2e-7 * len(which))
            return np.asarray(-0.5 * (y[which] - theta[0]) ** 2)

        def slope(theta: Array, which: NDArray[np.int32]) -> Array:
            return np.asarray((y[which] - theta[0])[:, np.newaxis])

        return FunctionFactors(["a"], N, log_lik, log_lik_gradient=slope, block_size=1)

    prepared = pilot_of(skewed())
    method = next(one for one in pilot.methods_of(prepared, Progress()) if one.epsilon == 0.005)
    loose = stansub.Pocock(epsilon=0.9, looks=stansub.Geometric(first=2, growth=4.0))
    plain = replace(method.sampler, found=replace(method.sampler.found, variates=None))
    measurement = pilot.measure(prepared, [replace(method, rule=loose, sampler=plain)], 1.0, Progress())[0]
    assert measurement.audits is not None
    assert measurement.audits.differing > 0.02 * measurement.audits.n


def pilot_of(factors: FunctionFactors) -> Prepared:
    """A preparation, as a plan has it."""
    return prepare(factors, None, SampleConfig(seed=1, parallel_chains=1), Progress())


def test_no_mode_no_plan() -> None:
    flat = FunctionFactors(["a"], 5, lambda theta, which: np.zeros(len(which)))
    with pytest.raises(InputError, match="no plan is possible"):
        plan(flat, budget=10, config=SampleConfig(seed=1))


def test_the_options_are_those_of_a_run(found: BudgetPlan) -> None:
    options = found.own.options(found.budget)
    SampleConfig(**options)
    assert json.loads(json.dumps(found.to_dict()))["options"] == options


def test_what_is_printed_and_drawn(found: BudgetPlan) -> None:
    text = list(lines(found, Path("m.stan"), Path("d.json")))
    assert text[-1].startswith("stansub sample m.stan d.json --test ")
    assert len(text) <= 14
    assert any(line.startswith("Best within 20 s: ") for line in text)
    assert any(line.startswith("Best in the worst case") for line in text)
    assert 0 < found.to_dict()["compminimax"]["assumed"]["alpha"] <= 1
    picture = plan_figure.figure(found)
    assert len(picture.axes[0].lines) == len(found.all) + 1


def test_a_run_that_follows(found: BudgetPlan, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working, "plan", lambda *given, **options: found)
    config = SampleConfig(seed=3, parallel_chains=1, chains=4, audit=0.0)
    chosen, made = follow(normal_means(clock), None, budget="20s", config=config, progress=Progress())
    assert made is found
    assert chosen.max_time == found.budget - found.seconds
    assert (chosen.audit, chosen.seed) == (0.0, 3)
    own = best_of(found.methods, chosen.max_time)
    assert chosen.test == own.measurement.method.rule.name
    steps = chosen.chains * (chosen.iter_warmup + chosen.iter_sampling)
    assert 0.5 * chosen.max_time < own.set_up + steps * own.measurement.seconds <= 0.9 * chosen.max_time


def test_a_plan_that_leaves_no_time(found: BudgetPlan, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    late = replace(found, seconds=found.budget)
    monkeypatch.setattr(working, "plan", lambda *given, **options: late)
    with pytest.raises(InputError, match="no chain would start"):
        follow(normal_means(clock), None, budget="20s", config=SampleConfig(), progress=Progress())


def regression(clock: Clock) -> FunctionFactors:
    """Logistic regression, with proved bounds."""
    rng = np.random.default_rng(4)
    z = np.column_stack([np.ones(2000), rng.standard_normal(2000)])
    y = (rng.random(2000) < expit(z @ [0.3, 0.6])).astype(float)

    def log_lik(theta: Array, which: NDArray[np.int32]) -> Array:
        clock.advance(1e-4 + 2e-7 * len(which))
        eta = z[which] @ theta
        return np.asarray(y[which] * eta - np.logaddexp(0, eta))

    def slope(theta: Array, which: NDArray[np.int32]) -> Array:
        return np.asarray((y[which] - expit(z[which] @ theta))[:, np.newaxis] * z[which])

    predictors = LinearPredictors((z,), (np.zeros(2000),), Binomial(y, np.ones(2000)))
    return FunctionFactors(["a", "b"], 2000, log_lik, log_lik_gradient=slope, predictors=predictors)


def test_proved_bounds_come_first_and_are_what_a_run_follows(
    found: BudgetPlan, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, progress = SampleConfig(seed=1, parallel_chains=1, chains=2), Progress()
    measured = plan(regression(clock), budget=12, pilot_seconds=0.3, config=config)
    monkeypatch.setattr(working, "plan", lambda *given, **options: measured)
    chosen, made = follow(regression(clock), None, budget=12, config=config, progress=progress)
    first = made.methods[0]
    assert (first.label, first.exact) == ("factorised", True)
    assert first.measurement.share < 0.05
    assert made.own is first
    assert (chosen.test, chosen.epsilon, chosen.final_epsilon) == ("factorised", None, None)
    short = replace(chosen, iter_warmup=20, iter_sampling=200, thin=1)
    options = {name: getattr(short, name) for name in ("test", "chains", "iter_warmup", "iter_sampling", "seed")}
    idata = stansub.sample(regression(clock), **options, show_progress=False)
    assert idata.attrs["guarantee"] == "exact by proved bounds"
    # Control: without bounds there is no such method, and what runs is a test or all the data.
    assert all(one.label != "factorised" for one in found.methods)


def multilevel(rng: np.random.Generator) -> dict[str, Any]:
    g, h, x = rng.integers(6, size=N), rng.integers(9, size=N), rng.standard_normal(N)
    eta = 0.5 * x + 0.6 * rng.standard_normal(6)[g] + 1.2 * rng.standard_normal(9)[h]
    y = (rng.random(N) < expit(eta)).astype(int)
    return {"N": N, "J": 6, "K": 9, "y": y, "x": x, "g": g + 1, "h": h + 1}


@pytest.mark.slow
def test_where_a_run_would_take_surrogate_transitions_so_does_the_plan(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Path(__file__).parents[1] / "run" / "programs" / "multilevel.stan"
    data, config = multilevel(np.random.default_rng(5)), SampleConfig(seed=1, parallel_chains=1, chains=2)
    options: dict[str, Any] = {"budget": 30, "config": config, "progress": Progress()}
    monkeypatch.setattr(transitions, "NEAR_NORMAL", 2.0)  # whatever is near to normal
    monkeypatch.setattr(clock, "tick", 0.05)  # a look at it follows each step of the pilot
    chosen, made = follow(program, data, **options)
    (method,) = made.methods
    assert (method.label, method.exact, method.measurement.audits) == ("surrogate", True, None)
    assert method.measurement.acceptance > 0.3
    assert [one.label for one in made.all] == ["surrogate", "NUTS"]
    assert chosen.proposal == "surrogate"
    assert (chosen.test, chosen.max_time) == (None, made.budget - made.seconds)
    assert list(lines(made, Path("m.stan"), Path("d.json")))[-1].startswith(
        "stansub sample m.stan d.json --proposal surr"
    )
    # Near to normal with few parameters, moves about the mode do better, and the plan has theirs.
    monkeypatch.setattr(transitions, "NEAR_NORMAL", 0.0)
    about_mode = plan(program, data, budget=30, pilot_seconds=0.02, config=config)
    assert "surrogate" not in [one.label for one in about_mode.methods]


def test_what_the_plan_chooses_is_not_given_besides(clock: Clock) -> None:
    with pytest.raises(InputError, match="chooses `epsilon`, `thin`: leave out"):
        follow(normal_means(clock), None, budget="1m", config=SampleConfig(epsilon=0.1, thin=2), progress=Progress())


def test_estimates() -> None:
    assert Estimate.about(2.0, 0.0) == (2.0, 2.0, 2.0)
    assert Estimate(1, 2, 3).plus(Estimate(0, 1, 5)) == (1, 3, 8)


def test_help() -> None:
    result = CliRunner().invoke(stansub.cli.application.app, ["plan", "--help"])
    assert result.exit_code == 0
    assert "--budget" in result.output


@pytest.mark.usefixtures("pictures_drawn")
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((300, 1))
    y = (rng.random(300) < 1 / (1 + np.exp(-x[:, 0]))).astype(int)
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"N": 300, "K": 1, "x": x.tolist(), "y": y.tolist()}))
    model = Path(__file__).parents[2] / "stan_models" / "logistic.stan"
    picture = tmp_path / "plan.png"
    arguments = ["plan", str(model), str(data), "--budget", "30s", "--pilot", "0.4", "--json", "--output", str(picture)]
    arguments += ["--seed", "1", "--parallel-chains", "1", "--quiet"]
    with set_clock() as clock:
        clock.tick = 1e-3
        with pytest.raises(SystemExit) as ended:
            stansub.cli.main(arguments)
    assert ended.value.code == 0
    figures = json.loads(capsys.readouterr().out)
    assert picture.stat().st_size > 10_000
    methods = {one["way"]: one for one in figures["ways"]}
    assert {"factorised", "exact", "NUTS"} <= set(methods)
    assert methods["factorised"]["squared_bias"] == {"low": 0, "value": 0, "high": 0}
    assert figures["budget_seconds"] == 30
    assert figures["best"] in methods
