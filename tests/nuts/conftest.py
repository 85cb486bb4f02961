"""Programs and engines for the references."""

from pathlib import Path

import fake_cmdstan
import pytest


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without any CmdStan in reach."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CMDSTAN", "")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # where draws are kept that cannot be written
    monkeypatch.setattr("cmdstanpy.utils.cmdstan._DOT_CMDSTAN", "no folder of this name")
    return tmp_path


@pytest.fixture
def cmdstan(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CmdStan that is made up, with a place of its own for executables."""
    home = fake_cmdstan.build(place)
    monkeypatch.setenv("CMDSTAN", str(home))
    monkeypatch.setattr("stansub.nuts.cmdstan.cache_dir", lambda: place / "cache")
    return home
