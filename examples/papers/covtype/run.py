"""Large logistic regressions (Bardenet et al. 2014, section 4.2, figures 5, 6 and 7a).

Forest cover types with 2 and with 10 quantitative attributes, and two classes of points in the plane: random walks from
four starting points, decided from all the data and by the empirical Bernstein-Serfling bound.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import arviz as az
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

import stansub
from stansub.output.style import BLUE, CHAIN_COLOURS
from stansub.tuning.adapt import FirstWalk

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import common
from common import Array, Drawn, Page, Settings

CHAINS = 4
# Of the first steps of adaptive Metropolis, which then learns; starting points are standard normal.
FIRST_STEP = 0.2
# Burn-in ends where a chain first comes so near to the posterior mean, in posterior sds (Mahalanobis distance).
NEAR = 5.0
# Steps at the end of the chains, whose share of the data is told whether burn-in has ended or not.
LAST = 20
# Rows that errors are measured on, and steps of a chain at which they are.
SCORED, POINTS = 20_000, 60
# Centres of the two classes of section 4.2.2 on the x-axis; the paper does not give them.
CENTRES = (-1.0, 1.0)
EXACT, BOUND, DEFAULT, NUTS = "exact MH", "Bernstein-Serfling", "today's default", "NUTS"
COLOURS = {
    EXACT: CHAIN_COLOURS[5],
    BOUND: BLUE,
    DEFAULT: common.DEFAULT_COLOUR,
    NUTS: common.NUTS_COLOUR,
}


class Steps(NamedTuple):
    """Of each chain of the paper's samplers: those in which the proposal learns, and those after."""

    warmup: int
    sampling: int


@dataclass(frozen=True)
class Problem:
    """Rows to learn from and rows to be tested on.

    Attributes
    ----------
    name : str
    x, x_test : ndarray, shape (n, K)
        Real attributes centred and scaled to sd 0.5 (Gelman et al. 2008, section 2).
    y, y_test : ndarray of int64, shape (n,)
    steps : Steps
    bayes_error : float or None
        Of the best classifier, where it is known.
    """

    name: str
    x: Array
    y: NDArray[np.int64]
    x_test: Array
    y_test: NDArray[np.int64]
    steps: Steps
    bayes_error: float | None = None

    @property
    def n(self) -> int:
        """Rows to learn from."""
        return len(self.y)

    def data(self, rows: int | None = None) -> dict[str, Any]:
        """For the Stan program; the first rows, all of them by default."""
        x, y = self.x[:rows], self.y[:rows]
        return {"N": len(y), "K": x.shape[1], "y": y, "x": x}

    def errors(self, theta: Array) -> tuple[Array, Array]:
        """Shares of training and test rows that are put into the wrong class, for parameters of shape (n, 1 + K)."""
        return wrong(theta, self.x[:SCORED], self.y[:SCORED]), wrong(theta, self.x_test, self.y_test)


def wrong(theta: Array, x: Array, y: NDArray[np.int64]) -> Array:
    """Share of the rows on the wrong side of each hyperplane alpha + x beta = 0; theta has shape (n, 1 + K)."""
    above = theta[:, :1] + theta[:, 1:] @ x.T > 0
    share: Array = (above != (y == 1)).mean(axis=1)
    return share


def scaled(x: Array, like: Array) -> Array:
    """Centred, and scaled to sd 0.5, by the means and sds of other rows (Gelman et al. 2008, section 2)."""
    return np.asarray(0.5 * (x - like.mean(axis=0)) / like.std(axis=0))


def cover_types(settings: Settings) -> tuple[Array, NDArray[np.int64], bool]:
    """The 10 quantitative attributes and the class, in random order; and whether they are real."""
    rng = np.random.default_rng(20140)
    found = settings.find("covtype/covtype_binary.npz")
    if found is not None:
        with np.load(found) as raw:
            rows = rng.permutation(raw["y"].size)
            return raw["X_quant"][rows].astype(float), raw["y"][rows].astype(np.int64), True
    # Ten correlated attributes of which the first tells most, as elevation does.
    mixing = rng.normal(size=(10, 10)) / 3 + np.eye(10)
    x = rng.normal(size=(581_012, 10)) @ mixing
    slopes = np.append([-0.5, -0.3], 0.2 * rng.normal(size=8))
    return x, (rng.random(len(x)) < 1 / (1 + np.exp(-x @ slopes))).astype(np.int64), False


