"""A posterior that is not cut: its one block is the whole log density."""

from pathlib import Path

import numpy as np
import pytest

import stansub
from stansub.progress import Progress
from stansub.run.posteriors import make_uncut, read
from stansub.stan.proof import prove
from stansub.stan.recipe import PosteriorRecipe
from stansub.stan.whole_data import Uncut

PROGRAM = Path(__file__).parents[1] / "run" / "programs" / "centred_effects.stan"
DATA = {"J": 2, "N": 4, "y": [0.1, -0.3, 1.2, 0.4], "group": [1, 1, 2, 2]}


def test_its_block_is_the_log_density_and_another_process_makes_the_same() -> None:
    posterior, _ = make_uncut(
        read(stansub.compile_model(PROGRAM), DATA, Progress()), seed=1, observations=None, log=Progress()
    )
    assert isinstance(posterior.population, Uncut)
    assert (posterior.blocks.n_observations, len(posterior.blocks)) == (4, 1)
    assert prove(posterior.population, posterior.full, posterior.points).error == 0
    theta = np.array([0.1, -0.2, 0.3, 0.4])
    value, gradient = posterior.full.log_density_gradient(theta)  # type: ignore[attr-defined]
    found = posterior.population.evaluator().subset_log_density_gradient(theta)
    assert found[0] == pytest.approx(value)
    np.testing.assert_allclose(found[1], gradient)
    again = PosteriorRecipe.of(posterior).make()
    assert isinstance(again.population, Uncut)
    assert again.full.log_density(theta) == value
