"""No input ends in a traceback, an internal error, silence or an exit code that is not documented."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import odd_inputs
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from stansub import cli
from stansub.stan.toolchain import cache

SHORT = "--chains 2 --iter-warmup 50 --iter-sampling 60 --seed 1 --quiet --output good.nc"
seeds = st.integers(0, 2**32)


def inputs(n: int) -> Any:
    """So many inputs, the same in every run; one that fails is not made smaller, which takes minutes."""
    return settings(max_examples=n, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working folder with data and draws, within a home folder of its own."""
    home = tmp_path_factory.mktemp("home")
    here = home / "here"
    (here / "folder").mkdir(parents=True)
    (here / "mean.json").write_bytes(odd_inputs.GOOD_JSON)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STANSUB_CACHE", str(cache.cache_dir()))
        patch.setenv("HOME", str(home))
        patch.chdir(here)
        with pytest.raises(SystemExit) as ended:
            cli.main(["sample", str(odd_inputs.PROGRAM), "mean.json", *SHORT.split()])
        assert not ended.value.code
        yield here


def ends_well(arguments: list[str]) -> None:
    assert odd_inputs.offence(arguments) == ""


def data_end_well(place: Path, content: bytes) -> None:
    (place / "odd.json").write_bytes(content)
    ends_well(["check", str(odd_inputs.PROGRAM), "odd.json"])


def draws_end_well(place: Path, change: Callable[[bytes, int], bytes], seed: int) -> None:
    (place / "odd.nc").write_bytes(change((place / "good.nc").read_bytes(), seed))
    ends_well(odd_inputs.reading("odd.nc", seed))


@inputs(25)
@given(odd_inputs.command_lines)
def test_command_lines(line: list[str]) -> None:
    ends_well(line)


@pytest.mark.parametrize("path", ["", ".", "..", "/"])
@pytest.mark.parametrize(
    "command", ["check", "compare", "diagnose", "export", "loo", "plot", "ppc", "report", "summary"]
)
def test_paths_that_name_no_file(command: str, path: str) -> None:
    ends_well([command, path])


@inputs(10)
@given(odd_inputs.data_files)
def test_data_files(place: Path, content: bytes) -> None:
    data_end_well(place, content)


@inputs(5)
@given(seeds)
@pytest.mark.parametrize("change", [odd_inputs.changed_draws, odd_inputs.damaged_draws])
def test_draws_files(place: Path, change: Callable[[bytes, int], bytes], seed: int) -> None:
    draws_end_well(place, change, seed)


def test_what_is_wrong_is_seen(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: each kind of bad end is recognised."""

    def ends(code: int, text: str) -> str:
        def main(arguments: list[str]) -> None:
            print(text, end="", file=sys.stderr)
            raise SystemExit(code)

        monkeypatch.setattr(cli, "main", main)
        return odd_inputs.offence([])

    assert (
        ends(0, "")
        == ends(2, "stansub: error: what is wrong\n")
        == ends(1, "Compiling\nstansub: error: disk full\n")
        == ""
    )
    assert "not documented" in ends(77, "stansub: error: what is wrong\n")
    assert "without a word" in ends(2, "")
    assert "more than a line" in ends(1, "stansub: error: what is wrong\nand more of it\n")
    assert "internal error" in ends(1, "stansub: error: internal error: KeyError\n")


@pytest.mark.slow
@inputs(5500)
@given(odd_inputs.command_lines)
def test_thousands_of_command_lines(line: list[str]) -> None:
    ends_well(line)


@pytest.mark.slow
@inputs(500)
@given(odd_inputs.runs)
def test_hundreds_of_runs(line: list[str]) -> None:
    ends_well(line)


@pytest.mark.slow
@inputs(2000)
@given(odd_inputs.data_files)
def test_thousands_of_data_files(place: Path, content: bytes) -> None:
    data_end_well(place, content)


@pytest.mark.slow
@inputs(1000)
@given(seeds)
@pytest.mark.parametrize("change", [odd_inputs.changed_draws, odd_inputs.damaged_draws])
def test_thousands_of_draws_files(place: Path, change: Callable[[bytes, int], bytes], seed: int) -> None:
    draws_end_well(place, change, seed)
