"""Mini-batch Pólya-Gamma Gibbs sampling of logistic regression: discrepancy against computing time.

Johndrow, Mattingly, Mukherjee and Dunson (2015), section 4.1, equations 9 and 10, theorem 4.1, and section 4.2,
figure 4; data simulated, 20 covariates. Needs the package polyagamma (``pip install "stansub[papers]"``).
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from threadpoolctl import threadpool_limits

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[2] / "stan_models")]
import common  # noqa: E402
import logistic  # noqa: E402
import minibatches  # noqa: E402
import simulate  # noqa: E402
from common import Array, Drawn, Page, Settings  # noqa: E402
from minibatches import AdaptiveSize, Limit, TheoremSize  # noqa: E402

import stansub  # noqa: E402
from stansub.kernels.polya_gamma import Regression, Size  # noqa: E402

COVARIATES, PRIOR_SD = 20, 10.0
# Mini-batches as shares of the data: the paper's, from 11,000 of 2.2 million on.
SHARES = (0.005, 0.02, 0.05, 0.2, 0.5, 1.0)
CHAINS = 2
# Draws that distributions are compared by.
COMPARED = 2000
EPSILON = 0.25
# Mini-batches whose steps are compared with exact ones as N grows: shares, and a power of N.
FIXED, POWER = {"half": 0.5, "most": 0.9, "nearly": 0.98}, 0.99


class Paths(NamedTuple):
    """Draws of a mini-batch size.

    Attributes
    ----------
    share : float
        Of the data, in the average mini-batch.
    draws : ndarray, shape (chains, n, p)
    seconds : float
        Of a step.
    drawn : Drawn
    """

    share: float
    draws: Array
    seconds: float
    drawn: Drawn

    def row(self, truth: Array, limit: Limit) -> dict[str, float]:
        """For the table of the page."""
        sds = self.draws.reshape(-1, truth.shape[1]).std(axis=0)
        return {
            "share": self.share,
            "steps": self.draws.shape[1],
            "seconds": self.seconds,
            "too_wide": float((sds / truth.std(axis=0)).mean()),
            "expected": limit.too_wide(self.share),
            "covariance": float(np.mean([frobenius(own, np.cov(truth.T)) for own in self.draws])),
            "anderson": float(np.mean([anderson(own, truth) for own in self.draws])),
            "ess_per_second": self.drawn.ess_per_second,
        }


def data_of(n: int, seed: int) -> tuple[Array, Any]:
    """A column of ones beside 19 standard normal covariates."""
    found = simulate.simulate("logistic", observations=n, covariates=COVARIATES - 1, seed=seed)
    return np.hstack([np.ones((n, 1)), found["x"]]), found["y"]


def regression_of(x: Array, y: Any) -> Regression:
    """The regression with this page's prior."""
    return Regression(x, np.asarray(y, float), np.zeros(x.shape[1]), np.eye(x.shape[1]) / PRIOR_SD**2)


def mode_of(regression: Regression) -> Array:
    """The mode of the posterior, by Newton's method with steps halved until they climb.

    Raises
    ------
    RuntimeError
        When it has not converged after 100 steps.
    """
    x, y, prior = regression.x, regression.y, regression.prior_precision

    def loss(at: Array) -> float:
        eta = x @ at
        return float(np.logaddexp(0, eta).sum() - y @ eta + 0.5 * at @ prior @ at)

    beta = np.zeros(x.shape[1])
    for _ in range(100):
        p = expit(x @ beta)
        gradient = x.T @ (p - y) + prior @ beta
        step = np.linalg.solve((x * (p * (1 - p))[:, np.newaxis]).T @ x + prior, gradient)
        decrement, now, scale = float(gradient @ step), loss(beta), 1.0
        if decrement < 1e-9:
            return beta
        while loss(beta - scale * step) > now - 1e-4 * scale * decrement and scale > 1e-8:
            scale /= 2
        beta = beta - scale * step
    raise RuntimeError("the mode was not found in 100 steps of Newton's method")


