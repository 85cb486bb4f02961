"""Posterior means and sds that no mode was missed for, made once a workload and kept.

All data are simulated, so the parameter values behind them are known. Two ways:

- **Quadrature** where all but two or three parameters can be integrated out in closed form: squared slope,
  dose-response, groups. Data enter through sufficient statistics, so that a grid costs nothing; it is laid over the
  whole prior range first and then refined where the posterior is. Nothing can be missed.
- **Importance sampling** for the others (mixtures, rare predictors): from the mode next to the true parameter values,
  a multivariate t whose mean and covariance are improved in a few rounds. Weights are of Stan's own log density on all
  the data. Their effective share and Pareto k must be good. What t draws cannot see, other modes, is searched for by
  climbing from starts dispersed about the true values: all must end at this mode, or so far below it (in log density)
  that they have no weight. For the logistic regression this is a theorem: its log density is concave.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from scipy import optimize
from scipy.special import expit
from suite.laplace import pareto_k

from correctness import workloads
from correctness.workloads import Data, Workload

FloatArray = NDArray[np.float64]

_STARTS = 40
_SPREAD = 2.0  # sd of the starts about the true values, on the unconstrained space
_ROUNDS = (2000, 4000, 20_000)
_FREEDOM = 5.0
# Ends of climbs are one mode where they are this near in height, and in half the squared distance in sds about so.
_SAME = 0.05
# Below this difference in log density another mode could matter: exp(-20) of the height, times any ratio of volumes.
_GAP = 20.0
_LEAST_SHARE, _PARETO_K = 0.2, 0.5

# Raised when answers are made in another way, so that kept ones are made anew.
_VERSION = 1


class NotTrusted(Exception):  # noqa: N818 - a reason
    """The answer did not pass its own checks; the text says which."""


@dataclass(frozen=True)
class Truth:
    """The answer for one posterior.

    Attributes
    ----------
    mean, sd : dict of str to float
        By scalar quantity, named as in Stan.
    mcse_mean, mcse_sd : dict of str to float
        Monte Carlo standard errors of them; 0 of quadrature.
    log_density : float or None
        Its posterior mean on the unconstrained space; None of quadrature.
    about : str
        How it was made, with the figures of its checks.
    """

    mean: dict[str, float]
    sd: dict[str, float]
    mcse_mean: dict[str, float]
    mcse_sd: dict[str, float]
    log_density: float | None
    about: str


def load(workload: Workload, folder: Path) -> Truth:
    """The workload's answer, made now if there is none for this program and these data."""
    digest = hashlib.sha256(workload.path.read_bytes())
    made_from = [*workload.data(), _STARTS, _SPREAD, _ROUNDS, _FREEDOM, _VERSION]
    digest.update(orjson.dumps(made_from, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_SORT_KEYS))
    file = folder / f"{workload.name}-{digest.hexdigest()[:16]}.json"
    if not file.exists():
        truth = make(workload)
        folder.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(asdict(truth), indent=1))
        part.replace(file)
    return Truth(**json.loads(file.read_text()))


def make(workload: Workload) -> Truth:
    """The workload's answer.

    Raises
    ------
    NotTrusted
        When it does not pass its own checks.
    """
    by_quadrature = {"squared slope": squared_slope, "dose": dose_response, "groups": group_means}
    if workload.truth in by_quadrature:
        return by_quadrature[workload.truth](workload.data()[0])
    return importance(workload)


# Importance sampling


