"""Odd command lines, data files and draws files, and what is wrong with the way in which a command ends."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import random
import warnings
from collections.abc import Callable, Sequence
from enum import EnumMeta
from pathlib import Path
from typing import Any, get_args

import h5py
import numpy as np
from hypothesis import strategies as st
from typer.models import ArgumentInfo

from stansub import cli
from stansub.cli.application import app

DOCUMENTED = {0, 1, 2, 3, 4, 5}
PROGRAM = Path(__file__).parents[1] / "stan_models" / "logistic.stan"

NAMES = ["posterior", "sample_stats", "chain", "draw", "settings", "n_obs_used", "alpha", "beta", "x", "N"]
TEXTS = [
    "", " ", "-", "--", "-1", "0", "1", "2", "0.5", "1.5", "-0.0", "1e308", "1e-320", "1e999", "nan", "inf", "-inf",
    "9" * 30, "9" * 400, "1_000", "0x10", "٣", "½", "True", "None", "null", "[]", "{}", "{", "[1, 2", '"', "'", "%s",
    "{0}", "[bold]x[/]", "[/]", "[/red]", "`thin`", "a\nb", "a\tb", "\x1b[31m", "é", "\udcff", "𝔸", "a" * 300,
    "a,b", ",", "=", "ess=", "ess=1,ess=2",
    "ess=nan", "rhat=0.5", "=400", "~", "~nosuchuser/x", ".", "..", "none.json", "folder", "good.nc", "mean.json",
    "dask:",
    "dask:x", "dask:tcp://[::1", "10m", "-5s", "1h1h", "1e9h", "auto", "exact", "pocock", "hoeffding", "factorised",
    "penalty", "0,0.1", "0.1,0.1", "nuts",
]  # fmt: skip
# Options whose effects reach beyond the folder of the tests, or that start other processes.
FAR = {"--clear", "--install-cmdstan", "--debug"}

_ERROR = "stansub: error: "
_INTERNAL = ("internal error", "Traceback", "Exception ignored")

text = st.one_of(
    st.sampled_from(TEXTS), st.text(st.characters(exclude_characters="\0", exclude_categories=[]), max_size=8)
)


def _stream(errors: str) -> io.TextIOWrapper:
    """A stream with the encoding of a terminal."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors)


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    held = stream.buffer
    assert isinstance(held, io.BytesIO)
    return held.getvalue().decode(errors="replace")


def _ends_with_a_line(said: str) -> bool:
    """Whether an error is one line, after whatever has been said of progress."""
    *before, last = said.splitlines() or [""]
    return last.startswith(_ERROR) and not any(line.startswith(_ERROR) for line in before)


def offence(arguments: Sequence[str]) -> str:
    """Run a command in this process and say what is wrong with its end; nothing if it ends as documented."""
    out, err = _stream("strict"), _stream("backslashreplace")
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(record=True) as seen,
    ):
        warnings.simplefilter("default")
        try:
            cli.main(list(arguments))
        except SystemExit as exit_:
            code = exit_.code
        except Exception as error:
            return f"{type(error).__name__} escapes: {error}"
    told, said = _written(out), _written(err)
    failed = code in (1, 2)
    wrong = {
        f"exit code {code} is not documented: {said}": code not in DOCUMENTED,
        f"warnings: {[(one.category, one.message, one.filename) for one in seen]}": bool(seen),
        f"a traceback or an internal error: {said}": any(word in said for word in _INTERNAL),
        f"exit code {code} without a word": failed and not (said + told).strip(),
        f"exit code {code} with more than a line, or another last one: {said}": failed and not _ends_with_a_line(said),
    }
    return next((what for what, is_so in wrong.items() if is_so), "")


# Command lines


def _parts(parameter: inspect.Parameter) -> tuple[Any, Any]:
    """Type and declaration of a parameter of a command."""
    kind, declared = get_args(parameter.annotation)[:2]
    return kind, declared


