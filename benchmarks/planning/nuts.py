"""Is what `stansub plan` says of NUTS right? Its prediction beside NUTS itself: seconds, leapfrog steps, draws.

Predicted from a few gradients and the normal approximation at the mode, as a plan does it, without a tree. Then NUTS is
run with its defaults by CmdStan where it is installed, else by nutpie. A hit is where what was measured is within the
range that the plan states: a factor of two either way in leapfrog steps, and so in seconds, which have besides the
interval of the timing. What the plan assumes without a range, effective draws of a draw and how many leapfrog steps a
draw of warmup takes beside one of sampling, is shown with what came of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import arviz
import numpy as np

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from suite.workloads import MODELS, ROOT, STAN_MODELS, simulated

from stansub.nuts.reference import reference
from stansub.output.inference_data import attrs, group
from stansub.planning.nuts_cost import ESS_OF_A_DRAW, RANGE, WARMUP, WARMUP_FACTOR, nuts_cost
from stansub.planning.plan import Estimate, PredictedNuts
from stansub.progress import Progress
from stansub.run.config import SampleConfig
from stansub.run.prepare import prepare
from stansub.stan.toolchain.cache import cache_dir

PROGRAMS = {
    "logistic": STAN_MODELS / "logistic.stan",
    "linear": STAN_MODELS / "linear.stan",
    "poisson": MODELS / "poisson.stan",
}
COVARIATES = 10


@dataclass(frozen=True)
class Check:
    """A figure that was predicted, with its range, and what was measured.

    Attributes
    ----------
    program, what : str
    predicted : Estimate
    measured : float
    """

    program: str
    what: str
    predicted: Estimate
    measured: float

    @property
    def hit(self) -> bool:
        """Whether what was measured is in the range."""
        return self.predicted.low <= self.measured <= self.predicted.high


@dataclass(frozen=True)
class Nuts:
    """What a run of NUTS took.

    Attributes
    ----------
    engine : str
    seconds : float
        Of warmup and sampling of all chains.
    gradients, warmup_gradients : float
        Leapfrog steps of a draw.
    effective : float
        Effective draws of a draw, the mean over the parameters (bulk ESS).
    """

    engine: str
    seconds: float
    gradients: float
    warmup_gradients: float
    effective: float


def predict(program: Path, data: Path, chains: int, seed: int) -> PredictedNuts:
    """As `stansub plan` does it."""
    prepared = prepare(program, data, SampleConfig(seed=seed, chains=chains), Progress())
    found = prepared.setup.found
    if found is None:
        raise SystemExit(f"{program.name}: no mode was found, so that nothing is predicted")
    cost = nuts_cost(prepared.posterior, found.mode.position, found.mode.cholesky, np.random.default_rng(seed))
    assert cost is not None  # Stan programs have gradients
    return PredictedNuts(cost, chains, prepared.setup.threads)


def run(program: Path, data: Path, chains: int, draws: int, seed: int) -> Nuts:
    """NUTS itself."""
    idata = reference(program, data, chains=chains, iter_sampling=draws, seed=seed, show_progress=False)
    facts, n = attrs(idata), chains * draws
    ess = arviz.ess(group(idata, "posterior"), method="bulk")
    effective = np.concatenate([np.ravel(one) for one in ess.data_vars.values()])
    return Nuts(
        engine=f"{facts['engine']} {facts['engine_version']}",
        seconds=float(facts["wall_time"]),
        gradients=sum(facts["n_gradients"]) / n,
        warmup_gradients=sum(facts["warmup_n_gradients"]) / (chains * WARMUP),
        effective=float(effective.mean()) / n,
    )


def checks(name: str, predicted: PredictedNuts, nuts: Nuts, draws: int) -> list[Check]:
    """Predicted and measured, side by side."""
    steps = float(predicted.cost.leapfrog)
    return [
        Check(name, "leapfrog steps a draw", Estimate(steps / RANGE, steps, steps * RANGE), nuts.gradients),
        Check(name, "seconds of the run", predicted.seconds(draws), nuts.seconds),
    ]


def cells(one: Check) -> list[str]:
    """A row of the table."""
    low, value, high = one.predicted
    ratio = f"{one.measured / value:.2f}"
    figures = [f"{value:.3g}", f"{low:.3g} to {high:.3g}", f"{one.measured:.3g}", ratio]
    return [one.program, one.what, *figures, "hit" if one.hit else "miss"]


def conclusions(found: Sequence[Check], runs: dict[str, Nuts]) -> Iterator[str]:
    """Hits and misses, and what came of the assumptions."""
    for what in dict.fromkeys(one.what for one in found):
        group = [one for one in found if one.what == what]
        hits = sum(one.hit for one in group)
        yield f"{what.capitalize()}: {hits} hits, {len(group) - hits} misses."
    for name, nuts in runs.items():
        ratio = nuts.warmup_gradients / nuts.gradients
        yield (
            f"{name} ({nuts.engine}): {nuts.effective:.2f} effective draws of a draw ({ESS_OF_A_DRAW:g} assumed); "
            f"{ratio:.2f} times the leapfrog steps in a draw of warmup ({WARMUP_FACTOR:g} assumed)."
        )


def data_of(name: str, rows: int) -> Path:
    """Simulated data, made once."""
    path = cache_dir() / "benchmarks" / f"{name}-{rows}-{COVARIATES}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        simulated(name, rows, COVARIATES, part)
        part.replace(path)
    return path


def measure(
    names: Sequence[str], *, flights: Path | None, rows: int, chains: int, draws: int, seed: int
) -> Iterator[tuple[str, Nuts, list[Check]]]:
    """Predict and run: the programs on so many rows of simulated data, and the flights where a file has them."""
    tasks = {name: (PROGRAMS[name], partial(data_of, name, rows)) for name in names}
    if flights:
        tasks["flights"] = ROOT / "examples" / "flights.stan", partial(Path, flights)
    for name, (program, data) in tasks.items():
        predicted = predict(program, data(), chains, seed)
        nuts = run(program, data(), chains, draws, seed)
        yield name, nuts, checks(name, predicted, nuts, draws)
