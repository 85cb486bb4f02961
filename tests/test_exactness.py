"""The comparison with importance sampling and NUTS: its standard errors, its verdicts, and one posterior of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
MODULES = ("run", "page", "study", "agreement", "importance", "posteriors", "ways")
SEED = 12

Array = NDArray[np.float64]


@pytest.fixture(scope="module")
def study() -> Iterator[Any]:
    """The command's modules, whose names are common ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        patch.syspath_prepend(str(BENCHMARKS / "exactness"))
        for name in MODULES:
            patch.delitem(sys.modules, name, raising=False)
        import agreement
        import importance
        import page
        import posteriors
        import run
        import study as rows

        yield SimpleNamespace(
            agreement=agreement, importance=importance, page=page, posteriors=posteriors, run=run, rows=rows.rows
        )
        for name in MODULES:
            sys.modules.pop(name, None)


def normals(n: int = 100_000, seed: int = SEED) -> Array:
    return np.random.default_rng(seed).standard_normal((4, n // 4, 3))


def autoregressive(n: int, correlation: float, rng: np.random.Generator) -> Array:
    draws = np.empty((4, n, 1))
    draws[:, 0] = rng.standard_normal((4, 1))
    for k in range(1, n):
        noise = rng.standard_normal((4, 1))
        draws[:, k] = correlation * draws[:, k - 1] + np.sqrt(1 - correlation**2) * noise
    return draws


def test_errors_of_independent_draws(study: Any) -> None:
    draws = normals()
    n, q = draws[..., 0].size, norm.ppf(0.95)
    found = study.agreement.of_draws(draws)
    tail = np.sqrt(0.05 * 0.95 / n) / norm.pdf(q)
    expected = np.array([1 / np.sqrt(n), 1 / np.sqrt(2 * n), tail, tail])[:, np.newaxis]
    np.testing.assert_allclose(found.errors / expected, 1, atol=0.1)
    z = (found.values - np.array([0, 1, -q, q])[:, np.newaxis]) / found.errors
    assert np.abs(z).max() < 4
    assert found.effective == pytest.approx(n, rel=0.15)


def test_errors_of_dependent_draws(study: Any) -> None:
    draws = autoregressive(40_000, 0.8, np.random.default_rng(SEED))
    mean, sd = study.agreement.of_draws(draws).errors[:2, 0] * np.sqrt(draws.size)
    assert mean == pytest.approx(np.sqrt(1.8 / 0.2), rel=0.1)
    assert sd == pytest.approx(np.sqrt(0.5 * (1 + 0.64) / (1 - 0.64)), rel=0.1)


def test_errors_of_weighted_draws_are_those_over_repeats(study: Any) -> None:
    """Draws from a wider normal distribution, weighted; ignoring the weights' spread would show."""
    rng, z = np.random.default_rng(SEED), []
    truth = np.array([0, 1, norm.ppf(0.05), norm.ppf(0.95)])
    for _ in range(200):
        x = 1.5 * rng.standard_normal((2000, 1))
        weights = np.exp(-0.5 * x[:, 0] ** 2 * (1 - 1 / 1.5**2))
        found = study.agreement.of_weighted(x, weights / weights.sum())
        z.append((found.values[:, 0] - truth) / found.errors[:, 0])
    np.testing.assert_allclose(np.std(z, axis=0), 1, atol=0.2)


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (lambda x: x, "agrees"),
        (lambda x: x + np.array([0, 0, 0.03]), "differs"),
        (lambda x: x * [1, 0.97, 1], "differs"),
        (lambda x: (x + 0.1 * (x**2 - 1)) / np.sqrt(1.02), "differs"),
        (lambda x: np.where(np.arange(3) == 1, np.nan, x), "differs"),
        (lambda x: x[:, :1000], "unclear"),
    ],
    ids=["same", "shifted", "narrow", "skewed", "not finite", "few"],
)
def test_verdicts(study: Any, change: Any, state: str) -> None:
    reference = study.agreement.of_draws(normals())
    found = study.agreement.compare(study.agreement.of_draws(np.asarray(change(normals(seed=SEED + 1)))), reference)
    assert found.state(0.02, study.agreement.limit_of([found])) == state