def _flags(parameter: inspect.Parameter) -> list[str]:
    plain = parameter.name.replace("_", "-")
    declared = [one for one in _parts(parameter)[1].param_decls or () if one.startswith("-")]
    return declared or ([f"--{plain}", f"--no-{plain}"] if _parts(parameter)[0] is bool else [f"--{plain}"])


def _option(parameter: inspect.Parameter) -> st.SearchStrategy[list[str]]:
    """A flag, with one of the values that it offers, a number or any text where it takes one."""
    kind, flag = _parts(parameter)[0], st.sampled_from(_flags(parameter))
    if kind is bool:
        return flag.map(lambda one: [one])
    offered = [str(name) for one in (kind, *get_args(kind)) if isinstance(one, EnumMeta) for name in one]
    value = st.one_of(st.sampled_from([*offered, "1", "2", "0.5", "200"]), text)
    return st.tuples(flag, value).map(list)


def _line(name: str, places: Sequence[str], options: Sequence[Sequence[str]], more: Sequence[str]) -> list[str]:
    return [name, *places, *(word for one in options for word in one), *more]


def _command_lines() -> st.SearchStrategy[list[str]]:
    each: list[st.SearchStrategy[list[str]]] = []
    for command in app.registered_commands:
        assert command.callback is not None
        taken = inspect.signature(command.callback, eval_str=True).parameters.values()
        arguments = [one for one in taken if isinstance(_parts(one)[1], ArgumentInfo)]
        options = [one for one in taken if one not in arguments and not FAR & set(_flags(one))]
        # Without data or draws, no command starts anything slow.
        usual = st.just((str(PROGRAM), "none.json")[: len(arguments)])
        odd = st.tuples(*[st.one_of(st.sampled_from([str(PROGRAM), "none.json", "good.nc"]), text) for _ in arguments])
        given = st.lists(st.one_of([_option(one) for one in options]), max_size=5) if options else st.just([])
        more = st.lists(text, max_size=1)
        each.append(st.builds(_line, st.just(command.callback.__name__), st.one_of(usual, odd), given, more))
    return st.one_of(*each, st.lists(text, max_size=3))


command_lines = _command_lines()


def _runs() -> st.SearchStrategy[list[str]]:
    """Short runs of `sample`, with any values of the options that do not make them longer."""
    (command,) = [one.callback for one in app.registered_commands if one.callback and one.callback.__name__ == "sample"]
    taken = inspect.signature(command, eval_str=True).parameters.values()
    long = {"executor", "budget", "chains", "iter_warmup", "iter_sampling", "debug"}
    options = [one for one in taken if not isinstance(_parts(one)[1], ArgumentInfo) and one.name not in long]
    given = st.lists(st.one_of([_option(one) for one in options]), min_size=1, max_size=4)
    short = [["--chains", "2"], ["--iter-warmup", "20"], ["--iter-sampling", "30"]]
    return given.map(lambda more: _line("sample", [str(PROGRAM), "mean.json"], [*short, *more], []))


runs = _runs()


# Data files


numbers = st.one_of(
    st.sampled_from(
        [0, 1, 2, -1, 10**30, 10**399, -(2**31), 2**31, 2**63, 2**64, 1e308, 5e-324, 0.5, True, False, None]
    ),
    st.floats(),
    st.integers(),
)
json_values = st.recursive(
    st.one_of(numbers, text, st.sampled_from(["NaN", "Inf", "-Infinity", "+Inf"])),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(text, inner, max_size=3)),
    max_leaves=12,
)


def good_data(n: int = 30) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((n, 1))
    return {"N": n, "K": 1, "y": (rng.random(n) < 0.5).astype(int).tolist(), "x": x.tolist()}


