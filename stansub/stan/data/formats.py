"""Files of data by their formats: JSON, R's dump format, tables and arrays."""

from __future__ import annotations

import gzip
import json
import math
import re
import reprlib
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from stansub import _loop
from stansub.errors import InputError
from stansub.stan.data import rdump
from stansub.stan.data.file_watch import WatchedFile
from stansub.stan.data.sources import DataPartitions, matching
from stansub.stan.data.tables import Table, joined, of_stream, open_file
from stansub.stan.data.zarr_arrays import read_arrays
from stansub.target.threads import THREADS

# Bare words for non-finite values that Python's JSON reader does not accept.
_STRING_OR_WORD = re.compile(rb'("(?:[^"\\\\]|\\\\.)*")|[+-]?Inf(?:inity)?\b')

# The first bytes of every gzip file.
_GZIP = b"\x1f\x8b"

# Formats by file suffix; everything else is JSON, which need not have its own suffixes.
_JSON = (".json", ".json.gz")
_FORMATS = {
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "ipc"),
    **{f".{kind}{packed}": kind for kind in ("csv", "tsv") for packed in ("", ".gz", ".bz2", ".zst")},
    **dict.fromkeys((".npy", ".npz"), "numpy"),
    **dict.fromkeys((".zarr", ".zarr.zip"), "zarr"),
    **dict.fromkeys((".r", ".rdump", ".dump"), "rdump"),
}


class Values(NamedTuple):
    """Values by name."""

    by_name: Mapping[str, Any]
    files: tuple[WatchedFile, ...] = ()
    """Files in which they remain while they are used."""


def is_data_file(path: Path) -> bool:
    """Return whether a file has the ending of a format of data."""
    return path.name.lower().endswith((*_JSON, *_FORMATS))


def opened(part: Any, name: str) -> Table | Values:
    """Open a table, or read the values of a file; InputError if it cannot be read."""
    if isinstance(part, Mapping):
        return Values(part)
    if isinstance(part, DataPartitions):
        return joined([_partition(one, name) for one in part.parts], name)
    if not isinstance(part, str | Path):
        return of_stream(part, name)
    path = Path(part)
    if path.suffix == ".stan":
        raise InputError(f"{path}: a Stan program in the place of data; give the program once, before the data")
    kind = next((one for end, one in _FORMATS.items() if path.name.lower().endswith(end)), "json")
    if path.is_dir() and kind != "zarr":
        if not any(path.glob("**/*.parquet")):
            raise InputError(f"{path}: a folder without Parquet files; give a file of data")
        kind = "parquet"
    if files := matching(path):
        if kind != "parquet":
            raise InputError(f"{path}: only Parquet files can be given by a pattern; it must end in .parquet")
        return joined([_partition(file, name) for file in files], path.name)
    if kind == "zarr":
        return Values(read_arrays(path))
    if kind == "numpy":
        return _arrays(path)
    if kind not in ("json", "rdump"):
        return open_file(path, kind)
    text = _text(path)
    if kind == "rdump":
        return Values(rdump.parse(text.decode(errors="replace"), name))
    # Tall data are numbers alone, which need no Python object each; the complete reader handles everything else.
    return Values(_loop.read_json_numbers(text, threads=THREADS) or _parse(text, path))


def _partition(part: str | Path | Callable[[], Any], name: str) -> Table:
    """Open a Parquet file, or the table that a function returns."""
    return open_file(Path(part), "parquet") if isinstance(part, str | Path) else of_stream(part(), name)


def _arrays(path: Path) -> Values:
    """Return the arrays of numpy's files: those of npz by name; that of npy, which stays in the file, by file name."""
    try:
        held = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(held, np.memmap):
            return Values({name: held[name] for name in held.files})
        file = WatchedFile.of(path).mapped()
        array = np.ndarray[Any, Any](held.shape, held.dtype, file.bytes, held.offset, held.strides)
        return Values({path.stem: array}, (file,))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, ValueError, TypeError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        short = "mmap length" in str(error)  # mmap's message
        reason = "it is shorter than its header says; copy it again" if short else error
        raise InputError(f"{path}: cannot read an array of numbers: {reason}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object from a file; InputError if the file is missing, unreadable or not a JSON object."""
    return _parse(_text(path), path)


def _text(path: Path) -> bytes:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot read the file: {error.strerror}") from error
    if text.startswith(_GZIP):
        try:
            text = gzip.decompress(text)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(
                f"{path}: the gzip file is damaged or truncated ({error}); compress the data again"
            ) from error
    if not text or text.isspace():
        raise InputError(f"{path}: the file is empty")
    return text


def _parse(text: bytes, path: Path) -> dict[str, Any]:
    try:
        raw = orjson.loads(text)
    except orjson.JSONDecodeError:
        raw = None
    if raw is None or (isinstance(raw, dict) and any(text.count(f'"{name}"'.encode()) > 1 for name in raw)):
        # CmdStan's reader also accepts bare words for non-finite values; Python's accepts some of them.
        text = _STRING_OR_WORD.sub(_python_word, text)
        try:
            raw = json.loads(text, parse_int=_whole, parse_float=_decimal, object_pairs_hook=_once)
        except ValueError as error:
            if not path.name.lower().endswith(_JSON) and not text.lstrip().startswith((b"{", b"[")):
                raise InputError(
                    f"{path}: not JSON, and no other format has this ending; write the data as .json, .csv or .parquet"
                ) from None
            raise InputError(f"{path}: not valid JSON: {error}") from error
        except RecursionError:
            raise InputError(f"{path}: not valid JSON: nested too deeply") from None
    if not isinstance(raw, dict):
        kind = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}.get(type(raw), "a number")
        raise InputError(f"{path}: the top level must be an object {{name: value, ...}}, not {kind}")
    return raw


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON whose names all differ."""
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for k, (name, _) in enumerate(pairs) if name in dict(pairs[:k]))
        raise ValueError(f"{name!r} is given twice")
    return found


def _python_word(found: re.Match[bytes]) -> bytes:
    """Return a string unchanged, and a bare word for infinity as Python's reader accepts it."""
    return found[1] or (b"-Infinity" if found[0].startswith(b"-") else b"Infinity")


def _whole(digits: str) -> int:
    # Python itself refuses thousands of digits; fewer are left to the message that names the element.
    return int(digits) if len(digits) < 1000 else int(_decimal(digits))


def _decimal(digits: str) -> float:
    if math.isinf(value := float(digits)):
        raise ValueError(f"the number {reprlib.repr(digits)[1:-1]} is too large for 64 bits")
    return value
