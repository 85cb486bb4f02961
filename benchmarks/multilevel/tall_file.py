"""A Parquet file with the data of a crossed logistic regression, of any number of rows.

python benchmarks/multilevel/tall_file.py 100000000 crossed.parquet
stansub sample benchmarks/multilevel/programs/crossed.stan crossed.parquet --columns 'x=x_*'

The two groupings, of 50 and 500 levels, are columns of strings. A row group has a million rows from a generator of its
own, so that a file of more rows begins with those of a shorter one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from scipy.special import expit

_GROUP, _COVARIATES, _LEVELS = 1_000_000, 10, (50, 500)


def write(path: Path, n: int, *, seed: int = 1) -> None:
    """Write a file of n rows."""
    root = np.random.default_rng(seed)
    beta = 0.3 * root.standard_normal(_COVARIATES)
    effects = [sd * root.standard_normal(j) for sd, j in zip((0.5, 0.3), _LEVELS, strict=True)]
    names = [[f"{letter}{k:03d}" for k in range(j)] for letter, j in zip("gh", _LEVELS, strict=True)]
    writer = None
    for group, first in enumerate(range(0, n, _GROUP)):
        rng, k = np.random.default_rng((seed, group)), min(_GROUP, n - first)
        x = rng.standard_normal((_COVARIATES, k))
        levels = [rng.integers(j, size=k, dtype=np.int32) for j in _LEVELS]
        eta = -0.5 + beta @ x + sum(own[level] for own, level in zip(effects, levels, strict=True))
        columns = {"y": (rng.random(k) < expit(eta)).astype(np.int8)}
        columns |= {f"x_{j + 1:02d}": column for j, column in enumerate(x)}
        texts = (pa.DictionaryArray.from_arrays(*pair).cast(pa.string()) for pair in zip(levels, names, strict=True))
        table = pa.table({**columns, **dict(zip("gh", texts, strict=True))})
        writer = writer or parquet.ParquetWriter(path, table.schema, compression="none")
        writer.write_table(table, row_group_size=_GROUP)
    if writer is not None:
        writer.close()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", type=int)
    parser.add_argument("file", type=Path)
    given = parser.parse_args()
    write(given.file, given.rows)


if __name__ == "__main__":
    main()
