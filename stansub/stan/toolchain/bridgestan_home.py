"""Location of BridgeStan's sources: found, downloaded, or built from the content of Python wheels.

A BridgeStan *home* is a folder with a Makefile, the Stan headers and stanc. PyPI's ``bridgestan`` has none and
downloads one from its release page, which fails if only package registries can be reached. The ``httpstan`` wheel ships
everything but the Makefile and the C API. Both are part of this package (``cpp/``), so that a home can be made from
them.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock

from stansub.errors import InputError, RunError
from stansub.output import files
from stansub.stan.toolchain.cache import cache_dir, cache_errors, file_digest, is_ours, make_folder, require_private
from stansub.stan.toolchain.download import (
    bridgestan_version,
    downloads_folder,
    failed_download,
    fetch_stanc,
    is_complete,
    provide,
)

# The C++ sources of the package.
SOURCES = Path(__file__).parent / "cpp"
_MACRO = re.compile(r"#define\s+\w*_(MAJOR|MINOR|PATCH)\s+(\d+)")


@dataclass(frozen=True)
class Home:
    """A folder in which BridgeStan's build works."""

    path: Path
    """The folder, as ``bridgestan.set_bridgestan_path`` takes it."""
    origin: Literal["BRIDGESTAN", "bridgestan", "download", "made"]
    """Provider of the folder: the environment variable ``BRIDGESTAN``, an earlier download by the ``bridgestan``
    package, a new download, or this package (``"made"``).
    """
    version: str
    """Version of BridgeStan's C API."""
    stan_version: str
    stanc: Path
    """The Stan compiler that belongs to it."""
    identity: str
    """Hash of what a library compiled here depends on."""


def find_home() -> Home:
    """Find BridgeStan's sources, or make a home that replaces them.

    The order is: the environment variable ``BRIDGESTAN``; the folder in ``~/.bridgestan`` of the installed
    ``bridgestan`` package's version; a download of it, abandoned after a few seconds without a connection and then not
    tried again for a day; a home made from the ``httpstan`` package. The result is cached for the process.

    Raises
    ------
    InputError
        If ``BRIDGESTAN`` is not a usable home, or the cache directory cannot be used.
    RunError
        If there is none and none can be made.
    """
    return _find_home(os.environ.get("BRIDGESTAN", ""), cache_dir())


@functools.cache
def _find_home(chosen: str, cache: Path) -> Home:
    if chosen:
        return _chosen_home(Path(chosen))
    folder = downloads_folder() / f"bridgestan-{bridgestan_version()}"
    origin: Literal["bridgestan", "download"] = "bridgestan"
    if not is_complete(folder) and failed_download(cache) is None:
        origin = "download"
        provide(folder, cache)
    return _describe(folder, origin) if is_complete(folder) else _made_home(cache)


def _describe(path: Path, origin: Literal["BRIDGESTAN", "bridgestan", "download", "made"]) -> Home:
    stan = [path / "include/stan/version.hpp", path / "stan/src/stan/version.hpp"]
    stan_header = next((header for header in stan if header.is_file()), None)
    stanc = path / "bin" / "stanc"
    digest = hashlib.sha256(os.fsencode(path))
    sources = [path / "Makefile", path / "make/local", *sorted((path / "src").glob("*.[ch]*"))]
    for source in [*sources, *stan]:
        if source.is_file():
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
    if stanc.is_file():
        digest.update(str(stanc.stat().st_size).encode())
    return Home(
        path=path,
        origin=origin,
        version=_version_in(path / "src/version.hpp"),
        stan_version=_version_in(stan_header) if stan_header else "unknown",
        stanc=stanc,
        identity=digest.hexdigest(),
    )


