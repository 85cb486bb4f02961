"""Who may write to the cache, and what is kept in it."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from stansub.errors import RunError
from stansub.stan import cache
from stansub.stan.cache import cache_dir, is_damaged, is_intact, keep, make_folder


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A file that was kept."""
    (tmp_path / "made").write_bytes(bytes(range(256)) * 100)
    keep(tmp_path / "made", tmp_path / "kept.so")
    return tmp_path / "kept.so"


def truncate(file: Path) -> None:
    os.truncate(file, 5000)


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[12345] ^= 4
    file.write_bytes(content)


def test_a_kept_file_is_intact_and_sha256sum_agrees(kept: Path) -> None:
    assert is_intact(kept)
    assert not is_damaged(kept)
    assert sorted(file.name for file in kept.parent.iterdir()) == ["kept.so", "kept.so.sha256"]
    note = kept.with_name("kept.so.sha256").read_text()
    told = subprocess.run(["sha256sum", kept.name], cwd=kept.parent, capture_output=True, text=True, check=True)
    assert note == told.stdout


@pytest.mark.parametrize("harm", [truncate, flip, lambda file: file.with_name(f"{file.name}.sha256").write_bytes(b"")])
def test_damage_is_seen(kept, harm):
    harm(kept)
    assert not is_intact(kept)
    assert is_damaged(kept)


def test_a_file_without_a_digest_is_neither_intact_nor_damaged(kept: Path) -> None:
    kept.with_name("kept.so.sha256").unlink()
    assert not is_intact(kept)
    assert not is_damaged(kept)


def test_a_file_that_others_could_have_written_is_not_intact(kept, monkeypatch):
    kept.chmod(0o757)
    assert not is_intact(kept)
    kept.chmod(0o755)
    assert is_intact(kept)
    monkeypatch.setattr(cache, "_is_trusted", lambda facts: False)
    assert not is_intact(kept)


@pytest.mark.parametrize("inner", [".", "libraries", "api", "build"])
def test_a_cache_that_others_can_write_to_is_refused(own_cache, inner):
    make_folder(own_cache / inner)
    assert cache_dir() == own_cache
    (own_cache / inner).chmod(0o757)
    with pytest.raises(RunError, match=r"other users can write .*chmod go-w .*STANSUB_CACHE to a folder of your own"):
        cache_dir()
    (own_cache / inner).chmod(0o755)
    assert cache_dir() == own_cache


def test_a_cache_of_another_user_is_refused_unless_the_superuser(own_cache, monkeypatch):
    make_folder(own_cache)
    owner = own_cache.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:
        assert cache_dir() == own_cache
        os.chown(own_cache, 4321, -1)
    with pytest.raises(RunError, match="belongs to another user"):
        cache_dir()


def test_a_group_may_write_that_has_no_other_members(own_cache, monkeypatch):
    make_folder(own_cache)
    own_cache.chmod(0o775)
    monkeypatch.setattr(cache, "_is_private_group", lambda gid, uid: True)
    assert cache_dir() == own_cache
    monkeypatch.setattr(cache, "_is_private_group", lambda gid, uid: False)
    with pytest.raises(RunError, match="other users can write"):
        cache_dir()


def test_a_private_group_has_its_users_name_and_no_other_members(monkeypatch):
    def system(*, primary: int = 7, name: str = "ann", members: tuple[str, ...] = ()) -> bool:
        monkeypatch.setattr("pwd.getpwuid", lambda uid: type("User", (), {"pw_gid": primary, "pw_name": "ann"}))
        monkeypatch.setattr("grp.getgrgid", lambda gid: type("Group", (), {"gr_name": name, "gr_mem": list(members)}))
        return cache._is_private_group(7, 1000)

    assert system()
    assert system(members=("ann",))
    assert not system(members=("ann", "bob"))
    assert not system(name="staff")
    assert not system(primary=8)


def test_a_folder_in_one_that_all_can_write_to_is_fine(tmp_path, monkeypatch):
    (tmp_path / "like-tmp").mkdir()
    (tmp_path / "like-tmp").chmod(0o1777)
    monkeypatch.setenv("STANSUB_CACHE", str(tmp_path / "like-tmp/cache"))
    make_folder(cache_dir())
    assert cache_dir().is_dir()


def test_folders_and_files_are_made_for_their_owner_whatever_the_umask(own_cache):
    before = os.umask(0)
    try:
        make_folder(own_cache / "libraries")
        (own_cache / "made").touch(0o777)
    finally:
        os.umask(before)
    keep(own_cache / "made", own_cache / "libraries/kept.so")
    for place in (own_cache, own_cache / "libraries", own_cache / "libraries/kept.so"):
        assert stat.S_IMODE(place.stat().st_mode) & 0o022 == 0
    assert cache_dir() == own_cache
