"""Programs rewritten to a form that qualifies, proved to have the same log density as the original."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from textwrap import dedent

import numpy as np

from stansub.errors import InputError, InterruptError, RunError
from stansub.stan import stanc, syntax
from stansub.stan.compilation import CompiledModel, compile_model
from stansub.stan.data import Data
from stansub.stan.elementwise.elements import NotSeparableError
from stansub.stan.elementwise.separate import LOG_LIK, separations
from stansub.stan.proof import Proof, draw_points, prove
from stansub.stan.source import Source

_N_POINTS = 5


@dataclass(frozen=True)
class Reformulated:
    """A program with a function ``log_lik_i``.

    Attributes
    ----------
    code : str
        The program.
    lines : tuple of str
        The function and the loop over it.
    proof : Proof
        Comparison of the original's log density with global part plus blocks of this program.
    """

    code: str
    lines: tuple[str, ...]
    proof: Proof


def reformulate(
    model: CompiledModel, values: Data, *, size: str = "", progress: Callable[[str], None] | None = None
) -> Reformulated:
    """Write a program with a function ``log_lik_i``, compile it, and prove it equal to the original on these data.

    Parameters
    ----------
    model : CompiledModel
        The original.
    values : Data
        Data for it.
    size : str
        The integer that counts the observations, if the user named it.
    progress : callable, optional
        Called with a line of text before each slow step.

    Raises
    ------
    NotSeparableError
        If no such program is found, with the first reason.
    """
    reasons = []
    for candidate in separations(model.program, size):
        if isinstance(candidate, NotSeparableError):
            reasons.append(candidate)
            continue
        try:
            return check_equal(model, candidate, values, progress=progress)
        except InterruptError:
            raise
        except (NotSeparableError, InputError, RunError) as error:  # it may not even compile
            reasons.append(NotSeparableError(str(error).splitlines()[0]))
    raise reasons[0] if reasons else NotSeparableError("no integer in its data block counts the observations")


def check_equal(
    model: CompiledModel, candidate: str, values: Data, *, progress: Callable[[str], None] | None = None
) -> Reformulated:
    """Compile a candidate, and compare its global part and blocks with the original's log density at several points.

    Raises
    ------
    NotSeparableError
        If they differ.
    InputError
        If stanc rejects it, or its likelihood is not a sum over observations either.
    """
    name = f"{model.name}_{LOG_LIK}"
    code = stanc.formatted(candidate, name=f"{name}.stan")
    written = compile_model(Source(name, code, syntax.parse(code)), progress=progress)
    posterior = written.with_data(values, progress=progress)
    full = values.model(model.original)
    points = draw_points(np.random.default_rng(0), full, n_points=_N_POINTS)
    proof = prove(posterior.population, full, points)
    if not proof.holds:
        raise NotSeparableError(f"rewriting it with a function {LOG_LIK} changes the log density")
    return Reformulated(code, _lines(posterior.program), proof)


def _lines(program: syntax.Program) -> tuple[str, ...]:
    function = next(one for one in program.functions if one.name == LOG_LIK)
    loop = next(
        one
        for one in syntax.find(syntax.For, program.model.statements)
        if any(call.name == LOG_LIK for call in syntax.calls(one))
    )
    texts = (program.code[program.code.rfind("\n", 0, start) + 1 : end] for start, end in (function.span, loop.span))
    return tuple(line for text in texts for line in dedent(text).splitlines())
