"""Plan for a time budget: the predicted risk of posterior means for each method, and for NUTS.

The risk is the mean over the unconstrained parameters of the squared error of the posterior mean, in posterior
variances. After a time B it is

    tau / n(B) + bias^2,        n(B) = (B - set-up) / seconds of a step - steps of warmup,

with tau the integrated autocorrelation time. The bias for a test function f is

    bias = E[(P' - P) h],       h - P h = f - E f,

exactly, where P' is the kernel that runs, whose stationary distribution defines the outer expectation, and P is the
kernel with exact decisions. For autoregressive chains, h would be f (tau + 1) / 2. (P' - P) f is the mean jump that
differing decisions make or miss, which audits estimate with its sign. Errors that cancel therefore do not count.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from stansub import clock, streams
from stansub.errors import InputError
from stansub.output.plain import plain
from stansub.planning.level_mixture import schedules
from stansub.planning.nuts_cost import ESS_OF_A_DRAW, RANGE, WARMUP, WARMUP_FACTOR, NutsCost, nuts_cost
from stansub.planning.pilot import Measurement, measure, methods_of
from stansub.planning.worst_case import WorstCase, worst_case
from stansub.progress import Progress
from stansub.run.config import SampleConfig
from stansub.run.options import DecisionOptions
from stansub.run.posteriors import Data, Model
from stansub.run.prepare import prepare
from stansub.types import FloatArray

# Half width of the intervals in standard errors: 90 %.
_ERRORS = 1.645
# Relative error of machine speed and of a chain's bookkeeping, besides what a pilot measures.
_MACHINE = 0.1
# The pilot uses this share of the budget, within these seconds.
_SHARE, _LEAST_SECONDS, _MOST_SECONDS = 0.1, 3.0, 60.0
# Warmup: a share of the steps, within these bounds.
_WARMUP_SHARE, _LEAST_WARMUP, _MOST_WARMUP = 0.1, 100, 2000
# Maximum draws of all chains, and numbers in them.
_MOST_DRAWS, _MOST_NUMBERS = 400_000, 50_000_000
# Options that a plan chooses, and the share of the time that it fills.
_OF_CHAINS = ("proposal", "kernel", "inits", "iter_warmup", "iter_sampling", "thin", "max_time", "resume", "until")
_PLANNED = (*(one.name for one in fields(DecisionOptions) if one.name != "audit"), *_OF_CHAINS)
_FILLED = 0.9
# Exact draws are recommended unless others have a risk lower by this share; likewise fixed levels over decreasing ones.
_WORTH = 0.1
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class Estimate(NamedTuple):
    """An estimate with its uncertainty."""

    low: float
    value: float
    high: float
    """90 % interval and expected value."""

    @classmethod
    def about(cls, value: float, error: float) -> Estimate:
        """Return a positive estimate with this relative standard error, on a logarithmic scale."""
        factor = math.exp(_ERRORS * error)
        return cls(value / factor, value, value * factor)

    def plus(self, other: Estimate) -> Estimate:
        """Return the sum; the interval's ends are added, which is conservative."""
        return Estimate(self.low + other.low, self.value + other.value, self.high + other.high)


NOT_READY = Estimate(math.inf, math.inf, math.inf)


class Steps(NamedTuple):
    """Length of each chain."""

    iter_warmup: int
    iter_sampling: int
    thin: int


