"""Data are read as CmdStan reads them, and what is wrong with them is said in one line."""

import gzip
import json
import math
import os
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_equal
from simulated import ROOT, Compiled, example

from stansub.errors import InputError
from stansub.stan.data import data
from stansub.stan.syntax import parse
from stansub.stan.toolchain.bridgestan_home import find_home

CODE = """
data {
  int<lower=0> N;
  int K;
  vector[N] y;
  array[N] int<lower=0> z;
  matrix[N, K] x;
  matrix[K, N] w;
  array[2, N] row_vector[K] r;
  array[N] complex c;
  real s;
}
"""
DECLARATIONS = parse(CODE).data.declarations
GOOD: dict[str, Any] = {
    "N": 3,
    "K": 2,
    "y": [1, 2.5, 3],
    "z": [0, 1, 1],
    "x": [[1, 2], [3, 4], [5, 6]],
    "w": [[1, 2, 3], [4, 5, 6]],
    "r": [[[1, 2], [3, 4], [5, 6]], [[7, 8], [9, 10], [11, 12]]],
    "c": [[1, 0], [0, 1], [1, 1]],
    "s": 1,
}


def read(**changes: Any) -> data.Data:
    return data.read({**GOOD, **changes}, DECLARATIONS)


def test_values_and_types(tmp_path: Path) -> None:
    file = tmp_path / "some.json"
    file.write_text(json.dumps(GOOD))
    compressed = tmp_path / "some.json.gz"
    compressed.write_bytes(gzip.compress(file.read_bytes()))
    for source in (GOOD, file, str(file), compressed):
        values = data.read(source, DECLARATIONS).values
        assert values["N"] == 3
        assert isinstance(values["N"], int)
        assert isinstance(values["s"], float)
        assert values["z"].dtype == np.int64
        assert values["y"].dtype == np.float64
        np.testing.assert_array_equal(values["x"], GOOD["x"])
        assert values["r"].shape == (2, 3, 2)
        assert values["c"].shape == (3, 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"N": np.int64(3), "y": np.arange(3, dtype=np.float32), "z": np.array([0, 1, 1], dtype=np.uint8)},
        {"x": np.asfortranarray(np.ones((3, 2))), "y": (1, 2, 3)},
        {"z": np.array([True, False, True]), "y": [True, False, True]},
        {"c": np.array([1, 1j, 1 + 1j])},
        {"y": np.array([1, 2, 3], dtype=object), "s": 2**70},
    ],
)
def test_what_python_has(changes: dict[str, Any]) -> None:
    values = read(**changes).values
    assert json.loads(read(**changes).json()).keys() == GOOD.keys()
    np.testing.assert_allclose(values["y"], np.asarray(changes.get("y", GOOD["y"]), dtype=float))
    np.testing.assert_array_equal(values["c"], GOOD["c"])


def test_unknown_variables_are_ignored() -> None:
    assert "other" not in read(other="anything").values


def test_empty_arrays_get_their_shape() -> None:
    values = read(N=0, y=[], z=[], x=[], w=[[], []], r=[[], []], c=[]).values
    assert [values[name].shape for name in "yzxwrc"] == [(0,), (0,), (0, 2), (2, 0), (2, 0, 2), (0, 2)]


def nested(depth: int) -> Any:
    return 1 if depth == 0 else [nested(depth - 1)]


