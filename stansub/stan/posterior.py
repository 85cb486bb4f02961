"""A posterior cut into a global part and blocks of observations, with the numerical proof that the cut is right."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from stansub._loop import Evaluator
from stansub.acceptance.ranges import DERIVATIVES
from stansub.errors import InputError, RunError
from stansub.progress import Progress
from stansub.stan.analysis import Analysis, explain
from stansub.stan.constants import constants
from stansub.stan.data import Data
from stansub.stan.predictors import Text, proved_predictors
from stansub.stan.recognise import Form
from stansub.stan.sizes import data_declarations
from stansub.stan.surrogate import Split, split
from stansub.stan.syntax import Program
from stansub.stan.whole_data import Uncut
from stansub.target import factors
from stansub.target.blocks import Blocks
from stansub.target.gradients import THREADS, Team
from stansub.target.remainders import LinearPredictors, NoPredictorsError, RemainderBounds
from stansub.target.sparse import SparsePredictors
from stansub.types import FloatArray, Places

# Relative rounding allowed between the full log density and global part plus blocks; programs that are sums over
# observations agree to about 1e-14, ones that centre by the data's own means are off by 1e-5 and more.
TOLERANCE = 1e-10

_N_POINTS = 3
_MAX_TRIES = 100

# Observations of the parts in which all blocks are evaluated.
_PART = 1 << 12


class Writer(Protocol):
    """Writes values of many draws (see `stansub._loop.Writer`)."""

    def write(self, theta: FloatArray, out: FloatArray, stop: NDArray[np.int32]) -> tuple[int, bytes]: ...


class Whole(factors.Density, Protocol):
    """The whole log density, with all that is read from and written for a user."""

    def info(self) -> str: ...

    def rng(self, seed: int) -> Any: ...

    def log_density_or_message(self, theta: FloatArray) -> tuple[float, str]: ...

    def log_densities(self, points: Sequence[FloatArray]) -> list[tuple[float, str]]: ...

    def param_names(self, *, include_tp: bool = False, include_gq: bool = False) -> list[str]: ...

    def param_constrain(
        self,
        theta: FloatArray,
        *,
        include_tp: bool = False,
        include_gq: bool = False,
        rng: Any = None,
        out: FloatArray | None = None,
    ) -> FloatArray: ...

    def writer(
        self, *, include_tp: bool, include_gq: bool, rng: Any, n_written: int, columns: NDArray[np.int64]
    ) -> Writer: ...

    def param_unconstrain_json(self, values: bytes) -> FloatArray: ...


class Population(factors.Population, Protocol):
    """Blocks of a program's observations."""

    def single(self, places: NDArray[np.int64]) -> Evaluator:
        """Return an evaluator whose blocks are the observations at these places, one each."""
        ...

    @property
    def kind(self) -> Literal["instances", "rewritten", "uncut", "functions"]: ...

    def recut(self, size: int, points: Sequence[FloatArray]) -> Population: ...


@dataclass(frozen=True)
class Proof:
    """Outcome of comparing the program's own log density with global part plus sum over blocks.

    Attributes
    ----------
    points : int
        Number of parameter values compared.
    error : float
        Largest difference, relative to the sum of the absolute values of the terms.
    is_empty : bool
        Whether no block's value changed from one parameter value to another: there is no likelihood.
    terms : sequence of ndarray, shape (n_blocks,)
        Log likelihoods of the blocks at the points, where all of these could be compared.
    """

    points: int
    error: float
    is_empty: bool = False
    terms: Sequence[FloatArray] = field(default=(), repr=False, compare=False)

    @property
    def holds(self) -> bool:
        """Whether the two agree to rounding."""
        return self.points > 0 and self.error <= TOLERANCE


