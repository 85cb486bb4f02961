"""The search for the first expansion point of a surrogate."""

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from stansub.progress import Progress
from stansub.stan.analysis import Analysis
from stansub.stan.sparse import sparse_predictors
from stansub.stan.stanc import canonical_code
from stansub.stan.syntax import parse
from stansub.target.families import Poisson
from stansub.target.sparse import SparsePredictors, SparseRows
from stansub.tuning import ridge as tuning

N, J = 3_000, 20
DISCOUNTING = """
data { int N; int J; array[N] int g; vector[N] later; vector[N] delay; vector[N] sooner; array[N] int y; }
parameters { vector<lower=0, upper=1>[J] k; vector<lower=0, upper=5>[J] b; }
model { for (n in 1 : N) y[n] ~ bernoulli_logit(b[g[n]] * (later[n] / (1 + k[g[n]] * delay[n]) - sooner[n])); }
"""


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


def test_the_mode_is_found_where_many_groups_pass_saddles() -> None:
    """The search ended at a saddle, and the surrogate had no bound."""
    n, j, rng = 10_000, 100, np.random.default_rng(4)
    g, k, b = rng.integers(j, size=n), np.exp(rng.normal(-3, 0.8, j)), np.exp(rng.normal(-1.5, 0.3, j))
    later, delay = rng.uniform(20, 80, n), rng.choice([1.0, 7, 14, 30, 60, 90, 180], n)
    sooner = np.minimum(rng.uniform(5, 40, n), later)
    y = (rng.random(n) < expit(b[g] * (later / (1 + k[g] * delay) - sooner))).astype(int)
    data = {"N": n, "J": j, "g": g + 1, "later": later, "delay": delay, "sooner": sooner, "y": y}
    own = Analysis.of(parse(canonical_code(DISCOUNTING, "discounting"))).likelihood_split()
    found, n_passes = tuning.ridge_mode(sparse_predictors(own, data, n), Progress())
    assert np.abs(found.gradient - 0.1 * found.point).max() < 0.5
    assert np.linalg.eigvalsh(found.precision.toarray()).min() > 1
    assert n_passes < 120