INT, REAL, MATRIX = (
    "variable 'z', declared `array[N] int z`, ",
    "variable 'y', declared `vector[N] y`, ",
    "matrix[N, K] x",
)
WRONG = {
    "size as a float": ({"N": 3.0}, "data: variable 'N', declared `int N`, must hold integers, but N is 3.0 (write"),
    "size as a string": ({"N": "3"}, "variable 'N', declared `int N`, must hold numbers, but N is '3'"),
    "size as a list": ({"N": [3]}, "variable 'N' has 1 dimension, but is declared `int N`"),
    "size as null": ({"N": None}, "must hold numbers, but N is null"),
    "negative size": ({"N": -1}, "N is -1, but is a size of `vector[N] y`"),
    "size beyond 32 bits": ({"N": 2**31}, "must hold 32-bit integers, but N is 2147483648"),
    "another size": ({"N": 4}, "'y' has 3 elements in dimension 1, but is declared `vector[N] y` with N = 4"),
    "another second size": ({"K": 5}, f"'x' has 2 elements in dimension 2, but is declared `{MATRIX}` with K = 5"),
    "fraction": ({"z": [0, 0.5, 1]}, f"data: {INT}must hold integers, but z[2] is 0.5"),
    "whole float": ({"z": [0.0, 1, 1]}, f"{INT}must hold integers, but z[1] is 0.0 (write integers without a decimal"),
    "word for an integer": ({"z": [1, 1, "a"]}, f"{INT}must hold numbers, but z[3] is 'a'"),
    "integer beyond 32 bits": ({"z": [0, 2**40, 1]}, f"{INT}must hold 32-bit integers, but z[2] is 1099511627776"),
    "integer beyond 64 bits": ({"z": [0, 2**70, 1]}, "but z[2] is 1180591620717411303424"),
    "unsigned integer": ({"z": np.array([0, 1, 2**63], dtype=np.uint64)}, "but z[3] is 9223372036854775808"),
    "infinity for an integer": ({"z": [1, "Inf", 3]}, f"{INT}must hold numbers, but z[2] is 'Inf'"),
    "infinite integer": ({"z": [1, float("inf"), 3]}, f"{INT}must hold 32-bit integers, but z[2] is inf"),
    "size that JSON reads as a float": ({"N": 1e26}, "data: variable 'N', declared `int N`, must hold 32-bit integers"),
    "masked": ({"y": np.ma.masked_equal([1.0, 2.0, 3.0], 2.0)}, f"{REAL}must hold numbers, but y[2] is null"),
    "another word for infinity": ({"y": [1, "inf", 3]}, f"{REAL}must hold numbers, but y[2] is 'inf'"),
    "digits beyond 64 bits": ({"y": [1, 10**400, 3]}, f"{REAL}must hold 64-bit numbers, but y[2] is 1000"),
    "digits beyond 64 bits among fractions": ({"x": [[0.5, 1], [1, -(10**400)], [1, 1]]}, "but x[2, 2] is -1000"),
    "null": ({"y": [1, 2, None]}, f"{REAL}must hold numbers, but y[3] is null"),
    "word": ({"y": [1, "2", 3]}, f"{REAL}must hold numbers, but y[2] is '2'"),
    "object": ({"y": {"a": 1}}, f"{REAL}must hold numbers, but y is {{'a': 1}}"),
    "complex": ({"y": [1, 2, 3j]}, f"{REAL}must hold real numbers, but y[1] is (1+0j)"),
    "ragged": (
        {"x": [[1, 2], [3], [5, 6]]},
        f"variable 'x', declared `{MATRIX}`, is ragged: x[2] has length 1, lists before it have 2",
    ),
    "ragged inside": (
        {"r": [[[1, 2], [3, 4], [5, 6]], [[7, 8], [9]]]},
        "is ragged: r[2] has length 2, lists before it",
    ),
    "empty list for a number": ({"y": [1, [], 3]}, f"{REAL}must have a number at y[2], but there is a list"),
    "nested 100 deep": ({"y": nested(100)}, f"{REAL}must have a number at y[1], but there is a list"),
    "number for a row": ({"x": [[1, 2], 3, [5, 6]]}, f"`{MATRIX}`, must have a list at x[2], but there is 3"),
    "part of a complex number": (
        {"c": [[1, 0], [0], [1, 1]]},
        "is ragged: c[2] has length 1, lists before it have 2 (co",
    ),
    "too many dimensions": ({"y": [[1, 2, 3]]}, "variable 'y' has 2 dimensions, but is declared `vector[N] y`"),
    "too few dimensions": ({"x": [1, 2, 3]}, f"variable 'x' has 1 dimension, but is declared `{MATRIX}`"),
    "transposed": ({"x": GOOD["w"]}, f"`{MATRIX}` with N = 3; transpose it"),
    "half a complex number": ({"c": [1, 2, 3]}, "'c' has 1 dimension, but is declared `array[N] complex c` (complex"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values(name: str) -> None:
    changes, message = WRONG[name]
    with pytest.raises(InputError) as wrong:
        read(**changes)
    assert message in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_missing_variable() -> None:
    with pytest.raises(InputError, match=r"variable 'x' is missing; the data block declares it as `matrix\[N, K\] x`"):
        data.read({name: value for name, value in GOOD.items() if name != "x"}, DECLARATIONS)
    with pytest.raises(InputError, match=r"`matrix\[N, K\] x`; the data have 'X', which it does not declare$"):
        data.read({name.replace("x", "X"): value for name, value in GOOD.items()}, DECLARATIONS)


EYE, COMPLEX = [[1, 0], [0, 1]], [1, 2]
TYPES: dict[str, Any] = {
    "int": 1,
    "real": 1,
    "complex": COMPLEX,
    "array[3, 2] int": [[1, 2]] * 3,
    "array[3] real": [1, 2, 3],
    "vector[2]": [1, 2],
    "row_vector[2]": [1, 2],
    "array[3] vector[2]": [[1, 2]] * 3,
    "matrix[3, 2]": [[1, 2]] * 3,
    "array[3] matrix[1, 2]": [[[1, 2]]] * 3,
    "complex_vector[3]": [COMPLEX] * 3,
    "complex_row_vector[3]": [COMPLEX] * 3,
    "complex_matrix[3, 1]": [[COMPLEX]] * 3,
    "ordered[2]": [1, 2],
    "positive_ordered[2]": [1, 2],
    "simplex[2]": [0.5, 0.5],
    "unit_vector[2]": [1, 0],
    "sum_to_zero_vector[2]": [1, -1],
    "sum_to_zero_matrix[3, 2]": [[0, 0]] * 3,
    "row_stochastic_matrix[3, 2]": [[0.5, 0.5]] * 3,
    "column_stochastic_matrix[1, 2]": [[1, 1]],
    "cov_matrix[2]": EYE,
    "corr_matrix[2]": EYE,
    "cholesky_factor_cov[2]": EYE,
    "cholesky_factor_cov[3, 2]": [*EYE, [1, 1]],
    "cholesky_factor_corr[2]": EYE,
    "array[3] cov_matrix[2]": [EYE] * 3,
    "array[3, 1] cholesky_factor_corr[2]": [[EYE]] * 3,
    "tuple(int, vector[2])": {"1": 1, "2": [1, 2]},
    "tuple(complex, tuple(int, cov_matrix[2]))": {"1": COMPLEX, "2": {"1": 1, "2": EYE}},
    "array[2] tuple(int, real<lower=0>)": [{"1": 1, "2": 2}] * 2,
}


@pytest.mark.parametrize("name", TYPES)
def test_every_type(name: str) -> None:
    code = f"data {{ {name} x; }} parameters {{ real mu; }} model {{ mu ~ normal(0, 1); }}"
    declarations = parse(code).data.declarations
    assert json.loads(data.read({"x": TYPES[name]}, declarations).json()) == {"x": TYPES[name]}
    information = subprocess.run([find_home().stanc, "--info", "/dev/stdin"], input=code.encode(), capture_output=True)
    if information.returncode:  # an older stanc, which does not know the type
        assert "stochastic" in name or "sum_to_zero" in name
    elif "tuple" not in name:
        assert json.loads(information.stdout)["inputs"]["x"]["dimensions"] == len(declarations[0].all_dims)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([(1, 2.5 + 0j), (3, [4, 1])], None),
        ({"1": 1, "2": 2}, "must be an array of tuples, but there is {'1': 1, '2': 2}"),
        ([{"1": 1, "2": 2}, {"1": 1}], """must be {"1": ..., "2": ...}, but there is {'1': 1}"""),
        ([(1, 2), (1.5, 2)], "variable 't.1', declared `int t.1`, must hold integers, but t.1 is 1.5"),
    ],
)
def test_tuples(given: Any, message: str | None) -> None:
    declarations = parse("data { array[2] tuple(int, complex) t; }").data.declarations
    if message is None:
        found = json.loads(data.read({"t": given}, declarations).json())
        assert found == {"t": [{"1": 1, "2": [2.5, 0]}, {"1": 3, "2": [4, 1]}]}
        return
    with pytest.raises(InputError) as wrong:
        data.read({"t": given}, declarations)
    assert message in str(wrong.value)


