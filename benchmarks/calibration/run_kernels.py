"""Simulation-based calibration of the kernels for multilevel programs, beside kernels with a deliberate error.

python benchmarks/calibration/run_kernels.py                 # 40 data sets of each program
python benchmarks/calibration/run_kernels.py --repeats 300   # detects smaller errors

`kernels.py` has the method. The report is reports/calibration/kernels.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from kernels import KERNELS, N_STEPS, Kernel, Row, compiled, named, rows
from multilevel import MODELS, Multilevel

import stansub
from stansub.diagnostics.ranks import p_value

HERE = Path(__file__).resolve().parent
REPORTS = HERE.parent.parent / "reports"
REPEATS = 40
# Probability of any false alarm.
LEVEL = 0.01


@dataclass(frozen=True)
class Result:
    """A kernel on all data sets of a program."""

    kernel: Kernel
    model: Multilevel
    rows: Sequence[Row]

    @property
    def failures(self) -> list[str]:
        """Return the messages of the data sets without ranks."""
        return [row.failure for row in self.rows if row.failure]

    @property
    def p_values(self) -> dict[str, float]:
        """Return the p-value of each quantity's ranks; none if no data set has ranks."""
        uniforms = np.array([row.uniforms for row in self.rows if not row.failure])
        return dict(zip(named(self.model), map(p_value, uniforms.T), strict=True)) if len(uniforms) else {}

    @property
    def least(self) -> tuple[float, str]:
        """Return the smallest p-value, and its quantity."""
        return min(((value, name) for name, value in self.p_values.items()), default=(1.0, ""))

    def mean(self, name: str) -> float:
        """Return the mean of a figure over the data sets."""
        return float(np.nanmean([getattr(row, name) for row in self.rows]))


@dataclass(frozen=True)
class Study:
    """Results of all kernels."""

    results: Sequence[Result]

    @classmethod
    def of(cls, made: Iterable[Row]) -> Study:
        """Return the study of rows in any order."""
        found: dict[tuple[int, str], list[Row]] = {}
        for row in made:
            found.setdefault((row.kernel, row.model), []).append(row)
        order = list(MODELS)
        keys = sorted(found, key=lambda key: (key[0], order.index(key[1])))
        return cls([Result(KERNELS[k], MODELS[name], found[k, name]) for k, name in keys])

    @property
    def correct(self) -> list[Result]:
        """Return the results of kernels without an error."""
        return [one for one in self.results if not one.kernel.error]

    @property
    def broken(self) -> list[Result]:
        """Return the results of kernels with an error."""
        return [one for one in self.results if one.kernel.error]

    @property
    def n_comparisons(self) -> int:
        """Return the number of quantities of correct kernels."""
        return sum(len(named(one.model)) for one in self.correct)

    @property
    def critical(self) -> float:
        """Return the p-value up to which a quantity fails: Bonferroni's, valid for any dependence."""
        return LEVEL / self.n_comparisons

    def fails(self, one: Result) -> bool:
        """Return whether ranks are not uniform, or there are none of some data sets."""
        return bool(one.failures) or one.least[0] <= self.critical


def _some(name: str, number: int, seed: int) -> list[Row]:
    return list(rows(MODELS[name], number, seed))


def run_all(repeats: int, seed: int, jobs: int) -> list[Row]:
    """Return the rows of all data sets, from several processes."""
    made: list[Row] = []
    for name in MODELS:
        print(f"{name}: program", file=sys.stderr, flush=True)
        compiled(name)
    # Libraries that were loaded keep threads, which a forked process would lack.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(_some, name, number, seed) for number in range(repeats) for name in MODELS]
        for count, future in enumerate(futures, start=1):
            made += future.result()
            print(f"{count} of {len(futures)} data sets", file=sys.stderr, flush=True)
    return made


def p_text(value: float) -> str:
    """Return a p-value with one or two digits."""
    if value < 1e-12:
        return "below 1e−12"
    return f"{value:.2f}" if value >= 0.01 else f"{value:.0e}".replace("e-0", "e−").replace("e-", "e−")


def write(study: Study, folder: Path, *, repeats: int, seed: int) -> Path:
    """Write the page and, as JSON, all figures; return the path of the page."""
    environment = Environment(
        loader=FileSystemLoader(HERE), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["p"] = p_text
    facts = {
        "study": study,
        "repeats": repeats,
        "seed": seed,
        "level": LEVEL,
        "n_steps": N_STEPS,
        "failing": [one for one in study.correct if study.fails(one)],
        "caught": sum(map(study.fails, study.broken)),
        "stansub": stansub.__version__,
    }
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "kernels.md"
    page.write_text(environment.get_template("kernels.md").render(facts), encoding="utf-8")
    (folder / "kernels.json").write_text(json.dumps(_figures(study), indent=1) + "\n", encoding="utf-8")
    return page


def _figures(study: Study) -> list[dict[str, Any]]:
    return [
        {
            "kernel": one.kernel.name,
            "decision": one.kernel.decision,
            "error": one.kernel.error,
            "model": one.model.name,
            "data_sets": len(one.rows),
            "failures": len(one.failures),
            "p_values": one.p_values,
        }
        for one in study.results
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study and write its report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"data sets of each program; {REPEATS} by default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--output-dir", type=Path, default=REPORTS / "calibration")
    options = parser.parse_args(arguments)
    if options.jobs < 1 or options.repeats < 2 or options.seed < 0:
        parser.error("--jobs must be at least 1, --repeats at least 2, --seed at least 0")
    study = Study.of(run_all(options.repeats, options.seed, options.jobs))
    print(write(study, options.output_dir, repeats=options.repeats, seed=options.seed))


if __name__ == "__main__":
    main()
