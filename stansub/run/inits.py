"""Starting values of chains, as in CmdStan: uniform on the unconstrained space, or from files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from stansub import streams
from stansub.errors import InputError
from stansub.output import inference_data
from stansub.output.inference_data import InferenceData
from stansub.output.layout import Layout
from stansub.stan.data.formats import read_json
from stansub.stan.posterior import Posterior
from stansub.stan.proof import Near, NearPoints, Whole, explain_undefined
from stansub.tuning.modes.starts import RADIUS
from stansub.types import FloatArray

MAX_TRIES = 100

Inits = float | str | Path | Mapping[str, Any] | Sequence[str | Path | Mapping[str, Any]]


@dataclass(frozen=True)
class Init:
    """Starting value of one chain."""

    radius: float = RADIUS
    """Radius of the uniform distribution on the unconstrained space."""
    values: Mapping[str, Any] | None = None
    """Constrained values by parameter; the other parameters start at random."""
    source: str = "inits"


def parse(text: str) -> Inits:
    """Return inits from the command line: a radius, a JSON file, or several files separated by commas."""
    try:
        return float(text)
    except ValueError:
        parts = [part for part in text.split(",") if part]
        return parts if len(parts) > 1 else text


def load(inits: Inits, chains: int) -> list[Init]:
    """Return the starting value of each chain, with files read.

    Raises
    ------
    InputError
        If the radius is negative, a file cannot be read, or the number of files differs from the number of chains.
    """
    if isinstance(inits, bool) or (isinstance(inits, int | float) and not 0 <= 2.0 * inits < float("inf")):
        raise InputError(f"`inits`: the radius must be a finite number of at least 0, not {inits}")
    if isinstance(inits, int | float):
        return [Init(radius=float(inits))] * chains
    if isinstance(inits, str | Path | Mapping):
        return [_load(inits)] * chains
    if not isinstance(inits, Sequence):
        raise InputError(
            f"`inits`: give a radius, a file, values by name, or a list with one of these per chain, not {inits!r}"
        )
    if len(inits) != chains:
        raise InputError(
            f"`inits`: {len(inits)} files for {chains} chains; give one radius, one file, or one file per chain"
        )
    return [_load(one) for one in inits]


def _load(one: str | Path | Mapping[str, Any]) -> Init:
    if isinstance(one, Mapping):
        return Init(values=one)
    return Init(values=read_json(Path(one)), source=f"inits {one}")


def start(posterior: Posterior, init: Init, rng: np.random.Generator, *, chain: int) -> FloatArray:
    """Return unconstrained starting values of a chain, shape (dim,), with a finite log density.

    Raises
    ------
    InputError
        If the inits do not fit the program, or no starting value tried has a finite log density.
    """
    # Elements of tuples have names of their own, but are stored in the tuple's value.
    known = {name.partition(":")[0] for name in Layout.from_names(posterior.full.param_names()).names}
    given = dict(init.values or {})
    for name in given:
        _check_name(name, known, posterior, init)
    random = not known <= set(given)
    theta = np.zeros(posterior.dim)
    for _ in range(MAX_TRIES if random and init.radius > 0 else 1):
        theta = rng.uniform(-init.radius, init.radius, posterior.dim)
        if given:
            theta = _overlay(posterior.full, theta, given, init.source)
        if np.isfinite(posterior.full.log_density(theta)):
            return theta
    raise InputError(_explain(posterior, theta, init, chain))


@dataclass(frozen=True)
class NearInits:
    """Points at the given values, other parameters at 0."""

    inits: tuple[Init, ...]

    def __call__(self, full: Whole) -> list[FloatArray]:
        return [_overlay(full, np.zeros(full.dim), one.values or {}, one.source) for one in self.inits]


def near(inits: Sequence[Init]) -> Near | None:
    """Return where the log density should be finite, given inits; None if no init has values."""
    given = {id(one.values): one for one in inits if one.values}
    return NearInits(tuple(given.values())) if given else None


def near_inits(inits: Inits | None, chains: int) -> Near | None:
    """Return where the log density should be finite, given inits as the user writes them, if any (see `load`)."""
    return near(load(inits, chains)) if inits is not None else None


def near_draws(draws: InferenceData, source: str = "the draws") -> Near:
    """Return where the log density should be finite, given draws: at the last one of each chain."""
    if "unconstrained_posterior" in inference_data.groups(draws):
        return NearPoints(tuple(inference_data.group(draws, "unconstrained_posterior")["theta"].isel(draw=-1).values))
    last = inference_data.group(draws, "posterior").isel(draw=-1)
    values = {str(name): found.values for name, found in last.data_vars.items()}
    of_chains = ({name: found[chain] for name, found in values.items()} for chain in range(last.sizes["chain"]))
    return NearInits(tuple(Init(values=one, source=source) for one in of_chains))


def given_points(posterior: Posterior, inits: Sequence[Init], seed: int | None) -> tuple[FloatArray, ...]:
    """Return the different starting values, shape (dim,), of chains whose inits have values."""
    assert seed is not None
    points = [
        start(posterior, init, streams.generator(seed, streams.Chain.INIT, chain=chain), chain=chain)
        for chain, init in enumerate(inits)
        if init.values
    ]
    return tuple({one.tobytes(): one for one in points}.values())


def _check_name(name: str, known: set[str], posterior: Posterior, init: Init) -> None:
    """Raise InputError for unknown names; variables of later blocks are allowed, as in output of another run."""
    program = posterior.program
    blocks = (program.parameters, program.transformed_parameters, program.generated_quantities)
    if name not in known and name not in {one.name for block in blocks for one in block.declarations}:
        raise InputError(
            f"{init.source}: {name!r} is not a parameter of the program; its parameters are {', '.join(sorted(known))}"
        )


def _overlay(full: Whole, theta: FloatArray, given: Mapping[str, Any], source: str) -> FloatArray:
    """Return unconstrained parameters after replacing constrained values of ``theta`` by the given ones."""
    drawn = Layout.from_names(full.param_names()).split(full.param_constrain(theta))
    # Values of later blocks need not be finite.
    own = {name.partition(":")[0] for name in drawn}
    given = {name: value for name, value in given.items() if name in own}
    try:
        return unconstrain(full, {**drawn, **given})
    except InputError as error:
        for name in drawn.keys() & given.keys():
            try:
                unconstrain(full, {**drawn, name: given[name]})
            except InputError as reason:
                sizes = _other_sizes(given[name], drawn[name])
                raise InputError(f"{source}: parameter {name!r}: {sizes or reason}") from error
        raise InputError(f"{source}: {error}") from error


def _other_sizes(given: Any, drawn: FloatArray) -> str:
    """Return a clause on the sizes of a value that are not those of its parameter; empty if they are the same."""
    try:
        found = np.shape(given)
    except ValueError:
        return "its rows have different lengths"
    if found == drawn.shape:
        return ""
    sizes, declared = (" x ".join(map(str, shape)) or "one number" for shape in (found, drawn.shape))
    return f"its size is {sizes}, but must be {declared}"


def unconstrain(full: Whole, values: Mapping[str, Any]) -> FloatArray:
    """Return unconstrained parameters, shape (dim,), from constrained values by name.

    Raises
    ------
    InputError
        If a value is not numeric, is missing, has the wrong size or violates its constraint.
    """
    try:
        text = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY, default=np.ndarray.tolist)
        return full.param_unconstrain_json(text)
    except TypeError as error:
        raise InputError(f"values must be numbers or lists of numbers ({error})") from error
    except InputError as error:
        # Stan refers to lines of the canonical program, not of the user's file.
        if "null values not allowed" in str(error):  # JSON has no other word for them
            raise InputError("a value is missing or not finite") from error
        text_without_place = re.sub(r" \(in '[^']*', line [^)]*\)", "", " ".join(str(error).split()))
        raise InputError(text_without_place.removeprefix("Exception: ")) from error


def _explain(posterior: Posterior, theta: FloatArray, init: Init, chain: int) -> str:
    _, message = posterior.full.log_density_or_message(theta)
    where = explain_undefined(posterior.population, posterior.order, theta)
    if message:
        where += f" ({' '.join(message.split())})"
    remedy = "change the values" if init.values else "give `inits` nearer to plausible values"
    return (
        f"chain {chain + 1}: the log density is not finite at any starting value tried: {where}; {remedy} or look at "
        "that part of the program"
    )
