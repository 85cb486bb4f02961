"""When the asymptotic test fails: mean and sd of a normal model (Bardenet et al. 2014, section 4.1, figure 4a to c).

100,000 points of N(0, 0.1^2) and of a lognormal distribution, a normal model with flat priors, random walks whose
decisions are taken from single points: by the t-test of Korattikara et al. (2014) with a first look at 2 and at 500
points, and by the empirical Bernstein-Serfling bound.
"""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
from scipy import stats
from scipy.special import gammaln

import stansub
from stansub.output.style import BLUE, CHAIN_COLOURS, few_ticks

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import common
from common import Array, Drawn, Page, Settings

N, CHAINS = 100_000, 4
ASYMPTOTIC, BERNSTEIN, DEFAULT, NUTS = "asymptotic test", "Bernstein-Serfling", "today's default", "NUTS"
COLOURS = {
    ASYMPTOTIC: CHAIN_COLOURS[1],
    BERNSTEIN: BLUE,
    DEFAULT: common.DEFAULT_COLOUR,
    NUTS: common.NUTS_COLOUR,
}


@dataclass(frozen=True)
class Posterior:
    """Of sigma given y, with flat priors on mu and sigma, in closed form.

    The marginal is proportional to sigma^(1 - n) exp(-S / (2 sigma^2)), S being the sum of squares about the mean:
    sigma^-2 is gamma with shape n / 2 - 1 and rate S / 2.

    Attributes
    ----------
    n : int
    centre, squares : float
        Mean of y, and S.
    """

    n: int
    centre: float
    squares: float

    @classmethod
    def of(cls, y: Array) -> Posterior:
        """Given data, shape (n,)."""
        return cls(len(y), float(y.mean()), float(((y - y.mean()) ** 2).sum()))

    def density(self, sigma: Array) -> Array:
        """At some values of sigma."""
        precision = stats.gamma(self.n / 2 - 1, scale=2 / self.squares)
        return np.asarray(precision.pdf(sigma**-2.0) * 2 * sigma**-3.0)

    @property
    def mode(self) -> float:
        """Where the density is highest."""
        return float(np.sqrt(self.squares / (self.n - 1)))

    @property
    def mean(self) -> float:
        """Mean of sigma."""
        shape = self.n / 2 - 1
        return float(np.sqrt(self.squares / 2) * np.exp(gammaln(shape - 0.5) - gammaln(shape)))

    @property
    def sd(self) -> float:
        """Standard deviation of sigma."""
        return float(np.sqrt(self.squares / (self.n - 4) - self.mean**2))


@dataclass(frozen=True)
class Problem:
    """A data set with its posterior.

    Attributes
    ----------
    name : str
    y : ndarray, shape (n,)
    """

    name: str
    y: Array

    @cached_property
    def posterior(self) -> Posterior:
        """Of sigma."""
        return Posterior.of(self.y)

    @property
    def data(self) -> dict[str, Any]:
        """For the Stan programs."""
        return {"N": len(self.y), "y": self.y}

    @property
    def inits(self) -> list[dict[str, float]]:
        """Starting values of the chains, well away from the posterior."""
        truth = self.posterior
        return [{"mu": truth.centre, "sigma": truth.mode * factor} for factor in np.geomspace(0.8, 1.25, CHAINS)]


