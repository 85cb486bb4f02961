"""Parameters and states of a stochastic volatility model (Chen, Mansinghka and Ghahramani 2014, section 4.3, fig. 9).

phi and sigma by Metropolis-Hastings on subsets of the transitions, states by particle Gibbs; beside them the same with
exact decisions, a long exact run, and NUTS on a Stan program of the same posterior.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
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
from stansub.run.context import ChainContext
from stansub.tuning.adapt import adapter_of

Array = NDArray[np.float64]

N_TIMES, PHI, SIGMA = 5, 0.95, 0.1
N_SERIES = 200
N_PARTICLES, CHAINS = 5, 4
# epsilon of the paper; a mini-batch of 100, then half as many again until a decision falls.
SUBSAMPLED = Austerity(epsilon=1e-3, looks=Geometric(first=100, growth=1.5))
EXACT, SUB, NEAR, NUTS = "exact", "subsampled", "exact, random walk", "NUTS"
COLOURS = {EXACT: common.COLOURS[1], SUB: common.COLOURS[0], NEAR: common.COLOURS[3], NUTS: common.NUTS_COLOUR}
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


def composed(
    x: Array, rule: Any, proposals: tuple[Any, Any], seed: int, *, executor: Executor, **options: Any
) -> Draws:
    """States by particle Gibbs, phi and sigma by Metropolis-Hastings with this test."""
    inits = {"logit_phi": 1.0, "log_sigma": -2.0, "h": np.zeros_like(x)}
    began = time.perf_counter()
    idata = stansub.sample(
        volatility.target(*x.shape),
        kernel=volatility.sampler(x, proposals, n_particles=N_PARTICLES),
        test=rule,
        control_variates=0,
        chains=CHAINS,
        parallel_chains=2,
        executor=executor,
        inits=inits,
        seed=seed,
        show_progress=False,
        **{"audit": 0.0} | options,
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
        iter_sampling=settings.pick(500, 4000),
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


class Cost(NamedTuple):
    """What the parts of a step cost with so many series.

    Attributes
    ----------
    n_series : int
    proposals : str
    sweep, exact, subsampled : float
        Seconds of the states, and of a decision with either test.
    share, accepted : float
        Of the transitions in a subsampled decision, and of the proposals.
    """

    n_series: int
    proposals: str
    sweep: float
    exact: float
    subsampled: float
    share: float
    accepted: float

    @property
    def gain(self) -> float:
        """By which subsampling makes a decision quicker."""
        return self.exact / self.subsampled

    @property
    def gain_of_step(self) -> float:
        """The same of a step: states, and a decision for either parameter."""
        return (self.sweep + 2 * self.exact) / (self.sweep + 2 * self.subsampled)


def costs(n_series: int, n_steps: int, seed: int) -> list[Cost]:
    """Steps from the values that data are simulated with, each part of them timed."""
    h, x = volatility.simulate(np.random.default_rng([seed, n_series]), n_series, N_TIMES, PHI, SIGMA)
    # As wide as suits the conditional distribution of log(sigma).
    walk = RandomWalk(np.array([[2.4 / np.sqrt(2 * h.size)]]))
    found = []
    for name, proposals in (("from the prior", volatility.ANEW), ("random walk", (walk, walk))):
        recipe = volatility.sampler(x, proposals, n_particles=N_PARTICLES)
        start = volatility.position_of(PHI, SIGMA, h)
        exact = timed(recipe, start, Exact(), n_steps, seed)
        subsampled = timed(recipe, start, SUBSAMPLED, n_steps, seed)
        found.append(Cost(n_series, name, exact[0], exact[1], subsampled[1], *subsampled[2:]))
    return found


def timed(recipe: Any, start: Array, rule: Any, n_steps: int, seed: int) -> tuple[float, float, float, float]:
    """Seconds of a sweep and of a decision, share of the transitions in a decision, share of proposals accepted."""
    context = ChainContext(volatility.target(len(start[2:]) // N_TIMES, N_TIMES), rule, seed)
    kernel = recipe.bind(context)
    params = adapter_of(recipe.leaves(context.names), context.target.dim, context.adapter).final()
    state, rng = kernel.init(start), np.random.default_rng(seed)
    seconds: dict[str, list[float]] = {name: [] for name in kernel.parts}
    used = accepted = 0
    for _ in range(n_steps):
        for name, part in kernel.parts.items():
            began = time.perf_counter()
            state, info = part.step(rng, state, params[name])
            seconds[name].append(time.perf_counter() - began)
            used += info["n_obs_used"]
            accepted += info["accepted"] if name in NAMES else 0
    decision = float(np.mean([seconds[name] for name in NAMES]))
    total = n_steps * len(NAMES)
    return float(np.mean(seconds["states"])), decision, used / total / len(start[2:]), accepted / total


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
        ax.set(
            xscale="log", xlabel="seconds", ylabel=f"autocorrelation of {name}", ylim=(-0.3, 1.7), yticks=[0, 0.5, 1]
        )
        ax.legend(fontsize=8, loc="upper left")
    page.save(figure, "autocorrelation")


def main() -> None:
    """Make the page."""
    settings = common.settings(__file__, __doc__)
    page = common.Page(settings)
    _, x = volatility.simulate(np.random.default_rng(settings.seed), N_SERIES, N_TIMES, PHI, SIGMA)
    sizes = settings.pick([(200, 200), (2000, 60)], [(200, 1000), (2000, 300), (20_000, 100)])
    parts = [one for n, steps in sizes for one in costs(n, steps, settings.seed)]
    message, nuts = refusal(settings, x), by_nuts(settings, x)
    length: dict[str, Any] = {
        "iter_warmup": 500,
        "iter_sampling": settings.pick(3000, 50_000),
        "thin": settings.pick(3, 20),
    }
    seed, anew = settings.seed, volatility.ANEW
    longer: dict[str, Any] = {
        "iter_warmup": 500,
        "iter_sampling": settings.pick(6000, 200_000),
        "thin": settings.pick(6, 80),
    }
    # Kernels are in Python, which threads would run one at a time.
    with ProcessPoolExecutor(2, get_context("spawn")) as executor:
        length["executor"] = longer["executor"] = executor
        runs = {
            EXACT: composed(x, Exact(), anew, seed, **length),
            SUB: composed(x, SUBSAMPLED, anew, seed, audit=0.01, **length),
            NEAR: composed(x, Exact(), volatility.NEAR, seed, **length),
            NUTS: nuts,
        }
        truth = composed(x, Exact(), volatility.NEAR, seed + 1, **longer)
    rows = {label: run.row(truth.values) for label, run in runs.items()}
    draw_histograms(page, runs, truth)
    draw_autocorrelation(page, runs, rows)
    gain = {name: rows[SUB][name]["rate"] / rows[EXACT][name]["rate"] for name in NAMES}
    page.write(
        f"Subsampled decisions read {common.percent(runs[SUB].share or 0)} of the transitions and give "
        f"{common.figures(gain['phi'], 2)} (phi) and {common.figures(gain['sigma'], 2)} (sigma) times the ESS per "
        f"second of exact ones. NUTS gives {common.figures(best(rows, NUTS) / best(rows, SUB), 2)} times that of "
        "subsampled ones.",
        rows=rows,
        gain=gain,
        names=NAMES,
        truth=Draws.row(truth, truth.values),
        costs=[{**one._asdict(), "gain": one.gain, "gain_of_step": one.gain_of_step} for one in parts],
        agree=max(abs(rows[label][name]["z"]) for label in rows for name in NAMES),
        ahead=best(rows, NUTS) / max(best(rows, label) for label in (EXACT, SUB, NEAR)),
        nuts_z=max(abs(rows[NUTS][name]["z"]) for name in NAMES),
        message=message,
        n_particles=N_PARTICLES,
        n_series=N_SERIES,
        n_times=N_TIMES,
        chains=CHAINS,
        steps=length["iter_sampling"],
        long_steps=longer["iter_sampling"],
    )


def best(rows: dict[str, dict[str, Any]], label: str) -> float:
    """ESS per second of the parameter that mixes worse."""
    return min(float(rows[label][name]["rate"]) for name in NAMES)


if __name__ == "__main__":
    main()
