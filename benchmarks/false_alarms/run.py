"""How often is the verdict of `stansub compare` a false alarm? NUTS beside NUTS, on programs as people have them.

python benchmarks/false_alarms/run.py                     # programs in brms's style; half an hour of compilers first
python benchmarks/false_alarms/run.py --only brms_beta    # some of these
python benchmarks/false_alarms/run.py --programs FOLDER   # and programs of your own, NAME.stan with NAME.json

The runs of a program are paired in turn and compared three ways: as they are, with every fourth draw of one, and with
the draws of one held as those of a sampler that rejects proposals. One run is compared with all others together.
Nothing differs there, so the share of pairs that are called different should be at most the level. As a control the
pairs are compared again with faults. Draws are kept in reports/draws and used again. Writes
reports/false_alarms/README.md and results.json, and ends with 1 if alarms are more frequent than the level, or a fault
is found less often than its standard error predicts (tests at 0.1 %).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from scipy.stats import binomtest

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent))

from pairs import AGREEING, AS_THEY_ARE, FAULTS, JOINED, LEVELS, Row, Subject, corpus, in_folder, rows, runs  # noqa: E402
from suite.machine import facts  # noqa: E402

from stansub.errors import StansubError, one_line  # noqa: E402

REPORTS = HERE.parent.parent / "reports"
ALIKE = (*AGREEING, JOINED)
# Words for pairs that cannot be compared.
UNDECIDED = ("inconclusive", "do not use")
# Probability with which a verdict or test that keeps its promise fails here.
ALARM = 0.001


class Count(NamedTuple):
    """How many of n pairs are called different."""

    n: int
    different: int

    @classmethod
    def of(cls, some: Iterable[Row], *, found: Sequence[str] = ("differs",)) -> Count:
        """Of the pairs that can be decided."""
        words = [row["word"] for row in some]
        decided = [word for word in words if word == "agrees" or word in found]
        return cls(len(decided), sum(word in found for word in decided))

    @property
    def text(self) -> str:
        if not self.n:
            return "none"
        low, high = binomtest(self.different, self.n).proportion_ci()
        return f"{self.different} of {self.n} ({self.different / self.n:.1%}, 95 % interval {low:.1%} to {high:.1%})"

    def exceeds(self, share: float) -> bool:
        return self.n > 0 and binomtest(self.different, self.n, share, alternative="greater").pvalue < ALARM

    def misses(self, share: float) -> bool:
        return self.n > 0 and binomtest(self.different, self.n, share, alternative="less").pvalue < ALARM


class Findings:
    """Results of a run, from its rows."""

    def __init__(self, found: Sequence[Row]) -> None:
        self.rows = found

    def alarms(self, kind: str, level: float) -> Count:
        return Count.of(row for row in self.rows if row["kind"] == kind and row["level"] == level)

    def caught(self, kind: str) -> tuple[Count, float | None]:
        """How often a fault is found, and how often the test of the quantity's own mean or sd would find it."""
        some = [row for row in self.rows if row["kind"] == kind]
        predicted = [row["predicted"] for row in some if row["predicted"] is not None]
        return Count.of(some, found=("differs", "do not use")), sum(predicted) / len(predicted) if predicted else None

    @property
    def undecided(self) -> list[Row]:
        """Unchanged pairs without a verdict, at the level that the verdict claims."""
        return [row for row in self.first if row["word"] in UNDECIDED]

    @property
    def alarming(self) -> list[Row]:
        """Pairs that are called different at the level that the verdict claims."""
        return [
            row for row in self.rows if row["kind"] in ALIKE and row["level"] == LEVELS[0] and row["word"] == "differs"
        ]

    @property
    def first(self) -> list[Row]:
        return [row for row in self.rows if row["kind"] == AS_THEY_ARE and row["level"] == LEVELS[0]]

    @property
    def programs(self) -> Iterable[tuple[str, list[Row]]]:
        for name, some in groupby(self.first, key=lambda row: row["program"]):
            yield name, list(some)

    @property
    def passed(self) -> bool:
        often = any(self.alarms(kind, level).exceeds(level) for kind in ALIKE for level in LEVELS)
        powers = [self.caught(kind) for kind in FAULTS]
        return not (often or any(count.misses(power) for count, power in powers if power is not None))


