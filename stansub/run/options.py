"""Declarations of the options of `sample`: name, type, default, bounds and description.

Imports are light so that the command line starts fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from stansub.acceptance.names import BOUNDS, TEST_NAMES
from stansub.run.limits import FIRST_LOOK, MAX_ERROR, MOST, RANGES, Count, CountOr, Interval, Named, Suggested
from stansub.run.option import of_chains, of_data, of_decisions, of_output, option

if TYPE_CHECKING:
    from rich.console import Console

    from stansub.acceptance.rules import StoppingRule
    from stansub.kernels.proposals import Proposal
    from stansub.kernels.recipes import Recipe
    from stansub.run.executors import Executor
    from stansub.run.inits import Inits

ProposalName = Literal[
    "auto", "laplace-pcn", "trajectory", "langevin", "adaptive-metropolis", "random-walk", "sgld", "surrogate", "gibbs"
]


@dataclass(frozen=True, kw_only=True)
class ChainOptions:
    """Options of the chains: number, length and moves."""

    chains: int = of_chains(4, "Number of chains.", Count(1, MOST["chains"]), common=True)
    parallel_chains: int | None = of_chains(
        None,
        "Number of chains to run at once. The draws do not depend on it.",
        Count(1, MOST["chains"]),
        means="one per core",
        resume="any",
    )
    executor: Literal["threads", "processes", "dask"] | str | Executor = of_chains(
        "threads",
        "How to run the chains: threads of one process, processes that each load the data, or a dask cluster on this "
        "machine or at dask:ADDRESS, which must see the same files. The draws do not depend on it.",
        Suggested(("threads", "processes", "dask")),
        type_="or anything with the submit of concurrent.futures",
        metavar="NAME",
        resume="any",
    )
    iter_warmup: int = of_chains(
        None,
        "Warmup steps of each chain. They adapt the proposal.",
        Count(0),
        means="2,000, or 200 surrogate transitions; a resumed run keeps its own",
        common=True,
    )
    iter_sampling: int = of_chains(
        None,
        "Steps of each chain after warmup. The maximum if `until` is given.",
        Count(1),
        means="10,000, or 1,000 surrogate transitions; ten times as many with `until`; a resumed run keeps its own",
        resume="longer",
        common=True,
    )
    thin: Literal["auto"] | int = of_chains(
        1,
        "Keep every n-th draw. auto: once the chains have ended, keep as many draws as there are effective draws, but "
        "more if their ESS would fall below what `until` or the summary requires.",
        CountOr(("auto",)),
        type_='int or "auto"',
        metavar="N|auto",
    )
    seed: int | None = of_chains(
        None,
        "Seed of the random numbers.",
        Count(0, MOST["seed"]),
        means="drawn, and written to the output",
        common=True,
    )
    inits: Inits | None = of_chains(
        None,
        "Radius of random inits on the unconstrained space, or constrained values (on the command line JSON files): "
        "one for all chains or one a chain.",
        type_="float, path, mapping, or a sequence of them",
        metavar="RADIUS|FILE[,FILE...]",
        means="overdispersed around the mode; radius 2 if no mode exists",
    )
    proposal: ProposalName | str | Proposal = of_chains(
        "auto",
        "Kind of proposal. Independence or Langevin proposals around the mode (laplace-pcn, langevin), Hamiltonian "
        "trajectories on the third-order expansion there (trajectory), adaptive random walks (random-walk, "
        "adaptive-metropolis), mini-batch gradients (sgld), Hamiltonian trajectories on an expansion of the "
        "likelihood for multilevel models (surrogate), or moves of all effects of a grouping at once, each accepted on "
        "its own, such as items and persons (gibbs). With more than 50 parameters, auto uses gibbs if the likelihood "
        "multiplies coefficients of two groupings, and surrogate if an observation reads few of them. It uses "
        "surrogate, too, if effects have an unknown scale, unless there are at most 50 parameters, the likelihood is "
        "of a known family and the posterior is nearly normal. Otherwise, it picks the fastest in a short trial.",
        Named(get_args(ProposalName)),
        type_="or Proposal",
        metavar="NAME",
        common=True,
    )
    kernel: Recipe | None = option(
        None,
        "Transition that replaces one Metropolis-Hastings step on all parameters, such as "
        "``stansub.OnParameters(stansub.Metropolis(), names)``, ``stansub.Sequence(...)`` or ``stansub.Mixture(...)``.",
        type_="Recipe",
    )
    max_time: float | None = of_chains(
        None,
        "Stop after this many seconds. This includes compilation and set-up. Draws so far are kept.",
        Interval("a number of seconds above 0", high=None),
        resume="any",
        common=True,
    )
    until: str | Mapping[str, float] | None = of_chains(
        None,
        "Stop at a precision such as ess=400 or ess=400,rhat=1.01. Parameters must reach it in their bulk ESS, tail "
        "ESS and R-hat: all, or of more than 2,500 the first elements of large variables.",
        type_="str or mapping",
        metavar="PRECISION",
        means="none: the run ends after `iter_sampling`",
        resume="any",
        common=True,
    )


@dataclass(frozen=True, kw_only=True)
class DecisionOptions:
    """Options of the accept/reject decisions."""

    test: StoppingRule | str | None = of_decisions(
        None,
        "Accept/reject test. t-tests (pocock, austerity), concentration bounds (hoeffding, bernstein, "
        "bernstein-serfling), tests that include the noise (barker, penalty), all the data (exact), or exact "
        "decisions by bounds on single observations (factorised, poisson).",
        Named(TEST_NAMES),
        type_="name or StoppingRule",
        metavar="NAME",
        means="exact decisions if the likelihood has bounds or observations are few; otherwise pocock or penalty",
        common=True,
    )
    bounds: Literal["proved", "learned"] | str | None = of_decisions(
        None,
        "Bounds of the factorised and poisson tests: proved, for recognised likelihoods, or learned from draws around "
        "the mode, for any likelihood, which makes the test approximate.",
        Named(BOUNDS),
        means="proved",
    )
    kappa: float | None = of_decisions(
        None,
        "Factor on the bounds of the poisson test, at least 1/2: a larger one uses more observations and accepts more "
        "proposals.",
        means="chosen in warmup, or 1 if you choose the proposal",
    )
    epsilon: float | None = of_decisions(
        None,
        "Error of the t-tests: per look (austerity) or of a whole decision (pocock; barker and penalty fall back on "
        "it).",
        means="0.005; austerity 0.001",
    )
    final_epsilon: float | None = of_decisions(
        None,
        "Error level at the end of the run: after warmup the level falls from `epsilon` (or `delta`) to this value in "
        "25 equal ratios.",
        Interval("between 0 and 1"),
        means="none: the level is constant",
    )
    delta: float | None = of_decisions(None, "Error of a whole decision under the concentration bounds.", means="0.01")
    max_error: float | None = of_decisions(
        None,
        "Accepted error of a whole decision for any test, instead of `epsilon` or `delta`. stansub audits enough "
        "decisions to verify it, if that is affordable.",
        MAX_ERROR,
    )
    control_variates: Literal["auto", 0, 1, 2] | int | str = of_decisions(
        "auto",
        "Order of the expansions at the mode that serve as control variates of the log likelihoods; auto weighs "
        "savings against cost.",
        Named(("auto", "0", "1", "2")),
        type_='{"auto", 0, 1, 2}',
    )
    range_source: str = of_decisions(
        "auto",
        "Source of the range for concentration bounds. Functions of the program (derivative with control variates; "
        "lipschitz, function without), a proof for linear predictors (predictors), or passes over the data (scan, "
        "estimate).",
        Named(RANGES.names),
        metavar="NAME",
        flag="range",
    )
    looks: Literal["geometric", "fixed"] | str | None = of_decisions(
        None,
        "Whether the subset grows by a factor or by a fixed number of blocks.",
        Named(("geometric", "fixed")),
        means="geometric",
    )
    first_look: int | None = of_decisions(
        None,
        "Blocks at the first look, and of each step of the fixed schedule.",
        FIRST_LOOK,
        means="chosen in trials; without a mode 50, or 16 for concentration bounds and 10 for penalty and barker",
    )
    audit: float | None = of_decisions(
        None,
        "Share of decisions that are repeated on all the data, to measure how many are wrong.",
        Interval("a share between 0 and 1", closed=True),
        means="0.01, or a few hundred decisions if they are cheap; what `max_error` needs; 0 if they are exact",
        resume="any",
    )


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Options of the data: blocks and evaluation."""

    block_size: int | None = of_data(
        None, "Observations per block, the unit of subsampling.", Count(1), means="chosen for the test"
    )
    observations: str | None = of_data(
        None,
        "Integer data variable that counts the observations.",
        metavar="NAME",
        means="derived from the program",
    )


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Options of the output: what is kept and displayed."""

    save_warmup: bool = of_output(False, "Keep the warmup draws too, in separate groups.")
    generated_quantities: bool = of_output(
        True, "Compute transformed parameters and generated quantities of the draws.", resume="any"
    )
    observation_level: bool = of_output(
        False,
        "Keep variables with a value per observation too; log_lik goes to the group log_likelihood.",
        resume="any",
    )
    save: str | Sequence[str] | None = of_output(
        None,
        "Variables to keep, separated by commas.",
        type_="str or sequence of str",
        metavar="NAMES",
        means="all except those with a value per observation",
        resume="any",
        common=True,
    )
    drop: str | Sequence[str] | None = of_output(
        None,
        "Variables to leave out, separated by commas.",
        type_="str or sequence of str",
        metavar="NAMES",
        means="none",
        resume="any",
        common=True,
    )
    checkpoint: Path | str | None = of_output(
        None,
        "File that stores the run while it samples, so that you can resume it.",
        type_="path",
        metavar="FILE",
        means="none; on the command line, the output's name with .checkpoint",
        resume="any",
        recorded=False,
    )
    checkpoint_every: float = of_output(
        60.0,
        "Seconds between two checkpoints; inf writes none before the end, or before draws fill 64 MB.",
        Interval("a number of seconds above 0", high=None),
        metavar="SECONDS",
        resume="any",
        recorded=False,
    )
    resume: Path | str | None = of_output(
        None,
        "Checkpoint to resume. The draws are those of an uninterrupted run. Extend a finished run with more "
        "`iter_sampling`. If the file does not exist, a new run starts and is stored there.",
        type_="path",
        metavar="FILE",
        resume="any",
        recorded=False,
        common=True,
    )
    show_progress: bool | None = option(
        None,
        "Whether to show progress.",
        means="bars on a terminal or in a notebook, otherwise one line per stage",
        resume="any",
        recorded=False,
    )
    console: Console | None = option(
        None,
        "Console for progress.",
        means="standard error",
        resume="any",
        recorded=False,
        type_="rich.console.Console",
    )