# What CmdStan takes for values that are not finite.
BARE = {"NaN": np.nan, "Inf": np.inf, "Infinity": np.inf, "-Inf": -np.inf, "-Infinity": -np.inf}
WORDS = {**BARE, "+Inf": np.inf, "+Infinity": np.inf}


@pytest.mark.parametrize("text", [*BARE, *(f'"{word}"' for word in WORDS)])
def test_real_data_may_be_anything_that_stan_takes(text: str, tmp_path: Path) -> None:
    file = tmp_path / "some.json"
    good = {name: value for name, value in GOOD.items() if name not in ("y", "s")}
    file.write_text(f'{json.dumps({**good, "note": "no Inf, no -Inf"})[:-1]}, "y": [1, {text}, 2.5], "s": {text}}}')
    found = data.read(file, DECLARATIONS)
    value = WORDS[text.strip('"')]
    assert_equal(found.values["y"], [1, value, 2.5])
    assert_equal(found.values["s"], value)
    # What is written for the compiled program is read alike, and the same in Python.
    again = tmp_path / "again.json"
    again.write_bytes(found.json())
    assert "null" not in again.read_text()
    assert_equal(data.read(again, DECLARATIONS).values["y"], [1, value, 2.5])
    assert data.read(again, DECLARATIONS).digest() == found.digest() == read(y=[1, value, 2.5], s=value).digest()
    assert found.digest() != read(y=[1, 0, 2.5], s=0).digest()
    assert found.not_finite() == f"y[2] is {value}, s is {value}"
    assert read().not_finite() == ""


