"""`stansub new`: what it writes qualifies, and is sampled with the values that it was simulated with."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_cli import run

from stansub.cli import starters
from stansub.output import inference_data
from stansub.stan.syntax import parse

NAMES = list(starters.STARTERS)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_the_example_is_what_the_program_declares(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(["new", "mine", "--likelihood", name, "--rows", "50"], capsys)
    assert code == 0
    assert out.splitlines() == [
        "mine/model.stan",
        "mine/data.parquet",
        "mine/README.md",
        "Next: cd mine && stansub sample model.stan data.parquet --columns 'x=[x1,x2,x3]'",
    ]
    code, out, _ = run(["check", "mine/model.stan"], capsys)
    assert code == 5, "it may qualify: only data prove it"
    program = parse(Path("mine/model.stan").read_text())
    table = starters.simulate(name, rows=50)
    declared = {one.name for one in program.data.declarations}
    assert declared - {"N", "K", "J", "x"} == set(table) - {"x1", "x2", "x3"}
    readme = Path("mine/README.md").read_text()
    assert all(f"| `{one}` | {value} |" in readme for one, value in starters.STARTERS[name].truth.items())


def test_data_depend_on_the_seed_alone() -> None:
    one, same, other = (starters.simulate("multilevel", rows=200, seed=seed) for seed in (3, 3, 4))
    assert one.equals(same)
    assert not one.equals(other)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["there"], "there already exists; choose another name"),
        (["mine", "--likelihood", "probit"], "unknown likelihood probit; choose one of logistic, linear"),
        (["there/none/mine"], "could not create there/none/mine"),
        (["/"], "/ already exists"),
    ],
)
def test_what_cannot_be_created_is_said_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("there").mkdir()
    code, _, said = run(["new", *arguments], capsys)
    assert code in (1, 2)
    assert message in " ".join(said.split())
    assert not Path("mine").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_draws_agree_with_what_was_simulated(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["new", "mine", "--likelihood", name], capsys)[0] == 0
    code, _, _ = run(
        [
            "sample",
            "mine/model.stan",
            "mine/data.parquet",
            "--columns",
            starters.COLUMNS,
            "--seed",
            "1",
            "--output",
            "m.nc",
        ],
        capsys,
    )
    assert code == 0
    posterior = inference_data.group(inference_data.load(Path("m.nc")), "posterior")
    for one, value in starters.STARTERS[name].truth.items():
        variable, _, index = one.partition("[")
        draws = posterior[variable].values
        draws = draws[..., int(index.rstrip("]")) - 1] if index else draws
        assert abs(draws.mean() - value) < 4.5 * draws.std(), one
