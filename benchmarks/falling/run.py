"""An error level that falls during a run against the best fixed one: risk of posterior means for equal use of the data.

python benchmarks/falling/run.py                  # 40 replicates, one budget: a minute or two
python benchmarks/falling/run.py --size full      # 400, three budgets

Plain random walks without control variates, Pocock's test, on two posteriors with skewed data whose means are known,
from draws of the posterior and from far away. Cost is counted in passes over the data. The best fixed level and the
best fall are chosen in hindsight, with half of the replicates, and compared with the others. Writes
reports/falling/README.md, results.json and risk.png.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent))

import page  # noqa: E402
from comparison import Array, Outcome, Runs, compare, predicted_risk  # noqa: E402
from posteriors import POSTERIORS, Target  # noqa: E402
from suite.machine import facts  # noqa: E402

import stansub  # noqa: E402
from stansub.planning.level_mixture import shares  # noqa: E402

REPORTS = HERE.parent.parent / "reports" / "falling"
# Replicates, and budgets in passes over the data.
SIZES = {"small": (40, (60,)), "full": (400, (50, 200, 800))}
FIXED = (0.0, 0.005, 0.02, 0.05, 0.2)
FALLS = ((0.02, 0.005), (0.05, 0.005), (0.2, 0.005), (0.2, 0.02))
# Distance of starts, in posterior sds.
STARTS = {"in the posterior": 0.0, "15 sds away": 15.0}
# Of a false alarm of all comparisons together.
ALARM = 0.05
FIRST_LOOK = 10


class Place(NamedTuple):
    """A posterior, a start, and a budget in passes (0 for what is run once for all budgets)."""

    posterior: str
    start: str
    budget: int = 0


def level_name(epsilon: float) -> str:
    return f"{epsilon:g}"


def fall_name(first: float, last: float) -> str:
    return f"{first:g} to {last:g}"


def walk(target: Target, starts: Array, steps: int, seed: int, **levels: float) -> Runs:
    """Random walks of optimal scale, one from each start."""
    dim = len(target.mean)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stansub.DrawsWarning)  # of short chains, which are what is compared
        idata = stansub.sample(
            target.posterior, proposal=stansub.RandomWalk(2.38 / np.sqrt(dim) * target.cholesky), control_variates=0,
            test="pocock", first_look=FIRST_LOOK, **levels, inits=[target.inits(one) for one in starts],
            chains=len(starts), iter_warmup=0, iter_sampling=steps, audit=0.0, seed=seed, generated_quantities=False,
            show_progress=False,
        )  # fmt: skip
    draws = np.asarray(idata["unconstrained_posterior"]["theta"])
    used = np.asarray(idata["sample_stats"]["n_obs_used"], np.float64) / int(idata.attrs["n_observations"])
    seconds = float(np.mean(idata["chain_stats"]["sampling_time"]))
    return Runs((draws - target.mean) / target.sd, np.cumsum(used.mean(0)), seconds)


def fixed_levels(target: Target, starts: Array, passes: float, seed: int) -> dict[float, Runs]:
    """Each level, for a little more than so many passes; how many steps they pay for shows in a short run."""
    found = {}
    for place, epsilon in enumerate(FIXED):
        trial = walk(target, starts[:4], 200, seed + 50 + place, epsilon=epsilon)
        steps = int(1.1 * passes / (trial.passes[-1] / 200)) + 20
        found[epsilon] = walk(target, starts, steps, seed + place, epsilon=epsilon)
    return found


def starts_of(target: Target, distance: float, n: int, rng: np.random.Generator) -> Array:
    """About the mean as the normal approximation has it, and so far away in random directions."""
    noise, away = rng.standard_normal((2, n, len(target.mean)))
    away *= distance / np.linalg.norm(away, axis=1, keepdims=True)
    return np.asarray(target.mean + (noise + away) @ target.cholesky.T)


class Made(NamedTuple):
    """All runs of one posterior from one kind of start.

    Attributes
    ----------
    fixed : dict
        By level.
    falling : dict
        By budget, then by first and last level.
    """

    fixed: dict[float, Runs]
    falling: dict[int, dict[tuple[float, float], Runs]]


def make(target: Target, distance: float, size: str, seed: int) -> Made:
    """Fixed levels, then falls of as many steps as those say that a budget pays for."""
    replicates, budgets = SIZES[size]
    starts = starts_of(target, distance, replicates, np.random.default_rng(seed))
    fixed = fixed_levels(target, starts, 1.1 * max(budgets), seed)
    cost = np.array([fixed[level].passes[-1] / len(fixed[level].passes) for level in FIXED[1:]])
    falling: dict[int, dict[tuple[float, float], Runs]] = {}
    for budget in budgets:
        own = falling[budget] = {}
        for place, (first, last) in enumerate(FALLS):
            steps = round(budget / float(shares(FIXED[1:], first, last) @ cost))
            own[first, last] = walk(target, starts, steps, seed + 100 + place, epsilon=first, final_epsilon=last)
    return Made(fixed, falling)


def outcomes(made: Mapping[Place, Made], seed: int) -> dict[Place, Outcome]:
    """The comparison for each posterior, start and budget."""
    n = sum(len(one.falling) for one in made.values())
    found = {}
    for place, runs in made.items():
        fixed = {level_name(level): one for level, one in runs.fixed.items()}
        for budget, own in runs.falling.items():
            falling = {fall_name(*levels): one for levels, one in own.items()}
            rng = np.random.default_rng([seed, len(found)])
            found[place._replace(budget=budget)] = compare(fixed, falling, ALARM / n, rng)
    return found


def foretold(made: Mapping[Place, Made]) -> list[dict[str, Any]]:
    """Risk of each fall as the planner's mixture of fixed levels foretells it, beside its real one."""
    rows = []
    for place, runs in made.items():
        if STARTS[place.start]:
            continue
        parts = [runs.fixed[level] for level in FIXED[1:]]
        for budget, own in runs.falling.items():
            for (first, last), one in own.items():
                losses = one.losses(len(one.passes), half=False)
                rows.append({
                    "posterior": place.posterior,
                    "budget": budget,
                    "fall": fall_name(first, last),
                    "passes": float(one.passes[-1]),
                    "predicted": predicted_risk(parts, shares(FIXED[1:], first, last), len(one.passes)),
                    "risk": float(losses.mean()),
                    "error": float(losses.std(ddof=1) / np.sqrt(len(losses))),
                })  # fmt: skip
    return rows


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small", help="small by default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output-dir", type=Path, default=REPORTS)
    parser.add_argument("--force", action="store_true", help="overwrite what is in the folder")
    options = parser.parse_args(arguments)
    if options.seed < 0:
        parser.error("--seed must be at least 0")
    if (options.output_dir / "results.json").exists() and not options.force:
        parser.error(f"{options.output_dir / 'results.json'} exists already; --force overwrites it")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, compare, write."""
    options = parse(arguments)
    made: dict[Place, Made] = {}
    for name, target_of in POSTERIORS.items():
        target = target_of(options.seed)
        for start, distance in STARTS.items():
            print(f"{name}, {start}", file=sys.stderr, flush=True)
            made[Place(name, start)] = make(target, distance, options.size, options.seed)
    found, predictions = outcomes(made, options.seed), foretold(made)
    options.output_dir.mkdir(parents=True, exist_ok=True)
    page.draw(made, options.output_dir / "risk.png")
    text = page.text(
        found, predictions, size=options.size, seed=options.seed, replicates=SIZES[options.size][0], alarm=ALARM
    )
    (options.output_dir / "README.md").write_text(text)
    rows = [place._asdict() | asdict(one) | {"verdict": one.verdict} for place, one in found.items()]
    results = {"size": options.size, "seed": options.seed, "machine": facts(), "rows": rows, "predictions": predictions}
    (options.output_dir / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    main()
