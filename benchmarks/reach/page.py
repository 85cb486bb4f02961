"""The report: how many programs qualify, which verdicts are false, and tables of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from measure import MAYBE, NO_WORD, QUALIFIES, REFUSED, Row

# A reason in a cell.
_LONGEST = 240


@dataclass(frozen=True)
class Findings:
    """Results of a run.

    Attributes
    ----------
    rows : sequence of Row
        Of the corpus, or of programs written by brms.
    """

    rows: Sequence[Row]

    @property
    def sums(self) -> list[Row]:
        """Programs whose likelihood is a sum over observations."""
        return [row for row in self.rows if row["is_sum"] is True]

    @property
    def others(self) -> list[Row]:
        """Programs whose likelihood is not such a sum."""
        return [row for row in self.rows if row["is_sum"] is False]

    @property
    def known(self) -> list[Row]:
        return [*self.sums, *self.others]

    @property
    def measured(self) -> bool:
        """Whether any was checked with data."""
        return any("qualifies" in row or "failure" in row for row in self.rows)

    @property
    def false_refusals(self) -> list[Row]:
        """Sums that are refused with their data."""
        return [row for row in self.sums if row.get("qualifies") is False]

    @property
    def false_approvals(self) -> list[Row]:
        """Programs that are accepted with their data although their likelihood is not a sum."""
        return [row for row in self.others if row.get("qualifies")]

    @property
    def unnamed(self) -> list[Row]:
        """Programs that are refused correctly, with data or without, but whose kind is not named."""
        refused = [row for row in self.others if not row.get("qualifies", row["text"] != REFUSED)]
        return [row for row in refused if not row["named"]]

    @property
    def misread(self) -> list[Row]:
        """Programs whose text alone leads to a false verdict."""
        return [row for row in self.known if row["text"] == (REFUSED if row["is_sum"] else QUALIFIES)]

    @property
    def failures(self) -> list[Row]:
        """Programs without a verdict of `stansub check`."""
        return [row for row in self.rows if "failure" in row]

    @property
    def sampled(self) -> list[Row]:
        return [row for row in self.rows if "draws" in row]

    def with_verdict(self, word: str | None) -> list[Row]:
        """Sampled programs whose comparison with NUTS has a verdict; None for those that could not be sampled."""
        return [row for row in self.sampled if row["draws"].get("verdict") == word]

    @property
    def passed(self) -> bool:
        """Whether all verdicts exist and none is false."""
        false = (self.false_refusals, self.false_approvals, self.misread)
        return not (any(false) or self.failures)


def sentences(found: Findings) -> list[str]:
    """Return the results in sentences."""
    unnamed = f"Refused without naming their kind: {names(found.unnamed)}"
    texts = [_of_text(found)]
    if not found.measured:
        return [*texts, unnamed]
    sums = [row for row in found.sums if "qualifies" in row]
    in_style = [row for row in sums if row["program"].startswith("brms_")]
    if sums:
        of_brms = f"; in brms's style, {_share(in_style, 'qualifies')}" if in_style else ""
        texts.append(f"With data, {_share(sums, 'qualifies')} programs whose likelihood is a sum qualify{of_brms}")
    if qualifying := [row for row in sums if row["qualifies"] and "exact" in row]:
        texts.append(f"Of those that qualify, decisions are exact in {_share(qualifying, 'exact')}")
    texts += [
        f"Refused although they are sums: {names(found.false_refusals)}",
        f"Accepted although they are not sums: {names(found.false_approvals)}",
        unnamed,
    ]
    if found.failures:
        texts.append(f"No verdict because of a failure: {names(found.failures)}")
    if found.sampled:
        agreeing = len(found.with_verdict("agrees"))
        exact = sum(row["draws"].get("guarantee", "").startswith("exact") for row in found.sampled)
        texts += [
            f"{agreeing} of {len(found.sampled)} sampled programs agree with NUTS; decisions were exact in {exact}",
            f"Differing: {names(found.with_verdict('differs'))}",
            f"Undecided, because the draws of NUTS cannot be trusted or are too few: "
            f"{names(found.with_verdict('inconclusive'))}",
            f"Unfit for use: {names(found.with_verdict('do not use'))}",
            f"Failing: {names(found.with_verdict(None))}",
        ]
    return texts


def _of_text(found: Findings) -> str:
    right = sum(row["text"] == (QUALIFIES if row["is_sum"] else REFUSED) for row in found.known)
    undecided = sum(row["text"] == MAYBE for row in found.known)
    silent = sum(row["text"] == NO_WORD for row in found.known)
    return (
        f"By the text alone, {right} of {len(found.known)} verdicts are correct, {undecided} are undecided, and "
        f"{silent} programs have none; false: {names(found.misread)}"
    )


def _share(rows: Sequence[Row], key: str) -> str:
    return f"{sum(bool(row[key]) for row in rows)} of {len(rows)}"


def names(rows: Sequence[Row]) -> str:
    return ", ".join(f"`{row['program']}`" for row in rows) or "none"


def template(name: str) -> Template:
    """Return a template of this folder."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).resolve().parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(name)