def page(found: Findings, header: dict[str, Any]) -> str:
    """The report."""
    machine = header["machine"]
    lines = [
        "# False alarms of `stansub compare`",
        "",
        f"The study compares runs of NUTS ({header['engine']}, 4 chains of 1,000 draws) with other runs of NUTS on the "
        "same program and data: programs of `benchmarks/reach` in brms's style (`brms_`), and others. Both sides of a "
        "pair have the same distribution, so every difference that the verdict reports is a false alarm. `stansub "
        "compare` uses the level 1 %. At 20 %, the same number of pairs is more informative.",
        "",
        "```sh",
        header["command"],
        "```",
        "",
        "## Pairs with the same distribution",
        "",
        f"| runs | {' | '.join(f'reported as different, level {level:.0%}' for level in LEVELS)} |",
        f"|---|{'---|' * len(LEVELS)}",
        *(f"| {kind} | {' | '.join(found.alarms(kind, level).text for level in LEVELS)} |" for kind in ALIKE),
        "",
        "Intervals are those of Clopper and Pearson; rows are not independent. Pairs that the verdict calls unfit "
        f"(divergences, R-hat, too few effective draws) are excluded: {len(found.undecided)} of the "
        f"{len(found.first)} unchanged pairs.",
        "",
        *(f"- `{row['program']}`, {row['kind']}: {row['headline']}." for row in found.alarming),
        "",
        "## Pairs with a fault",
        "",
        "The same pairs, with a fault in a random quantity or pair of quantities, at the level 1 %. The prediction is "
        "the power of the test of that quantity's own mean or sd, from its standard error. Other tests can detect the "
        "fault too.",
        "",
        "| fault | detected | predicted |",
        "|---|---|---|",
    ]
    for kind in FAULTS:
        count, power = found.caught(kind)
        lines.append(f"| {kind} | {count.text} | {'' if power is None else f'{power:.0%}'} |")
    lines += [
        "",
        "## Programs",
        "",
        "A detectable difference is found with probability 0.9 in any quantity; the table shows the median of the "
        "comparable pairs. Copies are linear functions of another quantity and are not compared.",
        "",
        "| program | quantities | copies | pairs | agree | differ | unfit | detectable mean, sd | detectable sd |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_program_row(name, some) for name, some in found.programs),
        "",
        *(f"- `{name}` is excluded: {reason}." for name, reason in header["left_out"].items()),
        "",
        f"Measured on {machine['cpu']}, {machine['date'][:10]}, stansub {machine['versions']['stansub']}.",
        "",
    ]
    return "\n".join(lines)


def _program_row(name: str, some: Sequence[Row]) -> str:
    words = [row["word"] for row in some]
    fit = sorted((row for row in some if row["word"] not in UNDECIDED), key=lambda row: row["mean_detectable_sd"])
    # A detectable difference is meaningless if no pair can be compared.
    detectable = "|"
    if fit:
        middle = fit[len(fit) // 2]
        detectable = f"{middle['mean_detectable_sd']:.2f} | {middle['sd_detectable']:.0%}"
    counts = " | ".join(str(sum(word in group for word in words)) for group in (("agrees",), ("differs",), UNDECIDED))
    return f"| `{name}` | {some[0]['quantities']} | {some[0]['copies']} | {len(some)} | {counts} | {detectable} |"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4, help="of each program, an even number; 4 by default")
    parser.add_argument("--observations", type=int, default=400, help="of each program of the corpus; 400 by default")
    parser.add_argument("--programs", type=Path, metavar="FOLDER", help="further programs, with data")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="some of the corpus")
    parser.add_argument("--engine", default="nutpie", help="who runs NUTS; nutpie by default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes; the figures do not depend on it")
    parser.add_argument("--draws", type=Path, default=REPORTS / "draws" / "false_alarms", help="folder of the draws")
    parser.add_argument("--output-dir", type=Path, default=REPORTS / "false_alarms")
    parser.add_argument("--force", action="store_true", help="overwrite what is in the folder")
    options = parser.parse_args(arguments)
    if options.runs < 2 or options.runs % 2 or options.jobs < 1:
        parser.error("--runs must be an even number, --jobs at least 1")
    if (options.output_dir / "results.json").exists() and not options.force:
        parser.error(f"{options.output_dir / 'results.json'} exists already; --force overwrites it")
    return options


def measure(options: argparse.Namespace) -> tuple[list[Row], dict[str, str]]:
    """All rows, and why programs are left out, with a line for each program for whoever waits."""
    found: list[Row] = []
    left_out: dict[str, str] = {}
    some = [one for one in corpus(options.observations) if not options.only or one.name in options.only]
    subjects = [*some, *(in_folder(options.programs) if options.programs else ())]
    with ProcessPoolExecutor(options.jobs) as pool:
        for subject, (own, reason) in zip(subjects, pool.map(partial(_measured, options), subjects), strict=True):
            found += own
            if reason:
                left_out[subject.name] = reason
            words = [row["word"] for row in own if row["kind"] == AS_THEY_ARE and row["level"] == LEVELS[0]]
            print(f"{subject.name}: {reason or ', '.join(words)}", file=sys.stderr, flush=True)
    return found, left_out


def _measured(options: argparse.Namespace, subject: Subject) -> tuple[list[Row], str]:
    """The rows of a program, or why there are none."""
    try:
        made = runs(subject, options.runs, options.draws, seed=options.seed, engine=options.engine)
    except StansubError as error:
        return [], one_line(error)
    return list(rows(subject.name, made, seed=options.seed)), ""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    measured, left_out = measure(options)
    found = Findings(measured)
    more = [
        *(["--programs FOLDER"] if options.programs else []),
        *([f"--only {' '.join(options.only)}"] if options.only else []),
    ]
    header = {
        "command": " ".join(
            [
                f"python benchmarks/false_alarms/run.py --runs {options.runs} --observations {options.observations}",
                *more,
                f"--seed {options.seed} --force",
            ]
        ),
        "engine": options.engine,
        "machine": facts(),
        "left_out": left_out,
    }
    text = page(found, header)
    options.output_dir.mkdir(parents=True, exist_ok=True)
    (options.output_dir / "results.json").write_text(json.dumps(header | {"rows": found.rows}, indent=1) + "\n")
    (options.output_dir / "README.md").write_text(text)
    print(text)
    return int(not found.passed)


if __name__ == "__main__":
    sys.exit(main())
