"""Digests that tell whether two custom values are the same, from their content and the code of their functions."""

from __future__ import annotations

import functools
import hashlib
import json
import types
from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np

_NAMED = (type, types.FunctionType, types.BuiltinFunctionType)


def digest_of(value: Any) -> str:
    """Return a digest: equal for equal values in every process, and almost surely different otherwise."""
    return _Digests().of(value)[:16]


class _Digests:
    """Digests of all parts of a value; each part is computed once."""

    def __init__(self) -> None:
        # Keys are identities; values are held so that no identity is reused. None marks a part in progress.
        self._found: dict[int, tuple[Any, str | None]] = {}

    def of(self, value: Any) -> str:
        """Return the digest of a part."""
        if id(value) not in self._found:
            self._found[id(value)] = value, None
            text = json.dumps(self._parts(value), separators=(",", ":"))
            self._found[id(value)] = value, hashlib.sha256(text.encode()).hexdigest()
        return self._found[id(value)][1] or "itself"

    def _parts(self, value: Any) -> list[Any]:
        """Return a value's description in text, and the digests of its parts."""
        name = f"{_named(value).__module__}.{_named(value).__qualname__}"
        if value is None or isinstance(value, str | bytes | bool | int | float | complex | Enum | np.ufunc):
            return [name, repr(value)]
        if isinstance(value, types.ModuleType):
            return [name, value.__name__]
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufcSU":
            content = np.ascontiguousarray(value).tobytes()
            return [value.dtype.str, list(value.shape), hashlib.sha256(content).hexdigest()]
        if isinstance(value, Mapping):
            return [name, sorted([self.of(key), self.of(one)] for key, one in value.items())]
        if isinstance(value, list | tuple):
            return [name, [self.of(one) for one in value]]
        if isinstance(value, set | frozenset):
            return [name, sorted(self.of(one) for one in value)]
        held: tuple[Any, ...] = ()
        if isinstance(value, types.FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            held = value.__code__, value.__defaults__, value.__kwdefaults__, cells
        elif isinstance(value, types.CodeType):
            held = value.co_code, value.co_names, value.co_consts
        elif isinstance(value, functools.partial):
            held = value.func, value.args, value.keywords
        elif isinstance(value, types.MethodType):
            held = value.__func__, value.__self__
        elif isinstance(value, np.random.Generator):
            held = (value.bit_generator.state,)
        elif not isinstance(value, _NAMED) and hasattr(value, "__dict__"):
            held = (vars(value),)
        return [name, *map(self.of, held)]


def _named(value: Any) -> Any:
    """Return a value's name: itself, or its type."""
    return value if isinstance(value, _NAMED) else type(value)
