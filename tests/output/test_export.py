"""Exported draws are read by others: CmdStan's CSV by cmdstanpy, ArviZ, CmdStan's programs and R, tables by pandas."""

from __future__ import annotations

import logging
import shutil
import subprocess
from pathlib import Path

import cmdstanpy
import numpy as np
import pandas as pd
import pytest
import xarray
from rscript import lacks_r

from stansub import cli
from stansub.errors import InputError
from stansub.output import export, inference_data

CHAINS, DRAWS = 2, 50
RNG = np.random.default_rng(1)
POSTERIOR = {
    "alpha": RNG.standard_normal((CHAINS, DRAWS)),
    "beta": RNG.standard_normal((CHAINS, DRAWS, 3)),
    "omega": RNG.standard_normal((CHAINS, DRAWS, 2, 3)),
    "cube": RNG.standard_normal((CHAINS, DRAWS, 2, 3, 2)),
}
ACCEPTED = RNG.random((CHAINS, DRAWS)) < 0.5
FACTS = {
    "model": "some",
    "data_file": "/data/some.json",
    "settings": {"iter_warmup": 20, "thin": 3, "seed": 7, "proposal": "laplace-pcn"},
    "versions": {"stan": "2.36.0"},
    "test": "factorised",
}


def draws(**changes: np.ndarray) -> xarray.DataTree:
    return inference_data.build(
        posterior=POSTERIOR | changes,
        sample_stats={"accepted": ACCEPTED},
        chain_stats={"warmup_time": np.array([1.5, 2.0]), "sampling_time": np.array([0.25, 3.0])},
        attrs=FACTS,
        dims={"beta": ["airport"]},
        coords={"airport": ["EWR", "JFK", "LGA"]},
    )


def test_cmdstanpy_reads_what_was_written(tmp_path: Path) -> None:
    paths = export.write(draws(), tmp_path / "new", "some", export.CMDSTAN_CSV)
    assert [path.name for path in paths] == ["some_1.csv", "some_2.csv"]
    logging.getLogger("cmdstanpy").setLevel(logging.ERROR)
    fit = cmdstanpy.from_csv([str(path) for path in paths])
    for name, values in POSTERIOR.items():
        np.testing.assert_array_equal(fit.stan_variable(name), values.reshape(-1, *values.shape[2:]))
    columns = fit.method_variables()
    assert np.isnan(columns["lp__"]).all()
    np.testing.assert_array_equal(columns["accept_stat__"], ACCEPTED.T)
    assert not columns["divergent__"].any()
    facts = fit.metadata.cmdstan_config
    told = {name: facts[name] for name in ("model", "num_warmup", "num_samples", "thin", "seed", "id")}
    assert told == {
        "model": "some_model", "num_warmup": 20, "num_samples": 3 * DRAWS, "thin": 3, "seed": 7, "id": 1,
    }  # fmt: skip
    assert fit.time[1] == {"warmup": 2.0, "sampling": 3.0, "total": 5.0}


def test_paths_are_named_as_the_folder_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert export.write(draws(), "new", "some", "csv") == [Path("new/some.csv")]
    assert (tmp_path / "new/some.csv").is_file()


def test_arviz_reads_what_was_written(tmp_path: Path) -> None:
    paths = export.write(draws(), tmp_path, "some", export.CMDSTAN_CSV)
    found = inference_data.arviz_module().from_cmdstanpy(cmdstanpy.from_csv([str(path) for path in paths]))
    for name, values in POSTERIOR.items():
        np.testing.assert_array_equal(inference_data.group(found, "posterior")[name], values)


