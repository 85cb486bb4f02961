"""The options of `sample`, each declared once: name, type, default, bounds and a sentence.

The command line's options, the parameters in docstrings, what is written to the output and what a run that goes on must
have in common with its beginning all follow from `SampleConfig`. Nothing heavy is imported here, so that the command
line answers at once.
"""

from __future__ import annotations

import numbers
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from stansub.acceptance.names import BOUNDS, TEST_NAMES
from stansub.errors import InputError
from stansub.run.limits import FIRST_LOOK, MAX_ERROR, MOST, RANGES, Bounds, Count, Interval, Named, OneOf, Suggested
from stansub.run.precision import Precision

if TYPE_CHECKING:
    from rich.console import Console

    from stansub.acceptance.rules import StoppingRule
    from stansub.kernels.proposals import Proposal
    from stansub.kernels.recipes import Recipe
    from stansub.run.executors import Executor
    from stansub.run.inits import Inits

_Documented = TypeVar("_Documented", bound=Callable[..., Any])

# Steps after warmup where none are asked for: of a run that ends there, and of one that may end before.
ITER_WARMUP, ITER_SAMPLING, MOST_ITER_SAMPLING = 2_000, 10_000, 100_000
# Warmup and sampling of surrogate transitions, which move as far as those of NUTS.
TRANSITIONS = 200, 1_000
ON_SURROGATE = "surrogate transitions expand the likelihood around the posterior, not at its mode"
_LENGTHS = "iter_warmup", "iter_sampling"

# Groups of options, in the command line's help.
CHAINS, DECISIONS, DATA, OUTPUT = "Chains", "Decisions", "Data", "Output"


@dataclass(frozen=True)
class Option:
    """What is declared of an option beside its name, type and default.

    Attributes
    ----------
    text : str
        What it does, in a sentence; names of other options in backticks.
    group : str
        In the command line's help; empty for what is given from Python alone.
    bounds : Bounds or None
    default : str
        What None stands for, in words.
    type_ : str
        In docstrings, where the annotation does not say it briefly.
    flag, metavar : str
        On the command line, where they do not follow from the name.
    resume : {"same", "longer", "any"}
        What it must be where a run goes on: that of the beginning, that or more, or anything, because no draw depends
        on it.
    recorded : bool
        Whether it is written to the output.
    common : bool
        Whether the short help of `sample` shows it.
    """

    text: str
    group: str = ""
    bounds: Bounds | None = None
    default: str = ""
    type_: str = ""
    flag: str = ""
    metavar: str | None = None
    resume: Literal["same", "longer", "any"] = "same"
    recorded: bool = True
    common: bool = False


def _option(default: Any, text: str, group: str = "", bounds: Bounds | None = None, **more: Any) -> Any:
    """A field of `SampleConfig`; ``means`` among ``more`` is `Option.default`."""
    means = more.pop("means", "")
    return field(default=default, metadata={"option": Option(text, group, bounds, means, **more)})