def test_infinities_of_either_sign_are_different_data() -> None:
    assert len({read(s=value).digest() for value in (np.nan, np.inf, -np.inf)}) == 3


FILES = {
    "array": (b"[1, 2]", "the top level must be an object {name: value, ...}, not an array"),
    "number": (b"3", "the top level must be an object {name: value, ...}, not a number"),
    "null": (b"null", "not null"),
    "empty": (b" \n", "the file is empty"),
    "cut short": (b'{"N": 3,', "not valid JSON: "),
    "other encoding": (b'{"N": 3, "name": "\xe9"}', "not valid JSON: 'utf-8' codec"),
    "number beyond 64 bits": (b'{"N": 3, "s": 1e400}', "not valid JSON: the number 1e400 is too large for 64 bits"),
    "400 digits": (json.dumps({**GOOD, "s": 10**399}).encode(), "must hold 64-bit numbers, but s is 1000"),
    "400 digits for an integer": (json.dumps({**GOOD, "N": 10**399}).encode(), "32-bit integers, but N is 1000"),
    "5,000 digits": (b'{"N": 3, "s": ' + b"1" * 5000 + b"}", "is too large for 64 bits"),
    "name twice": (b'{"N": 3, "s": 1, "N": 4}', "not valid JSON: 'N' is given twice"),
    "name twice beside text": (b'{"N": 3, "s": "Inf", "N": 4}', "not valid JSON: 'N' is given twice"),
    "name twice beside a bare word": (b'{"N": 3, "s": Inf, "N": 4}', "not valid JSON: 'N' is given twice"),
    "too deep": (b"[" * 100_000, "not valid JSON: nested too deeply"),
    "gzip cut short": (gzip.compress(json.dumps(GOOD).encode())[:-9], "the gzip file is damaged or truncated"),
    "gzip of nothing": (gzip.compress(b""), "the file is empty"),
}


