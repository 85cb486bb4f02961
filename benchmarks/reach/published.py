"""Programs of a posteriordb checkout that have reference draws, with their data; the truth about them is not known."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

from measure import Subject

from stansub.errors import InputError

VARIABLE = "STANSUB_POSTERIORDB"


def folder() -> Path | None:
    """The checkout's `posterior_database`, where the environment names a checkout.

    Raises
    ------
    InputError
        When there is none at that path.
    """
    given = os.environ.get(VARIABLE)
    if not given:
        return None
    for place in (Path(given), Path(given) / "posterior_database"):
        if (place / "posteriors").is_dir():
            return place
    raise InputError(f"{VARIABLE}={given}: no posteriordb checkout (it has no folder `posteriors`)")


def subjects(place: Path) -> Iterator[Subject]:
    """Posteriors with reference draws, by name."""
    for path in sorted((place / "posteriors").glob("*.json")):
        posterior = json.loads(path.read_text(encoding="utf-8"))
        program = place / "models" / "stan" / f"{posterior['model_name']}.stan"
        data = place / "data" / "data" / f"{posterior['data_name']}.json.zip"
        if posterior.get("reference_posterior_name") and program.exists() and data.exists():
            with zipfile.ZipFile(data) as archive:
                values = json.loads(archive.read(archive.namelist()[0]))
            yield Subject(path.stem, "posteriordb", program, values)
