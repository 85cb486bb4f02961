"""Choice of the programs to compile for a user's program, with reasons, before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from stansub.stan.analysis import Analysis
from stansub.stan.approximation import COMPILED_WITH
from stansub.stan.parts import Parts, divide
from stansub.stan.passes.rewrite import in_one_slice, silenced
from stansub.stan.syntax import Program

# Roles of programs.
PROGRAM, PARTS, DATA = "program", "parts", "transformed data"
SILENT, SURROGATE = "without print", "surrogate"
# Purposes of programs in the progress display.
PROPOSALS, _FEW = "for proposals without data", "for decisions from subsets"
_DATA, _SILENT = "for its transformed data", "without print, for threads"


class PlannedProgram(NamedTuple):
    """A program to compile."""

    role: str
    code: str
    why: str
    """What it is for, in half a sentence."""
    goal: str = ""
    """Purpose for the progress display; empty for the user's own program."""
    suffix: str = ""
    """Suffix of the name of its library."""
    options: Mapping[str, Any] = {}
    """More arguments of `stansub.stan.toolchain.build.compile_library`."""


@dataclass(frozen=True)
class Plan:
    """The programs to compile."""

    programs: tuple[PlannedProgram, ...]
    """In the order in which compilers start."""
    parts: Parts | None
    """The program in parts, if there is one."""

    @property
    def reasons(self) -> dict[str, str]:
        """Return why each is compiled, by role."""
        return {one.role: one.why for one in self.programs}


@lru_cache(maxsize=64)
def plan(analysis: Analysis) -> Plan:
    """Return the programs to compile for a user's program, and why."""
    program, rewriting = analysis.program, analysis.rewriting
    passed = divide(rewriting.program) if rewriting.passes else None
    parts = passed or divide(program)
    found = (_whole(program), *_parts(parts, rewriting.passes if passed else ()), *_exported(parts))
    silent = silenced(program) if parts else in_one_slice(silenced(program))
    return Plan((*found, *_silenced(program, silent)), parts)


def plan_transitions(analysis: Analysis, *sizes: str) -> Plan:
    """Return the programs to compile for surrogate transitions, and why; ``sizes`` count the observations.

    Raises `NoPredictorsError` if the text shows no surrogate.
    """
    code, parts = analysis.likelihood_split(*sizes).surrogate, analysis.over_rows
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
        *_silenced(analysis.program, silenced(analysis.program)),
    )
    return Plan(programs, parts)


def _whole(program: Program) -> PlannedProgram:
    return PlannedProgram(PROGRAM, program.code, "the original program, against which all rewritten ones are proved")


def _silenced(program: Program, silent: Program) -> Iterator[PlannedProgram]:
    if silent is not program:
        why = "the program without print and profile, which are not thread-safe, and reduce_sum, which is slow"
        yield PlannedProgram(SILENT, silent.code, why, _SILENT)


def _parts(parts: Parts | None, passes: tuple[str, ...]) -> Iterator[PlannedProgram]:
    if parts:
        written = f", with {' and '.join(passes)}" if passes else ""
        why = f"the likelihood, separated from the terms that need no observations{written}"
        yield PlannedProgram(PARTS, parts.code, why, _FEW, "_parts")


def _exported(parts: Parts | None) -> Iterator[PlannedProgram]:
    if parts and parts.exporting:
        values = ", ".join(one.name for one in parts.computed)
        why = f"the values of {values}, which the separated likelihood reads as data"
        yield PlannedProgram(DATA, parts.exporting, why, _DATA, "_transformed_data")