@pytest.mark.parametrize("name", FILES)
def test_wrong_files(name: str, tmp_path: Path) -> None:
    content, message = FILES[name]
    file = tmp_path / "some.json"
    file.write_bytes(content)
    with pytest.raises(InputError) as wrong:
        data.read(file, DECLARATIONS)
    assert "some.json: " in str(wrong.value)
    assert message in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_a_file_without_a_known_ending_is_read_as_json(tmp_path: Path) -> None:
    for name, content in {"data": json.dumps(GOOD), "data.xlsx": "PK", "data.json": "PK"}.items():
        (tmp_path / name).write_text(content)
    assert data.read(tmp_path / "data", DECLARATIONS).values.keys() == GOOD.keys()
    with pytest.raises(
        InputError, match=r"data\.xlsx: not JSON, and no other .* write the data as \.json, \.csv or \.parquet$"
    ):
        data.read(tmp_path / "data.xlsx", DECLARATIONS)
    with pytest.raises(InputError, match=r"\(char 0\)$"):
        data.read(tmp_path / "data.json", DECLARATIONS)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.json: no such file"):
        data.read(tmp_path / "absent.json", DECLARATIONS)
    with pytest.raises(InputError, match=r": a folder without Parquet files; give a file of data$"):
        data.read(tmp_path, DECLARATIONS)
    file = tmp_path / "closed.json"
    file.write_text("{}")
    file.chmod(0)
    if not os.access(file, os.R_OK):
        with pytest.raises(InputError, match="cannot read the file: Permission denied"):
            data.read(file, DECLARATIONS)


def test_rows_are_taken_along_the_right_axis() -> None:
    values = read()
    axes = values.axes(["N"])
    assert axes == {"y": 0, "z": 0, "x": 0, "w": 1, "r": 1, "c": 0}
    rows = np.array([2, 0])
    taken = values.take(axes, rows).values
    assert taken["y"].tolist() == [3, 1]
    assert taken["x"].tolist() == [[5, 6], [1, 2]]
    assert taken["w"].tolist() == [[3, 1], [6, 4]]
    assert taken["r"].tolist() == [[[5, 6], [1, 2]], [[11, 12], [7, 8]]]
    assert taken["c"].tolist() == [[1, 1], [1, 0]]
    assert taken["s"] == 1
    for cut in (values.rows(axes, ["N"], rows), values.take(axes, rows).rows(axes, ["N"], slice(0, 2))):
        block = json.loads(cut.json())
        assert block["N"] == 2
        assert block["w"] == [[3, 1], [6, 4]]


def test_sizes_may_be_those_of_other_data() -> None:
    code = """data {
      int N; int K; row_vector[N] r; matrix[N, K] m; array[N, K] int a;
      vector[rows(r)] one; vector[cols(r)] n; vector[cols(m)] k; vector[size(a)] also; vector[num_elements(a)] all;
    }"""
    sizes = {"one": 1, "n": 3, "k": 2, "also": 3, "all": 6}
    given = {"N": 3, "K": 2, "r": np.ones(3), "m": np.ones((3, 2)), "a": np.ones((3, 2), int)}
    declarations = parse(code).data.declarations
    data.read(given | {name: np.ones(size) for name, size in sizes.items()}, declarations)
    for wrong in sizes:
        values = given | {name: np.ones(size + (name == wrong)) for name, size in sizes.items()}
        with pytest.raises(InputError, match=f"'{wrong}' has {sizes[wrong] + 1} elements"):
            data.read(values, declarations)


