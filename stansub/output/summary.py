"""Printed summary: a table, a sentence on convergence, exactness and cost, and warnings with remedies."""

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.text import Text

from stansub.findings import Finding, Severity
from stansub.output.checks import R_HAT_MAX, findings_of
from stansub.output.headline import headline, observations
from stansub.output.inference_data import InferenceData, attrs
from stansub.output.record import (
    LEARNED,
    THINNED,
    UNKNOWN,
    RunRecord,
    error_level,
    n_decisions,
    record_of,
    step_bias,
    total,
)
from stansub.output.statistics import affordable, chosen_names, count, table
from stansub.output.style import clipped
from stansub.output.words import (
    WITHOUT_MODE,
    audited_decisions,
    last_check,
    modes_at_start,
    normality_trial,
    one_step_bias,
    with_level,
)
from stansub.wording import percent, rounded

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console


# Seconds of transformed parameters and generated quantities that are worth naming.
_WORTH_NAMING = 1.0
# Number of lines in redirected output, and maximum on a terminal.
_WIDTH = 100
_ALIGNED_MAX = 9
# Columns dropped on a narrow terminal, in this order, and the minimum width of names.
_DISPENSABLE = ("mcse_mean", "50%", "ess_tail")
_NAME = 12

# Width of the labels.
_LABEL = 17


class Summary(NamedTuple):
    """Statistics, record and findings of draws, ready to print."""

    statistics: "pd.DataFrame"
    """A row for each quantity that is shown or checked."""
    record: RunRecord
    """Cost and audits of the run."""
    findings: tuple[Finding, ...]
    """Problems of the draws, the most serious first."""
    shown: "pd.DataFrame"
    n_scalars: int
    """Rows of the quantities shown, and how many quantities there are."""


def summarise(
    idata: "InferenceData",
    *,
    percentiles: Sequence[float] = (5, 50, 95),
    var_names: Sequence[str] | None = None,
    max_rows: int | None = 50,
) -> Summary:
    """Compute the table and the findings of draws.

    The table shows up to ``max_rows`` quantities, or all with None. The checks cover more.
    """
    n_scalars = count(idata, var_names)
    names = chosen_names(idata, var_names, max_rows)
    statistics = table(idata, percentiles=percentiles, var_names=var_names, max_rows=max(len(names), affordable(idata)))
    record = record_of(idata)
    findings = findings_of(idata, statistics=statistics, record=record)
    return Summary(statistics, record, findings, statistics.loc[names], n_scalars)


def render(
    idata: "InferenceData",
    console: "Console",
    *,
    summary: Summary | None = None,
    verbose: bool = False,
    full: str = "stansub summary --all",
    **options: Any,
) -> None:
    """Print the table, one sentence on convergence, exactness and cost, and the findings with their remedies.

    Parameters
    ----------
    summary
        Result of `summarise`; computed with `options` if not given.
    verbose
        Whether to print decisions, audits, speed and the choices of the sampler too.
    full
        Command that shows all rows of the table.
    """
    shown, facts = summary or summarise(idata, **options), attrs(idata)
    width = min(console.width, _WIDTH) if console.is_terminal else _WIDTH

    def write(text: str, style: str = "") -> None:
        console.print(Text(text, style=style), soft_wrap=True)

    def warn(finding: Finding, style: str) -> None:
        text, remedy = finding.describe()
        for line in textwrap.wrap(f"{finding.lead}: {text}", width, subsequent_indent=" " * 9):
            write(line, style)
        for line in textwrap.wrap(f"      -> {remedy}", width, subsequent_indent=" " * 9):
            write(line)

    for finding in shown.findings:  # the warnings must come before the table is read
        if finding.severity is Severity.REJECT:
            warn(finding, "bold red")
    _write_table(shown, full, write, width)
    if (every := int(facts.get("every", 1))) > 1:
        write(f"The table uses 1 in {every:,} draws: the ESS of all draws is larger", "dim")
    if unsaved := facts.get("unsaved"):
        write(f"Not saved (one value per observation): {unsaved}. `observation_level` saves them.", "dim")
    write("")
    doubted = any(one.severity >= Severity.DOUBT for one in shown.findings)
    line = headline(shown.statistics, shown.record, facts, shown.findings)
    for wrapped in textwrap.wrap(line, width):
        write(wrapped, "bold yellow" if doubted else "bold green")
    for part in details(shown.record, facts) if verbose else ():
        write("")
        for label, text in part:
            for line in textwrap.wrap(f"{label:<{_LABEL - 1}} {text}", width, subsequent_indent=" " * _LABEL):
                write(line)
    others = [one for one in shown.findings if one.severity is not Severity.REJECT]
    if others:
        write("")
    for finding in others:
        warn(finding, "bold" if finding.severity is Severity.NOTE else "bold yellow")


