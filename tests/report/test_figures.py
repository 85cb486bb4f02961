import functools
from collections.abc import Callable
from typing import Any

import fakes
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy import stats

from stansub.diagnostics.comparison import Comparison, compare_draws
from stansub.output import inference_data
from stansub.report import figures

ALL = (
    figures.forest,
    figures.marginals,
    figures.worst_pair,
    figures.rank_histograms,
    figures.ecdf_differences,
    figures.share_of_data,
)


def compared(*, size: int = 4, seed: int = 1, own: dict[str, Any] | None = None, **reference: Any) -> Comparison:
    rng = np.random.default_rng(seed)
    return compare_draws(fakes.draws(rng, size=size, **(own or {})), fakes.reference(rng, size=size, **reference))


@functools.cache
def odd(name: str) -> Comparison:
    options: dict[str, dict[str, Any]] = {
        "three": {"size": 3},
        "sixty": {"size": 60, "own": {"draws": 300}, "draws": 300},
        "one chain": {"own": {"chains": 1}, "chains": 1},
        "few draws": {"own": {"draws": 5}, "draws": 7},
        "stuck": {"own": {"change": fakes.stuck()}},
        "never moves": {"own": {"change": lambda x: x.__setitem__((..., 1), 2.0)}},
        "other never moves": {"change": lambda x: x.__setitem__((..., 1), 2.0)},
        "NaN": {"own": {"change": lambda x: x.__setitem__((0, 3, 1), np.nan)}},
        "far out": {"own": {"change": lambda x: x.__setitem__((0, 3, 1), 1e9)}},
    }
    return compared(**options[name])


def drawn(picture: Callable[[Comparison], Figure | None], comparison: Comparison) -> Figure:
    figure = picture(comparison)
    assert figure is not None
    figure.canvas.draw()
    return figure


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(Text))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("picture", ALL)
@pytest.mark.parametrize(
    "name",
    [
        *("three", "few draws", "stuck", "never moves", "NaN"),
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("sixty", "one chain", "other never moves", "far out")
        ),
    ],
)
def test_draws_whatever_comes(picture: Callable[[Comparison], Figure], name: str) -> None:
    figure = drawn(picture, odd(name))
    assert figure.axes


def single(**own: Any) -> Comparison:
    rng = np.random.default_rng(1)
    return compare_draws(fakes.draws(rng, size=1, **own), fakes.reference(rng, size=1))


@pytest.mark.filterwarnings("error")
def test_one_quantity_has_no_pair() -> None:
    comparison = single()
    assert figures.worst_pair(comparison) is None
    for picture in set(ALL) - {figures.worst_pair}:
        assert drawn(picture, comparison).axes


def test_nothing_is_drawn_of_values_that_are_not_finite() -> None:
    broken = single(change=lambda values: values.__setitem__((0, 0), np.nan))
    assert all(picture(broken) is None for picture in set(ALL) - {figures.share_of_data})


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("used", [0, 3])
def test_decisions_may_have_used_no_data(used: int) -> None:
    """As exact ones of the default do."""
    comparison = compared()
    of_decisions = inference_data.group(comparison.draws, "sample_stats")["n_obs_used"]
    of_decisions.values[:] = 0
    of_decisions.values[0, ::50] = used
    assert drawn(figures.share_of_data, comparison).axes[0].get_yscale() == ("log" if used else "linear")


def test_a_run_without_decisions_has_no_share_of_data() -> None:
    rng = np.random.default_rng(1)
    nuts = compare_draws(fakes.reference(rng), fakes.reference(rng))
    assert figures.share_of_data(nuts) is None
    assert drawn(figures.forest, nuts)


def test_the_forest_shows_the_worst_and_says_how_many() -> None:
    comparison = compared(size=60, own={"draws": 300, "change": fakes.shifted(2.0, quantity=45)}, draws=300)
    figure = drawn(figures.forest, comparison)
    labels = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert len(labels) == figures.FOREST_ROWS
    assert labels[0] == "beta[45]"
    assert f"the {figures.FOREST_ROWS} worst of 60" in texts(figure)
    few = texts(drawn(figures.forest, compared(size=3)))
    assert "worst of" not in few


def test_the_forest_is_standardised_where_scales_differ() -> None:
    rng = np.random.default_rng(1)
    more = {"wide": 1000 * rng.standard_normal((4, 1000))}
    mixed = compare_draws(fakes.draws(rng, more=more), fakes.reference(rng, more=more))
    assert "Standard deviations" in drawn(figures.forest, mixed).axes[0].get_xlabel()
    assert drawn(figures.forest, single()).axes[0].get_xlabel() == "Value"


