"""Numbers read without Python objects are those of the complete reader, which gets whatever else JSON has."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from stansub import _loop
from stansub.errors import InputError
from stansub.stan.data import data
from stansub.stan.syntax import parse

NUMBERS = """
0 -0 7 -7 9223372036854775807 -9223372036854775808 0.5 -0.0 1e5 1E+5 1e-05 -3.5e-7 0.1e-5 5e-324 1.7976931348623157e308
2.2250738585072011e-308 9007199254740993.0 123456789012345678901234567890.0 0.1000000000000000055511151231257827
[] [[],[]] [[[]],[[]]] [1] [1,2.5,3] [2.5,9007199254740993] [-0,0.5] [[1,2],[3,4]] [[[1],[2]],[[3],[4]],[[5],[6.0]]]
"""
OTHER = """
"a" null true NaN Infinity -Infinity {} {"1":2} [1,null] [1,"2"] [[1,2],[3]] [[],1] [1,[]] [[],[[1]]] [[[1]],[]]
9223372036854775808 [1,18446744073709551616] 1e400 1e-400 01 -01 00.1 1. .5 +1 - 1e 1e+ 0x1 1_0 nan inf 1f
[1,] [,1] [1 [1 [1]] 1] [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]
"""


def same(one: Any, other: Any) -> bool:
    """Equal to the last bit; that arrays without elements hold integers means nothing."""
    alike = one.dtype == other.dtype or one.size == 0
    return bool(alike and one.shape == other.shape and one.tobytes() == other.tobytes())


@pytest.mark.parametrize("text", NUMBERS.split())
def test_numbers_are_those_of_the_complete_reader(text: str) -> None:
    spaced = text.replace(",", " ,\t")
    document = f' {{ "a" : 1, "b_2":\n{spaced} }}\r\n'.encode()
    found = _loop.read_json_numbers(document)
    assert found is not None
    assert list(found) == ["a", "b_2"]
    assert same(found["b_2"], np.asarray(orjson.loads(document)["b_2"]))


@pytest.mark.parametrize("text", [*OTHER.split(), "[1 2]", "- 1"])
def test_whatever_else_there_is_goes_to_the_complete_reader(text: str) -> None:
    assert _loop.read_json_numbers(f'{{"a": {text}}}'.encode()) is None


@pytest.mark.parametrize(
    "text",
    ["", "[]", "1", '{"a": 1', '{"a": 1,}', '{"a" 1}', "{a: 1}", '{"\\u0061": 1}', '{"ä": 1}', '{"a": 1} 2', "{} {}"],
)
def test_other_documents_go_to_the_complete_reader(text: str) -> None:
    assert _loop.read_json_numbers(text.encode()) is None


def test_any_double_is_read_exactly() -> None:
    rng = np.random.default_rng(1)
    doubles = rng.integers(-(2**63), 2**63, 20_000).view(np.float64)
    doubles = doubles[np.isfinite(doubles)]
    rounded = np.round(rng.standard_normal((5_000, 4)), 3)
    text = json.dumps({"x": doubles.tolist(), "y": rounded.tolist()}).encode()
    found = _loop.read_json_numbers(text)
    assert found is not None
    assert same(found["x"], doubles)
    assert same(found["y"], rounded)
    assert not same(found["x"], np.nextafter(doubles, 0))


def test_decimals_of_any_length_are_rounded_as_by_the_complete_reader() -> None:
    """About 2^53 and about 19 digits, where short ways of reading stop being exact."""
    rng = np.random.default_rng(2)
    words = []
    for n in rng.integers(1, 24, 20_000):
        digits = "".join(map(str, rng.integers(0, 10, n)))
        whole = rng.integers(0, n + 1)
        words.append(f"{'-' if rng.random() < 0.5 else ''}{digits[:whole].lstrip('0') or '0'}.{digits[whole:]}0")
    for k in range(-20, 20):
        words += [f"{2**53 + k}.0", f"{(2**53 + k) // 10}.{(2**53 + k) % 10}", f"0.{'0' * 21}{2**53 + k}"]
    text = f'{{"x": [{",".join(words)}]}}'.encode()
    found = _loop.read_json_numbers(text)
    assert found is not None
    assert same(found["x"], np.array([float(word) for word in words]))


PIECES = (1, 2, 3, 7)


def in_pieces(text: bytes, piece: int) -> dict[str, Any] | None:
    """Read by as many threads as there are pieces of so many characters."""
    return _loop.read_json_numbers(text, threads=8, piece=piece)


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("text", NUMBERS.split())
def test_pieces_of_an_array_make_the_whole(text: str, piece: int) -> None:
    spaced = text.replace(",", " ,\t").replace("]", " ]\n")
    for document in (f'{{"a":{text},"b":1}}'.encode(), f'{{ "b" : 1, "a" : {spaced} }}'.encode()):
        found, whole = in_pieces(document, piece), _loop.read_json_numbers(document)
        assert whole is not None
        if found is None:  # arrays without elements may be left to the complete reader
            assert not whole["a"].size
        else:
            assert list(found) == list(whole)
            assert all(same(found[name], whole[name]) for name in whole)


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize(
    "text", [*OTHER.split(), "[1 2]", "- 1", "[1,2]]", "[[1,2]", "[1,2],[3]", "[[1],2]", "[1,[2]]"]
)
def test_whatever_else_there_is_in_a_piece_goes_to_the_complete_reader(text: str, piece: int) -> None:
    for document in (f'{{"a": {text}}}', f'{{"a": {text}, "b": 1}}', f'{{"a": [{text},{text}]}}'):
        if _loop.read_json_numbers(document.encode()) is None:
            assert in_pieces(document.encode(), piece) is None


@pytest.mark.parametrize("shape", [(1000,), (200, 5), (5, 200), (20, 5, 10), (1, 1000), (1000, 1)])
@pytest.mark.parametrize("indent", [None, 1])
def test_large_arrays_in_pieces(shape: tuple[int, ...], indent: int | None) -> None:
    rng = np.random.default_rng(3)
    doubles = np.frombuffer(rng.bytes(8 * 1000)).copy()
    doubles[~np.isfinite(doubles)] = -0.0
    whole = rng.integers(-(2**63), 2**63 - 1, 1000)
    late = [*whole.tolist()[:-1], 0.5]  # integers until the last number
    values = [np.reshape(one, shape).tolist() for one in (doubles, np.round(doubles % 1, 4), whole)]
    values.append(np.reshape(np.array(late, dtype=object), shape).tolist())
    text = json.dumps(dict(zip("abcd", values, strict=True)), indent=indent).encode()
    for piece in (1, 10, 1000):
        found = in_pieces(text, piece)
        assert found is not None
        for name, value in zip("abcd", values, strict=True):
            assert same(found[name], np.asarray(value, float if name == "d" else None)), name


def broken(rng: np.random.Generator, text: bytes) -> bytes:
    """The text with one character gone, doubled or another."""
    at = int(rng.integers(len(text)))
    kind = rng.integers(3)
    new = b"" if kind == 0 else text[at : at + 1] * 2 if kind == 1 else bytes([b"[],.-e0 }x\x00"[rng.integers(11)]])
    return text[:at] + new + text[at + 1 :]


def test_text_that_is_broken_anywhere_is_judged_alike_in_pieces() -> None:
    rng = np.random.default_rng(4)
    good = json.dumps({"x": rng.standard_normal((12, 3)).round(2).tolist(), "n": 12, "y": [1, 0] * 6}).encode()
    n_read = 0
    for _ in range(150):
        text = broken(rng, good)
        whole = _loop.read_json_numbers(text)
        n_read += whole is not None
        for piece in (1, 40):
            found = in_pieces(text, piece)
            assert (found is None) == (whole is None), text
            if found is not None and whole is not None:
                assert all(same(found[name], whole[name]) for name in whole), text
        if whole is not None:
            assert all(same(whole[name], np.asarray(value)) for name, value in orjson.loads(text).items()), text
    assert 15 < n_read < 135


def test_a_ragged_row_of_a_large_file_is_named(tmp_path: Path) -> None:
    declarations = parse("data { int N; matrix[N, 2] x; }").data.declarations
    many = "[0.25, 1.5], " * 119_998  # several pieces of a megabyte
    file = tmp_path / "tall.json"
    for row, what in (("[1.0]", "is ragged: x[119999] has length 1"), ("[1.0, null]", "x[119999, 2] is null")):
        file.write_text(f'{{"N": 120000, "x": [{many}{row}, [0.25, 1.5]]}}')
        with pytest.raises(InputError, match=re.escape(what)):
            data.read(file, declarations)


def test_two_values_of_one_name_go_to_the_complete_reader() -> None:
    assert _loop.read_json_numbers(b'{"a": [1, 2], "b": 3, "a": 4.5}') is None
    assert _loop.read_json_numbers(b'{"a": [1, 2], "b": 3, "aa": 4.5}') is not None


DECLARATIONS = parse("data { int N; vector[N] y; array[N] int z; }").data.declarations


def told(source: Any) -> str:
    try:
        values = data.read(source, DECLARATIONS).values
    except InputError as error:
        return str(error).replace("some.json", "data")
    return "; ".join(f"{name}: {np.asarray(value).dtype} {value}" for name, value in values.items())


@pytest.mark.parametrize("value", ["[1, 0]", "[0.5, 1]", "[1.0, 2]", "[1, 3000000000]", "[[1], [2]]", "[1]", "5", "[]"])
@pytest.mark.parametrize("name", ["y", "z", "N"])
def test_files_of_numbers_are_judged_as_values_are(tmp_path: Path, name: str, value: str) -> None:
    good = {"N": "2", "y": "[1, 2]", "z": "[3, 4]"}
    text = "{" + ", ".join(f'"{key}": {numbers}' for key, numbers in {**good, name: value}.items()) + "}"
    file = tmp_path / "some.json"
    file.write_text(text)
    assert _loop.read_json_numbers(text.encode()) is not None
    assert told(file) == told(json.loads(text))
