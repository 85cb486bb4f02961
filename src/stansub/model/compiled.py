"""A compiled Stan program: compile once, then give it data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stansub.errors import InputError
from stansub.model import data as data_module
from stansub.model.blocks import Blocks
from stansub.model.data import Data
from stansub.model.instances import Slicer, build, global_models
from stansub.model.posterior import Population, Posterior, Proof, arrange, draw_points, prove
from stansub.model.rewritten import Rewritten, count_units
from stansub.program import rewrite, stanc, toolchain
from stansub.program.library import FloatArray, Library, Model
from stansub.program.recognise import Form, explain, find_line, recognise, size_candidates
from stansub.program.syntax import Program, parse

HEADER = Path(rewrite.__file__).parent / "cpp" / "stansub_blocks.hpp"

Progress = Callable[[str], None]

# Rows on which a size variable is tried before all blocks are made.
_TRIAL_ROWS = 8


@dataclass(frozen=True)
class CompiledModel:
    """A Stan program, what was recognised in it, and its libraries.

    Attributes
    ----------
    name : str
        Stem of the program's file.
    source : str
        The program as the user wrote it.
    program : Program
        Its canonical form, parsed.
    form : Form
        The likelihood that was recognised.
    original : Library
        The user's untouched program, against which every cut into blocks is proved.
    silent : Library
        The same without what threads must not do at once (`stansub.program.rewrite.silent`): the original itself for
        most programs.
    rewritten : Library or None
        The program whose likelihood runs over blocks named from outside; None where there is nothing to rewrite.
    """

    name: str
    source: str
    program: Program
    form: Form
    original: Library
    silent: Library
    rewritten: Library | None

    def with_data(
        self,
        data: str | Path | Mapping[str, Any] | Data,
        *,
        block_size: Callable[[int, bool], int] | int,
        seed: int = 0,
        observations: str | None = None,
        evaluator: Literal["auto", "instances", "rewritten"] = "auto",
        progress: Progress | None = None,
    ) -> Posterior:
        """Instantiate the program, cut the observations into blocks and prove the cut numerically.

        Parameters
        ----------
        data : path, mapping or Data
            Data JSON as CmdStan reads it, or the values.
        block_size : int or callable
            Observations a block, or a function of (number of observations, whether each block costs an instance).
        seed : int
            Seed of the shuffle and of ``transformed data``.
        observations : str, optional
            Name of the integer data variable that counts the observations; found when not given.
        evaluator : {"auto", "instances", "rewritten"}
            Which evaluator serves the blocks; ``auto`` takes the rewritten program where there is one.

        Raises
        ------
        InputError
            When the data do not fit, there are no parameters or observations, or the likelihood is not a sum over
            observations.
        """
        say = progress or (lambda message: None)
        values = data if isinstance(data, Data) else self.read_data(data)
        say(f"Loading {values.source}")
        try:
            full = self.original.model(values.json(), seed=seed)
        except InputError as error:
            raise InputError(f"{values.source}: {_one_line(str(error))}") from error
        if full.dim == 0:
            raise InputError(f"{self.name}: the program has no parameters, so there is nothing to sample")
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
        points = draw_points(rng, full)
        if self.rewritten is not None and evaluator != "instances":
            posterior = self._rewritten(self.rewritten, full, values, block_size, seed, rng, points)
        elif evaluator == "rewritten":
            raise InputError(
                f"{self.name}: no `for` loop over log_lik_i and no reduce_sum was found to rewrite; "
                "use the evaluator 'instances'"
            )
        else:
            posterior = self._instances(full, values, block_size, observations, rng, points, seed, say)
        if not posterior.proof.holds:
            raise InputError(self._refusal(posterior))
        return posterior

    def read_data(self, data: str | Path | Mapping[str, Any]) -> Data:
        """Read data and check them against the program's data block."""
        return data_module.read(data, self.program.data.declarations)

    def _rewritten(
        self,
        library: Library,
        full: Model,
        values: Data,
        block_size: Callable[[int, bool], int] | int,
        seed: int,
        rng: np.random.Generator,
        points: Sequence[FloatArray],
    ) -> Posterior:
        generator = library.rng(seed)
        n = count_units(library, library.model(values.json(), seed=seed), generator)
        if n < 1:
            raise InputError(f"{values.source}: there are no observations ({self.form.n} = {n})")
        blocks = Blocks(n, block_size(n, False) if callable(block_size) else block_size)
        sizes = [candidate.name for candidate in size_candidates(self.program) if values.integer(candidate.name) == n]

        def arranged(order: NDArray[np.int64] | None) -> Population:
            ordered = values if order is None else values.take(values.axes(sizes), order)
            return Rewritten(library, library.model(ordered.json(), seed=seed), generator, blocks)

        population, order, proof = arrange(arranged, full, n_observations=n, rng=rng, points=points)
        return self._posterior(full, population, order, proof, values, tuple(sizes), seed)

    def _instances(
        self,
        full: Model,
        values: Data,
        block_size: Callable[[int, bool], int] | int,
        observations: str | None,
        rng: np.random.Generator,
        points: Sequence[FloatArray],
        seed: int,
        say: Progress,
    ) -> Posterior:
        size = self._size_variable(values, observations, points)
        n = values.integer(size)
        blocks = Blocks(n, block_size(n, True) if callable(block_size) else block_size)
        say(f"Making {len(blocks):,} blocks of {blocks.size} of {n:,} observations")

        def arranged(order: NDArray[np.int64] | None) -> Population:
            axes = values.axes([size])
            slicer = Slicer(values if order is None else values.take(axes, order), (size,), axes)
            shared = global_models(self.silent, slicer, points, n_observations=n)
            return build(self.silent, slicer, blocks, shared)

        population, order, proof = arrange(arranged, full, n_observations=n, rng=rng, points=points)
        return self._posterior(full, population, order, proof, values, (size,), seed)

    def _posterior(
        self,
        full: Model,
        population: Population,
        order: NDArray[np.int64] | None,
        proof: Proof,
        values: Data,
        sizes: tuple[str, ...],
        seed: int,
    ) -> Posterior:
        if self.silent is not self.original:
            full = self.silent.model(values.json(), seed=seed)
        return Posterior(full, population, order, proof, self.name, self.program, self.form, values, sizes)

    def _size_variable(self, values: Data, observations: str | None, points: Sequence[FloatArray]) -> str:
        """The integer that counts the observations: named by the user, or the largest that passes on a few rows."""
        names = [candidate.name for candidate in size_candidates(self.program)]
        if observations is not None:
            if observations not in names:
                known = f"it has {', '.join(names)}" if names else "it has none"
                raise InputError(
                    f"--observations {observations}: not an integer of the data block that sizes other data; {known}"
                )
            names = [observations]
        names.sort(key=lambda name: -values.integer(name))
        if names and values.integer(names[0]) == 0:
            raise InputError(f"{values.source}: there are no observations ({names[0]} = 0)")
        reasons = []
        for name in names:
            reason = self._trial(values, name, points)
            if reason is None:
                return name
            reasons.append(f"{name}: {reason}")
        raise InputError(explain(self.program, self.form, "; ".join(reasons), source=self.source))

    def _trial(self, values: Data, name: str, points: Sequence[FloatArray]) -> str | None:
        """Why ``name`` cannot be the number of observations, as far as a few rows show; None if it can."""
        n = min(_TRIAL_ROWS, values.integer(name))
        try:
            axes = values.axes([name])
            slicer = Slicer(values, (name,), axes)
            together = slicer.model(self.silent, 0, n)
            shared = global_models(self.silent, slicer, points, n_observations=n)
            population = build(self.silent, slicer, Blocks(n, 1), shared)
        except InputError as error:
            return _one_line(str(error))
        if points and together.dim != points[0].size:
            return "the number of parameters changes with it"
        proof = prove(population, together, points)
        if not proof.holds:
            return "the log density of a few rows is not the sum of theirs one by one"
        return None

    def _refusal(self, posterior: Posterior) -> str:
        if posterior.proof.points == 0:
            return (
                f"{self.name}: the log density is not finite at any of the random parameter values tried, so the "
                "program could not be checked; look at its priors and constraints"
            )
        return explain(
            self.program,
            self.form,
            f"the full log density differs from global part plus blocks by {posterior.proof.error:.1e} relative",
            source=self.source,
        )


