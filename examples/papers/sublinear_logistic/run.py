"""How much data a decision takes as the data grow: logistic regression with two features.

Chen, Mansinghka and Ghahramani (2015), section 4.1.1, figure 5: a random walk whose sd stays as it is, where the share
of the data falls; and Bardenet, Doucet and Holmes (2014), section 3.2.2: one whose sd shrinks as the posterior does,
where it does not.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, ndtri

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import common
import logistic
from common import Array, Page, Settings

import stansub
from stansub.acceptance.decide import make_decider

# Of the paper.
EPSILON, MINI_BATCH, SD, DECISIONS = 0.01, 100, 0.1, 300
# The data's own weights, and where both features of the proposal are one sd away.
CURRENT = np.array([1.0, -1.0])
PROPOSED = CURRENT + SD
# Below this probability of going on the recursion ends.
_NEGLIGIBLE = 1e-6


class Point(NamedTuple):
    """What was measured at one size of the data.

    Attributes
    ----------
    n : int
        Observations.
    pair, theory : float
        Observations a decision between the fixed pair, measured and expected.
    fixed, shrinking, default : float
        Observations a decision of chains: walks of fixed and of shrinking sd, today's default; nan where not run.
    fixed_time, shrinking_time, exact_time, default_time, gradient_time : float
        Seconds a step, and a gradient of all the data.
    """

    n: int
    pair: float
    theory: float
    fixed: float
    shrinking: float
    default: float
    fixed_time: float
    shrinking_time: float
    exact_time: float
    default_time: float
    gradient_time: float


def expected_units(looks: Sequence[int], n_units: int, epsilon: float, distance: float) -> float:
    """Units that the test with one level at every look draws on average, under normality.

    Derived here; Chen et al. (2015) refer to equation 19 of the published version of Korattikara et al. (2014).

    At look k, with n of the N units, let z_k = (mean - mu0) / (sd / sqrt(n) sqrt(1 - (n - 1) / (N - 1))), the t of
    Korattikara et al. (2014), equations 3 and 4, with the population's own sd. Means of draws without replacement have
    covariance Cov(mean_j, mean_k) = Var(mean_k) for j < k, so that with r_k = n / (N - n), up to a factor N / (N - 1)
    that is left out,

        z_k ~ N(distance sqrt(r_k), 1),    Corr(z_j, z_k) = sqrt(r_j / r_k),

    which is a Gaussian Markov chain: a Brownian motion with drift ``distance`` at times r_k, divided by sqrt(r_k).
    The test stops at the first look with |z_k| > G, G being the normal quantile of 1 - epsilon. Let f_k be the density
    of z_k where no look before has stopped it. Then f_1 is normal, and

        f_(k+1)(z) = integral over [-G, G] of f_k(x) N(z; m_(k+1) + rho (x - m_k), 1 - rho^2) dx,
        P(beyond look k) = integral over [-G, G] of f_k,
        E[n] = n_1 + sum over k of (n_(k+1) - n_k) P(beyond look k).

    Parameters
    ----------
    looks : sequence of int
        Units at each look, the last being ``n_units``.
    n_units : int
        N.
    epsilon : float
        Level of each look, below 1/2.
    distance : float
        (mu - mu0) sqrt(N) / sd of the population.
    """
    n = np.asarray(looks, float)
    bound, times = -float(ndtri(epsilon)), n[:-1] / (n_units - n[:-1])
    means = distance * np.sqrt(times)
    expected, places, weighted = n[0], np.zeros(0), np.zeros(0)
    for k, mean in enumerate(means):
        rho = np.sqrt(times[k - 1] / times[k]) if k else 0.0
        width = np.sqrt(1 - rho**2)
        nodes, weights = (bound * one for one in _legendre(40 + 20 * int(0.15 * bound / width)))
        if k:
            steps = (nodes[:, None] - mean - rho * (places - means[k - 1])) / width
            density = _normal(steps) @ weighted / width
        else:
            density = _normal(nodes - mean)
        places, weighted = nodes, weights * density
        beyond = float(weighted.sum())
        expected += (n[k + 1] - n[k]) * beyond
        if beyond < _NEGLIGIBLE:
            break
    return float(expected)


@lru_cache
def _legendre(n: int) -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(n)


def _normal(z: Array) -> Array:
    return np.asarray(np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi))


def simulate(n: int, seed: int) -> tuple[Array, Any]:
    """Two standard normal features and labels; the smaller data are the first rows of the larger."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 2))
    return x, (rng.random(n) < expit(x @ CURRENT)).astype(int)