def _with_value(change: tuple[str, int, Any]) -> bytes:
    """Good data in which one variable, or one element of it, is another value."""
    name, place, value = change
    data = good_data()
    if place < 0 or not isinstance(data.get(name), list):
        data[name] = value
    else:
        data[name][place] = value
    return json.dumps(data).encode(errors="surrogatepass")


_PIECES = [b"[", b"]", b"{", b",", b"-", b"e", b'"', b"9" * 30, b"NaN", b"\xff", b"\0", b"1e"]


def _damaged(content: bytes, seed: int) -> bytes:
    """Content with bytes flipped, removed, inserted or cut off."""
    rng = random.Random(seed)
    damaged = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 3, 20])):
        place = rng.randrange(len(damaged))
        match rng.randrange(5):
            case 0:
                damaged[place] ^= 1 << rng.randrange(8)
            case 1:
                del damaged[place : place + rng.choice([1, 4, 100])]
            case 2:
                damaged[place:place] = rng.choice(_PIECES)
            case 3:
                damaged[place : place + 8] = rng.randbytes(8)
            case 4 if len(damaged) > 100:
                del damaged[place:]
        if not damaged:
            break
    return bytes(damaged)


GOOD_JSON = json.dumps(good_data()).encode()
_TOKENS = [
    "NaN", "Infinity", "-Infinity", "nan", "1.", ".5", "01", "+1", "1e400", "1e-400", "-", "0x1", "tru", "9" * 400,
    "'a'", "1 2", "",
]  # fmt: skip
_MARKS = [b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b", b"PK\x03\x04", b"\n" * 50]
_TWICE = [b'"N": 5', b'"N": 30', b'"y": []', b'"N": {"a": 1}']
data_files = st.one_of(
    st.tuples(st.sampled_from(["N", "K", "y", "x", "z", ""]), st.integers(-1, 29), json_values).map(_with_value),
    st.tuples(st.sampled_from(_TOKENS), st.sampled_from(["N", "y", "x"])).map(
        lambda one: json.dumps(good_data() | {one[1]: "@"}).replace('"@"', one[0]).encode()
    ),
    st.integers(0, 2**32).map(lambda seed: _damaged(GOOD_JSON, seed)),
    st.integers(1, 100_000).map(lambda n: b'{"x": ' + b"[" * n + b"]" * n + b"}"),
    st.sampled_from(_MARKS).map(lambda mark: mark + GOOD_JSON),
    st.sampled_from(["utf-16", "utf-32", "utf-8-sig"]).map(lambda code: GOOD_JSON.decode().encode(code)),
    st.sampled_from(_TWICE).map(lambda twice: GOOD_JSON[:-1] + b", " + twice + b"}"),
    json_values.map(lambda value: json.dumps(value).encode(errors="surrogatepass")),
    st.binary(max_size=40),
)  # fmt: skip


# Draws files


_VALUES: list[Any] = [
    "", "{", "[]", "[1", "{}", "null", "true", '"x"', '{"test": 3}', '[{"a": null}]', "[/red]", "a\nb", "x" * 70_000,
    0, -1, 1, 2**62, 0.5, -1e308, 1e308, float("nan"), float("inf"),
    np.array([], float), np.array([1, 2]), np.array([np.nan, np.inf]), np.array(["a", "b"], object),
    np.bytes_(b"\xff\xfe"),
]  # fmt: skip
_FILLS: list[float] = [np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-320, 0.0, -1.0, 2.0**62]


def _every(file: h5py.File, kind: type) -> list[str]:
    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if isinstance(item, kind) else None)
    return sorted(names)


def _attribute(file: h5py.File, rng: random.Random) -> None:
    place = rng.choice(["/", "/", "/", *_every(file, h5py.Group)])
    names = sorted(file[place].attrs)
    if names:
        name = rng.choice(names)
        if rng.random() < 0.2:
            del file[place].attrs[name]
        else:
            file[place].attrs[name] = rng.choice(_VALUES)


