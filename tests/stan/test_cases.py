"""Integers that differ among observations: their cases, and the iterations of loops that end at them."""

import numpy as np
import pytest
from numpy.typing import NDArray

from stansub.stan.observations.cases import VaryingError, by_cases, iterations
from stansub.stan.observations.containers import Value
from stansub.stan.observations.elementary import MOST_VALUES
from stansub.stan.observations.frames import Frame
from stansub.stan.observations.observation import follow
from stansub.stan.observations.rowwise import Expression as Own
from stansub.stan.observations.rowwise import NotFollowedError, is_same
from stansub.stan.syntax import Name, parse

Array = NDArray[np.bool_]

NODE = Name("visits")


@pytest.mark.parametrize("wrong", [None, 1, 2])
def test_each_value_is_known_only_while_it_is_followed(wrong: int | None) -> None:
    """Also if one of the cases cannot be followed: later statements would read its value."""
    frame = Frame({})

    def evaluate() -> Value:
        if NODE not in frame.known:
            raise VaryingError(NODE, np.array([2, 1, 2]))
        if frame.known[NODE] == wrong:
            raise NotFollowedError("no rule")
        return 10.0 * frame.known[NODE]

    if wrong is None:
        np.testing.assert_array_equal(by_cases(evaluate, frame).values, [20.0, 10.0, 20.0])
    else:
        with pytest.raises(NotFollowedError, match="no rule"):
            by_cases(evaluate, frame)
    assert not frame.known
    assert frame.live is None


@pytest.mark.parametrize("live", [None, np.array([True, True, True, False])])
def test_two_integers_have_the_values_that_observations_have(live: Array | None) -> None:
    """Of observations for which statements run: others may have none that can be followed."""
    frame, made, other = Frame({}, live=live), [], Name("start")

    def evaluate() -> Value:
        for node, values in ((NODE, [3, 6, 3, 3]), (other, [1, 4, 1, 1 if live is None else 7])):
            if node not in frame.known:
                raise VaryingError(node, np.array(values))
        made.append((frame.known[other], frame.known[NODE]))
        return 10.0 * frame.known[NODE] + frame.known[other]

    np.testing.assert_array_equal(by_cases(evaluate, frame).values[:3], [31.0, 64.0, 31.0])
    assert made == [(1, 3), (4, 6)]
    assert frame.live is live


@pytest.mark.parametrize(
    ("low", "high", "n_iterations"),
    [
        ([1, 1, 1], [3, 1, 0], 3),
        ([2, 4, 7], [7, 7, 7], 6),
        ([1, 3, 6, 8, 11, 14], [2, 5, 7, 10, 13, 13], 3),
        ([5, 9], [4, 8], 0),
    ],
    ids=["ends", "starts", "consecutive", "none"],
)
def test_each_observation_runs_its_own_iterations(low: list[int], high: list[int], n_iterations: int) -> None:
    """There are as many as in the longest loop if observations read consecutive parts of an array."""
    found: list[list[int]] = [[] for _ in low]
    made = list(iterations(np.array(low), np.array(high)))
    assert len(made) == n_iterations
    for k, runs in made:
        values = np.broadcast_to(k.values if isinstance(k, Own) else k, len(low))
        assert values.min() >= min(low)
        assert values.max() <= max(high)
        for n in np.flatnonzero(runs):
            found[n].append(int(values[n]))
    assert found == [list(range(a, b + 1)) for a, b in zip(low, high, strict=True)]


def test_branches_that_all_observations_take_may_contain_others() -> None:
    frame, made, every = Frame({}), list[Array | None](), np.ones(3, bool)

    def inner(k: int) -> None:
        made.append(frame.live)

    some = np.array([True, False, True])
    frame.split((every, ~every), lambda k: frame.split((some, ~some), inner, 3), 3)
    assert [one.tolist() for one in made if one is not None] == [some.tolist(), (~some).tolist()]
    assert frame.live is None


@pytest.mark.parametrize(
    ("part", "subscript"),
    [
        ("segment(t, first[n], size[n])", "t[first[n] : first[n] + size[n] - 1]"),
        ("segment(t, 2, size[n])", "t[2 : 2 + size[n] - 1]"),
        ("row(m, size[n])", "m[size[n]]"),
        ("row(m, 2)", "m[2]"),
        ("col(m, k[n])", "m[, k[n]]"),
        ("block(m, first[n], k[n], size[n], 1)", "m[first[n] : first[n] + size[n] - 1, k[n] : k[n]]"),
        ("sub_col(m, first[n], k[n], size[n])", "m[first[n] : first[n] + size[n] - 1, k[n]]"),
        ("sub_row(m, first[n], 2, k[n])", "m[first[n], 2 : 1 + k[n]]"),
    ],
)
def test_functions_that_read_a_part_are_followed_as_its_subscript(part: str, subscript: str) -> None:
    """Also where each observation's part is elsewhere, and of another size."""
    n = 8
    rng = np.random.default_rng(1)
    size = rng.integers(1, 4, n)
    values = {"N": n, "R": 30, "t": rng.random(30), "m": rng.random((30, 3)), "size": size, "k": size % 2 + 1}
    values["first"] = np.cumsum(size) - size + 1
    program = """
    data { int N; int R; vector[R] t; matrix[R, 3] m; array[N] int first; array[N] int size; array[N] int k; }
    parameters { real a; }
    model { for (n in 1:N) target += a * sum(PART); }
    """
    one, other = (follow(parse(program.replace("PART", text)), values, n).term for text in (part, subscript))
    assert is_same(one, other)
    assert not is_same(one, follow(parse(program.replace("PART", "t")), values, n).term)


@pytest.mark.parametrize(("scale", "is_followed"), [("1", True), ("a", False)])
def test_integers_of_many_values_are_followed_where_data_are_computed(scale: str, is_followed: bool) -> None:
    n, most = 3 * MOST_VALUES, 2 * MOST_VALUES
    size = np.arange(n) % most + 1
    values = {"N": n, "R": int(size.sum()), "t": np.arange(size.sum()) / n, "size": size}
    values["first"] = np.cumsum(size) - size + 1
    program = parse(
        f"""
        data {{ int N; int R; vector[R] t; array[N] int first; array[N] int size; }}
        parameters {{ real a; }}
        model {{ for (n in 1:N) target += a * sum({scale} * segment(t, first[n], size[n])); }}
        """
    )
    if not is_followed:
        with pytest.raises(NotFollowedError, match=f"but has {most} values, more than {MOST_VALUES}"):
            follow(program, values, n)
        return
    sums = np.add.reduceat(values["t"], values["first"] - 1)
    np.testing.assert_allclose(follow(program, values, n).term.slopes[:, 0], sums)
