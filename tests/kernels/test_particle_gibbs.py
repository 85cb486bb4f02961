"""Particle Gibbs against smoothers that are known exactly: normal ones, and paths that can be counted."""

from __future__ import annotations

import pickle
import re
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pytest
from drawn import unconstrained
from numpy.typing import NDArray

import stansub
from stansub import FunctionFactors, InputError, Metropolis, OnParameters, ParticleGibbs, RunError, Sequence
from stansub.kernels.particle_gibbs import StateSpace, _draw, _places, _weights, sweep
from stansub.output import inference_data
from stansub.output.record import record_of

Array = NDArray[np.float64]
MAX_Z = 4.5
PHI = np.array([0.9])  # the position: what the models read their parameter from


@dataclass(frozen=True)
class Normal:
    """x_0 ~ N(0, 1), x_t ~ N(position[0] G x_(t-1), q^2 I), y_t ~ N(sum of x_t, 1), the same y for all series."""

    y: Array
    gain: Array
    q: float = 0.5

    def moved(self, position: Array, states: Array) -> Array:
        return position[0] * (states @ self.gain.T if self.gain.ndim else self.gain * states)

    def over_components(self, values: Array) -> Array:
        return values.sum(axis=-1) if self.gain.ndim else values

    def draw_first(self, rng: np.random.Generator, position: Array, shape: tuple[int, ...]) -> Array:
        return rng.standard_normal(shape)

    def draw_next(self, rng: np.random.Generator, position: Array, t: int, states: Array) -> Array:
        return rng.normal(self.moved(position, states), self.q)

    def log_transition(self, position: Array, t: int, states: Array, following: Array) -> Array:
        return self.over_components(-0.5 * ((following - self.moved(position, states)) / self.q) ** 2)

    def log_observation(self, position: Array, t: int, states: Array) -> Array:
        return -0.5 * (self.y[t] - self.over_components(states)) ** 2

    def smoother(self, phi: float) -> tuple[Array, Array]:
        """Mean and covariance of the path given y, components of a time side by side."""
        prior, mapped = self.prior(phi)
        precision = np.linalg.inv(prior) + mapped.T @ mapped
        covariance = np.linalg.inv(precision)
        return covariance @ mapped.T @ self.y, covariance

    def prior(self, phi: float) -> tuple[Array, Array]:
        """Covariance of the path, and the matrix that sums the components of each time."""
        gain = phi * np.atleast_2d(self.gain)
        k, n_times = len(gain), len(self.y)
        # The path as a linear map of independent innovations.
        blocks = np.zeros((n_times, k, n_times, k))
        for t, s in product(range(n_times), repeat=2):
            if s <= t:
                blocks[t, :, s] = np.linalg.matrix_power(gain, t - s) * (self.q if s else 1.0)
        linear = blocks.reshape(n_times * k, n_times * k)
        return linear @ linear.T, np.kron(np.eye(n_times), np.ones(k))


SCALAR = Normal(np.array([2.0, -1.0, 0.5, 2.5, 3.0, -2.0]), np.array(1.0))
PLANE = Normal(np.array([1.5, -1.0, 2.0, 0.5]), np.array([[1.0, 0.6], [-0.4, 0.7]]))


@dataclass(frozen=True)
class WithoutTransition(Normal):
    """The control: ancestors of the present path are drawn by their weights alone."""

    def log_transition(self, position: Array, t: int, states: Array, following: Array) -> Array:
        return np.zeros(states.shape[:2])


@dataclass(frozen=True)
class Chain:
    """A hidden Markov chain of three states, with likelihoods of y_t given each, shape (n_times, 3)."""

    first: Array
    transition: Array
    likelihood: Array

    def draw_first(self, rng: np.random.Generator, position: Array, shape: tuple[int, ...]) -> Array:
        return rng.choice(3, shape, p=self.first).astype(float)

    def draw_next(self, rng: np.random.Generator, position: Array, t: int, states: Array) -> Array:
        edges = self.transition.cumsum(axis=1)[states.astype(int)]
        return (rng.random(states.shape)[..., np.newaxis] > edges[..., :2]).sum(axis=-1).astype(float)

    def log_transition(self, position: Array, t: int, states: Array, following: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.log(self.transition[states.astype(int), following.astype(int)])

    def log_observation(self, position: Array, t: int, states: Array) -> Array:
        return np.log(self.likelihood[t, states.astype(int)])

    def paths(self) -> tuple[Array, Array]:
        """All paths, shape (n_times, n), and their probabilities given y."""
        paths = np.array(list(product(range(3), repeat=len(self.likelihood)))).T
        weight = self.first[paths[0]] * self.likelihood[0, paths[0]]
        for t in range(1, len(paths)):
            weight = weight * self.transition[paths[t - 1], paths[t]] * self.likelihood[t, paths[t]]
        return paths.astype(float), weight / weight.sum()


# One transition is impossible.
MARKOV = Chain(
    np.array([0.5, 0.3, 0.2]),
    np.array([[0.8, 0.15, 0.05], [0.3, 0.4, 0.3], [0.0, 0.2, 0.8]]),
    np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.9], [0.5, 0.5, 0.2], [0.9, 0.1, 0.3]]),
)