def _json_attribute(file: h5py.File, rng: random.Random) -> None:
    """Another value within the JSON of an attribute."""
    held = {name: text for name, text in file.attrs.items() if isinstance(text, str) and text[:1] in ("{", "[")}
    if not held:
        return
    name = rng.choice(sorted(held))
    with contextlib.suppress(json.JSONDecodeError):
        value = json.loads(held[name])
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if keys:
            key = rng.choice(keys)
            value[key] = rng.choice([None, -1, 1e308, "", "x", [], {}, [[]], {"a": 1}, True])
            if rng.random() < 0.3:
                del value[key]
        file.attrs[name] = json.dumps(value)


def _fill(file: h5py.File, rng: random.Random) -> None:
    values = file[rng.choice(_every(file, h5py.Dataset))]
    if values.dtype.kind in "fiu" and values.size:
        wanted = rng.choice(_FILLS)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            filled = values[()].copy()
            where = rng.choice([..., 0, -1]) if filled.ndim else ...
            filled[where] = np.asarray(wanted).astype(values.dtype)
        values[()] = filled


def _replace(file: h5py.File, rng: random.Random) -> None:
    """A variable of another type or shape, without dimension scales."""
    name = rng.choice(_every(file, h5py.Dataset))
    kind = rng.choice(["S3", "i1", "f2", "u8", "c16", "bool", "f8"])
    shape = rng.choice([(), (0,), (1,), (2, 60), (60, 2), (2, 60, 1, 1)])
    del file[name]
    file.create_dataset(name, data=np.zeros(shape, kind))


def _drop(file: h5py.File, rng: random.Random) -> None:
    del file[rng.choice(_every(file, h5py.Dataset) + _every(file, h5py.Group))]


def _rename(file: h5py.File, rng: random.Random) -> None:
    old = rng.choice(_every(file, h5py.Dataset) + _every(file, h5py.Group))
    new = rng.choice([*NAMES, "[red]", "a\nb", "é", "a" * 200, " "])
    if new not in file[old].parent:
        file[old].parent.move(old.rpartition("/")[2], new)


def _link(file: h5py.File, rng: random.Random) -> None:
    """A link to nowhere, to another file, or in a circle."""
    link = rng.choice([h5py.SoftLink("/nowhere"), h5py.SoftLink("/"), h5py.ExternalLink("/etc/passwd", "/")])
    file["posterior/" + rng.choice(["alpha2", "chain2"])] = link


_CHANGES: list[Callable[[h5py.File, random.Random], None]] = [
    _attribute, _attribute, _json_attribute, _json_attribute, _fill, _replace, _drop, _rename, _link
]  # fmt: skip


def changed_draws(content: bytes, seed: int) -> bytes:
    """A file of draws in which some groups, variables or attributes are others; still valid HDF5."""
    rng = random.Random(seed)
    image = io.BytesIO(content)
    with h5py.File(image, "r+") as file:
        for _ in range(rng.choice([1, 1, 2, 4])):
            # What an earlier change has removed cannot be changed again.
            with contextlib.suppress(KeyError, IndexError, ValueError, TypeError, OSError, RuntimeError):
                rng.choice(_CHANGES)(file, rng)
    return image.getvalue()


def damaged_draws(content: bytes, seed: int) -> bytes:
    """A file of draws with bytes flipped or cut off."""
    rng = random.Random(seed)
    damaged = bytearray(content)
    for _ in range(rng.choice([1, 4, 40])):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged[: rng.choice([len(damaged), len(damaged), rng.randrange(len(damaged))])])


def reading(name: str, seed: int) -> list[str]:
    """A command that reads draws; the slow ones are rare."""
    others = [["summary", name, "--all", "--verbose"], ["compare", name, "good.nc", "--json", "c.json", "--force"]]
    rare = [["compare", "good.nc", name, "--json", "c.json", "--force"], ["plot", name, "--force"]]
    return random.Random(seed).choice([*[["summary", name]] * 20, *others, *rare])
