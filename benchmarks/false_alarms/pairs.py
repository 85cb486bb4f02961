"""Runs of NUTS on a program, in pairs that are compared as they are, with other numbers of draws, and with faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from reach.corpus import CASES
from rich.console import Console
from scipy.stats import norm

from stansub.diagnostics.comparison import Comparison, compare_draws
from stansub.diagnostics.statistics import POWER
from stansub.nuts import reference_cache
from stansub.output import inference_data
from stansub.output.statistics import scalar_names

Array = NDArray[np.float64]
Rng = np.random.Generator
Row = dict[str, Any]
# Of the level that the verdict claims, and one at which some dozen pairs tell something.
LEVELS = (0.01, 0.2)
# Faults: sds that a mean is moved by, the factor of an sd, and the change of a correlation.
SHIFT, FACTOR, TURN = 0.1, 1.1, 0.3
# What draws record of where they come from.
_IDENTITY = ("model", "model_hash", "reference_for", "data_hash")


class Subject(NamedTuple):
    """A program with data."""

    name: str
    program: Path
    data: Mapping[str, Any] | Path


def corpus(n: int) -> Iterator[Subject]:
    """The programs of `benchmarks/reach` in brms's style, with about n observations."""
    for case in CASES.values():
        if case.in_brms_style:
            yield Subject(case.name, case.path, case.data(n))


def in_folder(folder: Path) -> Iterator[Subject]:
    """Programs of a folder with the data beside them: NAME.stan and NAME.json."""
    for program in sorted(folder.glob("*.stan")):
        yield Subject(program.stem, program, program.with_suffix(".json"))


def runs(subject: Subject, n: int, draws: Path, *, seed: int, engine: str) -> list[Any]:
    """Runs of NUTS with n seeds; those that are in the folder of draws are read."""
    draws.mkdir(parents=True, exist_ok=True)
    quiet = Console(quiet=True)
    return [
        reference_cache.obtain(
            subject.program,
            subject.data,
            path=draws / f"{subject.name}-{one}.nc",
            engine=engine,
            seed=one,
            chains=4,
            show_progress=False,
            console=quiet,
        ).draws
        for one in range(seed, seed + n)
    ]


class Draws(NamedTuple):
    """Draws of all scalar quantities, (chain, draw, quantity), with their names."""

    names: Sequence[str]
    values: Array
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, idata: Any) -> Draws:
        variables = {str(name): values for name, values in inference_data.group(idata, "posterior").data_vars.items()}
        names = [element for name, values in variables.items() for element in scalar_names(name, values)]
        parts = [values.values.reshape(*values.shape[:2], -1) for values in variables.values()]
        return cls(names, np.concatenate(parts, axis=2).astype(float), inference_data.attrs(idata))

    @classmethod
    def joined(cls, sides: Sequence[Draws]) -> Draws:
        """The chains of some runs as those of one."""
        facts = {name: sides[0].facts[name] for name in _IDENTITY if name in sides[0].facts}
        divergences = [int(n) for side in sides for n in side.facts.get("n_divergences", ())]
        values = np.concatenate([side.values for side in sides])
        return cls(sides[0].names, values, facts | ({"n_divergences": divergences} if divergences else {}))

    def built(self) -> Any:
        """The same as a run, each quantity a variable."""
        posterior = {name: self.values[:, :, k] for k, name in enumerate(self.names)}
        return inference_data.build(posterior=posterior, sample_stats={}, attrs=dict(self.facts))


Change = Callable[[Draws, Sequence[int], Rng], Array]


def _thinned(draws: Draws, moving: Sequence[int], rng: Rng) -> Array:
    return draws.values[:, ::4]


def _held(draws: Draws, moving: Sequence[int], rng: Rng) -> Array:
    """Each draw repeated as a sampler repeats it whose proposals are accepted with probability 0.25."""
    return np.repeat(draws.values, rng.geometric(0.25, draws.values.shape[1]), axis=1)


def _moved(draws: Draws, moving: Sequence[int], rng: Rng) -> Array:
    values, one = draws.values.copy(), moving[0]
    values[:, :, one] += SHIFT * values[:, :, one].std()
    return values


