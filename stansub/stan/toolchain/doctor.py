"""`stansub doctor`: what compiling needs, and the compiled programs in the cache."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stansub.errors import StansubError
from stansub.stan.toolchain.bridgestan_home import find_home
from stansub.stan.toolchain.build import remove_abandoned
from stansub.stan.toolchain.cache import cache_dir, cache_errors, is_damaged, make_folder
from stansub.stan.toolchain.compiler import INSTALL, compiler, first_line, make, processor
from stansub.stan.toolchain.download import bridgestan_version, failed_download


@dataclass(frozen=True)
class Check:
    """One check of ``stansub doctor``."""

    name: str
    ok: bool
    value: str
    """Result."""
    remedy: str = ""
    is_needed: bool = True
    """Whether stansub needs it: compiling works without what failed but is not needed."""


def examine() -> list[Check]:
    """Return what compiling needs, with remedies for missing parts. Makes the home if there is none."""
    return [*_tool_checks(), *_home_checks(), *_cache_checks(), _processor_check()]


def _problem(name: str, error: StansubError) -> Check:
    """Return an error as a failed check; the text after the semicolon is the remedy."""
    what, _, remedy = str(error).rpartition("; ")
    return Check(name, False, what, remedy)


def _tool_checks() -> list[Check]:
    checks = []
    for name, program in (("C++ compiler", compiler()), ("make", make())):
        version = first_line(program)
        checks.append(Check(name, True, version) if version else Check(name, False, f"{program} does not run", INSTALL))
    return checks


def _home_checks() -> list[Check]:
    checks = [Check("bridgestan", True, bridgestan_version())]
    try:
        home = find_home()
    except StansubError as error:
        return [*checks, _problem("BridgeStan home", error)]
    reason = failed_download(cache_dir())
    origin = {"BRIDGESTAN": "from BRIDGESTAN", "made": "built from the httpstan package"}.get(home.origin, "downloaded")
    stanc = first_line(shlex.quote(str(home.stanc)))
    checks += [
        Check("BridgeStan home", True, f"{home.path} ({origin}, version {home.version})"),
        Check("Stan", True, home.stan_version),
        Check("stanc", bool(stanc), stanc or f"{home.stanc} does not run", "" if stanc else "reinstall httpstan"),
    ]
    if home.origin == "made" and reason:
        value = f"failed, but not needed with this home; next attempt after a day ({reason})"
        checks.append(Check("BridgeStan download", False, value, is_needed=False))
    return checks


def _cache_checks() -> list[Check]:
    elsewhere = "set STANSUB_CACHE to a writable folder with free space"
    try:
        cache = cache_dir()
    except StansubError as error:
        return [_problem("cache", error)]
    try:
        make_folder(cache)
        free = shutil.disk_usage(cache).free
    except OSError as error:
        return [Check("cache", False, f"{cache}: {error.strerror}", elsewhere)]
    value = f"{cache}, {_size([cache])}, {free / 1e9:.1f} GB free on the disk"
    if not os.access(cache, os.W_OK):
        return [Check("cache", False, f"{value}, not writable", elsewhere), _kept_check(cache)]
    return [Check("cache", free > 2e8, value, "" if free > 2e8 else elsewhere), _kept_check(cache)]


def _kept_check(cache: Path) -> Check:
    """Return the check of the compiled programs in the cache, each compared with its digest."""
    programs = sorted((cache / "libraries").glob("*.so"))
    damaged = [file.name for file in (*programs, *(cache / "api").glob("*.o")) if is_damaged(file)]
    value = f"{len(programs)}, {_size(programs)}"
    if damaged:
        remedy = "stansub compiles them again when needed; if this recurs, check the disk"
        return Check("compiled programs", False, f"{value}, {len(damaged)} damaged ({', '.join(damaged)})", remedy)
    return Check("compiled programs", True, f"{value}, none damaged (`stansub doctor --clear` removes them)")


def clear() -> str:
    """Remove all compiled programs from the cache; return a sentence on what was removed.

    Programs in use keep running, and compilations are unaffected.

    Raises `InputError` or `RunError` if a file cannot be removed.
    """
    cache = cache_dir()
    kept = [cache / name for name in ("libraries", "api", "cmdstan", "headers", "signatures")]
    count = len(list(kept[0].glob("*.so"))) + sum(1 for file in kept[2].glob("*/*.stan"))
    removed = f"Removed the compiled programs in {cache}: {count}, {_size(kept)}"
    with cache_errors(cache):
        for folder in kept:
            if folder.is_dir():
                shutil.rmtree(folder)
        if (cache / "build").is_dir():
            remove_abandoned(cache)
    return removed


def _size(places: Sequence[Path]) -> str:
    """Return the size of files and of the contents of folders."""
    size = 0
    for place in places:
        for file in (place, *place.rglob("*")):
            with suppress(OSError):  # removed meanwhile
                facts = file.lstat()
                size += 0 if stat.S_ISDIR(facts.st_mode) else facts.st_size
    return f"{size / 1e6:.0f} MB" if size >= 1e7 else f"{size / 1e6:.1f} MB"


def _processor_check() -> Check:
    name, features = processor()
    wide = [feature for feature in ("avx2", "fma", "avx512f") if feature in features.split()]
    return Check("processor", True, f"{name}, {os.cpu_count()} cores{', ' if wide else ''}{' '.join(wide)}")
