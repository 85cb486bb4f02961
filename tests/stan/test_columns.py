"""Data from tables: which columns become which variables, what follows from them, and what is wrong in one line."""

from __future__ import annotations

import csv
import errno
import gzip
import json
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather

from stansub.errors import InputError
from stansub.stan.data import data, spool
from stansub.stan.data.sources import DataSources
from stansub.stan.syntax import parse

CODE = """
data {
  int<lower=0> N;
  int<lower=1> K;
  int<lower=1> J;
  array[N] int<lower=0, upper=1> y;
  matrix[N, K] x;
  array[N] int<lower=1, upper=J> group;
}
"""
DECLARATIONS = parse(CODE).data.declarations
COLUMNS = {"x": "x_*"}


def frame(n: int = 6, **changes: Any) -> pd.DataFrame:
    columns = {
        "x_1": np.arange(n) / 2,
        "other": ["unused"] * n,
        "y": np.arange(n) % 2,
        "x_2": np.arange(n),
        "group": [("c", "a", "b")[k % 3] for k in range(n)],
    }
    return pd.DataFrame(columns | changes)


def read(table: Any, *more: Any, columns: dict[str, Any] | None = None) -> data.Data:
    sources = DataSources([table, *more], COLUMNS if columns is None else columns)
    return data.read(sources, DECLARATIONS)


