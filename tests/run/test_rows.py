"""Rows in blocks: the same whether memory or a file holds them."""

import numpy as np
import pytest

from stansub.kernels.base import Records, Stat
from stansub.run import rows
from stansub.run.rows import Rows

STATS = (Stat("accepted", bool, "Accepted."), Stat("n", np.int64, "Number."))


def records(start: int, end: int) -> Records:
    numbers = np.arange(start, end)
    return Records(np.stack([numbers, -numbers], axis=1).astype(float), {"accepted": numbers % 3 == 0, "n": numbers})


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Rows:
    """A thousand rows in blocks of 64, the first five of which something else holds."""
    monkeypatch.setattr(rows, "_BLOCK_BYTES", 0)
    monkeypatch.setattr(rows, "_SKETCH", 64)
    made = Rows(1000, 2, STATS)
    for start in range(0, 1000, 37):
        made.append(records(start, min(start + 37, 1000)))
    for number in range(5):
        made.store(number, lambda number=number: records(64 * number, 64 * number + 64))
    return made


@pytest.mark.parametrize(("start", "end"), [(0, 1000), (0, 64), (10, 20), (60, 70), (310, 330), (999, 1000), (5, 5)])
def test_any_rows_are_read(kept: Rows, start: int, end: int) -> None:
    found = kept.read(start, end)
    np.testing.assert_array_equal(found["n"], np.arange(start, end))
    np.testing.assert_array_equal(found.theta, records(start, end).theta)
    np.testing.assert_array_equal(found["accepted"], np.arange(start, end) % 3 == 0)


def test_stored_blocks_leave_memory(kept: Rows) -> None:
    assert kept.n_bytes == kept.row_bytes * (1000 - 5 * 64)
    assert kept.has_stored
    np.testing.assert_array_equal(np.concatenate([part["n"] for part in kept.parts()]), np.arange(1000))


def test_a_sketch_takes_few_rows_of_each_block(kept: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_SKETCH", 4)
    for number in range(5):
        kept.store(number, lambda: records(0, 0))
    made = Rows(1000, 2, STATS)
    made.per_block = 64
    made.append(records(0, 1000))
    np.testing.assert_array_equal(made.sketch(), records(0, 1000).theta)
    made.store(0, lambda: records(0, 64))
    np.testing.assert_array_equal(made.sketch(), records(0, 1000).theta[::16])