def plain_filter(rng: np.random.Generator, model: StateSpace, position: Array, path: Array, n_particles: int) -> Array:
    """The control: a particle filter that forgets to keep the present path, and a path of its particles."""
    series = np.arange(path.shape[1])
    paths = model.draw_first(rng, position, (n_particles, *path.shape[1:]))[np.newaxis]
    for t in range(len(path)):
        if t:
            paths = np.concatenate([paths, model.draw_next(rng, position, t, paths[-1])[np.newaxis]])
        chosen = _draw(rng, _weights(model.log_observation(position, t, paths[-1]), t, "observation"), n_particles)
        paths = paths[:, chosen, series]
    return paths[:, 0]


def swept(model: StateSpace, path: Array, n_sweeps: int = 1, **options: Any) -> Array:
    """The paths after some sweeps, each series a chain of its own."""
    rng = np.random.default_rng(5)
    for _ in range(n_sweeps):
        path = sweep(rng, model, PHI, path, **options).path
    return path


def from_smoother(model: Normal, n: int) -> Array:
    """Independent draws from the exact smoother, shape (n_times, n) or (n_times, n, k)."""
    draws = np.random.default_rng(3).multivariate_normal(*model.smoother(PHI[0]), n)
    shape = (n, len(model.y), *model.gain.shape[:1])
    return draws.reshape(shape).swapaxes(0, 1)


def largest_z(model: Normal, path: Array) -> float:
    """Errors of all means and covariances of independent paths, in standard errors."""
    mean, covariance = model.smoother(PHI[0])
    draws = path.swapaxes(0, 1).reshape(path.shape[1], -1) - mean
    seen = np.concatenate([draws, *(draws * draws[:, [k]] for k in range(len(mean)))], axis=1)
    truth = np.concatenate([np.zeros(len(mean)), covariance.ravel()])
    return float(np.abs((seen.mean(axis=0) - truth) / (seen.std(axis=0) / np.sqrt(len(seen)))).max())


def largest_z_of_paths(model: Chain, path: Array) -> float:
    """Errors of the frequencies of all paths, in standard errors."""
    n, (known, truth) = path.shape[1], model.paths()
    code = 3 ** np.arange(len(path))
    at = {int(code @ one): k for k, one in enumerate(known.T)}
    counts = np.bincount([at[int(one)] for one in code @ path], minlength=len(truth))
    assert not counts[truth == 0].any()
    likely = n * truth > 20
    return float(np.abs((counts - n * truth)[likely] / np.sqrt(n * truth * (1 - truth))[likely]).max())


def from_paths(model: Chain, n: int) -> Array:
    paths, weights = model.paths()
    return paths[:, np.random.default_rng(4).choice(len(weights), n, p=weights)]


N = 40_000
BOTH = pytest.mark.parametrize("ancestor_sampling", [True, False])
FEW = pytest.mark.parametrize("n_particles", [2, 3, 10])


class TestInvariance:
    """Paths that start from the exact smoother are still from it after a sweep, with any number of particles."""

    @BOTH
    @FEW
    def test_normal(self, n_particles: int, ancestor_sampling: bool) -> None:
        start = from_smoother(SCALAR, N)
        assert largest_z(SCALAR, start) < MAX_Z
        after = swept(SCALAR, start, n_particles=n_particles, ancestor_sampling=ancestor_sampling)
        assert 0.02 < (after != start).mean() < 1
        assert largest_z(SCALAR, after) < MAX_Z

    @BOTH
    @FEW
    def test_states_with_two_components(self, n_particles: int, ancestor_sampling: bool) -> None:
        start = from_smoother(PLANE, N)
        after = swept(PLANE, start, n_particles=n_particles, ancestor_sampling=ancestor_sampling)
        assert largest_z(PLANE, after) < MAX_Z

    @BOTH
    @FEW
    def test_counted_paths(self, n_particles: int, ancestor_sampling: bool) -> None:
        after = swept(MARKOV, from_paths(MARKOV, N), n_particles=n_particles, ancestor_sampling=ancestor_sampling)
        assert largest_z_of_paths(MARKOV, after) < MAX_Z

    @FEW
    def test_a_filter_that_forgets_the_present_path_fails(self, n_particles: int) -> None:
        rng = np.random.default_rng(5)
        after = plain_filter(rng, SCALAR, PHI, from_smoother(SCALAR, N), n_particles)
        assert largest_z(SCALAR, after) > 2 * MAX_Z
        counted = plain_filter(rng, MARKOV, PHI, from_paths(MARKOV, N), n_particles)
        assert largest_z_of_paths(MARKOV, counted) > 2 * MAX_Z

    @FEW
    def test_ancestors_without_the_transition_fail(self, n_particles: int) -> None:
        broken = WithoutTransition(SCALAR.y, SCALAR.gain)
        assert largest_z(SCALAR, swept(broken, from_smoother(SCALAR, N), n_particles=n_particles)) > 2 * MAX_Z


