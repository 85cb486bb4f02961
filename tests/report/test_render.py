import base64
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from stansub.diagnostics.comparison import Comparison, compare_draws
from stansub.errors import InputError, RunError
from stansub.report import brief, page, render


def compared(*, size: int = 4, own: dict[str, Any] | None = None, **reference: Any) -> Comparison:
    rng = np.random.default_rng(1)
    return compare_draws(fakes.draws(rng, size=size, **(own or {})), fakes.reference(rng, size=size, **reference))


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compared(own={"attrs": {"data_file": "/home/somebody/secret/data.json"}})


@pytest.fixture
def one_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making all of them takes longer than the rest of a report."""
    monkeypatch.setattr(render, "PICTURES", render.PICTURES[:1])


NOTHING = page.Table((), ("", "x"), ())
PLAIN = page.Page(
    "title", "now", "1", "agrees", "Agrees.", ("a", "b"), (), "Use them.", (), (), NOTHING, (), (),
    NOTHING, NOTHING, 0, (), NOTHING, (), (),
)  # fmt: skip


class Page(HTMLParser):
    """Tags, references and text of a page; complains of tags that do not match."""

    void = ("meta", "img", "br", "link", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.cells: list[str] = []
        self.rows: list[list[str]] = []
        self.texts: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "action", "data", "srcset")]
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self.open and self.open[-1] in ("th", "td"):
            self.cells.append(data)
        if {"th", "td"} & set(self.open):
            self.rows[-1][-1] += data


@pytest.mark.usefixtures("pictures_in_full")
def test_the_page_holds_everything_and_needs_nothing(comparison: Comparison) -> None:
    text = render.files(comparison)["report.html"].decode()
    found = Page(text)
    assert found.links
    assert all(link.startswith("data:image/png;base64,") for link in found.links)
    assert all(base64.b64decode(link.partition(",")[2])[:4] == b"\x89PNG" for link in found.links)
    assert not {"script", "link", "iframe", "object"} & set(found.tags)
    assert "http" not in text
    assert "@import" not in text
    assert "url(" not in text
    assert {"alpha", "beta[1]", "beta[2]", "beta[3]"} <= set(found.cells)
    assert comparison.verdict.word in found.texts
    assert found.texts.index(comparison.verdict.word) < found.texts.index("Pictures")
    assert len(text) < 500_000


@pytest.mark.usefixtures("one_picture")
@pytest.mark.parametrize(
    ("own", "word"),
    [
        ({}, "agrees"),
        pytest.param({"change": fakes.inflated(1.3)}, "differs", marks=pytest.mark.slow),
        ({"change": fakes.stuck()}, "do not use"),
    ],
)
def test_the_verdict_stands_first_in_all_three(own: dict[str, Any], word: str) -> None:
    contents = render.files(compared(own=own))
    assert f'<div class="verdict {word.replace(" ", "-")}">' in contents["report.html"].decode()
    assert f"**{word}**" in contents["report.md"].decode()[:200]
    assert json.loads(contents["comparison.json"])["verdict"] == word


@pytest.mark.parametrize("name", ["flights", "linear", "poisson"])
def test_committed_reports_look_as_those_made_today(name: str) -> None:
    style = (Path(render.__file__).parent / "templates" / "style.css.j2").read_text(encoding="utf-8").strip()
    page = Path(__file__).parents[2] / "reports" / name / "report.html"
    assert f"<style>\n{style}\n</style>" in page.read_text(encoding="utf-8")


@pytest.mark.usefixtures("pictures_drawn")
def test_names_cannot_become_markup() -> None:
    evil = "<script>alert(1)</script>|*x*[y](http://z)"
    variable = evil.replace("/", "")  # which ArviZ 1.x does not allow in names
    rng = np.random.default_rng(1)
    more = {variable: rng.standard_normal((4, 1000))}
    attrs = {"model": evil, "engine_reason": evil}
    contents = render.files(
        compare_draws(fakes.draws(rng, more=more, attrs=attrs), fakes.reference(rng, more=more, attrs=attrs))
    )
    found = Page(contents["report.html"].decode())
    assert "script" not in found.tags
    assert "a" not in found.tags
    assert variable in found.cells
    markdown = Page(f"<div>{MarkdownIt('js-default').render(contents['report.md'].decode())}</div>")
    assert "script" not in markdown.tags
    assert "a" not in markdown.tags
    assert variable in markdown.cells


ODD = [
    "a`b`", "x`", "``x``", "`a|b`", "~~x~~", "&lt;b&gt;", "&amp;", "&#65;", "http:x.y", "www.x.de", "a|b", "*a*", "_a_",
    "__a__", "a__b", "[a](b)", "![a](b)", "<b>x<b>", "\\", "a\\", "\\|", "$x$", "$$x$$", "# a", "- a",
    "1. a", "a_b", "beta[1]",
]  # fmt: skip


@given(st.text("`~&;|*_[]()!<>\\$#.:-+aw1 ", min_size=1, max_size=12) | st.sampled_from(ODD))
@settings(max_examples=60)
def test_a_name_in_markdown_is_that_name(name: str) -> None:
    shown = page.Table((), ("", "x"), ((page.Cell(name), page.Cell("1", True)),))
    name = " ".join(name.split())
    text = render.markdown(PLAIN._replace(title=f"x{name}x", provenance=shown, apart=(("Only", f"x{name}x"),)), [])
    found = Page(f"<div>{MarkdownIt('commonmark').enable(['table', 'strikethrough']).render(text)}</div>")
    assert not {"a", "s", "code", "b", "img"} & set(found.tags)
    cells = [" ".join(cell.split()) for cell in found.rows[-1]]
    assert cells == [name, "1"]
    said = " ".join("".join(found.texts).split())
    assert said.startswith(f"x{name}x ")
    assert f" Only: x{name}x " in said


def test_odd_names_stay_themselves_in_sentences_and_code_stays_code() -> None:
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    sentence = "Look at `stansub plot`: ~~x~~ &lt; a_b *c* http://a.b www.c.d\r\nof <b>."
    text = render.markdown(PLAIN._replace(advice=sentence), [])
    assert "<code>stansub plot</code>: ~~x~~ &amp;lt; a_b *c* http://a.b www.c.d of &lt;b&gt;." in markdown.render(text)
    assert r"http\://a.b www\.c.d" in text


def test_markdown_says_the_same(comparison: Comparison) -> None:
    contents = render.files(comparison)
    text = contents["report.md"].decode()
    found = Page(f"<div>{MarkdownIt('js-default').render(text)}</div>")
    html = Page(contents["report.html"].decode())
    figures = [cell for cell in html.cells if re.fullmatch(r"[+−]?\d[\d.,]*", cell)]
    assert len(figures) > 100
    assert set(figures) <= set(found.cells)
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", text)
    assert pictures == [name for name in contents if name.endswith(".png")]


@pytest.mark.usefixtures("one_picture")
def test_no_folders_of_the_machine(comparison: Comparison) -> None:
    for name, content in render.files(comparison).items():
        if not name.endswith(".png"):
            assert b"somebody" not in content
            assert b"data.json" in content


@pytest.mark.usefixtures("one_picture")
def test_json_has_all_figures_and_null_for_what_does_not_exist() -> None:
    comparison = compared(size=70, own={"chains": 1, "draws": 200}, draws=200)
    contents = render.files(comparison)
    figures = json.loads(contents["comparison.json"], parse_constant=pytest.fail)
    assert len(figures["parameters"]) == 70
    assert figures["parameters"]["beta[1]"]["r_hat"] is None
    for name, row in comparison.parameters.iterrows():
        assert figures["parameters"][name]["mean_diff"] == row["mean_diff"]
    assert figures["provenance"]["Seed"] == {"draws": "1", "reference": "1"}
    found = Page(contents["report.html"].decode())
    rows = [cell for cell in found.cells if cell == "alpha" or cell.startswith("beta[")]
    assert len(rows) == 2 * page.MAX_ROWS
    assert "comparison.json also contains the other 10" in "".join(found.texts)


def test_the_same_but_for_the_time(comparison: Comparison) -> None:
    first, second = render.files(comparison), render.files(comparison)
    created = rb"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"
    for name in first:
        assert re.sub(created, b"", first[name]) == re.sub(created, b"", second[name])


def test_what_is_on_one_side_only_is_named() -> None:
    rng = np.random.default_rng(1)
    own = fakes.draws(rng, more={"mine": np.ones((4, 1000)), "same": np.ones((4, 1000))})
    other = fakes.reference(rng, more={"theirs": np.ones((4, 1000, 2)), "same": np.ones((4, 1000))})
    said = dict(page.compose(compare_draws(own, other)).apart)
    assert said["Only in the subsampled draws"] == "mine"
    assert said["Only in the draws of NUTS"] == "theirs"
    assert said["Constant and equal in both"] == "same"


def test_speed_is_that_of_the_faster_side(comparison: Comparison) -> None:
    first = next(iter(page.speed(comparison)))
    figures = comparison.cost.loc["ess_per_second", ["draws", "reference"]].astype(float)
    ratio = figures["draws"] / figures["reference"]
    slower = "NUTS" if ratio > 1 else "subsampled"
    assert f"{page.number(max(ratio, 1 / ratio), 2)} times as many as {slower}." in first
    assert first.count("times as many") == 1
    rng = np.random.default_rng(1)
    assert list(page.speed(compare_draws(fakes.draws(rng), fakes.foreign(rng)))) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(float("nan"), "–"), (0.0, "0"), (1234.5, "1,234"), (0.01234, "0.0123"), (-2.0, "−2.00"), (float("inf"), "∞")],
)
def test_numbers(value: float, text: str) -> None:
    assert page.number(value) == text


def test_significant_figures_are_marked() -> None:
    shifted = page.compose(compared(own={"change": fakes.shifted(0.3, quantity=2)}))
    marked = {row[0].text for row in shifted.differences.rows if any(cell.marked for cell in row)}
    assert marked == {"beta[2]"}
    assert not any(cell.marked for row in page.compose(compared()).differences.rows for cell in row)


def test_a_report_is_written_and_not_overwritten(tmp_path: Path, comparison: Comparison) -> None:
    folder = tmp_path / "reports" / "logistic"
    written = render.write(comparison, folder)
    assert [path.name for path in written[:3]] == ["report.html", "report.md", "comparison.json"]
    assert {path.name for path in folder.iterdir()} == {path.name for path in written}
    assert list(folder.parent.iterdir()) == [folder]
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="`overwrite=True`"):
        render.write(comparison, folder)
    rng = np.random.default_rng(1)
    render.write(compare_draws(fakes.draws(rng, size=1), fakes.reference(rng, size=1)), folder, overwrite=True)
    assert not (folder / "pair.png").exists()  # one parameter has no pair
    assert (folder / "notes.txt").read_text() == "mine"


def test_nothing_is_left_of_a_report_that_fails(
    tmp_path: Path, comparison: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(RunError, match="No space left"):
        render.write(comparison, tmp_path / "report")
    assert list(tmp_path.iterdir()) == []


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match="is a file"):
            render.check_folder(folder, overwrite=False)
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o500)
        with pytest.raises(InputError, match="cannot be written"):
            render.check_folder(tmp_path / "closed" / "new", overwrite=False)
    assert render.check_folder(tmp_path / "new" / "newer", overwrite=False) == tmp_path / "new" / "newer"
    assert not (tmp_path / "new").exists()


def test_the_terminal_shows_verdict_parameters_and_cost(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    brief.render(compared(size=12, own={"change": fakes.inflated(1.3)}), Console(width=100))
    said = capsys.readouterr().out
    assert said.startswith("Differs")
    assert len(re.findall(r"^beta\[\d+\]  ", said, re.MULTILINE)) >= 7
    assert "the 8 that differ most of 12" in said
    assert re.search(r"Time to ESS 400.* \d", said)
    assert max(map(len, said.splitlines())) <= 100


@pytest.mark.slow
def test_sixty_parameters_cost_little_more_than_fifteen(tmp_path: Path) -> None:
    def cost(size: int) -> int:
        own, other = (make(np.random.default_rng(1), size=size) for make in (fakes.draws, fakes.reference))
        compared = compare_draws(own, other)
        return fakes.n_calls(lambda: render.write(compared, tmp_path / str(size), overwrite=True))

    assert cost(60) < 2 * cost(15)
    assert sum(path.stat().st_size for path in (tmp_path / "60").iterdir()) < 1_000_000
