"""The log likelihood of all observations in C++, beside that of each observation in numpy."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub import _loop
from stansub.target.categories import Categorical, Ordered
from stansub.target.dispersion import Gamma, NegativeBinomial2
from stansub.target.families import Binomial, Logistic, NegativeBinomial, Normal, Poisson, StudentT
from stansub.target.location_scale import ExtremeErrors, LocationScale, LogisticErrors, NormalErrors, StudentErrors
from stansub.target.programs import Code, ProgramFamily
from stansub.target.remainders import Family
from stansub.target.rows import ColumnRows
from stansub.target.sparse import Column, SparsePredictors, SparseRows

Array = NDArray[np.float64]
N, J, M = 1300, 7, 12
RNG = np.random.default_rng(3)
ONE = np.ones(N)
Y = RNG.standard_normal(N)
COUNTS = RNG.poisson(3, N).astype(float)
SCALE = RNG.uniform(0.5, 2, N)


def _program() -> ProgramFamily:
    """y eta_0 exp(eta_1) less the softplus of the same product."""
    lines = [("data", 1, 0), ("argument", 0, 0), ("exp", 1, 0), ("argument", 1, 0), ("product", 2, 3)]
    lines += [("product", 0, 4), ("log1p_exp", 4, 0), ("difference", 5, 6)]
    codes = np.array([(_loop.OPERATIONS.index(name), a, b) for name, a, b in lines], np.int32)
    data = np.stack([np.zeros(N), RNG.random(N) < 0.5])
    return ProgramFamily(Code(np.array([0, len(lines)], np.int32), codes, np.zeros(len(lines))), 2, data)


FAMILIES: dict[str, Family] = {
    "binomial": Binomial(RNG.binomial(4, 0.3, N).astype(float), 4 * ONE),
    "poisson": Poisson(COUNTS, SCALE),
    "negative binomial": NegativeBinomial(COUNTS, SCALE),
    "normal": Normal(Y, SCALE),
    "student": StudentT(Y, 4 * ONE, SCALE),
    "logistic": Logistic(Y, SCALE),
    "normal, unknown scale": LocationScale(Y, NormalErrors()),
    "student, unknown scale": LocationScale(Y, StudentErrors(4 * ONE)),
    "logistic, unknown scale": LocationScale(Y, LogisticErrors()),
    "extreme value, unknown scale": LocationScale(Y, ExtremeErrors()),
    "negative binomial, unknown dispersion": NegativeBinomial2(COUNTS),
    "gamma": Gamma(SCALE),
    "categorical": Categorical(RNG.integers(3, size=N), 3),
    "ordered": Ordered(RNG.integers(4, size=N), 4),
    "program": _program(),
}


def rows() -> SparseRows:
    """A row of two columns in memory and a constant, and levels of two groupings, of which some have none."""
    dense = ColumnRows((N, 3), ((slice(0, 1), 1.0), (slice(1, 3), RNG.standard_normal((2, N)).T)))
    levels = [RNG.integers(-1, J, N).astype(np.int32), (3 + RNG.integers(M - 3, size=N)).astype(np.int32)]
    factors = [RNG.standard_normal(N), np.broadcast_to(1.0, N)]
    columns = tuple(
        Column(*one) for one in zip(levels, [np.where(levels[0] < 0, 0, factors[0]), factors[1]], strict=True)
    )
    return SparseRows(dense, np.array([0, 4, 11]), columns, 0.1 * RNG.standard_normal(N), N, M)


def shared() -> SparseRows:
    """A row of one coefficient for all observations, with an offset for all."""
    return SparseRows.of(np.ones((1, 1)), np.array([M - 1]), sp.csr_array((N, M)), np.array([0.3]))


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family(name: str) -> None:
    family = FAMILIES[name]
    given = (rows(), *(shared() for _ in range(family.n_arguments - 1)))
    predictors = SparsePredictors(given, family, constant=2.5)
    kept = SparsePredictors(given, family.compacted(), constant=2.5)
    for phi in 0.4 * RNG.standard_normal((3, M)):
        expected = family.log_lik(predictors.at(phi)).sum() + 2.5
        assert predictors.log_lik(phi) == pytest.approx(expected, rel=1e-11)
        assert kept.log_lik(phi) == predictors.log_lik(phi)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("far", [0.4, 1.2])
def test_gradients(name: str, far: float) -> None:
    predictors = SparsePredictors(
        (rows(), *(shared() for _ in range(FAMILIES[name].n_arguments - 1))), FAMILIES[name], constant=2.5
    )
    for phi in far * RNG.standard_normal((3, M)):
        value, gradient = predictors.full_data.gradient(phi)
        assert value == pytest.approx(predictors.log_lik(phi), rel=1e-12)
        eta = predictors.at(phi)
        (slopes,) = predictors.family.derivatives((1,), eta)
        scale = sum(np.abs(row.gathered).T @ np.abs(one) for row, one in zip(predictors.rows, slopes, strict=True))
        np.testing.assert_allclose(gradient, predictors.gradient(phi), rtol=1e-9, atol=1e-9 * (1 + scale.max()))


def test_threads_at_once_and_later_calls_do_not_see_each_other() -> None:
    """Each call takes scratch memory that another one may have left."""
    predictors = SparsePredictors((rows(), shared()), FAMILIES["program"])
    full_data, points = predictors.full_data, 0.4 * RNG.standard_normal((60, M))
    expected = [full_data.gradient(phi) for phi in points]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(full_data.gradient, points))
    for (value, slope), (other, its) in zip(found, expected, strict=True):
        assert value == other
        np.testing.assert_array_equal(slope, its)
    for phi, (value, _) in zip(points, expected, strict=True):
        assert full_data.log_lik(phi) == pytest.approx(value, rel=1e-12)


def test_undefined_values_are_minus_infinity() -> None:
    predictors = SparsePredictors((rows(),), FAMILIES["poisson"])
    assert predictors.log_lik(np.full(M, 1e4)) == -np.inf
    assert predictors.log_lik(np.full(M, np.nan)) == -np.inf


def test_parts_that_do_not_fit() -> None:
    row = rows()
    predictors = SparsePredictors((row,), FAMILIES["poisson"])
    with pytest.raises(ValueError, match="phi has another length"):
        predictors.log_lik(np.zeros(M + 1))
    with pytest.raises(ValueError, match="other data"):
        _loop.FullData(predictors.arguments, _loop.Density.student_t, predictors.data)
    columns = (Column(np.full(N, M, np.int32), ONE),)
    with pytest.raises(ValueError, match="no such place"):
        SparsePredictors((SparseRows(row.dense, row.places, columns, row.offset, N, M),), FAMILIES["poisson"]).log_lik(
            np.zeros(M)
        )
