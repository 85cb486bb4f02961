"""The sampler on a surrogate: a step size with which few transitions diverge, and enough transitions a step."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
import scipy.sparse as sp
from clocks import Clock, set_clock

from stansub.kernels.surrogate import FixedLength, Gibbs, GivenScales, NoUTurn, RandomLength, SurrogateTransition
from stansub.progress import Progress
from stansub.selection import StepCost, SurrogateSettled
from stansub.target.approximation import Approximation
from stansub.target.coordinates import Coordinates
from stansub.target.metric import Metric
from stansub.target.sparse import Quadratic
from stansub.target.split import Surrogate
from stansub.tuning import transitions
from stansub.tuning.surrogates import gibbs as surrogate_gibbs
from stansub.tuning.surrogates.hmc import CHECKS_ON_POSTERIOR, Tuned, Tuner
from stansub.tuning.surrogates.omissions import noise_of
from stansub.tuning.surrogates.surrogate import TunedSurrogate

DIM = 3
WHOLE = SimpleNamespace(part_sizes=np.ones(1, np.int32))
ABOUT = Approximation.plain(Quadratic.of(np.zeros(1), 0.0, np.zeros(1), sp.csr_array(np.eye(1))))


class Made(NamedTuple):
    acceptance_rate: float
    diverging: bool
    n_steps: int = 1
    tree_depth: int = 1


class Sampler:
    """Autoregressive draws; the acceptance rate falls with the step size, above a limit transitions diverge.

    Trees have the maximum depth below another step size, and the first ones may accept more. Trajectories of fixed
    length reject all, or a share that falls with the square of their steps; their draws may seem to resemble each other
    for a while.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        *,
        rho: float = 0.0,
        limit: float = np.inf,
        full_below: float = 0.0,
        rejected: float = np.inf,
        slow_until: float = 0,
        easy_until: float = 0,
        seconds: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        self.seconds, self.clock = seconds, clock or Clock()
        self.rng, self.rho, self.limit, self.full_below, self.rejected = rng, rho, limit, full_below, rejected
        self.slow_until, self.n_trajectories = slow_until, 0
        self.easy_until, self.n_trees = easy_until, 0

    def nuts(self, bits: Any, theta: Any, n: int = 1, *, step_size: float, max_tree_depth: int) -> Made:
        self._move(theta, self.rho)
        self.clock.advance(self.seconds)
        depth = max_tree_depth if step_size < self.full_below else 1
        self.n_trees += 1
        curvature = 0.1 if self.n_trees <= self.easy_until else 1.0
        return Made(float(np.exp(-step_size * curvature)), step_size > self.limit, tree_depth=depth)

    def hmc(self, bits: Any, theta: Any, n: int = 1, *, step_size: float, n_steps: int) -> Made:
        self.n_trajectories += 1
        self._move(theta, 0.9 if self.n_trajectories <= self.slow_until else self.rho)
        return Made(1 - min(1.0, self.rejected * step_size**2), step_size > self.limit, n_steps)

    def _move(self, theta: Any, rho: float) -> None:
        theta[:] = rho * theta + np.sqrt(1 - rho**2) * self.rng.standard_normal(DIM)