def laplace(x: Array, y: Any) -> tuple[Array, Array]:
    """Mode of the posterior, by Newton's method, and a factor of the covariance there."""
    weights = np.zeros(x.shape[1])
    for _ in range(12):
        p = expit(x @ weights)
        precision = (x * (p * (1 - p))[:, None]).T @ x + np.eye(len(weights)) / logistic.PRIOR_VARIANCE
        weights = weights + np.linalg.solve(precision, x.T @ (y - p) - weights / logistic.PRIOR_VARIANCE)
    return weights, np.linalg.cholesky(np.linalg.inv(precision))


def rule() -> stansub.Austerity:
    """The paper's test."""
    return stansub.Austerity(epsilon=EPSILON, looks=stansub.Fixed(size=MINI_BATCH))


def between_the_pair(posterior: stansub.Posterior, seed: int) -> tuple[float, float]:
    """Observations a decision between the same two points, measured and expected; u takes 300 even values."""
    evaluator = posterior.population.evaluator()
    n_units = evaluator.n_blocks
    log_u = np.log((np.arange(DECISIONS) + 0.5) / DECISIONS)
    differences = evaluator.block_log_lik(PROPOSED) - evaluator.block_log_lik(CURRENT)
    prior = evaluator.global_log_density(PROPOSED) - evaluator.global_log_density(CURRENT)
    decider = make_decider(evaluator, posterior.blocks.sizes, rule())
    rng = np.random.default_rng(seed)
    used = []
    for one in log_u:
        decider.reset(CURRENT)
        used.append(decider.decide(PROPOSED, one, 0.0, rng.bit_generator.capsule).n_obs_used)
    # mu - mu0 of Korattikara et al. (2014), equations 2 and 5; -log u is exponential: Gauss-Laguerre quadrature
    nodes, weights = np.polynomial.laguerre.laggauss(8)
    distances = (differences.mean() + (nodes + prior) / n_units) * np.sqrt(n_units) / differences.std()
    looks = rule().table(n_units).n
    expected = [expected_units(looks, n_units, EPSILON, one) for one in distances]
    return float(np.mean(used)), float(weights @ expected)


def of_chains(
    posterior: stansub.Posterior, epsilon: float, cholesky: Array, start: Array, seed: int, steps: int
) -> tuple[float, float]:
    """Observations and seconds a step of two chains."""
    idata = logistic.walk(
        posterior, cholesky, epsilon, starts=np.array([start, start]), mini_batch=MINI_BATCH, steps=steps, audit=0.0,
        seed=seed,
    )  # fmt: skip
    return a_step(idata)


