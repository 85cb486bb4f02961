"""Bounds on errors of expansions of random programs, against a search for the largest errors."""

from math import factorial

import numpy as np
import pytest
from numpy.typing import NDArray

from stansub import _loop

Array = NDArray[np.float64]
Codes = list[tuple[str, int, int]]
KINKS = 6  # at most, each with a width among the data
POSITIVE = ("log1p", "inv", "sqrt", "lgamma", "digamma")
ANY = ("exp", "log1p_exp", "inv_logit", "square", "cos", "atan", "std_normal_lcdf", "log_mills")
BINARY = ("sum", "difference", "product", "log_sum_exp")
FLOOR = 0.05


def random_codes(rng: np.random.Generator, q: int, has_kinks: bool) -> Codes:
    """Operations on arguments, of which one stands twice, and on earlier results, often the latest one."""
    codes: Codes = [*(("argument", k % q, 0) for k in range(q + 1)), ("data", 1, 0), ("constant", 0, 0)]
    for _ in range(int(rng.integers(4, 16))):
        a = len(codes) - 1 if rng.random() < 0.6 else int(rng.integers(len(codes)))
        n_kinks = sum(kind == "abs" for kind, _, _ in codes)
        if has_kinks and n_kinks < KINKS and rng.random() < 0.1:
            codes.append(("abs", a, 2 + n_kinks))
        elif rng.random() < 0.5:
            name = str(rng.choice(POSITIVE + ANY))
            if name in POSITIVE:
                codes.append(("log1p_exp", a, 0))
                a = len(codes) - 1
            codes.append((name, a, 0))
        else:
            codes.append(
                (str(rng.choice(["sum", "difference", "product", "log_sum_exp"])), a, int(rng.integers(a + 1)))
            )
        if codes[-1][0] in ("exp", "square"):  # which would grow without limit
            codes.append(("inv_logit", len(codes) - 1, 0))
    return codes


class Case:
    """A random program with a centre, lengths, and a radius."""

    def __init__(self, rng: np.random.Generator, q: int, order: int, has_kinks: bool) -> None:
        codes = random_codes(rng, q, has_kinks)
        numbers = np.array([(_loop.OPERATIONS.index(kind), a, b) for kind, a, b in codes], np.int32)
        values = np.arange(len(codes)) / len(codes) - 0.4
        self.program = _loop.Program(np.array([0, len(codes)], np.int32), numbers, values, q, 2 + KINKS)
        self.rng, self.q, self.order = rng, q, order
        self.centre, self.lengths = rng.normal(0, 1, (q, 1)), 10 ** rng.uniform(-3, 0.3, (q, 1))
        self.radius = 10 ** rng.uniform(-1.5, 0.9)
        data = np.zeros((2 + KINKS, 1))
        data[1] = 2 * rng.normal()
        self.data, self.floor = data.copy(), FLOOR * has_kinks
        self.program.set_widths(data, self.centre, self.lengths, 10 ** rng.uniform(-2, 0.5), self.data)
        out = np.empty((q, 1))
        self.program.largest(order, self.data, self.centre, self.lengths, [self.radius], out, self.floor)
        self.bound = out / factorial(order)

    def derivatives(self, order: int, at: Array) -> Array:
        out = np.empty((sum(self.q**k for k in range(order + 1)), at.shape[1]))
        data = np.repeat(self.data, at.shape[1], axis=1)
        self.program.derivatives(order, data, np.ascontiguousarray(at), out)
        return out

    def errors(self, s: Array) -> tuple[Array, Array, Array]:
        """Return the errors of an expansion, their bounds, and what rounding may change."""
        change, size = self.lengths * s, self.bound * (self.floor + np.abs(s) ** self.order)
        first = self.derivatives(2, self.centre)[:, 0]
        value, slopes, curves = first[0], first[1 : 1 + self.q], first[1 + self.q :].reshape(self.q, self.q)
        there, parts = self.derivatives(0, self.centre + change)[0], [slopes @ change]
        if self.order > 2:
            parts.append(0.5 * np.einsum("an,ab,bn->n", change, curves, change))
        rounding = 1e-13 + 1e-12 * (np.abs(there) + abs(value) + np.abs(slopes) @ np.abs(change) + np.abs(parts[-1]))
        return there - value - sum(parts), size.sum(0), rounding

    def exceeds(self, times: float) -> bool:
        """Climb from random places and corners; whether no constant brings all errors within a share of the bounds."""
        shape = (self.q, 400)
        inside, corners = self.rng.uniform(-1, 1, shape), self.rng.choice([-1, -0.3, 0, 0.3, 1], shape)
        s = np.where(self.rng.random(shape) < 0.5, inside, corners)
        s, highest, lowest = self.radius * s, -np.inf, -np.inf
        for step in (0.5, 0.25, 0.1, 0.05, 0.02):
            error, bound, rounding = self.errors(s)
            above, below = error - times * bound - rounding, -error - times * bound - rounding
            highest, lowest = max(highest, above.max()), max(lowest, below.max())
            best = s[:, np.concatenate([np.argsort(above)[-10:], np.argsort(below)[-10:]])]
            moves = step * self.radius * self.rng.normal(size=(self.q, 400)) * (self.rng.random((self.q, 400)) < 0.6)
            s = np.clip(np.repeat(best, 20, axis=1) + moves, -self.radius, self.radius)
        # Without kinks, expansions are exact at the centre, and the constant is 0.
        return highest + lowest > 0 if self.floor > 0 else max(highest, lowest) > 0


@pytest.mark.parametrize(("order", "has_kinks"), [(2, False), (3, False), (3, True)])
def test_no_error_is_beyond_the_bounds(order: int, has_kinks: bool) -> None:
    """Bounds that are a tenth smaller are exceeded at times."""
    rng, n_bounds, n_close = np.random.default_rng(order + 7 * has_kinks), 0, 0
    for _ in range(250):
        case = Case(rng, int(rng.integers(1, 5)), order, has_kinks)
        if np.isfinite(case.bound).all():
            n_bounds += 1
            assert not case.exceeds(1 + 1e-9)
            n_close += case.exceeds(0.9)
    assert n_bounds > 240
    assert n_close > 15
