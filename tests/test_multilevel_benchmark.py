"""The benchmark of multilevel programs: data from a seed, what the text of its programs shows, and its figures."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import arviz
import numpy as np
import pytest
from pyarrow import parquet
from scipy.stats import norm, t

import stansub
from stansub.stan.data import data as data_module
from stansub.stan.effects import n_parameters
from stansub.stan.source import read
from stansub.stan.sparse import sparse_predictors

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
MODULES = "run", "rows", "gibbs", "references", "nuts_rate", "agreement", "tall_file"
ROWS = (
    *("crossed", "poisson", "negative_binomial", "groups", "cumulative", "horseshoe", "smooths_linear"),
    *("smooths_logistic", "item_response"),
)


@pytest.fixture(scope="module")
def study() -> Iterator[Any]:
    """The command's modules, whose names are common ones."""
    with pytest.MonkeyPatch.context() as patch:
        for folder in (BENCHMARKS, BENCHMARKS / "multilevel"):
            patch.syspath_prepend(str(folder))
        for name in MODULES:
            patch.delitem(sys.modules, name, raising=False)
        import agreement
        import gibbs
        import nuts_rate
        import references
        import rows
        import run
        import tall_file

        yield SimpleNamespace(
            agreement=agreement, gibbs=gibbs, nuts_rate=nuts_rate, references=references, rows=rows, run=run,
            tall_file=tall_file,
        )  # fmt: skip
        for name in MODULES:
            patch.delitem(sys.modules, name, raising=False)


@pytest.mark.parametrize("name", ROWS)
def test_data_fit_their_program_and_its_effects_are_seen(study: Any, name: str) -> None:
    assert tuple(study.rows.ROWS) == ROWS
    row = study.rows.ROWS[name]
    one, other = row.data("small"), row.data("small")
    for key, value in one.items():
        np.testing.assert_array_equal(value, other[key])
    source = read(row.program)
    values = data_module.load(one).checked(source.program.data.declarations)
    assert source.analysis.hints().effects
    assert n_parameters(source.program, values) > 6
    own, n = source.analysis.likelihood_split(), values.integer(source.analysis.size)
    assert sparse_predictors(own, values.values, n).n_observations == n


