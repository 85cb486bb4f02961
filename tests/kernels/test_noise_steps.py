"""Steps whose decisions count noise in: C++ and Python alike, and the posterior they leave."""

from dataclasses import dataclass

import numpy as np
import pytest
import toys
from numpy.typing import NDArray
from steps import NAMES, allocate, column, run_steps
from test_metropolis import Plain, control

from stansub import Barker, Penalty, RandomWalk
from stansub._loop import BarkerRule, NoiseRule, PenaltyRule
from stansub.acceptance import rules as boundary
from stansub.acceptance.rules import Table
from stansub.kernels.base import Records
from stansub.kernels.proposals import Proposal, laplace_pcn

# Squares, of which the remainders are multiples, are normal.
X = np.sqrt(np.abs(np.random.default_rng(4).normal(1.0, 0.3, (3000, 1)))) * np.resize([1.0, -1.0], (3000, 1))
TESTS = {"barker": Barker(), "penalty": Penalty()}


def truth() -> tuple[float, float]:
    """Posterior mean and sd by quadrature."""
    grid = np.linspace(-0.3, 0.3, 2001)
    log_density = 0.5 * grid * X.sum() - np.logaddexp(0, X * grid).sum(axis=0)
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    mean = float(weights @ grid)
    return mean, float(np.sqrt(weights @ (grid - mean) ** 2))


MEAN, SD = truth()
MOVE = laplace_pcn(np.array([MEAN]), np.array([[1.3 * SD]]), 0.0)


def steps(
    test: boundary.StoppingRule, proposal: Proposal, n: int, *, seed: int = 3, audit: float = 0.0
) -> tuple[Records, np.random.Generator]:
    """With control variates of the first order far away, so that there is noise."""
    rng, records = np.random.default_rng(seed), allocate(n, 1)
    decider = toys.logistic(X, test, np.array([MEAN + 8 * SD]), order=1)
    assert run_steps(decider, proposal, rng, records, n, control(audit)) == n
    return records, rng


@pytest.mark.parametrize("test", TESTS.values(), ids=TESTS)
@pytest.mark.parametrize("audit", [0.0, 0.3])
def test_compiled_and_python_steps_are_the_same(test: boundary.StoppingRule, audit: float) -> None:
    walk = RandomWalk(np.array([[2 * SD]]))
    compiled, rng = steps(test, walk, 400, audit=audit)
    python, other = steps(test, Plain(walk), 400, audit=audit)
    for name in NAMES:
        np.testing.assert_array_equal(column(compiled, name), column(python, name), err_msg=name)
    assert rng.bit_generator.state == other.bit_generator.state
    assert 0.1 < compiled["accepted"].mean() < 0.9
    assert np.unique(compiled["n_looks"]).size > 2


@dataclass(frozen=True, kw_only=True)
class Naive(Penalty):
    """The estimate taken for the log ratio, whatever its noise: one look that always decides."""

    name = "naive"

    def table(self, n_units: int) -> Table:
        return Table(np.array([20, n_units], np.int32), np.zeros(2), np.zeros(2))

    def noise_rule(self) -> NoiseRule:
        return PenaltyRule(1e-12, 0.0)


@dataclass(frozen=True, kw_only=True)
class Uncorrected(Barker):
    """Barker's test with normal noise only, without the correction distribution."""

    def noise_rule(self) -> NoiseRule:
        return BarkerRule(self.noise, 0.5, np.zeros(1), np.empty(0))


def scores(draws: NDArray[np.float64]) -> tuple[float, float]:
    """Errors of mean and variance in standard errors from batch means."""
    found = []
    for values, wanted in ((draws, MEAN), ((draws - MEAN) ** 2, SD**2)):
        batches = values.reshape(40, -1).mean(axis=1)
        found.append(float((batches.mean() - wanted) / (batches.std(ddof=1) / np.sqrt(40))))
    return found[0], found[1]


@pytest.mark.parametrize("test", TESTS.values(), ids=TESTS)
def test_the_posterior_is_the_exact_one(test: boundary.StoppingRule) -> None:
    assert max(map(abs, scores(steps(test, MOVE, 20_000)[0].theta[:, 0]))) < 4


@pytest.mark.parametrize("test", [Naive(), Uncorrected()], ids=["no penalty", "no correction"])
def test_without_penalty_or_correction_it_is_not(test: boundary.StoppingRule) -> None:
    assert max(map(abs, scores(steps(test, MOVE, 20_000)[0].theta[:, 0]))) > 8
