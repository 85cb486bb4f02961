"""Programs whose terms read rows that data name, with data: cut into blocks, and proved."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated import Compiled
from test_identity import check_identity

from stansub.types import FloatArray

SUMS = Path(__file__).parent / "programs" / "sums"
N = 60


def normals(*shape: int) -> FloatArray:
    return np.random.default_rng(3).standard_normal(shape)


def integers(low: int, high: int, *shape: int) -> Any:
    return np.random.default_rng(4).integers(low, high, shape, endpoint=True)


DATA: dict[str, dict[str, Any]] = {
    "partners": {"N": N, "y": normals(N), "partner": integers(1, N, N)},
    "grouped_regression": {
        **{"N": N, "K": 2, "J": 4, "x": normals(N, 2), "y": integers(0, 5, N)},
        **{"group": integers(1, 4, N), "exposure": np.exp(normals(N)), "partner": integers(1, N, N)},
    },
    "mixture_of_partners": {"N": N, "y": normals(N), "partner": integers(1, N, N)},
    "brms_like": {
        **{"N": N, "Y": normals(N), "K": 3, "X": normals(N, 3), "N_1": 5, "J_1": integers(1, 5, N)},
        **{"Z_1_1": normals(N, 1)[:, 0], "prior_only": 0, "partner": integers(1, N, N)},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(DATA))
def test_they_qualify(name: str, compiled: Compiled) -> None:
    model = compiled(SUMS / f"{name}.stan")
    check_identity(model.with_data(DATA[name], block_size=7), model, DATA[name])
