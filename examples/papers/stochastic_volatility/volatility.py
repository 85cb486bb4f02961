"""The stochastic volatility model (Chen, Mansinghka and Ghahramani 2014, section 4.3), and a sampler composed for it.

x_t = exp(h_t / 2) eps_t, h_t ~ N(phi h_(t-1), sigma^2), h_0 = 0, phi ~ Beta(5, 1), sigma^2 ~ InvGamma(5, 0.05).
A position holds logit(phi), log(sigma) and the states, those of a series side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

import stansub

Array = NDArray[np.float64]
Places = NDArray[np.int32]


@dataclass(frozen=True)
class Volatility:
    """What particle Gibbs is told of the model, x of shape (n_times, n_series)."""

    x: Array

    def draw_first(self, rng: np.random.Generator, position: Array, shape: tuple[int, ...]) -> Array:
        return np.exp(position[1]) * rng.standard_normal(shape)

    def draw_next(self, rng: np.random.Generator, position: Array, t: int, states: Array) -> Array:
        return expit(position[0]) * states + np.exp(position[1]) * rng.standard_normal(states.shape)

    def log_transition(self, position: Array, t: int, states: Array, following: Array) -> Array:
        return -0.5 * ((following - expit(position[0]) * states) * np.exp(-position[1])) ** 2

    def log_observation(self, position: Array, t: int, states: Array) -> Array:
        return -0.5 * (self.x[t] ** 2 * np.exp(-states) + states)


@dataclass(frozen=True)
class Transitions:
    """Log densities of h_t given h_(t-1), phi and sigma: what a decision about phi or sigma depends on."""

    n_times: int

    def __call__(self, theta: Array, which: Places) -> Array:
        # Places of h_t are 2 + which; before the first state of a series stands h_0 = 0.
        before = np.where(which % self.n_times, theta[1 + which], 0.0)
        off = (theta[2 + which] - expit(theta[0]) * before) * np.exp(-theta[1])
        return -0.5 * off**2 - theta[1]


def log_prior_phi(logit_phi: float) -> float:
    """Of logit(phi), with the Jacobian phi (1 - phi)."""
    return float(-5 * np.logaddexp(0, -logit_phi) - np.logaddexp(0, logit_phi))


def log_prior_sigma(log_sigma: float) -> float:
    """Of log(sigma), with the Jacobian 2 sigma^2."""
    return float(-10 * log_sigma - 0.05 * np.exp(-2 * log_sigma))


def log_prior(theta: Array) -> float:
    """Of both."""
    return log_prior_phi(theta[0]) + log_prior_sigma(theta[1])


def draw_prior(rng: np.random.Generator) -> tuple[float, float]:
    """phi and sigma."""
    return float(rng.beta(5, 1)), float(np.sqrt(0.05 / rng.gamma(5)))


def phi_from_prior(rng: np.random.Generator, position: Array) -> tuple[Array, float]:
    """Proposes logit(phi) as the prior has it."""
    proposed = float(logit(draw_prior(rng)[0]))
    return np.array([proposed]), log_prior_phi(position[0]) - log_prior_phi(proposed)


def sigma_from_prior(rng: np.random.Generator, position: Array) -> tuple[Array, float]:
    """Proposes log(sigma) as the prior has it."""
    proposed = float(np.log(draw_prior(rng)[1]))
    return np.array([proposed]), log_prior_sigma(position[0]) - log_prior_sigma(proposed)


# How phi and sigma are proposed: anew, as in the program of the paper (figure 7), or near where they are.
ANEW: tuple[Any, Any] = (phi_from_prior, sigma_from_prior)
NEAR: tuple[Any, Any] = ("random-walk", "random-walk")


def simulate(rng: np.random.Generator, n_series: int, n_times: int, phi: float, sigma: float) -> tuple[Array, Array]:
    """States and observations, each of shape (n_series, n_times)."""
    h = np.zeros((n_series, n_times + 1))
    for t in range(1, n_times + 1):
        h[:, t] = rng.normal(phi * h[:, t - 1], sigma)
    return h[:, 1:], np.exp(h[:, 1:] / 2) * rng.standard_normal((n_series, n_times))


def position_of(phi: float, sigma: float, h: Array) -> Array:
    """Where a chain stands at these values, states of shape (n_series, n_times)."""
    return np.concatenate([[logit(phi), np.log(sigma)], h.ravel()])


def target(n_series: int, n_times: int) -> stansub.FunctionFactors:
    """What decisions about phi and sigma need of the posterior: its factors are single transitions.

    The densities of the observations given the states cancel in these decisions, and are left out; it is particle Gibbs
    that brings them in. So this is no target for a kernel that moves states by Metropolis-Hastings.
    """
    states = (f"h.{s}.{t}" for s in range(1, n_series + 1) for t in range(1, n_times + 1))
    return stansub.FunctionFactors(
        ["logit_phi", "log_sigma", *states],
        n_series * n_times,
        Transitions(n_times),
        log_density=log_prior,
        block_size=1,
        name="stochastic volatility",
    )


def sampler(
    x: Array, proposals: tuple[Any, Any], *, n_particles: int, model: type[Any] = Volatility
) -> stansub.Sequence:
    """States by particle Gibbs, then phi, then sigma; x of shape (n_series, n_times)."""
    phi, sigma = (stansub.Metropolis(one) for one in proposals)
    return stansub.Sequence(
        states=stansub.ParticleGibbs(model(np.ascontiguousarray(x.T)), ["h"], n_particles=n_particles),
        phi=stansub.OnParameters(phi, ["logit_phi"]),
        sigma=stansub.OnParameters(sigma, ["log_sigma"]),
    )
