"""Affine Gaussian proposals and their mixtures: by their definition, in steps, and as samplers."""

from collections.abc import Sequence

import numpy as np
import pytest
import toys
from numpy.typing import NDArray
from scipy.stats import multivariate_normal
from steps import NAMES, allocate, column, run_steps

from stansub import Austerity, Exact, InputError, RandomWalk
from stansub.acceptance.rules import Geometric
from stansub.kernels.base import BatchControl, Records
from stansub.kernels.proposals import Affine, Mixture, Proposal, compiled, langevin, laplace_pcn
from stansub.kernels.trajectories import Trajectory

Array = NDArray[np.float64]

MODE = np.array([0.5, -1.0, 2.0])
COVARIANCE = np.array([[2.0, 0.8, 0.0], [0.8, 1.0, -0.3], [0.0, -0.3, 0.5]])
FACTOR = np.linalg.cholesky(COVARIANCE)
DENSE = Affine(np.array([[0.9, 0.1, 0.0], [-0.2, 0.7, 0.3], [0.0, 0.4, 1.1]]), np.array([0.1, -0.2, 0.3]), FACTOR)
PCN = laplace_pcn(MODE, FACTOR, 0.6)
MALA = langevin(MODE, np.array([0.2, -0.1, 0.3]), -np.linalg.inv(COVARIANCE), FACTOR, 0.7)
WALK = RandomWalk(0.4 * FACTOR)
MIXTURE = Mixture([PCN, WALK, DENSE], [0.5, 0.3, 0.2])
ALL = {"walk": WALK, "dense": DENSE, "pcn": PCN, "langevin": MALA, "mixture": MIXTURE}
SUBSAMPLED = Austerity(epsilon=0.1, looks=Geometric(first=20))


class Plain:
    """The definition, which the compiled loop does not know and so asks from Python."""

    def __init__(self, proposal: Proposal) -> None:
        self.proposal = proposal

    def __call__(self, rng: np.random.Generator, position: Array) -> tuple[Array, float]:
        proposal = self.proposal
        if isinstance(proposal, Mixture):
            u = rng.random()
            proposal = proposal.proposals[int(np.sum(u >= np.cumsum(proposal.weights)[:-1]))]
        z = rng.standard_normal(position.size)
        if isinstance(proposal, RandomWalk):
            return position + proposal.cholesky @ z, 0.0
        assert isinstance(proposal, Affine)
        proposed = proposal.matrix @ position + proposal.offset + proposal.cholesky @ z
        back = np.linalg.solve(proposal.cholesky, position - proposal.matrix @ proposed - proposal.offset)
        return proposed, float(z @ z - back @ back) / 2


class AdaptationOptions:
    """The proposal itself, asked from Python."""

    def __init__(self, proposal: Proposal) -> None:
        self.proposal = proposal

    def __call__(self, rng: np.random.Generator, position: Array) -> tuple[Array, float]:
        return self.proposal(rng, position)


def control(audit: float = 0.0) -> BatchControl:
    return BatchControl(np.random.default_rng(99), audit, np.zeros(1, np.int32), np.zeros(4, np.int64))


@pytest.mark.parametrize("proposal", ALL.values(), ids=ALL)
def test_draws_are_those_of_the_definition(proposal: Proposal) -> None:
    rng, other, position = np.random.default_rng(1), np.random.default_rng(1), np.array([0.3, 0.2, -0.4])
    for _ in range(50):
        (got, ratio), (want, wanted) = proposal(rng, position), Plain(proposal)(other, position)
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-14)
        assert ratio == pytest.approx(wanted, rel=1e-12, abs=1e-12)
        position = got / 2
    assert rng.bit_generator.state == other.bit_generator.state


