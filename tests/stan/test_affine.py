"""Integer expressions as sums."""

import pytest

from stansub.stan.passes.series.affine import Affine
from stansub.stan.syntax import Name, parse_expression

KNOWN = {parse_expression("size(y)"): parse_expression("N + 1")}


def affine(text: str) -> Affine:
    return Affine.of(parse_expression(text), KNOWN)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("(N - 1) + 1", "N"),
        ("N - (K + 1) + 1", "N - K"),
        ("-(N - 3)", "-N + 3"),
        ("2 * (t - 1) + 1", "2 * t - 1"),
        ("t * 3 - t", "2 * t"),
        ("2 * -3", "-6"),
        ("-2 * (N - K)", "2 * K - 2 * N"),
        ("K - K", "0"),
        ("t - lag[t - 1] + 1", "t - lag[t - 1] + 1"),
        ("min(t - 1, K) + 1", "min(t - 1, K) + 1"),
        ("N / 2 - 1", "N / 2 - 1"),
        ("N - (K - N / 2) * 2", "N + 2 * (N / 2) - 2 * K"),
        ("t % 2", "t % 2"),
        ("K * t", "K * t"),
        ("a ? b : c", "a ? b : c"),
        ("size(y) - 2", "N - 1"),
    ],
)
def test_what_is_alike_reads_alike(text: str, shown: str) -> None:
    value = affine(text)
    assert str(value) == shown
    assert affine(shown) == value


def test_arithmetic() -> None:
    n, k = affine("2 * N + 1"), affine("K - N")
    assert n + k == affine("N + K + 1")
    assert n - k == affine("3 * N - K + 1")
    assert (n - n).terms == ()
    assert n.times(-2) + 2 == affine("-4 * N")
    assert (n.factor(Name("N")), n.factor(Name("K"))) == (2, 0)


@pytest.mark.parametrize(("one", "other"), [("N - 1", "N + 1"), ("N - K", "K - N"), ("N / 2", "N"), ("y[1]", "y[2]")])
def test_what_is_not_alike_does_not(one: str, other: str) -> None:
    assert affine(one) != affine(other)