def test_a_skewed_sample_is_seen_by_its_tails_alone(study: Any) -> None:
    """The control of the comparison: mean and sd are right."""
    draws = normals()
    skewed = (draws + 0.1 * (draws**2 - 1)) / np.sqrt(1.02)
    own = study.agreement.of_draws(skewed)
    z = study.agreement.compare(own, study.agreement.of_draws(normals(seed=SEED + 1))).z
    assert np.abs(z[:2]).max() < 4 < np.abs(z[2:]).min()


def linear(study: Any) -> Any:
    """A posterior that is known: normal observations with an sd of 1."""

    def simulate(rng: np.random.Generator) -> tuple[Array, Array]:
        x = rng.standard_normal((30, 2))
        return x, x @ [1.0, -1.0] + rng.standard_normal(30)

    return study.posteriors.Posterior("linear", "", BENCHMARKS, lambda eta: eta**2 / 2, simulate, steps=1)


def test_importance_sampling_finds_a_known_posterior(study: Any) -> None:
    posterior = linear(study)
    weighted = study.importance.sample(posterior, 50_000, np.random.default_rng(SEED))
    x, y = posterior.simulate(np.random.default_rng(1))
    z = np.column_stack([np.ones(30), x])
    covariance = np.linalg.inv(z.T @ z + np.eye(3) / 2.5**2)
    mean, sd = covariance @ z.T @ y, np.sqrt(np.diag(covariance))
    q = norm.ppf(0.95) * sd
    found = study.agreement.of_weighted(weighted.points, weighted.weights)
    assert np.abs((found.values - [mean, sd, mean - q, mean + q]) / found.errors).max() < 4
    assert weighted.effective >= 50_000
    assert weighted.pareto_k < 0.5
    assert np.abs(weighted.skewness).max() < 0.1


def made_up(study: Any, shift: float) -> Any:
    """Rows of standard normal draws; those of factorised are shifted."""

    def rows(posterior: Any, effective: float, seed: int) -> Iterator[dict[str, Any]]:
        rng = np.random.default_rng([seed, len(posterior.name)])
        names = posterior.names
        for way in ("importance sampling", "NUTS", "normal draws", *study.page.WAYS):
            draws = rng.standard_normal((4, int(effective) // 4, len(names))) + shift * (way == "factorised")
            found = study.agreement.of_draws(draws)
            row = {"posterior": posterior.name, "way": way, "effective": found.effective, "seconds": 1.0}
            row |= {"parameters": names, "values": found.values.tolist(), "errors": found.errors.tolist()}
            if way == "importance sampling":
                row |= {"weighted": 9, "weighted_effective": 8.0, "pareto_k": 0.1, "skewness": [-0.3, 0.2]}
            yield row

    return rows


def test_the_page_says_that_all_agree(study: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(study.run.study, "rows", made_up(study, 0.0))
    study.run.main(["--output-dir", str(tmp_path)])
    text = (tmp_path / "README.md").read_text()
    assert "factorised agrees with importance sampling and NUTS on all posteriors" in text
    assert "**differs**" not in text
    assert "None of 5 approximate tests fails" in text
    assert len(json.loads((tmp_path / "results.json").read_text())["rows"]) == 3 * 10
    with pytest.raises(SystemExit):
        study.run.main(["--output-dir", str(tmp_path)])


def test_the_page_says_that_one_does_not(study: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(study.run.study, "rows", made_up(study, 0.1))
    with pytest.raises(SystemExit) as ended:
        study.run.main(["--output-dir", str(tmp_path)])
    assert ended.value.code == 1
    text = (tmp_path / "README.md").read_text()
    assert "**factorised does not pass**: rare against importance sampling differs" in text
    assert "exact agrees with importance sampling and NUTS on all posteriors" in text


@pytest.mark.slow
def test_factorised_draws_are_of_the_posterior_and_approximate_ones_are_not(study: Any) -> None:
    posterior = study.posteriors.POSTERIORS["counts"]
    made = list(study.rows(posterior, 100_000, SEED, ways=("factorised", "austerity, plain")))
    found = study.page.Findings.of(made, 100_000)
    assert found.passed
    assert found.states("austerity, plain") == {"differs"}
    assert found.states("normal draws") == {"differs"}
