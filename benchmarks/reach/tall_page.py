"""The report on tall data: a table of programs, and what it shows in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from measure import Row
from page import cell, names, template
from tall import is_sound

from stansub.output.record import EXACT

# How many times the effective draws of NUTS are asked for.
_WANTED = 500.0


class Rate(NamedTuple):
    """Effective draws a core-second, or a ratio of them, and whether NUTS's part is a prediction."""

    value: float
    is_predicted: bool = False

    def __str__(self) -> str:
        return f"{'about ' * self.is_predicted}{_number(self.value)}"


def rate(row: Row, side: str, *, whole: bool = False) -> Rate | None:
    """Return the rate of a sampler, of sampling or of everything; None if it has too few draws or has not converged.

    That of NUTS is predicted from the effective draws per gradient on smaller data if it has none on all of them.
    """
    one = row.get(side, {})
    if is_sound(one):
        return Rate(one["ess"] / one["core_s" if whole else "sampling_core_s"])
    small = row.get("smaller", {}).get(side, {}) if side == "nuts" else {}
    if not is_sound(small) or "gradient_core_s" not in one:
        return None
    gradients = small["gradients"] + small["warmup_gradients"] * whole
    return Rate(small["ess"] / (gradients * one["gradient_core_s"]), True)


def ratio(row: Row, to: str = "nuts", *, whole: bool = False) -> Rate | None:
    """Return how many times the effective draws of another sampler the default makes."""
    own, other = rate(row, "default", whole=whole), rate(row, to, whole=whole)
    return None if own is None or other is None else Rate(own.value / other.value, other.is_predicted)


def agreement(row: Row) -> Row:
    """Return what the comparison with NUTS says, on all data or on smaller ones; empty if NUTS made no draws."""
    return row.get("agreement", row.get("smaller", {}).get("agreement", {}))


def is_exact(row: Row) -> bool:
    """Return whether the decisions of the default were exact."""
    return row["default"].get("guarantee") in EXACT


def disagreeing(rows: Sequence[Row]) -> list[Row]:
    """Return programs whose draws differ from those of NUTS."""
    return [row for row in rows if agreement(row).get("verdict") == "differs"]


def done(rows: Sequence[Row]) -> list[Row]:
    """Return programs that were sampled, beside NUTS or not."""
    return [row for row in rows if "default" in row]


def sentences(rows: Sequence[Row], wanted: Sequence[str]) -> list[str]:
    """Return the results in sentences."""
    found = done(rows)
    missing = [{"program": name} for name in wanted if name not in {row["program"] for row in found}]
    alone = [row for row in found if "nuts" not in row]
    texts = [
        f"{len(found)} of {len(wanted)} programs were sampled; not sampled: {names(missing)}",
        f"Not compared with NUTS, because the time for the program was up: {names(alone)}",
    ]
    if not found:
        return texts
    approximate = [row for row in found if not is_exact(row)]
    reading = [row for row in found if row["default"].get("share") == 1]
    texts.append(
        f"Decisions are exact in {len(found) - len(approximate)}; not exact: {names(approximate)}; exact because they "
        f"read all the data: {names(reading)}"
    )
    ratios = [one for row in found if (one := ratio(row))]
    if ratios:
        middle, reaching = median(one.value for one in ratios), sum(one.value >= _WANTED for one in ratios)
        texts += [
            f"While sampling, the median of {len(ratios)} programs makes {_number(middle)} times the effective draws a "
            f"core-second of NUTS; {reaching} make at least {_WANTED:g} times",
            f"In {sum(one.is_predicted for one in ratios)} of them the rate of NUTS is a prediction",
            _with_set_up(found),
        ]
    agreeing = [row for row in found if agreement(row).get("verdict") == "agrees"]
    others = (*agreeing, *disagreeing(found), *alone)
    unclear = [row for row in found if row not in others]
    slow = [row for row in found if rate(row, "default") is None]
    return [
        *texts,
        f"{len(agreeing)} agree with NUTS; differing: {names(disagreeing(found))}; undecided: {names(unclear)}",
        f"Too few effective draws, or chains that disagree, with the default: {names(slow)}",
    ]


def _with_set_up(rows: Sequence[Row]) -> str:
    """Return what set-up and warmup change."""
    beside_nuts = [one.value for row in rows if (one := ratio(row, whole=True))]
    beside_pocock = [one.value for row in rows if (one := ratio(row, "pocock", whole=True))]
    text = f"With set-up and warmup of both, the median makes {_number(median(beside_nuts))} times those of NUTS"
    if not beside_pocock:
        return text
    slower = sum(one < 1 for one in beside_pocock)
    return f"{text}; `pocock` makes more than the default in {slower} of {len(beside_pocock)}, because bounds take time"


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
    default = row["default"]
    yield f"`{row['program']}`"
    if "failure" in default:
        yield from ("", f"**fails**: {cell(default['failure'])}", "", "")
    else:
        used = default["share"]
        yield f"{default['parameters']:,}"
        yield f"{default['test']}, {'exact' if is_exact(row) else 'approximate'}"
        yield "" if used is None else f"{_number(used * default['observations'])} ({_number(100 * used)} %)"
        yield f"{default['ess']:,.0f}, {default['r_hat']:.3f}"
    for whole in (False, True):
        yield from (_cell_of(rate(row, side, whole=whole), row.get(side, {})) for side in ("default", "pocock", "nuts"))
    yield from (str(ratio(row, to) or "") for to in ("pocock", "nuts"))
    yield _agreement(row)
    yield f"{row['load']:g}"


def _cell_of(found: Rate | None, side: Row) -> str:
    if found is not None:
        return str(found)
    return "fails" if "failure" in side else f"({side['ess']:.0f} draws)" if "ess" in side else ""


def _agreement(row: Row) -> str:
    found = agreement(row)
    if not found:
        return ""
    said = {"agrees": "agrees", "differs": "**differs**"}.get(found["verdict"], "too few draws")
    own = row["smaller"]["default"] if "agreement" not in row else row["default"]
    return f"{said}, {found['largest_z']:.1f}, N = {own['observations']:,}"


def _number(value: float) -> str:
    """Return a number with two digits, or three from ten on."""
    if value < 10:
        return f"{value:.2g}"
    return f"{round(value, 2 - math.floor(math.log10(value))):,.0f}"
