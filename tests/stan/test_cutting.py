"""Which integers of the data count the observations, where a trial of a few rows does not decide."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from stansub.stan import cutting


class Sizes:
    """A cut with these size variables, of which nothing is compiled."""

    def __init__(self, **values: int) -> None:
        self.sizes = tuple(values)
        self.data = SimpleNamespace(declarations=(), integer=values.__getitem__)

    def may_add(self, sums: Sequence[cutting.Names], size: str) -> bool:
        return False


def found(cut: Any, monkeypatch: pytest.MonkeyPatch, **reasons: str | None) -> tuple[Any, dict[str, str]]:
    def trial(cut: Any, sums: Sequence[cutting.Names], *others: Any) -> str | None:
        return reasons.get(" and ".join(sums[0]), "no sum")

    monkeypatch.setattr(cutting, "_trial", trial)
    return cutting.find_sums(cut, 1, [], None, check=lambda: None)


def test_sizes_that_the_likelihood_does_not_read_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of predictions, which are more than those of the data."""
    cut, unread = Sizes(N_new=900, N=600), cutting._UNREAD
    sums, reasons = found(cut, monkeypatch, N_new=unread, N=None)
    assert sums == (("N",),)
    assert reasons == {"N_new": unread}
    # Where the likelihood is switched off, the largest stands, so that the proof can say so.
    assert found(cut, monkeypatch, N_new=unread, N=unread)[0] == (("N_new",),)
    assert found(cut, monkeypatch)[0] == ()


def test_one_row_proves_nothing_beside_a_size_that_may_count_the_observations() -> None:
    cut: Any = Sizes(T=600, K=1)
    assert cutting._trial(cut, [("K",)], 1, [], lambda: None) == "it is 1"