def of_cover_types(settings: Settings, attributes: int, steps: Steps) -> Problem:
    """Section 4.2.1: 400,000 training rows in full, the others for testing."""
    x, y, real = cover_types(settings)
    n = settings.pick(40_000, 400_000)
    test = slice(400_000, 400_000 + SCORED)
    x = x[:, :attributes]
    name = f"{'covtype' if real else 'simulated cover types'}, {attributes} attributes"
    return Problem(name, scaled(x[:n], x[:n]), y[:n], scaled(x[test], x[:n]), y[test], steps)


def of_two_classes(settings: Settings, steps: Steps) -> Problem:
    """Section 4.2.2: unit Gaussians about two centres on the x-axis."""
    rng = np.random.default_rng([settings.seed, 422])
    n = settings.pick(1_000_000, 10_000_000)
    y = rng.integers(0, 2, n + SCORED)
    x = rng.normal(size=(n + SCORED, 2))
    x[:, 0] += np.asarray(CENTRES)[y]
    bayes = float(ndtr((CENTRES[0] - CENTRES[1]) / 2))
    return Problem("two Gaussian classes", x[:n], y[:n], x[n:], y[n:], steps, bayes)


@dataclass(frozen=True)
class Walks:
    """Chains of one of the paper's samplers from their first step, learning included.

    Attributes
    ----------
    sampler : str
    drawn : Drawn
    theta : ndarray, shape (chains, steps, 1 + K)
    used : ndarray, shape (chains, steps)
        Share of the data in the subset of each decision.
    arrived : ndarray of int64, shape (chains,)
        Steps until burn-in ends; all of them where it does not.
    """

    sampler: str
    drawn: Drawn
    theta: Array
    used: Array
    arrived: NDArray[np.int64]

    @property
    def passes(self) -> Array:
        """Points drawn so far, in passes over the data."""
        return np.cumsum(self.used, axis=1)

    def to_arrive(self) -> float:
        """Passes over the data until burn-in ends, on average over the chains."""
        return float(np.mean([row[end - 1] for row, end in zip(self.passes, self.arrived, strict=True)]))

    def share(self, *, after: bool) -> float:
        """Of the data, in decisions of burn-in or after it; nan where there are none."""
        parts = [row[end:] if after else row[:end] for row, end in zip(self.used, self.arrived, strict=True)]
        every = np.concatenate(parts)
        return float(every.mean()) if every.size else float("nan")


def arrivals(theta: Array, mean: Array, covariance: Array) -> NDArray[np.int64]:
    """Steps of each chain until it is within `NEAR` posterior sds of the mean; all where it never is.

    Parameters
    ----------
    theta : ndarray, shape (chains, steps, dim)
    """
    away = theta - mean
    squares = np.einsum("csi,ij,csj->cs", away, np.linalg.inv(covariance), away)
    near = squares < NEAR**2
    return np.where(near.any(axis=1), near.argmax(axis=1) + 1, theta.shape[1])


def draws_of(group: Any) -> Array:
    """alpha and beta of a group, shape (chains, draws, 1 + K)."""
    return np.concatenate([np.asarray(group["alpha"])[..., None], np.asarray(group["beta"])], axis=2)


def walk(program: Any, problem: Problem, sampler: str, posterior: Array, settings: Settings) -> Walks:
    """Adaptive Metropolis from four starting points, the same for either sampler; the audit is left out.

    The bound: delta = 0.01, p = 2 and gamma = 2, on single points, with the Lipschitz constants of the program.
    """
    rng = np.random.default_rng([settings.seed, 421])
    dim = 1 + problem.x.shape[1]
    inits = [{"alpha": one[0], "beta": one[1:].tolist()} for one in rng.normal(size=(CHAINS, dim))]
    test: Any = stansub.Exact()
    if sampler == BOUND:
        test = stansub.BernsteinSerfling(delta=0.01, looks=stansub.Geometric(first=2, growth=2.0))
    drawn = common.with_default(
        program,
        problem.data(),
        test=test,
        block_size=1 if sampler == BOUND else None,
        control_variates=0,
        proposal=FirstWalk(FIRST_STEP * np.eye(dim)),
        inits=inits,
        audit=0.0,
        chains=CHAINS,
        iter_warmup=problem.steps.warmup,
        iter_sampling=problem.steps.sampling,
        save_warmup=True,
        seed=settings.seed,
    )
    groups = drawn.idata
    theta = np.concatenate([draws_of(groups["warmup_posterior"]), draws_of(groups["posterior"])], axis=1)
    used = np.concatenate(
        [np.asarray(groups[one]["n_obs_used"]) for one in ("warmup_sample_stats", "sample_stats")], axis=1
    )
    flat = posterior.reshape(-1, dim)
    return Walks(sampler, drawn, theta, used / problem.n, arrivals(theta, flat.mean(0), np.cov(flat, rowvar=False)))


