"""Shorter forms of log likelihoods: the same values, and tighter bounds."""

from __future__ import annotations

import numpy as np
import pytest
from test_row_program import made, points

from stansub.stan.observations import row_program
from stansub.target.remainders import LinearPredictors

MODELS = {
    "share": "for (n in 1:N) { real h = pow(w[n], t); z[n] ~ normal(exp(a) * h / (h + pow(exp(b[1]), t)), 1); }",
    "other share": "for (n in 1:N) { real h = pow(w[n], t); z[n] ~ normal(a * (h / (pow(exp(b[1]), t) + h)), 1); }",
    "written twice": "for (n in 1:N) z[n] ~ normal(pow(w[n], t) / (pow(exp(a), t) + pow(w[n], t)), 1);",
    "factor": "for (n in 1:N) { real f = inv_logit(a); real m = s * b[1]; target += exp(f * (m + w[n]) - f * m); }",
    "nested factor": "for (n in 1:N) { real f = inv_logit(a); real m = s * b[1];"
    " target += exp(w[n] * f * (m + 1) - f * (w[n] * m)); }",
    "term": "for (n in 1:N) { real m = s * b[1] + w[n]; target += -square((m + exp(a)) - m); }",
    "difference of exponentials": "for (n in 1:N) target += -abs(s) * (exp(a + t * w[n]) - exp(a + t * (w[n] - 0.1)));",
    "interval-censored": "for (n in 1:N) { real h = exp(a + b[1] + t * log(w[n]));"
    " real k = exp(a + b[1] + t * log(2 + w[n])); target += log_diff_exp(-h, -k); }",
    "two differences": "for (n in 1:N) { real m = s * r[1]; target += exp((exp(a) - m) - (w[n] * t - m)) * b[1]; }",
    "the same from two": "for (n in 1:N) { real m = s * r[1]; target += exp((m - exp(a)) - (m - w[n] * t)) * b[1]; }",
}


def in_both_forms(model: str, monkeypatch: pytest.MonkeyPatch) -> tuple[LinearPredictors, LinearPredictors]:
    """The predictors, and those of the form that the text has."""
    found, _ = made(model)
    with monkeypatch.context() as patch:
        patch.setattr(row_program, "shorter", lambda term: term)
        return found, made(model)[0]


@pytest.mark.parametrize("name", MODELS)
def test_a_shorter_form_has_the_same_values_and_tighter_bounds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, as_written = in_both_forms(MODELS[name], monkeypatch)
    for theta in points():
        np.testing.assert_allclose(found.log_lik(theta), as_written.log_lik(theta), rtol=1e-11, atol=1e-11)
    theta, cholesky = points(1)[0], 0.1 * np.eye(11)
    bounds = [one.family.largest(3, one.at(theta), one.lengths(cholesky), 8.0) for one in (found, as_written)]
    assert (bounds[0] <= bounds[1] * (1 + 1e-9)).all()
    assert bounds[0].sum() < 0.7 * bounds[1].sum()


def test_other_denominators_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    for model in ("z ~ normal(w / (exp(a) + exp(b[1])), 1);", "z ~ normal(exp(a) * w ./ (exp(a) + w), 1);"):
        found, as_written = in_both_forms(model, monkeypatch)
        np.testing.assert_array_equal(found.log_lik(points(1)[0]), as_written.log_lik(points(1)[0]))
