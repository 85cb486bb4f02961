"""References in files: used again where they fit, refused where they do not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy import CODE, TOY, data

from stansub.errors import InputError
from stansub.nuts import reference_cache
from stansub.nuts.base import Program
from stansub.output import inference_data

pytestmark = pytest.mark.usefixtures("cmdstan")

QUICK: dict[str, Any] = {"chains": 2, "iter_warmup": 5, "iter_sampling": 8, "seed": 4}
OTHER = Program("toy", CODE.replace("normal(0, 1)", "normal(0, 2)"))


def obtain(program: Program = TOY, n: int = 4, *, force: bool = False, **options: Any) -> reference_cache.Stored:
    return reference_cache.obtain(program, data(n), path="toy_reference.nc", force=force, **options)


@pytest.fixture(autouse=True)
def made(cmdstan: Path, place: Path) -> reference_cache.Stored:
    return obtain(**QUICK)


def test_the_default_name_tells_the_model(made: reference_cache.Stored) -> None:
    assert reference_cache.default_path("toy") == made.path == Path("toy_reference.nc")
    assert reference_cache.default_path("toy", "folder") == Path("folder/toy_reference.nc")
    assert made.made


@pytest.mark.parametrize("options", [{}, QUICK, {"seed": 4}, {"engine": "cmdstan"}, {"parallel_chains": 1}])
def test_one_that_fits_is_used_again(options: dict[str, Any], made: reference_cache.Stored) -> None:
    stamp = made.path.stat().st_mtime_ns
    again = obtain(**options)
    assert not again.made
    assert made.path.stat().st_mtime_ns == stamp
    before, after = (inference_data.group(one.draws, "posterior")["omega"].values for one in (made, again))
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"program": OTHER}, "contains a reference with a different model; use `force=True`"),
        ({"n": 5}, "contains a reference with different data; use `force=True`"),
        ({"chains": 3}, "with chains 2, not 3; use `force=True`"),
        ({"seed": 5, "adapt_delta": 0.9}, "with seed 4, not 5, adapt_delta 0.8, not 0.9; use `force=True`"),
        ({"engine": "nutpie"}, "with engine cmdstan, not nutpie; use `force=True`"),
        ({"reference_model": OTHER}, "with a different `reference_model`; use `force=True`"),
    ],
)
def test_one_that_does_not_fit_is_refused(options: dict[str, Any], message: str, made: reference_cache.Stored) -> None:
    before = made.path.read_bytes()
    with pytest.raises(InputError, match=message):
        obtain(**options)
    assert made.path.read_bytes() == before


def test_force_runs_again(made: reference_cache.Stored) -> None:
    again = obtain(n=5, force=True, **{**QUICK, "chains": 3})
    assert again.made
    assert inference_data.group(inference_data.read(made.path), "posterior").sizes["chain"] == 3


def test_other_files_are_not_taken_for_references(made: reference_cache.Stored) -> None:
    made.path.write_text("no NetCDF")
    with pytest.raises(InputError, match="not a NetCDF file, or damaged; use `force=True`"):
        obtain()
    draws = {"mu": np.zeros((2, 5))}
    sampled = inference_data.build(posterior=draws, sample_stats=draws, attrs={"model": "toy"})
    inference_data.write(sampled, made.path, overwrite=True)
    with pytest.raises(InputError, match="already exists and is not a reference; use `force=True`"):
        obtain()


def test_a_folder_that_is_missing_is_told_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_cache, "reference", lambda *args, **options: pytest.fail("sampled"))
    with pytest.raises(InputError, match="does not exist"):
        reference_cache.obtain(TOY, data(), path="nowhere/toy_reference.nc")


def test_nothing_is_found_where_there_is_nothing() -> None:
    assert reference_cache.find("none.nc", model_hash="", data_hash="") is None


class TestForeign:
    """Draws that others wrote."""

    def test_any_file_in_the_schema_will_do_where_that_is_asked_for(self) -> None:
        import xarray

        draws = xarray.Dataset({"mu": (("chain", "draw"), np.arange(6.0).reshape(2, 3))})
        draws.to_netcdf("other.nc", group="posterior", engine="h5netcdf", mode="w")
        xarray.Dataset({"big": ("row", np.zeros(5))}).to_netcdf(
            "other.nc", group="constant_data", engine="h5netcdf", mode="a"
        )
        read = inference_data.read("other.nc", foreign=True)
        assert inference_data.groups(read) == ("posterior",)
        np.testing.assert_array_equal(inference_data.group(read, "posterior")["mu"].values, draws["mu"].values)
        assert "reference_for" not in inference_data.attrs(read)
        with pytest.raises(InputError, match="not written by stansub"):
            inference_data.read("other.nc")

    def test_draws_without_chains_are_refused(self) -> None:
        import xarray

        flat = xarray.Dataset({"mu": ("draw", np.zeros(3))})
        flat.to_netcdf("flat.nc", group="posterior", engine="h5netcdf", mode="w")
        with pytest.raises(InputError, match="lacks the dimensions chain and draw"):
            inference_data.read("flat.nc", foreign=True)
