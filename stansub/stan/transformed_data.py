"""Values of transformed data on all the data, from a small program that copies them.

The program has no parameters, and uses the seed of the user's program, so that random numbers are the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from stansub.errors import InputError, RunError
from stansub.stan.data.data import Data
from stansub.stan.syntax import Declaration, Program
from stansub.stan.toolchain.library import Library

_COPIED = frozenset({"int", "real", "vector", "row_vector", "matrix"})


def is_copied(declaration: Declaration) -> bool:
    """Return whether values of this type can be copied; not tuples and complex numbers."""
    return declaration.type.plain.base in _COPIED


def exporting(program: Program, variables: Sequence[Declaration]) -> str:
    """Return a program that returns some transformed data: sizes in its transformed parameters, then values."""
    sizes = ", ".join(f"1.0 * ({dim})" for one in variables for dim in one.all_dims)
    count = sum(len(one.all_dims) for one in variables)
    values = (f"  {one.type.plain} stansub_{k} = {one.name};" for k, one in enumerate(variables))
    return program.with_blocks(
        parameters=None,
        transformed_parameters=f"  vector[{count}] stansub_sizes = [{sizes}]';" if sizes else None,
        model=None,
        generated_quantities="\n".join(values),
    )


def values(library: Library, variables: Sequence[Declaration], data: Data, *, seed: int) -> dict[str, Any]:
    """Return values of the variables that a compiled `exporting` program returns, in the form of `Data`.

    Raises `InputError` if the program rejects the data.
    """
    model, nothing = data.model(library, seed=seed), np.empty(0)
    try:
        sizes = iter(model.param_constrain(nothing, include_tp=True).astype(np.int64).tolist())
        shapes = [tuple(next(sizes) for _ in one.all_dims) for one in variables]
        # To count the values, the library would create a name for each.
        out = np.empty(sum(map(math.prod, shapes)))
        model.param_constrain(nothing, include_gq=True, rng=model.rng(seed), out=out)
    except RunError as error:
        raise InputError(str(error)) from error
    found, first = {}, 0
    for one, shape in zip(variables, shapes, strict=True):
        part = out[first : first + math.prod(shape)]
        first += len(part)
        array = np.ascontiguousarray(part.reshape(shape, order="F"))
        array = array.astype(np.int64) if one.base == "int" else array
        found[one.name] = array if shape else array.item()
    return found
