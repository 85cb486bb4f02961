"""Multilevel programs with no option given, beside NUTS: effective draws a second of the slowest parameter.

python benchmarks/multilevel/run.py --size reduced --only crossed poisson --core-seconds 300
python benchmarks/multilevel/run.py --size full --json results.json
python benchmarks/multilevel/run.py --size full --side stansub --json results.json     # NUTS as in the file

Data follow from the seed. `stansub.sample` runs with its defaults, NUTS (nutpie on the same library) until it has 1,000
draws a chain or its time is up, which the table says. Both are summarised by bulk ESS of every parameter of the program
(scales, correlations and cutpoints included), and their means and sds compared. Core-seconds are processor time of this
process: reading the data, set-up, warmup and sampling, all threads together; compilers are processes of their own and
left out. They are the unit of comparison, since wall times depend on what else the machine does; its load before each
row stands beside them.

If NUTS is still in warmup when its time is up, what it can reach at most is told by the processor time of a gradient
and the leapfrog steps of a draw in the last half of what it did: no warmup, and every draw an effective one.

The core-seconds to an ESS of 400 are those of a second run of stansub, `until="ess=400"`; for NUTS, they follow from
warmup and from the rate of sampling.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent))

from gaps import gaps  # noqa: E402
from rows import ROWS, SIZES, Row  # noqa: E402
from suite.base import StillInWarmup, Task, Unavailable  # noqa: E402
from suite.figures import Draws, parameters, slowest  # noqa: E402
from suite.machine import facts as machine  # noqa: E402
from suite.nuts import nutpie  # noqa: E402
from suite.workloads import Workload  # noqa: E402

import stansub  # noqa: E402
from stansub.errors import StansubError  # noqa: E402
from stansub.output.inference_data import attrs, group  # noqa: E402

ENOUGH = 400
# Limit of wall time, in seconds.
HOURS = 2 * 3600.0
SIDES = ("stansub", "nuts")


class Side(NamedTuple):
    """What one sampler came to.

    Attributes
    ----------
    seconds : float
        Set-up, warmup and sampling.
    set_up : float
        Of these.
    cores : float
        Core-seconds of all of it.
    ess, r_hat : float
        The smallest bulk ESS and the largest R-hat of all parameters.
    slowest : str
        Which parameter has that ESS.
    note : str
    draws : mapping
        Of the parameters that vary.
    enough : float
        Core-seconds to an ESS of 400 of every parameter.
    """

    seconds: float
    set_up: float
    cores: float
    ess: float
    r_hat: float
    slowest: str
    note: str
    draws: Draws
    enough: float = math.nan

    @property
    def rate(self) -> float:
        """Effective draws of the slowest parameter a second."""
        return self.ess / self.seconds

    @property
    def per_core(self) -> float:
        """The same a core-second."""
        return self.ess / self.cores

    def record(self) -> dict[str, Any]:
        """All but the draws."""
        return {**self._asdict(), "draws": None, "rate": self.rate, "per_core": self.per_core}


class Bound(NamedTuple):
    """What a sampler that was still in warmup can reach at most.

    Attributes
    ----------
    gradient : float
        Core-seconds of a gradient, with what reading the data took.
    leapfrog : float
        Of a draw.
    note : str
    """

    gradient: float
    leapfrog: float
    note: str

    @property
    def per_core(self) -> float:
        """Draws a core-second, were there no warmup."""
        return 1 / (self.gradient * self.leapfrog)

    @property
    def enough(self) -> float:
        """Core-seconds to an ESS of 400, at least."""
        return ENOUGH / self.per_core

    def record(self) -> dict[str, Any]:
        """All of it."""
        return {**self._asdict(), "at_most": self.per_core, "enough": self.enough}


def summarised(draws: Draws, *, seconds: float, set_up: float, cores: float, note: str) -> Side:
    """The figures of draws of parameters."""
    ess, name, r_hat = slowest(draws)
    return Side(seconds, set_up, cores, ess, r_hat, name, note, draws)


def ours(row: Row, data: Path, names: Sequence[str], seconds: float, **options: Any) -> Side:
    """`stansub.sample` with its defaults but for options."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stansub.DrawsWarning)
        idata = stansub.sample(row.program, data, seed=1, show_progress=False, max_time=seconds, **options)
    cores, facts = time.process_time() - began, attrs(idata)
    draws = {name: np.asarray(group(idata, "posterior")[name]) for name in names}
    taken, moves = facts["settings"]["proposal"], ""
    stats = group(idata, "sample_stats")
    if accepted := [name for name in ("levels_accepted", "accepted") if name in stats]:
        moves = f", {float(np.mean(stats[accepted[0]])):.0%} accepted"
    stopped = f", stopped: {facts['stopped']}" if facts["stopped"] else ""
    seconds = facts["setup_time"] + facts["wall_time"]
    note = f"{taken}{moves}{stopped}"
    return summarised(parameters(draws, names), seconds=seconds, set_up=facts["setup_time"], cores=cores, note=note)


def timed(row: Row, data: Path, names: Sequence[str], seconds: float) -> Side:
    """The same, with the core-seconds that a run needs until its ESS is enough."""
    enough = ours(row, data, names, seconds, until=f"ess={ENOUGH}").cores
    return ours(row, data, names, seconds)._replace(enough=enough)


