"""One program: what `stansub check` says of it, what its cut into blocks costs, and its draws beside a reference."""

from __future__ import annotations

import contextlib
import io
import json
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from corpus import Case, Obstacle
from rich.console import Console

import stansub
from stansub.cli import main as command_line
from stansub.errors import DrawsWarning, StansubError, one_line
from stansub.output.inference_data import attrs
from stansub.stan.posterior import Posterior

if TYPE_CHECKING:
    from stansub.output.inference_data import InferenceData

Row = dict[str, Any]

QUALIFIES, MAYBE, REFUSED = "qualifies", "may qualify", "will not qualify"
NO_WORD = "says neither"
# How lines with a reason begin.
_ERROR, _EXACT = "stansub: error: ", "Exact "
# Exit codes of `stansub check` with data.
_YES, _NO = 0, 2
_BLOCKS, _TRIES = 200, 5
# Seconds of a run at most, and chains of the reference.
_MAX_TIME, _CHAINS = 180.0, 4


@dataclass(frozen=True)
class Subject:
    """A program with data.

    Attributes
    ----------
    name, about : str
    path : Path
        The Stan file.
    data : mapping
    is_sum : bool or None
        Whether its likelihood is a sum over observations; None where nobody has said so.
    obstacle : Obstacle or None
        Why it is not.
    reference : InferenceData or None
        Draws to compare with; None for those of NUTS.
    """

    name: str
    about: str
    path: Path
    data: Mapping[str, Any]
    is_sum: bool | None = None
    obstacle: Obstacle | None = None
    reference: InferenceData | None = None

    @classmethod
    def of(cls, case: Case, n: int, seed: int) -> Subject:
        """A program of the corpus with about n observations."""
        return cls(case.name, case.about, case.path, case.data(n, seed), case.obstacle is None, case.obstacle)


class Answer(NamedTuple):
    """What `stansub check` printed, and its exit code."""

    code: int
    out: str
    error: str

    @property
    def text(self) -> str:
        return f"{self.out}\n{self.error}"

    @property
    def first_line(self) -> str:
        return self.out.strip().partition("\n")[0]

    @property
    def said(self) -> str:
        """Return the verdict in its first line."""
        head = self.first_line.lower()
        return next((word for word in (REFUSED, MAYBE, QUALIFIES) if word in head), NO_WORD)

    @property
    def is_exact(self) -> bool:
        """Return whether decisions of a run would be exact."""
        return self._exact.startswith("yes")

    @property
    def inexact(self) -> str:
        """Return why decisions of a run would not be exact."""
        return self._exact.removeprefix("no: ")

    @property
    def _exact(self) -> str:
        lines = (line.removeprefix(_EXACT).strip() for line in self.out.splitlines() if line.startswith(_EXACT))
        return next(lines, "")

    @property
    def reason(self) -> str:
        """Return in one line why it refuses."""
        errors = [line for line in self.error.splitlines() if line.startswith(_ERROR)]
        if errors:
            return errors[-1].removeprefix(_ERROR)
        return self.first_line


def ask(*arguments: str | Path) -> Answer:
    """`stansub check` with these arguments."""
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            command_line(["check", *map(str, arguments)])
            code: Any = 0
        except SystemExit as stopped:
            code = stopped.code or 0
    return Answer(int(code), out.getvalue(), error.getvalue())


def by_text(subject: Subject) -> Row:
    """What the text alone tells `stansub check`."""
    obstacle, answer = subject.obstacle, ask(subject.path)
    return {
        "program": subject.name,
        "about": subject.about,
        "is_sum": subject.is_sum,
        "obstacle": obstacle.name if obstacle else None,
        "text": answer.said,
        "named": answer.said == REFUSED and _names(answer, obstacle),
    }


def _names(answer: Answer, obstacle: Obstacle | None) -> bool:
    """Whether a refusal says what the program is."""
    return any(word in answer.text.lower() for word in (obstacle.words if obstacle else ()))


def measure(subject: Subject, *, sampled: bool, seed: int) -> Row:
    """All figures of a program, in plain values."""
    row = by_text(subject)
    with TemporaryDirectory() as folder:
        data = Path(folder) / f"{subject.name}.json"
        data.write_text(json.dumps(subject.data, default=lambda value: value.tolist()), encoding="utf-8")
        answer = ask(subject.path, data)
        if answer.code not in (_YES, _NO):
            return row | {"failure": answer.reason}
        row["qualifies"] = answer.code == _YES
        row["exact"] = answer.is_exact
        if not row["qualifies"]:
            row["reason"] = answer.reason
            row["named"] = _names(answer, subject.obstacle)
        else:
            if not answer.is_exact:
                row["inexact"] = answer.inexact
            row |= _cut(subject.path, data)
            if sampled:
                row["draws"] = _draws(subject, data, seed)
    return row


def _cut(path: Path, data: Path) -> Row:
    """The blocks, their proof, and what they cost."""
    model = stansub.compile_model(path)
    began = time.perf_counter()
    posterior = model.with_data(data)
    seconds = time.perf_counter() - began
    whole, block = _costs(posterior)
    return {
        "observations": posterior.blocks.n_observations,
        "parameters": posterior.dim,
        "block_size": posterior.blocks.size,
        "proof": posterior.proof.error,
        "set_up_s": seconds,
        "block_s": block,
        "times_whole": block * len(posterior.blocks) / whole,
    }


def _costs(posterior: Posterior) -> tuple[float, float]:
    """Seconds of the user's whole log density, and of a block in it."""
    theta = posterior.points[0]
    evaluator, some = posterior.population.evaluator(), np.arange(min(len(posterior.blocks), _BLOCKS), dtype=np.int32)
    shared = _seconds(lambda: evaluator.global_log_density(theta))
    together = _seconds(lambda: evaluator.block_log_lik(theta, some))
    return _seconds(lambda: posterior.full.log_density(theta)), max(together - shared, 1e-9) / len(some)


def _seconds(action: Callable[[], object]) -> float:
    """The shortest of some tries, each long enough for the clock."""
    best = float("inf")
    for _ in range(_TRIES):
        count, began = 0, time.perf_counter()
        while (passed := time.perf_counter() - began) < 1e-3 or not count:
            action()
            count += 1
        best = min(best, passed / count)
    return best


def _draws(subject: Subject, data: Path, seed: int) -> Row:
    """A run with nothing chosen but its longest time, beside the reference."""
    quiet = Console(quiet=True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DrawsWarning)
            began = time.perf_counter()
            found = stansub.sample(subject.path, data, seed=seed, max_time=_MAX_TIME, console=quiet)
            seconds = time.perf_counter() - began
            said = [str(one.message) for one in caught if issubclass(one.category, DrawsWarning)]
            run = {"chains": _CHAINS, "seed": seed + 1} if subject.reference is None else {}
            beside = stansub.compare(found, subject.reference, data=data, console=quiet, **run)
    except StansubError as error:
        return {"failure": one_line(error)}
    facts = attrs(found)
    return {
        "test": facts["test"],
        "guarantee": str(facts["guarantee"]),
        "seconds": seconds,
        "compiling_s": facts["compile_time"],
        "largest_z": float(beside.parameters["mean_z"].abs().max()),
        "largest_difference_sd": float(beside.parameters["mean_diff_sd"].abs().max()),
        "warnings": said,
        "verdict": beside.verdict.word,
        "headline": beside.verdict.headline,
    }
