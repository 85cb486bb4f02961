"""What is shown while chains run, and where nothing is."""

import importlib.util
import io

import pytest
from rich.console import Console

from stansub.sampling.chain import Status
from stansub.sampling.progress import chain_progress, telling, wanted

STATUSES = [
    Status(steps=0, total=12_000, warmup=True, acceptance=0.0, share=0.0),
    Status(steps=1_250, total=12_000, warmup=True, acceptance=0.31, share=0.0421),
    Status(steps=7_000, total=12_000, warmup=False, acceptance=0.235, share=0.913),
    Status(steps=12_000, total=12_000, warmup=False, acceptance=0.24, share=1.0),
]


def screen(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def terminal(width: int) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)


@pytest.mark.parametrize("width", [80, 120])
def test_each_chain_has_a_line_that_fits(width: int) -> None:
    console = terminal(width)
    with chain_progress(4, show=True, console=console) as view:
        assert view is not None
        view.show(STATUSES, 1.0123)
        console.file = io.StringIO()
        view.refresh()
        shown = screen(console)
    lines = [line for line in shown.replace("\r", "\n").split("\n") if "Chain" in line]
    assert len(lines) == 4
    assert "waiting" in lines[0]
    for text in ("1250/12000", "warmup", "accept  31%", "data   4.2%"):
        assert text in lines[1]
    for text in ("7000/12000", "sampling", "accept  24%", "data  91.3%"):
        assert text in lines[2]
    assert "done" in lines[3]
    assert "R-hat 1.012" in shown
    assert "…" not in shown


def test_nothing_is_shown_where_nobody_looks() -> None:
    console = Console(file=io.StringIO())
    assert not wanted(None, console)
    with chain_progress(4, show=False, console=console) as view, telling(console, show=False) as say:
        assert view is None
        say("Compiling")
    assert screen(console) == ""


def test_a_terminal_shows_progress_unless_told_otherwise() -> None:
    assert wanted(None, terminal(80))
    assert not wanted(False, terminal(80))
    assert wanted(True, Console(file=io.StringIO()))


@pytest.mark.parametrize("widgets", [True, False])
def test_a_notebook_shows_progress_if_it_can_redraw(widgets: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if widgets else None)
    notebook = Console(file=io.StringIO(), force_jupyter=True)
    assert wanted(None, notebook) == widgets
    assert wanted(True, notebook) == widgets
    assert not wanted(False, notebook)
