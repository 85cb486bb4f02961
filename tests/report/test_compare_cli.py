import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from stansub import findings
from stansub.cli.compare import compare as command
from stansub.cli.flags import as_flags
from stansub.diagnostics import compare as module
from stansub.diagnostics.compare import compare
from stansub.errors import InputError, RunError
from stansub.nuts.base import Program
from stansub.output import inference_data
from stansub.report import page, render
from stansub.stan.data import data as data_module

CODE = """data {
  int<lower=0> N;
  vector[N] y;
}
parameters {
  real alpha;
  vector[3] beta;
}
model {
  y ~ normal(alpha + sum(beta), 1);
}
"""
PROGRAM = Program("logistic", CODE)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Options of each run of NUTS, which is not run."""
    calls: list[dict[str, Any]] = []

    def reference(program: Program, data: Any, **options: Any) -> Any:
        calls.append({"data": data, **options})
        digest = data_module.read(data, program.syntax.data.declarations).digest()
        settings = {"chains": 4, "parallel_chains": 2, "iter_warmup": 1000, "iter_sampling": 1000, "seed": 1}
        settings |= {"adapt_delta": 0.8, "max_treedepth": 10}
        settings |= {name: value for name, value in options.items() if name in settings and value is not None}
        attrs = {"reference_for": program.hash, "model_hash": program.hash, "data_hash": digest, "settings": settings}
        return fakes.reference(np.random.default_rng(2), attrs=attrs)

    monkeypatch.setattr(module, "make_reference", reference)
    return calls


@pytest.fixture(autouse=True)
def _one_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making all of them takes longer than the rest of a report."""
    monkeypatch.setattr(render, "PICTURES", render.PICTURES[:1])


