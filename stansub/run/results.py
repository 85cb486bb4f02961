"""From chains to InferenceData: constrained values, statistics, and the facts that stand beside them."""

from __future__ import annotations

import hashlib
import json
import math
import numbers
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stansub._version import __version__
from stansub.acceptance.normality import figures, pool
from stansub.acceptance.rules import Test
from stansub.errors import InputError, InterruptError, RunError
from stansub.kernels.base import Records
from stansub.memory import reason
from stansub.output import files, inference_data
from stansub.progress import TimeLimitError
from stansub.run.chain import Chain
from stansub.run.constrain import PARAMETERS, Kept, constrain
from stansub.run.executors import Outcome
from stansub.stan.posterior import Posterior
from stansub.types import FloatArray

if TYPE_CHECKING:
    from stansub.output.inference_data import InferenceData

_R_HAT_DRAWS, _R_HAT_PARAMETERS = 100, 20


def worst_r_hat(draws: Sequence[FloatArray]) -> float | None:
    """Largest R-hat of the first unconstrained parameters over the draws so far; None for few or one chain's alone."""
    n = min(len(chain) for chain in draws)
    if n < _R_HAT_DRAWS or len(draws) < 2:
        return None
    arviz = inference_data.arviz_module()
    together = np.stack([chain[:n, :_R_HAT_PARAMETERS] for chain in draws])
    return float(max(arviz.rhat(together[:, :, index]) for index in range(together.shape[2])))


def usable(chains: Sequence[Chain], outcome: Outcome, *, before: str = "") -> tuple[list[Chain], str]:
    """The chains whose draws are kept, and why the run ended before its end, if it did.

    Chains that failed are left out, and so are those that a stop met before their first draw.

    Parameters
    ----------
    before : str
        What was done before the chains began and how long it took, for the error.

    Raises
    ------
    InputError or RunError
        When no chain has draws: the former where something the user gave is to blame for all of them.
    """
    without = [i for i, chain in enumerate(chains) if not chain.sampling.n_kept and i not in outcome.failures]
    drawn = [chain for i, chain in enumerate(chains) if i not in outcome.failures and i not in without]
    failures = [f"chain {i + 1} failed ({reason(error)})" for i, error in sorted(outcome.failures.items())]
    if drawn:
        stopped = [outcome.stopped] if not all(chain.done for chain in chains) and outcome.stopped else []
        empty = [f"chain {i + 1} had no draws yet" for i in without]
        return drawn, "; ".join([*stopped, *failures, *empty])
    if failures:
        if len({reason(error) for error in outcome.failures.values()}) == 1 < len(failures):
            failures = [f"{failures[0]}, and all others alike"]
        kind = InputError if all(isinstance(error, InputError) for error in outcome.failures.values()) else RunError
        raise kind(f"sampling failed: {'; '.join(failures)}")
    if outcome.stopped == "max_time":
        least = min((chain.status for chain in chains), key=lambda status: status.steps)
        raise TimeLimitError(
            f"--max-time was reached in warmup, before the first draw after it: {least.steps:,} of "
            f"{chains[0].plan.iter_warmup:,} steps{f'; stages before it: {before}' if before else ''}; raise it "
            "or lower --iter-warmup"
        )
    raise InterruptError("sampling was interrupted before the first draw after warmup: there is nothing to write")


def keep_unconstrained(chains: Sequence[Chain]) -> Path | None:
    """Write the draws there are where they can still be found; None where there are none."""
    return files.keep_arrays({f"chain_{i + 1}": one.draws for i, one in enumerate(chains) if one.sampling.n_kept})


