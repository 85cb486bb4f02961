"""Parameters and states of a stochastic volatility model (Chen, Mansinghka and Ghahramani 2014, section 4.3, fig. 9).

phi and sigma by Metropolis-Hastings on subsets of the transitions, states by particle Gibbs; beside them the same with
exact decisions, a long exact run, and NUTS on a Stan program of the same posterior.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import arviz as az
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import common
import volatility

import stansub
from stansub import Austerity, Exact, Geometric, RandomWalk
from stansub.run.bench import Bench
from stansub.tuning.adapt import adapter_of

Array = NDArray[np.float64]

N_TIMES, PHI, SIGMA = 5, 0.95, 0.1
N_SERIES = 200
N_PARTICLES, REPEATS, CHAINS = 5, 4, 4
# epsilon of the paper; a mini-batch of 100, then half as many again until a decision falls.
SUBSAMPLED = Austerity(epsilon=1e-3, looks=Geometric(first=100, growth=1.5))
COLOURS = {"exact": common.COLOURS[1], "subsampled": common.COLOURS[0], "NUTS": common.NUTS_COLOUR}
NAMES = ("phi", "sigma")


class Draws(NamedTuple):
    """Draws of phi and sigma with what they cost.

    Attributes
    ----------
    values : dict of str to ndarray, shape (chains, draws)
    seconds : float
        Of sampling, all chains together.
    whole : float
        Seconds of the run, warmup, start and end included, compilation left out.
    share : float or None
        Of the transitions, in a decision.
    wrong : float or None
        Share of the audited decisions that were wrong.
    """

    values: dict[str, Array]
    seconds: float
    whole: float
    share: float | None = None
    wrong: float | None = None

    def row(self, truth: dict[str, Array]) -> dict[str, Any]:
        """What the table of the page shows."""
        shown: dict[str, Any] = {"whole": self.whole, "share": self.share, "wrong": self.wrong}
        for name, draws in self.values.items():
            ess = float(az.ess(draws))
            error = np.hypot(az.mcse(draws), az.mcse(truth[name]))
            shown[name] = {
                "mean": float(draws.mean()),
                "sd": float(draws.std()),
                "ess": ess,
                "rate": ess / self.seconds,
                "z": float((draws.mean() - truth[name].mean()) / error),
            }
        return shown


def composed(x: Array, rule: Any, seed: int, **options: Any) -> Draws:
    """States by particle Gibbs, phi and sigma by Metropolis-Hastings with this test."""
    inits = {"logit_phi": 1.0, "log_sigma": -2.0, "h": np.zeros_like(x)}
    began = time.perf_counter()
    idata = stansub.sample(
        volatility.target(*x.shape),
        kernel=volatility.sampler(x, n_particles=N_PARTICLES, repeats=REPEATS),
        test=rule,
        control_variates=0,
        chains=CHAINS,
        parallel_chains=2,
        executor="processes",  # kernels in Python, which threads would run one at a time
        inits=inits,
        seed=seed,
        show_progress=False,
        **options,
    )
    whole = time.perf_counter() - began
    posterior, facts = idata["posterior"], idata["chain_stats"]
    values = {"phi": expit(posterior["logit_phi"].values), "sigma": np.exp(posterior["log_sigma"].values)}
    total = {name: float(facts[name].sum()) for name in ("n_obs_used", "n_decisions", "sampling_time")}
    audited, wrong = (
        sum(float(facts[one].sum()) for one in facts.data_vars if str(one).endswith(end))
        for end in (".n_audited", ".n_audit_wrong")
    )
    return Draws(
        values,
        total["sampling_time"],
        whole,
        total["n_obs_used"] / total["n_decisions"] / x.size,
        wrong / audited if audited else None,
    )


def by_nuts(settings: common.Settings, x: Array) -> Draws:
    """The same posterior, all states among the parameters."""
    began = time.perf_counter()
    idata = stansub.reference(
        settings.program,
        {"S": x.shape[0], "T": x.shape[1], "x": x},
        chains=CHAINS,
        parallel_chains=2,
        iter_warmup=500,
        iter_sampling=settings.pick(1000, 4000),
        seed=settings.seed,
        show_progress=False,
    )
    whole = time.perf_counter() - began - float(idata.attrs.get("compile_time", 0.0))
    values = {name: idata["posterior"][name].values for name in NAMES}
    return Draws(values, float(idata["chain_stats"]["sampling_time"].sum()), whole)


def refusal(settings: common.Settings, x: Array) -> str:
    """What today's default says to the Stan program: the first line of its message."""
    try:
        stansub.sample(
            settings.program, {"S": x.shape[0], "T": x.shape[1], "x": x}, seed=settings.seed, show_progress=False
        )
    except stansub.InputError as error:
        return str(error).splitlines()[0]
    return ""


@dataclass(frozen=True)
class Cost:
    """What a step of the composed sampler costs with so many series.

    Attributes
    ----------
    n_series : int
    sweep, exact, subsampled : float
        Seconds of the states alone, and of a whole step with either test.
    share : float
        Of the transitions, in a subsampled decision.
    """

    n_series: int
    sweep: float
    exact: float
    subsampled: float
    share: float

    @property
    def gain(self) -> float:
        """By which subsampling makes a step quicker."""
        return self.exact / self.subsampled

    @property
    def decisions(self) -> float:
        """Times which the decisions of an exact step take less with subsampling."""
        return max(self.exact - self.sweep, 0.0) / max(self.subsampled - self.sweep, 1e-9)


