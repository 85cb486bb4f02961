"""Facts recorded with the draws of a run: options, choices, what was found and what was sampled."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from stansub._version import __version__
from stansub.acceptance.normality import figures, pool
from stansub.acceptance.rules import StoppingRule
from stansub.kernels.proposals import Proposal, checked
from stansub.run.chain import Chain
from stansub.run.config import SampleConfig
from stansub.run.inits import Inits
from stansub.run.prepare import Prepared, Setup
from stansub.stan.plan import plan, plan_transitions
from stansub.stan.posterior import Posterior
from stansub.stan.whole_data import Uncut
from stansub.tuning.mode_setup import ModeSetup
from stansub.tuning.modes.starts import RADIUS
from stansub.tuning.proposal_names import without_race

# Options that determine the test, which has facts of its own.
_OF_THE_TEST = ("test", "bounds", "kappa", "epsilon", "delta", "looks", "first_look")


def facts_of_run(prepared: Prepared, setup: Setup, chains: Sequence[Chain]) -> dict[str, Any]:
    """Return options, findings and choices of a run, as written to the output.

    ``setup`` is that at the end of the run, with what the chains chose together in warmup.
    """
    before, posterior = prepared.setup, prepared.posterior
    config = setup.config
    return {
        **facts(posterior, setup.rule, setup.guarantee),
        "normality": normality(chains, setup.rule, variates=setup.order > 0, max_error=config.max_error),
        "choices": {name: one.describe() for name, one in setup.choices.items()},
        "choice_values": {name: one.record() for name, one in setup.choices.items()},
        "starts": _starts(setup.found),
        "anchor_n_obs_evaluated": _evaluated(before.found, posterior),
        "asked": config.record(),
        "settings": _settings(setup, posterior),
        "programs": _programs(posterior, config),
        "data_file": prepared.data_file,
        "levels": dict(posterior.values.origins.levels) or None,
    }


def _programs(posterior: Posterior, config: SampleConfig) -> dict[str, str]:
    """Return what was compiled and why; empty for functions."""
    if isinstance(posterior.population, Uncut):
        return plan_transitions(posterior.analysis, *posterior.sizes).reasons
    return plan(posterior.analysis).reasons if posterior.program.code else {}


def _settings(setup: Setup, posterior: Posterior) -> dict[str, Any]:
    """Return the options with the choices made; facts on the test are separate (see `facts`)."""
    config = setup.config
    chosen = {
        "inits": _described(config.inits) if config.inits is not None else _starts_from(setup),
        "proposal": setup.transition.name if setup.transition is not None else _named(config.proposal, setup.found),
        "control_variates": setup.order,
        "range_source": setup.range_kind,
        "audit": setup.plan.audit,
        "thin": setup.plan.thin,
        "block_size": posterior.blocks.size,
        "evaluator": posterior.population.kind,
    }
    settings = config.record() | chosen | {"inits": str(chosen["inits"])}
    return {name: value for name, value in settings.items() if name not in _OF_THE_TEST}


def _starts_from(setup: Setup) -> str | float:
    """Return where chains start that have no inits."""
    if setup.transition is not None:
        return setup.transition.starts_from
    return "about the mode" if setup.found else RADIUS


def _starts(found: ModeSetup | None) -> list[dict[str, Any]] | None:
    """Return the result of every start of the search for modes."""
    if found is None:
        return None
    return [
        {name: getattr(one, name) for name in ("kind", "log_density", "n_iterations", "outcome")}
        for one in found.modes.starts
    ]


def normality(
    chains: Sequence[Chain], test: StoppingRule, *, variates: bool, max_error: float | None
) -> dict[str, Any] | None:
    """Return the results of the warmup trials over all chains (see `stansub.acceptance.normality.figures`)."""
    trials = [chain.normality_trial for chain in chains if chain.normality_trial is not None]
    return figures(pool(trials), test, by_decisions=variates, max_error=max_error) if trials else None


def facts(posterior: Posterior, test: StoppingRule, guarantee: str) -> dict[str, Any]:
    """Return what was sampled, how decisions were taken, and with which software."""
    blocks = posterior.blocks
    stan = re.search(r"^Stan version: *([\d.]+)", posterior.full.info(), re.MULTILINE)
    return {
        "model": posterior.name,
        "n_observations": blocks.n_observations,
        "n_blocks": len(blocks),
        "block_size": blocks.size,
        "test": test.name,
        **test.parameters,
        "test_settings": repr(test),
        "guarantee": guarantee,
        "data_order": "original" if posterior.order is None else "shuffled",
        "form": "sum" if posterior.program.code else "functions",
        "model_code": posterior.program.code,
        "model_hash": posterior.model_hash,
        "data_hash": posterior.values.digest(),
        "versions": json.dumps(versions(stan[1] if stan else "")),
        "proof_error": posterior.proof.error,
    }


def versions(stan: str) -> dict[str, str]:
    """Return the versions of the software that made draws, given that of Stan."""
    installed = {name: metadata.version(name) for name in ("bridgestan", "arviz", "numpy")}
    return {**installed, "stansub": __version__, "python": platform.python_version(), "stan": stan}


def _named(proposal: str | Proposal, found: ModeSetup | None) -> str:
    """Return the proposal's name for the record."""
    if not isinstance(proposal, str):
        return checked(proposal).name
    return found.name if found is not None else without_race(proposal)


def _evaluated(found: ModeSetup | None, posterior: Posterior) -> float:
    """Return observations evaluated before any chain; a gradient counts as one evaluation of each."""
    if found is None:
        return 0.0
    single = found.variates is not None and found.variates.blockwise is None
    gradients = 1 if single else {0: 0, 1: 1, 2: 1 + 2 * posterior.dim}[found.order]
    return (
        found.n_obs_evaluated
        + (found.modes.n_passes + len(found.modes.found) * gradients) * posterior.blocks.n_observations
    )


def _described(inits: Inits) -> str:
    """Return inits for the record; values passed from Python are not repeated."""
    if isinstance(inits, Mapping):
        return "given values"
    if isinstance(inits, str | Path) or not isinstance(inits, Sequence):
        return str(inits)
    return ",".join(_described(one) for one in inits)
