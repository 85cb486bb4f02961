"""Figures as JSON has them."""

from __future__ import annotations

from typing import Any

import orjson


def plain(figures: Any) -> Any:
    """Return figures as JSON gives them back: numbers of Python, None if not finite, lists, and text as keys."""
    return orjson.loads(orjson.dumps(figures, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS))
