"""Log evidence of a mode, by path sampling from a normal approximation.

Densities p_t = p^t q^(1 - t) lead from a normal density q, that of a sampler's centre and metric, to the density p. The
derivative of their log normalising constant is the mean of log p - log q under p_t (Gelman and Meng 1998), so the log
evidence of p is

    log Z = int_0^1 E_t[log p - log q] dt.

The mean increases with t. Near q it may be far below, if log p is in the tails of q. With t = s^3, values of s in equal
steps are mostly near 0, and values near q have little weight.

A chain goes from p to q and back. If it moves too slowly, its means are too large on the way down and too small on the
way up, so the two estimates differ.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from stansub.kernels.surrogate import Hamiltonian
from stansub.target.split import Dynamics
from stansub.tuning.surrogates.sampler_runs import adapted, run, slowest_time
from stansub.types import FloatArray

# Nodes of the Gauss-Legendre quadrature over s; exponent of s.
_NODES, _EXPONENT = 8, 3
# Transitions per visit of a node with an adapting step size, and those that count; depth of their trees.
_ADAPTING, _COUNTED, _DEPTH = 25, 30, 6
# Calls of `check`.
CHECKS = 2 * _NODES * (_ADAPTING + _COUNTED)


class Evidence(NamedTuple):
    """Log evidence of a mode, and its error."""

    log: float
    error: float

    def plus(self, log: float) -> Evidence:
        """Return the evidence of a density that is larger by a factor."""
        return self._replace(log=self.log + log)


def path_sampled(
    density: Dynamics, sampler: Hamiltonian, theta: FloatArray, rng: np.random.Generator, check: Callable[[], None]
) -> Evidence:
    """Return the log evidence of a density near a mode.

    The error is the Monte Carlo standard error, or half the difference between the way from p to q and the way back if
    that is larger.

    Parameters
    ----------
    sampler : Hamiltonian
        A sampler of the density, whose centre and metric are those of q.
    theta : ndarray, shape (dim,)
        A draw of the density.
    """
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    places = (nodes + 1) / 2
    shares = _EXPONENT * places ** (_EXPONENT - 1) * weights / 2
    ways, variance = np.zeros(2), 0.0
    for way, order in enumerate((range(_NODES - 1, -1, -1), range(_NODES))):
        for k in order:
            system = sampler.on(density, power=places[k] ** _EXPONENT)
            found = adapted(system, theta, _ADAPTING, rng, check)
            nuts = partial(system.nuts, step_size=found.step_size, max_tree_depth=_DEPTH)
            draws = run(nuts, found.draws[-1], _COUNTED, rng, check).draws
            theta = draws[-1]
            ratios = np.array([system.log_ratio(one) for one in draws])
            ways[way] += shares[k] * ratios.mean()
            variance += (shares[k] / 2) ** 2 * ratios.var() * slowest_time(ratios[:, np.newaxis]) / _COUNTED
    constant = 0.5 * (len(theta) * np.log(2 * np.pi) - sampler.metric.log_determinant)
    return Evidence(float(constant + ways.mean()), max(float(np.sqrt(variance)), float(np.ptp(ways)) / 2))
