"""Imports run downward only (see docs/architecture.md)."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

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
# Rooms of layers, from the top. The modules beside them import any room, and no room imports these modules.
ROOMS = {
    "stan": ("observations", "passes", "reading", "data", "syntax", "toolchain"),
    "tuning": ("surrogates", "effects", "modes"),
}


def name_of(file: Path, package: Path = PACKAGE) -> str:
    """A module's name; a package's of its `__init__.py`."""
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(package: Path = PACKAGE) -> dict[str, Path]:
    """Files of a package by the names of the modules, the extension module by that of its stub."""
    return {name_of(file, package): file for pattern in ("*.py", "*.pyi") for file in package.rglob(pattern)}


KNOWN = modules()


@cache
def statements(file: Path) -> list[ast.Import | ast.ImportFrom]:
    """Imports of a file, within functions and for types alone too."""
    return [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(file: Path, known: dict[str, Path]) -> set[str]:
    """Which of the modules a file imports."""
    found = set()
    for node in statements(file):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & known.keys() | ({node.module} if names - known.keys() else set())
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & known.keys()


def imported(file: Path) -> set[str]:
    """Layers and modules beside them that a file imports."""
    return {name.split(".")[1] for name in imports(file, KNOWN) if "." in name}


def circles(package: Path) -> list[list[str]]:
    """Modules that import each other, directly or by way of others."""
    known = modules(package)
    graph = {name: imports(file, known) for name, file in known.items()}
    reached = {name: set(later) for name, later in graph.items()}
    while grown := {
        name: more
        for name, later in reached.items()
        if (more := later.union(*(reached[one] for one in later))) != later
    }:
        reached |= grown
    groups = {frozenset(one for one in later if name in reached[one]) for name, later in reached.items()}
    return sorted(sorted(group) for group in groups if group)


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


@pytest.mark.parametrize("layer", ROOMS)
def test_imports_between_rooms_run_downward(layer: str) -> None:
    place, rooms, upward = PACKAGE / layer, ROOMS[layer], []
    assert {folder.name for folder in place.iterdir() if (folder / "__init__.py").exists()} == set(rooms)
    for number, room in enumerate(rooms):
        for file in (place / room).rglob("*.py"):
            found = {name.split(".")[2] for name in imports(file, KNOWN) if name.startswith(f"stansub.{layer}.")}
            upward += [f"{room}/{file.name} imports {name}" for name in sorted(found - set(rooms[number:]))]
    assert not upward


def test_what_stands_beside_the_layers_imports_none_of_them() -> None:
    beside = [file for file in PACKAGE.glob("*.py") if file.stem not in ("__init__", "__main__", "checking")]
    assert not [f"{file.name} imports {name}" for file in beside for name in imported(file) & set(LAYERS)]


def test_one_module_reads_the_clock() -> None:
    """Whatever limits or measures time takes it from there, so that tests can set it."""
    reading = re.compile(r"\btime\.(monotonic|perf_counter|process_time|thread_time)|from time import")
    files = {str(file.relative_to(PACKAGE)) for file in PACKAGE.rglob("*.py") if reading.search(file.read_text())}
    assert files == {"clock.py"}


def test_no_modules_import_each_other() -> None:
    assert circles(PACKAGE) == []


def test_a_circle_is_found(tmp_path: Path) -> None:
    package = tmp_path / "toy"
    (package / "inner").mkdir(parents=True)
    for name, text in {
        "__init__.py": "",
        "a.py": "from toy.inner import b",
        "inner/__init__.py": "",
        "inner/b.py": "def late():\n    import toy.c",
        "c.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from toy.a import Thing",
        "d.py": "from toy import a, c",
    }.items():
        (package / name).write_text(text)
    assert circles(package) == [["toy.a", "toy.c", "toy.inner.b"]]
