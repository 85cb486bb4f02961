"""Properties that the text of a program shows, computed once for each program.

Nothing here is proved. With data, a numerical proof decides whether a likelihood is a sum over observations
(`stansub.stan.proof`), and whether its predictors are linear (`stansub.stan.observations.predictors`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from stansub.errors import InputError
from stansub.stan.effects import effects, multiplies, selected
from stansub.stan.family import recognised
from stansub.stan.likelihood import LikelihoodSplit, split_likelihood
from stansub.stan.parts import Parts, divide
from stansub.stan.passes.block_variables import with_block_variables
from stansub.stan.passes.category_tables import with_category_tables
from stansub.stan.passes.fixpoint import Rewriting, rewriting
from stansub.stan.passes.inlining import inlined
from stansub.stan.passes.log_probabilities import added_up, with_log_probabilities
from stansub.stan.passes.ragged import by_rows
from stansub.stan.passes.rewrite import reserve_names, takes_metric
from stansub.stan.passes.scaled_effects import undeclared, with_scaled_effects
from stansub.stan.passes.series.residuals import with_residuals
from stansub.stan.passes.series.rows import N_ROWS, counts_rows
from stansub.stan.passes.series.units import by_units, unit_size
from stansub.stan.passes.tuple_elements import with_tuple_elements
from stansub.stan.reading.reach import Reach, Term, entries, terms
from stansub.stan.reading.remarks import Remark
from stansub.stan.reading.sizes import (
    data_along,
    main_size,
    observations_in,
    outcome_sizes,
    read_with,
    reads_observations,
)
from stansub.stan.structures import NamedStructure, named
from stansub.stan.syntax import Declaration, Program, names
from stansub.target.remainders import NoPredictorsError
from stansub.wording import listed

# Passes that write likelihoods over rows of data, or of groups of rows, without a new number of these.
_BY_ROWS = frozenset((by_rows.name, with_residuals.name, with_tuple_elements.name))


class Hints(NamedTuple):
    """What the text of a likelihood suggests about moves of the chains."""

    effects: tuple[str, ...] = ()
    """Parameters that are effects with an unknown scale."""
    selected: tuple[str, ...] = ()
    """Parameters of which data of an observation select elements."""
    multiplies: bool = False
    """Whether observations multiply parameters with several elements each, such as coefficients of two groupings."""
    adds_logarithms: bool = False
    """Whether observations add up logarithms of probabilities of several outcomes, as with latent classes."""

    def suits_surrogate(self, *, many: bool) -> bool:
        """Return whether surrogate transitions suit the model, with or without many parameters."""
        return bool(self.effects or self.adds_logarithms or (many and self.selected))

    def suits_any(self, *, many: bool) -> bool:
        """Return whether surrogate transitions or Metropolis within Gibbs suit the model."""
        return self.suits_surrogate(many=many) or (many and self.multiplies)


@dataclass(frozen=True)
class Analysis:
    """A program and the properties that its text shows. It can be pickled."""

    program: Program

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, program: Program) -> Analysis:
        """Return the analysis of a program; cached, so equal programs share it."""
        return cls(program)

    @cached_property
    def size(self) -> str:
        """Return the integer that counts the observations, as far as the text shows; empty if there is none."""
        units = unit_size(inlined(self.program)) if self.of_units else ""
        return units or main_size(self.program)

    @cached_property
    def rewriting(self) -> Rewriting:
        """Return the program that passes write, and which passes applied."""
        return rewriting(self.program)

    @property
    def of_units(self) -> bool:
        """Return whether the observations are units with their own parameters, each with several outcomes."""
        return by_units.name in self.rewriting.passes

    @cached_property
    def counted(self) -> str:
        """Return what counts the observations of the program that passes write: rows of data, or ``size``."""
        return N_ROWS if N_ROWS in names(self.rewriting.program) else self.size

    @cached_property
    def has_likelihood(self) -> bool:
        """Return whether a statement may add terms of observations; not of a program with priors alone."""
        return reads_observations(self.program)

    @cached_property
    def functions(self) -> frozenset[str]:
        """Return names of the user's functions."""
        return frozenset(one.name for one in self.program.functions)

    @cached_property
    def has_family(self) -> bool:
        """Return whether the text shows a likelihood of a known family."""
        return recognised(self.program)

    @cached_property
    def over_rows(self) -> Parts | None:
        """Return the program in parts if passes write all of its likelihood over rows of data, or of groups of rows."""
        if self.counted != N_ROWS and _BY_ROWS.isdisjoint(self.rewriting.passes):
            return None
        parts = divide(self.rewriting.program)
        return parts if parts is not None and self._is_over_rows([over for over in parts.groups if over]) else None

    def _is_over_rows(self, groups: Sequence[frozenset[str]]) -> bool:
        """Return whether all statements of the likelihood are over rows, possibly of several sums with their own."""
        if all(self.counted in over for over in groups):
            return True
        rows = {frozenset(filter(counts_rows, over)) for over in groups}
        several = frozenset() not in rows and len(frozenset().union(*rows)) == sum(map(len, rows))
        return self.counted == N_ROWS and several

    @cached_property
    def table(self) -> frozenset[str]:
        """Return the sizes of tables of outcomes whose cells are the observations; empty if their rows are."""
        is_over_rows = self.counted == N_ROWS and self.over_rows is not None
        of_cells = is_over_rows and not self.of_units and self.size in self.program.sizes_of_parameters
        return frozenset(outcome_sizes(self.program)) if of_cells else frozenset()

    def is_per_observation(self, declaration: Declaration, sizes: Collection[str]) -> bool:
        """Return whether a variable has a value for each observation, of which one of ``sizes`` is the number."""
        if self.table and len(declaration.sizes) > 1 and self.table.issuperset(declaration.sizes):
            return True
        return any(one in sizes for one in declaration.sizes)

    def over_data(self, *sizes: str) -> tuple[Program, tuple[str, ...]]:
        """Return the program that is split in two, and what counts its observations: rows of data, or ``sizes``.

        Its blocks declare variables that depend on no observation, also products of effects and scales in its
        likelihood; functions of an integer of its data are tables.
        """
        return _over_data(self, tuple(filter(None, sizes)) or (self.size,))

    def other_sums(self, *sizes: str) -> tuple[str, ...]:
        """Return integers that count the terms of other sums over observations, which read no data of these ``sizes``.

        For a program that passes write over rows of data, they count the rows of the other sums.
        """
        if self.over_rows is not None:
            program, sizes, of_text = self.over_rows.with_all_data, (self.counted,), self._other_rows(self.over_rows)
        else:
            program = inlined(self.program)
            of_text = tuple(one for one in outcome_sizes(program) if one not in program.sizes_of_parameters)
        found = list[str]()
        taken = {name for size in sizes for name in data_along(program, size)}
        for size in of_text:
            own = set(data_along(program, size))
            if not own & taken and observations_in(program, size):
                taken |= own
                found.append(size)
        return tuple(found)

    def _other_rows(self, parts: Parts) -> tuple[str, ...]:
        """Return what counts the rows of sums that do not have those of the main one."""
        if all(self.counted in over for over in parts.groups if over):
            return ()
        return tuple(one for one in parts.sizes if counts_rows(one) and one != self.counted)

    def hints(self, size: str = "") -> Hints:
        """Return what the text suggests about moves of the chains."""
        return _hints(self, size or self.size)

    def undeclared(self, size: str = "", values: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """Return the effects whose products with other parameters in the likelihood are not declared as variables.

        ``values`` of data, as far as known, show for which a declaration would be of use.
        """
        program, sizes = self.over_data(size)
        return undeclared(program, *sizes, values=values)

    def likelihood_split(self, *sizes: str) -> LikelihoodSplit:
        """Return the program in two parts, for a surrogate posterior, given integers that count the observations.

        A program that passes write over rows of data has them as data (`over_rows`).

        Raises `NoPredictorsError` if the text shows no likelihood in arguments of its own.
        """
        found = _likelihood_split(self, tuple(filter(None, sizes)) or (self.size,))
        if isinstance(found, NoPredictorsError):
            raise found
        return found

    def terms(self, size: str = "") -> tuple[Term, ...]:
        """Return the statements that add to the log density, and which rows each depends on for an observation."""
        return terms(self.program, size or self.size)

    def takes_metric(self, function: str) -> bool:
        """Return whether a function of the program has an argument ``metric`` that is not a data variable."""
        return takes_metric(self.program, function)

    def structure(self, size: str = "") -> NamedStructure | None:
        """Return the likelihood's name if it is known not to be a sum over observations."""
        return named(*self._cut(size))

    def _cut(self, size: str) -> tuple[Program, str]:
        """Return the program that passes write, and what counts its observations: rows of data, or ``size``."""
        return self.rewriting.program, self.counted if self.counted == N_ROWS else size

    def doubts(self, size: str = "") -> Iterator[Remark]:
        """Yield statements that may tie observations to each other, in the program that passes write."""
        if self.structure(size) is None:
            program, size = self._cut(size or self.size)
            if not size:
                yield Remark("", NO_SIZE)
            observed = set(data_along(program, size))
            for declared in program.parameters.declarations:
                if names(*declared.type.bounds) & observed:
                    yield Remark(program.text(declared.span), "has a bound that depends on all observations")
            for one in entries(program, size):
                others = one.reach & ~(Reach.OWN | Reach.GATHERED)
                yield Remark(program.text(one.statement.span), f"depends on {others.words}")

    def left_out(self, counts: Collection[str]) -> Iterator[Remark]:
        """Yield sums over other rows that are in the global part, because terms of the observations read these rows.

        Parameters
        ----------
        counts : collection of str
            The integers that count the observations.
        """
        program, own = self.program, {name for size in counts for name in data_along(self.program, size)}
        for size in (one for one in outcome_sizes(program) if one not in {*counts, *program.sizes_of_parameters}):
            read = sorted(read_with(program, own, data_along(program, size)))
            if read and (left_out := observations_in(program, size)):
                own_rows = f"terms of {listed(sorted(counts))} read rows of {listed(read)}, which {size} counts"
                advice = f"add the values that they read to the data, as columns of {listed(sorted(counts))} rows"
                yield Remark(program.text(left_out[0].span), f"is in it, because {own_rows}; {advice}")


@lru_cache(maxsize=64)
def _over_data(analysis: Analysis, sizes: tuple[str, ...]) -> tuple[Program, tuple[str, ...]]:
    program, rows = analysis.program, analysis.over_rows
    if rows is not None and analysis.counted in (N_ROWS, *sizes):
        others = (one for one in sizes if counts_rows(one) and one != analysis.counted)
        program, sizes = rows.with_all_data, (analysis.counted, *others)
    for declare in (with_block_variables, with_category_tables, with_scaled_effects, with_log_probabilities):
        program = declare(program, *sizes)
    return program, sizes


@lru_cache(maxsize=64)
def _hints(analysis: Analysis, size: str) -> Hints:
    program, counted = _over_data(analysis, (size,))
    of_rows = N_ROWS in counted
    outcomes = () if of_rows else set(outcome_sizes(analysis.program)) - analysis.program.sizes_of_parameters
    sizes = tuple(dict.fromkeys((*counted, *sorted(outcomes))))
    of_text = effects(program, *sizes), selected(program, *sizes), multiplies(program, *sizes)
    return Hints(*of_text, bool(added_up(program, *counted)))


@lru_cache(maxsize=64)
def _likelihood_split(analysis: Analysis, sizes: tuple[str, ...]) -> LikelihoodSplit | NoPredictorsError:
    try:
        if analysis.over_rows is None:
            reserve_names(analysis.program)
        program, counted = analysis.over_data(*sizes)
        return split_likelihood(program, *counted)
    except NoPredictorsError as error:
        return error


NO_SIZE = "no integer of the data block is the size of other data, so nothing counts observations"


class NotASumError(InputError):
    """The likelihood of a program is not a sum over observations that can be evaluated in parts.

    Parameters
    ----------
    message : str
        Message for the user, from `explain`.
    reason : str
        How the numerical check failed.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


def explain(analysis: Analysis, reason: str, *, source: str = "") -> NotASumError:
    """Return the error for a user whose program's likelihood is not a sum over observations.

    It has the ``reason``, which is how the numerical check failed or why there was none, and the statements that stand
    in the way where the text shows them, with lines of ``source``, the user's file.
    """
    structure = named(analysis.program)
    refusals = analysis.rewriting.refusals
    remarks = [structure.remark, *refusals] if structure else [*refusals, *analysis.doubts()]
    first: dict[str, Remark] = {}  # of those about one statement the first says most
    for remark in remarks:
        first.setdefault(remark.statement or remark.message, remark)
    text = "the likelihood is not a sum over observations that can be evaluated in parts"
    places = "; ".join(remark.located(source) for remark in first.values())
    shown = f": {places}" if places else ""
    checked = "" if reason in places else f" (numerical check: {reason})"
    return NotASumError(f"{text}{shown}{checked}; `stansub reference` samples it by NUTS", reason)
