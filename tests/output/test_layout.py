"""Arrays by variable from the flat names of a program's values."""

import numpy as np
import pytest

from stansub.output.layout import Layout, by_variable

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


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a.1", "a.3"], "a: 2 names do not fill an array of 3 values"),
        (["a.1", "a.2", "a.1"], "a: 3 names do not fill an array of 2 values"),
        (["a", "a.1"], "a: names with different numbers of indices"),
        (["b.intercept"], "intercept"),
    ],
)
def test_names_that_fill_no_array_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layout.from_names(names)


class TestByVariable:
    """Names of other samplers brought to ours."""

    def test_elements_of_tuples_are_gathered(self) -> None:
        """nutpie keeps an array an element and component; the names of its scalars and arrays are the program's."""
        flat = ["at.1:1", "at.1:2.1", "at.1:2.2", "at.2:1", "at.2:2.1", "at.2:2.2", "d.1.1:1:2", "d.1.2:1:2", "z.real"]
        values = np.random.default_rng(1).standard_normal((2, 3, len(flat) + 1))
        given = {
            "mu": np.zeros((2, 3, 4)),
            "at.1:1": values[:, :, 0],
            "at.1:2": values[:, :, 1:3],
            "at.2:1": values[:, :, 3],
            "at.2:2": values[:, :, 4:6],
            "d.1.1:1:2": values[:, :, 6],
            "d.1.2:1:2": values[:, :, 7],
            "z.real": values[:, :, 8],
            "z.imag": values[:, :, 9],
        }
        found = by_variable(given)
        expected = Layout.from_names([*flat, "z.imag"]).split(values)
        assert list(found) == ["mu", *expected] == ["mu", "at:1", "at:2", "d:1:2", "z"]
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)

    def test_complex_numbers_become_pairs(self) -> None:
        values = np.arange(12.0).reshape(2, 3, 2) * (1 + 2j)
        np.testing.assert_array_equal(by_variable({"c": values})["c"], np.stack([values.real, values.imag], axis=-1))

    def test_parts_of_several_complex_values_stay_apart(self) -> None:
        parts = {"c.real": np.zeros((2, 3, 2)), "c.imag": np.ones((2, 3, 2))}
        assert list(by_variable(parts)) == ["c.real", "c.imag"]
