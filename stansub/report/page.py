"""Content of a comparison report, in words and cells; templates define the layout."""

import math
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from stansub._version import __version__
from stansub.diagnostics.covariance import NEGLIGIBLE
from stansub.diagnostics.statistics import share as test_level
from stansub.findings import Words
from stansub.output.checks import R_HAT_MAX
from stansub.output.inference_data import InferenceData, attrs, group
from stansub.output.record import error_level, record_of, total
from stansub.output.words import short_audit, with_level
from stansub.report import figures
from stansub.report.figures import sampler_names
from stansub.stan.data.sources import DataSources
from stansub.wording import percent, sentence

if TYPE_CHECKING:
    import pandas as pd

    from stansub.diagnostics.comparison import Comparison

MAX_ROWS = 60
MISSING = "–"
_SMALL_P = 1e-4
_AD_P = (0.001, 0.25)  # where the table of Anderson-Darling p-values ends


class Cell(NamedTuple):
    """Text of a cell, and whether it is highlighted."""

    text: str
    marked: bool = False


class Table(NamedTuple):
    """Rows of cells, the first cell of each a name."""

    groups: tuple[tuple[str, int], ...]
    """Headings over adjacent columns, each with its number of columns."""
    columns: tuple[str, ...]
    """A heading per column."""
    rows: tuple[tuple[Cell, ...], ...]


class Drawn(NamedTuple):
    """A picture in words: file name without suffix, title, how to read it, and the function that draws it."""

    stem: str
    title: str
    reading: str
    draw: "figures.Picture"


class Page(NamedTuple):
    """Content of a report except its pictures."""

    title: str
    created: str
    version: str
    word: str
    headline: str
    samplers: tuple[str, str]
    reasons: tuple[str, ...]
    advice: str
    warnings: tuple[tuple[str, Words], ...]
    speed: tuple[str, ...]
    cost: Table
    notes: tuple[str, ...]
    overall: tuple[tuple[str, str], ...]
    differences: Table
    distributions: Table
    left_out: int
    apart: tuple[tuple[str, str], ...]
    provenance: Table
    glossary: tuple[tuple[str, str], ...]
    sources: tuple[str, ...]


PICTURES = (
    Drawn(
        "forest",
        "Medians and intervals",
        "Dots are medians; lines are central 90 % intervals. If the samplers agree, the two lines of a row have the "
        "same ends. If scales differ, all rows are in standard deviations of the reference.",
        figures.forest,
    ),
    Drawn(
        "marginals",
        "Marginal densities",
        "Kernel density estimates of the draws. A shifted curve means a biased mean. Wrong decisions first make the "
        "curve of the subsampled draws lower and wider.",
        figures.marginals,
    ),
    Drawn(
        "pair",
        "The pair that differs most",
        (
            "Joint draws of the two quantities whose correlation differs most. Outlines "
            "contain 50 % and 90 % of the draws."
        ),
        figures.worst_pair,
    ),
    Drawn(
        "ranks",
        "Ranks of each chain",
        "Draws, thinned to independence, are ranked among those of both samplers; each line is a chain. If the "
        "samplers agree, the grey band contains all chains of all quantities in 95 % of comparisons.",
        figures.rank_histograms,
    ),
    Drawn(
        "ecdf",
        "Differences of distribution functions",
        "Share of the subsampled draws below a value minus that of the reference's, on draws thinned to independence. "
        "The largest distance from zero is the Kolmogorov-Smirnov statistic. If the samplers agree, the grey band "
        "contains all lines of all quantities in 95 % of comparisons.",
        figures.ecdf_differences,
    ),
    Drawn(
        "data",
        "Share of the data used",
        "Share of the data that each decision used, over the draws after warmup. The distance to 100 % is saved work.",
        figures.share_of_data,
    ),
)

_ADVICE = {
    "agrees": "You can use the subsampled draws instead of the reference's, to the precision above. More draws of both "
    "would reveal smaller differences.",
    "differs": "If differences of this size matter, sample again with a smaller `epsilon` or with `test='exact'`, and "
    "compare again. Otherwise use the draws and state their error.",
    "inconclusive": "The comparison does not tell whether the draws are right. Make a better reference (more draws, or "
    "`adapt_delta=0.99` if transitions diverged), or compare with a run with `test='exact'`.",
    "do not use": "Follow the remedies below, sample again, and compare again. Until then, do not rely on the draws.",
}

