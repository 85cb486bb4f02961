"""Factorised sampling from end to end on numpy functions: data that are hard on bounds, resuming, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

import stansub
from stansub import FunctionFactors, InputError
from stansub.target.families import Binomial
from stansub.target.remainders import LinearPredictors

Array = NDArray[np.float64]
N = 600
MAX_Z = 4.5


def covariates(kind: str, rng: np.random.Generator) -> tuple[Array, Array]:
    """Design with an intercept, and successes, of data that are hard on bounds."""
    x = rng.standard_normal((N, 2))
    if kind == "leverage":
        x[0] = [400.0, 0.0]
    elif kind == "heavy tails":
        x = rng.standard_t(2, (N, 2))
    elif kind == "duplicated":
        x[:] = x[rng.integers(5, size=N)]
    elif kind == "zeros":
        x[:, 1] = 0.0
    z = np.column_stack([np.ones(N), x])
    y = (x[:, 0] > 0) if kind == "separated" else rng.random(N) < 1 / (1 + np.exp(-z @ [0.3, 0.6, -0.4]))
    return z, y.astype(float)


def posterior(kind: str = "plain", *, bounded: bool = True) -> FunctionFactors:
    """Logistic regression with normal priors, sd 2."""
    z, y = covariates(kind, np.random.default_rng(7))
    family = Binomial(y, np.ones(N))

    def log_lik(theta: Array, which: NDArray[np.int32]) -> Array:
        eta = z[which] @ theta
        return np.asarray(y[which] * eta - np.logaddexp(0, eta))

    def slope(theta: Array, which: NDArray[np.int32]) -> Array:
        return np.asarray((y[which] - expit(z[which] @ theta))[:, np.newaxis] * z[which])

    return FunctionFactors(
        ["alpha", "beta.1", "beta.2"],
        N,
        log_lik,
        log_density=lambda theta: -0.125 * float(theta @ theta),
        log_lik_gradient=slope,
        log_density_gradient=lambda theta: -0.25 * theta,
        predictors=LinearPredictors((z,), (np.zeros(N),), family) if bounded else None,
        block_size=4,
    )


def moments(kind: str, draws: Array) -> tuple[Array, Array, float]:
    """Means and sds by importance sampling from a t about the draws, and the effective number of its draws."""
    rng = np.random.default_rng(3)
    centre, factor = draws.mean(0), np.linalg.cholesky(np.cov(draws.T))
    t = rng.standard_normal((20_000, 3)) / np.sqrt(rng.chisquare(6, 20_000) / 6)[:, np.newaxis]
    proposed = centre + 1.1 * t @ factor.T
    z, y = covariates(kind, np.random.default_rng(7))
    parts = [proposed[k : k + 2000] @ z.T for k in range(0, len(proposed), 2000)]
    log_weights = np.concatenate([(y * eta - np.logaddexp(0, eta)).sum(1) for eta in parts])
    log_weights -= 0.125 * (proposed**2).sum(1)
    log_weights += 0.5 * (6 + 3) * np.log1p((t**2).sum(1) / 6)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean = weights @ proposed
    return mean, np.sqrt(weights @ (proposed - mean) ** 2), float(1 / (weights**2).sum())


def assert_moments(kind: str, idata: Any) -> None:
    """Means and sds of draws are those by importance sampling."""
    draws = np.asarray(idata["unconstrained_posterior"]["theta"])
    mean, sd, n_weighted = moments(kind, draws.reshape(-1, 3))
    ess = np.array([_ess(draws[..., k]) for k in range(3)])
    error = np.sqrt(1 / ess + 1 / n_weighted)
    assert np.abs((draws.mean((0, 1)) - mean) / sd / error).max() < MAX_Z
    assert np.abs((draws.std((0, 1)) / sd - 1) / error).max() < MAX_Z


QUICK = [("factorised", "leverage"), ("factorised", "separated"), ("poisson", "heavy tails")]
SLOW = [("factorised", one) for one in ("plain", "heavy tails", "duplicated", "zeros")]
SLOW += [("poisson", one) for one in ("plain", "leverage")]


@pytest.mark.parametrize(("test", "kind"), [*QUICK, *(pytest.param(*one, marks=pytest.mark.slow) for one in SLOW)])
def test_the_posterior_itself(test: str, kind: str) -> None:
    factors = posterior(kind)
    idata = stansub.sample(factors, test=test, seed=2, chains=2, iter_warmup=500, iter_sampling=3000)
    assert_moments(kind, idata)
    assert (idata.attrs["test"], idata.attrs["guarantee"]) == (test, "exact by proved bounds")
    tightness = float(idata["chain_stats"]["bound_tightness"].max())
    assert 0 <= tightness <= 1


def test_chains_from_far_inits_reach_the_posterior() -> None:
    """Where bounds are wide, all the data decide: the product of factors would reject every step from there."""
    far = [{"alpha": value, "beta": [-value, value]} for value in (-4.0, 4.0)]
    idata = stansub.sample(
        posterior(), test="factorised", seed=2, chains=2, inits=far,
        iter_warmup=1000, iter_sampling=3000, save_warmup=True,
    )  # fmt: skip
    start = np.asarray(idata["warmup_posterior"]["alpha"])[:, 0]
    assert np.abs(start).min() > 3
    assert_moments("plain", idata)


def _ess(values: Array) -> float:
    import arviz as az

    return float(min(az.ess(values), az.ess((values - values.mean()) ** 2)))


@pytest.mark.parametrize("test", ["factorised", "poisson"])
def test_a_run_that_is_extended_is_the_longer_run(test: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"test": test, "seed": 2, "chains": 2, "iter_warmup": 200}
    whole = stansub.sample(posterior(), iter_sampling=400, **options)
    file = tmp_path / "run.checkpoint"
    stansub.sample(posterior(), iter_sampling=150, checkpoint=file, **options)
    longer = stansub.sample(posterior(), iter_sampling=400, resume=file, **options)
    for group in ("posterior", "sample_stats"):
        for name in whole[group].data_vars:
            np.testing.assert_array_equal(whole[group][name], longer[group][name])


def test_decisions_about_some_parameters_are_exact_too() -> None:
    kernel = stansub.Sequence(
        one=stansub.OnParameters(stansub.Metropolis("random-walk"), ["beta.2"]), all=stansub.Metropolis()
    )
    idata = stansub.sample(posterior(), kernel=kernel, test="factorised", seed=2, chains=1, iter_sampling=300)
    assert idata.attrs["guarantee"] == "exact by proved bounds"


@pytest.mark.parametrize("test", ["factorised", "poisson"])
def test_what_has_no_bounds_is_refused(test: str) -> None:
    with pytest.raises(InputError, match=f"the {test} test has no proved bounds here: no linear predictors were given"):
        stansub.sample(posterior(bounded=False), test=test, chains=1)
    with pytest.raises(InputError, match=f"the {test} test needs control variates"):
        stansub.sample(posterior(), test=test, control_variates=0, chains=1)


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(InputError, match="factorised test does not use `epsilon`"):
        stansub.sample(posterior(), test="factorised", epsilon=0.1)
    with pytest.raises(InputError, match=r"`kappa` must be finite and at least 0\.5, not 0\.25"):
        stansub.sample(posterior(), test="poisson", kappa=0.25)
    with pytest.raises(InputError, match="pocock test does not use `kappa`"):
        stansub.sample(posterior(), kappa=2.0)


def test_kappa_is_chosen_where_none_is_given() -> None:
    options: dict[str, Any] = {"test": "poisson", "seed": 2, "chains": 1, "iter_warmup": 200, "iter_sampling": 100}
    idata = stansub.sample(posterior("heavy tails"), **options)
    chosen, choices = float(idata.attrs["kappa"]), json.loads(idata.attrs["choices"])
    assert choices["kappa"].startswith(f"{chosen:g}, which makes the most effective draws per observation among 0.5, 1")
    same = stansub.sample(posterior("heavy tails"), **options | {"test": stansub.Poisson()})
    np.testing.assert_array_equal(idata["posterior"]["alpha"], same["posterior"]["alpha"])
    given = stansub.sample(posterior("heavy tails"), **options, kappa=4.0)
    assert given.attrs["kappa"] == 4
    assert "kappa" not in json.loads(given.attrs["choices"])
