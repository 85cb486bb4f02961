"""The report on tall data: a table of programs, and what it shows in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from measure import Row
from page import cell, names, template

from stansub.output.record import EXACT

# An effective sample size below which a rate says little, and an R-hat above which it says nothing.
_FEWEST, _R_HAT = 100.0, 1.05
# How many times the effective draws of NUTS are asked for.
_WANTED = 500.0


def rate(side: Row, seconds: str) -> float | None:
    """Return effective draws a core-second, of sampling or of everything; None if the chains have not converged."""
    if "ess" not in side or not _is_sound(side):
        return None
    return float(side["ess"] / side[seconds])


def _is_sound(side: Row) -> bool:
    """Return whether the effective sample size can be believed."""
    return bool(side["ess"] >= _FEWEST and side["r_hat"] <= _R_HAT)


def ratio(row: Row, of: str = "nuts") -> tuple[float, bool] | None:
    """Return how many times the effective draws of another sampler the default makes, and whether it is at least that.

    Both while they sample. If NUTS has too few draws for a rate, its limit is a draw per iteration.
    """
    own, other = rate(row["default"], "sampling_core_s"), rate(row[of], "sampling_core_s")
    if own is None:
        return None
    if other is not None:
        return own / other, False
    limit = row[of].get("at_most")
    return (own / limit, True) if limit else None


def is_exact(row: Row) -> bool:
    """Return whether the decisions of the default were exact."""
    return row["default"].get("guarantee") in EXACT


def disagreeing(rows: Sequence[Row]) -> list[Row]:
    """Return programs whose draws differ from those of NUTS."""
    return [row for row in rows if row.get("agreement", {}).get("verdict") == "differs"]


def done(rows: Sequence[Row]) -> list[Row]:
    """Return programs for which everything was run."""
    return [row for row in rows if "nuts" in row]


def sentences(rows: Sequence[Row], wanted: Sequence[str]) -> list[str]:
    """Return the results in sentences."""
    found = done(rows)
    missing = [{"program": name} for name in wanted if name not in {row["program"] for row in found}]
    texts = [f"{len(found)} of {len(wanted)} programs were measured; not measured: {names(missing)}"]
    if not found:
        return texts
    approximate = [row for row in found if not is_exact(row)]
    texts.append(f"Decisions are exact in {len(found) - len(approximate)}; not exact: {names(approximate)}")
    ratios = [one for row in found if (one := ratio(row))]
    if ratios:
        least = sum(bound for _, bound in ratios)
        texts.append(
            f"While sampling, the median program makes {_times(median(value for value, _ in ratios))} times the "
            f"effective draws a core-second of NUTS; {sum(value >= _WANTED for value, _ in ratios)} of {len(ratios)} "
            f"make at least {_WANTED:g} times. In {least} of them NUTS had too few draws for a rate, and the limit of "
            f"a draw per iteration stands for it"
        )
    beside = [row for row in found if "agreement" in row]
    agreeing = [row for row in beside if row["agreement"]["verdict"] == "agrees"]
    unclear = [row for row in beside if row["agreement"]["verdict"] == "do not use"]
    texts += [
        f"{len(agreeing)} agree with NUTS; differing: {names(disagreeing(beside))}",
        f"NUTS had too few draws in its time for a comparison: {names([row for row in found if row not in beside])}",
    ]
    if unclear:
        texts.append(f"Too few effective draws, on either side, for a verdict: {names(unclear)}")
    slow = [row for row in found if rate(row["default"], "sampling_core_s") is None]
    texts.append(f"Too few effective draws, or chains that disagree, with the default: {names(slow)}")
    return texts


def write(result: Mapping[str, Any], wanted: Sequence[str], folder: Path) -> Path:
    """Write the page."""
    facts = {
        **{key: result[key] for key in ("command", "machine", "limits", "observations")},
        "sentences": sentences(result["rows"], wanted),
        "rows": [list(_cells(row)) for row in done(result["rows"])],
    }
    path = folder / "tall.md"
    path.write_text(template("tall.md").render(facts), encoding="utf-8")
    return path


def _cells(row: Row) -> Iterator[str]:
    """Yield the cells of a program."""
    default, pocock, nuts = row["default"], row["pocock"], row["nuts"]
    yield f"`{row['program']}`"
    if "failure" in default:
        yield from ("", f"**fails**: {cell(default['failure'])}", "", "")
    else:
        used = default["share"]
        yield f"{default['parameters']:,}"
        yield f"{default['test']}, {'exact' if is_exact(row) else 'approximate'}"
        yield "" if used is None else f"{used * default['observations']:.2g} ({100 * used:.2g} %)"
        yield f"{default['ess']:,.0f}, {default['r_hat']:.3f}"
    for seconds in ("sampling_core_s", "core_s"):
        yield from (_rate(side, seconds) for side in (default, pocock, nuts))
    yield from (_ratio(ratio(row, of)) for of in ("pocock", "nuts"))
    yield _agreement(row)
    yield f"{row['load']:g}"


def _rate(side: Row, seconds: str) -> str:
    """Return a rate; limits are of sampling alone."""
    value = rate(side, seconds)
    if value is not None:
        return _times(value)
    if "at_most" in side:
        return f"below {side['at_most']:.2g}" if seconds == "sampling_core_s" else ""
    return "fails" if "failure" in side else f"({side['ess']:.0f} draws)"


def _ratio(found: tuple[float, bool] | None) -> str:
    if found is None:
        return ""
    value, is_limit = found
    return f"{'above ' * is_limit}{_times(value)}"


def _agreement(row: Row) -> str:
    if "agreement" not in row:
        return "no draws of NUTS"
    one = row["agreement"]
    said = {"agrees": "agrees", "differs": "**differs**"}.get(one["verdict"], "too few draws")
    return f"{said}, {one['largest_z']:.1f}"


def _times(value: float) -> str:
    """Return a number with two digits, or three from a thousand on."""
    if value < 10:
        return f"{value:.2g}"
    return f"{round(value, 2 - math.floor(math.log10(value))):,.0f}"