# Figures over all parameters: label, and format.
_OVERALL: dict[str, tuple[str, Callable[[float], str]]] = {
    "n_parameters": ("Quantities compared", lambda value: f"{value:,.0f}"),
    "n_tests": ("Tests behind the verdict", lambda value: f"{value:,.0f}"),
    "level": ("Joint level of these tests", lambda value: f"{value:g}"),
    "critical_z": ("|z| above which a single test is significant", lambda value: fixed(value, 2)),
    "mean_diff_sd_max": ("Largest difference of a mean / sd", lambda value: fixed(value, 2)),
    "mean_limit_sd": ("Upper confidence limit of all differences of means / sd", lambda value: fixed(value, 2)),
    "mean_detectable_sd": ("Difference of means / sd detected with probability 0.9", lambda value: fixed(value, 2)),
    "sd_ratio_min": ("Smallest ratio of sds", lambda value: fixed(value, 3)),
    "sd_ratio_max": ("Largest ratio of sds", lambda value: fixed(value, 3)),
    "sd_limit": ("Upper confidence limit of all differences of sds", lambda value: share(value)),
    "sd_detectable": ("Difference of sds detected with probability 0.9", lambda value: share(value)),
    "wasserstein_sd_max": ("Largest Wasserstein-1 distance / sd", lambda value: fixed(value, 3)),
    "r_hat_max": ("Largest R-hat of the subsampled draws", lambda value: fixed(value, 3)),
    "r_hat_reference_max": ("Largest R-hat of the reference", lambda value: fixed(value, 3)),
    "r_hat_pooled_max": ("Largest pooled R-hat", lambda value: fixed(value, 3)),
    "covariance_relative": ("Covariance difference, relative Frobenius norm", lambda value: fixed(value, 3)),
    "covariance_standardised": ("Covariance difference, in sds of the reference", lambda value: fixed(value, 3)),
    "covariance_expected": ("Expected from Monte Carlo error alone, in these sds", lambda value: fixed(value, 3)),
    "worst_pair_correlation": ("Correlation of the pair that differs most, subsampled", lambda value: fixed(value, 2)),
    "worst_pair_correlation_reference": ("Correlation of this pair, reference", lambda value: fixed(value, 2)),
    "worst_pair_z": (f"z of the difference beyond {NEGLIGIBLE:g}", lambda value: signed(value, 1)),
}

_GLOSSARY = (
    (
        "difference / sd",
        "Subsampled value minus the reference's, in posterior standard deviations of the reference.",
    ),
    (
        "z",
        "A difference in units of its Monte Carlo standard error, which combines both samplers' errors in quadrature "
        "(Vehtari et al. 2021). For sds, z is that of the logarithm of their ratio. Among many quantities, expect some "
        "|z| above 2 or even 3; the verdict accounts for their number.",
    ),
    (
        "sd ratio",
        "Posterior sd of the subsampled draws divided by that of the reference. Wrong decisions raise it above 1.",
    ),
    (
        "KS",
        "Two-sample Kolmogorov-Smirnov statistic: the largest distance of the two empirical distribution functions, on "
        "draws thinned to independence, with its p-value.",
    ),
    (
        "AD p",
        "p-value of the two-sample Anderson-Darling statistic on the same draws; it weighs the tails more (Scholz and "
        "Stephens 1987).",
    ),
    (
        "W1 / sd",
        "Wasserstein-1 distance: the average distance that draws must be moved to turn one sample into the other, in "
        "sd of the reference. Monte Carlo error alone gives a few hundredths.",
    ),
    (
        "R-hat",
        "Rank-normalised split R-hat (Vehtari et al. 2021): of each sampler's chains, and of all chains of both "
        "(pooled). If the pooled R-hat exceeds both others, each sampler converged, but to different distributions.",
    ),
    ("ESS", "Effective sample size: the number of independent draws with the same Monte Carlo error (bulk and tail)."),
    (
        "pass",
        "As many evaluations as there are observations. A gradient counts as one pass; it takes about three times as "
        "long as a likelihood without gradient.",
    ),
    (
        "wrong decision",
        "An accept/reject decision that differs from the decision on all the data. A random share of the decisions is "
        "audited. For the effect of single decisions on the posterior, see Korattikara, Chen and Welling (2014), "
        "theorem 1.",
    ),
)

