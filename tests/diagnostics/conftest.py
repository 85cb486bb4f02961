"""Draws of a program that several test files share."""

import json
from pathlib import Path

import numpy as np
import pytest
from sampled import QUANTITIES, SHORT

import stansub
from stansub.output import inference_data


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and draws of a normal sample, with ``log_lik``."""
    folder = tmp_path_factory.mktemp("loo")
    y = np.random.default_rng(22).normal(1.0, 2.0, 70)
    (folder / "data.json").write_text(json.dumps({"N": 70, "y": y.tolist(), "limit": 1e6}))
    draws = stansub.sample(str(QUANTITIES), str(folder / "data.json"), observation_level=True, **SHORT)
    inference_data.write(draws, folder / "draws.nc")
    return folder
