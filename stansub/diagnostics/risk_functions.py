"""Test functions whose posterior means are estimated: scalar parameters and quantities of some observations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub.errors import InputError
from stansub.output.layout import Layout
from stansub.stan.posterior import Posterior
from stansub.types import FloatArray

# Groups of test functions: the parameters, and their squared deviations from the true means.
MEANS, VARIANCES = "means", "variances"

# Names of quantities used as predictive if a program has them.
PREDICTIVE = ("log_lik", "y_rep")

# Maximum number of a quantity's values, evenly spread over the observations.
MAX_VALUES = 300


class Functions:
    """Values of the test functions at unconstrained positions; safe to share between threads.

    Parameters
    ----------
    posterior : Posterior
        Of the program.
    quantities : sequence of str, optional
        Transformed parameters or generated quantities; by default those in `PREDICTIVE` that the program has.

    Attributes
    ----------
    quantities : tuple of str
        The quantities used; groups of test functions have their names.
    parameters : Layout
        The program's constrained parameters.

    Raises
    ------
    InputError
        If the program lacks a quantity.
    """

    def __init__(self, posterior: Posterior, quantities: Sequence[str] | None = None) -> None:
        model = posterior.full
        self._model = model
        self.parameters = Layout.from_names(model.param_names())
        self._places = self.parameters.places
        written = model.param_names(include_tp=True, include_gq=True)
        everything = Layout.from_names(written)
        derived = [name for name in everything.names if name not in self.parameters.names]
        if quantities is None:
            quantities = [name for name in PREDICTIVE if name in derived]
        for name in quantities:
            if name not in derived:
                raise InputError(
                    f"{posterior.name}: {name!r} is not a transformed parameter or generated quantity of the program; "
                    f"it has {', '.join(derived) or 'none'}"
                )
        self.quantities = tuple(dict.fromkeys(quantities))
        self._n_written = len(written)
        self._values = {name: _spread(everything.columns[name].ravel()) for name in self.quantities}

    def of_parameters(self, theta: FloatArray) -> FloatArray:
        """Return constrained parameters at one position, shape (n_parameters,), each variable's values in C order."""
        return self._model.param_constrain(theta)[self._places]

    def of_quantities(self, thetas: FloatArray, rng: Any) -> dict[str, FloatArray]:
        """Return quantities at positions of shape (n, dim), by name, each (n, n_values).

        Raises
        ------
        RunError
            If the program raises an error there.
        """
        out = np.empty(self._n_written)
        values = {name: np.empty((len(thetas), places.size)) for name, places in self._values.items()}
        for row, theta in enumerate(thetas):
            self._model.param_constrain(theta, include_tp=True, include_gq=True, rng=rng, out=out)
            for name, places in self._values.items():
                values[name][row] = out[places]
        return values

    def generator(self, seed: np.random.SeedSequence) -> Any:
        """Return a generator for generated quantities; one per thread."""
        return self._model.rng(int(seed.generate_state(1)[0]))


def _spread(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return at most `MAX_VALUES` of the places, evenly spread."""
    n = min(MAX_VALUES, places.size)
    return places[np.linspace(0, places.size - 1, n).astype(np.int64)]
