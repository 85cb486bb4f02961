"""Steps of Metropolis-Hastings: the compiled loop, the Python one, and plain numpy."""

import numpy as np
import pytest
import toys
from numpy.typing import NDArray
from steps import NAMES, allocate, column, run_steps

from stansub import Austerity, Exact, InputError, RandomWalk
from stansub.acceptance import rules as boundary
from stansub.acceptance.rules import Geometric
from stansub.kernels.base import BatchControl, Records
from stansub.kernels.metropolis import MetropolisHastings
from stansub.kernels.proposals import Proposal

Y = np.random.default_rng(7).normal(0.3, 1.0, 400)
SUBSAMPLED = Austerity(epsilon=0.1, looks=Geometric(first=20))


class Plain:
    """A proposal that the compiled loop does not know, and so asks from Python."""

    def __init__(self, proposal: Proposal) -> None:
        self.proposal = proposal

    def __call__(self, rng: np.random.Generator, position: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        return self.proposal(rng, position)


def control(audit: float = 0.0, stop: int = 0) -> BatchControl:
    return BatchControl(np.random.default_rng(99), audit, np.array([stop], np.int32), np.zeros(4, np.int64))


def steps(
    proposal: Proposal, test: boundary.StoppingRule, n: int = 300, *, audit: float = 0.0
) -> tuple[Records, NDArray[np.int64], np.random.Generator]:
    """Records, counters, and the generator as the steps leave it."""
    rng, steering, records = np.random.default_rng(3), control(audit), allocate(n, 1)
    assert run_steps(toys.normal_mean(Y, test), proposal, rng, records, n, steering) == n
    return records, steering.counters, rng


@pytest.mark.parametrize("test", [SUBSAMPLED, Exact()], ids=["subsampled", "exact"])
@pytest.mark.parametrize("audit", [0.0, 0.3])
def test_compiled_and_python_steps_are_the_same(test: boundary.StoppingRule, audit: float) -> None:
    walk = RandomWalk(np.array([[0.1]]))
    compiled, counted, rng = steps(walk, test, audit=audit)
    python, counted_there, other = steps(Plain(walk), test, audit=audit)
    for name in NAMES:
        np.testing.assert_array_equal(column(compiled, name), column(python, name), err_msg=name)
    np.testing.assert_array_equal(counted, counted_there)
    assert rng.bit_generator.state == other.bit_generator.state
    assert 0.2 < compiled["accepted"].mean() < 0.9
    assert bool(compiled["audited"].any()) == (audit > 0)


def test_compiled_and_python_steps_are_the_same_in_several_dimensions() -> None:
    covariance = np.array([[2.0, 0.8, 0.0], [0.8, 1.0, -0.3], [0.0, -0.3, 0.5]])
    walk = RandomWalk(np.linalg.cholesky(covariance))
    found = []
    for proposal in (walk, Plain(walk)):
        records = allocate(200, 3)
        run_steps(toys.gaussian(covariance), proposal, np.random.default_rng(5), records, 200, control())
        found.append(records)
    np.testing.assert_allclose(found[0].theta, found[1].theta, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(found[0]["accepted"], found[1]["accepted"])


def test_audits_change_nothing_but_what_they_record() -> None:
    walk = RandomWalk(np.array([[0.1]]))
    without, with_all = steps(walk, SUBSAMPLED)[0], steps(walk, SUBSAMPLED, audit=1.0)[0]
    for name in ("theta", "accepted", "n_obs_used", "n_looks", "undecided", "log_ratio"):
        np.testing.assert_array_equal(column(without, name), column(with_all, name), err_msg=name)
    assert with_all["audited"].all()
    assert with_all["audit_wrong"].any(), "a test this loose errs now and then"


def test_exact_steps_are_those_of_plain_metropolis() -> None:
    records = steps(RandomWalk(np.array([[0.1]])), Exact())[0]
    rng, theta = np.random.default_rng(3), 0.0
    expected = []
    for _ in range(len(records.theta)):
        proposed = theta + 0.1 * rng.standard_normal()
        log_ratio = -0.5 * ((Y - proposed) ** 2 - (Y - theta) ** 2).sum()
        if log_ratio > np.log1p(-rng.random()):
            theta = proposed
        expected.append(theta)
    np.testing.assert_allclose(records.theta[:, 0], expected, rtol=1e-12)


def test_asymmetric_proposals_are_corrected() -> None:
    """Independent proposals from N(1, 1) for a standard normal: without the density ratio the mean would be off."""

    def independent(rng: np.random.Generator, position: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        proposed = 1.0 + rng.standard_normal(1)
        return proposed, float(0.5 * ((proposed[0] - 1) ** 2 - (position[0] - 1) ** 2))

    def uncorrected(rng: np.random.Generator, position: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        return independent(rng, position)[0], 0.0

    means = []
    for proposal in (independent, uncorrected):
        records = allocate(6000, 1)
        run_steps(toys.gaussian(np.eye(1)), proposal, np.random.default_rng(11), records, 6000, control())
        batches = records.theta[:, 0].reshape(30, -1).mean(axis=1)
        means.append(batches.mean() / (batches.std(ddof=1) / np.sqrt(30)))
    assert abs(means[0]) < 4
    assert means[1] > 6


def test_a_set_stop_flag_prevents_the_next_step() -> None:
    walk = RandomWalk(np.array([[0.1]]))
    for proposal in (walk, Plain(walk)):
        records = allocate(10, 1)
        assert (
            run_steps(toys.gaussian(np.eye(1)), proposal, np.random.default_rng(1), records, 10, control(stop=1)) == 0
        )


def test_a_kernel_returns_its_new_state_and_the_decision() -> None:
    kernel, walk = MetropolisHastings(toys.gaussian(np.eye(1))), RandomWalk(np.array([[1.0]]))
    state, rng = kernel.init(np.zeros(1)), np.random.default_rng(2)
    for _ in range(50):
        following, info = kernel.step(rng, state, walk)
        assert info["accepted"] == (following is not state)
        state = following


@pytest.mark.parametrize(
    "cholesky",
    [np.ones(3), np.ones((2, 3)), np.array([[1.0, 0.5], [0.0, 1.0]]), np.array([[np.nan]])],
    ids=["vector", "not square", "upper", "nan"],
)
def test_a_random_walk_wants_a_lower_triangular_factor(cholesky: NDArray[np.float64]) -> None:
    with pytest.raises(InputError, match="random walk"):
        RandomWalk(cholesky)