def steps_for(n: int, observations: int) -> int:
    """Steps of each of two chains that evaluate most of the data at each: the paper's in all, or fewer."""
    return int(np.clip(observations // n, 10, DECISIONS // 2))


def a_step(idata: Any) -> tuple[float, float]:
    """Observations in the subset, and seconds, of an average step."""
    stats = idata["chain_stats"]
    steps = float(stats["n_steps"].sum())
    return float(stats["n_obs_used"].sum()) / steps, float(stats["sampling_time"].sum()) / steps


def gradient_time(posterior: stansub.Posterior) -> float:
    """Seconds of the gradient of the whole log density, of which NUTS takes several a draw; the median of five."""
    found = []
    for _ in range(5):
        began = time.perf_counter()
        posterior.full.log_density_gradient(CURRENT)
        found.append(time.perf_counter() - began)
    return float(np.median(found))


def measure(model: stansub.CompiledModel, x: Array, y: Any, seed: int, *, with_default: bool) -> Point:
    """Everything at one size of the data."""
    data = logistic.stan_data(x, y)
    posterior = model.with_data(data, block_size=1, seed=seed)
    mode, cholesky = laplace(x, y)
    pair, theory = between_the_pair(posterior, seed)
    fixed, fixed_time = of_chains(posterior, EPSILON, SD * np.eye(2), CURRENT, seed, DECISIONS // 2)
    walk = (2.38 / np.sqrt(2) * cholesky, mode, seed)
    shrinking, shrinking_time = of_chains(posterior, EPSILON, *walk, steps_for(len(y), 10_000_000))
    _, exact_time = of_chains(posterior, 0.0, *walk, steps_for(len(y), 2_000_000))
    default, default_time = np.nan, np.nan
    if with_default:
        default, default_time = a_step(common.with_default(logistic.PROGRAM, data, seed=seed, chains=2).idata)
    return Point(len(y), pair, theory, fixed, shrinking, default, fixed_time, shrinking_time, exact_time, default_time,
                 gradient_time(posterior))  # fmt: skip


def slope(points: Sequence[Point], name: str) -> float:
    """Of the logarithm of a measurement against that of N, over the upper half of the sizes: 1 is linear."""
    pairs = [(one.n, getattr(one, name)) for one in points[len(points) // 2 :] if np.isfinite(getattr(one, name))]
    sizes, values = np.log(np.array(pairs)).T
    return float(np.polyfit(sizes, values, 1)[0])


def draw(page: Page, points: Sequence[Point]) -> None:
    """Data and time a step against N, with linear lines."""
    figure, (data, seconds) = page.figure(2)
    n = np.array([one.n for one in points])
    walk, shrink = common.COLOURS[0], common.COLOURS[1]
    lines = (
        (data, "theory", "sd 0.1, fixed pair: theory", "gray", "-", ""),
        (data, "pair", "sd 0.1, fixed pair: measured", "gray", "", "x"),
        (data, "fixed", "sd 0.1, chain", walk, "-", "o"),
        (data, "shrinking", "sd as of the posterior, chain", shrink, "-", "s"),
        (data, "default", "today's default", common.DEFAULT_COLOUR, "-", "^"),
        (seconds, "fixed_time", "sd 0.1", walk, "-", "o"),
        (seconds, "shrinking_time", "sd as of the posterior", shrink, "-", "s"),
        (seconds, "exact_time", "exact decisions", common.EXACT_COLOUR, "-", "d"),
        (seconds, "default_time", "today's default", common.DEFAULT_COLOUR, "-", "^"),
        (seconds, "gradient_time", "NUTS, a gradient", common.NUTS_COLOUR, "-", "v"),
    )
    for axes, name, words, colour, style, marker in lines:
        values = np.array([getattr(one, name) for one in points])
        seen = np.isfinite(values)
        axes.plot(n[seen], values[seen], ls=style or "none", marker=marker, ms=4, color=colour, label=words, lw=1.3)
    data.plot(n, n, ls="--", color="black", lw=0.8, label="all the data")
    seconds.plot(n, points[0].exact_time * n / n[0], ls="--", color="black", lw=0.8, label="linear")
    data.set(xscale="log", yscale="log", xlabel="N", ylabel="observations a decision")
    seconds.set(xscale="log", yscale="log", xlabel="N", ylabel="seconds a step")
    for axes in (data, seconds):
        axes.legend(fontsize=7)
    page.save(figure, "growth")


def leapfrogs(x: Array, y: Any, seed: int) -> float:
    """Gradients a draw of NUTS."""
    found = common.with_nuts(
        logistic.PROGRAM, logistic.stan_data(x, y), seed=seed, chains=2, iter_warmup=200, iter_sampling=200
    )
    return float(found.idata["chain_stats"]["n_gradients"].sum()) / 400


def main() -> None:
    settings: Settings = common.settings(__file__, __doc__)
    page = Page(settings)
    sizes = [round(10 ** (power / 2)) for power in range(6, settings.pick(13, 15))]
    x, y = simulate(sizes[-1], settings.seed)
    model = stansub.compile_model(logistic.PROGRAM)
    points = [measure(model, x[:n], y[:n], settings.seed, with_default=place % 2 == 0) for place, n in enumerate(sizes)]
    draw(page, points)
    last = points[-1]
    names = ("theory", "fixed", "shrinking", "default", "fixed_time", "shrinking_time", "default_time", "gradient_time")
    slopes = {name: slope(points, name) for name in names}
    page.write(
        f"At N = {last.n:,} a decision uses {last.fixed / last.n:.2%} of the data with a fixed proposal, "
        f"{last.shrinking / last.n:.0%} with one that shrinks with the posterior. Today's default uses "
        f"{last.default:.2g} observations.",
        points=[one._asdict() for one in points], last=last._asdict(), slopes=slopes, epsilon=EPSILON, sd=SD,
        mini_batch=MINI_BATCH, decisions=DECISIONS, leapfrogs=leapfrogs(x[:10_000], y[:10_000], settings.seed),
        worst=max(abs(one.pair / one.theory - 1) for one in points),
    )  # fmt: skip


if __name__ == "__main__":
    main()