@pytest.mark.parametrize("proposal", [DENSE, PCN, MALA, WALK], ids=["dense", "pcn", "langevin", "walk"])
def test_log_ratios_are_those_of_the_densities(proposal: Affine | RandomWalk) -> None:
    matrix, offset = (proposal.matrix, proposal.offset) if isinstance(proposal, Affine) else (np.eye(3), np.zeros(3))
    covariance = proposal.cholesky @ proposal.cholesky.T

    def log_q(there: Array, here: Array) -> float:
        return float(multivariate_normal.logpdf(there, matrix @ here + offset, covariance))

    rng, position = np.random.default_rng(2), np.array([0.3, 0.2, -0.4])
    for _ in range(20):
        proposed, ratio = proposal(rng, position)
        assert ratio == pytest.approx(log_q(position, proposed) - log_q(proposed, position), rel=1e-10, abs=1e-10)
        assert (ratio == 0) == (proposal is WALK)


def gaussian_steps(proposal: Proposal, n: int = 200) -> Records:
    """Exact steps on N(MODE, COVARIANCE)."""
    precision = np.linalg.inv(COVARIANCE)
    target = toys.decider(3, lambda theta, which: np.array([-0.5 * (theta - MODE) @ precision @ (theta - MODE)]))
    records = allocate(n, 3)
    run_steps(target, proposal, np.random.default_rng(4), records, n, control())
    return records


@pytest.mark.parametrize("rho", [0.9, 0.0, -0.5])
def test_pcn_accepts_all_moves_on_its_own_gaussian(rho: float) -> None:
    records = gaussian_steps(laplace_pcn(MODE, FACTOR, rho))
    assert records["accepted"].all()
    np.testing.assert_allclose(records["log_ratio"], 0, atol=1e-12)
    # another centre or scale is not that Gaussian
    for other in (laplace_pcn(MODE + 0.1, FACTOR, rho), laplace_pcn(MODE, 1.1 * FACTOR, rho)):
        assert np.abs(gaussian_steps(other)["log_ratio"]).max() > 1e-3


@pytest.mark.parametrize("time", [0.3, np.pi / 2, 2.0])
def test_pcn_moves_are_hamiltonian_trajectories(time: float) -> None:
    """Leapfrog steps under the Hamiltonian of the Gaussian come to the same place, short ones nearer."""
    position, n_steps = np.array([1.0, 0.0, -1.0]), 400
    there, _ = laplace_pcn(MODE, FACTOR, float(np.cos(time)))(np.random.default_rng(5), position)
    precision, z = np.linalg.inv(COVARIANCE), np.random.default_rng(5).standard_normal(3)

    def leapfrog(n: int) -> Array:
        theta, momentum, step = position, np.linalg.solve(FACTOR.T, z), time / n
        for _ in range(n):
            momentum = momentum - step / 2 * precision @ (theta - MODE)
            theta = theta + step * COVARIANCE @ momentum
            momentum = momentum - step / 2 * precision @ (theta - MODE)
        return theta

    error, smaller = (np.abs(leapfrog(n) - there).max() for n in (n_steps, 2 * n_steps))
    assert error < 1e-4
    assert smaller < error / 3.5


@pytest.mark.parametrize("rho", [0.5, 0.0, -0.5])
def test_beyond_a_quarter_turn_means_gain_and_sds_lose(rho: float) -> None:
    """Autocorrelations of what is odd about the mode are rho, of what is even rho squared."""
    theta = gaussian_steps(laplace_pcn(MODE, FACTOR, rho), 8000).theta - MODE
    for values, wanted in ((theta, rho), (theta**2, rho**2)):
        centred = values - values.mean(0)
        found = (centred[1:] * centred[:-1]).mean(0) / centred.var(0)
        np.testing.assert_allclose(found, wanted, atol=0.06)


def test_langevin_moves_follow_the_gradient_of_the_surrogate() -> None:
    gradient, hessian, here = np.array([0.2, -0.1, 0.3]), -np.linalg.inv(COVARIANCE), np.array([1.0, 0.0, -1.0])
    move = langevin(MODE, gradient, hessian, FACTOR, 0.7)
    mean = here + 0.35 * COVARIANCE @ (gradient + hessian @ (here - MODE))
    np.testing.assert_allclose(move.matrix @ here + move.offset, mean, rtol=1e-12)
    np.testing.assert_allclose(move.cholesky @ move.cholesky.T, 0.7 * COVARIANCE, rtol=1e-12)
    # with small steps nearly all are accepted where the surrogate is the target; the log ratio is of order step^(3/2)
    small, smaller = (
        np.abs(gaussian_steps(langevin(MODE, np.zeros(3), hessian, FACTOR, step))["log_ratio"]).mean()
        for step in (0.1, 0.025)
    )
    assert smaller < small / 6 < 0.02


