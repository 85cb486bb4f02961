"""Scales that a likelihood does not show, such as that of abilities and difficulties beside discriminations.

If a positive factor ``a`` stands before a sum of coefficients, ``a[j] * (theta[i] - b[j])``, and all of them stand
nowhere else, the likelihood does not change if the coefficients are multiplied by a number and ``a`` is divided by it.
Widths of the coefficients change with that number, which an expansion of second order does not show. The arguments

    log(a) - mean(log(a)),   theta exp(mean(log(a))),   b exp(mean(log(a)))

give the same likelihood, and their map from the parameters, which is exact, has the scale. An integer of the data, 1
or 0, switches between these and the arguments as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from stansub.stan.syntax import (
    Declaration,
    Expression,
    Infix,
    Name,
    Prefix,
    Statement,
    factors_of,
    find,
    name_of,
    names,
    summands,
)

FIXED = "stansub_fixed_scales"

_PRODUCTS = ("*", ".*")


def without_scales(statements: Sequence[Statement], arguments: Sequence[Declaration]) -> Mapping[str, str]:
    """Return Stan code of a likelihood's arguments with such scales fixed if `FIXED` is 1, by name, unconstrained.

    Positive arguments are read by their logarithm.
    """
    plain = {one.name for one in arguments if not one.type.array_dims}
    vectors = {one.name for one in arguments if one.type.base == "vector"} & plain
    factors = {one.name for one in arguments if len(one.type.bounds) == 1} & vectors
    coefficients = {one.name for one in arguments if not one.type.bounds and one.base in ("real", "vector")} & plain
    counts = Counter(one.name for one in find(Name, statements))
    every = {one.name for one in arguments}
    for product in find(Infix, statements):
        if product.operator not in _PRODUCTS:
            continue
        for factor, other in ((product.left, product.right), (product.right, product.left)):
            name, scaled = name_of(factor), [_coefficient(term, every) for _, term in summands(other)]
            if name not in factors or not coefficients.issuperset(scaled):
                continue
            if all(counts[one] == scaled.count(one) for one in scaled) and counts[name] == 1:
                log_scale = f"{FIXED} * mean(log({name}))"
                return {name: f"log({name}) - {log_scale}"} | {one: f"{one} * exp({log_scale})" for one in scaled}
    return {}


def _coefficient(term: Expression, arguments: set[str]) -> str:
    """Return the argument that is a factor of a term; empty if there is none, or another."""
    found = [one for one in factors_of(term) if one.divides or names(one.expression) & arguments]
    if len(found) != 1 or found[0].divides:
        return ""
    one = found[0].expression
    if isinstance(one, Prefix):
        return _coefficient(one.operand, arguments)
    name = name_of(one)
    return name if names(one) & arguments == {name} else ""
