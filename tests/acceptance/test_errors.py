"""How often decisions are wrong, on populations made to mislead."""

import numpy as np
import pytest
from populations import linear
from scipy import stats

from stansub.acceptance.decide import make_decider
from stansub.acceptance.ranges import Lipschitz
from stansub.acceptance.rules import Austerity, Exact, Fixed, Geometric, Pocock, make_test

BOUNDS = ["hoeffding", "bernstein", "bernstein-serfling"]
TRIALS = 200


def sd_moves(x: np.ndarray, step: float) -> np.ndarray:
    """Log likelihood differences of a normal model when its sd moves by a factor from its best value."""
    sd = x.std()
    moved = sd * (1 + step)
    return np.log(sd / moved) - 0.5 * (x - x.mean()) ** 2 * (1 / moved**2 - 1 / sd**2)


def population(name: str) -> np.ndarray:
    rng = np.random.default_rng(20)
    match name:
        case "normal":
            return rng.normal(0, 0.1, 20_000)
        case "lognormal":
            return rng.lognormal(0, 2, 20_000)
        case "sd of normal":
            return sd_moves(rng.normal(0, 0.1, 20_000), 0.02)
        case "sd of lognormal":
            return sd_moves(rng.lognormal(0, 2, 20_000), 0.02)
        case "heavy tails":
            return rng.standard_cauchy(10_000)
        case "outlier":
            return np.append(rng.normal(0, 0.01, 9_999), -1000.0)
        case "two values":
            return np.where(np.arange(10_000) < 100, -1.0, 0.01)
        case "constant":
            return np.full(10_000, 0.3)
    raise ValueError(name)


ALL = ["normal", "lognormal", "sd of normal", "sd of lognormal", "heavy tails", "outlier", "two values", "constant"]


def count_wrong(values, test, gaps, trials=TRIALS, spread=None):
    """Wrong decisions, and the mean share of the units used, for thresholds off the mean by the gaps."""
    model = linear(values)
    width = np.ptp(values) if spread is None else spread
    decider = make_decider(model.evaluator(), model.blocks.sizes, test, spread=Lipschitz(width / 2))
    rng, wrong = np.random.default_rng(30), 0
    for gap in np.resize(gaps, trials):
        decider.reset(np.zeros(1))
        log_u = values.sum() + len(values) * gap
        accepted = decider.decide(np.ones(1), log_u, 0.0, rng.bit_generator.capsule).accepted
        wrong += accepted != bool(gap < 0)
    return wrong, decider.n_obs_used / (trials * len(values))


def gaps_of(values):
    """Near and far thresholds on both sides; the far ones lie about where most of a skewed population is."""
    sd = max(values.std(), 1e-6)
    skew = max(abs(values.mean() - np.median(values)), 0.1 * sd)
    return np.array([0.02 * sd, -0.02 * sd, 0.7 * skew, -0.7 * skew])


def exceeds(wrong, level, trials=TRIALS):
    """P value of the hypothesis that decisions are wrong with probability ``level`` at most."""
    return stats.binomtest(wrong, trials, level, alternative="greater").pvalue


@pytest.mark.parametrize(
    ("bound", "name"),
    [
        pytest.param(bound, name, marks=() if (i + j) % len(BOUNDS) == 0 else pytest.mark.slow)
        for i, bound in enumerate(BOUNDS)
        for j, name in enumerate(ALL)
    ],
)
def test_bounds_keep_their_promise(name, bound):
    values = population(name)
    wrong, _ = count_wrong(values, make_test(bound, delta=0.05), gaps_of(values))
    assert exceeds(wrong, 0.05) > 0.01


@pytest.mark.parametrize("bound", BOUNDS)
def test_bounds_save_data_where_they_can(bound):
    values = np.random.default_rng(20).normal(0, 0.1, 100_000)
    _, share = count_wrong(values, make_test(bound), np.array([0.5, -0.5]) * values.std())
    assert share < 0.05


def test_a_promise_on_a_wrong_range_is_not_kept():
    values = population("outlier")
    wrong, _ = count_wrong(values, make_test("bernstein", delta=0.05), [-0.05, 0.05], spread=0.1)
    assert exceeds(wrong, 0.05) < 1e-6


@pytest.mark.parametrize(
    ("name", "gap", "first"),
    [
        # nearly every sample misses what moves the mean
        ("outlier", 0.05, 50),
        ("two values", 0.001, 50),
        ("lognormal", -1.0, 50),
        ("sd of lognormal", -0.003, 500),
        # two points are too few for Student's t, whatever the population
        ("sd of normal", -0.001, 2),
    ],
)
def test_the_t_test_fails_where_samples_mislead(name, gap, first):
    values = population(name)
    looks = Geometric(first=first)
    wrong, share = count_wrong(values, Austerity(epsilon=0.05, looks=looks), [gap])
    assert exceeds(wrong, 0.05) < 1e-6
    assert share < 1
    for bound in BOUNDS:
        wrong, _ = count_wrong(values, make_test(bound, delta=0.05, looks=looks), [gap], trials=50)
        assert exceeds(wrong, 0.05, trials=50) > 0.01


def test_pocock_spends_its_budget_and_no_more():
    values = np.random.default_rng(1).normal(size=1000)
    looks, trials = Fixed(size=100), 2000
    gaps = np.array([1e-9, -1e-9])
    wrong, _ = count_wrong(values, Pocock(epsilon=0.1, looks=looks), gaps, trials)
    assert abs(wrong / trials - 0.1) < 4 * np.sqrt(0.1 * 0.9 / trials)
    # the same level at every single look costs more over all
    wrong, _ = count_wrong(values, Austerity(epsilon=0.1, looks=looks), gaps, trials)
    assert wrong / trials > 0.15


@pytest.mark.slow
def test_pocock_errs_less_away_from_the_threshold():
    values = np.random.default_rng(1).normal(size=1000)
    rates = []
    for gap in (0.0, 0.02, 0.05, 0.1):
        wrong, _ = count_wrong(values, Pocock(epsilon=0.1, looks=Fixed(size=100)), [gap + 1e-9], 2000)
        rates.append(wrong / 2000)
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.02


def test_exact_is_never_wrong():
    for name in ("outlier", "two values"):
        assert count_wrong(population(name), Exact(), [1e-9, -1e-9]) == (0, 1.0)
