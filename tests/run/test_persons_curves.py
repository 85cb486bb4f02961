"""Default runs of multilevel models without a linear predictor, against the values that made the data."""

from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pytest
from numpy.typing import NDArray

import stansub
from stansub.output import inference_data

pytestmark = pytest.mark.slow
PROGRAMS = Path(__file__).parent / "programs"
R_HAT = 1.015
Array = NDArray[Any]


def growth_curves(rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Array]]:
    """Logistic growth of 300 persons: limit, rate and midpoint of each."""
    persons, n = 300, 12_000
    one, t = rng.integers(1, persons + 1, n), rng.uniform(0, 10, n)
    limit, rate = np.exp(2 + 0.2 * rng.standard_normal(persons)), np.exp(-0.2 + 0.2 * rng.standard_normal(persons))
    midpoint = 5 + 0.7 * rng.standard_normal(persons)
    mean = limit[one - 1] / (1 + np.exp(-rate[one - 1] * (t - midpoint[one - 1])))
    data = {"N": n, "J": persons, "id": one, "t": t, "y": mean + 0.3 * rng.standard_normal(n)}
    return data, {"limit": limit, "rate": rate, "midpoint": midpoint}


def frailty(rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Array]]:
    """Recurrent events of 400 persons with a gamma frailty each, in five intervals."""
    persons, n = 400, 40_000
    one, interval = rng.integers(1, persons + 1, n), rng.integers(1, 6, n)
    x, exposure, w = rng.standard_normal(n), rng.uniform(0.5, 2, n), rng.gamma(2, 1 / 2, persons)
    hazard = np.exp(np.array([-1, -0.8, -0.5, -0.9, -1.2])[interval - 1] + 0.3 * x)
    data = {"N": n, "J": persons, "T": 5, "id": one, "interval": interval, "x": x, "exposure": exposure}
    return data | {"d": rng.poisson(exposure * hazard * w[one - 1])}, {"w": w}


def deviation(draws: Array, values: Array) -> float:
    """Return the root mean square of z-scores."""
    return float(np.sqrt(np.mean(((values - draws.mean(axis=0)) / draws.std(axis=0)) ** 2)))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("simulated", [growth_curves, frailty])
def test_chains_converge_to_the_values_that_made_the_data(simulated: Any, seed: int) -> None:
    """Random starts drive scales of growth curves towards 0; moves around the mode stick with frailties."""
    data, expected = simulated(np.random.default_rng(1))
    found = stansub.sample(PROGRAMS / f"{simulated.__name__}.stan", data, seed=seed)
    posterior = inference_data.group(found, "posterior")
    r_hat: Any = az.rhat(posterior)  # type: ignore[no-untyped-call]
    assert max(float(one.max()) for one in r_hat.values()) < R_HAT
    for name, values in expected.items():
        draws = np.log(posterior[name].values.reshape(-1, len(values)))
        # Five standard deviations of the root mean square of independent normal values.
        assert abs(deviation(draws, np.log(values)) - 1) < 5 / np.sqrt(2 * len(values))
        assert deviation(draws, np.log(values[::-1])) > 2
