"""A program's file may be called anything: its name runs nothing, and messages stay in one line."""

import json
from pathlib import Path

import numpy as np
import pytest

from stansub.cli import main

PROGRAM = """
data { int<lower=0> N; vector[N] y; }
parameters { real mu; }
model { mu ~ normal(0, 1); y ~ normal(mu, 1); }
"""
NAME = "a $(touch pwned) $(shell touch pwned) `touch pwned`; touch pwned & '\" # %b \n\ttouch pwned\n[b]\x1b[31m.stan"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out, captured.err


def test_a_hostile_name_runs_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path(NAME).write_text(PROGRAM)
    y = np.random.default_rng(1).standard_normal(300).tolist()
    Path("data.json").write_text(json.dumps({"N": 300, "y": y}))
    code, out, _ = run(capsys, "check", NAME, "data.json")
    assert code == 0
    assert out.startswith("qualifies")
    assert sorted(place.iterdir()) == sorted([place / NAME, place / "data.json"])


def test_a_syntax_error_is_told_in_one_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path(NAME).write_text("parameters {")
    code, out, err = run(capsys, "check", NAME)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "syntax error" in err
    assert "\x1b" not in err


def test_a_missing_file_is_told_in_one_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "check", NAME)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "no such file" in err
    assert "\x1b" not in err