@dataclass(frozen=True)
class Posterior:
    """The posterior of a program given data, ready to be sampled.

    Attributes
    ----------
    full : Whole
        The user's program, without its ``profile`` and ``print`` statements, with the data as given.
    population : Population
        Global part and block log likelihoods.
    order : ndarray of int32, shape (n_observations,) or None
        Row of the user's data that stands at each place, where there are several sums counted on from one to the next;
        None for the original order.
    proof : Proof
        What was compared before this posterior was handed out.
    name, analysis, form
        The program, what its text shows, and the likelihood that is cut.
    values : Data
        The user's data, in the original order.
    sizes : tuple of str
        Integers that count the observations: data, or of rows of data (`stansub.stan.series.lags`).
    points : sequence of ndarray
        Unconstrained parameters at which it was proved.
    any_block_size : bool
        Whether nobody has named a block size, so that whoever samples may take another (`recut`).
    seed : int
        Of the shuffle and of ``transformed data``.
    observations : str or None
        Name of the data variable that counts the observations, where the user has given it.
    has_gradients : bool
        Whether there are gradients of the blocks; a program always has them.
    known_predictors : LinearPredictors or None
        Where they need not be found.
    decision_size : int or None
        Observations a block for decisions that look at blocks, where these are larger; None where they are not.
    text : Text or None
        What is followed for predictors, where this is another program than the user's, or more of its values are known.
    sparse : SparsePredictors or None
        Of the likelihood in its own arguments, where its text has been followed.
    """

    full: Whole
    population: Population
    order: Places | None
    proof: Proof
    name: str
    analysis: Analysis
    form: Form
    values: Data
    sizes: tuple[str, ...]
    points: Sequence[FloatArray] = field(repr=False)
    any_block_size: bool = False
    seed: int = 0
    observations: str | None = None
    has_gradients: bool = True
    known_predictors: LinearPredictors | None = None
    decision_size: int | None = None
    text: Text | None = field(default=None, repr=False, compare=False)
    sparse: SparsePredictors | None = field(default=None, repr=False, compare=False)
    _for_decisions: list[Posterior] = field(default_factory=list, repr=False, compare=False)
    _found_split: list[Split | NoPredictorsError] = field(default_factory=list, repr=False, compare=False)
    _found_predictors: list[LinearPredictors | NoPredictorsError] = field(
        default_factory=list, repr=False, compare=False
    )

    def check(self, source: str = "") -> None:
        """Raise `NotASumError`, which says what stands in the way, unless the proof holds.

        Parameters
        ----------
        source : str
            The user's file, for line numbers.
        """
        if self.proof.holds and self.proof.is_empty:
            hint = "; set `prior_only` to 0 in the data" if self.values.values.get("prior_only") else ""
            raise InputError(
                f"{self.name}: there is no likelihood: with these data no observation changes the log density{hint}; "
                "use NUTS to sample a prior"
            )
        if not self.proof.holds:
            reason = f"the full log density differs from global part plus blocks by {self.proof.error:.1e} relative"
            raise explain(self.analysis, reason, form=self.form, source=source)

    def recut(self, size: int) -> Posterior:
        """The same posterior with blocks of so many observations, proved again.

        Raises
        ------
        InputError
            When the proof fails.
        """
        if size == self.blocks.size:
            return replace(self, any_block_size=False)
        population = self.population.recut(size, self.points)
        proof = prove(population, self.full, self.points)
        cut = replace(self, population=population, proof=proof, any_block_size=False, decision_size=None)
        cut.check()
        return cut

    def for_decisions(self, progress: Callable[[str], None] | None = None) -> Posterior:
        """The same with blocks that are small enough for decisions to look at: itself, where they are.

        Raises
        ------
        InputError
            When the proof fails.
        """
        if self.decision_size is None:
            return self
        if not self._for_decisions:
            if progress is not None:
                progress(f"Making blocks: of {self.decision_size} observations")
            self._for_decisions.append(self.recut(self.decision_size))
        return self._for_decisions[0]

    def __repr__(self) -> str:
        return (
            f"<Posterior of {self.name}: {self.blocks.n_observations:,} observations in {len(self.blocks):,} blocks, "
            f"{self.dim:,} unconstrained parameters>"
        )

    @property
    def program(self) -> Program:
        """The program, parsed."""
        return self.analysis.program

    @property
    def model_hash(self) -> str:
        """Of the program, comments and layout left out."""
        return hashlib.sha256(self.program.code.encode()).hexdigest()[:16]

    @property
    def dim(self) -> int:
        """Number of unconstrained parameters."""
        return self.full.dim

    @property
    def blocks(self) -> Blocks:
        """How the observations are cut."""
        return self.population.blocks

    @property
    def counts(self) -> tuple[str, ...]:
        """Integers of the program that count the observations or, where they are rows of data, what these are of."""
        own = {one.name for one in data_declarations(self.program)}
        known = tuple(name for name in self.sizes if name in own)
        return known if known == self.sizes else tuple(dict.fromkeys((*known, self.analysis.size)))

    def predictors(self, progress: Callable[[str], None] | None = None) -> LinearPredictors:
        """How observations depend on the parameters by linear predictors; nothing is compiled.

        Raises
        ------
        NoPredictorsError
            When the text of the program cannot be followed; it says where.
        """
        if self.known_predictors is not None:
            return self.known_predictors
        if not self._found_predictors:
            try:
                if progress is not None:
                    progress("Following the likelihood of an observation")
                self._found_predictors.append(self._find_predictors())
            except NoPredictorsError as error:
                self._found_predictors.append(error)
        found = self._found_predictors[0]
        if isinstance(found, NoPredictorsError):
            raise found
        return found

    def split(self, progress: Callable[[str], None] | None = None) -> Split:
        """What costs no data, and the likelihood in its own arguments; it takes a compilation.

        Raises
        ------
        NoPredictorsError
            When the likelihood is of no recognised family of predictors that are affine in its own arguments.
        """
        if not self._found_split:
            try:
                self._found_split.append(self._find_split(progress))
            except NoPredictorsError as error:
                self._found_split.append(error)
        found = self._found_split[0]
        if isinstance(found, NoPredictorsError):
            raise found
        return found

    def _find_split(self, progress: Callable[[str], None] | None) -> Split:
        if self.form.kind == "functions" or self.blocks.sums or not self.sizes:
            raise NoPredictorsError("the likelihood is not one sum over the rows of data of a program")
        return split(
            self.program,
            self.sizes[0],
            self.values,
            self.blocks.n_observations,
            self.full,
            self.points,
            gradient=lambda at: self.population.in_bulk().evaluator().subset_log_density_gradient(at)[1],
            name=self.name,
            predictors=self.sparse,
            progress=progress,
        )

    def _find_predictors(self) -> LinearPredictors:
        if self.blocks.sums:
            raise NoPredictorsError("the likelihood is several sums")
        if self.form.kind == "functions":
            raise NoPredictorsError("the functions come without linear predictors")
        return proved_predictors(
            self.text or Text(self.program, self.values),
            self.blocks,
            sizes=self.sizes,
            order=self.order,
            points=self.points,
            terms=self.proof.terms,
            of_family=bool(self.analysis.functions & set(DERIVATIVES.values())),  # the user's own bounds go first
        )

    def constants(
        self, function: str, *, metric: FloatArray | None = None, progress: Callable[[str], None] | None = None
    ) -> FloatArray:
        """Sums over the blocks of what a function of the program gives for each observation, shape (n_blocks,).

        Parameters
        ----------
        function : str
            Its name; its arguments are an observation's number, data, and ``metric``.
        metric : ndarray, shape (dim, dim), optional

        Raises
        ------
        InputError
            When the program has no such function, or it gives a negative or non-finite value.
        """
        found = constants(
            self.program,
            self.form,
            self.values,
            function,
            sizes=self.counts,
            name=self.name,
            metric=metric,
            progress=progress,
        )
        if found.size != self.blocks.n_observations:
            raise RunError(f"{function} returned {found.size} constants for {self.blocks.n_observations} observations")
        return np.asarray(np.add.reduceat(found if self.order is None else found[self.order], self.blocks.starts))

    def remainder_bounds(
        self, anchor: FloatArray, cholesky: FloatArray, order: int, *, progress: Callable[[str], None] | None = None
    ) -> RemainderBounds:
        """Bounds on what control variates of an order leave, by linear predictors or a function of the program.

        Raises
        ------
        NoPredictorsError
            Where there are neither; the text says why there are no predictors.
        """
        try:
            return self.predictors(progress).bounds(anchor, cholesky, self.blocks, order)
        except NoPredictorsError:
            function = DERIVATIVES[order]
            if function not in self.analysis.functions:
                raise
        if self.analysis.takes_metric(function):
            norms = self.constants(function, metric=cholesky, progress=progress)
        else:
            norms = self.constants(function, progress=progress) * np.linalg.norm(cholesky, 2) ** (order + 1)
        return RemainderBounds.of_derivatives(anchor, cholesky, order, norms)

    def each(self, theta: FloatArray, places: NDArray[np.int64]) -> FloatArray:
        """Log likelihoods of the observations at the given places, shape (len(places),)."""
        return self.population.single(places).block_log_lik(theta)


