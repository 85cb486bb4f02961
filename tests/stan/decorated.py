"""Types of a program's expressions as stanc's own syntax tree has them: an oracle for `stansub.stan.reading.typing`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from stansub.stan.toolchain.bridgestan_home import find_home

Tree: TypeAlias = "str | list[Tree]"

_WORD = re.compile(r'\(|\)|"(?:[^"\\]|\\.)*"|[^\s()]+')
_OPERATORS = {
    "Plus": "+", "Minus": "-", "Times": "*", "Divide": "/", "IntDivide": "%/%", "Modulo": "%", "LDivide": "\\",
    "EltTimes": ".*", "EltDivide": "./", "Pow": "^", "EltPow": ".^", "Or": "||", "And": "&&", "Equals": "==",
    "NEquals": "!=", "Less": "<", "Leq": "<=", "Greater": ">", "Geq": ">=",
}  # fmt: skip
_PREFIXES = {"PPlus": "+", "PMinus": "-", "PNot": "!"}
_BASES = {
    "UInt": "int", "UReal": "real", "UComplex": "complex", "UVector": "vector", "URowVector": "row_vector",
    "UMatrix": "matrix", "UComplexVector": "complex_vector", "UComplexRowVector": "complex_row_vector",
    "UComplexMatrix": "complex_matrix",
}  # fmt: skip


def typed_expressions(stan_file: Path) -> Iterator[tuple[str, str]]:
    """Yield the text and the type of every expression of a program, in any order."""
    done = subprocess.run(
        [find_home().stanc, "--debug-decorated-ast", stan_file], capture_output=True, encoding="utf-8", check=True
    )
    yield from _expressions(_parse(done.stdout))


def _parse(text: str) -> Tree:
    stack: list[list[Tree]] = [[]]
    for word in _WORD.findall(text):
        if word == "(":
            stack.append([])
        elif word == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(word)
    return stack[0]


def _is_expression(tree: Tree) -> bool:
    return (
        isinstance(tree, list)
        and len(tree) == 2
        and all(isinstance(one, list) and one for one in tree)
        and (tree[0][0] == "expr" and tree[1][0] == "emeta")
    )


def _expressions(tree: Tree) -> Iterator[tuple[str, str]]:
    if _is_expression(tree):
        (_, kind), (_, meta) = tree
        # A promotion is written where the program has nothing.
        if kind[0] != "Promotion":
            yield _text(tree), _type(next(one[1] for one in meta if one[0] == "type_"))
    if isinstance(tree, list):
        for one in tree:
            yield from _expressions(one)


def _type(tree: Tree) -> str:
    if isinstance(tree, str):
        return _BASES[tree]
    if tree[0] == "UTuple":
        return f"tuple({', '.join(map(_type, tree[1]))})"
    if tree[0] != "UArray":  # a function that is passed on
        return "unknown"
    depth, inner = 0, tree
    while isinstance(inner, list) and inner[0] == "UArray":
        depth, inner = depth + 1, inner[1]
    return f"array[{',' * (depth - 1)}] {_type(inner)}"


def _text(tree: Tree) -> str:
    kind = tree[0][1]
    match kind:
        case ["Variable", identifier]:
            return _name(identifier)
        case ["IntNumeral" | "RealNumeral", number]:
            return number
        case ["ImagNumeral", number]:
            return f"{number}i"
        case ["FunApp", _, identifier, arguments]:
            return f"{_name(identifier)}({', '.join(map(_text, arguments))})"
        case ["CondDistApp", _, identifier, [first, *rest]]:
            bar = " | " if rest else ""
            return f"{_name(identifier)}({_text(first)}{bar}{', '.join(map(_text, rest))})"
        case ["TernaryIf", *parts]:
            condition, then, orelse = map(_text, parts)
            return f"{condition} ? {then} : {orelse}"
        case ["BinOp", left, operator, right]:
            return f"{_text(left)} {_OPERATORS[operator]} {_text(right)}"
        case ["PrefixOp", operator, operand]:
            return f"{_PREFIXES[operator]}{_text(operand)}"
        case ["PostfixOp", operand, _]:
            return f"{_text(operand)}'"
        case ["Indexed", base, indices]:
            return f"{_text(base)}[{', '.join(map(_index, indices))}]"
        case ["Paren", inner]:
            return f"({_text(inner)})"
        case ["ArrayExpr", items]:
            return f"{{{', '.join(map(_text, items))}}}"
        case ["RowVectorExpr", items]:
            return f"[{', '.join(map(_text, items))}]"
        case ["TupleExpr", items]:
            return f"({', '.join(map(_text, items))})"
        case ["TupleProjection", base, number]:
            return f"{_text(base)}.{number}"
        case ["Promotion", inner, *_]:
            return _text(inner)
        case "GetTarget":
            return "target()"
    raise AssertionError(f"an expression that is not known: {kind}")


def _index(tree: Tree) -> str:
    match tree:
        case "All":
            return ":"
        case ["Single", one]:
            return _text(one)
        case ["Upfrom", lower]:
            return f"{_text(lower)} :"
        case ["Downfrom", upper]:
            return f": {_text(upper)}"
        case ["Between", lower, upper]:
            return f"{_text(lower)} : {_text(upper)}"
    raise AssertionError(f"an index that is not known: {tree}")


def _name(identifier: Tree) -> str:
    return next(one[1] for one in identifier if one[0] == "name")
