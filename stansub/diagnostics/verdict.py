"""Verdict on draws compared with a reference: a word, a sentence and its reasons.

The verdict rests on a family of tests: mean, sd, 5, 50 and 95 % quantiles and Kolmogorov-Smirnov for every quantity,
and the correlation of every pair. Each of the seven kinds has an equal share of the level, which its tests divide
equally (Bonferroni). Faultless draws are therefore said to differ with probability at most `level`, for any dependence
between the tests. A significant difference gives "differs", draws unfit for any use "do not use", and a reference that
cannot be trusted, or is too short to tell, "inconclusive".
Wrong decisions beyond the accepted level are a reason, not a verdict: the comparison itself shows their effect on the
posterior.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from stansub.diagnostics.covariance import NEGLIGIBLE, Pair
from stansub.diagnostics.health import Health
from stansub.diagnostics.statistics import POWER, TESTS, detectable, share
from stansub.output.checks import R_HAT_MAX
from stansub.wording import percent

if TYPE_CHECKING:
    import pandas as pd

Word = Literal["agrees", "differs", "inconclusive", "do not use"]

R_HAT_UNFIT = 1.05  # chains that disagree so much that their pooled draws mean nothing
MEAN_GRAVE, SD_GRAVE = 0.5, 1.5  # error of a mean in sds, and factor of an sd, beyond which draws are useless
MEAN_RESOLUTION, SD_RESOLUTION = 0.3, 0.25  # coarser comparisons (sds, share) say too little
_NAMED = 3  # maximum number of quantities named in a reason
_KINDS = {
    "mean": ("the mean", "Means"),
    "sd": ("the sd", "Sds"),
    "q5": ("the 5 % quantile", "5 % quantiles"),
    "q50": ("the median", "Medians"),
    "q95": ("the 95 % quantile", "95 % quantiles"),
    "ks": ("the distribution", "Distributions"),
    "correlation": ("the correlation", "Correlations"),
}


@dataclass(frozen=True)
class Verdict:
    """Verdict of a comparison."""

    word: Word
    headline: str
    """One sentence that starts with the word."""
    reasons: tuple[str, ...]
    """A sentence each, the most serious first."""


class Evidence(NamedTuple):
    """Evidence for a verdict: figures of each quantity, the worst pair, either side by itself, shared chains."""

    parameters: pd.DataFrame
    pair: Pair | None
    draws: Health
    reference: Health
    n_shared: int


def judge(evidence: Evidence, *, level: float) -> Verdict:
    """Return the verdict.

    ``level`` is the probability of a verdict other than "agrees" if draws and reference come from the same distribution
    and converged.
    """
    against = list(_broken(evidence))
    blind = [*_shared(evidence), *_mistrust(evidence)]
    if not against and not blind:  # the size of a difference matters only for sound draws
        against += _grave(evidence, level)
    if not against and not blind and (few := _too_few(evidence, level)) is not None:
        (against if few.of_draws else blind).append(few.sentence)
    differing = list(_differing(evidence, level))
    differences = [one.sentence for one in differing]
    remarks = list(_remarks(evidence))
    if against or blind:
        word: Word = "do not use" if against else "inconclusive"
        reasons = *against, *blind
        return Verdict(word, f"{word}: {_lower(reasons[0].removesuffix('.'))}", (*reasons, *differences, *remarks))
    if differences:
        limits = _limits(evidence.parameters, level)
        return Verdict("differs", _differs(differing), (*differences, limits, *remarks))
    return Verdict("agrees", _agrees(evidence.parameters), tuple(remarks))


def n_tests(evidence: Evidence) -> int:
    """Return the number of tests of the verdict."""
    return 6 * len(evidence.parameters) + (evidence.pair.n_pairs if evidence.pair else 0)


def _differs(differing: Sequence[_Differing]) -> str:
    return f"differs: {_names(one.worst for one in differing)}"


def _limits(parameters: pd.DataFrame, level: float) -> str:
    mean, sd = parameters["mean_limit_sd"].max(), parameters["sd_limit"].max()
    sds = f" and no sd{_tested(parameters)} by more than {percent(sd)}" if math.isfinite(sd) else ""
    return f"No mean differs by more than {_sds(mean)}{sds} ({percent(1 - level)} confidence)."


def _agrees(parameters: pd.DataFrame) -> str:
    mean, sd = parameters["mean_detectable_sd"].max(), parameters["sd_detectable"].max()
    sds = f" or {percent(sd)} in any sd{_tested(parameters)}" if math.isfinite(sd) else ""
    return (
        f"agrees within Monte Carlo error: a difference of {_sds(mean)} in any mean{sds} would have been detected "
        f"with probability {POWER:g}"
    )


def _tested(parameters: pd.DataFrame) -> str:
    return " that could be tested" if parameters["sd_z"].isna().any() else ""


def _shared(evidence: Evidence) -> Iterator[str]:
    draws, n = evidence.draws, evidence.n_shared
    if n == draws.n_chains == evidence.reference.n_chains:
        yield "The draws and the reference are the same draws: compare with an independent reference."
    elif n:
        yield (
            f"The draws and the reference have {_plural(n, 'chain').lower()} in common: compare with an independent "
            "reference."
        )


def _mistrust(evidence: Evidence) -> Iterator[str]:
    for text in _doubts(evidence):
        yield f"The reference itself cannot be trusted: {text}."


def _doubts(evidence: Evidence) -> Iterator[str]:
    reference, r_hat = evidence.reference, evidence.parameters["r_hat_reference"]
    if reference.n_divergences:
        total = reference.n_chains * reference.n_draws
        yield f"{reference.n_divergences:,} of its {total:,} transitions diverged"
    if reference.nonfinite:
        yield f"its draws of {_names(reference.nonfinite)} are not all finite"
    if reference.stuck:
        yield f"its {_chains(reference.stuck)} stuck"
    if (r_hat > R_HAT_UNFIT).any():
        yield f"its chains have not converged, R-hat {_worst(r_hat[r_hat > R_HAT_UNFIT], '{:.2f}')}"
    if frozen := [name for name in reference.still if name not in evidence.draws.still]:
        yield f"{_names(frozen)} never {'moves' if len(frozen) == 1 else 'move'} in its draws"


def _broken(evidence: Evidence) -> Iterator[str]:
    draws, r_hat = evidence.draws, evidence.parameters["r_hat"]
    if draws.missed_share:
        yield f"The chains missed a mode that holds about {percent(draws.missed_share)} of the posterior."
    if draws.nonfinite:
        yield f"The draws of {_names(draws.nonfinite)} are not all finite."
    if draws.stuck:
        yield f"The draws' {_chains(draws.stuck)} stuck."
    if frozen := [name for name in draws.still if name not in evidence.reference.still]:
        yield f"{_names(frozen)} never {'moves' if len(frozen) == 1 else 'move'} in the draws."
    if both := [name for name in draws.still if name in evidence.reference.still]:
        never = "never moves, and has another value" if len(both) == 1 else "never move, and have other values"
        yield f"{_names(both)} {never} in the reference."
    if (r_hat > R_HAT_UNFIT).any():
        yield f"The chains have not converged: R-hat {_worst(r_hat[r_hat > R_HAT_UNFIT], '{:.2f}')}."


def _grave(evidence: Evidence, level: float) -> Iterator[str]:
    parameters = evidence.parameters
    alpha = share(level, len(parameters))
    means, log_ratio = parameters["mean_diff_sd"], np.log(parameters["sd_ratio"])
    off = means[(means.abs() > MEAN_GRAVE) & (parameters["mean_p"] < alpha)]
    if len(off):
        yield f"{_plural(len(off), 'mean')} off by more than {MEAN_GRAVE:g} sd: {_worst(off, '{:+.2g} sd')}."
    wide = parameters["sd_ratio"][(log_ratio.abs() > np.log(SD_GRAVE)) & (parameters["sd_p"] < alpha)]
    if len(wide):
        worst = log_ratio[wide.index].abs().sort_values(ascending=False).index
        yield (
            f"{_plural(len(wide), 'sd')} off by a factor of more than {SD_GRAVE:g}: "
            f"{_worst(wide[worst], '{:.2g} times the reference', sort=False)}."
        )


class _TooFew(NamedTuple):
    """Effective draws are too few to tell: which side has fewer, and the reason."""

    of_draws: bool
    sentence: str


def _too_few(evidence: Evidence, level: float) -> _TooFew | None:
    """Return the reason if means, or sds of normal quantities with this tail ESS, are known too badly."""
    parameters = evidence.parameters
    means = parameters["mean_detectable_sd"]
    tails = (0.5 / parameters["ess_tail"] + 0.5 / parameters["ess_tail_reference"]) ** 0.5
    sds = (float(detectable(level, len(parameters))) * tails).map(math.expm1)
    for values, limit, what, form in (
        (means, MEAN_RESOLUTION, "mean", _sds),
        (sds, SD_RESOLUTION, "sd", percent),
    ):
        coarse = values[~(values <= limit)].sort_values(ascending=False)
        if len(coarse):
            ess, other = (
                parameters.loc[coarse.index[0], [f"ess_bulk{suffix}", f"ess_tail{suffix}"]].min()
                for suffix in ("", "_reference")
            )
            unseen = f"{'more than ' if coarse.iloc[0] > 1 else ''}{form(min(coarse.iloc[0], 1.0))}"
            remedy = "sample longer" if ess < other else "compare with a longer reference"
            return _TooFew(
                ess < other,
                f"There are too few effective draws: a difference of {unseen} in the {what} of {coarse.index[0]} could "
                f"go undetected (ESS {ess:.0f} in the draws, {other:.0f} in the reference); {remedy}.",
            )
    return None


class _Size(NamedTuple):
    """A significant difference: quantity, size and significance."""

    name: str
    size: str
    evidence: str


class _Differing(NamedTuple):
    """Significant differences of a kind of test, the most significant first."""

    kind: str
    sizes: Sequence[_Size]

    @property
    def worst(self) -> str:
        return f"{_KINDS[self.kind][0]} of {self.sizes[0].name} by {self.sizes[0].size}"

    @property
    def sentence(self) -> str:
        return f"{_KINDS[self.kind][1]} differ: {_names(f'{n} by {size} ({why})' for n, size, why in self.sizes)}."


def _differing(evidence: Evidence, level: float) -> Iterator[_Differing]:
    """Yield the significant differences by kind of test."""
    parameters, pair = evidence.parameters, evidence.pair
    alpha = share(level, len(parameters))

    def size(kind: str, row: pd.Series[float]) -> tuple[str, str]:
        if kind == "ks":
            return f"a Kolmogorov-Smirnov distance of {row['ks']:.2g}", f"p {_p(row['ks_p'])}"
        by = _change(row["sd_ratio"]) if kind == "sd" else f"{row[f'{kind}_diff_sd']:+.2g} sd"
        return by, _errors(row[f"{kind}_z"])

    for kind in TESTS:
        rows = parameters[(parameters[f"{kind}_p"] < alpha) & np.isfinite(parameters["worst"])]
        by = rows[f"{kind}_z" if kind != "ks" else "ks"].abs()
        names = by.sort_values(ascending=False, kind="stable").index
        if len(names):
            yield _Differing(kind, [_Size(str(name), *size(kind, rows.loc[name])) for name in names])
    if pair is not None and pair.p < share(level, pair.n_pairs):
        own, other = pair.correlation, pair.correlation_reference
        why = f"{own:.2f} instead of {other:.2f}, {_errors(pair.z)} beyond {NEGLIGIBLE:g}"
        yield _Differing("correlation", [_Size(" and ".join(pair.names), f"{own - other:+.2g}", why)])


def _errors(z: float) -> str:
    return f"{abs(z):.1f} standard errors"


def _remarks(evidence: Evidence) -> Iterator[str]:
    """Yield remarks for the reader, whatever the verdict."""
    parameters = evidence.parameters
    for side, health, column in (
        ("draws", evidence.draws, "r_hat"),
        ("reference", evidence.reference, "r_hat_reference"),
    ):
        r_hat = parameters[column]
        if health.n_chains == 1:
            yield f"The {side} {_have(side)} only one chain, so R-hat cannot show which regions it missed."
        if R_HAT_MAX < r_hat.max() <= R_HAT_UNFIT:
            yield f"The chains of the {side} have barely converged: R-hat {_worst(r_hat[r_hat > R_HAT_MAX], '{:.3f}')}."
        if health.wrong_decisions:
            yield (
                f"More audited decisions of the {side} were wrong than the accepted error level allows, or estimates "
                "were noisier; the comparison shows the effect."
            )
    untested = parameters.index[parameters["sd_z"].isna() & np.isfinite(parameters["worst"])]
    if len(untested):
        yield (
            f"Some sds are too uncertain to test, because of heavy tails or few effective draws: {_names(untested)}. "
            "Their quantiles are tested instead."
        )


def _have(side: str) -> str:
    return "have" if side == "draws" else "has"


def _names(names: Iterable[str]) -> str:
    every = list(names)
    return ", ".join(every[:_NAMED]) + (f" and {len(every) - _NAMED:,} more" if len(every) > _NAMED else "")


def _worst(values: pd.Series[float], form: str, *, sort: bool = True) -> str:
    """Return the largest values with their names, sorted by size unless they are sorted already."""
    ordered = values.loc[values.abs().sort_values(ascending=False).index] if sort else values
    return _names(f"{form.format(value)} ({name})" for name, value in ordered.items())


def _chains(chains: Sequence[int]) -> str:
    numbers = ", ".join(map(str, chains))
    return f"chain {numbers} is" if len(chains) == 1 else f"chains {numbers} are"


def _plural(n: int, what: str) -> str:
    return f"One {what}" if n == 1 else f"{n:,} {what}s"


def _lower(sentence: str) -> str:
    """Return a sentence in lower case at its start, unless it starts with a name."""
    first, _, rest = sentence.partition(" ")
    return f"{first.lower() if first in ('The', 'There', 'One') else first} {rest}"


def _sds(value: float) -> str:
    return f"{value:.2g} sd"


def _change(ratio: float) -> str:
    percent = 100 * (ratio - 1)
    return f"{percent:+.0f} %" if abs(percent) >= 10 else f"{percent:+.2g} %"


def _p(value: float) -> str:
    return "< 1e-16" if value < 1e-16 else f"= {value:.1g}"
