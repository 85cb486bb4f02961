"""Draws against a reference posterior sampled by CmdStan's NUTS.

``STANSUB_REFERENCE`` names a folder with ``mnist7v9.stan``, ``mnist7v9.npz`` (draws of beta) and
``make_data.py``, which writes the data: ``python make_data.py mnist7v9 out.json``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

import stansub

if TYPE_CHECKING:
    from stansub.decision.boundary import Test

REFERENCE = Path(os.environ.get("STANSUB_REFERENCE", "no reference"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not REFERENCE.is_dir(), reason="STANSUB_REFERENCE names no folder of reference draws"),
]


def z_scores(draws: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.float64]:
    """Differences of the posterior means in Monte Carlo standard errors; arrays of shape (chain, draw, parameter)."""
    import arviz as az

    def error(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([float(az.mcse(values[:, :, k], method="mean")) for k in range(values.shape[2])])

    return (draws.mean(axis=(0, 1)) - reference.mean(axis=(0, 1))) / np.hypot(error(draws), error(reference))


def sd_ratios(draws: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.float64]:
    return draws.std(axis=(0, 1)) / reference.std(axis=(0, 1))


@pytest.fixture(scope="module")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> tuple[stansub.CompiledModel, Path, NDArray[np.float64]]:
    """Logistic regression of the digits 7 and 9 on 50 principal components (12,214 observations)."""
    data = tmp_path_factory.mktemp("reference") / "mnist7v9.json"
    subprocess.run([sys.executable, REFERENCE / "make_data.py", "mnist7v9", data], check=True)
    with np.load(REFERENCE / "mnist7v9.npz") as arrays:
        beta = arrays["beta"]
    return stansub.compile_model(REFERENCE / "mnist7v9.stan"), data, beta


def sample(compiled: stansub.CompiledModel, data: Path, test: Test | None) -> NDArray[np.float64]:
    idata = stansub.sample(
        compiled, data, chains=4, iter_warmup=20_000, iter_sampling=100_000, thin=10, seed=7, test=test, audit=0.0
    )
    draws: NDArray[np.float64] = idata["posterior"]["beta"].to_numpy()
    return draws


@pytest.mark.parametrize("test", [stansub.Exact(), None], ids=["exact", "default"])
def test_mnist_agrees_with_nuts(
    mnist: tuple[stansub.CompiledModel, Path, NDArray[np.float64]], test: Test | None
) -> None:
    compiled, data, reference = mnist
    draws = sample(compiled, data, test)
    # 50 parameters: the largest of 50 standard normals is below 4 with probability 0.997.
    assert np.abs(z_scores(draws, reference)).max() < 4
    # The ratios' own errors are 2 to 3 percent each, and the parameters are many.
    assert abs(sd_ratios(draws, reference).mean() - 1) < 0.02


def test_a_loose_test_is_caught(mnist: tuple[stansub.CompiledModel, Path, NDArray[np.float64]]) -> None:
    compiled, data, reference = mnist
    draws = sample(compiled, data, stansub.Austerity(epsilon=0.2, looks=stansub.Geometric(first=5)))
    assert sd_ratios(draws, reference).mean() > 1.1
