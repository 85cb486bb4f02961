"""Bounds on approximate chains, against chains with few states whose errors are known exactly."""

from __future__ import annotations

import itertools
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stansub.errors import InputError
from stansub.planning import theory

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "papers"))
from finite_chains import Pair, absorbed, doeblin, stationary, total_variation, two_states
from stated_bounds import any_start_bound

Array = NDArray[np.float64]

# Rounding of sums over some hundred steps.
ROUNDING = 1e-12
LENGTHS = (1, 2, 3, 7, 30, 100)


def random_pairs(n: int, *, seed: int) -> list[Pair]:
    """Kernels on two to four states, from nearly absorbing to nearly independent, each with an approximation."""
    rng = np.random.default_rng(seed)
    pairs: list[Pair] = []
    while len(pairs) < n:
        k = int(rng.integers(2, 5))
        exact = rng.dirichlet(np.full(k, rng.choice([0.1, 0.5, 2.0])), size=k)
        exact = exact + rng.uniform() * (np.eye(k) - exact)
        other = rng.dirichlet(np.full(k, 0.2), size=k)
        if rng.uniform() < 0.5:  # errors all in one direction do the most harm
            other = np.tile(other[0], (k, 1))
        pair = Pair(exact, exact + rng.uniform() * (other - exact))
        if pair.alpha > 1e-3 and pair.epsilon < pair.alpha / 2:
            pairs.append(pair)
    return pairs


PAIRS = [
    *random_pairs(30, seed=1),
    *(two_states(alpha, share * alpha) for alpha in (0.05, 0.5, 0.9) for share in (0, 0.2, 0.45)),
    *(absorbed(alpha, share * alpha) for alpha in (0.05, 0.5, 0.9) for share in (0, 0.2, 0.45)),
]


def starts(pair: Pair) -> list[Array]:
    """Every state, and both stationary distributions."""
    return [*np.eye(len(pair.exact)), stationary(pair.exact), stationary(pair.approximate)]


def distance(pair: Pair, start: Array) -> float:
    """Of a start from the exact stationary distribution."""
    return min(1.0, total_variation(start, stationary(pair.exact)))