def test_sizes_that_follow_from_the_number_of_rows() -> None:
    code = """data { int N; int K; int has; int off; vector[N] y; vector[has ? N : 0] x; matrix[off * N, K] o;
    matrix[off ? N : 0, K] e; vector[(K > 5 && has) ? K : rows(o) + N] z; array[size(y)] int g;
    vector[N + 1] u; }"""
    *declared, u = parse(code).data.declarations
    row = [1.0, 2.0, 3.0]
    given = {"N": 3, "K": 2, "has": 1, "off": 0, "y": row, "x": row, "o": [], "e": [], "z": row, "g": [1, 2, 3]}
    values = data.read(given, tuple(declared))
    assert values.axes(["N"]) == {"y": 0, "x": 0, "z": 0, "g": 0}
    assert values.values["e"].shape == (0, 2)
    with pytest.raises(InputError, match=r"'x' has 2 elements in dimension 1.* with has \? N : 0 = 3"):
        data.read({**given, "x": [1, 2]}, tuple(declared))
    with pytest.raises(InputError, match=r"'u' has the size `N \+ 1`, not an element for each observation"):
        data.read({**given, "u": [*row, 4]}, (*declared, u)).axes(["N"])


def test_data_that_cannot_be_cut() -> None:
    square = parse("data { int N; matrix[N, N] x; }").data.declarations
    with pytest.raises(InputError, match="'x' has the number of observations as the size of two dimensions"):
        data.read({"N": 1, "x": [[1]]}, square).axes(["N"])
    pair = parse("data { int N; tuple(vector[N], real) t; }").data.declarations
    with pytest.raises(InputError, match="'t' is a tuple with one entry per observation"):
        data.read({"N": 1, "t": {"1": [1], "2": 1}}, pair).axes(["N"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": [0, 3, 9]}, r"^data: y\[2\] is 3, but must be at most 2 \(`upper=K`\)$"),
        ({"y": [0, -1, 2]}, r"^data: y\[2\] is -1, but must be at least 0$"),
        ({"x": [[0.5, 3.0], [1.0, 1.0]]}, r"^data: x\[1, 2\] is 3.0, but must be at most 2 \(`upper=2 \* K - 2`\)$"),
        ({"x": [[math.nan, 1.0], [1.0, 1.0]], "t": -5}, ""),
        ({"y": []}, ""),
    ],
)
def test_bounds_by_integers_of_the_data_are_checked_before_compiling(changes: dict[str, Any], message: str) -> None:
    declared = parse(
        "data { int K; array[N] int<lower=0, upper=K> y; matrix<lower=0, upper=2 * K - 2>[2, 2] x; "
        "real<lower=0.5> t; int N; }"
    ).data.declarations
    given = {"K": 2, "y": [0, 1, 2], "x": [[0.0, 2.0], [1.0, 1.0]], "t": 1.0} | changes
    given["N"] = len(given["y"])
    with nullcontext() if not message else pytest.raises(InputError, match=message):
        data.read(given, declared)


def test_digest_is_of_the_values(tmp_path: Path) -> None:
    file = tmp_path / "indented.json"
    file.write_text(json.dumps(GOOD, indent=2))
    assert data.read(file, DECLARATIONS).digest() == read().digest()
    assert read(s=2).digest() != read().digest()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": np.full(103, 2)}, r"^data: y\[1\] is 2, but must be at most 1$"),
        ({"K": 0, "x": np.zeros((103, 0))}, r"^data: K is 0, but must be at least 1$"),
        (
            {"x": np.where(np.arange(309).reshape(103, 3) == 4, np.nan, 0.5)},
            r"^logistic: .*not finite.*observation 2 of the data .*\(logistic\.stan, line 15\).*x\[2, 2\] is nan",
        ),
    ],
)
def test_bounds_are_the_programs_own(changes: dict[str, Any], message: str, compiled: Compiled) -> None:
    file = ROOT / "stan_models" / "logistic.stan"
    with pytest.raises(InputError, match=message) as wrong:
        compiled(file).with_data({**example(file), **changes}, block_size=8)
    assert "\n" not in str(wrong.value)
