from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from scipy.stats import rankdata
from synthetic import run

from stansub.errors import InputError
from stansub.output import inference_data, plots
from stansub.output.plots import _ranks, _ranks_of, _share_over_draws, predictive, share_of_data, trace

pytestmark = pytest.mark.usefixtures("pictures_in_full")


def test_ranks_are_the_mean_ranks() -> None:
    draws = np.random.default_rng(1).integers(0, 20, (3, 50))
    np.testing.assert_array_equal(_ranks(draws).ravel(), rankdata(draws.ravel()))


def test_trace(tmp_path: Path) -> None:
    trace(run(), tmp_path / "trace.png")
    trace(run(), tmp_path / "one.png", var_names=["alpha"])
    all_, one = ((tmp_path / name).stat().st_size for name in ("trace.png", "one.png"))
    assert 30_000 < one < all_ < 3_000_000
    assert (tmp_path / "trace.png").read_bytes()[:4] == b"\x89PNG"


def test_labels_of_ranks_lie_apart() -> None:
    figure = Figure(figsize=(3.4, 1.5))
    ax = figure.subplots()
    _ranks_of(ax, np.random.default_rng(1).normal(size=(4, 10_000)))
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "10,000", "20,000", "30,000", "40,000"]
    assert all(after.x0 - before.x1 > after.height for before, after in pairwise(boxes))


def test_trace_shows_the_quantities_that_mix_worst(tmp_path: Path) -> None:
    draws = np.random.default_rng(1).normal(size=(4, 200, 9))
    draws[0, :, 6] += 3
    trace(run(posterior={"x": draws}, draws=200), tmp_path / "trace.svg", max_vars=2)
    # SVG text is drawn as glyphs, each string repeated in a comment.
    text = (tmp_path / "trace.svg").read_text()
    assert "x[7]" in text
    assert "the 2 of 9 quantities with the highest R-hat" in text


def test_dollar_signs_in_names_begin_no_formula(tmp_path: Path) -> None:
    draws = run(attrs={"model": r"cost $\low$"})
    observed = {"income $1-$5": np.arange(50.0)}
    checked = inference_data.build(
        posterior={},
        sample_stats={},
        posterior_predictive={name: np.tile(values, (2, 10, 1)) for name, values in observed.items()},
        observed_data=observed,
        attrs={"model": r"cost $\low$"},
    )
    trace(draws, tmp_path / "trace.svg")
    predictive(checked, tmp_path / "predictive.svg")
    for name in ("trace.svg", "predictive.svg"):
        assert r"<!-- cost $\low$: " in (tmp_path / name).read_text()
    assert "<!-- income $1-$5 -->" in (tmp_path / "predictive.svg").read_text()


@pytest.mark.parametrize(("n_draws", "some"), [(100, "50 of 200"), (10, "20")])
def test_the_legend_of_a_predictive_check_names_every_kind_of_line(
    n_draws: int, some: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[Figure] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: saved.append(figure))
    y = np.arange(50.0)
    rep = np.tile(y, (2, n_draws, 1))
    checked = inference_data.build(
        posterior={}, sample_stats={}, posterior_predictive={"y": rep}, observed_data={"y": y}, attrs={"model": "toy"}
    )
    predictive(checked, tmp_path / "predictive.png")
    (ax,) = saved[0].axes
    legend = ax.get_legend()
    assert legend is not None
    texts = [one.get_text() for one in legend.get_texts()]
    assert texts == ["observed data", f"replicated data sets ({some})", f"mean of all {2 * n_draws}"]
    shown, drawn = legend.legend_handles, {one.get_edgecolor()[:3] for one in ax.patches}
    assert {to_rgb(one.get_color()) for one in shown} == drawn


def test_panels_of_a_column_of_pairs_have_one_axis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Figure] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: saved.append(figure))
    plots.pairs(run(), tmp_path / "pairs.png")
    first = saved[0].axes[0:16:4]
    assert len({ax.get_xlim() for ax in first}) == 1
    assert [bool(ax.xaxis.get_tick_params()["labelbottom"]) for ax in first] == [False, False, False, True]


def test_share_of_data_marks_audited_decisions(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    audited = rng.random((4, 1000)) < 0.05
    wrong = audited & (rng.random((4, 1000)) < 0.1)
    share_of_data(run(sample_stats={"audited": audited, "audit_wrong": wrong}), tmp_path / "share.svg")
    text = (tmp_path / "share.svg").read_text()
    assert f"audited, right ({(audited & ~wrong).sum()})" in text
    assert f"audited, wrong ({wrong.sum()})" in text


def test_a_picture_without_audits_speaks_of_none(tmp_path: Path) -> None:
    share_of_data(run(draws=5000, sample_stats={"audited": np.zeros((4, 5000), bool)}), tmp_path / "share.svg")
    text = (tmp_path / "share.svg").read_text()
    assert "<!-- Running mean over draws -->" in text
    assert "audited" not in text
    assert "<!-- 4,000 -->" in text


def test_means_are_in_view_where_few_decisions_use_any_data() -> None:
    ax = Figure().subplots()
    share = np.zeros((2, 1000))
    share[:, ::250] = 1 / 20_000
    _share_over_draws(ax, share)
    low, high = ax.get_ylim()
    assert [low < line.get_ydata()[-1] < high for line in ax.get_lines()] == [True, True]


def test_short_runs_are_drawn_too(tmp_path: Path) -> None:
    trace(run(chains=1, draws=1), tmp_path / "trace.png")
    share_of_data(run(chains=1, draws=1), tmp_path / "share.png")
    assert (tmp_path / "share.png").stat().st_size > 10_000


def test_what_cannot_be_drawn_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="format"):
        trace(run(draws=10), tmp_path / "trace.docx")
    with pytest.raises(InputError, match="gamma"):
        trace(run(draws=10), tmp_path / "trace.png", var_names=["gamma"])
    with pytest.raises(InputError, match="nowhere does not exist"):
        trace(run(draws=10), tmp_path / "nowhere" / "trace.png")
    bare = inference_data.build(posterior={"x": np.zeros((2, 5))}, sample_stats={}, attrs={})
    with pytest.raises(InputError, match="do not record"):
        share_of_data(bare, tmp_path / "share.png")