@dataclass(frozen=True)
class Found:
    """All samplers on one problem.

    Attributes
    ----------
    problem : Problem
    walks : sequence of Walks
        The paper's, exact first.
    default, nuts : Drawn
    nuts_rows : int
        Rows that NUTS ran on.
    """

    problem: Problem
    walks: Sequence[Walks]
    default: Drawn
    nuts: Drawn
    nuts_rows: int

    def ess_per_second(self) -> dict[str, float]:
        """The smallest ESS of a parameter a second of sampling; of NUTS as if it took time in proportion to rows."""
        found = {one.sampler: one.drawn.ess_per_second for one in self.walks}
        return found | {
            DEFAULT: self.default.ess_per_second,
            NUTS: self.nuts.ess_per_second * self.nuts_rows / self.problem.n,
        }

    def rows(self) -> list[dict[str, Any]]:
        """For the table of the page: a row a sampler of the paper."""
        posterior = draws_of(self.default.idata["posterior"])
        return [
            {
                "problem": self.problem.name,
                "n": self.problem.n,
                "sampler": one.sampler,
                "burn_in": one.share(after=False),
                "after": one.share(after=True),
                "last": float(one.used[:, -LAST:].mean()),
                "arrived": float(one.arrived.mean()),
                "all_arrived": bool((one.arrived < one.theta.shape[1]).all()),
                "to_arrive": one.to_arrive(),
                "train": float(self.problem.errors(one.theta[:, -1])[0].mean()),
                "test": float(self.problem.errors(one.theta[:, -1])[1].mean()),
                "z": largest_z(draws_of(one.drawn.idata["posterior"]), posterior),
            }
            for one in self.walks
        ]


def largest_z(draws: Array, reference: Array) -> float:
    """Largest difference of the means of two sets of draws, shape (chains, draws, dim), in Monte Carlo errors."""
    z = [
        abs(own.mean() - other.mean()) / np.hypot(az.mcse(own), az.mcse(other))
        for own, other in zip(np.moveaxis(draws, 2, 0), np.moveaxis(reference, 2, 0), strict=True)
    ]
    return float(max(z))


def solve(program: Any, problem: Problem, settings: Settings) -> Found:
    """Run all samplers."""
    default = common.with_default(program, problem.data(), seed=settings.seed)
    posterior = draws_of(default.idata["posterior"])
    walks = [walk(program, problem, sampler, posterior, settings) for sampler in (EXACT, BOUND)]
    rows, draws = settings.pick(2000, 20_000), settings.pick(200, 500)
    nuts = common.with_nuts(
        settings.program, problem.data(rows), chains=2, iter_warmup=draws, iter_sampling=draws, seed=settings.seed
    )
    return Found(problem, walks, default, nuts, rows)


def draw_chains(page: Page, found: Sequence[Found]) -> None:
    """Figures 5, 6 and 7a: errors and a running mean against passes over the data, a row a problem."""
    figure, axes = page.figure(columns=3, rows=len(found))
    for row, one in zip(axes, found, strict=True):
        problem, posterior = one.problem, draws_of(one.default.idata["posterior"])
        for walks in one.walks:
            colour, dashes = COLOURS[walks.sampler], "-" if walks.sampler == EXACT else "--"
            for chain, (theta, passes) in enumerate(zip(walks.theta, walks.passes, strict=True)):
                at = np.unique(np.geomspace(1, len(theta), POINTS).astype(int)) - 1
                train, test = problem.errors(theta[at])
                label = f"{walks.sampler}: {common.percent(walks.used.mean())}" if chain == 0 else None
                row[0].plot(passes[at], train, dashes, color=colour, lw=1, label=label)
                row[1].plot(passes[at], test, dashes, color=colour, lw=1)
                running = np.cumsum(theta[:, 1]) / np.arange(1, len(theta) + 1)
                row[2].plot(passes[at], running[at], dashes, color=colour, lw=1)
        train, test = problem.errors(posterior.mean((0, 1))[None])
        for axis, value in zip(row, (train[0], test[0], posterior[..., 1].mean()), strict=True):
            axis.axhline(value, color=COLOURS[DEFAULT], lw=1.2, label=DEFAULT)
            axis.set(xscale="log", xlabel="points drawn, in passes over the data")
        if problem.bayes_error is not None:
            row[1].axhline(problem.bayes_error, color=common.EXACT_COLOUR, ls="-.", lw=1, label="Bayes classifier")
            row[1].legend(fontsize=7, loc="upper right")
        row[0].set(ylabel="train error", title=f"{problem.name}, n = {problem.n:,}")
        row[1].set_ylabel("test error")
        row[2].set_ylabel("running mean of beta[1]")
        top = 1.3 * row[0].get_ylim()[1]
        row[0].set_ylim(top=top)
        row[1].set_ylim(top=top)
        row[0].legend(fontsize=7, loc="upper right")
    page.save(figure, "chains")


