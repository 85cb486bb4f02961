"""Who may write to the cache, and what is kept in it."""

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stansub.errors import InputError
from stansub.stan.toolchain import cache, download
from stansub.stan.toolchain.bridgestan_home import _find_home, find_home
from stansub.stan.toolchain.cache import cache_dir, is_damaged, is_intact, keep, make_folder
from stansub.stan.toolchain.doctor import examine


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
    with pytest.raises(InputError, match=r"other users can write .*chmod go-w .*STANSUB_CACHE to a folder of your own"):
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
    with pytest.raises(InputError, match="belongs to another user"):
        cache_dir()


def test_a_group_may_write_that_has_no_other_members(own_cache, monkeypatch):
    make_folder(own_cache)
    own_cache.chmod(0o775)
    monkeypatch.setattr(cache, "_is_private_group", lambda gid, uid: True)
    assert cache_dir() == own_cache
    monkeypatch.setattr(cache, "_is_private_group", lambda gid, uid: False)
    with pytest.raises(InputError, match="other users can write"):
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


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_cache_that_others_can_replace_is_refused(tmp_path, monkeypatch, levels, is_there):
    place = tmp_path / "a/b/c/cache"
    (place if is_there else place.parent).mkdir(parents=True)
    monkeypatch.setenv("STANSUB_CACHE", str(place))
    assert cache_dir() == place
    above = place.parents[levels - 1]
    above.chmod(0o777)
    with pytest.raises(InputError, match=f"write to {above} and replace the cache directory .*chmod go-w"):
        cache_dir()
    above.chmod(0o755)
    assert cache_dir() == place


def test_a_cache_that_others_can_replace_by_way_of_a_link_is_refused(tmp_path, monkeypatch):
    (tmp_path / "open/cache").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "open/cache")
    monkeypatch.setenv("STANSUB_CACHE", str(tmp_path / "link"))
    assert cache_dir() == tmp_path / "link"
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(InputError, match="other users can write to"):
        cache_dir()


def test_in_a_sticky_folder_what_lies_there_must_be_ours(tmp_path, monkeypatch):
    (tmp_path / "like-tmp/theirs/cache").mkdir(parents=True)
    (tmp_path / "like-tmp").chmod(0o1777)
    monkeypatch.setenv("STANSUB_CACHE", str(tmp_path / "like-tmp/theirs/cache"))
    assert cache_dir().is_dir()
    theirs = (tmp_path / "like-tmp/theirs").stat().st_ino
    monkeypatch.setattr(cache, "_is_trusted", lambda facts: facts.st_ino != theirs)
    with pytest.raises(InputError, match=r"other users can write to .*like-tmp and replace"):
        cache_dir()


@pytest.fixture
def open_umask() -> Iterator[None]:
    """New files that everybody can write to."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_home_is_made_for_its_owner_whatever_the_umask(own_cache, open_umask, monkeypatch):
    monkeypatch.setattr(download, "_download", lambda folder: "no network in tests")
    home = find_home().path
    written = [place for place in (home, *home.rglob("*")) if not place.is_symlink()]
    assert {place.name for place in written} >= {home.name, "src", "bin", "Makefile", "bridgestan.cpp"}
    assert all(stat.S_IMODE(place.stat().st_mode) & 0o022 == 0 or place.name == "lock" for place in written)


@pytest.mark.parametrize("inner", [".", "src", "bin"])
def test_a_home_that_others_can_write_to_is_refused(own_cache, monkeypatch, inner):
    monkeypatch.setattr(download, "_download", lambda folder: "no network in tests")
    home = find_home().path
    (home / inner).chmod(0o777)
    _find_home.cache_clear()
    with pytest.raises(InputError, match=r"other users can write .*chmod go-w"):
        find_home()
    checks = {check.name: check for check in examine()}
    assert not checks["BridgeStan home"].ok


def test_a_file_of_a_home_that_others_could_have_written_is_written_again(own_cache, monkeypatch):
    monkeypatch.setattr(download, "_download", lambda folder: "no network in tests")
    makefile = find_home().path / "Makefile"
    makefile.chmod(0o666)
    _find_home.cache_clear()
    find_home()
    assert stat.S_IMODE(makefile.stat().st_mode) == 0o644


def test_folders_and_files_are_made_for_their_owner_whatever_the_umask(own_cache, open_umask):
    make_folder(own_cache / "libraries")
    (own_cache / "made").touch(0o777)
    keep(own_cache / "made", own_cache / "libraries/kept.so")
    assert stat.S_IMODE((own_cache / "libraries").stat().st_mode) == 0o700
    for place in (own_cache, *own_cache.rglob("*")):
        assert stat.S_IMODE(place.stat().st_mode) & 0o022 == 0
    assert cache_dir() == own_cache
