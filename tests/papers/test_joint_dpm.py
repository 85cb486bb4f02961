"""The joint Dirichlet process mixture: its kernels keep the joint distribution, broken ones do not; its formulas."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import multigammaln

from stansub import Sequence
from stansub.diagnostics.joint import Joint, JointTest, joint_distribution_test
from stansub.run.checkpoint_types import CODEC

FOLDER = Path(__file__).parents[2] / "examples" / "papers" / "joint_dpm"
sys.path.insert(0, str(FOLDER))
import dpm  # noqa: E402

Array = NDArray[np.float64]
Data = tuple[Array, NDArray[np.bool_]]
N = 10
PRIORS = dpm.Priors(k0=0.5, v0=6.0, s0=3.0, sd_w=1.0)


def model(x: Array, y: NDArray[np.bool_]) -> dpm.JointDPM:
    return dpm.JointDPM(x, y, PRIORS, n_slots=N + 1)


EMPTY = model(np.zeros((N, 2)), np.zeros(N, bool))


def data(rng: np.random.Generator, theta: Array) -> Data:
    """Inputs of each cluster with a mean and a covariance of its own, and outcomes by its expert."""
    z, x = EMPTY.z(theta), np.empty((N, 2))
    for k in np.unique(z):
        normals = rng.standard_normal((int(PRIORS.v0), 2))
        root = np.linalg.cholesky(np.linalg.inv(normals.T @ normals / PRIORS.s0))  # inverse Wishart
        mu = rng.standard_normal(2) / np.sqrt(PRIORS.k0)
        x[z == k] = (mu + rng.standard_normal((np.count_nonzero(z == k), 2))) @ root.T
    return x, rng.random(N) < 1 / (1 + np.exp(-margins(theta, x)))


def margins(theta: Array, x: Array) -> Array:
    w = EMPTY.w(theta)[EMPTY.z(theta)]
    return np.asarray(w[:, 0] + (w[:, 1:] * x).sum(axis=1))


def functions(theta: Array, found: Data) -> Array:
    """What does not depend on how slots are numbered."""
    (x, y), z = found, EMPTY.z(theta)
    w = EMPTY.w(theta)[z]
    pairs = z[:, np.newaxis] == z
    apart = np.minimum(((x[:, np.newaxis] - x) ** 2).sum(axis=2), 10)
    right = 1 / (1 + np.exp(-np.where(y, 1, -1) * margins(theta, x)))
    return np.array(
        [theta[0], len(np.unique(z)), pairs.mean(), (pairs * apart).mean(), right.mean(), *(w**2).mean(axis=0)]
    )


def joint() -> Joint[Data]:
    return Joint(
        prior=lambda rng: dpm.from_prior(rng, EMPTY),
        data=data,
        posterior=lambda found: model(*found),
        functions=functions,
    )


FEW: dict[str, int] = {"n_chains": 30, "n_steps": 20, "n_draws": 2000}
MANY: dict[str, int] = {"n_chains": 100, "n_steps": 40, "n_draws": 8000}


def result_of(kernel: Any, size: dict[str, int]) -> JointTest:
    return joint_distribution_test(joint(), kernel, np.random.default_rng(1), **size)


def sampler(assignments: Any = None, experts: Any = None) -> Sequence:
    return Sequence(z=assignments or dpm.Assignments(5), w=experts or dpm.Experts(0.8, 2))


@pytest.mark.parametrize("size", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])
def test_the_whole_sampler_keeps_the_joint_distribution(size: dict[str, int]) -> None:
    found = result_of(sampler(), size)
    assert found.p_value > 0.01, found.z


def test_a_checkpoint_holds_the_state_of_the_assignments() -> None:
    """Sums have the rounding of all moves so far: rebuilt from the position, they would go another way in time."""
    rng = np.random.default_rng(1)
    theta = dpm.from_prior(rng, EMPTY)
    whole, resumed = (dpm.AssignmentsKernel(model(*data(np.random.default_rng(2), theta)), 50, 3) for _ in range(2))
    state = whole.init(theta)
    for _ in range(5):
        state, _ = whole.step(rng, state, {})
    resumed.init(state.position)
    resumed.restore(state, CODEC.decode(CODEC.encode(whole.save())))
    assert resumed.save() == whole.save()
    one, other = (kernel.step(np.random.default_rng(3), state, {})[0] for kernel in (whole, resumed))
    np.testing.assert_array_equal(one.position, other.position)


class Closed(dpm.AssignmentsKernel):
    """The weight of a new cluster is left out."""

    def new_cluster(self, alpha: float) -> float:
        return 0.0


class Strangers(dpm.ExpertsKernel):
    """Decisions about an expert look at the members of the others."""

    def members(self, z: Any, k: int) -> Any:
        return np.flatnonzero(z != k)


class BoundTo:
    """A recipe for a kernel that is broken."""

    def __init__(self, make: Any) -> None:
        self.make = make

    def bind(self, context: Any) -> Any:
        return self.make(context, dpm.model_of(context))

    def leaves(self, names: Any) -> Any:
        return {}


@pytest.mark.parametrize(
    ("broken", "size"),
    [
        pytest.param(
            sampler(assignments=BoundTo(lambda context, model: Closed(model, 5, 2))), FEW, id="weight of a new cluster"
        ),
        pytest.param(
            sampler(experts=BoundTo(lambda context, model: Strangers(context, model, 0.8, 2, exact=True))),
            MANY,
            id="members of other clusters",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_broken_samplers_do_not(broken: Sequence, size: dict[str, int]) -> None:
    assert result_of(broken, size).p_value < 1e-4


def test_predictive_densities_are_those_of_marginal_likelihoods() -> None:
    """p(x, members) / p(members), by the normalising constants of normal-inverse-Wishart distributions."""
    x = np.random.default_rng(3).normal(size=(6, 2))
    inputs = dpm.Inputs(x, PRIORS, 2)
    for i in range(5):
        inputs.put(i, 1)
    inputs.put(0, 1, -1)
    members = np.arange(1, 5)
    expected = log_marginal(x[[*members, 5]]) - log_marginal(x[members])
    assert np.log(inputs.density(5, 1)) == pytest.approx(expected, rel=1e-12)
    assert np.log(inputs.density(5, 0)) == pytest.approx(log_marginal(x[[5]]), rel=1e-12)


def log_marginal(x: Array) -> float:
    """Of inputs of one cluster (Murphy 2007, equation 266)."""
    n, mean = len(x), x.mean(axis=0)
    k, v = PRIORS.k0 + n, PRIORS.v0 + n
    centred = x - mean
    scale = PRIORS.s0 * np.eye(2) + centred.T @ centred + PRIORS.k0 * n / k * np.outer(mean, mean)
    return float(
        -n * np.log(np.pi)
        + multigammaln(v / 2, 2)
        - multigammaln(PRIORS.v0 / 2, 2)
        + PRIORS.v0 * np.log(PRIORS.s0)
        - v / 2 * np.linalg.slogdet(scale)[1]
        + np.log(PRIORS.k0 / k)
    )


def test_predictions_weigh_experts_by_their_inputs() -> None:
    rng = np.random.default_rng(4)
    theta = dpm.from_prior(rng, EMPTY)
    x, y = data(rng, theta)
    at = rng.normal(size=(3, 2))
    fitted = model(x, y)
    probability, responsibility = dpm.predict(fitted, theta, at)
    z, w = fitted.z(theta), fitted.w(theta)
    for row, point in enumerate(at):
        weights, odds = [], []
        for k in np.unique(z):
            own = x[z == k]
            weights.append(len(own) * np.exp(log_marginal(np.vstack([own, point])) - log_marginal(own)))
            odds.append(1 / (1 + np.exp(-(w[k, 0] + point @ w[k, 1:]))))
        weights.append(np.exp(theta[0] + log_marginal(point[np.newaxis])))
        assert probability[row] == pytest.approx(np.average([*odds, 0.5], weights=weights), rel=1e-9)
    np.testing.assert_allclose(responsibility.sum(axis=1), 1)