def test_samplers_are_named_after_what_they_record() -> None:
    assert figures.sampler_names(compared()) == ("subsampled", "NUTS")
    rng = np.random.default_rng(1)
    assert figures.sampler_names(compare_draws(fakes.draws(rng), fakes.foreign(rng))) == ("subsampled", "reference")


def test_long_names_are_clipped() -> None:
    rng = np.random.default_rng(1)
    name = "a_name_" + "that_goes_on_" * 6 + "and_ends"
    more = {name: rng.standard_normal((4, 1000))}
    comparison = compare_draws(fakes.draws(rng, more=more), fakes.reference(rng, more=more))
    for picture in ALL[:-1]:
        assert name not in texts(drawn(picture, comparison))


def test_rank_counts_add_up() -> None:
    rng = np.random.default_rng(1)
    own, other = figures.rank_counts(rng.standard_normal((4, 300)), rng.standard_normal((3, 200)))
    np.testing.assert_array_equal(own.sum(axis=1), 300)
    np.testing.assert_array_equal(other.sum(axis=1), 200)
    np.testing.assert_allclose(own.sum(axis=0) + other.sum(axis=0), 1800 / own.shape[1], atol=1)


def bands(figure: Figure) -> list[tuple[Any, list[Any]]]:
    """The band and the chains' steps of each panel of rank histograms."""
    found = []
    for ax in figure.axes:
        steps = [patch.get_data() for patch in ax.patches]
        found.append((next(s for s in steps if s.baseline is not None), [s for s in steps if s.baseline is None]))
    return found


def stray(comparison: Comparison) -> int:
    """Chains that leave their band."""
    return sum(
        ((chain.values > band.values) | (chain.values < band.baseline)).any()
        for band, chains in bands(drawn(figures.rank_histograms, comparison))
        for chain in chains
    )


@pytest.mark.slow
@pytest.mark.parametrize("autocorrelation", [0.0, 0.9])
def test_the_bands_of_ranks_hold_under_agreement(autocorrelation: float) -> None:
    own = {"draws": 1000 if autocorrelation == 0 else 5000, "autocorrelation": autocorrelation}
    left = sum(stray(compared(size=2, seed=seed, own=own)) > 0 for seed in range(12))
    # One picture in twenty at most leaves its bands: 4 of 12 or more have a probability of 0.002.
    assert left < 4
    wrong = [stray(compared(size=2, seed=seed, own={**own, "change": fakes.inflated(2)})) for seed in range(2)]
    assert min(wrong) > 0


def test_differences_of_distribution_functions_are_those_of_the_test() -> None:
    rng = np.random.default_rng(1)
    own, other = rng.standard_normal((4, 250)), rng.standard_normal((4, 200)) + 0.2
    at, difference, band = figures.ecdf_difference(own, other, critical=1.36)
    assert np.abs(difference).max() == pytest.approx(stats.ks_2samp(own.ravel(), other.ravel()).statistic)
    assert at[0] == pytest.approx(1 / 1800)
    assert at[-1] == 1
    assert difference[-1] == 0
    assert band == pytest.approx(1.36 * np.sqrt(1 / 1000 + 1 / 800))


def test_densities_have_area_one_and_find_the_density() -> None:
    draws = np.random.default_rng(1).standard_normal(100_000)
    at, density = figures.kernel_density(draws, -5, 5, size=100_000)
    assert density.sum() * (at[1] - at[0]) == pytest.approx(1)
    np.testing.assert_allclose(density, stats.norm.pdf(at), atol=0.02)
    # At a bound, where other estimates fall to a half, it is reflected.
    at, density = figures.kernel_density(np.abs(draws), 0, 5, size=100_000)
    np.testing.assert_allclose(density, 2 * stats.norm.pdf(at), atol=0.03)


def test_thinned_draws_are_nearly_independent() -> None:
    comparison = compared(own={"draws": 10_000, "autocorrelation": 0.9})
    quantity = figures.drawable(comparison)[0]
    own, other = figures.thinned(comparison, quantity)
    rest = np.mean([np.corrcoef(chain[1:], chain[:-1])[0, 1] for chain in own])
    assert rest < 0.05 + 4 / np.sqrt(own.size)
    assert own.shape[1] > 200
    assert other.shape[1] >= 900
    before = np.mean([np.corrcoef(chain[1:], chain[:-1])[0, 1] for chain in quantity.sides[0]])
    assert before > 0.8
