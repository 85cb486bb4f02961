"""Chains from random starts on a posterior whose likelihood has no maximum: they arrive before they are sampled."""

from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
import scipy.sparse as sp

from stansub.errors import RunError
from stansub.kernels.surrogate import MAX_TREE_DEPTH, NoUTurn
from stansub.progress import Progress, StoppedError
from stansub.selection import Along
from stansub.target.coordinates import Coordinates
from stansub.target.metric import Metric
from stansub.tuning.surrogates import warmup
from stansub.tuning.surrogates.hmc import Tuned
from stansub.tuning.surrogates.surrogate import TunedSurrogate
from stansub.types import FloatArray

DIM, FAR = 2, 50.0


class Made(NamedTuple):
    acceptance_rate: float


class Posterior:
    """Trees go towards 0 by a share of the distance; far from there, smaller steps are accepted."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.metrics: list[Metric] = []
        self.tree_metrics: list[Metric] = []
        self.depths = set[int]()

    @property
    def model(self) -> Any:
        return self

    def posterior(self) -> Any:
        return self

    def log_density(self, theta: FloatArray) -> float:
        return -float(np.abs(theta).max())

    def hamiltonian(self, _: FloatArray, metric: Metric, __: Coordinates, **___: Any) -> Any:
        self.metrics.append(metric)
        return self

    def nuts(self, bits: Any, theta: Any, n: int = 1, *, step_size: float, max_tree_depth: int) -> Made:
        self.tree_metrics.append(self.metrics[-1])
        self.depths.add(max_tree_depth)
        theta *= 1 - self.share
        return Made(float(np.exp(-step_size * (1 + np.abs(theta).max()))))

    def counts(self, tuned: Metric) -> tuple[int, int]:
        """Return the trees with other metrics and with the tuned one."""
        n_tuned = sum(one is tuned for one in self.tree_metrics)
        return len(self.tree_metrics) - n_tuned, n_tuned


def approached(posterior: Posterior, *, least: float) -> tuple[warmup._Start, bool, tuple[int, int]]:
    """Return a far start with draws of its own, whether it came near, and the counts of trees."""
    inner = NoUTurn(Coordinates.plain(DIM), np.zeros(DIM), Metric.of(sp.csc_array(sp.identity(DIM))), -np.log(0.8))
    start = warmup._Start(np.full((1, DIM), FAR), -FAR, np.ones(DIM), np.random.default_rng(1))
    return *start.approach(cast(Any, posterior), inner, least, Progress().check), posterior.counts(inner.metric)


@pytest.mark.parametrize(("share", "n_rounds"), [(0.1, 1), (0.02, 4), (0.0, 2)], ids=["near", "far", "elsewhere"])
def test_a_start_is_left_until_steps_are_nearly_as_large_as_tuned(share: float, n_rounds: int) -> None:
    """A place where steps do not grow is a mode of its own."""
    start, is_near, counts = approached(Posterior(share), least=-FAR)
    assert counts == (0, n_rounds * warmup._APPROACH)
    assert is_near == (share > 0) == (-2 < start.density == -abs(start.draws[-1]).max())


@pytest.mark.parametrize(("share", "n_times"), [(0.1, 1), (0.0, 2)], ids=["near", "elsewhere"])
def test_a_start_with_a_low_density_first_continues_with_its_own_metric(share: float, n_times: int) -> None:
    """The tuned metric suits where the density is high."""
    _, _, (n_own, n_tuned) = approached(Posterior(share), least=-1.0)
    assert n_own == n_times * sum(warmup._LATER)
    assert n_tuned >= warmup._APPROACH


def test_trees_are_not_full_on_the_way_to_the_posterior() -> None:
    """Steps are many there, and full trees of them lead hardly nearer."""
    posterior = Posterior(0.02)
    approached(posterior, least=-1.0)
    assert posterior.depths == {warmup._DEPTH}
    assert warmup._DEPTH < MAX_TREE_DEPTH


def test_windows_adapt_a_diagonal_metric() -> None:
    """Coordinates that vary more are thought less precise."""

    class Uneven(Posterior):
        def nuts(self, bits: Any, theta: Any, n: int = 1, *, step_size: float, max_tree_depth: int) -> Made:
            theta[:] = np.random.default_rng(len(self.tree_metrics)).normal(0, [1.0, 10.0])
            self.tree_metrics.append(self.metrics[-1])
            return Made(0.8)

    posterior = cast(Any, Uneven(0.0))
    start = warmup._Start(np.zeros((1, DIM)), 0.0, np.ones(DIM), np.random.default_rng(1))
    made = start.run_windows(posterior, warmup._LATER, Progress().check)
    assert len(posterior.tree_metrics) == sum(warmup._LATER)
    np.testing.assert_allclose(made.precision, [1.0, 0.01], rtol=0.4)
    assert made.density == posterior.log_density(made.draws[-1])


@pytest.mark.parametrize(
    ("sizes", "n_rounds"), [([0.05, 0.3, 0.31], 3), ([0.3, 0.3], 2), ([0.01 * 2.0**k for k in range(20)], 8)]
)
def test_the_metric_is_tuned_until_steps_no_longer_grow(
    sizes: list[float], n_rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round begins at the draws of the one before, with their metric."""
    started = list[float]()

    class Rounds:
        def round(self, _: Any, about: Any, draws: FloatArray, points: FloatArray, metric_of: Any) -> Tuned:
            assert about == metric_of == points[-1, 0] == draws[-1, 0]
            started.append(float(draws[-1, 0]))
            return Tuned(NoUTurn(*cast(Any, (None, None, None)), sizes[len(started) - 1]), draws + 1)

        def finish_on_posterior(self, *given: Any) -> Tuned:
            return self.round(*given)

    def about(_: Any, draws: FloatArray) -> Any:
        return SimpleNamespace(precision=draws[-1, 0])

    rounds: Any = Rounds()
    monkeypatch.setattr(warmup._Warmup, "_about", about)
    monkeypatch.setattr(warmup.Exploration, "of", lambda *_: (SimpleNamespace(tuner=rounds), None))
    split: Any = SimpleNamespace(surrogate=lambda about: about.precision)
    own = warmup._Warmup(split, DIM, np.random.default_rng(1), Progress(), Along.NO_MAXIMUM)
    sizes.append(0.0)
    tuned, last, tuner = own._tune_near(cast(Any, None), np.zeros((20, DIM)))
    assert started == list(range(n_rounds + 1))
    assert last.precision == n_rounds == tuned.draws[-1, 0] - 1
    assert tuner is rounds