def _widened(draws: Draws, moving: Sequence[int], rng: Rng) -> Array:
    values, one = draws.values.copy(), moving[0]
    mean = values[:, :, one].mean()
    values[:, :, one] = mean + FACTOR * (values[:, :, one] - mean)
    return values


def _turned(draws: Draws, moving: Sequence[int], rng: Rng) -> Array:
    """The correlation of two quantities changed, with the mean and the sd of each as before."""
    values, (one, two) = draws.values.copy(), moving[:2]
    a, b = ((values[:, :, k] - values[:, :, k].mean()) / values[:, :, k].std() for k in (one, two))
    r = float((a * b).mean())
    rest = (b - r * a) / (b - r * a).std()
    wanted = r - TURN if r > 0 else r + TURN
    values[:, :, two] = values[:, :, two].mean() + values[:, :, two].std() * (
        wanted * a + np.sqrt(1 - wanted**2) * rest
    )
    return values


# What is done to the first run of a pair; the names are those of the report. Every program has one more comparison.
AS_THEY_ARE, JOINED = "as they are", "one run beside all others together"
AGREEING: dict[str, Change | None] = {
    AS_THEY_ARE: None,
    "every fourth draw of one": _thinned,
    "each draw of one held for four steps on average": _held,
}


class Fault(NamedTuple):
    """A change after which the two sides differ.

    Attributes
    ----------
    change
    size
        From the figures of the first quantity chosen to the size of the fault in detectable differences; None where
        these are not known.
    """

    change: Change
    size: Callable[[Any], float] | None = None


FAULTS = {
    f"a mean moved by {SHIFT:g} sd": Fault(_moved, lambda row: SHIFT / row["mean_detectable_sd"]),
    f"an sd increased by {FACTOR - 1:.0%}": Fault(
        _widened, lambda row: float(np.log(FACTOR) / np.log1p(row["sd_detectable"]))
    ),
    f"a correlation changed by {TURN:g}": Fault(_turned),
}


def rows(name: str, found: Sequence[Any], *, seed: int) -> Iterator[Row]:
    """Every comparison of a program's runs, which are paired in turn."""
    sides = [Draws.of(one) for one in found]
    one, others = sides[0].built(), Draws.joined(sides[1:]).built()
    for level in LEVELS:
        yield _row(name, 0, JOINED, compare_draws(one, others, level=level))
    for number, (one, two) in enumerate(zip(sides[::2], sides[1::2], strict=False)):
        rng, reference = np.random.default_rng([seed, number]), two.built()
        own: Comparison | None = None
        for kind, change in AGREEING.items():
            changed = one if change is None else one._replace(values=change(one, [], rng))
            for level in LEVELS:
                compared = compare_draws(changed.built(), reference, level=level)
                own = own or compared
                yield _row(name, number, kind, compared)
        if own is None or own.verdict.word in ("inconclusive", "do not use"):
            continue
        moving = [one.names.index(str(quantity)) for quantity in own.parameters.index[own.parameters["sd_z"].notna()]]
        if len(moving) < 2:
            continue
        for kind, fault in FAULTS.items():
            chosen = rng.permutation(moving).tolist()
            faulty = one._replace(values=fault.change(one, chosen, rng))
            compared = compare_draws(faulty.built(), reference, level=LEVELS[0])
            power = fault.size and _power(own, fault.size(own.parameters.loc[one.names[chosen[0]]]))
            yield _row(name, number, kind, compared) | {"predicted": power}


def _row(name: str, number: int, kind: str, compared: Comparison) -> Row:
    return {
        "program": name,
        "pair": number,
        "kind": kind,
        "level": compared.overall["level"],
        "quantities": len(compared.parameters),
        "copies": len(compared.alignment.copies),
        "word": compared.verdict.word,
        "headline": compared.verdict.headline,
        "mean_detectable_sd": compared.overall["mean_detectable_sd"],
        "sd_detectable": compared.overall["sd_detectable"],
    }


def _power(own: Comparison, size: float) -> float:
    """Probability with which a test finds a difference of so many detectable ones, which it finds with `POWER`."""
    limit = own.overall["critical_z"]
    return float(norm.cdf(size * (limit + norm.ppf(POWER)) - limit))
