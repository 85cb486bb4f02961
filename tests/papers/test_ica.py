"""Independent component analysis: formulas, the posterior on a small instance, and what a wrong walk does to it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pytest
from numpy.typing import NDArray

from stansub import FunctionFactors, Metropolis, StiefelWalk, sample
from stansub.diagnostics.joint import Joint, joint_distribution_test

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "papers" / "ica"))
from mixtures import WHOLE, amari, log_likelihood, mixed, orthonormal, turned

Array = NDArray[np.float64]
RNG = np.random.default_rng(1)


def test_the_likelihood_is_that_of_the_paper() -> None:
    w, x = orthonormal(RNG), RNG.standard_normal((4, 7))
    formula = abs(np.linalg.det(w)) * np.prod([1 / (4 * np.cosh(0.5 * row @ x) ** 2) for row in w], axis=0)
    np.testing.assert_allclose(log_likelihood(w, x), np.log(formula), rtol=1e-12)


def test_the_amari_distance_does_not_see_order_and_signs() -> None:
    mixing = RNG.standard_normal((4, 4))
    true, switched = np.linalg.inv(mixing), np.diag([1.0, -1, 1, -1])[[2, 0, 3, 1]]
    assert amari(switched @ true, mixing) == pytest.approx(0, abs=1e-12)
    hadamard = np.array([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])
    assert amari(hadamard @ true, mixing) == pytest.approx(1)
    np.testing.assert_allclose(amari(np.array([true, hadamard @ true]), mixing), [0, 1], atol=1e-12)


def test_mixtures_are_white_and_their_truth_nearly_orthonormal() -> None:
    mixture = mixed(20_000, np.random.default_rng(2))
    np.testing.assert_allclose(mixture.x @ mixture.x.T / 20_000, np.eye(4), atol=1e-8)
    unmixing = mixture.unmixing
    assert np.abs(unmixing @ unmixing.T - np.eye(4)).max() < 0.05
    assert (mixture.kurtosis[:2] > 2).all()
    assert (np.abs(mixture.kurtosis[2:]) < 6 * np.sqrt(24 / 20_000)).all()
    assert WHOLE == 43 * 44_100
    # Rotations of the Gaussian pair, by a quarter turn a change of order and sign.
    np.testing.assert_allclose(*amari(turned(unmixing, np.array([0.0, np.pi / 2])), mixture.mixing), atol=1e-8)


def factors(x: Array) -> FunctionFactors:
    """The posterior of the unmixing matrix."""
    d = len(x)

    def log_lik(theta: Array, which: NDArray[np.int32]) -> Array:
        return log_likelihood(theta.reshape(d, d).T, x[:, which])

    return FunctionFactors([f"W.{i}.{j}" for j in range(1, d + 1) for i in range(1, d + 1)], x.shape[1], log_lik)


class Drift:
    """Longer steps where the first element is large, without the ratio that this asks for."""

    smooth = False

    def __call__(self, rng: np.random.Generator, position: Array) -> tuple[Array, float]:
        return StiefelWalk(round(len(position) ** 0.5), 0.05 + position[0] ** 2)(rng, position)


@pytest.mark.slow
def test_draws_agree_with_importance_sampling_and_those_of_a_wrong_walk_do_not() -> None:
    x = RNG.laplace(size=(4, 20))
    q, r = np.linalg.qr(RNG.standard_normal((40_000, 4, 4)))
    uniform = q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, np.newaxis]
    heights = log_likelihood(uniform, x).sum(-1)
    weight = np.exp(heights - heights.max())

    def functions(w: Array) -> Array:
        return np.stack([w[..., 0, 0] ** 2, w[..., 0, 0] ** 2 * w[..., 1, 1] ** 2, amari(w, np.eye(4))], -1)

    values = functions(uniform)
    truth = weight @ values / weight.sum()
    error = np.sqrt(((weight[:, np.newaxis] * (values - truth)) ** 2).sum(0)) / weight.sum()

    def z(proposal: Any) -> Array:
        inits = [{"W": orthonormal(np.random.default_rng(k))} for k in range(2)]
        options = {"chains": 2, "iter_warmup": 500, "iter_sampling": 6000, "seed": 1, "show_progress": False}
        idata = sample(factors(x), proposal=proposal, test="exact", inits=inits, **options)
        drawn = functions(idata["posterior"]["W"].values)
        errors = [float(az.mcse(drawn[..., k])) for k in range(3)]
        return np.abs(drawn.mean((0, 1)) - truth) / np.hypot(error, errors)

    assert z(StiefelWalk(4)).max() < 4
    assert z(Drift()).max() > 8


def joint() -> Joint[Array]:
    """Two sources, 12 observations: logistic sources, mixed by a uniform orthonormal matrix."""

    def prior(rng: np.random.Generator) -> Array:
        q, r = np.linalg.qr(rng.standard_normal((2, 2)))
        return np.asarray((q * np.sign(np.diag(r))).ravel())

    def data(rng: np.random.Generator, theta: Array) -> Array:
        return np.asarray(theta.reshape(2, 2) @ rng.logistic(size=(2, 12)))

    def functions(theta: Array, x: Array) -> Array:
        w = theta.reshape(2, 2).T
        return np.array([w[0, 0] ** 2, w[0, 0] ** 4, log_likelihood(w, x).mean(), ((w @ x) ** 4).mean() ** 0.5])

    return Joint(prior=prior, data=data, posterior=factors, functions=functions)


def test_the_walk_passes_the_joint_distribution_test_and_what_is_wrong_fails() -> None:
    def p_value(model: Joint[Array], proposal: Any) -> float:
        rng = np.random.default_rng(1)
        return joint_distribution_test(model, Metropolis(proposal), rng, n_chains=40, n_steps=30, n_draws=2_000).p_value

    assert p_value(joint(), StiefelWalk(2, 0.5)) > 0.01
    assert p_value(joint(), Drift()) < 1e-4
