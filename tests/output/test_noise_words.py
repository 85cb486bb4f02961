"""What is said of decisions that count the noise of their estimates in."""

from io import StringIO
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import chi2
from synthetic import run

from stansub.decision_findings import NoAudit, NoiseTooLarge, NoiseUnderestimated, TooFewAudits, WrongDecisions
from stansub.findings import Finding
from stansub.output.checks import findings_of
from stansub.output.record import estimates_of, record_of
from stansub.output.summary import render

FACTS = {
    "test": "barker",
    "epsilon": 0.005,
    "noise": 1.0,
    "n_fallback": [2] * 4,
    "n_audited": [0] * 4,
    "n_audited_estimates": [100] * 4,
    "audit_squares": [104.0] * 4,
}


def printed(**attrs: Any) -> str:
    out = StringIO()
    render(run(attrs=FACTS | attrs), Console(file=out, width=200), verbose=True)
    return " ".join(out.getvalue().split())


def found(**attrs: Any) -> tuple[Finding, ...]:
    return findings_of(run(attrs=FACTS | attrs))


def test_a_healthy_run() -> None:
    text = printed()
    assert "barker, on estimated log ratios with a standard error of at most 1" in text
    assert "0.2 % of the decisions were noisier and taken by pocock with epsilon = 0.005" in text
    assert "400 audited estimates were off by 1.02 standard errors (root mean square; 1 expected)" in text
    assert "(barker with epsilon = 0.005, audited estimates off by 1.02 standard errors)" in text
    assert "wrong" not in text
    assert "Warning" not in text


def test_decisions_of_the_looks_stand_beside() -> None:
    text = printed(n_audited=[5] * 4)
    assert "400 audited estimates" in text
    assert "0 of 20 other decisions were wrong" in text
    assert "(barker with epsilon = 0.005, audited estimates off by 1.02 standard errors)" in text
    assert "Warning" not in text, "they are too few to matter"


@pytest.mark.parametrize(
    ("attrs", "kind", "text"),
    [
        (
            {"audit_squares": [150.0] * 4},
            NoiseUnderestimated,
            "400 audited estimates were off by 1.22 standard errors",
        ),
        (
            {"n_fallback": [300] * 4, "n_audited": [500] * 4},
            NoiseTooLarge,
            "The noise of 30 % of the decisions was too large",
        ),
        ({"n_fallback": [150] * 4, "n_audited": [2] * 4}, TooFewAudits, "Too few decisions were audited (8)"),
        (
            {"n_audited": [50] * 4, "n_audit_wrong": [5] * 4},
            WrongDecisions,
            "20 of 200 audited decisions were wrong",
        ),
        ({"n_audited_estimates": [0] * 4, "audit_squares": [0.0] * 4}, NoAudit, "No decision was audited"),
    ],
)
def test_each_trouble_is_found(attrs: dict[str, Any], kind: type[Finding], text: str) -> None:
    (finding,) = [one for one in found(**attrs) if isinstance(one, kind)]
    assert text in finding.describe().text
    assert found() == ()


def test_what_is_expected_of_few_estimates_is_not_warned_of() -> None:
    assert found(n_audited_estimates=[5] * 4, audit_squares=[7.0] * 4) == ()


def test_other_tests_have_no_estimates() -> None:
    record = record_of(run())
    assert record.estimates is None
    assert record.fallback_share is None


def test_the_limit_is_exceeded_as_often_as_it_should() -> None:
    squares = chi2(40).rvs(20_000, random_state=np.random.default_rng(1))
    lows = np.array([one.low for one in (estimates_of(40, value) for value in squares) if one is not None])
    assert abs((lows > 1).mean() - 0.01) < 4 * np.sqrt(0.01 * 0.99 / 20_000)
    assert estimates_of(0, 0.0) is None
