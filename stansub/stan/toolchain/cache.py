"""The cache directory: its location, permissions, and files stored in it with a digest.

Cached libraries are loaded into the process, where a damaged file causes a crash and a planted one runs its author's
code. Others must therefore not be able to write to the folder, and a file is used only if its digest matches.
"""

from __future__ import annotations

import errno
import grp
import hashlib
import os
import pwd
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from stansub.errors import InputError, RunError

FOLDERS = ("libraries", "api", "headers", "signatures", "locks", "build")
_UNFIT = re.compile(r"[^\w/.+~@-]")
_SUFFIX = ".sha256"
# Errors of a disk, which come and go while stansub runs; others show that the folder is the wrong one.
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def cache_dir() -> Path:
    """Return the folder for homes and libraries: ``STANSUB_CACHE``, or the user's cache directory.

    Raises `InputError` if its name has characters that make and the linker cannot handle, it is a file, or other users
    can write to it.
    """
    chosen = os.environ.get("STANSUB_CACHE")
    cache = Path(chosen).absolute() if chosen else platformdirs.user_cache_path("stansub")
    if _UNFIT.search(str(cache)):
        raise InputError(
            f"the path of the cache directory {cache} contains a space or another character that make cannot handle; "
            "set STANSUB_CACHE to a folder without such characters"
        )
    above = next(place for place in (cache, *cache.parents) if place.exists())
    if not above.is_dir():
        raise InputError(f"{cache} cannot be the cache directory: {above} is a file; set STANSUB_CACHE to a folder")
    for folder in (cache, *(cache / name for name in FOLDERS)):
        require_private(folder)
    for path in dict.fromkeys((cache, cache.resolve())):
        _require_own_place(path)
    return cache


def require_private(folder: Path) -> None:
    """Raise InputError if anyone but the user or the superuser can change a cache folder, if it exists."""
    try:
        facts = folder.stat()
    except OSError:
        return  # missing, or an error where it is used
    if not _is_trusted(facts):
        raise InputError(
            f"the cache directory {folder} belongs to another user, who could replace the compiled programs in it; "
            "set STANSUB_CACHE to a folder of your own"
        )
    if _others_write(facts):
        raise InputError(
            f"other users can write to the cache directory {folder} and replace the compiled programs in it; "
            f"run `chmod go-w {folder}`, or set STANSUB_CACHE to a folder of your own"
        )


def _require_own_place(cache: Path) -> None:
    """Raise an error if others can replace a folder, or one above it, by their own."""
    for folder, inner in zip(cache.parents, (cache, *cache.parents), strict=False):
        try:
            facts, within = folder.stat(), inner.lstat() if os.path.lexists(inner) else None
        except OSError:
            continue  # missing, or an error where it is used
        # In a sticky folder such as /tmp, only the owner of an entry can rename or remove it.
        is_kept = facts.st_mode & stat.S_ISVTX and (within is None or _is_trusted(within))
        if _others_write(facts) and not is_kept:
            raise InputError(
                f"other users can write to {folder} and replace the cache directory {cache} in it; run `chmod go-w "
                f"{folder}`, or set STANSUB_CACHE to a folder of your own"
            )


def _is_trusted(facts: os.stat_result) -> bool:
    """Return whether a file or folder belongs to the user or the superuser."""
    return facts.st_uid in (0, os.geteuid())


def _others_write(facts: os.stat_result) -> bool:
    """Return whether its mode lets others write, except a group without members but its owner."""
    if facts.st_mode & stat.S_IWOTH:
        return True
    return bool(facts.st_mode & stat.S_IWGRP) and not _is_private_group(facts.st_gid, facts.st_uid)


def _is_private_group(gid: int, uid: int) -> bool:
    """Return whether a group is the private group that many systems create for each user."""
    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and user.pw_name == group.gr_name and set(group.gr_mem) <= {user.pw_name}


@contextmanager
def cache_errors(folder: Path) -> Iterator[None]:
    """Turn a failure to write under the cache directory into a one-line error.

    Raises `InputError` if the folder is read-only or similar; `RunError` if the disk is full or fails.
    """
    try:
        yield
    except OSError as error:
        kind = RunError if error.errno in _OF_THE_DISK else InputError
        raise kind(
            f"cannot write to the cache directory {folder}: {error.strerror or error}; set STANSUB_CACHE to a "
            "writable folder with free space"
        ) from error


def make_folder(folder: Path) -> None:
    """Create a folder, and those above it, for their owner alone, whatever the umask."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def is_ours(file: Path) -> bool:
    """Return whether a file exists that only the user or the superuser could have written."""
    try:
        facts = file.stat()
    except OSError:
        return False
    return _is_trusted(facts) and not _others_write(facts)


def keep(made: Path, place: Path) -> None:
    """Move a finished file to its place, then write its digest beside it, both atomically.

    The digest is in the format of ``sha256sum``.
    """
    made.chmod(0o755)
    note = made.with_name(made.name + _SUFFIX)
    note.write_text(f"{file_digest(made)}  {place.name}\n", encoding="ascii")
    note.chmod(0o644)
    made.replace(place)
    note.replace(_note(place))


def is_intact(place: Path) -> bool:
    """Return whether a file is as it was stored, and only the user or the superuser could have written it."""
    try:
        noted = _note(place).read_text(encoding="ascii", errors="replace")
        return is_ours(place) and noted == f"{file_digest(place)}  {place.name}\n"
    except OSError:
        return False


def is_damaged(place: Path) -> bool:
    """Return whether a file was stored but has changed since."""
    return place.is_file() and _note(place).is_file() and not is_intact(place)


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _note(place: Path) -> Path:
    return place.with_name(place.name + _SUFFIX)
