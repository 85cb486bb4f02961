"""What is shown of a run, and where nothing is."""

import importlib.util
import io
import time

import pytest
from rich.console import Console

from stansub.progress import Progress
from stansub.run import progress as display
from stansub.run.chain import Status
from stansub.run.progress import chain_progress, leaving_lines, stage_progress, wanted

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
    with chain_progress(4, Progress(), show=True, console=console) as view:
        assert view is not None
        view.show(STATUSES, 1.0123)
        console.file = io.StringIO()
        assert isinstance(view, display.ProgressView)
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
    with chain_progress(4, Progress(), show=False, console=console) as view, stage_progress(console, show=False) as log:
        assert view is None
        log("Compiling")
    assert list(log.seconds) == ["Compiling"]
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


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds are tenths of them."""
    for name in ("_SHORT", "_FIRST_LINE", "_POLL"):
        monkeypatch.setattr(display, name, getattr(display, name) / 50)


def test_redirected_output_has_a_line_of_each_stage_that_took_some_time(hasty: None) -> None:
    console = Console(file=io.StringIO())
    with stage_progress(console, show=True) as log:
        log("Reading")
        log("Compiling m (about half a minute)")
        time.sleep(0.1)
        log("Loading [data]: d.json")
        time.sleep(0.1)
        log("Blinking")
    assert screen(console) == "Compiling m: 0.1 s\nLoading [data]: 0.1 s\n"


def test_redirected_output_hears_of_a_stage_that_goes_on(hasty: None) -> None:
    console = Console(file=io.StringIO())
    with stage_progress(console, show=True) as log:
        log("Control variates: 80 blocks")
        log.advance(20, 80)
        time.sleep(0.8)
    lines = screen(console).splitlines()
    assert 1 <= len(lines) <= 4, "the longer, the less often"
    assert lines[0].startswith("Control variates: 80 blocks; 0.")
    assert lines[0].endswith(" s so far, 20 of 80")


def test_redirected_output_hears_of_sampling_and_meetings(hasty: None) -> None:
    console = Console(file=io.StringIO())
    meeting = Progress(on_end=leaving_lines(console))
    with chain_progress(4, meeting, show=True, console=console) as view:
        assert view is not None
        view.show(STATUSES, None)
        time.sleep(0.3)
        meeting("Meeting of the chains: trying proposals")
        meeting.advance(3, 8)
        time.sleep(0.4)
        meeting.end()
    lines = screen(console).splitlines()
    assert lines[0].startswith("Sampling; 0.2 s so far, 20,250 of 48,000")
    assert any(line.startswith("Meeting of the chains: trying proposals; ") and "3 of 8" in line for line in lines)
    assert lines[-1].startswith("Meeting of the chains: 0.4 s")


class Closed(io.StringIO):
    """A pipe that nobody reads any more."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_run_goes_on_when_nobody_reads_its_lines(hasty: None) -> None:
    done = False
    with stage_progress(Console(file=Closed()), show=True) as log:
        log("Compiling")
        time.sleep(0.5)
        log("Loading")
        done = True
    assert done
    assert log.seconds["Compiling"] > 0.4


def test_a_terminal_shows_the_stage_how_far_it_is_and_leaves_a_line(hasty: None) -> None:
    console = terminal(100)
    with stage_progress(console, show=True) as log:
        log("Control variates: 80 blocks")
        time.sleep(0.3)
        log.advance(20, 80)
        time.sleep(1.2)
        log.advance(40, 80)
        time.sleep(0.3)
        during = screen(console)
    assert "Control variates: 80 blocks" in during, "before anything is counted"
    assert "40 of 80, about 1." in during
    assert "━" in during
    assert "Control variates: 1.8 s\n" in screen(console)