@dataclass(frozen=True, kw_only=True)
class SampleConfig:
    """Options of a run, checked.

    Parameters
    ----------
    {options}

    Raises
    ------
    InputError
        When an option is out of range, or options do not go together.
    """

    chains: int = _option(4, "Number of chains.", CHAINS, Count(1, MOST["chains"]), common=True)
    parallel_chains: int | None = _option(
        None,
        "Number of chains to run at once. The draws do not depend on it.",
        CHAINS,
        Count(1, MOST["chains"]),
        means="one per core",
        resume="any",
    )
    executor: Literal["threads", "processes", "dask"] | str | Executor = _option(
        "threads",
        "How to run the chains: threads of one process, processes that each load the data, or a dask cluster on this "
        "machine or at dask:ADDRESS, which must see the same files. The draws do not depend on it.",
        CHAINS,
        Suggested(("threads", "processes", "dask")),
        type_="or anything with the submit of concurrent.futures",
        metavar="NAME",
        resume="any",
    )
    iter_warmup: int = _option(
        None,
        "Warmup steps of each chain, which adapt the proposal.",
        CHAINS,
        Count(0),
        means="2,000, or 200 surrogate transitions; a resumed run keeps its own",
        common=True,
    )
    iter_sampling: int = _option(
        None,
        "Steps of each chain after warmup; the maximum if `until` is given.",
        CHAINS,
        Count(1),
        means="10,000, or 1,000 surrogate transitions; 100,000 with `until`; a resumed run keeps its own",
        resume="longer",
        common=True,
    )
    thin: int = _option(1, "Keep every n-th draw.", CHAINS, Count(1))
    seed: int | None = _option(
        None,
        "Seed of the random numbers.",
        CHAINS,
        Count(0, MOST["seed"]),
        means="drawn, and written to the output",
        common=True,
    )
    inits: Inits | None = _option(
        None,
        "Radius of random inits on the unconstrained space, or constrained values (on the command line JSON files): "
        "one for all chains or one a chain.",
        CHAINS,
        type_="float, path, mapping, or a sequence of them",
        metavar="RADIUS|FILE[,FILE...]",
        means="overdispersed around the mode; radius 2 if no mode exists",
    )
    proposal: (
        Literal["auto", "laplace-pcn", "langevin", "adaptive-metropolis", "random-walk", "sgld", "surrogate"]
        | str
        | Proposal
    ) = _option(
        "auto",
        "Proposal: independence or Langevin proposals around the mode (laplace-pcn, langevin), adaptive random walks "
        "(random-walk, adaptive-metropolis), mini-batch gradients (sgld), or NUTS on an expansion of the likelihood "
        "for multilevel models (surrogate). auto uses surrogate if effects have an unknown scale and the posterior is "
        "far from normal, and otherwise picks the fastest in a short trial.",
        CHAINS,
        Named(("auto", "laplace-pcn", "langevin", "adaptive-metropolis", "random-walk", "sgld", "surrogate")),
        type_="or Proposal",
        metavar="NAME",
        common=True,
    )
    kernel: Recipe | None = _option(
        None,
        "Transition that replaces one Metropolis-Hastings step on all parameters, such as "
        "``stansub.OnParameters(stansub.Metropolis(), names)``, ``stansub.Sequence(...)`` or ``stansub.Mixture(...)``.",
        type_="Recipe",
    )
    max_time: float | None = _option(
        None,
        "Stop after this many seconds, including set-up, and keep the draws so far.",
        CHAINS,
        Interval("a number of seconds above 0", high=None),
        resume="any",
        common=True,
    )
    until: str | Mapping[str, float] | None = _option(
        None,
        "Early stopping: stop when every parameter reaches this ESS (bulk and tail) and R-hat, such as "
        "ess=400,rhat=1.01 or ess=400.",
        CHAINS,
        type_="str or mapping",
        metavar="PRECISION",
        means="none: the run ends after `iter_sampling`",
        resume="any",
        common=True,
    )
    test: StoppingRule | str | None = _option(
        None,
        "Accept/reject test: t-tests (pocock, austerity), concentration bounds (hoeffding, bernstein, "
        "bernstein-serfling), tests that include the noise (barker, penalty), all the data (exact), or exact "
        "decisions by bounds on single observations (factorised, poisson).",
        DECISIONS,
        Named(TEST_NAMES),
        type_="name or StoppingRule",
        metavar="NAME",
        means="exact decisions where bounds are proved, otherwise pocock",
        common=True,
    )
    bounds: Literal["proved", "learned"] | str | None = _option(
        None,
        "Bounds of the factorised and poisson tests: proved, for recognised likelihoods, or learned from draws around "
        "the mode, for any likelihood, which makes the test approximate.",
        DECISIONS,
        Named(BOUNDS),
        means="proved",
    )
    kappa: float | None = _option(
        None,
        "Factor on the bounds of the poisson test, at least 1/2: a larger one uses more observations and accepts more "
        "proposals.",
        DECISIONS,
    )
    epsilon: float | None = _option(
        None,
        "Error of the t-tests: per look (austerity) or of a whole decision (pocock; barker and penalty fall back on "
        "it).",
        DECISIONS,
    )
    final_epsilon: float | None = _option(
        None,
        "Error level at the end of the run: after warmup the level falls from `epsilon` (or `delta`) to this value in "
        "25 equal ratios.",
        DECISIONS,
        Interval("between 0 and 1"),
    )
    delta: float | None = _option(None, "Error of a whole decision under the concentration bounds.", DECISIONS)
    max_error: float | None = _option(
        None,
        "Accepted error of a whole decision for any test, instead of `epsilon` or `delta`. stansub audits enough "
        "decisions to verify it, if that is affordable.",
        DECISIONS,
        MAX_ERROR,
    )
    control_variates: Literal["auto", 0, 1, 2] | int | str = _option(
        "auto",
        "Order of the expansions at the mode that serve as control variates of the log likelihoods; auto weighs "
        "savings against cost.",
        DECISIONS,
        Named(("auto", "0", "1", "2")),
        type_='{"auto", 0, 1, 2}',
    )
    range_source: str = _option(
        "auto",
        "Source of the range for concentration bounds: functions of the program (derivative with control variates; "
        "lipschitz, function without), a proof for linear predictors (predictors), or scan or estimate, which cost "
        "passes over the data.",
        DECISIONS,
        Named(RANGES.names),
        flag="range",
    )
    looks: Literal["geometric", "fixed"] | str | None = _option(
        None,
        "Whether the subset grows by a factor or by a fixed number of blocks.",
        DECISIONS,
        Named(("geometric", "fixed")),
    )
    first_look: int | None = _option(
        None, "Blocks at the first look, and of each step of the fixed schedule.", DECISIONS, FIRST_LOOK
    )
    audit: float | None = _option(
        None,
        "Share of decisions that are repeated on all the data, to measure how many are wrong.",
        DECISIONS,
        Interval("a share between 0 and 1", closed=True),
        means="0.01, or a few hundred decisions if they are cheap; as many as `max_error` needs",
        resume="any",
    )
    block_size: int | None = _option(
        None, "Observations per block, the unit of subsampling.", DATA, Count(1), means="chosen for the test"
    )
    observations: str | None = _option(
        None,
        "Integer data variable that counts the observations.",
        DATA,
        metavar="NAME",
        means="derived from the program",
    )
    evaluator: Literal["auto", "instances", "rewritten"] | str = _option(
        "auto", "How block log likelihoods are evaluated.", DATA, OneOf(("auto", "instances", "rewritten"))
    )
    save_warmup: bool = _option(False, "Keep the warmup draws too, in separate groups.", OUTPUT)
    generated_quantities: bool = _option(
        True, "Compute transformed parameters and generated quantities of the draws.", OUTPUT, resume="any"
    )
    observation_level: bool = _option(
        False,
        "Keep variables with a value per observation too; log_lik goes to the group log_likelihood.",
        OUTPUT,
        resume="any",
    )
    save: str | Sequence[str] | None = _option(
        None,
        "Variables to keep, separated by commas.",
        OUTPUT,
        type_="str or sequence of str",
        metavar="NAMES",
        means="all except those with a value per observation",
        resume="any",
        common=True,
    )
    drop: str | Sequence[str] | None = _option(
        None,
        "Variables to leave out, separated by commas.",
        OUTPUT,
        type_="str or sequence of str",
        metavar="NAMES",
        means="none",
        resume="any",
        common=True,
    )
    checkpoint: Path | str | None = _option(
        None,
        "File that stores the run while it samples, so that you can resume it.",
        OUTPUT,
        type_="path",
        metavar="FILE",
        means="none; on the command line, the output's name with .checkpoint",
        resume="any",
        recorded=False,
    )
    checkpoint_every: float = _option(
        60.0,
        "Seconds between two checkpoints; inf writes none before the end, or before draws fill 64 MB.",
        OUTPUT,
        Interval("a number of seconds above 0", high=None),
        metavar="SECONDS",
        resume="any",
        recorded=False,
    )
    resume: Path | str | None = _option(
        None,
        "Checkpoint to resume; the draws are those of an uninterrupted run. Extend a finished run with more "
        "`iter_sampling`. If the file does not exist, a new run starts and is stored there.",
        OUTPUT,
        type_="path",
        metavar="FILE",
        resume="any",
        recorded=False,
        common=True,
    )
    show_progress: bool | None = _option(
        None,
        "Whether to show progress.",
        means="bars on a terminal or in a notebook, otherwise one line per stage",
        resume="any",
        recorded=False,
    )
    console: Console | None = _option(
        None,
        "Console for progress.",
        means="standard error",
        resume="any",
        recorded=False,
        type_="rich.console.Console",
    )

    def __post_init__(self) -> None:
        from stansub.kernels import recipes
        from stansub.run import decisions, executors
        from stansub.tuning.mode_setup import check_order
        from stansub.tuning.proposal_names import check_proposal

        self._settle()
        check(**{one.name: getattr(self, one.name) for one in fields(self)})
        self._check_precision()
        if self.iter_sampling is not None and self.thin > self.iter_sampling:
            raise InputError(
                f"`thin={self.thin}` is larger than `iter_sampling={self.iter_sampling}`, so no draw would be kept"
            )
        check_order(self.control_variates)
        check_proposal(self.proposal)
        executors.check(self.executor)
        if self.kernel is not None:
            recipes.check_recipe(self.kernel, "kernel")
            if self.proposal != "auto":
                raise InputError("a kernel brings its own proposals: give either `kernel` or `proposal`")
        if not self.smooth and str(self.control_variates) in ("1", "2"):
            raise InputError(f"control variates are not available: {self.not_smooth}; leave out `control_variates`")
        if self.surrogate and not self.make_test().exact:
            raise InputError(
                "surrogate transitions choose their own test: leave out `test`, or use `test='exact'` for decisions "
                "on all observations"
            )
        decisions.check_range(self.make_test(), self.range_source)

    def _settle(self) -> None:
        """Put what follows from other options in its place, and what can be written in several ways in one."""
        settled: dict[str, Any] = {}
        if self.until is not None:
            settled["until"] = str(Precision.of(self.until))
            if self.iter_sampling is None:
                settled["iter_sampling"] = MOST_ITER_SAMPLING
        for name in ("save", "drop"):
            given = getattr(self, name)
            if given is not None:
                listed = given.split(",") if isinstance(given, str) else given
                settled[name] = ",".join(one.strip() for one in listed)
        for name, value in settled.items():
            object.__setattr__(self, name, value)

    def _check_precision(self) -> None:
        precision = self.precision
        if precision is None:
            return
        if precision.rhat is not None and self.chains == 1:
            raise InputError(f"until {precision}: R-hat needs at least two chains: raise `chains`, or give only ess")
        if self.final_epsilon is not None:
            raise InputError(
                "the level reaches `final_epsilon` at the end of `iter_sampling`, but `until` may end the run "
                "earlier: leave out one of them"
            )

    @property
    def precision(self) -> Precision | None:
        """At which the run ends; None where it ends after `iter_sampling`."""
        return None if self.until is None else Precision.of(self.until)

    def of_length(self, *, transitions: bool) -> SampleConfig:
        """The options with numbers of steps in the place of those that were not given.

        Parameters
        ----------
        transitions : bool
            Whether the steps are surrogate transitions.
        """
        warmup, sampling = TRANSITIONS if transitions else (ITER_WARMUP, ITER_SAMPLING)
        return self._filled({"iter_warmup": warmup, "iter_sampling": sampling})

    def continuing(self, earlier: Mapping[str, Any]) -> SampleConfig:
        """The options with the numbers of steps of an earlier run, by its `record`, where none were given."""
        return self._filled({name: earlier[name] for name in _LENGTHS if name in earlier})

    def _filled(self, lengths: Mapping[str, int]) -> SampleConfig:
        missing: dict[str, Any] = {name: n for name, n in lengths.items() if getattr(self, name) is None}
        return replace(self, **missing)

    @property
    def iter_foreseen(self) -> int:
        """Steps of a chain after warmup by which costs are weighed and audits are planned."""
        return self.iter_sampling if self.until is None else min(self.iter_sampling, ITER_SAMPLING)

    def make_test(self) -> StoppingRule:
        """The test asked for, or the default.

        Raises
        ------
        InputError
            When there is no such test, or it does not take what was given.
        """
        from stansub.run import decisions

        return decisions.choose_test(
            "exact" if self.test is None and self.surrogate else self.test,
            epsilon=self.epsilon,
            delta=self.delta,
            looks=self.looks,
            first_look=self.first_look,
            max_error=self.max_error,
            bounds=self.bounds,
            kappa=self.kappa,
        )

    @property
    def order(self) -> str:
        """Of the control variates: "auto", "0", "1" or "2"."""
        return str(self.control_variates) if self.smooth else "0"

    @property
    def smooth(self) -> bool:
        """Whether chains move on one smooth density, about whose modes something is to be found."""
        from stansub.kernels import recipes

        return not self.surrogate and recipes.is_smooth(self.kernel or self.proposal)

    @property
    def surrogate(self) -> bool:
        """Whether chains sample a surrogate posterior."""
        from stansub.tuning.proposal_names import named

        return named(self.proposal).surrogate

    @property
    def not_smooth(self) -> str:
        """Why nothing is looked for about a mode; to be asked where `smooth` is False."""
        if self.surrogate:
            return ON_SURROGATE
        what, moves = ("kernel", self.kernel) if self.kernel is not None else ("proposal", self.proposal)
        return f"the {what} {type(moves).__name__} does not move on one smooth density of all parameters"

    @property
    def moves_free(self) -> bool:
        """Whether surrogate transitions, which choose their own test, may be taken where they are not asked for."""
        others = (self.bounds, self.kappa, self.delta)
        return self.proposal == "auto" and self.exact_free and all(one is None for one in others)

    @property
    def looks_given(self) -> bool:
        """Whether the schedule of looks is the user's."""
        named = self.test is None or isinstance(self.test, str)
        return not named or self.looks is not None or self.first_look is not None

    @property
    def test_free(self) -> bool:
        """Whether another test may take the default's place."""
        return self.test is None and self.epsilon is None and self.max_error is None

    @property
    def exact_free(self) -> bool:
        """Whether exact decisions by proved bounds may take the default's place."""
        levels = (self.epsilon, self.max_error, self.final_epsilon)
        others = (self.test, self.audit, self.looks, self.first_look, self.kernel)
        return all(one is None for one in (*levels, *others)) and self.order == "auto"

    def record(self) -> dict[str, Any]:
        """The options by name in values that JSON has; what has no name of its own by type and digest."""
        options = {one.name: declared(one.name) for one in fields(self)}
        return {
            name: _plain(getattr(self, name), exact=option.resume != "any")
            for name, option in options.items()
            if option.recorded
        }

    def differences(self, earlier: SampleConfig | Mapping[str, Any]) -> tuple[str, ...]:
        """Names of the options with which a run cannot go on where another has ended.

        Those that decide the draws must be the same, save that the seed and numbers of steps need not be given again
        and ``iter_sampling`` may be more than before.

        Parameters
        ----------
        earlier : SampleConfig or mapping
            Options of the other run, or what `record` made of them.
        """
        now, before = self.record(), earlier.record() if isinstance(earlier, SampleConfig) else dict(earlier)
        differing: dict[str, Callable[[str], bool]] = {
            "same": lambda name: now[name] != before.get(name),
            "longer": lambda name: now[name] < before.get(name, 0),
            "any": lambda name: False,
        }
        free = {name for name in ("seed", *_LENGTHS) if getattr(self, name) is None}
        return tuple(name for name in now if name not in free and differing[declared(name).resume](name))