def collect(
    posterior: Posterior,
    chains: Sequence[Chain],
    *,
    kept: Kept,
    seed: int,
    threads: int,
    attrs: Mapping[str, Any],
    progress: Callable[[str], None],
) -> InferenceData:
    """Make the InferenceData of chains that have draws.

    Whatever keeps generated quantities from being computed leaves the parameters as they are: where a draw's fail
    they are NaN, and when they are interrupted or take too much memory they are left out, which is told in an
    attribute.
    """
    n = min(chain.sampling.n_kept for chain in chains)
    theta = np.stack([chain.sampling.kept.theta[:n] for chain in chains])
    progress("Computing constrained values (Ctrl-C leaves out generated quantities)")
    try:
        variables, trouble = constrain(posterior, theta, kept=kept, seed=seed, threads=threads)
    except (KeyboardInterrupt, MemoryError) as error:
        if not kept.generated_quantities:
            raise
        variables, _ = constrain(posterior, theta, kept=PARAMETERS, seed=seed, threads=threads)
        reason = "were interrupted" if isinstance(error, KeyboardInterrupt) else "took more memory than there is"
        trouble = f"transformed parameters and generated quantities {reason} and are left out"
    log_likelihood = (
        {"log_lik": variables.pop("log_lik")} if kept.observation_level and "log_lik" in variables else None
    )
    groups: dict[str, Any] = {}
    if kept.save_warmup:
        n_warmup = min(chain.warmup.n_kept for chain in chains)
        warm = np.stack([chain.warmup.kept.theta[:n_warmup] for chain in chains])
        groups["warmup_posterior"], _ = constrain(posterior, warm, kept=PARAMETERS, seed=seed, threads=threads)
        groups["warmup_sample_stats"] = _statistics([chain.warmup.kept for chain in chains], n_warmup)
    return inference_data.build(
        posterior=variables,
        sample_stats=_statistics([chain.sampling.kept for chain in chains], n),
        unconstrained_posterior={"theta": theta},
        log_likelihood=log_likelihood,
        observed_data=_observed(posterior),
        attrs={**_totals(chains), **attrs, "left_out": trouble},
        **groups,
    )


def _statistics(kept: Sequence[Records], n: int) -> dict[str, NDArray[Any]]:
    return {name: np.stack([records[name][:n] for records in kept]) for name in kept[0].stats}


def _totals(chains: Sequence[Chain]) -> dict[str, list[float]]:
    """Counts and seconds of each chain over all its steps, thinned-away ones included."""
    names = ["n_steps", *(one.total for one in chains[0].kernel.stats if one.total and one.name != "audit_time")]
    return {
        **{name: [chain.sampling.totals[name] for chain in chains] for name in names},
        "sampling_time": [chain.sampling.totals["seconds"] for chain in chains],
        "audit_time": [chain.sampling.totals["audit_time"] for chain in chains],
        "warmup_time": [chain.warmup.totals["seconds"] for chain in chains],
        **{
            f"warmup_{name}": [chain.warmup.totals[name] for chain in chains]
            for name in ("n_steps", "n_obs_used", "n_obs_evaluated")
        },
    }


def normality(chains: Sequence[Chain], test: Test, *, variates: bool, max_error: float | None) -> dict[str, Any] | None:
    """What the trials at the end of warmup came to, over all chains (see `decision.normality.figures`)."""
    trials = [chain.tried for chain in chains if chain.tried is not None]
    return figures(pool(trials), test, by_decisions=variates, max_error=max_error) if trials else None


def _observed(posterior: Posterior) -> dict[str, NDArray[Any]]:
    """Data with one value an observation; matrices of covariates are left out of the file."""
    values, sizes = posterior.values, set(posterior.sizes)
    return {
        declaration.name: values.values[declaration.name]
        for declaration in values.declarations
        if len(declaration.all_dims) == 1 and declaration.all_dims[0] in sizes and declaration.base != "tuple"
    }


def facts(posterior: Posterior, test: Test, guarantee: str) -> dict[str, Any]:
    """What was sampled, how decisions were taken, and with which software."""
    blocks = posterior.blocks
    stan = re.search(r"^Stan version: *([\d.]+)", posterior.full.info(), re.MULTILINE)
    versions = {name: metadata.version(name) for name in ("bridgestan", "arviz", "numpy")}
    versions["stansub"] = __version__
    versions["python"] = platform.python_version()
    versions["stan"] = stan[1] if stan else ""
    return {
        "model": posterior.name,
        "n_observations": blocks.n_observations,
        "n_blocks": len(blocks),
        "block_size": blocks.size,
        "test": test.name,
        **{name: level for name in ("epsilon", "delta", "noise") if (level := _level(test, name)) is not None},
        "test_settings": repr(test),
        "guarantee": guarantee,
        "data_order": "original" if posterior.order is None else "shuffled",
        "form": posterior.form.kind,
        "model_code": posterior.program.code,
        "model_hash": hashlib.sha256(posterior.program.code.encode()).hexdigest()[:16],
        "data_hash": posterior.values.digest(),
        "versions": json.dumps(versions),
        "proof_error": posterior.proof.error,
    }


def _level(test: Test, name: str) -> float | None:
    """A setting of the test, which may be anyone's; None where it has none that is a number."""
    value = getattr(test, name, None)
    return float(value) if isinstance(value, numbers.Real) and math.isfinite(value) else None
