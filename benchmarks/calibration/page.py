"""The report: what is not uniform at a family-wise level, tables of models and cells, and a picture of each model."""

from __future__ import annotations

import json
import math
import os
import platform
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from cells import CELLS, CONTROLS, Cell
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.special import ndtr
from workloads import WORKLOADS

import stansub
from stansub.diagnostics.calibration import MOST_DRAWS, Calibration, Repeat, draw_band, draw_differences
from stansub.diagnostics.ranks import p_value
from stansub.errors import RunError
from stansub.output.style import CHAIN_COLOURS, DPI, ERROR_COLOUR, INK, STYLE

matplotlib.use("Agg")

Row = dict[str, Any]
Array = NDArray[np.float64]
Table = Mapping[tuple[str, str], Calibration | None]

# Family-wise error of everything that is called not calibrated.
LEVEL = 0.05
_TITLES = {"test": "Tests", "proposal": "Proposals", "control": "Negative controls"}
_COLOURS = (*CHAIN_COLOURS, ERROR_COLOUR, INK)
# Repeats of a model and a cell below which nothing is said about it.
FEWEST = 10
# Heading of what is about all models.
ALL = "all models"
# Smaller p-values are rounding errors.
_LEAST = 1e-12
# What is tried to tell how small an error shows: shifts in sd, and ratios of sds less 1.
_SIZES = np.round(np.arange(0.1, 3.05, 0.1), 1)
_SAMPLES = 200


@dataclass(frozen=True)
class Study:
    """Calibrations by model and cell.

    Attributes
    ----------
    found : mapping
        None where no repeat has draws.
    """

    found: Table

    @cached_property
    def models(self) -> list[str]:
        """Those that are there, in the order of `WORKLOADS`."""
        there = {model for model, _ in self.found}
        return [model for model in WORKLOADS if model in there]

    @cached_property
    def cells(self) -> list[Cell]:
        """Those that are there, in the order of `CELLS`."""
        there = {cell for _, cell in self.found}
        return [cell for cell in CELLS.values() if cell.name in there]

    def of(self, cell: Cell) -> dict[str, Calibration]:
        """The calibrations of a cell, by model."""
        pairs = ((model, self.found.get((model, cell.name))) for model in self.models)
        return {model: one for model, one in pairs if one is not None}

    @cached_property
    def together(self) -> dict[str, float]:
        """By cell of several programs, the p-value of all of them together, from one quantity of each repeat.

        Which one is drawn at random, so that the ranks are independent and, where all are calibrated, uniform.
        """
        rng = np.random.default_rng(0)
        pooled: dict[str, float] = {}
        for cell in self.cells:
            ranks = [rng.permuted(one.uniforms, axis=1)[:, 0] for one in self.of(cell).values()]
            if len(ranks) > 1:
                pooled[cell.name] = p_value(np.concatenate(ranks))
        return pooled

    @cached_property
    def critical(self) -> float:
        """The p-value at which a cell of a model is called not calibrated: Holm's method on all that are no controls.

        Controls are held against the same.
        """
        values = sorted(one.p_value for cell in self.cells if cell.kind != "control" for one in self.of(cell).values())
        for k, value in enumerate(values):
            if value > LEVEL / (len(values) - k):
                return LEVEL / (len(values) - k)
        return LEVEL

    def values(self, cell: Cell) -> dict[str, float]:
        """The p-values of a cell, by model, and of all of them."""
        together = {ALL: self.together[cell.name]} if cell.name in self.together else {}
        return {model: one.p_value for model, one in self.of(cell).items()} | together

    def failing(self, *, controls: bool) -> list[tuple[str, str]]:
        """Models and cells that are not calibrated, and cells of which all models together are not."""
        return [
            (model, cell.name)
            for cell in self.cells
            if (cell.kind == "control") == controls
            for model, value in self.values(cell).items()
            if value <= self.critical
        ]

    def count(self, *, controls: bool) -> int:
        """Models and cells that there are, and all models of a cell."""
        return sum(len(self.values(cell)) for cell in self.cells if (cell.kind == "control") == controls)