def _version_in(header: Path) -> str:
    """Return the version in a header of ``#define X_MAJOR 1`` lines."""
    try:
        found = dict(_MACRO.findall(header.read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return "unknown"
    return ".".join(found.get(part, "?") for part in ("MAJOR", "MINOR", "PATCH")) if found else "unknown"


def _chosen_home(folder: Path) -> Home:
    folder = files.expanded(folder).absolute()
    if not (folder / "Makefile").is_file():
        raise InputError(
            f"BRIDGESTAN is set to {folder}, which contains no Makefile; set it to a folder with BridgeStan's "
            "sources, or unset it"
        )
    version, installed = _version_in(folder / "src/version.hpp"), bridgestan_version()
    if version.split(".")[:2] != installed.split(".")[:2]:
        raise InputError(
            f"BRIDGESTAN is set to {folder}, whose version is {version}, but the bridgestan package installed is "
            f"{installed}; install that version, or unset BRIDGESTAN"
        )
    reason = fetch_stanc(folder)
    if reason is not None:
        raise RunError(f"BRIDGESTAN is set to {folder}, which has no stanc: {reason}; run `make -C {folder} bin/stanc`")
    return _describe(folder, "BRIDGESTAN")


def _made_home(cache: Path) -> Home:
    """Return the home made from the ``httpstan`` package, after making it or updating its links."""
    spec = importlib.util.find_spec("httpstan")
    if spec is None or not spec.submodule_search_locations:
        raise RunError(
            "no BridgeStan sources: BRIDGESTAN is not set, the download failed, and the httpstan package is not "
            "installed; run `pip install httpstan`, or set BRIDGESTAN"
        )
    wheel = Path(spec.submodule_search_locations[0]).absolute()
    links = {
        "include": _locate(wheel, "include/stan/version.hpp").parents[1],
        "lib": _locate(wheel, "lib*/libtbb.*").parent,
        "bin/stanc": _locate(wheel, "stanc", "bin/stanc"),
    }
    _require_as_installed(wheel, [links["bin/stanc"], *sorted(links["lib"].glob("lib*"))])
    sources = {name: _source(name) for name in ("Makefile", "bridgestan.h", "bridgestan.cpp")}
    # The name is a hash of the content, not of the wheel's location. Environments with the same wheel share a home and
    # its libraries, and the links follow the environment that used it last.
    digest = hashlib.sha256(_wheel_identity(wheel, links["bin/stanc"]))
    digest.update(bridgestan_version().encode())
    for text in sources.values():
        digest.update(text)
    folder = cache / f"home-{digest.hexdigest()[:16]}"
    content: dict[str, bytes | Path] = {**_home_files(sources), **links}
    for place in (folder, folder / "src", folder / "bin"):
        require_private(place)

    def wrong() -> list[str]:
        return [name for name, one in content.items() if not _holds(folder / name, one)]

    with cache_errors(cache):
        if wrong():
            for place in (folder, folder / "src", folder / "bin"):
                make_folder(place)
            with FileLock(folder / "lock"):
                for name in wrong():
                    _replace(folder / name, content[name])
    return _describe(folder, "made")


def _require_as_installed(wheel: Path, files: Sequence[Path]) -> None:
    """Raise an error unless stanc and the libraries have the installer's digests: damaged ones crash."""
    try:
        record = importlib.metadata.distribution("httpstan").read_text("RECORD")
    except importlib.metadata.PackageNotFoundError:
        return
    record = f"\n{record or ''}"
    for file in files:
        _, found, rest = record.partition(f"\n{wheel.name}/{file.relative_to(wheel).as_posix()},sha256=")
        noted = rest[:64].partition(",")[0]
        if found and bytes.fromhex(file_digest(file)) != base64.urlsafe_b64decode(noted + "=="):
            raise RunError(
                f"{file} is damaged: it differs from the installed file; run `pip install --force-reinstall --no-deps "
                "httpstan`, or set BRIDGESTAN to BridgeStan's sources"
            )


def _locate(wheel: Path, *patterns: str) -> Path:
    """Return the first path in the wheel that matches."""
    found = next((path for pattern in patterns for path in sorted(wheel.glob(pattern))), None)
    if found is None:
        raise RunError(
            f"the httpstan package in {wheel} has no {patterns[0]}; reinstall it, or set BRIDGESTAN to a folder with "
            "BridgeStan's sources"
        )
    return found


def _source(name: str) -> bytes:
    return (SOURCES / name).read_bytes()


def _wheel_identity(wheel: Path, stanc: Path) -> bytes:
    try:
        package = importlib.metadata.distribution("httpstan")
        label = f"{package.version}\n{package.read_text('WHEEL')}"
    except importlib.metadata.PackageNotFoundError:
        label = str(wheel)
    return f"{label}\n{stanc.stat().st_size}".encode()


def _home_files(sources: dict[str, bytes]) -> dict[str, bytes]:
    """Return the contents, by name, of a made home's files other than links."""
    version = bridgestan_version().split(".")
    macros = "".join(
        f"#define BRIDGESTAN_{part} {re.match('[0-9]+', number)[0]}\n"  # type: ignore[index]
        for part, number in zip(("MAJOR", "MINOR", "PATCH"), version, strict=False)
    )
    files = {"Makefile": sources["Makefile"], "src/version.hpp": macros.encode()}
    return files | {f"src/{name}": text for name, text in sources.items() if name != "Makefile"}


def _holds(path: Path, content: bytes | Path) -> bool:
    """Return whether a file has some bytes, or a link has a target."""
    if isinstance(content, Path):
        return path.is_symlink() and Path(os.readlink(path)) == content
    return is_ours(path) and path.is_file() and path.read_bytes() == content


def _replace(path: Path, content: bytes | Path) -> None:
    """Create a file or link under another name and move it into place atomically."""
    scratch = path.with_name(path.name + ".new")
    scratch.unlink(missing_ok=True)
    if isinstance(content, Path):
        scratch.symlink_to(content)
    else:
        scratch.write_bytes(content)
        scratch.chmod(0o644)
    scratch.replace(path)
