"""Chains from random starts on a posterior whose likelihood has no maximum: they arrive before they are sampled."""

from typing import Any, NamedTuple, cast

import numpy as np
import pytest
import scipy.sparse as sp

from stansub.kernels.surrogate import NoUTurn
from stansub.progress import Progress
from stansub.target.coordinates import Coordinates
from stansub.target.metric import Metric
from stansub.tuning.surrogates import warmup
from stansub.types import FloatArray

DIM = 2


class Made(NamedTuple):
    acceptance_rate: float


class Posterior:
    """Trees go towards 0 by a share of the distance; far from there, smaller steps are accepted."""

    def __init__(self, share: float) -> None:
        self.share, self.n_trees = share, 0

    def hamiltonian(self, *_: Any) -> Any:
        return self

    def nuts(self, bits: Any, theta: Any, n: int = 1, *, step_size: float, max_tree_depth: int) -> Made:
        self.n_trees += 1
        theta *= 1 - self.share
        return Made(float(np.exp(-step_size * (1 + np.abs(theta).max()))))


@pytest.mark.parametrize(("share", "n_rounds"), [(0.1, 1), (0.02, 4), (0.0, 8)], ids=["near", "far", "elsewhere"])
def test_a_start_is_left_until_steps_are_nearly_as_large_as_tuned(
    share: float, n_rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place from which no transitions lead away may be a mode of its own."""

    def far(*_: Any) -> FloatArray:
        return np.full((1, DIM), 50.0)

    monkeypatch.setattr(warmup, "_warmed", far)
    posterior, metric = Posterior(share), Metric.of(sp.csc_array(sp.identity(DIM)))
    inner = NoUTurn(Coordinates.plain(DIM), np.zeros(DIM), metric, -np.log(0.8))
    draws = warmup._approached(cast(Any, posterior), inner, np.random.default_rng(1), Progress().check)
    assert posterior.n_trees == n_rounds * warmup._APPROACH
    assert (abs(draws[-1]).max() < 2) == (share > 0)
