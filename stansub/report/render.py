"""Comparison reports as files: a self-contained HTML page, Markdown with pictures, and JSON."""

import base64
import html as html_module
import io
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stansub.errors import RunError
from stansub.output import files as output_files
from stansub.report import page as page_module
from stansub.report.page import PICTURES, Drawn, Page

if TYPE_CHECKING:
    from stansub.diagnostics.comparison import Comparison

HTML, MARKDOWN, FIGURES = "report.html", "report.md", "comparison.json"
_DPI = 110
_SHADES = 64  # colours of a picture: enough for curves and bands, at a third of the size

# Writes the options in a text as the user does: as in Python, which is how texts have them, or as flags.
Spell = Callable[[str], str]


class Picture(NamedTuple):
    """A picture as both reports use it; width and height in pixels."""

    file: str
    title: str
    reading: str
    image: bytes
    width: int
    height: int

    @property
    def base64(self) -> str:
        """The image as text for a data URI."""
        return base64.b64encode(self.image).decode()


def check_folder(folder: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Return the folder of a report, after checking that the report can be written there; it need not exist yet.

    Raises
    ------
    InputError
        If it is no folder, cannot be created or written to, or holds a report and `overwrite` is False.
    """
    return output_files.check_folder(folder, _names(), overwrite=overwrite)


def write(
    comparison: "Comparison", folder: str | os.PathLike[str], *, overwrite: bool = False, spell: Spell = str
) -> tuple[Path, ...]:
    """Write report.html, report.md with its pictures, and comparison.json, all of them or none; return their paths.

    The folder is created if needed. Other files in it stay as they are.

    Parameters
    ----------
    spell
        How to write the options in a text.

    Raises
    ------
    InputError
        If they may not be written (see `check_folder`).
    RunError
        If the disk fails.
    """
    target = check_folder(folder, overwrite=overwrite)
    contents = files(comparison, spell=spell)
    part = target.with_name(f".stansub-{secrets.token_hex(4)}.part")
    try:
        part.mkdir(parents=True)
        for name, content in contents.items():
            (part / name).write_bytes(content)
        target.mkdir(exist_ok=True)
        for name in contents:
            os.replace(part / name, target / name)
        for name in set(_names()) - set(contents):  # pictures of an earlier report that this one lacks
            (target / name).unlink(missing_ok=True)
    except OSError as err:
        raise RunError(
            f"could not write {folder}: {err.strerror}; free some disk space or choose another `output_dir`"
        ) from err
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return tuple(Path(folder) / name for name in contents)


def write_figures(comparison: "Comparison", path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write all figures as JSON, completely or not at all.

    Raises
    ------
    InputError
        If the file may not be written (see `output.files.check_target`).
    RunError
        If the disk fails.
    """
    content = figures_json(comparison, page_module.compose(comparison)).encode()
    output_files.write(path, content, overwrite=overwrite)
    return Path(path)


def files(comparison: "Comparison", *, spell: Spell = str) -> dict[str, bytes]:
    """Return the contents of a report's files by name, the page first."""
    page = page_module.compose(comparison)
    pictures = [picture for drawn in PICTURES if (picture := _picture(drawn, comparison))]
    return {
        HTML: html(page, pictures, spell=spell).encode(),
        MARKDOWN: markdown(page, pictures, spell=spell).encode(),
        FIGURES: figures_json(comparison, page).encode(),
        **{picture.file: picture.image for picture in pictures},
    }


def html(page: Page, pictures: list[Picture], *, spell: Spell = str) -> str:
    """Return the page with embedded pictures; text from models and files cannot become markup."""
    return html_page("report.html.j2", spell=spell, page=page, pictures=pictures)


def markdown(page: Page, pictures: list[Picture], *, spell: Spell = str) -> str:
    """Return the page in Markdown, with pictures as separate files."""
    return str(_template("report.md.j2", _escaped, spell).render(page=page, pictures=pictures))


def figures_json(comparison: "Comparison", page: Page) -> str:
    """Return all figures, and the sources of the draws, as JSON; `verdict` is the word."""
    sides = ("draws", "reference")
    origins: dict[str, Mapping[str, str]] = {
        row[0].text: {side: cell.text for side, cell in zip(sides, row[1:], strict=True)}
        for row in page.provenance.rows
    }
    everything = {**comparison.to_dict(), "provenance": origins, "created": page.created, "stansub": page.version}
    return json.dumps(everything, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _names() -> tuple[str, ...]:
    return (HTML, MARKDOWN, FIGURES, *(f"{drawn.stem}.png" for drawn in PICTURES))


def _picture(drawn: Drawn, comparison: "Comparison") -> Picture | None:
    figure = drawn.draw(comparison)
    if figure is None:
        return None
    raw = io.BytesIO()
    figure.savefig(raw, format="png", dpi=_DPI)
    return picture(drawn.stem, drawn.title, drawn.reading, raw)


def picture(stem: str, title: str, reading: str, image: io.BytesIO | Path) -> Picture:
    """Return a PNG image in few colours, with its title and how to read it."""
    from PIL import Image

    small = io.BytesIO()
    with Image.open(image) as opened:
        reduced = opened.convert("RGB").quantize(_SHADES, dither=Image.Dither.NONE)
    reduced.save(small, format="png", optimize=True)
    return Picture(f"{stem}.png", title, reading, small.getvalue(), *reduced.size)


def html_page(name: str, *, spell: Spell = str, **values: Any) -> str:
    """Return a template as HTML; text from models and files cannot become markup."""
    return str(_template(name, _marked_up, spell).render(**values))


def _template(name: str, written: Callable[[str], str], spell: Spell) -> Any:
    """Return a template that spells and writes all text, except names in Markdown, which are `literal`."""
    import jinja2
    import markupsafe

    def finalize(value: Any) -> Any:
        as_is = not isinstance(value, str) or isinstance(value, markupsafe.Markup)
        return value if as_is else markupsafe.Markup(written(spell(value)))

    loader = jinja2.PackageLoader("stansub.report")
    options: Any = {"autoescape": True, "undefined": jinja2.StrictUndefined}
    environment = jinja2.Environment(loader=loader, finalize=finalize, **options)
    environment.filters["literal"] = lambda text: markupsafe.Markup(_literal(text))
    return environment.get_template(name)


def _marked_up(text: str) -> str:
    """Return HTML with text between backticks as code, and everything else as text."""
    safe = html_module.escape(text)
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", safe)


def _escaped(text: str) -> str:
    """Return Markdown that shows text literally, in sentences and in tables, except code between backticks."""
    parts = re.split(r"(`[^`]+`)", _in_one_line(text))
    return "".join(part.replace("|", r"\|") if position % 2 else _literal(part) for position, part in enumerate(parts))


def _literal(text: str) -> str:
    """Return Markdown that shows names literally."""
    # Markdown ignores an underscore within a word; addresses become links even without brackets.
    text = re.sub(r"[\\`*<>|~&$]|(?<![^\W_])_|_(?![^\W_])|(?<=www)\.|:(?=//)", r"\\\g<0>", _in_one_line(text))
    return text.replace("](", "]\\(")


def _in_one_line(text: str) -> str:
    return " ".join(text.splitlines())