class TestConvergence:
    """Chains that start anywhere come to the exact smoother."""

    @pytest.mark.parametrize(
        ("n_particles", "ancestor_sampling", "n_sweeps"),
        [(2, True, 150), (5, True, 40), pytest.param(20, False, 40, marks=pytest.mark.slow)],
    )
    def test_moments(self, n_particles: int, ancestor_sampling: bool, n_sweeps: int) -> None:
        start = np.full((6, 4000), 3.0)
        after = swept(SCALAR, start, n_sweeps, n_particles=n_particles, ancestor_sampling=ancestor_sampling)
        assert largest_z(SCALAR, start + 1e-9 * np.random.default_rng(1).normal(size=start.shape)) > 2 * MAX_Z
        assert largest_z(SCALAR, after) < MAX_Z

    def test_counted_paths(self) -> None:
        assert largest_z_of_paths(MARKOV, swept(MARKOV, np.zeros((4, 20_000)), 40, n_particles=3)) < MAX_Z

    def test_ancestor_sampling_renews_the_beginning_of_a_long_path(self) -> None:
        """Without it the particles at the first times are all descended from the present path."""
        model = replace(SCALAR, y=np.random.default_rng(2).normal(size=100))
        start = np.zeros((100, 200))
        changed = [(swept(model, start, n_particles=5, ancestor_sampling=own)[0] != 0).mean() for own in (True, False)]
        assert changed[0] > 0.4
        assert changed[1] < 0.1


def test_share_renewed_and_effective_number_are_what_they_say() -> None:
    path, rng = from_smoother(SCALAR, 2000), np.random.default_rng(8)
    found = sweep(rng, SCALAR, PHI, path, n_particles=8)
    assert found.renewed == pytest.approx((found.path != path).mean())
    assert 1 < found.n_effective < 8
    flat = sweep(rng, FlatLikelihood(SCALAR.y, SCALAR.gain), PHI, path, n_particles=8)
    assert flat.n_effective == pytest.approx(8)


@dataclass(frozen=True)
class FlatLikelihood(Normal):
    def log_observation(self, position: Array, t: int, states: Array) -> Array:
        return np.zeros(states.shape[:2])


@dataclass(frozen=True)
class Impossible(Normal):
    def log_observation(self, position: Array, t: int, states: Array) -> Array:
        return np.full(states.shape[:2], -np.inf if t == 2 else 0.0)


def test_a_path_that_is_impossible_is_an_error() -> None:
    model = Impossible(SCALAR.y, SCALAR.gain)
    with pytest.raises(RunError, match="log density of the observation at time 2 is nan, or inf, or -inf for all"):
        swept(model, np.zeros((6, 3)), n_particles=4)


def test_draws_follow_the_weights_of_each_series() -> None:
    weights = np.array([[0.0, 0.7], [0.9, 0.3], [0.1, 0.0]])
    drawn = _draw(np.random.default_rng(6), weights, 40_000)
    shares = np.array([(drawn == k).mean(axis=0) for k in range(3)])
    assert (shares[weights == 0] == 0).all()
    assert (np.abs(shares - weights) < MAX_Z * np.sqrt(0.25 / 40_000)).all()


def test_the_script_of_the_page_runs() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "kernels.md").read_text()
    script = next(one for one in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "ParticleGibbs" in one)
    made: dict[str, Any] = {}
    # Shorter than on the page.
    shorter = script.replace("iter_warmup=500, iter_sampling=4000", "iter_warmup=20, iter_sampling=20")
    assert shorter != script
    exec(shorter.replace("seed=1)", "seed=1, show_progress=False)"), made)
    renewed = inference_data.group(made["idata"], "sample_stats")["states.path_renewed"].values
    assert renewed.mean() > 0.5