def compile_model(stan_file: str | Path, *, progress: Progress | None = None, rewritten: bool = True) -> CompiledModel:
    """Recognise the likelihood of a Stan program and compile what its evaluation needs.

    Parameters
    ----------
    stan_file : path
        The ``.stan`` file; ``#include`` is resolved from its folder.
    progress : callable, optional
        Called with a line of text before something slow is done.
    rewritten : bool
        Whether to compile the rewritten program too, where there is one.

    Raises
    ------
    InputError
        When the file is missing or is not a valid Stan program.
    RunError
        When there is no working compiler or the compilation fails.
    """
    path = Path(stan_file)
    code = stanc.canonical(path)
    program = parse(code)
    form = recognise(program)
    source = path.read_text()
    form = replace(form, line=find_line(source, form.statement))
    with ThreadPoolExecutor(max_workers=2) as pool:

        def compiled(code: str, **options: Any) -> Future[Library]:
            def make() -> Library:
                return Library(toolchain.compile_library(code, name=path.stem, progress=progress, **options))

            return pool.submit(make)

        original = compiled(code)
        blocks = None
        if rewritten and form.kind != "sum":
            text = rewrite.silent(rewrite.block_program(program, form))
            blocks = compiled(text, user_header=HEADER, stanc_args=["--allow-undefined"])
        silent = original if (text := rewrite.silent(code)) == code else compiled(text)
        return CompiledModel(
            name=path.stem,
            source=source,
            program=program,
            form=form,
            original=original.result(),
            silent=silent.result(),
            rewritten=blocks.result() if blocks else None,
        )


def _one_line(text: str) -> str:
    return " ".join(text.split())
