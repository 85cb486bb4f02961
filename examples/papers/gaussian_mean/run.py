"""The mean of up to 10^15 normal points (Bardenet et al. 2014, section 4.3, figure 7b), none of which is stored.

The model is N(theta, 1), the data N(1/2, 0.1^2). A decision needs the mean and the sum of squares of the points it has
drawn and nothing else of them: the log likelihood ratio (theta' - theta) (x - (theta + theta') / 2) is linear in x. So
what is drawn between two looks is drawn as that pair, exactly, given the same pair of what is left (see `split`). The
looks and their thresholds are the table of the package's rule.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import arviz as az
import numpy as np
from matplotlib import colormaps
from numpy.typing import NDArray
from scipy.special import ndtri

import stansub
from stansub.acceptance.looks import Table
from stansub.output.style import BLUE

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import common
from common import Array, Drawn, Page, Settings

CENTRE, SPREAD = 0.5, 0.1
SIZES = tuple(10**power for power in (5, 7, 9, 11, 13, 15))
# Of a step, in posterior sds: half of the moves are accepted, as the paper asks in one dimension, for the rate of a
# random walk on a normal posterior is 2 / pi arctan(2 / scale).
SCALE = 2.0
SUBSAMPLE = 10  # chains start at the mean of one in so many points
BOUND, DEFAULT, NUTS = "Bernstein-Serfling", "today's default", "NUTS"
COLOURS = {BOUND: BLUE, DEFAULT: common.DEFAULT_COLOUR, NUTS: common.NUTS_COLOUR}


class Part(NamedTuple):
    """Some points of a population.

    Attributes
    ----------
    n : int
    mean : float
        Less that of the whole population: differences between nearly equal numbers stay precise whatever n is.
    squares : float
        Sum of squares about their own mean.
    """

    n: int
    mean: float
    squares: float

    def with_(self, other: Part) -> Part:
        """Both together."""
        n, away = self.n + other.n, other.mean - self.mean
        between = away**2 * (self.n / n) * other.n
        return Part(n, self.mean + away * (other.n / n), self.squares + other.squares + between)


def split(whole: Part, m: int, rng: np.random.Generator) -> tuple[Part, Part]:
    """A simple random sample of ``m`` points and what is left, given the mean and the sum of squares of all.

    Of n independent normal points, the sum of squares S about their mean is the sum of three independent parts, each
    the variance times a chi-squared variable: within the m points (m - 1 degrees of freedom), within the others
    (n - m - 1), and between the two, m (n - m) / n times the square of the difference of the means (1). Given S their
    shares of it are therefore Dirichlet with half these degrees of freedom, independent of the mean of all and of the
    sign of the difference. Since points can be exchanged, any m of them are a sample without replacement.
    """
    if m >= whole.n:
        return whole, Part(0, 0.0, 0.0)
    left = whole.n - m
    shares = rng.standard_gamma(np.array([0.5, (m - 1) / 2, (left - 1) / 2]))
    between, within, without = whole.squares * shares / shares.sum()
    away = math.sqrt(between * (whole.n / left) / m) * (1 if rng.random() < 0.5 else -1)
    return (
        Part(m, whole.mean + away * (left / whole.n), within),
        Part(left, whole.mean - away * (m / whole.n), without),
    )


class Population(Protocol):
    """Points from which decisions draw.

    Attributes
    ----------
    n : int
    mean : float
    largest : float
        The largest absolute value.
    """

    @property
    def n(self) -> int: ...

    @property
    def mean(self) -> float: ...

    @property
    def largest(self) -> float: ...

    def subsets(self, looks: Sequence[int], rng: np.random.Generator) -> Iterator[Part]:
        """A random subset without replacement that grows from look to look."""
        ...


@dataclass(frozen=True)
class Unstored:
    """Normal points of which only the mean, the sum of squares and the largest are fixed.

    The posterior, and whether a decision is right, depend on the mean alone. Everything else of the population is drawn
    anew for every decision, given the mean and the sum of squares.

    Attributes
    ----------
    n : int
    mean, squares : float
        Sum of squares about the mean.
    largest : float
    """

    n: int
    mean: float
    squares: float
    largest: float

    @classmethod
    def of(cls, n: int, spread: float, rng: np.random.Generator) -> Unstored:
        """As ``n`` independent points of N(1/2, spread^2) would give it.

        The largest is that of n independent normal numbers by inversion of its distribution function, Phi(z)^n; it is
        drawn independently of mean and sum of squares, on which it depends ever less as n grows.
        """
        mean = CENTRE + spread / math.sqrt(n) * rng.normal()
        squares = spread**2 * 2 * rng.standard_gamma((n - 1) / 2)
        top = -ndtri(-math.expm1(math.log(rng.random()) / n))
        return cls(n, mean, squares, CENTRE + spread * top)

    def subsets(self, looks: Sequence[int], rng: np.random.Generator) -> Iterator[Part]:
        """Sufficient statistics, grown by `split`."""
        drawn, rest = split(Part(self.n, 0.0, self.squares), looks[0], rng)
        yield drawn
        for look in looks[1:]:
            more, rest = split(rest, look - drawn.n, rng)
            drawn = drawn.with_(more)
            yield drawn


@dataclass(frozen=True)
class Stored:
    """Points in memory: what `Unstored` is held against.

    Attributes
    ----------
    points : ndarray, shape (n,)
    """

    points: Array

    @property
    def n(self) -> int:
        return len(self.points)

    @property
    def mean(self) -> float:
        return float(self.points.mean())

    @property
    def largest(self) -> float:
        return float(np.abs(self.points).max())

    def subsets(self, looks: Sequence[int], rng: np.random.Generator) -> Iterator[Part]:
        """The first points of a random order."""
        centred = rng.permutation(self.points) - self.mean
        for look in looks:
            some = centred[:look]
            yield Part(look, float(some.mean()), float(((some - some.mean()) ** 2).sum()))


@dataclass(frozen=True, kw_only=True)
class Doubling:
    """Looks at first, 2 first, 4 first, ... units, as `stansub.Geometric` has them; n may be beyond 32 bits."""

    first: int = 2

    def looks(self, n_units: int) -> NDArray[np.int64]:
        looks = [min(self.first, n_units)]
        while looks[-1] < n_units:
            looks.append(min(2 * looks[-1], n_units))
        return np.array(looks, np.int64)

    def starting_at(self, first: int) -> Doubling:
        return Doubling(first=first)


def paper_table(n: int) -> Table:
    """The looks of the paper: delta = 0.01, p = 2, gamma = 2."""
    return stansub.BernsteinSerfling(delta=0.01, looks=Doubling()).table(n)


class Decision(NamedTuple):
    """Of one step.

    Attributes
    ----------
    accepted : bool
    n_used : int
    wrong : bool
        Whether all points say otherwise.
    """

    accepted: bool
    n_used: int
    wrong: bool


def decide(
    population: Population, table: Table, here: float, there: float, log_u: float, rng: np.random.Generator
) -> Decision:
    """One decision (Bardenet et al. 2014, figure 3).

    The mean of the log ratios is (theta' - theta) (mean of x - (theta + theta') / 2), their sd |theta' - theta| times
    that of x (equation 24). The constant that section 4.3 gives, 2 |theta' - theta| (max |x| + |theta + theta'| / 2),
    bounds their range.

    Parameters
    ----------
    here, there : float
        theta and theta', less the mean of the population.
    """
    move, middle, threshold = there - here, (here + there) / 2, log_u / population.n
    spread = 2 * abs(move) * (population.largest + abs(population.mean + middle))
    accepts = -move * middle > threshold
    looks = table.n.tolist()
    rows = zip(population.subsets(looks, rng), table.scale.tolist(), table.offset.tolist(), strict=True)
    for part, scale, offset in rows:
        distance = move * (part.mean - middle) - threshold
        sd = abs(move) * math.sqrt(part.squares / max(part.n - 1, 1))
        if part.n == population.n or abs(distance) > scale * sd + offset * spread:
            return Decision(distance > 0, part.n, (distance > 0) != accepts)
    raise AssertionError("the last look has all points")


class Chain(NamedTuple):
    """Steps of a random walk.

    Attributes
    ----------
    theta : ndarray, shape (n_steps,)
        In posterior sds from the posterior mean.
    used : ndarray, shape (n_steps,)
        Share of the points in each decision.
    accepted, wrong : ndarray of bool, shape (n_steps,)
    """

    theta: Array
    used: Array
    accepted: NDArray[np.bool_]
    wrong: NDArray[np.bool_]


def walk(
    population: Population, table: Table, n_steps: int, rng: np.random.Generator, *, scale: float = SCALE
) -> Chain:
    """A random walk from the mode of a subsampled likelihood; the sd of its steps is ``scale`` posterior sds."""
    sd = 1 / math.sqrt(population.n)
    theta = next(population.subsets([max(1, population.n // SUBSAMPLE), population.n], rng)).mean
    out = Chain(np.empty(n_steps), np.empty(n_steps), np.empty(n_steps, bool), np.empty(n_steps, bool))
    for step in range(n_steps):
        there = theta + scale * sd * rng.normal()
        decision = decide(population, table, theta, there, math.log1p(-rng.random()), rng)
        theta = there if decision.accepted else theta
        out.theta[step], out.used[step] = theta / sd, decision.n_used / population.n
        out.accepted[step], out.wrong[step] = decision.accepted, decision.wrong
    return out


def expected_share(
    n: int, spread: float, table: Table, rng: np.random.Generator, *, scale: float = SCALE, n_draws: int = 4000
) -> float:
    """Share of the points at equilibrium if drawn means and sds were those of all points.

    A decision then falls at the first look whose threshold is below the distance of the mean log ratio from the
    threshold: of order 1 / n, where sd / sqrt(t) is of order SPREAD / sqrt(n t), so that t is proportional to
    SPREAD^2 n (section 4.3): that of a typical decision, not its mean, for decisions whose distance is near 0 need all
    points whatever the spread, and their share is in proportion to the spread itself.
    """
    here = rng.normal(size=n_draws) / math.sqrt(n)
    move = scale * rng.normal(size=n_draws) / math.sqrt(n)
    middle = here + move / 2
    distance = np.abs(-move * middle - np.log1p(-rng.random(n_draws)) / n)
    largest = CENTRE - spread * float(ndtri(0.5 / n))
    constant = 2 * np.abs(move) * (largest + np.abs(CENTRE + middle))
    limits = np.outer(spread * np.abs(move), table.scale) + np.outer(constant, table.offset)
    first = (distance[:, None] > limits).argmax(axis=1)  # the last limit is 0
    return float(table.n[first].mean() / n)


@dataclass(frozen=True)
class Run:
    """A chain with what was expected of it.

    Attributes
    ----------
    n : int
    spread : float
        Of the data, sigma_X.
    scale : float
        Of the steps, in posterior sds.
    chain : Chain
    expected : float
        Share of the points (see `expected_share`).
    """

    n: int
    spread: float
    scale: float
    chain: Chain
    expected: float

    def row(self) -> dict[str, Any]:
        """For the table of the page."""
        theta, used = self.chain.theta, self.chain.used
        return {
            "n": self.n,
            "spread": self.spread,
            "scale": self.scale,
            "typical": float(np.exp(np.log(used).mean())),
            "share": float(used.mean()),
            "error": float(az.mcse(used[np.newaxis])),
            "expected": self.expected,
            "accepted": float(self.chain.accepted.mean()),
            "n_wrong": int(self.chain.wrong.sum()),
            "n_steps": len(used),
            "mean": float(theta.mean()),
            "mean_error": float(az.mcse(theta[np.newaxis])),
            "sd": float(theta.std()),
            "sd_error": float(az.mcse(theta[np.newaxis], method="sd")),
        }


def run(n: int, spread: float, n_steps: int, rng: np.random.Generator, *, scale: float = SCALE) -> Run:
    """One of the paper's runs."""
    population, table = Unstored.of(n, spread, rng), paper_table(n)
    expected = expected_share(n, spread, table, rng, scale=scale)
    return Run(n, spread, scale, walk(population, table, n_steps, rng, scale=scale), expected)