def importance(workload: Workload) -> Truth:
    """From the mode next to the true values, once it is known to be the only one that matters."""
    import stansub
    from stansub.output.layout import Layout

    rng = np.random.default_rng(workload.data_seed)
    data, values = workload.data()
    compiled = stansub.compile_model(workload.path)
    model = compiled.read_data(data).model(compiled.silent)
    centre = model.param_unconstrain_json(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY))
    peak, height = _climb(model.log_density_gradient, centre)
    covariance = _covariance(model.log_density_gradient, peak)
    ends = [
        _climb(model.log_density_gradient, centre + _SPREAD * rng.standard_normal(model.dim)) for _ in range(_STARTS)
    ]
    gap = other_modes(ends, peak, height, covariance, free_of_labels=bool(workload.sort_by))
    points, weights, logs = _weighted(model.log_density, peak, covariance, rng)
    ess, k = float(1 / np.sum(weights**2)), pareto_k(weights)
    if ess < _LEAST_SHARE * len(weights) or k > _PARETO_K:
        raise NotTrusted(f"{workload.name}: ESS {ess:.0f} of {len(weights):,} weighted draws, Pareto k {k:.2f}")
    constrained = np.array([model.param_constrain(theta, include_tp=True) for theta in points])
    draws = Layout.from_names(model.param_names(include_tp=True)).split(constrained[np.newaxis])
    mean, sd, mcse_mean, mcse_sd = {}, {}, {}, {}
    for name, x in scalars(workload.quantities(draws)).items():
        x = x[0]
        mean[name] = float(weights @ x)
        squares = (x - mean[name]) ** 2
        sd[name] = float(np.sqrt(weights @ squares))
        mcse_mean[name] = float(np.sqrt(weights**2 @ squares))
        mcse_sd[name] = float(np.sqrt(weights**2 @ (squares - sd[name] ** 2) ** 2) / (2 * sd[name]))
    about = f"importance sampling: ESS {ess:,.0f} of {len(weights):,}, Pareto k {k:.2f}; {gap}"
    return Truth(mean, sd, mcse_mean, mcse_sd, float(weights @ logs), about)


Gradient = Callable[[FloatArray], tuple[float, FloatArray]]


def _climb(function: Gradient, start: FloatArray) -> tuple[FloatArray, float]:
    """A local maximum uphill of ``start``, and the log density there."""

    def negative(theta: FloatArray) -> tuple[float, FloatArray]:
        try:
            value, gradient = function(theta)
        except Exception:
            return np.inf, np.zeros_like(theta)
        return (-value, -gradient) if np.isfinite(value) else (np.inf, np.zeros_like(theta))

    found: Any = optimize.minimize(negative, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000})
    return np.asarray(found.x), -float(found.fun)


def other_modes(
    ends: Sequence[tuple[FloatArray, float]],
    peak: FloatArray,
    height: float,
    covariance: FloatArray,
    *,
    free_of_labels: bool = False,
) -> str:
    """What climbing from dispersed starts came to, in words, given where each ended and how high.

    Raises
    ------
    NotTrusted
        When one ended elsewhere at a height that could matter.
    """

    def same(theta: FloatArray, value: float) -> bool:
        # With free labels each mode has copies of the same height.
        away = theta - peak
        return abs(value - height) < _SAME and (free_of_labels or away @ np.linalg.solve(covariance, away) < 4 * _SAME)

    lower = [height - value for theta, value in ends if not same(theta, value)]
    if lower and min(lower) < _GAP:
        raise NotTrusted(f"another maximum is {min(lower):.2f} below that next to the true values")
    return f"{len(ends) - len(lower)} of {len(ends)} dispersed climbs end at its mode" + (
        f", the others lower by {min(lower):,.0f} or more" if lower else ""
    )


def _covariance(function: Gradient, peak: FloatArray, step: float = 1e-4) -> FloatArray:
    shifts = step * np.eye(len(peak))
    hessian = np.array([function(peak + shift)[1] - function(peak - shift)[1] for shift in shifts]) / (2 * step)
    return np.asarray(np.linalg.inv(-(hessian + hessian.T) / 2))


