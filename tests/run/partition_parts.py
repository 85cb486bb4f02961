"""What tests of partitions send to workers, which import this file; it imports no other, whose names may clash."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

N, PARTS = 4000, 4


def table(part: int, seed: int = 1) -> pa.Table:
    """Rows of one partition."""
    rng = np.random.default_rng((seed, part))
    n = N // PARTS
    x = rng.standard_normal((n, 3)) + 0.3 * part  # partitions differ
    y = (rng.random(n) < 1 / (1 + np.exp(0.3 - x @ [0.5, -0.5, 0.2]))).astype(np.int64)
    return pa.table({"y": y, **{f"x{k + 1}": x[:, k] for k in range(3)}})


def of_this_process(part: int) -> pa.Table:
    """Rows that are others wherever they are made."""
    return table(part, seed=os.getpid())


def of_a_file(path: str) -> pa.Table:
    """Rows of a file, whatever it holds."""
    return parquet.read_table(path)


@dataclass(frozen=True)
class Held:
    """A request whose answer a test holds back: until a file exists."""

    until: Path

    def answer(self, holder: Any, *, threads: int = 1) -> str:
        while not self.until.exists():
            time.sleep(0.01)
        return "answered"
