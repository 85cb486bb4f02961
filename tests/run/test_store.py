"""The file of a checkpoint: whole at every moment, and nothing that was changed in it goes unnoticed."""

import importlib
import inspect
import os
import pkgutil
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stansub
from stansub import InputError, cli
from stansub.codec import Encoded, name_of
from stansub.kernels.proposals import BuiltIn
from stansub.run import store
from stansub.run.checkpoint_types import CODEC
from stansub.run.store import Store, TakenOverError

HEAD = store._LENGTH


def value(number: int, n: int = 100) -> Encoded:
    """One array that stays the same, and one that does not."""
    return CODEC.encode({"number": number, "all": np.arange(1000.0), "own": np.full(n, float(number))})


def number_in(path: Path) -> int:
    found = CODEC.decode(store.read(path))
    np.testing.assert_array_equal(found["all"], np.arange(1000.0))
    assert (found["own"] == found["number"]).all()
    return int(found["number"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.checkpoint"


def test_checkpoints_may_hold_every_proposal_of_the_package() -> None:
    for module in pkgutil.walk_packages(stansub.__path__, "stansub."):
        if module.name.startswith(("stansub.kernels", "stansub.tuning")):
            importlib.import_module(module.name)

    def of(kind: type) -> Iterator[type]:
        for one in kind.__subclasses__():
            if one.__module__.startswith("stansub.") and not inspect.isabstract(one):
                yield one
            yield from of(one)

    kinds = set(of(BuiltIn))
    assert len(kinds) > 8
    assert {name_of(kind) for kind in kinds} <= set(CODEC.known)


class TestStore:
    def test_an_array_that_stays_is_written_once(self, path: Path) -> None:
        kept = Store(path)
        kept.write(value(1))
        first = path.stat().st_size
        kept.write(value(2))
        assert number_in(path) == 2
        assert path.stat().st_size - first < 8000 < first

    def test_what_is_not_used_any_more_is_given_back(self, path: Path) -> None:
        kept, n = Store(path), 50_000
        for number in range(20):
            kept.write(value(number, n))
            assert path.stat().st_size < 3 * 8 * n + store._LITTLE + 20_000
            assert number_in(path) == number
        assert [one.name for one in path.parent.iterdir()] == [path.name]

    def test_a_process_that_dies_leaves_what_there_was(self, path: Path) -> None:
        """All that the file may be while the second value is written: its bytes in order, the head last."""
        kept = Store(path)
        kept.write(value(1))
        before = path.read_bytes()
        kept.write(value(2))
        after = path.read_bytes()
        for end in [*range(len(before), len(after), 97), len(after)]:
            path.write_bytes(before[:HEAD] + after[HEAD:end])
            assert number_in(path) == 1
        # What a dead process has left is written over.
        kept = Store(path)
        kept.write(value(3))
        assert number_in(path) == 3

    def test_a_reader_sees_one_value_while_the_next_are_written(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kept, part = Store(path), store._part
        kept.write(value(1, 100_000))

        def meanwhile(*given: Any) -> bytes:
            found = part(*given)
            for number in (2, 3, 4):  # the last of these take the file's place
                kept.write(value(number, 100_000))
            return found

        with monkeypatch.context() as patch:
            patch.setattr(store, "_part", meanwhile)
            assert number_in(path) == 1
        assert number_in(path) == 4

    def test_of_two_that_write_one_file_the_later_keeps_it(self, path: Path) -> None:
        first, second = Store(path), Store(path)
        first.write(value(1))
        second.write(value(2))
        for _ in range(2):
            with pytest.raises(TakenOverError):
                first.write(value(3))
        second.write(value(4))
        assert number_in(path) == 4

    def test_a_disk_that_is_full_leaves_the_last_value(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        kept = Store(path)
        kept.write(value(1))
        before = path.read_bytes()

        def full(file: Any) -> None:
            file.flush()
            raise OSError("No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(store, "_flush", full)
            with pytest.raises(OSError, match="No space left"):
                kept.write(value(2))
        assert number_in(path) == 1
        assert path.read_bytes() == before
        kept.write(value(3))
        assert number_in(path) == 3

    @pytest.mark.parametrize("anew", [False, True])
    def test_an_interrupt_at_the_last_moment_does_no_harm(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, anew: bool
    ) -> None:
        """The file has the next value, and the store has not noted it yet."""
        kept, flush, replace, n = Store(path), store._flush, os.replace, 0
        monkeypatch.setattr(store, "_LITTLE", -(10**9) if anew else 1 << 20)
        kept.write(value(1))

        def interrupted(file: Any) -> None:
            nonlocal n
            flush(file)
            n += 1
            if n == 2 and not anew:
                raise KeyboardInterrupt

        def replaced(part: Path, target: Path) -> None:
            replace(part, target)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(store, "_flush", interrupted)
            if anew:
                patch.setattr(store.os, "replace", replaced)
            with pytest.raises(KeyboardInterrupt):
                kept.write(value(2, 5))
        assert number_in(path) == 2
        for number in (3, 4):
            kept.write(value(number))
            assert number_in(path) == number

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_a_file_that_may_only_be_read_is_read(self, path: Path) -> None:
        Store(path).write(value(1))
        path.chmod(0o400)
        path.parent.chmod(0o500)
        try:
            assert number_in(path) == 1
        finally:
            path.parent.chmod(0o700)


class TestOthers:
    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"SQLite format 3\x00" + bytes(100), "is an SQLite database, the checkpoint format of earlier versions"),
            (b"stansub checkpoint 3\n" + bytes(100), "is a checkpoint of another version, or damaged"),
            (b"some text that is long enough" * 10, "is not a checkpoint"),
            (b"", "is damaged"),
            (b"stansub check", "is damaged"),
        ],
    )
    def test_another_file_is_refused(self, path: Path, content: bytes, reason: str) -> None:
        path.write_bytes(content)
        with pytest.raises(InputError, match=reason):
            store.read(path)

    @pytest.mark.parametrize(
        "root",
        [
            b"[]",
            b"{}",
            b"no JSON",
            b"\xff",
            b'{"value": 1, "places": [1]}',
            b'{"value": 1, "places": {"a": 1}}',
            b'{"value": 1, "places": {"a": [0, 1]}}',
            b'{"value": 1, "places": {"a": [-5, 1]}}',
            b'{"value": 1, "places": {"a": [1, -1]}}',
            b'{"value": 1, "places": {"a": ["1", 1]}}',
            b'{"value": 1, "places": {"a": [0, 1e99]}}',
            b'{"value": 1, "places": {"a": [0, 999999999999999999999999]}}',
            b"[" * 100_000,
            b"1" * 100_000,
        ],
    )
    def test_a_root_that_makes_no_sense_is_refused_whatever_its_digest(self, path: Path, root: bytes) -> None:
        head = store._Head(bytes(16), HEAD, len(root), store.digest_of(root)).packed()
        path.write_bytes(head + root)
        with pytest.raises(InputError, match="is damaged"):
            store.read(path)

    def test_arrays_take_no_more_memory_than_the_file(self, path: Path) -> None:
        body = bytes(range(200))
        places = {store.digest_of(body[k:]): [HEAD + k, 200 - k] for k in range(100)}
        root = store.json.dumps({"value": 1, "places": places}).encode()
        head = store._Head(bytes(16), HEAD + 200, len(root), store.digest_of(root)).packed()
        path.write_bytes(head + body + root)
        with pytest.raises(InputError, match="overlap"):
            store.read(path)


def log_lik(theta: Any, which: Any) -> Any:
    return -0.5 * (DATA[which] - theta[0]) ** 2


DATA = np.random.default_rng(1).normal(1.0, 1.0, 400)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A checkpoint of a run, with what earlier ones have left in the file."""
    file = tmp_path_factory.mktemp("run") / "run.checkpoint"
    factors = stansub.FunctionFactors(["mu"], len(DATA), log_lik, log_lik_gradient=slopes)
    options: Any = {"chains": 2, "iter_warmup": 100, "iter_sampling": 60, "seed": 1, "show_progress": False}
    stansub.sample(factors, checkpoint=file, checkpoint_every=1e-9, **options)
    return file.read_bytes()


def slopes(theta: Any, which: Any) -> Any:
    return (DATA[which] - theta[0])[:, np.newaxis]


def check_damage(content: bytes, folder: Path, n: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Flip bits and cut the file short: one line and exit code 2, or what is read is what was written."""
    rng, harmed = random.Random(n), folder / "harmed.checkpoint"
    harmed.write_bytes(content)
    whole, noticed = store.read(harmed), 0
    for k in range(n):
        if k % 4 == 3:
            changed = content[: rng.randrange(len(content))]
        else:
            place = rng.randrange(len(content)) if k % 4 else rng.randrange(HEAD)
            changed = bytearray(content)
            changed[place] ^= 1 << rng.randrange(8)
        harmed.write_bytes(changed)
        try:
            assert store.read(harmed) == whole, "bytes that nothing refers to"
            assert len(changed) == len(content), "a file that is cut short is noticed"
        except InputError:
            noticed += 1
            with pytest.raises(SystemExit) as ended:
                cli.main(["summary", str(harmed)])
            error = capsys.readouterr().err
            assert ended.value.code == 2, error
            assert error.count("\n") == 1
            assert "start a new run, or restore a copy" in error or "not a NetCDF file" in error, error
    assert noticed > n / 2


def test_damage_is_noticed(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_damage(content, tmp_path, 40, capsys)


@pytest.mark.slow
def test_damage_is_noticed_a_thousand_times(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_damage(content, tmp_path, 1000, capsys)


def test_what_was_written_is_read_whoever_replaces_the_file(path: Path) -> None:
    kept = Store(path)
    kept.write(value(1))
    arrays = dict(value(1).arrays)
    Store(path).write(value(2))
    assert {digest: kept.array(digest) for digest in arrays} == arrays
