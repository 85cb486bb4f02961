"""Integer expressions as sums."""

import pytest

from stansub.stan.series.affine import Affine


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("(N - 1) + 1", "N"),
        ("N - (K + 1) + 1", "N - K"),
        ("-(N - 3)", "- N + 3"),
        ("2 * (t - 1) + 1", "2 * t - 1"),
        ("t * 3 - t", "2 * t"),
        ("2 * -3", "- 6"),
        ("K - K", "0"),
        ("t - lag[t - 1] + 1", "t - lag[t-1] + 1"),
        ("min(t - 1, K) + 1", "min(t-1,K) + 1"),
        ("N / 2 - 1", "(N/2) - 1"),
        ("t % 2", "(t%2)"),
        ("K * t", "(K*t)"),
        ("a ? b : c", "(a?b:c)"),
        ("size(y) - 2", "N - 1"),
    ],
)
def test_what_is_alike_reads_alike(text: str, shown: str) -> None:
    value = Affine.of(text, {"size(y)": "N + 1"})
    assert str(value) == shown
    assert Affine.of(shown) == value


def test_arithmetic() -> None:
    n, k = Affine.of("2 * N + 1"), Affine.of("K - N")
    assert n + k == Affine.of("N + K + 1")
    assert n - k == Affine.of("3 * N - K + 1")
    assert (n - n).terms == ()
    assert n.times(-2) + 2 == Affine.of("-4 * N")
    assert (n.factor("N"), n.factor("K")) == (2, 0)


@pytest.mark.parametrize(("one", "other"), [("N - 1", "N + 1"), ("N - K", "K - N"), ("N / 2", "N"), ("y[1]", "y[2]")])
def test_what_is_not_alike_does_not(one: str, other: str) -> None:
    assert Affine.of(one) != Affine.of(other)
