"""Decisions that count the noise of the estimate in: against their definition, and for detailed balance."""

import numpy as np
import pytest
from generators import capsule
from populations import ReferenceLoop, below, linear
from scipy import stats
from scipy.special import logit, ndtri, stdtr

from stansub._loop import BarkerRule, Decider, PenaltyRule, Table
from stansub.acceptance.correction import correction
from stansub.acceptance.decide import make_decider
from stansub.acceptance.rules import Barker, Exact, Geometric, Penalty, Pocock, make_test
from stansub.errors import InputError

TESTS = {"barker": Barker(), "penalty": Penalty()}
BLOCKS = 2000


def population(log_ratio, noise, *, at=20, n=BLOCKS, law=None):
    """Differences that sum to the log ratio, whose estimate from so many of them has this standard error."""
    law = law or stats.norm
    values = law.rvs(size=n, random_state=np.random.default_rng(1))
    values = (values - values.mean()) / values.std(ddof=1)
    return values * noise / standard_error(at, n) + log_ratio / n


def standard_error(n, n_units=BLOCKS):
    """Of the estimated sum of units with standard deviation 1."""
    return n_units * np.sqrt((1 - (n - 1) / (n_units - 1)) / n)


def make(values, test):
    model = linear(values)
    return make_decider(model.evaluator(), model.blocks.sizes, test)


def decisions(decider, n, rng, *, back=False, audit=False):
    """Decisions of independent steps from 0 to 1, or back."""
    ends = np.array([[0.0], [1.0]])
    found = []
    for _ in range(n):
        decider.reset(ends[int(back)])
        found.append(decider.decide(ends[1 - int(back)], np.log1p(-rng.random()), 0.0, capsule(rng), audit))
    return found


class Plain:
    """A decision by its definition, with a permutation of its own; None where the looks have to decide."""

    def __init__(self, test):
        self.test, self.order = test, np.arange(BLOCKS)
        self.correction = correction(test.noise)

    def decide(self, values, log_u, rng):
        drawn, table = 0, self.test.table(BLOCKS)
        for n in table.n[:-1].tolist():
            for place in range(drawn, n):
                other = place + below(rng, BLOCKS - place)
                self.order[[place, other]] = self.order[[other, place]]
            drawn, sample = n, values[self.order[:n]]
            s = sample.std(ddof=1) * standard_error(n)
            x = BLOCKS * sample.mean()
            if s <= self.test.noise * min(1, n / 20):
                return self.settle(x, s, n, log_u, rng), n, x, s
        return None

    def settle(self, x, s, n, log_u, rng):
        if self.test.name == "penalty":
            return x - s**2 / 2 - s**4 / (4 * (n + 1)) - s**6 / (3 * (n + 1) * (n + 3)) > log_u
        points, masses = self.correction
        corrected = points[np.searchsorted(np.cumsum(masses[:-1]), np.exp(log_u), side="right")]
        return x + np.sqrt(self.test.noise**2 - s**2) * rng.standard_normal() > corrected


@pytest.mark.parametrize("test", TESTS.values(), ids=TESTS)
@pytest.mark.parametrize("noise", [0.2, 1.0, 1.5])
def test_decisions_are_those_of_the_definition(test, noise):
    values = population(0.5, noise)
    decider, plain = make(values, test), Plain(test)
    rng, other = np.random.default_rng(3), np.random.default_rng(3)
    drawn = set()
    for _ in range(300):
        decider.reset(np.zeros(1))
        got = decider.decide(np.ones(1), np.log1p(-rng.random()), 0.0, capsule(rng))
        accepted, n, x, s = plain.decide(values, np.log1p(-other.random()), other)
        assert (got.accepted, got.n_obs_used) == (accepted, n)
        assert (got.log_ratio, got.standard_error) == pytest.approx((x, s), rel=1e-9)
        assert not got.undecided
        drawn.add(n)
    assert rng.bit_generator.state == other.bit_generator.state
    assert len(drawn) > (noise > 0.5)
    assert decider.n_fallback == 0


