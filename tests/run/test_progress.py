"""What is shown of a run, and where nothing is."""

import importlib.util
import io

import pytest
from clocks import Clock, wait_until
from rich.console import Console

from stansub.progress import Progress
from stansub.run import progress as display
from stansub.run.chain import Status
from stansub.run.progress import Display, chain_progress, leaving_lines, stage_progress, wanted

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
    with chain_progress(4, Progress(), Display(console, True)) as view:
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
    with chain_progress(4, Progress(), Display(console, False)) as view, stage_progress(Display(console, False)) as log:
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


def test_redirected_output_has_a_line_of_each_stage_that_took_some_time(clock: Clock) -> None:
    console = Console(file=io.StringIO())
    with stage_progress(Display(console, True)) as log:
        log("Reading")
        clock.advance(0.9)
        log("Compiling m (about half a minute)")
        clock.advance(5)
        log("Loading [data]: d.json")
        clock.advance(1.1)
        log("Blinking")
    assert screen(console) == "Compiling m: 5.0 s\nLoading [data]: 1.1 s\n"


def test_redirected_output_hears_of_a_stage_that_goes_on(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "_POLL", 0.01)
    console = Console(file=io.StringIO())
    with stage_progress(Display(console, True)) as log:
        log("Control variates: 80 blocks")
        log.advance(20, 80)
        for passed, n_lines in ((4, 0), (7, 1), (8, 1), (3, 2), (29, 3), (29, 3), (2, 4)):  # the longer, the less often
            clock.advance(passed)
            seen = clock.n_looks
            wait_until(lambda seen=seen: clock.n_looks >= seen + 3)
            assert len(screen(console).splitlines()) == n_lines
    first, second, *_, fourth, ended = screen(console).splitlines()
    assert first == "Control variates: 80 blocks; 11 s so far, 20 of 80, about 33 s left"
    assert second == "Control variates: 80 blocks; 22 s so far, 20 of 80, about 66 s left"
    assert fourth.startswith("Control variates: 80 blocks; 82 s so far")
    assert ended == "Control variates: 82 s"


def test_redirected_output_hears_of_sampling_and_meetings(clock: Clock) -> None:
    console = Console(file=io.StringIO())
    pooling = Progress(on_end=leaving_lines(console))
    with chain_progress(4, pooling, Display(console, True)) as view:
        assert view is not None
        view.show(STATUSES, None)
        clock.advance(12)
        wait_until(lambda: len(screen(console).splitlines()) == 1)
        pooling("Pooling the chains: trying proposals")
        pooling.advance(3, 8)
        clock.advance(15)
        wait_until(lambda: len(screen(console).splitlines()) == 2)
        pooling.end()
    assert screen(console).splitlines() == [
        "Sampling; 12 s so far, 20,250 of 48,000, about 16 s left",
        "Pooling the chains: trying proposals; 15 s so far, 3 of 8, about 25 s left",
        "Pooling the chains: 15 s",
    ]


class Closed(io.StringIO):
    """A pipe that nobody reads any more."""

    tried = 0

    def write(self, text: str) -> int:
        self.tried += 1
        raise BrokenPipeError(32, "Broken pipe")


def test_a_run_goes_on_when_nobody_reads_its_lines(clock: Clock) -> None:
    done, pipe = False, Closed()
    with stage_progress(Display(Console(file=pipe), True)) as log:
        log("Compiling")
        clock.advance(12)
        wait_until(lambda: pipe.tried)
        log("Loading")
        done = True
    assert done
    assert log.seconds["Compiling"] == 12


def test_a_terminal_shows_the_stage_how_far_it_is_and_leaves_a_line(clock: Clock) -> None:
    console = terminal(100)
    with stage_progress(Display(console, True)) as log:
        log("Control variates: 80 blocks")
        wait_until(lambda: "Control variates: 80 blocks" in screen(console))  # before anything is counted
        log.advance(20, 80)
        clock.advance(30)
        log.advance(40, 80)
        wait_until(lambda: "40 of 80, about 30 s left" in screen(console))
        assert "━" in screen(console)
    assert "Control variates: 30 s\n" in screen(console)