def gibbs(posterior: stansub.Posterior, x: Array, y: Any, size: int | Size, seconds: float, seed: int) -> Paths:
    """Two chains from the mode of a tenth of the data, for about so many seconds of sampling."""
    kernel = stansub.PolyaGamma(x, y, ["beta"], PRIOR_SD, mini_batch=size)
    start = mode_of(regression_of(x[: len(x) // 10], y[: len(x) // 10]))
    options: Any = {"kernel": kernel, "inits": {"beta": start}, "control_variates": 0, "test": "exact", "seed": seed}
    options |= {"chains": CHAINS, "iter_warmup": 0}
    with threadpool_limits(1):  # a core for each chain
        a_step = common.with_default(posterior, iter_sampling=20, **options).sampling / 20
        steps = int(np.clip(seconds / a_step, 50, 50_000))
        drawn = common.with_default(posterior, iter_sampling=steps, **options)
    stats = drawn.idata["sample_stats"]
    share = float(stats["mini_batch"].mean()) / len(x)
    return Paths(share, logistic.weights(drawn.idata), drawn.sampling / steps, drawn)


def frobenius(draws: Array, covariance: Array) -> float:
    """Squared Frobenius norm of the error of the draws' covariance (equation 11), as a share of the true one's."""
    return float(((np.cov(draws.T) - covariance) ** 2).sum() / (covariance**2).sum())


def anderson(draws: Array, truth: Array) -> float:
    """Two-sample Anderson-Darling statistic, the median over weights (figure 4, right); 1 is what to expect of equals.

    A^2 = 1 / (m n) sum over i < N of (N M_i - m i)^2 / (i (N - i)), M_i being how many of the i smallest of all N are
    of the first sample (Pettitt 1976). Samples are thinned to `COMPARED` draws.
    """
    first, second = thinned(draws), thinned(truth)
    m, n = len(first), len(second)
    order = np.argsort(np.concatenate([first, second]), axis=0, kind="stable")
    below, i = np.cumsum(order < m, axis=0)[:-1], np.arange(1, m + n)[:, np.newaxis]
    squares: Array = ((m + n) * below - m * i) ** 2 / (i * (m + n - i))
    return float(np.median(squares.sum(axis=0) / (m * n)))


def thinned(draws: Array) -> Array:
    """At most `COMPARED` draws, evenly spread."""
    return draws[np.unique(np.linspace(0, len(draws) - 1, min(COMPARED, len(draws))).astype(int))]


def curves(paths: Paths, truth: Array, n_points: int = 12) -> tuple[Array, Array, Array]:
    """Seconds, and both discrepancies of the path until then, averaged over chains (figure 4)."""
    covariance, length = np.cov(truth.T), paths.draws.shape[1]
    ends = np.unique(np.geomspace(min(2 * COVARIATES, length // 2), length, n_points).astype(int))
    both = np.array([[[frobenius(own[:n], covariance), anderson(own[:n], truth)] for n in ends] for own in paths.draws])
    return ends * paths.seconds, both[..., 0].mean(axis=0), both[..., 1].mean(axis=0)


def draw_figure(page: Page, runs: Sequence[Paths], truth: Array) -> dict[float, tuple[Array, Array, Array]]:
    """Figure 4."""
    figure, axes = page.figure(2)
    found = {one.share: curves(one, truth) for one in runs}
    for (share, (seconds, *both)), colour in zip(found.items(), logistic.shades(len(found)), strict=True):
        label = "all" if share == 1 else f"{common.percent(share)}"
        for axis, values in zip(axes, both, strict=True):
            axis.plot(seconds, values, color=common.EXACT_COLOUR if share == 1 else colour, lw=1.4, label=label)
    axes[0].set(ylabel="squared error of the covariance")
    axes[1].set(ylabel="Anderson-Darling, median")
    axes[1].axhline(1, color="gray", ls=":", lw=0.8)
    for axis in axes:
        axis.set(xscale="log", yscale="log", xlabel="seconds")
        axis.legend(fontsize=7)
    page.save(figure, "discrepancy")
    return found


def best_at(found: Mapping[float, tuple[Array, Array, Array]], which: int, seconds: float) -> dict[str, float]:
    """Which share had the smallest discrepancy at a time; ``which`` is 1 for the covariance, 2 for the other."""
    reached = {share: float(np.interp(seconds, one[0], one[which], left=np.inf)) for share, one in found.items()}
    best = min(reached, key=reached.__getitem__)
    return {"seconds": seconds, "share": best, "value": reached[best], "all": reached[1.0]}


def growth(sizes: Sequence[int], x: Array, y: Any, seed: int, repeats: int) -> list[dict[str, float]]:
    """Total variation of a step by mini-batches, measured, and the sizes that bounds ask for, against N."""
    rng, rows = np.random.default_rng(seed), []
    for n in sizes:
        own = regression_of(x[:n], y[:n])
        mode = mode_of(own)
        limit = Limit.at(own, mode)
        of = minibatches.constants(own.x, mode, n, float((own.x**2).sum(axis=1).max()), PRIOR_SD**2)
        one = {
            "n": n,
            "printed": minibatches.printed_size(of, EPSILON) / n,
            "proved": minibatches.proved_size(of, EPSILON) / n,
            "needed": limit.size(EPSILON, n) / n,
        }
        shares = {**FIXED, "power": n**POWER / n}
        for name, share in shares.items():
            m = round(share * n)
            found = [minibatches.distance(rng, own, mode, m, n_normals=1000) for _ in range(repeats)]
            one[name] = float(np.mean(found))
            one[f"expected_{name}"] = minibatches.expected_distance(limit.pull, share)
        rows.append(one)
    return rows


def sublinear_from(of: minibatches.Constants) -> int:
    """Power of 10 of the N from which theorem 4.1 as printed is content with half of the data."""

    def share(power: int) -> float:
        n = 10**power
        grown = of._replace(n=n, omega=minibatches.largest_omega(n), prior=of.prior * of.n / n)
        return minibatches.printed_size(grown, EPSILON) / n

    return next(power for power in range(3, 40) if share(power) < 0.5)


def draw_growth(page: Page, rows: Sequence[Mapping[str, float]]) -> None:
    """Total variation of a step against N."""
    figure, axes = page.figure(1)
    n = [row["n"] for row in rows]
    labels = {**{name: f"m = {share:g} N" for name, share in FIXED.items()}, "power": f"m = N^{POWER:g}"}
    for (name, label), colour in zip(labels.items(), common.COLOURS, strict=True):
        axes.plot(n, [row[name] for row in rows], "o-", ms=4, lw=1.3, color=colour, label=label)
        axes.plot(n, [row[f"expected_{name}"] for row in rows], ls="--", lw=0.9, color=colour)
    axes.set(xscale="log", xlabel="N", ylabel="total variation of a step", ylim=(0, 1))
    axes.legend(fontsize=7)
    page.save(figure, "growth")


def linkage(settings: Settings) -> list[dict[str, Any]]:
    """What to expect on comparison patterns prepared as in section 4.2; empty where there are none."""
    path = settings.find("linkage_febrl4/febrl4_patterns.npz")
    if path is None:
        return []
    found, every = np.load(path), settings.pick(4, 1)
    patterns, matches = found["X"][::every], found["is_match"][::every]
    raw = np.where(patterns < 0, 0, patterns) / np.where(patterns.max(axis=0) > 1, 100.0, 1.0)
    pairs = itertools.combinations_with_replacement(range(raw.shape[1]), 2)
    terms = np.hstack([raw, *(raw[:, [a]] * raw[:, [b]] for a, b in pairs)])
    terms = (terms - terms.mean(axis=0)) / terms.std(axis=0)
    vectors = np.linalg.eigh(terms.T @ terms)[1][:, ::-1]
    scores = terms @ vectors[:, :COVARIATES]
    scores /= scores.std(axis=0)
    rows = []
    for words, x in (("no intercept", scores), ("intercept", np.hstack([np.ones((len(scores), 1)), scores[:, :-1]]))):
        regression = regression_of(np.ascontiguousarray(x), matches)
        limit = Limit.at(regression, mode_of(regression))
        facts = {"n": len(x), "matches": float(regression.y.mean()), "rate": limit.rate, "pull": limit.pull}
        rows.append({"design": words, **facts, "too_wide": limit.too_wide(0.2), "needed": limit.size(EPSILON, 1)})
    return rows


def adaptive(posterior: stansub.Posterior, x: Array, y: Any, seconds: float, seed: int) -> dict[str, Paths]:
    """Chains whose mini-batches are chosen for a total variation of `EPSILON`, by theorem 4.1 and by the limit."""
    longest = float((x**2).sum(axis=1).max())
    sizes = {
        "theorem 4.1 as printed": TheoremSize(x, EPSILON, longest=longest, eta=PRIOR_SD**2),
        "limit of many data": AdaptiveSize(x, EPSILON),
    }
    return {name: gibbs(posterior, x, y, size, seconds, seed) for name, size in sizes.items()}


def engine_row(name: str, engine: Drawn, truth: Array) -> dict[str, Any]:
    """Of an engine that makes exact draws, for the table of costs."""
    draws = logistic.weights(engine.idata)
    error = frobenius(draws.reshape(-1, draws.shape[-1]), np.cov(truth.T))
    return {"name": name, "covariance": error, **logistic.costs(engine), "sampling": engine.sampling}


def main() -> None:
    """Run all samplers, and write the page."""
    settings: Settings = common.settings(__file__, __doc__)
    page = Page(settings)
    n, seconds = settings.pick((20_000, 4.0), (2_200_000, 900.0))
    x, y = data_of(n, settings.seed)
    regression = regression_of(x, y)
    limit = Limit.at(regression, mode_of(regression))
    posterior_data = logistic.stan_data(x, y) | {"prior_sd": PRIOR_SD}
    model = stansub.compile_model(logistic.PROGRAM)
    posterior = model.with_data(posterior_data, seed=settings.seed)
    draws = settings.pick(200, 1000)
    nuts = common.with_nuts(
        logistic.PROGRAM, posterior_data, seed=settings.seed, engine="nutpie", chains=CHAINS, iter_warmup=draws,
        iter_sampling=draws,
    )  # fmt: skip
    default = common.with_default(posterior, seed=settings.seed)
    # Another run of the default is the truth, so that no sampler is compared with its own draws.
    truth = logistic.weights(common.with_default(posterior, seed=settings.seed + 1).idata).reshape(-1, COVARIATES)
    runs = [gibbs(posterior, x, y, round(share * n), seconds, settings.seed) for share in SHARES]
    tuned = adaptive(posterior, x, y, seconds, settings.seed)
    found = draw_figure(page, runs, truth)
    sizes = [round(10 ** (power / 2)) for power in range(6, settings.pick(10, 13))]
    rows = growth([*(one for one in sizes if one < n), n], x, y, settings.seed, settings.pick(5, 10))
    draw_growth(page, rows)
    of = minibatches.constants(x[:100_000], mode_of(regression), n, float((x**2).sum(axis=1).max()), PRIOR_SD**2)
    table = [one.row(truth, limit) for one in runs]
    engines = [
        engine_row(name, one, truth)
        for name, one in (
            ("Pólya-Gamma Gibbs, all data", runs[-1].drawn),
            ("default", default),
            ("NUTS (nutpie)", nuts),
        )
    ]
    fifth = next(one for one in table if one["share"] >= 0.2 - 1 / n)
    times = [float(found[1.0][0][-1]) * one for one in (0.03, 0.1, 0.3, 1.0)]
    page.write(
        f"Mini-batches of {common.percent(fifth['share'])} of the data make sds {fifth['too_wide']:.2f} times too "
        f"large for any N. The exact chain makes {common.figures(engines[0]['per_second'], 2)} effective draws per "
        f"second, today's default {common.figures(engines[1]['per_second'], 2)}.",
        n=n, p=COVARIATES, fixed=list(FIXED.values()), power=POWER, prior_sd=PRIOR_SD, epsilon=EPSILON,
        compared=COMPARED, runs=table,
        tuned=[{"name": name, **one.row(truth, limit)} for name, one in tuned.items()], growth=rows,
        best=[(best_at(found, 1, one), best_at(found, 2, one)) for one in times], rate=limit.rate,
        meanwhile=best_at(found, 1, default.whole), too_wide_half=limit.too_wide(0.5),
        printed_at_one=minibatches.printed_size(of, 1.0) / n,
        sublinear=sublinear_from(of), at_half=minibatches.expected_distance(limit.pull, 0.5), engines=engines,
        linkage=linkage(settings),
        default_test=str(default.idata.attrs["test"]), guarantee=str(default.idata.attrs["guarantee"]),
    )  # fmt: skip


if __name__ == "__main__":
    main()
