"""Models made of numpy functions, and the look loop written plainly, to hold the compiled one against."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stansub.acceptance.rules import Table
from stansub.target.functions import FunctionFactors

Array = NDArray[np.float64]

_DOUBLES = ctypes.POINTER(ctypes.c_double)
RANGE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, _DOUBLES, _DOUBLES, _DOUBLES)


def address(function: ctypes._CFuncPtr) -> int:
    value = ctypes.cast(function, ctypes.c_void_p).value
    assert value is not None
    return value


class Model(FunctionFactors):
    """Blocks of one observation that note which of them are asked for; the prior is flat unless ``shared`` is given.

    Gradients are ``slopes(theta, which)``, shape (n, dim), and ``shared_slope(theta)``.
    """

    def __init__(
        self,
        dim: int,
        n_blocks: int,
        blocks: Callable[[Array, NDArray[np.int32]], Array | None],
        shared: Callable[[Array], float | None] = lambda theta: 0.0,
        slopes: Callable[[Array, NDArray[np.int32]], Array | None] | None = None,
        shared_slope: Callable[[Array], Array] = np.zeros_like,
    ) -> None:
        self.asked: list[NDArray[np.int32]] = []

        def noted(theta: Array, which: NDArray[np.int32]) -> Array | None:
            self.asked.append(which)
            return blocks(theta, which)

        names = [f"theta.{k}" for k in range(1, dim + 1)]
        super().__init__(
            names, n_blocks, noted, log_density=shared, log_lik_gradient=slopes, log_density_gradient=shared_slope
        )


def linear(values: Array) -> Model:
    """One parameter, l_b(theta) = theta * values[b]: a unit step upwards has the differences ``values``."""
    return Model(1, len(values), lambda theta, which: theta[0] * values[which])


def normal_mean(x: Array) -> Model:
    """Unknown mean of unit normals, shape (M, dim), with a standard normal prior."""
    return Model(
        x.shape[1],
        len(x),
        lambda theta, which: -0.5 * ((x[which] - theta) ** 2).sum(1),
        lambda theta: float(-0.5 * (theta**2).sum()),
    )


def logistic(x: Array, *, shift: float = 0.0) -> Model:
    """Blocks of one success each in a logistic regression, shape (M, dim), with a normal prior."""

    def slopes(theta: Array, which: NDArray[np.int32]) -> Array:
        return x[which] / (1 + np.exp(x[which] @ theta + shift))[:, np.newaxis]

    return Model(
        x.shape[1],
        len(x),
        lambda theta, which: -np.log1p(np.exp(-x[which] @ theta - shift)),
        lambda theta: float(-0.5 * (theta**2).sum()),
        slopes,
        lambda theta: -theta,
    )


def taylor(model: Model, anchor: Array, order: int) -> NDArray[np.float32]:
    """Coefficients of all blocks."""
    dim, which = len(anchor), np.arange(len(model.blocks), dtype=np.int32)
    rows = np.empty((len(which), dim if order == 1 else dim + dim * (dim + 1) // 2), np.float32)
    model.evaluator().block_taylor(anchor, which, order, rows)
    return rows


def features(theta: Array, theta_new: Array, anchor: Array, width: int) -> Array:
    """What the coefficients are multiplied with: the change of (d, d d' / 2) in their order, entry by entry."""
    d, d_new = theta - anchor, theta_new - anchor
    if width == len(anchor):
        return d_new - d
    change = np.outer(d_new, d_new) - np.outer(d, d)
    change[np.diag_indices(len(anchor))] /= 2
    return np.concatenate([d_new - d, change[np.tril_indices(len(anchor))]])


class Outcome(NamedTuple):
    accepted: bool
    n: int
    looks: int
    log_ratio: float


class ReferenceLoop:
    """Decisions by the definition, with a permutation of its own."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.order = np.arange(table.n[-1])

    def decide(
        self, differences: Array, rest: float, log_u: float, rng: np.random.Generator, spread: float | None
    ) -> Outcome:
        """``spread`` None stands for the range of what is drawn."""
        n_units, drawn = len(differences), 0
        mu0 = (log_u - rest) / n_units
        rows = list(zip(self.table.n.tolist(), self.table.scale, self.table.offset, strict=True))
        for look, (n, scale, offset) in enumerate(rows[:-1], start=1):
            for place in range(drawn, n):
                other = place + below(rng, n_units - place)
                self.order[[place, other]] = self.order[[other, place]]
            drawn = n
            sample = differences[self.order[:n]]
            mean, sd = sample.mean(), sample.std(ddof=1) if n > 1 else 0.0
            width = np.ptp(sample) if spread is None else spread
            blind = np.ptp(sample) == 0 and ((scale > 0 and offset == 0) or (offset > 0 and spread is None))
            if not blind and abs(mean - mu0) > scale * sd + offset * width:
                return Outcome(bool(mean > mu0), n, look, n_units * mean + rest)
        mean = differences.mean()
        return Outcome(bool(mean > mu0), n_units, len(rows), n_units * mean + rest)


def below(rng: np.random.Generator, bound: int) -> int:
    """A uniform integer below ``bound``: 32 random bits times the bound, biased remainders thrown away."""
    interface = rng.bit_generator.ctypes
    while True:
        product = interface.next_uint32(interface.state) * bound
        if product % 2**32 >= 2**32 % bound:
            return product >> 32
