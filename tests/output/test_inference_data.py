import builtins
import importlib.metadata
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import h5netcdf
import numpy as np
import pytest
import xarray
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from synthetic import run

from stansub.errors import InputError
from stansub.output import inference_data
from stansub.output.checks import findings_of
from stansub.output.inference_data import attrs, build, group, groups, read, write
from stansub.output.record import record_of

ARVIZ_MAJOR = int(importlib.metadata.version("arviz").split(".")[0])


def full_run() -> Any:
    rng = np.random.default_rng(7)
    return run(
        posterior={"alpha": rng.normal(size=(2, 40)), "beta": rng.normal(size=(2, 40, 3))},
        sample_stats={"accepted": rng.random((2, 40)) < 0.5},
        chains=2,
        draws=40,
        warmup_posterior={"alpha": rng.normal(size=(2, 20))},
        warmup_sample_stats={"accepted": rng.random((2, 20)) < 0.5},
        unconstrained_posterior={"theta": rng.normal(size=(2, 40, 4))},
        log_likelihood={"y": rng.normal(size=(2, 40, 5))},
        observed_data={"y": rng.integers(0, 2, 5)},
        constant_data={"x": rng.normal(size=(5, 3)), "N": np.array(5)},
        dims={"beta": ["predictor"], "y": ["observation"], "x": ["observation", "predictor"]},
        coords={"predictor": ["age", "height", "weight"]},
        attrs={"settings": {"seed": 1, "thin": None, "inits": [0.5, 2]}, "interval": [1, 2], "quiet": True},
    )


def test_dimensions_are_named_and_labelled() -> None:
    idata = full_run()
    beta = group(idata, "posterior")["beta"]
    assert beta.dims == ("chain", "draw", "predictor")
    assert list(beta["predictor"].values) == ["age", "height", "weight"]
    assert beta["chain"].values[0] == 0
    assert beta["draw"].values[-1] == 39
    assert group(idata, "unconstrained_posterior")["theta"].dims == ("chain", "draw", "theta_dim_0")
    assert group(idata, "constant_data")["x"].dims == ("observation", "predictor")


def test_the_container_is_the_one_of_the_installed_arviz() -> None:
    tree = full_run()
    idata = inference_data.container(tree)
    assert type(idata).__name__ == ("DataTree" if ARVIZ_MAJOR >= 1 else "InferenceData")
    assert set(groups(idata)) == set(groups(tree))
    for name in groups(tree):
        xarray.testing.assert_identical(group(idata, name), group(tree, name))
    assert inference_data.attrs(idata) == inference_data.attrs(tree)


