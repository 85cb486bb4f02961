"""What is told of decisions that count the noise of their estimates in."""

from io import StringIO
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import chi2
from synthetic import run

from stansub.output.diagnosis import diagnose, estimates_of
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


def told(**attrs: Any) -> str:
    out = StringIO()
    render(run(attrs=FACTS | attrs), Console(file=out, width=200))
    return " ".join(out.getvalue().split())


def cautions(**attrs: Any) -> str:
    return " ".join(caution.text for caution in diagnose(run(attrs=FACTS | attrs)).cautions)


def test_a_healthy_run() -> None:
    text = told()
    assert "barker, on estimated log ratios with a standard error of at most 1" in text
    assert "0.2 % of the decisions were noisier and left to pocock with epsilon = 0.005" in text
    assert "400 audited estimates were off by 1.02 standard errors (root mean square; 1 expected)" in text
    assert "wrong" not in text
    assert "nothing to warn of" in text


def test_decisions_of_the_looks_are_told_beside() -> None:
    text = told(n_audited=[5] * 4)
    assert "400 audited estimates" in text
    assert "0 of 20 other decisions were wrong" in text
    assert "nothing to warn of" in text, "they are too few to matter"


@pytest.mark.parametrize(
    ("attrs", "text"),
    [
        ({"audit_squares": [150.0] * 4}, "400 audited estimates were off by 1.22 standard errors"),
        ({"n_fallback": [300] * 4, "n_audited": [500] * 4}, "The noise of 30 % of the decisions was too large"),
        ({"n_fallback": [150] * 4, "n_audited": [2] * 4}, "Too few decisions were audited (8)"),
        ({"n_audited": [50] * 4, "n_audit_wrong": [5] * 4}, "20 of 200 audited decisions were wrong"),
        ({"n_audited_estimates": [0] * 4, "audit_squares": [0.0] * 4}, "No decision was audited"),
    ],
)
def test_each_trouble_is_told(attrs: dict[str, Any], text: str) -> None:
    assert text in cautions(**attrs)
    assert cautions() == ""


def test_what_is_expected_of_few_estimates_is_not_warned_of() -> None:
    assert cautions(n_audited_estimates=[5] * 4, audit_squares=[7.0] * 4) == ""


def test_other_tests_tell_of_no_estimates() -> None:
    diagnosis = diagnose(run())
    assert diagnosis.estimates is None
    assert diagnosis.fallback_share is None


def test_the_limit_is_exceeded_as_often_as_it_should() -> None:
    squares = chi2(40).rvs(20_000, random_state=np.random.default_rng(1))
    lows = np.array([found.low for found in (estimates_of(40, value) for value in squares) if found is not None])
    assert abs((lows > 1).mean() - 0.01) < 4 * np.sqrt(0.01 * 0.99 / 20_000)
    assert estimates_of(0, 0.0) is None
