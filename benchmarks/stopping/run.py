"""Bias and coverage of estimates under early stopping, with a stopping rule that must fail.

python benchmarks/stopping/run.py               # 800 runs of four chains: some minutes

Random-walk Metropolis on a normal and a Gumbel distribution with known moments, with small steps, so that draws are
strongly correlated. All chains start with a draw from the target, so that any bias comes from stopping. The same chains
stop by `until` (stansub's own checks), after fixed numbers of draws and, as a control, by a rule that checks a low bulk
ESS after every draw. Writes reports/stopping/README.md and results.json. The exit code is 1 if a fixed number is found
biased, or the control is not.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import arviz
import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from stansub.run.early_stopping import convergence, schedule
from stansub.run.precision import Precision

REPORTS = Path(__file__).resolve().parent.parent.parent / "reports" / "stopping"

CHAINS, MOST, BATCH = 4, 8_000, 50
# Sd of a step; the correlation time is some tens of steps.
STEP = 0.7
ASKED = ("ess=400,rhat=1.01", "ess=100")
# Bulk ESS alone, of one parameter after the other: it is to be looked at some hundred times a run.
CONTROL_ESS = 20
# The control looks from this draw on, and gives up at the other.
EAGER_FROM, EAGER_TO = 10, 500
# Of the intervals, and probability of a false alarm of all comparisons together.
LEVEL, ALARM = 0.9, 0.01

Array = NDArray[np.float64]


class Estimand(NamedTuple):
    """A posterior expectation whose value is known: of a function of a column of the draws."""

    name: str
    column: int
    function: Callable[[Array], Array]
    truth: float
    sd: float


def _estimands() -> tuple[Estimand, ...]:
    """Means and second central moments; sds are those of the functions, for the scale of a bias."""
    mean, variance = float(np.euler_gamma), math.pi**2 / 6
    return (
        Estimand("mean of the normal", 0, lambda x: x, 0.0, 1.0),
        Estimand("variance of the normal", 0, lambda x: x**2, 1.0, math.sqrt(2)),
        Estimand("mean of the Gumbel", 1, lambda y: y, mean, math.sqrt(variance)),
        # The fourth central moment is 5.4 squared variances.
        Estimand("variance of the Gumbel", 1, lambda y: (y - mean) ** 2, variance, variance * math.sqrt(4.4)),
    )


ESTIMANDS = _estimands()


def chains(rng: np.random.Generator, n_runs: int, n_draws: int) -> Array:
    """Draws of stationary chains, shape (n_runs, CHAINS, n_draws, 2)."""

    def log_density(at: Array) -> Array:
        return np.asarray(-0.5 * at[..., 0] ** 2 - at[..., 1] - np.exp(-at[..., 1]))

    shape = (n_runs, CHAINS)
    now = np.stack([rng.standard_normal(shape), rng.gumbel(size=shape)], axis=-1)
    value, draws = log_density(now), np.empty((n_draws, *shape, 2))
    for draw in draws:
        proposed = now + STEP * rng.standard_normal(now.shape)
        there = log_density(proposed)
        accepted = np.log(rng.random(shape)) < there - value
        now, value = np.where(accepted[..., np.newaxis], proposed, now), np.where(accepted, there, value)
        draw[:] = now
    return np.ascontiguousarray(draws.transpose(1, 2, 0, 3))


def end(draws: Array, reached: Callable[[Array], bool], checks: Iterable[int]) -> int:
    """Draws of each chain at the first check at which both parameters have reached it; of the last where none has."""
    n, first = 0, 0
    for n in checks:
        if reached(draws[:, :n, first]):
            first = 1 - first
            if reached(draws[:, :n, first]):
                break
    return n


def estimate(draws: Array) -> list[tuple[float, float]]:
    """Of every estimand its estimate and Monte Carlo standard error."""
    found = []
    for one in ESTIMANDS:
        values = one.function(draws[:, :, one.column])
        found.append((float(values.mean()), float(arviz.mcse(values, method="mean"))))
    return found


class Ends(NamedTuple):
    """Runs ended by one rule: draws of each chain, shape (n,), and estimates with errors, (n, estimand, 2)."""

    n_draws: NDArray[np.int64]
    estimates: Array


class Until(NamedTuple):
    """The rule of the package, with a precision in words."""

    asked: str
    most: int

    def __call__(self, draws: Array) -> int:
        precision = Precision.of(self.asked)

        def reached(some: Array) -> bool:
            found = convergence(some)
            return found is not None and precision.reached(*found)

        return end(draws, reached, schedule(self.most))


class Eager(NamedTuple):
    """The control."""

    most: int

    def __call__(self, draws: Array) -> int:
        return end(
            draws, lambda some: float(arviz.ess(some, method="bulk")) >= CONTROL_ESS, range(EAGER_FROM, self.most)
        )


class Fixed(NamedTuple):
    """A number of draws."""

    most: int

    def __call__(self, draws: Array) -> int:
        return self.most


Rule = Until | Eager | Fixed


def run_all(n_runs: int, seed: int, jobs: int = 1) -> dict[str, Ends]:
    """Every run by every rule, and ended after the mean number of draws of each."""
    rules: dict[str, Rule] = {f"`until {asked}`": Until(asked, MOST) for asked in ASKED}
    ends = _ended(rules | {f"control: ess={CONTROL_ESS}, every draw": Eager(EAGER_TO)}, n_runs, seed, jobs)
    fixed = sorted({round(float(found.n_draws.mean())) for found in ends.values()}, reverse=True)
    # The same chains again, now that the numbers are known.
    return ends | _ended({f"fixed number, {n:,}": Fixed(n) for n in fixed}, n_runs, seed, jobs)


def _ended(rules: Mapping[str, Rule], n_runs: int, seed: int, jobs: int) -> dict[str, Ends]:
    batches, found = range(0, n_runs, BATCH), []
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork")) as pool:
        some = partial(_batch, tuple(rules.values()), n_runs, seed)
        for begun, batch in zip(batches, pool.map(some, batches), strict=True):
            found.append(batch)
            print(f"{min(begun + BATCH, n_runs):,} of {n_runs:,} runs", file=sys.stderr)
    n_draws, estimates = (np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
    return {name: Ends(n_draws[place], estimates[place]) for place, name in enumerate(rules)}


def _batch(rules: Sequence[Rule], n_runs: int, seed: int, begun: int) -> tuple[NDArray[np.int64], Array]:
    """Draws of each chain, shape (rule, run), and estimates, (rule, run, estimand, 2), of a batch of runs."""
    rng, ends = np.random.default_rng([seed, begun]), []
    for draws in chains(rng, min(BATCH, n_runs - begun), max(rule.most for rule in rules)):
        numbers = [rule(draws) for rule in rules]
        ends.append((numbers, [estimate(draws[:, :n]) for n in numbers]))
    numbers, estimates = zip(*ends, strict=True)
    return np.array(numbers).T, np.array(estimates).swapaxes(0, 1)


def row(name: str, ends: Ends, place: int) -> dict[str, Any]:
    """Bias in sds of the function and in errors of a run, and the share of intervals that hold the truth."""
    one, (values, errors) = ESTIMANDS[place], ends.estimates[:, place].T
    n, off = len(values), values - one.truth
    held = float(np.mean(np.abs(off) <= norm.ppf(0.5 + LEVEL / 2) * errors))
    return {
        "rule": name,
        "estimand": one.name,
        "mean_draws": float(ends.n_draws.mean()),
        "bias": float(off.mean() / one.sd),
        "bias_error": float(off.std(ddof=1) / one.sd / math.sqrt(n)),
        "bias_in_errors": float(off.mean() / off.std(ddof=1)),
        "coverage": held,
        "coverage_error": math.sqrt(LEVEL * (1 - LEVEL) / n),
    }


def z(found: dict[str, Any]) -> tuple[float, float]:
    """Bias and lack of coverage in their standard errors."""
    return found["bias"] / found["bias_error"], (found["coverage"] - LEVEL) / found["coverage_error"]


def verdict(rows: Sequence[dict[str, Any]], rule: str) -> tuple[str, bool]:
    """Return the result of a rule in words, and whether a bias was detected."""
    own = [one for one in rows if one["rule"] == rule]
    limit = float(norm.isf(ALARM / len(rows) / 2))
    biased = [one for one in own if abs(z(one)[0]) > limit]
    worst = max(own, key=lambda one: abs(one["bias_in_errors"]))
    least = min(own, key=lambda one: one["coverage"])
    seen = f"bias detected in {len(biased)} of {len(own)} estimates" if biased else "no bias detected"
    text = (
        f"**{rule}** ({own[0]['mean_draws']:,.0f} draws per chain): {seen}; the largest is "
        f"{worst['bias_in_errors']:+.2f} times the error of a run ({worst['estimand']}). Intervals of {LEVEL:.0%} "
        f"contain the truth in at least {least['coverage']:.1%} of the runs ({least['estimand']})"
    )
    return text, bool(biased)


def page(rows: Sequence[dict[str, Any]], n_runs: int, seed: int) -> str:
    """The report."""
    rules = list(dict.fromkeys(one["rule"] for one in rows))
    lines = [
        "# Bias and coverage under early stopping",
        "",
        f"{n_runs:,} runs of {CHAINS} chains of random-walk Metropolis with strongly correlated draws, on a normal and "
        "a Gumbel distribution. All chains start with draws from the target. The same chains stop in three ways: by "
        "`until`, as in `stansub sample`; as a control, by a rule that checks after every draw from the "
        f"{EAGER_FROM}th on whether the bulk ESS is {CONTROL_ESS}; and after fixed numbers of draws, the mean numbers "
        "of these rules.",
        "",
        "```sh",
        f"python benchmarks/stopping/run.py --runs {n_runs} --seed {seed} --force",
        "```",
        "",
        *(f"- {verdict(rows, rule)[0]}." for rule in rules),
        "",
        f"A bias counts as detected if it exceeds a limit within which {len(rows)} comparisons of unbiased estimates "
        f"stay with probability {1 - ALARM:.0%} (Bonferroni). The table gives the bias in sds of the averaged "
        "function, with its standard error over the runs, and in units of the error of a run: the sd of the estimate "
        "over the runs. If coverage is low after a fixed number of draws too, the cause is that number, not early "
        "stopping.",
        "",
        f"| rule | estimate | bias / sd | bias / error of a run | coverage of {LEVEL:.0%} intervals |",
        "|---|---|---|---|---|",
    ]
    for one in rows:
        lines.append(
            f"| {one['rule']} | {one['estimand']} | {one['bias']:+.4f} ± {one['bias_error']:.4f} | "
            f"{one['bias_in_errors']:+.2f} | {one['coverage']:.1%} ± {one['coverage_error']:.1%} |"
        )
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=800, help="800 by default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes; the figures do not depend on it")
    parser.add_argument("--output-dir", type=Path, default=REPORTS)
    parser.add_argument("--force", action="store_true", help="overwrite what is in the folder")
    options = parser.parse_args(arguments)
    if options.runs < 2 or options.seed < 0 or options.jobs < 1:
        parser.error("--runs must be at least 2, --seed at least 0, --jobs at least 1")
    results = options.output_dir / "results.json"
    if results.exists() and not options.force:
        parser.error(f"{results} exists already; --force overwrites it")
    ends = run_all(options.runs, options.seed, options.jobs)
    rows = [row(name, found, place) for name, found in ends.items() for place in range(len(ESTIMANDS))]
    text = page(rows, options.runs, options.seed)
    options.output_dir.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps({"runs": options.runs, "seed": options.seed, "rows": rows}, indent=1) + "\n")
    (options.output_dir / "README.md").write_text(text)
    print(text)
    seen = {name: verdict(rows, name)[1] for name in ends}
    expected = [biased == name.startswith("control") for name, biased in seen.items() if not name.startswith("`until")]
    return int(not all(expected))


if __name__ == "__main__":
    sys.exit(main())
