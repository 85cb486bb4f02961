"""Recursions within an observation: their numbers share parts along exponentially many paths, each visited once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

from stansub.stan.observations.observation import follow
from stansub.stan.observations.predictors import _dense
from stansub.stan.observations.row_program import in_program
from stansub.stan.observations.rowwise import Number, affine, apply, is_positive, is_same, pick, walk
from stansub.stan.syntax import parse
from stansub.target.programs import ProgramFamily

N, T = 100, 40
PROGRAM = """
data {{ int N; int T; vector[N] x; matrix[N, T] r; array[N, T] int y; }}
parameters {{ real a; real b; real c; }}
model {{
  a ~ normal(0, 1);
  for (n in 1:N) {{
    real p = inv_logit(a + b * x[n]);
    {model}
  }}
}}
"""
LEARNING = """
real v = 0;
for (t in 1:T) {
  y[n, t] ~ bernoulli_logit(exp(c) * v);
  v += p * (r[n, t] - v);
}"""
CHOOSING = """
vector[2] v = rep_vector(0, 2);
for (t in 1:T) {
  (1 + y[n, t]) ~ categorical_logit(exp(c) * v);
  v[1 + y[n, t]] += p * (r[n, t] - v[1 + y[n, t]]);
}"""
FORWARD = """
real on = p;
real off = 1 - p;
for (t in 1:T) {
  real before = on;
  on = (on * p + off * (1 - p)) * exp(bernoulli_logit_lpmf(y[n, t] | c));
  off = (before * (1 - p) + off * p) * exp(bernoulli_logit_lpmf(y[n, t] | c + r[n, t]));
}
target += log(on + off);"""

Array = NDArray[np.float64]


@pytest.fixture(autouse=True)
def a_minute() -> Iterator[None]:
    """Without it, a walk along all paths would not end."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _learning(theta: Array, r: Array, y: Array, p: Array) -> Array:
    v, total = np.zeros(N), np.zeros(N)
    for t in range(T):
        total -= np.logaddexp(0, np.where(y[:, t], -1, 1) * np.exp(theta[2]) * v)
        v = v + p * (r[:, t] - v)
    return total


def _choosing(theta: Array, r: Array, y: Array, p: Array) -> Array:
    v, total, own = np.zeros((2, N)), np.zeros(N), np.arange(N)
    for t in range(T):
        eta = np.exp(theta[2]) * v
        total += eta[y[:, t], own] - np.logaddexp(*eta)
        v[y[:, t], own] += p * (r[:, t] - v[y[:, t], own])
    return total


def _forward(theta: Array, r: Array, y: Array, p: Array) -> Array:
    on, off = p, 1 - p
    for t in range(T):
        seen = [special.expit(np.where(y[:, t], 1, -1) * eta) for eta in (theta[2], theta[2] + r[:, t])]
        on, off = (on * p + off * (1 - p)) * seen[0], (on * (1 - p) + off * p) * seen[1]
    return np.asarray(np.log(on + off))


MODELS = {"learning": (LEARNING, _learning), "choosing": (CHOOSING, _choosing), "forward": (FORWARD, _forward)}


@pytest.mark.parametrize("name", MODELS)
def test_the_text_is_followed_with_as_many_operations_as_steps_need(name: str) -> None:
    """If each observation chooses its own elements, selections of selections grew with the square of the steps."""
    model, right = MODELS[name]
    rng = np.random.default_rng(1)
    values = {"N": N, "T": T, "x": rng.standard_normal(N), "r": rng.random((N, T)), "y": rng.integers(0, 2, (N, T))}
    found = _dense(*in_program(follow(parse(PROGRAM.format(model=model)), values, N).term, N))
    assert isinstance(found.family, ProgramFamily)
    assert len(found.family.code.codes) < 30 * T
    for theta in rng.standard_normal((3, 3)):
        p = special.expit(theta[0] + theta[1] * values["x"])
        np.testing.assert_allclose(found.log_lik(theta), right(theta, values["r"], values["y"], p), rtol=1e-10)


def recursion(slope: float) -> Number:
    """A positive number with 2^60 paths to its parameter."""
    x, y = (apply(name, affine(np.array([[slope]]), np.zeros(1))) for name in ("exp", "inv_logit"))
    for _ in range(60):
        x = x * y + apply("sqrt", x)
    return x


def test_questions_about_a_number_visit_each_part_once() -> None:
    assert is_positive(recursion(1.0))
    assert is_same(recursion(1.0), recursion(1.0))
    assert not is_same(recursion(1.0), recursion(2.0))
    assert not recursion(1.0).has_sides


def test_the_complement_of_a_sum_of_many_products_visits_each_once() -> None:
    """Each product may be a share of what is left of one, in which case the complement is one, too."""
    x, y = (apply(name, affine(np.array([[1.0]]), np.zeros(1))) for name in ("inv_logit", "log1p_exp"))
    total = x
    for _ in range(60):
        total = total + x * y
    assert is_same((1 - total).parts[1], total)
    assert (1 - (x + (1 - x) * x)).kind == "square"


def test_a_choice_between_recursions_is_a_recursion() -> None:
    found = pick([recursion(1.0), recursion(2.0)], np.array([0, 1, 1]))
    leaves = [one.slopes for one in walk([found]) if one.slopes is not None]
    assert len(walk([found])) == len(walk([recursion(1.0)]))
    assert all((one == one[0] * [[1.0], [2.0], [2.0]]).all() for one in leaves)