def _write_table(shown: Summary, full: str, write: Callable[[str, str], None], width: int) -> None:
    """Write the table, with rows of large R-hat in another colour, and how much of it is not shown."""
    header, *rows = _lines(shown.shown, width)
    write(header, "bold")
    for row, r_hat in zip(rows, shown.shown["r_hat"], strict=True):
        write(row, "yellow" if r_hat > R_HAT_MAX else "")
    if len(shown.shown) < shown.n_scalars:
        write(f"{len(shown.shown):,} of {shown.n_scalars:,} quantities; {full} shows all", "dim")
    if len(shown.statistics) < shown.n_scalars:
        checked = f"R-hat and ESS were checked for {len(shown.statistics):,} quantities"
        write(f"{checked}: all elements of small variables, the first elements of large ones", "dim")


def details(record: RunRecord, facts: dict[str, Any]) -> Iterable[tuple[tuple[str, str], ...]]:
    """Return decisions and audits, cost, and choices with their reasons, each as lines with a label."""
    return (tuple(part(record, facts)) for part in (_trust, _cost, _details))


def _trust(record: RunRecord, facts: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """Return draws, proposal, modes, decisions and audits as labelled lines."""
    drawn = f"{record.n_chains} x {record.n_draws:,}"
    if record.acceptance_rate is not None:
        drawn += f", {percent(record.acceptance_rate)} of the proposals accepted"
    yield "Draws", drawn
    choices = facts.get("choices", {})
    if (proposal := facts.get("settings", {}).get("proposal")) in WITHOUT_MODE:
        yield "Proposal", choices.get("proposal", proposal)
    if "fallback" in facts:
        yield "Fallback", str(facts["fallback"])
    if "last_check" in facts:
        yield "Ended", last_check(facts["last_check"], str(facts.get("settings", {}).get("until")))
    yield from _nuts(facts)
    if at_start := modes_at_start(facts.get("choice_values", {}).get("surrogate", {})):
        yield "Modes", at_start
    elif "mode_check" in facts:
        yield "Modes", _modes(facts["mode_check"])
    if "test" in facts:
        yield "Decisions", _decisions(record, facts)
    yield from _audits(record, facts)


def _modes(check: Mapping[str, Any]) -> str:
    """Return the result of the search for modes after sampling."""
    if check["reason"]:
        return f"no search for missed modes: {check['reason']}"
    n, missed = check["n_modes"], len(check["missed"])
    found = "one mode" if n == 1 else f"{n} modes that hold a share of the posterior"
    seen = "which the chains visited" if not missed else f"{missed} of which no chain visited"
    return f"{check['n_starts']} new starts after sampling found {found}, {seen}"


def _decisions(record: RunRecord, facts: dict[str, Any]) -> str:
    """Return how decisions were taken, and the guarantee of the test."""
    if n_decisions(facts) == 0:
        return "none: each step is drawn directly, assuming that this leaves the posterior unchanged"
    if record.fallback_share is not None:
        return _with_noise(record.fallback_share, facts)
    promises = {
        "asymptotic": "the error level holds only if subset means are nearly normal",
        "bound": "the error bound holds if the range constants are correct",
        "exact": "every decision uses all the data",
        "exact by proved bounds": "exact, so the draws come from the posterior itself once the chains have converged",
        LEARNED: "approximate: the bounds were learned from draws around the mode, and the audit measures the error "
        "of the acceptance probability",
        UNKNOWN: "the guarantee of this test is unknown",
    }
    guarantee = str(facts.get("guarantee", ""))
    promise = promises.get(guarantee, guarantee)
    test = f"{facts['test']} with kappa = {facts['kappa']:.3g}" if "kappa" in facts else facts["test"]
    return f"{with_level(test, error_level(facts))}; {promise}".rstrip("; ")


def _cost(record: RunRecord, facts: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """Return data used, speed and times as labelled lines."""
    parts = []
    if record.share_of_data is not None:
        n = facts["n_observations"]
        used = observations(record.share_of_data, n) if record.share_of_data else "none"
        parts.append(f"{used} of the {n:,} observations per decision")
        if record.undecided_share is not None and error_level(facts).value != 0:
            parts.append(f"{percent(record.undecided_share)} of the decisions needed all of them")
    if record.passes_per_step is not None:
        passes = f"{record.passes_per_step:.2g}"
        parts.append(f"{passes} pass{'es' * (passes != '1')} over the data per step")
    if parts:
        yield "Data", "; ".join(parts)
    if record.observations_per_second is not None and record.steps_per_second is not None:
        yield (
            "Speed",
            f"{_short(record.observations_per_second)} observations and {_short(record.steps_per_second)} steps per "
            "second and chain",
        )
    if "n_steps" in facts and "wall_time" in facts:
        times = {"compile_time": "compiling", "setup_time": "set-up", "wall_time": "warmup and sampling"}
        if facts.get("quantities_time", 0.0) >= _WORTH_NAMING:
            times["quantities_time"] = "transformed parameters and generated quantities"
        yield "Time", ", ".join(f"{_seconds(facts[name])} {what}" for name, what in times.items() if name in facts)


def _details(record: RunRecord, facts: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """Return the choices of the sampler with their reasons, and the bias of one step, as labelled lines."""
    shown = ("proposal",) if facts.get("settings", {}).get("proposal") in WITHOUT_MODE else ()
    for name, reason in facts.get("choices", {}).items():
        if name not in shown:
            yield name.capitalize(), reason
    if "normality" in facts:
        yield "Normality", normality_trial(facts["normality"])
    limit = step_bias(record, facts)
    if limit is not None:
        yield "Bias", one_step_bias(limit)


def _with_noise(fallback_share: float, facts: dict[str, Any]) -> str:
    """Return how decisions that include the noise of their estimates were taken."""
    noise, epsilon = (facts.get(name, math.nan) for name in ("noise", "epsilon"))
    return (
        f"{facts['test']}, on estimated log ratios with a standard error of at most {noise:g}, valid if subset means "
        f"are nearly normal; {percent(fallback_share)} of the decisions were noisier and taken by pocock with "
        f"epsilon = {epsilon:g}"
    )


def _audits(record: RunRecord, facts: dict[str, Any]) -> Iterable[tuple[str, str]]:
    audit, estimates = record.audit, record.estimates
    if estimates is not None:
        yield "Audit", f"{estimates.clause}."
    if audit is not None:
        yield "Audit", audited_decisions(audit, "other" if estimates is not None else "audited")
    elif facts.get("test") in THINNED:
        tightness = percent(max(facts.get("bound_tightness", [0.0])))
        picked = rounded((total(facts, "n_candidates") or 0) / max(total(facts, "n_steps") or 0, 1))
        yield (
            "Bounds",
            f"a decision drew {picked} candidates on average; the largest remainder was {tightness} of its bound",
        )
        yield from _waits(facts)
        yield from _learned(record, facts)
    elif estimates is None and n_decisions(facts) and facts.get("guarantee") != "exact":
        yield "Audit", "none"


def _waits(facts: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """Return how long the chains waited for partitions of the data to send candidates."""
    if facts.get("settings", {}).get("evaluator") == "partitions" and "wait_time" in facts:
        waits, seconds = (
            (total(facts, name) or 0) + (total(facts, f"warmup_{name}") or 0) for name in ("n_waits", "wait_time")
        )
        yield "Waits", f"the chains waited {_seconds(seconds)} for {waits:,.0f} batches of candidates"


def _learned(record: RunRecord, facts: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """Return how often learned bounds were exceeded, and the effect on the acceptance probability."""
    if facts.get("guarantee") == LEARNED:
        audit = record.acceptances.clause if record.acceptances else "no decision was audited"
        yield "Audit", f"{total(facts, 'n_bound_violated') or 0:,.0f} decisions used a block beyond its bound; {audit}"


def _nuts(facts: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """Return the cost of NUTS as labelled lines; nothing for other draws."""
    if "n_gradients" not in facts:
        return
    gradients, warmup = (sum(facts.get(name, [])) for name in ("n_gradients", "warmup_n_gradients"))
    yield (
        "NUTS",
        f"{facts.get('engine', '')} {facts.get('engine_version', '')}; {warmup:,} leapfrog steps in warmup and "
        f"{gradients:,} after; {sum(facts.get('n_divergences', [])):,} divergences",
    )
    if "wall_time" in facts:
        before = facts.get("compile_time", 0) + facts.get("setup_time", 0)
        took = f"{_seconds(before)} compiling and loading data"
        yield "Time", f"{took}, {_seconds(facts['wall_time'])} warmup and sampling of all chains"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:,.0f} s"


def _lines(statistics: "pd.DataFrame", width: int) -> list[str]:
    """Return the table as text: a header and a line per quantity, decimal points aligned within columns.

    If the lines would be wider than `width`, columns come closer, then some are left out, then names are cut.
    """
    columns = {column: [column, *_on_points(texts)] for column, texts in cells(statistics).items()}
    columns = {column: [one.rjust(max(map(len, texts))) for one in texts] for column, texts in columns.items()}
    longest = max(map(len, statistics.index), default=0)

    def room(gap: int) -> int:
        return width - sum(gap + len(column[0]) for column in columns.values())

    gap = 2 if longest <= room(2) else 1
    for dispensable in _DISPENSABLE:
        if room(gap) < min(longest, _NAME):
            columns.pop(dispensable, None)
    names = [clipped(name, max(room(gap), _NAME)) for name in statistics.index]
    name_width = max(map(len, names), default=0)
    lines = zip(["", *names], *columns.values(), strict=True)
    return [(" " * gap).join((name.ljust(name_width), *row)).rstrip() for name, *row in lines]


def cells(statistics: "pd.DataFrame") -> dict[str, list[str]]:
    """Return the columns of the table as texts, with as many digits as the Monte Carlo error leaves meaningful."""
    columns: dict[str, list[str]] = {column: [] for column in statistics.columns if column != "mcse_sd"}
    for row in statistics.to_dict("records"):
        decimals = _decimals(row["mcse_mean"], row["sd"])
        for column, texts in columns.items():
            texts.append(_cell(column, row[column], decimals))
    return columns


def _decimals(mcse: float, sd: float) -> int | None:
    """Return the decimals that the Monte Carlo error leaves meaningful; None if exponents are needed."""
    scale = min((x for x in (mcse * 1.0, sd / 10) if x > 0 and math.isfinite(x)), default=0.01)
    decimals = max(0, math.ceil(-math.log10(scale)))
    return decimals if decimals <= 6 else None


def _cell(column: str, value: float, decimals: int | None) -> str:
    if not math.isfinite(value):
        return "-" if math.isnan(value) else str(value)
    if column.startswith("ess"):
        return f"{value:.0f}"
    if column == "r_hat":
        return f"{value:.3f}" if value < 10 else f"{value:.1f}"
    if decimals is None or abs(value) >= 1e6:
        return f"{value:.3g}"
    digits = decimals + 1 if column == "mcse_mean" else decimals
    return f"{round(value, digits) + 0.0:.{digits}f}"  # adding 0.0 turns -0.00 into 0.00


def _on_points(cells: list[str]) -> list[str]:
    """Return cells padded on the right so that their decimal points align, if that stays narrow."""
    tails = [len(cell) - cell.find(".") if "." in cell and "e" not in cell else 0 for cell in cells]
    padded = [
        cell if "e" in cell else cell + " " * (max(tails) - tail) for cell, tail in zip(cells, tails, strict=True)
    ]
    return padded if max(map(len, padded), default=0) <= _ALIGNED_MAX else cells


def _short(number: float) -> str:
    """Return a number to three digits, with millions and billions in words."""
    for scale, unit in ((1e9, " billion"), (1e6, " million")):
        if number >= scale:
            return f"{number / scale:.3g}{unit}"
    return f"{float(f'{number:.3g}'):,.{0 if number >= 100 else 1}f}"
