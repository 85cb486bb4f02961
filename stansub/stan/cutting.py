"""Ways to cut a program's data into blocks of observations, and which integers count the observations.

A cut is tried on a few rows before all blocks are made. The trial runs in another process, because a program may crash
on data that its author did not foresee. The proof covers all rows (`stansub.stan.proof`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from typing import Any

import numpy as np

from stansub.errors import InputError
from stansub.stan import transformed_data, trials
from stansub.stan.data.data import Data
from stansub.stan.instances import Instances, Slicer, build, made
from stansub.stan.observations.predictors import Text
from stansub.stan.parts import SWITCHES, Parts
from stansub.stan.proof import explain_undefined, prove
from stansub.stan.syntax import parse
from stansub.stan.toolchain.library import Library, Model
from stansub.target.blocks import Blocks
from stansub.types import FloatArray, Places

# Rows on which a size variable is tried before all blocks are made.
_TRIAL_ROWS = 8

# Approximate number of blocks searched for an impossible observation.
_SEARCHED_BLOCKS = 1000

# Number of random orders tried for two observations that are possible.
_ORDERS = 4

# A sum with fewer terms than this beside another stays in the global part.
FEWEST = 100

# Why sizes of data that the likelihood does not read do not count the observations.
_UNREAD = "no term of the log density depends on it"

# Integers that count the terms of one sum.
Names = tuple[str, ...]


@dataclass(frozen=True)
class Whole:
    """Cut into instances of the user's program."""

    library: Library
    data: Data
    sizes: Collection[str]
    """Integers that may count observations."""
    seed: int

    def may_add(self, sums: Sequence[Names], size: str) -> bool:
        """Return whether there may be a sum over another size besides ``sums``; no, there is one."""
        return False

    def texts(self, sums: Sequence[Names]) -> tuple[Text, ...]:
        """Return the text of each sum if it is other than the user's program with the user's data."""
        return ()

    def model(self) -> Model:
        """Return the program with all of the data."""
        return self.data.model(self.library, seed=self.seed)

    def instances(
        self,
        sums: Sequence[Names],
        order: Places | None,
        size: int,
        points: Sequence[FloatArray],
    ) -> Instances:
        """Return blocks of ``size`` observations, in an order that numbers the sums consecutively.

        Raises `InputError` if the data cannot be cut this way.
        """
        (names,) = sums
        blocks = Blocks(self.data.integer(names[0]), size)
        return build(Slicer(self.library, self.data, names, order, self.seed), blocks, points)


@dataclass(frozen=True)
class InParts:
    """Cut into instances of the program that has the user's in parts."""

    parts: Parts
    library: Library
    data: Data

    @staticmethod
    def values(parts: Parts, exporting: Library | None, data: Data, *, seed: int) -> Data:
        """Return the data with the values of transformed data; InputError if these values are not available."""
        values: dict[str, Any] = dict(data.values)
        if exporting is not None:
            values |= transformed_data.values(exporting, parts.computed, data, seed=seed)
        own = {one.name: values[one.name] for one in parts.declarations}
        return Data(own, parts.declarations, data.source)

    @property
    def sizes(self) -> Collection[str]:
        """See `Whole`."""
        return self.parts.sizes

    def may_add(self, sums: Sequence[Names], size: str) -> bool:
        """See `Whole`."""
        present = set().union(*sums)
        groups = [group for group in self.parts.groups if size in group]
        return bool(groups) and not any(group & present for group in groups)

    def texts(self, sums: Sequence[Names]) -> tuple[Text, ...]:
        """See `Whole`; the text of a sum has neither terms nor rows of the others.

        Without other terms, priors of as many parameters as there are rows are not mistaken for terms of the rows.
        """
        if len(sums) == 1:
            return (Text(self.parts.program, self.data),)
        program = parse(self.parts.code)
        return tuple(Text(program, self._alone(names, sums)) for names in sums)

    def model(self) -> Model:
        """See `Whole`."""
        return self._with([True] * len(self.parts.groups), ()).model(self.library)

    def instances(
        self,
        sums: Sequence[Names],
        order: Places | None,
        size: int,
        points: Sequence[FloatArray],
    ) -> Instances:
        """See `Whole`."""
        counts, groups, slicers = [self.data.integer(names[0]) for names in sums], self.parts.groups, []
        for names, n, first in zip(sums, counts, accumulate(counts, initial=0), strict=False):
            data = self._alone(names, sums)
            own = None if order is None else order[first : first + n]
            places = own if own is None or not first else own - first
            slicers.append(Slicer(self.library, data, names, places))
        cut = set().union(*sums)
        shared = self._with([cut.isdisjoint(group) for group in groups], sums).model(self.library)
        return made(tuple(slicers), Blocks.over(counts, size), (shared,), alone=True)

    def _alone(self, names: Names, sums: Sequence[Names]) -> Data:
        """Return data with the groups of one sum switched on, without the rows of the others."""
        return self._with(
            [not group.isdisjoint(names) for group in self.parts.groups], [one for one in sums if one != names]
        )

    def _with(self, switches: Sequence[bool], left_out: Sequence[Names]) -> Data:
        """Return data with some groups switched on, without the rows of some sums."""
        data = first_rows(self.data, left_out, 0)
        return replace(data, values={**data.values, SWITCHES: np.array(switches, np.int64)})


