"""Collection of the chains' draws into groups: constrained values, statistics and facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stansub import clock, streams
from stansub.errors import InputError, InterruptError, RunError
from stansub.kernels.base import Records, Stat
from stansub.kernels.metropolis import LEVEL
from stansub.memory import reason
from stansub.mode_findings import VisitedModes
from stansub.output import convergence, files, inference_data
from stansub.output.appending import DrawsFile, piece_size
from stansub.progress import Progress, TimeLimitError
from stansub.run.chain import Chain
from stansub.run.constrain import DIMENSIONS, LOG_LIK, PARAMETERS, Quantities, SavedQuantities, written_bytes
from stansub.run.early_stopping import Check
from stansub.run.executors import BROKEN, Outcome
from stansub.run.facts import facts_of_run
from stansub.run.prepare import Prepared, Setup
from stansub.run.progress import Display, stage_progress
from stansub.run.state import Totals
from stansub.run.thinning import by_ess
from stansub.selection import updated
from stansub.stan.data.columns import level_sizes
from stansub.stan.posterior import Posterior
from stansub.target.partitioned import Predictors
from stansub.tuning.modes.mode_check import ModeCheck, check_modes
from stansub.tuning.visited_modes import Centre, visited_by_chains, visited_modes
from stansub.types import FloatArray
from stansub.wording import percent

if TYPE_CHECKING:
    import xarray

_R_HAT_DRAWS, _R_HAT_PARAMETERS = 100, 20
_AUDITED = (LEVEL.name, "audited", "audit_wrong")
_IN_WARMUP = ("n_steps", "n_obs_used", "n_obs_evaluated", "n_waits", "wait_time")

# Counts of a chain besides the totals of its kernel's statistics.
_OF_CHAINS = {
    "n_steps": "Steps, including those removed by thinning.",
    "sampling_time": "Seconds of sampling, without audits.",
    "warmup_time": "Seconds of warmup.",
    "warmup_n_steps": "Steps of warmup.",
    "warmup_n_obs_used": "Sum of n_obs_used over all warmup steps.",
    "warmup_n_obs_evaluated": "Observations evaluated in warmup.",
    "warmup_n_waits": "Batches of candidates that decisions waited for in warmup.",
    "warmup_wait_time": "Seconds of these waits.",
}


@dataclass(frozen=True)
class Finished:
    """A run that has finished or was stopped."""

    chains: Sequence[Chain]
    outcome: Outcome
    setup: Setup
    """Setup with what the chains chose together in warmup."""
    began: float
    """Time when the chains began (see `stansub.clock.now`)."""
    seconds: float = 0.0
    """Time for which they ran before they were resumed."""
    check: Check | None = None
    """Last precision check of a run with early stopping."""


def worst_r_hat(draws: Sequence[FloatArray]) -> float | None:
    """Return the largest R-hat of the first unconstrained parameters so far; None for few draws or one chain."""
    n = min(len(chain) for chain in draws)
    if n < _R_HAT_DRAWS or len(draws) < 2:
        return None
    together = np.stack([chain[:n, :_R_HAT_PARAMETERS] for chain in draws])
    return float(convergence.r_hat(together).max())


def usable(chains: Sequence[Chain], outcome: Outcome, *, before: str = "") -> tuple[list[Chain], str]:
    """Return the chains whose draws are kept, and why the run ended early, if it did.

    Chains that failed, and chains stopped before their first draw, are left out.

    Parameters
    ----------
    before : str
        Description and duration of the work before the chains began, for the error.

    Raises
    ------
    InputError or RunError
        If no chain has draws: InputError if an input caused the failure of all chains.
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
            failures = [f"{failures[0]}; all other chains failed in the same way"]
        kind = InputError if all(isinstance(error, InputError) for error in outcome.failures.values()) else RunError
        raise kind(f"sampling failed: {'; '.join(failures)}")
    if outcome.stopped == "max_time":
        least = min((chain.status for chain in chains), key=lambda status: status.steps)
        raise TimeLimitError(
            f"`max_time` was reached during warmup, before the first draw: {least.steps:,} of "
            f"{chains[0].plan.iter_warmup:,} steps{f'; stages before it: {before}' if before else ''}; raise "
            "`max_time` or lower `iter_warmup`"
        )
    if outcome.stopped == BROKEN:
        raise RunError(
            f"{BROKEN} before the first draw after warmup, so there are no draws to save; if a checkpoint exists, "
            "resume the run from it (`resume`)"
        )
    raise InterruptError("interrupted before the first draw after warmup: there are no draws to save")