_SOURCES = (
    "A. Vehtari, A. Gelman, D. Simpson, B. Carpenter and P.-C. Bürkner (2021), Rank-normalization, folding, and "
    "localization: an improved R-hat for assessing convergence of MCMC, Bayesian Analysis 16(2).",
    "F. W. Scholz and M. A. Stephens (1987), K-sample Anderson-Darling tests, Journal of the American Statistical "
    "Association 82.",
    "A. Korattikara, Y. Chen and M. Welling (2014), Austerity in MCMC land: cutting the Metropolis-Hastings budget, "
    "ICML.",
)


def compose(comparison: "Comparison") -> Page:
    """Return the content of a report of `comparison`."""
    samplers = sampler_names(comparison)
    verdict = comparison.verdict
    shown = comparison.parameters.iloc[:MAX_ROWS]
    significant = test_level(comparison.overall["level"], len(comparison.parameters))
    sides = zip(samplers, (comparison.findings, comparison.reference_findings), strict=True)
    return Page(
        title=f"{comparison.name}: {samplers[0]} draws and {'NUTS' if samplers[1] == 'NUTS' else 'the reference'}",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        word=verdict.word,
        headline=sentence(verdict.headline),
        samplers=samplers,
        reasons=tuple(
            reason for reason in verdict.reasons if reason.rstrip(".").lower() not in verdict.headline.lower()
        ),
        advice=_ADVICE[verdict.word],
        warnings=tuple((sampler, one.describe()) for sampler, findings in sides for one in findings),
        speed=tuple(speed(comparison)),
        cost=_cost(comparison, samplers),
        notes=tuple(sentence(note) for note in comparison.cost.attrs.get("notes", ())),
        overall=tuple(
            (label, written(comparison.overall[name]))
            for name, (label, written) in _OVERALL.items()
            if name in comparison.overall
        ),
        differences=_differences(shown, samplers, significant),
        distributions=_distributions(shown, samplers, significant),
        left_out=len(comparison.parameters) - len(shown),
        apart=tuple(apart(comparison, samplers)),
        provenance=_provenance(comparison, samplers),
        glossary=_GLOSSARY,
        sources=_SOURCES,
    )


def speed(comparison: "Comparison") -> Iterable[str]:
    """Yield the gain or loss in speed, in sentences."""
    own, other = sampler_names(comparison)
    costs = comparison.cost
    for figure, of in (
        ("ess_per_second", "per second of sampling"),
        ("ess_per_second_total", "per second of the whole run, including warmup, set-up and compilation"),
        ("ess_per_pass", "per pass over the data in sampling"),
    ):
        mine, theirs = _both(costs, figure)
        if math.isfinite(mine) and math.isfinite(theirs) and min(mine, theirs) > 0:
            more, fewer = (own, other) if mine >= theirs else (other, own)
            yield (
                f"Effective draws {of}: {number(mine)} {own}, {number(theirs)} {other}. "
                f"{more[:1].upper()}{more[1:]} produces {number(max(mine / theirs, theirs / mine), 2)} times as many "
                f"as {fewer}."
            )
    mine, theirs = _both(costs, "time_to_ess")
    if math.isfinite(mine) and math.isfinite(theirs):
        yield f"From the start to ESS 400 in every parameter: {number(mine)} s {own}, {number(theirs)} s {other}."


def _both(costs: "pd.DataFrame", figure: str) -> tuple[float, float]:
    if figure not in costs.index:
        return math.nan, math.nan
    mine, theirs = costs.loc[[figure], ["draws", "reference"]].to_numpy(dtype=float)[0]
    return float(mine), float(theirs)


def number(value: float, digits: int = 3) -> str:
    """Return `value` to this many digits, without an exponent if that is readable."""
    if math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if size == 0:
        return "0"
    text = f"{value:,.0f}" if 10 ** (digits - 1) <= size < 1e12 else f"{value:#.{digits}g}"
    return text.replace("-", "−")


