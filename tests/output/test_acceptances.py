"""What audits of acceptance probabilities by learned bounds tell, and the words for it."""

from __future__ import annotations

import numpy as np
import pytest

from stansub.decision_findings import BoundsTooSmall
from stansub.findings import Acceptances, ErrorLevel
from stansub.output.record import LEARNED, acceptances_of, audit_of, error_level


@pytest.mark.parametrize("n", [1, 30, 400, 100_000])
def test_without_errors_the_limit_is_that_of_as_many_decisions(n: int) -> None:
    found = acceptances_of(n, 0.0)
    assert found is not None
    assert found.mean == 0
    assert found.limit == pytest.approx(audit_of(n, 0).high, rel=1e-6)


def test_the_limit_grows_with_the_errors_up_to_one() -> None:
    limits = [acceptances_of(50, error).limit for error in (0.0, 0.01, 1.0, 20.0, 40.0)]  # type: ignore[union-attr]
    assert limits == sorted(limits)
    assert limits[-1] < 1
    assert acceptances_of(50, 50.0) == Acceptances(50, 1.0, 1.0)
    assert acceptances_of(0, 0.0) is None


@pytest.mark.parametrize("kind", ["all or nothing", "rare", "uniform"])
def test_the_limit_holds_whatever_the_distribution(kind: str) -> None:
    rng, n, repeats = np.random.default_rng(1), 200, 2000
    chance = {"all or nothing": 0.02, "rare": 0.004}.get(kind, 1.0)
    errors = (rng.random((repeats, n)) < chance) * (rng.random((repeats, n)) if kind == "uniform" else 1.0)
    mean = 0.5 if kind == "uniform" else chance
    found = [acceptances_of(n, float(one)) for one in errors.sum(1)]
    missed = np.mean([one is not None and one.limit < mean for one in found])
    assert missed <= 0.025 + 3 * np.sqrt(0.025 / repeats)
    assert np.mean([one.limit for one in found if one is not None]) < mean + 0.12, "it is no bound that says nothing"


def test_only_learned_bounds_make_a_factorised_test_err() -> None:
    facts = {"test": "factorised", "settings": {"max_error": 0.03}}
    assert error_level(facts | {"guarantee": "exact by proved bounds"}).value == 0
    assert error_level(facts | {"guarantee": LEARNED}) == ErrorLevel("max_error", 0.03)


@pytest.mark.parametrize(("mean", "remedy"), [(0.001, "Raise `audit`"), (0.04, "These draws may be biased")])
def test_the_remedy_depends_on_what_was_seen(mean: float, remedy: str) -> None:
    text = BoundsTooSmall(Acceptances(100, mean, 0.08), 0.02, 7).describe().line
    assert "by at most 8 % with 95 % confidence, more than the 2 % accepted" in text
    assert "7 decisions used a block beyond its bound" in text
    assert remedy in text
