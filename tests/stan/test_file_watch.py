"""Files of data that are damaged, or change while they are read."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyarrow import feather, parquet

from stansub import InputError, RunError
from stansub.stan.data import data, tables
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


# Programs for a process of its own: reading a page that a file has lost would end it.
CUT = """
import os, sys
from stansub import RunError
from stansub.stan.data import data, tables
from stansub.stan.syntax import parse

path, declarations = sys.argv[1], parse("data { int N; vector[N] x; }").data.declarations
"""
PROGRAMS = {
    "promised": """
found = data.read(path, declarations)
with found.unchanged():
    os.truncate(path, 4096)
    print(found.values["x"][-1], flush=True)
""",
    "failing": """
found = data.read(path, declarations)
with found.unchanged():
    os.truncate(path, 4096)
    1 / found.values["x"][-1].item()
""",
    "not promised": """
found = data.read(path, declarations)
os.truncate(path, 4096)
print(found.values["x"][-1], flush=True)
""",
    "between batches": """
read = tables._of_one_file
def meanwhile(*given):
    for n, batch in enumerate(read(*given)):
        yield batch
        os.truncate(path, 4096)
tables._of_one_file = meanwhile
data.read(path, declarations)
""",
}


def after(program: str, path: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-P",
        "-c",
        f"{CUT}try:{program.replace(chr(10), chr(10) + ' ')}\nexcept RunError as error:\n",
    ]
    command[-1] += "    sys.exit(f'{type(error).__name__}: {error}')"
    return subprocess.run([*command, path], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("name", "program", "printed"),
    [
        ("x.npy", "promised", "0.0\n"),
        ("x.npy", "failing", ""),
        ("x.parquet", "between batches", ""),
        pytest.param("x.arrow", "between batches", "", marks=pytest.mark.slow),
    ],
)
def test_a_file_cut_short_while_it_is_read_in_place_is_one_line(
    tmp_path: Path, name: str, program: str, printed: str
) -> None:
    ended = after(PROGRAMS[program], written(tmp_path / name, 2_000_000))
    assert (ended.returncode, ended.stdout) == (1, printed)
    assert ended.stderr.startswith("RunError: ")
    assert ended.stderr.endswith(f"{name} changed while it was read; run again when no other process writes to it\n")
    assert ended.stderr.count("\n") == 1


def test_a_file_cut_short_where_nobody_checks_it_ends_the_process(tmp_path: Path) -> None:
    ended = after(PROGRAMS["not promised"], written(tmp_path / "x.npy"))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        "stansub: error: a data file was cut short while it was read; run again when no other process writes to it\n"
    )


def test_values_in_place_go_to_another_process_as_copies(tmp_path: Path) -> None:
    found = data.read(written(tmp_path / "x.npy"), DECLARATIONS)
    there = pickle.loads(pickle.dumps(found))
    os.truncate(tmp_path / "x.npy", 0)
    assert there.values["x"][-1] != 0
    with pytest.raises(RunError, match="changed while it was read"):
        there.check_files()