@pytest.mark.parametrize("test", TESTS.values(), ids=TESTS)
def test_how_many_blocks_are_drawn_has_nothing_to_do_with_the_estimate(test):
    values = population(0.0, 1.2)
    used = []
    for shift in (-30.0, 0.0, 30.0):
        decider, rng = make(values + shift / BLOCKS, test), np.random.default_rng(3)
        used.append([decision.n_obs_used for decision in decisions(decider, 100, rng)])
    assert used[0] == used[1] == used[2]
    assert len(set(used[0])) > 2


def balance(decider, n):
    """Log of the ratio of acceptance probabilities forth and back, and its standard error."""
    forth, back = (
        np.mean([decision.accepted for decision in decisions(decider, n, np.random.default_rng(5 + way), back=way)])
        for way in (False, True)
    )
    return np.log(forth / back), np.sqrt((1 - forth) / forth / n + (1 - back) / back / n)


class TestDetailedBalance:
    LOG_RATIO, N = 1.0, 5_000

    @pytest.mark.parametrize("test", TESTS.values(), ids=TESTS)
    @pytest.mark.parametrize("noise", [pytest.param(0.45, marks=pytest.mark.slow), 0.9])
    def test_acceptance_forth_and_back(self, test, noise):
        found, error = balance(make(population(self.LOG_RATIO, noise), test), self.N)
        # what the measured standard error leaves, beside the Monte Carlo error
        assert abs(found - self.LOG_RATIO) < 3.5 * error + 0.022

    def test_controls_are_caught(self):
        """No penalty, and no correction distribution."""
        model = linear(population(self.LOG_RATIO, 0.9))
        n = Barker().table(BLOCKS).n
        zeros = np.zeros(n.size)
        one_look = Table(np.array([20, BLOCKS], np.int32), zeros[:2], zeros[:2])
        naive = Decider(model.evaluator(), model.blocks.sizes, one_look)
        no_correction = BarkerRule(1.0, 0.5, np.zeros(1), np.empty(0))
        uncorrected = Decider(model.evaluator(), model.blocks.sizes, Table(n, zeros, zeros), noise=no_correction)
        for decider in (naive, uncorrected):
            found, error = balance(decider, self.N)
            assert abs(found - self.LOG_RATIO) > 10 * error

    def test_barker_accepts_with_the_logistic_probability(self):
        accepted = [
            one.accepted for one in decisions(make(population(1.0, 0.5), Barker()), 20_000, np.random.default_rng(7))
        ]
        assert abs(np.mean(accepted) - 1 / (1 + np.exp(-1))) < 4 * np.std(accepted) / np.sqrt(20_000)


class TestFallback:
    NOISY = 60.0  # the limit would take more than half of the blocks

    @pytest.mark.parametrize("name", TESTS)
    def test_the_looks_go_on_from_what_is_drawn(self, name):
        values = population(0.3, self.NOISY)
        test = TESTS[name]
        looks = ReferenceLoop(Pocock(epsilon=test.epsilon, looks=test.looks).table(BLOCKS))
        decider, rng, other = make(values, test), np.random.default_rng(3), np.random.default_rng(3)
        used = set()
        for u in np.random.default_rng(9).random(200):
            log_u = np.log(u) + 30 * (u - 0.5)
            decider.reset(np.zeros(1))
            got = decider.decide(np.ones(1), min(log_u, -1e-9), 0.0, capsule(rng))
            u = np.exp(min(log_u, -1e-9))
            want = looks.decide(values, 0.0, logit(u) if name == "barker" else np.log(u), other, None)
            assert (got.accepted, got.n_obs_used, got.n_looks) == (want.accepted, want.n, want.looks)
            assert got.standard_error == 0
            used.add(want.n)
        assert decider.n_fallback == 200
        assert len(used) > 2

    def test_some_noise_is_waited_for(self):
        """Where less than half of the blocks will do, no decision is left to the looks."""
        decider = make(population(0.3, 4.0), Penalty())
        found = decisions(decider, 50, np.random.default_rng(1))
        assert decider.n_fallback == 0
        assert min(one.n_obs_used for one in found) > 100
        assert all(0 < one.standard_error <= 1 for one in found)

    def test_equal_differences_say_nothing_of_the_noise(self):
        decider = make(np.full(BLOCKS, 1e-4), Barker())
        (found,) = decisions(decider, 1, np.random.default_rng(1))
        assert found.undecided
        assert found.standard_error == 0

    @pytest.mark.parametrize("log_u", [-3.0, -0.7, -0.01])
    def test_with_all_the_data_barkers_probability_is_the_threshold(self, log_u):
        for log_ratio in (logit(np.exp(log_u)) - 0.01, logit(np.exp(log_u)) + 0.01):
            decider = make(np.array([log_ratio]), Barker())
            decider.reset(np.zeros(1))
            got = decider.decide(np.ones(1), log_u, 0.0, capsule(np.random.default_rng(1)))
            assert got.accepted == (log_ratio > logit(np.exp(log_u)))


