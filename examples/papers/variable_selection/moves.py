"""The moves of the paper's section 5.3: update, birth and death of coefficients; out of the model is exactly 0."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

from stansub import Auxiliary, Jump, Moved, ReversibleJump
from stansub.kernels.base import Records

Array = NDArray[np.float64]
NOTHING: Array = np.empty(0)
# The paper takes the probabilities of another paper, which it does not give; these are ours. An update has the rest.
BIRTH = DEATH = 0.25
# Of updates, as in the paper.
ACCEPTANCE = 0.5


def log_normal(z: float, sd: float) -> float:
    """Density N(z | 0, sd^2)."""
    return -0.5 * (z / sd) ** 2 - math.log(sd * math.sqrt(2 * math.pi))


def size(beta: Array) -> int:
    """k, the coefficients in the model."""
    return int(np.count_nonzero(beta))


def log_prior(beta: Array, penalty: float) -> float:
    """What is left of the prior in equation 9, lambda being `penalty`."""
    k, dim = size(beta), len(beta)
    if k == 0:
        return -math.inf
    return k * math.log(penalty) - k * math.log(np.abs(beta).sum()) + float(betaln(k, dim - k + 1))


@dataclass(frozen=True)
class Update:
    """A coefficient of the model moves by N(0, sd^2); sd learns in warmup."""

    sd: float = 0.05

    def weight(self, position: Array) -> float:
        k = size(position)
        return 1 - BIRTH * (k < len(position)) - DEATH * (k > 1)

    def draw(self, rng: np.random.Generator, position: Array) -> Auxiliary:
        inside = np.flatnonzero(position)
        return Auxiliary(self.sd * rng.standard_normal(1), int(inside[rng.integers(len(inside))]))

    def log_density(self, position: Array, drawn: Auxiliary) -> float:
        return log_normal(float(drawn.values[0]), self.sd) - math.log(size(position))

    def transform(self, position: Array, drawn: Auxiliary) -> Moved:
        position[drawn.choice] += drawn.values[0]  # type: ignore[index]
        return Moved(position, Auxiliary(-drawn.values, drawn.choice))

    def adapter(self, dim: int) -> Learner:
        """What has half of the updates accepted."""
        return Learner(self)


@dataclass
class Learner:
    """Has the sd follow the acceptance rate by diminishing steps; kept is the mean of the later half."""

    update: Update
    n_evaluated: int = 0
    logs: list[float] = field(default_factory=list)

    def learn(self, records: Records) -> None:
        gain = 2.0 * (len(self.logs) + 1) ** -0.6
        change = gain * (float(records["accepted"].mean()) - ACCEPTANCE)
        self.update = Update(self.update.sd * math.exp(change))
        self.logs.append(math.log(self.update.sd))

    def proposal(self) -> Update:
        return self.update

    def final(self) -> Update:
        later = self.logs[len(self.logs) // 2 :]
        return replace(self.update, sd=math.exp(np.mean(later))) if later else self.update


@dataclass(frozen=True)
class Birth:
    """A coefficient enters, with value N(0, sd^2)."""

    sd: float = 0.1

    def weight(self, position: Array) -> float:
        return BIRTH * (size(position) < len(position))

    def draw(self, rng: np.random.Generator, position: Array) -> Auxiliary:
        outside = np.flatnonzero(position == 0)
        return Auxiliary(self.sd * rng.standard_normal(1), int(outside[rng.integers(len(outside))]))

    def log_density(self, position: Array, drawn: Auxiliary) -> float:
        return log_normal(float(drawn.values[0]), self.sd) - math.log(len(position) - size(position))

    def transform(self, position: Array, drawn: Auxiliary) -> Moved:
        position[drawn.choice] = drawn.values[0]  # type: ignore[index]
        return Moved(position, Auxiliary(NOTHING, drawn.choice))


@dataclass(frozen=True)
class Death:
    """A coefficient leaves, unless it is the last."""

    def weight(self, position: Array) -> float:
        return DEATH * (size(position) > 1)

    def draw(self, rng: np.random.Generator, position: Array) -> Auxiliary:
        inside = np.flatnonzero(position)
        return Auxiliary(NOTHING, int(inside[rng.integers(len(inside))]))

    def log_density(self, position: Array, drawn: Auxiliary) -> float:
        return -math.log(size(position))

    def transform(self, position: Array, drawn: Auxiliary) -> Moved:
        value = position[[drawn.choice]]
        position[drawn.choice] = 0.0  # type: ignore[index]
        return Moved(position, Auxiliary(value, drawn.choice))


NAMES = ("update", "birth", "death")


def reversible_jump(*, update: float = 0.05, birth: float = 0.1) -> ReversibleJump:
    """The paper's mixture of moves, with sigma_update and sigma_birth."""
    return ReversibleJump(Jump(update=Update(update)), Jump(birth=Birth(birth), death=Death()))
