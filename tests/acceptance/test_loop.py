"""The compiled loop against its definition."""

import gc
import pickle
import threading
import weakref
from itertools import combinations

import numpy as np
import pytest
from clocks import wait_until
from generators import capsule
from populations import RANGE, Model, ReferenceLoop, address, linear, normal_mean
from scipy import stats

from stansub._loop import Decider, Table
from stansub.acceptance.decide import make_decider
from stansub.acceptance.ranges import Estimate, Lipschitz, RangeFunction, Scan
from stansub.acceptance.rules import Austerity, Exact, Fixed, Geometric, make_test
from stansub.errors import InputError
from stansub.kernels.proposals import RandomWalk, compiled

T_TESTS = ["austerity", "pocock"]
BOUNDS = ["hoeffding", "bernstein", "bernstein-serfling"]
SMALL = Geometric(first=8)


def small_test(name):
    return make_test(
        name, epsilon=0.05 if name in ("austerity", "pocock") else None, looks=None if name == "exact" else SMALL
    )


def make(model, test, start, spread=None, sizes=None):
    decider = make_decider(model.evaluator(), model.blocks.sizes if sizes is None else sizes, test, spread=spread)
    decider.reset(np.atleast_1d(np.asarray(start, float)))
    return decider


def run(decider, n_steps, cholesky, rng, *, audit=0.0, audit_rng=None, stop=None, progress=None):
    """A batch of a random walk; returns its outputs by name."""
    dim = len(decider.theta)
    out = {
        "theta": np.zeros((n_steps, dim)),
        "accepted": np.zeros(n_steps, np.uint8),
        "n_obs_used": np.zeros(n_steps, np.int64),
        "n_looks": np.zeros(n_steps, np.int32),
        "undecided": np.zeros(n_steps, np.uint8),
        "log_ratio": np.zeros(n_steps),
        "audited": np.zeros(n_steps, np.uint8),
        "wrong": np.zeros(n_steps, np.uint8),
        "bound_violated": np.zeros(n_steps, np.uint8),
        "stop": np.zeros(1, np.int32) if stop is None else stop,
        "progress": np.zeros(4, np.int64) if progress is None else progress,
    }
    audit_rng = np.random.default_rng(99) if audit_rng is None else audit_rng
    out["steps"] = decider.batch(
        n_steps, compiled(RandomWalk(cholesky)), capsule(rng), capsule(audit_rng), audit, **out
    )
    return out


