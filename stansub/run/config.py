"""The options of `sample`, checked, and what follows from them.

The command line's options, the parameters in docstrings, what is written to the output and what a run that goes on must
have in common with its beginning all follow from `SampleConfig`. Nothing heavy is imported here, so that the command
line answers at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from stansub.errors import InputError
from stansub.run import option
from stansub.run.option import Option, documented
from stansub.run.options import ChainOptions, DataOptions, DecisionOptions, OutputOptions
from stansub.run.precision import Precision

if TYPE_CHECKING:
    from stansub.acceptance.rules import StoppingRule

# Steps after warmup where none are asked for: of a run that ends there, and of one that may end before.
ITER_WARMUP, ITER_SAMPLING, MOST_ITER_SAMPLING = 2_000, 10_000, 100_000
# Warmup and sampling of surrogate transitions, which move as far as those of NUTS.
TRANSITIONS = 200, 1_000
ON_SURROGATE = "surrogate transitions expand the likelihood around the posterior, not at its mode"
_LENGTHS = "iter_warmup", "iter_sampling"


@dataclass(frozen=True, kw_only=True)
class SampleConfig(OutputOptions, DataOptions, DecisionOptions, ChainOptions):
    """Options of a run, checked.

    Parameters
    ----------
    {options}

    Raises
    ------
    InputError
        When an option is out of range, or options do not go together.
    """

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
        return option.record(self)

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
        free = {name for name in ("seed", *_LENGTHS) if getattr(self, name) is None}
        return tuple(
            name for name in now if name not in free and option.differs(declared(name), now[name], before.get(name))
        )


_DECLARED = option.declared(SampleConfig)
DEFAULTS: dict[str, Any] = {one.name: one.default for one in fields(SampleConfig)}
_TYPES = {one.name: option.plain_type(str(one.type)) for one in fields(SampleConfig)}


def declared(name: str) -> Option:
    """What is declared of the option ``name``."""
    return _DECLARED[name]


def names(*groups: str) -> tuple[str, ...]:
    """Names of the options in groups, all of them where none is given."""
    return tuple(name for name, option in _DECLARED.items() if not groups or option.group in groups)


def check(**values: Any) -> None:
    """Raise InputError for a value out of its option's bounds; None is within them."""
    option.check(_DECLARED, values)


def plain_type(name: str) -> type:
    """Type of the option's values as they are written on the command line."""
    return _TYPES[name]


documented(SampleConfig)
