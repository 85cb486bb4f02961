"""Surrogate transitions from end to end on a small multilevel regression."""

import copy
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import arviz as az
import multilevel
import numpy as np
import pytest
import scipy.sparse as sp
from multilevel import J, K, N

import stansub
from stansub import CompiledModel, InputError, Posterior, RunError
from stansub.kernels.surrogate import (
    GivenScales,
    MixedTransitions,
    NoUTurn,
    PosteriorTrajectories,
    SurrogateTransitions,
)
from stansub.output.inference_data import attrs, group
from stansub.progress import Progress, StoppedError
from stansub.run import transitions as run_transitions
from stansub.run.config import SampleConfig
from stansub.run.posteriors import make_uncut, read
from stansub.selection import Along, StepCost
from stansub.stan import shares, sparse
from stansub.stan.shares import Shares
from stansub.stan.surrogate import Split
from stansub.target import threads
from stansub.target.approximation import Approximation, approximation
from stansub.target.group_candidates import Joint
from stansub.target.inner_density import InnerDensity
from stansub.target.normal_effects import NormalEffects
from stansub.target.rows import ColumnRows
from stansub.target.sparse import Quadratic
from stansub.tuning import transitions
from stansub.tuning.effects.coordinates import find_effects
from stansub.tuning.effects.normal_effects import find_normal_effects
from stansub.tuning.surrogates import maxima, on_posterior, starting, surrogate, warmup
from stansub.tuning.surrogates.far_starts import begun
from stansub.tuning.surrogates.hmc import Tuner
from stansub.tuning.surrogates.interactions import interactions, surrogate_interactions
from stansub.tuning.surrogates.surrogate import FarError, TunedSurrogate, tune

MAX_Z = 4.5


def largest_r_hat(idata: Any) -> float:
    found = az.rhat(group(idata, "posterior"))
    return max(float(found[name].max()) for name in found.data_vars)


@pytest.fixture(scope="module")
def program() -> CompiledModel:
    return stansub.compile_model(multilevel.PROGRAM)


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    return multilevel.simulated()


@pytest.fixture(scope="module")
def posterior(program: CompiledModel, data: dict[str, Any]) -> Posterior:
    return program.with_data(data)


@pytest.fixture(scope="module")
def tuned(posterior: Posterior) -> TunedSurrogate:
    """With the no-U-turn sampler: rounding, which differs between processors, decides whether others suit as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(surrogate, "find_normal_effects", lambda *given: None)
        patch.setattr(Tuner, "_fixed_length", lambda *given: None)
        found = tune(posterior.split(), posterior.dim, np.random.default_rng(0), Progress())
    assert isinstance(found.transition.inner, NoUTurn)
    return found


@pytest.fixture(scope="module")
def effects(posterior: Posterior, tuned: TunedSurrogate) -> NormalEffects:
    split, about, rng = posterior.split(), tuned.transition.approximation, np.random.default_rng(0)
    full = find_effects(split.surrogate(about).phi, tuned.draws[0], rng).full
    found = find_normal_effects(split, about, full, tuned.draws, rng)
    assert found is not None
    return found.about(about, tuned.draws)


@pytest.fixture(scope="module")
def corrected(posterior: Posterior, tuned: TunedSurrogate) -> Approximation:
    """An expansion with corrections, whether or not they pay at these few observations."""
    split = posterior.split()
    own = split.surrogate(tuned.transition.approximation)
    return approximation(split.predictors, [own.phi(theta) for theta in tuned.draws])[0]


def test_chains_begin_at_inits_that_they_can_leave_and_otherwise_where_a_climb_from_there_leads(
    program: CompiledModel, data: dict[str, Any], posterior: Posterior, tuned: TunedSurrogate
) -> None:
    rng = np.random.default_rng(2)
    near, far = tuned.draws[7], rng.uniform(-2, 2, posterior.dim)
    starts, moved = begun(posterior.split(), tuned, [near, far, far + 40], rng, Progress())
    np.testing.assert_array_equal(starts[0], near)
    assert moved == (1, 2)
    assert all(any(np.array_equal(one, draw) for draw in tuned.draws) for one in starts[1:])
    options: dict[str, Any] = {"proposal": "surrogate", "seed": 1, "iter_sampling": 500, "show_progress": False}
    idata = stansub.sample(program, data, inits=2, **options)
    assert "begin about the maximum" in attrs(idata)["choices"]["starts"]
    assert largest_r_hat(idata) < 1.05


def test_a_time_limit_ends_the_proof_of_a_surrogate(
    program: CompiledModel, data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its passes over the data may take minutes."""
    progress, prior = Progress(), Split.prior

    def ended(*args: Any, **options: Any) -> Any:
        progress.stop[0] = 1
        return prior(*args, **options)

    monkeypatch.setattr(Split, "prior", ended)
    with pytest.raises(StoppedError):
        program.with_data(data).split(progress)


