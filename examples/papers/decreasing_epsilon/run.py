"""An epsilon that falls during the run, beside fixed ones: risk against time.

Korattikara, Chen and Welling (2014), section 6, leave it for future work: large errors at first, small ones later.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import common
import logistic
from common import Array, Curve, Page, Settings

import stansub
from stansub.acceptance.decreasing_level import DecreasingLevel

FIXED = (0.0, 0.005, 0.02, 0.05, 0.2)
FIXED_NAMES = [f"epsilon {epsilon:g}" for epsilon in FIXED]
FALLING = {f"epsilon {first:g} to {last:g}": (first, last) for first, last in ((0.2, 0.005), (0.05, 0.005))}
# Leading principal components: so few that a walk mixes within the seconds of the run.
COMPONENTS = 10


class Functions(NamedTuple):
    """Whose means are estimated, with their true values.

    Attributes
    ----------
    spread, predictive : callable
        Squared standardised deviations of the weights, whose means are 1; predictive probabilities of test points.
    truths : dict
        By name of the function.
    """

    spread: logistic.Function
    predictive: logistic.Function
    truths: dict[str, Array]

    def items(self) -> dict[str, logistic.Function]:
        """By name."""
        return {"spread": self.spread, "predictive": self.predictive}


def functions_of(reference: Any, x_test: Array) -> Functions:
    """The functions, with truths from reference draws."""
    draws = logistic.weights(reference)
    centre, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))

    def spread(weights: Array) -> Array:
        return np.asarray(((weights - centre) / sd) ** 2)

    def predictive(weights: Array) -> Array:
        return np.asarray(expit(weights @ x_test.T))

    truths = {"spread": np.ones(len(centre)), "predictive": logistic.mean_of(reference, predictive)}
    return Functions(spread, predictive, truths)


def steps_within(seconds: float, levels: tuple[float, float], cost: Mapping[float, float]) -> int:
    """Steps that a falling level takes in so many seconds, from the seconds of a step at fixed levels.

    The level is log-uniform over the run; between the measured levels the logarithm of the cost is interpolated.
    """
    known = sorted(one for one in cost if one > 0)
    falling = DecreasingLevel(*levels, 1000)
    at = np.log([falling.level(step) for step in range(1000)])
    costs = np.exp(np.interp(at, np.log(known), np.log([cost[one] for one in known])))
    return int(seconds / costs.mean())


def seconds_of_a_step(idata: Any) -> float:
    """Of sampling, over all chains."""
    stats = idata["chain_stats"]
    return float(stats["sampling_time"].sum() / stats["n_steps"].sum())


def walks(posterior: stansub.Posterior, draws: Array, settings: Settings) -> dict[str, Any]:
    """Chains at fixed levels and, for about as many seconds, at the falling one; all from the same posterior draws."""
    flat = draws.reshape(-1, draws.shape[-1])
    repeats = settings.pick(4, 8)
    starts = flat[np.random.default_rng(settings.seed).integers(len(flat), size=repeats)]
    cholesky = 2.38 / np.sqrt(COMPONENTS) * np.linalg.cholesky(np.cov(flat.T))
    seconds = settings.pick(3.0, 100.0)
    found, cost = {}, {}
    for epsilon in FIXED:
        idata = logistic.walk(
            posterior, cholesky, epsilon, starts=starts, seconds=seconds, audit=0.02, seed=settings.seed
        )
        found[f"epsilon {epsilon:g}"], cost[epsilon] = idata, seconds_of_a_step(idata)
    for name, (first, last) in FALLING.items():
        found[name] = logistic.walk(
            posterior, cholesky, first, starts=starts, steps=steps_within(seconds, (first, last), cost), audit=0.02,
            seed=settings.seed, final_epsilon=last,
        )  # fmt: skip
    return found


def by_quarter(idata: Any) -> list[dict[str, float]]:
    """Level, share of the data and wrong decisions in each quarter of a run."""
    stats, n = idata["sample_stats"], int(idata.attrs["n_observations"])
    rows = []
    for part in np.array_split(np.arange(stats.sizes["draw"]), 4):
        own = stats.isel(draw=part)
        audited = float(own["audited"].sum())
        rows.append({
            "first": float(own["error_level"].isel(draw=0).mean()),
            "last": float(own["error_level"].isel(draw=-1).mean()),
            "share": float(own["n_obs_used"].mean()) / n,
            "audited": audited,
            "wrong": float(own["audit_wrong"].sum()),
        })  # fmt: skip
    return rows


def draw(page: Page, curves: Mapping[str, Mapping[str, Curve]], floors: Mapping[str, float]) -> None:
    """Both risks against time."""
    figure, axes = page.figure(2)
    named = {"spread": "risk in posterior variances", "predictive": "risk in the predictive mean"}
    for own, (what, words) in zip(axes, named.items(), strict=True):
        colours = {**logistic.level_colours(FIXED_NAMES), **dict(zip(FALLING, common.COLOURS[1:], strict=False))}
        colours |= {"today's default": common.DEFAULT_COLOUR, "NUTS": common.NUTS_COLOUR}
        common.draw_risk(own, curves[what], colours)
        own.axhline(floors[what], color="gray", lw=0.8, ls=":")
        own.set_ylabel(words)
        own.get_legend().remove()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    page.save(figure, "risk")


def main() -> None:
    settings = common.settings(__file__, __doc__)
    page = Page(settings)
    digits = logistic.digits(settings)
    data = logistic.stan_data(digits.x[:, :COMPONENTS], digits.y)
    default = common.with_default(logistic.PROGRAM, data, seed=settings.seed)
    long = common.with_default(
        logistic.PROGRAM, data, seed=settings.seed + 1, iter_sampling=settings.pick(30_000, 500_000), thin=10
    )
    nuts = common.with_nuts(
        logistic.PROGRAM, data, seed=settings.seed, iter_warmup=settings.pick(300, 1000),
        iter_sampling=settings.pick(500, 4000),
    )  # fmt: skip
    functions = functions_of(long.idata, digits.x_test[:, :COMPONENTS])
    posterior = stansub.compile_model(logistic.PROGRAM).with_data(data, block_size=logistic.BLOCK, seed=settings.seed)
    chains = walks(posterior, logistic.weights(long.idata), settings)
    engines = {"today's default": default, "NUTS": nuts}
    curves = {
        what: {name: logistic.curve(idata, function, functions.truths[what]) for name, idata in chains.items()}
        | {
            name: logistic.curve(engine.idata, function, functions.truths[what], start=logistic.start_of(engine))
            for name, engine in engines.items()
        }
        for what, function in functions.items().items()
    }
    floors = {what: logistic.squared_error(long.idata, function) for what, function in functions.items().items()}
    between = {
        what: logistic.agreement(nuts.idata, long.idata, function) for what, function in functions.items().items()
    }
    draw(page, curves, floors)
    write(
        page,
        digits,
        chains,
        curves,
        floors=floors,
        between=between,
        default=logistic.costs(default),
        nuts=logistic.costs(nuts),
    )


def verdict(curves: Mapping[str, Curve]) -> dict[str, Any]:
    """The best fixed level and the best falling one at the end, and whether they can be told apart."""
    ends = logistic.ends({name: curve for name, curve in curves.items() if name.startswith("epsilon")})
    best = min(FIXED_NAMES, key=lambda name: ends[name].risk)
    falling = min(FALLING, key=lambda name: ends[name].risk)
    loosest = FIXED_NAMES[-1]
    return {
        "best": best,
        "falling": falling,
        "loosest": loosest,
        "loosest_is_worse": ends[best].below(ends[loosest]),
        "falling_wins": ends[falling].below(ends[best]),
        "falling_loses": ends[best].below(ends[falling]),
        "ratio": ends[falling].risk / ends[best].risk,
    }


def write(
    page: Page, digits: logistic.Digits, chains: Mapping[str, Any], curves: Mapping[str, Mapping[str, Curve]],
    **facts: Any,
) -> None:  # fmt: skip
    """The page."""
    found = {what: verdict(own) for what, own in curves.items()}
    ends = {what: logistic.ends({name: own[name] for name in chains}) for what, own in curves.items()}
    rows = {
        name: {
            "whole": float(curves["spread"][name].seconds[-1]),
            "share": common.share_of_data(idata),
            "wrong": None if name == FIXED_NAMES[0] else common.share_wrong(idata),
            **{what: own[name]._asdict() for what, own in ends.items()},
        }
        for name, idata in chains.items()
    }
    today = {
        name: {what: logistic.ends({name: own[name]})[name]._asdict() for what, own in curves.items()}
        for name in curves["spread"]
        if name not in chains
    }
    spread = found["spread"]
    page.write(
        f"Variances by the best decreasing level ({spread['falling']}) have {spread['ratio']:.2g} times the risk of "
        f"those by the best fixed one ({spread['best']}).",
        real=digits.real, n=len(digits.y), n_test=len(digits.x_test), components=COMPONENTS, found=found, rows=rows,
        today=today, quarters={name: by_quarter(chains[name]) for name in FALLING},
        repeats=len(logistic.weights(chains[FIXED_NAMES[0]])), **facts,
    )  # fmt: skip


if __name__ == "__main__":
    main()
