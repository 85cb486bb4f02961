"""Variable selection in logistic regression by reversible jumps with subsampled decisions.

Korattikara, Chen and Welling (2014), section 5.3: a Bayesian lasso in which features enter and leave the model
(equations 7 to 12), the risk in the predictive mean of test data against time (figure 6), and the probabilities of
features to be in the model (figure 7). Data: MiniBooNE where --data-dir has miniboone/miniboone.npz (x and y) or
miniboone/MiniBooNE_PID.txt, else simulated ones of its shape.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import arviz as az
import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter
from numpy.typing import NDArray
from scipy.special import expit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common import (
    DEFAULT_COLOUR,
    EXACT_COLOUR,
    Curve,
    Page,
    Settings,
    draw_risk,
    percent,
    risk,
    settings,
    share_of_data,
    share_wrong,
)
from variable_selection.moves import NAMES, reversible_jump

import stansub

Array = NDArray[np.float64]

EPSILONS = (0.0, 0.01, 0.05, 0.1)
# The knob of the model's size: simulated features that do not matter are in the model for some per cent of the time.
LOG_LAMBDA = 2.0
# Observations a block; the first look is at 500, as in the paper.
BLOCK = 50
# Test data whose predictive means are compared, and draws of a chain that they are computed from.
N_COMPARED, N_DRAWS = 300, 2000


class Sizes(NamedTuple):
    """How much is sampled.

    Attributes
    ----------
    n : int
        Events, those for testing included.
    chains, warmup, draws : int
    exact : int
        Draws of each chain of the run that is the truth.
    full : tuple of int
        Draws of the model with all features: its truth, and what is compared with it.
    """

    n: int
    chains: int
    warmup: int
    draws: int
    exact: int
    full: tuple[int, int]


SMALL = Sizes(20_000, 4, 500, 2500, 6000, (4000, 1000))
FULL = Sizes(130_065, 10, 10_000, 20_000, 80_000, (40_000, 10_000))


class Split(NamedTuple):
    """Standardised features with a column of 1s in front, and classes."""

    x: Array
    y: NDArray[np.int64]
    x_test: Array
    y_test: NDArray[np.int64]


def miniboone(given: Settings) -> tuple[Array, NDArray[np.int64]] | None:
    """The data of the paper, where there are any: signal 1, background 0; events with missing values left out."""
    if packed := given.find("miniboone/miniboone.npz"):
        with np.load(packed) as stored:
            x, y = stored["x"].astype(float), stored["y"].astype(np.int64)
    elif text := given.find("miniboone/MiniBooNE_PID.txt") or given.find("MiniBooNE_PID.txt"):
        with text.open() as lines:
            n_signal = int(lines.readline().split()[0])
            x = np.loadtxt(lines)
        y = (np.arange(len(x)) < n_signal).astype(np.int64)
    else:
        return None
    there = (x > -998).all(axis=1)
    return x[there], y[there]


def simulated(rng: np.random.Generator, n: int, dim: int = 50, n_active: int = 12) -> tuple[Array, NDArray[np.int64]]:
    """Features of five common factors and noise of their own; a dozen of them matter, about 28 % are positive."""
    loadings = rng.normal(size=(5, dim)) * 0.6
    x = rng.normal(size=(n, 5)) @ loadings + rng.normal(size=(n, dim))
    x /= x.std(axis=0)
    active = rng.choice(dim, n_active, replace=False)
    effects = np.zeros(dim)
    effects[active] = np.geomspace(0.03, 0.8, n_active) * rng.choice([-1.0, 1.0], n_active)
    return x, (rng.random(n) < expit(x @ effects - 1.45)).astype(np.int64)


def split(rng: np.random.Generator, x: Array, y: NDArray[np.int64], n: int) -> Split:
    """So many events, of which four in five are for training; standardised by these."""
    order = rng.permutation(len(y))[:n]
    n_train = len(order) * 4 // 5
    train, test = order[:n_train], order[n_train:]
    mean, sd = x[train].mean(axis=0), x[train].std(axis=0)
    scaled = np.column_stack([np.ones(len(y)), (x - mean) / np.where(sd > 0, sd, 1.0)])
    return Split(scaled[train], y[train], scaled[test], y[test])


def one_variable(data: Split) -> Array:
    """The start of the paper: the constant alone, at its maximum likelihood value."""
    beta = np.zeros(data.x.shape[1])
    beta[0] = np.log(data.y.mean() / (1 - data.y.mean()))
    return beta


def clear_ones(data: Split) -> Array:
    """A start near the bulk: features more than three standard errors from 0, at their maximum likelihood values."""
    everything = np.arange(data.x.shape[1])
    values, errors = maximum_likelihood(data, everything)
    inside = everything[np.abs(values) > 3 * errors]
    beta = np.zeros(len(everything))
    beta[inside], _ = maximum_likelihood(data, inside)
    return beta


def maximum_likelihood(data: Split, inside: NDArray[np.int64]) -> tuple[Array, Array]:
    """Of the coefficients of some features, by Newton's method, with standard errors."""
    x, beta = data.x[:, inside], np.zeros(len(inside))
    for _ in range(12):
        p = expit(x @ beta)
        covariance = np.linalg.inv((x * (p * (1 - p))[:, np.newaxis]).T @ x)
        beta = beta + covariance @ (x.T @ (data.y - p))
    return beta, np.sqrt(np.diag(covariance))


