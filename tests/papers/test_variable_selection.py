"""The application on variable selection: its formulas, its data, and the joint distribution that its sampler keeps."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import comb, expit, gammainc, gammaln
from scipy.stats import norm

from stansub import Auxiliary, FunctionFactors, Jump, Moved, ReversibleJump
from stansub.diagnostics.joint import Joint, JointTest, joint_distribution_test

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "papers"))

from common import Settings
from variable_selection import moves, run
from variable_selection.moves import BIRTH, DEATH, Birth, Death, Update, log_prior, reversible_jump

Array = NDArray[np.float64]

D, LAMBDA = 6, 1.7
BETA = np.array([0.4, 0.0, -1.3, 0.0, 0.2, 0.0])


class TestFormulas:
    def test_equation_9_is_equation_7_with_the_scale_integrated_out(self) -> None:
        def joint(beta: Array) -> float:
            k, norm_1 = np.count_nonzero(beta), np.abs(beta).sum()
            model = (2 * LAMBDA) ** k / (comb(D, k) * math.factorial(k))
            scale = quad(lambda nu: (2 * nu) ** -float(k) * math.exp(-norm_1 / nu) / nu, 0, math.inf)[0]
            return math.log(model * scale)

        for other in (np.array([1.0, 0, 0, 0, 0, 0]), np.full(D, 0.3), np.array([0.1, 0, 0.4, 0, 0, 0])):
            ours = log_prior(BETA, LAMBDA) - log_prior(other, LAMBDA)
            assert ours == pytest.approx(joint(BETA) - joint(other), abs=1e-7)

    @pytest.mark.parametrize("name", moves.NAMES)
    def test_equations_10_to_12(self, name: str) -> None:
        """N mu0 - log u is what the priors and the moves have, p(gamma -> gamma') with the choice of the feature."""
        kernel = reversible_jump(update=0.1, birth=0.3).moves
        number, position = moves.NAMES.index(name), BETA
        drawn = kernel.moves[number].draw(np.random.default_rng(1), position)
        tried = kernel.way(position, number, drawn)
        other = tried.moved.proposed
        k, before, after = np.count_nonzero(position), np.abs(position).sum(), np.abs(other).sum()
        changed = int(np.flatnonzero(other != position)[0])
        if name == "update":
            expected = k * np.log(after / before)
        elif name == "birth":
            density = norm.pdf(other[changed], 0, 0.3)
            there, back = BIRTH / (D - k), DEATH / (k + 1)
            expected = np.log(before**-k * there * density * (D - k) / (after ** -(k + 1.0) * back * LAMBDA * k))
        else:
            density = norm.pdf(position[changed], 0, 0.3)
            there, back = DEATH / k, BIRTH / (D - k + 1)
            ours = before**-k * there * LAMBDA * (k - 1)
            expected = np.log(ours / (after ** -(k - 1.0) * back * density * (D - k + 1)))
        found = log_prior(position, LAMBDA) - log_prior(other, LAMBDA) - tried.log_q_ratio
        assert found == pytest.approx(expected, abs=1e-10)

    def test_moves_are_pairs(self) -> None:
        reversible_jump().check(BETA, rng=np.random.default_rng(1), n_steps=500)

    @pytest.mark.parametrize("k", [1, 3, D])
    def test_moves_have_probabilities(self, k: int) -> None:
        position = np.where(np.arange(D) < k, 0.5, 0.0)
        weights = [one.weight(position) for one in reversible_jump().moves.moves]
        assert sum(weights) == pytest.approx(1)
        assert (weights[1] > 0) == (k < D)
        assert (weights[2] > 0) == (k > 1)


# A small instance with a proper prior: the Laplace scale log uniform between two bounds.
LOW, HIGH, DIM, N = 0.2, 2.0, 4, 12
X = np.random.default_rng(2).normal(size=(N, DIM))
SIZES = np.array([LAMBDA**k / math.factorial(k) for k in range(1, DIM + 1)])


def bounded_prior(beta: Array) -> float:
    """Equation 9 with the scale between the bounds."""
    k, norm_1 = np.count_nonzero(beta), np.abs(beta).sum()
    if k == 0:
        return -math.inf
    inside = gammainc(k, norm_1 / LOW) - gammainc(k, norm_1 / HIGH)
    integral = gammaln(k) - k * math.log(2 * norm_1) + math.log(inside / math.log(HIGH / LOW))
    return float(integral + math.log(SIZES[k - 1] / comb(DIM, k)))


def draw_prior(rng: np.random.Generator) -> Array:
    beta, k = np.zeros(DIM), 1 + int(rng.choice(DIM, p=SIZES / SIZES.sum()))
    scale = LOW * (HIGH / LOW) ** rng.random()
    beta[rng.choice(DIM, k, replace=False)] = rng.laplace(0, scale, k)
    return beta


def posterior(y: NDArray[np.bool_]) -> FunctionFactors:
    signs = np.where(y, 1.0, -1.0)

    def log_lik(beta: Array, which: NDArray[np.int32]) -> Array:
        return -np.logaddexp(0, -signs[which] * (X[which] @ beta))

    return FunctionFactors([f"beta.{j}" for j in range(1, DIM + 1)], N, log_lik, log_density=bounded_prior)


JOINT: Joint[NDArray[np.bool_]] = Joint(
    prior=draw_prior,
    data=lambda rng, beta: rng.random(N) < expit(X @ beta),
    posterior=posterior,
    functions=lambda beta, y: np.array(
        [
            np.count_nonzero(beta),
            beta[0] != 0,
            np.abs(beta).sum(),
            *beta[:2] ** 2,
            beta @ X.T @ (y - 0.5),
            np.log(np.abs(beta).sum()),
        ]
    ),
)


def result_of(kernel: ReversibleJump) -> JointTest:
    return joint_distribution_test(JOINT, kernel, np.random.default_rng(3), n_chains=120, n_steps=40, n_draws=10_000)


class ForgetsHowMany(Birth):
    """A birth of a random feature, as if there were one alone that can be born."""

    def log_density(self, position: Array, drawn: Auxiliary) -> float:
        return moves.log_normal(float(drawn.values[0]), self.sd)


class DoublesOnTheWay(Update):
    """Doubles a coefficient or halves it, without the Jacobian."""

    def draw(self, rng: np.random.Generator, position: Array) -> Auxiliary:
        inside = np.flatnonzero(position)
        return Auxiliary(np.array([rng.choice([-1.0, 1.0])]), int(rng.choice(inside)))

    def log_density(self, position: Array, drawn: Auxiliary) -> float:
        return -math.log(2 * np.count_nonzero(position))

    def transform(self, position: Array, drawn: Auxiliary) -> Moved:
        position[drawn.choice] *= 2 ** drawn.values[0]  # type: ignore[index]
        return Moved(position, Auxiliary(-drawn.values, drawn.choice))


@pytest.mark.slow
class TestJointDistribution:
    def test_the_sampler_keeps_it(self) -> None:
        assert result_of(reversible_jump(update=0.7, birth=1.0)).p_value > 0.01

    @pytest.mark.parametrize(
        "broken",
        [
            ReversibleJump(Jump(update=Update(0.7)), Jump(birth=ForgetsHowMany(1.0), death=Death())),
            ReversibleJump(Jump(update=DoublesOnTheWay()), Jump(birth=Birth(1.0), death=Death())),
        ],
        ids=["probability of a birth", "Jacobian"],
    )
    def test_broken_ones_do_not(self, broken: ReversibleJump) -> None:
        assert result_of(broken).p_value < 1e-6


class TestData:
    def settings(self, folder: Path) -> Settings:
        return Settings(folder, False, 1, folder, folder)

    def test_of_the_repository_s_text_file(self, tmp_path: Path) -> None:
        assert run.miniboone(self.settings(tmp_path)) is None
        lines = ["  2  3", *(" ".join(str(10 * row + column) for column in range(50)) for row in range(5))]
        lines[2] = " ".join(["-0.999000E+03"] * 50)
        (tmp_path / "MiniBooNE_PID.txt").write_text("\n".join(lines))
        x, y = run.miniboone(self.settings(tmp_path)) or (np.empty(0), np.empty(0))
        assert x.shape == (4, 50)
        assert y.tolist() == [1, 0, 0, 0], "the second of two signal events is missing"
        assert x[1, 0] == 20

    def test_simulated_ones_have_its_shape(self) -> None:
        x, y = run.simulated(np.random.default_rng(1), 20_000)
        assert x.shape == (20_000, 50)
        assert 0.2 < y.mean() < 0.36
        assert np.abs(np.corrcoef(x.T) - np.eye(50)).max() > 0.3
        data = run.split(np.random.default_rng(1), x, y, 10_000)
        assert (data.x.shape, data.x_test.shape) == ((8000, 51), (2000, 51))
        np.testing.assert_allclose(data.x.mean(axis=0), [1, *np.zeros(50)], atol=1e-12)
        np.testing.assert_allclose(data.x[:, 1:].std(axis=0), 1)
        start = run.clear_ones(data)
        assert 3 < np.count_nonzero(start) < 20
        gradient = data.x.T @ (data.y - expit(data.x @ start))
        assert np.abs(gradient[start != 0]).max() < 1e-6

    def test_predictions_are_averages_over_draws(self) -> None:
        rng: Any = np.random.default_rng(1)
        beta, x = rng.normal(size=(2, 33, 3)), rng.normal(size=(5, 3))
        np.testing.assert_allclose(run.predictive(beta, x), expit(beta @ x.T).mean(axis=1))
