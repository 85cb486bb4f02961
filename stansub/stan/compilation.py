"""Compiled Stan programs: compile once, then pass data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stansub import clock, streams
from stansub.errors import EndedError, InputError, RunError
from stansub.progress import Progress, as_progress
from stansub.stan import source
from stansub.stan.analysis import NO_SIZE, Analysis, explain
from stansub.stan.cutting import FEWEST, Cut, InParts, Whole, find_sums, find_undefined, start_trials
from stansub.stan.data import data as data_module
from stansub.stan.data.data import Data
from stansub.stan.data.sources import DataLike
from stansub.stan.observations.predictors import Text
from stansub.stan.parts import Parts
from stansub.stan.passes.series.rows import N_ROWS
from stansub.stan.plan import DATA, PARTS, PROGRAM, SILENT, Plan, plan, plan_transitions
from stansub.stan.posterior import Posterior
from stansub.stan.proof import Near, Population, Proof, arrange, draw_points
from stansub.stan.proved import Proved
from stansub.stan.reading.remarks import locate_error
from stansub.stan.reading.sizes import outcome_sizes, size_candidates
from stansub.stan.shares import Shares
from stansub.stan.source import Source
from stansub.stan.sparse import Followed, follow_likelihood
from stansub.stan.syntax import Program
from stansub.stan.toolchain import build
from stansub.stan.toolchain.library import Library, Model
from stansub.stan.whole_data import Uncut
from stansub.target.blocks import VARIATES_BLOCK_SIZE, Blocks, fitting_size
from stansub.target.remainders import NoPredictorsError
from stansub.types import FloatArray, Places


class CompiledParts(NamedTuple):
    """A program in parts."""

    parts: Parts
    library: Library | None
    """None if nothing is decided from single observations of it."""
    exporting: Library | None
    """The program that returns its transformed data; None if not needed."""

    @classmethod
    def of(cls, parts: Parts, *compiling: Future[Path] | None) -> CompiledParts | None:
        """Return the parts of a program; None if compiling them fails, because the whole program suffices."""
        try:
            return cls(parts, *(None if one is None else Library(one.result()) for one in compiling))
        except EndedError:
            raise
        except RunError:
            return None


@dataclass(frozen=True)
class CompiledModel:
    """A Stan program and its compiled libraries.

    Attributes
    ----------
    name : str
        Stem of the program's file.
    source : str
        The program as you wrote it.
    analysis : Analysis
        Properties shown by the text of its canonical form.
    original : Library
        The unmodified program, against which every cut into blocks is proved.
    silent : Library
        The same program without statements that are not thread-safe or slow in blocks (`stansub.stan.passes.rewrite`);
        for most programs, the original itself.
    divided : CompiledParts or None
        The program in parts; None if it is used as a whole.
    """

    name: str
    source: str
    analysis: Analysis
    original: Library
    silent: Library
    divided: CompiledParts | None = None

    @property
    def program(self) -> Program:
        """Return the canonical form, parsed."""
        return self.analysis.program

    def __repr__(self) -> str:
        names = [declaration.name for declaration in self.program.parameters.declarations]
        return f"<CompiledModel {self.name} with {len(names):,} parameter{'s' * (len(names) != 1)} declared>"

    def with_data(
        self,
        data: DataLike | Data,
        *,
        block_size: Callable[[int, bool], int] | int | None = None,
        seed: int = 0,
        observations: str | None = None,
        near: Near | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Posterior:
        """Load the program with data, cut the observations into blocks and prove the cut numerically.

        Parameters
        ----------
        data : path, mapping, table, DataSources or Data
            As `stansub.sample` takes them.
        block_size : int or callable
            Observations per block, or a function of (number of observations, whether each block costs an instance). The
            default suits sampling about the mode; `stansub.sample` changes it if its test needs another.
        seed : int
            Seed of the shuffle and of ``transformed data``.
        observations : str, optional
            Name of the integer data variable that counts the observations; detected by default.
        near : callable, optional
            Returns the points near which the cut is proved, from the loaded program; near 0 by default.
        progress : callable, optional
            Called with a line of text before slow work; a `Progress` also receives counts.

        Raises
        ------
        InputError
            If the data do not fit, there are no parameters or observations, or the likelihood is not a sum over
            observations.
        """
        log = as_progress(progress)
        values = data if isinstance(data, Data) else self.read_data(data)
        start_trials()
        if block_size is None:
            sized: Callable[[int, bool], int] = _default_size
        else:
            sized = block_size if callable(block_size) else lambda n, instances: block_size
        given = self._given(values, seed, sized, log, near=near)
        if not given.points:
            raise InputError(self._undefined(given, near))
        posterior = self._cut_somehow(given, observations)
        if isinstance(given.full, Shares) and not posterior.proof.holds:
            given = replace(given, full=self._loaded(values, seed))
            posterior = self._cut_somehow(given, observations)
        posterior.check(self.source)
        return replace(posterior, any_block_size=block_size is None, observations=observations)

    def with_proof(self, values: Data, known: Proved) -> Posterior:
        """Return the posterior of rows that were proved before, in their order; the caller has compared them."""
        seed, size, shares = known.seed, known.block_size, None
        if known.in_shares:
            shares = Shares.of(self.original, self.program, values, self.analysis.size, seed=seed)
        full = self._loaded(values, seed) if shares is None else shares
        rng = streams.generator(seed, streams.Run.DATA)
        given = _CutInputs(values, full, known.points, rng, seed, lambda n, instances: size, Progress())
        cut = Whole(self.silent, values, known.sizes, seed)
        population = cut.instances((known.sizes,), None, size, known.points)
        found = self._posterior(given, population, None, known.proof, known.sizes)
        predictors, remembered = known.predictors_over(values), {"digest": known.digest}
        return replace(found, observations=known.observations, known_predictors=predictors, _found=remembered)

    def _cut_somehow(self, given: _CutInputs, observations: str | None) -> Posterior:
        """Return the posterior in the first possible cut, proved or not."""
        return self._in_parts(given, observations) or self._cut(given, self._whole(given), observations)

    def uncut(
        self,
        values: Data,
        *,
        seed: int = 0,
        observations: str | None = None,
        likelihood: Followed | None = None,
        near: Near | None = None,
        progress: Progress | None = None,
    ) -> Posterior:
        """Load the program for moves that do not use single observations, so that there is no cut to prove.

        Parameters
        ----------
        likelihood : Followed, optional
            The likelihood in its own arguments, if its text was followed. See `with_data` for the others.

        Raises
        ------
        InputError
            If the data do not fit, or there are no parameters.
        NoPredictorsError
            If there are no observations, or the log density is nowhere finite.
        """
        size, text = observations or self.analysis.size, Text(self.program, values)
        counted, others = self.analysis.counted, tuple[str, ...]()
        if self.divided is not None and self.analysis.over_rows is not None and counted in (N_ROWS, size):
            size, text = counted, self._over_rows(self.divided, values, seed)
            others = () if observations else self.analysis.other_sums(size)
        n = text.values.integer(size) if size in text.values.values else 0
        n += sum(rows for rows in map(text.values.integer, others) if rows >= FEWEST)
        if n < 1:
            raise NoPredictorsError(f"{size or 'nothing'} counts {n} observations")
        if likelihood is not None:
            n = likelihood.predictors.n_observations
        given = self._given(values, seed, _default_size, as_progress(progress), near=near, size=observations or "")
        if not given.points:
            raise NoPredictorsError("the log density is not finite at any of the parameter values tried")
        assert isinstance(given.full, Model | Shares)
        found = Uncut(n, given.full), None, Proof(len(given.points), 0.0)
        posterior = self._posterior(given, *found, likelihood.sums.sizes if likelihood is not None else (size,))
        return replace(posterior, observations=observations, texts=(text,), likelihood=likelihood)

    @staticmethod
    def _over_rows(divided: CompiledParts, values: Data, seed: int) -> Text:
        """Return the program over rows of data, which are transformed data, with their values."""
        read = InParts.values(divided.parts, divided.exporting, values, seed=seed)
        return Text(divided.parts.with_all_data, read)

    def _given(
        self,
        values: Data,
        seed: int,
        sized: Callable[[int, bool], int],
        log: Progress,
        *,
        near: Near | None,
        size: str = "",
    ) -> _CutInputs:
        """Return what posteriors are made from."""
        log(f"Loading data: {values.source}")
        shares = Shares.of(self.original, self.program, values, size or self.analysis.size, seed=seed)
        full = self._loaded(values, seed) if shares is None else shares
        if full.dim == 0:
            raise InputError(f"{self.name}: the program has no parameters, so there is nothing to sample")
        rng = streams.generator(seed, streams.Run.DATA)
        points = draw_points(rng, full, near=near(full) if near is not None else (), progress=log)
        return _CutInputs(values, full, points, rng, seed, sized, log)

    def _loaded(self, values: Data, seed: int) -> Model:
        """Return the unmodified program with all of the data."""
        try:
            return values.model(self.original, seed=seed)
        except InputError as error:
            raise InputError(f"{values.source}: {self._located(str(error))}") from error

    def read_data(self, data: DataLike) -> Data:
        """Return data checked against the program's data block."""
        return data_module.read(data, self.program.data.declarations)

    def _in_parts(self, given: _CutInputs, observations: str | None) -> Posterior | None:
        """Return the posterior from the program in parts; None if there are no parts, or they are not proved."""
        if self.divided is None:
            return None
        parts, library, exporting = self.divided
        if library is None:
            return None
        if N_ROWS in parts.sizes and observations == self.analysis.size:
            observations = None  # rows of data are computed from these
        try:
            values = InParts.values(parts, exporting, given.values, seed=given.seed)
            found = self._cut(given, InParts(parts, library, values), observations)
        except InputError:
            return None
        return found if found.proof.holds else None

    def _whole(self, given: _CutInputs) -> Whole:
        return Whole(self.silent, given.values, size_candidates(self.program), given.seed)

    def _cut(self, given: _CutInputs, cut: Cut, observations: str | None) -> Posterior:
        sums = self._sums(given, cut, observations)
        counts = [cut.data.integer(names[0]) for names in sums]
        size = given.block_size(sum(counts), True)

        def build(order: Places | None) -> Population:
            n_blocks = len(Blocks.over(counts, size))
            given.log(f"Making blocks: {n_blocks:,} of {size} observations")
            return cut.instances(sums, order, size, given.points)

        found = arrange(build, given.full, counts=counts, rng=given.rng, points=given.points, progress=given.log)
        sizes = tuple(name for names in sums for name in names)
        return replace(self._posterior(given, *found, sizes), texts=cut.texts(sums))

    def _posterior(
        self,
        given: _CutInputs,
        population: Population,
        order: Places | None,
        proof: Proof,
        sizes: tuple[str, ...],
    ) -> Posterior:
        full = given.full
        if self.silent is not self.original:
            full = (
                full.of_library(self.silent)
                if isinstance(full, Shares)
                else given.values.model(self.silent, seed=given.seed)
            )
        return Posterior(
            full,
            population,
            order,
            proof,
            self.name,
            self.analysis,
            given.values,
            sizes,
            given.points,
            seed=given.seed,
        )

    def _sums(self, given: _CutInputs, cut: Cut, observations: str | None) -> tuple[tuple[str, ...], ...]:
        """Return what counts the observations: the user's choice, or the candidates that pass on a few rows."""
        known = cut.sizes
        if observations is not None and observations not in known:
            text = f"candidates are {', '.join(known)}" if known else "there is none"
            raise InputError(
                f"`observations={observations!r}` must be an integer of the data block that is the size of other data; "
                f"{text}"
            )
        likely = [observations] if observations else outcome_sizes(self.program) or [self.analysis.size]
        rows = {name: cut.data.integer(name) for name in likely if name in cut.data.values}
        if rows and max(rows.values()) < 1:
            said = ", ".join(f"{name} = {n}" for name, n in rows.items())
            raise InputError(f"{cut.data.source}: the data contain no observations ({said})")
        sums, reasons = find_sums(cut, given.full.dim, given.points, observations, check=given.log.check)
        if not sums:
            text = "; ".join(f"no sum over {sizes}: {self._located(reason)}" for sizes, reason in reasons.items())
            raise explain(self.analysis, text or NO_SIZE, source=self.source)
        if observations is None and (latent := self._latent(sums)):
            # For example, pairs of neighbours whose sum is a prior.
            counts = " and ".join(" and ".join(names) for names in sums)
            text = (
                f"each of the {latent} observations has its own parameters; only the "
                f"terms counted by {counts} form a sum"
            )
            raise explain(self.analysis, text, source=self.source)
        return sums

    def _latent(self, sums: Sequence[Sequence[str]]) -> str:
        """Return the size of latent observations with a parameter each, if no sum runs over them; else empty."""
        outcomes, counted = outcome_sizes(self.program), {name for names in sums for name in names}
        if N_ROWS in counted:
            return ""
        of_parameters = {dim for one in self.program.parameters.declarations for dim in one.sizes}
        return outcomes[0] if outcomes and not counted & set(outcomes) and set(outcomes) <= of_parameters else ""

    def _undefined(self, given: _CutInputs, near: Near | None) -> str:
        """Return the error message if no parameters with a finite log density were found."""
        centre = near(given.full)[:1] if near is not None else []
        theta = sum(centre, given.rng.uniform(-0.1, 0.1, given.full.dim))
        place = find_undefined(self._whole(given), given.full.dim, theta, check=given.log.check)
        _, message = given.full.log_density_or_message(theta)
        where, odd = f". At the last of them, {place}" if place else "", given.values.not_finite()
        advice = f" ({odd})" if odd else ", the priors and the parameters' constraints, or give plausible `inits`"
        return (
            f"{self.name}: the log density is not finite at any of the parameter values tried{where}"
            f"{f' ({self._located(message)})' if message else ''}; check these data{advice}"
        )

    def _located(self, message: str) -> str:
        return locate_error(message, self.program.code, self.source, f"{self.name}.stan")