def write(result: Mapping[str, Any], found: Findings, folder: Path) -> Path:
    """Write the page."""
    facts = {
        "command": result["command"],
        "machine": result["machine"],
        "observations": result["observations"],
        "brms": result["brms"],
        "measured": found.measured,
        "sampled": bool(found.sampled),
        "n": len(found.known),
        "n_sums": len(found.sums),
        "sentences": sentences(found),
        "sums": [_sum_cells(row, found.measured) for row in found.sums],
        "others": [_other_cells(row) for row in found.others],
    }
    path = folder / "README.md"
    path.write_text(template("page.md").render(facts), encoding="utf-8")
    return path


def _sum_cells(row: Row, measured: bool) -> list[str]:
    """Return the verdicts and, if measured, the cut and the draws."""
    cells = [f"`{row['program']}`", cell(row["about"]), row["text"], *([_with_data(row)] if measured else [])]
    if not row.get("qualifies"):
        return [*cells, *([""] * 9 if measured else [])]
    cells += [
        "yes" if row["exact"] else ": ".join(["no", *([cell(row["inexact"])] if "inexact" in row else [])]),
        f"{row['observations']:,}",
        f"{row['parameters']:,}",
        f"{row['proof']:.0e}",
        f"{row['set_up_s']:.2g}",
        f"{1e6 * row['block_s']:.2g} ({row['block_size']:,})",
        f"{row['times_whole']:.1f}",
    ]
    draws = row.get("draws")
    if draws is None:
        return [*cells, "", ""]
    if "failure" in draws:
        return [*cells, "", f"**fails**: {cell(draws['failure'])}"]
    said = draws["verdict"] if draws["verdict"] == "agrees" else f"**{cell(draws['headline'])}**"
    return [*cells, f"{decisions(draws)}, {draws['seconds']:.0f} s", f"{said}, {draws['largest_z']:.1f}"]


def _other_cells(row: Row) -> list[str]:
    """Return the verdicts, and whether they name the kind."""
    refused = not row.get("qualifies", row["text"] != REFUSED)
    verdicts = {True: "**qualifies**", False: "refused", None: "**fails**" if "failure" in row else ""}
    with_data = verdicts[row.get("qualifies")]
    named = ("yes" if row["named"] else "no") if refused else ""
    reason = cell(row.get("reason", row.get("failure", "")))
    return [f"`{row['program']}`", row["obstacle"], row["text"], with_data, named, reason]


def _with_data(row: Row) -> str:
    if "qualifies" not in row:
        return f"**fails**: {cell(row['failure'])}" if "failure" in row else ""
    if row["qualifies"]:
        return "qualifies"
    return f"**refused**: {cell(row['reason'])}"


def decisions(draws: Mapping[str, Any]) -> str:
    """Return the test of a run, and whether it is exact."""
    if draws["test"] == "exact":
        return "exact, from all"
    return f"{draws['test']}, {'exact' if draws['guarantee'].startswith('exact') else 'approximate'}"


def cell(text: str) -> str:
    """Return a text, shortened for a cell of a table."""
    short = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    return short.replace("|", "\\|")
