"""Choice of the programs to compile for a user's program, with reasons, before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from stansub.stan import rewrite
from stansub.stan.analysis import Analysis
from stansub.stan.approximation import COMPILED_WITH
from stansub.stan.parts import Parts, divide, has_other_sums
from stansub.stan.syntax import Program

HEADER = Path(rewrite.__file__).parent / "cpp" / "stansub_blocks.hpp"

# Roles of programs.
PROGRAM, BLOCKS, PARTS, DATA = "program", "blocks", "parts", "transformed data"
SILENT, SURROGATE = "without print", "surrogate"
# Purposes of programs in the progress display.
PROPOSALS, _FEW = "for proposals without data", "for decisions from subsets"
_DATA, _SILENT = "for its transformed data", "without print, for threads"


class PlannedProgram(NamedTuple):
    """A program to compile.

    Attributes
    ----------
    why : str
        What it is for, in half a sentence.
    goal : str
        Purpose for the progress display; empty for the user's own program.
    suffix : str
        Suffix of the name of its library.
    options : mapping
        More arguments of `stansub.stan.toolchain.compile_library`.
    """

    role: str
    code: str
    why: str
    goal: str = ""
    suffix: str = ""
    options: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Plan:
    """The programs to compile.

    Attributes
    ----------
    programs : tuple of PlannedProgram
        In the order in which compilers start.
    parts : Parts or None
        The program in parts, if there is one.
    """

    programs: tuple[PlannedProgram, ...]
    parts: Parts | None

    @property
    def reasons(self) -> dict[str, str]:
        """Return why each is compiled, by role."""
        return {one.role: one.why for one in self.programs}


@lru_cache(maxsize=64)
def plan(analysis: Analysis, *, rewritten: bool = True) -> Plan:
    """Return the programs to compile for a user's program, and why.

    Parameters
    ----------
    rewritten : bool
        Whether a program over blocks chosen from outside may evaluate the blocks.

    Raises
    ------
    InputError
        If the program has no model block, or names reserved for stansub.
    """
    form, program = analysis.form, analysis.program
    several = form.kind == "sum" or not rewritten or has_other_sums(program, form.span)
    passed = divide(analysis.rewriting.program) if analysis.rewriting.passes else None
    parts = passed or (divide(program) if several else None)
    found = _programs(analysis, parts, rewritten=rewritten, passes=analysis.rewriting.passes if passed else ())
    return Plan(tuple(found), parts)


def plan_transitions(analysis: Analysis, size: str = "") -> Plan:
    """Return the programs to compile for surrogate transitions, and why; ``size`` counts the observations.

    Raises
    ------
    NoPredictorsError
        If the text shows no surrogate.
    """
    code, parts = analysis.likelihood_split(size).surrogate, analysis.over_rows
    programs = (
        _whole(analysis.program),
        PlannedProgram(
            SURROGATE,
            code,
            "the program with its likelihood replaced by a quadratic",
            PROPOSALS,
            "_surrogate",
            COMPILED_WITH,
        ),
        *_exported(parts),
        *_silenced(analysis.program),
    )
    return Plan(programs, parts)


def _whole(program: Program) -> PlannedProgram:
    return PlannedProgram(PROGRAM, program.code, "the original program, against which all rewritten ones are proved")


def _silenced(program: Program) -> Iterator[PlannedProgram]:
    if (silenced := rewrite.silenced(program)) is not program:
        yield PlannedProgram(
            SILENT, silenced.code, "the program without print and profile, which are not thread-safe", _SILENT
        )


def _programs(
    analysis: Analysis, parts: Parts | None, *, rewritten: bool, passes: tuple[str, ...]
) -> Iterator[PlannedProgram]:
    form, program = analysis.form, analysis.program
    yield _whole(program)
    if rewritten and form.kind != "sum":
        yield PlannedProgram(
            BLOCKS,
            rewrite.silent(rewrite.block_program(program, form)),
            "the program with a likelihood that runs over chosen blocks",
            _FEW,
            options={"user_header": HEADER, "stanc_args": ["--allow-undefined"]},
        )
    if parts:
        written = f", with {' and '.join(passes)}" if passes else ""
        why = f"the likelihood, separated from the terms that need no observations{written}"
        yield PlannedProgram(PARTS, parts.code, why, _FEW, "_parts")
    yield from _exported(parts)
    yield from _silenced(program)


def _exported(parts: Parts | None) -> Iterator[PlannedProgram]:
    if parts and parts.exporting:
        values = ", ".join(one.name for one in parts.computed)
        why = f"the values of {values}, which the separated likelihood reads as data"
        yield PlannedProgram(DATA, parts.exporting, why, _DATA, "_transformed_data")