class Made(NamedTuple):
    """Draws of a sampler, and what pages show of them.

    Attributes
    ----------
    beta : list of ndarray, shape (draws, dim)
        Of each chain.
    seconds : list of float
        Sampling of each chain.
    warmup : float
        Mean seconds of the warmup of a chain.
    facts : dict
        For the table.
    """

    beta: list[Array]
    seconds: list[float]
    warmup: float
    facts: dict[str, Any]


def sampled(target: tuple[Any, Any], data: Split, **options: Any) -> Made:
    """Draws, and their figures."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stansub.DrawsWarning)  # short chains; the page has an exact run beside them
        idata = stansub.sample(*target, parallel_chains=2, show_progress=False, **options)
    stats, beta = idata["chain_stats"], idata["posterior"]["beta"].values
    thinned = beta[:, :: max(1, beta.shape[1] // N_DRAWS)]
    seconds, predicted = stats["sampling_time"].values, predictive(thinned, data.x_test).mean(axis=0)
    facts = {
        "share": share_of_data(idata),
        "wrong": share_wrong(idata),
        "steps_per_second": float(stats["n_steps"].sum() / seconds.sum()),
        "classification_error": float(((predicted > 0.5) != data.y_test).mean()),
        "size": float(np.count_nonzero(beta, axis=2).mean()),
        "acceptance": by_move(idata),
        "ess_per_second": ess_of_predictions(thinned, data) / float(seconds.sum()),
    }
    return Made(list(thinned), seconds.tolist(), float(stats["warmup_time"].mean()), facts)


def by_move(idata: Any) -> dict[str, float]:
    """Share of the tries that were accepted, by move; empty of a sampler without."""
    stats = idata["sample_stats"]
    if "move" not in stats:
        return {}
    move, accepted = stats["move"].values, stats["accepted"].values
    return {name: float(accepted[move == number].mean()) for number, name in enumerate(NAMES)}


def predictive(beta: Array, x: Array) -> Array:
    """Probability of class 1, averaged over the draws of each chain, shape (chains, n)."""
    return np.array([sum(expit(x @ part.T).sum(axis=1) for part in np.array_split(one, 20)) / len(one) for one in beta])


def ess_of_predictions(beta: Array, data: Split) -> float:
    """The smallest bulk ESS of the predictions of ten test data."""
    values = expit(np.einsum("cdk,nk->ncd", beta, data.x_test[:10]))
    return float(min(az.ess(one, method="bulk") for one in values))


def curve(made: Made, data: Split, truth: Array) -> Curve:
    """Risk in the predictive mean against time, that of warmup counted."""
    values = [expit(one @ data.x_test[:N_COMPARED].T) for one in made.beta]
    return risk(values, made.seconds, truth, start=made.warmup)


def inclusion(made: Made) -> Array:
    """Probability of each coefficient to be in the model, by chain, shape (chains, dim)."""
    return np.array([(one != 0).mean(axis=0) for one in made.beta])


def label(epsilon: float) -> str:
    return f"ε = {epsilon:g}"


def run(given: Settings, sizes: Sizes) -> None:
    """Draw, and write the page."""
    page, rng = Page(given), np.random.default_rng(given.seed)
    found = miniboone(given)
    x, y = found or simulated(rng, 130_065)
    data = split(rng, x, y, sizes.n)
    dim = data.x.shape[1]
    stan = {"N": len(data.y), "D": dim, "x": data.x, "y": data.y, "lambda": float(np.exp(LOG_LAMBDA)), "nu": 0.0}
    program = stansub.compile_model(given.program)
    posterior = program.with_data(stan, block_size=BLOCK)
    options: dict[str, Any] = {
        "kernel": reversible_jump(),
        "inits": {"beta": given.pick(clear_ones, one_variable)(data)},
        "chains": sizes.chains,
        "iter_warmup": sizes.warmup,
    }
    exact = sampled((posterior, None), data, test="exact", iter_sampling=sizes.exact, seed=given.seed + 100, **options)
    made = {}
    for epsilon in EPSILONS:
        test: dict[str, Any] = {"test": "exact"}
        if epsilon:
            test = {"test": "austerity", "epsilon": epsilon, "first_look": 10, "audit": 0.01}
        made[epsilon] = sampled((posterior, None), data, iter_sampling=sizes.draws, seed=given.seed, **test, **options)
    # The scale that the coefficients in the model have.
    stan["nu"] = float(np.mean([np.abs(one[one != 0]).mean() for one in exact.beta]))
    full = [sampled((program, stan), data, chains=4, iter_sampling=n, seed=given.seed + n) for n in sizes.full]
    show(page, data, exact, made, full, real=found is not None, nu=stan["nu"])


def show(
    page: Page, data: Split, exact: Made, made: Mapping[float, Made], full: list[Made], *, real: bool, nu: float
) -> None:
    """Pictures and the page."""
    truth, truth_full = (predictive(np.array(one.beta), data.x_test[:N_COMPARED]).mean(0) for one in (exact, full[0]))
    curves = {label(epsilon): curve(one, data, truth) for epsilon, one in made.items()}
    curves["all features, today's default"] = curve(full[1], data, truth_full)
    picture, axes = page.figure()
    draw_risk(axes, curves, {label(0.0): EXACT_COLOUR, "all features, today's default": DEFAULT_COLOUR})
    for axis in (axes.xaxis, axes.yaxis):  # in less than a decade the numbers of all ticks overlap
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    page.save(picture, "risk")
    probabilities = {epsilon: inclusion(one) for epsilon, one in made.items()}
    reference = inclusion(exact)
    show_inclusion(page, reference, probabilities)
    shown = [
        {
            "label": label(epsilon),
            **one.facts,
            "risk": float(curves[label(epsilon)].risk[-1]),
            "kept": float(probabilities[epsilon].mean(0)[reference.mean(0) > 0.99].min(initial=1.0)),
            "inclusion": float(np.abs(probabilities[epsilon].mean(0) - reference.mean(0)).max()),
        }
        for epsilon, one in made.items()
    ]
    common_time = min(one.seconds[-1] for one in curves.values() if one is not curves["all features, today's default"])
    at_end = {name: float(np.interp(common_time, one.seconds, one.risk)) for name, one in curves.items() if "=" in name}
    best, gain = min(at_end, key=lambda name: at_end[name]), shown[0]["risk"]
    page.write(
        f"After equal times, the risk is lowest with {best}. Decisions use "
        f"{percent(shown[-1]['share'])} of the data with ε = 0.1 and {percent(shown[1]['share'])} with ε = 0.01.",
        real=real,
        nu=nu,
        n_train=len(data.y),
        n_test=len(data.y_test),
        dim=data.x.shape[1],
        positive=float(data.y.mean()),
        log_lambda=LOG_LAMBDA,
        chains=len(exact.beta),
        exact=exact.facts,
        exact_between=float(reference.std(axis=0, ddof=1).max()),
        rows=shown,
        best=best,
        ratio=gain / min(at_end.values()) if best != label(0.0) else 1.0,
        full=full[1].facts,
        full_risk=float(curves["all features, today's default"].risk[-1]),
        full_seconds=float(curves["all features, today's default"].seconds[-1]),
        common_time=common_time,
    )


def show_inclusion(page: Page, reference: Array, probabilities: Mapping[float, Array]) -> None:
    """Probabilities of approximate runs against those of the long exact one, with the sd between chains."""
    picture, axes = page.figure(len(probabilities), sharey=True)
    for one, (epsilon, found) in zip(axes, probabilities.items(), strict=True):
        count = np.sqrt(len(found))
        one.plot([0, 1], [0, 1], color=EXACT_COLOUR, lw=0.8)
        one.errorbar(
            reference.mean(0),
            found.mean(0),
            xerr=reference.std(0, ddof=1) / np.sqrt(len(reference)),
            yerr=found.std(0, ddof=1) / count,
            fmt="o",
            ms=3.5,
            lw=0.8,
        )
        one.set(title=label(epsilon), xlabel="probability, long exact run")
    axes[0].set(ylabel="probability to be in the model")
    page.save(picture, "inclusion")


def main() -> None:
    """Run with the options of the command line."""
    given = settings(__file__, __doc__)
    run(given, given.pick(SMALL, FULL))


if __name__ == "__main__":
    main()
