"""Progress of CmdStan, from the files of its chains."""

import io
from pathlib import Path

from rich.console import Console

from stansub.nuts.base import Settings
from stansub.nuts.progress import file_progress
from stansub.run.progress import Display

SETTINGS = Settings(
    chains=2, parallel_chains=2, iter_warmup=2, iter_sampling=3, seed=1, adapt_delta=0.8, max_treedepth=10
)


def test_bars_follow_the_lines_of_the_files(tmp_path: Path) -> None:
    outputs = [tmp_path / f"chain_{number}.csv" for number in (1, 2)]
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    with file_progress(outputs, SETTINGS, Display(console, True)):
        draws = "".join(f"{draw}.5,1\n" for draw in range(5))
        outputs[0].write_text(f"# model = m\nlp__,x\n# adapted\n{draws}# Elapsed\n")
        outputs[1].write_text("lp__,x\n0.5,1\n1.5,")  # a line that is not yet complete
    assert isinstance(console.file, io.StringIO)
    *_, first, second = (line for line in console.file.getvalue().replace("\r", "\n").splitlines() if "Chain" in line)
    assert "5/5" in first
    assert "done" in first
    assert "1/5" in second
    assert "warmup" in second
    assert "accept" not in first