@pytest.mark.parametrize("program", ["stansummary", "diagnose"])
def test_programs_of_cmdstan_read_what_was_written(program: str, tmp_path: Path) -> None:
    try:
        folder = f"{cmdstanpy.cmdstan_path()}/bin"
    except ValueError:
        folder = None
    if (path := shutil.which(program, path=folder)) is None:
        pytest.skip(f"no {program}: CmdStan is not installed")
    files = export.write(draws(), tmp_path, "some", export.CMDSTAN_CSV)
    done = subprocess.run([path, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ("omega[2,3]" if program == "stansummary" else "Processing complete") in done.stdout


READ_BY_R = """
files <- commandArgs(trailingOnly = TRUE)
fits <- list(rstan = suppressWarnings(rstan::read_stan_csv(files)))
if (requireNamespace("cmdstanr", quietly = TRUE)) {
  fits$cmdstanr <- cmdstanr::as_cmdstan_fit(files, check_diagnostics = FALSE)$draws()
}
if ("read_csv_as_stanfit" %in% getNamespaceExports("brms") && !is.null(fits$cmdstanr)) {
  fits$brms <- brms::read_csv_as_stanfit(files)
}
for (name in names(fits)) {
  found <- posterior::as_draws_matrix(fits[[name]])
  cat(name, format(colMeans(found[, c("beta[2]", "omega[2,3]", "cube[1,2,2]")]), digits = 15), "\n")
}
"""


@pytest.mark.slow
def test_r_reads_what_was_written(tmp_path: Path) -> None:
    if reason := lacks_r():
        pytest.skip(reason)
    files = export.write(draws(), tmp_path, "some", export.CMDSTAN_CSV)
    done = subprocess.run(["Rscript", "-e", READ_BY_R, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    places = (POSTERIOR["beta"][..., 1], POSTERIOR["omega"][..., 1, 2], POSTERIOR["cube"][..., 0, 1, 1])
    read = [line.split() for line in done.stdout.splitlines()]
    assert read[0][0] == "rstan"
    for name, *means in read:
        np.testing.assert_allclose(
            [float(one) for one in means], [one.mean() for one in places], rtol=1e-12, err_msg=name
        )


def test_the_order_of_columns_is_that_of_cmdstan(tmp_path: Path) -> None:
    (path, _) = export.write(draws(), tmp_path, "some", export.CMDSTAN_CSV)
    header = next(line for line in path.read_text().splitlines() if not line.startswith("#"))
    assert header.startswith(
        "lp__,accept_stat__,divergent__,alpha,beta.1,beta.2,beta.3,omega.1.1,omega.2.1,omega.1.2,omega.2.2,omega.1.3,omega.2.3,"
        "cube.1.1.1,cube.2.1.1,cube.1.2.1"
    )


def test_columns_of_the_sampler_are_real_numbers_to_r(tmp_path: Path) -> None:
    (path, _) = export.write(draws(), tmp_path, "some", export.CMDSTAN_CSV)
    rows = [line.split(",") for line in path.read_text().splitlines() if line and not line.startswith("#")][1:]
    assert {row[0] for row in rows} == {"nan"}
    assert {row[1] for row in rows} == {"0.0", "1.0"}
    assert {row[2] for row in rows} == {"0.0"}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_tables_have_a_column_for_each_value(form: str, tmp_path: Path) -> None:
    (path,) = export.write(draws(), tmp_path, "some", form)
    table = pd.read_csv(path) if form == "csv" else pd.read_parquet(path)
    assert table.columns[:6].tolist() == ["chain", "draw", "alpha", "beta[EWR]", "beta[JFK]", "beta[LGA]"]
    second = table[(table.chain == 2) & (table.draw == 5)]
    assert second["omega[2,3]"].tolist() == [POSTERIOR["omega"][1, 4, 1, 2]]


def test_values_that_are_not_finite(tmp_path: Path) -> None:
    odd = np.full((CHAINS, DRAWS), np.nan)
    odd[:, ::2] = -np.inf
    paths = export.write(draws(alpha=odd), tmp_path, "some", export.CMDSTAN_CSV)
    fit = cmdstanpy.from_csv([str(path) for path in paths])
    np.testing.assert_array_equal(fit.stan_variable("alpha"), odd.ravel())


def test_the_command_and_files_that_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inference_data.write(draws(), tmp_path / "some.nc")
    for more, code in (([], 0), ([], 2), (["--force"], 0), (["--to", "csv"], 0)):
        with pytest.raises(SystemExit) as exit_:
            cli.main(["export", str(tmp_path / "some.nc"), *more])
        assert exit_.value.code == code
    out, err = capsys.readouterr()
    assert out.split() == [str(tmp_path / name) for name in [*["some_1.csv", "some_2.csv"] * 2, "some.csv"]]
    assert "some_1.csv already exists; use --force" in err
    with pytest.raises(InputError, match="already exists"):
        export.write(draws(), tmp_path, "some", "csv")
