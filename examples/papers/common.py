"""What the applications share: arguments, data by path, risk against time, today's default and NUTS, pages.

Each application is a folder with ``run.py``, its Stan program where it has one, and ``page.md``, a template: figures
in it come from the run. ``python examples/papers/NAME/run.py`` writes the page with its pictures to
``reports/papers/NAME``; ``python examples/papers/run_all.py`` writes all of them, and the index.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import arviz as az
import matplotlib
import numpy as np
import orjson
from jinja2 import Environment, StrictUndefined
from numpy.typing import NDArray

import stansub
from stansub.output import inference_data
from stansub.output.style import BLUE, CHAIN_COLOURS, DPI, ERROR_COLOUR, INK, STYLE

matplotlib.use("Agg")

Array = NDArray[np.float64]
T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent.parent
REPORTS = ROOT / "reports" / "papers"
# Numbers that are not finite become null.
_JSON = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
# Colours of the engines, the same on every page.
DEFAULT_COLOUR, NUTS_COLOUR, EXACT_COLOUR = CHAIN_COLOURS[2], ERROR_COLOUR, INK
COLOURS = (BLUE, *CHAIN_COLOURS[1:2], *CHAIN_COLOURS[3:5])


@dataclass(frozen=True)
class Settings:
    """How an application runs.

    Attributes
    ----------
    folder : Path
        Of the application.
    full : bool
        Whether it runs at the size of the paper, or as near as the machine allows.
    seed : int
    out : Path
        Where the page goes.
    data : Path or None
        Folder of data sets that are not in a package.
    """

    folder: Path
    full: bool
    seed: int
    out: Path
    data: Path | None

    def pick(self, small: T, full: T) -> T:
        """One of two values, by the size."""
        return full if self.full else small

    def find(self, file: str) -> Path | None:
        """A data file, such as ``covtype/covtype_binary.npz``; None where there is none."""
        path = self.data / file if self.data else None
        return path if path is not None and path.is_file() else None

    @property
    def program(self) -> Path:
        """The Stan program of the application, where it has one."""
        return next(self.folder.glob("*.stan"))


def settings(run: str, about: str | None, arguments: Sequence[str] | None = None) -> Settings:
    """Read the command line of an application, given its ``__file__`` and ``__doc__``."""
    folder = Path(run).resolve().parent
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("small", "full"), default="small", help="small by default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output-dir", type=Path, default=REPORTS / folder.name)
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path(os.environ.get("STANSUB_DATA", ROOT.parent / "shared" / "data")),
        help="folder of data sets; without them data of the same shape are simulated",
    )
    given = parser.parse_args(arguments)
    given.output_dir.mkdir(parents=True, exist_ok=True)
    # Short runs have much against them, which stays in their attributes: pages quote what matters.
    warnings.filterwarnings("ignore", category=stansub.DrawsWarning)
    data = given.data_dir if given.data_dir.is_dir() else None
    return Settings(folder, given.size == "full", given.seed, given.output_dir, data)


class Curve(NamedTuple):
    """Risk of an estimate against time.

    Attributes
    ----------
    seconds : ndarray, shape (n,)
    risk : ndarray, shape (n,)
        Squared error of the running mean, averaged over functions and chains; nan before the first draw of a chain.
    error : ndarray, shape (n,)
        Its standard error over chains.
    """

    seconds: Array
    risk: Array
    error: Array


def risk(values: Sequence[Array], seconds: Sequence[float], truth: Array, *, start: float = 0.0, n: int = 40) -> Curve:
    """The risk of running means of repeated chains (Korattikara et al. 2014, section 3).

    Parameters
    ----------
    values : sequence of ndarray, shape (draws, functions)
        Of each chain; the draws are taken to be evenly spread over its seconds.
    seconds : sequence of float
        Of the sampling of each chain.
    truth : ndarray, shape (functions,)
    start : float
        Seconds spent before the first draw, such as those of warmup or set-up; the curve begins there.
    n : int
        Points of the curve.
    """
    last = min(seconds)
    grid = np.geomspace(max(last / 300, 1e-3), last, n)
    losses = np.full((len(values), n), np.nan)
    for row, (own, whole) in enumerate(zip(values, seconds, strict=True)):
        means = np.cumsum(own, axis=0) / np.arange(1, len(own) + 1)[:, None]
        places = np.floor(grid / whole * len(own)).astype(int) - 1
        seen = places >= 0
        losses[row, seen] = ((means[places[seen]] - truth) ** 2).mean(axis=1)
    counts = max(len(values), 2)
    return Curve(start + grid, losses.mean(axis=0), losses.std(axis=0, ddof=1) / math.sqrt(counts))


def draw_risk(axes: Any, curves: Mapping[str, Curve], colours: Mapping[str, str] | None = None) -> None:
    """Draw risks against time on logarithmic axes, with a band of one standard error."""
    given = dict(zip(curves, (*COLOURS, *CHAIN_COLOURS), strict=False)) | dict(colours or {})
    for label, curve in curves.items():
        axes.plot(curve.seconds, curve.risk, label=label, color=given[label], lw=1.4)
        low = np.maximum(curve.risk - curve.error, curve.risk / 10)
        axes.fill_between(curve.seconds, low, curve.risk + curve.error, color=given[label], alpha=0.15, lw=0)
    axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel="risk")
    # Below the axes, where no curve is.
    axes.legend(fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.2))


class Drawn(NamedTuple):
    """Draws of an engine with its costs, as every page shows them.

    Attributes
    ----------
    idata : InferenceData
    whole : float
        Seconds of the whole run, compilation left out.
    sampling : float
        Seconds of sampling: of all chains, divided by those that run at once.
    ess : float
        The smallest bulk ESS of any parameter.
    """

    idata: Any
    whole: float
    sampling: float
    ess: float

    @property
    def ess_per_second(self) -> float:
        """Of sampling."""
        return self.ess / self.sampling


_PARALLEL = 2


def with_default(program: Any, data: Any = None, **options: Any) -> Drawn:
    """Draws as `stansub.sample` makes them by itself."""
    return drawn(lambda: stansub.sample(program, data, parallel_chains=_PARALLEL, show_progress=False, **options))


def with_nuts(program: Any, data: Any, **options: Any) -> Drawn:
    """Draws of NUTS."""
    return drawn(lambda: stansub.reference(program, data, parallel_chains=_PARALLEL, show_progress=False, **options))


def drawn(make: Callable[[], Any]) -> Drawn:
    """Run an engine, with its costs."""
    began = time.perf_counter()
    idata = make()
    whole = time.perf_counter() - began - float(idata.attrs.get("compile_time", 0.0))
    sampling = float(idata["chain_stats"]["sampling_time"].sum()) / _PARALLEL
    return Drawn(idata, whole, sampling, smallest_ess(idata))


def smallest_ess(idata: Any, names: Sequence[str] | None = None) -> float:
    """The smallest bulk ESS of any parameter."""
    found = az.ess(inference_data.group(idata, "posterior"), var_names=names)
    return float(min(found[name].min() for name in found.data_vars))


def share_of_data(idata: Any) -> float:
    """Share of the data in a decision's subset, averaged over all steps of all chains."""
    stats = idata["chain_stats"]
    return float(stats["n_obs_used"].sum() / stats["n_steps"].sum() / int(idata.attrs["n_observations"]))


