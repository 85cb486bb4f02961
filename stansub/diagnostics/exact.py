"""Comparison of a sampler with itself under exact decisions: what subsampling changes and saves.

Chen, Mansinghka and Ghahramani (2014), section 3.3, compare approximate with regular inference without the user's help.
Both sides use the same proposal, so a difference is due to the test.
"""

from __future__ import annotations

import warnings
from dataclasses import fields
from typing import Any

import numpy as np

from stansub import streams
from stansub.diagnostics.comparison import Comparison, compare_draws
from stansub.errors import DrawsWarning, InputError
from stansub.run.config import SampleConfig
from stansub.run.options import DecisionOptions
from stansub.run.posteriors import Data, Model
from stansub.run.sample import sample

# Options of subsampling tests; control variates also serve the proposal.
_OF_SUBSETS = {one.name for one in fields(DecisionOptions)} - {"control_variates"}
_ONE_RUN = ("checkpoint", "resume")


def compare_exact(
    model: Model, data: Data = None, *, var_names: list[str] | None = None, level: float = 0.01, **options: Any
) -> Comparison:
    """Sample as requested, then with exact decisions and the same kernel or proposal, and compare the draws.

    Both runs take the same number of steps, at most `max_time` each. With `until`, each run ends when its own draws
    reach the precision. The exact run has its own seed, derived from `seed`, so that the runs are independent. If a
    race about the mode chooses the proposal (`proposal="auto"`), each side chooses its own, because other moves may be
    best if all data are read anyway.

    Parameters
    ----------
    model : path, CompiledModel, Posterior or FunctionFactors
    data : path or mapping, optional
    var_names : list of str, optional
        Variables to compare; all by default.
    level : float
        Probability of a verdict other than "agrees" if nothing differs.
    **options
        As `stansub.sample` takes them: `kernel`, `test`, `epsilon` and so on.

    Returns
    -------
    Comparison
        Comparison with the exact draws as reference. Its costs also include seconds per step, the share of the data
        that a decision used, and the share of audited decisions that were wrong.

    Raises
    ------
    InputError
        If `sample` cannot use an argument, the test is exact already, or a checkpoint is given, which holds only one
        run.

    Warns
    -----
    DrawsWarning
        For each reason to distrust the requested draws. Reasons to distrust the exact draws are in the comparison.
    """
    if given := [name for name in _ONE_RUN if options.get(name) is not None]:
        raise InputError(f"a checkpoint stores one run, but this comparison makes two: leave out `{given[0]}`")
    seed = streams.given_or_drawn(options.get("seed"))
    config = SampleConfig(**options | {"seed": seed})
    if config.make_test().exact:
        raise InputError("the test is already exact, so there is nothing to compare; choose another, such as 'pocock'")
    draws = sample(model, data, **options | {"seed": seed})
    exact = {name: value for name, value in options.items() if name not in _OF_SUBSETS}
    exact |= {"test": "exact", "seed": _another(seed)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DrawsWarning)
        reference = sample(model, data, **exact)
    reference.attrs["method"] = "exact"
    return compare_draws(draws, reference, var_names=var_names, level=level)


def _another(seed: int) -> int:
    """Return a seed derived from a seed."""
    return int(np.random.SeedSequence(seed, spawn_key=(0,)).generate_state(1)[0])
