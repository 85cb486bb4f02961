"""Files from strangers: nothing in them is run, and whatever they hold, there is one line and an exit code."""

import ast
import io
import json
import os
import pickle
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import stansub
from stansub import InputError, cli
from stansub.codec import Encoded
from stansub.output import inference_data, plots, summary
from stansub.output.facts import JSON_ATTRS, Facts
from stansub.run import store

PACKAGE = Path(stansub.__file__).parent
EXAMPLES = Path(__file__).parents[1] / "stan_models"
READERS = ("summary", "plot", "compare")

pytestmark = pytest.mark.usefixtures("no_lines")


class Evil:
    """What runs when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def run(*arguments: Any, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code of a command, and what it writes to standard error."""
    with pytest.raises(SystemExit) as ended:
        cli.main([str(one) for one in arguments])
    return int(ended.value.code or 0), capsys.readouterr().err


def refused(*arguments: Any, capsys: pytest.CaptureFixture[str]) -> str:
    """The line with which input is refused."""
    code, error = run(*arguments, capsys=capsys)
    assert code == 2, error
    assert error.count("\n") == 1, error
    assert "internal error" not in error
    return error


def test_code_is_read_from_no_file() -> None:
    """Pickles are only what processes of one run hand to each other: in a folder that is their own, and by pipes."""
    found = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if {one.split(".")[0] for one in names} & {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}:
                found.add(str(file.relative_to(PACKAGE)))
            called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            assert called not in ("eval", "exec"), file
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), file
                assert node.value.value is False, file
    assert found == {"run/remote.py", "stan/trials.py"}


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A checkpoint as the first version wrote it, with a pickle that makes a file; and that file's name beside it."""
    path, mark = tmp_path / "normal_mean.checkpoint", tmp_path / "mark"
    facts = dict.fromkeys(("setup", "meetings", "seconds", "finished", "source", "data"), pickle.dumps(Evil(mark)))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB)")
        database.execute("CREATE TABLE chains (number INTEGER PRIMARY KEY, state BLOB)")
        database.execute("CREATE TABLE records (number INTEGER, phase TEXT, start INTEGER, rows BLOB)")
        database.execute("INSERT INTO facts VALUES ('format', 'stansub checkpoint 1')")
        database.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
        database.execute("INSERT INTO chains VALUES (0, ?)", (pickle.dumps(Evil(mark)),))
    assert pickle.loads(pickle.dumps(Evil(mark))) is None
    assert mark.exists(), "the control: it runs where it is unpickled"
    mark.unlink()
    return path


