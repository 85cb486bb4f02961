"""The truth with which estimates are compared: posterior means from reference draws, with their error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stansub.diagnostics.risk_functions import MEANS, VARIANCES, Functions
from stansub.diagnostics.subsets import unconstrained_draws
from stansub.errors import InputError
from stansub.kernels.proposals import RandomWalk, optimal_walk
from stansub.output import inference_data
from stansub.output.inference_data import InferenceData
from stansub.output.statistics import scalars, table
from stansub.stan.posterior import Posterior
from stansub.types import FloatArray

if TYPE_CHECKING:
    import pandas as pd


# Draws at which quantities are evaluated, and from which proposal and starts are made.
_DRAWS = 1000

# Functions whose correlations are computed.
_CORRELATED = 500

# R-hat above which reference draws are not trusted (Vehtari et al. 2021).
MAX_R_HAT = 1.01


@dataclass(frozen=True)
class Target:
    """True means of a group of test functions."""

    moving: NDArray[np.int64]
    """Shape (n_functions,): indices of the functions that are not constant; the others are left out."""
    mean: FloatArray
    sd: FloatArray
    mcse: FloatArray
    """Shape (n_functions,): posterior mean and sd, and the Monte Carlo standard error of the mean."""
    shared: float
    """Mean absolute correlation of the functions, including with themselves; the errors of their truths have the same
    correlations.
    """

    @property
    def floor(self) -> float:
        """Return the mean squared Monte Carlo error of the truth, in squared posterior sds."""
        return float(np.mean((self.mcse / self.sd) ** 2))

    def errors(self, means: FloatArray) -> FloatArray:
        """Return estimates (of all functions, on the last axis) less truth, in posterior sds."""
        return (means[..., self.moving] - self.mean) / self.sd


@dataclass(frozen=True)
class Truth:
    """What runs and their errors need of the reference draws."""

    source: str
    """Source of the draws."""
    draws: FloatArray
    """Shape (n, dim): unconstrained positions, for starts."""
    proposal: RandomWalk
    """Steps with the covariance of the draws (see `stansub.kernels.proposals.optimal_walk`)."""
    centre: FloatArray
    """Shape (n_parameters,): posterior means of the parameters."""
    targets: dict[str, Target]
    """True means by group of test functions."""
    r_hat: float
    ess: float
    """R-hat and ESS of the worst parameter."""


def check_same(reference: InferenceData, facts: dict[str, Any], source: str) -> None:
    """Raise InputError for reference draws of another model or data; draws that do not record theirs are accepted.

    Raises
    ------
    InputError
        If the hashes differ.
    """
    other = inference_data.attrs(reference)
    for what, own, its in (
        ("model", facts["model_hash"], other.get("reference_for") or other.get("model_hash")),
        ("data", facts["data_hash"], other.get("data_hash")),
    ):
        if its and its != own:
            raise InputError(
                f"{source}: these reference draws come from {'another model' if what == 'model' else 'other data'} "
                f"({what} {its}, here {own}); give reference draws of {facts['model']} on these data, or none, and "
                "stansub makes them"
            )


def make_truth(
    reference: InferenceData, posterior: Posterior, functions: Functions, *, source: str, seed: np.random.SeedSequence
) -> Truth:
    """Return means with their errors, a proposal and starts from reference draws.

    Raises
    ------
    InputError
        If parameters are missing or have another shape, all are constant, or there are too few draws.
    """
    _check_parameters(reference, functions, source)
    statistics = table(reference, percentiles=(), var_names=functions.parameters.names)
    centre = statistics["mean"].to_numpy(float)
    _, values = scalars(reference, functions.parameters.names)
    targets = {
        MEANS: _target(values, statistics, "parameters", source),
        VARIANCES: _target(squares := (values - centre) ** 2, _statistics(squares), "parameters", source),
    }
    theta = _unconstrained(reference, posterior, source)
    flat = theta.reshape(-1, posterior.dim)
    if functions.quantities:
        for name, drawn in functions.of_quantities(flat, functions.generator(seed)).items():
            values = drawn.reshape(*theta.shape[:2], -1)
            targets[name] = _target(values, _statistics(values), name, source)
    return Truth(
        source=source,
        draws=flat,
        proposal=_proposal(flat, source),
        centre=centre,
        targets=targets,
        r_hat=float(statistics["r_hat"].max()),
        ess=float(statistics["ess_bulk"].min()),
    )


def _check_parameters(reference: InferenceData, functions: Functions, source: str) -> None:
    found = inference_data.group(reference, "posterior")
    for name, shape in functions.parameters.shapes.items():
        if name not in found:
            raise InputError(f"{source}: the reference draws lack {name}; give draws of this program's parameters")
        if found[name].shape[2:] != shape:
            raise InputError(
                f"{source}: {name} has shape {found[name].shape[2:]} in the reference and {shape} in the program"
            )
        if not np.isfinite(found[name].values).all():
            raise InputError(f"{source}: some draws of {name} are not finite; make a new reference")


def _statistics(values: FloatArray) -> pd.DataFrame:
    """Return statistics of values of shape (chain, draw, n)."""
    return table(inference_data.build(posterior={"values": values}, sample_stats={}, attrs={}), percentiles=())


def _target(values: FloatArray, statistics: pd.DataFrame, what: str, source: str) -> Target:
    moving = np.flatnonzero(statistics["mcse_mean"].to_numpy() > 0)
    if not moving.size:
        raise InputError(f"{source}: the {what} are constant, or there are fewer than four draws per chain")
    mean, sd, mcse = (statistics[column].to_numpy(float)[moving] for column in ("mean", "sd", "mcse_mean"))
    flat = values[:, :: max(1, values.shape[1] // _DRAWS)].reshape(-1, values.shape[2])
    shared = float(np.abs(np.corrcoef(flat[:, moving[:_CORRELATED]], rowvar=False)).mean())
    return Target(moving, mean, sd, mcse, shared)


def _unconstrained(reference: InferenceData, posterior: Posterior, source: str) -> FloatArray:
    """Return unconstrained positions of about `_DRAWS` draws, evenly spread, shape (chain, draw, dim)."""
    sizes = inference_data.group(reference, "posterior").sizes
    n = min(sizes["draw"], max(4, _DRAWS // sizes["chain"]))
    try:
        return unconstrained_draws(reference, posterior, np.linspace(0, sizes["draw"] - 1, n).astype(np.int64))
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


def _proposal(draws: FloatArray, source: str) -> RandomWalk:
    n, dim = draws.shape
    try:
        factor = np.linalg.cholesky(np.atleast_2d(np.cov(draws, rowvar=False)))
    except np.linalg.LinAlgError as error:
        raise InputError(
            f"{source}: {n:,} draws are too few for the covariance of {dim} parameters; give a longer reference"
        ) from error
    return optimal_walk(factor)
