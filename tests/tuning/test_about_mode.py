"""Trials of trajectories on the posterior itself: how long they may take, and what is said of those that are left."""

from typing import Any, NamedTuple, cast

import numpy as np
import pytest

from stansub.kernels.surrogate import MAX_TREE_DEPTH
from stansub.progress import Progress
from stansub.selection import TrajectoriesLeft
from stansub.tuning import about_mode

DIM = 3
FULL = 2**MAX_TREE_DEPTH - 1


class Made(NamedTuple):
    n_steps: int
    tree_depth: int
    acceptance_rate: float = 0.8
    diverging: bool = False


class Posterior:
    """Trees of the same number of gradients, each of which ends at a draw of its own."""

    def __init__(self, n_steps: int) -> None:
        self.rng, self.n_trees = np.random.default_rng(1), 0
        self.made = Made(n_steps, int(np.ceil(np.log2(n_steps + 1))))

    def hamiltonian(self, *_: Any, **__: Any) -> Any:
        return self

    def nuts(self, bits: Any, theta: Any, n: int = 1, **_: Any) -> Made:
        self.n_trees += 1
        theta[:] = self.rng.standard_normal(DIM)
        return self.made


class Mode(NamedTuple):
    dim: int = DIM
    position: Any = np.zeros(DIM)
    hessian: Any = -np.identity(DIM)


class Counts(Progress):
    """Progress that remembers its counts."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[tuple[int, int]] = []

    def advance(self, done: int, total: int) -> None:
        self.counts.append((done, total))


def tuned(posterior: Posterior, meter: about_mode._Meter) -> Any:
    return about_mode._tuned(cast(Any, posterior), cast(Any, Mode()), np.random.default_rng(1), meter)


def test_a_trial_of_long_trees_ends_before_its_last_transition() -> None:
    """A gradient of a diffusion likelihood took 10 ms: 400 trees of 255 of them would have taken 17 minutes."""
    posterior, meter = Posterior(FULL), about_mode._Meter(counts := Counts())
    left = tuned(posterior, meter)
    assert isinstance(left, TrajectoriesLeft)
    assert posterior.n_trees < 20
    assert meter.n_gradients == posterior.n_trees * FULL
    assert left.describe() == "not used: in a trial, each took about 260 gradients of all the data"
    # The count shows how much of the trial is left at most.
    done, total = counts.counts[-1]
    assert 0.9 * total < done <= total


def test_a_trial_of_short_trees_runs_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first trees may be long, before the step size has adapted."""
    posterior, meter = Posterior(31), about_mode._Meter(counts := Counts())
    nuts = posterior.nuts

    def trees(*args: Any, **options: Any) -> Made:
        made = nuts(*args, **options)
        return made._replace(n_steps=FULL) if posterior.n_trees <= 10 else made

    monkeypatch.setattr(posterior, "nuts", trees)
    found = tuned(posterior, meter)
    assert isinstance(found, about_mode._Trajectories)
    assert found.n_steps == 31
    assert meter.n_gradients == 31 * 190 + FULL * 10
    assert counts.counts[-1] == (200, 200)
    assert counts.counts == sorted(counts.counts)


@pytest.mark.parametrize(("share", "n_targets"), [(0.0, 1), (0.05, 2), (0.5, 2)])
def test_the_limit_holds_for_each_target(share: float, n_targets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second target takes smaller steps because some trajectories diverge."""
    monkeypatch.setattr(about_mode, "_MOST_STEPS", 7)
    monkeypatch.setattr(about_mode, "_EARLY", 0)
    posterior, meter = Posterior(7), about_mode._Meter(Counts())
    rng, nuts = np.random.default_rng(3), posterior.nuts
    monkeypatch.setattr(posterior, "nuts", lambda *a, **k: nuts(*a, **k)._replace(diverging=bool(rng.random() < share)))
    found = tuned(posterior, meter)
    assert posterior.n_trees == 200 * n_targets
    assert isinstance(found, TrajectoriesLeft) == (share > 0.1)
    if isinstance(found, TrajectoriesLeft):
        assert found.describe().endswith(" % diverged")
