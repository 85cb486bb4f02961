"""Verdict whether a program qualifies: from its text alone, or proved with data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from stansub.errors import MAY_QUALIFY, InputError
from stansub.stan.analysis import NotASumError
from stansub.stan.compilation import compile_model
from stansub.stan.data import data as data_module
from stansub.stan.data.data import Data
from stansub.stan.data.sources import DataLike
from stansub.stan.posterior import Posterior
from stansub.stan.proof import Near
from stansub.stan.reading.remarks import Remark, find_line
from stansub.stan.source import Source
from stansub.stan.structures import NamedStructure


class Verdict(NamedTuple):
    """Verdict whether a program qualifies."""

    word: str
    """Word: "qualifies", "may qualify" or "will not qualify"."""
    because: str
    """Reason, in half a sentence."""
    code: int
    """The exit code of `stansub check`."""

    def __str__(self) -> str:
        return f"{self.word}: {self.because}"


@dataclass(frozen=True)
class Examination:
    """Result of examining a program."""

    source: Source
    observations: str = ""
    """Name of the integer that counts the observations; empty if not given."""
    values: Data | None = None
    """The data, if given."""
    posterior: Posterior | None = None
    """Set if there were data and the program qualifies."""
    reason: str = ""
    """How the numerical check failed, if it did."""

    @cached_property
    def structure(self) -> NamedStructure | None:
        """Return the kind of the program, if it is not a sum over observations, as far as the text shows."""
        return self.source.analysis.structure(self.observations)

    @cached_property
    def doubts(self) -> tuple[Remark, ...]:
        """Return statements that may tie observations together, as far as the text shows."""
        return tuple(self.source.analysis.doubts(self.observations))

    def verdict(self) -> Verdict:
        """Return the verdict in words, with line numbers of the user's file."""
        if self.posterior is not None:
            return Verdict("qualifies", "the likelihood is a sum over blocks, proved numerically for these data", 0)
        if self.structure is not None:
            is_one_of = f"{self.structure.structure.name}; {self.structure.structure.why}"
            return Verdict("will not qualify", is_one_of, InputError.exit_code)
        if not self.source.analysis.has_likelihood:
            why = "no statement of the model block adds a term for each observation, so there is no likelihood"
            return Verdict("will not qualify", why, InputError.exit_code)
        if self.reason:
            why = "its likelihood is not a sum over observations that can be evaluated in parts"
            return Verdict("will not qualify", why, InputError.exit_code)
        return Verdict("may qualify", f"{self._doubt()}; add data for a numerical proof", MAY_QUALIFY)

    def _doubt(self) -> str:
        if not self.doubts:
            return "its text shows no obstacle"
        first = self.doubts[0]
        if not first.statement:
            return first.message
        line = find_line(self.source.text, first.statement)
        return f"{f'line {line}' if line else 'a statement'} may tie observations together"


def examine(
    source: Source,
    data: DataLike | None,
    *,
    observations: str | None = None,
    block_size: Callable[[int, bool], int] | None = None,
    near: Near | None = None,
    progress: Callable[[str], None] | None = None,
) -> Examination:
    """Examine whether a program qualifies; with data, the numerical proof decides, whatever the text shows.

    For other arguments see `stansub.stan.compilation.CompiledModel.with_data`. Raises `InputError` if the data do not
    fit the program.
    """
    text = Examination(source, observations or "")
    if data is None:
        return text
    # Errors in the data are raised before compiling, which takes a minute.
    values = data_module.read(data, source.program.data.declarations)
    model = compile_model(source, progress=progress)
    try:
        posterior = model.with_data(
            values, block_size=block_size, observations=observations, near=near, progress=progress
        )
    except NotASumError as error:
        return replace(text, values=values, reason=error.reason)
    return replace(text, values=values, posterior=posterior)
