"""Programs of a posteriordb checkout that have reference draws, with their data; the truth about them is not known."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from measure import Subject

from stansub.errors import InputError
from stansub.output import inference_data
from stansub.output.layout import Layout

if TYPE_CHECKING:
    from stansub.output.inference_data import InferenceData

VARIABLE = "STANSUB_POSTERIORDB"


def folder() -> Path:
    """The `posterior_database` of the checkout that the environment names.

    Raises
    ------
    InputError
        If it names none.
    """
    given = os.environ.get(VARIABLE)
    if not given:
        raise InputError(f"{VARIABLE} must name a checkout of posteriordb")
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
        draws = (
            place / "reference_posteriors" / "draws" / "draws" / f"{posterior.get('reference_posterior_name')}.json.zip"
        )
        if all(one.exists() for one in (program, data, draws)):
            yield Subject(path.stem, "posteriordb", program, _unpacked(data), reference=reference(draws))


def reference(path: Path) -> InferenceData:
    """Draws of a file, of all chains."""
    chains = _unpacked(path)
    layout = Layout.from_names(name.translate(str.maketrans("[,", "..", "]")) for name in chains[0])
    values = np.array([list(chain.values()) for chain in chains], np.float64)
    tree = inference_data.build(posterior=layout.split(values.transpose(0, 2, 1)), sample_stats={}, attrs={})
    return inference_data.container(tree)


def _unpacked(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(archive.namelist()[0]))