@dataclass(frozen=True)
class Run:
    """Draws of one sampler on one data set.

    Attributes
    ----------
    sampler : str
        A key of `COLOURS`.
    problem : Problem
    drawn : Drawn
    first : int or None
        Points at the first look.
    """

    sampler: str
    problem: Problem
    drawn: Drawn
    first: int | None = None

    @property
    def label(self) -> str:
        """With the first look."""
        return f"{self.sampler}, first look {self.first}" if self.first else self.sampler

    @property
    def sigma(self) -> Array:
        """Draws, shape (chains, draws)."""
        return np.asarray(self.drawn.idata["posterior"]["sigma"])

    @property
    def share(self) -> float:
        """Of the data, in a decision."""
        return 1.0 if self.sampler == NUTS else common.share_of_data(self.drawn.idata)

    def row(self) -> dict[str, Any]:
        """For the table of the page."""
        truth, draws = self.problem.posterior, self.sigma
        return {
            "data": self.problem.name,
            "label": self.label,
            "share": self.share,
            "off": highest(draws.ravel()) / truth.mode - 1,
            "bias": float(draws.mean() - truth.mean) / truth.sd,
            "mcse": float(az.mcse(draws)) / truth.sd,
            "sd_ratio": float(draws.std()) / truth.sd,
            "ess": float(az.ess(draws)),
            "seconds": self.drawn.sampling,
            "ess_per_second": float(az.ess(draws)) / self.drawn.sampling,
        }

    def said(self) -> dict[str, Any]:
        """What the run itself says against its draws: audit, normality trial and warnings."""
        attrs, stats_ = self.drawn.idata.attrs, self.drawn.idata["chain_stats"]
        trial, lines = attrs.get("normality"), str(attrs["warnings"]).splitlines()
        return {
            "data": self.problem.name,
            "label": self.label,
            "n_audited": int(stats_["n_audited"].sum()),
            "n_wrong": int(stats_["n_audit_wrong"].sum()),
            "warned_of_audit": any("audited decisions were wrong" in line for line in lines),
            "trial": json.loads(trial) if isinstance(trial, str) else trial,
            "warnings": lines,
        }

    def curve(self) -> common.Curve:
        """Squared error of the running mean of sigma, in posterior variances, against seconds."""
        truth, scaled = self.problem.posterior, self.sigma[:, :, None]
        seconds = np.asarray(self.drawn.idata["chain_stats"]["sampling_time"], float).tolist()
        return common.risk(list(scaled / truth.sd), seconds, np.array([truth.mean / truth.sd]))


