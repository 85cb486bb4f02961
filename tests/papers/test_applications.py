"""Two of the applications as a user runs them, the index, and that every application is in it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clocks import HANGS

PAPERS = Path(__file__).resolve().parents[2] / "examples" / "papers"
sys.path.insert(0, str(PAPERS))

import run_all  # noqa: E402


def command(script: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script), *map(str, arguments)], capture_output=True, text=True, timeout=HANGS
    )


# Figures of the committed pages that no clock enters: what the default of today needs, and the method of the paper.
CLAIMS: dict[str, Callable[[Any], list[float]]] = {
    "gaussian_mean": lambda values: [row["share"] for row in (*values["today"], *values["runs"])],
    "sgld": lambda values: [values["default"]["data"], values["default"]["accepted"]],
}


def read(folder: Path) -> Any:
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CLAIMS))
def test_an_application(name: str, tmp_path: Path) -> None:
    done = command(PAPERS / name / "run.py", "--output-dir", tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "Cost with today's methods" in page
    assert "{{" not in page
    assert "nan" not in page
    for picture in tmp_path.glob("*.png"):
        assert f"({picture.name})" in page
    facts, committed = read(tmp_path), read(run_all.REPORTS / name)
    assert facts["size"] == committed["size"] == "small"
    assert facts["summary"]
    assert CLAIMS[name](facts["values"]) == pytest.approx(CLAIMS[name](committed["values"]), rel=0.02)


def test_every_application_is_in_the_index() -> None:
    folders = {path.parent.name for path in PAPERS.glob("*/run.py")}
    assert folders == {one.name for one in run_all.APPLICATIONS}
    for name in folders:
        text = (PAPERS / name / "page.md").read_text(encoding="utf-8")
        assert "Cost with today's methods" in text
        assert "## Differences from the paper" in text


def test_unknown_applications_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["run_all.py", "no_such"])
    with pytest.raises(SystemExit) as ended:
        run_all.main()
    assert ended.value.code == 2
    assert "no such application: no_such" in capsys.readouterr().err
