"""Whether two values of a user's own are the same, as far as what they hold and the code of their functions say."""

from __future__ import annotations

import functools
import hashlib
import json
import types
from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np


def digest_of(value: Any) -> str:
    """The same for equal values, in every process; for other values in all likelihood another."""
    text = json.dumps(_parts(value, ()), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _parts(value: Any, above: tuple[int, ...]) -> Any:
    """A value in lists and text; ``above`` are the identities of the values that it is in."""
    if value is None or (isinstance(value, str | bool | int | float) and type(value).__module__ == "builtins"):
        return [type(value).__name__, repr(value)]
    if id(value) in above:
        return ["itself", len(above) - above.index(id(value))]
    look = functools.partial(_parts, above=(*above, id(value)))
    name = _name(value if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType) else type(value))
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return [name, look(value.__code__), look((value.__defaults__, value.__kwdefaults__)), look(cells)]
    if isinstance(value, types.CodeType):
        return [value.co_code.hex(), list(value.co_names), look(value.co_consts)]
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufcSU":
        content = np.ascontiguousarray(value).tobytes()
        return [value.dtype.str, list(value.shape), hashlib.sha256(content).hexdigest()]
    if isinstance(value, Mapping):
        return [name, sorted(([look(key), look(one)] for key, one in value.items()), key=repr)]
    if isinstance(value, list | tuple):
        return [name, [look(one) for one in value]]
    if isinstance(value, set | frozenset):
        return [name, sorted((look(one) for one in value), key=repr)]
    if isinstance(value, functools.partial):
        return [name, look((value.func, value.args, value.keywords))]
    if isinstance(value, types.MethodType):
        return [name, look((value.__func__, value.__self__))]
    if isinstance(value, np.random.Generator):
        return [name, look(value.bit_generator.state)]
    if isinstance(value, Enum | type | types.BuiltinFunctionType | np.ufunc | bytes):
        return [name, repr(value)]
    return [name, look(vars(value)) if hasattr(value, "__dict__") else []]


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"
