"""Alignment of two samplers' draws: matching quantities, and checks that both sampled the same posterior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import spatial

from stansub.errors import InputError
from stansub.output.inference_data import InferenceData, attrs, group
from stansub.output.layout import by_variable
from stansub.output.statistics import scalar_names, still
from stansub.types import FloatArray

_MIN_DRAWS = 4  # minimum that R-hat and ESS need
_SAME = 1e-5  # relative; rounding of text files with six digits
_COPY = 1e-6  # sds by which rounding may move a quantity from a linear function of another
_SIGNATURE = 16  # draws that are compared before all draws are


@dataclass(frozen=True)
class Alignment:
    """Alignment of two posterior groups."""

    common: tuple[str, ...]
    """Names of the scalar quantities to compare."""
    only_in_draws: tuple[str, ...]
    only_in_reference: tuple[str, ...]
    """Variables that one side lacks."""
    other_shape: tuple[str, ...]
    """Variables whose shapes differ, with the shapes in brackets."""
    not_numeric: tuple[str, ...]
    """Variables of either side that are not numeric for each chain and draw."""
    in_neither: tuple[str, ...]
    """Quantities of the model that neither the reference nor the draws have."""
    constant: tuple[str, ...]
    """Names of scalar quantities that are constant and equal on both sides; they are not compared."""
    copies: tuple[str, ...]
    """Scalar quantities that are, on both sides, the same linear function of a compared quantity, whose name is in
    brackets. They are not compared, because their tests would repeat those of that quantity.
    """


def align(
    draws: InferenceData, reference: InferenceData, var_names: Sequence[str] | None = None
) -> tuple[Alignment, FloatArray, FloatArray]:
    """Match scalar quantities by variable name and shape, after converting names and complex numbers to stansub's.

    Parameters
    ----------
    var_names
        Variables to compare; all by default.

    Returns
    -------
    alignment : Alignment
    draws_values, reference_values : ndarray
        Values of `alignment.common`, of shape (chain, draw, quantity); numbers of chains and draws may differ.

    Raises
    ------
    InputError
        If no quantity matches, a variable of `var_names` is on neither side, or a side has too few draws.
    """
    left, right = _numeric(draws), _numeric(reference)
    others = [name for side in (draws, reference) for name in _others(side)]
    lacking = [name for name in _not_kept(reference) if name not in {one.partition(":")[0] for one in left}]
    for side, idata in (("draws", draws), ("reference", reference)):
        _check_length(side, idata)
    if var_names is not None:
        unknown = [name for name in var_names if name not in left and name not in right]
        if unknown:
            raise InputError(f"no such variable on either side: {', '.join(unknown)}; the draws have {', '.join(left)}")
        left = {name: values for name, values in left.items() if name in var_names}
        right = {name: values for name, values in right.items() if name in var_names}
        others, lacking = ([name for name in names if name in var_names] for names in (others, lacking))
    both = [name for name in left if name in right]
    same = [name for name in both if left[name].shape[2:] == right[name].shape[2:]]
    if not same:
        raise InputError(
            f"no common parameters: the draws have {_listed(left)}, the reference has {_listed(right)}; "
            "give a reference of the same model"
        )
    names = [element for name in same for element in scalar_names(name, left[name])]
    x, y = (_flat(side, same) for side in (left, right))
    constant = _same_constant(x, y)
    if constant.all():
        raise InputError("every common parameter is constant: there is nothing to compare")
    originals = _copies(x, y)
    compared = ~constant
    compared[list(originals)] = False
    alignment = Alignment(
        common=tuple(name for name, kept in zip(names, compared, strict=True) if kept),
        only_in_draws=tuple(name for name in left if name not in right),
        only_in_reference=tuple(name for name in right if name not in left),
        other_shape=tuple(
            f"{name} ({_shape(left[name])} against {_shape(right[name])})" for name in both if name not in same
        ),
        not_numeric=tuple(dict.fromkeys(others)),
        in_neither=tuple(lacking),
        constant=tuple(name for name, still in zip(names, constant, strict=True) if still),
        copies=tuple(f"{names[copy]} ({names[original]})" for copy, original in sorted(originals.items())),
    )
    return alignment, x[:, :, compared], y[:, :, compared]


def check_comparable(draws: InferenceData, var_names: Sequence[str] | None) -> None:
    """Check that draws can be compared with a reference, before one is made.

    Raises
    ------
    InputError
        If a variable of `var_names` is not in the draws, or there are too few draws.
    """
    _check_length("draws", draws)
    held = _numeric(draws)
    unknown = [name for name in var_names or () if name not in held]
    if unknown:
        raise InputError(f"no such variable in the draws: {', '.join(unknown)}; they have {', '.join(held)}")


def _check_length(side: str, idata: InferenceData) -> None:
    n_draws = group(idata, "posterior").sizes["draw"]
    if n_draws < _MIN_DRAWS:
        raise InputError(f"{side}: too few draws to compare ({n_draws} per chain); sample at least 1000")


def check_provenance(draws: InferenceData, reference: InferenceData) -> tuple[str, ...]:
    """Check that both sides are of the same model and data; return what could not be checked, as it is not recorded.

    Raises
    ------
    InputError
        If the records differ.
    """
    own, other = attrs(draws), attrs(reference)
    unchecked = []
    for what, plural, mine, theirs in (
        ("model", "models", _stands_for(own), _stands_for(other)),
        ("data", "data", own.get("data_hash"), other.get("data_hash")),
    ):
        unchecked += [
            f"{side} not record which {what} it came from"
            for side, recorded in (("the run does", mine), ("the reference does", theirs))
            if not recorded
        ]
        if mine and theirs and mine != theirs:
            raise InputError(
                f"draws and reference have different {plural}: {own.get('model', 'unnamed')} (hash {mine}) and "
                f"{other.get('model', 'unnamed')} (hash {theirs}); give a reference of the same model and data"
            )
    return tuple(unchecked)


def _stands_for(facts: dict[str, Any]) -> Any:
    """Return the hash of the model whose posterior was sampled, perhaps through another formulation."""
    return facts.get("reference_for") or facts.get("model_hash")


def shared_chains(x: FloatArray, y: FloatArray) -> int:
    """Return how many chains of `x`, (chain, draw, quantity), are also chains of `y`, ignoring stuck chains."""
    if x.shape[1:] != y.shape[1:]:
        return 0
    moving = [chain for chain in x if not still(chain).all()]
    return sum(any(np.allclose(chain, other, rtol=_SAME, atol=0, equal_nan=True) for other in y) for chain in moving)


def _same_constant(x: FloatArray, y: FloatArray) -> NDArray[np.bool_]:
    equal = np.isclose(x[0, 0], y[0, 0], rtol=_SAME, atol=0, equal_nan=True)
    return np.asarray(still(x) & still(y) & equal)


def _copies(x: FloatArray, y: FloatArray) -> dict[int, int]:
    """Return columns that are the same linear function of an earlier column on both sides, with that column.

    Standardised over both sides, such columns of `x` and `y`, (chain, draw, quantity), are equal up to sign.
    """
    sides = [one.reshape(-1, one.shape[-1]) for one in (x, y)]
    n = sum(map(len, sides))
    with np.errstate(all="ignore"):
        mean = sum(one.sum(axis=0) for one in sides) / n
        sd = np.sqrt(sum(((one - mean) ** 2).sum(axis=0) for one in sides) / n)
    moving = np.flatnonzero(np.isfinite(sd) & ~still(x) & ~still(y))

    def scores(side: FloatArray, column: int) -> FloatArray:
        return np.asarray((side[:, column] - mean[column]) / sd[column])

    some = [one[np.linspace(0, len(one) - 1, _SIGNATURE).astype(int)] for one in sides]
    signatures = (np.abs(np.concatenate(some)[:, moving] - mean[moving]) / sd[moving]).T
    tree, found = spatial.KDTree(signatures), dict[int, int]()
    for original, signature in zip(moving.tolist(), signatures, strict=True):
        if original in found:
            continue
        for column in moving[tree.query_ball_point(signature, _COPY, p=np.inf)].tolist():
            if column > original and column not in found:
                pairs = [(scores(one, original), scores(one, column)) for one in sides]
                if any(all(np.allclose(a, sign * b, rtol=0, atol=_COPY) for a, b in pairs) for sign in (1, -1)):
                    found[column] = original
    return found


def _numeric(idata: InferenceData) -> dict[str, Any]:
    """Return variables that can be compared, by name, with chains and draws as their first dimensions."""
    posterior = group(idata, "posterior")
    found = {
        str(name): values.transpose("chain", "draw", ...)
        for name, values in posterior.data_vars.items()
        if _is_numeric(values)
    }
    if not any("." in name or values.dtype.kind == "c" for name, values in found.items()):
        return found
    try:
        arrays = by_variable({name: values.values for name, values in found.items()})
    except ValueError:  # dots in names have another meaning here
        return {name: values for name, values in found.items() if values.dtype.kind != "c"}
    return {
        name: found[name] if name in found and found[name].dtype.kind != "c" else _labelled(name, values)
        for name, values in arrays.items()
    }


def _others(idata: InferenceData) -> list[str]:
    return [str(name) for name, values in group(idata, "posterior").data_vars.items() if not _is_numeric(values)]


def _is_numeric(values: Any) -> bool:
    return values.dtype.kind in "biufc" and {"chain", "draw"} <= set(values.dims)


def _labelled(name: str, values: NDArray[Any]) -> Any:
    import xarray

    return xarray.DataArray(values, dims=("chain", "draw", *(f"{name}_dim_{k}" for k in range(values.ndim - 2))))


def _not_kept(reference: InferenceData) -> list[str]:
    return [name for name in str(attrs(reference).get("not_kept") or "").split(", ") if name]


def _flat(variables: dict[str, Any], names: Sequence[str]) -> FloatArray:
    parts = [variables[name].values for name in names]
    return np.concatenate([part.reshape(*part.shape[:2], -1).astype(float) for part in parts], axis=2)


def _shape(values: Any) -> str:
    return " x ".join(str(size) for size in values.shape[2:]) or "one value"


def _listed(variables: dict[str, Any]) -> str:
    return ", ".join(f"{name} ({_shape(values)})" for name, values in variables.items()) or "none"
