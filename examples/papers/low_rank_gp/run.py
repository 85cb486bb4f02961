"""Low-rank Gaussian process regression (Johndrow, Mattingly, Mukherjee and Dunson, sections 4.3 and 4.4; fig. 5, 6).

What the rank of the correlation matrix does to acceptance probabilities, to griddy Gibbs and to the posterior, and what
it saves: on the abalone data where there are any, else on data of their shape.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import arviz as az
import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import common
import gp
from common import Array, Curve, Drawn, Page, Settings

import stansub
from stansub.diagnostics.comparison import compare_draws
from stansub.output import inference_data

# Section 4.4.
N_ROWS, N_COVARIATES, N_ZETAS = 4177, 8, 20
ZETAS = np.linspace(0.1, 0.9, N_ZETAS)
SHOWN = (0, 5, 10, 14, 19)  # values of zeta in figure 5
# Ranks as shares of the rows; the paper's largest is about a half.
PARTS = (16, 8, 4, 2)
SEX = {"F": -1.0, "I": 0.0, "M": 1.0}
EXACT, DENSE, NUTS = "exact", "exact, without spectra", "NUTS"
# Standard deviations below this are none: of zeta, where other values than one have probability 0.0006 and less.
NEGLIGIBLE = 1e-3
# How phi follows from zeta: the power of what is in the denominator.
PRINTED, SQUARED = "as printed", "with a square"
READINGS = {PRINTED: 1, SQUARED: 2}


class Data(NamedTuple):
    """Rows of the regression.

    Attributes
    ----------
    w : ndarray, shape (n, 8)
    z : ndarray, shape (n,)
    real : bool
        Whether they are the abalone data.
    """

    w: Array
    z: Array
    real: bool

    def some(self, n: int, rng: np.random.Generator) -> Data:
        """So many rows at random."""
        which = np.sort(rng.choice(len(self.z), min(n, len(self.z)), replace=False))
        return Data(self.w[which], self.z[which], self.real)


def read(settings: Settings, rng: np.random.Generator) -> Data:
    """Standardised covariates and responses, all rows: sex is a number, as it must be for the paper's p = 8."""
    path = settings.find("abalone/abalone.csv.gz")
    if path is None:
        w, z = simulate(rng)
    else:
        table = pd.read_csv(path)
        z = table.pop("rings").to_numpy(float)
        w = table.assign(sex=table["sex"].map(SEX)).to_numpy(float)
    return Data((w - w.mean(0)) / w.std(0), (z - z.mean()) / z.std(), path is not None)


def simulate(rng: np.random.Generator) -> tuple[Array, Array]:
    """Measurements that all grow with size, and a smooth response with noise, of the shape of the abalone data."""
    size = rng.normal(size=(N_ROWS, 1))
    w = np.hstack([rng.integers(-1, 2, (N_ROWS, 1)), size + 0.3 * rng.standard_normal((N_ROWS, N_COVARIATES - 1))])
    return w, np.tanh(w[:, 1]) + w[:, 7] - 0.7 * w[:, 5] + 0.3 * w[:, 0] ** 2 + rng.normal(0, 0.7, N_ROWS)


class Case(NamedTuple):
    """A reading of zeta with spectra of all ranks.

    Attributes
    ----------
    phis : ndarray, shape (20,)
    spectra : dict of str or int to gp.Spectra
        By rank; the exact ones by name.
    seconds : dict of str or int to float
        Of making them.
    """

    phis: Array
    spectra: dict[Any, gp.Spectra]
    seconds: dict[Any, float]

    @property
    def exact(self) -> gp.Spectra:
        """By full eigendecompositions."""
        return self.spectra[EXACT]