class TestAudit:
    def test_errors_of_normal_blocks_are_as_large_as_they_say(self):
        decider = make(population(0.5, 0.3), Penalty())
        found = decisions(decider, 2000, np.random.default_rng(1), audit=True)
        z = np.array([one.audit_z for one in found])
        assert stats.kstest(z, "norm").pvalue > 1e-3
        assert decider.n_audited_estimates == 2000
        assert decider.audit_squares == pytest.approx((z**2).sum())
        assert not any(one.audited or one.wrong for one in found)
        for one in found[:50]:
            degrees = one.n_obs_used - 1
            t = (one.log_ratio - 0.5) / one.standard_error
            assert one.audit_z == pytest.approx(ndtri(stdtr(degrees, t)), abs=0.02)

    def test_errors_of_heavy_tails_are_larger(self):
        decider = make(population(0.5, 0.3, law=stats.lognorm(2)), Penalty())
        found = decisions(decider, 2000, np.random.default_rng(1), audit=True)
        assert decider.audit_squares / decider.n_audited_estimates > 2
        assert decider.n_audited_estimates + sum(one.audited for one in found) == 2000

    def test_decisions_of_the_looks_are_audited_as_ever(self):
        decider = make(population(0.5, TestFallback.NOISY), Barker(epsilon=0.4))
        found = decisions(decider, 300, np.random.default_rng(1), audit=True)
        assert all(one.audited and np.isnan(one.audit_z) for one in found)
        assert any(one.wrong for one in found)
        assert decider.n_audited_estimates == 0

    def test_a_decision_is_the_same_without(self):
        values = population(0.5, 0.9)
        plain, audited = (
            [one.accepted for one in decisions(make(values, Barker()), 100, np.random.default_rng(2), audit=audit)]
            for audit in (False, True)
        )
        assert plain == audited


class TestSettings:
    @pytest.mark.parametrize("name", TESTS)
    def test_by_name(self, name):
        test = make_test(name, epsilon=0.01, looks=Geometric(first=30))
        assert (test.name, test.epsilon, test.looks.first) == (name, 0.01, 30)
        assert make_test(name) == TESTS[name]

    @pytest.mark.parametrize("make", [Barker, Penalty])
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"noise": 0.0}, "noise must be above 0"),
            ({"noise": 1.5}, "at most 1.2"),
            ({"epsilon": 0.0}, "epsilon` must be between"),
            ({"looks": Geometric(first=4)}, "at least 5 blocks"),
        ],
    )
    def test_nonsense_is_refused(self, make, settings, message):
        with pytest.raises(InputError, match=message):
            make(**settings)

    def test_delta_belongs_to_others(self):
        with pytest.raises(InputError, match="does not use `delta`"):
            make_test("penalty", delta=0.1)

    def test_the_loop_wants_a_rule_that_fits(self):
        for rule, wrong in (
            (PenaltyRule, (0.0, 0.5)),
            (PenaltyRule, (1.0, 2.0)),
            (BarkerRule, (1.0, 0.5, np.empty(0), np.empty(0))),
            (BarkerRule, (1.0, 0.5, np.zeros(2), np.empty(0))),
        ):
            with pytest.raises(ValueError, match="must be"):
                rule(*wrong)
        model = linear(np.ones(10))
        looks = Table(np.array([5, 10], np.int32), np.zeros(2), np.zeros(2))
        with pytest.raises(TypeError):
            Decider(model.evaluator(), model.blocks.sizes, looks, noise="other")

    def test_exact_stays_metropolis(self):
        decider = make(np.array([-0.5]), Exact())
        decider.reset(np.zeros(1))
        assert decider.decide(np.ones(1), -0.6, 0.0, capsule(np.random.default_rng(1))).accepted
