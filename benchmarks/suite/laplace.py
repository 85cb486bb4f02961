"""Laplace approximation at the mode, corrected by importance resampling.

The proposal is the normal distribution at the mode whose covariance is the inverse negative Hessian; draws are
resampled with probabilities proportional to posterior over proposal (Rubin 1988, sampling importance resampling).
The effective sample size is (sum w)^2 / sum w^2; the weights' Pareto k (Vehtari, Simpson, Gelman, Yao and Gabry
2024, JMLR 25) tells whether it can be believed: below 0.7.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite.base import Run, Task, Unavailable

FloatArray = NDArray[np.float64]

_DRAWS = 4000
_BATCH = 50
_STEP = 1e-4
_MAX_NEWTON = 50
_PARETO_K = 0.7


def run(task: Task) -> Run:
    """Mode, Hessian by differences of gradients, and as many weighted draws as the time allows."""
    import stansub
    from stansub.output.layout import Layout

    began = time.perf_counter()
    compiled = stansub.compile_model(task.workload.program)
    values = compiled.read_data(task.data)
    loaded = time.perf_counter()
    model = compiled.silent.model(values.json())
    ready = time.perf_counter()
    with ThreadPoolExecutor(task.chains) as pool:
        found = find_mode(model.log_density_gradient, model.dim, pool)
        moded = time.perf_counter()
        rng = np.random.default_rng(task.seed)
        root = np.linalg.cholesky(np.linalg.inv(-found.hessian))
        points, logs = np.empty((0, model.dim)), np.empty(0)
        while len(points) < _DRAWS and time.perf_counter() - ready < task.seconds:
            z = rng.standard_normal((_BATCH, model.dim))
            batch = found.mode + z @ root.T
            density = np.array(list(pool.map(model.log_density, batch)))
            points = np.concatenate([points, batch])
            logs = np.concatenate([logs, np.nan_to_num(density, nan=-np.inf) + 0.5 * (z**2).sum(axis=1)])
    if len(points) < task.chains * 4:
        raise Unavailable(f"no time left for draws after {moded - ready:.0f} s for the mode")
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    kept = resample(weights, len(points) // task.chains * task.chains, rng)
    sampled = time.perf_counter()
    layout = Layout.from_names(model.param_names())
    constrained = np.array([model.param_constrain(theta) for theta in points])[kept]
    k = pareto_k(weights)
    return Run(
        draws=layout.split(constrained.reshape(task.chains, -1, constrained.shape[1])),
        load_s=loaded - began,
        setup_s=ready - loaded,
        warmup_s=moded - ready,
        sampling_s=sampled - moded,
        warmup_passes=found.gradients,
        sampling_passes=len(points),
        ess=float(1 / np.sum(weights**2)),
        notes=[
            f"importance ESS of {len(points):,} draws, Pareto k {k:.2f}",
            *([f"Pareto k above {_PARETO_K}: the ESS is not to be believed"] if k > _PARETO_K else []),
        ],
    )


class Mode:
    """Where the log density is largest, its Hessian there, and the gradients that it took."""

    def __init__(self, mode: FloatArray, hessian: FloatArray, gradients: int) -> None:
        self.mode, self.hessian, self.gradients = mode, hessian, gradients


def find_mode(
    function: Callable[[FloatArray], tuple[float, FloatArray]], dim: int, pool: ThreadPoolExecutor | None = None
) -> Mode:
    """Mode by L-BFGS and Newton steps.

    Parameters
    ----------
    function : callable
        Log density and gradient at a point, shape (dim,).
    pool : ThreadPoolExecutor, optional
        Evaluates the gradients of a Hessian.

    Raises
    ------
    Unavailable
        When the Hessian is not negative definite or Newton's method does not converge.
    """
    from scipy.optimize import minimize

    def negative(theta: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = function(theta)
        return -value, -gradient

    coarse: Any = minimize(negative, np.zeros(dim), jac=True, method="L-BFGS-B", options={"maxiter": 500})
    theta, n = np.asarray(coarse.x), int(coarse.nfev)
    over: Callable[..., Any] = pool.map if pool else map
    for _ in range(_MAX_NEWTON):
        shifts = _STEP * np.vstack([np.eye(dim), -np.eye(dim)])
        gradients = np.array([gradient for _, gradient in over(function, theta + shifts)])
        value, gradient = function(theta)
        n += 2 * dim + 1
        hessian = (gradients[:dim] - gradients[dim:]) / (2 * _STEP)
        hessian = (hessian + hessian.T) / 2
        if np.linalg.eigvalsh(hessian).max() >= 0:
            raise Unavailable("the Hessian is not negative definite at the point that was found")
        step = np.linalg.solve(-hessian, gradient)
        # Half the squared distance to the mode in posterior sds.
        if step @ gradient < 1e-8:
            return Mode(theta, hessian, n)
        scale = 1.0
        while function(theta + scale * step)[0] < value and scale > 1e-6:
            scale, n = scale / 2, n + 1
        theta = theta + scale * step
    raise Unavailable("the mode was not found")


def resample(weights: FloatArray, n: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Indices of ``n`` draws with probabilities ``weights``, systematically (Kitagawa 1996), in random order."""
    places = (rng.random() + np.arange(n)) / n
    return rng.permutation(np.minimum(np.searchsorted(np.cumsum(weights), places), len(weights) - 1))


def pareto_k(weights: FloatArray) -> float:
    """Shape of a generalised Pareto distribution fitted to the largest weights, by maximum likelihood."""
    from scipy.stats import genpareto

    n = int(min(0.2 * len(weights), 3 * np.sqrt(len(weights))))
    ordered = np.sort(weights)
    excess = ordered[-n:] - ordered[-n - 1]
    return float(genpareto.fit(excess / excess.mean(), floc=0)[0]) if excess[0] < excess[-1] else 0.0
