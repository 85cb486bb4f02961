"""The sums over observations of a likelihood in its own arguments, followed through its text with the data.

Terms over arrays of different lengths, such as event times and censored times, are sums of their own. The observations
of all of them have one program, one sum after the other. If that cannot be followed, the main sum is taken alone, and
the others are evaluated with the prior.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from stansub.errors import InputError
from stansub.progress import as_progress
from stansub.stan.analysis import Analysis
from stansub.stan.cutting import FEWEST, first_rows
from stansub.stan.data.data import Data
from stansub.stan.likelihood import LikelihoodSplit
from stansub.stan.sparse import cutting, is_cut, predictors_of_sums, sparse_predictors
from stansub.target.remainders import NoPredictorsError
from stansub.target.sparse import SparsePredictors


@dataclass(frozen=True)
class LikelihoodSums:
    """A likelihood in its own arguments, with the data of its sums."""

    own: LikelihoodSplit
    sizes: tuple[str, ...]
    """The integer that counts the terms of each sum."""
    values: Data
    """All data, with transformed data as far as known."""

    @property
    def is_cut(self) -> bool:
        """Return whether parts of the rows are followed one by one, unless all are followed ``as_whole``."""
        return len(self.sizes) == 1 and is_cut(self.own, self.values.integer(*self.sizes))

    def follow(self, *, as_whole: bool = False, progress: Callable[[str], None] | None = None) -> SparsePredictors:
        """Return the rows of all observations, not yet proved.

        Raises `NoPredictorsError` if the text cannot be followed.
        """
        if len(self.sizes) > 1:
            log = as_progress(progress)
            log("Following the likelihood of an observation")
            return predictors_of_sums(self.own, list(map(self._alone, self.sizes)), log.check)
        (size,) = self.sizes
        cut = None if as_whole else cutting(self.values, size)
        return sparse_predictors(self.own, self.values.values, self.values.integer(size), cut=cut, progress=progress)

    def _alone(self, size: str) -> tuple[Mapping[str, Any], int]:
        """Return the data of one sum, without rows of the others."""
        others = [(one,) for one in self.sizes if one != size]
        try:
            return first_rows(self.values, others, 0).values, self.values.integer(size)
        except InputError as error:
            raise NoPredictorsError(str(error)) from error


class Followed(NamedTuple):
    """A likelihood in its own arguments, with the rows of its observations."""

    sums: LikelihoodSums
    predictors: SparsePredictors


def follow_likelihood(
    analysis: Analysis,
    values: Data,
    size: str,
    *,
    alone: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Followed:
    """Return the likelihood with all of its sums or, if these cannot be followed, with the main one.

    Raises `NoPredictorsError` if that cannot be followed either; the message says where.

    Parameters
    ----------
    values : Data
        All data, with transformed data as far as known.
    size : str
        Counts the observations of the main sum.
    alone : bool
        Whether to take the main sum alone.
    """
    refusal = NoPredictorsError(f"{size} does not count the observations of the likelihood")
    for sizes in _choices(analysis, values, size, alone):
        try:
            sums = LikelihoodSums(analysis.likelihood_split(*sizes), sizes, values)
            return Followed(sums, sums.follow(progress=progress))
        except NoPredictorsError as error:
            refusal = error
    raise refusal


def _choices(analysis: Analysis, values: Data, size: str, alone: bool) -> Iterator[tuple[str, ...]]:
    """Yield integers that count the terms of each sum."""
    _, main = analysis.over_data(size)
    if not values.values.keys() >= set(main):
        return
    others = () if alone else analysis.other_sums(*main)
    if more := [other for other in others if values.integer(other) >= FEWEST]:
        yield *main, *more
    yield main
