"""Checks that stop a run when its draws are precise enough.

A check happens after fixed numbers of draws, each a quarter more than the last, when every chain has reached it. Checks
do not depend on timing or on what runs the chains, so a seed always gives the same draws. Checks leave no state: a
resumed run finds the next check from the progress of its chains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from stansub.output.apportioning import affordable, apportioned
from stansub.output.convergence import LEAST_DRAWS, ess_bulk, ess_tail, r_hat
from stansub.output.layout import element_names
from stansub.run.chain import Chain
from stansub.run.precision import Precision
from stansub.types import FloatArray

# Draws of each chain at the first check, and the ratio from one to the next.
FIRST, GROWTH = 500, 1.25

Constrain = Callable[[FloatArray], Mapping[str, FloatArray]]


def schedule(most: int) -> Iterator[int]:
    """Yield the draws per chain at the checks; the last check is after ``most``."""
    n = FIRST
    while n < most:
        yield n
        n = math.ceil(n * GROWTH)
    yield most


@dataclass(frozen=True)
class Check:
    """Result of the last check."""

    reached: bool
    n_checks: int
    n_draws: int
    """Checks up to this one, and draws per chain that it used."""
    quantity: str
    """Quantity with the smallest ESS or, if the precision was not reached, one that fails; empty if nothing moved."""
    ess: float
    """Smallest bulk or tail ESS over all parameters, or that of the quantity."""
    r_hat: float | None
    """Largest R-hat over all parameters, or that of the quantity; None for one chain."""

    def record(self) -> dict[str, Any]:
        """Return the result as written to the output."""
        return asdict(self)


class EarlyStopping:
    """Checks whether the draws of all chains are precise enough.

    Parameters count as the program declares them, except those whose draws are all equal. Of large variables, only the
    first elements are checked, as many as a summary of the first check's draws would have.

    Parameters
    ----------
    constrain : callable
        From draws, shape (chain, draw, dim), to the parameters' values by name, each (chain, draw, *shape).
    most : int
        Steps after which a chain ends in any case.
    thin : int
        Steps between two draws.
    """

    def __init__(self, precision: Precision, constrain: Constrain, *, most: int, thin: int) -> None:
        self.precision = precision
        self.last: Check | None = None
        self._constrain, self._most, self._thin = constrain, most, thin
        # Names and values of the parameters; values are in parts as they were added, each (chain, draw, parameter).
        self._names: list[str] = []
        self._parts: list[FloatArray] = []
        # Checked first: the quantities that failed at the last check.
        self._wanting = 0

    @property
    def reached(self) -> bool:
        """Return whether the last check found the draws precise enough."""
        return self.last is not None and self.last.reached

    def ahead(self, chains: Sequence[Chain]) -> Iterator[int]:
        """Yield the steps of sampling after which the chains wait for a check.

        In a resumed run, the first is the check that the furthest chain has reached, or the next one: earlier checks
        have not ended the run.
        """
        done = max(chain.sampling.n_steps for chain in chains)
        for n_draws in schedule(self._most // self._thin):
            n_steps = self._most if n_draws == self._most // self._thin else n_draws * self._thin
            if n_steps >= done:
                yield n_steps

    def check(self, chains: Sequence[Chain]) -> Iterator[None]:
        """Check the draws of waiting chains, in pieces."""
        self._add(chains)
        yield
        n_draws = sum(part.shape[1] for part in self._parts)
        n_checks = 1 + sum(n < n_draws for n in schedule(n_draws))
        least = Check(False, n_checks, n_draws, "", math.inf, None)
        for place in sorted(range(len(self._names)), key=lambda place: place != self._wanting):
            found = convergence(np.concatenate([part[:, :, place] for part in self._parts], axis=1))
            yield
            if found is None:
                continue
            ess, potential = found
            if not self.precision.reached(ess, potential):
                self._wanting = place
                self.last = Check(False, n_checks, n_draws, self._names[place], ess, _or_none(potential))
                return
            quantity = self._names[place] if ess < least.ess else least.quantity
            largest = float(np.fmax(potential, least.r_hat or math.nan))
            least = Check(True, n_checks, n_draws, quantity, min(ess, least.ess), _or_none(largest))
        self.last = least if least.reached else replace(least, ess=0.0)

    def _add(self, chains: Sequence[Chain]) -> None:
        """Add the draws since the last check; all draws if a chain has failed since."""
        if self._parts and len(self._parts[0]) != len(chains):
            self._parts = []
        seen = sum(part.shape[1] for part in self._parts)
        added = self._constrain(np.stack([chain.sampling.kept.read(seen).theta for chain in chains]))
        rooms = apportioned([math.prod(one.shape[2:]) for one in added.values()], affordable(len(chains) * FIRST))
        chosen = list(zip(added.items(), rooms, strict=True))
        self._names = [name for (of, one), room in chosen for name in element_names(of, one.shape[2:])[:room]]
        parts = [one.reshape(*one.shape[:2], -1)[:, :, :room] for (_, one), room in chosen]
        self._parts.append(np.concatenate(parts, axis=2))


def convergence(draws: FloatArray) -> tuple[float, float] | None:
    """Return the smaller of bulk and tail ESS, and R-hat, of draws (chain, draw); None if all draws are equal.

    R-hat is NaN for one chain. Both are NaN if a draw is not finite or there are too few draws.
    """
    if (draws == draws[0, 0]).all():
        return None
    if draws.shape[1] < LEAST_DRAWS or not np.isfinite(draws).all():
        return math.nan, math.nan
    one = draws[:, :, np.newaxis]
    return min(ess_bulk(one).item(), ess_tail(one).item()), r_hat(one).item()


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
