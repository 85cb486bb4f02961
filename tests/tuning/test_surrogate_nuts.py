"""The sampler on a surrogate: a step size with which few transitions diverge, and enough transitions a step."""

from typing import Any, NamedTuple, cast

import numpy as np
import pytest
import scipy.sparse as sp

from stansub.kernels.surrogate import NoUTurn
from stansub.selection import SurrogateSettled
from stansub.target.coordinates import Coordinates
from stansub.target.split import Surrogate
from stansub.tuning.surrogate_nuts import Tuned, Tuner

DIM = 3


class Made(NamedTuple):
    acceptance_rate: float
    diverging: bool
    n_steps: int = 1
    tree_depth: int = 1


class Sampler:
    """Autoregressive draws; the acceptance rate falls with the step size, above a limit transitions diverge.

    Trees have the maximum depth below another step size.
    """

    def __init__(
        self, rng: np.random.Generator, *, rho: float = 0.0, limit: float = np.inf, full_below: float = 0.0
    ) -> None:
        self.rng, self.rho, self.limit, self.full_below = rng, rho, limit, full_below

    def __call__(self, bits: Any, theta: Any, *, step_size: float, max_tree_depth: int, n: int = 1) -> Made:
        theta[:] = self.rho * theta + np.sqrt(1 - self.rho**2) * self.rng.standard_normal(DIM)
        depth = max_tree_depth if step_size < self.full_below else 1
        return Made(float(np.exp(-step_size)), step_size > self.limit, tree_depth=depth)


class Flat:
    """A surrogate, and what a tuner asks of one."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler, self.model, self.dim = sampler, self, DIM

    def nuts(self, *_: Any) -> Sampler:
        return self.sampler

    def matching(self, *_: Any) -> Coordinates:
        return Coordinates.plain(DIM)


def finished(*, is_beaten: bool = False, **options: float) -> Tuned:
    rng = np.random.default_rng(1)
    flat = cast(Any, Flat(Sampler(rng, **options)))
    tuner = Tuner(flat, lambda density, theta: sp.identity(DIM, format="csc"), rng, lambda: None)  # type: ignore[arg-type]
    precision = sp.csr_array(sp.identity(DIM))
    tuned = tuner.round(cast(Surrogate, flat), precision, np.zeros((1, DIM)), np.zeros((1, DIM)))
    assert isinstance(tuned.inner, NoUTurn)
    return tuner.finish(cast(Surrogate, flat), precision, tuned.draws, tuned.inner, lambda tuned: is_beaten)


def step_size(of: Tuned) -> float:
    assert isinstance(of.inner, NoUTurn)
    return of.inner.step_size


@pytest.mark.parametrize(("rho", "least", "most"), [(0.0, 1, 1), (0.7, 2, 9), (0.99, 10, 10)])
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


def test_a_step_size_with_full_trees_is_not_made_smaller() -> None:
    held = finished(limit=0.0, full_below=0.15)
    assert step_size(held) == pytest.approx(-np.log(0.9), rel=0.15)
    assert held.diverging == 1


def test_a_beaten_sampler_keeps_its_first_step_size() -> None:
    held = finished(limit=0.0, is_beaten=True)
    assert step_size(held) == pytest.approx(-np.log(0.8), rel=0.15)
    assert step_size(finished(limit=0.0)) < 0.05


def test_the_record_names_the_sampler() -> None:
    assert "NUTS on it takes 3 transitions a step" in SurrogateSettled(0.1, 9, 3).describe()
    assert "Gibbs sampling on it takes 2 sweeps a step" in SurrogateSettled(0.1, 9, 2, by_gibbs=True).describe()


def test_divergent_transitions_that_no_step_size_prevents_are_counted() -> None:
    assert finished(limit=0.0).diverging == 1
