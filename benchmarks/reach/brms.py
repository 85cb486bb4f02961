"""Programs and data that brms itself writes for formulas of many kinds; nothing of them is kept but the figures."""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import corpus
from measure import Subject

from stansub.errors import InputError
from stansub.stan.data import rdump
from stansub.stan.reading.old_syntax import converted

SCRIPT = Path(__file__).with_name("brms.R")
_OBSTACLES = {one.name: one for one in vars(corpus).values() if isinstance(one, corpus.Obstacle)}


def write(folder: Path, n: int) -> None:
    """Have brms write its programs, and data of ``n`` observations, into a folder.

    Raises
    ------
    InputError
        When R or brms is not installed, or brms fails.
    """
    rscript = shutil.which("Rscript")
    if rscript is None:
        raise InputError("--brms needs R with brms and rstan: no Rscript found (Debian: apt install r-cran-brms)")
    done = subprocess.run([rscript, SCRIPT, folder, str(n)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"{SCRIPT.name} failed: {done.stderr.strip().splitlines()[-1]}")


def subjects(folder: Path) -> Iterator[Subject]:
    """Yield what `write` has written, with arrays in today's syntax."""
    with (folder / "formulas.csv").open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    for row in rows:
        program = folder / f"{row['name']}.stan"
        program.write_text(converted(program.read_text(encoding="utf-8")), encoding="utf-8")
        dump = folder / f"{row['name']}.R"
        data = rdump.parse(dump.read_text(encoding="utf-8"), dump.name)
        obstacle = _OBSTACLES[row["obstacle"]] if row["obstacle"] else None
        yield Subject(row["name"], f"`{row['about']}`", program, data, obstacle is None, obstacle)
