"""Files of draws that are written in pieces."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stansub.errors import RunError
from stansub.output import appending, inference_data

N_FIRST, N_DRAWS = 64, 192


def write(folder: Path) -> None:
    def piece(start: int) -> dict[str, Any]:
        return {"posterior": {"theta": np.arange(start, start + N_FIRST, dtype=float) + np.zeros((2, 1))}}

    with appending.DrawsFile(folder / "draws.nc") as file:
        file.begin(inference_data.build(**piece(0), sample_stats={}, attrs={}), N_DRAWS)
        for start in range(N_FIRST, N_DRAWS, N_FIRST):
            file.append(piece(start), start)
        file.note(stopped="no")
        file.commit()


def test_wherever_a_disk_fills_up_it_is_said_and_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, room, needed = appending._Tolerant.write, float("inf"), 0

    def limited(file: Any, content: Any) -> int:
        nonlocal needed
        needed += len(content)
        if needed > room:
            file.error = OSError(28, "No space left on device")
        return plain(file, content)

    monkeypatch.setattr(appending._Tolerant, "write", limited)
    write(tmp_path)
    stored = inference_data.group(inference_data.load(tmp_path / "draws.nc"), "posterior")["theta"].values
    np.testing.assert_array_equal(stored, np.arange(N_DRAWS) + np.zeros((2, 1)))
    (tmp_path / "draws.nc").unlink()
    for one in np.linspace(0, needed - 1, 12):
        room, needed = float(one), 0
        with pytest.raises(RunError, match=r"draws\.nc: No space left on device"):
            write(tmp_path)
        assert not list(tmp_path.iterdir())
