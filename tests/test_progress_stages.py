"""Stages, how far they are, and the time limit."""

import threading
import time

import pytest
from clocks import Clock

from stansub.clock import now
from stansub.errors import RunError
from stansub.progress import Progress, StoppedError, TimeLimitError, as_progress
from stansub.wording import duration


def test_texts_of_one_name_are_one_stage() -> None:
    ended: list[str] = []
    progress = Progress(on_end=lambda name, seconds: ended.append(name))
    for text in (
        "Compiling m (about half a minute)",
        "Loading data: d.json",
        "Proving",
        "Proving",
        "Loading data: again",
    ):
        progress(text)
    assert ended == ["Compiling m", "Loading data", "Proving"]
    progress.end()
    progress.end()
    assert ended[3:] == ["Loading data"]
    assert list(progress.seconds) == ["Compiling m", "Loading data", "Proving"], "a stage that comes again adds up"
    assert progress.stage is None


def test_a_count_gives_the_time_left(clock: Clock) -> None:
    progress = Progress()
    progress("Differentiating: 60 blocks")
    assert progress.stage is not None
    assert progress.stage.line == "Differentiating: 60 blocks; 0.0 s so far"
    clock.advance(20)
    progress.advance(15, 60)
    assert progress.stage.line == "Differentiating: 60 blocks; 20 s so far, 15 of 60, about 60 s left"
    clock.advance(20)
    progress.advance(5, 60)  # the same once more
    assert progress.stage.seconds_left is None, "counted anew"
    clock.advance(10)
    progress.advance(15, 60)
    assert progress.stage.line == "Differentiating: 60 blocks; 50 s so far, 15 of 60, about 30 s left"


@pytest.mark.parametrize("call", ["text", "advance", "check"])
def test_every_call_meets_the_time_limit(call: str, clock: Clock) -> None:
    progress = Progress(max_time=30)
    calls = {"text": lambda: progress("Next"), "advance": lambda: progress.advance(1, 4), "check": progress.check}
    progress("Compiling m (about half a minute)")
    clock.advance(14)
    progress("Blinking")
    progress("Proving the cut", remedy="take fewer")
    progress.advance(1, 4)
    clock.advance(15.5)
    assert progress.left() == 0.5
    calls[call]() if call != "text" else progress("Proving the cut", remedy="take fewer")
    clock.advance(1)
    with pytest.raises(TimeLimitError) as caught:
        calls[call]()
    message = str(caught.value)
    assert isinstance(caught.value, RunError)
    assert message.startswith(
        "`max_time=30` was reached during set-up, before the first draw, in the stage 'Proving the cut;"
    )
    assert message.endswith("; stages before it: Compiling m 14 s; raise `max_time` or take fewer")
    assert "Blinking" not in message, "took no time"


def test_a_stop_reaches_work_on_its_way() -> None:
    progress = Progress()
    progress("Working")
    progress.stop[0] = 1
    with pytest.raises(StoppedError):
        progress.advance(1, 2)


def test_any_function_of_a_text_will_do() -> None:
    texts: list[str] = []
    progress = as_progress(texts.append)
    progress("One")
    progress.advance(1, 2)
    assert texts == ["One"]
    assert as_progress(progress) is progress
    as_progress(None)("nobody hears")


def test_stages_of_several_threads_do_not_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_slowly() -> float:
        found = now()
        time.sleep(1e-4)
        return found

    monkeypatch.setattr("stansub.clock.now", read_slowly)
    progress = Progress()
    threads = [threading.Thread(target=lambda n=n: [progress(f"Stage {n}") for _ in range(50)]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    progress.end()
    assert sorted(progress.seconds) == [f"Stage {n}" for n in range(4)]
    assert sum(progress.seconds.values()) <= now() - progress.began


@pytest.mark.parametrize(
    ("seconds", "message"),
    [(0, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (119, "119 s"), (125, "2 min"), (9000, "2.5 h")],
)
def test_durations(seconds: float, message: str) -> None:
    assert duration(seconds) == message
