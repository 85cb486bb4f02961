"""Data from Zarr groups: values by name, and files that are damaged or could run code."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stansub import InputError
from stansub.stan.data.formats import Values, opened

zarr = pytest.importorskip("zarr")

Y, X = np.arange(7), np.random.default_rng(1).standard_normal((7, 2))


def read(path: Path) -> dict[str, Any]:
    found = opened(path, path.name)
    assert isinstance(found, Values)
    return dict(found.by_name)


def write(store: Any, zarr_format: int) -> None:
    group = zarr.open_group(store, mode="w", zarr_format=zarr_format)
    group.create_array("y", data=Y, chunks=(3,))
    group.create_array("x", data=X, chunks=(4, 2))
    group.create_array("when", data=np.array(["2013-01-01"], "datetime64[ns]"))
    group.create_group("inner")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_arrays_of_numbers_by_name(zarr_format: int, tmp_path: Path) -> None:
    path = tmp_path / "data.zarr"
    write(path, zarr_format)
    found = read(path)
    assert sorted(found) == ["x", "y"]
    np.testing.assert_array_equal(found["y"], Y)
    np.testing.assert_array_equal(found["x"], X)


def test_in_a_zip_file(tmp_path: Path) -> None:
    path = tmp_path / "data.zarr.zip"
    with zarr.storage.ZipStore(path, mode="w") as store:
        write(store, 3)
    np.testing.assert_array_equal(read(path)["x"], X)


def test_a_single_array_is_called_like_its_file(tmp_path: Path) -> None:
    zarr.save_array(tmp_path / "y.zarr", Y)
    np.testing.assert_array_equal(read(tmp_path / "y.zarr")["y"], Y)


def test_shards(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "data.zarr", mode="w")
    group.create_array("x", data=X, chunks=(2, 2), shards=(8, 2))
    np.testing.assert_array_equal(read(tmp_path / "data.zarr")["x"], X)


class Payload:
    """Unpickling it leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("place", ["filters", "compressor"])
def test_a_codec_that_runs_code_is_refused(place: str, tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "data.zarr", mode="w", zarr_format=2)
    group.create_array("y", data=Y)
    described = tmp_path / "data.zarr" / "y" / ".zarray"
    delta, hostile = {"id": "delta", "dtype": "<i8", "astype": "<i8"}, {"id": "pickle", "protocol": 5}
    metadata = json.loads(described.read_text())
    metadata |= {"compressor": None, "filters": [delta, hostile]} if place == "filters" else {"compressor": hostile}
    described.write_text(json.dumps(metadata))
    (tmp_path / "data.zarr" / "y" / "0").write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    with pytest.raises(InputError, match=r"data\.zarr: .*pickle"):
        read(tmp_path / "data.zarr")
    assert not (tmp_path / "ran").exists()


def test_codecs_that_are_not_on_the_list_are_refused(tmp_path: Path) -> None:
    from numcodecs import Base64

    group = zarr.open_group(tmp_path / "data.zarr", mode="w", zarr_format=2)
    group.create_array("y", data=Y, filters=[Base64()])
    with pytest.raises(InputError, match="array 'y' is stored by the codec 'base64', which stansub does not use"):
        read(tmp_path / "data.zarr")


def test_damage_is_one_line(tmp_path: Path) -> None:
    write(tmp_path / "data.zarr", 3)
    for chunk in (tmp_path / "data.zarr" / "x" / "c").rglob("0"):
        if chunk.is_file():
            chunk.write_bytes(chunk.read_bytes()[:-5])
    with pytest.raises(InputError, match="cannot read the Zarr file") as error:
        read(tmp_path / "data.zarr")
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "none.zarr")
    (tmp_path / "data.zarr.zip").write_bytes(b"PK")
    with pytest.raises(InputError, match="cannot read the Zarr file"):
        read(tmp_path / "data.zarr.zip")
