"""Constants of observations from a function of the user's program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from stansub.errors import InputError
from stansub.progress import as_progress
from stansub.stan import rewrite, toolchain
from stansub.stan.data import Data
from stansub.stan.library import Library
from stansub.stan.recognise import Form
from stansub.stan.syntax import For, Program
from stansub.types import FloatArray


def constants(
    program: Program,
    form: Form,
    values: Data,
    function: str,
    *,
    sizes: Sequence[str],
    name: str,
    metric: FloatArray | None = None,
    progress: Callable[[str], None] | None = None,
) -> FloatArray:
    """Return a program function's value for each observation, in the order of the data.

    Parameters
    ----------
    program, form, values, sizes, name
        Of a `stansub.stan.posterior.Posterior`.
    metric : ndarray, shape (dim, dim), optional
        The value of its argument of that name.

    Raises
    ------
    InputError
        If the program has no such function, or it returns a negative or non-finite value.
    """
    first = str(form.likelihood.lower) if isinstance(form.likelihood, For) else "1"
    log = as_progress(progress)
    code = rewrite.silent(rewrite.constants_program(program, function, form.n or sizes[0], first=first))
    file = toolchain.compile_library(code, name=name, suffix="_constants", goal=f"for {function}", progress=log)
    log(f"Evaluating {function}")
    if metric is not None:
        values = replace(values, values={**values.values, rewrite.METRIC_SIZE: len(metric), rewrite.METRIC: metric})
    model = values.model(Library(file))
    found = model.param_constrain(np.empty(0), include_gq=True, rng=model.rng(0))
    bad = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if bad.size:
        raise InputError(
            f"{function} returned {found[bad[0]]} for observation {bad[0] + 1:,}; it must be finite and not negative"
        )
    return found