@dataclass(frozen=True)
class PredictedMethod:
    """Prediction for a method of stansub's own, from its measurements in the pilot."""

    measurement: Measurement
    set_up: float
    """Seconds until chains begin."""
    chains: int

    @property
    def label(self) -> str:
        """Return its name, with its error level."""
        method = self.measurement.method
        levels = [f"{level:g}" for level in (method.epsilon, method.final_epsilon) if level is not None]
        return f"{method.name} {' to '.join(levels)}".rstrip()

    @property
    def exact(self) -> bool:
        """Return whether its draws are those of the posterior itself, up to Monte Carlo error."""
        return self.measurement.method.exact

    @property
    def fixed(self) -> bool:
        """Return whether all decisions have the same error level."""
        return self.measurement.method.final_epsilon is None

    def steps(self, budget: float) -> Steps | None:
        """Return the length of chains in this budget; None if it ends before they have warmed up."""
        each = int((budget - self.set_up) / self.measurement.seconds / self.chains)
        warmup = int(np.clip(_WARMUP_SHARE * each, _LEAST_WARMUP, _MOST_WARMUP))
        if each - warmup < 2:
            return None
        left, most = each - warmup, max(1, min(_MOST_DRAWS, _MOST_NUMBERS // len(self.measurement.tau)) // self.chains)
        # As many draws as allowed and slightly thinned, or fewer and more thinned.
        thins = {-(-left // most), max(1, left // most)}
        made = [Steps(warmup, min(most, left // thin) * thin, thin) for thin in thins]
        return min(made, key=self._variance)

    def _variance(self, steps: Steps) -> float:
        """Return the variance of means of the draws kept, assuming autoregressive correlations."""
        r = ((self.measurement.tau - 1) / (self.measurement.tau + 1)) ** steps.thin
        return float(((1 + r) / (1 - r)).mean()) * steps.thin / (self.chains * steps.iter_sampling)

    def variance(self, budget: float) -> Estimate:
        """Return the variance of the means, in posterior variances."""
        steps = self.steps(budget)
        if steps is None:
            return NOT_READY
        error = math.hypot(self.measurement.tau_error, self.measurement.seconds_error, _MACHINE)
        return Estimate.about(self._variance(steps), error)

    @property
    def bias2(self) -> Estimate:
        """Return the squared bias of the means, in posterior variances."""
        bias, error = self.measurement.bias
        return Estimate(
            float(np.maximum(bias**2 - error**2, 0).mean()),
            float((bias**2 + error**2).mean()),
            float(((np.abs(bias) + _ERRORS * error) ** 2).mean()),
        )

    def risk(self, budget: float) -> Estimate:
        """Return the mean squared error of the means after this time."""
        return self.variance(budget).plus(self.bias2)

    def options(self, budget: float) -> dict[str, Any]:
        """Return the options of `stansub.sample` for such a run.

        Raises
        ------
        InputError
            If the budget is too short for it.
        """
        steps = self.steps(budget)
        if steps is None:
            raise InputError(f"`budget`: {budget:g} s is too short: chains begin after {self.set_up:.3g} s")
        method = self.measurement.method
        levels = {"epsilon": method.epsilon, "final_epsilon": method.final_epsilon}
        given = {name: level for name, level in levels.items() if level is not None}
        return {**method.sampler.options(method.rule), "chains": self.chains, **given, **steps._asdict()}

    def facts(self) -> dict[str, Any]:
        """Return the measurements as JSON values."""
        measurement, audits = self.measurement, self.measurement.audits
        return {
            "test": measurement.method.rule.name,
            "epsilon": measurement.method.epsilon,
            "final_epsilon": measurement.method.final_epsilon,
            "proposal": measurement.method.sampler.name,
            "exact": self.exact,
            "set_up_seconds": self.set_up,
            "step_seconds": measurement.seconds,
            "autocorrelation_time": float(measurement.tau.mean()),
            "relative_error": {
                "step_seconds": measurement.seconds_error,
                "autocorrelation_time": measurement.tau_error,
            },
            "pilot_steps": measurement.n_steps,
            "acceptance": measurement.acceptance,
            "share_of_data": measurement.share,
            "audited": 0 if audits is None else audits.n,
            "differing": 0 if audits is None else audits.differing,
            "predicted_from": measurement.predicted_from,
            "squared_bias": self.bias2._asdict(),
        }


@dataclass(frozen=True)
class PredictedNuts:
    """Prediction for NUTS."""

    cost: NutsCost
    chains: int
    threads: int

    label = "NUTS"
    exact = True
    fixed = True

    def risk(self, budget: float) -> Estimate:
        """Return the mean squared error of the means after this time, which includes the warmup of all chains."""
        return Estimate(self._at(budget, 1 / RANGE).low, self._at(budget, 1.0).value, self._at(budget, RANGE).high)

    def seconds(self, draws: int) -> Estimate:
        """Return the seconds of warmup and ``draws`` draws per chain, without set-up."""
        steps, error = WARMUP * WARMUP_FACTOR + draws, math.hypot(self.cost.seconds_error, _MACHINE)
        low, value, high = (self.chains * steps * self._draw(factor) for factor in (1 / RANGE, 1.0, RANGE))
        return Estimate(Estimate.about(low, error).low, value, Estimate.about(high, error).high)

    def _draw(self, factor: float) -> float:
        """Return the seconds per draw, with all cores at work, for a multiple of the leapfrog steps."""
        return self.cost.seconds * self.cost.leapfrog * factor / min(self.threads, self.chains)

    def _at(self, budget: float, factor: float) -> Estimate:
        """Return the risk for a multiple of the leapfrog steps."""
        draw = self._draw(factor)
        left = budget - self.chains * WARMUP * WARMUP_FACTOR * draw
        if left < draw:
            return NOT_READY
        n = min(left / draw, _MOST_DRAWS)
        return Estimate.about(1 / (n * ESS_OF_A_DRAW), math.hypot(self.cost.seconds_error, _MACHINE))

    def facts(self) -> dict[str, Any]:
        """Return measurements and assumptions as JSON values."""
        return {
            "exact": True,
            "gradient_seconds": self.cost.seconds,
            "leapfrog_steps": self.cost.leapfrog,
            "assumed": {"warmup": WARMUP, "factor_either_way": RANGE, "effective_draws_of_a_draw": ESS_OF_A_DRAW},
        }


_Predicted = TypeVar("_Predicted", PredictedMethod, PredictedMethod | PredictedNuts)


@dataclass(frozen=True)
class BudgetPlan:
    """The methods to use a budget, with a recommendation."""

    name: str
    budget: float
    """Budget in seconds."""
    n_observations: int
    methods: tuple[PredictedMethod, ...]
    nuts: PredictedNuts | None
    """None if there are no gradients."""
    seconds: float
    """Time of planning, without compiling."""

    @property
    def all(self) -> tuple[PredictedMethod | PredictedNuts, ...]:
        """Return the methods, NUTS last."""
        return self.methods if self.nuts is None else (*self.methods, self.nuts)

    @property
    def best(self) -> PredictedMethod | PredictedNuts:
        """Return the method with the lowest expected risk; an exact one if that is as good."""
        return best_of(self.all, self.budget)

    @property
    def own(self) -> PredictedMethod:
        """Return the best method of stansub's own."""
        return best_of(self.methods, self.budget)

    @property
    def certain(self) -> bool:
        """Return whether the interval of the best method lies below those of the others."""
        best = self.best
        high = best.risk(self.budget).high
        return all(one is best or one.risk(self.budget).low > high for one in self.all)

    @property
    def worst_case(self) -> WorstCase | None:
        """Return the epsilon with the smallest error bound; None if the budget ends before chains begin."""
        return worst_case([one.measurement for one in self.methods if one.fixed], self.budget - self.methods[0].set_up)

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON values; a risk is null if nothing is ready in time."""
        figures = {
            "model": self.name,
            "budget_seconds": self.budget,
            "n_observations": self.n_observations,
            "planning_seconds": self.seconds,
            "ways": [{"way": one.label, **one.facts(), "risk": one.risk(self.budget)._asdict()} for one in self.all],
            "best": self.best.label,
            "certain": self.certain,
            "compminimax": None if self.worst_case is None else self.worst_case.facts(),
            "options": self.own.options(self.budget),
        }
        return dict(plain(figures))


def best_of(methods: Sequence[_Predicted], budget: float) -> _Predicted:
    """Return the method with the lowest expected risk; an exact one, or else a fixed level, if it is within a tenth.

    Raises
    ------
    InputError
        If the budget is too short for any method.
    """
    risks = [(one.risk(budget).value, one) for one in methods]
    least = min(risk for risk, _ in risks)
    if not math.isfinite(least):
        raise InputError(f"`budget`: {budget:g} s is too short: no chain would start sampling; give more time")
    as_good = [(risk, one) for risk, one in risks if risk * (1 - _WORTH) <= least]
    plainest = max((one.exact, one.fixed) for _, one in as_good)
    return min((pair for pair in as_good if (pair[1].exact, pair[1].fixed) == plainest), key=lambda pair: pair[0])[1]


def with_schedule(methods: Sequence[PredictedMethod], budget: float) -> tuple[PredictedMethod, ...]:
    """Return the methods and, last, the decreasing level derived from them with the lowest expected risk."""
    decreasing = [replace(methods[0], measurement=one) for one in schedules([method.measurement for method in methods])]
    best = min(decreasing, key=lambda one: one.risk(budget).value, default=None)
    return tuple(methods) if best is None else (*methods, best)


def plan(
    model: Model,
    data: Data = None,
    *,
    budget: float | str,
    config: SampleConfig | None = None,
    pilot_seconds: float | None = None,
    progress: Progress | None = None,
) -> BudgetPlan:
    """Predict the risk of each method after a time budget, from a pilot.

    Parameters
    ----------
    model, data
        As in `stansub.sample`.
    budget : float or str
        Seconds, or a text such as "10m" or "1h30m"; includes set-up and warmup but not compiling.
    config : SampleConfig, optional
        Options of the planned runs, without test and levels, which the plan chooses.
    pilot_seconds : float, optional
        Time for the steps of the pilot, without audits; by default a tenth of the budget, 3 to 60 s.

    Raises
    ------
    InputError
        If no mode was found, or the budget is too short for any method.
    """
    seconds = parse_seconds(budget)
    progress = progress or Progress()
    prepared = prepare(model, data, config or SampleConfig(), progress)
    if prepared.tuned is None:
        prepared = replace(prepared, posterior=prepared.posterior.for_decisions(progress))
    set_up = clock.now() - prepared.compiled_at
    setup, posterior = prepared.setup, prepared.posterior
    share = float(np.clip(_SHARE * seconds, _LEAST_SECONDS, _MOST_SECONDS))
    methods = methods_of(prepared, progress)
    measurements = measure(prepared, methods, share if pilot_seconds is None else pilot_seconds, progress)
    progress("Timing gradients")
    cost = nuts_cost(posterior, *methods[0].sampler.normal(), streams.generator(setup.seed, streams.Run.PILOT))
    chains = setup.config.chains
    made = BudgetPlan(
        name=posterior.name,
        budget=seconds,
        n_observations=posterior.blocks.n_observations,
        methods=with_schedule([PredictedMethod(one, set_up, chains) for one in measurements], seconds),
        nuts=None if cost is None else PredictedNuts(cost, chains, setup.threads),
        seconds=clock.now() - prepared.compiled_at,
    )
    best_of(made.methods, seconds)  # raises if nothing is ready in time
    return made


def follow(
    model: Model, data: Data, *, budget: float | str, config: SampleConfig, progress: Progress
) -> tuple[SampleConfig, BudgetPlan]:
    """Return a plan, and the options of the run that fills the rest of the budget after planning.

    The run is the best of stansub's own methods. It is planned to end a tenth before the time limit, which stops it
    otherwise.

    Raises
    ------
    InputError
        If an option is given that the plan chooses, or as in `plan`.
    """
    plain = SampleConfig()
    given = [name for name in _PLANNED if getattr(config, name) != getattr(plain, name)]
    if given:
        named = ", ".join(f"`{name}`" for name in given)
        raise InputError(f"the plan for the budget chooses {named}: leave out {named} or `budget`")
    found = plan(model, data, budget=budget, config=config, progress=progress)
    left = found.budget - found.seconds
    own = best_of(found.methods, max(left, 0.0))
    return replace(config, **own.options(_FILLED * left), max_time=left), found


def parse_seconds(text: float | str) -> float:
    """Return the seconds of a time such as 90, "90s", "10m" or "1h30m".

    Raises
    ------
    InputError
        If the text is not a time.
    """
    parts = re.findall(r"([0-9.]+)([smh]?)", str(text))
    try:
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    except ValueError:
        seconds = 0.0
    if "".join(number + unit for number, unit in parts) != str(text) or not 0 < seconds < math.inf:
        raise InputError(f"`budget={text}` is not a time: give seconds, or a time such as 90s, 10m or 1h30m")
    return seconds


def budgets(found: BudgetPlan) -> FloatArray:
    """Return times from the start of the first chains to ten times the budget, for a picture."""
    first = min(found.budget / 10, 2 * min(one.set_up for one in found.methods))
    return np.geomspace(first, 10 * found.budget, 60)
