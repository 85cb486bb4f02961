"""The report: predicted and measured side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def text(parts: Mapping[str, Any]) -> str:
    """The page of the parts that there are, ``risk`` and ``nuts``."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).resolve().parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("page.md").render(parts=parts)
