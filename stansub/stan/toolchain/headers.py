"""Selection of the Stan headers that a program needs.

Every program that stanc translates includes all of Stan's Math library: a thousand headers of functions, of which it
calls a dozen. The compiler spends most of its time on the rest. This module follows headers by the names that they
mention. What Stan's own machinery mentions is common to all programs and can be precompiled. A program includes what
else it mentions, and what that mentions in turn. Other headers are left out by defining their include guards. An
unneeded header only costs time. If a needed header is left out, the program does not compile and is compiled with all
headers.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_MODEL = "stan/model/model_header.hpp"
_OF_FUNCTIONS = re.compile(r"stan/math/(prim|rev)/(constraint|fun|functor|prob)/\w+\.hpp")
_INCLUDE = re.compile(r"^\s*#\s*include\s*<(stan/[^>]+)>", re.MULTILINE)
_GUARD = re.compile(r"^#ifndef (\w+)\s*\n#define \1\b", re.MULTILINE)
_NOT_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"|^[ \t]*#[^\n]*', re.DOTALL | re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")
_BRACE, _NAMESPACE = re.compile(r"([{}])"), re.compile(r"\bnamespace\s*[\w:]*\s*\{")
_PARENTHESIS, _TEMPLATE = re.compile(r"(\w+\s*\(|[()])"), re.compile(r"\btemplate\s*<")
_TYPE = re.compile(r"\b(?:struct|class)\s+(\w+)\b(?!\s*<)")  # a specialisation is declared elsewhere
_CONSTANT = re.compile(r"\b(?:const\w*|using)\s[\w:<>\s]*?(\w+)\s*=")
_NO_NAMES = frozenset({"alignas", "decltype", "defined", "noexcept", "operator", "sizeof", "static_assert"})


@dataclass(frozen=True)
class Headers:
    """Stan's headers of functions, and the names that they mention."""

    guards: Mapping[str, str]
    """The include guard of each header of functions."""
    words: Mapping[str, Collection[str]]
    """The names in each header."""
    declaring: Mapping[str, list[str]]
    """The headers that declare each name."""
    common: frozenset[str]
    """Headers that every program needs."""

    @classmethod
    @functools.lru_cache(maxsize=1)
    def of(cls, include: Path) -> Headers:
        """Read the headers in a folder (takes a second)."""
        guards, words = dict[str, str](), dict[str, frozenset[str]]()
        declaring: dict[str, list[str]] = {}
        used: set[str] = set()
        seen, left = {_MODEL}, [_MODEL]
        while left:
            text = _read(include / (name := left.pop()))
            found = {header for header in _INCLUDE.findall(text) if not re.search(r"opencl|/fwd/|/mix/", header)}
            left += sorted(found - seen)
            seen |= found
            code = _NOT_CODE.sub(" ", text)
            guard, declared = _GUARD.search(text), set[str]()
            if guard and _OF_FUNCTIONS.fullmatch(name):
                declared = _declared(code)
                for word in declared:
                    declaring.setdefault(word, []).append(name)
            if guard and declared:
                guards[name], words[name] = guard[1], frozenset(_WORD.findall(code))
            else:
                used.update(_WORD.findall(code))
        all_of_them = cls(guards, words, declaring, frozenset())
        return cls(guards, words, declaring, frozenset(all_of_them._needed(used)))

    def for_all(self) -> str:
        """Return the header that all programs include first; it may be precompiled."""
        left_out = "".join(f"#define {guard}\n" for name, guard in self.guards.items() if name not in self.common)
        return f"{left_out}#include <{_MODEL}>\n"

    def for_one(self, code: str) -> str:
        """Return the header that a program includes next, given its C++.

        Headers come after those that they mention, because not every one includes all that it needs.
        """
        needed = self._needed(_WORD.findall(_NOT_CODE.sub(" ", code)))
        return "".join(
            [f"#undef {self.guards[name]}\n" for name in needed] + [f"#include <{name}>\n" for name in needed]
        )

    def _needed(self, words: Iterable[str]) -> list[str]:
        """Return the headers that declare names mentioned here or by them, besides the common ones."""
        needed: list[str] = []
        seen = set(self.common)
        branches = [self._declaring(words)]
        path: list[str] = []
        while branches:
            name = next(branches[-1], None)
            if name is None:
                branches.pop()
                needed += [path.pop()] if path else []
            elif name not in seen:
                seen.add(name)
                path.append(name)
                branches.append(self._declaring(self.words[name]))
        return needed

    def _declaring(self, words: Iterable[str]) -> Iterator[str]:
        return iter(sorted({name for word in words for name in self.declaring.get(word, ())}))


def _read(header: Path) -> str:
    return header.read_text(encoding="utf-8", errors="replace") if header.is_file() else ""


def _declared(code: str) -> set[str]:
    """Return the names of functions, types and constants that a header declares in its namespaces, or a few more."""
    outside = _without_templates(_outside_braces(_NAMESPACE.sub(" ", code)))
    names, depth = set[str](), 0
    for piece in _PARENTHESIS.split(outside):
        if piece == ")":
            depth -= 1
        elif piece.endswith("("):
            if depth == 0:
                names.add(piece[:-1].strip())
            depth += 1
        elif depth == 0:
            names.update(_TYPE.findall(piece) + _CONSTANT.findall(piece))
    return names - _NO_NAMES - {""}


def _outside_braces(code: str) -> str:
    """Return the text outside the braces of functions and types."""
    outside, depth = [], 0
    for piece in _BRACE.split(code):
        if piece in {"{", "}"}:
            depth = max(0, depth + (1 if piece == "{" else -1))
        elif depth == 0:
            outside.append(piece)
    return " ".join(outside)


def _without_templates(code: str) -> str:
    """Return code without the parameters of templates."""
    kept, start = [], 0
    for match in _TEMPLATE.finditer(code):
        if match.start() < start:
            continue
        kept.append(code[start : match.start()])
        start, depth = match.end(), 1
        while depth and start < len(code):
            depth += {"<": 1, ">": -1}.get(code[start], 0) if code[start - 1] != "-" else 0
            start += 1
    return " ".join([*kept, code[start:]])