@dataclass(frozen=True)
class Today:
    """Draws from stored points.

    Attributes
    ----------
    n : int
    mean : float
        Of the points, which is the posterior mean.
    default, nuts : Drawn
    """

    n: int
    mean: float
    default: Drawn
    nuts: Drawn

    def row(self) -> dict[str, Any]:
        """For the table of the page."""
        draws = np.asarray(self.default.idata["posterior"]["theta"])
        scale = math.sqrt(self.n)
        chains = self.nuts.idata["chain_stats"]
        iterations = 2 * np.asarray(self.nuts.idata["posterior"]["theta"]).size  # warmup is as long
        return {
            "n": self.n,
            "share": common.share_of_data(self.default.idata),
            "points": common.share_of_data(self.default.idata) * self.n,
            "bias": float(draws.mean() - self.mean) * scale,
            "bias_error": float(az.mcse(draws)) * scale,
            "sd": float(draws.std()) * scale,
            "ess_per_second": self.default.ess_per_second,
            "whole": self.default.whole,
            "nuts_passes": float(chains["n_gradients"].sum()) / iterations,
            "nuts_ess_per_second": self.nuts.ess_per_second,
        }


def today(n: int, program: Any, settings: Settings) -> Today:
    """The default and NUTS."""
    y = np.random.default_rng([settings.seed, n]).normal(CENTRE, SPREAD, n)
    data, draws = {"N": n, "y": y}, settings.pick(300, 1000)
    default = common.with_default(program, data, seed=settings.seed)
    nuts = common.with_nuts(settings.program, data, iter_warmup=draws, iter_sampling=draws, seed=settings.seed)
    return Today(n, float(y.mean()), default, nuts)


