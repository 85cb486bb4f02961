"""Independent component analysis on the Stiefel manifold (Korattikara et al. 2014, section 5.2, figure 5).

Four mixed sources, two of them Gaussian: a random walk on the orthonormal unmixing matrices with decisions from
subsets, at several error levels, and the risk in the mean Amari distance against time. The same posterior without a
constraint, for stansub's default and NUTS.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import arviz as az
import numpy as np

import stansub
from stansub.errors import StansubError

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]
import common  # noqa: E402
from common import Array, Curve, Page, Settings, settings  # noqa: E402
from mixtures import Mixed, amari, log_likelihood, mixed, orthonormal, turned  # noqa: E402

EPSILONS = (0.0, 0.01, 0.05, 0.1, 0.2)
# Observations a block, and at the first look: 500, as in the paper's other examples.
BLOCK, FIRST = 10, 50
_QUIET: dict[str, Any] = {"show_progress": False, "parallel_chains": 2}


class Row(NamedTuple):
    """Repeated chains of a sampler: their Amari distances, shape (chain, draw), and what they cost."""

    label: str
    distances: Array
    seconds: Array
    start: float
    data: float
    wrong: float
    accepted: float

    def curve(self, truth: float) -> Curve:
        """Risk of the running mean, warmup before it."""
        chains = [one[:, np.newaxis] for one in self.distances]
        return common.risk(chains, list(self.seconds), np.array([truth]), start=self.start)

    def record(self, truth: float) -> dict[str, Any]:
        """What the table shows; the error of all chains together in Monte Carlo standard errors."""
        errors = self.distances.mean(1) - truth
        return {
            "label": self.label,
            "steps": self.distances.size / self.seconds.sum(),
            "data": self.data,
            "wrong": self.wrong,
            "accepted": self.accepted,
            "ess": float(az.ess(self.distances)) / self.seconds.sum(),
            "risk": float((errors**2).mean()),
            "mean": float(self.distances.mean()),
            "error": float(az.mcse(self.distances)),
        }


def row(label: str, idata: Any, mixture: Mixed, *, subsampled: bool = True) -> Row:
    """Of draws of W."""
    stats = idata["chain_stats"]
    return Row(
        label,
        amari(idata["posterior"]["W"].values, mixture.mixing),
        stats["sampling_time"].values,
        float(stats["warmup_time"].mean()) if "warmup_time" in stats else 0.0,
        common.share_of_data(idata) if subsampled else 1.0,
        common.share_wrong(idata) if subsampled else float("nan"),
        float(idata["sample_stats"]["accepted"].mean()) if subsampled else float("nan"),
    )


def walk(posterior: stansub.Posterior, epsilon: float, *, chains: int, steps: int, warmup: int, seed: int) -> Any:
    """Draws on the manifold, from random orthonormal matrices."""
    rng = np.random.default_rng([seed, round(1000 * epsilon), chains])
    return stansub.sample(
        posterior,
        proposal=stansub.StiefelWalk(4),
        test=stansub.Austerity(epsilon=epsilon, looks=stansub.Geometric(first=FIRST)),
        chains=chains,
        iter_warmup=warmup,
        iter_sampling=steps,
        inits=[{"A": orthonormal(rng)} for _ in range(chains)],
        seed=seed,
        **_QUIET,
    )


def on_manifold(about: Settings, posterior: stansub.Posterior, mixture: Mixed) -> tuple[list[Row], float, float]:
    """Rows of all error levels; the truth, from long exact runs, with its Monte Carlo standard error."""
    steps, warmup, seconds = about.pick(8_000, 25_000), about.pick(1500, 3000), about.pick(2.0, 400.0)
    chains = about.pick(6, 10)
    long = walk(posterior, 0.0, chains=2, steps=steps, warmup=warmup, seed=about.seed + 1)
    exact = row("truth", long, mixture)
    rows = []
    for epsilon in EPSILONS:
        pilot = row("", walk(posterior, epsilon, chains=2, steps=200, warmup=100, seed=about.seed + 2), mixture)
        many = max(200, round(seconds * pilot.distances.size / pilot.seconds.sum()))
        drawn = walk(posterior, epsilon, chains=chains, steps=many, warmup=warmup // 2, seed=about.seed + 3)
        rows.append(row(f"$\\epsilon$ = {epsilon}", drawn, mixture))
    return rows, float(exact.distances.mean()), float(az.mcse(exact.distances))


def unconstrained(about: Settings, mixture: Mixed) -> tuple[list[Row], str]:
    """Rows of stansub's default and of NUTS on the free matrix, and what kept one of them from running."""
    data = mixture.data(free=True)
    rows, trouble = [], ""
    try:
        made = common.with_default(
            about.program,
            data,
            seed=about.seed,
            iter_warmup=about.pick(500, 2000),
            iter_sampling=about.pick(1500, 10_000),
            max_time=about.pick(15.0, 3600.0),
        )
        rows.append(row("stansub's default, free matrix", made.idata, mixture))
    except StansubError as error:
        trouble = str(error)
    steps = about.pick(20, 1000)
    nuts = common.with_nuts(about.program, data, seed=about.seed, chains=2, iter_warmup=steps, iter_sampling=steps)
    rows.append(row("NUTS, free matrix", nuts.idata, mixture, subsampled=False))
    return rows, trouble


