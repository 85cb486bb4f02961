"""Conversion between values and JSON with arrays, for checkpoints; decoding runs no code.

A document holds numbers, text, containers, arrays (by the digest of their bytes), random generators, and objects of
types from a closed list, by name and fields. Names are looked up in that list, never imported. Objects are created
without calling any of their code, and every field must have its declared type.

Shared objects and arrays stay shared. Values that only the user's program can make, such as functions, are *given*: the
document records which of the given objects belongs where, and the caller passes them again to decode it.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import types
import typing
from collections import abc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Metadata of dataclass fields. A given field is not stored, because options give its value again. A renewed field
# starts with its default.
GIVEN = {"codec": "given"}
ANEW = {"codec": "anew"}

_GENERATORS: dict[str, Callable[[], np.random.BitGenerator]] = {
    one.__name__: one
    for one in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}
_KINDS = "biufcSU"
# Code, which nothing changes: if a given value holds it, it is given too.
_CODE = (types.FunctionType, types.BuiltinFunctionType, np.ufunc, type)


class NotKeptError(Exception):
    """A value that no document can hold."""


class MalformedError(Exception):
    """A document that does not describe a value of the expected types."""


class Encoded(NamedTuple):
    """A value ready to be written."""

    document: Any
    arrays: Mapping[str, bytes | memoryview]
    """The contents of its arrays, by their digests."""


class Foreign(NamedTuple):
    """Values that options provide and whose types are not of this package."""

    given: tuple[Any, ...] = ()
    """Objects that are not stored."""
    types: Mapping[str, type] = {}
    """Custom dataclasses and named tuples, by name."""


_NOTHING = Foreign()


class Special(NamedTuple):
    """How to store a type that is no dataclass or named tuple: as a value of another type, which is checked."""

    hint: Any
    take: Callable[[Any], Any]
    make: Callable[[Any], Any]


class Codec:
    """Encoder and decoder of objects of a closed list of types.

    Parameters
    ----------
    known : iterable of type
        Dataclasses, named tuples and enumerations.
    """

    def __init__(self, known: Iterable[type], special: Mapping[type, Special] | None = None) -> None:
        self.special = dict(special or {})
        self.known = {name_of(one): one for one in (*known, *self.special)}

    def foreign(self, *values: Any) -> Foreign:
        """Return the foreign values in ``values``, in the same order for the same options."""
        given: list[Any] = []
        own: dict[str, type] = {}
        seen: dict[int, Any] = {}

        def look(value: Any) -> None:
            kind: Any = type(value)
            if isinstance(value, _CODE):
                given.append(value)
            elif isinstance(value, Mapping):
                look(list(value.values()))
            elif _fields_of(kind) and id(value) not in seen:
                seen[id(value)] = value
                if name_of(kind) not in self.known:
                    own[name_of(kind)] = kind
                for name, declared in _fields_of(kind).items():
                    found = getattr(value, name, None)
                    if _role(declared) == GIVEN:
                        given.extend(found if isinstance(found, tuple) else [found])
                    else:
                        look(found)
            elif isinstance(value, list | tuple):
                for one in value:
                    look(one)

        look(values)
        return Foreign(tuple(given), own)

    def encode(self, value: Any, foreign: Foreign = _NOTHING, *, copy: bool = True) -> Encoded:
        """Return the value as a document.

        Parameters
        ----------
        copy : bool
            Whether to copy arrays, which may change before the document is written.

        Raises
        ------
        NotKeptError
            If the value contains an object of another type.
        """
        encoder = _Encoder(self, foreign, copy)
        try:
            return Encoded(encoder.value(value), encoder.arrays)
        except RecursionError:
            raise NotKeptError("a value that contains itself") from None
        except AttributeError as error:  # a custom field that was never set
            raise NotKeptError(str(error)) from error

    def decode(self, encoded: Encoded, foreign: Foreign = _NOTHING, *, hint: Any = Any) -> Any:
        """Return the value of a document.

        Raises
        ------
        MalformedError
            If the document does not describe such a value, or its type is not ``hint``.
        """
        try:
            value = _Decoder(self, foreign, encoded.arrays).value(encoded.document)
        except RecursionError:
            raise MalformedError("it is nested too deeply") from None
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, NotKeptError) as error:
            raise MalformedError(str(error) or type(error).__name__) from error
        if not fits(value, hint):
            raise MalformedError(f"found a {type(value).__name__}, expected {hint}")
        return value


def name_of(kind: type) -> str:
    """Return the name of a type in documents; for the package's own types with the module."""
    module = kind.__module__.removeprefix("stansub.")
    return f"{module}:{kind.__qualname__}" if kind.__module__.startswith("stansub.") else kind.__qualname__


def digest_of(content: bytes | memoryview) -> str:
    """Return the digest that identifies the bytes of an array."""
    return hashlib.blake2b(content, digest_size=32).hexdigest()