def signed(value: float, decimals: int = 2) -> str:
    """Return `value` with its sign."""
    if not math.isfinite(value) or abs(value) >= 1000:
        return number(value)
    return f"{round(value, decimals) + 0.0:+.{decimals}f}".replace("-", "−")  # adding 0.0 turns -0.00 into 0.00


def share(value: float) -> str:
    """Return `value` in percent."""
    return percent(value) if math.isfinite(value) else number(value)


def _cost(comparison: "Comparison", samplers: tuple[str, str]) -> Table:
    rows = []
    for row in comparison.cost.to_dict("records"):
        label = sentence(str(row["label"]))[:-1]
        rows.append(
            (Cell(label), Cell(number(row["draws"])), Cell(number(row["reference"])), Cell(_times(row["ratio"])))
        )
    return Table((), ("", *samplers, f"{samplers[0]} is"), tuple(rows))


def _times(ratio: float) -> str:
    """Return how many times better one side is."""
    if not math.isfinite(ratio) or ratio <= 0:
        return MISSING
    if 0.95 < ratio < 1.05:
        return "about the same"
    return f"{number(ratio, 2)} × better" if ratio > 1 else f"{number(1 / ratio, 2)} × worse"


def _differences(parameters: "pd.DataFrame", samplers: tuple[str, str], significant: float) -> Table:
    rows = []
    for name, row in zip(parameters.index, parameters.to_dict("records"), strict=True):
        sd = row["sd_reference"]
        rows.append(
            (
                Cell(str(name)),
                Cell(_to_sd(row["mean"], sd)),
                Cell(_to_sd(row["mean_reference"], sd)),
                Cell(signed(row["mean_diff_sd"])),
                Cell(signed(row["mean_z"], 1), row["mean_p"] <= significant),
                Cell(number(row["sd"])),
                Cell(number(sd)),
                Cell(fixed(row["sd_ratio"], 3)),
                Cell(signed(row["sd_z"], 1), row["sd_p"] <= significant),
                *(Cell(signed(row[f"{q}_diff_sd"]), row[f"{q}_p"] <= significant) for q in ("q5", "q50", "q95")),
            )
        )
    groups = (("", 1), ("Mean", 4), ("Standard deviation", 4), ("Quantiles, difference / sd", 3))
    columns = ("", *samplers, "difference / sd", "z", *samplers, "ratio", "z", "5 %", "50 %", "95 %")
    return Table(groups, columns, tuple(rows))


def _distributions(parameters: "pd.DataFrame", samplers: tuple[str, str], significant: float) -> Table:
    rows = []
    for name, row in zip(parameters.index, parameters.to_dict("records"), strict=True):
        hats = (row["r_hat"], row["r_hat_reference"], row["r_hat_pooled"])
        sizes = (row["ess_bulk"], row["ess_bulk_reference"], row["ess_tail"], row["ess_tail_reference"])
        rows.append(
            (
                Cell(str(name)),
                Cell(fixed(row["ks"], 3)),
                Cell(_p_value(row["ks_p"]), row["ks_p"] <= significant),
                Cell(_p_value(row["ad_p"], *_AD_P)),
                Cell(fixed(row["wasserstein_sd"], 3)),
                *(Cell(fixed(value, 3), value > R_HAT_MAX) for value in hats),
                *(Cell(MISSING if math.isnan(value) else f"{value:,.0f}") for value in sizes),
            )
        )
    groups = (("", 1), ("Distribution", 4), ("R-hat", 3), ("ESS, bulk", 2), ("ESS, tail", 2))
    columns = ("", "KS", "p", "AD p", "W1 / sd", *samplers, "pooled", *samplers, *samplers)
    return Table(groups, columns, tuple(rows))


def _to_sd(value: float, sd: float) -> str:
    """Return `value` with two digits of the sd."""
    if not (math.isfinite(value) and math.isfinite(sd) and sd > 0) or abs(value) >= 1e6:
        return number(value)
    decimals = max(0, math.ceil(-math.log10(sd / 10)))
    return f"{round(value, decimals) + 0.0:.{decimals}f}".replace("-", "−") if decimals <= 6 else number(value)


