"""Simulation-based calibration (Talts et al. 2018): tests a sampler on data simulated from the prior.

Parameters are drawn from the prior, and data given them. If the sampler is correct, the ranks of the parameters among
its draws are uniform.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stansub.diagnostics.ranks import Rank, band, difference, p_value, rank
from stansub.errors import InputError, RunError, one_line
from stansub.findings import Severity
from stansub.output import plots
from stansub.output.inference_data import InferenceData, attrs, group
from stansub.output.statistics import scalars, table
from stansub.output.style import CHAIN_COLOURS, INK, blank, styled
from stansub.progress import as_progress
from stansub.run.config import SampleConfig
from stansub.run.limits import MOST, Count
from stansub.run.sample import check as check_draws
from stansub.run.sample import draw
from stansub.stan.compilation import CompiledModel, compile_model
from stansub.target.functions import FunctionFactors
from stansub.types import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Values = Mapping[str, Any]
Simulate = Callable[[np.random.Generator], tuple[Values, Any]]
Program = str | Path | CompiledModel | Callable[[Any], FunctionFactors]

# Maximum draws for a rank; more would hardly sharpen the ranks and need longer chains.
MOST_DRAWS = 100


class Repeat(NamedTuple):
    """Result of one simulated data set."""

    number: int
    names: tuple[str, ...] = ()
    """Names of the scalar quantities; empty if the run failed."""
    ranks: tuple[Rank, ...] = ()
    """Ranks of their true values."""
    uniforms: tuple[float, ...] = ()
    """The ranks between 0 and 1 (`Rank.uniform`)."""
    doubts: tuple[str, ...] = ()
    """Kinds of findings (`stansub.findings`) against the draws, except those about cost."""
    share: float = float("nan")
    """Share of the data per decision."""
    failure: str = ""
    """Why there are no draws; empty if there are."""


@dataclass(frozen=True)
class Calibration:
    """Ranks of true values over repeated simulations, with tests of their uniformity.

    Attributes
    ----------
    names : tuple of str
        Names of the scalar quantities.
    ranks, draws : ndarray of int, shape (repeats, quantities)
        Ranks, from 0 to the number of thinned draws.
    uniforms : ndarray, shape (repeats, quantities)
        Ranks between 0 and 1, which are uniform if the sampler is calibrated.
    warned : int
        Repeats with warnings about their draws, other than about cost; their ranks count like all others.
    doubts : mapping of str to int
        Number of repeats by kind of warning.
    failed : tuple of str
        Messages of repeats without draws, which have no ranks.
    share : float
        Share of the data per decision, mean over the repeats.
    """

    names: tuple[str, ...]
    ranks: IntArray
    draws: IntArray
    uniforms: FloatArray
    warned: int
    doubts: Mapping[str, int]
    failed: tuple[str, ...]
    share: float

    @classmethod
    def of(cls, repeats: Iterable[Repeat]) -> Calibration:
        """Return the calibration of several repeats.

        Raises
        ------
        RunError
            If no repeat has draws.
        """
        everything = list(repeats)
        done = [one for one in everything if not one.failure]
        failed = tuple(one.failure for one in everything if one.failure)
        if not done:
            raise RunError(f"all {len(failed)} repeats failed; the first: {', '.join(failed[:1])}")
        found = np.array([one.ranks for one in done], dtype=np.int32)
        return cls(
            names=done[0].names,
            ranks=found[..., 0],
            draws=found[..., 1],
            uniforms=np.array([one.uniforms for one in done]),
            warned=sum(bool(one.doubts) for one in done),
            doubts=Counter(kind for one in done for kind in one.doubts),
            failed=failed,
            share=float(np.mean([one.share for one in done])),
        )

    def __repr__(self) -> str:
        return f"<Calibration: {len(self.uniforms)} repeats of {len(self.names)} quantities, p = {self.p_value:.2g}>"

    @cached_property
    def p_values(self) -> FloatArray:
        """Return a p-value for the uniformity of each quantity's ranks, shape (quantities,)."""
        return np.array([p_value(own) for own in self.uniforms.T])

    @property
    def p_value(self) -> float:
        """Return the p-value of all quantities together (Bonferroni), valid for any dependence."""
        return float(min(1.0, self.p_values.min() * len(self.names)))

    @property
    def parameters(self) -> pd.DataFrame:
        """Return a row per quantity: p-value, mean of the uniform ranks (0.5 if calibrated) and sd over 1 / sqrt(12).

        A mean below 0.5 means that draws are too high; an sd ratio above 1 means that draws are too narrow.
        """
        import pandas as pd

        return pd.DataFrame(
            {
                "p_value": self.p_values,
                "mean": self.uniforms.mean(axis=0),
                "sd_ratio": self.uniforms.std(axis=0) * np.sqrt(12),
                "draws": np.median(self.draws, axis=0),
            },
            index=pd.Index(self.names, name="quantity"),
        )

    @styled
    def plot(self, path: str | os.PathLike[str] | None = None, *, error: float = 0.05) -> Figure:
        """Plot the empirical distribution function of each quantity's ranks, less the uniform one, with its band.

        Parameters
        ----------
        path : path, optional
            File to write; its suffix is the format.
        error : float
            Probability that a quantity of a calibrated sampler leaves the band anywhere.
        """
        figure = blank(5.4, 3.4)
        axes = figure.subplots()
        draw_band(axes, len(self.uniforms), error=error)
        for k, (name, own) in enumerate(zip(self.names, self.uniforms.T, strict=True)):
            draw_differences(axes, own, label=name, color=CHAIN_COLOURS[k % len(CHAIN_COLOURS)])
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
        if path is not None:
            plots.save(figure, path)
        return figure


