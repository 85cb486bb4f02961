"""Programs as people have them, with data for each and the truth about it.

A program's likelihood is a sum over observations where the log density of the data given the parameters is a sum of
terms, each of which reads its own observation: rows of the data, lagged ones among them, and parameters that do not
become more with the observations. Whether `stansub` finds that is what is measured; here is only what is true.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

PROGRAMS = Path(__file__).resolve().parent / "programs"

Array = NDArray[np.float64]
Data = dict[str, Any]
Rng = np.random.Generator
Make = Callable[[Rng, int], Data]

_BETA = np.array([0.5, -0.3])


@dataclass(frozen=True)
class Obstacle:
    """Why a likelihood is not a sum over observations.

    Attributes
    ----------
    name : str
        What the program is.
    words : tuple of str
        Any of these in an answer names it, in small letters.
    """

    name: str
    words: tuple[str, ...]


GAUSSIAN_PROCESS = Obstacle("a Gaussian process", ("gaussian process",))
COVARIANCE = Obstacle("errors with a known covariance", ("a covariance", "covariance of", "correlated errors"))
ODE = Obstacle("the solution of a differential equation", ("differential equation",))
HIDDEN_MARKOV = Obstacle("a hidden Markov model", ("hidden markov", "forward algorithm"))
MOVING_AVERAGE = Obstacle("moving average errors", ("moving average", "moving-average", "arma"))
GARCH = Obstacle("a GARCH model", ("garch", "recursi"))
LATENT = Obstacle(
    "a parameter for each observation", ("for each observation", "per observation", "for every observation")
)
STATE_SPACE = Obstacle("a state-space model", ("state-space", "hidden state"))
SPATIAL = Obstacle("a spatial model", ("spatial",))
PARTIAL = Obstacle("a partial likelihood", ("partial likelihood", "cox", "at risk", "carries", "running"))
CHANGE_POINT = Obstacle("a marginalised change point", ("change point", "marginalised"))
SUMMARY = Obstacle("a density of the data's mean and sd", ("summar", "all observations"))
SCALED = Obstacle("a predictor scaled by its mean over the data", ("all observations", "mean of"))
SUPPORT = Obstacle("a bound of a parameter by the residuals of all observations", ("all observations", "residual"))
NO_LIKELIHOOD = Obstacle("a program without likelihood", ("no likelihood", "nothing counts the observations"))


@dataclass(frozen=True)
class Case:
    """A program, its data, and what is true of it.

    Attributes
    ----------
    name : str
    make : callable
        From a generator and a number of observations to data.
    obstacle : Obstacle or None
        None where the likelihood is a sum over observations.
    full : int
        Observations at the full size.
    program : str
        Stem of the Stan file; the name where it is not given.
    """

    name: str
    make: Make
    obstacle: Obstacle | None = None
    full: int = 4000
    program: str = ""

    @property
    def path(self) -> Path:
        return PROGRAMS / f"{self.program or self.name}.stan"

    @property
    def about(self) -> str:
        """The first line of the program."""
        return self.path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("// ").removesuffix(".")

    @property
    def in_brms_style(self) -> bool:
        return self.name.startswith("brms_")

    def data(self, n: int, seed: int = 1) -> Data:
        """Data with about so many observations."""
        return self.make(np.random.default_rng([seed, n]), n)


# --- in brms's style ---------------------------------------------------------------------------------------------


def _design(rng: Rng, n: int) -> tuple[Array, Data]:
    """A predictor with two slopes, and the design as brms passes it, intercept first."""
    x = np.column_stack([np.ones(n), rng.normal(1.0, 1.0, n), rng.normal(0.0, 1.0, n)])
    return 0.3 + x[:, 1:] @ _BETA, {"N": n, "K": 3, "X": x, "Kc": 2, "prior_only": 0}


def _regression(outcome: Callable[[Rng, Array], Any], **more: Any) -> Make:
    """Data of a regression: the outcome from its predictor, and further variables."""

    def make(rng: Rng, n: int) -> Data:
        eta, data = _design(rng, n)
        return {**data, "Y": outcome(rng, eta), **more}

    return make


def _normal(rng: Rng, eta: Array) -> Array:
    return rng.normal(eta, 0.8)


def _coin(rng: Rng, eta: Array) -> Any:
    return rng.binomial(1, expit(eta))


def _count(rng: Rng, eta: Array) -> Any:
    return rng.poisson(np.exp(eta))


def _gamma(rng: Rng, eta: Array) -> Array:
    return rng.gamma(2.0, np.exp(eta) / 2.0)


def _ordinal(rng: Rng, eta: Array) -> Any:
    return 1 + np.digitize(rng.logistic(eta), [-1.0, 0.5, 2.0])


def _inflated(rng: Rng, eta: Array) -> Any:
    return np.where(rng.random(len(eta)) < 0.3, 0, _count(rng, eta))


def _binomial(rng: Rng, n: int) -> Data:
    eta, data = _design(rng, n)
    trials = rng.integers(1, 10, n)
    return {**data, "trials": trials, "Y": rng.binomial(trials, expit(eta))}


def _rate(rng: Rng, n: int) -> Data:
    eta, data = _design(rng, n)
    denom = rng.uniform(0.5, 3.0, n)
    return {**data, "denom": denom, "Y": rng.poisson(denom * np.exp(eta))}


def _offset(rng: Rng, n: int) -> Data:
    eta, data = _design(rng, n)
    offsets = rng.normal(0.0, 0.5, n)
    return {**data, "offsets": offsets, "Y": rng.poisson(np.exp(eta + offsets) * rng.gamma(3.0, 1 / 3.0, n))}


def _cumulative(rng: Rng, n: int) -> Data:
    """Ordinal models have no intercept in their design."""
    eta, data = _design(rng, n)
    return {**data, "K": 2, "X": data["X"][:, 1:], "Y": _ordinal(rng, eta), "nthres": 3}


def _monotonic(rng: Rng, n: int) -> Data:
    eta, data = _design(rng, n)
    level = rng.integers(0, 4, n)
    y = _normal(rng, eta + np.array([0.0, 0.5, 1.2, 1.5])[level])
    return {**data, "Y": y, "Ksp": 1, "Imo": 1, "Jmo": [3], "Xmo_1": level, "con_simo_1": np.ones(3)}


def _hurdle(rng: Rng, n: int) -> Data:
    eta, data = _design(rng, n)
    y = np.where(rng.random(n) < expit(data["X"][:, 2] - 0.5), 0.0, _gamma(rng, eta))
    return {**data, "Y": y, "K_hu": 2, "X_hu": data["X"][:, [0, 2]], "Kc_hu": 1}


def _right_censored(rng: Rng, n: int) -> Data:
    eta, data = _design(rng, n)
    time, end = np.exp(eta) * rng.weibull(1.5, n), rng.exponential(4.0, n)
    return {**data, "Y": np.minimum(time, end), "cens": (end < time).astype(int)}


def _censored(rng: Rng, n: int) -> Data:
    eta, data = _design(rng, n)
    y = _normal(rng, eta)
    return {**data, "Y": np.clip(y, -1.0, 1.5), "cens": np.digitize(y, [-1.0, 1.5]) - 1}


def _truncated(rng: Rng, n: int) -> Data:
    eta, data = _design(rng, n)
    y = _normal(rng, eta)
    low, high = np.full(n, -1.0), np.full(n, 2.0)
    # Where the outcome is outside, the bounds are those of another study.
    low[(y < low) | (y > high)], high[(y < low) | (y > high)] = -20.0, 20.0
    return {**data, "Y": y, "lb": low, "ub": high}


def _weights(rng: Rng, n: int) -> Data:
    eta, data = _design(rng, n)
    return {**data, "Y": _normal(rng, eta), "weights": rng.uniform(0.2, 2.0, n)}


def _missing(rng: Rng, n: int) -> Data:
    x = rng.normal(1.0, 1.0, n)
    y = rng.normal(0.5 + 0.7 * x, 0.5)
    gone = np.sort(rng.choice(n, min(n // 10, 20), replace=False))
    x[gone] = 0.0
    return {"N": n, "Y_y": y, "Y_x": x, "Nmi_x": len(gone), "Jmi_x": gone + 1, "prior_only": 0}


def _noisy(rng: Rng, n: int) -> Data:
    eta, data = _design(rng, n)
    x = rng.normal(0.0, 1.0, n)
    noise = np.full(n, 0.3)
    return {**data, "Y": _normal(rng, eta + 0.6 * x), "Xn_1": rng.normal(x, noise), "noise_1": noise}


def _spline(knots: tuple[int, ...]) -> Make:
    def make(rng: Rng, n: int) -> Data:
        eta, data = _design(rng, n)
        x = rng.uniform(-1.0, 1.0, n)
        bases = {
            f"Zs_1_{j}": np.cos(np.outer(x, np.arange(1, k + 1)) * (1 + j / 3)) for j, k in enumerate(knots, start=1)
        }
        smooth = {"Ks": 1, "Xs": x[:, np.newaxis], "nb_1": len(knots), "knots_1": list(knots)}
        return {**data, **smooth, **bases, "Y": _normal(rng, eta + np.sin(3 * x))}

    return make


def _levels(rng: Rng, n: int, k: int, levels: int, sd: float) -> tuple[Array, Data]:
    """Effects of groups on observations, and the variables of group term k."""
    group = rng.permutation(np.arange(n) % levels)
    data = {f"N_{k}": levels, f"M_{k}": 1, f"J_{k}": group + 1, f"Z_{k}_1": np.ones(n)}
    return rng.normal(0.0, sd, levels)[group], data


def _groups(rng: Rng, n: int) -> Data:
    eta, data = _design(rng, n)
    first, one = _levels(rng, n, 1, 12, 0.7)
    second, two = _levels(rng, n, 2, 7, 0.4)
    return {**data, **one, **two, "Y": _coin(rng, eta + first + second)}


def _correlated(outcome: Callable[[Rng, Array], Any]) -> Make:
    def make(rng: Rng, n: int) -> Data:
        eta, data = _design(rng, n)
        effect, group = _levels(rng, n, 1, 10, 0.5)
        slope = rng.normal(0.0, 0.3, 10)[group["J_1"] - 1]
        z = rng.normal(0.0, 1.0, n)
        return {**data, **group, "M_1": 2, "Z_1_2": z, "NC_1": 1, "Y": outcome(rng, eta + effect + slope * z)}

    return make


def _distributional(rng: Rng, n: int) -> Data:
    eta, data = _design(rng, n)
    x = data["X"][:, :2]
    return {**data, "Y": rng.normal(eta, np.exp(-0.5 + 0.3 * x[:, 1])), "K_sigma": 2, "X_sigma": x, "Kc_sigma": 1}


def _categorical(rng: Rng, n: int) -> Data:
    _, data = _design(rng, n)
    x = data["X"]
    scores = np.column_stack([np.zeros(n), x @ [0.2, 0.5, -0.3], x @ [-0.4, 0.1, 0.6]]) + rng.gumbel(size=(n, 3))
    more = {"K_mu2": 3, "X_mu2": x, "Kc_mu2": 2, "K_mu3": 3, "X_mu3": x, "Kc_mu3": 2}
    return {"N": n, "ncat": 3, "Y": 1 + scores.argmax(1), **more, "prior_only": 0}


def _two_clusters(rng: Rng, n: int) -> Array:
    return np.where(rng.random(n) < 0.35, rng.normal(-1.5, 0.6, n), rng.normal(1.0, 0.9, n))


def _brms_mixture(rng: Rng, n: int) -> Data:
    return {"N": n, "Y": _two_clusters(rng, n), "con_theta": np.ones(2), "prior_only": 0}


def _arma(kar: int, kma: int) -> Make:
    def make(rng: Rng, n: int) -> Data:
        eta, data = _design(rng, n)
        lag = max(kar, kma)
        # How many residuals are kept after each observation, for the next.
        kept = np.minimum(np.arange(1, n + 1), lag)
        kept[-1] = 0
        errors = _autoregression(rng, n, [0.4]) if kar else _moving_average(rng, n)
        return {**data, "Y": eta + errors, "Kar": kar, "Kma": kma, "J_lag": kept}

    return make


def _multivariate(rng: Rng, n: int) -> Data:
    eta, data = _design(rng, n)
    errors = rng.multivariate_normal([0.0, 0.0], [[0.6, 0.2], [0.2, 0.4]], n)
    first = {"K_u": 3, "X_u": data["X"], "Kc_u": 2, "Y_u": eta + errors[:, 0]}
    return {"N": n, **first, "Y_v": 1.0 + errors[:, 1], "nresp": 2, "nrescor": 1, "prior_only": 0}


def _nonlinear(rng: Rng, n: int) -> Data:
    t = rng.uniform(0.0, 4.0, n)
    ones = np.ones((n, 1))
    y = rng.normal(3.0 * np.exp(-0.6 * t), 0.3)
    return {"N": n, "Y": y, "K_a": 1, "X_a": ones, "K_k": 1, "X_k": ones, "C_1": t, "prior_only": 0}


# --- in other styles ---------------------------------------------------------------------------------------------


def _autoregression(rng: Rng, n: int, coefficients: list[float]) -> Array:
    y, k = np.zeros(n + 50), len(coefficients)
    for t in range(k, n + 50):
        y[t] = np.dot(coefficients, y[t - k : t][::-1]) + rng.normal(0.0, 0.7)
    return y[50:]


def _moving_average(rng: Rng, n: int) -> Array:
    noise = rng.normal(0.0, 0.7, n + 1)
    return np.asarray(noise[1:] + 0.5 * noise[:-1])


def _series(values: Callable[[Rng, int], Any], size: str = "T", outcome: str = "y", **more: Any) -> Make:
    """One series of values."""

    def make(rng: Rng, n: int) -> Data:
        return {size: n, outcome: values(rng, n), **more}

    return make


def _ar(coefficients: list[float]) -> Callable[[Rng, int], Array]:
    return lambda rng, n: _autoregression(rng, n, coefficients)


def _heteroscedastic(rng: Rng, n: int) -> Array:
    y = np.zeros(n)
    for t in range(1, n):
        y[t] = rng.normal(0.0, np.sqrt(0.5 + 0.4 * y[t - 1] ** 2))
    return y


def _switching(rng: Rng, n: int) -> Array:
    state = np.cumsum(rng.random(n) < 0.1) % 2
    return rng.normal(np.array([-1.0, 2.0])[state], 1.0)


def _volatile(rng: Rng, n: int) -> Array:
    return rng.normal(0.0, np.exp(_autoregression(rng, n, [0.9]) / 4))


def _wandering(rng: Rng, n: int) -> Array:
    return np.asarray(np.cumsum(rng.normal(0.0, 0.3, n)) + rng.normal(0.0, 0.5, n))


def _survival(rng: Rng, n: int) -> tuple[Array, Array, NDArray[np.bool_]]:
    x = rng.normal(0.0, 1.0, (n, 2))
    time, end = np.exp(1.0 + x @ _BETA) * rng.weibull(1.4, n), rng.exponential(5.0, n)
    return x, np.minimum(time, end), time <= end


def _two_arrays(rng: Rng, n: int) -> Data:
    x, time, seen = _survival(rng, n)
    sizes = {"N_obs": int(seen.sum()), "N_cen": int((~seen).sum()), "K": 2}
    return {**sizes, "t_obs": time[seen], "t_cen": time[~seen], "x_obs": x[seen], "x_cen": x[~seen]}


def _two_sums(rng: Rng, n: int) -> Data:
    data = _two_arrays(rng, n)
    del data["K"]
    return {**data, "x_obs": data["x_obs"][:, 0], "x_cen": data["x_cen"][:, 0]}


def _events(rng: Rng, n: int) -> Data:
    x, time, seen = _survival(rng, n)
    return {"N": n, "event": seen.astype(int), "time": time, "age": x[:, 0]}


def _cox(rng: Rng, n: int) -> Data:
    x, time, seen = _survival(rng, n)
    last_first = np.argsort(-time)
    return {"N": n, "K": 2, "x": x[last_first], "event": seen[last_first].astype(int)}


def _items(rng: Rng, n: int) -> Data:
    """Two thirds as many items as persons, who answer all of them or as many as it takes."""
    persons = max(3, int((1.5 * n) ** 0.5))
    items = max(2, -(-n // persons))
    j, i = np.divmod(np.arange(n), items)
    a, b = rng.lognormal(0.0, 0.3, items), rng.normal(0.0, 1.0, items)
    y = rng.binomial(1, expit(a[i] * (rng.normal(0.0, 1.0, persons + 1)[j] - b[i])))
    return {"I": items, "J": int(j.max()) + 1, "N": n, "ii": i + 1, "jj": j + 1, "y": y}


def _sites(rng: Rng, n: int) -> Data:
    sites, days = (8, 5) if n < 1000 else (60, 40)
    site, day, x = rng.integers(0, sites, n), rng.integers(0, days, n), rng.normal(0.0, 1.0, n)
    eta = 0.5 + 0.3 * x + rng.normal(0.0, 0.4, sites)[site] + rng.normal(0.0, 0.3, days)[day]
    return {"N": n, "S": sites, "D": days, "site": site + 1, "day": day + 1, "x": x, "y": rng.poisson(np.exp(eta))}


def _two_outcomes(rng: Rng, n: int) -> Data:
    x = rng.normal(0.0, 1.0, n)
    return {"N": n, "x": x, "y": _coin(rng, 0.2 + 0.6 * x), "z": _normal(rng, 1.0 + 0.6 * x)}


def _linear(rng: Rng, n: int) -> Data:
    x = rng.normal(1.0, 1.0, (n, 2))
    return {"N": n, "K": 2, "x": x, "y": _normal(rng, 0.4 + x @ _BETA)}


def _line(rng: Rng, n: int) -> Data:
    x = rng.normal(2.0, 1.0, n)
    return {"N": n, "x": x, "y": _normal(rng, 0.4 + 0.5 * x)}


def _radon(uranium: bool) -> Make:
    def make(rng: Rng, n: int) -> Data:
        counties = 15
        county, level = rng.integers(0, counties, n), rng.binomial(1, 0.3, n)
        ore = rng.normal(0.0, 0.5, counties)
        y = rng.normal((1.3 + 0.6 * ore + rng.normal(0.0, 0.3, counties))[county] - 0.7 * level, 0.7)
        data = {"N": n, "J": counties, "county": county + 1, "floor_level": level, "log_radon": y}
        return {**data, "uranium": ore} if uranium else data

    return make


def _counts(rng: Rng, n: int) -> Data:
    x = rng.normal(0.0, 1.0, n)
    return {"N": n, "x": x, "y": _count(rng, 0.7 + 0.4 * x)}


def _words(rng: Rng, n: int) -> Data:
    k, v, m = 2, 6, 5
    phi, doc = rng.dirichlet(np.full(v, 0.5), k), rng.integers(0, m, n)
    topic = (rng.random(n) < rng.beta(1.0, 1.0, m)[doc]).astype(int)
    word = (rng.random(n)[:, np.newaxis] > phi.cumsum(1)[topic][:, :-1]).sum(1)
    data = {"K": k, "V": v, "M": m, "N": n, "w": word + 1, "doc": doc + 1}
    return {**data, "alpha": np.ones(k), "beta": np.ones(v)}


def _ratings(rng: Rng, n: int) -> Data:
    users, films = 12, 8
    user, film = rng.integers(0, users, n), rng.integers(0, films, n)
    p, q = rng.normal(0.0, 1.0, (users, 2)), rng.normal(0.0, 1.0, (films, 2))
    rating = rng.normal(3.0 + (p[user] * q[film]).sum(1), 0.5)
    return {"N": n, "U": users, "F": films, "D": 2, "user": user + 1, "film": film + 1, "rating": rating}


def _raters(rng: Rng, n: int) -> Data:
    raters = 4
    truth = rng.random(n) < 0.4
    chance = np.where(truth[:, np.newaxis], rng.beta(8.0, 2.0, raters), rng.beta(2.0, 8.0, raters))
    return {"I": n, "R": raters, "y": rng.binomial(1, chance)}


def _sequences(rng: Rng, n: int) -> Data:
    length = 5
    return {"S": n, "T": length, "y": np.stack([_switching(rng, length) for _ in range(n)])}


def _ragged(rng: Rng, n: int) -> Data:
    groups = 20
    sizes = 1 + rng.multinomial(n - groups, np.full(groups, 1 / groups))
    y = rng.normal(np.repeat(rng.normal(1.0, 0.8, groups), sizes), 0.6)
    return {"N": n, "J": groups, "y": y, "n": sizes}


def _process(counts: bool) -> Make:
    def make(rng: Rng, n: int) -> Data:
        x = np.sort(rng.uniform(0.0, 10.0, n))
        f = np.sin(x)
        return {"N": n, "x": x, "y": _count(rng, f) if counts else rng.normal(f, 0.3)}

    return make


def _known_covariance(rng: Rng, n: int) -> Data:
    return {**_line(rng, n), "V": 0.5 ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))}


def _growth(rng: Rng, n: int) -> Data:
    ts = np.linspace(0.1, 10.0, n)
    return {"N": n, "ts": ts, "y": rng.lognormal(np.log(8 / (1 + 15 * np.exp(-ts))), 0.1)}


def _studies(rng: Rng, n: int) -> Data:
    se = rng.uniform(0.2, 0.8, n)
    return {"J": n, "y": rng.normal(rng.normal(0.3, 0.4, n), se), "se": se}


def _neighbours(rng: Rng, n: int) -> Data:
    expected = rng.uniform(1.0, 5.0, n)
    edges = {"N_edges": n - 1, "node1": np.arange(1, n), "node2": np.arange(2, n + 1)}
    return {"N": n, **edges, "y": rng.poisson(expected), "E": expected}


def _of_years(rng: Rng, n: int) -> Any:
    return rng.poisson(np.where(np.arange(n) < n // 2, 3.0, 1.0))


_SUMS = (
    Case("brms_gaussian", _regression(_normal), full=100_000),
    Case("brms_bernoulli", _regression(_coin), full=100_000),
    Case("brms_binomial", _binomial),
    Case("brms_poisson", _regression(_count), full=100_000),
    Case("brms_poisson_rate", _rate),
    Case("brms_negbinomial_offset", _offset),
    Case("brms_cumulative", _cumulative),
    Case("brms_cumulative_probit", _cumulative),
    Case("brms_monotonic", _monotonic),
    Case("brms_zero_inflated_poisson", _regression(_inflated)),
    Case("brms_hurdle_gamma", _hurdle),
    Case("brms_exgaussian", _regression(lambda rng, eta: rng.normal(eta, 0.4) + rng.exponential(0.7, len(eta)))),
    Case("brms_student", _regression(lambda rng, eta: eta + 0.6 * rng.standard_t(5, len(eta)))),
    Case("brms_lognormal", _regression(lambda rng, eta: rng.lognormal(eta, 0.5))),
    Case("brms_gamma", _regression(_gamma)),
    Case("brms_beta", _regression(lambda rng, eta: np.clip(rng.beta(8 * expit(eta), 8 * expit(-eta)), 1e-6, 1 - 1e-6))),
    Case("brms_weibull_censored", _right_censored),
    Case("brms_censored", _censored),
    Case("brms_truncated", _truncated),
    Case("brms_weights", _weights),
    Case("brms_missing", _missing),
    Case("brms_spline_s", _spline((8,))),
    Case("brms_spline_t2", _spline((6, 3, 3))),
    Case("brms_groups", _groups),
    Case("brms_correlated_groups", _correlated(_normal)),
    Case("brms_correlated_counts", _correlated(_count)),
    Case("brms_distributional", _distributional),
    Case("brms_categorical", _categorical),
    Case("brms_mixture", _brms_mixture),
    Case("brms_multivariate", _multivariate),
    Case("brms_nonlinear", _nonlinear),
    Case("brms_ar", _arma(1, 0)),
    Case("brms_threading", _regression(_count, grainsize=1)),
    Case("weibull_two_arrays", _two_arrays, full=100_000),
    Case("exponential_event_loop", _events),
    Case("irt_2pl", _items, full=60_000),
    Case("poisson_mixed", _sites, full=100_000),
    Case("ar1", _series(_ar([0.6]))),
    Case("ar1_slices", _series(_ar([0.6]), size="N")),
    Case("ark", _series(_ar([0.5, 0.2, -0.1]), K=3)),
    Case("arch1", _series(_heteroscedastic)),
    Case("reduce_sum_beside_tilde", _two_outcomes),
    Case("reduce_sum_twice", _two_sums),
    Case("log_lik_i", _linear),
    Case("mixture_two_components", lambda rng, n: {"N": n, "y": _two_clusters(rng, n)}),
    Case("radon_centred", _radon(uranium=True)),
    Case("radon_noncentred", _radon(uranium=False)),
    Case("qr_regression", _linear),
    Case("standardised", _line),
    Case("centred_in_model", _line),
    Case("lda", _words),
    Case("factorisation", _ratings),
    Case("raters", _raters),
    Case("hmm_sequences", _sequences),
    Case("ragged_groups", _ragged),
)

_OTHERS = (
    Case("brms_prior_only", _regression(_normal, prior_only=1), NO_LIKELIHOOD, program="brms_gaussian"),
    Case("brms_measurement_error", _noisy, LATENT),
    Case("brms_ma", _arma(0, 1), MOVING_AVERAGE),
    Case("gp_regression", _process(counts=False), GAUSSIAN_PROCESS),
    Case("gp_latent", _process(counts=True), GAUSSIAN_PROCESS),
    Case("fixed_covariance", _known_covariance, COVARIANCE),
    Case("ode", _growth, ODE),
    Case("hmm", _series(_switching), HIDDEN_MARKOV),
    Case("ma1", _series(_moving_average), MOVING_AVERAGE),
    Case("arma11", _series(_moving_average), MOVING_AVERAGE),
    Case("garch11", _series(_heteroscedastic, outcome="r", sigma1=0.7), GARCH),
    Case("stochastic_volatility", _series(_volatile), STATE_SPACE),
    Case("local_level", _series(_wandering), STATE_SPACE),
    Case("overdispersed", _counts, LATENT),
    Case("meta_analysis", _studies, LATENT),
    Case("icar", _neighbours, SPATIAL),
    Case("cox", _cox, PARTIAL),
    Case("change_point", _series(_of_years, outcome="D"), CHANGE_POINT),
    Case("relative_exposure", _counts, SCALED),
    Case("mean_of_all", _series(_wandering, size="N"), SUMMARY),
    Case("no_data", lambda rng, n: {"N": 10}, NO_LIKELIHOOD),
)

CASES = {case.name: case for case in (*_SUMS, *_OTHERS)}
