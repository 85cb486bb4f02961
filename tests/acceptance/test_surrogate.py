"""Decisions with control variates: the identities of the estimator, and the loop against its definition."""

from itertools import combinations

import numpy as np
import pytest
from generators import capsule
from populations import Model, ReferenceLoop, features, linear, logistic, taylor

from stansub._loop import Decider, Surrogate, Table
from stansub.acceptance.decide import make_decider
from stansub.acceptance.ranges import Estimate, Lipschitz, Scan
from stansub.acceptance.rules import Austerity, Exact, Fixed, Geometric, make_test

SMALL = Geometric(first=8)
FIRST = np.array([0.3, -0.2, 0.5])
SECOND = np.array([0.1, 0.4, 0.2])
ANCHOR = np.array([0.25, 0.1, 0.3])


def make(model, test, start, rows, *, anchor=ANCHOR, spread=None):
    surrogate = None if rows is None else Surrogate([anchor], (rows,))
    decider = make_decider(model.evaluator(), model.blocks.sizes, test, spread=spread, surrogate=surrogate)
    decider.reset(start)
    return decider


def differences(model, theta=FIRST, theta_new=SECOND):
    return model.evaluator().block_log_lik(theta_new) - model.evaluator().block_log_lik(theta)


def full_log_ratio(model, log_q_ratio=0.0):
    shared = [model.evaluator().global_log_density(theta) for theta in (SECOND, FIRST)]
    return differences(model).sum() + shared[0] - shared[1] + log_q_ratio


def regression(n=60, dim=3, seed=1):
    return logistic(np.random.default_rng(seed).normal(0.5, 1, (n, dim)))


def quadratic(n=40, curvature=1.0):
    """l_b(theta) = g_b.theta - theta' P_b theta / 2."""
    rng = np.random.default_rng(2)
    slope, root = rng.normal(size=(n, 3)), rng.normal(size=(n, 3, 3))
    p = curvature * root @ root.swapaxes(1, 2)
    return Model(
        3,
        n,
        lambda theta, which: slope[which] @ theta - 0.5 * np.einsum("i,nij,j->n", theta, p[which], theta),
        slopes=lambda theta, which: slope[which] - p[which] @ theta,
    )


def estimates(model, rows, n_drawn, *, log_q_ratio=0.0):
    """Estimates of the log ratio from every subset of ``n_drawn`` blocks, each from a decision at its first look."""
    n_units = len(model.blocks.sizes)
    test = Austerity(epsilon=0.49, looks=Geometric(first=n_drawn, growth=n_units))
    decider, found = make(model, test, FIRST, rows), {}
    wanted = {frozenset(drawn) for drawn in combinations(range(n_units), n_drawn)}
    for seed in range(4000):
        model.asked.clear()
        decider.reset(FIRST)
        got = decider.decide(SECOND, -1e9, log_q_ratio, capsule(np.random.default_rng(seed)))
        assert (got.n_looks, got.n_obs_used) == (1, n_drawn)
        found[frozenset(model.asked[0].tolist())] = got.log_ratio
        if found.keys() == wanted:
            return np.array(list(found.values()))
    raise AssertionError("not all subsets were drawn")