def draw(page: Page, runs: Sequence[Run], spreads: Sequence[Run], rows: Sequence[dict[str, Any]]) -> None:
    """Figure 7b; share against n, with the default and NUTS; share against sigma_X."""
    figure, axes = page.figure(columns=3)
    for one, colour in zip(runs, colormaps["viridis"](np.linspace(0, 0.9, len(runs))), strict=True):
        steps = np.arange(1, len(one.chain.used) + 1)
        label = f"n = $10^{{{round(math.log10(one.n))}}}$"
        axes[0].plot(steps, np.cumsum(one.chain.used) / steps, color=colour, lw=1.2, label=label)
    axes[0].axhline(0.5, color=common.EXACT_COLOUR, lw=0.8, ls=":")
    axes[0].set(xscale="log", ylim=(0, 1.05), xlabel="iteration", ylabel="running share of the points", title=BOUND)
    axes[0].legend(fontsize=7, ncols=2, loc="lower right")
    draw_shares(axes[1], [one.n for one in runs], runs)
    axes[1].plot([row["n"] for row in rows], [row["share"] for row in rows], "s", color=COLOURS[DEFAULT], label=DEFAULT)
    passes = [row["nuts_passes"] for row in rows]
    axes[1].plot([row["n"] for row in rows], passes, "^", color=COLOURS[NUTS], label=f"{NUTS}, gradients a draw")
    axes[1].set(xscale="log", ylim=(-0.05, 1.6), xlabel="n", ylabel="points a decision, as a share of n")
    axes[1].legend(fontsize=7, loc="upper right")
    values = np.array([one.spread for one in spreads])
    draw_shares(axes[2], values, spreads)
    typical = np.array([one.row()["typical"] for one in spreads])
    axes[2].plot(values, typical, "o", mfc="none", color=COLOURS[BOUND], ms=4, label="geometric mean")
    for start, slope, style in ((typical[0], 2, ":"), (spreads[0].expected, 1, "--")):
        guide = start * (values / values[0]) ** slope
        axes[2].plot(values, guide, style, color=common.EXACT_COLOUR, lw=1, label=f"slope {slope}")
    axes[2].set(xscale="log", yscale="log", xlabel="sigma of the data", ylabel="share of the points", ylim=(None, 2))
    axes[2].set_title(f"n = $10^{{{round(math.log10(spreads[0].n))}}}$")
    axes[2].legend(fontsize=7)
    page.save(figure, "share")