# A way to cut the data.
Cut = Whole | InParts


def first_rows(data: Data, sums: Sequence[Names], n: int) -> Data:
    """Return data with the first n rows of each sum; InputError if they cannot be cut."""
    for names in sums:
        data = data.rows(data.axes(names), names, slice(0, min(n, data.integer(names[0]))))
    return data


def start_trials() -> None:
    """Start the process in which cuts are tried, in parallel with the work before the first trial."""
    trials.start(__name__)


def find_sums(
    cut: Cut, dim: int, points: Sequence[FloatArray], given: str | None, *, check: Callable[[], None]
) -> tuple[tuple[Names, ...], dict[str, str]]:
    """Return which integers count the observations, as a few rows show, and why others do not.

    For each sum, the largest comes first; there may be no sum. The log density is finite at the ``points``. If the user
    has ``given`` an integer, it is the only candidate. An exception of ``check``, which is called several times a
    second, ends the search.
    """
    reasons: dict[str, str] = {}

    def stands(sums: Sequence[Names]) -> bool:
        reason = _trial(cut, sums, dim, points, check)
        if reason is not None:
            reasons[" and ".join(sums[-1])] = reason
        return reason is None

    candidates = [(given,)] if given else choices(cut)
    first = next((names for names in candidates if stands([names])), None)
    if first is None:  # the likelihood may be switched off, or the first rows may have none
        first = next((names for names in candidates if reasons[" and ".join(names)] == _UNREAD), None)
    if first is None or given:
        return ((first,) if first else ()), reasons
    sums = [first]
    for size in sorted(cut.sizes, key=lambda name: -cut.data.integer(name)):
        more = [*sums, (size,)]
        if cut.data.integer(size) >= FEWEST and cut.may_add(sums, size) and stands(more):
            sums = more
    return tuple(sums), reasons


def choices(cut: Cut) -> list[Names]:
    """Return size variables by decreasing value: each alone, then all of one value together.

    Last are those of one value together with other integers of that value, which may bound loops over the same
    observations.
    """
    known = sorted(cut.sizes, key=lambda name: -cut.data.integer(name))
    integers = [one.name for one in cut.data.declarations if one.base == "int" and not one.all_dims]
    found: list[Names] = []
    with_others: list[Names] = []
    for value, alike in groupby(known, key=cut.data.integer):
        together = tuple(alike)
        found += [(name,) for name in together]
        found += [together] if len(together) > 1 else []
        others = [name for name in integers if name not in known and cut.data.integer(name) == value]
        with_others += [(*together, *others)] if others else []
    return found + with_others


def _trial(
    cut: Cut, sums: Sequence[Names], dim: int, points: Sequence[FloatArray], check: Callable[[], None]
) -> str | None:
    """Return why some sizes cannot count the observations, as far as a few rows show; None if they can."""
    n = min(cut.data.integer(names[0]) for names in sums)
    if n < 1 or (n == 1 and max(map(cut.data.integer, cut.sizes), default=1) > _TRIAL_ROWS):
        return f"it is {n}"  # one term proves nothing, and others may be the observations
    try:
        few = replace(cut, data=first_rows(cut.data, sums, _TRIAL_ROWS))
        return trials.attempt(_refusal, few, sums, dim, points, check=check)
    except (InputError, trials.CrashError) as error:
        return str(error)


def _refusal(few: Cut, sums: Sequence[Names], dim: int, points: Sequence[FloatArray]) -> str | None:
    """Return why a few rows are not a sum over single ones; None if they are."""
    together = few.model()
    population = few.instances(sums, None, 1, points)
    if together.dim != dim:
        return "the number of parameters depends on it"
    proof = prove(population, together, points)
    if not proof.holds:
        return "the log density of a few rows of data differs from the sum over single rows"
    return _UNREAD if proof.is_empty else None


def find_undefined(cut: Whole, dim: int, theta: FloatArray, *, check: Callable[[], None]) -> str:
    """Return where the log density of a program is not finite, in words; empty if it accepts no blocks of the data.

    The blocks are cut along the largest size variable for which the program takes them.
    """
    for sizes in choices(cut):
        with suppress(InputError, trials.CrashError):
            if found := trials.attempt(_undefined, cut, sizes, dim, theta, check=check):
                return found
    return ""


def _undefined(cut: Whole, sizes: Names, dim: int, theta: FloatArray) -> str:
    n = cut.data.integer(sizes[0])
    if n < 1:
        return ""
    # A program that needs observations has its global part from the first two, which may be the impossible ones.
    rng = np.random.default_rng(0)
    for order in (None, *(rng.permutation(n).astype(np.int32) for _ in range(_ORDERS))):
        population = cut.instances([sizes], order, max(1, n // _SEARCHED_BLOCKS), ())
        if population.dim != dim:
            return ""
        if population.needs_no_rows or np.isfinite(population.evaluator().global_log_density(theta)):
            return explain_undefined(population, order, theta)
    return "the priors, or most observations, are not finite"
