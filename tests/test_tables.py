"""Runs whose data are columns of a table: the same draws as from JSON, names of levels, and what is found again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_cli import QUICK, run

import stansub
from stansub.output import inference_data

PROGRAM = str(Path(__file__).parents[1] / "stan_models" / "hierarchical_logistic.stan")
CSV = ["--output-format", "cmdstan-csv"]
COLUMNS = ["--columns", "x=[x1,x2]"]
N = 600


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(2)
    x, group = rng.standard_normal((N, 2)), rng.integers(0, 3, N)
    y = rng.random(N) < 1 / (1 + np.exp(-x[:, 0] - group))
    return pd.DataFrame({"x1": x[:, 0], "x2": x[:, 1], "y": y.astype(int), "group": np.array(["C", "A", "B"])[group]})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the table, the same data as JSON, and draws from the table."""
    folder, table = tmp_path_factory.mktemp("tables"), frame()
    table.to_parquet(folder / "table.parquet")
    codes = [" ABC".index(name) for name in table.group]
    values = {"N": N, "K": 2, "J": 3, "y": table.y.tolist(), "x": table[["x1", "x2"]].to_numpy().tolist()}
    (folder / "data.json").write_text(json.dumps({**values, "group": codes}))
    return folder


@pytest.fixture(autouse=True)
def _there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def test_check_shows_where_variables_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(["check", PROGRAM, "table.parquet", *COLUMNS], capsys)
    assert code == 0
    shown = [line.removeprefix("Data").strip() for line in out.splitlines() if line.startswith("Data")]
    assert shown == [
        "y: column y of table.parquet",
        "x: columns x1, x2 of table.parquet (2)",
        "group: column group of table.parquet, levels 1 = A, 2 = B, 3 = C",
        f"N: {N}, a size of y",
        "K: 2, a size of x",
        "J: 3, the number of levels of group",
    ]


def test_draws_are_those_from_json_and_know_the_levels(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [*QUICK, "--proposal", "laplace-pcn"]
    assert run(["sample", PROGRAM, "data.json", *options, "--output", "json.nc"], capsys)[0] == 0
    assert run(["sample", PROGRAM, "table.parquet", *COLUMNS, *options, *CSV, "--output", "table.nc"], capsys)[0] == 0
    assert (place / "table_1.csv").is_file()
    assert (place / "table_2.csv").is_file()
    from_json, from_table = (inference_data.load(place / f"{name}.nc") for name in ("json", "table"))
    for name in ("beta", "effect", "z"):
        np.testing.assert_array_equal(from_json["posterior"][name], from_table["posterior"][name])
    effect = inference_data.group(from_table, "posterior").effect
    assert effect.dims == ("chain", "draw", "group")
    assert effect.group.values.tolist() == ["A", "B", "C"]
    facts = inference_data.attrs(from_table)
    assert facts["levels"] == {"group": ["A", "B", "C"]}
    assert "levels" not in inference_data.attrs(from_json)
    assert facts["data_hash"] == inference_data.attrs(from_json)["data_hash"]
    code, out, _ = run(["summary", "table.nc"], capsys)
    assert code == 0
    assert "effect[C]" in out
    assert run(["compare", "table.nc", "json.nc", "--json", "figures.json"], capsys)[0] == 0
    assert run(["plot", "table.nc"], capsys)[0] == 0
    compares_again(place, capsys)


def compares_again(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a reference the table is found, and its columns; another table in its place is noticed."""
    engine = ["--engine", "exact", "--chains", "2", "--iter-warmup", "20", "--iter-sampling", "20"]
    code, _, err = run(["compare", "table.nc", *engine, "--output-dir", "report"], capsys)
    assert code == 0, err
    frame().assign(x1=0.0).to_parquet(place / "other.parquet")
    again = [*engine, "--force", "--json", "again.json", "--data", "other.parquet", *COLUMNS]
    (place / "hierarchical_logistic_reference.nc").unlink()
    code, _, err = run(["compare", "table.nc", *again], capsys)
    assert code == 2
    assert "other.parquet: these are not the data of the draws" in err


def test_a_run_resumes_with_its_table(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The checkpoint knows the table and its columns; from Python the table itself is given."""
    model = stansub.compile_model(PROGRAM)
    options = {"chains": 2, "iter_warmup": 50, "seed": 1, "proposal": "laplace-pcn", "show_progress": False}
    sources = stansub.DataSources(["table.parquet"], {"x": ["x1", "x2"]})
    stansub.sample(model, sources, iter_sampling=30, checkpoint="run.checkpoint", **options)
    kept = stansub.read_checkpoint("run.checkpoint", show_progress=False)
    assert inference_data.attrs(kept)["levels"] == {"group": ["A", "B", "C"]}
    in_memory = stansub.DataSources([frame()], {"x": "x?"})
    longer = stansub.sample(model, in_memory, iter_sampling=60, resume="run.checkpoint", **options)
    assert inference_data.group(longer, "posterior").sizes["draw"] == 60


def test_what_is_wrong_with_a_table_is_an_input_error(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame().assign(group=[0] * N).to_csv("zero.csv", index=False)
    code, _, err = run(["sample", PROGRAM, "zero.csv", "J=3", *COLUMNS, *QUICK], capsys)
    assert (code, err.splitlines()[-1]) == (
        2,
        "stansub: error: zero.csv: column 'group', row 1 is 0, but the lower bound is 1: levels count from 1",
    )
    code, _, err = run(["sample", PROGRAM, "table.parquet", *QUICK], capsys)
    assert code == 2
    assert "and no column has that name; name its columns with --columns x=[x1,x2]" in err
