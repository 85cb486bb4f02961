"""Stochastic-gradient Langevin moves with and without a test (Korattikara et al. 2014, section 5.4, figure 8).

An L1-regularised regression with one coefficient: 10,000 observations, a density with a kink, and gradients of a
twentieth of the data. Draws without any test, with exact decisions and with approximate ones, each against the exact
distribution; beside them what stansub does by itself, and NUTS.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import arviz as az
import numpy as np

import stansub

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]
import common  # noqa: E402
from common import Array, Page, Settings, settings  # noqa: E402
from ridge import ALPHA, PRECISION, RATE, N, Ridge, simulated, uncorrected  # noqa: E402

# Chains of each row, and bins of equal probability in which draws are compared with the truth.
CHAINS, BINS = 2, 20


class Row(NamedTuple):
    """Draws of a sampler, shape (chain, draw), with the share of the data of its decisions and of accepted moves."""

    label: str
    draws: Array
    data: float
    accepted: float
    seconds: float


class Distance(NamedTuple):
    """How far draws are from the truth.

    Attributes
    ----------
    variation : float
        Total variation between the shares of draws in bins of equal probability and these probabilities.
    chance : float
        What Monte Carlo error alone is expected to make of a true sampler's, with as many effective draws in each bin.
    z : float
        Error of the mean in Monte Carlo standard errors.
    ess : float
        Bulk effective sample size.
    """

    variation: float
    chance: float
    z: float
    ess: float


def distance(draws: Array, ridge: Ridge) -> Distance:
    """Of draws, shape (chain, draw), from the posterior in closed form."""
    edges = ridge.quantiles(np.arange(1, BINS) / BINS)
    bins = np.searchsorted(edges, draws)
    shares = np.bincount(bins.ravel(), minlength=BINS) / bins.size
    errors = np.array([_error(bins == one) for one in range(BINS)])
    # E|X| of a centred normal variable is sqrt(2 / pi) sds.
    chance = 0.5 * np.sqrt(2 / np.pi) * errors.sum()
    mean = float(ridge.quantiles((np.arange(200_000) + 0.5) / 200_000).mean())
    z = (draws.mean() - mean) / float(az.mcse(draws))
    return Distance(float(0.5 * np.abs(shares - 1 / BINS).sum()), float(chance), z, float(az.ess(draws)))


def _error(inside: Any) -> float:
    """Monte Carlo standard error of the share of draws inside a bin, if it has the probability that it should."""
    p = 1 / BINS
    ess = float(az.ess(inside.astype(float))) if inside.any() else inside.shape[1]
    return float(np.sqrt(p * (1 - p) / max(ess, 1.0)))


def corrected(ridge: Ridge, epsilon: float, n: int, seed: int) -> Row:
    """Draws with a test; its looks come after 500 observations each, as many as in a mini-batch."""
    looks = stansub.Fixed(size=N // 20)
    drawn = common.drawn(
        lambda: stansub.sample(
            # An exact decision looks once, at everything: in one block.
            ridge.target(block_size=1 if epsilon else N),
            proposal=ridge.langevin(),
            test=stansub.Austerity(epsilon=epsilon, looks=looks),
            control_variates=0,
            chains=CHAINS,
            parallel_chains=CHAINS,
            executor="processes",
            iter_warmup=500,
            iter_sampling=n // CHAINS,
            inits={"theta": 0.0},
            seed=seed,
            show_progress=False,
        )
    )
    stats = drawn.idata["sample_stats"]
    label = f"SGLD, $\\epsilon$ = {epsilon}" if epsilon else "SGLD, exact test"
    draws = drawn.idata["posterior"]["theta"].values
    return Row(label, draws, common.share_of_data(drawn.idata), float(stats["accepted"].mean()), drawn.sampling)


def without_test(ridge: Ridge, n: int, seed: int) -> Row:
    """Draws of SGLD as it was published: every move is accepted."""
    rngs = np.random.default_rng(seed).spawn(CHAINS)
    draws = np.array([uncorrected(ridge.langevin(), n // CHAINS, rng) for rng in rngs])
    return Row("SGLD, no test", draws, 0.0, 1.0, float("nan"))


def today(ridge: Ridge, about: Settings) -> tuple[Row, str]:
    """Draws of stansub by itself, and what it says of control variates."""
    steps = about.pick(2500, 25_000)
    made = common.with_default(ridge.target(), seed=about.seed, iter_sampling=steps)
    stats, draws = made.idata["sample_stats"], made.idata["posterior"]["theta"].values
    row = Row(
        "stansub's default", draws, common.share_of_data(made.idata), float(stats["accepted"].mean()), made.sampling
    )
    return row, json.loads(made.idata.attrs["choices"])["control variates"]


def nuts(ridge: Ridge, about: Settings, n: int) -> Row:
    """Draws of NUTS."""
    data = {"N": N, "x": ridge.x, "y": ridge.y, "precision": PRECISION, "rate": RATE}
    made = common.with_nuts(about.program, data, seed=about.seed, iter_sampling=n // 4, iter_warmup=1000)
    return Row("NUTS", made.idata["posterior"]["theta"].values, 1.0, float("nan"), made.sampling)


def compile_nuts(about: Settings) -> None:
    """Have the program of NUTS compiled, while others run."""
    data = {"N": 1, "x": [0.0], "y": [0.0], "precision": 1.0, "rate": 1.0}
    stansub.reference(about.program, data, chains=1, iter_warmup=20, iter_sampling=20, show_progress=False)


def draw_rows(page: Page, ridge: Ridge, rows: list[Row]) -> None:
    """Posterior and gradient (figure 8 a, b), and a histogram a row with the exact density (c to f)."""
    theta = np.linspace(-0.01, 0.05, 3001)
    density = np.exp(ridge.log_posterior(theta) - ridge.log_posterior(theta).max())
    density /= density.sum() * (theta[1] - theta[0])
    figure, axes = page.figure(2, 1)
    axes[0].plot(theta, density, color=common.INK)
    axes[0].set(xlabel="$\\theta$", ylabel="posterior density")
    axes[1].plot(theta, ridge.slope(theta), color=common.INK)
    axes[1].set(xlabel="$\\theta$", ylabel="gradient of the log posterior")
    page.save(figure, "posterior")

    figure, axes = page.figure(3, 2, sharex=True, sharey=True)
    for one, row in zip(axes.ravel(), rows, strict=True):
        colour = {"stansub's default": common.DEFAULT_COLOUR, "NUTS": common.NUTS_COLOUR}.get(row.label, common.BLUE)
        one.hist(row.draws.ravel(), np.linspace(-0.01, 0.05, 121), density=True, color=colour, alpha=0.6)
        one.plot(theta, density, color=common.INK, lw=1.0)
        one.set_title(row.label, fontsize=10)
    for one in axes[-1]:
        one.set_xlabel("$\\theta$")
    for one in axes[:, 0]:
        one.set_ylabel("density")
    page.save(figure, "histograms")


def main() -> None:
    """Run it, and write the page."""
    about = settings(__file__, __doc__)
    page, n = Page(about), about.pick(20_000, 100_000)
    ridge = simulated(np.random.default_rng(about.seed))
    with ThreadPoolExecutor(1) as beside:
        compiling = beside.submit(compile_nuts, about)
        rows = [without_test(ridge, n, about.seed)]
        rows += [corrected(ridge, epsilon, n, about.seed) for epsilon in (0.0, 0.1, 0.5)]
        compiling.result()
    default, variates = today(ridge, about)
    rows += [default, nuts(ridge, about, n)]
    draw_rows(page, ridge, rows)
    table = [row._asdict() | distance(row.draws, ridge)._asdict() | {"n": row.draws.size} for row in rows]
    for one in table:
        del one["draws"]
    tails = {row.label: float((row.draws > ridge.quantiles(np.array([0.99]))[0]).mean()) for row in rows}
    named = dict(zip(("free", "exact", "tenth", "half", "default", "nuts"), table, strict=True))
    page.write(
        f"SGLD is off by {named['free']['variation']:.2f} in total variation without a test, and by "
        f"{named['tenth']['variation']:.2f} with a test at 0.1 (expected by chance: {named['tenth']['chance']:.2f}), "
        f"which uses {100 * named['tenth']['data']:.1f} % of the data.",
        rows=table,
        tails=list(tails.values()),
        n=n,
        alpha=ALPHA,
        bins=BINS,
        variates=variates,
        **named,
    )


if __name__ == "__main__":
    main()
