"""Populations of which sufficient statistics alone are drawn, against points in memory."""

import runpy
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import stansub
from stansub import Austerity, BernsteinSerfling, Geometric

RUN = Path(__file__).resolve().parents[2] / "examples" / "papers" / "gaussian_mean" / "run.py"
gaussian = SimpleNamespace(**runpy.run_path(str(RUN)))

N = 100_000
MAX_Z = 4.0


def unstored(points: Any) -> Any:
    """The population with the mean, the sum of squares and the largest of some points."""
    stored = gaussian.Stored(points)
    squares = float(((points - stored.mean) ** 2).sum())
    return stored, gaussian.Unstored(stored.n, stored.mean, squares, stored.largest)


def test_parts_of_a_split_are_the_whole() -> None:
    whole = gaussian.Part(1000, 0.3, 25.0)
    parts = gaussian.split(whole, 150, np.random.default_rng(1))
    assert parts[0].with_(parts[1]) == pytest.approx(whole)


@pytest.mark.parametrize(("n", "m"), [(2, 1), (5, 2), (40, 30), (40, 39)])
def test_a_split_is_a_random_sample_of_normal_points(n: int, m: int) -> None:
    rng = np.random.default_rng(2)
    points = rng.normal(size=(4000, n))
    points -= points.mean(1, keepdims=True)
    points *= np.sqrt(n / (points**2).sum(1, keepdims=True))  # the same mean and sum of squares
    some = points[:, :m]
    brute = np.stack([some.mean(1), some.var(1) * m], axis=1).round(9)  # two points have two values
    drawn = np.array([gaussian.split(gaussian.Part(n, 0.0, float(n)), m, rng)[0][1:] for _ in range(4000)]).round(9)
    for column in range(2):
        assert stats.ks_2samp(brute[:, column], drawn[:, column]).pvalue > 1e-4
    # Control: draws with replacement have means that vary too much.
    if n == 40:
        wild = np.array([one[rng.integers(0, n, m)].mean() for one in points])
        assert stats.ks_2samp(wild, drawn[:, 0]).pvalue < 1e-4


def test_later_looks_contain_the_earlier_ones() -> None:
    looks = [2, 4, 8, 16, 20]
    parts = list(gaussian.Unstored(20, 0.5, 3.0, 1.0).subsets(looks, np.random.default_rng(3)))
    assert [part.n for part in parts] == looks
    assert all(late.squares >= early.squares for early, late in pairwise(parts))
    assert parts[-1].mean == pytest.approx(0.0, abs=1e-12)
    assert parts[-1].squares == pytest.approx(3.0)


def test_there_are_no_gaps_in_precision_at_the_largest_n() -> None:
    n = 10**15
    rng = np.random.default_rng(4)
    means = [next(gaussian.Unstored(n, 0.5, 0.01 * n, 1.3).subsets([n // 2, n], rng)).mean for _ in range(2000)]
    assert np.std(means) == pytest.approx(0.1 / np.sqrt(n), rel=0.08)  # sd sqrt((1 - 1/2) / (n / 2))


@pytest.mark.parametrize(
    "rule", [Austerity(epsilon=0.05, looks=Geometric(first=500)), BernsteinSerfling(looks=Geometric(first=2))]
)
def test_decisions_need_as_much_as_those_on_stored_points(rule: Any) -> None:
    # Centred points have a range that lets the bound stop early at this n.
    rng = np.random.default_rng(5)
    stored, lazy = unstored(rng.normal(0.0, 0.02, N))
    table = rule.table(N)
    used: list[list[float]] = [[], []]
    sd = 1 / np.sqrt(N)
    for _ in range(400):
        here, move, log_u = sd * rng.normal(), 2 * sd * rng.normal(), float(np.log(rng.random()))
        for place, population in enumerate((stored, lazy)):
            used[place].append(gaussian.decide(population, table, here, here + move, log_u, rng).n_used / N)
    differences = np.subtract(*np.array(used))
    assert 0.02 < np.mean(used[0]) < 0.9, "neither at the first look nor all of the points"
    assert abs(differences.mean()) < MAX_Z * differences.std() / np.sqrt(len(differences))
    # Control: points that spread four times as much need more of them.
    wide = gaussian.Unstored(N, lazy.mean, 16 * lazy.squares, lazy.largest)
    moves = sd * rng.normal(size=(400, 2)) * [1, 2]
    more = [gaussian.decide(wide, table, one, one + move, -1.0, rng).n_used / N for one, move in moves]
    same = [gaussian.decide(lazy, table, one, one + move, -1.0, rng).n_used / N for one, move in moves]
    differences = np.subtract(more, same)
    assert differences.mean() > MAX_Z * differences.std() / np.sqrt(len(differences))


def test_all_points_decide_as_metropolis_does() -> None:
    population = gaussian.Unstored(1000, 0.5, 10.0, 0.9)
    table = stansub.Exact().table(1000)
    rng = np.random.default_rng(6)
    chain = gaussian.walk(population, table, 20_000, rng)
    assert not chain.wrong.any()
    assert (chain.used == 1).all()
    assert chain.accepted.mean() == pytest.approx(0.5, abs=0.02)  # 2 / pi arctan(2 / 2)
    assert chain.theta[500:].mean() == pytest.approx(0.0, abs=0.12)
    assert chain.theta[500:].std() == pytest.approx(1.0, abs=0.06)


def test_the_largest_of_many_normal_points() -> None:
    rng = np.random.default_rng(7)
    brute = [rng.normal(0.5, 0.1, 1000).max() for _ in range(2000)]
    drawn = [gaussian.Unstored.of(1000, 0.1, rng).largest for _ in range(2000)]
    assert stats.ks_2samp(brute, drawn).pvalue > 1e-4


def test_the_looks_are_those_of_the_package_where_it_has_them() -> None:
    table = BernsteinSerfling(delta=0.01, looks=Geometric(first=2)).table(N)
    wide = gaussian.paper_table(N)
    assert (wide.n == table.n).all()
    assert wide.scale == pytest.approx(table.scale)
    assert gaussian.paper_table(10**15).n[-1] == 10**15
