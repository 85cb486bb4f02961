"""How the time of a step and the share of the data that it uses grow with the data.

At a fixed proposal (Chen, Mansinghka and Ghahramani 2015, figure 5: standard deviation 0.1, epsilon 0.01) a larger
data set settles a decision with a smaller share. At equilibrium (Bardenet, Doucet and Holmes 2017, figure 7b) the
proposal shrinks with the posterior and the share stays. The default's control variates make it fall again, and with
factorised decisions a step itself costs less on more data (Cornish et al. 2019, figure 1).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stansub.errors import DrawsWarning
from stansub.run.choices import cores
from suite import logistic
from suite.workloads import STAN_MODELS, arrays

COVARIATES = 2
_FIXED_SD = 0.1
_WARMUP = 1000
# Draws that are kept of a run.
_KEPT = 1000


class _Test(NamedTuple):
    """Options of `stansub.sample`, steps that are timed, and the largest N at which they do not take long."""

    options: dict[str, Any]
    steps: int
    largest: float = math.inf


_TESTS = {
    "exact": _Test({"test": "exact"}, 1000, 1e6),
    "plain austerity 0.01": _Test(
        {"test": "austerity", "epsilon": 0.01, "control_variates": 0, "audit": 0.0}, 1000, 1e6
    ),
    "default": _Test({}, 1_000_000),
    "factorised": _Test({"test": "factorised"}, 1_000_000),
}
REGIMES = ("fixed proposal", "equilibrium")


def rows(sizes: Sequence[int], *, covariates: int, seed: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Microseconds and share of the data a step: logistic regression, one chain, from the mode.

    What the runs warn of, one chain and few draws, is not what is asked here.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DrawsWarning)
        return _rows(sizes, covariates, seed, say)


def _rows(sizes: Sequence[int], covariates: int, seed: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    import stansub
    from stansub.output.inference_data import attrs

    compiled = stansub.compile_model(STAN_MODELS / "logistic.stan")
    found = []
    for n in sizes:
        data = arrays("logistic", n, covariates)
        with ThreadPoolExecutor(cores()) as pool:
            mode = logistic.find_normal(logistic.from_data(data["x"], 2.0 * data["y"] - 1.0), pool).mode
        for regime in REGIMES:
            for name, (options, steps, largest) in _TESTS.items():
                if n > largest:
                    continue
                fixed = regime == REGIMES[0]
                proposal: dict[str, Any] = {}
                if fixed:
                    proposal = {"proposal": stansub.RandomWalk(_FIXED_SD * np.eye(len(mode)))}
                elif "control_variates" in options:
                    proposal = {"proposal": "adaptive-metropolis"}
                idata = stansub.sample(
                    compiled,
                    data,
                    chains=1,
                    seed=seed,
                    inits={"alpha": mode[0], "beta": mode[1:].tolist()},
                    iter_warmup=0 if fixed else _WARMUP,
                    iter_sampling=steps,
                    thin=steps // _KEPT,
                    generated_quantities=False,
                    show_progress=False,
                    **options,
                    **proposal,
                )
                facts = attrs(idata)
                made = sum(facts["n_steps"])
                one = {
                    "n": n,
                    "covariates": covariates,
                    "regime": regime,
                    "test": name,
                    "us_per_step": 1e6 * sum(facts["sampling_time"]) / made,
                    "share": sum(facts["n_obs_used"]) / made / n,
                    "accepted": sum(facts["n_accepted"]) / made,
                }
                found.append(one)
                say(
                    f"N = {n:,}, {regime}, {name}: {one['us_per_step']:,.3g} us and "
                    f"{one['share'] * n:,.3g} observations a step, test {facts['test']}"
                )
    return found


def picture(found: Sequence[dict[str, Any]], path: Path) -> None:
    """Time of a step and share of the data against N, both axes logarithmic."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator

    from stansub.output import style

    with mpl.rc_context(style.STYLE):
        figure = Figure(figsize=(9, 4), layout="constrained")
        axes = figure.subplots(1, 2)
        for ax, key, label in zip(
            axes, ("us_per_step", "share"), ("microseconds a step", "share of the data a step"), strict=True
        ):
            for colour, test in zip(style.CHAIN_COLOURS, _TESTS, strict=False):
                for regime, line in zip(REGIMES, ("--", "-"), strict=True):
                    own = [one for one in found if one["test"] == test and one["regime"] == regime]
                    ax.plot(
                        [one["n"] for one in own],
                        [one[key] for one in own],
                        line,
                        marker="o",
                        markersize=4,
                        color=colour,
                        label=f"{test}, {regime}",
                    )
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_xlabel("observations")
            ax.set_ylabel(label)
        shares = [10.0**b for b in range(-9, 1)]
        axes[1].yaxis.set_major_locator(FixedLocator(shares))
        axes[1].yaxis.set_major_formatter(style.percent_ticks())
        axes[1].yaxis.set_minor_locator(NullLocator())
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(_TESTS))
        figure.savefig(path, dpi=style.DPI)