def visible(n: int, level: float, change: Callable[[Array, float], Array]) -> float:
    """The least change of ``n`` standardised truths that is seen with a probability of 0.9; inf where none is."""
    normal = np.random.default_rng(1).standard_normal((_SAMPLES, n))
    for size in _SIZES:
        found = [p_value(np.asarray(ndtr(change(sample, size)))) <= level for sample in normal]
        if np.mean(found) >= 0.9:
            return float(size)
    return math.inf


def _shift(normal: Array, size: float) -> Array:
    return normal + size


def _narrow(normal: Array, size: float) -> Array:
    return normal * (1 + size)


def _visible_text(n: int, level: float) -> str:
    """What shows in words; empty where nothing does."""
    shift, narrow = visible(n, level, _shift), visible(n, level, _narrow)
    texts = [f"shifted by {shift:g} posterior sd"] if math.isfinite(shift) else []
    texts += [f"with an sd too small by a factor of {1 + narrow:g}"] if math.isfinite(narrow) else []
    return ", or ".join(texts)


def study(rows: Sequence[Row]) -> Study:
    """Put repeats together by model and cell."""
    keys = dict.fromkeys(map(_key, rows))
    return Study({key: _calibration([row for row in rows if _key(row) == key]) for key in keys})


def _key(row: Row) -> tuple[str, str]:
    return row["model"], row["cell"]


def _calibration(rows: Sequence[Row]) -> Calibration | None:
    repeats = [Repeat(**{name: row[name] for name in Repeat._fields}) for row in rows]
    return Calibration.of(repeats) if any(not one.failure for one in repeats) else None


def write(rows: Sequence[Row], folder: Path, *, size: str, seed: int) -> Path:
    """Write the page, its pictures and, as JSON, its figures.

    Raises
    ------
    RunError
        When there is no model and cell with so many repeats that anything could be said.
    """
    counts = Counter(map(_key, rows))
    rows = sorted((row for row in rows if counts[_key(row)] >= FEWEST), key=lambda row: row["number"])
    made = study(rows)
    if not any(made.found.values()):
        raise RunError(f"no combination has {FEWEST} repeats with draws yet")
    for model in made.models:
        _picture(made, model, folder / f"{model}.png")
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).resolve().parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["thousands"] = "{:,}".format
    facts = _facts(made, rows) | {
        "size": size,
        "fewest": FEWEST,
        "left_out": sum(count < FEWEST for count in counts.values()),
        "seed": seed,
        "level": LEVEL,
        "most_draws": MOST_DRAWS,
        "controls": CONTROLS,
        "python": platform.python_version(),
        "stansub": stansub.__version__,
        "cores": os.cpu_count(),
    }
    (folder / "README.md").write_text(environment.get_template("page.md").render(facts), encoding="utf-8")
    (folder / "results.json").write_text(json.dumps(_figures(made), indent=1) + "\n", encoding="utf-8")
    return folder / "README.md"


def _facts(made: Study, rows: Sequence[Row]) -> dict[str, Any]:
    numbers = list(Counter(map(_key, rows)).values())
    controls = [cell for cell in made.cells if cell.kind == "control"]
    sizes = [len(one.names) for one in made.found.values() if one is not None]
    level = made.critical / float(np.median(sizes))
    together = [cell for cell in made.cells if cell.name in made.together]
    pooled = min((sum(len(one.uniforms) for one in made.of(cell).values()) for cell in together), default=0)
    return {
        "visible": _visible_text(min(numbers), level),
        "visible_together": _visible_text(pooled, made.critical) if pooled else "",
        "n_quantities": int(np.median(sizes)),
        "models": made.models,
        "runs": len(rows),
        "least_repeats": min(numbers),
        "most_repeats": max(numbers),
        "critical": p_text(made.critical),
        "failing": _by_cell(made.failing(controls=False)),
        "n_failing": len(made.failing(controls=False)),
        "n_tried": made.count(controls=False),
        "caught": {cell.name: _shown(made, cell) for cell in controls},
        "p_values": _table(made, lambda one: _marked(one.p_value, made.critical), made.together),
        "shares": _table(made, lambda one: f"{100 * one.share:.0f} %"),
        "warned": _table(made, _warnings),
        "doubts": _doubts(made),
        "failures": Counter(row["failure"].split(":")[0][:100] for row in rows if row["failure"]).most_common(),
    }