class TestEstimator:
    @pytest.mark.parametrize("order", [0, 1, 2])
    def test_is_unbiased_over_all_subsets(self, order):
        model = regression(7)
        rows = taylor(model, ANCHOR, order) if order else None
        found, truth = estimates(model, rows, 3, log_q_ratio=0.3), full_log_ratio(model, 0.3)
        assert found.mean() == pytest.approx(truth, abs=1e-13)
        assert found.std() > 1e-6
        # the scaling M / n stands in it once
        known = 0.0 if rows is None else rows.sum(0, dtype=float) @ features(FIRST, SECOND, ANCHOR, rows.shape[1])
        rest = truth - differences(model).sum() + known
        doubled = 2 * (found - rest) + rest
        assert abs(doubled.mean() - truth) > 1e-6

    def test_is_sharper_the_higher_the_order(self):
        model = regression(7)
        spread = [
            estimates(model, rows, 3).std() for rows in (None, taylor(model, ANCHOR, 1), taylor(model, ANCHOR, 2))
        ]
        assert spread[0] > 5 * spread[1] > 25 * spread[2]

    def test_is_the_full_log_ratio_when_all_blocks_but_one_are_drawn_and_they_are_alike(self):
        """A population of equal remainders but for rounding: any subset gives the total."""
        x = np.repeat(np.array([[0.4, -0.3, 0.8]]), 20, axis=0) * (1 + 1e-9 * np.arange(20)[:, np.newaxis])
        model = logistic(x)
        found = estimates(model, taylor(model, ANCHOR, 2), 19)
        np.testing.assert_allclose(found, full_log_ratio(model), rtol=1e-7)

    @pytest.mark.parametrize(
        ("order", "model"), [(1, quadratic(curvature=0.0)), (2, quadratic())], ids=["linear", "quadratic"]
    )
    def test_is_exact_where_the_expansion_is(self, order, model):
        truth = full_log_ratio(model)
        rounding = len(model.blocks.sizes) * 1e-6
        test = Austerity(epsilon=0.4, looks=Geometric(first=5))
        for rows, exact in ((taylor(model, ANCHOR, order), True), (None, False)):
            decider, errors = make(model, test, FIRST, rows), []
            for seed in range(20):
                decider.reset(FIRST)
                got = decider.decide(SECOND, -1e9, 0.0, capsule(np.random.default_rng(seed)))
                assert got.n_obs_used == 5
                errors.append(abs(got.log_ratio - truth))
            assert (max(errors) < rounding) == exact
            assert exact or np.median(errors) > 0.1

    def test_coarse_storage_leaves_it_unbiased(self):
        """The total is of the numbers that are stored."""
        model = regression(7)
        exact = taylor(model, ANCHOR, 2)
        coarse = exact.astype(np.float16).astype(np.float32)
        truth, found = full_log_ratio(model), estimates(model, coarse, 3)
        assert found.mean() == pytest.approx(truth, abs=1e-13)
        lost = (exact.sum(0, dtype=float) - coarse.sum(0, dtype=float)) @ features(FIRST, SECOND, ANCHOR, 9)
        assert abs(lost) > 1e-5, "the total of other numbers would have been off"

    def test_total_of_many_blocks_is_summed_in_double(self):
        values = np.random.default_rng(4).uniform(0, 0.2, 1_000_000)
        rows = values.astype(np.float32)[:, np.newaxis]
        model = linear(values)
        decider = make(model, Austerity(epsilon=0.4, looks=Geometric(first=10)), np.zeros(1), rows, anchor=np.zeros(1))
        got = decider.decide(np.ones(1), -1e9, 0.0, capsule(np.random.default_rng(1)))
        assert got.n_obs_used == 10
        assert got.log_ratio == pytest.approx(values.sum(), abs=0.01)
        assert abs(np.cumsum(rows[:, 0])[-1] - values.sum()) > 0.1, "one after the other in float32"


