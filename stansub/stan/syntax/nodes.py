"""Base of the nodes of a program's tree: child nodes, and copies with changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

N = TypeVar("N", bound="Node")
T = TypeVar("T")


@dataclass(frozen=True)
class Node:
    """A part of a program. Its child nodes are its fields that are nodes, in the order of the text."""

    @property
    def parts(self) -> tuple[Node, ...]:
        """The child nodes."""
        found: list[Node] = []
        for name in _fields(type(self)):
            value = getattr(self, name)
            if isinstance(value, Node):
                found.append(value)
            elif isinstance(value, tuple):
                found += [one for one in value if isinstance(one, Node)]
        return tuple(found)

    def inner(self) -> Iterator[Node]:
        """Yield the node and all its descendants, each before its children."""
        yield self
        for part in self.parts:
            yield from part.inner()


def find(kind: type[N], nodes: Iterable[Node]) -> Iterator[N]:
    """Yield all nodes of a kind in some nodes, the outer before the inner."""
    for node in nodes:
        for one in node.inner():
            if isinstance(one, kind):
                yield one


def outermost(read: Callable[[Node], T | None], node: Node) -> Iterator[T]:
    """Yield what a function reads from the outermost nodes from which it reads anything but None."""
    found = read(node)
    if found is not None:
        yield found
        return
    for part in node.parts:
        yield from outermost(read, part)


def changed(node: N, change: Callable[[Node], Node | None]) -> N:
    """Return a copy of a node with some of its descendants replaced.

    ``change`` returns the replacement of a node, whose children are then not visited; None to visit them.
    """
    new = change(node)
    if new is not None:
        return new  # type: ignore[return-value]
    found: dict[str, Any] = {}
    for name in _fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, Node):
            one: Any = changed(value, change)
            if one is not value:
                found[name] = one
        elif isinstance(value, tuple) and any(isinstance(part, Node) for part in value):
            several = tuple(changed(part, change) if isinstance(part, Node) else part for part in value)
            if any(a is not b for a, b in zip(several, value, strict=True)):
                found[name] = several
    return replace(node, **found) if found else node


def _fields(kind: type[Node]) -> tuple[str, ...]:
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(one.name for one in fields(kind) if one.name != "span")
    return _FIELDS[kind]


_FIELDS: dict[type[Node], tuple[str, ...]] = {}