def _shown(made: Study, cell: Cell) -> str:
    """On how many models a control shows, and whether on all together."""
    models = [model for model, name in made.failing(controls=True) if name == cell.name]
    return f"{len({*models} - {ALL})} of {len(made.of(cell))} | {'yes' if ALL in models else 'no'}"


def _by_cell(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    cells = dict.fromkeys(cell for _, cell in pairs)
    return {cell: ", ".join(model for model, name in pairs if name == cell) for cell in cells}


def _table(made: Study, text: Callable[[Calibration], str], together: Mapping[str, float] | None = None) -> str:
    """Rows of cells under columns of models, as Markdown."""
    last = [ALL] if together is not None else []
    lines = ["| | " + " | ".join([*(model.replace("_", " ") for model in made.models), *last]) + " |"]
    lines.append("|---|" + "---|" * (len(made.models) + len(last)))
    for kind, title in _TITLES.items():
        own = [cell for cell in made.cells if cell.kind == kind]
        if own:
            lines.append(f"| **{title}** |" + " |" * (len(made.models) + len(last)))
        for cell in own:
            found = made.of(cell)
            texts = [text(found[model]) if model in found else "-" for model in made.models]
            if together is not None:
                texts.append(_marked(together[cell.name], made.critical) if cell.name in together else "-")
            lines.append("| " + " | ".join([cell.name, *texts]) + " |")
    return "\n".join(lines)


def _marked(value: float, critical: float) -> str:
    return f"**{p_text(value)}**" if value <= critical else p_text(value)


def p_text(value: float) -> str:
    """A p-value with two digits."""
    if value < _LEAST:
        return f"< {_LEAST:.0e}".replace("e-", "e−")
    return f"{value:.2f}" if value >= 0.01 else f"{value:.1e}".replace("e-", "e−")


def _warnings(one: Calibration) -> str:
    return f"{one.warned}" + (f" ({len(one.failed)} failed)" if one.failed else "")


def _doubts(made: Study) -> list[tuple[str, int]]:
    """What the runs warned of, controls left out."""
    total: Counter[str] = Counter()
    for cell in made.cells:
        if cell.kind != "control":
            for one in made.of(cell).values():
                total.update(one.doubts)
    return total.most_common()


def _figures(made: Study) -> list[dict[str, Any]]:
    figures = []
    for (model, cell), one in made.found.items():
        entry: dict[str, Any] = {"model": model, "cell": cell}
        if one is not None:
            entry |= {"repeats": len(one.uniforms), "p_value": one.p_value, "share": one.share, "warned": one.warned}
            entry |= {"doubts": dict(one.doubts), "failed": len(one.failed)}
            entry["quantities"] = {name: _rounded(row) for name, row in one.parameters.T.to_dict().items()}
        figures.append(entry)
    return figures


def _rounded(row: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in row.items()}


def _picture(made: Study, model: str, path: Path) -> None:
    """A panel a kind of cells, a line a cell: its quantity with the smallest p-value."""
    kinds = [kind for kind in _TITLES if any(cell.kind == kind for cell in made.cells)]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.2 * len(kinds), 4.3), layout="constrained")
        panels = np.atleast_1d(figure.subplots(1, len(kinds), sharey=True))
        for axes, kind in zip(panels, kinds, strict=True):
            own = [cell for cell in made.cells if cell.kind == kind and model in made.of(cell)]
            for colour, cell in zip(_COLOURS, own, strict=False):
                one = made.of(cell)[model]
                worst = int(np.argmin(one.p_values))
                label = f"{cell.name}: {one.names[worst]}"
                draw_differences(axes, one.uniforms[:, worst], label=label, color=colour)
            if own:
                found = [made.of(cell)[model] for cell in own]
                draw_band(axes, min(len(one.uniforms) for one in found), error=LEVEL / len(found[0].names))
            axes.set_title(_TITLES[kind])
            if own:
                axes.legend(fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
        for axes in panels[1:]:
            axes.set_ylabel("")
        figure.savefig(path, dpi=math.floor(DPI * 0.8))