class Flat:
    """A surrogate, and what a tuner asks of one."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler, self.model, self.dim = sampler, self, DIM

    def hamiltonian(self, *_: Any, **__: Any) -> Sampler:
        return self.sampler

    def matching(self, *_: Any) -> Coordinates:
        return Coordinates.plain(DIM)


class Identity:
    """Hessians."""

    def metric(self, *_: Any) -> Metric:
        return Metric.of(sp.csc_array(sp.identity(DIM)))


def made(**options: Any) -> tuple[Any, Tuner, sp.csr_array]:
    """Return a surrogate, its tuner, and the precision of the data."""
    rng = np.random.default_rng(1)
    flat = cast(Any, Flat(Sampler(rng, **options)))
    tuner = Tuner(flat, cast(Any, Identity()), rng, lambda: None)
    return flat, tuner, sp.csr_array(sp.identity(DIM))


def on_posterior(**options: float) -> Tuned:
    flat, tuner, precision = made(**options)
    return tuner.finish_on_posterior(flat, precision, np.zeros((1, DIM)), np.zeros((1, DIM)))


def finished(*, is_beaten: bool = False, **options: float) -> Tuned:
    flat, tuner, precision = made(**options)
    tuned = tuner.round(cast(Surrogate, flat), precision, np.zeros((1, DIM)), np.zeros((1, DIM)))
    assert isinstance(tuned.inner, NoUTurn)
    return tuner.finish(cast(Surrogate, flat), precision, tuned.draws, tuned.inner, lambda tuned: is_beaten)


def step_size(of: Tuned) -> float:
    assert isinstance(of.inner, NoUTurn)
    return of.inner.step_size


@pytest.mark.parametrize(("rho", "least", "most"), [(0.0, 1, 1), (0.7, 2, 9), (0.98, 25, 49), (0.999, 50, 50)])
def test_a_step_has_more_transitions_the_more_draws_resemble_each_other(rho: float, least: int, most: int) -> None:
    assert least <= finished(rho=rho).n <= most


def test_a_sampler_is_slow_if_draws_resemble_each_other_or_transitions_diverge() -> None:
    free = finished()
    assert not free._replace(time=1.4).is_slow
    assert free._replace(time=2.2).is_slow  # one transition a step would still do
    assert free._replace(diverging=0.01).is_slow
    assert free._replace(time=2.0, transition_cost=3.0).cost == 6


def test_a_step_size_is_made_smaller_where_transitions_diverge() -> None:
    free, held = finished(), finished(limit=0.15)
    assert step_size(free) == pytest.approx(-np.log(0.8), rel=0.15)
    assert step_size(held) < 0.15
    assert held.diverging == 0


def test_a_step_size_from_an_easy_part_of_the_density_is_made_smaller() -> None:
    """A longer run shows a lower acceptance rate than that for which it was tuned; chains would stick."""
    held = finished(easy_until=60 + 100 + 100)
    assert step_size(held) == pytest.approx(-np.log(0.9), rel=0.15)


def test_a_step_size_with_full_trees_is_not_made_smaller() -> None:
    held = finished(limit=0.0, full_below=0.15)
    assert step_size(held) == pytest.approx(-np.log(0.9), rel=0.15)
    assert held.diverging == 1


def test_a_beaten_sampler_keeps_its_first_step_size() -> None:
    held = finished(limit=0.0, is_beaten=True)
    assert step_size(held) == pytest.approx(-np.log(0.8), rel=0.15)
    assert step_size(finished(limit=0.0)) < 0.05


# Of trajectories of a third of a circle in five steps, 1 % are rejected.
MILD = 0.01 / (2 * np.pi / 3 / 5) ** 2


@pytest.mark.parametrize(("rejected", "n_steps"), [(MILD, 5), (19 * MILD, 10), (60 * MILD, None)])
def test_trajectories_have_as_many_steps_as_accept_nearly_all(rejected: float, n_steps: int | None) -> None:
    """With more than 15, trees are taken."""
    inner = finished(rejected=rejected).inner
    if n_steps is None:
        assert isinstance(inner, NoUTurn)
    else:
        assert isinstance(inner, FixedLength)
        assert inner.n_steps == n_steps
        assert inner.step_size * n_steps == pytest.approx(2 * np.pi / 3)


def test_trees_are_taken_where_trajectories_are_slow_or_diverge() -> None:
    assert isinstance(finished(rejected=MILD, rho=0.9).inner, NoUTurn)
    assert isinstance(finished(rejected=MILD, limit=0.3).inner, NoUTurn)


def test_trajectories_that_seem_slow_are_measured_longer() -> None:
    assert isinstance(finished(rejected=MILD, slow_until=200).inner, FixedLength)
    assert isinstance(finished(rejected=MILD, slow_until=1000).inner, NoUTurn)


@pytest.mark.parametrize(
    ("rates", "noise", "random"), [((0.3, 0.6), 1.0, True), ((0.7,), 1.0, False), ((0.01,), 40.0, False)]
)
def test_trajectories_that_are_often_rejected_become_of_random_length(
    rates: tuple[float, ...], noise: float, random: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the surrogate omits so much that short ones are rejected too: the rate says so."""
    nowhere: Any = None
    inner, left = FixedLength(nowhere, nowhere, nowhere, 0.1, 5), map(transitions._Moves, rates)
    transition = SurrogateTransition(nowhere, inner, np.ones(1))
    monkeypatch.setattr(transitions, "_moves", lambda *_: next(left))
    tuned = TunedSurrogate(transition, np.zeros((1, 1)), noise, 0.0, 1)
    split: Any = SimpleNamespace(posterior=lambda: None)
    found = transitions.tried(split, tuned, np.random.default_rng(1), Progress())
    assert isinstance(found.tuned.transition.inner, RandomLength) == random
    assert found.accepted == rates[-1]


