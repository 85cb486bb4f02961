"""Which programs are compiled, and why: known from the text."""

from pathlib import Path

import pytest

from stansub.cli import main
from stansub.stan import source
from stansub.stan.plan import (
    DATA,
    PARTS,
    PROGRAM,
    SILENT,
    SURROGATE,
    plan,
    plan_transitions,
)
from stansub.target.remainders import NoPredictorsError

ROOT = Path(__file__).parents[2]
REACH = ROOT / "benchmarks" / "reach" / "programs"
REGRESSION = """data { int N; vector[N] x; vector[N] y; } parameters { real a; real b; real<lower=0> s; }
model { y ~ normal(a + b * x, s); }"""
SERIES = REGRESSION.replace("y ~ normal(a + b * x, s);", "for (n in 2 : N) y[n] ~ normal(a + b * y[n - 1], s);")


def planned(file: Path) -> dict[str, str]:
    return plan(source.read(file).analysis).reasons


@pytest.mark.parametrize(
    ("code", "roles"),
    [
        (REGRESSION, [PROGRAM]),
        (REGRESSION.replace("model {", 'model { print("one");'), [PROGRAM, SILENT]),
        (REGRESSION.replace("a + b * x", "a + b * (x - mean(x))"), [PROGRAM, PARTS, DATA]),
        (SERIES, [PROGRAM, PARTS, DATA]),
    ],
    ids=["regression", "prints", "centred", "series"],
)
def test_programs_and_their_order(code: str, roles: list[str], tmp_path: Path) -> None:
    file = tmp_path / "program.stan"
    file.write_text(code)
    assert list(planned(file)) == roles


def test_each_program_but_the_users_own_has_a_goal(tmp_path: Path) -> None:
    file = tmp_path / "program.stan"
    file.write_text(
        REGRESSION.replace("a + b * x", "a + b * (x - mean(x))").replace("model {", 'model { print("one");')
    )
    goals = {one.role: one.goal for one in plan(source.read(file).analysis).programs}
    assert goals.pop(PROGRAM) == ""
    assert goals.keys() == {PARTS, DATA, SILENT}
    assert all(goals.values())


def test_surrogate_transitions_take_two_programs() -> None:
    file = REACH / "brms_groups.stan"
    assert list(plan_transitions(source.read(file).analysis).reasons) == [PROGRAM, SURROGATE]
    with pytest.raises(NoPredictorsError, match="no statement of the model"):
        plan_transitions(source.read(REACH / "no_data.stan").analysis)


def test_blocks_of_a_reduce_sum_call_its_function(tmp_path: Path) -> None:
    found = plan(source.read(ROOT / "stan_models" / "logistic_reduce_sum.stan").analysis)
    assert list(found.reasons) == [PROGRAM, SILENT]
    assert "target += partial_sum_lupmf(y | 1, size(y), x, alpha, beta);" in found.programs[1].code


def test_reasons_name_passes_and_values(tmp_path: Path) -> None:
    file = tmp_path / "program.stan"
    file.write_text(SERIES.replace("a + b", "a * (x[n] - mean(x)) + b"))
    why = planned(file)
    assert "summaries of data in transformed data and data of neighbouring observations as rows of data" in why[PARTS]
    assert "stansub_y_1" in why[DATA]


def test_check_shows_them_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "program.stan"
    file.write_text(REGRESSION)
    shown = {}
    for flags in ((), ("--verbose",)):
        with pytest.raises(SystemExit):
            main(["check", str(file), *flags])
        lines = capsys.readouterr().out.splitlines()
        shown[flags] = [line for line in lines if line.startswith(("Compiled", "Depends"))]
    assert shown[()] == []
    first, *compiled = shown[("--verbose",)]
    assert first == "Depends on    line 2: the observation's own row"
    assert [line.split(":")[0] for line in compiled] == ["Compiled      program"]


def test_check_shows_the_program_of_a_surrogate_for_latent_classes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", str(REACH / "raters.stan"), "--verbose"])
    lines = capsys.readouterr().out.splitlines()
    compiled = [line.split(":")[0].split()[1] for line in lines if line.startswith("Compiled")]
    assert compiled == ["program", "surrogate"]
