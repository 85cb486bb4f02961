"""Parts in which coefficients are drawn: all at once unless the factor of their precision would be dear."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target import cholesky as factors
from stansub.target.cholesky import cholesky, pattern_of
from stansub.tuning.effects import parts
from stansub.tuning.effects.parts import groups_of, parts_of

N_FIRST, N_SECOND = 40, 30
SHARED = N_FIRST + N_SECOND  # the place of the mean
FIRST, SECOND = np.arange(N_FIRST), np.arange(N_FIRST, SHARED)


def precision(*levels: NDArray[np.int64]) -> sp.csc_array:
    """Of a mean and effects, given the level of each observation in each grouping factor."""
    n = len(levels[0])
    rows = np.tile(np.arange(n), len(levels) + 1)
    design = sp.csr_array((np.ones(len(rows)), (rows, np.concatenate([*levels, np.full(n, SHARED)]))))
    return sp.csc_array(design.T @ design + sp.eye_array(design.shape[1]))


@pytest.fixture
def crossed() -> sp.csc_array:
    rng = np.random.default_rng(1)
    return precision(rng.choice(FIRST, 900), rng.choice(SECOND, 900))


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly no factor is cheap."""
    monkeypatch.setattr(factors, "_DEAR", 100.0)


def members(found: list[parts.Part]) -> list[list[int]]:
    return [sorted(map(int, one.members)) for one in found]


def test_the_pattern_is_that_of_the_factor(crossed: sp.csc_array) -> None:
    pattern, factor = pattern_of(crossed), cholesky(crossed)
    for found, expected in zip(pattern, (factor.starts, factor.rows, factor.order), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_cheap_factor_has_all_coefficients(crossed: sp.csc_array) -> None:
    assert members(parts_of(crossed, [FIRST, SECOND])) == [list(range(SHARED + 1))]


@pytest.mark.usefixtures("cheap")
def test_crossed_effects_have_parts_each_with_their_mean(crossed: sp.csc_array) -> None:
    found = parts_of(crossed, [FIRST, SECOND])
    assert members(found) == [[*FIRST, SHARED], [*SECOND, SHARED]]
    starts, rows, order = found[0].arrays
    own = crossed[order][:, order].toarray()
    factor = sp.csc_array((np.ones(len(rows)), rows, starts)).toarray()
    assert ((np.linalg.cholesky(own) != 0) <= (factor != 0)).all()


@pytest.mark.usefixtures("cheap")
def test_nested_effects_are_one_part() -> None:
    """Each first level has one second level: the factor of both has hardly more elements than those of each."""
    first = np.random.default_rng(1).choice(FIRST, 900)
    nested = precision(first, N_FIRST + first % N_SECOND)
    assert len(parts_of(nested, [FIRST, SECOND])) == 1


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("n_groups", [1, 30])
def test_one_group_or_many_are_one_part(crossed: sp.csc_array, n_groups: int) -> None:
    groups = np.array_split(np.arange(SHARED), n_groups)
    assert len(parts_of(crossed, groups)) == 1


def test_groups_have_the_same_scales() -> None:
    """Blocks of one, two and one effects read scales 0, 1 and 0; the last one is a combination with the second."""
    reads = sp.csr_array(np.array([[1.0, 0], [0, 2.0], [0.5, 0]]))
    sizes, places = np.array([1, 2, 1]), np.array([0, 1, 2, 3])
    found = groups_of(reads, sizes, places, sp.eye_array(5, format="csr"))
    assert [list(one) for one in found] == [[0, 3], [1, 2]]
    rows = sp.csr_array(np.eye(5) + np.eye(5, k=-1) * np.array([0, 0, 1, 0, 0]))
    assert [list(one) for one in groups_of(reads, sizes, places, rows)] == [[0, 1, 2, 3]]
