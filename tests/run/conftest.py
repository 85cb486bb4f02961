"""Compiled programs and small data; libraries stay in the user's cache, so that they are compiled once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stansub
from stansub import CompiledModel

PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES = Path(__file__).parents[2] / "stan_models"


@pytest.fixture(scope="session")
def logistic() -> CompiledModel:
    """Logistic regression."""
    return stansub.compile_model(EXAMPLES / "logistic.stan")


@pytest.fixture(scope="session")
def normal_mean() -> CompiledModel:
    """Mean of a normal sample, by a function for each observation."""
    return stansub.compile_model(EXAMPLES / "normal_mean.stan")


@pytest.fixture(scope="session")
def quantities() -> CompiledModel:
    """A program with transformed parameters and generated quantities of every kind."""
    return stansub.compile_model(PROGRAMS / "quantities.stan")


@pytest.fixture(scope="session")
def logistic_data() -> dict[str, Any]:
    rng = np.random.default_rng(20)
    x = rng.standard_normal((2000, 2))
    y = rng.random(2000) < 1 / (1 + np.exp(0.5 - x @ [0.4, -0.7]))
    return {"N": 2000, "K": 2, "y": y.astype(int), "x": x}


@pytest.fixture(scope="session")
def mean_data() -> dict[str, Any]:
    return {"N": 5000, "y": np.random.default_rng(21).normal(1.0, 2.0, 5000), "sigma": 2.0}


@pytest.fixture(scope="session")
def sample_data() -> dict[str, Any]:
    """For `quantities`, with a limit that no draw passes."""
    return {"N": 40, "y": np.random.default_rng(22).normal(1.0, 2.0, 40), "limit": 1e6}
