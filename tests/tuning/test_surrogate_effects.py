"""Samplers of normal effects on a surrogate: which one is tuned, with how many steps, and which one is taken."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

from stansub.kernels.surrogate import GivenScales, NoUTurn
from stansub.target.approximation import Approximation
from stansub.target.sparse import Quadratic
from stansub.tuning.surrogates import given_scales as surrogate_given_scales
from stansub.tuning.surrogates.given_scales import GivenScalesTuner
from stansub.tuning.surrogates.hmc import Tuned
from stansub.tuning.surrogates.of_effects import EffectsTuner
from stansub.tuning.surrogates.sampler_choice import choose_sampler

DIM = 3
ABOUT = Approximation.plain(Quadratic.of(np.zeros(1), 0.0, np.zeros(1), sp.csr_array(np.eye(1))))
START = np.zeros((1, DIM))
# Of trajectories of a third of a circle in three steps, 1 % are rejected.
MILD = 0.01 / (2 * np.pi / 3 / 3) ** 2


class Made(NamedTuple):
    acceptance_rate: float
    n_steps: int
    diverging: bool = False
    tree_depth: int = 0


class Surrogate:
    """Its sampler rejects a share that rises with the square of the steps; draws are autoregressive."""

    def __init__(self, rejected: float, rho: float) -> None:
        self.rejected, self.rho, self.rng = rejected, rho, np.random.default_rng(1)

    def of_effects(self, effects: Any) -> Any:
        def given_scales(bits: Any, theta: Any, n: int = 1, *, step_size: float, n_steps: int) -> Made:
            theta[:] = self.rho * theta + np.sqrt(1 - self.rho**2) * self.rng.standard_normal(DIM)
            return Made(1 - min(1.0, self.rejected * step_size**2), n_steps)

        return SimpleNamespace(given_scales=given_scales)


def structure(*, proposes: bool = True, uncertain: bool = False) -> Any:
    effects = SimpleNamespace(centre=np.zeros(int(proposes)))
    return SimpleNamespace(about=lambda *_: effects, is_uncertain=lambda *_: uncertain)


def tuner(**options: bool) -> GivenScalesTuner:
    return GivenScalesTuner(structure(**options), np.random.default_rng(1), lambda: None)


@pytest.fixture(autouse=True)
def cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surrogate_given_scales, "transition_cost", lambda inner: 10.0 * inner.n_steps)


def finished(*, rejected: float = MILD, rho: float = 0.0, **options: bool) -> Tuned | None:
    surrogate: Any = Surrogate(rejected, rho)
    return tuner(**options).finish(surrogate, ABOUT, START)


@pytest.mark.parametrize(("rejected", "n_steps"), [(MILD, 3), (19 * MILD, 6), (200 * MILD, None)])
def test_trajectories_have_as_many_steps_as_accept_nearly_all(rejected: float, n_steps: int | None) -> None:
    """With more than 15, there are none."""
    found = finished(rejected=rejected)
    if n_steps is None:
        assert found is None
        return
    assert found is not None
    assert isinstance(found.inner, GivenScales)
    assert found.inner.n_steps == n_steps
    assert found.inner.step_size * n_steps == pytest.approx(2 * np.pi / 3)
    assert found.transition_cost == 10 * n_steps


def test_there_are_no_trajectories_without_proposals_of_the_scales() -> None:
    surrogate: Any = Surrogate(MILD, 0.0)
    assert finished(proposes=False) is None
    assert tuner(proposes=False).round(surrogate, ABOUT, START) is None


@pytest.mark.parametrize(
    ("rho", "uncertain", "least", "most"),
    [(0.0, False, 1, 1), (0.8, False, 2, 9), (0.8, True, 6, 13), (0.999, True, 50, 50)],
)
def test_a_step_has_more_transitions_the_more_draws_resemble_each_other(
    rho: float, uncertain: bool, least: int, most: int
) -> None:
    """As many as make them independent, where a scale is uncertain."""
    found = finished(rho=rho, uncertain=uncertain)
    assert found is not None
    assert least <= found.n <= most


def test_where_a_scale_is_uncertain_the_sampler_is_tested_longer() -> None:
    """The neck of a funnel is rare among draws."""
    certain, uncertain = finished(), finished(uncertain=True)
    assert certain is not None
    assert uncertain is not None
    assert (len(certain.draws), len(uncertain.draws)) == (200, 800)


def test_a_round_leaves_out_its_first_draws() -> None:
    surrogate: Any = Surrogate(MILD, 0.0)
    found = tuner().round(surrogate, ABOUT, START)
    assert found is not None
    assert found.draws.shape == (30, DIM)


def tuned(time: float, cost: float = 1.0, accepted: float = 1.0) -> Tuned:
    return Tuned(GivenScales(None, 0.5, 4), START, time, cost, accepted=accepted)  # type: ignore[arg-type]


def effects(moved: Tuned | None, swept: Tuned | None, *, uncertain: bool = False) -> EffectsTuner:
    gibbs, given_scales = (SimpleNamespace(round=lambda *_, t=t: t, finish=lambda *_, t=t: t) for t in (swept, moved))
    return EffectsTuner(structure(uncertain=uncertain), gibbs, given_scales)  # type: ignore[arg-type]


MOVED, SWEPT, SELDOM = tuned(1.0), tuned(1.0, accepted=0.6), tuned(1.0, accepted=0.4)


@pytest.mark.parametrize(
    ("moved", "swept", "uncertain", "expected"),
    [
        (MOVED, SWEPT, True, SWEPT),
        (MOVED, SELDOM, True, MOVED),
        (MOVED, SELDOM, False, SELDOM),
        (None, SELDOM, True, SELDOM),
        (MOVED, None, False, MOVED),
        (None, None, True, None),
    ],
)
def test_rounds_are_by_sweeps_if_enough_of_them_are_accepted(
    moved: Tuned | None, swept: Tuned | None, uncertain: bool, expected: Tuned | None
) -> None:
    """Half of them if a scale is uncertain."""
    found = effects(moved, swept, uncertain=uncertain).round(None, ABOUT, START)  # type: ignore[arg-type]
    assert found is expected


DEAR, CHEAP, NEVER = tuned(4.0, 9.0), tuned(5.0, 1.0, 0.4), tuned(60.0, 0.01)


@pytest.mark.parametrize(
    ("moved", "swept", "in_funnel", "cheapest"),
    [
        (DEAR, CHEAP, DEAR, CHEAP),  # of whose sweeps few are accepted
        (DEAR, NEVER, DEAR, NEVER),
        (DEAR, SWEPT, SWEPT, SWEPT),
        (DEAR, None, DEAR, DEAR),
        (None, CHEAP, None, CHEAP),
        (None, None, None, None),
    ],
)
def test_the_cheaper_sampler_is_taken_that_does_not_stay_in_a_funnel(
    moved: Tuned | None, swept: Tuned | None, in_funnel: Tuned | None, cheapest: Tuned | None
) -> None:
    surrogate: Any = None
    assert effects(moved, swept, uncertain=True).in_funnel(surrogate, ABOUT, START) is in_funnel
    assert effects(moved, swept).in_funnel(surrogate, ABOUT, START) is None
    assert effects(moved, swept).finish(surrogate, ABOUT, START) is cheapest


@pytest.mark.parametrize(
    ("uncertain", "trees", "expected"),
    [
        (True, None, "effects"),
        (False, (1.0, 99.0), "trees"),  # that are not slow
        (False, (2.0, 9.0), "trees"),
        (False, (5.0, 9.0), "effects"),
    ],
)
def test_samplers_of_effects_are_for_funnels_and_where_trees_are_slow(
    uncertain: bool, trees: tuple[float, float] | None, expected: str
) -> None:
    nowhere: Any = None
    inner = NoUTurn(nowhere, nowhere, nowhere, 0.1)

    def finish(*given: Any) -> Tuned:
        assert trees is not None
        found = Tuned(inner, START, *trees)
        given[-1](found)
        return found

    tuner: Any = SimpleNamespace(finish=finish)
    found = choose_sampler(nowhere, ABOUT, Tuned(inner, START), tuner, effects(DEAR, None, uncertain=uncertain))
    assert ("trees" if isinstance(found.inner, NoUTurn) else "effects") == expected
    if trees is not None:
        alone = choose_sampler(nowhere, ABOUT, Tuned(inner, START), tuner, None)
        assert isinstance(alone.inner, NoUTurn)
