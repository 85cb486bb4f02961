"""Run the commands of a tutorial in a folder, and put what they print onto the page.

python docs/tutorials/execute.py first-run           # runs docs/tutorials/first-run.md and writes its outputs anew
python docs/tutorials/execute.py first-run --check   # compares the printed tables with the page instead

Blocks run in their order, in one folder, from which `examples` leads to that folder of the checkout. A block whose
first line is a comment that names a file, such as `# prepare.py` or `// model.stan`, is written to that file. A block
of `sh` is run by bash. If a block of `text` follows it, that is the place of its output.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PAGES = Path(__file__).resolve().parent
_BLOCK = re.compile(r"```(\w+)\n(.*?)```(?:\n\n```text\n(.*?)```)?", flags=re.DOTALL)
_FILE = re.compile(r"(?:#|//) (\S+\.(?:py|stan|R))\n")
_ROW = re.compile(r"^\S+(?: +-?[\d.]+){9}$", flags=re.MULTILINE)  # a name and nine figures, as in the table of draws


def output(command: str, folder: Path) -> str:
    """Return what a command prints on standard output, with the programs of this environment before others."""
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    shell = ["bash", "-euo", "pipefail", "-c", command]
    done = subprocess.run(shell, cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command}\nended with exit code {done.returncode}:\n{done.stderr}")
    return re.sub(r"[ \t]+$", "", done.stdout, flags=re.MULTILINE).strip("\n") + "\n"


def executed(page: str, folder: Path) -> str:
    """Return the text of a page with the outputs that its commands have in this folder."""

    def run(block: re.Match[str]) -> str:
        language, code, shown = block.groups()
        if name := _FILE.match(code):
            (folder / name[1]).write_text(code)
        elif language == "sh":
            found = output(code, folder)
            if shown is not None:
                return f"```sh\n{code}```\n\n```text\n{found}```"
        return block[0]

    return _BLOCK.sub(run, page)


def rows(page: str) -> list[str]:
    """Return the rows of tables of draws in the outputs of a page."""
    shown = [block[3] for block in _BLOCK.finditer(page) if block[1] == "sh" and block[3]]
    return [re.sub(r" +", " ", row) for text in shown for row in _ROW.findall(text)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    path = PAGES / f"{options.name}.md"
    page, folder = path.read_text(), Path(tempfile.mkdtemp())
    (folder / "examples").symlink_to(PAGES.parents[1] / "examples")
    try:
        found = executed(page, folder)
    finally:
        shutil.rmtree(folder)
    if not options.check:
        path.write_text(found)
    elif rows(found) != rows(page):
        sys.exit(f"{path.name} shows other tables than its commands print: run python {__file__} {options.name}")


if __name__ == "__main__":
    main()
