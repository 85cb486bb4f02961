"""Replicated data of a subset of the observations, beside what the program says of them; what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from sampled import SHORT
from simulated import ROOT, Compiled
from test_cli import run

import stansub
from stansub import InputError
from stansub.diagnostics import ppc as module
from stansub.output import inference_data, plots


@pytest.fixture(scope="module")
def found(place: Path) -> Any:
    return stansub.ppc(place / "draws.nc", observations=30, n_draws=300)


def test_observed_data_are_the_rows_that_loo_leaves_out(place: Path, found: Any) -> None:
    rows = stansub.loo(place / "draws.nc", observations=30).rows
    y = np.array(json.loads((place / "data.json").read_text())["y"])
    observed = inference_data.group(found, "observed_data")["y"]
    np.testing.assert_array_equal(observed["observation"].values, rows)
    np.testing.assert_array_equal(observed.values, y[rows])


def test_replicated_data_are_what_the_program_draws(place: Path, found: Any) -> None:
    """Normal with the mean and the sd of their own draw, each for itself."""
    replicated = inference_data.group(found, "posterior_predictive")["y"].values
    posterior = inference_data.group(inference_data.read(place / "draws.nc"), "posterior")
    mu, sigma = (posterior[name].values[:, ::2, np.newaxis] for name in ("mu", "sigma"))
    assert replicated.shape == (2, 150, 30)
    z = (replicated - mu) / sigma
    assert abs(z.mean()) < 4 / np.sqrt(z.size)
    assert abs((z**2).mean() - 1) < 4 * np.sqrt(2 / z.size)
    assert np.abs(np.corrcoef(z.reshape(-1, 30).T) - np.eye(30)).max() < 5 / np.sqrt(300)


def test_the_same_seed_gives_the_same_data(place: Path, found: Any) -> None:
    again = stansub.ppc(place / "draws.nc", observations=30, n_draws=300)
    other = stansub.ppc(place / "draws.nc", observations=30, n_draws=300, seed=1)
    values, same, differ = (
        inference_data.group(one, "posterior_predictive")["y"].values for one in (found, again, other)
    )
    np.testing.assert_array_equal(values, same)
    assert not np.array_equal(values, differ)


def test_the_command_writes_what_arviz_draws(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(["ppc", str(place / "draws.nc"), "--observations", "20", "--draws", "40", "-q"], capsys)
    assert code == 0
    table, picture = map(Path, out.split())
    assert (table.name, picture.name) == ("draws_ppc.nc", "draws_ppc.png")
    assert picture.read_bytes()[:4] == b"\x89PNG"
    matplotlib.use("agg")
    arviz = inference_data.arviz_module()
    if hasattr(arviz, "plot_ppc"):
        arviz.plot_ppc(arviz.from_netcdf(table))
    else:
        arviz.plot_ppc_dist(arviz.from_netcdf(table))
    code, _, err = run(["ppc", str(place / "draws.nc"), "-q"], capsys)
    assert code == 2
    assert "draws_ppc.nc" in err


@pytest.mark.usefixtures("pictures_in_full")
def test_pictures_of_integers_and_constants(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for name, observed in {"count": rng.poisson(3.0, 50), "many": rng.poisson(1e4, 50), "same": np.ones(50)}.items():
        tree = inference_data.build(
            posterior={},
            sample_stats={},
            posterior_predictive={name: np.tile(observed.astype(float), (2, 10, 1))},
            observed_data={name: observed},
            attrs={"model": "toy"},
        )
        plots.predictive(tree, tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def test_a_program_without_replicated_data_is_refused(
    compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ROOT / "stan_models" / "normal_mean.stan"
    data = {"N": 90, "y": np.random.default_rng(3).normal(1.0, 2.0, 90).tolist(), "sigma": 2.0}
    (tmp_path / "data.json").write_text(json.dumps(data))
    compiled(file)
    draws = stansub.sample(str(file), str(tmp_path / "data.json"), **SHORT)
    monkeypatch.setattr(module, "posterior_of_draws", lambda *given, **options: pytest.fail("compiles a program"))
    with pytest.raises(InputError, match="normal_mean: no generated quantity replicates data: declare one"):
        stansub.ppc(draws)


def test_other_observations_than_those_chosen_are_noticed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    likelihoods = module.log_likelihoods
    monkeypatch.setattr(module, "log_likelihoods", lambda of, theta, rows: likelihoods(of, theta, (rows + 1) % 70))
    with pytest.raises(InputError, match="single observations cannot be predicted"):
        stansub.ppc(place / "draws.nc", observations=30)