def draw_shares(page: Page, found: Sequence[Found]) -> None:
    """Share of the data that decisions use step by step, and effective draws a second of all samplers."""
    figure, axes = page.figure(columns=2)
    for one, colour in zip(found, common.COLOURS, strict=False):
        used = one.walks[-1].used.mean(axis=0)
        width = max(1, len(used) // 30)
        smooth = [part.mean() for part in np.array_split(used, len(used) // width)]
        at = [part.mean() for part in np.array_split(np.arange(1, len(used) + 1), len(used) // width)]
        axes[0].plot(at, smooth, color=colour, lw=1.4, label=one.problem.name)
    axes[0].set(xscale="log", ylim=(0, 1.35), xlabel="step", ylabel="share of the data in a decision", title=BOUND)
    axes[0].legend(fontsize=7, loc="upper left")
    width = 0.8 / len(COLOURS)
    for place, (sampler, colour) in enumerate(COLOURS.items()):
        values = [one.ess_per_second()[sampler] for one in found]
        axes[1].bar(np.arange(len(found)) + (place - 1.5) * width, values, width, color=colour, label=sampler)
    axes[1].set(yscale="log", ylabel="smallest ESS a second of sampling", xticks=np.arange(len(found)))
    axes[1].set_xticklabels([fill(one.problem.name, 14) for one in found], fontsize=7)
    axes[1].set_ylim(top=axes[1].get_ylim()[1] * 30)
    axes[1].legend(fontsize=7, ncols=2, loc="upper left")
    page.save(figure, "cost")


def main() -> None:
    """Run the samplers on the three problems and write the page."""
    settings = common.settings(__file__, __doc__)
    page = Page(settings)
    few, many = settings.pick(Steps(250, 150), Steps(1000, 3000)), settings.pick(Steps(350, 100), Steps(3000, 7000))
    tall = settings.pick(Steps(150, 30), Steps(300, 200))
    problems = [
        of_cover_types(settings, 2, few),
        of_cover_types(settings, 10, many),
        of_two_classes(settings, tall),
    ]
    program = stansub.compile_model(settings.program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stansub.DrawsWarning)  # short runs; the page says how far chains came
        found = [solve(program, one, settings) for one in problems]
    draw_chains(page, found)
    draw_shares(page, found)
    costs = [
        {
            "problem": one.problem.name,
            "ess_per_second": one.ess_per_second(),
            "default_share": common.share_of_data(one.default.idata),
            "default_whole": one.default.whole,
            "nuts_rows": one.nuts_rows,
        }
        for one in found
    ]
    gains = {one.problem.name: one.walks[0].to_arrive() / one.walks[1].to_arrive() for one in found}
    rows = [row for one in found for row in one.rows()]
    bound = [row for row in rows if row["sampler"] == BOUND]
    page.write(
        "The Bernstein-Serfling bound uses "
        + ", ".join(f"{common.percent(row['burn_in'])}" for row in bound)
        + " of the data per decision in burn-in and "
        + ", ".join(f"{common.percent(row['last'])}" for row in bound)
        + f" in the last {LAST} steps ("
        + "; ".join(row["problem"] for row in bound)
        + ").",
        real=problems[0].name.startswith("covtype"),
        chains=CHAINS,
        rows=rows,
        gains=gains,
        costs=costs,
        centres=CENTRES,
        near=NEAR,
        last=LAST,
        scored=SCORED,
    )


if __name__ == "__main__":
    main()
