"""Arrays of Zarr groups, in folders or zip files.

Zarr files name the codecs of their chunks, and some codecs run code when they decode (pickle). Only codecs on a list of
numerical and compressing ones are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stansub.errors import InputError
from stansub.stan.data.file_watch import WatchedFile, unchanged

if TYPE_CHECKING:
    from numpy.typing import NDArray

_COMPRESSORS = {"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"}
_FILTERS = {"bitround", "delta", "fixedscaleoffset", "packbits", "quantize", "shuffle"}
_LAYOUTS = {"adler32", "bytes", "crc32", "crc32c", "fletcher32", "sharding_indexed", "transpose"}
_CODECS = _COMPRESSORS | _FILTERS | _LAYOUTS


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of numbers in a group by name, or a single array by the name of its file.

    The path is a folder or zip file, as Zarr writes them (formats 2 and 3). Raises `InputError` if it is missing,
    damaged, or stored by a codec that is not on the list.
    """
    try:
        import zarr
        from zarr.storage import ZipStore
    except ImportError:
        raise InputError(f"{path}: reading Zarr files needs the package zarr: pip install zarr") from None
    if not path.exists():
        raise InputError(f"{path}: no such file")
    with unchanged([WatchedFile.of(path)]):
        try:
            opened = zarr.open(path if path.is_dir() else ZipStore(path, mode="r"), mode="r")
            arrays = {path.name.partition(".zarr")[0]: opened} if isinstance(opened, zarr.Array) else opened.arrays()
            return {name: one[...] for name, one in _of_numbers(dict(arrays), path).items()}
        except InputError:
            raise
        except Exception as error:  # any codec may raise any type
            raise InputError(f"{path}: cannot read the Zarr file: {error or type(error).__name__}") from error


def _of_numbers(arrays: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the arrays whose elements are numbers; InputError if one of them has a codec that is not on the list."""
    found = {name: one for name, one in arrays.items() if one.dtype.kind in "biuf"}
    for name, one in found.items():
        for codec in _codecs(one.metadata.to_dict()):
            if codec.removeprefix("numcodecs.") not in _CODECS:
                raise InputError(f"{path}: array {name!r} is stored by the codec {codec!r}, which stansub does not use")
    return found


def _codecs(metadata: Any) -> Iterator[str]:
    """Yield the names of all codecs in an array's metadata, those within others included."""
    listed = [metadata.get(key) for key in ("filters", "compressor", "codecs", "index_codecs")]
    for one in listed:
        for codec in one if isinstance(one, list | tuple) else [one]:
            if isinstance(codec, Mapping):
                yield str(codec.get("id", codec.get("name")))
                yield from _codecs(codec.get("configuration") or {})
