"""From chains to InferenceData: constrained values, statistics, and the facts that stand beside them."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stansub import __version__
from stansub.decision.boundary import Test
from stansub.errors import RunError
from stansub.kernels.metropolis import Records
from stansub.model.posterior import Posterior
from stansub.output import inference_data
from stansub.output.layout import Layout
from stansub.program.library import FloatArray
from stansub.program.syntax import Declaration
from stansub.sampling.chain import Chain, Phase, Totals

if TYPE_CHECKING:
    from stansub.output.inference_data import InferenceData

_R_HAT_DRAWS, _R_HAT_PARAMETERS = 100, 20


def worst_r_hat(draws: Sequence[FloatArray]) -> float | None:
    """Largest R-hat of the first unconstrained parameters over the draws so far; None while there are few."""
    n = min(len(chain) for chain in draws)
    if n < _R_HAT_DRAWS:
        return None
    arviz = inference_data.arviz_module()
    together = np.stack([chain[:n, :_R_HAT_PARAMETERS] for chain in draws])
    return float(max(arviz.rhat(together[:, :, index]) for index in range(together.shape[2])))


def collect(
    posterior: Posterior,
    chains: Sequence[Chain],
    *,
    test: Test,
    guarantee: str,
    settings: Mapping[str, Any],
    stopped: str,
    generated_quantities: bool,
    observation_level: bool,
    progress: Callable[[str], None],
) -> InferenceData:
    """Make the InferenceData of chains that have ended or were stopped.

    Raises
    ------
    RunError
        When no chain kept a draw.
    """
    n = _common_length([chain.sampling for chain in chains])
    if n == 0:
        where = "in warmup" if any(chain.warmup.totals.n_steps for chain in chains) else "before the first step"
        raise RunError(f"sampling was stopped {where}: there are no draws to write")
    theta = np.stack([chain.sampling.kept.theta[:n] for chain in chains])
    progress("Computing constrained values")
    variables = constrain(
        posterior,
        theta,
        seed=int(settings["seed"]),
        generated_quantities=generated_quantities,
        observation_level=observation_level,
    )
    log_likelihood = {"log_lik": variables.pop("log_lik")} if observation_level and "log_lik" in variables else None
    totals = {**_totals([chain.sampling.totals for chain in chains]), **_times(chains)}
    groups: dict[str, Any] = {}
    if settings["save_warmup"]:
        n_warmup = _common_length([chain.warmup for chain in chains])
        warm = np.stack([chain.warmup.kept.theta[:n_warmup] for chain in chains])
        groups["warmup_posterior"] = constrain(
            posterior, warm, seed=int(settings["seed"]), generated_quantities=False, observation_level=False
        )
        groups["warmup_sample_stats"] = _statistics([chain.warmup.kept for chain in chains], n_warmup)
    return inference_data.build(
        posterior=variables,
        sample_stats=_statistics([chain.sampling.kept for chain in chains], n),
        unconstrained_posterior={"theta": theta},
        log_likelihood=log_likelihood,
        observed_data=_observed(posterior),
        attrs={
            **totals,
            **_facts(posterior, test, guarantee),
            "settings": dict(settings),
            "stopped": stopped,
        },
        **groups,
    )


def constrain(
    posterior: Posterior,
    theta: FloatArray,
    *,
    seed: int,
    generated_quantities: bool,
    observation_level: bool,
) -> dict[str, FloatArray]:
    """Constrained values by variable, each (chain, draw, *shape), of draws of shape (chain, draw, dim)."""
    model, program = posterior.full, posterior.program
    extra = {block: [d.name for d in declared] for block, declared in _declared(posterior).items()}
    include_tp = generated_quantities and bool(extra["tp"])
    include_gq = generated_quantities and bool(extra["gq"])
    names = model.param_names(include_tp=include_tp, include_gq=include_gq)
    layout = Layout.from_names(names)
    if not observation_level:
        tall = {
            declaration.name
            for block in (program.transformed_parameters, program.generated_quantities)
            for declaration in block.declarations
            if set(declaration.all_dims) & _tall_sizes(posterior)
        }
        layout = layout.select(name for name in layout.names if name.split(":")[0] not in tall)
    columns = np.concatenate([places.ravel() for places in layout.columns.values()])
    values = np.empty((*theta.shape[:2], columns.size))
    threads = min(os.cpu_count() or 1, theta.shape[0])

    def one(chain: int) -> None:
        # Each chain has a generator of its own, so that generated quantities do not depend on threads.
        rng, out = model.library.rng((seed + 7919 * (chain + 1)) % 2**32), np.empty(len(names))
        for draw in range(theta.shape[1]):
            model.param_constrain(theta[chain, draw], include_tp=include_tp, include_gq=include_gq, rng=rng, out=out)
            values[chain, draw] = out[columns]

    with ThreadPoolExecutor(max_workers=threads) as pool:
        list(pool.map(one, range(theta.shape[0])))
    variables, first = {}, 0
    for name, shape in layout.shapes.items():
        size = int(np.prod(shape))
        # numpy has no name for the values of a variable that is empty, so Stan does not list them either.
        variables[name] = values[:, :, first : first + size].reshape(*theta.shape[:2], *shape)
        first += size
    return variables


def _declared(posterior: Posterior) -> dict[str, tuple[Declaration, ...]]:
    program = posterior.program
    return {
        "tp": program.transformed_parameters.declarations,
        "gq": program.generated_quantities.declarations,
    }


def _tall_sizes(posterior: Posterior) -> set[str]:
    """Expressions that give the number of observations as a dimension."""
    return {*posterior.sizes, str(posterior.blocks.n_observations)}


def _common_length(phases: Sequence[Phase]) -> int:
    return min(phase.n_kept for phase in phases)


def _statistics(kept: Sequence[Records], n: int) -> dict[str, NDArray[Any]]:
    flags = {"accepted", "undecided", "audited", "audit_wrong", "bound_violated"}
    together = {name: np.stack([getattr(records, name)[:n] for records in kept]) for name in Records._fields[1:]}
    return {name: array.astype(bool) if name in flags else array for name, array in together.items()}


def _totals(totals: Sequence[Totals]) -> dict[str, list[float]]:
    names = [name for name in Totals.__dataclass_fields__ if name != "seconds"]
    return {name: [getattr(one, name) for one in totals] for name in names}


def _times(chains: Sequence[Chain]) -> dict[str, list[float]]:
    return {
        "sampling_time": [chain.sampling.totals.seconds for chain in chains],
        "warmup_time": [chain.warmup.totals.seconds for chain in chains],
        "warmup_n_steps": [chain.warmup.totals.n_steps for chain in chains],
        "warmup_n_obs_used": [chain.warmup.totals.n_obs_used for chain in chains],
    }


def _observed(posterior: Posterior) -> dict[str, NDArray[Any]]:
    """Data with one value an observation; matrices of covariates are left out of the file."""
    values, sizes = posterior.values, set(posterior.sizes)
    return {
        declaration.name: values.values[declaration.name]
        for declaration in values.declarations
        if len(declaration.all_dims) == 1 and declaration.all_dims[0] in sizes
    }


def _facts(posterior: Posterior, test: Test, guarantee: str) -> dict[str, Any]:
    blocks = posterior.blocks
    stan = re.search(r"STAN_VERSION=([\d.]+)|Stan version:? *([\d.]+)", posterior.full.info())
    versions = {name: metadata.version(name) for name in ("bridgestan", "arviz", "numpy")}
    versions["stansub"] = __version__
    versions["python"] = platform.python_version()
    versions["stan"] = next((part for part in stan.groups() if part), "") if stan else ""
    return {
        "model": posterior.name,
        "n_observations": blocks.n_observations,
        "n_blocks": len(blocks),
        "block_size": blocks.size,
        "test": test.name,
        "epsilon": getattr(test, "epsilon", float("nan")),
        "delta": getattr(test, "delta", float("nan")),
        "test_settings": repr(test),
        "guarantee": guarantee,
        "data_order": "original" if posterior.order is None else "shuffled",
        "form": posterior.form.kind,
        "model_hash": hashlib.sha256(posterior.program.code.encode()).hexdigest()[:16],
        "data_hash": posterior.values.digest(),
        "versions": json.dumps(versions),
        "proof_error": posterior.proof.error,
    }
