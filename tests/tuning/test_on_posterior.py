"""When gradients of all the data cost little more than those of a surrogate."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import scipy.sparse as sp

from stansub import _loop
from stansub.kernels.surrogate import NoUTurn
from stansub.target.approximation import Approximation
from stansub.target.dispersion import NegativeBinomial2
from stansub.target.families import Poisson
from stansub.target.metric import Metric
from stansub.target.programs import Code, ProgramFamily
from stansub.target.remainders import Family
from stansub.target.sparse import Quadratic, SparsePredictors, SparseRows
from stansub.tuning.surrogates.hmc import Tuned
from stansub.tuning.surrogates.on_posterior import is_cheap, tuned_on_posterior


def program(n: int, function: str) -> ProgramFamily:
    """A function of the argument."""
    codes = np.array([(_loop.OPERATIONS.index(name), 0, 0) for name in ("argument", function)], np.int32)
    return ProgramFamily(Code(np.array([0, 2], np.int32), codes, np.zeros(2)), 1, np.zeros((1, n)))


def likelihood(n: int, m: int, family: Family) -> SparsePredictors:
    """An intercept and a level each."""
    levels = sp.csr_array((np.ones(n), 1 + np.arange(n) % (m - 1), np.arange(n + 1)), shape=(n, m))
    row = SparseRows.of(np.ones((n, 1)), np.array([0]), levels, np.zeros(1))
    other = SparseRows.of(np.ones((1, 1)), np.array([0]), sp.csr_array((n, m)), np.zeros(1))
    return SparsePredictors((row, *(other for _ in range(family.n_arguments - 1))), family)


@pytest.mark.parametrize(
    ("m", "family", "cheap"),
    [
        (1_000, Poisson(np.ones(20_000), np.ones(20_000)), True),
        (1_000, Poisson(np.ones(100_000), np.ones(100_000)), False),
        (400, Poisson(np.ones(2_000), np.ones(2_000)), False),
        (1_000, NegativeBinomial2(np.ones(20_000)), False),
        (1_000, program(20_000, "exp"), True),
        (1_000, program(20_000, "abs"), False),
    ],
)
def test_cheap_gradients(m: int, family: Family, cheap: bool) -> None:
    predictors = likelihood(len(family.data[0]), m, family)
    expansion = predictors.expansion(np.zeros(m))
    precision = sp.csc_array(expansion.precision + sp.eye_array(m))
    assert is_cheap(predictors, expansion, Metric.of(precision)) == cheap


@pytest.mark.parametrize(
    ("uncertain", "time", "n"),
    [((False, False), 4.0, 1), ((False, False), 23.0, 5), ((True,), 4.0, None), ((False, True), 4.0, None)],
)
def test_trajectories_are_not_tuned_if_a_scale_is_uncertain(
    uncertain: tuple[bool, ...], time: float, n: int | None
) -> None:
    """By the first draws, or by all."""
    nowhere, asked, tuned = cast(Any, None), iter(uncertain), list[bool]()
    made = Tuned(NoUTurn(nowhere, nowhere, nowhere, 0.1), np.zeros((8, 1)), time, n=9)
    expansion = Quadratic.of(np.zeros(1), 0.0, np.zeros(1), sp.csr_array(np.eye(1)))

    def finish(*given: Any, **options: Any) -> Tuned:
        tuned.append(True)
        return made

    tuner: Any = SimpleNamespace(round=lambda *given: made, finish=finish)
    surrogate = SimpleNamespace(phi=lambda theta: theta)
    split: Any = SimpleNamespace(
        posterior=lambda: "posterior",
        surrogate=lambda about: surrogate,
        predictors=SimpleNamespace(expansion=lambda phi: expansion),
    )
    about = Approximation.plain(expansion)
    found = tuned_on_posterior(split, tuner, about, np.zeros((8, 1)), lambda draws: next(asked))
    assert (found and found.tuned.n) == n
    assert tuned == [True] * (uncertain != (True,))
