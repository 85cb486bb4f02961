"""What is said of downloads that fail."""

from pathlib import Path

import pytest

from stansub.stan.toolchain.download import fetch_stanc, without_meter

SAID = (
    "  % Total    % Received % Xferd  Average Speed   Time    Time     Time  Current\n"
    "                                 Dload  Upload   Total   Spent    Left  Speed\n"
    "\r  0     0    0     0    0     0      0      0 --:--:-- --:--:-- --:--:--     0"
    "\r  0     0    0     0    0     0      0      0 --:--:-- --:--:-- --:--:--     0\n"
    "curl: (7) Failed to connect to 127.0.0.1 port 9 after 0 ms: Couldn't connect to server\n"
)


def test_the_progress_meter_of_curl_is_left_out() -> None:
    assert without_meter(SAID) == SAID.splitlines()[-1]


@pytest.mark.parametrize(
    "meter",
    [
        " 0     0    0     0    0     0      0      0 --:--:-- --:--:-- --:--:--     0",
        " 12 15.0M   12 1915k    0     0   310k      0  0:00:49  0:00:06  0:00:43  402k",
        "100 15.0M  100 15.0M    0     0  2310k      0  0:00:06  0:00:06 --:--:-- 2402k",
        "  0     0    0     0    0     0      0      0 --:--:--  0:02:10 --:--:--     0",
    ],
)
def test_the_reason_may_follow_the_figures(meter: str) -> None:
    assert without_meter(f"{meter}\r{meter}curl: (28) Timeout\nmake: *** [stanc] Error 28\n") == (
        "curl: (28) Timeout\nmake: *** [stanc] Error 28"
    )


def test_other_figures_stay() -> None:
    text = "12 errors in 3 files\n1 2 3 4 5 6 7 8 9"
    assert without_meter(text) == text


def test_the_reason_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "said.txt").write_text(SAID)
    (tmp_path / "Makefile").write_text("bin/stanc:\n\t@cat said.txt >&2; exit 3\n")
    reason = fetch_stanc(tmp_path)
    assert reason is not None
    assert reason.startswith("stanc was not downloaded: curl: (7)")
    assert "\n" not in reason
    assert "--:--" not in reason
