"""The same sampler twice, with decisions from subsets and with exact ones: what subsets change, and what they save.

Chen, Mansinghka and Ghahramani (2014), section 3.3, have approximate inference compared with regular inference without
the user's help. What proposes is named alike on both sides, so that a difference is the test's.
"""

from __future__ import annotations

import secrets
import warnings
from typing import Any

import numpy as np

from stansub.diagnostics.comparison import Comparison, compare_draws
from stansub.errors import DrawsWarning, InputError
from stansub.run.config import SampleConfig
from stansub.run.posteriors import Data, Model
from stansub.run.sample import sample

# Options of tests that take decisions from subsets.
_OF_SUBSETS = (
    "bounds",
    "epsilon",
    "final_epsilon",
    "delta",
    "max_error",
    "looks",
    "first_look",
    "range_source",
    "audit",
)
_ONE_RUN = ("checkpoint", "resume")


def compare_exact(
    model: Model, data: Data = None, *, var_names: list[str] | None = None, level: float = 0.01, **options: Any
) -> Comparison:
    """Sample as asked for, then with exact decisions and the same kernel or proposal, and put the draws side by side.

    Both runs take the same number of steps, and with `max_time` the same time at most; with `until` each ends when its
    own draws are as precise as that. The exact one has a seed of its
    own that follows from `seed`, so that the two are independent. A proposal that is left to a race about the mode
    (`proposal="auto"`) is chosen on each side by itself, for other moves may be best where all data are read anyway.

    Parameters
    ----------
    model : path, CompiledModel, Posterior or FunctionFactors
    data : path or mapping, optional
    var_names : list of str, optional
        Variables to compare; all by default.
    level : float
        Probability of a verdict other than "agrees" where nothing differs.
    **options
        As `stansub.sample` takes them: `kernel`, `test`, `epsilon` and so on.

    Returns
    -------
    Comparison
        The exact draws are the reference. Beside the costs of any comparison: seconds a step, the share of the data
        that a decision used, and the share of audited decisions that were wrong.

    Raises
    ------
    InputError
        When `sample` cannot use what was given, the test asked for is exact, or there is a checkpoint, which is of one
        run.

    Warns
    -----
    DrawsWarning
        Of what speaks against the draws that were asked for. What speaks against the exact ones is in the comparison.
    """
    if given := [name for name in _ONE_RUN if options.get(name) is not None]:
        raise InputError(f"a checkpoint stores one run, but this comparison makes two: leave out `{given[0]}`")
    seed = secrets.randbits(31) if options.get("seed") is None else options["seed"]
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
    """A seed that follows from a seed."""
    return int(np.random.SeedSequence(seed, spawn_key=(0,)).generate_state(1)[0])