class TestDefinition:
    @pytest.mark.parametrize("name", [*T_TESTS, *BOUNDS, "exact"])
    @pytest.mark.parametrize("spread", ["bound", "scan", "estimate"])
    def test_agrees_with_the_plain_loop(self, name, spread):
        values = np.random.default_rng(1).standard_t(4, 300)
        width = np.ptp(values)
        source = {"bound": Lipschitz(width / 2), "scan": Scan(), "estimate": Estimate()}[spread]
        test = small_test(name)
        model = linear(values)
        decider, plain = make(model, test, 0.0, source), ReferenceLoop(test.table(300))
        rng, plain_rng = np.random.default_rng(2), np.random.default_rng(2)
        thresholds = values.mean() + np.random.default_rng(3).normal(0, np.repeat([0.4, 8.0], 100))
        looks = set()
        for mu0 in thresholds:
            decider.reset(np.zeros(1))
            got = decider.decide(np.ones(1), 300 * mu0, 0.0, capsule(rng))
            want = plain.decide(values, 0.0, 300 * mu0, plain_rng, None if spread == "estimate" else width)
            assert (got.accepted, got.n_obs_used, got.n_looks) == want[:3]
            assert got.log_ratio == pytest.approx(want.log_ratio, rel=1e-10, abs=1e-10)
            assert got.undecided == (name != "exact" and want.n == 300)
            looks.add(want.looks)
        assert rng.random() == plain_rng.random()
        assert name == "exact" or len(looks) > 2

    def test_global_part_and_proposal_ratio_enter_the_threshold(self):
        x = np.random.default_rng(1).normal(0.3, 1, (200, 1))
        test = small_test("austerity")
        decider, plain = make(normal_mean(x), test, 0.1), ReferenceLoop(test.table(200))
        rng, plain_rng = np.random.default_rng(2), np.random.default_rng(2)
        for log_q_ratio in np.linspace(-30, 30, 41):
            decider.reset(np.array([0.1]))
            got = decider.decide(np.array([0.4]), -1.0, log_q_ratio, capsule(rng))
            differences = -0.5 * ((x[:, 0] - 0.4) ** 2 - (x[:, 0] - 0.1) ** 2)
            want = plain.decide(differences, -0.5 * (0.4**2 - 0.1**2) + log_q_ratio, -1.0, plain_rng, None)
            assert (got.accepted, got.n_obs_used, got.n_looks) == want[:3]

    @pytest.mark.parametrize(
        ("name", "used", "log_ratios"),
        [
            ("austerity", [8, 8, 16, 8, 64, 16, 8], [114.0749, 22.5596, -1.3379, -74.0407]),
            ("pocock", [8, 8, 16, 128, 64, 8, 8], [114.0749, 22.5596, -12.2362, 133.1515]),
            ("hoeffding", [8, 16, 64, 256, 256, 32, 8], [114.0749, 19.2755, 1.4513, -33.9483]),
            ("bernstein", [32, 128, 256, 256, 256, 256, 32], [47.3361, 1.4513, 1.4513, 33.1833]),
            ("bernstein-serfling", [64, 128, 256, 256, 256, 256, 64], [22.1038, 1.4513, 1.4513, -27.8306]),
            ("exact", [256] * 7, [1.4513] * 4),
        ],
    )
    def test_golden_decisions(self, name, used, log_ratios):
        decider = make(linear(np.sin(np.arange(256.0))), small_test(name), 0.0, Lipschitz(1.0))
        rng, decisions = np.random.default_rng(11), []
        for mu0 in (-2.5, -1.2, -0.4, -0.1, 0.2, 0.6, 3.0):
            decider.reset(np.zeros(1))
            decisions.append(decider.decide(np.ones(1), 256 * mu0, 0.0, capsule(rng)))
        assert [decision.accepted for decision in decisions] == [True] * 4 + [False] * 3
        assert [decision.n_obs_used for decision in decisions] == used
        assert [decision.log_ratio for decision in decisions[::2]] == pytest.approx(log_ratios, abs=1e-4)

    def test_samples_without_replacement_are_uniform(self):
        model = linear(np.array([1.0, 1.1, 1.2, 1.3, 1.4]))
        decider = make(model, Austerity(epsilon=0.6, looks=Fixed(size=2)), 0.0)
        rng = np.random.default_rng(5)
        counts = dict.fromkeys(combinations(range(5), 2), 0)
        for _ in range(5000):
            decider.reset(np.zeros(1))
            model.asked.clear()
            assert decider.decide(np.ones(1), -50.0, 0.0, capsule(rng)).n_looks == 1
            first, second = sorted(model.asked[0].tolist())
            counts[first, second] += 1
        assert stats.chisquare(list(counts.values())).pvalue > 1e-3

    def test_constant_differences_give_a_t_test_nothing_to_go_by(self):
        model = linear(np.full(100, 0.3))
        for test, spread in ((small_test("austerity"), None), (small_test("bernstein"), Estimate())):
            got = make(model, test, 0.0, spread).decide(np.ones(1), -5.0, 0.0, capsule(np.random.default_rng(1)))
            assert got.accepted
            assert got.undecided
        bounded = make(model, small_test("bernstein"), 0.0, Scan())
        assert bounded.decide(np.ones(1), -5.0, 0.0, capsule(np.random.default_rng(1))).n_looks == 1

    def test_huge_offsets_do_not_spoil_the_standard_deviation(self):
        values = np.random.default_rng(1).normal(size=1000)
        test = small_test("austerity")
        shift = 1e9
        plain = make(linear(values), test, 0.0)
        shifted = make(linear(values + shift), test, 0.0)
        for seed in range(50):
            log_u = 1000 * (0.2 - 0.01 * seed)
            decisions = []
            for decider, extra in ((plain, 0.0), (shifted, 1000 * shift)):
                decider.reset(np.zeros(1))
                decisions.append(decider.decide(np.ones(1), log_u + extra, 0.0, capsule(np.random.default_rng(seed))))
            assert decisions[0].n_looks == decisions[1].n_looks
            # the order in the urn differs from seed to seed, but equally in both
            assert decisions[0].accepted == decisions[1].accepted