X = np.random.default_rng(7).normal(0.5, 1.0, (600, 3))
CENTRE = 0.05 * MODE
LAPLACE = np.linalg.cholesky(np.linalg.inv(X.T @ X / 4))
STEPPING = {
    "walk": RandomWalk(0.8 * LAPLACE),
    "pcn": laplace_pcn(CENTRE, LAPLACE, 0.5),
    "langevin": langevin(CENTRE, np.zeros(3), -np.linalg.inv(LAPLACE @ LAPLACE.T), LAPLACE, 0.9),
    "trajectory": Trajectory(CENTRE, LAPLACE, np.full(10, 0.02), 2.0, 2),
    "mixture": Mixture([laplace_pcn(CENTRE, LAPLACE, 0.5), RandomWalk(2 * LAPLACE)], [3, 1]),
}


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("proposal", STEPPING.values(), ids=STEPPING)
def test_compiled_and_python_steps_are_the_same(proposal: Proposal, order: int) -> None:
    found, streams, counts = [], [], []
    for way in (proposal, AdaptationOptions(proposal)):
        records, rng, steering = allocate(300, 3), np.random.default_rng(3), control(0.2)
        target = toys.logistic(X, SUBSAMPLED, CENTRE, order=order)
        assert run_steps(target, way, rng, records, 300, steering) == 300
        found.append(records)
        streams.append(rng.bit_generator.state)
        counts.append(steering.counters)
    for name in NAMES:
        np.testing.assert_array_equal(column(found[0], name), column(found[1], name), err_msg=name)
    np.testing.assert_array_equal(*counts)
    assert streams[0] == streams[1]
    assert 0.1 < found[0]["accepted"].mean() < 1
    assert 0 < found[0]["audited"].sum() < 300
    assert (found[0]["n_obs_used"] < 600).mean() > (0.9 if order == 2 else 0.2)


def test_control_variates_save_data_and_leave_the_posterior() -> None:
    """Against exact steps, in Monte Carlo standard errors; without the proposal's ratio the posterior is another."""
    pcn = laplace_pcn(CENTRE + 0.02, 1.3 * LAPLACE, 0.3)

    def uncorrected(rng: np.random.Generator, position: Array) -> tuple[Array, float]:
        return pcn(rng, position)[0], 0.0

    n = 8000
    moments, share = [], []
    for proposal, test, order in ((pcn, SUBSAMPLED, 2), (pcn, Exact(), 0), (uncorrected, SUBSAMPLED, 2)):
        records = allocate(n, 3)
        run_steps(
            toys.logistic(X, test, CENTRE, order=order), proposal, np.random.default_rng(5), records, n, control()
        )
        batches = np.hstack([records.theta, records.theta**2]).reshape(40, -1, 6).mean(1)
        moments.append((batches.mean(0), batches.std(0, ddof=1) / np.sqrt(40)))
        share.append(records["n_obs_used"].mean() / 600)
    (mean, error), (truth, its_error), (wrong, wrong_error) = moments
    assert np.abs((mean - truth) / np.hypot(error, its_error)).max() < 4
    assert np.abs((wrong - truth) / np.hypot(wrong_error, its_error)).max() > 8
    assert share[0] < 0.2 < share[1] == 1


def test_a_symmetric_affine_proposal_is_a_random_walk() -> None:
    walk, affine = WALK, Affine(np.eye(3), np.zeros(3), WALK.cholesky)
    for _ in range(5):
        (one, ratio), (other, zero) = (p(np.random.default_rng(6), MODE) for p in (walk, affine))
        np.testing.assert_array_equal(one, other)
        assert ratio == zero == 0