def nuts(row: Row, data: Path, names: Sequence[str], core_seconds: float) -> Side | Bound:
    """NUTS by nutpie, ended by a limit of processor time."""
    workload = Workload(row.name, row.n, row.program, lambda path: None)
    began = time.process_time()
    task = Task(workload, data, seed=1, chains=4, seconds=HOURS, core_seconds=core_seconds, cache=data.parent)
    try:
        run = nutpie(task)
    except StillInWarmup as error:
        return Bound((time.process_time() - began) / error.gradients, error.leapfrog, str(error))
    cores = time.process_time() - began
    note = f"{next(iter(run.draws.values())).shape[1]:,} draws a chain; {', '.join(run.notes)}"
    took = run.setup_s + run.warmup_s + run.sampling_s
    side = summarised(parameters(run.draws, names), seconds=took, set_up=run.setup_s, cores=cores, note=note)
    sampling = cores * run.sampling_s / took
    return side._replace(enough=cores - sampling + sampling * ENOUGH / side.ess)


def differences(one: Side, other: Side) -> dict[str, float]:
    """Largest difference of means in sds and of sds as a ratio, and both in standard errors."""
    mean, sd = gaps(one.draws, other.draws).values()
    return {"mean": mean.size, "mean_z": mean.z, "sd": sd.size, "sd_z": sd.z}


def measure(
    row: Row, size: str, folder: Path, known: Mapping[str, Any], sides: Sequence[str], *, core_seconds: float
) -> dict[str, Any]:
    """One row: some sides of it, beside what is known of the others, and how they differ if both have draws."""
    made, load = row.data(size), round(os.getloadavg()[0], 1)
    data, names = row.stored(made, folder), row.parameters
    record: dict[str, Any] = {**known, "row": row.name, "size": size, "n": made["N"]}
    record.pop("differences", None)
    found: dict[str, Side | Bound] = {}
    for side in sides:
        try:
            own = timed(row, data, names, HOURS) if side == "stansub" else nuts(row, data, names, core_seconds)
            found[side] = own
            record[side] = own.record() | {"load": load}
        except (StansubError, Unavailable) as error:
            record[side] = {"failed": str(error), "load": load}
        print(line(record), file=sys.stderr, flush=True)
    drawn = [one for one in found.values() if isinstance(one, Side)]
    if len(drawn) == 2:
        record["differences"] = differences(*drawn)
    return record


def line(record: Mapping[str, Any]) -> str:
    """A row of the table."""
    cells, rates = [f"{record['row']}", f"{record['n']:,}"], []
    for side in SIDES:
        one = record.get(side, {"failed": ""})
        load = str(one.get("load", ""))
        if "ess" in one:
            rates.append(one["per_core"])
            cells += [
                one["note"], load, f"{one['set_up']:.1f} + {one['seconds'] - one['set_up']:.1f} s",
                f"{one['cores']:.0f}", f"{one['ess']:,.0f} (`{one['slowest']}`)", f"{one['r_hat']:.3f}",
                rounded(one["rate"]), rounded(one["per_core"]),
            ]  # fmt: skip
        elif "at_most" in one:
            rates.append(one["at_most"])
            cells += [one["note"], load, *[""] * 5, f"below {one['at_most']:.2g}"]
        else:
            cells += [one["failed"], load, *[""] * 6]
    above = "above " if "at_most" in record.get("nuts", {}) else ""
    cells.append(f"{above}{rounded(rates[0] / rates[1])}" if len(rates) == 2 else "")
    return f"| {' | '.join(cells)} |"


def rounded(x: float) -> str:
    """Three digits, without an exponent."""
    return f"{float(f'{x:.3g}'):,g}"


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """All rows as Markdown."""
    side = "load", "set-up + run", "core-seconds", "smallest ESS", "R-hat", "ESS/s", "ESS/core-s"
    head = ["row", "observations", "stansub", *side, "NUTS", *side, "ratio by cores"]
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *map(line, records)])


def known(file: Path | None) -> dict[tuple[str, str], dict[str, Any]]:
    """Records in a file, by row and size."""
    records = json.loads(file.read_text())["records"] if file and file.exists() else []
    return {(one["row"], one["size"]): one for one in records}


def save(file: Path | None, records: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
    """Write records to a file, if there is one."""
    if file:
        file.write_text(json.dumps({"machine": machine(), "records": list(records.values())}, indent=1))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--size", choices=SIZES, default="reduced")
    parser.add_argument("--only", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--side", nargs="*", choices=SIDES, default=SIDES)
    parser.add_argument("--core-seconds", type=float, default=400.0, help="limit of NUTS")
    parser.add_argument("--json", type=Path, help="file to update: new rows are added, old ones replaced")
    options = parser.parse_args(arguments)
    records = known(options.json)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            key = name, options.size
            records[key] = measure(
                ROWS[name], options.size, Path(folder), records.get(key, {}), options.side,
                core_seconds=options.core_seconds,
            )  # fmt: skip
            save(options.json, records)
    print(table(list(records.values())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