def test_another_process_may_import_arviz_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first import of a day replaces a file, which fails if another process has done so in between."""
    imported, failures = builtins.__import__, list[str]()

    def racing(name: str, *args: Any, **options: Any) -> Any:
        if name == "arviz" and not failures:
            failures.append(name)
            raise FileNotFoundError("daily_warning.tmp")
        return imported(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", racing)
    assert inference_data.arviz_module().__name__ == "arviz"
    assert failures


def test_a_shape_that_does_not_fit_its_dimensions_is_refused() -> None:
    with pytest.raises(ValueError, match="beta"):
        build(posterior={"beta": np.zeros((2, 5, 3))}, sample_stats={}, dims={"beta": ["a", "b"]}, attrs={})


def test_round_trip_keeps_every_group_value_type_and_attribute(tmp_path: Path) -> None:
    idata = full_run()
    write(idata, tmp_path / "draws.nc", overwrite=False)
    back = read(tmp_path / "draws.nc")
    assert set(groups(back)) == set(groups(idata))
    assert len(groups(back)) == 9
    for name in groups(idata):
        before, after = group(idata, name), group(back, name)
        xarray.testing.assert_equal(before, after)
        assert {v: before[v].dtype for v in before} == {v: after[v].dtype for v in after}
    assert attrs(back) == attrs(idata)
    assert type(back) is type(inference_data.container(idata))


NAMES = st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True)
NUMBERS = st.integers(-(2**62), 2**62) | st.floats()
LISTS = st.lists(st.integers(0, 2**62), max_size=4) | st.lists(st.floats(), max_size=4) | st.lists(st.booleans())
ATTRS = st.dictionaries(NAMES.map("own_{}".format), NUMBERS | st.text() | LISTS | st.none(), max_size=6)
DTYPES = st.sampled_from(["f8", "f4", "i8", "i4", "u1", "?"])


@st.composite
def variables(draw: st.DrawFn, chains: int, draws: int) -> dict[str, Any]:
    shapes = arrays.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3)
    values = shapes.flatmap(lambda shape: DTYPES.flatmap(lambda dtype: arrays.arrays(dtype, (chains, draws, *shape))))
    return draw(st.dictionaries(NAMES.map("v_{}".format), values, min_size=1, max_size=3))


RUNS = given(data=st.data(), chains=st.integers(1, 4), draws=st.integers(1, 5), more=ATTRS)


@RUNS
@settings(max_examples=3)
def test_every_attribute_and_variable_comes_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, chains: int, draws: int, more: dict[str, Any]
) -> None:
    comes_back(tmp_path_factory.mktemp("round"), data, chains, draws, more)


@pytest.mark.slow
@RUNS
@settings(max_examples=50)
def test_fifty_files_come_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, chains: int, draws: int, more: dict[str, Any]
) -> None:
    comes_back(tmp_path_factory.mktemp("round"), data, chains, draws, more)


def comes_back(folder: Path, data: st.DataObject, chains: int, draws: int, more: dict[str, Any]) -> None:
    idata = run(chains=chains, draws=draws, posterior=data.draw(variables(chains, draws)), attrs=more)
    path = folder / "draws.nc"
    write(idata, path)
    theirs = inference_data.arviz_module().from_netcdf(path)
    again = path.with_name("again.nc")
    write(theirs, again)
    for back in (read(again), theirs):
        assert repr(attrs(back)) == repr(attrs(idata))  # repr: NaN is not equal to itself
        for name in groups(idata):
            xarray.testing.assert_equal(group(idata, name), group(back, name))
            assert {v: a.dtype for v, a in group(back, name).items()} == {
                v: a.dtype for v, a in group(idata, name).items()
            }
    assert all(len(attrs(theirs)[name]) == chains for name in ("n_steps", "sampling_time"))
    for facts in (read(path).attrs, group(read(path), "sample_stats").attrs):
        assert {name: np.shape(facts[name]) for name, value in more.items() if isinstance(value, list)} == {
            name: (len(value),) for name, value in more.items() if isinstance(value, list)
        }


def test_one_chain_is_checked_as_before_it_was_written(tmp_path: Path) -> None:
    noise = {"test": "penalty", "noise": 1.0, "n_fallback": [3], "n_audited_estimates": [5], "audit_squares": [4.5]}
    idata = run(chains=1, attrs=noise)
    write(idata, tmp_path / "draws.nc")
    before = record_of(idata), findings_of(idata)
    for back in (read(tmp_path / "draws.nc"), inference_data.arviz_module().from_netcdf(tmp_path / "draws.nc")):
        assert (record_of(back), findings_of(back)) == before


@pytest.mark.parametrize("chains", [1, 3])
def test_files_of_earlier_versions_have_totals_among_their_attributes(tmp_path: Path, chains: int) -> None:
    now = run(chains=chains)
    totals = {name: values.values.tolist() for name, values in group(now, "chain_stats").data_vars.items()}
    stats, posterior = (
        {str(name): values.values for name, values in group(now, part).data_vars.items()}
        for part in ("sample_stats", "posterior")
    )
    facts = {name: value for name, value in attrs(now).items() if not name.startswith(("creat", "inference"))}
    earlier = inference_data.build(posterior=posterior, sample_stats=stats, attrs=facts | totals)
    write(earlier, tmp_path / "earlier.nc")
    write(now, tmp_path / "now.nc")
    back, new = read(tmp_path / "earlier.nc"), read(tmp_path / "now.nc")
    assert "chain_stats" not in groups(back)
    assert len(totals) == 11
    assert {name: attrs(back)[name] for name in totals} == {name: attrs(new)[name] for name in totals} == totals
    assert (record_of(back), findings_of(back)) == (record_of(new), findings_of(new))


def test_text_that_netcdf_cannot_hold_does_not_keep_draws_from_being_written(tmp_path: Path) -> None:
    idata = run(draws=4, attrs={"data_file": "/data/caf\udce9.json"})
    idata.attrs["warnings"] = "a\0b"
    write(idata, tmp_path / "draws.nc")
    facts = attrs(read(tmp_path / "draws.nc"))
    assert (facts["data_file"], facts["warnings"]) == (r"/data/caf\udce9.json", r"a\x00b")


def test_attributes_come_back_in_plain_python(tmp_path: Path) -> None:
    idata = run(chains=1, draws=10, attrs={"settings": {"seed": 1, "inits": [0.5, 2]}, "absent": None})
    write(idata, tmp_path / "draws.nc", overwrite=False)
    facts = attrs(read(tmp_path / "draws.nc"))
    assert facts["n_steps"] == [10]
    assert facts["settings"] == {"seed": 1, "inits": [0.5, 2]}
    assert facts["epsilon"] == 0.05
    assert "absent" not in facts
    json.dumps(facts)


def test_totals_stand_in_a_group_with_a_value_a_chain_and_the_schema_everywhere() -> None:
    idata = full_run()
    stats = group(idata, "chain_stats")
    assert stats["n_steps"].dims == ("chain",)
    assert stats["n_steps"].values.tolist() == attrs(idata)["n_steps"] == [40, 40]
    assert "n_steps" not in idata.attrs
    assert group(idata, "sample_stats").attrs["test"] == attrs(idata)["test"]
    for name in groups(idata):
        assert group(idata, name).attrs["inference_library"] == "stansub"


def test_arviz_reads_the_file_itself(tmp_path: Path) -> None:
    write(full_run(), tmp_path / "draws.nc", overwrite=False)
    idata = inference_data.arviz_module().from_netcdf(tmp_path / "draws.nc")
    xarray.testing.assert_equal(group(idata, "posterior"), group(full_run(), "posterior"))


def test_a_missing_group_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="log_likelihood"):
        group(run(draws=4), "log_likelihood")


def test_a_file_is_overwritten_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "draws.nc"
    path.write_text("precious")
    with pytest.raises(InputError, match="`overwrite=True`"):
        write(run(draws=4), path, overwrite=False)
    assert path.read_text() == "precious"
    write(run(draws=4), path, overwrite=True)
    assert "posterior" in groups(read(path))
    assert os.listdir(tmp_path) == ["draws.nc"]


@pytest.mark.parametrize("target", ["nowhere/draws.nc", "."])
def test_a_place_that_cannot_hold_the_file_is_refused(tmp_path: Path, target: str) -> None:
    with pytest.raises(InputError, match="folder"):
        write(run(draws=4), tmp_path / target, overwrite=True)


@pytest.mark.skipif(sys.platform == "win32", reason="limits the size of files as POSIX does")
def test_a_full_disk_is_one_error_and_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "draws.nc"
    path.write_text("precious")
    script = f"""
        import resource, signal, sys
        sys.path[:0] = {sys.path!r}
        from synthetic import run
        from stansub.errors import RunError
        from stansub.output.inference_data import write
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        try:
            write(run(), {str(path)!r}, overwrite=True)
        except RunError as err:
            print(err)
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "could not write" in done.stdout
    assert path.read_text() == "precious"
    assert os.listdir(tmp_path) == ["draws.nc"]


