"""Exact draws of the posteriors of `rows`, by samplers that have nothing in common with stansub's.

Where there is a program NAME_reference.stan, it has the same posterior in other parameters, and its generated
quantities are the parameters of NAME.stan: NUTS mixes well there. The horseshoe and the linear smooths have Gibbs
samplers. Other posteriors are drawn by NUTS on the program itself. The mass matrix of NUTS learns correlations.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
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
    if row.name in GIBBS:
        draws = GIBBS[row.name](data, iterations=iterations, seed=seed)
        return Reference(parameters(draws, names), "a Gibbs sampler on sufficient statistics")
    twin = PROGRAMS / f"{row.name}_reference.stan"
    idata = stansub.reference(
        twin if twin.exists() else row.program,
        data,
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


class Smooths:
    """The linear program with smooths: given scales and the scale of the intercept, all coefficients are normal.

    Scales move by random-walk Metropolis with the coefficients integrated out. The intercept's t prior is a mixture of
    normal ones.
    """

    BLOCKS = ("zs_1_1", "zs_2_1", "zs_3_1")
    NU, SCALE = 3.0, 2.5
    MOVES = 4

    def __init__(self, data: Data) -> None:
        covariates = data["X"][:, 1:] - data["X"][:, 1:].mean(axis=0)
        columns = [np.ones((data["N"], 1)), covariates, data["Xs"], *(data[f"Z{name[1:]}"] for name in self.BLOCKS)]
        of_data = statistics(np.column_stack(columns), data["Y"])
        self.n, self.gram, self.moments = data["N"], of_data["r"].T @ of_data["r"], of_data["r"].T @ of_data["qy"]
        self.squares = of_data["rest"] + float(of_data["qy"] @ of_data["qy"])
        self.places = np.repeat(np.arange(len(columns)), [column.shape[1] for column in columns])

    def log_density(self, t: Array, mixing: float) -> tuple[float, Array, Array]:
        """Return that of the logarithms of the three scales and of sigma, and the coefficients' root and mean."""
        scales, variance = np.exp(t), np.exp(2 * t[3])
        sd = np.concatenate([[self.SCALE * np.sqrt(mixing), 2.0, 3.0], scales[:3]])[self.places]
        precision = self.gram / variance
        precision[np.diag_indices_from(precision)] += sd**-2
        root = np.linalg.cholesky(precision)
        mean = cho_solve((root, True), self.moments / variance)
        log_determinants = np.sum(np.log(np.diag(root))) + np.sum(np.log(sd)) + self.n * t[3]
        quadratic = (self.squares - self.moments @ mean) / (2 * variance)
        prior = np.sum(t - (self.NU + 1) / 2 * np.log1p((scales / self.SCALE) ** 2 / self.NU))
        return float(prior - log_determinants - quadratic), root, mean

    def chain(self, rng: np.random.Generator, *, iterations: int) -> dict[str, Array]:
        """Draw after half as many sweeps, in the middle of which the proposal is learned."""
        t, mixing, step = np.zeros(4), 1.0, np.diag([0.3, 0.3, 0.3, 1 / np.sqrt(self.n)])
        kept = []
        for sweep in range(iterations // 2 + iterations):
            here = self.log_density(t, mixing)
            for _ in range(self.MOVES):
                proposal = t + step @ rng.standard_normal(t.size)
                there = self.log_density(proposal, mixing)
                if there[0] - here[0] > -rng.exponential():
                    t, here = proposal, there
            w = here[2] + solve_triangular(here[1], rng.standard_normal(here[2].size), lower=True, trans=1)
            mixing = (self.NU + (w[0] / self.SCALE) ** 2) / 2 / rng.gamma((self.NU + 1) / 2)
            kept.append(np.concatenate([t, w]))
            if sweep == iterations // 4:
                step = 1.2 * np.linalg.cholesky(np.cov(np.array(kept)[iterations // 8 :, :4].T))
        drawn = np.array(kept[iterations // 2 :])
        return self._named(np.exp(drawn[:, :4]), drawn[:, 4:])

    def _named(self, scales: Array, w: Array) -> dict[str, Array]:
        block = [w[:, self.places == place] for place in range(self.places[-1] + 1)]
        named = {"Intercept": w[:, 0], "b": block[1], "bs": block[2], "sigma": scales[:, 3]}
        for k, name in enumerate(self.BLOCKS):
            named |= {name: block[3 + k] / scales[:, [k]], f"sds_{k + 1}": scales[:, [k]]}
        return named


def smooths(data: Data, *, iterations: int, seed: int) -> dict[str, Array]:
    """Draw the linear program with smooths by a Gibbs sampler."""
    sampler = Smooths(data)
    chains = [sampler.chain(rng, iterations=iterations) for rng in np.random.default_rng(seed).spawn(CHAINS)]
    return {name: np.array([chain[name] for chain in chains]) for name in chains[0]}


GIBBS = {"horseshoe": horseshoe, "smooths_linear": smooths}
