"""The corpus of programs that people have: well formed, with data that fit, and a report that lists false verdicts."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stansub.output.inference_data import group
from stansub.stan import source
from stansub.stan.data import data as data_module
from stansub.stan.syntax import Program, names
from stansub.stan.syntax.parser import parse_expression

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
MODULES = ("run", "page", "tall", "tall_page", "measure", "published", "published_page", "corpus", "brms")


@pytest.fixture(scope="module")
def reach() -> Iterator[Any]:
    """The command's modules, whose names are common ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        patch.syspath_prepend(str(BENCHMARKS / "reach"))
        for name in MODULES:
            patch.delitem(sys.modules, name, raising=False)
        import brms
        import corpus
        import measure
        import page
        import published
        import published_page
        import run
        import tall
        import tall_page

        yield SimpleNamespace(
            brms=brms,
            corpus=corpus,
            measure=measure,
            page=page,
            published=published,
            published_page=published_page,
            run=run,
            tall=tall,
            tall_page=tall_page,
        )
        for name in MODULES:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def programs(reach: Any) -> dict[str, Program]:
    """Every program, as stanc accepts it."""
    return {path.stem: source.read(path).program for path in sorted(reach.corpus.PROGRAMS.glob("*.stan"))}


def test_every_program_has_a_case_and_every_case_a_program(reach: Any, programs: dict[str, Program]) -> None:
    cases = reach.corpus.CASES.values()
    assert {case.path.stem for case in cases} == set(programs)
    assert len(cases) >= 40
    assert all(case.about for case in cases)
    assert all(case.path.read_text(encoding="utf-8").startswith("// ") for case in cases)


@pytest.mark.parametrize("n", [60, 400])
def test_data_fit_the_data_block(n: int, reach: Any, programs: dict[str, Program]) -> None:
    for case in reach.corpus.CASES.values():
        declarations = programs[case.path.stem].data.declarations
        data = case.data(n)
        assert set(data) == {declaration.name for declaration in declarations}, case.name
        assert data_module.read(data, declarations).values.keys() == data.keys()


def test_data_have_as_many_observations_as_were_asked_for(reach: Any, programs: dict[str, Program]) -> None:
    for case in reach.corpus.CASES.values():
        if case.name == "no_data":
            continue
        values = [np.asarray(value) for value in case.data(400).values()]
        longest = max(value.shape[0] for value in values if value.ndim)
        assert 200 <= longest <= 400, case.name


def test_data_depend_on_the_seed_alone(reach: Any) -> None:
    for case in reach.corpus.CASES.values():
        first, again, other = case.data(60), case.data(60), case.data(60, seed=2)
        for name, value in first.items():
            np.testing.assert_array_equal(value, again[name])
        if case.name != "no_data":
            assert any(not np.array_equal(value, other[name]) for name, value in first.items()), case.name


def test_programs_with_a_parameter_for_each_observation_are_no_sums(reach: Any, programs: dict[str, Program]) -> None:
    """The one truth that the text shows: as a parameter is declared with the size of the outcome."""
    for case in reach.corpus.CASES.values():
        program = programs[case.path.stem]
        outcome = {one.sizes[0] for one in program.data.declarations if one.name in ("y", "Y")}
        latent = any(outcome & names(*map(parse_expression, one.sizes)) for one in program.parameters.declarations)
        kinds = (reach.corpus.LATENT, reach.corpus.STATE_SPACE, reach.corpus.SPATIAL)
        assert not latent or case.obstacle in (*kinds, reach.corpus.GAUSSIAN_PROCESS), case.name
        assert latent or case.obstacle not in kinds, case.name


def test_verdicts_are_read_off_the_first_line(reach: Any) -> None:
    of = reach.measure.Answer
    assert of(0, "Qualifies: 12 observations\nWarning: will not qualify elsewhere", "").said == "qualifies"
    assert of(0, "May qualify, by its text", "").said == "may qualify"
    assert of(2, "Will not qualify: a Gaussian process", "").said == "will not qualify"
    assert of(0, "Form          the likelihood is a reduce_sum call", "").said == "says neither"
    assert of(2, "", "Loading\nstansub: error: it is none\n").reason == "it is none"
    assert of(2, "will not qualify: no sum\nReason        N: no\n", "").reason == "will not qualify: no sum"
    exact = "Qualifies\nExact         {}\nProposals     around the mode\n"
    assert of(0, exact.format("yes (2 arguments per observation)"), "").is_exact
    inexact = of(0, exact.format("no: it has a kink"), "")
    assert (inexact.is_exact, inexact.inexact) == (False, "it has a kink")


