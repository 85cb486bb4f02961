"""Runs made up with known properties."""

from typing import Any

import numpy as np

from stansub.output import inference_data

CHAINS, DRAWS, N = 4, 1000, 100_000
CHAIN_STATS = (
    "n_steps",
    "n_accepted",
    "n_obs_used",
    "n_obs_evaluated",
    "n_undecided",
    "n_audited",
    "n_audit_wrong",
    "n_bound_violated",
    "n_nonfinite",
    "n_fallback",
    "n_audited_estimates",
    "audit_squares",
    "sampling_time",
    "warmup_time",
    "n_gradients",
    "warmup_n_gradients",
    "n_divergences",
    "n_max_treedepth",
)


def run(
    *,
    chains: int = CHAINS,
    draws: int = DRAWS,
    posterior: dict[str, Any] | None = None,
    sample_stats: dict[str, Any] | None = None,
    attrs: dict[str, Any] | None = None,
    **groups: Any,
) -> Any:
    """Independent standard normal draws of alpha and beta[1..3] from a healthy run, but for what is given."""
    rng = np.random.default_rng(20140216)
    drawn = {"alpha": rng.standard_normal((chains, draws)), "beta": rng.standard_normal((chains, draws, 3))}
    used = np.minimum(500 * 2 ** rng.geometric(0.4, (chains, draws)), N)
    audited = rng.random((chains, draws)) < 0.1
    stats = {
        "accepted": rng.random((chains, draws)) < 0.25,
        "n_obs_used": used,
        "n_looks": np.log2(used / 500).astype(np.int32),
        "undecided": used == N,
        "log_ratio": rng.standard_normal((chains, draws)),
        "audited": audited,
        "audit_wrong": np.zeros((chains, draws), dtype=bool),
        "bound_violated": np.zeros((chains, draws), dtype=bool),
    } | (sample_stats or {})
    facts = {
        "n_observations": N,
        "n_blocks": N // 50,
        "block_size": 50,
        "test": "austerity",
        "epsilon": 0.05,
        "guarantee": "asymptotic",
        "stopped": "",
        "settings": {"proposal": "adaptive-metropolis"},
        "model": "logistic",
        "n_steps": [draws] * chains,
        "n_accepted": stats["accepted"].sum(axis=1),
        "n_obs_used": stats["n_obs_used"].sum(axis=1),
        "n_obs_evaluated": 2 * stats["n_obs_used"].sum(axis=1),
        "n_undecided": stats["undecided"].sum(axis=1),
        "n_audited": stats["audited"].sum(axis=1),
        "n_audit_wrong": stats["audit_wrong"].sum(axis=1),
        "n_bound_violated": stats["bound_violated"].sum(axis=1),
        "n_nonfinite": [0] * chains,
        "sampling_time": [1.5] * chains,
        "warmup_time": [1.0] * chains,
    } | (attrs or {})
    totals = {name: np.asarray(facts.pop(name)) for name in CHAIN_STATS if name in facts}
    return inference_data.build(
        posterior=drawn if posterior is None else posterior,
        sample_stats=stats,
        chain_stats=totals,
        attrs=facts,
        **groups,
    )
