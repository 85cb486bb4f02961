"""Draw the three pictures of the ideas: python docs/explanation/pictures/draw.py

Each is simulated: a sequential test is run, remainders are computed, candidates are thinned.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from stansub.acceptance.rules import Pocock

FOLDER = Path(__file__).resolve().parent
BLUE, ORANGE, GREY = "#2f6fab", "#c8642d", "#8a8a8a"


def save(figure: plt.Figure, name: str) -> None:
    figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None}, facecolor="white")
    plt.close(figure)


def sequential_test(rng: np.random.Generator) -> None:
    """The mean of the units drawn so far against the boundaries of Pocock's test."""
    n_units = 1000
    table = Pocock(epsilon=0.01).table(n_units)
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharey=True, layout="constrained")
    for axis, mean, title in zip(axes, (0.45, 0.06), ("A clear decision", "A close decision"), strict=True):
        units = rng.normal(mean, 1.0, n_units)
        n = np.asarray(table.n)
        width = np.array([scale * units[:k].std(ddof=1) for scale, k in zip(table.scale, n, strict=True)])
        means = np.array([units[:k].mean() for k in n])
        outside = np.abs(means) > width
        outside[-1] = True
        last = int(np.argmax(outside)) + 1
        axis.fill_between(n, -width, width, color=GREY, alpha=0.2, label="undecided: draw more")
        axis.plot(n[:last], means[:last], "o-", color=BLUE, markersize=4, label="mean of the observations drawn")
        axis.plot(n[last - 1], means[last - 1], "o", color=ORANGE, markersize=9, label="decision")
        axis.axhline(0, color="black", linewidth=0.8)
        axis.set(
            xscale="log", xlabel=f"observations drawn, of {n_units:,}", title=f"{title}: {n[last - 1]:,} observations"
        )
    axes[0].set(ylabel="mean minus threshold", ylim=(-1.1, 1.1))
    axes[0].legend(frameon=False, fontsize=8, loc="lower right")
    save(figure, "sequential_test")


def control_variates(rng: np.random.Generator) -> None:
    """Changes of the log likelihood of a logistic regression, and what a second-order expansion leaves of them."""
    n = 400
    x = np.c_[np.ones(n), rng.standard_normal(n)]
    y = rng.random(n) < 1 / (1 + np.exp(0.5 - x[:, 1]))
    mode, moved = np.array([-0.5, 1.0]), np.array([-0.4, 1.1])

    def log_lik(theta: np.ndarray) -> np.ndarray:
        return np.where(y, 1, 0) * (x @ theta) - np.logaddexp(0, x @ theta)

    p = 1 / (1 + np.exp(-(x @ mode)))
    step = x @ (moved - mode)
    change = log_lik(moved) - log_lik(mode)
    left = change - ((y - p) * step - 0.5 * p * (1 - p) * step**2)
    figure, axis = plt.subplots(figsize=(8, 3), layout="constrained")
    for values, colour, name in ((change, BLUE, "change of the log likelihood"), (left, ORANGE, "remainder")):
        axis.plot(x[:, 1], values, ".", color=colour, markersize=4, label=f"{name}, sd {values.std():.1g}")
    axis.set(xlabel="covariate of the observation", ylabel="log likelihood, one observation")
    axis.legend(frameon=False, fontsize=8)
    save(figure, "control_variates")


def thinning(rng: np.random.Generator) -> None:
    """Candidates are picked in proportion to bounds; few are evaluated, and a hit rejects the proposal."""
    n = 40
    bound = rng.gamma(4.0, 0.25, n)
    remainder = bound * rng.beta(1.2, 6.0, n)
    n_candidates = rng.poisson(0.2 * bound.sum())
    picked = rng.choice(n, n_candidates, p=bound / bound.sum())
    height = rng.random(n_candidates) * bound[picked]
    hit = height < remainder[picked]
    figure, axis = plt.subplots(figsize=(8, 3), layout="constrained")
    axis.bar(range(n), bound, color=GREY, alpha=0.3, label="proved bound of an observation")
    axis.bar(range(n), remainder, color=BLUE, label="its own rate (evaluated only if picked)")
    axis.plot(
        picked[~hit], height[~hit], "o", color="white", markeredgecolor="black", label="candidate above: no effect"
    )
    axis.plot(picked[hit], height[hit], "o", color=ORANGE, markeredgecolor="black", label="candidate below: rejects")
    axis.set(xlabel="observation", ylabel="rate of rejection", xlim=(-1, n), ylim=(0, 1.5 * bound.max()))
    axis.legend(frameon=False, fontsize=8, ncols=2, loc="upper left")
    save(figure, "thinning")


if __name__ == "__main__":
    mpl.rcParams["svg.hashsalt"] = "stansub"
    sequential_test(np.random.default_rng(3))
    control_variates(np.random.default_rng(1))
    thinning(np.random.default_rng(4))