class Weighted:
    """Draws of the surrogate, weighted by what it leaves out: the posterior, with nothing accepted or rejected."""

    def __init__(self, posterior: Posterior, tuned: TunedSurrogate, n: int) -> None:
        split, transition, rng = posterior.split(), tuned.transition, np.random.default_rng(1)
        own = split.surrogate(transition.approximation)
        inner = transition.inner.bound(own)
        theta, draws, remainders = tuned.draws[0].copy(), np.empty((n, posterior.dim)), np.empty(n)
        for k in range(n):
            inner(rng.bit_generator.capsule, theta)
            phi = own.phi(theta)
            draws[k], remainders[k] = theta, split.predictors.log_lik(phi) - transition.approximation(phi)
        weights = np.exp(remainders - remainders.max())
        self.draws, self.weights = draws, weights / weights.sum()

    def unweighted(self) -> "Weighted":
        """The surrogate itself."""
        found = copy.copy(self)
        found.weights = np.full(len(self.weights), 1 / len(self.weights))
        return found

    def mean(self, of: Any) -> float:
        return float(self.weights @ of(self.draws))

    def error(self, of: Any) -> float:
        """Standard error of that, of draws that are nearly independent."""
        values = of(self.draws)
        return float(np.sqrt(np.sum(self.weights**2 * (values - self.mean(of)) ** 2)))


class NotCorrected(SurrogateTransitions):
    """A broken kernel, whose decisions do not know of corrections."""

    def __init__(self, split: Any, transition: Any) -> None:
        super().__init__(split, transition)
        plain = replace(transition, approximation=Approximation.plain(transition.approximation.quadratic))
        self._decisions = plain.decisions(split.predictors)


class NotDecided(SurrogateTransitions):
    """A broken kernel, which takes the surrogate for the posterior."""

    def step(self, rng: Any, state: Any, params: Any, *, audit: bool = False) -> Any:
        """Moves that are rejected are taken all the same."""
        position = np.array(state.position)
        self._inner(rng.bit_generator.capsule, position, 1)
        return state._replace(position=position), {}


def run(kernel: SurrogateTransitions, start: Any, n: int) -> Any:
    rng, state, draws = np.random.default_rng(2), kernel.init(start), []
    for _ in range(n):
        state, _ = kernel.step(rng, state, None)
        draws.append(state.position)
    return np.array(draws)


def z_scores(draws: Any, truth: Weighted) -> list[float]:
    """Of means and mean squares of all parameters, in standard errors of both sides."""
    found = []
    centre = truth.draws.mean(0)
    for k in range(draws.shape[1]):
        for power in (1, 2):

            def of(theta: Any, k: int = k, power: int = power) -> Any:
                return (theta[:, k] - centre[k]) ** power

            values = of(draws)
            own = np.std(values) / np.sqrt(float(az.ess(values[np.newaxis])))
            error = np.hypot(own, 1.5 * truth.error(of))  # its draws are not quite independent
            found.append(abs(values.mean() - truth.mean(of)) / error)
    return found