def draw_band(axes: Axes, n: int, *, error: float) -> None:
    """Draw the band of ``n`` uniform ranks and label the axes."""
    at, low, high = band(n, error)
    at, low, high = (np.concatenate([[a], values, [b]]) for a, values, b in ((0, at, 1), (0, low, 0), (0, high, 0)))
    axes.fill_between(at, low, high, color="#E4E4E4", linewidth=0, zorder=0.5)
    axes.axhline(0, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set(xlim=(0, 1), xlabel="rank, as a share of the draws", ylabel="ECDF less uniform")


def draw_differences(axes: Axes, uniforms: FloatArray, **style: Any) -> None:
    """Draw the empirical distribution function of ranks less the uniform one."""
    at = np.linspace(0, 1, 201)
    axes.plot(at, difference(uniforms, at), **{"linewidth": 1.1, **style})


def calibrate(
    program: Program,
    simulate: Simulate,
    *,
    repeats: int = 100,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Calibration:
    """Run simulation-based calibration of `stansub.sample` on a program and its prior (Talts et al. 2018, algorithm 1).

    Parameters
    ----------
    program : path, CompiledModel or callable
        A Stan program, or a function from data to a posterior of numpy functions.
    simulate : callable
        From a generator to parameters drawn from the prior and data given them. Parameters are values by name, as the
        program declares them (transformed parameters and generated quantities too); quantities left out have no ranks.
    repeats : int
        Number of simulated data sets.
    seed : int
        Seed of everything random; each repeat has its own streams, independent of the number of repeats.
    progress : callable, optional
        Called with a line of text before each repeat.
    **options
        Options of `stansub.sample`; ``show_progress`` is off.

    Returns
    -------
    Calibration

    Raises
    ------
    InputError
        If the program, the data or an option cannot be used, or `simulate` does not fit the program.
    RunError
        If no repeat has draws.

    Notes
    -----
    Draws are thinned until they are nearly independent (`stansub.diagnostics.ranks.rank`). Chains that have not
    converged are ranked too: leaving them out would make any sampler look calibrated. ``warned`` counts them. A repeat
    that fails with `RunError` has no ranks and is listed in ``failed``.
    """
    Count(2, MOST["repeats"]).check("repeats", repeats)
    Count(0, MOST["seed"]).check("seed", seed)
    log = as_progress(progress)
    model = compile_model(program, progress=log) if isinstance(program, str | Path) else program
    done = []
    for number in range(repeats):
        log(f"Repeat {number + 1} of {repeats}")
        done.append(repeat(model, simulate, number, seed=seed, **options))
    return Calibration.of(done)


def repeat(program: Program, simulate: Simulate, number: int, *, seed: int, **options: Any) -> Repeat:
    """Run one repeat of `calibrate`; combine repeats, made anywhere and in any order, with `Calibration.of`.

    Parameters
    ----------
    number : int
        Number of the repeat, from 0; with ``seed`` it determines everything random.
    """
    simulating, sampling, ranking = np.random.SeedSequence(seed, spawn_key=(number,)).spawn(3)
    values, data = simulate(np.random.default_rng(simulating))
    own_seed = int(sampling.generate_state(1)[0])
    config = SampleConfig(**{"show_progress": False, **options, "seed": own_seed})
    try:
        if isinstance(program, str | Path | CompiledModel):
            idata = draw(program, data, config)
        else:
            idata = draw(program(data), None, config)
    except RunError as error:
        return Repeat(number, failure=one_line(error))
    return ranked(idata, values, number, np.random.default_rng(ranking))


def ranked(idata: InferenceData, values: Values, number: int, rng: np.random.Generator) -> Repeat:
    """Return the ranks of true values among draws.

    Raises
    ------
    InputError
        If values and draws have different names or shapes.
    """
    names, draws = scalars(idata, list(values))
    posterior = group(idata, "posterior")
    for name, value in values.items():
        if np.shape(value) != posterior[name].shape[2:]:
            raise InputError(
                f"simulate returned {name} with shape {np.shape(value)}; in the program it has "
                f"{posterior[name].shape[2:]}"
            )
    truth = np.concatenate([np.ravel(np.asarray(value, float)) for value in values.values()])
    ess = table(idata, percentiles=(), var_names=list(values))["ess_bulk"].to_numpy()
    found = [rank(draws[..., k], truth[k], ess[k], rng, most=MOST_DRAWS) for k in range(len(names))]
    summary = check_draws(idata)
    findings = summary.findings if summary is not None else ()
    return Repeat(
        number=number,
        names=tuple(names),
        ranks=tuple(found),
        uniforms=tuple(one.uniform(rng) for one in found),
        doubts=tuple(sorted({type(one).__name__ for one in findings if one.severity >= Severity.DOUBT})),
        share=_share(idata),
    )


def _share(idata: InferenceData) -> float:
    """Return the share of the data in a decision's subset, over all steps."""
    stats = group(idata, "chain_stats")
    steps = float(stats["n_steps"].sum()) * int(attrs(idata)["n_observations"])
    return float(stats["n_obs_used"].sum()) / steps
