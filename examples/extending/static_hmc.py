"""A reference engine: Hamiltonian Monte Carlo with a fixed number of leapfrog steps (Neal 2011, figure 2).

Leapfrog steps are those of equations 2.28 to 2.30 with unit masses; the step, jittered by a tenth, follows the
acceptance rate in warmup (Robbins-Monro: Andrieu and Thoms 2008) and is then held fixed. The program's
gradients come from the library that stansub compiles anyway.

What it is not: NUTS. Nothing adapts to scales or correlations, so it is for few parameters of like scale; chains run
one after the other.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from stansub.errors import RunError
from stansub.nuts.base import Missing, Program, Run, Settings
from stansub.output.layout import Layout
from stansub.stan.data.data import Data
from stansub.stan.passes import rewrite
from stansub.stan.toolchain import build
from stansub.stan.toolchain.library import Library, Model

Array = NDArray[np.float64]
N_LEAPFROG = 8


class StaticHmc:
    """An engine as `stansub.reference` takes it: ``engine=StaticHmc()``."""

    def unavailable(self) -> Missing | None:
        """It needs nothing but the compiler that stansub needs."""
        return None

    def run(self, program: Program, data: Data, settings: Settings, *, console: Console, show: bool) -> Run:
        """All chains, one after the other."""
        began = time.perf_counter()
        library = Library(build.compile_library(rewrite.silenced(program.syntax).code, name=program.name))
        model, compiled = data.model(library, seed=settings.seed), time.perf_counter()
        names = model.param_names(include_tp=True, include_gq=True)
        values, rates, seconds = [], [], []
        for chain in range(settings.chains):
            start = time.perf_counter()
            rng = np.random.default_rng((settings.seed, chain))
            theta, accepted, split = _chain(model, rng, settings)
            written = model.rng(int(rng.integers(2**31)))
            values.append([model.param_constrain(x, include_tp=True, include_gq=True, rng=written) for x in theta])
            rates.append(accepted)
            seconds.append((split - start, time.perf_counter() - split))
        return Run(
            posterior=Layout.from_names(names).split(np.array(values)),
            sample_stats={"acceptance_rate": np.array(rates)},
            warmup_time=[one for one, _ in seconds],
            sampling_time=[one for _, one in seconds],
            warmup_n_gradients=[N_LEAPFROG * settings.iter_warmup] * settings.chains,
            n_gradients=[N_LEAPFROG * settings.iter_sampling] * settings.chains,
            time_split="measured",
            compile_time=compiled - began,
            setup_time=0.0,
            wall_time=time.perf_counter() - compiled,
            version="1",
            method="HMC",
        )


def _chain(model: Model, rng: np.random.Generator, settings: Settings) -> tuple[Array, Array, float]:
    """Draws after warmup, shape (n, dim), their acceptance probabilities, and when warmup ended."""
    theta, log_step, split = rng.uniform(-2, 2, model.dim), float(np.log(0.1)), time.perf_counter()
    draws, rates = np.empty((settings.iter_sampling, model.dim)), np.empty(settings.iter_sampling)
    here = _at(model, theta)
    for i in range(-settings.iter_warmup, settings.iter_sampling):
        momentum = rng.standard_normal(model.dim)
        there, value, gradient, moving = theta, *here, momentum
        step = float(np.exp(log_step)) * rng.uniform(0.9, 1.1)
        for _ in range(N_LEAPFROG):
            half = moving + 0.5 * step * gradient
            there = there + step * half
            value, gradient = _at(model, there)
            moving = half + 0.5 * step * gradient
        gain = float(value - here[0] + 0.5 * (momentum @ momentum - moving @ moving))
        rate = float(np.exp(min(gain, 0.0))) if np.isfinite(gain) else 0.0
        if rng.random() < rate:
            theta, here = there, (value, gradient)
        if i < 0:
            log_step += (i + settings.iter_warmup + 1) ** -0.6 * (rate - settings.adapt_delta)
            split = time.perf_counter()
        else:
            draws[i], rates[i] = theta, rate
    return draws, rates, split


def _at(model: Model, theta: Array) -> tuple[float, Array]:
    """Log density and gradient; -inf where the program rejects."""
    try:
        return model.log_density_gradient(theta)
    except RunError:
        return -np.inf, np.zeros(model.dim)