class TestDefinition:
    @pytest.mark.parametrize(
        ("order", "spread", "name"),
        [
            pytest.param(order, spread, name, marks=() if (order + i + j) % 2 else pytest.mark.slow)
            for order in (1, 2)
            for i, spread in enumerate(("bound", "scan", "estimate"))
            for j, name in enumerate(("austerity", "pocock", "hoeffding", "bernstein", "bernstein-serfling"))
        ],
    )
    def test_agrees_with_the_plain_loop_on_remainders(self, name, spread, order):
        model = regression(300)
        rows = taylor(model, ANCHOR, order)
        w = features(FIRST, SECOND, ANCHOR, rows.shape[1])
        remainders = differences(model) - rows.astype(float) @ w
        rest = full_log_ratio(model) - differences(model).sum() + rows.sum(0, dtype=float) @ w
        width = np.ptp(remainders)
        constant = width / 2 / np.linalg.norm(SECOND - FIRST)
        source = {"bound": Lipschitz(constant), "scan": Scan(), "estimate": Estimate()}[spread]
        test = make_test(name, epsilon=0.05 if name in ("austerity", "pocock") else None, looks=SMALL)
        decider, plain = make(model, test, FIRST, rows, spread=source), ReferenceLoop(test.table(300))
        rng, plain_rng = np.random.default_rng(2), np.random.default_rng(2)
        sd, looks = 300 * remainders.std(), set()
        for gap in np.random.default_rng(3).normal(0, np.repeat([0.4 * sd, 8 * sd], 60)):
            log_u = remainders.sum() + rest + gap
            decider.reset(FIRST)
            got = decider.decide(SECOND, log_u, 0.0, capsule(rng))
            want = plain.decide(remainders, rest, log_u, plain_rng, None if spread == "estimate" else width)
            assert (got.accepted, got.n_obs_used, got.n_looks) == want[:3]
            assert got.log_ratio == pytest.approx(want.log_ratio, rel=1e-10, abs=1e-10)
            assert not got.bound_violated
            looks.add(want.looks)
        assert rng.random() == plain_rng.random()
        assert len(looks) > 2

    def test_a_promise_is_about_remainders(self):
        model = regression(300)
        rows = taylor(model, ANCHOR, 1)
        remainders = differences(model) - rows @ features(FIRST, SECOND, ANCHOR, 3)
        distance = np.linalg.norm(SECOND - FIRST)
        for width, broken in ((np.ptp(remainders), False), (0.3 * np.ptp(remainders), True)):
            spread = Lipschitz(width / 2 / distance)
            # one that is far and one that all blocks are needed for
            for log_u in (-1e9, full_log_ratio(model) - 1e-9):
                decider = make(model, make_test("bernstein"), FIRST, rows, spread=spread)
                got = decider.decide(SECOND, log_u, 0.0, capsule(np.random.default_rng(2)))
                assert got.bound_violated == broken

    @pytest.mark.parametrize("name", ["exact", "austerity"])
    def test_the_last_look_and_audits_do_without(self, name):
        model = regression(40)
        nonsense = np.random.default_rng(5).normal(0, 1e3, (40, 9)).astype(np.float32)
        test = Exact() if name == "exact" else Austerity(epsilon=1e-9, looks=Fixed(size=20))
        plain, misled = (make(model, test, FIRST, rows) for rows in (None, nonsense))
        got = [
            decider.decide(SECOND, full_log_ratio(model) - 1e-6, 0.0, capsule(np.random.default_rng(1)))
            for decider in (plain, misled)
        ]
        assert got[0].log_ratio == got[1].log_ratio == pytest.approx(full_log_ratio(model), rel=1e-12)
        assert got[0].accepted
        assert got[1].accepted

        loose, wrong = Austerity(epsilon=0.45, looks=Fixed(size=20)), 0
        for seed in range(40):
            decider = make(model, loose, FIRST, nonsense)
            got = decider.decide(SECOND, full_log_ratio(model) - 1.0, 0.0, capsule(np.random.default_rng(seed)), True)
            assert got.wrong == (not got.accepted)
            assert decider.log_density() == make(model, loose, SECOND if got.accepted else FIRST, None).log_density()
            wrong += got.wrong
        assert 5 < wrong < 35

    def test_what_is_remembered_changes_no_decision(self):
        model = regression(500)
        rows = taylor(model, ANCHOR, 1)
        test = make_test("austerity", epsilon=0.05, looks=SMALL)
        remembering, forgetful = (make(model, test, FIRST, rows) for _ in range(2))
        rng, same_rng = np.random.default_rng(3), np.random.default_rng(3)
        for _ in range(300):
            forgetful.reset(forgetful.theta)
            decisions = []
            for decider, stream in ((remembering, rng), (forgetful, same_rng)):
                proposed = decider.theta + 0.1 * stream.standard_normal(3)
                decisions.append(decider.decide(proposed, np.log1p(-stream.random()), 0.0, capsule(stream)))
            assert decisions[0].accepted == decisions[1].accepted
            assert decisions[0].n_obs_used == decisions[1].n_obs_used
            assert decisions[0].log_ratio == decisions[1].log_ratio
        assert 20 < remembering.n_accepted < 280
        assert remembering.n_evaluated < forgetful.n_evaluated == 2 * forgetful.n_obs_used


