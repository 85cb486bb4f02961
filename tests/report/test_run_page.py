"""`stansub report`: one page about draws that says whether to trust them and how to reproduce them."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest

from stansub import cli
from stansub.output import inference_data
from stansub.report import run_page

ASKED = {"chains": 4, "iter_sampling": 1000, "seed": None, "test": "pocock", "epsilon": 0.005, "save_warmup": True}


class Page(HTMLParser):
    """Tags with their attributes, and text; complains of tags that do not match."""

    void = ("meta", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def drawn(**options: Any) -> Any:
    return fakes.draws(np.random.default_rng(1), **options)


def replicated() -> Any:
    rng = np.random.default_rng(2)
    tree = inference_data.build(
        posterior={},
        sample_stats={},
        posterior_predictive={"y": rng.normal(size=(4, 20, 50))},
        observed_data={"y": rng.normal(size=50)},
        dims={"y": ["observation"]},
        attrs={"model": "logistic"},
    )
    return inference_data.container(tree)


@pytest.mark.usefixtures("pictures_drawn")
def test_a_healthy_run() -> None:
    text = run_page.html(drawn(), command="stansub sample a.stan b.json --seed 1")
    page = Page(text)
    assert "No warnings" in page.text
    assert "Converged (R-hat 1.00" in page.text
    assert "stansub sample a.stan b.json --seed 1" in page.text
    assert fakes.MODEL in page.text
    assert fakes.DATA in page.text
    assert "parameters { real alpha; }" in page.text
    assert all(name in page.text for name in ("alpha", "beta[1]", "ess_bulk"))
    assert [image["alt"] for image in page.named("img")] == [
        "Traces and ranks of each chain",
        "Pairs of the most correlated quantities",
        "Share of the data used",
    ]
    assert all(str(image["src"]).startswith("data:image/png;base64,") for image in page.named("img"))
    assert not re.search(r"(src|href)=.https?:", text), "the page needs no other file"
    assert "prefers-color-scheme: dark" in text


def test_warnings_stand_first() -> None:
    def shifted(values: Any) -> None:
        values[0] += 3

    page = Page(run_page.html(drawn(change=shifted)))
    assert "Read the warnings first" in page.text
    assert page.text.index("R-hat is above 1.01") < page.text.index("mcse_mean")
    assert any("marked" in str(cell.get("class")) for cell in page.named("td"))


@pytest.mark.usefixtures("pictures_drawn")
def test_the_command_line_s_page_advises_with_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(values: Any) -> None:
        values[0] += 3

    monkeypatch.chdir(tmp_path)
    inference_data.write(drawn(change=shifted), "draws.nc")
    with pytest.raises(SystemExit, match="0"):
        cli.main(["report", "draws.nc"])
    page = Path("draws_report.html").read_text()
    assert "<code>--iter-warmup</code> and <code>--iter-sampling</code>" in page
    assert "iter_warmup" not in page.partition("<h2>Posterior")[0]
    assert "<code>iter_warmup</code>" in run_page.html(drawn(change=shifted))


def test_names_and_programs_cannot_become_markup() -> None:
    attack = "<script>alert(1)</script> `x`"
    page = Page(run_page.html(drawn(attrs={"model": attack, "model_code": attack}), command=attack))
    assert not page.named("script")
    assert page.text.count("<script>alert(1)</script>") >= 3


def test_predictions_have_a_picture_and_a_missing_check_has_a_reason() -> None:
    images = Page(run_page.html(drawn(), predicted=replicated())).named("img")
    assert "Posterior predictive check" in [image["alt"] for image in images]
    assert "No check: the data are gone." in Page(run_page.html(drawn(), note="No check: the data are gone.")).text


def test_one_quantity_has_no_pairs() -> None:
    images = Page(run_page.html(drawn(size=1))).named("img")
    assert "Pairs of the most correlated quantities" not in [image["alt"] for image in images]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    facts = {"asked": ASKED, "data_file": "/home/somebody/my data.json", "settings": {"seed": 7}}
    code = "data { int N; vector[N] y; } generated quantities { array[N] real y_rep; }"
    inference_data.write(drawn(attrs=facts | {"model_code": code}), "draws.nc")
    with pytest.raises(SystemExit, match="0"):
        cli.main(["report", "draws.nc"])
    assert capsys.readouterr().out == "draws_report.html\n"
    page = Page(Path("draws_report.html").read_text())
    options = "--iter-sampling 1000 --test pocock --epsilon 0.005 --seed 7 --save-warmup"
    (command,) = re.findall(r"stansub sample logistic.stan 'my data.json'.*", page.text)
    assert sorted(command.partition("json' ")[2].split()) == sorted(options.split())
    assert "/home/somebody" not in command
    assert "This page has no posterior predictive check: " in page.text

    with pytest.raises(SystemExit, match="2"):
        cli.main(["report", "draws.nc"])
    assert "already exists; use --force" in capsys.readouterr().err