def test_starts_that_stay_elsewhere_are_about_modes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The highest of those that are left leads to the next mode, unless its draws are those of one before."""
    given = list[float]()

    def tune_highest(_: Any, starts: list[float]) -> tuple[TunedSurrogate, list[float]]:
        draws = max(starts) + 0.1 * np.random.default_rng(1).standard_normal((50, DIM))
        tuned = TunedSurrogate(cast(Any, None), draws, 0.0, 0.0, 1)
        return tuned, [one for one in starts if one < max(starts) - 0.2]

    def by_share(_: Any, found: list[TunedSurrogate], *__: Any) -> TunedSurrogate:
        given.extend(round(float(one.draws.mean()), 1) for one in found)
        return found[0]

    monkeypatch.setattr(warmup._Warmup, "begin", lambda _: [1.0, 3.1, 0.9, 3.0, 2.0, 1.7])
    monkeypatch.setattr(warmup._Warmup, "tune_highest", tune_highest)
    monkeypatch.setattr(warmup, "by_share", by_share)
    tuned = warmup.tune(cast(Any, Posterior(0.0)), DIM, np.random.default_rng(1), Progress())
    assert tuned is not None
    assert given == [3.1, 2.0, 1.0]
    assert tuned.n_seen == 3


def test_starts_where_nothing_can_be_tuned_are_about_no_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one must be, and an interrupt ends the work."""

    def tuned(error: RunError, n_before: int) -> TunedSurrogate | None:
        draws = np.random.default_rng(1).standard_normal((50, DIM))
        made: list[Any] = [TunedSurrogate(cast(Any, None), draws, 0.0, 0.0, 1)] * n_before

        def tune_highest(_: Any, starts: list[int]) -> tuple[TunedSurrogate, list[int]]:
            if not made:
                raise error
            return made.pop(), starts[1:]

        monkeypatch.setattr(warmup._Warmup, "begin", lambda _: [1, 2, 3])
        monkeypatch.setattr(warmup._Warmup, "tune_highest", tune_highest)
        return warmup.tune(cast(Any, Posterior(0.0)), DIM, np.random.default_rng(1), Progress())

    assert tuned(RunError("undefined"), 1) is not None
    for error, n_before in ((RunError("undefined"), 0), (StoppedError("stopped"), 1)):
        with pytest.raises(type(error)):
            tuned(error, n_before)


def test_starts_that_are_stuck_far_below_are_about_no_mode() -> None:
    """A mode that much lower could hold a share of the posterior only if it were far wider."""

    def start(density: float) -> warmup._Start:
        return warmup._Start(np.zeros((1, DIM)), density, np.ones(DIM), np.random.default_rng(1))

    reached = [(start(-9.0), True), (start(-11.5), False), (start(-12.5), False), (start(-9.5), False)]
    assert [one.density for one in warmup._near_other_modes(reached, -10.0)] == [-11.5, -9.5]
