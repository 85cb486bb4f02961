"""The checked options of `sample` and values derived from them.

`SampleConfig` defines the command line's options, the parameters in docstrings, the settings written to the output, and
the settings that must match when a run resumes. Imports are light so that the command line starts fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from stansub.errors import InputError
from stansub.output.words import WITHOUT_MODE
from stansub.run import option
from stansub.run.option import Option, documented
from stansub.run.options import ChainOptions, DataOptions, DecisionOptions, OutputOptions
from stansub.run.precision import Precision

if TYPE_CHECKING:
    from stansub.acceptance.rules import StoppingRule

# Default steps of warmup and sampling.
ITER_WARMUP, ITER_SAMPLING = STEPS = 2_000, 10_000
# The same of surrogate transitions, each of which moves as far as a transition of NUTS.
TRANSITIONS = 200, 1_000
# Default limit of a run that may stop early, in multiples of these.
_LIMIT = 10
_LENGTHS = "iter_warmup", "iter_sampling"


@dataclass(frozen=True, kw_only=True)
class SampleConfig(OutputOptions, DataOptions, DecisionOptions, ChainOptions):
    """Checked options of a run.

    Parameters
    ----------
    {options}

    Raises
    ------
    InputError
        If an option is out of range or conflicts with another.
    """

    def __post_init__(self) -> None:
        from stansub.kernels import recipes
        from stansub.run import decisions, executors
        from stansub.tuning.mode_setup import check_order
        from stansub.tuning.proposal_names import check_proposal

        self._set_derived()
        option.check(_DECLARED, {name: getattr(self, name) for name in _DECLARED})
        self._check_precision()
        if self.iter_sampling is not None and self.stored_every > self.iter_sampling:
            raise InputError(
                f"`thin={self.thin}` is larger than `iter_sampling={self.iter_sampling}`, so no draw would be kept"
            )
        check_order(self.control_variates)
        check_proposal(self.proposal)
        executors.check(self.executor)
        if self.kernel is not None:
            recipes.check_recipe(self.kernel, "kernel")
            if self.proposal != "auto":
                raise InputError("a kernel has its own proposals: give either `kernel` or `proposal`")
        if not self.smooth and str(self.control_variates) in ("1", "2"):
            raise InputError(f"control variates are not available: {self.not_smooth}; leave out `control_variates`")
        if self.splits and not self.make_test().exact:
            raise InputError(
                f"`proposal={self.proposal!r}` chooses its own test: leave out `test`, or use `test='exact'` for "
                "decisions on all observations"
            )
        decisions.check_range(self.make_test(), self.range_source)

    def _set_derived(self) -> None:
        """Set derived options and bring options with several spellings to one form."""
        derived: dict[str, Any] = {}
        if self.until is not None:
            derived["until"] = str(Precision.of(self.until))
        for name in ("save", "drop"):
            given = getattr(self, name)
            if given is not None:
                listed = given.split(",") if isinstance(given, str) else given
                derived[name] = ",".join(one.strip() for one in listed)
        if isinstance(self.thin, str) and self.thin.isdecimal():  # as the command line gives it
            derived["thin"] = int(self.thin)
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def _check_precision(self) -> None:
        precision = self.precision
        if precision is None:
            return
        if precision.rhat is not None and self.chains == 1:
            raise InputError(f"`until={precision}`: R-hat needs at least two chains; raise `chains`, or give only ess")
        if self.final_epsilon is not None:
            raise InputError(
                "the level reaches `final_epsilon` at the end of `iter_sampling`, but `until` may end the run "
                "earlier: leave out one of them"
            )

    @property
    def precision(self) -> Precision | None:
        """Return the precision at which the run stops early; None if it ends after `iter_sampling`."""
        return None if self.until is None else Precision.of(self.until)

    @property
    def stored_every(self) -> int:
        """Return the steps between two draws that the chains store; thinning by ESS happens at the end of the run."""
        return 1 if self.thin == "auto" else self.thin

    def of_length(self, *, transitions: bool) -> SampleConfig:
        """Return the options with default numbers of steps, or of surrogate transitions, filled in."""
        return self._filled(*(TRANSITIONS if transitions else STEPS), may_extend=True)

    def continuing(self, earlier: Mapping[str, Any]) -> SampleConfig:
        """Return the options with unset numbers of steps taken from an earlier run, given its `record`."""
        return self._filled(*(earlier[name] for name in _LENGTHS), may_extend=earlier.get("until") is None)

    def _filled(self, warmup: int, sampling: int, *, may_extend: bool) -> SampleConfig:
        if self.until is not None and may_extend:
            sampling *= _LIMIT
        lengths = dict(zip(_LENGTHS, (warmup, sampling), strict=True))
        missing: dict[str, Any] = {name: n for name, n in lengths.items() if getattr(self, name) is None}
        return replace(self, **missing)

    @property
    def iter_foreseen(self) -> int:
        """Return the steps per chain after warmup that cost estimates and audits assume."""
        return self.iter_sampling if self.until is None else min(self.iter_sampling, ITER_SAMPLING)

    def make_test(self) -> StoppingRule:
        """Return the requested stopping rule, or the default.

        Raises
        ------
        InputError
            If no test has this name, or the test does not accept a given setting.
        """
        from stansub.run import decisions

        return decisions.choose_test(
            "exact" if self.test is None and self.splits else self.test,
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
        """Return the order of the control variates: "auto", "0", "1" or "2"."""
        return str(self.control_variates) if self.smooth else "0"

    @property
    def smooth(self) -> bool:
        """Return whether chains move on one smooth density, so that a search for modes makes sense."""
        from stansub.kernels import recipes

        return not self.splits and recipes.is_smooth(self.kernel or self.proposal)

    @property
    def splits(self) -> bool:
        """Return whether the requested moves need the posterior split into prior and likelihood."""
        from stansub.tuning.proposal_names import named

        return named(self.proposal).splits

    @property
    def not_smooth(self) -> str:
        """Return why no mode is searched for; call only if `smooth` is False."""
        if self.splits:
            return WITHOUT_MODE[str(self.proposal)]
        what, moves = ("kernel", self.kernel) if self.kernel is not None else ("proposal", self.proposal)
        return f"the {what} {type(moves).__name__} does not move on one smooth density of all parameters"

    @property
    def moves_free(self) -> bool:
        """Return whether surrogate transitions, whose decisions are exact, may be chosen by default."""
        others = (self.bounds, self.kappa, self.delta)
        exact = self.test is None or self.all_data
        return self.proposal == "auto" and exact and self._decisions_free and all(one is None for one in others)

    @property
    def all_data(self) -> bool:
        """Return whether every decision has to use all the data."""
        return self.test is not None and self.make_test().exact

    @property
    def looks_given(self) -> bool:
        """Return whether the user set the schedule of looks."""
        named = self.test is None or isinstance(self.test, str)
        return not named or self.looks is not None or self.first_look is not None

    @property
    def test_free(self) -> bool:
        """Return whether another test may replace the default."""
        return self.test is None and self.epsilon is None and self.max_error is None

    @property
    def exact_free(self) -> bool:
        """Return whether exact decisions by proved bounds may replace the default."""
        return self.test is None and self._decisions_free

    @property
    def _decisions_free(self) -> bool:
        """Return whether the user set nothing about decisions, except perhaps the test."""
        levels = (self.epsilon, self.max_error, self.final_epsilon)
        others = (self.audit, self.looks, self.first_look, self.kernel)
        return all(one is None for one in (*levels, *others)) and self.order == "auto"

    def record(self) -> dict[str, Any]:
        """Return the options by name as JSON values; a value without a JSON form is given by type and digest."""
        return option.record(self)

    def differences(self, earlier: SampleConfig | Mapping[str, Any]) -> tuple[str, ...]:
        """Return names of the options that prevent resuming another run.

        Options that affect the draws must be the same. The seed and numbers of steps may be omitted, and
        ``iter_sampling`` may be larger than before. ``earlier`` are the options of the other run, or their `record`.
        """
        now, before = self.record(), earlier.record() if isinstance(earlier, SampleConfig) else dict(earlier)
        free = {name for name in ("seed", *_LENGTHS) if getattr(self, name) is None}
        return tuple(
            name for name in now if name not in free and option.differs(declared(name), now[name], before.get(name))
        )


_DECLARED = option.declared(SampleConfig)
DEFAULTS: dict[str, Any] = {one.name: one.default for one in fields(SampleConfig)}
# Types of values as written on the command line.
TYPES = {one.name: option.plain_type(str(one.type)) for one in fields(SampleConfig)}


def declared(name: str) -> Option:
    """Return the declaration of the option ``name``."""
    return _DECLARED[name]


def names(*groups: str) -> tuple[str, ...]:
    """Return names of the options in some groups; of all options without groups."""
    return tuple(name for name, option in _DECLARED.items() if not groups or option.group in groups)


documented(SampleConfig)