class TestExact:
    @pytest.mark.parametrize(
        "test", [Exact(), Austerity(epsilon=0), make_test("pocock", epsilon=0.0)], ids=lambda test: test.name
    )
    def test_equals_plain_metropolis_hastings_draw_for_draw(self, test):
        x = np.random.default_rng(1).normal(0.5, 1, (37, 3))
        cholesky = np.diag([0.3, 0.2, 0.1])
        out = run(make(normal_mean(x), test, np.zeros(3)), 2000, cholesky, np.random.default_rng(7))

        rng, theta, lp = np.random.default_rng(7), np.zeros(3), None

        def log_density(theta):
            return -0.5 * (theta**2).sum() - 0.5 * ((x - theta) ** 2).sum()

        lp = log_density(theta)
        for step in range(2000):
            proposed = theta + cholesky @ rng.standard_normal(3)
            log_u = np.log1p(-rng.random())
            proposed_lp = log_density(proposed)
            if proposed_lp - lp > log_u:
                theta, lp = proposed, proposed_lp
            np.testing.assert_array_equal(out["theta"][step], theta)
        assert 0.1 < out["accepted"].mean() < 0.9
        assert not out["undecided"].any()

    def test_evaluates_each_state_once(self):
        x = np.random.default_rng(1).normal(size=(50, 1))
        decider = make(normal_mean(x), Exact(), [0.0])
        out = run(decider, 100, np.eye(1) * 0.2, np.random.default_rng(1))
        assert decider.n_evaluated == 50 * 101
        assert decider.n_obs_used == out["n_obs_used"].sum() == 50 * 100

    def test_log_density(self):
        x = np.random.default_rng(1).normal(size=(50, 2))
        decider = make(normal_mean(x), small_test("austerity"), [0.3, 0.1])
        theta = np.array([0.3, 0.1])
        assert decider.log_density() == pytest.approx(-0.5 * (theta**2).sum() - 0.5 * ((x - theta) ** 2).sum())
        assert decider.global_log_density == pytest.approx(-0.05)