class TestRecipe:
    """phi ~ N(0, 1), and four series as in `Normal`, with different data: phi by quadrature."""

    Y = np.random.default_rng(7).normal(0.0, 1.5, (5, 4))  # (n_times, n_series)
    NAMES = ("phi", *(f"x.{s}.{t}" for s in range(1, 5) for t in range(1, 6)))

    def target(self) -> FunctionFactors:
        """The transitions of a series are a factor."""

        def log_lik(theta: Array, which: NDArray[np.int32]) -> Array:
            x = theta[1:].reshape(4, 5)[which]
            return -0.5 * (((x[:, 1:] - theta[0] * x[:, :-1]) / 0.5) ** 2).sum(axis=1)

        return FunctionFactors(self.NAMES, 4, log_lik, log_density=lambda theta: float(-0.5 * theta[0] ** 2))

    def truth(self) -> tuple[float, float]:
        grid = np.linspace(-3, 3, 401)
        each = Normal(self.Y[:, 0], np.array(1.0))
        marginal = np.array([each.prior(phi)[0] for phi in grid]) + np.eye(5)
        squares = (self.Y * np.linalg.solve(marginal, self.Y)).sum(axis=(1, 2))
        log_weight = -0.5 * (grid**2 + squares + 4 * np.linalg.slogdet(marginal)[1])
        weight = np.exp(log_weight - log_weight.max())
        weight /= weight.sum()
        mean = weight @ grid
        return float(mean), float(np.sqrt(weight @ (grid - mean) ** 2))

    def drawn(self, model: Normal, **options: Any) -> Any:
        states = ParticleGibbs(model, ["x"], n_particles=4)
        kernel = Sequence(states=states, phi=OnParameters(Metropolis("random-walk"), ["phi"]))
        given: Any = {"iter_warmup": 300, "iter_sampling": 1200, "test": "exact", "control_variates": 0, "seed": 2}
        return stansub.sample(self.target(), kernel=kernel, show_progress=False, **given | options)

    def largest_z(self, idata: Any) -> float:
        draws, (mean, sd) = inference_data.group(idata, "posterior")["phi"].values, self.truth()
        errors = (draws.mean() - mean) / az.mcse(draws), (draws.std() - sd) / az.mcse(draws, method="sd")
        return float(np.abs(errors).max())

    @pytest.mark.slow
    def test_parameters_beside_paths(self) -> None:
        idata = self.drawn(Normal(self.Y, np.array(1.0)))
        assert self.largest_z(idata) < MAX_Z
        stats = inference_data.group(idata, "sample_stats")
        assert 0.4 < stats["states.path_renewed"].values.mean() < 0.9
        assert 1 < stats["states.n_effective"].values.mean() < 4
        assert (stats["n_decisions"].values == 1).all()
        assert (stats["n_obs_used"].values == 4).all()
        record = record_of(idata)
        assert record.acceptance_rate == pytest.approx(stats["phi.accepted"].values.mean())
        assert record.share_of_data == 1.0

    @pytest.mark.slow
    def test_ancestors_without_the_transition_fail(self) -> None:
        assert self.largest_z(self.drawn(WithoutTransition(self.Y, np.array(1.0)))) > 2 * MAX_Z

    def test_a_run_is_resumed(self, tmp_path: Path) -> None:
        model, options = Normal(self.Y, np.array(1.0)), {"chains": 2, "iter_warmup": 100}
        whole = self.drawn(model, iter_sampling=60, **options)
        self.drawn(model, iter_sampling=30, checkpoint=tmp_path / "run", **options)
        more = self.drawn(model, iter_sampling=60, resume=tmp_path / "run", **options)
        np.testing.assert_array_equal(unconstrained(whole), unconstrained(more))

    def test_it_travels(self) -> None:
        kernel = ParticleGibbs(MARKOV, ["x"])
        again = pickle.loads(pickle.dumps(kernel))
        assert (again.names, again.n_particles) == (["x"], 20)

    def test_states_are_found_by_time_and_series(self) -> None:
        places = _places(self.NAMES, ["x"])
        assert [self.NAMES[k] for k in places[:, 1]] == [f"x.2.{t}" for t in range(1, 6)]
        assert _places(["x.1", "phi", "x.2"], ["x"]).tolist() == [[0], [2]]
        assert _places(["x.1", "x.2", "v.1", "v.2"], ["x", "v"]).tolist() == [[[0, 2]], [[1, 3]]]

    def test_what_makes_no_kernel_is_refused(self) -> None:
        for model in (3, Normal):
            with pytest.raises(InputError, match="needs a model with draw_first"):
                ParticleGibbs(model, ["x"])  # type: ignore[arg-type]
        with pytest.raises(InputError, match="n_particles must be at least 2"):
            ParticleGibbs(SCALAR, ["x"], n_particles=1)
        for names in ("x", []):
            with pytest.raises(InputError, match="needs the names of the parameters"):
                ParticleGibbs(SCALAR, names)
        with pytest.raises(InputError, match="'z' is not a parameter of the model; it has phi, x"):
            _places(self.NAMES, ["z"])
        with pytest.raises(InputError, match="phi cannot hold paths"):
            _places(self.NAMES, ["phi"])
        with pytest.raises(InputError, match="must have the same shape"):
            _places(["x.1", "x.2", "v.1"], ["x", "v"])
