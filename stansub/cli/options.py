"""Arguments and choices that commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[Path, typer.Argument(metavar="MODEL.stan", help="Stan program.")]
Draws = Annotated[Path, typer.Argument(metavar="DRAWS.nc", help="File written by `stansub sample`.")]
Data = Annotated[Path, typer.Argument(metavar="DATA.json", help="Data in CmdStan's JSON format.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


class TestName(StrEnum):
    """Tests."""

    austerity = "austerity"
    pocock = "pocock"
    hoeffding = "hoeffding"
    bernstein = "bernstein"
    bernstein_serfling = "bernstein-serfling"
    barker = "barker"
    penalty = "penalty"
    exact = "exact"


class ProposalName(StrEnum):
    """Proposals."""

    auto = "auto"
    laplace_pcn = "laplace-pcn"
    langevin = "langevin"
    adaptive_metropolis = "adaptive-metropolis"
    random_walk = "random-walk"
    sgld = "sgld"


class OrderName(StrEnum):
    """Orders of control variates."""

    auto = "auto"
    none = "0"
    first = "1"
    second = "2"


class RangeName(StrEnum):
    """Sources of the range constant of the bounds."""

    auto = "auto"
    lipschitz = "lipschitz"
    function = "function"
    derivative = "derivative"
    scan = "scan"
    estimate = "estimate"


class EvaluatorName(StrEnum):
    """How block log likelihoods are evaluated."""

    auto = "auto"
    rewritten = "rewritten"
    instances = "instances"


class LookName(StrEnum):
    """Schedules of looks."""

    geometric = "geometric"
    fixed = "fixed"


# Panels of the help that several commands have.
DECISIONS, DATA, OUTPUT = "Decisions", "Data", "Output"

Looks = Annotated[
    LookName | None,
    typer.Option(
        help="Whether the subset grows by a factor or by a fixed number of blocks.", rich_help_panel=DECISIONS
    ),
]
FirstLook = Annotated[int | None, typer.Option(help="Blocks at the first look.", rich_help_panel=DECISIONS)]
BlockSize = Annotated[
    int | None, typer.Option(help="Observations a block.", show_default="chosen for the test", rich_help_panel=DATA)
]
Observations = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Integer data variable that counts the observations.", rich_help_panel=DATA),
]
Evaluator = Annotated[EvaluatorName, typer.Option(help="How blocks are evaluated.", rich_help_panel=DATA)]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Tell how the sampler was chosen, and why.", rich_help_panel=OUTPUT)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.", rich_help_panel=OUTPUT)]
