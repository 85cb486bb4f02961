"""The search for the first expansion point of a surrogate."""

import numpy as np
import scipy.sparse as sp

from stansub.progress import Progress
from stansub.target.families import Poisson
from stansub.target.sparse import SparsePredictors, SparseRows
from stansub.tuning import ridge as tuning

N, J = 3_000, 20


def test_the_mode_is_found_where_full_steps_overshoot() -> None:
    """From rates of 1 a full step leads to logarithms of rates of hundreds, where the likelihood is 0."""
    rng = np.random.default_rng(1)
    g = rng.integers(J, size=N)
    numbers = sp.csr_array((np.ones(N), g, np.arange(N + 1)), shape=(N, J))
    row = SparseRows.of(np.empty((1, 0)), np.empty(0, np.int64), numbers, np.zeros(1))
    counts = rng.poisson(np.exp(rng.normal(6.0, 1.0, J))[g]).astype(float)
    predictors = SparsePredictors((row,), Poisson(counts, np.ones(N)))
    found, n_passes = tuning.ridge_mode(predictors, Progress())
    means = np.bincount(g, counts) / np.bincount(g)
    np.testing.assert_allclose(found.point, np.log(means), atol=1e-2)
    assert n_passes < 60
