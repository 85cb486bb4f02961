"""Sampling about the mode, the default: true to the posterior, reproducible, and given up where there is no mode."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_targets
from drawn import share_used, statistic, unconstrained
from numpy.typing import NDArray
from recording import Recording
from toys import with_own_rows

import stansub
from stansub import CompiledModel, Exact, InputError, Pocock, RandomWalk, _loop, cli
from stansub.acceptance.normality import Pair
from stansub.decision_findings import NormalityFails
from stansub.decision_selection import ExactWon
from stansub.kernels.proposals import Affine, Mixture
from stansub.output import inference_data
from stansub.output.checks import findings_of
from stansub.output.inference_data import attrs as facts
from stansub.output.summary import table
from stansub.progress import TimeLimitError
from stansub.run import choices
from stansub.selection import RaceOutcome
from stansub.target import cubics, observations, taylor, variates_order
from stansub.tuning import mode_setup, mode_tuner, mode_variates, third_order
from stansub.tuning import race as racing
from stansub.tuning.modes.mode import NoModeError, find_modes
from stansub.tuning.third_order import with_differences
from stansub.tuning.trial import pairs_at

MAX_Z = 4.0
PLAIN: dict[str, Any] = {"control_variates": 0, "proposal": "adaptive-metropolis"}
SHORT: dict[str, Any] = {"chains": 3, "iter_warmup": 60, "iter_sampling": 80, "seed": 5}
PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES = Path(__file__).parents[2] / "stan_models"
# A single observation of 0: along mu = 0 the density of (mu, log sigma) rises without end as sigma falls, though the
# posterior is proper.
NO_MODE: dict[str, Any] = {"N": 1, "y": [0.0], "limit": 1e6}

Array = NDArray[np.float64]


def settings(idata: Any) -> dict[str, Any]:
    found: dict[str, Any] = facts(idata)["settings"]
    return found


def largest_z(idata: Any, mean: Array, sd: Array) -> float:
    """Of all errors of posterior means and sds, in Monte Carlo standard errors."""
    figures = table(idata)
    errors = [(figures["mean"] - mean) / figures["mcse_mean"], (figures["sd"] - sd) / figures["mcse_sd"]]
    return float(np.abs(errors).max())


@pytest.fixture(scope="module")
def mean_truth(mean_data: dict[str, Any]) -> tuple[Array, Array]:
    """In closed form."""
    precision = 1 / 100 + mean_data["N"] / mean_data["sigma"] ** 2
    return np.array([np.sum(mean_data["y"]) / mean_data["sigma"] ** 2 / precision]), np.array([precision**-0.5])


@pytest.fixture(scope="module")
def logistic_truth(logistic_data: dict[str, Any]) -> tuple[Array, Array]:
    """By Gauss-Hermite quadrature about the mode, with 12 points a parameter."""
    x, y = np.column_stack([np.ones(2000), logistic_data["x"]]), logistic_data["y"]
    mode, precision = np.zeros(3), np.eye(3)
    for _ in range(20):
        p = 1 / (1 + np.exp(-x @ mode))
        precision = (x.T * (p * (1 - p))) @ x + np.eye(3) / 2.5**2
        mode = mode + np.linalg.solve(precision, x.T @ (y - p) - mode / 2.5**2)
    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    z = np.array(np.meshgrid(nodes, nodes, nodes)).reshape(3, -1).T
    points = mode + z @ np.linalg.cholesky(np.linalg.inv(precision)).T
    eta = (2 * y - 1) * (points @ x.T)
    log_density = -np.logaddexp(0, -eta).sum(1) - (points**2).sum(1) / 2 / 2.5**2
    weight = np.exp(log_density - log_density.max() + (z**2).sum(1) / 2)
    weight *= np.prod(np.array(np.meshgrid(weights, weights, weights)).reshape(3, -1), axis=0)
    weight /= weight.sum()
    mean = weight @ points
    return mean, np.sqrt(weight @ (points - mean) ** 2)


def wrong_total(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows shrink by a fifth of their mean after their total was taken: more is added than the blocks give up."""
    right = mode_setup.decider_with

    def wrong(posterior: Any, evaluator: Any, test: Any, variates: Any, spread: Any = None) -> Any:
        own = with_own_rows(variates)
        decider = right(posterior, evaluator, test, own, spread)
        rows = own.first.coefficients
        rows[:] -= 0.2 * rows.mean(axis=0, dtype=np.float64)
        return decider

    for module in (mode_setup, mode_tuner):
        monkeypatch.setattr(module, "decider_with", wrong)