def _weighted(
    log_density: Callable[[FloatArray], float], centre: FloatArray, covariance: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Draws from a multivariate t fitted to the weighted draws of the round before, weights, and log densities."""
    dim = len(centre)
    for n in _ROUNDS:
        root = np.linalg.cholesky(covariance)
        z = rng.standard_normal((n, dim)) / np.sqrt(rng.chisquare(_FREEDOM, (n, 1)) / _FREEDOM)
        points = centre + z @ root.T
        logs = np.nan_to_num(np.array([log_density(theta) for theta in points]), nan=-np.inf)
        ratio = logs + (_FREEDOM + dim) / 2 * np.log1p((z**2).sum(axis=1) / _FREEDOM)
        weights = np.exp(ratio - ratio.max())
        weights /= weights.sum()
        centre = weights @ points
        covariance = (weights[:, np.newaxis] * (points - centre)).T @ (points - centre)
    return points, weights, logs


def scalars(draws: workloads.Draws) -> dict[str, FloatArray]:
    """Draws by scalar quantity, shape (chain, draw), named as in Stan."""
    found = {}
    for name, values in draws.items():
        for at in np.ndindex(values.shape[2:]):
            label = f"{name}[{','.join(str(i + 1) for i in at)}]" if at else name
            found[label] = values[(slice(None), slice(None), *at)]
    return found


# Quadrature


@dataclass(frozen=True)
class _Grid:
    """A posterior on a product grid: points of each axis, and the weight of each node."""

    axes: tuple[FloatArray, ...]
    weights: FloatArray

    def moments(self, *values: FloatArray) -> tuple[float, float]:
        """Mean and sd of a quantity with these conditional means at the nodes and, if given, conditional variances."""
        mean = float(np.sum(self.weights * values[0]))
        between = float(np.sum(self.weights * (values[0] - mean) ** 2))
        within = float(np.sum(self.weights * values[1])) if len(values) > 1 else 0.0
        return mean, float(np.sqrt(between + within))


def _quadrature(
    log_density: Callable[..., FloatArray], ranges: Sequence[tuple[float, float]], nodes: Sequence[int]
) -> _Grid:
    """Weights on a grid over ``ranges``, closed in on in some rounds to where the posterior is."""
    limits = [tuple(one) for one in ranges]
    for _ in range(6):
        axes = tuple(np.linspace(low, high, n + 2)[1:-1] for (low, high), n in zip(limits, nodes, strict=True))
        logs = log_density(*np.meshgrid(*axes, indexing="ij", sparse=True))
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        for k, axis in enumerate(axes):
            marginal = weights.sum(axis=tuple(j for j in range(len(axes)) if j != k))
            kept = np.flatnonzero(marginal > 1e-12 * marginal.max())
            step = axis[1] - axis[0]
            limits[k] = (
                max(limits[k][0], axis[kept[0]] - 2 * step),
                min(limits[k][1], axis[kept[-1]] + 2 * step),
            )
    return _Grid(axes, weights)


def _exact(moments: dict[str, tuple[float, float]], about: str) -> Truth:
    zeros = dict.fromkeys(moments, 0.0)
    mean, sd = ({name: pair[i] for name, pair in moments.items()} for i in range(2))
    return Truth(mean, sd, zeros, zeros, None, about)


def _log_normal(x: FloatArray | float, mean: float, sd: float) -> FloatArray:
    return np.asarray(-0.5 * ((x - mean) / sd) ** 2)


def squared_slope(data: Data) -> Truth:
    """Grid over beta and sigma; alpha is normal given these."""
    x, y, n = data["x"], data["y"], data["N"]

    def given(beta: FloatArray, sigma: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        precision = n / sigma**2 + 1 / 4
        slope = beta**2
        total = y.sum() - slope * x.sum()
        squares = y @ y - 2 * slope * (x @ y) + slope**2 * (x @ x)
        mean = total / sigma**2 / precision
        logs = -n * np.log(sigma) - squares / (2 * sigma**2) + precision * mean**2 / 2 - np.log(precision) / 2
        return logs, mean, 1 / precision

    def log_density(beta: FloatArray, sigma: FloatArray) -> FloatArray:
        return given(beta, sigma)[0] + _log_normal(beta, 0.5, 1) + _log_normal(sigma, 0, 2)

    grid = _quadrature(log_density, [(-6, 6), (0.1, 10)], [4001, 201])
    beta, sigma = np.meshgrid(*grid.axes, indexing="ij")
    _, mean, variance = given(beta, sigma)
    moments = {"alpha": grid.moments(mean, variance), "beta": grid.moments(beta), "sigma": grid.moments(sigma)}
    positive = float(grid.weights[beta > 0].sum())
    return _exact(moments, f"quadrature, alpha integrated out; {positive:.3f} of the posterior has beta above 0")


def dose_response(data: Data) -> Truth:
    """Grid over ED50, Hill's exponent and sigma; baseline and effect are normal given these."""
    y, n = data["y"], data["N"]
    doses, place, counts = np.unique(data["dose"], return_inverse=True, return_counts=True)
    totals, squares = np.bincount(place, weights=y), y @ y

    def given(log_ed50: FloatArray, log_hill: FloatArray, sigma: FloatArray) -> tuple[FloatArray, ...]:
        sums = [0.0, 0.0, 0.0]  # of f, f^2 and f y over the observations
        for dose, count, total in zip(doses, counts, totals, strict=True):
            f = expit(np.exp(log_hill) * (np.log(dose) - log_ed50))
            sums = [sums[0] + count * f, sums[1] + count * f**2, sums[2] + total * f]
        tau = 1 / sigma**2
        a, b, c = n * tau + 1 / 4, sums[0] * tau, sums[1] * tau + 1 / 25
        determinant = a * c - b**2
        u, v = y.sum() * tau, sums[2] * tau
        baseline, effect = (c * u - b * v) / determinant, (a * v - b * u) / determinant
        logs = -n * np.log(sigma) - squares * tau / 2 + (u * baseline + v * effect) / 2 - np.log(determinant) / 2
        return logs, baseline, c / determinant, effect, a / determinant

    def log_density(log_ed50: FloatArray, log_hill: FloatArray, sigma: FloatArray) -> FloatArray:
        priors = _log_normal(log_ed50, 0, 2) + _log_normal(log_hill, 0, 0.5) + _log_normal(sigma, 0, 2)
        return given(log_ed50, log_hill, sigma)[0] + priors

    grid = _quadrature(log_density, [(-15, 15), (-4, 4), (0.1, 10)], [401, 301, 41])
    nodes = np.meshgrid(*grid.axes, indexing="ij")
    _, baseline, its_variance, effect, variance = given(*nodes)
    moments = {
        "baseline": grid.moments(baseline, its_variance),
        "effect": grid.moments(effect, variance),
        **{name: grid.moments(values) for name, values in zip(("log_ed50", "log_hill", "sigma"), nodes, strict=True)},
    }
    return _exact(moments, "quadrature, baseline and effect integrated out")


def group_means(data: Data) -> Truth:
    """Grid over tau and sigma; the common mean and then the groups' are normal given these."""
    y, group, groups = data["y"], data["group"] - 1, data["J"]
    counts = np.bincount(group, minlength=groups)
    means = np.bincount(group, weights=y, minlength=groups) / counts
    within = float(np.sum((y - means[group]) ** 2))

    def common(tau: FloatArray, sigma: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        variances = [tau**2 + sigma**2 / count for count in counts]
        precision = 1 / 4 + sum(1 / one for one in variances)
        mean = sum(ybar / one for ybar, one in zip(means, variances, strict=True)) / precision
        logs = precision * mean**2 / 2 - np.log(precision) / 2
        for ybar, one in zip(means, variances, strict=True):
            logs = logs - np.log(one) / 2 - ybar**2 / (2 * one)
        return logs - (len(y) - groups) * np.log(sigma) - within / (2 * sigma**2), mean, 1 / precision

    def log_density(tau: FloatArray, sigma: FloatArray) -> FloatArray:
        return common(tau, sigma)[0] + _log_normal(tau, 0, 0.5) + _log_normal(sigma, 0, 2)

    grid = _quadrature(log_density, [(0, 3), (0.1, 10)], [2001, 201])
    tau, sigma = np.meshgrid(*grid.axes, indexing="ij")
    _, mean, variance = common(tau, sigma)
    moments = {"mu": grid.moments(mean, variance), "tau": grid.moments(tau), "sigma": grid.moments(sigma)}
    for j, (ybar, count) in enumerate(zip(means, counts, strict=True), start=1):
        share = tau**2 / (tau**2 + sigma**2 / count)  # of the group's own mean
        conditional = share * ybar + (1 - share) * mean
        spread = share * sigma**2 / count + (1 - share) ** 2 * variance
        moments[f"theta[{j}]"] = grid.moments(conditional, spread)
    return _exact(moments, "quadrature, the common mean and the groups' integrated out")