@pytest.fixture
def draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Draws beside their data; the working folder is another one."""
    (tmp_path / "run").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    data = tmp_path / "run" / "data.json"
    data.write_text('{"N": 2, "y": [1.0, 2.0]}')
    digest = data_module.read(data, PROGRAM.syntax.data.declarations).digest()
    attrs = {"model_code": CODE, "model_hash": PROGRAM.hash, "data_hash": digest, "data_file": str(data)}
    path = tmp_path / "run" / "draws.nc"
    inference_data.write(fakes.draws(np.random.default_rng(1), attrs=attrs), path)
    return path


@pytest.fixture
def run() -> Callable[..., Any]:
    app = typer.Typer()
    app.command()(command)

    def invoke(*arguments: Any, fails: str = "") -> Any:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if fails:
            assert isinstance(result.exception, InputError)
            assert fails in as_flags(str(result.exception))
            assert "\n" not in str(result.exception)
        else:
            assert result.exit_code == 0, result.output
        return result

    return invoke


def test_a_reference_is_made_and_kept_and_used_again(
    draws: Path, made: list[dict[str, Any]], run: Callable[..., Any]
) -> None:
    result = run(draws, "--quiet")
    stored = draws.parent / "logistic_reference.nc"
    assert stored.is_file()
    assert len(made) == 1
    assert result.stdout.startswith("Agrees within Monte Carlo error")
    assert result.stdout.splitlines()[-3:] == [
        f"reports/logistic/{name}" for name in ("report.html", "report.md", "comparison.json")
    ]
    assert str(stored) in result.stderr.replace("\n", "")
    again = run(draws, "--quiet", "--output-dir", "elsewhere")
    assert len(made) == 1
    assert "(reused)" in again.stderr
    first, second = (
        json.loads(Path(folder, "comparison.json").read_text()) for folder in ("reports/logistic", "elsewhere")
    )
    assert first["parameters"] == second["parameters"]


def test_a_stored_reference_that_does_not_fit_is_refused(
    draws: Path, made: list[dict[str, Any]], run: Callable[..., Any]
) -> None:
    stored = draws.parent / "logistic_reference.nc"
    inference_data.write(fakes.reference(np.random.default_rng(3)), stored)
    run(draws, fails="different data")
    assert not made
    assert not Path("reports").exists()
    run(draws, "--force", "--seed", 7)
    assert made[0]["seed"] == 7
    run(draws, "--seed", 8, "--output-dir", "other", fails="seed 7, not 8")
    run(draws, "--seed", 7, "--output-dir", "other")
    assert len(made) == 1


def test_what_remedies_of_nuts_name_is_an_option(
    draws: Path, made: list[dict[str, Any]], run: Callable[..., Any]
) -> None:
    remedies = " ".join(
        as_flags(finding.describe().remedy) for finding in (findings.Divergences(3, 0.8), findings.TreesCutShort(3, 10))
    )
    assert "--adapt-delta" in remedies
    assert "--max-treedepth" in remedies
    run(draws, "--adapt-delta", 0.9, "--max-treedepth", 12)
    assert (made[0]["adapt_delta"], made[0]["max_treedepth"]) == (0.9, 12)
    run(draws, "--adapt-delta", 0.99, "--output-dir", "other", fails="adapt_delta 0.9, not 0.99")
    run(draws, "--adapt-delta", 0.9, "--output-dir", "other")
    assert len(made) == 1


def test_pages_advise_with_flags(
    draws: Path, made: list[dict[str, Any]], run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(page._ADVICE, "agrees", "Try `adapt_delta=0.99`.")
    run(draws)
    assert "Try <code>--adapt-delta 0.99</code>." in Path("reports/logistic/report.html").read_text()
    assert "Try `--adapt-delta 0.99`." in Path("reports/logistic/report.md").read_text()


def test_nothing_is_overwritten_and_that_is_known_before_the_run(
    draws: Path, made: list[dict[str, Any]], run: Callable[..., Any]
) -> None:
    Path("reports/logistic").mkdir(parents=True)
    Path("reports/logistic/report.md").write_text("mine")
    run(draws, fails="--force")
    Path("figures.json").write_text("mine")
    run(draws, "--json", "figures.json", fails="--force")
    assert not made
    assert Path("figures.json").read_text() == Path("reports/logistic/report.md").read_text() == "mine"
    run(draws, "--force")
    assert Path("reports/logistic/report.md").read_text().startswith("# logistic")


def test_the_figures_alone(draws: Path, made: list[dict[str, Any]], run: Callable[..., Any]) -> None:
    run(draws, "--json", "figures.json", "--output-dir", "x", fails="leave out")
    result = run(draws, "--json", "figures.json", "--var-name", "beta")
    assert result.stdout.splitlines()[-1] == "figures.json"
    figures = json.loads(Path("figures.json").read_text())
    assert figures["verdict"] == "agrees"
    assert set(figures["parameters"]) == {"beta[1]", "beta[2]", "beta[3]"}
    assert [path.name for path in Path().iterdir()] == ["figures.json"]


def test_data_that_moved_or_changed(draws: Path, made: list[dict[str, Any]], run: Callable[..., Any]) -> None:
    data = draws.parent / "data.json"
    moved = data.rename(draws.parent / "moved.json")
    run(draws, fails="give --data")
    data.write_text('{"N": 2, "y": [1.0, 2.5]}')
    run(draws, fails="these are not the data of the draws")
    run(draws, "--data", "nowhere.json", fails="no such file")
    assert not made
    run(draws, "--data", moved)
    assert made[0]["data"].files == (moved,)


def test_references_of_something_else(tmp_path: Path, draws: Path, run: Callable[..., Any]) -> None:
    rng = np.random.default_rng(1)
    others = {
        "model": fakes.reference(rng),
        "nothing in common": inference_data.build(
            posterior={"gamma": rng.standard_normal((4, 100))}, sample_stats={}, attrs={}
        ),
        "own": fakes.foreign(rng),
    }
    for name, idata in others.items():
        inference_data.write(idata, tmp_path / f"{name}.nc")
    run(draws, tmp_path / "model.nc", fails="different models")
    run(draws, tmp_path / "nothing in common.nc", fails="no common parameters")
    run(draws, tmp_path / "missing.nc", fails="no such file")
    run(tmp_path / "missing.nc", fails="no such file")
    assert not Path("reports").exists()
    assert run(draws, tmp_path / "own.nc").stdout.startswith("Agrees")


def test_draws_that_do_not_tell_their_program(made: list[dict[str, Any]]) -> None:
    bare = fakes.draws(np.random.default_rng(1), attrs={"model_code": None})
    with pytest.raises(InputError, match="do not record their program"):
        compare(bare)
    assert not made


def test_draws_in_memory(draws: Path, made: list[dict[str, Any]]) -> None:
    comparison = compare(inference_data.read(draws), chains=2, show_progress=False)
    assert comparison.verdict.word == "agrees"
    assert made[0]["chains"] == 2
    assert not list(Path().iterdir())  # nothing is stored where no folder is known
    assert [path.name for path in draws.parent.iterdir() if path.suffix == ".nc"] == ["draws.nc"]


def test_the_seed_of_the_reference_is_derived_from_that_of_the_draws(draws: Path, made: list[dict[str, Any]]) -> None:
    own = inference_data.read(draws)
    settings = inference_data.attrs(own)["settings"]

    def seed(of_draws: int | None, **given: int) -> int | None:
        own.attrs["settings"] = json.dumps({**settings, "seed": of_draws})
        compare(own, show_progress=False, **given)  # type: ignore[arg-type]
        return made[-1].get("seed")

    first = seed(1)
    assert seed(1) == first
    assert len({1, 2, first, seed(2)}) == 4
    assert seed(None) is None
    assert seed(1, seed=9) == 9


def test_what_is_left_out_is_said(tmp_path: Path, draws: Path, run: Callable[..., Any]) -> None:
    more = {"theirs": np.random.default_rng(5).random((4, 1000)), "word": np.full((4, 1000), "x")}
    attrs = {"not_kept": "log_lik"}
    facts = inference_data.attrs(inference_data.read(draws))
    attrs |= {"reference_for": facts["model_hash"], "data_hash": facts["data_hash"]}
    inference_data.write(fakes.reference(np.random.default_rng(2), more=more, attrs=attrs), tmp_path / "r.nc")
    out = run(draws, tmp_path / "r.nc").stdout
    expected = {"Only in the draws of NUTS": "theirs", "Not numbers": "word", "Saved on neither side": "log_lik"}
    for label, name in expected.items():
        assert f"Not compared: {label}: {name}\n" in out
        assert f"- {label}: {name}\n" in Path("reports/logistic/report.md").read_text()


def test_what_cannot_be_compared_is_known_before_the_run(
    draws: Path, made: list[dict[str, Any]], run: Callable[..., Any]
) -> None:
    run(
        draws,
        "--var-name",
        "beta",
        "--var-name",
        "gamma",
        fails="no such variable in the draws: gamma; they have",
    )
    assert not made


def test_a_reference_in_memory_is_kept_when_the_comparison_fails(
    tmp_path: Path, draws: Path, made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: Any, **options: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(module, "compare_draws", fails)
    with pytest.raises(RunError, match=r"memory is short.*; the draws were saved in") as caught:
        compare(inference_data.read(draws), show_progress=False)
    kept = inference_data.read(str(caught.value).rpartition(" ")[2])
    assert inference_data.group(kept, "posterior").sizes["draw"] == 1000