class _Encoder:
    """Encoder of one document."""

    def __init__(self, codec: Codec, foreign: Foreign, copy: bool) -> None:
        self._codec, self._foreign, self._copy = codec, foreign, copy
        self.arrays: dict[str, bytes | memoryview] = {}
        # Objects and arrays by identity, with their numbers; they are held so that no identity is reused.
        self._seen: dict[int, tuple[int, Any]] = {}

    def value(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if kind is list:
            return [self.value(one) for one in value]
        if kind is tuple:
            return {"tuple": [self.value(one) for one in value]}
        if kind is dict:
            return {"dict": [[self.value(key), self.value(one)] for key, one in value.items()]}
        if kind is bytes:
            return {"bytes": value.hex()}
        if issubclass(kind, np.generic):
            return {"number": [_dtype(value.dtype), value.tobytes().hex()]}
        for number, one in enumerate(self._foreign.given):
            if one is value:
                return {"given": number}
        if id(value) in self._seen:
            return {"same": self._seen[id(value)][0]}
        document = self._object(value, kind)
        self._seen[id(value)] = len(self._seen), value
        return document

    def _object(self, value: Any, kind: type) -> Any:
        if kind is np.ndarray:
            return {"array": self._array(value)}
        if kind is np.random.Generator:
            state = {name: one for name, one in value.bit_generator.state.items() if name != "bit_generator"}
            return {"generator": [_known_generator(type(value.bit_generator).__name__), self.value(state)]}
        name = name_of(kind)
        if self._codec.known.get(name, self._foreign.types.get(name)) is not kind:
            raise NotKeptError(f"a value of type {kind.__qualname__}")
        if kind in self._codec.special:
            return {"special": [name, self.value(self._codec.special[kind].take(value))]}
        if issubclass(kind, Enum):
            return {"enum": [name, value.value]}
        kept = {one: self.value(getattr(value, one)) for one in _kept_of(kind)}
        return {"object": [name, kept]}

    def _array(self, array: NDArray[Any]) -> list[Any]:
        dtype, by_columns = _dtype(array.dtype), array.flags.f_contiguous and not array.flags.c_contiguous
        rows = np.ascontiguousarray(array.T if by_columns else array)
        content = rows.tobytes() if self._copy or not rows.size else rows.reshape(-1).view(np.uint8).data
        digest = digest_of(content)
        self.arrays[digest] = content
        return [dtype, list(array.shape), "F" if by_columns else "C", digest]


class _Decoder:
    """Decoder of one document."""

    def __init__(self, codec: Codec, foreign: Foreign, arrays: Mapping[str, bytes | memoryview]) -> None:
        self._codec, self._foreign, self._arrays = codec, foreign, arrays
        self._seen: list[Any] = []

    def value(self, document: Any) -> Any:
        if isinstance(document, list):
            return [self.value(one) for one in document]
        if not isinstance(document, dict):
            return document
        if len(document) != 1:
            raise MalformedError("a value has no type")
        ((kind, content),) = document.items()
        plain: dict[str, Callable[[Any], Any]] = {
            "float": lambda one: {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[one],
            "tuple": lambda several: tuple(self.value(one) for one in several),
            "dict": lambda pairs: {self.value(key): self.value(one) for key, one in pairs},
            "bytes": bytes.fromhex,
            "number": lambda one: np.frombuffer(bytes.fromhex(one[1]), _checked_dtype(one[0]))[0],
            "given": lambda number: self._foreign.given[_index(number)],
            "same": lambda number: self._seen[_index(number)],
        }
        if kind in plain:
            return plain[kind](content)
        shared: dict[str, Callable[..., Any]] = {
            "array": self._array,
            "generator": self._generator,
            "special": self._special,
            "enum": lambda name, value: self._known(name, Enum)(value),
            "object": self._object,
        }
        made = shared[kind](*content)
        self._seen.append(made)
        return made

    def _array(self, dtype: str, shape: list[int], order: str, digest: str) -> NDArray[Any]:
        content, kind = self._arrays[digest], _checked_dtype(dtype)
        dims = tuple(_index(one) for one in shape)
        if order not in ("C", "F") or math.prod(dims) * kind.itemsize != len(content):
            raise MalformedError("an array has the wrong size")
        if not len(content):
            return np.empty(dims, kind)
        return np.frombuffer(content, kind).reshape(dims, order=order).copy(order="K")  # type: ignore[call-overload, no-any-return]

    def _generator(self, name: str, state: Any) -> np.random.Generator:
        bits = _GENERATORS[_known_generator(name)]()
        bits.state = {"bit_generator": name, **self.value(state)}
        return np.random.Generator(bits)

    def _special(self, name: str, content: Any) -> Any:
        special, value = self._codec.special[self._known(name, object)], self.value(content)
        if not fits(value, special.hint):
            raise MalformedError(f"the contents of a {name} have the wrong type")
        return special.make(value)

    def _object(self, name: str, kept: dict[str, Any]) -> Any:
        kind = self._known(name, object)
        if kind in self._codec.special or issubclass(kind, Enum) or list(kept) != list(_kept_of(kind)):
            raise MalformedError(f"a {name} has unexpected fields")
        values = {one: self.value(content) for one, content in kept.items()}
        hints = _hints(kind)
        for one, value in values.items():
            if not fits(value, hints.get(one, Any)):
                raise MalformedError(f"{one} of a {name} is a {type(value).__name__}")
        if issubclass(kind, tuple):
            return kind(**values)
        made = object.__new__(kind)
        for one, declared in _fields_of(kind).items():
            object.__setattr__(made, one, values[one] if one in values else _default(declared))
        return made

    def _known(self, name: str, base: type) -> Any:
        kind = self._codec.known.get(name) or self._foreign.types.get(name)
        if kind is None or not issubclass(kind, base):
            raise MalformedError(f"unknown type {name!r}")
        return kind


def fits(value: Any, hint: Any) -> bool:
    """Return whether a value has an annotated type, as far as annotations say; numpy numbers count as numbers."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hasattr(origin, "__value__"):  # alias of a `type` statement, as NDArray is since numpy 2.5
        return fits(value, origin.__value__[arguments])
    if hint is Any or hint is object:
        return True
    if origin is types.UnionType or origin is typing.Union:
        return any(fits(value, one) for one in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin is np.ndarray:
        (wanted,) = typing.get_args(arguments[1]) or (Any,)
        return isinstance(value, np.ndarray) and (wanted is Any or np.issubdtype(value.dtype, wanted))
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        parts = arguments[:1] * len(value) if arguments[1:] == (...,) else arguments
        return len(parts) == len(value) and all(map(fits, value, parts))
    if origin in (list, abc.Sequence):
        return isinstance(value, list | tuple) and all(fits(one, arguments[0]) for one in value)
    if origin in (dict, abc.Mapping):
        return isinstance(value, Mapping) and all(
            fits(key, arguments[0]) and fits(one, arguments[1]) for key, one in value.items()
        )
    if origin is abc.Callable:
        return callable(value)
    if typing.is_typeddict(hint):
        keys = typing.get_type_hints(hint)
        return (
            isinstance(value, dict)
            and set(hint.__required_keys__) <= set(value)
            and all(fits(one, keys.get(name, Any)) for name, one in value.items())
        )
    if hint is None or hint is type(None):
        return value is None
    if hint in (bool, int, float):
        numbers = {bool: (bool, np.bool_), int: (int, np.integer), float: (float, int, np.floating, np.integer)}[hint]
        return isinstance(value, numbers) and (hint is bool or not isinstance(value, bool))
    if getattr(hint, "_is_protocol", False):
        return all(hasattr(value, name) for name in _members(hint))
    return isinstance(value, origin or hint)


@cache
def _members(protocol: type) -> tuple[str, ...]:
    """Return the members of a protocol."""
    declared = [{**vars(one), **inspect.get_annotations(one)} for one in protocol.__mro__[:-1]]
    names = {name for one in declared for name in one}
    return tuple(name for name in names if name == "__call__" or not name.startswith("_"))


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Return declared types of the fields; empty for custom types, whose annotations may mean anything."""
    return typing.get_type_hints(kind) if kind.__module__.startswith("stansub.") else {}


@cache
def _fields_of(kind: type) -> dict[str, Field[Any] | None]:
    """Return the fields of a dataclass or named tuple; empty for any other type."""
    if is_dataclass(kind):
        return {one.name: one for one in fields(kind)}
    if issubclass(kind, tuple):
        return dict.fromkeys(getattr(kind, "_fields", ()))
    return {}


def _kept_of(kind: type) -> list[str]:
    """Return names of the fields that a document stores."""
    return [name for name, declared in _fields_of(kind).items() if _role(declared) != ANEW]


def _role(declared: Field[Any] | None) -> dict[str, str]:
    return {} if declared is None else {name: one for name, one in declared.metadata.items() if name == "codec"}


def _default(declared: Field[Any] | None) -> Any:
    assert declared is not None
    return declared.default if declared.default_factory is MISSING else declared.default_factory()


def _dtype(dtype: np.dtype[Any]) -> str:
    if dtype.kind not in _KINDS:
        raise NotKeptError(f"an array of dtype {dtype}")
    return dtype.str


def _checked_dtype(name: str) -> np.dtype[Any]:
    dtype = np.dtype(name) if isinstance(name, str) else np.dtype(object)
    if dtype.kind not in _KINDS or dtype.str != name:
        raise MalformedError(f"arrays of dtype {name} are not supported")
    return dtype


def _known_generator(name: str) -> str:
    if name not in _GENERATORS:
        raise NotKeptError(f"a generator of type {name}")
    return name


def _index(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise MalformedError("expected an index, found another number")
    return number