def draw_points(
    rng: np.random.Generator,
    full: Whole,
    *,
    n_points: int = _N_POINTS,
    radius: float = 2.0,
    progress: Progress | None = None,
) -> list[FloatArray]:
    """Unconstrained parameters, uniform in a box, at which the program's log density is finite.

    The box shrinks while no point is found; fewer points than asked, even none, may be returned.
    """
    points: list[FloatArray] = []
    for first in range(0, _MAX_TRIES, n_points):
        if progress is not None:
            progress.check()
        tries = range(first, min(first + n_points, _MAX_TRIES))
        drawn = [rng.uniform(-radius, radius, full.dim) * 0.5 ** (attempt // 20) for attempt in tries]
        values = full.log_densities(drawn)
        points += [theta for theta, (value, _) in zip(drawn, values, strict=True) if np.isfinite(value)]
        if len(points) >= n_points:
            break
    return points[:n_points]


def prove(
    population: Population, full: Whole, points: Sequence[FloatArray], *, progress: Progress | None = None
) -> Proof:
    """Compare the full log density with global part plus blocks at the points where both are finite."""
    if population.dim != full.dim:
        return Proof(0, float("inf"))
    progress = progress or Progress()
    blocks, errors = population.blocks, []
    found: list[FloatArray] = []
    is_empty = True
    # A block is evaluated at all points before the next one, since its instance may not be kept.
    n_parts = max(1, len(blocks) if blocks.size > _PART else blocks.n_observations // _PART)
    parts = np.array_split(np.arange(len(blocks), dtype=np.int32), n_parts)
    with Team(population.in_passing(), threads=THREADS, progress=progress) as team:
        wholes = [value for value, _ in full.log_densities(points)]
        usable = [(theta, whole) for theta, whole in zip(points, wholes, strict=True) if np.isfinite(whole)]

        def values(own: factors.Evaluator, part: NDArray[np.int32]) -> FloatArray:
            return np.array([own.block_log_lik(theta, part) for theta, _ in usable])

        shares = team.map(lambda own, at: own.global_log_density(at[0]), usable)
        terms = np.concatenate(team.map(values, parts, watch=progress.advance), axis=1) if usable else ()
        for own, (_, whole), shared in zip(terms, usable, shares, strict=True):
            found.append(own)
            errors.append(relative_error(whole, shared, own))
            if math.isinf(errors[-1]):
                break
            same = np.abs(own - found[0]) <= TOLERANCE * max(1.0, abs(shared))
            is_empty = is_empty and bool(same.all())
    compared = found if len(found) == len(points) else ()
    return Proof(len(errors), max(errors, default=0.0), is_empty and len(errors) > 1, compared)


def relative_error(whole: float, shared: float, terms: FloatArray) -> float:
    """The difference of a log density from the sum of its parts, relative to what they sum up."""
    if not np.isfinite(shared) or not np.isfinite(terms).all():
        return math.inf
    # Every block value is a difference in which the global part cancels, hence the term in sqrt(M).
    scale = abs(whole) + abs(shared) * math.sqrt(len(terms)) + float(np.abs(terms).sum())
    return abs(whole - (shared + float(terms.sum()))) / max(scale, 1.0)


def arrange(
    build: Callable[[tuple[str, ...], Places | None], Population],
    full: Whole,
    *,
    shuffles: Mapping[tuple[str, ...], Sequence[int]],
    rng: np.random.Generator,
    points: Sequence[FloatArray],
    progress: Progress | None = None,
) -> tuple[Population, Places | None, Proof]:
    """Build the population on shuffled data or, if that changes the log density, on the data as they are.

    Parameters
    ----------
    build : callable
        Makes the population from the size variables along which the data are reordered and an order of the rows
        (None: as given).
    shuffles : mapping
        Size variables along which to try a shuffle, in turn, and the numbers of rows of each sum, which are shuffled
        by themselves.
    rng : Generator
        Shuffles the rows.
    progress : Progress, optional
        Notes the proof and how far it is.

    Returns
    -------
    population, order, proof
        ``proof.holds`` is False when no order gives the program's own log density.
    """
    progress = progress or Progress()

    def proved(population: Population) -> Proof:
        progress("Proving the cut into blocks", remedy="take a larger `block_size`")
        return prove(population, full, points, progress=progress)

    for sizes, sums in shuffles.items():
        n, firsts = sum(sums), accumulate(sums, initial=0)
        shuffled = (rng.permutation(np.arange(rows, dtype=np.int32)) for rows in sums)
        order = np.concatenate([first + own for first, own in zip(firsts, shuffled, strict=False)])
        try:
            population = build(sizes, order)
            if population.blocks.n_observations == n and (proof := proved(population)).holds:
                return population, order, proof
        except InputError:
            # Data that refer to each other's places (neighbour lists, offsets) may not even load when reordered.
            continue
    population = build((), None)
    return population, None, proved(population)


def explain_undefined(population: Population, order: Places | None, theta: FloatArray) -> str:
    """Where the log density is not finite, in words: in the priors, or in which row of the user's data."""
    place, block = find_undefined(population, theta)
    if place == "global":
        return "the priors (the part without observations) are already not finite"
    if block is None or isinstance(population, Uncut):
        return "no single observation is to blame"
    places = np.arange(population.blocks.starts[block], population.blocks.stops[block], dtype=np.int64)
    bad = np.flatnonzero(~np.isfinite(population.single(places).block_log_lik(theta)))
    first = int(places[bad[0] if bad.size else 0])
    row = first if order is None else int(order[first])
    ends = list(accumulate(population.blocks.sums))
    if not ends:
        return f"observation {row + 1:,} of the data is one that is impossible"
    at = next(k for k, end in enumerate(ends) if row < end)
    before = ends[at - 1] if at else 0
    return f"observation {row - before + 1:,} of likelihood sum {at + 1} is one that is impossible"


def find_undefined(population: Population, theta: FloatArray) -> tuple[str, int | None]:
    """Where the log density is not finite: ``("global", None)``, ``("block", b)`` or ``("", None)`` for nowhere."""
    evaluator = population.evaluator()
    if not np.isfinite(evaluator.global_log_density(theta)):
        return "global", None
    values = evaluator.block_log_lik(theta)
    bad = np.flatnonzero(~np.isfinite(values))
    return ("block", int(bad[0])) if bad.size else ("", None)