class TestMixture:
    def test_components_are_chosen_with_their_weights(self) -> None:
        parts = [Affine(np.zeros((1, 1)), np.array([place]), np.array([[1e-3]])) for place in (0.0, 1.0, 2.0)]
        mixture = Mixture(parts, [1, 5, 2])
        np.testing.assert_allclose(mixture.weights, [0.125, 0.625, 0.25])
        rng = np.random.default_rng(8)
        chosen = np.array([round(mixture(rng, np.zeros(1))[0][0]) for _ in range(8000)])
        counts, expected = np.bincount(chosen, minlength=3), 8000 * mixture.weights
        assert ((counts - expected) ** 2 / expected).sum() < 14  # 0.1 % of chi-square(2)
        even = np.full(3, 8000 / 3)
        assert ((counts - even) ** 2 / even).sum() > 100

    def test_a_single_component_takes_no_uniform(self) -> None:
        for proposal in (PCN, Plain(PCN)):
            alone, mixed = np.random.default_rng(1), np.random.default_rng(1)
            np.testing.assert_array_equal(proposal(alone, MODE)[0], Mixture([proposal], [2.0])(mixed, MODE)[0])
            assert alone.bit_generator.state == mixed.bit_generator.state

    def test_any_proposal_may_take_part(self) -> None:
        mixture = Mixture([PCN, Plain(WALK)], [0.5, 0.5])
        assert compiled(mixture) is None
        records = gaussian_steps(mixture, 400)
        np.testing.assert_allclose(
            records.theta, gaussian_steps(Mixture([PCN, WALK], [0.5, 0.5]), 400).theta, rtol=1e-9, atol=1e-11
        )
        assert not compiled(Plain(WALK))
        assert compiled(MIXTURE) is not None

    def test_components_of_different_size(self) -> None:
        with pytest.raises(InputError, match="same number of parameters"):
            compiled(Mixture([PCN, RandomWalk(np.eye(2))], [0.5, 0.5]))

    @pytest.mark.parametrize(
        ("proposals", "weights", "message"),
        [
            ([], [], "a weight for each"),
            ([PCN], [0.5, 0.5], "a weight for each"),
            ([PCN, WALK], [1.0, 0.0], "positive"),
            ([PCN, WALK], [1.0, np.nan], "positive"),
        ],
    )
    def test_refusals(self, proposals: Sequence[Proposal], weights: list[float], message: str) -> None:
        with pytest.raises(InputError, match=message):
            Mixture(proposals, np.array(weights))


@pytest.mark.parametrize(
    ("matrix", "offset", "cholesky", "message"),
    [
        (np.eye(2), np.zeros(2), np.eye(3), "matrix of the same shape"),
        (np.eye(2), np.zeros(3), np.eye(2), "offset of shape"),
        (np.eye(2), np.array([0, np.inf]), np.eye(2), "finite"),
        (np.full((2, 2), np.nan), np.zeros(2), np.eye(2), "finite"),
        (np.eye(2), np.zeros(2), np.ones((2, 2)), "lower triangular"),
        (np.eye(2), np.zeros(2), np.diag([1.0, 0.0]), "invertible"),
        (np.eye(2), np.zeros(2), np.ones(2), "square"),
    ],
)
def test_an_affine_proposal_wants_arrays_that_fit(matrix: Array, offset: Array, cholesky: Array, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Affine(matrix, offset, cholesky)


def test_tuning_out_of_range() -> None:
    for rho in (1.0, -1.0, np.nan):
        with pytest.raises(InputError, match="rho"):
            laplace_pcn(MODE, FACTOR, rho)
    for step in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(InputError, match="step"):
            langevin(MODE, np.zeros(3), -np.eye(3), FACTOR, step)


def test_a_proposal_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="length 1, not 3"):
        run_steps(toys.gaussian(np.eye(1)), PCN, np.random.default_rng(1), allocate(5, 1), 5, control())
