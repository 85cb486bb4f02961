"""Starting values, as CmdStan makes them: uniform on the unconstrained space, or from a file, for each chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from stansub.errors import InputError, RunError
from stansub.model.data import read_json
from stansub.model.posterior import Posterior, find_undefined
from stansub.output.layout import Layout
from stansub.program.library import FloatArray

MAX_TRIES = 100

Inits = float | str | Path | Mapping[str, Any] | Sequence[str | Path | Mapping[str, Any]]


def parse(text: str) -> Inits:
    """Inits as written on the command line: a radius, a JSON file, or several files separated by commas."""
    try:
        return float(text)
    except ValueError:
        parts = [part for part in text.split(",") if part]
        return parts if len(parts) > 1 else text


def for_chain(inits: Inits, chain: int, chains: int) -> float | Mapping[str, Any]:
    """The radius or the constrained values that one chain starts from.

    Raises
    ------
    InputError
        For a negative radius, a file that cannot be read, or a number of files other than the number of chains.
    """
    if isinstance(inits, bool) or (isinstance(inits, int | float) and not (0 <= inits < float("inf"))):
        raise InputError(f"inits: the radius must be a number of at least 0, not {inits}")
    if isinstance(inits, int | float):
        return float(inits)
    if isinstance(inits, Mapping):
        return inits
    if isinstance(inits, str | Path):
        return read_json(Path(inits))
    if len(inits) != chains:
        raise InputError(f"inits: {len(inits)} files for {chains} chains; give one radius, one file, or one a chain")
    one = inits[chain]
    return one if isinstance(one, Mapping) else read_json(Path(one))


def start(posterior: Posterior, inits: Inits, rng: np.random.Generator, *, chain: int, chains: int) -> FloatArray:
    """Unconstrained starting values of a chain, shape (dim,), with a finite log density.

    Parameters
    ----------
    inits : float, path, mapping, or a sequence of them
        Radius of the uniform distribution on the unconstrained space, or constrained values by name; parameters
        that are not named start at random.

    Raises
    ------
    InputError
        When inits do not fit the program or the log density is not finite at any of the starting values tried.
    """
    wanted = for_chain(inits, chain, chains)
    radius = wanted if isinstance(wanted, float) else 2.0
    values = None if isinstance(wanted, float) else wanted
    random = values is None or not _complete(posterior, values)
    theta = np.zeros(posterior.dim)
    for _ in range(MAX_TRIES if random and radius > 0 else 1):
        theta = rng.uniform(-radius, radius, posterior.dim)
        if values is not None:
            theta = _overlay(posterior, theta, values)
        if np.isfinite(posterior.full.log_density(theta)):
            return theta
    raise InputError(_explain(posterior, theta, chain))


def _layout(posterior: Posterior) -> Layout:
    return Layout.from_names(posterior.full.param_names())


def _complete(posterior: Posterior, values: Mapping[str, Any]) -> bool:
    known = set(_layout(posterior).names)
    unknown = sorted(set(values) - known)
    if unknown and not known & set(values):
        raise InputError(
            f"inits: {unknown[0]!r} is not a parameter of the program; its parameters are {', '.join(sorted(known))}"
        )
    return known <= set(values)


def _overlay(posterior: Posterior, theta: FloatArray, values: Mapping[str, Any]) -> FloatArray:
    """Constrained values of ``theta`` with the given ones in their place, unconstrained again."""
    try:
        constrained = posterior.full.param_constrain(theta)
    except RunError as error:
        raise InputError(f"inits: {error}") from error
    merged = dict(_layout(posterior).split(constrained[None, None, :], squeeze=True))
    merged.update({name: value for name, value in values.items() if name in merged})
    text = orjson.dumps(merged, option=orjson.OPT_SERIALIZE_NUMPY)
    try:
        return posterior.full.param_unconstrain_json(text)
    except InputError as error:
        raise InputError(f"inits: {error}") from error


def _explain(posterior: Posterior, theta: FloatArray, chain: int) -> str:
    _, message = posterior.full.log_density_or_message(theta)
    place, block = find_undefined(posterior.population, theta)
    text = f"chain {chain + 1}: the log density is not finite at any starting value tried"
    if place == "global":
        text += "; the priors (the part without observations) are already not finite"
    elif block is not None:
        row = _row(posterior, theta, block)
        text += f"; observation {row + 1:,} of the data is the first that is impossible there"
    if message:
        text += f" ({' '.join(message.split())})"
    return text + "; give --inits nearer to plausible values or look at that part of the program"


def _row(posterior: Posterior, theta: FloatArray, block: int) -> int:
    """Row of the user's data of the first observation in the block whose log likelihood is not finite."""
    blocks = posterior.blocks
    places = np.arange(blocks.starts[block], blocks.stops[block])
    values = posterior.each(theta, places)
    bad = np.flatnonzero(~np.isfinite(values))
    place = int(places[bad[0]]) if bad.size else int(places[0])
    return place if posterior.order is None else int(posterior.order[place])
