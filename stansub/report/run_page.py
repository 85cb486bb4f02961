"""A report on one run: the posterior, whether to trust it, what it cost and how to reproduce it, on one HTML page."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stansub._version import __version__
from stansub.findings import Severity
from stansub.output import plots
from stansub.output import summary as summaries
from stansub.output.checks import R_HAT_MAX
from stansub.output.headline import headline
from stansub.output.inference_data import InferenceData, attrs
from stansub.report.page import Cell, Table, origin_of
from stansub.report.render import Picture, Spell, html_page, picture


def page_of(draws: InferenceData, *, command: str = "", notes: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the texts of a report on draws by their names in its template; ``style`` is that of the verdict's box.

    Parameters
    ----------
    command : str
        Command that makes the same draws; empty if there is none.
    notes : tuple of str
        Sentences to print below the pictures.
    """
    facts, found = attrs(draws), summaries.summarise(draws)
    shown = found.shown
    cells, high = summaries.cells(shown), list(shown["r_hat"] > R_HAT_MAX)
    rows = tuple(
        (Cell(str(name)), *(Cell(texts[k], column == "r_hat" and high[k]) for column, texts in cells.items()))
        for k, name in enumerate(shown.index)
    )
    severity = max((one.severity for one in found.findings), default=None)
    style, verdict = {
        None: ("agrees", "No warnings"),
        Severity.NOTE: ("agrees", "No warnings"),
        Severity.COST: ("agrees", "No warnings about the draws"),
        Severity.DOUBT: ("differs", "Read the warnings first"),
        Severity.REJECT: ("do-not-use", "Do not use these draws"),
    }[severity]
    details = (line for part in summaries.details(found.record, facts) for line in part)
    return {
        "title": f"Posterior of {facts.get('model', 'an unnamed program')}",
        "created": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": __version__,
        "style": style,
        "verdict": verdict,
        "headline": headline(found.statistics, found.record, facts, found.findings),
        "warnings": tuple(one.describe() for one in found.findings),
        "statistics": Table((), ("", *cells), rows),
        "left_out": found.n_scalars - len(found.shown),
        "notes": notes,
        "details": _labelled(details),
        "command": command,
        "origin": _labelled(origin_of(draws)),
        "program": str(facts.get("model_code", "")),
    }


def pictures_of(draws: InferenceData, predicted: InferenceData | None = None) -> list[Picture]:
    """Return the pictures of a report on draws; ``predicted`` are replicated data, as `stansub.ppc` returns them."""
    with tempfile.TemporaryDirectory() as folder:
        return [
            picture(stem, title, reading, _drawn(draw, Path(folder, f"{stem}.png")))
            for stem, title, reading, draw in _drawings(draws, predicted)
        ]


def html(
    draws: InferenceData,
    *,
    predicted: InferenceData | None = None,
    command: str = "",
    note: str = "",
    spell: Spell = str,
) -> str:
    """Return a report on draws as one HTML page that needs no other file.

    Parameters
    ----------
    predicted : InferenceData, optional
        Replicated data for the posterior predictive check, as `stansub.ppc` returns them.
    command : str
        Command that makes the same draws.
    note : str
        Sentence to print below the pictures.
    spell : callable
        How to write the options in a text.
    """
    page = page_of(draws, command=command, notes=(note,) if note else ())
    return html_page("run.html.j2", spell=spell, page=page, pictures=pictures_of(draws, predicted))


_Drawing = tuple[str, str, str, Callable[[Path], None]]


def _drawings(draws: InferenceData, predicted: InferenceData | None) -> Iterator[_Drawing]:
    """Yield name, title, how to read it, and the function that draws it, for each picture."""
    yield (
        "trace",
        "Traces and ranks of each chain",
        "Left: draws in order. Right: ranks of each chain's draws among all draws. If the chains have converged, their "
        "traces overlap and the rank histograms are flat.",
        lambda path: plots.trace(draws, path),
    )
    if plots.n_pairable(draws) > 1:
        yield (
            "pairs",
            "Pairs of the most correlated quantities",
            "Joint draws of the quantities with the strongest correlations, and the distribution of each.",
            lambda path: plots.pairs(draws, path),
        )
    if predicted is not None:
        yield (
            "predictive",
            "Posterior predictive check",
            "Distribution of the data and of data that the model predicts, over a random subset of the observations.",
            lambda path: plots.predictive(predicted, path),
        )
    if plots.records_share(draws):
        yield (
            "data",
            "Share of the data used",
            "Share of the observations that each decision used, and the acceptance rate.",
            lambda path: plots.share_of_data(draws, path),
        )


def _drawn(draw: Callable[[Path], None], path: Path) -> Path:
    draw(path)
    return path


def _labelled(lines: Iterable[tuple[str, str]]) -> Table:
    rows = tuple((Cell(label), Cell(text)) for label, text in lines)
    return Table((), ("", ""), rows)