def row(program: str, is_sum: bool, text: str, qualifies: bool, **more: Any) -> dict[str, Any]:
    obstacle = None if is_sum else "a Gaussian process"
    cut = {"observations": 400, "parameters": 3, "block_size": 2, "proof": 1e-15, "set_up_s": 0.2, "block_s": 1e-6}
    cost: dict[str, Any] = {**cut, "times_whole": 1.5} if qualifies else {"reason": "it is | none", "named": True}
    facts = {"program": program, "about": "A regression", "is_sum": is_sum, "obstacle": obstacle, "text": text}
    return {**facts, "qualifies": qualifies, "exact": qualifies, **cost, **more}


RIGHT = (row("brms_a", True, "qualifies", True), row("b", False, "will not qualify", False))


@pytest.mark.parametrize(
    ("false", "sentence"),
    [
        (row("c", True, "may qualify", False), "Refused although they are sums: `c`"),
        (row("c", False, "may qualify", True), "Accepted although they are not sums: `c`"),
        (row("c", True, "will not qualify", True), "false: `c`"),
        (row("c", False, "qualifies", False), "false: `c`"),
    ],
)
def test_false_verdicts_are_listed_by_name(false: dict[str, Any], sentence: str, reach: Any) -> None:
    right, wrong = reach.page.Findings(RIGHT), reach.page.Findings((*RIGHT, false))
    assert right.passed
    assert not wrong.passed
    assert sentence in "\n".join(reach.page.sentences(wrong))
    assert "`c`" not in "\n".join(reach.page.sentences(right))


def test_page(reach: Any, tmp_path: Path) -> None:
    draws = {"test": "factorised", "guarantee": "exact by proved bounds", "seconds": 3.0, "largest_z": 2.1}
    differs, unclear = "differs: the mean of a by +1 sd", "inconclusive: NUTS diverged"
    rows = [
        *RIGHT,
        row("c", True, "may qualify", True, draws={**draws, "verdict": "agrees"}),
        row("d", True, "may qualify", True, draws={**draws, "verdict": "differs", "headline": differs}),
        row("f", True, "may qualify", True, draws={**draws, "verdict": "inconclusive", "headline": unclear}),
        row("e", True, "may qualify", True, draws={"failure": "no mode"}),
        row("g", True, "may qualify", True, exact=False, inexact="it has a | kink"),
        {"program": "h", "about": "A", "is_sum": True, "text": "may qualify", "named": False, "failure": "broken"},
    ]
    machine = {"cpu": "c", "cores": 2, "date": "2026-01-01T00", "versions": {"stan": "2", "stansub": "1"}}
    result = {"command": "python x", "machine": machine, "observations": "about 400 observations", "brms": False}
    text = reach.page.write(result, reach.page.Findings(rows), tmp_path).read_text(encoding="utf-8")
    assert "1 of 4 sampled programs agree with NUTS; decisions were exact in 3" in text
    assert "Differing: `d`" in text
    assert "cannot be trusted or are too few: `f`" in text
    assert "Failing: `e`" in text
    assert "**differs: the mean of a by +1 sd**, 2.1" in text
    assert "6 of 6 programs whose likelihood is a sum qualify; in brms's style, 1 of 1" in text
    assert "No verdict because of a failure: `h`" in text
    assert "Of those that qualify, decisions are exact in 5 of 6" in text
    assert "no: it has a \\| kink" in text
    assert "it is \\| none" in text
    for table in text.split("\n\n"):
        if table.startswith("|"):
            assert len({line.replace("\\|", "").count("|") for line in table.splitlines()}) == 1


