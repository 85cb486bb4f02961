"""Posterior statistics of every scalar quantity, with ArviZ's convergence diagnostics."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stansub.errors import InputError
from stansub.output import apportioning, convergence
from stansub.output.inference_data import InferenceData, attrs, group
from stansub.types import FloatArray

if TYPE_CHECKING:
    import pandas as pd


_STILL = 1e-12  # relative spread below which a quantity varies by rounding alone


def table(
    idata: "InferenceData",
    *,
    percentiles: Sequence[float] = (5, 50, 95),
    var_names: Sequence[str] | None = None,
    max_rows: int | None = None,
) -> "pd.DataFrame":
    """Return posterior statistics of every scalar quantity.

    Parameters
    ----------
    percentiles
        Quantiles to compute, in percent.
    var_names
        Variables to include; all by default.
    max_rows
        Maximum number of quantities; the others are not computed. All elements of small variables are among them, and
        the first elements of large ones.

    Returns
    -------
    pandas.DataFrame
        Indexed by name (`beta[1]`: indices from 1, as in Stan) with columns mean, sd, mcse_mean, mcse_sd,
        one per percentile (`5%`), ess_bulk, ess_tail and r_hat (Vehtari et al. 2021).
        NaN where a statistic does not exist (constant quantities, less than four draws, R-hat of one chain).

    Raises
    ------
    InputError
        If one of `var_names` is not in the posterior.
    """
    import pandas as pd

    names, values = scalars(idata, var_names, max_rows)
    moving = ~still(values)
    defined = np.isfinite(values).all(axis=(0, 1)) & moving

    def statistic(function: Callable[[FloatArray], FloatArray]) -> FloatArray:
        found = np.full(len(names), np.nan)
        if values.shape[1] >= convergence.LEAST_DRAWS and defined.any():
            found[defined] = function(values[:, :, defined])
        return found

    with np.errstate(all="ignore"):
        columns = {
            "mean": values.mean(axis=(0, 1)),
            "sd": values.std(axis=(0, 1), ddof=1) * moving if values[..., :1].size > 1 else np.full(len(names), np.nan),
            "mcse_mean": statistic(convergence.mcse_mean),
            "mcse_sd": statistic(convergence.mcse_sd),
        }
        quantiles = np.quantile(values, np.asarray(percentiles, dtype=float) / 100, axis=(0, 1))
        columns |= {f"{p:g}%": q for p, q in zip(percentiles, quantiles, strict=True)}
        columns |= {
            "ess_bulk": statistic(convergence.ess_bulk),
            "ess_tail": statistic(convergence.ess_tail),
            "r_hat": statistic(convergence.r_hat),
        }
    return pd.DataFrame(columns, index=pd.Index(names, name="quantity"))


def _variables(idata: "InferenceData", var_names: Sequence[str] | None) -> list[tuple[str, Any]]:
    posterior = group(idata, "posterior")
    names = list(posterior.data_vars) if var_names is None else list(var_names)
    unknown = [str(name) for name in names if name not in posterior.data_vars]
    if unknown:
        raise InputError(
            f"no such variable in the posterior: {', '.join(unknown)}; it has "
            f"{', '.join(map(str, posterior.data_vars))}"
        )
    found = [(str(name), posterior[name]) for name in names]
    return [(name, values) for name, values in found if values.dtype.kind in "biuf"]


def count(idata: "InferenceData", var_names: Sequence[str] | None = None) -> int:
    """Return the number of scalar quantities in the variables, and of those that were left out when they were read."""
    left_out: int = attrs(idata).get("elements_left_out", 0) if var_names is None else 0
    sizes = [math.prod(values.shape[2:]) for _, values in _variables(idata, var_names)]
    return left_out + int(sum(sizes))


def affordable(idata: "InferenceData") -> int:
    """Return how many quantities can be computed in some seconds, at least one."""
    sizes = group(idata, "posterior").sizes
    return apportioning.affordable(sizes["chain"] * sizes["draw"])


def scalars(
    idata: "InferenceData", var_names: Sequence[str] | None = None, limit: int | None = None
) -> tuple[list[str], np.ndarray[Any, Any]]:
    """Return names of the scalar quantities and their draws, of shape (chain, draw, quantity)."""
    sizes = group(idata, "posterior").sizes
    names: list[str] = []
    parts = [np.empty((sizes["chain"], sizes["draw"], 0))]
    variables = _variables(idata, var_names)
    for (name, values), room in zip(variables, _apportioned(variables, limit), strict=True):
        parts.append(values.values.reshape(*values.shape[:2], -1)[:, :, :room].astype(float))
        names += scalar_names(name, values)[:room]
    return names, np.concatenate(parts, axis=2)


def chosen_names(idata: "InferenceData", var_names: Sequence[str] | None, limit: int | None) -> list[str]:
    """Return the names of the quantities that `scalars` chooses."""
    variables = _variables(idata, var_names)
    rooms = _apportioned(variables, limit)
    return [one for (name, own), room in zip(variables, rooms, strict=True) for one in scalar_names(name, own)[:room]]


def _apportioned(variables: Sequence[tuple[str, Any]], limit: int | None) -> list[int]:
    return apportioning.apportioned([math.prod(values.shape[2:]) for _, values in variables], limit)


def still(values: FloatArray) -> NDArray[np.bool_]:
    """Return whether values are constant over all axes but the last, up to rounding, or all NaN."""
    flat = values.reshape(-1, values.shape[-1])
    with np.errstate(all="ignore"):
        spread = flat.max(axis=0) - flat.min(axis=0)
        unmoved = spread <= _STILL * np.abs(flat).max(axis=0)
    return np.asarray(unmoved | np.isnan(flat).all(axis=0))


def scalar_names(name: str, values: Any) -> list[str]:
    """Return names of a variable's elements: indices from 1 as in Stan, or the labels of its dimensions.

    ``values`` is an `xarray.DataArray` of dimensions (chain, draw, ...).
    """
    if values.ndim == 2:
        return [name]
    labels = []
    for dim in values.dims[2:]:
        given = values[dim].values
        default = given.dtype.kind in "iu" and np.array_equal(given, np.arange(len(given)))
        labels.append([str(label) for label in (given + 1 if default else given)])
    return [f"{name}[{','.join(labels[k][i] for k, i in enumerate(at))}]" for at in np.ndindex(values.shape[2:])]
