"""What `stansub new` writes: a program, example data simulated from it, and a README with the commands."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from numpy.typing import NDArray

from stansub.errors import InputError, RunError
from stansub.output import files
from stansub.types import FloatArray

PROGRAM, DATA, README = "model.stan", "data.parquet", "README.md"
COLUMNS = "x=[x1,x2,x3]"
_INTERCEPT, _SLOPES = -0.5, (0.8, -0.4, 0.2)
_N_GROUPS = 30

Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Starter:
    """A program to start from."""

    title: str
    """What it is a model of."""
    columns: Callable[[np.random.Generator, FloatArray], Columns]
    """From a generator and linear predictors, shape (n,): further columns of the table, ``y`` among them."""
    others: Mapping[str, float] = field(default_factory=dict)
    """True values of further parameters."""
    n: int = 100_000
    """Rows of the example, if none are asked for."""

    @property
    def truth(self) -> dict[str, float]:
        """Parameters that the example is simulated with."""
        slopes = {f"beta[{k}]": value for k, value in enumerate(_SLOPES, 1)}
        return {"alpha": _INTERCEPT, **slopes, **self.others}


def _binary(rng: np.random.Generator, eta: FloatArray) -> NDArray[np.int64]:
    return (rng.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(np.int64)


def _in_groups(rng: np.random.Generator, eta: FloatArray, scale: float) -> Columns:
    group = rng.integers(_N_GROUPS, size=len(eta))
    effects = scale * rng.standard_normal(_N_GROUPS)
    names = np.array([f"g{k + 1:02d}" for k in range(_N_GROUPS)], dtype=object)
    return {"group": names[group], "y": _binary(rng, eta + effects[group])}


def _overdispersed(rng: np.random.Generator, eta: FloatArray, shape: float) -> NDArray[np.int64]:
    return rng.poisson(np.exp(eta) * rng.gamma(shape, 1 / shape, len(eta)))


STARTERS: Mapping[str, Starter] = {
    "logistic": Starter("A logistic regression", lambda rng, eta: {"y": _binary(rng, eta)}),
    "linear": Starter(
        "A linear regression", lambda rng, eta: {"y": eta + 0.7 * rng.standard_normal(len(eta))}, {"sigma": 0.7}
    ),
    "poisson": Starter("A Poisson regression", lambda rng, eta: {"y": rng.poisson(np.exp(eta))}),
    "negative_binomial": Starter(
        "A regression of overdispersed counts", lambda rng, eta: {"y": _overdispersed(rng, eta, 2.0)}, {"phi": 2.0}
    ),
    "multilevel": Starter(
        f"A logistic regression with effects of {_N_GROUPS} groups",
        lambda rng, eta: _in_groups(rng, eta, 0.6),
        {"tau": 0.6},
        n=20_000,
    ),
}


def simulate(name: str, *, rows: int | None = None, seed: int = 1) -> pd.DataFrame:
    """Return the example data of a starter: columns x1, x2, x3, y, and group of the multilevel one."""
    starter, rng = STARTERS[name], np.random.default_rng(seed)
    x = rng.standard_normal((starter.n if rows is None else rows, len(_SLOPES)))
    predictors = pd.DataFrame(x, columns=[f"x{k + 1}" for k in range(x.shape[1])])
    return predictors.assign(**starter.columns(rng, _INTERCEPT + x @ np.array(_SLOPES)))


def create(folder: Path, name: str, *, rows: int | None = None, seed: int = 1) -> list[Path]:
    """Write a starter's files to a new folder and return their paths.

    Raises
    ------
    InputError
        If there is no such starter, or there is a file or a folder of that name already.
    RunError
        If the files cannot be written.
    """
    if name not in STARTERS:
        raise InputError(f"unknown likelihood {name}; choose one of {', '.join(STARTERS)}")
    target, found = files.locate(folder)
    if found is not None:
        raise InputError(f"{folder} already exists; choose another name")
    table = io.BytesIO()
    simulate(name, rows=rows, seed=seed).to_parquet(table)
    templates = Environment(loader=PackageLoader("stansub.cli"), undefined=StrictUndefined, keep_trailing_newline=True)
    readme = templates.get_template("README.md.j2").render(starter=STARTERS[name], columns=COLUMNS)
    program = resources.files("stansub.cli").joinpath("templates", f"{name}.stan").read_bytes()
    try:
        target.mkdir()
    except OSError as error:
        raise RunError(f"could not create {folder}: {error.strerror}; choose another place") from error
    contents = {PROGRAM: program, DATA: table.getvalue(), README: readme.encode()}
    return [files.write(target / file, content) for file, content in contents.items()]
