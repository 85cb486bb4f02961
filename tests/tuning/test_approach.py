"""Chains from random starts on a posterior whose likelihood has no maximum: they arrive before they are sampled."""

from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
import scipy.sparse as sp

from stansub.errors import RunError
from stansub.kernels.surrogate import NoUTurn
from stansub.progress import Progress, StoppedError
from stansub.target.approximation import Approximation
from stansub.target.coordinates import Coordinates
from stansub.target.metric import Metric
from stansub.tuning.surrogates import random_starts
from stansub.tuning.surrogates.surrogate import TunedSurrogate
from stansub.types import FloatArray

DIM, FAR = 2, 50.0
PLAIN, ONES = Coordinates.plain(DIM), Metric.of(sp.csc_array(sp.identity(DIM)))


def start(density: float) -> random_starts._Start:
    return random_starts._Start(np.full((1, DIM), density), density, np.random.default_rng(1))


class Made(NamedTuple):
    acceptance_rate: float


class Posterior:
    """Trees go towards 0 by a share of the distance; far from there, smaller steps are accepted."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.n_trees = 0

    @property
    def model(self) -> Any:
        return self

    def posterior(self) -> Any:
        return self

    def log_density(self, theta: FloatArray) -> float:
        return -float(np.abs(theta).max())

    def surrogate(self, _: Any) -> Any:
        return self

    def hamiltonian(self, _: FloatArray, __: Metric, ___: Coordinates) -> Any:
        return self

    def nuts(self, bits: Any, theta: Any, n: int = 1, *, step_size: float, max_tree_depth: int) -> Made:
        self.n_trees += 1
        theta *= 1 - self.share
        return Made(float(np.exp(-step_size * (1 + np.abs(theta).max()))))


@pytest.mark.parametrize(("share", "n_rounds"), [(0.1, 1), (0.02, 4), (0.0, 2)], ids=["near", "far", "elsewhere"])
def test_a_start_is_left_until_steps_are_nearly_as_large_as_tuned(share: float, n_rounds: int) -> None:
    """A place where steps do not grow is a mode of its own."""
    posterior = Posterior(share)
    inner = NoUTurn(PLAIN, np.zeros(DIM), ONES, -np.log(0.8))
    made, is_near = start(-FAR).approach_with(inner, cast(Any, posterior), Progress().check)
    assert posterior.n_trees == n_rounds * random_starts._WITH_TUNED
    assert is_near == (share > 0) == (-2 < made.density == -abs(made.draws[-1]).max())


@pytest.mark.parametrize(
    ("densities", "suits_at", "n_rounds"),
    [
        ([-30, -31, -20, -19.5, -20, -10], 0, 5),
        ([-51, -50, -10], 0, 2),
        ([-48 + 2 * k for k in range(20)], 0, 10),
        ([-30, -20, -10, -5], 3, 3),
    ],
    ids=["level", "low", "many", "suits"],
)
def test_rounds_end_where_the_density_no_longer_increases_or_the_metric_suits(
    monkeypatch: pytest.MonkeyPatch, densities: list[float], suits_at: int, n_rounds: int
) -> None:
    """Each round has the metric of draws of the last one. Log densities of the posterior vary by 1."""
    about, rounds = list[FloatArray](), list[FloatArray]()

    def expansion(_: Any, draws: FloatArray) -> Approximation:
        about.append(draws)
        return SimpleNamespace(precision=None)  # type: ignore[return-value]

    class Rounds:
        def round(self, _: Any, __: Any, draws: FloatArray, *___: Any, max_tree_depth: int) -> Any:
            rounds.append(draws)
            inner = NoUTurn(PLAIN, np.zeros(DIM), ONES, 0.3 if len(rounds) == suits_at else 0.1)
            return SimpleNamespace(draws=np.full((3, DIM), densities[len(rounds) - 1]), inner=inner)

    monkeypatch.setattr(random_starts, "_mean_expansion", expansion)
    made = start(-FAR).approach(cast(Any, Posterior(0.0)), cast(Any, Rounds()))
    assert len(rounds) == n_rounds
    assert made.density == densities[n_rounds - 1]
    assert [one[-1, 0] for one in about] == [-FAR, *densities[: n_rounds - 1]]


def test_starts_that_stay_elsewhere_are_about_modes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The highest of those that are left leads to the next mode, unless its draws are those of one before."""
    given = list[float]()

    def tune_at(_: Any, highest: Any, others: list[Any], __: Any) -> tuple[TunedSurrogate, list[Any]]:
        draws = highest.density + 0.1 * np.random.default_rng(1).standard_normal((50, DIM))
        tuned = TunedSurrogate(cast(Any, None), draws, 0.0, 0.0, 1)
        return tuned, [one for one in others if one.density < highest.density - 0.2]

    def by_share(_: Any, found: list[TunedSurrogate], __: Progress) -> TunedSurrogate:
        given.extend(round(float(one.draws.mean()), 1) for one in found)
        return found[0]

    monkeypatch.setattr(
        random_starts._Search, "begin", lambda _: (None, [start(one) for one in (1.0, 3.1, 0.9, 3.0, 2.0, 1.7)])
    )
    monkeypatch.setattr(random_starts._Search, "tune_at", tune_at)
    monkeypatch.setattr(random_starts, "by_share", by_share)
    tuned = random_starts.tune(cast(Any, Posterior(0.0)), DIM, np.random.default_rng(1), Progress())
    assert tuned is not None
    assert given == [3.1, 2.0, 1.0]
    assert tuned.n_seen == 3


def test_starts_where_nothing_can_be_tuned_are_about_no_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them must be near one, and an interrupt ends the work."""

    def tuned(*results: Exception | None) -> TunedSurrogate | None:
        left = list(results)

        def tune_at(_: Any, highest: Any, others: list[Any], __: Any) -> tuple[TunedSurrogate, list[Any]]:
            if error := left.pop(0):
                raise error
            draws = highest.density + np.random.default_rng(1).standard_normal((50, DIM))
            return TunedSurrogate(cast(Any, None), draws, 0.0, 0.0, 1), others

        monkeypatch.setattr(random_starts._Search, "begin", lambda _: (None, [start(one) for one in (1.0, 30.0, 60.0)]))
        monkeypatch.setattr(random_starts._Search, "tune_at", tune_at)
        monkeypatch.setattr(random_starts, "by_share", lambda _, found, __: found[0])
        return random_starts.tune(cast(Any, Posterior(0.0)), DIM, np.random.default_rng(1), Progress())

    undefined = RunError("undefined")
    for results, n in (((None, undefined, None), 2), ((undefined, undefined, None), 1), ((None, None, undefined), 2)):
        made = tuned(*results)
        assert made is not None
        assert made.n_seen == n
    for results in ((undefined, undefined, undefined), (None, StoppedError("stopped"), None)):
        with pytest.raises(type(results[1])):
            tuned(*results)


def test_starts_that_are_stuck_far_below_are_about_no_mode() -> None:
    """A mode that much lower could hold a share of the posterior only if it were far wider."""

    starts = [start(one) for one in (-11.5, -12.5, -9.5)]
    assert [one.density for one in random_starts._not_far_below(starts, -10.0)] == [-11.5, -9.5]
