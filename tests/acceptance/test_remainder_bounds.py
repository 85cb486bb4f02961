"""Bounds on derivatives: a promise about the remainders of control variates that holds wherever the pair is."""

import numpy as np
import pytest
from populations import Model, ReferenceLoop, features, logistic, taylor

from stansub._loop import Surrogate
from stansub.acceptance.decide import make_decider
from stansub.acceptance.ranges import Derivative, Lipschitz
from stansub.acceptance.rules import Geometric, make_test
from stansub.errors import InputError

ANCHOR = np.array([0.25, 0.1, 0.3])
DIM, N = 3, 200
# Largest second and third derivatives of log(1 + exp(eta)).
STEEPEST = {1: 1 / 4, 2: 1 / (6 * np.sqrt(3))}


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(1).normal(0.5, 1, (N, DIM))


@pytest.fixture(scope="module")
def model(x):
    return logistic(x)


def constant(x, order):
    return STEEPEST[order] * (np.linalg.norm(x, axis=1) ** (order + 1)).max()


def largest(constant, order, theta, theta_new, rows):
    """By Taylor's theorem, and rounding."""
    far = [np.linalg.norm(point - ANCHOR) ** (order + 1) for point in (theta, theta_new)]
    w = features(theta, theta_new, ANCHOR, rows.shape[1])
    rounding = 2.0**-22 * np.linalg.norm(rows.astype(float), axis=1).max() * np.linalg.norm(w)
    return constant / (2 if order == 1 else 6) * sum(far) + rounding


def remainders(model, rows, theta, theta_new):
    differences = model.evaluator().block_log_lik(theta_new) - model.evaluator().block_log_lik(theta)
    return differences - rows.astype(float) @ features(theta, theta_new, ANCHOR, rows.shape[1])


def pairs(rng, n, lengths):
    """Pairs at random distances from the anchor, in random directions."""
    directions = rng.normal(size=(n, 2, DIM))
    directions /= np.linalg.norm(directions, axis=2, keepdims=True)
    return ANCHOR + directions * 10.0 ** rng.uniform(*np.log10(lengths), size=(n, 2, 1))


def test_the_derivatives_of_the_logistic_likelihood():
    eta = np.linspace(-8, 8, 100_001)
    p = 1 / (1 + np.exp(-eta))
    for order, slope in ((1, p * (1 - p)), (2, np.abs(p * (1 - p) * (1 - 2 * p)))):
        assert slope.max() <= STEEPEST[order] * (1 + 1e-12)
        assert slope.max() > 0.999 * STEEPEST[order]


@pytest.mark.parametrize("order", [1, 2])
def test_no_remainder_exceeds_the_bound(model, x, order):
    rows, bound = taylor(model, ANCHOR, order), constant(x, order)
    shares = []
    # From where rounding is nearly all of a remainder to where the expansion is good for nothing.
    for theta, theta_new in pairs(np.random.default_rng(2), 400, (1e-6, 3)):
        found = np.abs(remainders(model, rows, theta, theta_new)).max()
        shares.append(found / largest(bound, order, theta, theta_new, rows))
    assert max(shares) <= 1
    assert max(shares) > 0.1, "a bound that is ten times as large as it need be is worth little"


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("factor", "broken"), [(1.0, False), (0.1, True)])
def test_a_bound_that_does_not_hold_is_seen(model, x, order, factor, broken):
    rows, seen = taylor(model, ANCHOR, order), 0
    spread = Derivative(factor * constant(x, order), order)
    decider = make_decider(
        model.evaluator(),
        model.blocks.sizes,
        make_test("bernstein"),
        spread=spread,
        surrogate=Surrogate([ANCHOR], (rows,)),
    )
    rng = np.random.default_rng(3)
    for theta, theta_new in pairs(rng, 100, (0.1, 0.3)):
        decider.reset(theta)
        seen += decider.decide(theta_new, 0.0, 0.0, rng.bit_generator.capsule).bound_violated
    assert (seen > 10) == broken
    assert (seen == 0) != broken


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", ["hoeffding", "bernstein", "bernstein-serfling"])
def test_decisions_are_those_of_the_range_by_definition(model, x, order, name):
    rows, bound = taylor(model, ANCHOR, order), constant(x, order)
    theta, theta_new = ANCHOR + np.array([[0.02, -0.01, 0.03], [-0.02, 0.02, 0.01]])
    test = make_test(name, looks=Geometric(first=8))
    decider = make_decider(
        model.evaluator(),
        model.blocks.sizes,
        test,
        spread=Derivative(bound, order),
        surrogate=Surrogate([ANCHOR], (rows,)),
    )
    rest = model.evaluator().global_log_density(theta_new) - model.evaluator().global_log_density(theta)
    seen = remainders(model, rows, theta, theta_new)
    rest += rows.sum(0, dtype=float) @ features(theta, theta_new, ANCHOR, rows.shape[1])
    width = 2 * largest(bound, order, theta, theta_new, rows)
    plain, looks = ReferenceLoop(test.table(N)), set()
    rng, plain_rng = np.random.default_rng(4), np.random.default_rng(4)
    for gap in np.random.default_rng(5).normal(0, np.repeat([0.5, 2, 5], 30) * N * width):
        log_u = seen.sum() + rest + gap
        decider.reset(theta)
        got = decider.decide(theta_new, log_u, 0.0, rng.bit_generator.capsule)
        want = plain.decide(seen, rest, log_u, plain_rng, width)
        assert (got.accepted, got.n_obs_used, got.n_looks) == want[:3]
        looks.add(want.looks)
    assert len(looks) > 2


@pytest.mark.parametrize("scaled", [1.0, 1e-3])
def test_wrong_decisions_stay_within_delta(scaled):
    """One block in a hundred has all of the remainder: the range is needed, for most subsets see nothing of it."""
    outlier, bend = np.arange(N) % 100 == 0, 6.0

    def blocks(theta, which):
        return np.where(outlier[which], bend / 6 * theta[0] ** 3, 0.0)

    model, rows = Model(1, N, blocks), np.zeros((N, 2), np.float32)
    decider = make_decider(
        model.evaluator(),
        model.blocks.sizes,
        make_test("bernstein", delta=0.05, looks=Geometric(first=16)),
        spread=Derivative(scaled * bend, 2),
        surrogate=Surrogate([np.zeros(1)], (rows,)),
    )
    rng, wrong, early = np.random.default_rng(6), 0, 0
    total = model.evaluator().block_log_lik(np.ones(1)).sum()
    for gap in np.repeat([-1.5, 0.5, 400.0, -400.0], 100):
        decider.reset(np.zeros(1))
        got = decider.decide(np.ones(1), total - gap, 0.0, rng.bit_generator.capsule, True)
        wrong += got.wrong
        early += got.n_obs_used < N
    assert early > 0
    assert (wrong <= 0.05 * 400) == (scaled == 1.0)


def test_a_bound_is_for_control_variates_of_its_order(model):
    rows = taylor(model, ANCHOR, 2)
    given, second = {"spread": Derivative(1.0, 1)}, Surrogate([ANCHOR], (rows,))
    with pytest.raises(InputError, match="order 1, not of order 2"):
        make_decider(model.evaluator(), model.blocks.sizes, make_test("bernstein"), surrogate=second, **given)
    with pytest.raises(InputError, match="order 1, not of order 0"):
        make_decider(model.evaluator(), model.blocks.sizes, make_test("bernstein"), **given)
    for made in (Derivative, lambda value, _: Lipschitz(value)):
        with pytest.raises(InputError, match="finite and not negative"):
            made(-1.0, 2)