@pytest.mark.parametrize(
    ("rate", "in_a_row", "noise", "share"),
    [(0.3, 0, 0.5, 1.0), (0.9, 0, 1.4, 1.0), (0.6, 10, 0.7, 1.0), (0.6, 9, 0.7, 0.1), (0.9, 0, 0.1, 0.0)],
)
def test_trajectories_are_on_the_posterior_if_the_surrogate_omits_too_much(
    rate: float, in_a_row: int, noise: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere: Any = None
    first, second = transitions._Moves(rate, in_a_row, seconds=0.5), transitions._Moves(0.8, seconds=3.9)
    inner, left = NoUTurn(nowhere, nowhere, nowhere, 0.1), iter((first, second))
    monkeypatch.setattr(transitions, "_moves", lambda *_: next(left))
    metrics = []

    def finish(*given: Any) -> Tuned:
        metrics.append(given[-1])
        return Tuned(inner, np.ones((2, 1)), n_steps=20, seconds=4.0)

    monkeypatch.setattr(Tuner, "finish_on_posterior", finish)
    transition = SurrogateTransition(ABOUT, inner, np.ones(1), n=3)
    tuned = TunedSurrogate(transition, np.zeros((1, 1)), noise, 0.0, 1, tuner=made()[1])
    split: Any = SimpleNamespace(posterior=lambda: "posterior", surrogate=lambda _: "surrogate")
    found = transitions.tried(split, tuned, np.random.default_rng(1), Progress())
    assert found.tuned.transition.share == share
    assert metrics == {1.0: [None], 0.1: ["surrogate"], 0.0: []}[share]
    assert (found.tuned.transition.on_posterior is not None) == (share > 0)
    assert (found.accepted, found.of_surrogate) == ((0.8, rate) if share == 1 else (rate, None))
    assert (found.tuned.draws == (share == 1)).all()
    assert found.cost == {1.0: StepCost(20, 4.0), 0.1: StepCost(2, 0.1 * 4.0 + 0.9 * 0.5), 0.0: None}[share]
    words = found.tuned.choice().describe()
    assert ("on the posterior itself" in words, "10 % of the steps" in words) == (share > 0, share == 0.1)
    left = iter((first,))
    rng = np.random.default_rng(1)
    assert not transitions.tried(split, tuned, rng, Progress(), on_posterior=False).tuned.transition.on_posterior


@pytest.mark.parametrize(
    ("inner", "rate", "share"),
    [
        (GivenScales(cast(Any, None), 0.1, 5), 0.4, 0.5),
        (GivenScales(cast(Any, None), 0.1, 5), 0.2, 1.0),
        (GivenScales(cast(Any, None), 0.1, 5), 0.7, 0.1),
        (NoUTurn(cast(Any, None), cast(Any, None), cast(Any, None), 0.1), 0.4, 1.0),
    ],
)
def test_a_sampler_that_crosses_funnels_still_makes_half_of_the_steps(
    inner: Any, rate: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere: Any = None
    along = NoUTurn(nowhere, nowhere, nowhere, 0.1)
    monkeypatch.setattr(transitions, "_moves", lambda *_: transitions._Moves(rate, seconds=0.5))
    monkeypatch.setattr(Tuner, "finish_on_posterior", lambda *_: Tuned(along, np.ones((2, 1)), n_steps=20, seconds=4.0))
    tuned = TunedSurrogate(
        SurrogateTransition(ABOUT, inner, np.ones(1)), np.zeros((1, 1)), 0.5, 0.0, 1, tuner=made()[1]
    )
    split: Any = SimpleNamespace(posterior=lambda: "posterior", surrogate=lambda _: "surrogate")
    found = transitions.tried(split, tuned, np.random.default_rng(1), Progress())
    transition = found.tuned.transition
    assert (transition.share, transition.inner) == (share, inner if share < 1 else along)
    assert found.cost == StepCost(share * 20, share * 4.0 + (1 - share) * 0.5) or share == 1


def test_trajectories_on_the_posterior_that_hardly_move_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere: Any = None
    inner = NoUTurn(nowhere, nowhere, nowhere, 1e-5)
    monkeypatch.setattr(transitions, "_moves", lambda *_: transitions._Moves(0.0))
    monkeypatch.setattr(Tuner, "finish_on_posterior", lambda *_: Tuned(inner, np.ones((2, 1)), diverging=1.0))
    transition = SurrogateTransition(ABOUT, inner, np.ones(1))
    tuned = TunedSurrogate(transition, np.zeros((1, 1)), 40.0, 0.0, 1, made()[1])
    split: Any = SimpleNamespace(posterior=lambda: "posterior")
    assert not transitions.tried(split, tuned, np.random.default_rng(1), Progress()).tuned.transition.on_posterior


def test_trees_on_the_posterior_that_are_full_count_as_divergent() -> None:
    found = on_posterior()
    assert isinstance(found.inner, NoUTurn)
    assert (found.diverging, len(found.draws)) == (0, 140)
    assert on_posterior(full_below=9.0).diverging == 1
    assert on_posterior(limit=0.0).diverging == 1


def test_a_metric_is_that_of_another_density_if_there_is_one() -> None:
    flat, tuner, precision = made()
    nowhere, seen = np.zeros((1, DIM)), list[Any]()

    class Seen(Identity):
        def metric(self, density: Any, *_: Any) -> Metric:
            seen.append(density._density)
            return super().metric()

    tuner = replace(tuner, differences=cast(Any, Seen()))
    for metric_of, expected in ((None, flat), (made()[0], None)):
        seen.clear()
        tuner.finish_on_posterior(flat, precision, nowhere, nowhere, metric_of)
        assert set(map(id, seen)) == {id(expected or metric_of)}


def test_the_cost_of_a_trajectory_on_the_posterior_is_measured_and_its_tuning_counted() -> None:
    counts = []
    with set_clock() as clock:
        flat, tuner, precision = made(seconds=3.0, clock=clock)
        progress = Progress()
        progress("Tuning")

        def check() -> None:
            counts.append(len(counts))
            progress.advance(counts[-1], CHECKS_ON_POSTERIOR)

        found = replace(tuner, check=check).finish_on_posterior(flat, precision, np.zeros((1, DIM)), np.zeros((1, DIM)))
    assert (found.seconds, found.n_steps) == (3.0, 1)
    assert len(counts) == CHECKS_ON_POSTERIOR


@pytest.mark.parametrize(("noise", "share"), [(0.5, 0.1), (1.5, 1.0)])
def test_if_tuning_takes_a_minute_the_cost_is_known_before_it_ends(
    noise: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transitions, "_moves", lambda *_: transitions._Moves(0.9, seconds=0.5))
    told: list[tuple[StepCost, float]] = []
    with set_clock() as clock:
        flat, tuner, _ = made(seconds=2.5, clock=clock)
        transition = SurrogateTransition(ABOUT, NoUTurn(*(3 * [np.zeros(1)]), 0.1), np.ones(1))  # type: ignore[arg-type]
        tuned = TunedSurrogate(transition, np.zeros((1, DIM)), noise, 0.0, 1, tuner=tuner)
        split: Any = SimpleNamespace(posterior=lambda: flat, surrogate=lambda _: flat)
        began = clock()
        found = transitions.tried(
            split,
            tuned,
            np.random.default_rng(1),
            Progress(),
            forecast=lambda cost: told.append((cost, clock() - began)),
        )
    # The metric, and 25 transitions.
    assert told == [(StepCost(None, pytest.approx(share * 62.5 / 26)), 62.5)]
    assert found.cost == StepCost(share, pytest.approx(share * 2.5 + (1 - share) * 0.5))


def test_draws_by_tiny_steps_are_hardly_apart() -> None:
    """What is omitted at them varied little, and a surrogate in whose spike a chain was seemed the best."""
    nowhere: Any = None
    for step_size, is_stuck in ((1e-2, False), (2e-3, True), (1e-4, True)):
        assert Tuned(NoUTurn(nowhere, nowhere, nowhere, step_size), np.zeros((1, 1))).is_stuck == is_stuck
    assert not Tuned(Gibbs(nowhere), np.zeros((1, 1))).is_stuck


@pytest.mark.parametrize(
    ("rate", "cost", "n", "is_used"),
    [
        (0.0, 20_000, 30, False),  # five sweeps from draw to draw
        (0.07, 20_000, 95, False),
        (0.5, 20_000, 95, True),
        (0.2, 20_000, 95, True),
        (0.2, 100_000, 43, False),  # one
        (0.5, 100_000, 43, True),
    ],
)
def test_sweeps_of_which_few_are_accepted_are_not_made_or_not_used(
    rate: float, cost: float, n: int, is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(surrogate_gibbs, "sweep_cost", lambda _: cost)
    monkeypatch.setattr(surrogate_gibbs, "_ROUND", 8)

    def sweep(bits: Any, theta: Any) -> Made:
        made.append(theta)
        return Made(rate, False)

    structure: Any = SimpleNamespace(about=lambda *_: WHOLE)
    surrogate: Any = SimpleNamespace(of_effects=lambda _: SimpleNamespace(gibbs=sweep))
    tuner = surrogate_gibbs.GibbsTuner(structure, np.random.default_rng(1), lambda: None)
    found = tuner.round(surrogate, ABOUT, np.zeros((1, DIM)))
    assert (len(made), found is not None) == (n, is_used)
    assert found is None or len(found.draws) == 8


@pytest.mark.parametrize(
    ("n_parts", "uncertain", "is_used"), [(2, True, True), (2, False, False), (1, True, True), (1, False, True)]
)
def test_effects_in_parts_are_swept_only_if_a_scale_is_uncertain(
    n_parts: int, uncertain: bool, is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surrogate_gibbs, "sweep_cost", lambda _: 20_000.0)
    effects = SimpleNamespace(part_sizes=np.ones(n_parts, np.int32))
    structure: Any = SimpleNamespace(about=lambda *_: effects, is_uncertain=lambda _: uncertain)
    surrogate: Any = SimpleNamespace(of_effects=lambda _: SimpleNamespace(gibbs=lambda *_: Made(0.9, False)))
    tuner = surrogate_gibbs.GibbsTuner(structure, np.random.default_rng(1), lambda: None)
    assert (tuner.round(surrogate, ABOUT, np.zeros((1, DIM))) is not None) == is_used


def test_sweeps_are_made_if_many_from_draws_are_accepted_though_none_from_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = iter([0.3] * 29 + [0.0] * 50 + [0.5] * 1000)
    monkeypatch.setattr(surrogate_gibbs, "sweep_cost", lambda _: 20_000.0)
    structure: Any = SimpleNamespace(about=lambda *_: WHOLE)
    surrogate: Any = SimpleNamespace(of_effects=lambda _: SimpleNamespace(gibbs=lambda *_: Made(next(left), False)))
    tuner = surrogate_gibbs.GibbsTuner(structure, np.random.default_rng(1), lambda: None)
    assert tuner.round(surrogate, ABOUT, np.zeros((40, DIM))) is not None


@dataclass(frozen=True)
class Sweeps:
    """Sweeps with a share of the moves."""

    share: float = 1.0
    centre: tuple[float, ...] = (0.0,)


@pytest.mark.parametrize(("centre", "seldom", "share"), [((0.0,), 4.0, 0.1), ((0.0,), 20.0, 1.0), ((), 4.0, 1.0)])
def test_sweeps_seldom_have_moves_where_draws_are_cheaper_without(
    centre: tuple[float, ...], seldom: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If all scales are proposed at once, and draws hardly resemble each other more."""
    made = []

    def gibbs(effects: Sweeps) -> Any:
        made.append(effects)
        return lambda *_: Made(1.0, False)

    monkeypatch.setattr(surrogate_gibbs, "sweep_cost", lambda effects: 1 + 9 * effects.share)
    monkeypatch.setattr(surrogate_gibbs, "slowest_time", lambda _: 2.0 if made[-1].share == 1 else seldom)
    structure: Any = SimpleNamespace(about=lambda *_: Sweeps(centre=centre))
    surrogate: Any = SimpleNamespace(of_effects=lambda effects: SimpleNamespace(gibbs=gibbs(effects)))
    tuner = surrogate_gibbs.GibbsTuner(structure, np.random.default_rng(1), lambda: None)
    found = tuner.finish(surrogate, ABOUT, np.zeros((1, DIM)))
    assert found is not None
    assert cast(Gibbs, found.inner).effects.share == share


def test_the_record_names_the_sampler() -> None:
    nowhere: Any = None
    for inner, n, words in (
        (NoUTurn(nowhere, nowhere, nowhere, 0.1), 3, "sampled by NUTS, 3 transitions a decision"),
        (FixedLength(nowhere, nowhere, nowhere, 0.1, 5), 1, "sampled by HMC, 1 transition of 5 steps a decision"),
        (
            FixedLength(nowhere, nowhere, nowhere, 0.1, 5).of_random_length(),
            1,
            "sampled by HMC, 1 transition of up to 5 steps a decision",
        ),
        (Gibbs(nowhere), 2, "sampled by Gibbs sampling, 2 sweeps a decision"),
        (
            GivenScales(nowhere, 0.5, 4).of_random_length(),
            3,
            "sampled by HMC given the scales, 3 transitions of 4 steps a decision",
        ),
    ):
        assert words in SurrogateSettled(0.1, 9, inner.describe(n)).describe()


def test_draws_without_likelihood_are_an_infinite_error() -> None:
    noise = noise_of([0.1, -np.inf])
    assert noise == np.inf
    assert "with draws at which the likelihood is 0 or undefined" in SurrogateSettled(noise, 9, "NUTS").describe()


def test_divergent_transitions_that_no_step_size_prevents_are_counted() -> None:
    assert finished(limit=0.0).diverging == 1