@pytest.fixture(scope="module")
def truth(posterior: Posterior, tuned: TunedSurrogate) -> Weighted:
    return Weighted(posterior, tuned, 8000)


def test_rows_are_found(posterior: Posterior) -> None:
    (row,) = posterior.split().predictors.rows
    assert row.dense.shape == (N, 2 + J)  # of variables with few elements too
    assert row.gathered.nnz == N
    assert posterior.split().predictors.dim == 2 + J + K


@pytest.fixture
def as_if_tall(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if these rows were very many: the program has shares of them, and they are followed by parts."""
    monkeypatch.setattr(shares, "_LEAST", 0)
    monkeypatch.setattr(shares, "_SHARE", 2_000)
    monkeypatch.setattr(sparse, "_ROWS", 70)


def uncut(given: CompiledModel | Path, data: dict[str, Any]) -> Posterior:
    model = read(given if isinstance(given, CompiledModel) else stansub.compile_model(given), data, Progress())
    return make_uncut(model, seed=1, observations=None, log=Progress())[0]


def test_tall_data_are_in_shares(program: CompiledModel, data: dict[str, Any], as_if_tall: None) -> None:
    """The program never has all rows at once, its shares prove the likelihood, and rows stay in the data."""
    posterior = uncut(program, data)
    assert isinstance(posterior.full, Shares)
    (row,) = posterior.split().predictors.rows
    assert isinstance(row.dense, ColumnRows)
    whole = program.read_data(data).model(program.original)
    theta = np.random.default_rng(1).standard_normal(posterior.dim)
    value, gradient = posterior.population.evaluator().subset_log_density_gradient(theta)
    assert value == pytest.approx(whole.log_density(theta), rel=1e-12)
    np.testing.assert_allclose(gradient, whole.log_density_gradient(theta)[1], rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_rows_that_read_all_others_are_proved_with_all(tmp_path: Path, data: dict[str, Any], as_if_tall: None) -> None:
    """A mean of all rows is another one in each share and each part."""
    text = multilevel.PROGRAM.read_text()
    centred = tmp_path / "centred.stan"
    centred.write_text(text.replace("* x", "* (x - mean(x))"))
    assert centred.read_text() != text
    posterior = uncut(centred, data)
    assert isinstance(posterior.full, Shares)
    (row,) = posterior.split().predictors.rows
    np.testing.assert_allclose(row.matrix[:, 1], data["x"] - data["x"].mean())


def test_draws_are_of_the_posterior(
    posterior: Posterior, tuned: TunedSurrogate, truth: Weighted, corrected: Approximation, effects: NormalEffects
) -> None:
    split, start, about = posterior.split(), tuned.draws[0], corrected
    # Expanded so far off that what it leaves out matters, and corrected at random.
    off = about.point + np.repeat([0.6, 0.0], [1, 1 + J + K])
    slope = np.random.default_rng(3).normal(0, 0.4, 2 + J + K)
    profiles = replace(about.profiles, tables=2 * about.profiles.tables)
    poor = replace(
        tuned.transition,
        approximation=replace(
            about, quadratic=split.predictors.expansion(off), slope=slope, profiles=profiles, most=1e3
        ),
        joint=None,
    )
    assert max(z_scores(run(SurrogateTransitions(split, poor), start, 5000), truth)) < MAX_Z
    jointly = replace(poor, joint=Joint(2.0, 1e9, 0.0), n=3)
    assert max(z_scores(run(SurrogateTransitions(split, jointly), start, 5000), truth)) < MAX_Z
    given_scales = replace(poor, inner=GivenScales(effects, 0.7, 3), n=2)
    assert max(z_scores(run(SurrogateTransitions(split, given_scales), start, 5000), truth)) < MAX_Z
    for broken in (NotCorrected(split, poor), NotCorrected(split, jointly), NotDecided(split, poor)):
        assert max(z_scores(run(broken, start, 2000), truth)) > 2 * MAX_Z


def test_trajectories_on_the_posterior_are_of_the_posterior(
    posterior: Posterior, tuned: TunedSurrogate, truth: Weighted
) -> None:
    """Also if their metric is that of another distribution."""
    split, start, inner = posterior.split(), tuned.draws[0], tuned.transition.inner
    assert isinstance(inner, NoUTurn)
    for one in (inner, replace(inner, centre=inner.centre + 0.5, step_size=0.3)):
        kernel = replace(tuned.transition, on_posterior=one, share=1.0).kernel(split)
        assert isinstance(kernel, PosteriorTrajectories)
        assert max(z_scores(run(kernel, start, 4000), truth)) < MAX_Z
        assert kernel.counts()["n_obs_evaluated"] >= 4000 * 2 * N


def test_gradients_of_the_posterior_are_those_of_the_program(
    program: CompiledModel, data: dict[str, Any], posterior: Posterior
) -> None:
    """They need no autodiff over the data; threads may evaluate them at once."""
    whole, found = program.read_data(data).model(program.original), posterior.split().posterior()
    assert found is not None
    points = 0.5 * np.random.default_rng(6).standard_normal((40, posterior.dim))
    with ThreadPoolExecutor(max_workers=4) as pool:
        made = list(pool.map(found.model.log_density_gradient, points))
    for theta, (value, gradient) in zip(points, made, strict=True):
        expected = whole.log_density_gradient(theta)
        assert value == pytest.approx(expected[0], rel=1e-12)
        np.testing.assert_allclose(gradient, expected[1], rtol=1e-9, atol=1e-9)
        assert found.model.log_density(theta) == pytest.approx(value, rel=1e-12)


@pytest.fixture
def as_if_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if gradients of all the data cost little, and no scale were uncertain."""
    monkeypatch.setattr(on_posterior, "_MANY", 0)
    monkeypatch.setattr(on_posterior, "_LITTLE", np.inf)
    monkeypatch.setattr(surrogate, "_SMALL_ENOUGH", 0.0)
    monkeypatch.setattr("stansub.tuning.effects.normal_effects._UNCERTAIN", np.inf)


def test_the_record_says_why_trajectories_on_the_posterior_use_all_data(
    program: CompiledModel, data: dict[str, Any], as_if_cheap: None
) -> None:
    options: dict[str, Any] = {"proposal": "surrogate", "seed": 1, "chains": 1, "show_progress": False}
    choices = attrs(stansub.sample(program, data, **options, iter_warmup=20, iter_sampling=20))["choices"]
    assert "trajectories on the posterior itself take gradients of all" in choices["test"]


def test_trajectories_on_the_posterior_if_its_gradients_are_cheap(
    posterior: Posterior, truth: Weighted, as_if_cheap: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without corrections; not if a scale is uncertain."""
    split = posterior.split()
    found = tune(split, posterior.dim, np.random.default_rng(0), Progress())
    transition = found.transition
    assert transition.share == 1
    assert transition.on_posterior is transition.inner
    assert not transition.approximation.is_corrected
    assert "on the posterior itself" in transition.describe()
    kernel = transition.kernel(split)
    assert isinstance(kernel, PosteriorTrajectories)
    assert max(z_scores(run(kernel, found.draws[0], 4000), truth)) < MAX_Z
    trial = transitions.tried(split, found, np.random.default_rng(1), Progress())
    assert trial.tuned is found
    assert trial.accepted > 0.8
    assert trial.cost is not None
    assert trial.cost.gradients >= 2
    monkeypatch.setattr("stansub.tuning.effects.normal_effects._UNCERTAIN", 0.2)
    assert tune(split, posterior.dim, np.random.default_rng(0), Progress()).transition.on_posterior is None


def test_interactions_follow_from_the_expansion_and_from_what_no_data_are_in(
    posterior: Posterior, tuned: TunedSurrogate
) -> None:
    """They are those that one gradient of the surrogate per parameter shows."""
    split, coordinates = posterior.split(), tuned.transition.inner.coordinates
    plain = Approximation.plain(tuned.transition.approximation.quadratic)
    theta = coordinates.inward(tuned.draws[0])
    found = surrogate_interactions(split, plain, coordinates, theta, lambda: None).toarray()
    density = InnerDensity(split.surrogate(plain).model, coordinates)
    np.testing.assert_array_equal(found, interactions(density, theta).toarray())
    assert not found.all()
    without = InnerDensity(split.prior().model, coordinates)
    assert interactions(without, theta).sum() < found.sum() / 2


@pytest.mark.parametrize("bends_up", [False, True])
def test_a_surrogate_that_bends_up_is_explored_from_its_expansion_point(posterior: Posterior, bends_up: bool) -> None:
    """From elsewhere its draws run away. Others may start anywhere."""
    split = posterior.split()
    m = split.predictors.dim
    point, sign = split.prior().phi(0.5 * np.random.default_rng(1).standard_normal(posterior.dim)), 1.0 - 2 * bends_up
    bent = Approximation.plain(Quadratic.of(point, 0.0, np.zeros(m), sign * sp.eye_array(m, format="csr")))
    _, start = surrogate.Exploration.of(split, bent, posterior.dim, np.random.default_rng(2), Progress())
    distance = np.abs(split.prior().phi(start) - point).max()
    assert distance < 0.1 if bends_up else distance > 0.3


def test_trajectories_on_the_posterior_without_a_maximum_of_the_likelihood(
    posterior: Posterior, truth: Weighted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They begin in several places, so that chains may see other modes."""
    starts: list[Any] = []

    def noted(*args: Any, **options: Any) -> Any:
        starts.append(starting.find_start(*args, **options))
        return starts[-1]

    monkeypatch.setattr(warmup, "find_start", noted)
    monkeypatch.setattr(maxima, "_search", lambda *_: ([], 0))
    monkeypatch.setattr(type(posterior.split().predictors.family), "is_known", False)
    split, rngs = posterior.split(), np.random.default_rng(0).spawn(2)
    found = maxima.tune(split, posterior.dim, *rngs, Progress())
    assert found.along is Along.NO_MAXIMUM
    assert len(np.unique(starts, axis=0)) == 4
    kernel = found.transition.kernel(split)
    assert isinstance(kernel, PosteriorTrajectories)
    for start in found.starts(4):
        assert max(z_scores(run(kernel, start, 2000), truth)) < MAX_Z
    monkeypatch.setattr(threads, "THREADS", 1)
    alone = maxima.tune(split, posterior.dim, *np.random.default_rng(0).spawn(2), Progress())
    np.testing.assert_array_equal(alone.draws, found.draws)


@pytest.mark.parametrize(("cheap", "n_expansions"), [(True, 1), (False, 3)])
def test_expansions_that_do_not_lead_to_the_posterior(
    cheap: bool,
    n_expansions: int,
    posterior: Posterior,
    truth: Weighted,
    as_if_cheap: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They end at once if trajectories on the posterior cost as little, or else soon; these trajectories follow."""
    split, explored, made = posterior.split(), surrogate.Exploration._explored, list[float]()

    def astray(*args: Any) -> Any:
        made.append(np.inf if made else 1e3)
        return explored(*args)._replace(noise=made[-1])

    monkeypatch.setattr(surrogate.Exploration, "_explored", astray)
    monkeypatch.setattr(surrogate, "is_cheap", lambda *_: cheap)
    with pytest.raises(FarError):
        tune(split, posterior.dim, np.random.default_rng(0), Progress())
    assert len(made) == 1 + n_expansions
    made.clear()
    found = maxima.tune(split, posterior.dim, *np.random.default_rng(0).spawn(2), Progress())
    assert found.along is Along.FAR
    assert max(z_scores(run(found.transition.kernel(split), found.draws[0], 2000), truth)) < MAX_Z


def test_draws_that_run_away_make_no_warning_of_numpy(posterior: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    def far(*_: Any) -> None:
        assert np.std([1e200, -1e200]) == np.inf
        raise RunError("far away")

    monkeypatch.setattr(run_transitions, "tune", far)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RunError, match="far away"):
            run_transitions._with_surrogate(posterior, 0.0, SampleConfig(seed=1), Progress())


def test_some_steps_may_be_trajectories_on_the_posterior(
    posterior: Posterior, tuned: TunedSurrogate, truth: Weighted
) -> None:
    """Beside transitions on a surrogate that omits much; a broken kernel is seen among them."""
    split, start, inner = posterior.split(), tuned.draws[0], tuned.transition.inner
    assert isinstance(inner, NoUTurn)
    plain = Approximation.plain(tuned.transition.approximation.quadratic)
    slope = np.random.default_rng(3).normal(0, 0.4, 2 + J + K)
    poor = replace(tuned.transition, approximation=replace(plain, slope=slope), joint=None)
    poor = replace(poor, on_posterior=inner, share=0.3)
    kernel = poor.kernel(split)
    assert isinstance(kernel, MixedTransitions)
    assert max(z_scores(run(kernel, start, 5000), truth)) < MAX_Z
    assert kernel.counts()["n_obs_evaluated"] > 1.2 * 5000 * N
    assert "30 % of the steps by NUTS on the posterior itself" in poor.describe()
    broken = MixedTransitions(NotDecided(split, poor), PosteriorTrajectories(split.posterior(), N, inner), 0.3)
    assert max(z_scores(run(broken, start, 5000), truth)) > 2 * MAX_Z


def test_trajectories_on_the_posterior_by_default(
    program: CompiledModel,
    data: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(transitions, "_RARELY", 1.01)
    monkeypatch.setattr(transitions, "_SOMETIMES", 1.0)
    monkeypatch.setattr(run_transitions, "_LONG", 0.0)
    options: dict[str, Any] = {"proposal": "surrogate", "seed": 1, "chains": 2, "show_progress": False}
    idata = stansub.sample(program, data, **options, iter_sampling=400)
    assert "on the posterior itself" in attrs(idata)["choices"]["proposal"]
    cost = attrs(idata)["choice_values"]["cost of a step"]
    assert 2 <= cost["gradients"] < 32
    assert f"1,200 steps of {StepCost(cost['gradients'], cost['seconds']).describe()}." in capsys.readouterr().err
    assert float(idata.sample_stats["accepted"].mean()) > 0.8
    assert largest_r_hat(idata) < 1.05
    file = tmp_path / "run.checkpoint"
    stansub.sample(program, data, **options, iter_sampling=150, checkpoint=file)
    resumed = stansub.sample(program, data, **options, iter_sampling=400, resume=file)
    np.testing.assert_array_equal(resumed.posterior["v"], idata.posterior["v"])


def swept(sampler: Any, start: Any, n: int) -> Any:
    rng, theta, draws = np.random.default_rng(4), start.copy(), []
    for _ in range(n):
        sampler(rng.bit_generator.capsule, theta)
        draws.append(theta.copy())
    return np.array(draws)


def test_sweeps_are_of_the_surrogate(
    posterior: Posterior, tuned: TunedSurrogate, truth: Weighted, effects: NormalEffects
) -> None:
    """Also if the effects' likelihood and the priors of scales are not the surrogate's."""
    split, start = posterior.split(), tuned.draws[0]
    own = split.surrogate(tuned.transition.approximation)
    truth = truth.unweighted()
    off = replace(effects, linear=effects.linear + 0.3, slopes=0.5 * effects.slopes, values=0.5 * effects.values)
    for given in (effects, off):
        assert max(z_scores(swept(own.of_effects(given).gibbs, start, 8000), truth)) < MAX_Z
    assert max(z_scores(swept(off.compiled().sweep, start, 8000), truth)) > 2 * MAX_Z


def test_the_program_has_the_approximation(
    posterior: Posterior, tuned: TunedSurrogate, corrected: Approximation
) -> None:
    split, about = posterior.split(), corrected
    assert np.abs(about.slope).max() > 0
    assert len(about.profiles.places) == K
    own, prior = split.surrogate(about), split.prior(fixed_scales=True)
    differences = []
    for theta in tuned.draws[:5]:
        phi = own.phi(theta)
        constant = about.quadratic.value  # is of no concern to it
        differences.append(own.model.log_density(theta) - prior.model.log_density(theta) - about(phi) + constant)
    np.testing.assert_allclose(differences, 0, atol=1e-9)


def test_by_name(program: CompiledModel, data: dict[str, Any], tmp_path: Path) -> None:
    options: dict[str, Any] = {"proposal": "surrogate", "seed": 1, "chains": 2, "show_progress": False}
    idata = stansub.sample(program, data, **options, iter_sampling=400)
    assert idata.posterior.sizes["draw"] == 400
    assert float(idata.sample_stats["accepted"].mean()) > 0.3
    assert (idata.sample_stats["n_obs_used"] == N).all()
    assert "likelihood's own arguments" in str(idata.attrs["choices"])
    # A run that ended early goes on to the same draws.
    file = tmp_path / "run.checkpoint"
    stansub.sample(program, data, **options, iter_sampling=150, checkpoint=file)
    resumed = stansub.sample(program, data, **options, iter_sampling=400, resume=file)
    np.testing.assert_array_equal(resumed.posterior["v"], idata.posterior["v"])


def test_only_from_all_observations(program: CompiledModel, data: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="chooses its own test"):
        stansub.sample(program, data, proposal="surrogate", test="pocock")


def test_no_surrogate_of_functions() -> None:
    factors = stansub.FunctionFactors(["a"], 10, lambda theta, which: np.zeros(len(which)))
    with pytest.raises(InputError, match="this likelihood has no surrogate"):
        stansub.sample(factors, proposal="surrogate")


@pytest.mark.parametrize(
    ("level", "corrected", "strays"),
    [(-15.0, True, True), (-2.5, True, True), (-1.5, True, False), (-15.0, False, False)],
)
def test_corrections_that_attract_draws_to_where_none_were_are_told(
    level: float, corrected: bool, strays: bool
) -> None:
    """Remainders of 0 at earlier draws; under the posterior their mean is larger by about their variance."""
    exploration: Any = SimpleNamespace(_remainders=lambda _, draws: np.zeros(len(draws)))
    approximation = SimpleNamespace(is_corrected=corrected)
    found: Any = SimpleNamespace(approximation=approximation, level=level, noise=0.6)
    assert surrogate.Exploration.strays(exploration, found, np.zeros((50, 2)))[0] == strays


def test_corrections_that_are_wrong_at_the_draws_for_steps_are_left_out(
    posterior: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Draws of a surrogate were once where its corrections exceeded the likelihood by hundreds."""
    choose, made = surrogate.choose_sampler, []

    def far(of: Any, about: Any, *args: Any) -> Any:
        tuned = choose(of, about, *args)
        made.append(about)
        return tuned if len(made) > 1 else tuned._replace(draws=tuned.draws + 3 * np.std(tuned.draws, axis=0))

    monkeypatch.setattr(surrogate, "choose_sampler", far)
    found = tune(posterior.split(), posterior.dim, np.random.default_rng(0), Progress())
    assert [one.is_corrected for one in made] == [True, False]
    assert found.transition.approximation is made[1]
