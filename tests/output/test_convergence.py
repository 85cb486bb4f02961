"""R-hat, effective sample sizes and Monte Carlo standard errors are those of ArviZ."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from stansub.output import convergence, statistics
from stansub.output.inference_data import arviz_module, build

FloatArray = NDArray[np.float64]
FIGURES: dict[str, Callable[[FloatArray], float]] = {
    "r_hat": lambda x: arviz_module().rhat(x),
    "ess_bulk": lambda x: arviz_module().ess(x, method="bulk"),
    "ess_tail": lambda x: arviz_module().ess(x, method="tail", prob=(0.05, 0.95)),
    "mcse_mean": lambda x: arviz_module().mcse(x, method="mean"),
    "mcse_sd": lambda x: arviz_module().mcse(x, method="sd"),
}


def walks(rng: np.random.Generator, n_chains: int, n_draws: int, correlation: float) -> FloatArray:
    noise = rng.standard_normal((n_chains, n_draws))
    for t in range(1, n_draws):
        noise[:, t] += correlation * noise[:, t - 1]
    return noise


@pytest.mark.parametrize("shape", [(2, 4), (4, 5), (2, 6), (1, 7), (3, 8), (2, 9), (1, 100), (2, 400), (4, 999)])
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.95, -0.6, 1.0])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_figures_are_those_of_arviz(shape: tuple[int, int], correlation: float) -> None:
    """Also of draws with ties, as those of integers have, and of chains that hardly move."""
    draws = walks(np.random.default_rng(1), *shape, correlation)
    for some in (draws, np.round(draws), np.where(np.arange(shape[1]) == 2, 1.0, 0.0) + 0 * draws):
        for name, expected in FIGURES.items():
            (value,) = getattr(convergence, name)(some[..., np.newaxis])
            assert value == pytest.approx(float(expected(some)), rel=1e-9, nan_ok=True), name


def test_the_comparison_would_show_a_lag_more_or_less() -> None:
    draws = walks(np.random.default_rng(2), 2, 400, 0.5)
    assert convergence.ess_bulk(draws[:, 1:, np.newaxis]).item() != pytest.approx(FIGURES["ess_bulk"](draws), rel=1e-6)


def test_quantities_without_figures() -> None:
    rng = np.random.default_rng(3)
    values = rng.standard_normal((2, 50, 4))
    values[..., 1] = 3.0
    values[0, 7, 2] = np.nan
    values[1, 9, 3] = np.inf
    table = statistics.table(build(posterior={"x": values}, sample_stats={}, attrs={}))
    figures = table[[*FIGURES]]
    assert figures.loc["x[1]"].notna().all()
    assert figures.loc[["x[2]", "x[3]", "x[4]"]].isna().all(axis=None)
    short = statistics.table(build(posterior={"x": values[:, :3, :1]}, sample_stats={}, attrs={}))
    assert short[[*FIGURES]].isna().all(axis=None)
    alone = statistics.table(build(posterior={"x": values[:1, :, :1]}, sample_stats={}, attrs={}))
    assert alone[[*FIGURES]].isna().sum(axis=1).tolist() == [1]
    assert np.isnan(alone["r_hat"].item())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", sorted(FIGURES))
def test_draws_that_never_change_have_none_and_nothing_is_warned_of(name: str) -> None:
    stuck = np.repeat(np.arange(4.0), 200).reshape(4, 200, 1)
    same = np.ones((4, 200, 1))
    for draws in (stuck, same):
        assert getattr(convergence, name)(draws).shape == (1,)
