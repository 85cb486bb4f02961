"""What stays known of a posterior without its rows, so that the same rows need no second proof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from stansub.errors import InputError
from stansub.stan.data.data import Data
from stansub.stan.observations.design import Cut
from stansub.stan.posterior import Posterior
from stansub.stan.proof import Proof
from stansub.stan.shares import Shares
from stansub.target.remainders import LinearPredictors, NoPredictorsError
from stansub.target.rows import ColumnRows
from stansub.types import FloatArray


@dataclass(frozen=True)
class Proved:
    """A posterior that was cut and proved, without the rows."""

    digest: str
    sizes: tuple[str, ...]
    """Integers that count the observations."""
    block_size: int
    points: Sequence[FloatArray] = field(repr=False)
    proof: Proof
    seed: int
    observations: str | None
    """Of the posterior; the proof without the values of blocks."""
    in_shares: bool
    """Whether the program was evaluated in shares of the rows (`stansub.stan.shares.Shares`)."""
    predictors: LinearPredictors = field(repr=False)
    """The linear predictors, whose designs are columns of data that are not there."""

    @classmethod
    def of(cls, posterior: Posterior) -> Proved | None:
        """Return what is known of a posterior; None if other than columns of its data must stay."""
        try:
            predictors = posterior.predictors(computed=True)
        except NoPredictorsError:
            return None
        is_plain = posterior.population.kind == "instances" and not posterior.texts
        if not is_plain or not isinstance(predictors, LinearPredictors):
            return None
        if not all(len(z) == 1 or (isinstance(z, ColumnRows) and z.columns) for z in predictors.design):
            return None
        empty = tuple(replace(z, runs=()) if isinstance(z, ColumnRows) else z for z in predictors.design)
        return cls(
            posterior.digest_of_rows(),
            posterior.sizes,
            posterior.blocks.size,
            posterior.points,
            replace(posterior.proof, terms=()),
            posterior.seed,
            posterior.observations,
            isinstance(posterior.full, Shares),
            replace(predictors.over(empty), order=None),
        )

    def predictors_over(self, values: Data) -> LinearPredictors:
        """Return the predictors with columns of these data, which must have the same rows."""
        n, cut = self.predictors.n_observations, Cut.of(values, *self.sizes)
        design = (cut.design(z.columns, n) if isinstance(z, ColumnRows) else z for z in self.predictors.design)
        return self.predictors.over(tuple(design))

    def check(self, values: Data, name: str) -> None:
        """Raise InputError unless these data have the same rows."""
        if values.digest_along(self.sizes) != self.digest:
            raise InputError(f"{name}: its rows are not those that were read at first; restore them and run again")
