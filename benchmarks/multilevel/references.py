"""Exact draws of the posteriors of `rows`, by samplers that have nothing in common with stansub's.

Where there is a program NAME_reference.stan, it has the same posterior in other parameters, or from sufficient
statistics, and its generated quantities are the parameters of NAME.stan: NUTS mixes well there. The horseshoe has a
Gibbs sampler. Other posteriors are drawn by NUTS on the program itself. The mass matrix of NUTS learns correlations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gibbs import slice_draw
from numpy.typing import NDArray
from rows import PROGRAMS, Row
from scipy.linalg import cho_solve, solve_triangular
from suite.figures import Draws, parameters

import stansub
from stansub.nuts import nutpie
from stansub.output.inference_data import group

Array = NDArray[np.float64]
Data = dict[str, Any]
CHAINS = 4


class Nuts:
    """NUTS by nutpie with a mass matrix of low rank, which makes several times the effective draws here."""

    unavailable = staticmethod(nutpie.unavailable)
    run = staticmethod(functools.partial(nutpie.run, low_rank=True))


class Reference(NamedTuple):
    """Draws of a posterior's parameters, and by what they were made."""

    draws: Draws
    by: str


def reference(row: Row, data: Data, names: Sequence[str], *, iterations: int, seed: int) -> Reference:
    """Draw a row's posterior by four chains of so many iterations after half as many."""
    if row.name == "horseshoe":
        draws = horseshoe(data, iterations=iterations, seed=seed)
        return Reference(parameters(draws, names), "a Gibbs sampler on sufficient statistics")
    twin = PROGRAMS / f"{row.name}_reference.stan"
    idata = stansub.reference(
        twin if twin.exists() else row.program,
        STATISTICS[row.name](data) if row.name in STATISTICS else data,
        engine=Nuts(),
        adapt_delta=0.9,
        chains=CHAINS,
        iter_warmup=iterations // 2,
        iter_sampling=iterations,
        seed=seed,
        show_progress=False,
    )
    drawn = {name: np.asarray(group(idata, "posterior")[name]) for name in names}
    return Reference(parameters(drawn, names), "NUTS in other parameters" if twin.exists() else "NUTS")


def statistics(x: Array, y: Array) -> Data:
    """Return what a normal likelihood with the design ``x`` needs of the data: with x = Q R, R, Q'y and the rest."""
    r = np.linalg.cholesky(x.T @ x).T
    qy = solve_triangular(r, x.T @ y, trans=1)
    return {"r": r, "qy": qy, "rest": float(y @ y - qy @ qy)}


def _smooths(data: Data) -> Data:
    """Statistics of the program with smooths, which centres its covariates."""
    covariates = data["X"][:, 1:] - data["X"][:, 1:].mean(axis=0)
    smooths = (data[f"Zs_{k}_1"] for k in (1, 2, 3))
    design = np.column_stack([np.ones(data["N"]), covariates, data["Xs"], *smooths])
    sizes = {name: data[name] for name in ("N", "Kc", "Ks", "knots_1", "knots_2", "knots_3")}
    return {**sizes, "P": design.shape[1], **statistics(design, data["Y"])}


STATISTICS: dict[str, Callable[[Data], Data]] = {"smooths_linear": _smooths}


class Horseshoe(NamedTuple):
    """A state of the Gibbs sampler: coefficients with the intercept first, and squares of scales."""

    b: Array
    local: Array
    common: float
    log_sigma: float


def horseshoe(data: Data, *, iterations: int, seed: int) -> dict[str, Array]:
    """Draw the horseshoe regression by a Gibbs sampler.

    Half-t scales are mixtures of inverse gamma distributions (Wand, Ormerod, Padoan and Fruhwirth 2011, result 5):
    s^2 | a ~ IG(nu/2, nu/a) with a ~ IG(1/2, 1/A^2) makes s half-t with nu degrees of freedom and scale A.
    """
    of_data = statistics(np.column_stack([np.ones(data["N"]), data["x"]]), data["y"])
    gram, moments = of_data["r"].T @ of_data["r"], of_data["r"].T @ of_data["qy"]
    kept = []
    for rng in np.random.default_rng(seed).spawn(CHAINS):
        state = Horseshoe(np.zeros(data["K"] + 1), np.ones(data["K"]), 0.01, 0.0)
        chain = []
        for _ in range(iterations // 2 + iterations):
            state = _swept(rng, state, of_data, gram, moments, data["N"])
            chain.append(state)
        kept.append(chain[iterations // 2 :])
    b, local, common, log_sigma = (
        np.array([[getattr(state, name) for state in chain] for chain in kept]) for name in Horseshoe._fields
    )
    scales = np.sqrt(common[:, :, np.newaxis] * local)
    return {
        "alpha": b[:, :, 0], "z": b[:, :, 1:] / scales, "lambda": np.sqrt(local), "tau": np.sqrt(common),
        "sigma": np.exp(log_sigma),
    }  # fmt: skip


def _swept(rng: np.random.Generator, now: Horseshoe, of_data: Data, gram: Array, moments: Array, n: int) -> Horseshoe:
    """One sweep."""
    variance = np.exp(2 * now.log_sigma)
    precision = gram / variance
    precision[np.diag_indices_from(precision)] += np.concatenate([[0.25], 1 / (now.common * now.local)])
    root = np.linalg.cholesky(precision)
    b = cho_solve((root, True), moments / variance)
    b += solve_triangular(root, rng.standard_normal(b.size), lower=True, trans=1)
    squares = b[1:] ** 2
    local = _half_t(rng, now.local, squares / now.common, 1, scale=1.0)
    common = float(_half_t(rng, now.common, np.sum(squares / local), b.size - 1, scale=0.1))
    rest = of_data["rest"] + float(np.sum((of_data["qy"] - of_data["r"] @ b) ** 2))

    def log_density(t: float) -> float:
        return float(-np.exp(t) - (n - 1) * t - 0.5 * rest * np.exp(-2 * t))

    return Horseshoe(b, local, common, slice_draw(rng, log_density, now.log_sigma, 3 / np.sqrt(n)))


def _half_t(rng: np.random.Generator, now: Any, squares: Any, n: int, *, scale: float, nu: float = 3.0) -> Any:
    """Draw the square of a half-t scale of n normal values, whose squares have this sum, by way of the mixture."""
    mixing = (scale**-2 + nu / now) / rng.gamma((nu + 1) / 2, size=np.shape(now))
    return (nu / mixing + squares / 2) / rng.gamma((nu + n) / 2, size=np.shape(now))