def test_a_tall_file_begins_with_a_shorter_one(study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its columns fit the crossed regression: groupings of strings, and sizes that follow."""
    monkeypatch.setattr(study.tall_file, "_GROUP", 400)
    for n in (400, 1_000):
        study.tall_file.write(tmp_path / f"{n}.parquet", n)
    short, tall = (parquet.read_table(tmp_path / f"{n}.parquet") for n in (400, 1_000))
    assert tall.num_rows == 1_000
    assert tall.slice(0, 400).equals(short)
    source = read(study.rows.ROWS["crossed"].program)
    given = stansub.DataSources([tmp_path / "1000.parquet"], columns={"x": "x_*"})
    values = data_module.load(given).checked(source.program.data.declarations)
    assert [values.integer(name) for name in ("N", "K", "J")] == [1_000, 10, 50]
    own = source.analysis.likelihood_split()
    assert sparse_predictors(own, values.values, 1_000).n_observations == 1_000


def test_figures_are_of_the_slowest_parameter(study: Any) -> None:
    rng = np.random.default_rng(1)
    slow = np.cumsum(rng.standard_normal((4, 500)), axis=1)
    draws = {"a": rng.standard_normal((4, 500)), "b": np.stack([slow, np.ones_like(slow)], axis=2)}
    found = study.run.parameters(draws, ["a", "b"])
    assert set(found) == {"a", "b[1]"}
    side = study.run.summarised(found, seconds=2.0, set_up=0.5, cores=4.0, note="")
    assert side.slowest == "b[1]"
    assert side.rate == side.ess / 2
    assert side.per_core == side.ess / 4
    assert side.r_hat > 1.1
    moved = study.run.summarised({"a": found["a"] * 2 + 1}, seconds=2.0, set_up=0.5, cores=4.0, note="")
    gaps = study.run.differences(moved, side)
    assert gaps["mean"] == pytest.approx(1, abs=0.1)
    assert gaps["sd"] == pytest.approx(np.log(2))
    assert gaps["mean_z"] > 4
    assert gaps["sd_z"] > 4
    record = {"row": "x", "n": 10, "stansub": side.record(), "nuts": {"failed": "still in warmup"}}
    assert "still in warmup" in study.run.table([record])
    record["nuts"] = study.run.Bound(0.02, 25.0, "still in warmup").record()
    assert f"below 2 | above {side.per_core / 2:.3g} |" in study.run.table([record])


@pytest.fixture(scope="module")
def crossed() -> dict[str, Any]:
    rng, n = np.random.default_rng(1), 300
    sizes = {"N": n, "K": 2, "J": 4, "M": 6}
    g, h = rng.integers(4, size=n) + 1, rng.integers(6, size=n) + 1
    return {**sizes, "y": rng.integers(2, size=n), "x": rng.standard_normal((n, 2)), "g": g, "h": h}


def design(data: dict[str, Any]) -> np.ndarray:
    return np.column_stack([np.ones(data["N"]), data["x"], np.eye(4)[data["g"] - 1], np.eye(6)[data["h"] - 1]])


def test_the_gibbs_sampler_s_precision_is_that_of_the_whole_design(study: Any, crossed: dict[str, Any]) -> None:
    model, rows, data = study.gibbs.Crossed(crossed), design(crossed), crossed
    weights = np.random.default_rng(2).random(data["N"])
    np.testing.assert_allclose(model.precision(weights), rows.T @ (weights[:, np.newaxis] * rows), atol=1e-10)
    np.testing.assert_allclose(model.linear, rows.T @ (data["y"] - 0.5), atol=1e-10)
    b = np.random.default_rng(3).standard_normal(model.dim)
    np.testing.assert_allclose(model.eta(b), rows @ b, atol=1e-12)


@pytest.mark.parametrize("wider", [1.0, 1.3])
def test_scales_have_their_conditional_distribution(study: Any, wider: float) -> None:
    """By quadrature; effects that are 1.3 times as large must not agree."""
    rng = np.random.default_rng(4)
    effects = 0.5 * rng.standard_normal(30)
    draws, now = [], 0.5
    for _ in range(4_000):
        now = study.gibbs.scale(rng, wider * effects, now)
        draws.append(now)
    grid = np.linspace(0.2, 1.5, 4_000)
    density = grid ** -len(effects) * np.exp(-0.5 * (effects @ effects) / grid**2 - 0.5 * grid**2)
    mean = np.average(grid, weights=density)
    sd = np.sqrt(np.average((grid - mean) ** 2, weights=density))
    z = abs(np.mean(draws) - mean) / (sd / np.sqrt(len(draws) / 4))
    assert (z < 4) == (wider == 1.0)


def test_statistics_of_the_horseshoe_have_its_likelihood(study: Any) -> None:
    data = study.rows.ROWS["horseshoe"].data("small")
    found, x = study.nuts_rate.reduced(data), np.column_stack([np.ones(data["N"]), data["x"]])
    for beta in np.random.default_rng(1).standard_normal((3, data["K"] + 1)):
        squares = np.sum((data["y"] - x @ beta) ** 2)
        assert np.sum((found["qy"] - found["r"] @ beta) ** 2) + found["rest"] == pytest.approx(squares, rel=1e-10)


def test_scales_of_the_smooths_have_the_density_with_coefficients_integrated_out(study: Any) -> None:
    """It is the joint density over that of the coefficients given the rest, whatever the coefficients are."""
    data, rng = study.rows.ROWS["smooths_linear"].data("small"), np.random.default_rng(1)
    sampler = study.references.Smooths(data)
    columns = np.column_stack([data["Xs"], *(data[f"Zs_{k}_1"] for k in (1, 2, 3))])
    centred = data["X"][:, 1] - data["X"][:, 1].mean()
    places = np.repeat([0, 1, 2], [data[f"knots_{k}"] for k in (1, 2, 3)])
    constants = []
    for _ in range(6):
        scales, mixing = np.exp(rng.normal(-0.5, 0.5, 4)), float(rng.gamma(2))
        marginal, root, mean = sampler.log_density(np.log(scales), mixing)
        w = mean + 0.3 * rng.standard_normal(mean.size)
        eta = w[0] + w[1] * centred + columns @ w[2:]
        joint = (
            norm.logpdf(data["Y"], eta, scales[3]).sum()
            + norm.logpdf(w[0], 0, 2.5 * np.sqrt(mixing))
            + norm.logpdf(w[1], 0, 2)
            + norm.logpdf(w[2:5], 0, 3).sum()
            + norm.logpdf(w[5:], 0, scales[places]).sum()
            + t.logpdf(scales, 3, 0, 2.5).sum()
            + np.log(scales).sum()
        )
        given = np.log(np.diag(root)).sum() - 0.5 * np.sum((root.T @ (w - mean)) ** 2)
        constants.append(joint - given - marginal)
    np.testing.assert_allclose(constants, constants[0], atol=1e-7)


@pytest.mark.parametrize("wider", [1.0, 1.3])
def test_sigma_beside_smooths_has_the_moments_of_its_marginal_density(study: Any, wider: float) -> None:
    """By quadrature over sigma, the other scales as they were drawn; a sigma 1.3 times as wide must not agree."""
    data = study.rows.ROWS["smooths_linear"].data("small")
    sampler = study.references.Smooths(data)
    draws = study.references.smooths(data, iterations=1_000, seed=2)
    drawn = np.log(draws["sigma"])
    centre = drawn.mean()
    scales = np.log(np.column_stack([draws[f"sds_{k}"][:, ::20, 0].ravel() for k in (1, 2, 3)]))
    grid = centre + np.linspace(-6, 6, 41) * drawn.std()
    means, squares = [], []
    for row in scales:
        log_density = np.array([sampler.log_density(np.append(row, one), 1.0)[0] for one in grid])
        weights = np.exp(log_density - log_density.max())
        means.append(np.average(grid, weights=weights))
        squares.append(np.average((grid - centre) ** 2, weights=weights))
    sd = np.sqrt(np.mean(squares))
    found = centre + wider * (drawn - centre)
    assert abs(np.mean(means) - centre) < 4 * float(arviz.mcse(drawn, method="mean"))
    z = abs(found.std() - sd) / float(arviz.mcse(found, method="sd"))
    assert (z < 4) == (wider == 1.0)


@pytest.mark.parametrize("wider", [1.0, 1.3])
def test_half_t_scales_have_their_conditional_distribution(study: Any, wider: float) -> None:
    """By quadrature; effects that are 1.3 times as large must not agree."""
    rng = np.random.default_rng(5)
    effects = 0.5 * rng.standard_normal(10)
    squares, now, draws = wider**2 * (effects @ effects), 0.25, []
    for _ in range(8_000):
        now = float(study.references._half_t(rng, now, squares, len(effects), scale=1.0))
        draws.append(np.sqrt(now))
    grid = np.linspace(0.05, 4, 8_000)
    density = grid ** -len(effects) * np.exp(-0.5 * (effects @ effects) / grid**2) * (1 + grid**2 / 3) ** -2
    mean = np.average(grid, weights=density)
    z = abs(np.mean(draws) - mean) / float(arviz.mcse(np.array(draws)[np.newaxis], method="mean"))
    assert (z < 4) == (wider == 1.0)


@pytest.mark.parametrize("wider", [1.0, 1.1])
def test_agreement_is_in_standard_errors(study: Any, wider: float) -> None:
    """Draws of one distribution agree, and an sd that is 10 % larger does not."""
    rng = np.random.default_rng(6)
    one, other = ({f"x[{k}]": rng.standard_normal((4, 1_000)) for k in range(20)} for _ in range(2))
    found = study.agreement.gaps({name: wider * draws for name, draws in one.items()}, other)
    assert found["mean"].n == 20
    assert found["mean"].z < found["mean"].expected
    assert (found["sd"].z < found["sd"].expected) == (wider == 1.0)
    assert (0.6 < found["sd"].rms < 1.4) == (wider == 1.0)


def test_scales_with_long_tails_are_compared_by_their_logarithms(study: Any) -> None:
    ones = {name: np.full((2, 3), np.e) for name in ("lambda[2]", "tau", "z[2]", "sigma")}
    logarithms = study.agreement.logarithms(ones, study.rows.ROWS["horseshoe"].long_tailed)
    assert {name: values[0, 0] for name, values in logarithms.items()} == {
        "lambda[2]": 1.0, "tau": 1.0, "z[2]": np.e, "sigma": np.e,
    }  # fmt: skip
