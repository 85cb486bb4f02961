"""Arrays by variable from the flat names of a program's values."""

import numpy as np

from stansub.output.layout import Layout

# As Stan lists them: the last index slowest, scalars bare.
NAMES = [
    *("lp", "a.1", "a.2", "m.1.1", "m.2.1", "m.1.2", "m.2.2", "m.1.3", "m.2.3"),
    *("z.real", "z.imag", "zs.1.real", "zs.1.imag", "zs.2.real", "zs.2.imag"),
]


def test_shapes_and_order() -> None:
    layout = Layout.from_names(NAMES)
    assert layout.names == ("lp", "a", "m", "z", "zs")
    assert layout.shapes == {"lp": (), "a": (2,), "m": (2, 3), "z": (2,), "zs": (2, 2)}


def test_values_come_out_where_their_indices_say() -> None:
    values = np.arange(float(len(NAMES)))
    arrays = Layout.from_names(NAMES).split(values)
    assert arrays["lp"] == 0
    np.testing.assert_array_equal(arrays["m"], [[3, 5, 7], [4, 6, 8]])
    np.testing.assert_array_equal(arrays["zs"], [[11, 12], [13, 14]])


def test_leading_dimensions_stay() -> None:
    values = np.random.default_rng(1).standard_normal((4, 5, len(NAMES)))
    arrays = Layout.from_names(NAMES).split(values)
    assert arrays["m"].shape == (4, 5, 2, 3)
    np.testing.assert_array_equal(arrays["m"][:, :, 1, 2], values[:, :, NAMES.index("m.2.3")])
    assert arrays["lp"].shape == (4, 5)


def test_tuples_are_taken_apart() -> None:
    layout = Layout.from_names(["p:1", "p:2.1", "p:2.2", "t.1:1", "t.1:2.1", "t.1:2.2", "t.2:1", "t.2:2.1", "t.2:2.2"])
    assert layout.shapes == {"p:1": (), "p:2": (2,), "t:1": (2,), "t:2": (2, 2)}
    np.testing.assert_array_equal(layout.columns["t:2"], [[4, 5], [7, 8]])


def test_a_selection_keeps_places() -> None:
    layout = Layout.from_names(NAMES).select({"zs", "a", "nothing"})
    assert layout.names == ("a", "zs")
    np.testing.assert_array_equal(layout.columns["zs"], [[11, 12], [13, 14]])


def test_no_values_at_all() -> None:
    assert Layout.from_names([]).names == ()