def draw_shares(axis: Any, at: Sequence[float] | Array, runs: Sequence[Run]) -> None:
    """Shares with two Monte Carlo standard errors, and what was expected."""
    rows = [one.row() for one in runs]
    errors = [2 * row["error"] for row in rows]
    axis.errorbar(at, [row["share"] for row in rows], errors, fmt="o", ms=4, color=COLOURS[BOUND], label=BOUND)
    axis.plot(at, [row["expected"] for row in rows], color=COLOURS[BOUND], lw=1, label="expected")


def slopes(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """By how many powers of sigma_X the mean and the geometric mean of the share grow between two runs."""
    ratio = math.log(rows[1]["spread"] / rows[0]["spread"])
    return {name: math.log(rows[1][name] / rows[0][name]) / ratio for name in ("share", "typical")}


def main() -> None:
    """Run the chains, the default and NUTS, and write the page."""
    settings = common.settings(__file__, __doc__)
    page = Page(settings)
    rng = np.random.default_rng(settings.seed)
    n_steps = settings.pick(2000, 20_000)
    runs = [run(n, SPREAD, n_steps, rng) for n in SIZES]
    spreads = [run(SIZES[-1], spread, n_steps // 3, rng) for spread in (0.01, 0.03, 0.1, 0.3, 1.0)]
    scales = [run(SIZES[-1], SPREAD, n_steps // 3, rng, scale=scale) for scale in (0.5, 1.0, SCALE)]
    program = stansub.compile_model(settings.program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stansub.DrawsWarning)
        found = [today(n, program, settings) for n in settings.pick((10**5,), (10**5, 10**6, 10**7))]
    rows = [one.row() for one in found]
    draw(page, runs, spreads, rows)
    each = [one.row() for one in runs]
    page.write(
        f"The share of the points that a decision needs falls from {common.percent(each[0]['share'], 3)} of 10^5 to "
        f"{common.percent(each[-1]['share'], 3)} of 10^15; today's default needs {common.figures(rows[0]['points'])} "
        "points.",
        runs=each,
        spreads=[one.row() for one in spreads],
        scales=[one.row() for one in scales],
        slopes=slopes([one.row() for one in spreads[:2]]),
        today=rows,
        centre=CENTRE,
        spread=SPREAD,
        scale=SCALE,
        subsample=SUBSAMPLE,
        n_steps=n_steps,
    )


if __name__ == "__main__":
    main()