class TestCost:
    def test_a_step_touches_the_drawn_blocks_only(self):
        """Neither values nor coefficients of other blocks are looked at: there they are NaN by then."""
        model = regression(2000)
        rows = taylor(model, ANCHOR, 2)
        test = Austerity(epsilon=0.4, looks=Geometric(first=10))
        untouched = make(model, test, FIRST, rows).decide(SECOND, -1e9, 0.0, capsule(np.random.default_rng(1)))
        drawn = model.asked[-1]
        assert len(drawn) == 10
        decider, control = (make(model, test, FIRST, rows) for _ in range(2))
        rows[np.setdiff1d(np.arange(2000), drawn)] = np.nan
        model.asked.clear()
        got = decider.decide(SECOND, -1e9, 0.0, capsule(np.random.default_rng(1)))
        assert got.log_ratio == untouched.log_ratio
        assert [asked.tolist() for asked in model.asked] == [drawn.tolist()] * 2
        rows[drawn] = np.nan
        assert np.isnan(control.decide(SECOND, -1e9, 0.0, capsule(np.random.default_rng(1))).log_ratio)

    @pytest.mark.slow
    def test_easy_decisions_cost_the_same_whatever_the_size(self):
        cost = {}
        for n in (2_000, 200_000):
            rng = np.random.default_rng(1)
            # data n times as many, posterior sds smaller by the root of n
            x, step = rng.normal(0.5, 1, (n, 3)), 1 / np.sqrt(n)
            model = logistic(x)
            decider = make(model, make_test("austerity", epsilon=0.05, looks=SMALL), ANCHOR, taylor(model, ANCHOR, 1))
            for _ in range(50):
                decider.reset(ANCHOR + step * rng.standard_normal(3))
                proposed = ANCHOR + step * rng.standard_normal(3)
                decider.decide(proposed, 5.0 + decider.theta @ proposed, 0.0, capsule(rng))
            cost[n] = decider.n_obs_used / 50
        assert cost[200_000] <= 1.5 * cost[2_000]


