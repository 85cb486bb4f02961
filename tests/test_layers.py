"""Imports run downward only (see docs/architecture.md)."""

import ast
import re
from pathlib import Path

import stansub

PACKAGE = Path(stansub.__file__).parent
# From the top; a layer imports from those after it, and from the modules that stand beside the layers.
LAYERS = (
    "cli",
    "report",
    "diagnostics",
    "nuts",
    "planning",
    "run",
    "stan",
    "tuning",
    "kernels",
    "acceptance",
    "target",
    "output",
)


def imported(file: Path) -> set[str]:
    """Modules and packages of stansub that a file imports, `stansub.` left out; lazy imports included."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "stansub":
            names = [node.module.removeprefix("stansub").removeprefix(".")]
            names = [alias.name for alias in node.names] if not names[0] else names
            found.update(name.split(".")[0] for name in names)
    return found


def test_every_package_is_a_layer() -> None:
    packages = {folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()}
    assert packages == set(LAYERS)


def test_imports_run_downward() -> None:
    upward = []
    for number, layer in enumerate(LAYERS):
        for file in (PACKAGE / layer).rglob("*.py"):
            wrong = imported(file) & set(LAYERS[:number])
            upward += [f"{file.relative_to(PACKAGE)} imports {name}" for name in sorted(wrong)]
    assert not upward


def test_what_stands_beside_the_layers_imports_none_of_them() -> None:
    beside = [file for file in PACKAGE.glob("*.py") if file.stem not in ("__init__", "checking")]
    assert not [f"{file.name} imports {name}" for file in beside for name in imported(file) & set(LAYERS)]


def test_one_module_reads_the_clock() -> None:
    """Whatever limits or measures time takes it from there, so that tests can set it."""
    reading = re.compile(r"\btime\.(monotonic|perf_counter|process_time|thread_time)|from time import")
    files = {str(file.relative_to(PACKAGE)) for file in PACKAGE.rglob("*.py") if reading.search(file.read_text())}
    assert files == {"clock.py"}
