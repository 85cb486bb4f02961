"""The mode against closed forms and plain optimisation, and what is said where there is none."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from recording import Recording
from scipy import optimize
from simulated import ROOT, example
from toy_targets import Array, Prior, Target, logistic, normal_prior

from stansub.errors import RunError
from stansub.progress import TimeLimitError
from stansub.stan.compilation import compile_model
from stansub.target.gradients import Objective, Team
from stansub.tuning.modes import climbing, completion
from stansub.tuning.modes import mode as mode_module
from stansub.tuning.modes.climbing import SHARE_TOLERANCE, TOLERANCE, Ascent, climb
from stansub.tuning.modes.mode import Mode, NoModeError, find_modes

MODELS = ROOT / "stan_models"


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def expit(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def simulated_logistic(n: int, dim: int, *, scales: Array | float = 1.0) -> tuple[Array, Array]:
    random = rng(3)
    x = random.standard_normal((n, dim)) * scales
    return x, (random.random(n) < expit(x @ (random.normal(0, 0.5, dim) / scales))).astype(float)


def distance(mode: Mode, position: Array) -> float:
    """In sds of the Laplace approximation."""
    return float(np.linalg.norm(np.linalg.solve(mode.cholesky, position - mode.position)))


def test_mean_of_a_normal_sample_in_closed_form() -> None:
    file = MODELS / "normal_mean.stan"
    data = example(file, observations=10_000)
    modes = find_modes(compile_model(file).with_data(data, block_size=16), rng())
    mode = modes.best
    precision = 10_000 / data["sigma"] ** 2 + 1 / 100
    sd = precision**-0.5
    assert mode.position[0] == pytest.approx(np.sum(data["y"]) / data["sigma"] ** 2 / precision, abs=1e-6 * sd)
    assert mode.cholesky[0, 0] == pytest.approx(sd, rel=1e-6)
    assert modes.lower == ()
    assert len(modes.found) == 1


def test_few_hessians_are_computed_where_they_cost_many_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    dim, counted, own = 24, [0], Objective.hessian

    def count(self: Objective, *given: Array) -> Array:
        counted[0] += 1
        return own(self, *given)

    monkeypatch.setattr(Objective, "hessian", count)
    x, y = simulated_logistic(800, dim)
    modes = find_modes(logistic(x, y, prior_sd=1.0), rng())
    assert counted[0] == 1
    assert [one.outcome for one in modes.starts] == ["mode 1"] * 9
    for module in (climbing, mode_module, completion):
        monkeypatch.setattr(module, "MANY_PASSES", np.inf)
    other = find_modes(logistic(x, y, prior_sd=1.0), rng())
    assert counted[0] > 2
    assert distance(other.best, modes.best.position) < 1e-5
    np.testing.assert_allclose(modes.best.covariance, other.best.covariance, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("n", [103, 20_000])
def test_logistic_regression_against_newton_by_hand(n: int) -> None:
    file = MODELS / "logistic.stan"
    data = example(file, observations=n)
    modes = find_modes(compile_model(file).with_data(data, block_size=16), rng(), threads=2)
    mode = modes.best
    x, theta = np.column_stack([np.ones(n), data["x"]]), np.zeros(4)
    for _ in range(20):
        p = expit(x @ theta)
        precision = (x.T * (p * (1 - p))) @ x + np.eye(4) / 2.5**2
        theta = theta + np.linalg.solve(precision, x.T @ (data["y"] - p) - theta / 2.5**2)
    assert distance(mode, theta) < 1e-6
    np.testing.assert_allclose(mode.covariance @ precision, np.eye(4), atol=1e-5)
    np.testing.assert_allclose(-mode.hessian, precision, rtol=1e-5, atol=1e-6 * precision.max())
    assert mode.distance < 1e-6
    assert [one.outcome for one in modes.starts] == ["mode 1"] * 9
    assert [one.kind for one in modes.starts] == ["random", "prior", "subsample"] * 3
    assert all(one.log_density == mode.log_density for one in modes.starts)
    # Nine starts by L-BFGS on all the data take more than six times as much.
    assert n < 1000 or modes.n_passes < 35


@pytest.mark.parametrize("name", ["linear", "hierarchical_logistic"])
def test_constrained_parameters_with_their_jacobian(name: str) -> None:
    file = MODELS / f"{name}.stan"
    posterior = compile_model(file).with_data(example(file, observations=2003), block_size=32)
    mode = find_modes(posterior, rng()).best
    value, gradient = posterior.full.log_density_gradient(mode.position)
    assert value == pytest.approx(mode.log_density, abs=1e-6)
    assert np.linalg.norm(mode.cholesky.T @ gradient) < 1e-5

    def negative(theta: Array) -> tuple[float, Array]:
        value, gradient = posterior.full.log_density_gradient(theta)
        return -value, -gradient

    plain = optimize.minimize(negative, mode.position + 0.1, jac=True, method="BFGS", options={"gtol": 1e-4})
    assert distance(mode, plain.x) < 1e-3
    assert mode.log_density >= -plain.fun - 1e-8


def test_scales_that_differ_by_orders() -> None:
    scales = np.array([1e-4, 1.0, 1e4])
    x, y = simulated_logistic(3000, 3, scales=scales)
    mode = find_modes(logistic(x, y, prior_sd=1e6), rng(), points=[np.zeros(3)], starts=0).best
    p = expit(x @ mode.position)
    precision = (x.T * (p * (1 - p))) @ x + np.eye(3) / 1e12
    np.testing.assert_allclose(
        np.diag(mode.covariance), np.diag(np.linalg.inv(precision / np.outer(scales, scales))) / scales**2, rtol=1e-4
    )
    gradient = x.T @ (y - p) - mode.position / 1e12
    assert np.linalg.norm(mode.cholesky.T @ gradient) < 1e-5


def test_the_same_whatever_the_threads_and_again() -> None:
    x, y = simulated_logistic(20_000, 2)
    target = logistic(x, y, prior_sd=1.0, block_size=10)
    one, again, three = (find_modes(target, rng(), threads=threads).best for threads in (1, 1, 3))
    for other in (again, three):
        np.testing.assert_array_equal(one.position, other.position)
        np.testing.assert_array_equal(one.cholesky, other.cholesky)


def test_shares_of_the_data_are_scaled_once() -> None:
    x, y = simulated_logistic(1000, 2)
    target, theta = logistic(x, y, prior_sd=1.0, block_size=10), np.array([0.3, -0.2])
    with Team(target, threads=2) as team:
        value, gradient = Objective(team)(theta)
        parts = [Objective(team, part.astype(np.int32))(theta) for part in np.array_split(rng().permutation(100), 4)]
    eta = (2 * y - 1) * (x @ theta)
    assert value == pytest.approx(-np.logaddexp(0, -eta).sum() - 0.5 * theta @ theta, rel=1e-12)
    np.testing.assert_allclose(np.mean([part[1] for part in parts], axis=0), gradient, rtol=1e-12)
    assert np.mean([part[0] for part in parts]) == pytest.approx(value, rel=1e-12)


def test_hessians_beyond_all_numbers_are_infinite(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = simulated_logistic(1000, 2)
    monkeypatch.setattr(Objective, "many", lambda self, points, watch: (None, 1e200 * np.sign(points)))
    with Team(logistic(x, y, prior_sd=1.0, block_size=10), threads=2) as team, np.errstate(over="raise"):
        found = Objective(team).hessian(np.zeros(2), np.full(2, 1e-150))
    np.testing.assert_array_equal(np.diag(found), np.inf)


def test_hessians_tell_how_many_gradients_are_done() -> None:
    x, y = simulated_logistic(30_000, 3)
    target, theta, progress = logistic(x, y, prior_sd=1.0, block_size=10), np.zeros(3), Recording()
    with Team(target, threads=2, progress=progress) as team:
        progress("Curvature")
        Objective(team).hessian(theta, np.full(3, 1e-3))
        assert progress.counts[-1] == (6, 6)
        assert progress.counts == sorted(progress.counts)
        assert len({done for done, _ in progress.counts}) >= 5, "and not only at the end"
        progress.until(5)
        with pytest.raises(TimeLimitError, match="Curvature"):
            Objective(team).hessian(theta, np.full(3, 1e-3))


def two_modes(tilt: float = 0.0, n: int = 50) -> Target:
    """Modes near -1 and +1, log densities apart by about 2 tilt."""

    def each(theta: Array) -> tuple[Array, Array]:
        value = -((theta[0] ** 2 - 1) ** 2)
        return np.full(n, value), np.full((n, 1), -4 * theta[0] * (theta[0] ** 2 - 1))

    return Target(["mu"], n, each, lambda theta: (tilt * theta[0], np.array([tilt])))


def test_two_modes_are_both_found() -> None:
    points = [np.array([value]) for value in (-1.5, 0.4, 2.0, -0.2)]
    modes = find_modes(two_modes(1.5), rng(), points=points, starts=0)
    best, other = modes.found
    assert best.position[0] == pytest.approx(1.0, abs=0.01)
    assert other.position[0] == pytest.approx(-1.0, abs=0.01)
    assert best.log_density - other.log_density == pytest.approx(3.0, abs=0.01)
    assert [one.outcome for one in modes.starts] == ["mode 2", "mode 1", "mode 1", "mode 2"]
    # The two are equally wide but for the tilt: Laplace evidence is nearly that of the heights.
    assert modes.weights[1] == pytest.approx(1 / (1 + np.exp(3)), rel=0.05)
    assert (modes.choice().n_reached, modes.choice().n_starts) == (2, 4)
    assert modes.choice().shares == pytest.approx(modes.weights)
    assert "(2 of 4 starts); 2 modes with shares 0.95, 0.048 of the evidence" in modes.choice().describe()
    assert modes.lower == ()


def test_a_mode_without_a_share_of_the_evidence_is_recorded_and_not_kept() -> None:
    modes = find_modes(two_modes(15.0), rng(), points=[np.array([-1.0]), np.array([1.0])], starts=0)
    assert len(modes.found) == 1
    ((position, log_density),) = modes.lower
    assert position[0] == pytest.approx(-1.0, abs=0.1)
    assert modes.best.log_density - log_density == pytest.approx(30.0, abs=0.5)
    assert [one.outcome for one in modes.starts] == ["lower", "mode 1"]
    assert modes.choice().below == pytest.approx((30.0,), abs=0.5)
    assert "1 with negligible evidence, lower by 3" in modes.choice().describe()


def test_a_start_where_the_density_is_undefined_does_not_spoil_the_others() -> None:
    def each(theta: Array) -> tuple[Array, Array]:
        value = np.log(theta[0]) - theta[0] if theta[0] > 0 else np.nan
        return np.full(50, value), np.full((50, 1), 1 / theta[0] - 1)

    modes = find_modes(Target(["rate"], 50, each), rng(), points=[np.array([-1.0]), np.array([9.0])], starts=0)
    mode = modes.best
    assert mode.position[0] == pytest.approx(1.0, abs=1e-6)
    assert mode.cholesky[0, 0] == pytest.approx(50**-0.5, rel=1e-4)
    assert "not finite at the starting values" in modes.starts[0].outcome
    assert np.isnan(modes.starts[0].log_density)
    assert modes.starts[1].outcome == "mode 1"


def constant(names: list[str], slope: float = 0.0) -> Target:
    dim = len(names)
    return Target(
        names, 20, lambda theta: (np.full(20, slope * theta[0]), np.full((20, dim), slope * (np.arange(dim) == 0)))
    )


def only_the_sum(prior: Prior | None = None) -> Target:
    """Data on a sum of parameters; the prior is on another one unless given."""

    def each(theta: Array) -> tuple[Array, Array]:
        error = np.linspace(-1, 1, 40) - theta[0] - theta[1]
        return -0.5 * error**2, np.column_stack([error, error, np.zeros(40)])

    def third(theta: Array) -> tuple[float, Array]:
        return -0.5 * theta[2] ** 2, np.array([0, 0, -theta[2]])

    return Target(["a", "b.1", "c"], 40, each, prior or third)


def centred_groups() -> Target:
    """Effects and the log of their sd, without data to hold the effects away from 0."""

    def each(theta: Array) -> tuple[Array, Array]:
        tau, z = theta[-1], theta[:-1]
        gradient = np.zeros((len(z), len(theta)))
        with np.errstate(over="ignore", invalid="ignore"):
            values = -tau - 0.5 * (z * np.exp(-tau)) ** 2
            np.fill_diagonal(gradient, -z * np.exp(-2 * tau))
            gradient[:, -1] = -1 + (z * np.exp(-tau)) ** 2
        return values, gradient

    return Target([*(f"z.{k}" for k in range(1, 9)), "tau"], 8, each)


def kinked() -> Target:
    at = np.array([0.3, 0.3, 0.3])
    return Target(["mu"], 3, lambda theta: (-abs(theta[0] - at), -np.sign(theta - at)[:, np.newaxis]))


def edge() -> Target:
    """Rises up to 1, where it ends."""

    def each(theta: Array) -> tuple[Array, Array]:
        return np.full(5, theta[0] if theta[0] < 1 else np.nan), np.ones((5, 1))

    return Target(["share"], 5, each)


def separated() -> Target:
    x = rng().standard_normal((200, 2))
    return logistic(x, (x[:, 0] > 0).astype(float))


def undefined() -> Target:
    return Target(["mu"], 3, lambda theta: (np.full(3, np.nan), np.full((3, 1), np.nan)))


FAILURES = {
    "flat": (constant(["a", "b.1"]), "singular", ["a", "b[1]"], "proper priors"),
    "rising": (constant(["slope"], 1.0), "unbounded", ["slope"], r"\+infinity"),
    "only_the_sum": (only_the_sum(), "singular", ["a", "b[1]"], "do not determine (a and b.1.|b.1. and a) "),
    "centred_groups": (centred_groups(), "unbounded", ["tau"], "tau runs to -infinity"),
    "separated": (separated(), "boundary", ["beta[1]"], r"beta\[1\] runs to \+infinity .* stops falling"),
    "kinked": (kinked(), "rough", ["mu"], "as mu changes by an sd it falls by 0.006"),
    "edge": (edge(), "undefined", ["share"], "declare the bounds of share"),
    "undefined": (undefined(), "undefined", [], "give inits nearer"),
}


# Where nothing bounds the climb it takes all its iterations from each start.
FEW_STARTS = {"rising": 2, "centred_groups": 2}


@pytest.mark.parametrize("name", FAILURES)
def test_where_there_is_no_mode_it_is_said_why(name: str) -> None:
    target, reason, parameters, text = FAILURES[name]
    with pytest.raises(NoModeError, match=text) as raised:
        find_modes(target, rng(), starts=FEW_STARTS.get(name))
    assert isinstance(raised.value, RunError)
    assert raised.value.reason == reason
    assert sorted(raised.value.parameters) == parameters
    assert str(raised.value).startswith("no mode: ")
    assert "\n" not in str(raised.value)


def test_jumps_do_not_make_a_climb_long() -> None:
    """At a jump, line searches try all their halvings: more than 3,000 points without a limit of all of them."""
    random = rng()
    x = random.uniform(0, 10, 100)
    y = np.where(x < 4.2, 1.0, 1.3) + random.standard_normal(100)

    def each(theta: Array) -> tuple[Array, Array]:
        below, sd = x < theta[0], np.exp(theta[3])
        z = (y - np.where(below, theta[1], theta[2])) / sd
        return -0.5 * z**2 - theta[3], np.column_stack([np.zeros(100), z / sd * below, z / sd * ~below, z**2 - 1])

    names = ["at", "a", "b", "log_sd"]
    with Team(Target(names, 100, each, normal_prior(5.0), block_size=20).population) as team:
        for start in [5.0, 1.0, 1.0, 0.0] + rng(5).standard_normal((3, 4)) * [2.0, 0.5, 0.5, 0.2]:
            before = team.observations
            climb(Objective(team), Ascent(start, start), TOLERANCE, [], names)
            assert team.observations - before < 1000 * 100


def test_a_weak_prior_makes_the_same_a_mode() -> None:
    """The negative control of the failures above: what they lack is a prior, and nothing else is amiss."""
    x = rng().standard_normal((200, 2))
    mode = find_modes(logistic(x, (x[:, 0] > 0).astype(float), prior_sd=10.0), rng()).best
    assert mode.distance < 1e-6
    weak = only_the_sum(normal_prior(5.0))
    covariance = find_modes(weak, rng()).best.covariance
    assert covariance[0, 1] / covariance[0, 0] == pytest.approx(-1, abs=0.01)


def test_progress_is_told() -> None:
    x, y = simulated_logistic(30_000, 2)
    said: list[str] = []
    find_modes(logistic(x, y, prior_sd=1.0, block_size=10), rng(), starts=2, progress=said.append)
    assert said[0] == "Looking for modes: 1.7 % of the data"
    assert "Looking for modes: 10 % of the data from 1 point" in said
    assert said[-1] == "Curvature at the mode: 4 gradients of all the data"


class ScaledEffects:
    """Effects and their log scale; the data determine only the products, so that the ridge of both is long and bent."""

    dim, hessian_passes = 60, 120.0

    def __init__(self) -> None:
        self.products, self.precision, self.n_gradients = rng().normal(0, 0.3, self.dim - 1), 1e7, 0

    def __call__(self, theta: Array) -> tuple[float, Array]:
        self.n_gradients += 1
        log_scale, effects, scale = theta[0], theta[1:], np.exp(theta[0])
        left = scale * effects - self.products
        value = -0.5 * (log_scale**2 + effects @ effects + self.precision * left @ left)
        by_scale = -log_scale - self.precision * left @ effects * scale
        return float(value), np.array([by_scale, *(-effects - self.precision * left * scale)])

    def value(self, theta: Array) -> float:
        return self(theta)[0]

    def hessian(self, theta: Array, steps: Array) -> Array:
        changes = [self(theta + change)[1] - self(theta - change)[1] for change in np.diag(steps)]
        own = np.array(changes) / (2 * steps[:, np.newaxis])
        return (own + own.T) / 2

    def highest(self) -> float:
        """Return the maximum, of which the effects are known given their scale."""

        def lowest(log_scale: float) -> float:
            scale = np.exp(log_scale)
            effects = self.precision * scale * self.products / (1 + self.precision * scale**2)
            return -self(np.array([log_scale, *effects]))[0]

        return -float(optimize.minimize_scalar(lowest, bounds=(-3, 3), method="bounded").fun)


@pytest.mark.parametrize("seed", range(3))
def test_climb_along_a_bent_ridge_of_many_parameters_takes_few_hessians(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = rng(seed).uniform(-2, 2, ScaledEffects.dim)

    def climbed() -> tuple[Ascent, ScaledEffects]:
        objective, ascent = ScaledEffects(), Ascent(start, start)
        climb(cast("Objective", objective), ascent, SHARE_TOLERANCE, [], ["x"] * ScaledEffects.dim)
        return ascent, objective

    ascent, objective = climbed()
    assert ascent.failure is None
    assert ascent.value == pytest.approx(objective.highest(), abs=0.01)
    assert objective.n_gradients < 3500

    monkeypatch.setattr(climbing, "MANY_PASSES", np.inf)
    by_newton, _ = climbed()
    assert by_newton.failure is not None
    assert by_newton.value < objective.highest() - 1
