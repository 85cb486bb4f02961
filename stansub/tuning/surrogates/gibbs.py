"""Tuning of the Gibbs sampler on a surrogate with normal effects: its structure, and sweeps per decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from stansub.kernels.surrogate import Gibbs
from stansub.target.approximation import Approximation
from stansub.target.normal_effects import TRIES, NormalEffects
from stansub.target.split import Surrogate
from stansub.tuning.effects.normal_effects import Structure
from stansub.tuning.surrogates.hmc import Tuned
from stansub.tuning.surrogates.sampler_runs import MOST_TRANSITIONS, UNSURE, n_transitions, run, slowest_time, spread
from stansub.types import FloatArray

# Draws of a round, sweeps from one to the next at first, and sweeps before them, or one from each of so many draws; the
# factor of the number of sweeps if draws resemble each other.
_ROUND, _APART, _BEFORE, _MORE = 30, 6, 30, 4
# Sweeps that show how fast a sampler mixes, at first, and if draws of some parameter resemble each other.
_SHOWING, _SURE = 300, 2400
# Share of the sweeps with moves along lines, where proposals of all scales make these superfluous.
_SELDOM = 0.1
# Microseconds from one draw to the next that are not too many, if sweeps are dear; and if draws resemble each other.
_DEAR, _DEAR_MORE = 100_000.0, 20_000.0
# Share of the sweeps accepted below which effects are not nearly normal given their scales, and the share of one sweep
# from each of a few draws that shows it; sweeps accepted from one draw to the next below which few draws differ.
_LEAST, _HARDLY, _DIFFER = 0.1, 0.05, 0.3


@dataclass(frozen=True)
class GibbsTuner:
    """Draws of a surrogate by the Gibbs sampler; results are None if few of its sweeps are accepted."""

    structure: Structure
    rng: np.random.Generator
    check: Callable[[], None]

    def begin(self, about: Approximation, start: FloatArray) -> FloatArray:
        """Return draws of effects and scales themselves, without decisions, from parameters far from the posterior."""
        effects, theta, draws = self.structure.about(about, start[np.newaxis]).compiled(), start.copy(), []
        for _ in range(_BEFORE):
            self.check()
            if not effects.sweep(self.rng.bit_generator.capsule, theta):
                break
            draws.append(theta.copy())
        return np.array(draws or [start])

    def round(self, surrogate: Surrogate, about: Approximation, draws: FloatArray) -> Tuned | None:
        """Draw briefly, from the last of ``draws``; None also if effects are in parts, unless a scale is uncertain.

        Draws in parts resemble each other more than trajectories do.
        """
        effects = self.structure.about(about, draws)
        if len(effects.part_sizes) > 1 and not self.structure.is_uncertain(draws):
            return None
        apart, most = _apart(effects), int(min(_DEAR_MORE // sweep_cost(effects), MOST_TRANSITIONS))
        before = _BEFORE * apart // _APART
        made, accepted = self._sweeps(surrogate, effects, draws, before + _ROUND * apart)
        while accepted >= _LEAST and apart < most and slowest_time(made[before:]) > apart:
            apart, before = min(_MORE * apart, most), 0
            made, accepted = self._sweeps(surrogate, effects, made, _ROUND * apart)
        is_good = accepted >= max(_LEAST, _DIFFER / apart)
        return Tuned(Gibbs(effects), made[before::apart], n=apart, accepted=accepted) if is_good else None

    def finish(self, surrogate: Surrogate, about: Approximation, draws: FloatArray) -> Tuned | None:
        """Return the sampler with as many sweeps per step as hardly resemble each other, at most fifty."""
        found = self._shown(surrogate, self.structure.about(about, draws), draws, _SHOWING)
        if found is None:
            return None
        effects = self.structure.about(about, found.draws)  # with proposals from more draws
        if len(effects.centre):
            seldom = self._shown(surrogate, replace(effects, share=_SELDOM), found.draws, _SHOWING)
            if seldom is not None and seldom.cost < found.cost:
                found, effects = seldom, replace(effects, share=_SELDOM)
        if found.time > UNSURE:
            found = self._shown(surrogate, effects, found.draws, _SURE)
        return found

    def _shown(self, surrogate: Surrogate, effects: NormalEffects, draws: FloatArray, n: int) -> Tuned | None:
        """Return the sampler with its autocorrelation time over n sweeps, fewer if they are dear."""
        made, accepted = self._sweeps(surrogate, effects, draws, n * _apart(effects) // _APART)
        if accepted < _LEAST:
            return None
        time = slowest_time(made)
        n = n_transitions(time, left=1.0)
        return Tuned(Gibbs(effects), made, time, sweep_cost(effects), n, accepted=accepted)

    def _sweeps(
        self, surrogate: Surrogate, effects: NormalEffects, draws: FloatArray, n: int
    ) -> tuple[FloatArray, float]:
        """Return the draw after each sweep from the last of some draws, and the share of the sweeps accepted.

        There is no sweep if hardly any from one of these draws each is accepted. From a single one, all may be rejected
        for long even if many are accepted from others.
        """
        gibbs = Gibbs(effects).bound(surrogate)
        tried = [run(gibbs, theta, 1, self.rng, self.check).acceptance for theta in spread(draws, _BEFORE)]
        accepted = float(np.mean(tried))
        if accepted < _HARDLY:
            return draws[-1:], accepted
        made = run(gibbs, draws[-1], n, self.rng, self.check)
        return made.draws, made.acceptance


def _apart(effects: NormalEffects) -> int:
    """Return the sweeps from one draw to the next."""
    return int(np.clip(_DEAR // sweep_cost(effects), 1, _APART))


def sweep_cost(effects: NormalEffects) -> float:
    """Return the microseconds of a sweep: a value of the surrogate, two slices along each line, and factors.

    Along a line that changes a matrix S of several effects, each point of a slice needs the products with it.
    """
    lines = 0.03 * len(effects.widths) + 0.01 * len(effects.directions)
    products = 0.008 * float(_changed(effects) @ effects.sizes.astype(float) ** 2)
    factors = factor_cost(effects) * (1 + TRIES * bool(len(effects.centre)))
    return evaluation_cost(effects) + 16 * effects.share * (lines + products) + factors


def evaluation_cost(effects: NormalEffects) -> float:
    """Return the microseconds of a value of the surrogate, with its gradient, and of products with the precision."""
    return 2 + 0.1 * effects.dim + 0.001 * len(effects.precision)


def factor_cost(effects: NormalEffects) -> float:
    """Return the microseconds of the factors of a draw, of all parts and in reverse, and of what these parts read."""
    operations = effects.factor_operations
    own, n_more = 2 * float(operations.sum()) - float(operations[-1]), len(operations) - 1
    return 0.0003 * own + 0.05 * len(effects.sizes) + 0.002 * n_more * len(effects.precision)


def _changed(effects: NormalEffects) -> FloatArray:
    """Return the number of lines that change each block's S, of those with several effects; 0 for others."""
    n, numbers = len(effects.scales), effects.sizes * (effects.sizes + 1) // 2
    of_rows = np.repeat(np.repeat(np.arange(len(numbers)), numbers), effects.counts)
    of_functions = np.repeat(of_rows, np.diff(effects.starts))
    reads = sp.csr_array((np.ones(len(of_functions)), (of_functions, effects.columns)), shape=(len(numbers), n))
    lines = sp.csr_array(
        (np.ones(len(effects.move_columns)), effects.move_columns, effects.move_starts), shape=(len(effects.widths), n)
    )
    return np.where(effects.sizes > 1, np.asarray((reads @ lines.T > 0).sum(axis=1), np.float64), 0.0)