def metropolis(target: Array, proposal: Array, rng: np.random.Generator | None = None, error: float = 0.0) -> Array:
    """Metropolis-Hastings; with a generator, acceptance probabilities are off by the error, up or down."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (target * proposal.T) / (target[:, None] * proposal)
    accept = np.minimum(1.0, np.nan_to_num(ratio))
    if rng is not None:
        accept = np.clip(accept + error * rng.choice([-1.0, 1.0], accept.shape), 0.0, 1.0)
    kernel = proposal * accept
    np.fill_diagonal(kernel, 0.0)
    return np.asarray(kernel + np.diag(1 - kernel.sum(axis=1)))


# The tools themselves, against paths one by one


def test_exact_errors_are_those_of_all_paths() -> None:
    for pair in random_pairs(4, seed=2):
        k, n = len(pair.exact), 5
        start, values = np.arange(1.0, k + 1) / (k * (k + 1) / 2), np.linspace(-1, 0.5, k) ** 3
        truth = stationary(pair.exact) @ values
        found, visits = 0.0, np.zeros(k)
        for path in itertools.product(range(k), repeat=n):
            weight = start[path[0]] * np.prod([pair.approximate[a, b] for a, b in itertools.pairwise(path)])
            found += weight * (values[list(path)].mean() - truth) ** 2
            visits += weight * np.bincount(path, minlength=k) / n
        assert pair.mean_square(n, start, values) == pytest.approx(found, rel=1e-10)
        expected = total_variation(stationary(pair.exact), visits)
        assert pair.average_distance(n, start) == pytest.approx(expected, rel=1e-10)


def test_no_function_errs_more_than_the_worst() -> None:
    rng = np.random.default_rng(3)
    for pair in random_pairs(4, seed=3):
        start = np.eye(len(pair.exact))[0]
        worst = pair.worst_mean_square(9, start)
        some = [pair.mean_square(9, start, rng.uniform(-1, 1, len(start))) for _ in range(50)]
        assert max(some) <= worst + ROUNDING


# Closed forms


@pytest.mark.parametrize(("n", "alpha"), [(1, 0.3), (2, 0.01), (17, 0.25), (400, 1e-4), (400, 0.9), (5, 1.0), (5, 0.0)])
def test_correlated_variance_is_the_sum_over_pairs(n: int, alpha: float) -> None:
    lags = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    assert theory.correlated_variance(n, alpha) == pytest.approx(((1 - alpha) ** lags).sum() / n**2, rel=1e-12)


@pytest.mark.parametrize("alpha", [Fraction(1, 10), Fraction(1, 10**4), Fraction(1, 10**9)])
@pytest.mark.parametrize("n", [1, 3, 11, 101])
def test_correlated_variance_is_that_of_theorem_2_5(n: int, alpha: Fraction) -> None:
    # As the paper writes it: in floating point its terms are as large as 1 / (alpha n)^2, and cancel.
    power = (1 - alpha) ** (n + 1)
    paper = 2 / (alpha * n) + 2 / (alpha * n**2) + 2 * power / (alpha * n) ** 2 - Fraction(1, n) - 2 / (alpha * n) ** 2
    assert theory.correlated_variance(n, float(alpha)) == pytest.approx(float(paper), rel=1e-12)


@pytest.mark.parametrize(("n", "alpha"), [(1, 0.1), (25, 0.1), (10_000, 0.1), (9, 1e-4), (11, 1e-4), (10**6, 1e-4)])
def test_average_bound_is_that_of_theorem_2_4(n: int, alpha: float) -> None:
    exact, epsilon, start = Fraction(alpha), Fraction(alpha) / 3, Fraction(7, 10)
    left = 1 - (1 - exact) ** n if n < 1000 else Fraction(-np.expm1(n * np.log1p(-alpha)))
    paper = left * start / (n * exact) - epsilon * left / (n * exact**2) + epsilon / exact
    assert theory.average_bound(n, alpha / 3, alpha, start=0.7) == pytest.approx(float(paper), rel=1e-11)


def test_mixing_times_are_those_of_table_1() -> None:
    table = {
        0.1: (44, 66, 87),
        0.01: (458, 687, 916),
        0.001: (4603, 6904, 9206),
        0.0001: (46049, 69074, 92099),
    }
    for alpha, row in table.items():
        assert tuple(np.round(theory.mixing_time(np.array([1e-2, 1e-3, 1e-4]), alpha))) == row
    # The table rounds, here downward: 87 steps are not enough.
    assert theory.step_bound(87, 0.0, 0.1) > 1e-4 > theory.step_bound(88, 0.0, 0.1)


def test_arrays_broadcast() -> None:
    n, epsilon = np.array([[1.0], [50.0], [1e5]]), np.array([0.0, 1e-3, 0.02])
    for bound in (theory.average_bound, theory.mean_square_bound, theory.risk_bound, theory.step_bound):
        together = np.asarray(bound(n, epsilon, 0.05))
        assert together.shape == (3, 3)
        assert together[1, 2] == pytest.approx(bound(50, 0.02, 0.05), rel=1e-14)


# Section 2.3


@pytest.mark.parametrize("alpha", [0.001, 0.2, 0.8])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.49])
def test_two_states_attain_the_bounds(alpha: float, share: float) -> None:
    epsilon = share * alpha
    pair = two_states(alpha, epsilon)
    assert (pair.alpha, pair.epsilon, pair.mixing) == pytest.approx((alpha, epsilon, alpha), abs=1e-14)
    own = stationary(pair.approximate)
    assert own == pytest.approx([0.5 + share, 0.5 - share], abs=1e-12)
    assert total_variation(stationary(pair.exact), own) == pytest.approx(theory.stationary_bound(epsilon, alpha))
    for n in LENGTHS:
        # Where the chain starts on the side that it errs to, theorem 2.4 is an equation.
        start = np.array([1.0, 0.0])
        assert pair.average_distance(n, start) == pytest.approx(theory.average_bound(n, epsilon, alpha, start=0.5))
        law = start @ np.linalg.matrix_power(pair.approximate, n)
        assert total_variation(law, [0.5, 0.5]) == pytest.approx(theory.step_bound(n, epsilon, alpha, start=0.5))
        # The paper's last equation of the section.
        bias = 4 * share**2
        found = pair.mean_square(n, own, np.array([-1.0, 1.0]))
        assert found == pytest.approx(bias + theory.correlated_variance(n, alpha) * (1 - bias), rel=1e-9)
        if not share:
            assert found == pytest.approx(theory.risk_bound(n, 0.0, alpha, start=0.0), rel=1e-9)
            assert 2 * found == pytest.approx(theory.mean_square_bound(n, 0.0, alpha), rel=1e-9)


# Bounds are bounds


def test_mixing_of_the_approximation_is_within_remark_2_1() -> None:
    for pair in PAIRS:
        assert abs(pair.mixing - pair.alpha) <= 2 * pair.epsilon + ROUNDING


def test_total_variation_is_never_above_its_bounds() -> None:
    for pair in PAIRS:
        stationary_distance = total_variation(stationary(pair.exact), stationary(pair.approximate))
        assert stationary_distance <= theory.stationary_bound(pair.epsilon, pair.alpha) + ROUNDING
        for start, n in itertools.product(starts(pair), LENGTHS):
            bound = theory.average_bound(n, pair.epsilon, pair.alpha, start=distance(pair, start))
            assert pair.average_distance(n, start) <= bound + ROUNDING


def test_mean_errors_of_the_kernel_will_do() -> None:
    # What an audit estimates: the mean over the states of the approximate chain, not the largest.
    sharper = 0
    for pair in PAIRS:
        each = np.abs(pair.exact - pair.approximate).sum(axis=1) / 2
        own = stationary(pair.approximate)
        bound = theory.stationary_bound(float(own @ each), pair.alpha)
        assert total_variation(stationary(pair.exact), own) <= bound + ROUNDING
        sharper += bound < 0.9 * theory.stationary_bound(pair.epsilon, pair.alpha)
        law, states, mean = np.eye(len(own))[0], 25, 0.0
        from_here = law
        for _ in range(states):
            law, mean = law @ pair.approximate, mean + float(law @ each) / states
        decay = theory.average_bound(states, 0.0, pair.alpha, start=distance(pair, from_here))
        assert pair.average_distance(states, from_here) <= decay + mean / pair.alpha + ROUNDING
    assert sharper > 10


def test_mean_square_errors_are_never_above_their_bounds() -> None:
    for pair, n in itertools.product(PAIRS, LENGTHS):
        own = stationary(pair.approximate)
        found = pair.worst_mean_square(n, own)
        apart = min(1.0, pair.epsilon / pair.alpha)
        sharp = theory.risk_bound(n, pair.epsilon, pair.alpha, mixing=pair.mixing, start=apart)
        paper = theory.mean_square_bound(n, pair.epsilon, pair.alpha, mixing=pair.mixing)
        assert found <= sharp + ROUNDING
        assert sharp < paper <= theory.mean_square_bound(n, pair.epsilon, pair.alpha) + ROUNDING
        for start in starts(pair):
            bound = theory.risk_bound(n, pair.epsilon, pair.alpha, mixing=pair.mixing, start=distance(pair, start))
            assert pair.worst_mean_square(n, start) <= bound + ROUNDING


def test_theorem_2_6_does_not_hold_as_it_stands() -> None:
    pair = absorbed(0.5, 0.24)
    start, values = np.array([1.0, 0.0]), np.array([-1.0, 1.0])
    # Its assumptions hold, with a margin, and the start is absolutely continuous.
    assert pair.alpha == pytest.approx(0.5)
    assert pair.epsilon < 0.2401 < pair.alpha / 2
    assert stationary(pair.approximate).min() > 0.4
    found = pair.mean_square(30, start, values)
    assert found > 1.01 * any_start_bound(30, 0.2401, 0.5 - ROUNDING, mixing=pair.mixing)
    assert found <= theory.risk_bound(30, 0.2401, 0.5 - ROUNDING, mixing=pair.mixing)
    # Away from stationarity by the start alone it does hold.
    assert absorbed(0.5, 0.0).mean_square(30, start, values) < any_start_bound(30, 0.0, 0.5)


# Controls: whoever claims what is not so exceeds the bounds


def test_a_chain_that_mixes_less_than_is_claimed_breaks_the_bounds() -> None:
    slow, claimed = two_states(0.05, 0.02), 0.1
    own, start = stationary(slow.approximate), np.array([1.0, 0.0])
    assert total_variation(stationary(slow.exact), own) > theory.stationary_bound(slow.epsilon, claimed)
    assert slow.average_distance(50, start) > theory.average_bound(50, slow.epsilon, claimed, start=0.5)
    calm = two_states(0.05, 0.0)
    assert calm.worst_mean_square(50, own) > theory.risk_bound(50, 0.0, claimed, start=0.4)
    # Twice the variance hides a factor of two in alpha, not of three.
    assert calm.worst_mean_square(500, stationary(calm.exact)) > theory.mean_square_bound(500, 0.0, 0.15)


def test_a_kernel_that_is_further_off_than_is_claimed_breaks_the_bounds() -> None:
    far, claimed = two_states(0.2, 0.08), 0.04
    own = stationary(far.approximate)
    assert total_variation(stationary(far.exact), own) > theory.stationary_bound(claimed, far.alpha)
    assert far.average_distance(2000, own) > theory.average_bound(2000, claimed, far.alpha, start=0.4)
    assert far.worst_mean_square(2000, own) > theory.risk_bound(2000, claimed, far.alpha, start=0.4)


def test_a_chain_without_doeblins_condition_has_no_bound() -> None:
    stuck = Pair(np.eye(2), np.array([[1.0, 0.0], [1e-6, 1 - 1e-6]]))
    assert stuck.alpha == 0
    # Whatever epsilon is, the stationary distributions of reducible chains may be anything apart.
    assert total_variation(np.array([0.0, 1.0]), stationary(stuck.approximate)) == pytest.approx(1.0)
    with pytest.raises(InputError, match="alpha must be positive"):
        theory.stationary_bound(stuck.epsilon, stuck.alpha)


# Metropolis-Hastings with decisions that err


def test_austerity_and_concentration_bounds_on_metropolis_chains() -> None:
    rng = np.random.default_rng(4)
    closest = 0.0
    for _ in range(60):
        k, error = int(rng.integers(2, 6)), float(rng.uniform(0.01, 0.1))
        target, proposal = rng.dirichlet(np.ones(k)), np.tile(rng.dirichlet(np.ones(k)), (k, 1))
        exact = metropolis(target, proposal)
        assert stationary(exact) == pytest.approx(target, abs=1e-10)
        found = total_variation(target, stationary(metropolis(target, proposal, rng, error)))
        # Theorem 1 of Korattikara et al.: any contraction towards the target.
        assert found <= theory.austerity_bound(error, 1 - doeblin(exact)) + ROUNDING
        # Proposition 3.2 of Bardenet et al.: the common part of all rows, after some steps.
        for m in (1, 3):
            common = np.linalg.matrix_power(exact, m).min(axis=0).sum()
            bound = theory.concentration_bound(error, 1 - common, m=m)
            assert found <= bound + ROUNDING
            closest = max(closest, found / float(bound))
    assert closest > 0.2, "bounds that are never near are no test"


def test_a_constant_below_1_would_not_do_in_proposition_3_2() -> None:
    # Independent draws satisfy equation 15 with A = 0, for it leaves k = 0 out; what is off by delta stays off.
    exact = np.full((2, 2), 0.5)
    pair = Pair(exact, exact + 0.1 * np.array([[1.0, -1.0], [1.0, -1.0]]))
    found = total_variation(stationary(pair.exact), stationary(pair.approximate))
    assert found == pytest.approx(theory.concentration_bound(0.1, 0.0))
    with pytest.raises(InputError, match="at least 1"):
        theory.concentration_bound(0.1, 0.0, constant=0.5)


def test_an_independence_sampler_contracts_by_its_largest_ratio() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        k = int(rng.integers(2, 6))
        target, proposal = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k))
        exact = metropolis(target, np.tile(proposal, (k, 1)))
        largest = float((target / proposal).max())
        assert doeblin(exact) == pytest.approx(theory.independence_alpha(largest), rel=1e-9)
    # Control: not so of proposals that depend on the state.
    walk = metropolis(np.full(3, 1 / 3), np.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.5]]))
    assert doeblin(walk) < theory.independence_alpha(1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.average_bound(0, 0.0, 0.1), "n must be in"),
        (lambda: theory.average_bound(5, 0.2, 0.1), "epsilon must be in"),
        (lambda: theory.average_bound(5, np.nan, 0.1), "epsilon must be in"),
        (lambda: theory.average_bound(5, 0.01, 0.1, start=1.5), "start must be in"),
        (lambda: theory.stationary_bound(0.1, 1.5), "alpha must be in"),
        (lambda: theory.risk_bound(5, 0.08, 0.1), "at most alpha / 2"),
        (lambda: theory.mixing_time(0.0, 0.1), "delta must be in"),
        (lambda: theory.austerity_bound(0.1, 1.0), "contraction must be below 1"),
        (lambda: theory.independence_alpha(0.9), "largest_ratio must be in"),
    ],
)
def test_what_bounds_do_not_take(call, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=message):
        call()
