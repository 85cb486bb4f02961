"""A comparison as a whole."""

from __future__ import annotations

import json

import fakes
import numpy as np
import pytest

from stansub.diagnostics.comparison import compare_draws
from stansub.errors import InputError
from stansub.findings import Unrecorded
from stansub.output import inference_data


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_a_comparison() -> None:
    draws, reference = fakes.draws(rng(1)), fakes.reference(rng(2), draws=500)
    found = compare_draws(draws, reference)
    assert found.name == "logistic"
    assert found.verdict.word == "agrees"
    assert set(found.parameters.index) == set(found.alignment.common) == {"alpha", "beta[1]", "beta[2]", "beta[3]"}
    assert found.draws is draws
    assert found.reference is reference
    assert found.findings == found.reference_findings == ()
    assert found.worst_pair is not None
    assert set(found.worst_pair) <= set(found.alignment.common)
    assert found.overall["n_tests"] == 4 * 6 + 6
    assert found.overall["mean_diff_sd_max"] == found.parameters["mean_diff_sd"].abs().max()
    assert found.overall["covariance_standardised"] < 2 * found.overall["covariance_expected"]
    assert found.cost.loc["ess_bulk_min", "draws"] == found.parameters["ess_bulk"].min()


def test_variables_and_level() -> None:
    found = compare_draws(fakes.draws(rng(1)), fakes.reference(rng(2)), var_names=["alpha"], level=0.1)
    assert list(found.parameters.index) == ["alpha"]
    assert found.worst_pair is None
    assert found.overall["level"] == 0.1
    with pytest.raises(InputError, match="level=1` must be between 0 and 1"):
        compare_draws(fakes.draws(rng(1)), fakes.reference(rng(2)), level=1)


def test_every_figure_goes_to_json() -> None:
    def partly_broken(values: np.ndarray) -> None:  # type: ignore[type-arg]
        values[0, 0, 1] = np.nan
        values[:, :, 2] = 0

    found = compare_draws(fakes.draws(rng(1), change=partly_broken), fakes.reference(rng(2), chains=1))
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["verdict"] == "do not use"
    assert plain["headline"] == found.verdict.headline
    assert plain["parameters"]["beta[1]"]["mean_z"] is None
    assert plain["parameters"]["alpha"]["mean_z"] == found.parameters.loc["alpha", "mean_z"]
    assert plain["cost"]["sampling_time"]["draws"] == 3.0
    assert plain["cost"]["sampling_time"]["better"] == "lower"
    assert plain["alignment"]["common"] == list(found.alignment.common)
    assert plain["cautions"][0].keys() == {"text", "remedy"}
    assert plain["notes"]


def test_files_written_and_read_compare_alike(tmp_path) -> None:  # type: ignore[no-untyped-def]
    draws, reference = fakes.draws(rng(1)), fakes.reference(rng(2), divergences=1)
    found = compare_draws(draws, reference).to_dict()
    for name, idata in (("draws", draws), ("reference", reference)):
        inference_data.write(idata, tmp_path / f"{name}.nc")
    again = compare_draws(*(inference_data.read(tmp_path / f"{name}.nc") for name in ("draws", "reference")))
    assert again.to_dict() == found


def test_draws_by_others_are_compared_with_a_finding() -> None:
    found = compare_draws(fakes.draws(rng(1)), fakes.foreign(rng(2)))
    assert found.verdict.word == "agrees"
    unrecorded = found.reference_findings[-1]
    assert isinstance(unrecorded, Unrecorded)
    assert any("the reference does not record which model it came from" in one for one in unrecorded.reasons)
    assert "the reference does not record which data it came from" in found.cost.attrs["notes"]


def test_another_model_is_refused() -> None:
    with pytest.raises(InputError, match="different models"):
        compare_draws(fakes.draws(rng(1)), fakes.reference(rng(2), attrs={"reference_for": "another"}))


@pytest.mark.slow
def test_the_cost_grows_with_the_parameters_and_not_with_their_pairs() -> None:
    def cost(size: int) -> int:
        draws, reference = fakes.draws(rng(1), size=size), fakes.reference(rng(2), size=size)
        assert len(compare_draws(draws, reference).parameters) == size
        return fakes.n_calls(lambda: compare_draws(draws, reference))

    assert cost(60) < 4.5 * cost(15)
