"""Draws and references made up with known properties, of one posterior: alpha and beta[1..n], correlated normals."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from stansub.output import inference_data

FloatArray = NDArray[np.float64]

MODEL, DATA, N = "0123456789abcdef", "fedcba9876543210", 100_000
CORRELATION = 0.5


def normals(
    rng: np.random.Generator, *, chains: int = 4, draws: int = 1000, size: int = 4, autocorrelation: float = 0.0
) -> FloatArray:
    """Stationary AR(1) chains of standard normals, neighbours correlated by 0.5; (chain, draw, quantity)."""
    distance = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    root = np.linalg.cholesky(CORRELATION**distance)
    noise = rng.standard_normal((chains, draws, size))
    noise[:, 1:] *= np.sqrt(1 - autocorrelation**2)
    return lfilter([1.0], [1.0, -autocorrelation], noise, axis=1) @ root.T


def draws(
    rng: np.random.Generator,
    *,
    change: Callable[[FloatArray], Any] | None = None,
    values: FloatArray | None = None,
    more: dict[str, Any] | None = None,
    attrs: dict[str, Any] | None = None,
    **shape: Any,
) -> Any:
    """A run of `stansub sample`.

    Parameters
    ----------
    change
        Applied to the standardised values (chain, draw, quantity) in place: what is wrong with this run.
    values
        The standardised values, in place of those that `normals` makes from `shape`.
    more
        Further variables of the posterior group.
    """
    posterior = _posterior(normals(rng, **shape) if values is None else values, change) | (more or {})
    chains, n = posterior["alpha"].shape
    used = np.minimum(500 * 2 ** rng.geometric(0.4, (chains, n)), N)
    stats = {
        "accepted": rng.random((chains, n)) < 0.25,
        "n_obs_used": used,
        "n_looks": np.log2(used / 500).astype(np.int32),
        "undecided": used == N,
        "log_ratio": rng.standard_normal((chains, n)),
        "audited": rng.random((chains, n)) < 0.1,
        "audit_wrong": np.zeros((chains, n), dtype=bool),
        "bound_violated": np.zeros((chains, n), dtype=bool),
    }
    facts = {
        "model": "logistic",
        "model_code": "parameters { real alpha; }",
        "model_hash": MODEL,
        "data_hash": DATA,
        "data_file": "",
        "n_observations": N,
        "n_blocks": N // 50,
        "block_size": 50,
        "test": "pocock",
        "epsilon": 0.005,
        "delta": float("nan"),
        "guarantee": "asymptotic",
        "stopped": "",
        "settings": {
            "chains": chains,
            "parallel_chains": 2,
            "iter_warmup": 500,
            "iter_sampling": n,
            "thin": 1,
            "seed": 1,
            "proposal": "adaptive-metropolis",
        },
        "versions": {"stansub": "0.1.0", "bridgestan": "2.7.0"},
        "compile_time": 20.0,
        "setup_time": 0.5,
        "wall_time": 0.5 * chains * 2.5 + 0.3,
        "n_steps": [n] * chains,
        "n_accepted": stats["accepted"].sum(axis=1),
        "n_obs_used": used.sum(axis=1),
        "n_obs_evaluated": used.sum(axis=1) + 1000,
        "n_undecided": stats["undecided"].sum(axis=1),
        "n_audited": stats["audited"].sum(axis=1),
        "n_audit_wrong": [0] * chains,
        "n_bound_violated": [0] * chains,
        "n_nonfinite": [0] * chains,
        "sampling_time": [1.5] * chains,
        "warmup_time": [1.0] * chains,
        "warmup_n_steps": [500] * chains,
        "warmup_n_obs_used": [N] * chains,
        "warmup_n_obs_evaluated": [2 * N] * chains,
    } | (attrs or {})
    theta = np.concatenate([posterior["alpha"][:, :, None], posterior["beta"]], axis=2)
    return inference_data.build(
        posterior=posterior, sample_stats=stats, unconstrained_posterior={"theta": theta}, attrs=facts
    )


def reference(
    rng: np.random.Generator,
    *,
    change: Callable[[FloatArray], Any] | None = None,
    values: FloatArray | None = None,
    more: dict[str, Any] | None = None,
    attrs: dict[str, Any] | None = None,
    divergences: int = 0,
    **shape: Any,
) -> Any:
    """NUTS draws as `stansub reference` stores them, nearly independent by default."""
    posterior = _posterior(normals(rng, **shape) if values is None else values, change) | (more or {})
    chains, n = posterior["alpha"].shape
    diverging = np.zeros((chains, n), dtype=bool)
    diverging[0, :divergences] = True
    stats = {
        "diverging": diverging,
        "n_steps": np.full((chains, n), 7),
        "tree_depth": np.full((chains, n), 3),
        "step_size": np.full((chains, n), 0.5),
        "acceptance_rate": np.full((chains, n), 0.85),
        "energy": rng.standard_normal((chains, n)),
        "lp": rng.standard_normal((chains, n)),
    }
    facts = {
        "reference_for": MODEL,
        "model": "logistic",
        "model_code": "parameters { real alpha; }",
        "model_hash": MODEL,
        "data_hash": DATA,
        "engine": "nutpie",
        "engine_version": "0.16",
        "engine_reason": "no CmdStan was found",
        "versions": {"stansub": "0.1.0", "nutpie": "0.16"},
        "settings": {
            "chains": chains,
            "parallel_chains": 2,
            "iter_warmup": 1000,
            "iter_sampling": n,
            "seed": 1,
            "adapt_delta": 0.8,
            "max_treedepth": 10,
        },
        "n_observations": N,
        "sampling_time": [10.0] * chains,
        "warmup_time": [15.0] * chains,
        "n_gradients": [7 * n] * chains,
        "warmup_n_gradients": [10 * n] * chains,
        "n_divergences": diverging.sum(axis=1),
        "time_split": "measured",
        "wall_time": 12.5 * chains + 1.0,
        "compile_time": 25.0,
        "setup_time": 1.0,
        "r_hat_max": 1.001,
        "ess_bulk_min": 3900.0,
        "ess_tail_min": 3800.0,
    } | (attrs or {})
    return inference_data.build(posterior=posterior, sample_stats=stats, attrs=facts)


def foreign(rng: np.random.Generator, *, values: FloatArray | None = None, **shape: Any) -> Any:
    """Reference draws by others: a posterior and nothing else."""
    posterior = _posterior(normals(rng, **shape) if values is None else values, None)
    return inference_data.build(posterior=posterior, sample_stats={}, attrs={})


def _posterior(standard: FloatArray, change: Callable[[FloatArray], Any] | None) -> dict[str, Any]:
    values = standard.copy()
    if change is not None:
        change(values)
    return {"alpha": -1.0 + 0.1 * values[:, :, 0], "beta": 0.5 + 0.02 * values[:, :, 1:]}


def shifted(by: float, quantity: int = 1) -> Callable[[FloatArray], None]:
    """One mean off by so many sd."""

    def change(values: FloatArray) -> None:
        values[:, :, quantity] += by

    return change


def inflated(factor: float) -> Callable[[FloatArray], None]:
    """All sds too large by a factor."""

    def change(values: FloatArray) -> None:
        values *= factor

    return change


def stuck(chain: int = 0) -> Callable[[FloatArray], None]:
    """One chain that never left its start."""

    def change(values: FloatArray) -> None:
        values[chain] = values[chain, :1]

    return change


def n_calls(action: Callable[[], object]) -> int:
    """Calls of functions in the second of two runs: what it costs, whatever the machine and however busy it is."""
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    action()  # imports and caches
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return counted