class TestState:
    @pytest.mark.parametrize("name", [*T_TESTS, *BOUNDS, "exact"])
    def test_python_steps_equal_a_batch(self, name):
        x = np.random.default_rng(1).normal(size=(400, 2))
        test, cholesky = small_test(name), np.diag([0.1, 0.2])
        # steps are short, so differences are small and a wide bound keeps decisions honest but late
        spread = Lipschitz(6.0)
        out = run(make(normal_mean(x), test, np.zeros(2), spread), 300, cholesky, np.random.default_rng(3), audit=0.3)
        decider = make(normal_mean(x), test, np.zeros(2), spread)
        rng, audit_rng = np.random.default_rng(3), np.random.default_rng(99)
        for step in range(300):
            proposed = decider.theta + cholesky @ rng.standard_normal(2)
            log_u = np.log1p(-rng.random())
            audit = audit_rng.random() < 0.3
            got = decider.decide(proposed, log_u, 0.0, capsule(rng), audit)
            np.testing.assert_array_equal(out["theta"][step], decider.theta)
            for field in ("accepted", "n_obs_used", "n_looks", "undecided", "audited", "wrong", "bound_violated"):
                assert out[field][step] == getattr(got, field), field
            assert out["log_ratio"][step] == got.log_ratio
        assert out["progress"].tolist() == [
            300,
            decider.n_accepted,
            decider.n_obs_used,
            decider.n_evaluated,
        ]

    def test_cholesky_factor_is_applied_as_lower_triangular(self):
        decider = make(normal_mean(np.zeros((10, 2))), Exact(), np.zeros(2))
        cholesky = np.array([[0.1, 0.0], [0.3, 0.05]])
        out = run(decider, 1, cholesky, np.random.default_rng(1))
        z = np.random.default_rng(1).standard_normal(2)
        assert out["accepted"][0]
        np.testing.assert_allclose(out["theta"][0], cholesky @ z, rtol=1e-14)

    def test_what_is_remembered_changes_no_decision(self):
        x = np.random.default_rng(1).normal(size=(500, 1))
        remembering = make(normal_mean(x), small_test("austerity"), [0.0])
        forgetful = make(normal_mean(x), small_test("austerity"), [0.0])
        rng, same_rng = np.random.default_rng(3), np.random.default_rng(3)
        for _ in range(400):
            forgetful.reset(forgetful.theta)
            decisions = []
            for decider, stream in ((remembering, rng), (forgetful, same_rng)):
                proposed = decider.theta + 0.1 * stream.standard_normal(1)
                decisions.append(decider.decide(proposed, np.log1p(-stream.random()), 0.0, capsule(stream)))
            assert decisions[0].accepted == decisions[1].accepted
            assert decisions[0].n_obs_used == decisions[1].n_obs_used
            assert decisions[0].log_ratio == decisions[1].log_ratio
        assert remembering.n_evaluated < 0.9 * forgetful.n_evaluated
        assert forgetful.n_evaluated == 2 * forgetful.n_obs_used

    def test_chains_share_nothing(self):
        x = np.random.default_rng(1).normal(size=(200, 1))
        test, cholesky = small_test("austerity"), np.eye(1) * 0.2
        alone = [run(make(normal_mean(x), test, [0.0]), 100, cholesky, np.random.default_rng(s)) for s in (1, 2)]
        model = normal_mean(x)
        deciders = [make(model, test, [0.0]) for _ in range(2)]
        rngs = [np.random.default_rng(s) for s in (1, 2)]
        turns = [[], []]
        for _ in range(10):
            for chain in range(2):
                turns[chain].append(run(deciders[chain], 10, cholesky, rngs[chain])["theta"])
        for chain in range(2):
            np.testing.assert_array_equal(np.concatenate(turns[chain]), alone[chain]["theta"])
        assert not np.array_equal(alone[0]["theta"], alone[1]["theta"])

    def test_audits_change_nothing_and_tell_the_truth(self):
        x = np.random.default_rng(1).normal(size=(500, 1))
        test, cholesky = Austerity(epsilon=0.3, looks=SMALL), np.eye(1) * 0.1
        plain = run(make(normal_mean(x), test, [0.0]), 500, cholesky, np.random.default_rng(3))
        decider = make(normal_mean(x), test, [0.0])
        audited = run(decider, 500, cholesky, np.random.default_rng(3), audit=0.5)
        for field in ("theta", "accepted", "n_obs_used", "n_looks", "undecided", "log_ratio"):
            np.testing.assert_array_equal(plain[field], audited[field])
        assert not plain["audited"].any()
        assert 200 < audited["audited"].sum() < 300
        assert decider.n_evaluated_extra > 0

        rng, theta = np.random.default_rng(3), np.zeros(1)
        mirror = make(normal_mean(x), test, [0.0])
        for step in range(500):
            proposed = theta + cholesky @ rng.standard_normal(1)
            log_u = np.log1p(-rng.random())
            truth = -0.5 * ((proposed**2 - theta**2).sum() + ((x - proposed) ** 2 - (x - theta) ** 2).sum()) > log_u
            decision = mirror.decide(proposed, log_u, 0.0, capsule(rng))
            if audited["audited"][step]:
                assert audited["wrong"][step] == (truth != decision.accepted)
            else:
                assert not audited["wrong"][step]
            theta = mirror.theta
        assert audited["wrong"].sum() > 5

    @pytest.mark.parametrize("name", [*T_TESTS, *BOUNDS, "exact", "barker", "penalty"])
    def test_a_fresh_decider_goes_on_from_a_saved_state(self, name):
        x = np.random.default_rng(1).normal(size=(400, 2))
        test, cholesky, spread = small_test(name), np.diag([0.05, 0.1]), Lipschitz(6.0)
        rng, audit_rng = np.random.default_rng(3), np.random.default_rng(4)
        whole = make(normal_mean(x), test, np.zeros(2), spread)
        want = run(whole, 200, cholesky, rng, audit=0.2, audit_rng=audit_rng)

        rng, audit_rng = np.random.default_rng(3), np.random.default_rng(4)
        first = make(normal_mean(x), test, np.zeros(2), spread)
        got = [run(first, 77, cholesky, rng, audit=0.2, audit_rng=audit_rng)]
        model = normal_mean(x)
        second = make_decider(model.evaluator(), model.blocks.sizes, test, spread=spread)
        second.state = pickle.loads(pickle.dumps(first.state))
        assert model.asked == []  # nothing is evaluated again
        got.append(run(second, 123, cholesky, rng, audit=0.2, audit_rng=audit_rng))
        for field in want.keys() - {"stop", "progress", "steps"}:
            np.testing.assert_array_equal(np.concatenate([part[field] for part in got]), want[field])
        assert 0 < want["accepted"].sum() < 200
        counters = [field for field in dir(whole) if field.startswith("n_")] + ["audit_squares"]
        assert {field: getattr(second, field) for field in counters} == {
            field: getattr(whole, field) for field in counters
        }
        assert second.log_density() == whole.log_density()
        assert second.audit_seconds > first.audit_seconds or name == "exact"
        np.testing.assert_array_equal(first.state.theta, got[0]["theta"][-1])

    def test_a_state_of_another_model_is_refused(self):
        test = small_test("austerity")
        state = make(normal_mean(np.zeros((40, 2))), test, np.zeros(2)).state
        for shape in ((40, 1), (39, 2), (41, 2)):
            decider = make(normal_mean(np.zeros(shape)), test, np.zeros(shape[1]))
            with pytest.raises(ValueError, match="the state is of a decider"):
                decider.state = state
        with pytest.raises(RuntimeError, match="reset"):
            _ = make_decider(linear(np.ones(10)).evaluator(), np.ones(10, np.int32), test).state

    def test_other_looks_from_some_decision_on(self):
        x = np.random.default_rng(1).normal(size=(400, 1))
        strict, loose = small_test("austerity").table(400), Austerity(epsilon=0.4, looks=SMALL).table(400)
        decider, rng = make(normal_mean(x), small_test("austerity"), [0.0]), np.random.default_rng(3)
        used = [run(decider, 200, np.eye(1) * 0.05, rng)["n_obs_used"].sum()]
        for table in (loose, strict):
            decider.set_table(Table(table.n, table.scale, table.offset))
            used.append(run(decider, 200, np.eye(1) * 0.05, rng)["n_obs_used"].sum())
        assert used[1] < 0.5 * used[0]
        assert used[1] < 0.5 * used[2]
        with pytest.raises(ValueError, match="the last look must be at all blocks"):
            decider.set_table(Table(table.n[:-1], table.scale[:-1], table.offset[:-1]))

    def test_stop_flag_ends_a_batch_from_another_thread(self):
        x = np.zeros((10, 1))
        decider, stop, progress = make(normal_mean(x), Exact(), [0.0]), np.zeros(1, np.int32), np.zeros(4, np.int64)
        out = {}
        n_steps = 2_000_000
        rng = np.random.default_rng(1)
        thread = threading.Thread(
            target=lambda: out.update(run(decider, n_steps, np.eye(1), rng, stop=stop, progress=progress))
        )
        thread.start()
        wait_until(lambda: progress[0] > 0)
        stop[0] = 1
        thread.join()
        assert 0 < out["steps"] < n_steps
        assert out["progress"][0] == out["steps"] == decider.n_decisions
        assert not out["theta"][out["steps"] :].any()

    def test_stop_flag_set_beforehand(self):
        decider = make(normal_mean(np.zeros((10, 1))), Exact(), [0.0])
        out = run(decider, 5, np.eye(1), np.random.default_rng(1), stop=np.ones(1, np.int32))
        assert out["steps"] == 0
        assert decider.n_decisions == 0


