"""Work by several threads: its results, and its end if one of them fails or the run is interrupted."""

import time
from collections.abc import Callable

import pytest

from stansub.errors import RunError
from stansub.progress import Progress
from stansub.target.threads import together


def test_results_are_in_the_order_of_the_items() -> None:
    assert together(lambda k, check: k**2, range(9), Progress()) == [k**2 for k in range(9)]


@pytest.mark.parametrize("failing", [0, 1])
def test_the_others_end_if_one_fails(failing: int) -> None:
    def work(k: int, check: Callable[[], None]) -> None:
        while k != failing:
            check()
            time.sleep(0.01)
        raise RunError("no finite log density")

    with pytest.raises(RunError, match="no finite log density"):
        together(work, range(2), Progress())


def test_all_end_if_the_run_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool waits for its threads: they went on until their work was done."""
    n_checks = 0

    def interrupted(futures: object) -> None:
        time.sleep(0.05)
        raise KeyboardInterrupt

    def work(k: int, check: Callable[[], None]) -> None:
        nonlocal n_checks
        for n_checks in range(10_000):  # noqa: B007
            check()
            time.sleep(0.01)

    monkeypatch.setattr("stansub.target.threads.as_completed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        together(work, range(1), Progress())
    assert n_checks < 1_000