def share_wrong(idata: Any) -> float:
    """Share of the audited decisions that come out differently on all the data; nan where none was audited."""
    stats = idata["chain_stats"]
    audited = float(stats["n_audited"].sum())
    return float(stats["n_audit_wrong"].sum()) / audited if audited else math.nan


@dataclass
class Page:
    """The page of an application: pictures, and the values that its template shows.

    Attributes
    ----------
    settings : Settings
    began : float
    """

    settings: Settings
    began: float = field(default_factory=time.perf_counter)

    def figure(self, columns: int = 1, rows: int = 1, **options: Any) -> tuple[Any, Any]:
        """A figure with axes, in the style of the package."""
        import matplotlib.pyplot as plt

        plt.rcParams.update(STYLE)
        return plt.subplots(rows, columns, figsize=(4.2 * columns, 3.2 * rows), layout="constrained", **options)

    def save(self, figure: Any, name: str) -> None:
        """Write a picture: ``![what it shows](name.png)`` in the template shows it."""
        import matplotlib.pyplot as plt

        figure.savefig(self.settings.out / f"{name}.png", dpi=DPI)
        plt.close(figure)

    def write(self, summary: str, **values: Any) -> Path:
        """Fill the template in; the values are kept beside it.

        Parameters
        ----------
        summary : str
            The result, in a sentence of the index.
        **values
            What the template names: numbers, texts, lists and mappings of them.
        """
        out = self.settings.out
        facts = {
            "size": "full" if self.settings.full else "small",
            "seed": self.settings.seed,
            "seconds": time.perf_counter() - self.began,
            "python": platform.python_version(),
            "stansub": stansub.__version__,
            "cores": os.cpu_count(),
        }
        environment = Environment(
            undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
        )
        environment.filters |= {"percent": percent, "figures": figures, "seconds": seconds_text}
        template = environment.from_string((self.settings.folder / "page.md").read_text(encoding="utf-8"))
        text = template.render(**facts, **values)
        title = next(line for line in text.splitlines() if line.startswith("# "))[2:]
        (out / "README.md").write_text(text, encoding="utf-8")
        kept = {"title": title, "summary": summary, **facts, "values": values}
        (out / "results.json").write_bytes(orjson.dumps(kept, default=_plain, option=_JSON))
        print(f"{summary}\n{out / 'README.md'}", file=sys.stderr)
        return out / "README.md"


def percent(share: float, digits: int = 2) -> str:
    """A share as a percentage."""
    return f"{figures(100 * share, digits)} %"


def figures(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, thousands separated."""
    if not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}" if decimals <= digits + 3 else f"{value:.{digits - 1}e}"


def seconds_text(value: float) -> str:
    """A duration."""
    return f"{figures(value, 2)} s" if value < 120 else f"{value / 60:.0f} min"


def _plain(value: Any) -> Any:
    """What JSON has no name for; arrays that do not lie row by row, among others."""
    return value.tolist() if isinstance(value, np.ndarray) else str(value)
