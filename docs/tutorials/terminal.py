"""Draw what a command prints as a picture of a terminal.

stansub sample examples/flights.stan flights.json --seed 1 | \\
    python docs/tutorials/terminal.py 'stansub sample examples/flights.stan flights.json --seed 1' \\
    > docs/tutorials/pictures/flights.svg
"""

from __future__ import annotations

import io
import sys

from rich.console import Console
from rich.text import Text

WIDTH = 100
# Rich's own format loads a font from elsewhere, which pages that show the picture do not allow.
FORMAT = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {terminal_width} {terminal_height}" role="img">
<style>
.{unique_id}-matrix {{ font: {char_height}px/{line_height}px monospace; }}
{styles}
</style>
<defs>{lines}</defs>
<rect width="{terminal_width}" height="{terminal_height}" rx="8" fill="#292929"/>
<g transform="translate({terminal_x}, 12)" class="{unique_id}-matrix">{backgrounds}{matrix}</g>
</svg>
"""


def picture(command: str, output: str) -> str:
    """Return the picture of a command and its output."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text(f"$ {command}\n", style="bold"), Text(f"{output.rstrip()}\n"), sep="")
    return console.export_svg(code_format=FORMAT, unique_id="terminal")


if __name__ == "__main__":
    print(picture(sys.argv[1], sys.stdin.read()), end="")
