"""Runs that end before their time."""

import pytest

from stansub.run import checkpoint


def stop_after(monkeypatch: pytest.MonkeyPatch, n_steps: int) -> None:
    """Have a run end with the first checkpoint after so many steps of both chains; nothing is written afterwards."""
    write = checkpoint.CheckpointWriter.write

    def until(writer: checkpoint.CheckpointWriter) -> None:
        write(writer)
        if sum(chain.status.steps for chain in writer._chains) >= n_steps:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint.CheckpointWriter, "write", until)
