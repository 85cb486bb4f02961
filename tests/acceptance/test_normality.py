"""Trial decisions: the statistic is that of the loop, healthy data pass, and data with heavy tails are caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from populations import Array, ReferenceLoop, linear
from scipy import stats

from stansub.acceptance.decide import make_decider
from stansub.acceptance.normality import (
    TOLERATED,
    Pair,
    Trial,
    coarsened,
    critical_values,
    decide_along,
    figures,
    looks_tried,
    pool,
    share,
    student,
    try_pairs,
)
from stansub.acceptance.rules import Austerity, Exact, Fixed, Geometric, Hoeffding, Pocock, StoppingRule, Table

TESTS: list[StoppingRule] = [Pocock(), Austerity(epsilon=0.01), Pocock(epsilon=0.1, looks=Fixed(size=30))]
Make = Callable[[np.random.Generator, int], Array]


def pairs_of(make: Make, rng: np.random.Generator, n_units: int, n_pairs: int) -> list[Pair]:
    """Steps up and down a straight likelihood over one population, whose log ratios are of order one."""
    values = make(rng, n_units)
    values = (values - values.mean()) / values.std()
    steps = rng.standard_normal(n_pairs) / np.sqrt(n_units)
    return [Pair(step * values + rng.normal() / n_units, 0.0) for step in steps]


def trial(
    make: Make, seed: int, n_units: int, test: StoppingRule, *, n_pairs: int = 32, n_subsets: int = 250
) -> dict[str, Any]:
    """Figures of a trial as short as those in warmup: four chains of eight pairs."""
    rng = np.random.default_rng(seed)
    pairs = pairs_of(make, rng, n_units, n_pairs)
    return figures(try_pairs(pairs, test.table(n_units), n_subsets=n_subsets, rng=rng, decision_work=400_000), test)


def normal(rng: np.random.Generator, n: int) -> Array:
    return rng.standard_normal(n)


def binary(rng: np.random.Generator, n: int) -> Array:
    """What blocks of a few hundred Bernoulli observations look like."""
    return rng.binomial(256, 0.2, n).astype(float)


def lognormal(rng: np.random.Generator, n: int) -> Array:
    """The data of Bardenet et al. 2014, figure 4(c)."""
    return rng.lognormal(0, 2, n)


def outlier(rng: np.random.Generator, n: int) -> Array:
    return np.append(rng.standard_normal(n - 1), 1000.0)


def sparse(rng: np.random.Generator, n: int) -> Array:
    return (np.arange(n) < 0.08 * n).astype(float)


class TestStatistic:
    @pytest.mark.parametrize("test", TESTS, ids=repr)
    def test_simulated_decisions_are_those_of_the_loop(self, test: StoppingRule) -> None:
        values, rng = np.random.default_rng(1).lognormal(0, 1, 400), np.random.default_rng(2)
        values = (values - values.mean()) / values.std()
        table, model = test.table(values.size), linear(values)
        looks = set()
        for seed in range(60):
            log_u = float(np.log1p(-rng.random()))
            rest = float(rng.normal(0, 20))
            # The plain loop says in which order the blocks are drawn; the compiled one draws the same.
            plain, decider = ReferenceLoop(table), make_decider(model.evaluator(), model.blocks.sizes, test)
            decider.reset(np.zeros(1))
            plain.decide(values, rest, log_u, np.random.default_rng(seed), 0.0)
            generator = np.random.default_rng(seed)  # its capsule does not keep it alive
            decision = decider.decide(np.ones(1), log_u, rest, generator.bit_generator.capsule)
            ordered, threshold = values[plain.order][None], np.array([(log_u - rest) / values.size])
            accepted, look = decide_along(ordered, threshold, table)
            assert accepted[0] == decision.accepted
            assert table.n[look[0]] == decision.n_obs_used
            looks.add(int(look[0]))
        assert len(looks) > 3, "decisions fall at several looks"

    @pytest.mark.parametrize("factor", [1.0, 0.8])
    def test_t_is_beyond_its_critical_value_as_often_as_the_loop_decides(self, factor: float) -> None:
        """At a threshold that is the mean of all; with other critical values the two would not agree."""
        values = np.random.default_rng(3).lognormal(0, 2, 1000)
        values -= values.mean()
        full = Pocock(epsilon=0.02).table(values.size)
        table = Table(full.n[[0, -1]], full.scale[[0, -1]], full.offset[[0, -1]])
        model, n, rng = linear(values), 4000, np.random.default_rng(4)

        class One:
            name, needs_range = "one early look", False

            def table(self, n_units: int) -> Table:
                return table

        decider = make_decider(model.evaluator(), model.blocks.sizes, One())
        decided = 0
        for _ in range(n):
            decider.reset(np.zeros(1))
            decided += decider.decide(np.ones(1), 0.0, 0.0, rng.bit_generator.capsule).n_looks == 1
        t = student(values, int(table.n[0]), n, rng)
        beyond = np.count_nonzero(np.abs(t) > factor * critical_values(table)[0])
        both = (decided + beyond) / (2 * n)
        z = (decided - beyond) / np.sqrt(2 * n * both * (1 - both))
        assert both > 0.05
        assert (abs(z) < 3.5) == (factor == 1)

    @pytest.mark.parametrize("n", [5, 40])
    def test_t_of_normal_populations_is_student(self, n: int) -> None:
        rng = np.random.default_rng(5)
        t = np.concatenate([student(rng.normal(3, 0.1, 80), n, 1, rng) for _ in range(5000)]) * np.sqrt(79 / 80)
        assert stats.kstest(t, stats.t(n - 1).cdf).pvalue > 1e-3
        assert stats.kstest(1.2 * t, stats.t(n - 1).cdf).pvalue < 1e-3

    def test_subsets_of_one_shuffle_are_drawn_without_replacement(self) -> None:
        t = student(np.array([0.0, 1.0, 2.0, 3.0]), 2, 100, np.random.default_rng(6)).reshape(-1, 2)
        np.testing.assert_allclose(t[:, 0] + t[:, 1], 0, atol=20)
        # Two disjoint halves lie on either side of the mean.
        assert np.all(np.sign(t[:, 0]) == -np.sign(t[:, 1]))

    def test_equal_differences_give_no_statistic_and_no_error(self) -> None:
        table = Pocock().table(200)
        found = try_pairs([Pair(np.full(200, 0.1), -20.0)], table, n_subsets=60, rng=np.random.default_rng(7))
        assert np.isnan(found.t).all()
        assert found.n_wrong.sum() == 0
        assert found.worst().undefined == 1
        assert not found.worst().fails

    @pytest.mark.slow
    def test_simulated_errors_are_as_frequent_as_audited_ones(self) -> None:
        test = Pocock(epsilon=0.1)
        values, rng = np.random.default_rng(8).lognormal(0, 2, 500), np.random.default_rng(9)
        values = 3 * (values - values.mean()) / values.std() / np.sqrt(500)
        model, n = linear(values), 3000
        decider, wrong = make_decider(model.evaluator(), model.blocks.sizes, test), 0
        for _ in range(n):
            decider.reset(np.zeros(1))
            log_u = float(np.log1p(-rng.random()))
            wrong += decider.decide(np.ones(1), log_u, 0.0, rng.bit_generator.capsule, True).wrong
        found = try_pairs([Pair(values, 0.0)], test.table(500), n_subsets=n, rng=rng)
        assert found.n_decisions == n
        both = (wrong + found.n_wrong[0]) / (2 * n)
        assert both > 0.05
        assert abs(wrong - found.n_wrong[0]) < 3.5 * np.sqrt(2 * n * both * (1 - both))

    def test_looks_go_up_to_half_of_the_blocks(self) -> None:
        table = Pocock().table(1000)
        assert table.n[looks_tried(table)].tolist() == [50, 103, 205, 404]
        assert Pocock().table(100).n[looks_tried(Pocock().table(100))].tolist() == [50]
        assert Pocock().table(60).n[looks_tried(Pocock().table(60))].tolist() == [50]

    def test_larger_blocks_are_sums_of_adjacent_ones(self) -> None:
        made = coarsened(Pair(np.arange(7.0), 1.5), 3)
        assert made.differences.tolist() == [3.0, 12.0, 6.0]
        assert made.rest == 1.5

    def test_pooled_trials_hold_all_pairs(self) -> None:
        rng, table = np.random.default_rng(10), Pocock().table(300)
        parts = [try_pairs(pairs_of(normal, rng, 300, k), table, n_subsets=50, rng=rng) for k in (2, 3)]
        whole = pool(parts)
        assert whole.n_pairs == 5
        np.testing.assert_array_equal(whole.t[:, 2:], parts[1].t)
        assert whole.decision_error.value == pytest.approx(np.concatenate([p.n_wrong for p in parts]).sum() / 250)


class TestVerdict:
    @pytest.mark.parametrize(
        ("n_units", "n_trials", "make"),
        [
            (100, 20, binary),
            pytest.param(100, 20, normal, marks=pytest.mark.slow),
            pytest.param(391, 10, normal, marks=pytest.mark.slow),
            pytest.param(391, 10, binary, marks=pytest.mark.slow),
            pytest.param(1279, 150, normal, marks=pytest.mark.slow),
            pytest.param(1279, 150, binary, marks=pytest.mark.slow),
        ],
    )
    def test_healthy_data_are_not_warned_of(self, make: Make, n_units: int, n_trials: int) -> None:
        seen = [trial(make, seed, n_units, test) for test in (Pocock(), Austerity()) for seed in range(n_trials)]
        alarms = sum(one["tail_fails"] or one["decisions_fail"] for one in seen)
        assert alarms <= 0.03 * len(seen), "a few percent at most"
        observed, expected = (np.mean([one[name] for one in seen]) for name in ("observed", "nominal"))
        assert 0.5 < observed / expected < 1.5

    @pytest.mark.parametrize("make", [lognormal, outlier, sparse])
    @pytest.mark.parametrize("n_units", [100, pytest.param(1279, marks=pytest.mark.slow), 10_000])
    def test_heavy_tails_are_caught(self, make: Make, n_units: int) -> None:
        for seed in range(2):
            found = trial(make, seed, n_units, Pocock(), n_pairs=16)
            assert found["tail_fails"] or found["decisions_fail"]

    def test_errors_that_early_looks_do_not_show_are_caught_in_decisions(self) -> None:
        """Quantiles of t are fine at a few hundred blocks of 40,000: it is the late looks that miss the outlier."""
        found = trial(outlier, 1, 40_000, Pocock(), n_pairs=16)
        assert found["decisions_fail"]
        healthy = trial(normal, 1, 40_000, Pocock(), n_pairs=16)
        assert not healthy["decisions_fail"]

    def test_larger_blocks_mend_short_tails(self) -> None:
        rng = np.random.default_rng(11)
        pairs = [Pair(d[rng.permutation(d.size)], r) for d, r in pairs_of(sparse, rng, 10_000, 8)]
        for factor, fails in ((1, True), (64, False)):
            larger = [coarsened(pair, factor) for pair in pairs]
            found = try_pairs(larger, Pocock().table(larger[0].differences.size), n_subsets=400, rng=rng)
            assert figures(found, Pocock())["tail_fails"] == fails

    def test_levels_of_the_tail_are_those_of_student(self) -> None:
        rng = np.random.default_rng(12)
        found = try_pairs(pairs_of(normal, rng, 400, 20), Pocock().table(400), n_subsets=500, rng=rng)
        for tail in found.tails((0.05, 0.01)):
            assert tail.nominal == pytest.approx(2 * stats.t(tail.blocks - 1).sf(tail.critical))
            assert tail.observed.low <= tail.nominal <= tail.observed.high or not tail.fails
        assert [tail.nominal for tail in found.tails((0.05,)) if not tail.in_use] == pytest.approx([0.05] * 3)
        assert TOLERATED > 1

    def test_what_a_decision_promises(self) -> None:
        assert Pocock(epsilon=0.02).promised_error(1000) == 0.02
        three = Austerity(epsilon=0.01, looks=Geometric(first=50))
        assert three.promised_error(400) == pytest.approx(0.03)
        for test in (Exact(), Hoeffding()):
            with pytest.raises(TypeError, match="does not assume normal means"):
                test.promised_error(1000)


class TestShare:
    def test_intervals_of_clustered_counts_cover(self) -> None:
        """Clusters with rates of their own: the interval that takes no notice of them covers far too rarely."""
        rng, n_clusters, each, true = np.random.default_rng(13), 20, 200, 0.1
        covered = {"clusters": 0, "no clusters": 0}
        for _ in range(400):
            counts = rng.binomial(each, rng.beta(2, 18, n_clusters))
            for name, found in (
                ("clusters", share(counts, each)),
                ("no clusters", share(np.array([counts.sum()]), n_clusters * each)),
            ):
                covered[name] += found.low <= true <= found.high
        assert covered["clusters"] > 0.9 * 400
        assert covered["no clusters"] < 0.7 * 400

    def test_of_one_cluster_it_is_that_of_clopper_and_pearson(self) -> None:
        found = share(np.array([3]), 50)
        exact = stats.binomtest(3, 50).proportion_ci(method="exact")
        assert (found.value, found.low, found.high) == pytest.approx((0.06, exact.low, exact.high))
        assert share(np.array([0, 0]), 50).low == 0
        assert share(np.array([50, 50]), 50).high == 1


class TestErrorLimit:
    @staticmethod
    def trial(n_wrong: list[int] | Any, n_decisions: int = 64) -> Trial:
        empty = np.zeros(0)
        return Trial(1000, np.zeros(0, np.int32), empty, empty, n_decisions, np.array(n_wrong), 5.0, *[empty] * 4)

    def test_it_covers_though_pairs_differ(self) -> None:
        """The errors of a few pairs make up most of the mean: an interval that forgets that covers too rarely."""
        rng, n_pairs, each, true = np.random.default_rng(14), 32, 64, 0.004
        covered = {"pairs": 0, "no pairs": 0}
        for _ in range(1000):
            rates = np.minimum(rng.gamma(1 / 9, 9 * true, n_pairs), 1)
            found = self.trial(rng.binomial(each, rates), each)
            covered["pairs"] += found.error_limit >= true
            covered["no pairs"] += share(np.array([found.n_wrong.sum()]), n_pairs * each).high >= true
        assert covered["pairs"] > 965
        assert covered["no pairs"] < 930

    def test_of_many_pairs_without_an_error_it_is_a_few_thousandths(self) -> None:
        none = self.trial([0] * 32)
        assert none.error_limit == pytest.approx((0.025 ** (-9 / 32) - 1) / (9 * 64))
        assert none.decision_error.high < none.error_limit < 0.005
        assert self.trial([0] * 2).error_limit > 0.5, "two pairs tell nothing"
        assert self.trial([0] * 31 + [30]).error_limit >= self.trial([0] * 31 + [30]).decision_error.high

    def test_what_is_promised_is_what_the_user_accepts(self) -> None:
        rng = np.random.default_rng(15)
        found = try_pairs(pairs_of(normal, rng, 400, 4), Pocock().table(400), n_subsets=50, rng=rng)
        assert figures(found, Pocock(), max_error=0.03)["promised"] == 0.03
        assert figures(found, Pocock())["promised"] == Pocock().epsilon