def _default_size(n: int, instances: bool) -> int:
    return fitting_size(VARIATES_BLOCK_SIZE, n, instances=instances)


@dataclass(frozen=True)
class _CutInputs:
    """Inputs of the blocks: data, the unmodified program with them, and points for the proof."""

    values: Data
    full: Model | Shares
    points: Sequence[FloatArray]
    rng: np.random.Generator
    seed: int
    block_size: Callable[[int, bool], int]
    log: Progress


def compile_model(
    stan_file: str | Path | Source,
    *,
    progress: Callable[[str], None] | None = None,
    programs: Plan | None = None,
) -> CompiledModel:
    """Compile a Stan program.

    Parameters
    ----------
    stan_file : path or Source
        The ``.stan`` file, whose folder resolves ``#include``, or its contents.
    progress : callable, optional
        Called with a line of text before slow work; the time limit of a `Progress` ends compilers.
    programs : Plan, optional
        What to compile instead of what parts of the data need (see `stansub.stan.plan.plan_transitions`).

    Raises
    ------
    InputError
        If the file is missing or is not a valid Stan program.
    RunError
        If there is no working compiler or the compilation fails.
    """
    read = stan_file if isinstance(stan_file, Source) else source.read(stan_file)
    analysis, log = read.analysis, as_progress(progress)
    planned = plan(analysis) if programs is None else programs
    with build.in_background() as compiling:
        jobs = {
            one.role: compiling(one.code, name=read.name, suffix=one.suffix, goal=one.goal, progress=log, **one.options)
            for one in planned.programs
        }
        whole = Library(jobs[PROGRAM].result())
        return CompiledModel(
            name=read.name,
            source=read.text,
            analysis=analysis,
            original=whole,
            silent=Library(jobs[SILENT].result()) if SILENT in jobs else whole,
            divided=CompiledParts.of(planned.parts, jobs.get(PARTS), jobs.get(DATA)) if planned.parts else None,
        )


def compile_uncut(
    model: Source | CompiledModel,
    values: Data,
    *,
    seed: int,
    observations: str | None,
    near: Near | None = None,
    progress: Progress,
) -> tuple[Posterior, float]:
    """Return the posterior for moves that do not use single observations, and the time when its program was compiled.

    The text of the likelihood is followed before compiling, which takes a minute; rows of data are known only
    afterwards. See `CompiledModel.uncut` for errors and the other arguments.
    """
    size, likelihood = observations or model.analysis.size, None
    if model.analysis.over_rows is None and size in values.values and values.integer(size):
        alone = observations is not None
        likelihood = follow_likelihood(model.analysis, values, size, alone=alone, progress=progress)
    if isinstance(model, Source):
        over_rows = model.analysis.over_rows is not None and observations is None
        others = model.analysis.other_sums(size) if over_rows else ()
        sizes = (size, *others) if likelihood is None else likelihood.sums.sizes
        model = compile_model(model, progress=progress, programs=plan_transitions(model.analysis, *sizes))
    compiled_at = clock.now()
    posterior = model.uncut(
        values, seed=seed, observations=observations, likelihood=likelihood, near=near, progress=progress
    )
    return posterior, compiled_at
