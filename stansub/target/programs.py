"""Log likelihoods of single observations as straight-line programs, with bounds from interval arithmetic.

The decision loop's module evaluates the program of an observation over numbers, over jets of derivatives, and over jets
of intervals. With argument k at centre_k + length_k s_k, |s_k| <= radius, the jets enclose all Taylor coefficients c_a
of the log likelihood on the box, and

    sum_(|a| = order) sup |c_a|

bounds the error of an expansion of one order less, times the power of the largest |s_k|. The error is an integral along
the ray from the centre, so coefficients near the centre, on smaller boxes, count most (`cpp/program_bounds.hpp`). Each
argument has a share of the sum. In each step of the program, a coefficient's enclosure is intersected with its value
at the centre plus the enclosure of the next order times the radius.

An absolute value |u| has a kink. Expansions replace it by a smooth function: the line that it is at the centre, or,
less than a width from the kink, the parabola u^2 / (2 width) + width / 2. What that changes is bounded by the
derivative with respect to |u| on the box, times the difference of |u| and its replacement, as a multiple of
floor + t^3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stansub import _loop
from stansub.target.rows import Rows
from stansub.types import FloatArray

# Operations that are their second operand where the first one fulfils a condition, or does not, and 0 elsewhere.
SIDES = ("if_negative", "unless_negative", "if_nonpositive", "unless_nonpositive")
# Nanoseconds of an operation on one of many observations: arithmetic, functions in vectors, others, and those by long
# sums or by iteration.
_ARITHMETIC, _IN_VECTORS, _FUNCTION, _LONG = 0.5, 2.5, 10.0, 2500.0
_COSTS = (
    dict.fromkeys(_loop.OPERATIONS, _FUNCTION)
    | dict.fromkeys(("constant", "data", "argument", "sum", "difference", "product", "abs"), _ARITHMETIC)
    | dict.fromkeys(("exp", "log1p_exp", "log_sum_exp"), _IN_VECTORS)
    | dict.fromkeys(("log_gamma_above", "log_gamma_below", "log_mean_normal", "std_normal_log_qf"), _LONG)
    | dict.fromkeys((*SIDES, "same"), _ARITHMETIC)
)
_BINARY = (
    "sum",
    "difference",
    "product",
    "log_sum_exp",
    "log_gamma_above",
    "log_gamma_below",
    "log_mean_normal",
    *SIDES,
    "same",
)
# The code of an absolute value; the width of its parabola, as a multiple of how far its operand moves per sd; and the
# floor of bounds with kinks. They decide how many observations are picked and evaluated, within a factor of about 1.5
# for 3 to 10 parameters.
_ABSOLUTE, _WIDTH, _FLOOR = _loop.OPERATIONS.index("abs"), 1.2, 3.0


class Code(NamedTuple):
    """Instructions of the variants of a program, concatenated."""

    starts: NDArray[np.int32]
    """Shape (n_variants + 1,)."""
    codes: NDArray[np.int32]
    """Shape (n, 3): operation, as an index of `stansub._loop.OPERATIONS`, and the indices of its operands."""
    values: FloatArray
    """Shape (n,): values of constants."""


@dataclass(frozen=True)
class ProgramFamily:
    """Family of observations whose log likelihoods are variants of a program."""

    code: Code
    n_arguments: int
    data: FloatArray
    """Shape (p, n): the variant of each observation, and its data."""
    _made: list[_loop.Program] = field(default_factory=list, repr=False, compare=False)

    bounded = False
    is_known = False

    @cached_property
    def nanoseconds(self) -> float:
        """Return the sum of the times of its operations, on average over observations."""
        costs = np.array([_COSTS[name] for name in _loop.OPERATIONS])[self.code.codes[:, 0]]
        return float(np.add.reduceat(costs, self.code.starts[:-1])[self.data[0].astype(int)].mean())

    @cached_property
    def floor(self) -> float:
        """Return the floor of bounds, which is positive if a variant has an absolute value."""
        return _FLOOR if (self.code.codes[:, 0] == _ABSOLUTE).any() else 0.0

    @property
    def highest(self) -> int:
        """Return 3 with one argument and no kinks, for which cubics are supported, and 2 otherwise."""
        return 3 if self.n_arguments == 1 and not self.floor else 2

    @property
    def density(self) -> _loop.Program:
        """Return the program for the decision loop."""
        if not self._made:
            self._made.append(_loop.Program(*self.code, self.n_arguments, len(self.data)))
        return self._made[0]

    def part(self, rows: Rows) -> ProgramFamily:
        """Return the family of some observations."""
        return replace(self, data=np.ascontiguousarray(self.data[:, rows]), _made=[self.density])

    def __getstate__(self) -> dict[str, object]:
        return {"code": self.code, "n_arguments": self.n_arguments, "data": self.data, "_made": []}

    def smoothed(self, centre: FloatArray, lengths: FloatArray) -> ProgramFamily:
        """Return the family with kinks smoothed within about an sd."""
        if not self.floor:
            return self
        shape, made = (self.n_arguments, self.data.shape[1]), self.data.copy()
        at, moves = (np.ascontiguousarray(np.broadcast_to(each, shape)) for each in (centre, lengths))
        self.density.set_widths(np.ascontiguousarray(self.data), at, moves, _WIDTH, made)
        return replace(self, data=made, _made=[self.density])

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """Return log likelihoods, with their kinks, shape (n,)."""
        return self.derivatives((0,), eta)[0]

    def products(self) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
        """Yield the arguments that the two factors of each product read."""
        for first, end in pairwise(self.code.starts.tolist()):
            read: list[frozenset[int]] = []
            for operation, a, b in self.code.codes[first:end].tolist():
                name = _loop.OPERATIONS[operation]
                if name in ("constant", "data"):
                    read.append(frozenset())
                elif name == "argument":
                    read.append(frozenset([a]))
                else:
                    read.append(read[a] | read[b] if name in _BINARY else read[a])
                if name == "product":
                    yield read[a], read[b]

    def compacted(self) -> ProgramFamily:
        """Return itself."""
        return self

    def gradients(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log likelihoods, shape (n,), and gradients, shape (q, n), at the least cost."""
        values, slopes = self.derivatives((0, 1), eta)
        return values, slopes

    def derivatives(self, orders: Sequence[int], eta: FloatArray) -> list[FloatArray]:
        """Return derivatives of some orders, from one pass."""
        q, n = self.n_arguments, self.data.shape[1]
        data, eta = np.ascontiguousarray(self.data), np.ascontiguousarray(eta)
        if max(orders) == 3:
            coefficients = np.empty((4, n))
            self.density.expand(3, data, eta, coefficients)
            rows = coefficients * np.array([[1.0], [1.0], [2.0], [6.0]])
        else:
            rows = np.empty((sum(q**order for order in range(max(orders) + 1)), n))
            self.density.derivatives(max(orders), data, eta, rows)
        second = rows[1 + q : 1 + q + q * q]
        found = (rows[0], rows[1 : 1 + q], second.reshape(len(second) // q, q, n), rows[-1])
        return [found[order] for order in orders]

    def largest(self, order: int, centre: FloatArray, lengths: FloatArray, radius: float) -> FloatArray:
        """Return bounds on errors of expansions on boxes, shape (n,)."""
        return np.asarray(self.split(order, centre, lengths, (radius,))[0].sum(0))

    def split(self, order: int, centre: FloatArray, lengths: FloatArray, radii: Sequence[float]) -> FloatArray:
        """Return these bounds by radius and argument, shape (n_radii, q, n)."""
        q, n = self.n_arguments, self.data.shape[1]
        at, moves = (np.ascontiguousarray(np.broadcast_to(each, (q, n))) for each in (centre, lengths))
        out = np.empty((len(radii) * q, n))
        self.density.largest(order, np.ascontiguousarray(self.data), at, moves, list(radii), out, self.floor)
        return out.reshape(len(radii), q, n)
