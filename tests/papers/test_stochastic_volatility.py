"""The stochastic volatility model and its composed sampler: formulas, and a joint-distribution test of the whole."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit

from stansub import FunctionFactors, RandomWalk
from stansub.diagnostics.joint import Joint, JointTest, joint_distribution_test

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "papers" / "stochastic_volatility"))

import volatility
from volatility import Transitions, Volatility, log_prior

Array = NDArray[np.float64]
N_SERIES, N_TIMES = 3, 3


class TestFormulas:
    THETA = volatility.position_of(0.8, 0.2, np.random.default_rng(1).normal(0, 0.3, (N_SERIES, N_TIMES)))

    def test_transitions(self) -> None:
        h = self.THETA[2:].reshape(N_SERIES, N_TIMES)
        before = np.column_stack([np.zeros(N_SERIES), h[:, :-1]])
        expected = stats.norm.logpdf(h, 0.8 * before, 0.2).ravel() + 0.5 * np.log(2 * np.pi)
        np.testing.assert_allclose(Transitions(N_TIMES)(self.THETA, np.arange(9, dtype=np.int32)), expected)
        which = np.array([7, 3], np.int32)
        np.testing.assert_allclose(Transitions(N_TIMES)(self.THETA, which), expected[which])

    def test_prior(self) -> None:
        def expected(theta: Array) -> float:
            phi, variance = expit(theta[0]), np.exp(2 * theta[1])
            jacobian = np.log(phi * (1 - phi)) + np.log(2 * variance)
            return float(stats.beta(5, 1).logpdf(phi) + stats.invgamma(5, scale=0.05).logpdf(variance) + jacobian)

        points = np.array([[0.0, 0.0], [3.0, -2.0], [-1.0, -3.0]])
        differences = [log_prior(one) - expected(one) for one in points]
        np.testing.assert_allclose(differences, differences[0])

    def test_model_of_the_states(self) -> None:
        x = np.random.default_rng(2).normal(size=(N_TIMES, N_SERIES))
        model, states = Volatility(x), np.random.default_rng(3).normal(size=(4, N_SERIES))
        observed = stats.norm.logpdf(x[1], 0, np.exp(states / 2)) + 0.5 * np.log(2 * np.pi)
        np.testing.assert_allclose(model.log_observation(self.THETA, 1, states), observed)
        moved = stats.norm.logpdf(states[:1], 0.8 * states, 0.2) + 0.5 * np.log(2 * np.pi) + np.log(0.2)
        np.testing.assert_allclose(model.log_transition(self.THETA, 1, states, states[:1]), moved)
        first = model.draw_first(np.random.default_rng(4), self.THETA, (50_000, 1))
        following = model.draw_next(np.random.default_rng(5), self.THETA, 1, np.full((50_000, 1), 2.0))
        for drawn, mean in ((first, 0.0), (following, 1.6)):
            assert drawn.mean() == pytest.approx(mean, abs=0.004)
            assert drawn.std() == pytest.approx(0.2, abs=0.003)


@dataclass(frozen=True)
class WithoutTransition(Volatility):
    """Ancestors of the present path by their weights alone."""

    def log_transition(self, position: Array, t: int, states: Array, following: Array) -> Array:
        return np.zeros(states.shape)


@dataclass
class Composed:
    """The sampler of the application for the data that were drawn last."""

    proposals: tuple[Any, Any] = volatility.ANEW
    model: type[Any] = Volatility
    log_prior: Any = log_prior
    x: Array = field(default_factory=lambda: np.zeros((N_SERIES, N_TIMES)))

    def posterior(self, x: Array) -> FunctionFactors:
        self.x = x
        made = volatility.target(N_SERIES, N_TIMES)
        return FunctionFactors(made.names, N_SERIES * N_TIMES, Transitions(N_TIMES), log_density=self.log_prior)

    def bind(self, context: Any) -> Any:
        return self._kernel().bind(context)

    def leaves(self, names: Any) -> Any:
        return self._kernel().leaves(names)

    def _kernel(self) -> Any:
        return volatility.sampler(self.x, self.proposals, n_particles=3, model=self.model)


def draw_prior(rng: np.random.Generator) -> Array:
    phi, sigma = volatility.draw_prior(rng)
    return volatility.position_of(phi, sigma, volatility.simulate(rng, N_SERIES, N_TIMES, phi, sigma)[0])


def draw_data(rng: np.random.Generator, theta: Array) -> Array:
    return np.exp(theta[2:].reshape(N_SERIES, N_TIMES) / 2) * rng.standard_normal((N_SERIES, N_TIMES))


def functions(theta: Array, x: Array) -> Array:
    """Moments of phi and sigma, of innovations in units of sigma, and of states with data."""
    h, phi, sigma = theta[2:].reshape(N_SERIES, N_TIMES), expit(theta[0]), np.exp(theta[1])
    off = (h[:, 1:] - phi * h[:, :-1]) / sigma
    pairs = [(h[:, 1:] * h[:, :-1]).mean() / sigma**2, (h * np.log(np.abs(x))).mean() / sigma]
    states = [(off**2).mean(), (h[:, 0] ** 2).mean() / sigma**2]
    return np.array([*theta[:2], *theta[:2] ** 2, *states, *pairs])


def result_of(composed: Composed, n_chains: int = 200, n_steps: int = 15, n_draws: int = 10_000) -> JointTest:
    joint = Joint(prior=draw_prior, data=draw_data, posterior=composed.posterior, functions=functions)
    rng = np.random.default_rng(6)
    return joint_distribution_test(joint, composed, rng, n_chains=n_chains, n_steps=n_steps, n_draws=n_draws)


WALK = RandomWalk(np.array([[0.7]]))


def without_ratio(rng: np.random.Generator, position: Array) -> tuple[Array, float]:
    return volatility.phi_from_prior(rng, position)[0], 0.0


class TestJointDistribution:
    @pytest.mark.parametrize(
        "proposals",
        [
            pytest.param(volatility.ANEW, id="anew", marks=pytest.mark.slow),
            pytest.param((WALK, WALK), id="near", marks=pytest.mark.slow),
        ],
    )
    def test_the_composed_sampler_passes(self, proposals: tuple[Any, Any]) -> None:
        assert result_of(Composed(proposals)).p_value > 0.01

    def test_it_passes_in_a_few_steps_too(self) -> None:
        """Of little power, but the whole sampler takes part."""
        assert result_of(Composed(), n_chains=60, n_steps=10, n_draws=2000).p_value > 0.01

    @pytest.mark.slow
    def test_ancestors_without_the_transition_fail(self) -> None:
        assert result_of(Composed(model=WithoutTransition)).p_value < 1e-4

    @pytest.mark.slow
    def test_proposals_without_their_ratio_fail(self) -> None:
        assert result_of(Composed((without_ratio, volatility.sigma_from_prior))).p_value < 1e-4

    @pytest.mark.slow
    def test_a_prior_without_its_jacobian_fails(self) -> None:
        def without(theta: Array) -> float:
            return log_prior(theta) - 2 * float(theta[1])

        assert result_of(Composed((WALK, WALK), log_prior=without)).p_value < 1e-4