def cost(n_series: int, n_steps: int, seed: int) -> Cost:
    """Steps from the values that data are simulated with; proposals as wide as one parameter's conditional is."""
    h, x = volatility.simulate(np.random.default_rng([seed, n_series]), n_series, N_TIMES, PHI, SIGMA)
    walk = RandomWalk(np.array([[2.4 / np.sqrt(2 * h.size)]]))
    whole = volatility.sampler(x, n_particles=N_PARTICLES, repeats=REPEATS, proposal=walk)
    found = {}
    for name, recipe, rule in (
        ("sweep", volatility.states(x, N_PARTICLES), Exact()),
        ("exact", whole, Exact()),
        ("subsampled", whole, SUBSAMPLED),
    ):
        bench = Bench(volatility.target(n_series, N_TIMES), rule, seed)
        kernel = recipe.bind(bench)
        params = adapter_of(recipe.leaves(bench.names), bench.target.dim, bench.adapter).final()
        state, rng = kernel.init(volatility.position_of(PHI, SIGMA, h)), np.random.default_rng(seed)
        seconds, used = [], 0
        for _ in range(n_steps):
            began = time.perf_counter()
            state, info = kernel.step(rng, state, params)
            seconds.append(time.perf_counter() - began)
            used += int(info["n_obs_used"])
        found[name] = float(np.median(seconds)), used / (n_steps * 2 * REPEATS * h.size)
    return Cost(n_series, found["sweep"][0], found["exact"][0], found["subsampled"][0], found["subsampled"][1])


def draw_histograms(page: common.Page, runs: dict[str, Draws], truth: Draws) -> None:
    """Fig. 9 (b) and (c)."""
    figure, axes = page.figure(2)
    for name, ax in zip(NAMES, axes, strict=True):
        bins = np.linspace(*np.quantile(truth.values[name], [0.001, 0.999]), 31)
        ax.hist(truth.values[name].ravel(), bins, density=True, color=common.COLOURS[2], alpha=0.3, label="truth")
        for label, run in runs.items():
            ax.hist(run.values[name].ravel(), bins, density=True, histtype="step", color=COLOURS[label], label=label)
        ax.set(xlabel=name, ylabel="density")
    axes[1].legend(fontsize=8)
    page.save(figure, "histograms")


def draw_autocorrelation(page: common.Page, runs: dict[str, Draws], rates: dict[str, dict[str, Any]]) -> None:
    """Fig. 9 (d): against the seconds of a chain on a core."""
    figure, axes = page.figure(2)
    for name, ax in zip(NAMES, axes, strict=True):
        for label, run in runs.items():
            draws = run.values[name]
            centred = draws - draws.mean()
            # Of all chains together, so that chains apart from each other show.
            n = draws.shape[1] // 4
            lags = [(centred[:, : draws.shape[1] - k] * centred[:, k:]).mean() / centred.var() for k in range(n)]
            seconds = run.seconds / draws.size * np.arange(n)
            rate = common.figures(rates[label][name]["rate"], 2)
            ax.plot(seconds[1:], lags[1:], color=COLOURS[label], label=f"{label}: {rate} ESS/s")
        ax.axhline(0, color=common.INK, lw=0.5)
        ax.set(xscale="log", xlabel="seconds", ylabel=f"autocorrelation of {name}", ylim=(-0.3, 1))
        ax.legend(fontsize=8)
    page.save(figure, "autocorrelation")


def main() -> None:
    """Make the page."""
    settings = common.settings(__file__, __doc__)
    page = common.Page(settings)
    _, x = volatility.simulate(np.random.default_rng(settings.seed), N_SERIES, N_TIMES, PHI, SIGMA)
    costs = [
        cost(n, steps, settings.seed)
        for n, steps in settings.pick([(200, 100), (2000, 30)], [(200, 200), (2000, 100), (20_000, 50)])
    ]
    message, nuts = refusal(settings, x), by_nuts(settings, x)
    length = {"iter_warmup": 500, "iter_sampling": settings.pick(5000, 50_000), "thin": settings.pick(5, 20)}
    runs = {
        "exact": composed(x, Exact(), settings.seed, **length),
        "subsampled": composed(x, SUBSAMPLED, settings.seed, audit=0.01, **length),
        "NUTS": nuts,
    }
    longer = {"iter_warmup": 500, "iter_sampling": settings.pick(12_000, 200_000), "thin": settings.pick(10, 80)}
    truth = composed(x, Exact(), settings.seed + 1, **longer)
    rows = {label: run.row(truth.values) for label, run in runs.items()}
    draw_histograms(page, runs, truth)
    draw_autocorrelation(page, runs, rows)
    gain = {name: rows["subsampled"][name]["rate"] / rows["exact"][name]["rate"] for name in NAMES}
    page.write(
        f"Subsampled decisions look at {common.percent(runs['subsampled'].share or 0)} of 1,000 transitions and give "
        f"{common.figures(gain['phi'], 2)} (phi) and {common.figures(gain['sigma'], 2)} (sigma) times the ESS per "
        f"second of exact ones; with {costs[-1].n_series:,} series a step is {common.figures(costs[-1].gain, 2)} times "
        "as quick",
        rows=rows,
        gain=gain,
        names=NAMES,
        truth={name: {"ess": float(az.ess(truth.values[name])), "sd": float(truth.values[name].std()),
                      "mean": float(truth.values[name].mean())} for name in NAMES},
        costs=[
            {**vars(one), "gain": one.gain, "decisions": one.decisions, "states": one.sweep / one.exact}
            for one in costs
        ],
        agree=max(abs(rows[label][name]["z"]) for label in rows for name in NAMES),
        message=message,
        n_particles=N_PARTICLES,
        repeats=REPEATS,
        n_series=N_SERIES,
        chains=CHAINS,
        steps=length["iter_sampling"],
    )  # fmt: skip


if __name__ == "__main__":
    main()
