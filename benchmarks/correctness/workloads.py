"""The posteriors of the study: programs and simulated data that mode finding and random walks find hard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

MODELS = Path(__file__).resolve().parent / "models"

Data = dict[str, Any]
Draws = Mapping[str, NDArray[Any]]

# What a warning must say to name the cause. R-hat's remedy speaks of several modes whatever the reason, and does not
# count.
_MODES = r"^(?!R-hat).*\bmodes?\b"
_LABELS = r"[Ll]abel"
_SLOW = r"R-hat|ESS|stuck|never moved|\btails?\b"

# Degrees of freedom of the t components.
_NU = 4.0


@dataclass(frozen=True)
class Workload:
    """A posterior with a known answer.

    Attributes
    ----------
    name : str
    program : str
        Stem of the Stan program's file.
    simulate : callable
        Makes the data and the parameter values that they were simulated with from a generator.
    truth : {"importance", "squared slope", "dose", "groups"}
        How the answer is found (`correctness.truth`).
    cause : str
        Regular expression, for a line of the warnings that names what makes this posterior hard.
    sort_by : str
        Variable by whose order components are labelled, where labels mean nothing; of all its kind then follow.
    data_seed : int
    plain : bool
        Whether the plain path (random walks without control variates) is tried on it by default.
    """

    name: str
    program: str
    simulate: Callable[[np.random.Generator], tuple[Data, Data]]
    truth: Literal["importance", "squared slope", "dose", "groups"]
    cause: str
    sort_by: str = ""
    data_seed: int = 1
    plain: bool = False

    @property
    def path(self) -> Path:
        """The Stan program."""
        return MODELS / f"{self.program}.stan"

    def data(self) -> tuple[Data, Data]:
        """The data, and the parameter values that they were simulated with."""
        return self.simulate(np.random.default_rng(self.data_seed))

    def quantities(self, draws: Draws) -> dict[str, NDArray[Any]]:
        """What is judged of draws of shape (chain, draw, ...), free of labels where labels mean nothing."""
        judged = {name: values for name, values in draws.items() if name not in ("mu_in_order", "mu_free")}
        if not self.sort_by:
            return judged
        order = np.argsort(judged[self.sort_by], axis=-1)
        return {name: np.take_along_axis(values, order, axis=-1) for name, values in judged.items()}


def _mixture(
    rng: np.random.Generator,
    *,
    weights: Sequence[float],
    means: Sequence[float],
    sds: Sequence[float],
    n: int,
    nu: float = 0.0,
    in_order: bool = True,
) -> tuple[Data, Data]:
    component = rng.choice(len(weights), n, p=weights)
    noise = rng.standard_t(nu, n) if nu else rng.standard_normal(n)
    y = np.asarray(means)[component] + np.asarray(sds)[component] * noise
    values = {"weight": list(weights), "mu_in_order": list(means), "mu_free": [], "sigma": list(sds)}
    if not in_order:
        values |= {"mu_in_order": [], "mu_free": list(means)}
    return {"K": len(weights), "N": n, "y": y, "nu": nu, "in_order": int(in_order)}, values


def _squared_slope(rng: np.random.Generator, *, n: int) -> tuple[Data, Data]:
    values = {"alpha": 0.5, "beta": 0.7, "sigma": 1.0}
    x = rng.standard_normal(n)
    y = values["alpha"] + values["beta"] ** 2 * x + values["sigma"] * rng.standard_normal(n)
    return {"N": n, "x": x, "y": y}, values


def _rare(rng: np.random.Generator, *, n: int) -> tuple[Data, Data]:
    """Four predictors that some 15 observations have, nearly all of them with the same outcome; two common ones."""
    alpha, beta = -0.5, np.array([4.0, 5.0, -4.0, 1.0, 0.5, -0.3])
    x = np.column_stack([rng.random((n, 4)) < 15 / n, rng.standard_normal((n, 2))]).astype(float)
    y = (rng.random(n) < 1 / (1 + np.exp(-alpha - x @ beta))).astype(int)
    return {"N": n, "K": 6, "y": y, "x": x}, {"alpha": alpha, "beta": beta}


def _dose(rng: np.random.Generator, *, n: int) -> tuple[Data, Data]:
    """Doses up to half of ED50: what they tell is little more than the slope at 0."""
    values = {"baseline": 1.0, "effect": 3.0, "log_ed50": 0.0, "log_hill": 0.0, "sigma": 1.0}
    dose = 2.0 ** -rng.integers(1, 9, n)
    response = values["baseline"] + values["effect"] * dose / (1 + dose)
    return {"N": n, "dose": dose, "y": response + values["sigma"] * rng.standard_normal(n)}, values


def _groups(rng: np.random.Generator, *, n: int, groups: int) -> tuple[Data, Data]:
    """Scale of the groups' means well below the standard error of each: the posterior reaches down to 0."""
    values: Data = {"mu": 1.0, "tau": 0.01, "sigma": 1.0}
    theta = values["mu"] + values["tau"] * rng.standard_normal(groups)
    group = rng.integers(groups, size=n)
    y = theta[group] + values["sigma"] * rng.standard_normal(n)
    return {"N": n, "J": groups, "group": group + 1, "y": y}, values | {"theta": theta}


_TWO = {"weights": (0.3, 0.7), "means": (-1.5, 1.5), "sds": (0.6, 1.0)}
_THREE = {"weights": (0.3, 0.5, 0.2), "means": (-2, 0, 3), "sds": (0.6, 0.8, 1.0)}
_APART = _THREE | {"means": (-4, 0, 5)}
_FIVE = {"weights": (0.15, 0.25, 0.2, 0.25, 0.15), "means": (-7, -3, 0, 3, 7), "sds": (0.6, 0.9, 0.7, 0.8, 1.0)}


def _components(name: str, parts: Mapping[str, Any], *, nu: float = 0.0, **options: Any) -> Workload:
    simulate = partial(_mixture, **parts, nu=nu, n=5000)
    return Workload(name, "mixture", simulate, "importance", _MODES, **options)


_ALL = (
    _components("normal-2", _TWO),
    _components("normal-3", _THREE, plain=True),
    _components("normal-3-apart", _APART, plain=True),
    _components("normal-5", _FIVE),
    _components("t-2", _TWO, nu=_NU),
    _components("t-3", _APART, nu=_NU),
    _components("t-5", _FIVE, nu=_NU),
    Workload(
        "normal-3-free",
        "mixture",
        partial(_mixture, **_APART, n=5000, in_order=False),
        "importance",
        _LABELS,
        sort_by="mu",
    ),
    Workload("squared-slope", "squared_slope", partial(_squared_slope, n=5000), "squared slope", _MODES, plain=True),
    Workload("rare", "rare", partial(_rare, n=8000), "importance", _SLOW, plain=True),
    Workload("dose", "dose", partial(_dose, n=8000), "dose", _SLOW, plain=True),
    Workload("groups", "groups", partial(_groups, n=8000, groups=8), "groups", _SLOW),
)
WORKLOADS = {workload.name: workload for workload in _ALL}