def compile_all(about: Settings) -> stansub.CompiledModel:
    """The program for stansub and for NUTS, each on a core of its own."""
    tiny = {"free": 1, "N": 8, "time": np.arange(1, 9), "x": np.random.default_rng(1).standard_normal((4, 8))}
    with ThreadPoolExecutor(1) as beside:
        other = beside.submit(
            stansub.reference, about.program, tiny, chains=1, iter_warmup=20, iter_sampling=20, show_progress=False
        )
        compiled = stansub.compile_model(about.program)
        other.result()
    return compiled


def draw(page: Page, rows: list[Row], free: list[Row], truth: float, mixture: Mixed) -> None:
    """Risk against time (figure 5), and the log likelihood along rotations of the two Gaussian sources."""
    figure, axes = page.figure()
    colours = {
        rows[0].label: common.EXACT_COLOUR,
        "stansub's default, free matrix": common.DEFAULT_COLOUR,
        "NUTS, free matrix": common.NUTS_COLOUR,
    }
    common.draw_risk(axes, {one.label: one.curve(truth) for one in [*rows, *free]}, colours)
    axes.set_ylabel("risk in the mean Amari distance")
    page.save(figure, "risk")

    figure, (left, right) = page.figure(2)
    angles = np.linspace(0, np.pi / 2, 61)
    matrices = turned(mixture.unmixing, angles)
    heights = np.array([log_likelihood(one, mixture.x).sum() for one in matrices])
    left.plot(np.degrees(angles), heights - heights.max(), color=common.INK)
    left.set(xlabel="rotation of the two Gaussian sources (degrees)", ylabel="log likelihood")
    shown = rows[0].distances.ravel(), rows[-1].distances.ravel()
    for values, one, colour in zip(shown, (rows[0], rows[-1]), (common.EXACT_COLOUR, common.BLUE), strict=True):
        right.hist(values, 40, density=True, histtype="step", color=colour, label=one.label)
    right.axvline(truth, color=common.INK, lw=0.8, ls=":")
    right.set(xlabel="Amari distance", ylabel="density of draws")
    right.legend(fontsize=8)
    page.save(figure, "posterior")


def main() -> None:
    """Run it, and write the page."""
    about = settings(__file__, __doc__)
    page, n = Page(about), about.pick(4_000, 1_896_300)
    compiled = compile_all(about)
    mixture = mixed(n, np.random.default_rng(about.seed))
    posterior = compiled.with_data(mixture.data(free=False), block_size=BLOCK, seed=about.seed)
    rows, truth, error = on_manifold(about, posterior, mixture)
    free, trouble = unconstrained(about, mixture)
    draw(page, rows, free, truth, mixture)
    table = [one.record(truth) for one in [*rows, *free]]
    best = min(table[: len(rows)], key=lambda one: one["risk"])
    angles = np.linspace(0, np.pi / 2, 181)
    heights = [float(log_likelihood(one, mixture.x).sum()) for one in turned(mixture.unmixing, angles)]
    page.write(
        f"After equal seconds, the lowest risk is that of {best['label'].replace('$', '').replace(chr(92), '')}, "
        f"with {best['data'] * 100:.0f} % of the data per decision; exact decisions have "
        f"{table[0]['risk'] / best['risk']:.1f} times its risk.",
        rows=table,
        best=best,
        exact=table[0],
        truth=truth,
        error=error,
        trouble=trouble,
        n=n,
        chains=len(rows[0].distances),
        kurtosis=mixture.kurtosis.tolist(),
        swing=max(heights) - min(heights),
        own=float(amari(mixture.unmixing, mixture.mixing)),
    )


if __name__ == "__main__":
    main()
