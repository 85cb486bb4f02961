"""`diagnose`: test the normality assumption of a t-test on a program and its data, and suggest alternatives.

Chen, Mansinghka and Ghahramani (2016), section 3.3, propose trial runs that examine the distribution of the estimated
mean. Bardenet, Doucet and Holmes (2014, figure 4) show data on which it is far from normal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stansub import streams
from stansub.acceptance.normality import LEVELS, TOLERATED, Pair, Trial, coarsened, figures, try_pairs
from stansub.acceptance.ranges import DERIVATIVES
from stansub.acceptance.stopping import Guarantee, StoppingRule
from stansub.decision_findings import HeavyTail, TrialDecisionsWrong
from stansub.errors import InputError
from stansub.output.checks import normality_fails
from stansub.run import choices, decisions, limits
from stansub.run.chain import WARMUP_BATCH, Chain
from stansub.run.chain_factory import make_chain, starting_values
from stansub.run.inits import Init, Inits, load, near
from stansub.run.limits import MOST, Count
from stansub.run.posteriors import make_posterior
from stansub.run.prepare import find_mode_setup
from stansub.run.progress import Display, stage_progress
from stansub.run.range_sources import Ranges
from stansub.run.state import Plan
from stansub.stan.compilation import CompiledModel
from stansub.stan.data.sources import DataLike
from stansub.stan.posterior import Posterior
from stansub.stan.ranges import LIPSCHITZ
from stansub.target.factors import Evaluator
from stansub.target.taylor import ControlVariates
from stansub.tuning.mode_setup import check_order
from stansub.tuning.mode_variates import ModeRequest
from stansub.tuning.proposal_names import check_proposal, without_race
from stansub.tuning.trial import pairs_at
from stansub.wording import percent

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

PAIRS, SUBSETS, ITER_WARMUP = 40, 500, 1000
# Share of the pairs from the transient phase after the inits, and share of the steps that this phase takes.
_START_PAIRS, _START_STEPS = 0.25, 0.125
# Factors for larger blocks and first looks, tried if the test fails, and values shuffled for the decisions of a pair
# then.
_BLOCK_FACTORS, _LOOK_FACTORS = (2, 4, 16, 64, 256), (2, 4, 16)
_REMEDY_WORK = 1_000_000

# Steps of a default run of `sample`, for which control variates are weighed.
_N_STEPS = 48_000
_BOUNDS = {
    "pairs": Count(8, 1_000_000),
    "subsets": Count(50, 1_000_000),
    "iter_warmup": Count(8 * WARMUP_BATCH),
    "block_size": Count(),
    "seed": Count(0, MOST["seed"]),
}


@dataclass(frozen=True)
class NormalityTrial:
    """Results of trial decisions.

    Attributes
    ----------
    test : StoppingRule
        The t-test tried.
    settings : dict
        ``pairs``, ``subsets``, ``iter_warmup``, ``seed``.
    figures : dict
        Summary for the pairs from the later half of the chain (see `stansub.acceptance.normality.figures`).
    tails : DataFrame
        A row for each ``phase`` ("start": the transient after the inits, "end": the later half of the chain), look and
        critical value: ``blocks``, ``in_use`` (the test's own critical value), ``critical``, ``nominal`` (two-sided
        tail of Student's t), ``observed`` share of the subsets beyond, ``low``, ``high`` (95 % interval), ``undefined``
        (share of subsets of equal differences), ``n_subsets``.
    pairs : DataFrame
        A row for each pair of a state and a proposal: ``phase``; ``skewness``, excess ``kurtosis`` and ``largest``
        absolute value (in sd about their mean) of the differences of the blocks; ``decisions`` simulated and the share
        of them that went ``wrong``.
    trials : dict
        By phase, the statistics themselves, for pictures.
    reasons : tuple of HeavyTail and TrialDecisionsWrong
        Reasons to distrust the test.
    advice : tuple of str
        Alternatives, the best first.
    note : str
        Remark on the transient phase, if any. Warmup draws are discarded, so it is no reason for distrust.
    """

    model: str
    n_observations: int
    n_blocks: int
    block_size: int
    test: StoppingRule
    settings: Mapping[str, Any]
    figures: Mapping[str, Any]
    tails: pd.DataFrame
    pairs: pd.DataFrame
    trials: Mapping[str, Trial]
    reasons: tuple[HeavyTail | TrialDecisionsWrong, ...]
    advice: tuple[str, ...]
    note: str

    def __repr__(self) -> str:
        return f"<NormalityTrial of {self.model}, {self.n_observations:,} observations: {self.headline}>"

    @property
    def trusted(self) -> bool:
        """Return whether there is no reason to distrust the t-test."""
        return not self.reasons

    @property
    def headline(self) -> str:
        """Return the verdict in a sentence."""
        if self.trusted:
            return f"The {self.test.name} test can be trusted on these data."
        return f"The {self.test.name} test cannot be trusted on these data."


def diagnose(
    model: str | Path | CompiledModel | Posterior,
    data: DataLike | None = None,
    *,
    test: StoppingRule | str | None = None,
    epsilon: float | None = None,
    looks: str | None = None,
    first_look: int | None = None,
    block_size: int | None = None,
    observations: str | None = None,
    proposal: str = "auto",
    control_variates: int | str = "auto",
    pairs: int = PAIRS,
    subsets: int = SUBSETS,
    iter_warmup: int = ITER_WARMUP,
    seed: int | None = None,
    inits: Inits | None = None,
    show_progress: bool | None = None,
    console: Console | None = None,
) -> NormalityTrial:
    """Test the normality assumption of a t-test on a program and its data, and suggest alternatives.

    A short chain runs with the test. Proposals are made from its states, and all blocks are evaluated at both ends.
    Subsets and decisions are then simulated from these known differences.

    Parameters
    ----------
    model, data, block_size, observations, proposal, control_variates, inits, seed
        As in `stansub.sample`; with the same seed, the chain is the first of `sample`'s.
    test : StoppingRule or {"austerity", "pocock"}, optional
        The t-test; tests that do not rely on normal means are rejected.
    epsilon, looks, first_look
        Its settings, if ``test`` is a name.
    pairs : int
        Pairs of a state and a proposal; each costs up to two passes over the data.
    subsets : int
        Subsets per pair and look.
    iter_warmup : int
        Steps of the chain; a quarter of the pairs come from the first eighth of them, the others from the later half.

    Returns
    -------
    NormalityTrial

    Raises
    ------
    InputError
        If the program, the data or an option cannot be used, or the first look uses all the blocks.
    """
    limits.check(_BOUNDS, pairs=pairs, subsets=subsets, iter_warmup=iter_warmup, block_size=block_size, seed=seed)
    rule = _t_test(test, epsilon, looks, first_look)
    order = check_order(control_variates)
    check_proposal(proposal)
    seed = streams.given_or_drawn(seed)
    init = load(inits, 1)[0] if inits is not None else None
    request = ModeRequest(
        order=order,
        proposal=proposal,
        n_steps=_N_STEPS,
        seed=seed,
        threads=choices.cores(),
        looks_given=not (test is None or isinstance(test, str)) or looks is not None or first_look is not None,
    )
    settings = {"pairs": pairs, "subsets": subsets, "iter_warmup": iter_warmup, "seed": seed}
    with stage_progress(Display.of(show_progress, console)) as log:
        posterior, _ = make_posterior(
            model,
            data,
            block_size=block_size
            or (lambda _, n, instances: rule.block_size(n, instances=instances, variates=order != "0")),
            seed=seed,
            observations=observations,
            near=near([init]) if init is not None else None,
            log=log,
        )
        return _try(posterior, rule, request, init, settings, log)


def _try(
    posterior: Posterior,
    rule: StoppingRule,
    request: ModeRequest,
    init: Init | None,
    settings: Mapping[str, int],
    log: Callable[[str], None],
) -> NormalityTrial:
    """Run the chain, collect pairs along it and judge."""
    seed, iter_warmup = settings["seed"], settings["iter_warmup"]
    anchored, rule, _ = find_mode_setup(posterior, rule, request, log)
    if rule.table(len(posterior.blocks)).n.size == 1:
        raise InputError(
            f"the first look takes all {len(posterior.blocks):,} blocks, so every decision uses all the data and "
            "there is nothing to test; lower `block_size` or `first_look`"
        )
    chain = make_chain(
        posterior,
        rule,
        Ranges("none"),
        Plan(iter_warmup, 0, 1, 0.0, False),
        anchored.proposal if anchored and anchored.proposal else without_race(request.proposal),
        starting_values(posterior, anchored, [init], seed)[0],
        seed=seed,
        chain=0,
        stop=np.zeros(1, np.int32),
        found=anchored,
    )
    variates = anchored.blockwise if anchored else None
    rng = streams.generator(seed, streams.Chain.TRIAL)
    found = _pairs_along(chain, posterior.population.evaluator(), variates, settings["pairs"], iter_warmup, rng, log)
    return _judge(found, posterior, rule, variates is not None, settings, rng, log)


def _t_test(
    test: StoppingRule | str | None, epsilon: float | None, looks: str | None, first_look: int | None
) -> StoppingRule:
    """Return the requested test; raise InputError if it does not rely on normal means."""
    rule = decisions.choose_test(test, epsilon=epsilon, delta=None, looks=looks, first_look=first_look)
    if rule.guarantee(None) == Guarantee.ASYMPTOTIC and rule.rests_on_t:
        return rule
    promise = "uses all the data for every decision" if rule.exact else "does not assume normal subset means"
    promise = "is checked by the audit of `stansub sample`" if rule.counts_noise else promise
    raise InputError(
        f"the {rule.name} test {promise}, so there is nothing to check; choose `test='pocock'` or `test='austerity'` "
        "with an epsilon above 0"
    )


def _pairs_along(
    chain: Chain,
    evaluator: Evaluator,
    variates: ControlVariates | None,
    n_pairs: int,
    iter_warmup: int,
    rng: np.random.Generator,
    log: Callable[[str], None],
) -> dict[str, list[Pair]]:
    """Run the trial chain and collect pairs of a state and a proposal along it, by phase.

    Raises
    ------
    InputError
        If no proposal in the later half has a finite log density.
    """
    found: dict[str, list[Pair]] = {"start": [], "end": []}
    for batch, (n_start, n_end) in enumerate(_when(n_pairs, -(-iter_warmup // WARMUP_BATCH))):
        if batch:
            chain.advance()
        status = chain.status
        log(f"Trial chain: {status.steps:,} of {iter_warmup:,} steps, {percent(status.share)} of the data a decision")
        for phase, n in (("start", n_start), ("end", n_end)):
            if n:
                found[phase] += pairs_at(evaluator, chain.position, chain.proposal, n, rng, variates)[0]
    if not found["end"]:
        raise InputError(
            "no proposal in the second half of the trial chain had a finite log density: give `inits` nearer to "
            "plausible values, or a larger `iter_warmup`"
        )
    return found


def _judge(
    found: Mapping[str, Sequence[Pair]],
    posterior: Posterior,
    rule: StoppingRule,
    by_decisions: bool,
    settings: Mapping[str, Any],
    rng: np.random.Generator,
    log: Callable[[str], None],
) -> NormalityTrial:
    """Draw subsets of the pairs, judge whether the test can be trusted, and suggest alternatives if not."""
    log("Drawing subsets")
    subsets, table = settings["subsets"], rule.table(len(posterior.blocks))
    trials = {phase: try_pairs(taken, table, n_subsets=subsets, rng=rng) for phase, taken in found.items() if taken}
    judged = partial(figures, by_decisions=by_decisions)
    short = judged(trials["end"], rule)
    reasons = normality_fails(short)
    advice = tuple(_advice(found["end"], posterior, rule, subsets, rng, log, judged)) if reasons else ()
    return NormalityTrial(
        model=posterior.name,
        n_observations=posterior.blocks.n_observations,
        n_blocks=len(posterior.blocks),
        block_size=posterior.blocks.size,
        test=rule,
        settings=settings,
        figures=short,
        tails=_tails(trials),
        pairs=_pairs(trials),
        trials=trials,
        reasons=reasons,
        advice=advice,
        note=_note(trials, rule, judged),
    )


def _when(pairs: int, n_batches: int) -> Iterator[tuple[int, int]]:
    """Yield how many pairs to collect at the start and after each batch of the chain, for either phase."""
    n_start = max(1, round(_START_PAIRS * pairs))
    early = np.linspace(0, _START_STEPS * n_batches, n_start).astype(int)
    late = np.linspace(n_batches / 2, n_batches, pairs - n_start).astype(int)
    counts = (np.bincount(at, minlength=n_batches + 1).tolist() for at in (early, late))
    yield from zip(*counts, strict=True)


def _tails(trials: Mapping[str, Trial]) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for phase, trial in trials.items():
        for tail in trial.tails(LEVELS):
            facts = tail._asdict()
            rows.append({"phase": phase, **{k: v for k, v in facts.items() if k != "observed"}})
            rows[-1] |= {"observed": tail.observed.value, "low": tail.observed.low, "high": tail.observed.high}
    order = ["phase", "blocks", "in_use", "critical", "nominal", "observed", "low", "high", "undefined", "n_subsets"]
    return pd.DataFrame(rows)[order]


def _pairs(trials: Mapping[str, Trial]) -> pd.DataFrame:
    import pandas as pd

    parts = [
        pd.DataFrame(
            {
                "phase": phase,
                "skewness": trial.skewness,
                "kurtosis": trial.kurtosis,
                "largest": trial.largest,
                "decisions": trial.n_decisions,
                "wrong": trial.n_wrong / trial.n_decisions,
            }
        )
        for phase, trial in trials.items()
    ]
    return pd.concat(parts, ignore_index=True)


def _note(
    trials: Mapping[str, Trial], test: StoppingRule, judged: Callable[[Trial, StoppingRule], dict[str, Any]]
) -> str:
    if "start" not in trials:
        return "During burn-in from the inits, no proposal had a finite log density."
    reasons = normality_fails(judged(trials["start"], test))
    if not reasons:
        return ""
    return f"During burn-in, whose draws are discarded: {'; and '.join(one.clause for one in reasons)}."


def _advice(
    pairs: Sequence[Pair],
    posterior: Posterior,
    test: StoppingRule,
    subsets: int,
    rng: np.random.Generator,
    log: Callable[[str], None],
    judged: Callable[[Trial, StoppingRule], dict[str, Any]],
) -> Iterator[str]:
    """Yield the smallest changes of settings with which the same pairs pass, and tests without the assumption."""
    n_blocks, block_size = len(posterior.blocks), posterior.blocks.size
    first = int(test.table(n_blocks).n[0])

    def passes(tried: Sequence[Pair], rule: StoppingRule) -> str:
        table = rule.table(tried[0].differences.size)
        trial = try_pairs(tried, table, n_subsets=subsets, rng=rng, decision_work=_REMEDY_WORK)
        seen, first_tail = judged(trial, rule), trial.tails()[0]
        # Suggested settings must pass the trial at the first look, usually the worst.
        unsure = first_tail.observed.value > TOLERATED * first_tail.nominal
        if unsure or seen["tail_fails"] or seen["decisions_fail"]:
            return ""
        return (
            f"|t| beyond its critical value in {percent(seen['observed'])} of the subsets "
            f"({percent(seen['nominal'])} expected), {percent(seen['wrong'])} of the decisions wrong"
        )

    remedies: list[str] = []
    for factor in _BLOCK_FACTORS:
        if 2 * first * factor <= n_blocks:
            log(f"Trying blocks of {factor * block_size:,} observations")
            if outcome := passes([coarsened(pair, factor) for pair in pairs], test):
                remedies.append(f"`block_size={factor * block_size}` passes the trial: {outcome}.")
                break
    for factor in _LOOK_FACTORS:
        if 2 * first * factor <= n_blocks:
            log(f"Trying a first look of {factor * first:,} blocks")
            if outcome := passes(pairs, decisions.with_looks(test, None, factor * first)):
                share = percent(factor * first / n_blocks)
                remedies.append(f"`first_look={factor * first}` passes the trial ({share} of the data): {outcome}.")
                break
    yield from remedies
    if 2 * first * min(_BLOCK_FACTORS) > n_blocks:
        yield "There are too few blocks for larger blocks or a larger first look to save data."
    elif not remedies:
        yield "No larger block or first look passed the trial."
    own = (DERIVATIVES[2], LIPSCHITZ, "log_lik_range")
    known = [name for name in own if name in posterior.analysis.functions]
    source = (
        f"It uses the range from the program's function {known[0]}."
        if known
        else f"It needs a function {DERIVATIVES[2]} in the program, or {LIPSCHITZ} or log_lik_range, which read "
        "most of the data."
    )
    yield f"`test='bernstein-serfling'` is valid for any data. {source}"
    yield "`test='exact'` uses all the data for every decision and is never wrong."