def wrong_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of the expansions of single observations has a Hessian that is not the sum of theirs."""
    right = _loop.Observations

    def wrong(*given: Any) -> _loop.Observations:
        before, hessian, rest = given[:6], given[6], given[7:]
        return right(*before, 1.3 * hessian, *rest)

    monkeypatch.setattr(_loop, "Observations", wrong)


@pytest.mark.parametrize("program", ["normal_mean", pytest.param("logistic", marks=pytest.mark.slow)])
def test_the_default_is_true_and_a_wrong_total_is_not(
    program: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = {"normal_mean": "mean", "logistic": "logistic"}[program]
    compiled, data, truth = map(request.getfixturevalue, (program, f"{short}_data", f"{short}_truth"))
    idata = stansub.sample(compiled, data, seed=1)
    assert largest_z(idata, *truth) < MAX_Z
    assert table(idata)["ess_bulk"].min() > 10_000, "and the check is sharp"
    assert settings(idata)["control_variates"] in (2, 3)
    assert share_used(idata) < 0.1
    assert settings(idata)["proposal"].startswith(("Laplace pCN", "Hamiltonian trajectory"))
    assert facts(idata)["guarantee"] == "exact by proved bounds"
    with monkeypatch.context() as patch:
        wrong_sum(patch)
        wrong = stansub.sample(compiled, data, seed=1, test="factorised")  # by default it may lose the race
        assert largest_z(wrong, *truth) > 2 * MAX_Z
    wrong_total(monkeypatch)
    wrong = stansub.sample(compiled, data, seed=1, control_variates=2)
    assert largest_z(wrong, *truth) > 2 * MAX_Z


OPTIONS: dict[str, dict[str, Any]] = {
    "order 0": {"control_variates": 0, "proposal": "laplace-pcn"},
    "order 1": {"control_variates": 1},
    "order 2": {"control_variates": "2"},
    "langevin": {"proposal": "langevin"},
    "trajectory": {"proposal": "trajectory"},
    "approximate trajectory": {"proposal": "trajectory", "test": "pocock"},
    "walk": {"control_variates": 2, "proposal": "random-walk"},
    "adaptive": {"control_variates": 2, "proposal": "adaptive-metropolis"},
    "sgld": {"proposal": "sgld"},
    "sgld order 1": {"control_variates": 1, "proposal": "sgld"},
    "exact": {"test": "exact"},
    "exact pCN": {"test": "exact", "proposal": "laplace-pcn"},
    "austerity": {"test": "austerity"},
    "barker": {"test": "barker"},
    "penalty": {"test": "penalty"},
}
QUICK = ("order 1", "langevin", "approximate trajectory", "adaptive", "sgld", "exact pCN", "barker")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in OPTIONS]
)
def test_what_is_asked_for_is_used_and_true(
    name: str, logistic: CompiledModel, logistic_data: dict[str, Any], logistic_truth: tuple[Array, Array]
) -> None:
    options = OPTIONS[name]
    idata = stansub.sample(logistic, logistic_data, seed=2, iter_sampling=1000, iter_warmup=500, **options)
    assert largest_z(idata, *logistic_truth) < MAX_Z
    used, chosen = settings(idata), facts(idata)["choice_values"]
    if "control_variates" in options:
        assert used["control_variates"] == int(options["control_variates"])
        order = int(options["control_variates"])
        assert chosen["control variates"] == {"kind": "VariatesAsAsked", "order": order, "function": ""}
        assert "as requested" in facts(idata)["choices"]["control variates"]
    proposal = options.get("proposal", "auto")
    begins = {
        # Barker's acceptance rate of at most a half looks like heavy tails.
        "auto": ("Laplace pCN with rho ", "pooled ") if name == "barker" else ("Laplace pCN with rho ",),
        "laplace-pcn": ("Laplace pCN with rho ",),
        "langevin": ("Langevin with step ",),
        "trajectory": ("Hamiltonian trajectory of ",),
    }
    assert used["proposal"].startswith(begins.get(proposal, (proposal,)))
    assert ("proposal" in chosen) == (proposal in begins or proposal == "sgld")
    if options.get("test") == "exact":
        assert (statistic(idata, "n_obs_used") == 2000).all()
        assert facts(idata)["guarantee"] == "exact"
        assert used["control_variates"] == 0
    assert facts(idata)["anchor_n_obs_evaluated"] > 2000


def test_trajectories_need_third_derivatives(
    logistic: CompiledModel, logistic_data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(third_order, "_MOST_GRADIENTS", 12)
    with pytest.raises(InputError, match="trajectory needs third derivatives at the mode, and there are too many para"):
        stansub.sample(logistic, logistic_data, proposal="trajectory", test="pocock", **SHORT)


def test_the_second_order_needs_least_data(logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
    """For proposals of one kind."""
    short = SHORT | {"proposal": "laplace-pcn"}
    none, first, second = (
        share_used(stansub.sample(logistic, logistic_data, control_variates=order, **short)) for order in range(3)
    )
    assert second < first / 2 < none / 4


@pytest.fixture(scope="module")
def short(logistic: CompiledModel, logistic_data: dict[str, Any]) -> Any:
    return stansub.sample(logistic, logistic_data, **SHORT)


@pytest.mark.parametrize("parallel_chains", [1, 2, 8])
def test_the_same_seed_gives_the_same_draws_whatever_the_threads(
    short: Any, logistic: CompiledModel, logistic_data: dict[str, Any], parallel_chains: int
) -> None:
    again = stansub.sample(logistic, logistic_data, parallel_chains=parallel_chains, **SHORT)
    for name in inference_data.groups(short):
        one, other = inference_data.group(short, name), inference_data.group(again, name)
        for variable in (each for each in one.data_vars if not str(each).endswith("_time")):
            np.testing.assert_array_equal(one[variable].values, other[variable].values, err_msg=f"{name} {variable}")
    assert facts(again)["choice_values"]["proposal"] == facts(short)["choice_values"]["proposal"]
    assert facts(again)["anchor_n_obs_evaluated"] == facts(short)["anchor_n_obs_evaluated"]
    other = stansub.sample(logistic, logistic_data, **(SHORT | {"seed": 6}))
    assert not np.isin(unconstrained(other), unconstrained(short)).any()


@pytest.mark.parametrize(
    ("program", "order"),
    [
        ("normal_mean", 0),
        ("logistic", 2),
        pytest.param("normal_mean", 2, marks=pytest.mark.slow),
        pytest.param("logistic", 0, marks=pytest.mark.slow),
    ],
)
def test_each_chain_has_mini_batches_of_its_own(program: str, order: int, request: pytest.FixtureRequest) -> None:
    data = request.getfixturevalue({"normal_mean": "mean", "logistic": "logistic"}[program] + "_data")
    asked: dict[str, Any] = {"proposal": "sgld", "control_variates": order, "audit": 0.0} | SHORT
    one, three = (stansub.sample(request.getfixturevalue(program), data, parallel_chains=n, **asked) for n in (1, 3))
    np.testing.assert_array_equal(unconstrained(one), unconstrained(three))
    assert len(np.unique(unconstrained(one)[..., 0])) > 30
    assert facts(one)["n_obs_evaluated"] == facts(three)["n_obs_evaluated"]
    assert settings(one)["proposal"] == "sgld"
    gradients = facts(one)["choice_values"]["proposal"]
    assert (gradients["kind"], gradients["n_drawn"]) == ("MiniBatchGradients", 10)
    assert gradients["control_variates"] == (order == 2)
    text = facts(one)["choices"]["proposal"]
    assert text.startswith("Langevin moves with gradients from 10 of ")
    assert ("without control variates" in text) == (order == 0)


def test_a_chain_does_not_depend_on_how_many_others_there_are(
    logistic: CompiledModel, logistic_data: dict[str, Any]
) -> None:
    """Where the order is given: the best one depends on the number of all steps."""
    three, alone = (
        stansub.sample(logistic, logistic_data, control_variates=2, **(SHORT | {"chains": chains})) for chains in (3, 1)
    )
    np.testing.assert_array_equal(unconstrained(alone)[0], unconstrained(three)[0])


def test_audits_leave_the_draws_as_they_are(logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
    few, none, every = (
        stansub.sample(logistic, logistic_data, test="pocock", audit=audit, **SHORT) for audit in (None, 0.0, 1.0)
    )
    assert settings(few)["audit"] == 0.01
    for idata in (none, every):
        np.testing.assert_array_equal(unconstrained(idata), unconstrained(few))
    assert facts(none)["n_audited"] == [0] * 3
    assert facts(every)["n_audited"] == [80] * 3
    assert sum(facts(every)["n_audit_wrong"]) <= 5


def test_audits_see_wrong_decisions(
    logistic: CompiledModel, logistic_data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong_total(monkeypatch)
    idata = stansub.sample(logistic, logistic_data, control_variates=2, audit=1.0, **SHORT)
    assert sum(facts(idata)["n_audit_wrong"]) > 5


def nowhere(rng: np.random.Generator, position: Array) -> tuple[Array, float]:
    return position + 1e3, 0.0


def test_given_inits_are_honoured(logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
    inits = {"alpha": 0.3, "beta": [0.1, -1.2]}
    still: dict[str, Any] = {"proposal": nowhere, "control_variates": 2} | SHORT
    given = stansub.sample(logistic, logistic_data, inits=inits, **still)
    np.testing.assert_array_equal(unconstrained(given), np.broadcast_to([0.3, 0.1, -1.2], (3, 80, 3)))
    radius = unconstrained(stansub.sample(logistic, logistic_data, inits=100.0, **still))
    assert np.abs(radius).max() > 10
    assert settings(given)["inits"] == "given values"


def test_chains_start_widely_about_the_mode(
    logistic: CompiledModel, logistic_data: dict[str, Any], logistic_truth: tuple[Array, Array]
) -> None:
    still: dict[str, Any] = {"proposal": nowhere, "control_variates": 2} | SHORT | {"chains": 40, "iter_sampling": 1}
    idata = stansub.sample(logistic, logistic_data, **still)
    mean, sd = logistic_truth
    away = (unconstrained(idata)[:, 0] - mean) / sd
    assert 1.5 < away.std() < 2.6, "further apart than draws, whose sd is 1"
    assert np.abs(away.mean(axis=0)).max() < 1.5
    assert settings(idata)["inits"] == "about the mode"


def test_without_a_mode_sampling_is_plain(quantities: CompiledModel) -> None:
    tried, plain = (
        stansub.sample(quantities, NO_MODE, **SHORT, **options) for options in ({}, {"test": "exact", **PLAIN})
    )
    none = facts(tried)["choice_values"]["control variates"]
    assert none["kind"] == "NoVariatesWithoutMode"
    assert none["reason"].startswith("no mode: sigma runs to -infinity")
    assert facts(tried)["choices"]["control variates"].startswith("none: no mode: sigma runs to -infinity")
    assert list(facts(tried)["choices"]) == ["control variates", "test", "blocks"]
    assert facts(tried)["choices"]["test"].startswith("exact, from all observations: without control variates")
    assert list(facts(plain)["choices"]) == ["blocks"]
    np.testing.assert_array_equal(unconstrained(tried), unconstrained(plain))
    assert len(np.unique(unconstrained(tried)[0])) > 20
    for name in ("control_variates", "proposal", "inits"):
        assert settings(tried)[name] == settings(plain)[name], name
    named = stansub.sample(quantities, NO_MODE, proposal="sgld", **SHORT)
    assert settings(named)["proposal"] == "sgld"
    assert facts(named)["choices"]["proposal"] == "Langevin moves with gradients from 1 of 1 blocks a step"
    assert len(np.unique(unconstrained(named)[0])) > 20


@pytest.mark.parametrize("options", [{"control_variates": 2}, {"proposal": "laplace-pcn"}, {"proposal": "langevin"}])
def test_what_needs_a_mode_is_refused_without_one(quantities: CompiledModel, options: dict[str, Any]) -> None:
    with pytest.raises(NoModeError, match="sample with `control_variates=0`"):
        stansub.sample(quantities, NO_MODE, **SHORT, **options)


def test_no_mode_is_told_in_one_line(
    quantities: CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.json").write_text(json.dumps(NO_MODE))
    with pytest.raises(SystemExit) as exit_:
        cli.main(["sample", str(PROGRAMS / "quantities.stan"), "data.json", "--control-variates", "2"])
    out, err = capsys.readouterr()
    assert exit_.value.code == 1
    assert err.startswith("stansub: error: no mode: sigma runs to -infinity")
    assert err.count("\n") == 1
    assert out == ""
    assert not list(tmp_path.glob("*.nc"))


@pytest.mark.parametrize("order", [3, -1, 1.5, True, None, "second"])
def test_unknown_orders_are_refused(logistic: CompiledModel, logistic_data: dict[str, Any], order: Any) -> None:
    with pytest.raises(InputError, match=r"unknown control_variates .*; choose from auto, 0, 1, 2$"):
        stansub.sample(logistic, logistic_data, control_variates=order, **SHORT)


def test_coefficients_that_do_not_fit_are_refused(
    logistic: CompiledModel, logistic_data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (taylor, variates_order):
        monkeypatch.setattr(module, "max_memory_default", lambda: 2000)
    with pytest.raises(InputError, match=r"of order 2 need 3\.6 KB .* choose `control_variates=1` \(1\.2 KB\)"):
        stansub.sample(logistic, logistic_data, control_variates=2, **SHORT)
    idata = stansub.sample(logistic, logistic_data, test="pocock", **SHORT)
    assert settings(idata)["control_variates"] == 1
    assert facts(idata)["choice_values"]["control variates"]["too_large"] == [{"order": 2, "memory": 3600}]
    assert "order 2 would take 3.6 KB" in facts(idata)["choices"]["control variates"]


@pytest.mark.slow
def test_bounds_look_at_the_differences_that_their_range_is_of(
    normal_mean: CompiledModel, mean_data: dict[str, Any], logistic_data: dict[str, Any]
) -> None:
    """The range of the program's functions is not that of remainders."""
    few = {"N": 300, "y": mean_data["y"][:300], "sigma": 2.0}
    idata = stansub.sample(normal_mean, few, test="hoeffding", range_source="scan", **SHORT)
    assert settings(idata)["control_variates"] == 0
    assert facts(idata)["guarantee"] == "bound"
    program = stansub.compile_model(EXAMPLES / "logistic_log_lik_i.stan")
    data = {"N": 300, "K": 2, "y": logistic_data["y"][:300], "x": logistic_data["x"][:300]}
    idata = stansub.sample(program, data, test="hoeffding", **SHORT)
    assert settings(idata)["range_source"] == "lipschitz"
    with pytest.raises(InputError, match=r"the test averages remainders: choose `control_variates=0`"):
        stansub.sample(program, data, test="hoeffding", control_variates=2, **SHORT)