_DECLARED: dict[str, Option] = {one.name: one.metadata["option"] for one in fields(SampleConfig)}
DEFAULTS: dict[str, Any] = {one.name: one.default for one in fields(SampleConfig)}
# As they are written, such as "int | None".
_ANNOTATIONS: dict[str, str] = {one.name: str(one.type) for one in fields(SampleConfig)}


def declared(name: str) -> Option:
    """What is declared of the option ``name``."""
    return _DECLARED[name]


def names(*groups: str) -> tuple[str, ...]:
    """Names of the options in groups, all of them where none is given."""
    return tuple(name for name, option in _DECLARED.items() if not groups or option.group in groups)


def check(**values: Any) -> None:
    """Raise InputError for a value out of its option's bounds; None is within them."""
    for name, value in values.items():
        bounds = _DECLARED[name].bounds
        if bounds is not None and value is not None:
            bounds.check(name, value)


def plain_type(name: str) -> type:
    """Type of the option's values as they are written on the command line."""
    return {"int": int, "float": float, "bool": bool}.get(_ANNOTATIONS[name].removesuffix(" | None"), str)


def parameters(wanted: Iterable[str] = ()) -> str:
    """The options as entries of a numpydoc section: all of them, or those of certain names."""
    entries = []
    for name in tuple(wanted) or names():
        option, optional = _DECLARED[name], ", optional" if DEFAULTS[name] is None else ""
        text = option.text + (f" By default {option.default}." if option.default else "")
        lines = textwrap.wrap(text, 112, initial_indent="    ", subsequent_indent="    ")
        entries.append("\n".join([f"{name} : {_type_text(name, option)}{optional}", *lines]))
    return "\n".join(entries)


def documented(what: _Documented) -> _Documented:
    """Put the options where the docstring has a line ``{options}``."""
    text = what.__doc__ or ""
    line = next(line for line in text.splitlines() if line.strip() == "{options}")
    what.__doc__ = text.replace(line, textwrap.indent(parameters(), line.removesuffix("{options}")))
    return what


def _type_text(name: str, option: Option) -> str:
    chosen = ", ".join(f'"{one}"' for one in option.bounds.names) if isinstance(option.bounds, Named) else ""
    if option.type_ and not option.type_.startswith("or "):
        return option.type_
    if chosen:
        return f"{{{chosen}}} {option.type_}".rstrip()
    return plain_type(name).__name__


def _plain(value: Any, *, exact: bool) -> Any:
    """A value as JSON has it; what JSON does not have by name and, if it must be exact, a digest of what it holds."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if hasattr(value, "__fspath__"):
        return str(value)
    if isinstance(value, Sequence):
        return [_plain(one, exact=exact) for one in value]
    name = str(getattr(value, "__qualname__", type(value).__name__))
    if not exact:
        return name
    from stansub.run.identity import digest_of

    try:
        return f"{name} {digest_of(value)}"
    except Exception:  # values of any class fail in any way
        return name


documented(SampleConfig)
