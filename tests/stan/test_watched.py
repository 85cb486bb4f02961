"""Files of data that are damaged, or change while they are read."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyarrow import feather, parquet

from stansub import InputError, RunError
from stansub.stan import data, tables
from stansub.stan.syntax import parse

DECLARATIONS = parse("data { int N; vector[N] x; }").data.declarations


def written(path: Path, n: int = 200_000) -> Path:
    table = pd.DataFrame({"x": np.random.default_rng(1).standard_normal(n)})
    if path.suffix == ".npy":
        np.save(path, table["x"].to_numpy())
    elif path.suffix == ".parquet":
        table.to_parquet(path, row_group_size=n // 4)
    else:
        feather.write_feather(table, path, compression="uncompressed")
    return path


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.npy"])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_file_cut_short_is_one_line(tmp_path: Path, name: str, share: float) -> None:
    path = written(tmp_path / name)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InputError, match=rf"{name}: cannot (be read|read)") as caught:
        data.read(path, DECLARATIONS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow"])
def test_a_table_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The same columns and rows with other values, after the first batch."""
    path, read, n = written(tmp_path / name), tables._of_one_file, 0

    def meanwhile(*given: Any) -> Any:
        nonlocal n
        for n, batch in enumerate(read(*given), 1):
            if n == 1:
                written(path.with_name(f"other-{name}")).replace(path)
            yield batch

    monkeypatch.setattr(tables, "_of_one_file", meanwhile)
    with pytest.raises(RunError, match=rf"{name} changed while it was read"):
        data.read(path, DECLARATIONS)
    assert n > 1


def test_a_folder_that_grows_while_it_is_read_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "a.parquet", 4)
    raw = data.load(tmp_path)
    parquet.write_table(parquet.read_table(tmp_path / "a.parquet"), tmp_path / "b.parquet")
    with pytest.raises(RunError, match="changed while it was read"):
        raw.checked(DECLARATIONS)