class TestCounts:
    def test_ragged_last_block(self):
        sizes = np.array([4, 4, 4, 4, 1], np.int32)
        model = linear(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
        decider = make(model, Austerity(epsilon=0.7, looks=Fixed(size=2)), 0.0, sizes=sizes)
        seen = set()
        for seed in range(30):
            decider.reset(np.zeros(1))
            model.asked.clear()
            got = decider.decide(np.ones(1), -50.0, 0.0, capsule(np.random.default_rng(seed)))
            assert got.n_obs_used == sizes[model.asked[0]].sum()
            seen.add(got.n_obs_used)
        assert seen == {5, 8}
        exact = make(model, Exact(), 0.0, sizes=sizes)
        assert exact.decide(np.ones(1), -50.0, 0.0, capsule(np.random.default_rng(1))).n_obs_used == 17
        assert exact.n_evaluated == 34

    @pytest.mark.parametrize("name", ["austerity", "pocock", "bernstein", "bernstein-serfling", "hoeffding"])
    def test_easy_decisions_cost_the_same_whatever_the_size(self, name):
        cost = {}
        for n_units in (10_000, 1_000_000):
            values = np.random.default_rng(1).uniform(-1, 1, n_units)
            decider = make(linear(values), make_test(name), 0.0, Lipschitz(1.0))
            rng = np.random.default_rng(2)
            for _ in range(20):
                decider.reset(np.zeros(1))
                decider.decide(np.ones(1), 0.4 * n_units, 0.0, capsule(rng))
            cost[n_units] = decider.n_evaluated / 20
        assert cost[1_000_000] <= 1.3 * cost[10_000] < 2000

    def test_hard_decisions_see_everything(self):
        values = np.random.default_rng(1).uniform(-1, 1, 1000)
        decider = make(linear(values), make_test("bernstein"), 0.0, Lipschitz(1.0))
        got = decider.decide(np.ones(1), values.sum() - 1e-3, 0.0, capsule(np.random.default_rng(2)))
        assert got.accepted
        assert got.undecided
        assert got.n_obs_used == 1000


class TestRange:
    def test_a_broken_promise_is_told(self):
        values = np.random.default_rng(1).uniform(-1, 1, 1000)
        for constant, broken in ((1.0, False), (0.3, True)):
            decider = make(linear(values), make_test("bernstein"), 0.0, Lipschitz(constant))
            for mu0 in (0.0, 0.2):
                decider.reset(np.zeros(1))
                got = decider.decide(np.ones(1), 1000 * mu0, 0.0, capsule(np.random.default_rng(2)))
                assert got.bound_violated == broken
            assert decider.n_bound_violated == 2 * broken

    def test_a_function_gives_the_range_of_each_pair(self):
        values = np.random.default_rng(1).uniform(-1, 1, 1000)
        pairs = []

        @RANGE
        def half_range(_, theta, theta_new, out):
            pairs.append((theta[0], theta_new[0]))
            out[0] = abs(theta_new[0] - theta[0])
            return 0

        by_function = make(linear(values), make_test("hoeffding"), 0.0, RangeFunction(address(half_range), factor=2.0))
        by_constant = make(linear(values), make_test("hoeffding"), 0.0, Lipschitz(1.0))
        decisions = [
            decider.decide(np.full(1, 1.5), 400.0, 0.0, capsule(np.random.default_rng(3)))
            for decider in (by_function, by_constant)
        ]
        assert decisions[0].n_obs_used == decisions[1].n_obs_used < 1000
        assert pairs == [(0.0, 1.5)]

    def test_a_function_lives_as_long_as_the_decider_that_calls_it(self):
        """A process that is sent a range makes its own function, which nothing else keeps."""

        class Owner:
            pass

        owner = Owner()
        alive = weakref.ref(owner)
        given = RangeFunction(1, owner=owner)
        decider = make(linear(np.ones(10)), make_test("hoeffding"), 0.0, given)
        del owner, given
        gc.collect()
        assert alive() is not None
        del decider
        gc.collect()
        assert alive() is None

    def test_without_a_range_the_last_look_decides(self):
        @RANGE
        def unknown(_, theta, theta_new, out):
            return 1

        values = np.random.default_rng(1).uniform(-1, 1, 1000)
        decider = make(linear(values), make_test("hoeffding"), 0.0, RangeFunction(address(unknown)))
        got = decider.decide(np.ones(1), 900.0, 0.0, capsule(np.random.default_rng(3)))
        assert got.undecided
        assert not got.bound_violated

    def test_bounds_need_a_range(self):
        model = linear(np.ones(10))
        with pytest.raises(InputError, match="bernstein test needs the range"):
            make_decider(model.evaluator(), model.blocks.sizes, make_test("bernstein"))
        for constant in (-1.0, np.nan, np.inf):
            with pytest.raises(InputError, match="Lipschitz"):
                Lipschitz(constant)


class TestNonFinite:
    """Differences at theta = 1 are values; theta = 2 hits the bad block 3."""

    @staticmethod
    def model(bad):
        def blocks(theta, which):
            values = np.where(which % 2 == 0, 1.0, 1.1) * theta[0]
            return np.where((theta[0] == 2) & (which == 3), bad, values)

        return Model(1, 20, blocks)

    @pytest.mark.parametrize(("bad", "counted"), [(-np.inf, 0), (np.nan, 1), (np.inf, 1)])
    @pytest.mark.parametrize("name", ["exact", "austerity"])
    def test_a_bad_block_of_the_proposal_rejects(self, bad, counted, name):
        test = Exact() if name == "exact" else Austerity(epsilon=0.0001, looks=Fixed(size=19))
        decider = make(self.model(bad), test, 1.0)
        for seed in range(100):
            before = decider.n_nonfinite
            got = decider.decide(np.full(1, 2.0), -1e9, 0.0, capsule(np.random.default_rng(seed)))
            if got.accepted:
                # only a subset that misses the bad block can be taken in
                assert name == "austerity"
                assert got.n_obs_used == 19
                break
            assert decider.n_nonfinite - before == counted
            assert not np.isfinite(got.log_ratio)
            assert decider.theta == 1.0

    @pytest.mark.parametrize("value", [-np.inf, np.nan, np.inf, None])
    def test_a_bad_global_part_rejects_without_looking(self, value):
        model = Model(1, 20, lambda theta, which: which * 1.0, lambda theta: 0.0 if theta[0] == 1 else value)
        decider = make(model, Exact(), 1.0)
        got = decider.decide(np.full(1, 2.0), -1e9, 0.0, capsule(np.random.default_rng(1)))
        assert (got.accepted, got.n_looks, got.n_obs_used) == (False, 0, 0)
        assert model.asked == []

    def test_blocks_that_are_not_defined_reject(self):
        model = Model(1, 20, lambda theta, which: which * 1.0 if theta[0] == 1 else None)
        got = make(model, Exact(), 1.0).decide(np.full(1, 2.0), -1e9, 0.0, capsule(np.random.default_rng(1)))
        assert not got.accepted
        assert got.log_ratio == -np.inf

    def test_anything_is_better_than_a_state_of_density_zero(self):
        for bad, accepted in ((-np.inf, True), (np.nan, False)):
            decider = make(self.model(bad), Exact(), 2.0)
            assert decider.decide(np.ones(1), -0.1, 0.0, capsule(np.random.default_rng(1))).accepted == accepted

    def test_an_audit_sees_the_block_that_was_not_drawn(self):
        wrong = 0
        for seed in range(60):
            decider = make(self.model(-np.inf), Austerity(epsilon=0.4, looks=Fixed(size=10)), 1.0)
            got = decider.decide(np.full(1, 2.0), -1e9, 0.0, capsule(np.random.default_rng(seed)), True)
            assert got.wrong == got.accepted
            wrong += got.wrong
        assert 10 < wrong < 50


class TestArguments:
    def test_arrays_must_fit(self):
        evaluator = linear(np.ones(10)).evaluator()
        ones, sizes = np.ones(1), np.ones(10, np.int32)
        for n, scale, offset, size in (
            ([9], ones, ones, sizes),
            ([10], np.ones(2), ones, sizes),
            ([10], ones, ones, sizes[:-1]),
            ([0, 10], np.ones(2), np.zeros(2), sizes),
            ([5, 5, 10], np.ones(3), np.zeros(3), sizes),
            ([5, 10], np.ones(2), np.ones(2), sizes),
        ):
            with pytest.raises(ValueError, match=r"must|needs"):
                Decider(evaluator, size, Table(np.array(n, np.int32), scale, offset))

    def test_parameters_must_have_the_right_length(self):
        decider = make(linear(np.ones(10)), Exact(), 0.0)
        with pytest.raises(ValueError, match="length 1, not 2"):
            decider.decide(np.ones(2), 0.0, 0.0, capsule(np.random.default_rng(1)))
        with pytest.raises(ValueError, match="length 1, not 2"):
            decider.reset(np.ones(2))

    def test_a_decision_needs_a_state(self):
        decider = make_decider(linear(np.ones(10)).evaluator(), np.ones(10, np.int32), Exact())
        with pytest.raises(RuntimeError, match="reset"):
            decider.decide(np.ones(1), 0.0, 0.0, capsule(np.random.default_rng(1)))
