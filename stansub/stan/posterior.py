"""A posterior cut into a global part and blocks of observations, with properties computed on request."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from stansub.acceptance.ranges import DERIVATIVES
from stansub.errors import InputError, RunError
from stansub.progress import Progress, as_progress
from stansub.stan.analysis import Analysis, explain
from stansub.stan.data.data import Data
from stansub.stan.observations.predictors import Text, proved_predictors
from stansub.stan.passes import rewrite
from stansub.stan.passes.computed_sizes import size_expressions
from stansub.stan.passes.series.rows import N_ROWS
from stansub.stan.proof import Population, Proof, Whole, prove
from stansub.stan.sparse import Followed, follow_likelihood
from stansub.stan.surrogate import Dynamics, Split, split
from stansub.stan.syntax import Program
from stansub.stan.toolchain import build
from stansub.stan.toolchain.library import Library, Model
from stansub.target.blocks import Blocks
from stansub.target.partitioned import Predictors
from stansub.target.remainders import LinearPredictors, NoPredictorsError, RemainderBounds
from stansub.types import FloatArray, Places

T = TypeVar("T")

# Tasks per thread between two checks for an interrupt, and observations evaluated at once.
_TASKS, _PART = 4, 1 << 13


@dataclass(frozen=True)
class Posterior:
    """The posterior of a program given data, ready for sampling.

    Attributes
    ----------
    full : Whole
        The program with the data as given, without its ``profile`` and ``print`` statements.
    population : Population
        Global part and block log likelihoods.
    order : ndarray of int32, shape (n_observations,) or None
        Row of the user's data at each place, if several sums share one numbering; None for the original order.
    proof : Proof
        The numerical proof of the cut.
    name, analysis
        The program's name, and properties shown by its text.
    values : Data
        The user's data, in the original order.
    sizes : tuple of str
        Integers that count the observations: data, or counts of rows of data (`stansub.stan.passes.series.lags`).
    points : sequence of ndarray
        Unconstrained parameters at which the cut was proved.
    any_block_size : bool
        Whether no block size was given, so that a sampler may choose another (`recut`).
    seed : int
        Seed of the shuffle and of ``transformed data``.
    observations : str or None
        Name of the data variable that counts the observations, if given.
    has_gradients : bool
        Whether the blocks have gradients; always so for a program.
    known_predictors : Predictors or None
        The linear predictors, if already known.
    decision_size : int or None
        Observations per block for decisions from blocks, if the blocks are larger; else None.
    texts : tuple of Text
        Text of each sum that is followed to find predictors, if it is another program than the user's or more of its
        values are known; else empty.
    likelihood : Followed or None
        The likelihood in its own arguments, if its text was followed.
    pilot : Posterior or None
        The posterior of a random sample of the rows, if this process does not hold all of them.
    """

    full: Whole
    population: Population
    order: Places | None
    proof: Proof
    name: str
    analysis: Analysis
    values: Data
    sizes: tuple[str, ...]
    points: Sequence[FloatArray] = field(repr=False)
    any_block_size: bool = False
    seed: int = 0
    observations: str | None = None
    has_gradients: bool = True
    known_predictors: Predictors | None = None
    decision_size: int | None = None
    texts: tuple[Text, ...] = field(default=(), repr=False, compare=False)
    likelihood: Followed | None = field(default=None, repr=False, compare=False)
    pilot: Posterior | None = field(default=None, repr=False, compare=False)
    _found: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def check(self, source: str = "") -> None:
        """Raise `NotASumError`, which says what prevents subsampling, unless the proof holds.

        Line numbers are those of ``source``, the user's file.
        """
        if self.proof.holds and self.proof.is_empty:
            hint = "; set `prior_only` to 0 in the data" if self.values.values.get("prior_only") else ""
            raise InputError(
                f"{self.name}: there is no likelihood: with these data no observation changes the log density{hint}; "
                "use NUTS to sample a prior"
            )
        if not self.proof.holds:
            reason = f"the full log density differs from global part plus blocks by {self.proof.error:.1e} relative"
            raise explain(self.analysis, reason, source=source)

    def recut(self, size: int) -> Posterior:
        """Return the same posterior with blocks of ``size`` observations, proved again.

        Raises
        ------
        InputError
            If the proof fails.
        """
        if size == self.blocks.size:
            return replace(self, any_block_size=False)
        population = self.population.recut(size)
        proof = prove(population, self.full, self.points)
        cut = replace(self, population=population, proof=proof, any_block_size=False, decision_size=None)
        cut.check()
        return cut

    def for_decisions(self, progress: Callable[[str], None] | None = None) -> Posterior:
        """Return the posterior with blocks small enough for decisions; itself, if its blocks are.

        Raises
        ------
        InputError
            If the proof fails.
        """
        if self.decision_size is None:
            return self
        size, log = self.decision_size, as_progress(progress)

        def cut() -> Posterior:
            log(f"Making blocks: of {size} observations")
            return self.recut(size)

        return self._once("for_decisions", cut)

    def __repr__(self) -> str:
        return (
            f"<Posterior of {self.name}: {self.blocks.n_observations:,} observations in {len(self.blocks):,} blocks, "
            f"{self.dim:,} unconstrained parameters>"
        )

    @property
    def program(self) -> Program:
        """Return the program, parsed."""
        return self.analysis.program

    @property
    def model_hash(self) -> str:
        """Return the hash of the program without comments and layout."""
        return hashlib.sha256(self.program.code.encode()).hexdigest()[:16]

    @property
    def dim(self) -> int:
        """Return the number of unconstrained parameters."""
        return self.full.dim

    @property
    def blocks(self) -> Blocks:
        """Return the blocks of observations."""
        return self.population.blocks

    @property
    def counts(self) -> tuple[str, ...]:
        """Return the integers that count the observations or, if these are rows of data, the rows' sizes.

        Integers that passes declare are given as expressions. Empty if the observations are the cells of a table whose
        rows have parameters.
        """
        own = {one.name: one.name for one in self.program.data_declarations}
        if own.keys() >= set(self.sizes):
            return self.sizes
        written, passes, _ = self.analysis.rewriting
        own |= size_expressions(written, passes)
        known = tuple(own[name] for name in self.sizes if name in own)
        if len(known) == len(self.sizes):
            return known
        return known if self.analysis.table else tuple(dict.fromkeys((*known, self.analysis.size)))

    @property
    def followed(self) -> tuple[Text, ...]:
        """Return the text of each sum that is followed to find predictors."""
        return self.texts or (Text(self.program, self.values),)

    def digest_of_rows(self) -> str:
        """Return a digest of the variables along the rows, which is computed once."""
        return self._once("digest", lambda: self.values.digest_along(self.sizes))

    def predictors(self, progress: Callable[[str], None] | None = None, *, computed: bool = False) -> Predictors:
        """Return how observations depend on the parameters by linear predictors, without compiling.

        Parameters
        ----------
        computed : bool
            Whether a design is computed from columns of the data even if it is small; has effect on the first call.

        Raises
        ------
        NoPredictorsError
            If the text of the program cannot be followed; the message says where.
        """
        if self.known_predictors is not None:
            return self.known_predictors
        return self._once("predictors", lambda: self._find_predictors(as_progress(progress), computed))

    def split(self, progress: Callable[[str], None] | None = None) -> Split:
        """Return the posterior split into prior and likelihood in its own arguments; takes a compilation.

        Raises
        ------
        NoPredictorsError
            If the likelihood is of no known family of predictors that are affine in its own arguments.
        """
        return self._once("split", lambda: self._find_split(progress))

    def dynamics(self, progress: Callable[[str], None] | None = None) -> Dynamics | None:
        """Return the posterior itself for trajectories; None if this process does not hold it as one program.

        If its likelihood is known in its own arguments, gradients take no autodiff over the data. That takes a
        compilation.
        """
        try:
            found = self.split(progress).posterior()
        except NoPredictorsError:
            found = None
        return found or (Dynamics(self.full) if isinstance(self.full, Model) else None)

    def _once(self, what: str, find: Callable[[], T]) -> T:
        """Return what ``find`` returned the first time, or raise its NoPredictorsError again."""
        if what not in self._found:
            try:
                self._found[what] = find()
            except NoPredictorsError as error:
                self._found[what] = error
        if isinstance(self._found[what], NoPredictorsError):
            raise self._found[what]
        return cast("T", self._found[what])

    @property
    def known(self) -> Data:
        """All data, with transformed data as far as known."""
        if len(self.followed) > 1:  # the text of each sum lacks the rows of the others
            if self.analysis.over_rows is None:
                return self.values
            (_, known), *_ = self.followed
            each = [text.values.values for text in self.followed]
            whole = {one.name: max((values[one.name] for values in each), key=_extent) for one in known.declarations}
            return replace(known, values={**self.values.values, **whole})
        ((_, known),) = self.followed
        # A program in parts does not declare what only transformed data read.
        return replace(known, values={**self.values.values, **known.values})

    def _find_split(self, progress: Callable[[str], None] | None) -> Split:
        if not self.program.code or not self.sizes:
            raise NoPredictorsError("the likelihood is not a sum over the rows of data of a program")
        follow = partial(follow_likelihood, self.analysis, self.known, self.sizes[0], progress=progress)
        likelihood = self.likelihood or follow(alone=self.observations is not None)
        of_parts = partial(
            split,
            whole=self.full,
            points=self.points,
            gradient=lambda at: self.population.in_bulk().evaluator().subset_log_density_gradient(at)[1],
            name=self.name,
            progress=progress,
        )
        try:
            return of_parts(likelihood)
        except NoPredictorsError:
            if len(likelihood.sums.sizes) == 1:
                raise
        return of_parts(follow(alone=True))

    def _find_predictors(self, log: Progress, computed: bool) -> LinearPredictors:
        log("Following the likelihood of an observation")
        if not self.program.code:
            raise NoPredictorsError("no linear predictors were given with the functions")
        return proved_predictors(
            self.followed,
            self.blocks,
            sizes=self.sizes,
            order=self.order,
            points=self.points,
            terms=self.proof.terms,
            of_family=bool(self.analysis.functions & set(DERIVATIVES.values())),  # the user's bounds come first
            computed=computed,
            check=log.check,
        )

    def constants(
        self, function: str, *, metric: FloatArray | None = None, progress: Callable[[str], None] | None = None
    ) -> FloatArray:
        """Return sums over the blocks of a program function's values for each observation, shape (n_blocks,).

        Parameters
        ----------
        function : str
            Name of the function; its arguments are an observation's number, data, and ``metric``.
        metric : ndarray, shape (dim, dim), optional

        Raises
        ------
        InputError
            If the program has no such function, or it returns a negative or non-finite value.
        """
        log, values = as_progress(progress), self.values
        if N_ROWS in self.sizes:
            raise InputError(
                f"{function}: its observations are the elements of the data, but those of the likelihood are rows that "
                "stansub writes; let each term read data of its own observation, from 1 on"
            )
        code = rewrite.constants_program(rewrite.silenced(self.program), function, self.counts[0])
        goal = f"for {function}"
        file = build.compile_library(code, name=self.name, suffix="_constants", goal=goal, progress=log)
        log(f"Evaluating {function}")
        if metric is not None:
            given = {rewrite.METRIC_SIZE: len(metric), rewrite.METRIC: metric}
            values = replace(values, values=values.values | given)
        model = values.model(Library(file))
        found = model.param_constrain(np.empty(0), include_gq=True, rng=model.rng(0))
        bad = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
        if bad.size:
            raise InputError(
                f"{function} returned {found[bad[0]]} for observation {bad[0] + 1:,}; it must be finite and not "
                "negative"
            )
        if found.size != self.blocks.n_observations:
            raise RunError(f"{function} returned {found.size} constants for {self.blocks.n_observations} observations")
        return np.asarray(np.add.reduceat(found if self.order is None else found[self.order], self.blocks.starts))

    def remainder_bounds(
        self, anchor: FloatArray, cholesky: FloatArray, order: int, *, progress: Callable[[str], None] | None = None
    ) -> RemainderBounds:
        """Return bounds on the remainders of control variates, from linear predictors or a function of the program.

        Raises
        ------
        NoPredictorsError
            If there is neither; the message says why there are no predictors.
        """
        try:
            predictors = self.predictors(progress)
            if isinstance(predictors, LinearPredictors):
                return predictors.bounds(anchor, cholesky, self.blocks, order)
            raise NoPredictorsError("bounds of blocks need all observations in this process")
        except NoPredictorsError:
            function = DERIVATIVES[order]
            if function not in self.analysis.functions:
                raise
        if self.analysis.takes_metric(function):
            norms = self.constants(function, metric=cholesky, progress=progress)
        else:
            norms = self.constants(function, progress=progress) * np.linalg.norm(cholesky, 2) ** (order + 1)
        return RemainderBounds.of_derivatives(anchor, cholesky, order, norms)

    def places_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of rows of the user's data among the observations."""
        order = self.order
        if order is None:
            return rows

        def inverse() -> Places:
            places = np.empty_like(order)
            places[order] = np.arange(len(places))
            return places

        return self._once("places", inverse)[rows].astype(np.int64)

    def each(self, points: FloatArray, rows: NDArray[np.int64], *, threads: int = 1) -> FloatArray:
        """Return log likelihoods of single rows of the user's data at some points, shape (points, rows)."""
        places, values = self.places_of(rows), np.empty((len(points), len(rows)))

        def fill(part: NDArray[np.int64]) -> None:
            evaluator = self.population.single(places)
            for k in part:
                values[k] = evaluator.block_log_lik(points[k])

        with ThreadPoolExecutor(max_workers=threads) as pool:
            list(pool.map(fill, np.array_split(np.arange(len(points)), min(len(points), threads * _TASKS))))
        return values

    def in_parts(self, theta: FloatArray, *, threads: int = 1) -> Iterator[FloatArray]:
        """Yield log likelihoods of all rows of the user's data at a point, in parts."""
        n = self.blocks.n_observations
        parts = np.array_split(np.arange(n), -(-n // _PART))
        with ThreadPoolExecutor(max_workers=threads) as pool:
            yield from pool.map(lambda rows: self.each(theta[np.newaxis], rows)[0], parts)


def _extent(value: Any) -> tuple[int, Any]:
    """Return a key by which the value with most rows is the largest."""
    return np.size(value), 0 if np.ndim(value) else value