FORMATS: dict[str, Callable[[pd.DataFrame, Path], object]] = {
    "t.parquet": lambda table, path: table.to_parquet(path, row_group_size=4),
    "t.feather": lambda table, path: table.to_feather(path),
    "t.arrow": lambda table, path: feather.write_feather(pa.table(table), path, compression="uncompressed"),
    "t.csv": lambda table, path: table.to_csv(path, index=False),
    "t.csv.gz": lambda table, path: table.to_csv(path, index=False),
    "t.tsv": lambda table, path: table.to_csv(path, index=False, sep="\t"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_data(name: str, tmp_path: Path) -> None:
    FORMATS[name](frame(), tmp_path / name)
    found, values = read(tmp_path / name), read(frame()).values
    assert {key: values[key] for key in "NKJ"} == {"N": 6, "K": 2, "J": 3}
    assert values["x"].tolist() == [[k / 2, k] for k in range(6)]
    assert values["group"].tolist() == [3, 1, 2, 3, 1, 2]
    assert found.origins.levels == {"group": ("a", "b", "c")}
    by_value = data.read({key: np.asarray(value).tolist() for key, value in values.items()}, DECLARATIONS)
    assert found.digest() == by_value.digest()


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    frame().to_parquet(tmp_path / "1.parquet")
    frame().to_parquet(tmp_path / "2")
    (tmp_path / "_SUCCESS").touch()
    assert read(tmp_path).values["N"] == 2 * len(frame())
    (tmp_path / "model.stan").write_text("parameters {}")
    with pytest.raises(
        InputError, match=r"but model\.stan is not a Parquet file; give .* pattern of files: .*/\*\.parquet'$"
    ):
        read(tmp_path)


def test_a_folder_of_parquet_files_is_one_table(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    frame().iloc[:4].to_parquet(tmp_path / "parts" / "1.parquet")
    frame().iloc[4:].to_parquet(tmp_path / "parts" / "2.parquet")
    assert read(tmp_path / "parts").digest() == read(frame()).digest()


def test_more_rows_than_a_batch() -> None:
    """Levels that come up late are put into the alphabet's order all the same."""
    n = 200_000
    names = np.where(np.arange(n) < 150_000, "m", np.where(np.arange(n) % 2, "a", "z"))
    table = pa.table(frame(n, y=np.ones(n, dtype=int), group=names))
    chunked = pa.Table.from_batches(table.to_batches(max_chunksize=30_000))
    assert read(chunked).values["group"].tolist() == [{"a": 1, "m": 2, "z": 3}[name] for name in names]
    assert read(chunked).origins.levels == {"group": ("a", "m", "z")}


class Stream:
    """What any library with the Arrow C stream interface hands over."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def test_tables_of_other_libraries() -> None:
    expected = read(frame()).digest()
    assert read(Stream(pa.table(frame()))).digest() == expected
    numbers = {name: column for name, column in frame(group=[3, 1, 2, 3, 1, 2]).items() if name != "other"}
    kinds = [(name, column.dtype.str) for name, column in numbers.items()]
    structured = np.array(list(zip(*numbers.values(), strict=True)), dtype=kinds)
    assert read(structured, {"J": 3}).digest() == expected


def test_categories_keep_their_order() -> None:
    groups = pd.Categorical(["c", "a", "b"] * 2, categories=["c", "b", "a", "unseen"])
    found = read(frame(group=groups))
    assert found.values["group"].tolist() == [1, 3, 2, 1, 3, 2]
    assert found.values["J"] == 4
    assert found.origins.levels == {"group": ("c", "b", "a", "unseen")}


def test_columns_by_list_by_pattern_and_by_another_name() -> None:
    table = frame().rename(columns={"y": "late"})
    found = read(table, columns={"x": ["x_2", "x_1"], "y": "late"})
    assert found.values["x"].tolist() == [[k, k / 2] for k in range(6)]
    assert found.origins.texts["x"] == "columns x_2, x_1 of data (2)"
    assert found.origins.texts["N"] == "6, a size of y"
    assert found.origins.texts["group"] == "column group of data, levels 1 = a, 2 = b, 3 = c"
    assert found.origins.texts["J"] == "3, the number of levels of group"
    assert read(frame(group=[1, 2, 4] * 2)).origins.texts["J"] == "4, the largest value of group"


def test_values_beside_a_table() -> None:
    assert read(frame(), {"J": 7}).values["J"] == 7
    whole = frame(group=[1.0, 2.0, 3.0] * 2, y=[True, False] * 3)
    assert read(whole, {"J": 3}).values["y"].tolist() == [1, 0] * 3


def test_two_tables_of_other_lengths() -> None:
    declarations = parse("data { int N; int J; vector[N] y; vector[J] u; }").data.declarations
    found = data.read([pd.DataFrame({"y": [1.0, 2, 3]}), pd.DataFrame({"u": [4.0, 5]})], declarations)
    assert (found.values["N"], found.values["J"]) == (3, 2)


def test_sizes_follow_from_values_too() -> None:
    given = {"y": [0, 1], "x": [[1.0], [2.0]], "group": [1, 1], "J": 1}
    assert (data.read(given, DECLARATIONS).values["N"], data.read(given, DECLARATIONS).values["K"]) == (2, 1)


def test_arrays_of_numpy_stay_in_their_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(6, 2))
    np.savez(tmp_path / "more.npz", y=np.ones(6, dtype=int), group=np.ones(6, dtype=int))
    found = read(tmp_path / "x.npy", tmp_path / "more.npz", {"J": 1}, columns={})
    assert found.values["K"] == 2
    assert np.shares_memory(found.values["x"], found.files[0].bytes)


def at(row: int, value: Any, column: str = "y") -> pd.DataFrame:
    table = frame().astype({column: object})
    table.loc[row, column] = value
    return table.astype({column: "Float64" if column == "y" else object})


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "missing number": (lambda: read(at(3, None)), "data: column 'y', row 4 is missing"),
    "not a number": (lambda: read(pa.table({"y": [0.0, np.nan], "x_1": [1, 2]})), "data: column 'y', row 2 is missing"),
    "missing text": (lambda: read(at(2, None, "group")), "data: column 'group', row 3 is missing"),
    "nothing there": (lambda: read(frame(y=[None] * 6)), "column 'y', row 1 is missing, like all other rows"),
    "fraction": (lambda: read(at(1, 0.5)), "data: column 'y', row 2 is 0.5, but the variable holds integers"),
    "too large": (lambda: read(at(1, 2.0)), "data: column 'y', row 2 is 2.0, but the upper bound is 1"),
    "beyond 32 bits": (lambda: read(frame(group=[1, 2**40] * 3)), "column 'group', row 2 is 1099511627776"),
    "level 0": (
        lambda: read(frame(group=[1, 0, 2] * 2)),
        "column 'group', row 2 is 0, but the lower bound is 1: levels",
    ),
    "level above": (lambda: read(frame(group=[1, 9, 2] * 2), {"J": 3}), "row 2 is 9, but the upper bound is 3"),
    "more levels": (lambda: read(frame(), {"J": 2}), "column 'group' has 3 levels (a, b, c), numbered 1 to 3"),
    "text for truth": (
        lambda: read(frame(y=["no", "yes"] * 3)),
        "column 'y' has 2 levels (no, yes), numbered 1 to 2, but the program allows at most 1; write outcomes as 0 and "
        "1, or as booleans",
    ),
    "text for numbers": (
        lambda: read(frame(x_2="a")),
        "column 'x_2' is of type large_string, but the variable needs",
    ),
    "times": (lambda: read(frame(y=pd.Timestamp("2013-01-01"))), "column 'y' is of type timestamp"),
    "no column": (
        lambda: read(frame().drop(columns="y")),
        "'y' is missing; the data block declares it as `array[N]",
    ),
    "named column": (
        lambda: read(frame(), columns={"x": ["x_1", "x_3"]}),
        "data: no column 'x_3', which `columns` maps to 'x'; did you mean 'x_",
    ),
    "no brackets": (
        lambda: read(frame(), columns={"x": "x_1,x_2"}),
        "data: no column 'x_1,x_2', which `columns` maps to 'x'; a list of columns needs brackets: "
        "`columns=x=[x_1,x_2]`",
    ),
    "no matrix": (lambda: read(frame(), columns={}), "no column has that name; name its columns with `columns=x=["),
    "unknown variable": (
        lambda: read(frame(), columns={**COLUMNS, "groups": "group"}),
        "`columns` names 'groups', which the data block does not declare; did you mean 'group'?",
    ),
    "both": (lambda: read(frame(), {"x": [[1.0]]}), "variable 'x' is given twice, as a value and in data: remove one"),
    "both by name": (lambda: read(frame(), {"y": [1.0]}), "variable 'y' is given twice, as a value and in data"),
    "twice": (lambda: read({"J": 1}, {"J": 2}), "variable 'J' is given twice, in data and in data: remove one"),
    "no table": (lambda: read({"J": 1}), "`columns` names 'x', but no table is given"),
    "two tables": (lambda: read(frame(), frame()), "variable 'y' has columns in data"),
    "another length": (lambda: read(frame(), {"N": 5}), "'y' has 6 elements in dimension 1, but is declared"),
    "no table at all": (lambda: read(7), "cannot read data of type int: give files, tables"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_in_a_line(name: str) -> None:
    action, message = WRONG[name]
    with pytest.raises(InputError) as error:
        action()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("field", ["", "NA"])
def test_text_without_a_value_in_csv_is_missing_and_no_level(field: str, tmp_path: Path) -> None:
    at(2, None, "group").to_csv(tmp_path / "t.csv", index=False, na_rep=field)
    with pytest.raises(InputError, match=r"^t\.csv: column 'group', row 3 is missing$"):
        read(tmp_path / "t.csv")
    at(2, "NA", "group").to_csv(tmp_path / "t.csv", index=False, quoting=csv.QUOTE_NONNUMERIC)
    assert read(tmp_path / "t.csv").origins.levels == {"group": ("NA", "a", "b", "c")}


@pytest.mark.parametrize(
    ("name", "delimiter", "message"),
    [
        ("t.csv", ";", "semicolons separate the columns; write the file with commas"),
        ("t.csv", "\t", "tabs separate the columns; write the file with commas"),
        ("t.tsv", ",", "commas separate the columns; write the file with tabs"),
    ],
)
def test_another_delimiter_is_named(name: str, delimiter: str, message: str, tmp_path: Path) -> None:
    frame().to_csv(tmp_path / name, index=False, sep=delimiter)
    with pytest.raises(InputError, match=f"^{name}: {message}$"):
        read(tmp_path / name)


def test_the_first_text_among_numbers_is_named(tmp_path: Path) -> None:
    at(3, "0,5", "x_1").to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InputError, match=r"^t\.csv: column 'x_1' is of type string, .* numbers; row 4 is '0,5'$"):
        read(tmp_path / "t.csv")


def test_utf_16_is_named(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "t.csv", index=False, encoding="utf-16")
    with pytest.raises(InputError, match=r"^t\.csv: the file is UTF-16 text; write it as UTF-8$"):
        read(tmp_path / "t.csv")


@pytest.mark.parametrize("columns", [["x_1", "x_2"], {"x": 3}, {"x": [1, 2]}, {"": "x_1"}])
def test_columns_of_other_types_are_refused(columns: Any) -> None:
    with pytest.raises(InputError, match=r"^`columns`: give a column, or a list of columns, by variable, such as"):
        DataSources([frame()], columns)


def test_csv_without_rows(tmp_path: Path) -> None:
    frame().iloc[:0].to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InputError, match=r"^t\.csv: the table has no rows$"):
        read(tmp_path / "t.csv")


DAMAGED = {
    "cut.parquet": "cannot read",
    "cut.feather": "cannot read",
    "cut.npz": "cannot read",
    "cut.npy": "shorter than its header says",
    "cut.csv.gz": "cannot read",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_files_that_were_cut_short(name: str, tmp_path: Path) -> None:
    path, whole = tmp_path / name, tmp_path / f"whole-{name}"
    if name.endswith("npz"):
        np.savez(whole, y=np.arange(100))
    elif name.endswith("npy"):
        np.save(whole, np.arange(100))
    else:
        FORMATS[name.replace("cut", "t")](frame(), whole)
    path.write_bytes(whole.read_bytes()[:-40])
    with pytest.raises(InputError, match=DAMAGED[name]):
        read(path)
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / f"none-{name}")


def test_words_of_a_command_line_and_what_is_recorded(tmp_path: Path) -> None:
    words = DataSources.from_words(["t.parquet", "J=7"], ["x=[x_1, x_2]", "y = late", "group=g*"])
    assert words.columns == {"x": ("x_1", "x_2"), "y": ("late",), "group": ("g*",)}
    assert words.parts == ("t.parquet", {"J": 7})
    again = DataSources.restored(words.recorded)
    assert again is not None
    assert again.columns == words.columns
    assert again.parts == (str(Path("t.parquet").resolve()), {"J": 7})
    assert DataSources.of("a.json").recorded == str(Path("a.json").resolve())
    assert DataSources.restored(DataSources.of("a.json").recorded).parts == (str(Path("a.json").resolve()),)
    assert DataSources.of(frame()).recorded == DataSources.of({"N": 3}).recorded == ""
    assert DataSources.from_words([], ['x=["a, b", "c"]']).columns == {"x": ("a, b", "c")}


@pytest.mark.parametrize(
    ("data_words", "columns", "message"),
    [
        (["J=seven"], [], "no such file, and 'seven' is not a number"),
        ([], ["x"], "must have the form VARIABLE=COLUMN"),
        ([], ["x=[]"], "must have the form VARIABLE=COLUMN"),
        ([], ["x=a", "x=b"], "names 'x' twice"),
    ],
)
def test_words_that_cannot_be_read(data_words: list[str], columns: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DataSources.from_words(data_words, columns)


DUMP = """
# written by hand
N <- 3L
"K" <- 2
x <-
structure(c(1, 2, 3, 4.5, 5, 6),
.Dim = c(3L, 2L))
y = c(0, 1, 1); `z` <- 1:3
down <- 3:1
e <- c(1e+05, 2)
s <- -0.5
none <- integer(0)
inf <- c(-Inf, Inf)
"""


def test_the_dump_format_of_r(tmp_path: Path) -> None:
    path = tmp_path / "some.data.R"
    path.write_text(DUMP)
    values = dict(data.load(path).values)
    assert values["x"].tolist() == [[1, 4.5], [2, 5], [3, 6]]
    assert (values["N"], values["K"], values["s"]) == (3, 2, -0.5)
    assert [values[name].tolist() for name in ("y", "z", "down")] == [[0, 1, 1], [1, 2, 3], [3, 2, 1]]
    assert values["e"].dtype == np.int64
    assert values["none"].size == 0
    assert values["inf"].tolist() == [-np.inf, np.inf]


def test_names_of_levels_in_a_dump_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "some.data.R"
    path.write_text("""levels <- c("LAC # (a, b)", NA, 'it\\'s "x"') # c("
who <- "me"
"y" <- c(1, 2)""")
    values = data.load(path).values
    assert values["y"].tolist() == [1, 2]
    assert list(values) == ["levels", "who", "y"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x <- c(1, NA, 3)", "variable 'x': element 2 is missing"),
        ('x <- c(1, "a")', "variable 'x': element 2 is '\"a\"', which is not a number"),
        ("x <- list(a = 1)", "variable 'x': 'list\\(a = 1\\)' is not a number"),
        ("x <- structure(c(1, 2), .Dim = c(3L, 1L))", "has 2 values, but .Dim says 3 x 1"),
        ("x <- structure(c(1, 2), class = 'a')", "structure\\(...\\) has no .Dim"),
        ("x <- c(1, 2", "c\\( has no closing parenthesis"),
        ("N <- 3\n{}", "some.R, line 2: expected `NAME <- VALUE`"),
        ("N <- 3 4", "unexpected text after the value of 'N'"),
    ],
)
def test_what_is_wrong_with_a_dump(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "some.R"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        data.load(path)


def test_compressed_json_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "data.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"J": 3}).encode()))
    assert read(frame(), path).values["J"] == 3


class TestColumnsBeyondMemory:
    """Columns that take more than a share of the memory stand in a file."""

    def test_values_are_the_same(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        frame(40).to_parquet(tmp_path / "t.parquet", row_group_size=4)
        expected = read(tmp_path / "t.parquet", {"K": 2})
        monkeypatch.setattr(spool, "_SHARE", 1 << 60)
        found = read(tmp_path / "t.parquet", {"K": 2})
        assert isinstance(found.values["x"].base.base.obj, mmap.mmap)
        assert found.digest() == expected.digest()
        assert [one.name for one in tmp_path.iterdir()] == ["t.parquet"]

    def test_a_disk_without_room_is_one_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(file: int, start: int, size: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(spool, "_SHARE", 1 << 60)
        monkeypatch.setattr("os.posix_fallocate", full)
        with pytest.raises(InputError, match=r"the columns take .* \(No space left on device\); .*TMPDIR"):
            read(frame(40), {"K": 2})


def test_a_pattern_of_parquet_files_is_one_table(tmp_path: Path) -> None:
    table = frame()
    for name, rows in {"b": slice(4, 6), "a": slice(0, 4)}.items():
        table.iloc[rows].to_parquet(tmp_path / f"part-{name}.parquet")
    found = read(tmp_path / "part-*.parquet")
    for name, value in read(table).values.items():
        assert np.array_equal(found.values[name], value)
    assert found.source == "part-*.parquet"
    assert found.digest() == read(tmp_path / "part-?.parquet").digest()
    (tmp_path / "part-a.parquet").rename(tmp_path / "part-c.parquet")
    assert found.digest() != read(tmp_path / "part-*.parquet").digest(), "the rows stand in another order"
    sources = DataSources.of(str(tmp_path / "part-*.parquet"))
    assert not sources.missing()
    restored = DataSources.restored(sources.recorded)
    assert restored is not None
    assert restored.partitions is not None
    assert len(restored.partitions.parts) == 2
    assert DataSources.of(str(tmp_path / "none-*.parquet")).missing()


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (frame().drop(columns="y"), "2.parquet: column 'y' is missing, but of type int64 in 1.parquet"),
        (frame(y=np.ones(6)), "2.parquet: column 'y' is of type double, but of type int64 in 1.parquet"),
    ],
)
def test_files_of_a_pattern_must_have_the_same_columns(second: pd.DataFrame, message: str, tmp_path: Path) -> None:
    frame().to_parquet(tmp_path / "1.parquet")
    second.to_parquet(tmp_path / "2.parquet")
    with pytest.raises(InputError, match=message):
        read(tmp_path / "*.parquet")


def test_patterns_are_for_parquet_files(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "1.csv")
    with pytest.raises(InputError, match=r"only Parquet files can be given by a pattern"):
        read(tmp_path / "*.csv")
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "*.parquet")