def highest(draws: Array) -> float:
    """Where a kernel estimate of the density of some draws is highest."""
    grid = np.linspace(*np.quantile(draws, [0.01, 0.99]), 400)
    return float(grid[np.argmax(stats.gaussian_kde(draws[:: max(1, len(draws) // 4000)])(grid))])


def problems(seed: int) -> dict[str, Problem]:
    """The two samples of section 4.1; the paper's log N(0, 2) is read as one with an sd of 2 on the log scale."""
    rng = np.random.default_rng(seed)
    return {
        "normal": Problem("N(0, 0.1²)", rng.normal(0.0, 0.1, N)),
        "lognormal": Problem("log N(0, 2)", rng.lognormal(0.0, 2.0, N)),
    }


def asymptotic(program: Any, problem: Problem, first: int, settings: Settings) -> Run:
    """The t-test at level 0.05 at each look, at ``first`` points and at twice as many each time."""
    test = stansub.Austerity(epsilon=0.05, looks=stansub.Geometric(first=first))
    # Cheap decisions allow longer chains: their error is bias then, not chance.
    steps = settings.pick(4000, 50_000) if first == 2 else settings.pick(1200, 20_000)
    audit = 300 / (CHAINS * steps)
    return Run(ASYMPTOTIC, problem, walk(program, problem, test, steps, settings, audit=audit), first)


def bernstein(program: Any, problem: Problem, settings: Settings) -> Run:
    """The empirical Bernstein-Serfling bound, delta = 0.01, p = 2 and gamma = 2; the program gives C (equation 8)."""
    test = stansub.BernsteinSerfling(delta=0.01, looks=stansub.Geometric(first=2, growth=2.0))
    return Run(BERNSTEIN, problem, walk(program, problem, test, settings.pick(500, 10_000), settings))


def walk(program: Any, problem: Problem, test: Any, steps: int, settings: Settings, **options: Any) -> Drawn:
    """Adaptive Metropolis on single points, as the paper has it."""
    return common.with_default(
        program,
        problem.data,
        test=test,
        block_size=1,
        control_variates=0,
        proposal="adaptive-metropolis",
        inits=problem.inits,
        chains=CHAINS,
        iter_warmup=settings.pick(400, 2000),
        iter_sampling=steps,
        seed=settings.seed,
        **options,
    )


def runs(settings: Settings) -> dict[str, list[Run]]:
    """All samplers, by the panel of figure 4."""
    found = problems(settings.seed)
    program = stansub.compile_model(settings.folder / "normal.stan")
    plain = stansub.compile_model(settings.folder / "vectorised.stan")
    shared: dict[str, list[Run]] = {}
    for key, problem in found.items():
        draws = settings.pick(500, 1000)
        nuts = common.with_nuts(
            settings.folder / "vectorised.stan",
            problem.data,
            iter_warmup=draws,
            iter_sampling=draws,
            seed=settings.seed,
        )
        shared[key] = [
            bernstein(program, problem, settings),
            Run(DEFAULT, problem, common.with_default(plain, problem.data, seed=settings.seed)),
            Run(NUTS, problem, nuts),
        ]
    panels = {"a": ("normal", 2), "b": ("normal", 500), "c": ("lognormal", 500)}
    return {
        panel: [asymptotic(program, found[key], first, settings), *shared[key]]
        for panel, (key, first) in panels.items()
    }


def draw_marginals(page: Page, panels: dict[str, list[Run]]) -> None:
    """Figure 4a to c above; below the same near the exact posterior."""
    figure, axes = page.figure(columns=len(panels), rows=2)
    for column, (panel, found) in zip(axes.T, panels.items(), strict=True):
        truth = found[0].problem.posterior
        for axis, near in zip(column, (False, True), strict=True):
            draws = np.concatenate([run.sigma.ravel() for run in found])
            low, high = np.quantile(draws, [0.0005, 0.9995])
            if near:
                low, high = truth.mean - 6 * truth.sd, truth.mean + 6 * truth.sd
            edges, grid = np.linspace(low, high, 81), np.linspace(low, high, 1001)
            for run in found:
                counts = np.histogram(run.sigma, edges)[0].astype(float)
                label = f"{run.label}: {common.percent(run.share)}" if run.sampler != NUTS else NUTS
                height = counts / max(counts.max(), 1.0)
                axis.stairs(height, edges, color=COLOURS[run.sampler], fill=run.sampler == ASYMPTOTIC, alpha=0.8)
                axis.plot([], [], color=COLOURS[run.sampler], label=label)
            density = truth.density(grid)
            axis.plot(grid, density / density.max(), color=common.EXACT_COLOUR, lw=1, ls="--", label="exact")
            axis.plot([truth.mode], [-0.03], marker="^", color="red", ms=6, clip_on=False)
            axis.set(xlabel="sigma", ylim=(0, 1.75), yticks=[0, 0.5, 1])
            axis.xaxis.set_major_locator(few_ticks())
            axis.ticklabel_format(useOffset=False)
        column[0].set_title(f"({panel}) {found[0].problem.name}, first look {found[0].first}")
        column[1].set_title("within six posterior sds")
        column[0].legend(fontsize=7, loc="upper left")
    axes[0, 0].set_ylabel("density, highest = 1")
    axes[1, 0].set_ylabel("density, highest = 1")
    page.save(figure, "marginals")


def draw_risk(page: Page, panels: dict[str, list[Run]]) -> None:
    """Error of the mean of sigma against seconds of sampling, all samplers."""
    figure, axes = page.figure(columns=len(panels), sharey=True)
    for axis, (panel, found) in zip(axes, panels.items(), strict=True):
        common.draw_risk(
            axis, {run.label: run.curve() for run in found}, {run.label: COLOURS[run.sampler] for run in found}
        )
        axis.set(title=f"({panel}) {found[0].problem.name}", ylabel="", xlabel="seconds of sampling, a chain")
        axis.set_ylim(top=3e8)
        axis.legend(fontsize=7, loc="upper right")
    axes[0].set_ylabel("squared error of the mean of sigma,\nin posterior variances")
    page.save(figure, "risk")


def main() -> None:
    """Run the samplers and write the page."""
    settings = common.settings(__file__, __doc__)
    page = Page(settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stansub.DrawsWarning)  # the page shows them
        panels = runs(settings)
    draw_marginals(page, panels)
    draw_risk(page, panels)
    distinct = {id(run): run for found in panels.values() for run in found}.values()
    rows = [run.row() for run in distinct]
    failing, bound = panels["a"][0].row(), panels["a"][1].row()
    page.write(
        f"With a first look of 2, the marginal of sigma by the t-test is off by {common.percent(abs(failing['off']))}, "
        f"with {common.percent(failing['share'])} of the data. With the Bernstein-Serfling bound, sigma is off by "
        f"{common.figures(abs(bound['bias']), 2)} posterior sds (MCSE {common.figures(bound['mcse'], 2)}), with "
        f"{common.percent(bound['share'], 3)}.",
        n=N,
        chains=CHAINS,
        rows=rows,
        asymptotic={panel: found[0].row() | found[0].said() for panel, found in panels.items()},
        bernstein=[panels[panel][1].row() for panel in ("a", "c")],
        default=[panels[panel][2].row() for panel in ("a", "c")],
        nuts=[panels[panel][3].row() for panel in ("a", "c")],
        said=[run.said() for run in distinct if run.sampler != NUTS],
        level=0.05,
    )


if __name__ == "__main__":
    main()
