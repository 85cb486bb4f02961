"""Pilot: short runs of several tests after one preparation, which measure time per step, mixing and errors.

Every method starts from the normal approximation at the mode and keeps the proposal that the race chose. If a run would
use surrogate transitions or Metropolis within Gibbs, these are the only method and start from draws of their set-up.
First, timed steps run with one chain per core, as in a run. Then each step is also decided from all the data with the
same uniform number, which shows every wrong decision and the jump that it made or missed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from stansub import clock, streams
from stansub._loop import Decider
from stansub.acceptance.decide import make_decider
from stansub.acceptance.noise import Penalty
from stansub.acceptance.rules import Exact, Pocock, StoppingRule
from stansub.acceptance.stopping import Factorised
from stansub.autocorrelation import autocorrelation_times
from stansub.errors import InputError
from stansub.kernels.base import BatchControl, Kernel, Records, totals_of
from stansub.kernels.metropolis import MetropolisHastings
from stansub.kernels.proposals import Proposal
from stansub.kernels.surrogate import PosteriorTrajectories
from stansub.progress import Progress
from stansub.run.prepare import Prepared, mode_request
from stansub.run.transitions import Tuned
from stansub.stan.posterior import Posterior
from stansub.target.split import Split
from stansub.tuning.mode_setup import ModeSetup
from stansub.tuning.mode_tuner import anchor
from stansub.types import FloatArray

# Error levels of Pocock's test besides the default.
EPSILONS = (0.005, 0.02, 0.1)
# Batches between two clock readings: a fraction of the time, or a number of steps. Then the initial share of the time
# that is discarded, the maximum steps of a chain, and the minimum for estimates.
_BATCHES, _LONGEST, _START, _MOST, _FEWEST = 100, 1000, 0.1, 100_000, 4


@dataclass(frozen=True)
class _AboutMode:
    """A sampler that was set up about the mode."""

    found: ModeSetup

    @property
    def name(self) -> str:
        """Return the name of the proposal."""
        return self.found.name

    def start(self, rng: np.random.Generator) -> FloatArray:
        """Return a starting value of a pilot chain, shape (dim,)."""
        mode = self.found.mode
        return np.asarray(mode.position + mode.cholesky @ rng.standard_normal(mode.dim))

    def normal(self) -> tuple[FloatArray, FloatArray]:
        """Return centre and covariance factor of a normal approximation to the posterior."""
        return self.found.mode.position, self.found.mode.cholesky


class MetropolisSampler(_AboutMode):
    """Metropolis-Hastings with proposals about the mode."""

    def decider(self, posterior: Posterior, rule: StoppingRule) -> Decider:
        """Return the decider of one chain."""
        return self.found.decider(posterior, posterior.population.evaluator(), rule)

    def kernel(self, posterior: Posterior, rule: StoppingRule) -> Kernel:
        """Return the kernel of one chain."""
        return MetropolisHastings(self.decider(posterior, rule))

    @property
    def params(self) -> Proposal:
        """Return the params of each step of the kernel: the proposal."""
        assert self.found.proposal is not None
        return self.found.proposal

    def options(self, rule: StoppingRule) -> dict[str, str]:
        """Return the options of `stansub.sample` for this sampler and these decisions."""
        return {"test": rule.name}


class TrajectorySampler(_AboutMode):
    """Trajectories on the posterior itself, which a run takes without being asked."""

    params = None

    def kernel(self, posterior: Posterior, rule: StoppingRule) -> Kernel:
        """Return the kernel of one chain."""
        assert self.found.trajectories is not None
        n_observations = posterior.blocks.n_observations
        return PosteriorTrajectories(posterior.dynamics(), n_observations, self.found.trajectories.inner)

    def options(self, rule: StoppingRule) -> dict[str, str]:
        """Return no options of `stansub.sample`."""
        return {}


@dataclass(frozen=True)
class SplitSampler:
    """Transitions of a posterior split into prior and likelihood, which choose their own test."""

    split: Split
    tuned: Tuned
    params = None

    @property
    def name(self) -> str:
        """Return the name of the proposal."""
        return self.tuned.transition.name

    def kernel(self, posterior: Posterior, rule: StoppingRule) -> Kernel:
        """Return the kernel of one chain."""
        return self.tuned.transition.kernel(self.split)

    def start(self, rng: np.random.Generator) -> FloatArray:
        """Return a starting value of a pilot chain, shape (dim,)."""
        return np.array(rng.choice(self.tuned.draws))

    def options(self, rule: StoppingRule) -> dict[str, str]:
        """Return the options of `stansub.sample` for this sampler."""
        return {"proposal": self.name}

    def normal(self) -> tuple[FloatArray, FloatArray]:
        """Return centre and covariance factor of a normal approximation to the posterior."""
        found = self.tuned.normal(self.split)
        return found.centre, found.covariance_factor


# Proposals of a method, and the kernel that uses them.
Sampler = MetropolisSampler | TrajectorySampler | SplitSampler


@dataclass(frozen=True)
class Method:
    """A test, with the sampler that uses it."""

    name: str
    rule: StoppingRule
    sampler: Sampler
    final_epsilon: float | None = None
    """Final error level, if it decreases during the run."""

    @property
    def exact(self) -> bool:
        """Return whether its decisions leave the posterior invariant."""
        return self.rule.exact or (self.rule.thins and not self.rule.learns_bounds)

    @property
    def epsilon(self) -> float | None:
        """Return the error level of a t-test."""
        level = self.rule.error
        return level.value if level is not None and self.rule.noise_rule() is None and not self.exact else None


@dataclass(frozen=True)
class Audits:
    """Decisions compared with exact ones on the same uniform numbers."""

    jumps: FloatArray
    """Shape (n_differing, dim): the chain's next position less that under the exact decision, in posterior sds, for
    each decision that differs.
    """
    n: int
    """Decisions compared."""
    proposed: FloatArray
    """Shape (dim,): mean squares of proposed jumps, in posterior variances."""

    @property
    def differing(self) -> int:
        """Return the number of decisions that differ."""
        return len(self.jumps)

    @cached_property
    def drift(self) -> tuple[FloatArray, FloatArray]:
        """Return the mean of these jumps over all decisions, and its standard error, both of shape (dim,).

        The standard error counts one more differing decision than was seen, with a proposed jump, so that it is
        positive even if none differed.
        """
        if not self.n:
            return np.zeros_like(self.proposed), np.full_like(self.proposed, np.inf)
        squares = (self.jumps**2).sum(0) + self.proposed
        return self.jumps.sum(0) / self.n, np.sqrt(squares) / self.n


@dataclass(frozen=True)
class Measurement:
    """Measurements of a method."""

    method: Method
    n_steps: int
    """Timed steps of all chains."""
    seconds: float
    """Seconds per step with all cores at work: elapsed time over the steps of all chains."""
    seconds_error: float
    """Relative standard error of the seconds."""
    tau: FloatArray
    """Shape (dim,): integrated autocorrelation times of the unconstrained parameters, in steps."""
    tau_error: float
    """Relative standard error of the autocorrelation times."""
    acceptance: float
    share: float
    """Share of the proposals accepted, and share of the data used in a decision."""
    audits: Audits | None
    """None if decisions are exact."""

    @property
    def predicted_from(self) -> dict[str, float]:
        """Return the share of the steps by error level, if the figures come from other methods; else empty."""
        return {}

    @property
    def bias(self) -> tuple[FloatArray, FloatArray]:
        """Return the bias of the means, in posterior sds, and its standard error, both of shape (dim,).

        The bias is the drift summed over the steps that autoregressive chains remember.
        """
        if self.audits is None:
            return np.zeros_like(self.tau), np.zeros_like(self.tau)
        drift, error = self.audits.drift
        longer = (self.tau + 1) / 2
        return longer * drift, longer * error


def methods_of(prepared: Prepared, progress: Progress) -> list[Method]:
    """Return the default and its alternatives: proved bounds, Pocock's test at several levels, penalty, all the data.

    Surrogate transitions and Metropolis within Gibbs choose their own decisions, so they are a single method.

    Raises
    ------
    InputError
        If no mode was found, so that there is no proposal to try.
    """
    setup = prepared.setup
    if prepared.tuned is not None:
        sampler = SplitSampler(prepared.posterior.split(), prepared.tuned)
        return [Method(sampler.name, setup.rule, sampler)]
    found = setup.found
    if found is None or found.proposal is None:
        raise InputError(
            "no plan is possible: pilot runs start at the mode, and no mode was found; use `stansub sample` "
            "without a budget"
        )
    if found.trajectories is not None:
        return [Method(found.name, setup.rule, TrajectorySampler(found))]
    methods = [Method(setup.rule.name, setup.rule, MetropolisSampler(found))]
    blockwise, rule = MetropolisSampler(found), setup.rule
    request = replace(mode_request(setup.config, None), exact_free=False, test_free=False)
    if not isinstance(rule, Pocock):
        other, rule = anchor(prepared.posterior, Pocock(), request, progress, found.modes)
        blockwise = MetropolisSampler(other)
    if not setup.rule.thins:
        with suppress(InputError):  # there are no bounds
            bounded, exact = anchor(prepared.posterior, Factorised(), request, progress, found.modes)
            methods.append(Method("factorised", exact, MetropolisSampler(bounded)))
    for epsilon in EPSILONS:
        level = rule.error
        if rule is not setup.rule or level is None or level.value != epsilon:
            methods.append(Method("pocock", rule.with_error(epsilon), blockwise))
    if setup.rule.noise_rule() is None:
        methods.append(Method("penalty", Penalty(), blockwise))
    if type(setup.rule) is not Exact:
        methods.append(Method("exact", Exact(), blockwise))
    return methods


def measure(prepared: Prepared, methods: Sequence[Method], seconds: float, progress: Progress) -> list[Measurement]:
    """Run every method for ``seconds`` in total, and half as long again for audits.

    If decisions on all the data make too few steps in that time, they get the mixing of the t-test with the lowest
    level.
    """
    measured = []
    for number, method in enumerate(methods):
        progress(f"Trying {method.name}" + (f" with epsilon {method.epsilon:g}" if method.epsilon is not None else ""))
        measured.append(_Pilot(prepared, method, number).run(seconds / len(methods)))
    tests = [one for one in measured if one.method.epsilon is not None]
    if not tests:
        return measured
    strictest = min(tests, key=lambda one: one.method.epsilon or 0.0)
    return [
        replace(one, tau=strictest.tau, tau_error=strictest.tau_error)
        if one.method.rule.exact and one.n_steps < strictest.n_steps
        else one
        for one in measured
    ]


@dataclass(frozen=True)
class _Chain:
    """Steps of one chain; the last ones are kept."""

    draws: FloatArray
    n_steps: int
    n_accepted: float
    n_used: int
    seconds: float


@dataclass(frozen=True)
class _Pilot:
    """Chains of one method."""

    prepared: Prepared
    method: Method
    number: int

    def run(self, seconds: float) -> Measurement:
        n_chains = self.prepared.setup.threads
        with ThreadPoolExecutor(n_chains) as pool:
            chains = list(pool.map(lambda chain: self._steps(chain, seconds), range(n_chains)))
        least = min(len(one.draws) for one in chains)
        draws = np.array([one.draws[-least:] for one in chains])
        n = sum(one.n_steps for one in chains)
        rates = np.array([one.n_steps / one.seconds for one in chains])
        tau, tau_error = autocorrelation_times(draws)
        spread = rates.std(ddof=1) / math.sqrt(n_chains) / rates.mean() if n_chains > 1 else 0.0
        used = sum(one.n_used for one in chains) / n / self.prepared.posterior.blocks.n_observations
        return Measurement(
            method=self.method,
            n_steps=n,
            seconds=1 / float(rates.sum()),
            seconds_error=float(max(spread, 1 / math.sqrt(n))),
            tau=tau,
            tau_error=tau_error,
            acceptance=sum(one.n_accepted for one in chains) / n,
            share=used,
            audits=None if self.method.exact else self._audits(draws, 0.5 * seconds),
        )

    def _generator(self, place: int) -> np.random.Generator:
        return streams.generator(self.prepared.setup.seed, streams.Run.PILOT, number=1000 * self.number + place)

    def _steps(self, chain: int, seconds: float) -> _Chain:
        """Run steps until the time is over, and drop the first ones."""
        rng, sampler = self._generator(chain), self.method.sampler
        kernel = sampler.kernel(self.prepared.posterior, self.method.rule)
        state = kernel.init(sampler.start(rng))
        out = Records.allocate(_LONGEST, kernel.dim, kernel.stats)
        kept: list[FloatArray] = []
        n, accepted, used = 0, 0.0, 0
        batch, start = 1, clock.now()
        began = now = start
        while now - start < seconds or n < _FEWEST:
            state, done = kernel.batch(rng, state, sampler.params, out, batch, BatchControl.none())
            before, now = now, clock.now()
            if now - before < seconds / _BATCHES:
                batch = min(2 * batch, _LONGEST)
            if not kept and now - start < _START * seconds:
                began = now
                continue
            kept.append(out.theta[:done].copy())
            n += done
            accepted += totals_of(kernel.stats, out.rows(slice(done)))["n_accepted"]
            used += int(out["n_obs_used"][:done].sum())
            if n >= _MOST:
                break
        return _Chain(np.concatenate(kept), n, accepted, used, now - began)

    def _audits(self, draws: FloatArray, seconds: float) -> Audits:
        """Compare decisions of this method with exact ones, continuing from the ends of the chains."""
        n_chains = len(draws)
        with ThreadPoolExecutor(n_chains) as pool:
            parts = list(pool.map(lambda chain: self._compared(chain, draws[chain, -1], seconds), range(n_chains)))
        n = sum(len(squares) for _, squares in parts)
        return Audits(
            np.concatenate([jumps for jumps, _ in parts]),
            n,
            np.concatenate([squares for _, squares in parts]).mean(0),
        )

    def _compared(self, chain: int, theta: FloatArray, seconds: float) -> tuple[FloatArray, FloatArray]:
        """Return the jumps of the decisions that differ, and squares of all proposed jumps, in sds."""
        posterior, sampler = self.prepared.posterior, self.method.sampler
        assert isinstance(sampler, MetropolisSampler)  # all others are exact
        rng, other = self._generator(500 + chain), self._generator(700 + chain)
        proposal, sds = sampler.params, np.sqrt(np.diag(sampler.found.mode.covariance))
        decider, exact = (
            sampler.decider(posterior, self.method.rule),
            make_decider(posterior.population.evaluator(), posterior.blocks.sizes, Exact()),
        )
        decider.reset(np.ascontiguousarray(theta))
        jumps: list[FloatArray] = []
        squares: list[FloatArray] = []
        start = clock.now()
        while clock.now() - start < seconds or len(squares) < _FEWEST:
            here = np.array(decider.theta)
            proposed, log_q_ratio = proposal(rng, here)
            log_u = float(np.log1p(-rng.random()))
            decision = decider.decide(proposed, log_u, log_q_ratio, rng.bit_generator.capsule)
            exact.reset(here)
            right = exact.decide(proposed, log_u, log_q_ratio, other.bit_generator.capsule)
            jump = (proposed - here) / sds
            squares.append(jump**2)
            if decision.accepted != right.accepted:
                jumps.append(jump if decision.accepted else -jump)
        return np.array(jumps).reshape(-1, len(sds)), np.array(squares)
