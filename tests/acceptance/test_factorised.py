"""Factorised decisions: their acceptance probability, detailed balance, and bounds that do not hold."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stansub._loop import Decider, Surrogate
from stansub.acceptance.decide import make_decider
from stansub.acceptance.rules import Exact, Factorised
from stansub.errors import InputError
from stansub.target.families import Binomial
from stansub.target.functions import FunctionFactors
from stansub.target.remainders import LinearPredictors, RemainderBounds
from stansub.target.taylor import features

Array = NDArray[np.float64]
N, DIM, SIZE = 120, 2, 4


@dataclass(frozen=True)
class Logistic:
    """Logistic regression on blocks of four, with control variates about a point near the mode, and their bounds."""

    factors: FunctionFactors
    coefficients: NDArray[np.float32]
    bounds: RemainderBounds
    anchor: Array

    @classmethod
    def make(cls, order: int = 2) -> Logistic:
        rng = np.random.default_rng(3)
        z = rng.standard_normal((N, DIM)) * np.where(np.arange(N) == 7, 5.0, 1.0)[:, np.newaxis]
        y = (rng.random(N) < 1 / (1 + np.exp(-z @ [0.5, -0.3]))).astype(float)
        family, anchor = Binomial(y, np.ones(N)), np.array([0.4, -0.2])
        p = 1 / (1 + np.exp(-z @ anchor))
        i, j = np.tril_indices(DIM)
        hessians = -(p * (1 - p))[:, np.newaxis] * z[:, i] * z[:, j]
        rows = np.hstack([(y - p)[:, np.newaxis] * z, hessians][:order])
        factors = FunctionFactors(
            ["a", "b"],
            N,
            lambda theta, which: family.log_lik((z @ theta)[np.newaxis])[which],
            log_density=lambda theta: -0.5 * float(theta @ theta),
            block_size=SIZE,
        )
        information = (z * (p * (1 - p))[:, np.newaxis]).T @ z + np.eye(DIM)
        cholesky = np.linalg.cholesky(np.linalg.inv(information))
        predictors = LinearPredictors((z,), (np.zeros(N),), family)
        bounds = predictors.bounds(anchor, cholesky, factors.blocks, order)
        coefficients = rows.reshape(-1, SIZE, rows.shape[1]).sum(1).astype(np.float32)
        return cls(factors, coefficients, bounds, anchor)

    def decider(self, theta: Array, bounds: RemainderBounds | None = None, *, share: float = 1e9) -> Decider:
        evaluator = self.factors.evaluator()
        made = Decider(
            evaluator,
            self.factors.blocks.sizes,
            _whole(len(self.factors.blocks)),
            surrogate=Surrogate([self.anchor], (self.coefficients,)),
            bounds=(bounds or self.bounds).compiled(share),
        )
        made.reset(theta)
        return made

    def remainders(self, theta: Array, proposed: Array) -> Array:
        evaluator = self.factors.evaluator()
        change = self.coefficients.astype(float) @ features(self.anchor, theta, proposed, order=self.bounds.order)
        return evaluator.block_log_lik(proposed) - evaluator.block_log_lik(theta) - change

    def acceptance(self, theta: Array, proposed: Array, *, by_all: bool = False) -> float:
        """min(1, e^S) prod_b exp(-max(0, -r_b)) for a symmetric proposal, Metropolis-Hastings' if all are evaluated."""
        if by_all:
            return float(np.exp(min(0.0, self.factors.log_density(proposed) - self.factors.log_density(theta))))
        r = self.remainders(theta, proposed)
        surrogate = self.factors.log_density(proposed) - self.factors.log_density(theta) - r.sum()
        return float(np.exp(min(0.0, surrogate) - np.maximum(0, -r).sum()))


def _whole(n_blocks: int):  # type: ignore[no-untyped-def]
    from stansub.acceptance.subsets import loop_table

    return loop_table(Exact(), n_blocks)


