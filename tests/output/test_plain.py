"""Figures as JSON has them."""

import numpy as np

from stansub.output.plain import plain


def test_figures_are_plain_numbers_and_none_if_not_finite() -> None:
    figures = {0.05: np.float64(0.1), "n": np.int64(3), "one": (np.bool_(True), np.nan, -np.inf), "x": np.arange(2)}
    assert plain(figures) == {"0.05": 0.1, "n": 3, "one": [True, None, None], "x": [0, 1]}
    assert [type(one) for one in plain([np.float64(0.1), np.int64(3)])] == [float, int]