class TestSeveralAnchors:
    """Expansions at several points, of which each end of a pair takes the nearest."""

    FAR = np.array([4.0, -3.0, 2.0])

    def both(self, model, order=2):
        anchors = [ANCHOR, self.FAR]
        rows = tuple(taylor(model, anchor, order) for anchor in anchors)
        values = tuple(model.evaluator().block_log_lik(anchor) for anchor in anchors)
        return Surrogate(anchors, rows, values, [np.eye(3), np.eye(3)])

    def near(self, shift):
        return FIRST, self.FAR + shift * np.array([0.1, 0.2, -0.1])

    @pytest.mark.parametrize("order", [1, 2])
    def test_changes_between_anchors_by_the_definition(self, order):
        model = regression(40)
        theta, theta_new = self.near(1.0)
        expansions = []
        for point, anchor in ((theta, ANCHOR), (theta_new, self.FAR)):
            rows = taylor(model, anchor, order)
            w = features(anchor, point, anchor, rows.shape[1])
            expansions.append(model.evaluator().block_log_lik(anchor) + rows @ w)
        changes = self.both(model, order).changes(theta, theta_new)
        np.testing.assert_allclose(changes, expansions[1] - expansions[0], rtol=1e-12, atol=1e-12)

    def test_a_pair_about_one_anchor_is_that_of_one_anchor(self):
        model = regression(40)
        alone = Surrogate([ANCHOR], (taylor(model, ANCHOR, 2),))
        np.testing.assert_array_equal(self.both(model).changes(FIRST, SECOND), alone.changes(FIRST, SECOND))

    def test_remainders_between_anchors_are_small_and_without_the_second_anchor_are_not(self):
        model = regression(40)
        theta, theta_new = self.near(0.2)
        exact = differences(model, theta, theta_new)
        there = np.abs(exact - self.both(model).changes(theta, theta_new)).max()
        alone = Surrogate([ANCHOR], (taylor(model, ANCHOR, 2),))
        assert there < 0.02 * np.abs(exact - alone.changes(theta, theta_new)).max()

    def test_the_nearest_is_found_by_the_matrices(self):
        model = regression(40)
        anchors = [ANCHOR, self.FAR]
        rows = tuple(taylor(model, anchor, 1) for anchor in anchors)
        values = tuple(model.evaluator().block_log_lik(anchor) for anchor in anchors)
        # By the second matrix everything is next to the second anchor.
        surrogate = Surrogate(anchors, rows, values, [np.eye(3), 1e-9 * np.eye(3)])
        np.testing.assert_array_equal(
            surrogate.changes(FIRST, SECOND), Surrogate([self.FAR], (rows[1],)).changes(FIRST, SECOND)
        )

    def test_decisions_are_those_of_the_definition(self):
        model = regression(200)
        test = Austerity(epsilon=0.2, looks=SMALL)
        surrogate = self.both(model)
        theta, theta_new = self.near(0.5)
        changes = surrogate.changes(theta, theta_new)
        remainders = differences(model, theta, theta_new) - changes
        loop = ReferenceLoop(test.table(200))
        decider = make_decider(model.evaluator(), model.blocks.sizes, test, surrogate=surrogate)
        one, other = np.random.default_rng(3), np.random.default_rng(3)
        ratio = differences(model, theta, theta_new).sum()
        for gap in np.linspace(-3, 3, 41):
            decider.reset(theta)
            decision = decider.decide(theta_new, ratio + gap - 0.0, 0.0, capsule(one))
            shared = np.subtract(*map(model.evaluator().global_log_density, (theta_new, theta)))
            by_hand = loop.decide(remainders, changes.sum() + shared, ratio + gap, other, None)
            assert (decision.accepted, decision.n_looks) == (by_hand.accepted, by_hand.looks)


class TestArguments:
    def test_arrays_must_fit(self):
        model = regression(10)
        good, anchor = taylor(model, ANCHOR, 2), ANCHOR
        looks = Table(np.array([5, 10], np.int32), np.ones(2), np.zeros(2))
        plane = np.eye(3)
        bad = good.copy()
        bad[3, 4] = np.inf
        for arguments, message in (
            (([], ()), "an anchor"),
            (([anchor], ()), "length 1, not 0"),
            (([anchor], (good[:, :8].copy(),)), "row of coefficients"),
            (([anchor], (np.empty((10, 0), np.float32),)), "row of coefficients"),
            (([anchor], (good[:9],)), "length 10, not 9"),
            (([anchor[:1]], (np.ones((10, 1), np.float32),)), "length 3, not 1"),
            (([anchor], (bad,)), "finite"),
            (([np.array([0.0, np.nan, 0.0])], (good,)), "finite"),
            (([anchor, anchor], (good, good)), "length 2, not 0"),
            (([anchor, anchor], (good, good), (np.zeros(10), np.zeros(9)), (plane, plane)), "length 10, not 9"),
            (([anchor, anchor], (good, good), (np.zeros(10), np.zeros(10)), (plane, plane[:2])), "length 3, not 2"),
        ):
            with pytest.raises(ValueError, match=message):
                Decider(model.evaluator(), model.blocks.sizes, looks, surrogate=Surrogate(*arguments))
        with pytest.raises(TypeError):
            Surrogate([anchor], (good.astype(float),))

    def test_coefficients_are_kept_and_not_copied(self):
        import gc
        import weakref

        model = regression(10)
        rows = taylor(model, ANCHOR, 1)
        reference = weakref.ref(rows)
        decider = make(model, Austerity(epsilon=0.4, looks=Fixed(size=5)), FIRST, rows)
        del rows
        gc.collect()
        assert reference() is not None
        assert np.isfinite(decider.decide(SECOND, -1e9, 0.0, capsule(np.random.default_rng(1))).log_ratio)
        del decider
        gc.collect()
        assert reference() is None