MODEL = Logistic.make()
FAR = MODEL.anchor + np.array([0.5, 0.4])
NEAR = MODEL.anchor + np.array([-0.2, 0.3])
# The others take nearly a second each.
QUICK = ("1-thinning-there", "2-all-there")


def rate(model: Logistic, theta: Array, proposed: Array, n: int, *, share: float = 1e9, log_q: float = 0.0) -> float:
    rng = np.random.default_rng(5)
    decider = model.decider(theta, share=share)
    accepted = 0
    for _ in range(n):
        decision = decider.decide(proposed, np.log1p(-rng.random()), log_q, rng.bit_generator.capsule)
        accepted += decision.accepted
        if decision.accepted:
            decider.reset(theta)
    return accepted / n


@pytest.mark.parametrize(
    ("order", "share", "theta", "proposed"),
    [
        pytest.param(order, share, *ends, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for order in (1, 2)
        for how, share in (("thinning", 1e9), ("all", 0.0))
        for way, ends in (("there", (NEAR, FAR)), ("back", (FAR, NEAR)))
        for name in [f"{order}-{how}-{way}"]
    ],
)
def test_acceptance_probability(order: int, share: float, theta: Array, proposed: Array) -> None:
    model, n = Logistic.make(order), 20_000
    if order == 1:  # remainders are larger there
        theta, proposed = (model.anchor + 0.3 * (point - model.anchor) for point in (theta, proposed))
    expected = model.acceptance(theta, proposed, by_all=share == 0)
    assert 0.003 < expected <= 1
    seen = rate(model, theta, proposed, n, share=share)
    assert abs(seen - expected) <= 4 * np.sqrt(expected * (1 - expected) / n)


def test_detailed_balance() -> None:
    """The ratio of the two acceptance probabilities is that of the posterior densities, to rounding."""
    forth, back = MODEL.acceptance(NEAR, FAR), MODEL.acceptance(FAR, NEAR)
    exact = MODEL.factors.log_density(FAR) - MODEL.factors.log_density(NEAR)
    assert np.log(forth / back) == pytest.approx(exact, abs=1e-12)
    assert forth < np.exp(min(0.0, exact)), "it accepts no more than Metropolis and Hastings"


def test_the_ratio_of_a_proposal_counts() -> None:
    exact = np.log(MODEL.acceptance(NEAR, FAR)) - 0.7
    surrogate_is_below_one = rate(MODEL, NEAR, FAR, 20_000, log_q=-0.7)
    assert surrogate_is_below_one == pytest.approx(np.exp(exact), abs=4 * np.sqrt(np.exp(exact) / 20_000))


def test_few_blocks_are_evaluated() -> None:
    rng, decider = np.random.default_rng(1), MODEL.decider(MODEL.anchor)
    close = MODEL.anchor + np.array([0.03, 0.02])
    decisions = [decider.decide(close, -50.0, 0.0, rng.bit_generator.capsule) for _ in range(300)]
    assert np.mean([one.n_obs_used for one in decisions]) < 0.02 * N
    assert decider.n_candidates == sum(one.n_looks for one in decisions)
    assert 0 <= decider.bound_tightness <= 1


def test_a_bound_that_does_not_hold_is_an_error_that_names_the_block() -> None:
    r = MODEL.remainders(NEAR, FAR)
    w = [np.linalg.norm(MODEL.bounds.whitening @ (point - MODEL.anchor)) for point in (NEAR, FAR)]
    needed = np.abs(r) / sum(length**3 for length in w)
    small = replace(MODEL.bounds, radii=np.array([np.inf]), constants=0.5 * needed[np.newaxis])
    rng = np.random.default_rng(2)

    def some_decisions() -> None:
        for _ in range(2000):
            MODEL.decider(NEAR, small).decide(FAR, -50.0, 0.0, rng.bit_generator.capsule)

    with pytest.raises(RuntimeError, match=r"the remainder of block \d+ is .*was proved to be at most"):
        some_decisions()


def test_learned_bounds_that_do_not_hold_are_counted_and_taken_for_the_remainder() -> None:
    """The acceptance probability has every factor clipped at its bound, and audits tell by how much it is too large."""
    r = MODEL.remainders(FAR, NEAR)
    w = sum(np.linalg.norm(MODEL.bounds.whitening @ (point - MODEL.anchor)) ** 3 for point in (NEAR, FAR))
    rows = 0.3 * np.abs(r)[np.newaxis] / w
    small = replace(MODEL.bounds, radii=np.array([np.inf]), constants=rows, proved=False)
    exact, n, rng = MODEL.acceptance(FAR, NEAR), 20_000, np.random.default_rng(2)
    # What rounding adds to the bounds is far below the tolerance.
    clipped = exact * np.exp(0.7 * np.maximum(0, -r).sum())
    decider, accepted = MODEL.decider(FAR, small), 0
    for _ in range(n):
        decision = decider.decide(NEAR, np.log1p(-rng.random()), 0.0, rng.bit_generator.capsule, audit=True)
        assert not decision.audited
        accepted += decision.accepted
        if decision.accepted:
            decider.reset(FAR)
    assert abs(accepted / n - clipped) < 4 * np.sqrt(clipped * (1 - clipped) / n) < 0.3 * (clipped - exact)
    assert decider.n_audited_acceptances == n
    assert decider.acceptance_error / n == pytest.approx(clipped - exact, rel=1e-3)
    assert decider.n_bound_violated > 0
    assert decider.bound_tightness == pytest.approx(1 / 0.3, rel=1e-3)


def test_beyond_the_last_radius_all_blocks_are_evaluated() -> None:
    small = replace(MODEL.bounds, radii=MODEL.bounds.radii[:1] * 0 + 1e-3, constants=MODEL.bounds.constants[:1])
    rng = np.random.default_rng(2)
    decision = MODEL.decider(NEAR, small).decide(FAR, -50.0, 0.0, rng.bit_generator.capsule)
    assert decision.n_obs_used == N


def test_both_directions_of_a_move_agree_on_whether_all_blocks_are_evaluated() -> None:
    """Otherwise one of them would be accepted with Metropolis-Hastings' probability and the other with the product."""
    rng, seen = np.random.default_rng(6), []
    for _ in range(200):
        scales = rng.uniform(0.1, 5, (2, 1))
        pair = MODEL.anchor + np.linalg.solve(MODEL.bounds.whitening, (scales * rng.standard_normal((2, DIM))).T).T
        ways = [
            MODEL.decider(here, share=0.3).decide(there, -50.0, 0.0, rng.bit_generator.capsule)
            for here, there in (pair, pair[::-1])
        ]
        seen.append([one.n_obs_used == N for one in ways])
    assert 0.1 < np.mean(seen) < 0.9
    assert all(forth == back for forth, back in seen)


def test_bounds_hold_everywhere_and_not_by_much_less() -> None:
    """Against the largest remainder found by search: a bound a hundred times too large would cost as much."""
    rng = np.random.default_rng(4)
    tightest = 0.0
    for _ in range(300):
        theta = MODEL.anchor + np.linalg.solve(MODEL.bounds.whitening, rng.standard_normal(DIM) * rng.uniform(0.1, 4))
        w = np.linalg.norm(MODEL.bounds.whitening @ (theta - MODEL.anchor))
        level = int(np.searchsorted(MODEL.bounds.radii, w))
        shares = np.abs(MODEL.remainders(MODEL.anchor, theta)) / (MODEL.bounds.constants[level] * w**3 + 1e-6)
        tightest = max(tightest, shares.max())
    assert 0.02 < tightest < 1


def test_bounds_are_needed() -> None:
    with pytest.raises(InputError, match="needs control variates with bounds on their remainders"):
        make_decider(MODEL.factors.evaluator(), MODEL.factors.blocks.sizes, Factorised())
    with pytest.raises(ValueError, match="need control variates of their order"):
        Decider(
            MODEL.factors.evaluator(),
            MODEL.factors.blocks.sizes,
            _whole(len(MODEL.factors.blocks)),
            bounds=MODEL.bounds.compiled(),
        )
