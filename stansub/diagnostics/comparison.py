"""Comparison of two samplers' draws: figures and a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stansub.diagnostics.alignment import Alignment, align, check_provenance, shared_chains
from stansub.diagnostics.cost import Ess, cost
from stansub.diagnostics.covariance import Covariances, compare_covariances, worst_pair
from stansub.diagnostics.health import examine
from stansub.diagnostics.statistics import compare_marginals, critical, side
from stansub.diagnostics.verdict import Evidence, Verdict, judge, n_tests
from stansub.errors import InputError
from stansub.findings import Finding, Unrecorded
from stansub.output.inference_data import InferenceData, attrs
from stansub.output.plain import plain

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Comparison:
    """Comparison of draws with a reference.

    Attributes
    ----------
    name
        Name of the model.
    parameters
        A row for each common quantity, the most different first; see `statistics.compare_marginals`.
    overall
        Figures over all quantities: `n_parameters`, `n_tests`, `level`, `critical_z` (that a marginal test must
        exceed), extremes of columns of `parameters` (`*_max`, `*_min`, and the largest `mean_limit_sd`,
        `mean_detectable_sd`, `sd_limit`, `sd_detectable`), `covariance_*` (see `covariance.Covariances`) and
        `worst_pair_*` (see `covariance.Pair`).
    worst_pair
        The two quantities whose correlation differs most, in standard errors; None for fewer than two quantities.
    cost
        See `cost.cost`.
    verdict, alignment
    draws, reference
        The draws compared.
    findings, reference_findings
        Reasons to distrust either side by itself.
    """

    name: str
    parameters: pd.DataFrame
    overall: dict[str, float]
    worst_pair: tuple[str, str] | None
    cost: pd.DataFrame
    verdict: Verdict
    alignment: Alignment
    draws: InferenceData
    reference: InferenceData
    findings: tuple[Finding, ...]
    reference_findings: tuple[Finding, ...]

    def __repr__(self) -> str:
        return f"<Comparison of {self.name}, {len(self.parameters):,} quantities: {self.verdict.headline}>"

    def to_dict(self) -> dict[str, Any]:
        """Return every figure as plain values for JSON, None if undefined; `verdict` is the word."""
        figures = {
            "verdict": self.verdict.word,
            "headline": self.verdict.headline,
            "reasons": self.verdict.reasons,
            "model": self.name,
            "overall": self.overall,
            "worst_pair": self.worst_pair,
            "parameters": self.parameters.to_dict("index"),
            "cost": self.cost.to_dict("index"),
            "notes": self.cost.attrs["notes"],
            "alignment": vars(self.alignment),
            "cautions": [finding.describe()._asdict() for finding in self.findings],
            "reference_cautions": [finding.describe()._asdict() for finding in self.reference_findings],
        }
        return dict(plain(figures))


def compare_draws(
    draws: InferenceData,
    reference: InferenceData,
    *,
    var_names: Sequence[str] | None = None,
    level: float = 0.01,
) -> Comparison:
    """Compare draws with reference draws of the same posterior.

    Parameters
    ----------
    draws
        Draws from `stansub.sample` or `stansub.read_draws`.
    reference
        Trusted draws: from `stansub reference`, another run, or another program in ArviZ's schema.
    var_names
        Variables to compare; by default all that both sides have.
    level
        Probability of a verdict other than "agrees" if nothing differs.

    Raises
    ------
    InputError
        If draws and reference are of different models or data, or have no parameters in common.
    """
    if not 0 < level < 1:
        raise InputError(f"`level={level:g}` must be between 0 and 1")
    unchecked = check_provenance(draws, reference)
    alignment, x, y = align(draws, reference, var_names)
    names = alignment.common
    own, other = side(x), side(y)
    parameters = compare_marginals(names, own, other, level=level)
    evidence = Evidence(
        parameters,
        worst_pair(names, own, other),
        examine(draws, names, own),
        examine(reference, names, other),
        shared_chains(x, y),
    )
    facts = attrs(draws)
    costs = cost(facts, attrs(reference), Ess.smallest(own), Ess.smallest(other))
    costs.attrs["notes"] += unchecked
    return Comparison(
        name=str(facts.get("model", "model")),
        parameters=parameters,
        overall=_overall(evidence, compare_covariances(own, other), level),
        worst_pair=evidence.pair.names if evidence.pair else None,
        cost=costs,
        verdict=judge(evidence, level=level),
        alignment=alignment,
        draws=draws,
        reference=reference,
        findings=evidence.draws.findings,
        reference_findings=(*evidence.reference.findings, *([Unrecorded(tuple(unchecked))] if unchecked else [])),
    )


def _overall(evidence: Evidence, covariances: Covariances, level: float) -> dict[str, float]:
    parameters, pair = evidence.parameters, evidence.pair
    figures = {
        "n_parameters": len(parameters),
        "n_tests": n_tests(evidence),
        "level": level,
        "critical_z": critical(level, len(parameters)),
        "mean_diff_sd_max": parameters["mean_diff_sd"].abs().max(),
        "mean_limit_sd": parameters["mean_limit_sd"].max(),
        "mean_detectable_sd": parameters["mean_detectable_sd"].max(),
        "sd_ratio_min": parameters["sd_ratio"].min(),
        "sd_ratio_max": parameters["sd_ratio"].max(),
        "sd_limit": parameters["sd_limit"].max(),
        "sd_detectable": parameters["sd_detectable"].max(),
        "wasserstein_sd_max": parameters["wasserstein_sd"].max(),
        "r_hat_max": parameters["r_hat"].max(),
        "r_hat_reference_max": parameters["r_hat_reference"].max(),
        "r_hat_pooled_max": parameters["r_hat_pooled"].max(),
        "covariance_relative": covariances.relative,
        "covariance_standardised": covariances.standardised,
        "covariance_expected": covariances.expected,
        "worst_pair_correlation": pair.correlation if pair else math.nan,
        "worst_pair_correlation_reference": pair.correlation_reference if pair else math.nan,
        "worst_pair_z": pair.z if pair else math.nan,
    }
    return {name: float(value) for name, value in figures.items()}
