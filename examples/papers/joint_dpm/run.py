"""Joint Dirichlet process mixture of logistic experts: Chen, Mansinghka and Ghahramani (2014), section 4.2, figure 6.

python examples/papers/joint_dpm/run.py                # a minute and a half
python examples/papers/joint_dpm/run.py --size full    # longer chains, and NUTS on the finite mixture: an hour or more
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]
from common import (  # noqa: E402
    BLUE,
    CHAIN_COLOURS,
    DEFAULT_COLOUR,
    EXACT_COLOUR,
    NUTS_COLOUR,
    Array,
    Page,
    Settings,
    settings,
    with_nuts,
)
from dpm import Assignments, Experts, JointDPM, Priors, from_prior, predict  # noqa: E402

import stansub  # noqa: E402
from stansub.output import inference_data  # noqa: E402
from stansub.run.context import ChainContext  # noqa: E402
from stansub.run.sample import draw  # noqa: E402

N_TRAINING, N_TEST = 10_000, 1_000
EPSILON, MINI_BATCH = 0.3, 100  # the former of section 4.2, the latter of 4.1: 4.2 has none
TEST = stansub.Austerity(epsilon=EPSILON, looks=stansub.Fixed(size=MINI_BATCH))
STEP_Z, SD = 200, 0.3
CHAINS = 2
N_EXPERTS = 8
CENTRES = np.array([[-2.0, 0.6], [-1.2, -0.6], [-0.4, 0.5], [0.4, -0.5], [1.2, 0.6], [2.0, -0.6]])
PRIORS = Priors()


class Points(NamedTuple):
    """Inputs, classes, and where the inputs were drawn from."""

    x: Array
    y: NDArray[np.bool_]
    cluster: NDArray[np.intp]


def boundary(x: Array) -> Array:
    """The second input above which class 1 is the likelier."""
    return 0.9 * np.sin(2.2 * x)


def simulate(rng: np.random.Generator, n: int) -> Points:
    """Six overlapping clusters of inputs, and two classes on either side of a sine."""
    cluster = rng.integers(len(CENTRES), size=n)
    x = CENTRES[cluster] + rng.normal(0, [0.4, 0.6], (n, 2))
    y = rng.random(n) < 1 / (1 + np.exp(-8 * (x[:, 1] - boundary(x[:, 0]))))
    return Points(x, y, cluster)


class Followed(NamedTuple):
    """What came of a sampler.

    Attributes
    ----------
    seconds : ndarray, shape (chains, draws)
        At which each draw was there.
    accuracy : ndarray, shape (chains, draws)
        On the test points, of predictions averaged over the later half of the draws so far.
    """

    seconds: Array
    accuracy: Array

    @property
    def last(self) -> float:
        """Accuracy at the end."""
        return float(self.accuracy[:, -1].mean())

    def reaches(self, accuracy: float) -> float:
        """Seconds until a chain stays at an accuracy or above, which it has at its end; averaged over chains."""
        first = [max(np.flatnonzero(values < accuracy), default=-1) + 1 for values in self.accuracy]
        return float(np.mean([seconds[one] for seconds, one in zip(self.seconds, first, strict=True)]))


def followed(probabilities: Array, seconds: Array, test: Points) -> Followed:
    """From the predictions of each draw, shape (chains, draws, points)."""
    sums, n = np.cumsum(probabilities, axis=1), np.arange(1, probabilities.shape[1] + 1)
    half = n // 2  # draws left out as warmup
    means = (sums - np.where(half > 0, sums.transpose(0, 2, 1)[..., half - 1], 0).transpose(0, 2, 1)) / (n - half)[
        :, None
    ]
    return Followed(seconds, ((means > 0.5) == test.y).mean(axis=2))


def balanced(model: JointDPM, training: Points, rng: np.random.Generator, *, exact: bool) -> int:
    """Moves of weights that take as long as `STEP_Z` moves of assignments, at the clusters of the simulation."""
    context = ChainContext(model, TEST, 0)
    w = np.zeros((model.n_slots, 3))
    state = Assignments(STEP_Z).bind(context).init(model.position(0.0, w, training.cluster))

    def seconds(recipe: Any) -> float:
        kernel, now = recipe.bind(context), state
        kernel.init(now.position)
        now, _ = kernel.step(rng, now, None)  # tables of looks are made once
        began = time.process_time()
        for _ in range(5):
            now, _ = kernel.step(rng, now, None)
        return (time.process_time() - began) / 5

    n = 40
    return max(1, round(n * seconds(Assignments(STEP_Z)) / seconds(Experts(SD, n, exact=exact))))


class Run(NamedTuple):
    """Draws of the Dirichlet process mixture, with what they say.

    Attributes
    ----------
    idata : InferenceData
    n_moves : int
        Moves of weights in a step.
    curve : Followed
    n_clusters : ndarray, shape (chains, draws)
    share : float
        Of the members of a cluster, that a decision about its expert looked at.
    moves_a_second : float
        Of weights, of a chain.
    """

    idata: Any
    n_moves: int
    curve: Followed
    n_clusters: Array
    share: float
    moves_a_second: float


def sample(model: JointDPM, training: Points, test: Points, settings: Settings, *, exact: bool) -> Run:
    """Draws from prior starts, which are the same for either sampler."""
    n_moves = balanced(model, training, np.random.default_rng(settings.seed), exact=exact)
    starts = [from_prior(np.random.default_rng((settings.seed, chain)), model) for chain in range(CHAINS)]
    # `stansub.sample` without its table of R-hat and ESS: each chain numbers slots anew, and there are 10,000 z.
    idata = draw(
        model,
        None,
        stansub.SampleConfig(
            kernel=stansub.Sequence(z=Assignments(STEP_Z), w=Experts(SD, n_moves, exact=exact)),
            test=TEST,
            chains=CHAINS,
            executor="processes",
            parallel_chains=CHAINS,
            iter_warmup=0,
            iter_sampling=settings.pick(1200, 40_000),
            thin=settings.pick(5, 40),
            inits=[{"log_alpha": one[0], "w": model.w(one).tolist(), "z": one[model.of_z].tolist()} for one in starts],
            seed=settings.seed,
            show_progress=False,
        ),
    )
    draws, stats, totals = (idata[group] for group in ("unconstrained_posterior", "sample_stats", "chain_stats"))
    theta, clock = draws["theta"].values, stats["z.clock"].values
    seconds = clock - clock[:, :1] + np.diff(clock[:, :2])
    probabilities = np.array([[predict(model, one, test.x)[0] for one in chain] for chain in theta])
    steps = float(totals["n_steps"].sum())
    return Run(
        idata,
        n_moves,
        followed(probabilities, seconds, test),
        stats["z.n_clusters"].values,
        float(totals["w.n_obs_used"].sum() / totals["w.n_members"].sum()),
        n_moves * steps / float(totals["sampling_time"].sum()),
    )


def finite(posterior: Any, test: Points) -> Array:
    """Predictions of each draw of the finite mixture, shape (chains, draws, points)."""
    values = {name: posterior[name].values for name in ("pi_", "mu", "L", "w")}
    return np.array(
        [
            [_experts(test.x, *(values[name][chain, draw] for name in values)) for draw in range(values["w"].shape[1])]
            for chain in range(values["w"].shape[0])
        ]
    )


def _experts(x: Array, weights: Array, mu: Array, factor: Array, w: Array) -> Array:
    """Equation 9 with K terms: probability of class 1 given the inputs."""
    u = (x[:, [0]] - mu[:, 0]) / factor[:, 0, 0]
    v = (x[:, [1]] - mu[:, 1] - factor[:, 1, 0] * u) / factor[:, 1, 1]
    log_density = np.log(weights) - np.log(factor[:, 0, 0] * factor[:, 1, 1]) - (u**2 + v**2) / 2
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    odds = np.clip(w[:, 0] + x @ w[:, 1:].T, -700, 700)
    return np.asarray((density / (1 + np.exp(-odds))).sum(axis=1) / density.sum(axis=1))


class Today(NamedTuple):
    """Draws of the finite mixture by an engine of today."""

    idata: Any
    curve: Followed
    setup: float
    r_hat: float


def today(made: Any, test: Points, *, setup: float, most: int = 300) -> Today:
    """Follow draws; those of each chain are taken to be evenly spread over its seconds."""
    posterior = made["posterior"].isel(draw=slice(None, None, max(1, made["posterior"].sizes["draw"] // most)))
    n = posterior.sizes["draw"]
    began = setup + made["chain_stats"]["warmup_time"].values[:, np.newaxis]
    seconds = began + made["chain_stats"]["sampling_time"].values[:, np.newaxis] * np.arange(1, n + 1) / n
    import arviz as az

    r_hat = az.rhat(inference_data.group(made, "posterior"), var_names=["mu", "w"])
    worst = max(float(r_hat[name].max()) for name in ("mu", "w"))
    return Today(made, followed(finite(posterior, test), seconds, test), setup, worst)


def data_of(training: Points) -> dict[str, Any]:
    """For the Stan program."""
    x, priors = training.x, PRIORS
    return {
        "K": N_EXPERTS,
        "N": len(x),
        "y": training.y.astype(int),
        "x1": x[:, 0],
        "x2": x[:, 1],
        "k0": priors.k0,
        "v0": priors.v0,
        "s0": priors.s0,
        "sd_w": priors.sd_w,
    }


def by_stansub(posterior: Any, test: Points, settings: Settings, **options: Any) -> tuple[Today | None, str]:
    """The finite mixture by `stansub.sample`, or None and why it did not come to draws."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stansub.DrawsWarning)
            made = stansub.sample(
                posterior,
                chains=CHAINS,
                parallel_chains=CHAINS,
                seed=settings.seed,
                show_progress=False,
                **options,
            )
    except stansub.RunError as error:
        return None, str(error)
    return today(made, test, setup=float(made.attrs["setup_time"])), ""