def prepare(data: Data, distances: Array, power: int, rng: np.random.Generator) -> Case:
    """Exact spectra, and those of each rank."""
    phis = gp.decays(ZETAS, distances, power=power)
    spectra, seconds = {}, {}
    for key in (EXACT, *(len(data.z) // part for part in PARTS)):
        began = time.perf_counter()
        if key == EXACT:
            spectra[key] = gp.exact_spectra(distances, data.z, ZETAS, phis)
        else:
            spectra[key] = gp.low_rank_spectra(distances, data.z, ZETAS, phis, rank=int(key), rng=rng)
        seconds[key] = time.perf_counter() - began
    return Case(phis, spectra, seconds)


def chains(spectra: gp.Spectra, settings: Settings, seed: int) -> Drawn:
    """Draws by the sampler of section 4.3.1; one chain after the other, for its kernels are in Python."""
    return common.drawn(
        lambda: gp.draw(
            spectra,
            chains=settings.pick(6, 8),
            parallel_chains=1,
            iter_warmup=400,
            iter_sampling=settings.pick(2000, 10_000),
            audit=0.0,
            seed=seed,
        )
    )


def by_nuts(settings: Settings, spectra: gp.Spectra) -> tuple[Drawn, str]:
    """The same posterior with zeta summed out; and what today's default says to that program."""
    data = {"D": N_ZETAS, "N": spectra.n_rows, "zetas": ZETAS, "a": gp.A, "b": gp.B}
    data |= {"lambda": spectra.values, "squares": spectra.squares}
    run = common.with_nuts(
        settings.program, data, chains=4, iter_warmup=400, iter_sampling=settings.pick(500, 2000), seed=settings.seed
    )
    try:
        stansub.sample(settings.program, data, seed=settings.seed, show_progress=False)
    except stansub.InputError as error:
        return run, str(error).splitlines()[0]
    return run, ""


def step_without_spectra(data: Data, distances: Array, phi: float) -> float:
    """Seconds of a step whose densities need a Cholesky factor each: of the proposal, and of each zeta."""
    correlation, found = np.exp(-phi * distances), []
    for _ in range(5):
        began = time.perf_counter()
        gp.dense_log_lik(correlation, data.z, -1.0, 0.0)
        found.append(time.perf_counter() - began)
    return float(np.median(found)) * (1 + N_ZETAS)


def warmup(idata: Any) -> float:
    """Seconds of a chain before its first draw."""
    return float(idata["chain_stats"]["warmup_time"].mean())


def per_step(idata: Any) -> float:
    """Seconds of a step."""
    stats = idata["chain_stats"]
    return float(stats["sampling_time"].sum() / stats["n_steps"].sum())


def free(truth: gp.Quadrature) -> list[int]:
    """Places of the parameters that vary: with many rows one zeta may have all of the probability."""
    return [int(place) for place in np.flatnonzero(truth.moments()[1] > NEGLIGIBLE)]


def names_of(truth: gp.Quadrature) -> list[str]:
    """Their names."""
    return [gp.NAMES[place] for place in free(truth)]


def verdict(idata: Any, reference: Any, names: list[str]) -> str:
    """Of `stansub compare`. Another matrix counts as other data there: the reference is given without its record."""
    kept = {name: np.asarray(reference["posterior"][name]) for name in names}
    bare = inference_data.build(posterior=kept, sample_stats={}, attrs={})
    return str(compare_draws(idata, bare, var_names=names).verdict.word)


@dataclass(frozen=True)
class Row:
    """What is shown of a rank; of the exact spectra where it is that of the matrix.

    Attributes
    ----------
    rank : int
    explained : float
        Equation 16, averaged over the posterior of zeta.
    setup, step : float
        Seconds of the decompositions, and of a step.
    acceptance, acceptance_high, acceptance_worst, bad : float
        |alpha - alpha_epsilon|: mean, 95 % quantile, largest, share of moves where it is above 0.1.
    gibbs, gibbs_high : float
        Largest difference of Gibbs probabilities: mean and 95 % quantile.
    distance, distance_best : float
        Total variation from the exact posterior, and what the exact partial eigendecomposition has.
    shift : float
        Largest shift of a posterior mean, in its sd.
    z : float
        The mean of these draws that is furthest from the exact posterior's, in Monte Carlo standard errors.
    verdict : str
        Of comparing with draws of the exact chain.
    """

    rank: int
    explained: float
    setup: float
    step: float
    acceptance: float
    acceptance_high: float
    acceptance_worst: float
    bad: float
    gibbs: float
    gibbs_high: float
    distance: float
    distance_best: float
    shift: float
    z: float
    verdict: str


def row(case: Case, key: Any, run: Drawn, errors: gp.Errors, truth: gp.Quadrature, reference: Any) -> Row:
    """Of a rank, the reference being draws of another sampler or of the exact chain."""
    spectra, rank = case.spectra[key], case.exact.n_rows if key == EXACT else int(key)
    near, (means, sds) = gp.quadrature(spectra), truth.moments()
    best = case.exact.truncated(rank)
    places, x = free(truth), gp.positions(run.idata)
    off = [abs(x[..., place].mean() - means[place]) / np.float64(az.mcse(x[..., place])) for place in places]
    return Row(
        rank=rank,
        explained=float(truth.zeta @ case.exact.explained[:, rank - 1]),
        setup=case.seconds[key],
        step=per_step(run.idata),
        acceptance=float(errors.acceptance.mean()),
        acceptance_high=float(np.quantile(errors.acceptance, 0.95)),
        acceptance_worst=float(errors.acceptance.max()),
        bad=float((errors.acceptance > 0.1).mean()),
        gibbs=float(errors.gibbs.mean()),
        gibbs_high=float(np.quantile(errors.gibbs, 0.95)),
        distance=truth.distance(spectra, near),
        distance_best=truth.distance(best, gp.quadrature(best)),
        shift=float(np.abs((near.moments()[0] - means) / sds)[places].max()),
        z=float(max(off)),
        verdict=verdict(run.idata, reference, names_of(truth)),
    )


def curves(runs: dict[Any, Drawn], case: Case, dense: float, nuts: Drawn, truth: gp.Quadrature) -> dict[str, Curve]:
    """Risk of the posterior means, in squared sds, against the seconds of a chain with decompositions and warmup."""
    places = free(truth)
    means, sds = (one[places] for one in truth.moments())

    def curve(idata: Any, seconds: Sequence[float], start: float) -> Curve:
        off = (gp.positions(idata)[..., places] - means) / sds
        return common.risk(list(off), seconds, np.zeros(len(places)), start=start)

    def clock(idata: Any) -> list[float]:
        return [float(one) for one in idata["chain_stats"]["sampling_time"]]

    found = {
        EXACT if key == EXACT else f"rank {key}": curve(
            run.idata, clock(run.idata), case.seconds[key] + warmup(run.idata)
        )
        for key, run in runs.items()
    }
    # The same draws by another clock, for these chains differ in cost alone.
    stats = runs[EXACT].idata["chain_stats"]
    steps = [float(one) * dense for one in stats["n_steps"]]
    found[DENSE] = curve(runs[EXACT].idata, steps, float(stats["warmup_n_steps"].mean()) * dense)
    found[NUTS] = curve(nuts.idata, clock(nuts.idata), case.seconds[EXACT] + warmup(nuts.idata))
    return found


def draw_spectra(page: Page, cases: dict[str, Case]) -> None:
    """Figure 5."""
    figure, axes = page.figure(len(cases), sharey=True)
    for (reading, case), ax in zip(cases.items(), axes, strict=True):
        for number, colour in zip(SHOWN, shades(len(SHOWN)), strict=True):
            explained = case.exact.explained[number]
            ax.plot(np.arange(1, len(explained) + 1), explained, color=colour, label=f"zeta = {ZETAS[number]:.2f}")
        ax.set(xscale="log", xlabel="rank k", title=f"phi {reading}")
    axes[0].set_ylabel("proportion of variation explained")
    axes[0].legend(fontsize=8)
    page.save(figure, "spectra")


def draw_errors(page: Page, found: dict[str, dict[int, gp.Errors]]) -> None:
    """Figure 6, as shares of the steps whose errors are larger."""
    figure, axes = page.figure(2, len(found), sharex=True, sharey=True)
    for (reading, ranks), line in zip(found.items(), axes, strict=True):
        for (rank, errors), colour in zip(ranks.items(), shades(len(ranks)), strict=True):
            for ax, values in zip(line, (errors.acceptance, errors.gibbs), strict=True):
                larger = 1 - np.arange(len(values)) / len(values)
                ax.plot(np.sort(np.maximum(values, 1e-12)), larger, color=colour, label=f"k = {rank}")
        line[0].set(ylabel=f"share of steps above\nphi {reading}", xscale="log", xlim=(1e-6, 1))
    axes[-1][0].set_xlabel("error of the acceptance probability")
    axes[-1][1].set_xlabel("largest error of Gibbs probabilities")
    axes[0][0].legend(fontsize=8)
    page.save(figure, "errors")


def draw_discrepancy(page: Page, risks: dict[str, Curve], rows: Sequence[Row]) -> None:
    """Discrepancy against time, and what remains of it however long one runs."""
    figure, axes = page.figure(2)
    ranks = [label for label in risks if label.startswith("rank")]
    colours = dict(zip(ranks, shades(len(ranks)), strict=True))
    colours |= {EXACT: common.EXACT_COLOUR, DENSE: common.COLOURS[2], NUTS: common.NUTS_COLOUR}
    common.draw_risk(axes[0], risks, colours)
    axes[0].set_ylabel("risk, in squared posterior sds")
    ranked = [one.rank for one in rows]
    axes[1].plot(
        ranked, [one.distance for one in rows], "o-", color=common.COLOURS[0], label="posterior, total variation"
    )
    axes[1].plot(
        ranked, [one.acceptance for one in rows], "s-", color=common.COLOURS[1], label="acceptance, mean error"
    )
    axes[1].plot(ranked, [one.gibbs for one in rows], "^-", color=common.COLOURS[2], label="Gibbs, mean largest error")
    axes[1].set(xscale="log", yscale="log", xlabel="rank k", xticks=ranked, xticklabels=map(str, ranked))
    axes[1].minorticks_off()
    axes[1].legend(fontsize=8, loc="lower left")
    page.save(figure, "discrepancy")


def shades(n: int) -> list[Any]:
    """Colours in order."""
    import matplotlib.pyplot as plt

    return list(plt.get_cmap("viridis")(np.linspace(0, 0.85, n)))


def errors_of(case: Case, idata: Any, rng: np.random.Generator, n: int) -> dict[int, gp.Errors]:
    """Along paths of the exact chain, by rank."""
    path = gp.positions(idata).reshape(-1, len(gp.NAMES))
    here = path[:: max(len(path) // n, 1)]
    there = gp.propose(here, rng)
    return {key: gp.errors(case.exact, one, here, there) for key, one in case.spectra.items() if key != EXACT}


def main() -> None:
    """Make the page; everything on one core, so that seconds can be compared."""
    settings = common.settings(__file__, __doc__)
    with threadpool_limits(1):
        make(settings)


def make(settings: Settings) -> None:
    """Run everything, and write the page."""
    page, rng = Page(settings), np.random.default_rng(settings.seed)
    data = read(settings, rng).some(settings.pick(700, N_ROWS), rng)
    distances = gp.squared_distances(data.w)
    cases = {reading: prepare(data, distances, power, rng) for reading, power in READINGS.items()}
    case, other = cases.values()
    runs = {key: chains(one, settings, settings.seed + place) for place, (key, one) in enumerate(case.spectra.items())}
    paths = dict(zip(READINGS, (runs[EXACT], chains(other.exact, settings, settings.seed)), strict=True))
    found = {
        reading: errors_of(one, paths[reading].idata, rng, settings.pick(1000, 2000)) for reading, one in cases.items()
    }
    truths = {reading: gp.quadrature(one.exact) for reading, one in cases.items()}
    truth = truths[PRINTED]
    nuts, refusal = by_nuts(settings, case.exact)
    dense = step_without_spectra(data, distances, float(case.phis[-1]))
    nothing = gp.Errors(np.zeros(1), np.zeros(1))
    exact = row(case, EXACT, runs[EXACT], nothing, truth, nuts.idata)
    rows = [row(case, key, runs[key], one, truth, runs[EXACT].idata) for key, one in found[PRINTED].items()]
    risks = curves(runs, case, dense, nuts, truth)
    draw_spectra(page, cases)
    draw_errors(page, found)
    draw_discrepancy(page, risks, rows)
    page.write(
        summary(rows),
        **facts(data, distances, cases, truths),
        rows=[asdict(one) for one in rows],
        exact=asdict(exact),
        squared=[
            {"rank": rank, "acceptance": float(one.acceptance.mean()), "bad": float((one.acceptance > 0.1).mean()),
             "gibbs": float(one.gibbs.mean())}
            for rank, one in found[SQUARED].items()
        ],
        final={label: {"seconds": curve.seconds[-1], "risk": curve.risk[-1]} for label, curve in risks.items()},
        exact_ess=common.smallest_ess(runs[EXACT].idata, names_of(truth)),
        exact_seconds=sum(float(one) for one in runs[EXACT].idata["chain_stats"]["sampling_time"]),
        nuts_ess=common.smallest_ess(nuts.idata, names_of(truth)),
        nuts_seconds=float(nuts.idata["chain_stats"]["sampling_time"].sum()),
        dense=dense,
        close={name: first_close(one) for name, one in zip(("printed", "squared"), found.values(), strict=True)},
        refusal=refusal,
        a=gp.A,
        b=gp.B,
    )  # fmt: skip


def facts(data: Data, distances: Array, cases: dict[str, Case], truths: dict[str, gp.Quadrature]) -> dict[str, Any]:
    """Of the data and of both readings."""
    return {
        "n": len(data.z),
        "n_all": N_ROWS,
        "real": data.real,
        "d_max": float(np.sqrt(distances.max())),
        "readings": {
            reading: {
                "phis": [float(case.phis[0]), float(case.phis[-1])],
                "zeta": float(truths[reading].moments()[0][2]),
                "last": float(truths[reading].zeta[-1]),
                "half": [float(case.exact.explained[place, case.exact.n_rows // 2 - 1]) for place in (0, -1)],
                "quarter": [float(case.exact.explained[place, case.exact.n_rows // 4 - 1]) for place in (0, -1)],
            }
            for reading, case in cases.items()
        },
    }


def first_close(found: dict[int, gp.Errors]) -> int | None:
    """The smallest rank whose mean error of acceptance is below 0.01."""
    return next((rank for rank, one in found.items() if one.acceptance.mean() < 0.01), None)


def summary(rows: Sequence[Row]) -> str:
    """Return the result for the index."""
    last, percent, figures = rows[-1], common.percent, common.figures
    return (
        f"At a rank of half the rows, acceptance probabilities are off by {figures(last.acceptance, 2)} on average, by "
        f"more than 0.1 in {percent(last.bad)} of the moves, and the posterior by {figures(last.distance, 2)} in total "
        f"variation. The decompositions take {figures(last.setup, 2)} s."
    )


if __name__ == "__main__":
    main()