def test_published_programs_of_a_checkout(reach: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "posterior_database"
    for folder in ("posteriors", "models/stan", "data/data", "reference_posteriors/draws/draws"):
        (database / folder).mkdir(parents=True)
    (database / "models" / "stan" / "m.stan").write_text("parameters {real x;} model {x ~ normal(0, 1);}")
    with zipfile.ZipFile(database / "data" / "data" / "d.json.zip", "w") as archive:
        archive.writestr("d.json", '{"N": 3}')
    chains = [{"x": [1.0, 2.0], "b[1]": [3.0, 4.0], "b[2]": [5.0, 6.0]}] * 2
    with zipfile.ZipFile(database / "reference_posteriors" / "draws" / "draws" / "d-m.json.zip", "w") as archive:
        archive.writestr("d-m.json", json.dumps(chains))
    for name, reference in (("d-m", "d-m"), ("e-m", None)):
        about = {"model_name": "m", "data_name": "d", "reference_posterior_name": reference}
        (database / "posteriors" / f"{name}.json").write_text(json.dumps(about))
    monkeypatch.delenv(reach.published.VARIABLE, raising=False)
    with pytest.raises(reach.published.InputError, match="must name a checkout"):
        reach.published.folder()
    monkeypatch.setenv(reach.published.VARIABLE, str(tmp_path))
    found = list(reach.published.subjects(reach.published.folder()))
    assert [(one.name, one.data, one.is_sum) for one in found] == [("d-m", {"N": 3}, None)]
    drawn = group(found[0].reference, "posterior")
    assert drawn["x"].values.tolist() == [[1, 2], [1, 2]]
    assert drawn["b"].values[0].tolist() == [[3, 5], [4, 6]]
    monkeypatch.setenv(reach.published.VARIABLE, str(tmp_path / "missing"))
    with pytest.raises(reach.published.InputError, match="no posteriordb checkout"):
        reach.published.folder()


def test_page_of_published_programs(reach: Any, tmp_path: Path) -> None:
    page = reach.published_page
    fine = {"test": "factorised", "guarantee": "exact by proved bounds", "seconds": 3.0, "largest_z": 2.1}
    fine |= {"largest_difference_sd": 0.02, "verdict": "agrees", "warnings": []}
    rows = [
        row("right", True, "may qualify", True, draws=fine),
        row(
            "warned", True, "may qualify", True, draws={**fine, "largest_difference_sd": 0.4, "warnings": ["R-hat | 2"]}
        ),
        row("refused", True, "may qualify", False),
        row("failing", True, "may qualify", True, draws={"failure": "no mode"}),
    ]
    assert not page.wrong(rows)
    silent = row("silent", True, "may qualify", True, draws={**fine, "largest_difference_sd": np.nan})
    assert page.wrong([*rows, silent]) == [silent]
    machine = {"cpu": "c", "cores": 2, "date": "2026-01-01T00", "versions": {"stan": "2", "stansub": "1"}}
    text = page.write({"command": "python x", "machine": machine, "rows": rows}, tmp_path).read_text(encoding="utf-8")
    assert "2 of 4 programs were sampled; 1 are refused; failing: `failing`" in text
    assert "| `refused` |  |  | refused |" in text
    assert "R-hat \\| 2" in text


def test_programs_of_brms_are_listed_with_what_they_are(reach: Any, tmp_path: Path) -> None:
    rows = ["name,about,obstacle", "a,y ~ x,", "b,y ~ gp(x),a Gaussian process"]
    (tmp_path / "formulas.csv").write_text("\n".join(rows) + "\n")
    for name in ("a", "b"):
        (tmp_path / f"{name}.stan").write_text("data { int N; real y[N]; } model { y ~ normal(0, 1); }")
        (tmp_path / f"{name}.R").write_text("N <- 2\ny <-\nc(1.5, 2)\n")
    first, second = reach.brms.subjects(tmp_path)
    assert (first.name, first.is_sum, second.is_sum, second.obstacle.name) == ("a", True, False, "a Gaussian process")
    assert first.data["y"].tolist() == [1.5, 2]
    assert "array[N] real y" in first.path.read_text()


def test_without_r_there_are_no_programs_of_brms(reach: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(reach.brms.InputError, match="no Rscript found"):
        reach.brms.write(tmp_path, 10)


@pytest.mark.slow
def test_of_brms_itself_no_program_is_misread(reach: Any, tmp_path: Path) -> None:
    if shutil.which("Rscript") is None:
        pytest.skip("R is not installed")
    try:
        reach.brms.write(tmp_path, 100)
    except reach.brms.InputError as error:
        pytest.skip(str(error))
    rows = [reach.measure.by_text(subject) for subject in reach.brms.subjects(tmp_path)]
    assert len(rows) > 80
    assert reach.page.Findings(rows).misread == []


def test_run_by_the_text(
    reach: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(reach.published.VARIABLE, raising=False)
    options = ["--size", "text", "--output-dir", str(tmp_path), "--only", "log_lik_i"]
    reach.run.main(options)
    reach.run.main([*options, "--resume"])
    assert [row["program"] for row in json.loads((tmp_path / "results.json").read_text())["rows"]] == ["log_lik_i"]
    assert "--size text --only log_lik_i" in (tmp_path / "README.md").read_text()
    with pytest.raises(SystemExit):
        reach.run.main(options)
    assert "--force" in capsys.readouterr().err


def tall_row(program: str, **more: Any) -> dict[str, Any]:
    """A program whose default makes 1,000 effective draws a core-second, and NUTS 2."""
    side = {"ess": 2000.0, "r_hat": 1.001, "slowest": "b", "sampling_core_s": 2.0, "core_s": 4.0}
    run = {**side, "test": "factorised", "guarantee": "exact by proved bounds", "share": 1e-5, "parameters": 3}
    nuts = {**side, "ess": 200.0, "sampling_core_s": 100.0, "core_s": 160.0, "at_most": 4.0, "note": ""}
    agreement = {"verdict": "agrees", "headline": "", "largest_z": 1.5}
    run |= {"observations": 10_000}
    parts = {"default": run, "pocock": {**run, "test": "pocock", "ess": 500.0}, "nuts": nuts, "agreement": agreement}
    return {"program": program, "about": "A regression", "load": 1.5, **parts, **more}


def test_page_of_tall_data(reach: Any, tmp_path: Path) -> None:
    page, plain = reach.tall_page, tall_row("brms_a")
    assert page.ratio(plain) == (500, False)
    assert page.ratio(plain, "pocock") == (4, False)
    # On smaller data 0.1 effective draws per gradient while sampling, and half of that with warmup.
    small = {**plain["nuts"], "ess": 400.0, "gradients": 4000.0, "warmup_gradients": 4000.0}
    smaller = {"default": {**plain["default"], "observations": 1000}, "nuts": small, "agreement": plain["agreement"]}
    late = tall_row("brms_b", nuts={"gradient_core_s": 0.5}, smaller=smaller)
    del late["agreement"]
    assert page.ratio(late) == (5000, True)
    assert page.rate(late, "nuts", whole=True) == (0.1, True)
    approximate = {**plain["default"], "guarantee": "asymptotic"}
    none = {"default": plain["default"], "nuts": {"note": "still in warmup"}}
    short = tall_row("brms_c", nuts={"gradient_core_s": 9.0}, default=approximate, smaller=none)
    del short["agreement"]
    stuck = tall_row("brms_d", default={**plain["default"], "r_hat": 1.2, "share": 1.0})
    assert page.ratio(short) is page.ratio(stuck) is None
    differs = tall_row("brms_e", agreement={**plain["agreement"], "verdict": "differs"})
    machine = {"cpu": "c", "cores": 2, "date": "2026-01-01T00", "versions": {"stan": "2", "stansub": "1"}}
    rows = [plain, late, short, stuck, differs, {"program": "brms_f", "failure": "took more than 1 s"}]
    rows.append({"program": "brms_g", "load": 1.0, "default": plain["default"], "failure": "took more than 9 s"})
    result = {"command": "python x", "machine": machine, "observations": 10_000, "limits": {"run": 5, "nuts": 6}}
    names = [f"brms_{letter}" for letter in "abcdefg"]
    text = page.write({**result, "rows": rows}, names, tmp_path).read_text(encoding="utf-8")
    for sentence in (
        "6 of 7 programs were sampled; not sampled: `brms_f`",
        "because the time for the program was up: `brms_g`",
        "Decisions are exact in 5; not exact: `brms_c`; exact because they read all the data: `brms_d`",
        "the median of 3 programs makes 500 times",
        "3 make at least 500 times",
        "In 1 of them the rate of NUTS is a prediction",
        "the median makes 400 times those of NUTS; `pocock` makes more than the default in 0 of 4",
        "3 agree with NUTS; differing: `brms_e`; undecided: `brms_c`",
        "or chains that disagree, with the default: `brms_d`",
        "0.1 (0.001 %)",
        "| about 5,000 | agrees, 1.5, N = 1,000 |",
    ):
        assert sentence in text, sentence
    assert page.disagreeing(rows) == [differs]
    (table,) = (part for part in text.split("\n\n") if part.startswith("| "))
    assert len({line.count("|") for line in table.splitlines()}) == 1


def test_parts_of_a_row_outlive_the_limit(reach: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def parts(subject: Any, smaller: Any, limits: Any, seed: int) -> Iterator[dict[str, Any]]:
        yield {"default": {"ess": 1.0}}
        yield {"pocock": {"ess": 2.0}}
        if subject.name == "brms_poisson":
            time.sleep(60)
        yield {"nuts": {"ess": limits.nuts}, "smaller": smaller.data["N"]}

    monkeypatch.setattr(reach.tall, "measured", parts)
    monkeypatch.setattr(reach.tall_page, "write", lambda *_: None)
    asked = ["--size", "tall", "--observations", "50", "--nuts-core-seconds", "3", "--output-dir", str(tmp_path)]
    options = reach.run.parse([*asked, "--only", "brms_gaussian", "brms_poisson", "ar1", "--program-seconds", "5"])
    rows = {row["program"]: row for row in reach.run.make(options)["rows"]}
    assert set(rows) == {"brms_gaussian", "brms_poisson"}
    assert rows["brms_gaussian"]["nuts"] == {"ess": 3.0}
    assert rows["brms_gaussian"]["smaller"] == 5
    assert "failure" not in rows["brms_gaussian"]
    assert rows["brms_poisson"]["pocock"] == {"ess": 2.0}
    assert rows["brms_poisson"]["failure"] == "took more than 5 s"


@pytest.mark.slow
def test_tall_data(reach: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both runs and NUTS, their rates and their agreement."""
    before, case = reach.tall.clock.now, reach.corpus.CASES["brms_gaussian"]
    subject, smaller = (reach.measure.Subject.of(case, n, 1) for n in (5000, 500))
    row: dict[str, Any] = {}
    for part in reach.tall.measured(subject, smaller, reach.tall.Limits(20, 20), 1):
        row |= part
    assert reach.tall.clock.now is before
    assert reach.tall_page.is_exact(row)
    assert row["pocock"]["test"] == "pocock"
    assert row["agreement"]["verdict"] == "agrees"
    for side in ("default", "pocock", "nuts"):
        assert 0 < row[side]["sampling_core_s"] < row[side]["core_s"]
        assert row[side]["ess"] > 1000
    value, is_predicted = reach.tall_page.ratio(row)
    assert value > 1
    assert not is_predicted
    # With no time for NUTS on all the data, its rate is that on a tenth of them, by gradients.
    short: dict[str, Any] = {}
    monkeypatch.setattr(reach.tall, "_GRADIENTS", float("inf"))
    for part in reach.tall.measured(subject, smaller, reach.tall.Limits(20, 20), 1):
        short |= part
    assert "agreement" not in short
    assert short["smaller"]["agreement"]["verdict"] == "agrees"
    predicted = reach.tall_page.rate(short, "nuts")
    assert predicted.is_predicted
    assert 0.2 < predicted.value / reach.tall_page.rate(row, "nuts").value < 5


@pytest.mark.slow
def test_some_programs(reach: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(reach.published.VARIABLE, raising=False)
    sums = ["brms_gaussian", "weibull_two_arrays", "hmm_sequences"]
    others = ["brms_prior_only", "brms_ma", "relative_exposure"]
    options = reach.run.parse(["--output-dir", str(tmp_path), "--only", *sums, *others])
    rows = {row["program"]: row for row in reach.run.make(options)["rows"]}
    assert [name for name in (*sums, *others) if rows[name]["qualifies"]] == sums
    assert all(rows[name]["proof"] < 1e-10 and rows[name]["observations"] == 400 for name in sums)
    assert all(rows[name]["reason"] for name in others)


def test_what_the_script_says_of_formulas_is_known(reach: Any) -> None:
    """Every obstacle that the script names is one of those of the corpus."""
    text = reach.brms.SCRIPT.read_text(encoding="utf-8")
    named = text[text.index("NOT_A_SUM <- list(") :].partition(")\n")[0]
    found = re.findall(r'= "([^"]+)"', named)
    assert len(found) > 3
    assert set(found) <= reach.brms._OBSTACLES.keys()