def seconds_a_gradient(posterior: Any, rng: np.random.Generator) -> float:
    """Of the whole finite mixture."""
    at = rng.normal(0, 0.3, posterior.dim)
    began = time.process_time()
    for _ in range(5):
        posterior.full.log_density_gradient(at)
    return (time.process_time() - began) / 5


def show_data(page: Page, training: Points) -> None:
    """The training points by class."""
    figure, axes = page.figure()
    for value, colour in ((False, BLUE), (True, CHAIN_COLOURS[1])):
        own = training.x[training.y == value]
        axes.plot(*own.T, ".", ms=1.2, color=colour, label=f"class {int(value)}", alpha=0.5)
    grid = np.linspace(-3.5, 3.5, 200)
    axes.plot(grid, boundary(grid), color=EXACT_COLOUR, lw=1)
    axes.set(xlabel="first input", ylabel="second input", xlim=(-3.5, 3.5), ylim=(-3, 3))
    axes.legend(fontsize=8, markerscale=6, loc="upper right")
    page.save(figure, "data")


def show_sample(page: Page, model: JointDPM, theta: Array, test: Points) -> None:
    """Regions of the classes as one posterior draw has them, its clusters, and the test points that it gets wrong."""
    figure, axes = page.figure()
    a, b = np.meshgrid(np.linspace(-3.5, 3.5, 120), np.linspace(-3, 3, 120))
    probability, _ = predict(model, theta, np.column_stack([a.ravel(), b.ravel()]))
    axes.contourf(a, b, probability.reshape(a.shape), levels=[0, 0.5, 1], colors=[BLUE, CHAIN_COLOURS[1]], alpha=0.15)
    axes.contour(a, b, probability.reshape(a.shape), levels=[0.5], colors=[EXACT_COLOUR], linewidths=1)
    guess, responsibility = predict(model, theta, test.x)
    cluster = responsibility.argmax(axis=1)
    for number, k in enumerate(np.unique(cluster)):
        colour = f"C{number % 10}"
        own = test.x[cluster == k]
        axes.plot(*own.T, ".", ms=3, color=colour)
        w = model.w(theta)[k] if k < model.n_slots else np.zeros(3)
        if abs(w[2]) > 0.2 and len(own) > 10:
            ends = np.quantile(own[:, 0], [0.02, 0.98])
            line = -(w[0] + w[1] * ends) / w[2]
            axes.plot(ends, line, "--", color=colour, lw=1.3)
    wrong = test.x[(guess > 0.5) != test.y]
    axes.plot(*wrong.T, "o", ms=2.5, color="black")
    axes.set(xlabel="first input", ylabel="second input", xlim=(-3.5, 3.5), ylim=(-3, 3))
    page.save(figure, "sample")