@pytest.mark.parametrize("name", ["other.checkpoint", "draws.nc", "draws"])
def test_pickles_in_a_checkpoint_are_not_run(
    evil: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = evil.rename(tmp_path / name)
    for command in READERS:
        error = refused(command, file, capsys=capsys)
        assert (
            "not a NetCDF file" if name == "draws.nc" else "is an SQLite database, the checkpoint format of"
        ) in error
    for read in (stansub.read_checkpoint, stansub.read_draws):
        with pytest.raises(InputError):
            read(file)
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_pickles_beside_a_program_are_not_run(
    evil: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder from somebody else that holds MODEL.checkpoint, in which a program is sampled."""
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"N": 2, "y": [1.0, 2.0], "sigma": 1.0}))
    program, content = EXAMPLES / "normal_mean.stan", evil.read_bytes()
    for options in ([], ["--force"], ["--resume", evil.name], ["--checkpoint", evil.name]):
        error = refused("sample", program, data, *options, capsys=capsys)
        assert "normal_mean.checkpoint is an SQLite database, the checkpoint format of earlier versions" in error
    assert evil.read_bytes() == content
    assert sorted(one.name for one in tmp_path.iterdir()) == ["data.json", "normal_mean.checkpoint"]


def log_lik(theta: Any, which: Any) -> Any:
    return -0.5 * (DATA[which] - theta[0]) ** 2


DATA = np.random.default_rng(1).normal(1.0, 1.0, 400)
SHORT: dict[str, Any] = {"chains": 2, "iter_warmup": 100, "iter_sampling": 60, "seed": 1, "show_progress": False}


def factors() -> stansub.FunctionFactors:
    return stansub.FunctionFactors(["mu"], len(DATA), log_lik)


@pytest.fixture(scope="module")
def draws(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("drawn") / "draws.nc"
    stansub.write_draws(stansub.sample(factors(), **SHORT), path)
    return path


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kept") / "run.checkpoint"
    stansub.sample(factors(), checkpoint=path, **SHORT)
    return path


def test_a_checkpoint_that_is_called_a_netcdf_file(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(shutil.copy(kept, tmp_path / "draws.nc"))
    for command in READERS:
        assert "is a checkpoint or a database, not a NetCDF file" in refused(command, file, capsys=capsys)


def changed(kept: Path, path: Path, change: Any) -> Path:
    """A checkpoint in which something else stands, with digests that are right."""
    found = store.read(kept)
    change(found.document)
    store.Store(path).write(found)
    return path


def set_in(place: list[Any], value: Any) -> Any:
    def change(document: Any) -> None:
        for one in place[:-1]:
            document = document[one]
        document[place[-1]] = value

    return change


FACTS, STATE = ["facts", "object", 1], ["chains", "0", "state", "object", 1]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (["facts"], {"object": ["os:system", {"command": "touch mark"}]}),
        (["facts"], 3),
        (["adaptation"], {"object": ["os:system", {}]}),
        (["options"], {"dict": []}),
        (["options", "object", 1, "record"], []),
        (["options", "object", 1, "record"], {"dict": []}),
        (["chains"], {"a": {}}),
        (["chains"], []),
        (["chains", "0", "state"], {"object": ["builtins:exec", {}]}),
        (["chains", "0", "sampling"], [{"dict": [["theta", 3]]}]),
        (["chains", "0", "sampling"], []),
        (["seconds"], "long"),
        ([*FACTS, "seed"], "none"),
        ([*FACTS, "plan"], None),
        ([*FACTS, "rule"], {"tuple": []}),
        ([*FACTS, "found"], 3),
        ([*STATE, "state"], None),
        ([*STATE, "counters"], {"array": ["<i8", [0], "C", ""]}),
        ([*STATE, "adapter"], None),
        ([*STATE, "rng"], {"generator": ["PCG64", {"dict": []}]}),
        ([*STATE, "kernel"], {"special": ["_loop:DeciderState", {"tuple": [None] * 9}]}),
        ([*STATE, "kernel"], 3),
    ],
)
def test_a_checkpoint_that_was_made_up_is_damaged(kept: Path, tmp_path: Path, place: list[Any], value: Any) -> None:
    file = changed(kept, tmp_path / "run.checkpoint", set_in(place, value))
    with pytest.raises(InputError, match=r"is damaged|with other options"):
        stansub.sample(factors(), resume=file, **SHORT | {"iter_sampling": 70})


@pytest.mark.parametrize("values", [{"dict": [["chains", "two"]]}, {"dict": [["thin", []]]}, {"dict": [["", 1]]}])
def test_options_that_were_made_up_are_damaged(kept: Path, tmp_path: Path, values: Any) -> None:
    def change(document: Any) -> None:
        document["options"]["object"][1].update(values=values, record={"dict": []})

    with pytest.raises(InputError, match="is damaged"):
        stansub.read_checkpoint(changed(kept, tmp_path / "run.checkpoint", change))


def test_states_that_point_outside_the_data_are_refused(kept: Path, tmp_path: Path) -> None:
    """Blocks by numbers that there are not would be read from memory that belongs to something else."""
    array = np.array([10**9, -(10**9)], np.int32)
    digest = store.digest_of(array.tobytes())
    for part in (2, 4, 5, 6):
        other = store.read(kept)
        parts = other.document["chains"]["0"]["state"]["object"][1]["kernel"]["special"][1]["tuple"]
        parts[part] = {"array": ["<i4", [2], "C", digest]}
        file = tmp_path / f"{part}.checkpoint"
        store.Store(file).write(Encoded(other.document, {**other.arrays, digest: array.tobytes()}))
        with pytest.raises(InputError, match="is damaged"):
            stansub.sample(factors(), resume=file, **SHORT | {"iter_sampling": 70})


def test_a_file_from_this_version_resumes(kept: Path, tmp_path: Path) -> None:
    """The control: what is written again unchanged is no damage."""
    file = changed(kept, tmp_path / "run.checkpoint", lambda document: None)
    more = stansub.sample(factors(), resume=file, **SHORT | {"iter_sampling": 70})
    assert inference_data.group(more, "posterior").sizes["draw"] == 70


def with_attribute(draws: Path, path: Path, name: str, value: Any, group: str = "/") -> Path:
    import h5netcdf

    shutil.copy(draws, path)
    with h5netcdf.File(path, "a") as file:
        (file if group == "/" else file[group]).attrs[name] = value
    return path


BROKEN = ("{", "[1, 2", "[" * 50_000, "\udcff{")


@pytest.mark.parametrize("name", [*JSON_ATTRS, inference_data.LIST_ATTRS])
def test_broken_json_in_a_netcdf_file(draws: Path, tmp_path: Path, name: str) -> None:
    file = with_attribute(draws, tmp_path / "draws.nc", name, BROKEN[0])
    with pytest.raises(InputError, match=r"draws\.nc.*damaged"):
        inference_data.read(file)


@pytest.mark.parametrize(
    "value",
    [pytest.param(one, id=str(n), marks=[pytest.mark.slow] if n % 2 else []) for n, one in enumerate(BROKEN)],
)
def test_commands_tell_broken_json_in_one_line(
    draws: Path, tmp_path: Path, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = with_attribute(draws, tmp_path / "draws.nc", "settings", value.encode(errors="replace").decode())
    for command in READERS:
        error = refused(command, file, capsys=capsys)
        assert "draws.nc" in error
        assert "damaged" in error


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**20) | st.floats() | st.sampled_from(["", "exact", "$\\x$", "../a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=4,
)
OTHERS = ("stopped", "warnings", "data_file", "data_hash", "model_hash", "left_out")
NAMES = [*sorted(Facts.__annotations__), *OTHERS]


def check_facts(draws: Path, folder: Path, name: str, value: Any) -> None:
    """A file with one other fact is refused, or its summary and pictures are made."""
    made = [json.dumps(value)] if name in JSON_ATTRS else [json.dumps(value), value]
    for one in made:
        if type(one) not in (str, float, int) or (isinstance(one, int) and abs(one) >= 2**63):
            continue  # NetCDF has no such attributes
        try:
            idata = inference_data.read(with_attribute(draws, folder / "draws.nc", name, one))
        except InputError:
            continue
        summary.render(idata, Console(file=io.StringIO()), verbose=True)
        plots.trace(idata, folder / "trace.png")
        if plots.records_share(idata):
            plots.share_of_data(idata, folder / "data.png")


@pytest.mark.usefixtures("pictures_drawn")
@settings(max_examples=3)
@given(st.sampled_from(NAMES), ANYTHING)
def test_whatever_a_fact_is(draws: Path, tmp_path: Path, name: str, value: Any) -> None:
    check_facts(draws, tmp_path, name, value)


@pytest.mark.slow
@pytest.mark.usefixtures("pictures_drawn")
@settings(max_examples=1000)
@given(st.sampled_from(NAMES), ANYTHING)
def test_whatever_a_fact_is_a_thousand_times(draws: Path, tmp_path: Path, name: str, value: Any) -> None:
    check_facts(draws, tmp_path, name, value)


class TestDraws:
    def test_no_statistics(self, draws: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        tree = inference_data.load(draws)
        del tree["sample_stats"]
        inference_data.write(tree, tmp_path / "draws.nc")
        assert run("plot", tmp_path / "draws.nc", capsys=capsys) == (0, "")
        assert sorted(one.name for one in tmp_path.iterdir()) == ["draws.nc", "draws_trace.png"]
        assert run("summary", tmp_path / "draws.nc", capsys=capsys)[0] == 0

    @pytest.mark.usefixtures("pictures_drawn")
    @pytest.mark.parametrize(
        "size", [1e308, *(pytest.param(one, marks=pytest.mark.slow) for one in (-1e308, np.inf)), np.nan]
    )
    def test_draws_at_the_end_of_the_numbers(
        self, draws: Path, tmp_path: Path, size: float, capsys: pytest.CaptureFixture[str]
    ) -> None:
        tree = inference_data.load(draws)
        values = tree["posterior"]["mu"].values
        values[0, ::7], values[1, 3] = size, 1e308
        inference_data.write(tree, tmp_path / "draws.nc")
        for command in ("plot", "summary"):
            assert run(command, tmp_path / "draws.nc", capsys=capsys) == (0, "")

    @pytest.mark.parametrize(
        "counts",
        [
            pytest.param({"settings": ("chain", [1, 2])}, marks=pytest.mark.slow),
            {"n_steps": ("other", [])},
            {"n_audited": ("chain", [0, -(2**63)])},
            pytest.param({"n_accepted": ("one", [7])}, marks=pytest.mark.slow),
        ],
    )
    def test_counts_of_chains_that_are_none(
        self, draws: Path, tmp_path: Path, counts: dict[str, Any], capsys: pytest.CaptureFixture[str]
    ) -> None:
        tree = inference_data.load(draws)
        kept = tree["chain_stats"].to_dataset()
        tree["chain_stats"] = stansub_tree(kept.drop_vars(list(set(counts) & set(kept))).assign(counts))
        inference_data.write(tree, tmp_path / "draws.nc")
        for command in READERS:
            error = refused(command, tmp_path / "draws.nc", capsys=capsys)
            assert f"damaged: `{next(iter(counts))}` has an unexpected value" in error

    def test_a_dimension_of_two_sizes(self, draws: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        import h5py

        shutil.copy(draws, tmp_path / "draws.nc")
        with h5py.File(tmp_path / "draws.nc", "r+") as file:
            shape = file["posterior/mu"].shape
            del file["posterior/mu"]
            file["posterior/mu"] = np.zeros((*shape, 1, 1))
        for command in READERS:
            assert "draws.nc: not a NetCDF file, or damaged" in refused(command, tmp_path / "draws.nc", capsys=capsys)

    @pytest.mark.parametrize("command", READERS)
    def test_what_is_no_file(self, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
        os.mkfifo(tmp_path / "fifo")
        assert "a folder; name a file in it" in refused(command, tmp_path, capsys=capsys)
        assert "no such file" in refused(command, tmp_path / "none.nc", capsys=capsys)
        assert "not a regular file" in refused(command, tmp_path / "fifo", capsys=capsys)

    def test_variables_that_are_no_draws(self, draws: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        tree = inference_data.load(draws)
        posterior = tree["posterior"].to_dataset()
        tree["posterior"] = stansub_tree(posterior.assign(other=("draw", np.zeros(posterior.sizes["draw"]))))
        inference_data.write(tree, tmp_path / "draws.nc")
        for command in READERS:
            error = refused(command, tmp_path / "draws.nc", capsys=capsys)
            assert "other is not an array of chains and draws" in error


def stansub_tree(dataset: Any) -> Any:
    import xarray

    return xarray.DataTree(dataset)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 100,
        b"{",
        b"[]",
        b'{"N": [}',
        b"\x1f\x8b" + bytes(30),
        b'{"N": 1e999, "y": [1], "sigma": 1}',
        b'{"N": 2, "y": {"a": 1}, "sigma": 1}',
        b'{"N": "2", "y": [1, 2], "sigma": 1}',
        b'{"N": 2, "y": [[1, 2], [3]], "sigma": 1}',
        b'{"N": -2, "y": [], "sigma": 1}',
        b'{"N": 2, "y": [1, 2], "sigma": "\\u0000"}',
        b"[" * 100_000,
        b'{"y":' * 50_000,
        b"\xff\xfe{",
        b"\x89HDF\r\n\x1a\n" + bytes(100),
        b"stansub checkpoint 3\n" + bytes(100),
        pickle.dumps({"N": 2}),
    ],
)
def test_data_of_any_content(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data.json"
    data.write_bytes(content)
    target = ["--output", tmp_path / "draws.nc", "--quiet"]
    refused("sample", EXAMPLES / "normal_mean.stan", data, *target, capsys=capsys)
    assert [one.name for one in tmp_path.iterdir()] == ["data.json"]
