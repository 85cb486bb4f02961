"""Random walk on the weights of a logistic regression, MNIST 7 against 9 in 50 principal components.

Korattikara, Chen and Welling (2014), section 5.1, figures 2 to 4; Chen, Mansinghka and Ghahramani (2015), section 4.1,
figure 4, is the same with mini-batches of 100 observations.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from scipy.stats import gaussian_kde

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import common
import logistic
from common import Array, Curve, Drawn, Page, Settings

import stansub

# Figure 2; 0 is exact Metropolis-Hastings.
EPSILONS = (0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
# Figure 3, in mini-batches of 500 observations, and one level in those of 100.
RISK_LEVELS = ((0.0, 500), (0.01, 500), (0.01, 100), (0.05, 500), (0.1, 500))
# Figure 4: which of them, and after which shares of the time.
SHOWN, SHARES = ("epsilon 0", "epsilon 0.01"), (0.1, 0.4, 1.0)

DEFAULT = "today's default"


class Truth(NamedTuple):
    """What stands for the posterior.

    Attributes
    ----------
    draws : ndarray, shape (n, 50)
    means : ndarray, shape (n_test,)
        Predictive probabilities of the test points.
    error : float
        Squared Monte Carlo standard error of a mean.
    """

    draws: Array
    means: Array
    error: float


class Level(NamedTuple):
    """Decisions at one error level (figure 2)."""

    epsilon: float
    share: float
    wrong: float
    n_audited: int


def label(epsilon: float, mini_batch: int) -> str:
    """Of a curve."""
    return f"epsilon {epsilon:g}" + ("" if mini_batch == 500 else f", mini-batch {mini_batch}")


def decisions(posterior: stansub.Posterior, truth: Truth, step: Array, settings: Settings) -> list[Level]:
    """Share of the data and of wrong decisions at each level, all of them audited, at equilibrium (figure 2)."""
    steps = settings.pick(500, 10_000)
    starts = truth.draws[:: len(truth.draws) // 2][:2]
    found = []
    for epsilon in EPSILONS:
        idata = logistic.walk(posterior, step, epsilon, starts=starts, steps=steps, audit=1.0, seed=settings.seed)
        wrong = common.share_wrong(idata) if epsilon else 0.0
        found.append(Level(epsilon, common.share_of_data(idata), wrong, 2 * steps))
    return found


def walks(posterior: stansub.Posterior, step: Array, settings: Settings) -> dict[str, Any]:
    """Repeated chains of each level, from the same draws from the prior (figure 3)."""
    rng = np.random.default_rng(settings.seed)
    starts = rng.normal(0, logistic.PRIOR_VARIANCE**0.5, (settings.pick(4, 8), len(step)))
    return {
        label(epsilon, size): logistic.walk(
            posterior, step, epsilon, starts=starts, mini_batch=size, seconds=settings.pick(3.5, 150.0), audit=0.0,
            seed=settings.seed,
        )
        for epsilon, size in RISK_LEVELS
    }  # fmt: skip


def make_truth(engine: Drawn, function: logistic.Function) -> Truth:
    """From a long run."""
    draws = logistic.weights(engine.idata)
    return Truth(
        draws.reshape(-1, draws.shape[-1]),
        logistic.mean_of(engine.idata, function),
        logistic.squared_error(engine.idata, function),
    )


def draw_levels(page: Page, levels: list[Level]) -> None:
    """Figure 2."""
    figure, axes = page.figure()
    epsilons = [one.epsilon for one in levels]
    axes.plot(epsilons, [100 * one.share for one in levels], "o-", ms=4, color=common.BLUE, label="data used")
    axes.plot(
        epsilons, [100 * one.wrong for one in levels], "s-", ms=4, color=common.NUTS_COLOUR, label="wrong decisions"
    )
    axes.set(xlabel="epsilon", ylabel="%", ylim=(0, 105))
    axes.legend()
    page.save(figure, "levels")


def draw_marginals(page: Page, chains: dict[str, Any], truth: Truth, seconds: float) -> None:
    """Figure 4: three chains until some times, beside the region that holds 90 % of the posterior."""
    figure, axes = page.figure(len(SHARES), len(SHOWN), sharex=True, sharey=True, squeeze=False)
    pair = truth.draws[:, :2]
    for row, name in enumerate(SHOWN):
        draws = logistic.weights(chains[name])[:3, :, :2]
        for column, share in enumerate(SHARES):
            own, n = axes[row, column], max(round(share * draws.shape[1]), 2)
            for chain, colour in zip(draws[:, :n], logistic.shades(3, "Reds"), strict=True):
                own.plot(*chain.T, lw=0.6, color=colour)
            outline(own, pair, common.BLUE)
            own.set_title(f"{name}, {seconds * share:.2g} s, T = {n * _thin(chains[name]):,}", fontsize=9)
    for own in axes[-1]:
        own.set_xlabel("beta[1]")
    for own in axes[:, 0]:
        own.set_ylabel("beta[2]")
    page.save(figure, "marginals")


def outline(axes: Any, draws: Array, colour: str) -> None:
    """The smallest region that holds 90 % of the mass of a kernel density estimate."""
    kept = draws[:: max(1, len(draws) // 1000)]
    density = gaussian_kde(kept.T)
    sides = [middle + 4 * sd * np.linspace(-1, 1, 60) for middle, sd in zip(draws.mean(0), draws.std(0), strict=True)]
    grid = np.meshgrid(*sides)
    values = density(np.stack([one.ravel() for one in grid])).reshape(grid[0].shape)
    axes.contour(*grid, values, levels=[np.quantile(density(kept.T), 0.1)], colors=[colour], linewidths=1.5, zorder=3)


def _thin(idata: Any) -> int:
    return round(float(idata["chain_stats"]["n_steps"][0]) / idata["posterior"].sizes["draw"])


def main() -> None:
    settings = common.settings(__file__, __doc__)
    page = Page(settings)
    digits = logistic.digits(settings)
    data = logistic.stan_data(digits.x, digits.y)

    def predict(draws: Array) -> Array:
        return np.asarray(expit(draws @ digits.x_test.T))

    default = common.with_default(logistic.PROGRAM, data, seed=settings.seed)
    long = common.with_default(
        logistic.PROGRAM, data, seed=settings.seed + 1, iter_sampling=settings.pick(20_000, 200_000), thin=10
    )
    nuts = common.with_nuts(
        logistic.PROGRAM, data, seed=settings.seed, iter_warmup=settings.pick(300, 1000),
        iter_sampling=settings.pick(400, 2000),
    )  # fmt: skip
    truth = make_truth(long, predict)
    posterior = stansub.compile_model(logistic.PROGRAM).with_data(data, block_size=logistic.BLOCK, seed=settings.seed)
    step = logistic.isotropic(truth.draws)
    levels = decisions(posterior, truth, step, settings)
    chains = walks(posterior, step, settings)
    curves = {name: logistic.curve(idata, predict, truth.means) for name, idata in chains.items()}
    engines = {
        DEFAULT: logistic.curve(default.idata, predict, truth.means, start=logistic.start_of(default)),
        "NUTS": logistic.curve(nuts.idata, predict, truth.means, start=logistic.start_of(nuts)),
    }
    draw_levels(page, levels)
    draw_risks(page, curves, engines, truth)
    seconds = float(np.mean([curve.seconds[-1] for curve in curves.values()]))
    draw_marginals(page, chains, truth, seconds)
    facts = {"step": step[0, 0], "between": logistic.agreement(nuts.idata, long.idata, predict)}
    write(page, digits, levels, chains, curves, engines, truth=truth, default=default, nuts=nuts, **facts)


def draw_risks(page: Page, curves: dict[str, Curve], engines: dict[str, Curve], truth: Truth) -> None:
    """Figure 3, with the engines of today."""
    figure, axes = page.figure()
    colours = {DEFAULT: common.DEFAULT_COLOUR, "NUTS": common.NUTS_COLOUR, label(0.01, 100): common.COLOURS[1]}
    common.draw_risk(axes, curves | engines, {**logistic.level_colours(list(curves)), **colours})
    axes.axhline(truth.error, color="gray", lw=0.8, ls=":")
    axes.legend(fontsize=6.5)
    axes.set_ylabel("risk in the predictive mean")
    page.save(figure, "risk")


def write(
    page: Page, digits: logistic.Digits, levels: list[Level], chains: dict[str, Any], curves: dict[str, Curve],
    engines: dict[str, Curve], *, truth: Truth, default: Drawn, nuts: Drawn, **facts: Any,
) -> None:  # fmt: skip
    """The page."""
    exact, ends = label(0.0, 500), logistic.ends(curves)
    best = min(ends, key=lambda name: ends[name].risk)
    rows = {
        name: {
            "steps": float(idata["chain_stats"]["n_steps"].mean()),
            "share": common.share_of_data(idata),
            **ends[name]._asdict(),
        }
        for name, idata in chains.items()
    }
    today = {name: logistic.ends({name: curve})[name]._asdict() for name, curve in engines.items()}
    page.write(
        f"After {ends[exact].seconds:.2g} s of a chain, the random walk with the lowest risk is that with {best} "
        f"({ends[best].risk:.1e}; {exact}: {ends[exact].risk:.1e}); today's default reaches "
        f"{today[DEFAULT]['risk']:.1e}.",
        n=len(digits.y), n_test=len(digits.x_test), real=digits.real, repeats=len(logistic.weights(chains[exact])),
        levels=[one._asdict() for one in levels], rows=rows, today=today, best=best,
        clear=ends[best].below(ends[exact]), exact=exact,
        truth_error=truth.error, default=logistic.costs(default), nuts=logistic.costs(nuts),
        **facts,
    )  # fmt: skip


if __name__ == "__main__":
    main()