def show_accuracy(page: Page, curves: dict[str, tuple[Followed, str]], best: float) -> None:
    """Accuracy against time, a line a chain."""
    figure, axes = page.figure()
    for label, (curve, colour) in curves.items():
        for number, (seconds, accuracy) in enumerate(zip(curve.seconds, curve.accuracy, strict=True)):
            axes.plot(seconds, accuracy, color=colour, lw=1.3, label=None if number else label)
    axes.axhline(best, color="grey", lw=0.8, ls=":", label="true boundary")
    axes.set(xscale="log", xlabel="seconds", ylabel="accuracy on test points")
    axes.legend(fontsize=7, loc="lower right")
    page.save(figure, "accuracy")


def show_clusters(page: Page, runs: dict[str, tuple[Run, str]]) -> None:
    """Number of clusters along the runs."""
    figure, axes = page.figure()
    for label, (run, colour) in runs.items():
        for number, (seconds, clusters) in enumerate(zip(run.curve.seconds, run.n_clusters, strict=True)):
            axes.step(seconds, clusters, color=colour, lw=1, label=None if number else label)
    axes.set(xscale="log", xlabel="seconds", ylabel="clusters")
    axes.legend(fontsize=8)
    page.save(figure, "clusters")


def main(arguments: list[str] | None = None) -> None:
    """Sample, draw, write the page."""
    given = settings(__file__, __doc__, arguments)
    page = Page(given)
    rng = np.random.default_rng(given.seed)
    training, test = simulate(rng, N_TRAINING), simulate(rng, N_TEST)
    model = JointDPM(training.x, training.y, PRIORS)
    runs = {name: sample(model, training, test, given, exact=name == "exact") for name in ("subsampled", "exact")}
    subsampled, exact = runs["subsampled"], runs["exact"]
    posterior = stansub.compile_model(given.program).with_data(data_of(training))
    gradient = seconds_a_gradient(posterior, rng)
    default, why = by_stansub(posterior, test, given, max_time=given.pick(10.0, 900.0))
    plain, why_not = by_stansub(
        posterior,
        test,
        given,
        max_time=given.pick(12.0, 300.0),
        control_variates=0,
        proposal="adaptive-metropolis",
        iter_warmup=given.pick(500, 5000),
        iter_sampling=given.pick(20_000, 400_000),
        thin=given.pick(20, 200),
    )
    nuts = None
    if given.full:
        options = {"chains": CHAINS, "iter_warmup": 300, "iter_sampling": 300, "seed": given.seed}
        made = with_nuts(given.program, data_of(training), **options).idata
        nuts = today(made, test, setup=float(made.attrs["setup_time"]))
    curves = {
        f"subsampled, $\\epsilon$ = {EPSILON}": (subsampled.curve, BLUE),
        "exact": (exact.curve, EXACT_COLOUR),
        **({f"{N_EXPERTS} experts, default": (default.curve, DEFAULT_COLOUR)} if default else {}),
        **({f"{N_EXPERTS} experts, random walk": (plain.curve, CHAIN_COLOURS[3])} if plain else {}),
        **({f"{N_EXPERTS} experts, NUTS": (nuts.curve, NUTS_COLOUR)} if nuts else {}),
    }
    best = float(((test.x[:, 1] > boundary(test.x[:, 0])) == test.y).mean())
    show_data(page, training)
    theta = subsampled.idata["unconstrained_posterior"]["theta"].values[0, -1]
    show_sample(page, model, theta, test)
    show_accuracy(page, curves, best)
    show_clusters(page, {"subsampled": (subsampled, BLUE), "exact": (exact, EXACT_COLOUR)})
    level = min(float(run.curve.accuracy[:, -1].min()) for run in runs.values()) - 0.005
    times = {name: run.curve.reaches(level) for name, run in runs.items()}
    ratio = times["exact"] / times["subsampled"]
    page.write(
        f"The accuracy is {subsampled.curve.last:.3f} with subsampled decisions, which use "
        f"{100 * subsampled.share:.0f} % of a cluster's members, and {exact.curve.last:.3f} with exact ones.",
        n_training=N_TRAINING,
        n_test=N_TEST,
        chains=CHAINS,
        epsilon=EPSILON,
        mini_batch=MINI_BATCH,
        step_z=STEP_Z,
        sd=SD,
        priors=vars(PRIORS),
        n_slots=model.n_slots,
        n_experts=N_EXPERTS,
        steps=int(subsampled.idata["chain_stats"]["n_steps"].max()),
        best=best,
        level=level,
        ratio=ratio,
        runs={
            name: {
                "n_moves": run.n_moves,
                "share": run.share,
                "moves_a_second": run.moves_a_second,
                "seconds": float(run.curve.seconds[:, -1].mean()),
                "accuracy": run.curve.last,
                "reaches": times[name],
                "clusters": float(run.n_clusters[:, run.n_clusters.shape[1] // 2 :].mean()),
                "accepted": float(run.idata["chain_stats"]["w.n_accepted"].sum())
                / (run.n_moves * float(run.idata["chain_stats"]["n_steps"].sum())),
                "wrong": wrong(run),
            }
            for name, run in runs.items()
        },
        default=None if default is None else _facts(default),
        why=why.partition(";")[0],
        plain=None if plain is None else _facts(plain),
        why_not=why_not.partition(";")[0],
        gradient=gradient,
        nuts=None if nuts is None else _facts(nuts),
    )


def wrong(run: Run) -> float:
    """Share of the audited decisions about experts that were wrong."""
    totals = run.idata["chain_stats"]
    audited = float(totals["w.n_audited"].sum())
    return float(totals["w.n_audit_wrong"].sum()) / audited if audited else math.nan


def _facts(found: Today) -> dict[str, float]:
    return {
        "setup": found.setup,
        "seconds": float(found.curve.seconds[:, -1].mean()),
        "accuracy": found.curve.last,
        "r_hat": found.r_hat,
        "apart": float(np.ptp(found.curve.accuracy[:, -1])),
    }


if __name__ == "__main__":
    main()