def fixed(value: float, decimals: int) -> str:
    """Return `value` to this many decimals."""
    if not math.isfinite(value) or abs(value) >= 1000:
        return number(value)
    return f"{value:.{decimals}f}".replace("-", "−")


def _p_value(value: float, least: float = _SMALL_P, most: float = 1.0) -> str:
    if math.isnan(value):
        return MISSING
    if value <= least:
        return f"≤ {least:g}"
    return f"≥ {most:g}" if value >= most < 1 else f"{value:.2g}"


def apart(comparison: "Comparison", samplers: tuple[str, str], *, most: int = MAX_ROWS) -> Iterable[tuple[str, str]]:
    """Yield quantities that could not be compared, by reason, with up to ``most`` names each."""
    alignment = comparison.alignment
    for label, names in (
        (f"Only in the {samplers[0]} draws", alignment.only_in_draws),
        (f"Only in the draws of {samplers[1]}", alignment.only_in_reference),
        ("Different shapes", alignment.other_shape),
        ("Not numbers", alignment.not_numeric),
        ("Saved on neither side", alignment.in_neither),
        ("Constant and equal in both", alignment.constant),
        ("The same linear function of another quantity on both sides", alignment.copies),
    ):
        if names:
            more = f" and {len(names) - most:,} more" if len(names) > most else ""
            yield label, ", ".join(names[:most]) + more


def _provenance(comparison: "Comparison", samplers: tuple[str, str]) -> Table:
    sides = [dict(origin_of(idata)) for idata in (comparison.draws, comparison.reference)]
    labels = list(dict.fromkeys(label for side in sides for label in side))
    rows = tuple((Cell(label), *(Cell(side.get(label, MISSING)) for side in sides)) for label in labels)
    return Table((), ("", *samplers), rows)


def origin_of(idata: "InferenceData") -> Iterable[tuple[str, str]]:
    """Return where draws come from, as labels and texts; file names without their folders."""
    facts = attrs(idata)
    sizes = group(idata, "posterior").sizes
    settings = dict(facts.get("settings") or {})
    yield "Model", " ".join(str(facts[key]) for key in ("model", "model_hash") if facts.get(key)) or MISSING
    if facts.get("data_hash"):
        sources = DataSources.restored(str(facts.get("data_file") or ""))
        yield "Data", f"{sources.name if sources else ''} {facts['data_hash']}".strip()
    if facts.get("n_observations"):
        yield "Observations", f"{facts['n_observations']:,}"
    if "engine" in facts:
        yield "Sampler", f"{facts.get('method', 'NUTS')}, {facts['engine']} {facts.get('engine_version', '')}".strip()
        if facts.get("engine_reason"):
            yield "Reason for this engine", str(facts["engine_reason"])
        if facts.get("equivalence"):
            yield "Other formulation", str(facts["equivalence"])
    elif "test" in facts:
        yield "Sampler", f"stansub, {with_level(facts['test'], error_level(facts))}"
        yield "Blocks", f"{facts.get('n_blocks', 0):,} of {facts.get('block_size', 0):,} observations"
    else:
        yield "Sampler", "not recorded"
    yield "Draws", f"{sizes['chain']} × {sizes['draw']:,}"
    if "seed" in settings:
        yield "Seed", str(settings.pop("seed"))
    if settings:
        yield (
            "Settings",
            ", ".join(f"{key} {_text(value)}" for key, value in settings.items() if value not in (None, "")),
        )
    if facts.get("versions"):
        yield "Versions", ", ".join(f"{key} {value}" for key, value in dict(facts["versions"]).items())
    if "n_divergences" in facts:
        yield "Divergences", f"{total(facts, 'n_divergences'):,.0f}"
    if "test" in facts:
        yield "Audit", short_audit(record_of(idata))
    if facts.get("stopped"):
        yield "Stopped", str(facts["stopped"])
    if facts.get("time_split"):
        yield "Split of the time", str(facts["time_split"])
    if facts.get("created_at"):
        yield "Created", str(facts["created_at"])[:19].replace("T", " ")


def _text(value: Any) -> str:
    """Return a setting as text; of a path only the file name, because folders are private."""
    return re.sub(r"(?<!\S)(?:~|[A-Za-z]:)?[/\\]\S*[/\\]", "", str(value))