def keep_unconstrained(chains: Sequence[Chain], kept: Path | None = None) -> Path | None:
    """Write the draws made so far to a file and return its path, or None if no draws have been made.

    Many draws are not written again if the checkpoint ``kept`` holds them.
    """
    if kept is not None and any(chain.sampling.kept.has_stored for chain in chains):
        return kept
    return files.keep_arrays({f"chain_{i + 1}": one.draws for i, one in enumerate(chains) if one.sampling.n_kept})


def collect(
    prepared: Prepared,
    finished: Finished,
    progress: Progress,
    display: Display,
    *,
    file: DrawsFile | None = None,
) -> xarray.DataTree:
    """Return the draws of a finished run with the facts about them.

    Parameters
    ----------
    progress : Progress
        Progress of the preparation; the rest of its time limit is for the search for modes.
    file : DrawsFile, optional
        Receives many draws in pieces; the returned tree is then thinned.

    Raises
    ------
    InputError or RunError
        If no chain has draws (see `usable`).
    """
    drawn, stopped = usable(finished.chains, finished.outcome, before=progress.spent())
    with stage_progress(display, max_time=progress.left()) as log:
        prepared.posterior.values.report_to(log)
        checked = _check_modes(prepared, drawn, stopped, log=log)
    visited, checked = _visited(prepared, drawn, checked)
    setup = _thinned(finished.setup, drawn)
    attrs = facts_of_run(prepared, setup, drawn) | {
        "mode_check": checked.record(),
        "visited_modes": asdict(visited) if visited is not None else None,
        "stopped": stopped,
        "last_check": finished.check.record() if finished.check is not None else None,
        "compile_time": prepared.compiled_at - progress.began,
        "setup_time": finished.began - prepared.compiled_at,
        "setup_times": progress.seconds,
        "wall_time": finished.seconds + clock.now() - finished.began,
    }
    with stage_progress(display) as log:
        gathered = _Gathered(prepared, drawn, attrs, every=setup.plan.thin // prepared.setup.plan.thin)
        if file is None or gathered.n_bytes <= inference_data.LARGE:
            log("Computing constrained values (Ctrl-C leaves out generated quantities)")
            return gathered.tree(log)
        return gathered.into(file, log)


def _thinned(setup: Setup, chains: Sequence[Chain]) -> Setup:
    """Return the setup with the interval at which draws are kept, if their ESS determines it."""
    if setup.config.thin != "auto":
        return setup
    chosen = by_ess([chain.sampling.kept for chain in chains], setup.config.precision)
    return replace(setup, plan=replace(setup.plan, thin=chosen.every), notes=updated(setup.notes, chosen))


class _Gathered:
    """Draws of all chains, 1 in ``every`` stored ones, cut to the length of the shortest, with statistics and facts."""

    def __init__(self, prepared: Prepared, chains: Sequence[Chain], attrs: Mapping[str, Any], *, every: int) -> None:
        self._prepared, self._chains, self._attrs, self._every = prepared, chains, attrs, every
        self._kept = SavedQuantities.of(prepared.setup.config)
        self._n = min(chain.sampling.n_kept for chain in chains) // every

    @property
    def n_bytes(self) -> int:
        """Return the bytes of the draws and their statistics."""
        return self._n * self._draw_bytes

    @property
    def _draw_bytes(self) -> int:
        """Return the bytes of a draw of every chain."""
        row_bytes = self._chains[0].sampling.kept.row_bytes
        return len(self._chains) * (row_bytes + written_bytes(self._prepared.posterior, self._kept))

    def tree(self, progress: Progress) -> xarray.DataTree:
        """Return all draws in memory.

        If generated quantities cannot be computed, the parameters are still kept. Generated quantities are NaN for
        draws at which they fail, and left out if they are interrupted or need too much memory.
        """
        try:
            quantities = self._quantities(self._kept)
            piece = self._piece(quantities, 0, self._n, progress)
            return self._tree(piece, quantities.trouble, quantities.seconds)
        except (KeyboardInterrupt, MemoryError) as error:
            if not self._kept.generated_quantities:
                raise
            why = "were interrupted" if isinstance(error, KeyboardInterrupt) else "took more memory than there is"
        program = self._prepared.posterior.program
        lost = program.transformed_parameters.declarations or program.generated_quantities.declarations
        trouble = f"transformed parameters and generated quantities {why} and are omitted" if lost else ""
        return self._tree(self._piece(self._quantities(PARAMETERS), 0, self._n), trouble)

    def into(self, file: DrawsFile, progress: Progress) -> xarray.DataTree:
        """Write the draws in pieces; return a thinned set of them in memory."""
        quantities, size = self._quantities(self._kept), piece_size(self._draw_bytes)
        for start in range(0, self._n, size):
            progress(f"Writing draws ({percent(start / self._n)})")
            piece = self._piece(quantities, start, min(start + size, self._n))
            if start == 0:
                file.begin(self._tree(piece, ""), self._n)
            else:
                file.append(piece, start)
        file.note(quantities_time=quantities.seconds)
        if quantities.trouble:
            file.note(left_out=quantities.trouble)
        return file.sparse()

    def _quantities(self, kept: SavedQuantities) -> Quantities:
        setup, posterior = self._prepared.setup, self._prepared.posterior
        return Quantities(posterior, len(self._chains), kept=kept, seed=setup.seed, threads=setup.threads)

    def _piece(
        self, quantities: Quantities, start: int, end: int, progress: Progress | None = None
    ) -> dict[str, dict[str, NDArray[Any]]]:
        """Return some of the draws, by group and variable."""
        every = self._every
        sampled = [chain.sampling.kept.read(start * every, end * every, every=every) for chain in self._chains]
        theta = np.stack([one.theta for one in sampled])
        variables = quantities.of(theta, progress)
        own = self._kept.log_likelihood and LOG_LIK in variables
        return {
            "log_likelihood": {LOG_LIK: variables.pop(LOG_LIK)} if own else {},
            "posterior": variables,
            "sample_stats": _statistics(sampled),
            "unconstrained_posterior": {"theta": theta},
        }

    def _tree(self, piece: dict[str, dict[str, NDArray[Any]]], trouble: str, seconds: float = 0.0) -> xarray.DataTree:
        posterior, chains = self._prepared.posterior, self._chains
        dims, coords = _levels(posterior, piece["posterior"])
        found = {"left_out": trouble, "quantities_time": seconds, "audit_by_level": _audits_by_level(chains)}
        if unsaved := self._kept.unsaved(posterior):
            found["unsaved"] = ", ".join(unsaved)
        return inference_data.build(
            **piece,
            **self._warmup(),
            observed_data=_observed(posterior),
            chain_stats=_totals(chains),
            dims=dims,
            coords=coords,
            attrs={**self._attrs, **found},
            descriptions=descriptions(chains[0].kernel.stats),
        )

    def _warmup(self) -> dict[str, dict[str, NDArray[Any]]]:
        """Return the groups of warmup, if they are kept."""
        if not self._kept.save_warmup:
            return {}
        n = min(chain.warmup.n_kept for chain in self._chains)
        warm = [chain.warmup.kept.read(0, n) for chain in self._chains]
        values = self._quantities(PARAMETERS).of(np.stack([one.theta for one in warm]))
        return {"warmup_posterior": values, "warmup_sample_stats": _statistics(warm)}


def _levels(
    posterior: Posterior, variables: Mapping[str, NDArray[Any]]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return dimensions of variables with a value per level of a text column, and the names of the levels."""
    values, program = posterior.values, posterior.program
    of = level_sizes(values.declarations, values.origins)
    sizes = {size: name for size, name in of.items() if name not in DIMENSIONS}
    dims = {}
    for block in (program.parameters, program.transformed_parameters, program.generated_quantities):
        for one in block.declarations:
            named = [sizes.get(size, f"{one.name}_dim_{k}") for k, size in enumerate(one.sizes)]
            fits = one.name in variables and variables[one.name].ndim == 2 + len(named) == 2 + len(set(named))
            if fits and set(named) & set(sizes.values()):
                dims[one.name] = named
    return dims, {name: list(values.origins.levels[name]) for name in sizes.values()}


def _audits_by_level(chains: Sequence[Chain]) -> list[dict[str, float]] | None:
    """Return audited and wrong decisions at each error level, first to last; None if the level is constant."""
    if LEVEL.name not in {one.name for one in chains[0].kernel.stats}:
        return None
    counts: dict[float, NDArray[np.int64]] = {}
    for rows in (part for chain in chains for part in chain.sampling.kept.parts()):
        level, audited, wrong = (rows[name] for name in _AUDITED)
        for one in np.unique(level):
            here = level == one
            found = np.array([audited[here].sum(), wrong[here].sum()])
            counts[float(one)] = counts.get(float(one), 0) + found
    return [
        {"level": level, "n_audited": int(n_audited), "n_wrong": int(n_wrong)}
        for level, (n_audited, n_wrong) in sorted(counts.items(), reverse=True)
    ]


def _kinked(prepared: Prepared, log: Progress) -> Predictors | None:
    """Return the predictors of the observations if the search for the modes smoothed kinks."""
    found = prepared.setup.found
    return prepared.posterior.predictors(log) if found is not None and found.modes.smoothed else None


def _check_modes(prepared: Prepared, chains: Sequence[Chain], stopped: str, *, log: Progress) -> ModeCheck:
    """Return whether chains missed a mode; if the check fails, the draws are kept."""
    if stopped:
        return ModeCheck(reason="the run was stopped")
    setup = prepared.setup
    if setup.not_smooth:
        return ModeCheck(reason=setup.not_smooth)
    if not prepared.posterior.has_gradients:
        return ModeCheck(reason="the posterior has no `log_lik_gradient`")
    rng = streams.generator(setup.seed, streams.Run.CHECK)
    draws = [chain.sampling.kept.sketch() for chain in chains]
    try:
        kinked = _kinked(prepared, log)
        return check_modes(prepared.posterior, draws, rng, predictors=kinked, threads=setup.threads, progress=log)
    except TimeLimitError:
        return ModeCheck(reason="`max_time` was reached")
    except (Exception, KeyboardInterrupt) as error:
        return ModeCheck(reason=reason(error), failed=True)


def _visited(prepared: Prepared, chains: Sequence[Chain], checked: ModeCheck) -> tuple[VisitedModes | None, ModeCheck]:
    """Return the modes from which the draws are, if there are several; if that fails, the check has failed."""
    found, model = prepared.setup.found, (prepared.posterior.pilot or prepared.posterior).full
    if prepared.setup.config.kernel is not None:  # whose draws need not be of one density
        return None, checked
    try:
        draws = [chain.sampling.kept.sketch() for chain in chains]
        if found is None or len(found.modes.found) == 1:
            return visited_by_chains(model, draws), checked
        return visited_modes(model, [Centre.of(mode) for mode in found.modes.found], draws), checked
    except (Exception, KeyboardInterrupt) as error:
        return None, replace(checked, reason=reason(error), failed=True)


def _statistics(kept: Sequence[Records]) -> dict[str, NDArray[Any]]:
    return {name: np.stack([records[name] for records in kept]) for name in kept[0].stats}


def _totals(chains: Sequence[Chain]) -> dict[str, NDArray[Any]]:
    """Return counts and seconds of each chain over all its steps, thinned away or not; each of shape (chain,)."""
    sampling, warmup = ([getattr(chain, phase).totals for chain in chains] for phase in ("sampling", "warmup"))
    counts = ["n_steps", *(one.total for one in chains[0].kernel.stats if one.total and one.total != "audit_time")]
    return {
        **{name: _each(sampling, name) for name in counts},
        "sampling_time": _each(sampling, "seconds"),
        "audit_time": _each(sampling, "audit_time"),
        "warmup_time": _each(warmup, "seconds"),
        **{f"warmup_{name}": _each(warmup, name) for name in _IN_WARMUP},
    }


def descriptions(stats: Sequence[Stat]) -> dict[str, dict[str, str]]:
    """Return descriptions of the variables in the groups of statistics, by group."""
    each = {one.name: one.sentence for one in stats if one.per_step}
    sums = {
        one.total: f"Sum of {one.name} over all steps." if one.per_step else one.sentence for one in stats if one.total
    }
    return {"sample_stats": each, "warmup_sample_stats": each, inference_data.CHAIN_STATS: sums | _OF_CHAINS}


def _each(totals: Sequence[Totals], name: str) -> NDArray[Any]:
    return np.array([one[name] for one in totals])


def _observed(posterior: Posterior) -> dict[str, NDArray[Any]]:
    """Return data with one value per observation, without matrices of covariates."""
    values, n_dims = posterior.values, 2 if posterior.analysis.table else 1
    return {
        declaration.name: values.values[declaration.name]
        for declaration in values.declarations
        if len(declaration.sizes) == n_dims
        and posterior.analysis.is_per_observation(declaration, posterior.counts)
        and declaration.base != "tuple"
        and declaration.name in values.values  # rows in partitions are elsewhere
    }