def test_files_that_hold_no_draws_of_ours_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "missing.nc")
    with pytest.raises(InputError, match="a folder; name a file in it"):
        read(tmp_path)
    (tmp_path / "text.nc").write_text("not a NetCDF file")
    with pytest.raises(InputError, match="not a NetCDF file"):
        read(tmp_path / "text.nc")
    xarray.Dataset({"x": 1}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with pytest.raises(InputError, match="not written by stansub"):
        read(tmp_path / "other.nc")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "draws.nc"
    write(run(), path, overwrite=False)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match="damaged"):
        read(path)


def test_a_file_without_posterior_is_refused(tmp_path: Path) -> None:
    write(run(draws=4), tmp_path / "draws.nc", overwrite=False)
    with h5netcdf.File(tmp_path / "draws.nc", "a") as file:
        del file._h5file["posterior"]
    with pytest.raises(InputError, match="posterior"):
        read(tmp_path / "draws.nc")


def test_importing_the_package_imports_no_heavy_library() -> None:
    script = f"""
        import sys
        sys.path[:0] = {sys.path!r}
        import stansub.output.inference_data, stansub.output.summary, stansub.output.plots
        print([m for m in ("arviz", "pandas", "xarray", "matplotlib", "scipy.stats") if m in sys.modules])
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