def test_looks_of_the_user_stay(logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
    given = Pocock(epsilon=0.02)
    for options, looks in (({"first_look": 20}, "first=20"), ({"test": given}, repr(given)[7:-1])):
        idata = stansub.sample(logistic, logistic_data, **SHORT, **options)
        assert settings(idata)["control_variates"] == 2
        assert looks in facts(idata)["test_settings"]


@pytest.mark.parametrize(
    ("n_steps", "n", "share"),
    [(4000, 10_000, 0.01), (16_000, 10_000, 0.01), (10**6, 10_000, 4e-4), (10**6, 500_000, 2e-4), (10**6, 10**7, 3e-5)],
)
def test_of_many_cheap_decisions_fewer_are_audited(n_steps: int, n: int, share: float) -> None:
    assert choices.choose_audit(None, n_steps, n) == pytest.approx(share)
    assert choices.choose_audit(0.3, n_steps, n) == 0.3


def race(compiled: CompiledModel, data: dict[str, Any], shift: float) -> tuple[str, Any]:
    """Name of the winner among all proposals, about a mode that is so many sds off."""
    posterior = compiled.with_data(data, block_size=20, seed=1)
    mode = find_modes(posterior, np.random.default_rng(1)).best
    variates = taylor.build(posterior, mode.position, order=2, steps=mode.steps)
    off = replace(mode, position=mode.position + shift * mode.cholesky @ np.ones(mode.dim))
    decider = mode_setup.decider_with(posterior, posterior.population.evaluator(), Pocock(), variates)
    decider.reset(mode.position)
    candidates = list(racing.all_moves(off, "Laplace"))
    return racing.race(decider, candidates, off.cholesky, np.random.default_rng(2)).winner.name, candidates


def test_far_moves_win_where_the_approximation_is_right(
    normal_mean: CompiledModel,
    mean_data: dict[str, Any],
    logistic: CompiledModel,
    logistic_data: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, candidates = race(normal_mean, mean_data, 0.0)
    assert name == "Laplace pCN with rho -0.25"
    assert len({candidate.name for candidate in candidates}) == len(candidates) == 7
    assert race(logistic, logistic_data, 0.0)[0] == "Laplace pCN with rho -0.25"
    assert race(logistic, logistic_data, 6.0)[0] == "random walk", "which does not mind where the mode is"
    monkeypatch.setattr(racing, "_LEAST_ACROSS", 0.999)
    assert race(logistic, logistic_data, 0.0)[0] == "Laplace pCN with rho 0", "if other moves are accepted too rarely"


@pytest.mark.parametrize(("successes", "suits"), [(25, True), (4, False)])
def test_trajectories_win_where_they_follow_the_posterior(
    logistic: CompiledModel, logistic_data: dict[str, Any], successes: int, suits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = [1] * successes + [0] * (60 - successes)
    few = {"N": 60, "K": logistic_data["K"], "x": logistic_data["x"][:60], "y": y}
    posterior = logistic.with_data(few, block_size=20, seed=1)
    mode = find_modes(posterior, np.random.default_rng(1)).best
    monkeypatch.setattr(observations, "_CUBIC", -1e9)
    variates = observations.ObservationVariates.at(posterior.predictors(), mode.position, mode.cholesky)
    assert variates.order == 3

    def names(about: Any) -> list[str]:
        return [one.name for one in racing.all_moves(about, "Laplace") if "trajectory" in one.name]

    expanded = replace(mode, third=variates.third)
    assert names(mode) == names(replace(mode, third=0 * variates.third)) == []
    assert names(expanded) == [f"Hamiltonian trajectory of {n}" for n in ("1 step", "2 steps", "4 steps")]
    decider = mode_setup.decider_with(posterior, posterior.population.evaluator(), Exact(), None)
    decider.reset(mode.position)
    result = racing.race(decider, list(racing.all_moves(expanded, "Laplace")), mode.cholesky, np.random.default_rng(2))
    assert (result.winner.name in names(expanded)) == suits
    if suits:
        assert result.rate > max(result.first_rate, 0.9)
    monkeypatch.setattr(racing, "_MOST_TERMS", len(variates.third) - 1)
    assert names(expanded) == []


def test_third_derivatives_by_differences(
    logistic: CompiledModel, logistic_data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    posterior = logistic.with_data(logistic_data, block_size=20, seed=1)
    modes = find_modes(posterior, np.random.default_rng(1))
    mode, dim, log = modes.best, modes.best.dim, Recording()
    monkeypatch.setattr(observations, "_CUBIC", -1e9)
    known = observations.ObservationVariates.at(posterior.predictors(), mode.position, mode.cholesky).third
    n_gradients = dim * (dim + 1) + 1
    found = with_differences(modes, posterior, threads=2, log=log)
    # The priors are normal, so that all third derivatives are the likelihood's.
    in_sds, its = (cubics.in_coordinates(one, mode.cholesky) for one in (found.best.third, known))
    np.testing.assert_allclose(in_sds, its, atol=2e-3 * np.abs(its).max())
    assert found.n_passes == modes.n_passes + n_gradients
    assert with_differences(found, posterior, threads=2, log=log) is found, "known already"
    monkeypatch.setattr(third_order, "_MOST_GRADIENTS", n_gradients - 1)
    assert with_differences(modes, posterior, threads=2, log=log) is modes


def test_a_race_tells_how_far_it_is_and_looks_at_the_time_within_a_leg(
    normal_mean: CompiledModel, mean_data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    posterior = normal_mean.with_data(mean_data, block_size=20, seed=1)
    mode = find_modes(posterior, np.random.default_rng(1)).best

    def merit(progress: Recording) -> tuple[float, RaceOutcome]:
        decider = mode_setup.decider_with(posterior, posterior.population.evaluator(), Pocock(), None)
        decider.reset(mode.position)
        runners = list(racing.all_moves(mode, "Laplace"))
        found = racing.race(decider, runners, mode.cholesky, np.random.default_rng(2), progress=progress)
        return found.merit, found.outcome

    recorded = Recording()
    found = merit(recorded)
    assert recorded.counts == [(n, 21) for n in range(1, 22)]
    monkeypatch.setattr(racing, "_PIECE", 100)
    assert merit(Recording()) == found, "the pieces make no difference"
    with pytest.raises(TimeLimitError):
        merit(Recording().until(5))


def test_random_walk_steps_are_mixed_in(logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
    posterior = logistic.with_data(logistic_data, block_size=20, seed=1)
    for proposal in ("auto", "laplace-pcn", "langevin"):
        found, _ = mode_tuner.anchor(
            posterior,
            Pocock(),
            mode_variates.ModeRequest(proposal=proposal, n_steps=1000, seed=1, threads=1, looks_given=False),
            progress=lambda _: None,
        )
        assert isinstance(found.proposal, Mixture)
        moves, walk = found.proposal.proposals
        assert isinstance(moves, Affine)
        assert isinstance(walk, RandomWalk)
        np.testing.assert_allclose(found.proposal.weights, [0.9, 0.1])
        np.testing.assert_allclose(walk.cholesky, 2.38 / np.sqrt(3) * found.mode.cholesky)


def test_the_trial_of_normality_looks_at_remainders(logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
    posterior = logistic.with_data(logistic_data, block_size=20, seed=1)
    mode = find_modes(posterior, np.random.default_rng(1)).best
    variates = taylor.build(posterior, mode.position, order=2, steps=mode.steps)
    evaluator, walk = posterior.population.evaluator(), RandomWalk(mode.cholesky)
    position = mode.position + mode.cholesky @ np.ones(3)
    plain, small = (
        pairs_at(evaluator, position, walk, 4, np.random.default_rng(3), one)[0] for one in (None, variates)
    )
    again = np.random.default_rng(3)
    for whole, rest in zip(plain, small, strict=True):
        proposed = position + mode.cholesky @ again.standard_normal(3)
        log_ratio = posterior.full.log_density(proposed) - posterior.full.log_density(position)
        assert rest.differences.sum() + rest.rest == pytest.approx(log_ratio, rel=1e-9)
        assert whole.differences.sum() + whole.rest == pytest.approx(log_ratio, rel=1e-9)
        assert rest.differences.std() < 0.1 * whole.differences.std()


@pytest.mark.slow
def test_expansions_take_heavy_tails_away(normal_mean: CompiledModel) -> None:
    """The data of Bardenet et al. 2014, figure 4(c); the log likelihood is quadratic whatever they are."""
    y = np.random.default_rng(6).lognormal(0, 2, 5000)
    data = {"N": 5000, "y": y, "sigma": float(y.std())}
    warned = {}
    for name, options in (("default", {}), ("plain", PLAIN)):
        idata = stansub.sample(normal_mean, data, block_size=1, audit=0.0, **SHORT, **options)
        warned[name] = any(isinstance(finding, NormalityFails) for finding in findings_of(idata))
    assert warned == {"default": False, "plain": True}


@pytest.fixture(scope="module")
def crowded_data() -> dict[str, Any]:
    """So many parameters for so few observations that decisions near their threshold need much of the data."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((6000, 40))
    p = 1 / (1 + np.exp(0.5 - x @ rng.normal(0.0, 0.5, 40)))
    return {"N": 6000, "K": 40, "y": (rng.random(6000) < p).astype(int), "x": x}


def test_the_penalty_method_where_decisions_need_much_of_the_data(
    logistic: CompiledModel, crowded_data: dict[str, Any]
) -> None:
    chosen = stansub.sample(logistic, crowded_data, seed=1, iter_warmup=100, iter_sampling=100, audit=0.0)
    assert facts(chosen)["test"] == "penalty"
    taken = facts(chosen)["choice_values"]["test"]
    assert (taken["kind"], taken["test"], taken["instead_of"]) == ("TestTaken", "penalty", "pocock")
    assert taken["gain"] >= 2
    assert facts(chosen)["choices"]["test"].startswith("penalty, ")


@pytest.mark.slow
def test_the_penalty_method_agrees_with_the_test_that_it_replaces(
    logistic: CompiledModel, crowded_data: dict[str, Any]
) -> None:
    short: dict[str, Any] = {"seed": 1, "iter_warmup": 500, "iter_sampling": 2000, "audit": 0.1}
    chosen = stansub.sample(logistic, crowded_data, **short)
    assert facts(chosen)["test"] == "penalty"
    asked = stansub.sample(logistic, crowded_data, test="pocock", **short)
    assert facts(asked)["test"] == "pocock"
    assert "test" not in facts(asked)["choices"]
    assert share_used(chosen) < share_used(asked) / 2
    # The two agree, and the estimates are off by what their standard errors say.
    one, two = table(chosen), table(asked)
    z = (one["mean"] - two["mean"]) / np.hypot(one["mcse_mean"], two["mcse_mean"])
    assert np.abs(z).max() < MAX_Z
    assert "audited estimates were off by" not in facts(chosen)["warnings"]


def test_the_test_stays_where_the_penalty_method_gains_little(
    logistic: CompiledModel, logistic_data: dict[str, Any]
) -> None:
    idata = stansub.sample(logistic, logistic_data, audit=0.01, **SHORT)
    assert facts(idata)["test"] == "pocock"
    stays = facts(idata)["choice_values"]["test"]
    assert (stays["kind"], stays["other"], stays["wanted"]) == ("TestStays", "penalty", 2.0)
    assert stays["gain"] < 2
    assert "per observation; stansub switches at 2 times" in facts(idata)["choices"]["test"]
    named = stansub.sample(logistic, logistic_data, max_error=0.005, **SHORT)
    assert "test" not in facts(named)["choices"]


def test_estimates_that_are_off_are_seen() -> None:
    """Remainders of which one in a hundred is large, all to one side: ten blocks mostly know nothing of them."""
    rng = np.random.default_rng(1)
    heavy = rng.standard_normal(5000) + np.where(rng.random(5000) < 0.01, 100.0, 0.0)
    test = racing.at_first_look(stansub.Penalty(), 10)
    normal = [Pair(rng.standard_normal(5000), 0.0) for _ in range(8)]
    assert racing.counts_rightly(normal, test, rng)
    assert not racing.counts_rightly([Pair(heavy, 0.0)] * 8, test, rng)
    assert not racing.counts_rightly([], test, rng)


@pytest.mark.parametrize(
    ("n", "size", "few", "worth", "why"),
    [
        (90, 5, 0.0, 0.0, "exact: with 18 blocks"),
        (200, 10, 2e8, 0.0, "exact, from all 200 observations, which are few"),
        (200, 10, 0.0, 1e9, "exact, from all observations: p"),  # pocock or penalty
        (200, 10, 0.0, 0.0, None),
    ],
)
def test_without_bounds_all_are_read_if_few_or_if_a_test_saves_little(
    n: int, size: int, few: float, worth: float, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mode_tuner, "_FEW_EVALUATIONS", few)
    monkeypatch.setattr(mode_tuner, "WORTH_ERROR", worth)
    rng = np.random.default_rng(4)
    x = rng.standard_normal((n, 2))
    target = toy_targets.logistic(x, rng.random(n) < 0.5, prior_sd=2.0, block_size=size)
    idata = stansub.sample(target, chains=1, iter_warmup=100, iter_sampling=100, seed=1, show_progress=False)
    chosen = inference_data.attrs(idata)["choices"]
    assert chosen["test"].startswith(why) if why else "exact" not in chosen.get("test", "")
    share = inference_data.group(idata, "sample_stats")["n_obs_used"].mean() / n
    assert (share == 1) if why else (share < 1)
    assert (inference_data.attrs(idata)["guarantee"] == "exact") == (why is not None)


@pytest.mark.parametrize(("worth", "is_exact"), [(1e9, True), (1e-9, False)])
def test_exact_decisions_by_bounds_may_make_fewer_effective_draws(
    worth: float,
    is_exact: bool,
    logistic: CompiledModel,
    logistic_data: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "_FEW_EVALUATIONS": 0.0,
        "WORTH_ERROR": 0.0,
        "_WORTH_PROOF": worth,
        "STEP_COST": 0.0,  # so that bounds are not taken at once
        "FIRST_LOOKS": (0, 10, 20),
    }.items():
        monkeypatch.setattr(mode_tuner, name, value)
    found = facts(stansub.sample(logistic, logistic_data, **SHORT))
    kind = found["choice_values"]["test" if is_exact else "bounds"]["kind"]
    assert kind == ("ExactWon" if is_exact else "ExactLost")
    assert found["guarantee"].startswith("exact") == is_exact


def test_what_is_approximate_is_called_so_beside_exact_decisions() -> None:
    assert ExactWon("factorised", "pocock", 0.42).describe().endswith("of pocock, which is approximate")
    assert ExactWon("factorised", "pocock", 2.0).describe().endswith("of pocock")
