"""The reading path of docs/architecture.md: its files exist, and its lines can be read in an hour."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
# Lines of code that may be read in an hour, by somebody who skips what the page says can be skipped.
_HOUR = 2500


def lines_of_code(path: Path) -> int:
    """Lines that hold more than comments and docstrings, those of fields included."""
    text = path.read_text()
    if path.suffix != ".py":
        return sum(bool(re.sub(r"//.*", "", line).strip()) for line in text.splitlines())
    docstrings = {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    code = {
        number
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _LAYOUT
        for number in range(token.start[0], token.end[0] + 1)
    }
    return len(code - docstrings)


def path_of(page: str) -> dict[Path, int]:
    section = page.partition("## Read it in an hour")[2].partition("\n## ")[0]
    return {ROOT / file: int(lines) for file, lines in re.findall(r"\| `([^`]+)` \| (\d+) \|", section)}


def test_the_path_can_be_read_in_an_hour() -> None:
    stated = path_of((ROOT / "docs" / "architecture.md").read_text())
    assert 10 <= len(stated) <= 15
    assert [file for file in stated if not file.exists()] == []
    found = {file: lines_of_code(file) for file in stated}
    assert sum(found.values()) < _HOUR
    for file, lines in stated.items():
        assert found[file] == pytest.approx(lines, rel=0.1), f"state {found[file]} lines for {file.name}"


def test_docstrings_and_comments_are_not_counted(tmp_path: Path) -> None:
    (tmp_path / "some.py").write_text(
        '"""One.\n\nTwo.\n"""\n\n# three\nx = """4\n5"""\n"""Of x."""\n\n\ndef f():\n    "six"\n    return x  # 7\n'
    )
    (tmp_path / "some.hpp").write_text("// one\n\nint x;  // two\n}\n")
    assert lines_of_code(tmp_path / "some.py") == 4
    assert lines_of_code(tmp_path / "some.hpp") == 2
